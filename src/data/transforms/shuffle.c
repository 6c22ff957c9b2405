// shuffle.c - TensorFlow's shuffle, to the bit.
//
// The buffer is filled before the first output and topped up before each one.
// An output takes the element at offset r mod n of the n buffered ones, r being
// the next word of the pass's stream, and the first buffered element moves into
// the gap. With reshuffling a pass draws its pair of seeds from a stream of the
// dataset when it is started, used or not; a pass that has seen the end of its
// input starts that input once more, as TensorFlow does, which is why a
// reshuffling input below another shuffle uses two pairs an epoch.
#include <unistd.h>
#include "data/core/pipeline.h"

#define GRAPH_SEED 87654321 // TensorFlow's default
#define SEED_LIMIT INT64_C(0x7fffffff)
#define FIRST_ROOM 64
#define CHUNK 64 // items taken from the input at once

typedef struct config {
    int64_t buffer_size;
    uint64_t seed, seed2;
    bool reshuffle;
    bool random; // no seed given: a new order in every process
} config;

typedef struct state {
    uint64_t seed, seed2; // of the dataset, as chosen
    hki_rng seeds;        // pairs of the passes, when reshuffling
    hki_rng rng;          // this pass
    bool begun;           // the input was started
    bool ended;           // the input is at its end
    hki_fault fault;      // of the input, not told yet
    hki_item *ring;       // room: a power of two
    size_t room, first, used;
} state;

// ---- the ring --------------------------------------------------------------

static hki_item *at(state *s, size_t i) {
    return &s->ring[(s->first + i) & (s->room - 1)];
}

static hk_status push(state *s, const hki_item *item) {
    if (s->used == s->room) {
        hki_item *grown = NULL;
        const size_t room = s->room == 0 ? FIRST_ROOM : 2 * s->room;
        HKI_TRY(hki_alloc_array(room, sizeof *grown, &grown));
        for (size_t i = 0; i < s->used; i++)
            grown[i] = *at(s, i);
        hki_free(s->ring);
        s->ring = grown;
        s->room = room;
        s->first = 0;
    }
    *at(s, s->used++) = *item;
    return HK_OK;
}

// Keeps the items, which are the caller's no more, also after a failure.
static hk_status push_all(hki_node *n, hki_item *items, int64_t count) {
    state *const s = n->state;
    hk_status e = HK_OK;
    for (int64_t i = 0; i < count; i++) {
        if (e == HK_OK)
            e = hki_item_keep(n->inputs[0], &items[i]);
        if (e == HK_OK)
            e = push(s, &items[i]);
        if (e != HK_OK)
            hki_item_free(n, &items[i]);
    }
    return e;
}

static void empty(hki_node *n) {
    state *const s = n->state;
    for (size_t i = 0; i < s->used; i++)
        hki_item_free(n, at(s, i));
    s->used = s->first = 0;
}

// ---- passes ----------------------------------------------------------------

static hk_status open_node(hki_node *n) {
    const config *const c = n->d->config;
    state *const s = n->state;
    uint64_t pair[2] = {c->seed, c->seed2};
    if (c->random && getentropy(pair, sizeof pair) != 0)
        return hki_fail(HK_E_IO, "shuffle: the system provides no random seed");
    s->seed = pair[0];
    s->seed2 = pair[1];
    hki_rng_init(&s->seeds, s->seed, s->seed2);
    return HK_OK;
}

static void close_node(hki_node *n) {
    state *const s = n->state;
    empty(n);
    hki_free(s->ring);
}

static hk_status start(hki_node *n) {
    const config *const c = n->d->config;
    state *const s = n->state;
    empty(n);
    s->begun = s->ended = false;
    s->fault.status = HK_OK;
    if (c->reshuffle) {
        const uint32_t a = hki_rng_u32(&s->seeds);
        const uint32_t b = hki_rng_u32(&s->seeds);
        hki_rng_init(&s->rng, a, b);
    } else {
        hki_rng_init(&s->rng, s->seed, s->seed2);
    }
    return HK_OK;
}

// Tops the buffer up, the first time to its full size.
static hk_status fill(hki_node *n) {
    const config *const c = n->d->config;
    state *const s = n->state;
    hki_node *const input = n->inputs[0];
    hki_item fresh[CHUNK];
    while (!s->ended && s->used < (uint64_t)c->buffer_size) {
        const int64_t room = c->buffer_size - (int64_t)s->used;
        int64_t got = 0;
        HKI_TRY(hki_run_check(n->run));
        const hk_status e =
            hki_node_pull(input, fresh, HKI_MIN(room, CHUNK), &got);
        if (e == HK_E_END) {
            s->ended = true;
            return hki_node_start(input); // see the top of the file
        }
        HKI_TRY(e);
        HKI_TRY(push_all(n, fresh, got));
    }
    return HK_OK;
}

// Takes the item at this offset out of the ring.
static void emit(state *s, size_t chosen, hki_item *out) {
    hki_item *const gap = at(s, chosen);
    *out = *gap;
    *gap = *at(s, 0);
    s->first = (s->first + 1) & (s->room - 1);
    s->used--;
}

// A word's place among n items. 32-bit division is several times as fast.
static size_t offset(uint32_t word, size_t n) {
    return n <= UINT32_MAX ? word % (uint32_t)n : word;
}

// Places of the next n outputs, asked for before they are read. The first has
// `used` items to choose from, the others as many or one less each.
static void choose(state *s, size_t used, size_t less, int64_t n,
                   size_t *chosen) {
    for (size_t i = 0; i < (size_t)n; i++) {
        chosen[i] = offset(hki_rng_u32(&s->rng), used - i * less);
        __builtin_prefetch(at(s, i + chosen[i]), 1);
    }
}

// Behind the end of the input: up to n of what is left.
static int64_t drain(state *s, hki_item *out, int64_t n) {
    size_t chosen[CHUNK];
    n = HKI_MIN(n, HKI_MIN(CHUNK, (int64_t)s->used));
    choose(s, s->used, 1, n, chosen);
    for (int64_t i = 0; i < n; i++)
        emit(s, chosen[i], &out[i]);
    return n;
}

// Makes the items, which are the caller's no more, the node's own.
static hk_status keep(hki_node *n, hki_item *items, int64_t count) {
    hk_status e = HK_OK;
    for (int64_t i = 0; i < count && !n->rows && e == HK_OK; i++)
        e = hki_item_keep(n->inputs[0], &items[i]);
    for (int64_t i = 0; i < count && e != HK_OK; i++)
        hki_item_free(n, &items[i]);
    return e;
}

// Outputs behind the first, as many as the input has at hand: every item that
// goes in brings another one out.
static hk_status exchange(hki_node *n, hki_item *items, int64_t want,
                          int64_t *got) {
    state *const s = n->state;
    hki_item fresh[CHUNK];
    size_t chosen[CHUNK];
    while (*got < want) {
        const int64_t ask = HKI_MIN(want - *got, CHUNK);
        int64_t more = 0;
        const hk_status e = hki_node_pull(n->inputs[0], fresh, ask, &more);
        if (e == HK_E_END) {
            s->ended = true;
            return hki_node_start(n->inputs[0]);
        }
        HKI_TRY(e);
        HKI_TRY(keep(n, fresh, more));
        choose(s, s->used + 1, 0, more, chosen);
        for (int64_t i = 0; i < more; i++) { // room: there was one more before
            *at(s, s->used++) = fresh[i];
            emit(s, chosen[i], &items[(*got)++]);
        }
    }
    return HK_OK;
}

static hk_status pull(hki_node *n, hki_item *items, int64_t want,
                      int64_t *got) {
    state *const s = n->state;
    HKI_TRY(hki_fault_take(&s->fault));
    if (!s->begun) {
        s->begun = true;
        HKI_TRY(hki_node_start(n->inputs[0]));
    }
    HKI_TRY(fill(n));
    if (s->used == 0)
        return HK_E_END;
    *got = drain(s, items, s->ended ? want : 1);
    if (s->ended)
        return HK_OK;
    // A fault behind the first items is told when those are gone.
    const hk_status e = exchange(n, items, want, got);
    if (e != HK_OK)
        hki_fault_set(&s->fault, e);
    return HK_OK;
}

// ---- position --------------------------------------------------------------

static void save(hki_node *n, hki_saver *w) {
    state *const s = n->state;
    hki_save_u64(w, s->seed);
    hki_save_u64(w, s->seed2);
    hki_save_rng(w, &s->seeds);
    hki_save_rng(w, &s->rng);
    hki_save_u64(w, s->begun);
    hki_save_u64(w, s->ended);
    hki_save_fault(w, &s->fault);
    hki_save_u64(w, s->used);
    for (size_t i = 0; i < s->used; i++)
        hki_save_item(w, n->inputs[0], at(s, i));
}

static hk_status restore(hki_node *n, hki_restorer *r) {
    const config *const c = n->d->config;
    state *const s = n->state;
    s->seed = hki_restore_u64(r);
    s->seed2 = hki_restore_u64(r);
    hki_restore_rng(r, &s->seeds);
    hki_restore_rng(r, &s->rng);
    s->begun = hki_restore_i64(r, "begun", 0, 1) == 1;
    s->ended = hki_restore_i64(r, "ended", 0, 1) == 1;
    hki_restore_fault(r, &s->fault);
    const int64_t used = hki_restore_i64(r, "the number of buffered elements",
                                         0, c->buffer_size);
    HKI_TRY(r->status);
    for (int64_t i = 0; i < used; i++) {
        hki_item item;
        HKI_TRY(hki_restore_item(r, n->inputs[0], &item));
        HKI_TRY_OR(push(s, &item), hki_item_free(n, &item));
    }
    return HK_OK;
}

static const hki_node_ops ops = {
    .name = "shuffle",
    .state_size = sizeof(state),
    .open = open_node,
    .close = close_node,
    .start = start,
    .pull = pull,
    .save = save,
    .restore = restore,
};

// ---- making ----------------------------------------------------------------

// The pair of seeds that TensorFlow would take.
static void choose_seeds(config *c, int64_t seed) {
    const int64_t both = INT64_C(1) << 62;
    // Python's modulo: the result is never negative.
    const int64_t rest = seed % SEED_LIMIT;
    c->seed = GRAPH_SEED;
    c->seed2 = (uint64_t)(rest < 0 ? rest + SEED_LIMIT : rest);
    if (seed < both)
        return;
    c->seed = (uint64_t)(seed - both) >> 31;
    c->seed2 = (uint64_t)(seed & SEED_LIMIT);
    // A pair of zeros means "choose one" further down in TensorFlow.
    if (c->seed == 0 && c->seed2 == 0)
        c->seed2 = (uint64_t)SEED_LIMIT;
}

hk_dataset *hk_data_shuffle(hk_dataset *d, int64_t buffer_size, int64_t seed,
                            int reshuffle_each_iteration) {
    config c = {
        .buffer_size = buffer_size,
        .reshuffle = reshuffle_each_iteration != 0,
        .random = seed == HK_SEED_NONE,
    };
    hk_status s = HK_OK;
    choose_seeds(&c, seed);
    if (buffer_size < 1)
        s = hki_fail(
            HK_E_INVALID_ARG,
            "shuffle: the buffer has %lld elements; at least 1 is needed",
            (long long)buffer_size);
    const int64_t key[] = {c.buffer_size, (int64_t)c.seed, (int64_t)c.seed2,
                           c.reshuffle, c.random};
    const hki_dataset_desc desc = {
        .ops = &ops,
        .config = &c,
        .config_size = sizeof c,
        .inputs = &d,
        .n_inputs = 1,
        .count = hk_dataset_count(d),
        .key = hki_key("shuffle", HKI_COUNT(key), key),
        .flags = HKI_DATA_PASSES | HKI_DATA_KEEPS,
    };
    return hki_dataset_finish(&desc, s);
}
