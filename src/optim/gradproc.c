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
    hki_place home;      // in host memory
    const hki_place *at; // where the buffer is
    hki_vector buffer;   // n_train floats; none when nothing is written
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
    hki_vector_deinit(&p->buffer);
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
            return hki_fail(HK_E_INVALID_ARG,
                            "%s: %s is %g; it has to be at least 0", what,
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
    p->at = &p->home;
    HKI_TRY(hki_place_home(&p->home, o->isa, o->threads, what));
    HKI_TRY(hki_tables_init(&p->tables, p->layout));
    HKI_TRY(hki_zalloc_array(p->tables.count, 1, &p->present));
    HKI_TRY(hki_zalloc_array(p->tables.count, sizeof *p->sparse, &p->sparse));
    HKI_TRY(hki_chunks_create(p->layout, 0, n, &p->chunks, &p->n_chunks));
    HKI_TRY(hki_alloc_array(p->n_chunks, sizeof *p->sums, &p->sums));
    HKI_TRY(hki_alloc_array(n, sizeof *p->factors, &p->factors));
    HKI_TRY(hki_zalloc_array(n, 1, &p->mask));
    if (writes(p))
        HKI_TRY(hki_vector_init(&p->buffer, hki_layout_train(p->layout), 0));
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
    if (s == HK_OK)
        *out = p;
    else
        hk_gradproc_destroy(p);
    return s;
}

double hk_gradproc_norm(const hk_gradproc *p) {
    return p == NULL ? (double)NAN : p->norm;
}

// ---- passes over the dense part -------------------------------------------

// Every pass reads the gradients of g, and those that write put them into the
// buffer.
typedef hk_status (*pass_fn)(const hki_place *p, const hki_vector_pass *a);

static hk_status run(hk_gradproc *p, const hki_grads *g, hki_vector_pass a,
                     bool adds, pass_fn fn) {
    float *src;
    if (g->view.n_dense == 0)
        return HK_OK;
    a.end = g->view.n_dense;
    a.chunks = p->chunks;
    a.n_chunks = p->n_chunks;
    a.sums = p->sums;
    const bool reads = adds || g->dense == &p->buffer;
    if (fn != p->at->ops->norms)
        HKI_TRY(hki_vector_at(&p->buffer, reads ? HKI_TO_CHANGE : HKI_TO_WRITE,
                              &a.dst));
    HKI_TRY(hki_vector_at(g->dense, HKI_TO_READ, &src));
    a.src = src;
    return fn(p->at, &a);
}

// The gradients are in the buffer now.
static void show_buffer(hk_gradproc *p, hki_grads *g) {
    g->dense = &p->buffer;
    g->view.dense = p->buffer.host;
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
                return hki_fail(HK_E_EXISTS,
                                "%s: there are two sparse gradients for %s",
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
               ? p->home.k->sum_squares(p->sparse[t].rows,
                                        p->sparse[t].count * p->sparse[t].dim)
               : 0;
}

static void clip_table(hk_gradproc *p, size_t t, double scale, double limit) {
    hki_rowset *const s = &p->tables.set[t];
    if (p->present[t])
        p->home.k->clip(s->rows, s->rows, (float)scale, (float)-limit,
                        (float)limit, s->count * s->dim);
}

// ---- clipping -------------------------------------------------------------

static hk_status check_norm(const hk_gradproc *p, size_t entry, double norm) {
    if (isfinite(norm))
        return HK_OK;
    const hk_entry *const e = hk_layout_entry(p->layout, entry);
    return hki_fail(HK_E_NOT_FINITE, "%s: the norm of %s is %g", what,
                    e != NULL ? e->name : "all gradients", norm);
}

static hk_status clip_by_value(hk_gradproc *p, hki_grads *g) {
    const double limit = p->opt.clip_value;
    const hki_vector_pass a = {.scale = (float)g->view.scale,
                               .low = (float)-limit,
                               .high = (float)limit};
    HKI_TRY(run(p, g, a, false, p->at->ops->clip));
    for (size_t t = 0; t < p->tables.count; t++)
        clip_table(p, t, g->view.scale, limit);
    show_buffer(p, g);
    g->view.scale = 1;
    return HK_OK;
}

// g clip / max(|g|, clip): a factor for every entry with a dense gradient.
static hk_status set_factors(hk_gradproc *p, const hki_grads *g) {
    const double scale = fabs(g->view.scale);
    HKI_TRY(run(p, g, (hki_vector_pass){0}, false, p->at->ops->norms));
    for (size_t i = 0; g->view.n_dense > 0 && i < p->n_chunks;) {
        const size_t entry = p->chunks[i].entry;
        double sum = 0;
        for (; i < p->n_chunks && p->chunks[i].entry == entry; i++)
            sum += p->sums[i];
        const double norm = sqrt(sum) * scale;
        HKI_TRY(check_norm(p, entry, norm));
        p->factors[entry] = (float)hki_norm_factor(p->opt.clip_norm, norm);
    }
    return HK_OK;
}

static hk_status clip_by_norm(hk_gradproc *p, hki_grads *g) {
    const hki_vector_pass a = {.scale = (float)g->view.scale,
                               .low = -INFINITY,
                               .high = INFINITY,
                               .factors = p->factors};
    const double clip = p->opt.clip_norm, scale = fabs(g->view.scale);
    HKI_TRY(set_factors(p, g));
    for (size_t t = 0; t < p->tables.count; t++)
        HKI_TRY(check_norm(p, p->tables.entry[t],
                           sqrt(table_squares(p, t)) * scale));
    HKI_TRY(run(p, g, a, false, p->at->ops->clip));
    for (size_t t = 0; t < p->tables.count; t++) {
        const double norm = sqrt(table_squares(p, t)) * scale;
        clip_table(p, t, g->view.scale * hki_norm_factor(clip, norm),
                   (double)INFINITY);
    }
    show_buffer(p, g);
    g->view.scale = 1;
    return HK_OK;
}

static hk_status clip_by_global_norm(hk_gradproc *p, hki_grads *g) {
    double sum = 0;
    HKI_TRY(run(p, g, (hki_vector_pass){0}, false, p->at->ops->norms));
    for (size_t i = 0; g->view.n_dense > 0 && i < p->n_chunks; i++)
        sum += p->sums[i];
    for (size_t t = 0; t < p->tables.count; t++)
        sum += table_squares(p, t);
    const double norm = sqrt(sum) * fabs(g->view.scale);
    HKI_TRY(check_norm(p, SIZE_MAX, norm));
    p->norm = norm;
    g->view.scale *= hki_norm_factor(p->opt.clip_global_norm, norm);
    return HK_OK;
}

static hk_status clip(hk_gradproc *p, hki_grads *g) {
    if (p->opt.clip_value > 0)
        HKI_TRY(clip_by_value(p, g));
    if (p->opt.clip_norm > 0)
        HKI_TRY(clip_by_norm(p, g));
    return p->opt.clip_global_norm > 0 ? clip_by_global_norm(p, g) : HK_OK;
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
static hk_status accumulate(hk_gradproc *p, const hki_grads *g) {
    const hk_grad_view *const in = &g->view;
    const bool first = p->done == 0;
    if (p->done > 0 && in->n_dense != p->n_dense)
        return hki_fail(HK_E_SHAPE,
                        "%s: %lld gradients after %lld while accumulating",
                        what, (long long)in->n_dense, (long long)p->n_dense);
    HKI_TRY(take_sparse(p, in, true, true));
    const hki_vector_pass a = {
        .scale = (float)in->scale, .low = -INFINITY, .high = INFINITY};
    HKI_TRY(run(p, g, a, !first, first ? p->at->ops->clip : p->at->ops->add));
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

hk_status hki_gradproc_run(hk_gradproc *p, const hki_grads *in, hki_grads *out,
                           int *ready) {
    HKI_TRY(hki_grad_view_check(p->layout, &in->view, what));
    HKI_TRY(hki_gradproc_follow(p, in->dense->at));
    const hk_gradproc_options *const o = &p->opt;
    if (p->done == 0 || p->done == o->accumulate_steps)
        forget(p);
    hki_grads g = *in;
    if (o->accumulate_steps > 1) {
        HKI_TRY(accumulate(p, in));
        if (p->done < o->accumulate_steps) {
            *ready = 0;
            return HK_OK;
        }
        show_buffer(p, &g);
        g.view.mask = p->mask;
        g.view.scale = o->accumulate_mean ? 1.0 / o->accumulate_steps : 1;
    } else {
        // Norms want every row once, writing wants rows of our own.
        HKI_TRY(take_sparse(p, &in->view, o->clip_value > 0 || o->clip_norm > 0,
                            false));
    }
    g.view.scale *= o->scale;
    const hk_status s = clip(p, &g);
    if (s != HK_OK) {
        forget(p);
        return s;
    }
    g.view.n_sparse = gather_tables(p);
    g.view.sparse = p->sparse;
    *out = g;
    *ready = 1;
    return HK_OK;
}

hk_status hk_gradproc_run(hk_gradproc *p, const hk_grad_view *in,
                          hk_grad_view *out, int *ready) {
    if (p == NULL || out == NULL || ready == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: an argument is NULL", what);
    HKI_TRY(hki_grad_view_check(p->layout, in, what));
    hki_vector dense = HKI_HOST_VECTOR(in->dense, in->n_dense);
    const hki_grads g = {.view = *in, .dense = &dense};
    hki_grads result;
    HKI_TRY(hki_gradproc_run(p, &g, &result, ready));
    if (*ready)
        *out = result.view;
    return HK_OK;
}

hk_status hki_gradproc_follow(hk_gradproc *p, const hki_place *at) {
    const hki_place *const to = at != NULL ? at : &p->home;
    if (p->at == to)
        return HK_OK;
    HKI_TRY(hki_vector_follow(&p->buffer, at));
    p->at = to;
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
    hki_write_f32s(w, p->buffer.host, n);
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

static hk_status open_buffer(hk_gradproc *p, hki_access a) {
    float *host;
    return hki_vector_host(&p->buffer, a, &host);
}

hk_status hk_gradproc_save(const hk_gradproc *p, void *buf, size_t capacity,
                           size_t *size) {
    if (p != NULL)
        HKI_TRY(open_buffer((hk_gradproc *)(uintptr_t)p, HKI_TO_READ));
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
        (n != 0 && (p->buffer.host == NULL ||
                    (n != (uint64_t)hki_layout_dense(p->layout) &&
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
            p->mask[i] = p->buffer.host[k] != 0;
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
    HKI_TRY(open_buffer(p, HKI_TO_WRITE));
    forget(p);
    hki_read_skip(&r, 12); // fingerprint, accumulate_steps
    p->done = hki_read_u32(&r);
    p->n_dense = (int64_t)hki_read_u64(&r);
    hki_read_f32s(&r, p->buffer.host, p->n_dense);
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
