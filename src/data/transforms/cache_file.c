// cache_file.c - writing and reading the file of a cache.
#include "data/transforms/cache_file.h"
#include "base/io.h"
#include "codec/codec.h"

#define MAGIC "HKCACHE1"
#define HEADER HKI_CACHE_FIRST

// ---- writing ---------------------------------------------------------------

struct hki_cache_writer {
    hki_lockfile *lock;
    hki_file *file;
    uint64_t fingerprint, count;
    hki_saver element;
    hki_buf pending; // records not written yet
};

static void writer_free(hki_cache_writer *w) {
    hki_lockfile_release(w->lock);
    hki_saver_deinit(&w->element);
    hki_buf_deinit(&w->pending);
    hki_free(w);
}

void hki_cache_writer_discard(hki_cache_writer *w) {
    if (w == NULL)
        return;
    hki_file_discard(w->file);
    writer_free(w);
}

static void put_header(uint8_t head[HEADER], uint64_t fingerprint,
                       uint64_t count, uint64_t bytes) {
    memcpy(head, MAGIC, 8);
    hki_put_u64(head + 8, fingerprint);
    hki_put_u64(head + 16, count);
    hki_put_u64(head + 24, bytes);
}

static hk_status take_lock(const char *path, hki_lockfile **out) {
    HKI_FREED char *name = NULL;
    const size_t room = strlen(path) + sizeof ".lockfile";
    HKI_TRY(hki_alloc_array(room, 1, &name));
    snprintf(name, room, "%s.lockfile", path);
    return hki_lockfile_take(name, out);
}

hk_status hki_cache_writer_open(const char *path, uint64_t fingerprint,
                                hki_cache_writer **out) {
    hki_cache_writer *w;
    uint8_t head[HEADER];
    HKI_TRY(hki_zalloc_array(1, sizeof *w, &w));
    w->fingerprint = fingerprint;
    put_header(head, fingerprint, 0, 0);
    HKI_TRY_OR(take_lock(path, &w->lock), hki_cache_writer_discard(w));
    HKI_TRY_OR(hki_file_create(path, &w->file), hki_cache_writer_discard(w));
    HKI_TRY_OR(hki_file_write(w->file, head, sizeof head),
               hki_cache_writer_discard(w));
    *out = w;
    return HK_OK;
}

static hk_status flush(hki_cache_writer *w) {
    if (w->pending.size > 0)
        HKI_TRY(hki_file_write(w->file, w->pending.data, w->pending.size));
    w->pending.size = 0;
    return HK_OK;
}

hk_status hki_cache_writer_add(hki_cache_writer *w, const hki_box *b) {
    w->element.buf.size = 0;
    w->element.status = HK_OK;
    hki_save_box(&w->element, b);
    HKI_TRY(w->element.status);
    HKI_TRY(hki_record_append(&w->pending, w->element.buf.data,
                              w->element.buf.size));
    w->count++;
    return w->pending.size >= HKI_EXCERPT ? flush(w) : HK_OK;
}

static hk_status finish(hki_cache_writer *w) {
    uint8_t head[HEADER];
    HKI_TRY(flush(w));
    put_header(head, w->fingerprint, w->count, hki_file_size(w->file));
    return hki_file_write_at(w->file, 0, head, sizeof head);
}

hk_status hki_cache_writer_commit(hki_cache_writer *w) {
    hk_status s = finish(w);
    if (s == HK_OK) {
        s = hki_file_commit(w->file, true);
        w->file = NULL;
    }
    hki_cache_writer_discard(w);
    return s;
}

// ---- reading ---------------------------------------------------------------

struct hki_cache_reader {
    char *path;
    hki_excerpt file;
    uint64_t position; // of the next element
};

void hki_cache_reader_close(hki_cache_reader *r) {
    if (r == NULL)
        return;
    hki_excerpt_close(&r->file);
    hki_free(r->file.bytes);
    hki_free(r->path);
    hki_free(r);
}

static hk_status check_header(hki_cache_reader *r, uint64_t fingerprint) {
    uint8_t head[HEADER];
    if (r->file.size < HEADER)
        return hki_fail(HK_E_DATA,
                        "%s: is not a cache file: it has only %llu bytes; "
                        "remove it to create a new one",
                        r->path, (unsigned long long)r->file.size);
    HKI_TRY(hki_file_read_at(r->file.fd, r->path, 0, head, sizeof head));
    if (memcmp(head, MAGIC, 8) != 0 || hki_get_u64(head + 24) != r->file.size)
        return hki_fail(HK_E_DATA,
                        "%s: is not a cache file, or is incomplete; remove it "
                        "to create a new one",
                        r->path);
    if (hki_get_u64(head + 8) != fingerprint)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: is the cache of another pipeline; remove it to "
                        "create a new one",
                        r->path);
    r->position = HEADER;
    return HK_OK;
}

hk_status hki_cache_reader_open(const char *path, uint64_t fingerprint,
                                hki_cache_reader **out) {
    hki_cache_reader *r;
    HKI_TRY(hki_zalloc_array(1, sizeof *r, &r));
    r->file.fd = -1;
    HKI_TRY_OR(hki_strdup(path, &r->path), hki_cache_reader_close(r));
    HKI_TRY_OR(hki_excerpt_open(&r->file, r->path), hki_cache_reader_close(r));
    HKI_TRY_OR(check_header(r, fingerprint), hki_cache_reader_close(r));
    *out = r;
    return HK_OK;
}

uint64_t hki_cache_reader_tell(const hki_cache_reader *r) {
    return r->position;
}

hk_status hki_cache_reader_seek(hki_cache_reader *r, uint64_t position) {
    if (position < HEADER || position > r->file.size)
        return hki_fail(HK_E_DATA,
                        "%s: the saved position is byte %llu, but the cache "
                        "file has %llu bytes; it was replaced",
                        r->path, (unsigned long long)position,
                        (unsigned long long)r->file.size);
    r->position = position;
    return HK_OK;
}

static hk_status damaged(const hki_cache_reader *r, const char *what) {
    return hki_fail(HK_E_DATA, "%s: element at byte %llu: %s", r->path,
                    (unsigned long long)r->position, what);
}

// The whole record at the position; *size: its bytes.
static hk_status look(hki_cache_reader *r, const uint8_t **out, size_t *size) {
    const uint64_t left = r->file.size - r->position;
    if (left < HKI_RECORD_HEADER + HKI_RECORD_FOOTER)
        return damaged(r, "truncated");
    uint64_t length;
    HKI_TRY(hki_excerpt_get(&r->file, r->position, HKI_RECORD_HEADER, out));
    if (!hki_record_length(*out, &length))
        return damaged(r, "the checksum of the length is wrong");
    if (length > left - HKI_RECORD_HEADER - HKI_RECORD_FOOTER)
        return damaged(r, "longer than the file");
    *size = HKI_RECORD_HEADER + (size_t)length + HKI_RECORD_FOOTER;
    return hki_excerpt_get(&r->file, r->position, *size, out);
}

hk_status hki_cache_reader_next(hki_cache_reader *r, hki_box *b) {
    size_t size = 0;
    if (r->position == r->file.size)
        return HK_E_END;
    const uint8_t *record, *data;
    size_t n;
    HKI_TRY(look(r, &record, &size));
    if (hki_record_parse(record, size, &data, &n) != HKI_RECORD_WHOLE)
        return damaged(r, "the checksum is wrong");
    hki_restorer in = {.begin = data, .p = data, .end = data + n};
    const hk_status s = hki_restore_box(&in, b);
    if (s == HK_E_DATA || (s == HK_OK && in.p != in.end))
        return damaged(r, "not an element of this pipeline");
    HKI_TRY(s);
    r->position += size;
    return HK_OK;
}
