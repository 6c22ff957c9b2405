// csv.c - CSV files as a dataset: options, and the source at work.
#include "data/csv/csv.h"
#include "data/core/pipeline.h"
#include "data/files/division.h"

HKI_OPTIONS(hk_csv_options, reserved, .infer_rows = 100, .delimiter = ',',
            .quote = '"', .decimal = '.')

// ---- options ---------------------------------------------------------------

static bool is_mark(char c) {
    return c == '\n' || c == '\r';
}

static hk_status check_marks(const hk_csv_options *o) {
    const bool bad = o->delimiter == 0 || is_mark(o->delimiter) ||
                     is_mark(o->quote) || is_mark(o->comment) ||
                     o->delimiter == o->quote || o->delimiter == o->comment ||
                     (o->quote != 0 && o->quote == o->comment);
    if (bad)
        return hki_fail(HK_E_INVALID_ARG,
                        "csv: delimiter, quote and comment (%d, %d, %d) have "
                        "to differ from each other and from line ends",
                        o->delimiter, o->quote, o->comment);
    if (o->decimal != '.' && o->decimal != ',' && o->decimal != 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "csv: the decimal separator is %d; it has to be . or ,",
                        o->decimal);
    if (o->skip_lines < 0 || o->n_fields < 0 || o->n_fields > INT32_MAX ||
        o->infer_rows < 1)
        return hki_fail(HK_E_INVALID_ARG,
                        "csv: skip_lines %lld, n_fields %lld or infer_rows "
                        "%lld is negative",
                        (long long)o->skip_lines, (long long)o->n_fields,
                        (long long)o->infer_rows);
    return HK_OK;
}

static hk_status copy_missing(hki_csv *c, const hk_csv_options *o) {
    if (o->n_missing > 0 && o->missing == NULL)
        return hki_fail(HK_E_INVALID_ARG, "csv: missing is NULL");
    HKI_TRY(hki_arena_alloc(&c->arena, o->n_missing, sizeof *c->missing,
                            &c->missing));
    c->missing_sizes = 1; // an empty field
    for (size_t i = 0; i < o->n_missing; i++) {
        if (o->missing[i] == NULL)
            return hki_fail(HK_E_INVALID_ARG, "csv: missing[%zu] is NULL", i);
        HKI_TRY(hki_arena_strdup(&c->arena, o->missing[i], &c->missing[i]));
        c->missing_sizes |= UINT64_C(1)
                            << HKI_MIN(strlen(o->missing[i]), (size_t)63);
        uint8_t *const first = &c->first[(uint8_t)o->missing[i][0]];
        *first = HKI_CSV_TOKEN;
        c->number_tokens =
            c->number_tokens ||
            strspn(o->missing[i], "0123456789") == strlen(o->missing[i]);
    }
    c->n_missing = o->n_missing;
    for (size_t i = 0; c->trim && i <= ' '; i++)
        c->first[i] = HKI_CSV_BLANK;
    return HK_OK;
}

// ---- the dataset -----------------------------------------------------------

static void csv_destroy(void *p) {
    hki_csv *const c = p;
    hki_files_deinit(&c->files);
    hki_arena_deinit(&c->arena);
    hki_free(c);
}

static hk_status open_files(hki_csv *c, const char *const *files,
                            size_t n_files, const hk_csv_options *o) {
    HKI_TRY(check_marks(o));
    if (o->n_columns > 0 ? o->columns == NULL : o->select != NULL)
        return hki_fail(HK_E_INVALID_ARG, "csv: %zu columns, but %s",
                        o->n_columns,
                        o->n_columns > 0 ? "columns is NULL" : "a selection");
    HKI_TRY(hki_files_init(&c->files, files, n_files, o->file, "csv"));
    c->skip_lines = o->skip_lines;
    c->header = o->header != 0;
    c->trim = o->trim != 0;
    c->keep_blank_lines = o->keep_blank_lines != 0;
    c->delimiter = (uint8_t)o->delimiter;
    c->quote = (uint8_t)o->quote;
    c->comment = (uint8_t)o->comment;
    c->decimal_comma = o->decimal == ',';
    c->dressed = o->dressed != 0;
    HKI_TRY(copy_missing(c, o));
    return hki_csv_columns(c, o);
}

#define BLOCK_ROWS 64

// Where the reader stood.
typedef struct position {
    size_t file;
    uint64_t record, offset;
} position;

typedef struct source {
    hki_csv_reader r;
    hki_csv_place *places;
    hki_box *block; // rows [given, block->n_rows) are to come; NULL: none are
    int64_t given;
    position begin;  // of the block
    int64_t restore; // rows of the next block that were given before
} source;

static hk_status source_open(hki_node *n) {
    const hki_csv *const c = n->d->config;
    source *const s = n->state;
    HKI_TRY(hki_zalloc_array(c->n_columns, sizeof *s->places, &s->places));
    return hki_csv_reader_init(
        &s->r, c, HKI_ISA_PICK(hki_run_isa(n->run), hki_csv_kernels_table),
        n->run);
}

static void drop_block(source *s) {
    hki_box_release(s->block);
    s->block = NULL;
    s->given = s->restore = 0;
}

static void source_close(hki_node *n) {
    source *const s = n->state;
    drop_block(s);
    hki_csv_reader_deinit(&s->r);
    hki_free(s->places);
}

static hk_status source_start(hki_node *n) {
    source *const s = n->state;
    drop_block(s);
    hki_csv_reader_rewind(&s->r);
    return HK_OK;
}

static void set_places(source *s, const hki_data_rows *rows, size_t n) {
    for (size_t k = 0; k < n; k++) {
        const hki_col *const col = &rows->col[k];
        s->places[k] = (hki_csv_place){
            .data = col->data,
            .row_bytes = col->row_bytes,
            .cells =
                col->strings != NULL ? hki_tensor_strings(col->strings) : NULL,
        };
    }
}

// Good rows; damaged ones are passed over or told. *got may be less than want.
static hk_status good_rows(hki_node *n, int64_t row, int64_t want,
                           int64_t *got) {
    source *const s = n->state;
    const hki_csv *const c = n->d->config;
    for (;;) {
        bool skip = false;
        const hk_status e = hki_csv_rows(&s->r, s->places, row, want, got);
        if (e == HK_OK || e == HK_E_END)
            return e;
        if (*got > 0) // the fault comes again at the next call
            return HK_OK;
        HKI_TRY(hki_on_error(n->run, c->files.opt.on_error, e, &skip));
        HKI_TRY(hki_csv_skip(&s->r));
        n->number++;
        HKI_TRY(hki_run_check(n->run));
    }
}

// Fills the next block; those of its rows that were given before a restore are
// passed over.
static hk_status next_block(hki_node *n) {
    source *const s = n->state;
    const int64_t before = s->restore;
    hki_box *b;
    int64_t got = 0;
    drop_block(s);
    HKI_TRY(hki_node_block(n, BLOCK_ROWS, 0, &b));
    set_places(s, hki_box_rows(b), n->d->spec.count);
    s->begin = (position){s->r.r.file, s->r.r.record, s->r.r.offset};
    const int64_t number = n->number - before;
    hk_status e = good_rows(n, 0, BLOCK_ROWS, &got);
    if (e == HK_OK && got <= before)
        e = hki_fail(HK_E_DATA, "csv: the file has changed since the position "
                                "in it was saved");
    HKI_TRY_OR(e, hki_box_release(b));
    // A row that was left out before the block was so the first time, too.
    if (before > 0)
        n->number = number;
    b->first = hki_node_stamp(n, n->number);
    b->n_rows = got;
    n->number += before;
    s->block = b;
    s->given = before;
    return HK_OK;
}

static hk_status source_pull(hki_node *n, hki_item *items, int64_t want,
                             int64_t *got) {
    source *const s = n->state;
    if (s->block == NULL)
        HKI_TRY(next_block(n));
    hki_box *const b = s->block;
    *got = HKI_MIN(want, b->n_rows - s->given);
    for (int64_t i = 0; i < *got; i++)
        items[i] = (hki_item){.box = hki_box_retain(b),
                              .stamp = b->first + (uint64_t)(s->given + i)};
    s->given += *got;
    n->number += *got;
    if (s->given == b->n_rows)
        drop_block(s);
    return HK_OK;
}

static hk_status source_fill(hki_node *n, hki_data_rows *rows, int64_t first,
                             int64_t want, int64_t *got) {
    source *const s = n->state;
    set_places(s, rows, n->d->spec.count);
    HKI_TRY(good_rows(n, first, want, got));
    n->number += *got;
    return HK_OK;
}

// The beginning of the block at hand, and how much of it is gone.
static void source_save(hki_node *n, hki_saver *w) {
    const source *const s = n->state;
    hki_file_reader at = s->r.r;
    if (s->block != NULL) {
        at.file = s->begin.file;
        at.record = s->begin.record;
        at.offset = s->begin.offset;
    }
    hki_file_reader_save(&at, w);
    hki_save_i64(w, s->block != NULL ? s->given : s->restore);
}

static hk_status source_restore(hki_node *n, hki_restorer *r) {
    source *const s = n->state;
    HKI_TRY(hki_file_reader_restore(&s->r.r, r));
    hki_csv_reader_moved(&s->r);
    s->restore = hki_restore_i64(r, "the number of used rows of a block", 0,
                                 HKI_MIN(n->number, BLOCK_ROWS - 1));
    return r->status;
}

// ---- division --------------------------------------------------------------

static hk_status cut_rows(hki_csv_reader *r, hki_cut *out) {
    for (;;) {
        hk_status s = hki_csv_find_row(r);
        if (s == HK_E_END)
            return HK_OK;
        if (s == HK_OK) {
            HKI_TRY(hki_cut_record(out, r->r.offset, r->r.record));
            s = hki_csv_pass_row(r);
        }
        if (s == HK_OK)
            continue;
        if (hki_csv_is_hidden(r)) // what follows belongs to the last unit
            return s == HK_E_NO_MEMORY || s == HK_E_IO ? s : HK_OK;
        HKI_TRY(hki_csv_skip(r));
    }
}

static hk_status cut(const void *config, size_t file, hki_cut *out) {
    HKI_SCOPED(hki_csv_reader_deinit) hki_csv_reader r = {0};
    HKI_TRY(hki_csv_reader_init(
        &r, config, HKI_ISA_PICK(hki_isa_best(), hki_csv_kernels_table), NULL));
    r.r.file = file;
    HKI_TRY(hki_csv_open_file(&r));
    hki_cut_begin(out, r.r.stream);
    const hk_status s = cut_rows(&r, out);
    hki_cut_end(out, r.r.record);
    return s;
}

static int64_t source_units(const hk_dataset *d, uint64_t *cuts) {
    const hki_csv *const c = d->config;
    const int64_t form[] = {c->skip_lines,      c->header,  c->delimiter,
                            c->quote,           c->comment, c->trim,
                            c->keep_blank_lines};
    return hki_division_units(
        &c->files, &(hki_cutter){hki_key("csv", HKI_COUNT(form), form), cut, c},
        cuts);
}

static hk_status source_seek(hki_node *n, int64_t unit, int64_t *first) {
    const hki_csv *const c = n->d->config;
    source *const s = n->state;
    const hki_span span = hki_division_span(&c->files, unit);
    drop_block(s);
    hki_csv_reader_moved(&s->r);
    *first = span.number;
    return hki_file_reader_bound(&s->r.r, &span);
}

static const hki_node_ops ops = {
    .name = "csv",
    .destroy = csv_destroy,
    .state_size = sizeof(source),
    .open = source_open,
    .close = source_close,
    .start = source_start,
    .pull = source_pull,
    .fill = source_fill,
    .units = source_units,
    .seek = source_seek,
    .unit_of = hki_division_unit,
    .elements = hki_division_records,
    .save = source_save,
    .restore = source_restore,
};

static uint64_t key_of(const hki_csv *c) {
    uint64_t h = hki_files_key(&c->files);
    const int64_t numbers[] = {c->skip_lines, c->header,  c->n_fields,
                               c->delimiter,  c->comment, c->decimal_comma};
    h = hki_hash(h, numbers, sizeof numbers);
    for (size_t k = 0; k < c->n_columns; k++)
        h = hki_hash(h, &c->columns[k].index, sizeof c->columns[k].index);
    return h;
}

static hk_status configure(hki_dataset_desc *desc, const char *const *files,
                           size_t n_files, const hk_csv_options *opt) {
    hk_csv_options o;
    hki_csv *c;
    hk_csv_options_init(&o, sizeof o);
    HKI_TRY(hki_options_copy(&o, sizeof o, opt, "csv"));
    HKI_TRY(hki_desc_config(desc, sizeof *c, &c));
    HKI_TRY(open_files(c, files, n_files, &o));
    desc->spec = c->values;
    desc->n_spec = c->n_columns;
    desc->key = key_of(c);
    return HK_OK;
}

hk_dataset *hk_data_csv(const char *const *files, size_t n_files,
                        const hk_csv_options *opt) {
    hki_dataset_desc desc = {
        .ops = &ops, .count = -1, .flags = HKI_DATA_BLOCKS};
    return hki_dataset_finish(&desc, configure(&desc, files, n_files, opt));
}
