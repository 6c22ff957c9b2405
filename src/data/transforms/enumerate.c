// enumerate.c - elements with their numbers.
//
// Right behind a source, with nothing but functions between them, the number of
// an element is known at the source and goes with it wherever it is read, in
// whatever order. Behind anything else it is counted (zip_data.c).
#include "data/core/pipeline.h"

typedef struct config {
    int64_t start;
    size_t values; // of the input
} config;

static hk_status scratch_open(const void *config_, void **out) {
    hk_tensor **t;
    (void)config_;
    HKI_TRY(hki_zalloc_array(1, sizeof *t, &t));
    *out = t;
    return HK_OK;
}

static void scratch_close(void *scratch) {
    hk_tensor_release(*(hk_tensor **)scratch);
    hki_free(scratch);
}

// The counter may wrap around.
static int64_t number_of(const config *cfg, const hki_fn_call *c) {
    return (int64_t)((uint64_t)cfg->start + (uint64_t)c->number);
}

static hk_status apply(const void *config_, void *scratch, hki_fn_call *c) {
    const config *const cfg = config_;
    const hk_shape scalar = hk_shape_make(0, NULL);
    const int64_t number = number_of(cfg, c);
    void *at;
    (void)scratch;
    for (size_t k = 0; k < cfg->values; k++)
        HKI_TRY(hki_rows_copy(c->out, k, c->row, &c->in->values[k]));
    HKI_TRY(hki_rows_tensor(c->out, cfg->values, c->row, &scalar, &at));
    memcpy(at, &number, sizeof number);
    return HK_OK;
}

static hk_status show(const void *config_, void *scratch, const hki_fn_call *c,
                      hk_value *out) {
    const config *const cfg = config_;
    hk_tensor **const counter = scratch;
    HKI_TRY(hki_tensor_own(counter, HK_I64, &HKI_SCALAR));
    *(int64_t *)hk_tensor_data(*counter) = number_of(cfg, c);
    hki_values_show(out, c->in->values, cfg->values);
    out[cfg->values].tensor = *counter;
    return HK_OK;
}

static bool moves(const void *config_, hk_isa isa, const hki_move *in,
                  hki_move *out) {
    const config *const cfg = config_;
    (void)isa;
    memcpy(out, in, cfg->values * sizeof *out);
    out[cfg->values] = (hki_move){.kind = HKI_MOVE_NUMBER,
                                  .start = cfg->start,
                                  .row_bytes = sizeof(int64_t),
                                  .items = 1,
                                  .dtype = HK_I64};
    return true;
}

static const hki_fn_ops fn = {
    .name = "enumerate",
    .destroy = hki_free,
    .scratch_open = scratch_open,
    .scratch_close = scratch_close,
    .apply = apply,
    .show = show,
    .moves = moves,
};

// Between d and the source that makes its elements are functions alone.
static bool is_straight(const hk_dataset *d) {
    while (d->flags & HKI_DATA_FN)
        d = d->inputs[0];
    return !(d->flags & HKI_DATA_PASSES);
}

static hk_status number(hki_dataset_desc *desc, const hk_dataset *d,
                        const hk_value *counter, int64_t start) {
    const size_t n = d->spec.count;
    config *c;
    hk_value *spec;
    HKI_TRY(hki_desc_config(desc, sizeof *c, &c));
    HKI_TRY(hki_desc_spec(desc, n + 1, &spec));
    *c = (config){.start = start, .values = n};
    memcpy(spec, d->spec.values, n * sizeof *spec);
    spec[n] = *counter;
    desc->key = hki_key("enumerate", 1, &start);
    return HK_OK;
}

hk_dataset *hk_data_enumerate(hk_dataset *d, const char *name, int64_t start) {
    const hk_value counter = {.name = name,
                              .role = HK_FEATURE,
                              .form = HK_DENSE_FORM,
                              .dtype = HK_I64};
    d = hki_data_solid(d);
    if (!hki_dataset_good(d) || !is_straight(d))
        return hki_zip_counter(d, &counter, start);
    hki_dataset_desc desc = {.fn = &fn, .inputs = &d, .n_inputs = 1};
    return hki_dataset_finish(&desc, number(&desc, d, &counter, start));
}
