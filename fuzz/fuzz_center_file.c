// fuzz_center_file.c - a center file with patches: every four bytes of the
// input change one byte of its head, layout, records or undo slots.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/io.h"
#include "center/center_sections.h"
#include "center/shard.h"
#include "codec/codec.h"

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
        hki_shard_create(&options, l,
                         (hk_share[]){HK_SHARE_EXCHANGE, HK_SHARE_EXCHANGE},
                         &s) != HK_OK)
        __builtin_trap();
    hki_shard_assigned(s, 0, 1);
    if (hki_section_set(&s->file, "later", 0, "fuzz", 4, false) != HK_OK ||
        hki_file_read_all(path, SIZE_MAX - 1, &image, &image_size) != HK_OK)
        __builtin_trap();
    hki_shard_close(s);
    hk_layout_release(l);
}

// Where an area begins, and how long it is.
static void area_of(const hki_center_head *h, unsigned area, size_t *at,
                    size_t *n) {
    switch (area % 7) {
    case 6: // tables of sections
        *at = HKI_SECTIONS_AT;
        *n = 2 * HKI_SECTIONS_STRIDE;
        break;
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
        *at = (size_t)(h->undo_at + (area % 7 - 4) * h->undo_stride);
        *n = HKI_UNDO_IDS + 32;
        break;
    }
}

// Tables of sections whose checksums fit.
static void mend_tables(uint8_t *copy) {
    for (int i = 0; i < 2; i++) {
        hki_section_table t;
        uint8_t *const at = copy + HKI_SECTIONS_AT + i * HKI_SECTIONS_STRIDE;
        memcpy(&t, at, sizeof t);
        const size_t n = HKI_MIN(t.count, (uint32_t)HKI_MAX_SECTIONS);
        t.crc = hki_crc32c(0, &t, offsetof(hki_section_table, crc));
        t.crc = hki_crc32c(t.crc, t.section, n * sizeof *t.section);
        memcpy(at, &t, sizeof t);
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
            h.check = hki_center_check(&h);
            memcpy(copy, &h, sizeof h);
            mend_tables(copy);
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
