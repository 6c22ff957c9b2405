// dims.c - arithmetic on dimensions that may be multiples of the batch size.
//
// A negative dimension -k stands for k times the batch size, so a product may
// hold one of them: its sign then marks the result. A dimension of 0 is both.
#include "graph/graph.h"

hk_status hki_dim_mul(const char *who, int64_t a, int64_t b, int64_t *out) {
    if (a < 0 && b < 0)
        return hki_fail(HK_E_SHAPE,
                        "%s: two batch dimensions cannot be multiplied", who);
    if (__builtin_mul_overflow(a, b, out))
        return hki_fail(HK_E_OVERFLOW, "%s: %lld times %lld is too large", who,
                        (long long)a, (long long)b);
    return HK_OK;
}

static hk_status check_rank(const char *who, const hk_shape *s) {
    if (s->rank < 0 || s->rank > HK_MAX_RANK)
        return hki_fail(HK_E_SHAPE, "%s: rank %d is not in 0..%d", who, s->rank,
                        HK_MAX_RANK);
    return HK_OK;
}

// As for concrete shapes, zeros count as ones for the overflow check.
hk_status hki_dim_count(const char *who, hk_shape s, int64_t *out) {
    char text[HKI_SHAPE_TEXT];
    HKI_TRY(check_rank(who, &s));
    int64_t n = 1;
    bool empty = false, two = false;
    for (int i = 0; i < s.rank; i++) {
        const int64_t d = s.dim[i];
        empty = empty || d == 0;
        two = two || (n < 0 && d < 0);
        if (__builtin_mul_overflow(n, d == 0 ? 1 : d, &n) || n == INT64_MIN)
            return hki_fail(HK_E_OVERFLOW, "%s: %s has too many elements", who,
                            hki_shape_text(s, text));
    }
    if (two && !empty)
        return hki_fail(HK_E_SHAPE, "%s: %s has two batch dimensions", who,
                        hki_shape_text(s, text));
    *out = empty ? 0 : n;
    return HK_OK;
}

hk_status hki_broadcast(const char *who, hk_shape a, hk_shape b,
                        hk_shape *out) {
    hk_shape s = {.rank = HKI_MAX(a.rank, b.rank)};
    for (int i = 0; i < s.rank; i++) {
        const int ia = i - (s.rank - a.rank), ib = i - (s.rank - b.rank);
        const int64_t da = ia < 0 ? 1 : a.dim[ia];
        const int64_t db = ib < 0 ? 1 : b.dim[ib];
        if (da != db && da != 1 && db != 1) {
            char ta[HKI_SHAPE_TEXT], tb[HKI_SHAPE_TEXT];
            return hki_fail(HK_E_SHAPE, "%s: shapes %s and %s do not fit", who,
                            hki_shape_text(a, ta), hki_shape_text(b, tb));
        }
        s.dim[i] = da == 1 ? db : da;
    }
    *out = s;
    return HK_OK;
}

hk_status hki_axis(const char *who, int32_t *axis, int rank) {
    if (*axis < -rank || *axis >= rank)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: there is no axis %d in a tensor of rank %d", who,
                        *axis, rank);
    if (*axis < 0)
        *axis += rank;
    return HK_OK;
}

hk_status hki_shape_concrete(hk_shape s, int64_t batch, hk_shape *out) {
    char text[HKI_SHAPE_TEXT];
    HKI_TRY(check_rank("shape", &s));
    if (batch < 0)
        return hki_fail(HK_E_INVALID_ARG, "shape: batch size %lld is negative",
                        (long long)batch);
    hk_shape c = {.rank = s.rank};
    for (int i = 0; i < s.rank; i++) {
        c.dim[i] = s.dim[i];
        if (s.dim[i] < 0 && __builtin_mul_overflow(s.dim[i], -batch, &c.dim[i]))
            return hki_fail(HK_E_OVERFLOW,
                            "shape: %s is too large for batch size %lld",
                            hki_shape_text(s, text), (long long)batch);
    }
    *out = c;
    return HK_OK;
}

hk_status hki_check_real(const hki_infer *c, int i) {
    const hk_dtype t = c->in[i].dtype;
    if (t == HK_F32 || t == HK_F64)
        return HK_OK;
    return hki_fail(HK_E_DTYPE, "%s: needs a float type, not %s", c->name,
                    hk_dtype_name(t));
}

hk_status hki_infer_out(const hki_infer *c, int o, hk_dtype t, hk_shape shape) {
    c->out[o].dtype = t;
    c->out[o].shape = shape;
    return HK_OK;
}
