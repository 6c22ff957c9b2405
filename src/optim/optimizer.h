// optim/optimizer.h - the optimizer's handle, shared by the files that make
// it: optimizer.c (create), optimizer_step.c (steps), optimizer_update.c
// (values and slots move) and optimizer_state.c (names, bytes).
#ifndef HKI_OPTIMIZER_H
#define HKI_OPTIMIZER_H
#include "optim/optim.h"

// Neighbouring trainable entries updated with the same coefficients.
typedef struct hki_update_run {
    int64_t begin, end; // floats
    bool decay;         // weight decay applies
} hki_update_run;

// A checked sparse gradient of the current step, its indices unique. entry
// NULL: the table takes no part.
typedef struct hki_prepared {
    const hk_entry *entry;
    size_t entry_index;
    hki_rowset *set;
    const int64_t *indices;
    const float *rows;
    int64_t count;
} hki_prepared;

struct hk_optimizer {
    hk_layout *layout;
    const hki_rule *rule;
    const hki_optim_kernels *k;
    hk_optimizer_options opt; // run-time scalars; pointers are copies or NULL
    hk_schedule *schedule;
    double factor; // of the learning rate, whichever it comes from
    uint32_t threads;
    hki_arena arena; // names

    size_t n_slots;
    hki_slot_def slot[HKI_MAX_SLOTS]; // in creation order
    size_t sorted[HKI_MAX_SLOTS];     // slot indices by name
    float *values[HKI_MAX_SLOTS];     // n_train floats each
    float power[2];
    int halvings; // of the rate, factor and all

    size_t n_entries; // trainable ones
    // Per trainable entry: on the skip list; of this rule, not the other;
    // owned and in the caller's selection; and with a gradient in this step.
    unsigned char *skip, *owned, *selected, *active;
    bool narrowed;       // active is less than selected
    hk_optimizer *other; // second rule; NULL: none
    hki_update_run *runs;
    size_t n_runs;

    hki_tables tables;
    hki_prepared *prepared; // one per table
    size_t n_prepared;

    // Rules with norms per tensor only.
    hki_chunk *chunks;
    size_t n_chunks;
    double (*sums)[2]; // per chunk
    float *rates;      // per trainable entry: rate times trust ratio

    // The step in progress.
    bool in_step;
    bool ahead; // its gradient is taken at x + momentum v
    double rate;
    const hki_update_rule *kernel;
    float c[2][HKI_N_COEFS]; // without and with weight decay
};

// Rebuilds runs from active and skip.
void hki_optimizer_build_runs(hk_optimizer *o);

// A sparse gradient moves every row of its table.
static inline bool hki_optimizer_all_rows(const hk_optimizer *o) {
    return o->opt.sparse_update == HK_SPARSE_BY_KIND
               ? (o->rule->flags & HKI_RULE_ALL_ROWS) != 0
               : o->opt.sparse_update == HK_SPARSE_ALL_ROWS;
}

// One update: the prepared tables, and the active runs in [begin, end).
typedef struct hki_optimizer_job {
    hk_optimizer *o;
    float *x;
    const float *g;     // element 0 of the vector
    float *ema;         // likewise; NULL: none
    int64_t begin, end; // dense range to cover
    int parts;          // of the pass; set by the update
} hki_optimizer_job;

void hki_optimizer_update(hki_optimizer_job *j);

#endif // HKI_OPTIMIZER_H
