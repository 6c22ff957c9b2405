// data/data.h - the seam of the data module: how a dataset, a source or a
// function over elements is written.
//
// A dataset (hk_dataset) is an immutable node with a table of functions, a
// config and inputs. An iterator opens one hki_node per dataset of the chain
// and pulls items from the last one:
//
//     batch <- shuffle <- normalize <- slices
//
// Elements are made as late as possible. What travels between nodes is an
// item of 16 bytes: a row number of a source that can be read anywhere
// (HKI_DATA_ROWS), or a box, which owns its tensors or the bytes of a record,
// or is a block: columns of many elements (HKI_DATA_BLOCKS), of which the item
// is the one that its stamp names. A shuffle of images holds row numbers, one
// of a CSV file rows of blocks. Functions (hki_fn_ops: normalise, parse a
// record, decode, crop...) do nothing when an item passes; they run when a
// consumer reads the item through a loader, and then write straight into the
// row of the batch that the element is for.
//
// How to write...
//
//   a table (arrays, IDX, npy, CIFAR: any element by its number)
//       as tensors with hk_data_slices; or flags HKI_DATA_ROWS |
//       HKI_DATA_TABLE, ops: hki_table_pull, view, scratch.
//   a stream of records (TFRecord, text lines, fixed-length records)
//       flags HKI_DATA_RECORDS, ops: open, start, next (hki_record_item),
//       close, save, restore. spec: one string scalar.
//   a stream of parsed elements (generators)
//       ops as above; next fills a box (hki_node_box, hki_rows_*).
//   a stream that parses many elements at once (CSV)
//       flags HKI_DATA_BLOCKS; pull fills a block (hki_node_block) and gives
//       its rows. With fill it writes many rows of a batch at once.
//   a function over elements (parse_example, images, feature columns)
//       hki_fn_ops, and a desc that has them.
//
// Threads: all ops of one node are called by one thread at a time; different
// nodes may run in different threads. `view` and hki_fn_ops.apply may run in
// several threads at once, each with its own scratch.
#ifndef HKI_DATA_H
#define HKI_DATA_H
#include <stdatomic.h>
#include "base/base.h"
#include "hooke/columns.h"
#include "hooke/data.h"
#include "hooke/divide.h"
#include "hooke/feature.h"
#include "tensor/tensor.h"

typedef struct hki_box hki_box;   // an element or a record, counted, pooled
typedef struct hki_pool hki_pool; // boxes for reuse
typedef struct hki_data_run
    hki_data_run;                 // what the nodes of one iterator share
typedef struct hki_node hki_node; // a dataset at work in one iterator
typedef struct hki_gang hki_gang; // helper threads of one iterator

// ---- items -----------------------------------------------------------------

// Which member holds is a property of the dataset (hki_rows_edge). An item
// owns one reference to its box; hki_item_drop gives it back.
typedef struct hki_item {
    union {
        int64_t row;
        hki_box *box;
    };
    // (pass << 40) + position at the source, set by hki_node_next: what random
    // functions derive their numbers from. Never the same twice in a run.
    uint64_t stamp;
} hki_item;

#define HKI_STAMP_PASS 40

// ---- rows: where an element is written -------------------------------------

// One value of `n` elements to come. Numbers and strings of fixed shape have a
// column; all other values (unknown dimensions, sparse, ragged) go to the slot
// of their row, and the batch puts them together later.
typedef struct hki_col {
    char *data;         // numbers of fixed shape: row 0; NULL: no such column
    size_t row_bytes;   // from row to row
    hk_tensor *strings; // strings of fixed shape; NULL: no such column
    int64_t row_items;  // numbers or strings of a row
} hki_col;

typedef struct hki_data_rows {
    const hk_element *spec; // of one row
    hki_col *col;           // one per value
    hki_box **slot;         // one per row; NULL when every value has a column
} hki_data_rows;

// The memory of value k of row i, to be filled completely: row_bytes bytes.
// NULL when the value has no column: use hki_rows_tensor.
static inline void *hki_rows_at(const hki_data_rows *r, size_t k, int64_t i) {
    const hki_col *const c = &r->col[k];
    return c->data == NULL ? NULL : c->data + (size_t)i * c->row_bytes;
}

// [rows, dims of row...]
hk_shape hki_shape_rows(const hk_shape *row, int64_t rows);
// Works for every dense value of numbers: memory for `shape`, which has to
// agree with the spec where that is known (HK_E_SHAPE).
hk_status hki_rows_tensor(hki_data_rows *r, size_t k, int64_t i,
                          const hk_shape *shape, void **data);
// Dense strings: announces the shape, then one call per string (copied).
hk_status hki_rows_strings(hki_data_rows *r, size_t k, int64_t i,
                           const hk_shape *shape);
hk_status hki_rows_string(hki_data_rows *r, size_t k, int64_t i, int64_t j,
                          const void *bytes, size_t size);
// Both of them for all n strings of the shape.
hk_status hki_rows_cells(hki_data_rows *r, size_t k, int64_t i,
                         const hk_shape *shape, const hki_string *cells,
                         int64_t n);
// A sparse value of n entries: values [n] (NULL for strings, which follow by
// hki_rows_string) and index [n, rank], both to be filled.
hk_status hki_rows_sparse(hki_data_rows *r, size_t k, int64_t i, int64_t n,
                          const hk_shape *dense_shape, void **values,
                          int64_t **index);
// A ragged value: values of `shape` and row splits [n_splits], to be filled.
hk_status hki_rows_ragged(hki_data_rows *r, size_t k, int64_t i,
                          const hk_shape *shape, int64_t n_splits,
                          void **values, int64_t **splits);
// A copy of any value of an element, as it is.
hk_status hki_rows_copy(hki_data_rows *r, size_t k, int64_t i,
                        const hk_value *v);

// ---- datasets --------------------------------------------------------------

// Flags of a dataset.
enum {
    HKI_DATA_ROWS = 1,  // items are rows, read through ops->view in any thread
    HKI_DATA_TABLE = 2, // with HKI_DATA_ROWS: element i of every pass is row i,
                        // and count is known
    HKI_DATA_RECORDS = 4, // boxes hold the bytes of the one string scalar (said
                          // for readers; a box knows by itself)
    HKI_DATA_PASSES = 8,  // items are those of inputs[0], unchanged
    HKI_DATA_FN = 16,     // a function over inputs[0], run by loaders
    HKI_DATA_MAY_SKIP =
        32, // an fn that may leave elements out (on_error = skip)
    HKI_DATA_EPOCHS = 512, // the key is no part of saved positions
    HKI_DATA_KEEPS = 256,  // with HKI_DATA_PASSES: no item is lent
    HKI_DATA_BLOCKS = 128, // boxes are blocks; every value has a fixed shape
    HKI_DATA_EACH = 64 // an element comes from one of inputs[0], each by itself
                       // and in their order; some may be left out
};

typedef struct hki_saver hki_saver;
typedef struct hki_restorer hki_restorer;

// The functions of a dataset at work. Optional ones may be NULL.
typedef struct hki_node_ops {
    const char *name; // for messages and the fingerprint
    // Frees the config; NULL: hki_free. Called also when hki_dataset_make
    // fails.
    void (*destroy)(void *config);
    // n->state: so many zeroed bytes, there before open and freed after close.
    size_t state_size;
    // Once per iterator, after that of the inputs. Optional.
    hk_status (*open)(hki_node *n);
    // Ends threads and frees what n->state (perhaps half-built) holds.
    // Optional.
    void (*close)(hki_node *n);
    // Begins a pass from the first element, whatever state the last one is
    // in. Has to be cheap and lazy (open files at the first next): TF starts
    // passes that it never uses. Starts the inputs with hki_node_start. Without
    // it they are started, unless saves_inputs.
    hk_status (*start)(hki_node *n);
    // The next item; HK_E_END at the end, again and again. stamp is set by
    // the caller of this function, hki_node_next. Loops that may run long call
    // hki_run_check. NULL: by `pull`.
    hk_status (*next)(hki_node *n, hki_item *out);
    // Optional, for nodes whose items are cheap: up to `want` of them, at least
    // one, with their stamps; HK_E_END with none. n->count is the caller's to
    // move on. As `next` called as often, only faster.
    hk_status (*pull)(hki_node *n, hki_item *items, int64_t want, int64_t *got);
    // Optional. Fills up to `want` rows from row `first` on; *got may be less,
    // HK_E_END only with *got 0. For streams that write columns faster than
    // elements. A damaged record that is passed over is not counted in *got.
    hk_status (*fill)(hki_node *n, hki_data_rows *rows, int64_t first,
                      int64_t want, int64_t *got);
    // The state within the pass, beyond n->pass and n->count which the caller
    // saves; both NULL: there is none. restore is called on a node that was
    // opened and, if n->pass > 0, started; n->pass and n->count are restored,
    // the inputs are not yet. A failure of save is w's.
    void (*save)(hki_node *n, hki_saver *w);
    hk_status (*restore)(hki_node *n, hki_restorer *r);
    // The caller leaves the inputs alone: they are part of the node's state, or
    // not at work, because only their rows are read.
    bool saves_inputs;

    // HKI_DATA_ROWS: shows the element of a row: sets tensor, index and shape
    // of values[0 .. spec.count). Valid until the next view with this scratch.
    hk_status (*view)(const hk_dataset *d, void *scratch, const hki_item *item,
                      hk_value *values);
    // Optional: value k lies in memory, row by row, row_bytes apart; numbers of
    // fixed shape only. NULL: not this one. Batches then read it directly.
    const void *(*column)(const hk_dataset *d, size_t k, size_t *row_bytes);
    // Optional: makes sure that the columns have the rows of n items.
    // Thread-safe.
    hk_status (*ready)(const hk_dataset *d, const hki_item *items, int64_t n);
    // What view needs, one per thread. Optional.
    hk_status (*scratch_open)(const hk_dataset *d, hki_data_run *run,
                              void **out);
    void (*scratch_close)(void *scratch);
    // HKI_DATA_PASSES over a table: the input's row that is element i.
    // Optional.
    int64_t (*table_row)(const hk_dataset *d, int64_t i);
    // HKI_DATA_ROWS without HKI_DATA_TABLE: a row from saved state may be read.
    bool (*row_valid)(hki_node *n, int64_t row);
    // Sources that can be divided, tables apart. Into how many units, numbered
    // as they lie; -1: it cannot be done. Then seek goes to a unit: `next` or
    // `pull` give its elements, then HK_E_END. *first: the number of its first
    // element in the whole set.
    // *cuts, unless NULL: the hash of where they begin.
    int64_t (*units)(const hk_dataset *d, uint64_t *cuts);
    hk_status (*seek)(hki_node *n, int64_t unit, int64_t *first);
    // The unit of the element of this number, which units has been asked for
    // before; behind the last element: that of the last one. With `units`.
    int64_t (*unit_of)(const hk_dataset *d, int64_t number);
    // Their numbers are 0 to below this one; units has been asked for. NULL: as
    // many as the dataset counts.
    int64_t (*elements)(const hk_dataset *d);
    // HKI_DATA_PASSES that gives those elements of its input whose positions
    // are in [*begin, *end), which are its own on the way in. Optional.
    void (*window)(const hk_dataset *d, int64_t *begin, int64_t *end);
    // Makes a box again of the row items that it was made of. Optional.
    hk_status (*remake)(hki_node *n, const hki_item *items, int64_t count,
                        hki_item *out);
} hki_node_ops;

struct hk_dataset {
    atomic_int refs;
    hk_status status; // of the whole chain so far
    char *message;
    const hki_node_ops *ops;
    void *config;
    const struct hki_fn_ops *fn; // HKI_DATA_FN
    hk_dataset **inputs;
    size_t n_inputs;
    hk_element spec;
    int64_t count; // -1: unknown, -2: no end
    uint64_t fingerprint;
    uint64_t position; // fingerprint that saved positions have: without the
                       // numbers of epochs of hki_data_epochs
    uint32_t flags;
    int32_t parallel; // HKI_DATA_FN: rows at once; 1, n, or HK_DATA_AUTO
    hki_arena arena;  // spec and names
};

typedef struct hki_dataset_desc {
    const hki_node_ops *ops;
    void *config; // taken, also on failure; with config_size copied
    size_t config_size;
    const struct hki_fn_ops *fn;
    hk_dataset *const *inputs; // taken, also on failure
    size_t n_inputs;
    const hk_value *spec; // copied with names; NULL: as inputs[0]
    size_t n_spec;
    hk_value *own_spec; // memory of spec, taken; NULL: the caller's
    int64_t count;      // of a function: worked out
    uint64_t key;       // hash of what makes this config different from others
    uint32_t flags;     // of a function: HKI_DATA_MAY_SKIP or 0
    int32_t parallel; // of a function: rows of a batch worked on at once (0, 1
                      // for cheap ones, HK_DATA_AUTO for decoders)
} hki_dataset_desc;

// Zeroed memory for the config, and for a spec of n values.
hk_status hki_desc_config(hki_dataset_desc *desc, size_t size, void *out);
hk_status hki_desc_spec(hki_dataset_desc *desc, size_t n, hk_value **out);

// Makes the dataset, or one that holds the error (of an input, of the desc);
// NULL when there is no memory even for that.
hk_dataset *hki_dataset_make(const hki_dataset_desc *desc);
// The same when s is HK_OK; else the desc could not be filled, and the dataset
// holds the calling thread's last error.
hk_dataset *hki_dataset_finish(const hki_dataset_desc *desc, hk_status s);
// hk_data_repeat whose saved positions fit any other count: training continues
// when only its number of epochs has changed. Only shards may follow it, as
// other nodes save that their input has ended. Takes d.
hk_dataset *hki_data_epochs(hk_dataset *d, int64_t count);
// A dataset that holds the calling thread's last error, of status s. The
// inputs are taken (an error of theirs wins). For checks of arguments:
//     return hki_dataset_fail(&d, 1, hki_fail(HK_E_INVALID_ARG, ...));
hk_dataset *hki_dataset_fail(hk_dataset *const *inputs, size_t n_inputs,
                             hk_status s);
// True when d can be built on; d may be NULL.
static inline bool hki_dataset_good(const hk_dataset *d) {
    return d != NULL && d->status == HK_OK;
}
// Follows HKI_DATA_PASSES and HKI_DATA_FN down to the dataset that makes the
// items.
const hk_dataset *hki_dataset_base(const hk_dataset *d);
static inline bool hki_rows_edge(const hk_dataset *d) {
    return (hki_dataset_base(d)->flags & HKI_DATA_ROWS) != 0;
}
// Index of a value of the spec by name; -1: none.
int64_t hki_spec_find(const hk_element *spec, const char *name);
// All dimensions known, dense.
bool hki_value_fixed(const hk_value *v);

// Where the rows of a table come from that has not all of them in memory.
typedef struct hki_backing {
    int64_t unit; // rows that come together
    // Writes rows [begin, begin + n), a unit, to the tensors. One at a time.
    hk_status (*load)(void *user, int64_t begin, int64_t n);
    void (*destroy)(void *user);
    void *user;
} hki_backing;
// hk_data_slices over tensors that are filled as rows are asked for; it is
// divided into units of the backing. b->user is taken, also on failure.
hk_dataset *hki_data_backed(const hk_value *values, size_t n,
                            const hki_backing *b);

// ---- functions over elements -----------------------------------------------

// Where a record comes from, for messages. path lives as long as the dataset
// that it is of; NULL: unknown.
typedef struct hki_row_place {
    const char *path;
    uint64_t record, offset;
} hki_row_place;

// One call: an element in, a row out.
typedef struct hki_fn_call {
    hki_data_run *run;
    const hk_element *in;
    hki_data_rows *out; // spec: that of the fn's dataset
    int64_t row;
    uint64_t stamp; // random numbers: hki_rng_init(&rng, seed, stamp)
    int64_t number; // of the element at its source
    const hki_row_place *place; // of a record; NULL: not of one
    bool skip; // set by apply: leave the element out (hki_on_error)
} hki_fn_call;

typedef enum hki_move_kind {
    HKI_MOVE_ROW = 0, // from memory
    HKI_MOVE_BLOCK,   // from a column of the item's block
    HKI_MOVE_NUMBER   // the number of the element, an int64
} hki_move_kind;

// How a value of a batch comes from rows in memory: copied, or by a kernel
// (data/transforms/normalize.h).
typedef struct hki_move {
    hki_move_kind kind;
    const char *from; // ROW: that of row 0
    size_t column;    // BLOCK
    int64_t start;    // NUMBER: added to it
    bool by_row;      // NUMBER: it is that of the item's row
    size_t row_bytes; // 0: strings
    size_t items;     // numbers of a row
    hk_dtype dtype;
    void (*kernel)(float *to, const void *from, size_t n, const float *a,
                   const float *b, size_t period); // NULL: a copy
    const float *a, *b;
    size_t period;
} hki_move;

typedef struct hki_fn_ops {
    const char *name;
    void (*destroy)(void *config); // NULL: the config is another's
    // One per thread; optional. scratch NULL otherwise.
    hk_status (*scratch_open)(const void *config, void **out);
    void (*scratch_close)(void *scratch);
    // Fills every value of row c->row of c->out. Pure: the same for equal
    // config, in and stamp. Record sources show their bytes as the one string
    // scalar: hk_tensor_get_string(c->in->values[0].tensor, 0, &p, &n), no
    // copy.
    hk_status (*apply)(const void *config, void *scratch, hki_fn_call *c);
    // Optional, for functions that choose among values: the same as `apply`
    // without a copy. out: as the spec has them; tensor, index and shape are
    // set, to those of values of c->in or of the scratch.
    hk_status (*show)(const void *config, void *scratch, const hki_fn_call *c,
                      hk_value *out);
    // Optional: the same work as moves of whole columns. in: one per value of
    // the input, out: one per value of the output. False: not possible.
    bool (*moves)(const void *config, hk_isa isa, const hki_move *in,
                  hki_move *out);
} hki_fn_ops;

// ---- nodes -----------------------------------------------------------------

struct hki_node {
    const hk_dataset *d;
    hki_data_run *run;
    void *state; // of the ops
    hki_node **inputs;
    uint64_t pass;  // this one, counted from 1; 0: never started
    int64_t count;  // items given in this pass
    int64_t number; // of the next element in the whole set: part of its stamp
    struct hki_lent *lent; // only these units; NULL: all (core/epoch_part.c)
    bool is_through;       // its window is that of the node that was lent units
    hki_pool *pool;        // of the boxes of d->spec
    hki_box *record;       // the one that hki_record_item lends
    hki_box *packed;       // the block that restored items go to
    bool rows;             // items are rows, not boxes
    bool blocks;           // items are rows of blocks
    bool passes;           // items are those of inputs[0]
};

hk_status hki_node_open(const hk_dataset *d, hki_data_run *run, hki_node **out);
void hki_node_close(hki_node *n); // NULL is allowed
hk_status hki_node_start(hki_node *n);
hk_status hki_node_next(hki_node *n, hki_item *out);
// Up to `want` items, at least one unless there is a fault or the end. Of lent
// records one at a time.
hk_status hki_node_pull(hki_node *n, hki_item *items, int64_t want,
                        int64_t *got);
void hki_node_save(hki_node *n, hki_saver *w);
hk_status hki_node_restore(hki_node *n, hki_restorer *r);

// `pull` of sources with HKI_DATA_TABLE: the position is n->count.
hk_status hki_table_pull(hki_node *n, hki_item *items, int64_t want,
                         int64_t *got);

// ---- boxes -----------------------------------------------------------------

// A free box of n's pool, its tensors of fixed shape there: to be filled as
// row 0 of hki_box_rows, then given out as an item. Records: hki_record_item.
hk_status hki_node_box(hki_node *n, hki_box **out);
// A free block with columns for `rows` rows, to be filled as hki_box_rows; its
// first row will have this stamp, the next one more and so on.
hk_status hki_node_block(hki_node *n, int64_t rows, uint64_t first,
                         hki_box **out);
hki_data_rows *hki_box_rows(hki_box *b);
hki_box *hki_box_retain(hki_box *b);
void hki_box_release(hki_box *b); // NULL is allowed

// Lends `bytes` (in the source's read buffer) as an item: valid until the next
// call on n. Whoever keeps it longer makes a copy (hki_item_keep).
hk_status hki_record_item(hki_node *n, const void *bytes, size_t size,
                          hki_item *out);
// Says where the item that was lent last comes from. Optional.
void hki_record_place(hki_node *n, const char *path, uint64_t record,
                      uint64_t offset);

// Makes an item of the node n outlive n's next call: lent records are copied.
hk_status hki_item_keep(hki_node *n, hki_item *item);

// ---- loaders: reading items ------------------------------------------------

// Reads items of one dataset; one per thread.
typedef struct hki_loader hki_loader;
hk_status hki_loader_open(const hk_dataset *d, hki_data_run *run,
                          hki_loader **out);
void hki_loader_close(hki_loader *l); // NULL is allowed
// One for each input, as scratch of rows or state of a node.
typedef struct hki_readers {
    size_t n;
    hki_loader **loader;
    hk_tensor *counter; // zip's
    int side;           // concatenate: the input in use
} hki_readers;
hk_status hki_readers_open(const hk_dataset *d, hki_data_run *run, void **out);
void hki_readers_close(void *readers); // NULL is allowed
hk_status hki_readers_attach(hki_node *n);
void hki_readers_detach(hki_node *n);
// Shows the element, valid until the next call on l or the item is dropped.
// *skip: an fn left it out; *out is not set then.
hk_status hki_loader_view(hki_loader *l, const hki_item *item,
                          const hk_element **out, bool *skip);
// Writes the element to row i.
hk_status hki_loader_row(hki_loader *l, const hki_item *item,
                         hki_data_rows *rows, int64_t i, bool *skip);

// ---- the run ---------------------------------------------------------------

// HK_E_CANCELLED when the iterator ends, or when the context was asked to stop
// a while ago and the element under way has still not come.
hk_status hki_run_check(hki_data_run *run);
// The same while bytes of another machine are waited for: there even a run that
// ignores stops hears them in the end. run: a hki_data_run.
hk_status hki_run_check_away(void *run);
uint32_t hki_run_threads(hki_data_run *run); // for parallel work, >= 1
hk_isa hki_run_isa(hki_data_run *run);

// A damaged record: with HK_ON_ERROR_FAIL gives s back. With SKIP counts and
// logs hk_last_error() (the first few), sets *skip and gives HK_OK. Statuses
// that are no fault of the data (no memory, cancelled...) always come back.
hk_status hki_on_error(hki_data_run *run, hk_on_error policy, hk_status s,
                       bool *skip);

// ---- state as bytes --------------------------------------------------------
//
// Little-endian. Writers and readers are sticky: after a failure calls do
// nothing and their status tells. What comes in is hostile: check every value.

void hki_save_u64(hki_saver *w, uint64_t v);
void hki_save_i64(hki_saver *w, int64_t v);
void hki_save_bytes(hki_saver *w, const void *bytes, size_t size); // + length

uint64_t hki_restore_u64(hki_restorer *r);
// A number in [low, high]; low and a sticky HK_E_DATA otherwise, whose message
// calls the number `what`.
int64_t hki_restore_i64(hki_restorer *r, const char *what, int64_t low,
                        int64_t high);
// Borrowed from the input; NULL after a failure.
const void *hki_restore_bytes(hki_restorer *r, size_t *size);
// A value does not fit: sticky HK_E_DATA with this text.
hk_status hki_restore_bad(hki_restorer *r, const char *what);

// Items of the node n (rows as numbers, boxes as their content).
void hki_save_item(hki_saver *w, hki_node *n, const hki_item *item);
hk_status hki_restore_item(hki_restorer *r, hki_node *n, hki_item *out);

// ---- leases ---------------------------------------------------------------
//
// Ranges of an epoch that one worker was lent, so that each example is used
// once per epoch although workers come and go (cluster/center/data_plan.h).

typedef struct hki_lease {
    uint64_t id;
    int64_t epoch, begin, end; // examples [begin, end) of the epoch
} hki_lease;

// How many units d can be divided into: an example of a table, a group of rows
// or records of a file that has an index, a whole packed file. -1: it cannot
// be divided. Maps, filters and the library's functions leave units as they
// are; take and skip leave those that they give something of, shard those of
// tables; shuffle, repeat and batch do not.
int64_t hki_data_units(const hk_dataset *d);
// Of a d that has units: tells other data apart, also where it has as many.
uint64_t hki_data_cuts(const hk_dataset *d);
// The examples of the units at positions [begin, end) of the epoch's order, a
// seeded permutation of the units that is the same for everybody
// (HK_SEED_NONE: as they are). Nothing else is read. Examples keep the numbers
// that they have in the whole set (hk_data_enumerate). HK_E_UNSUPPORTED where
// d has no units.
hk_dataset *hki_data_lease(hk_dataset *d, const hki_lease *lease, int64_t seed);

typedef struct hki_lender_books hki_lender_books; // of ranges, opaque

struct hk_lender {
    uint32_t part, parts; // a share of every epoch; or
    // Says what is to be lent; *seed: wished for, then the one that holds.
    hk_status (*declare)(void *user, uint64_t fingerprint, int64_t units,
                         uint64_t *seed);
    // Lends the next range; *used: examples from its beginning that were used
    // before. HK_E_END: nothing for the moment; HK_E_TIMEOUT: no answer yet.
    // NULL: shares.
    hk_status (*take)(void *user, hki_lease *out, int64_t *used);
    void *user;
    hki_lender_books *books; // of take
    bool is_used;            // a dataset takes from it
};

hk_status hki_lender_init(hk_lender *l);
void hki_lender_deinit(hk_lender *l);
// The reader's end: a range is there, n more of its examples are given on, it
// has no more. In the order in which they will be used.
hk_status hki_lender_open(hk_lender *l, const hki_lease *lease, int64_t used);
hk_status hki_lender_give(hk_lender *l, uint64_t id, int64_t n);
void hki_lender_end(hk_lender *l, uint64_t id);
// Another range may be asked for: fewer than two are held, or the trainer waits
// for more examples than were given. Waits for that until the deadline.
bool hki_lender_room(hk_lender *l, int64_t deadline_ns);
// The trainer's end: it waits for n examples (0: it has got them); n more are
// used. finished: a range of which all are, once. release: a range that is
// held, and how many of its examples are used (INT64_MAX: all), until there is
// none; nothing is read from it any more.
void hki_lender_wait(hk_lender *l, int64_t n);
void hki_lender_use(hk_lender *l, int64_t n);
bool hki_lender_finished(hk_lender *l, uint64_t *id);
bool hki_lender_release(hk_lender *l, uint64_t *id, int64_t *used);

// Elements of a batch of the last hk_data_batch in the chain; -1: none.
int64_t hki_dataset_batch(const hk_dataset *d);

// ---- feature columns elsewhere ----------------------------------------------

// Does a column in use read the value `key`?
bool hki_features_read(const hk_feature_set *s, const char *key);

// The transform of a finished set as nodes of an ONNX model: inputs of it are
// named after the columns' keys, and what hk_data_features gives out is given
// to the model. raw: names and types of the inputs; NULL: numbers are float32
// and words strings. dates: their texts are inputs, in place of the numbers
// that hk_data_dates makes of them. A hashed or crossed column's ids are an
// input of their own, "<column>_id". HK_E_UNSUPPORTED names a column that
// cannot be written.
typedef struct hki_onnx hki_onnx;
hk_status hki_features_onnx(const hk_feature_set *s, const hk_element *raw,
                            const hk_date_column *dates, size_t n_dates,
                            hki_onnx *o);

// The date that `key` is a part of, and which; -1: of none.
int64_t hki_date_find(const hk_date_column *dates, size_t n, const char *key,
                      int *part);
// Float32 [batch, 1] nodes of the parts of a text [batch, 1]: the numbers of
// hk_date_parse, NaN for an empty text. A text that is no date fails at the
// run-time.
void hki_date_onnx(hki_onnx *o, const char *text, hk_date_order order,
                   const char **parts);

#endif // HKI_DATA_H
