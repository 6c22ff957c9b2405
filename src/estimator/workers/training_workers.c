// training_workers.c - the workers of a training, their center and average,
// kept from call to call.
#include "estimator/estimator.h"
#include <math.h>
#include "base/team.h"

#define WAIT_MS 60000

// ---- options ----------------------------------------------------------------

hki_engine_share hki_worker_share(const hk_estimator *e) {
    const hk_run_config *const c = &e->config.c;
    return (hki_engine_share){
        .exact = c->threads,
        .limit = hki_team_share(hki_context_threads(e->ctx), c->workers),
        .device = c->first_worker == UINT32_MAX ? 0 : c->first_worker};
}

static bool has_turns(const hki_crew *c) {
    hk_center_info info;
    return hk_center_get_info(c->center, &info) == HK_OK &&
           info.turn != HK_TURN_FREE;
}

static void elastic_options(const hki_crew *c, hk_elastic_options *o) {
    const hk_run_config *const k = &c->e->config.c;
    if (k->elastic != NULL)
        *o = *k->elastic;
    else if (c->spec->has_elastic)
        *o = c->spec->elastic;
    else {
        // The paper's rates: TensorFlow's default rho divides by the learning
        // rate, which overwhelms the gradients of Adam and its kind.
        hk_elastic_options_init(o, sizeof *o);
        o->preset = HK_PRESET_PAPER;
        o->order = HK_ORDER_TF;
    }
    if (c->has_rates) {
        o->communication_period = hki_rates_now(c).period;
        o->moving_rate = c->rates.moving_rate;
    }
    if (o->num_worker == 0)
        o->num_worker = k->all_workers;
    if (o->context == NULL)
        o->context = c->e->ctx;
    if (o->telemetry == 0)
        o->telemetry = k->telemetry;
    // The average of the center reads it where an exchange saw it: in the
    // worker's view, which is the same in every run of one turn order.
    if (c->ema != NULL && c->ema_of_center && o->overlap_steps == 0)
        o->keep_view = 1;
    // So does a worker that goes back to it.
    if (k->rail > 0 && k->all_workers > 1 && o->overlap_steps == 0 &&
        has_turns(c))
        o->keep_view = 1;
    // Without a rate of its own a custom step has no automatic rho.
    if (c->spec->train_step != NULL && o->rho == HK_ELASTIC_AUTO)
        o->rho = 0;
}

static void optimizer_options(const hk_spec *m, uint32_t threads,
                              hk_optimizer_options *o) {
    if (m->has_optimizer) {
        *o = m->optimizer;
    } else { // never applied: the custom step moves x
        hk_optimizer_options_init(o, sizeof *o, HK_OPT_GRADIENT_DESCENT);
        o->learning_rate = 0;
    }
    if (o->threads == 0)
        o->threads = threads;
}

// ---- averages ---------------------------------------------------------------

hk_status hki_crew_set_average_step(hki_crew *c, const hki_worker *w) {
    return c->ema != NULL && c->ema_with_step && w->index == 0
               ? hk_ema_set(c->ema, "num_updates",
                            (double)w->info->local_step + 1)
               : HK_OK;
}

// Steps since the exchange before: a period, or less at the end of the data.
static hk_status steps_of_exchange(const hk_elastic *e, double *out) {
    double period = 1;
    HKI_TRY(hk_elastic_get(e, "communication_period", &period));
    const double rest = fmod((double)hki_elastic_local_step(e), period);
    *out = rest > 0 ? rest : period;
    return HK_OK;
}

// The decay is that of a step, and an exchange stands for several of them: the
// average looks as far back with a long period as with a short one.
hk_status hki_crew_average(hki_crew *c, const hki_worker *w) {
    double steps;
    if (c->ema == NULL || !c->ema_of_center || w->index != 0)
        return HK_OK;
    HKI_TRY(steps_of_exchange(c->workers[0].elastic, &steps));
    hk_elastic_info info;
    HKI_TRY(hk_elastic_get_info(c->workers[0].elastic, &info));
    const float *view = info.view;
    if (view == NULL) {
        HKI_TRY(hk_center_snapshot(c->center, HK_CENTER_VALUES, WAIT_MS,
                                   c->model, NULL, NULL));
        view = c->model;
    }
    return hki_ema_update_steps(c->ema, view, steps);
}

static hk_status insert_callbacks(const hki_crew *c, hki_worker *w) {
    const hk_spec *const m = c->spec;
    for (size_t i = 0; i < m->inserts.n; i++)
        HKI_TRY(hk_trainer_insert(w->trainer, m->inserts.data[i].point,
                                  m->inserts.data[i].fn,
                                  m->inserts.data[i].user));
    return HK_OK;
}

// ---- one worker -------------------------------------------------------------

hki_vector *hki_worker_x(const hki_worker *w) {
    return hki_session_x(w->bench.slots.data[0].session);
}

float *hki_worker_values(const hki_worker *w) {
    return hk_session_params(w->bench.slots.data[0].session);
}

// All workers start from the same values; only random operators differ.
static hk_status create_worker(hki_crew *c, uint32_t index, int64_t batch) {
    hk_estimator *const e = c->e;
    const hk_run_config *const k = &e->config.c;
    hki_worker *const w = &c->workers[index];
    hki_engine_share share = hki_worker_share(e);
    share.device += index;
    w->e = e;
    w->index = index;
    w->id = k->first_worker == UINT32_MAX ? 0 : k->first_worker + index;
    w->bench = (hki_bench){
        .spec = c->spec,
        .share = share,
        .seed = k->seed + UINT64_C(0x9E3779B97F4A7C15) * (w->id + 1),
        .pin = k->pin,
        .first_cpu = index * (share.exact > 0 ? share.exact : share.limit)};
    hk_session *s;
    HKI_TRY(hki_bench_session(e, &w->bench, batch, &s));
    hk_plan *const p = hk_session_plan(s);
    const uint32_t threads = hki_session_threads(s);
    w->session = s;
    if (c->layout == NULL)
        c->layout = hk_layout_retain(hk_plan_layout(p));
    if (index == 0)
        HKI_TRY(hk_plan_init_values(p, k->seed, hk_session_params(s)));
    else
        memcpy(hk_session_params(s), hki_worker_values(&c->workers[0]),
               (size_t)hki_layout_size(c->layout) * sizeof(float));
    hk_optimizer_options o;
    optimizer_options(c->spec, threads, &o);
    HKI_TRY(hk_optimizer_create(&o, c->layout, &w->optimizer));
    if (c->spec->has_gradproc) {
        hk_gradproc_options g = c->spec->gradproc;
        if (g.threads == 0)
            g.threads = threads;
        HKI_TRY(hk_gradproc_create(&g, c->layout, &w->gradproc));
    }
    return HK_OK;
}

static void untie_worker(hki_worker *w) {
    hk_trainer_destroy(w->trainer);
    hk_elastic_destroy(w->elastic);
    w->trainer = NULL;
    w->info = NULL;
    w->elastic = NULL;
    w->joined = false;
}

static hk_status tie_worker(hki_crew *c, hki_worker *w) {
    hk_session *const s = w->bench.slots.data[0].session;
    if (c->is_elastic) {
        hk_elastic_options o;
        elastic_options(c, &o);
        HKI_TRY(hk_elastic_create(&o, w->optimizer, c->center, &w->elastic));
    }
    hk_trainer_options t;
    hk_trainer_options_init(&t, sizeof t);
    t.session = s;
    t.optimizer = w->optimizer;
    t.gradproc = w->gradproc;
    t.elastic = w->elastic;
    t.update = c->spec->train_step;
    t.update_user = c->spec->train_user;
    if (w->index == 0 && !c->ema_of_center)
        t.ema = c->ema;
    HKI_TRY(hk_trainer_create(&t, &w->trainer));
    w->info = hki_trainer_info(w->trainer);
    hk_session_set_step(s, hki_session_step(w->session));
    w->session = s;
    hk_trainer_set_steps(w->trainer, w->steps, atomic_load(&c->e->global_step));
    HKI_TRY(insert_callbacks(c, w));
    return c->e->crew == c ? hki_scalars_apply_worker(w) : HK_OK;
}

hk_status hki_worker_join(hki_worker *w) {
    if (w->elastic == NULL || w->joined)
        return HK_OK;
    const hk_run_config *const k = &w->e->config.c;
    const int32_t task = k->first_worker == UINT32_MAX ? -1 : (int32_t)w->id;
    HKI_TRY(hk_elastic_init(w->elastic, hki_worker_values(w), task));
    w->joined = true;
    return HK_OK;
}

hk_status hki_worker_session(hki_worker *w, int64_t batch, hk_session **out) {
    HKI_TRY(hki_bench_session(w->e, &w->bench, batch, out));
    HKI_TRY(hk_trainer_set_session(w->trainer, *out));
    w->session = *out;
    return HK_OK;
}

// ---- all of them ------------------------------------------------------------

void hki_crew_destroy(hki_crew *c) {
    if (c == NULL)
        return;
    for (uint32_t i = 0; c->workers != NULL && i < c->n; i++) {
        hki_worker *const w = &c->workers[i];
        untie_worker(w);
        hk_gradproc_destroy(w->gradproc);
        hk_optimizer_destroy(w->optimizer);
        hki_bench_deinit(&w->bench);
    }
    if (c->own_center)
        hk_center_destroy(c->center);
    hk_ema_destroy(c->ema);
    hki_free(c->workers);
    hki_free(c->model);
    hki_mutex_deinit(&c->lock);
    hk_layout_release(c->layout);
    hki_free(c);
}

static hk_status create_ema(hki_crew *c) {
    const hk_run_config *const k = &c->e->config.c;
    const hk_spec *const m = c->spec;
    const hk_ema_options *src = k->ema;
    hk_ema_source source = k->ema_source;
    c->ema_with_step = k->ema_with_step != 0;
    if (src == NULL && m->has_ema) {
        src = &m->ema;
        source = m->ema_source;
        c->ema_with_step = m->ema_with_step;
    }
    if (src == NULL)
        return HK_OK;
    if (source == HK_EMA_CENTER && !c->is_elastic)
        return hki_fail(
            HK_E_INVALID_ARG,
            "average of the center: this run has no center; set workers above "
            "1, or let the average follow the worker");
    c->ema_of_center = c->is_elastic && source != HK_EMA_WORKER;
    hk_ema_options o = *src;
    hk_session *const s = c->workers[0].bench.slots.data[0].session;
    if (o.threads == 0)
        o.threads = hki_session_threads(s);
    return hk_ema_create(&o, c->layout, hk_session_params(s), &c->ema);
}

static hk_status create_center(hki_crew *c) {
    const hki_config *const k = &c->e->config;
    if (k->c.center != NULL) {
        c->center = k->c.center;
        if (hki_layout_fingerprint(c->center->layout) !=
            hki_layout_fingerprint(c->layout))
            return hki_fail(
                HK_E_INVALID_ARG,
                "the center has another layout than the model; create both "
                "with the same model_fn and parameters");
        return HK_OK;
    }
    hk_center_options o = k->center;
    if (o.context == NULL)
        o.context = c->e->ctx;
    HKI_TRY(hk_center_create_local(&o, c->layout, &c->center));
    c->own_center = true;
    return HK_OK;
}

static hk_status build(hki_crew *c, int64_t batch) {
    HKI_TRY(hki_zalloc_array(c->n, sizeof *c->workers, &c->workers));
    for (uint32_t i = 0; i < c->n; i++)
        HKI_TRY(create_worker(c, i, batch));
    HKI_TRY(hki_zalloc_array((size_t)hki_layout_size(c->layout),
                             sizeof *c->model, &c->model));
    HKI_TRY(hki_rates_of_crew(c));
    HKI_TRY(create_ema(c));
    if (c->is_elastic)
        HKI_TRY(create_center(c));
    for (uint32_t i = 0; i < c->n; i++)
        HKI_TRY(tie_worker(c, &c->workers[i]));
    return HK_OK;
}

HKI_SCOPED_HANDLE(hki_crew, hki_crew_destroy)

hk_status hki_crew_create(hk_estimator *e, hk_spec *m, int64_t batch,
                          hki_crew **out) {
    HKI_SCOPED(hki_crew_destroy_at) hki_crew *c = NULL;
    HKI_TRY(hki_zalloc_array(1, sizeof *c, &c));
    hki_mutex_init(&c->lock);
    c->e = e;
    c->spec = m;
    c->n = e->config.c.workers;
    c->is_elastic = e->config.is_elastic || m->has_elastic;
    HKI_TRY(build(c, batch));
    return HKI_HAND_ON(out, c);
}

// ---- values -----------------------------------------------------------------

hk_status hki_crew_model(hki_crew *c) {
    const float *const x = hki_worker_values(&c->workers[0]);
    const size_t bytes = (size_t)hki_layout_size(c->layout) * sizeof *x;
    hk_center_info info = {0};
    if (c->center != NULL)
        HKI_TRY(hk_center_get_info(c->center, &info));
    memcpy(c->model, x, bytes);
    if (!info.initialised)
        return HK_OK;
    HKI_TRY(hk_center_snapshot(c->center, HK_CENTER_VALUES, WAIT_MS, c->model,
                               NULL, &info));
    c->center_step = info.global_step;
    // What has no center is worker 0's.
    for (size_t i = 0; i < hki_layout_entry_count(c->layout); i++) {
        const hk_entry *const n = hk_layout_entry(c->layout, i);
        if (n->dtype == HK_F32 &&
            c->center->partition.share[i] == HK_SHARE_LOCAL)
            memcpy(c->model + n->offset, x + n->offset,
                   (size_t)n->count * sizeof *x);
    }
    return HK_OK;
}

hk_status hki_crew_assign(hki_crew *c, int64_t center_step) {
    const size_t bytes = (size_t)hki_layout_size(c->layout) * sizeof *c->model;
    for (uint32_t i = 0; i < c->n; i++)
        memcpy(hki_worker_values(&c->workers[i]), c->model, bytes);
    c->center_step = center_step;
    if (c->own_center)
        return hk_center_assign(c->center, c->model, NULL, center_step,
                                WAIT_MS);
    return HK_OK;
}

// ---- coming back after some have left ---------------------------------------

// Values of one map into the places of the same names of another.
static void copy_map(const hk_name_map *from, const hk_name_map *to) {
    for (size_t i = 0; i < hk_name_map_count(from); i++) {
        const hk_named *const a = hk_name_map_item(from, i);
        const hk_named *const b = hk_name_map_find(to, a->name);
        int64_t n;
        if (b != NULL && hk_shape_count(a->shape, &n) == HK_OK)
            memcpy(b->data, a->data, (size_t)n * hk_dtype_size(a->dtype));
    }
}

// A new center with the values and the state of the old one, whose turn order
// begins anew: what a restart from a checkpoint would make.
static hk_status renew_center(hki_crew *c) {
    HKI_SCOPED(hk_name_map_destroy_at) hk_name_map *from = NULL;
    HKI_SCOPED(hk_name_map_destroy_at) hk_name_map *to = NULL;
    hk_center *const before = c->center;
    HKI_TRY(hk_name_map_create(&from));
    HKI_TRY(hk_name_map_create(&to));
    HKI_TRY(hk_center_variables(before, from));
    const hk_status s = create_center(c);
    HKI_SCOPED(hk_center_destroy_at)
    hk_center *old = c->center != before ? before : NULL;
    HKI_TRY(s);
    HKI_TRY(hk_center_variables(c->center, to));
    copy_map(from, to);
    return hk_center_assign(c->center, c->model, NULL, c->center_step, WAIT_MS);
}

hk_status hki_crew_tie(hki_crew *c) {
    bool all = true, any = false;
    for (uint32_t i = 0; i < c->n; i++) {
        all &= c->workers[i].joined;
        any |= c->workers[i].joined;
    }
    hk_center_info info = {0};
    if (!c->is_elastic || all)
        return HK_OK;
    HKI_TRY(hk_center_get_info(c->center, &info));
    if (!c->own_center || (!any && info.joins == 0))
        return HK_OK; // nobody was there before
    for (uint32_t i = 0; i < c->n; i++)
        if (c->workers[i].joined)
            HKI_TRY(hk_elastic_leave(c->workers[i].elastic,
                                     hki_worker_values(&c->workers[i])));
    HKI_TRY(hki_crew_model(c));
    for (uint32_t i = 0; i < c->n; i++)
        untie_worker(&c->workers[i]);
    HKI_TRY(renew_center(c));
    for (uint32_t i = 0; i < c->n; i++)
        HKI_TRY(tie_worker(c, &c->workers[i]));
    return HK_OK;
}
