// cmd_inspect.c - what is in a file: checkpoint, event file, TFRecord, IDX,
// npy, center file.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "core/file_kind.h"
#include "commands/inspect_table.h"
#include "core/cli.h"
#include "report/series.h"

// ---- checkpoints -----------------------------------------------------------

static void print_shape(hk_shape s) {
    printf("[");
    for (int i = 0; i < s.rank; i++)
        printf("%s%lld", i ? ", " : "", (long long)s.dim[i]);
    printf("]");
}

// Mean, deviation, smallest and largest: enough to see a dead or exploded
// tensor.
static void print_statistics(const double *x, int64_t n) {
    double sum = 0, squares = 0, low = INFINITY, high = -INFINITY;
    int64_t bad = 0;
    for (int64_t i = 0; i < n; i++) {
        bad += !isfinite(x[i]);
        low = isfinite(x[i]) ? fmin(low, x[i]) : low;
        high = isfinite(x[i]) ? fmax(high, x[i]) : high;
    }
    // In units of the largest value, whose square may be beyond a double.
    const double k = (double)(n - bad);
    const double unit = fmax(fabs(low), fabs(high)), one = unit > 0 ? unit : 1;
    for (int64_t i = 0; i < n; i++)
        sum += isfinite(x[i]) ? x[i] / one : 0;
    for (int64_t i = 0; i < n; i++) {
        const double gap = isfinite(x[i]) ? x[i] / one - sum / k : 0;
        squares += gap * gap;
    }
    if (k > 0)
        printf("  mean %.4g  std %.4g  from %.4g to %.4g", sum / k * one,
               sqrt(squares / k) * one, low, high);
    if (bad)
        printf("  %lld not finite", (long long)bad);
}

// false: the tensor is damaged. Texts, and numbers that no type of Hooke
// holds, have no statistics.
static bool statistics(hk_ckpt *c, const hk_ckpt_entry *e) {
    hk_tensor *t = NULL, *d = NULL;
    hk_status s = hk_ckpt_read_tensor(c, e->name, &t);
    const bool numbers = s == HK_OK && hk_tensor_dtype(t) != HK_STRING;
    if (numbers)
        s = hk_tensor_copy(t, HK_F64, &d);
    if (s == HK_OK && numbers)
        print_statistics(hk_tensor_data(d), hk_tensor_count(d));
    const bool damaged = s == HK_E_DATA || s == HK_E_IO;
    if (damaged)
        printf("  damaged: %s", hk_last_error());
    else if (s != HK_OK)
        printf("  no statistics");
    hk_tensor_release(t);
    hk_tensor_release(d);
    return !damaged;
}

// 0, or an exit code after a message.
static int list_tensors(hk_ckpt *c, const cli_args *a) {
    hk_ckpt_info info;
    hk_ckpt_get_info(c, &info);
    const bool all = cli_has(a, "all"), stats = cli_has(a, "stats");
    double bytes = 0, elements = 0;
    size_t model = 0, damaged = 0;
    for (size_t i = 0; i < info.entry_count; i++) {
        const hk_ckpt_entry *e = hk_ckpt_item(c, i);
        const bool own = strncmp(e->name, HK_SECTION, strlen(HK_SECTION)) != 0;
        int64_t n = 0;
        bytes += (double)e->bytes;
        if (own && hk_shape_count(e->shape, &n) == HK_OK) {
            elements += (double)n;
            model++;
        }
        if (!own && !all)
            continue;
        printf("  %-40s %-8s ", e->name, e->type_name);
        print_shape(e->shape);
        if (stats)
            damaged += !statistics(c, e);
        printf("\n");
    }
    printf("%zu tensors of the model, %s values; %zu in all, %s\n", model,
           cli_number(elements), info.entry_count, cli_bytes(bytes));
    if (!all && model < info.entry_count)
        printf("(--all shows optimizer, averages and workers as well)\n");
    return damaged ? cli_fail("%s: damaged tensors: %zu", info.path, damaged)
                   : 0;
}

static int checkpoint(const char *path, const cli_args *a) {
    static const char *const formats[] = {[HK_CKPT_SAFETENSORS] = "safetensors",
                                          [HK_CKPT_TF] = "TensorFlow V2",
                                          [HK_CKPT_NPZ] = "NumPy archive"};
    CLI_SCOPED(hk_ckpt_close_at) hk_ckpt *c = NULL;
    const hk_status s = hk_ckpt_open(path, HK_CKPT_AUTO, &c);
    if (s != HK_OK)
        return cli_status(s);
    hk_ckpt_info info;
    hk_ckpt_get_info(c, &info);
    printf("%s: %s checkpoint\n", info.path, formats[info.format]);
    return list_tensors(c, a);
}

// ---- event files -----------------------------------------------------------

static int events(const char *path, const cli_args *a) {
    (void)a;
    hk_event_reader *r;
    hk_status s = hk_event_reader_open(path, &r);
    if (s != HK_OK)
        return cli_status(s);
    struct {
        char *tag;
        long n;
        double first, last, value;
    } tags[256];
    size_t n = 0;
    long others = 0;
    hk_event e;
    while ((s = hk_event_next(r, &e)) == HK_OK) {
        if (e.kind == HK_EVENT_VERSION)
            continue;
        size_t i = 0;
        while (i < n && strcmp(tags[i].tag, e.tag) != 0)
            i++;
        if (i == n && n < 256) {
            tags[n].tag = cli_strdup(e.tag);
            tags[n].n = 0;
            tags[n++].first = (double)e.step;
        } else if (i == n) {
            others++;
            continue;
        }
        tags[i].n++;
        tags[i].last = (double)e.step;
        tags[i].value = e.kind == HK_EVENT_SCALAR ? e.scalar : (double)NAN;
    }
    printf("%s: TensorBoard events%s\n", path,
           hk_event_reader_truncated(r) ? " (the last record is incomplete)"
                                        : "");
    for (size_t i = 0; i < n; i++) {
        printf("  %-32s %6ld values, steps %.0f to %.0f",
               *tags[i].tag ? tags[i].tag : "(session)", tags[i].n,
               tags[i].first, tags[i].last);
        if (!isnan(tags[i].value))
            printf(", last %.6g", tags[i].value);
        printf("\n");
        free(tags[i].tag);
    }
    if (others)
        printf("  and %ld values of more tags\n", others);
    hk_event_reader_close(r);
    return s == HK_E_END ? 0 : cli_status(s);
}

// ---- data ------------------------------------------------------------------

static hk_status describe(void *user, const char *key, size_t size, int list,
                          hk_dtype stored, int64_t count) {
    (void)user;
    printf("  %-32.*s %s%s x %lld\n", (int)size, key, list ? "list of " : "",
           stored == HK_F32   ? "float"
           : stored == HK_I64 ? "int64"
                              : "bytes",
           (long long)count);
    return HK_OK;
}

static int tfrecord(const char *path) {
    CLI_SCOPED(hk_dataset_release_at)
    hk_dataset *d = hk_data_tfrecord(&path, 1, NULL);
    CLI_SCOPED(hk_iter_destroy_at) hk_iter *it = NULL;
    hk_status s = hk_iter_create(d, NULL, &it);
    const hk_element *e;
    long n = 0;
    double bytes = 0;
    while (s == HK_OK && (s = hk_iter_next(it, &e)) == HK_OK) {
        const void *p;
        size_t size;
        s = hk_tensor_get_string(e->values[0].tensor, 0, &p, &size);
        if (s == HK_OK && n == 0) {
            printf("%s: TFRecord; the first record holds\n", path);
            if (hk_example_describe(p, size, 0, describe, NULL) != HK_OK)
                printf("  %zu bytes that are not a tf.train.Example\n", size);
        }
        bytes += (double)size;
        n++;
    }
    if (s != HK_E_END && n == 0)
        return cli_fail("%s: unknown kind of file; read as TFRecord: %s", path,
                        hk_last_error());
    if (s != HK_E_END)
        return cli_status(s);
    printf("%ld records, %s, checksums good\n", n, cli_bytes(bytes));
    return 0;
}

static int array(const char *path, bool idx) {
    hk_tensor *t;
    const hk_status s = hk_array_read(path, NULL, NULL, &t);
    if (s != HK_OK)
        return cli_status(s);
    printf("%s: %s, %s ", path, idx ? "IDX" : "NumPy array",
           hk_dtype_name(hk_tensor_dtype(t)));
    print_shape(hk_tensor_shape(t));
    printf("\n");
    hk_tensor_release(t);
    return 0;
}

// ---- center files ----------------------------------------------------------

// The head of a center file (docs/formats/center-file.md).
typedef struct center_head {
    char magic[8];
    uint32_t endian, version;
    uint64_t fingerprint, plan;
    uint32_t method, max_workers, chunk_floats, n_vectors;
    uint32_t n_undo, shard, n_shards, n_chunks;
    uint64_t first_float, n_floats, max_floats;
    uint64_t layout_at, layout_bytes, worker_at, chunk_at, side_at, side_bytes;
    uint64_t undo_at, undo_stride, vector_at, vector_stride, file_bytes, check;
    uint64_t clean, run_id, initialised;
} center_head;

// A center that runs has its file to itself.
static int center_values(const char *path, const cli_args *a) {
    CLI_SCOPED(hk_ckpt_close_at) hk_ckpt *c = NULL;
    if (hk_weights_open(path, &c) != HK_OK) {
        printf("  values       cannot be read: %s\n", hk_last_error());
        return 0;
    }
    printf("  global step  %s\n", hk_ckpt_meta(c, "hooke.step"));
    return list_tensors(c, a);
}

static int inspect_center(const char *path, const cli_args *a) {
    center_head h;
    FILE *f = fopen(path, "rb");
    if (!f)
        return cli_fail("%s: %s", path, strerror(errno));
    const bool whole = fread(&h, sizeof h, 1, f) == 1;
    fclose(f);
    if (!whole)
        return cli_fail("%s: center file, truncated in its header", path);
    const char *method = hk_method_name((hk_method)h.method);
    printf("%s: center file, version %u\n", path, h.version);
    printf("  shard        %u of %u: floats %llu to %llu\n", h.shard + 1,
           h.n_shards, (unsigned long long)h.first_float,
           (unsigned long long)h.first_float + h.n_floats);
    printf("  method       %s, %u vectors, chunks of %s\n",
           method ? method : "unknown", h.n_vectors,
           cli_bytes((double)h.chunk_floats * 4));
    printf("  model        fingerprint %016llx\n",
           (unsigned long long)h.fingerprint);
    printf("  state        %s, %s\n", h.initialised ? "has values" : "empty",
           h.clean ? "closed normally"
                   : "not closed: a center is using the file, or the last one "
                     "was killed");
    return h.initialised ? center_values(path, a) : 0;
}

// ---- which it is -----------------------------------------------------------

// What belongs to runs is read from this machine only.
static int file_of_run(const char *path, const cli_args *a,
                       int (*show)(const char *, const cli_args *)) {
    return cli_is_url(path) ? cli_fail("%s: files of runs are read from this "
                                       "machine only; download them first",
                                       path)
                            : show(path, a);
}

// ---- tar archives ----------------------------------------------------------

enum { MOST_MEMBERS = 20 }; // that are named

typedef struct archive {
    size_t n;
    double bytes;
} archive;

static hk_status show_member(void *user, const char *name, uint64_t size) {
    archive *all = user;
    if (all->n++ < MOST_MEMBERS)
        printf("%10s  %s\n", cli_bytes((double)size), name);
    all->bytes += (double)size;
    return HK_OK;
}

static int tar_archive(const char *path) {
    archive all = {0};
    CLI_TRY(cli_status(hk_tar_list(path, NULL, show_member, &all)));
    if (all.n > MOST_MEMBERS)
        printf("%10s  %zu more\n", "", all.n - MOST_MEMBERS);
    printf("%s: tar archive, %zu files, %s\n", path, all.n,
           cli_bytes(all.bytes));
    return 0;
}

static int file(const char *path, const cli_args *a) {
    unsigned char head[16] = {0};
    size_t n = 0;
    const hk_status s = hk_file_head(path, head, sizeof head, &n);
    if (s != HK_OK)
        return cli_status(s);
    if (n == 0) {
        printf("%s: empty\n", path);
        return 0;
    }
    if (is_table_name(path))
        return inspect_table(path);
    if (is_experiment_name(path))
        return cli_fail("%s: is an experiment; hooke train and hooke doctor "
                        "read it",
                        path);
    const char *kind = file_kind(path);
    if (cli_ends(path, ".tar") || cli_ends(path, ".tar.gz") ||
        cli_ends(path, ".tgz") || (kind && strstr(kind, "tar archive")))
        return tar_archive(path);
    if (kind && (strstr(kind, "Excel") || strstr(kind, "zip") ||
                 strstr(kind, "Parquet")))
        return cli_fail("%s: is %s; tables are read as CSV", path, kind);
    if (strstr(path, "tfevents"))
        return file_of_run(path, a, events);
    if (n >= 6 && memcmp(head, "\x93NUMPY", 6) == 0)
        return array(path, false);
    if (cli_ends(path, ".npz") || cli_ends(path, ".index") ||
        cli_ends(path, ".index.json") || (n > 8 && head[8] == '{'))
        return file_of_run(path, a, checkpoint);
    if (n >= 8 && memcmp(head, "HKCENTER", 8) == 0)
        return file_of_run(path, a, inspect_center);
    if (strstr(path, "idx") || (n >= 4 && !head[0] && !head[1] && head[2]))
        return array(path, true);
    return tfrecord(path);
}

static int folder(const char *path, const cli_args *a) {
    char latest[4096];
    if (hk_latest_checkpoint(path, latest, sizeof latest, NULL) == HK_OK)
        return checkpoint(latest, a);
    series_set s = {0};
    if (!series_any(path))
        return cli_fail("%s: a folder with neither checkpoints nor event files",
                        path);
    const int failed = series_read(&s, path);
    for (size_t i = 0; i < s.count && !failed; i++)
        printf("%s%s%s: %zu values, last %.6g\n", s.list[i].folder,
               *s.list[i].folder ? "/" : "", s.list[i].tag, s.list[i].count,
               series_last(&s.list[i]));
    series_free(&s);
    return failed;
}

static int run(const cli_args *a) {
    const char *path = cli_operand(a, 0);
    struct stat st;
    if (cli_is_url(path))
        return file(path, a);
    const bool there = stat(path, &st) == 0;
    if (there && S_ISDIR(st.st_mode))
        return folder(path, a);
    if (!there) { // the prefix of a TensorFlow checkpoint has no file
        char *index = cli_printf("%s.index", path);
        const bool prefix = stat(index, &st) == 0;
        free(index);
        return prefix ? checkpoint(path, a)
                      : cli_fail("%s: %s", path, strerror(ENOENT));
    }
    return S_ISFIFO(st.st_mode)
               ? cli_fail("%s: is a pipe; save its content to a file first",
                          path)
               : file(path, a);
}

static const cli_option options[] = {
    CLI_SWITCH("all", 0, "checkpoints: all sections, not only the model"),
    CLI_SWITCH(
        "stats", 0,
        "checkpoints: mean, standard deviation and range of every tensor"),
    {0}};

const cli_command cmd_inspect = {
    .name = "inspect",
    .operands = "PATH",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "show the kind and content of a file",
    .about = "Recognizes checkpoints (safetensors, TensorFlow, NumPy), event "
             "files, TFRecord, CSV, IDX, npy, tar and center files. A "
             "model_dir shows its newest checkpoint.",
    .examples = "hooke inspect runs/digits --stats\n"
                "hooke inspect train.tfrecord",
    .options = options,
    .run = run};
