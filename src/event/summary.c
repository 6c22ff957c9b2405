// summary.c - the calls that put values into an event file.
//
// A Summary is a list of values: tag and one of number, image, histogram or
// tensor. Fields that are zero are left out, as every proto3 writer does, but
// for the chosen one of the value.
#include "event/writer.h"

// Fields of Summary.Value.
enum {
    VALUE_TAG = 1,
    VALUE_SIMPLE = 2,
    VALUE_IMAGE = 4,
    VALUE_HISTOGRAM = 5,
    VALUE_TENSOR = 8,
    VALUE_METADATA = 9
};

#define DT_STRING 7
#define DATA_CLASS_TENSOR 2
#define MAX_IMAGE_SIDE 65535

// ---- checks ----------------------------------------------------------------

hk_status hki_event_check_tag(const char *call, const char *tag) {
    if (tag == NULL || tag[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG, "%s: no tag given", call);
    // Protobuf readers refuse the whole event otherwise.
    if (!hki_utf8_valid(tag, strlen(tag)))
        return hki_fail(HK_E_INVALID_ARG, "%s: the tag is not UTF-8", call);
    return HK_OK;
}

static hk_status check_value(const char *call, const hk_event_writer *w,
                             const char *tag) {
    if (w == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: no writer", call);
    return hki_event_check_tag(call, tag);
}

// ---- scalars ---------------------------------------------------------------

static hk_status scalar_value(hki_buf *b, const char *tag, double value) {
    size_t mark;
    HKI_TRY(hki_pb_open(b, 1, &mark));
    HKI_TRY(hki_pb_string(b, VALUE_TAG, tag));
    HKI_TRY(hki_pb_float(b, VALUE_SIMPLE, (float)value));
    return hki_pb_close(b, mark);
}

hk_status hk_event_scalars(hk_event_writer *w, int64_t step, size_t n,
                           const char *const *tags, const double *values) {
    if (w == NULL || (n > 0 && (tags == NULL || values == NULL)))
        return hki_fail(HK_E_INVALID_ARG, "event scalars: NULL given");
    for (size_t i = 0; i < n; i++)
        HKI_TRY(hki_event_check_tag("event scalars", tags[i]));
    if (n == 0)
        return HK_OK;
    hki_event_draft d;
    hk_status s = hki_event_begin(w, step, HKI_EVENT_SUMMARY, &d);
    for (size_t i = 0; i < n && s == HK_OK; i++)
        s = scalar_value(&d.bytes, tags[i], values[i]);
    return hki_event_send(w, &d, s);
}

hk_status hk_event_scalar(hk_event_writer *w, const char *tag, int64_t step,
                          double value) {
    HKI_TRY(check_value("event scalar", w, tag));
    return hk_event_scalars(w, step, 1, &tag, &value);
}

// ---- histograms ------------------------------------------------------------

static hk_status histogram_value(hki_buf *b, const char *tag,
                                 const hki_histogram *h,
                                 const hki_histogram_table *t) {
    size_t value, histogram;
    HKI_TRY(hki_pb_open(b, 1, &value));
    HKI_TRY(hki_pb_string(b, VALUE_TAG, tag));
    HKI_TRY(hki_pb_open(b, VALUE_HISTOGRAM, &histogram));
    HKI_TRY(hki_histogram_write(h, t, b));
    HKI_TRY(hki_pb_close(b, histogram));
    return hki_pb_close(b, value);
}

hk_status hk_event_histogram(hk_event_writer *w, const char *tag, int64_t step,
                             const float *values, size_t n, size_t *skipped) {
    HKI_TRY(check_value("event histogram", w, tag));
    if (values == NULL && n > 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "event histogram %s: there are no values", tag);
    HKI_FREED hki_histogram *h = NULL;
    HKI_TRY(hki_alloc_array(1, sizeof *h, &h));
    const hki_histogram_table *const buckets = hki_event_buckets(w);
    hki_histogram_init(h);
    hki_histogram_add(h, buckets, values, n);
    hki_event_draft d;
    hk_status s = hki_event_begin(w, step, HKI_EVENT_SUMMARY, &d);
    if (s == HK_OK)
        s = histogram_value(&d.bytes, tag, h, buckets);
    s = hki_event_send(w, &d, s);
    if (s == HK_OK && skipped != NULL)
        *skipped = h->skipped;
    return s;
}

// ---- images ----------------------------------------------------------------

static hk_status image_value(hki_buf *b, const char *tag, int height, int width,
                             int channels, const hki_buf *png) {
    size_t value, image;
    HKI_TRY(hki_pb_open(b, 1, &value));
    HKI_TRY(hki_pb_string(b, VALUE_TAG, tag));
    HKI_TRY(hki_pb_open(b, VALUE_IMAGE, &image));
    HKI_TRY(hki_pb_varint(b, 1, (uint64_t)height));
    HKI_TRY(hki_pb_varint(b, 2, (uint64_t)width));
    HKI_TRY(hki_pb_varint(b, 3, (uint64_t)channels));
    HKI_TRY(hki_pb_bytes(b, 4, png->data, png->size));
    HKI_TRY(hki_pb_close(b, image));
    return hki_pb_close(b, value);
}

hk_status hk_event_image(hk_event_writer *w, const char *tag, int64_t step,
                         const uint8_t *pixels, int height, int width,
                         int channels) {
    HKI_TRY(check_value("event image", w, tag));
    if (pixels == NULL)
        return hki_fail(HK_E_INVALID_ARG, "event image %s: the pixels are NULL",
                        tag);
    if (height < 1 || width < 1 || height > MAX_IMAGE_SIDE ||
        width > MAX_IMAGE_SIDE)
        return hki_fail(
            HK_E_INVALID_ARG,
            "event image %s: %d x %d pixels; both have to be in 1..%d", tag,
            height, width, MAX_IMAGE_SIDE);
    if (channels != 1 && channels != 3 && channels != 4)
        return hki_fail(HK_E_INVALID_ARG,
                        "event image %s: %d channels; it has to be 1, 3 or 4",
                        tag, channels);
    HKI_SCOPED(hki_buf_deinit) hki_buf png = {0};
    HKI_TRY(hki_png_encode(pixels, height, width, channels, &png));
    hki_event_draft d;
    hk_status s = hki_event_begin(w, step, HKI_EVENT_SUMMARY, &d);
    if (s == HK_OK)
        s = image_value(&d.bytes, tag, height, width, channels, &png);
    return hki_event_send(w, &d, s);
}

// ---- text ------------------------------------------------------------------

// A string tensor of no dimensions that the text plugin shows.
static hk_status text_value(hki_buf *b, const char *tag, const char *markdown) {
    size_t value, metadata, plugin, tensor;
    HKI_TRY(hki_pb_open(b, 1, &value));
    HKI_TRY(hki_pb_string(b, VALUE_TAG, tag));
    HKI_TRY(hki_pb_open(b, VALUE_TENSOR, &tensor));
    HKI_TRY(hki_pb_varint(b, 1, DT_STRING));
    HKI_TRY(hki_pb_bytes(b, 2, "", 0));
    HKI_TRY(hki_pb_string(b, 8, markdown));
    HKI_TRY(hki_pb_close(b, tensor));
    HKI_TRY(hki_pb_open(b, VALUE_METADATA, &metadata));
    HKI_TRY(hki_pb_open(b, 1, &plugin));
    HKI_TRY(hki_pb_string(b, 1, "text"));
    HKI_TRY(hki_pb_close(b, plugin));
    HKI_TRY(hki_pb_varint(b, 4, DATA_CLASS_TENSOR));
    HKI_TRY(hki_pb_close(b, metadata));
    return hki_pb_close(b, value);
}

hk_status hk_event_text(hk_event_writer *w, const char *tag, int64_t step,
                        const char *markdown) {
    HKI_TRY(check_value("event text", w, tag));
    if (markdown == NULL || !hki_utf8_valid(markdown, strlen(markdown)))
        return hki_fail(HK_E_INVALID_ARG, "event text %s: %s", tag,
                        markdown == NULL ? "no text" : "not UTF-8");
    hki_event_draft d;
    hk_status s = hki_event_begin(w, step, HKI_EVENT_SUMMARY, &d);
    if (s == HK_OK)
        s = text_value(&d.bytes, tag, markdown);
    return hki_event_send(w, &d, s);
}

// ---- session log -----------------------------------------------------------

hk_status hk_event_session(hk_event_writer *w, int64_t step, int status,
                           const char *checkpoint_path) {
    if (w == NULL)
        return hki_fail(HK_E_INVALID_ARG, "event session: no writer");
    if (status < 1 || status > 3)
        return hki_fail(HK_E_INVALID_ARG,
                        "event session: status is %d; it has to be 1, 2 or 3",
                        status);
    const char *const path = checkpoint_path != NULL ? checkpoint_path : "";
    if (!hki_utf8_valid(path, strlen(path)))
        return hki_fail(HK_E_INVALID_ARG,
                        "event session: the path is not UTF-8");
    hki_event_draft d;
    hk_status s = hki_event_begin(w, step, HKI_EVENT_SESSION, &d);
    if (s == HK_OK)
        s = hki_pb_varint(&d.bytes, 1, (uint64_t)status);
    if (s == HK_OK && path[0] != '\0')
        s = hki_pb_string(&d.bytes, 2, path);
    return hki_event_send(w, &d, s);
}
