// sorted_table_write.c - writes sorted tables, with TensorFlow's block sizes,
// so that equal content gives equal bytes.
#include "ckpt/tf/sorted_table.h"

#define MAGIC UINT64_C(0xdb4775248b80fb57)
#define BLOCK_BYTES ((size_t)256 << 10) // flushed once it is this large
#define RESTART_INTERVAL 16

// ---- blocks ----------------------------------------------------------------

static hk_status add_u32(hki_buf *b, size_t v) {
    uint8_t bytes[4];
    hki_put_u32(bytes, (uint32_t)v);
    return hki_buf_add(b, bytes, sizeof bytes);
}

static hk_status add_varint(hki_buf *b, uint64_t v) {
    uint8_t bytes[10];
    return hki_buf_add(b, bytes, hki_varint_put(bytes, v));
}

static size_t shared_prefix(const hki_buf *last, const uint8_t *key, size_t n) {
    size_t i = 0;
    while (i < n && i < last->size && (uint8_t)last->data[i] == key[i])
        i++;
    return i;
}

// At a restart the whole key is written, and its place noted.
static hk_status block_add(hki_block_writer *b, const uint8_t *key,
                           size_t key_size, const void *value,
                           size_t value_size) {
    const bool restart = b->restarts.size == 0 || b->count == b->interval;
    size_t shared = 0;
    if (restart) {
        HKI_TRY(add_u32(&b->restarts, b->bytes.size));
        b->count = 0;
    } else {
        shared = shared_prefix(&b->last_key, key, key_size);
    }
    HKI_TRY(add_varint(&b->bytes, shared));
    HKI_TRY(add_varint(&b->bytes, key_size - shared));
    HKI_TRY(add_varint(&b->bytes, value_size));
    HKI_TRY(hki_buf_add(&b->bytes, key + shared, key_size - shared));
    HKI_TRY(hki_buf_add(&b->bytes, value, value_size));
    b->last_key.size = 0;
    HKI_TRY(hki_buf_add(&b->last_key, key, key_size));
    b->count++;
    return HK_OK;
}

static size_t block_size(const hki_block_writer *b) {
    return b->bytes.size + b->restarts.size + 4;
}

// Appends the block with its trailer to the file and empties it.
static hk_status block_flush(hki_table_writer *w, hki_block_writer *b,
                             uint64_t *offset, uint64_t *size) {
    if (b->restarts.size == 0)
        HKI_TRY(add_u32(&b->restarts, 0));
    const size_t n = b->restarts.size / 4;
    HKI_TRY(hki_buf_add(&b->bytes, b->restarts.data, b->restarts.size));
    HKI_TRY(add_u32(&b->bytes, n));
    *offset = w->file.size;
    *size = b->bytes.size;
    HKI_TRY(hki_buf_add(&b->bytes, "", 1)); // type: raw
    const uint32_t crc = hki_crc32c(0, b->bytes.data, b->bytes.size);
    HKI_TRY(add_u32(&b->bytes, hki_crc32c_mask(crc)));
    HKI_TRY(hki_buf_add(&w->file, b->bytes.data, b->bytes.size));
    b->bytes.size = b->restarts.size = b->last_key.size = b->count = 0;
    return HK_OK;
}

// ---- the index -------------------------------------------------------------

// Shortens key to the shortest string at or above it and, unless next is
// NULL, below next.
static void shorten(hki_buf *key, const uint8_t *next, size_t next_size) {
    uint8_t *const k = (uint8_t *)key->data;
    if (next == NULL) {
        for (size_t i = 0; i < key->size; i++)
            if (k[i] != 0xff) {
                k[i]++;
                key->size = i + 1;
                return;
            }
        return;
    }
    const size_t i = shared_prefix(key, next, next_size);
    if (i < key->size && i < next_size && k[i] < 0xff && k[i] + 1 < next[i]) {
        k[i]++;
        key->size = i + 1;
    }
}

// The index entry of the last block, now that the key after it is known.
static hk_status flush_pending(hki_table_writer *w, const uint8_t *next,
                               size_t next_size) {
    if (!w->pending)
        return HK_OK;
    shorten(&w->separator, next, next_size);
    uint8_t place[20];
    size_t n = hki_varint_put(place, w->pending_offset);
    n += hki_varint_put(place + n, w->pending_size);
    w->index.interval = 1;
    HKI_TRY(block_add(&w->index, (const uint8_t *)w->separator.data,
                      w->separator.size, place, n));
    w->pending = false;
    return HK_OK;
}

static hk_status flush_data(hki_table_writer *w) {
    if (w->data.bytes.size == 0)
        return HK_OK;
    w->separator.size = 0;
    HKI_TRY(hki_buf_add(&w->separator, w->data.last_key.data,
                        w->data.last_key.size));
    HKI_TRY(block_flush(w, &w->data, &w->pending_offset, &w->pending_size));
    w->pending = true;
    return HK_OK;
}

hk_status hki_table_add(hki_table_writer *w, const void *key, size_t key_size,
                        const void *value, size_t value_size) {
    w->data.interval = RESTART_INTERVAL;
    // A large entry has a block to itself.
    if (key_size + value_size >= 2 * BLOCK_BYTES)
        HKI_TRY(flush_data(w));
    HKI_TRY(flush_pending(w, key, key_size));
    HKI_TRY(block_add(&w->data, key, key_size, value, value_size));
    return block_size(&w->data) >= BLOCK_BYTES ? flush_data(w) : HK_OK;
}

hk_status hki_table_finish(hki_table_writer *w) {
    uint64_t place[4]; // offset and size of metaindex, of index
    hki_block_writer empty = {0};
    HKI_TRY(flush_data(w));
    hk_status s = block_flush(w, &empty, &place[0], &place[1]);
    hki_buf_deinit(&empty.bytes);
    hki_buf_deinit(&empty.restarts);
    HKI_TRY(s);
    HKI_TRY(flush_pending(w, NULL, 0));
    HKI_TRY(block_flush(w, &w->index, &place[2], &place[3]));
    uint8_t footer[HKI_TABLE_FOOTER] = {0};
    size_t n = 0;
    for (size_t i = 0; i < HKI_COUNT(place); i++)
        n += hki_varint_put(footer + n, place[i]);
    hki_put_u64(footer + HKI_TABLE_FOOTER - 8, MAGIC);
    return hki_buf_add(&w->file, footer, sizeof footer);
}

static void block_deinit(hki_block_writer *b) {
    hki_buf_deinit(&b->bytes);
    hki_buf_deinit(&b->restarts);
    hki_buf_deinit(&b->last_key);
}

void hki_table_writer_deinit(hki_table_writer *w) {
    hki_buf_deinit(&w->file);
    block_deinit(&w->data);
    block_deinit(&w->index);
    hki_buf_deinit(&w->separator);
}
