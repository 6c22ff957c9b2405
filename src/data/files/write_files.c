// write_files.c - files under way, records, and serialized examples.
#include "data/files/write_files.h"

HKI_OPTIONS(hk_writer_options, reserved, .compression = HK_COMPRESSION_NONE,
            .level = 6, .delimiter = ',')

// n: bytes of the path that count.
static bool ends_in(const char *path, size_t n, const char *end) {
    const size_t m = strlen(end);
    return n >= m && memcmp(path + n - m, end, m) == 0;
}

hk_write_format hki_write_format_of(const char *path) {
    static const struct {
        const char *end;
        hk_write_format format;
    } names[] = {{".tfrecord", HK_WRITE_TFRECORD},
                 {".csv", HK_WRITE_CSV},
                 {".npy", HK_WRITE_NPY},
                 {".idx", HK_WRITE_IDX}};
    size_t n = strlen(path);
    n -= ends_in(path, n, ".gz") ? 3 : 0;
    for (size_t i = 0; i < HKI_COUNT(names); i++)
        if (ends_in(path, n, names[i].end))
            return names[i].format;
    return HK_WRITE_AUTO;
}

hk_status hki_writer_options_get(hk_writer_options *out,
                                 const hk_writer_options *opt, const char *path,
                                 const char *what) {
    hk_writer_options_init(out, sizeof *out);
    HKI_TRY(hki_options_copy(out, sizeof *out, opt, what));
    if (path == NULL || path[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG, "%s: the path is missing", what);
    if (out->compression < HK_COMPRESSION_AUTO ||
        out->compression > HK_COMPRESSION_ZLIB || out->level < 1 ||
        out->level > 9 || out->delimiter == 0 || out->delimiter == '"' ||
        out->delimiter == '\n' || out->delimiter == '\r')
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: unknown compression %d, level %d or delimiter %d",
                        what, (int)out->compression, out->level,
                        out->delimiter);
    if (out->compression == HK_COMPRESSION_AUTO)
        out->compression = ends_in(path, strlen(path), ".gz")
                               ? HK_COMPRESSION_GZIP
                               : HK_COMPRESSION_NONE;
    return HK_OK;
}

// ---- sinks -----------------------------------------------------------------

hk_status hki_sink_open(hki_sink *s, const char *path,
                        const hk_writer_options *opt) {
    *s = (hki_sink){0};
    if (opt->compression != HK_COMPRESSION_NONE)
        HKI_TRY(hki_packer_create(
            opt->compression == HK_COMPRESSION_GZIP ? HKI_GZIP : HKI_ZLIB,
            opt->level, &s->packer));
    const hk_status e = hki_file_create(path, &s->file);
    if (e != HK_OK)
        hki_sink_discard(s);
    return e;
}

static hk_status flush(hki_sink *s) {
    HKI_TRY(hki_file_write(s->file, s->packed.data, s->packed.size));
    s->packed.size = 0;
    return HK_OK;
}

hk_status hki_sink_write(hki_sink *s, const void *bytes, size_t size) {
    if (s->packer == NULL)
        return hki_file_write(s->file, bytes, size);
    HKI_TRY(hki_packer_add(s->packer, bytes, size, &s->packed));
    return s->packed.size > 0 ? flush(s) : HK_OK;
}

hk_status hki_sink_commit(hki_sink *s) {
    hk_status e = HK_OK;
    if (s->packer != NULL) {
        e = hki_packer_finish(s->packer, &s->packed);
        if (e == HK_OK)
            e = flush(s);
    }
    if (e == HK_OK) {
        hki_file *const f = s->file;
        s->file = NULL; // freed by the commit, whatever comes of it
        e = hki_file_commit(f, true);
    }
    hki_sink_discard(s);
    return e;
}

void hki_sink_discard(hki_sink *s) {
    hki_file_discard(s->file);
    hki_packer_destroy(s->packer);
    hki_buf_deinit(&s->packed);
    *s = (hki_sink){0};
}

// ---- records ---------------------------------------------------------------

#define FLUSH_BYTES ((size_t)1 << 20)

struct hk_record_writer {
    hki_sink sink;
    hki_buf buf; // framed records that are not written yet
};

hk_status hk_record_writer_create(const char *path,
                                  const hk_writer_options *opt,
                                  hk_record_writer **out) {
    hk_writer_options o;
    hk_record_writer *w;
    if (out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "record writer: NULL argument");
    HKI_TRY(hki_writer_options_get(&o, opt, path, "record writer"));
    HKI_TRY(hki_zalloc_array(1, sizeof *w, &w));
    HKI_TRY_OR(hki_sink_open(&w->sink, path, &o), hki_free(w));
    *out = w;
    return HK_OK;
}

static hk_status flush_records(hk_record_writer *w) {
    HKI_TRY(hki_sink_write(&w->sink, w->buf.data, w->buf.size));
    w->buf.size = 0;
    return HK_OK;
}

hk_status hk_record_write(hk_record_writer *w, const void *bytes, size_t size) {
    if (w == NULL || (bytes == NULL && size > 0))
        return hki_fail(HK_E_INVALID_ARG, "record write: NULL argument");
    HKI_TRY(hki_record_append(&w->buf, bytes, size));
    return w->buf.size >= FLUSH_BYTES ? flush_records(w) : HK_OK;
}

hk_status hk_record_writer_close(hk_record_writer *w) {
    if (w == NULL)
        return hki_fail(HK_E_INVALID_ARG, "record writer: NULL argument");
    hk_status s = w->buf.size > 0 ? flush_records(w) : HK_OK;
    if (s == HK_OK)
        s = hki_sink_commit(&w->sink);
    hk_record_writer_destroy(w);
    return s;
}

void hk_record_writer_destroy(hk_record_writer *w) {
    if (w == NULL)
        return;
    hki_sink_discard(&w->sink);
    hki_buf_deinit(&w->buf);
    hki_free(w);
}

// ---- examples --------------------------------------------------------------

hk_status hk_example_builder_create(hk_example_builder **out) {
    if (out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "example builder: NULL argument");
    return hki_zalloc_array(1, sizeof **out, out);
}

void hk_example_builder_destroy(hk_example_builder *b) {
    if (b == NULL)
        return;
    hki_buf_deinit(&b->features);
    hki_buf_deinit(&b->example);
    hki_free(b);
}

typedef hk_status (*fill_fn)(hki_buf *b, const void *values, size_t n);

static hk_status fill_floats(hki_buf *b, const void *values, size_t n) {
    const float *const v = values;
    size_t mark;
    if (n == 0)
        return HK_OK;
    HKI_TRY(hki_pb_open(b, 1, &mark));
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        uint8_t bytes[4];
        memcpy(&bits, &v[i], sizeof bits);
        hki_put_u32(bytes, bits);
        HKI_TRY(hki_buf_add(b, bytes, sizeof bytes));
    }
    return hki_pb_close(b, mark);
}

static hk_status fill_ints(hki_buf *b, const void *values, size_t n) {
    const int64_t *const v = values;
    size_t mark;
    if (n == 0)
        return HK_OK;
    HKI_TRY(hki_pb_open(b, 1, &mark));
    for (size_t i = 0; i < n; i++) {
        uint8_t bytes[10];
        HKI_TRY(hki_buf_add(b, bytes, hki_varint_put(bytes, (uint64_t)v[i])));
    }
    return hki_pb_close(b, mark);
}

static hk_status fill_bytes(hki_buf *b, const void *values, size_t n) {
    const hk_bytes *const v = values;
    for (size_t i = 0; i < n; i++) {
        if (v[i].data == NULL && v[i].size > 0)
            return hki_fail(HK_E_INVALID_ARG, "example add: NULL argument");
        HKI_TRY(hki_pb_bytes(b, 1, v[i].data, v[i].size));
    }
    return HK_OK;
}

// A map entry with the list of the given field number; `fill` writes its
// values.
static hk_status add_list(hki_buf *b, const char *key, uint32_t number,
                          fill_fn fill, const void *values, size_t n) {
    size_t entry, feature, list;
    HKI_TRY(hki_pb_open(b, 1, &entry));
    HKI_TRY(hki_pb_string(b, 1, key));
    HKI_TRY(hki_pb_open(b, 2, &feature));
    HKI_TRY(hki_pb_open(b, number, &list));
    HKI_TRY(fill(b, values, n));
    HKI_TRY(hki_pb_close(b, list));
    HKI_TRY(hki_pb_close(b, feature));
    return hki_pb_close(b, entry);
}

hk_status hk_example_add(hk_example_builder *b, const char *key, hk_dtype dtype,
                         const void *values, size_t n) {
    if (b == NULL || key == NULL || (values == NULL && n > 0))
        return hki_fail(HK_E_INVALID_ARG, "example add: NULL argument");
    const size_t before = b->features.size;
    hk_status s;
    if (dtype == HK_STRING)
        s = add_list(&b->features, key, 1, fill_bytes, values, n);
    else if (dtype == HK_F32)
        s = add_list(&b->features, key, 2, fill_floats, values, n);
    else if (dtype == HK_I64)
        s = add_list(&b->features, key, 3, fill_ints, values, n);
    else
        s = hki_fail(HK_E_DTYPE, "example add: \"%s\" cannot be written as %s",
                     key, hk_dtype_name(dtype));
    if (s != HK_OK)
        b->features.size = before; // as they were
    return s;
}

hk_status hk_example_finish(hk_example_builder *b, const void **bytes,
                            size_t *size) {
    if (b == NULL || bytes == NULL || size == NULL)
        return hki_fail(HK_E_INVALID_ARG, "example finish: NULL argument");
    b->example.size = 0;
    HKI_TRY(hki_pb_bytes(&b->example, 1, b->features.data, b->features.size));
    b->features.size = 0;
    *bytes = b->example.data;
    *size = b->example.size;
    return HK_OK;
}

// ---- datasets --------------------------------------------------------------

hk_status hki_for_each(hk_dataset *d, hki_element_visit visit, void *user,
                       uint64_t *count) {
    hk_iter *it = NULL;
    uint64_t n = 0;
    HKI_TRY(hk_dataset_status(d));
    if (hk_dataset_count(d) == -2)
        return hki_fail(HK_E_INVALID_ARG, "write: the dataset has no end");
    HKI_TRY(hk_iter_create(d, NULL, &it));
    hk_status s;
    const hk_element *e;
    while ((s = hk_iter_next(it, &e)) == HK_OK) {
        if ((s = visit(user, e)) != HK_OK)
            break;
        n++;
    }
    hk_iter_destroy(it);
    if (s != HK_E_END)
        return s;
    *count = n;
    return HK_OK;
}
