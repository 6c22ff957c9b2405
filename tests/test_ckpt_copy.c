// test_ckpt_copy.c - tensors from one format to another, elements as they are.
#include "ckpt_util.h"
#include "info_util.h"
#include "base/io.h"

// One tensor of each type, whose bytes are 0, 1, 2...: 56 bytes in all.
static const char types_json[] =
    "{\"c64\":{\"dtype\":\"C64\",\"shape\":[2],\"data_offsets\":[0,16]},"
    "\"f16\":{\"dtype\":\"F16\",\"shape\":[2,1],\"data_offsets\":[16,20]},"
    "\"bf16\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[20,24]},"
    "\"u64\":{\"dtype\":\"U64\",\"shape\":[],\"data_offsets\":[24,32]},"
    "\"u32\":{\"dtype\":\"U32\",\"shape\":[1],\"data_offsets\":[32,36]},"
    "\"u16\":{\"dtype\":\"U16\",\"shape\":[2],\"data_offsets\":[36,40]},"
    "\"i16\":{\"dtype\":\"I16\",\"shape\":[2],\"data_offsets\":[40,44]},"
    "\"i8\":{\"dtype\":\"I8\",\"shape\":[3],\"data_offsets\":[44,47]},"
    "\"e4\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[47,51]},"
    "\"e5\":{\"dtype\":\"F8_E5M2\",\"shape\":[4],\"data_offsets\":[51,55]},"
    "\"f4\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[55,56]}}";

static hk_ckpt *opened(const char *path) {
    hk_ckpt *c;
    assert_ok(hk_ckpt_open(path, HK_CKPT_AUTO, &c));
    return c;
}

static hk_copy_options to(const hk_write_options *w) {
    hk_copy_options o;
    hk_copy_options_init(&o, sizeof o);
    o.write = w;
    return o;
}

static hk_write_options as(hk_ckpt_format f) {
    hk_write_options w;
    hk_write_options_init(&w, sizeof w);
    w.format = f;
    return w;
}

static const struct {
    hk_ckpt_format format;
    const char *name;
    size_t taken;
    const char *types; // name:type of each, as inspect would show them
    const char *text;  // of the report
} formats[] = {
    {HK_CKPT_TF, "x", 10,
     "bf16:DT_BFLOAT16 c64:DT_COMPLEX64 e4:DT_FLOAT8_E4M3FN e5:DT_FLOAT8_E5M2 "
     "f16:DT_HALF i16:DT_INT16 i8:DT_INT8 u16:DT_UINT16 u32:DT_UINT32 "
     "u64:DT_UINT64 ",
     "left: f4 F4 [2]\n"},
    {HK_CKPT_NPZ, "x.npz", 8,
     "bf16:<f4 c64:<c8 f16:<f2 i16:<i2 i8:|i1 u16:<u2 u32:<u4 u64:<u8 ",
     "converted: bf16 from BF16 to float32\nleft: e4 F8_E4M3 [4]\n"
     "left: e5 F8_E5M2 [4]\nleft: f4 F4 [2]\n"},
    {HK_CKPT_SAFETENSORS, "x.safetensors", 10,
     "bf16:BF16 c64:C64 e4:F8_E4M3 e5:F8_E5M2 f16:F16 i16:I16 i8:I8 u16:U16 "
     "u32:U32 u64:U64 ",
     "left: f4 F4 [2]\n"},
};

// The bytes of a tensor of a safetensors file with this header.
static void check_bytes(const char *path, const char *name, uint8_t first,
                        size_t n) {
    uint8_t *bytes;
    size_t size;
    char expected[32], key[32];
    assert_ok(hki_file_read_all(path, 1 << 20, &bytes, &size));
    uint64_t head;
    memcpy(&head, bytes, sizeof head);
    snprintf(key, sizeof key, "\"%s\":{", name);
    const char *const at = strstr((char *)bytes + 8, key);
    assert_non_null(at);
    unsigned long long begin = 0;
    assert_int_equal(sscanf(strstr(at, "offsets\":[") + 10, "%llu", &begin), 1);
    for (size_t i = 0; i < n; i++)
        expected[i] = (char)(first + i);
    assert_memory_equal(bytes + 8 + head + begin, expected, n);
    hki_free(bytes);
}

static void test_types(void **state) {
    (void)state;
    folder d;
    char from[512], path[512], back[512];
    folder_make(&d);
    folder_path(&d, "back.safetensors", back);
    write_st(folder_path(&d, "from.safetensors", from), types_json, 56);
    for (size_t i = 0; i < HKI_COUNT(formats); i++) {
        const hk_write_options w = as(formats[i].format);
        hk_copy_options o = to(&w);
        hk_restore_report r;
        char types[512] = "";
        hk_ckpt *c = opened(from);
        folder_path(&d, formats[i].name, path);
        assert_ok(hk_ckpt_copy(c, path, &o, &r));
        assert_int_equal(r.taken, formats[i].taken);
        assert_int_equal(r.taken + r.left, 11);
        assert_string_equal(r.text, formats[i].text);
        hk_restore_report_deinit(&r);
        hk_ckpt_close(c);
        c = opened(path);
        for (size_t k = 0; k < ckpt_info(c).entry_count; k++)
            snprintf(types + strlen(types), sizeof types - strlen(types),
                     "%s:%s ", hk_ckpt_item(c, k)->name,
                     hk_ckpt_item(c, k)->type_name);
        assert_string_equal(types, formats[i].types);
        // And back: the bytes of the beginning.
        assert_ok(hk_ckpt_copy(c, back, NULL, NULL));
        check_bytes(back, "c64", 0, 16);
        check_bytes(back, "f16", 16, 4);
        check_bytes(back, "u64", 24, 8);
        check_bytes(back, "i8", 44, 3);
        hk_ckpt_close(c);
    }
    folder_remove(&d);
}

typedef struct chosen {
    char name[64];
} chosen;

static const char *without_half(void *user, const hk_ckpt_entry *e) {
    chosen *const k = user;
    snprintf(k->name, sizeof k->name, "new/%s", e->name);
    return strcmp(e->name, "half") == 0 ? NULL : k->name;
}

static const char *one_name(void *user, const hk_ckpt_entry *e) {
    (void)e;
    return user;
}

// Chosen names, and a tensor beside them.
static void test_names(void **state) {
    (void)state;
    folder d;
    model m;
    chosen k;
    char from[512], path[512];
    int64_t seven = 7, got = 0;
    folder_make(&d);
    model_init(&m, 3);
    assert_ok(
        hk_ckpt_write(folder_path(&d, "a.safetensors", from), m.map, NULL));
    hk_ckpt *c = opened(from);
    hk_copy_options o = to(NULL);
    hk_restore_report r;
    hk_name_map *more;
    assert_ok(hk_name_map_create(&more));
    assert_ok(hk_name_map_add(
        more, &(hk_named){.name = "seven", .dtype = HK_I64, .data = &seven}));
    o.name = without_half;
    o.user = &k;
    o.more = more;
    assert_ok(hk_ckpt_copy(c, folder_path(&d, "b.npz", path), &o, &r));
    assert_int_equal(r.taken, 8);
    assert_int_equal(r.left, 0);
    assert_string_equal(r.text, "");
    hk_restore_report_deinit(&r);
    hk_ckpt_close(c);
    c = opened(path);
    assert_int_equal(ckpt_info(c).entry_count, 9);
    assert_ok(hk_ckpt_read(c, "seven", HK_I64, NULL, &got));
    assert_int_equal(got, 7);
    assert_null(hk_ckpt_find(c, "new/half"));
    float w[6];
    assert_ok(hk_ckpt_read(c, "new/dense/kernel", HK_F32, NULL, w));
    assert_memory_equal(w, m.w, sizeof w);
    hk_ckpt_close(c);
    hk_name_map_destroy(more);
    model_deinit(&m);
    folder_remove(&d);
}

static void test_errors(void **state) {
    (void)state;
    folder d;
    model m;
    char from[512], path[512];
    folder_make(&d);
    model_init(&m, 3);
    assert_ok(
        hk_ckpt_write(folder_path(&d, "a.safetensors", from), m.map, NULL));
    hk_ckpt *const c = opened(from);
    folder_path(&d, "b.safetensors", path);
    assert_status(hk_ckpt_copy(NULL, path, NULL, NULL), HK_E_INVALID_ARG);
    assert_status(hk_ckpt_copy(c, "", NULL, NULL), HK_E_INVALID_ARG);
    hk_copy_options o = to(NULL);
    o.name = one_name;
    assert_status(hk_ckpt_copy(c, path, &o, NULL), HK_E_NOT_FOUND);
    assert_message("nothing to copy");
    o.user = (void *)(uintptr_t) "same";
    assert_status(hk_ckpt_copy(c, path, &o, NULL), HK_E_EXISTS);
    assert_message("two tensors would be called same");
    o.user = (void *)(uintptr_t) "\xff";
    assert_status(hk_ckpt_copy(c, path, &o, NULL), HK_E_INVALID_ARG);
    const hk_write_options w = as((hk_ckpt_format)9);
    o = to(&w);
    assert_status(hk_ckpt_copy(c, path, &o, NULL), HK_E_INVALID_ARG);
    assert_false(file_there(&d, "b.safetensors"));
    // A byte that changed on the disk does not get into the copy.
    uint8_t *bytes;
    size_t size;
    assert_ok(hki_file_read_all(from, 1 << 20, &bytes, &size));
    bytes[size - 1] ^= 1;
    write_file(from, bytes, size);
    hki_free(bytes);
    assert_status(hk_ckpt_copy(c, path, NULL, NULL), HK_E_DATA);
    assert_false(file_there(&d, "b.safetensors"));
    hk_ckpt_close(c);
    model_deinit(&m);
    folder_remove(&d);
}

typedef struct body {
    hk_ckpt *c;
    const char *path;
} body;

static hk_status copy_body(void *user) {
    const body *const x = user;
    hk_restore_report r;
    const hk_status s = hk_ckpt_copy(x->c, x->path, NULL, &r);
    hk_restore_report_deinit(&r);
    return s;
}

static void test_alloc_failures(void **state) {
    (void)state;
    folder d;
    char from[512], path[512];
    folder_make(&d);
    write_st(folder_path(&d, "from.safetensors", from), types_json, 56);
    body x = {opened(from), folder_path(&d, "x.npz", path)};
    hk_test_alloc_failures("copy", copy_body, &x);
    hk_ckpt_close(x.c);
    folder_remove(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_alloc_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
