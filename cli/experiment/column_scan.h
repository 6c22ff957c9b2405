// column_scan.h - what the columns of a CSV file are, by all of its rows.
#ifndef CLI_COLUMN_SCAN_H
#define CLI_COLUMN_SCAN_H
#include "core/words.h"
#include "experiment/csv_dialect.h"

enum {
    SCAN_ROWS = 1000000,   // a longer file is known by so many of them
    SCAN_DISTINCT = 100000 // values told apart
};

#define SCAN_NO_WORD UINT32_MAX

typedef struct column_facts {
    const char *name; // of the dialect
    char decimal;     // that, too
    bool groups;      // 1,250 is a number
    const char *sign; // $, % and the like of its numbers; NULL: there is none
    int64_t filled, missing;
    int64_t numbers, whole; // among the filled ones
    int64_t comma;          // texts that a decimal comma would make numbers
    int64_t dates[HK_DATE_ORDERS];
    int64_t infinite; // or too large
    int64_t bad_row;  // first one of those; -1: none
    char *bad;
    int64_t odd_row; // first text that is no number; -1: none
    char *odd;
    double min, max, mean, squares; // of the numbers
    bool counts;                    // each is one more than the one before
    double last;
    word_list words; // as far as SCAN_DISTINCT
    // What the label has to do with it.
    double sum, sum_squares, sum_label, sum_label_squares, sum_product;
    int64_t pairs;
    uint32_t *label_of; // by word: the label's word that came with it first
    size_t label_room;
    int64_t strangers; // rows that came with another
} column_facts;

typedef struct table_facts {
    column_facts *column;
    size_t n;
    int64_t rows;
    bool sampled; // there are more
    size_t label; // its column; n: none
    // Of each row.
    uint32_t *label_word; // SCAN_NO_WORD: missing
    double *label_value;  // NaN: missing, or no number
    size_t room;
    int64_t label_missing_row; // first one; -1: none
} table_facts;

// Reads the file once. label: its name, NULL for none. 0 or an exit code after
// a message.
int scan_table(const data_user *u, const char *const *files, size_t n,
               const dialect *d, const char *label, table_facts *out);
void scan_free(table_facts *f);

// Kinds of a column that has values.
bool facts_is_number(const column_facts *c);
bool facts_is_date(const column_facts *c, hk_date_order *order);
double facts_std(const column_facts *c);

#endif // CLI_COLUMN_SCAN_H
