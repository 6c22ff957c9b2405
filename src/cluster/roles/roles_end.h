// cluster/roles/roles_end.h - what a center leaves in its folder: the final
// checkpoint, and a note that the run is over.
//
//   run.done      shard 0     {"end": "steps", "global_step": 4000,
//   run-I.done    shard I      "reason": "steps: 4000 of 4000"}
#ifndef HKI_ROLES_END_H
#define HKI_ROLES_END_H
#include "cluster/roles/roles.h"

typedef struct hki_run_files {
    hk_context *context;
    hki_arena arena;       // texts
    const char *directory; // NULL: nothing is left anywhere
    const char *file;      // center file; NULL: none
    hk_saver_options saver;
    const char **addresses; // of all shards; NULL: this one alone, or unknown
    uint32_t shard, n_shards;
    hk_key key;
    bool has_key;
    char *checkpoint; // the final one; NULL: none yet
} hki_run_files;

// Copies what it needs and makes the folder. HK_E_IO, HK_E_DENIED when nothing
// can be written there.
hk_status hki_run_files_init(hki_run_files *f, const hk_role_center_options *o,
                             const hk_center_server_options *so);
void hki_run_files_deinit(hki_run_files *f);

// Whether the run that this center continues was over before, and nobody asks
// for more of it now; *reason: why it ended. If not, what is left of an
// earlier end is removed.
hk_status hki_run_was_over(hki_run_files *f, hk_center_server *server,
                           const hki_limits *limits, bool *over, char *reason,
                           size_t capacity);
// Shard 0: collects all shards, each of which hears of it, and writes the
// final checkpoint.
hk_status hki_run_save(hki_run_files *f, hk_center_server *server,
                       const char *reason);
// Tells observers of files, and a center that is started again, that nothing
// more comes.
hk_status hki_run_done(const hki_run_files *f, const hk_role_result *r);

#endif // HKI_ROLES_END_H
