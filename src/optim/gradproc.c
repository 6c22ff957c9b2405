// gradproc.c - what happens to gradients between the backward pass and the
// optimizer.
//
// Scaling and the global norm cost no pass that writes: they end up in the
// scale of the outgoing view. Clipping by value or by tensor writes a buffer
// of its own, and so does accumulation; the caller's gradients are never
// changed.
//
// Saved, little-endian: "HKGRAD01" | u64 layout fingerprint | u32
// accumulate_steps | u32 done | u64 n_dense | n_dense f32 | per table: u64
// count | indices u64... | rows f32... | u64 hash.
#include "optim/optim.h"
#include <math.h>

struct hk_gradproc {
    hk_layout *layout;
    hk_gradproc_options opt;
    const hki_optim_kernels *k;
    uint32_t threads;
    float *buffer; // n_train floats; NULL when nothing is written
    hki_chunk *chunks;
    size_t n_chunks;
    double *sums;   // per chunk
    float *factors; // per trainable entry
    hki_tables tables;
    unsigned char *present; // per table: has a gradient
    unsigned char *mask;    // per trainable entry: has one in the sum
    size_t n_entries;       // trainable ones
    hk_sparse_grad *sparse; // outgoing, one per table
    uint32_t done;          // accumulated so far
    int64_t n_dense;        // of what was accumulated
    double norm;
};

static const char magic[8] = {'H', 'K', 'G', 'R', 'A', 'D', '0', '1'};
static const char what[] = "gradients";

static const hk_gradproc_options defaults = {
    .struct_size = sizeof(hk_gradproc_options),
    .scale = 1,
    .accumulate_steps = 1,
    .accumulate_mean = 1,
};

HKI_OPTIONS_FROM(hk_gradproc_options, isa, defaults)

// ---- create -----------------------------------------------------------------

void hk_gradproc_destroy(hk_gradproc *p) {
    if (p == NULL)
        return;
    hki_free(p->buffer);
    hki_free(p->chunks);
    hki_free(p->sums);
    hki_free(p->factors);
    hki_free(p->present);
    hki_free(p->mask);
    hki_free(p->sparse);
    hki_tables_deinit(&p->tables);
    hk_layout_release(p->layout);
    hki_free(p);
}

static hk_status check_options(const hk_gradproc_options *o) {
    const struct {
        const char *name;
        double v;
        bool any_sign;
    } f[] = {{"scale", o->scale, true},
             {"clip_value", o->clip_value, false},
             {"clip_norm", o->clip_norm, false},
             {"clip_global_norm", o->clip_global_norm, false}};
    for (size_t i = 0; i < HKI_COUNT(f); i++) {
        if (!isfinite(f[i].v))
            return hki_fail(HK_E_NOT_FINITE, "%s: %s is %g", what, f[i].name,
                            f[i].v);
        if (!f[i].any_sign && f[i].v < 0)
            return hki_fail(HK_E_INVALID_ARG, "%s: %s is %g, below 0", what,
                            f[i].name, f[i].v);
    }
    if (o->accumulate_steps == 0 || o->accumulate_mean > 1)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: accumulate_steps is %u, accumulate_mean %u", what,
                        o->accumulate_steps, o->accumulate_mean);
    return HK_OK;
}

static bool writes(const hk_gradproc *p) {
    return p->opt.accumulate_steps > 1 || p->opt.clip_value > 0 ||
           p->opt.clip_norm > 0;
}

static hk_status build(hk_gradproc *p) {
    const hk_gradproc_options *const o = &p->opt;
    const hk_entry *e;
    while ((e = hk_layout_entry(p->layout, p->n_entries)) != NULL &&
           e->kind == HK_TRAINABLE)
        p->n_entries++;
    const size_t n = p->n_entries;
    HKI_TRY(hki_optim_kernels_pick(o->isa, what, &p->k));
    HKI_TRY(hki_team_threads(what, o->threads, &p->threads));
    HKI_TRY(hki_tables_init(&p->tables, p->layout));
    HKI_TRY(hki_zalloc_array(p->tables.count, 1, &p->present));
    HKI_TRY(hki_zalloc_array(p->tables.count, sizeof *p->sparse, &p->sparse));
    HKI_TRY(hki_chunks_create(p->layout, 0, n, &p->chunks, &p->n_chunks));
    HKI_TRY(hki_alloc_array(p->n_chunks, sizeof *p->sums, &p->sums));
    HKI_TRY(hki_alloc_array(n, sizeof *p->factors, &p->factors));
    HKI_TRY(hki_zalloc_array(n, 1, &p->mask));
    if (writes(p))
        HKI_TRY(hki_optim_floats(hki_layout_train(p->layout), 0, &p->buffer));
    return HK_OK;
}

hk_status hk_gradproc_create(const hk_gradproc_options *opt, hk_layout *layout,
                             hk_gradproc **out) {
    hk_gradproc_options o = defaults;
    if (layout == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: layout or out is NULL", what);
    HKI_TRY(hki_options_copy(&o, sizeof o, opt, what));
    HKI_TRY(check_options(&o));
    hk_gradproc *p;
    HKI_TRY(hki_zalloc_array(1, sizeof *p, &p));
    p->opt = o;
    p->layout = hk_layout_retain(layout);
    const hk_status s = build(p);
    if (s != HK_OK) {
        hk_gradproc_destroy(p);
        return s;
    }
    *out = p;
    return HK_OK;
}

double hk_gradproc_norm(const hk_gradproc *p) {
    return p == NULL ? (double)NAN : p->norm;
}

// ---- passes over the dense part -------------------------------------------

typedef struct pass {
    hk_gradproc *p;
    const float *src;
    int64_t end; // chunks from here on have no dense gradient
    float scale, low, high;
    const float *factors; // NULL: none
} pass;

static void clip_chunk(void *arg, const hki_chunk *c, size_t i) {
    const pass *const a = arg;
    (void)i;
    if (c->begin >= a->end)
        return;
    const float f = a->factors != NULL ? a->factors[c->entry] : 1;
    a->p->k->clip(a->p->buffer + c->begin, a->src + c->begin, a->scale * f,
                  a->low, a->high, c->end - c->begin);
}

static void add_chunk(void *arg, const hki_chunk *c, size_t i) {
    const pass *const a = arg;
    (void)i;
    if (c->begin < a->end)
        a->p->k->add(a->p->buffer + c->begin, a->src + c->begin, a->scale,
                     c->end - c->begin);
}

static void sum_chunk(void *arg, const hki_chunk *c, size_t i) {
    const pass *const a = arg;
    a->p->sums[i] = c->begin < a->end ? a->p->k->sum_squares(a->src + c->begin,
                                                             c->end - c->begin)
                                      : 0;
}

static void run(pass *a, hki_chunk_fn fn) {
    if (a->end > 0)
        hki_chunks_run(a->p->chunks, a->p->n_chunks, a->p->threads, fn, a);
}

// ---- tables ---------------------------------------------------------------

// The outgoing sparse gradient of a table that was gathered into its set.
static void show_set(hk_gradproc *p, size_t t) {
    const hki_rowset *const s = &p->tables.set[t];
    p->sparse[t] = (hk_sparse_grad){
        .entry = hk_layout_entry(p->layout, p->tables.entry[t]),
        .count = s->count,
        .dim = s->dim,
        .indices = s->indices,
        .rows = s->rows,
        .unique = 1};
}

// Checks every sparse gradient and notes which tables have one. Rows are
// gathered (copied, repeated ones summed) when `gather` is set or an index
// occurs twice; accumulation adds to what is there.
static hk_status take_sparse(hk_gradproc *p, const hk_grad_view *in,
                             bool gather, bool accumulate) {
    size_t table = 0;
    for (size_t i = 0; i < in->n_sparse; i++) {
        const hk_sparse_grad *const g = &in->sparse[i];
        HKI_TRY(hki_tables_find(&p->tables, p->layout, g, what, &table));
        HKI_TRY(hki_rowset_check(&p->tables.set[table], g->entry->name,
                                 g->indices, g->count));
        for (size_t j = 0; j < i; j++)
            if (strcmp(in->sparse[j].entry->name, g->entry->name) == 0)
                return hki_fail(HK_E_EXISTS, "%s: two sparse gradients for %s",
                                what, g->entry->name);
        if (accumulate) // room first: a failure must not leave half a sum
            HKI_TRY(hki_rowset_reserve(&p->tables.set[table],
                                       p->tables.set[table].count + g->count));
    }
    for (size_t i = 0; i < in->n_sparse; i++) {
        const hk_sparse_grad *const g = &in->sparse[i];
        HKI_TRY(hki_tables_find(&p->tables, p->layout, g, what, &table));
        hki_rowset *const set = &p->tables.set[table];
        p->present[table] = 1;
        p->sparse[table] = *g;
        if (!accumulate && hki_rowset_mark(set, g->indices, g->count) &&
            !gather)
            continue;
        if (!accumulate)
            hki_rowset_clear(set);
        HKI_TRY(hki_rowset_add(set, g->indices, g->rows,
                               accumulate ? (float)in->scale : 1, g->count));
        show_set(p, table);
    }
    return HK_OK;
}

static double table_squares(const hk_gradproc *p, size_t t) {
    return p->present[t]
               ? p->k->sum_squares(p->sparse[t].rows,
                                   p->sparse[t].count * p->sparse[t].dim)
               : 0;
}

static void clip_table(hk_gradproc *p, size_t t, double scale, double limit) {
    hki_rowset *const s = &p->tables.set[t];
    if (p->present[t])
        p->k->clip(s->rows, s->rows, (float)scale, (float)-limit, (float)limit,
                   s->count * s->dim);
}

// ---- clipping -------------------------------------------------------------

static hk_status check_norm(const hk_gradproc *p, size_t entry, double norm) {
    if (isfinite(norm))
        return HK_OK;
    const hk_entry *const e = hk_layout_entry(p->layout, entry);
    return hki_fail(HK_E_NOT_FINITE, "%s: the norm of %s is %g", what,
                    e != NULL ? e->name : "all gradients", norm);
}

static void clip_by_value(hk_gradproc *p, hk_grad_view *v) {
    const double limit = p->opt.clip_value;
    pass a = {
        p,   v->dense, v->n_dense, (float)v->scale, (float)-limit, (float)limit,
        NULL};
    run(&a, clip_chunk);
    for (size_t t = 0; t < p->tables.count; t++)
        clip_table(p, t, v->scale, limit);
    v->dense = p->buffer;
    v->scale = 1;
}

// g clip / max(|g|, clip) for one tensor.
static double norm_factor(double clip, double norm) {
    return clip / fmax(norm, clip);
}

static hk_status clip_by_norm(hk_gradproc *p, hk_grad_view *v) {
    pass a = {p,         v->dense, v->n_dense, (float)v->scale,
              -INFINITY, INFINITY, p->factors};
    const double clip = p->opt.clip_norm, scale = fabs(v->scale);
    run(&a, sum_chunk);
    for (size_t i = 0; v->n_dense > 0 && i < p->n_chunks;) {
        const size_t entry = p->chunks[i].entry;
        double sum = 0;
        for (; i < p->n_chunks && p->chunks[i].entry == entry; i++)
            sum += p->sums[i];
        const double norm = sqrt(sum) * scale;
        HKI_TRY(check_norm(p, entry, norm));
        p->factors[entry] = (float)norm_factor(clip, norm);
    }
    for (size_t t = 0; t < p->tables.count; t++)
        HKI_TRY(check_norm(p, p->tables.entry[t],
                           sqrt(table_squares(p, t)) * scale));
    run(&a, clip_chunk);
    for (size_t t = 0; t < p->tables.count; t++) {
        const double norm = sqrt(table_squares(p, t)) * scale;
        clip_table(p, t, v->scale * norm_factor(clip, norm), (double)INFINITY);
    }
    v->dense = p->buffer;
    v->scale = 1;
    return HK_OK;
}

static hk_status clip_by_global_norm(hk_gradproc *p, hk_grad_view *v) {
    pass a = {.p = p, .src = v->dense, .end = v->n_dense};
    double sum = 0;
    run(&a, sum_chunk);
    for (size_t i = 0; v->n_dense > 0 && i < p->n_chunks; i++)
        sum += p->sums[i];
    for (size_t t = 0; t < p->tables.count; t++)
        sum += table_squares(p, t);
    const double norm = sqrt(sum) * fabs(v->scale);
    HKI_TRY(check_norm(p, SIZE_MAX, norm));
    p->norm = norm;
    v->scale *= norm_factor(p->opt.clip_global_norm, norm);
    return HK_OK;
}

static hk_status clip(hk_gradproc *p, hk_grad_view *v) {
    if (p->opt.clip_value > 0)
        clip_by_value(p, v);
    if (p->opt.clip_norm > 0)
        HKI_TRY(clip_by_norm(p, v));
    return p->opt.clip_global_norm > 0 ? clip_by_global_norm(p, v) : HK_OK;
}

// ---- run ------------------------------------------------------------------

static void forget(hk_gradproc *p) {
    p->done = 0;
    memset(p->present, 0, p->tables.count);
    memset(p->mask, 0, p->n_entries);
    for (size_t t = 0; t < p->tables.count; t++)
        hki_rowset_clear(&p->tables.set[t]);
}

// Adds one call's gradients to the sum.
static hk_status accumulate(hk_gradproc *p, const hk_grad_view *in) {
    if (p->done > 0 && in->n_dense != p->n_dense)
        return hki_fail(HK_E_SHAPE,
                        "%s: %lld gradients after %lld while accumulating",
                        what, (long long)in->n_dense, (long long)p->n_dense);
    HKI_TRY(take_sparse(p, in, true, true));
    pass a = {p,         in->dense, in->n_dense, (float)in->scale,
              -INFINITY, INFINITY,  NULL};
    run(&a, p->done == 0 ? clip_chunk : add_chunk);
    for (size_t i = 0; i < p->n_entries; i++)
        p->mask[i] |= in->mask == NULL || in->mask[i] != 0;
    p->n_dense = in->n_dense;
    p->done++;
    return HK_OK;
}

// Lists the tables that have a gradient, without gaps.
static size_t gather_tables(hk_gradproc *p) {
    size_t n = 0;
    for (size_t t = 0; t < p->tables.count; t++)
        if (p->present[t])
            p->sparse[n++] = p->sparse[t];
    return n;
}

hk_status hk_gradproc_run(hk_gradproc *p, const hk_grad_view *in,
                          hk_grad_view *out, int *ready) {
    if (p == NULL || out == NULL || ready == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: an argument is NULL", what);
    HKI_TRY(hki_grad_view_check(p->layout, in, what));
    const hk_gradproc_options *const o = &p->opt;
    if (p->done == 0 || p->done == o->accumulate_steps)
        forget(p);
    hk_grad_view v = *in;
    if (o->accumulate_steps > 1) {
        HKI_TRY(accumulate(p, in));
        if (p->done < o->accumulate_steps) {
            *ready = 0;
            return HK_OK;
        }
        v.dense = p->buffer;
        v.mask = p->mask;
        v.scale = o->accumulate_mean ? 1.0 / o->accumulate_steps : 1;
    } else {
        // Norms want every row once, writing wants rows of our own.
        HKI_TRY(
            take_sparse(p, in, o->clip_value > 0 || o->clip_norm > 0, false));
    }
    v.scale *= o->scale;
    const hk_status s = clip(p, &v);
    if (s != HK_OK) {
        forget(p);
        return s;
    }
    v.n_sparse = gather_tables(p);
    v.sparse = p->sparse;
    *out = v;
    *ready = 1;
    return HK_OK;
}

// ---- bytes ----------------------------------------------------------------

// A finished sum is no state: the next call starts over.
static uint32_t pending(const hk_gradproc *p) {
    return p->done < p->opt.accumulate_steps ? p->done : 0;
}

static void write_state(const void *object, hki_writer *w) {
    const hk_gradproc *const p = object;
    const uint32_t done = pending(p);
    const int64_t n = done > 0 ? p->n_dense : 0;
    hki_write_bytes(w, magic, sizeof magic);
    hki_write_u64(w, hki_layout_fingerprint(p->layout));
    hki_write_u32(w, p->opt.accumulate_steps);
    hki_write_u32(w, done);
    hki_write_u64(w, (uint64_t)n);
    hki_write_f32s(w, p->buffer, n);
    for (size_t t = 0; t < p->tables.count; t++) {
        const hki_rowset *const s = &p->tables.set[t];
        const bool has = done > 0 && p->present[t];
        hki_write_u32(w, has);
        if (!has)
            continue;
        hki_write_u64(w, (uint64_t)s->count);
        for (int64_t i = 0; i < s->count; i++)
            hki_write_u64(w, (uint64_t)s->indices[i]);
        hki_write_f32s(w, s->rows, s->count * s->dim);
    }
}

hk_status hk_gradproc_save(const hk_gradproc *p, void *buf, size_t capacity,
                           size_t *size) {
    return hki_save(p, write_state, "gradients: save", buf, capacity, size);
}

// One table of a saved state. With `set` NULL it is only checked.
static bool read_table(hki_reader *r, const hki_rowset *like, hki_rowset *set,
                       bool *has) {
    const uint32_t flag = hki_read_u32(r);
    *has = flag == 1;
    if (flag != 1)
        return r->ok && flag == 0;
    const uint64_t count = hki_read_u64(r);
    if (!r->ok || count > (uint64_t)like->n_rows || count > r->size / 8)
        return false;
    hki_reader rows = *r;
    hki_read_skip(&rows, count * 8);
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t index = hki_read_u64(r);
        if (index >= (uint64_t)like->n_rows)
            return false;
        if (set != NULL) {
            set->indices[i] = (int64_t)index;
            set->mark[index] = (uint64_t)set->epoch << 32 | i;
        }
    }
    const uint64_t floats = count * (uint64_t)like->dim;
    if (floats > rows.size / sizeof(float))
        return false;
    if (set != NULL) {
        hki_read_f32s(&rows, set->rows, (int64_t)floats);
        set->count = (int64_t)count;
    } else {
        hki_read_skip(&rows, floats * sizeof(float));
    }
    *r = rows;
    return r->ok;
}

// Checks a whole saved state; r has passed the magic.
static bool state_fits(const hk_gradproc *p, hki_reader r) {
    const uint64_t fingerprint = hki_read_u64(&r);
    const uint32_t steps = hki_read_u32(&r), done = hki_read_u32(&r);
    const uint64_t n = hki_read_u64(&r);
    if (!r.ok || fingerprint != hki_layout_fingerprint(p->layout) ||
        steps != p->opt.accumulate_steps || done >= steps ||
        (n != 0 &&
         (p->buffer == NULL || (n != (uint64_t)hki_layout_dense(p->layout) &&
                                n != (uint64_t)hki_layout_train(p->layout)))))
        return false;
    hki_read_skip(&r, n * sizeof(float));
    bool has;
    for (size_t t = 0; t < p->tables.count; t++)
        if (!read_table(&r, &p->tables.set[t], NULL, &has))
            return false;
    return r.ok && r.size == 0;
}

// A saved sum does not name its variables: they are those with a value in it.
static void mark_summed(hk_gradproc *p) {
    for (size_t i = 0; i < p->n_entries; i++) {
        const hk_entry *const e = hk_layout_entry(p->layout, i);
        const int64_t end = HKI_MIN(e->offset + e->count, p->n_dense);
        for (int64_t k = e->offset; k < end && !p->mask[i]; k++)
            p->mask[i] = p->buffer[k] != 0;
    }
    for (size_t t = 0; t < p->tables.count; t++)
        p->mask[p->tables.entry[t]] |= p->present[t];
}

hk_status hk_gradproc_restore(hk_gradproc *p, const void *bytes, size_t size) {
    if (p == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: handle is NULL", what);
    hki_reader r;
    HKI_TRY(hki_reader_init(&r, bytes, size, what));
    const unsigned char *const m = hki_read_skip(&r, sizeof magic);
    if (m == NULL || memcmp(m, magic, sizeof magic) != 0 || !state_fits(p, r))
        return hki_fail(HK_E_DATA,
                        "%s: the saved state is malformed or of "
                        "another layout",
                        what);
    for (size_t t = 0; t < p->tables.count; t++) {
        // No table can have more rows than the bytes hold.
        hki_rowset *const set = &p->tables.set[t];
        const size_t row_bytes = 8 + (size_t)set->dim * sizeof(float);
        HKI_TRY(hki_rowset_reserve(set, (int64_t)(size / row_bytes)));
    }
    forget(p);
    hki_read_skip(&r, 12); // fingerprint, accumulate_steps
    p->done = hki_read_u32(&r);
    p->n_dense = (int64_t)hki_read_u64(&r);
    hki_read_f32s(&r, p->buffer, p->n_dense);
    for (size_t t = 0; t < p->tables.count; t++) {
        bool has;
        read_table(&r, &p->tables.set[t], &p->tables.set[t], &has);
        p->present[t] = has;
        if (has)
            show_set(p, t);
    }
    mark_summed(p);
    return HK_OK;
}

void hki_gradproc_forget(hk_gradproc *p) {
    if (p == NULL)
        return;
    forget(p);
    p->done = 0;
}

// ---- plain calls ----------------------------------------------------------

static hk_status plain(const float *g, int64_t n, const hki_optim_kernels **k) {
    if (n < 0 || (g == NULL && n > 0))
        return hki_fail(HK_E_INVALID_ARG, "%s: %lld values, or NULL", what,
                        (long long)n);
    return hki_optim_kernels_pick(HK_ISA_AUTO, what, k);
}

hk_status hk_clip_by_value(float *g, int64_t n, double low, double high) {
    const hki_optim_kernels *k = NULL;
    HKI_TRY(plain(g, n, &k));
    if (!(low <= high))
        return hki_fail(HK_E_INVALID_ARG, "%s: clip to [%g, %g]", what, low,
                        high);
    k->clip(g, g, 1, (float)low, (float)high, n);
    return HK_OK;
}

hk_status hk_clip_by_norm(float *g, int64_t n, double clip_norm, double *norm) {
    const hki_optim_kernels *k = NULL;
    HKI_TRY(plain(g, n, &k));
    if (!(clip_norm > 0) || !isfinite(clip_norm))
        return hki_fail(HK_E_INVALID_ARG, "%s: clip_norm is %g", what,
                        clip_norm);
    const double own = sqrt(k->sum_squares(g, n));
    if (!isfinite(own))
        return hki_fail(HK_E_NOT_FINITE, "%s: the norm is %g", what, own);
    k->scale(g, (float)norm_factor(clip_norm, own), n);
    if (norm != NULL)
        *norm = own;
    return HK_OK;
}

hk_status hk_global_norm(const hk_grad_view *grads, double *norm) {
    const hki_optim_kernels *k = NULL;
    if (grads == NULL || norm == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: an argument is NULL", what);
    HKI_TRY(plain(grads->dense, grads->n_dense, &k));
    if (grads->n_sparse > 0 && grads->sparse == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: sparse is NULL", what);
    double sum = k->sum_squares(grads->dense, grads->n_dense);
    for (size_t i = 0; i < grads->n_sparse; i++) {
        const hk_sparse_grad *const g = &grads->sparse[i];
        int64_t n;
        if (__builtin_mul_overflow(g->count, g->dim, &n))
            return hki_fail(HK_E_OVERFLOW, "%s: %lld rows of %lld", what,
                            (long long)g->count, (long long)g->dim);
        HKI_TRY(plain(g->rows, n, &k));
        sum += k->sum_squares(g->rows, n);
    }
    *norm = sqrt(sum) * fabs(grads->scale);
    return HK_OK;
}
