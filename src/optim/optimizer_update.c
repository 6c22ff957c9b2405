// optimizer_update.c - values and slots move, where they live: one pass for
// element-wise rules, three for rules with norms per tensor.
#include "optim/optimizer.h"
#include <math.h>

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

static void set_rates(hk_optimizer *o, int64_t begin, int64_t end) {
    for (size_t i = 0; i < o->n_chunks;) {
        const hki_chunk *const c = &o->chunks[i];
        const size_t entry = c->entry;
        const bool takes =
            o->active[entry] && c->begin >= begin && c->end <= end;
        double sum[2] = {0};
        for (; i < o->n_chunks && o->chunks[i].entry == entry; i++)
            for (int s = 0; takes && s < 2; s++)
                sum[s] += o->sums[i][s];
        o->rates[entry] = trusted_rate(o, sum, o->skip[entry]);
    }
    for (size_t i = 0; i < o->n_prepared; i++)
        o->table_rates[i] =
            trusted_rate(o, o->table_sums[i], o->skip[o->prepared[i].entry]);
}

static hk_status update_entries(hk_optimizer *o, hki_update_job *j) {
    j->chunks = o->chunks;
    j->n_chunks = o->n_chunks;
    j->active = o->active;
    j->sums = o->sums;
    j->table_sums = o->table_sums;
    j->rates = o->rates;
    j->table_rates = o->table_rates;
    HKI_TRY(o->at->ops->measure(o->at, j));
    set_rates(o, j->begin, j->end);
    return o->at->ops->move(o->at, j);
}

hk_status hki_optimizer_update(hk_optimizer *o, hki_vector *x, hki_vector *g,
                               float *ema, int64_t begin, int64_t end) {
    hki_update_job j = {.rule = o->kernel,
                        .ema = ema,
                        .begin = begin,
                        .end = end,
                        .runs = o->runs,
                        .n_runs = o->n_runs,
                        .tables = o->prepared,
                        .n_tables = o->n_prepared,
                        .c = (const float(*)[HKI_N_COEFS])o->c,
                        .skip = o->skip};
    float *dense;
    HKI_TRY(hki_vector_at(x, HKI_TO_CHANGE, &j.x));
    HKI_TRY(hki_vector_at(g, HKI_TO_READ, &dense));
    j.g = dense;
    for (size_t i = 0; i < o->n_slots; i++)
        HKI_TRY(hki_vector_at(&o->values[i], HKI_TO_CHANGE, &j.s[i]));
    return o->rule->flags & HKI_RULE_PER_ENTRY ? update_entries(o, &j)
                                               : o->at->ops->update(o->at, &j);
}
