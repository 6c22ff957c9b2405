// losses.c - losses per element, weighted and reduced as tf.losses does it.
//
// p: predictions, l: labels, z: logits, w: weights, in the formulas of
// hooke/nn.h.
#include "graph/graph.h"
#include "hooke/nn.h"
#include "tensor/tensor.h"
#include <math.h>

static const hk_loss_options defaults = {
    .struct_size = sizeof(hk_loss_options),
    .axis = -1,
    .delta = 1.0,
    .epsilon = 1e-7,
};

HKI_OPTIONS_FROM(hk_loss_options, epsilon, defaults)

// ---- reading arguments ------------------------------------------------------

// What one loss call works on.
typedef struct loss {
    hk_graph *g;
    const char *name;
    hk_loss_options opt;
    hk_node *l, *p, *w; // labels, predictions or logits, weights or NULL
} loss;

static bool check_options(const loss *c) {
    const hk_loss_options *const o = &c->opt;
    if ((int)o->reduction < HK_SUM_BY_NONZERO_WEIGHTS ||
        (int)o->reduction > HK_SUM_OVER_BATCH_SIZE)
        hki_graph_fail(c->g, HK_E_INVALID_ARG, "%s: unknown reduction %d",
                       c->name, (int)o->reduction);
    else if (!(o->label_smoothing >= 0.0 && o->label_smoothing <= 1.0))
        hki_graph_fail(c->g, HK_E_INVALID_ARG,
                       "%s: label_smoothing %g is not in 0..1", c->name,
                       o->label_smoothing);
    else if (!(o->delta > 0.0 && isfinite(o->delta)))
        hki_graph_fail(c->g, HK_E_INVALID_ARG,
                       "%s: delta %g is not finite and above 0", c->name,
                       o->delta);
    else if (!(o->epsilon >= 0.0 && isfinite(o->epsilon)))
        hki_graph_fail(c->g, HK_E_INVALID_ARG,
                       "%s: epsilon %g is not finite and at least 0", c->name,
                       o->epsilon);
    return hki_graph_ok(c->g);
}

// Options over the defaults, labels and predictions there.
static bool begin(loss *c, const hk_loss_options *opt) {
    c->opt = defaults;
    if (!hki_graph_ok(c->g))
        return false;
    const hk_status s = hki_options_copy(&c->opt, sizeof c->opt, opt, c->name);
    if (s != HK_OK)
        hki_graph_fail(c->g, s, "%s", hk_last_error());
    else if (c->l == NULL || c->p == NULL)
        hki_graph_fail(c->g, HK_E_INVALID_ARG, "%s: %s are NULL", c->name,
                       c->l == NULL ? "labels" : "predictions");
    return hki_graph_ok(c->g) && check_options(c);
}

static hk_node *as_type(hk_graph *g, hk_node *x, hk_dtype t) {
    return x != NULL && x->dtype != t ? hk_cast(g, x, t) : x;
}

// As begin, and labels and predictions are floats of one shape.
static bool begin_floats(loss *c, const hk_loss_options *opt) {
    if (!begin(c, opt))
        return false;
    char l[HKI_SHAPE_TEXT], p[HKI_SHAPE_TEXT];
    if (!hk_shape_equal(c->l->shape, c->p->shape))
        hki_graph_fail(c->g, HK_E_SHAPE,
                       "%s: labels %s and predictions %s differ in shape",
                       c->name, hki_shape_text(c->l->shape, l),
                       hki_shape_text(c->p->shape, p));
    if (!hki_dtype_is_float(c->p->dtype))
        c->p = as_type(c->g, c->p, HK_F32);
    if (c->p != NULL)
        c->l = as_type(c->g, c->l, c->p->dtype);
    return hki_graph_ok(c->g);
}

static hk_node *number(const loss *c, double v) {
    return hki_scalar_like(c->g, c->p, v);
}

static hk_node *sum(hk_graph *g, hk_node *x) {
    return hk_reduce_sum(g, x, NULL, 0, 0);
}

// ---- weights and reduction --------------------------------------------------

// Scalar, or of the losses' rank with every dimension 1 or theirs.
static bool check_weights(const loss *c, const hk_shape *losses) {
    const hk_shape *const w = &c->w->shape;
    bool fits = w->rank == 0 || w->rank == losses->rank;
    for (int i = 0; fits && i < w->rank; i++)
        fits = w->dim[i] == 1 || w->dim[i] == losses->dim[i];
    char wt[HKI_SHAPE_TEXT], lt[HKI_SHAPE_TEXT];
    if (!fits)
        hki_graph_fail(c->g, HK_E_SHAPE,
                       "%s: weights %s do not fit the losses %s", c->name,
                       hki_shape_text(*w, wt), hki_shape_text(*losses, lt));
    return hki_graph_ok(c->g);
}

// How many of the weights, spread over the shape, are not zero: as float
// ones and zeros.
static hk_node *present(hk_graph *g, hk_node *w, const hk_shape *shape) {
    hk_node *const some =
        hk_compare(g, w, HK_NOT_EQUAL, hki_scalar_like(g, w, 0.0));
    return hk_broadcast_to(g, hk_cast(g, some, w->dtype), *shape);
}

static hk_node *reduce_weighted(const loss *c, hk_node *losses) {
    hk_graph *const g = c->g;
    const hk_shape shape = losses->shape;
    hk_node *const w = as_type(g, c->w, losses->dtype);
    hk_node *const weighted = hk_mul(g, losses, w);
    if (weighted == NULL)
        return NULL;
    switch (c->opt.reduction) {
    case HK_REDUCTION_NONE:
        return weighted;
    case HK_REDUCTION_SUM:
        return sum(g, weighted);
    case HK_REDUCTION_MEAN:
        return hki_div_safe(g, sum(g, weighted),
                            sum(g, hk_broadcast_to(g, w, shape)));
    case HK_SUM_OVER_BATCH_SIZE:
        return hk_reduce_mean(g, weighted, NULL, 0, 0);
    case HK_SUM_BY_NONZERO_WEIGHTS:
        break;
    }
    return hki_div_safe(g, sum(g, weighted), sum(g, present(g, w, &shape)));
}

static hk_node *reduce(const loss *c, hk_node *losses) {
    if (losses == NULL || (c->w != NULL && !check_weights(c, &losses->shape)))
        return NULL;
    if (c->w != NULL)
        return reduce_weighted(c, losses);
    if (c->opt.reduction == HK_REDUCTION_NONE)
        return losses;
    if (c->opt.reduction == HK_REDUCTION_SUM)
        return sum(c->g, losses);
    return hk_reduce_mean(c->g, losses, NULL, 0, 0); // all weights are 1
}

hk_node *hk_compute_weighted_loss(hk_graph *g, hk_node *losses,
                                  hk_node *weights,
                                  const hk_loss_options *opt) {
    loss c = {g, "compute_weighted_loss", .l = losses, .p = losses,
              .w = weights};
    return begin_floats(&c, opt) ? reduce(&c, c.p) : NULL;
}

// ---- differences ------------------------------------------------------------

hk_node *hk_absolute_difference(hk_graph *g, hk_node *labels,
                                hk_node *predictions, hk_node *weights,
                                const hk_loss_options *opt) {
    loss c = {g, "absolute_difference", .l = labels, .p = predictions,
              .w = weights};
    if (!begin_floats(&c, opt))
        return NULL;
    return reduce(&c, hk_abs(g, hk_sub(g, c.p, c.l)));
}

hk_node *hk_mean_squared_error(hk_graph *g, hk_node *labels,
                               hk_node *predictions, hk_node *weights,
                               const hk_loss_options *opt) {
    loss c = {g, "mean_squared_error", .l = labels, .p = predictions,
              .w = weights};
    if (!begin_floats(&c, opt))
        return NULL;
    return reduce(&c, hk_squared_difference(g, c.p, c.l));
}

hk_node *hk_huber_loss(hk_graph *g, hk_node *labels, hk_node *predictions,
                       hk_node *weights, const hk_loss_options *opt) {
    loss c = {g, "huber_loss", .l = labels, .p = predictions, .w = weights};
    if (!begin_floats(&c, opt))
        return NULL;
    hk_node *const e = hk_abs(g, hk_sub(g, c.p, c.l));
    hk_node *const delta = number(&c, c.opt.delta);
    hk_node *const q = hk_minimum(g, e, delta);
    hk_node *const curved = hk_mul(g, number(&c, 0.5), hk_square(g, q));
    hk_node *const straight = hk_mul(g, delta, hk_sub(g, e, q));
    return reduce(&c, hk_add(g, curved, straight));
}

hk_node *hk_cosine_distance(hk_graph *g, hk_node *labels, hk_node *predictions,
                            hk_node *weights, const hk_loss_options *opt) {
    loss c = {g, "cosine_distance", .l = labels, .p = predictions,
              .w = weights};
    if (!begin_floats(&c, opt))
        return NULL;
    const int axis = c.opt.axis;
    hk_node *const along = hk_reduce_sum(g, hk_mul(g, c.p, c.l), &axis, 1, 1);
    return reduce(&c, hk_sub(g, number(&c, 1.0), along));
}

// A row is everything but axis 0; its sum keeps the rank.
static hk_node *row_sum(hk_graph *g, hk_node *x) {
    static const int axes[] = {1, 2, 3, 4, 5, 6, 7};
    if (x == NULL || x->shape.rank < 2)
        return x;
    return hk_reduce_sum(g, x, axes, x->shape.rank - 1, 1);
}

hk_node *hk_mean_pairwise_squared_error(hk_graph *g, hk_node *labels,
                                        hk_node *predictions,
                                        hk_node *weights) {
    loss c = {g, "mean_pairwise_squared_error", .l = labels, .p = predictions,
              .w = weights};
    if (!begin_floats(&c, NULL))
        return NULL;
    hk_node *const one = number(&c, 1.0), *const two = number(&c, 2.0);
    c.w = weights == NULL ? one : as_type(g, weights, c.p->dtype);
    if (c.w == NULL || !check_weights(&c, &c.p->shape))
        return NULL;
    hk_node *const d = hk_sub(g, c.p, c.l);
    hk_node *const n = row_sum(g, present(g, c.w, &c.p->shape));
    hk_node *const others = hk_sub(g, n, one);
    hk_node *const squares =
        hki_div_safe(g, row_sum(g, hk_square(g, d)), others);
    hk_node *const mixed =
        hki_div_safe(g, hk_square(g, row_sum(g, d)), hk_mul(g, n, others));
    hk_node *const rows = hk_mul(g, two, hk_sub(g, squares, mixed));
    return sum(g, hk_mul(g, rows, c.w));
}

// ---- two classes ------------------------------------------------------------

hk_node *hk_hinge_loss(hk_graph *g, hk_node *labels, hk_node *logits,
                       hk_node *weights, const hk_loss_options *opt) {
    loss c = {g, "hinge_loss", .l = labels, .p = logits, .w = weights};
    if (!begin_floats(&c, opt))
        return NULL;
    hk_node *const one = number(&c, 1.0);
    hk_node *const sign = hk_sub(g, hk_mul(g, number(&c, 2.0), c.l), one);
    return reduce(&c, hk_relu(g, hk_sub(g, one, hk_mul(g, sign, c.p))));
}

hk_node *hk_log_loss(hk_graph *g, hk_node *labels, hk_node *predictions,
                     hk_node *weights, const hk_loss_options *opt) {
    loss c = {g, "log_loss", .l = labels, .p = predictions, .w = weights};
    if (!begin_floats(&c, opt))
        return NULL;
    hk_node *const one = number(&c, 1.0), *const e = number(&c, c.opt.epsilon);
    hk_node *const yes = hk_mul(g, c.l, hk_log(g, hk_add(g, c.p, e)));
    hk_node *const rest = hk_add(g, hk_sub(g, one, c.p), e);
    hk_node *const no = hk_mul(g, hk_sub(g, one, c.l), hk_log(g, rest));
    return reduce(&c, hk_neg(g, hk_add(g, yes, no)));
}

// l (1 - s) + s * share: labels that are a little less sure.
static hk_node *smooth(const loss *c, double share) {
    const double s = c->opt.label_smoothing;
    if (s == 0.0)
        return c->l;
    return hk_add(c->g, hk_mul(c->g, c->l, number(c, 1.0 - s)),
                  number(c, s * share));
}

hk_node *hk_sigmoid_cross_entropy(hk_graph *g, hk_node *labels, hk_node *logits,
                                  hk_node *weights,
                                  const hk_loss_options *opt) {
    loss c = {g, "sigmoid_cross_entropy", .l = labels, .p = logits,
              .w = weights};
    if (!begin_floats(&c, opt))
        return NULL;
    return reduce(&c, hki_sigmoid_xent(g, c.p, smooth(&c, 0.5)));
}

// ---- many classes -----------------------------------------------------------

// Splits the logits' shape [..., classes] and counts its rows.
static bool split_classes(const loss *c, hk_shape *lead, int64_t *rows,
                          int64_t *classes) {
    char text[HKI_SHAPE_TEXT];
    const hk_shape *const z = &c->p->shape;
    if (z->rank < 1 || z->dim[z->rank - 1] < 1) {
        hki_graph_fail(c->g, HK_E_SHAPE, "%s: logits %s have no classes",
                       c->name, hki_shape_text(*z, text));
        return false;
    }
    *lead = hk_shape_make(z->rank - 1, z->dim);
    *classes = z->dim[z->rank - 1];
    const hk_status s = hki_dim_count(c->name, *lead, rows);
    if (s != HK_OK)
        hki_graph_fail(c->g, s, "%s", hk_last_error());
    return s == HK_OK;
}

static hk_node *as_matrix(hk_graph *g, hk_node *x, int64_t rows, int64_t cols) {
    return hk_reshape(g, x, hk_shape_make(2, (const int64_t[]){rows, cols}));
}

hk_node *hk_softmax_cross_entropy(hk_graph *g, hk_node *labels, hk_node *logits,
                                  hk_node *weights,
                                  const hk_loss_options *opt) {
    loss c = {g, "softmax_cross_entropy", .l = labels, .p = logits,
              .w = weights};
    hk_shape lead;
    int64_t rows, classes;
    if (!begin_floats(&c, opt) || !split_classes(&c, &lead, &rows, &classes))
        return NULL;
    hk_node *const l =
        as_matrix(g, smooth(&c, 1.0 / (double)classes), rows, classes);
    hk_node *const z = as_matrix(g, c.p, rows, classes);
    return reduce(&c, hk_reshape(g, hki_softmax_xent(g, z, l), lead));
}

// Drops a last dimension 1 of x where x has one dimension too many.
static hk_node *squeeze(hk_graph *g, hk_node *x, int rank) {
    if (x == NULL || x->shape.rank != rank + 1 || x->shape.dim[rank] != 1)
        return x;
    return hk_reshape(g, x, hk_shape_make(rank, x->shape.dim));
}

hk_node *hk_sparse_softmax_cross_entropy(hk_graph *g, hk_node *labels,
                                         hk_node *logits, hk_node *weights,
                                         const hk_loss_options *opt) {
    loss c = {g, "sparse_softmax_cross_entropy", .l = labels, .p = logits,
              .w = weights};
    hk_shape lead;
    int64_t rows, classes;
    if (!begin(&c, opt) || !split_classes(&c, &lead, &rows, &classes))
        return NULL;
    c.l = squeeze(g, c.l, lead.rank);
    c.w = squeeze(g, c.w, lead.rank);
    if (c.l == NULL)
        return NULL;
    char lt[HKI_SHAPE_TEXT], zt[HKI_SHAPE_TEXT];
    if (!hk_shape_equal(c.l->shape, lead))
        return hki_graph_fail(
            g, HK_E_SHAPE, "%s: labels %s do not fit logits %s", c.name,
            hki_shape_text(labels->shape, lt), hki_shape_text(c.p->shape, zt));
    if (c.l->dtype == HK_U8)
        c.l = hk_cast(g, c.l, HK_I32);
    hk_node *const l = hk_reshape(g, c.l, hk_shape_make(1, &rows));
    hk_node *const z = as_matrix(g, c.p, rows, classes);
    return reduce(&c, hk_reshape(g, hki_sparse_softmax_xent(g, z, l), lead));
}
