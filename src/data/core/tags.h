// data/core/tags.h - a set of wanted names, found by their bytes.
#ifndef HKI_DATA_TAGS_H
#define HKI_DATA_TAGS_H
#include "base/base.h"

// A key, comparable in a few instructions: its first and its last eight bytes
// (tail 0 up to eight bytes, head padded with zeros).
typedef struct hki_tag {
    uint64_t head, tail;
    const uint8_t *bytes;
    uint32_t size;
    int32_t slot; // where its list goes; -1: nowhere
} hki_tag;

// The wanted keys of one map, by open addressing.
typedef struct hki_tags {
    hki_tag *table; // empty: slot -1
    size_t mask;    // table size - 1
    size_t n;       // slots
    size_t capacity;
} hki_tags;

// Keys of at most n features are to come.
hk_status hki_tags_init(hki_tags *k, hki_arena *a, size_t n);
// The slot of a key, given a new one when it is not there yet.
hk_status hki_tags_add(hki_tags *k, hki_arena *a, const char *key,
                       int32_t *slot);

// The slot of a key; -1: it is not wanted.
int32_t hki_tags_find(const hki_tags *k, const uint8_t *p, size_t n);

#endif // HKI_DATA_TAGS_H
