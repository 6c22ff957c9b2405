// fuzz_array.c - IDX and .npy arrays from arbitrary bytes, as they are and
// packed; and .npy behind a header that fits.
#include "data_file.h"
#include "data/files/array.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hk_tensor *t = NULL;
    hk_file_options o;
    data_file f;
    if (hki_idx_parse(data, size, "fuzz", &t) == HK_OK)
        hk_tensor_release(t);
    if (hki_npy_tensor(data, size, "fuzz", &t) == HK_OK)
        hk_tensor_release(t);
    hk_file_options_init(&o, sizeof o);
    o.max_file_bytes = 1 << 20;
    data_file_open(&f, data, size);
    if (hk_array_read(f.path, NULL, &o, &t) == HK_OK)
        hk_tensor_release(t);
    run_pipeline(hk_data_cifar(&f.name, 1, 10, &o), NULL);
    data_file_close(&f);
    return 0;
}
