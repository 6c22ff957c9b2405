// worker.c - create a worker, its rates, join and leave.
//
// alpha: moving_rate, tau: communication_period, p: num_worker, eta: the
// inner learning rate.
#include "elastic/worker.h"
#include <math.h>

static const hk_elastic_options defaults = {
    .struct_size = sizeof defaults,
    .moving_rate = HK_ELASTIC_AUTO,
    .rho = HK_ELASTIC_AUTO,
    .wait_ms = 60000,
    .use_locking = 1,
};

HKI_OPTIONS_FROM(hk_elastic_options, side, defaults)

// ---- rates ------------------------------------------------------------------

// An automatic alpha times the number of workers.
static double auto_numerator(const hk_elastic *e) {
    return e->opt.preset == HK_PRESET_PAPER
               ? HK_ELASTIC_BETA
               : HK_ELASTIC_BETA / e->opt.communication_period;
}

double hki_elastic_alpha(const hk_elastic *e) {
    return e->opt.moving_rate == HK_ELASTIC_AUTO
               ? auto_numerator(e) / e->opt.num_worker
               : e->opt.moving_rate;
}

double hki_elastic_rate(const hk_elastic *e, bool *per_live) {
    *per_live = e->opt.follow_live && e->opt.moving_rate == HK_ELASTIC_AUTO;
    return *per_live ? auto_numerator(e) : hki_elastic_alpha(e);
}

double hki_elastic_fast_rate(const hk_elastic *e, int64_t step) {
    return e->inner != NULL ? hk_optimizer_rate(e->inner, step)
                            : e->outside_rate;
}

double hki_elastic_rho(const hk_elastic *e, int64_t step) {
    if (e->opt.rho != HK_ELASTIC_AUTO)
        return e->opt.rho;
    if (e->opt.preset == HK_PRESET_PAPER || e->inner == NULL ||
        !e->method->elastic)
        return 0;
    // A schedule may pass through 0, where a gradient moves nothing.
    const double rate = hki_elastic_fast_rate(e, step);
    return rate != 0 ? hki_elastic_alpha(e) / rate : 0;
}

int64_t hki_elastic_step(const hk_elastic *e, const int64_t *global_step) {
    if (e->opt.local_schedule)
        return e->local_step;
    return global_step != NULL ? *global_step : hki_elastic_global_step(e);
}

static hk_status check_alpha(const hk_elastic *e) {
    const double alpha = hki_elastic_alpha(e);
    if (!(alpha >= 0 && alpha <= 1))
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: moving_rate is %g; it has to be in [0, 1]",
                        e->name, alpha);
    const bool sync = e->opt.synchronous || e->method->rounds;
    if (sync && e->method->elastic && !(e->opt.num_worker * alpha < 2))
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: synchronous with %u workers and moving_rate %g: "
                        "their product %g has to be below 2",
                        e->name, e->opt.num_worker, alpha,
                        e->opt.num_worker * alpha);
    return HK_OK;
}

static hk_status check_rho(const hk_elastic *e) {
    if (e->opt.rho != HK_ELASTIC_AUTO &&
        !(e->opt.rho >= 0 && isfinite(e->opt.rho)))
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: rho is %g; it has to be finite and at least 0",
                        e->name, e->opt.rho);
    return HK_OK;
}

// The bound for round-robin on a quadratic of curvature 1 (arXiv 1412.6651):
// 0 <= eta <= 2 and 0 <= alpha <= (4 - 2 eta) / (4 - eta).
static void warn_stability(const hk_elastic *e) {
    if (!e->method->elastic)
        return;
    const double eta = hki_elastic_fast_rate(e, 0);
    const double alpha = hki_elastic_alpha(e);
    const double bound = eta < 4 ? (4 - 2 * eta) / (4 - eta) : -1;
    if (eta >= 0 && eta <= 2 && alpha <= bound)
        return;
    hki_log(e->opt.context, HK_LOG_WARNING,
            "%s: learning rate %g and moving_rate %g are outside of the "
            "stable range for round-robin exchanges (rate <= 2, moving_rate "
            "<= %g)",
            e->name, eta, alpha, HKI_MAX(bound, 0.0));
}

static void log_effective(const hk_elastic *e) {
    const double alpha = hki_elastic_alpha(e);
    hki_log(e->opt.context, e->log_level,
            "%s: worker %u (incarnation %u): method %s, %u workers, "
            "communication_period %u, moving_rate %.9g%s, rho %.9g%s, order "
            "%s, %s%s, p * moving_rate %.9g",
            e->name, e->m.id, e->m.incarnation, e->method->name,
            e->opt.num_worker, e->opt.communication_period, alpha,
            e->opt.moving_rate == HK_ELASTIC_AUTO ? " (auto)" : "",
            hki_elastic_rho(e, hki_elastic_step(e, NULL)),
            e->opt.rho == HK_ELASTIC_AUTO ? " (auto)" : "",
            e->paper ? "paper" : "tf",
            e->opt.use_locking ? "locking" : "no locking",
            e->opt.synchronous ? ", synchronous start" : "",
            alpha * e->opt.num_worker);
}

// The rate of the caller's own steps.
static hk_status set_rate(hk_elastic *e, double value) {
    if (e->inner != NULL)
        return hki_fail(HK_E_STATE, "%s: learning_rate is set in %s", e->name,
                        hki_optimizer_name(e->inner));
    if (!(value >= 0 && isfinite(value)))
        return hki_fail(
            HK_E_INVALID_ARG,
            "%s: learning_rate is %g; it has to be finite and at least 0",
            e->name, value);
    e->outside_rate = value;
    return HK_OK;
}

hk_status hk_elastic_set(hk_elastic *e, const char *name, double value) {
    if (e == NULL || name == NULL)
        return hki_fail(HK_E_INVALID_ARG, "elastic: set: NULL argument");
    if (strcmp(name, "learning_rate") == 0)
        return set_rate(e, value);
    const hk_elastic_options old = e->opt;
    hk_status s = HK_OK;
    if (strcmp(name, "moving_rate") == 0) {
        e->opt.moving_rate = value;
    } else if (strcmp(name, "rho") == 0) {
        e->opt.rho = value;
        s = check_rho(e);
    } else if (strcmp(name, "communication_period") == 0) {
        if (!(value >= 1 && value <= UINT32_MAX && value == floor(value)))
            return hki_fail(HK_E_INVALID_ARG,
                            "%s: communication_period is %g; it has to be a "
                            "whole number of at least 1",
                            e->name, value);
        e->opt.communication_period = (uint32_t)value;
    } else {
        return hki_fail(HK_E_NOT_FOUND,
                        "%s: unknown value %s; it has to be moving_rate, rho, "
                        "communication_period or learning_rate",
                        e->name, name);
    }
    if (s == HK_OK)
        s = check_alpha(e);
    if (s == HK_OK && e->view.host == NULL && hki_elastic_rho(e, 0) != 0)
        s = hki_fail(HK_E_STATE,
                     "%s: rho %g needs a copy of the center; create the handle "
                     "with keep_view",
                     e->name, hki_elastic_rho(e, 0));
    if (s != HK_OK)
        e->opt = old;
    return s;
}

hk_status hk_elastic_get(const hk_elastic *e, const char *name, double *value) {
    if (e == NULL || name == NULL || value == NULL)
        return hki_fail(HK_E_INVALID_ARG, "elastic: get: NULL argument");
    if (strcmp(name, "moving_rate") == 0)
        *value = hki_elastic_alpha(e);
    else if (strcmp(name, "rho") == 0)
        *value = hki_elastic_rho(e, hki_elastic_step(e, NULL));
    else if (strcmp(name, "communication_period") == 0)
        *value = e->opt.communication_period;
    else if (strcmp(name, "learning_rate") == 0)
        *value = hki_elastic_fast_rate(e, hki_elastic_step(e, NULL));
    else
        return hki_fail(HK_E_NOT_FOUND, "%s: unknown value %s", e->name, name);
    return HK_OK;
}

// ---- create -----------------------------------------------------------------

void hk_elastic_destroy(hk_elastic *e) {
    if (e == NULL)
        return;
    hki_overlap_destroy(e->overlap);
    if (e->m.incarnation != 0) // a turn that does not come is not waited for
        (void)e->center->ops->leave(e->center, e->m, e->since, hki_deadline(0));
    hki_vector_deinit(&e->view);
    hki_vector_deinit(&e->diff);
    hki_vector_deinit(&e->before);
    hki_vector_deinit(&e->grad);
    hki_tables_deinit(&e->tables);
    hki_free(e->entry);
    hki_free(e->given);
    hki_free(e->given_sums);
    hki_touched_destroy(e);
    hk_layout_release(e->layout);
    hki_free(e->name);
    hki_free(e);
}

static hk_status check_options(const hk_elastic *e) {
    const hk_elastic_options *const o = &e->opt;
    if (o->num_worker == 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: num_worker is 0; set it to the number of workers",
                        e->name);
    if (o->method != 0 && o->method != e->method->id)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: the method is %s, but the center has %s", e->name,
                        hk_method_name(o->method) != NULL
                            ? hk_method_name(o->method)
                            : "unknown",
                        e->method->name);
    if ((o->preset != HK_PRESET_TF && o->preset != HK_PRESET_PAPER) ||
        (int)o->order < 0 || o->order > HK_ORDER_PAPER)
        return hki_fail(HK_E_INVALID_ARG, "%s: unknown preset %d or order %d",
                        e->name, (int)o->preset, (int)o->order);
    if (o->order == HK_ORDER_PAPER && e->method->id != HK_METHOD_ELASTIC)
        return hki_fail(
            HK_E_UNSUPPORTED,
            "%s: exchange order paper is only for method elastic, not for %s",
            e->name, e->method->name);
    if (o->wait_ms < 0 || o->telemetry > 2)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: wait_ms %lld or telemetry %u is out of range",
                        e->name, (long long)o->wait_ms, o->telemetry);
    HKI_TRY(check_alpha(e));
    return check_rho(e);
}

static hk_status check_overlap(const hk_elastic *e) {
    const hk_elastic_options *const o = &e->opt;
    if (o->overlap_steps == 0)
        return HK_OK;
    if (e->method->id != HK_METHOD_ELASTIC)
        return hki_fail(
            HK_E_UNSUPPORTED,
            "%s: overlap_steps is only for method elastic, not for %s", e->name,
            e->method->name);
    // Two buffers: the exchange before the last has to be over by now.
    if (o->overlap_steps + (e->paper ? UINT64_C(1) : 0) >
        2 * (uint64_t)o->communication_period)
        return hki_fail(
            HK_E_INVALID_ARG,
            "%s: overlap_steps is %u; the limit is two periods of %u%s",
            e->name, o->overlap_steps, o->communication_period,
            e->paper ? ", minus one with exchange order paper" : "");
    if (hki_elastic_rho(e, 0) != 0 || o->keep_view)
        return hki_fail(HK_E_UNSUPPORTED,
                        "%s: overlap_steps needs rho = 0 (it is %g) and no "
                        "keep_view",
                        e->name, hki_elastic_rho(e, 0));
    if (o->telemetry > 1)
        return hki_fail(HK_E_UNSUPPORTED,
                        "%s: overlap_steps allows telemetry up to 1", e->name);
    return HK_OK;
}

// A rho that divides by a rate of 0 would be infinite.
static hk_status check_rate(const hk_elastic *e) {
    double rate;
    if (e->inner == NULL || e->opt.rho != HK_ELASTIC_AUTO ||
        e->opt.preset != HK_PRESET_TF || !e->method->elastic ||
        hk_optimizer_get(e->inner, "learning_rate", &rate) != HK_OK)
        return HK_OK;
    if (rate == 0 && hk_optimizer_rate(e->inner, 0) == 0 &&
        hk_optimizer_rate(e->inner, 1) == 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: rho = moving_rate / learning rate is undefined, "
                        "because the learning rate is 0; set rho",
                        e->name);
    return HK_OK;
}

// What a worker whose steps are made elsewhere cannot do.
static hk_status check_outside(const hk_elastic *e) {
    if (e->opt.order == HK_ORDER_PAPER)
        return hki_fail(
            HK_E_UNSUPPORTED,
            "%s: exchange order paper takes the difference before a step, and "
            "needs an inner optimizer that makes the steps",
            e->name);
    return HK_OK;
}

static hk_status create_vectors(hk_elastic *e) {
    const int64_t n = hki_layout_size(e->layout);
    const bool elastic = e->method->elastic;
    const bool auto_rho = e->opt.rho == HK_ELASTIC_AUTO && elastic &&
                          e->opt.preset == HK_PRESET_TF && e->inner != NULL;
    if (e->method->keeps_view || e->opt.keep_view || auto_rho ||
        (e->opt.rho != HK_ELASTIC_AUTO && e->opt.rho != 0))
        HKI_TRY(hki_vector_init(&e->view, n, 0));
    if (e->method->gradients) {
        HKI_TRY(hki_vector_init(&e->grad, hki_layout_train(e->layout), 0));
        HKI_TRY(hki_tables_init(&e->tables, e->layout));
    }
    if (e->paper && e->opt.overlap_steps == 0)
        HKI_TRY(hki_vector_init(&e->diff, n, 0));
    if (e->opt.telemetry > 0 && e->opt.overlap_steps == 0 && e->inner != NULL)
        HKI_TRY(hki_vector_init(&e->before, n, 0));
    if (e->opt.telemetry > 1)
        HKI_TRY(hki_zalloc_array(hki_layout_entry_count(e->layout),
                                 sizeof *e->entry, &e->entry));
    const size_t chunks = e->center->partition.count;
    HKI_TRY(hki_zalloc_array(chunks, sizeof *e->given, &e->given));
    HKI_TRY(hki_zalloc_array(chunks, sizeof *e->given_sums, &e->given_sums));
    return hki_touched_create(e);
}

static hk_status build(hk_elastic *e, const char *name) {
    HKI_TRY(
        hki_strdup(name != NULL ? name : "ElasticAverageOptimizer", &e->name));
    if (e->name[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG, "elastic: the name is empty");
    if (e->inner == NULL)
        HKI_TRY(check_outside(e));
    else if (hki_layout_fingerprint(hki_optimizer_layout(e->inner)) !=
             hki_layout_fingerprint(e->layout))
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: optimizer and center have different layouts",
                        e->name);
    if (e->opt.communication_period == 0)
        e->opt.communication_period = e->method->period;
    HKI_TRY(check_options(e));
    e->paper = e->opt.order == HK_ORDER_PAPER ||
               (e->opt.order == HK_ORDER_BY_PRESET &&
                e->opt.preset == HK_PRESET_PAPER && e->inner != NULL &&
                e->method->id == HK_METHOD_ELASTIC);
    HKI_TRY(check_overlap(e));
    HKI_TRY(check_rate(e));
    e->at = &e->home;
    HKI_TRY(hki_place_home(&e->home, e->opt.isa, 1, e->name));
    HKI_TRY(create_vectors(e));
    if (e->opt.overlap_steps > 0)
        HKI_TRY(hki_overlap_create(e));
    warn_stability(e);
    return HK_OK;
}

HKI_SCOPED_HANDLE(hk_elastic, hk_elastic_destroy)

hk_status hk_elastic_create(const hk_elastic_options *opt, hk_optimizer *inner,
                            hk_center *center, hk_elastic **out) {
    if (opt == NULL || center == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "elastic: options, center or out is NULL");
    HKI_SCOPED(hk_elastic_destroy_at) hk_elastic *e = NULL;
    HKI_TRY(hki_zalloc_array(1, sizeof *e, &e));
    e->opt = defaults;
    e->inner = inner;
    e->center = center;
    e->method = center->method;
    e->layout = hk_layout_retain(center->layout);
    e->log_level = HK_LOG_INFO;
    e->hook_task = -1;
    HKI_TRY(hki_options_copy(&e->opt, sizeof e->opt, opt, "elastic"));
    HKI_TRY(build(e, e->opt.name));
    e->opt.name = e->name;
    return HKI_HAND_ON(out, e);
}

// ---- joining and leaving ----------------------------------------------------

hk_status hki_elastic_ready(const hk_elastic *e, const char *what) {
    if (e == NULL)
        return hki_fail(HK_E_INVALID_ARG, "elastic: %s: NULL handle", what);
    if (e->m.incarnation == 0)
        return hki_fail(HK_E_STATE, "%s: %s: call hk_elastic_init first",
                        e->name, what);
    return HK_OK;
}

static hk_status join(hk_elastic *e, int32_t task, int64_t deadline_ns) {
    if (e->m.incarnation != 0) {
        if (task >= 0 && (uint32_t)task != e->m.id)
            return hki_fail(
                HK_E_STATE,
                "%s: init as worker %d: the handle is already worker %u",
                e->name, task, e->m.id);
        return HK_OK;
    }
    return e->center->ops->join(e->center, task, deadline_ns, &e->m);
}

hk_status hki_elastic_follow(hk_elastic *e, const hki_place *at) {
    const hki_place *const to = at != NULL ? at : &e->home;
    hki_vector *const list[] = {&e->view, &e->diff, &e->before, &e->grad};
    if (e->at == to)
        return HK_OK;
    if (e->sums_away)
        HKI_TRY(e->at->ops->exchange_sums(e->at, e->total.s));
    e->sums_away = false;
    for (size_t i = 0; i < HKI_COUNT(list); i++)
        HKI_TRY(hki_vector_follow(list[i], at));
    HKI_TRY(hki_overlap_follow(e, at));
    e->at = to;
    return HK_OK;
}

hk_status hki_elastic_go_home(hk_elastic *e) {
    return hki_elastic_follow(e, NULL);
}

hk_status hki_elastic_clear_grad(hk_elastic *e) {
    float *grad;
    e->accumulated = 0;
    if (e->grad.host == NULL)
        return HK_OK;
    HKI_TRY(hki_vector_host(&e->grad, HKI_TO_WRITE, &grad));
    memset(grad, 0, (size_t)e->grad.n * sizeof *grad);
    return HK_OK;
}

// A center that has started anew between the two has to be given values again.
static hk_status first_values(hk_elastic *e, float *x, int64_t deadline_ns) {
    const hki_center_ops *const ops = e->center->ops;
    float *view;
    HKI_TRY(hki_vector_host(&e->view, HKI_TO_CHANGE, &view));
    for (;;) {
        HKI_TRY(
            ops->init_if_empty(e->center, e->m, x, e->opt.side, deadline_ns));
        const hk_status s = ops->pull(e->center, e->m, x, view, e->opt.side,
                                      deadline_ns, &e->center_step);
        if (s != HK_E_UNAVAILABLE || hki_now_ns() >= deadline_ns)
            return s;
    }
}

hk_status hk_elastic_init(hk_elastic *e, float *x, int32_t task) {
    if (e == NULL || x == NULL)
        return hki_fail(HK_E_INVALID_ARG, "elastic: init: NULL argument");
    const hki_center_ops *const ops = e->center->ops;
    const int64_t wait_ms = e->opt.wait_ms, join_ms = e->center->join_ms;
    HKI_TRY(hki_overlap_drop(e));
    HKI_TRY(join(e, task, hki_deadline(join_ms > 0 ? join_ms : wait_ms)));
    // Others may be at it.
    const int64_t deadline = hki_deadline(HKI_MAX(wait_ms, join_ms));
    HKI_TRY(first_values(e, x, deadline));
    hki_touched_clear(e);
    e->local_step = 0;
    e->due = false;
    HKI_TRY(hki_elastic_clear_grad(e));
    if (e->opt.synchronous)
        HKI_TRY(ops->barrier(e->center, e->m, e->opt.num_worker, deadline));
    e->n.start_ns = hki_now_ns();
    e->n.exchange_ns = 0;
    log_effective(e);
    return HK_OK;
}

void hki_elastic_rest(const hk_elastic *e, bool rests) {
    if (e->m.incarnation != 0 && e->center->ops->rest != NULL)
        e->center->ops->rest(e->center, e->m, rests);
}

hk_status hki_elastic_leave(hk_elastic *e, hki_vector *x, int64_t wait_ms) {
    hk_status flushed = HK_OK;
    if (e->m.incarnation == 0)
        return HK_OK;
    if (e->due) // left over by the caller
        flushed = hki_elastic_exchange_due(e, x, NULL);
    if (flushed == HK_OK)
        flushed =
            e->overlap != NULL ? hki_overlap_collect(e, x, INT64_MAX) : HK_OK;
    const hki_member m = e->m;
    e->m.incarnation = 0; // whatever comes of it
    const hk_status s =
        e->center->ops->leave(e->center, m, e->since, hki_deadline(wait_ms));
    e->center_step += e->since;
    e->since = 0;
    return flushed != HK_OK ? flushed : s;
}

hk_status hk_elastic_leave(hk_elastic *e, float *x) {
    HKI_TRY(hki_elastic_ready(e, "leave"));
    if (x == NULL && e->overlap != NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: leave: x is NULL", e->name);
    hki_vector v = HKI_HOST_VECTOR(x, hki_layout_size(e->layout));
    return hki_elastic_leave(e, &v, e->opt.wait_ms);
}
