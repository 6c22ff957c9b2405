// bench_files.c - saving and loading checkpoints against plain file calls.
//
//     bench_files FOLDER
//
// Reads lines `SIDE CASE ITERS` on stdin and answers milliseconds an
// iteration; files go to FOLDER and are removed at the end.
//     hooke | plain   save_1g        write, fsync and rename 1 GiB of weights
//     hooke | plain   load_1g        read them, all in the page cache
//     hooke | plain   load_1g_cold   read them, none in the page cache
//     hooke           tf_save_1g tf_load_1g   the same as a TF checkpoint
//     hooke | plain   pause_100m     what a step waits for a save beside it;
//                                    plain: one memcpy of as many bytes
//     hooke           pause_first    the first save of a saver
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/base.h"
#include "hooke/ckpt.h"

#define OK(call)                                                               \
    do {                                                                       \
        if ((call) != HK_OK) {                                                 \
            fprintf(stderr, "%s: %s\n", #call, hk_last_error());               \
            exit(1);                                                           \
        }                                                                      \
    } while (0)
#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            perror(#condition);                                                \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

#define GIB ((size_t)1 << 30)
#define PAUSE_BYTES ((size_t)100000000)
#define PLAIN_PIECE ((size_t)8 << 20)

static const char *folder;

static double now_ms(void) {
    return (double)hki_now_ns() * 1e-6;
}

static const char *path_of(const char *name) {
    static char paths[8][1024];
    static int next;
    char *const p = paths[next++ % 8];
    snprintf(p, sizeof paths[0], "%s/%s", folder, name);
    return p;
}

// ---- weights ---------------------------------------------------------------

// A vector of `bytes`, cut into tensors as a network has them: a few large
// matrices, many small vectors.
typedef struct weights {
    float *x;
    size_t bytes;
    hk_name_map *map;
} weights;

static weights make_weights(size_t bytes) {
    weights w = {.bytes = bytes};
    const size_t n = bytes / sizeof *w.x;
    OK(hki_alloc_array(n, sizeof *w.x, &w.x));
    for (size_t i = 0; i < n; i++)
        w.x[i] = (float)(i % 1009) / 1009;
    OK(hk_name_map_create(&w.map));
    size_t at = 0;
    for (int layer = 0; at < n; layer++) {
        char name[64];
        const size_t wanted = layer % 2 == 0 ? n / 24 : 512;
        const int64_t size = (int64_t)HKI_MIN(wanted, n - at);
        snprintf(name, sizeof name, "layer_%d/%s", layer / 2,
                 layer % 2 == 0 ? "kernel" : "bias");
        OK(hk_name_map_add(w.map, &(hk_named){.name = name,
                                              .dtype = HK_F32,
                                              .shape = hk_shape_make(1, &size),
                                              .data = w.x + at}));
        at += (size_t)size;
    }
    return w;
}

static const weights *large(void) {
    static weights w;
    if (w.x == NULL)
        w = make_weights(GIB);
    return &w;
}

// ---- files -----------------------------------------------------------------

static void plain_write(const char *path, const void *bytes, size_t size) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    CHECK(fd >= 0);
    for (size_t i = 0; i < size; i += PLAIN_PIECE) {
        const size_t n = HKI_MIN(size - i, PLAIN_PIECE);
        CHECK(write(fd, (const char *)bytes + i, n) == (ssize_t)n);
    }
    CHECK(fsync(fd) == 0);
    CHECK(close(fd) == 0);
}

static void plain_read(const char *path, void *bytes, size_t size) {
    const int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    for (size_t i = 0; i < size; i += PLAIN_PIECE) {
        const size_t n = HKI_MIN(size - i, PLAIN_PIECE);
        CHECK(read(fd, (char *)bytes + i, n) == (ssize_t)n);
    }
    close(fd);
}

static void hooke_write(const char *path, hk_ckpt_format format) {
    hk_write_options o;
    hk_write_options_init(&o, sizeof o);
    o.format = format;
    OK(hk_ckpt_write(path, large()->map, &o));
}

static void hooke_read(const char *path, hk_ckpt_format format) {
    hk_ckpt *c;
    OK(hk_ckpt_open(path, format, &c));
    OK(hk_ckpt_restore(c, large()->map, NULL, NULL));
    hk_ckpt_close(c);
}

// The page cache as a new machine has it, of this file.
static void forget(const char *path) {
    const int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
    close(fd);
}

#define ST "w.safetensors"
#define TF "w.ckpt"
#define TF_DATA TF ".data-00000-of-00001"
#define PLAIN "w.plain"

// Each save makes new files; nothing of an earlier one is still on its way.
static double save(bool hooke, hk_ckpt_format format) {
    unlink(path_of(PLAIN));
    unlink(path_of(ST));
    unlink(path_of(TF ".index"));
    unlink(path_of(TF_DATA));
    sync();
    const weights *const w = large();
    const double t = now_ms();
    if (hooke)
        hooke_write(path_of(format == HK_CKPT_TF ? TF : ST), format);
    else
        plain_write(path_of(PLAIN), w->x, w->bytes);
    return now_ms() - t;
}

static double load(bool hooke, hk_ckpt_format format, bool cold) {
    static void *into;
    const char *const data = !hooke                 ? PLAIN
                             : format == HK_CKPT_TF ? TF_DATA
                                                    : ST;
    const weights *const w = large();
    if (into == NULL) {
        OK(hki_alloc_array(w->bytes, 1, &into));
        memset(into, 1, w->bytes);
    }
    if (access(path_of(data), F_OK) != 0)
        save(hooke, format);
    if (cold)
        forget(path_of(data));
    else
        plain_read(path_of(data), into, w->bytes);
    const double t = now_ms();
    if (hooke)
        hooke_read(path_of(format == HK_CKPT_TF ? TF : ST), format);
    else
        plain_read(path_of(data), into, w->bytes);
    return now_ms() - t;
}

// ---- pause -----------------------------------------------------------------

static hk_saver *make_saver(void) {
    hk_saver_options o;
    hk_saver *s;
    hk_saver_options_init(&o, sizeof o);
    o.model_dir = path_of("run");
    o.keep_max = 1;
    OK(hk_saver_create(&o, &s));
    return s;
}

static double pause_of(bool hooke, bool first) {
    static weights w;
    static void *copy;
    static hk_saver *s;
    static int64_t step;
    if (w.x == NULL) {
        w = make_weights(PAUSE_BYTES);
        OK(hki_alloc_array(w.bytes, 1, &copy));
        memset(copy, 1, w.bytes);
    }
    if (!hooke) {
        const double t = now_ms();
        memcpy(copy, w.x, w.bytes);
        const double ms = now_ms() - t;
        __asm__ volatile("" : : "r"(copy) : "memory");
        return ms;
    }
    if (s == NULL)
        s = make_saver();
    if (first) {
        hk_saver_destroy(s);
        s = make_saver();
    } else {
        OK(hk_saver_reserve(s, w.map));
    }
    OK(hk_saver_wait(s));
    const double t = now_ms();
    OK(hk_saver_save(s, w.map, step++, NULL, 0));
    const double ms = now_ms() - t;
    OK(hk_saver_wait(s));
    return ms;
}

static double run(const char *side, const char *name) {
    const bool hooke = strcmp(side, "hooke") == 0;
    const hk_ckpt_format format =
        strncmp(name, "tf_", 3) == 0 ? HK_CKPT_TF : HK_CKPT_SAFETENSORS;
    if (format == HK_CKPT_TF)
        name += 3;
    if (strcmp(name, "save_1g") == 0)
        return save(hooke, format);
    if (strcmp(name, "load_1g") == 0)
        return load(hooke, format, false);
    if (strcmp(name, "load_1g_cold") == 0)
        return load(hooke, format, true);
    if (strcmp(name, "pause_100m") == 0)
        return pause_of(hooke, false);
    if (strcmp(name, "pause_first") == 0)
        return pause_of(hooke, true);
    fprintf(stderr, "no case %s\n", name);
    exit(1);
}

int main(int argc, char **argv) {
    char side[16], name[32];
    int iters;
    if (argc != 2) {
        fprintf(stderr, "usage: bench_files FOLDER\n");
        return 2;
    }
    folder = argv[1];
    while (scanf("%15s %31s %d", side, name, &iters) == 3) {
        double ms = 0;
        for (int i = 0; i < iters; i++)
            ms += run(side, name);
        fprintf(stdout, "%.6f\n", ms / iters);
        fflush(stdout);
    }
    return 0;
}
