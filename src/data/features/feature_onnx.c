// feature_onnx.c - feature columns as nodes of an ONNX model.
//
// Every input is [batch, values]. Numbers are worked on in double, as
// feature_emit.c does, and become float at the end; ids are int64, -1 where
// there is none.
#include <math.h>
#include "data/data.h"
#include "data/features/feature.h"
#include "onnx/onnx.h"

typedef struct date_nodes {
    const char *name[HK_DATE_PARTS];
} date_nodes;

typedef struct writing {
    const hk_feature_set *s;
    const hk_element *raw;
    const hk_date_column *date;
    size_t n_dates;
    date_nodes *parts; // of each date; name NULL: not asked for yet
    hki_onnx *o;
    const char **inputs; // made so far; their names are the keys
    size_t n_inputs;
} writing;

#define WEIGHTED                                                               \
    "its values have weights, which ONNX cannot express; train without them, " \
    "or export a folder"

static const char *refuse(const writing *w, const hk_column *c,
                          const char *why) {
    return hki_onnx_fail(w->o,
                         hki_fail(HK_E_UNSUPPORTED,
                                  "onnx: the column \"%s\" cannot be written: "
                                  "%s",
                                  c->name, why));
}

// ---- inputs -----------------------------------------------------------------

static hk_dtype type_of(const writing *w, const char *key, hk_dtype dflt) {
    const hk_value *const v =
        w->raw != NULL ? hk_element_find(w->raw, key) : NULL;
    return v != NULL ? v->dtype : dflt;
}

static const char *made_input(writing *w, const char *key, hk_dtype t,
                              int64_t n) {
    for (size_t i = 0; i < w->n_inputs; i++)
        if (strcmp(w->inputs[i], key) == 0)
            return w->inputs[i];
    const char *const name = hki_onnx_input(
        w->o, key, t, hk_shape_make(2, (int64_t[]){HK_BATCH, n}));
    if (name != NULL)
        w->inputs[w->n_inputs++] = name;
    return name;
}

// A part of a date is made of the date's text.
static const char *input(writing *w, const char *key, hk_dtype t, int64_t n) {
    int part;
    const int64_t i = hki_date_find(w->date, w->n_dates, key, &part);
    if (i < 0)
        return made_input(w, key, t, n);
    if (w->parts[i].name[part] == NULL)
        hki_date_onnx(w->o, made_input(w, w->date[i].name, HK_STRING, 1),
                      w->date[i].order, w->parts[i].name);
    return w->parts[i].name[part];
}

static const char *constant(const writing *w, const double *values, int64_t n) {
    return hki_onnx_doubles(w->o, values, (size_t)n);
}

// ---- tools ------------------------------------------------------------------

static const char *integer(const writing *w, int64_t v) {
    return hki_onnx_tensor(w->o, NULL, HK_I64, hk_shape_make(0, NULL), &v);
}

static const char *behind(const writing *w, const char *x) {
    return HKI_ONNX(w->o, "Unsqueeze", x,
                    hki_onnx_ints(w->o, (const int64_t[]){-1}, 1));
}

static const char *sum_of(const writing *w, const char *x, int64_t axis) {
    return hki_onnx_reduce(w->o, "ReduceSum", x, &axis, 1, false);
}

// ---- numbers ----------------------------------------------------------------

// As double [batch, width], NaN where the value is missing.
static const char *raw_numbers(writing *w, const hk_column *c) {
    const hk_dtype t = type_of(w, c->key, HK_F32);
    const char *const x = input(w, c->key, t, c->width);
    return hki_onnx_cast(w->o, x, HK_F64);
}

static const char *filled(writing *w, const hk_column *c, const char *x) {
    double *values;
    if (c->missing == HK_MISSING_ERROR)
        return x;
    const hk_status s =
        hki_alloc_array((size_t)c->width, sizeof *values, &values);
    if (s != HK_OK)
        return hki_onnx_fail(w->o, s);
    for (int64_t j = 0; j < c->width; j++)
        values[j] = hki_numeric_default(c, j);
    const char *const dflt = constant(w, values, c->width);
    hki_free(values);
    return HKI_ONNX(w->o, "Where", HKI_ONNX(w->o, "IsNaN", x), dflt, x);
}

// sign(x) log(1 + |x|)
static const char *transformed(writing *w, const hk_column *c, const char *x) {
    if (c->transform == HK_TRANSFORM_NONE)
        return x;
    const char *const one = hki_onnx_scalar(w->o, HK_F64, 1);
    const char *const more =
        HKI_ONNX(w->o, "Add", HKI_ONNX(w->o, "Abs", x), one);
    return HKI_ONNX(w->o, "Mul", HKI_ONNX(w->o, "Sign", x),
                    HKI_ONNX(w->o, "Log", more));
}

// Quantiles of each value, one after the other, by int64 places [batch, width].
static const char *quantile_at(const writing *w, const hk_column *c,
                               const char *flat, const char *place) {
    const char *const low = integer(w, 0);
    const char *const high = integer(w, HK_QUANTILES - 1);
    const char *const inside =
        HKI_ONNX(w->o, "Min", HKI_ONNX(w->o, "Max", place, low), high);
    const char *const first = HKI_ONNX(
        w->o, "Mul", hki_onnx_range(w->o, c->width), integer(w, HK_QUANTILES));
    return HKI_ONNX(w->o, "Gather", flat, HKI_ONNX(w->o, "Add", inside, first));
}

// How many quantiles compare so with x.
static const char *count_of(const writing *w, const hk_column *c,
                            const char *flat, const char *how, const char *x) {
    const int64_t shape[] = {c->width, HK_QUANTILES};
    const char *const rows =
        HKI_ONNX(w->o, "Reshape", flat, hki_onnx_ints(w->o, shape, 2));
    return sum_of(
        w, hki_onnx_cast(w->o, HKI_ONNX(w->o, how, rows, behind(w, x)), HK_I64),
        2);
}

// feature_emit.c's share_below: on the line between two quantiles, in the
// middle of those that are equal to x, 0 and 1 outside of them.
static const char *by_quantiles(writing *w, const hk_column *c, const char *x) {
    hki_onnx *const o = w->o;
    const char *const flat =
        constant(w, c->stats.quantiles, c->width * HK_QUANTILES);
    const char *const below = count_of(w, c, flat, "Less", x);
    const char *const upto = count_of(w, c, flat, "LessOrEqual", x);
    const char *const before = HKI_ONNX(o, "Sub", below, integer(w, 1));
    const char *const from = quantile_at(w, c, flat, before);
    const char *const gap =
        HKI_ONNX(o, "Sub", quantile_at(w, c, flat, below), from);
    const char *const part =
        HKI_ONNX(o, "Div", HKI_ONNX(o, "Sub", x, from), gap);
    const char *const line =
        HKI_ONNX(o, "Add", hki_onnx_cast(o, before, HK_F64), part);
    const char *const both =
        hki_onnx_cast(o, HKI_ONNX(o, "Add", before, upto), HK_F64);
    const char *const middle =
        HKI_ONNX(o, "Mul", both, hki_onnx_scalar(o, HK_F64, 0.5));
    const char *rank = HKI_ONNX(
        o, "Where", HKI_ONNX(o, "Equal", below, integer(w, HK_QUANTILES)),
        hki_onnx_scalar(o, HK_F64, HK_QUANTILES - 1), line);
    rank = HKI_ONNX(o, "Where", HKI_ONNX(o, "Equal", below, integer(w, 0)),
                    hki_onnx_scalar(o, HK_F64, 0), rank);
    rank =
        HKI_ONNX(o, "Where", HKI_ONNX(o, "Greater", upto, below), middle, rank);
    const char *const centered = HKI_ONNX(
        o, "Sub", rank, hki_onnx_scalar(o, HK_F64, (HK_QUANTILES - 1) / 2.0));
    return HKI_ONNX(o, "Mul", centered,
                    hki_onnx_scalar(o, HK_F64, sqrt(12) / (HK_QUANTILES - 1)));
}

// At most a deviation beyond the range.
static const char *clipped(writing *w, const hk_column *c, const char *x) {
    const hki_stats *const st = &c->stats;
    const size_t n = (size_t)c->width;
    double *bound;
    if (!c->clip)
        return x;
    const hk_status s = hki_alloc_array(2 * n, sizeof *bound, &bound);
    if (s != HK_OK)
        return hki_onnx_fail(w->o, s);
    for (size_t j = 0; j < n; j++) {
        bound[j] = st->min[j] - st->std[j];
        bound[n + j] = st->max[j] + st->std[j];
    }
    const char *const low = constant(w, bound, c->width);
    const char *const high = constant(w, bound + n, c->width);
    hki_free(bound);
    return HKI_ONNX(w->o, "Max", HKI_ONNX(w->o, "Min", x, high), low);
}

// (x - from) * by, with the numbers of the normaliser.
static const char *normalized(writing *w, const hk_column *c, const char *x) {
    const hki_stats *const st = &c->stats;
    const bool deviation = c->normalizer == HK_NORM_MEAN_STD;
    double *by;
    if (c->normalizer == HK_NORM_NONE)
        return x;
    if (c->normalizer == HK_NORM_QUANTILE)
        return by_quantiles(w, c, x);
    const hk_status s = hki_alloc_array((size_t)c->width, sizeof *by, &by);
    if (s != HK_OK)
        return hki_onnx_fail(w->o, s);
    for (int64_t j = 0; j < c->width; j++) {
        const double range = deviation ? st->std[j] : st->max[j] - st->min[j];
        by[j] = range != 0 ? 1 / range : deviation ? 1 : 0;
    }
    const char *const scale = constant(w, by, c->width);
    hki_free(by);
    const char *const from =
        constant(w, deviation ? st->mean : st->min, c->width);
    return HKI_ONNX(w->o, "Mul", HKI_ONNX(w->o, "Sub", clipped(w, c, x), from),
                    scale);
}

static const char *joined(hki_onnx *o, const char *const *parts, size_t n) {
    const hki_onnx_call c = {.op = "Concat",
                             .in = parts,
                             .n_in = n,
                             HKI_ONNX_ATTR(HKI_ONNX_I("axis", 1))};
    return n == 1 ? parts[0] : hki_onnx_node(o, &c);
}

static const char *numeric(writing *w, const hk_column *c) {
    const char *const x = raw_numbers(w, c);
    const char *parts[2];
    parts[0] = hki_onnx_cast(
        w->o, normalized(w, c, transformed(w, c, filled(w, c, x))), HK_F32);
    if (!hki_numeric_flags(c))
        return parts[0];
    parts[1] = hki_onnx_cast(w->o, HKI_ONNX(w->o, "IsNaN", x), HK_F32);
    return joined(w->o, parts, 2);
}

// ---- ids --------------------------------------------------------------------

// How many boundaries are not above x; buckets of value j begin at j * size.
static const char *bucketized(writing *w, const hk_column *c) {
    const hk_column *const from = c->source;
    const char *const x = raw_numbers(w, from);
    const char *const full = filled(w, from, x);
    const char *const passed =
        HKI_ONNX(w->o, "GreaterOrEqual", behind(w, full),
                 constant(w, c->boundaries, (int64_t)c->n_boundaries));
    const char *id = sum_of(w, hki_onnx_cast(w->o, passed, HK_I64), 2);
    if (from->missing == HK_MISSING_BUCKET)
        id = HKI_ONNX(w->o, "Where", HKI_ONNX(w->o, "IsNaN", x),
                      integer(w, (int64_t)c->n_boundaries + 1), id);
    const char *const first = HKI_ONNX(
        w->o, "Mul", hki_onnx_range(w->o, from->width), integer(w, c->size));
    return HKI_ONNX(w->o, "Add", id, first);
}

static int64_t id_of_missing(const hk_column *c) {
    if (c->missing == HK_MISSING_DEFAULT)
        return c->default_id;
    return c->missing == HK_MISSING_BUCKET ? c->buckets - 1 : -1;
}

// Words and their ids, with what stands for a missing one behind them.
typedef struct dictionary {
    const char **words;
    size_t *sizes;
    int64_t *numbers; // the words as integers
    int64_t *ids;
    size_t n;
} dictionary;

static void dictionary_deinit(dictionary *d) {
    hki_free(d->words);
    hki_free(d->sizes);
    hki_free(d->numbers);
    hki_free(d->ids);
}

// Is the word the decimal text of *v?
static bool is_decimal(const char *text, size_t size, int64_t *v) {
    char copy[HKI_DECIMAL_TEXT] = "", again[HKI_DECIMAL_TEXT];
    if (size >= sizeof copy)
        return false;
    memcpy(copy, text, size);
    *v = strtoll(copy, NULL, 10);
    return hki_decimal(*v, again) == size && memcmp(copy, again, size) == 0;
}

static hk_status dictionary_init(const hk_column *c, bool integers,
                                 dictionary *d) {
    const size_t most = c->words->n + 1;
    HKI_TRY(hki_zalloc_array(most, sizeof *d->words, &d->words));
    HKI_TRY(hki_zalloc_array(most, sizeof *d->sizes, &d->sizes));
    HKI_TRY(hki_zalloc_array(most, sizeof *d->numbers, &d->numbers));
    HKI_TRY(hki_zalloc_array(most, sizeof *d->ids, &d->ids));
    for (size_t i = 0; i < c->words->n; i++) {
        d->words[d->n] = hki_words_at(c->words, i, &d->sizes[d->n]);
        d->ids[d->n] = (int64_t)i;
        d->n += !integers ||
                is_decimal(d->words[d->n], d->sizes[d->n], &d->numbers[d->n]);
    }
    d->words[d->n] = "";
    d->sizes[d->n] = 0;
    d->numbers[d->n] = -1;
    d->ids[d->n++] = id_of_missing(c);
    return HK_OK;
}

static const char *look_up(const writing *w, const dictionary *d, bool integers,
                           const char *x, int64_t unknown) {
    const hki_onnx_attr keys =
        integers ? (hki_onnx_attr)HKI_ONNX_LIST("keys_int64s", d->numbers, d->n)
                 : (hki_onnx_attr){.name = "keys_strings",
                                   .type = HKI_ONNX_STRINGS,
                                   .strings = d->words,
                                   .sizes = d->sizes,
                                   .n = d->n};
    const hki_onnx_call c = {
        .op = "ml.LabelEncoder",
        HKI_ONNX_IN(x),
        HKI_ONNX_ATTR(keys, HKI_ONNX_LIST("values_int64s", d->ids, d->n),
                      HKI_ONNX_I("default_int64", unknown))};
    return hki_onnx_node(w->o, &c);
}

static const char *vocabulary(writing *w, const hk_column *c) {
    const hk_dtype t = type_of(w, c->key, HK_STRING);
    const bool integers = t != HK_STRING;
    dictionary d = {0};
    if (c->oov_buckets > 1)
        return refuse(w, c,
                      "unknown words are hashed to several ids; use one "
                      "(oov_buckets 1), or export a folder");
    if (c->values > 1 && c->missing == HK_MISSING_BUCKET)
        return refuse(w, c,
                      "the end of a list looks like a missing word; use a "
                      "hashed column, or export a folder");
    const char *x = input(w, c->key, t, c->values);
    if (integers)
        x = hki_onnx_cast(w->o, x, HK_I64);
    hk_status s = dictionary_init(c, integers, &d);
    const char *const id =
        s == HK_OK ? look_up(w, &d, integers, x,
                             c->oov_buckets > 0 ? c->size : c->default_id)
                   : hki_onnx_fail(w->o, s);
    dictionary_deinit(&d);
    return id;
}

// A value out of range without a default is left as it is: the run-time finds
// no row for it.
static const char *identity(writing *w, const hk_column *c) {
    const hk_dtype t = type_of(w, c->key, HK_I64);
    const char *x = hki_onnx_cast(w->o, input(w, c->key, t, c->values), HK_I64);
    const char *const none = HKI_ONNX(w->o, "Equal", x, integer(w, -1));
    if (c->default_id >= 0) {
        const char *const low = HKI_ONNX(w->o, "Less", x, integer(w, 0));
        const char *const high =
            HKI_ONNX(w->o, "GreaterOrEqual", x, integer(w, c->size));
        x = HKI_ONNX(w->o, "Where", HKI_ONNX(w->o, "Or", low, high),
                     integer(w, c->default_id), x);
    }
    return HKI_ONNX(w->o, "Where", none, integer(w, id_of_missing(c)), x);
}

// ONNX has no such hash: whoever asks brings the ids.
static const char *id_input(writing *w, const hk_column *c) {
    const char *name;
    const hk_status s = hki_arena_printf(&w->o->arena, &name, "%s_id", c->name);
    return s == HK_OK ? input(w, name, HK_I64, c->values)
                      : hki_onnx_fail(w->o, s);
}

static const char *ids_of(writing *w, const hk_column *c) {
    if (c->kind != HKI_COLUMN_BUCKETIZED && c->values == 0)
        return refuse(
            w, c,
            "its rows have any number of values; set their largest number "
            "(values, in an experiment: most), or export a folder");
    switch (c->kind) {
    case HKI_COLUMN_BUCKETIZED:
        return bucketized(w, c);
    case HKI_COLUMN_VOCABULARY:
        return vocabulary(w, c);
    case HKI_COLUMN_IDENTITY:
        return identity(w, c);
    case HKI_COLUMN_HASH:
    case HKI_COLUMN_CROSSED:
        return id_input(w, c);
    default:
        return refuse(w, c, WEIGHTED);
    }
}

// ---- what comes out ---------------------------------------------------------

// One float for each bucket: how often it occurs.
static const char *indicator(writing *w, const hk_column *c) {
    const char *const ids = ids_of(w, c);
    const char *const hits = HKI_ONNX(w->o, "Equal", behind(w, ids),
                                      hki_onnx_range(w->o, c->buckets));
    return sum_of(w, hki_onnx_cast(w->o, hits, HK_F32), 1);
}

static const char *dense_part(writing *w, const hk_column *c) {
    if (c->kind == HKI_COLUMN_NUMERIC)
        return numeric(w, c);
    return indicator(w, c->kind == HKI_COLUMN_INDICATOR ? c->source : c);
}

static int64_t dense_width(const hk_column *c) {
    if (c->kind == HKI_COLUMN_NUMERIC)
        return hki_numeric_floats(c);
    return c->kind == HKI_COLUMN_INDICATOR ? c->source->buckets : c->buckets;
}

// The parts of "dense" in the order of their places.
static hk_status dense(writing *w) {
    const char **parts;
    size_t n = 0;
    int64_t at = 0;
    HKI_TRY(hki_alloc_array(w->s->n_uses, sizeof *parts, &parts));
    while (at < w->s->n_dense && w->o->status == HK_OK)
        for (size_t i = 0; i < w->s->n_uses; i++)
            if (w->s->use[i].offset == at) {
                const hk_column *const c = w->s->use[i].column;
                parts[n++] = dense_part(w, c);
                at += dense_width(c);
                break;
            }
    if (n > 0)
        hki_onnx_give(w->o, HK_FEATURES_DENSE, joined(w->o, parts, n));
    hki_free(parts);
    return w->o->status;
}

static hk_status ids(writing *w) {
    for (size_t i = 0; i < w->s->n_outs && w->o->status == HK_OK; i++) {
        const hki_out *const out = &w->s->out[i];
        if (out->kind == HKI_OUT_IDS)
            hki_onnx_give(w->o, out->name, ids_of(w, out->ids));
        else
            refuse(w, out->ids, WEIGHTED);
    }
    return w->o->status;
}

// Inputs: at most two a column, its key and its ids.
hk_status hki_features_onnx(const hk_feature_set *s, const hk_element *raw,
                            const hk_date_column *dates, size_t n_dates,
                            hki_onnx *o) {
    writing w = {.s = s, .raw = raw, .date = dates, .n_dates = n_dates, .o = o};
    if (!s->finished)
        return hki_fail(HK_E_STATE, "onnx: the feature set is not finished");
    HKI_TRY(hki_alloc_array(2 * s->n_columns, sizeof *w.inputs, &w.inputs));
    hk_status status = hki_zalloc_array(n_dates, sizeof *w.parts, &w.parts);
    if (status == HK_OK)
        status = dense(&w);
    if (status == HK_OK)
        status = ids(&w);
    hki_free(w.inputs);
    hki_free(w.parts);
    return status == HK_OK ? HK_OK : hki_fail(status, "%s", o->error);
}
