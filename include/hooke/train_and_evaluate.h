// hooke/train_and_evaluate.h - training with evaluations in between, exports of
// what they found, and the evaluator's role beside a training elsewhere.
//
//     hk_train_spec t;
//     hk_eval_spec v;
//     hk_train_spec_init(&t, sizeof t);
//     hk_eval_spec_init(&v, sizeof v);
//     t.input = &train;
//     v.input = &held_out;
//     hk_train_and_evaluate(e, &t, &v, &result, NULL);
#ifndef HOOKE_TRAIN_AND_EVALUATE_H
#define HOOKE_TRAIN_AND_EVALUATE_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/estimator.h"
#include "hooke/export.h"
#include "hooke/status.h"

HK_BEGIN_C

typedef enum hk_exporter_kind {
    HK_EXPORT_LATEST = 1, // after every evaluation
    HK_EXPORT_BEST = 2,   // when the metric has improved
    HK_EXPORT_FINAL = 3   // once, at the end
} hk_exporter_kind;

// Exports to <model_dir>/export/<name>/.
typedef struct hk_exporter {
    const char *name; // not empty, unique
    hk_exporter_kind kind;
    uint32_t keep;          // newest ones kept (LATEST, BEST); 0: 5
    const char *metric;     // BEST; NULL: "loss"
    uint32_t larger_better; // BEST
    uint32_t reserved;
    const hk_export_options *options; // NULL: defaults
} hk_exporter;

typedef struct hk_train_spec {
    size_t struct_size; // set by hk_train_spec_init
    const hk_source *input;
    int64_t max_steps; // 0: no limit
    int64_t epochs;
    double max_seconds;
    hk_hook *const *hooks;
    size_t n_hooks;
} hk_train_spec;

typedef struct hk_eval_spec {
    size_t struct_size; // set by hk_eval_spec_init
    const hk_source *input;
    int64_t steps;    // default 100; 0: all
    const char *name; // as in hk_evaluate_options
    hk_hook *const *hooks;
    size_t n_hooks;
    const hk_exporter *exporters;
    size_t n_exporters;
    double start_delay_secs; // default 120; the evaluator's first wait
    double throttle_secs;    // default 600; between evaluations
    hk_weights weights;
    uint32_t worker;
} hk_eval_spec;

HK_API void hk_train_spec_init(hk_train_spec *t, size_t struct_size);
HK_API void hk_eval_spec_init(hk_eval_spec *v, size_t struct_size);

// Trains with an evaluation after the second and later checkpoints (at most
// one every throttle_secs) and one at the end. train, eval: NULL allowed; the
// last evaluation, owned by the caller, NULL when there was none.
HK_API hk_status hk_train_and_evaluate(hk_estimator *e,
                                       const hk_train_spec *train,
                                       const hk_eval_spec *eval,
                                       hk_train_result *result,
                                       hk_eval_result **last);
// The evaluator's role: scores every new checkpoint of model_dir that another
// process writes, exports, and ends when max_steps was scored, a stop was
// requested, or nothing new came for idle_secs (0: never).
HK_API hk_status hk_evaluate_continuously(hk_estimator *e,
                                          const hk_eval_spec *eval,
                                          int64_t max_steps, double idle_secs,
                                          hk_eval_result **last);

HK_END_C
#endif // HOOKE_TRAIN_AND_EVALUATE_H
