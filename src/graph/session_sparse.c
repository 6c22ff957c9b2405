// session_sparse.c - gradients of tables: the rows that a run has touched.
//
// In host memory they are shown where the run has left them. Where memory is
// apart they are read all at once: what is waited for is the way, not the
// bytes.
#include "graph/session_state.h"

size_t hki_session_sparse_count(const hk_session *s) {
    return s->plan->n_sparse;
}

hk_status hk_session_sparse_grad(hk_session *s, size_t i, hk_sparse_grad *out) {
    const hk_plan *p = s->plan;
    if (i >= p->n_sparse || p->float_bytes != 4)
        return hki_fail(HK_E_NOT_FOUND,
                        "there is no sparse gradient number %zu", i);
    const hki_plan_sparse *sp = &p->sparse[i];
    const hki_sparse_stage none = {0}, *to = s->apart ? &s->sparse[i] : &none;
    const int64_t dim = sp->entry->shape.dim[1];
    const void *count, *indices, *rows;
    int64_t n;
    HKI_TRY(hki_session_look(s, sp->count, sizeof n, &n, &count));
    n = *(const int64_t *)count;
    HKI_TRY(hki_session_look(s, sp->indices, (size_t)n * sizeof(int64_t),
                             to->indices, &indices));
    HKI_TRY(hki_session_look(s, sp->rows, (size_t)(n * dim) * sizeof(float),
                             to->rows, &rows));
    *out = (hk_sparse_grad){.entry = sp->entry,
                            .count = n,
                            .dim = dim,
                            .indices = indices,
                            .rows = rows,
                            .unique = 1};
    return HK_OK;
}

static hk_status read_all(hk_session *s, size_t n) {
    const hki_backend *const be = s->plan->backend;
    const hki_read *const r = s->sparse_reads;
    if (be->read_many != NULL)
        return be->read_many(s->queue, r, n);
    for (size_t i = 0; i < n; i++)
        HKI_TRY(be->read(s->queue, r[i].to, r[i].from, r[i].bytes));
    return HK_OK;
}

hk_status hki_session_sparse_indices(hk_session *s, hk_sparse_grad *out) {
    const size_t n = s->plan->n_sparse;
    for (size_t i = 0; i < n; i++) {
        const hki_plan_sparse *const sp = &s->plan->sparse[i];
        hki_sparse_stage *const to = &s->sparse[i];
        s->sparse_reads[2 * i] = (hki_read){
            &to->count, hki_session_loc(s, sp->count), sizeof to->count};
        s->sparse_reads[2 * i + 1] =
            (hki_read){to->indices, hki_session_loc(s, sp->indices),
                       (size_t)sp->capacity * sizeof(int64_t)};
    }
    HKI_TRY(read_all(s, 2 * n));
    for (size_t i = 0; i < n; i++) {
        out[i].count = s->sparse[i].count;
        out[i].indices = s->sparse[i].indices;
    }
    return HK_OK;
}

// Elsewhere: their sizes, then what there is of them.
static hk_status read_sparse(hk_session *s, hk_sparse_grad *out) {
    const hk_plan *p = s->plan;
    for (size_t i = 0; i < p->n_sparse; i++)
        s->sparse_reads[i] =
            (hki_read){&s->sparse[i].count,
                       hki_session_loc(s, p->sparse[i].count), sizeof(int64_t)};
    HKI_TRY(read_all(s, p->n_sparse));
    for (size_t i = 0; i < p->n_sparse; i++) {
        const hki_plan_sparse *const sp = &p->sparse[i];
        const hki_sparse_stage *const to = &s->sparse[i];
        const size_t n = (size_t)to->count;
        const int64_t dim = sp->entry->shape.dim[1];
        s->sparse_reads[2 * i] = (hki_read){
            to->indices, hki_session_loc(s, sp->indices), n * sizeof(int64_t)};
        s->sparse_reads[2 * i + 1] =
            (hki_read){to->rows, hki_session_loc(s, sp->rows),
                       n * (size_t)dim * sizeof(float)};
        out[i] = (hk_sparse_grad){.entry = sp->entry,
                                  .count = to->count,
                                  .dim = dim,
                                  .indices = to->indices,
                                  .rows = to->rows,
                                  .unique = 1};
    }
    return read_all(s, 2 * p->n_sparse);
}

hk_status hki_session_sparse_grads(hk_session *s, hk_sparse_grad *out) {
    if (s->apart && s->plan->n_sparse > 0)
        return read_sparse(s, out);
    for (size_t i = 0; i < s->plan->n_sparse; i++)
        HKI_TRY(hk_session_sparse_grad(s, i, &out[i]));
    return HK_OK;
}

static const void *address(const hk_session *s, hki_value_place at) {
    const hki_loc l = hki_session_loc(s, at);
    return (const char *)s->plan->backend->buffer_address(l.buffer) + l.offset;
}

void hki_session_sparse_away(const hk_session *s, hk_sparse_grad *out,
                             hki_rows_away *away) {
    for (size_t i = 0; i < s->plan->n_sparse; i++) {
        const hki_plan_sparse *const sp = &s->plan->sparse[i];
        out[i] = (hk_sparse_grad){
            .entry = sp->entry, .dim = sp->entry->shape.dim[1], .unique = 1};
        away[i] = (hki_rows_away){.indices = address(s, sp->indices),
                                  .rows = address(s, sp->rows),
                                  .count = address(s, sp->count),
                                  .most = sp->capacity};
    }
}
