// train.c - the train call: its options, what it starts from, its hooks.
#include "estimator/estimator.h"
#include "estimator/run/cluster_role.h"
#include "estimator/run/loop.h"
#include "estimator/saved/snapshot.h"
#include <math.h>

HKI_OPTIONS(hk_train_options, n_listeners)

const char *hk_stop_reason_name(hk_stop_reason r) {
    static const char *const names[] = {"none", "steps", "data",
                                        "time", "hook",  "requested",
                                        "nan",  "done",  "center"};
    return (unsigned)r < HKI_COUNT(names) ? names[r] : "unknown";
}

static hk_status check_options(const hk_estimator *e,
                               const hk_train_options *o) {
    const hk_run_config *const c = &e->config.c;
    if (o->steps < 0 || o->max_steps < 0 || o->epochs < 0 ||
        !(o->max_seconds >= 0))
        return hki_fail(HK_E_INVALID_ARG,
                        "train: steps %lld, max_steps %lld, epochs %lld and "
                        "max_seconds %g have to be above 0, or 0 for no limit",
                        (long long)o->steps, (long long)o->max_steps,
                        (long long)o->epochs, o->max_seconds);
    if (o->steps > 0 && o->max_steps > 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "train: steps (%lld more) and max_steps (up to %lld) "
                        "exclude each other",
                        (long long)o->steps, (long long)o->max_steps);
    bool saves = c->save_checkpoints_steps > 0 || c->save_checkpoints_secs > 0;
    for (size_t i = 0; i < o->n_hooks; i++)
        saves |= o->hooks[i] != NULL && o->hooks[i]->is_saver;
    saves &= c->model_dir != NULL && !c->not_chief;
    if (o->n_listeners > 0 && !saves)
        return hki_fail(HK_E_INVALID_ARG,
                        "train: there are saving listeners, but checkpoints "
                        "are not saved; set a model_dir and a saving period");
    return HK_OK;
}

// ---- getting ready ----------------------------------------------------------

// Keeps a description of the features, for export.
hk_status hki_note_features(hk_estimator *e, const hk_element *data) {
    hki_arena a = {0};
    hk_element copy;
    const hk_status s = hki_copy_element(&a, data, &copy);
    if (s != HK_OK) {
        hki_arena_deinit(&a);
        return s;
    }
    hki_arena_deinit(&e->feature_arena);
    e->feature_arena = a;
    e->features = copy;
    return HK_OK;
}

static hk_status make_crew(hk_estimator *e, hk_spec *m, int64_t batch) {
    hki_kept_deinit(&e->kept); // what is in memory counts from now on
    HKI_TRY(hki_crew_create(e, m, batch, &e->crew));
    hk_status s = hki_scalars_check(e, e->crew);
    for (uint32_t i = 0; i < e->crew->n && s == HK_OK; i++)
        s = hki_scalars_apply_worker(&e->crew->workers[i]);
    if (s == HK_OK)
        s = hki_snapshot_restore(e);
    if (s != HK_OK) {
        hki_crew_destroy(e->crew);
        e->crew = NULL;
    }
    return s;
}

// Data, graph and workers. HK_E_END when the data is empty.
hk_status hki_train_prepare(hk_estimator *e, const hk_source *in,
                            int64_t epochs) {
    hk_spec *m;
    const hk_element *first = NULL;
    int64_t batch;
    HKI_TRY(hki_role_open(e, in));
    HKI_TRY(hki_snapshot_open(e));
    HKI_TRY(hki_intakes_open(e, in, epochs));
    const hk_element *const data = hk_dataset_spec(e->intakes.at[0].dataset);
    HKI_TRY(hki_spec_get(e, HK_TRAIN, data, &m));
    HKI_TRY(hki_note_features(e, data));
    if (e->crew != NULL && e->crew->spec != m)
        return hki_fail(HK_E_INVALID_ARG,
                        "input %s: the types or shapes of the data differ from "
                        "those that this estimator was trained with; create "
                        "another estimator, with a warm start if needed",
                        in->name);
    HKI_TRY(hki_intakes_look(&e->intakes, &first));
    if (e->crew != NULL)
        return HK_OK;
    if (first != NULL)
        HKI_TRY(hki_element_batch(m, first, &batch));
    else // a center leases nothing before a worker has joined
        batch = HKI_MAX(hki_dataset_batch(e->intakes.at[0].dataset), 1);
    return make_crew(e, m, batch);
}

static hk_status open_events(hk_estimator *e) {
    const hk_run_config *const c = &e->config.c;
    if (c->model_dir == NULL || c->not_chief || c->save_summary_steps == 0 ||
        e->events != NULL)
        return HK_OK;
    return hki_events_open(e, c->model_dir, &e->events);
}

// ---- hooks in TF's order ----------------------------------------------------

// Takes the reference.
static hk_status hand_over_hook(hki_hooks *h, hk_hook *hook) {
    const hk_status s = hki_hooks_add(h, hook);
    hk_hook_release(hook);
    return s;
}

static bool has_saver(const hk_train_options *o, const hk_spec *m) {
    for (size_t i = 0; i < o->n_hooks; i++)
        if (o->hooks[i] != NULL && o->hooks[i]->is_saver)
            return true;
    for (size_t i = 0; i < m->hooks.n; i++)
        if (m->hooks.data[i]->is_saver)
            return true;
    for (size_t i = 0; i < m->chief_hooks.n; i++)
        if (m->chief_hooks.data[i]->is_saver)
            return true;
    return false;
}

static hk_status add_saver(hki_loop *l) {
    const hk_run_config *const c = &l->e->config.c;
    hk_hook *h;
    if (l->e->saver == NULL || has_saver(&l->opt, l->crew->spec) ||
        (c->save_checkpoints_steps == 0 && c->save_checkpoints_secs == 0))
        return HK_OK;
    HKI_TRY(hk_hook_checkpoint_saver(c->save_checkpoints_steps,
                                     c->save_checkpoints_secs, NULL, 0, &h));
    return hand_over_hook(&l->hooks, h);
}

static hk_status add_logging(hki_loop *l) {
    hk_logging_options o;
    hk_logging_options_init(&o, sizeof o);
    o.every_iter = l->e->config.c.log_step_count_steps;
    hk_hook *h;
    if (o.every_iter == 0)
        return HK_OK;
    HKI_TRY(hk_hook_logging(&o, &h));
    return hand_over_hook(&l->hooks, h);
}

static hk_status add_hooks(hki_loop *l) {
    const hk_run_config *const c = &l->e->config.c;
    const hk_spec *const m = l->crew->spec;
    hki_hooks *const h = &l->hooks;
    hk_hook *k;
    HKI_TRY(add_saver(l));
    for (size_t i = 0; i < m->chief_hooks.n; i++)
        HKI_TRY(hki_hooks_add(h, m->chief_hooks.data[i]));
    if (c->log_step_count_steps > 0) {
        HKI_TRY(hk_hook_step_counter(c->log_step_count_steps, 0, &k));
        HKI_TRY(hand_over_hook(h, k));
    }
    if (l->e->events != NULL) {
        HKI_TRY(hk_hook_summary_saver(c->save_summary_steps, 0, NULL, &k));
        HKI_TRY(hand_over_hook(h, k));
    }
    for (size_t i = 0; i < l->opt.n_hooks; i++)
        HKI_TRY(hki_hooks_add(h, l->opt.hooks[i]));
    HKI_TRY(add_logging(l));
    for (size_t i = 0; i < m->hooks.n; i++)
        HKI_TRY(hki_hooks_add(h, m->hooks.data[i]));
    return HK_OK;
}

// ---- the call ---------------------------------------------------------------

static void set_limits(hki_loop *l) {
    const hki_crew *const c = l->crew;
    const int64_t left = l->opt.max_steps - l->start_global;
    l->quota = l->opt.steps > 0 ? l->opt.steps : -1;
    if (l->opt.max_steps == 0 || (c->is_elastic && !c->own_center))
        return;
    // Coupled workers make equal numbers of steps; others take what is left.
    if (l->coupled || c->n == 1)
        l->quota = (left + c->n - 1) / c->n;
    else
        l->use_tickets = true;
    atomic_store(&l->tickets, left);
}

static bool is_coupled(const hki_crew *c) {
    hk_center_info info;
    if (c->n == 1 || c->center == NULL ||
        hk_center_get_info(c->center, &info) != HK_OK)
        return false;
    return info.turn != HK_TURN_FREE || c->center->method->rounds;
}

static hk_status create_runs(hki_loop *l) {
    HKI_TRY(hki_zalloc_array(l->crew->n, sizeof *l->runs, &l->runs));
    for (uint32_t i = 0; i < l->crew->n; i++)
        HKI_TRY(hki_runctx_init(&l->runs[i], l->e, HK_TRAIN, l->crew->spec));
    return HK_OK;
}

static uint64_t count_exchanges(const hki_crew *c) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < c->n; i++)
        n += c->workers[i].report.exchanges;
    return n;
}

// The workers, tied to their center, the runs that hooks see, and the hooks.
static hk_status open_workers(hki_loop *l) {
    hk_estimator *const e = l->e;
    l->crew = e->crew;
    hki_mutex_init(&l->lock);
    hki_mutex_init(&l->hook_lock);
    hki_cond_init(&l->changed);
    l->has_locks = true;
    HKI_TRY(open_events(e));
    HKI_TRY(hki_crew_tie(l->crew));
    l->coupled = is_coupled(l->crew);
    set_limits(l);
    HKI_TRY(create_runs(l));
    HKI_TRY(add_hooks(l));
    l->exchanges_before = count_exchanges(l->crew);
    return hki_role_begin(e, &l->opt);
}

// What the call starts from. Without a step to make, *reason says why.
static hk_status open_loop(hki_loop *l, const hk_source *in,
                           hk_stop_reason *reason) {
    hk_estimator *const e = l->e;
    const int64_t most = l->opt.max_steps;
    HKI_TRY(hki_role_open(e, in));
    HKI_TRY(hki_snapshot_open(e));
    l->start_global = hki_global_step(e);
    if (most > 0 && l->start_global >= most && e->role == NULL) {
        hki_log(
            e->ctx, HK_LOG_INFO,
            "training is complete: global step %lld has reached max_steps %lld",
            (long long)l->start_global, (long long)most);
        *reason = HK_STOP_DONE;
        return HK_OK;
    }
    const hk_status s = hki_train_prepare(e, in, l->opt.epochs);
    if (s == HK_E_END) {
        *reason = HK_STOP_DATA;
        return HK_OK;
    }
    HKI_TRY(s);
    return open_workers(l);
}

static void close_loop(hki_loop *l) {
    hki_hooks_deinit(&l->hooks);
    for (uint32_t i = 0; l->runs != NULL && i < l->crew->n; i++)
        hki_runctx_deinit(&l->runs[i]);
    hki_free(l->runs);
    hki_free(l->tasks.data);
    if (!l->has_locks)
        return;
    hki_mutex_deinit(&l->lock);
    hki_mutex_deinit(&l->hook_lock);
    hki_cond_deinit(&l->changed);
}

static void fill_result(const hki_loop *l, hk_train_result *r) {
    r->global_step = hki_global_step(l->e);
    r->steps = atomic_load(&l->steps);
    r->examples = atomic_load(&l->examples);
    r->exchanges = count_exchanges(l->crew) - l->exchanges_before;
    r->seconds = (double)(l->ended_ns - l->started_ns) * 1e-9;
    r->loss = l->runs[0].loss;
    r->reason = (hk_stop_reason)atomic_load(&l->reason);
}

// The checkpoint was read. Results of evaluations are in, and files on disk,
// when the call returns.
static hk_status finish_files(hk_estimator *e, hk_status s) {
    if (s == HK_OK)
        s = hki_scoring_settle(e);
    const hki_fault fault = hki_fault_of(s);
    hk_ckpt_close(e->ckpt);
    e->ckpt = NULL;
    const hk_status written =
        e->saver != NULL ? hk_saver_wait(e->saver) : HK_OK;
    if (e->events != NULL && s == HK_OK && written == HK_OK)
        return hk_event_flush(e->events);
    return s != HK_OK ? hki_fault_raise(&fault) : written;
}

// The best checkpoint becomes the newest, and the estimator holds its model at
// once, workers and center included: no caller sees a state in between.
static hk_status return_to_best(hk_estimator *e) {
    hk_spec *const m = e->crew->spec;
    const int64_t batch = e->crew->workers[0].bench.slots.data[0].batch;
    HKI_TRY(hki_snapshot_go_back(e));
    if (e->crew != NULL)
        return HK_OK; // the last is the best
    HKI_TRY(hki_snapshot_open(e));
    HKI_TRY(make_crew(e, m, batch));
    return hki_snapshot_restore_values(e);
}

hk_status hk_estimator_train(hk_estimator *e, const hk_source *input,
                             const hk_train_options *opt,
                             hk_train_result *result) {
    if (e == NULL)
        return hki_fail(HK_E_INVALID_ARG, "train: the estimator is NULL");
    if (e->is_training)
        return hki_fail(HK_E_STATE, "train: cannot be called from a hook");
    hk_source in;
    hki_loop l = {.e = e, .quota = -1, .nan_policy = e->config.c.nan_policy};
    HKI_TRY(HKI_OPTIONS_GET(hk_train_options, &l.opt, opt, "train options"));
    HKI_TRY(check_options(e, &l.opt));
    HKI_TRY(hki_source_check(input, &in));
    hk_train_result r = {.loss = NAN};
    e->go_back = false;
    hk_status s = open_loop(&l, &in, &r.reason);
    r.global_step = l.start_global;
    if (s == HK_OK && r.reason == HK_STOP_NONE) {
        e->is_training = true;
        s = hki_loop_run(&l);
        e->is_training = e->at_pause = false;
        fill_result(&l, &r);
        if (s == HK_OK)
            s = hki_role_leave(e, l.run_end);
    }
    close_loop(&l);
    HKI_TRY(finish_files(e, s));
    if (e->go_back && e->crew != NULL) {
        HKI_TRY(return_to_best(e));
        r.global_step = hki_global_step(e);
    }
    if (result != NULL)
        *result = r;
    return HK_OK;
}

// ---- reports ----------------------------------------------------------------

hk_status hk_estimator_worker(const hk_estimator *e, uint32_t worker,
                              hk_worker_report *out) {
    if (e == NULL || out == NULL || worker >= e->config.c.workers)
        return hki_fail(HK_E_NOT_FOUND, "there is no worker %u", worker);
    *out = (hk_worker_report){0};
    if (e->crew == NULL)
        return HK_OK;
    HKI_LOCKED(&e->crew->lock);
    *out = e->crew->workers[worker].report;
    return HK_OK;
}
