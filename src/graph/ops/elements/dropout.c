// dropout.c - dropout(x, rate): zeroes each element with probability rate and
// scales the others by 1 / (1 - rate).
//
// Element i stays when random word i of the call (attr.stream) is at least
// rate * 2^32. The mask is a function of seed, step, stream and i, so the
// gradient is the same operator on dy, and nothing is kept in between.
#include "graph/ops/common.h"

static hk_status infer_dropout(hki_infer *c) {
    char text[HKI_SHAPE_TEXT];
    HKI_TRY(hki_check_real(c, HKI_DROPOUT_X));
    if (!hki_dtype_is_real(c->in[HKI_DROPOUT_RATE].dtype))
        return hki_fail(HK_E_DTYPE, "%s: the rate is %s, not a float type",
                        c->name, hk_dtype_name(c->in[HKI_DROPOUT_RATE].dtype));
    if (c->in[HKI_DROPOUT_RATE].shape.rank != 0)
        return hki_fail(
            HK_E_SHAPE, "%s: the rate has shape %s, but has to be a scalar",
            c->name, hki_shape_text(c->in[HKI_DROPOUT_RATE].shape, text));
    return hki_infer_out(c, 0, c->in[HKI_DROPOUT_X].dtype,
                         c->in[HKI_DROPOUT_X].shape);
}

HKI_PORTABLE(run_dropout) {
    const double rate = hki_ld(&in[HKI_DROPOUT_RATE], 0);
    if (!(rate >= 0.0 && rate < 1.0))
        return hki_fail(HK_E_RANGE, "dropout: rate %g is not in [0, 1)", rate);
    const double limit = rate * 0x1p32, scale = 1.0 / (1.0 - rate);
    uint32_t word[4] = {0};
    for (int64_t i = 0; i < out->count; i++) {
        if (i % 4 == 0)
            hki_random_words(run, a->stream, (uint64_t)i / 4, word);
        const bool keep = (double)word[i % 4] >= limit;
        hki_st(out, i, keep ? hki_ld(&in[HKI_DROPOUT_X], i) * scale : 0.0);
    }
    return HK_OK;
}

static void grad_dropout(hki_grad *c) {
    hk_node *const in[] = {c->dy[0], c->call->in[HKI_DROPOUT_RATE]};
    c->dx[HKI_DROPOUT_X] =
        hki_emit(c->g, HKI_OP_dropout, &c->call->attr, in, 2);
}

const hki_op hki_op_dropout = {
    HKI_OPERATOR_RULES(dropout, 2, 2, 1),
    .flags = HKI_OP_IS_RANDOM,
    .grad = grad_dropout,
};

hk_node *hk_dropout(hk_graph *g, hk_node *x, hk_node *rate) {
    if (!hki_graph_ok(g))
        return NULL;
    if (hk_graph_mode(g) != HK_TRAIN)
        return x;
    const hki_attr attr = {.stream = hki_graph_new_stream(g)};
    hk_node *const in[] = {x, rate};
    return hki_emit(g, HKI_OP_dropout, &attr, in, 2);
}
