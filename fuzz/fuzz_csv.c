// fuzz_csv.c - CSV from arbitrary bytes; the first one chooses the options.
// Row by row, in batches and on every level the same comes out.
#include "data_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BATCH 19 // kernels take eight rows at once, and the rest one by one

static const char *const missing[] = {"?", "NA"};
static const char *const words[] = {"x", "yes", "no"};

static const hk_csv_column columns[] = {
    {.name = "i", .dtype = HK_I32},
    {.name = "s", .dtype = HK_STRING, .strip = "."},
    {.name = "f", .dtype = HK_F32, .default_value = "1.5"},
    {.name = "w",
     .dtype = HK_I64,
     .strip = ".",
     .vocabulary = words,
     .n_vocabulary = 3,
     .allow_unknown = 1,
     .unknown = -1},
};

static hk_dataset *make(const data_file *f, uint8_t choice) {
    hk_csv_options o;
    hk_file_options file;
    hk_csv_options_init(&o, sizeof o);
    hk_file_options_init(&file, sizeof file);
    file.compression = HK_COMPRESSION_NONE;
    file.on_error = choice & 1 ? HK_ON_ERROR_SKIP : HK_ON_ERROR_FAIL;
    file.any_bytes = choice & 2;
    file.max_record_bytes = 1 << 16;
    file.buffer_bytes = 4096;
    o.file = &file;
    o.trim = (choice & 4) != 0;
    o.header = (choice & 8) != 0;
    o.comment = choice & 16 ? '#' : 0;
    o.dressed = (choice & 16) != 0;
    o.missing = missing;
    o.n_missing = 2;
    if (choice & 32) {
        o.columns = columns;
        o.n_columns = 1 + (choice >> 6);
    }
    // With a header the columns are found by its names.
    if (o.n_columns > 0)
        o.header = 0;
    return hk_data_csv(&f->name, 1, &o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    data_file f;
    hk_context *base = NULL;
    hk_context_options o;
    if (size == 0)
        return 0;
    hk_context_options_init(&o, sizeof o);
    o.isa = HK_ISA_BASE;
    if (hk_context_create(&o, &base) != HK_OK)
        __builtin_trap();
    data_file_open(&f, data + 1, size - 1);
    const uint64_t rows = run_pipeline(make(&f, data[0]), NULL);
    if (rows != run_pipeline(make(&f, data[0]), base))
        __builtin_trap();
    // A fault takes its batch along, so only runs without one compare.
    const uint64_t batched =
        run_pipeline(hk_data_batch(make(&f, data[0]), BATCH, 0), NULL);
    if (batched !=
        run_pipeline(hk_data_batch(make(&f, data[0]), BATCH, 0), base))
        __builtin_trap();
    if ((data[0] & 1) != 0 &&
        rows != run_pipeline(
                    hk_data_unbatch(hk_data_batch(make(&f, data[0]), BATCH, 0)),
                    NULL))
        __builtin_trap();
    data_file_close(&f);
    hk_context_destroy(base);
    return 0;
}
