// fuzz_center_file.c - a center file with patches: every four bytes of the
// input change one byte of its head, layout, records or undo slots.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "cluster/shard/shard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char path[64];
static uint8_t *image;
static size_t image_size;
static hki_shard_options options;

static void make_image(void) {
    const hk_layout_item items[] = {
        {.name = "w",
         .shape = hk_shape_make(1, (int64_t[]){40}),
         .dtype = HK_F32,
         .kind = HK_TRAINABLE},
        {.name = "t",
         .shape = hk_shape_make(2, (int64_t[]){8, 4}),
         .dtype = HK_F32,
         .kind = HK_TRAINABLE,
         .sparse = 1},
    };
    hk_layout *l;
    hki_shard *s;
    hk_center_options center;
    hk_center_options_init(&center, sizeof center);
    center.chunk_kib = 1;
    center.max_workers = 2;
    const int fd = mkstemp(path);
    if (fd < 0 || close(fd) != 0 || unlink(path) != 0)
        __builtin_trap();
    options = (hki_shard_options){.name = "fuzz",
                                  .path = path,
                                  .n_shards = 1,
                                  .max_norm = 1e6,
                                  .lease_ms = 1000};
    if (hki_center_options_check(&center, &options.center) != HK_OK ||
        hk_layout_create(items, 2, &l) != HK_OK ||
        hki_shard_create(&options, l, (uint8_t[]){1, 1}, &s) != HK_OK ||
        hki_alloc_array(s->file.bytes, 1, &image) != HK_OK)
        __builtin_trap();
    hki_shard_assigned(s, 0, 1);
    image_size = s->file.bytes;
    memcpy(image, s->file.map, image_size);
    hki_shard_close(s);
    hk_layout_release(l);
}

// Where an area begins, and how long it is.
static void area_of(const hki_center_head *h, unsigned area, size_t *at,
                    size_t *n) {
    switch (area % 6) {
    case 0:
        *at = 0;
        *n = sizeof *h;
        break;
    case 1:
        *at = (size_t)h->layout_at;
        *n = (size_t)h->layout_bytes;
        break;
    case 2:
        *at = (size_t)h->worker_at;
        *n = 3 * sizeof(hki_worker_record);
        break;
    case 3:
        *at = (size_t)h->chunk_at;
        *n = 2 * sizeof(hki_chunk_record);
        break;
    default:
        *at = (size_t)(h->undo_at + (area % 6 - 4) * h->undo_stride);
        *n = HKI_UNDO_IDS + 32;
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (image == NULL) {
        snprintf(path, sizeof path, "%s/hk-fuzz-center-XXXXXX", P_tmpdir);
        make_image();
    }
    uint8_t *copy;
    if (hki_alloc_array(image_size, 1, &copy) != HK_OK)
        return 0;
    memcpy(copy, image, image_size);
    hki_center_head head;
    memcpy(&head, image, sizeof head);
    for (; size >= 4; data += 4, size -= 4) {
        size_t at, n;
        area_of(&head, data[0], &at, &n);
        copy[at + (data[1] | (size_t)data[2] << 8) % n] = data[3];
        if (data[0] & 0x80) { // a head that fits itself again
            hki_center_head h;
            memcpy(&h, copy, sizeof h);
            h.check =
                hki_hash(HKI_HASH_INIT, &h, offsetof(hki_center_head, check));
            memcpy(copy, &h, sizeof h);
        }
    }
    FILE *const f = fopen(path, "wb");
    if (f != NULL) {
        (void)fwrite(copy, 1, image_size, f);
        (void)fclose(f);
        hki_shard *s;
        if (hki_shard_view(path, &s) == HK_OK)
            hki_shard_close(s);
        if (hki_shard_open(&options, &s) == HK_OK) {
            hk_center_info info;
            hki_shard_info(s, &info);
            hki_shard_close(s);
        }
        (void)unlink(path);
    }
    hki_free(copy);
    return 0;
}
