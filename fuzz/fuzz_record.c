// fuzz_record.c - record framing from arbitrary bytes: as they are, and as
// the payloads of good records that are then cut somewhere.
#include "codec/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint32_t touched; // keeps the reading of every byte

static size_t count(const uint8_t *bytes, size_t size) {
    size_t pos = 0, n = 0, part;
    const uint8_t *record;
    uint32_t sum = 0;
    while (hki_record_parse(bytes + pos, size - pos, &record, &part) ==
           HKI_RECORD_WHOLE) {
        sum = hki_crc32c(sum, record, part);
        pos += HKI_RECORD_HEADER + part + HKI_RECORD_FOOTER;
        n++;
    }
    touched = sum;
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    count(data, size);
    // Two good records, cut where the first byte says.
    hki_buf b = {0};
    const size_t half = size / 2;
    if (hki_record_append(&b, data, half) != HK_OK ||
        hki_record_append(&b, data + half, size - half) != HK_OK)
        __builtin_trap();
    const uint8_t *const p = (const uint8_t *)b.data;
    if (count(p, b.size) != 2)
        __builtin_trap();
    const size_t cut = size > 0 ? HKI_MIN((size_t)data[0] + 1, b.size) : 1;
    if (count(p, b.size - cut) > 1)
        __builtin_trap();
    hki_buf_deinit(&b);
    return 0;
}
