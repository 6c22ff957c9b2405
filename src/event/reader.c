// reader.c - reads event files, record by record.
//
// A record's length is held against the file's before anything grows. What a
// crash leaves at the end of a file, half a record or a run of zero bytes, ends
// the file; any other damage is an error, after which reading goes on with the
// next record if its place is known, else with the next file.
#include "event/reader.h"
#include "base/io.h"

struct hk_event_reader {
    hki_paths files;
    size_t next_file;
    hki_excerpt file;      // the current one
    const uint8_t *memory; // instead of a file
    uint64_t offset;       // of the next record
    uint64_t record_offset;
    hki_event_parser parser;
    bool in_record, truncated;
};

// ---- files -----------------------------------------------------------------

// The names that TensorBoard would take, too.
static hk_status list_folder(hk_event_reader *r, const char *dir) {
    HKI_SCOPED(hki_paths_deinit) hki_paths all = {0};
    HKI_TRY(hki_folder_list(dir, &all));
    for (size_t i = 0; i < all.count; i++)
        if (strstr(hki_path_name(all.items[i]), "tfevents") != NULL)
            HKI_TRY(hki_paths_add(&r->files, all.items[i]));
    if (r->files.count == 0)
        return hki_fail(HK_E_NOT_FOUND, "%s: the folder has no event files",
                        dir);
    return HK_OK;
}

// HK_E_END after the last file.
static hk_status next_file(hk_event_reader *r) {
    hki_excerpt_close(&r->file);
    r->offset = 0;
    if (r->next_file == r->files.count)
        return HK_E_END;
    return hki_excerpt_open(&r->file, r->files.items[r->next_file++]);
}

// ---- records ---------------------------------------------------------------

// Points at n bytes of the file from offset on; the file has them.
static hk_status window(hk_event_reader *r, uint64_t offset, size_t n,
                        const uint8_t **out) {
    if (r->memory != NULL) {
        *out = r->memory + offset;
        return HK_OK;
    }
    const hk_status s = hki_excerpt_get(&r->file, offset, n, out);
    if (s != HK_OK)
        r->offset = r->file.size; // unreadable: the next call leaves the file
    return s;
}

static hk_status only_zeros_left(hk_event_reader *r, bool *zeros) {
    *zeros = true;
    for (uint64_t at = r->offset; at < r->file.size && *zeros;) {
        const uint64_t left = r->file.size - at;
        const size_t n = (size_t)HKI_MIN(left, HKI_EXCERPT);
        const uint8_t *p;
        HKI_TRY(window(r, at, n, &p));
        for (size_t i = 0; i < n; i++)
            *zeros &= p[i] == 0;
        at += n;
    }
    return HK_OK;
}

static hk_status truncated(hk_event_reader *r) {
    r->truncated = true;
    r->offset = r->file.size;
    return HK_E_END;
}

static hk_status bad_length(hk_event_reader *r) {
    bool zeros;
    const uint64_t at = r->offset;
    HKI_TRY(only_zeros_left(r, &zeros));
    if (zeros)
        return truncated(r);
    r->offset = r->file.size; // where the next record begins is unknown
    return hki_fail(HK_E_DATA,
                    "%s: record at byte %llu is corrupted: the checksum of its "
                    "length is wrong",
                    r->file.path, (unsigned long long)at);
}

// The next record of the current file; HK_E_END at its end.
static hk_status next_record(hk_event_reader *r, const uint8_t **data,
                             size_t *size) {
    const uint64_t left = r->file.size - r->offset;
    if (left == 0)
        return HK_E_END;
    if (left < HKI_RECORD_HEADER)
        return truncated(r);
    const uint8_t *p;
    uint64_t length;
    HKI_TRY(window(r, r->offset, HKI_RECORD_HEADER, &p));
    if (!hki_record_length(p, &length))
        return bad_length(r);
    const uint64_t room = left - HKI_RECORD_HEADER;
    if (room < HKI_RECORD_FOOTER || length > room - HKI_RECORD_FOOTER)
        return truncated(r);
    const size_t whole = (size_t)length + HKI_RECORD_HEADER + HKI_RECORD_FOOTER;
    r->record_offset = r->offset;
    HKI_TRY(window(r, r->offset, whole, &p));
    r->offset += whole;
    if (hki_record_parse(p, whole, data, size) != HKI_RECORD_WHOLE)
        return hki_fail(HK_E_DATA,
                        "%s: record at byte %llu is corrupted: the checksum "
                        "of its %llu bytes is wrong",
                        r->file.path, (unsigned long long)r->record_offset,
                        (unsigned long long)length);
    return HK_OK;
}

static hk_status start_record(hk_event_reader *r) {
    const uint8_t *data;
    size_t size;
    hk_status s;
    while ((s = next_record(r, &data, &size)) == HK_E_END)
        HKI_TRY(next_file(r));
    HKI_TRY(s);
    r->parser.file = r->file.path;
    r->parser.offset = r->record_offset;
    HKI_TRY(hki_event_parse(&r->parser, data, size));
    r->in_record = true;
    return HK_OK;
}

hk_status hk_event_next(hk_event_reader *r, hk_event *out) {
    if (r == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "event next: NULL given");
    for (;;) {
        if (!r->in_record)
            HKI_TRY(start_record(r));
        const hk_status s = hki_event_value(&r->parser, out);
        if (s == HK_OK)
            return HK_OK;
        r->in_record = false;
        if (s != HK_E_END) // else on to the next record
            return s;
    }
}

int hk_event_reader_truncated(const hk_event_reader *r) {
    return r != NULL && r->truncated;
}

// ---- opening ---------------------------------------------------------------

hk_status hki_event_reader_memory(const uint8_t *bytes, size_t size,
                                  hk_event_reader **out) {
    hk_event_reader *r;
    HKI_TRY(hki_zalloc_array(1, sizeof *r, &r));
    r->file = (hki_excerpt){.path = "memory", .fd = -1, .size = size};
    r->memory = bytes;
    *out = r;
    return HK_OK;
}

hk_status hk_event_reader_open(const char *path, hk_event_reader **out) {
    if (path == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "event reader: NULL given");
    hk_event_reader *r;
    HKI_TRY(hki_event_reader_memory(NULL, 0, &r));
    hk_status s = hki_path_is_dir(path) ? list_folder(r, path)
                                        : hki_paths_add(&r->files, path);
    if (s == HK_OK)
        s = next_file(r); // a missing file is noticed here
    HKI_TRY_OR(s, hk_event_reader_close(r));
    *out = r;
    return HK_OK;
}

void hk_event_reader_close(hk_event_reader *r) {
    if (r == NULL)
        return;
    hki_excerpt_close(&r->file);
    hki_free(r->file.bytes);
    hki_paths_deinit(&r->files);
    hki_event_parser_deinit(&r->parser);
    hki_free(r);
}
