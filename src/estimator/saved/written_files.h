// written_files.h - folders and JSON text, apart from the graph's
// headers.
#ifndef HKI_ESTIMATOR_WRITTEN_FILES_H
#define HKI_ESTIMATOR_WRITTEN_FILES_H
#include "base/base.h"

hk_status hki_remove_tree(const char *path);
hk_status hki_write_file(const char *path, const hki_buf *text);
// A quoted, escaped JSON string.
hk_status hki_quote(hki_buf *b, const char *s);

#endif // HKI_ESTIMATOR_WRITTEN_FILES_H
