// fetch/fetch.h - bytes to read, wherever they lie.
//
// An input is an open file, of this machine or behind a URL (https://, s3://):
// every source of data reads through one, by its position, and may go anywhere
// in a regular file without reading what lies between.
#ifndef HKI_FETCH_H
#define HKI_FETCH_H
#include "base/base.h"
#include "hooke/fetch.h"

typedef struct hki_input hki_input; // opaque

// Asked now and then while bytes are waited for; a status that is not HK_OK
// ends that.
typedef struct hki_watch {
    hk_status (*check)(void *user); // NULL: nothing to ask
    void *user;
} hki_watch;

// watch: copied; NULL allowed.
hk_status hki_input_open(const char *path, const hki_watch *watch,
                         hki_input **out);
void hki_input_close(hki_input *in); // NULL is allowed
const char *hki_input_path(const hki_input *in);
// False: nobody knows it, as of a pipe.
bool hki_input_size(const hki_input *in, uint64_t *size);
// As it was when the input was opened.
hk_status hki_input_state(const hki_input *in, hk_file_state *out);
// Reports what is read from now on.
hk_status hki_input_observe(hki_input *in, hk_file_observer observer,
                            void *user);
// At least 1 byte unless at the end (*got 0).
hk_status hki_input_read(hki_input *in, void *out, size_t capacity,
                         size_t *got);
// The bytes that the next read begins with, as many as there are up to `size`;
// *got is less at the end only. size: at most HKI_INPUT_PEEK.
#define HKI_INPUT_PEEK 128
hk_status hki_input_peek(hki_input *in, void *out, size_t size, size_t *got);
// Bytes that this process has read through inputs so far, from other machines
// also those that nobody asked for in the end.
uint64_t hki_input_bytes(void);
void hki_input_count(size_t n); // so many more
// Nothing from this byte on will be wanted: it is not read ahead.
void hki_input_until(hki_input *in, uint64_t end);
// HK_E_DATA behind the end, HK_E_IO where there is no going, as in a pipe.
hk_status hki_input_seek(hki_input *in, uint64_t position);

// ---- URLs ------------------------------------------------------------------

// "<letters>://...", whether it is one that can be read or not.
bool hki_is_url(const char *path);
// Calls add for every file whose URL matches, in any order.
hk_status hki_url_match(const char *pattern,
                        hk_status (*add)(void *user, const char *path),
                        void *user);

#endif // HKI_FETCH_H
