// epoch_part.c - a part of a dataset: the units of positions [begin, end) of an
// epoch's order, given by the node that can go to a unit.
//
// The order is a permutation of all units that needs no memory: a Feistel
// network over the smallest even number of bits that holds them, walked until
// the result falls among them (at most four steps on average). Everybody with
// the seed gets the same one; every epoch has its own.
#include "data/core/pipeline.h"

// Mixing by multiplication and shift, enough for an order of examples.
static uint64_t mix(uint64_t v) {
    v = (v ^ v >> 33) * UINT64_C(0xff51afd7ed558ccd);
    v = (v ^ v >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return v ^ v >> 33;
}

static uint64_t encrypt(const hki_order *o, uint64_t v) {
    const uint64_t mask = (UINT64_C(1) << o->half) - 1;
    uint64_t left = v >> o->half, right = v & mask;
    for (int i = 0; i < HKI_ORDER_ROUNDS; i++) {
        const uint64_t next = left ^ (mix(right ^ o->key[i]) & mask);
        left = right;
        right = next;
    }
    return left << o->half | right;
}

static int64_t unit_at(const hki_order *o, int64_t i) {
    uint64_t v = (uint64_t)i;
    if (o->as_it_is)
        return i;
    do
        v = encrypt(o, v);
    while (v >= (uint64_t)o->total);
    return (int64_t)v;
}

hk_status hki_order_init(hki_order *o, int64_t total, int64_t epoch,
                         int64_t seed) {
    hki_rng rng;
    *o = (hki_order){
        .total = total, .half = 1, .as_it_is = seed == HK_SEED_NONE};
    while (o->half < 31 && (UINT64_C(1) << 2 * o->half) < (uint64_t)total)
        o->half++;
    if ((UINT64_C(1) << 2 * o->half) < (uint64_t)total)
        return hki_fail(HK_E_OVERFLOW, "lease: invalid number of units, %lld",
                        (long long)total);
    hki_rng_init(&rng, (uint64_t)seed, (uint64_t)epoch);
    for (int i = 0; i < HKI_ORDER_ROUNDS; i++)
        o->key[i] = hki_rng_u64(&rng);
    return HK_OK;
}

// ---- who is divided --------------------------------------------------------

// The source below d whose units those of d are, and what of it d has.
typedef struct division {
    const hk_dataset *source; // NULL: there is none
    hki_window window;
    int64_t units;
    uint64_t cuts;
} division;

// Every element of the input is one of d's.
static bool keeps_all(const hk_dataset *d) {
    return d->flags & HKI_DATA_FN
               ? (d->flags & HKI_DATA_MAY_SKIP) == 0
               : (d->flags & (HKI_DATA_EACH | HKI_DATA_PASSES)) ==
                     HKI_DATA_EACH;
}

// A table in memory, or one whose rows are picked in another way than by a
// window: a row is a unit.
static bool is_plain_table(const hk_dataset *d) {
    if (!hki_is_table(d))
        return false;
    for (; d->flags & (HKI_DATA_PASSES | HKI_DATA_FN); d = d->inputs[0])
        if ((d->flags & HKI_DATA_PASSES) && d->ops->window == NULL)
            return true;
    return d->ops->units == NULL;
}

// Positions are numbers of the source below a window only where nothing is left
// out in between.
static const hk_dataset *find_source(const hk_dataset *d, hki_window *w) {
    bool has_window = false;
    *w = (hki_window){.end = INT64_MAX};
    for (; hki_dataset_good(d); d = d->inputs[0]) {
        const bool windowed = d->ops->window != NULL;
        if (d->ops->units != NULL || is_plain_table(d))
            return d;
        if (windowed)
            d->ops->window(d, &w->begin, &w->end);
        else if (has_window ? !keeps_all(d)
                            : !(d->flags & (HKI_DATA_FN | HKI_DATA_EACH)))
            return NULL;
        has_window = has_window || windowed;
    }
    return NULL;
}

static bool is_all(const hki_window *w) {
    return w->begin == 0 && w->end == INT64_MAX;
}

// Only units that have something of the window count.
static void narrow(division *v) {
    hki_window *const w = &v->window;
    const hk_dataset *const d = v->source;
    if (v->units < 1 || is_all(w))
        return;
    const int64_t cut[] = {w->begin, w->end};
    v->cuts = hki_hash(v->cuts, cut, sizeof cut);
    if (d->ops->unit_of == NULL) { // rows of a table
        w->first_unit = HKI_MIN(w->begin, v->units);
        v->units = HKI_MIN(w->end, v->units) - w->first_unit;
        return;
    }
    const int64_t last =
        w->end == INT64_MAX ? v->units - 1 : d->ops->unit_of(d, w->end - 1);
    w->first_unit = d->ops->unit_of(d, w->begin);
    v->units = w->begin < w->end ? last + 1 - w->first_unit : 0;
}

// within: those numbers and no others.
static division divide(const hk_dataset *d, const hki_window *within) {
    division v = {.units = -1};
    v.source = find_source(d, &v.window);
    if (v.source == NULL)
        return v;
    v.window.end = HKI_MIN(v.window.end, within->end);
    v.window.begin =
        HKI_MIN(HKI_MAX(v.window.begin, within->begin), v.window.end);
    v.units = v.source->ops->units != NULL
                  ? v.source->ops->units(v.source, &v.cuts)
                  : v.source->count;
    narrow(&v);
    return v;
}

static const hki_window all = {.end = INT64_MAX};

int64_t hki_data_units(const hk_dataset *d) {
    return divide(d, &all).units;
}

int64_t hki_data_units_of(const hk_dataset *d, const hki_window *w) {
    return divide(d, w).units;
}

uint64_t hki_data_cuts(const hk_dataset *d) {
    return divide(d, &all).cuts;
}

hki_window hki_data_numbers(const hk_dataset *d) {
    const division v = divide(d, &all);
    const int64_t n = v.source->ops->elements != NULL
                          ? v.source->ops->elements(v.source)
                          : v.source->count;
    return (hki_window){.begin = HKI_MIN(v.window.begin, n),
                        .end = HKI_MIN(v.window.end, n)};
}

void hki_node_lend(hki_node *n, hki_lent *l) {
    const division v = divide(n->d, &l->window);
    for (; n->d != v.source; n = n->inputs[0])
        n->is_through = true;
    l->window = v.window;
    n->lent = l;
}

// ---- at work ---------------------------------------------------------------

// Rows of a table: a unit each.
static int64_t pull_rows(hki_node *n, hki_item *items, int64_t want) {
    hki_lent *const l = n->lent;
    const int64_t got = HKI_MIN(want, l->end - l->at);
    for (int64_t i = 0; i < got; i++, l->at++) {
        n->number = l->window.first_unit + unit_at(l->order, l->at);
        items[i] = (hki_item){.row = hki_table_row(n->d, n->number),
                              .stamp = hki_node_stamp(n, n->number)};
    }
    return got;
}

hk_status hki_lent_seek(hki_node *n) {
    const hki_lent *const l = n->lent;
    const int64_t unit = l->window.first_unit + unit_at(l->order, l->at);
    return n->d->ops->seek(n, unit, &n->number);
}

// Frees the items outside of the window, which only its first and last unit
// have; how many are left.
static int64_t keep_inside(hki_node *n, hki_item *items, int64_t got) {
    const hki_window *const w = &n->lent->window;
    int64_t kept = 0;
    if (is_all(w))
        return got;
    for (int64_t i = 0; i < got; i++) {
        const int64_t number =
            (int64_t)(items[i].stamp & ((UINT64_C(1) << HKI_STAMP_PASS) - 1));
        if (number >= w->begin && number < w->end)
            items[kept++] = items[i];
        else
            hki_item_free(n, &items[i]);
    }
    return kept;
}

hk_status hki_lent_pull(hki_node *n, hki_item *items, int64_t want,
                        int64_t *got) {
    hki_lent *const l = n->lent;
    while (l->at < l->end) {
        if (n->d->ops->seek == NULL) {
            *got = pull_rows(n, items, want);
            return HK_OK;
        }
        if (!l->begun)
            HKI_TRY(hki_lent_seek(n));
        l->begun = true;
        const hk_status s = hki_node_pull_own(n, items, want, got);
        if (s == HK_OK && (*got = keep_inside(n, items, *got)) == 0)
            continue;
        if (s != HK_E_END)
            return s;
        l->begun = false;
        l->at++;
    }
    return HK_E_END;
}
