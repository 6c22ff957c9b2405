// layer_ops.c - argument checks, activations and windows of operator files.
#include "graph/ops/layers.h"

hk_status hki_check_floats(const hki_infer *c, uint32_t inputs) {
    hk_dtype first = 0;
    for (int i = 0; i < c->n_in; i++) {
        const hk_dtype t = c->in[i].dtype;
        if (!(inputs >> i & 1) || t == 0)
            continue;
        if (t != HK_F32 && t != HK_F64)
            return hki_fail(HK_E_DTYPE,
                            "%s: input %d must be float32 or float64, not %s",
                            c->name, i, hk_dtype_name(t));
        if (first != 0 && t != first)
            return hki_fail(HK_E_DTYPE,
                            "%s: input %d is %s, the ones before are %s",
                            c->name, i, hk_dtype_name(t), hk_dtype_name(first));
        first = t;
    }
    return HK_OK;
}

static hk_status check_is(const hki_infer *c, int i, hk_dtype want) {
    const hk_dtype t = c->in[i].dtype;
    if (t == want || t == 0)
        return HK_OK;
    return hki_fail(HK_E_DTYPE, "%s: input %d must be %s, not %s", c->name, i,
                    hk_dtype_name(want), hk_dtype_name(t));
}

hk_status hki_check_product(const hki_infer *c, uint32_t others,
                            hk_dtype *result) {
    const uint32_t factors = 3;
    *result = c->in[0].dtype;
    if (c->attr->dtype != HK_BF16)
        return hki_check_floats(c, factors | others);
    for (int i = 0; i < c->n_in; i++)
        if ((factors | others) >> i & 1)
            HKI_TRY(check_is(c, i, factors >> i & 1 ? HK_BF16 : HK_F32));
    *result = HK_F32;
    return HK_OK;
}

hk_status hki_check_index(const hki_infer *c, int i, const char *what) {
    const hk_dtype t = c->in[i].dtype;
    if (t == HK_I32 || t == HK_I64)
        return HK_OK;
    return hki_fail(HK_E_DTYPE, "%s: %s must be int32 or int64, not %s",
                    c->name, what, hk_dtype_name(t));
}

hk_status hki_check_rank(const hki_infer *c, int i, const char *what,
                         int rank) {
    char text[HKI_SHAPE_TEXT];
    if (c->in[i].shape.rank == rank)
        return HK_OK;
    return hki_fail(HK_E_SHAPE, "%s: %s needs %d dimensions, has shape %s",
                    c->name, what, rank, hki_shape_text(c->in[i].shape, text));
}

hk_status hki_check_min_rank(const hki_infer *c, int i, const char *what,
                             int rank) {
    char text[HKI_SHAPE_TEXT];
    if (c->in[i].shape.rank >= rank)
        return HK_OK;
    return hki_fail(HK_E_SHAPE,
                    "%s: %s needs %d or more dimensions, has shape %s", c->name,
                    what, rank, hki_shape_text(c->in[i].shape, text));
}

hk_status hki_check_shape(const hki_infer *c, int i, const char *what,
                          hk_shape want) {
    char got[HKI_SHAPE_TEXT], wanted[HKI_SHAPE_TEXT];
    if (hk_shape_equal(c->in[i].shape, want))
        return HK_OK;
    return hki_fail(HK_E_SHAPE, "%s: %s has shape %s, must have %s", c->name,
                    what, hki_shape_text(c->in[i].shape, got),
                    hki_shape_text(want, wanted));
}

hk_status hki_check_vector(const hki_infer *c, int i, const char *what,
                           int64_t n) {
    const hk_shape want = hki_vector_shape(n);
    return hki_check_shape(c, i, what, want);
}

hk_status hki_check_dims(const hki_infer *c, int rank, hk_shape *out) {
    if (c->attr->rank != rank)
        return hki_fail(HK_E_INTERNAL, "%s: result of rank %d, not %d", c->name,
                        c->attr->rank, rank);
    *out = hk_shape_make(rank, c->attr->dims);
    return HK_OK;
}

hk_shape hki_vector_shape(int64_t n) {
    return hk_shape_make(1, &n);
}

void hki_infer_vector(const hki_infer *c, int o, int64_t n) {
    hki_infer_out(c, o, c->in[0].dtype, hki_vector_shape(n));
}

hk_status hki_row_count(const char *who, hk_shape s, int64_t *out) {
    const hk_shape lead = hk_shape_make(s.rank - 1, s.dim);
    return hki_dim_count(who, lead, out);
}

// ---- fused activations ----------------------------------------------------

hk_status hki_check_act(const hki_infer *c) {
    switch (c->attr->act) {
    case HKI_U_NONE:
    case HKI_U_RELU:
    case HKI_U_SIGMOID:
    case HKI_U_TANH:
        return HK_OK;
    default:
        return hki_fail(HK_E_INVALID_ARG, "%s: activation %d cannot be fused",
                        c->name, c->attr->act);
    }
}

hk_status hki_check_relu(const hki_infer *c) {
    if (c->attr->act == HKI_U_NONE || c->attr->act == HKI_U_RELU)
        return HK_OK;
    return hki_fail(HK_E_INVALID_ARG, "%s: activation %d cannot be fused",
                    c->name, c->attr->act);
}

double hki_act_value(int32_t act, double z) {
    switch (act) {
    case HKI_U_RELU:
        return z > 0.0 ? z : z != z ? z : 0.0; // a NaN stays visible
    case HKI_U_SIGMOID:
        return z >= 0.0 ? 1.0 / (1.0 + exp(-z)) : exp(z) / (1.0 + exp(z));
    case HKI_U_TANH:
        return tanh(z);
    default:
        return z;
    }
}

double hki_act_slope(int32_t act, double y) {
    switch (act) {
    case HKI_U_RELU:
        return y > 0.0;
    case HKI_U_SIGMOID:
        return y * (1.0 - y);
    case HKI_U_TANH:
        return 1.0 - y * y;
    default:
        return 1.0;
    }
}

hk_status hki_act_split(hk_act act, const char *who, int32_t *fused,
                        hki_unary_fn *behind) {
    *fused = HKI_U_NONE;
    *behind = HKI_U_NONE;
    switch (act) {
    case HK_ACT_NONE:
        return HK_OK;
    case HK_ACT_RELU:
        *fused = HKI_U_RELU;
        return HK_OK;
    case HK_ACT_SIGMOID:
        *fused = HKI_U_SIGMOID;
        return HK_OK;
    case HK_ACT_TANH:
        *fused = HKI_U_TANH;
        return HK_OK;
    case HK_ACT_ELU:
        *behind = HKI_U_ELU;
        return HK_OK;
    case HK_ACT_GELU:
        *behind = HKI_U_GELU;
        return HK_OK;
    case HK_ACT_SOFTPLUS:
        *behind = HKI_U_SOFTPLUS;
        return HK_OK;
    }
    return hki_fail(HK_E_INVALID_ARG, "%s: unknown activation %d", who,
                    (int)act);
}

// ---- sliding windows ------------------------------------------------------

static hk_status check_window(const char *who, const hki_attr *a, int i,
                              int64_t in) {
    static const char *const axis[] = {"height", "width"};
    if (a->ksize[i] < 1)
        return hki_fail(HK_E_SHAPE, "%s: kernel %s is %d, must be 1 or more",
                        who, axis[i], a->ksize[i]);
    if (a->stride[i] < 1 || a->dilation[i] < 1)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: stride %d and dilation %d along %s must be 1 or "
                        "more",
                        who, a->stride[i], a->dilation[i], axis[i]);
    if (in < 0 || in > INT32_MAX)
        return hki_fail(HK_E_SHAPE,
                        "%s: image %s must be a fixed size in 0..%d, is %lld",
                        who, axis[i], INT32_MAX, (long long)in);
    if (a->padding == HK_EXPLICIT &&
        (a->pad[2 * i] < 0 || a->pad[2 * i + 1] < 0))
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: padding %d, %d along %s is negative", who,
                        a->pad[2 * i], a->pad[2 * i + 1], axis[i]);
    return HK_OK;
}

hk_status hki_window(const char *who, hki_attr *a, int i, int64_t in,
                     int64_t *out) {
    HKI_TRY(check_window(who, a, i, in));
    // All terms are below 2^31, so that 64 bits hold every product and sum.
    const int64_t stride = a->stride[i];
    const int64_t reach = (int64_t)(a->ksize[i] - 1) * a->dilation[i] + 1;
    int32_t *pad = &a->pad[2 * i];
    switch ((hk_padding)a->padding) {
    case HK_SAME: {
        const int64_t n = (in + stride - 1) / stride;
        const int64_t total = n > 0 ? (n - 1) * stride + reach - in : 0;
        if (total > INT32_MAX)
            return hki_fail(HK_E_OVERFLOW,
                            "%s: kernel %d with dilation %d is too large", who,
                            a->ksize[i], a->dilation[i]);
        pad[0] = total > 0 ? (int32_t)(total / 2) : 0;
        pad[1] = total > 0 ? (int32_t)(total - total / 2) : 0;
        *out = n;
        return HK_OK;
    }
    case HK_VALID:
        pad[0] = pad[1] = 0;
        break;
    case HK_EXPLICIT:
        break;
    default:
        return hki_fail(HK_E_INVALID_ARG, "%s: unknown padding %d", who,
                        a->padding);
    }
    const int64_t padded = in + pad[0] + pad[1];
    if (reach > padded)
        return hki_fail(HK_E_SHAPE,
                        "%s: kernel of %d with dilation %d is larger than the "
                        "image's %lld with padding %d + %d",
                        who, a->ksize[i], a->dilation[i], (long long)in, pad[0],
                        pad[1]);
    *out = (padded - reach) / stride + 1;
    return HK_OK;
}

hk_node *hki_image_in(hk_graph *g, hk_node *x, hk_data_format format,
                      const char *who) {
    char text[HKI_SHAPE_TEXT];
    if (x == NULL || format == HK_NHWC)
        return x;
    if (format != HK_NCHW)
        return hki_graph_fail(g, HK_E_INVALID_ARG, "%s: unknown data format %d",
                              who, (int)format);
    if (x->shape.rank != 4)
        return hki_graph_fail(
            g, HK_E_SHAPE, "%s: images need 4 dimensions, but x has shape %s",
            who, hki_shape_text(x->shape, text));
    return hk_transpose(g, x, (const int[]){0, 2, 3, 1});
}

hk_node *hki_image_out(hk_graph *g, hk_node *y, hk_data_format format) {
    if (y == NULL || format == HK_NHWC)
        return y;
    return hk_transpose(g, y, (const int[]){0, 3, 1, 2});
}

// ---- scratch --------------------------------------------------------------

int64_t hki_desc_count(const hki_tensor_desc *d) {
    int64_t n = 1;
    for (int i = 0; i < d->shape.rank; i++)
        n *= d->shape.dim[i];
    return n;
}

size_t hki_double_bytes(int64_t n) {
    size_t bytes = 0;
    if (n < 0 || hki_mul_overflow((size_t)n, sizeof(double), &bytes))
        return SIZE_MAX;
    return bytes;
}

size_t hki_bytes_sum(size_t a, size_t b) {
    size_t sum = 0;
    return hki_add_overflow(a, b, &sum) ? SIZE_MAX : sum;
}
