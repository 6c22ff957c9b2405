// unary.c - functions of one element, and their derivatives.
//
// attr.mode is the function (hki_unary_fn); alpha and beta are its constants.
#include <math.h>
#include "graph/graph.h"
#include "graph/portable.h"

static double gelu(double x) {
    return 0.5 * x * (1.0 + erf(x * M_SQRT1_2));
}

static double gelu_slope(double x) {
    const double pdf = exp(-0.5 * x * x) * 0.5 * M_2_SQRTPI * M_SQRT1_2;
    return 0.5 * (1.0 + erf(x * M_SQRT1_2)) + x * pdf;
}

static double sigmoid(double x) {
    return x >= 0.0 ? 1.0 / (1.0 + exp(-x)) : exp(x) / (1.0 + exp(x));
}

static double value(const hki_attr *a, double x) {
    switch ((hki_unary_fn)a->mode) {
    case HKI_U_RELU:
        return x > 0.0 ? x : x != x ? x : 0.0; // a NaN stays visible
    case HKI_U_LEAKY_RELU:
        return x > 0.0 ? x : a->alpha * x;
    case HKI_U_ELU:
        return x > 0.0 ? x : a->alpha * expm1(x);
    case HKI_U_GELU:
        return gelu(x);
    case HKI_U_SIGMOID:
        return sigmoid(x);
    case HKI_U_TANH:
        return tanh(x);
    case HKI_U_SOFTPLUS:
        return (x > 0.0 ? x : 0.0) + log1p(exp(-fabs(x)));
    case HKI_U_EXP:
        return exp(x);
    case HKI_U_LOG:
        return log(x);
    case HKI_U_SQRT:
        return sqrt(x);
    case HKI_U_ABS:
        return fabs(x);
    case HKI_U_SQUARE:
        return x * x;
    case HKI_U_NEG:
        return -x;
    case HKI_U_CLIP:
        return x < a->alpha ? a->alpha : x > a->beta ? a->beta : x;
    case HKI_U_SIGN:
        return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x;
    case HKI_U_RSQRT:
        return 1.0 / sqrt(x);
    case HKI_U_RECIPROCAL:
        return 1.0 / x;
    case HKI_U_NOT:
        return x == 0.0;
    case HKI_U_NONE:
    case HKI_U_COUNT:
        break;
    }
    return x;
}

// Derivative at x, where y is the function's value.
static double slope(const hki_attr *a, double x, double y) {
    switch ((hki_unary_fn)a->mode) {
    case HKI_U_RELU:
        return y > 0.0;
    case HKI_U_LEAKY_RELU:
        return x > 0.0 ? 1.0 : a->alpha;
    case HKI_U_ELU:
        return x > 0.0 ? 1.0 : y + a->alpha;
    case HKI_U_GELU:
        return gelu_slope(x);
    case HKI_U_SIGMOID:
        return y * (1.0 - y);
    case HKI_U_TANH:
        return 1.0 - y * y;
    case HKI_U_SOFTPLUS:
        return sigmoid(x);
    case HKI_U_EXP:
        return y;
    case HKI_U_LOG:
        return 1.0 / x;
    case HKI_U_SQRT:
        return 0.5 / y;
    case HKI_U_ABS:
        return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : 0.0;
    case HKI_U_SQUARE:
        return 2.0 * x;
    case HKI_U_NEG:
        return -1.0;
    case HKI_U_CLIP:
        return x >= a->alpha && x <= a->beta;
    case HKI_U_RSQRT:
        return -0.5 * y / x;
    case HKI_U_RECIPROCAL:
        return -y * y;
    case HKI_U_SIGN:
    case HKI_U_NOT:
        return 0.0;
    case HKI_U_NONE:
    case HKI_U_COUNT:
        break;
    }
    return 1.0;
}

static hk_status infer_unary(hki_infer *c) {
    const bool logic = c->attr->mode == HKI_U_NOT;
    if (logic && c->in[0].dtype != HK_BOOL)
        return hki_fail(HK_E_DTYPE, "%s: needs bool, not %s", c->name,
                        hk_dtype_name(c->in[0].dtype));
    if (!logic && !hki_dtype_is_float(c->in[0].dtype))
        return hki_fail(HK_E_DTYPE, "%s: needs a float type, not %s", c->name,
                        hk_dtype_name(c->in[0].dtype));
    return hki_infer_out(c, 0, c->in[0].dtype, c->in[0].shape);
}

HKI_PORTABLE(run_unary) {
    for (int64_t i = 0; i < out->count; i++)
        hki_st(out, i, value(a, hki_ld(&in[0], i)));
    return HK_OK;
}

static void grad_unary(hki_grad *c) {
    if (c->call->attr.mode == HKI_U_SIGN || c->call->attr.mode == HKI_U_NOT)
        return;
    hk_node *const in[] = {c->dy[0], c->call->in[0], &c->call->out[0]};
    c->dx[0] = hki_emit(c->g, HKI_OP_unary_grad, &c->call->attr, in, 3);
}

static const char *const names[HKI_U_COUNT] = {
    [HKI_U_NONE] = "none",
    [HKI_U_RELU] = "relu",
    [HKI_U_LEAKY_RELU] = "leaky_relu",
    [HKI_U_ELU] = "elu",
    [HKI_U_GELU] = "gelu",
    [HKI_U_SIGMOID] = "sigmoid",
    [HKI_U_TANH] = "tanh",
    [HKI_U_SOFTPLUS] = "softplus",
    [HKI_U_EXP] = "exp",
    [HKI_U_LOG] = "log",
    [HKI_U_SQRT] = "sqrt",
    [HKI_U_ABS] = "abs",
    [HKI_U_SQUARE] = "square",
    [HKI_U_NEG] = "neg",
    [HKI_U_CLIP] = "clip",
    [HKI_U_SIGN] = "sign",
    [HKI_U_RSQRT] = "rsqrt",
    [HKI_U_RECIPROCAL] = "reciprocal",
    [HKI_U_NOT] = "logical_not"};

const hki_op hki_op_unary = {
    HKI_OPERATOR_RULES(unary, 1, 1, 1),
    .flags = HKI_OP_IS_ELEMENTWISE | HKI_OP_IS_EXPORTED,
    .grad = grad_unary,
    .images_in = HKI_BIT(0),
    .images_out = HKI_BIT(0),
    .modes = names,
    .n_modes = HKI_U_COUNT,
};

// unary_grad(dy, x, y) = dy * f'(x).
static hk_status infer_unary_grad(hki_infer *c) {
    for (int i = 1; i < 3; i++)
        if (!hk_shape_equal(c->in[HKI_UNARY_GRAD_DY].shape, c->in[i].shape))
            return hki_fail(HK_E_SHAPE, "%s: input %d differs in shape",
                            c->name, i);
    return hki_infer_out(c, 0, c->in[HKI_UNARY_GRAD_DY].dtype,
                         c->in[HKI_UNARY_GRAD_DY].shape);
}

HKI_PORTABLE(run_unary_grad) {
    for (int64_t i = 0; i < out->count; i++)
        hki_st(out, i,
               hki_ld(&in[HKI_UNARY_GRAD_DY], i) *
                   slope(a, hki_ld(&in[HKI_UNARY_GRAD_X], i),
                         hki_ld(&in[HKI_UNARY_GRAD_Y], i)));
    return HK_OK;
}

// Second derivatives: only what follows from first-order calls is offered.
const hki_op hki_op_unary_grad = {
    HKI_OPERATOR_RULES(unary_grad, 3, 3, 1),
    .flags = HKI_OP_IS_ELEMENTWISE,
    .images_in = HKI_BIT(HKI_UNARY_GRAD_DY) | HKI_BIT(HKI_UNARY_GRAD_X) |
                 HKI_BIT(HKI_UNARY_GRAD_Y),
    .images_out = HKI_BIT(0),
    .modes = names,
    .n_modes = HKI_U_COUNT,
    .mode_suffix = "_grad",
};

hk_node *hki_unary(hk_graph *g, hki_unary_fn fn, hk_node *x, double alpha,
                   double beta) {
    const hki_attr a = {.mode = (int32_t)fn, .alpha = alpha, .beta = beta};
    return hki_emit(g, HKI_OP_unary, &a, &x, 1);
}

hk_node *hk_leaky_relu(hk_graph *g, hk_node *x, double alpha) {
    return hki_unary(g, HKI_U_LEAKY_RELU, x, alpha, 0);
}

hk_node *hk_elu(hk_graph *g, hk_node *x, double alpha) {
    return hki_unary(g, HKI_U_ELU, x, alpha, 0);
}

hk_node *hk_clip(hk_graph *g, hk_node *x, double low, double high) {
    if (!(low <= high))
        return hki_graph_fail(g, HK_E_INVALID_ARG,
                              "clip: low %g is not below high %g", low, high);
    return hki_unary(g, HKI_U_CLIP, x, low, high);
}

#define UNARY(name, fn)                                                        \
    hk_node *hk_##name(hk_graph *g, hk_node *x) {                              \
        return hki_unary(g, fn, x, 0, 0);                                      \
    }

UNARY(relu, HKI_U_RELU)
UNARY(gelu, HKI_U_GELU)
UNARY(sigmoid, HKI_U_SIGMOID)
UNARY(tanh, HKI_U_TANH)
UNARY(softplus, HKI_U_SOFTPLUS)
UNARY(exp, HKI_U_EXP)
UNARY(log, HKI_U_LOG)
UNARY(sqrt, HKI_U_SQRT)
UNARY(rsqrt, HKI_U_RSQRT)
UNARY(reciprocal, HKI_U_RECIPROCAL)
UNARY(abs, HKI_U_ABS)
UNARY(square, HKI_U_SQUARE)
UNARY(neg, HKI_U_NEG)
UNARY(sign, HKI_U_SIGN)
UNARY(logical_not, HKI_U_NOT)
