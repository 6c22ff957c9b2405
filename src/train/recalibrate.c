// recalibrate.c - batch-norm statistics for weights that were averaged.
//
// A moving statistic that is set to zero before a step holds (1 - momentum)
// times the batch's own value after it. The plain mean of those values over
// the batches becomes the new statistic.
#include "train/train.h"

typedef struct statistic {
    const hk_entry *entry;
    double momentum;
    double *sum;
} statistic;

static hk_status collect(hk_session *s, statistic *stats, size_t n) {
    for (size_t i = 0; i < n; i++) {
        HKI_TRY(hki_plan_moving(hk_session_plan(s), i, &stats[i].entry,
                                &stats[i].momentum));
        HKI_TRY(hki_zalloc_array((size_t)stats[i].entry->count,
                                 sizeof *stats[i].sum, &stats[i].sum));
    }
    return HK_OK;
}

static void clear(const statistic *st, float *x) {
    memset(x + st->entry->offset, 0, (size_t)st->entry->count * sizeof *x);
}

static hk_status run_batches(hk_session *s, float *x, statistic *stats,
                             size_t n, hk_feed_fn feed, void *user,
                             int64_t n_batches, int64_t *done) {
    for (*done = 0; *done < n_batches; ++*done) {
        const hk_status st = feed(user, s, *done);
        if (st == HK_E_END)
            return HK_OK;
        HKI_TRY(st);
        for (size_t i = 0; i < n; i++)
            clear(&stats[i], x);
        HKI_TRY(hk_session_run(s));
        for (size_t i = 0; i < n; i++)
            for (int64_t k = 0; k < stats[i].entry->count; k++)
                stats[i].sum[k] += (double)x[stats[i].entry->offset + k] /
                                   (1.0 - stats[i].momentum);
    }
    return HK_OK;
}

// x holds the averages on success and its old statistics otherwise.
static hk_status recalibrate(hk_session *s, float *x, statistic *stats,
                             size_t n, hk_feed_fn feed, void *user,
                             int64_t n_batches) {
    const size_t bytes =
        (size_t)hki_layout_size(hk_plan_layout(hk_session_plan(s))) * sizeof *x;
    float *work;
    int64_t done = 0;
    HKI_TRY(hki_alloc_array(bytes, 1, &work));
    memcpy(work, x, bytes);
    hk_status st = hk_session_bind_params(s, work);
    if (st == HK_OK)
        st = run_batches(s, work, stats, n, feed, user, n_batches, &done);
    const hk_status back = hk_session_bind_params(s, NULL);
    if (st == HK_OK && done == 0)
        st = hki_fail(HK_E_END, "recalibrate: the data ended before the first "
                                "batch");
    for (size_t i = 0; st == HK_OK && i < n; i++)
        for (int64_t k = 0; k < stats[i].entry->count; k++)
            x[stats[i].entry->offset + k] =
                (float)(stats[i].sum[k] / (double)done);
    hki_free(work);
    return st != HK_OK ? st : back;
}

hk_status hk_recalibrate(hk_session *s, float *x, hk_feed_fn feed, void *user,
                         int64_t n_batches) {
    if (s == NULL || x == NULL || feed == NULL || n_batches < 1)
        return hki_fail(HK_E_INVALID_ARG,
                        "recalibrate: session, values and feed are needed, "
                        "and at least one batch (%lld)",
                        (long long)n_batches);
    const size_t n = hki_plan_n_moving(hk_session_plan(s));
    HKI_FREED statistic *stats = NULL;
    HKI_TRY(hki_zalloc_array(n, sizeof *stats, &stats));
    hk_status st = collect(s, stats, n);
    if (st == HK_OK && n > 0)
        st = recalibrate(s, x, stats, n, feed, user, n_batches);
    for (size_t i = 0; i < n; i++)
        hki_free(stats[i].sum);
    return st;
}
