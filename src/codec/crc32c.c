// crc32c.c - CRC-32C (Castagnoli) over bytes, as records, event files and
// tensor bundles carry it.
//
// Reflected polynomial 0x82f63b78, first and last xor 0xffffffff. In the
// reflected form bit 31 of a word is the coefficient of x^0, and feeding n
// zero bytes multiplies the running state by x^(8n) modulo the polynomial.
// The CPU's instruction has a latency of three cycles, so that three streams
// run side by side; their states are joined by such products, taken from
// tables that are written once, at the first call.
#include "codec/codec.h"
#include <pthread.h>

#define POLYNOMIAL UINT32_C(0x82f63b78)
#define MASK_DELTA UINT32_C(0xa282ead8)

// Bytes per stream of the wide and of the narrow loop.
#define WIDE 4096
#define NARROW 256

// Written once under tables_once, read-only afterwards.
static struct {
    uint32_t byte[8][256]; // state after byte b and then k zero bytes
    uint32_t wide[4][256]; // state byte k, times x^(8 * WIDE)
    uint32_t narrow[4][256];
    bool instruction;
} tables;
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

// a * b modulo the polynomial.
static uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (uint32_t bit = UINT32_C(1) << 31; bit != 0; bit >>= 1) {
        if (a & bit)
            product ^= b;
        b = (b & 1) ? (b >> 1) ^ POLYNOMIAL : b >> 1;
    }
    return product;
}

// x^(8 n), by squaring.
static uint32_t power_of_bytes(size_t n) {
    uint32_t result = UINT32_C(1) << 31;       // x^0
    uint32_t square = UINT32_C(1) << (31 - 8); // x^8
    for (; n != 0; n >>= 1) {
        if (n & 1)
            result = multiply(result, square);
        square = multiply(square, square);
    }
    return result;
}

static void fill_shift(uint32_t table[4][256], size_t n) {
    const uint32_t factor = power_of_bytes(n);
    for (uint32_t k = 0; k < 4; k++)
        for (uint32_t b = 0; b < 256; b++)
            table[k][b] = multiply(b << (8 * k), factor);
}

static void fill_tables(void) {
    const uint32_t x8 = power_of_bytes(1);
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t state = multiply(b, x8);
        for (size_t k = 0; k < 8; k++) {
            tables.byte[k][b] = state;
            state = multiply(state, x8);
        }
    }
    fill_shift(tables.wide, WIDE);
    fill_shift(tables.narrow, NARROW);
#if defined(__x86_64__)
    tables.instruction = __builtin_cpu_supports("sse4.2") != 0;
#endif
}

uint32_t hki_crc32c_plain(uint32_t crc, const void *bytes, size_t n) {
    pthread_once(&tables_once, fill_tables);
    const uint8_t *p = bytes;
    uint32_t state = ~crc;
    for (; n >= 8; n -= 8, p += 8) {
        const uint32_t low = state ^ hki_get_u32(p);
        const uint32_t high = hki_get_u32(p + 4);
        state = tables.byte[7][low & 255] ^ tables.byte[6][low >> 8 & 255] ^
                tables.byte[5][low >> 16 & 255] ^ tables.byte[4][low >> 24] ^
                tables.byte[3][high & 255] ^ tables.byte[2][high >> 8 & 255] ^
                tables.byte[1][high >> 16 & 255] ^ tables.byte[0][high >> 24];
    }
    for (; n > 0; n--, p++)
        state = state >> 8 ^ tables.byte[0][(state ^ *p) & 255];
    return ~state;
}

#if defined(__x86_64__)
static inline uint32_t shift(uint32_t table[4][256], uint32_t state) {
    return table[0][state & 255] ^ table[1][state >> 8 & 255] ^
           table[2][state >> 16 & 255] ^ table[3][state >> 24];
}

// Three streams of `width` bytes each from p, joined.
__attribute__((target("sse4.2"))) static inline uint32_t
three(uint32_t state, const uint8_t *p, size_t width, uint32_t table[4][256]) {
    uint64_t a = state, b = 0, c = 0;
    for (size_t i = 0; i < width; i += 8) {
        a = __builtin_ia32_crc32di(a, hki_get_u64(p + i));
        b = __builtin_ia32_crc32di(b, hki_get_u64(p + width + i));
        c = __builtin_ia32_crc32di(c, hki_get_u64(p + 2 * width + i));
    }
    const uint32_t ab = shift(table, (uint32_t)a) ^ (uint32_t)b;
    return shift(table, ab) ^ (uint32_t)c;
}

__attribute__((target("sse4.2"))) static uint32_t
by_instruction(uint32_t crc, const uint8_t *p, size_t n) {
    uint32_t state = ~crc;
    for (; n >= 3 * WIDE; n -= 3 * WIDE, p += 3 * WIDE)
        state = three(state, p, WIDE, tables.wide);
    for (; n >= 3 * NARROW; n -= 3 * NARROW, p += 3 * NARROW)
        state = three(state, p, NARROW, tables.narrow);
    for (; n >= 8; n -= 8, p += 8)
        state = (uint32_t)__builtin_ia32_crc32di(state, hki_get_u64(p));
    for (; n > 0; n--, p++)
        state = __builtin_ia32_crc32qi(state, *p);
    return ~state;
}
#endif

uint32_t hki_crc32c(uint32_t crc, const void *bytes, size_t n) {
#if defined(__x86_64__)
    pthread_once(&tables_once, fill_tables);
    if (tables.instruction)
        return by_instruction(crc, bytes, n);
#endif
    return hki_crc32c_plain(crc, bytes, n);
}

uint32_t hki_crc32c_mask(uint32_t crc) {
    return ((crc >> 15) | (crc << 17)) + MASK_DELTA;
}

uint32_t hki_crc32c_unmask(uint32_t masked) {
    const uint32_t rotated = masked - MASK_DELTA;
    return (rotated >> 17) | (rotated << 15);
}
