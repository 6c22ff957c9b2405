// history.h - results of evaluations, as event files and in memory.
#ifndef HKI_ESTIMATOR_HISTORY_H
#define HKI_ESTIMATOR_HISTORY_H
#include "estimator/model/list.h"
#include "hooke/estimator.h"
#include "hooke/event.h"

typedef struct hki_series {
    char *eval; // "" for eval
    char *tag;
    HKI_LIST(int64_t) steps;
    HKI_LIST(double) values;
} hki_series;

// Event files of evaluations.
typedef struct hki_eval_log {
    char *name;
    hk_event_writer *writer;
} hki_eval_log;

// eval: name of the evaluation, "" for the plain one. begin comes before the
// first result of a process.
hk_status hki_history_begin(hk_estimator *e, const char *eval);
hk_status hki_history_add(hk_estimator *e, const char *eval, const char *tag,
                          int64_t step, double value);
void hki_history_deinit(hk_estimator *e);
// "<model_dir>/eval" or "<model_dir>/eval_<name>", in e->path; NULL without a
// model_dir.
const char *hki_eval_dir(hk_estimator *e, const char *name);
// The event file of an evaluation; NULL without a model_dir, or room on the
// disk.
hk_status hki_eval_writer(hk_estimator *e, const char *eval,
                          hk_event_writer **out);

#endif // HKI_ESTIMATOR_HISTORY_H
