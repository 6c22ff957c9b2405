// cmd_convert.c - between checkpoint formats, and data sets to TFRecord and
// others.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "cli.h"

static bool ends_with(const char *s, const char *end) {
    const size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

// ---- checkpoints -----------------------------------------------------------

// Names of averages and centers as TensorFlow had them, to plain ones.
static const hk_rename ema_names[] = {{"*", "*/ExponentialMovingAverage"}};
static const hk_rename center_names[] = {{"*", "global_center_variable/*"}};

static hk_status copy_all(hk_ckpt *c, hk_name_map *map, const cli_args *a) {
    const bool model_only = cli_has(a, "model-only");
    const char *take = cli_string(a, "take", NULL);
    const hk_rename *names = !take                      ? NULL
                             : strcmp(take, "ema") == 0 ? ema_names
                                                        : center_names;
    const char *tail = !take ? NULL : names->from + 1;
    for (size_t i = 0; i < hk_ckpt_count(c); i++) {
        const hk_ckpt_entry *e = hk_ckpt_item(c, i);
        char *name = cli_strdup(e->name);
        if (take && strcmp(take, "ema") == 0) {
            if (!ends_with(name, tail))
                continue;
            name[strlen(name) - strlen(tail)] = '\0';
        } else if (take) {
            const size_t n = strlen("global_center_variable/");
            if (strncmp(name, "global_center_variable/", n) != 0)
                continue;
            memmove(name, name + n, strlen(name + n) + 1);
        }
        if (model_only && strncmp(name, HK_SECTION, strlen(HK_SECTION)) == 0)
            continue;
        hk_tensor *t;
        hk_status s = hk_ckpt_read_tensor(c, e->name, &t);
        if (s != HK_OK)
            return s;
        if (hk_tensor_dtype(t) == HK_STRING) {
            cli_note("hooke: %s is text and stays behind", e->name);
            continue;
        }
        // The tensors live until the program ends.
        s = hk_name_map_add(map, &(hk_named){.name = name,
                                             .dtype = hk_tensor_dtype(t),
                                             .shape = *hk_tensor_shape(t),
                                             .data = hk_tensor_data(t)});
        if (s != HK_OK)
            return s;
    }
    return HK_OK;
}

static int convert_checkpoint(const cli_args *a, const char *in,
                              const char *out) {
    hk_ckpt *c;
    hk_name_map *map = NULL;
    hk_status s = hk_ckpt_open(in, HK_CKPT_AUTO, &c);
    if (s != HK_OK)
        return cli_status(s);
    hk_write_options o;
    hk_write_options_init(&o, sizeof o);
    const char *to = cli_string(a, "to", NULL);
    if (to)
        o.format = strcmp(to, "tf") == 0    ? HK_CKPT_TF
                   : strcmp(to, "npz") == 0 ? HK_CKPT_NPZ
                                            : HK_CKPT_SAFETENSORS;
    else if (!ends_with(out, ".npz") && !ends_with(out, ".safetensors"))
        o.format = HK_CKPT_TF;
    s = hk_name_map_create(&map);
    if (s == HK_OK)
        s = copy_all(c, map, a);
    const size_t n = s == HK_OK ? hk_name_map_count(map) : 0;
    int code = cli_status(s);
    if (!code && n == 0)
        code = cli_fail("%s: nothing to convert", in);
    if (!code)
        code = cli_status(hk_ckpt_write(out, map, &o));
    if (!code)
        printf("%s: %zu tensors\n", out, n);
    hk_name_map_destroy(map);
    hk_ckpt_close(c);
    return code;
}

// ---- data ------------------------------------------------------------------

// What a TFRecord file holds is learnt from its first record.
enum {
    MOST_FEATURES = 512
};
typedef struct found {
    hk_example_feature list[MOST_FEATURES];
    size_t n;
} found;

static hk_status find_feature(void *user, const char *key, size_t size,
                              int list, hk_dtype stored, int64_t count) {
    found *f = user;
    (void)list;
    if (f->n == MOST_FEATURES)
        return HK_OK;
    char *name = cli_alloc(size + 1);
    memcpy(name, key, size);
    f->list[f->n++] = (hk_example_feature){
        .name = name,
        .kind = HK_FIXED_LEN,
        .dtype = stored,
        .shape = {.rank = count == 1 ? 0 : 1, .dim = {count}}};
    return HK_OK;
}

static hk_dataset *open_tfrecord(const char *in) {
    hk_dataset *d = hk_data_tfrecord(&in, 1, NULL);
    hk_iter *it = NULL;
    const hk_element *e;
    const void *bytes;
    size_t size;
    found f = {.n = 0};
    hk_status s = hk_dataset_status(d);
    if (s == HK_OK)
        s = hk_iter_create(d, NULL, &it);
    if (s == HK_OK)
        s = hk_iter_next(it, &e);
    if (s == HK_OK)
        s = hk_tensor_get_string(e->values[0].tensor, 0, &bytes, &size);
    if (s == HK_OK)
        s = hk_example_describe(bytes, size, 0, find_feature, &f);
    hk_iter_destroy(it);
    // What went wrong, if anything, comes again when the data is read.
    return s == HK_OK ? hk_data_parse_example(d, f.list, f.n, NULL) : d;
}

static hk_dataset *open_data(const cli_args *a, const char *in) {
    const char *label = cli_string(a, "labels", NULL);
    if (strcmp(in, "digits") == 0) {
        hk_digits_options o;
        hk_digits_options_init(&o, sizeof o);
        return hk_data_digits(&o, 0, cli_int(a, "count", 20000));
    }
    const hk_array_file arrays[2] = {
        {.name = cli_string(a, "name", "image"), .path = in},
        {.name = "label", .path = label, .role = HK_LABEL}};
    if (ends_with(in, ".tfrecord") || ends_with(in, ".tfrecords") ||
        ends_with(in, ".tfrecord.gz"))
        return open_tfrecord(in);
    if (ends_with(in, ".npy"))
        return hk_data_npy(arrays, label ? 2 : 1, NULL);
    if (ends_with(in, ".npz"))
        return hk_data_npz(in, NULL, 0, NULL);
    if (strstr(in, "idx"))
        return hk_data_idx(arrays, label ? 2 : 1, NULL);
    hk_csv_options o;
    hk_csv_options_init(&o, sizeof o);
    o.header = !cli_has(a, "no-header");
    o.trim = 1;
    return hk_data_csv(&in, 1, &o);
}

static hk_status write_data(const cli_args *a, hk_dataset *d, const char *out,
                            uint64_t *n) {
    const hk_element *spec = hk_dataset_spec(d);
    const char *name =
        cli_string(a, "name", spec->count ? spec->values[0].name : "");
    hk_writer_options o;
    hk_writer_options_init(&o, sizeof o);
    o.compression = HK_COMPRESSION_AUTO;
    if (ends_with(out, ".csv") || ends_with(out, ".csv.gz"))
        return hk_data_write_csv(d, out, &o, n);
    if (ends_with(out, ".npy"))
        return hk_data_write_npy(d, name, out, &o, n);
    if (strstr(out, "idx"))
        return hk_data_write_idx(d, name, out, &o, n);
    return hk_data_write_tfrecord(d, out, &o, n);
}

static int convert_data(const cli_args *a, const char *in, const char *out) {
    hk_dataset *d = open_data(a, in);
    uint64_t n = 0;
    hk_status s = hk_dataset_status(d);
    if (s == HK_OK && cli_has(a, "count"))
        d = hk_data_take(d, cli_int(a, "count", -1));
    if (s == HK_OK)
        s = hk_dataset_status(d);
    if (s == HK_OK)
        s = write_data(a, d, out, &n);
    hk_dataset_release(d);
    if (s == HK_OK)
        printf("%s: %llu examples\n", out, (unsigned long long)n);
    return cli_status(s);
}

// ---- the command -----------------------------------------------------------

static bool is_checkpoint(const char *path) {
    struct stat st;
    if (ends_with(path, ".safetensors") || ends_with(path, ".index") ||
        ends_with(path, ".index.json"))
        return true;
    if (stat(path, &st) == 0)
        return S_ISDIR(st.st_mode);
    char *index = cli_printf("%s.index", path);
    return stat(index, &st) == 0;
}

// Data goes to the format that the name of the file says.
static bool is_data_name(const char *out) {
    static const char *const ends[] = {".csv", ".npy", ".tfrecord",
                                       ".tfrecords"};
    char *bare = cli_strdup(out);
    if (ends_with(bare, ".gz"))
        bare[strlen(bare) - 3] = '\0';
    bool known = strstr(bare, "idx") != NULL;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        known |= ends_with(bare, ends[i]);
    free(bare);
    return known;
}

static int run(const cli_args *a) {
    const char *in = cli_operand(a, 0), *out = cli_operand(a, 1);
    struct stat st;
    if (stat(out, &st) == 0 && S_ISDIR(st.st_mode))
        return cli_fail("%s: is a folder; OUT is a file", out);
    const bool weights =
        is_checkpoint(in) || cli_has(a, "to") ||
        (ends_with(in, ".npz") && ends_with(out, ".safetensors"));
    if (weights)
        return convert_checkpoint(a, in, out);
    if (strcmp(in, "digits") != 0 && stat(in, &st) != 0)
        return cli_fail("%s: %s", in, strerror(errno));
    if (!is_data_name(out))
        return cli_fail("%s: data goes to .tfrecord, .csv, .npy or -idx files, "
                        "by their names",
                        out);
    return convert_data(a, in, out);
}

static const cli_option options[] = {
    CLI_CHOICES("to", 0, "safetensors|tf|npz",
                "checkpoints: the format; default by the name of OUT"),
    CLI_CHOICES("take", 0, "ema|center",
                "TensorFlow checkpoints: averages (x/ExponentialMovingAverage) "
                "or centers "
                "(global_center_variable/x) under the plain names"),
    CLI_SWITCH("model-only", 0,
               "checkpoints: without optimizer, averages and workers"),
    CLI_OPTION("labels", 0, CLI_FILE, "FILE",
               "IDX and npy: the file with the labels"),
    CLI_OPTION("name", 0, CLI_STRING, "NAME",
               "npy and IDX: which value of the examples"),
    CLI_OPTION("count", 0, CLI_INT, "N", "data: so many examples"),
    CLI_SWITCH("no-header", 0, "CSV: the first line is data already"),
    {0}};

const cli_command cmd_convert = {
    .name = "convert",
    .operands = "IN OUT",
    .min_operands = 2,
    .max_operands = 2,
    .summary = "between checkpoint formats, and data sets to TFRecord",
    .about =
        "Checkpoints: safetensors, TensorFlow V2 (a prefix), NumPy archives "
        "and model_dirs, in any direction. Data: IDX, npy, npz, CSV, "
        "TFRecord and 'digits' to TFRecord, CSV, npy or IDX, by the names of "
        "the files.",
    .examples = "hooke convert model.ckpt-1000 model.safetensors\n"
                "hooke convert digits digits.tfrecord --count 1000\n"
                "hooke convert images.npy data.tfrecord --labels labels.npy",
    .options = options,
    .run = run};
