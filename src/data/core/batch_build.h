// data/core/batch_build.h - puts rows together to one element: batch, padded
// batch, ragged batch and window.
#ifndef HKI_BATCHER_H
#define HKI_BATCHER_H
#include "data/core/pipeline.h"

typedef enum hki_part_kind {
    HKI_PART_COLUMN = 0, // fixed shape: rows are written side by side
    HKI_PART_STACK,      // shapes are known when the rows are there, all equal
    HKI_PART_PAD,        // filled up to a common shape
    HKI_PART_RAGGED,     // any first dimension, all in one, with row splits
    HKI_PART_SPARSE      // entries of all rows, the row first in the index
} hki_part_kind;

typedef struct hki_batch_part {
    hki_part_kind kind;
    hk_shape pad;   // HKI_PART_PAD: of a row, -1: the longest
    double padding; // of numbers; strings get ""
} hki_batch_part;

typedef enum hki_batch_style {
    HKI_BATCH_PLAIN = 0,
    HKI_BATCH_PADDED,
    HKI_BATCH_RAGGED
} hki_batch_style;

// How each value of d is put together, and the spec of the result; rows: of
// the result, -1 unknown. shapes, padding: as hk_data_padded_batch.
hk_status hki_parts_plan(const char *op, const hk_dataset *d,
                         hki_batch_style style, const hk_shape *shapes,
                         const double *padding, int64_t rows,
                         hki_batch_part *parts, hk_value *spec);

typedef struct hki_batcher {
    hki_node *n; // the boxes are of its pool
    const hk_element *row_spec;
    const hki_batch_part *parts;
    bool has_slots;
    int64_t room;       // rows that there is memory for
    int64_t slot_room;  // of the array
    hki_data_rows rows; // where rows are written while one is under way
    hki_box *box;       // under way; NULL: none
    hki_pool *slot_pool;
} hki_batcher;

hk_status hki_batcher_open(hki_batcher *b, hki_node *n,
                           const hk_element *row_spec,
                           const hki_batch_part *parts);
void hki_batcher_close(hki_batcher *b); // also half-built or zeroed
// Takes a box and makes room for at least `rows` rows.
hk_status hki_batcher_begin(hki_batcher *b, int64_t rows);
// More room; rows written so far stay.
hk_status hki_batcher_reserve(hki_batcher *b, int64_t rows);
// Puts the first `rows` rows together; *out is the caller's.
hk_status hki_batcher_finish(hki_batcher *b, int64_t rows, hki_box **out);
// Gives the box under way back; nothing when there is none.
void hki_batcher_abandon(hki_batcher *b);

#endif // HKI_BATCHER_H
