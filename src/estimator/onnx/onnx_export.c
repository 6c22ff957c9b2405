// onnx_export.c - an estimator's model of HK_PREDICT as an ONNX file: what
// comes before the graph, the graph with its weights, and the predictions.
#include <errno.h>
#include "base/io.h"
#include "data/data.h"
#include "estimator/estimator.h"
#include "estimator/onnx/onnx_graph.h"
#include "estimator/saved/written_files.h"
#include "estimator/saved/snapshot.h"

HKI_OPTIONS(hk_onnx_options, raw)

typedef struct exporting {
    hk_estimator *e;
    hk_onnx_options opt;
    hk_raw_inputs raw;
    hk_spec *spec;
    hk_plan *plan;
    hki_weights weights;
    hki_onnx o;
    hki_onnx_walk walk;
} exporting;

// ---- before the graph -------------------------------------------------------

static const char *channels(hki_onnx *o, const float *values, size_t n) {
    return hki_onnx_tensor(o, NULL, HK_F32,
                           hk_shape_make(1, (int64_t[]){(int64_t)n}), values);
}

// (x * scale - mean) / std
static hk_status scale_input(exporting *x) {
    const hk_scaling *const k = x->raw.scaling;
    hki_onnx *const o = &x->o;
    for (size_t i = 0; i < x->spec->inputs.n; i++) {
        const hk_value *const v = &x->spec->inputs.data[i].value;
        if (strcmp(v->name, k->feature) != 0)
            continue;
        const char *y = hki_onnx_input(o, v->name, k->dtype, v->shape);
        y = hki_onnx_cast(o, y, HK_F32);
        y = HKI_ONNX(o, "Mul", y, hki_onnx_scalar(o, HK_F32, k->scale));
        if (k->mean != NULL)
            y = HKI_ONNX(o, "Sub", y, channels(o, k->mean, k->channels));
        if (k->std != NULL)
            y = HKI_ONNX(o, "Div", y, channels(o, k->std, k->channels));
        hki_onnx_give(o, v->name, y);
    }
    return o->status;
}

// ---- behind it --------------------------------------------------------------

static bool scalar_now(void *user, const char *name, double *value) {
    return hk_estimator_get(user, name, value) == HK_OK;
}

static const hk_node *prediction(const exporting *x, const char *name) {
    char output[512];
    snprintf(output, sizeof output, HKI_OUT_PREDICTION "%s", name);
    return hki_graph_output(x->spec->g, output);
}

static hk_status translate(exporting *x) {
    const hki_names *const list = &x->spec->predictions;
    const char **outputs;
    HKI_SCOPED(hki_arena_deinit) hki_arena arena = {0};
    HKI_TRY(hki_arena_alloc(&arena, list->n, sizeof *outputs, &outputs));
    for (size_t i = 0; i < list->n; i++)
        HKI_TRY(hki_arena_printf(&arena, &outputs[i], HKI_OUT_PREDICTION "%s",
                                 list->data[i]));
    return hki_onnx_translate(&x->walk, outputs, list->n);
}

// The class's name by its number.
static hk_status name_classes(exporting *x, const hk_node *ids) {
    const size_t n = x->raw.n_classes;
    HKI_FREED int64_t *numbers = NULL;
    HKI_FREED size_t *sizes = NULL;
    HKI_TRY(hki_alloc_array(n, sizeof *numbers, &numbers));
    HKI_TRY(hki_alloc_array(n, sizeof *sizes, &sizes));
    for (size_t i = 0; i < n; i++) {
        numbers[i] = (int64_t)i;
        sizes[i] = strlen(x->raw.classes[i]);
    }
    const hki_onnx_call c = {
        .op = "ml.LabelEncoder",
        HKI_ONNX_IN(hki_onnx_value(&x->walk, ids)),
        HKI_ONNX_ATTR(HKI_ONNX_LIST("keys_int64s", numbers, n),
                      {.name = "values_strings",
                       .type = HKI_ONNX_STRINGS,
                       .strings = x->raw.classes,
                       .sizes = sizes,
                       .n = n})};
    hki_onnx_output(&x->o, "class_name", hki_onnx_node(&x->o, &c), HK_STRING,
                    ids->shape);
    return x->o.status;
}

static hk_status put_outputs(exporting *x) {
    const hki_names *const list = &x->spec->predictions;
    const hk_node *ids = NULL;
    for (size_t i = 0; i < list->n; i++) {
        const hk_node *const y = prediction(x, list->data[i]);
        hki_onnx_output(&x->o, list->data[i], hki_onnx_value(&x->walk, y),
                        y->dtype, y->shape);
        if (strcmp(list->data[i], "class_ids") == 0 ||
            strcmp(list->data[i], "class") == 0)
            ids = y;
    }
    if (ids != NULL && x->raw.n_classes > 0)
        return name_classes(x, ids);
    return x->o.status;
}

static void put_notes(exporting *x) {
    char step[32];
    snprintf(step, sizeof step, "%lld", (long long)x->weights.step);
    hki_onnx_note(&x->o, "hooke.global_step", step);
    hki_onnx_note(&x->o, "hooke.weights", x->weights.sets.data[0].name);
}

// ---- the file ---------------------------------------------------------------

// s, or the writer's first failure, whose message it has kept.
static hk_status told(const exporting *x, hk_status s) {
    return x->o.status != HK_OK ? hki_fail(x->o.status, "%s", x->o.error) : s;
}

static hk_status build(exporting *x, const hk_source *input) {
    float *values;
    HKI_TRY(hki_export_plan(x->e, input, &x->spec, &x->plan));
    const hki_weights_ask ask = {.which = x->opt.weights,
                                 .worker = x->opt.worker,
                                 .checkpoint = x->opt.checkpoint_path,
                                 .plan = x->plan};
    HKI_TRY(hki_weights_get(x->e, &ask, &x->weights));
    HKI_TRY(hki_weights_single(&x->weights, &values));
    x->walk = (hki_onnx_walk){.o = &x->o,
                              .g = x->spec->g,
                              .layout = hk_plan_layout(x->plan),
                              .x = values,
                              .scalar = scalar_now,
                              .user = x->e};
    if (x->raw.features != NULL)
        HKI_TRY(hki_features_onnx(x->raw.features, x->raw.values, x->raw.dates,
                                  x->raw.n_dates, &x->o));
    if (x->raw.scaling != NULL)
        HKI_TRY(told(x, scale_input(x)));
    HKI_TRY(translate(x));
    HKI_TRY(told(x, put_outputs(x)));
    put_notes(x);
    return HK_OK;
}

static hk_status write_model(exporting *x, const char *path) {
    HKI_SCOPED(hki_buf_deinit) hki_buf bytes = {0};
    HKI_SCOPED(hki_buf_deinit) hki_buf temp = {0};
    HKI_TRY(hki_onnx_finish(&x->o, "model", &bytes));
    HKI_TRY(hki_buf_printf(&temp, "%s.temp", path));
    HKI_TRY(hki_write_file(temp.data, &bytes));
    return hki_io()->rename(temp.data, path) == 0
               ? HK_OK
               : hki_io_fail(errno, path, "rename to");
}

hk_status hk_estimator_export_onnx(hk_estimator *e, const hk_source *input,
                                   const char *path,
                                   const hk_onnx_options *opt) {
    if (e == NULL || path == NULL || path[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG, "onnx: estimator or path is missing");
    exporting x = {.e = e};
    HKI_TRY(HKI_OPTIONS_GET(hk_onnx_options, &x.opt, opt, "onnx options"));
    if (x.opt.raw != NULL)
        x.raw = *x.opt.raw;
    hk_status s = build(&x, input);
    if (s == HK_OK)
        s = write_model(&x, path);
    hki_onnx_walk_deinit(&x.walk);
    hki_onnx_deinit(&x.o);
    hk_plan_release(x.plan);
    hki_weights_deinit(&x.weights);
    return s;
}
