// layout.c - table of contents of a model's flat vector.
//
// Entries are kept in the order of their offsets: dense trainable, sparse
// trainable, float state, then the side block. Names are looked up in an open
// hash table of twice as many cells as entries or more.
#include "tensor/tensor.h"
#include <stdatomic.h>

typedef enum section { DENSE, SPARSE, STATE, SIDE, N_SECTIONS } section;

#define SIDE_ALIGN 64        // bytes
#define MAX_ITEMS (1u << 28) // keeps the hash table's indices in 32 bits

struct hk_layout {
    atomic_int refs;
    hki_arena arena; // entries, names, table
    hk_entry *entries;
    size_t n_entries;
    uint32_t *table; // entry index + 1; 0: free
    size_t table_mask;
    int64_t end[N_SECTIONS]; // n_dense, n_train, n (floats); side (bytes)
    uint64_t fingerprint;
};

static section section_of(const hk_layout_item *it) {
    if (it->dtype != HK_F32)
        return SIDE;
    if (it->kind != HK_TRAINABLE)
        return STATE;
    return it->sparse ? SPARSE : DENSE;
}

static hk_status check_item(const hk_layout_item *it, size_t index) {
    if (it->name == NULL || it->name[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG, "layout: item %zu has no name",
                        index);
    if ((int)it->kind < HK_TRAINABLE || (int)it->kind > HK_STATE_LOCAL)
        return hki_fail(HK_E_INVALID_ARG, "layout: %s: unknown kind %d",
                        it->name, (int)it->kind);
    if (hk_dtype_size(it->dtype) == 0)
        return hki_fail(HK_E_DTYPE, "layout: %s: an entry cannot be %s",
                        it->name, hk_dtype_name(it->dtype));
    if (it->kind == HK_TRAINABLE && it->dtype != HK_F32)
        return hki_fail(HK_E_DTYPE,
                        "layout: %s: it is trainable, but has the type %s",
                        it->name, hk_dtype_name(it->dtype));
    if (it->sparse > 1 || (it->sparse == 1 && it->kind != HK_TRAINABLE))
        return hki_fail(HK_E_INVALID_ARG,
                        "layout: %s: sparse is %u; only trainable entries can "
                        "be sparse (1)",
                        it->name, it->sparse);
    if (it->reserved != 0)
        return hki_fail(HK_E_INVALID_ARG, "layout: %s: reserved is %u, not 0",
                        it->name, it->reserved);
    return HK_OK;
}

// Cell of `name`: the one that holds it, or the free one where it belongs.
static uint32_t *table_cell(const hk_layout *l, const char *name) {
    size_t i = (size_t)hki_hash(HKI_HASH_INIT, name, strlen(name));
    for (;; i++) {
        uint32_t *const cell = &l->table[i & l->table_mask];
        if (*cell == 0 || strcmp(l->entries[*cell - 1].name, name) == 0)
            return cell;
    }
}

// Places one item at *end, which grows to the next aligned position.
static hk_status place(const hk_layout_item *it, hk_entry *e, int64_t *end) {
    const bool flat = it->dtype == HK_F32;
    const size_t unit = flat ? 1 : hk_dtype_size(it->dtype);
    const int64_t align = flat ? HKI_ALIGN_FLOATS : SIDE_ALIGN;
    // The whole block has to be addressable in bytes, too.
    const int64_t limit =
        flat ? PTRDIFF_MAX / (int64_t)sizeof(float) : PTRDIFF_MAX;
    int64_t size;
    HKI_TRY(hk_shape_count(it->shape, &e->count));
    if (__builtin_mul_overflow(e->count, (int64_t)unit, &size) ||
        size > limit - align || *end > limit - align - size)
        return hki_fail(HK_E_OVERFLOW, "layout: %s has too many elements",
                        it->name);
    e->shape = hk_shape_make(it->shape.rank, it->shape.dim);
    e->dtype = it->dtype;
    e->kind = it->kind;
    e->sparse = it->sparse;
    e->offset = *end;
    *end = (*end + size + align - 1) / align * align;
    return HK_OK;
}

static hk_status add_entry(hk_layout *l, const hk_layout_item *it,
                           int64_t *end) {
    hk_entry *const e = &l->entries[l->n_entries];
    uint32_t *const cell = table_cell(l, it->name);
    if (*cell != 0)
        return hki_fail(HK_E_EXISTS, "layout: two entries are named %s",
                        it->name);
    HKI_TRY(hki_arena_strdup(&l->arena, it->name, &e->name));
    HKI_TRY(place(it, e, end));
    *cell = (uint32_t)++l->n_entries;
    return HK_OK;
}

// Little-endian, so that machines of either order agree.
static uint64_t hash_u64(uint64_t h, uint64_t v) {
    unsigned char bytes[8];
    hki_put_u64(bytes, v);
    return hki_hash(h, bytes, sizeof bytes);
}

static uint64_t hash_layout(const hk_layout *l) {
    uint64_t h = hash_u64(HKI_HASH_INIT, l->n_entries);
    for (size_t i = 0; i < l->n_entries; i++) {
        const hk_entry *const e = &l->entries[i];
        h = hki_hash(h, e->name, strlen(e->name) + 1);
        h = hash_u64(h, (uint64_t)e->shape.rank);
        for (int d = 0; d < e->shape.rank; d++)
            h = hash_u64(h, (uint64_t)e->shape.dim[d]);
        h = hash_u64(h, (uint64_t)e->dtype);
        h = hash_u64(h, (uint64_t)e->kind);
        h = hash_u64(h, e->sparse);
        h = hash_u64(h, (uint64_t)e->offset);
    }
    for (int i = 0; i < N_SECTIONS; i++)
        h = hash_u64(h, (uint64_t)l->end[i]);
    return h;
}

static hk_status fill(hk_layout *l, const hk_layout_item *items, size_t n) {
    size_t cells = 8;
    while (cells < 2 * n)
        cells *= 2;
    HKI_TRY(hki_arena_alloc(&l->arena, n, sizeof *l->entries, &l->entries));
    HKI_TRY(hki_arena_alloc(&l->arena, cells, sizeof *l->table, &l->table));
    l->table_mask = cells - 1;
    for (size_t i = 0; i < n; i++)
        HKI_TRY(check_item(&items[i], i));
    for (int s = 0; s < N_SECTIONS; s++) {
        // The flat sections follow each other; the side block starts anew.
        l->end[s] = s == DENSE || s == SIDE ? 0 : l->end[s - 1];
        for (size_t i = 0; i < n; i++)
            if ((int)section_of(&items[i]) == s)
                HKI_TRY(add_entry(l, &items[i], &l->end[s]));
    }
    l->fingerprint = hash_layout(l);
    return HK_OK;
}

hk_status hk_layout_create(const hk_layout_item *items, size_t n,
                           hk_layout **out) {
    if (out == NULL || (items == NULL && n > 0))
        return hki_fail(HK_E_INVALID_ARG, "layout: NULL argument");
    if (n > MAX_ITEMS)
        return hki_fail(HK_E_OVERFLOW,
                        "layout: %zu items are too many; the limit is %u", n,
                        MAX_ITEMS);
    hk_layout *l;
    HKI_TRY(hki_zalloc_array(1, sizeof *l, &l));
    atomic_init(&l->refs, 1);
    HKI_TRY_OR(fill(l, items, n), hk_layout_release(l));
    *out = l;
    return HK_OK;
}

hk_layout *hk_layout_retain(hk_layout *l) {
    if (l != NULL)
        atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
    return l;
}

void hk_layout_release(hk_layout *l) {
    if (l == NULL ||
        atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) != 1)
        return;
    hki_arena_deinit(&l->arena);
    hki_free(l);
}

int64_t hki_layout_dense(const hk_layout *l) {
    return l->end[DENSE];
}

int64_t hki_layout_train(const hk_layout *l) {
    return l->end[SPARSE];
}

int64_t hki_layout_size(const hk_layout *l) {
    return l->end[STATE];
}

int64_t hki_layout_side_bytes(const hk_layout *l) {
    return l->end[SIDE];
}

size_t hki_layout_entry_count(const hk_layout *l) {
    return l->n_entries;
}

const hk_entry *hk_layout_entry(const hk_layout *l, size_t i) {
    return i < l->n_entries ? &l->entries[i] : NULL;
}

const hk_entry *hk_layout_find(const hk_layout *l, const char *name) {
    if (name == NULL)
        return NULL;
    const uint32_t cell = *table_cell(l, name);
    return cell == 0 ? NULL : &l->entries[cell - 1];
}

uint64_t hki_layout_fingerprint(const hk_layout *l) {
    return l->fingerprint;
}

hk_status hk_layout_get_info(const hk_layout *l, hk_layout_info *out) {
    if (l == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "layout: info: NULL argument");
    *out = (hk_layout_info){.n_dense = l->end[DENSE],
                            .n_train = l->end[SPARSE],
                            .n = l->end[STATE],
                            .side_bytes = l->end[SIDE],
                            .entry_count = l->n_entries,
                            .fingerprint = l->fingerprint};
    return HK_OK;
}

// ---- places and differences -------------------------------------------------

static bool ends_behind(const hk_layout *l, size_t i, int64_t at) {
    const hk_entry *const e = &l->entries[i];
    return e->dtype != HK_F32 || e->offset + e->count > at;
}

size_t hki_layout_find_float(const hk_layout *l, int64_t at) {
    size_t i;
    HKI_FIRST(i, l->n_entries, ends_behind(l, i, at));
    return i;
}

const char *hki_layout_locate(const hk_layout *l, int64_t at,
                              char text[HKI_PLACE_TEXT]) {
    const hk_entry *const e = hk_layout_entry(l, hki_layout_find_float(l, at));
    if (e == NULL || e->dtype != HK_F32 || e->offset > at)
        snprintf(text, HKI_PLACE_TEXT, "float %lld of the vector",
                 (long long)at);
    else
        snprintf(text, HKI_PLACE_TEXT, "element %lld of %s",
                 (long long)(at - e->offset), e->name);
    return text;
}

static const char *describe(const hk_entry *e, char *text, size_t capacity) {
    static const char *const kinds[] = {"", "trainable", "averaged", "copied",
                                        "local"};
    char shape[HKI_SHAPE_TEXT];
    snprintf(text, capacity, "%.200s %s (%s, %s%s)", e->name,
             hki_shape_text(e->shape, shape), hk_dtype_name(e->dtype),
             kinds[e->kind], e->sparse ? ", sparse" : "");
    return text;
}

static bool entries_equal(const hk_entry *a, const hk_entry *b) {
    return strcmp(a->name, b->name) == 0 &&
           hk_shape_equal(a->shape, b->shape) && a->dtype == b->dtype &&
           a->kind == b->kind && a->sparse == b->sparse;
}

bool hki_layout_compare(const hk_layout *here, const hk_layout *there,
                        char text[HKI_DIFFERENCE_TEXT]) {
    char first[400], second[400];
    size_t i = 0;
    while (i < here->n_entries && i < there->n_entries &&
           entries_equal(&here->entries[i], &there->entries[i]))
        i++;
    const hk_entry *const a = hk_layout_entry(here, i);
    const hk_entry *const b = hk_layout_entry(there, i);
    text[0] = '\0';
    if (a == NULL && b == NULL)
        return true;
    if (a != NULL && hk_layout_find(there, a->name) == NULL)
        snprintf(text, HKI_DIFFERENCE_TEXT, "%s is only in this process",
                 describe(a, first, sizeof first));
    else if (b != NULL && hk_layout_find(here, b->name) == NULL)
        snprintf(text, HKI_DIFFERENCE_TEXT, "%s is only in the center",
                 describe(b, first, sizeof first));
    else if (a != NULL && b != NULL) // both sides have both names
        snprintf(text, HKI_DIFFERENCE_TEXT,
                 "variable %zu is %s in this process and %s in the center", i,
                 describe(a, first, sizeof first),
                 describe(b, second, sizeof second));
    return false;
}
