// node.c - datasets at work: opening a chain, passes, items, and their state.
#include "data/core/pipeline.h"
#include "codec/codec.h"

// ---- opening ---------------------------------------------------------------

hk_status hki_node_open(const hk_dataset *d, hki_data_run *run,
                        hki_node **out) {
    hki_node *n;
    hk_status s;
    HKI_TRY(hki_zalloc_array(1, sizeof *n, &n));
    n->d = d;
    n->run = run;
    n->rows = hki_rows_edge(d);
    n->blocks = (hki_dataset_base(d)->flags & HKI_DATA_BLOCKS) != 0;
    n->passes = (d->flags & (HKI_DATA_PASSES | HKI_DATA_FN)) != 0;
    if ((s = hki_zalloc_array(d->n_inputs, sizeof *n->inputs, &n->inputs)) !=
        HK_OK)
        goto fail;
    for (size_t i = 0; i < d->n_inputs; i++)
        if ((s = hki_node_open(d->inputs[i], run, &n->inputs[i])) != HK_OK)
            goto fail;
    if (d->ops->state_size > 0 &&
        (s = hki_zalloc_array(1, d->ops->state_size, &n->state)) != HK_OK)
        goto fail;
    if (d->ops->open != NULL && (s = d->ops->open(n)) != HK_OK)
        goto fail;
    *out = n;
    return HK_OK;

fail:
    hki_node_close(n);
    return s;
}

void hki_node_close(hki_node *n) {
    if (n == NULL)
        return;
    // First the node itself, whose threads use the inputs.
    if (n->d->ops->close != NULL && n->state != NULL)
        n->d->ops->close(n);
    if (n->d->ops->state_size > 0)
        hki_free(n->state);
    for (size_t i = 0; n->inputs != NULL && i < n->d->n_inputs; i++)
        hki_node_close(n->inputs[i]);
    hki_free(n->inputs);
    hki_free(n->record);
    hki_box_release(n->packed);
    hki_pool_close(n->pool);
    hki_free(n);
}

// ---- passes ----------------------------------------------------------------

hk_status hki_node_start(hki_node *n) {
    n->pass++;
    n->count = n->number = 0;
    if (n->d->ops->start != NULL)
        return n->d->ops->start(n);
    for (size_t i = 0; i < n->d->n_inputs && !n->d->ops->saves_inputs; i++)
        HKI_TRY(hki_node_start(n->inputs[i]));
    return HK_OK;
}

hk_status hki_node_next(hki_node *n, hki_item *out) {
    int64_t got;
    return hki_node_pull(n, out, 1, &got);
}

hk_status hki_node_pull(hki_node *n, hki_item *items, int64_t want,
                        int64_t *got) {
    HKI_TRY(n->lent == NULL ? hki_node_pull_own(n, items, want, got)
                            : hki_lent_pull(n, items, want, got));
    n->count += *got;
    return HK_OK;
}

hk_status hki_node_pull_own(hki_node *n, hki_item *items, int64_t want,
                            int64_t *got) {
    if (n->d->ops->pull != NULL)
        return n->d->ops->pull(n, items, want, got);
    HKI_TRY(n->d->ops->next(n, items));
    if (!n->passes)
        items->stamp = hki_node_stamp(n, n->number++);
    *got = 1;
    return HK_OK;
}

hki_node *hki_node_base(hki_node *n) {
    while (n->passes)
        n = n->inputs[0];
    return n;
}

// ---- tables ----------------------------------------------------------------

hk_status hki_table_pull(hki_node *n, hki_item *items, int64_t want,
                         int64_t *got) {
    const int64_t left = n->d->count - n->count;
    const uint64_t pass = n->pass << HKI_STAMP_PASS;
    if (left <= 0)
        return HK_E_END;
    *got = HKI_MIN(want, left);
    for (int64_t i = 0; i < *got; i++)
        items[i] = (hki_item){.row = n->count + i,
                              .stamp = pass + (uint64_t)(n->count + i)};
    return HK_OK;
}

// ---- boxes and items -------------------------------------------------------

hk_status hki_node_pool(hki_node *n) {
    return n->pool != NULL ? HK_OK : hki_pool_create(&n->d->spec, &n->pool);
}

hk_status hki_node_box(hki_node *n, hki_box **out) {
    hki_box *b;
    HKI_TRY(hki_node_pool(n));
    HKI_TRY(hki_pool_take(n->pool, &b));
    HKI_TRY_OR(hki_box_prepare(b), hki_box_release(b));
    *out = b;
    return HK_OK;
}

hk_status hki_node_bare_box(hki_node *n, hki_box **out) {
    HKI_TRY(hki_node_pool(n));
    return hki_pool_take(n->pool, out);
}

hk_status hki_node_block(hki_node *n, int64_t rows, uint64_t first,
                         hki_box **out) {
    hki_box *b;
    HKI_TRY(hki_node_bare_box(n, &b));
    HKI_TRY_OR(hki_box_block(b, rows), hki_box_release(b));
    b->first = first;
    *out = b;
    return HK_OK;
}

hk_status hki_node_load(hki_node *n, hki_loader *l, const hki_item *item,
                        hki_box **out, bool *skip) {
    hki_box *b;
    HKI_TRY(hki_node_box(n, &b));
    const hk_status s = hki_loader_row(l, item, hki_box_rows(b), 0, skip);
    if (s != HK_OK || *skip)
        hki_box_release(b);
    else
        *out = b;
    return s;
}

hk_status hki_record_item(hki_node *n, const void *bytes, size_t size,
                          hki_item *out) {
    if (n->record == NULL) {
        HKI_TRY(hki_zalloc_array(1, sizeof *n->record, &n->record));
        n->record->lent = true;
    }
    n->record->bytes = size > 0 ? bytes : (const void *)"";
    n->record->size = size;
    n->record->place.path = NULL;
    out->box = n->record;
    return HK_OK;
}

void hki_record_place(hki_node *n, const char *path, uint64_t record,
                      uint64_t offset) {
    n->record->place = (hki_row_place){path, record, offset};
}

hk_status hki_item_keep(hki_node *n, hki_item *item) {
    if (n->rows || n->blocks || !item->box->lent)
        return HK_OK;
    hki_node *const base = hki_node_base(n);
    hki_box *b;
    HKI_TRY(hki_node_bare_box(base, &b));
    HKI_TRY_OR(hki_box_keep_bytes(b, item->box->bytes, item->box->size),
               hki_box_release(b));
    b->place = item->box->place;
    item->box = b;
    return HK_OK;
}

void hki_item_free(hki_node *n, hki_item *item) {
    if (!n->rows)
        hki_box_release(item->box);
}

// ---- state -----------------------------------------------------------------

void hki_node_save(hki_node *n, hki_saver *w) {
    const hki_node_ops *const ops = n->d->ops;
    hki_save_u64(w, n->pass);
    hki_save_i64(w, n->count);
    if (ops->seek != NULL)
        hki_save_i64(w, n->number);
    if (ops->save != NULL)
        ops->save(n, w);
    if (!ops->saves_inputs)
        for (size_t i = 0; i < n->d->n_inputs; i++)
            hki_node_save(n->inputs[i], w);
}

// The node is started, as its saved self was, and put where that stood; then
// the same is done to its inputs, whatever start did to them.
hk_status hki_node_restore(hki_node *n, hki_restorer *r) {
    const hki_node_ops *const ops = n->d->ops;
    const uint64_t pass = (uint64_t)hki_restore_i64(
        r, "the pass", 0, INT64_C(1) << (63 - HKI_STAMP_PASS));
    const int64_t count =
        hki_restore_i64(r, "the number of elements", 0, INT64_MAX - 1);
    const int64_t number =
        ops->seek != NULL ? hki_restore_i64(r, "the element number", 0,
                                            (INT64_C(1) << HKI_STAMP_PASS) - 1)
                          : count;
    HKI_TRY(r->status);
    if (pass > 0)
        HKI_TRY(hki_node_start(n));
    if (n->lent != NULL && n->lent->begun && ops->seek != NULL)
        HKI_TRY(hki_lent_seek(n));
    n->pass = pass;
    n->count = count;
    n->number = number;
    if (ops->restore != NULL)
        HKI_TRY(ops->restore(n, r));
    if (!ops->saves_inputs)
        for (size_t i = 0; i < n->d->n_inputs; i++)
            HKI_TRY(hki_node_restore(n->inputs[i], r));
    return r->status;
}

// ---- items as bytes --------------------------------------------------------
//
//     rows    stamp | row
//     blocks  stamp | the row's numbers | a string after the other
//     boxes   stamp | 0 | content
//             stamp | 1 | n | n row items of the input (the recipe)

void hki_save_item(hki_saver *w, hki_node *n, const hki_item *item) {
    hki_node *const base = hki_node_base(n);
    hki_save_u64(w, item->stamp);
    if (base->rows) {
        hki_save_i64(w, item->row);
        return;
    }
    const hki_box *const b = item->box;
    if (b->n_rows > 0) {
        hki_save_block_row(w, item);
        return;
    }
    const bool recipe = b->n_recipe > 0 && base->d->ops->remake != NULL;
    hki_save_u64(w, recipe);
    if (!recipe) {
        hki_save_box(w, b);
        return;
    }
    hki_save_i64(w, b->n_recipe);
    for (int64_t i = 0; i < b->n_recipe; i++)
        hki_save_item(w, base->inputs[0], &b->recipe[i]);
}

static hk_status restore_row(hki_restorer *r, hki_node *base, int64_t *row) {
    const hk_dataset *const d = base->d;
    *row = hki_restore_i64(r, "a row number", INT64_MIN, INT64_MAX);
    HKI_TRY(r->status);
    const bool good =
        (d->flags & HKI_DATA_TABLE) != 0
            ? *row >= 0 && *row < d->count
            : d->ops->row_valid != NULL && d->ops->row_valid(base, *row);
    return good ? HK_OK : hki_restore_bad(r, "a row is missing");
}

static hk_status restore_recipe(hki_restorer *r, hki_node *base,
                                hki_item *out) {
    // An item takes 16 bytes at least.
    const int64_t n = hki_restore_i64(r, "the number of items of a recipe", 1,
                                      (r->end - r->p) / 16);
    HKI_FREED hki_item *items = NULL;
    HKI_TRY(r->status);
    if (base->d->ops->remake == NULL || !base->inputs[0]->rows)
        return hki_restore_bad(r, "an unexpected recipe");
    HKI_TRY(hki_alloc_array((size_t)n, sizeof *items, &items));
    for (int64_t i = 0; i < n; i++)
        HKI_TRY(hki_restore_item(r, base->inputs[0], &items[i]));
    return base->d->ops->remake(base, items, n, out);
}

static hk_status restore_content(hki_restorer *r, hki_node *base,
                                 hki_item *out) {
    hki_box *b;
    HKI_TRY(hki_node_bare_box(base, &b));
    HKI_TRY_OR(hki_restore_box(r, b), hki_box_release(b));
    out->box = b;
    return HK_OK;
}

#define PACKED_ROWS 64

// Restored rows share blocks, or a full shuffle would hold a block for each.
static hk_status restore_block_row(hki_restorer *r, hki_node *base,
                                   hki_item *item) {
    if (base->packed == NULL || base->packed->n_rows == PACKED_ROWS) {
        hki_box_release(base->packed);
        base->packed = NULL;
        HKI_TRY(hki_node_block(base, PACKED_ROWS, 0, &base->packed));
        base->packed->n_rows = 0;
    }
    HKI_TRY(hki_restore_block_row(r, base->packed, item->stamp));
    item->box = hki_box_retain(base->packed);
    return HK_OK;
}

hk_status hki_restore_item(hki_restorer *r, hki_node *n, hki_item *out) {
    hki_node *const base = hki_node_base(n);
    hki_item item = {.stamp = hki_restore_u64(r)};
    if (base->rows) {
        HKI_TRY(restore_row(r, base, &item.row));
    } else if (base->blocks) {
        HKI_TRY(restore_block_row(r, base, &item));
    } else {
        const bool recipe =
            hki_restore_i64(r, "the flag of a recipe", 0, 1) == 1;
        HKI_TRY(r->status);
        HKI_TRY(recipe ? restore_recipe(r, base, &item)
                       : restore_content(r, base, &item));
    }
    *out = item;
    return HK_OK;
}
