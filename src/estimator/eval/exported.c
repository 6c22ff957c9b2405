// exported.c - predictions from an export: the graph is that of model.json, the
// weights are the export's file.
#include "codec/codec.h"
#include "base/io.h"
#include "data/data.h"
#include "estimator/saved/model_file.h"

enum {
    BATCH = 500 // examples at once
};

struct hk_exported {
    hki_arena arena; // inputs, classes, scaling
    json_t *model;
    hk_feature_set *features; // NULL: none
    hk_estimator *e;
    const char *weights, *tag;
    hk_element inputs;
    hk_scaling scaling; // feature NULL: none
    const char **classes;
    size_t n_classes;
    hk_date_column *dates;
    size_t n_dates;
};

void hk_exported_close(hk_exported *x) {
    if (x == NULL)
        return;
    hk_estimator_destroy(x->e);
    hk_feature_set_release(x->features);
    json_decref(x->model);
    hki_arena_deinit(&x->arena);
    hki_free(x);
}

const hk_element *hk_exported_inputs(const hk_exported *x) {
    return &x->inputs;
}

const char *hk_exported_class(const hk_exported *x, int64_t i) {
    return i >= 0 && (uint64_t)i < x->n_classes ? x->classes[i] : NULL;
}

// ---- what the file says -----------------------------------------------------

static hk_status read_inputs(hk_exported *x) {
    const json_t *const list = json_object_get(x->model, "inputs");
    const size_t n = json_array_size(list);
    hk_value *values;
    HKI_TRY(hki_arena_alloc(&x->arena, n, sizeof *values, &values));
    for (size_t i = 0; i < n; i++)
        HKI_TRY(
            hki_model_value(&x->arena, json_array_get(list, i), &values[i]));
    x->inputs = (hk_element){.count = n, .values = values};
    return HK_OK;
}

static hk_status read_classes(hk_exported *x) {
    const json_t *const list = json_object_get(x->model, "classes");
    const size_t n = json_array_size(list);
    HKI_TRY(hki_arena_alloc(&x->arena, n, sizeof *x->classes, &x->classes));
    for (size_t i = 0; i < n; i++) {
        const char *const text = json_string_value(json_array_get(list, i));
        if (text == NULL)
            return hki_fail(HK_E_DATA, "model file: class %zu has no name", i);
        HKI_TRY(hki_arena_strdup(&x->arena, text, &x->classes[i]));
    }
    x->n_classes = n;
    return HK_OK;
}

static hk_status read_dates(hk_exported *x) {
    const json_t *const list = json_object_get(x->model, "dates");
    const size_t n = json_array_size(list);
    HKI_TRY(hki_arena_alloc(&x->arena, n, sizeof *x->dates, &x->dates));
    for (size_t i = 0; i < n; i++) {
        const json_t *const o = json_array_get(list, i);
        const json_t *const order = json_object_get(o, "order");
        const char *const name = json_string_value(json_object_get(o, "name"));
        const int64_t v =
            json_is_integer(order) ? json_integer_value(order) : -1;
        if (name == NULL || v < 0 || v >= HK_DATE_ORDERS)
            return hki_fail(HK_E_DATA,
                            "model file: date %zu has no name or no order", i);
        x->dates[i].order = (hk_date_order)v;
        HKI_TRY(hki_arena_strdup(&x->arena, name, &x->dates[i].name));
    }
    x->n_dates = n;
    return HK_OK;
}

static hk_status read_floats(hk_exported *x, const json_t *list,
                             const float **out, size_t *n) {
    float *v;
    if (list == NULL)
        return HK_OK;
    if (*n != 0 && json_array_size(list) != *n)
        return hki_fail(HK_E_DATA,
                        "model file: mean and std have different lengths");
    *n = json_array_size(list);
    HKI_TRY(hki_arena_alloc(&x->arena, *n, sizeof *v, &v));
    for (size_t i = 0; i < *n; i++) {
        double d;
        HKI_TRY(hki_model_real(json_array_get(list, i), "scaling", &d));
        v[i] = (float)d;
    }
    *out = v;
    return HK_OK;
}

static hk_status read_scaling(hk_exported *x) {
    const json_t *const o = json_object_get(x->model, "scaling");
    hk_scaling *const k = &x->scaling;
    if (o == NULL)
        return HK_OK;
    const char *const name = json_string_value(json_object_get(o, "feature"));
    if (name == NULL)
        return hki_fail(HK_E_DATA,
                        "model file: the scaling does not name its feature");
    HKI_TRY(hki_model_real(json_object_get(o, "scale"), "scale", &k->scale));
    HKI_TRY(read_floats(x, json_object_get(o, "mean"), &k->mean, &k->channels));
    HKI_TRY(read_floats(x, json_object_get(o, "std"), &k->std, &k->channels));
    if (k->channels == 0)
        k->channels = 1;
    return hki_arena_strdup(&x->arena, name, &k->feature);
}

// ---- files ------------------------------------------------------------------

static hk_status path_in(hk_exported *x, const char *folder, const char *name,
                         const char **out) {
    return hki_arena_printf(&x->arena, out, "%s/%s", folder, name);
}

static hk_status read_model(hk_exported *x, const char *folder) {
    const char *path;
    HKI_FREED uint8_t *text = NULL;
    size_t size;
    HKI_TRY(path_in(x, folder, "model.json", &path));
    HKI_TRY(hki_file_read_all(path, HKI_MODEL_LIMIT, &text, &size));
    HKI_TRY(hki_model_parse(text, size, path, &x->model));
    // Graphs are cached by this: equal files are equal models.
    HKI_TRY(hki_arena_printf(&x->arena, &x->tag, "exported:%08x:%zu",
                             hki_crc32c(0, text, size), size));
    HKI_TRY(read_inputs(x));
    HKI_TRY(read_classes(x));
    HKI_TRY(read_dates(x));
    return read_scaling(x);
}

static hk_status read_features(hk_exported *x, const char *folder) {
    const char *path;
    HKI_FREED uint8_t *text = NULL;
    size_t size;
    HKI_TRY(path_in(x, folder, "features.json", &path));
    if (!hki_path_exists(path))
        return HK_OK;
    HKI_TRY(hki_file_read_all(path, HKI_MODEL_LIMIT, &text, &size));
    return hk_feature_set_restore(text, size, &x->features);
}

static hk_status find_weights(hk_exported *x, const char *folder) {
    static const char *const names[] = {"model.safetensors", "model.npz"};
    for (size_t i = 0; i < HKI_COUNT(names); i++) {
        HKI_TRY(path_in(x, folder, names[i], &x->weights));
        if (hki_path_exists(x->weights))
            return HK_OK;
    }
    return hki_fail(HK_E_NOT_FOUND,
                    "%s: has neither model.safetensors nor model.npz", folder);
}

// ---- open -------------------------------------------------------------------

static hk_status model_fn(hk_graph *g, hk_mode mode, hk_spec *m) {
    const hk_exported *const x = hk_spec_user(m);
    if (mode != HK_PREDICT)
        return hki_fail(HK_E_UNSUPPORTED, "an exported model can only predict");
    return hki_model_build(g, m, x->model);
}

static hk_status open_all(hk_exported *x, hk_context *ctx, const char *folder) {
    HKI_TRY(read_model(x, folder));
    HKI_TRY(read_features(x, folder));
    HKI_TRY(find_weights(x, folder));
    hk_estimator_options o;
    hk_estimator_options_init(&o, sizeof o);
    o.model_fn = model_fn;
    o.user = x;
    o.tag = x->tag;
    return hk_estimator_create(ctx, &o, &x->e);
}

hk_status hk_exported_open(hk_context *ctx, const char *folder,
                           hk_exported **out) {
    if (ctx == NULL || folder == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "exported: NULL argument");
    hk_exported *x;
    HKI_TRY(hki_zalloc_array(1, sizeof *x, &x));
    const hk_status s = open_all(x, ctx, folder);
    const hki_fault fault = hki_fault_of(s);
    if (s == HK_OK)
        *out = x;
    else
        hk_exported_close(x);
    return hki_fault_raise(&fault);
}

// ---- predict ----------------------------------------------------------------

static hk_dataset *prepared(const hk_exported *x, hk_dataset *d) {
    const hk_scaling *const k = &x->scaling;
    if (k->feature != NULL)
        d = hk_data_normalize(d, k->feature, k->scale, k->mean, k->std,
                              k->channels);
    d = hk_data_dates(d, x->dates, x->n_dates);
    d = hk_data_batch(d, BATCH, 0);
    if (x->features == NULL)
        return d;
    hk_features_options o;
    hk_features_options_init(&o, sizeof o);
    o.batched = 1;
    return hk_data_features(d, x->features, &o);
}

hk_status hk_exported_predict(hk_exported *x, hk_dataset *d,
                              hk_predictor **out) {
    if (x == NULL || out == NULL) {
        hk_dataset_release(d);
        return hki_fail(HK_E_INVALID_ARG, "exported: NULL argument");
    }
    d = prepared(x, d);
    hk_status s = hk_dataset_status(d);
    if (s == HK_OK) {
        const hk_source in = hk_source_dataset(d);
        hk_predict_options o;
        hk_predict_options_init(&o, sizeof o);
        o.checkpoint_path = x->weights;
        s = hk_estimator_predict(x->e, &in, &o, out);
    }
    hk_dataset_release(d);
    return s;
}
