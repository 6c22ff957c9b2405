// npz.c - NumPy archives as checkpoints: one .npy member a tensor, stored;
// deflated members, big-endian and Fortran-ordered arrays are read as well.
//
// NumPy has no bfloat16; such tensors are written as float32. Metadata has no
// place in an archive.
#include "ckpt/core/formats.h"
#include "codec/codec.h"

// A longer .npy header would be an odd one: NumPy itself stops at 10,000.
#define MAX_HEAD (64u << 10)
#define ALIGN 64 // of the arrays in the file
#define PIECE ((size_t)256 << 10)

static const struct npy_elem {
    hki_npy_type npy;
    hki_elem elem;
    const char *name;
} types[] = {
    {HKI_NPY_F32, HKI_ELEM_F32, "f4"},
    {HKI_NPY_F64, HKI_ELEM_F64, "f8"},
    {HKI_NPY_F16, HKI_ELEM_F16, "f2"},
    {HKI_NPY_I8, HKI_ELEM_I8, "i1"},
    {HKI_NPY_I16, HKI_ELEM_I16, "i2"},
    {HKI_NPY_I32, HKI_ELEM_I32, "i4"},
    {HKI_NPY_I64, HKI_ELEM_I64, "i8"},
    {HKI_NPY_U8, HKI_ELEM_U8, "u1"},
    {HKI_NPY_U16, HKI_ELEM_U16, "u2"},
    {HKI_NPY_U32, HKI_ELEM_U32, "u4"},
    {HKI_NPY_U64, HKI_ELEM_U64, "u8"},
    {HKI_NPY_BOOL, HKI_ELEM_BOOL, "b1"},
    {HKI_NPY_BYTES, HKI_ELEM_STRING, "S"},
    {HKI_NPY_UNICODE, HKI_ELEM_STRING, "U"},
    {HKI_NPY_C64, HKI_ELEM_C64, "c8"},
    {HKI_NPY_C128, HKI_ELEM_C128, "c16"},
};

// What a tensor of an archive remembers.
typedef struct member {
    hki_zip_entry zip;
    hki_npy npy;
} member;

typedef struct archive {
    int fd;
    hki_zip_entry *entries;
    hki_zip_source source;
    const char *path;
} archive;

// ---- open ------------------------------------------------------------------

static hk_status read_archive(void *user, uint64_t offset, void *out,
                              size_t size) {
    const archive *const a = user;
    return hki_file_read_at(a->fd, a->path, offset, out, size);
}

static void close_archive(hk_ckpt *c) {
    archive *const a = c->impl;
    if (a == NULL)
        return;
    hki_file_close_read(a->fd);
    hki_free(a->entries);
    hki_free(a);
    c->impl = NULL;
}

static const struct npy_elem *find_type(hki_npy_type t) {
    for (size_t i = 0; i < HKI_COUNT(types); i++)
        if (types[i].npy == t)
            return &types[i];
    return NULL; // hki_npy_parse knows no others
}

static hk_status type_name(hk_ckpt *c, const hki_npy *a, const char *kind,
                           const char **out) {
    const char order = a->item_size == 1 ? '|' : a->big_endian ? '>' : '<';
    if (a->type == HKI_NPY_BYTES)
        return hki_arena_printf(&c->arena, out, "|S%u", a->item_size);
    if (a->type == HKI_NPY_UNICODE)
        return hki_arena_printf(&c->arena, out, "%cU%u", order,
                                a->item_size / 4);
    return hki_arena_printf(&c->arena, out, "%c%s", order, kind);
}

static hk_status add_member(hk_ckpt *c, const hki_zip_entry *e, uint8_t *head) {
    const archive *const a = c->impl;
    member *m;
    const char *what;
    size_t got = 0;
    HKI_TRY(hki_arena_printf(&c->arena, &what, "%s: %s", c->path, e->name));
    HKI_TRY(hki_arena_alloc(&c->arena, 1, sizeof *m, &m));
    m->zip = *e;
    HKI_TRY(hki_zip_head_from(&a->source, e, head, MAX_HEAD, &got));
    HKI_TRY(hki_npy_parse(head, got, e->size, what, &m->npy));
    if (m->npy.data_offset + m->npy.data_size != e->size)
        return hki_fail(HK_E_DATA, "%s: there are bytes after the array", what);

    const struct npy_elem *const type = find_type(m->npy.type);
    hki_ckpt_tensor t = {.extra = m};
    t.entry.bytes = m->npy.data_size;
    if (m->npy.rank > HK_MAX_RANK) {
        t.entry.shape.rank = -1; // listed, not read
    } else {
        t.entry.shape = hk_shape_make(m->npy.rank, m->npy.dim);
        t.elem = type->elem;
    }
    t.entry.dtype = hki_elem_dtype(t.elem);
    HKI_TRY(type_name(c, &m->npy, type->name, &t.entry.type_name));
    HKI_TRY(hki_arena_printf(&c->arena, &t.entry.name, "%.*s",
                             (int)e->name_size - 4, e->name));
    return hki_ckpt_push(c, &t);
}

static bool is_array(const hki_zip_entry *e) {
    return e->name_size > 4 && hki_ends_with(e->name, ".npy");
}

static hk_status open_archive(hk_ckpt *c) {
    archive *a;
    size_t count = 0;
    HKI_FREED uint8_t *head = NULL;
    HKI_TRY(hki_zalloc_array(1, sizeof *a, &a));
    c->impl = a;
    a->fd = -1;
    a->path = c->path;
    a->source =
        (hki_zip_source){.read = read_archive, .user = a, .what = c->path};
    HKI_TRY(hki_file_open_read(c->path, &a->fd, &a->source.size));
    HKI_TRY(hki_zip_list_from(&a->source, &a->entries, &count));
    HKI_TRY(hki_alloc_array(MAX_HEAD, 1, &head));
    for (size_t i = 0; i < count; i++)
        if (is_array(&a->entries[i]))
            HKI_TRY(add_member(c, &a->entries[i], head));
    return HK_OK;
}

static bool probe(const char *path, const uint8_t *head, size_t size) {
    return (size >= 4 && memcmp(head, "PK\3\4", 4) == 0) ||
           (size >= 4 && memcmp(head, "PK\5\6", 4) == 0) ||
           (head != NULL && hki_ends_with(path, ".npz"));
}

// ---- read ------------------------------------------------------------------

// A stored array goes straight to its place; its checksum begins with the
// member's header.
static hk_status read_stored(const archive *a, const member *m, uint8_t *out) {
    const uint64_t at = m->zip.data_offset;
    const size_t skip = m->npy.data_offset, size = m->npy.data_size;
    HKI_FREED uint8_t *head = NULL;
    HKI_TRY(hki_alloc_array(skip, 1, &head));
    HKI_TRY(read_archive((void *)(uintptr_t)a, at, head, skip));
    uint32_t crc = hki_crc32(0, head, skip);
    for (size_t i = 0; i < size; i += PIECE) {
        const size_t n = HKI_MIN(size - i, PIECE);
        HKI_TRY(read_archive((void *)(uintptr_t)a, at + skip + i, out + i, n));
        crc = hki_crc32(crc, out + i, n);
    }
    if (crc != m->zip.crc32)
        return hki_fail(HK_E_DATA, "%s: %s: checksum is %08x, expected %08x",
                        a->path, m->zip.name, crc, m->zip.crc32);
    return HK_OK;
}

static hk_status read_raw(const archive *a, const member *m, uint8_t *out) {
    if (m->zip.method == 0)
        return read_stored(a, m, out);
    HKI_FREED uint8_t *whole = NULL;
    HKI_TRY(hki_alloc_array((size_t)m->zip.size, 1, &whole));
    HKI_TRY(hki_zip_read_from(&a->source, &m->zip, whole));
    if (m->npy.data_size > 0)
        memcpy(out, whole + m->npy.data_offset, m->npy.data_size);
    return HK_OK;
}

// Bytes that are turned round together: a number, half a complex one, or a
// character.
static size_t swap_unit(const hki_npy *a) {
    if (a->type == HKI_NPY_UNICODE)
        return 4;
    const bool pairs = a->type == HKI_NPY_C64 || a->type == HKI_NPY_C128;
    return a->item_size / (pairs ? 2 : 1);
}

static void swap_bytes(const hki_npy *a, uint8_t *data) {
    const size_t unit = swap_unit(a);
    for (size_t i = 0; i < a->data_size; i += unit)
        for (size_t j = 0; j < unit / 2; j++) {
            const uint8_t b = data[i + j];
            data[i + j] = data[i + unit - 1 - j];
            data[i + unit - 1 - j] = b;
        }
}

// Column order to row order: the first index runs fastest in src.
static void reorder(const hki_npy *a, const uint8_t *src, uint8_t *dst) {
    int64_t index[32] = {0}, stride[32];
    int64_t step = 1;
    for (int32_t i = 0; i < a->rank; i++) {
        stride[i] = step;
        step *= a->dim[i];
    }
    const size_t item = a->item_size;
    int64_t from = 0;
    for (int64_t i = 0; i < a->count; i++) {
        memcpy(dst + (size_t)i * item, src + (size_t)from * item, item);
        for (int32_t d = a->rank; d-- > 0;) { // the next index in row order
            from += stride[d];
            if (++index[d] < a->dim[d])
                break;
            from -= stride[d] * a->dim[d];
            index[d] = 0;
        }
    }
}

static hk_status read_array(const hk_ckpt *c, const hki_ckpt_tensor *t,
                            void *out) {
    const member *const m = t->extra;
    HKI_FREED uint8_t *turned = NULL;
    if (m->npy.fortran_order && m->npy.rank > 1)
        HKI_TRY(hki_alloc_array(m->npy.data_size, 1, &turned));
    uint8_t *const raw = turned != NULL ? turned : out;
    HKI_TRY(read_raw(c->impl, m, raw));
    if (m->npy.big_endian)
        swap_bytes(&m->npy, raw);
    if (turned != NULL)
        reorder(&m->npy, turned, out);
    return HK_OK;
}

// ---- strings ---------------------------------------------------------------

static hk_status read_strings(const hk_ckpt *c, const hki_ckpt_tensor *t,
                              hk_tensor *out) {
    hki_npy a = ((const member *)t->extra)->npy;
    HKI_FREED uint8_t *items = NULL;
    HKI_SCOPED(hki_buf_deinit) hki_buf text = {0};
    HKI_TRY(hki_alloc_array(a.data_size, 1, &items));
    HKI_TRY(read_array(c, t, items));
    a.big_endian = false; // any more
    for (int64_t i = 0; i < a.count; i++) {
        const hk_status s =
            hki_npy_string(&a, items + (size_t)i * a.item_size, &text);
        if (s == HK_E_DATA)
            return hki_fail(s, "%s: element %lld is not a valid Unicode string",
                            t->entry.name, (long long)i);
        HKI_TRY(s);
        HKI_TRY(hk_tensor_set_string(out, i, text.data, text.size));
    }
    return HK_OK;
}

// ---- write -----------------------------------------------------------------

typedef struct output {
    hki_file *file;
    hki_zip_writer zip;
    hki_buf head, name;
} output;

static const struct npy_elem *npy_elem(hki_elem e) {
    for (size_t i = 0; i < HKI_COUNT(types); i++)
        if (types[i].elem == e && e != HKI_ELEM_STRING)
            return &types[i];
    return NULL;
}

static hki_elem written(hki_elem e) {
    if (e == HKI_ELEM_BF16)
        return HKI_ELEM_F32;
    return npy_elem(e) != NULL ? e : HKI_ELEM_OTHER;
}

// One member: zip header, .npy header, data.
static hk_status write_member(output *o, const char *name, hki_npy_type type,
                              const hk_shape *shape, const void *data,
                              size_t bytes) {
    HKI_SCOPED(hki_buf_deinit) hki_buf zip = {0};
    o->head.size = o->name.size = 0;
    HKI_TRY(hki_npy_header(&o->head, type, shape->rank, shape->dim));
    HKI_TRY(hki_buf_printf(&o->name, "%s.npy", name));
    const uint32_t crc =
        hki_crc32(hki_crc32(0, o->head.data, o->head.size), data, bytes);
    // The .npy header is padded to 64: the array is aligned like its member.
    HKI_TRY(hki_zip_begin(&o->zip, &zip, o->name.data, o->head.size + bytes,
                          crc, ALIGN));
    HKI_TRY(hki_file_write(o->file, zip.data, zip.size));
    HKI_TRY(hki_file_write(o->file, o->head.data, o->head.size));
    return hki_file_write(o->file, data, bytes);
}

static hk_status write_item(output *o, const hki_ckpt_item *item) {
    if (item->elem != HKI_ELEM_BF16)
        return write_member(o, item->name, npy_elem(item->elem)->npy,
                            &item->shape, item->data, item->bytes);
    const size_t count = item->bytes / 2;
    HKI_FREED float *wide = NULL;
    HKI_TRY(hki_alloc_array(count, sizeof *wide, &wide));
    HKI_TRY(hki_convert(HKI_ELEM_BF16, item->data, HK_F32, wide, (int64_t)count,
                        item->name));
    return write_member(o, item->name, HKI_NPY_F32, &item->shape, wide,
                        count * sizeof *wide);
}

static hk_status write_items(output *o, const hki_ckpt_plan *plan) {
    for (size_t i = 0; i < plan->count; i++)
        HKI_TRY(write_item(o, &plan->items[i]));
    o->head.size = 0;
    HKI_TRY(hki_zip_end(&o->zip, &o->head));
    return hki_file_write(o->file, o->head.data, o->head.size);
}

static void output_deinit(output *o) {
    hki_zip_deinit(&o->zip);
    hki_buf_deinit(&o->head);
    hki_buf_deinit(&o->name);
}

static hk_status write_archive(const char *path, const hki_ckpt_plan *plan) {
    HKI_SCOPED(output_deinit) output o = {0};
    HKI_TRY(hki_file_create(path, &o.file));
    HKI_TRY(hki_file_end(o.file, write_items(&o, plan), plan->durable));
    return plan->durable ? hki_sync_folder(path) : HK_OK;
}

const hki_ckpt_ops hki_npz = {
    .format = HK_CKPT_NPZ,
    .suffix = ".npz",
    .probe = probe,
    .open = open_archive,
    .close = close_archive,
    .read = read_array,
    .read_strings = read_strings,
    .written = written,
    .write = write_archive,
    .remove = hki_file_remove,
};
