// files.h - folders, copies and JSON text, apart from the graph's
// headers.
#ifndef HKI_ESTIMATOR_FILES_H
#define HKI_ESTIMATOR_FILES_H
#include "base/base.h"

hk_status hki_remove_tree(const char *path);
hk_status hki_copy_file(const char *from, const char *to);
hk_status hki_write_file(const char *path, const hki_buf *text);
// A quoted, escaped JSON string.
hk_status hki_quote(hki_buf *b, const char *s);

// Entries of a folder whose names are ten digits, in rising order.
typedef struct hki_numbered {
    int64_t *at; // freed with hki_free
    size_t n, capacity;
} hki_numbered;
hk_status hki_list_numbered(const char *dir, hki_numbered *out);

#endif // HKI_ESTIMATOR_FILES_H
