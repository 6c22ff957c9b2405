// normalize.c - (x * scale - mean) / std as float32, written into the batch.
//
// It is one fma: a = scale / std and b = -mean / std are worked out in double
// and rounded once.
#include "data/transforms/normalize.h"
#include <math.h>
#include "data/core/pipeline.h"

#define LANES 16 // the pattern of the channels is repeated this often

typedef struct config {
    size_t value;  // index of the value
    size_t values; // of an element
    size_t period;
    float *a, *b; // period each
} config;

static void config_free(void *p) {
    config *const c = p;
    hki_free(c->a);
    hki_free(c->b);
    hki_free(c);
}

static hk_status run_kernel(hki_fn_call *c, const config *cfg,
                            const hk_tensor *t) {
    const hki_affine_kernels *const k =
        HKI_ISA_PICK(hki_run_isa(c->run), hki_affine_table);
    const hk_shape shape = hk_tensor_shape(t);
    void *to;
    HKI_TRY(hki_rows_tensor(c->out, cfg->value, c->row, &shape, &to));
    k->of[hk_tensor_dtype(t)](to, hk_tensor_data(t), (size_t)hk_tensor_count(t),
                              cfg->a, cfg->b, cfg->period);
    return HK_OK;
}

static hk_status apply(const void *config_, void *scratch, hki_fn_call *c) {
    const config *const cfg = config_;
    (void)scratch;
    for (size_t k = 0; k < c->in->count; k++)
        if (k != cfg->value)
            HKI_TRY(hki_rows_copy(c->out, k, c->row, &c->in->values[k]));
    HKI_SCOPED(hk_tensor_release_at) hk_tensor *flat = NULL;
    HKI_TRY(hki_tensor_flat(c->in->values[cfg->value].tensor, &flat));
    return run_kernel(c, cfg, flat);
}

static bool moves(const void *config_, hk_isa isa, const hki_move *in,
                  hki_move *out) {
    const config *const cfg = config_;
    hki_move *const m = &out[cfg->value];
    memcpy(out, in, cfg->values * sizeof *out);
    if (m->kernel != NULL || m->kind == HKI_MOVE_NUMBER)
        return false; // twice on one value, or none in memory
    m->kernel = HKI_ISA_PICK(isa, hki_affine_table)->of[m->dtype];
    m->dtype = HK_F32;
    m->a = cfg->a;
    m->b = cfg->b;
    m->period = cfg->period;
    return true;
}

static const hki_fn_ops fn = {
    .name = "normalize",
    .destroy = config_free,
    .apply = apply,
    .moves = moves,
};

// ---- making ----------------------------------------------------------------

static hk_status check_factors(double scale, const float *mean,
                               const float *std, size_t channels) {
    if (!isfinite(scale) || channels < 1)
        return hki_fail(HK_E_INVALID_ARG,
                        "normalize: scale %g or %zu channels are out of range",
                        scale, channels);
    for (size_t i = 0; i < channels; i++) {
        const double m = mean != NULL ? (double)mean[i] : 0.0;
        const double s = std != NULL ? (double)std[i] : 1.0;
        if (!isfinite(m) || !isfinite(s) || s == 0.0)
            return hki_fail(
                HK_E_INVALID_ARG,
                "normalize: channel %zu: mean %g or std %g is out of range", i,
                m, s);
    }
    return HK_OK;
}

static hk_status check_value(const hk_dataset *d, const char *name,
                             size_t channels, int64_t *at) {
    const int64_t k = name != NULL ? hki_spec_find(&d->spec, name) : -1;
    if (k < 0)
        return hki_fail(HK_E_NOT_FOUND, "normalize: there is no value \"%s\"",
                        name != NULL ? name : "(NULL)");
    const hk_value *const v = &d->spec.values[k];
    if (v->dtype == HK_STRING || v->form != HK_DENSE_FORM)
        return hki_fail(HK_E_DTYPE,
                        "normalize: value \"%s\" does not have dense numbers",
                        name);
    const int64_t last =
        v->shape.rank > 0 ? v->shape.dim[v->shape.rank - 1] : 1;
    if (channels > 1 && last != (int64_t)channels)
        return hki_fail(HK_E_SHAPE,
                        "normalize: value \"%s\" has %lld channels, but mean "
                        "and std have %zu",
                        name, (long long)last, channels);
    *at = k;
    return HK_OK;
}

static hk_status configure(hki_dataset_desc *desc, const hk_dataset *d,
                           const char *name, double scale, const float *mean,
                           const float *std, size_t channels) {
    config *c;
    hk_value *spec;
    int64_t at = 0;
    HKI_TRY(hk_dataset_status(d));
    HKI_TRY(check_factors(scale, mean, std, channels));
    HKI_TRY(check_value(d, name, channels, &at));
    HKI_TRY(hki_desc_config(desc, sizeof *c, &c));
    HKI_TRY(hki_desc_spec(desc, d->spec.count, &spec));
    c->value = (size_t)at;
    c->values = d->spec.count;
    c->period = channels == 1 ? 1 : channels * LANES;
    HKI_TRY(hki_alloc_array(c->period, sizeof *c->a, &c->a));
    HKI_TRY(hki_alloc_array(c->period, sizeof *c->b, &c->b));
    HKI_ASSERT(channels > 0); // check_factors
    for (size_t i = 0; i < c->period; i++) {
        const double m = mean != NULL ? (double)mean[i % channels] : 0.0;
        const double by = std != NULL ? (double)std[i % channels] : 1.0;
        c->a[i] = (float)(scale / by);
        c->b[i] = (float)(-m / by);
    }
    memcpy(spec, d->spec.values, d->spec.count * sizeof *spec);
    spec[at].dtype = HK_F32;
    desc->key = hki_key("normalize", 1, &at);
    desc->key = hki_hash(desc->key, c->a, c->period * sizeof *c->a);
    desc->key = hki_hash(desc->key, c->b, c->period * sizeof *c->b);
    return HK_OK;
}

hk_dataset *hk_data_normalize(hk_dataset *d, const char *name, double scale,
                              const float *mean, const float *std,
                              size_t channels) {
    hki_dataset_desc desc = {.fn = &fn, .inputs = &d, .n_inputs = 1};
    return hki_dataset_finish(
        &desc, configure(&desc, d, name, scale, mean, std, channels));
}
