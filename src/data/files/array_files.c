// array_files.c - IDX, .npy, .npz and CIFAR files as tables in memory.
#include "data/files/array.h"

// ---- one file --------------------------------------------------------------

static hk_status parse(const uint8_t *bytes, size_t size, const char *path,
                       hk_tensor **out) {
    return hki_is_npy(bytes, size) ? hki_npy_tensor(bytes, size, path, out)
                                   : hki_idx_parse(bytes, size, path, out);
}

static hk_status read_array(const char *path, const hk_file_options *opt,
                            hk_tensor **out) {
    hk_file_options o;
    uint8_t *bytes = NULL;
    size_t size = 0;
    if (path == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "array file: NULL argument");
    HKI_TRY(hki_file_options_get(&o, opt, "array file"));
    HKI_TRY(hki_read_whole(path, &o, &bytes, &size));
    const hk_status s = parse(bytes, size, path, out);
    hki_free(bytes);
    return s;
}

// ---- several files as one table --------------------------------------------

static void release_values(hk_value *values, size_t n) {
    for (size_t i = 0; values != NULL && i < n; i++)
        hk_tensor_release(values[i].tensor);
    hki_free(values);
}

// The values (taken) as a table, or the error s.
static hk_dataset *table_of(hk_value *values, size_t n, hk_status s) {
    hk_dataset *const d =
        s == HK_OK ? hk_data_slices(values, n) : hki_dataset_fail(NULL, 0, s);
    release_values(values, n);
    return d;
}

hk_value hki_array_value(const char *name, hk_role role, hk_tensor *t) {
    return (hk_value){.name = name,
                      .role = role == 0 ? HK_FEATURE : role,
                      .form = HK_DENSE_FORM,
                      .dtype = hk_tensor_dtype(t),
                      .shape = hk_tensor_shape(t),
                      .tensor = t};
}

hk_dataset *hk_data_arrays(const hk_array_file *files, size_t n,
                           const hk_file_options *opt) {
    hk_value *values = NULL;
    if (files == NULL || n == 0)
        return hki_dataset_fail(NULL, 0,
                                hki_fail(HK_E_INVALID_ARG, "arrays: no files"));
    hk_dataset *large;
    hk_status s = hki_array_rows(files, n, opt, &large);
    if (s == HK_OK && large != NULL)
        return large;
    if (s == HK_OK)
        s = hki_zalloc_array(n, sizeof *values, &values);
    for (size_t i = 0; s == HK_OK && i < n; i++) {
        hk_tensor *t = NULL;
        if (files[i].name == NULL)
            s = hki_fail(HK_E_INVALID_ARG, "arrays: file %zu has no name", i);
        else
            s = read_array(files[i].path, opt, &t);
        if (s == HK_OK)
            values[i] = hki_array_value(files[i].name, files[i].role, t);
    }
    return table_of(values, n, s);
}

// ---- .npz ------------------------------------------------------------------

typedef struct archive {
    const char *path;
    uint8_t *bytes;
    size_t size;
    hki_zip_entry *entries;
    size_t n;
    hk_file_options opt;
} archive;

static hk_status archive_open(archive *a, const char *path,
                              const hk_file_options *opt) {
    *a = (archive){.path = path};
    if (path == NULL)
        return hki_fail(HK_E_INVALID_ARG, "npz: NULL argument");
    HKI_TRY(hki_file_options_get(&a->opt, opt, "npz"));
    HKI_TRY(hki_read_whole(path, &a->opt, &a->bytes, &a->size));
    return hki_zip_list(a->bytes, a->size, path, &a->entries, &a->n);
}

static void archive_close(archive *a) {
    hki_free(a->entries);
    hki_free(a->bytes);
}

// Length of a member's name without .npy.
static size_t member_size(const hki_zip_entry *e) {
    const size_t n = e->name_size;
    const bool npy = n > 4 && memcmp(e->name + n - 4, ".npy", 4) == 0;
    return npy ? n - 4 : n;
}

static hk_status read_member(const archive *a, const hki_zip_entry *e,
                             hk_tensor **out) {
    uint8_t *bytes = NULL;
    char what[512];
    snprintf(what, sizeof what, "%s(%.*s)", a->path,
             (int)HKI_MIN(e->name_size, (size_t)200), e->name);
    if (e->size > a->opt.max_file_bytes)
        return hki_fail(HK_E_DATA,
                        "%s: unpacks to %llu bytes, the limit is %llu", what,
                        (unsigned long long)e->size,
                        (unsigned long long)a->opt.max_file_bytes);
    HKI_TRY(hki_alloc_array((size_t)e->size, 1, &bytes));
    hk_status s = hki_zip_read(a->bytes, a->size, a->path, e, bytes);
    if (s == HK_OK)
        s = hki_npy_tensor(bytes, (size_t)e->size, what, out);
    hki_free(bytes);
    return s;
}

static hk_status find_member(const archive *a, const char *name,
                             const hki_zip_entry **out) {
    for (size_t i = 0; i < a->n; i++)
        if (member_size(&a->entries[i]) == strlen(name) &&
            memcmp(a->entries[i].name, name, strlen(name)) == 0) {
            *out = &a->entries[i];
            return HK_OK;
        }
    return hki_fail(HK_E_NOT_FOUND, "%s: no array \"%s\"", a->path, name);
}

hk_status hk_array_read(const char *path, const char *member,
                        const hk_file_options *opt, hk_tensor **out) {
    archive a;
    const hki_zip_entry *e;
    if (member == NULL || out == NULL)
        return read_array(path, opt, out);
    hk_status s = archive_open(&a, path, opt);
    if (s == HK_OK)
        s = find_member(&a, member, &e);
    if (s == HK_OK)
        s = read_member(&a, e, out);
    archive_close(&a);
    return s;
}

// One chosen member as a value; its name lives in *names.
static hk_status take_member(const archive *a, const hk_select *m,
                             hki_arena *names, hk_value *out) {
    const hki_zip_entry *e;
    const char *name;
    hk_tensor *t = NULL;
    if (m->from == NULL)
        return hki_fail(HK_E_INVALID_ARG, "npz: a member has no name");
    HKI_TRY(find_member(a, m->from, &e));
    HKI_TRY(hki_arena_strdup(names, m->to != NULL ? m->to : m->from, &name));
    HKI_TRY(read_member(a, e, &t));
    *out = hki_array_value(name, m->role, t);
    return HK_OK;
}

static hk_status take_all(const archive *a, hki_arena *names, hk_value *out) {
    for (size_t i = 0; i < a->n; i++) {
        const char *name;
        hk_tensor *t = NULL;
        HKI_TRY(hki_arena_printf(
            names, &name, "%.*s",
            (int)HKI_MIN(member_size(&a->entries[i]), (size_t)65536),
            a->entries[i].name));
        HKI_TRY(read_member(a, &a->entries[i], &t));
        out[i] = hki_array_value(name, 0, t);
    }
    return HK_OK;
}

hk_dataset *hk_data_npz(const char *path, const hk_select *members,
                        size_t n_members, const hk_file_options *opt) {
    archive a;
    hki_arena names = {0};
    hk_value *values = NULL;
    size_t n = 0;
    hk_status s = archive_open(&a, path, opt);
    if (s == HK_OK) {
        n = n_members > 0 ? n_members : a.n;
        s = hki_zalloc_array(n, sizeof *values, &values);
    }
    if (s == HK_OK && n_members == 0)
        s = take_all(&a, &names, values);
    for (size_t i = 0; s == HK_OK && i < n_members; i++)
        s = take_member(&a, &members[i], &names, &values[i]);
    archive_close(&a);
    hk_dataset *const d = table_of(values, n, s);
    hki_arena_deinit(&names);
    return d;
}

// ---- CIFAR -----------------------------------------------------------------

enum {
    SIDE = 32,
    PIXELS = SIDE * SIDE
};

// Planes of red, green and blue to pixels.
static void interleave(const uint8_t *planes, uint8_t *out) {
    for (int i = 0; i < PIXELS; i++)
        for (int c = 0; c < 3; c++)
            out[3 * i + c] = planes[c * PIXELS + i];
}

typedef struct cifar {
    size_t labels; // label bytes of a record: 1, or coarse and fine
    int classes[2];
    int64_t n;
    hk_value values[3]; // image, label, coarse_label
} cifar;

static hk_status cifar_check(const cifar *c, const char *path, int64_t record,
                             const uint8_t *p) {
    for (size_t k = 0; k < c->labels; k++)
        if (p[k] >= c->classes[k])
            return hki_fail(
                HK_E_DATA,
                "%s: record %lld at byte %lld: label %d of %d "
                "classes",
                path, (long long)record,
                (long long)(record * (int64_t)(c->labels + 3 * PIXELS)), p[k],
                c->classes[k]);
    return HK_OK;
}

static hk_status cifar_tensors(cifar *c) {
    const hk_shape image = hk_shape_make(4, (int64_t[]){c->n, SIDE, SIDE, 3});
    const hk_shape flat = hk_shape_make(1, (int64_t[]){c->n});
    static const char *const names[] = {"image", "label", "coarse_label"};
    for (size_t k = 0; k < c->labels + 1; k++) {
        hk_tensor *t;
        HKI_TRY(hk_tensor_create(k == 0 ? HK_U8 : HK_I32, k == 0 ? image : flat,
                                 &t));
        c->values[k] =
            hki_array_value(names[k], k == 0 ? HK_FEATURE : HK_LABEL, t);
    }
    return HK_OK;
}

typedef struct blob {
    uint8_t *bytes;
    size_t size;
} blob;

static size_t cifar_record(const cifar *c) {
    return c->labels + 3 * PIXELS;
}

// Reads a file and counts its records.
static hk_status cifar_read(cifar *c, const char *path,
                            const hk_file_options *opt, blob *out) {
    const size_t record = cifar_record(c);
    HKI_TRY(hki_read_whole(path, opt, &out->bytes, &out->size));
    const int64_t n = (int64_t)(out->size / record);
    if (out->size % record != 0)
        return hki_fail(HK_E_DATA,
                        "%s: record %lld at byte %lld is truncated: %zu bytes "
                        "of %zu",
                        path, (long long)n, (long long)n * (long long)record,
                        out->size % record, record);
    c->n += n;
    return HK_OK;
}

// Writes the records of a file from row `at` on.
static hk_status cifar_unpack(cifar *c, const char *path, const blob *b,
                              int64_t at) {
    const size_t record = cifar_record(c);
    uint8_t *const images = hk_tensor_data(c->values[0].tensor);
    for (int64_t i = 0; i < (int64_t)(b->size / record); i++) {
        const uint8_t *const p = b->bytes + (size_t)i * record;
        HKI_TRY(cifar_check(c, path, i, p));
        interleave(p + c->labels, images + (size_t)(at + i) * 3 * PIXELS);
        // The finest label is the last byte.
        for (size_t k = 0; k < c->labels; k++) {
            int32_t *const label = hk_tensor_data(c->values[k + 1].tensor);
            label[at + i] = p[c->labels - 1 - k];
        }
    }
    return HK_OK;
}

static hk_status cifar_load(cifar *c, const hki_files *f, blob *blobs) {
    int64_t at = 0;
    for (size_t i = 0; i < f->n_paths; i++)
        HKI_TRY(cifar_read(c, f->paths[i], &f->opt, &blobs[i]));
    HKI_TRY(cifar_tensors(c));
    for (size_t i = 0; i < f->n_paths; i++) {
        HKI_TRY(cifar_unpack(c, f->paths[i], &blobs[i], at));
        at += (int64_t)(blobs[i].size / cifar_record(c));
    }
    return HK_OK;
}

hk_dataset *hk_data_cifar(const char *const *files, size_t n_files, int classes,
                          const hk_file_options *opt) {
    cifar c = {.labels = 1, .classes = {classes}};
    hki_files f = {0};
    blob *blobs = NULL;
    hk_status s = HK_OK;
    if (classes == 100)
        c = (cifar){.labels = 2, .classes = {20, 100}};
    else if (classes != 10)
        s = hki_fail(HK_E_INVALID_ARG, "cifar: %d classes, not 10 or 100",
                     classes);
    if (s == HK_OK)
        s = hki_files_init(&f, files, n_files, opt, "cifar");
    if (s == HK_OK)
        s = hki_zalloc_array(f.n_paths, sizeof *blobs, &blobs);
    if (s == HK_OK)
        s = cifar_load(&c, &f, blobs);
    for (size_t i = 0; blobs != NULL && i < f.n_paths; i++)
        hki_free(blobs[i].bytes);
    hki_free(blobs);
    hki_files_deinit(&f);
    hk_dataset *const d = s == HK_OK ? hk_data_slices(c.values, c.labels + 1)
                                     : hki_dataset_fail(NULL, 0, s);
    for (size_t k = 0; k < HKI_COUNT(c.values); k++)
        hk_tensor_release(c.values[k].tensor);
    return d;
}
