// rowset.c - rows of embedding tables gathered by index.
#include "optim/optim.h"

hk_status hki_rowset_init(hki_rowset *s, int64_t n_rows, int64_t dim) {
    *s = (hki_rowset){.n_rows = n_rows, .dim = dim};
    return hki_zalloc_array((size_t)n_rows, sizeof *s->mark, &s->mark);
}

void hki_rowset_deinit(hki_rowset *s) {
    hki_free(s->mark);
    hki_free(s->indices);
    hki_free(s->rows);
    *s = (hki_rowset){0};
}

hk_status hki_rowset_reserve(hki_rowset *s, int64_t rows) {
    // A set never holds more rows than its table.
    const int64_t want = HKI_MIN(rows, s->n_rows);
    if (want <= s->capacity)
        return HK_OK;
    size_t floats;
    if (hki_mul_overflow((size_t)want, (size_t)s->dim, &floats))
        return hki_fail(HK_E_OVERFLOW,
                        "rows: %lld rows of %lld floats are out of range",
                        (long long)want, (long long)s->dim);
    HKI_TRY(hki_realloc_array((size_t)want, sizeof *s->indices, &s->indices));
    HKI_TRY(hki_realloc_array(floats, sizeof *s->rows, &s->rows));
    s->capacity = want;
    return HK_OK;
}

void hki_rowset_clear(hki_rowset *s) {
    s->count = 0;
    if (++s->epoch == 0) { // old marks would look new
        memset(s->mark, 0, (size_t)s->n_rows * sizeof *s->mark);
        s->epoch = 1;
    }
}

hk_status hki_rowset_check(const hki_rowset *s, const char *table,
                           const int64_t *indices, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (indices[i] < 0 || indices[i] >= s->n_rows)
            return hki_fail(HK_E_RANGE,
                            "%s: sparse gradient %lld is for row %lld, but the "
                            "table has %lld",
                            table, (long long)i, (long long)indices[i],
                            (long long)s->n_rows);
    return HK_OK;
}

bool hki_rowset_mark(hki_rowset *s, const int64_t *indices, int64_t count) {
    hki_rowset_clear(s);
    const uint64_t epoch = (uint64_t)s->epoch << 32;
    for (int64_t i = 0; i < count; i++) {
        uint64_t *const m = &s->mark[indices[i]];
        if (*m >> 32 == s->epoch)
            return false;
        *m = epoch | (uint64_t)i;
    }
    return true;
}

hk_status hki_rowset_add(hki_rowset *s, const int64_t *indices,
                         const float *rows, float scale, int64_t count) {
    HKI_TRY(hki_rowset_reserve(s, s->count + count));
    const size_t dim = (size_t)s->dim;
    for (int64_t i = 0; i < count; i++) {
        const float *const from = rows + (size_t)i * dim;
        int64_t at = hki_rowset_find(s, indices[i]);
        const bool fresh = at < 0;
        if (fresh) {
            at = s->count++;
            s->mark[indices[i]] = (uint64_t)s->epoch << 32 | (uint64_t)at;
            s->indices[at] = indices[i];
        }
        float *const to = s->rows + (size_t)at * dim;
        if (fresh)
            for (size_t j = 0; j < dim; j++)
                to[j] = scale * from[j];
        else
            for (size_t j = 0; j < dim; j++)
                to[j] += scale * from[j];
    }
    return HK_OK;
}

// ---- the tables of a layout -----------------------------------------------

static bool is_table(const hk_entry *e) {
    return e->kind == HK_TRAINABLE && e->sparse;
}

static hk_status add_table(hki_tables *t, const hk_entry *e, size_t index) {
    const int64_t rows = e->shape.rank > 0 ? e->shape.dim[0] : 0;
    if (e->shape.rank < 1 || rows > UINT32_MAX)
        return hki_fail(
            HK_E_SHAPE,
            "%s: the first dimension of a table has to be 1 to 2^32 - 1 rows",
            e->name);
    t->entry[t->count] = index;
    // Counted first, so that a failure leaves nothing out of deinit.
    hki_rowset *const set = &t->set[t->count++];
    return hki_rowset_init(set, rows, rows > 0 ? e->count / rows : 0);
}

hk_status hki_tables_init(hki_tables *t, const hk_layout *l) {
    const hk_entry *e;
    size_t n = 0;
    for (size_t i = 0; (e = hk_layout_entry(l, i)) != NULL; i++)
        n += is_table(e);
    *t = (hki_tables){0};
    HKI_TRY(hki_alloc_array(n, sizeof *t->entry, &t->entry));
    HKI_TRY(hki_zalloc_array(n, sizeof *t->set, &t->set));
    for (size_t i = 0; (e = hk_layout_entry(l, i)) != NULL; i++)
        if (is_table(e))
            HKI_TRY(add_table(t, e, i));
    return HK_OK;
}

void hki_tables_deinit(hki_tables *t) {
    for (size_t i = 0; i < t->count; i++)
        hki_rowset_deinit(&t->set[i]);
    hki_free(t->entry);
    hki_free(t->set);
    *t = (hki_tables){0};
}

hk_status hki_tables_find(const hki_tables *t, const hk_layout *l,
                          const hk_sparse_grad *g, const char *what,
                          size_t *out) {
    if (g->entry == NULL || g->entry->name == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: a sparse gradient has no entry",
                        what);
    const char *const name = g->entry->name;
    for (size_t i = 0; i < t->count; i++) {
        const hk_entry *const e = hk_layout_entry(l, t->entry[i]);
        if (e != g->entry && strcmp(e->name, name) != 0)
            continue;
        if (g->dim != t->set[i].dim)
            return hki_fail(HK_E_SHAPE,
                            "%s: rows of %s have %lld floats, but those of the "
                            "gradient %lld",
                            what, name, (long long)t->set[i].dim,
                            (long long)g->dim);
        if (g->count < 0 || g->count > UINT32_MAX ||
            (g->count > 0 && (g->indices == NULL || g->rows == NULL)))
            return hki_fail(HK_E_INVALID_ARG,
                            "%s: sparse gradient of %s: count %lld is "
                            "negative, or indices or rows are missing",
                            what, name, (long long)g->count);
        *out = i;
        return HK_OK;
    }
    return hki_fail(HK_E_NOT_FOUND, "%s: %s is not a table of this layout",
                    what, name);
}

hk_status hki_grad_view_check(const hk_layout *l, const hk_grad_view *v,
                              const char *what) {
    if (v == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: gradients are NULL", what);
    const int64_t dense = hki_layout_dense(l), train = hki_layout_train(l);
    if (v->n_dense != 0 && v->n_dense != dense && v->n_dense != train)
        return hki_fail(HK_E_SHAPE,
                        "%s: %lld gradients do not fit the layout, which has "
                        "%lld dense and %lld trainable floats",
                        what, (long long)v->n_dense, (long long)dense,
                        (long long)train);
    if ((v->n_dense > 0 && v->dense == NULL) ||
        (v->n_sparse > 0 && v->sparse == NULL))
        return hki_fail(HK_E_INVALID_ARG, "%s: gradients are missing", what);
    if (v->n_sparse > 0 && v->n_dense > dense)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: tables have both a dense and a sparse gradient",
                        what);
    if (!__builtin_isfinite(v->scale))
        return hki_fail(HK_E_NOT_FINITE, "%s: scale is %g; it has to be finite",
                        what, v->scale);
    return HK_OK;
}
