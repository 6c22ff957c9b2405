// telemetry.c - what a worker knows about itself and its distance to the
// center. Sums are made inside the exchange, where both values are at hand.
#include "elastic/worker.h"
#include <math.h>

void hki_elastic_observe_begin(hk_elastic *e) {
    e->total = (hki_sums){{0}};
    e->sums_away = false;
    if (e->entry != NULL)
        memset(e->entry, 0,
               hki_layout_entry_count(e->layout) * sizeof *e->entry);
}

void hki_elastic_observe(void *user, int64_t begin, int64_t end, const float *x,
                         const float *c) {
    hk_elastic *const e = user;
    const float *const before =
        e->before.host != NULL ? e->before.host + begin : NULL;
    if (e->entry == NULL) {
        e->home.ek->observe(x, before, c, end - begin, e->total.s);
        return;
    }
    const hk_entry *entry;
    for (size_t i = hki_layout_find_float(e->layout, begin);
         (entry = hk_layout_entry(e->layout, i)) != NULL &&
         entry->dtype == HK_F32 && entry->offset < end;
         i++) {
        const int64_t low = HKI_MAX(entry->offset, begin) - begin;
        const int64_t high = HKI_MIN(entry->offset + entry->count, end) - begin;
        hki_sums part = {{0}};
        e->home.ek->observe(x + low, before != NULL ? before + low : NULL,
                            c + low, high - low, part.s);
        for (size_t j = 0; j < HKI_COUNT(part.s); j++) {
            e->entry[i].s[j] += part.s[j];
            e->total.s[j] += part.s[j];
        }
    }
}

static double cosine(const hki_sums *s) {
    const double norms = sqrt(s->s[0]) * sqrt(s->s[2]);
    return norms > 0 ? s->s[1] / norms : 0;
}

hk_status hk_elastic_get_stats(const hk_elastic *e, hk_elastic_stats *out) {
    if (e == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "elastic: stats: NULL argument");
    const hki_counters *const n = &e->n;
    hki_sums sums = e->total;
    if (e->sums_away)
        HKI_TRY(e->at->ops->exchange_sums(e->at, sums.s));
    const double total =
        n->start_ns != 0 ? (double)(hki_now_ns() - n->start_ns) : 0;
    *out = (hk_elastic_stats){
        .local_step = e->local_step,
        .global_step = hki_elastic_global_step(e),
        .exchanges = n->exchanges,
        .dropped = n->dropped,
        .skipped_chunks = n->skipped,
        .moving_rate = n->moving_rate,
        .staleness = n->staleness,
        .staleness_mean =
            n->exchanges > 0 ? n->staleness_sum / (double)n->exchanges : 0,
        .staleness_max = n->staleness_max,
        .delay_steps = n->delays > 0 ? n->delay_sum / (double)n->delays : 0,
        .exchange_share = total > 0 ? (double)n->exchange_ns / total : 0,
        .exchange_seconds = 1e-9 * (double)n->exchange_ns,
        .distance = sqrt(sums.s[0]),
        .cosine = cosine(&sums),
    };
    return HK_OK;
}

hk_status hk_elastic_get_entry_stats(const hk_elastic *e, size_t entry,
                                     double *distance, double *cos) {
    if (e == NULL || distance == NULL || cos == NULL)
        return hki_fail(HK_E_INVALID_ARG, "elastic: stats: NULL argument");
    if (e->entry == NULL)
        return hki_fail(HK_E_STATE,
                        "%s: statistics of entries need telemetry 2", e->name);
    if (entry >= hki_layout_entry_count(e->layout) ||
        e->center->partition.share[entry] != HK_SHARE_EXCHANGE)
        return hki_fail(HK_E_NOT_FOUND, "%s: entry %zu is not exchanged",
                        e->name, entry);
    *distance = sqrt(e->entry[entry].s[0]);
    *cos = cosine(&e->entry[entry]);
    return HK_OK;
}
