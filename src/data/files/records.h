// data/files/records.h - TFRecord sources for consumers that take the checksum
// of the data while they read it, private to records.c and example.c.
#ifndef HKI_DATA_RECORDS_H
#define HKI_DATA_RECORDS_H
#include "data/files/file_reader.h"

// A record whose length is known to be right. HKI_READER_PAD bytes behind it
// may be read.
typedef struct hki_framed {
    const uint8_t *bytes; // valid until the next call
    size_t size;
    uint32_t crc; // that the data have to have
    uint64_t record, offset;
} hki_framed;

// d is a TFRecord source.
bool hki_records_framed(const hk_dataset *d);
// The next record of such a source, its data unchecked; damaged ones before it
// are treated by the source's policy. HK_E_END at the end.
hk_status hki_framed_next(hki_node *n, hki_framed *out);
// The checksum of the last one turned out wrong: by the source's policy an
// error, or HK_OK to pass it over.
hk_status hki_framed_corrupted(hki_node *n, const hki_framed *r);
// "<path>: record <n> at byte <offset>: <the thread's last error>".
hk_status hki_framed_fail(const hki_node *n, const hki_framed *r, hk_status s);

#endif // HKI_DATA_RECORDS_H
