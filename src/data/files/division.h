// data/files/division.h - the files of a source as units that can be read by
// themselves.
//
// A unit is a stretch of a file that begins with a record (a row, a sample),
// or a whole file where that is packed; none spans two files. Where units begin
// is found out by whoever asks first, in one pass over the files, and kept
// beside each file of some size, as ".<name>.hooke-index":
//
//     "HKINDEX1" | u64 key of the format | u64 bytes and time of the file |
//     u64 records of the file | u64 units | u64 offset, record of each |
//     u64 FNV-1a of all before
//
// An index that does not fit its file is made anew. Where it cannot be written
// it goes to the folder of the file options, as ".<name>-<hash of the
// path>.hooke-index", or is kept in memory alone.
#ifndef HKI_DATA_DIVISION_H
#define HKI_DATA_DIVISION_H
#include "data/files/file_reader.h"

// How one file is cut, while that is found out.
typedef struct hki_cut {
    struct hki_cut_unit {
        uint64_t offset, record;
    } * units;
    size_t n, room;
    uint64_t unit_bytes; // or more, the last one apart
    uint64_t records;
} hki_cut;

// The file is open and stands at its first byte, or behind its header.
void hki_cut_begin(hki_cut *c, const hki_stream *file);
// The next record begins at this offset. Calls go from the first one to the
// last; the one behind the last record tells how many there were.
hk_status hki_cut_record(hki_cut *c, uint64_t offset, uint64_t record);
void hki_cut_end(hki_cut *c, uint64_t records);

// How a format finds its records.
typedef struct hki_cutter {
    uint64_t key; // of what the places of records depend on
    // Calls hki_cut_begin, hki_cut_record for every record of the file, and
    // hki_cut_end.
    // Damage behind which no record can be found ends it.
    hk_status (*cut)(const void *config, size_t file, hki_cut *out);
    const void *config;
} hki_cutter;

// Finds out how the files are divided, once. Thread-safe. -1: it cannot be
// done; hk_last_error tells why. *cuts: the hash of where units begin; NULL:
// nobody asks.
int64_t hki_division_units(const hki_files *f, const hki_cutter *how,
                           uint64_t *cuts);
// A unit of a division that is there.
hki_span hki_division_span(const hki_files *f, int64_t unit);
// As ops of a dataset whose config begins with its hki_files: the unit of the
// record of this number in all files together, or the last one; all records.
int64_t hki_division_unit(const hk_dataset *d, int64_t number);
int64_t hki_division_records(const hk_dataset *d);

// folder: for indexes that cannot be kept beside their files; NULL: none.
hk_status hki_division_create(const char *folder, hki_division **out);
void hki_division_destroy(hki_division *v, size_t n_files); // NULL is allowed

// The index of a file as bytes, and back; HK_E_DATA for what is none, or of
// another file.
typedef struct hki_cut_mark {
    uint64_t key, bytes, time;
} hki_cut_mark;
hk_status hki_cut_save(const hki_cut *c, const hki_cut_mark *mark,
                       hki_buf *out);
hk_status hki_cut_restore(hki_cut *c, const hki_cut_mark *mark,
                          const void *bytes, size_t size);

#endif // HKI_DATA_DIVISION_H
