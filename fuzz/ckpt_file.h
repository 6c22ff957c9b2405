// ckpt_file.h - a checkpoint file in memory, for fuzz targets.
#ifndef CKPT_FILE_H
#define CKPT_FILE_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // memfd_create
#endif
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/base.h"
#include "hooke/ckpt.h"

#define MAX_TENSOR_BYTES (1u << 22) // larger ones are listed, not read

// Opens the bytes as a checkpoint and reads every tensor.
static inline void read_checkpoint(const uint8_t *bytes, size_t size,
                                   hk_ckpt_format format) {
    char path[64];
    hk_ckpt *c;
    const int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
        __builtin_trap();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (hk_ckpt_open(path, format, &c) == HK_OK) {
        const hk_ckpt_entry *e;
        for (size_t i = 0; (e = hk_ckpt_item(c, i)) != NULL; i++) {
            hk_tensor *t;
            if (hk_ckpt_find(c, e->name) != e)
                __builtin_trap();
            if (e->bytes > MAX_TENSOR_BYTES)
                continue;
            if (hk_ckpt_read_tensor(c, e->name, &t) == HK_OK)
                hk_tensor_release(t);
        }
        hk_ckpt_close(c);
    }
    close(fd);
}

#endif // CKPT_FILE_H
