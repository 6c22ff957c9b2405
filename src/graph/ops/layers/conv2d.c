// conv2d.c - two-dimensional convolution and its two gradients.
//
// Images are [N,H,W,C], filters [kh, kw, C/groups, out]. attr: stride,
// dilation, padding and pad (made explicit by the shape rule), groups, act;
// ksize is filled from the filter.
//
// conv2d(x, w, b?) -> y = act(conv(x, w) + b)
// conv2d_grad_input(dz, w), dims = shape of x -> dx
// conv2d_grad_filter(x, dz), dims = shape of w -> dw, and db with mode 1
#include "graph/ops/layers.h"

// Shape of the result; completes attr.
static hk_status conv_shape(const char *name, hki_attr *a, const hk_shape *x,
                            const hk_shape *w, hk_shape *y) {
    char tx[HKI_SHAPE_TEXT], tw[HKI_SHAPE_TEXT];
    hki_shape_text(*x, tx);
    hki_shape_text(*w, tw);
    if (x->rank != 4 || w->rank != 4)
        return hki_fail(HK_E_SHAPE,
                        "%s: image %s and filter %s need 4 dimensions", name,
                        tx, tw);
    if (a->groups < 1)
        return hki_fail(HK_E_INVALID_ARG, "%s: %d groups", name, a->groups);
    for (int i = 0; i < 4; i++)
        if (w->dim[i] < 0 || w->dim[i] > INT32_MAX)
            return hki_fail(HK_E_SHAPE, "%s: filter shape %s must be fixed",
                            name, tw);
    if (x->dim[3] != w->dim[2] * a->groups)
        return hki_fail(HK_E_SHAPE,
                        "%s: image %s has %lld channels, but filter %s in %d "
                        "groups needs %lld",
                        name, tx, (long long)x->dim[3], tw, a->groups,
                        (long long)(w->dim[2] * a->groups));
    if (w->dim[3] % a->groups != 0)
        return hki_fail(HK_E_SHAPE,
                        "%s: %lld filters cannot be split into %d groups", name,
                        (long long)w->dim[3], a->groups);
    a->ksize[0] = (int32_t)w->dim[0];
    a->ksize[1] = (int32_t)w->dim[1];
    *y = *x;
    HKI_TRY(hki_window(name, a, 0, x->dim[1], &y->dim[1]));
    HKI_TRY(hki_window(name, a, 1, x->dim[2], &y->dim[2]));
    y->dim[3] = w->dim[3];
    return HK_OK;
}

static hk_status infer_conv2d(hki_infer *c) {
    HKI_TRY(hki_check_product(c, HKI_BIT(HKI_CONV_B), &c->out[0].dtype));
    HKI_TRY(hki_check_act(c));
    HKI_TRY(conv_shape(c->name, c->attr, &c->in[HKI_CONV_X].shape,
                       &c->in[HKI_CONV_W].shape, &c->out[0].shape));
    if (c->n_in > 2 && c->in[HKI_CONV_B].dtype != 0)
        HKI_TRY(hki_check_vector(c, HKI_CONV_B, "the bias",
                                 c->in[HKI_CONV_W].shape.dim[3]));
    return HK_OK;
}

// Attributes of a gradient: the convolution's own and the shape to return.
static hki_attr grad_attr(const hki_attr *a, const hk_shape *s) {
    hki_attr g = *a;
    g.act = HKI_U_NONE;
    g.rank = s->rank;
    memcpy(g.dims, s->dim, sizeof g.dims);
    return g;
}

static void grad_conv2d(hki_grad *c) {
    hki_call *call = c->call;
    hk_node *x = call->in[HKI_CONV_X], *w = call->in[HKI_CONV_W],
            *dz = c->dy[0];
    const bool need_bias =
        call->n_in > 2 && call->in[HKI_CONV_B] != NULL && c->need[HKI_CONV_B];
    // The filter's gradient can bring the bias' one along; behind an
    // activation, act_bias_grad has it already.
    const bool apart =
        call->attr.act != HKI_U_NONE || (need_bias && !c->need[HKI_CONV_W]);
    if (apart) {
        const hki_attr a = {.act = call->attr.act};
        hk_node *const in[] = {dz, &call->out[0]};
        dz = hki_emit(c->g, HKI_OP_act_bias_grad, &a, in, 2);
        if (need_bias)
            c->dx[HKI_CONV_B] = hki_output_of(dz, HKI_ACT_GRAD_DB);
    }
    if (c->need[HKI_CONV_X]) {
        const hki_attr a = grad_attr(&call->attr, &x->shape);
        hk_node *const in[] = {dz, w};
        c->dx[HKI_CONV_X] = hki_emit(c->g, HKI_OP_conv2d_grad_input, &a, in, 2);
    }
    if (c->need[HKI_CONV_W]) {
        hki_attr a = grad_attr(&call->attr, &w->shape);
        a.mode = need_bias && !apart;
        hk_node *const in[] = {x, dz};
        c->dx[HKI_CONV_W] =
            hki_emit(c->g, HKI_OP_conv2d_grad_filter, &a, in, 2);
        if (need_bias && !apart)
            c->dx[HKI_CONV_B] =
                hki_output_of(c->dx[HKI_CONV_W], HKI_CONV_DW_DB);
    }
}

// ---- portable kernels -------------------------------------------------------

// One convolution in doubles. Which of the arrays is written depends on the
// direction.
typedef struct conv {
    const hki_attr *a;
    const hk_shape *x_shape, *w_shape, *y_shape;
    double *x, *w, *y;
} conv;

// What one filter position contributes: x, w and y are offsets of the channel
// vectors (of the filter: of its channel matrix).
typedef void (*tap_fn)(const conv *c, int64_t x, int64_t w, int64_t y);

// Calls tap for every filter position that falls inside the image.
static void for_each_tap(const conv *c, tap_fn tap) {
    const hki_attr *a = c->a;
    const int64_t height = c->x_shape->dim[1], width = c->x_shape->dim[2];
    const int64_t c_in = c->x_shape->dim[3], c_out = c->y_shape->dim[3];
    const int64_t kh = c->w_shape->dim[0], kw = c->w_shape->dim[1];
    const int64_t matrix = c->w_shape->dim[2] * c_out;
    const int64_t rows = c->y_shape->dim[0] * c->y_shape->dim[1];
    for (int64_t i = 0; i < rows * c->y_shape->dim[2] * kh; i++) {
        const int64_t k = i % kh, place = i / kh;
        const int64_t ow = place % c->y_shape->dim[2];
        const int64_t row = place / c->y_shape->dim[2];
        const int64_t n = row / c->y_shape->dim[1];
        const int64_t oh = row % c->y_shape->dim[1];
        const int64_t ih = oh * a->stride[0] - a->pad[0] + k * a->dilation[0];
        if (ih < 0 || ih >= height)
            continue;
        for (int64_t l = 0; l < kw; l++) {
            const int64_t iw =
                ow * a->stride[1] - a->pad[2] + l * a->dilation[1];
            if (iw >= 0 && iw < width)
                tap(c, ((n * height + ih) * width + iw) * c_in,
                    (k * kw + l) * matrix, place * c_out);
        }
    }
}

static void tap_forward(const conv *c, int64_t x, int64_t w, int64_t y) {
    const int64_t c_out = c->w_shape->dim[3], group_in = c->w_shape->dim[2];
    const int64_t group_out = c_out / c->a->groups;
    for (int64_t i = 0; i < c->x_shape->dim[3]; i++) {
        const int64_t first = i / group_in * group_out;
        const double v = c->x[x + i];
        const double *from = c->w + w + i % group_in * c_out + first;
        double *to = c->y + y + first;
        for (int64_t o = 0; o < group_out; o++)
            to[o] += v * from[o];
    }
}

static void tap_input(const conv *c, int64_t x, int64_t w, int64_t y) {
    const int64_t c_out = c->w_shape->dim[3], group_in = c->w_shape->dim[2];
    const int64_t group_out = c_out / c->a->groups;
    for (int64_t i = 0; i < c->x_shape->dim[3]; i++) {
        const int64_t first = i / group_in * group_out;
        const double *filter = c->w + w + i % group_in * c_out + first;
        const double *dz = c->y + y + first;
        double sum = 0.0;
        for (int64_t o = 0; o < group_out; o++)
            sum += filter[o] * dz[o];
        c->x[x + i] += sum;
    }
}

static void tap_filter(const conv *c, int64_t x, int64_t w, int64_t y) {
    const int64_t c_out = c->w_shape->dim[3], group_in = c->w_shape->dim[2];
    const int64_t group_out = c_out / c->a->groups;
    for (int64_t i = 0; i < c->x_shape->dim[3]; i++) {
        const int64_t first = i / group_in * group_out;
        const double v = c->x[x + i];
        const double *dz = c->y + y + first;
        double *to = c->w + w + i % group_in * c_out + first;
        for (int64_t o = 0; o < group_out; o++)
            to[o] += v * dz[o];
    }
}

// All three tensors as doubles.
static size_t scratch_conv(const hki_kernel_desc *d) {
    size_t sum = hki_double_bytes(hki_desc_count(&d->in[0]));
    sum = hki_bytes_sum(sum, hki_double_bytes(hki_desc_count(&d->in[1])));
    return hki_bytes_sum(sum, hki_double_bytes(hki_desc_count(&d->out[0])));
}

static void fill_zero(double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        x[i] = 0.0;
}

HKI_PORTABLE(run_conv2d) {
    conv c = {.a = a,
              .x_shape = &in[HKI_CONV_X].shape,
              .w_shape = &in[HKI_CONV_W].shape,
              .y_shape = &out[0].shape};
    c.x = run->scratch;
    c.w = hki_widen(&in[HKI_CONV_X], c.x);
    c.y = hki_widen(&in[HKI_CONV_W], c.w);
    const int64_t c_out = out->shape.dim[3];
    for (int64_t i = 0; i < out->count; i++)
        c.y[i] = in[HKI_CONV_B].data != NULL
                     ? hki_ld(&in[HKI_CONV_B], i % c_out)
                     : 0.0;
    for_each_tap(&c, tap_forward);
    for (int64_t i = 0; i < out->count; i++)
        hki_st(out, i, hki_act_value(a->act, c.y[i]));
    return HK_OK;
}

HKI_PORTABLE(run_conv2d_grad_input) {
    conv c = {.a = a,
              .x_shape = &out[0].shape,
              .w_shape = &in[HKI_CONV_DX_W].shape,
              .y_shape = &in[HKI_CONV_DX_DZ].shape};
    c.y = run->scratch;
    c.w = hki_widen(&in[HKI_CONV_DX_DZ], c.y);
    c.x = hki_widen(&in[HKI_CONV_DX_W], c.w);
    fill_zero(c.x, out->count);
    for_each_tap(&c, tap_input);
    hki_narrow(out, c.x);
    return HK_OK;
}

HKI_PORTABLE(run_conv2d_grad_filter) {
    conv c = {.a = a,
              .x_shape = &in[HKI_CONV_DW_X].shape,
              .w_shape = &out[HKI_CONV_DW_DW].shape,
              .y_shape = &in[HKI_CONV_DW_DZ].shape};
    c.x = run->scratch;
    c.y = hki_widen(&in[HKI_CONV_DW_X], c.x);
    c.w = hki_widen(&in[HKI_CONV_DW_DZ], c.y);
    fill_zero(c.w, out->count);
    for_each_tap(&c, tap_filter);
    hki_narrow(out, c.w);
    if (a->mode == 0 || out[HKI_CONV_DW_DB].data == NULL)
        return HK_OK;
    const int64_t c_out = in[HKI_CONV_DW_DZ].shape.dim[3];
    for (int64_t o = 0; o < c_out; o++) {
        double sum = 0.0;
        for (int64_t i = o; i < in[HKI_CONV_DW_DZ].count; i += c_out)
            sum += c.y[i];
        hki_st(&out[HKI_CONV_DW_DB], o, sum);
    }
    return HK_OK;
}

// ---- operators ------------------------------------------------------------

// Products of all taps, those in the padding included, times two.
static double conv_flop(const hk_shape *w, const hk_shape *y) {
    double n = 2.0 * (double)w->dim[0] * (double)w->dim[1] * (double)w->dim[2];
    for (int i = 0; i < 4; i++)
        n *= (double)y->dim[i];
    return n;
}

static double flop_conv2d(const hki_call *c) {
    return conv_flop(&c->in[HKI_CONV_W]->shape, &c->out[0].shape);
}

static double flop_conv2d_grad_input(const hki_call *c) {
    return conv_flop(&c->in[HKI_CONV_DX_W]->shape,
                     &c->in[HKI_CONV_DX_DZ]->shape);
}

static double flop_conv2d_grad_filter(const hki_call *c) {
    return conv_flop(&c->out[HKI_CONV_DW_DW].shape,
                     &c->in[HKI_CONV_DW_DZ]->shape);
}

#define CONV_FLAGS (HKI_OP_MIXES_FORMATS | HKI_OP_IS_PRODUCT)

const hki_op hki_op_conv2d = {
    HKI_OPERATOR_RULES(conv2d, 2, 3, 1),
    .grad = grad_conv2d,
    .scratch = scratch_conv,
    .flop = flop_conv2d,
    .flags = CONV_FLAGS | HKI_OP_IS_EXPORTED,
    .images_in = HKI_BIT(HKI_CONV_X),
    .images_out = HKI_BIT(0),
    .takes_act = HKI_ACTS,
};

static hk_status infer_conv2d_grad_input(hki_infer *c) {
    hk_shape x, dz;
    hk_dtype result;
    HKI_TRY(hki_check_product(c, 0, &result));
    HKI_TRY(hki_check_dims(c, 4, &x));
    HKI_TRY(conv_shape(c->name, c->attr, &x, &c->in[HKI_CONV_DX_W].shape, &dz));
    HKI_TRY(hki_check_shape(c, HKI_CONV_DX_DZ, "dz", dz));
    return hki_infer_out(c, 0, result, x);
}

const hki_op hki_op_conv2d_grad_input = {
    HKI_OPERATOR_RULES(conv2d_grad_input, 2, 2, 1),
    .scratch = scratch_conv,
    .flop = flop_conv2d_grad_input,
    .flags = CONV_FLAGS,
    .images_in = HKI_BIT(HKI_CONV_DX_DZ),
    .images_out = HKI_BIT(0),
};

static hk_status infer_conv2d_grad_filter(hki_infer *c) {
    hk_shape w, dz;
    hk_dtype result;
    HKI_TRY(hki_check_product(c, 0, &result));
    HKI_TRY(hki_check_dims(c, 4, &w));
    HKI_TRY(conv_shape(c->name, c->attr, &c->in[HKI_CONV_DW_X].shape, &w, &dz));
    HKI_TRY(hki_check_shape(c, HKI_CONV_DW_DZ, "dz", dz));
    hki_infer_out(c, HKI_CONV_DW_DW, result, w);
    c->n_out = c->attr->mode != 0 ? 2 : 1;
    if (c->attr->mode != 0) {
        hki_infer_out(c, HKI_CONV_DW_DB, result, hki_vector_shape(w.dim[3]));
    }
    return HK_OK;
}

const hki_op hki_op_conv2d_grad_filter = {
    HKI_OPERATOR_RULES(conv2d_grad_filter, 2, 2, 2),
    .scratch = scratch_conv,
    .flop = flop_conv2d_grad_filter,
    .flags = CONV_FLAGS,
    .images_in = HKI_BIT(HKI_CONV_DW_X) | HKI_BIT(HKI_CONV_DW_DZ),
};

// ---- builder --------------------------------------------------------------

static const hk_conv_options conv_defaults = {
    .struct_size = sizeof(hk_conv_options),
    .stride = {1, 1},
    .dilation = {1, 1},
    .padding = HK_SAME,
    .groups = 1,
    .format = HK_NHWC,
};

HKI_OPTIONS_FROM(hk_conv_options, reserved, conv_defaults)

hk_node *hk_convolve(hk_graph *g, hk_node *x, hk_node *w, hk_node *b,
                     hk_act act, const hk_conv_options *opt) {
    hk_conv_options o = conv_defaults;
    hki_attr a = {0};
    hki_unary_fn behind = HKI_U_NONE;
    hk_status s = hki_options_copy(&o, sizeof o, opt, "hk_conv_options");
    if (s == HK_OK)
        s = hki_act_split(act, "conv2d", &a.act, &behind);
    if (s != HK_OK)
        return hki_graph_fail(g, s, "%s", hk_last_error());
    memcpy(a.stride, o.stride, sizeof a.stride);
    memcpy(a.dilation, o.dilation, sizeof a.dilation);
    memcpy(a.pad, o.pad, sizeof a.pad);
    a.padding = (int32_t)o.padding;
    a.groups = o.groups;
    hk_node *const in[] = {hki_image_in(g, x, o.format, "conv2d"), w, b};
    hk_node *y = hki_emit(g, HKI_OP_conv2d, &a, in, 3);
    if (behind != HKI_U_NONE)
        y = hki_unary(g, behind, y, 1.0, 0.0);
    return hki_image_out(g, y, o.format);
}
