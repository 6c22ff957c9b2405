// grads.c - the list of gradients and variables: compute, apply, minimize.
#include <math.h>
#include "train/train.h"

struct hk_grad_list {
    hk_layout *layout;
    hk_grad_and_var *items; // room for every entry of the layout
    size_t n;
    double scale;
    const float *base;      // the session's flat gradients; NULL: gather
    unsigned char *mask;    // by entry: has a gradient
    hk_sparse_grad *sparse; // of the last view
    float *flat;            // made when gradients have to be gathered
};

HKI_OPTIONS(hk_compute_options, reserved, .gate_gradients = HK_GATE_OP,
            .grad_loss = 1.0)

HKI_SCOPED_HANDLE(hk_grad_list, hk_grad_list_destroy)

hk_status hk_grad_list_create(hk_layout *layout, hk_grad_list **out) {
    if (layout == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "gradient list: layout or out is "
                                          "NULL");
    HKI_SCOPED(hk_grad_list_destroy_at) hk_grad_list *l = NULL;
    HKI_TRY(hki_zalloc_array(1, sizeof *l, &l));
    const size_t n = hki_layout_entry_count(layout);
    l->layout = hk_layout_retain(layout);
    l->scale = 1.0;
    HKI_TRY(hki_zalloc_array(n, sizeof *l->items, &l->items));
    HKI_TRY(hki_zalloc_array(n, sizeof *l->mask, &l->mask));
    HKI_TRY(hki_zalloc_array(n, sizeof *l->sparse, &l->sparse));
    return HKI_HAND_ON(out, l);
}

void hk_grad_list_destroy(hk_grad_list *l) {
    if (l == NULL)
        return;
    hki_free(l->items);
    hki_free(l->mask);
    hki_free(l->sparse);
    hki_free(l->flat);
    hk_layout_release(l->layout);
    hki_free(l);
}

hk_status hk_grad_list_get_info(const hk_grad_list *l, hk_grad_list_info *out) {
    if (l == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "gradient list: NULL argument");
    *out = (hk_grad_list_info){l->items, l->n, l->scale};
    return HK_OK;
}

// Position of an entry in the layout; -1 when it belongs to another one.
static int64_t entry_index(const hk_layout *l, const hk_entry *e) {
    for (size_t i = 0; i < hki_layout_entry_count(l); i++)
        if (hk_layout_entry(l, i) == e)
            return (int64_t)i;
    return -1;
}

// ---- set ------------------------------------------------------------------

static hk_status check_item(const hk_layout *l, const hk_grad_and_var *it,
                            size_t i) {
    if (it->var == NULL || entry_index(l, it->var) < 0)
        return hki_fail(
            HK_E_INVALID_ARG,
            "gradient list: entry %zu is not a variable of this model", i);
    if (it->var->kind != HK_TRAINABLE)
        return hki_fail(HK_E_INVALID_ARG,
                        "gradient list: entry %zu, %s, is not trainable", i,
                        it->var->name);
    if (it->kind == HK_GRAD_NONE)
        return HK_OK;
    if (it->kind == HK_GRAD_DENSE) {
        if (it->dense == NULL && it->var->count > 0)
            return hki_fail(HK_E_INVALID_ARG,
                            "gradient list: the dense gradient of %s is NULL",
                            it->var->name);
        return HK_OK;
    }
    if (it->kind != HK_GRAD_SPARSE)
        return hki_fail(HK_E_INVALID_ARG,
                        "gradient list: entry %zu, %s, has kind %d", i,
                        it->var->name, (int)it->kind);
    if (it->sparse.entry != it->var || it->sparse.count < 0 ||
        (it->sparse.count > 0 &&
         (it->sparse.indices == NULL || it->sparse.rows == NULL)))
        return hki_fail(HK_E_INVALID_ARG,
                        "gradient list: the sparse gradient of %s is "
                        "malformed or belongs to another variable",
                        it->var->name);
    return HK_OK;
}

hk_status hk_grad_list_set(hk_grad_list *l, const hk_grad_and_var *items,
                           size_t n, double scale) {
    if (l == NULL || (items == NULL && n > 0) || !isfinite(scale))
        return hki_fail(HK_E_INVALID_ARG,
                        "gradient list: the list or the items are NULL, or the "
                        "scale is not finite");
    if (n > hki_layout_entry_count(l->layout))
        return hki_fail(
            HK_E_INVALID_ARG,
            "gradient list: %zu entries, but the model has %zu variables", n,
            hki_layout_entry_count(l->layout));
    for (size_t i = 0; i < n; i++) {
        HKI_TRY(check_item(l->layout, &items[i], i));
        for (size_t k = 0; k < i; k++)
            if (items[k].var == items[i].var)
                return hki_fail(
                    HK_E_INVALID_ARG,
                    "gradient list: %s occurs twice (entries %zu and %zu)",
                    items[i].var->name, k, i);
    }
    if (n > 0)
        memmove(l->items, items, n * sizeof *items);
    l->n = n;
    l->scale = scale;
    l->base = NULL;
    return HK_OK;
}

// ---- compute --------------------------------------------------------------

static hk_status check_compute(const hk_compute_options *o) {
    if (o->gate_gradients < HK_GATE_NONE || o->gate_gradients > HK_GATE_GRAPH)
        return hki_fail(HK_E_INVALID_ARG,
                        "compute_gradients: gate_gradients is %d, not "
                        "GATE_NONE, GATE_OP or GATE_GRAPH",
                        (int)o->gate_gradients);
    if (o->aggregation_method < HK_AGGREGATION_ADD_N ||
        o->aggregation_method > HK_AGGREGATION_ACCUMULATE_N)
        return hki_fail(HK_E_INVALID_ARG,
                        "compute_gradients: unknown aggregation_method %d",
                        (int)o->aggregation_method);
    if (!isfinite(o->grad_loss))
        return hki_fail(
            HK_E_NOT_FINITE,
            "compute_gradients: grad_loss is %g; it has to be finite",
            o->grad_loss);
    if (o->var_list == NULL && o->n_vars > 0)
        return hki_fail(HK_E_INVALID_ARG, "compute_gradients: var_list is "
                                          "NULL");
    return HK_OK;
}

static hk_grad_and_var gradient_of(hk_session *s, const hk_entry *e) {
    hk_grad_and_var it = {.var = e};
    if (!hki_plan_has_grad(hk_session_plan(s), e))
        return it;
    for (size_t i = 0; i < hki_session_sparse_count(s); i++) {
        hk_sparse_grad g;
        if (hk_session_sparse_grad(s, i, &g) == HK_OK && g.entry == e) {
            it.kind = HK_GRAD_SPARSE;
            it.sparse = g;
            return it;
        }
    }
    it.kind = HK_GRAD_DENSE;
    it.dense = hk_session_grads(s) + e->offset;
    return it;
}

static bool is_listed(const hk_grad_list *l, const hk_entry *e) {
    for (size_t i = 0; i < l->n; i++)
        if (l->items[i].var == e)
            return true;
    return false;
}

// Views of the list use the session's memory in place, where gradients without
// a variable in the list have to be 0.
static void clear_others(hk_session *s, const hk_grad_list *l) {
    for (size_t i = 0; i < hki_layout_entry_count(l->layout); i++) {
        const hk_entry *const e = hk_layout_entry(l->layout, i);
        if (e->kind == HK_TRAINABLE && !is_listed(l, e) &&
            gradient_of(s, e).kind == HK_GRAD_DENSE)
            memset(hk_session_grads(s) + e->offset, 0,
                   (size_t)e->count * sizeof(float));
    }
}

// Fills the list from the session's last run.
static hk_status list_gradients(hk_session *s, const hk_compute_options *o,
                                hk_grad_list *l) {
    l->n = 0;
    l->scale = o->grad_loss;
    l->base = hk_session_grads(s);
    if (o->var_list == NULL) {
        for (size_t i = 0; i < hki_layout_entry_count(l->layout); i++) {
            const hk_entry *e = hk_layout_entry(l->layout, i);
            if (e->kind == HK_TRAINABLE)
                l->items[l->n++] = gradient_of(s, e);
        }
        return HK_OK;
    }
    if (o->n_vars > hki_layout_entry_count(l->layout))
        return hki_fail(HK_E_INVALID_ARG,
                        "compute_gradients: var_list is longer than the "
                        "model's list of variables");
    for (size_t i = 0; i < o->n_vars; i++) {
        const char *name = o->var_list[i];
        const hk_entry *e =
            name != NULL ? hk_layout_find(l->layout, name) : NULL;
        if (e == NULL || e->kind != HK_TRAINABLE)
            return hki_fail(HK_E_NOT_FOUND,
                            "compute_gradients: %s is not a trainable variable",
                            name != NULL ? name : "(null)");
        if (is_listed(l, e))
            return hki_fail(HK_E_INVALID_ARG,
                            "compute_gradients: %s is listed twice", name);
        l->items[l->n++] = gradient_of(s, e);
    }
    clear_others(s, l);
    return HK_OK;
}

static bool any_gradient(const hk_grad_list *l) {
    for (size_t i = 0; i < l->n; i++)
        if (l->items[i].kind != HK_GRAD_NONE)
            return true;
    return false;
}

hk_status hk_compute_gradients(hk_session *s, const hk_compute_options *opt,
                               hk_grad_list *out) {
    if (s == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "compute_gradients: session or list is NULL");
    if (hk_plan_layout(hk_session_plan(s)) != out->layout)
        return hki_fail(HK_E_INVALID_ARG,
                        "compute_gradients: the list belongs to another model");
    if (hk_session_grads(s) == NULL)
        return hki_fail(HK_E_STATE, "compute_gradients: the session has no "
                                    "gradients");
    hk_compute_options o;
    HKI_TRY(HKI_OPTIONS_GET(hk_compute_options, &o, opt, "compute options"));
    HKI_TRY(check_compute(&o));
    HKI_TRY(hk_session_run(s));
    HKI_TRY(list_gradients(s, &o, out));
    if (!any_gradient(out))
        return hki_fail(HK_E_INVALID_ARG,
                        "compute_gradients: none of the %zu variables has a "
                        "gradient",
                        out->n);
    return HK_OK;
}

// ---- view -----------------------------------------------------------------

// A flat vector of the list's own: 0 in gaps and for variables that are not
// listed. The caller's memory holds var->count floats and nothing else of ours.
static hk_status gather(hk_grad_list *l) {
    const size_t n = (size_t)hki_layout_train(l->layout);
    if (l->flat == NULL)
        HKI_TRY(hki_alloc_array(n, sizeof *l->flat, &l->flat));
    memset(l->flat, 0, n * sizeof *l->flat);
    for (size_t i = 0; i < l->n; i++) {
        const hk_grad_and_var *it = &l->items[i];
        if (it->kind == HK_GRAD_DENSE && it->var->count > 0)
            memcpy(l->flat + it->var->offset, it->dense,
                   (size_t)it->var->count * sizeof *l->flat);
    }
    return HK_OK;
}

// Marks the entries with a gradient; true when no trainable one lacks it.
static bool mark_entries(hk_grad_list *l) {
    const size_t n = hki_layout_entry_count(l->layout);
    size_t marked = 0, trainable = 0;
    memset(l->mask, 0, n);
    for (size_t i = 0; i < l->n; i++)
        if (l->items[i].kind != HK_GRAD_NONE) {
            l->mask[entry_index(l->layout, l->items[i].var)] = 1;
            marked++;
        }
    for (size_t i = 0; i < n; i++)
        trainable += hk_layout_entry(l->layout, i)->kind == HK_TRAINABLE;
    return marked == trainable;
}

hk_status hk_grad_list_view(hk_grad_list *l, hk_grad_view *out) {
    int64_t end = 0; // of the last dense gradient
    size_t n_sparse = 0, n_dense = 0;
    for (size_t i = 0; i < l->n; i++) {
        const hk_grad_and_var *it = &l->items[i];
        if (it->kind == HK_GRAD_SPARSE)
            l->sparse[n_sparse++] = it->sparse;
        if (it->kind != HK_GRAD_DENSE)
            continue;
        n_dense++;
        end = HKI_MAX(end, it->var->offset + it->var->count);
    }
    if (n_dense > 0 && l->base == NULL)
        HKI_TRY(gather(l));
    const int64_t dense = hki_layout_dense(l->layout);
    *out = (hk_grad_view){.dense = l->base != NULL ? l->base : l->flat,
                          .n_dense = n_dense == 0  ? 0
                                     : end > dense ? hki_layout_train(l->layout)
                                                   : dense,
                          .sparse = l->sparse,
                          .n_sparse = n_sparse,
                          .scale = l->scale,
                          .mask = mark_entries(l) ? NULL : l->mask};
    return HK_OK;
}

// ---- apply ----------------------------------------------------------------

hk_status hk_apply_gradients(hk_optimizer *o, float *x, hk_grad_list *l,
                             int64_t *global_step, const char *name) {
    const char *who = name != NULL ? name : "apply_gradients";
    if (o == NULL || x == NULL || l == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: optimizer, values or list is NULL", who);
    if (l->n == 0)
        return hki_fail(HK_E_INVALID_ARG, "%s: the list of gradients is empty",
                        who);
    if (!any_gradient(l))
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: no gradient for any of the %zu variables, the "
                        "first of which is %s",
                        who, l->n, l->items[0].var->name);
    hk_grad_view g;
    HKI_TRY(hk_grad_list_view(l, &g));
    HKI_TRY(hk_optimizer_apply(o, x, &g, global_step != NULL ? *global_step : 0,
                               NULL));
    if (global_step != NULL)
        ++*global_step;
    return HK_OK;
}

hk_status hk_minimize(hk_optimizer *o, hk_session *s,
                      const hk_compute_options *opt, hk_grad_list *l,
                      int64_t *global_step) {
    HKI_TRY(hk_compute_gradients(s, opt, l));
    return hk_apply_gradients(o, hk_session_params(s), l, global_step,
                              "minimize");
}
