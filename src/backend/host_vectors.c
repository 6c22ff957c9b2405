// host_vectors.c - the table of vectors for host memory: a team of threads over
// the kernels of one instruction-set level.
//
// Threads share the floats of the active runs as if these lay end to end, cut
// at multiples of 16: the split changes with the number of threads, the bits
// do not, since every element is computed from itself alone. Norms are summed
// over fixed chunks.
#include "backend/vector.h"

// A pass over n floats, for a team: parts begin at multiples of 16 floats.
static hki_work work_of(int64_t n) {
    return (hki_work){.items = n, .cost = 1, .align = HKI_ALIGN_FLOATS};
}

hk_status hki_place_home(hki_place *p, hk_isa isa, uint32_t threads,
                         const char *what) {
    HKI_TRY(hki_isa_resolve(what, isa, &isa));
    *p = (hki_place){.ops = &hki_vector_ops_host,
                     .k = HKI_ISA_PICK(isa, hki_update_kernels_table),
                     .ek = HKI_ISA_PICK(isa, hki_exchange_kernels_table)};
    return hki_team_threads(what, threads, &p->threads);
}

hk_status hki_update_kernels_pick(hk_isa isa, const char *what,
                                  const hki_update_kernels **out) {
    HKI_TRY(hki_isa_resolve(what, isa, &isa));
    *out = HKI_ISA_PICK(isa, hki_update_kernels_table);
    return HK_OK;
}

hk_status hki_exchange_kernels_pick(hk_isa isa, const char *what,
                                    const hki_exchange_kernels **out) {
    HKI_TRY(hki_isa_resolve(what, isa, &isa));
    *out = HKI_ISA_PICK(isa, hki_exchange_kernels_table);
    return HK_OK;
}

// ---- chunks -----------------------------------------------------------------

// The pieces of one entry, appended when out is not NULL; returns how many.
static size_t cut(const hk_entry *e, size_t index, hki_chunk *out) {
    size_t n = 0;
    const int64_t end = e->offset + e->count;
    for (int64_t at = e->offset; at < end; at += HKI_CHUNK_FLOATS, n++)
        if (out != NULL)
            out[n] =
                (hki_chunk){at, HKI_MIN(at + HKI_CHUNK_FLOATS, end), index};
    return n;
}

hk_status hki_chunks_create(const hk_layout *l, size_t first, size_t last,
                            hki_chunk **out, size_t *count) {
    size_t n = 0;
    for (size_t i = first; i < last; i++)
        n += cut(hk_layout_entry(l, i), i, NULL);
    HKI_TRY(hki_alloc_array(n, sizeof **out, out));
    *count = n;
    n = 0;
    for (size_t i = first; i < last; i++)
        n += cut(hk_layout_entry(l, i), i, *out + n);
    return HK_OK;
}

typedef void (*chunk_fn)(const hki_place *p, const void *job,
                         const hki_chunk *c, size_t i);

typedef struct chunk_run {
    const hki_place *p;
    const hki_chunk *chunks;
    size_t n;
    chunk_fn fn;
    const void *job;
} chunk_run;

// A part takes the chunks that begin inside its share of the floats.
static void run_chunks(const void *args, int64_t begin, int64_t end, int part) {
    const chunk_run *const r = args;
    (void)part;
    int64_t at = 0;
    for (size_t i = 0; i < r->n && at < end; i++) {
        if (at >= begin)
            r->fn(r->p, r->job, &r->chunks[i], i);
        at += r->chunks[i].end - r->chunks[i].begin;
    }
}

// Calls fn for every chunk, split over threads.
static void for_chunks(const hki_place *p, const hki_chunk *chunks, size_t n,
                       chunk_fn fn, const void *job) {
    const chunk_run r = {p, chunks, n, fn, job};
    int64_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += chunks[i].end - chunks[i].begin;
    const hki_work w = work_of(total);
    hki_team_run((int)p->threads, &w, run_chunks, &r);
}

// ---- update: element-wise rules ---------------------------------------------

typedef struct update_call {
    const hki_place *p;
    const hki_update_job *j;
    const hki_update_rule *rule;
    int parts; // of the pass
} update_call;

static hki_update update_at(const hki_update_job *j, int64_t at, const float *g,
                            const float *c, bool averaged) {
    hki_update u = {.x = j->x + at, .g = g, .c = c, .first = at};
    const int64_t bytes = j->rule == HKI_K_ADAM_BF16 ? 2 : 4; // of a slot's
    for (size_t i = 0; i < HKI_MAX_SLOTS; i++)
        if (j->s[i] != NULL)
            u.s[i] = (float *)(void *)((char *)j->s[i] + at * bytes);
    if (averaged && j->ema != NULL)
        u.ema = j->ema + at;
    return u;
}

// The part of a run that the job covers; returns its size.
static int64_t run_share(const hki_update_job *j, const hki_update_run *r,
                         int64_t *begin) {
    *begin = HKI_MAX(r->begin, j->begin);
    return HKI_MAX(HKI_MIN(r->end, j->end) - *begin, 0);
}

static int64_t run_floats(const hki_update_job *j) {
    int64_t n = 0, begin;
    for (size_t i = 0; i < j->n_runs; i++)
        n += run_share(j, &j->runs[i], &begin);
    return n;
}

static void update_dense(const update_call *a, int part) {
    const hki_update_job *const j = a->j;
    const hki_work w = work_of(run_floats(j));
    const int64_t lo = hki_team_begin(&w, part, a->parts);
    const int64_t hi = hki_team_begin(&w, part + 1, a->parts);
    int64_t at = 0, begin;
    for (size_t i = 0; i < j->n_runs && at < hi; i++) {
        const int64_t size = run_share(j, &j->runs[i], &begin);
        const int64_t from = HKI_MAX(lo - at, 0), to = HKI_MIN(hi - at, size);
        if (from < to) {
            const hki_update u = update_at(j, begin + from, j->g + begin + from,
                                           j->c[j->runs[i].decay], true);
            a->rule->dense(&u, to - from);
        }
        at += size;
    }
}

// Gradient of the rows that a sparse gradient does not name.
#define ZEROS 4096
static const float zeros[ZEROS];

// Tables are averaged on their own, every row.
static void update_untouched(const update_call *a, int64_t at, int64_t n,
                             const float *c) {
    for (int64_t i = 0; i < n; i += ZEROS) {
        const hki_update u = update_at(a->j, at + i, zeros, c, false);
        a->rule->dense(&u, HKI_MIN(n - i, ZEROS));
    }
}

// Rows [first, last) of a table, those without a gradient too.
static void update_all_rows(const update_call *a, const hki_table_rows *t,
                            int64_t first, int64_t last) {
    const float *const c = a->j->c[!a->j->skip[t->entry]];
    const int64_t dim = t->dim;
    int64_t idle = first; // rows from here on wait for update_untouched
    for (int64_t row = first; row < last; row++) {
        if (t->mark[row] >> 32 != t->epoch)
            continue;
        const int64_t at = (int64_t)(t->mark[row] & UINT32_MAX);
        update_untouched(a, t->offset + idle * dim, (row - idle) * dim, c);
        const hki_update u = update_at(a->j, t->offset + row * dim,
                                       t->rows + at * dim, c, false);
        a->rule->dense(&u, dim);
        idle = row + 1;
    }
    update_untouched(a, t->offset + idle * dim, (last - idle) * dim, c);
}

static void update_table(const update_call *a, const hki_table_rows *t,
                         int part) {
    if (!t->active)
        return;
    // A part's share of whole rows.
    const hki_work w = {.items = t->all ? t->n_rows : t->count};
    const int64_t lo = hki_team_begin(&w, part, a->parts);
    const int64_t hi = hki_team_begin(&w, part + 1, a->parts);
    if (t->all) {
        update_all_rows(a, t, lo, hi);
        return;
    }
    const hki_update u = update_at(a->j, t->offset, t->rows + lo * t->dim,
                                   a->j->c[!a->j->skip[t->entry]], false);
    a->rule->rows(&u, t->indices + lo, hi - lo, t->dim);
}

// Part number `part` of the dense range and of every table.
static void update_part(const void *args, int64_t begin, int64_t end,
                        int part) {
    const update_call *const a = args;
    (void)begin;
    (void)end;
    update_dense(a, part);
    for (size_t i = 0; i < a->j->n_tables; i++)
        update_table(a, &a->j->tables[i], part);
}

static hk_status update(const hki_place *p, const hki_update_job *j) {
    int64_t n = run_floats(j);
    for (size_t i = 0; i < j->n_tables; i++) {
        const hki_table_rows *const t = &j->tables[i];
        if (t->active)
            n += (t->all ? t->n_rows : t->count) * t->dim;
    }
    const hki_work w = work_of(n);
    const update_call a = {.p = p,
                           .j = j,
                           .rule = &p->k->rule[j->rule],
                           .parts = hki_team_parts((int)p->threads, &w)};
    hki_team_run((int)p->threads, &w, update_part, &a);
    return HK_OK;
}

// ---- update: rules with norms per tensor ------------------------------------

static bool takes_chunk(const hki_update_job *j, const hki_chunk *c) {
    return j->active[c->entry] && c->begin >= j->begin && c->end <= j->end;
}

static void measure_at(const hki_place *p, const hki_update_job *j, int64_t at,
                       const float *g, int64_t n, const float *c,
                       double sum[2]) {
    const hki_update u = update_at(j, at, g, c, false);
    if (j->rule == HKI_K_LAMB) {
        p->k->lamb_moments(&u, n, sum);
        return;
    }
    const double scale = c[HKI_C_SCALE];
    sum[0] = p->k->sum_squares(u.x, n);
    sum[1] = p->k->sum_squares(g, n) * scale * scale;
}

static void measure_chunk(const hki_place *p, const void *job,
                          const hki_chunk *c, size_t i) {
    const hki_update_job *const j = job;
    if (takes_chunk(j, c))
        measure_at(p, j, c->begin, j->g + c->begin, c->end - c->begin,
                   j->c[!j->skip[c->entry]], j->sums[i]);
}

// The touched rows of a table count as one tensor.
static void measure_table(const hki_place *p, const hki_update_job *j,
                          const hki_table_rows *t, double sum[2]) {
    sum[0] = sum[1] = 0;
    for (int64_t i = 0; t->active && i < t->count; i++) {
        double row[2];
        measure_at(p, j, t->offset + t->indices[i] * t->dim,
                   t->rows + i * t->dim, t->dim, j->c[!j->skip[t->entry]], row);
        sum[0] += row[0];
        sum[1] += row[1];
    }
}

static hk_status measure(const hki_place *p, const hki_update_job *j) {
    if (j->begin < j->end)
        for_chunks(p, j->chunks, j->n_chunks, measure_chunk, j);
    for (size_t i = 0; i < j->n_tables; i++)
        measure_table(p, j, &j->tables[i], j->table_sums[i]);
    return HK_OK;
}

// Applies the kernel to n elements with a rate of its own.
static void move_at(const hki_place *p, const hki_update_job *j, int64_t at,
                    const float *g, int64_t n, const float *c, float rate,
                    bool averaged) {
    float own[HKI_N_COEFS];
    memcpy(own, c, sizeof own);
    own[HKI_C_RATE] = rate;
    const hki_update u = update_at(j, at, g, own, averaged);
    p->k->rule[j->rule].dense(&u, n);
}

static void move_chunk(const hki_place *p, const void *job, const hki_chunk *c,
                       size_t i) {
    const hki_update_job *const j = job;
    (void)i;
    if (takes_chunk(j, c))
        move_at(p, j, c->begin, j->g + c->begin, c->end - c->begin,
                j->c[!j->skip[c->entry]], j->rates[c->entry], true);
}

static void move_table(const hki_place *p, const hki_update_job *j,
                       const hki_table_rows *t, float rate) {
    for (int64_t i = 0; t->active && i < t->count; i++)
        move_at(p, j, t->offset + t->indices[i] * t->dim, t->rows + i * t->dim,
                t->dim, j->c[!j->skip[t->entry]], rate, false);
}

static hk_status move(const hki_place *p, const hki_update_job *j) {
    if (j->begin < j->end)
        for_chunks(p, j->chunks, j->n_chunks, move_chunk, j);
    for (size_t i = 0; i < j->n_tables; i++)
        move_table(p, j, &j->tables[i], j->table_rates[i]);
    return HK_OK;
}

// ---- passes -----------------------------------------------------------------

static bool covers(const hki_vector_pass *a, const hki_chunk *c) {
    return c->begin >= a->begin && c->begin < a->end &&
           (a->only == NULL || a->only[c->entry]);
}

static void norm_chunk(const hki_place *p, const void *job, const hki_chunk *c,
                       size_t i) {
    const hki_vector_pass *const a = job;
    a->sums[i] = covers(a, c)
                     ? p->k->sum_squares(a->src + c->begin, c->end - c->begin)
                     : 0;
}

static void clip_chunk(const hki_place *p, const void *job, const hki_chunk *c,
                       size_t i) {
    const hki_vector_pass *const a = job;
    (void)i;
    if (!covers(a, c))
        return;
    const float f = a->factors != NULL ? a->factors[c->entry] : 1;
    p->k->clip(a->dst + c->begin, a->src + c->begin, a->scale * f, a->low,
               a->high, c->end - c->begin);
}

static void add_chunk(const hki_place *p, const void *job, const hki_chunk *c,
                      size_t i) {
    const hki_vector_pass *const a = job;
    (void)i;
    if (covers(a, c))
        p->k->add(a->dst + c->begin, a->src + c->begin, a->scale,
                  c->end - c->begin);
}

static void average_chunk(const hki_place *p, const void *job,
                          const hki_chunk *c, size_t i) {
    const hki_vector_pass *const a = job;
    const float step = a->factors[c->entry];
    float *const to = a->dst + c->begin;
    const float *const from = a->src + c->begin;
    const int64_t n = c->end - c->begin;
    (void)i;
    if (!covers(a, c) || step < 0)
        return;
    if (step == 1)
        memcpy(to, from, (size_t)n * sizeof *to);
    else
        p->k->average(to, from, step, n);
}

static hk_status norms(const hki_place *p, const hki_vector_pass *a) {
    for_chunks(p, a->chunks, a->n_chunks, norm_chunk, a);
    return HK_OK;
}

static hk_status clip(const hki_place *p, const hki_vector_pass *a) {
    for_chunks(p, a->chunks, a->n_chunks, clip_chunk, a);
    return HK_OK;
}

static hk_status add(const hki_place *p, const hki_vector_pass *a) {
    for_chunks(p, a->chunks, a->n_chunks, add_chunk, a);
    return HK_OK;
}

static hk_status average(const hki_place *p, const hki_vector_pass *a) {
    for_chunks(p, a->chunks, a->n_chunks, average_chunk, a);
    return HK_OK;
}

// ---- a worker and its center ------------------------------------------------

static hk_status pull(const hki_place *p, float *g, const float *x,
                      const float *view, float a, int64_t n) {
    p->ek->pull(g, x, view, a, n);
    return HK_OK;
}

static hk_status accumulate(const hki_place *p, float *y, const float *g,
                            float a, int64_t n) {
    p->ek->accumulate(y, g, a, n);
    return HK_OK;
}

static hk_status accumulate_rows(const hki_place *p, float *y,
                                 const hki_table_rows *t, float a) {
    for (int64_t i = 0; i < t->count; i++)
        p->ek->accumulate(y + t->offset + t->indices[i] * t->dim,
                          t->rows + i * t->dim, a, t->dim);
    return HK_OK;
}

static hk_status subtract(const hki_place *p, float *x, const float *d,
                          int64_t n) {
    p->ek->subtract(x, d, n);
    return HK_OK;
}

static hk_status copy(const hki_place *p, float *dst, const float *src,
                      int64_t n) {
    (void)p;
    if (n > 0)
        memcpy(dst, src, (size_t)n * sizeof *dst);
    return HK_OK;
}

const hki_vector_ops hki_vector_ops_host = {
    .update = update,
    .measure = measure,
    .move = move,
    .norms = norms,
    .clip = clip,
    .add = add,
    .average = average,
    .pull = pull,
    .accumulate = accumulate,
    .accumulate_rows = accumulate_rows,
    .subtract = subtract,
    .copy = copy,
};
