// evaluation.h - an evaluation in its parts, and one beside training.
#ifndef HKI_ESTIMATOR_EVALUATION_H
#define HKI_ESTIMATOR_EVALUATION_H
#include "cluster/cluster.h"
#include "estimator/saved/weights.h"
#include "estimator/workers/engine.h"

// ---- evaluate.c -------------------------------------------------------------

typedef struct hki_evaluation hki_evaluation; // opaque

hk_status hki_evaluation_create(hk_estimator *e, const hk_source *input,
                                const hk_evaluate_options *opt,
                                hki_bench *bench, hki_engine_share share,
                                hki_evaluation **out);
void hki_evaluation_destroy(hki_evaluation *v); // NULL is allowed
// One pass, on any thread. weights: taken, in the layout `from`; NULL: asked
// for.
hk_status hki_evaluation_run(hki_evaluation *v, hki_weights *weights,
                             const hk_layout *from);
void hki_evaluation_cancel(hki_evaluation *v); // from another thread
// The result into history, event file and log; rates the checkpoint.
hk_status hki_evaluation_tell(const hki_evaluation *v, hk_eval_result **out);

// ---- scoring.c --------------------------------------------------------------

typedef struct hki_scoring hki_scoring; // opaque

// The weights in memory as an evaluator's source of live weights: new at every
// visit, and at the end unless these were evaluated last.
void hki_scoring_find(const hk_estimator *e, const hki_evaluator *v,
                      hki_found_weights *out);

// Everything is called by worker 0, or between train calls.
hk_status hki_scoring_create(hk_estimator *e, const hk_source *input,
                             const hk_evaluate_options *opt, hki_scoring **out);
void hki_scoring_destroy(hki_scoring *s);        // cancels it; NULL is allowed
bool hki_scoring_is_busy(const hki_scoring *s);  // begun, and not told yet
bool hki_scoring_is_ready(const hki_scoring *s); // there is something to tell
// Where the workers leave no core free, an evaluation is followed by as long a
// rest: true during it.
bool hki_scoring_rests(const hki_scoring *s);
// Copies the weights as they are now and scores them beside.
hk_status hki_scoring_begin(hki_scoring *s);
// Waits for the result of the one under way, if there is one, and tells it. A
// stop that was asked for in the middle leaves none.
hk_status hki_scoring_end(hki_scoring *s);
// The last result, which becomes the caller's; NULL: there is none.
hk_eval_result *hki_scoring_take_result(hki_scoring *s);

#endif // HKI_ESTIMATOR_EVALUATION_H
