// fuzz_tar.c - tar shards from arbitrary bytes, as they are and with headers
// whose checksums fit, so that what is behind them is reached.
#include "data_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const hk_tar_field fields[] = {
    {.name = "t", .extension = "txt;a", .kind = HK_TAR_BYTES},
    {.name = "n", .extension = "cls", .kind = HK_TAR_NUMBER, .dtype = HK_I32},
    {.name = "p", .extension = "png", .kind = HK_TAR_PICTURE},
    {.name = "x",
     .extension = "npy",
     .kind = HK_TAR_NPY,
     .dtype = HK_F32,
     .shape = {.rank = 1, .dim = {-1}}},
};

static void run(const uint8_t *data, size_t size, hk_on_error on_error) {
    data_file f;
    hk_file_options file;
    hk_tar_options o;
    hk_file_options_init(&file, sizeof file);
    hk_tar_options_init(&o, sizeof o);
    file.on_error = on_error;
    file.max_record_bytes = 1 << 20;
    file.buffer_bytes = 4096;
    file.max_pixels = 1 << 16;
    o.file = &file;
    o.key = "key";
    data_file_open(&f, data, size);
    for (size_t n = 1; n <= HKI_COUNT(fields); n++)
        run_pipeline(hk_data_tar(&f.name, 1, fields, n, &o), NULL);
    data_file_close(&f);
}

// Makes a header of every block that has the mark of one.
static void seal(uint8_t *p, size_t size) {
    for (size_t at = 0; at + 512 <= size; at += 512) {
        unsigned sum = 0;
        if (memcmp(p + at + 257, "ustar", 5) != 0)
            continue;
        memset(p + at + 148, ' ', 8);
        for (size_t i = 0; i < 512; i++)
            sum += p[at + i];
        snprintf((char *)p + at + 148, 8, "%06o", sum);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *sealed = NULL;
    run(data, size, HK_ON_ERROR_FAIL);
    if (hki_alloc_array(size, 1, &sealed) != HK_OK)
        return 0;
    if (size > 0)
        memcpy(sealed, data, size);
    seal(sealed, size);
    run(sealed, size, HK_ON_ERROR_SKIP);
    hki_free(sealed);
    return 0;
}
