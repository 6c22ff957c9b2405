// logging.c - hooks that count and log.
//
// A built-in hook is its options (freed with the hook) and its state for one
// run, which starts as a copy of them.
#include "estimator/estimator.h"
#include "estimator/run/run_context.h"
#include "estimator/run/timer.h"

// ---- step counter -----------------------------------------------------------

typedef struct counter {
    hki_timer timer;
    int64_t step, examples; // at the last report
    double time;
    int64_t seen; // step of the last run
    int same;     // runs in which it stayed
} counter;

static hk_status counter_report(counter *c, hk_run *run, double now) {
    const double secs = now - c->time;
    const double steps = (double)(run->global_step - c->step) / secs;
    const double examples =
        (double)(hki_runctx_examples(run) - c->examples) / secs;
    hki_log(run->e->ctx, HK_LOG_INFO,
            "global_step/sec: %.6g, examples/sec: %.6g", steps, examples);
    if (run->mode != HK_TRAIN || run->e->events == NULL)
        return HK_OK;
    return hk_event_scalars(
        run->e->events, run->global_step, 2,
        (const char *const[]){"global_step/sec", "examples/sec"},
        (const double[]){steps, examples});
}

static void counter_watch(counter *c, const hk_run *run) {
    c->same = run->global_step == c->seen ? c->same + 1 : 0;
    c->seen = run->global_step;
    if (c->same == 20)
        hki_log(run->e->ctx, HK_LOG_WARNING,
                "the global step has not changed from %lld in 20 steps; does "
                "the train step increase it?",
                (long long)c->seen);
}

static hk_status counter_after(void *state, hk_run *run) {
    counter *const c = state;
    counter_watch(c, run);
    const bool first = c->timer.last_step < 0;
    if (!hki_timer_fires(&c->timer, run->global_step))
        return HK_OK;
    const double now = c->timer.last_time;
    const hk_status s = first ? HK_OK : counter_report(c, run, now);
    c->step = run->global_step;
    c->examples = hki_runctx_examples(run);
    c->time = now;
    return s;
}

hk_status hk_hook_step_counter(int64_t every_steps, double every_secs,
                               hk_hook **out) {
    counter *c;
    hki_timer timer;
    HKI_TRY(hki_timer_init(&timer, every_steps, every_secs));
    HKI_TRY(hki_zalloc_array(1, sizeof *c, &c));
    c->timer = timer;
    c->seen = -1;
    return hki_hook_make((hk_hook_calls){.name = "step counter",
                                         .user = c,
                                         .after_run = counter_after},
                         sizeof *c, out);
}

// ---- logging ----------------------------------------------------------------

typedef struct logger {
    hk_logging_options o;
    hki_arena arena; // of the options
    hki_timer timer;
    double last; // time of the last line; 0: none
} logger;

HKI_OPTIONS(hk_logging_options, reserved)

static hk_status logger_before(void *state, hk_run *run) {
    const logger *const g = state;
    for (size_t i = 0; i < g->o.n_names; i++)
        HKI_TRY(hk_run_fetch(run, g->o.names[i]));
    return HK_OK;
}

static hk_status logger_text(const logger *g, const hk_run *run, char *line,
                             size_t size) {
    size_t used = 0;
    if (g->o.n_names == 0)
        used = (size_t)snprintf(line, size, "loss = %.6g, step = %lld",
                                (double)run->loss, (long long)run->global_step);
    for (size_t i = 0; i < g->o.n_names && used < size; i++) {
        double v;
        HKI_TRY(hk_run_number(run, g->o.names[i], &v));
        const int n = snprintf(line + used, size - used, "%s%s = %.6g",
                               i > 0 ? ", " : "", g->o.names[i], v);
        used += n > 0 ? (size_t)n : 0;
    }
    return HK_OK;
}

static hk_status logger_line(logger *g, hk_run *run, double now) {
    char line[1024] = "";
    if (g->o.format != NULL)
        HKI_TRY(g->o.format(g->o.format_user, run, line, sizeof line));
    else
        HKI_TRY(logger_text(g, run, line, sizeof line));
    line[sizeof line - 1] = '\0';
    if (g->last > 0)
        hki_log(run->e->ctx, HK_LOG_INFO, "%s (%.3f sec)", line, now - g->last);
    else
        hki_log(run->e->ctx, HK_LOG_INFO, "%s", line);
    g->last = now;
    return HK_OK;
}

static hk_status logger_after(void *state, hk_run *run) {
    logger *const g = state;
    if (g->timer.every_steps == 0 && g->timer.every_secs == 0)
        return HK_OK; // at the end only
    return hki_timer_fires(&g->timer, run->iteration)
               ? logger_line(g, run, g->timer.last_time)
               : HK_OK;
}

static hk_status logger_end(void *state, hk_run *run) {
    logger *const g = state;
    return g->o.at_end && run->iteration > 0
               ? logger_line(g, run, hki_timer_now())
               : HK_OK;
}

static void logger_free(void *user) {
    logger *const g = user;
    hki_arena_deinit(&g->arena);
    hki_free(g);
}

static hk_status logger_fill(logger *g, const hk_logging_options *opt) {
    HKI_TRY(HKI_OPTIONS_GET(hk_logging_options, &g->o, opt, "logging options"));
    const char **names;
    HKI_TRY(hki_arena_alloc(&g->arena, g->o.n_names, sizeof *names, &names));
    for (size_t i = 0; i < g->o.n_names; i++)
        HKI_TRY(hki_arena_strdup(&g->arena, g->o.names[i], &names[i]));
    g->o.names = names;
    g->timer.last_step = -1;
    if (g->o.at_end && g->o.every_iter == 0 && g->o.every_secs == 0)
        return HK_OK;
    return hki_timer_init(&g->timer, g->o.every_iter, g->o.every_secs);
}

hk_status hk_hook_logging(const hk_logging_options *opt, hk_hook **out) {
    logger *g;
    HKI_TRY(hki_zalloc_array(1, sizeof *g, &g));
    const hk_status s = logger_fill(g, opt);
    if (s != HK_OK) {
        logger_free(g);
        return s;
    }
    return hki_hook_make((hk_hook_calls){.name = "logging",
                                         .user = g,
                                         .user_free = logger_free,
                                         .before_run = logger_before,
                                         .after_run = logger_after,
                                         .end = logger_end},
                         sizeof *g, out);
}

// ---- elastic ----------------------------------------------------------------

static hk_status elastic_end(void *user, hk_run *run) {
    (void)user;
    for (uint32_t i = 0; i < run->e->config.c.workers; i++) {
        hk_worker_report r;
        HKI_TRY(hk_estimator_worker(run->e, i, &r));
        hki_log(run->e->ctx, HK_LOG_INFO,
                "worker %u: %lld steps, %llu exchanges, mean staleness %.3g, "
                "distance to the center %.4g, %.1f %% of its time in "
                "exchanges",
                i, (long long)r.local_step, (unsigned long long)r.exchanges,
                r.stats.staleness_mean, r.stats.distance,
                100 * r.stats.exchange_share);
    }
    return HK_OK;
}

hk_status hk_hook_elastic(hk_hook **out) {
    return hk_hook_create(&(hk_hook_calls){.struct_size = sizeof(hk_hook_calls),
                                           .name = "elastic",
                                           .end = elastic_end},
                          out);
}
