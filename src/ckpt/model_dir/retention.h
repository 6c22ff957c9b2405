// retention.h - which checkpoints stay.
//
// TF's rule: a save beyond keep_max takes the oldest off the list and deletes
// it, unless it was saved later than the keep time (last_preserved + n hours);
// then it stays for good and the keep time moves on by n hours. One deletion a
// save. On top of that the best keep_best by metric stay while they are that.
#ifndef HKI_CKPT_RETENTION_H
#define HKI_CKPT_RETENTION_H
#include "ckpt/model_dir/folder.h"

typedef struct hki_retention {
    uint32_t keep_max; // 0: all
    uint32_t keep_best;
    double every_seconds;
    bool best_is_max;
} hki_retention;

// The state after a save of `path` at time `now`. next and doomed (names of
// checkpoints to delete) are empty before; the caller frees both, also after
// a failure.
hk_status hki_retention_save(const hki_retention *r, const hki_state *s,
                             const char *path, double now, hki_state *next,
                             hki_paths *doomed);
// The same after a metric of record number i became known.
hk_status hki_retention_metric(const hki_retention *r, const hki_state *s,
                               size_t i, double value, hki_state *next,
                               hki_paths *doomed);
// Would a record with this metric be among the keep_best?
bool hki_retention_wants(const hki_retention *r, const hki_state *s,
                         double metric);
// The best record with a metric; NULL when none has one.
hki_record *hki_retention_best(const hki_retention *r, const hki_state *s);

#endif // HKI_CKPT_RETENTION_H
