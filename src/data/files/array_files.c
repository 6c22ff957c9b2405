// array_files.c - IDX, .npy and .npz files as tables, in memory but for large
// ones.
#include "data/files/array.h"
#include "data/files/flat_file.h"
#include "fetch/fetch.h"

// ---- one file --------------------------------------------------------------

static hk_status parse(const uint8_t *bytes, size_t size, const char *path,
                       hk_tensor **out) {
    return hki_is_npy(bytes, size) ? hki_npy_tensor(bytes, size, path, out)
                                   : hki_idx_parse(bytes, size, path, out);
}

static hk_status read_array(const char *path, const hk_file_options *opt,
                            hk_tensor **out) {
    hk_file_options o;
    HKI_FREED uint8_t *bytes = NULL;
    size_t size = 0;
    if (path == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "array file: NULL argument");
    HKI_TRY(hki_file_options_get(&o, opt, "array file"));
    HKI_TRY(hki_read_whole(path, &o, &bytes, &size));
    return parse(bytes, size, path, out);
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

static hk_status large_files(const hk_array_file *files, size_t n,
                             const hk_file_options *opt, hk_dataset **out) {
    HKI_FREED hki_array_place *places = NULL;
    HKI_TRY(hki_zalloc_array(n, sizeof *places, &places));
    for (size_t i = 0; i < n; i++)
        places[i] = (hki_array_place){.name = files[i].name,
                                      .path = files[i].path,
                                      .role = files[i].role};
    return hki_array_rows(places, n, opt, out);
}

hk_dataset *hk_data_arrays(const hk_array_file *files, size_t n,
                           const hk_file_options *opt) {
    hk_value *values = NULL;
    if (files == NULL || n == 0)
        return hki_dataset_fail(
            NULL, 0, hki_fail(HK_E_INVALID_ARG, "arrays: no files are given"));
    hk_dataset *large = NULL;
    hk_status s = large_files(files, n, opt, &large);
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
    hki_flat_file file;
    hki_zip_source zip;
    hki_zip_entry *entries;
    size_t n;
    hk_file_options opt;
} archive;

static hk_status read_archive(void *user, uint64_t offset, void *out,
                              size_t size) {
    return hki_flat_read(user, offset, out, size);
}

static hk_status archive_open(archive *a, const char *path,
                              const hk_file_options *opt) {
    *a = (archive){.path = path};
    if (path == NULL)
        return hki_fail(HK_E_INVALID_ARG, "npz: NULL argument");
    HKI_TRY(hki_file_options_get(&a->opt, opt, "npz"));
    HKI_TRY(hki_flat_open(path, &a->opt, &a->file));
    a->zip = (hki_zip_source){.read = read_archive,
                              .user = &a->file,
                              .size = a->file.size,
                              .what = path};
    return hki_zip_list_from(&a->zip, &a->entries, &a->n);
}

static void archive_close(archive *a) {
    hki_free(a->entries);
    hki_flat_close(&a->file);
}

// Length of a member's name without .npy.
static size_t member_size(const hki_zip_entry *e) {
    const size_t n = e->name_size;
    const bool npy = n > 4 && memcmp(e->name + n - 4, ".npy", 4) == 0;
    return npy ? n - 4 : n;
}

static hk_status read_member(const archive *a, const hki_zip_entry *e,
                             hk_tensor **out) {
    HKI_FREED uint8_t *bytes = NULL;
    char what[512];
    snprintf(what, sizeof what, "%s(%.*s)", a->path,
             (int)HKI_MIN(e->name_size, (size_t)200), e->name);
    if (e->size > a->opt.max_file_bytes)
        return hki_fail(
            HK_E_DATA,
            "%s: has %llu uncompressed bytes, more than the limit of %llu",
            what, (unsigned long long)e->size,
            (unsigned long long)a->opt.max_file_bytes);
    HKI_TRY(hki_alloc_array((size_t)e->size, 1, &bytes));
    HKI_TRY(hki_zip_read_from(&a->zip, e, bytes));
    return hki_npy_tensor(bytes, (size_t)e->size, what, out);
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
    const hki_zip_entry *e;
    if (member == NULL || out == NULL)
        return read_array(path, opt, out);
    HKI_SCOPED(archive_close) archive a = {0};
    HKI_TRY(archive_open(&a, path, opt));
    HKI_TRY(find_member(&a, member, &e));
    return read_member(&a, e, out);
}

// A member that was chosen.
typedef struct choice {
    const hki_zip_entry *e;
    const char *name;
    hk_role role;
} choice;

// names holds the names.
static hk_status choose(const archive *a, const hk_select *members,
                        hki_arena *names, size_t i, choice *out) {
    if (members == NULL) {
        out->e = &a->entries[i];
        return hki_arena_printf(
            names, &out->name, "%.*s",
            (int)HKI_MIN(member_size(out->e), (size_t)65536), out->e->name);
    }
    const hk_select *const m = &members[i];
    if (m->from == NULL)
        return hki_fail(HK_E_INVALID_ARG, "npz: a member has no name");
    HKI_TRY(find_member(a, m->from, &out->e));
    out->role = m->role;
    return hki_arena_strdup(names, m->to != NULL ? m->to : m->from, &out->name);
}

// Members that are stored as they are: their rows are read from the archive.
static hk_status large_members(const archive *a, const choice *list, size_t n,
                               hk_dataset **out) {
    HKI_FREED hki_array_place *places = NULL;
    bool stored = true;
    HKI_TRY(hki_zalloc_array(n, sizeof *places, &places));
    for (size_t i = 0; i < n; i++) {
        const hki_zip_entry *const e = list[i].e;
        stored = stored && e->method == 0 && e->size > 0;
        places[i] = (hki_array_place){list[i].name, a->path, list[i].role,
                                      e->data_offset, e->size};
    }
    return stored && n > 0 ? hki_array_rows(places, n, &a->opt, out) : HK_OK;
}

static hk_dataset *small_members(const archive *a, const choice *list,
                                 size_t n) {
    hk_value *values = NULL;
    hk_status s = hki_zalloc_array(n, sizeof *values, &values);
    for (size_t i = 0; s == HK_OK && i < n; i++) {
        hk_tensor *t = NULL;
        s = read_member(a, list[i].e, &t);
        if (s == HK_OK)
            values[i] = hki_array_value(list[i].name, list[i].role, t);
    }
    return table_of(values, n, s);
}

static hk_dataset *open_members(const archive *a, const choice *list,
                                size_t n) {
    hk_dataset *large = NULL;
    const hk_status s = large_members(a, list, n, &large);
    if (s != HK_OK)
        return hki_dataset_fail(NULL, 0, s);
    return large != NULL ? large : small_members(a, list, n);
}

hk_dataset *hk_data_npz(const char *path, const hk_select *members,
                        size_t n_members, const hk_file_options *opt) {
    archive a;
    hki_arena names = {0};
    choice *list = NULL;
    hk_status s = archive_open(&a, path, opt);
    const size_t n = n_members > 0 ? n_members : a.n;
    if (s == HK_OK)
        s = hki_zalloc_array(n, sizeof *list, &list);
    for (size_t i = 0; s == HK_OK && i < n; i++)
        s = choose(&a, n_members > 0 ? members : NULL, &names, i, &list[i]);
    hk_dataset *const d =
        s == HK_OK ? open_members(&a, list, n) : hki_dataset_fail(NULL, 0, s);
    hki_free(list);
    archive_close(&a);
    hki_arena_deinit(&names);
    return d;
}
