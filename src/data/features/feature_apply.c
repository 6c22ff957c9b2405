// feature_apply.c - feature columns as a function over elements: bound to a
// dataset's spec once, run for every element or batch.
#include "data/data.h"
#include "data/features/feature.h"
#include "data/features/feature_plan.h"

#define NO_FIELD SIZE_MAX

// ---- binding --------------------------------------------------------------

static hk_status find_field(hki_feature_plan *p, const hk_element *spec,
                            const char *key, size_t *out) {
    for (size_t f = 0; f < p->n_fields; f++)
        if (strcmp(p->key[f], key) == 0) {
            *out = f;
            return HK_OK;
        }
    const int64_t v = hki_spec_find(spec, key);
    if (v < 0)
        return hki_fail(HK_E_NOT_FOUND,
                        "features: the dataset has no value \"%s\"", key);
    p->key[p->n_fields] = key;
    p->value[p->n_fields] = (size_t)v;
    *out = p->n_fields++;
    return HK_OK;
}

// A width that is known too large is refused now, not at the first row.
static hk_status check_width(const hk_column *c, int64_t per_row) {
    const bool numeric = c->kind == HKI_COLUMN_NUMERIC;
    const int64_t want = numeric ? c->width : c->values;
    const bool fits =
        numeric ? per_row == want : want == 0 || c->truncate || per_row <= want;
    if (per_row < 0 || fits)
        return HK_OK;
    return hki_fail(HK_E_SHAPE,
                    "column \"%s\": \"%s\" has %lld values per example, but "
                    "the column needs %lld",
                    c->name, c->key, (long long)per_row, (long long)want);
}

static hk_status bind_key(hki_feature_plan *p, const hk_element *spec,
                          const hk_column *c) {
    const bool numeric =
        c->kind == HKI_COLUMN_NUMERIC || c->kind == HKI_COLUMN_WEIGHTED;
    size_t f = 0;
    int64_t per_row;
    HKI_TRY(find_field(p, spec, c->key, &f));
    const hk_value *const v = &spec->values[p->value[f]];
    HKI_TRY(hki_cells_check(v, p->batched, numeric, &per_row));
    if (c->kind == HKI_COLUMN_IDENTITY && v->dtype == HK_STRING)
        return hki_fail(HK_E_DTYPE,
                        "features: \"%s\" is a string, but an identity column "
                        "needs integers",
                        v->name);
    if (c->kind != HKI_COLUMN_WEIGHTED)
        HKI_TRY(check_width(c, per_row));
    p->field[c->index] = f;
    return HK_OK;
}

static hk_status bind_leaves(hki_feature_plan *p, const hk_element *spec,
                             const hk_column *c) {
    size_t **const fields = &p->leaf_field[c->index];
    int64_t per_row;
    HKI_TRY(hki_arena_alloc(&p->arena, c->n_leaves, sizeof **fields, fields));
    for (size_t i = 0; i < c->n_leaves; i++) {
        size_t f = NO_FIELD;
        if (c->leaf[i].key != NULL) {
            HKI_TRY(find_field(p, spec, c->leaf[i].key, &f));
            HKI_TRY(hki_cells_check(&spec->values[p->value[f]], p->batched,
                                    false, &per_row));
        }
        (*fields)[i] = f;
    }
    return HK_OK;
}

static size_t count_keys(const hk_feature_set *s) {
    size_t n = 0;
    for (size_t i = 0; i < s->n_columns; i++)
        n += 1 + s->column[i]->n_leaves;
    return n;
}

static hk_status bind(hki_feature_plan *p, const hk_element *spec) {
    const hk_feature_set *const s = p->set;
    const size_t n_keys = count_keys(s);
    HKI_TRY(hki_arena_alloc(&p->arena, n_keys, sizeof *p->value, &p->value));
    HKI_TRY(hki_arena_alloc(&p->arena, n_keys, sizeof *p->key, &p->key));
    HKI_TRY(
        hki_arena_alloc(&p->arena, s->n_columns, sizeof *p->field, &p->field));
    HKI_TRY(hki_arena_alloc(&p->arena, s->n_columns, sizeof *p->leaf_field,
                            &p->leaf_field));
    HKI_TRY(
        hki_arena_alloc(&p->arena, spec->count, sizeof *p->label, &p->label));
    for (size_t i = 0; i < s->n_columns; i++) {
        const hk_column *const c = s->column[i];
        if (s->needed[i] && c->key != NULL)
            HKI_TRY(bind_key(p, spec, c));
        if (s->needed[i] && c->kind == HKI_COLUMN_CROSSED)
            HKI_TRY(bind_leaves(p, spec, c));
    }
    for (size_t v = 0; v < spec->count; v++)
        if (spec->values[v].role == HK_LABEL)
            p->label[p->n_labels++] = v;
    return HK_OK;
}

// ---- the spec of what comes out -------------------------------------------

// [values], or [rows, values] of a batch.
static hk_shape out_shape(const hki_feature_plan *p, int64_t rows,
                          int64_t values) {
    const int64_t dims[2] = {rows, values};
    return p->batched ? hk_shape_make(2, dims) : hk_shape_make(1, &dims[1]);
}

static hk_value spec_of_out(const hki_feature_plan *p, const hki_out *o,
                            int64_t rows) {
    const int64_t values = o->ids->values;
    return (hk_value){.name = o->name,
                      .role = HK_FEATURE,
                      .form = values == 0 && p->batched ? HK_RAGGED_FORM
                                                        : HK_DENSE_FORM,
                      .dtype = o->kind == HKI_OUT_IDS ? HK_I64 : HK_F32,
                      .shape = out_shape(p, rows, values == 0 ? -1 : values)};
}

// Appends to out; returns how many.
static size_t make_spec(const hki_feature_plan *p, const hk_element *in,
                        hk_value *out) {
    const hk_feature_set *const s = p->set;
    const int64_t rows = p->batched ? in->values[p->value[0]].shape.dim[0] : 1;
    size_t n = 0;
    if (s->n_dense > 0)
        out[n++] = (hk_value){.name = HK_FEATURES_DENSE,
                              .role = HK_FEATURE,
                              .form = HK_DENSE_FORM,
                              .dtype = HK_F32,
                              .shape = out_shape(p, rows, s->n_dense)};
    for (size_t i = 0; i < s->n_outs; i++)
        out[n++] = spec_of_out(p, &s->out[i], rows);
    for (size_t i = 0; i < p->n_labels; i++)
        out[n++] = in->values[p->label[i]];
    return n;
}

// ---- memory of a thread ---------------------------------------------------

static void close_scratch(void *scratch) {
    hki_plan_scratch *const w = scratch;
    if (w == NULL)
        return;
    for (size_t f = 0; f < w->n_fields; f++) {
        if (w->cells_scratch != NULL)
            hki_cells_deinit(&w->cells_scratch[f]);
        if (w->raw != NULL)
            hki_ids_deinit(&w->raw[f]);
    }
    for (size_t i = 0; i < w->n_columns && w->ids != NULL; i++)
        hki_ids_deinit(&w->ids[i]);
    hki_free(w->cells);
    hki_free(w->cells_scratch);
    hki_free(w->ids);
    hki_free(w->raw);
    hki_free(w->has_raw);
    hki_free(w->leaf);
    hki_free(w);
}

static hk_status fill_scratch(const hki_feature_plan *p, hki_plan_scratch *w) {
    size_t max_leaves = 0;
    w->n_fields = p->n_fields;
    w->n_columns = p->set->n_columns;
    for (size_t i = 0; i < w->n_columns; i++)
        max_leaves = HKI_MAX(max_leaves, p->set->column[i]->n_leaves);
    HKI_TRY(hki_zalloc_array(w->n_fields, sizeof *w->cells, &w->cells));
    HKI_TRY(hki_zalloc_array(w->n_fields, sizeof *w->cells_scratch,
                             &w->cells_scratch));
    HKI_TRY(hki_zalloc_array(w->n_fields, sizeof *w->raw, &w->raw));
    HKI_TRY(hki_zalloc_array(w->n_fields, sizeof *w->has_raw, &w->has_raw));
    HKI_TRY(hki_zalloc_array(w->n_columns, sizeof *w->ids, &w->ids));
    return hki_zalloc_array(max_leaves, sizeof *w->leaf, &w->leaf);
}

static hk_status open_scratch(const void *config, void **out) {
    hki_plan_scratch *w;
    HKI_TRY(hki_zalloc_array(1, sizeof *w, &w));
    HKI_TRY_OR(fill_scratch(config, w), close_scratch(w));
    *out = w;
    return HK_OK;
}

// ---- running --------------------------------------------------------------

static hk_status open_cells(const hki_feature_plan *p, const hk_element *in,
                            hki_plan_scratch *w) {
    for (size_t f = 0; f < p->n_fields; f++) {
        const hk_value *const v = &in->values[p->value[f]];
        HKI_TRY(
            hki_cells_open(v, p->batched, &w->cells_scratch[f], &w->cells[f]));
        w->has_raw[f] = false;
        if (f == 0)
            w->rows = w->cells[0].rows;
        if (w->cells[f].rows != w->rows)
            return hki_fail(
                HK_E_SHAPE,
                "features: \"%s\" has %lld rows, but \"%s\" has %lld",
                p->key[f], (long long)w->cells[f].rows, p->key[0],
                (long long)w->rows);
    }
    return HK_OK;
}

static hk_status cross(const hki_feature_plan *p, const hk_column *c,
                       hki_plan_scratch *w) {
    for (size_t i = 0; i < c->n_leaves; i++) {
        const size_t f = p->leaf_field[c->index][i];
        if (f == NO_FIELD) {
            w->leaf[i] = &w->ids[c->leaf[i].column->index];
            continue;
        }
        if (!w->has_raw[f])
            HKI_TRY(hki_ids_raw(&w->cells[f], &w->raw[f]));
        w->has_raw[f] = true;
        w->leaf[i] = &w->raw[f];
    }
    return hki_ids_crossed(c, w->leaf, w->rows, &w->ids[c->index]);
}

static hk_status evaluate(const hki_feature_plan *p, const hk_column *c,
                          hki_plan_scratch *w) {
    hki_ids *const ids = &w->ids[c->index];
    switch (c->kind) {
    case HKI_COLUMN_HASH:
    case HKI_COLUMN_VOCABULARY:
    case HKI_COLUMN_IDENTITY:
        return hki_ids_of_cells(c, &w->cells[p->field[c->index]], ids);
    case HKI_COLUMN_BUCKETIZED:
        return hki_ids_of_numbers(c, &w->cells[p->field[c->source->index]],
                                  ids);
    case HKI_COLUMN_CROSSED:
        return cross(p, c, w);
    case HKI_COLUMN_WEIGHTED:
        return hki_weights_check(c, &w->cells[p->field[c->source->index]],
                                 &w->cells[p->field[c->index]]);
    case HKI_COLUMN_NUMERIC:
    case HKI_COLUMN_INDICATOR:
    case HKI_COLUMN_EMBEDDING:
        break; // written straight to the output, or by the model
    }
    return HK_OK;
}

static hk_status emit(const hki_feature_plan *p, const hki_plan_scratch *w,
                      const hki_out *o, hki_fn_call *call, size_t k) {
    const hki_ids *const ids = &w->ids[o->ids->index];
    const hki_cells *const weights =
        o->weighted != NULL ? &w->cells[p->field[o->weighted->index]] : NULL;
    const int64_t n = ids->splits[w->rows];
    void *data = NULL;
    int64_t *splits = NULL;
    if (o->ids->values == 0 && p->batched) {
        const hk_shape shape = hk_shape_make(1, &n);
        HKI_TRY(hki_rows_ragged(call->out, k, call->row, &shape, w->rows + 1,
                                &data, &splits));
    } else {
        const hk_shape shape =
            out_shape(p, w->rows, o->ids->values == 0 ? n : o->ids->values);
        HKI_TRY(hki_rows_tensor(call->out, k, call->row, &shape, &data));
    }
    return hki_emit_rows(o, ids, weights, w->rows, data, splits);
}

static hk_status apply(const void *config, void *scratch, hki_fn_call *call) {
    const hki_feature_plan *const p = config;
    const hk_feature_set *const s = p->set;
    hki_plan_scratch *const w = scratch;
    size_t k = 0;
    HKI_TRY(open_cells(p, call->in, w));
    for (size_t i = 0; i < s->n_columns; i++)
        if (s->needed[i])
            HKI_TRY(evaluate(p, s->column[i], w));
    if (s->n_dense > 0) {
        void *dense = NULL;
        const hk_shape shape = out_shape(p, w->rows, s->n_dense);
        HKI_TRY(hki_rows_tensor(call->out, k++, call->row, &shape, &dense));
        HKI_TRY(hki_emit_dense(p, w, dense));
    }
    for (size_t i = 0; i < s->n_outs; i++)
        HKI_TRY(emit(p, w, &s->out[i], call, k++));
    for (size_t i = 0; i < p->n_labels; i++)
        HKI_TRY(hki_rows_copy(call->out, k++, call->row,
                              &call->in->values[p->label[i]]));
    return HK_OK;
}

// ---- the dataset ----------------------------------------------------------

static void destroy(void *config) {
    hki_feature_plan *const p = config;
    if (p == NULL)
        return;
    hk_feature_set_release(p->set);
    hki_arena_deinit(&p->arena);
    hki_free(p);
}

static const hki_fn_ops features_fn = {.name = "features",
                                       .destroy = destroy,
                                       .scratch_open = open_scratch,
                                       .scratch_close = close_scratch,
                                       .apply = apply};

static const hk_features_options features_defaults = {
    .struct_size = sizeof(hk_features_options), .parallel = 1};

HKI_OPTIONS_FROM(hk_features_options, parallel, features_defaults)

static hk_status make_plan(hki_dataset_desc *desc, const hk_dataset *d,
                           hk_feature_set *s, const hk_features_options *opt) {
    hk_features_options o = features_defaults;
    hk_feature_set_info info;
    hki_feature_plan *p;
    hk_value *spec;
    HKI_TRY(hki_options_copy(&o, sizeof o, opt, "features options"));
    HKI_TRY(hk_feature_set_get_info(s, &info)); // it is finished
    HKI_TRY(hki_desc_config(desc, sizeof *p, &p));
    p->set = hk_feature_set_retain(s);
    p->batched = o.batched != 0;
    HKI_TRY(bind(p, &d->spec));
    HKI_TRY(hki_desc_spec(desc, 1 + s->n_outs + p->n_labels, &spec));
    desc->n_spec = make_spec(p, &d->spec, spec);
    desc->key = s->fingerprint ^ (o.batched != 0);
    desc->parallel = o.parallel;
    return HK_OK;
}

hk_dataset *hk_data_features(hk_dataset *d, hk_feature_set *s,
                             const hk_features_options *opt) {
    hki_dataset_desc desc = {.fn = &features_fn, .inputs = &d, .n_inputs = 1};
    return hki_dataset_good(d)
               ? hki_dataset_finish(&desc, make_plan(&desc, d, s, opt))
               : d;
}
