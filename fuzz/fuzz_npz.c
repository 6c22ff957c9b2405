// fuzz_npz.c - NumPy archives from arbitrary bytes: as they are, and as the
// one stored member of a good archive; .npy headers by themselves.
#define _GNU_SOURCE
#include "ckpt_file.h"
#include "codec/codec.h"
#include "../tests/zip_memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_as_member(const uint8_t *data, size_t size) {
    hki_zip_writer z = {0};
    hki_buf b = {0};
    hki_zip_entry *e;
    size_t n;
    if (hki_zip_begin(&z, &b, "a.npy", size, hki_crc32(0, data, size), 64) !=
            HK_OK ||
        hki_buf_add(&b, data, size) != HK_OK || hki_zip_end(&z, &b) != HK_OK)
        __builtin_trap();
    // Our own archive is always fine.
    if (zip_list(b.data, b.size, &e, &n) != HK_OK || n != 1 || e->size != size)
        __builtin_trap();
    hki_free(e);
    read_checkpoint((uint8_t *)b.data, b.size, HK_CKPT_NPZ);
    hki_zip_deinit(&z);
    hki_buf_deinit(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hki_npy a;
    if (hki_npy_parse(data, size, size, "fuzz", &a) == HK_OK &&
        (a.data_offset > size || a.data_size > size - a.data_offset))
        __builtin_trap();
    read_checkpoint(data, size, HK_CKPT_NPZ);
    read_as_member(data, size);
    return 0;
}
