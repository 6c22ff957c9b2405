// export.c - a folder with weights and signature, for whoever serves the
// model.
//
//     <base>/<unix seconds>/model.safetensors   or model.npz, or
//                                               variables/variables.*
//                           signature.json
//                           model.json        the graph
//                           features.json     with feature columns
//                           assets.extra/
#include "codec/codec.h" // before base.h
#include <errno.h>
#include "base/io.h"
#include "estimator/estimator.h"
#include "estimator/saved/written_files.h"
#include "estimator/saved/model_file.h"
#include "estimator/saved/snapshot.h"

HKI_OPTIONS(hk_export_options, raw, .format = HK_CKPT_SAFETENSORS)

typedef struct exporting {
    hk_estimator *e;
    hk_export_options o;
    hk_spec *spec;
    hk_plan *plan;
    hki_weights weights;
    char *folder; // final name
    hki_buf temp; // name until it is complete
} exporting;

// ---- signature --------------------------------------------------------------

static hk_status write_shape(hki_buf *b, const hk_shape *s) {
    HKI_TRY(hki_buf_printf(b, "["));
    for (int i = 0; i < s->rank; i++)
        HKI_TRY(hki_buf_printf(b, "%s%lld", i > 0 ? ", " : "",
                               (long long)s->dim[i]));
    return hki_buf_printf(b, "]");
}

static hk_status write_tensor(hki_buf *b, bool first, const char *name,
                              hk_dtype t, const hk_shape *shape) {
    HKI_TRY(hki_buf_printf(b, "%s\n      ", first ? "" : ","));
    HKI_TRY(hki_quote(b, name));
    HKI_TRY(hki_buf_printf(
        b, ": {\"dtype\": \"%s\", \"shape\": ", hk_dtype_name(t)));
    HKI_TRY(write_shape(b, shape));
    return hki_buf_printf(b, "}");
}

// Shapes of predictions come from the plan for one example, whose first
// dimension stands for the batch.
static hk_status write_outputs(const exporting *x, hki_buf *b,
                               const char *const *names, size_t n) {
    HKI_SCOPED(hk_session_destroy_at) hk_session *s = NULL;
    HKI_TRY(hk_session_create(x->plan, NULL, &s));
    for (size_t i = 0; i < n; i++) {
        char output[512];
        hk_tensor *t;
        snprintf(output, sizeof output, HKI_OUT_PREDICTION "%s", names[i]);
        HKI_TRY(hk_session_output(s, output, &t));
        hk_shape shape = hk_tensor_shape(t);
        shape.dim[0] = HK_BATCH;
        HKI_TRY(write_tensor(b, i == 0, names[i], hk_tensor_dtype(t), &shape));
    }
    return HK_OK;
}

static hk_status write_signature_of(const exporting *x, hki_buf *b, bool first,
                                    const char *name,
                                    const char *const *outputs, size_t n) {
    const hk_spec *const m = x->spec;
    HKI_TRY(hki_buf_printf(b, "%s\n    ", first ? "" : ","));
    HKI_TRY(hki_quote(b, name));
    HKI_TRY(hki_buf_printf(b, ": {\n     \"inputs\": {"));
    for (size_t i = 0; i < m->inputs.n; i++) {
        const hk_value *const v = &m->inputs.data[i].value;
        HKI_TRY(write_tensor(b, i == 0, v->name, v->dtype, &v->shape));
    }
    HKI_TRY(hki_buf_printf(b, "},\n     \"outputs\": {"));
    HKI_TRY(write_outputs(x, b, outputs, n));
    return hki_buf_printf(b, "}}");
}

// A single signature also serves under the default's name.
static hk_status write_signatures(const exporting *x, hki_buf *b) {
    const hk_spec *const m = x->spec;
    static const char dflt[] = "serving_default";
    HKI_TRY(hki_buf_printf(b,
                           "{\n  \"hooke\": \"%s\",\n  \"global_step\": "
                           "%lld,\n  \"weights\": \"%s\",\n  "
                           "\"signatures\": {",
                           hk_version(), (long long)x->weights.step,
                           x->weights.sets.data[0].name));
    if (m->exports.n == 0)
        HKI_TRY(write_signature_of(x, b, true, dflt, m->predictions.data,
                                   m->predictions.n));
    for (size_t i = 0; i < m->exports.n; i++) {
        const hki_spec_export *const k = &m->exports.data[i];
        HKI_TRY(write_signature_of(x, b, i == 0, k->signature, k->predictions,
                                   k->n));
    }
    if (m->exports.n == 1 && strcmp(m->exports.data[0].signature, dflt) != 0)
        HKI_TRY(write_signature_of(x, b, false, dflt,
                                   m->exports.data[0].predictions,
                                   m->exports.data[0].n));
    return hki_buf_printf(b, "}\n}\n");
}

// ---- files ------------------------------------------------------------------

static hk_status path_in(const exporting *x, const char *name, hki_buf *out) {
    out->size = 0;
    return hki_buf_printf(out, "%s/%s", x->temp.data, name);
}

static hk_status write_weights(const exporting *x) {
    const hk_layout *const l = hk_plan_layout(x->plan);
    hk_write_options o;
    hk_write_options_init(&o, sizeof o);
    o.format = x->o.format;
    o.rename = x->o.rename;
    o.n_rename = x->o.n_rename;
    HKI_SCOPED(hki_buf_deinit) hki_buf path = {0};
    HKI_SCOPED(hk_name_map_destroy_at) hk_name_map *map = NULL;
    HKI_TRY(hk_name_map_create(&map));
    if (x->o.format == HK_CKPT_TF) {
        HKI_TRY(path_in(x, "variables", &path));
        HKI_TRY(hki_folder_make(path.data));
    }
    HKI_TRY(path_in(x,
                    x->o.format == HK_CKPT_TF    ? "variables/variables"
                    : x->o.format == HK_CKPT_NPZ ? "model.npz"
                                                 : "model.safetensors",
                    &path));
    HKI_TRY(hk_name_map_add_layout(map, l, x->weights.sets.data[0].x, NULL));
    int64_t step = x->weights.step;
    if (x->o.format == HK_CKPT_TF)
        HKI_TRY(hki_names_add(map, HK_I64, HKI_SCALAR, &step, HKI_TF_STEP));
    return hk_ckpt_write(path.data, map, &o);
}

static hk_status write_text(const exporting *x, const char *name,
                            const hki_buf *text) {
    HKI_SCOPED(hki_buf_deinit) hki_buf path = {0};
    HKI_TRY(path_in(x, name, &path));
    return hki_write_file(path.data, text);
}

static hk_status write_signature(const exporting *x) {
    HKI_SCOPED(hki_buf_deinit) hki_buf text = {0};
    HKI_TRY(write_signatures(x, &text));
    return write_text(x, "signature.json", &text);
}

static hk_status write_features(const exporting *x) {
    hk_feature_set *const f = x->o.raw != NULL ? x->o.raw->features : NULL;
    HKI_SCOPED(hki_buf_deinit) hki_buf text = {0};
    size_t size = 0;
    if (f == NULL)
        return HK_OK;
    HKI_TRY(hk_feature_set_save(f, NULL, 0, &size));
    HKI_TRY(hki_buf_reserve(&text, size));
    HKI_TRY(hk_feature_set_save(f, text.data, size, &text.size));
    return write_text(x, "features.json", &text);
}

// A graph that cannot be written is left out: the weights are of use without.
static hk_status write_model(const exporting *x) {
    HKI_SCOPED(hki_buf_deinit) hki_buf text = {0};
    hk_status s = hki_model_write(x->spec, x->o.raw, &text);
    if (s == HK_E_UNSUPPORTED)
        hki_log(x->e->ctx, HK_LOG_WARNING, "%s; model.json was not written",
                hk_last_error());
    else if (s == HK_OK)
        s = write_text(x, "model.json", &text);
    if (s == HK_OK)
        s = write_features(x);
    return s == HK_E_UNSUPPORTED ? HK_OK : s;
}

static hk_status write_assets(const exporting *x) {
    HKI_SCOPED(hki_buf_deinit) hki_buf path = {0};
    if (x->o.n_assets == 0)
        return HK_OK;
    HKI_TRY(path_in(x, "assets.extra", &path));
    HKI_TRY(hki_folder_make(path.data));
    for (size_t i = 0; i < x->o.n_assets; i++) {
        path.size = 0;
        HKI_TRY(hki_buf_printf(&path, "%s/assets.extra/%s", x->temp.data,
                               hki_path_name(x->o.assets_extra[i])));
        HKI_TRY(hki_file_copy(x->o.assets_extra[i], path.data, false, false));
    }
    return HK_OK;
}

// ---- the folder -------------------------------------------------------------

// Unix seconds; a second export within one second takes the next number.
static hk_status choose_folder(exporting *x, const char *base) {
    const int64_t now = (int64_t)hki_wall_seconds();
    HKI_TRY(hki_folder_make(base));
    for (int64_t i = 0; i < 1000; i++) {
        hki_buf name = {0};
        HKI_TRY(hki_buf_printf(&name, "%s/%010lld", base, (long long)now + i));
        if (!hki_path_exists(name.data)) {
            x->folder = name.data;
            return hki_buf_printf(&x->temp, "%s/temp-%010lld", base,
                                  (long long)now + i);
        }
        hki_buf_deinit(&name);
    }
    return hki_fail(
        HK_E_EXISTS,
        "export: %s has too many folders of the current time; try again", base);
}

static hk_status fill_folder(exporting *x) {
    HKI_TRY(hki_remove_tree(x->temp.data)); // of a crash
    HKI_TRY(hki_folder_make(x->temp.data));
    HKI_TRY(write_weights(x));
    HKI_TRY(write_signature(x));
    HKI_TRY(write_model(x));
    HKI_TRY(write_assets(x));
    if (hki_io()->rename(x->temp.data, x->folder) != 0)
        return hki_io_fail(errno, x->folder, "rename to");
    return hki_sync_folder(x->folder);
}

hk_status hki_export_plan(hk_estimator *e, const hk_source *input,
                          hk_spec **spec, hk_plan **plan) {
    if (input != NULL) {
        hk_source in;
        hk_dataset *d;
        HKI_TRY(hki_source_check(input, &in));
        HKI_TRY(hki_source_open(e, &in, HK_PREDICT, 0, 1, 0, NULL, &d));
        const hk_status s = hki_note_features(e, hk_dataset_spec(d));
        hk_dataset_release(d);
        HKI_TRY(s);
    }
    if (e->features.count == 0)
        return hki_fail(HK_E_STATE, "export: the shapes of the features are "
                                    "unknown; train first, or give an input");
    HKI_TRY(hki_spec_get(e, HK_PREDICT, &e->features, spec));
    return hki_engine_plan(e, *spec, 1, (hki_engine_share){.exact = 1}, plan);
}

static hk_status export(exporting *x, const hk_source *input,
                        const char *base) {
    float *values;
    HKI_TRY(hki_export_plan(x->e, input, &x->spec, &x->plan));
    const hki_weights_ask ask = {.which = x->o.weights,
                                 .worker = x->o.worker,
                                 .checkpoint = x->o.checkpoint_path,
                                 .plan = x->plan};
    HKI_TRY(hki_weights_get(x->e, &ask, &x->weights));
    HKI_TRY(hki_weights_single(&x->weights, &values));
    HKI_TRY(choose_folder(x, base));
    const hk_status s = fill_folder(x);
    if (s == HK_OK)
        return HK_OK;
    const hki_fault fault = hki_fault_of(s);
    (void)hki_remove_tree(x->temp.data);
    return hki_fail(s, "export to %s: %s", base, fault.text);
}

hk_status hk_estimator_export(hk_estimator *e, const hk_source *input,
                              const char *base, const hk_export_options *opt,
                              const char **path) {
    if (e == NULL || base == NULL || base[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG,
                        "export: estimator or folder is missing");
    exporting x = {.e = e};
    HKI_TRY(HKI_OPTIONS_GET(hk_export_options, &x.o, opt, "export options"));
    if (x.o.format == HK_CKPT_AUTO)
        x.o.format = HK_CKPT_SAFETENSORS;
    if ((unsigned)x.o.format > HK_CKPT_NPZ)
        return hki_fail(HK_E_INVALID_ARG, "export: unknown format %d",
                        (int)x.o.format);
    const hk_status s = export(&x, input, base);
    hk_plan_release(x.plan);
    hki_weights_deinit(&x.weights);
    hki_buf_deinit(&x.temp);
    if (s != HK_OK) {
        hki_free(x.folder);
        return s;
    }
    hki_free(e->path);
    e->path = x.folder;
    if (path != NULL)
        *path = e->path;
    return HK_OK;
}
