// feature_hash.c - the hash behind hash buckets and crosses.
//
// It is FarmHash's Fingerprint64, whose values are fixed for ever, because
// TensorFlow's hash buckets are made with it: a table trained there keeps its
// rows. Four ranges of length have a function each; all of them mix 64-bit
// words read little-endian with three odd constants.
#include "data/features/feature.h"

static const uint64_t K0 = UINT64_C(0xc3a5c85c97cb3127);
static const uint64_t K1 = UINT64_C(0xb492b66fbe98f273);
static const uint64_t K2 = UINT64_C(0x9ae16a3b2f90404f);

static inline uint64_t turn(uint64_t v, unsigned bits) { // to the right
    return v >> bits | v << (64 - bits);
}

static inline uint64_t fold(uint64_t v) {
    return v ^ v >> 47;
}

// Two words become one.
static inline uint64_t join(uint64_t u, uint64_t v, uint64_t mul) {
    const uint64_t a = fold((u ^ v) * mul);
    return fold((v ^ a) * mul) * mul;
}

static uint64_t up_to_16(const uint8_t *p, size_t n) {
    const uint64_t mul = K2 + n * 2;
    if (n >= 8) {
        const uint64_t a = hki_get_u64(p) + K2, b = hki_get_u64(p + n - 8);
        return join(turn(b, 37) * mul + a, (turn(a, 25) + b) * mul, mul);
    }
    if (n >= 4)
        return join(n + ((uint64_t)hki_get_u32(p) << 3), hki_get_u32(p + n - 4),
                    mul);
    if (n > 0) {
        const uint64_t y = p[0] + ((uint64_t)p[n / 2] << 8);
        const uint64_t z = n + ((uint64_t)p[n - 1] << 2);
        return fold(y * K2 ^ z * K0) * K2;
    }
    return K2;
}

static uint64_t up_to_32(const uint8_t *p, size_t n) {
    const uint64_t mul = K2 + n * 2;
    const uint64_t a = hki_get_u64(p) * K1, b = hki_get_u64(p + 8);
    const uint64_t c = hki_get_u64(p + n - 8) * mul,
                   d = hki_get_u64(p + n - 16) * K2;
    return join(turn(a + b, 43) + turn(c, 30) + d, a + turn(b + K2, 18) + c,
                mul);
}

static uint64_t up_to_64(const uint8_t *p, size_t n) {
    const uint64_t mul = K2 + n * 2;
    const uint64_t a = hki_get_u64(p) * K2, b = hki_get_u64(p + 8);
    const uint64_t c = hki_get_u64(p + n - 8) * mul,
                   d = hki_get_u64(p + n - 16) * K2;
    const uint64_t y = turn(a + b, 43) + turn(c, 30) + d;
    const uint64_t z = join(y, a + turn(b + K2, 18) + c, mul);
    const uint64_t e = hki_get_u64(p + 16) * mul, f = hki_get_u64(p + 24);
    const uint64_t g = (y + hki_get_u64(p + n - 32)) * mul;
    const uint64_t h = (z + hki_get_u64(p + n - 24)) * mul;
    return join(turn(e + f, 43) + turn(g, 30) + h, e + turn(f + a, 18) + g,
                mul);
}

typedef struct pair {
    uint64_t a, b;
} pair;

// 32 bytes mixed into two words.
static inline pair mix32(const uint8_t *p, uint64_t a, uint64_t b) {
    const uint64_t last = hki_get_u64(p + 24);
    a += hki_get_u64(p);
    b = turn(b + a + last, 21);
    const uint64_t first = a;
    a += hki_get_u64(p + 8) + hki_get_u64(p + 16);
    b += turn(a, 44);
    return (pair){a + last, b + first};
}

// State of the long form: 56 bytes, fed 64 at a time.
typedef struct state {
    uint64_t x, y, z;
    pair v, w;
} state;

// times: 1 within the text, 9 at its end, where mul replaces K1.
static inline void feed(state *s, const uint8_t *p, uint64_t mul,
                        uint64_t times) {
    s->x = turn(s->x + s->y + s->v.a + hki_get_u64(p + 8), 37) * mul;
    s->y = turn(s->y + s->v.b + hki_get_u64(p + 48), 42) * mul;
    s->x ^= s->w.b * times;
    s->y += s->v.a * times + hki_get_u64(p + 40);
    s->z = turn(s->z + s->w.a, 33) * mul;
    s->v = mix32(p, s->v.b * mul, s->x + s->w.a);
    s->w = mix32(p + 32, s->z + s->w.b, s->y + hki_get_u64(p + 16));
    const uint64_t x = s->x;
    s->x = s->z;
    s->z = x;
}

static uint64_t longer(const uint8_t *p, size_t n) {
    const uint64_t seed = 81;
    state s = {.x = seed * K2 + hki_get_u64(p), .y = seed * K1 + 113};
    s.z = fold(s.y * K2 + 113) * K2;
    // All whole blocks but the last byte's, then the last 64 bytes.
    const size_t rest = (n - 1) & 63;
    const uint8_t *const end = p + (n - 1 - rest);
    for (; p != end; p += 64)
        feed(&s, p, K1, 1);
    const uint64_t mul = K1 + ((s.z & 0xff) << 1);
    s.w.a += rest;
    s.v.a += s.w.a;
    s.w.a += s.v.a;
    feed(&s, end + rest - 63, mul, 9);
    return join(join(s.v.a, s.w.a, mul) + fold(s.y) * K0 + s.z,
                join(s.v.b, s.w.b, mul) + s.x, mul);
}

uint64_t hki_feature_hash(const void *bytes, size_t size) {
    const uint8_t *const p = bytes;
    if (size <= 16)
        return up_to_16(p, size);
    if (size <= 32)
        return up_to_32(p, size);
    return size <= 64 ? up_to_64(p, size) : longer(p, size);
}

// How TensorFlow chains the hashes of a cross.
uint64_t hki_hash_join(uint64_t a, uint64_t b) {
    const uint64_t mul = UINT64_C(0xc6a4a7935bd1e995);
    uint64_t h = a ^ mul;
    h ^= fold(b * mul) * mul;
    h *= mul;
    h = fold(h) * mul;
    return fold(h);
}
