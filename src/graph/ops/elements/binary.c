// binary.c - functions of two elements, broadcast as in NumPy.
//
// binary(a, b): attr.mode is the function (hki_binary_fn). Both inputs have
// one type. float32 and float64 take every function but logic; int32 and
// int64 take sums, products, extrema (wrapping at 64 bits, exactly) and
// comparisons; uint8 and bool can be compared, bool takes logic.
#include <math.h>
#include "graph/ops/common.h"

static bool is_comparison(int32_t mode) {
    return mode >= HKI_B_LESS && mode <= HKI_B_NOT_EQUAL;
}

static bool is_logic(int32_t mode) {
    return mode == HKI_B_AND || mode == HKI_B_OR;
}

static bool takes_integers(int32_t mode) {
    return mode == HKI_B_ADD || mode == HKI_B_SUB || mode == HKI_B_MUL ||
           mode == HKI_B_MAX || mode == HKI_B_MIN ||
           mode == HKI_B_SQUARED_DIFF || is_comparison(mode);
}

static bool takes_dtype(int32_t mode, hk_dtype t) {
    if (is_logic(mode))
        return t == HK_BOOL;
    if (hki_dtype_is_real(t))
        return true;
    if (hki_dtype_is_index(t))
        return takes_integers(mode);
    return is_comparison(mode) && (t == HK_U8 || t == HK_BOOL);
}

// Per element max(z,0) - z*l + ln(1 + e^-|z|).
static double sigmoid_xent(double z, double l) {
    return (z > 0.0 ? z : 0.0) - z * l + log1p(exp(-fabs(z)));
}

static double value(hki_binary_fn fn, double a, double b) {
    switch (fn) {
    case HKI_B_ADD:
        return a + b;
    case HKI_B_SUB:
        return a - b;
    case HKI_B_MUL:
        return a * b;
    case HKI_B_DIV:
        return a / b;
    case HKI_B_DIV_SAFE:
        return b <= 0.0 ? 0.0 : a / b;
    case HKI_B_POW:
        return pow(a, b);
    case HKI_B_MAX:
        return a >= b || a != a ? a : b; // a NaN stays visible
    case HKI_B_MIN:
        return a <= b || a != a ? a : b;
    case HKI_B_SQUARED_DIFF:
        return (a - b) * (a - b);
    case HKI_B_SIGMOID_XENT:
        return sigmoid_xent(a, b);
    case HKI_B_LESS:
        return a < b;
    case HKI_B_LESS_EQUAL:
        return a <= b;
    case HKI_B_GREATER:
        return a > b;
    case HKI_B_GREATER_EQUAL:
        return a >= b;
    case HKI_B_EQUAL:
        return a == b;
    case HKI_B_NOT_EQUAL:
        return a != b;
    case HKI_B_AND:
        return a != 0.0 && b != 0.0;
    case HKI_B_OR:
        return a != 0.0 || b != 0.0;
    case HKI_B_COUNT:
        break;
    }
    return 0.0;
}

// Arithmetic of integers wraps around instead of overflowing.
static int64_t integer_value(hki_binary_fn fn, int64_t a, int64_t b) {
    const uint64_t ua = (uint64_t)a, ub = (uint64_t)b;
    switch (fn) {
    case HKI_B_ADD:
        return (int64_t)(ua + ub);
    case HKI_B_SUB:
        return (int64_t)(ua - ub);
    case HKI_B_MUL:
        return (int64_t)(ua * ub);
    case HKI_B_SQUARED_DIFF:
        return (int64_t)((ua - ub) * (ua - ub));
    case HKI_B_MAX:
        return a > b ? a : b;
    case HKI_B_MIN:
        return a < b ? a : b;
    default:
        return 0;
    }
}

static bool integer_compare(hki_binary_fn fn, int64_t a, int64_t b) {
    switch (fn) {
    case HKI_B_LESS:
        return a < b;
    case HKI_B_LESS_EQUAL:
        return a <= b;
    case HKI_B_GREATER:
        return a > b;
    case HKI_B_GREATER_EQUAL:
        return a >= b;
    case HKI_B_EQUAL:
        return a == b;
    default:
        return a != b;
    }
}

static hk_status infer_binary(hki_infer *c) {
    const int32_t mode = c->attr->mode;
    const hk_dtype t = c->in[0].dtype;
    if (mode < 0 || mode >= HKI_B_COUNT)
        return hki_fail(HK_E_INVALID_ARG, "%s: unknown binary function %d",
                        c->name, mode);
    if (t != c->in[1].dtype)
        return hki_fail(HK_E_DTYPE, "%s: types %s and %s differ", c->name,
                        hk_dtype_name(t), hk_dtype_name(c->in[1].dtype));
    if (!takes_dtype(mode, t))
        return hki_fail(HK_E_DTYPE, "%s: not defined for %s", c->name,
                        hk_dtype_name(t));
    HKI_TRY(hki_broadcast(c->name, c->in[0].shape, c->in[1].shape,
                          &c->out[0].shape));
    c->out[0].dtype = is_comparison(mode) ? HK_BOOL : t;
    return HK_OK;
}

HKI_PORTABLE(run_binary) {
    const hki_binary_fn fn = (hki_binary_fn)a->mode;
    const bool integers = hki_dtype_is_index(in[0].dtype);
    int64_t sa[HK_MAX_RANK] = {0}, sb[HK_MAX_RANK] = {0};
    int64_t index[HK_MAX_RANK] = {0};
    int64_t ia = 0, ib = 0;
    hki_broadcast_strides(&in[0].shape, &out->shape, sa);
    hki_broadcast_strides(&in[1].shape, &out->shape, sb);
    for (int64_t i = 0; i < out->count; i++) {
        if (!integers)
            hki_st(out, i, value(fn, hki_ld(&in[0], ia), hki_ld(&in[1], ib)));
        else if (is_comparison(a->mode))
            hki_st(out, i,
                   integer_compare(fn, hki_ld_int(&in[0], ia),
                                   hki_ld_int(&in[1], ib)));
        else
            hki_st_int(out, i,
                       integer_value(fn, hki_ld_int(&in[0], ia),
                                     hki_ld_int(&in[1], ib)));
        hki_next(&out->shape, index, sa, &ia, sb, &ib);
    }
    return HK_OK;
}

// ---- gradients --------------------------------------------------------------

typedef struct pair {
    hk_node *a, *b;
} pair;

static hk_node *mul(hk_graph *g, hk_node *a, hk_node *b) {
    return hki_binary(g, HKI_B_MUL, a, b);
}

static hk_node *neg(hk_graph *g, hk_node *x) {
    return hki_unary(g, HKI_U_NEG, x, 0, 0);
}

// d(a^b)/da = b a^(b-1).
static hk_node *pow_grad_base(hk_graph *g, hk_node *dy, hk_node *a,
                              hk_node *b) {
    hk_node *const less =
        hki_binary(g, HKI_B_SUB, b, hki_scalar_like(g, b, 1.0));
    return mul(g, dy, mul(g, b, hki_binary(g, HKI_B_POW, a, less)));
}

// d(a^b)/db = a^b ln a, taken as 0 where a <= 0. The logarithm of 1 stands in
// there, so that no infinity appears on the way.
static hk_node *pow_grad_exponent(hk_graph *g, hk_node *dy, hk_node *y,
                                  hk_node *a) {
    hk_node *const positive =
        hki_binary(g, HKI_B_GREATER, a, hki_scalar_like(g, a, 0.0));
    hk_node *const base = hk_where(g, positive, a, hki_scalar_like(g, a, 1.0));
    return mul(g, dy, mul(g, y, hki_unary(g, HKI_U_LOG, base, 0, 0)));
}

// Extrema hand the gradient to the side that was chosen; a tie goes to a.
static pair extremum_grad(hk_graph *g, hki_binary_fn chosen, const bool *need,
                          hk_node *dy, hk_node *const in[2]) {
    hk_node *const to_a = hki_binary(g, chosen, in[0], in[1]);
    hk_node *const zero = hki_scalar_like(g, dy, 0.0);
    return (pair){need[0] ? hk_where(g, to_a, dy, zero) : NULL,
                  need[1] ? hk_where(g, to_a, zero, dy) : NULL};
}

static hk_node *grad_of_a(hk_graph *g, hki_binary_fn fn, hk_node *dy,
                          hk_node *const in[2]) {
    hk_node *const a = in[0], *const b = in[1];
    switch (fn) {
    case HKI_B_ADD:
    case HKI_B_SUB:
        return dy;
    case HKI_B_MUL:
        return mul(g, dy, b);
    case HKI_B_DIV:
    case HKI_B_DIV_SAFE:
        return hki_binary(g, fn, dy, b);
    case HKI_B_POW:
        return pow_grad_base(g, dy, a, b);
    case HKI_B_SQUARED_DIFF:
        return mul(g, mul(g, dy, hki_scalar_like(g, dy, 2.0)),
                   hki_binary(g, HKI_B_SUB, a, b));
    case HKI_B_SIGMOID_XENT:
        return mul(
            g, dy,
            hki_binary(g, HKI_B_SUB, hki_unary(g, HKI_U_SIGMOID, a, 0, 0), b));
    default:
        return NULL;
    }
}

static hk_node *grad_of_b(hk_graph *g, hki_binary_fn fn, hk_node *dy,
                          hk_node *const in[2], hk_node *y) {
    hk_node *const a = in[0], *const b = in[1];
    switch (fn) {
    case HKI_B_ADD:
        return dy;
    case HKI_B_SUB:
        return neg(g, dy);
    case HKI_B_MUL:
        return mul(g, dy, a);
    case HKI_B_DIV:
    case HKI_B_DIV_SAFE: // d(a/b)/db = -(a/b)/b
        return neg(g, mul(g, dy, hki_binary(g, fn, y, b)));
    case HKI_B_POW:
        return pow_grad_exponent(g, dy, y, a);
    case HKI_B_SQUARED_DIFF:
        return mul(g, mul(g, dy, hki_scalar_like(g, dy, 2.0)),
                   hki_binary(g, HKI_B_SUB, b, a));
    case HKI_B_SIGMOID_XENT:
        return neg(g, mul(g, dy, a));
    default:
        return NULL;
    }
}

static void grad_binary(hki_grad *c) {
    const hki_binary_fn fn = (hki_binary_fn)c->call->attr.mode;
    hk_node *const *in = c->call->in;
    hk_node *const dy = c->dy[0];
    pair d = {NULL, NULL};
    if (!hki_dtype_is_float(in[0]->dtype) || fn >= HKI_B_LESS)
        return;
    if (fn == HKI_B_MAX || fn == HKI_B_MIN) {
        d = extremum_grad(
            c->g, fn == HKI_B_MAX ? HKI_B_GREATER_EQUAL : HKI_B_LESS_EQUAL,
            c->need, dy, in);
    } else {
        if (c->need[0])
            d.a = grad_of_a(c->g, fn, dy, in);
        if (c->need[1])
            d.b = grad_of_b(c->g, fn, dy, in, &c->call->out[0]);
    }
    if (d.a != NULL)
        c->dx[0] = hki_sum_to(c->g, d.a, in[0]->shape);
    if (d.b != NULL)
        c->dx[1] = hki_sum_to(c->g, d.b, in[1]->shape);
}

static const char *const names[HKI_B_COUNT] = {
    [HKI_B_ADD] = "add",
    [HKI_B_SUB] = "sub",
    [HKI_B_MUL] = "mul",
    [HKI_B_DIV] = "div",
    [HKI_B_DIV_SAFE] = "div_safe",
    [HKI_B_POW] = "pow",
    [HKI_B_MAX] = "maximum",
    [HKI_B_MIN] = "minimum",
    [HKI_B_SQUARED_DIFF] = "squared_difference",
    [HKI_B_SIGMOID_XENT] = "sigmoid_xent",
    [HKI_B_LESS] = "less",
    [HKI_B_LESS_EQUAL] = "less_equal",
    [HKI_B_GREATER] = "greater",
    [HKI_B_GREATER_EQUAL] = "greater_equal",
    [HKI_B_EQUAL] = "equal",
    [HKI_B_NOT_EQUAL] = "not_equal",
    [HKI_B_AND] = "logical_and",
    [HKI_B_OR] = "logical_or"};

const hki_op hki_op_binary = {
    HKI_OPERATOR_RULES(binary, 2, 2, 1),
    .flags = HKI_OP_IS_ELEMENTWISE | HKI_OP_IS_EXPORTED,
    .grad = grad_binary,
    .images_in = HKI_BIT(0) | HKI_BIT(1),
    .images_out = HKI_BIT(0),
    .modes = names,
    .n_modes = HKI_B_COUNT,
};

// ---- builders ---------------------------------------------------------------

hk_node *hki_binary(hk_graph *g, hki_binary_fn fn, hk_node *a, hk_node *b) {
    const hki_attr attr = {.mode = (int32_t)fn};
    hk_node *const in[] = {a, b};
    return hki_emit(g, HKI_OP_binary, &attr, in, 2);
}

// The values are those of hki_binary_fn.
_Static_assert((int)HK_LESS == HKI_B_LESS && (int)HK_EQUAL == HKI_B_EQUAL &&
                   (int)HK_NOT_EQUAL == HKI_B_NOT_EQUAL,
               "comparisons are binary functions");

hk_node *hk_compare(hk_graph *g, hk_node *a, hk_comparison how, hk_node *b) {
    if ((int)how < HKI_B_LESS || (int)how > HKI_B_NOT_EQUAL)
        return hki_graph_fail(g, HK_E_INVALID_ARG,
                              "compare: unknown comparison %d", (int)how);
    return hki_binary(g, (hki_binary_fn)how, a, b);
}

#define BINARY(name, fn)                                                       \
    hk_node *name(hk_graph *g, hk_node *a, hk_node *b) {                       \
        return hki_binary(g, fn, a, b);                                        \
    }

BINARY(hk_add, HKI_B_ADD)
BINARY(hk_sub, HKI_B_SUB)
BINARY(hk_mul, HKI_B_MUL)
BINARY(hk_div, HKI_B_DIV)
BINARY(hki_div_safe, HKI_B_DIV_SAFE)
BINARY(hk_pow, HKI_B_POW)
BINARY(hk_maximum, HKI_B_MAX)
BINARY(hk_minimum, HKI_B_MIN)
BINARY(hk_squared_difference, HKI_B_SQUARED_DIFF)
BINARY(hki_sigmoid_xent, HKI_B_SIGMOID_XENT)
BINARY(hk_logical_and, HKI_B_AND)
BINARY(hk_logical_or, HKI_B_OR)
