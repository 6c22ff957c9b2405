// weights.h - sets of weights to evaluate, predict and export with.
#ifndef HKI_ESTIMATOR_WEIGHTS_H
#define HKI_ESTIMATOR_WEIGHTS_H
#include "ckpt/ckpt.h"
#include "estimator/model/list.h"
#include "hooke/export.h"

typedef struct hki_weight_set {
    char name[32]; // "center", "ema", "local", "local/3"
    float *x;      // in the layout that was asked for
    float *own;    // x, when it is a copy of this set
} hki_weight_set;

typedef struct hki_weights {
    HKI_LIST(hki_weight_set) sets;
    int64_t step;
    char *checkpoint; // where they come from; NULL: memory
} hki_weights;

// What was read from a checkpoint last.
typedef struct hki_kept {
    char *path;
    int64_t stamp; // of the file
    hk_weights which;
    uint32_t worker;
    uint64_t fingerprint; // of the layout
    hki_weights w;
} hki_kept;
void hki_kept_deinit(hki_kept *k);

typedef struct hki_weights_ask {
    hk_weights which;
    uint32_t worker;
    const char *checkpoint; // NULL: memory, else the newest
    const hk_plan *plan;    // whose layout the values are to have
    bool copy;              // they keep their values whatever comes
} hki_weights_ask;

hk_status hki_weights_get(hk_estimator *e, const hki_weights_ask *ask,
                          hki_weights *out);
void hki_weights_deinit(hki_weights *w);
// Brings sets of one layout into the order of the plan's.
hk_status hki_weights_fit(hki_weights *w, const hk_layout *from,
                          const hk_plan *plan);
// The newest checkpoint of model_dir; damaged ones are told through the log and
// passed over. path: freed with hki_free.
hk_status hki_newest_checkpoint(hk_estimator *e, char **path, int64_t *step);
// HK_E_DATA that names the file, around the last message.
hk_status hki_damaged(const hk_ckpt *c);
// The one set that was asked for; HK_E_INVALID_ARG for several.
hk_status hki_weights_single(const hki_weights *w, float **x);

#endif // HKI_ESTIMATOR_WEIGHTS_H
