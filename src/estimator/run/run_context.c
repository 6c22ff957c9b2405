// run_context.c - the run context: what a hook sees and may ask for.
#include "estimator/estimator.h"
#include "estimator/run/loop.h"
#include <math.h>

hk_status hki_runctx_init(hk_run *run, hk_estimator *e, hk_mode mode,
                          const hk_spec *spec) {
    const hk_shape scalar = hk_shape_make(0, NULL);
    *run = (hk_run){.e = e,
                    .mode = mode,
                    .spec = spec,
                    .workers = 1,
                    .is_chief = true,
                    .loss = NAN,
                    .started_ns = hki_now_ns()};
    HKI_TRY(hk_tensor_wrap(HK_F32, scalar, &run->loss, &run->loss_tensor));
    return hk_tensor_wrap(HK_I64, scalar, &run->global_step, &run->step_tensor);
}

void hki_runctx_deinit(hk_run *run) {
    hk_tensor_release(run->loss_tensor);
    hk_tensor_release(run->step_tensor);
    hki_free(run->feeds.data);
    hki_free(run->events.data);
}

// ---- around a step ----------------------------------------------------------

hk_status hki_runctx_before(hk_run *run, const hki_hooks *h) {
    run->feeds.n = 0;
    run->trace = false;
    run->in_before = true;
    const hk_status s = hki_hooks_call(h, HKI_HOOK_BEFORE, run);
    run->in_before = false;
    HKI_TRY(s);
    for (size_t i = 0; i < run->feeds.n; i++)
        HKI_TRY(hk_session_feed(run->session, run->feeds.data[i].name,
                                run->feeds.data[i].tensor));
    return run->trace ? hki_session_trace(run->session, true) : HK_OK;
}

static hk_status collect_trace(hk_run *run) {
    hk_session *const s = run->session;
    const size_t n = hki_session_trace_count(s);
    int64_t first = INT64_MAX;
    HKI_TRY(hki_session_trace(s, false));
    run->events.n = 0;
    for (size_t i = 0; i < n; i++) {
        const hki_trace_item t = hki_session_trace_item(s, i);
        if (t.end_ns == 0)
            continue;
        first = HKI_MIN(first, t.begin_ns);
        HKI_TRY(HKI_LIST_ROOM(run->events));
        run->events.data[run->events.n++] =
            (hk_trace_event){.name = t.name,
                             .note = t.note,
                             .begin_ns = t.begin_ns - first,
                             .end_ns = t.end_ns - first};
    }
    return HK_OK;
}

hk_status hki_runctx_after(hk_run *run, const hki_hooks *h) {
    run->events.n = 0;
    if (run->trace)
        HKI_TRY(collect_trace(run));
    return hki_hooks_call(h, HKI_HOOK_AFTER, run);
}

// ---- what it knows ----------------------------------------------------------

// Batches that the data still has and had in all; -1: unknown.
static void find_data_length(const hk_run *run, int64_t *all, int64_t *left) {
    const hki_intake *const t = &run->e->intakes.at[run->w->index];
    const int64_t n = t->dataset != NULL ? hk_dataset_count(t->dataset) : -1;
    *all = n > 0 ? n : -1;
    *left = -1;
    hk_iter_info info;
    if (n > 0 && t->iter != NULL && hk_iter_get_info(t->iter, &info) == HK_OK)
        *left = HKI_MAX(n - (int64_t)info.delivered, INT64_C(0));
}

static double count_epochs(const hk_run *run, int64_t all, int64_t left) {
    if (all <= 0 || left < 0)
        return -1;
    const int64_t n = HKI_MAX(run->e->intakes.epochs, INT64_C(1));
    return (double)(all - left) * (double)n / (double)all;
}

static int64_t count_planned_steps(const hki_loop *l, int64_t left) {
    const int64_t n = l->crew->n;
    if (l->quota >= 0)
        return l->quota * n;
    if (l->opt.max_steps > 0)
        return l->opt.max_steps - l->start_global;
    return left < 0 ? -1 : atomic_load(&l->steps) + left * n;
}

int64_t hki_runctx_examples(const hk_run *run) {
    return run->loop != NULL ? atomic_load(&run->loop->examples)
                             : run->examples;
}

bool hki_runctx_stopping(const hk_run *run) {
    return run->stop || (run->loop != NULL && atomic_load(&run->loop->stop)) ||
           hk_stop_requested(run->e->ctx);
}

// What only a training knows.
static void fill_training_info(const hk_run *run, hk_run_info *out) {
    const hki_worker *const w = run->w;
    int64_t all, left;
    find_data_length(run, &all, &left);
    out->planned_steps = count_planned_steps(run->loop, left);
    out->epochs = count_epochs(run, all, left);
    out->optimizer = w->optimizer;
    out->elastic = w->elastic;
    out->ema = w->index == 0 ? run->e->crew->ema : NULL;
    out->events = run->e->events;
}

hk_status hk_run_get_info(const hk_run *run, hk_run_info *out) {
    if (run == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "run info: NULL argument");
    const int64_t t0 =
        run->loop != NULL ? run->loop->started_ns : run->started_ns;
    *out = (hk_run_info){.estimator = run->e,
                         .session = run->session,
                         .mode = run->mode,
                         .worker = run->worker,
                         .worker_count = run->workers,
                         .stopping = hki_runctx_stopping(run),
                         .local_step = run->local_step,
                         .global_step = run->global_step,
                         .iteration = run->iteration,
                         .planned_steps = -1,
                         .examples = hki_runctx_examples(run),
                         .seconds = (double)(hki_now_ns() - t0) * 1e-9,
                         .epochs = -1,
                         .loss = run->loss};
    if (run->loop != NULL)
        fill_training_info(run, out);
    return HK_OK;
}

hk_status hk_run_step(const hk_run *run, const hk_step_info **out) {
    if (run == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "run step: NULL argument");
    if (run->loop == NULL || run->info == NULL)
        return hki_fail(HK_E_STATE,
                        "run step: no training step has been made yet");
    HKI_TRY(hki_trainer_open(run->w->trainer));
    *out = run->info;
    return HK_OK;
}

// ---- requests ---------------------------------------------------------------

void hk_run_request_stop(hk_run *run) {
    if (run->loop != NULL)
        hki_loop_stop(run->loop, HK_STOP_HOOK);
    run->stop = true;
}

// ---- values -----------------------------------------------------------------

static hk_status find_output(const hk_run *run, const char *name,
                             hk_tensor **out) {
    static const char *const prefix[] = {HKI_OUT_FETCH, HKI_OUT_PREDICTION,
                                         HKI_OUT_SUMMARY};
    char full[512];
    for (size_t i = 0; i < HKI_COUNT(prefix); i++) {
        const int n = snprintf(full, sizeof full, "%s%s", prefix[i], name);
        if (n > 0 && (size_t)n < sizeof full &&
            hk_session_output(run->session, full, out) == HK_OK)
            return HK_OK;
    }
    return hki_fail(HK_E_NOT_FOUND,
                    "no value %s in this run: register it in model_fn with "
                    "hk_spec_fetch (predictions are not computed while "
                    "training)",
                    name);
}

hk_status hk_run_value(const hk_run *run, const char *name, hk_tensor **out) {
    if (run == NULL || name == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "run value: NULL argument");
    if (strcmp(name, "loss") == 0)
        *out = run->loss_tensor;
    else if (strcmp(name, "global_step") == 0)
        *out = run->step_tensor;
    else
        return find_output(run, name, out);
    return HK_OK;
}

hk_status hk_run_number(const hk_run *run, const char *name, double *out) {
    hk_tensor *t, *copy;
    HKI_TRY(hk_run_value(run, name, &t));
    if (hk_tensor_count(t) != 1)
        return hki_fail(HK_E_SHAPE, "%s has %lld elements; one is needed", name,
                        (long long)hk_tensor_count(t));
    if (hk_tensor_dtype(t) == HK_F32) {
        *out = (double)*(const float *)hk_tensor_data(t);
        return HK_OK;
    }
    HKI_TRY(hk_tensor_copy(t, HK_F64, &copy));
    *out = *(const double *)hk_tensor_data(copy);
    hk_tensor_release(copy);
    return HK_OK;
}

hk_status hk_run_fetch(hk_run *run, const char *name) {
    hk_tensor *t;
    if (!run->in_before)
        return hki_fail(HK_E_STATE,
                        "fetch %s: can only be called in before_run", name);
    return hk_run_value(run, name, &t);
}

hk_status hk_run_feed(hk_run *run, const char *name, hk_tensor *t) {
    if (!run->in_before)
        return hki_fail(HK_E_STATE, "feed %s: can only be called in before_run",
                        name);
    if (name == NULL || t == NULL)
        return hki_fail(HK_E_INVALID_ARG, "feed: name or tensor is NULL");
    for (size_t i = 0; i < run->feeds.n; i++)
        if (strcmp(run->feeds.data[i].name, name) == 0)
            return hki_fail(
                HK_E_STATE,
                "feed %s: another hook already feeds it in this step", name);
    HKI_TRY(HKI_LIST_ROOM(run->feeds));
    run->feeds.data[run->feeds.n++] = (hki_feed){name, t};
    return HK_OK;
}

void hk_run_request_trace(hk_run *run) {
    if (run->in_before)
        run->trace = true;
}

const hk_trace_event *hk_run_trace(const hk_run *run, size_t i) {
    return i < run->events.n ? &run->events.data[i] : NULL;
}
