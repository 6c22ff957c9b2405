// tags.c - the wanted keys of a map, found by their bytes.
#include "data/core/tags.h"

// Fewer than eight bytes, padded with zeros, by loads that overlap.
static inline uint64_t load_few(const uint8_t *p, size_t n) {
    if (n >= 4)
        return hki_get_u32(p) | (uint64_t)hki_get_u32(p + n - 4)
                                    << (8 * (n - 4));
    if (n == 0)
        return 0;
    return (uint64_t)p[0] | (uint64_t)p[n / 2] << (8 * (n / 2)) |
           (uint64_t)p[n - 1] << (8 * (n - 1));
}

static inline hki_tag make_key(const uint8_t *p, size_t size) {
    hki_tag k = {.bytes = p, .size = (uint32_t)size, .slot = -1};
    k.head = size >= 8 ? hki_get_u64(p) : load_few(p, size);
    k.tail = size >= 8 ? hki_get_u64(p + size - 8) : 0;
    return k;
}

static inline bool same_key(const hki_tag *a, const hki_tag *b) {
    return a->head == b->head && a->tail == b->tail && a->size == b->size &&
           (a->size <= 16 || memcmp(a->bytes, b->bytes, a->size) == 0);
}

static size_t hash_key(const hki_tag *k) {
    uint64_t h = k->head ^ (k->tail << 23 | k->tail >> 41) ^ k->size;
    h *= UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(h >> 32);
}

// The place of the key in the table, or the empty one where it belongs.
static hki_tag *find_key(const hki_tags *keys, const hki_tag *k) {
    size_t i = hash_key(k) & keys->mask;
    while (keys->table[i].slot >= 0 && !same_key(&keys->table[i], k))
        i = (i + 1) & keys->mask;
    return &keys->table[i];
}

hk_status hki_tags_init(hki_tags *k, hki_arena *a, size_t n) {
    size_t size = 4;
    while (size < 2 * n)
        size *= 2;
    HKI_TRY(hki_arena_alloc(a, size, sizeof *k->table, &k->table));
    for (size_t i = 0; i < size; i++)
        k->table[i].slot = -1;
    k->mask = size - 1;
    k->n = 0;
    k->capacity = n;
    return HK_OK;
}

hk_status hki_tags_add(hki_tags *keys, hki_arena *a, const char *key,
                       int32_t *slot) {
    const char *copy;
    if (keys->n == keys->capacity)
        return hki_fail(HK_E_INTERNAL,
                        "parse_example: there are too many keys");
    HKI_TRY(hki_arena_strdup(a, key, &copy));
    const size_t size = strlen(copy);
    hki_tag k = make_key((const uint8_t *)copy, size);
    hki_tag *const place = find_key(keys, &k);
    if (place->slot < 0) {
        k.slot = (int32_t)keys->n++;
        *place = k;
    }
    *slot = place->slot;
    return HK_OK;
}

int32_t hki_tags_find(const hki_tags *tags, const uint8_t *p, size_t n) {
    if (n > UINT32_MAX - 1)
        return -1;
    const hki_tag k = make_key(p, n);
    return find_key(tags, &k)->slot;
}
