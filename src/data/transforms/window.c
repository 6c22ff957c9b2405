// window.c - windows over the elements: `size` of them, `stride` apart, every
// `shift` elements. Each window is one element, put together as batch does.
#include "data/core/batch_build.h"

typedef struct config {
    int64_t shift, stride;
    int64_t span; // elements from the first to the last of a window
    bool drop_remainder;
    hki_batch_part parts[];
} config;

typedef struct state {
    hki_batcher batcher;
    hki_loader *loader;
    hki_item *items; // of the window and between its elements
    int64_t used;
    size_t room;
    bool ended; // the input is at its end
} state;

static hk_status open_node(hki_node *n) {
    const config *const c = n->d->config;
    const hk_dataset *const input = n->inputs[0]->d;
    state *const s = n->state;
    HKI_TRY(hki_batcher_open(&s->batcher, n, &input->spec, c->parts));
    return hki_loader_open(input, n->run, &s->loader);
}

// The first k items go.
static void drop(hki_node *n, int64_t k) {
    state *const s = n->state;
    for (int64_t i = 0; i < k; i++)
        hki_item_free(n->inputs[0], &s->items[i]);
    if (k > 0)
        memmove(s->items, s->items + k,
                (size_t)(s->used - k) * sizeof *s->items);
    s->used -= k;
}

static void close_node(hki_node *n) {
    state *const s = n->state;
    drop(n, s->used);
    hki_loader_close(s->loader);
    hki_batcher_close(&s->batcher);
    hki_free(s->items);
}

static hk_status start(hki_node *n) {
    state *const s = n->state;
    drop(n, s->used);
    s->ended = false;
    return hki_node_start(n->inputs[0]);
}

static hk_status room_for(state *s, int64_t n) {
    return hki_list_reserve(&s->items, (size_t)n, &s->room, sizeof *s->items);
}

static hk_status fill(hki_node *n) {
    const config *const c = n->d->config;
    state *const s = n->state;
    hki_node *const input = n->inputs[0];
    while (!s->ended && s->used < c->span) {
        HKI_TRY(hki_run_check(n->run));
        HKI_TRY(room_for(s, s->used + 1));
        hki_item *const to = &s->items[s->used];
        const hk_status e = hki_node_next(input, to);
        s->ended = e == HK_E_END;
        if (s->ended)
            break;
        HKI_TRY(e);
        HKI_TRY(hki_item_keep(input, to));
        s->used++;
    }
    return HK_OK;
}

// The window moves on; elements between two windows are passed over.
static hk_status advance(hki_node *n) {
    const config *const c = n->d->config;
    state *const s = n->state;
    hki_node *const input = n->inputs[0];
    const int64_t used = s->used;
    drop(n, HKI_MIN(c->shift, used));
    for (int64_t i = used; i < c->shift && !s->ended; i++) {
        hki_item item;
        HKI_TRY(hki_run_check(n->run));
        const hk_status e = hki_node_next(input, &item);
        s->ended = e == HK_E_END;
        if (s->ended)
            break;
        HKI_TRY(e);
        hki_item_free(input, &item);
    }
    return HK_OK;
}

static hk_status make(hki_node *n, hki_box **out) {
    const config *const c = n->d->config;
    state *const s = n->state;
    const int64_t rows = 1 + (s->used - 1) / c->stride;
    bool skip;
    HKI_TRY(hki_batcher_begin(&s->batcher, rows));
    for (int64_t i = 0; i < rows; i++)
        HKI_TRY(hki_loader_row(s->loader, &s->items[i * c->stride],
                               &s->batcher.rows, i, &skip));
    return hki_batcher_finish(&s->batcher, rows, out);
}

static hk_status next(hki_node *n, hki_item *out) {
    const config *const c = n->d->config;
    state *const s = n->state;
    hki_box *box = NULL;
    HKI_TRY(fill(n));
    if (s->used == 0 || (c->drop_remainder && s->used < c->span))
        return HK_E_END;
    hk_status e = make(n, &box);
    if (e != HK_OK)
        hki_batcher_abandon(&s->batcher);
    const hk_status moved = advance(n);
    e = e != HK_OK ? e : moved;
    HKI_TRY_OR(e, hki_box_release(box));
    out->box = box;
    return HK_OK;
}

// ---- position --------------------------------------------------------------

static void save(hki_node *n, hki_saver *w) {
    state *const s = n->state;
    hki_save_u64(w, s->ended);
    hki_save_i64(w, s->used);
    for (int64_t i = 0; i < s->used; i++)
        hki_save_item(w, n->inputs[0], &s->items[i]);
}

static hk_status restore(hki_node *n, hki_restorer *r) {
    const config *const c = n->d->config;
    state *const s = n->state;
    s->ended = hki_restore_i64(r, "ended", 0, 1) == 1;
    const int64_t used =
        hki_restore_i64(r, "the number of buffered elements", 0, c->span);
    HKI_TRY(r->status);
    for (int64_t i = 0; i < used; i++) {
        HKI_TRY(room_for(s, s->used + 1));
        HKI_TRY(hki_restore_item(r, n->inputs[0], &s->items[s->used]));
        s->used++;
    }
    return HK_OK;
}

static const hki_node_ops ops = {
    .name = "window",
    .state_size = sizeof(state),
    .open = open_node,
    .close = close_node,
    .start = start,
    .next = next,
    .save = save,
    .restore = restore,
};

// ---- making ----------------------------------------------------------------

static int64_t count_of(const config *c, int64_t have) {
    if (have < 0)
        return have;
    if (!c->drop_remainder)
        return have / c->shift + (have % c->shift > 0);
    return have < c->span ? 0 : (have - c->span) / c->shift + 1;
}

static hk_status configure(hki_dataset_desc *desc, const hk_dataset *d,
                           int64_t size, int64_t shift, int64_t stride,
                           bool drop_remainder) {
    config *c;
    hk_value *spec;
    HKI_TRY(hk_dataset_status(d));
    HKI_TRY(hki_desc_config(
        desc, sizeof *c + d->spec.count * sizeof c->parts[0], &c));
    HKI_TRY(hki_desc_spec(desc, d->spec.count, &spec));
    if (size < 1 || shift < 1 || stride < 1)
        return hki_fail(HK_E_INVALID_ARG,
                        "window: size %lld, shift %lld and stride %lld have to "
                        "be at least 1",
                        (long long)size, (long long)shift, (long long)stride);
    if (__builtin_mul_overflow(size - 1, stride, &c->span) ||
        __builtin_add_overflow(c->span, 1, &c->span))
        return hki_fail(HK_E_OVERFLOW,
                        "window: %lld elements with stride %lld are too many",
                        (long long)size, (long long)stride);
    c->shift = shift;
    c->stride = stride;
    c->drop_remainder = drop_remainder;
    const int64_t key[] = {size, shift, stride, drop_remainder};
    desc->count = count_of(c, d->count);
    desc->key = hki_key("window", HKI_COUNT(key), key);
    return hki_parts_plan("window", d, HKI_BATCH_PLAIN, NULL, NULL,
                          drop_remainder ? size : -1, c->parts, spec);
}

hk_dataset *hk_data_window(hk_dataset *d, int64_t size, int64_t shift,
                           int64_t stride, int drop_remainder) {
    d = hki_data_solid(d);
    hki_dataset_desc desc = {.ops = &ops, .inputs = &d, .n_inputs = 1};
    return hki_dataset_finish(
        &desc, configure(&desc, d, size, shift, stride, drop_remainder != 0));
}
