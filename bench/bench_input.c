// bench_input.c - one worker's training input: leased, shuffled, in batches.
//
//     bench_input --make FORMAT --file FILE [--labels FILE] [--rows N]
//     bench_input --format FORMAT --file FILE [--labels FILE] [--workers N]
//                 [--worker I] [--epochs N] [--shuffle N]
//
// FORMAT is csv (6 numbers, 8 words and a class a row), tfrecord (pictures of
// 28 x 28 bytes and a class as tf.train.Example) or idx (the same pictures;
// --labels has the classes). The first form makes the files. The second runs
// the worker's part of so many epochs on one thread, after one that is not
// counted, and prints one JSON object: examples, processor seconds, bytes read
// and a sum over the classes that every reader of the file has to come to.
// bench/run_input.py holds it against tf.data and PyTorch.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "bench.h"
#include "data/data.h"
#include "fetch/fetch.h"
#include "hooke/digits.h"
#include "hooke/files.h"
#include "hooke/writers.h"

enum { BATCH = 128, WORDS = 8 };

typedef struct task {
    const char *format, *file, *labels;
    int64_t rows, workers, worker, epochs, shuffle;
} task;

// ---- files -----------------------------------------------------------------

static void make_csv(const task *t) {
    static const char *const words[] = {"Private",         "Self-emp-not-inc",
                                        "Bachelors",       "Married-civ-spouse",
                                        "Exec-managerial", "United-States"};
    FILE *const f = fopen(t->file, "w");
    hki_rng rng;
    hki_rng_init(&rng, 2, 0);
    if (f == NULL)
        exit(1);
    for (int64_t i = 0; i < t->rows; i++) {
        fprintf(f, "%d,%d,%d,%d,0,%.2f", 17 + (int)hki_rng_below(&rng, 60),
                20000 + (int)hki_rng_below(&rng, 400000),
                1 + (int)hki_rng_below(&rng, 15),
                hki_rng_below(&rng, 12) == 0 ? 7688 : 0,
                hki_rng_uniform(&rng) * 40);
        for (int k = 0; k < WORDS; k++)
            fprintf(f, ",%s", words[hki_rng_below(&rng, HKI_COUNT(words))]);
        fprintf(f, ",%d\n", (int)hki_rng_below(&rng, 10));
    }
    fclose(f);
}

static void draw(int64_t i, uint8_t image[HK_DIGITS_PIXELS], int32_t *label) {
    OK(hk_digits_draw(NULL, (uint64_t)i % 2000, 1, HK_U8, image, label));
}

static void make_tfrecord(const task *t) {
    hk_record_writer *w;
    hk_example_builder *b;
    OK(hk_record_writer_create(t->file, NULL, &w));
    OK(hk_example_builder_create(&b));
    for (int64_t i = 0; i < t->rows; i++) {
        uint8_t image[HK_DIGITS_PIXELS];
        int32_t label;
        const void *bytes;
        size_t size;
        draw(i, image, &label);
        const int64_t wide = label;
        OK(hk_example_add(b, "image_raw", HK_STRING,
                          &(hk_bytes){image, sizeof image}, 1));
        OK(hk_example_add(b, "label", HK_I64, &wide, 1));
        OK(hk_example_finish(b, &bytes, &size));
        OK(hk_record_write(w, bytes, size));
    }
    hk_example_builder_destroy(b);
    OK(hk_record_writer_close(w));
}

static FILE *idx_file(const char *path, int64_t rows, int rank) {
    const uint32_t dims[] = {(uint32_t)rows, 28, 28};
    FILE *const f = fopen(path, "w");
    if (f == NULL)
        exit(1);
    const uint8_t head[] = {0, 0, 8, (uint8_t)rank};
    fwrite(head, 1, 4, f);
    for (int i = 0; i < rank; i++) {
        const uint32_t big = __builtin_bswap32(dims[i]);
        fwrite(&big, 4, 1, f);
    }
    return f;
}

static void make_idx(const task *t) {
    FILE *const images = idx_file(t->file, t->rows, 3);
    FILE *const labels = idx_file(t->labels, t->rows, 1);
    for (int64_t i = 0; i < t->rows; i++) {
        uint8_t image[HK_DIGITS_PIXELS];
        int32_t label;
        draw(i, image, &label);
        fwrite(image, 1, sizeof image, images);
        fputc(label, labels);
    }
    fclose(images);
    fclose(labels);
}

// ---- Hooke -----------------------------------------------------------------

static hk_dataset *open_csv(const task *t) {
    static char names[6 + WORDS + 1][8];
    hk_csv_column columns[6 + WORDS + 1];
    const size_t n = HKI_COUNT(columns);
    for (size_t k = 0; k < n; k++) {
        snprintf(names[k], sizeof names[k], "c%zu", k);
        columns[k] = (hk_csv_column){.name = names[k],
                                     .dtype = k < 6       ? HK_F32
                                              : k < n - 1 ? HK_STRING
                                                          : HK_I64};
    }
    columns[n - 1].role = HK_LABEL;
    hk_csv_options o;
    hk_csv_options_init(&o, sizeof o);
    o.columns = columns;
    o.n_columns = n;
    o.n_fields = (int64_t)n;
    return hk_data_csv(&t->file, 1, &o);
}

static hk_dataset *open_tfrecord(const task *t) {
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
    return hk_data_parse_example(hk_data_tfrecord(&t->file, 1, NULL), features,
                                 HKI_COUNT(features), NULL);
}

static hk_dataset *open_idx(const task *t) {
    const hk_array_file files[] = {
        {.name = "image_raw", .path = t->file},
        {.name = "label", .path = t->labels, .role = HK_LABEL}};
    return hk_data_normalize(hk_data_arrays(files, 2, NULL), "image_raw", 1,
                             NULL, NULL, 1);
}

static const struct {
    const char *name;
    void (*make)(const task *t);
    hk_dataset *(*open)(const task *t);
} formats[] = {{"csv", make_csv, open_csv},
               {"tfrecord", make_tfrecord, open_tfrecord},
               {"idx", make_idx, open_idx}};

static int64_t classes_of(const hk_element *e, int64_t *sum) {
    const hk_tensor *const t = e->values[e->count - 1].tensor;
    const int64_t n = hk_tensor_count(t);
    for (int64_t i = 0; i < n; i++)
        *sum += hk_tensor_dtype(t) == HK_U8
                    ? ((const uint8_t *)hk_tensor_data(t))[i]
                    : ((const int64_t *)hk_tensor_data(t))[i];
    return n;
}

// The worker's part of an epoch; returns its examples.
static int64_t run_epoch(hk_dataset *d, const task *t, int64_t epoch,
                         int64_t *sum) {
    const int64_t units = hki_data_units(d);
    const hki_lease lease = {.epoch = epoch,
                             .begin = units * t->worker / t->workers,
                             .end = units * (t->worker + 1) / t->workers};
    hk_dataset *part = hki_data_lease(hk_dataset_retain(d), &lease, 1);
    part = hk_data_batch(hk_data_shuffle(part, t->shuffle, epoch, 1), BATCH, 0);
    hk_iter_options o;
    hk_iter *it;
    const hk_element *e;
    int64_t n = 0;
    hk_iter_options_init(&o, sizeof o);
    o.threads = 1;
    OK(hk_dataset_status(part));
    OK(hk_iter_create(part, &o, &it));
    while (hk_iter_next(it, &e) == HK_OK)
        n += classes_of(e, sum);
    hk_iter_destroy(it);
    hk_dataset_release(part);
    return n;
}

static void run(const task *t, hk_dataset *d) {
    int64_t n = 0, sum = 0, ignored = 0;
    OK(hk_dataset_status(d));
    (void)run_epoch(d, t, 0, &ignored);
    const uint64_t bytes = hki_input_bytes();
    const double start = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    for (int64_t e = 1; e <= t->epochs; e++)
        n += run_epoch(d, t, e, &sum);
    const double s = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - start;
    fprintf(stdout,
            "{\"examples\": %lld, \"seconds\": %.6f, \"bytes\": %llu, "
            "\"sum\": %lld}\n",
            (long long)n, s, (unsigned long long)(hki_input_bytes() - bytes),
            (long long)sum);
    hk_dataset_release(d);
}

int main(int argc, char **argv) {
    task t = {.rows = 60000, .workers = 1, .epochs = 3, .shuffle = 10000};
    const char *make = NULL;
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *const v = argv[i + 1];
        const struct {
            const char *flag;
            const char **text;
            int64_t *number;
        } flags[] = {
            {"--make", &make, NULL},        {"--format", &t.format, NULL},
            {"--file", &t.file, NULL},      {"--labels", &t.labels, NULL},
            {"--rows", NULL, &t.rows},      {"--workers", NULL, &t.workers},
            {"--worker", NULL, &t.worker},  {"--epochs", NULL, &t.epochs},
            {"--shuffle", NULL, &t.shuffle}};
        for (size_t k = 0; k < HKI_COUNT(flags); k++) {
            if (strcmp(argv[i], flags[k].flag) != 0)
                continue;
            if (flags[k].text != NULL)
                *flags[k].text = v;
            else
                *flags[k].number = strtoll(v, NULL, 10);
        }
    }
    const char *const name = make != NULL ? make : t.format;
    for (size_t k = 0; name != NULL && t.file != NULL && k < HKI_COUNT(formats);
         k++)
        if (strcmp(formats[k].name, name) == 0) {
            if (make != NULL)
                formats[k].make(&t);
            else
                run(&t, formats[k].open(&t));
            return 0;
        }
    fprintf(stderr, "bench_input: which format, which file?\n");
    return 2;
}
