// pool.c - maximum, average and global average pooling over images [N,H,W,C].
//
// attr: ksize, stride, padding and pad (made explicit by the shape rule).
// max_pool(x) -> y, idx: where in its window (row-major, uint8) the maximum
//     lies, the first of equals; padding never wins
// max_pool_grad(dy, idx, y?), dims = shape of x -> dx; with attr.act RELU, dy
//     counts only where y > 0
// avg_pool(x) -> y: mean of the elements inside the image
// avg_pool_grad(dy), dims = shape of x -> dx
// global_avg_pool(x) -> [N,C]; global_avg_pool_grad(dy), dims = shape of x
#include "graph/ops/layers.h"

// Shape of the result; completes attr.
static hk_status pool_shape(const char *name, hki_attr *a, const hk_shape *x,
                            hk_shape *y) {
    char text[HKI_SHAPE_TEXT];
    if (x->rank != 4)
        return hki_fail(HK_E_SHAPE,
                        "%s: images need 4 dimensions, x has shape %s", name,
                        hki_shape_text(*x, text));
    a->dilation[0] = a->dilation[1] = 1;
    *y = *x;
    for (int i = 0; i < 2; i++) {
        HKI_TRY(hki_window(name, a, i, x->dim[1 + i], &y->dim[1 + i]));
        // Less padding than window: every window holds an element.
        if (a->pad[2 * i] >= a->ksize[i] || a->pad[2 * i + 1] >= a->ksize[i])
            return hki_fail(HK_E_INVALID_ARG,
                            "%s: padding %d, %d must be less than the window "
                            "of %d",
                            name, a->pad[2 * i], a->pad[2 * i + 1],
                            a->ksize[i]);
    }
    return HK_OK;
}

// Shape rule of a gradient: dims holds the shape of x, input 0 is dy.
static hk_status grad_shape(hki_infer *c) {
    hk_shape x, y;
    HKI_TRY(hki_check_floats(c, 1));
    HKI_TRY(hki_check_dims(c, 4, &x));
    HKI_TRY(pool_shape(c->name, c->attr, &x, &y));
    HKI_TRY(hki_check_shape(c, 0, "dy", y));
    return hki_infer_out(c, 0, c->in[0].dtype, x);
}

static hki_attr grad_attr(const hki_call *call) {
    hki_attr a = call->attr;
    a.rank = call->in[0]->shape.rank;
    memcpy(a.dims, call->in[0]->shape.dim, sizeof a.dims);
    return a;
}

// ---- windows ----------------------------------------------------------------

// The part of a window that lies inside the image. Rows and columns count
// from the window's own corner, which may lie in the padding.
typedef struct window {
    int64_t top, left; // of the window, in the image
    int64_t row[2];    // [first, end)
    int64_t col[2];
    int64_t image; // number in the batch
} window;

// Window of the place-th result (without channels).
static window window_at(const hki_attr *a, const hk_shape *x, const hk_shape *y,
                        int64_t place) {
    const int64_t oh = place / y->dim[2] % y->dim[1], ow = place % y->dim[2];
    const int64_t top = oh * a->stride[0] - a->pad[0];
    const int64_t left = ow * a->stride[1] - a->pad[2];
    return (window){
        .top = top,
        .left = left,
        .row = {HKI_MAX(0, -top), HKI_MIN(a->ksize[0], x->dim[1] - top)},
        .col = {HKI_MAX(0, -left), HKI_MIN(a->ksize[1], x->dim[2] - left)},
        .image = place / y->dim[2] / y->dim[1],
    };
}

// Offset of channel 0 at (row, col) of the window.
static int64_t window_offset(const window *w, const hk_shape *x, int64_t row,
                             int64_t col) {
    return ((w->image * x->dim[1] + w->top + row) * x->dim[2] + w->left + col) *
           x->dim[3];
}

static int64_t place_count(const hk_shape *y) {
    return y->dim[3] > 0 ? y->dim[0] * y->dim[1] * y->dim[2] : 0;
}

// ---- max_pool ---------------------------------------------------------------

static hk_status check_index_range(const hki_infer *c) {
    if ((int64_t)c->attr->ksize[0] * c->attr->ksize[1] <= 256)
        return HK_OK;
    return hki_fail(HK_E_UNSUPPORTED,
                    "%s: window %d x %d has more than 256 elements", c->name,
                    c->attr->ksize[0], c->attr->ksize[1]);
}

static hk_status infer_max_pool(hki_infer *c) {
    HKI_TRY(hki_check_floats(c, 1));
    HKI_TRY(pool_shape(c->name, c->attr, &c->in[0].shape,
                       &c->out[HKI_POOL_Y].shape));
    HKI_TRY(check_index_range(c));
    c->out[HKI_POOL_Y].dtype = c->in[0].dtype;
    c->out[HKI_POOL_INDEX].dtype = HK_U8;
    c->out[HKI_POOL_INDEX].shape = c->out[HKI_POOL_Y].shape;
    return HK_OK;
}

static void grad_max_pool(hki_grad *c) {
    if (c->dy[0] == NULL)
        return;
    const hki_attr a = grad_attr(c->call);
    hk_node *const in[] = {c->dy[0], &c->call->out[HKI_POOL_INDEX], NULL};
    c->dx[0] = hki_emit(c->g, HKI_OP_max_pool_grad, &a, in, 3);
}

HKI_PORTABLE(run_max_pool) {
    const hk_shape *x = &in[0].shape, *y = &out[HKI_POOL_Y].shape;
    const int64_t channels = y->dim[3];
    for (int64_t i = 0; i < place_count(y) * channels; i++) {
        const window w = window_at(a, x, y, i / channels);
        const int64_t channel = i % channels;
        double best =
            hki_ld(&in[0], window_offset(&w, x, w.row[0], w.col[0]) + channel);
        int64_t where = w.row[0] * a->ksize[1] + w.col[0];
        for (int64_t r = w.row[0]; r < w.row[1]; r++)
            for (int64_t k = w.col[0]; k < w.col[1]; k++) {
                const double v =
                    hki_ld(&in[0], window_offset(&w, x, r, k) + channel);
                if (v > best) {
                    best = v;
                    where = r * a->ksize[1] + k;
                }
            }
        hki_st(&out[HKI_POOL_Y], i, best);
        if (out[HKI_POOL_INDEX].data != NULL)
            ((uint8_t *)out[HKI_POOL_INDEX].data)[i] = (uint8_t)where;
    }
    return HK_OK;
}

const hki_op hki_op_max_pool = {
    HKI_OPERATOR_RULES(max_pool, 1, 1, 2),
    .flags = HKI_OP_IS_EXPORTED,
    .grad = grad_max_pool,
    .images_in = HKI_BIT(0),
    .images_out = HKI_BIT(HKI_POOL_Y) | HKI_BIT(HKI_POOL_INDEX),
};

static hk_status infer_max_pool_grad(hki_infer *c) {
    HKI_TRY(hki_check_relu(c));
    HKI_TRY(grad_shape(c));
    HKI_TRY(check_index_range(c));
    HKI_TRY(hki_check_shape(c, HKI_POOL_GRAD_INDEX, "the index",
                            c->in[HKI_POOL_GRAD_DY].shape));
    if (c->in[HKI_POOL_GRAD_INDEX].dtype != HK_U8)
        return hki_fail(HK_E_DTYPE, "%s: the index must be uint8, not %s",
                        c->name,
                        hk_dtype_name(c->in[HKI_POOL_GRAD_INDEX].dtype));
    const bool has_y = c->n_in > 2 && c->in[HKI_POOL_GRAD_Y].dtype != 0;
    if (has_y) {
        HKI_TRY(hki_check_floats(c, 5));
        return hki_check_shape(c, HKI_POOL_GRAD_Y, "y",
                               c->in[HKI_POOL_GRAD_DY].shape);
    }
    if (c->attr->act == HKI_U_RELU)
        return hki_fail(HK_E_INVALID_ARG, "%s: relu without y", c->name);
    return HK_OK;
}

// Windows may overlap, so an element's gradient is a sum.
HKI_PORTABLE(run_max_pool_grad) {
    const hk_shape *x = &out[0].shape, *y = &in[HKI_POOL_GRAD_DY].shape;
    const int64_t channels = y->dim[3];
    double *dx = run->scratch;
    for (int64_t i = 0; i < out->count; i++)
        dx[i] = 0.0;
    for (int64_t i = 0; i < place_count(y) * channels; i++) {
        if (a->act == HKI_U_RELU && !(hki_ld(&in[HKI_POOL_GRAD_Y], i) > 0.0))
            continue;
        const window w = window_at(a, x, y, i / channels);
        const int64_t where =
            ((const uint8_t *)in[HKI_POOL_GRAD_INDEX].data)[i];
        const int64_t at =
            window_offset(&w, x, where / a->ksize[1], where % a->ksize[1]);
        dx[at + i % channels] += hki_ld(&in[HKI_POOL_GRAD_DY], i);
    }
    hki_narrow(out, dx);
    return HK_OK;
}

static size_t scratch_grad(const hki_kernel_desc *d) {
    return hki_double_bytes(hki_desc_count(&d->out[0]));
}

const hki_op hki_op_max_pool_grad = {
    HKI_OPERATOR_RULES(max_pool_grad, 2, 3, 1),
    .scratch = scratch_grad,
    .images_in = HKI_BIT(HKI_POOL_GRAD_DY) | HKI_BIT(HKI_POOL_GRAD_INDEX) |
                 HKI_BIT(HKI_POOL_GRAD_Y),
    .images_out = HKI_BIT(0),
};

// ---- avg_pool ---------------------------------------------------------------

static hk_status infer_avg_pool(hki_infer *c) {
    HKI_TRY(hki_check_floats(c, 1));
    c->out[0].dtype = c->in[0].dtype;
    return pool_shape(c->name, c->attr, &c->in[0].shape, &c->out[0].shape);
}

static void grad_avg_pool(hki_grad *c) {
    const hki_attr a = grad_attr(c->call);
    hk_node *const in[] = {c->dy[0]};
    c->dx[0] = hki_emit(c->g, HKI_OP_avg_pool_grad, &a, in, 1);
}

static double window_size(const window *w) {
    return (double)((w->row[1] - w->row[0]) * (w->col[1] - w->col[0]));
}

HKI_PORTABLE(run_avg_pool) {
    const hk_shape *x = &in[0].shape, *y = &out[0].shape;
    const int64_t channels = y->dim[3];
    for (int64_t i = 0; i < place_count(y) * channels; i++) {
        const window w = window_at(a, x, y, i / channels);
        double sum = 0.0;
        for (int64_t r = w.row[0]; r < w.row[1]; r++)
            for (int64_t k = w.col[0]; k < w.col[1]; k++)
                sum +=
                    hki_ld(&in[0], window_offset(&w, x, r, k) + i % channels);
        hki_st(out, i, sum / window_size(&w));
    }
    return HK_OK;
}

const hki_op hki_op_avg_pool = {
    HKI_OPERATOR_RULES(avg_pool, 1, 1, 1),
    .flags = HKI_OP_IS_EXPORTED,
    .grad = grad_avg_pool,
    .images_in = HKI_BIT(0),
    .images_out = HKI_BIT(0),
};

HKI_PORTABLE(run_avg_pool_grad) {
    const hk_shape *x = &out[0].shape, *y = &in[0].shape;
    const int64_t channels = y->dim[3];
    double *dx = run->scratch;
    for (int64_t i = 0; i < out->count; i++)
        dx[i] = 0.0;
    for (int64_t i = 0; i < place_count(y) * channels; i++) {
        const window w = window_at(a, x, y, i / channels);
        const double share = hki_ld(&in[0], i) / window_size(&w);
        for (int64_t r = w.row[0]; r < w.row[1]; r++)
            for (int64_t k = w.col[0]; k < w.col[1]; k++)
                dx[window_offset(&w, x, r, k) + i % channels] += share;
    }
    hki_narrow(out, dx);
    return HK_OK;
}

const hki_op hki_op_avg_pool_grad = {
    HKI_OPERATOR(avg_pool_grad, 1, 1, 1),
    .infer = grad_shape,
    .run = run_avg_pool_grad,
    .scratch = scratch_grad,
    .images_in = HKI_BIT(0),
    .images_out = HKI_BIT(0),
};

// ---- global_avg_pool --------------------------------------------------------

static hk_status global_shape(const char *name, const hk_shape *x,
                              hk_shape *y) {
    char text[HKI_SHAPE_TEXT];
    if (x->rank != 4 || x->dim[1] < 0 || x->dim[2] < 0)
        return hki_fail(HK_E_SHAPE,
                        "%s: images need 4 dimensions and a fixed height and "
                        "width, x has shape %s",
                        name, hki_shape_text(*x, text));
    *y = hk_shape_make(2, (const int64_t[]){x->dim[0], x->dim[3]});
    return HK_OK;
}

static hk_status infer_global_avg_pool(hki_infer *c) {
    HKI_TRY(hki_check_floats(c, 1));
    c->out[0].dtype = c->in[0].dtype;
    return global_shape(c->name, &c->in[0].shape, &c->out[0].shape);
}

static void grad_global_avg_pool(hki_grad *c) {
    const hki_attr a = grad_attr(c->call);
    hk_node *const in[] = {c->dy[0]};
    c->dx[0] = hki_emit(c->g, HKI_OP_global_avg_pool_grad, &a, in, 1);
}

// An empty image has the mean 0.
HKI_PORTABLE(run_global_avg_pool) {
    const int64_t places = in->shape.dim[1] * in->shape.dim[2];
    const int64_t channels = in->shape.dim[3];
    for (int64_t i = 0; i < out->count; i++) {
        const int64_t first = i / channels * places * channels + i % channels;
        double sum = 0.0;
        for (int64_t p = 0; p < places; p++)
            sum += hki_ld(in, first + p * channels);
        hki_st(out, i, places > 0 ? sum / (double)places : 0.0);
    }
    return HK_OK;
}

const hki_op hki_op_global_avg_pool = {
    HKI_OPERATOR_RULES(global_avg_pool, 1, 1, 1),
    .flags = HKI_OP_IS_EXPORTED,
    .grad = grad_global_avg_pool,
    .images_in = HKI_BIT(0),
};

static hk_status infer_global_avg_pool_grad(hki_infer *c) {
    hk_shape x, y;
    HKI_TRY(hki_check_floats(c, 1));
    HKI_TRY(hki_check_dims(c, 4, &x));
    HKI_TRY(global_shape(c->name, &x, &y));
    HKI_TRY(hki_check_shape(c, 0, "dy", y));
    return hki_infer_out(c, 0, c->in[0].dtype, x);
}

HKI_PORTABLE(run_global_avg_pool_grad) {
    const int64_t places = out->shape.dim[1] * out->shape.dim[2];
    const int64_t channels = out->shape.dim[3];
    for (int64_t i = 0; i < out->count; i++) {
        const int64_t image = i / (places * channels);
        const double dy = hki_ld(in, image * channels + i % channels);
        hki_st(out, i, dy / (double)places);
    }
    return HK_OK;
}

const hki_op hki_op_global_avg_pool_grad = {
    HKI_OPERATOR_RULES(global_avg_pool_grad, 1, 1, 1),
    .images_out = HKI_BIT(0),
};

// ---- builders -------------------------------------------------------------

typedef struct pool_args {
    int ksize[2], stride[2];
    hk_padding padding;
    hk_data_format format;
} pool_args;

static hk_node *pool(hk_graph *g, hki_opcode code, const char *who, hk_node *x,
                     const pool_args *p) {
    if (p->padding == HK_EXPLICIT)
        return hki_graph_fail(g, HK_E_INVALID_ARG,
                              "%s: pooling takes SAME or VALID padding; pad "
                              "the image for more",
                              who);
    const hki_attr a = {
        .ksize = {p->ksize[0], p->ksize[1]},
        .stride = {p->stride[0], p->stride[1]},
        .padding = (int32_t)p->padding,
    };
    hk_node *const in[] = {hki_image_in(g, x, p->format, who)};
    return hki_image_out(g, hki_emit(g, code, &a, in, 1), p->format);
}

hk_node *hk_max_pool(hk_graph *g, hk_node *x, int kh, int kw, int sh, int sw,
                     hk_padding padding, hk_data_format format) {
    const pool_args p = {{kh, kw}, {sh, sw}, padding, format};
    return pool(g, HKI_OP_max_pool, "max_pool", x, &p);
}

hk_node *hk_avg_pool(hk_graph *g, hk_node *x, int kh, int kw, int sh, int sw,
                     hk_padding padding, hk_data_format format) {
    const pool_args p = {{kh, kw}, {sh, sw}, padding, format};
    return pool(g, HKI_OP_avg_pool, "avg_pool", x, &p);
}

hk_node *hk_global_avg_pool(hk_graph *g, hk_node *x, hk_data_format format) {
    hk_node *const in[] = {hki_image_in(g, x, format, "global_avg_pool")};
    return hki_emit(g, HKI_OP_global_avg_pool, NULL, in, 1);
}
