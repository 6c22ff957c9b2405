// tar_source.c - webdataset samples: members of tar shards that share a name
// up to its first dot.
//
// The source gives strings, so that a shuffle holds packed pictures; a
// function behind it turns them into numbers and pixels when they are read,
// on several threads.
#include "data/files/array.h"
#include "data/core/number.h"
#include "data/files/tar.h"

#define WHERE "__where__" // hidden value: place of a sample, for messages

typedef struct field {
    const char *name;
    const char *extension; // lower case, alternatives between semicolons
    hk_tar_kind kind;
    hk_dtype dtype;
    hk_role role;
    hk_shape shape;
} field;

typedef struct config {
    hki_files files;
    hki_arena arena;
    field *fields;
    size_t n_fields;
    const char *key; // NULL: none
    bool decodes;    // a function follows, to which WHERE is told
} config;

// Values of the source: WHERE if it decodes, the key if asked for, the fields.
static size_t first_field(const config *c) {
    return (size_t)c->decodes + (c->key != NULL);
}

static void config_destroy(void *p) {
    config *const c = p;
    if (c == NULL)
        return;
    hki_files_deinit(&c->files);
    hki_arena_deinit(&c->arena);
    hki_free(c);
}

// ---- samples ---------------------------------------------------------------

typedef struct source {
    const config *c;
    hki_file_reader r;
    hki_tar_member m; // read ahead: the first one of the next sample
    bool pending;
    bool *found; // fields of the sample at hand
    char key[HKI_TAR_MAX_NAME + 1];
    size_t key_size;
    bool open_sample; // members of a sample have been taken
    uint64_t sample;  // where its headers begin
} source;

// Splits a name into key and extension; false for names that have none.
static bool split_name(const hki_tar_member *m, size_t *key_size,
                       const char **extension) {
    const char *const slash = strrchr(m->name, '/');
    const char *const last = slash != NULL ? slash + 1 : m->name;
    const char *const dot = strchr(last, '.');
    if (dot == NULL || dot == last)
        return false;
    *key_size = (size_t)(dot - m->name);
    *extension = dot + 1;
    return true;
}

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

// One of the alternatives is the extension.
static bool extension_fits(const char *alternatives, const char *extension) {
    for (const char *p = alternatives;; p++) {
        const char *e = extension;
        while (*p != '\0' && *p != ';' && *p == lower(*e)) {
            p++;
            e++;
        }
        if ((*p == '\0' || *p == ';') && *e == '\0')
            return true;
        p = strchr(p, ';');
        if (p == NULL)
            return false;
    }
}

static const field *find_field(const config *c, const char *extension) {
    for (size_t i = 0; i < c->n_fields; i++)
        if (extension_fits(c->fields[i].extension, extension))
            return &c->fields[i];
    return NULL;
}

static void begin_sample(source *s, size_t key_size) {
    memcpy(s->key, s->m.name, key_size);
    s->key[key_size] = '\0';
    s->key_size = key_size;
    s->open_sample = true;
    s->sample = s->m.start;
    for (size_t i = 0; i < s->c->n_fields; i++)
        s->found[i] = false;
}

static hki_string *cell_of(const hki_data_rows *rows, size_t k) {
    return hki_tensor_strings(rows->col[k].strings);
}

// Copies the member's data to its field; members of no field are passed over.
static hk_status take_member(source *s, const char *extension,
                             const hki_data_rows *rows) {
    const config *const c = s->c;
    const field *const f = find_field(c, extension);
    const uint8_t *bytes;
    if (f == NULL)
        return hki_tar_pass(&s->r, &s->m);
    const size_t i = (size_t)(f - c->fields);
    if (s->found[i])
        return hki_file_reader_fail(&s->r, HK_E_DATA, 0,
                                    "sample \"%.200s\" has \"%.50s\" twice",
                                    s->key, extension);
    HKI_TRY(hki_tar_data(&s->r, &s->m, &bytes));
    s->found[i] = true;
    return hki_string_set(cell_of(rows, first_field(c) + i), bytes,
                          (size_t)s->m.size);
}

static hk_status finish_sample(source *s, const hki_data_rows *rows) {
    const config *const c = s->c;
    char where[1024];
    s->open_sample = false;
    for (size_t i = 0; i < c->n_fields; i++)
        if (!s->found[i])
            return hki_fail(
                HK_E_DATA,
                "%s: record %llu at byte %llu: sample \"%.200s\" "
                "has no \"%s\"",
                hki_file_reader_path(&s->r), (unsigned long long)s->r.record,
                (unsigned long long)s->sample, s->key, c->fields[i].extension);
    if (c->decodes) {
        const int n = snprintf(
            where, sizeof where, "%.500s: record %llu at byte %llu: \"%.200s\"",
            hki_file_reader_path(&s->r), (unsigned long long)s->r.record,
            (unsigned long long)s->sample, s->key);
        HKI_TRY(hki_string_set(cell_of(rows, 0), where, (size_t)n));
    }
    if (c->key != NULL)
        HKI_TRY(hki_string_set(cell_of(rows, c->decodes), s->key, s->key_size));
    return HK_OK;
}

// What a step through the archive came to.
typedef struct outcome {
    bool complete; // a sample is finished (well or not)
    bool resumes;  // after damage: the reader stands behind it
} outcome;

// One member further. HK_E_END at the end of the file, with no sample open.
static hk_status step(source *s, const hki_data_rows *rows, outcome *o) {
    const char *extension;
    size_t key_size;
    bool known = true;
    *o = (outcome){0};
    hk_status e = s->pending ? HK_OK : hki_tar_next(&s->r, &s->m, &known);
    if (e == HK_E_END) {
        o->complete = s->open_sample;
        o->resumes = true;
        return s->open_sample ? finish_sample(s, rows) : HK_E_END;
    }
    if (e != HK_OK) {
        o->resumes = known;
        return e;
    }
    s->pending = true;
    if (!split_name(&s->m, &key_size, &extension)) {
        s->pending = false;
        return hki_tar_pass(&s->r, &s->m);
    }
    const bool same = s->open_sample && key_size == s->key_size &&
                      memcmp(s->key, s->m.name, key_size) == 0;
    if (s->open_sample && !same) {
        o->complete = o->resumes = true;
        return finish_sample(s, rows);
    }
    if (!same)
        begin_sample(s, key_size);
    const uint64_t before = s->r.offset;
    e = take_member(s, extension, rows);
    o->resumes = s->r.offset == before;
    if (e == HK_OK)
        s->pending = false;
    return e;
}

// Goes on behind damage; what is hidden takes the rest of the file along.
static hk_status pass_damage(source *s, const outcome *o) {
    s->r.record++;
    if (o->complete)
        return HK_OK;
    s->open_sample = false;
    s->pending = false;
    if (o->resumes && hki_tar_pass(&s->r, &s->m) == HK_OK)
        return HK_OK;
    hki_file_reader_next_file(&s->r);
    return HK_OK;
}

static hk_status next_sample(hki_node *n, const hki_data_rows *rows) {
    source *const s = n->state;
    for (;;) {
        outcome o = {0};
        bool fresh, skip = false;
        hk_status e = hki_file_reader_open(&s->r, &fresh);
        if (e == HK_E_END)
            return e;
        if (e == HK_OK)
            e = step(s, rows, &o);
        if (e == HK_E_END) {
            hki_file_reader_next_file(&s->r);
        } else if (e != HK_OK) {
            HKI_TRY(hki_on_error(n->run, s->c->files.opt.on_error, e, &skip));
            HKI_TRY(pass_damage(s, &o));
        } else if (o.complete) {
            s->r.record++;
            return HK_OK;
        }
        HKI_TRY(hki_run_check(n->run));
    }
}

// ---- the source ------------------------------------------------------------

static hk_status source_open(hki_node *n) {
    const config *const c = n->d->config;
    source *s;
    HKI_TRY(hki_zalloc_array(1, sizeof *s, &s));
    s->c = c;
    n->state = s;
    HKI_TRY(hki_zalloc_array(c->n_fields, sizeof *s->found, &s->found));
    return hki_file_reader_init(&s->r, &c->files, false);
}

static void source_close(hki_node *n) {
    source *const s = n->state;
    if (s == NULL)
        return;
    hki_file_reader_deinit(&s->r);
    hki_free(s->found);
    hki_free(s);
}

static hk_status source_start(hki_node *n) {
    source *const s = n->state;
    hki_file_reader_rewind(&s->r);
    s->pending = s->open_sample = false;
    return HK_OK;
}

static hk_status source_next(hki_node *n, hki_item *out) {
    hki_box *b;
    HKI_TRY(hki_node_box(n, &b));
    const hk_status s = next_sample(n, hki_box_rows(b));
    if (s != HK_OK) {
        hki_box_release(b);
        return s;
    }
    out->box = b;
    return HK_OK;
}

// The member that was read ahead is read again after a restore.
static hk_status source_save(hki_node *n, hki_saver *w) {
    const source *const s = n->state;
    hki_file_reader at = s->r;
    if (s->pending)
        at.offset = s->m.start;
    hki_file_reader_save(&at, w);
    return HK_OK;
}

static hk_status source_restore(hki_node *n, hki_restorer *r) {
    source *const s = n->state;
    s->pending = s->open_sample = false;
    return hki_file_reader_restore(&s->r, r);
}

static const hki_node_ops ops = {
    .name = "tar",
    .destroy = config_destroy,
    .open = source_open,
    .close = source_close,
    .start = source_start,
    .next = source_next,
    .save = source_save,
    .restore = source_restore,
};

// ---- decoding --------------------------------------------------------------

typedef struct decoding {
    hki_arena arena;
    field *fields;
    size_t n_fields;
    bool key;
    hk_on_error on_error;
    uint64_t max_pixels;
} decoding;

static void decoding_destroy(void *p) {
    decoding *const d = p;
    if (d == NULL)
        return;
    hki_arena_deinit(&d->arena);
    hki_free(d);
}

static hk_status scratch_open(const void *p, void **out) {
    hki_picture_decoder *d = NULL;
    (void)p;
    HKI_TRY(hki_picture_decoder_create(&d));
    *out = d;
    return HK_OK;
}

static void scratch_close(void *scratch) {
    hki_picture_decoder_destroy(scratch);
}

static hk_status decode_number(const field *f, const uint8_t *p, size_t n,
                               void *out) {
    while (n > 0 && (p[n - 1] == '\n' || p[n - 1] == '\r'))
        n--;
    const bool good = f->dtype == HK_I32   ? hki_parse_i32(p, n, out)
                      : f->dtype == HK_I64 ? hki_parse_i64(p, n, out)
                                           : hki_parse_f32(p, n, out);
    if (good)
        return HK_OK;
    return hki_fail(HK_E_DATA, "\"%s\" holds no %s", f->name,
                    hk_dtype_name(f->dtype));
}

static hk_status decode_picture(const decoding *d, const field *f,
                                hki_picture_decoder *decoder, const uint8_t *p,
                                size_t n, hki_data_rows *rows, size_t k,
                                int64_t row) {
    const int channels = f->shape.dim[2] > 0 ? (int)f->shape.dim[2] : 0;
    hki_picture picture;
    void *pixels;
    HKI_TRY(
        hki_picture_probe(p, n, channels, d->max_pixels, f->name, &picture));
    const hk_shape shape = hk_shape_make(
        3, (int64_t[]){picture.height, picture.width, picture.channels});
    HKI_TRY(hki_rows_tensor(rows, k, row, &shape, &pixels));
    picture.pixels = pixels;
    return hki_picture_read(decoder, p, n, f->name, &picture);
}

static hk_status decode_array(const field *f, const uint8_t *p, size_t n,
                              hki_data_rows *rows, size_t k, int64_t row) {
    hk_tensor *t = NULL;
    HKI_TRY(hki_npy_tensor(p, n, f->name, &t));
    const hk_value v = {.name = f->name,
                        .form = HK_DENSE_FORM,
                        .dtype = hk_tensor_dtype(t),
                        .shape = hk_tensor_shape(t),
                        .tensor = t};
    const hk_status s = hki_rows_copy(rows, k, row, &v);
    hk_tensor_release(t);
    return s;
}

static hk_status decode_field(const decoding *d, size_t i,
                              hki_picture_decoder *decoder, hki_fn_call *call) {
    const field *const f = &d->fields[i];
    const hk_value *const in = &call->in->values[1 + d->key + i];
    const size_t k = d->key + i;
    const void *bytes;
    size_t size;
    HKI_TRY(hk_tensor_get_string(in->tensor, 0, &bytes, &size));
    switch (f->kind) {
    case HK_TAR_NUMBER:
        return decode_number(f, bytes, size,
                             hki_rows_at(call->out, k, call->row));
    case HK_TAR_PICTURE:
        return decode_picture(d, f, decoder, bytes, size, call->out, k,
                              call->row);
    case HK_TAR_NPY:
        return decode_array(f, bytes, size, call->out, k, call->row);
    case HK_TAR_BYTES:
        break;
    }
    return hki_rows_copy(call->out, k, call->row, in);
}

static hk_status decode(const void *p, void *scratch, hki_fn_call *call) {
    const decoding *const d = p;
    hk_status s = HK_OK;
    if (d->key)
        s = hki_rows_copy(call->out, 0, call->row, &call->in->values[1]);
    for (size_t i = 0; s == HK_OK && i < d->n_fields; i++)
        s = decode_field(d, i, scratch, call);
    if (s == HK_OK || s == HK_E_NO_MEMORY)
        return s;
    char text[400];
    const void *where;
    size_t size;
    snprintf(text, sizeof text, "%s", hk_last_error());
    HKI_TRY(hk_tensor_get_string(call->in->values[0].tensor, 0, &where, &size));
    s = hki_fail(s, "%.*s: %s", (int)HKI_MIN(size, (size_t)600),
                 (const char *)where, text);
    return hki_on_error(call->run, d->on_error, s, &call->skip);
}

static const hki_fn_ops decoder_ops = {
    .name = "tar_decode",
    .destroy = decoding_destroy,
    .scratch_open = scratch_open,
    .scratch_close = scratch_close,
    .apply = decode,
};

// ---- options ---------------------------------------------------------------

void hk_tar_options_init(hk_tar_options *opt, size_t struct_size) {
    const hk_tar_options d = {0};
    hki_options_init(opt, struct_size, &d, sizeof d);
}
_Static_assert(sizeof(hk_tar_options) ==
                   offsetof(hk_tar_options, file) + sizeof(void *),
               "no tail padding");

static hk_status check_field(const hk_tar_field *f, size_t i) {
    if (f->name == NULL || f->name[0] == '\0' || f->extension == NULL ||
        f->extension[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG,
                        "tar: field %zu has no name or no extension", i);
    if (f->kind < HK_TAR_BYTES || f->kind > HK_TAR_NPY ||
        (f->role != 0 && f->role != HK_FEATURE && f->role != HK_LABEL))
        return hki_fail(HK_E_INVALID_ARG, "tar: field \"%s\": kind %d, role %d",
                        f->name, (int)f->kind, (int)f->role);
    if (f->kind == HK_TAR_NUMBER && f->dtype != HK_I32 && f->dtype != HK_I64 &&
        f->dtype != HK_F32)
        return hki_fail(HK_E_DTYPE, "tar: field \"%s\": a number as %s",
                        f->name, hk_dtype_name(f->dtype));
    if (f->kind != HK_TAR_PICTURE)
        return HK_OK;
    const int64_t channels = f->shape.dim[2];
    const bool good = f->shape.rank == 0 ||
                      (f->shape.rank == 3 && (channels == 1 || channels == 3 ||
                                              channels == 4 || channels == -1));
    if (good)
        return HK_OK;
    return hki_fail(HK_E_SHAPE,
                    "tar: field \"%s\": a picture is [height, width, channels] "
                    "with 1, 3 or 4 channels",
                    f->name);
}

static hk_status copy_field(hki_arena *a, const hk_tar_field *in, size_t i,
                            field *out) {
    const char *extension;
    char *text = NULL;
    HKI_TRY(check_field(in, i));
    *out = (field){.kind = in->kind,
                   .dtype = in->dtype,
                   .role = in->role == 0 ? HK_FEATURE : in->role,
                   .shape = in->shape};
    if (in->kind == HK_TAR_PICTURE) {
        out->dtype = HK_U8;
        if (in->shape.rank == 0)
            out->shape = hk_shape_make(3, (int64_t[]){-1, -1, 3});
    } else if (in->kind == HK_TAR_BYTES) {
        out->dtype = HK_STRING;
        out->shape = hk_shape_make(0, NULL);
    } else if (in->kind == HK_TAR_NUMBER) {
        out->shape = hk_shape_make(0, NULL);
    }
    HKI_TRY(hki_arena_strdup(a, in->name, &out->name));
    HKI_TRY(hki_arena_alloc(a, strlen(in->extension) + 1, 1, &text));
    extension = in->extension;
    for (size_t k = 0; extension[k] != '\0'; k++)
        text[k] = lower(extension[k]);
    out->extension = text;
    return HK_OK;
}

static hk_status copy_fields(hki_arena *a, const hk_tar_field *in, size_t n,
                             field **out) {
    if (in == NULL || n == 0 || n > 65536)
        return hki_fail(HK_E_INVALID_ARG, "tar: %zu fields", n);
    HKI_TRY(hki_arena_alloc(a, n, sizeof **out, out));
    for (size_t i = 0; i < n; i++)
        HKI_TRY(copy_field(a, &in[i], i, &(*out)[i]));
    return HK_OK;
}

// ---- the datasets ----------------------------------------------------------

static hk_value string_value(const char *name, hk_role role) {
    return (hk_value){
        .name = name, .role = role, .form = HK_DENSE_FORM, .dtype = HK_STRING};
}

// c: taken.
static hk_dataset *make_source(config *c) {
    hk_value *spec = NULL;
    const size_t n = first_field(c) + c->n_fields;
    const hk_status s = hki_zalloc_array(n, sizeof *spec, &spec);
    if (s != HK_OK) {
        config_destroy(c);
        return hki_dataset_fail(NULL, 0, s);
    }
    size_t k = 0;
    if (c->decodes)
        spec[k++] = string_value(WHERE, HK_FEATURE);
    if (c->key != NULL)
        spec[k++] = string_value(c->key, HK_FEATURE);
    for (size_t i = 0; i < c->n_fields; i++)
        spec[k++] = string_value(c->fields[i].name, c->fields[i].role);
    hk_dataset *const d = hki_dataset_make(&(hki_dataset_desc){
        .ops = &ops,
        .config = c,
        .spec = spec,
        .n_spec = n,
        .count = -1,
        .key = hki_files_key(&c->files),
    });
    hki_free(spec);
    return d;
}

// d: taken; what comes out of the source, decoded.
static hk_dataset *make_decoder(hk_dataset *d, const hk_tar_field *fields,
                                size_t n_fields, const config *c) {
    decoding *x = NULL;
    hk_value *spec = NULL;
    const bool key = c->key != NULL;
    const size_t n = key + n_fields;
    hk_status s = hki_zalloc_array(1, sizeof *x, &x);
    if (s == HK_OK)
        s = copy_fields(&x->arena, fields, n_fields, &x->fields);
    if (s == HK_OK)
        s = hki_zalloc_array(n, sizeof *spec, &spec);
    if (s != HK_OK) {
        decoding_destroy(x);
        return hki_dataset_fail(&d, 1, s);
    }
    x->n_fields = n_fields;
    x->key = key;
    x->on_error = c->files.opt.on_error;
    x->max_pixels = c->files.opt.max_pixels;
    if (key)
        spec[0] = string_value(c->key, HK_FEATURE);
    for (size_t i = 0; i < n_fields; i++)
        spec[key + i] = (hk_value){.name = x->fields[i].name,
                                   .role = x->fields[i].role,
                                   .form = HK_DENSE_FORM,
                                   .dtype = x->fields[i].dtype,
                                   .shape = x->fields[i].shape};
    hk_dataset *const out =
        hki_data_fn(d, &decoder_ops, x, spec, n, 0, HK_DATA_AUTO,
                    x->on_error == HK_ON_ERROR_SKIP ? HKI_DATA_MAY_SKIP : 0);
    hki_free(spec);
    return out;
}

static hk_status configure(config *c, const char *const *files, size_t n_files,
                           const hk_tar_field *fields, size_t n_fields,
                           const hk_tar_options *opt) {
    hk_tar_options o;
    hk_tar_options_init(&o, sizeof o);
    HKI_TRY(hki_options_copy(&o, sizeof o, opt, "tar"));
    HKI_TRY(hki_files_init(&c->files, files, n_files, o.file, "tar"));
    if (o.key != NULL)
        HKI_TRY(hki_arena_strdup(&c->arena, o.key, &c->key));
    HKI_TRY(copy_fields(&c->arena, fields, n_fields, &c->fields));
    c->n_fields = n_fields;
    for (size_t i = 0; i < n_fields; i++)
        c->decodes = c->decodes || fields[i].kind != HK_TAR_BYTES;
    return HK_OK;
}

hk_dataset *hk_data_tar(const char *const *files, size_t n_files,
                        const hk_tar_field *fields, size_t n_fields,
                        const hk_tar_options *opt) {
    config *c;
    hk_status s = hki_zalloc_array(1, sizeof *c, &c);
    if (s != HK_OK)
        return hki_dataset_fail(NULL, 0, s);
    s = configure(c, files, n_files, fields, n_fields, opt);
    if (s != HK_OK) {
        config_destroy(c);
        return hki_dataset_fail(NULL, 0, s);
    }
    hk_dataset *const d = make_source(c);
    if (!hki_dataset_good(d) || !c->decodes)
        return d;
    return make_decoder(d, fields, n_fields, c);
}
