// data/features/feature_plan.h - a feature set bound to a dataset's spec;
// private to feature_apply.c and feature_emit.c.
#ifndef HKI_FEATURE_PLAN_H
#define HKI_FEATURE_PLAN_H
#include "data/features/feature.h"

// The inputs that the columns read are numbered: field f is value
// value[f] of an element. Immutable, shared by all threads.
typedef struct hki_feature_plan {
    hk_feature_set *set; // retained
    bool batched;
    size_t n_fields;
    size_t *value;
    const char **key;    // of each field
    size_t *field;       // by column: of its key
    size_t **leaf_field; // by column: of each key of a cross
    size_t n_labels;
    size_t *label; // values that pass through
    hki_arena arena;
} hki_feature_plan;

// What one thread needs.
typedef struct hki_plan_scratch {
    int64_t rows;
    size_t n_fields, n_columns;
    hki_cells *cells; // by field
    hki_cells_scratch *cells_scratch;
    hki_ids *ids; // by column
    hki_ids *raw; // by field: as an input of crosses
    bool *has_raw;
    const hki_ids **leaf;
} hki_plan_scratch;

// Fills "dense" [rows, n_dense].
hk_status hki_emit_dense(const hki_feature_plan *p, const hki_plan_scratch *w,
                         float *out);
// Fills an id or weight output: [rows, values], or packed with `splits`
// (rows + 1, NULL if not wanted).
hk_status hki_emit_rows(const hki_out *o, const hki_ids *ids,
                        const hki_cells *weights, int64_t rows, void *out,
                        int64_t *splits);
// Ids and weights have the same places, and the weights are finite.
hk_status hki_weights_check(const hk_column *c, const hki_cells *ids,
                            const hki_cells *weights);

#endif // HKI_FEATURE_PLAN_H
