// test_bundle.c - TensorFlow checkpoints: those of TensorFlow in
// tests/data/ckpt (made by tools/make_golden_files.py), known bytes, round
// trips, indexes that lie, faults of the disk.
#include "file_util.h"
#include "info_util.h"
#include <errno.h>
#include "base/io.h"
#include "ckpt/tf/bundle.h"
#include "ckpt/tf/sorted_table.h"
#include "hooke/ckpt.h"

#define GOLDEN HK_TEST_DATA "/ckpt/"

// Of global_step = int64 2, v0 = 2.0f, v1 = 3.0f.
#define KNOWN_INDEX                                                            \
    "00000608011a020801000b0b676c6f62616c5f73746570080912002808357827"         \
    "0b3400020d763008011200200828043510fd784f01010d3108011200200c2804"         \
    "35efd682c300000000010000000085592dde000000000100000000c0f2a1b000"         \
    "010277004d0000000001000000008d14517752085f0e00000000000000000000"         \
    "000000000000000000000000000000000000000000000000000057fb808b2475"         \
    "47db"

// ---- helpers ---------------------------------------------------------------

static hk_ckpt *open_golden(const char *name) {
    hk_ckpt *c;
    char path[512];
    snprintf(path, sizeof path, GOLDEN "%s", name);
    assert_ok(hk_ckpt_open(path, HK_CKPT_AUTO, &c));
    assert_int_equal(ckpt_info(c).format, HK_CKPT_TF);
    return c;
}

static void check_floats(hk_ckpt *c, const char *name, int rank,
                         const int64_t *dims, const float *expected) {
    float got[64];
    int64_t count;
    const hk_shape shape = hk_shape_make(rank, dims);
    assert_ok(hk_shape_count(shape, &count));
    assert_true(count <= 64);
    assert_ok(hk_ckpt_read(c, name, HK_F32, &shape, got));
    hk_test_floats(name, got, expected, (size_t)count, 0, 0);
}

static void check_ints(hk_ckpt *c, const char *name, int64_t n,
                       const int64_t *expected) {
    int64_t got[8];
    const hk_shape shape = hk_shape_make(1, &n);
    assert_ok(hk_ckpt_read(c, name, HK_I64, &shape, got));
    for (int64_t i = 0; i < n; i++)
        assert_true(got[i] == expected[i]);
}

// ---- what TensorFlow wrote -------------------------------------------------

static void test_v1(void **state) {
    (void)state;
    static const float counting[14] = {0, 1, 2, 3,  4,  5,  6,
                                       7, 8, 9, 10, 11, 12, 13};
    hk_ckpt *const c = open_golden("v1");
    assert_int_equal(ckpt_info(c).entry_count, 17);
    check_floats(c, "w", 2, (int64_t[]){3, 4}, counting);
    check_floats(c, "rows", 2, (int64_t[]){7, 2}, counting);
    check_floats(c, "columns", 2, (int64_t[]){2, 5}, counting);
    check_floats(c, "bf16", 1, (int64_t[]){2}, (float[]){1.5f, -2});
    check_floats(c, "half", 1, (int64_t[]){2}, (float[]){.5f, -1});
    check_ints(c, "i8", 2, (int64_t[]){-128, 127});
    check_ints(c, "i16", 1, (int64_t[]){-300});
    check_ints(c, "i32", 2, (int64_t[]){-70000, 70000});
    check_ints(c, "u8", 3, (int64_t[]){255, 0, 1});
    check_ints(c, "u16", 1, (int64_t[]){65535});
    int64_t step;
    const hk_shape scalar = hk_shape_make(0, NULL);
    assert_ok(hk_ckpt_read(c, "global_step", HK_I64, &scalar, &step));
    assert_true(step == 7);
    double d;
    const hk_shape one = hk_shape_make(2, (int64_t[]){1, 1});
    assert_ok(hk_ckpt_read(c, "double", HK_F64, &one, &d));
    assert_true(d == 1e300);
    const hk_ckpt_entry *const empty = hk_ckpt_find(c, "empty");
    assert_true(empty != NULL && empty->bytes == 0 && empty->shape.dim[1] == 3);
    const hk_ckpt_entry *const complex = hk_ckpt_find(c, "complex");
    assert_true(complex != NULL && complex->dtype == 0);
    assert_string_equal(complex->type_name, "DT_COMPLEX64");
    assert_string_equal(hk_ckpt_find(c, "bf16")->type_name, "DT_BFLOAT16");
    assert_int_equal(hk_ckpt_find(c, "bf16")->dtype, HK_BF16);
    uint8_t flag[2];
    const hk_shape two = hk_shape_make(1, (int64_t[]){2});
    assert_ok(hk_ckpt_read(c, "flag", HK_BOOL, &two, flag));
    assert_true(flag[0] == 1 && flag[1] == 0);
    hk_ckpt_close(c);
}

static void test_strings(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
    } expected[] = {{"", 0}, {"hooke", 5}, {"a\0b", 3}, {"x", 1}};
    hk_ckpt *const c = open_golden("v1.index"); // by its index, too
    hk_tensor *t;
    assert_ok(hk_ckpt_read_tensor(c, "words", &t));
    assert_int_equal(hk_tensor_dtype(t), HK_STRING);
    for (int64_t i = 0; i < 4; i++) {
        const void *bytes;
        size_t size;
        assert_ok(hk_tensor_get_string(t, i, &bytes, &size));
        assert_int_equal(size, expected[i].size);
        assert_memory_equal(bytes, expected[i].bytes, size);
    }
    hk_tensor_release(t);
    hk_ckpt_close(c);
}

static void test_other_goldens(void **state) {
    (void)state;
    hk_ckpt *c = open_golden("sharded");
    check_floats(c, "part0", 2, (int64_t[]){2, 2}, (float[]){1, 1, 1, 1});
    check_floats(c, "part1", 2, (int64_t[]){2, 2}, (float[]){2, 2, 2, 2});
    hk_ckpt_close(c);
    c = open_golden("v2");
    check_floats(c, "w/.ATTRIBUTES/VARIABLE_VALUE", 2, (int64_t[]){1, 2},
                 (float[]){1, 2});
    hk_tensor *graph;
    assert_ok(hk_ckpt_read_tensor(c, "_CHECKPOINTABLE_OBJECT_GRAPH", &graph));
    hk_tensor_release(graph);
    hk_ckpt_close(c);
    // The second has the same content behind Snappy.
    static const char *const many[] = {"many", "snappy"};
    for (size_t k = 0; k < HKI_COUNT(many); k++) {
        c = open_golden(many[k]);
        assert_int_equal(ckpt_info(c).entry_count, 40);
        for (int i = 0; i < 40; i++) {
            char name[32];
            const float value = (float)i;
            snprintf(name, sizeof name, "layer_%03d/kernel", i);
            assert_string_equal(hk_ckpt_item(c, (size_t)i)->name, name);
            check_floats(c, name, 0, NULL, &value);
        }
        hk_ckpt_close(c);
    }
}

// ---- what we write ---------------------------------------------------------

typedef struct values {
    float w[35], b[3], scalar;
    double d[2];
    uint16_t half[6];
    int32_t i32[4];
    int64_t step;
    uint8_t u8[5], flag[2];
} values;

static void values_fill(values *v, float seed) {
    memset(v, 0, sizeof *v);
    for (int i = 0; i < 35; i++)
        v->w[i] = seed + (float)i;
    for (int i = 0; i < 3; i++)
        v->b[i] = -seed - (float)i;
    v->scalar = seed * 3;
    v->d[0] = 1e-300, v->d[1] = (double)seed;
    for (int i = 0; i < 6; i++)
        v->half[i] = hki_f32_to_bf16(seed * (float)i);
    for (int i = 0; i < 4; i++)
        v->i32[i] = -70000 * i;
    v->step = INT64_C(1) << 40;
    for (int i = 0; i < 5; i++)
        v->u8[i] = (uint8_t)(250 + i);
    v->flag[1] = 1;
}

static hk_name_map *values_map(values *v) {
    const struct {
        const char *name;
        hk_dtype dtype;
        int rank;
        int64_t dim[3];
        void *data;
    } places[] = {{"model/w", HK_F32, 2, {7, 5}, v->w},
                  {"model/b", HK_F32, 1, {3}, v->b},
                  {"scalar", HK_F32, 0, {0}, &v->scalar},
                  {"d", HK_F64, 2, {2, 1}, v->d},
                  {"half", HK_BF16, 3, {1, 2, 3}, v->half},
                  {"i32", HK_I32, 1, {4}, v->i32},
                  {"global_step", HK_I64, 0, {0}, &v->step},
                  {"u8", HK_U8, 1, {5}, v->u8},
                  {"flag", HK_BOOL, 1, {2}, v->flag},
                  {"none", HK_F32, 2, {0, 4}, v->w}};
    hk_name_map *map;
    assert_ok(hk_name_map_create(&map));
    for (size_t i = 0; i < HKI_COUNT(places); i++) {
        const hk_named n = {.name = places[i].name,
                            .dtype = places[i].dtype,
                            .shape =
                                hk_shape_make(places[i].rank, places[i].dim),
                            .data = places[i].data};
        assert_ok(hk_name_map_add(map, &n));
    }
    return map;
}

static hk_status save(const char *path, values *v, uint32_t shards,
                      uint32_t partitions) {
    hk_write_options o;
    hk_write_options_init(&o, sizeof o);
    o.format = HK_CKPT_TF;
    o.tf_shards = shards;
    o.tf_partitions = partitions;
    hk_name_map *const map = values_map(v);
    const hk_status s = hk_ckpt_write(path, map, &o);
    hk_name_map_destroy(map);
    return s;
}

// Into cleared values.
static hk_status load(const char *path, values *v) {
    hk_ckpt *c;
    HKI_TRY(hk_ckpt_open(path, HK_CKPT_AUTO, &c));
    memset(v, 0, sizeof *v);
    hk_name_map *const map = values_map(v);
    const hk_status s = hk_ckpt_restore(c, map, NULL, NULL);
    hk_name_map_destroy(map);
    hk_ckpt_close(c);
    return s;
}

static void test_known_bytes(void **state) {
    (void)state;
    folder d;
    folder_make(&d);
    int64_t step = 2;
    float v0 = 2, v1 = 3;
    const hk_shape scalar = hk_shape_make(0, NULL);
    const hk_named named[] = {
        {.name = "v1", .dtype = HK_F32, .shape = scalar, .data = &v1},
        {.name = "global_step",
         .dtype = HK_I64,
         .shape = scalar,
         .data = &step},
        {.name = "v0", .dtype = HK_F32, .shape = scalar, .data = &v0}};
    hk_name_map *map;
    assert_ok(hk_name_map_create(&map));
    for (size_t i = 0; i < HKI_COUNT(named); i++)
        assert_ok(hk_name_map_add(map, &named[i]));
    hk_write_options o;
    hk_write_options_init(&o, sizeof o);
    o.format = HK_CKPT_TF;
    char path[512];
    assert_ok(hk_ckpt_write(folder_path(&d, "model.ckpt-2", path), map, &o));
    size_t size;
    uint8_t *bytes = read_file(
        folder_path(&d, "model.ckpt-2.data-00000-of-00001", path), &size);
    assert_bytes("data", bytes, size, "02000000000000000000004000004040");
    free(bytes);
    bytes = read_file(folder_path(&d, "model.ckpt-2.index", path), &size);
    assert_bytes("index", bytes, size, KNOWN_INDEX);
    free(bytes);
    hk_name_map_destroy(map);
    folder_remove(&d);
}

// The same tensors give TensorFlow's bytes, blocks and restarts included.
static void test_same_bytes(void **state) {
    (void)state;
    folder d;
    folder_make(&d);
    float value[40];
    hk_name_map *map;
    assert_ok(hk_name_map_create(&map));
    for (int i = 39; i >= 0; i--) {
        char name[32];
        value[i] = (float)i;
        snprintf(name, sizeof name, "layer_%03d/kernel", i);
        const hk_named n = {.name = name,
                            .dtype = HK_F32,
                            .shape = hk_shape_make(0, NULL),
                            .data = &value[i]};
        assert_ok(hk_name_map_add(map, &n));
    }
    hk_write_options o;
    hk_write_options_init(&o, sizeof o);
    o.format = HK_CKPT_TF;
    char path[512], golden[512];
    assert_ok(hk_ckpt_write(folder_path(&d, "many", path), map, &o));
    static const char *const ends[] = {".index", ".data-00000-of-00001"};
    for (size_t i = 0; i < HKI_COUNT(ends); i++) {
        snprintf(path, sizeof path, "%s/many%s", d.path, ends[i]);
        snprintf(golden, sizeof golden, GOLDEN "many%s", ends[i]);
        size_t got_size, expected_size;
        uint8_t *const got = read_file(path, &got_size);
        uint8_t *const expected = read_file(golden, &expected_size);
        assert_int_equal(got_size, expected_size);
        assert_memory_equal(got, expected, got_size);
        free(got);
        free(expected);
    }
    hk_name_map_destroy(map);
    folder_remove(&d);
}

static size_t files_in(const char *dir) {
    DIR *const list = opendir(dir);
    assert_non_null(list);
    size_t n = 0;
    for (struct dirent *e; (e = readdir(list)) != NULL;)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(list);
    return n;
}

// Each over the one before: data files of other counts go.
static void test_round_trips(void **state) {
    (void)state;
    static const uint32_t shards[] = {1, 2, 3, 20, 1};
    static const uint32_t partitions[] = {1, 2, 3, 5, 100};
    folder d;
    folder_make(&d);
    char path[512];
    folder_path(&d, "m.ckpt-1", path);
    for (size_t i = 0; i < HKI_COUNT(shards); i++)
        for (size_t k = 0; k < HKI_COUNT(partitions); k++) {
            values v, got;
            values_fill(&v, (float)(10 * i + k + 1));
            assert_ok(save(path, &v, shards[i], partitions[k]));
            assert_ok(load(path, &got));
            assert_memory_equal(&v, &got, sizeof v);
            assert_int_equal(files_in(d.path), shards[i] + 1);
        }
    // What a crash may have left beside it goes, what is not its own stays.
    const hki_ckpt_ops *const ops = hki_ckpt_format_ops(HK_CKPT_TF);
    static const char *const strays[] = {
        "m.ckpt-1.data-00003-of-00007", ".m.ckpt-1.index" HKI_TEMP_SUFFIX,
        ".m.ckpt-1.data-00000-of-00001" HKI_TEMP_SUFFIX,
        "m.ckpt-1.data-00003-of-00007x", "m.ckpt-10.data-00000-of-00001"};
    for (size_t i = 0; i < HKI_COUNT(strays); i++) {
        char stray[512];
        write_file(folder_path(&d, strays[i], stray), "x", 1);
    }
    assert_ok(ops->tidy(path));
    assert_int_equal(files_in(d.path), 2 + 2);
    values last;
    assert_ok(load(path, &last));
    for (size_t i = 3; i < HKI_COUNT(strays); i++) {
        char stray[512];
        unlink(folder_path(&d, strays[i], stray));
    }
    assert_ok(ops->remove(path));
    assert_int_equal(files_in(d.path), 0);
    assert_ok(ops->remove(path)); // nothing there is fine
    folder_remove(&d);
}

// Averages and the center under the names that TensorFlow's own had.
static void test_renaming(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *name;
    } cases[] = {{"*/ExponentialMovingAverage", "x/ExponentialMovingAverage"},
                 {"global_center_variable/*", "global_center_variable/x"}};
    folder d;
    folder_make(&d);
    char path[512];
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        float x[2] = {1.5f, -2};
        const hk_named n = {.name = "x",
                            .dtype = HK_F32,
                            .shape = hk_shape_make(1, (int64_t[]){2}),
                            .data = x};
        const hk_rename rename = {.to = "*", .from = cases[i].pattern};
        hk_name_map *map;
        hk_ckpt *c;
        assert_ok(hk_name_map_create(&map));
        assert_ok(hk_name_map_add(map, &n));
        hk_write_options o;
        hk_write_options_init(&o, sizeof o);
        o.format = HK_CKPT_TF;
        o.rename = &rename;
        o.n_rename = 1;
        assert_ok(hk_ckpt_write(folder_path(&d, "x", path), map, &o));
        assert_ok(hk_ckpt_open(path, HK_CKPT_AUTO, &c));
        assert_int_equal(ckpt_info(c).entry_count, 1);
        assert_string_equal(hk_ckpt_item(c, 0)->name, cases[i].name);
        x[0] = x[1] = 0;
        hk_restore_options r;
        hk_restore_options_init(&r, sizeof r);
        r.rename = &rename;
        r.n_rename = 1;
        assert_ok(hk_ckpt_restore(c, map, &r, NULL));
        assert_true(x[0] == 1.5f && x[1] == -2);
        hk_ckpt_close(c);
        hk_name_map_destroy(map);
    }
    // TensorFlow's own average of w in the golden file.
    hk_ckpt *const c = open_golden("v1");
    float w[12] = {0};
    const hk_named n = {.name = "w",
                        .dtype = HK_F32,
                        .shape = hk_shape_make(2, (int64_t[]){3, 4}),
                        .data = w};
    const hk_rename rename = {.to = "*", .from = "*/ExponentialMovingAverage"};
    hk_name_map *map;
    assert_ok(hk_name_map_create(&map));
    assert_ok(hk_name_map_add(map, &n));
    hk_restore_options r;
    hk_restore_options_init(&r, sizeof r);
    r.rename = &rename;
    r.n_rename = 1;
    assert_ok(hk_ckpt_restore(c, map, &r, NULL));
    for (int i = 0; i < 12; i++)
        assert_true(w[i] == (float)i);
    hk_name_map_destroy(map);
    hk_ckpt_close(c);
    folder_remove(&d);
}

// ---- damage ----------------------------------------------------------------

// A copy of a golden bundle, with one file changed.
static void copy_golden(const folder *d, const char *name) {
    static const char *const ends[] = {".index", ".data-00000-of-00001",
                                       ".data-00000-of-00002",
                                       ".data-00001-of-00002"};
    for (size_t i = 0; i < HKI_COUNT(ends); i++) {
        char from[512], to[512];
        size_t size;
        snprintf(from, sizeof from, GOLDEN "%s%s", name, ends[i]);
        if (!hki_path_exists(from))
            continue;
        uint8_t *const bytes = read_file(from, &size);
        snprintf(to, sizeof to, "%s/%s%s", d->path, name, ends[i]);
        write_file(to, bytes, size);
        free(bytes);
    }
}

// Reads every tensor that can be read; the first failure.
static hk_status read_all(const char *path) {
    hk_ckpt *c;
    HKI_TRY(hk_ckpt_open(path, HK_CKPT_AUTO, &c));
    hk_status s = HK_OK;
    for (size_t i = 0; i < ckpt_info(c).entry_count && s == HK_OK; i++) {
        const hk_ckpt_entry *const e = hk_ckpt_item(c, i);
        if (strncmp(e->type_name, "DT_COMPLEX", 10) == 0)
            continue;
        hk_tensor *t = NULL;
        s = hk_ckpt_read_tensor(c, e->name, &t);
        hk_tensor_release(t);
    }
    hk_ckpt_close(c);
    return s;
}

static void test_damaged_data(void **state) {
    (void)state;
    folder d;
    folder_make(&d);
    copy_golden(&d, "v1");
    char prefix[512], data[512];
    folder_path(&d, "v1", prefix);
    folder_path(&d, "v1.data-00000-of-00001", data);
    assert_ok(read_all(prefix));
    size_t size, complex_bytes = 0;
    uint8_t *const bytes = read_file(data, &size);
    for (size_t i = 0; i < size; i++) {
        bytes[i] ^= 4;
        write_file(data, bytes, size);
        const hk_status s = read_all(prefix);
        if (s == HK_OK) // the tensor of complex numbers is not read
            complex_bytes++;
        else {
            assert_status(s, HK_E_DATA);
            assert_non_null(strstr(hk_last_error(), "checksum"));
        }
        bytes[i] ^= 4;
    }
    assert_int_equal(complex_bytes, 8);
    // Cut: noticed when it is opened.
    for (size_t cut = 0; cut < size; cut++) {
        hk_ckpt *c;
        write_file(data, bytes, cut);
        assert_status(hk_ckpt_open(prefix, HK_CKPT_AUTO, &c), HK_E_DATA);
        assert_non_null(strstr(hk_last_error(), "truncated"));
    }
    unlink(data);
    assert_status(read_all(prefix), HK_E_DATA);
    assert_non_null(strstr(hk_last_error(), "missing"));
    // Cut while it is open.
    write_file(data, bytes, size);
    hk_ckpt *c;
    hk_tensor *t;
    assert_ok(hk_ckpt_open(prefix, HK_CKPT_AUTO, &c));
    assert_int_equal(truncate(data, 10), 0);
    assert_status(hk_ckpt_read_tensor(c, "w", &t), HK_E_DATA);
    hk_ckpt_close(c);
    free(bytes);
    folder_remove(&d);
}

static void test_damaged_index(void **state) {
    (void)state;
    folder d;
    folder_make(&d);
    copy_golden(&d, "sharded");
    char prefix[512], index[512];
    folder_path(&d, "sharded", prefix);
    folder_path(&d, "sharded.index", index);
    size_t size, unnoticed = 0;
    uint8_t *const bytes = read_file(index, &size);
    for (size_t i = 0; i < size; i++) {
        bytes[i] ^= 1;
        write_file(index, bytes, size);
        const hk_status s = read_all(prefix);
        unnoticed += s == HK_OK;
        if (s != HK_OK)
            assert_status(s, HK_E_DATA);
        bytes[i] ^= 1;
    }
    // The metaindex block (13 bytes), its handle, and the footer's padding.
    assert_true(unnoticed <= 13 + 40);
    for (size_t cut = 0; cut < size; cut++) {
        write_file(index, bytes, cut);
        assert_status(read_all(prefix), HK_E_DATA);
    }
    write_file(index, bytes, size);
    folder_path(&d, "sharded.data-00001-of-00002", index);
    unlink(index);
    assert_status(read_all(prefix), HK_E_DATA);
    folder_path(&d, "absent", prefix);
    assert_status(read_all(prefix), HK_E_NOT_FOUND);
    free(bytes);
    folder_remove(&d);
}

// ---- indexes that lie ------------------------------------------------------

// A bundle of given entries; values as hex, keys "slice:<name>:<start>,
// <length>" stand for slice keys of rank 1.
typedef struct lie {
    const char *name;
    const char *keys[5], *values[5];
    hk_status status;
    const char *message;
} lie;

static void make_lie(const lie *l, hki_buf *out) {
    hki_table_writer w = {0};
    hki_buf key = {0};
    for (size_t i = 0; i < 5 && l->keys[i] != NULL; i++) {
        uint8_t value[128];
        const size_t n = from_hex(l->values[i], value, sizeof value);
        char name[16];
        int start, length;
        key.size = 0;
        if (sscanf(l->keys[i], "slice:%15[^:]:%d,%d", name, &start, &length) ==
            3) {
            const hki_slice s = {1, {{start, length}}};
            assert_ok(hki_slice_key(name, &s, &key));
        } else {
            assert_ok(hki_buf_add(&key, l->keys[i], strlen(l->keys[i])));
        }
        assert_ok(hki_table_add(&w, key.data, key.size, value, n));
    }
    assert_ok(hki_table_finish(&w));
    assert_ok(hki_buf_add(out, w.file.data, w.file.size));
    hki_buf_deinit(&key);
    hki_table_writer_deinit(&w);
}

#define HEADER "08011a020801"
// Four floats; rows [0, 2) and [2, 4).
#define WHOLE "0801 1204 12020804 3a06 0a04 0800 1002 3a06 0a04 0802 1002"
#define FIRST "0801 1204 12020802 2808"
#define SECOND "0801 1204 12020802 2008 2808"

static void test_lies(void **state) {
    (void)state;
    static const lie cases[] = {
        {"empty", {NULL}, {NULL}, HK_E_DATA, "no header of a bundle"},
        {"no header", {"x"}, {"0801 1200 2804"}, HK_E_DATA, "header"},
        {"no tensors", {""}, {HEADER}, HK_OK, ""},
        {"no shards", {""}, {"1a020801"}, HK_E_DATA, "header is malformed"},
        {"too many shards", {""}, {"08c0843d"}, HK_E_DATA, "malformed"},
        {"header cut", {""}, {"08"}, HK_E_DATA, "malformed"},
        {"version cut", {""}, {"08011a0108"}, HK_E_DATA, "malformed"},
        {"newer", {""}, {"08011a021002"}, HK_E_UNSUPPORTED, "version 2"},
        {"big-endian", {""}, {"08011001"}, HK_E_UNSUPPORTED, "big-endian"},
        {"entry cut", {"", "x"}, {HEADER, "08"}, HK_E_DATA, "malformed"},
        {"shape cut",
         {"", "x"},
         {HEADER, "080112021203"},
         HK_E_DATA,
         "malformed"},
        {"dim cut",
         {"", "x"},
         {HEADER, "08011203120108"},
         HK_E_DATA,
         "malformed"},
        {"negative dim",
         {"", "x"},
         {HEADER, "0801 120d 120b 08ffffffffffffffffff01 2804"},
         HK_E_DATA,
         "malformed"},
        {"unknown rank",
         {"", "x"},
         {HEADER, "0801 1202 1801 2804"},
         HK_E_DATA,
         "malformed"},
        {"shape overflows",
         {"", "x"},
         {HEADER, "0801 1216 1209 0880808080808080 40 1209 0880808080808080 40"
                  "2804"},
         HK_E_DATA,
         "too many elements"},
        {"too few bytes",
         {"", "x"},
         {HEADER, "0801 1204 12020802 2804"},
         HK_E_DATA,
         "4 bytes, which is not the size of 2 elements of DT_FLOAT"},
        {"too many bytes",
         {"", "x"},
         {HEADER, "0801 1200 2805"},
         HK_E_DATA,
         "5 bytes, which is not the size of 1 elements of DT_FLOAT"},
        {"more strings than bytes",
         {"", "x"},
         {HEADER, "0807 1208 1206 088094ebdc03 2804"},
         HK_E_DATA,
         "more strings"},
        {"shard",
         {"", "x"},
         {HEADER, "0801 1200 1801 2804"},
         HK_E_DATA,
         "the data file 1 does not exist"},
        {"place overflows",
         {"", "x"},
         {HEADER, "0801 1200 20ffffffffffffffff7f 2804"},
         HK_E_DATA,
         "too large"},
        {"unknown type", {"", "x"}, {HEADER, "0863 1200 2804"}, HK_OK, ""},
        {"rank 9",
         {"", "x"},
         {HEADER, "0801 1224 12020801 12020801 12020801 12020801 12020801"
                  "12020801 12020801 12020801 12020801 2804"},
         HK_OK,
         ""},
        {"parts",
         {"", "slice:x:0,2", "slice:x:2,2", "x"},
         {HEADER, FIRST, SECOND, WHOLE},
         HK_OK,
         ""},
        {"a slice is missing",
         {"", "slice:x:0,2", "x"},
         {HEADER, FIRST, WHOLE},
         HK_E_DATA,
         "missing"},
        {"a slice has another type",
         {"", "slice:x:0,2", "slice:x:2,2", "x"},
         {HEADER, FIRST, "0803 1204 12020802 2008 2808", WHOLE},
         HK_E_DATA,
         "different type"},
        {"a slice has another shape",
         {"", "slice:x:0,2", "slice:x:2,2", "x"},
         {HEADER, FIRST, "0801 1204 12020801 2008 2804", WHOLE},
         HK_E_DATA,
         "different type or shape"},
        {"a slice lies outside",
         {"", "slice:x:0,2", "slice:x:3,2", "x"},
         {HEADER, FIRST, SECOND,
          "0801 1204 12020804 3a06 0a04 0800 1002 3a06 0a04 0803 1002"},
         HK_E_DATA,
         "exceeds the tensor"},
        {"slices overlap",
         {"", "slice:x:0,2", "slice:x:1,2", "x"},
         {HEADER, FIRST, SECOND,
          "0801 1204 12020804 3a06 0a04 0800 1002 3a06 0a04 0801 1002"},
         HK_E_DATA,
         "overlap"},
        {"slices leave a part out",
         {"", "slice:x:0,2", "x"},
         {HEADER, FIRST, "0801 1204 12020804 3a06 0a04 0800 1002"},
         HK_E_DATA,
         "do not cover the tensor"},
        {"slices of strings",
         {"", "x"},
         {HEADER, "0807 1204 12020804 3a06 0a04 0800 1002"},
         HK_E_UNSUPPORTED,
         "slices of type DT_STRING"},
        {"rank of a slice",
         {"", "slice:x:0,2", "x"},
         {HEADER, FIRST, "0801 1208 12020804 12020801 3a06 0a04 0800 1002"},
         HK_E_DATA,
         "exceeds the tensor"},
        {"malformed slice",
         {"", "slice:x:0,2", "x"},
         {HEADER, FIRST, "0801 1204 12020804 3a03 0a01 08"},
         HK_E_DATA,
         "slice is malformed"},
        {"a slice's place",
         {"", "slice:x:0,2", "slice:x:2,2", "x"},
         {HEADER, FIRST, "0801 1204 12020802 1805 2008 2808", WHOLE},
         HK_E_DATA,
         "the data file 5 does not exist"},
        {"malformed entry of a slice",
         {"", "slice:x:0,2"},
         {HEADER, "08"},
         HK_E_DATA,
         "entry of a slice"},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hki_buf index = {0};
        uint32_t n_shards;
        make_lie(&cases[i], &index);
        hk_ckpt c = {.ops = hki_ckpt_format_ops(HK_CKPT_TF)};
        const hk_status s = hki_bundle_parse_index(
            &c, (const uint8_t *)index.data, index.size, "l.index", &n_shards);
        if (s != cases[i].status ||
            (s != HK_OK && strstr(hk_last_error(), cases[i].message) == NULL))
            fail_msg("%s: %s (%s)", cases[i].name, hk_status_string(s),
                     hk_last_error());
        hki_arena_deinit(&c.arena);
        hki_free(c.tensors);
        hki_buf_deinit(&index);
    }
}

// ---- faults ----------------------------------------------------------------

// Every call that changes a file fails once, or the power goes there: what was
// there before under another name is whole, what is there under this one is
// the old or the new, or nothing; and nothing temporary stays.
static void try_faults(hki_io_fault fault) {
    folder d;
    folder_make(&d);
    char other[512], path[512];
    folder_path(&d, "m.ckpt-1", other);
    folder_path(&d, "m.ckpt-2", path);
    values v1, v2, v3, got;
    values_fill(&v1, 1);
    values_fill(&v2, 2);
    values_fill(&v3, 3);
    assert_ok(save(other, &v1, 2, 2));
    for (uint64_t n = 1;; n++) {
        assert_ok(save(path, &v2, 2, 3));
        hki_io_fail_at(n, fault, ENOSPC);
        const hk_status s = save(path, &v3, 2, 2);
        const bool hit = hki_io_fault_hit();
        hki_io_fail_at(0, fault, 0);
        assert_ok(load(other, &got));
        assert_memory_equal(&got, &v1, sizeof got);
        const hk_status there = load(path, &got);
        if (there == HK_OK) {
            const bool old = memcmp(&got, &v2, sizeof got) == 0;
            const bool new = memcmp(&got, &v3, sizeof got) == 0;
            assert_true(new || (old && s != HK_OK));
        } else {
            assert_status(there, HK_E_NOT_FOUND);
            assert_int_not_equal(s, HK_OK);
        }
        if (fault == HKI_IO_POWER_CUT)
            assert_ok(hki_clear_temporary(d.path, NULL));
        const size_t files = files_in(d.path);
        if (files != 6 &&
            (there == HK_OK || (files != 3 && fault != HKI_IO_POWER_CUT)))
            fail_msg("call %llu: %s, then %s: %zu files", (unsigned long long)n,
                     hk_status_string(s), hk_status_string(there), files);
        if (!hit)
            break;
    }
    folder_remove(&d);
}

static void test_one_call_fails(void **state) {
    (void)state;
    try_faults(HKI_IO_ONE_FAILS);
}

static void test_power_cut(void **state) {
    (void)state;
    try_faults(HKI_IO_POWER_CUT);
}

// Saves with a fresh saver; step 0: restores.
static hk_status saver_step(const char *dir, values *v, int64_t step) {
    hk_saver_options o;
    hk_saver_options_init(&o, sizeof o);
    o.model_dir = dir;
    o.format = HK_CKPT_TF;
    o.background = 0;
    o.keep_max = 1;
    hk_saver *saver = NULL;
    HKI_TRY(hk_saver_create(&o, &saver));
    hk_name_map *const map = values_map(v);
    const hk_status s = step > 0 ? hk_saver_save(saver, map, step, NULL, 0)
                                 : hk_saver_restore(saver, map, NULL, NULL);
    hk_name_map_destroy(map);
    hk_saver_destroy(saver);
    return s;
}

// Data files in the folder, and those whose index is there, too.
static void count_data(const char *dir, size_t *all, size_t *whole) {
    DIR *const list = opendir(dir);
    assert_non_null(list);
    *all = *whole = 0;
    for (struct dirent *e; (e = readdir(list)) != NULL;) {
        char index[512];
        const char *const end = strstr(e->d_name, ".data-");
        if (end == NULL)
            continue;
        snprintf(index, sizeof index, "%s/%.*s.index", dir,
                 (int)(end - e->d_name), e->d_name);
        *all += 1;
        *whole += hki_path_exists(index);
    }
    closedir(list);
}

// The power goes at every call of a saver's second step: the next saver finds
// the first or the second, and clears the rest away.
static void test_saver_power_cut(void **state) {
    (void)state;
    values v1, v2, got;
    values_fill(&v1, 1);
    values_fill(&v2, 2);
    for (uint64_t n = 1;; n++) {
        folder d;
        folder_make(&d);
        assert_ok(saver_step(d.path, &v1, 1));
        hki_io_fail_at(n, HKI_IO_POWER_CUT, EIO);
        const hk_status s = saver_step(d.path, &v2, 2);
        const bool hit = hki_io_fault_hit();
        hki_io_fail_at(0, HKI_IO_POWER_CUT, 0);
        memset(&got, 0, sizeof got);
        assert_ok(saver_step(d.path, &got, 0));
        const bool second = memcmp(&got, &v2, sizeof got) == 0;
        assert_true(second ||
                    (memcmp(&got, &v1, sizeof got) == 0 && s != HK_OK));
        size_t all, whole;
        count_data(d.path, &all, &whole);
        if (all != whole || all == 0)
            fail_msg("call %llu: %zu data files, %zu with an index",
                     (unsigned long long)n, all, whole);
        folder_remove(&d);
        if (!hit)
            break;
    }
}

static hk_status write_body(void *user) {
    hk_write_options o;
    hk_write_options_init(&o, sizeof o);
    o.format = HK_CKPT_TF;
    o.tf_shards = 2;
    o.tf_partitions = 2;
    hk_name_map *map = *(hk_name_map **)user;
    char path[512];
    return hk_ckpt_write(
        folder_path((const folder *)((void **)user)[1], "a", path), map, &o);
}

static hk_status read_body(void *user) {
    return read_all(user);
}

static void test_failing_allocations(void **state) {
    (void)state;
    folder d;
    folder_make(&d);
    values v;
    values_fill(&v, 1);
    hk_name_map *const map = values_map(&v);
    void *user[] = {map, &d};
    hk_test_alloc_failures("write", write_body, user);
    hk_name_map_destroy(map);
    assert_int_equal(files_in(d.path), 3);
    static const char *const goldens[] = {GOLDEN "v1", GOLDEN "sharded",
                                          GOLDEN "snappy"};
    for (size_t i = 0; i < HKI_COUNT(goldens); i++)
        hk_test_alloc_failures(goldens[i], read_body,
                               (void *)(uintptr_t)goldens[i]);
    folder_remove(&d);
}

static int sync_nothing(int fd) {
    (void)fd;
    return 0;
}

static int sync_no_folder(const char *path) {
    (void)path;
    return 0;
}

int main(void) {
    // Faults count these calls all the same; the disk need not do them.
    hki_io_table quick = hki_io_system;
    quick.fsync = sync_nothing;
    quick.fsync_dir = sync_no_folder;
    hki_io_replace(&quick);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_v1),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_other_goldens),
        cmocka_unit_test(test_known_bytes),
        cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_renaming),
        cmocka_unit_test(test_damaged_data),
        cmocka_unit_test(test_damaged_index),
        cmocka_unit_test(test_lies),
        cmocka_unit_test(test_one_call_fails),
        cmocka_unit_test(test_power_cut),
        cmocka_unit_test(test_saver_power_cut),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
