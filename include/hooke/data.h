// hooke/data.h - where batches come from: datasets, transforms, iterators.
//
//     hk_dataset *d = hk_data_tfrecord(files, n_files, NULL); // hooke/files.h
//     d = hk_data_parse_example(d, features, n_features, NULL);
//     d = hk_data_shuffle(d, 10000, seed, 1);
//     d = hk_data_batch(d, 64, 1);
//     d = hk_data_prefetch(d, HK_DATA_AUTO);
//     if (hk_dataset_status(d) != HK_OK) ...
//     hk_iter_create(d, NULL, &it);
//     while (hk_iter_next(it, &e) == HK_OK) ...
//
// A dataset is a small immutable description, an iterator runs it. Building
// is sticky: a call on a dataset with an error gives a dataset with that
// error; hk_dataset_status() is checked once. Every transform takes its input
// (the reference is consumed): retain it first to use it twice.
//
// An element is a list of named tensors, each a feature or a label.
//
// Threads: datasets are immutable and free for all; an iterator serves one
// thread at a time. With a seed the order is the same whatever the number of
// threads, unless `unordered` was asked for.
#ifndef HOOKE_DATA_H
#define HOOKE_DATA_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/context.h"
#include "hooke/status.h"
#include "hooke/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

// ---- elements -------------------------------------------------------------

typedef enum hk_role {
    HK_FEATURE = 1,
    HK_LABEL = 2
} hk_role;

typedef enum hk_form {
    HK_DENSE_FORM = 1,  // tensor
    HK_SPARSE_FORM = 2, // tensor: values [n]; index: int64 [n, rank];
                        // dense_shape: the whole
    HK_RAGGED_FORM = 3  // tensor: values [n, ...]; index: int64 row splits
                        // [rows + 1]
} hk_form;

// One named tensor of an element. In a dataset's spec tensor and index are
// NULL and unknown dimensions are -1.
typedef struct hk_value {
    const char *name;
    hk_role role;
    hk_form form;
    hk_dtype dtype;
    uint32_t reserved;
    hk_shape shape;    // of the tensor; SPARSE, RAGGED: dense shape (-1 where
                       // ragged)
    hk_tensor *tensor; // borrowed from the element
    hk_tensor *index;  // SPARSE, RAGGED
} hk_value;

typedef struct hk_element {
    size_t count;
    const hk_value *values; // in the order of the spec
} hk_element;

HK_API const hk_value *hk_element_find(const hk_element *e, const char *name);

// ---- datasets -------------------------------------------------------------

typedef struct hk_dataset hk_dataset; // opaque, immutable, reference-counted

HK_API hk_dataset *hk_dataset_retain(hk_dataset *d);
HK_API void hk_dataset_release(hk_dataset *d); // NULL is allowed
// First error of the chain, with its text in hk_last_error(); NULL counts as
// HK_E_NO_MEMORY.
HK_API hk_status hk_dataset_status(const hk_dataset *d);
// What the elements look like.
HK_API const hk_element *hk_dataset_spec(const hk_dataset *d);
// Number of elements; -1 unknown, -2 without end.
HK_API int64_t hk_dataset_count(const hk_dataset *d);

#define HK_DATA_AUTO (-1)    // a number that Hooke chooses
#define HK_DATA_FOREVER (-1) // repeat
#define HK_SEED_NONE INT64_MIN

// What a source or parser does with a damaged record or file.
typedef enum hk_on_error {
    HK_ON_ERROR_FAIL = 0, // hk_iter_next gives the error, with file, record
                          // and byte offset
    HK_ON_ERROR_SKIP = 1  // pass over it; counted in hk_iter_stats and logged
} hk_on_error;

// ---- sources in memory (files: hooke/files.h) -----------------------------

// values: n tensors with names and roles (0: a feature; form 0: dense; dtype
// and shape are the tensor's). hk_data_tensors gives them as one element,
// hk_data_slices cuts them along axis 0. The tensors are retained.
HK_API hk_dataset *hk_data_tensors(const hk_value *values, size_t n);
HK_API hk_dataset *hk_data_slices(const hk_value *values, size_t n);
// "value": int64 scalars start, start + step, ... before stop.
HK_API hk_dataset *hk_data_range(int64_t start, int64_t stop, int64_t step);
// `count` digits from `first` on: "image" uint8 [28, 28, 1], "label" int32.
struct hk_digits_options;
HK_API hk_dataset *hk_data_digits(const struct hk_digits_options *opt,
                                  uint64_t first, int64_t count);

typedef struct hk_builder hk_builder; // below

// A generator: functions of the user's that make elements. Every pass begins
// with create, at its first element.
typedef struct hk_generator {
    void *user;
    hk_status (*create)(void *user, void **state); // NULL: none
    // Sets every value by hk_builder calls. HK_E_END at the end.
    hk_status (*next)(void *user, void *state, hk_builder *b);
    void (*destroy)(void *user, void *state); // NULL: none
    // The position within a pass as bytes, like hk_iter_save. Both NULL: a
    // position is restored by making the elements before it once more.
    hk_status (*save)(void *user, void *state, void *buf, size_t capacity,
                      size_t *size);
    hk_status (*restore)(void *user, void *state, const void *bytes,
                         size_t size);
} hk_generator;
HK_API hk_dataset *hk_data_generator(const hk_generator *gen,
                                     const hk_value *spec, size_t n);

// ---- transforms -----------------------------------------------------------

// An hk_builder makes the outputs of a map or generator: one call per named
// value.

// A dense tensor of the value `name`, to be filled completely; borrowed. shape
// NULL: that of the spec, which is fixed then.
HK_API hk_status hk_builder_tensor(hk_builder *b, const char *name,
                                   const hk_shape *shape, hk_tensor **out);
// Hands a tensor over as it is (retained).
HK_API hk_status hk_builder_set(hk_builder *b, const char *name, hk_tensor *t);
// Sparse or ragged.
HK_API hk_status hk_builder_set_indexed(hk_builder *b, const char *name,
                                        hk_tensor *values, hk_tensor *index,
                                        hk_shape dense_shape);

// f sees an element and fills the outputs declared by `spec`. An output that
// it leaves alone is the input's value of that name. f has to give the same
// for the same call: elements on their way are made again after a restore.
typedef struct hk_map_call {
    const hk_element *in;
    hk_builder *out;
    uint64_t position; // of the element in its pass
    uint64_t seed;     // of the map
    uint64_t pass;     // passes over the data begun before this one
} hk_map_call;
// The i-th random number of a call: a function of seed, pass, position and i.
HK_API uint64_t hk_data_random(const hk_map_call *call, uint64_t i);
typedef hk_status (*hk_map_fn)(void *user, const hk_map_call *call);

typedef struct hk_map_options {
    size_t struct_size;   // set by hk_map_options_init
    const hk_value *spec; // outputs; NULL: as the input
    size_t n_spec;
    int32_t parallel;   // calls at once; 1 (default), HK_DATA_AUTO
    uint32_t unordered; // 1: whichever is ready first
    int64_t seed;
    void (*destroy)(void *user); // with the dataset; NULL: none
} hk_map_options;
HK_API void hk_map_options_init(hk_map_options *opt, size_t struct_size);
HK_API hk_dataset *hk_data_map(hk_dataset *d, hk_map_fn f, void *user,
                               const hk_map_options *opt);
typedef hk_status (*hk_filter_fn)(void *user, const hk_element *e, int *keep);
HK_API hk_dataset *hk_data_filter(hk_dataset *d, hk_filter_fn f, void *user);

// TF's bit-exact order for (87654321, seed); HK_SEED_NONE: a new order in
// every process.
HK_API hk_dataset *hk_data_shuffle(hk_dataset *d, int64_t buffer_size,
                                   int64_t seed, int reshuffle_each_iteration);
// The same with TF's full pair (graph seed, op seed).
HK_API hk_dataset *hk_data_shuffle2(hk_dataset *d, int64_t buffer_size,
                                    uint64_t seed, uint64_t seed2,
                                    int reshuffle_each_iteration);
// HK_DATA_FOREVER over nothing ends.
HK_API hk_dataset *hk_data_repeat(hk_dataset *d, int64_t count);
HK_API hk_dataset *hk_data_batch(hk_dataset *d, int64_t n, int drop_remainder);
// shapes: one per value, -1: the longest of the batch; NULL: all unknown ones.
// padding: one number per value; NULL: zeros, "".
HK_API hk_dataset *hk_data_padded_batch(hk_dataset *d, int64_t n,
                                        const hk_shape *shapes,
                                        const double *padding,
                                        int drop_remainder);
// Values of unequal first dimension become ragged instead of an error.
HK_API hk_dataset *hk_data_ragged_batch(hk_dataset *d, int64_t n,
                                        int drop_remainder);
HK_API hk_dataset *hk_data_unbatch(hk_dataset *d);
// Runs up to n elements ahead in a thread of its own; 0: not at all.
HK_API hk_dataset *hk_data_prefetch(hk_dataset *d, int64_t n);
// Elements whose number is `index` modulo n: one worker's part.
HK_API hk_dataset *hk_data_shard(hk_dataset *d, int64_t n, int64_t index);
HK_API hk_dataset *hk_data_take(hk_dataset *d, int64_t n); // -1: all
HK_API hk_dataset *hk_data_skip(hk_dataset *d, int64_t n); // -1: all
// path NULL or "": in memory. A file is complete after a full pass, and reused
// by whoever builds an equal pipeline; HK_E_EXISTS while another writes it.
HK_API hk_dataset *hk_data_cache(hk_dataset *d, const char *path);
// Values of all, in order; equal names are an error. The shortest ends it.
HK_API hk_dataset *hk_data_zip(hk_dataset *const *ds, size_t n);
HK_API hk_dataset *hk_data_concatenate(hk_dataset *a, hk_dataset *b);
// Windows of `size` elements, `shift` apart, every `stride`th taken; each
// becomes one element, as batch does.
HK_API hk_dataset *hk_data_window(hk_dataset *d, int64_t size, int64_t shift,
                                  int64_t stride, int drop_remainder);
// Adds the int64 scalar `name`, counting from start.
HK_API hk_dataset *hk_data_enumerate(hk_dataset *d, const char *name,
                                     int64_t start);

// Makes the dataset of one element (a file name...); the result is taken.
typedef hk_status (*hk_flat_fn)(void *user, const hk_element *e,
                                hk_dataset **out);
typedef struct hk_interleave_options {
    size_t struct_size;   // set by hk_interleave_options_init
    int64_t cycle_length; // default 1: flat_map
    int64_t block_length; // default 1
    int32_t parallel;     // threads; 1 (default), HK_DATA_AUTO
    uint32_t unordered;
    const hk_value *spec; // of the inner datasets; needed
    size_t n_spec;
} hk_interleave_options;
HK_API void hk_interleave_options_init(hk_interleave_options *opt,
                                       size_t struct_size);
HK_API hk_dataset *hk_data_interleave(hk_dataset *d, hk_flat_fn f, void *user,
                                      const hk_interleave_options *opt);

// Renames, drops and re-roles values: keeps those listed, in this order.
// from: name in d; to: new name (NULL: the same); role 0: as it was.
typedef struct hk_select {
    const char *from, *to;
    hk_role role;
    uint32_t reserved;
} hk_select;
HK_API hk_dataset *hk_data_select(hk_dataset *d, const hk_select *s, size_t n);
// x * scale + offset as float32 for a numeric value: the fast way to
// normalise; fuses with batch. mean, std: per last-axis channel, count 1 or
// channels: (x * scale - mean) / std.
HK_API hk_dataset *hk_data_normalize(hk_dataset *d, const char *name,
                                     double scale, const float *mean,
                                     const float *std, size_t channels);

// ---- iterators ------------------------------------------------------------

typedef struct hk_iter hk_iter; // opaque

typedef struct hk_iter_options {
    size_t struct_size;   // set by hk_iter_options_init
    hk_context *context;  // log, thread budget, stop; NULL: none; borrowed
    uint32_t threads;     // for parallel work, the caller included; 0: the
                          // context's budget or the cores. A prefetch has one
                          // of its own besides
    uint32_t ignore_stop; // 1: goes on after hk_request_stop, for loops that
                          // end at a point of their own
} hk_iter_options;
HK_API void hk_iter_options_init(hk_iter_options *opt, size_t struct_size);
HK_API hk_status hk_iter_create(hk_dataset *d, const hk_iter_options *opt,
                                hk_iter **out);
HK_API void hk_iter_destroy(hk_iter *it); // NULL is allowed
// The next element: borrowed, valid until the next call on this iterator.
// HK_E_END at the end, again and again. Allocates nothing once warm where
// shapes are fixed.
HK_API hk_status hk_iter_next(hk_iter *it, const hk_element **out);
// Elements delivered so far.
HK_API uint64_t hk_iter_delivered(const hk_iter *it);
// The exact position, after the last delivered element, whatever was
// prefetched. With buf NULL only *size is set; too small: HK_E_OVERFLOW.
// HK_E_STATE when a stop cut an element short (docs/data.md).
HK_API hk_status hk_iter_save(hk_iter *it, void *buf, size_t capacity,
                              size_t *size);
// For an iterator of an equal dataset; threads and lengths of prefetching may
// differ. HK_E_DATA for damaged bytes, HK_E_INVALID_ARG when they are of
// another pipeline; the iterator is as new after a failure.
HK_API hk_status hk_iter_restore(hk_iter *it, const void *bytes, size_t size);

typedef struct hk_iter_stats {
    uint64_t delivered;
    uint64_t skipped;    // damaged records passed over (on_error = skip)
    double wait_seconds; // hk_iter_next waited for the pipeline
} hk_iter_stats;
HK_API hk_status hk_iter_get_stats(const hk_iter *it, hk_iter_stats *out);

// ---- leases ---------------------------------------------------------------
//
// Index ranges of an epoch, handed out and returned, so that each example is
// used once per epoch although workers come and go. Plain bookkeeping, saved
// as bytes; whoever holds it (the center) answers requests.

typedef struct hk_leases hk_leases; // opaque; thread-safe

typedef struct hk_lease {
    uint64_t id;
    int64_t epoch, begin, end; // examples [begin, end) of the epoch
} hk_lease;

// count examples an epoch, in ranges of at most `chunk`; epochs -1: no end.
HK_API hk_status hk_leases_create(int64_t count, int64_t chunk, int64_t epochs,
                                  hk_leases **out);
HK_API void hk_leases_destroy(hk_leases *l); // NULL is allowed
// Gives `owner` a range; one that was returned comes first. An epoch begins
// once every range of the last one is given out; HK_E_END after the last.
// HK_E_UNAVAILABLE: all is out and some may come back.
HK_API hk_status hk_leases_take(hk_leases *l, uint64_t owner, hk_lease *out);
// The owner is done with [begin, used_end); the rest goes back.
HK_API hk_status hk_leases_return(hk_leases *l, uint64_t owner, uint64_t id,
                                  int64_t used_end);
// The owner is gone: everything it held goes back.
HK_API hk_status hk_leases_expire(hk_leases *l, uint64_t owner);
HK_API hk_status hk_leases_save(hk_leases *l, void *buf, size_t capacity,
                                size_t *size);
HK_API hk_status hk_leases_restore(hk_leases *l, const void *bytes,
                                   size_t size);
// The examples of a lease in the epoch's order (a seeded permutation of the
// whole, the same for everybody; HK_SEED_NONE: as they are). random_access: an
// array, perhaps with functions of the library, take, skip or shard on it;
// HK_E_UNSUPPORTED otherwise.
HK_API hk_dataset *hk_data_lease(hk_dataset *random_access,
                                 const hk_lease *lease, int64_t seed);

// ---- digits -----------------------------------------------------------------
//
// Handwritten-like digits that the library draws itself: ten classes, 28 x 28
// pixels, as many as one asks for, without a file. Image i is a pure function
// of (options, i), the same bits on every machine, so a data set is a seed and
// an index range, and any worker can draw any part of it. Every ten images
// from an index divisible by ten hold each class once, in a random order.
//
// With the defaults and 20000 images to learn from, a linear model stays below
// 93 % on the test split, 256 hidden units reach 95 to 98 %, and a network
// with two convolutions passes 98 % (tools/check_digits.py measures it).

#define HK_DIGITS_SIDE 28
#define HK_DIGITS_PIXELS 784 // 28 rows of 28, from the top left corner
#define HK_DIGITS_CLASSES 10

// The splits of one seed have no random number in common.
typedef enum hk_digits_split {
    HK_DIGITS_TRAIN = 0,
    HK_DIGITS_TEST = 1
} hk_digits_split;

typedef struct hk_digits_options {
    size_t struct_size;    // set by hk_digits_options_init, never by hand
    uint64_t seed;         // default 0
    hk_digits_split split; // default HK_DIGITS_TRAIN
    float distortion;      // of the shapes, 0 to 2; default 1, 0: fair copies
    float noise;           // grain of ink and paper, 0 to 4; default 1
    float clutter;         // share of images with stray strokes, 0 to 1;
                           // default 0.2
} hk_digits_options;

// Fills *opt with defaults. Pass sizeof *opt, so that the struct may grow.
HK_API void hk_digits_options_init(hk_digits_options *opt, size_t struct_size);

// Draws image `index`.
//   opt    NULL takes every default
//   image  0 is paper, 255 the darkest ink
//   label  the digit, 0 to 9; NULL if not wanted
// Returns HK_E_INVALID_ARG for options out of their range.
HK_API hk_status hk_digits_draw(const hk_digits_options *opt, uint64_t index,
                                uint8_t image[HK_DIGITS_PIXELS],
                                int32_t *label);

// Draws images first to first + n - 1, each pixel divided by 255.
//   n       0 or more; the last index must fit 64 bits
//   images  n * 784 floats from 0 to 1
//   labels  n digits; NULL if not wanted
// Returns HK_E_INVALID_ARG or HK_E_OVERFLOW; nothing is written then.
HK_API hk_status hk_digits_batch(const hk_digits_options *opt, uint64_t first,
                                 int64_t n, float *images, int32_t *labels);

#ifdef __cplusplus
}
#endif
#endif // HOOKE_DATA_H
