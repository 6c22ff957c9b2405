// one_hot.c - one_hot(indices): a last axis of attr.n elements of attr.dtype,
// 1 at the index and 0 elsewhere; an index out of range gives zeros.
#include "graph/ops/common.h"

static hk_status infer_one_hot(hki_infer *c) {
    const hk_shape *const idx = &c->in[0].shape;
    const hk_dtype t = c->attr->dtype;
    char text[HKI_SHAPE_TEXT];
    if (!hki_dtype_is_index(c->in[0].dtype))
        return hki_fail(HK_E_DTYPE, "%s: indices are %s, not int32 or int64",
                        c->name, hk_dtype_name(c->in[0].dtype));
    if (!hki_dtype_valid(t) || t == HK_STRING)
        return hki_fail(HK_E_DTYPE,
                        "%s: there are no ones and zeros of type %s", c->name,
                        hk_dtype_name(t));
    if (c->attr->n < 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: depth is %lld; it has to be at least 1", c->name,
                        (long long)c->attr->n);
    if (idx->rank >= HK_MAX_RANK)
        return hki_fail(HK_E_SHAPE,
                        "%s: %s has too many dimensions for another axis",
                        c->name, hki_shape_text(*idx, text));
    hk_shape s = *idx;
    s.dim[s.rank++] = c->attr->n;
    int64_t count;
    HKI_TRY(hki_dim_count(c->name, s, &count));
    c->out[0].dtype = t;
    c->out[0].shape = s;
    return HK_OK;
}

HKI_PORTABLE(run_one_hot) {
    if (out->count == 0)
        return HK_OK;
    memset(out->data, 0, (size_t)out->count * hk_dtype_size(out->dtype));
    for (int64_t i = 0; i < in->count; i++) {
        const int64_t j = hki_ld_index(in, i);
        if (j >= 0 && j < a->n)
            hki_st(out, i * a->n + j, 1.0);
    }
    return HK_OK;
}

const hki_op hki_op_one_hot = {
    HKI_OPERATOR_RULES(one_hot, 1, 1, 1),
    .flags = HKI_OP_IS_EXPORTED,
};

hk_node *hk_one_hot(hk_graph *g, hk_node *indices, int64_t depth, hk_dtype t) {
    const hki_attr attr = {.n = depth, .dtype = t};
    return hki_emit(g, HKI_OP_one_hot, &attr, &indices, 1);
}
