// optimizer_update.c - values and slots move: one parallel region for
// element-wise rules, three passes for rules with norms per tensor.
//
// Threads share the floats of the active runs as if these lay end to end, cut
// at multiples of 16: the split changes with the number of threads, the bits
// do not, since every element is computed from itself alone.
#include "optim/optimizer.h"
#include <math.h>

// ---- update: element-wise rules -------------------------------------------

static hki_update update_at(const hki_optimizer_job *j, int64_t at,
                            const float *g, const float *c) {
    hki_update u = {.x = j->x + at, .g = g, .c = c};
    for (size_t i = 0; i < j->o->n_slots; i++)
        u.s[i] = j->o->values[i] + at;
    if (j->ema != NULL)
        u.ema = j->ema + at;
    return u;
}

// The part of a run that the job covers; returns its size.
static int64_t run_share(const hki_optimizer_job *j, const hki_update_run *r,
                         int64_t *begin) {
    *begin = HKI_MAX(r->begin, j->begin);
    return HKI_MAX(HKI_MIN(r->end, j->end) - *begin, 0);
}

static int64_t run_floats(const hki_optimizer_job *j) {
    int64_t n = 0, begin;
    for (size_t i = 0; i < j->o->n_runs; i++)
        n += run_share(j, &j->o->runs[i], &begin);
    return n;
}

static void update_dense(const hki_optimizer_job *j, int part) {
    const hk_optimizer *const o = j->o;
    const hki_work w = hki_optim_work(run_floats(j));
    const int64_t lo = hki_team_begin(&w, part, j->parts);
    const int64_t hi = hki_team_begin(&w, part + 1, j->parts);
    int64_t at = 0, begin;
    for (size_t i = 0; i < o->n_runs && at < hi; i++) {
        const int64_t size = run_share(j, &o->runs[i], &begin);
        const int64_t from = HKI_MAX(lo - at, 0), to = HKI_MIN(hi - at, size);
        if (from < to) {
            const hki_update u = update_at(j, begin + from, j->g + begin + from,
                                           o->c[o->runs[i].decay]);
            o->kernel->dense(&u, to - from);
        }
        at += size;
    }
}

// Gradient of the rows that a sparse gradient does not name.
#define ZEROS 4096
static const float zeros[ZEROS];

static void update_untouched(const hki_optimizer_job *j, int64_t at, int64_t n,
                             const float *c) {
    for (int64_t i = 0; i < n; i += ZEROS) {
        const hki_update u = update_at(j, at + i, zeros, c);
        j->o->kernel->dense(&u, HKI_MIN(n - i, ZEROS));
    }
}

// Rows [first, last) of a table, those without a gradient too.
static void update_all_rows(const hki_optimizer_job *j, const hki_prepared *p,
                            int64_t first, int64_t last) {
    const hk_optimizer *const o = j->o;
    const float *const c = o->c[!o->skip[p->entry_index]];
    const int64_t dim = p->set->dim;
    int64_t idle = first; // rows from here on wait for update_untouched
    for (int64_t row = first; row < last; row++) {
        const int64_t at = hki_rowset_find(p->set, row);
        if (at < 0)
            continue;
        update_untouched(j, p->entry->offset + idle * dim, (row - idle) * dim,
                         c);
        const hki_update u =
            update_at(j, p->entry->offset + row * dim, p->rows + at * dim, c);
        o->kernel->dense(&u, dim);
        idle = row + 1;
    }
    update_untouched(j, p->entry->offset + idle * dim, (last - idle) * dim, c);
}

static void update_table(const hki_optimizer_job *j, const hki_prepared *p,
                         int part) {
    const hk_optimizer *const o = j->o;
    if (p->entry == NULL)
        return;
    // A part's share of whole rows.
    const hki_work w = {.items = hki_optimizer_all_rows(o) ? p->set->n_rows
                                                           : p->count};
    const int64_t lo = hki_team_begin(&w, part, j->parts);
    const int64_t hi = hki_team_begin(&w, part + 1, j->parts);
    if (hki_optimizer_all_rows(o)) {
        update_all_rows(j, p, lo, hi);
        return;
    }
    const hki_update u =
        update_at(j, p->entry->offset, p->rows + lo * p->set->dim,
                  o->c[!o->skip[p->entry_index]]);
    o->kernel->rows(&u, p->indices + lo, hi - lo, p->set->dim);
}

// Part number `part` of the dense range and of every table.
static void update_part(const void *args, int64_t begin, int64_t end,
                        int part) {
    const hki_optimizer_job *const j = args;
    (void)begin;
    (void)end;
    update_dense(j, part);
    hki_optimizer_job tables = *j;
    tables.ema = NULL; // tables are averaged on their own, every row
    for (size_t i = 0; i < j->o->n_prepared; i++)
        update_table(&tables, &j->o->prepared[i], part);
}

static void update_elements(hki_optimizer_job *j) {
    const hk_optimizer *const o = j->o;
    int64_t n = run_floats(j);
    for (size_t i = 0; i < o->n_prepared; i++) {
        const hki_prepared *const p = &o->prepared[i];
        if (p->entry != NULL)
            n += hki_optimizer_all_rows(o) ? p->entry->count
                                           : p->count * p->set->dim;
    }
    const hki_work w = hki_optim_work(n);
    j->parts = hki_team_parts((int)o->threads, &w);
    hki_team_run((int)o->threads, &w, update_part, j);
}

// ---- update: rules with norms per tensor ----------------------------------

static bool takes_chunk(const hki_optimizer_job *j, const hki_chunk *c) {
    return j->o->active[c->entry] && c->begin >= j->begin && c->end <= j->end;
}

// Squared norms that the trust ratio needs. LARS: of values and gradients;
// LAMB: of values and steps, and the moments move.
static void measure(const hki_optimizer_job *j, int64_t at, const float *g,
                    int64_t n, const float *c, double sum[2]) {
    const hk_optimizer *const o = j->o;
    const hki_update u = update_at(j, at, g, c);
    if (o->rule->kind == HK_OPT_LAMB) {
        o->k->lamb_moments(&u, n, sum);
        return;
    }
    const double scale = c[HKI_C_SCALE];
    sum[0] = o->k->sum_squares(u.x, n);
    sum[1] = o->k->sum_squares(g, n) * scale * scale;
}

static void measure_chunk(void *arg, const hki_chunk *c, size_t i) {
    const hki_optimizer_job *const j = arg;
    if (takes_chunk(j, c))
        measure(j, c->begin, j->g + c->begin, c->end - c->begin,
                j->o->c[!j->o->skip[c->entry]], j->o->sums[i]);
}

// Rate times trust ratio from the two squared norms.
static float trusted_rate(const hk_optimizer *o, const double sum[2],
                          bool skip) {
    const double x = sqrt(sum[0]), other = sqrt(sum[1]);
    if (skip || !(x > 0) || !(other > 0))
        return (float)o->rate;
    const hk_optimizer_options *const h = &o->opt;
    const double trust =
        o->rule->kind == HK_OPT_LAMB
            ? x / other
            : h->eeta * x / (other + h->weight_decay * x + h->epsilon);
    return (float)(o->rate * trust);
}

static void set_rates(const hki_optimizer_job *j) {
    const hk_optimizer *const o = j->o;
    for (size_t i = 0; i < o->n_chunks;) {
        const size_t entry = o->chunks[i].entry;
        double sum[2] = {0};
        const bool takes = takes_chunk(j, &o->chunks[i]);
        for (; i < o->n_chunks && o->chunks[i].entry == entry; i++)
            for (int s = 0; takes && s < 2; s++)
                sum[s] += o->sums[i][s];
        o->rates[entry] = trusted_rate(o, sum, o->skip[entry]);
    }
}

// Applies the kernel to n elements with a rate of its own.
static void move(const hki_optimizer_job *j, int64_t at, const float *g,
                 int64_t n, const float *c, float rate) {
    float own[HKI_N_COEFS];
    memcpy(own, c, sizeof own);
    own[HKI_C_RATE] = rate;
    const hki_update u = update_at(j, at, g, own);
    j->o->kernel->dense(&u, n);
}

static void move_chunk(void *arg, const hki_chunk *c, size_t i) {
    const hki_optimizer_job *const j = arg;
    (void)i;
    if (takes_chunk(j, c))
        move(j, c->begin, j->g + c->begin, c->end - c->begin,
             j->o->c[!j->o->skip[c->entry]], j->o->rates[c->entry]);
}

// The touched rows of a table count as one tensor.
static void update_table_per_entry(const hki_optimizer_job *j,
                                   const hki_prepared *p) {
    const hk_optimizer *const o = j->o;
    const bool skip = o->skip[p->entry_index];
    const float *const c = o->c[!skip];
    const int64_t dim = p->set->dim;
    double sum[2] = {0};
    for (int64_t i = 0; i < p->count; i++) {
        double row[2];
        measure(j, p->entry->offset + p->indices[i] * dim, p->rows + i * dim,
                dim, c, row);
        sum[0] += row[0];
        sum[1] += row[1];
    }
    const float rate = trusted_rate(o, sum, skip);
    for (int64_t i = 0; i < p->count; i++)
        move(j, p->entry->offset + p->indices[i] * dim, p->rows + i * dim, dim,
             c, rate);
}

static void update_entries(hki_optimizer_job *j) {
    const hk_optimizer *const o = j->o;
    if (j->begin < j->end) {
        hki_chunks_run(o->chunks, o->n_chunks, o->threads, measure_chunk, j);
        set_rates(j);
        hki_chunks_run(o->chunks, o->n_chunks, o->threads, move_chunk, j);
    }
    hki_optimizer_job tables = *j;
    tables.ema = NULL;
    for (size_t i = 0; i < o->n_prepared; i++)
        if (o->prepared[i].entry != NULL)
            update_table_per_entry(&tables, &o->prepared[i]);
}

void hki_optimizer_update(hki_optimizer_job *j) {
    if (j->o->rule->flags & HKI_RULE_PER_ENTRY)
        update_entries(j);
    else
        update_elements(j);
}
