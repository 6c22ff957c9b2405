// hooke/event.h - TensorBoard event files, writing and reading.
//
//     hk_event_writer *w;
//     hk_event_open("runs/a", NULL, &w);
//     hk_event_scalar(w, "loss", step, loss);
//     hk_event_close(w);
//
// Usable on its own: no context, no graph. Byte layout: docs/formats/event.md.
//
// Threads: a writer may be used by several threads at once; its calls copy
// and return, a background thread writes. A reader serves one thread.
#ifndef HOOKE_EVENT_H
#define HOOKE_EVENT_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/context.h"
#include "hooke/status.h"

HK_BEGIN_C

typedef struct hk_event_writer hk_event_writer; // opaque

typedef struct hk_event_options {
    size_t struct_size;   // set by hk_event_options_init
    const char *suffix;   // at the end of the file name; NULL: none
    double flush_seconds; // default 10; everything is written at close
    size_t queue_bytes;   // events held back at most before a call waits;
                          // default 8 MiB
    double wall_time;     // >= 0: for every event (tests); default -1: now
    hk_context *context;  // NULL: a disk that takes nothing fails later calls;
                          // else it is logged here once, events are dropped
                          // until the disk takes some again, no call fails
} hk_event_options;

HK_API void hk_event_options_init(hk_event_options *opt, size_t struct_size);
// Makes the folder if need be and a new file events.out.tfevents.* in it.
// HK_E_EXISTS when another writer, here or in another process, has the folder
// (one writer per folder).
HK_API hk_status hk_event_open(const char *dir, const hk_event_options *opt,
                               hk_event_writer **out);
// Writes what is left; the first failure of the background thread, if there
// was one. NULL is allowed.
HK_API hk_status hk_event_close(hk_event_writer *w);
HK_API hk_status hk_event_flush(hk_event_writer *w); // waits; fsync is not done
HK_API const char *hk_event_path(const hk_event_writer *w);

HK_API hk_status hk_event_scalar(hk_event_writer *w, const char *tag,
                                 int64_t step, double value);
// n scalars of one step in one event.
HK_API hk_status hk_event_scalars(hk_event_writer *w, int64_t step, size_t n,
                                  const char *const *tags,
                                  const double *values);
// Distribution of n floats in TensorFlow's buckets; values that are not
// finite are counted apart and reported in *skipped (NULL allowed).
HK_API hk_status hk_event_histogram(hk_event_writer *w, const char *tag,
                                    int64_t step, const float *values, size_t n,
                                    size_t *skipped);
// 8-bit pixels, rows from the top; channels 1, 3 or 4.
HK_API hk_status hk_event_image(hk_event_writer *w, const char *tag,
                                int64_t step, const uint8_t *pixels, int height,
                                int width, int channels);
HK_API hk_status hk_event_text(hk_event_writer *w, const char *tag,
                               int64_t step, const char *markdown);
// SessionLog: 1 START, 2 STOP, 3 CHECKPOINT (with path).
HK_API hk_status hk_event_session(hk_event_writer *w, int64_t step, int status,
                                  const char *checkpoint_path);

// ---- HParams plugin ---------------------------------------------------------

typedef enum hk_hparam_type {
    HK_HPARAM_NUMBER = 1,
    HK_HPARAM_STRING = 2,
    HK_HPARAM_BOOL = 3
} hk_hparam_type;

typedef struct hk_hparam {
    const char *name;
    hk_hparam_type type;
    uint32_t reserved;
    double number;      // NUMBER; BOOL: 0 or not
    const char *string; // STRING
} hk_hparam;

// The experiment: once, in the sweep's own folder. Domains are left open.
//   group  folder below each trial's in which the metrics are written, such as
//          "eval"; NULL: the trial's own
HK_API hk_status hk_event_hparams_experiment(
    hk_event_writer *w, const char *name, const hk_hparam *params, size_t n,
    const char *group, const char *const *metrics, size_t n_metrics);
// One trial: in the trial's folder, at its start and at its end.
HK_API hk_status hk_event_hparams_start(hk_event_writer *w, const char *trial,
                                        const hk_hparam *params, size_t n);
HK_API hk_status hk_event_hparams_end(hk_event_writer *w, int succeeded);

// ---- reading ----------------------------------------------------------------

typedef enum hk_event_kind {
    HK_EVENT_OTHER = 0,
    HK_EVENT_VERSION = 1,
    HK_EVENT_SCALAR = 2, // simple_value, or a scalar tensor
    HK_EVENT_HISTOGRAM = 3,
    HK_EVENT_IMAGE = 4,
    HK_EVENT_TEXT = 5,
    HK_EVENT_SESSION = 6,
    HK_EVENT_HPARAMS = 7
} hk_event_kind;

// One value of one event. Pointers live until the next call.
typedef struct hk_event {
    hk_event_kind kind;
    uint32_t reserved;
    double wall_time;
    int64_t step;
    const char *tag;   // "" where there is none
    double scalar;     // SCALAR; SESSION: its status
    const char *text;  // VERSION, TEXT, SESSION (its path), IMAGE ("HxWxC",
                       // "HxW" where the file does not tell)
    const void *bytes; // IMAGE: encoded; HPARAMS: plugin content
    size_t size;
    // HISTOGRAM; bucket i ends at limits[i]. The sums are NaN in files that
    // do not hold them.
    double min, max, num, sum, sum_squares;
    const double *limits, *counts;
    size_t buckets;
} hk_event;

typedef struct hk_event_reader hk_event_reader; // opaque

// path: a file, or a folder, whose event files are read in the order of their
// names.
HK_API hk_status hk_event_reader_open(const char *path, hk_event_reader **out);
// HK_E_END at the end; a truncated tail counts as the end. HK_E_DATA for a
// damaged record, with file and offset; the call after it goes on behind the
// damage.
HK_API hk_status hk_event_next(hk_event_reader *r, hk_event *out);
// 1 when a file read so far ended in the middle of a record.
HK_API int hk_event_reader_truncated(const hk_event_reader *r);
HK_API void hk_event_reader_close(hk_event_reader *r); // NULL is allowed

HK_END_C
#endif // HOOKE_EVENT_H
