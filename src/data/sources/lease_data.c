// lease_data.c - the examples of a lease, in the order of the epoch.
//
// The order is a permutation of the whole table that needs no memory: a Feistel
// network over the smallest even number of bits that holds the table, walked
// until the result falls into it (at most four steps on average). Everybody
// with the seed gets the same one; every epoch has its own.
#include "data/core/pipeline.h"

#define ROUNDS 6

typedef struct config {
    int64_t begin, end;
    uint64_t epoch;
    int64_t total; // rows of the table
    int half;      // bits of a half
    bool in_order; // no permutation
    uint64_t key[ROUNDS];
} config;

// Mixing by multiplication and shift, enough for an order of examples.
static uint64_t mix(uint64_t v) {
    v = (v ^ v >> 33) * UINT64_C(0xff51afd7ed558ccd);
    v = (v ^ v >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return v ^ v >> 33;
}

static uint64_t encrypt(const config *c, uint64_t v) {
    const uint64_t mask = (UINT64_C(1) << c->half) - 1;
    uint64_t left = v >> c->half, right = v & mask;
    for (int i = 0; i < ROUNDS; i++) {
        const uint64_t next = left ^ (mix(right ^ c->key[i]) & mask);
        left = right;
        right = next;
    }
    return left << c->half | right;
}

static int64_t place(const config *c, int64_t i) {
    uint64_t v = (uint64_t)i;
    if (c->in_order)
        return i;
    do
        v = encrypt(c, v);
    while (v >= (uint64_t)c->total);
    return (int64_t)v;
}

static hk_status next(hki_node *n, hki_item *out) {
    const config *const c = n->d->config;
    if (n->count >= c->end - c->begin)
        return HK_E_END;
    out->row = hki_table_row(n->d->inputs[0], place(c, c->begin + n->count));
    // The same for whoever has this example in this epoch.
    out->stamp = (c->epoch + 1) << HKI_STAMP_PASS;
    out->stamp += (uint64_t)(c->begin + n->count);
    return HK_OK;
}

static int64_t table_row(const hk_dataset *d, int64_t i) {
    const config *const c = d->config;
    return place(c, c->begin + i);
}

static const hki_node_ops ops = {
    .name = "lease",
    .destroy = hki_free,
    .next = next,
    .saves_inputs = true, // only rows of the input are read
    .table_row = table_row,
};

static hk_status configure(const hk_dataset *d, const hki_lease *lease,
                           int64_t seed, config *c) {
    if (lease == NULL)
        return hki_fail(HK_E_INVALID_ARG, "lease: NULL argument");
    if (!hki_is_table(d) || hki_may_skip(d))
        return hki_fail(HK_E_UNSUPPORTED,
                        "lease: the examples of this dataset cannot be had by "
                        "their number");
    if (lease->begin < 0 || lease->end < lease->begin ||
        lease->end > d->count || lease->epoch < 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "lease: examples [%lld, %lld) of %lld, epoch %lld",
                        (long long)lease->begin, (long long)lease->end,
                        (long long)d->count, (long long)lease->epoch);
    hki_rng rng;
    *c = (config){.begin = lease->begin,
                  .end = lease->end,
                  .epoch = (uint64_t)lease->epoch,
                  .total = d->count,
                  .half = 1,
                  .in_order = seed == HK_SEED_NONE};
    while (c->half < 31 && (UINT64_C(1) << 2 * c->half) < (uint64_t)c->total)
        c->half++;
    if ((UINT64_C(1) << 2 * c->half) < (uint64_t)c->total)
        return hki_fail(HK_E_OVERFLOW, "lease: %lld examples",
                        (long long)c->total);
    hki_rng_init(&rng, (uint64_t)seed, (uint64_t)lease->epoch);
    for (int i = 0; i < ROUNDS; i++)
        c->key[i] = hki_rng_u64(&rng);
    return HK_OK;
}

hk_dataset *hki_data_lease(hk_dataset *random_access, const hki_lease *lease,
                           int64_t seed) {
    hk_dataset *const d = random_access;
    config c;
    hk_status s = hk_dataset_status(d);
    if (s == HK_OK)
        s = configure(d, lease, seed, &c);
    if (s != HK_OK)
        return hki_dataset_fail(&d, 1, s);
    const int64_t key[] = {lease->epoch, lease->begin, lease->end, seed};
    return hki_dataset_make(&(hki_dataset_desc){
        .ops = &ops,
        .config = &c,
        .config_size = sizeof c,
        .inputs = &d,
        .n_inputs = 1,
        .count = c.end - c.begin,
        .key = hki_key("lease", HKI_COUNT(key), key),
        .flags = HKI_DATA_PASSES,
    });
}
