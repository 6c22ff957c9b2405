// cast.c - cast(x): the values of x as attr.dtype.
//
// Integers take the nearest value in their range, NaN becomes 0, fractions
// are cut; bool is "not zero".
#include "graph/ops/common.h"

static hk_status infer_cast(hki_infer *c) {
    const hk_dtype from = c->in[0].dtype, to = c->attr->dtype;
    if (!hki_dtype_valid(to) || to == HK_STRING || from == HK_STRING)
        return hki_fail(HK_E_DTYPE, "%s: %s cannot be converted to %s", c->name,
                        hk_dtype_name(from), hk_dtype_name(to));
    c->out[0].dtype = to;
    c->out[0].shape = c->in[0].shape;
    return HK_OK;
}

typedef struct range {
    int64_t low, high;
} range;

static range range_of(hk_dtype t) {
    switch (t) {
    case HK_I32:
        return (range){INT32_MIN, INT32_MAX};
    case HK_U8:
        return (range){0, UINT8_MAX};
    default:
        return (range){INT64_MIN, INT64_MAX};
    }
}

// The integer nearest to x in the range, fractions cut.
static int64_t from_float(double x, range r) {
    if (x != x)
        return 0;
    if (x <= (double)r.low)
        return r.low;
    // The largest int64 rounds up to 2^63, which does not convert back.
    return x >= (double)r.high ? r.high : (int64_t)x;
}

static int64_t from_integer(int64_t x, range r) {
    return x < r.low ? r.low : x > r.high ? r.high : x;
}

HKI_PORTABLE(run_cast) {
    const bool from_real = hki_dtype_is_float(in->dtype);
    const bool direct = hki_dtype_is_float(out->dtype) || out->dtype == HK_BOOL;
    const range r = range_of(out->dtype);
    for (int64_t i = 0; i < out->count; i++) {
        if (direct)
            hki_st(out, i, hki_ld(in, i));
        else if (from_real)
            hki_st_int(out, i, from_float(hki_ld(in, i), r));
        else
            hki_st_int(out, i, from_integer(hki_ld_int(in, i), r));
    }
    return HK_OK;
}

static void grad_cast(hki_grad *c) {
    const hk_dtype from = c->call->in[0]->dtype;
    if (hki_dtype_is_float(from) && hki_dtype_is_float(c->call->attr.dtype))
        c->dx[0] = hk_cast(c->g, c->dy[0], from);
}

const hki_op hki_op_cast = {
    HKI_OPERATOR_RULES(cast, 1, 1, 1),
    .flags = HKI_OP_IS_EXPORTED,
    .grad = grad_cast,
};

hk_node *hk_cast(hk_graph *g, hk_node *x, hk_dtype t) {
    const hki_attr attr = {.dtype = t};
    if (x != NULL && x->dtype == t)
        return x;
    return hki_emit(g, HKI_OP_cast, &attr, &x, 1);
}
