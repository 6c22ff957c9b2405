// lease.c - index ranges of an epoch, given out and taken back.
//
// Every example of an epoch is in exactly one place: not given out yet (from
// `next` on), in a range that came back, in a range that is out, or used.
//
// As bytes:
//
//     "HKLEASE1" | i64 count, chunk, epochs, epoch, next | u64 next id |
//     u64 ranges that came back: i64 epoch, begin, end each |
//     u64 ranges that are out: u64 id, owner, i64 epoch, begin, end each |
//     u64 FNV-1a of all before
#include "codec/codec.h"
#include "data/core/pipeline.h"

#define MAGIC "HKLEASE1"
#define HEAD (8 + 6 * 8)

typedef struct range {
    hki_lease lease; // id 0: came back
    uint64_t owner;
} range;

typedef struct list {
    range *at;
    size_t used, room;
} list;

struct hki_leases {
    pthread_mutex_t lock; // guards everything below
    int64_t count, chunk, epochs;
    int64_t epoch, next; // first example that was never given out
    uint64_t next_id;
    list back; // by epoch and begin
    list out;  // by id
};

// ---- lists -----------------------------------------------------------------

static hk_status make_room(list *l, size_t more) {
    const size_t need = l->used + more;
    if (need <= l->room)
        return HK_OK;
    const size_t room = HKI_MAX(need, 2 * l->room);
    HKI_TRY(hki_realloc_array(room, sizeof *l->at, &l->at));
    l->room = room;
    return HK_OK;
}

// There is room.
static void insert(list *l, size_t i, const range *r) {
    memmove(&l->at[i + 1], &l->at[i], (l->used - i) * sizeof *r);
    l->at[i] = *r;
    l->used++;
}

static void erase(list *l, size_t i) {
    l->used--;
    memmove(&l->at[i], &l->at[i + 1], (l->used - i) * sizeof l->at[0]);
}

static bool before(const hki_lease *a, const hki_lease *b) {
    return a->epoch != b->epoch ? a->epoch < b->epoch : a->begin < b->begin;
}

// Puts a range back where it belongs, joined with its neighbours.
static void put_back(hki_leases *l, hki_lease lease) {
    list *const b = &l->back;
    size_t i = 0;
    lease.id = 0;
    if (lease.begin == lease.end)
        return;
    while (i < b->used && before(&b->at[i].lease, &lease))
        i++;
    if (i < b->used && b->at[i].lease.epoch == lease.epoch &&
        b->at[i].lease.begin == lease.end) {
        lease.end = b->at[i].lease.end;
        erase(b, i);
    }
    if (i > 0 && b->at[i - 1].lease.epoch == lease.epoch &&
        b->at[i - 1].lease.end == lease.begin) {
        b->at[i - 1].lease.end = lease.end;
        return;
    }
    insert(b, i, &(range){.lease = lease});
}

// ---- life ------------------------------------------------------------------

hk_status hki_leases_create(int64_t count, int64_t chunk, int64_t epochs,
                            hki_leases **out) {
    hki_leases *l;
    if (out == NULL || count < 0 || chunk < 1 || epochs < -1)
        return hki_fail(HK_E_INVALID_ARG,
                        "leases: %lld examples in ranges of %lld, %lld epochs",
                        (long long)count, (long long)chunk, (long long)epochs);
    HKI_TRY(hki_zalloc_array(1, sizeof *l, &l));
    pthread_mutex_init(&l->lock, NULL);
    l->count = count;
    l->chunk = chunk;
    l->epochs = epochs;
    l->next_id = 1;
    *out = l;
    return HK_OK;
}

void hki_leases_destroy(hki_leases *l) {
    if (l == NULL)
        return;
    pthread_mutex_destroy(&l->lock);
    hki_free(l->back.at);
    hki_free(l->out.at);
    hki_free(l);
}

// ---- taking ----------------------------------------------------------------

// The range to give next; false: there is none.
static bool choose(hki_leases *l, hki_lease *r) {
    if (l->back.used > 0) {
        hki_lease *const first = &l->back.at[0].lease;
        *r = *first;
        if (first->end - first->begin > l->chunk)
            r->end = first->begin + l->chunk;
        if (r->end == first->end)
            erase(&l->back, 0);
        else
            first->begin = r->end;
        return true;
    }
    if (l->count == 0 || l->epochs == 0)
        return false;
    if (l->next == l->count) {
        if (l->epochs >= 0 && l->epoch + 1 >= l->epochs)
            return false;
        l->epoch++;
        l->next = 0;
    }
    *r = (hki_lease){.epoch = l->epoch, .begin = l->next};
    r->end = l->count - l->next > l->chunk ? l->next + l->chunk : l->count;
    l->next = r->end;
    return true;
}

static hk_status take(hki_leases *l, uint64_t owner, hki_lease *out) {
    hki_lease r = {0};
    // Room for coming back as well: a return cannot fail.
    HKI_TRY(make_room(&l->out, 1));
    HKI_TRY(make_room(&l->back, l->out.used + 1));
    if (!choose(l, &r))
        return l->out.used > 0
                   ? hki_fail(HK_E_UNAVAILABLE,
                              "leases: all examples are given out, %zu ranges "
                              "may come back",
                              l->out.used)
                   : HK_E_END;
    r.id = l->next_id++;
    insert(&l->out, l->out.used, &(range){.lease = r, .owner = owner});
    *out = r;
    return HK_OK;
}

hk_status hki_leases_take(hki_leases *l, uint64_t owner, hki_lease *out) {
    if (l == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "leases take: NULL argument");
    pthread_mutex_lock(&l->lock);
    const hk_status s = take(l, owner, out);
    pthread_mutex_unlock(&l->lock);
    if (s == HK_E_END)
        return hki_fail(HK_E_END, "leases: every epoch is done");
    return s;
}

// ---- giving back -----------------------------------------------------------

static hk_status give_back(hki_leases *l, uint64_t owner, uint64_t id,
                           int64_t used_end) {
    size_t i = 0;
    while (i < l->out.used && l->out.at[i].lease.id != id)
        i++;
    if (i == l->out.used || l->out.at[i].owner != owner)
        return hki_fail(HK_E_NOT_FOUND,
                        "leases: owner %llu does not hold lease %llu",
                        (unsigned long long)owner, (unsigned long long)id);
    hki_lease r = l->out.at[i].lease;
    if (used_end < r.begin || used_end > r.end)
        return hki_fail(HK_E_INVALID_ARG,
                        "leases: lease %llu is [%lld, %lld), used up to %lld",
                        (unsigned long long)id, (long long)r.begin,
                        (long long)r.end, (long long)used_end);
    erase(&l->out, i);
    r.begin = used_end;
    put_back(l, r);
    return HK_OK;
}

hk_status hki_leases_return(hki_leases *l, uint64_t owner, uint64_t id,
                            int64_t used_end) {
    if (l == NULL)
        return hki_fail(HK_E_INVALID_ARG, "leases return: NULL argument");
    pthread_mutex_lock(&l->lock);
    const hk_status s = give_back(l, owner, id, used_end);
    pthread_mutex_unlock(&l->lock);
    return s;
}

hk_status hki_leases_expire(hki_leases *l, uint64_t owner) {
    if (l == NULL)
        return hki_fail(HK_E_INVALID_ARG, "leases expire: NULL argument");
    pthread_mutex_lock(&l->lock);
    for (size_t i = l->out.used; i-- > 0;)
        if (l->out.at[i].owner == owner) {
            const hki_lease r = l->out.at[i].lease;
            erase(&l->out, i);
            put_back(l, r);
        }
    pthread_mutex_unlock(&l->lock);
    return HK_OK;
}

// ---- as bytes --------------------------------------------------------------

static void save_range(hki_saver *w, const hki_lease *r) {
    hki_save_i64(w, r->epoch);
    hki_save_i64(w, r->begin);
    hki_save_i64(w, r->end);
}

static hk_status make_bytes(hki_leases *l, hki_saver *w) {
    w->status = hki_buf_add(&w->buf, MAGIC, 8);
    hki_save_i64(w, l->count);
    hki_save_i64(w, l->chunk);
    hki_save_i64(w, l->epochs);
    hki_save_i64(w, l->epoch);
    hki_save_i64(w, l->next);
    hki_save_u64(w, l->next_id);
    hki_save_u64(w, l->back.used);
    for (size_t i = 0; i < l->back.used; i++)
        save_range(w, &l->back.at[i].lease);
    hki_save_u64(w, l->out.used);
    for (size_t i = 0; i < l->out.used; i++) {
        hki_save_u64(w, l->out.at[i].lease.id);
        hki_save_u64(w, l->out.at[i].owner);
        save_range(w, &l->out.at[i].lease);
    }
    if (w->status == HK_OK)
        hki_save_u64(w, hki_hash(HKI_HASH_INIT, w->buf.data, w->buf.size));
    return w->status;
}

hk_status hki_leases_save(hki_leases *l, void *buf, size_t capacity,
                          size_t *size) {
    hki_saver w = {0};
    if (l == NULL || size == NULL)
        return hki_fail(HK_E_INVALID_ARG, "leases save: NULL argument");
    pthread_mutex_lock(&l->lock);
    hk_status s = make_bytes(l, &w);
    pthread_mutex_unlock(&l->lock);
    if (s == HK_OK && buf != NULL && capacity < w.buf.size)
        s = hki_fail(HK_E_OVERFLOW,
                     "leases save: %zu bytes of room, %zu needed", capacity,
                     w.buf.size);
    if (s == HK_OK) {
        if (buf != NULL)
            memcpy(buf, w.buf.data, w.buf.size);
        *size = w.buf.size;
    }
    hki_saver_deinit(&w);
    return s;
}

static hki_lease restore_range(hki_restorer *r, const hki_leases *l) {
    hki_lease e = {0};
    e.epoch = hki_restore_i64(r, 0, l->epoch);
    // What of the current epoch was never given out is in no range.
    const int64_t end = e.epoch == l->epoch ? l->next : l->count;
    if (end < 1)
        hki_restore_bad(r, "a range of an epoch that has not begun");
    e.begin = hki_restore_i64(r, 0, end - 1);
    e.end = hki_restore_i64(r, e.begin + 1, end);
    return e;
}

static int compare(const void *a, const void *b) {
    const hki_lease *const x = &((const range *)a)->lease;
    const hki_lease *const y = &((const range *)b)->lease;
    return before(x, y) ? -1 : before(y, x);
}

// No example is in two ranges.
static hk_status check_disjoint(hki_restorer *r, const hki_leases *l) {
    const size_t n = l->back.used + l->out.used;
    range *all = NULL;
    HKI_TRY(hki_alloc_array(n, sizeof *all, &all));
    if (l->back.used > 0)
        memcpy(all, l->back.at, l->back.used * sizeof *all);
    if (l->out.used > 0)
        memcpy(all + l->back.used, l->out.at, l->out.used * sizeof *all);
    qsort(all, n, sizeof *all, compare);
    bool good = true;
    for (size_t i = 1; i < n; i++)
        good = good && (all[i].lease.epoch != all[i - 1].lease.epoch ||
                        all[i].lease.begin >= all[i - 1].lease.end);
    hki_free(all);
    return good ? HK_OK : hki_restore_bad(r, "ranges that overlap");
}

static hk_status restore_lists(hki_leases *l, hki_restorer *r) {
    const int64_t n_back = hki_restore_i64(r, 0, (r->end - r->p) / 24);
    HKI_TRY(hki_restorer_status(r));
    HKI_TRY(make_room(&l->back, (size_t)n_back));
    for (int64_t i = 0; i < n_back; i++) {
        l->back.at[l->back.used++] = (range){.lease = restore_range(r, l)};
        HKI_TRY(hki_restorer_status(r));
        if (i > 0 && !before(&l->back.at[i - 1].lease, &l->back.at[i].lease))
            return hki_restore_bad(r, "ranges out of order");
    }
    const int64_t n_out = hki_restore_i64(r, 0, (r->end - r->p) / 40);
    HKI_TRY(hki_restorer_status(r));
    HKI_TRY(make_room(&l->out, (size_t)n_out));
    uint64_t last = 0;
    for (int64_t i = 0; i < n_out; i++) {
        const uint64_t id = hki_restore_u64(r);
        const uint64_t owner = hki_restore_u64(r);
        range e = {.lease = restore_range(r, l), .owner = owner};
        HKI_TRY(hki_restorer_status(r));
        if (id <= last || id >= l->next_id)
            return hki_restore_bad(r, "a lease number out of its range");
        e.lease.id = last = id;
        l->out.at[l->out.used++] = e;
    }
    // Room for every range that may come back.
    HKI_TRY(make_room(&l->back, l->out.used));
    return r->p == r->end ? HK_OK : hki_restore_bad(r, "bytes left over");
}

static hk_status parse(const hki_leases *like, const uint8_t *p, size_t size,
                       hki_leases *l) {
    hki_restorer r = {.begin = p, .p = p + 8, .end = p + size - 8};
    if (size < HEAD + 24 || memcmp(p, MAGIC, 8) != 0 ||
        hki_get_u64(p + size - 8) != hki_hash(HKI_HASH_INIT, p, size - 8))
        return hki_fail(HK_E_DATA,
                        "leases restore: %zu bytes that are damaged "
                        "or no leases",
                        size);
    l->count = (int64_t)hki_restore_u64(&r);
    l->chunk = (int64_t)hki_restore_u64(&r);
    l->epochs = (int64_t)hki_restore_u64(&r);
    if (l->count != like->count || l->chunk != like->chunk ||
        l->epochs != like->epochs)
        return hki_fail(HK_E_INVALID_ARG,
                        "leases restore: of %lld examples by %lld, %lld "
                        "epochs; these are %lld by %lld, %lld",
                        (long long)l->count, (long long)l->chunk,
                        (long long)l->epochs, (long long)like->count,
                        (long long)like->chunk, (long long)like->epochs);
    const int64_t last =
        l->epochs < 0 ? INT64_MAX - 1 : HKI_MAX(l->epochs - 1, 0);
    l->epoch = hki_restore_i64(&r, 0, last);
    l->next = hki_restore_i64(&r, 0, l->count);
    l->next_id = hki_restore_u64(&r);
    HKI_TRY(hki_restorer_status(&r));
    HKI_TRY(restore_lists(l, &r));
    return check_disjoint(&r, l);
}

hk_status hki_leases_restore(hki_leases *l, const void *bytes, size_t size) {
    if (l == NULL || bytes == NULL)
        return hki_fail(HK_E_INVALID_ARG, "leases restore: NULL argument");
    hki_leases fresh = {0};
    const hk_status s = parse(l, bytes, size, &fresh);
    if (s != HK_OK) {
        hki_free(fresh.back.at);
        hki_free(fresh.out.at);
        return s;
    }
    pthread_mutex_lock(&l->lock);
    list old[2] = {l->back, l->out};
    l->epoch = fresh.epoch;
    l->next = fresh.next;
    l->next_id = fresh.next_id;
    l->back = fresh.back;
    l->out = fresh.out;
    pthread_mutex_unlock(&l->lock);
    hki_free(old[0].at);
    hki_free(old[1].at);
    return HK_OK;
}
