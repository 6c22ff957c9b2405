// data/csv/csv_cut.h - rows as they are cut, private to csv_cut.c and
// csv_rows.c.
#ifndef HKI_DATA_CSV_CUT_H
#define HKI_DATA_CSV_CUT_H
#include "data/csv/csv.h"

// A row under way. Places are offsets from the start of the row.
typedef struct hki_csv_cut {
    const uint8_t *base;      // first byte of the row
    const uint32_t *at, *end; // the index
    uint32_t shift;           // of the row in the index
    size_t start;             // of the next field
    bool last;                // the row is over
    size_t next;              // then: where the next one begins
} hki_csv_cut;

typedef enum hki_csv_verdict {
    HKI_CSV_GOOD = 0,
    HKI_CSV_CUT_OFF,       // the index ends before the row does
    HKI_CSV_QUOTE_INSIDE,  // of an unquoted field
    HKI_CSV_QUOTE_OUTSIDE, // text behind a closing quote
    HKI_CSV_NO_MEMORY
} hki_csv_verdict;

// The row at hand, from its first field on.
hki_csv_cut hki_csv_cut_begin(const hki_csv_reader *c);
// The next field of the row.
hki_csv_verdict hki_csv_next_field(hki_csv_reader *c, hki_csv_cut *k,
                                   hki_csv_field *f);
// Blanks at either end go.
void hki_csv_trim(hki_csv_field *f);
// Indexes the window again from the row at hand on. A row that did not fit the
// last stretch gets twice as much.
hk_status hki_csv_index_more(hki_csv_reader *c);
// Takes n bytes: a row or a line with its end, `used` entries of the index.
void hki_csv_take(hki_csv_reader *c, size_t n, size_t used);
// Passes the rest of the physical line.
hk_status hki_csv_pass_line(hki_csv_reader *c);

// ---- faults ----------------------------------------------------------------

// Notes where to go on after a fault: at the next row, or behind the next line
// end from `at` on when the row was not cut to its end.
void hki_csv_note_resume(hki_csv_reader *c, const hki_csv_cut *k, size_t at);
hk_status hki_csv_bad_quote(hki_csv_reader *c, hki_csv_cut *k,
                            hki_csv_verdict v, size_t field);
// The bytes of the row have to be text.
hk_status hki_csv_check_text(hki_csv_reader *c, hki_csv_cut *k);

#endif // HKI_DATA_CSV_CUT_H
