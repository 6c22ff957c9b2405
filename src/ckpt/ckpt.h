// ckpt/ckpt.h - what other modules may use beside hooke/ckpt.h.
#ifndef HKI_CKPT_H
#define HKI_CKPT_H
#include <stdbool.h>
#include "base/base.h"
#include "hooke/ckpt.h"

HKI_SCOPED_HANDLE(hk_ckpt, hk_ckpt_close)
HKI_SCOPED_HANDLE(hk_saver, hk_saver_destroy)

// Values in memory that are read like a checkpoint: those of a center file.
typedef struct hki_ckpt_memory {
    const char *path;       // in messages; copied
    const hk_name_map *map; // names and shapes are copied, values borrowed
    const hk_meta *meta;    // copied
    size_t n_meta;
    void (*release)(void *owner); // called by hk_ckpt_close; NULL: nobody
    void *owner;                  // has what the map points to
} hki_ckpt_memory;

// After a failure the owner is still the caller's.
hk_status hki_ckpt_from_memory(const hki_ckpt_memory *m, hk_ckpt **out);

const char *hki_ckpt_path(const hk_ckpt *c); // of what was opened
// Would a checkpoint with this metric be one of the saver's keep_best?
bool hki_saver_is_best(const hk_saver *s, double value);
// hk_saver_save in two halves: the copy, and the file of it. The next save or
// hold drops a copy that was not kept.
hk_status hki_saver_hold(hk_saver *s, const hk_name_map *map, int64_t step,
                         const hk_meta *meta, size_t n_meta);
hk_status hki_saver_keep(hk_saver *s); // HK_E_STATE when none is held
// Removes all of its checkpoints.
hk_status hki_saver_clear(hk_saver *s);

#endif // HKI_CKPT_H
