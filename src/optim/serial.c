// serial.c - state to bytes and back.
//
// Every blob ends in a 64-bit hash of what comes before it. Numbers are
// little-endian; floats keep their bits.
#include "optim/optim.h"

#define HASH_BYTES 8

void hki_write_bytes(hki_writer *w, const void *bytes, size_t n) {
    if (w->data != NULL && n > 0)
        memcpy(w->data + w->size, bytes, n);
    w->size += n;
}

static void put(unsigned char *p, uint64_t v, int n) {
    for (int i = 0; i < n; i++)
        p[i] = (unsigned char)(v >> (8 * i));
}

static uint64_t take(const unsigned char *p, int n) {
    uint64_t v = 0;
    for (int i = 0; i < n; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

void hki_write_u32(hki_writer *w, uint32_t v) {
    unsigned char b[4];
    put(b, v, 4);
    hki_write_bytes(w, b, sizeof b);
}

void hki_write_u64(hki_writer *w, uint64_t v) {
    unsigned char b[8];
    put(b, v, 8);
    hki_write_bytes(w, b, sizeof b);
}

void hki_write_f64(hki_writer *w, double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    hki_write_u64(w, bits);
}

void hki_write_f32s(hki_writer *w, const float *v, int64_t n) {
    if (w->data != NULL)
        for (int64_t i = 0; i < n; i++) {
            uint32_t bits;
            memcpy(&bits, &v[i], sizeof bits);
            put(w->data + w->size + 4 * (size_t)i, bits, 4);
        }
    w->size += 4 * (size_t)n;
}

hk_status hki_save(const void *object, hki_save_fn body, const char *what,
                   void *buf, size_t capacity, size_t *size) {
    if (object == NULL || size == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: object or size is NULL", what);
    hki_writer w = {0};
    body(object, &w);
    const size_t total = w.size + HASH_BYTES;
    *size = total;
    if (buf == NULL)
        return HK_OK;
    if (capacity < total)
        return hki_fail(HK_E_OVERFLOW,
                        "%s: the buffer has %zu bytes, but %zu are needed",
                        what, capacity, total);
    w = (hki_writer){.data = buf};
    body(object, &w);
    hki_write_u64(&w, hki_hash(HKI_HASH_INIT, buf, w.size));
    return HK_OK;
}

hk_status hki_reader_init(hki_reader *r, const void *bytes, size_t size,
                          const char *what) {
    if (bytes == NULL || size < HASH_BYTES)
        return hki_fail(HK_E_DATA, "%s: the %zu bytes are not a saved state",
                        what, size);
    *r = (hki_reader){bytes, size - HASH_BYTES, true};
    if (hki_hash(HKI_HASH_INIT, bytes, r->size) !=
        take(r->data + r->size, HASH_BYTES))
        return hki_fail(HK_E_DATA, "%s: the saved state is damaged", what);
    return HK_OK;
}

const unsigned char *hki_read_skip(hki_reader *r, uint64_t n) {
    if (!r->ok || n > r->size) {
        r->ok = false;
        return NULL;
    }
    const unsigned char *const p = r->data;
    r->data += n;
    r->size -= (size_t)n;
    return p;
}

uint32_t hki_read_u32(hki_reader *r) {
    const unsigned char *const p = hki_read_skip(r, 4);
    return p == NULL ? 0 : (uint32_t)take(p, 4);
}

uint64_t hki_read_u64(hki_reader *r) {
    const unsigned char *const p = hki_read_skip(r, 8);
    return p == NULL ? 0 : take(p, 8);
}

double hki_read_f64(hki_reader *r) {
    const uint64_t bits = hki_read_u64(r);
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

void hki_read_f32s(hki_reader *r, float *out, int64_t n) {
    if (n < 0 || (uint64_t)n > r->size / 4) {
        r->ok = false;
        return;
    }
    const unsigned char *const p = hki_read_skip(r, 4 * (uint64_t)n);
    for (int64_t i = 0; p != NULL && i < n; i++) {
        const uint32_t bits = (uint32_t)take(p + 4 * i, 4);
        memcpy(&out[i], &bits, sizeof bits);
    }
}
