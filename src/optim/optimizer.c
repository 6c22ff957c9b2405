// optimizer.c - create an optimizer and take steps with it.
//
// A step has three parts: prepare (everything that can fail, coefficients),
// update (one parallel region for element-wise rules, three passes for rules
// with norms per tensor), finish (Adam's powers). Values and slots are
// written by the second part only, so a failed step changes nothing.
#include "optim/optimizer.h"
#include <math.h>

_Static_assert(sizeof(hk_optimizer_options) ==
                   offsetof(hk_optimizer_options, other_prefix) +
                       sizeof(const char *),
               "option structs have no tail padding");
_Static_assert(sizeof(hk_schedule_options) ==
                   offsetof(hk_schedule_options, warmup_shift) +
                       sizeof(uint32_t),
               "option structs have no tail padding");

// ---- create -----------------------------------------------------------------

void hk_optimizer_destroy(hk_optimizer *o) {
    if (o == NULL)
        return;
    for (size_t i = 0; i < HKI_MAX_SLOTS; i++)
        hki_free(o->values[i]);
    hki_free(o->skip);
    hki_free(o->active);
    hki_free(o->selected);
    hki_free(o->owned);
    hk_optimizer_destroy(o->other);
    hki_free(o->runs);
    hki_free(o->prepared);
    hki_free(o->chunks);
    hki_free(o->sums);
    hki_free(o->rates);
    hki_tables_deinit(&o->tables);
    hk_schedule_release(o->schedule);
    hk_layout_release(o->layout);
    hki_arena_deinit(&o->arena);
    hki_free(o);
}

// Keeps the rule's own hyper-parameters; the others read as zero.
static void keep_own_hypers(hk_optimizer_options *dst,
                            const hk_optimizer_options *src,
                            const hki_rule *r) {
    for (size_t i = 0; i < HKI_COUNT(r->hyper) && r->hyper[i] != NULL; i++)
        hki_hyper_put(dst, r->hyper[i], hki_hyper_get(src, r->hyper[i]));
    dst->kind = src->kind;
    dst->sparse_update = src->sparse_update;
    dst->use_nesterov = src->use_nesterov;
    dst->centered = src->centered;
    dst->paper_epsilon = src->paper_epsilon;
}

static hk_status copy_names(hk_optimizer *o, const hk_optimizer_options *src) {
    const char *const name = src->name != NULL ? src->name : o->rule->name;
    if (name[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG, "%s: the name is empty",
                        o->rule->name);
    HKI_TRY(hki_arena_strdup(&o->arena, name, &o->opt.name));
    if (src->learning_rate_name != NULL)
        HKI_TRY(hki_arena_strdup(&o->arena, src->learning_rate_name,
                                 &o->opt.learning_rate_name));
    return HK_OK;
}

// Slots by name, for hk_optimizer_slot_name.
static void sort_slots(hk_optimizer *o) {
    for (size_t i = 0; i < o->n_slots; i++) {
        size_t at = i;
        for (; at > 0 &&
               strcmp(o->slot[o->sorted[at - 1]].name, o->slot[i].name) > 0;
             at--)
            o->sorted[at] = o->sorted[at - 1];
        o->sorted[at] = i;
    }
}

static float slot_start(const hk_optimizer *o, size_t i) {
    const hki_slot_def *const d = &o->slot[i];
    if (d->initial == 0)
        return d->start;
    double v;
    memcpy(&v, (const char *)&o->opt + d->initial, sizeof v);
    return (float)v;
}

static hk_status create_slots(hk_optimizer *o) {
    const int64_t n = hk_layout_train(o->layout);
    o->n_slots = hki_rule_slots(o->rule, &o->opt, o->slot);
    sort_slots(o);
    for (size_t i = 0; i < o->n_slots; i++)
        HKI_TRY(hki_optim_floats(n, slot_start(o, i), &o->values[i]));
    o->power[0] = (float)o->opt.beta1;
    o->power[1] = (float)o->opt.beta2;
    return HK_OK;
}

static hk_status mark_entries(hk_optimizer *o,
                              const hk_optimizer_options *src) {
    const hk_entry *e;
    while ((e = hk_layout_entry(o->layout, o->n_entries)) != NULL &&
           e->kind == HK_TRAINABLE)
        o->n_entries++;
    if (src->n_skip > 0 && src->skip_list == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: skip_list is NULL",
                        o->rule->name);
    HKI_TRY(hki_zalloc_array(o->n_entries, 1, &o->skip));
    HKI_TRY(hki_alloc_array(o->n_entries, 1, &o->active));
    HKI_TRY(hki_alloc_array(o->n_entries, 1, &o->selected));
    HKI_TRY(hki_alloc_array(o->n_entries, 1, &o->owned));
    for (size_t i = 0; i < o->n_entries; i++) {
        o->active[i] = o->selected[i] = o->owned[i] = 1;
        for (size_t j = 0; j < src->n_skip; j++) {
            if (src->skip_list[j] == NULL)
                return hki_fail(HK_E_INVALID_ARG, "%s: skip_list[%zu] is NULL",
                                o->rule->name, j);
            if (strstr(hk_layout_entry(o->layout, i)->name,
                       src->skip_list[j]) != NULL)
                o->skip[i] = 1;
        }
    }
    return HK_OK;
}

void hki_optimizer_build_runs(hk_optimizer *o) {
    // With epsilon 0 a zero gradient may give 0 / 0: stay out of the gaps.
    const bool exact = hki_rule_hyper(o->rule, "epsilon") != NULL &&
                       (float)o->opt.epsilon == 0;
    const int64_t n_dense = hk_layout_dense(o->layout);
    const int64_t n_train = hk_layout_train(o->layout);
    o->n_runs = 0;
    for (size_t i = 0; i < o->n_entries; i++) {
        const hk_entry *const e = hk_layout_entry(o->layout, i);
        if (!o->active[i] || e->count == 0)
            continue;
        int64_t end = e->offset + e->count;
        if (!exact) {
            end = (end + HKI_ALIGN_FLOATS - 1) / HKI_ALIGN_FLOATS *
                  HKI_ALIGN_FLOATS;
            end = HKI_MIN(end, e->sparse ? n_train : n_dense);
        }
        hki_update_run *const last =
            o->n_runs > 0 ? &o->runs[o->n_runs - 1] : NULL;
        if (last != NULL && last->end == e->offset && e->offset != n_dense &&
            last->decay == !o->skip[i])
            last->end = end;
        else
            o->runs[o->n_runs++] =
                (hki_update_run){e->offset, end, !o->skip[i]};
    }
}

static hk_status create_per_entry(hk_optimizer *o) {
    if (!(o->rule->flags & HKI_RULE_PER_ENTRY))
        return HK_OK;
    HKI_TRY(hki_chunks_create(o->layout, 0, o->n_entries, &o->chunks,
                              &o->n_chunks));
    HKI_TRY(hki_alloc_array(o->n_chunks, sizeof *o->sums, &o->sums));
    return hki_alloc_array(o->n_entries, sizeof *o->rates, &o->rates);
}

static hk_status build(hk_optimizer *o, const hk_optimizer_options *src,
                       hk_layout *layout) {
    keep_own_hypers(&o->opt, src, o->rule);
    o->schedule = hk_schedule_retain(src->schedule);
    o->layout = hk_layout_retain(layout);
    HKI_TRY(copy_names(o, src));
    HKI_TRY(mark_entries(o, src));
    HKI_TRY(create_slots(o));
    HKI_TRY(hki_alloc_array(o->n_entries, sizeof *o->runs, &o->runs));
    HKI_TRY(hki_tables_init(&o->tables, layout));
    HKI_TRY(
        hki_alloc_array(o->tables.count, sizeof *o->prepared, &o->prepared));
    HKI_TRY(create_per_entry(o));
    hki_optimizer_build_runs(o);
    return HK_OK;
}

// The second rule: an optimizer of its own over the same layout; each entry
// belongs to one of the two.
static hk_status create_other(hk_optimizer *o, const hk_optimizer_options *src,
                              hk_layout *layout) {
    if (src->other == NULL)
        return HK_OK;
    if (src->other_prefix == NULL || src->other_prefix[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: a second rule needs an other_prefix", o->opt.name);
    hk_optimizer_options second = {.struct_size = sizeof second};
    HKI_TRY(hki_options_copy(&second, sizeof second, src->other,
                             "second optimizer"));
    second.other = NULL;
    HKI_TRY(hk_optimizer_create(&second, layout, &o->other));
    const size_t n = strlen(src->other_prefix);
    size_t found = 0;
    for (size_t i = 0; i < o->n_entries; i++) {
        const char *const name = hk_layout_entry(layout, i)->name;
        o->owned[i] = strncmp(name, src->other_prefix, n) != 0;
        o->other->owned[i] = !o->owned[i];
        found += !o->owned[i];
    }
    if (found == 0)
        return hki_fail(HK_E_NOT_FOUND,
                        "%s: no trainable variable begins with '%s'",
                        o->opt.name, src->other_prefix);
    return hk_optimizer_select(o, NULL);
}

hk_status hk_optimizer_create(const hk_optimizer_options *opt,
                              hk_layout *layout, hk_optimizer **out) {
    hk_optimizer_options src = {.struct_size = sizeof src};
    if (opt == NULL || layout == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "optimizer: options, layout or out is NULL");
    HKI_TRY(hki_options_copy(&src, sizeof src, opt, "optimizer"));
    const hki_rule *const rule = hki_rule_find(src.kind);
    if (rule == NULL)
        return hki_fail(HK_E_INVALID_ARG, "optimizer: unknown kind %d",
                        (int)src.kind);
    HKI_TRY(hki_rule_check(rule, &src));
    hk_optimizer *o;
    HKI_TRY(hki_zalloc_array(1, sizeof *o, &o));
    o->rule = rule;
    hk_status s = hki_optim_kernels_pick(src.isa, rule->name, &o->k);
    if (s == HK_OK)
        s = hki_team_threads(rule->name, src.threads, &o->threads);
    if (s == HK_OK)
        s = build(o, &src, layout);
    if (s == HK_OK)
        s = create_other(o, &src, layout);
    if (s != HK_OK) {
        hk_optimizer_destroy(o);
        return s;
    }
    *out = o;
    return HK_OK;
}

hk_status hk_optimizer_select(hk_optimizer *o, const unsigned char *mask) {
    if (o == NULL)
        return hki_fail(HK_E_INVALID_ARG, "optimizer: handle is NULL");
    if (o->in_step)
        return hki_fail(HK_E_STATE, "%s: select inside a step", o->opt.name);
    for (size_t i = 0; i < o->n_entries; i++)
        o->active[i] = o->selected[i] =
            o->owned[i] && (mask == NULL || mask[i] != 0);
    o->narrowed = false;
    hki_optimizer_build_runs(o);
    return o->other != NULL ? hk_optimizer_select(o->other, mask) : HK_OK;
}

hk_status hk_optimizer_reserve(hk_optimizer *o, int64_t rows) {
    if (o == NULL || rows < 0)
        return hki_fail(HK_E_INVALID_ARG, "optimizer: reserve %lld rows",
                        (long long)rows);
    for (size_t i = 0; i < o->tables.count; i++)
        HKI_TRY(hki_rowset_reserve(&o->tables.set[i], rows));
    return o->other != NULL ? hk_optimizer_reserve(o->other, rows) : HK_OK;
}

// ---- prepare --------------------------------------------------------------

double hk_optimizer_rate(const hk_optimizer *o, int64_t global_step) {
    if (o == NULL)
        return (double)NAN;
    return o->schedule != NULL
               ? hk_schedule_value(o->schedule, (double)global_step)
               : o->opt.learning_rate;
}

// Coefficients of the step; the gradient's scale and the average come later.
static hk_status prepare(hk_optimizer *o, int64_t global_step) {
    const double rate = hk_optimizer_rate(o, global_step);
    // Constant rates were checked when they were set. A noisy schedule may dip
    // below zero, which only some rules cannot bear.
    if (!isfinite(rate))
        return hki_fail(HK_E_NOT_FINITE, "%s: the rate at step %lld is %g",
                        o->opt.name, (long long)global_step, rate);
    if (o->rule->hyper[0]->above_low)
        HKI_TRY(hki_hyper_check(o->rule, o->rule->hyper[0], rate));
    o->rate = rate;
    o->kernel = &o->k->rule[o->rule->kernel(&o->opt)];
    memset(o->c, 0, sizeof o->c);
    for (int decay = 0; decay < 2; decay++)
        o->rule->prepare(&o->opt, rate, o->power, global_step, decay == 1,
                         o->c[decay]);
    return HK_OK;
}

static void set_coef(hk_optimizer *o, int i, float v) {
    o->c[0][i] = o->c[1][i] = v;
}

static void finish(hk_optimizer *o) {
    if (o->rule->flags & HKI_RULE_POWERS) {
        o->power[0] *= (float)o->opt.beta1;
        o->power[1] *= (float)o->opt.beta2;
    }
}

static bool all_rows(const hk_optimizer *o) {
    return o->opt.sparse_update == HK_SPARSE_BY_KIND
               ? (o->rule->flags & HKI_RULE_ALL_ROWS) != 0
               : o->opt.sparse_update == HK_SPARSE_ALL_ROWS;
}

// The entries of a step: those selected that its gradients cover.
static void narrow(hk_optimizer *o, const unsigned char *mask) {
    if (mask == NULL && !o->narrowed)
        return;
    for (size_t i = 0; i < o->n_entries; i++)
        o->active[i] = o->selected[i] && (mask == NULL || mask[i] != 0);
    o->narrowed = mask != NULL;
    hki_optimizer_build_runs(o);
}

// Checks one sparse gradient and makes its indices unique.
static hk_status prepare_sparse(hk_optimizer *o, const hk_sparse_grad *g) {
    size_t t;
    HKI_TRY(hki_tables_find(&o->tables, o->layout, g, o->opt.name, &t));
    hki_rowset *const set = &o->tables.set[t];
    for (size_t i = 0; i < o->n_prepared; i++)
        if (o->prepared[i].set == set)
            return hki_fail(HK_E_EXISTS, "%s: two sparse gradients for %s",
                            o->opt.name, g->entry->name);
    const size_t index = o->tables.entry[t];
    HKI_TRY(hki_rowset_check(set, g->entry->name, g->indices, g->count));
    hki_prepared p = {hk_layout_entry(o->layout, index),
                      index,
                      set,
                      g->indices,
                      g->rows,
                      g->count};
    // Marks find repeated indices, and lead from a row to its gradient.
    const bool marks = !g->unique || all_rows(o);
    if (marks && !hki_rowset_mark(set, g->indices, g->count)) {
        hki_rowset_clear(set);
        HKI_TRY(hki_rowset_add(set, g->indices, g->rows, 1, g->count));
        p.indices = set->indices;
        p.rows = set->rows;
        p.count = set->count;
    }
    // The set is prepared even when its table takes no part, so that a
    // second gradient for it is noticed.
    if (!o->active[index]) {
        p.entry = NULL;
        p.count = 0;
    }
    o->prepared[o->n_prepared++] = p;
    return HK_OK;
}

// ---- update: element-wise rules -------------------------------------------

typedef struct job {
    hk_optimizer *o;
    float *x;
    const float *g;     // element 0 of the vector
    float *ema;         // likewise; NULL: none
    int64_t begin, end; // dense range to cover
    int parts;          // of the pass
} job;

static hki_update update_at(const job *j, int64_t at, const float *g,
                            const float *c) {
    hki_update u = {.x = j->x + at, .g = g, .c = c};
    for (size_t i = 0; i < j->o->n_slots; i++)
        u.s[i] = j->o->values[i] + at;
    if (j->ema != NULL)
        u.ema = j->ema + at;
    return u;
}

// The part of a run that the job covers; returns its size.
static int64_t run_share(const job *j, const hki_update_run *r,
                         int64_t *begin) {
    *begin = HKI_MAX(r->begin, j->begin);
    return HKI_MAX(HKI_MIN(r->end, j->end) - *begin, 0);
}

static int64_t run_floats(const job *j) {
    int64_t n = 0, begin;
    for (size_t i = 0; i < j->o->n_runs; i++)
        n += run_share(j, &j->o->runs[i], &begin);
    return n;
}

static void update_dense(const job *j, int part) {
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

static void update_untouched(const job *j, int64_t at, int64_t n,
                             const float *c) {
    for (int64_t i = 0; i < n; i += ZEROS) {
        const hki_update u = update_at(j, at + i, zeros, c);
        j->o->kernel->dense(&u, HKI_MIN(n - i, ZEROS));
    }
}

// Rows [first, last) of a table, those without a gradient too.
static void update_all_rows(const job *j, const hki_prepared *p, int64_t first,
                            int64_t last) {
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

static void update_table(const job *j, const hki_prepared *p, int part) {
    const hk_optimizer *const o = j->o;
    if (p->entry == NULL)
        return;
    // A part's share of whole rows.
    const hki_work w = {.items = all_rows(o) ? p->set->n_rows : p->count};
    const int64_t lo = hki_team_begin(&w, part, j->parts);
    const int64_t hi = hki_team_begin(&w, part + 1, j->parts);
    if (all_rows(o)) {
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
    const job *const j = args;
    (void)begin;
    (void)end;
    update_dense(j, part);
    job tables = *j;
    tables.ema = NULL; // tables are averaged on their own, every row
    for (size_t i = 0; i < j->o->n_prepared; i++)
        update_table(&tables, &j->o->prepared[i], part);
}

static void update_elements(job *j) {
    const hk_optimizer *const o = j->o;
    int64_t n = run_floats(j);
    for (size_t i = 0; i < o->n_prepared; i++) {
        const hki_prepared *const p = &o->prepared[i];
        if (p->entry != NULL)
            n += all_rows(o) ? p->entry->count : p->count * p->set->dim;
    }
    const hki_work w = hki_optim_work(n);
    j->parts = hki_team_parts((int)o->threads, &w);
    hki_team_run((int)o->threads, &w, update_part, j);
}

// ---- update: rules with norms per tensor ----------------------------------

static bool takes_chunk(const job *j, const hki_chunk *c) {
    return j->o->active[c->entry] && c->begin >= j->begin && c->end <= j->end;
}

// Squared norms that the trust ratio needs. LARS: of values and gradients;
// LAMB: of values and steps, and the moments move.
static void measure(const job *j, int64_t at, const float *g, int64_t n,
                    const float *c, double sum[2]) {
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
    const job *const j = arg;
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

static void set_rates(const job *j) {
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
static void move(const job *j, int64_t at, const float *g, int64_t n,
                 const float *c, float rate) {
    float own[HKI_N_COEFS];
    memcpy(own, c, sizeof own);
    own[HKI_C_RATE] = rate;
    const hki_update u = update_at(j, at, g, own);
    j->o->kernel->dense(&u, n);
}

static void move_chunk(void *arg, const hki_chunk *c, size_t i) {
    const job *const j = arg;
    (void)i;
    if (takes_chunk(j, c))
        move(j, c->begin, j->g + c->begin, c->end - c->begin,
             j->o->c[!j->o->skip[c->entry]], j->o->rates[c->entry]);
}

// The touched rows of a table count as one tensor.
static void update_table_per_entry(const job *j, const hki_prepared *p) {
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

static void update_entries(job *j) {
    const hk_optimizer *const o = j->o;
    if (j->begin < j->end) {
        hki_chunks_run(o->chunks, o->n_chunks, o->threads, measure_chunk, j);
        set_rates(j);
        hki_chunks_run(o->chunks, o->n_chunks, o->threads, move_chunk, j);
    }
    job tables = *j;
    tables.ema = NULL;
    for (size_t i = 0; i < o->n_prepared; i++)
        if (o->prepared[i].entry != NULL)
            update_table_per_entry(&tables, &o->prepared[i]);
}

static void update(job *j) {
    if (j->o->rule->flags & HKI_RULE_PER_ENTRY)
        update_entries(j);
    else
        update_elements(j);
}

// ---- steps ----------------------------------------------------------------

static bool all_active(const hk_optimizer *o, int64_t end) {
    for (size_t i = 0; i < o->n_entries; i++)
        if (!o->active[i] && hk_layout_entry(o->layout, i)->offset < end)
            return false;
    return true;
}

static hk_status check_step(const hk_optimizer *o, const float *x,
                            bool in_step) {
    if (o == NULL || x == NULL)
        return hki_fail(HK_E_INVALID_ARG, "optimizer: handle or x is NULL");
    if (o->in_step != in_step)
        return hki_fail(HK_E_STATE,
                        in_step ? "%s: no step was begun"
                                : "%s: a step begun is not ended",
                        o->opt.name);
    return HK_OK;
}

static hk_status check_grads(const hk_optimizer *o, const hk_grad_view *v,
                             int64_t global_step) {
    HKI_TRY(hki_grad_view_check(o->layout, v, o->opt.name));
    if (v->n_dense == 0 && v->n_sparse == 0)
        return hki_fail(HK_E_INVALID_ARG, "%s: there is no gradient at all",
                        o->opt.name);
    if (global_step < 0)
        return hki_fail(HK_E_INVALID_ARG, "%s: global_step is %lld",
                        o->opt.name, (long long)global_step);
    return HK_OK;
}

hk_status hki_optimizer_ready(hk_optimizer *o, const float *x,
                              const hk_grad_view *grads, int64_t global_step) {
    HKI_TRY(check_step(o, x, false));
    HKI_TRY(check_grads(o, grads, global_step));
    narrow(o, grads->mask);
    o->n_prepared = 0;
    for (size_t i = 0; i < grads->n_sparse; i++)
        HKI_TRY(prepare_sparse(o, &grads->sparse[i]));
    return prepare(o, global_step);
}

// Both rules are ready before one of them moves anything.
static hk_status apply_both(hk_optimizer *o, float *x,
                            const hk_grad_view *grads, int64_t global_step,
                            hk_ema *ema) {
    HKI_TRY(hki_optimizer_ready(o->other, x, grads, global_step));
    hk_optimizer *const list[2] = {o, o->other};
    for (int i = 0; i < 2; i++) {
        set_coef(list[i], HKI_C_SCALE, (float)grads->scale);
        job j = {
            .o = list[i], .x = x, .g = grads->dense, .end = grads->n_dense};
        update(&j);
        finish(list[i]);
    }
    if (ema != NULL)
        hki_ema_update_rest(ema, x, 0);
    return HK_OK;
}

hk_status hk_optimizer_apply(hk_optimizer *o, float *x,
                             const hk_grad_view *grads, int64_t global_step,
                             hk_ema *ema) {
    HKI_TRY(hki_optimizer_ready(o, x, grads, global_step));
    if (ema != NULL && hk_layout_fingerprint(hki_ema_layout(ema)) !=
                           hk_layout_fingerprint(o->layout))
        return hki_fail(HK_E_SHAPE, "%s: the average has another layout",
                        o->opt.name);
    if (o->other != NULL)
        return apply_both(o, x, grads, global_step, ema);
    set_coef(o, HKI_C_SCALE, (float)grads->scale);
    job j = {.o = o, .x = x, .g = grads->dense, .end = grads->n_dense};
    if (ema != NULL && all_active(o, j.end)) {
        j.ema = hki_ema_fused(ema, j.end);
        set_coef(o, HKI_C_EMA, (float)(1 - hk_ema_decay(ema)));
    }
    update(&j);
    if (ema != NULL)
        hki_ema_update_rest(ema, x, j.ema != NULL ? j.end : 0);
    finish(o);
    return HK_OK;
}

hk_status hk_optimizer_begin(hk_optimizer *o, int64_t global_step) {
    if (o == NULL || o->in_step || global_step < 0)
        return hki_fail(o != NULL && o->in_step ? HK_E_STATE : HK_E_INVALID_ARG,
                        "optimizer: begin: no handle, inside a step, or "
                        "global_step %lld",
                        (long long)global_step);
    HKI_TRY(prepare(o, global_step));
    narrow(o, NULL);
    if (o->other != NULL)
        HKI_TRY(hk_optimizer_begin(o->other, global_step));
    o->in_step = true;
    return HK_OK;
}

// True when `at` is no position inside an entry.
static bool is_edge(const hk_optimizer *o, int64_t at) {
    for (size_t i = 0; i < o->n_entries; i++) {
        const hk_entry *const e = hk_layout_entry(o->layout, i);
        if (at > e->offset && at < e->offset + e->count)
            return false;
    }
    return at >= 0 && at <= hk_layout_train(o->layout);
}

hk_status hk_optimizer_apply_range(hk_optimizer *o, float *x,
                                   const float *dense, int64_t begin,
                                   int64_t end, double scale) {
    HKI_TRY(check_step(o, x, true));
    if (dense == NULL || begin > end || !is_edge(o, begin) || !is_edge(o, end))
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: no whole entries in [%lld, %lld)", o->opt.name,
                        (long long)begin, (long long)end);
    if (!isfinite(scale))
        return hki_fail(HK_E_NOT_FINITE, "%s: scale is %g", o->opt.name, scale);
    set_coef(o, HKI_C_SCALE, (float)scale);
    o->n_prepared = 0;
    job j = {.o = o, .x = x, .g = dense, .begin = begin, .end = end};
    update(&j);
    return o->other != NULL
               ? hk_optimizer_apply_range(o->other, x, dense, begin, end, scale)
               : HK_OK;
}

hk_status hk_optimizer_apply_sparse(hk_optimizer *o, float *x,
                                    const hk_sparse_grad *grad, double scale) {
    HKI_TRY(check_step(o, x, true));
    if (grad == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: gradient is NULL", o->opt.name);
    if (!isfinite(scale))
        return hki_fail(HK_E_NOT_FINITE, "%s: scale is %g", o->opt.name, scale);
    o->n_prepared = 0;
    HKI_TRY(prepare_sparse(o, grad));
    set_coef(o, HKI_C_SCALE, (float)scale);
    job j = {.o = o, .x = x};
    update(&j);
    return o->other != NULL
               ? hk_optimizer_apply_sparse(o->other, x, grad, scale)
               : HK_OK;
}

hk_status hk_optimizer_end(hk_optimizer *o) {
    if (o == NULL || !o->in_step)
        return hki_fail(HK_E_STATE, "optimizer: end without begin");
    finish(o);
    o->in_step = false;
    return o->other != NULL ? hk_optimizer_end(o->other) : HK_OK;
}
