// fuzz_example.c - serialized examples from arbitrary bytes. A parser that has
// learned the forms of other examples gives what a new one gives.
#include "data_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const index_keys[] = {"i"};
static const int64_t seven = 7;

static const hk_example_feature features[] = {
    {.name = "a",
     .kind = HK_FIXED_LEN,
     .dtype = HK_I64,
     .defaults = &seven,
     .n_defaults = 1},
    {.name = "b",
     .kind = HK_FIXED_LEN,
     .dtype = HK_F32,
     .stored = HK_I64,
     .defaults = &(const float){1},
     .n_defaults = 1},
    {.name = "c", .kind = HK_VAR_LEN, .dtype = HK_F32},
    {.name = "d", .kind = HK_RAGGED_LEN, .dtype = HK_STRING},
    {.name = "e",
     .key = "c",
     .kind = HK_SPARSE_LEN,
     .dtype = HK_F32,
     .shape = {.rank = 1, .dim = {9}},
     .index_keys = index_keys,
     .n_index_keys = 1},
    {.name = "f",
     .kind = HK_FIXED_LEN,
     .dtype = HK_STRING,
     .defaults = &(const char *const){"none"},
     .n_defaults = 1},
    {.name = "g",
     .kind = HK_FIXED_LEN_SEQUENCE,
     .dtype = HK_I32,
     .shape = {.rank = 1, .dim = {2}},
     .allow_missing = 1},
    {.name = "h",
     .kind = HK_RAW_LEN,
     .dtype = HK_F32,
     .stored = HK_U8,
     .shape = {.rank = 1, .dim = {3}},
     .defaults = &(const float){2},
     .n_defaults = 1},
};

static const hk_example_feature lists[] = {
    {.name = "l", .kind = HK_VAR_LEN, .dtype = HK_I64},
    {.name = "m", .kind = HK_RAGGED_LEN, .dtype = HK_STRING},
    {.name = "n",
     .kind = HK_FIXED_LEN_SEQUENCE,
     .dtype = HK_F32,
     .allow_missing = 1},
};

static hk_status visit(void *user, const char *key, size_t key_size, int list,
                       hk_dtype stored, int64_t count) {
    uint64_t *const h = user;
    *h = hki_hash(*h, key, key_size) + (uint64_t)list + (uint64_t)stored +
         (uint64_t)count;
    return HK_OK;
}

// Status and values of one example, as a hash.
static uint64_t parse(hk_example_parser *p, const uint8_t *data, size_t size) {
    const hk_element *e;
    const hk_status s = hk_example_parse(p, data, size, &e);
    return s == HK_OK ? hash_element(HKI_HASH_INIT, e) : (uint64_t)s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hk_example_parser *used = NULL, *fresh = NULL, *sequence = NULL;
    uint64_t h = 0;
    const size_t half = size / 2;
    hk_parse_options o;
    hk_parse_options_init(&o, sizeof o);
    o.sequence = 1;
    o.lists = lists;
    o.n_lists = HKI_COUNT(lists);
    if (hk_example_parser_create(features, HKI_COUNT(features), NULL, &used) !=
            HK_OK ||
        hk_example_parser_create(features, HKI_COUNT(features), NULL, &fresh) !=
            HK_OK ||
        hk_example_parser_create(features, HKI_COUNT(features), &o,
                                 &sequence) != HK_OK)
        __builtin_trap();
    // Two examples in the input: nothing of the first one stays.
    (void)parse(used, data, size);
    (void)parse(used, data, half);
    if (parse(used, data + half, size - half) !=
        parse(fresh, data + half, size - half))
        __builtin_trap();
    (void)parse(sequence, data, size);
    hk_example_describe(data, size, 0, visit, &h);
    hk_example_describe(data, size, 1, visit, &h);
    hk_example_parser_destroy(used);
    hk_example_parser_destroy(fresh);
    hk_example_parser_destroy(sequence);
    return 0;
}
