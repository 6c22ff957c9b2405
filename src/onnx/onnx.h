// onnx/onnx.h - an ONNX model under construction: inputs, constants, nodes and
// outputs, written as protobuf.
//
//     hki_onnx o = {0};
//     const char *x = hki_onnx_input(&o, "x", HK_F32, shape);
//     const char *y = HKI_ONNX(&o, "Relu", x);
//     hki_onnx_output(&o, "y", y, HK_F32, shape);
//     hki_onnx_finish(&o, "model", &bytes);
//     hki_onnx_deinit(&o);
//
// Values are names. Building is sticky: after the first error every call gives
// NULL, and finish returns it. A negative dimension of a shape is the batch's.
//
// Operators are those of opset 17, or of 20 from the first operator on that 17
// lacks, and of version 3 of ai.onnx.ml.
#ifndef HKI_ONNX_H
#define HKI_ONNX_H
#include "base/base.h"
#include "tensor/tensor.h"

typedef struct hki_onnx hki_onnx;

// A value that is there before the model's own calls: what was made of raw
// inputs.
typedef struct hki_onnx_feed {
    const char *name; // as the model asks for it
    const char *value;
} hki_onnx_feed;

struct hki_onnx {
    hki_arena arena;
    hk_status status;
    char error[512];
    // Fields of the graph's message as they are in the file.
    hki_buf nodes, constants, inputs, outputs, notes;
    HKI_LIST(const char *) names; // of inputs, constants and outputs
    HKI_LIST(hki_onnx_feed) feeds;
    uint32_t n_values; // unnamed so far
    uint32_t opset;    // 0: the least
    const char *batch; // int64 [1], once it was asked for
    const char *first_input;
};

typedef enum hki_onnx_attr_type {
    HKI_ONNX_FLOAT = 1,
    HKI_ONNX_INT = 2,
    HKI_ONNX_STRING = 3,
    HKI_ONNX_INTS = 7,
    HKI_ONNX_STRINGS = 8
} hki_onnx_attr_type;

typedef struct hki_onnx_attr {
    const char *name;
    hki_onnx_attr_type type;
    int64_t i;
    double f;
    const int64_t *ints;
    const char *text;
    const char *const *strings; // with sizes, they may hold any byte
    const size_t *sizes;
    size_t n;
} hki_onnx_attr;

// A node of the operator set, or of ai.onnx.ml for names that begin with "ml.".
// Inputs that are "" are absent. Its first output; the others, where n_out is
// more than one, are written to out.
typedef struct hki_onnx_call {
    const char *op;
    const char *const *in;
    size_t n_in;
    const hki_onnx_attr *attr;
    size_t n_attr;
    size_t n_out; // 0 stands for 1
    const char **out;
} hki_onnx_call;
const char *hki_onnx_node(hki_onnx *o, const hki_onnx_call *call);

#define HKI_ONNX_IN(...)                                                       \
    .in = (const char *const[]){__VA_ARGS__},                                  \
    .n_in = sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)
#define HKI_ONNX_ATTR(...)                                                     \
    .attr = (const hki_onnx_attr[]){__VA_ARGS__},                              \
    .n_attr =                                                                  \
        sizeof((const hki_onnx_attr[]){__VA_ARGS__}) / sizeof(hki_onnx_attr)
#define HKI_ONNX_I(key, value)                                                 \
    { .name = (key), .type = HKI_ONNX_INT, .i = (value) }
#define HKI_ONNX_TEXT(key, value)                                              \
    { .name = (key), .type = HKI_ONNX_STRING, .text = (value) }
#define HKI_ONNX_F(key, value)                                                 \
    { .name = (key), .type = HKI_ONNX_FLOAT, .f = (value) }
#define HKI_ONNX_LIST(key, values, count)                                      \
    { .name = (key), .type = HKI_ONNX_INTS, .ints = (values), .n = (count) }
// A node without attributes.
#define HKI_ONNX(o, op_name, ...)                                              \
    hki_onnx_node((o), &(const hki_onnx_call){.op = (op_name),                 \
                                              HKI_ONNX_IN(__VA_ARGS__)})

// HK_E_EXISTS where the name is taken.
const char *hki_onnx_input(hki_onnx *o, const char *name, hk_dtype t,
                           hk_shape shape);
void hki_onnx_output(hki_onnx *o, const char *name, const char *value,
                     hk_dtype t, hk_shape shape);
// Constants. data: row-major, copied. name NULL: one of its own.
const char *hki_onnx_tensor(hki_onnx *o, const char *name, hk_dtype t,
                            hk_shape shape, const void *data);
const char *hki_onnx_ints(hki_onnx *o, const int64_t *values, size_t n);
const char *hki_onnx_doubles(hki_onnx *o, const double *values, size_t n);
const char *hki_onnx_scalar(hki_onnx *o, hk_dtype t, double value);
const char *hki_onnx_text(hki_onnx *o, const char *text);
// x as another type.
const char *hki_onnx_cast(hki_onnx *o, const char *x, hk_dtype t);
// The same by a node with a name, for messages of the run-time. NULL: no name.
const char *hki_onnx_cast_by(hki_onnx *o, const char *x, hk_dtype t,
                             const char *name);
// ReduceSum, ReduceMean... of x over these axes.
const char *hki_onnx_reduce(hki_onnx *o, const char *op, const char *x,
                            const int64_t *axes, size_t n, bool keep);
// 0, 1 ... n - 1 as int64.
const char *hki_onnx_range(hki_onnx *o, int64_t n);
// The batch's size, int64 [1].
const char *hki_onnx_batch(hki_onnx *o);

void hki_onnx_give(hki_onnx *o, const char *name, const char *value);
const char *hki_onnx_given(const hki_onnx *o, const char *name); // or NULL

// A line of the model's metadata.
void hki_onnx_note(hki_onnx *o, const char *key, const char *value);

// Keeps the calling thread's last error; returns NULL.
const char *hki_onnx_fail(hki_onnx *o, hk_status s);

// The whole file, appended.
hk_status hki_onnx_finish(hki_onnx *o, const char *graph_name, hki_buf *out);
void hki_onnx_deinit(hki_onnx *o);

#endif // HKI_ONNX_H
