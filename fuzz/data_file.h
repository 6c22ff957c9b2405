// data_file.h - a data file in memory, and running a pipeline over it, for
// fuzz targets.
#ifndef DATA_FILE_H
#define DATA_FILE_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // memfd_create
#endif
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/base.h"
#include "hooke/files.h"
#include "tensor/tensor.h"

typedef struct data_file {
    int fd;
    char path[64];
    const char *name; // path, to hand to a source
} data_file;

static inline void data_file_open(data_file *f, const uint8_t *bytes,
                                  size_t size) {
    f->fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (f->fd < 0 || write(f->fd, bytes, size) != (ssize_t)size)
        __builtin_trap();
    snprintf(f->path, sizeof f->path, "/proc/self/fd/%d", f->fd);
    f->name = f->path;
}

static inline void data_file_close(data_file *f) {
    close(f->fd);
}

static inline uint64_t hash_tensor(uint64_t h, const hk_tensor *t) {
    const int64_t n = hk_tensor_count(t);
    const hk_shape s = hk_tensor_shape(t);
    h = hki_hash(h, s.dim, sizeof s.dim);
    if (hk_tensor_dtype(t) != HK_STRING)
        return n == 0 ? h
                      : hki_hash(h, hk_tensor_data(t),
                                 (size_t)n * hk_dtype_size(hk_tensor_dtype(t)));
    for (int64_t i = 0; i < n; i++) {
        const void *bytes;
        size_t size;
        if (hk_tensor_get_string(t, i, &bytes, &size) != HK_OK)
            __builtin_trap();
        h = hki_hash(hki_hash(h, &size, sizeof size), bytes, size);
    }
    return h;
}

static inline uint64_t hash_element(uint64_t h, const hk_element *e) {
    for (size_t k = 0; k < e->count; k++) {
        h = hash_tensor(h, e->values[k].tensor);
        if (e->values[k].index != NULL)
            h = hash_tensor(h, e->values[k].index);
    }
    return h;
}

// Runs the pipeline (released) to its end or its first fault, in one thread;
// the hash of all elements and of how it ended. ctx: NULL for none.
static inline uint64_t run_pipeline(hk_dataset *d, hk_context *ctx) {
    hk_iter *it = NULL;
    hk_iter_options o;
    const hk_element *e;
    uint64_t h = HKI_HASH_INIT;
    hk_status s = hk_dataset_status(d);
    hk_iter_options_init(&o, sizeof o);
    o.threads = 1;
    o.context = ctx;
    if (s == HK_OK)
        s = hk_iter_create(d, &o, &it);
    hk_dataset_release(d);
    while (s == HK_OK && (s = hk_iter_next(it, &e)) == HK_OK)
        h = hash_element(h, e);
    hk_iter_destroy(it);
    return hki_hash(h, &s, sizeof s);
}

#endif // DATA_FILE_H
