// sweep.c - running the trials of a sweep, several at once.
//
// A round is a list of trials and the local steps each has to reach; a grid
// has one round, successive halving several. The threads of a round take
// trials off the list. Estimators live on as long as a later round or the
// last save may need them: the best one, and in halving all survivors.
#include "estimator/sweep/sweep.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "ckpt/ckpt.h"
#include "estimator/estimator.h"
#include "estimator/run/hook_calls.h"
#include "graph/graph.h"

enum { MOST_THREADS = 64, MOST_HOOKS = 16 };

typedef struct sweep {
    hk_context *ctx;
    hk_sweep_options o;
    hki_sweep_store *r;
    hk_run_config config;      // of trials, where prepare says nothing else
    hk_estimator **estimators; // per trial; NULL: not there (any more)
    hk_trial_setup *setup;     // of each trial
    int64_t *epochs;           // done by each trial, where epochs count
    size_t *order;             // trials of the round
    size_t n_order;
    int64_t goal; // local steps, or epochs, at the end of the round
    bool last;    // of the rounds
    // Guards next, done, the trials' results and calls of on_trial.
    hki_mutex lock;
    size_t next, done;
} sweep;

HKI_OPTIONS(hk_sweep_options, prepare, .metric = "loss", .seed = 1,
            .kind = HK_SWEEP_GRID, .trials = 10, .eta = 3)

// ---- one trial ------------------------------------------------------------

static const char *root_of(const sweep *w) {
    const hk_estimator_options *const e = w->o.estimator;
    return e->model_dir != NULL ? e->model_dir
           : e->config != NULL  ? e->config->model_dir
                                : NULL;
}

static hk_status set_params(const sweep *w, const hk_trial *t,
                            const hk_params *fixed, hk_params **out) {
    HKI_SCOPED(hk_params_destroy_at) hk_params *p = NULL;
    HKI_TRY(fixed != NULL ? hki_params_copy(fixed, &p) : hk_params_create(&p));
    for (size_t i = 0; i < t->n_params; i++) {
        const hk_hparam *const h = &t->params[i];
        const hk_sweep_axis *const a = &w->o.axes[i];
        if (a->outside)
            continue;
        if (h->type == HK_HPARAM_STRING)
            HKI_TRY(hk_params_set_string(p, a->name, h->string));
        else if (a->integer)
            HKI_TRY(hk_params_set_int(p, a->name, (int64_t)h->number));
        else
            HKI_TRY(hk_params_set_float(p, a->name, h->number));
    }
    return HKI_HAND_ON(out, p);
}

// One checkpoint is left at the end, the best trial's. A worker has one library
// thread unless told otherwise, so that the bits do not depend on how many
// trials run side by side.
static hk_status trial_config(const hk_run_config *given, bool hooked,
                              hk_run_config *c) {
    hk_run_config_init(c, sizeof *c);
    if (given != NULL)
        HKI_TRY(hki_options_copy(c, sizeof *c, given, "sweep: run config"));
    c->save_checkpoints_steps = 0;
    c->save_checkpoints_secs = 0;
    if (!hooked)
        c->keep_best = 0;
    c->threads = HKI_MAX(1u, c->threads);
    return HK_OK;
}

static hk_status prepare(sweep *w, const hk_trial *t) {
    hk_trial_setup *const p = &w->setup[t->number];
    *p = (hk_trial_setup){
        .estimator = *w->o.estimator, .train = *w->o.train, .eval = *w->o.eval};
    if (w->o.prepare == NULL)
        return HK_OK;
    HKI_LOCKED(&w->lock);
    return w->o.prepare(w->o.user, t, p);
}

static hk_status create_estimator(sweep *w, const hk_trial *t,
                                  hk_estimator **out) {
    HKI_SCOPED(hk_params_destroy_at) hk_params *params = NULL;
    hk_run_config config;
    HKI_TRY(prepare(w, t));
    hk_estimator_options e = w->setup[t->number].estimator;
    HKI_TRY(trial_config(e.config, w->setup[t->number].n_hooks > 0, &config));
    HKI_TRY(set_params(w, t, e.params, &params));
    config.model_dir = t->folder;
    e.params = params;
    e.model_dir = NULL;
    e.config = &config;
    e.user_free = NULL; // the user data serves all trials
    return hk_estimator_create(w->ctx, &e, out);
}

// Start or end of a trial for TensorBoard's HParams page. The estimator's own
// writer is not open then.
static hk_status note_trial(const hk_trial *t, bool start) {
    if (t->folder == NULL)
        return HK_OK;
    hk_event_options o;
    hk_event_options_init(&o, sizeof o);
    o.suffix = ".hparams";
    hk_event_writer *w;
    HKI_TRY(hk_event_open(t->folder, &o, &w));
    const hk_status s =
        start ? hk_event_hparams_start(w, t->folder, t->params, t->n_params)
              : hk_event_hparams_end(w, t->status == HK_OK);
    const hk_status closed = hk_event_close(w);
    return s != HK_OK ? s : closed;
}

static hk_status keep_items(sweep *w, hk_trial *t, const hk_eval_result *r) {
    const size_t n = r->item_count;
    hk_eval_item *items;
    HKI_LOCKED(&w->lock);
    HKI_TRY(hki_arena_alloc(&w->r->arena, n, sizeof *items, &items));
    for (size_t i = 0; i < n; i++) {
        const hk_eval_item *const it = &r->items[i];
        items[i] = *it;
        double *values;
        HKI_TRY(hki_arena_strdup(&w->r->arena, it->name, &items[i].name));
        HKI_TRY(hki_arena_strdup(&w->r->arena, it->weights, &items[i].weights));
        HKI_TRY(hki_arena_alloc(&w->r->arena, it->n_values, sizeof *values,
                                &values));
        if (it->n_values > 0)
            memcpy(values, it->values, it->n_values * sizeof *values);
        items[i].values = values;
    }
    t->items = items;
    t->n_items = n;
    return HK_OK;
}

// What a trial ends with is chosen in its last round only: one that goes back
// to its best would begin the next round there.
static hk_status choose_hooks(const sweep *w, const hk_trial_setup *p,
                              hk_hook **list, size_t *n) {
    if (p->n_hooks > MOST_HOOKS)
        return hki_fail(HK_E_INVALID_ARG,
                        "sweep: %zu hooks are too many; the limit is %d",
                        p->n_hooks, MOST_HOOKS);
    *n = 0;
    for (size_t i = 0; i < p->n_hooks; i++)
        if (w->last || !p->hooks[i]->judges)
            list[(*n)++] = p->hooks[i];
    return HK_OK;
}

HKI_SCOPED_HANDLE(hk_eval_result, hk_eval_result_destroy)

static hk_status train_and_score(sweep *w, hk_trial *t, hk_estimator *e) {
    const hk_trial_setup *const p = &w->setup[t->number];
    hk_hook *hooks[MOST_HOOKS];
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    const bool by_epochs = w->o.epochs > 0;
    o.steps = by_epochs ? 0 : w->goal - t->steps;
    o.epochs = by_epochs ? w->goal - w->epochs[t->number] : 0;
    HKI_TRY(choose_hooks(w, p, hooks, &o.n_hooks));
    o.hooks = hooks;
    hk_train_result trained;
    hk_estimator_info info;
    HKI_TRY(hk_estimator_train(e, &p->train, &o, &trained));
    HKI_TRY(hk_estimator_get_info(e, &info));
    w->epochs[t->number] = w->goal;
    t->steps += trained.steps / HKI_MAX(1u, info.worker_count);
    t->seconds += trained.seconds;
    hk_evaluate_options v;
    hk_evaluate_options_init(&v, sizeof v);
    v.weights = w->o.weights;
    HKI_SCOPED(hk_eval_result_destroy_at) hk_eval_result *r = NULL;
    HKI_TRY(hk_estimator_evaluate(e, &p->eval, &v, &r));
    HKI_TRY(hk_eval_result_get(r, w->o.metric, NULL, &t->metric));
    return keep_items(w, t, r);
}

static hk_status run_trial(sweep *w, hk_trial *t) {
    hk_estimator **const e = &w->estimators[t->number];
    t->rounds++;
    if (*e == NULL) {
        HKI_TRY(note_trial(t, true));
        HKI_TRY(create_estimator(w, t, e));
    }
    return train_and_score(w, t, *e);
}

// ---- comparing ------------------------------------------------------------

// A trial that failed, or has no number to show, is behind all others.
static bool better(const sweep *w, const hk_trial *a, const hk_trial *b) {
    const bool bad_a = a->status != HK_OK || isnan(a->metric);
    const bool bad_b = b->status != HK_OK || isnan(b->metric);
    if (bad_a || bad_b)
        return !bad_a && bad_b;
    if (a->metric == b->metric)
        return a->number < b->number;
    return w->o.best_is_max ? a->metric > b->metric : a->metric < b->metric;
}

static void drop(sweep *w, size_t number) {
    hk_estimator_destroy(w->estimators[number]);
    w->estimators[number] = NULL;
}

// One that is not the best leaves no checkpoint.
static void lose(sweep *w, size_t number) {
    hk_estimator *const e = w->estimators[number];
    if (e != NULL && e->saver != NULL && e->config.c.keep_best > 0 &&
        hki_saver_clear(e->saver) != HK_OK)
        hki_log(w->ctx, HK_LOG_WARNING, "sweep: trial %zu: %s", number,
                hk_last_error());
    drop(w, number);
}

// Called with the lock: the trial is done with this round.
static void account(sweep *w, hk_trial *t) {
    hki_sweep_store *const r = w->r;
    w->done++;
    if (w->o.on_trial != NULL)
        w->o.on_trial(w->o.user, t, w->done, w->n_order);
    if (!w->last)
        return; // survivors are chosen at the end of the round
    if (t->status == HK_OK && !isnan(t->metric) &&
        (r->shown.best == NULL || better(w, t, r->shown.best))) {
        if (r->shown.best != NULL)
            lose(w, r->shown.best->number);
        r->shown.best = t;
    } else {
        lose(w, t->number);
    }
}

// ---- a round --------------------------------------------------------------

static void work(void *user) {
    sweep *const w = user;
    for (;;) {
        hki_mutex_lock(&w->lock);
        const bool end =
            w->next >= w->n_order || hk_stop_requested(w->ctx) != 0;
        hk_trial *const t = end ? NULL : &w->r->trials[w->order[w->next++]];
        hki_mutex_unlock(&w->lock);
        if (t == NULL)
            return;
        const hk_status s = run_trial(w, t);
        hki_mutex_lock(&w->lock);
        t->status = s;
        if (s != HK_OK) {
            t->metric = (double)NAN;
            // Without memory for the text the status alone has to do.
            if (hki_arena_strdup(&w->r->arena, hk_last_error(), &t->error) !=
                HK_OK)
                t->error = hk_status_string(s);
        }
        account(w, t);
        hki_mutex_unlock(&w->lock);
    }
}

static hk_status run_round(sweep *w, uint32_t threads) {
    hki_thread *list[MOST_THREADS] = {NULL};
    hk_status s = HK_OK;
    w->next = w->done = 0;
    // The calling thread takes part, so a thread that cannot start is no harm.
    for (uint32_t i = 1; i < threads && i < MOST_THREADS; i++)
        if (hki_thread_start(work, w, -1, "hooke-trial", &list[i]) != HK_OK)
            break;
    work(w);
    for (uint32_t i = 1; i < MOST_THREADS; i++)
        hki_thread_stop(list[i]);
    if (hk_stop_requested(w->ctx) != 0 && w->done < w->n_order)
        s = hki_fail(HK_E_CANCELLED,
                     "sweep: stopped on request after %zu of %zu trials",
                     w->done, w->n_order);
    return s;
}

// Selection sort of the round's trials, the best first; they are few.
static void rank(sweep *w) {
    for (size_t i = 0; i < w->n_order; i++)
        for (size_t k = i + 1; k < w->n_order; k++)
            if (better(w, &w->r->trials[w->order[k]],
                       &w->r->trials[w->order[i]])) {
                const size_t swap = w->order[i];
                w->order[i] = w->order[k];
                w->order[k] = swap;
            }
}

static hk_status run_rounds(sweep *w, uint32_t threads) {
    const hk_sweep_options *const o = &w->o;
    const int64_t end = o->epochs > 0 ? o->epochs : o->steps;
    if (o->kind != HK_SWEEP_HALVING) {
        w->goal = end;
        w->last = true;
        return run_round(w, threads);
    }
    w->goal = o->min_steps;
    if (w->goal == 0)
        w->goal = HKI_MAX(1, end / ((int64_t)o->eta * o->eta));
    if (w->n_order == 1)
        w->goal = end;
    for (;;) {
        w->last = w->goal >= end;
        HKI_TRY(run_round(w, threads));
        if (w->last)
            return HK_OK;
        rank(w);
        const size_t keep = (w->n_order + o->eta - 1) / o->eta;
        for (size_t i = keep; i < w->n_order; i++)
            lose(w, w->order[i]);
        w->n_order = keep;
        w->goal = keep == 1 ? end : HKI_MIN(end, w->goal * (int64_t)o->eta);
    }
}

// ---- the sweep ------------------------------------------------------------

// Folders, and the experiment's page of TensorBoard.
static hk_status prepare_folders(sweep *w) {
    const char *const root = root_of(w);
    if (root == NULL)
        return HK_OK;
    hki_sweep_store *const r = w->r;
    for (size_t i = 0; i < r->count; i++)
        HKI_TRY(hki_arena_printf(&r->arena, &r->trials[i].folder,
                                 "%s/trial_%zu", root, i));
    hk_event_options o;
    hk_event_options_init(&o, sizeof o);
    o.suffix = ".hparams";
    hk_event_writer *e;
    HKI_TRY(hk_event_open(root, &o, &e));
    const char *const metrics[1] = {w->o.metric};
    const hk_status s =
        hk_event_hparams_experiment(e, root, r->trials[0].params,
                                    r->trials[0].n_params, "eval", metrics, 1);
    const hk_status closed = hk_event_close(e);
    return s != HK_OK ? s : closed;
}

static hk_status finish(sweep *w) {
    hk_status s = HK_OK;
    const hk_trial *const best = w->r->shown.best;
    if (best != NULL && best->folder != NULL &&
        w->estimators[best->number] != NULL)
        s = hk_estimator_save(w->estimators[best->number]);
    for (size_t i = 0; i < w->r->count; i++) {
        drop(w, i);
        if (s == HK_OK && w->r->trials[i].rounds > 0)
            s = note_trial(&w->r->trials[i], false);
    }
    return s;
}

static hk_status start(sweep *w) {
    hki_sweep_store *const r = w->r;
    HKI_TRY(hki_sweep_draw(&w->o, r));
    HKI_TRY(hki_zalloc_array(r->count, sizeof *w->estimators, &w->estimators));
    HKI_TRY(hki_alloc_array(r->count, sizeof *w->order, &w->order));
    HKI_TRY(hki_zalloc_array(r->count, sizeof *w->setup, &w->setup));
    HKI_TRY(hki_zalloc_array(r->count, sizeof *w->epochs, &w->epochs));
    w->n_order = r->count;
    for (size_t i = 0; i < r->count; i++)
        w->order[i] = i;
    HKI_TRY(trial_config(w->o.estimator->config, false, &w->config));
    return prepare_folders(w);
}

// Trials at once: as many as leave every worker a core.
static uint32_t parallelism(const sweep *w) {
    const hk_run_config *const c = &w->config;
    const uint32_t each = HKI_MAX(1u, c->workers) * c->threads;
    const uint32_t fit = HKI_MAX(1u, hki_context_threads(w->ctx) / each);
    const uint32_t n = w->o.parallel > 0 ? w->o.parallel : fit;
    return HKI_MIN((uint32_t)HKI_MIN((size_t)n, w->n_order),
                   (uint32_t)MOST_THREADS);
}

hk_status hk_sweep_run(hk_context *ctx, const hk_sweep_options *opt,
                       hk_sweep_result **out) {
    if (ctx == NULL || opt == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "sweep: context, options or out is NULL");
    sweep w = {.ctx = ctx};
    HKI_TRY(HKI_OPTIONS_GET(hk_sweep_options, &w.o, opt, "sweep options"));
    HKI_TRY(hki_zalloc_array(1, sizeof *w.r, &w.r));
    hki_mutex_init(&w.lock);
    hk_status s = start(&w);
    if (s == HK_OK)
        s = run_rounds(&w, parallelism(&w));
    if (w.estimators != NULL && (s == HK_OK || s == HK_E_CANCELLED)) {
        const hk_status ended = finish(&w);
        s = s == HK_OK ? ended : s;
    }
    for (size_t i = 0; w.estimators != NULL && i < w.r->count; i++)
        drop(&w, i);
    hki_free(w.estimators);
    hki_free(w.order);
    hki_free(w.setup);
    hki_free(w.epochs);
    hki_mutex_deinit(&w.lock);
    if (s != HK_OK && s != HK_E_CANCELLED) {
        hk_sweep_result_destroy(&w.r->shown);
        return s;
    }
    w.r->shown.trials = w.r->trials;
    w.r->shown.trial_count = w.r->count;
    *out = &w.r->shown;
    return s;
}

void hk_sweep_result_destroy(hk_sweep_result *r) {
    hki_sweep_store *const k = (hki_sweep_store *)r;
    if (k == NULL)
        return;
    hki_arena_deinit(&k->arena);
    hki_free(k);
}
