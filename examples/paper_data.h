// paper_data.h - image sets for paper.c: MNIST, CIFAR-10, generated digits.
//
// Pixels stay bytes; a batch is cropped to 28 x 28 and scaled to 0..1 as it
// is made. Files are checked to the last byte; a fault ends the program.
#ifndef PAPER_DATA_H
#define PAPER_DATA_H
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "hooke/hooke.h"

enum {
    CROP = 28, // side of the images that the networks see
    CLASSES = 10
};

typedef struct images {
    uint8_t *pixels; // n x side x side x channels
    uint8_t *labels; // n, below CLASSES
    long n;
    int side, channels;
} images;

static void die(const char *format, ...)
    __attribute__((noreturn, format(printf, 1, 2)));
static void die(const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    fputs("paper: ", stderr);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(2);
}

static void check(hk_status s) {
    if (s != HK_OK)
        die("%s", hk_last_error());
}

static void *need(size_t n, size_t size) {
    void *p = calloc(n, size);
    if (p == NULL)
        die("out of memory");
    return p;
}

static uint64_t mix(uint64_t x) { // splitmix64's finaliser
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static void make_images(images *set, long n, int side, int channels) {
    *set = (images){.n = n, .side = side, .channels = channels};
    set->pixels = need((size_t)(n * side * side * channels), 1);
    set->labels = need((size_t)n, 1);
}

static void free_images(images *set) {
    free(set->pixels);
    free(set->labels);
}

static void check_labels(const images *set, const char *path) {
    for (long i = 0; i < set->n; i++)
        if (set->labels[i] >= CLASSES)
            die("%s: label %d of image %ld", path, set->labels[i], i);
}

// ---- MNIST: gzip'd IDX ----------------------------------------------------

static void join(char *path, size_t size, const char *dir, const char *name) {
    if (snprintf(path, size, "%s/%s", dir, name) >= (int)size)
        die("%s/%s: the path is too long", dir, name);
}

// Opens dir/name through gzip. The shell sees the path between single quotes,
// so that it may hold anything but these.
static FILE *open_gzip(const char *dir, const char *name, char path[512]) {
    char command[600];
    join(path, 512, dir, name);
    if (strchr(path, '\'') != NULL || strchr(path, '\n') != NULL)
        die("%s: quotes and line ends are not allowed in the path", path);
    FILE *there = fopen(path, "rb");
    if (there == NULL)
        die("%s: cannot be opened", path);
    fclose(there);
    snprintf(command, sizeof command, "gzip -dc -- '%s'", path);
    FILE *f = popen(command, "r");
    if (f == NULL)
        die("%s: gzip cannot be started", path);
    return f;
}

static void close_gzip(FILE *f, const char *path) {
    const int more = fgetc(f) != EOF;
    if (pclose(f) != 0 || more)
        die("%s: %s", path, more ? "longer than its header says" : "damaged");
}

// A header of 1 + rank big-endian numbers: the magic 0x80n with n = rank,
// then the sizes.
static void read_idx_header(FILE *f, const char *path, int rank, long *sizes) {
    uint8_t b[16];
    const size_t bytes = 4 * (size_t)(rank + 1);
    if (fread(b, 1, bytes, f) != bytes)
        die("%s: shorter than its header", path);
    if (b[0] != 0 || b[1] != 0 || b[2] != 8 || b[3] != rank)
        die("%s: not an IDX file of bytes of rank %d", path, rank);
    for (int i = 0; i < rank; i++) {
        const uint8_t *s = b + 4 * (i + 1);
        sizes[i] = (long)s[0] << 24 | (long)s[1] << 16 | s[2] << 8 | s[3];
        if (sizes[i] < 1 || sizes[i] > 10000000)
            die("%s: size %ld", path, sizes[i]);
    }
}

static void read_mnist(const char *dir, const char *prefix, images *set) {
    char name[64], path[512];
    long sizes[3], n_labels;
    snprintf(name, sizeof name, "%s-images-idx3-ubyte.gz", prefix);
    FILE *f = open_gzip(dir, name, path);
    read_idx_header(f, path, 3, sizes);
    if (sizes[1] != CROP || sizes[2] != CROP)
        die("%s: images of %ld x %ld", path, sizes[1], sizes[2]);
    make_images(set, sizes[0], CROP, 1);
    const size_t bytes = (size_t)set->n * CROP * CROP;
    if (fread(set->pixels, 1, bytes, f) != bytes)
        die("%s: shorter than its header says", path);
    close_gzip(f, path);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte.gz", prefix);
    f = open_gzip(dir, name, path);
    read_idx_header(f, path, 1, &n_labels);
    if (n_labels != set->n)
        die("%s: %ld labels for %ld images", path, n_labels, set->n);
    if (fread(set->labels, 1, (size_t)set->n, f) != (size_t)set->n)
        die("%s: shorter than its header says", path);
    close_gzip(f, path);
    check_labels(set, path);
}

// ---- CIFAR-10: 10000 records of a label and 3 planes of 32 x 32 -----------

static void read_cifar(const char *dir, int first, int last, images *set) {
    enum { PLANE = 32 * 32, RECORDS = 10000 };
    uint8_t record[1 + 3 * PLANE];
    char name[32], path[512] = "";
    make_images(set, (long)RECORDS * (last - first + 1), 32, 3);
    long at = 0;
    for (int file = first; file <= last; file++) {
        snprintf(name, sizeof name, "data_batch_%d.bin", file);
        join(path, sizeof path, dir, file == 0 ? "test_batch.bin" : name);
        FILE *f = fopen(path, "rb");
        if (f == NULL)
            die("%s: cannot be opened", path);
        for (int i = 0; i < RECORDS; i++, at++) {
            if (fread(record, 1, sizeof record, f) != sizeof record)
                die("%s: shorter than %d records", path, RECORDS);
            set->labels[at] = record[0];
            for (int p = 0; p < 3 * PLANE; p++)
                set->pixels[at * 3 * PLANE + p] =
                    record[1 + p % 3 * PLANE + p / 3];
        }
        if (fgetc(f) != EOF)
            die("%s: longer than %d records", path, RECORDS);
        fclose(f);
    }
    check_labels(set, path);
}

// ---- generated digits -----------------------------------------------------

static void draw_digits(hk_digits_split split, long n, images *set) {
    hk_digits_options o;
    hk_digits_options_init(&o, sizeof o);
    o.split = split;
    make_images(set, n, CROP, 1);
    for (long i = 0; i < n; i++) {
        int32_t label;
        check(hk_digits_draw(&o, (uint64_t)i, 1, HK_U8,
                             set->pixels + i * CROP * CROP, &label));
        set->labels[i] = (uint8_t)label;
    }
}

// ---- batches --------------------------------------------------------------

// Image k as floats from 0 to 1: the window at (top, left), mirrored if asked.
static void put_image(const images *set, long k, int top, int left, int flip,
                      float *out) {
    const int c = set->channels, side = set->side;
    const uint8_t *image = set->pixels + k * side * side * c;
    for (int y = 0; y < CROP; y++) {
        const uint8_t *row = image + ((top + y) * side + left) * c;
        float *to = out + y * CROP * c;
        for (int i = 0; i < CROP * c; i++)
            to[i] = (float)row[i] * (1.0f / 255);
        for (int x = 0; flip && x < CROP; x++)
            for (int j = 0; j < c; j++)
                to[x * c + j] = (float)row[(CROP - 1 - x) * c + j] / 255;
    }
}

// A batch of images anywhere in the set, a function of `stream` alone. Larger
// images (CIFAR) are cropped at random and mirrored every other time.
static void random_batch(const images *set, uint64_t stream, long batch,
                         float *x, int32_t *labels) {
    const long pixels = CROP * CROP * set->channels;
    const unsigned room = (unsigned)(set->side - CROP);
    for (long i = 0; i < batch; i++) {
        const uint64_t r =
            mix(stream + (uint64_t)(i + 1) * 0x9E3779B97F4A7C15u);
        const long k = (long)((r >> 24) % (uint64_t)set->n);
        const unsigned top = (r & 255) % (room + 1);
        const unsigned left = (r >> 8 & 255) % (room + 1);
        put_image(set, k, (int)top, (int)left, room > 0 && (r >> 16 & 1),
                  x + i * pixels);
        labels[i] = set->labels[k];
    }
}

#endif // PAPER_DATA_H
