// prefetch.c - the input runs ahead in a thread of its own.
//
// The producer fills a ring of at most `limit` items and rests while it is
// full, paused, or at the end. It is woken when a quarter of the ring is empty,
// not for every item: a wake-up costs more than taking an item does. It starts
// with the first next of the first pass, never earlier: passes may be started
// in vain. To save a position it is paused until the next element is asked for;
// the items in the ring are part of the position.
//
// One lock guards everything. While the producer is at work (`busy`) the input
// belongs to it, else to the consumer.
#include "data/core/pipeline.h"

#define AUTO_LEAST 2
#define AUTO_MOST 16
#define AUTO_BYTES ((size_t)32 << 20) // of elements ahead, between the two
#define MOST 65536

typedef struct state {
    hki_mutex lock;
    hki_cond work;  // for the producer: room, or an order
    hki_cond ready; // for the consumer: an entry, or the producer rests
    hki_thread *thread;
    bool gone; // the thread has ended
    bool busy; // the producer is in the input
    bool active, paused, ended, ending;
    bool awaited;    // the consumer needs the next item, stop or not
    bool chosen;     // the limit follows from the size of the first item
    hki_fault fault; // what follows the items; the producer rests behind it
    hki_item *ring;
    size_t room, first, used, limit;
} state;

static int64_t asked(const hki_node *n) {
    return *(const int64_t *)n->d->config;
}

static hki_item *at(state *s, size_t i) {
    return &s->ring[(s->first + i) % s->room];
}

// ---- the producer ----------------------------------------------------------

// As many as fit into the memory allowed for them.
static size_t choose_limit(const hki_node *n, const hki_item *item) {
    if (n->rows)
        return AUTO_MOST;
    const hki_box *const b = item->box;
    size_t bytes = b->size;
    for (size_t k = 0; k < b->element.count; k++) {
        const hk_tensor *const t = b->values[k].tensor;
        const size_t size = hk_dtype_size(b->values[k].dtype);
        if (t != NULL)
            bytes += (size_t)hk_tensor_count(t) *
                     (size > 0 ? size : sizeof(hki_string));
    }
    const size_t fit = AUTO_BYTES / HKI_MAX(bytes, 1);
    return HKI_MIN(HKI_MAX(fit, AUTO_LEAST), AUTO_MOST);
}

static void produce(hki_node *n) {
    state *const s = n->state;
    hki_node *const input = n->inputs[0];
    hki_item item = {0};
    s->busy = true;
    hki_mutex_unlock(&s->lock);
    hk_status e = hki_node_next(input, &item);
    if (e == HK_OK && (e = hki_item_keep(input, &item)) != HK_OK)
        hki_item_free(input, &item);
    hki_mutex_lock(&s->lock);
    s->busy = false;
    if (e == HK_OK) {
        if (asked(n) == HK_DATA_AUTO && !s->chosen)
            s->limit = choose_limit(n, &item);
        s->chosen = true;
        *at(s, s->used++) = item;
    } else if (e == HK_E_END) {
        s->ended = true;
    } else {
        hki_fault_set(&s->fault, e);
    }
}

static bool may_produce(const hki_node *n) {
    const state *const s = n->state;
    return s->active && !s->paused && !s->ended && s->fault.status == HK_OK &&
           s->used < s->limit && (s->awaited || !hki_run_stopping(n->run));
}

static void producer_main(void *arg) {
    hki_node *const n = arg;
    state *const s = n->state;
    bool stop = false;
    HKI_LOCKED(&s->lock);
    while (!s->ending && !stop) {
        if (may_produce(n)) {
            produce(n);
            hki_cond_signal(&s->ready);
        } else {
            stop = hki_run_wait(n->run, &s->work, &s->lock);
        }
    }
    s->gone = true;
    hki_cond_signal(&s->ready);
}

// The producer rests until it gets an order; the lock is held.
static void rest(state *s) {
    s->paused = true;
    while (s->busy)
        hki_cond_wait_forever(&s->ready, &s->lock);
}

// Makes sure that there is a producer; the lock is held.
static hk_status run_producer(hki_node *n) {
    state *const s = n->state;
    if (s->gone) { // it ended by a stop that was taken back
        hki_thread_stop(s->thread);
        s->thread = NULL;
        s->gone = false;
    }
    if (s->thread == NULL)
        HKI_TRY(hki_thread_start(producer_main, n, -1, "hooke-prefetch",
                                 &s->thread));
    s->active = true;
    s->paused = false;
    hki_cond_signal(&s->work);
    return HK_OK;
}

// ---- the node --------------------------------------------------------------

static hk_status open_node(hki_node *n) {
    state *const s = n->state;
    hki_mutex_init(&s->lock);
    hki_cond_init(&s->work);
    hki_cond_init(&s->ready);
    const bool automatic = asked(n) == HK_DATA_AUTO;
    s->limit = automatic ? AUTO_LEAST : (size_t)asked(n);
    s->room = automatic ? AUTO_MOST : s->limit;
    return hki_zalloc_array(s->room, sizeof *s->ring, &s->ring);
}

static void empty(hki_node *n) {
    state *const s = n->state;
    for (size_t i = 0; i < s->used; i++)
        hki_item_free(n, at(s, i));
    s->first = s->used = 0;
}

static void close_node(hki_node *n) {
    state *const s = n->state;
    hki_mutex_lock(&s->lock);
    s->ending = true;
    hki_cond_signal(&s->work);
    hki_mutex_unlock(&s->lock);
    hki_thread_stop(s->thread);
    empty(n);
    hki_cond_deinit(&s->ready);
    hki_cond_deinit(&s->work);
    hki_mutex_deinit(&s->lock);
    hki_free(s->ring);
}

static hk_status start(hki_node *n) {
    state *const s = n->state;
    HKI_LOCKED(&s->lock);
    rest(s);
    empty(n);
    s->active = s->ended = false;
    s->fault.status = HK_OK;
    return hki_node_start(n->inputs[0]);
}

// Waits for an item, a fault or the end.
static hk_status await(hki_node *n) {
    state *const s = n->state;
    hk_status e = HK_OK;
    while (e == HK_OK && s->used == 0 && !s->ended &&
           s->fault.status == HK_OK) {
        e = hki_run_check(n->run);
        s->awaited = e == HK_OK;
        if (e == HK_OK && s->gone)
            e = run_producer(n);
        if (e == HK_OK)
            hki_run_wait(n->run, &s->ready, &s->lock);
    }
    s->awaited = false;
    return e;
}

static hk_status take(hki_node *n, hki_item *out) {
    state *const s = n->state;
    if (!s->active || s->paused || s->gone)
        HKI_TRY(run_producer(n));
    HKI_TRY(await(n));
    if (s->used == 0) {
        const hk_status e = hki_fault_take(&s->fault);
        return e != HK_OK ? e : HK_E_END;
    }
    *out = *at(s, 0);
    s->first = (s->first + 1) % s->room;
    s->used--;
    return HK_OK;
}

static hk_status next(hki_node *n, hki_item *out) {
    state *const s = n->state;
    hki_mutex_lock(&s->lock);
    const hk_status e = take(n, out);
    const bool low = s->used <= s->limit * 3 / 4 && !s->ended;
    hki_mutex_unlock(&s->lock);
    if (low)
        hki_cond_signal(&s->work);
    return e;
}

// ---- position --------------------------------------------------------------

static void save(hki_node *n, hki_saver *w) {
    state *const s = n->state;
    HKI_LOCKED(&s->lock);
    rest(s); // until the next call of next
    hki_save_u64(w, s->ended);
    hki_save_fault(w, &s->fault);
    hki_save_u64(w, s->used);
    for (size_t i = 0; i < s->used; i++)
        hki_save_item(w, n->inputs[0], at(s, i));
}

// The thread is not there yet.
static hk_status restore(hki_node *n, hki_restorer *r) {
    state *const s = n->state;
    s->ended = hki_restore_i64(r, "ended", 0, 1) == 1;
    hki_restore_fault(r, &s->fault);
    // An item takes 16 bytes at least.
    const int64_t used = hki_restore_i64(r, "the number of prefetched elements",
                                         0, (r->end - r->p) / 16 + 1);
    HKI_TRY(r->status);
    if ((size_t)used > s->room) {
        HKI_TRY(hki_realloc_array((size_t)used, sizeof *s->ring, &s->ring));
        s->room = (size_t)used;
    }
    for (int64_t i = 0; i < used; i++) {
        HKI_TRY(hki_restore_item(r, n->inputs[0], at(s, s->used)));
        s->used++;
    }
    return HK_OK;
}

static const hki_node_ops ops = {
    .name = "prefetch",
    .state_size = sizeof(state),
    .open = open_node,
    .close = close_node,
    .start = start,
    .next = next,
    .save = save,
    .restore = restore,
};

hk_dataset *hk_data_prefetch(hk_dataset *d, int64_t n) {
    hk_status s = HK_OK;
    if (n < HK_DATA_AUTO || n > MOST)
        s = hki_fail(
            HK_E_INVALID_ARG,
            "prefetch: %lld elements are out of range; the limit is %d",
            (long long)n, MOST);
    if (n == 0) // nothing runs ahead
        return d;
    d = hki_data_made(d); // the thread does the work, not the consumer
    // How far it runs ahead does not change what comes: no part of the key.
    const hki_dataset_desc desc = {
        .ops = &ops,
        .config = &n,
        .config_size = sizeof n,
        .inputs = &d,
        .n_inputs = 1,
        .count = hk_dataset_count(d),
        .flags = HKI_DATA_PASSES,
    };
    return hki_dataset_finish(&desc, s);
}
