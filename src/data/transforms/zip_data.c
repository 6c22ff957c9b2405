// zip_data.c - elements side by side: the values of several datasets, or of one
// and a counter.
//
// Over tables the result is a table, whose rows are shown, not copied. Over
// anything else elements are put together in boxes.
#include "data/core/pipeline.h"

typedef struct config {
    int64_t start; // of the counter
    bool counts;   // enumerate: the last value is a counter
} config;

// start + i, which may wrap around.
static int64_t counter_at(const hk_dataset *d, int64_t i) {
    const config *const c = d->config;
    return (int64_t)((uint64_t)c->start + (uint64_t)i);
}

// ---- over tables -----------------------------------------------------------

static hk_status show_counter(const hk_dataset *d, hki_readers *r, int64_t row,
                              hk_value *v) {
    if (r->counter == NULL || !hki_tensor_unique(r->counter))
        HKI_TRY(hki_tensor_own(&r->counter, HK_I64, &HKI_SCALAR));
    *(int64_t *)hk_tensor_data(r->counter) = counter_at(d, row);
    v->tensor = r->counter;
    return HK_OK;
}

static hk_status view(const hk_dataset *d, void *scratch, const hki_item *item,
                      hk_value *values) {
    const config *const c = d->config;
    hki_readers *const r = scratch;
    size_t at = 0;
    for (size_t i = 0; i < r->n; i++) {
        const hki_item sub = {.row = hki_table_row(d->inputs[i], item->row),
                              .stamp = item->stamp};
        const hk_element *e;
        bool skip;
        HKI_TRY(hki_loader_view(r->loader[i], &sub, &e, &skip));
        hki_values_show(&values[at], e->values, e->count);
        at += e->count;
    }
    return c->counts ? show_counter(d, r, item->row, &values[at]) : HK_OK;
}

static const hki_node_ops table_ops = {
    .name = "zip",
    .pull = hki_table_pull,
    .view = view,
    .scratch_open = hki_readers_open,
    .scratch_close = hki_readers_close,
    // The inputs are not at work; only their rows are read.
    .saves_inputs = true,
};

// ---- over streams ----------------------------------------------------------

// Copies the next element of input i to the values from *at on.
static hk_status copy_input(hki_node *n, size_t i, hki_data_rows *rows,
                            size_t *at) {
    const hki_readers *const r = n->state;
    const hk_element *e;
    hki_item item;
    bool skip = false;
    HKI_TRY(hki_node_next(n->inputs[i], &item));
    hk_status s = hki_loader_view(r->loader[i], &item, &e, &skip);
    for (size_t k = 0; s == HK_OK && k < e->count; k++, (*at)++)
        s = hki_rows_copy(rows, *at, 0, &e->values[k]);
    hki_item_free(n->inputs[i], &item);
    return s;
}

static hk_status next(hki_node *n, hki_item *out) {
    const config *const c = n->d->config;
    hki_box *box;
    HKI_TRY(hki_node_box(n, &box));
    hki_data_rows *const rows = hki_box_rows(box);
    size_t at = 0;
    hk_status s = HK_OK;
    for (size_t i = 0; i < n->d->n_inputs && s == HK_OK; i++)
        s = copy_input(n, i, rows, &at);
    HKI_TRY_OR(s, hki_box_release(box));
    if (c->counts)
        *(int64_t *)hki_rows_at(rows, at, 0) = counter_at(n->d, n->count);
    out->box = box;
    return HK_OK;
}

static const hki_node_ops stream_ops = {
    .name = "zip",
    .open = hki_readers_attach,
    .close = hki_readers_detach,
    .next = next,
};

// ---- making ----------------------------------------------------------------

// The shorter of two counts; unknown beats known, the end beats no end.
static int64_t shorter(int64_t a, int64_t b) {
    if (a == 0 || b == 0)
        return 0;
    if (a == -1 || b == -1)
        return -1;
    if (a == -2)
        return b;
    return b == -2 || a < b ? a : b;
}

static hk_status configure(hki_dataset_desc *desc, const config *c,
                           const hk_value *counter) {
    size_t total = counter != NULL, at = 0;
    bool tables = true;
    hk_value *spec;
    desc->count = -2;
    for (size_t i = 0; i < desc->n_inputs; i++) {
        const hk_dataset *const d = desc->inputs[i];
        HKI_TRY(hk_dataset_status(d));
        total += d->spec.count;
        tables = tables && hki_is_table(d);
        desc->count = shorter(desc->count, d->count);
    }
    HKI_TRY(hki_desc_spec(desc, total, &spec));
    for (size_t i = 0; i < desc->n_inputs; i++) {
        const hk_element *const from = &desc->inputs[i]->spec;
        memcpy(&spec[at], from->values, from->count * sizeof *spec);
        at += from->count;
    }
    if (counter != NULL)
        spec[at] = *counter;
    desc->ops = tables ? &table_ops : &stream_ops;
    desc->key = hki_key("zip", 2, (int64_t[]){c->start, c->counts});
    desc->flags = tables ? HKI_DATA_ROWS | HKI_DATA_TABLE : 0;
    return HK_OK;
}

// ds: taken, and written to. counter: NULL, or the value to add.
static hk_dataset *make(hk_dataset **ds, size_t n, config c,
                        const hk_value *counter) {
    for (size_t i = 0; i < n; i++)
        ds[i] = hki_data_solid(ds[i]);
    hki_dataset_desc desc = {
        .config = &c, .config_size = sizeof c, .inputs = ds, .n_inputs = n};
    return hki_dataset_finish(&desc, configure(&desc, &c, counter));
}

hk_dataset *hk_data_zip(hk_dataset *const *ds, size_t n) {
    hk_dataset **copy = NULL;
    if (ds == NULL || n == 0)
        return hki_dataset_fail(NULL, 0,
                                hki_fail(HK_E_INVALID_ARG, "zip: no datasets"));
    const hk_status s = hki_alloc_array(n, sizeof *copy, &copy);
    if (s != HK_OK)
        return hki_dataset_fail(ds, n, s);
    memcpy(copy, ds, n * sizeof *copy);
    hk_dataset *const d = make(copy, n, (config){0}, NULL);
    hki_free(copy);
    return d;
}

hk_dataset *hki_zip_counter(hk_dataset *d, const hk_value *counter,
                            int64_t start) {
    return make(&d, 1, (config){.start = start, .counts = true}, counter);
}
