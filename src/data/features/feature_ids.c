// feature_ids.c - the ids of categorical columns, for many rows at once.
//
// A column's ids are packed: row r has those from splits[r] to splits[r + 1].
// What is missing or unknown and has no id leaves no gap.
#include "data/features/feature.h"

hk_status hki_ids_reserve(hki_ids *ids, int64_t rows, size_t n) {
    size_t cap = ids->cap;
    HKI_TRY(hki_list_reserve(&ids->splits, (size_t)rows + 1, &ids->cap_splits,
                             sizeof *ids->splits));
    HKI_TRY(hki_list_reserve(&ids->id, n, &cap, sizeof *ids->id));
    return hki_list_reserve(&ids->place, n, &ids->cap, sizeof *ids->place);
}

void hki_ids_deinit(hki_ids *ids) {
    hki_free(ids->id);
    hki_free(ids->place);
    hki_free(ids->splits);
    *ids = (hki_ids){0};
}

hk_status hki_missing_error(const hk_column *c, int64_t row) {
    return hki_fail(HK_E_DATA,
                    "column \"%s\": a value of row %lld is missing; the "
                    "column's `missing` can replace it",
                    c->name, (long long)row);
}

// ---- strings and integers -------------------------------------------------

// -1: no id.
static int64_t id_of_missing(const hk_column *c) {
    if (c->missing == HK_MISSING_DEFAULT)
        return c->default_id;
    return c->missing == HK_MISSING_BUCKET ? c->buckets - 1 : -1;
}

static int64_t id_of_text(const hk_column *c, const char *text, size_t size) {
    if (c->kind == HKI_COLUMN_HASH)
        return (int64_t)(hki_feature_hash(text, size) % (uint64_t)c->size);
    const int64_t id = hki_words_find(c->words, text, size);
    if (id >= 0)
        return id;
    if (c->oov_buckets == 0)
        return c->default_id;
    return c->size +
           (int64_t)(hki_feature_hash(text, size) % (uint64_t)c->oov_buckets);
}

static hk_status id_of_integer(const hk_column *c, const hki_cells *cells,
                               int64_t row, int64_t v, int64_t *id) {
    if (v >= 0 && v < c->size) {
        *id = v;
        return HK_OK;
    }
    if (c->default_id < 0)
        return hki_fail(HK_E_RANGE,
                        "column \"%s\": row %lld of \"%s\" has %lld, which is "
                        "not in 0..%lld",
                        c->name, (long long)row, cells->key, (long long)v,
                        (long long)c->size - 1);
    *id = c->default_id;
    return HK_OK;
}

static hk_status id_of_cell(const hk_column *c, const hki_cells *cells,
                            int64_t row, int64_t i, int64_t *id) {
    char buf[HKI_DECIMAL_TEXT];
    const char *text;
    size_t size;
    if (c->kind == HKI_COLUMN_IDENTITY) {
        const int64_t v = hki_cells_integer(cells, i);
        if (v != -1)
            return id_of_integer(c, cells, row, v, id);
    } else if (hki_cells_text(cells, i, buf, &text, &size)) {
        *id = id_of_text(c, text, size);
        return HK_OK;
    }
    if (c->missing == HK_MISSING_ERROR)
        return hki_missing_error(c, row);
    *id = id_of_missing(c);
    return HK_OK;
}

hk_status hki_ids_of_cells(const hk_column *c, const hki_cells *cells,
                           hki_ids *out) {
    int64_t n = 0;
    HKI_TRY(hki_ids_reserve(out, cells->rows,
                            (size_t)hki_cells_begin(cells, cells->rows)));
    for (int64_t r = 0; r < cells->rows; r++) {
        const int64_t end = hki_cells_begin(cells, r + 1);
        out->splits[r] = n;
        for (int64_t i = hki_cells_begin(cells, r); i < end; i++) {
            int64_t id = -1;
            HKI_TRY(id_of_cell(c, cells, r, i, &id));
            out->id[n] = id;
            out->place[n] = i;
            n += id >= 0;
        }
    }
    out->splits[cells->rows] = n;
    return HK_OK;
}

// ---- numbers --------------------------------------------------------------

hk_status hki_numeric_row(const hk_column *c, const hki_cells *cells,
                          int64_t r) {
    const int64_t n = hki_cells_begin(cells, r + 1) - hki_cells_begin(cells, r);
    if (n <= c->width && (n == c->width || cells->splits != NULL))
        return HK_OK;
    return hki_fail(
        HK_E_SHAPE,
        "column \"%s\": row %lld of \"%s\" has %lld values, expected %lld",
        c->name, (long long)r, cells->key, (long long)n, (long long)c->width);
}

// Boundaries that are not above x.
static int64_t bucket_of(const hk_column *c, double x) {
    size_t low = 0, high = c->n_boundaries;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (c->boundaries[middle] <= x)
            low = middle + 1;
        else
            high = middle;
    }
    return (int64_t)low;
}

static hk_status bucket_of_cell(const hk_column *c, const hki_cells *cells,
                                int64_t r, int64_t j, int64_t *id) {
    const hk_column *const numeric = c->source;
    bool missing;
    const double x = hki_numeric_value(cells, r, j, &missing);
    int64_t bucket = (int64_t)c->n_boundaries + 1; // the missing values' own
    if (missing && numeric->missing == HK_MISSING_ERROR)
        return hki_missing_error(numeric, r);
    if (!missing)
        bucket = bucket_of(c, x);
    else if (numeric->missing != HK_MISSING_BUCKET)
        bucket = bucket_of(c, hki_numeric_default(numeric, j));
    *id = j * c->size + bucket;
    return HK_OK;
}

hk_status hki_ids_of_numbers(const hk_column *c, const hki_cells *cells,
                             hki_ids *out) {
    const int64_t width = c->source->width;
    int64_t n = 0;
    HKI_TRY(hki_ids_reserve(out, cells->rows, (size_t)(cells->rows * width)));
    for (int64_t r = 0; r < cells->rows; r++) {
        HKI_TRY(hki_numeric_row(c->source, cells, r));
        out->splits[r] = n;
        for (int64_t j = 0; j < width; j++, n++)
            HKI_TRY(bucket_of_cell(c, cells, r, j, &out->id[n]));
    }
    out->splits[cells->rows] = n;
    return HK_OK;
}

// ---- crosses --------------------------------------------------------------

hk_status hki_ids_raw(const hki_cells *cells, hki_ids *out) {
    const int64_t n = hki_cells_begin(cells, cells->rows);
    char buf[HKI_DECIMAL_TEXT];
    const char *text = NULL;
    size_t size = 0;
    HKI_TRY(hki_ids_reserve(out, cells->rows, (size_t)n));
    for (int64_t r = 0; r <= cells->rows; r++)
        out->splits[r] = hki_cells_begin(cells, r);
    for (int64_t i = 0; i < n; i++) {
        if (cells->strings == NULL) {
            out->id[i] = hki_cells_integer(cells, i);
            continue;
        }
        hki_cells_text(cells, i, buf, &text, &size);
        out->id[i] = (int64_t)hki_feature_hash(text, size);
    }
    return HK_OK;
}

// Combinations of a row: the product of the leaves' counts.
static hk_status combinations(const hk_column *c, const hki_ids *const *leaf,
                              int64_t r, size_t *out) {
    size_t product = 1;
    for (size_t i = 0; i < c->n_leaves; i++) {
        const int64_t n = leaf[i]->splits[r + 1] - leaf[i]->splits[r];
        if (hki_mul_overflow(product, (size_t)n, &product) ||
            product > (size_t)HKI_MAX_VALUES)
            return hki_fail(HK_E_RANGE,
                            "column \"%s\": row %lld has more than %lld "
                            "combinations",
                            c->name, (long long)r, (long long)HKI_MAX_VALUES);
    }
    *out = product;
    return HK_OK;
}

// Combination k counts like a number whose last digit is the last leaf's.
static int64_t cross_one(const hk_column *c, const hki_ids *const *leaf,
                         int64_t r, size_t k, size_t n) {
    uint64_t h = c->hash_key;
    for (size_t i = 0; i < c->n_leaves; i++) {
        const int64_t first = leaf[i]->splits[r];
        const size_t count = (size_t)(leaf[i]->splits[r + 1] - first);
        n /= count;
        h = hki_hash_join(h, (uint64_t)leaf[i]->id[first + (int64_t)(k / n)]);
        k %= n;
    }
    return (int64_t)(h % (uint64_t)c->size);
}

hk_status hki_ids_crossed(const hk_column *c, const hki_ids *const *leaf,
                          int64_t rows, hki_ids *out) {
    size_t at = 0;
    HKI_TRY(hki_ids_reserve(out, rows, 0));
    for (int64_t r = 0; r < rows; r++) {
        size_t n = 0;
        HKI_TRY(combinations(c, leaf, r, &n));
        HKI_TRY(hki_ids_reserve(out, rows, at + n));
        out->splits[r] = (int64_t)at;
        for (size_t k = 0; k < n; k++)
            out->id[at++] = cross_one(c, leaf, r, k, n);
    }
    out->splits[rows] = (int64_t)at;
    return HK_OK;
}
