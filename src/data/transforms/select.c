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
    for (size_t k = 0; k < cfg->n; k++) {
        const hk_value *const from = &c->in->values[cfg->from[k]];
        out[k].tensor = from->tensor;
        out[k].index = from->index;
        out[k].shape = from->shape;
    }
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

static hk_status resolve(const hk_dataset *d, const hk_select *s, size_t n,
                         config *c, hk_value *spec) {
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
    return HK_OK;
}

hk_dataset *hk_data_select(hk_dataset *d, const hk_select *s, size_t n) {
    config *c = NULL;
    hk_value *spec = NULL;
    hk_status e = hk_dataset_status(d);
    if (e == HK_OK && (s == NULL || n == 0 || n > d->spec.count * 64))
        e = hki_fail(HK_E_INVALID_ARG, "select: %zu values", n);
    if (e == HK_OK)
        e = hki_zalloc_array(sizeof *c + n * sizeof c->from[0], 1, &c);
    if (e == HK_OK)
        e = hki_zalloc_array(n, sizeof *spec, &spec);
    if (e == HK_OK)
        e = resolve(d, s, n, c, spec);
    if (e != HK_OK) {
        d = hki_dataset_fail(&d, 1, e);
        hki_free(c);
    } else {
        const uint64_t key =
            hki_hash(HKI_HASH_INIT, c->from, n * sizeof c->from[0]);
        d = hki_data_fn(d, &fn, c, spec, n, key, 1, 0);
    }
    hki_free(spec);
    return d;
}
