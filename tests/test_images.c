// test_images.c - operations on pictures against scalar references written
// from their definitions, in double precision; random ones by the rules they
// have to keep; and lists of them in pipelines.
#include "feature_util.h"
#include "codec/codec.h"
#include "data/images/image.h"
#include "hooke/image.h"

#define MAX_ITEMS (64 * 64 * 4)

typedef struct picture {
    hk_dtype dtype;
    int64_t h, w, c;
    union {
        uint8_t u8[MAX_ITEMS];
        float f32[MAX_ITEMS];
    } data;
} picture;

static double at(const picture *p, int64_t y, int64_t x, int64_t c) {
    const int64_t i = (y * p->w + x) * p->c + c;
    return p->dtype == HK_U8 ? (double)p->data.u8[i] : (double)p->data.f32[i];
}

// Noise, with some even places and full colours.
static void paint(picture *p, hk_dtype dtype, int64_t h, int64_t w, int64_t c,
                  uint64_t seed) {
    hki_rng rng;
    hki_rng_init(&rng, seed, 1);
    *p = (picture){.dtype = dtype, .h = h, .w = w, .c = c};
    for (int64_t i = 0; i < h * w * c; i++) {
        const uint32_t v = hki_rng_u32(&rng) >> 24;
        const uint32_t kind = hki_rng_u32(&rng) % 8;
        const uint8_t byte = kind == 0 ? 0 : kind == 1 ? 255 : (uint8_t)v;
        if (dtype == HK_U8)
            p->data.u8[i] = byte;
        else
            p->data.f32[i] = (float)byte / 255;
    }
}

static hk_value value_of_picture(const char *name, const picture *p) {
    const hk_shape shape = hk_shape_make(3, (int64_t[]){p->h, p->w, p->c});
    hk_tensor *t = NULL;
    assert_ok(hk_tensor_create(p->dtype, shape, &t));
    memcpy(hk_tensor_data(t), &p->data,
           (size_t)(p->h * p->w * p->c) * hk_dtype_size(p->dtype));
    return value_of(name, p->dtype, t);
}

static void read_picture(const hk_value *v, picture *out) {
    const hk_shape s = hk_tensor_shape(v->tensor);
    assert_int_equal(s.rank, 3);
    *out = (picture){
        .dtype = v->dtype, .h = s.dim[0], .w = s.dim[1], .c = s.dim[2]};
    memcpy(&out->data, hk_tensor_data(v->tensor),
           (size_t)hk_tensor_count(v->tensor) * hk_dtype_size(v->dtype));
}

// The picture after the operations, as the first element of a dataset.
static void run_seeded(const picture *in, const hk_image_op *ops, size_t n,
                       int64_t seed, picture *out) {
    hk_value v[] = {value_of_picture("image", in)};
    hk_images_options o;
    hk_images_options_init(&o, sizeof o);
    o.seed = seed;
    hk_iter *it;
    const hk_element *const e =
        first_of(hk_data_images(batch_of(v, 1), "image", ops, n, &o), &it);
    read_picture(find(e, "image"), out);
    hk_iter_destroy(it);
}

static void run(const picture *in, const hk_image_op *op, picture *out) {
    run_seeded(in, op, 1, 0, out);
}

static void expect_size(const picture *p, hk_dtype dtype, int64_t h, int64_t w,
                        int64_t c) {
    if (p->dtype != dtype || p->h != h || p->w != w || p->c != c)
        fail_msg("%s %lld x %lld x %lld", hk_dtype_name(p->dtype),
                 (long long)p->h, (long long)p->w, (long long)p->c);
}

static const hk_dtype dtypes[] = {HK_U8, HK_F32};

// ---- resize ---------------------------------------------------------------

// Where new pixel i lies, by the table of hk_resize_grid.
static double place(hk_resize_grid grid, int64_t i, int64_t from, int64_t to) {
    const double s = (double)from / (double)to;
    if (grid == HK_GRID_HALF_PIXEL)
        return ((double)i + 0.5) * s - 0.5;
    if (grid == HK_GRID_ALIGN_CORNERS && to > 1)
        return (double)i * (double)(from - 1) / (double)(to - 1);
    return (double)i * s;
}

static int64_t clamp(int64_t v, int64_t low, int64_t high) {
    return v < low ? low : v > high ? high : v;
}

static double bilinear(const picture *p, double y, double x, int64_t c) {
    const double fy = y - floor(y), fx = x - floor(x);
    double v = 0;
    for (int dy = 0; dy < 2; dy++)
        for (int dx = 0; dx < 2; dx++)
            v += (dy ? fy : 1 - fy) * (dx ? fx : 1 - fx) *
                 at(p, clamp((int64_t)floor(y) + dy, 0, p->h - 1),
                    clamp((int64_t)floor(x) + dx, 0, p->w - 1), c);
    return v;
}

static double nearest(const picture *p, hk_resize_grid grid, int64_t y,
                      int64_t x, int64_t c, int64_t h, int64_t w) {
    double py = place(grid, y, p->h, h), px = place(grid, x, p->w, w);
    if (grid == HK_GRID_HALF_PIXEL) {
        py += 0.5;
        px += 0.5;
    } else if (grid == HK_GRID_ALIGN_CORNERS) {
        py = round(py);
        px = round(px);
    }
    return at(p, clamp((int64_t)floor(py), 0, p->h - 1),
              clamp((int64_t)floor(px), 0, p->w - 1), c);
}

// The mean over the box of a new pixel, old pixels by their overlap.
static double area(const picture *p, int64_t y, int64_t x, int64_t c, int64_t h,
                   int64_t w) {
    const double sy = (double)p->h / (double)h, sx = (double)p->w / (double)w;
    double sum = 0;
    for (int64_t i = 0; i < p->h; i++)
        for (int64_t j = 0; j < p->w; j++) {
            const double oy = fmin((double)(y + 1) * sy, (double)(i + 1)) -
                              fmax((double)y * sy, (double)i);
            const double ox = fmin((double)(x + 1) * sx, (double)(j + 1)) -
                              fmax((double)x * sx, (double)j);
            if (oy > 0 && ox > 0)
                sum += oy * ox * at(p, i, j, c);
        }
    return sum / (sy * sx);
}

static void check_resize(const picture *in, const hk_image_op *op) {
    static picture out;
    run(in, op, &out);
    const bool floats = in->dtype == HK_F32 || op->as_float != 0;
    expect_size(&out, floats ? HK_F32 : HK_U8, op->height, op->width, in->c);
    for (int64_t y = 0; y < out.h; y++)
        for (int64_t x = 0; x < out.w; x++)
            for (int64_t c = 0; c < out.c; c++) {
                const double want =
                    op->method == HK_RESIZE_NEAREST
                        ? nearest(in, op->grid, y, x, c, out.h, out.w)
                    : op->method == HK_RESIZE_AREA
                        ? area(in, y, x, c, out.h, out.w)
                        : bilinear(in, place(op->grid, y, in->h, out.h),
                                   place(op->grid, x, in->w, out.w), c);
                // Rounding moves a byte by a half; single precision moves
                // bytes as floats by a thousandth.
                const double limit =
                    floats ? (in->dtype == HK_U8 ? 2e-3 : 1e-5) : 0.502;
                if (fabs(at(&out, y, x, c) - want) >
                    (op->method == HK_RESIZE_NEAREST ? 0 : limit))
                    fail_msg("method %d, grid %d, %lld x %lld to %lld x %lld: "
                             "(%lld, %lld, %lld) is %g, expected %g",
                             (int)op->method, (int)op->grid, (long long)in->h,
                             (long long)in->w, (long long)out.h,
                             (long long)out.w, (long long)y, (long long)x,
                             (long long)c, at(&out, y, x, c), want);
            }
}

static void test_resize(void **state) {
    (void)state;
    static const int32_t sizes[][4] = {
        {7, 5, 14, 10},   {7, 5, 3, 2},    {16, 16, 16, 16},
        {9, 4, 1, 1},     {1, 1, 3, 4},    {5, 8, 7, 3},
        {31, 17, 32, 32}, {12, 12, 5, 30}, {64, 64, 20, 21}};
    static picture in;
    for (size_t i = 0; i < HKI_COUNT(sizes); i++)
        for (int64_t channels = 1; channels <= 4; channels++)
            for (size_t t = 0; t < 2; t++) {
                paint(&in, dtypes[t], sizes[i][0], sizes[i][1], channels, i);
                for (int m = HK_RESIZE_BILINEAR; m <= HK_RESIZE_AREA; m++)
                    for (int g = HK_GRID_HALF_PIXEL; g <= HK_GRID_CORNER; g++) {
                        hk_image_op op = {.kind = HK_IMAGE_RESIZE,
                                          .height = sizes[i][2],
                                          .width = sizes[i][3],
                                          .method = (hk_resize_method)m,
                                          .grid = (hk_resize_grid)g};
                        check_resize(&in, &op);
                        op.as_float = m != HK_RESIZE_NEAREST;
                        check_resize(&in, &op);
                    }
            }
}

// Numbers of tf.image's documentation and tests: [[1, 2], [3, 4]] doubled.
static void test_resize_known(void **state) {
    (void)state;
    static const struct {
        hk_resize_grid grid;
        float expected[16];
    } cases[] = {
        {HK_GRID_CORNER,
         {1, 1.5f, 2, 2, 2, 2.5f, 3, 3, 3, 3.5f, 4, 4, 3, 3.5f, 4, 4}},
        {HK_GRID_ALIGN_CORNERS,
         {1, 4 / 3.f, 5 / 3.f, 2, 5 / 3.f, 2, 7 / 3.f, 8 / 3.f, 7 / 3.f,
          8 / 3.f, 3, 10 / 3.f, 3, 10 / 3.f, 11 / 3.f, 4}},
        {HK_GRID_HALF_PIXEL,
         {1, 1.25f, 1.75f, 2, 1.5f, 1.75f, 2.25f, 2.5f, 2.5f, 2.75f, 3.25f,
          3.5f, 3, 3.25f, 3.75f, 4}},
    };
    static picture in, out;
    in = (picture){.dtype = HK_F32, .h = 2, .w = 2, .c = 1};
    memcpy(in.data.f32, (float[]){1, 2, 3, 4}, 16);
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        const hk_image_op op = {.kind = HK_IMAGE_RESIZE,
                                .height = 4,
                                .width = 4,
                                .grid = cases[i].grid};
        run(&in, &op, &out);
        hk_test_floats("resize", out.data.f32, cases[i].expected, 16, 1e-6, 0);
    }
}

// ---- pixels that move -----------------------------------------------------

static void test_crop_pad_flip(void **state) {
    (void)state;
    static picture in, out;
    for (size_t t = 0; t < 2; t++)
        for (int64_t c = 1; c <= 4; c++) {
            paint(&in, dtypes[t], 9, 6, c, 7);
            const float fill = t == 0 ? 17 : 0.25f;
            const hk_image_op ops[] = {
                {.kind = HK_IMAGE_CROP,
                 .top = 2,
                 .left = 1,
                 .height = 4,
                 .width = 5},
                {.kind = HK_IMAGE_CENTER_CROP, .height = 4, .width = 3},
                {.kind = HK_IMAGE_PAD,
                 .top = 1,
                 .left = 2,
                 .bottom = 3,
                 .right = 4,
                 .fill = fill},
                {.kind = HK_IMAGE_FLIP_LEFT_RIGHT},
                {.kind = HK_IMAGE_FLIP_UP_DOWN}};
            for (size_t i = 0; i < HKI_COUNT(ops); i++) {
                run(&in, &ops[i], &out);
                const int64_t h[] = {4, 4, 13, 9, 9}, w[] = {5, 3, 12, 6, 6};
                expect_size(&out, dtypes[t], h[i], w[i], c);
                for (int64_t y = 0; y < out.h; y++)
                    for (int64_t x = 0; x < out.w; x++)
                        for (int64_t k = 0; k < c; k++) {
                            const int64_t sy[] = {y + 2, y + 2, y - 1, y,
                                                  8 - y};
                            const int64_t sx[] = {x + 1, x + 1, x - 2, 5 - x,
                                                  x};
                            const bool inside = sy[i] >= 0 && sy[i] < 9 &&
                                                sx[i] >= 0 && sx[i] < 6;
                            assert_true(at(&out, y, x, k) ==
                                        (inside ? at(&in, sy[i], sx[i], k)
                                                : (double)fill));
                        }
            }
        }
}

// A random crop is a crop, every place comes up equally often.
static void test_random_crop(void **state) {
    (void)state;
    static picture in, out;
    in = (picture){.dtype = HK_U8, .h = 6, .w = 5, .c = 1};
    for (int i = 0; i < 30; i++)
        in.data.u8[i] = (uint8_t)i;
    const hk_image_op op = {
        .kind = HK_IMAGE_RANDOM_CROP, .height = 4, .width = 4};
    int seen[3][2] = {{0}};
    enum { DRAWS = 3000 };
    for (int64_t seed = 0; seed < DRAWS; seed++) {
        run_seeded(&in, &op, 1, seed, &out);
        const int top = out.data.u8[0] / 5, left = out.data.u8[0] % 5;
        assert_true(top <= 2 && left <= 1);
        for (int y = 0; y < 4; y++)
            for (int x = 0; x < 4; x++)
                assert_int_equal(out.data.u8[y * 4 + x],
                                 (top + y) * 5 + left + x);
        seen[top][left]++;
    }
    // Six places; five standard deviations around a sixth.
    for (int i = 0; i < 6; i++)
        assert_in_range(seen[i / 2][i % 2], DRAWS / 6 - 102, DRAWS / 6 + 102);
}

static void test_random_flip(void **state) {
    (void)state;
    static picture in, out;
    static const struct {
        hk_image_kind random, always;
    } cases[] = {{HK_IMAGE_RANDOM_FLIP_LEFT_RIGHT, HK_IMAGE_FLIP_LEFT_RIGHT},
                 {HK_IMAGE_RANDOM_FLIP_UP_DOWN, HK_IMAGE_FLIP_UP_DOWN}};
    paint(&in, HK_U8, 5, 7, 3, 3);
    for (size_t i = 0; i < 2; i++) {
        static picture flipped;
        run(&in, &(hk_image_op){.kind = cases[i].always}, &flipped);
        int count = 0;
        for (int64_t seed = 0; seed < 1000; seed++) {
            run_seeded(&in, &(hk_image_op){.kind = cases[i].random}, 1, seed,
                       &out);
            const bool turned = memcmp(out.data.u8, flipped.data.u8, 105) == 0;
            assert_true(turned || memcmp(out.data.u8, in.data.u8, 105) == 0);
            count += turned;
        }
        assert_in_range(count, 420, 580);
    }
}

// Operations of one list draw on their own: two random flips cancel each other
// half of the time.
static void test_random_pairs(void **state) {
    (void)state;
    static picture in, out;
    const hk_image_op ops[] = {{.kind = HK_IMAGE_RANDOM_FLIP_LEFT_RIGHT},
                               {.kind = HK_IMAGE_RANDOM_FLIP_LEFT_RIGHT}};
    int same = 0;
    paint(&in, HK_U8, 5, 7, 3, 3);
    for (int64_t seed = 0; seed < 1000; seed++) {
        run_seeded(&in, ops, 2, seed, &out);
        same += memcmp(out.data.u8, in.data.u8, 105) == 0;
    }
    assert_in_range(same, 420, 580);
}

static void test_cutout(void **state) {
    (void)state;
    static picture in, out;
    paint(&in, HK_U8, 12, 10, 3, 11);
    for (int i = 0; i < 360; i++)
        in.data.u8[i] = (uint8_t)(1 + in.data.u8[i] % 200); // never the fill
    bool edge = false, whole = false;
    for (int64_t seed = 0; seed < 200; seed++) {
        const hk_image_op op = {
            .kind = HK_IMAGE_CUTOUT, .height = 4, .width = 5, .fill = 255};
        run_seeded(&in, &op, 1, seed, &out);
        int64_t top = 99, left = 99, bottom = -1, right = -1, n = 0;
        for (int64_t y = 0; y < 12; y++)
            for (int64_t x = 0; x < 10; x++) {
                if (at(&out, y, x, 0) != 255) {
                    for (int64_t k = 0; k < 3; k++)
                        assert_true(at(&out, y, x, k) == at(&in, y, x, k));
                    continue;
                }
                n++;
                top = HKI_MIN(top, y);
                left = HKI_MIN(left, x);
                bottom = HKI_MAX(bottom, y);
                right = HKI_MAX(right, x);
            }
        // One full box, at most as large as asked for, cut by edges only.
        const int64_t high = bottom - top + 1, wide = right - left + 1;
        assert_true(n == high * wide && high <= 4 && wide <= 5);
        assert_true(high == 4 || top == 0 || bottom == 11);
        assert_true(wide == 5 || left == 0 || right == 9);
        whole = whole || n == 20;
        edge = edge || n < 20;
    }
    assert_true(edge && whole);
}

static void test_channels(void **state) {
    (void)state;
    static picture in, out;
    for (size_t t = 0; t < 2; t++)
        for (int64_t from = 1; from <= 4; from++)
            for (int32_t to = 1; to <= 4; to++) {
                if (to == 2)
                    continue;
                paint(&in, dtypes[t], 5, 4, from, 21);
                run(&in,
                    &(hk_image_op){.kind = HK_IMAGE_CHANNELS, .channels = to},
                    &out);
                expect_size(&out, dtypes[t], 5, 4, to);
                const double full = t == 0 ? 255 : 1;
                for (int64_t i = 0; i < 20; i++) {
                    const int64_t y = i / 4, x = i % 4;
                    const bool colour = from >= 3;
                    double rgb[3];
                    for (int64_t k = 0; k < 3; k++)
                        rgb[k] = at(&in, y, x, colour ? k : 0);
                    const double alpha = from == 2   ? at(&in, y, x, 1)
                                         : from == 4 ? at(&in, y, x, 3)
                                                     : full;
                    const double grey =
                        0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2];
                    if (to == 1)
                        assert_close(at(&out, y, x, 0), grey,
                                     t == 0 ? 0.501 : 1e-6, 0);
                    for (int64_t k = 0; k < 3 && to >= 3; k++)
                        assert_close(at(&out, y, x, k), rgb[k], 0, 0);
                    if (to == 4)
                        assert_close(at(&out, y, x, 3), alpha, 0, 0);
                }
            }
}

// ---- pixels that change ---------------------------------------------------

// tf.image's way with bytes: to floats, the formula, back with * 255.5.
static double to_byte(double x) {
    return floor(fmin(fmax(x * 255.5, 0), 255));
}

static void rgb_to_hsv(const double rgb[3], double hsv[3]) {
    const double v = fmax(rgb[0], fmax(rgb[1], rgb[2]));
    const double low = fmin(rgb[0], fmin(rgb[1], rgb[2]));
    const double d = v - low;
    double h = 0;
    if (d > 0 && v == rgb[0])
        h = fmod((rgb[1] - rgb[2]) / d + 6, 6);
    else if (d > 0 && v == rgb[1])
        h = (rgb[2] - rgb[0]) / d + 2;
    else if (d > 0)
        h = (rgb[0] - rgb[1]) / d + 4;
    hsv[0] = h / 6;
    hsv[1] = v > 0 ? d / v : 0;
    hsv[2] = v;
}

static void hsv_to_rgb(const double hsv[3], double rgb[3]) {
    const double h = (hsv[0] - floor(hsv[0])) * 6, s = hsv[1], v = hsv[2];
    const int sector = (int)floor(h) % 6;
    const double f = h - floor(h), p = v * (1 - s), q = v * (1 - s * f),
                 t = v * (1 - s * (1 - f));
    const double table[6][3] = {{v, t, p}, {q, v, p}, {p, v, t},
                                {p, q, v}, {t, p, v}, {v, p, q}};
    memcpy(rgb, table[sector], sizeof table[0]);
}

// What the operation makes of a pixel (0 to 1).
static void by_definition(hk_image_kind kind, double number,
                          const double mean[3], const double in[3],
                          double out[3]) {
    double hsv[3];
    for (int k = 0; k < 3; k++) {
        if (kind == HK_IMAGE_BRIGHTNESS)
            out[k] = in[k] + number;
        else if (kind == HK_IMAGE_CONTRAST)
            out[k] = (in[k] - mean[k]) * number + mean[k];
    }
    if (kind == HK_IMAGE_BRIGHTNESS || kind == HK_IMAGE_CONTRAST)
        return;
    rgb_to_hsv(in, hsv);
    if (kind == HK_IMAGE_SATURATION)
        hsv[1] = fmin(hsv[1] * number, 1);
    else
        hsv[0] += number;
    hsv_to_rgb(hsv, out);
}

static void test_colours(void **state) {
    (void)state;
    static const struct {
        hk_image_kind kind;
        float number;
    } cases[] = {{HK_IMAGE_BRIGHTNESS, 0.25f}, {HK_IMAGE_BRIGHTNESS, -0.4f},
                 {HK_IMAGE_CONTRAST, 0},       {HK_IMAGE_CONTRAST, 0.5f},
                 {HK_IMAGE_CONTRAST, 1.75f},   {HK_IMAGE_SATURATION, 0},
                 {HK_IMAGE_SATURATION, 0.3f},  {HK_IMAGE_SATURATION, 1},
                 {HK_IMAGE_SATURATION, 2.5f},  {HK_IMAGE_HUE, 0},
                 {HK_IMAGE_HUE, 0.1f},         {HK_IMAGE_HUE, -0.25f},
                 {HK_IMAGE_HUE, 0.5f},         {HK_IMAGE_HUE, 1 / 3.f},
                 {HK_IMAGE_HUE, -0.9f},        {HK_IMAGE_HUE, 1.7f}};
    static picture in, out;
    for (size_t t = 0; t < 2; t++)
        for (size_t i = 0; i < HKI_COUNT(cases); i++) {
            const double unit = t == 0 ? 255 : 1;
            double mean[3] = {0};
            paint(&in, dtypes[t], 11, 13, 3, i + 50);
            for (int64_t j = 0; j < 143 * 3; j++)
                mean[j % 3] += at(&in, 0, 0, j) / unit / 143;
            const hk_image_op op = {.kind = cases[i].kind,
                                    .lower = cases[i].number,
                                    .upper = cases[i].number};
            run(&in, &op, &out);
            expect_size(&out, dtypes[t], 11, 13, 3);
            for (int64_t j = 0; j < 143; j++) {
                double rgb[3], want[3];
                for (int64_t k = 0; k < 3; k++)
                    rgb[k] = at(&in, 0, j, k) / unit;
                by_definition(cases[i].kind, (double)cases[i].number, mean, rgb,
                              want);
                for (int64_t k = 0; k < 3; k++) {
                    const double got = at(&out, 0, j, k);
                    const double expected = t == 0 ? to_byte(want[k]) : want[k];
                    // Single precision may fall across a step of bytes.
                    const double scaled = want[k] * 255.5;
                    const bool at_step =
                        fabs(scaled - floor(scaled + 0.5)) < 1e-3;
                    const double limit = t == 1 ? 2e-6 : at_step ? 1 : 0;
                    if (fabs(got - expected) > limit)
                        fail_msg("kind %d, %g: pixel %lld, channel %lld is %g, "
                                 "expected %g",
                                 (int)cases[i].kind, (double)cases[i].number,
                                 (long long)j, (long long)k, got, expected);
                }
            }
        }
}

// What changes nothing changes no bit, and alpha is no colour.
static void test_colours_at_rest(void **state) {
    (void)state;
    static picture in, out;
    paint(&in, HK_U8, 16, 16, 3, 9);
    for (int v = 0; v < 256; v++)
        memset(in.data.u8 + 3 * v, v, 3);
    static const hk_image_op ops[] = {
        {.kind = HK_IMAGE_BRIGHTNESS},
        {.kind = HK_IMAGE_CONTRAST, .lower = 1, .upper = 1},
        {.kind = HK_IMAGE_SATURATION, .lower = 1, .upper = 1},
        {.kind = HK_IMAGE_SATURATION, .lower = 0.2f, .upper = 0.2f}, // greys
        {.kind = HK_IMAGE_HUE, .lower = 0.3f, .upper = 0.3f}};
    for (size_t i = 0; i < HKI_COUNT(ops); i++) {
        run(&in, &ops[i], &out);
        assert_memory_equal(out.data.u8, in.data.u8, 768);
    }
    paint(&in, HK_U8, 8, 8, 4, 9);
    for (int i = 0; i < 2; i++) {
        const hk_image_op op = {.kind = i == 0 ? HK_IMAGE_BRIGHTNESS
                                               : HK_IMAGE_CONTRAST,
                                .lower = 0.5f,
                                .upper = 0.5f};
        run(&in, &op, &out);
        for (int64_t j = 0; j < 64; j++)
            assert_true(at(&out, 0, j, 3) == at(&in, 0, j, 3));
        assert_memory_not_equal(out.data.u8, in.data.u8, 256);
    }
}

// Drawn numbers lie in their range and fill it.
static void test_colour_range(void **state) {
    (void)state;
    static picture in, out;
    in = (picture){.dtype = HK_F32, .h = 1, .w = 1, .c = 1};
    in.data.f32[0] = 0.5f;
    double low = 9, high = -9, sum = 0;
    for (int64_t seed = 0; seed < 1000; seed++) {
        const hk_image_op op = {
            .kind = HK_IMAGE_BRIGHTNESS, .lower = -0.2f, .upper = 0.4f};
        run_seeded(&in, &op, 1, seed, &out);
        const double delta = (double)out.data.f32[0] - 0.5;
        low = fmin(low, delta);
        high = fmax(high, delta);
        sum += delta;
    }
    assert_true(low >= -0.2001 && low < -0.19 && high <= 0.4001 && high > 0.39);
    assert_close(sum / 1000, 0.1, 0.03, 0);
}

// ---- to floats ------------------------------------------------------------

static void test_normalize(void **state) {
    (void)state;
    static picture in, out;
    const float mean[4] = {0.5f, 0.4f, 0.3f, 0.1f}, std[4] = {0.2f, 0.3f, 0};
    for (size_t t = 0; t < 2; t++)
        for (int64_t c = 1; c <= 4; c++)
            for (int kind = 0; kind < 3; kind++) {
                hk_image_op op = {.kind = HK_IMAGE_NORMALIZE,
                                  .scale = t == 0 ? 1 / 255.f : 0};
                memcpy(op.mean, mean, sizeof mean);
                memcpy(op.std, std, sizeof std);
                if (kind > 0)
                    op.kind =
                        kind == 1 ? HK_IMAGE_TO_FLOAT : HK_IMAGE_STANDARDIZE;
                paint(&in, dtypes[t], 9, 11, c, 31);
                run(&in, &op, &out);
                expect_size(&out, HK_F32, 9, 11, c);
                const int64_t n = 99 * c;
                double average = 0, squares = 0;
                for (int64_t i = 0; i < n; i++)
                    average += at(&in, 0, 0, i) / (double)n;
                for (int64_t i = 0; i < n; i++)
                    squares += pow(at(&in, 0, 0, i) - average, 2) / (double)n;
                const double spread = fmax(sqrt(squares), 1 / sqrt((double)n));
                for (int64_t i = 0; i < n; i++) {
                    const double v = at(&in, 0, 0, i);
                    const double unit = t == 0 ? v / 255 : v;
                    const double m = (double)mean[i % c];
                    const double s = std[i % c] != 0 ? (double)std[i % c] : 1;
                    const double want = kind == 0   ? (unit - m) / s
                                        : kind == 1 ? unit
                                                    : (v - average) / spread;
                    assert_close((double)out.data.f32[i], want, 2e-6, 1e-6);
                }
            }
    // A nearly even picture: its deviation, 0.242, is below TF's lower bound.
    in = (picture){.dtype = HK_U8, .h = 4, .w = 4, .c = 1};
    memset(in.data.u8, 77, 16);
    in.data.u8[5] = 78;
    run(&in, &(hk_image_op){.kind = HK_IMAGE_STANDARDIZE}, &out);
    for (int i = 0; i < 16; i++)
        assert_close((double)out.data.f32[i], i == 5 ? 3.75 : -0.25, 1e-4, 0);
}

// ---- instruction sets -----------------------------------------------------

// Every level of the loops gives the bits of the plainest one.
static void test_isa_levels(void **state) {
    (void)state;
    enum {
        N = 64 + 48 + 5 // whole blocks and a rest
    };
    static uint8_t bytes[N];
    static float x[N], y[N], scale[HKI_PATTERN], shift[HKI_PATTERN];
    hki_rng rng;
    hki_rng_init(&rng, 8, 0);
    for (int i = 0; i < N; i++) {
        bytes[i] = (uint8_t)hki_rng_u32(&rng);
        x[i] = (float)hki_rng_uniform(&rng);
        y[i] = i % 5 == 0 ? x[i] : (float)hki_rng_uniform(&rng);
    }
    for (int i = 0; i < HKI_PATTERN; i++) {
        scale[i] = (float)hki_rng_normal(&rng);
        shift[i] = (float)hki_rng_normal(&rng);
    }
    const hki_image_kernels *const plain =
        HKI_ISA_PICK(HK_ISA_BASE, hki_image_kernels_table);
    for (int isa = HK_ISA_V3; isa <= (int)hki_isa_best(); isa++) {
        const hki_image_kernels *const k[] = {
            plain, HKI_ISA_PICK((hk_isa)isa, hki_image_kernels_table)};
        static float out[2][7][N];
        static uint8_t rounded[2][N];
        memset(out, 0, sizeof out);
        for (int i = 0; i < 2; i++) {
            k[i]->affine_u8(bytes, N, scale, shift, out[i][0]);
            k[i]->affine_f32(x, N, scale, shift, out[i][1]);
            k[i]->mix(x, y, N, 0.3f, out[i][2]);
            k[i]->add_u8(bytes, N, 0.7f, out[i][3]);
            k[i]->add_f32(x, N, 0.7f, out[i][3]);
            k[i]->round_u8(out[i][0], N, rounded[i]);
            for (int plane = 4; plane < 7; plane++)
                memcpy(out[i][plane], plane == 5 ? y : x, sizeof x);
            out[i][6][7] = 0.25f;
            k[i]->saturation(out[i][4], out[i][5], out[i][6], HKI_PLANE, 1.4f);
            k[i]->hue(out[i][4], out[i][5], out[i][6], HKI_PLANE - 3, 0.2f);
        }
        assert_memory_equal(out[0], out[1], sizeof out[0]);
        assert_memory_equal(rounded[0], rounded[1], sizeof rounded[0]);
    }
}

// ---- in pipelines ---------------------------------------------------------

enum { PICTURES = 40 };

static hk_value many_pictures(void) {
    const hk_shape shape = hk_shape_make(4, (int64_t[]){PICTURES, 8, 8, 3});
    hk_tensor *t = NULL;
    assert_ok(hk_tensor_create(HK_U8, shape, &t));
    uint8_t *const p = hk_tensor_data(t);
    for (int i = 0; i < PICTURES * 192; i++)
        p[i] = (uint8_t)(i * 31 + i / 192);
    return value_of("image", HK_U8, t);
}

static const hk_image_op augment[] = {
    {.kind = HK_IMAGE_PAD, .top = 2, .left = 2, .bottom = 2, .right = 2},
    {.kind = HK_IMAGE_RANDOM_CROP, .height = 8, .width = 8},
    {.kind = HK_IMAGE_RANDOM_FLIP_LEFT_RIGHT},
    {.kind = HK_IMAGE_BRIGHTNESS, .lower = -0.2f, .upper = 0.2f},
    {.kind = HK_IMAGE_SATURATION, .lower = 0.5f, .upper = 1.5f},
    {.kind = HK_IMAGE_CUTOUT, .height = 3, .width = 3},
    {.kind = HK_IMAGE_NORMALIZE, .scale = 1 / 255.f},
};

static uint64_t hash_of(const hk_element *e) {
    const hk_tensor *const t = find(e, "image")->tensor;
    return hki_hash(HKI_HASH_INIT, hk_tensor_data(t),
                    (size_t)hk_tensor_count(t) * sizeof(float));
}

static hk_dataset *augmented(int32_t parallel, int64_t seed, int batched_by) {
    hk_value v[] = {many_pictures()};
    hk_images_options o;
    hk_images_options_init(&o, sizeof o);
    o.parallel = parallel;
    o.seed = seed;
    hk_dataset *d = rows_of(v, 1);
    d = hk_data_images(d, "image", augment, HKI_COUNT(augment), &o);
    d = hk_data_repeat(d, 2);
    d = hk_data_batch(d, batched_by, 0);
    assert_ok(hk_dataset_status(d));
    return d;
}

// The same numbers for every number of threads; others in the next pass and
// for another seed.
static void test_random_is_reproducible(void **state) {
    (void)state;
    uint64_t hash[4][2 * PICTURES];
    for (int way = 0; way < 4; way++) {
        hk_dataset *const d = augmented(way == 1 ? 4 : 1, way == 3 ? 77 : 5, 1);
        hk_iter_options io;
        hk_iter_options_init(&io, sizeof io);
        io.threads = 4;
        hk_iter *it;
        const hk_element *e;
        assert_ok(hk_iter_create(d, &io, &it));
        for (int i = 0; i < 2 * PICTURES; i++) {
            assert_ok(hk_iter_next(it, &e));
            hash[way][i] = hash_of(e);
        }
        assert_status(hk_iter_next(it, &e), HK_E_END);
        hk_iter_destroy(it);
        hk_dataset_release(d);
    }
    int alike = 0, by_seed = 0;
    for (int i = 0; i < 2 * PICTURES; i++) {
        assert_true(hash[0][i] == hash[1][i] && hash[0][i] == hash[2][i]);
        alike += hash[0][i] == hash[0][(i + PICTURES) % (2 * PICTURES)];
        by_seed += hash[0][i] == hash[3][i];
    }
    assert_int_equal(alike, 0);
    assert_int_equal(by_seed, 0);
}

// Stopped after every batch and restored: the rest is the same.
static void test_random_is_restored(void **state) {
    (void)state;
    enum {
        BATCHES = 12 // of 7 of 80 pictures
    };
    uint64_t hash[BATCHES];
    hk_dataset *const d = augmented(2, 5, 7);
    hk_iter *it;
    const hk_element *e;
    assert_ok(hk_iter_create(d, NULL, &it));
    for (int i = 0; i < BATCHES; i++) {
        assert_ok(hk_iter_next(it, &e));
        hash[i] = hash_of(e);
    }
    hk_iter_destroy(it);
    for (int stop = 0; stop <= BATCHES; stop++) {
        static uint8_t bytes[1 << 20];
        size_t size;
        hk_iter *first, *second;
        assert_ok(hk_iter_create(d, NULL, &first));
        for (int i = 0; i < stop; i++)
            assert_ok(hk_iter_next(first, &e));
        assert_ok(hk_iter_save(first, bytes, sizeof bytes, &size));
        hk_iter_destroy(first);
        assert_ok(hk_iter_create(d, NULL, &second));
        assert_ok(hk_iter_restore(second, bytes, size));
        for (int i = stop; i < BATCHES; i++) {
            assert_ok(hk_iter_next(second, &e));
            assert_true(hash_of(e) == hash[i]);
        }
        assert_status(hk_iter_next(second, &e), HK_E_END);
        hk_iter_destroy(second);
    }
    hk_dataset_release(d);
}

// A batch is worked on picture by picture; the other values stay.
static void test_batches(void **state) {
    (void)state;
    int32_t labels[PICTURES];
    for (int i = 0; i < PICTURES; i++)
        labels[i] = i;
    const hk_image_op ops[] = {
        {.kind = HK_IMAGE_RESIZE, .height = 5, .width = 6},
        {.kind = HK_IMAGE_STANDARDIZE}};
    uint64_t hash[2] = {HKI_HASH_INIT, HKI_HASH_INIT};
    for (int way = 0; way < 2; way++) {
        hk_value v[] = {many_pictures(),
                        numbers("label", HK_I32, labels, PICTURES, 0)};
        v[1].role = HK_LABEL;
        hk_dataset *d = rows_of(v, 2);
        if (way == 0)
            d = hk_data_batch(hk_data_images(d, "image", ops, 2, NULL), 16, 0);
        else
            d = hk_data_images(hk_data_batch(d, 16, 0), "image", ops, 2, NULL);
        assert_ok(hk_dataset_status(d));
        hk_iter *it;
        const hk_element *e;
        assert_ok(hk_iter_create(d, NULL, &it));
        int32_t next = 0;
        while (hk_iter_next(it, &e) == HK_OK) {
            const hk_tensor *const t = find(e, "image")->tensor;
            const int32_t *const label =
                hk_tensor_data(find(e, "label")->tensor);
            assert_int_equal(hk_tensor_shape(t).dim[2], 6);
            for (int64_t i = 0; i < hk_tensor_shape(t).dim[0]; i++)
                assert_int_equal(label[i], next++);
            hash[way] = hki_hash(hash[way], hk_tensor_data(t),
                                 (size_t)hk_tensor_count(t) * sizeof(float));
        }
        assert_int_equal(next, PICTURES);
        hk_iter_destroy(it);
        hk_dataset_release(d);
    }
    assert_true(hash[0] == hash[1]);
}

#if defined(HKI_HAVE_IMAGES)

// ---- files ----------------------------------------------------------------

// PNG files of the given sizes; size 0: damaged.
static hk_value files(const int *sides, int64_t n) {
    const hk_shape shape = hk_shape_make(1, &n);
    hk_tensor *t = NULL;
    assert_ok(hk_tensor_create(HK_STRING, shape, &t));
    for (int64_t i = 0; i < n; i++) {
        static picture p;
        hki_buf png = {0};
        paint(&p, HK_U8, sides[i] == 0 ? 3 : sides[i], 4, 3, (uint64_t)i);
        assert_ok(hki_png_encode(p.data.u8, (int)p.h, 4, 3, &png));
        assert_ok(hk_tensor_set_string(
            t, i, png.data, sides[i] == 0 ? png.size / 2 : png.size));
        hki_buf_deinit(&png);
    }
    return value_of("png", HK_STRING, t);
}

static void test_decode(void **state) {
    (void)state;
    const int sides[] = {3, 5, 3, 4};
    static picture p, q;
    // As they are, one by one.
    hk_value v[] = {files(sides, 4)};
    const hk_image_op decode = {.kind = HK_IMAGE_DECODE, .channels = 3};
    hk_dataset *d = hk_data_images(rows_of(v, 1), "png", &decode, 1, NULL);
    assert_ok(hk_dataset_status(d));
    const hk_shape *const spec = &hk_dataset_spec(d)->values[0].shape;
    assert_true(spec->rank == 3 && spec->dim[0] == -1 && spec->dim[2] == 3);
    hk_iter *it;
    const hk_element *e;
    assert_ok(hk_iter_create(d, NULL, &it));
    for (uint64_t i = 0; i < 4; i++) {
        assert_ok(hk_iter_next(it, &e));
        read_picture(find(e, "png"), &q);
        paint(&p, HK_U8, sides[i], 4, 3, i);
        expect_size(&q, HK_U8, sides[i], 4, 3);
        assert_memory_equal(p.data.u8, q.data.u8, (size_t)sides[i] * 12);
    }
    assert_status(hk_iter_next(it, &e), HK_E_END);
    hk_iter_destroy(it);
    hk_dataset_release(d);
    // Made one size on the way, into a batch.
    v[0] = files(sides, 4);
    const hk_image_op ops[] = {
        {.kind = HK_IMAGE_DECODE, .channels = 3},
        {.kind = HK_IMAGE_RESIZE, .height = 6, .width = 7},
        {.kind = HK_IMAGE_TO_FLOAT}};
    d = hk_data_images(rows_of(v, 1), "png", ops, 3, NULL);
    e = first_of(hk_data_batch(d, 4, 1), &it);
    const float *const got = hk_tensor_data(find(e, "png")->tensor);
    for (uint64_t i = 0; i < 4; i++) {
        paint(&p, HK_U8, sides[i], 4, 3, i);
        run_seeded(&p, ops + 1, 2, 0, &q);
        assert_memory_equal(got + i * 126, q.data.f32, 126 * sizeof(float));
    }
    hk_iter_destroy(it);
}

static void test_decode_damage(void **state) {
    (void)state;
    const int sides[] = {3, 0, 3, 4};
    const hk_image_op any = {.kind = HK_IMAGE_DECODE, .channels = 3};
    const hk_image_op three = {
        .kind = HK_IMAGE_DECODE, .channels = 3, .height = 3, .width = 4};
    const struct {
        const hk_image_op *op;
        hk_on_error on_error;
        uint64_t max_pixels;
        int64_t good;
        hk_status then;
        const char *says;
    } cases[] = {
        {&any, HK_ON_ERROR_FAIL, 1000, 1, HK_E_DATA, "element 1: png: PNG"},
        {&any, HK_ON_ERROR_SKIP, 1000, 3, HK_E_END, NULL},
        {&any, HK_ON_ERROR_SKIP, 12, 2, HK_E_END, NULL},
        {&three, HK_ON_ERROR_SKIP, 1000, 2, HK_E_END, NULL},
        {&any, HK_ON_ERROR_FAIL, 11, 0, HK_E_DATA, "3 x 4 pixels"},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_value v[] = {files(sides, 4)};
        hk_images_options o;
        hk_images_options_init(&o, sizeof o);
        o.on_error = cases[i].on_error;
        o.max_pixels = cases[i].max_pixels;
        hk_dataset *const d =
            hk_data_images(rows_of(v, 1), "png", cases[i].op, 1, &o);
        hk_iter *it;
        const hk_element *e;
        hk_iter_info stats;
        assert_ok(hk_dataset_status(d));
        assert_ok(hk_iter_create(d, NULL, &it));
        for (int64_t k = 0; k < cases[i].good; k++)
            assert_ok(hk_iter_next(it, &e));
        assert_status(hk_iter_next(it, &e), cases[i].then);
        if (cases[i].says != NULL &&
            strstr(hk_last_error(), cases[i].says) == NULL)
            fail_msg("case %zu: %s", i, hk_last_error());
        assert_ok(hk_iter_get_info(it, &stats));
        if (cases[i].on_error == HK_ON_ERROR_SKIP)
            assert_int_equal(stats.skipped, 4 - cases[i].good);
        hk_iter_destroy(it);
        hk_dataset_release(d);
    }
}

#endif // HKI_HAVE_IMAGES

// ---- nonsense -------------------------------------------------------------

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *name;
        hk_image_op op;
        hk_status status;
        const char *says;
    } cases[] = {
        {"no kind", {0}, HK_E_INVALID_ARG, "kind 0"},
        {"unknown", {.kind = (hk_image_kind)99}, HK_E_INVALID_ARG, "kind 99"},
        {"decoded twice",
         {.kind = HK_IMAGE_DECODE, .channels = 3},
         HK_E_DTYPE,
         "one string"},
        {"no size",
         {.kind = HK_IMAGE_RESIZE, .height = 4},
         HK_E_INVALID_ARG,
         "width 0"},
        {"huge",
         {.kind = HK_IMAGE_RESIZE, .height = 1 << 20, .width = 1},
         HK_E_INVALID_ARG,
         "height 1048576"},
        {"bad method",
         {.kind = HK_IMAGE_RESIZE,
          .height = 4,
          .width = 4,
          .method = (hk_resize_method)7},
         HK_E_INVALID_ARG,
         "method 7"},
        {"nearest floats",
         {.kind = HK_IMAGE_RESIZE,
          .height = 4,
          .width = 4,
          .method = HK_RESIZE_NEAREST,
          .as_float = 1},
         HK_E_INVALID_ARG,
         "nearest"},
        {"too large",
         {.kind = HK_IMAGE_RANDOM_CROP, .height = 9, .width = 4},
         HK_E_SHAPE,
         "operation 0 (random crop): 9 x 4 does"},
        {"outside",
         {.kind = HK_IMAGE_CROP, .top = 5, .height = 4, .width = 4},
         HK_E_SHAPE,
         "9 x 4"},
        {"before",
         {.kind = HK_IMAGE_CROP, .top = -1, .height = 4, .width = 4},
         HK_E_INVALID_ARG,
         "top -1 or left 0 is negative"},
        {"negative pad",
         {.kind = HK_IMAGE_PAD, .left = -2},
         HK_E_INVALID_ARG,
         "-2 pixels"},
        {"no colour",
         {.kind = HK_IMAGE_PAD, .fill = 256},
         HK_E_RANGE,
         "fill 256"},
        {"two channels",
         {.kind = HK_IMAGE_CHANNELS, .channels = 2},
         HK_E_INVALID_ARG,
         "2 channels"},
        {"falling",
         {.kind = HK_IMAGE_CONTRAST, .lower = 2, .upper = 1},
         HK_E_INVALID_ARG,
         "lower 2 or upper 1"},
        {"negative",
         {.kind = HK_IMAGE_SATURATION, .lower = -1},
         HK_E_INVALID_ARG,
         "lower -1"},
        {"negative spread",
         {.kind = HK_IMAGE_NORMALIZE, .std = {-1}},
         HK_E_INVALID_ARG,
         "std -1"},
        {"many boxes",
         {.kind = HK_IMAGE_CUTOUT, .height = 1, .width = 1, .count = 99999},
         HK_E_INVALID_ARG,
         "count 99999"},
        {"hue of two channels",
         {.kind = HK_IMAGE_HUE},
         HK_E_SHAPE,
         "2 channels; 3"},
    };
    static picture in;
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        paint(&in, HK_U8, 8, 8, i + 1 == HKI_COUNT(cases) ? 2 : 3, 1);
        hk_value v[] = {value_of_picture("image", &in)};
        hk_dataset *const d =
            hk_data_images(batch_of(v, 1), "image", &cases[i].op, 1, NULL);
        const hk_status e = hk_dataset_status(d);
        if (e != cases[i].status ||
            strstr(hk_last_error(), cases[i].says) == NULL)
            fail_msg("%s: %s (%s)", cases[i].name, hk_status_string(e),
                     hk_last_error());
        hk_dataset_release(d);
    }
    const hk_image_op flip = {.kind = HK_IMAGE_FLIP_UP_DOWN};
    const float x[] = {1, 2};
    hk_value v[] = {numbers("x", HK_F32, x, 2, 0)};
    hk_dataset *d = hk_data_images(batch_of(v, 1), "x", &flip, 1, NULL);
    assert_status(hk_dataset_status(d), HK_E_SHAPE);
    hk_dataset_release(d);
    v[0] = value_of_picture("image", &in);
    d = hk_data_images(batch_of(v, 1), "picture", &flip, 1, NULL);
    assert_status(hk_dataset_status(d), HK_E_NOT_FOUND);
    hk_dataset_release(d);
    v[0] = value_of_picture("image", &in);
    d = hk_data_images(batch_of(v, 1), "image", NULL, 0, NULL);
    assert_status(hk_dataset_status(d), HK_E_INVALID_ARG);
    hk_dataset_release(d);
}

static hk_status make_and_run(void *user) {
    hk_dataset *const rows = user;
    hk_dataset *const d = hk_data_images(hk_dataset_retain(rows), "image",
                                         augment, HKI_COUNT(augment), NULL);
    hk_iter *it = NULL;
    const hk_element *e;
    hk_status s = hk_dataset_status(d);
    if (s == HK_OK)
        s = hk_iter_create(d, NULL, &it);
    if (s == HK_OK)
        s = hk_iter_next(it, &e);
    hk_iter_destroy(it);
    hk_dataset_release(d);
    return s;
}

static void test_no_memory(void **state) {
    (void)state;
    hk_value v[] = {many_pictures()};
    hk_dataset *const d = rows_of(v, 1);
    assert_ok(hk_dataset_status(d));
    hk_test_alloc_failures("images", make_and_run, d);
    hk_dataset_release(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resize),
        cmocka_unit_test(test_resize_known),
        cmocka_unit_test(test_crop_pad_flip),
        cmocka_unit_test(test_random_crop),
        cmocka_unit_test(test_random_flip),
        cmocka_unit_test(test_random_pairs),
        cmocka_unit_test(test_cutout),
        cmocka_unit_test(test_channels),
        cmocka_unit_test(test_colours),
        cmocka_unit_test(test_colours_at_rest),
        cmocka_unit_test(test_colour_range),
        cmocka_unit_test(test_normalize),
        cmocka_unit_test(test_isa_levels),
        cmocka_unit_test(test_random_is_reproducible),
        cmocka_unit_test(test_random_is_restored),
        cmocka_unit_test(test_batches),
#if defined(HKI_HAVE_IMAGES)
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_decode_damage),
#endif
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
