// csv_dialect.h - how a CSV file is written: its delimiter, whether its first
// line names the columns, and what they are called.
#ifndef CLI_CSV_DIALECT_H
#define CLI_CSV_DIALECT_H
#include "experiment/experiment.h"

typedef struct dialect {
    char delimiter;
    char decimal; // . or , of numbers; 0: none in the first lines has one
    bool header;
    char **names; // of the fields; column_1, column_2... where nobody names one
    size_t n;
} dialect;

// Looks at the first lines of the first file. What the set says of delimiter
// and header holds; the rest is worked out. known: n_known names that a header
// would have, such as the label's. HK_E_END: the file has no lines;
// HK_E_STATE: it is a pipe, which can be read once only.
hk_status dialect_find(const data_user *u, const char *const *files, size_t n,
                       const char *const *known, size_t n_known, dialect *out);
void dialect_free(dialect *d);
const char *dialect_delimiter_name(const dialect *d); // "a comma"

#endif // CLI_CSV_DIALECT_H
