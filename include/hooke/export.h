// hooke/export.h - what an estimator leaves: checkpoints, variables, files of
// other formats, and exports with a signature.
//
//     hk_estimator_variable(e, "dense/kernel", HK_WEIGHTS_DEFAULT, 0, &w);
//     hk_estimator_save_as(e, "model.npz", HK_WEIGHTS_EMA, 0, 0, NULL);
//     hk_estimator_export(e, NULL, "exports", NULL, &path);
//     hk_estimator_export_onnx(e, NULL, "model.onnx", NULL);
#ifndef HOOKE_EXPORT_H
#define HOOKE_EXPORT_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/ckpt.h"
#include "hooke/estimator.h"
#include "hooke/feature.h"
#include "hooke/status.h"
#include "hooke/tensor.h"

HK_BEGIN_C

// ---- checkpoints and variables ----------------------------------------------

// The newest complete checkpoint; HK_E_NOT_FOUND. The path lives until the
// next call. step: NULL allowed.
HK_API hk_status hk_estimator_latest_checkpoint(hk_estimator *e,
                                                const char **path,
                                                int64_t *step);
// Saves now. HK_E_STATE without a model_dir or before training.
HK_API hk_status hk_estimator_save(hk_estimator *e);

// Names of the model's variables, sorted; from memory, else from the newest
// checkpoint. The list lives until the next call.
HK_API hk_status hk_estimator_variables(hk_estimator *e,
                                        const char *const **names,
                                        size_t *count);
// A copy of a variable's values.
HK_API hk_status hk_estimator_variable(hk_estimator *e, const char *name,
                                       hk_weights weights, uint32_t worker,
                                       hk_tensor **out);

// ---- files by an explicit name map ------------------------------------------

// Saving and restoring by an explicit name map. save: one file (format by its
// name or opt) with the chosen weights, optimizer slots included when slots is
// 1, global_step when opt says TF. restore: reads tensors into the model
// (center and all workers), with renaming and selection as hk_ckpt_restore
// does; needs a graph, so call it after a train or give an input. report: NULL
// allowed.
HK_API hk_status hk_estimator_save_as(hk_estimator *e, const char *path,
                                      hk_weights weights, uint32_t worker,
                                      int slots, const hk_write_options *opt);
HK_API hk_status hk_estimator_restore(hk_estimator *e, const hk_source *input,
                                      const char *path,
                                      const hk_restore_options *opt,
                                      hk_restore_report *report);

// ---- export -----------------------------------------------------------------

// What hk_data_normalize did to a feature: (x * scale - mean) / std.
typedef struct hk_scaling {
    const char *feature;
    hk_dtype dtype; // of x: HK_U8 for bytes of pictures
    uint32_t reserved;
    double scale;
    const float *mean, *std; // one for each channel; NULL: 0, 1
    size_t channels;
} hk_scaling;

// What stands before the model, and the names of what comes out.
typedef struct hk_raw_inputs {
    // The columns that hk_data_features applied; NULL: none.
    hk_feature_set *features;
    // The spec of the data before features and scaling, and behind dates; NULL:
    // numbers are float32 and words strings.
    const hk_element *values;
    const hk_scaling *scaling; // NULL: none
    // Names of the classes that "class_ids" or "class" count; NULL: none.
    const char *const *classes;
    size_t n_classes;
    // What hk_data_dates was given: the texts are inputs. NULL: none.
    const hk_date_column *dates;
    size_t n_dates;
} hk_raw_inputs;

typedef struct hk_export_options {
    size_t struct_size;    // set by hk_export_options_init
    hk_ckpt_format format; // default HK_CKPT_SAFETENSORS
    hk_weights weights;    // one set
    uint32_t worker;
    uint32_t reserved;
    const char *checkpoint_path; // NULL: memory, else the newest
    const hk_rename *rename;     // names in the file
    size_t n_rename;
    const char *const *assets_extra; // files copied to assets.extra/
    size_t n_assets;
    const hk_raw_inputs *raw; // NULL: the model's inputs are raw
} hk_export_options;

HK_API void hk_export_options_init(hk_export_options *opt, size_t struct_size);
// Writes <base>/<unix seconds>/: the weights (model.safetensors, model.npz or
// variables/variables.*), signature.json (inputs and outputs of HK_PREDICT),
// model.json with features.json (what hk_exported_open reads) and
// assets.extra/; under a temporary name first. path: of the folder, valid
// until the next call on e; NULL allowed. HK_E_NOT_FOUND when nothing was
// trained. input gives the features' types; NULL once e has predicted or
// evaluated.
HK_API hk_status hk_estimator_export(hk_estimator *e, const hk_source *input,
                                     const char *base,
                                     const hk_export_options *opt,
                                     const char **path);

// ---- ONNX -------------------------------------------------------------------

typedef struct hk_onnx_options {
    size_t struct_size; // set by hk_onnx_options_init
    hk_weights weights; // one set
    uint32_t worker;
    const char *checkpoint_path; // NULL: memory, else the newest
    const hk_raw_inputs *raw;    // NULL: the model's inputs are raw
} hk_onnx_options;

HK_API void hk_onnx_options_init(hk_onnx_options *opt, size_t struct_size);
// Writes the model of HK_PREDICT with its weights and what comes before it as
// one ONNX file (opset 17 and ai.onnx.ml 3), under a temporary name first.
// With columns of dates it is opset 20.
// Inputs: the raw values by their names, [batch, ...]; ids of hashed and
// crossed columns as "<column>_id". Outputs: the predictions. HK_E_UNSUPPORTED
// names the column or operator that ONNX cannot express. input: as for
// hk_estimator_export.
HK_API hk_status hk_estimator_export_onnx(hk_estimator *e,
                                          const hk_source *input,
                                          const char *path,
                                          const hk_onnx_options *opt);

// ---- predicting with an export ----------------------------------------------
//
// Without the model_fn and the run's folder: the graph is in the export.

typedef struct hk_exported hk_exported; // opaque

// folder: of hk_estimator_export, with weights in safetensors or npz. HK_E_DATA
// for damage; what was made by a later version, HK_E_UNSUPPORTED.
HK_API hk_status hk_exported_open(hk_context *ctx, const char *folder,
                                  hk_exported **out);
HK_API void hk_exported_close(hk_exported *x); // NULL is allowed
// Names, types and shapes of the raw values of one example.
HK_API const hk_element *hk_exported_inputs(const hk_exported *x);
// The name of class i; NULL: it has none.
HK_API const char *hk_exported_class(const hk_exported *x, int64_t i);
// Predictions for examples d (released by this call, also when it fails), one
// at a time; destroy the predictor before x.
HK_API hk_status hk_exported_predict(hk_exported *x, hk_dataset *d,
                                     hk_predictor **out);

HK_END_C
#endif // HOOKE_EXPORT_H
