// batch.c - n elements as one.
//
// Three ways to fill the rows, by what the input offers:
//     bulk     the source writes many rows at once (ops->fill)
//     stream   item by item: read and written at once, never kept
//     collect  all items first, then all rows: for rows of a table, which are
//              moved column by column, and for several threads
// A batch of table rows remembers their numbers: its position is saved as
// these, not as the tensors.
#include "data/core/batch_build.h"

#define FIRST_ROWS 1024 // room at first when nobody knows how many will come

typedef struct config {
    int64_t n;
    bool drop_remainder;
    hki_batch_part parts[];
} config;

// One thread's share of the rows of a batch.
typedef struct lane {
    hki_task task;
    hki_node *n;
    hki_loader *loader;
    hki_fault fault;
    int64_t fault_row;
} lane;

typedef struct state {
    hki_batcher batcher;
    lane *lanes;
    uint32_t n_lanes;
    bool bulk, collect;
    bool records;    // kept ones
    hki_item *items; // collected
    bool *skip;
    int64_t room;
    // Rows being loaded. Lanes take one after the other from the cursor, so
    // that a slow row holds up one lane alone; a row is written by one lane
    // only.
    int64_t begin, end;
    atomic_llong cursor;
} state;

// ---- opening ---------------------------------------------------------------

static void lane_work(void *arg);

static hk_status open_lanes(hki_node *n) {
    state *const s = n->state;
    const uint32_t want = hki_fn_parallel(n->inputs[0]->d, n->run);
    HKI_TRY(hki_zalloc_array(want, sizeof *s->lanes, &s->lanes));
    for (; s->n_lanes < want; s->n_lanes++) {
        lane *const l = &s->lanes[s->n_lanes];
        HKI_TRY(hki_loader_open(n->inputs[0]->d, n->run, &l->loader));
        l->n = n;
        l->task = (hki_task){.fn = lane_work, .arg = l};
    }
    return HK_OK;
}

// Records that lie here and there in memory, as a shuffle leaves them.
static bool has_kept_records(const hk_dataset *d) {
    bool keeps = false;
    for (; d->flags & (HKI_DATA_PASSES | HKI_DATA_FN); d = d->inputs[0])
        keeps = keeps || (d->flags & HKI_DATA_KEEPS) != 0;
    return keeps && (d->flags & HKI_DATA_RECORDS) != 0;
}

static hk_status open_node(hki_node *n) {
    const config *const c = n->d->config;
    state *const s = n->state;
    HKI_TRY(hki_batcher_open(&s->batcher, n, &n->inputs[0]->d->spec, c->parts));
    HKI_TRY(open_lanes(n));
    s->bulk = n->inputs[0]->d->ops->fill != NULL;
    s->records = has_kept_records(n->inputs[0]->d);
    s->collect = n->inputs[0]->rows || n->inputs[0]->blocks || s->records ||
                 s->n_lanes > 1;
    return HK_OK;
}

static void close_node(hki_node *n) {
    state *const s = n->state;
    for (uint32_t i = 0; s->lanes != NULL && i < s->n_lanes; i++)
        hki_loader_close(s->lanes[i].loader);
    hki_batcher_close(&s->batcher);
    hki_free(s->lanes);
    hki_free(s->items);
    hki_free(s->skip);
}

// ---- bulk ------------------------------------------------------------------

static hk_status fill_bulk(hki_node *n, int64_t want, int64_t *rows) {
    state *const s = n->state;
    hki_node *const input = n->inputs[0];
    int64_t have = 0;
    while (have < want) {
        int64_t got = 0;
        HKI_TRY(hki_run_check(n->run));
        if (have == s->batcher.room)
            HKI_TRY(hki_batcher_reserve(&s->batcher, HKI_MIN(2 * have, want)));
        const int64_t room = HKI_MIN(s->batcher.room, want);
        const hk_status e = input->d->ops->fill(input, &s->batcher.rows, have,
                                                room - have, &got);
        if (e == HK_E_END)
            break;
        HKI_TRY(e);
        input->count += got;
        have += got;
    }
    *rows = have;
    return HK_OK;
}

// ---- stream ----------------------------------------------------------------

static hk_status fill_stream(hki_node *n, int64_t want, int64_t *rows) {
    state *const s = n->state;
    hki_node *const input = n->inputs[0];
    hki_skips skips = {0};
    int64_t have = 0;
    while (have < want) {
        hki_item item;
        bool skip = false;
        HKI_TRY(hki_run_check(n->run));
        if (have == s->batcher.room)
            HKI_TRY(hki_batcher_reserve(&s->batcher, HKI_MIN(2 * have, want)));
        hk_status e = hki_node_next(input, &item);
        if (e == HK_E_END)
            break;
        HKI_TRY(e);
        e = hki_loader_row(s->lanes[0].loader, &item, &s->batcher.rows, have,
                           &skip);
        hki_item_free(input, &item);
        if (e == HK_OK && skip)
            e = hki_skips_watch(&skips, item.stamp);
        HKI_TRY(e);
        have += !skip;
        skips.any = skips.any && skip;
    }
    *rows = have;
    return HK_OK;
}

// ---- collect ---------------------------------------------------------------

static hk_status item_room(state *s, int64_t rows) {
    if (rows <= s->room)
        return HK_OK;
    HKI_TRY(hki_realloc_array((size_t)rows, sizeof *s->items, &s->items));
    HKI_TRY(hki_realloc_array((size_t)rows, sizeof *s->skip, &s->skip));
    s->room = rows;
    return HK_OK;
}

static void drop_items(hki_node *n, int64_t from, int64_t to) {
    state *const s = n->state;
    for (int64_t i = from; i < to; i++)
        hki_item_free(n->inputs[0], &s->items[i]);
}

// Takes items until there are `want`, or the input ends.
static hk_status collect(hki_node *n, int64_t want, int64_t *have, bool *end) {
    state *const s = n->state;
    hki_node *const input = n->inputs[0];
    while (*have < want && !*end) {
        int64_t got = 0;
        HKI_TRY(hki_run_check(n->run));
        if (*have == s->room)
            HKI_TRY(
                item_room(s, HKI_MIN(HKI_MAX(2 * *have, FIRST_ROWS), want)));
        const int64_t first = *have;
        const hk_status e = hki_node_pull(input, &s->items[first],
                                          HKI_MIN(want, s->room) - first, &got);
        *end = e == HK_E_END;
        if (*end)
            break;
        HKI_TRY(e);
        *have += got;
        for (int64_t i = first; i < *have && !input->rows; i++)
            HKI_TRY(hki_item_keep(input, &s->items[i]));
    }
    return HK_OK;
}

#define AHEAD 8          // records that are asked for before they are read
#define TOUCH_BYTES 1024 // more of one the processor follows by itself
#define LINE 64

// Reads that wait for memory together. (A prefetch is dropped where it would
// have to look the page up.)
static void touch_ahead(const state *s, int64_t i) {
    if (i + 2 * AHEAD < s->end)
        (void)*(const volatile size_t *)&s->items[i + 2 * AHEAD].box->size;
    if (i + AHEAD >= s->end)
        return;
    const hki_box *const b = s->items[i + AHEAD].box;
    for (size_t k = 0; b->bytes != NULL && k < HKI_MIN(b->size, TOUCH_BYTES);
         k += LINE)
        (void)*(const volatile uint8_t *)(b->bytes + k);
}

// Rows from the shared cursor on until none is left or one fails.
static void lane_work(void *arg) {
    lane *const l = arg;
    state *const s = l->n->state;
    l->fault.status = HK_OK;
    for (;;) {
        const int64_t i = s->n_lanes == 1
                              ? s->begin++
                              : atomic_fetch_add_explicit(&s->cursor, 1,
                                                          memory_order_relaxed);
        if (i >= s->end)
            return;
        if (s->records)
            touch_ahead(s, i);
        const hk_status e = hki_loader_row(l->loader, &s->items[i],
                                           &s->batcher.rows, i, &s->skip[i]);
        if (e != HK_OK) {
            hki_fault_set(&l->fault, e);
            l->fault_row = i;
            return;
        }
    }
}

// Loads rows [begin, end). Of several faults the first row's is told.
static hk_status load_rows(hki_node *n, int64_t begin, int64_t end) {
    state *const s = n->state;
    const lane *first = NULL;
    if (!s->batcher.has_slots && hki_loader_moves(s->lanes[0].loader)) {
        if (end > begin)
            memset(s->skip + begin, 0, (size_t)(end - begin));
        return hki_loader_move(s->lanes[0].loader, s->items, begin, end,
                               &s->batcher.rows);
    }
    s->begin = begin;
    s->end = end;
    atomic_store_explicit(&s->cursor, begin, memory_order_relaxed);
    for (uint32_t i = 1; i < s->n_lanes; i++)
        hki_gang_submit(n->run->gang, &s->lanes[i].task);
    lane_work(&s->lanes[0]);
    for (uint32_t i = 1; i < s->n_lanes; i++)
        hki_gang_wait(n->run->gang, &s->lanes[i].task);
    for (uint32_t i = 0; i < s->n_lanes; i++) {
        const lane *const l = &s->lanes[i];
        if (l->fault.status != HK_OK &&
            (first == NULL || l->fault_row < first->fault_row))
            first = l;
    }
    return first != NULL ? hki_fault_raise(&first->fault) : HK_OK;
}

// Takes the skipped items out of [*from, *have); *from becomes the first row
// that has to be loaded again.
static hk_status close_gaps(hki_node *n, hki_skips *skips, int64_t *from,
                            int64_t *have) {
    state *const s = n->state;
    int64_t kept = *from, first = *have;
    for (int64_t i = *from; i < *have; i++) {
        if (!s->skip[i]) {
            s->items[kept++] = s->items[i];
            skips->any = false;
            continue;
        }
        first = HKI_MIN(first, i);
        const uint64_t stamp = s->items[i].stamp;
        hki_item_free(n->inputs[0], &s->items[i]);
        const hk_status e = hki_skips_watch(skips, stamp);
        if (e != HK_OK) { // the rest moves up, so that every item is known
            while (++i < *have)
                s->items[kept++] = s->items[i];
            *have = kept;
            return e;
        }
    }
    *from = HKI_MIN(first, kept);
    *have = kept;
    return HK_OK;
}

static hk_status collect_and_load(hki_node *n, int64_t want, int64_t *have) {
    state *const s = n->state;
    hki_skips skips = {0};
    bool end = false;
    int64_t from = 0;
    do {
        HKI_TRY(collect(n, want, have, &end));
        HKI_TRY(hki_batcher_reserve(&s->batcher, *have));
        HKI_TRY(load_rows(n, from, *have));
        from = HKI_MIN(from, *have);
        const int64_t loaded = *have;
        HKI_TRY(close_gaps(n, &skips, &from, have));
        if (*have == loaded)
            break;
    } while (true);
    return HK_OK;
}

static hk_status fill_collect(hki_node *n, int64_t want, int64_t *rows) {
    state *const s = n->state;
    int64_t have = 0;
    hk_status e = collect_and_load(n, want, &have);
    if (e == HK_OK && n->inputs[0]->rows)
        e = hki_box_recipe(s->batcher.box, s->items, have);
    drop_items(n, 0, have);
    HKI_TRY(e);
    *rows = have;
    return HK_OK;
}

// ---- elements --------------------------------------------------------------

static int64_t first_room(const hki_node *n, int64_t want) {
    const int64_t known = n->inputs[0]->d->count;
    return HKI_MIN(want, known > 0 ? known : FIRST_ROWS);
}

static hk_status make(hki_node *n, hki_box **out) {
    const config *const c = n->d->config;
    state *const s = n->state;
    int64_t rows = 0;
    HKI_TRY(hki_batcher_begin(&s->batcher, first_room(n, c->n)));
    HKI_TRY(s->bulk      ? fill_bulk(n, c->n, &rows)
            : s->collect ? fill_collect(n, c->n, &rows)
                         : fill_stream(n, c->n, &rows));
    if (rows == 0 || (rows < c->n && c->drop_remainder))
        return HK_E_END;
    return hki_batcher_finish(&s->batcher, rows, out);
}

static hk_status next(hki_node *n, hki_item *out) {
    state *const s = n->state;
    const hk_status e = make(n, &out->box);
    if (e != HK_OK)
        hki_batcher_abandon(&s->batcher);
    return e;
}

static hk_status make_again(hki_node *n, const hki_item *items, int64_t count,
                            hki_box **out) {
    const config *const c = n->d->config;
    state *const s = n->state;
    if (count > c->n)
        return hki_fail(HK_E_DATA,
                        "iterator state: a batch of %lld elements is larger "
                        "than the limit of %lld",
                        (long long)count, (long long)c->n);
    HKI_TRY(item_room(s, count));
    memcpy(s->items, items, (size_t)count * sizeof *items);
    HKI_TRY(hki_batcher_begin(&s->batcher, count));
    HKI_TRY(load_rows(n, 0, count));
    for (int64_t i = 0; i < count; i++)
        if (s->skip[i])
            return hki_fail(
                HK_E_DATA,
                "iterator state: the batch has an element that is now damaged");
    HKI_TRY(hki_box_recipe(s->batcher.box, items, count));
    return hki_batcher_finish(&s->batcher, count, out);
}

static hk_status remake(hki_node *n, const hki_item *items, int64_t count,
                        hki_item *out) {
    state *const s = n->state;
    const hk_status e = make_again(n, items, count, &out->box);
    if (e != HK_OK)
        hki_batcher_abandon(&s->batcher);
    return e;
}

static const hki_node_ops batch_ops = {
    .name = "batch",
    .state_size = sizeof(state),
    .open = open_node,
    .close = close_node,
    .next = next,
    .remake = remake,
};

int64_t hki_dataset_batch(const hk_dataset *d) {
    while (d->ops != &batch_ops && d->n_inputs > 0)
        d = d->inputs[0];
    return d->ops == &batch_ops ? ((const config *)d->config)->n : -1;
}

// ---- making ----------------------------------------------------------------

// Hash of what the parts are; unused fields of a shape do not count.
static uint64_t parts_key(uint64_t h, const hki_batch_part *parts, size_t n) {
    for (size_t k = 0; k < n; k++) {
        const hki_batch_part *const p = &parts[k];
        const int64_t head[] = {p->kind, p->pad.rank};
        h = hki_hash(h, head, sizeof head);
        h = hki_hash(h, p->pad.dim, (size_t)p->pad.rank * sizeof(int64_t));
        h = hki_hash(h, &p->padding, sizeof p->padding);
    }
    return h;
}

static int64_t count_of(int64_t have, int64_t n, bool drop) {
    if (have < 0)
        return have;
    return have / n + (!drop && have % n > 0);
}

// How to batch, as the public calls say it.
typedef struct request {
    const char *op;
    hki_batch_style style;
    int64_t n;
    bool drop_remainder;
    const hk_shape *shapes;
    const double *padding;
} request;

static hk_status configure(hki_dataset_desc *desc, const hk_dataset *d,
                           const request *r) {
    config *c;
    hk_value *spec;
    HKI_TRY(hk_dataset_status(d));
    const size_t values = d->spec.count;
    if (r->n < 1)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: the batch size is %lld; it has to be at least 1",
                        r->op, (long long)r->n);
    HKI_TRY(hki_desc_config(desc, sizeof *c + values * sizeof c->parts[0], &c));
    HKI_TRY(hki_desc_spec(desc, values, &spec));
    HKI_TRY(hki_parts_plan(r->op, d, r->style, r->shapes, r->padding,
                           r->drop_remainder ? r->n : -1, c->parts, spec));
    c->n = r->n;
    c->drop_remainder = r->drop_remainder;
    const int64_t key[] = {r->n, r->drop_remainder};
    desc->count =
        hki_may_skip(d) ? -1 : count_of(d->count, r->n, r->drop_remainder);
    desc->key = parts_key(hki_key(r->op, 2, key), c->parts, values);
    return HK_OK;
}

static hk_dataset *make_dataset(hk_dataset *d, const request *r) {
    hki_dataset_desc desc = {.ops = &batch_ops, .inputs = &d, .n_inputs = 1};
    return hki_dataset_finish(&desc, configure(&desc, d, r));
}

hk_dataset *hk_data_batch(hk_dataset *d, int64_t n, int drop_remainder) {
    return make_dataset(d, &(request){"batch", HKI_BATCH_PLAIN, n,
                                      drop_remainder != 0, NULL, NULL});
}

hk_dataset *hk_data_padded_batch(hk_dataset *d, int64_t n,
                                 const hk_shape *shapes, const double *padding,
                                 int drop_remainder) {
    return make_dataset(d, &(request){"padded_batch", HKI_BATCH_PADDED, n,
                                      drop_remainder != 0, shapes, padding});
}

hk_dataset *hk_data_ragged_batch(hk_dataset *d, int64_t n, int drop_remainder) {
    return make_dataset(d, &(request){"ragged_batch", HKI_BATCH_RAGGED, n,
                                      drop_remainder != 0, NULL, NULL});
}
