// cifar.c - the binary files of CIFAR-10 and CIFAR-100: records of one size, a
// label or two and the planes of a picture.
#include "data/files/array.h"
#include "data/files/flat_file.h"

enum {
    SIDE = 32,
    PIXELS = SIDE * SIDE,
    VALUES = 3 // image, label, coarse_label
};

typedef struct cifar {
    size_t labels; // label bytes of a record: 1, or coarse and fine
    int classes[2];
    hki_files files;
    hki_flat_file *file; // of each path
    int64_t *first;      // record of each, and behind the last
    hk_tensor *tensor[VALUES];
    uint8_t *buffer; // a unit of records
} cifar;

static void cifar_destroy(void *p) {
    cifar *const c = p;
    if (c == NULL)
        return;
    for (size_t i = 0; c->file != NULL && i < c->files.paths.count; i++)
        hki_flat_close(&c->file[i]);
    for (size_t k = 0; k < VALUES; k++)
        hk_tensor_release(c->tensor[k]);
    hki_free(c->file);
    hki_free(c->first);
    hki_free(c->buffer);
    hki_files_deinit(&c->files);
    hki_free(c);
}

static size_t record_bytes(const cifar *c) {
    return c->labels + 3 * PIXELS;
}

// ---- records ---------------------------------------------------------------

// Planes of red, green and blue to pixels.
static void interleave(const uint8_t *planes, uint8_t *out) {
    for (int i = 0; i < PIXELS; i++)
        for (int k = 0; k < 3; k++)
            out[3 * i + k] = planes[k * PIXELS + i];
}

static hk_status check(const cifar *c, size_t file, int64_t record,
                       const uint8_t *p) {
    for (size_t k = 0; k < c->labels; k++)
        if (p[k] >= c->classes[k])
            return hki_fail(HK_E_DATA,
                            "%s: record %lld at byte %lld: the label is %d; it "
                            "has to be below %d",
                            c->files.paths.items[file], (long long)record,
                            (long long)(record * (int64_t)record_bytes(c)),
                            p[k], c->classes[k]);
    return HK_OK;
}

// Records [begin, begin + n) of one file, which are in the buffer.
static hk_status unpack(const cifar *c, size_t file, int64_t begin, int64_t n) {
    uint8_t *const images = hk_tensor_data(c->tensor[0]);
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *const p = c->buffer + (size_t)i * record_bytes(c);
        const int64_t row = c->first[file] + begin + i;
        HKI_TRY(check(c, file, begin + i, p));
        interleave(p + c->labels, images + (size_t)row * 3 * PIXELS);
        // The finest label is the last byte.
        for (size_t k = 0; k < c->labels; k++) {
            int32_t *const label = hk_tensor_data(c->tensor[k + 1]);
            label[row] = p[c->labels - 1 - k];
        }
    }
    return HK_OK;
}

// A unit may go on in the next file.
static hk_status load(void *user, int64_t begin, int64_t n) {
    const cifar *const c = user;
    const int64_t end = begin + n;
    for (size_t i = 0; i < c->files.paths.count; i++) {
        const int64_t from = HKI_MAX(begin, c->first[i]);
        const int64_t some = HKI_MIN(end, c->first[i + 1]) - from;
        if (some <= 0)
            continue;
        HKI_TRY(hki_flat_read(&c->file[i],
                              (uint64_t)(from - c->first[i]) * record_bytes(c),
                              c->buffer, (size_t)some * record_bytes(c)));
        HKI_TRY(unpack(c, i, from - c->first[i], some));
    }
    return HK_OK;
}

// ---- files -----------------------------------------------------------------

static hk_status open_file(cifar *c, size_t i) {
    const size_t record = record_bytes(c);
    HKI_TRY(hki_flat_open(c->files.paths.items[i], &c->files.opt, &c->file[i]));
    const uint64_t size = c->file[i].size;
    const int64_t n = (int64_t)(size / record);
    if (size % record != 0)
        return hki_fail(HK_E_DATA,
                        "%s: record %lld at byte %lld is truncated: it needs "
                        "%zu bytes, but the file has only %llu more",
                        c->files.paths.items[i], (long long)n,
                        (long long)n * (long long)record, record,
                        (unsigned long long)(size % record));
    c->first[i + 1] = c->first[i] + n;
    return HK_OK;
}

static hk_status open_files(cifar *c) {
    const size_t n = c->files.paths.count;
    HKI_TRY(hki_zalloc_array(n, sizeof *c->file, &c->file));
    HKI_TRY(hki_zalloc_array(n + 1, sizeof *c->first, &c->first));
    for (size_t i = 0; i < n; i++)
        HKI_TRY(open_file(c, i));
    return HK_OK;
}

static hk_status make_values(cifar *c, int64_t rows, hk_value *out) {
    const hk_shape image = hk_shape_make(4, (int64_t[]){rows, SIDE, SIDE, 3});
    const hk_shape flat = hk_shape_make(1, (int64_t[]){rows});
    static const char *const names[] = {"image", "label", "coarse_label"};
    for (size_t k = 0; k < HKI_COUNT(names) && k <= c->labels; k++) {
        HKI_TRY(hk_tensor_create(k == 0 ? HK_U8 : HK_I32, k == 0 ? image : flat,
                                 &c->tensor[k]));
        out[k] = hki_array_value(names[k], k == 0 ? HK_FEATURE : HK_LABEL,
                                 c->tensor[k]);
    }
    return HK_OK;
}

// ---- the table -------------------------------------------------------------

// All of it now; c is freed.
static hk_dataset *read_all(cifar *c, const hk_value *values, int64_t unit) {
    const int64_t rows = c->first[c->files.paths.count];
    hk_status s = HK_OK;
    for (int64_t at = 0; s == HK_OK && at < rows; at += unit)
        s = load(c, at, HKI_MIN(unit, rows - at));
    hk_dataset *const d = s == HK_OK ? hk_data_slices(values, c->labels + 1)
                                     : hki_dataset_fail(NULL, 0, s);
    cifar_destroy(c);
    return d;
}

static hk_status cifar_open(cifar *c, const char *const *files, size_t n_files,
                            const hk_file_options *opt, hk_value *values,
                            int64_t *unit) {
    HKI_TRY(hki_files_init(&c->files, files, n_files, opt, "cifar"));
    HKI_TRY(open_files(c));
    const int64_t rows = c->first[c->files.paths.count];
    *unit = hki_rows_unit(record_bytes(c), rows);
    HKI_TRY(hki_alloc_array((size_t)*unit, record_bytes(c), &c->buffer));
    return make_values(c, rows, values);
}

hk_dataset *hk_data_cifar(const char *const *files, size_t n_files, int classes,
                          const hk_file_options *opt) {
    hk_value values[VALUES];
    int64_t unit = 1;
    cifar *c = NULL;
    if (classes != 10 && classes != 100)
        return hki_dataset_fail(
            NULL, 0,
            hki_fail(HK_E_INVALID_ARG,
                     "cifar: %d classes; it has to be 10 or 100", classes));
    hk_status s = hki_zalloc_array(1, sizeof *c, &c);
    if (s == HK_OK) {
        c->labels = classes == 100 ? 2 : 1;
        c->classes[0] = classes == 100 ? 20 : classes;
        c->classes[1] = classes;
        s = cifar_open(c, files, n_files, opt, values, &unit);
    }
    if (s != HK_OK) {
        cifar_destroy(c);
        return hki_dataset_fail(NULL, 0, s);
    }
    const int64_t rows = c->first[c->files.paths.count];
    if ((uint64_t)rows * record_bytes(c) < HKI_LARGE_BYTES)
        return read_all(c, values, unit);
    return hki_data_backed(values, c->labels + 1,
                           &(hki_backing){unit, load, cifar_destroy, c});
}
