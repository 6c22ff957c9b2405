// raw_rows.h - the rows of a CSV file as they are, to stand beside what a model
// says of them.
#ifndef CLI_RAW_ROWS_H
#define CLI_RAW_ROWS_H
#include "experiment/experiment.h"

typedef struct raw_rows {
    char **names; // of the columns that are kept
    size_t n;
    hk_dataset *data;
    hk_iter *it;
    const hk_element *row; // the one at hand
} raw_rows;

// columns: "all", or names with commas between. 0 or an exit code after a
// message.
int raw_rows_open(raw_rows *r, const data_user *u, const char *columns);
hk_status raw_rows_next(raw_rows *r); // HK_E_END
const char *raw_rows_cell(const raw_rows *r, size_t i, size_t *size);
void raw_rows_close(raw_rows *r);

#endif // CLI_RAW_ROWS_H
