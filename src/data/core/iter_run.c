// iter_run.c - what the nodes of one iterator share: stop flag, thread budget,
// skipped records, faults that travel between threads.
#include "data/core/pipeline.h"

#define LOGGED_SKIPS 10       // skipped records that get a line each
#define WAIT_MS 100           // between two looks at the stop flag
#define PATIENCE_MS 500       // that an element under way has left after a stop
#define AWAY_PATIENCE_MS 3000 // and one that waits for another machine

hk_status hki_run_open(const hk_iter_options *opt, hki_data_run **out) {
    hki_data_run *run;
    HKI_TRY(hki_zalloc_array(1, sizeof *run, &run));
    run->context = opt->context;
    run->ignore_stop = opt->ignore_stop != 0;
    run->threads = opt->threads;
    if (run->threads == 0)
        run->threads = opt->context != NULL ? hki_context_threads(opt->context)
                                            : hki_cpu_count();
    run->isa =
        opt->context != NULL ? hki_context_isa(opt->context) : hki_isa_best();
    atomic_init(&run->closing, false);
    atomic_init(&run->torn, false);
    atomic_init(&run->stop_seen_ns, 0);
    atomic_init(&run->skipped, 0);
    HKI_TRY_OR(hki_gang_create(run->threads - 1, run, &run->gang),
               hki_run_close(run));
    *out = run;
    return HK_OK;
}

void hki_run_close(hki_data_run *run) {
    if (run == NULL)
        return;
    hki_gang_destroy(run->gang);
    hki_free(run);
}

static int stop_reason(const hki_data_run *run) {
    return run->context != NULL && !run->ignore_stop
               ? hk_stop_requested(run->context)
               : 0;
}

bool hki_run_stopping(const hki_data_run *run) {
    return stop_reason(run) != 0;
}

static hk_status stopped(int reason) {
    return hki_fail(HK_E_CANCELLED, "iterator: stop requested (reason %d)",
                    reason);
}

hk_status hki_run_between(hki_data_run *run) {
    const int reason = stop_reason(run);
    if (reason == 0)
        atomic_store_explicit(&run->stop_seen_ns, 0, memory_order_relaxed);
    if (atomic_load(&run->torn))
        return hki_fail(reason != 0 ? HK_E_CANCELLED : HK_E_STATE,
                        "iterator: a stop (reason %d) interrupted an element; "
                        "restore a position or create another iterator",
                        reason);
    return reason == 0 ? HK_OK : stopped(reason);
}

// Nodes hold parts of an element while they make it: half a batch, one side of
// a zip. A stop that is heard there loses them.
static hk_status check(hki_data_run *run, int reason, int64_t patience_ms) {
    if (atomic_load_explicit(&run->closing, memory_order_relaxed))
        return hki_fail(HK_E_CANCELLED,
                        "iterator: the iterator is being destroyed");
    if (reason == 0)
        return HK_OK;
    const int64_t now = hki_now_ns();
    int_fast64_t seen = 0;
    if (atomic_compare_exchange_strong(&run->stop_seen_ns, &seen, now))
        seen = now;
    if (now - seen < patience_ms * INT64_C(1000000))
        return HK_OK;
    atomic_store(&run->torn, true);
    return stopped(reason);
}

hk_status hki_run_check(hki_data_run *run) {
    return check(run, stop_reason(run), PATIENCE_MS);
}

hk_status hki_run_check_away(void *user) {
    hki_data_run *const run = user;
    const bool asked = run->context != NULL && run->ignore_stop;
    HKI_TRY(hki_run_check(run));
    return check(run, asked ? hk_stop_requested(run->context) : 0,
                 AWAY_PATIENCE_MS);
}

bool hki_run_wait(hki_data_run *run, hki_cond *cond, hki_mutex *lock) {
    if (run->context == NULL) {
        hki_cond_wait_forever(cond, lock);
        return false;
    }
    (void)hki_cond_wait(cond, lock, hki_deadline(WAIT_MS));
    return hki_run_stopping(run);
}

uint32_t hki_run_threads(hki_data_run *run) {
    return run->threads;
}

hk_isa hki_run_isa(hki_data_run *run) {
    return run->isa;
}

// What is wrong with the data, not with the machine or the program.
static bool fault_of_data(hk_status s) {
    switch (s) {
    case HK_E_DATA:
    case HK_E_RANGE:
    case HK_E_SHAPE:
    case HK_E_DTYPE:
    case HK_E_NOT_FOUND:
    case HK_E_OVERFLOW:
    case HK_E_INVALID_ARG:
    case HK_E_NOT_FINITE:
    case HK_E_UNSUPPORTED:
        return true;
    default:
        return false;
    }
}

hk_status hki_on_error(hki_data_run *run, hk_on_error policy, hk_status s,
                       bool *skip) {
    if (s == HK_OK || policy != HK_ON_ERROR_SKIP || !fault_of_data(s))
        return s;
    const uint64_t before =
        atomic_fetch_add_explicit(&run->skipped, 1, memory_order_relaxed);
    if (before < LOGGED_SKIPS)
        hki_log(run->context, HK_LOG_WARNING, "data: skipped: %s%s",
                hk_last_error(),
                before + 1 == LOGGED_SKIPS
                    ? " (further records are only counted)"
                    : "");
    *skip = true;
    return HK_OK;
}

// A shuffle starts its input twice an epoch, hence two passes are not enough.
#define PASSES_LEFT_OUT 4

hk_status hki_skips_watch(hki_skips *s, uint64_t stamp) {
    if (!s->any)
        *s = (hki_skips){.any = true, .first = stamp};
    if ((stamp >> HKI_STAMP_PASS) - (s->first >> HKI_STAMP_PASS) <
        PASSES_LEFT_OUT)
        return HK_OK;
    return hki_fail(HK_E_DATA, "data: every record of a pass was damaged and "
                               "skipped; check the format of the files");
}
