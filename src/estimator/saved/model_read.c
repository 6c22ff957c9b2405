// model_read.c - a graph from model.json.
//
// Every call goes through its operator's shape rule, like a program's own, and
// attributes have bounds of their own before that.
#include "codec/codec.h" // before base.h
#include <stdlib.h>
#include "estimator/saved/model_file.h"

static hk_status bad(const char *what, const char *why) {
    return hki_fail(HK_E_DATA, "model file: %s %s", what, why);
}

// ---- small things -----------------------------------------------------------

static hk_status get_text(const json_t *o, const char *key, const char **out) {
    *out = json_string_value(json_object_get(o, key));
    return *out != NULL ? HK_OK : bad(key, "is not a string");
}

static hk_status get_int(const json_t *v, int64_t low, int64_t high,
                         const char *what, int64_t *out) {
    if (!json_is_integer(v) || json_integer_value(v) < low ||
        json_integer_value(v) > high)
        return bad(what, "is not a number, or is out of range");
    *out = json_integer_value(v);
    return HK_OK;
}

hk_status hki_model_real(const json_t *v, const char *what, double *out) {
    const char *const text = json_string_value(v);
    char *end = NULL;
    if (text == NULL || text[0] == '\0')
        return bad(what, "is not a number");
    *out = strtod(text, &end);
    return *end == '\0' ? HK_OK : bad(what, "is not a number");
}

static hk_status get_dtype(const json_t *o, hk_dtype *out) {
    const char *text;
    HKI_TRY(get_text(o, "dtype", &text));
    for (hk_dtype t = HK_F32; t <= HK_STRING; t++)
        if (strcmp(hk_dtype_name(t), text) == 0) {
            *out = t;
            return HK_OK;
        }
    return bad("dtype", "is not known");
}

static hk_status get_shape(const json_t *o, hk_shape *out) {
    const json_t *const list = json_object_get(o, "shape");
    const size_t n = json_array_size(list);
    if (!json_is_array(list) || n > HK_MAX_RANK)
        return bad("shape", "is not a shape");
    *out = (hk_shape){.rank = (int32_t)n};
    for (size_t i = 0; i < n; i++)
        HKI_TRY(get_int(json_array_get(list, i), -((int64_t)1 << 40),
                        (int64_t)1 << 40, "shape", &out->dim[i]));
    return HK_OK;
}

hk_status hki_model_value(hki_arena *a, const json_t *item, hk_value *out) {
    const char *name;
    *out = (hk_value){.role = HK_FEATURE, .form = HK_DENSE_FORM};
    HKI_TRY(get_text(item, "name", &name));
    HKI_TRY(get_dtype(item, &out->dtype));
    HKI_TRY(get_shape(item, &out->shape));
    return hki_arena_strdup(a, name, &out->name);
}

// ---- sources ----------------------------------------------------------------

typedef struct building {
    hk_graph *g;
    hk_spec *m;
    hki_call **call;
    size_t n;
} building;

static hk_status build_input(const building *b, const char *name, hk_dtype t,
                             hk_shape shape, hk_node **out) {
    *out = hk_feature(b->m, name);
    if (*out == NULL)
        return hk_graph_status(b->g);
    char have[HKI_SHAPE_TEXT], want[HKI_SHAPE_TEXT];
    if ((*out)->dtype != t || !hk_shape_equal((*out)->shape, shape))
        return hki_fail(
            HK_E_SHAPE,
            "the model needs \"%s\" as %s %s, but the data has %s %s", name,
            hk_dtype_name(t), hki_shape_text(shape, want),
            hk_dtype_name((*out)->dtype), hki_shape_text((*out)->shape, have));
    return HK_OK;
}

static int digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

static hk_status fill_bytes(hk_tensor *t, const char *text) {
    uint8_t *const p = hk_tensor_data(t);
    const size_t n = hki_tensor_bytes(t);
    if (strlen(text) != 2 * n)
        return bad("values", "has a length that differs from its shape");
    for (size_t i = 0; i < n; i++) {
        const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return bad("values", "has a character that is not a digit");
        p[i] = (uint8_t)(high << 4 | low);
    }
    return HK_OK;
}

static hk_status build_constant(const building *b, const json_t *o, hk_dtype t,
                                hk_shape shape, hk_node **out) {
    const char *text;
    HKI_SCOPED(hk_tensor_release_at) hk_tensor *value = NULL;
    int64_t count;
    HKI_TRY(get_text(o, "values", &text));
    HKI_TRY(hk_shape_count(shape, &count));
    // The text has been read: what it cannot fill is not asked for.
    if (t == HK_STRING || (uint64_t)count > strlen(text))
        return bad("values", "has a length that differs from its shape");
    HKI_TRY(hk_tensor_create(t, shape, &value));
    HKI_TRY(fill_bytes(value, text));
    *out = hk_constant(b->g, value);
    return *out != NULL ? HK_OK : hk_graph_status(b->g);
}

static hk_status build_source(const building *b, hki_opcode code,
                              const json_t *o, hk_node **out) {
    const char *name;
    hk_dtype t;
    hk_shape shape;
    double dflt;
    HKI_TRY(get_text(o, "name", &name));
    HKI_TRY(get_dtype(o, &t));
    HKI_TRY(get_shape(o, &shape));
    if (code == HKI_OP_input)
        return build_input(b, name, t, shape, out);
    if (code == HKI_OP_constant)
        return build_constant(b, o, t, shape, out);
    if (code == HKI_OP_variable) {
        *out = hk_variable(b->g, name, shape, HK_TRAINABLE,
                           hk_init_make(HK_INIT_ZEROS, 0, 0), 0);
    } else {
        HKI_TRY(
            hki_model_real(json_object_get(o, "default"), "default", &dflt));
        *out = hk_param_scalar(b->g, name, (float)dflt);
    }
    return *out != NULL ? HK_OK : hk_graph_status(b->g);
}

// ---- calls ------------------------------------------------------------------

static hk_status get_node(const building *b, const json_t *v, hk_node **out) {
    int64_t call = 0, index = 0;
    if (json_is_null(v)) {
        *out = NULL;
        return HK_OK;
    }
    HKI_TRY(
        get_int(json_array_get(v, 0), 0, (int64_t)b->n - 1, "a value", &call));
    HKI_TRY(get_int(json_array_get(v, 1), 0, b->call[call]->n_out - 1,
                    "a value", &index));
    *out = &b->call[call]->out[index];
    return HK_OK;
}

static hk_status get_attr(const json_t *list, const hki_model_attr *f,
                          hki_attr *a) {
    char *const at = (char *)a + f->offset;
    if (list == NULL)
        return HK_OK;
    if (json_array_size(list) != (size_t)f->n)
        return bad(f->name, "has a wrong length");
    for (int i = 0; i < f->n; i++) {
        const json_t *const v = json_array_get(list, (size_t)i);
        int64_t n = 0;
        double x;
        if (f->is_real) {
            HKI_TRY(hki_model_real(v, f->name, &x));
            memcpy(at, &x, sizeof x);
            continue;
        }
        HKI_TRY(get_int(v, f->low, f->high, f->name, &n));
        const int32_t small = (int32_t)n;
        memcpy(at + (size_t)i * f->size,
               f->size == sizeof small ? (const void *)&small
                                       : (const void *)&n,
               f->size);
    }
    return HK_OK;
}

static hk_status build_operator(const building *b, const hki_op *op,
                                const json_t *o, hk_node **out) {
    const json_t *const list = json_object_get(o, "in");
    const json_t *const attr = json_object_get(o, "attr");
    const size_t n = json_array_size(list);
    hk_node *in[HKI_MAX_IN] = {0};
    hki_attr a;
    memset(&a, 0, sizeof a);
    if (n > HKI_MAX_IN)
        return bad(op->name, "has too many inputs");
    for (size_t i = 0; i < n; i++)
        HKI_TRY(get_node(b, json_array_get(list, i), &in[i]));
    for (size_t i = 0; i < hki_model_n_attrs; i++)
        HKI_TRY(get_attr(json_object_get(attr, hki_model_attrs[i].name),
                         &hki_model_attrs[i], &a));
    if (op->n_modes > 0 && (a.mode >= op->n_modes || op->modes[a.mode] == NULL))
        return bad(op->name, "has an unknown mode");
    *out = hki_emit(b->g, op->code, &a, in, (int)n);
    return *out != NULL ? HK_OK : hk_graph_status(b->g);
}

static hk_status build_call(building *b, const json_t *o) {
    const char *name;
    hk_node *x = NULL;
    HKI_TRY(get_text(o, "op", &name));
    for (int k = 0; k < HKI_OP_COUNT; k++) {
        const hki_op *const op = hki_op_by_code((hki_opcode)k);
        if (strcmp(op->name, name) != 0)
            continue;
        if ((op->flags & HKI_OP_IS_SOURCE) != 0)
            HKI_TRY(build_source(b, op->code, o, &x));
        else if ((op->flags & HKI_OP_IS_EXPORTED) != 0)
            HKI_TRY(build_operator(b, op, o, &x));
    }
    if (x == NULL)
        return hki_fail(HK_E_DATA,
                        "model file: unknown operator %s; a newer Hooke may "
                        "have written it",
                        name);
    b->call[b->n++] = x->call;
    return HK_OK;
}

static hk_status build_outputs(const building *b, const json_t *outputs) {
    const char *name;
    json_t *v;
    hk_node *x;
    json_object_foreach((json_t *)(uintptr_t)outputs, name, v) {
        HKI_TRY(get_node(b, v, &x));
        hk_spec_prediction(b->m, name, x);
    }
    return hk_graph_status(b->g);
}

static void building_deinit(building *b) {
    hki_free(b->call);
}

hk_status hki_model_build(hk_graph *g, hk_spec *m, const json_t *model) {
    const json_t *const calls = json_object_get(model, "calls");
    const size_t n = json_array_size(calls);
    HKI_SCOPED(building_deinit) building b = {.g = g, .m = m};
    HKI_TRY(hki_zalloc_array(n + 1, sizeof *b.call, &b.call));
    for (size_t i = 0; i < n; i++)
        HKI_TRY(build_call(&b, json_array_get(calls, i)));
    return build_outputs(&b, json_object_get(model, "outputs"));
}

hk_status hki_model_parse(const void *text, size_t size, const char *what,
                          json_t **out) {
    HKI_SCOPED(json_decrefp) json_t *model = NULL;
    const char *format = "";
    int64_t version = 0;
    HKI_TRY(hki_json_parse(text, size, what, &model));
    HKI_TRY(get_text(model, "format", &format));
    if (strcmp(format, HKI_MODEL_FORMAT) != 0)
        return hki_fail(HK_E_DATA, "%s: is not a model file", what);
    HKI_TRY(get_int(json_object_get(model, "version"), 1, INT32_MAX, "version",
                    &version));
    if (version > HKI_MODEL_VERSION)
        return hki_fail(
            HK_E_UNSUPPORTED,
            "%s: has format version %lld; this Hooke reads version %d", what,
            (long long)version, HKI_MODEL_VERSION);
    return HKI_HAND_ON(out, model);
}
