// loader.c - reading items: the base shows an element, the functions of the
// chain work on it one after the other, the last one writes where the consumer
// wants it.
#include "data/core/pipeline.h"

typedef struct step {
    const hk_dataset *d; // HKI_DATA_FN
    void *scratch;
    hki_pool *pool;
    hki_box *box;     // its output when another step or a view follows
    hk_element shown; // of a function that shows
    hk_value *values;
} step;

struct hki_loader {
    hki_data_run *run;
    const hk_dataset *base;
    void *scratch; // of the base's view
    hk_element shown;
    hk_value *values; // what the base shows
    hki_pool *pool;   // of a base of blocks
    hki_box *row;     // an element of it
    step *steps;      // from the base up
    size_t n_steps;
    // A record as an element: lent for functions, copied for everybody else.
    hki_string cell;
    hk_tensor *lent;
    hk_tensor *copy;
    hki_move *moves; // one per value of the result; NULL: not by moves alone
    size_t n_moves;
};

// ---- opening ---------------------------------------------------------------

static size_t count_steps(const hk_dataset *d) {
    size_t n = 0;
    for (; d->flags & (HKI_DATA_PASSES | HKI_DATA_FN); d = d->inputs[0])
        n += (d->flags & HKI_DATA_FN) != 0;
    return n;
}

static hk_status open_step(step *s, const hk_dataset *d) {
    s->d = d;
    if (d->fn->scratch_open != NULL)
        HKI_TRY(d->fn->scratch_open(d->config, &s->scratch));
    HKI_TRY(hki_pool_create(&d->spec, &s->pool));
    HKI_TRY(hki_pool_take(s->pool, &s->box));
    if (d->fn->show == NULL)
        return HK_OK;
    HKI_TRY(hki_alloc_array(d->spec.count, sizeof *s->values, &s->values));
    memcpy(s->values, d->spec.values, d->spec.count * sizeof *s->values);
    s->shown = (hk_element){.count = d->spec.count, .values = s->values};
    return HK_OK;
}

static hk_status open_base(hki_loader *l) {
    const hk_dataset *const d = l->base;
    HKI_TRY(hki_alloc_array(d->spec.count, sizeof *l->values, &l->values));
    memcpy(l->values, d->spec.values, d->spec.count * sizeof *l->values);
    l->shown = (hk_element){.count = d->spec.count, .values = l->values};
    if (d->ops->scratch_open != NULL)
        HKI_TRY(d->ops->scratch_open(d, l->run, &l->scratch));
    if (d->flags & HKI_DATA_BLOCKS) {
        HKI_TRY(hki_pool_create(&d->spec, &l->pool));
        return hki_pool_take(l->pool, &l->row);
    }
    if (d->flags & HKI_DATA_ROWS)
        return HK_OK;
    const hk_shape scalar = hk_shape_make(0, NULL);
    return hki_tensor_wrap_strings(scalar, &l->cell, &l->lent);
}

hk_status hki_loader_open(const hk_dataset *d, hki_data_run *run,
                          hki_loader **out) {
    hki_loader *l;
    HKI_TRY(hki_zalloc_array(1, sizeof *l, &l));
    l->run = run;
    l->base = hki_dataset_base(d);
    l->moves = hki_moves_plan(d, hki_run_isa(run), &l->n_moves);
    l->n_steps = count_steps(d);
    hk_status s = hki_zalloc_array(l->n_steps, sizeof *l->steps, &l->steps);
    size_t at = l->n_steps;
    for (; s == HK_OK && (d->flags & (HKI_DATA_PASSES | HKI_DATA_FN));
         d = d->inputs[0])
        if (d->flags & HKI_DATA_FN)
            s = open_step(&l->steps[--at], d);
    if (s == HK_OK)
        s = open_base(l);
    HKI_TRY_OR(s, hki_loader_close(l));
    *out = l;
    return HK_OK;
}

void hki_loader_close(hki_loader *l) {
    if (l == NULL)
        return;
    for (size_t i = 0; l->steps != NULL && i < l->n_steps; i++) {
        step *const s = &l->steps[i];
        hki_box_release(s->box);
        hki_pool_close(s->pool);
        hki_free(s->values);
        if (s->scratch != NULL && s->d->fn->scratch_close != NULL)
            s->d->fn->scratch_close(s->scratch);
    }
    if (l->scratch != NULL && l->base->ops->scratch_close != NULL)
        l->base->ops->scratch_close(l->scratch);
    hki_box_release(l->row);
    hki_pool_close(l->pool);
    hk_tensor_release(l->lent);
    hk_tensor_release(l->copy);
    hki_free(l->moves);
    hki_free(l->steps);
    hki_free(l->values);
    hki_free(l);
}

// ---- showing the base's element --------------------------------------------

// The record's bytes, uncopied, as a string scalar.
static void lend_record(hki_loader *l, const hki_box *b) {
    l->cell.size = b->size;
    if (b->size > HKI_STRING_NEAR) {
        l->cell.at.far.bytes = (char *)(uintptr_t)b->bytes;
        l->cell.at.far.capacity = b->size;
    } else if (b->size > 0) {
        memcpy(l->cell.at.near, b->bytes, b->size);
    }
    l->values[0].tensor = l->lent;
}

static hk_status copy_record(hki_loader *l, const hki_box *b) {
    if (l->copy == NULL || !hki_tensor_unique(l->copy))
        HKI_TRY(hki_tensor_own(&l->copy, HK_STRING, &HKI_SCALAR));
    l->values[0].tensor = l->copy;
    return hk_tensor_set_string(l->copy, 0, b->bytes, b->size);
}

static hk_status show(hki_loader *l, const hki_item *item, bool lend,
                      const hk_element **out) {
    if (l->base->flags & HKI_DATA_ROWS) {
        HKI_TRY(l->base->ops->view(l->base, l->scratch, item, l->values));
    } else if (l->row != NULL) { // the base gives blocks
        HKI_TRY(hki_box_prepare(l->row));
        HKI_TRY(hki_block_copy(item, &l->row->rows, 0));
        *out = &l->row->element;
        return HK_OK;
    } else if (item->box->bytes == NULL) {
        *out = &item->box->element;
        return HK_OK;
    } else if (lend) {
        lend_record(l, item->box);
    } else {
        HKI_TRY(copy_record(l, item->box));
    }
    *out = &l->shown;
    return HK_OK;
}

// ---- the steps -------------------------------------------------------------

static hki_fn_call call_of(const hki_loader *l, const hk_element *in,
                           const hki_item *item) {
    const bool rows = (l->base->flags & HKI_DATA_ROWS) != 0;
    const uint64_t mask = (UINT64_C(1) << HKI_STAMP_PASS) - 1;
    return (hki_fn_call){
        .run = l->run,
        .in = in,
        .stamp = item->stamp,
        .number = (l->base->flags & HKI_DATA_TABLE)
                      ? item->row
                      : (int64_t)(item->stamp & mask),
        .place = !rows && item->box->bytes != NULL ? &item->box->place : NULL,
    };
}

static hk_status apply(hki_loader *l, step *s, const hk_element *in,
                       const hki_item *item, hki_data_rows *rows, int64_t row,
                       bool *skip) {
    hki_fn_call c = call_of(l, in, item);
    c.out = rows;
    c.row = row;
    HKI_TRY(s->d->fn->apply(s->d->config, s->scratch, &c));
    *skip = c.skip;
    return HK_OK;
}

// Runs the first n steps, each into its own box.
static hk_status run_steps(hki_loader *l, size_t n, const hki_item *item,
                           const hk_element **e, bool *skip) {
    for (size_t i = 0; i < n && !*skip; i++) {
        step *const s = &l->steps[i];
        if (s->d->fn->show != NULL) {
            const hki_fn_call c = call_of(l, *e, item);
            HKI_TRY(s->d->fn->show(s->d->config, s->scratch, &c, s->values));
            *e = &s->shown;
            continue;
        }
        HKI_TRY(hki_box_prepare(s->box));
        HKI_TRY(apply(l, s, *e, item, &s->box->rows, 0, skip));
        *e = &s->box->element;
    }
    return HK_OK;
}

hk_status hki_loader_view(hki_loader *l, const hki_item *item,
                          const hk_element **out, bool *skip) {
    const hk_element *e = NULL;
    bool left_out = false;
    HKI_TRY(show(l, item, l->n_steps > 0, &e));
    HKI_TRY(run_steps(l, l->n_steps, item, &e, &left_out));
    *skip = left_out;
    if (!left_out)
        *out = e;
    return HK_OK;
}

hk_status hki_loader_row(hki_loader *l, const hki_item *item,
                         hki_data_rows *rows, int64_t i, bool *skip) {
    const hk_element *e = NULL;
    bool left_out = false;
    *skip = false;
    if (l->n_steps == 0 && l->row != NULL)
        return hki_block_copy(item, rows, i);
    HKI_TRY(show(l, item, true, &e));
    if (l->n_steps == 0) {
        for (size_t k = 0; k < e->count; k++)
            HKI_TRY(hki_rows_copy(rows, k, i, &e->values[k]));
    } else {
        HKI_TRY(run_steps(l, l->n_steps - 1, item, &e, &left_out));
        if (!left_out)
            HKI_TRY(apply(l, &l->steps[l->n_steps - 1], e, item, rows, i,
                          &left_out));
    }
    *skip = left_out;
    return HK_OK;
}

bool hki_loader_moves(const hki_loader *l) {
    return l->moves != NULL;
}

#define TOUCHED 16 // items whose memory is asked for before it is read

// Behind a shuffle every row lies elsewhere, a column of it in a place of its
// own: read together they come together. (A prefetch is dropped where it would
// have to look the page up.)
static void touch(const hki_loader *l, const hki_item *items, int64_t begin,
                  int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        const hki_col *const col = items[i].box->rows.col;
        const size_t row = (size_t)hki_block_row(&items[i]);
        for (size_t k = 0; k < l->n_moves; k++) {
            const hki_move *const m = &l->moves[k];
            const size_t size =
                m->row_bytes > 0 ? m->row_bytes : m->items * sizeof(hki_string);
            if (m->kind == HKI_MOVE_BLOCK)
                (void)*(const volatile char *)(col[m->column].data +
                                               row * size);
        }
    }
}

static void touch_boxes(const hki_item *items, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++)
        __builtin_prefetch(&items[i].box->rows);
}

static hk_status move(const hki_loader *l, const hki_item *items, int64_t begin,
                      int64_t end, hki_data_rows *rows) {
    for (size_t k = 0; k < l->n_moves; k++)
        HKI_TRY(hki_move_rows(&l->moves[k], &rows->col[k], items, begin, end));
    return HK_OK;
}

hk_status hki_loader_move(const hki_loader *l, const hki_item *items,
                          int64_t begin, int64_t end, hki_data_rows *rows) {
    if (l->base->ops->ready != NULL)
        HKI_TRY(l->base->ops->ready(l->base, items + begin, end - begin));
    if (l->row == NULL) // no blocks
        return move(l, items, begin, end, rows);
    touch_boxes(items, begin, HKI_MIN(begin + 2 * TOUCHED, end));
    touch(l, items, begin, HKI_MIN(begin + TOUCHED, end));
    for (int64_t i = begin; i < end; i += TOUCHED) {
        const int64_t next = HKI_MIN(i + TOUCHED, end);
        const int64_t after = HKI_MIN(next + TOUCHED, end);
        touch_boxes(items, after, HKI_MIN(after + TOUCHED, end));
        touch(l, items, next, after);
        HKI_TRY(move(l, items, i, next, rows));
    }
    return HK_OK;
}

// ---- one for each input ----------------------------------------------------

void hki_readers_close(void *p) {
    hki_readers *const r = p;
    if (r == NULL)
        return;
    for (size_t i = 0; r->loader != NULL && i < r->n; i++)
        hki_loader_close(r->loader[i]);
    hk_tensor_release(r->counter);
    hki_free(r->loader);
    hki_free(r);
}

hk_status hki_readers_open(const hk_dataset *d, hki_data_run *run, void **out) {
    hki_readers *r;
    HKI_TRY(hki_zalloc_array(1, sizeof *r, &r));
    r->n = d->n_inputs;
    HKI_TRY_OR(hki_zalloc_array(r->n, sizeof *r->loader, &r->loader),
               hki_readers_close(r));
    for (size_t i = 0; i < r->n; i++)
        HKI_TRY_OR(hki_loader_open(d->inputs[i], run, &r->loader[i]),
                   hki_readers_close(r));
    *out = r;
    return HK_OK;
}

hk_status hki_readers_attach(hki_node *n) {
    return hki_readers_open(n->d, n->run, &n->state);
}

void hki_readers_detach(hki_node *n) {
    hki_readers_close(n->state);
}
