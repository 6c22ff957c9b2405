// optim/optim.h - what the files of this module share.
//
// An update rule is one entry of a const table (rules.c) and one kernel of the
// place where the vectors live (backend/vector.h). Optimizer, gradients and
// average follow the values: they move to where x is when it is somewhere else.
#ifndef HKI_OPTIM_H
#define HKI_OPTIM_H
#include "backend/vector.h"
#include "base/base.h"
#include "hooke/average.h"
#include "hooke/gradproc.h"
#include "hooke/optim.h"
#include "tensor/tensor.h"

_Static_assert(HKI_MAX_SLOTS == HK_MAX_SLOTS, "slots of kernels and rules");

// Gradients whose dense part is a vector; view.dense is its host memory. Rows
// of sparse ones may be where the values are: then view.sparse has none, and
// indices for those only who look at them.
typedef struct hki_grads {
    hk_grad_view view;
    hki_vector *dense;
    const hki_rows_away *away; // of each sparse one; NULL: view.sparse has them
} hki_grads;

// The shadow in host memory, for reading and writing, and the number of
// updates: for savers.
hk_status hki_ema_values(hk_ema *e, float **out);
hk_status hki_ema_assign(hk_ema *e, const float *values);
int64_t *hki_ema_counter(hk_ema *e);

// ---- sets of rows -----------------------------------------------------------

// Rows of one table gathered by index, repeated ones summed. `mark` remembers
// which rows are in the set: (epoch << 32 | position), epoch 0 is never used.
typedef struct hki_rowset {
    int64_t n_rows, dim; // of the table
    uint64_t *mark;      // per row
    uint32_t epoch;
    int64_t count, capacity; // rows in the set
    int64_t *indices;
    float *rows;
} hki_rowset;

hk_status hki_rowset_init(hki_rowset *s, int64_t n_rows, int64_t dim);
void hki_rowset_deinit(hki_rowset *s);
hk_status hki_rowset_reserve(hki_rowset *s, int64_t rows);
void hki_rowset_clear(hki_rowset *s);
// HK_E_RANGE for an index outside the table.
hk_status hki_rowset_check(const hki_rowset *s, const char *table,
                           const int64_t *indices, int64_t count);
// Empties the set and marks checked indices with their positions. False when
// one occurs twice: hki_rowset_clear, then hki_rowset_add sums them.
bool hki_rowset_mark(hki_rowset *s, const int64_t *indices, int64_t count);
// Position of a row in what was marked or added last; -1: not there.
static inline int64_t hki_rowset_find(const hki_rowset *s, int64_t row) {
    const uint64_t m = s->mark[row];
    return m >> 32 == s->epoch ? (int64_t)(m & UINT32_MAX) : -1;
}
// Adds count rows times scale to the set (indices were checked). Grows by
// count rows before it looks for repeated ones.
hk_status hki_rowset_add(hki_rowset *s, const int64_t *indices,
                         const float *rows, float scale, int64_t count);

// The sparse trainable entries of a layout, one set each.
typedef struct hki_tables {
    size_t count;
    size_t *entry; // layout entry of each table
    hki_rowset *set;
} hki_tables;

hk_status hki_tables_init(hki_tables *t, const hk_layout *l);
void hki_tables_deinit(hki_tables *t);
// The table that a sparse gradient belongs to, checked against the layout:
// entry, dim, counts, pointers. `what` opens the message.
hk_status hki_tables_find(const hki_tables *t, const hk_layout *l,
                          const hk_sparse_grad *g, const char *what,
                          size_t *out);

// Checks a view's shape against a layout, not its indices.
hk_status hki_grad_view_check(const hk_layout *l, const hk_grad_view *v,
                              const char *what);

// ---- bytes ------------------------------------------------------------------

// Little-endian writer. With data NULL it only counts.
typedef struct hki_writer {
    unsigned char *data;
    size_t size;
} hki_writer;

void hki_write_u32(hki_writer *w, uint32_t v);
void hki_write_u64(hki_writer *w, uint64_t v);
void hki_write_f64(hki_writer *w, double v);
void hki_write_f32s(hki_writer *w, const float *v, int64_t n);
void hki_write_bytes(hki_writer *w, const void *bytes, size_t n);

// Runs `body` once to count and once to write, and appends a hash of what it
// wrote: the two-call protocol of the save functions.
typedef void (*hki_save_fn)(const void *object, hki_writer *w);
hk_status hki_save(const void *object, hki_save_fn body, const char *what,
                   void *buf, size_t capacity, size_t *size);

// Reader; after a short read `ok` is false and zeros come back.
typedef struct hki_reader {
    const unsigned char *data;
    size_t size;
    bool ok;
} hki_reader;

// Checks the hash at the end; *r covers what lies before it.
hk_status hki_reader_init(hki_reader *r, const void *bytes, size_t size,
                          const char *what);
uint32_t hki_read_u32(hki_reader *r);
uint64_t hki_read_u64(hki_reader *r);
double hki_read_f64(hki_reader *r);
void hki_read_f32s(hki_reader *r, float *out, int64_t n);
// Steps over n bytes; NULL when there are fewer.
const unsigned char *hki_read_skip(hki_reader *r, uint64_t n);

// ---- rules ------------------------------------------------------------------

typedef struct hki_slot_def {
    const char *name;
    size_t initial; // offset of its start value in the options; 0: `start`
    float start;
} hki_slot_def;

// One hyper-parameter: its name is the field's. Values fit a float.
typedef struct hki_hyper {
    const char *name;
    size_t offset;    // in hk_optimizer_options
    double low, high; // range
    bool above_low;   // low itself is refused
    bool below_high;  // high itself is refused
    bool create_only; // later changes are refused
} hki_hyper;

typedef enum hki_rule_flags {
    HKI_RULE_POWERS = 1,    // keeps beta1_power, beta2_power
    HKI_RULE_PER_ENTRY = 2, // needs norms per tensor (LARS, LAMB)
    HKI_RULE_ALL_ROWS = 4   // sparse gradients move every row, as in TF
} hki_rule_flags;

typedef struct hki_rule {
    hk_optimizer_kind kind;
    const char *name; // TF's default name
    uint32_t flags;
    hki_slot_def slot[HKI_MAX_SLOTS]; // in creation order; name NULL ends
    const hki_hyper *hyper[8];        // the rate first; NULL ends
    hk_optimizer_options defaults;    // values only
    hki_rule_kernel (*kernel)(const hk_optimizer_options *o);
    // Fills c for one step; decay false: an entry without weight decay.
    void (*prepare)(const hk_optimizer_options *o, double rate,
                    const float power[2], int64_t global_step, bool decay,
                    float *c);
} hki_rule;

const hki_rule *hki_rule_find(hk_optimizer_kind kind);
// NULL when the rule has no such hyper-parameter.
const hki_hyper *hki_rule_hyper(const hki_rule *r, const char *name);
hk_status hki_hyper_check(const hki_rule *r, const hki_hyper *h, double v);
double hki_hyper_get(const hk_optimizer_options *o, const hki_hyper *h);
void hki_hyper_put(hk_optimizer_options *o, const hki_hyper *h, double v);
// Every value and flag of *o against the rule.
hk_status hki_rule_check(const hki_rule *r, const hk_optimizer_options *o);
// The slots of a rule under these options, in creation order; returns how
// many.
size_t hki_rule_slots(const hki_rule *r, const hk_optimizer_options *o,
                      hki_slot_def out[HKI_MAX_SLOTS]);

// ---- schedules and averages, as the optimizer uses them -------------------

void hki_schedule_write(const hk_schedule *s, hki_writer *w);
hk_status hki_schedule_read(hki_reader *r, hk_schedule **out);

// Whether a fused pass over [0, n) may write the shadow: every entry in the
// range is averaged.
bool hki_ema_is_fused(const hk_ema *e, int64_t n);
// The shadow where x lives.
hk_status hki_ema_shadow(hk_ema *e, const hki_vector *x, float **out);
// The rest of an update of the flat vector whose floats [0, done) are
// averaged already; counts the update.
hk_status hki_ema_update_rest(hk_ema *e, hki_vector *x, int64_t done);
// One update of the flat vector for `steps` steps at once: d^steps takes the
// place of d, as if x had stood still meanwhile.
hk_status hki_ema_update_steps(hk_ema *e, const float *x, double steps);
hk_status hki_ema_follow(hk_ema *e, const hki_place *at);
const hk_layout *hki_ema_layout(const hk_ema *e);
double hki_ema_decay(const hk_ema *e);    // the d of the next update
bool hki_ema_sequential(const hk_ema *e); // sees values after the step
// Multiplies the learning rate, constant or scheduled, of the steps to come; 1
// at first. Not part of what is saved.
void hki_optimizer_set_factor(hk_optimizer *o, double factor);
bool hki_optimizer_looks_ahead(const hk_optimizer *o); // either of its rules
// hk_optimizer_apply and hk_optimizer_look_ahead (y is x) on vectors.
hk_status hki_optimizer_apply(hk_optimizer *o, hki_vector *x,
                              const hki_grads *grads, int64_t global_step,
                              hk_ema *ema);
hk_status hki_optimizer_look_ahead(hk_optimizer *o, hki_vector *x);
// Slots move to a place; NULL: home. Steps do it by themselves.
hk_status hki_optimizer_follow(hk_optimizer *o, const hki_place *at);
const hk_layout *hki_optimizer_layout(const hk_optimizer *o);
const char *hki_optimizer_name(const hk_optimizer *o);
// Slots and powers as they were at the start; rates stay.
hk_status hki_optimizer_forget(hk_optimizer *o);
// How often the rate is halved, beside its factor; 0 at first. Not part of what
// is saved either.
void hki_optimizer_set_halvings(hk_optimizer *o, int times);
int hki_optimizer_halvings(const hk_optimizer *o);
// What brings a norm down to clip: clip / max(norm, clip).
double hki_norm_factor(double clip, double norm);
void hki_gradproc_forget(hk_gradproc *p); // what was accumulated; NULL allowed
// hk_gradproc_run on vectors; NULL: home.
hk_status hki_gradproc_run(hk_gradproc *p, const hki_grads *in, hki_grads *out,
                           int *ready);
hk_status hki_gradproc_follow(hk_gradproc *p, const hki_place *at);
size_t hki_optimizer_slot_count(const hk_optimizer *o);
const char *hki_optimizer_slot_name(const hk_optimizer *o, size_t i); // sorted

#endif // HKI_OPTIM_H
