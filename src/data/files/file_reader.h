// data/files/file_reader.h - what the sources that read files one after the
// other share: the list of files with its options, and a window on the bytes of
// the file at hand.
//
//     data[begin .. end)   bytes read and not yet taken
//     offset               of data[begin] in the file, as unpacked
//
// HKI_READER_FRONT bytes before `begin` may be read. HKI_READER_PAD bytes
// behind `end` may be read and written: kernels load whole words there, and
// text readers set a line end.
#ifndef HKI_DATA_READER_H
#define HKI_DATA_READER_H
#include "base/io.h"
#include "codec/codec.h"
#include "data/data.h"
#include "hooke/files.h"

#define HKI_READER_FRONT 16
#define HKI_READER_PAD 64

typedef struct hki_division hki_division; // data/files/division.h

// Part of the config of a source.
typedef struct hki_files {
    hki_paths paths;
    hk_file_options opt;
    hki_division *division;
} hki_files;

// A stretch of a file that can be read by itself.
typedef struct hki_span {
    size_t file;
    uint64_t offset, end; // end UINT64_MAX: that of the file
    uint64_t record;      // number of the first record in the file
    int64_t number;       // the same in all files together
} hki_span;

// The paths that a list of files and patterns stands for; out: set on success
// only.
hk_status hki_files_match(const char *const *files, size_t n_files,
                          hki_paths *out);
// Finds the files and checks the options. what: names the source in messages.
hk_status hki_files_init(hki_files *f, const char *const *files, size_t n_files,
                         const hk_file_options *opt, const char *what);
void hki_files_deinit(hki_files *f);
// Checks the options alone; opt NULL: the defaults.
hk_status hki_file_options_get(hk_file_options *out, const hk_file_options *opt,
                               const char *what);
// For a dataset's key: the names without their folders, which may differ from
// machine to machine.
uint64_t hki_files_key(const hki_files *f);

// Opens a file, packed as `compression` says or its first bytes tell. records:
// it holds TFRecord framing, whose first bytes may happen to look like a
// packing's. run: may stop it; NULL: nobody does.
hk_status hki_open_unpacked(const char *path, const hk_file_options *opt,
                            bool records, hki_data_run *run, hki_stream **out);
// A whole file, unpacked, within opt's limits; *bytes is freed with hki_free.
hk_status hki_read_whole(const char *path, const hk_file_options *opt,
                         uint8_t **bytes, size_t *size);

typedef struct hki_file_reader {
    const hki_files *files;
    hki_data_run *run;  // NULL: nobody stops it
    bool records;       // see hki_open_unpacked
    bool rows;          // of a table: people count them from 1
    hki_stream *stream; // NULL: the file is still to be opened
    size_t file;        // index of the file at hand
    uint64_t record;    // number of the next record in it
    uint64_t offset;
    uint8_t *data;
    size_t capacity, begin, end;
    bool at_end;  // the file has no more bytes than the window
    bool bounded; // to one span
    hki_span span;
} hki_file_reader;

hk_status hki_file_reader_init(hki_file_reader *r, const hki_files *files,
                               bool records, hki_data_run *run);
void hki_file_reader_deinit(hki_file_reader *r);
// Back to the first byte of the first file; opens nothing.
void hki_file_reader_rewind(hki_file_reader *r);
// To the first byte of the span, which is read as if nothing else were there.
hk_status hki_file_reader_bound(hki_file_reader *r, const hki_span *span);
// Opens the file at hand if need be and goes to `offset` of it. *fresh: it was
// opened, at its first byte. HK_E_END behind the last file.
hk_status hki_file_reader_open(hki_file_reader *r, bool *fresh);
// Leaves the file at hand; the next one follows.
void hki_file_reader_next_file(hki_file_reader *r);
// The file at hand is opened again, from its first byte, when it is next
// needed.
void hki_file_reader_restart(hki_file_reader *r);
// Makes the window hold `need` bytes, or all that the file has left. Pointers
// into the window move.
hk_status hki_file_reader_more(hki_file_reader *r, size_t need);
static inline size_t hki_file_reader_left(const hki_file_reader *r) {
    return r->end - r->begin;
}
static inline void hki_file_reader_take(hki_file_reader *r, size_t n) {
    r->begin += n;
    r->offset += n;
}
// Takes n bytes, which need not be in the window: what is not is passed over.
hk_status hki_file_reader_skip(hki_file_reader *r, uint64_t n);
const char *hki_file_reader_path(const hki_file_reader *r);
// "<path>: record <n> at byte <offset>: <text>"; ahead: bytes from the window's
// begin to the fault.
hk_status hki_file_reader_fail(const hki_file_reader *r, hk_status s,
                               size_t ahead, const char *fmt, ...)
    __attribute__((format(__printf__, 4, 5)));
#define hki_file_reader_fail(...)                                              \
    hki_failed((hki_file_reader_fail)(__VA_ARGS__))

// File, record and offset.
void hki_file_reader_save(const hki_file_reader *r, hki_saver *w);
hk_status hki_file_reader_restore(hki_file_reader *r, hki_restorer *in);

// The first bytes of a text from a file, for a message: "?" stands for what a
// terminal should not get.
#define HKI_SAFE_TEXT 64
static inline const char *hki_safe_text(const uint8_t *p, size_t n,
                                        char out[HKI_SAFE_TEXT]) {
    n = HKI_MIN(n, (size_t)HKI_SAFE_TEXT - 1);
    for (size_t i = 0; i < n; i++)
        out[i] = p[i] >= 32 && p[i] < 127 ? (char)p[i] : '?';
    out[n] = '\0';
    return out;
}

// First byte of p[0 .. n) that is NUL or not part of well-formed UTF-8; n when
// there is none.
size_t hki_text_fault(const uint8_t *p, size_t n);

#endif // HKI_DATA_READER_H
