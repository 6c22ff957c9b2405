// test_picture.c - JPEG and PNG: against files put together chunk by chunk,
// against libjpeg-turbo's own calls, and every way to damage them.
#if defined(HKI_HAVE_IMAGES)
#include <turbojpeg.h>
#endif
#include <zlib.h>
#include "hk_test.h"
#include "codec_util.h"
#include "codec/codec.h"

#define ANY ((uint64_t)1 << 20)

// ---- PNG files by hand ----------------------------------------------------

static void put_chunk(hki_buf *b, const char *type, const uint8_t *data,
                      size_t size) {
    uint8_t head[8] = {(uint8_t)(size >> 24), (uint8_t)(size >> 16),
                       (uint8_t)(size >> 8), (uint8_t)size};
    memcpy(head + 4, type, 4);
    uLong crc = crc32(0, head + 4, 4);
    if (size > 0)
        crc = crc32(crc, data, (uInt)size);
    const uint8_t tail[4] = {(uint8_t)(crc >> 24), (uint8_t)(crc >> 16),
                             (uint8_t)(crc >> 8), (uint8_t)crc};
    assert_ok(hki_buf_add(b, head, 8));
    assert_ok(hki_buf_add(b, data, size));
    assert_ok(hki_buf_add(b, tail, 4));
}

typedef struct png_parts {
    uint32_t width, height;
    uint8_t depth, colour;
    const uint8_t *palette; // 3 bytes an entry
    size_t palette_size;
    const uint8_t *transparency;
    size_t transparency_size;
    const uint8_t *rows; // as stored, without filter bytes
    size_t row_bytes;
} png_parts;

static void make_png(const png_parts *p, hki_buf *b) {
    static const uint8_t magic[] = {0x89, 'P', 'N', 'G', 13, 10, 26, 10};
    const uint8_t ihdr[13] = {
        0,        0,        (uint8_t)(p->width >> 8),  (uint8_t)p->width,
        0,        0,        (uint8_t)(p->height >> 8), (uint8_t)p->height,
        p->depth, p->colour};
    uint8_t raw[1024], packed[2048];
    size_t n = 0;
    for (uint32_t y = 0; y < p->height; y++) {
        raw[n++] = 0; // no filter
        memcpy(raw + n, p->rows + y * p->row_bytes, p->row_bytes);
        n += p->row_bytes;
    }
    uLongf size = sizeof packed;
    assert_int_equal(compress(packed, &size, raw, n), Z_OK);
    assert_ok(hki_buf_add(b, magic, sizeof magic));
    put_chunk(b, "IHDR", ihdr, sizeof ihdr);
    if (p->palette != NULL)
        put_chunk(b, "PLTE", p->palette, p->palette_size);
    if (p->transparency != NULL)
        put_chunk(b, "tRNS", p->transparency, p->transparency_size);
    put_chunk(b, "tEXt", (const uint8_t *)"who\0me", 6);
    put_chunk(b, "IDAT", packed, size);
    put_chunk(b, "IEND", NULL, 0);
}

#define BYTES(...)                                                             \
    (const uint8_t[]) {                                                        \
        __VA_ARGS__                                                            \
    }

#if defined(HKI_HAVE_IMAGES)

static void test_png_kinds(void **state) {
    (void)state;
    const struct {
        const char *name;
        png_parts file; // two pixels
        int channels;   // asked for
        int got;
        uint8_t pixels[8];
    } cases[] = {
        {"grey",
         {2, 1, 8, 0, NULL, 0, NULL, 0, BYTES(7, 200), 2},
         0,
         1,
         {7, 200}},
        {"grey as rgb",
         {2, 1, 8, 0, NULL, 0, NULL, 0, BYTES(7, 200), 2},
         3,
         3,
         {7, 7, 7, 200, 200, 200}},
        {"grey as rgba",
         {2, 1, 8, 0, NULL, 0, NULL, 0, BYTES(7, 200), 2},
         4,
         4,
         {7, 7, 7, 255, 200, 200, 200, 255}},
        {"one bit",
         {2, 1, 1, 0, NULL, 0, NULL, 0, BYTES(0x40), 1},
         0,
         1,
         {0, 255}},
        {"four bits",
         {2, 1, 4, 0, NULL, 0, NULL, 0, BYTES(0x3f), 1},
         1,
         1,
         {51, 255}},
        {"grey, 16 bits",
         {2, 1, 16, 0, NULL, 0, NULL, 0, BYTES(7, 9, 200, 255), 4},
         0,
         1,
         {7, 200}},
        {"grey and alpha",
         {2, 1, 8, 4, NULL, 0, NULL, 0, BYTES(7, 9, 8, 0), 4},
         0,
         2,
         {7, 9, 8, 0}},
        {"grey and alpha as grey",
         {2, 1, 8, 4, NULL, 0, NULL, 0, BYTES(7, 9, 8, 0), 4},
         1,
         1,
         {7, 8}},
        {"grey with a transparent value",
         {2, 1, 8, 0, NULL, 0, BYTES(0, 7), 2, BYTES(7, 8), 2},
         0,
         2,
         {7, 0, 8, 255}},
        {"rgb",
         {2, 1, 8, 2, NULL, 0, NULL, 0, BYTES(1, 2, 3, 4, 5, 6), 6},
         0,
         3,
         {1, 2, 3, 4, 5, 6}},
        // 0.299 R + 0.587 G + 0.114 B, rounded.
        {"rgb as grey",
         {2, 1, 8, 2, NULL, 0, NULL, 0, BYTES(255, 0, 0, 10, 200, 30), 6},
         1,
         1,
         {76, 124}},
        {"rgb, 16 bits",
         {1, 1, 16, 2, NULL, 0, NULL, 0, BYTES(1, 9, 2, 9, 3, 9), 6},
         0,
         3,
         {1, 2, 3}},
        {"rgba",
         {2, 1, 8, 6, NULL, 0, NULL, 0, BYTES(1, 2, 3, 4, 5, 6, 7, 8), 8},
         0,
         4,
         {1, 2, 3, 4, 5, 6, 7, 8}},
        {"rgba as rgb",
         {2, 1, 8, 6, NULL, 0, NULL, 0, BYTES(1, 2, 3, 4, 5, 6, 7, 8), 8},
         3,
         3,
         {1, 2, 3, 5, 6, 7}},
        {"palette",
         {2, 1, 8, 3, BYTES(1, 2, 3, 4, 5, 6), 6, NULL, 0, BYTES(1, 0), 2},
         0,
         3,
         {4, 5, 6, 1, 2, 3}},
        {"palette with alpha",
         {2, 1, 8, 3, BYTES(1, 2, 3, 4, 5, 6), 6, BYTES(9), 1, BYTES(1, 0), 2},
         0,
         4,
         {4, 5, 6, 255, 1, 2, 3, 9}},
        {"rows",
         {1, 2, 8, 0, NULL, 0, NULL, 0, BYTES(7, 200), 1},
         0,
         1,
         {7, 200}},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hki_buf b = {0};
        hki_picture p;
        make_png(&cases[i].file, &b);
        assert_ok(picture_decode((uint8_t *)b.data, b.size, cases[i].channels,
                                 ANY, cases[i].name, &p));
        assert_int_equal(p.height, cases[i].file.height);
        assert_int_equal(p.width, cases[i].file.width);
        const size_t n = (size_t)(p.height * p.width * p.channels);
        if (p.channels != cases[i].got ||
            memcmp(p.pixels, cases[i].pixels, n) != 0)
            fail_msg("%s: %d channels, %d %d %d %d ...", cases[i].name,
                     p.channels, p.pixels[0], n > 1 ? p.pixels[1] : 0,
                     n > 2 ? p.pixels[2] : 0, n > 3 ? p.pixels[3] : 0);
        hki_free(p.pixels);
        hki_buf_deinit(&b);
    }
}

static void test_png_written(void **state) {
    (void)state;
    uint8_t pixels[13 * 7 * 4];
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i * 37 + i / 50);
    for (int channels = 1; channels <= 4; channels++) {
        hki_buf b = {0};
        hki_picture p;
        assert_ok(hki_png_encode(pixels, 13, 7, channels, &b));
        assert_ok(
            picture_decode((uint8_t *)b.data, b.size, 0, ANY, "written", &p));
        assert_true(p.height == 13 && p.width == 7 && p.channels == channels);
        assert_memory_equal(p.pixels, pixels, (size_t)(13 * 7 * channels));
        hki_free(p.pixels);
        hki_buf_deinit(&b);
    }
    hki_buf b = {0};
    assert_status(hki_png_encode(pixels, 0, 7, 3, &b), HK_E_INVALID_ARG);
    assert_status(hki_png_encode(pixels, 7, 7, 5, &b), HK_E_INVALID_ARG);
    assert_int_equal(b.size, 0);
}

// ---- JPEG -----------------------------------------------------------------

enum { HIGH = 37, WIDE = 53 };

static void draw(uint8_t *pixels, int channels) {
    for (int y = 0; y < HIGH; y++)
        for (int x = 0; x < WIDE; x++)
            for (int c = 0; c < channels; c++)
                *pixels++ = (uint8_t)(y * (c + 2) + x * 3 + (x * y) / 7);
}

// A JPEG of this format; freed with tjFree.
static uint8_t *make_jpeg(int format, int subsampling, size_t *size) {
    static uint8_t pixels[HIGH * WIDE * 4];
    tjhandle h = tjInitCompress();
    uint8_t *out = NULL;
    unsigned long n = 0;
    draw(pixels, tjPixelSize[format]);
    assert_int_equal(tjCompress2(h, pixels, WIDE, 0, HIGH, format, &out, &n,
                                 subsampling, 80, 0),
                     0);
    tjDestroy(h);
    *size = n;
    return out;
}

// The same by the library alone.
static void plain_decode(const uint8_t *jpeg, size_t size, int format,
                         uint8_t *out) {
    tjhandle h = tjInitDecompress();
    assert_int_equal(
        tjDecompress2(h, jpeg, size, out, WIDE, 0, HIGH, format, 0), 0);
    tjDestroy(h);
}

static void test_jpeg(void **state) {
    (void)state;
    static const struct {
        int made, subsampling, channels, got, plain;
    } cases[] = {
        {TJPF_RGB, TJSAMP_420, 0, 3, TJPF_RGB},
        {TJPF_RGB, TJSAMP_444, 3, 3, TJPF_RGB},
        {TJPF_RGB, TJSAMP_422, 4, 4, TJPF_RGBA},
        {TJPF_RGB, TJSAMP_420, 1, 1, TJPF_GRAY},
        {TJPF_GRAY, TJSAMP_GRAY, 0, 1, TJPF_GRAY},
        {TJPF_GRAY, TJSAMP_GRAY, 3, 3, TJPF_RGB},
    };
    static uint8_t expected[HIGH * WIDE * 4], got[HIGH * WIDE * 4];
    hki_picture_decoder *d = NULL;
    assert_ok(hki_picture_decoder_create(&d)); // serves all of them
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        size_t size;
        uint8_t *const jpeg =
            make_jpeg(cases[i].made, cases[i].subsampling, &size);
        hki_picture p;
        assert_ok(
            hki_picture_probe(jpeg, size, cases[i].channels, ANY, "jpeg", &p));
        assert_true(p.height == HIGH && p.width == WIDE &&
                    p.channels == cases[i].got && p.pixels == NULL);
        p.pixels = got;
        assert_ok(hki_picture_read(d, jpeg, size, "jpeg", &p));
        plain_decode(jpeg, size, cases[i].plain, expected);
        assert_memory_equal(got, expected, (size_t)(HIGH * WIDE * p.channels));
        tjFree(jpeg);
    }
    hki_picture_decoder_destroy(d);
}

// Four inks, as photo programs write them: 255 is no ink.
static void test_jpeg_inks(void **state) {
    (void)state;
    static uint8_t inks[HIGH * WIDE * 4];
    size_t size;
    uint8_t *const jpeg = make_jpeg(TJPF_CMYK, TJSAMP_444, &size);
    plain_decode(jpeg, size, TJPF_CMYK, inks);
    for (int channels = 0; channels <= 4; channels++) {
        hki_picture p;
        if (channels == 2)
            continue;
        assert_ok(picture_decode(jpeg, size, channels, ANY, "inks", &p));
        assert_int_equal(p.channels, channels == 0 ? 3 : channels);
        for (int i = 0; i < HIGH * WIDE; i++) {
            double rgb[3];
            for (int c = 0; c < 3; c++)
                rgb[c] = floor(inks[4 * i + c] * inks[4 * i + 3] / 255.0 + 0.5);
            const uint8_t *const q = p.pixels + i * p.channels;
            if (channels == 1) {
                assert_close(q[0],
                             0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2],
                             0.51, 0);
                continue;
            }
            for (int c = 0; c < 3; c++)
                assert_int_equal(q[c], (int)rgb[c]);
            if (channels == 4)
                assert_int_equal(q[3], 255);
        }
        hki_free(p.pixels);
    }
    tjFree(jpeg);
}

// ---- damage ---------------------------------------------------------------

static hk_status try(const uint8_t *bytes, size_t size, uint64_t max_pixels) {
    hki_picture p = {0};
    const hk_status s =
        picture_decode(bytes, size, 3, max_pixels, "damaged", &p);
    hki_free(p.pixels);
    return s;
}

// Every beginning of a file is an error, none of them a crash.
static void test_truncated(void **state) {
    (void)state;
    static const uint8_t rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const png_parts parts = {2, 2, 8, 2, NULL, 0, NULL, 0, rows, 6};
    hki_buf png = {0};
    size_t size;
    uint8_t *const jpeg = make_jpeg(TJPF_RGB, TJSAMP_420, &size);
    make_png(&parts, &png);
    for (size_t n = 0; n < size; n++)
        if (try(jpeg, n, ANY) != HK_E_DATA)
            fail_msg("%zu of %zu bytes of a JPEG pass", n, size);
    for (size_t n = 0; n + 4 < png.size; n++) // but the last checksum
        if (try((uint8_t *)png.data, n, ANY) != HK_E_DATA)
            fail_msg("%zu of %zu bytes of a PNG pass", n, png.size);
    tjFree(jpeg);
    hki_buf_deinit(&png);
}

static void test_damaged(void **state) {
    (void)state;
    static const uint8_t rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const png_parts parts = {2, 2, 8, 2, NULL, 0, NULL, 0, rows, 6};
    hki_buf b = {0};
    make_png(&parts, &b);
    uint8_t *const png = (uint8_t *)b.data;
    assert_ok(try(png, b.size, 4));
    assert_status(try(png, b.size, 3), HK_E_DATA);
    assert_non_null(strstr(hk_last_error(), "2 x 2 pixels, more than"));
    png[18] ^= 1; // the width, and with it the checksum
    assert_status(try(png, b.size, ANY), HK_E_DATA);
    png[18] ^= 1;
    png[16] = 0xff; // a width of 4 billion
    assert_status(try(png, b.size, UINT64_MAX), HK_E_DATA);
    png[16] = 0;
    png[b.size - 20] ^= 1; // a byte of the pixels
    assert_status(try(png, b.size, ANY), HK_E_DATA);
    hki_buf_deinit(&b);

    size_t size;
    uint8_t *const jpeg = make_jpeg(TJPF_RGB, TJSAMP_420, &size);
    uint8_t *stray = NULL;
    assert_ok(hki_alloc_array(size + 2, 1, &stray));
    memcpy(stray, jpeg, size - 2);
    memcpy(stray + size - 2, "\0\0", 2); // harmless bytes before the end
    memcpy(stray + size, jpeg + size - 2, 2);
    assert_ok(try(stray, size + 2, ANY));
    hki_free(stray);
    assert_status(try(jpeg, size, 10), HK_E_DATA);
    assert_status(try((const uint8_t *)"GIF89a", 6, ANY), HK_E_DATA);
    assert_non_null(strstr(hk_last_error(), "neither a JPEG nor a PNG"));
    assert_status(try(NULL, 0, ANY), HK_E_DATA);
    hki_picture p;
    assert_status(picture_decode(jpeg, size, 2, ANY, "two", &p),
                  HK_E_INVALID_ARG);
    // A decoder goes on after a damaged picture, and refuses another one than
    // was probed.
    static uint8_t pixels[HIGH * WIDE * 3];
    hki_picture_decoder *d = NULL;
    assert_ok(hki_picture_decoder_create(&d));
    assert_ok(hki_picture_probe(jpeg, size, 3, ANY, "good", &p));
    p.pixels = pixels;
    assert_status(hki_picture_read(d, jpeg, size / 2, "half", &p), HK_E_DATA);
    assert_ok(hki_picture_read(d, jpeg, size, "good", &p));
    p.width--;
    assert_status(hki_picture_read(d, jpeg, size, "other", &p),
                  HK_E_INVALID_ARG);
    hki_picture_decoder_destroy(d);
    tjFree(jpeg);
}

// Headers that lie, one byte after the other.
static void test_every_byte(void **state) {
    (void)state;
    size_t size;
    uint8_t *const jpeg = make_jpeg(TJPF_RGB, TJSAMP_420, &size);
    for (size_t i = 0; i < HKI_MIN(size, (size_t)700); i++)
        for (int bit = 0; bit < 8; bit += 3) {
            jpeg[i] ^= (uint8_t)(1 << bit);
            try(jpeg, size, ANY);
            jpeg[i] ^= (uint8_t)(1 << bit);
        }
    assert_ok(try(jpeg, size, ANY));
    tjFree(jpeg);
}

// ---- memory ---------------------------------------------------------------

static hk_status there_and_back(void *user) {
    hki_buf b = {0};
    hki_picture p = {0};
    hk_status s = hki_png_encode(user, 5, 6, 3, &b);
    if (s == HK_OK)
        s = picture_decode((uint8_t *)b.data, b.size, 1, ANY, "png", &p);
    hki_free(p.pixels);
    hki_buf_deinit(&b);
    return s;
}

static void test_no_memory(void **state) {
    (void)state;
    uint8_t pixels[5 * 6 * 3];
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i * 7);
    hk_test_alloc_failures("picture", there_and_back, pixels);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_png_kinds),  cmocka_unit_test(test_png_written),
        cmocka_unit_test(test_jpeg),       cmocka_unit_test(test_jpeg_inks),
        cmocka_unit_test(test_truncated),  cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_every_byte), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

// A build without the libraries says so.
static void test_unsupported(void **state) {
    (void)state;
    const png_parts parts = {2, 1, 8, 0, NULL, 0, NULL, 0, BYTES(7, 200), 2};
    hki_buf b = {0};
    hki_picture p;
    make_png(&parts, &b);
    assert_status(picture_decode((uint8_t *)b.data, b.size, 0, ANY, "png", &p),
                  HK_E_UNSUPPORTED);
    assert_status(hki_png_encode((uint8_t *)b.data, 1, 1, 1, &b),
                  HK_E_UNSUPPORTED);
    hki_buf_deinit(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_unsupported)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
