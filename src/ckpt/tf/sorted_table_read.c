// sorted_table_read.c - reads sorted tables.
//
// Nothing is believed: places lie in the file, checksums hold, keys rise
// strictly over the whole table. Restart points, which serve binary searches,
// are counted and passed over.
#include "ckpt/tf/sorted_table.h"

#define MAGIC UINT64_C(0xdb4775248b80fb57)
#define TRAILER 5 // type and checksum behind a block
// Prefixes that keys share make a small file speak of long keys; these bound
// what a reader has to hold.
#define MAX_KEY ((size_t)64 << 10)
#define MAX_KEYS_GROWTH 64

typedef struct place {
    uint64_t offset, size;
} place;

typedef struct scan {
    const uint8_t *bytes;
    size_t size; // without the footer
    const char *what;
    hki_table_fn fn;
    void *user;
    hki_buf key, before; // of the entry at hand, of the last one
    bool has_before;
    uint64_t key_bytes; // of all keys so far
    uint64_t entries;
} scan;

static hk_status damaged(const scan *s, uint64_t offset, const char *text) {
    return hki_fail(HK_E_DATA, "%s: block at byte %llu: %s", s->what,
                    (unsigned long long)offset, text);
}

static bool get_place(const uint8_t **p, const uint8_t *end, place *out) {
    return hki_varint_get(p, end, &out->offset) &&
           hki_varint_get(p, end, &out->size);
}

// ---- blocks ----------------------------------------------------------------

// The content of a block: in the file, or in *unpacked, which the caller frees.
static hk_status get_block(const scan *s, place at, const uint8_t **block,
                           size_t *block_size, uint8_t **unpacked) {
    *unpacked = NULL;
    if (at.offset > s->size || s->size - at.offset < TRAILER ||
        at.size > s->size - at.offset - TRAILER)
        return damaged(s, at.offset, "it exceeds the file");
    const uint8_t *const p = s->bytes + at.offset;
    const size_t n = (size_t)at.size;
    if (hki_crc32c_mask(hki_crc32c(0, p, n + 1)) != hki_get_u32(p + n + 1))
        return damaged(s, at.offset, "wrong checksum");
    *block = p;
    *block_size = n;
    if (p[n] == 1) {
        HKI_TRY(hki_snappy_unpack(p, n, s->what, unpacked, block_size));
        *block = *unpacked;
    } else if (p[n] != 0) {
        return damaged(s, at.offset, "unknown compression");
    }
    return HK_OK;
}

// Where the entries end and the restart offsets begin.
static bool entries_end(const uint8_t *block, size_t size, size_t *end) {
    if (size < 4)
        return false;
    const uint64_t restarts = hki_get_u32(block + size - 4);
    if (restarts > (size - 4) / 4)
        return false;
    *end = size - 4 - 4 * (size_t)restarts;
    return true;
}

// Reads the entry at *p: the key goes to s->key.
static hk_status get_entry(scan *s, const uint8_t **p, const uint8_t *end,
                           uint64_t offset, const uint8_t **value,
                           size_t *value_size) {
    uint64_t shared, unshared, size;
    if (!hki_varint_get(p, end, &shared) ||
        !hki_varint_get(p, end, &unshared) || !hki_varint_get(p, end, &size) ||
        unshared > (uint64_t)(end - *p) ||
        size > (uint64_t)(end - *p) - unshared)
        return damaged(s, offset, "an entry is truncated");
    if (shared > s->key.size || shared + unshared > MAX_KEY)
        return damaged(s, offset, "an entry's key is malformed");
    s->key.size = (size_t)shared;
    HKI_TRY(hki_buf_add(&s->key, *p, (size_t)unshared));
    *value = *p + unshared;
    *value_size = (size_t)size;
    *p = *value + size;
    return HK_OK;
}

typedef hk_status (*entry_fn)(scan *s, uint64_t offset, const uint8_t *value,
                              size_t value_size);

static hk_status scan_block(scan *s, place at, entry_fn fn) {
    const uint8_t *block = NULL, *value = NULL;
    size_t size = 0, value_size = 0, end = 0;
    HKI_FREED uint8_t *unpacked = NULL;
    HKI_TRY(get_block(s, at, &block, &size, &unpacked));
    if (!entries_end(block, size, &end))
        return damaged(s, at.offset, "the restart offsets do not fit");
    s->key.size = 0;
    for (const uint8_t *p = block; p < block + end;) {
        HKI_TRY(get_entry(s, &p, block + end, at.offset, &value, &value_size));
        HKI_TRY(fn(s, at.offset, value, value_size));
    }
    return HK_OK;
}

// ---- entries ---------------------------------------------------------------

static int compare(const hki_buf *a, const hki_buf *b) {
    const size_t n = HKI_MIN(a->size, b->size);
    const int c = n > 0 ? memcmp(a->data, b->data, n) : 0;
    return c != 0 ? c : (a->size > b->size) - (a->size < b->size);
}

static hk_status data_entry(scan *s, uint64_t offset, const uint8_t *value,
                            size_t value_size) {
    if (s->has_before && compare(&s->before, &s->key) >= 0)
        return damaged(s, offset, "the keys are out of order");
    s->key_bytes += s->key.size;
    if (s->key_bytes / MAX_KEYS_GROWTH > s->size)
        return damaged(s, offset, "a key is longer than the limit");
    s->has_before = true;
    s->entries++;
    s->before.size = 0;
    HKI_TRY(hki_buf_add(&s->before, s->key.data, s->key.size));
    return s->fn(s->user, (const uint8_t *)s->key.data, s->key.size, value,
                 value_size);
}

// An entry of the index block leads to a data block. The data block's keys
// take the place of the index key, which the next entry builds on.
static hk_status index_entry(scan *s, uint64_t offset, const uint8_t *value,
                             size_t value_size) {
    place at;
    const uint8_t *p = value;
    if (!get_place(&p, value + value_size, &at))
        return damaged(s, offset, "an entry of the index is malformed");
    const hki_buf index_key = s->key;
    const uint64_t before = s->entries;
    s->key = (hki_buf){0};
    hk_status status = scan_block(s, at, data_entry);
    // Were empty blocks allowed, an index could name one again and again.
    if (status == HK_OK && s->entries == before)
        status = damaged(s, at.offset, "it has no entries");
    // The separator is at or above every key of its block.
    if (status == HK_OK && s->has_before && compare(&s->before, &index_key) > 0)
        status = damaged(s, offset, "the index does not fit its blocks");
    hki_buf_deinit(&s->key);
    s->key = index_key;
    return status;
}

hk_status hki_table_scan(const uint8_t *bytes, size_t size, const char *what,
                         hki_table_fn fn, void *user) {
    if (size < HKI_TABLE_FOOTER)
        return hki_fail(HK_E_DATA, "%s: %zu bytes are too few for a table",
                        what, size);
    const uint8_t *const end = bytes + size, *p = end - HKI_TABLE_FOOTER;
    if (hki_get_u64(end - 8) != MAGIC)
        return hki_fail(HK_E_DATA,
                        "%s: is not a table of a TensorFlow checkpoint: the "
                        "last bytes are wrong",
                        what);
    place metaindex, index;
    if (!get_place(&p, end - 8, &metaindex) || !get_place(&p, end - 8, &index))
        return hki_fail(HK_E_DATA, "%s: the table's footer is malformed", what);
    scan s = {.bytes = bytes,
              .size = size - HKI_TABLE_FOOTER,
              .what = what,
              .fn = fn,
              .user = user};
    const hk_status status = scan_block(&s, index, index_entry);
    hki_buf_deinit(&s.key);
    hki_buf_deinit(&s.before);
    return status;
}
