// run_context.c - the run context: what a hook sees and may ask for.
#include "estimator/estimator.h"
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
    run->in_after = true;
    const hk_status s = hki_hooks_call(h, HKI_HOOK_AFTER, run);
    run->in_after = false;
    return s;
}

// ---- plain questions --------------------------------------------------------

hk_estimator *hk_run_estimator(const hk_run *run) {
    return run->e;
}

hk_mode hk_run_mode(const hk_run *run) {
    return run->mode;
}

hk_session *hk_run_session(const hk_run *run) {
    return run->session;
}

uint32_t hk_run_worker(const hk_run *run) {
    return run->worker;
}

uint32_t hk_run_workers(const hk_run *run) {
    return run->workers;
}

int64_t hk_run_local_step(const hk_run *run) {
    return run->local_step;
}

int64_t hk_run_global_step(const hk_run *run) {
    return run->global_step;
}

int64_t hk_run_iteration(const hk_run *run) {
    return run->iteration;
}

double hk_run_seconds(const hk_run *run) {
    const int64_t t0 =
        run->loop != NULL ? run->loop->started_ns : run->started_ns;
    return (double)(hki_now_ns() - t0) * 1e-9;
}

int64_t hk_run_examples(const hk_run *run) {
    return run->loop != NULL ? atomic_load(&run->loop->examples)
                             : run->examples;
}

float hk_run_loss(const hk_run *run) {
    return run->loss;
}

const hk_step_info *hk_run_step_info(const hk_run *run) {
    return run->info;
}

hk_optimizer *hk_run_optimizer(const hk_run *run) {
    return run->w != NULL ? run->w->optimizer : NULL;
}

hk_elastic *hk_run_elastic(const hk_run *run) {
    return run->w != NULL ? run->w->elastic : NULL;
}

hk_ema *hk_run_ema(const hk_run *run) {
    return run->w != NULL && run->w->index == 0 ? run->e->crew->ema : NULL;
}

hk_event_writer *hk_run_events(const hk_run *run) {
    return run->mode == HK_TRAIN ? run->e->events : NULL;
}

hk_status hk_run_report(const hk_run *run, uint32_t worker,
                        hk_worker_report *out) {
    return hk_estimator_worker(run->e, worker, out);
}

// Batches that the data still has and had in all; -1: unknown.
static void data_length(const hk_run *run, int64_t *all, int64_t *left) {
    const hki_intake *const t = &run->e->intakes.at[run->w->index];
    const int64_t n = t->dataset != NULL ? hk_dataset_count(t->dataset) : -1;
    *all = n > 0 ? n : -1;
    *left = -1;
    hk_iter_info info;
    if (n > 0 && t->iter != NULL && hk_iter_get_info(t->iter, &info) == HK_OK)
        *left = HKI_MAX(n - (int64_t)info.delivered, INT64_C(0));
}

double hk_run_epochs(const hk_run *run) {
    int64_t all, left;
    if (run->loop == NULL)
        return -1;
    data_length(run, &all, &left);
    if (all <= 0 || left < 0)
        return -1;
    const int64_t epochs = HKI_MAX(run->e->intakes.epochs, INT64_C(1));
    return (double)(all - left) * (double)epochs / (double)all;
}

int64_t hk_run_planned_steps(const hk_run *run) {
    const hki_loop *const l = run->loop;
    if (l == NULL)
        return -1;
    const int64_t n = l->crew->n;
    const int64_t done = atomic_load(&l->steps);
    if (l->quota >= 0)
        return l->quota * n;
    if (l->opt.max_steps > 0)
        return l->opt.max_steps - l->start_global;
    int64_t all, left;
    data_length(run, &all, &left);
    return left < 0 ? -1 : done + left * n;
}

// ---- requests ---------------------------------------------------------------

void hk_run_request_stop(hk_run *run) {
    if (run->loop != NULL)
        hki_loop_stop(run->loop, HK_STOP_HOOK);
    run->stop = true;
}

int hk_run_should_stop(const hk_run *run) {
    return run->stop || (run->loop != NULL && atomic_load(&run->loop->stop)) ||
           hk_stop_requested(run->e->ctx);
}

hk_status hk_run_set(hk_run *run, const char *name, double value) {
    return hk_estimator_set(run->e, name, value);
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
        return hki_fail(HK_E_SHAPE, "%s has %lld elements, not one", name,
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
        return hki_fail(HK_E_STATE, "fetch %s: only in before_run", name);
    return hk_run_value(run, name, &t);
}

hk_status hk_run_feed(hk_run *run, const char *name, hk_tensor *t) {
    if (!run->in_before)
        return hki_fail(HK_E_STATE, "feed %s: only in before_run", name);
    if (name == NULL || t == NULL)
        return hki_fail(HK_E_INVALID_ARG, "feed: name or tensor is NULL");
    for (size_t i = 0; i < run->feeds.n; i++)
        if (strcmp(run->feeds.data[i].name, name) == 0)
            return hki_fail(HK_E_STATE,
                            "feed %s: another hook feeds it in this step",
                            name);
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
