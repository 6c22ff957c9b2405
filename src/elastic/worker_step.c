// worker_step.c - the steps of a worker: pull term, inner step, exchange.
#include "elastic/worker.h"
#include <math.h>

// ---- exchange ---------------------------------------------------------------

void hki_elastic_prepare(hk_elastic *e, float *x, hki_exchange *ex) {
    bool per_live;
    const double rate = hki_elastic_rate(e, &per_live);
    *ex = (hki_exchange){
        .x = x,
        .view = e->view,
        .grad = e->grad,
        .side = e->opt.side,
        .rate = rate,
        .grad_scale =
            ldexp(1.0,
                  e->inner != NULL ? -hki_optimizer_halvings(e->inner) : 0) /
            (double)HKI_MAX(e->accumulated, 1),
        .fast_rate = hki_elastic_fast_rate(e, hki_elastic_step(e, NULL)),
        .steps_done = e->since,
        .deadline_ns = hki_deadline(e->opt.wait_ms),
        .per_live = per_live,
        .use_locking = e->opt.use_locking != 0,
    };
    if (e->opt.telemetry > 0) {
        ex->observe = hki_elastic_observe;
        ex->user = e;
    }
}

void hki_elastic_count(hk_elastic *e, const hki_exchange *ex) {
    hki_counters *const n = &e->n;
    n->skipped += ex->skipped;
    if (!ex->begun)
        return;
    n->exchanges++;
    n->dropped += ex->dropped;
    n->moving_rate = ex->alpha;
    n->staleness = (double)ex->staleness;
    n->staleness_sum += n->staleness;
    n->staleness_max = HKI_MAX(n->staleness_max, n->staleness);
}

void hki_elastic_subtract(const hk_elastic *e, float *x, const float *d) {
    const hki_parts *const parts = &e->center->parts;
    for (size_t i = 0; i < parts->count; i++) {
        const hki_share_part *const p = &parts->part[i];
        if (p->share == HK_SHARE_EXCHANGE)
            e->k->subtract(x + p->begin, d + p->begin, p->end - p->begin);
    }
}

// What a method wants of steps made elsewhere has been told.
static hk_status check_told(const hk_elastic *e) {
    if (e->grad != NULL && e->accumulated == 0)
        return hki_fail(HK_E_STATE,
                        "%s: method %s sends gradients: hk_elastic_gradients "
                        "comes before an exchange",
                        e->name, e->method->name);
    if ((e->method->flags & HKI_METHOD_FAST_RATE) && e->outside_rate == 0)
        return hki_fail(HK_E_STATE,
                        "%s: method %s counts in the learning rate: "
                        "hk_elastic_set tells it before an exchange",
                        e->name, e->method->name);
    return HK_OK;
}

// One exchange in this thread. diff: NULL, or takes d. Once it has begun, the
// center has counted the steps: they are not reported a second time, even if a
// later chunk times out. What the exchange was to carry (gradients, touched
// rows) is kept until all of it went through.
static hk_status exchange_now(hk_elastic *e, float *x, float *diff) {
    hki_exchange ex;
    const int64_t start = hki_now_ns();
    if (e->inner == NULL)
        HKI_TRY(check_told(e));
    hki_elastic_prepare(e, x, &ex);
    ex.diff = diff;
    if (e->touched != NULL && !e->all_touched) {
        ex.touched = e->touched;
        ex.n_touched = e->n_touched;
    }
    hki_elastic_observe_begin(e);
    const hk_status s = e->method->flags & HKI_METHOD_ROUND
                            ? e->center->ops->push_round(e->center, e->m, &ex)
                            : e->center->ops->exchange(e->center, e->m, &ex);
    e->n.exchange_ns += hki_now_ns() - start;
    hki_elastic_count(e, &ex);
    if (ex.begun) {
        e->since = 0;
        e->center_step = ex.global_step;
    }
    if (s == HK_OK && !ex.missed)
        hki_touched_clear(e);
    // A gradient is used up when it was applied or dropped, not when the
    // center was busy or away.
    if (s == HK_OK && !ex.missed && e->grad != NULL) {
        e->accumulated = 0;
        memset(e->grad, 0,
               (size_t)hki_layout_train(e->layout) * sizeof *e->grad);
    }
    return s;
}

// An exchange at a point where x is between two steps.
static hk_status exchange_between(hk_elastic *e, float *x) {
    if (e->overlap != NULL)
        return hki_overlap_start(e, x, e->local_step + e->opt.overlap_steps);
    return exchange_now(e, x, NULL);
}

hk_status hk_elastic_exchange(hk_elastic *e, float *x) {
    HKI_TRY(hki_elastic_ready(e, "exchange"));
    if (x == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: exchange: x is NULL", e->name);
    if (e->before != NULL) // there is no step to compare with
        memcpy(e->before, x,
               (size_t)hki_layout_size(e->layout) * sizeof *e->before);
    return exchange_between(e, x);
}

hk_status hk_elastic_flush(hk_elastic *e, float *x) {
    if (e == NULL)
        return hki_fail(HK_E_INVALID_ARG, "elastic: flush: NULL handle");
    if (e->overlap == NULL)
        return HK_OK;
    if (x == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: flush: x is NULL", e->name);
    return hki_overlap_collect(e, x, INT64_MAX);
}

// ---- gradients --------------------------------------------------------------

hk_status hk_elastic_add_pull(hk_elastic *e, const float *x, float *g,
                              int64_t n, double scale) {
    HKI_TRY(hki_elastic_ready(e, "pull"));
    const double rho = hki_elastic_rho(e, hki_elastic_step(e, NULL));
    if (rho == 0 || n == 0)
        return HK_OK;
    if (x == NULL || g == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: pull: x or g is NULL", e->name);
    if (n != hki_layout_dense(e->layout) && n != hki_layout_train(e->layout))
        return hki_fail(HK_E_SHAPE,
                        "%s: pull: %lld gradients; the layout has %lld dense, "
                        "%lld trainable",
                        e->name, (long long)n,
                        (long long)hki_layout_dense(e->layout),
                        (long long)hki_layout_train(e->layout));
    const double a = rho / scale;
    if (!isfinite(a))
        return hki_fail(HK_E_INVALID_ARG, "%s: pull: rho %g over scale %g",
                        e->name, rho, scale);
    const hki_parts *const parts = &e->center->parts;
    for (size_t i = 0; i < parts->count; i++) {
        const hki_share_part *const p = &parts->part[i];
        const int64_t end = HKI_MIN(p->end, n);
        if (p->share == HK_SHARE_EXCHANGE && p->begin < end)
            e->k->pull(g + p->begin, x + p->begin, e->view + p->begin, (float)a,
                       end - p->begin);
    }
    return HK_OK;
}

// Checks what the inner optimizer does not get to see.
static hk_status check_grads(const hk_elastic *e, const hk_grad_view *g) {
    HKI_TRY(hki_grad_view_check(e->layout, g, e->name));
    for (size_t i = 0; i < g->n_sparse; i++) {
        const hk_sparse_grad *const s = &g->sparse[i];
        size_t table;
        HKI_TRY(hki_tables_find(&e->tables, e->layout, s, e->name, &table));
        HKI_TRY(hki_rowset_check(&e->tables.set[table], s->entry->name,
                                 s->indices, s->count));
    }
    return HK_OK;
}

// The gradients were checked.
static void accumulate(hk_elastic *e, const hk_grad_view *g) {
    const float scale = (float)g->scale;
    if (g->n_dense > 0)
        e->k->accumulate(e->grad, g->dense, scale, g->n_dense);
    for (size_t i = 0; i < g->n_sparse; i++) {
        const hk_sparse_grad *const s = &g->sparse[i];
        float *const table =
            e->grad + hk_layout_find(e->layout, s->entry->name)->offset;
        for (int64_t j = 0; j < s->count; j++)
            e->k->accumulate(table + s->indices[j] * s->dim,
                             s->rows + j * s->dim, scale, s->dim);
    }
    e->accumulated++;
}

// ---- steps ------------------------------------------------------------------

// The part that belongs to this worker alone.
static hk_status local_step(hk_elastic *e, float *x, const hk_grad_view *grads,
                            int64_t step) {
    if (e->grad != NULL)
        HKI_TRY(check_grads(e, grads));
    if (!(e->method->flags & HKI_METHOD_NO_LOCAL))
        HKI_TRY(hk_optimizer_apply(e->inner, x, grads, step, NULL));
    if (e->grad != NULL)
        accumulate(e, grads);
    hki_touched_mark(e, grads);
    e->local_step++;
    e->since++;
    return HK_OK;
}

// Paper's order: d comes from x before the step and moves the center at once;
// x follows after the step (hki_elastic_exchange_due). Whatever fails, both
// sides move by the same d.
static hk_status step_paper(hk_elastic *e, float *x, const hk_grad_view *grads,
                            int64_t step) {
    if (e->overlap != NULL) {
        HKI_TRY(
            hki_overlap_start(e, x, e->local_step + 1 + e->opt.overlap_steps));
        return local_step(e, x, grads, step);
    }
    hk_status s = exchange_now(e, x, e->diff);
    if (s == HK_OK)
        s = local_step(e, x, grads, step);
    if (s != HK_OK)
        hki_elastic_subtract(e, x, e->diff);
    return s;
}

static hk_status step(hk_elastic *e, float *x, const hk_grad_view *grads,
                      int64_t at) {
    const int64_t tau = e->opt.communication_period;
    const bool due = (e->local_step + (e->paper ? 0 : 1)) % tau == 0;
    if (due && e->before != NULL)
        memcpy(e->before, x,
               (size_t)hki_layout_size(e->layout) * sizeof *e->before);
    HKI_TRY(due && e->paper ? step_paper(e, x, grads, at)
                            : local_step(e, x, grads, at));
    e->due = due;
    return HK_OK;
}

hk_status hki_elastic_exchange_due(hk_elastic *e, float *x, int *exchanged) {
    HKI_TRY(hki_elastic_ready(e, "exchange"));
    if (x == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: exchange: x is NULL", e->name);
    const bool due = e->due;
    e->due = false;
    hk_status s = HK_OK;
    if (e->overlap != NULL)
        s = hki_overlap_collect(e, x, e->local_step);
    if (due && !e->paper) {
        const hk_status own = exchange_between(e, x);
        s = s != HK_OK ? s : own;
    } else if (due && e->overlap == NULL) {
        hki_elastic_subtract(e, x, e->diff);
    }
    HKI_TRY(s);
    if (exchanged != NULL)
        *exchanged = due;
    return HK_OK;
}

hk_status hki_elastic_update(hk_elastic *e, float *x, const hk_grad_view *grads,
                             int64_t *global_step) {
    HKI_TRY(hki_elastic_ready(e, "apply_gradients"));
    if (e->inner == NULL)
        return hki_fail(HK_E_STATE,
                        "%s: apply_gradients: there is no inner optimizer; "
                        "hk_elastic_stepped tells of the caller's steps",
                        e->name);
    if (x == NULL || grads == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: apply_gradients: x or gradients are NULL",
                        e->name);
    if (grads->n_dense == 0 && grads->n_sparse == 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: apply_gradients: no variable has a gradient",
                        e->name);
    if (e->due) // left over by the caller
        HKI_TRY(hki_elastic_exchange_due(e, x, NULL));
    HKI_TRY(step(e, x, grads, hki_elastic_step(e, global_step)));
    if (global_step != NULL)
        *global_step = hki_elastic_global_step(e);
    return HK_OK;
}

hk_status hk_elastic_apply(hk_elastic *e, float *x, const hk_grad_view *grads,
                           int64_t *global_step) {
    HKI_TRY(hki_elastic_update(e, x, grads, global_step));
    const hk_status s = hki_elastic_exchange_due(e, x, NULL);
    if (global_step != NULL)
        *global_step = hki_elastic_global_step(e);
    return s;
}

// ---- steps made elsewhere ---------------------------------------------------

static hk_status check_outside(const hk_elastic *e, const char *what) {
    HKI_TRY(hki_elastic_ready(e, what));
    if (e->inner != NULL)
        return hki_fail(HK_E_STATE,
                        "%s: %s: %s makes the steps, in hk_elastic_apply",
                        e->name, what, hki_optimizer_name(e->inner));
    return HK_OK;
}

static hk_status check_steps(const hk_elastic *e, const char *what,
                             const float *x, int64_t steps) {
    HKI_TRY(check_outside(e, what));
    if (x == NULL || steps < 0)
        return hki_fail(HK_E_INVALID_ARG, "%s: %s: x is NULL, or steps %lld",
                        e->name, what, (long long)steps);
    return HK_OK;
}

hk_status hk_elastic_difference(hk_elastic *e, float *x, int64_t steps) {
    HKI_TRY(check_steps(e, "difference", x, steps));
    if (e->method->id != HK_METHOD_ELASTIC || e->overlap != NULL)
        return hki_fail(HK_E_UNSUPPORTED,
                        "%s: difference: is for method elastic without "
                        "overlap_steps, not %s with %u",
                        e->name, e->method->name, e->opt.overlap_steps);
    e->local_step += steps;
    e->since += steps;
    return exchange_now(e, x, x);
}

hk_status hk_elastic_gradients(hk_elastic *e, const hk_grad_view *grads) {
    HKI_TRY(check_outside(e, "gradients"));
    if (e->grad == NULL)
        return hki_fail(HK_E_UNSUPPORTED, "%s: gradients: method %s sends none",
                        e->name, e->method->name);
    if (grads == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: gradients are NULL", e->name);
    HKI_TRY(check_grads(e, grads));
    accumulate(e, grads);
    return HK_OK;
}

hk_status hk_elastic_stepped(hk_elastic *e, float *x, int64_t steps) {
    HKI_TRY(check_steps(e, "stepped", x, steps));
    const int64_t tau = e->opt.communication_period;
    const int64_t periods = e->local_step / tau;
    e->local_step += steps;
    e->since += steps;
    e->due = e->local_step / tau > periods;
    return hki_elastic_exchange_due(e, x, NULL);
}
