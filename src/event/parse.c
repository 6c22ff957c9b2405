// parse.c - Event messages into hk_event.
//
// Values come in two generations. The older has a field of its own for each
// kind (simple_value, histo, image); the newer puts everything into a tensor
// and names the plugin that understands it. Both end in the same kinds.
#include <math.h>
#include "event/parse.h"

// Fields of Summary.Value, as found.
typedef struct value {
    hki_pb_field tag, simple, image, histogram, tensor, plugin, content;
} value;

static hk_status malformed(const hki_event_parser *p, const char *what) {
    return hki_fail(HK_E_DATA, "%s: record at byte %llu: malformed %s", p->file,
                    (unsigned long long)p->offset, what);
}

// ---- strings ---------------------------------------------------------------

// Appends bytes as text; a NUL inside ends what C sees of it.
static hk_status set_text(hki_buf *b, const uint8_t *bytes, size_t size,
                          const char **out) {
    b->size = 0;
    HKI_TRY(hki_buf_add(b, bytes, size));
    *out = b->data;
    return HK_OK;
}

static bool is_text(const hki_pb_field *f, const char *s) {
    return f->size == strlen(s) && memcmp(f->bytes, s, f->size) == 0;
}

static double as_double(uint64_t bits) {
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

// ---- histograms ------------------------------------------------------------

static hk_status parse_histogram(hki_event_parser *p, const hki_pb_field *from,
                                 hk_event *out) {
    double *const number[] = {NULL,      &out->min, &out->max,
                              &out->num, &out->sum, &out->sum_squares};
    hki_pb m = {from->bytes, from->bytes + from->size};
    hki_pb_field f;
    bool bad, odd = false;
    while (hki_pb_next(&m, &f, &bad)) {
        if (f.number < HKI_COUNT(number) && f.type == HKI_PB_FIXED64)
            *number[f.number] = as_double(f.value);
        else if (f.number == 6 || f.number == 7)
            HKI_TRY(hki_event_doubles(
                &f, f.number == 6 ? &p->limits : &p->counts, &odd));
    }
    if (bad || odd || p->limits.size != p->counts.size)
        return malformed(p, "histogram");
    out->kind = HK_EVENT_HISTOGRAM;
    return HK_OK;
}

// Rows of (from, to, count).
static hk_status histogram_of_rows(hki_event_parser *p, hk_event *out) {
    const size_t rows = p->numbers.size / (3 * sizeof(double));
    const double *const row = (const double *)(const void *)p->numbers.data;
    out->sum = out->sum_squares = (double)NAN; // the file does not tell
    for (size_t i = 0; i < rows; i++) {
        HKI_TRY(hki_buf_add(&p->limits, &row[3 * i + 1], sizeof *row));
        HKI_TRY(hki_buf_add(&p->counts, &row[3 * i + 2], sizeof *row));
        out->num += row[3 * i + 2];
    }
    if (rows > 0) {
        out->min = row[0];
        out->max = row[3 * rows - 2];
    }
    out->kind = HK_EVENT_HISTOGRAM;
    return HK_OK;
}

// ---- images ----------------------------------------------------------------

static hk_status parse_image(hki_event_parser *p, const hki_pb_field *from,
                             hk_event *out) {
    uint64_t size[4] = {0}; // height, width, channels from 1 on
    hki_pb m = {from->bytes, from->bytes + from->size};
    hki_pb_field f;
    bool bad;
    while (hki_pb_next(&m, &f, &bad)) {
        if (f.number < HKI_COUNT(size) && f.type == HKI_PB_VARINT)
            size[f.number] = f.value;
        if (f.number == 4 && f.type == HKI_PB_BYTES) {
            out->bytes = f.bytes;
            out->size = f.size;
        }
    }
    if (bad)
        return malformed(p, "image");
    p->text.size = 0;
    HKI_TRY(hki_buf_printf(
        &p->text, "%llux%llux%llu", (unsigned long long)size[1],
        (unsigned long long)size[2], (unsigned long long)size[3]));
    out->text = p->text.data;
    out->kind = HK_EVENT_IMAGE;
    return HK_OK;
}

// Strings: width, height, then the encoded images, of which the first counts.
static hk_status image_of_strings(hki_event_parser *p,
                                  const hki_event_tensor *t, hk_event *out) {
    const uint8_t *side[2], *image;
    size_t n[2], size;
    if (!hki_event_tensor_string(t, 0, &side[0], &n[0]) ||
        !hki_event_tensor_string(t, 1, &side[1], &n[1]) ||
        !hki_event_tensor_string(t, 2, &image, &size))
        return HK_OK; // no image in it
    p->text.size = 0;
    HKI_TRY(hki_buf_add(&p->text, side[1], HKI_MIN(n[1], 20)));
    HKI_TRY(hki_buf_add(&p->text, "x", 1));
    HKI_TRY(hki_buf_add(&p->text, side[0], HKI_MIN(n[0], 20)));
    out->text = p->text.data;
    out->bytes = image;
    out->size = size;
    out->kind = HK_EVENT_IMAGE;
    return HK_OK;
}

// ---- tensors ---------------------------------------------------------------

// All strings, a line each.
static hk_status text_of_strings(hki_event_parser *p, const hki_event_tensor *t,
                                 hk_event *out) {
    hki_pb m = {t->message, t->message + t->size};
    hki_pb_field f;
    bool bad, first = true;
    HKI_TRY(set_text(&p->text, NULL, 0, &out->text));
    while (hki_pb_next(&m, &f, &bad)) {
        if (f.number != 8 || f.type != HKI_PB_BYTES)
            continue;
        if (!first)
            HKI_TRY(hki_buf_add(&p->text, "\n", 1));
        HKI_TRY(hki_buf_add(&p->text, f.bytes, f.size));
        first = false;
    }
    out->text = p->text.data;
    out->kind = HK_EVENT_TEXT;
    return HK_OK;
}

static hk_status parse_tensor(hki_event_parser *p, const value *v,
                              hk_event *out) {
    enum { DT_STRING = 7 };
    hki_event_tensor t;
    if (!hki_event_tensor_parse(v->tensor.bytes, v->tensor.size, &t))
        return malformed(p, "tensor");
    if (t.dtype == DT_STRING)
        return is_text(&v->plugin, "images") ? image_of_strings(p, &t, out)
                                             : text_of_strings(p, &t, out);
    bool bad;
    p->numbers.size = 0;
    HKI_TRY(hki_event_tensor_numbers(&t, &p->numbers, &bad));
    if (bad)
        return malformed(p, "tensor");
    const size_t n = p->numbers.size / sizeof(double);
    if (is_text(&v->plugin, "histograms") && t.rank == 2 && t.dim[1] == 3 &&
        t.dim[0] >= 0 && n % 3 == 0 && (uint64_t)t.dim[0] == n / 3)
        return histogram_of_rows(p, out);
    // A scalar that is zero may come without its value.
    if (n == 1 || (n == 0 && t.rank == 0 && t.numeric)) {
        if (n == 1)
            memcpy(&out->scalar, p->numbers.data, sizeof out->scalar);
        out->kind = HK_EVENT_SCALAR;
    }
    return HK_OK;
}

// ---- values ----------------------------------------------------------------

static bool collect_plugin(const hki_pb_field *metadata, value *v) {
    hki_pb m = {metadata->bytes, metadata->bytes + metadata->size};
    hki_pb_field f, g;
    bool bad, inner_bad = false;
    while (!inner_bad && hki_pb_next(&m, &f, &bad)) {
        if (f.number != 1 || f.type != HKI_PB_BYTES)
            continue;
        hki_pb plugin = {f.bytes, f.bytes + f.size};
        while (hki_pb_next(&plugin, &g, &inner_bad)) {
            if (g.number == 1 && g.type == HKI_PB_BYTES)
                v->plugin = g;
            if (g.number == 2 && g.type == HKI_PB_BYTES)
                v->content = g;
        }
    }
    return !bad && !inner_bad;
}

static bool collect(const hki_pb_field *from, value *v) {
    *v = (value){0};
    hki_pb m = {from->bytes, from->bytes + from->size};
    hki_pb_field f;
    bool bad;
    while (hki_pb_next(&m, &f, &bad)) {
        const bool bytes = f.type == HKI_PB_BYTES;
        if (f.number == 1 && bytes)
            v->tag = f;
        else if (f.number == 2 && f.type == HKI_PB_FIXED32)
            v->simple = f;
        else if (f.number == 4 && bytes)
            v->image = f;
        else if (f.number == 5 && bytes)
            v->histogram = f;
        else if (f.number == 8 && bytes)
            v->tensor = f;
        else if (f.number == 9 && bytes && !collect_plugin(&f, v))
            return false;
    }
    return !bad;
}

static hk_status parse_value(hki_event_parser *p, const value *v,
                             hk_event *out) {
    if (is_text(&v->plugin, "hparams")) {
        out->kind = HK_EVENT_HPARAMS;
        out->bytes = v->content.bytes;
        out->size = v->content.size;
        return HK_OK;
    }
    if (v->simple.number != 0) {
        const uint32_t bits = (uint32_t)v->simple.value;
        float f;
        memcpy(&f, &bits, sizeof f);
        out->kind = HK_EVENT_SCALAR;
        out->scalar = (double)f;
        return HK_OK;
    }
    if (v->histogram.number != 0)
        return parse_histogram(p, &v->histogram, out);
    if (v->image.number != 0)
        return parse_image(p, &v->image, out);
    if (v->tensor.number != 0)
        return parse_tensor(p, v, out);
    return HK_OK;
}

hk_status hki_event_value(hki_event_parser *p, hk_event *out) {
    if (p->has_head) {
        p->has_head = false;
        *out = p->head;
        return HK_OK;
    }
    hki_pb_field f;
    bool bad;
    do {
        if (!hki_pb_next(&p->values, &f, &bad))
            return bad ? malformed(p, "summary") : HK_E_END;
    } while (f.number != 1 || f.type != HKI_PB_BYTES);
    value v;
    if (!collect(&f, &v))
        return malformed(p, "summary value");
    hk_event e = p->head;
    p->limits.size = p->counts.size = 0;
    HKI_TRY(set_text(&p->tag, v.tag.bytes, v.tag.size, &e.tag));
    HKI_TRY(parse_value(p, &v, &e));
    e.buckets = p->limits.size / sizeof(double);
    if (e.buckets > 0) {
        e.limits = (const double *)(const void *)p->limits.data;
        e.counts = (const double *)(const void *)p->counts.data;
    }
    *out = e;
    return HK_OK;
}

// ---- events ----------------------------------------------------------------

static hk_status parse_session(hki_event_parser *p, const hki_pb_field *from) {
    hki_pb m = {from->bytes, from->bytes + from->size};
    hki_pb_field f;
    bool bad;
    p->head.kind = HK_EVENT_SESSION;
    while (hki_pb_next(&m, &f, &bad)) {
        if (f.number == 1 && f.type == HKI_PB_VARINT)
            p->head.scalar = (double)f.value;
        if (f.number == 2 && f.type == HKI_PB_BYTES)
            HKI_TRY(set_text(&p->text, f.bytes, f.size, &p->head.text));
    }
    return bad ? malformed(p, "session log") : HK_OK;
}

hk_status hki_event_parse(hki_event_parser *p, const uint8_t *bytes,
                          size_t size) {
    p->head = (hk_event){.tag = "", .text = ""};
    p->has_head = false;
    p->values = (hki_pb){bytes, bytes};
    hki_pb m = {bytes, bytes + size};
    hki_pb_field f, what = {0};
    bool bad;
    while (hki_pb_next(&m, &f, &bad)) {
        if (f.number == 1 && f.type == HKI_PB_FIXED64)
            p->head.wall_time = as_double(f.value);
        else if (f.number == 2 && f.type == HKI_PB_VARINT)
            p->head.step = (int64_t)f.value;
        else if (f.number >= 3 && f.number <= 9 && f.type == HKI_PB_BYTES)
            what = f; // one of these; 10 is metadata
    }
    if (bad)
        return malformed(p, "event");
    if (what.number == 5) {
        p->values = (hki_pb){what.bytes, what.bytes + what.size};
        return HK_OK;
    }
    p->has_head = true;
    if (what.number == 3) {
        p->head.kind = HK_EVENT_VERSION;
        return set_text(&p->text, what.bytes, what.size, &p->head.text);
    }
    return what.number == 7 ? parse_session(p, &what) : HK_OK;
}

void hki_event_parser_deinit(hki_event_parser *p) {
    hki_buf_deinit(&p->tag);
    hki_buf_deinit(&p->text);
    hki_buf_deinit(&p->limits);
    hki_buf_deinit(&p->counts);
    hki_buf_deinit(&p->numbers);
}
