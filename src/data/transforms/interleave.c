// interleave.c - the datasets that a user's function makes of elements, several
// open at once, in turn.
//
// A cycle of slots; the one whose turn it is gives up to `block_length`
// elements. An exhausted slot passes its turn on at once and is refilled from
// the input when it comes again. That order does not depend on threads: with
// several of them every slot fills a queue ahead (`back`) while the consumer
// takes from the one before (`front`); they change places when the front is
// empty and the task is done.
#include "data/core/pipeline.h"

#define MOST_SLOTS 65536
#define AHEAD 16 // elements that a slot makes ahead

typedef struct config {
    hk_flat_fn f;
    void *user;
    int64_t cycle, block;
    int32_t parallel;
    bool unordered;
} config;

typedef struct queue {
    hki_item item[AHEAD];
    size_t first, used;
    bool ended;      // nothing follows
    hki_fault fault; // follows the items
} queue;

// The front is the consumer's. From send to the gang's word that the task is
// done, the back, node and loader are the task's; `under_way` says that the
// back is on its way or waits to become the front.
typedef struct slot {
    bool open;
    hki_node *owner;
    hki_item arg; // the input's element, kept
    hk_dataset *d;
    hki_node *node;
    hki_loader *loader;
    hki_task task;
    bool under_way; // the back is being filled, or full
    queue *front, *back;
    queue queues[2];
} slot;

typedef struct state {
    hki_loader *loader; // of the input
    slot *slots;
    size_t n_slots;
    size_t turn; // slot
    int64_t in_block, n_open;
    bool threads;
    bool ended; // the input is at its end
} state;

// ---- one slot --------------------------------------------------------------

// The next item of the slot's dataset as one of the owner's.
static hk_status make_item(slot *s, hki_item *out) {
    hki_node *const n = s->owner;
    bool skip = true;
    if (hki_plain_items(s->node))
        return hki_node_next(s->node, out);
    while (skip) {
        hki_item item;
        HKI_TRY(hki_run_check(n->run));
        HKI_TRY(hki_node_next(s->node, &item));
        const hk_status e =
            hki_node_load(n, s->loader, &item, &out->box, &skip);
        hki_item_free(s->node, &item);
        HKI_TRY(e);
    }
    return HK_OK;
}

// After a stop one is enough: somebody may need it to finish an element.
static bool is_filled(const slot *s, const queue *q) {
    return q->ended || q->fault.status != HK_OK || q->used == AHEAD ||
           (q->used > 0 && hki_run_stopping(s->owner->run));
}

// Fills the back queue; a task of the gang.
static void fill_back(void *arg) {
    slot *const s = arg;
    queue *const q = s->back;
    while (!is_filled(s, q)) {
        hki_item *const to = &q->item[q->used];
        hk_status e = make_item(s, to);
        if (e == HK_OK && (e = hki_item_keep(s->owner, to)) != HK_OK)
            hki_item_free(s->owner, to);
        q->ended = e == HK_E_END;
        if (e == HK_OK)
            q->used++;
        else if (e != HK_E_END)
            hki_fault_set(&q->fault, e);
    }
}

static void send(slot *s) {
    s->back->first = s->back->used = 0;
    s->back->ended = false;
    s->back->fault.status = HK_OK;
    s->under_way = true;
    hki_gang_submit(s->owner->run->gang, &s->task);
}

static void settle(slot *s) {
    if (s->under_way)
        hki_gang_wait(s->owner->run->gang, &s->task);
}

static void empty_queue(hki_node *n, queue *q) {
    for (; q->first < q->used; q->first++)
        hki_item_free(n, &q->item[q->first]);
    *q = (queue){0};
}

static void close_slot(hki_node *n, slot *s) {
    if (s->owner == NULL)
        return;
    settle(s);
    empty_queue(n, &s->queues[0]);
    empty_queue(n, &s->queues[1]);
    hki_loader_close(s->loader);
    hki_node_close(s->node);
    hk_dataset_release(s->d);
    if (s->open)
        hki_item_free(n->inputs[0], &s->arg);
    *s = (slot){0};
}

// Asks the user for the dataset of s->arg and opens it.
static hk_status open_dataset(hki_node *n, slot *s) {
    const config *const c = n->d->config;
    const state *const st = n->state;
    const hk_element *e;
    bool skip = false;
    HKI_TRY(hki_loader_view(st->loader, &s->arg, &e, &skip));
    const hk_status status = c->f(c->user, e, &s->d);
    if (status == HK_E_END)
        return hki_fail(
            HK_E_STATE,
            "interleave: the function returned HK_E_END, which it may not");
    HKI_TRY(status);
    HKI_TRY(hk_dataset_status(s->d));
    if (s->d->spec.count != n->d->spec.count)
        return hki_fail(
            HK_E_INVALID_ARG,
            "interleave: a data set has %zu values, but the spec has %zu",
            s->d->spec.count, n->d->spec.count);
    for (size_t k = 0; k < s->d->spec.count; k++) {
        const hk_value *const want = &n->d->spec.values[k];
        const hk_value *const got = &s->d->spec.values[k];
        if (strcmp(want->name, got->name) != 0 || want->role != got->role)
            return hki_fail(HK_E_INVALID_ARG,
                            "interleave: value %zu is \"%s\", but \"%s\" in "
                            "the spec, or it has another role",
                            k, got->name, want->name);
        HKI_TRY(hki_value_fits("interleave", want, got));
    }
    HKI_TRY(hki_node_open(s->d, n->run, &s->node));
    HKI_TRY(hki_loader_open(s->d, n->run, &s->loader));
    return hki_node_start(s->node);
}

// arg: taken on success.
static hk_status open_slot(hki_node *n, slot *s, const hki_item *arg) {
    *s = (slot){.owner = n, .arg = *arg};
    s->front = &s->queues[0];
    s->back = &s->queues[1];
    s->task = (hki_task){.fn = fill_back, .arg = s};
    const hk_status e = open_dataset(n, s);
    if (e != HK_OK) {
        hki_fault fault;
        hki_fault_set(&fault, e);
        close_slot(n, s);
        hki_fault_raise(&fault);
        return e;
    }
    s->open = true;
    return HK_OK;
}

// ---- taking ----------------------------------------------------------------

// What the front holds, in its order: items, a fault, the end.
static hk_status take_front(queue *q, hki_item *out) {
    if (q->first < q->used) {
        *out = q->item[q->first++];
        return HK_OK;
    }
    const hk_status e = hki_fault_take(&q->fault);
    return e != HK_OK ? e : HK_E_END;
}

static bool front_empty(const queue *q) {
    return q->first == q->used && q->fault.status == HK_OK && !q->ended;
}

// Queues change places when the back is there.
static void swap(slot *s) {
    queue *const q = s->front;
    s->front = s->back;
    s->back = q;
    s->under_way = false;
    if (!s->front->ended && s->front->fault.status == HK_OK)
        send(s);
}

static hk_status take(const state *st, slot *s, hki_item *out) {
    while (front_empty(s->front)) {
        if (!st->threads && !s->under_way)
            return make_item(s, out);
        if (!s->under_way)
            send(s);
        settle(s);
        swap(s);
    }
    return take_front(s->front, out);
}

// Without order: a slot later in the cycle that has something ready.
static void choose_ready(hki_node *n) {
    state *const st = n->state;
    for (size_t i = 0; i < st->n_slots; i++) {
        const size_t at = (st->turn + i) % st->n_slots;
        slot *const s = &st->slots[at];
        const bool ready =
            !s->open
                ? !st->ended
                : !front_empty(s->front) ||
                      (s->under_way && hki_gang_poll(n->run->gang, &s->task));
        if (!ready)
            continue;
        if (i > 0) {
            st->turn = at;
            st->in_block = 0;
        }
        return;
    }
}

// ---- the node --------------------------------------------------------------

static hk_status open_node(hki_node *n) {
    const config *const c = n->d->config;
    state *const st = n->state;
    st->threads = c->parallel != 1 && hki_run_threads(n->run) > 1;
    HKI_TRY(hki_node_pool(n)); // before threads ask for it
    HKI_TRY(hki_loader_open(n->inputs[0]->d, n->run, &st->loader));
    HKI_TRY(hki_zalloc_array((size_t)c->cycle, sizeof *st->slots, &st->slots));
    st->n_slots = (size_t)c->cycle;
    return HK_OK;
}

static void close_slots(hki_node *n) {
    state *const st = n->state;
    for (size_t i = 0; i < st->n_slots; i++)
        close_slot(n, &st->slots[i]);
    st->n_open = st->in_block = 0;
    st->turn = 0;
}

static void close_node(hki_node *n) {
    state *const st = n->state;
    close_slots(n);
    hki_loader_close(st->loader);
    hki_free(st->slots);
}

static hk_status start(hki_node *n) {
    state *const st = n->state;
    close_slots(n);
    st->ended = false;
    return hki_node_start(n->inputs[0]);
}

static void pass_turn(state *st) {
    st->in_block = 0;
    st->turn = (st->turn + 1) % st->n_slots;
}

// Fills the empty slot whose turn it is.
static hk_status refill(hki_node *n) {
    state *const st = n->state;
    hki_node *const input = n->inputs[0];
    slot *const s = &st->slots[st->turn];
    hki_item arg;
    hk_status e = hki_node_next(input, &arg);
    st->ended = e == HK_E_END;
    if (st->ended)
        return HK_OK;
    HKI_TRY(e);
    e = hki_item_keep(input, &arg);
    if (e == HK_OK)
        e = open_slot(n, s, &arg);
    HKI_TRY_OR(e, hki_item_free(input, &arg));
    st->n_open++;
    if (st->threads)
        send(s);
    return HK_OK;
}

static hk_status next(hki_node *n, hki_item *out) {
    const config *const c = n->d->config;
    state *const st = n->state;
    while (!st->ended || st->n_open > 0) {
        HKI_TRY(hki_run_check(n->run));
        if (c->unordered && st->threads)
            choose_ready(n);
        slot *const s = &st->slots[st->turn];
        if (s->open) {
            const hk_status e = take(st, s, out);
            if (e == HK_OK && ++st->in_block == c->block)
                pass_turn(st);
            if (e != HK_E_END)
                return e;
            close_slot(n, s);
            st->n_open--;
            pass_turn(st);
        } else if (!st->ended) {
            HKI_TRY(refill(n));
        } else {
            pass_turn(st);
        }
    }
    return HK_E_END;
}

// ---- position --------------------------------------------------------------

static void save_queue(hki_saver *w, const queue *q) {
    hki_save_u64(w, q->used - q->first);
    for (size_t i = q->first; i < q->used; i++) {
        hki_save_u64(w, q->item[i].stamp);
        hki_save_box(w, q->item[i].box);
    }
    hki_save_u64(w, q->ended);
    hki_save_fault(w, &q->fault);
}

static hk_status restore_queue(hki_restorer *r, hki_node *n, queue *q) {
    const int64_t used = hki_restore_i64(r, "the length of a queue", 0, AHEAD);
    HKI_TRY(r->status);
    for (int64_t i = 0; i < used; i++) {
        hki_box *box;
        const uint64_t stamp = hki_restore_u64(r);
        HKI_TRY(hki_node_bare_box(n, &box));
        q->item[q->used++] = (hki_item){.box = box, .stamp = stamp};
        HKI_TRY(hki_restore_box(r, box));
    }
    q->ended = hki_restore_i64(r, "ended", 0, 1) == 1;
    hki_restore_fault(r, &q->fault);
    return r->status;
}

static void save_slot(hki_node *n, slot *s, hki_saver *w) {
    hki_save_u64(w, s->open);
    if (!s->open)
        return;
    settle(s); // the back stays as it is until the front is empty
    hki_save_item(w, n->inputs[0], &s->arg);
    hki_save_u64(w, s->d->fingerprint);
    hki_save_u64(w, s->under_way);
    save_queue(w, s->front);
    save_queue(w, s->back);
    hki_node_save(s->node, w);
}

static void save(hki_node *n, hki_saver *w) {
    state *const st = n->state;
    hki_save_u64(w, st->turn);
    hki_save_i64(w, st->in_block);
    hki_save_u64(w, st->ended);
    for (size_t i = 0; i < st->n_slots; i++)
        save_slot(n, &st->slots[i], w);
}

static hk_status restore_slot(hki_node *n, slot *s, hki_restorer *r) {
    state *const st = n->state;
    hki_item arg;
    if (hki_restore_i64(r, "open", 0, 1) == 0)
        return r->status;
    HKI_TRY(hki_restore_item(r, n->inputs[0], &arg));
    HKI_TRY_OR(open_slot(n, s, &arg), hki_item_free(n->inputs[0], &arg));
    st->n_open++;
    if (hki_restore_u64(r) != s->d->fingerprint)
        return hki_restore_bad(r, "a slot has another kind of data set");
    s->under_way = hki_restore_i64(r, "under_way", 0, 1) == 1;
    HKI_TRY(r->status);
    HKI_TRY(restore_queue(r, n, s->front));
    HKI_TRY(restore_queue(r, n, s->back));
    return hki_node_restore(s->node, r);
}

static hk_status restore(hki_node *n, hki_restorer *r) {
    const config *const c = n->d->config;
    state *const st = n->state;
    st->turn = (size_t)hki_restore_i64(r, "the index of the current slot", 0,
                                       c->cycle - 1);
    st->in_block =
        hki_restore_i64(r, "the position in the block", 0, c->block - 1);
    st->ended = hki_restore_i64(r, "ended", 0, 1) == 1;
    for (size_t i = 0; i < st->n_slots; i++)
        HKI_TRY(restore_slot(n, &st->slots[i], r));
    return r->status;
}

static const hki_node_ops ops = {
    .name = "interleave",
    .state_size = sizeof(state),
    .open = open_node,
    .close = close_node,
    .start = start,
    .next = next,
    .save = save,
    .restore = restore,
};

// ---- making ----------------------------------------------------------------

HKI_OPTIONS(hk_interleave_options, n_spec, .cycle_length = 1, .block_length = 1,
            .parallel = 1)

static hk_status check(hk_flat_fn f, const hk_interleave_options *o) {
    if (f == NULL || o->spec == NULL || o->n_spec == 0)
        return hki_fail(
            HK_E_INVALID_ARG,
            "interleave: f and the spec of its data sets are needed");
    if (o->cycle_length < 1 || o->cycle_length > MOST_SLOTS ||
        o->block_length < 1)
        return hki_fail(HK_E_INVALID_ARG,
                        "interleave: cycle length %lld (1 to %d) or block "
                        "length %lld (at least 1) is out of range",
                        (long long)o->cycle_length, MOST_SLOTS,
                        (long long)o->block_length);
    return hki_parallel_check("interleave", o->parallel);
}

hk_dataset *hk_data_interleave(hk_dataset *d, hk_flat_fn f, void *user,
                               const hk_interleave_options *opt) {
    hk_interleave_options o;
    hk_interleave_options_init(&o, sizeof o);
    hk_status s = hki_options_copy(&o, sizeof o, opt, "interleave");
    if (s == HK_OK)
        s = check(f, &o);
    d = hki_data_made(d); // the function sees the element again after a restore
    if (s != HK_OK)
        return hki_dataset_fail(&d, 1, s);
    config c = {.f = f,
                .user = user,
                .cycle = o.cycle_length,
                .block = o.block_length,
                .parallel = o.parallel,
                .unordered = o.unordered != 0};
    return hki_dataset_make(&(hki_dataset_desc){
        .ops = &ops,
        .config = &c,
        .config_size = sizeof c,
        .inputs = &d,
        .n_inputs = 1,
        .spec = o.spec,
        .n_spec = o.n_spec,
        .count = hk_dataset_count(d) == 0 ? 0 : -1,
        .key = hki_key("interleave", 2,
                       (int64_t[]){o.cycle_length, o.block_length}),
    });
}
