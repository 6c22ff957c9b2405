// fetch/fetch.h - bytes to read, wherever they lie.
//
// An input is an open file: every source of data reads through one, by its
// position, and may go anywhere in a regular file without reading what lies
// between.
#ifndef HKI_FETCH_H
#define HKI_FETCH_H
#include "base/base.h"

typedef struct hki_input hki_input; // opaque

hk_status hki_input_open(const char *path, hki_input **out);
void hki_input_close(hki_input *in); // NULL is allowed
const char *hki_input_path(const hki_input *in);
// False: nobody knows it, as of a pipe.
bool hki_input_size(const hki_input *in, uint64_t *size);
// At least 1 byte unless at the end (*got 0).
hk_status hki_input_read(hki_input *in, void *out, size_t capacity,
                         size_t *got);
// The bytes that the next read begins with, as many as there are up to `size`;
// *got is less at the end only. size: at most HKI_INPUT_PEEK.
#define HKI_INPUT_PEEK 128
hk_status hki_input_peek(hki_input *in, void *out, size_t size, size_t *got);
// Bytes that this process has read through inputs so far.
uint64_t hki_input_bytes(void);
// HK_E_DATA behind the end, HK_E_IO where there is no going, as in a pipe.
hk_status hki_input_seek(hki_input *in, uint64_t position);

#endif // HKI_FETCH_H
