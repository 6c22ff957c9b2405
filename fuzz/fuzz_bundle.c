// fuzz_bundle.c - a bundle's index from arbitrary bytes: as a table, as the
// entries of a table that is right (pairs of key and value, each behind a
// length byte), and as a Snappy block.
#include "ckpt/tf/bundle.h"
#include "ckpt/tf/sorted_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t touched; // keeps the reading of every part

static void parse(const uint8_t *bytes, size_t size) {
    hk_ckpt c = {.ops = NULL};
    uint32_t n_shards = 0;
    if (hki_bundle_parse_index(&c, bytes, size, "fuzz", &n_shards) == HK_OK) {
        uint64_t sum = n_shards;
        for (size_t i = 0; i < c.count; i++) {
            const hki_bundle_parts *const p = c.tensors[i].extra;
            sum += strlen(c.tensors[i].entry.name);
            sum += strlen(c.tensors[i].entry.type_name);
            sum += p != NULL ? p->count : 0;
        }
        touched = sum;
    }
    hki_arena_deinit(&c.arena);
    hki_free(c.tensors);
}

// Keys that do not rise are given to the table as they are: the reader has to
// notice.
static void parse_entries(const uint8_t *p, size_t left) {
    hki_table_writer w = {0};
    hk_status s = HK_OK;
    while (left >= 2 && s == HK_OK) {
        const size_t key = HKI_MIN((size_t)p[0], left - 2);
        const size_t value = HKI_MIN((size_t)p[1], left - 2 - key);
        s = hki_table_add(&w, p + 2, key, p + 2 + key, value);
        p += 2 + key + value;
        left -= 2 + key + value;
    }
    if (s == HK_OK && hki_table_finish(&w) == HK_OK)
        parse((const uint8_t *)w.file.data, w.file.size);
    hki_table_writer_deinit(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *out;
    size_t out_size;
    parse(data, size);
    parse_entries(data, size);
    if (hki_snappy_unpack(data, size, "fuzz", &out, &out_size) == HK_OK) {
        touched = out_size > 0 ? out[out_size - 1] : 0;
        hki_free(out);
    }
    return 0;
}
