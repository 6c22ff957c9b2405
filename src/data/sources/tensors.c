// tensors.c - sources that are tensors: whole, or cut along axis 0.
#include "data/core/pipeline.h"

typedef struct config {
    size_t n;
    bool whole;         // one element: the tensors themselves
    hk_tensor **tensor; // row-major, retained
    hk_tensor **index;  // whole, sparse or ragged
    int64_t *row_items; // elements of a row
    size_t *row_bytes;  // 0: strings
    // Of a table that is filled as it is read.
    hki_backing backing;
    hki_mutex lock;     // while a unit is loaded
    atomic_bool *there; // units
    int64_t rows;
} config;

// One view per value, moved from row to row. A view that somebody has kept is
// left to them.
typedef struct scratch {
    const config *c;
    hk_tensor **view;
} scratch;

static void config_free(void *p) {
    config *const c = p;
    for (size_t k = 0; k < c->n; k++) {
        if (c->tensor != NULL)
            hk_tensor_release(c->tensor[k]);
        if (c->index != NULL)
            hk_tensor_release(c->index[k]);
    }
    hki_free(c->tensor);
    hki_free(c->index);
    hki_free(c->row_items);
    hki_free(c->row_bytes);
    if (c->backing.destroy != NULL) {
        c->backing.destroy(c->backing.user);
        hki_mutex_deinit(&c->lock);
    }
    hki_free(c->there);
    hki_free(c);
}

// ---- rows that come when they are asked for --------------------------------

static hk_status load_unit(config *c, int64_t unit) {
    const int64_t begin = unit * c->backing.unit;
    HKI_LOCKED(&c->lock);
    if (!atomic_load_explicit(&c->there[unit], memory_order_relaxed))
        HKI_TRY(c->backing.load(c->backing.user, begin,
                                HKI_MIN(c->backing.unit, c->rows - begin)));
    atomic_store_explicit(&c->there[unit], true, memory_order_release);
    return HK_OK;
}

static hk_status ready(const hk_dataset *d, const hki_item *items, int64_t n) {
    config *const c = d->config;
    for (int64_t i = 0; i < n; i++) {
        const int64_t unit = items[i].row / c->backing.unit;
        if (!atomic_load_explicit(&c->there[unit], memory_order_acquire))
            HKI_TRY(load_unit(c, unit));
    }
    return HK_OK;
}

static int64_t backed_units(const hk_dataset *d, uint64_t *cuts) {
    (void)cuts; // the number of rows, which everybody knows, tells all
    const config *const c = d->config;
    return (c->rows + c->backing.unit - 1) / c->backing.unit;
}

static int64_t backed_unit_of(const hk_dataset *d, int64_t number) {
    const config *const c = d->config;
    return HKI_MIN(number, c->rows - 1) / c->backing.unit;
}

static hk_status backed_seek(hki_node *n, int64_t unit, int64_t *first) {
    const config *const c = n->d->config;
    int64_t *const end = n->state;
    *first = unit * c->backing.unit;
    *end = HKI_MIN(*first + c->backing.unit, c->rows);
    return HK_OK;
}

static hk_status backed_pull(hki_node *n, hki_item *items, int64_t want,
                             int64_t *got) {
    const int64_t *const end = n->state;
    if (n->lent == NULL)
        return hki_table_pull(n, items, want, got);
    *got = HKI_MIN(want, *end - n->number);
    for (int64_t i = 0; i < *got; i++, n->number++)
        items[i] =
            (hki_item){.row = n->number, .stamp = hki_node_stamp(n, n->number)};
    return *got > 0 ? HK_OK : HK_E_END;
}

// ---- rows ------------------------------------------------------------------

static void scratch_close(void *p) {
    scratch *const s = p;
    for (size_t k = 0; s->view != NULL && k < s->c->n; k++)
        hk_tensor_release(s->view[k]);
    hki_free(s->view);
    hki_free(s);
}

static hk_status scratch_open(const hk_dataset *d, hki_data_run *run,
                              void **out) {
    scratch *s;
    (void)run;
    HKI_TRY(hki_zalloc_array(1, sizeof *s, &s));
    s->c = d->config;
    HKI_TRY_OR(hki_zalloc_array(s->c->n, sizeof *s->view, &s->view),
               scratch_close(s));
    *out = s;
    return HK_OK;
}

// A view of the first row, in the shape of the spec.
static hk_status make_view(const hk_dataset *d, size_t k, hk_tensor **out) {
    const config *const c = d->config;
    hk_tensor *row = NULL, *view = NULL;
    HKI_TRY(hk_tensor_slice(c->tensor[k], 0, 0, 1, &row));
    const hk_status s = hk_tensor_reshape(row, d->spec.values[k].shape, &view);
    hk_tensor_release(row);
    HKI_TRY(s);
    hk_tensor_release(*out);
    *out = view;
    return HK_OK;
}

static hk_status view(const hk_dataset *d, void *p, const hki_item *item,
                      hk_value *values) {
    const config *const c = d->config;
    scratch *const s = p;
    if (c->there != NULL)
        HKI_TRY(ready(d, item, 1));
    for (size_t k = 0; k < c->n; k++) {
        if (c->whole) {
            values[k].tensor = c->tensor[k];
            values[k].index = c->index[k];
            continue;
        }
        hk_tensor **const v = &s->view[k];
        if (*v == NULL || !hki_tensor_sole(*v))
            HKI_TRY(make_view(d, k, v));
        if (c->row_items[k] > 0)
            hki_tensor_seek(*v, hki_tensor_offset(c->tensor[k]) +
                                    item->row * c->row_items[k]);
        values[k].tensor = *v;
    }
    return HK_OK;
}

static const void *column(const hk_dataset *d, size_t k, size_t *row_bytes) {
    const config *const c = d->config;
    *row_bytes = c->row_bytes[k];
    return c->row_bytes[k] > 0 ? hk_tensor_data(c->tensor[k]) : NULL;
}

static const hki_node_ops tensors_ops = {
    .name = "tensors",
    .destroy = config_free,
    .pull = hki_table_pull,
    .view = view,
    .scratch_open = scratch_open,
    .scratch_close = scratch_close,
};

static const hki_node_ops slices_ops = {
    .name = "slices",
    .destroy = config_free,
    .pull = hki_table_pull,
    .view = view,
    .column = column,
    .scratch_open = scratch_open,
    .scratch_close = scratch_close,
};

static const hki_node_ops backed_ops = {
    .name = "slices",
    .destroy = config_free,
    .state_size = sizeof(int64_t),
    .pull = backed_pull,
    .view = view,
    .column = column,
    .ready = ready,
    .scratch_open = scratch_open,
    .scratch_close = scratch_close,
    .units = backed_units,
    .seek = backed_seek,
    .unit_of = backed_unit_of,
};

// ---- making ----------------------------------------------------------------

// The spec of one value: what the caller gave, completed by the tensor.
static hk_status describe(const char *op, const hk_value *in, bool whole,
                          hk_value *out) {
    *out = *in;
    if (in->name == NULL || in->tensor == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: a value has no %s", op,
                        in->name == NULL ? "name" : "tensor");
    out->dtype = hk_tensor_dtype(in->tensor);
    out->role = in->role == 0 ? HK_FEATURE : in->role;
    out->form = in->form == 0 ? HK_DENSE_FORM : in->form;
    if (out->form != HK_DENSE_FORM) {
        if (!whole || in->index == NULL)
            return hki_fail(HK_E_INVALID_ARG,
                            "%s: value \"%s\": sparse and ragged values need "
                            "whole tensors with an index",
                            op, in->name);
        return HK_OK;
    }
    const hk_shape shape = hk_tensor_shape(in->tensor);
    if (!whole && shape.rank < 1)
        return hki_fail(HK_E_SHAPE,
                        "%s: value \"%s\" is a scalar; its first dimension has "
                        "to be the rows",
                        op, in->name);
    out->shape = whole ? shape : hk_shape_make(shape.rank - 1, &shape.dim[1]);
    return HK_OK;
}

// Fills c and spec; *rows: the common first dimension.
static hk_status take_values(const char *op, const hk_value *values, config *c,
                             hk_value *spec, int64_t *rows) {
    for (size_t k = 0; k < c->n; k++) {
        HKI_TRY(describe(op, &values[k], c->whole, &spec[k]));
        HKI_TRY(hki_tensor_flat(values[k].tensor, &c->tensor[k]));
        if (spec[k].form != HK_DENSE_FORM)
            HKI_TRY(hki_tensor_flat(values[k].index, &c->index[k]));
        if (c->whole)
            continue;
        const int64_t first = hk_tensor_shape(c->tensor[k]).dim[0];
        if (k > 0 && first != *rows)
            return hki_fail(
                HK_E_SHAPE, "%s: \"%s\" has %lld rows, but \"%s\" has %lld", op,
                spec[0].name, (long long)*rows, spec[k].name, (long long)first);
        *rows = first;
        HKI_TRY(hk_shape_count(spec[k].shape, &c->row_items[k]));
        c->row_bytes[k] =
            (size_t)c->row_items[k] * hk_dtype_size(spec[k].dtype);
    }
    return HK_OK;
}

static hk_status configure(hki_dataset_desc *desc, config *c, const char *op,
                           const hk_value *values, size_t n) {
    hk_value *spec;
    int64_t rows = 1;
    if (values == NULL || n == 0)
        return hki_fail(HK_E_INVALID_ARG, "%s: there are no values", op);
    c->n = n;
    HKI_TRY(hki_zalloc_array(n, sizeof *c->tensor, &c->tensor));
    HKI_TRY(hki_zalloc_array(n, sizeof *c->index, &c->index));
    HKI_TRY(hki_zalloc_array(n, sizeof *c->row_items, &c->row_items));
    HKI_TRY(hki_zalloc_array(n, sizeof *c->row_bytes, &c->row_bytes));
    HKI_TRY(hki_desc_spec(desc, n, &spec));
    HKI_TRY(take_values(op, values, c, spec, &rows));
    if (c->backing.unit > 0)
        HKI_TRY(hki_zalloc_array((size_t)(rows / c->backing.unit + 1),
                                 sizeof *c->there, &c->there));
    desc->count = c->rows = rows;
    desc->key = hki_key(op, 1, &rows);
    return HK_OK;
}

// The backing is the config's from the beginning.
static hk_dataset *make(const char *op, const hki_node_ops *ops,
                        const hk_value *values, size_t n,
                        const hki_backing *b) {
    config *c;
    hki_dataset_desc desc = {.ops = ops,
                             .flags = HKI_DATA_ROWS | HKI_DATA_TABLE};
    const hk_status s = hki_desc_config(&desc, sizeof *c, &c);
    if (s != HK_OK && b != NULL)
        b->destroy(b->user);
    if (s != HK_OK)
        return hki_dataset_fail(NULL, 0, s);
    c->whole = ops == &tensors_ops;
    if (b != NULL) {
        c->backing = *b;
        hki_mutex_init(&c->lock);
    }
    return hki_dataset_finish(&desc, configure(&desc, c, op, values, n));
}

hk_dataset *hk_data_tensors(const hk_value *values, size_t n) {
    return make("tensors", &tensors_ops, values, n, NULL);
}

hk_dataset *hk_data_slices(const hk_value *values, size_t n) {
    return make("slices", &slices_ops, values, n, NULL);
}

hk_dataset *hki_data_backed(const hk_value *values, size_t n,
                            const hki_backing *b) {
    return make("slices", &backed_ops, values, n, b);
}
