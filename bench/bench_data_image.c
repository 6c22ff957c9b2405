// bench_data_image.c - how fast pictures and table rows become batches, on one
// thread.
//
//     bench_data_image [--rounds N] [--case NAME] [--shard FILE.tar.gz]
//
// Each case is measured against a bare loop of the same work, in turns:
//     jpeg_small  pictures of 32 x 32 (those of the shard, or made up) to
//                 uint8 batches; the floor is one tjDecompress2 a picture
//                 with a reused handle, the size known beforehand
//     jpeg_large  the same with pictures of 512 x 384
//     augment     pad, random crop, flip, normalise; the floor is memcpy of
//                 as many bytes as come out
//     resize      224 x 224 bilinear from 320 x 240; the floor is memcpy of
//                 as many bytes as come out
//     features    rows of 13 numbers and 26 hashed words in batches; the floor
//                 takes log and hash of the same values in a loop
// Prints one JSON object a case: the best processor seconds of either side and
// the median of the rounds' ratios (floor / ours).
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#if defined(HKI_HAVE_IMAGES)
#include <turbojpeg.h>
#endif
#include "bench.h"
#include "base/io.h"
#include "codec/codec.h"
#include "data/features/feature.h"
#include "hooke/feature.h"
#include "hooke/image.h"

enum {
    BATCH = 128,
    MAX_ROUNDS = 101,
    DENSE = 13,
    WORDS = 26,
    BUCKETS = 100000
};

static int rounds = 7;
static const char *shard;

static double now(void) {
    return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

// A case: both sides do all the work once; bytes come out of either.
typedef struct bench {
    const char *name;
    double target;
    void (*make)(void);
    void (*ours)(void);
    void (*floor)(void);
} bench;

static hk_iter *pipeline; // of a dataset without end
static int64_t elements;  // a round takes
static double bytes;

static void run_pipeline(void) {
    const hk_element *e;
    for (int64_t i = 0; i < elements; i++)
        OK(hk_iter_next(pipeline, &e));
}

static hk_value value_of(const char *name, hk_tensor *t) {
    return (hk_value){.name = name,
                      .role = HK_FEATURE,
                      .form = HK_DENSE_FORM,
                      .dtype = hk_tensor_dtype(t),
                      .shape = hk_tensor_shape(t),
                      .tensor = t};
}

// Takes a dataset of n elements, runs it on one thread.
static void use(hk_dataset *d, int64_t n) {
    hk_iter_options o;
    hk_iter_options_init(&o, sizeof o);
    o.threads = 1;
    hk_iter_destroy(pipeline);
    pipeline = NULL;
    d = hk_data_repeat(d, HK_DATA_FOREVER);
    OK(hk_dataset_status(d));
    OK(hk_iter_create(d, &o, &pipeline));
    hk_dataset_release(d);
    elements = n;
}

static void images(const char *name, hk_tensor *t, const hk_image_op *ops,
                   size_t n) {
    const hk_value v = value_of(name, t);
    hk_images_options o;
    hk_images_options_init(&o, sizeof o);
    o.parallel = 1;
    hk_dataset *const d =
        hk_data_images(hk_data_slices(&v, 1), name, ops, n, &o);
    const int64_t batches = hk_tensor_shape(t).dim[0] / BATCH;
    use(hk_data_batch(d, BATCH, 1), batches);
}

static uint8_t noise(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return (uint8_t)(*state >> 24);
}

#if defined(HKI_HAVE_IMAGES)

// ---- JPEG -----------------------------------------------------------------

static hk_tensor *files; // strings
static int high, wide;
static uint8_t *pixels; // one batch of the floor's

static void add_file(int64_t i, const void *data, size_t size) {
    OK(hk_tensor_set_string(files, i, data, size));
}

static hk_tensor *new_files(int64_t n) {
    const hk_shape shape = hk_shape_make(1, &n);
    hk_tensor *t = NULL;
    OK(hk_tensor_create(HK_STRING, shape, &t));
    hk_tensor_release(files);
    return files = t;
}

// Smooth pictures with some grain, as photographs have.
static void make_files(int h, int w, int n) {
    uint8_t *const p = malloc((size_t)(h * w * 3));
    tjhandle handle = tjInitCompress();
    uint32_t seed = 1;
    new_files(n);
    for (int i = 0; i < n; i++) {
        for (int y = 0; y < h; y++)
            for (int x = 0; x < w; x++)
                for (int c = 0; c < 3; c++)
                    p[(y * w + x) * 3 + c] =
                        (uint8_t)(127 +
                                  90 * sin(0.03 * (x + i) + c) * cos(0.05 * y) +
                                  noise(&seed) / 10);
        unsigned char *out = NULL;
        unsigned long size = 0;
        tjCompress2(handle, p, w, 0, h, TJPF_RGB, &out, &size, TJSAMP_420, 75,
                    0);
        add_file(i, out, size);
        tjFree(out);
    }
    tjDestroy(handle);
    free(p);
    high = h;
    wide = w;
}

static size_t octal(const uint8_t *p) {
    size_t v = 0;
    for (int i = 0; i < 11 && p[i] >= '0' && p[i] <= '7'; i++)
        v = v * 8 + (size_t)(p[i] - '0');
    return v;
}

// The .jpg members of a tar, all of 32 x 32; fill NULL: only counted.
static int64_t read_tar(const uint8_t *tar, size_t size, bool fill) {
    int64_t n = 0;
    for (size_t at = 0; at + 512 <= size && tar[at] != 0;) {
        const size_t length = octal(tar + at + 124);
        const char *const name = (const char *)tar + at;
        if (strstr(name, ".jpg") != NULL && at + 512 + length <= size) {
            if (fill)
                add_file(n, tar + at + 512, length);
            n++;
        }
        at += 512 + (length + 511) / 512 * 512;
    }
    return n;
}

static void make_small(void) {
    if (shard == NULL) {
        make_files(32, 32, 4000);
    } else {
        uint8_t *tar;
        size_t size;
        hki_stream *s = NULL;
        hki_input *file;
        OK(hki_input_open(shard, NULL, &file));
        OK(hki_stream_open(file, HKI_GZIP, (size_t)1 << 18, &s));
        OK(hki_stream_read_all(s, (size_t)1 << 30, &tar, &size));
        hki_stream_close(s);
        new_files(read_tar(tar, size, false));
        read_tar(tar, size, true);
        hki_free(tar);
        high = wide = 32;
    }
}

static void decode_all(void) {
    const hk_image_op op = {
        .kind = HK_IMAGE_DECODE, .channels = 3, .height = high, .width = wide};
    const size_t one = (size_t)(high * wide * 3);
    free(pixels);
    pixels = malloc(one * BATCH);
    bytes = (double)one * (double)(hk_tensor_count(files) / BATCH * BATCH);
    images("jpg", files, &op, 1);
}

static void make_jpeg_small(void) {
    make_small();
    decode_all();
}

static void make_jpeg_large(void) {
    make_files(384, 512, BATCH);
    decode_all();
}

static void floor_jpeg(void) {
    const size_t one = (size_t)(high * wide * 3);
    const int64_t n = hk_tensor_count(files) / BATCH * BATCH;
    tjhandle handle = tjInitDecompress();
    for (int64_t i = 0; i < n; i++) {
        const void *file;
        size_t size;
        OK(hk_tensor_get_string(files, i, &file, &size));
        if (tjDecompress2(handle, file, size,
                          pixels + one * (size_t)(i % BATCH), wide, 0, high,
                          TJPF_RGB, 0) != 0) {
            fprintf(stderr, "%s\n", tjGetErrorStr2(handle));
            exit(1);
        }
    }
    tjDestroy(handle);
}

#endif // HKI_HAVE_IMAGES

// ---- operations -----------------------------------------------------------

static char *from, *to; // of the floor
static size_t copied;   // bytes of a batch

static void make_tensors(int64_t n, int64_t h, int64_t w,
                         const hk_image_op *ops, size_t n_ops,
                         size_t out_bytes) {
    const hk_shape shape = hk_shape_make(4, (int64_t[]){n, h, w, 3});
    hk_tensor *t;
    uint32_t seed = 2;
    OK(hk_tensor_create(HK_U8, shape, &t));
    uint8_t *const p = hk_tensor_data(t);
    for (int64_t i = 0; i < n * h * w * 3; i++)
        p[i] = noise(&seed);
    images("image", t, ops, n_ops);
    hk_tensor_release(t);
    free(from);
    free(to);
    copied = out_bytes * BATCH;
    from = calloc(copied, 1);
    to = malloc(copied);
    bytes = (double)out_bytes * (double)n;
}

static void make_augment(void) {
    static const hk_image_op ops[] = {
        {.kind = HK_IMAGE_PAD, .top = 4, .left = 4, .bottom = 4, .right = 4},
        {.kind = HK_IMAGE_RANDOM_CROP, .height = 32, .width = 32},
        {.kind = HK_IMAGE_RANDOM_FLIP_LEFT_RIGHT},
        {.kind = HK_IMAGE_NORMALIZE,
         .scale = 1 / 255.f,
         .mean = {0.49f, 0.48f, 0.45f},
         .std = {0.25f, 0.24f, 0.26f}}};
    make_tensors(80 * BATCH, 32, 32, ops, 4, 32 * 32 * 3 * sizeof(float));
}

static void make_resize(void) {
    static const hk_image_op op = {
        .kind = HK_IMAGE_RESIZE, .height = 224, .width = 224};
    make_tensors(3 * BATCH, 240, 320, &op, 1, 224 * 224 * 3);
}

static void floor_copy(void) {
    for (double done = 0; done < bytes; done += (double)copied) {
        memcpy(to, from, copied);
        __asm__ volatile("" : : "r"(to) : "memory");
    }
}

// ---- features -------------------------------------------------------------

enum { ROWS = 320 * BATCH };
static float numbers[DENSE][ROWS];
static hk_tensor *words[WORDS];
static float dense[BATCH * DENSE];
static int64_t ids[WORDS][BATCH];

static void make_features(void) {
    static char key[DENSE + WORDS][16];
    hk_value v[DENSE + WORDS];
    hk_feature_set *s;
    hk_numeric_options no;
    hk_numeric_options_init(&no, sizeof no);
    no.transform = HK_TRANSFORM_LOG;
    const int64_t n = ROWS;
    const hk_shape shape = hk_shape_make(1, &n);
    uint32_t seed = 3;
    OK(hk_feature_set_create(&s));
    for (int k = 0; k < DENSE + WORDS; k++) {
        snprintf(key[k], sizeof key[k], "f%d", k);
        hk_tensor *t;
        OK(hk_tensor_create(k < DENSE ? HK_F32 : HK_STRING, shape, &t));
        for (int64_t r = 0; r < n; r++) {
            char text[16];
            if (k < DENSE) {
                numbers[k][r] = (float)(noise(&seed) * noise(&seed));
                continue;
            }
            const int size =
                snprintf(text, sizeof text, "%02x%02x%02x%02x", noise(&seed),
                         noise(&seed), noise(&seed), noise(&seed));
            OK(hk_tensor_set_string(t, r, text, (size_t)size));
        }
        if (k < DENSE) {
            memcpy(hk_tensor_data(t), numbers[k], sizeof numbers[k]);
            hk_feature_use(s, hk_numeric_column(s, key[k], &no), HK_USE_DEEP);
        } else {
            words[k - DENSE] = hk_tensor_retain(t);
            hk_feature_use(s,
                           hk_categorical_column_with_hash_bucket(
                               s, key[k], BUCKETS, NULL),
                           HK_USE_LINEAR);
        }
        v[k] = value_of(key[k], t);
    }
    OK(hk_feature_set_finish(s));
    hk_features_options o;
    hk_features_options_init(&o, sizeof o);
    o.batched = 1;
    hk_dataset *d = hk_data_slices(v, DENSE + WORDS);
    // The batches are made once: only the columns are measured.
    d = hk_data_cache(hk_data_batch(d, BATCH, 1), NULL);
    use(hk_data_features(d, s, &o), ROWS / BATCH);
    hk_feature_set_release(s);
    for (int k = 0; k < DENSE + WORDS; k++)
        hk_tensor_release(v[k].tensor);
    bytes = (double)ROWS * (DENSE * 4 + WORDS * 8);
}

static void floor_features(void) {
    for (int64_t first = 0; first < ROWS; first += BATCH) {
        const int64_t n = BATCH;
        for (int k = 0; k < DENSE; k++)
            for (int64_t r = 0; r < n; r++)
                dense[r * DENSE + k] =
                    (float)log1p((double)numbers[k][first + r]);
        for (int k = 0; k < WORDS; k++)
            for (int64_t r = 0; r < n; r++) {
                const void *text;
                size_t size;
                hk_tensor_get_string(words[k], first + r, &text, &size);
                ids[k][r] = (int64_t)(hki_feature_hash(text, size) % BUCKETS);
            }
        __asm__ volatile("" : : "r"(dense), "r"(ids) : "memory");
    }
}

// ---- all of them ----------------------------------------------------------

static const bench benches[] = {
#if defined(HKI_HAVE_IMAGES)
    {"jpeg_small", 0.9, make_jpeg_small, run_pipeline, floor_jpeg},
    {"jpeg_large", 0.9, make_jpeg_large, run_pipeline, floor_jpeg},
#endif
    {"augment", 0, make_augment, run_pipeline, floor_copy},
    {"resize", 0, make_resize, run_pipeline, floor_copy},
    {"features", 0, make_features, run_pipeline, floor_features},
};

static double timed(void (*f)(void)) {
    const double start = now();
    f();
    return now() - start;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void run(const bench *b) {
    double ratio[MAX_ROUNDS], ours = 1e30, floor = 1e30;
    b->make();
    b->ours(); // warm
    b->floor();
    for (int i = 0; i < rounds; i++) {
        const double a = timed(b->ours), c = timed(b->floor);
        ratio[i] = c / a;
        ours = fmin(ours, a);
        floor = fmin(floor, c);
    }
    qsort(ratio, (size_t)rounds, sizeof ratio[0], by_value);
    fprintf(stdout,
            "{\"case\": \"%s\", \"bytes\": %.0f, \"ours_s\": %.6f, "
            "\"floor_s\": %.6f, \"ours_mb_s\": %.1f, \"floor_mb_s\": %.1f, "
            "\"ratio\": %.3f, \"target\": %.2f}\n",
            b->name, bytes, ours, floor, bytes / ours * 1e-6,
            bytes / floor * 1e-6, ratio[rounds / 2], b->target);
    fflush(stdout);
}

int main(int argc, char **argv) {
    const char *only = NULL;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--rounds") == 0)
            rounds = (int)strtol(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--case") == 0)
            only = argv[i + 1];
        else if (strcmp(argv[i], "--shard") == 0)
            shard = argv[i + 1];
    }
    if (rounds < 1 || rounds > MAX_ROUNDS) {
        fprintf(stderr, "--rounds is 1 to %d\n", MAX_ROUNDS);
        return 2;
    }
    for (size_t i = 0; i < HKI_COUNT(benches); i++)
        if (only == NULL || strcmp(only, benches[i].name) == 0)
            run(&benches[i]);
    hk_iter_destroy(pipeline);
#if defined(HKI_HAVE_IMAGES)
    hk_tensor_release(files);
    free(pixels);
#endif
    for (int k = 0; k < WORDS; k++)
        hk_tensor_release(words[k]);
    free(from);
    free(to);
    return 0;
}
