// dates.c - columns of dates become columns of numbers.
#include <math.h>
#include "data/core/pipeline.h"
#include "hooke/feature.h"

typedef struct source {
    const char *name; // of a date; NULL: a value that stays
    hk_date_order order;
} source;

typedef struct config {
    hki_arena arena;
    source *from; // one for each value of the input
    size_t n;
} config;

static void destroy(void *config_) {
    config *const c = config_;
    hki_arena_deinit(&c->arena);
    hki_free(c);
}

// ---- one element ------------------------------------------------------------

static const char *example_of(hk_date_order order) {
    return order == HK_DATE_YMD   ? "2024-01-31"
           : order == HK_DATE_MDY ? "1/31/2024"
                                  : "31/1/2024";
}

static hk_status read_parts(const source *from, const hk_value *v,
                            float *parts) {
    const void *text;
    size_t size;
    HKI_TRY(hk_tensor_get_string(v->tensor, 0, &text, &size));
    for (int p = 0; p < HK_DATE_PARTS; p++)
        parts[p] = NAN;
    if (size == 0 || hk_date_parse(text, size, from->order, parts))
        return HK_OK;
    return hki_fail(HK_E_DATA, "column \"%s\": '%.*s' is not a date like %s",
                    from->name, (int)HKI_MIN(size, 40), (const char *)text,
                    example_of(from->order));
}

static hk_status apply(const void *config_, void *scratch, hki_fn_call *call) {
    const config *const c = config_;
    (void)scratch;
    for (size_t i = 0, k = 0; i < c->n; i++) {
        const hk_value *const v = &call->in->values[i];
        float parts[HK_DATE_PARTS];
        void *to;
        if (c->from[i].name == NULL) {
            HKI_TRY(hki_rows_copy(call->out, k++, call->row, v));
            continue;
        }
        HKI_TRY(read_parts(&c->from[i], v, parts));
        for (int p = 0; p < HK_DATE_PARTS; p++) {
            HKI_TRY(hki_rows_tensor(call->out, k++, call->row, &v->shape, &to));
            memcpy(to, &parts[p], sizeof parts[p]);
        }
    }
    return HK_OK;
}

static const hki_fn_ops fn = {
    .name = "dates", .destroy = destroy, .apply = apply};

// ---- the dataset ------------------------------------------------------------

static hk_status find_dates(const hk_dataset *d, const hk_date_column *dates,
                            size_t n, config *c) {
    for (size_t k = 0; k < n; k++) {
        const char *const name = dates[k].name;
        const int64_t at = name != NULL ? hki_spec_find(&d->spec, name) : -1;
        if (at < 0)
            return hki_fail(HK_E_NOT_FOUND, "dates: there is no value \"%s\"",
                            name != NULL ? name : "(NULL)");
        const hk_value *const v = &d->spec.values[at];
        if (v->dtype != HK_STRING || v->form != HK_DENSE_FORM ||
            v->shape.rank != 0)
            return hki_fail(HK_E_INVALID_ARG,
                            "dates: \"%s\" is not one string per example",
                            name);
        if ((unsigned)dates[k].order >= HK_DATE_ORDERS)
            return hki_fail(HK_E_INVALID_ARG,
                            "dates: \"%s\" has the unknown order %d", name,
                            (int)dates[k].order);
        c->from[at].order = dates[k].order;
        HKI_TRY(hki_arena_strdup(&c->arena, name, &c->from[at].name));
    }
    return HK_OK;
}

// Names live in the config's arena.
static hk_status describe(const hk_dataset *d, config *c, hk_value *spec,
                          size_t *n) {
    for (size_t i = 0; i < c->n; i++) {
        const hk_value *const v = &d->spec.values[i];
        if (c->from[i].name == NULL) {
            spec[(*n)++] = *v;
            continue;
        }
        for (int p = 0; p < HK_DATE_PARTS; p++) {
            hk_value *const part = &spec[(*n)++];
            *part = (hk_value){
                .role = v->role, .form = HK_DENSE_FORM, .dtype = HK_F32};
            HKI_TRY(hki_arena_printf(&c->arena, &part->name, "%s.%s", v->name,
                                     hk_date_part(p)));
        }
    }
    return HK_OK;
}

static uint64_t key_of(const config *c) {
    uint64_t key = HKI_HASH_INIT;
    for (size_t i = 0; i < c->n; i++) {
        const int32_t order = c->from[i].name ? (int32_t)c->from[i].order : -1;
        key = hki_hash(key, &order, sizeof order);
    }
    return key;
}

static hk_status configure(hki_dataset_desc *desc, const hk_dataset *d,
                           const hk_date_column *dates, size_t n) {
    config *c;
    hk_value *spec;
    HKI_TRY(hk_dataset_status(d));
    if (dates == NULL)
        return hki_fail(HK_E_INVALID_ARG, "dates: NULL argument");
    HKI_TRY(hki_desc_config(desc, sizeof *c, &c));
    c->n = d->spec.count;
    HKI_TRY(hki_arena_alloc(&c->arena, c->n, sizeof *c->from, &c->from));
    HKI_TRY(hki_desc_spec(desc, c->n * HK_DATE_PARTS, &spec));
    HKI_TRY(find_dates(d, dates, n, c));
    desc->n_spec = 0;
    HKI_TRY(describe(d, c, spec, &desc->n_spec));
    desc->key = key_of(c);
    return HK_OK;
}

hk_dataset *hk_data_dates(hk_dataset *d, const hk_date_column *dates,
                          size_t n) {
    hki_dataset_desc desc = {.fn = &fn, .inputs = &d, .n_inputs = 1};
    if (n == 0 && hki_dataset_good(d))
        return d;
    return hki_dataset_finish(&desc, configure(&desc, d, dates, n));
}
