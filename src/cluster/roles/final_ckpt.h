// cluster/roles/final_ckpt.h - the center's values as a checkpoint: what a run
// ends with, whoever of its workers is left.
#ifndef HKI_FINAL_H
#define HKI_FINAL_H
#include "cluster/center/server.h"
#include "hooke/ckpt.h"

// Everything that a checkpoint of a center says.
typedef struct hki_center_copy {
    hk_layout *layout; // retained
    hk_share *share;   // hk_share per entry
    float *values;     // of the whole vector
    int64_t step;
    hk_method method;
    bool chief_left; // worker 0 said good-bye: what it saved is of its end
} hki_center_copy;

// Room for the values of a layout; the rest is empty.
hk_status hki_center_copy_init(hki_center_copy *c, hk_layout *layout,
                               const hk_share *share);
void hki_center_copy_deinit(hki_center_copy *c); // accepts a zeroed one
// The model's variables and the counters of hooke/run/.
hk_status hki_center_copy_map(hki_center_copy *c, hk_name_map *map);

// Where the other shards are. addresses NULL: there is only this one.
typedef struct hki_others {
    const char *const *addresses; // of all shards
    uint32_t n;
    const hk_key *key; // NULL: none
} hki_others;

// A copy of all shards. With several of them each is told that the run is
// over (reason), and that its part has been fetched. HK_E_STATE: the center
// has no values.
hk_status hki_final_fetch(hk_center_server *server, const hki_others *others,
                          const char *reason, int64_t wait_ms,
                          hki_center_copy *out);

// Writes the copy to opt->model_dir, once nobody else writes there, for which
// it waits wait_ms. What worker 0 has saved of its own (average, optimizer,
// its values) is taken over from the newest checkpoint, unless it died before
// the end. A checkpoint that says the same already stays the last one. *path:
// where it is, freed with hki_free.
hk_status hki_final_save(hk_center_server *server, hk_context *ctx,
                         hki_center_copy *c, const hk_saver_options *opt,
                         int64_t wait_ms, char **path);

#endif // HKI_FINAL_H
