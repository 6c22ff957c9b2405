// digits.c - draws handwritten-like digits.
//
// One way of writing the digit is chosen (glyphs.c); its points are shaken,
// slanted, turned and scaled; a pen of uneven width and ink follows the curve
// over paper that is warped by a smooth random field; blur and grain follow.
//
// Same bits everywhere: single precision with + - * / and sqrt only, which
// IEEE 754 rounds exactly, integers for the rest, and no function of libm. The
// build forbids contraction to fused operations.
#include "base/base.h"
#include "data/data.h"
#include "data/sources/glyphs.h"
#include "hooke/data.h"
#include "hooke/digits.h"
#include <float.h>
#include <math.h>

// 16 stands for half precision kept as it is, too.
_Static_assert(FLT_EVAL_METHOD == 0 || FLT_EVAL_METHOD == 16,
               "float is computed in float");

enum {
    SIDE = HK_DIGITS_SIDE,
    STRIDE = 32, // floats from row to row; whole vectors
    GRID = 6,    // the warp's control points along one axis
    MAX_STEPS = 8
};

HKI_OPTIONS(hk_digits_options, clutter, .split = HK_DIGITS_TRAIN,
            .distortion = 1, .noise = 1, .clutter = 0.2F)

// ---- chance ---------------------------------------------------------------

// What the numbers of a stream are for. Word 1 of the Philox counter holds it
// beside the split, so that no two streams of a seed ever meet.
enum { FOR_IMAGE = 0, FOR_LABELS = 1 };

static void open_stream(hki_rng *r, const hk_digits_options *opt,
                        uint32_t purpose, uint64_t index) {
    hki_rng_init(r, opt->seed, index);
    r->state.counter[1] = (uint32_t)opt->split << 8 | purpose;
}

// Uniform in [0, 1).
static float unit(hki_rng *r) {
    return (float)(hki_rng_u32(r) >> 8) * 0x1p-24F;
}

static float between(hki_rng *r, float low, float high) {
    return low + (high - low) * unit(r);
}

// Nearly normal, mean 0, variance 1, within +-3.47: four uniform numbers.
static float bell(hki_rng *r) {
    const uint32_t a = hki_rng_u32(r), b = hki_rng_u32(r);
    const uint32_t sum = (a & 0xffff) + (a >> 16) + (b & 0xffff) + (b >> 16);
    return ((float)sum * 0x1p-16F - 2) * 1.7320508F;
}

static float clamp(float x, float low, float high) {
    return x < low ? low : x > high ? high : x;
}

// Class of an image: a random permutation for every ten indices, decoded from
// one number below 10!.
static int32_t label_of(const hk_digits_options *opt, uint64_t index) {
    hki_rng r;
    open_stream(&r, opt, FOR_LABELS, index / 10);
    uint32_t code = (uint32_t)hki_rng_below(&r, 3628800);
    int32_t left[HK_DIGITS_CLASSES];
    for (int32_t i = 0; i < HK_DIGITS_CLASSES; i++)
        left[i] = i;
    uint32_t n = HK_DIGITS_CLASSES;
    for (uint32_t k = (uint32_t)(index % 10);; k--, n--) {
        const uint32_t pick = code % n;
        code /= n;
        if (k == 0)
            return left[pick];
        left[pick] = left[n - 1];
    }
}

static const hki_glyph *choose_glyph(hki_rng *r, int32_t digit) {
    unsigned first = 0;
    while (hki_glyphs[first].digit != digit)
        first++;
    unsigned total = hki_glyphs[first].weight;
    for (unsigned i = first + 1;
         i < hki_n_glyphs && hki_glyphs[i].digit == digit; i++)
        total += hki_glyphs[i].weight;
    unsigned pick = hki_rng_u32(r) % total;
    while (pick >= hki_glyphs[first].weight)
        pick -= hki_glyphs[first++].weight;
    return &hki_glyphs[first];
}

// ---- paper ----------------------------------------------------------------

typedef struct page {
    // Where on the flat paper each pixel's centre looks. Columns from 28 to 31
    // are never shown.
    float x[SIDE][STRIDE], y[SIDE][STRIDE];
    float ink[SIDE][STRIDE]; // 0 to 1
    float reach;             // no pixel looks further away than this
    float soft;              // width of a stroke's soft edge, in pixels
} page;

// Weights of a uniform cubic B-spline in its interval, at f in [0, 1].
static void spline_weights(float f, float w[4]) {
    const float g = 1 - f;
    w[0] = g * g * g / 6;
    w[1] = (f * f * (3 * f - 6) + 4) / 6;
    w[2] = (f * (f * (3 - 3 * f) + 3) + 1) / 6;
    w[3] = f * f * f / 6;
}

// A clean page, warped by a random B-spline surface of the given strength in
// pixels. The surface stays within its control points, which bounds it.
static void prepare(page *p, hki_rng *r, float strength) {
    float control[GRID][2][GRID], w[STRIDE][4];
    int base[STRIDE];
    float reach = 0;
    for (int j = 0; j < GRID; j++)
        for (int i = 0; i < GRID; i++)
            for (int a = 0; a < 2; a++) {
                const float d = strength * bell(r);
                control[j][a][i] = d;
                reach = HKI_MAX(reach, HKI_MAX(d, -d));
            }
    for (int i = 0; i < STRIDE; i++) {
        const float u = ((float)i + 0.5F) * ((float)(GRID - 3) / (float)SIDE);
        base[i] = HKI_MIN((int)u, GRID - 4);
        spline_weights(HKI_MIN(u - (float)base[i], 1.0F), w[i]);
    }
    for (int j = 0; j < SIDE; j++) {
        float row[2][GRID];
        for (int a = 0; a < 2; a++)
            for (int i = 0; i < GRID; i++) {
                const float *const wy = w[j];
                row[a][i] = wy[0] * control[base[j]][a][i] +
                            wy[1] * control[base[j] + 1][a][i] +
                            wy[2] * control[base[j] + 2][a][i] +
                            wy[3] * control[base[j] + 3][a][i];
            }
        for (int i = 0; i < STRIDE; i++) {
            const float *const wx = w[i];
            const float *const rx = &row[0][base[i]];
            const float *const ry = &row[1][base[i]];
            p->x[j][i] = (float)i + 0.5F + wx[0] * rx[0] + wx[1] * rx[1] +
                         wx[2] * rx[2] + wx[3] * rx[3];
            p->y[j][i] = (float)j + 0.5F + wx[0] * ry[0] + wx[1] * ry[1] +
                         wx[2] * ry[2] + wx[3] * ry[3];
        }
    }
    memset(p->ink, 0, sizeof p->ink);
    p->reach = reach;
}

// ---- pen ------------------------------------------------------------------

typedef struct dot { // a point of the pen's way, in pixels
    float x, y;
    float radius; // half the stroke's width
    float ink;    // 0 to 1
} dot;

// The rows or columns that may be touched by ink from low to high.
static int first_touched(float low) {
    return low <= 0 ? 0 : (int)HKI_MIN(low, (float)SIDE);
}

static int end_touched(float high) {
    return high <= 0 ? 0 : (int)HKI_MIN(high + 1, (float)SIDE);
}

// Inks the pixels near the line from a to b; where strokes overlap, the darker
// one stays.
static void draw_line(page *p, const dot *a, const dot *b) {
    const float radius = (a->radius + b->radius) * 0.5F;
    const float ink = (a->ink + b->ink) * 0.5F;
    const float edge = radius + p->soft * 0.5F;
    const float margin = edge + p->reach + 0.5F;
    const float ax = a->x, ay = a->y, dx = b->x - ax, dy = b->y - ay;
    const float inverse = 1 / (dx * dx + dy * dy + 1e-6F);
    const float steep = 1 / p->soft;
    const int y0 = first_touched(HKI_MIN(ay, b->y) - margin);
    const int y1 = end_touched(HKI_MAX(ay, b->y) + margin);
    const int x0 = first_touched(HKI_MIN(ax, b->x) - margin) & ~3;
    const int x1 = (end_touched(HKI_MAX(ax, b->x) + margin) + 3) & ~3;
    for (int j = y0; j < y1; j++) {
        const float *const px = p->x[j], *const py = p->y[j];
        float *const out = p->ink[j];
        for (int i = x0; i < x1; i++) {
            const float qx = px[i] - ax, qy = py[i] - ay;
            float t = (qx * dx + qy * dy) * inverse;
            t = t > 0 ? t : 0;
            t = t < 1 ? t : 1;
            const float ex = qx - t * dx, ey = qy - t * dy;
            float c = (edge - sqrtf(ex * ex + ey * ey)) * steep;
            c = c > 0 ? c : 0;
            c = c < 1 ? c : 1;
            c = c * c * (3 - 2 * c) * ink;
            out[i] = out[i] > c ? out[i] : c;
        }
    }
}

// Draws the Catmull-Rom arc from b to c; a and d are the neighbours, or the
// ends themselves at a corner or the end of a stroke.
static void draw_arc(page *p, const dot *a, const dot *b, const dot *c,
                     const dot *d) {
    const float dx = c->x - b->x, dy = c->y - b->y;
    const float length = sqrtf(dx * dx + dy * dy);
    const int steps = HKI_MIN(2 + (int)(length * 0.5F), MAX_STEPS);
    const float m0x = (c->x - a->x) * 0.5F, m0y = (c->y - a->y) * 0.5F;
    const float m1x = (d->x - b->x) * 0.5F, m1y = (d->y - b->y) * 0.5F;
    dot last = *b;
    for (int i = 1; i <= steps; i++) {
        const float t = (float)i / (float)steps;
        const float h1 = t * t * (3 - 2 * t), h0 = 1 - h1;
        const float g0 = t * (1 - t) * (1 - t), g1 = t * t * (t - 1);
        const dot next = {
            .x = h0 * b->x + h1 * c->x + g0 * m0x + g1 * m1x,
            .y = h0 * b->y + h1 * c->y + g0 * m0y + g1 * m1y,
            .radius = b->radius + t * (c->radius - b->radius),
            .ink = b->ink + t * (c->ink - b->ink),
        };
        draw_line(p, &last, &next);
        last = next;
    }
}

// Draws n dots; pen[i] says what happens at each.
static void draw_strokes(page *p, const dot *dots, const uint8_t *pen, int n) {
    for (int i = 0; i + 1 < n; i++) {
        if (pen[i + 1] == HKI_PEN_DOWN)
            continue;
        const bool turns = pen[i] != HKI_PEN_SMOOTH;
        const bool ends = i + 2 >= n || pen[i + 1] != HKI_PEN_SMOOTH ||
                          pen[i + 2] == HKI_PEN_DOWN;
        draw_arc(p, &dots[turns ? i : i - 1], &dots[i], &dots[i + 1],
                 &dots[ends ? i + 1 : i + 2]);
    }
}

// ---- hand -----------------------------------------------------------------

// A linear map of the glyph's box, its centre at 0, to pixels.
typedef struct affine {
    float xx, xy, yx, yy;
} affine;

// Size, slant and rotation. The rotation comes from the tangent of half its
// angle, which needs no sine.
static affine choose_affine(hki_rng *r, float distortion) {
    const float height = 19.5F + distortion * 1.9F * bell(r);
    const float width = height * (1 + distortion * 0.13F * bell(r));
    const float slant = distortion * (0.10F + 0.17F * bell(r));
    const float h = distortion * 0.065F * bell(r);
    const float scale = 1 / (1 + h * h);
    const float c = (1 - h * h) * scale, s = 2 * h * scale;
    const float sx = clamp(width, 11, 26), sy = clamp(height, 11, 25);
    return (affine){
        .xx = c * sx,
        .xy = -c * slant * sx - s * sy,
        .yx = s * sx,
        .yy = -s * slant * sx + c * sy,
    };
}

// Shakes the points of a glyph and places them on the page. Returns their
// number.
static int place_glyph(hki_rng *r, const hki_glyph *g, float distortion,
                       dot *dots, uint8_t *pen) {
    const affine m = choose_affine(r, distortion);
    // Moves the waist up or down, and makes one end wider than the other.
    const float waist = distortion * 0.10F * bell(r);
    const float taper = distortion * 0.12F * bell(r);
    const float shake = distortion * between(r, 0.010F, 0.030F);
    const float radius = clamp(1.25F + 0.36F * bell(r), 0.65F, 2.2F);
    const float uneven = between(r, 0.02F, 0.16F);
    const float ink = between(r, 0.78F, 1.0F);
    const float fade = between(r, 0, 0.16F);
    float left = 1e9F, right = -1e9F, top = 1e9F, bottom = -1e9F;
    int n = 0;
    for (; g->points[n].pen != HKI_PEN_END; n++) {
        const hki_glyph_point q = g->points[n];
        float x = (float)q.x * 0.01F - 0.5F, y = (float)q.y * 0.01F - 0.5F;
        y += waist * (1 - 4 * y * y);
        x *= 1 + 2 * taper * y;
        x += shake * bell(r);
        y += shake * bell(r);
        dots[n].x = m.xx * x + m.xy * y;
        dots[n].y = m.yx * x + m.yy * y;
        dots[n].radius = radius * clamp(1 + uneven * bell(r), 0.55F, 1.5F);
        dots[n].ink = clamp(ink - fade * (1 + bell(r)), 0.4F, 1);
        pen[n] = q.pen;
        left = HKI_MIN(left, dots[n].x);
        right = HKI_MAX(right, dots[n].x);
        top = HKI_MIN(top, dots[n].y);
        bottom = HKI_MAX(bottom, dots[n].y);
    }
    // The middle of the ink goes near the middle of the page, as far off as
    // the room around it allows.
    const float half = (float)SIDE * 0.5F;
    const float room_x = half - 0.5F - (right - left) * 0.5F - radius;
    const float room_y = half - 0.5F - (bottom - top) * 0.5F - radius;
    const float far_x = HKI_MAX(room_x, 0), far_y = HKI_MAX(room_y, 0);
    const float off_x = clamp(distortion * 1.5F * bell(r), -far_x, far_x);
    const float off_y = clamp(distortion * 1.2F * bell(r), -far_y, far_y);
    for (int i = 0; i < n; i++) {
        dots[i].x += half + off_x - (left + right) * 0.5F;
        dots[i].y += half + off_y - (top + bottom) * 0.5F;
    }
    return n;
}

// A stray stroke that comes in from one side, as of the digit next to it.
static void draw_stray(page *p, hki_rng *r) {
    const uint8_t pen[3] = {HKI_PEN_DOWN, HKI_PEN_SMOOTH, HKI_PEN_SMOOTH};
    const uint32_t side = hki_rng_u32(r) >> 30;
    const float along = between(r, 1, (float)SIDE - 1);
    const float radius = between(r, 0.5F, 1.1F);
    const float ink = between(r, 0.35F, 0.9F);
    const float depth = between(r, 2, 7), drift = 2.5F * bell(r);
    dot dots[3];
    for (int i = 0; i < 3; i++) {
        const float in = (float)i * 0.5F * depth - 1;
        const float at = along + (float)i * drift + bell(r);
        const float across = side & 1 ? (float)SIDE - in : in;
        dots[i] = (dot){.x = side & 2 ? at : across,
                        .y = side & 2 ? across : at,
                        .radius = radius,
                        .ink = ink};
    }
    draw_strokes(p, dots, pen, 3);
}

// ---- development ----------------------------------------------------------

// Blurs with (k, 1 - 2k, k) along both axes; beyond the border is paper.
static void blur(float ink[SIDE][STRIDE], float k) {
    float above[SIDE] = {0};
    const float m = 1 - 2 * k;
    for (int j = 0; j < SIDE; j++) {
        float *const row = ink[j];
        float before = 0;
        for (int i = 0; i < SIDE; i++) {
            const float here = row[i], after = i + 1 < SIDE ? row[i + 1] : 0;
            row[i] = m * here + k * (before + after);
            before = here;
        }
    }
    for (int j = 0; j < SIDE; j++)
        for (int i = 0; i < SIDE; i++) {
            const float here = ink[j][i];
            const float below = j + 1 < SIDE ? ink[j + 1][i] : 0;
            ink[j][i] = m * here + k * (above[i] + below);
            above[i] = here;
        }
}

// Adds the grain of paper and ink and rounds to bytes. One random word makes
// two values of triangular distribution in [-1, 1].
static void develop(const page *p, hki_rng *r, float noise, uint8_t *image) {
    const float u = unit(r);
    const float paper = noise * (0.01F + 0.16F * u * u);
    const float grain = noise * between(r, 0.02F, 0.22F);
    for (int j = 0; j < SIDE; j++)
        for (int i = 0; i < SIDE; i += 2) {
            const uint32_t word = hki_rng_u32(r);
            for (int k = 0; k < 2; k++) {
                const uint32_t bits = word >> (16 * k);
                const int32_t sum =
                    (int32_t)((bits & 255) + (bits >> 8 & 255)) - 255;
                const float ink = p->ink[j][i + k];
                const float v =
                    ink + (float)sum * (paper + grain * ink) * (1.0F / 255);
                *image++ = (uint8_t)(clamp(v, 0, 1) * 255 + 0.5F);
            }
        }
}

static int32_t draw(const hk_digits_options *opt, uint64_t index,
                    uint8_t *image) {
    const int32_t label = label_of(opt, index);
    hki_rng r;
    open_stream(&r, opt, FOR_IMAGE, index);
    page p;
    prepare(&p, &r, opt->distortion * between(&r, 0.3F, 1.5F));
    p.soft = between(&r, 0.9F, 1.5F);
    dot dots[HKI_GLYPH_POINTS] = {{0}};
    uint8_t pen[HKI_GLYPH_POINTS] = {0};
    const hki_glyph *const g = choose_glyph(&r, label);
    const int n = place_glyph(&r, g, opt->distortion, dots, pen);
    draw_strokes(&p, dots, pen, n);
    if (unit(&r) < opt->clutter) {
        draw_stray(&p, &r);
        if (hki_rng_u32(&r) >> 30 == 0)
            draw_stray(&p, &r);
    }
    blur(p.ink, between(&r, 0, 0.16F));
    develop(&p, &r, opt->noise, image);
    return label;
}

// ---- calls ----------------------------------------------------------------

// NaN is in no range.
static bool in_range(float x, float low, float high) {
    return x >= low && x <= high;
}

static hk_status read_options(hk_digits_options *opt,
                              const hk_digits_options *src) {
    hk_digits_options_init(opt, sizeof *opt);
    HKI_TRY(hki_options_copy(opt, sizeof *opt, src, "digits"));
    if (opt->split != HK_DIGITS_TRAIN && opt->split != HK_DIGITS_TEST)
        return hki_fail(HK_E_INVALID_ARG, "digits: split %d is unknown",
                        (int)opt->split);
    const struct {
        const char *name;
        float value, high;
    } ranges[] = {
        {"distortion", opt->distortion, 2},
        {"noise", opt->noise, 4},
        {"clutter", opt->clutter, 1},
    };
    for (size_t i = 0; i < HKI_COUNT(ranges); i++)
        if (!in_range(ranges[i].value, 0, ranges[i].high))
            return hki_fail(HK_E_INVALID_ARG,
                            "digits: %s %g is not within 0 and %g",
                            ranges[i].name, (double)ranges[i].value,
                            (double)ranges[i].high);
    return HK_OK;
}

static hk_status check_draw(uint64_t first, int64_t n, hk_dtype dtype,
                            const void *images) {
    size_t bytes;
    if (n < 0 || (n > 0 && images == NULL) ||
        (dtype != HK_U8 && dtype != HK_F32))
        return hki_fail(HK_E_INVALID_ARG,
                        "digits: %lld images as %s at %p are not possible",
                        (long long)n, hk_dtype_name(dtype), images);
    if ((uint64_t)n > SIZE_MAX ||
        hki_mul_overflow((size_t)n, HK_DIGITS_PIXELS * sizeof(float), &bytes) ||
        (n > 0 && (uint64_t)(n - 1) > UINT64_MAX - first))
        return hki_fail(
            HK_E_OVERFLOW,
            "digits: %lld images from index %llu on are out of range",
            (long long)n, (unsigned long long)first);
    return HK_OK;
}

hk_status hk_digits_draw(const hk_digits_options *opt, uint64_t first,
                         int64_t n, hk_dtype dtype, void *images,
                         int32_t *labels) {
    hk_digits_options o;
    HKI_TRY(check_draw(first, n, dtype, images));
    HKI_TRY(read_options(&o, opt));
    for (int64_t i = 0; i < n; i++) {
        uint8_t pixels[HK_DIGITS_PIXELS];
        const int32_t label = draw(&o, first + (uint64_t)i, pixels);
        float *const floats = (float *)images + i * HK_DIGITS_PIXELS;
        if (dtype == HK_U8)
            memcpy((uint8_t *)images + i * HK_DIGITS_PIXELS, pixels,
                   sizeof pixels);
        for (int k = 0; dtype == HK_F32 && k < HK_DIGITS_PIXELS; k++)
            floats[k] = (float)pixels[k] / 255.0F;
        if (labels != NULL)
            labels[i] = label;
    }
    return HK_OK;
}
