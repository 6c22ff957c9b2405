// model_file.h - model.json of an export: the graph of HK_PREDICT as text, and
// what its raw inputs are.
//
//     {"format": "hooke.model", "version": 1,
//      "inputs": [{"name": "age", "dtype": "float32", "shape": []}],
//      "scaling": {"feature": "x", "scale": "0x1p-8", "mean": [0.5]},
//      "classes": ["no", "yes"],
//      "dates": [{"name": "sold", "order": 0}],
//      "calls": [{"op": "input", "name": "dense", "dtype": "float32",
//                 "shape": [-1, 7]},
//                {"op": "variable", "name": "logits/kernel", "shape": [7, 1]},
//                {"op": "dense", "in": [[0, 0], [1, 0], null],
//                 "attr": {"act": [1]}}],
//      "outputs": {"logits": [2, 0]}}
//
// A value is a call's number and which of its outputs. Attributes are lists,
// those that are zero are left out; doubles are hexadecimal text, and the
// values of a constant are bytes as hexadecimal digits.
#ifndef HKI_ESTIMATOR_MODEL_FILE_H
#define HKI_ESTIMATOR_MODEL_FILE_H
#include "codec/codec.h"
#include "estimator/model/model_spec.h"
#include "hooke/export.h"

#define HKI_MODEL_FORMAT "hooke.model"
#define HKI_MODEL_VERSION 1
#define HKI_MODEL_LIMIT ((size_t)1 << 30) // bytes of the file

// A member of hki_attr as the file has it.
typedef struct hki_model_attr {
    const char *name;
    size_t offset, size; // of one element, 8 with is_real: a double
    int n;               // elements
    bool is_real;
    int64_t low, high; // of integers
} hki_model_attr;
extern const hki_model_attr hki_model_attrs[];
extern const size_t hki_model_n_attrs;

// The text of a spec's graph. raw: NULL allowed. HK_E_UNSUPPORTED names a call
// that cannot be written.
hk_status hki_model_write(const hk_spec *m, const hk_raw_inputs *raw,
                          hki_buf *out);

// Checks the head of the file; *out is released with json_decref.
hk_status hki_model_parse(const void *text, size_t size, const char *what,
                          json_t **out);
// The calls once more, as a model_fn. HK_E_DATA.
hk_status hki_model_build(hk_graph *g, hk_spec *m, const json_t *model);
// What "inputs", and a value with a name, type and shape, say.
hk_status hki_model_value(hki_arena *a, const json_t *item, hk_value *out);

// A number that is hexadecimal text; what: its name in messages.
hk_status hki_model_real(const json_t *v, const char *what, double *out);

#endif // HKI_ESTIMATOR_MODEL_FILE_H
