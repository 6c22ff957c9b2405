// lender.c - what one worker was lent, and how much of it was used.
//
// Examples are given out by the thread that reads ahead and used by the one
// that trains, in the same order. So it is enough to know of which ranges the
// examples between the two were: a queue of (range, how many).
#include "data/core/pipeline.h"

typedef struct held {
    hki_lease lease;
    int64_t given, used; // examples of it, from its beginning
    bool ended;          // no more are given
} held;

typedef struct stretch {
    uint64_t id;
    int64_t n;
} stretch;

#define HELD 2             // ranges: one in use, one ahead
#define WAITS_NS 100000000 // for more than was given, before it gets more

struct hki_lender_books {
    hki_mutex lock; // guards all of it
    hki_cond changed;
    int64_t waits_for, waits_ns; // examples that the trainer waits for; 0: none
    held *held;
    size_t n_held, held_room;
    stretch *queue; // from `first` on
    size_t first, n, room;
};

hk_status hki_lender_init(hk_lender *l) {
    hki_lender_books *b;
    HKI_TRY(hki_zalloc_array(1, sizeof *b, &b));
    hki_mutex_init(&b->lock);
    hki_cond_init(&b->changed);
    l->books = b;
    return HK_OK;
}

void hki_lender_deinit(hk_lender *l) {
    hki_lender_books *const b = l->books;
    if (b == NULL)
        return;
    hki_cond_deinit(&b->changed);
    hki_mutex_deinit(&b->lock);
    hki_free(b->held);
    hki_free(b->queue);
    hki_free(b);
    l->books = NULL;
}

static held *find(hki_lender_books *b, uint64_t id) {
    for (size_t i = 0; i < b->n_held; i++)
        if (b->held[i].lease.id == id)
            return &b->held[i];
    return NULL;
}

// ---- the reader's end ------------------------------------------------------

static hk_status open_lease(hki_lender_books *b, const hki_lease *lease,
                            int64_t used) {
    HKI_TRY(hki_list_reserve(&b->held, b->n_held + 1, &b->held_room,
                             sizeof *b->held));
    b->held[b->n_held++] = (held){.lease = *lease, .given = used, .used = used};
    return HK_OK;
}

hk_status hki_lender_open(hk_lender *l, const hki_lease *lease, int64_t used) {
    HKI_LOCKED(&l->books->lock);
    return open_lease(l->books, lease, used);
}

// Room for one more stretch; those that are gone make room first.
static hk_status make_room(hki_lender_books *b) {
    if (b->first + b->n < b->room)
        return HK_OK;
    if (b->n > 0)
        memmove(b->queue, b->queue + b->first, b->n * sizeof *b->queue);
    b->first = 0;
    return hki_list_reserve(&b->queue, 2 * b->n + 1, &b->room,
                            sizeof *b->queue);
}

static hk_status give(hki_lender_books *b, uint64_t id, int64_t n) {
    if (b->n > 0 && b->queue[b->first + b->n - 1].id == id) {
        b->queue[b->first + b->n - 1].n += n;
    } else {
        HKI_TRY(make_room(b));
        b->queue[b->first + b->n++] = (stretch){id, n};
    }
    held *const h = find(b, id);
    if (h != NULL)
        h->given += n;
    return HK_OK;
}

hk_status hki_lender_give(hk_lender *l, uint64_t id, int64_t n) {
    HKI_LOCKED(&l->books->lock);
    return give(l->books, id, n);
}

void hki_lender_end(hk_lender *l, uint64_t id) {
    HKI_LOCKED(&l->books->lock);
    held *const h = find(l->books, id);
    if (h != NULL)
        h->ended = true;
}

// A batch may be longer than two ranges: whoever waits for it gets as many as
// it takes. Should some of what is given not arrive, that is more, after a
// while.
static int64_t more_is_due(const hki_lender_books *b) {
    int64_t given = 0;
    for (size_t i = 0; i < b->n; i++)
        given += b->queue[b->first + i].n;
    return b->waits_for == 0      ? INT64_MAX
           : given < b->waits_for ? 0
                                  : b->waits_ns + WAITS_NS;
}

bool hki_lender_room(hk_lender *l, int64_t deadline_ns) {
    hki_lender_books *const b = l->books;
    HKI_LOCKED(&b->lock);
    for (;;) {
        const int64_t now = hki_now_ns();
        const int64_t due = more_is_due(b);
        if (b->n_held < HELD || now >= due)
            return true;
        if (now >= deadline_ns)
            return false;
        (void)hki_cond_wait(&b->changed, &b->lock, HKI_MIN(due, deadline_ns));
    }
}

// ---- the trainer's end -----------------------------------------------------

void hki_lender_wait(hk_lender *l, int64_t n) {
    hki_lender_books *const b = l->books;
    if (b == NULL)
        return;
    HKI_LOCKED(&b->lock);
    b->waits_for = n;
    b->waits_ns = hki_now_ns();
    if (n > 0)
        hki_cond_broadcast(&b->changed);
}

static void use(hki_lender_books *b, int64_t n) {
    while (n > 0 && b->n > 0) {
        stretch *const s = &b->queue[b->first];
        const int64_t some = HKI_MIN(n, s->n);
        held *const h = find(b, s->id);
        if (h != NULL)
            h->used += some;
        s->n -= some;
        n -= some;
        if (s->n == 0) {
            b->first++;
            b->n--;
        }
    }
}

void hki_lender_use(hk_lender *l, int64_t n) {
    HKI_LOCKED(&l->books->lock);
    use(l->books, n);
}

bool hki_lender_finished(hk_lender *l, uint64_t *id) {
    hki_lender_books *const b = l->books;
    HKI_LOCKED(&b->lock);
    for (size_t i = 0; i < b->n_held; i++) {
        const held *const h = &b->held[i];
        if (!h->ended || h->used < h->given)
            continue;
        *id = h->lease.id;
        b->held[i] = b->held[--b->n_held];
        hki_cond_broadcast(&b->changed);
        return true;
    }
    return false;
}

bool hki_lender_release(hk_lender *l, uint64_t *id, int64_t *used) {
    hki_lender_books *const b = l->books;
    HKI_LOCKED(&b->lock);
    const bool any = b->n_held > 0;
    if (any) {
        const held *const h = &b->held[--b->n_held];
        *id = h->lease.id;
        *used = h->ended && h->used >= h->given ? INT64_MAX : h->used;
    }
    b->first = b->n = 0;
    return any;
}
