// data/files/flat_file.h - a file of which any bytes can be had: from where it
// lies, as they are asked for, or from memory where it is packed or elsewhere.
#ifndef HKI_DATA_FLAT_FILE_H
#define HKI_DATA_FLAT_FILE_H
#include "data/files/file_reader.h"

typedef struct hki_flat_file {
    hki_stream *file; // NULL: all of it is in bytes
    uint8_t *bytes;
    uint64_t size;
} hki_flat_file;

// Within opt's limits.
hk_status hki_flat_open(const char *path, const hk_file_options *opt,
                        hki_flat_file *out);
// Exactly size bytes; HK_E_DATA where the file ends before. One thread at a
// time.
hk_status hki_flat_read(const hki_flat_file *f, uint64_t offset, void *out,
                        size_t size);
void hki_flat_close(hki_flat_file *f); // a zeroed one, too

#endif // HKI_DATA_FLAT_FILE_H
