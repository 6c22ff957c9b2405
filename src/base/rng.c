// rng.c - Philox4x32-10 and the FNV-1a hash.
//
// Philox: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011, section 3.3 and table 2.
#include "base/base.h"
#include <math.h>

#define PHILOX_M0 UINT32_C(0xD2511F53)
#define PHILOX_M1 UINT32_C(0xCD9E8D57)
#define PHILOX_W0 UINT32_C(0x9E3779B9) // golden ratio
#define PHILOX_W1 UINT32_C(0xBB67AE85) // sqrt(3) - 1
#define PHILOX_ROUNDS 10

void hki_philox_block(const uint32_t key[2], const uint32_t counter[4],
                      uint32_t out[4]) {
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = counter[0], c1 = counter[1];
    uint32_t c2 = counter[2], c3 = counter[3];
    for (int i = 0; i < PHILOX_ROUNDS; i++) {
        const uint64_t p0 = (uint64_t)PHILOX_M0 * c0;
        const uint64_t p1 = (uint64_t)PHILOX_M1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

void hki_rng_init(hki_rng *r, uint64_t seed, uint64_t stream) {
    *r = (hki_rng){
        .state = {.key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
                  .counter = {0, 0, (uint32_t)stream,
                              (uint32_t)(stream >> 32)}},
        .used = 4,
    };
}

uint32_t hki_rng_u32(hki_rng *r) {
    if (r->used >= 4) {
        uint32_t *const c = r->state.counter;
        hki_philox_block(r->state.key, c, r->block);
        if (++c[0] == 0)
            ++c[1]; // words 2 and 3 name the stream
        r->used = 0;
    }
    return r->block[r->used++];
}

uint64_t hki_rng_u64(hki_rng *r) {
    const uint64_t low = hki_rng_u32(r);
    return low | (uint64_t)hki_rng_u32(r) << 32;
}

// D. Lemire, "Fast random integer generation in an interval", 2019: the high
// half of a product, with the few values that would bias it drawn again.
uint64_t hki_rng_below(hki_rng *r, uint64_t n) {
    const uint64_t biased = -n % n; // 2^64 mod n
    unsigned __int128 m;
    do
        m = (unsigned __int128)hki_rng_u64(r) * n;
    while ((uint64_t)m < biased);
    return (uint64_t)(m >> 64);
}

double hki_rng_uniform(hki_rng *r) {
    return (double)(hki_rng_u64(r) >> 11) * 0x1p-53;
}

// Box-Muller, the cosine half only: two uniform numbers give one result, so
// that a saved stream needs no spare value.
double hki_rng_normal(hki_rng *r) {
    const double two_pi = 6.283185307179586;
    const double u = 1.0 - hki_rng_uniform(r); // (0, 1]
    const double v = hki_rng_uniform(r);
    return sqrt(-2.0 * log(u)) * cos(two_pi * v);
}

uint64_t hki_hash(uint64_t h, const void *bytes, size_t size) {
    const unsigned char *p = bytes;
    for (size_t i = 0; i < size; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

uint64_t hki_new_id(void) {
    uint64_t id = 0;
    if (!hki_random_bytes(&id, sizeof id)) {
        const int64_t now = hki_now_ns();
        const double wall = hki_wall_seconds();
        id = hki_hash(hki_hash(HKI_HASH_INIT, &now, sizeof now), &wall,
                      sizeof wall);
    }
    return id != 0 ? id : 1;
}
