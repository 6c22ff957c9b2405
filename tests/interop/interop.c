// interop.c - Hooke's side of the interoperability suite: writes checkpoints
// and event files for others to read, and reads what they wrote.
//
//     interop write FORMAT PATH SHARDS PARTITIONS   safetensors, tf or npz
//     interop list PATH                             every tensor, checked
//     interop save FOLDER FORMAT                    three steps by a saver
//     interop latest FOLDER                         the newest checkpoint
//     interop events FOLDER                         one event of each kind
//     interop dump PATH                             what event files hold
//
// Values are a function of the element's number, the same in check.py:
// k = (7 i + 3) mod 101 for integers, (k - 50) / 4 for floats, i mod 3 == 0 for
// booleans, the decimal k for strings.
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "hooke/ckpt.h"
#include "hooke/event.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static int fail(const char *what) {
    fprintf(stderr, "interop: %s: %s\n", what, hk_last_error());
    return 1;
}

// ---- values ----------------------------------------------------------------

static int64_t integer_at(int64_t i) {
    return (7 * i + 3) % 101;
}

static float float_at(int64_t i) {
    return (float)(integer_at(i) - 50) / 4;
}

// The upper half of the float; the values above have no more bits.
static uint16_t bf16_at(int64_t i) {
    const float f = float_at(i);
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static void put(hk_dtype t, void *data, int64_t i) {
    switch (t) {
    case HK_F32:
        ((float *)data)[i] = float_at(i);
        break;
    case HK_F64:
        ((double *)data)[i] = (double)float_at(i);
        break;
    case HK_BF16:
        ((uint16_t *)data)[i] = bf16_at(i);
        break;
    case HK_I32:
        ((int32_t *)data)[i] = (int32_t)integer_at(i);
        break;
    case HK_I64:
        ((int64_t *)data)[i] = integer_at(i);
        break;
    case HK_U8:
        ((uint8_t *)data)[i] = (uint8_t)integer_at(i);
        break;
    case HK_BOOL:
        ((uint8_t *)data)[i] = i % 3 == 0;
        break;
    default:
        break;
    }
}

// ---- writing ---------------------------------------------------------------

static const struct {
    const char *name;
    hk_dtype dtype;
    int rank;
    int64_t dim[3];
} tensors[] = {
    {"layer/w", HK_F32, 2, {7, 5}},
    {"layer/b", HK_F32, 1, {3}},
    {"scalar", HK_F32, 0, {0}},
    {"global_step", HK_I64, 0, {0}},
    {"double", HK_F64, 2, {2, 3}},
    {"bf16", HK_BF16, 2, {4, 2}},
    {"i32", HK_I32, 1, {6}},
    {"i64", HK_I64, 3, {1, 2, 3}},
    {"u8", HK_U8, 1, {5}},
    {"flag", HK_BOOL, 1, {4}},
    {"none", HK_F32, 2, {0, 4}},
    {"table", HK_F32, 2, {300, 70}},
    {"half_table", HK_BF16, 2, {90, 3}},
};

static hk_status add_tensor(hk_name_map *map, size_t k, bool bf16,
                            void **memory) {
    if (tensors[k].dtype == HK_BF16 && !bf16)
        return HK_OK;
    hk_named n = {.name = tensors[k].name,
                  .dtype = tensors[k].dtype,
                  .shape = hk_shape_make(tensors[k].rank, tensors[k].dim)};
    int64_t count = 0;
    hk_status s = hk_shape_count(n.shape, &count);
    *memory = calloc((size_t)count + 1, 8);
    n.data = *memory;
    if (s != HK_OK || n.data == NULL)
        return s != HK_OK ? s : HK_E_NO_MEMORY;
    for (int64_t i = 0; i < count; i++)
        put(n.dtype, n.data, i);
    return hk_name_map_add(map, &n);
}

// The map over all tensors; memory has room for COUNT(tensors) blocks.
static hk_status make_map(bool bf16, void **memory, hk_name_map **out) {
    hk_status s = hk_name_map_create(out);
    for (size_t k = 0; k < COUNT(tensors) && s == HK_OK; k++)
        s = add_tensor(*out, k, bf16, &memory[k]);
    return s;
}

static void free_map(hk_name_map *map, void **memory) {
    hk_name_map_destroy(map);
    for (size_t k = 0; k < COUNT(tensors); k++)
        free(memory[k]);
}

static hk_ckpt_format format_named(const char *name) {
    return strcmp(name, "tf") == 0    ? HK_CKPT_TF
           : strcmp(name, "npz") == 0 ? HK_CKPT_NPZ
                                      : HK_CKPT_SAFETENSORS;
}

static int cmd_write(char **arg) {
    hk_write_options o;
    hk_write_options_init(&o, sizeof o);
    o.format = format_named(arg[0]);
    o.tf_shards = (uint32_t)strtoul(arg[2], NULL, 10);
    o.tf_partitions = (uint32_t)strtoul(arg[3], NULL, 10);
    if (o.format == HK_CKPT_SAFETENSORS && o.tf_shards > 1)
        o.shard_bytes = 90000 / o.tf_shards;
    void *memory[COUNT(tensors)] = {NULL};
    hk_name_map *map = NULL;
    hk_status s = make_map(o.format != HK_CKPT_NPZ, memory, &map);
    if (s == HK_OK)
        s = hk_ckpt_write(arg[1], map, &o);
    free_map(map, memory);
    return s == HK_OK ? 0 : fail("write");
}

static int cmd_save(char **arg) {
    hk_saver_options o;
    hk_saver_options_init(&o, sizeof o);
    o.model_dir = arg[0];
    o.format = format_named(arg[1]);
    hk_saver *saver = NULL;
    void *memory[COUNT(tensors)] = {NULL};
    hk_name_map *map = NULL;
    hk_status s = make_map(true, memory, &map);
    if (s == HK_OK)
        s = hk_saver_create(&o, &saver);
    for (int64_t step = 1; step <= 3 && s == HK_OK; step++)
        s = hk_saver_save(saver, map, step, NULL, 0);
    if (s == HK_OK)
        s = hk_saver_wait(saver);
    hk_saver_destroy(saver);
    free_map(map, memory);
    return s == HK_OK ? 0 : fail("save");
}

static int cmd_latest(char **arg) {
    char path[4096];
    int64_t step;
    if (hk_latest_checkpoint(arg[0], path, sizeof path, &step) != HK_OK)
        return fail("latest");
    printf("%lld %s\n", (long long)step, path);
    return 0;
}

// ---- reading ---------------------------------------------------------------

static bool is_float(const hk_ckpt_entry *e) {
    return e->dtype == HK_F32 || e->dtype == HK_F64 || e->dtype == HK_BF16 ||
           strstr(e->type_name, "HALF") != NULL ||
           strcmp(e->type_name, "F16") == 0 ||
           strstr(e->type_name, "f2") != NULL;
}

static bool good_string(const hk_tensor *t, int64_t i) {
    const void *bytes;
    size_t size;
    char expected[16];
    const int n =
        snprintf(expected, sizeof expected, "%lld", (long long)integer_at(i));
    return hk_tensor_get_string(t, i, &bytes, &size) == HK_OK &&
           size == (size_t)n && memcmp(bytes, expected, size) == 0;
}

static bool good_strings(hk_ckpt *c, const hk_ckpt_entry *e) {
    hk_tensor *t = NULL;
    if (hk_ckpt_read_tensor(c, e->name, &t) != HK_OK)
        return false;
    bool good = true;
    for (int64_t i = 0; i < hk_tensor_count(t) && good; i++)
        good = good_string(t, i);
    hk_tensor_release(t);
    return good;
}

// Reads as the widest type of its kind and compares with the formula.
static bool good_numbers(hk_ckpt *c, const hk_ckpt_entry *e, hk_dtype as) {
    int64_t count;
    if (hk_shape_count(e->shape, &count) != HK_OK)
        return false;
    void *const got = calloc((size_t)count + 1, 8);
    bool good =
        got != NULL && hk_ckpt_read(c, e->name, as, &e->shape, got) == HK_OK;
    for (int64_t i = 0; i < count && good; i++)
        good = as == HK_F64   ? ((double *)got)[i] == (double)float_at(i)
               : as == HK_I64 ? ((int64_t *)got)[i] == integer_at(i)
                              : ((uint8_t *)got)[i] == (i % 3 == 0);
    free(got);
    return good;
}

static bool good_tensor(hk_ckpt *c, const hk_ckpt_entry *e) {
    if (e->dtype == HK_STRING)
        return good_strings(c, e);
    if (e->dtype == HK_BOOL)
        return good_numbers(c, e, HK_BOOL);
    return good_numbers(c, e, is_float(e) ? HK_F64 : HK_I64);
}

static int cmd_list(char **arg) {
    hk_ckpt *c;
    if (hk_ckpt_open(arg[0], HK_CKPT_AUTO, &c) != HK_OK)
        return fail("open");
    int bad = 0;
    const hk_ckpt_entry *e;
    for (size_t i = 0; (e = hk_ckpt_item(c, i)) != NULL; i++) {
        // TensorFlow's object graph is a message, not one of ours.
        const bool graph = strcmp(e->name, "_CHECKPOINTABLE_OBJECT_GRAPH") == 0;
        printf("%s %s", e->name, e->type_name);
        for (int32_t k = 0; k < e->shape.rank; k++)
            printf(" %lld", (long long)e->shape.dim[k]);
        printf("\n");
        if (!graph && !good_tensor(c, e))
            bad += fail(e->name);
    }
    hk_ckpt_close(c);
    return bad == 0 ? 0 : 1;
}

// ---- events ----------------------------------------------------------------

static hk_status write_trial(hk_event_writer *w) {
    const hk_hparam params[] = {
        {.name = "lr", .type = HK_HPARAM_NUMBER, .number = 0.25},
        {.name = "optimizer", .type = HK_HPARAM_STRING, .string = "sgd"},
        {.name = "batch_norm", .type = HK_HPARAM_BOOL, .number = 1}};
    const char *const metrics[] = {"loss"};
    hk_status s =
        hk_event_hparams_experiment(w, "sweep", params, 3, NULL, metrics, 1);
    if (s == HK_OK)
        s = hk_event_hparams_start(w, "trial-1", params, 3);
    return s == HK_OK ? hk_event_hparams_end(w, 1) : s;
}

static hk_status write_values(hk_event_writer *w) {
    float values[1000];
    uint8_t pixels[4 * 5 * 3];
    for (int i = 0; i < 1000; i++)
        values[i] = float_at(i);
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)integer_at((int64_t)i);
    hk_status s = HK_OK;
    for (int64_t step = 0; step < 5 && s == HK_OK; step++)
        s = hk_event_scalar(w, "loss", step, (double)float_at(step));
    if (s == HK_OK)
        s = hk_event_histogram(w, "weights", 7, values, 1000, NULL);
    if (s == HK_OK)
        s = hk_event_image(w, "picture", 8, pixels, 4, 5, 3);
    if (s == HK_OK)
        s = hk_event_text(w, "plan", 9, "a **plan** of \xc3\xa9");
    if (s == HK_OK)
        s = hk_event_session(w, 10, 3, "model.ckpt-10");
    return s == HK_OK ? write_trial(w) : s;
}

static int cmd_events(char **arg) {
    hk_event_writer *w;
    if (hk_event_open(arg[0], NULL, &w) != HK_OK)
        return fail("event open");
    const hk_status s = write_values(w);
    if (s != HK_OK)
        fail("events");
    return hk_event_close(w) == HK_OK && s == HK_OK ? 0 : 1;
}

static int cmd_dump(char **arg) {
    hk_event_reader *r;
    if (hk_event_reader_open(arg[0], &r) != HK_OK)
        return fail("reader");
    hk_event e;
    hk_status s;
    while ((s = hk_event_next(r, &e)) == HK_OK) {
        double count = 0;
        for (size_t i = 0; i < e.buckets; i++)
            count += e.counts[i];
        printf("%d %lld %s|%.9g|%s|%zu|%.9g\n", (int)e.kind, (long long)e.step,
               e.tag, e.scalar, e.kind == HK_EVENT_VERSION ? "" : e.text,
               e.size, count);
    }
    hk_event_reader_close(r);
    return s == HK_E_END ? 0 : fail("dump");
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int n_args;
        int (*run)(char **arg);
    } commands[] = {{"write", 4, cmd_write},   {"list", 1, cmd_list},
                    {"save", 2, cmd_save},     {"latest", 1, cmd_latest},
                    {"events", 1, cmd_events}, {"dump", 1, cmd_dump}};
    for (size_t i = 0; i < COUNT(commands) && argc > 1; i++)
        if (strcmp(argv[1], commands[i].name) == 0 &&
            argc - 2 == commands[i].n_args)
            return commands[i].run(argv + 2);
    fprintf(stderr, "usage: interop write|list|save|latest|events|dump ...\n");
    return 2;
}
