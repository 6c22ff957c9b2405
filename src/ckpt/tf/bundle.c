// bundle.c - a tensor bundle as a checkpoint format: opening, reading,
// removing.
//
// Files are read with pread, never mapped: another process may cut them. A
// data file that no tensor lies in need not be there.
#include "ckpt/tf/bundle.h"
#include <ctype.h>
#include <errno.h>
#include <limits.h>

#define MAX_INDEX ((size_t)1 << 29)
// Read and summed piece by piece while it is in the cache.
#define PIECE ((size_t)256 << 10)

typedef struct data_file {
    int fd;
    uint64_t size;
    char *path; // NULL: not open
} data_file;

typedef struct data_files {
    uint32_t count;
    data_file file[];
} data_files;

// ---- paths -----------------------------------------------------------------

hk_status hki_bundle_prefix(const char *path, char **out) {
    HKI_TRY(hki_strdup(path, out));
    if (hki_ends_with(path, HKI_BUNDLE_INDEX))
        (*out)[strlen(path) - strlen(HKI_BUNDLE_INDEX)] = '\0';
    return HK_OK;
}

hk_status hki_bundle_data_path(const char *prefix, uint32_t shard,
                               uint32_t n_shards, hki_buf *out) {
    out->size = 0;
    return hki_buf_printf(out, "%s.data-%05u-of-%05u", prefix, shard, n_shards);
}

static hk_status index_path(const char *prefix, hki_buf *out) {
    out->size = 0;
    return hki_buf_printf(out, "%s" HKI_BUNDLE_INDEX, prefix);
}

// By name alone: what makes a table is at its end.
static bool probe(const char *path, const uint8_t *head, size_t head_size) {
    (void)head;
    (void)head_size;
    if (hki_ends_with(path, HKI_BUNDLE_INDEX))
        return hki_path_exists(path);
    char index[PATH_MAX]; // of no use to the system if longer
    const int n = snprintf(index, sizeof index, "%s" HKI_BUNDLE_INDEX, path);
    return n > 0 && (size_t)n < sizeof index && hki_path_exists(index);
}

// The prefix of an index's name.
static size_t main_file(const char *name) {
    const size_t n = strlen(name), end = strlen(HKI_BUNDLE_INDEX);
    return n > end && hki_ends_with(name, HKI_BUNDLE_INDEX) ? n - end : 0;
}

// ---- opening ---------------------------------------------------------------

static void close_bundle(hk_ckpt *c) {
    data_files *const d = c->impl;
    for (uint32_t i = 0; d != NULL && i < d->count; i++) {
        hki_file_close_read(d->file[i].fd);
        hki_free(d->file[i].path);
    }
    hki_free(d);
    c->impl = NULL;
}

static hk_status open_data(const hk_ckpt *c, const char *prefix,
                           uint32_t shard) {
    data_files *const d = c->impl;
    data_file *const f = &d->file[shard];
    hki_buf path = {0};
    HKI_TRY(hki_bundle_data_path(prefix, shard, d->count, &path));
    f->path = path.data; // taken
    const hk_status s = hki_file_open_read(f->path, &f->fd, &f->size);
    if (s == HK_E_NOT_FOUND)
        return hki_fail(HK_E_DATA,
                        "%s: the file %s of this checkpoint is missing",
                        c->path, f->path);
    return s;
}

// The data file of a part, opened at its first use, has to hold all of it.
static hk_status check_part(const hk_ckpt *c, const char *prefix,
                            const char *name, uint32_t shard, uint64_t offset,
                            uint64_t size) {
    data_file *const f = &((data_files *)c->impl)->file[shard];
    if (f->path == NULL)
        HKI_TRY(open_data(c, prefix, shard));
    if (offset > f->size || size > f->size - offset)
        return hki_fail(HK_E_DATA,
                        "%s: tensor %s needs bytes %llu to %llu, but the file "
                        "has %llu: it is truncated",
                        f->path, name, (unsigned long long)offset,
                        (unsigned long long)(offset + size),
                        (unsigned long long)f->size);
    return HK_OK;
}

static hk_status check_tensors(const hk_ckpt *c, const char *prefix) {
    for (size_t i = 0; i < c->count; i++) {
        const hki_ckpt_tensor *const t = &c->tensors[i];
        const hki_bundle_parts *const parts = t->extra;
        if (parts == NULL)
            HKI_TRY(check_part(c, prefix, t->entry.name, t->place, t->offset,
                               t->entry.bytes));
        for (size_t k = 0; parts != NULL && k < parts->count; k++)
            HKI_TRY(check_part(c, prefix, t->entry.name, parts->part[k].shard,
                               parts->part[k].offset, parts->part[k].size));
    }
    return HK_OK;
}

static hk_status open_files(hk_ckpt *c, const char *prefix, uint32_t n_shards) {
    data_files *d;
    HKI_TRY(hki_zalloc_array(1, sizeof *d + n_shards * sizeof d->file[0], &d));
    d->count = n_shards;
    for (uint32_t i = 0; i < n_shards; i++)
        d->file[i].fd = -1;
    c->impl = d;
    return check_tensors(c, prefix);
}

static hk_status open_bundle(hk_ckpt *c) {
    HKI_FREED char *prefix = NULL;
    HKI_SCOPED(hki_buf_deinit) hki_buf path = {0};
    HKI_FREED uint8_t *bytes = NULL;
    size_t size = 0;
    uint32_t n_shards = 0;
    HKI_TRY(hki_bundle_prefix(c->path, &prefix));
    HKI_TRY(index_path(prefix, &path));
    HKI_TRY(hki_file_read_all(path.data, MAX_INDEX, &bytes, &size));
    HKI_TRY(hki_bundle_parse_index(c, bytes, size, path.data, &n_shards));
    return open_files(c, prefix, n_shards);
}

// ---- reading ---------------------------------------------------------------

static hk_status wrong_checksum(const data_file *f, const char *name,
                                uint64_t offset, uint64_t size) {
    return hki_fail(HK_E_DATA,
                    "%s: tensor %s: the checksum of its %llu bytes at %llu is "
                    "wrong",
                    f->path, name, (unsigned long long)size,
                    (unsigned long long)offset);
}

static hk_status read_checked(const data_file *f, const char *name,
                              uint64_t offset, uint8_t *out, size_t size,
                              uint32_t expected) {
    uint32_t crc = 0;
    for (size_t done = 0; done < size;) {
        const size_t n = HKI_MIN(PIECE, size - done);
        HKI_TRY(hki_file_read_at(f->fd, f->path, offset + done, out + done, n));
        crc = hki_crc32c(crc, out + done, n);
        done += n;
    }
    if (size > 0 && crc != expected)
        return wrong_checksum(f, name, offset, size);
    return HK_OK;
}

// Bytes of one element and of one whole row of dimension i and below.
static void strides_of(const hk_shape *shape, size_t elem,
                       size_t stride[HK_MAX_RANK]) {
    size_t n = elem;
    for (int32_t i = shape->rank - 1; i >= 0; i--) {
        stride[i] = n;
        n *= (size_t)shape->dim[i];
    }
}

// From this dimension on a slice is contiguous in the whole tensor: every
// later dimension is complete.
static int32_t contiguous_from(const hki_slice *s, const hk_shape *shape) {
    int32_t d = s->rank;
    while (d > 0 && s->extent[d - 1].length == shape->dim[d - 1])
        d--;
    return d > 0 ? d - 1 : 0;
}

// Puts the bytes of a slice to their places, run by run.
static void scatter(const hki_slice *s, const hk_shape *shape, size_t elem,
                    const uint8_t *from, uint8_t *to) {
    size_t stride[HK_MAX_RANK] = {elem};
    strides_of(shape, elem, stride);
    const int32_t d = contiguous_from(s, shape);
    const size_t run =
        s->rank == 0 ? elem : (size_t)s->extent[d].length * stride[d];
    int64_t at[HK_MAX_RANK] = {0};
    for (;;) {
        size_t offset = 0;
        for (int32_t i = 0; i < s->rank; i++)
            offset += (size_t)(s->extent[i].start + at[i]) * stride[i];
        memcpy(to + offset, from, run);
        from += run;
        int32_t i = d - 1; // counts up over the dimensions before the run
        while (i >= 0 && ++at[i] == s->extent[i].length)
            at[i--] = 0;
        if (i < 0)
            return;
    }
}

static hk_status read_part(const hk_ckpt *c, const hki_ckpt_tensor *t,
                           const hki_bundle_part *p, uint8_t *out) {
    const data_files *const d = c->impl;
    const size_t elem = hki_elem_size(t->elem);
    const data_file *const f = &d->file[p->shard];
    const size_t size = (size_t)p->size;
    if (size == 0)
        return HK_OK;
    if (contiguous_from(&p->slice, &t->entry.shape) == 0 && p->slice.rank > 0) {
        // Whole rows go straight to their place.
        const size_t row = size / (size_t)p->slice.extent[0].length;
        out += (size_t)p->slice.extent[0].start * row;
        return read_checked(f, t->entry.name, p->offset, out, size, p->crc);
    }
    HKI_FREED uint8_t *bytes = NULL;
    HKI_TRY(hki_alloc_array(size, 1, &bytes));
    HKI_TRY(read_checked(f, t->entry.name, p->offset, bytes, size, p->crc));
    scatter(&p->slice, &t->entry.shape, elem, bytes, out);
    return HK_OK;
}

static hk_status read_bundle(const hk_ckpt *c, const hki_ckpt_tensor *t,
                             void *out) {
    const data_files *const d = c->impl;
    const hki_bundle_parts *const parts = t->extra;
    if (parts == NULL)
        return read_checked(&d->file[t->place], t->entry.name, t->offset, out,
                            (size_t)t->entry.bytes, t->crc);
    for (size_t i = 0; i < parts->count; i++)
        HKI_TRY(read_part(c, t, &parts->part[i], out));
    return HK_OK;
}

// ---- strings ---------------------------------------------------------------

// The checksum of a length: as 32 bits where it fits, else 64.
static uint32_t sum_length(uint32_t crc, uint64_t length) {
    uint8_t bytes[8];
    hki_put_u64(bytes, length);
    return hki_crc32c(crc, bytes, length <= UINT32_MAX ? 4 : 8);
}

// Lengths, a checksum of them, the strings themselves; the entry's checksum is
// over all three, the lengths as above. False when they do not fit.
static bool split_strings(const uint8_t *bytes, size_t size, int64_t count,
                          uint64_t *lengths, const uint8_t **first,
                          uint32_t *crc) {
    const uint8_t *p = bytes, *const end = bytes + size;
    uint64_t total = 0;
    *crc = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!hki_varint_get(&p, end, &lengths[i]) || lengths[i] > size)
            return false;
        total += lengths[i];
        if (total > size)
            return false;
        *crc = sum_length(*crc, lengths[i]);
    }
    if (end - p < 4 || hki_get_u32(p) != hki_crc32c_mask(*crc))
        return false;
    if (total != (uint64_t)(end - p) - 4)
        return false;
    *crc = hki_crc32c(*crc, p, (size_t)(end - p));
    *first = p + 4;
    return true;
}

static hk_status set_strings(const hk_ckpt *c, const hki_ckpt_tensor *t,
                             const uint8_t *bytes, uint64_t *lengths,
                             hk_tensor *out) {
    const data_file *const f = &((const data_files *)c->impl)->file[t->place];
    const int64_t count = hk_tensor_count(out);
    const uint8_t *p = NULL;
    uint32_t crc = 0;
    if (!split_strings(bytes, (size_t)t->entry.bytes, count, lengths, &p,
                       &crc) ||
        crc != t->crc)
        return wrong_checksum(f, t->entry.name, t->offset, t->entry.bytes);
    for (int64_t i = 0; i < count; i++) {
        HKI_TRY(hk_tensor_set_string(out, i, p, (size_t)lengths[i]));
        p += lengths[i];
    }
    return HK_OK;
}

static hk_status read_strings(const hk_ckpt *c, const hki_ckpt_tensor *t,
                              hk_tensor *out) {
    const data_file *const f = &((const data_files *)c->impl)->file[t->place];
    const int64_t count = hk_tensor_count(out);
    HKI_FREED uint8_t *bytes = NULL;
    HKI_FREED uint64_t *lengths = NULL;
    if (count == 0)
        return HK_OK;
    HKI_TRY(hki_alloc_array((size_t)t->entry.bytes, 1, &bytes));
    HKI_TRY(hki_alloc_array((size_t)count, sizeof *lengths, &lengths));
    HKI_TRY(hki_file_read_at(f->fd, f->path, t->offset, bytes,
                             (size_t)t->entry.bytes));
    return set_strings(c, t, bytes, lengths, out);
}

// ---- removing --------------------------------------------------------------

// Whether name is <prefix>.data-<number>-of-<number>; *n_shards: the second.
static bool is_data_file(const char *name, const char *prefix,
                         unsigned long *n_shards) {
    const size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0 || strncmp(name + n, ".data-", 6) != 0)
        return false;
    const char *p = name + n + 6;
    char *end;
    if (!isdigit((unsigned char)*p))
        return false;
    strtoul(p, &end, 10);
    if (strncmp(end, "-of-", 4) != 0 || !isdigit((unsigned char)end[4]))
        return false;
    *n_shards = strtoul(end + 4, &end, 10);
    return *end == '\0';
}

typedef struct removal {
    const char *prefix; // without its folder
    uint32_t keep_shards;
} removal;

static hk_status remove_data_file(void *user, const char *path) {
    const removal *const r = user;
    unsigned long n;
    if (!is_data_file(hki_path_name(path), r->prefix, &n) ||
        n == r->keep_shards)
        return HK_OK;
    return hki_file_remove(path);
}

hk_status hki_bundle_remove_data(const char *prefix, uint32_t keep_shards) {
    removal r = {.prefix = hki_path_name(prefix), .keep_shards = keep_shards};
    HKI_FREED char *folder = NULL;
    HKI_TRY(hki_path_folder(prefix, &folder));
    return hki_path_exists(folder)
               ? hki_folder_each(folder, remove_data_file, &r)
               : HK_OK;
}

// Whether a file of this name belongs to the bundle `prefix`.
static bool is_file_of(void *user, const char *name) {
    const char *const prefix = user;
    const size_t n = strlen(prefix);
    unsigned long n_shards;
    return is_data_file(name, prefix, &n_shards) ||
           (strncmp(name, prefix, n) == 0 &&
            strcmp(name + n, HKI_BUNDLE_INDEX) == 0);
}

// Removes files of the prefix that were never finished.
static hk_status clear_temporary(const char *prefix) {
    HKI_FREED char *folder = NULL;
    HKI_TRY(hki_path_folder(prefix, &folder));
    return hki_clear_temporary_of(
        folder, is_file_of, (void *)(uintptr_t)hki_path_name(prefix), NULL);
}

static hk_status remove_bundle(const char *path) {
    HKI_FREED char *prefix = NULL;
    HKI_SCOPED(hki_buf_deinit) hki_buf file = {0};
    HKI_TRY(hki_bundle_prefix(path, &prefix));
    HKI_TRY(index_path(prefix, &file));
    HKI_TRY(hki_file_remove(file.data));
    HKI_TRY(hki_bundle_remove_data(prefix, 0));
    // The graph, which TensorFlow's saver writes beside.
    file.size = 0;
    HKI_TRY(hki_buf_printf(&file, "%s.meta", prefix));
    HKI_TRY(hki_file_remove(file.data));
    return clear_temporary(prefix);
}

// Data files of another count than the index says belong to nobody.
static hk_status tidy_bundle(const char *path) {
    HKI_SCOPED(hk_ckpt_close_at) hk_ckpt *c = NULL;
    HKI_FREED char *prefix = NULL;
    HKI_TRY(hki_bundle_prefix(path, &prefix));
    HKI_TRY(hki_ckpt_open_as(path, &hki_bundle, &c));
    HKI_TRY(hki_bundle_remove_data(prefix, ((data_files *)c->impl)->count));
    return clear_temporary(prefix);
}

static hki_elem written(hki_elem e) {
    const hki_bundle_type *const t = hki_bundle_type_of(e);
    return t != NULL && t->size > 0 ? e : HKI_ELEM_OTHER;
}

const hki_ckpt_ops hki_bundle = {
    .format = HK_CKPT_TF,
    .suffix = "",
    .probe = probe,
    .open = open_bundle,
    .close = close_bundle,
    .read = read_bundle,
    .read_strings = read_strings,
    .written = written,
    .write = hki_bundle_write,
    .main_file = main_file,
    .remove = remove_bundle,
    .tidy = tidy_bundle,
};
