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

HK_BEGIN_C

// ---- elements -------------------------------------------------------------

typedef enum hk_role { HK_FEATURE = 1, HK_LABEL = 2 } hk_role;

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
// TF's full pair of seeds as one; each counts modulo 2^31 - 1.
#define HK_SEED_PAIR(graph, op)                                                \
    (INT64_C(1) << 62 | (int64_t)((uint64_t)(graph) % 0x7fffffff) << 31 |      \
     (int64_t)((uint64_t)(op) % 0x7fffffff))

// What a source or parser does with a damaged record or file.
typedef enum hk_on_error {
    HK_ON_ERROR_FAIL = 0, // hk_iter_next gives the error, with file, record
                          // and byte offset
    HK_ON_ERROR_SKIP = 1  // pass over it; counted in hk_iter_info and logged
} hk_on_error;

// ---- sources in memory (files: hooke/files.h) -----------------------------

// values: n tensors with names and roles (0: a feature; form 0: dense; dtype
// and shape are the tensor's). hk_data_tensors gives them as one element,
// hk_data_slices cuts them along axis 0. The tensors are retained.
HK_API hk_dataset *hk_data_tensors(const hk_value *values, size_t n);
HK_API hk_dataset *hk_data_slices(const hk_value *values, size_t n);
// "value": int64 scalars start, start + step, ... before stop.
HK_API hk_dataset *hk_data_range(int64_t start, int64_t stop, int64_t step);
// Digits that the library draws: hooke/digits.h.

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
// Hands tensors over as they are (retained): those of v, for the value of its
// name. Sparse and ragged values have an index, and a shape of the whole.
HK_API hk_status hk_builder_set(hk_builder *b, const hk_value *v);

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

// TF's bit-exact order. seed: TF's op seed, its graph seed is 87654321;
// HK_SEED_PAIR: both; HK_SEED_NONE: a new order in every process.
HK_API hk_dataset *hk_data_shuffle(hk_dataset *d, int64_t buffer_size,
                                   int64_t seed, int reshuffle_each_iteration);
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
// The exact position, after the last delivered element, whatever was
// prefetched. With buf NULL only *size is set; too small: HK_E_OVERFLOW.
// HK_E_STATE when a stop cut an element short (docs/data.md).
HK_API hk_status hk_iter_save(hk_iter *it, void *buf, size_t capacity,
                              size_t *size);
// For an iterator of an equal dataset; threads and lengths of prefetching may
// differ. HK_E_DATA for damaged bytes, HK_E_INVALID_ARG when they are of
// another pipeline; the iterator is as new after a failure.
HK_API hk_status hk_iter_restore(hk_iter *it, const void *bytes, size_t size);

typedef struct hk_iter_info {
    uint64_t delivered;  // elements so far
    uint64_t skipped;    // damaged records passed over (on_error = skip)
    double wait_seconds; // hk_iter_next waited for the pipeline
} hk_iter_info;
HK_API hk_status hk_iter_get_info(const hk_iter *it, hk_iter_info *out);

HK_END_C
#endif // HOOKE_DATA_H
