// wait_set.c - waits for several connections, listeners and wake objects.
#include "transport/conn.h"

// A place without waitables is ready at once.
struct hki_wait_set {
    hki_waitable *waitable;
    size_t *first;      // of each place, and the end of the last one
    size_t n, capacity; // places
    bool at_once;       // one of them is
};

hk_status hki_wait_set_create(size_t capacity, hki_wait_set **out) {
    hki_wait_set *s;
    HKI_TRY(hki_zalloc_array(1, sizeof *s, &s));
    s->capacity = capacity;
    HKI_TRY_OR(hki_alloc_array(capacity, HKI_CONN_WAITS * sizeof *s->waitable,
                               &s->waitable),
               hki_wait_set_destroy(s));
    HKI_TRY_OR(hki_zalloc_array(capacity + 1, sizeof *s->first, &s->first),
               hki_wait_set_destroy(s));
    *out = s;
    return HK_OK;
}

void hki_wait_set_destroy(hki_wait_set *s) {
    if (s == NULL)
        return;
    hki_free(s->waitable);
    hki_free(s->first);
    hki_free(s);
}

void hki_wait_set_clear(hki_wait_set *s) {
    s->n = 0;
    s->at_once = false;
}

// Where the waitables of the next place begin.
static hki_waitable *begin_place(const hki_wait_set *s) {
    HKI_ASSERT(s->n < s->capacity);
    return s->waitable + s->first[s->n];
}

// The place has n waitables.
static size_t end_place(hki_wait_set *s, size_t n) {
    const size_t place = s->n++;
    s->first[s->n] = s->first[place] + n;
    return place;
}

size_t hki_wait_set_add_conn(hki_wait_set *s, const hki_conn *c, bool recv,
                             bool send) {
    bool ready;
    const size_t n = hki_conn_waits(c, recv, send, begin_place(s), &ready);
    s->at_once |= ready;
    return end_place(s, n);
}

size_t hki_wait_set_add_listener(hki_wait_set *s, const hki_listener *l) {
    *begin_place(s) = l->ops->wait(l);
    return end_place(s, 1);
}

size_t hki_wait_set_add_wake(hki_wait_set *s, const hki_wake *w) {
    *begin_place(s) = hki_wake_waitable(w);
    return end_place(s, 1);
}

hk_status hki_wait_set_wait(hki_wait_set *s, int64_t deadline_ns) {
    const hk_status got =
        hki_wait_any(s->waitable, s->first[s->n], s->at_once ? 0 : deadline_ns);
    return s->at_once && got == HK_E_TIMEOUT ? HK_OK : got;
}

bool hki_wait_set_ready(const hki_wait_set *s, size_t place) {
    HKI_ASSERT(place < s->n);
    bool ready = s->first[place] == s->first[place + 1];
    for (size_t i = s->first[place]; i < s->first[place + 1]; i++)
        ready |= hki_is_ready(&s->waitable[i]);
    return ready;
}
