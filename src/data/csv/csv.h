// data/csv/csv.h - comma-separated values, private to the files csv*.c.
//
// Reading has two steps. An index over a stretch of the window lists every
// delimiter, quote and line end in it; rows are then cut along the index, and
// each field goes straight to its place in a column.
#ifndef HKI_DATA_CSV_H
#define HKI_DATA_CSV_H
#include "base/isa.h"
#include "data/core/tags.h"
#include "data/files/file_reader.h"

// What the first byte of a field tells of it.
typedef enum hki_csv_first {
    HKI_CSV_PLAIN = 0,
    HKI_CSV_TOKEN, // it may be a missing value
    HKI_CSV_BLANK  // there is something to trim
} hki_csv_first;

// ---- compiled columns ------------------------------------------------------

typedef struct hki_csv_column {
    const char *name;
    hk_dtype dtype;
    size_t k;      // its number among the columns
    int32_t index; // field of a row
    bool required;
    const char *strip; // NULL: nothing
    bool words;        // the number of the text in a vocabulary
    bool allow_unknown;
    hki_tags vocabulary;
    int64_t unknown;
    // For a missing value.
    int64_t default_int;
    double default_float;
    const char *default_text;
} hki_csv_column;

typedef struct hki_csv {
    hki_files files;
    hki_arena arena;
    hki_csv_column *columns;
    size_t n_columns;
    hki_csv_column **by_field; // [n_by_field]: the column of a field, or NULL
    size_t n_by_field;
    int64_t n_fields; // of every row; 0: n_by_field at least
    const char **missing;
    size_t n_missing;
    uint64_t missing_sizes; // bit k: a token of k bytes (63: or more)
    uint8_t first[256];     // what a first byte tells, an hki_csv_first
    bool number_tokens;     // some of them are all digits
    int64_t skip_lines;
    bool header, trim, keep_blank_lines;
    bool decimal_comma, dressed;       // of numbers
    uint8_t delimiter, quote, comment; // quote, comment: 0 for none
    const char *const *names;          // of the header; NULL: none
    size_t n_names;
    hk_value *values; // what comes out
} hki_csv;

// ---- kernels ---------------------------------------------------------------

#define HKI_CSV_SPECIAL (UINT32_C(1) << 31)
#define HKI_CSV_SLACK 64 // entries of `out` beyond n that may be written

#define HKI_CSV_WORDS 8

typedef enum hki_csv_route {
    HKI_CSV_PASS = 0, // the field is not wanted
    HKI_CSV_OTHER,    // always by `other`
    HKI_CSV_STRING,
    HKI_CSV_WORD, // one of a few short words: its number
    HKI_CSV_I32,
    HKI_CSV_I64,
    HKI_CSV_F32,
    HKI_CSV_F64
} hki_csv_route;

// What the kernel does with a field of a row.
typedef struct hki_csv_target {
    hki_csv_route route;
    bool wide;                     // WORD: int64, not int32
    uint8_t strip;                 // a character cut off the end; 0: none
    uint8_t n_words;               // WORD
    void *data;                    // numbers of the column
    hki_string *cells;             // STRING
    uint64_t words[HKI_CSV_WORDS]; // up to 7 bytes, their number in the eighth
} hki_csv_target;

// Rows in their usual form: the right number of fields, none of them quoted,
// at most one blank at either end of each.
typedef struct hki_csv_job {
    const uint8_t *base; // that the index counts from
    const uint32_t *index;
    size_t n_index;
    const hki_csv_target *targets;
    size_t n_fields;
    uint64_t missing_sizes; // fields of these sizes may be missing ones
    const uint8_t *first;   // what a first byte tells, an hki_csv_first
    uint8_t comment;
    bool trim;
    bool number_tokens; // some tokens are all digits
    // Stores a field that is not plain; false: the row is not for the kernel.
    bool (*other)(void *user, size_t field, const uint8_t *p, size_t n,
                  int64_t row);
    void *user;
} hki_csv_job;

typedef struct hki_csv_kernels {
    // Stores up to `want` rows from `row` on, the first of which begins at
    // *start; stops at one that is not for the kernel. Returns how many;
    // *start and *at (of the index) then stand behind them. 8 bytes may be read
    // before every place of the index, and 32 behind it.
    int64_t (*rows)(const hki_csv_job *j, int64_t row, int64_t want,
                    size_t *start, size_t *at);
    // The places of delimiter, quote, CR and LF in p[0 .. n), ascending, all
    // but delimiters with HKI_CSV_SPECIAL; returns how many. *plain: no byte is
    // NUL or above 127. p may be read up to the next multiple of 64 bytes; out
    // has n + HKI_CSV_SLACK entries.
    size_t (*index)(const uint8_t *p, size_t n, uint8_t delimiter,
                    uint8_t quote, uint32_t *out, bool *plain);
} hki_csv_kernels;

HKI_ISA_DECLARE(hki_csv_kernels, hki_csv_kernels_table);

// ---- rows ------------------------------------------------------------------

// A field as it stands in the window, quotes taken off.
typedef struct hki_csv_field {
    const uint8_t *p;
    size_t n;
    bool quoted;
} hki_csv_field;

// The places in a batch that the columns go to.
typedef struct hki_csv_place {
    char *data; // of row 0; strings: NULL
    size_t row_bytes;
    hki_string *cells; // strings, one a row
} hki_csv_place;

typedef struct hki_csv_reader {
    const hki_csv *csv;
    hki_file_reader r;
    const hki_csv_kernels *k;
    uint32_t *index; // places of structure from data[origin] on
    size_t capacity, n_index, at;
    size_t origin, indexed;  // bytes [origin, origin + indexed) of the window
    size_t stretch;          // bytes to index at once
    bool plain;              // the stretch is plain ASCII
    bool closed;             // the stretch ends with a line end of our own
    hki_buf unquoted;        // a field whose doubled quotes were taken out
    hki_csv_target *targets; // n_fields; NULL: no rows for the kernel
    const hki_csv_place *places; // of the rows under way
    // After a fault: bytes to go, and whether the rest of the line goes with
    // them. Neither: the next row is hidden.
    size_t resume;
    bool resume_line;
} hki_csv_reader;

hk_status hki_csv_reader_init(hki_csv_reader *c, const hki_csv *csv,
                              const hki_csv_kernels *k, hki_data_run *run);
void hki_csv_reader_deinit(hki_csv_reader *c);
void hki_csv_reader_rewind(hki_csv_reader *c);
// After hki_file_reader_restore.
void hki_csv_reader_moved(hki_csv_reader *c);

// Up to `want` rows, written from row `row` on. HK_E_END behind the last file,
// with *got 0. After a fault of the data the reader stands before the row that
// has it, and *got counts the good ones before; hki_csv_skip passes it.
hk_status hki_csv_rows(hki_csv_reader *c, const hki_csv_place *places,
                       int64_t row, int64_t want, int64_t *got);
hk_status hki_csv_skip(hki_csv_reader *c);
// After a fault: no row can be found behind it in the file.
static inline bool hki_csv_is_hidden(const hki_csv_reader *c) {
    return c->resume == 0 && !c->resume_line;
}
// Opens the file at hand and passes its header.
hk_status hki_csv_open_file(hki_csv_reader *c);
// Goes to the next line that is a row, with an index that begins before it.
// HK_E_END at the end of the file.
hk_status hki_csv_find_row(hki_csv_reader *c);
// Passes the row at hand, whatever its fields hold. Faults as of hki_csv_rows.
hk_status hki_csv_pass_row(hki_csv_reader *c);
// The next row as fields, for headers and type inference: calls visit for each
// field. HK_E_END at the end of the first file.
typedef hk_status (*hki_csv_visit)(void *user, size_t field,
                                   const hki_csv_field *f);
hk_status hki_csv_scan(hki_csv_reader *c, hki_csv_visit visit, void *user);
// Passes the first lines of a file: a byte-order mark and skip_lines.
hk_status hki_csv_begin(hki_csv_reader *c);

// Reads the header of a file and holds it against that of the first.
// HK_E_END when there is none.
hk_status hki_csv_check_header(hki_csv_reader *c);

// The field as C writes numbers, in room[HKI_CSV_NUMBER] where that differs.
// False: it cannot be a number.
#define HKI_CSV_NUMBER 64
bool hki_csv_number(const hki_csv *c, hki_csv_field *f, uint8_t *room);
bool hki_csv_is_missing(const hki_csv *c, const uint8_t *p, size_t n);

// Fills columns, by_field and values; everything else of c is set.
hk_status hki_csv_columns(hki_csv *c, const hk_csv_options *o);

#endif // HKI_DATA_CSV_H
