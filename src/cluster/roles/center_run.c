// center_run.c - the course of a run: limits, notes; at the end the final
// checkpoint, evaluators and late workers.
#include "cluster/roles/center_run.h"
#include <math.h>
#include "cluster/roles/final_ckpt.h"

#define TICK_MS 100
#define LATE_MS 10000 // for expected workers, once the run is over
#define ROUND_MS 1000 // between looks at notes

// ---- when the run is over --------------------------------------------------

// What workers and evaluators wrote.
static void read_notes(hk_role_center *c) {
    char text[HKI_BOARD_VALUE];
    size_t size;
    if (!hki_limits_any(&c->limits) &&
        hki_server_read(c->server, HKI_NOTE_LIMITS, text, sizeof text, &size) ==
            HK_OK &&
        hki_limits_parse(text, size, &c->limits) != HK_OK)
        hki_log(c->context, HK_LOG_WARNING, "center: %s", hk_last_error());
    if (hki_server_read(c->server, HKI_NOTE_EVALUATOR, text, sizeof text - 1,
                        &size) == HK_OK) {
        text[size] = '\0';
        if (strncmp(text, c->evaluator, sizeof c->evaluator - 1) != 0) {
            snprintf(c->evaluator, sizeof c->evaluator, "%.60s", text);
            c->evaluator_ns = hki_now_ns();
            // A center that comes back knows whom it has to wait for.
            hki_run_memory_set_evaluator(c->memory, true);
        }
    }
    hki_evaluated e;
    if (hki_server_read(c->server, HKI_NOTE_EVALUATED, text, sizeof text,
                        &size) == HK_OK &&
        hki_evaluated_parse(text, size, &e) == HK_OK) {
        c->evaluated = e;
        c->has_evaluated = true;
    }
}

// Everybody who was ever here has said that its data is used up.
static bool all_done(hk_role_center *c, const hk_server_info *info) {
    uint32_t done = 0;
    for (uint32_t id = 0; id < info->workers; id++) {
        hk_worker_info w;
        if (hk_center_server_worker(c->server, id, &w) != HK_OK)
            continue;
        if (!hki_run_memory_is_done(c->memory, id))
            return false;
        done++;
    }
    return done > 0;
}

static bool metric_reached(const hk_role_center *c, char *reason,
                           size_t capacity) {
    if (!c->limits.has_metric || !c->has_evaluated)
        return false;
    const hk_measure *const m =
        hki_evaluated_find(&c->evaluated, c->limits.metric);
    if (m == NULL || isnan(m->value) ||
        (c->limits.lower ? m->value > c->limits.target
                         : m->value < c->limits.target))
        return false;
    snprintf(reason, capacity, "metric: %s is %g and has reached the target %g",
             m->name, m->value, c->limits.target);
    return true;
}

// The limits of the whole run; shard 0 judges. Writes the reason.
static bool limit_reached(hk_role_center *c, const hk_server_info *info,
                          char *reason, size_t capacity) {
    const hki_limits *const l = &c->limits;
    if (l->steps > 0 && info->center.global_step >= l->steps) {
        hki_steps_reason(info->center.global_step, l->steps, reason, capacity);
        return true;
    }
    const double age = hki_run_memory_facts(c->memory).seconds;
    if (l->seconds > 0 && age >= l->seconds) {
        snprintf(reason, capacity, "time: %.0f of %.0f seconds", age,
                 l->seconds);
        return true;
    }
    if (metric_reached(c, reason, capacity))
        return true;
    if (hki_run_memory_facts(c->memory).used_up) {
        snprintf(reason, capacity, "epochs: all epochs of the data are done");
        return true;
    }
    return false;
}

// Each worker that has failed, and whose place nobody has taken, with its
// error; false: there is none.
static bool list_failures(hk_role_center *c, char *out, size_t size) {
    hk_server_info info;
    size_t n = 0;
    out[0] = '\0';
    if (hk_center_server_get_info(c->server, &info) != HK_OK)
        return false;
    for (uint32_t id = 0; id < info.workers && n < size; id++) {
        char text[256];
        if (hki_server_failure(c->server, id, text, sizeof text))
            n += (size_t)snprintf(out + n, size - n, "%sworker %u: %s",
                                  n > 0 ? "; " : "", id, text);
    }
    return n > 0;
}

// Nobody is there (any more).
static bool deserted(hk_role_center *c, const hk_server_info *info,
                     char *reason, size_t capacity) {
    if (info->center.live > 0) {
        c->empty_ns = 0;
        return false;
    }
    if (c->empty_ns == 0)
        c->empty_ns = hki_now_ns();
    if (c->memory != NULL && all_done(c, info)) {
        snprintf(reason, capacity,
                 "epochs: every worker has finished its data");
        return true;
    }
    if (!hki_past(c->empty_ns, c->linger_ms))
        return false;
    char text[1024];
    const bool failed = list_failures(c, text, sizeof text);
    snprintf(reason, capacity, "%s: no worker for %g seconds",
             failed ? "failed" : "left", 1e-3 * (double)c->linger_ms);
    return true;
}

// One look at everything.
static hk_status tick(hk_role_center *c, const hk_server_info *info) {
    char reason[128];
    const bool began = info->center.joins > 0 || info->center.initialised != 0;
    if (!began) {
        if (hki_past(c->born_ns, c->start_ms))
            return hki_fail(
                HK_E_TIMEOUT,
                "center: no worker joined within %g seconds (start_ms)",
                1e-3 * (double)c->start_ms);
        return HK_OK;
    }
    if (c->memory != NULL) {
        hki_run_memory_pass(c->memory, hki_now_ns());
        if (hki_past(c->round_ns, ROUND_MS)) {
            c->round_ns = hki_now_ns();
            read_notes(c);
        }
    }
    if (info->finished)
        return HK_OK;
    if ((c->memory != NULL && limit_reached(c, info, reason, sizeof reason)) ||
        deserted(c, info, reason, sizeof reason))
        hki_server_finish(c->server, reason);
    return HK_OK;
}

// ---- the keeping thread ----------------------------------------------------

// Until the run has been ended and every worker is gone.
static hk_status watch(hk_role_center *c) {
    for (;;) {
        int finished = 0;
        hk_server_info info;
        HKI_TRY(hk_center_server_wait(c->server, TICK_MS, &finished));
        if (atomic_load(&c->stopping))
            return hki_fail(HK_E_CANCELLED, "center: stopped");
        if (finished)
            return HK_OK;
        HKI_TRY(hk_center_server_get_info(c->server, &info));
        HKI_TRY(tick(c, &info));
    }
}

// Shard 0 knows an evaluator by its note or, if that is from before a restart,
// by the run's memory; the others by its connection, which takes a while to
// come back.
static bool evaluator_is_due(hk_role_center *c) {
    if (c->memory == NULL)
        return hki_server_observers(c->server) > 0 ||
               (c->came_back && !hki_past(c->born_ns, HKI_EVALUATOR_FRESH_MS));
    read_notes(c);
    return c->evaluator_ns != 0 &&
           !(c->has_evaluated && c->evaluated.is_final) &&
           !hki_past(c->evaluator_ns, HKI_EVALUATOR_FRESH_MS);
}

// An evaluator that has shown up sees the end before the center goes.
static hk_status wait_for_evaluator(hk_role_center *c) {
    const int64_t begin = hki_now_ns();
    for (;;) {
        if (!evaluator_is_due(c)) {
            if (c->memory != NULL)
                hki_run_memory_set_evaluator(c->memory, false);
            return HK_OK;
        }
        if (hki_past(begin, c->evaluator_ms)) {
            hki_log(c->context, HK_LOG_WARNING,
                    "center: the evaluator did not finish within %g seconds "
                    "(evaluator_ms); the center ends without it",
                    1e-3 * (double)c->evaluator_ms);
            return HK_OK;
        }
        if (hki_nap(c->context, TICK_MS) || atomic_load(&c->stopping))
            return hki_fail(
                HK_E_CANCELLED,
                "center: stopped before the evaluator had finished");
    }
}

// Workers that this process has seen: those of an earlier start may come again.
static uint32_t came(hk_role_center *c, const hk_server_info *info) {
    uint32_t n = 0;
    hk_worker_info w;
    for (uint32_t id = 0; id < info->workers; id++)
        n += hk_center_server_worker(c->server, id, &w) == HK_OK &&
             w.last_seen >= 0;
    return n;
}

// Workers that are expected and have not come would find nobody: they get a
// while to hear that the run is over.
static hk_status wait_for_late(hk_role_center *c) {
    const int64_t begin = hki_now_ns();
    for (;;) {
        hk_server_info info;
        HKI_TRY(hk_center_server_get_info(c->server, &info));
        if ((came(c, &info) >= c->expected && info.center.live == 0) ||
            hki_past(begin, LATE_MS))
            return HK_OK;
        if (hki_nap(c->context, TICK_MS) || atomic_load(&c->stopping))
            return hki_fail(HK_E_CANCELLED,
                            "center: stopped before all workers had joined");
    }
}

// A shard stays until the first one has its part of the final checkpoint.
static hk_status wait_for_fetch(hk_role_center *c) {
    const int64_t begin = hki_now_ns();
    char text[8];
    size_t size;
    if (c->files.shard == 0 || c->files.addresses == NULL)
        return HK_OK;
    while (hki_server_read(c->server, HKI_NOTE_FETCHED, text, sizeof text,
                           &size) != HK_OK) {
        if (hki_past(begin, c->linger_ms))
            return hki_fail(
                HK_E_UNAVAILABLE,
                "center %u: center 0 did not fetch this shard for the final "
                "checkpoint within %g seconds (linger_ms)",
                c->shard, 1e-3 * (double)c->linger_ms);
        if (hki_nap(c->context, TICK_MS) || atomic_load(&c->stopping))
            return hki_fail(HK_E_CANCELLED,
                            "center: stopped before center 0 had fetched this "
                            "shard for the final checkpoint");
    }
    return HK_OK;
}

// The model is safe first; then those who want to see the end.
static hk_status finish(hk_role_center *c, const hk_role_result *r) {
    hk_status s = HK_OK;
    if (c->shard == 0 && c->files.checkpoint == NULL)
        s = hki_run_save(&c->files, c->server, r->reason);
    else if (c->shard != 0 && !c->was_over)
        s = wait_for_fetch(c);
    const hki_fault fault = hki_fault_of(s);
    HKI_TRY(wait_for_late(c)); // an evaluator may come meanwhile
    HKI_TRY(wait_for_evaluator(c));
    return hki_fault_raise(&fault);
}

hk_status hki_center_run_keep(hk_role_center *c, hk_role_result *r) {
    hk_server_info info;
    hki_result_init(r);
    hk_status s = watch(c);
    if (hk_center_server_get_info(c->server, &info) == HK_OK)
        r->global_step = info.center.global_step;
    if (s == HK_E_CANCELLED)
        hki_result_set(r, HK_END_STOPPED, "stopped: a stop was requested");
    HKI_TRY(s);
    char reason[sizeof r->reason];
    hki_server_reason(c->server, reason, sizeof reason);
    hki_result_set(r, hki_reason_end(reason), reason);
    HKI_TRY(hki_reason_check(reason, "center"));
    HKI_TRY(finish(c, r));
    if (c->has_evaluated && c->limits.has_metric) {
        const hk_measure *const m =
            hki_evaluated_find(&c->evaluated, c->limits.metric);
        r->metric = m == NULL ? NAN : m->value;
    }
    if (r->end == HK_END_FAILED) {
        char text[1024];
        (void)list_failures(c, text, sizeof text);
        return hki_fail(HK_E_STATE, "center: the run has failed: %s", text);
    }
    return hki_run_done(&c->files, r);
}
