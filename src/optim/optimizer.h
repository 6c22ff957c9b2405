// optim/optimizer.h - the optimizer's handle, shared by the files that make
// it: optimizer.c (create), optimizer_step.c (steps), optimizer_update.c
// (values and slots move) and optimizer_state.c (names, bytes).
#ifndef HKI_OPTIMIZER_H
#define HKI_OPTIMIZER_H
#include "optim/optim.h"

struct hk_optimizer {
    hk_layout *layout;
    const hki_rule *rule;
    hk_optimizer_options opt; // run-time scalars; pointers are copies or NULL
    hk_schedule *schedule;
    double factor;       // of the learning rate, whichever it comes from
    hki_place home;      // in host memory
    const hki_place *at; // where the slots are
    hki_arena arena;     // names

    size_t n_slots;
    hki_slot_def slot[HKI_MAX_SLOTS]; // in creation order
    size_t sorted[HKI_MAX_SLOTS];     // slot indices by name
    hki_vector values[HKI_MAX_SLOTS]; // n_train floats each
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
    hki_table_rows *prepared; // of the current step, indices unique
    size_t n_prepared;

    // Rules with norms per tensor, and those that look ahead.
    hki_chunk *chunks;
    size_t n_chunks;
    double (*sums)[2], (*table_sums)[2]; // per chunk, per table
    float *rates, *table_rates; // per trainable entry, per table: rate times
                                // trust ratio

    // The step in progress.
    bool in_step;
    bool ahead; // its gradient is taken at x + momentum v
    double rate;
    hki_rule_kernel kernel;
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

// The slots in host memory, of both rules.
hk_status hki_optimizer_open(hk_optimizer *o, hki_access a);

// One update of x, where it lives, by the dense gradients in [begin, end) and
// the prepared tables. ema: its shadow at the same place; NULL: none.
hk_status hki_optimizer_update(hk_optimizer *o, hki_vector *x, hki_vector *g,
                               float *ema, int64_t begin, int64_t end);

#endif // HKI_OPTIMIZER_H
