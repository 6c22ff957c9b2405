// data_plan.c - ranges of data: lent, counted, taken back.
#include "cluster/center/data_plan.h"
#include "codec/codec.h"

#define SHARES 16 // ranges of an epoch that a worker gets, about

typedef struct range {
    hk_range r; // id 0: came back
    uint64_t owner;
} range;

typedef struct list {
    range *at;
    size_t n, room;
} list;

typedef struct set {
    char name[HK_SET_NAME];
    uint64_t fingerprint, seed;
    int64_t units, epochs, chunk;
    int64_t epoch, next; // first unit that was never lent
    list back;           // by epoch and begin; has room for all that is out
    list out;            // by id
} set;

struct hki_data_plan {
    set at[HKI_PLAN_SETS];
    uint32_t n;
    uint64_t next_id;
};

// ---- lists -----------------------------------------------------------------

static hk_status make_room(list *l, size_t need) {
    return hki_list_reserve(&l->at, need, &l->room, sizeof *l->at);
}

// There is room.
static void insert(list *l, size_t i, const range *r) {
    memmove(&l->at[i + 1], &l->at[i], (l->n - i) * sizeof *r);
    l->at[i] = *r;
    l->n++;
}

static void erase(list *l, size_t i) {
    l->n--;
    memmove(&l->at[i], &l->at[i + 1], (l->n - i) * sizeof l->at[0]);
}

static bool before(const hk_range *a, const hk_range *b) {
    return a->epoch != b->epoch ? a->epoch < b->epoch : a->begin < b->begin;
}

// One that has been begun stays as it is: its examples are counted from its
// beginning.
static bool joins(const hk_range *a, const hk_range *b) {
    return a->epoch == b->epoch && a->end == b->begin && a->used == 0 &&
           b->used == 0;
}

// Puts a range back where it belongs, joined with its neighbours.
static void put_back(set *s, hk_range r) {
    list *const b = &s->back;
    size_t i = 0;
    r.id = 0;
    while (i < b->n && before(&b->at[i].r, &r))
        i++;
    if (i < b->n && joins(&r, &b->at[i].r)) {
        r.end = b->at[i].r.end;
        erase(b, i);
    }
    if (i > 0 && joins(&b->at[i - 1].r, &r))
        b->at[i - 1].r.end = r.end;
    else
        insert(b, i, &(range){.r = r});
}

// ---- life ------------------------------------------------------------------

hk_status hki_data_plan_create(hki_data_plan **out) {
    hki_data_plan *p;
    HKI_TRY(hki_zalloc_array(1, sizeof *p, &p));
    p->next_id = 1;
    *out = p;
    return HK_OK;
}

static void clear(hki_data_plan *p) {
    for (uint32_t i = 0; i < p->n; i++) {
        hki_free(p->at[i].back.at);
        hki_free(p->at[i].out.at);
    }
    *p = (hki_data_plan){.next_id = 1};
}

void hki_data_plan_destroy(hki_data_plan *p) {
    if (p == NULL)
        return;
    clear(p);
    hki_free(p);
}

// ---- sets ------------------------------------------------------------------

static bool is_plain(const char *name, size_t n) {
    bool good = n > 0 && n < HK_SET_NAME;
    for (size_t i = 0; good && i < n; i++)
        good = (unsigned char)name[i] >= 32 && name[i] != 127;
    return good;
}

static hk_status check(const hk_lent_set *d) {
    if (d->name == NULL || !is_plain(d->name, strlen(d->name)))
        return hki_fail(HK_E_INVALID_ARG,
                        "data plan: the name of a data set has to have 1 to %d "
                        "printable characters",
                        HK_SET_NAME - 1);
    if (d->units < 1 || d->units > HKI_PLAN_UNITS || d->epochs < -1 ||
        d->epochs == 0 || d->epochs > HKI_PLAN_EPOCHS ||
        d->workers > HKI_PLAN_WORKERS)
        return hki_fail(HK_E_INVALID_ARG,
                        "data plan: data set %s: %lld units, %lld epochs or %u "
                        "workers are out of range",
                        d->name, (long long)d->units, (long long)d->epochs,
                        d->workers);
    return HK_OK;
}

static hk_status another(const set *s, const hk_lent_set *d) {
    return hki_fail(HK_E_INVALID_ARG,
                    "data plan: data set %s of this worker has %lld units with "
                    "the fingerprint %016llx, but the run's has %lld units "
                    "with %016llx; all workers need the same data",
                    s->name, (long long)d->units,
                    (unsigned long long)d->fingerprint, (long long)s->units,
                    (unsigned long long)s->fingerprint);
}

static hk_status add_set(hki_data_plan *p, const hk_lent_set *d) {
    if (p->n == HKI_PLAN_SETS)
        return hki_fail(
            HK_E_RANGE,
            "data plan: no room for data set %s; the limit is %d data sets",
            d->name, HKI_PLAN_SETS);
    set *const s = &p->at[p->n];
    const int64_t ranges = SHARES * (int64_t)HKI_MAX(d->workers, 1u);
    *s = (set){.fingerprint = d->fingerprint,
               .seed = d->seed,
               .units = d->units,
               .epochs = d->epochs,
               .chunk = HKI_MAX(d->units / ranges, 1)};
    snprintf(s->name, sizeof s->name, "%s", d->name);
    p->n++;
    return HK_OK;
}

hk_status hki_data_plan_declare(hki_data_plan *p, const hk_lent_set *want,
                                uint32_t *out, uint64_t *seed) {
    uint32_t i = 0;
    HKI_TRY(check(want));
    while (i < p->n && strcmp(p->at[i].name, want->name) != 0)
        i++;
    if (i == p->n)
        HKI_TRY(add_set(p, want));
    set *const s = &p->at[i];
    if (s->fingerprint != want->fingerprint || s->units != want->units)
        return another(s, want);
    if (want->epochs < 0 || (s->epochs >= 0 && s->epochs < want->epochs))
        s->epochs = want->epochs;
    *out = i;
    *seed = s->seed;
    return HK_OK;
}

// ---- taking ----------------------------------------------------------------

// The last epoch is lent.
static bool is_lent(const set *s) {
    return s->next == s->units && s->epochs >= 0 && s->epoch + 1 >= s->epochs;
}

static hk_range take_back(set *s, int64_t most) {
    hk_range *const first = &s->back.at[0].r;
    hk_range r = *first;
    if (r.used == 0 && r.end - r.begin > most)
        r.end = first->begin = r.begin + most;
    else
        erase(&s->back, 0);
    return r;
}

static hk_range take_next(set *s, int64_t most) {
    if (s->next == s->units) {
        s->epoch++;
        s->next = 0;
    }
    hk_range r = {.epoch = s->epoch, .begin = s->next};
    r.end = s->next + HKI_MIN(most, s->units - s->next);
    s->next = r.end;
    return r;
}

// Units that one range may have: a worker holds two, one in use and one ahead,
// and together with what it holds they are at most 1 / (2 live) of what is left
// of the epoch. So nobody waits long for the last ranges of a slow worker, and
// a fast one leaves something to the others.
static int64_t most_units(const set *s, const hki_taker *t) {
    const int64_t live = HKI_MAX(t->live, 1u);
    int64_t left = s->units - s->next;
    for (size_t i = 0; i < s->back.n; i++) {
        const int64_t n = s->back.at[i].r.end - s->back.at[i].r.begin;
        left += HKI_MIN(n, INT64_MAX - left);
    }
    if (left == 0)
        left = s->units; // another epoch
    const int64_t room = left / (2 * live) - t->holds;
    return HKI_MAX(HKI_MIN(HKI_MIN(s->chunk, left / (4 * live)), room), 1);
}

static size_t held(const set *s, uint64_t owner) {
    size_t n = 0;
    for (size_t i = 0; i < s->out.n; i++)
        n += s->out.at[i].owner == owner;
    return n;
}

static hk_status nothing_left(const set *s) {
    return s->out.n == 0
               ? hki_fail(HK_E_END,
                          "data plan: data set %s: all epochs are done",
                          s->name)
               : hki_fail(HK_E_UNAVAILABLE,
                          "data plan: data set %s: all ranges are leased; %zu "
                          "of them may come back",
                          s->name, s->out.n);
}

hk_status hki_data_plan_take(hki_data_plan *p, uint32_t number,
                             const hki_taker *who, hk_range *out) {
    if (number >= p->n)
        return hki_fail(HK_E_NOT_FOUND,
                        "data plan: there is no data set %u; the run has %u",
                        number, p->n);
    set *const s = &p->at[number];
    if (s->back.n == 0 && is_lent(s))
        return nothing_left(s);
    if (held(s, who->owner) >= HKI_PLAN_HELD)
        return hki_fail(HK_E_RANGE,
                        "data plan: data set %s: a worker can have at most %d "
                        "leased ranges",
                        s->name, HKI_PLAN_HELD);
    // Coming back cannot fail: there is room for two more, as one that is cut
    // leaves a rest.
    HKI_TRY(make_room(&s->out, s->out.n + 1));
    HKI_TRY(make_room(&s->back, s->back.n + s->out.n + 2));
    const int64_t most = most_units(s, who);
    hk_range r = s->back.n > 0 ? take_back(s, most) : take_next(s, most);
    r.id = p->next_id++;
    insert(&s->out, s->out.n, &(range){.r = r, .owner = who->owner});
    *out = r;
    return HK_OK;
}

// ---- giving back -----------------------------------------------------------

static hk_status give_back(set *s, size_t i, int64_t used) {
    hk_range r = s->out.at[i].r;
    if (used < r.used)
        return hki_fail(HK_E_INVALID_ARG,
                        "data plan: data set %s: %lld used examples were "
                        "reported for range %llu, less than the %lld before",
                        s->name, (long long)used, (unsigned long long)r.id,
                        (long long)r.used);
    erase(&s->out, i);
    r.used = used;
    if (used != HK_RANGE_ALL)
        put_back(s, r);
    return HK_OK;
}

hk_status hki_data_plan_return(hki_data_plan *p, uint64_t owner, uint64_t mask,
                               uint64_t id, int64_t used) {
    for (uint32_t k = 0; k < p->n; k++) {
        const list *const out = &p->at[k].out;
        for (size_t i = 0; i < out->n; i++)
            if (out->at[i].r.id == id &&
                ((out->at[i].owner ^ owner) & mask) == 0)
                return give_back(&p->at[k], i, used);
    }
    return hki_fail(HK_E_NOT_FOUND,
                    "data plan: range %llu is not leased to worker %llu",
                    (unsigned long long)id, (unsigned long long)(owner >> 32));
}

static bool expire(set *s, uint64_t owner) {
    bool any = false;
    for (size_t i = s->out.n; i-- > 0;)
        if (s->out.at[i].owner == owner) {
            const hk_range r = s->out.at[i].r;
            erase(&s->out, i);
            put_back(s, r);
            any = true;
        }
    return any;
}

bool hki_data_plan_expire(hki_data_plan *p, uint64_t owner) {
    bool any = false;
    for (uint32_t i = 0; i < p->n; i++)
        any |= expire(&p->at[i], owner);
    return any;
}

void hki_data_plan_skip_ids(hki_data_plan *p) {
    p->next_id += UINT64_C(1) << 32;
}

bool hki_data_plan_used_up(const hki_data_plan *p) {
    bool all = p->n > 0;
    for (uint32_t i = 0; i < p->n; i++)
        all = all && is_lent(&p->at[i]) && p->at[i].out.n == 0 &&
              p->at[i].back.n == 0;
    return all;
}

// ---- as bytes --------------------------------------------------------------

static hk_status add(hki_buf *b, const uint64_t *v, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint8_t bytes[8];
        hki_put_u64(bytes, v[i]);
        HKI_TRY(hki_buf_add(b, bytes, sizeof bytes));
    }
    return HK_OK;
}

#define ADD(b, ...)                                                            \
    add(b, (const uint64_t[]){__VA_ARGS__},                                    \
        sizeof(const uint64_t[]){__VA_ARGS__} / sizeof(uint64_t))

static hk_status save_list(const list *l, bool is_out, hki_buf *b) {
    HKI_TRY(ADD(b, l->n));
    for (size_t i = 0; i < l->n; i++) {
        const range *const e = &l->at[i];
        if (is_out)
            HKI_TRY(ADD(b, e->r.id, e->owner));
        HKI_TRY(ADD(b, (uint64_t)e->r.epoch, (uint64_t)e->r.begin,
                    (uint64_t)e->r.end, (uint64_t)e->r.used));
    }
    return HK_OK;
}

hk_status hki_data_plan_save(const hki_data_plan *p, hki_buf *b) {
    HKI_TRY(ADD(b, p->next_id, p->n));
    for (uint32_t i = 0; i < p->n; i++) {
        const set *const s = &p->at[i];
        HKI_TRY(ADD(b, strlen(s->name)));
        HKI_TRY(hki_buf_add(b, s->name, strlen(s->name)));
        HKI_TRY(ADD(b, s->fingerprint, s->seed, (uint64_t)s->units,
                    (uint64_t)s->epochs, (uint64_t)s->chunk, (uint64_t)s->epoch,
                    (uint64_t)s->next));
        HKI_TRY(save_list(&s->back, false, b));
        HKI_TRY(save_list(&s->out, true, b));
    }
    return HK_OK;
}

// What comes in is hostile: a number outside of its bounds ends it all.
typedef struct reader {
    const uint8_t *p, *end;
    bool bad;
} reader;

static uint64_t get(reader *r) {
    r->bad = r->bad || r->end - r->p < 8;
    if (r->bad)
        return 0;
    r->p += 8;
    return hki_get_u64(r->p - 8);
}

static int64_t get_within(reader *r, int64_t low, int64_t high) {
    const int64_t v = (int64_t)get(r);
    r->bad = r->bad || v < low || v > high;
    return r->bad ? low : v;
}

static hk_range get_range(reader *r, const set *s) {
    hk_range e = {.epoch = get_within(r, 0, s->epoch)};
    // What of the current epoch was never lent is in no range.
    const int64_t end = e.epoch == s->epoch ? s->next : s->units;
    e.begin = get_within(r, 0, end - 1);
    e.end = get_within(r, e.begin + 1, end);
    e.used = get_within(r, 0, HK_RANGE_ALL - 1);
    return e;
}

static hk_status get_back(reader *r, set *s) {
    const int64_t n = get_within(r, 0, (r->end - r->p) / 32);
    HKI_TRY(make_room(&s->back, (size_t)n));
    for (int64_t i = 0; i < n && !r->bad; i++) {
        const range e = {.r = get_range(r, s)};
        r->bad = r->bad || (i > 0 && !before(&s->back.at[i - 1].r, &e.r));
        s->back.at[s->back.n++] = e;
    }
    return HK_OK;
}

static hk_status get_out(reader *r, set *s, uint64_t next_id) {
    const int64_t n = get_within(r, 0, (r->end - r->p) / 48);
    HKI_TRY(make_room(&s->out, (size_t)n));
    HKI_TRY(make_room(&s->back, s->back.n + (size_t)n + 1));
    uint64_t last = 0;
    for (int64_t i = 0; i < n && !r->bad; i++) {
        const uint64_t id = get(r), owner = get(r);
        range e = {.r = get_range(r, s), .owner = owner};
        r->bad = r->bad || id <= last || id >= next_id;
        e.r.id = last = id;
        s->out.at[s->out.n++] = e;
    }
    return HK_OK;
}

static int compare(const void *a, const void *b) {
    const hk_range *const x = &((const range *)a)->r;
    const hk_range *const y = &((const range *)b)->r;
    return before(x, y) ? -1 : before(y, x);
}

// No unit is in two ranges.
static hk_status check_disjoint(reader *r, const set *s) {
    const size_t n = s->back.n + s->out.n;
    HKI_FREED range *all = NULL;
    HKI_TRY(hki_alloc_array(n + 1, sizeof *all, &all));
    if (s->back.n > 0)
        memcpy(all, s->back.at, s->back.n * sizeof *all);
    if (s->out.n > 0)
        memcpy(all + s->back.n, s->out.at, s->out.n * sizeof *all);
    qsort(all, n, sizeof *all, compare);
    for (size_t i = 1; i < n; i++)
        r->bad = r->bad || (all[i].r.epoch == all[i - 1].r.epoch &&
                            all[i].r.begin < all[i - 1].r.end);
    return HK_OK;
}

static hk_status get_set(reader *r, set *s, uint64_t next_id) {
    const int64_t n = get_within(r, 1, HK_SET_NAME - 1);
    r->bad =
        r->bad || r->end - r->p < n || !is_plain((const char *)r->p, (size_t)n);
    if (r->bad)
        return HK_OK;
    memcpy(s->name, r->p, (size_t)n);
    r->p += n;
    s->fingerprint = get(r);
    s->seed = get(r);
    s->units = get_within(r, 1, INT64_MAX);
    s->epochs = get_within(r, -1, INT64_MAX);
    s->chunk = get_within(r, 1, s->units);
    s->epoch = get_within(r, 0, s->epochs < 1 ? INT64_MAX - 1 : s->epochs - 1);
    s->next = get_within(r, 0, s->units);
    r->bad = r->bad || s->epochs == 0;
    HKI_TRY(get_back(r, s));
    HKI_TRY(get_out(r, s, next_id));
    return check_disjoint(r, s);
}

static hk_status get_plan(reader *r, hki_data_plan *p) {
    p->next_id = get(r);
    const int64_t n = get_within(r, 0, HKI_PLAN_SETS);
    r->bad = r->bad || p->next_id == 0;
    while ((int64_t)p->n < n && !r->bad)
        HKI_TRY(get_set(r, &p->at[p->n++], p->next_id));
    r->bad = r->bad || r->p != r->end;
    return HK_OK;
}

hk_status hki_data_plan_restore(hki_data_plan *p, const uint8_t *bytes,
                                size_t size, const char *from) {
    reader r = {.p = bytes, .end = bytes + size};
    clear(p);
    hk_status s = get_plan(&r, p);
    if (s == HK_OK && r.bad)
        s = hki_fail(HK_E_DATA, "%s: the data plan is damaged at byte %zu",
                     from, (size_t)(r.p - bytes));
    if (s != HK_OK)
        clear(p);
    return s;
}
