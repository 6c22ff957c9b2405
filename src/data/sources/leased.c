// leased.c - one worker's part of a set whose units are lent out: of every
// epoch a share that follows from its number, or ranges that a center lends,
// one after the other.
//
// Where a unit is more than an example, several ranges are open at once and
// the next example comes from any of them; within its range it comes in an
// order that follows from the seed and the range alone. So whoever gets a
// range that was begun knows which of its examples are left.
#include "data/core/pipeline.h"

#define OPEN 4     // ranges at once, where they are mixed
#define LENT 2     // of those that a center lends
#define ROOM_MS 20 // between looks at a stop
#define RANGES 16  // of a share, where they are mixed

typedef struct config {
    hk_lender *lender;
    int64_t seed, shuffle;
    int64_t units;
    bool mixes; // a unit is more than an example
} config;

typedef struct slot {
    hki_lease lease;
    hk_dataset *d;
    hki_node *node;
} slot;

typedef struct state {
    slot slots[OPEN];
    int n;        // open
    int64_t next; // range of the share
    bool ended;   // there are no more ranges in this pass
    bool declared;
    int64_t seed; // that holds
    hki_rng rng;
} state;

static bool is_lent(const config *c) {
    return c->lender->take != NULL;
}

// Ranges that are read at once.
static int most_open(const config *c) {
    return !c->mixes ? 1 : is_lent(c) ? LENT : OPEN;
}

// ---- which range comes next ------------------------------------------------

// Range i of the worker's share; false: the share has no such.
static bool share_range(const config *c, int64_t i, hki_lease *out) {
    const int64_t part = c->lender->part, parts = c->lender->parts;
    const int64_t q = c->units / parts, r = c->units % parts;
    const int64_t begin = q * part + HKI_MIN(part, r);
    const int64_t n = q + (part < r);
    const int64_t ranges = HKI_MIN(c->mixes ? RANGES : 1, n);
    if (i >= ranges)
        return false;
    const int64_t each = n / ranges, more = n % ranges;
    out->begin = begin + each * i + HKI_MIN(i, more);
    out->end = out->begin + each + (i < more);
    return true;
}

static hk_status declare(hki_node *n) {
    const config *const c = n->d->config;
    state *const s = n->state;
    uint64_t seed = (uint64_t)c->seed;
    if (s->declared)
        return HK_OK;
    const uint64_t what[] = {(uint64_t)c->units,
                             (uint64_t)n->d->inputs[0]->count,
                             hki_data_cuts(n->d->inputs[0])};
    const uint64_t h =
        hki_hash(hki_spec_hash(HKI_HASH_INIT, &n->d->spec), what, sizeof what);
    HKI_TRY(c->lender->declare(c->lender->user, h, c->units, &seed));
    s->seed = (int64_t)seed;
    s->declared = true;
    return HK_OK;
}

// Waits until another range may be held, unless some are open: those go on.
static hk_status wait_for_room(hki_node *n, bool *room) {
    const config *const c = n->d->config;
    const state *const s = n->state;
    *room = true;
    while (is_lent(c) &&
           !hki_lender_room(c->lender, s->n > 0 ? 0 : hki_deadline(ROOM_MS))) {
        if (s->n > 0) {
            *room = false;
            return HK_OK;
        }
        HKI_TRY(hki_run_check(n->run));
    }
    return HK_OK;
}

// A center that does not answer is asked again: after a while there is a range
// of this worker's own. *used: examples that come no more.
static hk_status take(hki_node *n, hki_lease *out, int64_t *used) {
    const config *const c = n->d->config;
    state *const s = n->state;
    *used = 0;
    if (!is_lent(c)) {
        *out = (hki_lease){.epoch = (int64_t)n->pass - 1};
        return share_range(c, s->next, out) ? (s->next++, HK_OK) : HK_E_END;
    }
    HKI_TRY(declare(n));
    hk_status e;
    do {
        HKI_TRY(hki_run_check(n->run));
        e = c->lender->take(c->lender->user, out, used);
    } while (e == HK_E_TIMEOUT);
    return e == HK_OK ? hki_lender_open(c->lender, out, *used) : e;
}

// ---- ranges at work --------------------------------------------------------

static void close_slot(slot *s) {
    hki_node_close(s->node);
    hk_dataset_release(s->d);
    *s = (slot){0};
}

static hk_dataset *examples_of(const hki_node *n, const hki_lease *lease) {
    const config *const c = n->d->config;
    const state *const s = n->state;
    hk_dataset *d =
        hki_data_lease(hk_dataset_retain(n->d->inputs[0]), lease, s->seed);
    if (c->mixes && c->shuffle > 0 && c->seed != HK_SEED_NONE) {
        const int64_t key[] = {lease->epoch, lease->begin, s->seed};
        const uint64_t seed = hki_key("range", HKI_COUNT(key), key);
        d = hk_data_shuffle(d, HKI_MAX(c->shuffle / most_open(c), 1),
                            (int64_t)(seed >> 2), 0);
    }
    return d;
}

static hk_status open_node(const hki_node *n, slot *s) {
    s->d = examples_of(n, &s->lease);
    HKI_TRY(hk_dataset_status(s->d));
    HKI_TRY(hki_node_open(s->d, n->run, &s->node));
    return hki_node_start(s->node);
}

// Those that were used by somebody else.
static hk_status pass_over(slot *s, int64_t used) {
    for (hki_item item; used > 0; used--) {
        const hk_status e = hki_node_next(s->node, &item);
        if (e == HK_E_END)
            return HK_OK;
        HKI_TRY(e);
        hki_item_free(s->node, &item);
    }
    return HK_OK;
}

static hk_status open_slot(hki_node *n) {
    state *const st = n->state;
    slot s = {0};
    int64_t used;
    const hk_status e = take(n, &s.lease, &used);
    if (e == HK_E_END) {
        st->ended = true;
        return HK_OK;
    }
    HKI_TRY(e);
    HKI_TRY_OR(open_node(n, &s), close_slot(&s));
    HKI_TRY_OR(pass_over(&s, used), close_slot(&s));
    st->slots[st->n++] = s;
    return HK_OK;
}

static hk_status fill(hki_node *n) {
    const int most = most_open(n->d->config);
    state *const s = n->state;
    while (s->n < most && !s->ended) {
        bool room;
        HKI_TRY(wait_for_room(n, &room));
        if (!room)
            return HK_OK;
        HKI_TRY(open_slot(n));
    }
    return HK_OK;
}

// ---- the node --------------------------------------------------------------

static void close_slots(state *s) {
    while (s->n > 0)
        close_slot(&s->slots[--s->n]);
}

static void close_node(hki_node *n) {
    close_slots(n->state);
}

static hk_status open_state(hki_node *n) {
    state *const s = n->state;
    s->seed = ((const config *)n->d->config)->seed;
    return HK_OK;
}

static hk_status start(hki_node *n) {
    state *const s = n->state;
    close_slots(s);
    s->next = 0;
    s->ended = false;
    hki_rng_init(&s->rng, (uint64_t)s->seed, n->pass);
    return HK_OK;
}

// The range at its end makes room for another.
static void end_slot(const config *c, state *s, int i) {
    if (is_lent(c))
        hki_lender_end(c->lender, s->slots[i].lease.id);
    close_slot(&s->slots[i]);
    s->slots[i] = s->slots[--s->n];
}

static hk_status pull(hki_node *n, hki_item *items, int64_t want,
                      int64_t *got) {
    const config *const c = n->d->config;
    state *const s = n->state;
    for (;;) {
        HKI_TRY(fill(n));
        if (s->n == 0)
            return HK_E_END;
        const int i =
            c->mixes ? (int)(hki_rng_u32(&s->rng) % (uint32_t)s->n) : 0;
        const hk_status e =
            hki_node_pull(s->slots[i].node, items, c->mixes ? 1 : want, got);
        if (e == HK_E_END) {
            end_slot(c, s, i);
            continue;
        }
        HKI_TRY(e);
        return is_lent(c)
                   ? hki_lender_give(c->lender, s->slots[i].lease.id, *got)
                   : HK_OK;
    }
}

// ---- position --------------------------------------------------------------

static void save(hki_node *n, hki_saver *w) {
    state *const s = n->state;
    hki_save_i64(w, s->next);
    hki_save_u64(w, s->ended);
    hki_save_rng(w, &s->rng);
    hki_save_i64(w, s->n);
    for (int i = 0; i < s->n; i++) {
        hki_save_i64(w, s->slots[i].lease.begin);
        hki_save_i64(w, s->slots[i].lease.end);
        hki_node_save(s->slots[i].node, w);
    }
}

static hk_status restore_slot(hki_node *n, hki_restorer *r) {
    const config *const c = n->d->config;
    state *const st = n->state;
    slot s = {.lease = {.epoch = (int64_t)n->pass - 1}};
    s.lease.begin =
        hki_restore_i64(r, "the begin of a leased range", 0, c->units);
    s.lease.end = hki_restore_i64(r, "the end of a leased range", s.lease.begin,
                                  c->units);
    HKI_TRY(r->status);
    HKI_TRY_OR(open_node(n, &s), close_slot(&s));
    HKI_TRY_OR(hki_node_restore(s.node, r), close_slot(&s));
    st->slots[st->n++] = s;
    return HK_OK;
}

static hk_status restore(hki_node *n, hki_restorer *r) {
    const config *const c = n->d->config;
    state *const s = n->state;
    if (is_lent(c))
        return hki_restore_bad(r, "leased data has no position that can be "
                                  "saved; the center keeps it");
    s->next = hki_restore_i64(r, "the number of begun ranges", 0, RANGES);
    s->ended = hki_restore_i64(r, "ended", 0, 1) == 1;
    hki_restore_rng(r, &s->rng);
    const int64_t open =
        hki_restore_i64(r, "the number of open ranges", 0, most_open(c));
    HKI_TRY(r->status);
    if (open > 0 && n->pass < 1)
        return hki_restore_bad(r, "ranges before the first pass");
    for (int64_t i = 0; i < open; i++)
        HKI_TRY(restore_slot(n, r));
    return HK_OK;
}

static const hki_node_ops ops = {
    .name = "leased",
    .state_size = sizeof(state),
    .open = open_state,
    .close = close_node,
    .start = start,
    .pull = pull,
    .save = save,
    .restore = restore,
    .saves_inputs = true, // it is not at work: every range has nodes of its own
};

// ---- making ----------------------------------------------------------------

int64_t hk_dataset_unit_count(const hk_dataset *d) {
    return hki_dataset_good(d) ? hki_data_units(d) : -1;
}

int hk_lender_divides(const hk_lender *l, const hk_dataset *d) {
    const int64_t units = hk_dataset_unit_count(d);
    return l != NULL && units > 0 && units >= (int64_t)l->parts;
}

static hk_status configure(const hk_dataset *d, hk_lender *lender, config *c) {
    if (lender == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "leased: the function that leases ranges is NULL");
    c->units = hki_data_units(d);
    if (c->units < 0)
        return hki_fail(HK_E_UNSUPPORTED,
                        "leased: this data set cannot be divided: it has to "
                        "consist of arrays, or of files with an index");
    c->mixes = c->units != d->count;
    lender->is_used = true;
    return HK_OK;
}

// Of a share the number of its examples is known where units are examples.
static int64_t count_of(const config *c) {
    hki_lease r = {0};
    if (is_lent(c) || c->mixes)
        return -1;
    return share_range(c, 0, &r) ? r.end - r.begin : 0;
}

hk_dataset *hk_data_leased(hk_dataset *d, hk_lender *lender, int64_t seed,
                           int64_t shuffle) {
    config c = {.lender = lender, .seed = seed, .shuffle = shuffle};
    hk_status s = hk_dataset_status(d);
    if (s == HK_OK)
        s = configure(d, lender, &c);
    if (s != HK_OK)
        return hki_dataset_fail(&d, 1, s);
    const int64_t key[] = {is_lent(&c), lender->part, lender->parts, seed,
                           c.mixes ? shuffle : 0};
    return hki_dataset_make(&(hki_dataset_desc){
        .ops = &ops,
        .config = &c,
        .config_size = sizeof c,
        .inputs = &d,
        .n_inputs = 1,
        .count = count_of(&c),
        .key = hki_key("leased", HKI_COUNT(key), key),
        .flags = HKI_DATA_PASSES,
    });
}
