// feature_fit.c - statistics and vocabularies from one pass over the data.
//
// Means and variances are updated value by value (Welford 1962): a sum of
// squares would lose the small spread of large numbers.
#include "data/data.h"
#include "data/features/feature.h"
#include <math.h>
#include <stdlib.h>

typedef struct moments {
    int64_t count;
    double mean, squares; // sum of squared distances from the mean
    double min, max;
} moments;

// Values of the data, evenly over it: when there is no room, every second one
// goes, and of those to come fewer are taken.
typedef struct sample {
    double *value;
    size_t n;
    int64_t seen, every;
} sample;

#define SAMPLE_ROOM 65536

// One column that waits for data.
typedef struct fit_column {
    hk_column *column;
    size_t value; // of the element
    hki_cells_scratch scratch;
    moments *moment;  // NUMERIC: `width` of them
    sample *samples;  // the same, where quantiles are wanted; NULL: not
    hki_words counts; // VOCABULARY
    hki_stats stats;  // results, in the set's arena
    hki_words *words; // result
} fit_column;

typedef struct fit {
    hk_feature_set *set;
    bool batched;
    fit_column *column;
    size_t n;
} fit;

static void fit_deinit(fit *f) {
    for (size_t i = 0; i < f->n; i++) {
        fit_column *const c = &f->column[i];
        hki_cells_deinit(&c->scratch);
        hki_free(c->moment);
        for (int64_t j = 0; c->samples != NULL && j < c->column->width; j++)
            hki_free(c->samples[j].value);
        hki_free(c->samples);
        hki_words_deinit(&c->counts);
        hki_words_deinit(c->words);
        hki_free(c->words);
    }
    hki_free(f->column);
}

// ---- binding --------------------------------------------------------------

static hk_status bind_column(fit *f, const hk_element *spec, hk_column *column,
                             fit_column *c) {
    const bool numeric = column->kind == HKI_COLUMN_NUMERIC;
    const int64_t v = hki_spec_find(spec, column->key);
    int64_t per_row;
    c->column = column;
    if (v < 0)
        return hki_fail(HK_E_NOT_FOUND,
                        "feature fit: the dataset has no value \"%s\"",
                        column->key);
    c->value = (size_t)v;
    HKI_TRY(hki_cells_check(&spec->values[v], f->batched, numeric, &per_row));
    const size_t width = numeric ? (size_t)column->width : 0;
    HKI_TRY(hki_zalloc_array(width, sizeof *c->moment, &c->moment));
    if (numeric && column->normalizer == HK_NORM_QUANTILE)
        HKI_TRY(hki_zalloc_array(width, sizeof *c->samples, &c->samples));
    return HK_OK;
}

static hk_status bind(fit *f, const hk_element *spec) {
    hk_feature_set *const s = f->set;
    HKI_TRY(hki_zalloc_array(s->n_columns, sizeof *f->column, &f->column));
    for (size_t i = 0; i < s->n_columns; i++)
        if (s->column[i]->unfitted)
            HKI_TRY(bind_column(f, spec, s->column[i], &f->column[f->n++]));
    return HK_OK;
}

// ---- one element ----------------------------------------------------------

static void moments_add(moments *m, double x) {
    const double gap = x - m->mean;
    m->count++;
    m->mean += gap / (double)m->count;
    m->squares += gap * (x - m->mean);
    m->min = m->count == 1 ? x : fmin(m->min, x);
    m->max = m->count == 1 ? x : fmax(m->max, x);
}

static hk_status sample_add(sample *s, double x) {
    if (s->value == NULL) {
        HKI_TRY(hki_alloc_array(SAMPLE_ROOM, sizeof *s->value, &s->value));
        s->every = 1;
    }
    if (s->seen++ % s->every != 0)
        return HK_OK;
    if (s->n == SAMPLE_ROOM) {
        for (size_t i = 0; i < SAMPLE_ROOM / 2; i++)
            s->value[i] = s->value[2 * i];
        s->n /= 2;
        s->every *= 2;
    }
    s->value[s->n++] = x;
    return HK_OK;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void sample_quantiles(sample *s, double *out) {
    if (s->n > 0)
        qsort(s->value, s->n, sizeof *s->value, by_value);
    for (size_t k = 0; k < HK_QUANTILES; k++)
        out[k] = s->n == 0
                     ? 0
                     : s->value[(k * (s->n - 1) + (HK_QUANTILES - 1) / 2) /
                                (HK_QUANTILES - 1)];
}

static hk_status add_numbers(fit_column *c, const hki_cells *cells) {
    const hk_column *const column = c->column;
    for (int64_t r = 0; r < cells->rows; r++) {
        HKI_TRY(hki_numeric_row(column, cells, r));
        for (int64_t j = 0; j < column->width; j++) {
            bool missing;
            const double x = hki_numeric_value(cells, r, j, &missing);
            const double t = hki_transform(column->transform, x);
            if (!missing && !isfinite(t))
                return hki_fail(HK_E_NOT_FINITE,
                                "feature fit: column \"%s\": the value %g in "
                                "row %lld is not finite",
                                column->name, x, (long long)r);
            if (!missing)
                moments_add(&c->moment[j], t);
            if (!missing && c->samples != NULL)
                HKI_TRY(sample_add(&c->samples[j], t));
        }
    }
    return HK_OK;
}

static hk_status add_words(fit_column *c, const hki_cells *cells) {
    const int64_t n = hki_cells_begin(cells, cells->rows);
    for (int64_t i = 0; i < n; i++) {
        char buf[HKI_DECIMAL_TEXT];
        const char *text;
        size_t size;
        int64_t index;
        if (hki_cells_text(cells, i, buf, &text, &size))
            HKI_TRY(hki_words_add(&c->counts, text, size, &index));
    }
    return HK_OK;
}

static hk_status add_element(fit *f, const hk_element *e) {
    for (size_t i = 0; i < f->n; i++) {
        fit_column *const c = &f->column[i];
        hki_cells cells;
        HKI_TRY(hki_cells_open(&e->values[c->value], f->batched, &c->scratch,
                               &cells));
        HKI_TRY(c->column->kind == HKI_COLUMN_NUMERIC ? add_numbers(c, &cells)
                                                      : add_words(c, &cells));
    }
    return HK_OK;
}

static hk_status pass_over(fit *f, hk_iter *it, int64_t max_elements) {
    for (int64_t i = 0; max_elements < 0 || i < max_elements; i++) {
        const hk_element *e;
        const hk_status s = hk_iter_next(it, &e);
        if (s == HK_E_END)
            break;
        HKI_TRY(s);
        HKI_TRY(add_element(f, e));
    }
    return HK_OK;
}

// ---- results --------------------------------------------------------------

static hk_status no_values(const hk_column *c) {
    return hki_fail(
        HK_E_DATA,
        "feature fit: column \"%s\": the data has no value of \"%s\"", c->name,
        c->key);
}

// Room for a statistic that the column needs and was not given.
static hk_status need(hki_arena *a, const hk_column *c, bool needed,
                      const double *given, double **out) {
    if (!needed || given != NULL)
        return HK_OK;
    return hki_arena_alloc(a, (size_t)c->width, sizeof **out, out);
}

static hk_status numeric_result(fit *f, fit_column *c) {
    const hk_column *const col = c->column;
    const bool by_std = col->normalizer == HK_NORM_MEAN_STD;
    const bool by_range = hki_numeric_by_range(col);
    const bool by_mean = by_std || hki_numeric_by_mean(col);
    hki_arena *const a = &f->set->arena;
    hki_stats *const st = &c->stats;
    HKI_TRY(need(a, col, by_mean, col->stats.mean, &st->mean));
    HKI_TRY(need(a, col, by_std, col->stats.std, &st->std));
    HKI_TRY(need(a, col, by_range, col->stats.min, &st->min));
    HKI_TRY(need(a, col, by_range, col->stats.max, &st->max));
    if (c->samples != NULL)
        HKI_TRY(hki_arena_alloc(a, (size_t)col->width * HK_QUANTILES,
                                sizeof *st->quantiles, &st->quantiles));
    for (int64_t j = 0; j < col->width; j++) {
        const moments *const m = &c->moment[j];
        if (m->count == 0 && col->missing != HK_MISSING_FLAG)
            return no_values(col);
        if (st->mean != NULL)
            st->mean[j] = m->mean;
        if (st->std != NULL)
            st->std[j] = m->count ? sqrt(m->squares / (double)m->count) : 0;
        if (st->min != NULL)
            st->min[j] = m->min;
        if (st->max != NULL)
            st->max[j] = m->max;
        if (c->samples != NULL)
            sample_quantiles(&c->samples[j], st->quantiles + j * HK_QUANTILES);
    }
    return HK_OK;
}

// Where no word is often enough, and one that is missing has an id, there is
// the empty one, which nothing is.
static hk_status vocabulary_result(fit_column *c) {
    const hk_column *const col = c->column;
    int64_t index;
    HKI_TRY(hki_zalloc_array(1, sizeof *c->words, &c->words));
    HKI_TRY(hki_words_by_count(&c->counts, (uint64_t)col->min_count,
                               (size_t)col->max_size, c->words));
    if (c->words->n == 0 && col->missing == HK_MISSING_BUCKET)
        HKI_TRY(hki_words_add(c->words, "", 0, &index));
    return c->words->n > 0 ? HK_OK : no_values(col);
}

// Nothing can fail from here on.
static void settle(fit_column *c) {
    hk_column *const col = c->column;
    hki_stats *const st = &c->stats;
    if (st->mean != NULL)
        col->stats.mean = st->mean;
    if (st->std != NULL)
        col->stats.std = st->std;
    if (st->min != NULL)
        col->stats.min = st->min;
    if (st->max != NULL)
        col->stats.max = st->max;
    if (st->quantiles != NULL)
        col->stats.quantiles = st->quantiles;
    if (c->words != NULL) {
        col->words = c->words;
        c->words = NULL;
        hki_vocabulary_sized(col);
    }
    col->unfitted = false;
}

static hk_status run(fit *f, hk_dataset *d, const hk_fit_options *o) {
    HKI_TRY(bind(f, hk_dataset_spec(d)));
    hk_iter *it = NULL;
    hk_iter_options io;
    hk_iter_options_init(&io, sizeof io);
    io.context = o->context;
    HKI_TRY(hk_iter_create(d, &io, &it));
    const hk_status e = pass_over(f, it, o->max_elements);
    hk_iter_destroy(it);
    HKI_TRY(e);
    for (size_t i = 0; i < f->n; i++)
        HKI_TRY(f->column[i].column->kind == HKI_COLUMN_NUMERIC
                    ? numeric_result(f, &f->column[i])
                    : vocabulary_result(&f->column[i]));
    for (size_t i = 0; i < f->n; i++)
        settle(&f->column[i]);
    return HK_OK;
}

static const hk_fit_options fit_defaults = {
    .struct_size = sizeof(hk_fit_options), .max_elements = -1};

HKI_OPTIONS_FROM(hk_fit_options, reserved, fit_defaults)

static bool waits(const hk_feature_set *s) {
    for (size_t i = 0; i < s->n_columns; i++)
        if (s->column[i]->unfitted)
            return true;
    return false;
}

hk_status hk_feature_set_fit(hk_feature_set *s, hk_dataset *d,
                             const hk_fit_options *opt) {
    hk_fit_options o = fit_defaults;
    HKI_TRY(hk_feature_set_status(s));
    HKI_TRY(hki_options_copy(&o, sizeof o, opt, "fit options"));
    HKI_TRY(hk_dataset_status(d));
    if (!waits(s))
        return HK_OK;
    if (hk_dataset_count(d) == -2 && o.max_elements < 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "feature fit: the dataset has no end; give "
                        "max_elements");
    fit f = {.set = s, .batched = o.batched != 0};
    const hk_status e = run(&f, d, &o);
    fit_deinit(&f);
    return e;
}
