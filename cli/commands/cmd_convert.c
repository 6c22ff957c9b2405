// cmd_convert.c - between checkpoint formats, and data sets to TFRecord and
// others.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "commands/copy_tensors.h"
#include "core/file_kind.h"
#include "hooke/digits.h"
#include "hooke/writers.h"

// ---- checkpoints -----------------------------------------------------------

typedef struct choice {
    const hk_ckpt *c;
    bool model_only;
    const char *before, *after; // of the names that are taken; cut off
    char name[1024];            // without them
} choice;

// TensorFlow puts slots and averages below the name of their variable:
// dense/kernel/Adam_1, dense/kernel/t_0/Adam,
// dense/kernel/ExponentialMovingAverage.
static bool is_below_variable(const hk_ckpt *c, const hk_ckpt_entry *e) {
    char *above = cli_strdup(e->name), *slash;
    bool found = false;
    while (!found && (slash = strrchr(above, '/'))) {
        *slash = '\0';
        const hk_ckpt_entry *v = hk_ckpt_find(c, above);
        found = v && hk_shape_equal(v->shape, e->shape);
    }
    free(above);
    return found;
}

// Optimizer, averages and workers, in Hooke's names and in TensorFlow's, where
// an object-based checkpoint has others than a Saver's.
static bool is_beside_model(const hk_ckpt *c, const hk_ckpt_entry *e) {
    const char *slash = strrchr(e->name, '/');
    const char *last = slash ? slash + 1 : e->name;
    return cli_begins(e->name, HK_SECTION) || is_below_variable(c, e) ||
           cli_begins(last, "beta1_power") || cli_begins(last, "beta2_power") ||
           cli_begins(e->name, "global_center_variable/") ||
           cli_begins(e->name, "optimizer/") ||
           cli_begins(e->name, "save_counter/") ||
           strstr(e->name, "/.OPTIMIZER_SLOT/");
}

// What a tensor is called in the copy; NULL: it stays behind.
static const char *choose(void *user, const hk_ckpt_entry *e) {
    choice *k = user;
    const size_t n = strlen(e->name), before = strlen(k->before),
                 after = strlen(k->after);
    const bool taken = before || after;
    if (n <= before + after || n >= sizeof k->name ||
        !cli_begins(e->name, k->before) || !cli_ends(e->name, k->after) ||
        (k->model_only && !taken && is_beside_model(k->c, e)))
        return NULL;
    snprintf(k->name, sizeof k->name, "%.*s", (int)(n - before - after),
             e->name + before);
    return k->name;
}

// Names of averages and centers as TensorFlow had them, to plain ones.
static void choose_names(const cli_args *a, choice *k) {
    const char *take = cli_string(a, "take", "");
    k->before = strcmp(take, "center") == 0 ? "global_center_variable/" : "";
    k->after = strcmp(take, "ema") == 0 ? "/ExponentialMovingAverage" : "";
    k->model_only = cli_has(a, "model-only");
}

static hk_ckpt_format format_of(const cli_args *a, const char *out) {
    const char *to = cli_string(a, "to", NULL);
    if (to)
        return copy_format(to);
    return cli_ends(out, ".npz")           ? HK_CKPT_NPZ
           : cli_ends(out, ".safetensors") ? HK_CKPT_SAFETENSORS
                                           : HK_CKPT_TF;
}

static int convert_checkpoint(const cli_args *a, const char *in,
                              const char *out) {
    choice k = {0};
    CLI_SCOPED(hk_ckpt_close_at) hk_ckpt *c = NULL;
    const hk_status s = hk_weights_open(in, &c);
    if (s != HK_OK)
        return cli_status(s);
    k.c = c;
    choose_names(a, &k);
    weights_copy copy = {.from = c,
                         .path = out,
                         .format = format_of(a, out),
                         .name = choose,
                         .user = &k,
                         // What is taken by its name leaves the step behind.
                         .step = (*k.before || *k.after) &&
                                 hk_ckpt_find(c, "global_step") != NULL};
    CLI_TRY(copy_weights(&copy));
    printf("%s: %zu tensors", out, copy.taken);
    if (copy.left)
        printf(", %zu left out", copy.left);
    printf("\n");
    return 0;
}

// ---- data ------------------------------------------------------------------

// What a TFRecord file holds is learnt from its first record.
enum { MOST_FEATURES = 512 };
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
    CLI_SCOPED(hk_iter_destroy_at) hk_iter *it = NULL;
    const hk_element *e;
    const void *bytes;
    size_t size;
    found f = {.n = 0};
    hk_status s = hk_iter_create(d, NULL, &it);
    if (s == HK_OK)
        s = hk_iter_next(it, &e);
    if (s == HK_OK)
        s = hk_tensor_get_string(e->values[0].tensor, 0, &bytes, &size);
    if (s == HK_OK)
        s = hk_example_describe(bytes, size, 0, find_feature, &f);
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
    if (cli_ends(in, ".tfrecord") || cli_ends(in, ".tfrecords") ||
        cli_ends(in, ".tfrecord.gz"))
        return open_tfrecord(in);
    if (cli_ends(in, ".npz"))
        return hk_data_npz(in, NULL, 0, NULL);
    if (cli_ends(in, ".npy") || strstr(in, "idx"))
        return hk_data_arrays(arrays, label ? 2 : 1, NULL);
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
    o.value = name;
    o.format = cli_ends(out, ".csv") || cli_ends(out, ".csv.gz") ? HK_WRITE_CSV
               : cli_ends(out, ".npy")                           ? HK_WRITE_NPY
               : strstr(out, "idx")                              ? HK_WRITE_IDX
                                    : HK_WRITE_TFRECORD;
    return hk_data_write(d, out, &o, n);
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

static bool is_center_file(const char *path) {
    char head[8] = "";
    FILE *f = fopen(path, "rb");
    const bool whole = f && fread(head, sizeof head, 1, f) == 1;
    if (f)
        fclose(f);
    return whole && memcmp(head, "HKCENTER", sizeof head) == 0;
}

static bool is_checkpoint(const char *path) {
    struct stat st;
    if (cli_ends(path, ".safetensors") || cli_ends(path, ".index") ||
        cli_ends(path, ".index.json"))
        return true;
    if (stat(path, &st) == 0)
        return S_ISDIR(st.st_mode) || is_center_file(path);
    char *index = cli_printf("%s.index", path);
    return stat(index, &st) == 0;
}

// Data goes to the format that the name of the file says.
static bool is_data_name(const char *out) {
    static const char *const ends[] = {".csv", ".npy", ".tfrecord",
                                       ".tfrecords"};
    char *bare = cli_strdup(out);
    if (cli_ends(bare, ".gz"))
        bare[strlen(bare) - 3] = '\0';
    bool known = strstr(bare, "idx") != NULL;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        known |= cli_ends(bare, ends[i]);
    free(bare);
    return known;
}

static int run(const cli_args *a) {
    const char *in = cli_operand(a, 0), *out = cli_operand(a, 1);
    struct stat st;
    if (cli_is_url(out))
        return cli_fail(
            "%s: OUT is a remote address; convert writes local files only",
            out);
    if (stat(out, &st) == 0 && S_ISDIR(st.st_mode))
        return cli_fail("%s: is a folder; OUT has to be a file", out);
    const bool weights =
        is_checkpoint(in) || cli_has(a, "to") ||
        (cli_ends(in, ".npz") && cli_ends(out, ".safetensors"));
    if (weights && cli_is_url(in))
        return cli_fail(
            "%s: checkpoints are read from local files only; download it first",
            in);
    if (weights)
        return convert_checkpoint(a, in, out);
    if (strcmp(in, "digits") != 0 && !cli_is_url(in) && stat(in, &st) != 0)
        return cli_fail("%s: %s", in, strerror(errno));
    if (is_experiment_name(in))
        return cli_fail(
            "%s: is an experiment; convert reads checkpoints and data files",
            in);
    if (!is_data_name(out))
        return cli_fail("%s: unknown data format; OUT has to end in .tfrecord, "
                        ".csv, .npy or -idx",
                        out);
    return convert_data(a, in, out);
}

static const cli_option options[] = {
    CLI_CHOICES("to", 0, "safetensors|tf|npz",
                "checkpoints: format of OUT; default: by the name of OUT"),
    CLI_CHOICES("take", 0, "ema|center",
                "TensorFlow checkpoints: averages (x/ExponentialMovingAverage) "
                "or centers "
                "(global_center_variable/x) under the plain names"),
    CLI_SWITCH("model-only", 0,
               "checkpoints: leaves out optimizer, averages and workers"),
    CLI_OPTION("labels", 0, CLI_FILE, "FILE",
               "IDX and npy: file with the labels"),
    CLI_OPTION("name", 0, CLI_STRING, "NAME",
               "npy and IDX: name of the column or value to write"),
    CLI_OPTION("count", 0, CLI_INT, "N", "data: number of examples to write"),
    CLI_SWITCH("no-header", 0, "CSV: the first line has data, not names"),
    {0}};

const cli_command cmd_convert = {
    .name = "convert",
    .operands = "IN OUT",
    .min_operands = 2,
    .max_operands = 2,
    .summary = "convert checkpoints between formats, and data sets to files",
    .about =
        "Checkpoints: safetensors, TensorFlow V2 (a prefix), NumPy archives "
        "and model_dirs, in any direction, and from center files. Data: IDX, "
        "npy, npz, CSV, "
        "TFRecord and 'digits' to TFRecord, CSV, npy or IDX, by the names of "
        "the files.",
    .examples = "hooke convert model.ckpt-1000 model.safetensors\n"
                "hooke convert digits digits.tfrecord --count 1000\n"
                "hooke convert images.npy data.tfrecord --labels labels.npy",
    .options = options,
    .run = run};
