// worker_step.c - the steps of a worker: pull term, inner step, exchange.
#include "elastic/worker.h"
#include <math.h>

// ---- exchange ---------------------------------------------------------------

// All but the vectors.
static void describe(const hk_elastic *e, hki_exchange *ex) {
    bool per_live;
    const double rate = hki_elastic_rate(e, &per_live);
    *ex = (hki_exchange){
        .side = e->opt.side,
        .rate = rate,
        .grad_scale =
            ldexp(1.0,
                  e->inner != NULL ? -hki_optimizer_halvings(e->inner) : 0) /
            (double)HKI_MAX(e->accumulated, 1),
        .fast_rate = hki_elastic_fast_rate(e, hki_elastic_step(e, NULL)),
        .steps_done = e->since,
        .first_loss = e->first_loss,
        .deadline_ns = hki_deadline(e->opt.wait_ms),
        .per_live = per_live,
        .use_locking = e->opt.use_locking != 0,
    };
    if (e->opt.telemetry > 0) {
        ex->observe = hki_elastic_observe;
        ex->user = (void *)(uintptr_t)e;
    }
}

hk_status hki_elastic_prepare(hk_elastic *e, float *x, hki_exchange *ex) {
    float *view, *grad;
    HKI_TRY(hki_vector_host(&e->view, HKI_TO_CHANGE, &view));
    HKI_TRY(hki_vector_host(&e->grad, HKI_TO_READ, &grad));
    describe(e, ex);
    ex->x = x;
    ex->view = view;
    ex->grad = grad;
    return HK_OK;
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

hk_status hki_elastic_subtract(hk_elastic *e, hki_vector *x, hki_vector *d) {
    const hki_partition *const partition = &e->center->partition;
    float *to, *from;
    HKI_TRY(hki_elastic_follow(e, x->at));
    HKI_TRY(hki_vector_at(x, HKI_TO_CHANGE, &to));
    HKI_TRY(hki_vector_at(d, HKI_TO_READ, &from));
    for (size_t i = 0; i < partition->count; i++) {
        const hki_chunk_range *const p = &partition->chunk[i];
        if (p->share == HK_SHARE_EXCHANGE)
            HKI_TRY(e->at->ops->subtract(e->at, to + p->begin, from + p->begin,
                                         p->end - p->begin));
    }
    return HK_OK;
}

// What a method wants of steps made elsewhere has been told.
static hk_status check_told(const hk_elastic *e) {
    if (e->grad.host != NULL && e->accumulated == 0)
        return hki_fail(HK_E_STATE,
                        "%s: method %s sends gradients; call "
                        "hk_elastic_gradients before an exchange",
                        e->name, e->method->name);
    if (e->method->fast_rate && e->outside_rate == 0)
        return hki_fail(HK_E_STATE,
                        "%s: method %s needs the learning rate; set it with "
                        "hk_elastic_set before an exchange",
                        e->name, e->method->name);
    return HK_OK;
}

// What is known when an exchange is over, or has failed.
static hk_status finish(hk_elastic *e, const hki_exchange *ex, int64_t start,
                        hk_status s) {
    e->n.exchange_ns += hki_now_ns() - start;
    hki_elastic_count(e, ex);
    if (ex->begun) {
        e->since = 0;
        e->center_step = ex->global_step;
    }
    if (s == HK_OK && !ex->missed)
        hki_touched_clear(e);
    // A gradient is used up when it was applied or dropped, not when the
    // center was busy or away.
    return s == HK_OK && !ex->missed ? hki_elastic_clear_grad(e) : s;
}

static hk_status look(hki_vector *v, hki_access a, float **out) {
    *out = NULL;
    return v != NULL && v->host != NULL ? hki_vector_at(v, a, out) : HK_OK;
}

// No exchange, no d: the one that is there is of the exchange before.
static hk_status clear(hki_vector *diff) {
    float *d;
    HKI_TRY(hki_vector_host(diff, HKI_TO_WRITE, &d));
    memset(d, 0, (size_t)diff->n * sizeof *d);
    return HK_OK;
}

// Where x lives elsewhere and the center can meet it there. Sums per entry, and
// a gradient, are the host's.
static hk_status exchange_there(hk_elastic *e, hki_vector *x, hki_vector *diff,
                                bool *taken) {
    const hki_center_ops *const ops = e->center->ops;
    const int64_t start = hki_now_ns();
    float *before;
    hki_exchange ex;
    *taken = false;
    if (x->at == NULL || diff == x || ops->exchange_at == NULL ||
        e->entry != NULL || e->grad.host != NULL)
        return HK_OK;
    describe(e, &ex);
    HKI_TRY(look(x, diff == NULL ? HKI_TO_CHANGE : HKI_TO_READ, &ex.x));
    HKI_TRY(look(&e->view, HKI_TO_CHANGE, &ex.view));
    HKI_TRY(look(diff, HKI_TO_CHANGE, &ex.diff));
    HKI_TRY(look(&e->before, HKI_TO_READ, &before));
    ex.before = before;
    const hk_status s = ops->exchange_at(e->center, e->m, &ex, x->at, taken);
    if (s != HK_OK && diff != NULL) // after an error of a device: no second one
        (void)clear(diff);
    if (!*taken)
        return s;
    e->sums_away = ex.observe != NULL;
    return finish(e, &ex, start, s);
}

// One exchange in this thread. diff: NULL, or takes d. Once it has begun, the
// center has counted the steps: they are not reported a second time, even if a
// later chunk times out. What the exchange was to carry (gradients, touched
// rows) is kept until all of it went through.
static hk_status exchange_now(hk_elastic *e, hki_vector *x, hki_vector *diff) {
    hki_exchange ex;
    float *values, *before, *d = NULL;
    bool taken;
    const int64_t start = hki_now_ns();
    if (e->inner == NULL)
        HKI_TRY(check_told(e));
    HKI_TRY(hki_elastic_follow(e, x->at));
    HKI_TRY(exchange_there(e, x, diff, &taken));
    if (taken)
        return HK_OK;
    HKI_TRY(hki_vector_host(
        x, diff == NULL || diff == x ? HKI_TO_CHANGE : HKI_TO_READ, &values));
    HKI_TRY(hki_vector_host(&e->before, HKI_TO_READ, &before));
    if (diff != NULL) // parts that are not exchanged keep what is there
        HKI_TRY(hki_vector_host(diff, HKI_TO_CHANGE, &d));
    HKI_TRY(hki_elastic_prepare(e, values, &ex));
    ex.diff = d;
    if (e->touched != NULL && !e->all_touched) {
        ex.touched = e->touched;
        ex.n_touched = e->n_touched;
    }
    hki_elastic_observe_begin(e);
    const hk_status s = e->method->rounds
                            ? e->center->ops->push_round(e->center, e->m, &ex)
                            : e->center->ops->exchange(e->center, e->m, &ex);
    return finish(e, &ex, start, s);
}

// An exchange at a point where x is between two steps.
static hk_status exchange_between(hk_elastic *e, hki_vector *x) {
    if (e->overlap != NULL)
        return hki_overlap_start(e, x, e->local_step + e->opt.overlap_steps);
    return exchange_now(e, x, NULL);
}

// Where a step starts from, for telemetry.
static hk_status keep_before(hk_elastic *e, hki_vector *x) {
    float *to, *from;
    if (e->before.host == NULL)
        return HK_OK;
    HKI_TRY(hki_elastic_follow(e, x->at));
    HKI_TRY(hki_vector_at(&e->before, HKI_TO_WRITE, &to));
    HKI_TRY(hki_vector_at(x, HKI_TO_READ, &from));
    return e->at->ops->copy(e->at, to, from, e->before.n);
}

hk_status hk_elastic_exchange(hk_elastic *e, float *x) {
    HKI_TRY(hki_elastic_ready(e, "exchange"));
    if (x == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: exchange: x is NULL", e->name);
    hki_vector v = HKI_HOST_VECTOR(x, hki_layout_size(e->layout));
    HKI_TRY(keep_before(e, &v)); // there is no step to compare with
    return exchange_between(e, &v);
}

hk_status hk_elastic_flush(hk_elastic *e, float *x) {
    if (e == NULL)
        return hki_fail(HK_E_INVALID_ARG, "elastic: flush: NULL handle");
    if (e->overlap == NULL)
        return HK_OK;
    if (x == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: flush: x is NULL", e->name);
    hki_vector v = HKI_HOST_VECTOR(x, hki_layout_size(e->layout));
    return hki_overlap_collect(e, &v, INT64_MAX);
}

// ---- gradients --------------------------------------------------------------

hk_status hki_elastic_add_pull(hk_elastic *e, hki_vector *x, hki_vector *g,
                               int64_t n, double scale) {
    HKI_TRY(hki_elastic_ready(e, "pull"));
    const double rho = hki_elastic_rho(e, hki_elastic_step(e, NULL));
    if (rho == 0 || n == 0)
        return HK_OK;
    if (x->host == NULL || g->host == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: pull: x or g is NULL", e->name);
    if (n != hki_layout_dense(e->layout) && n != hki_layout_train(e->layout))
        return hki_fail(HK_E_SHAPE,
                        "%s: pull: %lld gradients do not fit the layout, which "
                        "has %lld dense and %lld trainable values",
                        e->name, (long long)n,
                        (long long)hki_layout_dense(e->layout),
                        (long long)hki_layout_train(e->layout));
    const double a = rho / scale;
    if (!isfinite(a))
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: pull: rho %g or scale %g is out of range", e->name,
                        rho, scale);
    const hki_partition *const partition = &e->center->partition;
    float *to, *from, *view;
    HKI_TRY(hki_elastic_follow(e, x->at));
    HKI_TRY(hki_vector_at(g, HKI_TO_CHANGE, &to));
    HKI_TRY(hki_vector_at(x, HKI_TO_READ, &from));
    HKI_TRY(hki_vector_at(&e->view, HKI_TO_READ, &view));
    for (size_t i = 0; i < partition->count; i++) {
        const hki_chunk_range *const p = &partition->chunk[i];
        const int64_t end = HKI_MIN(p->end, n);
        if (p->share == HK_SHARE_EXCHANGE && p->begin < end)
            HKI_TRY(e->at->ops->pull(e->at, to + p->begin, from + p->begin,
                                     view + p->begin, (float)a,
                                     end - p->begin));
    }
    return HK_OK;
}

hk_status hk_elastic_add_pull(hk_elastic *e, const float *x, float *g,
                              int64_t n, double scale) {
    HKI_TRY(hki_elastic_ready(e, "pull"));
    hki_vector values = HKI_HOST_VECTOR(x, hki_layout_size(e->layout));
    hki_vector grads = HKI_HOST_VECTOR(g, n);
    return hki_elastic_add_pull(e, &values, &grads, n, scale);
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

// What the mask leaves out may hold a pull, which is nobody's gradient.
static hk_status accumulate_dense(const hk_elastic *e, const hk_grad_view *g,
                                  float *sum, const float *dense) {
    const hki_place *const at = e->at;
    const float scale = (float)g->scale;
    if (g->mask == NULL)
        return g->n_dense > 0
                   ? at->ops->accumulate(at, sum, dense, scale, g->n_dense)
                   : HK_OK;
    for (size_t i = 0; i < hki_layout_entry_count(e->layout); i++) {
        const hk_entry *const k = hk_layout_entry(e->layout, i);
        const int64_t end = HKI_MIN(k->offset + k->count, g->n_dense);
        if (k->kind == HK_TRAINABLE && g->mask[i] != 0 && k->offset < end)
            HKI_TRY(at->ops->accumulate(at, sum + k->offset, dense + k->offset,
                                        scale, end - k->offset));
    }
    return HK_OK;
}

// The gradients were checked.
static hk_status accumulate(hk_elastic *e, const hki_grads *grads) {
    const hk_grad_view *const g = &grads->view;
    const hki_place *const at = e->at;
    const float scale = (float)g->scale;
    float *sum, *dense;
    HKI_TRY(hki_vector_at(&e->grad, HKI_TO_CHANGE, &sum));
    HKI_TRY(hki_vector_at(grads->dense, HKI_TO_READ, &dense));
    HKI_TRY(accumulate_dense(e, g, sum, dense));
    for (size_t i = 0; i < g->n_sparse; i++) {
        const hk_sparse_grad *const s = &g->sparse[i];
        const hk_entry *const entry = hk_layout_find(e->layout, s->entry->name);
        const hki_table_rows rows = {
            .offset = entry->offset,
            .n_rows = entry->shape.dim[0],
            .dim = s->dim,
            .indices = s->indices,
            .rows = s->rows,
            .count = s->count,
            .away = grads->away != NULL ? &grads->away[i] : NULL};
        HKI_TRY(at->ops->accumulate_rows(at, sum, &rows, scale));
    }
    e->accumulated++;
    return HK_OK;
}

// ---- steps ------------------------------------------------------------------

// The part that belongs to this worker alone.
static hk_status local_step(hk_elastic *e, hki_vector *x,
                            const hki_grads *grads, int64_t step) {
    HKI_TRY(hki_elastic_follow(e, x->at));
    if (e->grad.host != NULL)
        HKI_TRY(check_grads(e, &grads->view));
    if (!e->method->no_local)
        HKI_TRY(hki_optimizer_apply(e->inner, x, grads, step, NULL));
    if (e->grad.host != NULL)
        HKI_TRY(accumulate(e, grads));
    hki_touched_mark(e, &grads->view);
    e->local_step++;
    e->since++;
    if (e->method->rounds && e->center->ops->stepped != NULL)
        e->center->ops->stepped(e->center, e->m, e->local_step);
    return HK_OK;
}

// Paper's order: d comes from x before the step and moves the center at once;
// x follows after the step (hki_elastic_exchange_due). Whatever fails, both
// sides move by the same d.
static hk_status step_paper(hk_elastic *e, hki_vector *x,
                            const hki_grads *grads, int64_t step) {
    if (e->overlap != NULL) {
        HKI_TRY(
            hki_overlap_start(e, x, e->local_step + 1 + e->opt.overlap_steps));
        return local_step(e, x, grads, step);
    }
    hk_status s = exchange_now(e, x, &e->diff);
    if (s == HK_OK)
        s = local_step(e, x, grads, step);
    if (s != HK_OK) // after an error of a device there is no second one
        (void)hki_elastic_subtract(e, x, &e->diff);
    return s;
}

static hk_status step(hk_elastic *e, hki_vector *x, const hki_grads *grads,
                      int64_t at) {
    const int64_t tau = e->opt.communication_period;
    const bool due = (e->local_step + (e->paper ? 0 : 1)) % tau == 0;
    if (due)
        HKI_TRY(keep_before(e, x));
    HKI_TRY(due && e->paper ? step_paper(e, x, grads, at)
                            : local_step(e, x, grads, at));
    e->due = due;
    return HK_OK;
}

hk_status hki_elastic_exchange_due(hk_elastic *e, hki_vector *x,
                                   int *exchanged) {
    HKI_TRY(hki_elastic_ready(e, "exchange"));
    if (x->host == NULL)
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
        s = hki_elastic_subtract(e, x, &e->diff);
    }
    HKI_TRY(s);
    if (exchanged != NULL)
        *exchanged = due;
    return HK_OK;
}

hk_status hki_elastic_update(hk_elastic *e, hki_vector *x,
                             const hki_grads *grads, int64_t *global_step) {
    HKI_TRY(hki_elastic_ready(e, "apply_gradients"));
    if (e->inner == NULL)
        return hki_fail(HK_E_STATE,
                        "%s: apply_gradients: there is no inner optimizer; "
                        "report the caller's steps with hk_elastic_stepped",
                        e->name);
    if (grads->view.n_dense == 0 && grads->view.n_sparse == 0)
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
    HKI_TRY(hki_elastic_ready(e, "apply_gradients"));
    if (x == NULL || grads == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: apply_gradients: x or gradients are NULL",
                        e->name);
    hki_vector values = HKI_HOST_VECTOR(x, hki_layout_size(e->layout));
    hki_vector dense = HKI_HOST_VECTOR(grads->dense, grads->n_dense);
    const hki_grads g = {.view = *grads, .dense = &dense};
    HKI_TRY(hki_elastic_update(e, &values, &g, global_step));
    const hk_status s = hki_elastic_exchange_due(e, &values, NULL);
    if (global_step != NULL)
        *global_step = hki_elastic_global_step(e);
    return s;
}

// ---- steps made elsewhere ---------------------------------------------------

static hk_status check_outside(const hk_elastic *e, const char *what) {
    HKI_TRY(hki_elastic_ready(e, what));
    if (e->inner != NULL)
        return hki_fail(HK_E_STATE,
                        "%s: %s: the inner optimizer %s makes the steps; call "
                        "hk_elastic_apply",
                        e->name, what, hki_optimizer_name(e->inner));
    return HK_OK;
}

static hk_status check_steps(const hk_elastic *e, const char *what,
                             const float *x, int64_t steps) {
    HKI_TRY(check_outside(e, what));
    if (x == NULL || steps < 0)
        return hki_fail(HK_E_INVALID_ARG, "%s: %s: x is NULL, or steps is %lld",
                        e->name, what, (long long)steps);
    return HK_OK;
}

hk_status hk_elastic_difference(hk_elastic *e, float *x, int64_t steps) {
    HKI_TRY(check_steps(e, "difference", x, steps));
    if (e->method->id != HK_METHOD_ELASTIC)
        return hki_fail(HK_E_UNSUPPORTED,
                        "%s: difference: the method is %s, but "
                        "hk_elastic_difference supports only method elastic",
                        e->name, e->method->name);
    if (e->overlap != NULL)
        return hki_fail(HK_E_UNSUPPORTED,
                        "%s: difference: overlap_steps is %u, but "
                        "hk_elastic_difference supports only overlap_steps 0",
                        e->name, e->opt.overlap_steps);
    e->local_step += steps;
    e->since += steps;
    hki_vector v = HKI_HOST_VECTOR(x, hki_layout_size(e->layout));
    return exchange_now(e, &v, &v);
}

hk_status hk_elastic_gradients(hk_elastic *e, const hk_grad_view *grads) {
    HKI_TRY(check_outside(e, "gradients"));
    if (e->grad.host == NULL)
        return hki_fail(HK_E_UNSUPPORTED,
                        "%s: gradients: method %s does not send gradients",
                        e->name, e->method->name);
    if (grads == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: gradients are NULL", e->name);
    HKI_TRY(check_grads(e, grads));
    HKI_TRY(hki_elastic_follow(e, NULL));
    hki_vector dense = HKI_HOST_VECTOR(grads->dense, grads->n_dense);
    const hki_grads g = {.view = *grads, .dense = &dense};
    return accumulate(e, &g);
}

hk_status hk_elastic_stepped(hk_elastic *e, float *x, int64_t steps) {
    HKI_TRY(check_steps(e, "stepped", x, steps));
    const int64_t tau = e->opt.communication_period;
    const int64_t periods = e->local_step / tau;
    e->local_step += steps;
    e->since += steps;
    e->due = e->local_step / tau > periods;
    hki_vector v = HKI_HOST_VECTOR(x, hki_layout_size(e->layout));
    return hki_elastic_exchange_due(e, &v, NULL);
}
