// hooke/ckpt.h - checkpoints: named tensors to and from files.
//
//     hk_saver_options o;
//     hk_saver_options_init(&o, sizeof o);
//     o.model_dir = "run";
//     hk_saver_create(&o, &saver);            // locks the folder
//     hk_saver_save(saver, map, step, NULL, 0); // copies, writes beside
//     ...
//     hk_saver_restore(saver, map, NULL, &report);
//
// The native format is safetensors: the center under plain names, so that any
// reader of safetensors gets the model, everything else in sections by prefix
// (HK_SECTION_*). TF's checkpoint V2 and .npz are read and written as well.
// Layouts: docs/formats/checkpoint.md.
//
// Threads: a handle serves one thread at a time; handles are independent.
#ifndef HOOKE_CKPT_H
#define HOOKE_CKPT_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/context.h"
#include "hooke/status.h"
#include "hooke/tensor.h"

HK_BEGIN_C

// Prefixes of a native checkpoint's sections; plain names are the model (the
// center when elastic). %u stands for a worker's number.
#define HK_SECTION "hooke/"         // nothing under it is the model itself
#define HK_SECTION_EMA "hooke/ema/" // averages
#define HK_SECTION_CENTER "hooke/center/"    // outer optimizer, averages of c
#define HK_SECTION_WORKER "hooke/worker/%u/" // x, slots, scalars, RNG, data
#define HK_SECTION_RUN "hooke/run/" // global_step, turn, run-wide counters

typedef enum hk_ckpt_format {
    HK_CKPT_AUTO = 0,        // by path and content
    HK_CKPT_SAFETENSORS = 1, // one file, or shards with an index
    HK_CKPT_TF = 2,          // tensor bundle: prefix.index, prefix.data-*
    HK_CKPT_NPZ = 3,
    HK_CKPT_CENTER = 4 // a center file, through hk_weights_open only
} hk_ckpt_format;

// A string that travels with a checkpoint (not in npz and TF files).
typedef struct hk_meta {
    const char *key, *value;
} hk_meta;

// ---- reading ---------------------------------------------------------------

typedef struct hk_ckpt hk_ckpt; // opaque; an open checkpoint

typedef struct hk_ckpt_entry {
    const char *name;      // lives as long as the handle
    const char *type_name; // as the file says: "F32", "DT_BFLOAT16", "<f4"
    hk_dtype dtype;        // 0: a type that Hooke does not hold, see read
    uint32_t reserved;
    hk_shape shape;
    uint64_t bytes; // in the file
} hk_ckpt_entry;

// Opens a checkpoint. path: a safetensors file, an index of shards
// (*.safetensors.index.json), a TF prefix (or its .index), an .npz, or a
// model_dir, whose newest complete checkpoint is taken.
HK_API hk_status hk_ckpt_open(const char *path, hk_ckpt_format format,
                              hk_ckpt **out);
HK_API void hk_ckpt_close(hk_ckpt *c); // NULL is allowed

typedef struct hk_ckpt_info {
    const char *path; // of what was opened
    hk_ckpt_format format;
    uint32_t reserved;
    size_t entry_count;
    const hk_meta *meta; // in the order of the file
    size_t meta_count;
} hk_ckpt_info;
// Pointers live as long as the handle.
HK_API hk_status hk_ckpt_get_info(const hk_ckpt *c, hk_ckpt_info *out);
// Sorted by name; NULL past the end.
HK_API const hk_ckpt_entry *hk_ckpt_item(const hk_ckpt *c, size_t i);
HK_API const hk_ckpt_entry *hk_ckpt_find(const hk_ckpt *c, const char *name);
// NULL when there is no such key.
HK_API const char *hk_ckpt_meta(const hk_ckpt *c, const char *key);
// Reads a tensor of `shape` (NULL: whatever it has) into data, elements of
// type t. Float types (F16, BF16, F32, F64) convert into each other, integer
// types where every value fits (HK_E_RANGE); other pairs are HK_E_DTYPE.
// Checksums are verified where the file has them: HK_E_DATA, as for a file
// that was cut meanwhile.
HK_API hk_status hk_ckpt_read(hk_ckpt *c, const char *name, hk_dtype t,
                              const hk_shape *shape, void *data);
// The same into a new tensor (strings too), of the nearest type that holds
// every value: F16 becomes float32, I8 int32, U32 int64.
HK_API hk_status hk_ckpt_read_tensor(hk_ckpt *c, const char *name,
                                     hk_tensor **out);

// ---- restoring a map, warm start -------------------------------------------

// A renaming: the map's name -> the checkpoint's. One `*` stands for any text
// and is carried over ("*" -> "*/ExponentialMovingAverage").
typedef struct hk_rename {
    const char *to;   // name (or pattern) in the map
    const char *from; // name (or pattern) in the checkpoint
} hk_rename;

typedef struct hk_restore_options {
    size_t struct_size;       // set by hk_restore_options_init
    const char *vars;         // POSIX extended regex on the map's names, must
                              // match all of it; NULL: every name
    const char *const *names; // or a list of names
    size_t n_names;           // one that is not in the map: HK_E_NOT_FOUND
    const hk_rename *rename;  // first match wins
    size_t n_rename;
    uint32_t allow_missing; // 1: names without a tensor keep their values
    uint32_t allow_shape;   // 1: tensors of another shape are left out
                            // instead of an error
    uint32_t reserved[2];
} hk_restore_options;

HK_API void hk_restore_options_init(hk_restore_options *opt,
                                    size_t struct_size);

// What a restore did.
typedef struct hk_restore_report {
    size_t taken;      // places of the map that were filled
    size_t left;       // tensors of the checkpoint that nobody asked for
    size_t missing;    // places without a tensor
    size_t mismatched; // places whose tensor has another shape
    char *text; // one line per name that was not simply taken: "missing: w",
                // "left: b F32 [3]", "taken: x from y", "converted: ...",
                // "mismatched: ..."; owned by the report
} hk_restore_report;

// Reads c's tensors into the places of map. Nothing is written before every
// name, type and shape has been checked; damage that shows while reading
// (HK_E_DATA, HK_E_IO) leaves the map half filled. report: NULL allowed, else
// initialised here and freed by hk_restore_report_deinit.
HK_API hk_status hk_ckpt_restore(hk_ckpt *c, hk_name_map *map,
                                 const hk_restore_options *opt,
                                 hk_restore_report *report);
HK_API void hk_restore_report_deinit(hk_restore_report *r);

// ---- writing one checkpoint ------------------------------------------------

typedef struct hk_write_options {
    size_t struct_size;    // set by hk_write_options_init
    hk_ckpt_format format; // AUTO: by the path's end, else safetensors
    uint32_t tf_shards;    // TF: data files; default 1
    uint64_t shard_bytes;  // safetensors: files larger than this are split;
                           // default 5 GB, 0: never
    const hk_meta *meta;
    size_t n_meta;
    const hk_rename *rename; // as in hk_restore_options: `to` is the map's
    size_t n_rename;         // name, `from` what the file calls it
    uint32_t tf_partitions;  // TF: tensors are written in so many slices of
                             // rows, as partitioned variables; default 1
    uint32_t reserved;
} hk_write_options;

HK_API void hk_write_options_init(hk_write_options *opt, size_t struct_size);
// Temporary file, fsync, rename, fsync of the folder: path is complete or as
// it was before, wherever a crash may fall. HK_E_EXISTS when somebody else is
// writing the same path. A checkpoint of shards is opened by the same path.
HK_API hk_status hk_ckpt_write(const char *path, const hk_name_map *map,
                               const hk_write_options *opt);

// ---- from one format to another --------------------------------------------

typedef struct hk_copy_options {
    size_t struct_size;            // set by hk_copy_options_init
    const hk_write_options *write; // NULL: defaults; its renamings do not count
    // What a tensor is called in the copy; NULL leaves it out. The text lives
    // until the next call. NULL: every tensor, under its name.
    const char *(*name)(void *user, const hk_ckpt_entry *e);
    void *user;
    const hk_name_map *more; // written beside them; NULL: none
} hk_copy_options;

HK_API void hk_copy_options_init(hk_copy_options *opt, size_t struct_size);
// Tensors of c into a new checkpoint at path, elements as they are: F16 stays
// F16, I8 stays I8, and complex64 and F8 travel although hk_ckpt_read cannot
// read them. Types that the other format does not have are left out, and the
// report has a line for each ("left: ..."); BF16 becomes float32 in npz
// ("converted: ..."). HK_E_NOT_FOUND when nothing remains. All of them are in
// memory at once. report: NULL allowed; freed by hk_restore_report_deinit.
HK_API hk_status hk_ckpt_copy(hk_ckpt *c, const char *path,
                              const hk_copy_options *opt,
                              hk_restore_report *report);

// ---- the checkpoints of a model_dir ----------------------------------------

typedef struct hk_saver hk_saver; // opaque

typedef struct hk_saver_options {
    size_t struct_size;        // set by hk_saver_options_init
    hk_context *context;       // log; NULL: silent; borrowed
    const char *model_dir;     // made if need be
    const char *basename;      // default "model.ckpt": model.ckpt-<step>.*
    hk_ckpt_format format;     // SAFETENSORS (default) or TF
    uint32_t keep_max;         // default 5; 0: all
    double keep_every_n_hours; // default 10000; keep one for good that often
    uint32_t keep_best;        // as many stay for their metric; default 0
    uint32_t best_is_max;      // 1: larger is better
    uint32_t background;       // 1 (default): a thread writes the copy
    uint32_t no_fsync;         // 1: for tests on slow disks
    uint64_t shard_bytes;      // as hk_write_options
} hk_saver_options;

HK_API void hk_saver_options_init(hk_saver_options *opt, size_t struct_size);
// Locks model_dir for this handle and clears away what a crash left behind.
// HK_E_EXISTS when another live one has it: the message names its process.
HK_API hk_status hk_saver_create(const hk_saver_options *opt, hk_saver **out);
// Waits for a save under way; ask hk_saver_wait first whether it succeeded.
// NULL is allowed.
HK_API void hk_saver_destroy(hk_saver *s);

// Copies the map's values and returns; the file is written beside (a second
// save waits for the first). A failure of the writing goes to the log and
// comes back, once, from the next save (which then does nothing else) or wait.
// hooke.step and hooke.version are added to the metadata.
HK_API hk_status hk_saver_save(hk_saver *s, const hk_name_map *map,
                               int64_t step, const hk_meta *meta,
                               size_t n_meta);
HK_API hk_status hk_saver_wait(hk_saver *s); // until the last save is on disk
// Makes the room for the copy now, so that the first save makes a step wait no
// longer than the others. Optional.
HK_API hk_status hk_saver_reserve(hk_saver *s, const hk_name_map *map);

// The calls below wait for a save under way. Paths live until the next save or
// metric.

// The result of an evaluation of the checkpoint of `step`, for keep_best. One
// that is not finite is never the best. HK_E_NOT_FOUND when the checkpoint is
// not there (any more).
HK_API hk_status hk_saver_metric(hk_saver *s, int64_t step, double value);
// Makes the checkpoint of `step` the one that counts as the newest. Others
// stay as they are. HK_E_NOT_FOUND as above.
HK_API hk_status hk_saver_go_back(hk_saver *s, int64_t step);

typedef struct hk_saved {
    const char *path;
    int64_t step;
    double metric; // NaN: not known
} hk_saved;
typedef struct hk_saver_info {
    const hk_saved *items; // oldest first
    size_t item_count;
    const hk_saved *best; // by metric, of those that are there; or NULL
} hk_saver_info;
HK_API hk_status hk_saver_get_info(hk_saver *s, hk_saver_info *out);
// The newest complete checkpoint. One that is torn or missing is reported
// through the log and passed over. HK_E_NOT_FOUND when there is none,
// HK_E_DATA when there are some and all of them are damaged.
HK_API hk_status hk_saver_open_latest(hk_saver *s, hk_ckpt **out,
                                      int64_t *step);
// Opens and restores in one: a checkpoint whose damage shows only while it is
// read is passed over, too.
HK_API hk_status hk_saver_restore(hk_saver *s, hk_name_map *map,
                                  const hk_restore_options *opt,
                                  hk_restore_report *report);

// Without a lock, for observers: the newest complete checkpoint of a folder, as
// hk_saver_open_latest finds it. log: NULL is silent. *step: -1 when unknown;
// step may be NULL.
HK_API hk_status hk_ckpt_open_latest(hk_context *log, const char *model_dir,
                                     hk_ckpt **out, int64_t *step);
// Its path (size bytes of room; HK_E_RANGE when it is longer) and step alone;
// silent. path, step: NULL allowed.
HK_API hk_status hk_latest_checkpoint(const char *model_dir, char *path,
                                      size_t size, int64_t *step);

HK_END_C
#endif // HOOKE_CKPT_H
