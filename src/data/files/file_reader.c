// file_reader.c - a list of files read one after the other through one window.
#include "data/files/division.h"
#include "data/core/pipeline.h"
#include "base/io.h"

#define MIN_BUFFER 4096
#define MAX_BUFFER ((uint64_t)1 << 30)

// ---- options and files -----------------------------------------------------

HKI_OPTIONS(hk_file_options, observer_user,
            .max_record_bytes = (uint64_t)256 << 20,
            .max_file_bytes = (uint64_t)16 << 30,
            .max_pixels = (uint64_t)64 << 20,
            .buffer_bytes = (uint64_t)256 << 10)

hk_status hki_file_options_get(hk_file_options *out, const hk_file_options *opt,
                               const char *what) {
    hk_file_options_init(out, sizeof *out);
    HKI_TRY(hki_options_copy(out, sizeof *out, opt, what));
    if (out->compression < HK_COMPRESSION_AUTO ||
        out->compression > HK_COMPRESSION_ZLIB)
        return hki_fail(HK_E_INVALID_ARG, "%s: compression %d is unknown", what,
                        (int)out->compression);
    if (out->on_error != HK_ON_ERROR_FAIL && out->on_error != HK_ON_ERROR_SKIP)
        return hki_fail(HK_E_INVALID_ARG, "%s: on_error %d is unknown", what,
                        (int)out->on_error);
    if (out->max_record_bytes == 0 || out->max_file_bytes == 0 ||
        out->max_record_bytes > SIZE_MAX / 4 ||
        out->max_file_bytes > SIZE_MAX / 4)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: the limit of %llu bytes per record or of %llu per "
                        "file is out of range",
                        what, (unsigned long long)out->max_record_bytes,
                        (unsigned long long)out->max_file_bytes);
    out->buffer_bytes =
        HKI_MIN(HKI_MAX(out->buffer_bytes, MIN_BUFFER), MAX_BUFFER);
    return HK_OK;
}

hk_status hki_files_init(hki_files *f, const char *const *files, size_t n_files,
                         const hk_file_options *opt, const char *what) {
    *f = (hki_files){0};
    HKI_TRY(hki_file_options_get(&f->opt, opt, what));
    HKI_TRY(hki_division_create(f->opt.index_folder, &f->division));
    f->opt.index_folder = NULL; // the division has it
    return hki_files_match(files, n_files, &f->paths);
}

void hki_files_deinit(hki_files *f) {
    hki_division_destroy(f->division, f->paths.count);
    hki_paths_deinit(&f->paths);
    *f = (hki_files){0};
}

uint64_t hki_files_key(const hki_files *f) {
    uint64_t h = HKI_HASH_INIT;
    for (size_t i = 0; i < f->paths.count; i++) {
        const char *const name = hki_path_name(f->paths.items[i]);
        h = hki_hash(h, name, strlen(name) + 1);
    }
    return h;
}

// ---- packing ---------------------------------------------------------------

// Valid UTF-8 (a letter may be cut at the end) without control bytes.
static bool is_text(const uint8_t *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i] < 0x20 && p[i] != '\t' && p[i] != '\n' && p[i] != '\r')
            return false;
    for (size_t cut = 0; cut < 4 && cut <= n; cut++)
        if (hki_utf8_valid((const char *)p, n - cut))
            return true;
    return false;
}

// RFC 1950: method 8 with the window that every writer takes, no dictionary,
// two bytes that are a multiple of 31. A text may begin like that ("x^2").
static bool is_zlib(const uint8_t *p, size_t n) {
    return n > 2 && p[0] == 0x78 && (p[1] & 0x20) == 0 &&
           (p[0] << 8 | p[1]) % 31 == 0 && !is_text(p, n);
}

static hk_status find_packing(hki_input *file, hk_compression compression,
                              bool records, hki_packing *out) {
    uint8_t head[HKI_INPUT_PEEK]; // a record's header, and enough of a text
    uint64_t length;
    size_t got = 0;
    if (compression != HK_COMPRESSION_AUTO) {
        *out = compression == HK_COMPRESSION_GZIP   ? HKI_GZIP
               : compression == HK_COMPRESSION_ZLIB ? HKI_ZLIB
                                                    : HKI_UNPACKED;
        return HK_OK;
    }
    HKI_TRY(hki_input_peek(file, head, sizeof head, &got));
    const bool gzip =
        got >= 3 && head[0] == 0x1f && head[1] == 0x8b && head[2] == 8;
    const bool framed =
        records && got >= HKI_RECORD_HEADER && hki_record_length(head, &length);
    *out = framed               ? HKI_UNPACKED
           : gzip               ? HKI_GZIP
           : is_zlib(head, got) ? HKI_ZLIB
                                : HKI_UNPACKED;
    return HK_OK;
}

hk_status hki_open_unpacked(const char *path, const hk_file_options *opt,
                            bool records, hki_data_run *run, hki_stream **out) {
    hki_input *file;
    hki_packing packing;
    const hki_watch watch = {hki_run_check_away, run};
    HKI_TRY(hki_input_open(path, run != NULL ? &watch : NULL, &file));
    if (opt->observer != NULL)
        HKI_TRY_OR(hki_input_observe(file, opt->observer, opt->observer_user),
                   hki_input_close(file));
    HKI_TRY_OR(find_packing(file, opt->compression, records, &packing),
               hki_input_close(file));
    return hki_stream_open(file, packing, (size_t)opt->buffer_bytes, out);
}

hk_status hki_read_whole(const char *path, const hk_file_options *opt,
                         uint8_t **bytes, size_t *size) {
    hki_stream *stream = NULL;
    const size_t limit = (size_t)opt->max_file_bytes;
    HKI_TRY(hki_open_unpacked(path, opt, false, NULL, &stream));
    const hk_status s = hki_stream_read_all(stream, limit, bytes, size);
    hki_stream_close(stream);
    return s;
}

hk_status hk_file_head(const char *path, void *bytes, size_t size,
                       size_t *got) {
    hki_input *file;
    if (path == NULL || bytes == NULL || got == NULL)
        return hki_fail(HK_E_INVALID_ARG, "file head: an argument is NULL");
    HKI_TRY(hki_input_open(path, NULL, &file));
    hk_status s = HK_OK;
    size_t n = 1;
    for (*got = 0; s == HK_OK && *got < size && n > 0; *got += n)
        s = hki_input_read(file, (char *)bytes + *got, size - *got, &n);
    hki_input_close(file);
    return s;
}

// ---- the window ------------------------------------------------------------

hk_status hki_file_reader_init(hki_file_reader *r, const hki_files *files,
                               bool records, hki_data_run *run) {
    *r = (hki_file_reader){.files = files, .run = run, .records = records};
    const size_t capacity = HKI_READER_FRONT + (size_t)files->opt.buffer_bytes;
    HKI_TRY(hki_zalloc_array(capacity + HKI_READER_PAD, 1, &r->data));
    r->capacity = capacity;
    r->begin = r->end = HKI_READER_FRONT;
    return HK_OK;
}

void hki_file_reader_deinit(hki_file_reader *r) {
    hki_stream_close(r->stream);
    hki_free(r->data);
    *r = (hki_file_reader){0};
}

// Forgets the open file; file, record and offset stay.
static void leave(hki_file_reader *r) {
    hki_stream_close(r->stream);
    r->stream = NULL;
    r->begin = r->end = HKI_READER_FRONT;
    r->at_end = false;
}

void hki_file_reader_rewind(hki_file_reader *r) {
    leave(r);
    r->bounded = false;
    r->file = 0;
    r->record = r->offset = 0;
}

hk_status hki_file_reader_bound(hki_file_reader *r, const hki_span *span) {
    // What stands before the first record is looked at when a file is opened.
    const bool stays =
        r->stream != NULL && r->file == span->file && span->offset > 0;
    if (stays) {
        hki_stream_until(r->stream, span->end);
        HKI_TRY(hki_stream_seek(r->stream, span->offset));
    } else {
        leave(r);
    }
    r->begin = r->end = HKI_READER_FRONT;
    r->at_end = false;
    r->bounded = true;
    r->span = *span;
    r->file = span->file;
    r->record = span->record;
    r->offset = span->offset;
    return HK_OK;
}

void hki_file_reader_next_file(hki_file_reader *r) {
    leave(r);
    r->file++;
    r->record = r->offset = 0;
}

void hki_file_reader_restart(hki_file_reader *r) {
    leave(r);
    r->record = r->offset = 0;
}

const char *hki_file_reader_path(const hki_file_reader *r) {
    return r->files->paths.items[r->file];
}

hk_status hki_file_reader_open(hki_file_reader *r, bool *fresh) {
    *fresh = false;
    if (r->stream != NULL)
        return HK_OK;
    if (r->file >= r->files->paths.count ||
        (r->bounded && r->file != r->span.file))
        return HK_E_END;
    hki_stream *stream = NULL;
    hk_file_options opt = r->files->opt;
    // A packed file is one span; there is no need to look again.
    if (r->bounded && (r->span.offset > 0 || r->span.end != UINT64_MAX))
        opt.compression = HK_COMPRESSION_NONE;
    HKI_TRY(hki_open_unpacked(hki_file_reader_path(r), &opt, r->records, r->run,
                              &stream));
    if (r->bounded)
        hki_stream_until(stream, r->span.end);
    HKI_TRY_OR(hki_stream_seek(stream, r->offset), hki_stream_close(stream));
    r->stream = stream;
    *fresh = r->offset == 0;
    return HK_OK;
}

// Room behind the bytes that are left: they move to the front, and a window
// that they fill doubles. So memory follows the bytes that are really there,
// not the length that a record claims.
static hk_status make_room(hki_file_reader *r) {
    const size_t left = hki_file_reader_left(r);
    if (left > 0)
        memmove(r->data + HKI_READER_FRONT, r->data + r->begin, left);
    r->begin = HKI_READER_FRONT;
    r->end = HKI_READER_FRONT + left;
    if (r->end < r->capacity)
        return HK_OK;
    const size_t capacity = r->capacity * 2;
    HKI_TRY(hki_realloc_array(capacity + HKI_READER_PAD, 1, &r->data));
    r->capacity = capacity;
    return HK_OK;
}

// Bytes behind the window that may be read now.
static size_t room_left(const hki_file_reader *r) {
    const size_t room = r->capacity - r->end;
    const uint64_t at = r->offset + hki_file_reader_left(r);
    if (!r->bounded)
        return room;
    return at >= r->span.end ? 0 : (size_t)HKI_MIN(room, r->span.end - at);
}

hk_status hki_file_reader_more(hki_file_reader *r, size_t need) {
    if (hki_file_reader_left(r) >= need || r->at_end)
        return HK_OK;
    if (r->begin > HKI_READER_FRONT)
        HKI_TRY(make_room(r));
    while (hki_file_reader_left(r) < need && !r->at_end) {
        size_t got = 0;
        if (r->end == r->capacity)
            HKI_TRY(make_room(r));
        if (room_left(r) > 0)
            HKI_TRY(hki_stream_read(r->stream, r->data + r->end, room_left(r),
                                    &got));
        r->end += got;
        r->at_end = got == 0;
    }
    // The padding is read by kernels, so it has to hold something.
    memset(r->data + r->end, 0, HKI_READER_PAD);
    return HK_OK;
}

hk_status hki_file_reader_skip(hki_file_reader *r, uint64_t n) {
    const size_t left = hki_file_reader_left(r);
    if (n <= left) {
        hki_file_reader_take(r, (size_t)n);
        return HK_OK;
    }
    if (n > INT64_MAX - r->offset)
        return hki_file_reader_fail(
            r, HK_E_DATA, 0,
            "there are %llu unexpected bytes after the last file",
            (unsigned long long)n);
    HKI_TRY(hki_stream_seek(r->stream, r->offset + n));
    r->offset += n;
    r->begin = r->end = HKI_READER_FRONT;
    return HK_OK;
}

hk_status(hki_file_reader_fail)(const hki_file_reader *r, hk_status s,
                                size_t ahead, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return hki_fail(s, "%s: %s %llu at byte %llu: %s", hki_file_reader_path(r),
                    r->rows ? "row" : "record",
                    (unsigned long long)r->record + r->rows,
                    (unsigned long long)(r->offset + ahead), text);
}

// ---- position --------------------------------------------------------------

void hki_file_reader_save(const hki_file_reader *r, hki_saver *w) {
    hki_save_u64(w, r->file);
    hki_save_u64(w, r->record);
    hki_save_u64(w, r->offset);
}

hk_status hki_file_reader_restore(hki_file_reader *r, hki_restorer *in) {
    const int64_t file = hki_restore_i64(in, "the index of the file", 0,
                                         (int64_t)r->files->paths.count);
    const int64_t record =
        hki_restore_i64(in, "the record number", 0, INT64_MAX);
    const int64_t offset =
        hki_restore_i64(in, "the offset in the file", 0, INT64_MAX);
    HKI_TRY(in->status);
    leave(r);
    r->file = (size_t)file;
    r->record = (uint64_t)record;
    r->offset = (uint64_t)offset;
    return HK_OK;
}

// ---- text ------------------------------------------------------------------

// Bytes of the UTF-8 character that begins with c; 0: none does.
static size_t character_size(uint8_t c) {
    if (c < 0x80)
        return 1;
    return c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
}

size_t hki_text_fault(const uint8_t *p, size_t n) {
    const uint64_t ones = UINT64_C(0x0101010101010101);
    for (size_t i = 0; i < n;) {
        uint64_t word = 0;
        if (n - i >= 8) {
            memcpy(&word, p + i, 8);
            // No byte is zero and none has its high bit set.
            if (((word | (word - ones)) & (ones << 7)) == 0) {
                i += 8;
                continue;
            }
        }
        const size_t size = character_size(p[i]);
        if (p[i] == 0 || size == 0 || size > n - i ||
            !hki_utf8_valid((const char *)p + i, size))
            return i;
        i += size;
    }
    return n;
}
