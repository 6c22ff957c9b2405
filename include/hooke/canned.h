// hooke/canned.h - ready models over feature columns (hooke/feature.h): linear,
// deep, and wide & deep classifiers and regressors.
//
//     hk_canned_options o;
//     hk_canned_options_init(&o, sizeof o, HK_CANNED_DNN_LINEAR);
//     o.features = columns;                     // finished
//     o.hidden = (int64_t[]){100, 50};
//     o.n_hidden = 2;
//     hk_canned_create(ctx, &o, NULL, &e);      // an estimator like any other
//
// The data set of train, evaluate and predict has gone through
// hk_data_features with the same columns. Variables have tf.estimator's names
// (dnn/hiddenlayer_0/kernel, linear/linear_model/age/weights, ...).
#ifndef HOOKE_CANNED_H
#define HOOKE_CANNED_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/estimator.h"
#include "hooke/feature.h"
#include "hooke/gradproc.h"
#include "hooke/status.h"

HK_BEGIN_C

// ---- parts, for model_fns of one's own --------------------------------------

// The deep columns side by side, [batch, width]: floats as they are, ids as
// rows of embedding tables "<scopes>/input_layer/<column>/embedding_weights".
HK_API hk_node *hk_input_layer(hk_spec *m, const hk_feature_set *s);
// The linear columns' weighted sum and a bias, [batch, units]. Variables
// "<scopes>/linear_model/<column>/weights" and ".../bias_weights" start as 0;
// those of ids have sparse gradients.
HK_API hk_node *hk_linear_model(hk_spec *m, const hk_feature_set *s,
                                int64_t units);

// ---- whole models ---------------------------------------------------------

typedef enum hk_canned_kind {
    HK_CANNED_LINEAR = 1,    // LinearClassifier, LinearRegressor
    HK_CANNED_DNN = 2,       // DNNClassifier, DNNRegressor
    HK_CANNED_DNN_LINEAR = 3 // DNNLinearCombined*: wide & deep
} hk_canned_kind;

// What a regressor learns of its label y. Its loss is that of the scaled value;
// predictions and metrics are in the unit of the label.
typedef enum hk_target {
    HK_TARGET_RAW = 0,      // y
    HK_TARGET_STANDARD = 1, // (y - mean) / scale
    HK_TARGET_LOG = 2,      // (log(y) - mean) / scale
    HK_TARGET_LOG1P = 3     // (log(1 + y) - mean) / scale
} hk_target;

typedef struct hk_canned_options {
    size_t struct_size; // set by hk_canned_options_init
    hk_canned_kind kind;
    hk_act activation;        // of hidden layers; default HK_ACT_RELU
    hk_feature_set *features; // finished; retained
    const int64_t *hidden;    // units of the hidden layers; copied
    size_t n_hidden;
    // Classes: 0 is a regressor, 2 (default) has one logit, more are a
    // softmax. Labels are numbers from 0 on, [batch] or [batch, 1].
    int64_t n_classes;
    const char *label; // NULL: the only one
    double dropout;    // after hidden layers; a run-time scalar "dropout"
    // NULL: Adagrad 0.05 for the deep part, Ftrl with min(0.2, 1 / sqrt(linear
    // columns)) for the linear one, as in TensorFlow. Copied.
    const hk_optimizer_options *optimizer;        // deep, or the only part
    const hk_optimizer_options *linear_optimizer; // of DNN_LINEAR
    uint32_t batch_norm;                          // 1: after hidden layers
    hk_target target;                             // of a regressor; default RAW
    double target_mean, target_scale;             // default 0 and 1
    const char *weight; // name of a label with the weight of each example in
                        // the loss; NULL: all are 1; copied
    const double *class_weights; // one for each class; NULL: all are 1; copied
    size_t n_class_weights;
    uint64_t histograms; // 1: of what comes out of hidden layers, with the
                         // summaries: "dnn/hiddenlayer_0/activation"...
    const hk_gradproc_options *gradproc; // clipping of gradients; NULL: none;
                                         // copied
} hk_canned_options;

HK_API void hk_canned_options_init(hk_canned_options *opt, size_t struct_size,
                                   hk_canned_kind kind);

// An estimator of the model. base: model_dir, config, params and warm_start of
// the estimator's options; model_fn, user and tag are set here; NULL: none.
// Predictions: "logits", then "probabilities" [batch, classes] and "class_ids",
// and of two classes "logistic"; of a regressor "predictions". Metrics:
// accuracy, average_loss, label/mean, prediction/mean, of two classes auc,
// auc_precision_recall, precision, recall, and of a regressor rmse, mae, r2.
// The loss is
// the mean over the batch (TensorFlow 1 summed, which tied the learning rate to
// the batch size). Equal options share graphs and plans.
HK_API hk_status hk_canned_create(hk_context *ctx, const hk_canned_options *opt,
                                  const hk_estimator_options *base,
                                  hk_estimator **out);

// The same in two halves, e.g. for a sweep over the model: fill sets model_fn,
// user and tag of an estimator's options, which need the model to live on.
typedef struct hk_canned hk_canned; // opaque
HK_API hk_status hk_canned_model_create(const hk_canned_options *opt,
                                        hk_canned **out);
HK_API void hk_canned_model_destroy(hk_canned *c); // NULL is allowed
HK_API void hk_canned_fill(hk_canned *c, hk_estimator_options *opt);

HK_END_C
#endif // HOOKE_CANNED_H
