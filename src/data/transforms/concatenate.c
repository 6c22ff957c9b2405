// concatenate.c - one dataset after the other.
//
// Over tables the result is a table. Over streams without functions the boxes
// of the inputs go through; otherwise elements are put in boxes of their own.
#include "data/core/pipeline.h"

// ---- over tables -----------------------------------------------------------

static hk_status view(const hk_dataset *d, void *scratch, const hki_item *item,
                      hk_value *values) {
    hki_readers *const r = scratch;
    const int64_t first = d->inputs[0]->count;
    const int side = item->row >= first;
    const int64_t row = item->row - (side ? first : 0);
    const hki_item sub = {.row = hki_table_row(d->inputs[side], row),
                          .stamp = item->stamp};
    const hk_element *e;
    bool skip;
    HKI_TRY(hki_loader_view(r->loader[side], &sub, &e, &skip));
    hki_values_show(values, e->values, e->count);
    return HK_OK;
}

static const hki_node_ops table_ops = {
    .name = "concatenate",
    .pull = hki_table_pull,
    .view = view,
    .scratch_open = hki_readers_open,
    .scratch_close = hki_readers_close,
    .saves_inputs = true, // only their rows are read
};

// ---- over streams ----------------------------------------------------------

static hk_status start(hki_node *n) {
    hki_readers *const r = n->state;
    r->side = 0;
    return hki_node_start(n->inputs[0]);
}

// An item of the input as one of this node's.
static hk_status take_over(hki_node *n, hki_node *input, hki_item *item) {
    const hki_readers *const r = n->state;
    hki_box *box = NULL;
    bool skip = false;
    if (hki_plain_items(input))
        return HK_OK;
    const hk_status s = hki_node_load(n, r->loader[r->side], item, &box, &skip);
    hki_item_free(input, item);
    HKI_TRY(s);
    item->box = box;
    return HK_OK;
}

static hk_status next(hki_node *n, hki_item *out) {
    hki_readers *const r = n->state;
    hk_status s = hki_node_next(n->inputs[r->side], out);
    if (s == HK_E_END && r->side == 0) {
        r->side = 1;
        HKI_TRY(hki_node_start(n->inputs[1]));
        s = hki_node_next(n->inputs[1], out);
    }
    HKI_TRY(s);
    return take_over(n, n->inputs[r->side], out);
}

static void save(hki_node *n, hki_saver *w) {
    const hki_readers *const r = n->state;
    hki_save_i64(w, r->side);
}

static hk_status restore(hki_node *n, hki_restorer *r) {
    hki_readers *const s = n->state;
    s->side = (int)hki_restore_i64(r, "the index of the input", 0, 1);
    return r->status;
}

static const hki_node_ops stream_ops = {
    .name = "concatenate",
    .open = hki_readers_attach,
    .close = hki_readers_detach,
    .start = start,
    .next = next,
    .save = save,
    .restore = restore,
};

// ---- making ----------------------------------------------------------------

// Where the shapes differ the dimension is unknown.
static void merge(const hk_element *a, const hk_element *b, hk_value *out) {
    memcpy(out, a->values, a->count * sizeof *out);
    for (size_t k = 0; k < a->count; k++)
        for (int i = 0; i < out[k].shape.rank; i++)
            if (out[k].shape.dim[i] != b->values[k].shape.dim[i])
                out[k].shape.dim[i] = -1;
}

static hk_status match(const hk_element *a, const hk_element *b) {
    if (a->count != b->count)
        return hki_fail(HK_E_INVALID_ARG,
                        "concatenate: the data sets have %zu and %zu values",
                        a->count, b->count);
    for (size_t k = 0; k < a->count; k++) {
        const hk_value *const x = &a->values[k], *const y = &b->values[k];
        if (strcmp(x->name, y->name) != 0)
            return hki_fail(HK_E_INVALID_ARG,
                            "concatenate: value %zu is \"%s\" in one data set "
                            "and \"%s\" in the other",
                            k, x->name, y->name);
        if (x->dtype != y->dtype || x->form != y->form)
            return hki_fail(HK_E_DTYPE,
                            "concatenate: value \"%s\" is %s in one data set "
                            "and %s in the other",
                            x->name, hk_dtype_name(x->dtype),
                            hk_dtype_name(y->dtype));
        if (x->shape.rank != y->shape.rank)
            return hki_fail(HK_E_SHAPE,
                            "concatenate: value \"%s\" has %d dimensions in "
                            "one data set and %d in the other",
                            x->name, x->shape.rank, y->shape.rank);
    }
    return HK_OK;
}

static int64_t sum(int64_t a, int64_t b) {
    int64_t total;
    if (a == -2 || b == -2)
        return -2;
    if (a == -1 || b == -1)
        return -1;
    return __builtin_add_overflow(a, b, &total) ? -2 : total;
}

static hk_status configure(hki_dataset_desc *desc, const hk_dataset *a,
                           const hk_dataset *b) {
    hk_value *spec;
    HKI_TRY(hk_dataset_status(a));
    HKI_TRY(hk_dataset_status(b));
    HKI_TRY(match(&a->spec, &b->spec));
    HKI_TRY(hki_desc_spec(desc, a->spec.count, &spec));
    merge(&a->spec, &b->spec, spec);
    desc->count = sum(a->count, b->count);
    if (hki_is_table(a) && hki_is_table(b) && desc->count >= 0) {
        desc->ops = &table_ops;
        desc->flags = HKI_DATA_ROWS | HKI_DATA_TABLE;
    }
    return HK_OK;
}

hk_dataset *hk_data_concatenate(hk_dataset *a, hk_dataset *b) {
    hk_dataset *const both[2] = {hki_data_solid(a), hki_data_solid(b)};
    hki_dataset_desc desc = {.ops = &stream_ops, .inputs = both, .n_inputs = 2};
    return hki_dataset_finish(&desc, configure(&desc, both[0], both[1]));
}
