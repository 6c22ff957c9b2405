// records.c - sources of records: TFRecord, text lines, fixed-length records.
//
// Each format is one row of a table: how a file begins and how the next record
// is found in the reader's window. The loop over files and the policy for
// damage are the same for all.
#include "data/files/division.h"
#include "data/core/pipeline.h"

typedef struct format format;

typedef struct config {
    hki_files files;
    const format *format;
    size_t record_bytes, header_bytes, footer_bytes; // fixed length
} config;

typedef struct source {
    const config *c;
    hki_file_reader r;
    size_t scanned; // text: bytes of the window known to hold no line end
    hki_buf line;   // text: the line without its CRs
} source;

// Where a record is: its bytes, and how much of the window goes with it.
typedef struct step {
    const uint8_t *bytes;
    size_t size;
    size_t used;
    size_t resume; // after damage: bytes to the next record; 0: it is hidden
} step;

struct format {
    const char *name;
    const char *value;
    // At the first byte of a file. Optional.
    hk_status (*begin)(source *s);
    // HK_E_END at the end of the file.
    hk_status (*next)(source *s, step *out);
};

// ---- TFRecord --------------------------------------------------------------

// What a header claims is held against the limit before anything is read.
static hk_status tfrecord_need(source *s, const uint8_t *p, size_t *need) {
    const uint64_t limit = s->c->files.opt.max_record_bytes;
    uint64_t length = 0;
    *need = HKI_RECORD_HEADER;
    if (hki_file_reader_left(&s->r) < HKI_RECORD_HEADER)
        return HK_OK;
    if (!hki_record_length(p, &length))
        return HK_OK; // told by hki_record_parse
    if (length > limit)
        return hki_file_reader_fail(
            &s->r, HK_E_DATA, 0,
            "the length of %llu bytes is above the limit of %llu",
            (unsigned long long)length, (unsigned long long)limit);
    *need = HKI_RECORD_HEADER + (size_t)length + HKI_RECORD_FOOTER;
    return HK_OK;
}

static hk_status tfrecord_fault(source *s, hki_record_state state, step *out) {
    const uint8_t *const p = s->r.data + s->r.begin;
    if (state == HKI_RECORD_TRUNCATED)
        return hki_file_reader_fail(
            &s->r, HK_E_DATA, 0,
            "the record is truncated: the file has only %zu more bytes",
            hki_file_reader_left(&s->r));
    if (state == HKI_RECORD_BAD_LENGTH)
        return hki_file_reader_fail(
            &s->r, HK_E_DATA, 0,
            "corrupted: the checksum of the length is wrong");
    const size_t length = (size_t)hki_get_u64(p);
    out->resume = HKI_RECORD_HEADER + length + HKI_RECORD_FOOTER;
    return hki_file_reader_fail(
        &s->r, HK_E_DATA, 0,
        "corrupted: the checksum of the %zu bytes is wrong", length);
}

static hk_status tfrecord_next(source *s, step *out) {
    for (;;) {
        const uint8_t *const p = s->r.data + s->r.begin;
        const hki_record_state state = hki_record_parse(
            p, hki_file_reader_left(&s->r), &out->bytes, &out->size);
        if (state == HKI_RECORD_WHOLE) {
            out->used = HKI_RECORD_HEADER + out->size + HKI_RECORD_FOOTER;
            return HK_OK;
        }
        if (state == HKI_RECORD_END && s->r.at_end)
            return HK_E_END;
        const bool short_of =
            state == HKI_RECORD_END || state == HKI_RECORD_TRUNCATED;
        if (!short_of || s->r.at_end)
            return tfrecord_fault(s, state, out);
        size_t need;
        HKI_TRY(tfrecord_need(s, p, &need));
        HKI_TRY(hki_file_reader_more(&s->r, need));
    }
}

// ---- text ------------------------------------------------------------------

// Finds the line end; *size: bytes before it. HK_E_END when nothing is left.
static hk_status find_line(source *s, size_t *size, size_t *used) {
    for (;;) {
        const uint8_t *const p = s->r.data + s->r.begin;
        const size_t left = hki_file_reader_left(&s->r);
        const uint8_t *const end =
            left > s->scanned ? memchr(p + s->scanned, '\n', left - s->scanned)
                              : NULL;
        if (end != NULL) {
            *size = (size_t)(end - p);
            *used = *size + 1;
            return HK_OK;
        }
        if (s->r.at_end) {
            *size = *used = left;
            return left > 0 ? HK_OK : HK_E_END;
        }
        s->scanned = left;
        if (left > s->c->files.opt.max_record_bytes)
            return hki_file_reader_fail(
                &s->r, HK_E_DATA, 0,
                "the line is longer than the limit of %llu "
                "bytes",
                (unsigned long long)s->c->files.opt.max_record_bytes);
        HKI_TRY(hki_file_reader_more(&s->r, left + 1));
    }
}

static hk_status drop_returns(source *s, step *out) {
    const uint8_t *p = out->bytes, *const end = p + out->size;
    s->line.size = 0;
    while (p < end) {
        const uint8_t *cr = memchr(p, '\r', (size_t)(end - p));
        if (cr == NULL)
            cr = end;
        HKI_TRY(hki_buf_add(&s->line, p, (size_t)(cr - p)));
        p = cr < end ? cr + 1 : end;
    }
    out->bytes = (const uint8_t *)s->line.data;
    out->size = s->line.size;
    return HK_OK;
}

static hk_status text_next(source *s, step *out) {
    HKI_TRY(find_line(s, &out->size, &out->used));
    s->scanned = 0;
    out->bytes = s->r.data + s->r.begin;
    const bool last = s->r.at_end && out->used == out->size;
    if (!s->c->files.opt.any_bytes) {
        const size_t at = hki_text_fault(out->bytes, out->size);
        if (at < out->size) {
            out->resume = out->used;
            return hki_file_reader_fail(&s->r, HK_E_DATA, at,
                                        "byte 0x%02x is not UTF-8",
                                        out->bytes[at]);
        }
    }
    if (out->size > 0 && memchr(out->bytes, '\r', out->size) != NULL)
        HKI_TRY(drop_returns(s, out));
    // A last line of nothing but CRs is as empty as none.
    return last && out->size == 0 ? HK_E_END : HK_OK;
}

// ---- fixed length ----------------------------------------------------------

// A plain file tells its size before it is read.
static hk_status check_size(source *s) {
    const config *const c = s->c;
    const uint64_t frame = c->header_bytes + c->footer_bytes;
    uint64_t size;
    if (!hki_stream_size(s->r.stream, &size) ||
        (size >= frame && (size - frame) % c->record_bytes == 0))
        return HK_OK;
    return hki_file_reader_fail(&s->r, HK_E_INVALID_ARG, 0,
                                "%llu bytes minus a header of %zu and a footer "
                                "of %zu are not a multiple of %zu",
                                (unsigned long long)size, c->header_bytes,
                                c->footer_bytes, c->record_bytes);
}

static hk_status fixed_begin(source *s) {
    HKI_TRY(check_size(s));
    HKI_TRY(hki_stream_seek(s->r.stream, s->c->header_bytes));
    s->r.offset = s->c->header_bytes;
    return HK_OK;
}

static hk_status fixed_next(source *s, step *out) {
    const config *const c = s->c;
    HKI_TRY(hki_file_reader_more(&s->r, c->record_bytes + c->footer_bytes));
    const size_t left = hki_file_reader_left(&s->r);
    if (left == c->footer_bytes)
        return HK_E_END;
    if (left < c->record_bytes + c->footer_bytes)
        return hki_file_reader_fail(
            &s->r, HK_E_DATA, 0,
            "the record is truncated: it and the footer need %zu + %zu bytes, "
            "but the file has only %zu more",
            c->record_bytes, c->footer_bytes, left);
    out->bytes = s->r.data + s->r.begin;
    out->size = out->used = c->record_bytes;
    return HK_OK;
}

// ---- the source ------------------------------------------------------------

static const format tfrecord = {"tfrecord", "record", NULL, tfrecord_next};
static const format text = {"text", "line", NULL, text_next};
static const format fixed = {"fixed_length", "record", fixed_begin, fixed_next};

static hk_status source_open(hki_node *n) {
    const config *const c = n->d->config;
    source *const s = n->state;
    s->c = c;
    return hki_file_reader_init(&s->r, &c->files, c->format == &tfrecord,
                                n->run);
}

static void source_close(hki_node *n) {
    source *const s = n->state;
    hki_file_reader_deinit(&s->r);
    hki_buf_deinit(&s->line);
}

static hk_status source_start(hki_node *n) {
    source *const s = n->state;
    hki_file_reader_rewind(&s->r);
    s->scanned = 0;
    return HK_OK;
}

// The next record of the file at hand, which is opened if need be. *files_end:
// there is no file any more.
static hk_status try_next(source *s, step *out, bool *files_end) {
    bool fresh;
    const hk_status opened = hki_file_reader_open(&s->r, &fresh);
    *files_end = opened == HK_E_END;
    HKI_TRY(opened);
    if (fresh && s->c->format->begin != NULL) {
        HKI_TRY_OR(s->c->format->begin(s), hki_file_reader_restart(&s->r));
    }
    return s->c->format->next(s, out);
}

// The next record that is good, or not known to be bad.
static hk_status good_next(hki_node *n, step *at) {
    source *const s = n->state;
    for (;;) {
        bool files_end, skip = false;
        *at = (step){0};
        const hk_status e = try_next(s, at, &files_end);
        if (e == HK_OK || files_end)
            return e;
        if (e != HK_E_END) {
            HKI_TRY(hki_on_error(n->run, s->c->files.opt.on_error, e, &skip));
            HKI_TRY(hki_run_check(n->run));
            if (at->resume > 0) {
                hki_file_reader_take(&s->r, at->resume);
                s->r.record++;
                n->number++;
                continue;
            }
        }
        s->scanned = 0;
        hki_file_reader_next_file(&s->r);
    }
}

static hk_status source_next(hki_node *n, hki_item *out) {
    source *const s = n->state;
    step at;
    HKI_TRY(good_next(n, &at));
    HKI_TRY(hki_record_item(n, at.bytes, at.size, out));
    hki_record_place(n, hki_file_reader_path(&s->r), s->r.record, s->r.offset);
    hki_file_reader_take(&s->r, at.used);
    s->r.record++;
    return HK_OK;
}

static void source_save(hki_node *n, hki_saver *w) {
    const source *const s = n->state;
    hki_file_reader_save(&s->r, w);
}

static hk_status source_restore(hki_node *n, hki_restorer *r) {
    source *const s = n->state;
    s->scanned = 0;
    return hki_file_reader_restore(&s->r, r);
}

// ---- division --------------------------------------------------------------

static hk_status cut_records(source *s, hki_cut *out) {
    for (;;) {
        bool files_end;
        step at = {0};
        const hk_status e = try_next(s, &at, &files_end);
        if (s->r.record == 0 && s->r.stream != NULL)
            hki_cut_begin(out, s->r.stream);
        if (e == HK_E_END)
            return HK_OK;
        HKI_TRY(hki_cut_record(out, s->r.offset, s->r.record));
        if (e != HK_OK && at.resume == 0) // the rest belongs to the last unit
            return e == HK_E_DATA ? HK_OK : e;
        hki_file_reader_take(&s->r, e == HK_OK ? at.used : at.resume);
        s->r.record++;
    }
}

static hk_status cut(const void *config_, size_t file, hki_cut *out) {
    const config *const c = config_;
    source s = {.c = c};
    hk_status e =
        hki_file_reader_init(&s.r, &c->files, c->format == &tfrecord, NULL);
    s.r.file = file;
    if (e == HK_OK)
        e = cut_records(&s, out);
    hki_cut_end(out, s.r.record);
    hki_file_reader_deinit(&s.r);
    hki_buf_deinit(&s.line);
    return e;
}

// A footer is no part of any unit.
static int64_t source_units(const hk_dataset *d, uint64_t *cuts) {
    const config *const c = d->config;
    if (c->footer_bytes > 0)
        return -1;
    const int64_t form[] = {(int64_t)c->record_bytes, (int64_t)c->header_bytes};
    return hki_division_units(
        &c->files,
        &(hki_cutter){hki_key(c->format->name, HKI_COUNT(form), form), cut, c},
        cuts);
}

static hk_status source_seek(hki_node *n, int64_t unit, int64_t *first) {
    source *const s = n->state;
    const hki_span span = hki_division_span(&s->c->files, unit);
    s->scanned = 0;
    *first = span.number;
    return hki_file_reader_bound(&s->r, &span);
}

static void config_destroy(void *p) {
    config *const c = p;
    hki_files_deinit(&c->files);
    hki_free(c);
}

static const hki_node_ops ops = {
    .name = "records",
    .destroy = config_destroy,
    .state_size = sizeof(source),
    .open = source_open,
    .close = source_close,
    .start = source_start,
    .next = source_next,
    .units = source_units,
    .seek = source_seek,
    .unit_of = hki_division_unit,
    .elements = hki_division_records,
    .save = source_save,
    .restore = source_restore,
};

// ---- the datasets ----------------------------------------------------------

static hk_status configure(hki_dataset_desc *desc, const format *f,
                           const char *const *files, size_t n_files,
                           const size_t bytes[3], const hk_file_options *opt) {
    config *c;
    hk_value *spec;
    HKI_TRY(hki_desc_config(desc, sizeof *c, &c));
    HKI_TRY(hki_desc_spec(desc, 1, &spec));
    c->format = f;
    c->record_bytes = bytes[0];
    c->header_bytes = bytes[1];
    c->footer_bytes = bytes[2];
    HKI_TRY(hki_files_init(&c->files, files, n_files, opt, f->name));
    *spec = (hk_value){.name = f->value,
                       .role = HK_FEATURE,
                       .form = HK_DENSE_FORM,
                       .dtype = HK_STRING};
    desc->key = hki_files_key(&c->files);
    desc->key = hki_hash(desc->key, f->name, strlen(f->name));
    desc->key = hki_hash(desc->key, bytes, 3 * sizeof bytes[0]);
    return HK_OK;
}

static hk_dataset *make_source(const format *f, const char *const *files,
                               size_t n_files, const size_t bytes[3],
                               const hk_file_options *opt) {
    hki_dataset_desc desc = {
        .ops = &ops, .count = -1, .flags = HKI_DATA_RECORDS};
    return hki_dataset_finish(&desc,
                              configure(&desc, f, files, n_files, bytes, opt));
}

hk_dataset *hk_data_tfrecord(const char *const *files, size_t n_files,
                             const hk_file_options *opt) {
    return make_source(&tfrecord, files, n_files, (const size_t[3]){0}, opt);
}

hk_dataset *hk_data_text(const char *const *files, size_t n_files,
                         const hk_file_options *opt) {
    return make_source(&text, files, n_files, (const size_t[3]){0}, opt);
}

hk_dataset *hk_data_fixed_length(const char *const *files, size_t n_files,
                                 int64_t record_bytes, int64_t header_bytes,
                                 int64_t footer_bytes,
                                 const hk_file_options *opt) {
    const int64_t limit = (int64_t)1 << 40;
    if (record_bytes < 1 || record_bytes > limit || header_bytes < 0 ||
        header_bytes > limit || footer_bytes < 0 || footer_bytes > limit)
        return hki_dataset_fail(
            NULL, 0,
            hki_fail(HK_E_INVALID_ARG,
                     "fixed_length: records of %lld bytes, a header of %lld or "
                     "a footer of %lld are out of range",
                     (long long)record_bytes, (long long)header_bytes,
                     (long long)footer_bytes));
    const size_t bytes[3] = {(size_t)record_bytes, (size_t)header_bytes,
                             (size_t)footer_bytes};
    return make_source(&fixed, files, n_files, bytes, opt);
}
