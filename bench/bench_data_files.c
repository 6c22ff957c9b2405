// bench_data_files.c - how fast files become batches, on one thread.
//
//     bench_data_files [--rounds N] [--rows N] [--dir FOLDER] [--adult FILE]
//                      [--case NAME] [--isa 1|2|3] [--keep]
//
// Each case is measured against the floor it is held to, in turns: reading the
// same file through a buffer of the same size and checking its checksums
// (TFRecord), or looking for its line ends with memchr (CSV; csv_adult_scan
// leaves the reading out of the floor). Prints one JSON object a case: the
// best processor seconds of either side and the median of the rounds' ratios.
// The files are made first, in FOLDER (default: TMPDIR or /tmp), and removed
// afterwards unless --keep is given; rows like Adult's are made when no file is
// given. --isa holds Hooke's kernels to a level of hk_isa (2: AVX2, 3:
// AVX-512).
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "bench.h"
#include "codec/codec.h"
#include "hooke/digits.h"
#include "hooke/files.h"
#include "hooke/writers.h"

enum {
    BATCH = 128,
    MAX_ROUNDS = 101,
    DENSE = 13,
    SPARSE = 26,
    PASSES = 8 // over the CSV file, which is small
};

static const size_t buffer_bytes = (size_t)256 << 10;
static volatile uint64_t sink; // keeps the floors from being optimised away

// Processor time of this thread, reads included: other load on the machine
// disturbs it little.
static double now(void) {
    return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

// ---- files -----------------------------------------------------------------

static const char *folder, *adult;
static hk_context *context; // NULL: the machine's best level
static int64_t n_rows = 60000;

static char *path_in(const char *name) {
    char *const p = malloc(strlen(folder) + strlen(name) + 32);
    snprintf(p, strlen(folder) + strlen(name) + 32, "%s/hooke-bench-%d-%s",
             folder, (int)getpid(), name);
    return p;
}

// Pictures of 28 x 28 bytes with a label, as MNIST.
static char *make_mnist(void) {
    char *const path = path_in("mnist.tfrecord");
    hk_record_writer *w;
    hk_example_builder *b;
    OK(hk_record_writer_create(path, NULL, &w));
    OK(hk_example_builder_create(&b));
    for (int64_t i = 0; i < n_rows; i++) {
        uint8_t image[HK_DIGITS_PIXELS];
        int32_t label;
        const void *bytes;
        size_t size;
        OK(hk_digits_draw(NULL, (uint64_t)i % 2000, 1, HK_U8, image, &label));
        const int64_t wide = label;
        OK(hk_example_add(b, "image_raw", HK_STRING,
                          &(hk_bytes){image, sizeof image}, 1));
        OK(hk_example_add(b, "label", HK_I64, &wide, 1));
        OK(hk_example_finish(b, &bytes, &size));
        OK(hk_record_write(w, bytes, size));
    }
    hk_example_builder_destroy(b);
    OK(hk_record_writer_close(w));
    return path;
}

// 13 floats, 26 codes and a label, as Criteo's rows after preprocessing.
static char *make_criteo(void) {
    char *const path = path_in("criteo.tfrecord");
    hk_record_writer *w;
    hk_example_builder *b;
    hki_rng rng;
    hki_rng_init(&rng, 1, 0);
    OK(hk_record_writer_create(path, NULL, &w));
    OK(hk_example_builder_create(&b));
    for (int64_t i = 0; i < n_rows; i++) {
        const void *bytes;
        size_t size;
        char name[8];
        const int64_t label = hki_rng_below(&rng, 5) == 0;
        OK(hk_example_add(b, "label", HK_I64, &label, 1));
        for (int k = 1; k <= DENSE; k++) {
            const float v = (float)hki_rng_uniform(&rng);
            snprintf(name, sizeof name, "I%d", k);
            OK(hk_example_add(b, name, HK_F32, &v, 1));
        }
        for (int k = 1; k <= SPARSE; k++) {
            // Mostly small numbers, some of hash size.
            const int64_t v = (int64_t)hki_rng_below(
                &rng, hki_rng_below(&rng, 4) == 0 ? 1000000 : 1000);
            snprintf(name, sizeof name, "C%d", k);
            OK(hk_example_add(b, name, HK_I64, &v, 1));
        }
        OK(hk_example_finish(b, &bytes, &size));
        OK(hk_record_write(w, bytes, size));
    }
    hk_example_builder_destroy(b);
    OK(hk_record_writer_close(w));
    return path;
}

// Rows with the columns and word lengths of Adult.
static char *make_adult(void) {
    static const char *const work[] = {"Private", "Self-emp-not-inc", "?",
                                       "Local-gov"};
    static const char *const school[] = {"HS-grad", "Some-college", "Bachelors",
                                         "Assoc-voc"};
    char *const path = path_in("adult.csv");
    FILE *const f = fopen(path, "w");
    hki_rng rng;
    hki_rng_init(&rng, 2, 0);
    if (f == NULL)
        exit(1);
    for (int i = 0; i < 32561; i++)
        fprintf(f,
                "%d, %s, %d, %s, %d, Married-civ-spouse, Exec-managerial, "
                "Husband, White, Male, %d, 0, %d, United-States, %s\n",
                17 + (int)hki_rng_below(&rng, 60), work[hki_rng_below(&rng, 4)],
                20000 + (int)hki_rng_below(&rng, 400000),
                school[hki_rng_below(&rng, 4)],
                1 + (int)hki_rng_below(&rng, 15),
                hki_rng_below(&rng, 12) == 0 ? 7688 : 0,
                20 + (int)hki_rng_below(&rng, 40),
                hki_rng_below(&rng, 4) == 0 ? ">50K" : "<=50K");
    fclose(f);
    return path;
}

// ---- floors ----------------------------------------------------------------

static int open_file(const char *path) {
    const int fd = open(path, O_RDONLY);
    if (fd < 0) {
        perror(path);
        exit(1);
    }
    return fd;
}

// Reads the file and checks both checksums of every record.
static void floor_records(const char *path) {
    const int fd = open_file(path);
    uint8_t *const buf = malloc(buffer_bytes);
    size_t have = 0;
    uint64_t n = 0;
    for (;;) {
        const ssize_t got = read(fd, buf + have, buffer_bytes - have);
        if (got < 0)
            exit(1);
        have += (size_t)got;
        size_t at = 0;
        const uint8_t *data;
        size_t size;
        hki_record_state state;
        while ((state = hki_record_parse(buf + at, have - at, &data, &size)) ==
               HKI_RECORD_WHOLE) {
            at += HKI_RECORD_HEADER + size + HKI_RECORD_FOOTER;
            n++;
        }
        have -= at;
        memmove(buf, buf + at, have);
        if (got == 0)
            break;
        if (state != HKI_RECORD_TRUNCATED && state != HKI_RECORD_END)
            exit(1);
    }
    sink = n;
    free(buf);
    close(fd);
}

static uint64_t count_lines(const uint8_t *p, size_t n) {
    const uint8_t *const end = p + n;
    uint64_t lines = 0;
    while (p < end && (p = memchr(p, '\n', (size_t)(end - p))) != NULL) {
        lines++;
        p++;
    }
    return lines;
}

static void floor_lines(const char *path) {
    uint8_t *const buf = malloc(buffer_bytes);
    uint64_t n = 0;
    for (int i = 0; i < PASSES; i++) {
        const int fd = open_file(path);
        ssize_t got;
        while ((got = read(fd, buf, buffer_bytes)) > 0)
            n += count_lines(buf, (size_t)got);
        close(fd);
    }
    sink = n;
    free(buf);
}

// The same over bytes that are in memory already.
static void floor_scan(const char *path) {
    static uint8_t *bytes;
    static size_t size;
    if (bytes == NULL) {
        const int fd = open_file(path);
        size = (size_t)lseek(fd, 0, SEEK_END);
        bytes = malloc(size);
        if (pread(fd, bytes, size, 0) != (ssize_t)size)
            exit(1);
        close(fd);
    }
    for (int i = 0; i < PASSES; i++)
        sink = count_lines(bytes, size);
}

// ---- Hooke -----------------------------------------------------------------

// One pass over the dataset (taken), on this thread alone.
static void run(hk_dataset *d) {
    hk_iter_options o;
    hk_iter *it;
    const hk_element *e;
    uint64_t n = 0;
    OK(hk_dataset_status(d));
    hk_iter_options_init(&o, sizeof o);
    o.threads = 1;
    o.context = context;
    OK(hk_iter_create(d, &o, &it));
    hk_status s;
    while ((s = hk_iter_next(it, &e)) == HK_OK)
        n += e->count;
    if (s != HK_E_END) {
        fprintf(stderr, "%s\n", hk_last_error());
        exit(1);
    }
    hk_iter_destroy(it);
    hk_dataset_release(d);
    sink = n;
}

static void ours_mnist(const char *path) {
    const hk_example_feature features[] = {
        {.name = "image_raw",
         .kind = HK_RAW_LEN,
         .dtype = HK_F32,
         .stored = HK_U8,
         .shape = hk_shape_make(1, (int64_t[]){HK_DIGITS_PIXELS})},
        {.name = "label",
         .kind = HK_FIXED_LEN,
         .dtype = HK_I64,
         .role = HK_LABEL},
    };
    hk_dataset *d = hk_data_tfrecord(&path, 1, NULL);
    d = hk_data_parse_example(d, features, HKI_COUNT(features), NULL);
    run(hk_data_batch(d, BATCH, 0));
}

static void ours_criteo(const char *path) {
    static char names[DENSE + SPARSE][8];
    hk_example_feature features[1 + DENSE + SPARSE] = {
        {.name = "label",
         .kind = HK_FIXED_LEN,
         .dtype = HK_I64,
         .role = HK_LABEL},
    };
    for (int k = 0; k < DENSE + SPARSE; k++) {
        snprintf(names[k], sizeof names[k], k < DENSE ? "I%d" : "C%d",
                 k < DENSE ? k + 1 : k - DENSE + 1);
        features[1 + k] = (hk_example_feature){
            .name = names[k],
            .kind = HK_FIXED_LEN,
            .dtype = k < DENSE ? HK_F32 : HK_I64,
        };
    }
    hk_dataset *d = hk_data_tfrecord(&path, 1, NULL);
    d = hk_data_parse_example(d, features, HKI_COUNT(features), NULL);
    run(hk_data_batch(d, BATCH, 0));
}

static void ours_adult(const char *path) {
    static const char *const missing[] = {"?"};
    static const char *const classes[] = {"<=50K", ">50K"};
    const hk_csv_column columns[] = {
        {.name = "age", .dtype = HK_F32},
        {.name = "workclass", .dtype = HK_STRING},
        {.name = "fnlwgt", .dtype = HK_F32},
        {.name = "education", .dtype = HK_STRING},
        {.name = "education_num", .dtype = HK_F32},
        {.name = "marital_status", .dtype = HK_STRING},
        {.name = "occupation", .dtype = HK_STRING},
        {.name = "relationship", .dtype = HK_STRING},
        {.name = "race", .dtype = HK_STRING},
        {.name = "sex", .dtype = HK_STRING},
        {.name = "capital_gain", .dtype = HK_F32},
        {.name = "capital_loss", .dtype = HK_F32},
        {.name = "hours_per_week", .dtype = HK_F32},
        {.name = "native_country", .dtype = HK_STRING},
        {.name = "income",
         .dtype = HK_I32,
         .role = HK_LABEL,
         .strip = ".",
         .vocabulary = classes,
         .n_vocabulary = 2},
    };
    hk_csv_options o;
    hk_csv_options_init(&o, sizeof o);
    o.columns = columns;
    o.n_columns = HKI_COUNT(columns);
    o.missing = missing;
    o.n_missing = 1;
    o.trim = 1;
    o.comment = '|';
    const char *files[PASSES];
    for (int i = 0; i < PASSES; i++)
        files[i] = path;
    run(hk_data_batch(hk_data_csv(files, PASSES, &o), 2 * BATCH, 0));
}

// ---- cases -----------------------------------------------------------------

static const struct bench {
    const char *name;
    char *(*make)(void); // NULL: the file of the case before
    void (*floor)(const char *path);
    void (*ours)(const char *path);
    double target;
    int passes;
} benches[] = {
    {"tfrecord_mnist", make_mnist, floor_records, ours_mnist, 0.5, 1},
    {"tfrecord_criteo", make_criteo, floor_records, ours_criteo, 0.5, 1},
    {"csv_adult", make_adult, floor_lines, ours_adult, 0.15, PASSES},
    {"csv_adult_scan", make_adult, floor_scan, ours_adult, 0.15, PASSES},
};

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double timed(void (*fn)(const char *), const char *path) {
    const double start = now();
    fn(path);
    return now() - start;
}

static void measure(const struct bench *b, const char *path, int rounds) {
    double ratio[MAX_ROUNDS], ours = 1e9, floor = 1e9;
    const int fd = open_file(path);
    const double bytes = (double)lseek(fd, 0, SEEK_END) * b->passes;
    close(fd);
    b->floor(path); // warms the page cache
    b->ours(path);
    for (int i = 0; i < rounds; i++) {
        const double f = timed(b->floor, path), o = timed(b->ours, path);
        ratio[i] = f / o;
        ours = o < ours ? o : ours;
        floor = f < floor ? f : floor;
    }
    qsort(ratio, (size_t)rounds, sizeof *ratio, by_value);
    fprintf(stdout,
            "{\"case\": \"%s\", \"bytes\": %.0f, \"ours_s\": %.6f, "
            "\"floor_s\": %.6f, \"ours_mb_s\": %.1f, \"floor_mb_s\": %.1f, "
            "\"ratio\": %.3f, \"target\": %.2f}\n",
            b->name, bytes, ours, floor, bytes / ours * 1e-6,
            bytes / floor * 1e-6, ratio[rounds / 2], b->target);
    fflush(stdout);
}

static void limit_isa(const char *level) {
    hk_context_options o;
    hk_context_options_init(&o, sizeof o);
    o.isa = (hk_isa)strtol(level, NULL, 10);
    OK(hk_context_create(&o, &context));
}

int main(int argc, char **argv) {
    int rounds = 9;
    bool keep = false;
    const char *only = NULL;
    folder = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";
    for (int i = 1; i < argc; i++) {
        const bool more = i + 1 < argc;
        if (strcmp(argv[i], "--keep") == 0)
            keep = true;
        else if (more && strcmp(argv[i], "--rounds") == 0)
            rounds = (int)strtol(argv[++i], NULL, 10);
        else if (more && strcmp(argv[i], "--rows") == 0)
            n_rows = strtoll(argv[++i], NULL, 10);
        else if (more && strcmp(argv[i], "--dir") == 0)
            folder = argv[++i];
        else if (more && strcmp(argv[i], "--adult") == 0)
            adult = argv[++i];
        else if (more && strcmp(argv[i], "--case") == 0)
            only = argv[++i];
        else if (more && strcmp(argv[i], "--isa") == 0)
            limit_isa(argv[++i]);
        else
            return 2;
    }
    rounds = rounds < 1 ? 1 : rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds;
    for (size_t i = 0; i < HKI_COUNT(benches); i++) {
        const struct bench *const b = &benches[i];
        if (only != NULL && strcmp(only, b->name) != 0)
            continue;
        const bool given = b->make == make_adult && adult != NULL;
        char *const made = given ? NULL : b->make();
        measure(b, given ? adult : made, rounds);
        if (made != NULL && keep)
            fprintf(stderr, "%s: %s\n", b->name, made);
        else if (made != NULL)
            unlink(made);
        free(made);
    }
    hk_context_destroy(context);
    return 0;
}
