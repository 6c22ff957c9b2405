// data/core/pipeline.h - what the pipeline's own files share, beyond the seam
// in data/data.h.
#ifndef HKI_DATA_CORE_H
#define HKI_DATA_CORE_H
#include <pthread.h>
#include "data/data.h"

// ---- the run ---------------------------------------------------------------

struct hki_data_run {
    hk_context *context;
    bool ignore_stop;
    uint32_t threads;
    hk_isa isa;
    atomic_bool closing;              // the iterator is being destroyed
    atomic_bool torn;                 // an element was lost by a stop
    atomic_int_fast64_t stop_seen_ns; // when a node first met a stop; 0: never
    atomic_uint_fast64_t skipped;
    hki_gang *gang;
};

hk_status hki_run_open(const hk_iter_options *opt, hki_data_run **out);
void hki_run_close(hki_data_run *run); // after its nodes; NULL is allowed
// Between two elements: HK_E_CANCELLED after a stop, which loses nothing here.
// HK_E_STATE when one was heard in the middle of an element and taken back:
// what the nodes hold is no position.
hk_status hki_run_between(hki_data_run *run);
// A stop was asked for: who makes elements ahead begins no other one.
bool hki_run_stopping(const hki_data_run *run);

// Elements left out in a row, one after the other. Watching them ends a loop
// over data of which nothing is left.
typedef struct hki_skips {
    bool any;
    uint64_t first; // stamp of the first
} hki_skips;
// HK_E_DATA once a whole pass over the source was left out.
hk_status hki_skips_watch(hki_skips *s, uint64_t stamp);

// Waits for the condition, at most a tenth of a second where a context may be
// stopped from outside (by a signal handler, which cannot wake anybody). True:
// there was a stop.
bool hki_run_wait(hki_data_run *run, hki_cond *cond, hki_mutex *lock);
// ---- gang: helper threads --------------------------------------------------
//
// A task is done by a helper, or by whoever waits for it and finds it not
// begun. So nothing hangs however few helpers there are, or when a task waits
// for tasks of its own.

typedef enum hki_task_state {
    HKI_TASK_IDLE = 0,
    HKI_TASK_QUEUED,
    HKI_TASK_RUNNING,
    HKI_TASK_DONE
} hki_task_state;

typedef struct hki_task {
    void (*fn)(void *arg);
    void *arg;
    struct hki_task *prev, *next; // in the queue
    hki_task_state state;         // guarded by the gang
} hki_task;

// run: helpers end when it is stopped; borrowed.
hk_status hki_gang_create(uint32_t helpers, hki_data_run *run, hki_gang **out);
void hki_gang_destroy(hki_gang *g); // the queue is empty; NULL is allowed
void hki_gang_submit(hki_gang *g, hki_task *t);
// The task is idle afterwards. Idle tasks return at once.
void hki_gang_wait(hki_gang *g, hki_task *t);
// The same for the first of n tasks, working on the others meanwhile.
void hki_gang_first(hki_gang *g, hki_task *const *tasks, size_t n);
// True when the task is done (and makes it idle) or was idle.
bool hki_gang_poll(hki_gang *g, hki_task *t);
// Waits until one of the tasks is done, or none is under way. Helpers do them,
// or the caller where there are none.
void hki_gang_any(hki_gang *g, hki_task *const *tasks, size_t n);

// ---- boxes -----------------------------------------------------------------

struct hki_box {
    atomic_int refs;
    bool lent; // a source's own box around its read buffer: not counted
    hki_pool *pool;
    hki_box *next;      // in the free list
    hk_element element; // values below
    hk_value *values;
    hk_tensor **own; // [2 * count]: the pool's tensors and indices, NULL: none
    hki_data_rows rows; // this box as row 0
    hki_box *self;      // rows.slot
    int64_t n_rows;     // a block's; 0: no block
    uint64_t first;     // stamp of a block's first row
    uint64_t *stamps;   // of the rows of a packed block, in any order
    bool packed;
    const uint8_t *bytes; // a record; NULL: an element
    size_t size;
    hki_row_place place;
    uint8_t *store; // of a kept record
    size_t capacity;
    hki_item *recipe; // the row items that the element was made of
    int64_t n_recipe; // 0: none
    int64_t recipe_capacity;
};

hk_status hki_pool_create(const hk_element *spec, hki_pool **out);
// No more boxes are taken; those out come back one by one. NULL is allowed.
void hki_pool_close(hki_pool *p);
// A free box, bare: no value is set.
hk_status hki_pool_take(hki_pool *p, hki_box **out);
// Sets every value of fixed shape to a tensor of the pool.
hk_status hki_box_prepare(hki_box *b);
// The pool's tensor of value k with this shape, now the box's value.
hk_status hki_box_tensor(hki_box *b, size_t k, const hk_shape *shape,
                         hk_tensor **out);
hk_status hki_box_index(hki_box *b, size_t k, const hk_shape *shape,
                        hk_tensor **out);
// hki_box_tensor as a column of rows.
hk_status hki_box_column(hki_box *b, size_t k, const hk_shape *row,
                         const hk_shape *whole, hki_col *out);
// A foreign tensor becomes the value (retained).
void hki_box_set(hki_box *b, size_t k, hk_tensor *t);
void hki_box_set_index(hki_box *b, size_t k, hk_tensor *t);
// Makes the bare box a block of so many rows.
hk_status hki_box_block(hki_box *b, int64_t rows);
// The row of its block that an item is.
static inline int64_t hki_block_row(const hki_item *item) {
    const hki_box *const b = item->box;
    if (__builtin_expect(!b->packed, 1))
        return (int64_t)(item->stamp - b->first);
    int64_t i = 0;
    while (i < b->n_rows - 1 && b->stamps[i] != item->stamp)
        i++;
    return i;
}
// Copies the row of an item's block to row i.
hk_status hki_block_copy(const hki_item *item, hki_data_rows *to, int64_t i);
// Makes *own a tensor of this type and shape that nobody else holds: one that a
// user has kept is left to them.
hk_status hki_tensor_own(hk_tensor **own, hk_dtype dtype,
                         const hk_shape *shape);
hk_status hki_box_keep_bytes(hki_box *b, const void *bytes, size_t size);
// Remembers the row items that the element was made of.
hk_status hki_box_recipe(hki_box *b, const hki_item *items, int64_t n);

// ---- specs -----------------------------------------------------------------

// Shows the n values of an element: tensors, indices and shapes, not copied.
static inline void hki_values_show(hk_value *to, const hk_value *from,
                                   size_t n) {
    for (size_t k = 0; k < n; k++) {
        to[k].tensor = from[k].tensor;
        to[k].index = from[k].index;
        to[k].shape = from[k].shape;
    }
}
// A value fits the spec: dtype, form, and shape where it is known. op: for the
// message.
hk_status hki_value_fits(const char *op, const hk_value *spec,
                         const hk_value *v);
// Known dimensions agree.
static inline bool hki_shape_fits(const hk_shape *spec, const hk_shape *s) {
    bool fits = spec->rank == s->rank;
    for (int i = 0; fits && i < s->rank; i++)
        fits = spec->dim[i] < 0 || spec->dim[i] == s->dim[i];
    return fits;
}
// Copies `n` values, names included, to the arena.
hk_status hki_spec_copy(hki_arena *a, const hk_value *values, size_t n,
                        hk_element *out);
// Checks a spec given by a user.
hk_status hki_spec_check(const char *op, const hk_value *values, size_t n);
uint64_t hki_spec_hash(uint64_t h, const hk_element *spec);

// ---- datasets --------------------------------------------------------------

// Element i of every pass is a row that can be had by its number.
bool hki_is_table(const hk_dataset *d);
int64_t hki_table_row(const hk_dataset *d, int64_t i);
// The chain down to the base has a function in it, or one that may skip.
bool hki_has_fn(const hk_dataset *d);
bool hki_may_skip(const hk_dataset *d);
// The functions of the chain do no more than choose values: they may as well
// run twice.
bool hki_only_shows(const hk_dataset *d);
// Items are boxes that hold one element each.
static inline bool hki_plain_items(const hki_node *n) {
    return !n->rows && !n->blocks && !hki_has_fn(n->d);
}
// Rows at once that the functions of the chain ask for, 1 or more.
uint32_t hki_fn_parallel(const hk_dataset *d, hki_data_run *run);
// d with its functions applied: items are boxes then. d itself when it has
// none. d: taken, in both.
hk_dataset *hki_data_made(hk_dataset *d);
// The same only where functions may leave elements out: for transforms that
// count.
hk_dataset *hki_data_solid(hk_dataset *d);
// d with a counter beside its values; d is taken (zip_data.c).
hk_dataset *hki_zip_counter(hk_dataset *d, const hk_value *counter,
                            int64_t start);
// Hashes integers into a key.
uint64_t hki_key(const char *op, size_t n, const int64_t *numbers);

// ---- nodes -----------------------------------------------------------------

// The node that makes the items which n gives on.
hki_node *hki_node_base(hki_node *n);
void hki_item_free(hki_node *n, hki_item *item);
// The element of an item of l's dataset in a box of n's. *skip: a function left
// it out, and there is none.
hk_status hki_node_load(hki_node *n, hki_loader *l, const hki_item *item,
                        hki_box **out, bool *skip);
// The datasets that go on in several threads take 1, a number, or AUTO.
hk_status hki_parallel_check(const char *op, int32_t parallel);
hk_status hki_node_bare_box(hki_node *n, hki_box **out); // no value is set
// Makes the pool; for nodes that take boxes in several threads.
hk_status hki_node_pool(hki_node *n);

// The values of d's elements as moves, *n of them, hki_free'd by the caller;
// NULL: there is more to do than moving.
hki_move *hki_moves_plan(const hk_dataset *d, hk_isa isa, size_t *n);
// Rows [begin, end) of one value: items[i] to row i of the column.
hk_status hki_move_rows(const hki_move *m, const hki_col *to,
                        const hki_item *items, int64_t begin, int64_t end);
// Writes items [begin, end) of the array to the rows of the same numbers, all
// of which have columns, by moving memory; skips none. Only where
// hki_loader_moves says so: other chains need hki_loader_row.
hk_status hki_loader_move(const hki_loader *l, const hki_item *items,
                          int64_t begin, int64_t end, hki_data_rows *rows);
bool hki_loader_moves(const hki_loader *l);

// ---- epoch_part.c: a part of a dataset ------------------------------------

#define HKI_ORDER_ROUNDS 6

// An epoch's order of the units.
typedef struct hki_order {
    int64_t total;
    int half;      // bits of a half
    bool as_it_is; // no permutation
    uint64_t key[HKI_ORDER_ROUNDS];
} hki_order;
hk_status hki_order_init(hki_order *o, int64_t total, int64_t epoch,
                         int64_t seed);

// What of a source its units are of.
typedef struct hki_window {
    int64_t begin, end; // numbers of elements
    int64_t first_unit;
} hki_window;

// The units of positions [at, end) are still to come; begun: some elements of
// the first were given.
typedef struct hki_lent {
    const hki_order *order;
    uint64_t epoch;
    int64_t at, end;
    bool begun;
    hki_window window;
} hki_lent;

// Tells the node whose units those of n are what it was lent, within the window
// of l; n's dataset has units.
void hki_node_lend(hki_node *n, hki_lent *l);
// The numbers of the source that d has elements of; d has units.
hki_window hki_data_numbers(const hk_dataset *d);
// How many units have something of these.
int64_t hki_data_units_of(const hk_dataset *d, const hki_window *w);
hk_status hki_lent_pull(hki_node *n, hki_item *items, int64_t want,
                        int64_t *got);
// Goes to the unit at hand.
hk_status hki_lent_seek(hki_node *n);
// What n gives by itself, whatever it was lent.
hk_status hki_node_pull_own(hki_node *n, hki_item *items, int64_t want,
                            int64_t *got);
// The stamp of an element of this number: the same for whoever has it in this
// epoch.
static inline uint64_t hki_node_stamp(const hki_node *n, int64_t number) {
    const uint64_t pass = n->lent != NULL ? n->lent->epoch + 1 : n->pass;
    return (pass << HKI_STAMP_PASS) + (uint64_t)number;
}

// ---- elements as bytes -----------------------------------------------------

struct hki_saver {
    hki_buf buf;
    hk_status status;
};
struct hki_restorer {
    const uint8_t *p, *end, *begin;
    hk_status status;
};
void hki_saver_deinit(hki_saver *w);
// The content of a box: record or values.
void hki_save_box(hki_saver *w, const hki_box *b);
hk_status hki_restore_box(hki_restorer *r, hki_box *b);

// The row of an item's block; one more row of a packed block that has room.
void hki_save_block_row(hki_saver *w, const hki_item *item);
hk_status hki_restore_block_row(hki_restorer *r, hki_box *block,
                                uint64_t stamp);

void hki_save_fault(hki_saver *w, const hki_fault *f);
void hki_restore_fault(hki_restorer *r, hki_fault *f);
void hki_save_rng(hki_saver *w, const hki_rng *rng);
void hki_restore_rng(hki_restorer *r, hki_rng *rng);

// ---- builders --------------------------------------------------------------

struct hk_builder {
    const char *op; // for messages
    hki_box *box;   // bare at first
};
// Every value is set; those that are not come from `in` where it has them by
// name and type (NULL: none do).
hk_status hki_builder_finish(hk_builder *b, const hk_element *in);

#endif // HKI_DATA_CORE_H
