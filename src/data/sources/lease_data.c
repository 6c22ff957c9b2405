// lease_data.c - the examples of a lease, in the order of the epoch, and a part
// of a set as it lies: the node below that can be divided is told which of its
// units to give.
#include "data/core/pipeline.h"

typedef struct config {
    hki_order order;
    int64_t begin, end;
    uint64_t epoch;
    hki_window within; // numbers of elements
} config;

static hk_status rewind_units(hki_node *n) {
    const config *const c = n->d->config;
    hki_lent *const l = n->state;
    *l = (hki_lent){.order = &c->order,
                    .epoch = c->epoch,
                    .at = c->begin,
                    .end = c->end,
                    .window = c->within};
    hki_node_lend(n->inputs[0], l);
    return HK_OK;
}

static hk_status start(hki_node *n) {
    HKI_TRY(rewind_units(n));
    return hki_node_start(n->inputs[0]);
}

static hk_status pull(hki_node *n, hki_item *items, int64_t want,
                      int64_t *got) {
    return hki_node_pull(n->inputs[0], items, want, got);
}

static void save(hki_node *n, hki_saver *w) {
    const hki_lent *const l = n->state;
    hki_save_i64(w, l->at);
    hki_save_u64(w, l->begun);
}

static hk_status restore(hki_node *n, hki_restorer *r) {
    const config *const c = n->d->config;
    hki_lent *const l = n->state;
    l->at =
        hki_restore_i64(r, "the position in a leased range", c->begin, c->end);
    l->begun = hki_restore_i64(r, "begun", 0, l->at < c->end) == 1;
    return r->status;
}

static const hki_node_ops ops = {
    .name = "lease",
    .state_size = sizeof(hki_lent),
    .open = rewind_units,
    .start = start,
    .pull = pull,
    .save = save,
    .restore = restore,
};

static hk_status configure(const hk_dataset *d, const hki_lease *lease,
                           int64_t seed, config *c) {
    const int64_t units = hki_data_units(d);
    if (lease == NULL)
        return hki_fail(HK_E_INVALID_ARG, "lease: NULL argument");
    if (units < 0)
        return hki_fail(HK_E_UNSUPPORTED,
                        "lease: this data set cannot be divided");
    if (lease->begin < 0 || lease->end < lease->begin || lease->end > units ||
        lease->epoch < 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "lease: the range [%lld, %lld) of %lld units or epoch "
                        "%lld is out of range",
                        (long long)lease->begin, (long long)lease->end,
                        (long long)units, (long long)lease->epoch);
    *c = (config){.begin = lease->begin,
                  .end = lease->end,
                  .epoch = (uint64_t)lease->epoch,
                  .within = {.end = INT64_MAX}};
    return hki_order_init(&c->order, units, lease->epoch, seed);
}

hk_dataset *hki_data_lease(hk_dataset *d, const hki_lease *lease,
                           int64_t seed) {
    config c;
    hk_status s = hk_dataset_status(d);
    if (s == HK_OK)
        s = configure(d, lease, seed, &c);
    if (s != HK_OK)
        return hki_dataset_fail(&d, 1, s);
    const int64_t key[] = {lease->epoch, lease->begin, lease->end, seed};
    const bool table = hki_data_units(d) == d->count && !hki_may_skip(d);
    return hki_dataset_make(&(hki_dataset_desc){
        .ops = &ops,
        .config = &c,
        .config_size = sizeof c,
        .inputs = &d,
        .n_inputs = 1,
        .count = table ? c.end - c.begin : -1,
        .key = hki_key("lease", HKI_COUNT(key), key),
        .flags = HKI_DATA_PASSES,
    });
}

// ---- parts -----------------------------------------------------------------

// total * index / n, rounded up, so that the first part has something where any
// has; without the product.
static int64_t part_begin(int64_t total, int64_t n, int64_t index) {
    const __int128 rest = (__int128)(total % n) * index;
    return total / n * index + (int64_t)((rest + n - 1) / n);
}

static hk_status configure_part(const hk_dataset *d, int64_t n, int64_t index,
                                int64_t batch, config *c) {
    HKI_TRY(hk_dataset_status(d));
    if (n < 1 || index < 0 || index >= n || batch < 0)
        return hki_fail(
            HK_E_INVALID_ARG,
            "part: part %lld of %lld or batches of %lld are out of range",
            (long long)index, (long long)n, (long long)batch);
    if (hki_data_units(d) < 0)
        return hki_fail(HK_E_UNSUPPORTED,
                        "part: this data set cannot be divided: it has to "
                        "consist of arrays, or of files with an index");
    const hki_window w = hki_data_numbers(d);
    const int64_t total = w.end - w.begin;
    const int64_t each = HKI_MAX(HKI_MIN(batch, total), 1);
    const int64_t batches = total / each + (total % each > 0);
    const int64_t begin = part_begin(batches, n, index) * each;
    const int64_t end = part_begin(batches, n, index + 1) * each;
    *c = (config){.within = {.begin = HKI_MIN(w.begin + begin, w.end),
                             .end = HKI_MIN(w.begin + end, w.end)}};
    c->end = hki_data_units_of(d, &c->within);
    return hki_order_init(&c->order, c->end, 0, HK_SEED_NONE);
}

hk_dataset *hk_data_part(hk_dataset *d, int64_t n, int64_t index,
                         int64_t batch) {
    config c;
    const hk_status s = configure_part(d, n, index, batch, &c);
    const int64_t key[] = {n, index, batch};
    const hki_dataset_desc desc = {
        .ops = &ops,
        .config = &c,
        .config_size = sizeof c,
        .inputs = &d,
        .n_inputs = 1,
        .count =
            s != HK_OK || d->count < 0 ? -1 : c.within.end - c.within.begin,
        .key = hki_key("part", HKI_COUNT(key), key),
        .flags = HKI_DATA_PASSES,
    };
    return hki_dataset_finish(&desc, s);
}
