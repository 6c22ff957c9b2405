// optimizer_step.c - the steps of an optimizer, whole or in pieces.
//
// A step has three parts: prepare (everything that can fail, coefficients),
// update (optimizer_update.c), finish (Adam's powers). Values and slots are
// written by the second part only, so a failed step changes nothing.
#include "optim/optimizer.h"
#include <math.h>

// ---- prepare --------------------------------------------------------------

double hk_optimizer_rate(const hk_optimizer *o, int64_t global_step) {
    if (o == NULL)
        return (double)NAN;
    const double rate =
        o->schedule != NULL
            ? hk_schedule_value(o->schedule, (double)global_step)
            : o->opt.learning_rate;
    return ldexp(o->factor * rate, -o->halvings);
}

void hki_optimizer_set_factor(hk_optimizer *o, double factor) {
    o->factor = factor;
    if (o->other != NULL)
        o->other->factor = factor;
}

// Coefficients of the step; the gradient's scale and the average come later.
static hk_status prepare(hk_optimizer *o, int64_t global_step) {
    if (o->opt.lookahead && !o->ahead)
        return hki_fail(
            HK_E_STATE,
            "%s: lookahead needs the gradient at x + momentum v; call "
            "hk_optimizer_look_ahead before every step, or use hk_trainer_step",
            o->opt.name);
    const double rate = hk_optimizer_rate(o, global_step);
    // Constant rates were checked when they were set. A noisy schedule may dip
    // below zero, which only some rules cannot bear.
    if (!isfinite(rate))
        return hki_fail(
            HK_E_NOT_FINITE,
            "%s: the learning rate at step %lld is %g; it has to be finite",
            o->opt.name, (long long)global_step, rate);
    if (o->rule->hyper[0]->above_low)
        HKI_TRY(hki_hyper_check(o->rule, o->rule->hyper[0], rate));
    o->rate = rate;
    o->kernel = o->rule->kernel(&o->opt);
    memset(o->c, 0, sizeof o->c);
    for (int decay = 0; decay < 2; decay++)
        o->rule->prepare(&o->opt, rate, o->power, global_step, decay == 1,
                         o->c[decay]);
    return HK_OK;
}

static void set_coef(hk_optimizer *o, int i, float v) {
    o->c[0][i] = o->c[1][i] = v;
}

static void finish(hk_optimizer *o) {
    o->ahead = false;
    if (o->rule->flags & HKI_RULE_POWERS) {
        o->power[0] *= (float)o->opt.beta1;
        o->power[1] *= (float)o->opt.beta2;
    }
}

// The entries of a step: those selected that its gradients cover.
static void narrow(hk_optimizer *o, const unsigned char *mask) {
    if (mask == NULL && !o->narrowed)
        return;
    for (size_t i = 0; i < o->n_entries; i++)
        o->active[i] = o->selected[i] && (mask == NULL || mask[i] != 0);
    o->narrowed = mask != NULL;
    hki_optimizer_build_runs(o);
}

// Makes the indices of a sparse gradient in host memory unique.
static hk_status prepare_rows(const hk_sparse_grad *g, hki_rowset *set,
                              hki_table_rows *p) {
    HKI_TRY(hki_rowset_check(set, g->entry->name, g->indices, g->count));
    p->indices = g->indices;
    p->rows = g->rows;
    p->count = g->count;
    // Marks find repeated indices, and lead from a row to its gradient.
    const bool marks = !g->unique || p->all;
    if (marks && !hki_rowset_mark(set, g->indices, g->count)) {
        hki_rowset_clear(set);
        HKI_TRY(hki_rowset_add(set, g->indices, g->rows, 1, g->count));
        p->indices = set->indices;
        p->rows = set->rows;
        p->count = set->count;
    }
    p->epoch = set->epoch;
    return HK_OK;
}

// Checks one sparse gradient. away: where its rows are; NULL: in host memory.
static hk_status prepare_sparse(hk_optimizer *o, const hk_sparse_grad *g,
                                const hki_rows_away *away) {
    const hk_sparse_grad name = {.entry = g->entry, .dim = g->dim};
    size_t t;
    HKI_TRY(hki_tables_find(&o->tables, o->layout, away != NULL ? &name : g,
                            o->opt.name, &t));
    hki_rowset *const set = &o->tables.set[t];
    for (size_t i = 0; i < o->n_prepared; i++)
        if (o->prepared[i].mark == set->mark)
            return hki_fail(HK_E_EXISTS,
                            "%s: there are two sparse gradients for %s",
                            o->opt.name, g->entry->name);
    const size_t index = o->tables.entry[t];
    hki_table_rows p = {.offset = hk_layout_entry(o->layout, index)->offset,
                        .n_rows = set->n_rows,
                        .dim = set->dim,
                        .away = away,
                        .mark = set->mark,
                        .entry = index,
                        .all = hki_optimizer_all_rows(o),
                        .active = o->active[index]};
    if (away == NULL)
        HKI_TRY(prepare_rows(g, set, &p));
    // A table that takes no part is prepared, too: a second gradient for it is
    // noticed.
    o->prepared[o->n_prepared++] = p;
    return HK_OK;
}

// ---- the point ahead --------------------------------------------------------

bool hki_optimizer_looks_ahead(const hk_optimizer *o) {
    return o->opt.lookahead ||
           (o->other != NULL && hki_optimizer_looks_ahead(o->other));
}

// y += momentum v, where this rule moves anything.
static hk_status look_ahead(hk_optimizer *o, hki_vector *y) {
    float *v;
    hki_vector_pass a = {.end = INT64_MAX,
                         .chunks = o->chunks,
                         .n_chunks = o->n_chunks,
                         .only = o->selected,
                         .scale = (float)o->opt.momentum};
    HKI_TRY(hki_vector_at(y, HKI_TO_CHANGE, &a.dst));
    HKI_TRY(hki_vector_at(&o->values[0], HKI_TO_READ, &v));
    a.src = v;
    return o->at->ops->add(o->at, &a);
}

hk_status hki_optimizer_look_ahead(hk_optimizer *o, hki_vector *x) {
    HKI_TRY(hki_optimizer_follow(o, x->at));
    for (; o != NULL; o = o->other) {
        if (o->opt.lookahead)
            HKI_TRY(look_ahead(o, x));
        o->ahead = true;
    }
    return HK_OK;
}

hk_status hk_optimizer_look_ahead(hk_optimizer *o, const float *x, float *y) {
    if (o == NULL || x == NULL || y == NULL || o->in_step)
        return hki_fail(o != NULL && o->in_step ? HK_E_STATE : HK_E_INVALID_ARG,
                        "optimizer: look ahead: the handle or the values are "
                        "NULL, or a step has begun");
    hki_vector v = HKI_HOST_VECTOR(y, hki_layout_train(o->layout));
    if (y != x)
        memcpy(y, x, (size_t)v.n * sizeof *y);
    return hki_optimizer_look_ahead(o, &v);
}

// ---- steps ----------------------------------------------------------------

static bool all_active(const hk_optimizer *o, int64_t end) {
    for (size_t i = 0; i < o->n_entries; i++)
        if (!o->active[i] && hk_layout_entry(o->layout, i)->offset < end)
            return false;
    return true;
}

static hk_status check_step(const hk_optimizer *o, const float *x,
                            bool in_step) {
    if (o == NULL || x == NULL)
        return hki_fail(HK_E_INVALID_ARG, "optimizer: handle or x is NULL");
    if (o->in_step != in_step)
        return hki_fail(HK_E_STATE,
                        in_step ? "%s: no step has begun"
                                : "%s: the step before has not ended",
                        o->opt.name);
    return HK_OK;
}

static hk_status check_grads(const hk_optimizer *o, const hk_grad_view *v,
                             int64_t global_step) {
    HKI_TRY(hki_grad_view_check(o->layout, v, o->opt.name));
    if (v->n_dense == 0 && v->n_sparse == 0)
        return hki_fail(HK_E_INVALID_ARG, "%s: there is no gradient",
                        o->opt.name);
    if (global_step < 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: global_step is %lld; it has to be at least 0",
                        o->opt.name, (long long)global_step);
    return HK_OK;
}

// Everything of a step that can fail.
static hk_status ready(hk_optimizer *o, const hki_grads *grads,
                       int64_t global_step) {
    const hk_grad_view *const v = &grads->view;
    HKI_TRY(check_grads(o, v, global_step));
    narrow(o, v->mask);
    o->n_prepared = 0;
    for (size_t i = 0; i < v->n_sparse; i++)
        HKI_TRY(prepare_sparse(o, &v->sparse[i],
                               grads->away != NULL ? &grads->away[i] : NULL));
    return prepare(o, global_step);
}

// Both rules are ready before one of them moves anything.
static hk_status apply_both(hk_optimizer *o, hki_vector *x,
                            const hki_grads *grads, hk_ema *ema) {
    hk_optimizer *const list[2] = {o, o->other};
    for (int i = 0; i < 2; i++) {
        set_coef(list[i], HKI_C_SCALE, (float)grads->view.scale);
        HKI_TRY(hki_optimizer_update(list[i], x, grads->dense, NULL, 0,
                                     grads->view.n_dense));
        finish(list[i]);
    }
    return ema != NULL ? hki_ema_update_rest(ema, x, 0) : HK_OK;
}

static hk_status apply_one(hk_optimizer *o, hki_vector *x,
                           const hki_grads *grads, hk_ema *ema) {
    const int64_t end = grads->view.n_dense;
    float *shadow = NULL;
    set_coef(o, HKI_C_SCALE, (float)grads->view.scale);
    if (ema != NULL && all_active(o, end) && hki_ema_is_fused(ema, end)) {
        HKI_TRY(hki_ema_shadow(ema, x, &shadow));
        set_coef(o, HKI_C_EMA, (float)(1 - hki_ema_decay(ema)));
    }
    HKI_TRY(hki_optimizer_update(o, x, grads->dense, shadow, 0, end));
    if (ema != NULL)
        HKI_TRY(hki_ema_update_rest(ema, x, shadow != NULL ? end : 0));
    finish(o);
    return HK_OK;
}

hk_status hki_optimizer_apply(hk_optimizer *o, hki_vector *x,
                              const hki_grads *grads, int64_t global_step,
                              hk_ema *ema) {
    HKI_TRY(check_step(o, x->host, false));
    HKI_TRY(ready(o, grads, global_step));
    if (o->other != NULL)
        HKI_TRY(ready(o->other, grads, global_step));
    if (ema != NULL && hki_layout_fingerprint(hki_ema_layout(ema)) !=
                           hki_layout_fingerprint(o->layout))
        return hki_fail(HK_E_SHAPE, "%s: the average has another layout",
                        o->opt.name);
    HKI_TRY(hki_optimizer_follow(o, x->at));
    if (ema != NULL && !hki_ema_sequential(ema)) {
        HKI_TRY(hki_ema_update_rest(ema, x, 0));
        ema = NULL;
    }
    return o->other != NULL ? apply_both(o, x, grads, ema)
                            : apply_one(o, x, grads, ema);
}

hk_status hk_optimizer_apply(hk_optimizer *o, float *x,
                             const hk_grad_view *grads, int64_t global_step,
                             hk_ema *ema) {
    HKI_TRY(check_step(o, x, false));
    if (grads == NULL)
        return hki_grad_view_check(o->layout, grads, o->opt.name);
    hki_vector values = HKI_HOST_VECTOR(x, hki_layout_size(o->layout));
    hki_vector dense = HKI_HOST_VECTOR(grads->dense, grads->n_dense);
    const hki_grads g = {.view = *grads, .dense = &dense};
    return hki_optimizer_apply(o, &values, &g, global_step, ema);
}

hk_status hk_optimizer_begin(hk_optimizer *o, int64_t global_step) {
    if (o == NULL || o->in_step || global_step < 0)
        return hki_fail(o != NULL && o->in_step ? HK_E_STATE : HK_E_INVALID_ARG,
                        "optimizer: begin: the handle is NULL, a step has "
                        "begun, or global_step %lld is negative",
                        (long long)global_step);
    HKI_TRY(hki_optimizer_follow(o, NULL));
    HKI_TRY(prepare(o, global_step));
    narrow(o, NULL);
    if (o->other != NULL)
        HKI_TRY(hk_optimizer_begin(o->other, global_step));
    o->in_step = true;
    return HK_OK;
}

// True when `at` is no position inside an entry.
static bool is_edge(const hk_optimizer *o, int64_t at) {
    for (size_t i = 0; i < o->n_entries; i++) {
        const hk_entry *const e = hk_layout_entry(o->layout, i);
        if (at > e->offset && at < e->offset + e->count)
            return false;
    }
    return at >= 0 && at <= hki_layout_train(o->layout);
}

hk_status hk_optimizer_apply_range(hk_optimizer *o, float *x,
                                   const float *dense, int64_t begin,
                                   int64_t end, double scale) {
    HKI_TRY(check_step(o, x, true));
    if (dense == NULL || begin > end || !is_edge(o, begin) || !is_edge(o, end))
        return hki_fail(
            HK_E_INVALID_ARG,
            "%s: the range [%lld, %lld) does not consist of whole entries",
            o->opt.name, (long long)begin, (long long)end);
    if (!isfinite(scale))
        return hki_fail(HK_E_NOT_FINITE, "%s: scale is %g; it has to be finite",
                        o->opt.name, scale);
    set_coef(o, HKI_C_SCALE, (float)scale);
    o->n_prepared = 0;
    hki_vector values = HKI_HOST_VECTOR(x, hki_layout_size(o->layout));
    hki_vector g = HKI_HOST_VECTOR(dense, end);
    HKI_TRY(hki_optimizer_update(o, &values, &g, NULL, begin, end));
    return o->other != NULL
               ? hk_optimizer_apply_range(o->other, x, dense, begin, end, scale)
               : HK_OK;
}

hk_status hk_optimizer_apply_sparse(hk_optimizer *o, float *x,
                                    const hk_sparse_grad *grad, double scale) {
    HKI_TRY(check_step(o, x, true));
    if (grad == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: gradient is NULL", o->opt.name);
    if (!isfinite(scale))
        return hki_fail(HK_E_NOT_FINITE, "%s: scale is %g; it has to be finite",
                        o->opt.name, scale);
    o->n_prepared = 0;
    HKI_TRY(prepare_sparse(o, grad, NULL));
    set_coef(o, HKI_C_SCALE, (float)scale);
    hki_vector values = HKI_HOST_VECTOR(x, hki_layout_size(o->layout));
    hki_vector none = {0};
    HKI_TRY(hki_optimizer_update(o, &values, &none, NULL, 0, 0));
    return o->other != NULL
               ? hk_optimizer_apply_sparse(o->other, x, grad, scale)
               : HK_OK;
}

hk_status hk_optimizer_end(hk_optimizer *o) {
    if (o == NULL || !o->in_step)
        return hki_fail(HK_E_STATE, "optimizer: end without begin");
    finish(o);
    o->in_step = false;
    return o->other != NULL ? hk_optimizer_end(o->other) : HK_OK;
}
