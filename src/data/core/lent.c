// lent.c - a part of a dataset: the units of positions [begin, end) of an
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
        return hki_fail(HK_E_OVERFLOW, "lease: %lld units", (long long)total);
    hki_rng_init(&rng, (uint64_t)seed, (uint64_t)epoch);
    for (int i = 0; i < HKI_ORDER_ROUNDS; i++)
        o->key[i] = hki_rng_u64(&rng);
    return HK_OK;
}

// ---- who is divided --------------------------------------------------------

// The dataset below d whose units those of d are; NULL: there is none.
static const hk_dataset *divided(const hk_dataset *d) {
    for (; hki_dataset_good(d); d = d->inputs[0]) {
        if (hki_is_table(d) || d->ops->units != NULL)
            return d;
        if (!(d->flags & (HKI_DATA_FN | HKI_DATA_EACH)))
            return NULL;
    }
    return NULL;
}

int64_t hki_data_units(const hk_dataset *d) {
    const hk_dataset *const source = divided(d);
    if (source == NULL)
        return -1;
    return source->ops->units != NULL ? source->ops->units(source, NULL)
                                      : source->count;
}

uint64_t hki_data_cuts(const hk_dataset *d) {
    const hk_dataset *const source = divided(d);
    uint64_t cuts = 0;
    if (source != NULL && source->ops->units != NULL)
        (void)source->ops->units(source, &cuts);
    return cuts;
}

hki_node *hki_node_divided(hki_node *n) {
    const hk_dataset *const source = divided(n->d);
    while (n->d != source)
        n = n->inputs[0];
    return n;
}

// ---- at work ---------------------------------------------------------------

// Rows of a table: a unit each.
static int64_t pull_rows(hki_node *n, hki_item *items, int64_t want) {
    hki_lent *const l = n->lent;
    const int64_t got = HKI_MIN(want, l->end - l->at);
    for (int64_t i = 0; i < got; i++, l->at++) {
        n->number = unit_at(l->order, l->at);
        items[i] = (hki_item){.row = hki_table_row(n->d, n->number),
                              .stamp = hki_node_stamp(n, n->number)};
    }
    return got;
}

hk_status hki_lent_seek(hki_node *n) {
    return n->d->ops->seek(n, unit_at(n->lent->order, n->lent->at), &n->number);
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
        if (s != HK_E_END)
            return s;
        l->begun = false;
        l->at++;
    }
    return HK_E_END;
}
