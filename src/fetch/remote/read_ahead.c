// read_ahead.c - a file on another machine, read before it is asked for.
//
// Blocks of the file, one behind the other, lie in a ring; helper threads fetch
// them side by side. Reading begins with a small block. The farther it goes on
// without a jump, the farther the helpers run ahead: whoever wants a few bytes
// here and there pays for little more, whoever reads on never waits for the
// way there and back.
//
// All requests are made by helpers: the reader waits for its block, and hears
// of a stop meanwhile. One lock guards everything but the bytes of blocks that
// are being fetched.
#include "fetch/remote/http.h"

#define FIRST_BYTES ((size_t)64 << 10)
#define MOST_BYTES ((size_t)4 << 20)     // of a block
#define AHEAD_BYTES ((uint64_t)24 << 20) // of all blocks not yet read
#define AHEAD_TIMES 16                   // what was read since the last jump
#define BLOCKS 8
#define HELPERS 4
#define LOOK_MS 100 // between two looks at the watch

typedef enum block_state {
    WANTED = 0,
    COMING = 1,
    THERE = 2,
    FAILED = 3
} block_state;

typedef struct block {
    uint64_t offset;
    size_t size;
    uint8_t *bytes; // MOST_BYTES, of which the system gives what is written to
    block_state state;
    hki_fault fault;
} block;

typedef struct helper {
    hki_ahead *a;
    hki_http *http;
    hki_thread *thread;
} helper;

struct hki_ahead {
    hki_target *target;
    hki_watch watch;
    hki_mutex lock;
    hki_cond work, ready;
    hki_version version;
    block blocks[BLOCKS]; // in the order of the file
    size_t first, used;
    uint64_t position;
    uint64_t start; // of reading, since the last jump
    uint64_t until; // nothing behind is wanted
    uint64_t next;  // behind the last block of the ring
    helper helpers[HELPERS];
    size_t n_helpers, n_idle;
    bool ending;
};

static block *at(hki_ahead *a, size_t i) {
    return &a->blocks[(a->first + i) % BLOCKS];
}

// ---- helpers ---------------------------------------------------------------

static block *next_wanted(hki_ahead *a) {
    for (size_t i = 0; i < a->used; i++)
        if (at(a, i)->state == WANTED)
            return at(a, i);
    return NULL;
}

// Fetches the block; the lock is held, but not meanwhile.
static void fetch(helper *me, block *b) {
    hki_ahead *const a = me->a;
    hki_version version = a->version;
    hki_piece p = {.offset = b->offset,
                   .size = b->size,
                   .bytes = b->bytes,
                   .capacity = MOST_BYTES};
    b->state = COMING;
    hki_http_ready(me->http);
    hki_mutex_unlock(&a->lock);
    const hk_status s = hki_http_get(me->http, a->target, &version, &p);
    hki_mutex_lock(&a->lock);
    if (!a->version.known && s == HK_OK) // by the first block, alone
        a->version = version;
    hki_input_count(p.got);
    hki_fault_set(&b->fault, s);
    b->size = p.got;
    b->state = s == HK_OK ? THERE : FAILED;
    hki_cond_broadcast(&a->ready);
}

static void helper_main(void *arg) {
    helper *const me = arg;
    hki_ahead *const a = me->a;
    HKI_LOCKED(&a->lock);
    while (!a->ending) {
        block *const b = next_wanted(a);
        if (b != NULL) {
            fetch(me, b);
        } else {
            a->n_idle++;
            hki_cond_wait_forever(&a->work, &a->lock);
            a->n_idle--;
        }
    }
}

static hk_status start_helper(hki_ahead *a) {
    helper *const h = &a->helpers[a->n_helpers];
    h->a = a;
    HKI_TRY(hki_http_take(&h->http));
    const hk_status s =
        hki_thread_start(helper_main, h, -1, "hooke-fetch", &h->thread);
    if (s != HK_OK) {
        hki_http_give(h->http);
        h->http = NULL;
        return s;
    }
    a->n_helpers++;
    return HK_OK;
}

// ---- the ring --------------------------------------------------------------

// Where reading ahead ends. Who reads behind what he wanted may do so.
static uint64_t far_end(const hki_ahead *a) {
    const uint64_t size = a->version.known ? a->version.size : FIRST_BYTES;
    return a->position < a->until ? HKI_MIN(size, a->until) : size;
}

// A helper for one more block, if all are busy. One is enough to go on.
static hk_status call_helper(hki_ahead *a) {
    size_t wanted = 0;
    for (size_t i = 0; i < a->used; i++)
        wanted += at(a, i)->state == WANTED;
    if (wanted < a->n_idle || a->n_helpers == HELPERS)
        return HK_OK;
    const hk_status s = start_helper(a);
    return a->n_helpers > 0 ? HK_OK : s;
}

// Blocks grow with the way that was made, slowly enough that four of them come
// before what is there has been read.
static size_t next_size(const hki_ahead *a) {
    const uint64_t grown = (a->next - a->start) / HELPERS;
    const uint64_t size =
        HKI_MIN(HKI_MAX(grown, (uint64_t)FIRST_BYTES), (uint64_t)MOST_BYTES);
    return (size_t)HKI_MIN(size, far_end(a) - a->next);
}

static hk_status add_block(hki_ahead *a) {
    block *const b = at(a, a->used);
    HKI_TRY(call_helper(a));
    if (b->bytes == NULL)
        HKI_TRY(hki_alloc_array(MOST_BYTES, 1, &b->bytes));
    b->offset = a->next;
    b->size = next_size(a);
    b->state = WANTED;
    a->used++;
    a->next += b->size;
    hki_cond_signal(&a->work);
    return HK_OK;
}

static uint64_t reach(const hki_ahead *a) {
    const uint64_t read = a->position - a->start;
    const uint64_t ahead = HKI_MIN(
        HKI_MAX(read * AHEAD_TIMES, (uint64_t)FIRST_BYTES), AHEAD_BYTES);
    return HKI_MIN(a->position + ahead, far_end(a));
}

// Lets go of what was read and asks for what comes. What cannot be asked for
// is told when it is needed.
static hk_status move_on(hki_ahead *a) {
    while (a->used > 0 && at(a, 0)->state == THERE &&
           at(a, 0)->offset + at(a, 0)->size <= a->position) {
        a->first = (a->first + 1) % BLOCKS;
        a->used--;
    }
    hk_status s = HK_OK;
    while (s == HK_OK && a->used < BLOCKS && a->next < reach(a))
        s = add_block(a);
    return a->used > 0 ? HK_OK : s;
}

// Waits for a change; the lock is held.
static void await(hki_ahead *a) {
    hki_cond_wait(&a->ready, &a->lock,
                  hki_now_ns() + LOOK_MS * INT64_C(1000000));
}

// Until the first block is there. Its own deadline is the end of that.
static hk_status await_first(hki_ahead *a) {
    const block *const b = at(a, 0);
    while (b->state == WANTED || b->state == COMING) {
        await(a);
        if (a->watch.check != NULL)
            HKI_TRY(a->watch.check(a->watch.user));
    }
    return b->state == FAILED ? hki_fault_raise(&b->fault) : HK_OK;
}

// Forgets all blocks; the lock is held.
static void clear(hki_ahead *a) {
    bool coming = true;
    while (coming) {
        coming = false;
        for (size_t i = 0; i < a->used; i++) {
            coming |= at(a, i)->state == COMING;
            if (at(a, i)->state == WANTED)
                at(a, i)->state = FAILED;
        }
        for (size_t i = 0; coming && i < a->n_helpers; i++)
            hki_http_interrupt(a->helpers[i].http);
        if (coming)
            await(a);
    }
    a->used = 0;
}

// ---- the file --------------------------------------------------------------

static hk_status read_some(hki_ahead *a, void *out, size_t capacity,
                           size_t *got) {
    *got = 0;
    if (a->version.known && a->position >= a->version.size)
        return HK_OK;
    do { // blocks that were jumped over go as soon as they are there
        HKI_TRY(move_on(a));
        HKI_TRY(await_first(a));
    } while (at(a, 0)->offset + at(a, 0)->size <= a->position);
    const block *const b = at(a, 0);
    const size_t skip = (size_t)(a->position - b->offset);
    const size_t n = HKI_MIN(b->size - skip, capacity);
    memcpy(out, b->bytes + skip, n);
    a->position += n;
    *got = n;
    (void)move_on(a); // told by the next read
    return HK_OK;
}

hk_status hki_ahead_read(hki_ahead *a, void *out, size_t capacity,
                         size_t *got) {
    HKI_LOCKED(&a->lock);
    return read_some(a, out, capacity, got);
}

hk_status hki_ahead_seek(hki_ahead *a, uint64_t position) {
    if (position > a->version.size)
        return hki_fail(HK_E_DATA,
                        "%s: has %llu bytes, but reading was to continue at "
                        "byte %llu; the file is incomplete or was changed",
                        a->target->path, (unsigned long long)a->version.size,
                        (unsigned long long)position);
    HKI_LOCKED(&a->lock);
    const bool near = a->used > 0 && position >= at(a, 0)->offset &&
                      position < a->next && at(a, 0)->state != FAILED;
    if (!near) {
        clear(a);
        a->start = a->next = position;
    }
    a->position = position;
    a->start = HKI_MIN(a->start, position);
    return HK_OK;
}

void hki_ahead_until(hki_ahead *a, uint64_t end) {
    HKI_LOCKED(&a->lock);
    a->until = end;
}

// Set when the file is opened, and the same ever after.
const hki_version *hki_ahead_version(const hki_ahead *a) {
    return &a->version;
}

// ---- open and close --------------------------------------------------------

// The first block, which says what kind of file it is.
static hk_status begin(hki_ahead *a) {
    HKI_LOCKED(&a->lock);
    hk_status s = move_on(a);
    if (s == HK_OK)
        s = await_first(a);
    a->next = at(a, 0)->size;
    return s;
}

hk_status hki_ahead_open(const char *path, const hki_watch *watch,
                         hki_ahead **out) {
    hki_ahead *a;
    HKI_TRY(hki_zalloc_array(1, sizeof *a, &a));
    hki_mutex_init(&a->lock);
    hki_cond_init(&a->work);
    hki_cond_init(&a->ready);
    a->until = UINT64_MAX;
    if (watch != NULL)
        a->watch = *watch;
    HKI_TRY_OR(hki_target_make(path, &a->target), hki_ahead_close(a));
    HKI_TRY_OR(begin(a), hki_ahead_close(a));
    *out = a;
    return HK_OK;
}

static void end_helpers(hki_ahead *a) {
    hki_mutex_lock(&a->lock);
    a->ending = true;
    for (size_t i = 0; i < a->n_helpers; i++)
        hki_http_interrupt(a->helpers[i].http);
    hki_cond_broadcast(&a->work);
    hki_mutex_unlock(&a->lock);
    for (size_t i = 0; i < a->n_helpers; i++) {
        hki_thread_stop(a->helpers[i].thread);
        hki_http_give(a->helpers[i].http);
    }
}

void hki_ahead_close(hki_ahead *a) {
    if (a == NULL)
        return;
    end_helpers(a);
    hki_cond_deinit(&a->ready);
    hki_cond_deinit(&a->work);
    hki_mutex_deinit(&a->lock);
    for (size_t i = 0; i < BLOCKS; i++)
        hki_free(a->blocks[i].bytes);
    hki_target_destroy(a->target);
    hki_free(a);
}
