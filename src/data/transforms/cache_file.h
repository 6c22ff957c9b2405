// data/transforms/cache_file.h - the file of a cache: elements behind one
// another, taken for complete only under its final name.
//
//     "HKCACHE1" | u64 fingerprint of the pipeline | u64 elements |
//     u64 bytes of the file
//     per element a record as in TFRecord files (length, masked CRC32C of it,
//     data, masked CRC32C of the data); the data are the element's values, or
//     a record's bytes, as in a saved position.
#ifndef HKI_CACHE_H
#define HKI_CACHE_H
#include "data/core/pipeline.h"

// ---- writing ---------------------------------------------------------------

typedef struct hki_cache_writer hki_cache_writer; // opaque

// Takes `<path>.lockfile` and begins a file under another name. HK_E_EXISTS
// when somebody else is at it.
hk_status hki_cache_writer_open(const char *path, uint64_t fingerprint,
                                hki_cache_writer **out);
hk_status hki_cache_writer_add(hki_cache_writer *w, const hki_box *b);
// Gives the file its name; w is freed, also after a failure.
hk_status hki_cache_writer_commit(hki_cache_writer *w);
void hki_cache_writer_discard(hki_cache_writer *w); // NULL is allowed

// ---- reading ---------------------------------------------------------------

#define HKI_CACHE_FIRST 32 // byte position of the first element

typedef struct hki_cache_reader hki_cache_reader; // opaque

// HK_E_NOT_FOUND when there is no such file; HK_E_INVALID_ARG when it is of
// another pipeline.
hk_status hki_cache_reader_open(const char *path, uint64_t fingerprint,
                                hki_cache_reader **out);
void hki_cache_reader_close(hki_cache_reader *r); // NULL is allowed
// The element at the position, into a bare box; HK_E_END behind the last.
hk_status hki_cache_reader_next(hki_cache_reader *r, hki_box *b);
// Byte position between two elements.
uint64_t hki_cache_reader_tell(const hki_cache_reader *r);
// HK_E_DATA outside of the file.
hk_status hki_cache_reader_seek(hki_cache_reader *r, uint64_t position);

#endif // HKI_CACHE_H
