// fuzz_records.c - record sources over arbitrary files: TFRecord, text lines
// and fixed-length records; plain, gzip and zlib; whatever the first byte says
// about faults.
#include "data_file.h"
#include "codec/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// The bytes as records whose checksums fit: each a length byte and its data.
static void frame(const uint8_t *data, size_t size, hki_buf *out) {
    for (size_t at = 0; at < size;) {
        const size_t n = HKI_MIN((size_t)data[at], size - at - 1);
        if (hki_record_append(out, data + at + 1, n) != HK_OK)
            return;
        at += 1 + n;
    }
}

static void run(const uint8_t *data, size_t size, const hk_file_options *o) {
    data_file f;
    const hk_example_feature a = {
        .name = "a", .kind = HK_VAR_LEN, .dtype = HK_I64};
    hk_parse_options parse;
    hk_parse_options_init(&parse, sizeof parse);
    parse.on_error = o->on_error;
    data_file_open(&f, data, size);
    run_pipeline(hk_data_tfrecord(&f.name, 1, o), NULL);
    run_pipeline(
        hk_data_batch(hk_data_parse_example(hk_data_tfrecord(&f.name, 1, o), &a,
                                            1, &parse),
                      2, 0),
        NULL);
    run_pipeline(hk_data_text(&f.name, 1, o), NULL);
    run_pipeline(hk_data_fixed_length(&f.name, 1, 3, 1, 2, o), NULL);
    data_file_close(&f);
}

static void unpack(const uint8_t *data, size_t size) {
    data_file f;
    data_file_open(&f, data, size);
    for (int k = 0; k < 3; k++) {
        hki_stream *s = NULL;
        uint8_t *out = NULL;
        size_t n;
        hki_input *file;
        if (hki_input_open(f.name, NULL, &file) == HK_OK &&
            hki_stream_open(file, (hki_packing)k, 4096, &s) == HK_OK &&
            hki_stream_read_all(s, 1 << 20, &out, &n) == HK_OK)
            hki_free(out);
        hki_stream_close(s);
    }
    data_file_close(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hk_file_options o;
    hki_buf framed = {0};
    if (size == 0)
        return 0;
    hk_file_options_init(&o, sizeof o);
    o.on_error = data[0] & 1 ? HK_ON_ERROR_SKIP : HK_ON_ERROR_FAIL;
    o.compression = (hk_compression)(data[0] >> 1 & 3);
    o.any_bytes = data[0] >> 3 & 1;
    o.max_record_bytes = 1 << 16;
    o.buffer_bytes = 4096;
    run(data + 1, size - 1, &o);
    o.compression = HK_COMPRESSION_NONE;
    frame(data + 1, size - 1, &framed);
    if (framed.size > 0) {
        run((const uint8_t *)framed.data, framed.size, &o);
        framed.data[data[0] % framed.size] ^= 1; // and one bit of damage
        run((const uint8_t *)framed.data, framed.size, &o);
    }
    hki_buf_deinit(&framed);
    unpack(data + 1, size - 1);
    return 0;
}
