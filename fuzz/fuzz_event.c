// fuzz_event.c - event files from arbitrary bytes: as a file, and as one
// message in a record that fits it, so that the parsers behind the checksums
// are reached.
#include "codec/codec.h"
#include "event/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile double touched; // keeps the reading of every part

static void touch(const hk_event *e) {
    double sum = e->scalar + (double)strlen(e->tag) + (double)strlen(e->text);
    for (size_t i = 0; i < e->size; i++)
        sum += ((const uint8_t *)e->bytes)[i];
    for (size_t i = 0; i < e->buckets; i++)
        sum += e->limits[i] + e->counts[i];
    touched = sum;
}

static void read_all(const uint8_t *bytes, size_t size) {
    hk_event_reader *r;
    if (hki_event_reader_memory(bytes, size, &r) != HK_OK)
        return;
    for (;;) {
        hk_event e;
        const hk_status s = hk_event_next(r, &e);
        if (s == HK_OK)
            touch(&e);
        else if (s != HK_E_DATA) // behind damage reading goes on
            break;
    }
    hk_event_reader_close(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    read_all(data, size);
    hki_buf b = {0};
    if (hki_record_append(&b, data, size) == HK_OK)
        read_all((const uint8_t *)b.data, b.size);
    hki_buf_deinit(&b);
    return 0;
}
