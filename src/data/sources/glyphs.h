// glyphs.h - the shapes of the ten digits, as a pen would write them.
#ifndef HKI_GLYPHS_H
#define HKI_GLYPHS_H
#include <stdint.h>

// What the pen does at a point.
typedef enum hki_pen {
    HKI_PEN_END = 0,    // the glyph is complete; no point
    HKI_PEN_DOWN = 1,   // a stroke begins here
    HKI_PEN_SMOOTH = 2, // the curve passes through
    HKI_PEN_CORNER = 3  // the curve passes through and may turn sharply
} hki_pen;

// In hundredths of the glyph's height, x to the right, y down.
typedef struct hki_glyph_point {
    uint8_t pen; // an hki_pen
    uint8_t x, y;
} hki_glyph_point;

#define HKI_GLYPH_POINTS 20 // the end mark included

typedef struct hki_glyph {
    uint8_t digit;
    uint8_t weight; // how often it is written, among those of its digit
    hki_glyph_point points[HKI_GLYPH_POINTS];
} hki_glyph;

// Sorted by digit; every digit has at least one.
extern const hki_glyph hki_glyphs[];
extern const unsigned hki_n_glyphs;

#endif // HKI_GLYPHS_H
