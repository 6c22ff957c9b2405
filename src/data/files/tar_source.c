// tar_source.c - webdataset samples: members of tar shards that share a name
// up to its first dot.
//
// The source gives strings, so that a shuffle holds packed pictures; a
// function behind it turns them into numbers and pixels when they are read,
// on several threads.
#include "data/files/division.h"
#include "data/core/pipeline.h"
#include "data/files/tar.h"

static void config_destroy(void *p) {
    hki_tar_set *const c = p;
    hki_files_deinit(&c->files);
    hki_arena_deinit(&c->arena);
    hki_free(c);
}

// ---- samples ---------------------------------------------------------------

typedef struct source {
    const hki_tar_set *c;
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

static const hki_tar_wanted *find_field(const hki_tar_set *c,
                                        const char *extension) {
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
    const hki_tar_set *const c = s->c;
    const hki_tar_wanted *const f = find_field(c, extension);
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
    return hki_string_set(cell_of(rows, hki_tar_first_field(c) + i), bytes,
                          (size_t)s->m.size);
}

static hk_status finish_sample(source *s, const hki_data_rows *rows) {
    const hki_tar_set *const c = s->c;
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
static hk_status pass_damage(hki_node *n, const outcome *o) {
    source *const s = n->state;
    s->r.record++;
    n->number++;
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
            HKI_TRY(pass_damage(n, &o));
        } else if (o.complete) {
            s->r.record++;
            return HK_OK;
        }
        HKI_TRY(hki_run_check(n->run));
    }
}

// ---- the source ------------------------------------------------------------

static hk_status source_open(hki_node *n) {
    const hki_tar_set *const c = n->d->config;
    source *const s = n->state;
    s->c = c;
    HKI_TRY(hki_zalloc_array(c->n_fields, sizeof *s->found, &s->found));
    return hki_file_reader_init(&s->r, &c->files, false, n->run);
}

static void source_close(hki_node *n) {
    source *const s = n->state;
    hki_file_reader_deinit(&s->r);
    hki_free(s->found);
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
    HKI_TRY_OR(next_sample(n, hki_box_rows(b)), hki_box_release(b));
    out->box = b;
    return HK_OK;
}

// The member that was read ahead is read again after a restore.
static void source_save(hki_node *n, hki_saver *w) {
    const source *const s = n->state;
    hki_file_reader at = s->r;
    if (s->pending)
        at.offset = s->m.start;
    hki_file_reader_save(&at, w);
}

static hk_status source_restore(hki_node *n, hki_restorer *r) {
    source *const s = n->state;
    s->pending = s->open_sample = false;
    return hki_file_reader_restore(&s->r, r);
}

// ---- division --------------------------------------------------------------

// Headers alone are looked at.
static hk_status cut_samples(source *s, hki_cut *out) {
    for (;;) {
        const char *extension;
        size_t key_size;
        bool known = true;
        hk_status e = hki_tar_next(&s->r, &s->m, &known);
        if (e == HK_OK && split_name(&s->m, &key_size, &extension) &&
            (!s->open_sample || key_size != s->key_size ||
             memcmp(s->key, s->m.name, key_size) != 0)) {
            s->r.record += s->open_sample;
            begin_sample(s, key_size);
            HKI_TRY(hki_cut_record(out, s->m.start, s->r.record));
        }
        if (e == HK_OK)
            e = hki_tar_pass(&s->r, &s->m);
        if (e != HK_OK) { // the rest belongs to the last unit
            s->r.record += s->open_sample;
            return e == HK_E_END || e == HK_E_DATA ? HK_OK : e;
        }
    }
}

static hk_status cut(const void *config, size_t file, hki_cut *out) {
    const hki_tar_set *const c = config;
    source s = {.c = c};
    bool fresh;
    hk_status e = hki_zalloc_array(c->n_fields, sizeof *s.found, &s.found);
    if (e == HK_OK)
        e = hki_file_reader_init(&s.r, &c->files, false, NULL);
    s.r.file = file;
    if (e == HK_OK)
        e = hki_file_reader_open(&s.r, &fresh);
    if (e == HK_OK) {
        hki_cut_begin(out, s.r.stream);
        e = cut_samples(&s, out);
    }
    hki_cut_end(out, s.r.record);
    hki_file_reader_deinit(&s.r);
    hki_free(s.found);
    return e;
}

static int64_t source_units(const hk_dataset *d, uint64_t *cuts) {
    const hki_tar_set *const c = d->config;
    return hki_division_units(
        &c->files, &(hki_cutter){hki_key("tar", 0, NULL), cut, c}, cuts);
}

static hk_status source_seek(hki_node *n, int64_t unit, int64_t *first) {
    source *const s = n->state;
    const hki_span span = hki_division_span(&s->c->files, unit);
    s->pending = s->open_sample = false;
    *first = span.number;
    return hki_file_reader_bound(&s->r, &span);
}

static const hki_node_ops ops = {
    .name = "tar",
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

// ---- options ---------------------------------------------------------------

HKI_OPTIONS(hk_tar_options, file)

static hk_status check_field(const hk_tar_field *f, size_t i) {
    if (f->name == NULL || f->name[0] == '\0' || f->extension == NULL ||
        f->extension[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG,
                        "tar: field %zu has no name or no extension", i);
    if (f->kind < HK_TAR_BYTES || f->kind > HK_TAR_NPY ||
        (f->role != 0 && f->role != HK_FEATURE && f->role != HK_LABEL))
        return hki_fail(HK_E_INVALID_ARG,
                        "tar: field \"%s\": unknown kind %d or role %d",
                        f->name, (int)f->kind, (int)f->role);
    if (f->kind == HK_TAR_NUMBER && f->dtype != HK_I32 && f->dtype != HK_I64 &&
        f->dtype != HK_F32)
        return hki_fail(HK_E_DTYPE,
                        "tar: field \"%s\": a number cannot be read as %s",
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
                    "tar: field \"%s\": the shape of an image has to be "
                    "[height, width, channels] with 1, 3 or 4 channels",
                    f->name);
}

static hk_status copy_words(hki_arena *a, const hk_tar_field *in,
                            hki_tar_wanted *out) {
    if (in->words == NULL)
        return HK_OK;
    HKI_TRY(hki_arena_alloc(a, in->n_words, sizeof *out->words, &out->words));
    out->n_words = in->n_words;
    for (size_t i = 0; i < in->n_words; i++)
        HKI_TRY(hki_arena_strdup(a, in->words[i], &out->words[i]));
    return HK_OK;
}

static hk_status copy_field(hki_arena *a, const hk_tar_field *in, size_t i,
                            hki_tar_wanted *out) {
    const char *extension;
    char *text = NULL;
    HKI_TRY(check_field(in, i));
    *out = (hki_tar_wanted){.kind = in->kind,
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
    return copy_words(a, in, out);
}

static hk_status copy_fields(hki_arena *a, const hk_tar_field *in, size_t n,
                             hki_tar_wanted **out) {
    if (in == NULL || n == 0 || n > 65536)
        return hki_fail(HK_E_INVALID_ARG, "tar: %zu fields are out of range",
                        n);
    HKI_TRY(hki_arena_alloc(a, n, sizeof **out, out));
    for (size_t i = 0; i < n; i++)
        HKI_TRY(copy_field(a, &in[i], i, &(*out)[i]));
    return HK_OK;
}

// ---- the datasets ----------------------------------------------------------

static hk_status make_spec(hki_dataset_desc *desc, const hki_tar_set *c) {
    hk_value *spec;
    size_t k = 0;
    HKI_TRY(hki_desc_spec(desc, hki_tar_first_field(c) + c->n_fields, &spec));
    if (c->decodes)
        spec[k++] = hki_tar_string(HKI_TAR_WHERE, HK_FEATURE);
    if (c->key != NULL)
        spec[k++] = hki_tar_string(c->key, HK_FEATURE);
    for (size_t i = 0; i < c->n_fields; i++)
        spec[k++] = hki_tar_string(c->fields[i].name, c->fields[i].role);
    return HK_OK;
}

static hk_status configure(hki_dataset_desc *desc, const char *const *files,
                           size_t n_files, const hk_tar_field *fields,
                           size_t n_fields, const hk_tar_options *opt) {
    hk_tar_options o;
    hki_tar_set *c;
    hk_tar_options_init(&o, sizeof o);
    HKI_TRY(hki_options_copy(&o, sizeof o, opt, "tar"));
    HKI_TRY(hki_desc_config(desc, sizeof *c, &c));
    HKI_TRY(hki_files_init(&c->files, files, n_files, o.file, "tar"));
    if (o.key != NULL)
        HKI_TRY(hki_arena_strdup(&c->arena, o.key, &c->key));
    HKI_TRY(copy_fields(&c->arena, fields, n_fields, &c->fields));
    c->n_fields = n_fields;
    for (size_t i = 0; i < n_fields; i++)
        c->decodes = c->decodes || fields[i].kind != HK_TAR_BYTES;
    desc->key = hki_files_key(&c->files);
    return make_spec(desc, c);
}

hk_dataset *hk_data_tar(const char *const *files, size_t n_files,
                        const hk_tar_field *fields, size_t n_fields,
                        const hk_tar_options *opt) {
    hki_dataset_desc desc = {.ops = &ops, .count = -1};
    hk_dataset *const d = hki_dataset_finish(
        &desc, configure(&desc, files, n_files, fields, n_fields, opt));
    const hki_tar_set *const c = hki_dataset_good(d) ? d->config : NULL;
    return c != NULL && c->decodes ? hki_tar_decoded(d, c) : d;
}

// ---- listing ---------------------------------------------------------------

static hk_status list_members(hki_file_reader *r,
                              hk_status (*fn)(void *user, const char *name,
                                              uint64_t size),
                              void *user) {
    bool fresh, known;
    HKI_TRY(hki_file_reader_open(r, &fresh));
    for (;;) {
        hki_tar_member m;
        const hk_status s = hki_tar_next(r, &m, &known);
        if (s == HK_E_END)
            return HK_OK;
        HKI_TRY(s);
        HKI_TRY(fn(user, m.name, m.size));
        HKI_TRY(hki_tar_pass(r, &m));
    }
}

hk_status hk_tar_list(const char *path, const hk_file_options *opt,
                      hk_status (*fn)(void *user, const char *name,
                                      uint64_t size),
                      void *user) {
    HKI_SCOPED(hki_files_deinit) hki_files files = {0};
    HKI_SCOPED(hki_file_reader_deinit) hki_file_reader r = {0};
    if (path == NULL || fn == NULL)
        return hki_fail(HK_E_INVALID_ARG, "tar list: NULL argument");
    HKI_TRY(hki_files_init(&files, &path, 1, opt, "tar list"));
    HKI_TRY(hki_file_reader_init(&r, &files, false, NULL));
    return list_members(&r, fn, user);
}
