// state_file.h - the file `checkpoint` of a model_dir: which checkpoints there
// are.
//
// TF's text form, so that TF's own tools find the newest one:
//
//     model_checkpoint_path: "model.ckpt-300.safetensors"
//     all_model_checkpoint_paths: "model.ckpt-200.safetensors"
//     all_model_checkpoint_paths: "model.ckpt-300.safetensors"
//     all_model_checkpoint_timestamps: 1700000000.5
//     all_model_checkpoint_timestamps: 1700000600.5
//     last_preserved_timestamp: 1699990000
//
// What TF has no field for stands in comments, which its reader passes over:
//
//     # hooke metric 0.93 "model.ckpt-200.safetensors"
//     # hooke best 1699995000.5 "model.ckpt-100.safetensors"
//     # hooke preserved 1699991000 "model.ckpt-50.safetensors"
//
// best: off the list, kept for its metric; preserved: kept for good.
#ifndef HKI_CKPT_STATE_H
#define HKI_CKPT_STATE_H
#include "base/base.h"

#define HKI_STATE_NAME "checkpoint"

typedef enum hki_record_kind {
    HKI_RECORD_LISTED = 1,   // in TF's list: may be deleted when it is old
    HKI_RECORD_BEST = 2,     // kept while it is among the best
    HKI_RECORD_PRESERVED = 3 // kept for good
} hki_record_kind;

typedef struct hki_record {
    char *path; // relative to the folder, or absolute
    hki_record_kind kind;
    bool has_metric;
    double time; // of its saving, seconds since 1970; 0: unknown
    double metric;
} hki_record;

// Listed ones are in the order of saving. A zeroed struct is an empty one.
typedef struct hki_state {
    hki_record *records;
    size_t count, capacity;
    char *newest;          // the path that TF calls model_checkpoint_path
    double last_preserved; // 0: unknown
} hki_state;

// what: in messages. HK_E_DATA with line number for anything that is not such
// a text. out is empty before; after a failure hki_state_deinit frees it.
hk_status hki_state_parse(const char *text, size_t size, const char *what,
                          hki_state *out);
hk_status hki_state_format(const hki_state *s, hki_buf *out);
void hki_state_deinit(hki_state *s);
hk_status hki_state_copy(const hki_state *from, hki_state *to); // to: empty

// The record of a path; NULL when there is none.
hki_record *hki_state_find(const hki_state *s, const char *path);
// Appends a record; the path is copied.
hk_status hki_state_add(hki_state *s, hki_record_kind kind, const char *path,
                        double time);
void hki_state_drop(hki_state *s, size_t i);
hk_status hki_state_set_newest(hki_state *s, const char *path); // NULL: none

// The step in "model.ckpt-<step>" and "model.ckpt-<step>.<suffix>"; -1: none.
int64_t hki_step_of(const char *path);

#endif // HKI_CKPT_STATE_H
