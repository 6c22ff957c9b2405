// division.c - where the units of files begin: found, kept and read again.
#include "data/files/division.h"
#include <pthread.h>
#include <sys/stat.h>
#include "base/io.h"

#define MAGIC "HKINDEX1"
#define HEAD (8 + 5 * 8)
#define SUFFIX ".hooke-index"
#define MOST_INDEX ((size_t)1 << 30)
#define MOST_NUMBER (UINT64_C(1) << HKI_STAMP_PASS)
// A unit is read at once: enough to be worth a request, little enough for the
// units of a shuffle to mix well. Small files have some hundred units.
#define UNIT_BYTES 65536
#define LEAST_BYTES 512
#define UNITS 256
#define KEPT_BYTES ((uint64_t)1 << 20) // smaller files are cut again

struct hki_division {
    hki_mutex lock; // while it is found out
    bool tried, ready;
    char *folder;          // for what cannot lie beside its file; NULL: none
    hki_cut *cuts;         // of each file
    int64_t *first_unit;   // [n_files + 1]
    int64_t *first_number; // of a record; the same
};

hk_status hki_division_create(const char *folder, hki_division **out) {
    hki_division *v;
    HKI_TRY(hki_zalloc_array(1, sizeof *v, &v));
    hki_mutex_init(&v->lock);
    if (folder != NULL && hki_strdup(folder, &v->folder) != HK_OK) {
        hki_division_destroy(v, 0);
        return HK_E_NO_MEMORY;
    }
    *out = v;
    return HK_OK;
}

void hki_division_destroy(hki_division *v, size_t n_files) {
    if (v == NULL)
        return;
    for (size_t i = 0; v->cuts != NULL && i < n_files; i++)
        hki_free(v->cuts[i].units);
    hki_free(v->cuts);
    hki_free(v->folder);
    hki_free(v->first_unit);
    hki_free(v->first_number);
    hki_mutex_deinit(&v->lock);
    hki_free(v);
}

// ---- cutting ---------------------------------------------------------------

void hki_cut_begin(hki_cut *c, const hki_stream *file) {
    uint64_t size;
    // Going to a place in a packed file means to read all before it.
    c->unit_bytes =
        hki_stream_size(file, &size)
            ? HKI_MIN(HKI_MAX(size / UNITS, LEAST_BYTES), UNIT_BYTES)
            : UINT64_MAX;
}

hk_status hki_cut_record(hki_cut *c, uint64_t offset, uint64_t record) {
    if (c->n > 0 && offset - c->units[c->n - 1].offset < c->unit_bytes)
        return HK_OK;
    HKI_TRY(hki_list_reserve(&c->units, c->n + 1, &c->room, sizeof *c->units));
    // The first unit has what comes before the first record, as a header.
    c->units[c->n] =
        (struct hki_cut_unit){c->n > 0 ? offset : 0, c->n > 0 ? record : 0};
    c->n++;
    return HK_OK;
}

void hki_cut_end(hki_cut *c, uint64_t records) {
    c->records = records;
}

// ---- as bytes --------------------------------------------------------------

hk_status hki_cut_save(const hki_cut *c, const hki_cut_mark *mark,
                       hki_buf *out) {
    uint8_t word[8];
    const uint64_t head[] = {mark->key, mark->bytes, mark->time, c->records,
                             c->n};
    HKI_TRY(hki_buf_add(out, MAGIC, 8));
    for (size_t i = 0; i < HKI_COUNT(head) + 2 * c->n; i++) {
        const size_t k = i - HKI_COUNT(head);
        hki_put_u64(word, i < HKI_COUNT(head) ? head[i]
                          : k % 2 == 0        ? c->units[k / 2].offset
                                              : c->units[k / 2].record);
        HKI_TRY(hki_buf_add(out, word, sizeof word));
    }
    hki_put_u64(word, hki_hash(HKI_HASH_INIT, out->data, out->size));
    return hki_buf_add(out, word, sizeof word);
}

static bool fits(const hki_cut_mark *mark, const uint8_t *p, size_t size) {
    return size >= HEAD + 8 && memcmp(p, MAGIC, 8) == 0 &&
           hki_get_u64(p + 8) == mark->key &&
           hki_get_u64(p + 16) == mark->bytes &&
           hki_get_u64(p + 24) == mark->time &&
           hki_get_u64(p + 40) == (size - HEAD - 8) / 16 &&
           (size - HEAD - 8) % 16 == 0 &&
           hki_get_u64(p + size - 8) == hki_hash(HKI_HASH_INIT, p, size - 8);
}

// From the first byte on, rising, inside of the file.
static bool in_order(const hki_cut *c, uint64_t bytes) {
    for (size_t i = 0; i < c->n; i++) {
        const struct hki_cut_unit *const u = &c->units[i];
        const bool good =
            i == 0 ? u->offset == 0 && u->record == 0
                   : u->offset > u[-1].offset && u->record > u[-1].record;
        if (!good || u->offset >= HKI_MAX(bytes, 1) || u->record > c->records)
            return false;
    }
    return c->records < MOST_NUMBER && (c->n > 0 || c->records == 0);
}

hk_status hki_cut_restore(hki_cut *c, const hki_cut_mark *mark,
                          const void *bytes, size_t size) {
    const uint8_t *const p = bytes;
    hki_cut got = {0};
    if (!fits(mark, p, size))
        return hki_fail(HK_E_DATA, "the index belongs to another file");
    got.records = hki_get_u64(p + 32);
    got.n = got.room = (size_t)hki_get_u64(p + 40);
    HKI_TRY(hki_alloc_array(got.n, sizeof *got.units, &got.units));
    for (size_t i = 0; i < got.n; i++)
        got.units[i] = (struct hki_cut_unit){
            hki_get_u64(p + HEAD + 16 * i), hki_get_u64(p + HEAD + 16 * i + 8)};
    if (!in_order(&got, mark->bytes)) {
        hki_free(got.units);
        return hki_fail(HK_E_DATA,
                        "the index has units that are not in the file");
    }
    *c = got;
    return HK_OK;
}

// ---- beside the file -------------------------------------------------------

// Where the index of a file may be: beside it, then in the folder; NULL: not
// there.
typedef struct places {
    char *at[2];
} places;

static hk_status find_places(const char *path, const char *other, places *out) {
    char *folder = NULL;
    const char *const name = hki_path_name(path);
    const unsigned long long key = hki_hash(HKI_HASH_INIT, path, strlen(path));
    HKI_TRY(hki_path_folder(path, &folder));
    const size_t room = strlen(name) + sizeof SUFFIX + 20;
    size_t n = strlen(folder) + room;
    hk_status s = hki_alloc_array(n, 1, &out->at[0]);
    if (s == HK_OK)
        snprintf(out->at[0], n, "%s/.%s" SUFFIX, folder, name);
    hki_free(folder);
    if (s != HK_OK || other == NULL)
        return s;
    n = strlen(other) + room;
    HKI_TRY(hki_alloc_array(n, 1, &out->at[1]));
    snprintf(out->at[1], n, "%s/.%s-%016llx" SUFFIX, other, name, key);
    return HK_OK;
}

// False: nobody can tell whether the file will still be the same.
static bool mark_of(const char *path, uint64_t key, hki_cut_mark *out) {
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return false;
    *out = (hki_cut_mark){key, (uint64_t)st.st_size,
                          (uint64_t)st.st_mtim.tv_sec * 1000000000 +
                              (uint64_t)st.st_mtim.tv_nsec};
    return true;
}

static hk_status load_from(const char *path, const hki_cut_mark *mark,
                           hki_cut *out) {
    HKI_FREED uint8_t *bytes = NULL;
    size_t size;
    HKI_TRY(hki_file_read_all(path, MOST_INDEX, &bytes, &size));
    return hki_cut_restore(out, mark, bytes, size);
}

static bool load(const places *p, const hki_cut_mark *mark, hki_cut *out) {
    for (size_t i = 0; i < HKI_COUNT(p->at); i++)
        if (p->at[i] != NULL && load_from(p->at[i], mark, out) == HK_OK)
            return true;
    return false;
}

// It is a help, no more: that it cannot be written is no fault.
static void keep(const places *p, const hki_cut_mark *mark, const hki_cut *c) {
    hki_buf bytes = {0};
    bool kept = hki_cut_save(c, mark, &bytes) != HK_OK;
    for (size_t i = 0; i < HKI_COUNT(p->at) && !kept; i++)
        kept = p->at[i] != NULL && hki_file_replace(p->at[i], bytes.data,
                                                    bytes.size, false) == HK_OK;
    hki_buf_deinit(&bytes);
}

// ---- dividing --------------------------------------------------------------

// By the cutter; what it finds is kept unless the file has changed meanwhile.
static hk_status cut_anew(const hki_files *f, size_t i, const hki_cutter *how,
                          const hki_cut_mark *mark, const places *p,
                          hki_cut *out) {
    hki_cut_mark after = {0};
    HKI_TRY(how->cut(how->config, i, out));
    if (p->at[0] != NULL && mark_of(f->paths.items[i], how->key, &after) &&
        memcmp(mark, &after, sizeof after) == 0)
        keep(p, mark, out);
    return HK_OK;
}

static hk_status cut_file(const hki_files *f, size_t i, const hki_cutter *how,
                          hki_cut *out) {
    hki_cut_mark mark = {0};
    places p = {0};
    const bool keeps =
        mark_of(f->paths.items[i], how->key, &mark) && mark.bytes >= KEPT_BYTES;
    hk_status s =
        keeps ? find_places(f->paths.items[i], f->division->folder, &p) : HK_OK;
    if (s == HK_OK && !load(&p, &mark, out))
        s = cut_anew(f, i, how, &mark, &p, out);
    for (size_t k = 0; k < HKI_COUNT(p.at); k++)
        hki_free(p.at[k]);
    return s;
}

static hk_status divide(const hki_files *f, const hki_cutter *how) {
    hki_division *const v = f->division;
    const size_t n = f->paths.count;
    HKI_TRY(hki_zalloc_array(n, sizeof *v->cuts, &v->cuts));
    HKI_TRY(hki_zalloc_array(n + 1, sizeof *v->first_unit, &v->first_unit));
    HKI_TRY(hki_zalloc_array(n + 1, sizeof *v->first_number, &v->first_number));
    for (size_t i = 0; i < n; i++) {
        HKI_TRY(cut_file(f, i, how, &v->cuts[i]));
        v->first_unit[i + 1] = v->first_unit[i] + (int64_t)v->cuts[i].n;
        v->first_number[i + 1] =
            v->first_number[i] + (int64_t)v->cuts[i].records;
        if ((uint64_t)v->first_number[i + 1] >= MOST_NUMBER)
            return hki_fail(HK_E_OVERFLOW, "%s: there are too many records",
                            f->paths.items[i]);
    }
    return HK_OK;
}

// Files may lie elsewhere and be called otherwise: what counts is in them.
static uint64_t hash_cuts(const hki_files *f) {
    uint64_t h = HKI_HASH_INIT;
    for (size_t i = 0; i < f->paths.count; i++) {
        const hki_cut *const c = &f->division->cuts[i];
        h = hki_hash(h, &c->records, sizeof c->records);
        if (c->n > 0)
            h = hki_hash(h, c->units, c->n * sizeof *c->units);
    }
    return h;
}

int64_t hki_division_units(const hki_files *f, const hki_cutter *how,
                           uint64_t *cuts) {
    hki_division *const v = f->division;
    HKI_LOCKED(&v->lock);
    if (!v->tried)
        v->ready = divide(f, how) == HK_OK;
    v->tried = true;
    const int64_t units = v->ready ? v->first_unit[f->paths.count] : -1;
    if (v->ready && cuts != NULL)
        *cuts = hash_cuts(f);
    return units;
}

// Where x lies between n + 1 rising numbers; of equal ones it is behind the
// last.
static size_t place_of(const int64_t *at, size_t n, int64_t x) {
    size_t low = 0, high = n;
    while (high - low > 1) { // at[low] <= x < at[high]
        const size_t middle = low + (high - low) / 2;
        if (at[middle] <= x)
            low = middle;
        else
            high = middle;
    }
    return low;
}

hki_span hki_division_span(const hki_files *f, int64_t unit) {
    const hki_division *const v = f->division;
    const size_t low = place_of(v->first_unit, f->paths.count, unit);
    const hki_cut *const c = &v->cuts[low];
    const size_t i = (size_t)(unit - v->first_unit[low]);
    return (hki_span){
        .file = low,
        .offset = c->units[i].offset,
        .end = i + 1 < c->n ? c->units[i + 1].offset : UINT64_MAX,
        .record = c->units[i].record,
        .number = v->first_number[low] + (int64_t)c->units[i].record,
    };
}

int64_t hki_division_unit(const hk_dataset *d, int64_t number) {
    const hki_files *const f = d->config;
    const hki_division *const v = f->division;
    int64_t low = 0, high = v->first_unit[f->paths.count];
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (hki_division_span(f, middle).number <= number)
            low = middle;
        else
            high = middle;
    }
    return low;
}

int64_t hki_division_records(const hk_dataset *d) {
    const hki_files *const f = d->config;
    return f->division->first_number[f->paths.count];
}
