// names.c - name maps: what savers read and restorers write.
//
// Items keep the order of their adding; an open hash table of twice as many
// cells as items or more finds them by name.
#include "tensor/tensor.h"

#define MIN_CELLS 16u
#define MAX_ITEMS (1u << 28) // keeps the table's indices in 32 bits

struct hk_name_map {
    hki_arena arena; // names
    hk_named *items;
    size_t count, capacity;
    uint32_t *table; // item index + 1; 0: free
    size_t table_mask;
};

// Cell of `name` in a table over items: the one that holds it, or the free
// one where it belongs.
static uint32_t *cell_of(uint32_t *table, size_t mask, const hk_named *items,
                         const char *name) {
    size_t i = (size_t)hki_hash(HKI_HASH_INIT, name, strlen(name));
    for (;; i++) {
        uint32_t *const cell = &table[i & mask];
        if (*cell == 0 || strcmp(items[*cell - 1].name, name) == 0)
            return cell;
    }
}

hk_status hk_name_map_create(hk_name_map **out) {
    if (out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "name map: out is NULL");
    hk_name_map *m;
    HKI_TRY(hki_zalloc_array(1, sizeof *m, &m));
    m->table_mask = MIN_CELLS - 1;
    HKI_TRY_OR(hki_zalloc_array(MIN_CELLS, sizeof *m->table, &m->table),
               hk_name_map_destroy(m));
    *out = m;
    return HK_OK;
}

void hk_name_map_destroy(hk_name_map *m) {
    if (m == NULL)
        return;
    hki_free(m->table);
    hki_free(m->items);
    hki_arena_deinit(&m->arena);
    hki_free(m);
}

// Doubles items and table.
static hk_status grow(hk_name_map *m) {
    const size_t capacity = m->capacity ? 2 * m->capacity : MIN_CELLS / 2;
    if (capacity > MAX_ITEMS)
        return hki_fail(HK_E_OVERFLOW, "name map: %u items are the limit",
                        MAX_ITEMS);
    HKI_TRY(hki_realloc_array(capacity, sizeof *m->items, &m->items));
    m->capacity = capacity;
    uint32_t *table;
    HKI_TRY(hki_zalloc_array(2 * capacity, sizeof *table, &table));
    for (size_t i = 0; i < m->count; i++)
        *cell_of(table, 2 * capacity - 1, m->items, m->items[i].name) =
            (uint32_t)(i + 1);
    hki_free(m->table);
    m->table = table;
    m->table_mask = 2 * capacity - 1;
    return HK_OK;
}

hk_status hk_name_map_add(hk_name_map *m, const hk_named *item) {
    if (m == NULL || item == NULL || item->name == NULL ||
        item->name[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG, "name map: an item needs a name");
    if (item->data == NULL)
        return hki_fail(HK_E_INVALID_ARG, "name map: %s has no data",
                        item->name);
    if (*cell_of(m->table, m->table_mask, m->items, item->name) != 0)
        return hki_fail(HK_E_EXISTS, "name map: %s occurs twice", item->name);
    // Also when an earlier grow() failed between its two halves.
    if (m->count == m->capacity || m->table_mask < 2 * m->capacity - 1)
        HKI_TRY(grow(m));
    hk_named copy = *item;
    HKI_TRY(hki_arena_strdup(&m->arena, item->name, &copy.name));
    m->items[m->count] = copy;
    m->count++;
    *cell_of(m->table, m->table_mask, m->items, copy.name) = (uint32_t)m->count;
    return HK_OK;
}

hk_status hki_names_add(hk_name_map *m, hk_dtype dtype, hk_shape shape,
                        void *data, const char *fmt, ...) {
    hki_buf name = {0};
    va_list ap;
    va_start(ap, fmt);
    hk_status s = hki_buf_vprintf(&name, fmt, ap);
    va_end(ap);
    if (s == HK_OK)
        s = hk_name_map_add(m, &(hk_named){.name = name.data,
                                           .dtype = dtype,
                                           .shape = shape,
                                           .data = data});
    hki_buf_deinit(&name);
    return s;
}

hk_status hki_names_add_map(hk_name_map *m, const char *prefix,
                            const hk_name_map *from) {
    for (size_t i = 0; i < from->count; i++) {
        const hk_named *const n = &from->items[i];
        HKI_TRY(hki_names_add(m, n->dtype, n->shape, n->data, "%s%s", prefix,
                              n->name));
    }
    return HK_OK;
}

hk_status hk_name_map_add_layout(hk_name_map *m, const hk_layout *l, float *x,
                                 void *side) {
    if (m == NULL || l == NULL || (x == NULL && hki_layout_size(l) > 0) ||
        (side == NULL && hki_layout_side_bytes(l) > 0))
        return hki_fail(HK_E_INVALID_ARG,
                        "name map: map, layout or values are missing");
    const hk_entry *e;
    for (size_t i = 0; (e = hk_layout_entry(l, i)) != NULL; i++) {
        void *const data = e->dtype == HK_F32
                               ? (void *)(x + e->offset)
                               : (void *)((unsigned char *)side + e->offset);
        HKI_TRY(hki_names_add(m, e->dtype, e->shape, data, "%s", e->name));
    }
    return HK_OK;
}

size_t hk_name_map_count(const hk_name_map *m) {
    return m == NULL ? 0 : m->count;
}

const hk_named *hk_name_map_item(const hk_name_map *m, size_t i) {
    return m == NULL || i >= m->count ? NULL : &m->items[i];
}

const hk_named *hk_name_map_find(const hk_name_map *m, const char *name) {
    if (m == NULL || name == NULL)
        return NULL;
    const uint32_t i = *cell_of(m->table, m->table_mask, m->items, name);
    return i == 0 ? NULL : &m->items[i - 1];
}
