// bundle_index.c - a bundle's index into the list of its tensors.
//
// Slice keys begin with a zero byte and so come before every name: when a
// tensor in parts is met, its parts are known. They have to tile it: each
// inside, no two overlapping, as many elements together as the whole has.
#include "ckpt/tf/bundle.h"
#include "ckpt/tf/sorted_table.h"

#define OUR_VERSION 1
#define MAX_SLICES 10000 // of one tensor; they are compared pair by pair

// An entry under a slice key.
typedef struct stored {
    const uint8_t *key; // in the arena
    size_t key_size;
    hki_bundle_entry entry;
} stored;

typedef struct index_scan {
    hk_ckpt *c;
    const char *what;
    bool has_header;
    hki_bundle_header header;
    stored *slices;
    size_t n_slices, slices_capacity;
    hki_buf key;
} index_scan;

static hk_status bad_tensor(const index_scan *x, const char *name,
                            const char *text) {
    return hki_fail(HK_E_DATA, "%s: tensor %s: %s", x->what, name, text);
}

// ---- header ----------------------------------------------------------------

static hk_status take_header(index_scan *x, const uint8_t *value,
                             size_t value_size) {
    hki_bundle_header *const h = &x->header;
    if (!hki_bundle_parse_header(value, value_size, h) || h->n_shards == 0)
        return hki_fail(HK_E_DATA, "%s: the bundle's header is malformed",
                        x->what);
    if (h->min_consumer > OUR_VERSION)
        return hki_fail(
            HK_E_UNSUPPORTED,
            "%s: needs a reader of version %lld; this one has version %d",
            x->what, (long long)h->min_consumer, OUR_VERSION);
    if (h->big_endian)
        return hki_fail(HK_E_UNSUPPORTED,
                        "%s: big-endian bundles are not supported", x->what);
    x->has_header = true;
    return HK_OK;
}

// ---- ordinary tensors ------------------------------------------------------

// The shape as Hooke has it: rank -1 above HK_MAX_RANK.
static hk_shape shape_of(const hki_bundle_entry *e) {
    hk_shape s = {.rank = e->rank <= HK_MAX_RANK ? e->rank : -1};
    for (int32_t i = 0; i < s.rank; i++)
        s.dim[i] = e->dim[i];
    return s;
}

// Whether as many bytes are stored as type and shape ask for. Elements of a
// type that is not known are not counted.
static hk_status check_size(const index_scan *x, const char *name,
                            const hki_bundle_type *type, const hk_shape *shape,
                            uint64_t size) {
    int64_t count;
    if (type == NULL || shape->rank < 0)
        return HK_OK;
    if (hk_shape_count(*shape, &count) != HK_OK)
        return bad_tensor(x, name, "the shape has too many elements");
    const uint64_t n = (uint64_t)count;
    // A string has a length of at least a byte, all of them a checksum.
    if (type->number == HKI_DT_STRING && n > 0 && (size < 4 || size - 4 < n))
        return bad_tensor(x, name, "there are more strings than bytes");
    if (type->size == 0)
        return HK_OK;
    if (n > UINT64_MAX / type->size || n * type->size != size)
        return hki_fail(HK_E_DATA,
                        "%s: tensor %s has %llu bytes, which is not the size "
                        "of %llu elements of %s",
                        x->what, name, (unsigned long long)size,
                        (unsigned long long)n, type->name);
    return HK_OK;
}

static hk_status check_place(const index_scan *x, const char *name,
                             const hki_bundle_entry *e) {
    if (e->shard >= x->header.n_shards)
        return hki_fail(
            HK_E_DATA,
            "%s: tensor %s: the data file %u does not exist; there are %u",
            x->what, name, e->shard, x->header.n_shards);
    if (e->offset > INT64_MAX || e->size > INT64_MAX - e->offset)
        return bad_tensor(x, name, "its offset is too large");
    return HK_OK;
}

static hk_status type_name(index_scan *x, const hki_bundle_type *type,
                           uint64_t dtype, const char **out) {
    if (type != NULL) {
        *out = type->name;
        return HK_OK;
    }
    return hki_arena_printf(&x->c->arena, out, "DT_%llu",
                            (unsigned long long)dtype);
}

// ---- tensors in parts ------------------------------------------------------

static int compare_keys(const uint8_t *a, size_t a_size, const uint8_t *b,
                        size_t b_size) {
    const size_t n = HKI_MIN(a_size, b_size);
    const int c = n > 0 ? memcmp(a, b, n) : 0;
    return c != 0 ? c : (a_size > b_size) - (a_size < b_size);
}

static int order_of(const stored *s, const hki_buf *key) {
    return compare_keys(s->key, s->key_size, (const uint8_t *)key->data,
                        key->size);
}

// The stored entries are sorted, as the table was. NULL: not there.
static const hki_bundle_entry *find_stored(const index_scan *x) {
    size_t i;
    HKI_FIRST(i, x->n_slices, order_of(&x->slices[i], &x->key) >= 0);
    return i < x->n_slices && order_of(&x->slices[i], &x->key) == 0
               ? &x->slices[i].entry
               : NULL;
}

// Fills in whole dimensions; false when the slice does not lie in the shape.
static bool fit_slice(hki_slice *s, const hk_shape *shape) {
    if (s->rank != shape->rank)
        return false;
    for (int32_t i = 0; i < s->rank; i++) {
        hki_extent *const e = &s->extent[i];
        if (e->length < 0)
            *e = (hki_extent){0, shape->dim[i]};
        if (e->start > shape->dim[i] || e->length > shape->dim[i] - e->start)
            return false;
    }
    return true;
}

static bool overlap(const hki_slice *a, const hki_slice *b) {
    for (int32_t i = 0; i < a->rank; i++) {
        const hki_extent p = a->extent[i], q = b->extent[i];
        if (p.start + p.length <= q.start || q.start + q.length <= p.start)
            return false;
    }
    return true;
}

static hk_shape slice_shape(const hki_slice *s) {
    hk_shape shape = {.rank = s->rank};
    for (int32_t i = 0; i < s->rank; i++)
        shape.dim[i] = s->extent[i].length;
    return shape;
}

// One part: its slice is in part->slice, as written.
static hk_status take_part(index_scan *x, const char *name,
                           const hki_bundle_entry *whole, const hk_shape *shape,
                           hki_bundle_part *part) {
    HKI_TRY(hki_slice_key(name, &part->slice, &x->key));
    const hki_bundle_entry *const e = find_stored(x);
    if (e == NULL)
        return bad_tensor(x, name, "one of the slices is missing");
    if (!fit_slice(&part->slice, shape))
        return bad_tensor(x, name, "one of the slices exceeds the tensor");
    const hk_shape expected = slice_shape(&part->slice), got = shape_of(e);
    if (e->dtype != whole->dtype || !hk_shape_equal(expected, got))
        return bad_tensor(x, name, "a slice has a different type or shape");
    HKI_TRY(check_size(x, name, hki_bundle_type_by_number(e->dtype), &expected,
                       e->size));
    HKI_TRY(check_place(x, name, e));
    part->shard = e->shard;
    part->crc = hki_crc32c_unmask(e->crc);
    part->offset = e->offset;
    part->size = e->size;
    return HK_OK;
}

static hk_status check_tiles(const index_scan *x, const char *name,
                             const hki_bundle_parts *p, uint64_t bytes) {
    uint64_t sum = 0;
    for (size_t i = 0; i < p->count; i++) {
        sum += p->part[i].size; // cannot overflow: each is at most `bytes`
        for (size_t k = 0; k < i; k++)
            if (overlap(&p->part[i].slice, &p->part[k].slice))
                return bad_tensor(x, name, "the slices overlap");
    }
    return sum == bytes
               ? HK_OK
               : bad_tensor(x, name, "the slices do not cover the tensor");
}

static hk_status take_parts(index_scan *x, const char *name,
                            const hki_bundle_entry *e, const uint8_t *value,
                            size_t value_size, hki_ckpt_tensor *t) {
    if (e->n_slices > MAX_SLICES)
        return hki_fail(
            HK_E_UNSUPPORTED,
            "%s: tensor %s: %zu slices are too many; the limit is %d", x->what,
            name, e->n_slices, MAX_SLICES);
    const hki_bundle_type *const type = hki_bundle_type_by_number(e->dtype);
    int64_t count;
    if (type == NULL || type->size == 0 || t->entry.shape.rank < 0)
        return hki_fail(
            HK_E_UNSUPPORTED,
            "%s: tensor %s: slices of type %s and rank %d are not supported",
            x->what, name, t->entry.type_name, e->rank);
    if (hk_shape_count(t->entry.shape, &count) != HK_OK ||
        count > INT64_MAX / type->size)
        return bad_tensor(x, name, "the shape has too many elements");
    t->entry.bytes = (uint64_t)count * type->size;
    hki_bundle_parts *parts;
    HKI_TRY(hki_arena_alloc(&x->c->arena, 1, sizeof *parts, &parts));
    HKI_TRY(hki_arena_alloc(&x->c->arena, e->n_slices, sizeof *parts->part,
                            &parts->part));
    hki_pb m = {value, value + value_size};
    bool bad = false;
    while (parts->count < e->n_slices &&
           hki_bundle_next_slice(&m, &parts->part[parts->count].slice, &bad)) {
        HKI_TRY(
            take_part(x, name, e, &t->entry.shape, &parts->part[parts->count]));
        parts->count++;
    }
    if (bad)
        return bad_tensor(x, name, "a slice is malformed");
    t->extra = parts;
    return check_tiles(x, name, parts, t->entry.bytes);
}

// ---- entries ---------------------------------------------------------------

static hk_status take_slice_key(index_scan *x, const uint8_t *key,
                                size_t key_size, const uint8_t *value,
                                size_t value_size) {
    HKI_TRY(hki_list_reserve(&x->slices, x->n_slices + 1, &x->slices_capacity,
                             sizeof *x->slices));
    stored *const s = &x->slices[x->n_slices];
    uint8_t *copy;
    HKI_TRY(hki_arena_alloc(&x->c->arena, key_size, 1, &copy));
    memcpy(copy, key, key_size);
    s->key = copy;
    s->key_size = key_size;
    if (!hki_bundle_parse_entry(value, value_size, &s->entry))
        return hki_fail(HK_E_DATA, "%s: an entry of a slice is malformed",
                        x->what);
    x->n_slices++;
    return HK_OK;
}

static hk_status take_tensor(index_scan *x, const char *name,
                             const uint8_t *value, size_t value_size) {
    hki_bundle_entry e;
    if (!hki_bundle_parse_entry(value, value_size, &e))
        return bad_tensor(x, name, "the entry is malformed");
    const hki_bundle_type *const type = hki_bundle_type_by_number(e.dtype);
    hki_ckpt_tensor t = {.place = e.shard,
                         .offset = e.offset,
                         .crc = hki_crc32c_unmask(e.crc),
                         .has_crc = true};
    t.entry.name = name;
    t.entry.shape = shape_of(&e);
    t.entry.bytes = e.size;
    HKI_TRY(type_name(x, type, e.dtype, &t.entry.type_name));
    if (type != NULL && t.entry.shape.rank >= 0)
        t.elem = type->elem;
    t.entry.dtype = hki_elem_dtype(t.elem);
    if (e.n_slices > 0) {
        HKI_TRY(take_parts(x, name, &e, value, value_size, &t));
    } else {
        HKI_TRY(check_size(x, name, type, &t.entry.shape, e.size));
        HKI_TRY(check_place(x, name, &e));
    }
    return hki_ckpt_push(x->c, &t);
}

static hk_status take_entry(void *user, const uint8_t *key, size_t key_size,
                            const uint8_t *value, size_t value_size) {
    index_scan *const x = user;
    if (!x->has_header && key_size > 0)
        return hki_fail(HK_E_DATA, "%s: the table has no header of a bundle",
                        x->what);
    if (key_size == 0)
        return take_header(x, value, value_size);
    if (key[0] == 0)
        return take_slice_key(x, key, key_size, value, value_size);
    if (memchr(key, 0, key_size) != NULL)
        return hki_fail(HK_E_DATA, "%s: a name has a zero byte", x->what);
    char *name;
    HKI_TRY(hki_arena_alloc(&x->c->arena, key_size + 1, 1, &name));
    memcpy(name, key, key_size); // what an arena gives is zeroed
    return take_tensor(x, name, value, value_size);
}

static void index_scan_deinit(index_scan *x) {
    hki_free(x->slices);
    hki_buf_deinit(&x->key);
}

hk_status hki_bundle_parse_index(hk_ckpt *c, const uint8_t *bytes, size_t size,
                                 const char *what, uint32_t *n_shards) {
    HKI_SCOPED(index_scan_deinit) index_scan x = {.c = c, .what = what};
    HKI_TRY(hki_table_scan(bytes, size, what, take_entry, &x));
    if (!x.has_header)
        return hki_fail(HK_E_DATA, "%s: the table has no header of a bundle",
                        what);
    *n_shards = x.header.n_shards;
    return HK_OK;
}
