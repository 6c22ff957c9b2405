// onnx.c - the messages of an ONNX file. Numbers of fields are those of
// onnx.proto (IR version 8).
#include "onnx/onnx.h"
#include "codec/codec.h"

enum {
    IR_VERSION = 8,
    OPSET = 17,
    TEXT_OPSET = 20, // has operators that cut texts
    AXES_OPSET = 18, // axes of all reductions are inputs
    ML_OPSET = 3
};

#define ML_DOMAIN "ai.onnx.ml"
#define OWN "hooke:" // names of values that have none

enum { // ModelProto
    MODEL_IR_VERSION = 1,
    MODEL_PRODUCER = 2,
    MODEL_PRODUCER_VERSION = 3,
    MODEL_GRAPH = 7,
    MODEL_OPSET = 8,
    MODEL_METADATA = 14
};
enum { // GraphProto
    GRAPH_NODE = 1,
    GRAPH_NAME = 2,
    GRAPH_INITIALIZER = 5,
    GRAPH_INPUT = 11,
    GRAPH_OUTPUT = 12
};
enum { // NodeProto
    NODE_INPUT = 1,
    NODE_OUTPUT = 2,
    NODE_NAME = 3,
    NODE_OP = 4,
    NODE_ATTRIBUTE = 5,
    NODE_DOMAIN = 7
};
enum { // AttributeProto
    ATTR_NAME = 1,
    ATTR_F = 2,
    ATTR_I = 3,
    ATTR_S = 4,
    ATTR_INTS = 8,
    ATTR_STRINGS = 9,
    ATTR_TYPE = 20
};
enum { // TensorProto
    TENSOR_DIMS = 1,
    TENSOR_TYPE = 2,
    TENSOR_STRINGS = 6,
    TENSOR_NAME = 8,
    TENSOR_RAW = 9
};

// ---- errors -----------------------------------------------------------------

const char *hki_onnx_fail(hki_onnx *o, hk_status s) {
    if (o->status == HK_OK) {
        o->status = s;
        snprintf(o->error, sizeof o->error, "%s", hk_last_error());
    }
    return NULL;
}

static bool is_ok(hki_onnx *o, hk_status s) {
    if (s != HK_OK)
        hki_onnx_fail(o, s);
    return o->status == HK_OK;
}

void hki_onnx_deinit(hki_onnx *o) {
    hki_buf_deinit(&o->nodes);
    hki_buf_deinit(&o->constants);
    hki_buf_deinit(&o->inputs);
    hki_buf_deinit(&o->outputs);
    hki_buf_deinit(&o->notes);
    hki_free(o->names.data);
    hki_free(o->feeds.data);
    hki_arena_deinit(&o->arena);
    *o = (hki_onnx){0};
}

// ---- names ------------------------------------------------------------------

static hk_status take_name(hki_onnx *o, const char *name, const char **out) {
    if (name == NULL)
        return hki_arena_printf(&o->arena, out, OWN "%u", o->n_values++);
    if (name[0] == '\0' || strncmp(name, OWN, strlen(OWN)) == 0)
        return hki_fail(HK_E_INVALID_ARG, "onnx: '%s' cannot be a name", name);
    for (size_t i = 0; i < o->names.n; i++)
        if (strcmp(o->names.data[i], name) == 0)
            return hki_fail(HK_E_EXISTS,
                            "onnx: two inputs, outputs or weights of the model "
                            "are called '%s'; rename the column",
                            name);
    HKI_TRY(HKI_LIST_ROOM(o->names));
    HKI_TRY(hki_arena_strdup(&o->arena, name, out));
    o->names.data[o->names.n++] = *out;
    return HK_OK;
}

// ---- types and shapes -------------------------------------------------------

static uint32_t type_number(hk_dtype t) {
    static const uint8_t numbers[] = {
        [HK_F32] = 1,    [HK_U8] = 2,   [HK_I32] = 6,  [HK_I64] = 7,
        [HK_STRING] = 8, [HK_BOOL] = 9, [HK_F64] = 11, [HK_BF16] = 16,
    };
    return numbers[t];
}

// A dimension with a name: the batch, or so many times the batch.
static hk_status put_dim(hki_buf *b, int64_t dim) {
    size_t mark;
    char text[32];
    HKI_TRY(hki_pb_open(b, 1, &mark));
    if (dim >= 0) {
        HKI_TRY(hki_pb_varint(b, 1, (uint64_t)dim));
    } else {
        snprintf(text, sizeof text, dim == HK_BATCH ? "batch" : "batch_x%lld",
                 (long long)-dim);
        HKI_TRY(hki_pb_string(b, 2, text));
    }
    return hki_pb_close(b, mark);
}

static hk_status put_value(hki_buf *b, uint32_t field, const char *name,
                           hk_dtype t, hk_shape shape) {
    size_t value, type, tensor, dims;
    HKI_TRY(hki_pb_open(b, field, &value));
    HKI_TRY(hki_pb_string(b, 1, name));
    HKI_TRY(hki_pb_open(b, 2, &type));
    HKI_TRY(hki_pb_open(b, 1, &tensor));
    HKI_TRY(hki_pb_varint(b, 1, type_number(t)));
    HKI_TRY(hki_pb_open(b, 2, &dims));
    for (int i = 0; i < shape.rank; i++)
        HKI_TRY(put_dim(b, shape.dim[i]));
    HKI_TRY(hki_pb_close(b, dims));
    HKI_TRY(hki_pb_close(b, tensor));
    HKI_TRY(hki_pb_close(b, type));
    return hki_pb_close(b, value);
}

const char *hki_onnx_input(hki_onnx *o, const char *name, hk_dtype t,
                           hk_shape shape) {
    const char *own = NULL;
    if (o->status != HK_OK || !is_ok(o, take_name(o, name, &own)) ||
        !is_ok(o, put_value(&o->inputs, GRAPH_INPUT, own, t, shape)))
        return NULL;
    if (o->first_input == NULL)
        o->first_input = own;
    return own;
}

void hki_onnx_output(hki_onnx *o, const char *name, const char *value,
                     hk_dtype t, hk_shape shape) {
    const char *own = NULL;
    if (o->status != HK_OK || !is_ok(o, take_name(o, name, &own)) ||
        !is_ok(o, put_value(&o->outputs, GRAPH_OUTPUT, own, t, shape)))
        return;
    const hki_onnx_call same = {
        .op = "Identity", HKI_ONNX_IN(value), .n_out = 1, .out = &own};
    hki_onnx_node(o, &same);
}

// ---- constants --------------------------------------------------------------

static hk_status put_tensor(hki_buf *b, const char *name, hk_dtype t,
                            hk_shape shape, const void *data) {
    size_t bytes, mark;
    HKI_TRY(hki_shape_bytes(shape, hk_dtype_size(t), &bytes));
    HKI_TRY(hki_pb_open(b, GRAPH_INITIALIZER, &mark));
    for (int i = 0; i < shape.rank; i++)
        HKI_TRY(hki_pb_varint(b, TENSOR_DIMS, (uint64_t)shape.dim[i]));
    HKI_TRY(hki_pb_varint(b, TENSOR_TYPE, type_number(t)));
    HKI_TRY(hki_pb_string(b, TENSOR_NAME, name));
    HKI_TRY(hki_pb_bytes(b, TENSOR_RAW, data, bytes));
    return hki_pb_close(b, mark);
}

const char *hki_onnx_tensor(hki_onnx *o, const char *name, hk_dtype t,
                            hk_shape shape, const void *data) {
    const char *own = NULL;
    if (o->status != HK_OK || !is_ok(o, take_name(o, name, &own)) ||
        !is_ok(o, put_tensor(&o->constants, own, t, shape, data)))
        return NULL;
    return own;
}

const char *hki_onnx_ints(hki_onnx *o, const int64_t *values, size_t n) {
    return hki_onnx_tensor(o, NULL, HK_I64,
                           hk_shape_make(1, (int64_t[]){(int64_t)n}), values);
}

const char *hki_onnx_doubles(hki_onnx *o, const double *values, size_t n) {
    return hki_onnx_tensor(o, NULL, HK_F64,
                           hk_shape_make(1, (int64_t[]){(int64_t)n}), values);
}

const char *hki_onnx_scalar(hki_onnx *o, hk_dtype t, double value) {
    const hk_shape shape = hk_shape_make(0, NULL);
    const float f = (float)value;
    const int64_t i = (int64_t)value;
    const int32_t w = (int32_t)value;
    const void *data = t == HK_F32   ? (const void *)&f
                       : t == HK_F64 ? (const void *)&value
                       : t == HK_I64 ? (const void *)&i
                                     : (const void *)&w;
    return hki_onnx_tensor(o, NULL, t, shape, data);
}

static hk_status put_text(hki_buf *b, const char *name, const char *text) {
    size_t mark;
    HKI_TRY(hki_pb_open(b, GRAPH_INITIALIZER, &mark));
    HKI_TRY(hki_pb_varint(b, TENSOR_TYPE, type_number(HK_STRING)));
    HKI_TRY(hki_pb_bytes(b, TENSOR_STRINGS, text, strlen(text)));
    HKI_TRY(hki_pb_string(b, TENSOR_NAME, name));
    return hki_pb_close(b, mark);
}

const char *hki_onnx_text(hki_onnx *o, const char *text) {
    const char *own = NULL;
    if (o->status != HK_OK || !is_ok(o, take_name(o, NULL, &own)) ||
        !is_ok(o, put_text(&o->constants, own, text)))
        return NULL;
    return own;
}

const char *hki_onnx_range(hki_onnx *o, int64_t n) {
    HKI_FREED int64_t *list = NULL;
    if (o->status != HK_OK ||
        !is_ok(o, hki_alloc_array((size_t)n, sizeof *list, &list)))
        return NULL;
    for (int64_t i = 0; i < n; i++)
        list[i] = i;
    return hki_onnx_ints(o, list, (size_t)n);
}

// ---- nodes ------------------------------------------------------------------

static hk_status put_attr(hki_buf *b, const hki_onnx_attr *a) {
    size_t mark;
    HKI_TRY(hki_pb_open(b, NODE_ATTRIBUTE, &mark));
    HKI_TRY(hki_pb_string(b, ATTR_NAME, a->name));
    if (a->type == HKI_ONNX_FLOAT)
        HKI_TRY(hki_pb_float(b, ATTR_F, (float)a->f));
    if (a->type == HKI_ONNX_INT)
        HKI_TRY(hki_pb_varint(b, ATTR_I, (uint64_t)a->i));
    if (a->type == HKI_ONNX_STRING)
        HKI_TRY(hki_pb_string(b, ATTR_S, a->text));
    for (size_t i = 0; a->type == HKI_ONNX_INTS && i < a->n; i++)
        HKI_TRY(hki_pb_varint(b, ATTR_INTS, (uint64_t)a->ints[i]));
    for (size_t i = 0; a->type == HKI_ONNX_STRINGS && i < a->n; i++)
        HKI_TRY(hki_pb_bytes(b, ATTR_STRINGS, a->strings[i], a->sizes[i]));
    HKI_TRY(hki_pb_varint(b, ATTR_TYPE, (uint64_t)a->type));
    return hki_pb_close(b, mark);
}

static hk_status put_node(hki_buf *b, const hki_onnx_call *c,
                          const char *const *out, size_t n_out) {
    const bool ml = strncmp(c->op, "ml.", 3) == 0;
    size_t mark;
    HKI_TRY(hki_pb_open(b, GRAPH_NODE, &mark));
    for (size_t i = 0; i < c->n_in; i++)
        HKI_TRY(hki_pb_string(b, NODE_INPUT, c->in[i]));
    for (size_t i = 0; i < n_out; i++)
        HKI_TRY(hki_pb_string(b, NODE_OUTPUT, out[i]));
    HKI_TRY(hki_pb_string(b, NODE_NAME, out[0]));
    HKI_TRY(hki_pb_string(b, NODE_OP, ml ? c->op + 3 : c->op));
    for (size_t i = 0; i < c->n_attr; i++)
        HKI_TRY(put_attr(b, &c->attr[i]));
    if (ml)
        HKI_TRY(hki_pb_string(b, NODE_DOMAIN, ML_DOMAIN));
    return hki_pb_close(b, mark);
}

static uint32_t opset_of(const char *op) {
    return strcmp(op, "StringSplit") == 0 || strcmp(op, "RegexFullMatch") == 0
               ? TEXT_OPSET
               : OPSET;
}

const char *hki_onnx_node(hki_onnx *o, const hki_onnx_call *call) {
    const char *first = NULL, **out = call->out != NULL ? call->out : &first;
    const size_t n = call->n_out > 0 ? call->n_out : 1;
    if (o->status != HK_OK)
        return NULL;
    for (size_t i = 0; i < call->n_in; i++)
        if (call->in[i] == NULL)
            return hki_onnx_fail(o, hki_fail(HK_E_INTERNAL,
                                             "onnx: %s: input %zu is missing",
                                             call->op, i));
    o->opset = HKI_MAX(o->opset, opset_of(call->op));
    // An output of the model comes with its name.
    for (size_t i = 0; i < n; i++)
        if (out[i] == NULL && !is_ok(o, take_name(o, NULL, &out[i])))
            return NULL;
    return is_ok(o, put_node(&o->nodes, call, out, n)) ? out[0] : NULL;
}

const char *hki_onnx_cast_by(hki_onnx *o, const char *x, hk_dtype t,
                             const char *name) {
    const hki_onnx_call c = {.op = "Cast",
                             HKI_ONNX_IN(x),
                             HKI_ONNX_ATTR(HKI_ONNX_I("to", type_number(t))),
                             .n_out = 1,
                             .out = &name};
    return hki_onnx_node(o, &c);
}

const char *hki_onnx_cast(hki_onnx *o, const char *x, hk_dtype t) {
    return hki_onnx_cast_by(o, x, t, NULL);
}

// Whatever raises the opset comes before the model's own calls.
const char *hki_onnx_reduce(hki_onnx *o, const char *op, const char *x,
                            const int64_t *axes, size_t n, bool keep) {
    const hki_onnx_attr keeps = HKI_ONNX_I("keepdims", keep);
    if (strcmp(op, "ReduceSum") == 0 || o->opset >= AXES_OPSET) {
        const hki_onnx_call c = {.op = op,
                                 HKI_ONNX_IN(x, hki_onnx_ints(o, axes, n)),
                                 HKI_ONNX_ATTR(keeps)};
        return hki_onnx_node(o, &c);
    }
    const hki_onnx_call c = {
        .op = op,
        HKI_ONNX_IN(x),
        HKI_ONNX_ATTR(HKI_ONNX_LIST("axes", axes, n), keeps)};
    return hki_onnx_node(o, &c);
}

const char *hki_onnx_batch(hki_onnx *o) {
    if (o->batch == NULL) {
        const hki_onnx_call c = {
            .op = "Shape",
            HKI_ONNX_IN(o->first_input),
            HKI_ONNX_ATTR(HKI_ONNX_I("start", 0), HKI_ONNX_I("end", 1))};
        o->batch = hki_onnx_node(o, &c);
    }
    return o->batch;
}

// ---- feeds ------------------------------------------------------------------

void hki_onnx_give(hki_onnx *o, const char *name, const char *value) {
    hki_onnx_feed f = {.value = value};
    if (o->status != HK_OK || !is_ok(o, HKI_LIST_ROOM(o->feeds)) ||
        !is_ok(o, hki_arena_strdup(&o->arena, name, &f.name)))
        return;
    o->feeds.data[o->feeds.n++] = f;
}

const char *hki_onnx_given(const hki_onnx *o, const char *name) {
    for (size_t i = 0; i < o->feeds.n; i++)
        if (strcmp(o->feeds.data[i].name, name) == 0)
            return o->feeds.data[i].value;
    return NULL;
}

// ---- the file ---------------------------------------------------------------

static hk_status put_pair(hki_buf *b, const char *key, const char *value) {
    size_t mark;
    HKI_TRY(hki_pb_open(b, MODEL_METADATA, &mark));
    HKI_TRY(hki_pb_string(b, 1, key));
    HKI_TRY(hki_pb_string(b, 2, value));
    return hki_pb_close(b, mark);
}

void hki_onnx_note(hki_onnx *o, const char *key, const char *value) {
    if (o->status == HK_OK)
        is_ok(o, put_pair(&o->notes, key, value));
}

static hk_status put_opset(hki_buf *b, const char *domain, uint64_t version) {
    size_t mark;
    HKI_TRY(hki_pb_open(b, MODEL_OPSET, &mark));
    HKI_TRY(hki_pb_string(b, 1, domain));
    HKI_TRY(hki_pb_varint(b, 2, version));
    return hki_pb_close(b, mark);
}

static hk_status put_model(const hki_onnx *o, const char *name, hki_buf *b) {
    const hki_buf *const parts[] = {&o->nodes, &o->constants, &o->inputs,
                                    &o->outputs};
    size_t mark, total = 0;
    for (size_t i = 0; i < 4; i++)
        total += parts[i]->size;
    if (total > (size_t)INT32_MAX - 4096)
        return hki_fail(
            HK_E_UNSUPPORTED,
            "onnx: the model has %zu bytes, but the limit of a file is 2 GiB",
            total);
    HKI_TRY(hki_pb_varint(b, MODEL_IR_VERSION, IR_VERSION));
    HKI_TRY(hki_pb_string(b, MODEL_PRODUCER, "hooke"));
    HKI_TRY(hki_pb_string(b, MODEL_PRODUCER_VERSION, hk_version()));
    HKI_TRY(put_opset(b, "", HKI_MAX(o->opset, OPSET)));
    HKI_TRY(put_opset(b, ML_DOMAIN, ML_OPSET));
    HKI_TRY(hki_pb_open(b, MODEL_GRAPH, &mark));
    HKI_TRY(hki_pb_string(b, GRAPH_NAME, name));
    for (size_t i = 0; i < 4; i++)
        HKI_TRY(hki_buf_add(b, parts[i]->data, parts[i]->size));
    HKI_TRY(hki_pb_close(b, mark));
    return hki_buf_add(b, o->notes.data, o->notes.size);
}

hk_status hki_onnx_finish(hki_onnx *o, const char *graph_name, hki_buf *out) {
    if (o->status != HK_OK)
        return hki_fail(o->status, "%s", o->error);
    return put_model(o, graph_name, out);
}
