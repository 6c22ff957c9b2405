// random.c - random(): values of attr.dtype and shape attr.dims, new in every
// step.
//
// attr.mode 0: normal with mean alpha and standard deviation beta, two at a
// time from two words (Box-Muller). attr.mode 1: uniform in [alpha, beta).
#include <math.h>
#include "graph/ops/common.h"

enum { RANDOM_NORMAL = 0, RANDOM_UNIFORM = 1 };

static hk_status infer_random(hki_infer *c) {
    int64_t count;
    const hk_shape s = hki_attr_shape(c->attr);
    HKI_TRY(hki_dim_count(c->name, s, &count));
    if (!hki_dtype_is_real(c->attr->dtype))
        return hki_fail(HK_E_DTYPE, "%s: needs a float type, got %s", c->name,
                        hk_dtype_name(c->attr->dtype));
    c->out[0].dtype = c->attr->dtype;
    c->out[0].shape = s;
    return HK_OK;
}

// Elements 4 * block .. 4 * block + 3.
static void draw(const hki_attr *a, const hki_kernel_run *run, uint64_t block,
                 double out[4]) {
    uint32_t w[4];
    hki_random_words(run, a->stream, block, w);
    for (int i = 0; i < 4; i++)
        out[i] = a->alpha + (a->beta - a->alpha) * (w[i] * 0x1p-32);
    if (a->mode == RANDOM_UNIFORM)
        return;
    for (int i = 0; i < 4; i += 2) {
        const double u1 = (w[i] + 1.0) * 0x1p-32; // (0, 1]
        const double angle = 2.0 * M_PI * (w[i + 1] * 0x1p-32);
        const double r = sqrt(-2.0 * log(u1));
        out[i] = a->alpha + a->beta * (r * cos(angle));
        out[i + 1] = a->alpha + a->beta * (r * sin(angle));
    }
}

HKI_PORTABLE(run_random) {
    double x[4] = {0};
    for (int64_t i = 0; i < out->count; i++) {
        if (i % 4 == 0)
            draw(a, run, (uint64_t)i / 4, x);
        hki_st(out, i, x[i % 4]);
    }
    return HK_OK;
}

const hki_op hki_op_random = {
    HKI_OPERATOR_RULES(random, 0, 0, 1),
    .flags = HKI_OP_IS_RANDOM,
};

static hk_node *random_node(hk_graph *g, const hk_shape *shape, int32_t mode,
                            double alpha, double beta) {
    if (!hki_graph_ok(g))
        return NULL;
    hki_attr attr = {.mode = mode,
                     .dtype = HK_F32,
                     .alpha = alpha,
                     .beta = beta,
                     .stream = hki_graph_new_stream(g)};
    hki_attr_set_shape(&attr, *shape);
    return hki_emit(g, HKI_OP_random, &attr, NULL, 0);
}

hk_node *hk_random_normal(hk_graph *g, hk_shape shape, double mean,
                          double stddev) {
    if (!isfinite(mean) || !isfinite(stddev) || stddev < 0.0)
        return hki_graph_fail(
            g, HK_E_INVALID_ARG,
            "random_normal: mean %g or standard deviation %g is out of range",
            mean, stddev);
    return random_node(g, &shape, RANDOM_NORMAL, mean, stddev);
}

hk_node *hk_random_uniform(hk_graph *g, hk_shape shape, double low,
                           double high) {
    if (!isfinite(low) || !isfinite(high) || !(low <= high))
        return hki_graph_fail(g, HK_E_INVALID_ARG,
                              "random_uniform: %g .. %g is not a range", low,
                              high);
    return random_node(g, &shape, RANDOM_UNIFORM, low, high);
}
