// feature_emit.c - from columns at hand to the rows of the output tensors.
#include "data/features/feature.h"
#include <math.h>
#include "data/features/feature_plan.h"

// ---- floats ---------------------------------------------------------------

// How many of the quantiles lie below x, or are not above it.
static int64_t count_below(const double *q, double x, bool or_equal) {
    int64_t low = 0, high = HK_QUANTILES;
    while (low < high) {
        const int64_t mid = (low + high) / 2;
        if (q[mid] < x || (or_equal && q[mid] == x))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

// The share of the data below x: between two quantiles on the line, and in the
// middle of those that are equal to it.
static double share_below(const double *q, double x) {
    const int64_t below = count_below(q, x, false);
    const int64_t upto = count_below(q, x, true);
    const double last = HK_QUANTILES - 1;
    if (upto > below)
        return (double)(below + upto - 1) / 2 / last;
    if (below == 0 || below == HK_QUANTILES)
        return below == 0 ? 0 : 1;
    const double gap = q[below] - q[below - 1];
    return ((double)(below - 1) + (x - q[below - 1]) / gap) / last;
}

// The values between which t counts as it is.
static void find_bounds(const hk_column *c, int64_t j, double *low,
                        double *high) {
    const hki_stats *const st = &c->stats;
    *low = -INFINITY;
    *high = INFINITY;
    if (c->normalizer == HK_NORM_QUANTILE) {
        *low = st->quantiles[j * HK_QUANTILES];
        *high = st->quantiles[(j + 1) * HK_QUANTILES - 1];
    } else if (c->clip) {
        *low = st->min[j] - st->std[j];
        *high = st->max[j] + st->std[j];
    }
}

static double normalized(const hk_column *c, int64_t j, double t) {
    const hki_stats *const st = &c->stats;
    if (c->normalizer == HK_NORM_QUANTILE)
        return (share_below(st->quantiles + j * HK_QUANTILES, t) - 0.5) *
               sqrt(12);
    if (c->normalizer == HK_NORM_MEAN_STD)
        return (t - st->mean[j]) / (st->std[j] != 0 ? st->std[j] : 1);
    if (c->normalizer == HK_NORM_MIN_MAX) {
        const double range = st->max[j] - st->min[j];
        return range != 0 ? (t - st->min[j]) / range : 0;
    }
    return t;
}

// One numeric column of all rows; row r of the output begins at r * stride.
static hk_status put_numeric(const hk_column *c, const hki_cells *cells,
                             float *out, int64_t stride) {
    const bool flagged = hki_numeric_flags(c);
    uint64_t clipped = 0;
    for (int64_t r = 0; r < cells->rows; r++) {
        float *const row = out + r * stride;
        HKI_TRY(hki_numeric_row(c, cells, r));
        for (int64_t j = 0; j < c->width; j++) {
            bool missing;
            double x = hki_numeric_value(cells, r, j, &missing);
            if (missing && c->missing == HK_MISSING_ERROR)
                return hki_missing_error(c, r);
            if (missing)
                x = hki_numeric_default(c, j);
            const double t = hki_transform(c->transform, x);
            double low, high;
            find_bounds(c, j, &low, &high);
            clipped += !(t >= low && t <= high);
            row[j] =
                (float)normalized(c, j, c->clip ? fmax(fmin(t, high), low) : t);
            if (flagged)
                row[c->width + j] = missing ? 1 : 0;
        }
    }
    if (clipped > 0)
        atomic_fetch_add_explicit(c->clipped, clipped, memory_order_relaxed);
    return HK_OK;
}

// ---- weights --------------------------------------------------------------

hk_status hki_weights_check(const hk_column *c, const hki_cells *ids,
                            const hki_cells *weights) {
    bool same = ids->rows == weights->rows;
    for (int64_t r = 0; r <= ids->rows && same; r++)
        same = hki_cells_begin(ids, r) == hki_cells_begin(weights, r);
    if (!same)
        return hki_fail(HK_E_SHAPE,
                        "column \"%s\": \"%s\" and \"%s\" have rows of "
                        "different lengths",
                        c->name, ids->key, weights->key);
    const int64_t n = hki_cells_begin(weights, weights->rows);
    for (int64_t i = 0; i < n; i++) {
        const double w = hki_cells_number(weights, i);
        if (!isfinite(w))
            return hki_fail(
                HK_E_NOT_FINITE,
                "column \"%s\": weight %lld is %g; it has to be finite",
                c->name, (long long)i, w);
    }
    return HK_OK;
}

// Of the i-th id of a column; weights NULL: 1.
static double weight_at(const hki_ids *ids, const hki_cells *weights,
                        int64_t i) {
    return weights != NULL ? hki_cells_number(weights, ids->place[i]) : 1;
}

static void put_indicator(const hki_ids *ids, const hki_cells *weights,
                          int64_t rows, int64_t buckets, float *out,
                          int64_t stride) {
    for (int64_t r = 0; r < rows; r++) {
        float *const row = out + r * stride;
        memset(row, 0, (size_t)buckets * sizeof *row);
        for (int64_t i = ids->splits[r]; i < ids->splits[r + 1]; i++)
            row[ids->id[i]] += (float)weight_at(ids, weights, i);
    }
}

// One dense column of all rows.
static hk_status put_dense(const hki_feature_plan *p, const hki_plan_scratch *w,
                           const hk_column *c, float *out) {
    const int64_t stride = p->set->n_dense;
    if (c->kind == HKI_COLUMN_NUMERIC)
        return put_numeric(c, &w->cells[p->field[c->index]], out, stride);
    const hk_column *ids = c->kind == HKI_COLUMN_INDICATOR ? c->source : c;
    const hki_cells *weights = NULL;
    if (ids->kind == HKI_COLUMN_WEIGHTED) {
        weights = &w->cells[p->field[ids->index]];
        ids = ids->source;
    }
    put_indicator(&w->ids[ids->index], weights, w->rows, ids->buckets, out,
                  stride);
    return HK_OK;
}

hk_status hki_emit_dense(const hki_feature_plan *p, const hki_plan_scratch *w,
                         float *out) {
    for (size_t i = 0; i < p->set->n_uses; i++) {
        const hki_use *const u = &p->set->use[i];
        if (u->offset >= 0)
            HKI_TRY(put_dense(p, w, u->column, out + u->offset));
    }
    return HK_OK;
}

// ---- ids ------------------------------------------------------------------

// Ids of row r that go out: all, or the first c->values.
static hk_status kept(const hk_column *c, const hki_ids *ids, int64_t r,
                      int64_t *n) {
    *n = ids->splits[r + 1] - ids->splits[r];
    if (c->values == 0 || *n <= c->values)
        return HK_OK;
    if (!c->truncate)
        return hki_fail(HK_E_RANGE,
                        "column \"%s\": row %lld has %lld values, more than "
                        "the %lld of the column; set `values` or `truncate`",
                        c->name, (long long)r, (long long)*n,
                        (long long)c->values);
    *n = c->values;
    return HK_OK;
}

// What the weights of a row are multiplied with.
static double row_scale(const hki_out *o, const hki_ids *ids,
                        const hki_cells *weights, int64_t first, int64_t n) {
    double squares = 0;
    if (o->kind != HKI_OUT_SQRTN)
        return 1;
    for (int64_t i = first; i < first + n; i++) {
        const double w = weight_at(ids, weights, i);
        squares += w * w;
    }
    return squares > 0 ? 1 / sqrt(squares) : 0;
}

// Row r of an output, n entries of `room`; the rest is filled up.
static void put_row(const hki_out *o, const hki_ids *ids,
                    const hki_cells *weights, int64_t r, int64_t n,
                    int64_t room, void *out) {
    const int64_t first = ids->splits[r];
    if (o->kind == HKI_OUT_IDS) {
        int64_t *const id = out;
        for (int64_t i = 0; i < room; i++)
            id[i] = i < n ? ids->id[first + i] : -1;
        return;
    }
    float *const weight = out;
    const double scale = row_scale(o, ids, weights, first, n);
    for (int64_t i = 0; i < room; i++)
        weight[i] =
            i < n ? (float)(scale * weight_at(ids, weights, first + i)) : 0;
}

hk_status hki_emit_rows(const hki_out *o, const hki_ids *ids,
                        const hki_cells *weights, int64_t rows, void *out,
                        int64_t *splits) {
    const size_t item =
        o->kind == HKI_OUT_IDS ? sizeof(int64_t) : sizeof(float);
    char *at = out;
    int64_t total = 0;
    for (int64_t r = 0; r < rows; r++) {
        int64_t n = 0;
        HKI_TRY(kept(o->ids, ids, r, &n));
        const int64_t room = o->ids->values != 0 ? o->ids->values : n;
        put_row(o, ids, weights, r, n, room, at);
        at += (size_t)room * item;
        if (splits != NULL)
            splits[r] = total;
        total += n;
    }
    if (splits != NULL)
        splits[rows] = total;
    return HK_OK;
}
