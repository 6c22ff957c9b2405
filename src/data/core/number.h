// data/core/number.h - numbers written as text: exact, and the same in every
// locale.
//
// Integers: [+-] digits. Floats: [+-] digits [. digits] [e [+-] digits], with
// at least one digit before the exponent; also inf, infinity and nan in any
// case. Blanks (space, tab) around a number are ignored. Nothing else is a
// number: no hexadecimal, no thousands separators.
#ifndef HKI_DATA_NUMBER_H
#define HKI_DATA_NUMBER_H
#include "tensor/tensor.h"

// False: not a number, or out of the type's range. A float too large becomes
// infinity and one too small zero, as strtod has it; *out is written on
// success only.
bool hki_parse_i64(const uint8_t *p, size_t n, int64_t *out);
bool hki_parse_i32(const uint8_t *p, size_t n, int32_t *out);
bool hki_parse_f64(const uint8_t *p, size_t n, double *out); // nearest double
bool hki_parse_f32(const uint8_t *p, size_t n, float *out);  // nearest float
// The one of them for the type.
bool hki_parse_number(hk_dtype dtype, const uint8_t *p, size_t n, void *out);

// The shortest text that hki_parse_f64 (f32) turns back into v; "nan", "inf",
// "-inf". Returns its length.
#define HKI_NUMBER_TEXT 32
size_t hki_format_f64(double v, char buf[HKI_NUMBER_TEXT]);
size_t hki_format_f32(float v, char buf[HKI_NUMBER_TEXT]);

// One to eight digits at p, of which eight bytes may be read whatever n is;
// false when another byte is among the n.
static inline bool hki_parse_digits8(const uint8_t *p, size_t n,
                                     uint32_t *out) {
    uint64_t v = hki_get_u64(p);
    // The digits move to the high end, the bytes before them become '0'.
    const uint64_t zeros = UINT64_C(0x3030303030303030);
    const uint64_t high = UINT64_C(0xf0f0f0f0f0f0f0f0);
    const unsigned shift = (unsigned)(64 - 8 * n);
    v = v << shift | (zeros >> 1 >> (63 - shift));
    // Digits are 0x30 to 0x39: the high half is 3, and still is 3 with 6 added.
    const uint64_t six = UINT64_C(0x0606060606060606);
    if (((v & high) | ((v + six) & high) >> 4) != zeros + (zeros >> 4))
        return false;
    // Neighbours are joined: 8 digits, 4 pairs, 2 fours, 1 eight.
    v = (v & UINT64_C(0x0f0f0f0f0f0f0f0f)) * 2561 >> 8;
    v = (v & UINT64_C(0x00ff00ff00ff00ff)) * 6553601 >> 16;
    *out = (uint32_t)((v & UINT64_C(0x0000ffff0000ffff)) *
                          UINT64_C(42949672960001) >>
                      32);
    return true;
}

#endif // HKI_DATA_NUMBER_H
