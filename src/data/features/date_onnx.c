// date_onnx.c - the numbers of a date's text as nodes of an ONNX model.
//
// A text is cut at every mark that a date may have, so that its tokens are the
// numbers in their order, with empty texts between them: "2024-01-31 9:05" has
// 2024, 01, 31, 9 and 05. A pattern says before whether it is a date at all.
#include "data/data.h"
#include "onnx/onnx.h"

#define DAY "(0?[1-9]|[12]\\d|3[01])"
#define MONTH "(0?[1-9]|1[0-2])"
#define YEAR "\\d{4}"
#define CLOCK                                                                  \
    "([ T]([01]?\\d|2[0-3]):[0-5]\\d(:([0-5]\\d|60))?(\\.\\d{1,9})?Z?)?"

static const char *const pattern[HK_DATE_ORDERS] = {
    [HK_DATE_YMD] = "(" YEAR "-" MONTH "-" DAY "|" YEAR "/" MONTH "/" DAY
                    "|" DAY "\\." MONTH "\\." YEAR ")" CLOCK,
    [HK_DATE_MDY] = MONTH "/" DAY "/" YEAR CLOCK,
    [HK_DATE_DMY] = DAY "/" MONTH "/" YEAR CLOCK};

// Int64 [batch, 1] each.
typedef struct numbers {
    const char *year, *month, *day, *hour, *minute, *second;
} numbers;

static const char *integer(hki_onnx *o, int64_t v) {
    return hki_onnx_scalar(o, HK_I64, (double)v);
}

#define ADD(a, b) HKI_ONNX(o, "Add", (a), (b))
#define SUB(a, b) HKI_ONNX(o, "Sub", (a), (b))
#define MUL(a, v) HKI_ONNX(o, "Mul", (a), integer(o, (v)))
#define DIV(a, v) HKI_ONNX(o, "Div", (a), integer(o, (v)))
#define WHERE(c, a, b) HKI_ONNX(o, "Where", (c), (a), (b))

// ---- tokens -----------------------------------------------------------------

static const char *matches(hki_onnx *o, const char *text, const char *how) {
    const hki_onnx_call c = {.op = "RegexFullMatch",
                             HKI_ONNX_IN(text),
                             HKI_ONNX_ATTR(HKI_ONNX_TEXT("pattern", how))};
    return hki_onnx_node(o, &c);
}

// One more axis: the texts between the marks, filled up with empty ones.
static const char *cut_at(hki_onnx *o, const char *text, const char *mark) {
    const char *out[2] = {NULL, NULL}; // the texts and how many there are
    const hki_onnx_call c = {.op = "StringSplit",
                             HKI_ONNX_IN(text),
                             HKI_ONNX_ATTR(HKI_ONNX_TEXT("delimiter", mark)),
                             .n_out = 2,
                             .out = out};
    return hki_onnx_node(o, &c);
}

// [batch, tokens]
static const char *cut(hki_onnx *o, const char *text) {
    static const char *const marks[] = {"-", "/", ".", " ", "T", ":", "Z"};
    for (size_t i = 0; i < HKI_COUNT(marks); i++)
        text = cut_at(o, text, marks[i]);
    const hki_onnx_call flat = {.op = "Flatten",
                                HKI_ONNX_IN(text),
                                HKI_ONNX_ATTR(HKI_ONNX_I("axis", 1))};
    return hki_onnx_node(o, &flat);
}

// The first n numbers of each row; 0 where there are fewer.
static void read_tokens(hki_onnx *o, const char *tokens, const char **out,
                        int n) {
    const char *const none = HKI_ONNX(o, "Equal", tokens, hki_onnx_text(o, ""));
    const char *const value =
        hki_onnx_cast(o, WHERE(none, hki_onnx_text(o, "0"), tokens), HK_I64);
    const char *const one = hki_onnx_cast(o, HKI_ONNX(o, "Not", none), HK_I64);
    const char *const place =
        WHERE(none, integer(o, 0), HKI_ONNX(o, "CumSum", one, integer(o, 1)));
    for (int k = 0; k < n; k++) {
        const char *const hit = HKI_ONNX(o, "Equal", place, integer(o, k + 1));
        out[k] =
            hki_onnx_reduce(o, "ReduceSum", WHERE(hit, value, integer(o, 0)),
                            (const int64_t[]){1}, 1, true);
    }
}

static numbers in_order(hki_onnx *o, const char *text, hk_date_order order,
                        const char *const *v) {
    numbers n = {.year = v[2],
                 .month = v[order != HK_DATE_MDY],
                 .day = v[order == HK_DATE_MDY],
                 .hour = v[3],
                 .minute = v[4],
                 .second = v[5]};
    if (order != HK_DATE_YMD)
        return n;
    const char *const dots = matches(o, text, "\\d{1,2}\\..*");
    n.year = WHERE(dots, v[2], v[0]);
    n.day = WHERE(dots, v[0], v[2]);
    return n;
}

// ---- the calendar -----------------------------------------------------------

static const char *divides(hki_onnx *o, const char *x, int64_t by) {
    return HKI_ONNX(o, "Equal", HKI_ONNX(o, "Mod", x, integer(o, by)),
                    integer(o, 0));
}

static const char *day_exists(hki_onnx *o, const numbers *n) {
    static const int64_t length[] = {0,  31, 28, 31, 30, 31, 30,
                                     31, 31, 30, 31, 30, 31};
    const char *const usual =
        HKI_ONNX(o, "And", divides(o, n->year, 4),
                 HKI_ONNX(o, "Not", divides(o, n->year, 100)));
    const char *const leap = HKI_ONNX(o, "Or", usual, divides(o, n->year, 400));
    const char *const longer =
        HKI_ONNX(o, "And", leap, HKI_ONNX(o, "Equal", n->month, integer(o, 2)));
    const char *const days = HKI_ONNX(
        o, "Gather", hki_onnx_ints(o, length, HKI_COUNT(length)), n->month);
    return HKI_ONNX(o, "LessOrEqual", n->day,
                    ADD(days, hki_onnx_cast(o, longer, HK_I64)));
}

// As days_since of date_text.c.
static const char *days_of(hki_onnx *o, const numbers *n) {
    const char *const early =
        HKI_ONNX(o, "LessOrEqual", n->month, integer(o, 2));
    const char *const y = SUB(n->year, hki_onnx_cast(o, early, HK_I64));
    const char *const era = DIV(y, 400);
    const char *const in_era = SUB(y, MUL(era, 400));
    const char *const month =
        ADD(n->month, WHERE(early, integer(o, 9), integer(o, -3)));
    const char *const day =
        SUB(ADD(DIV(ADD(MUL(month, 153), integer(o, 2)), 5), n->day),
            integer(o, 1));
    const char *const leaps = SUB(DIV(in_era, 4), DIV(in_era, 100));
    const char *const years = ADD(MUL(in_era, 365), leaps);
    return SUB(ADD(ADD(MUL(era, 146097), years), day), integer(o, 719468));
}

static const char *real(hki_onnx *o, const char *x) {
    return hki_onnx_cast(o, x, HK_F32);
}

static const char *share(hki_onnx *o, const char *x, double of) {
    return HKI_ONNX(o, "Div", x, hki_onnx_scalar(o, HK_F32, of));
}

// ---- all of it --------------------------------------------------------------

// 0 for a date and NaN for an empty text; no other can be made a number, and
// the node that tries says so by its name.
static const char *blank_of(hki_onnx *o, const char *text, const char *good) {
    const char *const none = HKI_ONNX(o, "Equal", text, hki_onnx_text(o, ""));
    const char *const bad =
        WHERE(good, hki_onnx_text(o, "0"), hki_onnx_text(o, "not a date"));
    const char *name = NULL;
    const hk_status s =
        hki_arena_printf(&o->arena, &name, "%s: a string is not a date", text);
    if (s != HK_OK)
        return hki_onnx_fail(o, s);
    return hki_onnx_cast_by(o, WHERE(none, hki_onnx_text(o, "NaN"), bad),
                            HK_F32, name);
}

void hki_date_onnx(hki_onnx *o, const char *text, hk_date_order order,
                   const char **parts) {
    const char *token[HK_DATE_PARTS];
    const char *const looks = matches(o, text, pattern[order]);
    read_tokens(o, cut(o, WHERE(looks, text, hki_onnx_text(o, ""))), token,
                HK_DATE_PARTS);
    const numbers n = in_order(o, text, order, token);
    const char *const blank =
        blank_of(o, text, HKI_ONNX(o, "And", looks, day_exists(o, &n)));
    const char *const days = days_of(o, &n);
    const char *const hour =
        ADD(ADD(real(o, n.hour), share(o, real(o, n.minute), 60)),
            share(o, real(o, n.second), 3600));
    const char *const weekday =
        HKI_ONNX(o, "Mod", ADD(days, integer(o, 3)), integer(o, 7));
    const char *const values[HK_DATE_PARTS] = {
        real(o, n.year),
        real(o, n.month),
        real(o, n.day),
        real(o, weekday),
        hour,
        ADD(real(o, days), share(o, hour, 24))};
    for (int p = 0; p < HK_DATE_PARTS; p++)
        parts[p] = ADD(values[p], blank);
}
