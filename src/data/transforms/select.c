// select.c - some of the values, in another order, under other names.
#include "data/core/pipeline.h"

typedef struct config {
    size_t n;
    size_t from[]; // index of the input's value
} config;

static hk_status apply(const void *config_, void *scratch, hki_fn_call *c) {
    const config *const cfg = config_;
    (void)scratch;
    for (size_t k = 0; k < cfg->n; k++)
        HKI_TRY(hki_rows_copy(c->out, k, c->row, &c->in->values[cfg->from[k]]));
    return HK_OK;
}

static hk_status show(const void *config_, void *scratch, const hki_fn_call *c,
                      hk_value *out) {
    const config *const cfg = config_;
    (void)scratch;
    for (size_t k = 0; k < cfg->n; k++)
        hki_values_show(&out[k], &c->in->values[cfg->from[k]], 1);
    return HK_OK;
}

static bool moves(const void *config_, hk_isa isa, const hki_move *in,
                  hki_move *out) {
    const config *const cfg = config_;
    (void)isa;
    for (size_t k = 0; k < cfg->n; k++)
        out[k] = in[cfg->from[k]];
    return true;
}

static const hki_fn_ops fn = {
    .name = "select",
    .destroy = hki_free,
    .apply = apply,
    .show = show,
    .moves = moves,
};

static hk_status resolve(hki_dataset_desc *desc, const hk_dataset *d,
                         const hk_select *s, size_t n) {
    config *c;
    hk_value *spec;
    HKI_TRY(hk_dataset_status(d));
    if (s == NULL || n == 0 || n > d->spec.count * 64)
        return hki_fail(HK_E_INVALID_ARG,
                        "select: %zu values cannot be selected", n);
    HKI_TRY(hki_desc_config(desc, sizeof *c + n * sizeof c->from[0], &c));
    HKI_TRY(hki_desc_spec(desc, n, &spec));
    c->n = n;
    for (size_t k = 0; k < n; k++) {
        const int64_t at =
            s[k].from != NULL ? hki_spec_find(&d->spec, s[k].from) : -1;
        if (at < 0)
            return hki_fail(HK_E_NOT_FOUND, "select: there is no value \"%s\"",
                            s[k].from != NULL ? s[k].from : "(NULL)");
        c->from[k] = (size_t)at;
        spec[k] = d->spec.values[at];
        if (s[k].to != NULL)
            spec[k].name = s[k].to;
        if (s[k].role != 0)
            spec[k].role = s[k].role;
    }
    desc->key = hki_hash(HKI_HASH_INIT, c->from, n * sizeof c->from[0]);
    return HK_OK;
}

hk_dataset *hk_data_select(hk_dataset *d, const hk_select *s, size_t n) {
    hki_dataset_desc desc = {.fn = &fn, .inputs = &d, .n_inputs = 1};
    return hki_dataset_finish(&desc, resolve(&desc, d, s, n));
}
