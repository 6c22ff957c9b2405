// copy.h - a consistent copy of the tensors of a save, made by several threads.
#ifndef HKI_CKPT_COPY_H
#define HKI_CKPT_COPY_H
#include <stdatomic.h>
#include "ckpt/core/formats.h"

typedef struct hki_copy {
    hki_ckpt_item *items; // sources; sent to the copy by hki_copy_finish
    size_t count;
    size_t *offset; // of each item in the copy
    unsigned char *to;
    size_t total;       // bytes of the copy
    atomic_size_t next; // the first byte that no thread has taken
} hki_copy;

// Lays the copy out, every tensor at a multiple of 64 bytes. offset has count
// elements; total is what `to` has to hold.
void hki_copy_layout(const hki_ckpt_item *items, size_t count, size_t *offset,
                     size_t *total);
// Copies pieces until none is left. Any number of threads may run it at once;
// the copy is complete when all have returned.
void hki_copy_run(hki_copy *c);
// Makes the items point into the copy.
void hki_copy_finish(hki_copy *c);

#endif // HKI_CKPT_COPY_H
