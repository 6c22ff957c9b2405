// updates.cu - the steps of optimizers on a card: update, and move with the
// rates that measure has led to.
#include "backend/cuda/vectors/update_rules.h"

// ---- dense parts and rows ---------------------------------------------------

template <class R>
HKI_KERNEL void update_dense(const __grid_constant__ hki_update_args a,
                             const __grid_constant__ hki_vector_pieces p) {
    const int n = hki_find_piece(p);
    const hki_four f = hki_four_of(p.at[n], a.wide);
    const float *const k = a.c[p.at[n].decay];
    float x[4], g[4], e[4], s[HKI_MAX_SLOTS][4];
    if (f.first >= f.last)
        return;
    hki_load_four(x, a.x, f);
    hki_load_four(g, a.g, f);
    for (int i = 0; i < R::SLOTS; i++)
        hki_load_four(s[i], a.s[i], f);
    if (a.ema != NULL)
        hki_load_four(e, a.ema, f);
    for (int i = 0; i < 4; i++) {
        cell c;
        c.x = x[i];
        c.g = g[i] * k[HKI_C_SCALE];
        for (int t = 0; t < R::SLOTS; t++)
            c.s[t] = s[t][i];
        R::step(c, k, p.at[n].factor);
        x[i] = c.x;
        for (int t = 0; t < R::SLOTS; t++)
            s[t][i] = c.s[t];
        if (a.ema != NULL)
            e[i] = fmaf(-k[HKI_C_EMA], e[i] - c.x, e[i]);
    }
    hki_store_four(a.x, x, f);
    for (int i = 0; i < R::SLOTS; i++)
        hki_store_four(a.s[i], s[i], f);
    if (a.ema != NULL)
        hki_store_four(a.ema, e, f);
}

#define MAX_TABLES 24 // of a launch

typedef struct rows_list {
    int n;
    unsigned blocks;
    unsigned first[MAX_TABLES]; // block of each
    hki_rows_args at[MAX_TABLES];
} rows_list;

static void add_rows(rows_list *list, const hki_update_args &a,
                     hki_rows_args r) {
    r.each =
        a.wide && r.dim % 4 == 0 && r.offset % 4 == 0 && hki_by_fours(r.rows)
            ? 4
            : 1;
    list->first[list->n] = list->blocks;
    list->at[list->n++] = r;
    list->blocks += hki_blocks(r.n * r.dim / r.each, HKI_THREADS);
}

// Elements of a row, `to` of the vectors, by those of its gradient.
template <class R>
HKI_ON_CARD void update_four(const hki_update_args &a, const float *k,
                             const hki_rows_args &r, const hki_four &from,
                             const hki_four &to) {
    float x[4], g[4] = {0}, s[HKI_MAX_SLOTS][4];
    if (r.indices != NULL)
        hki_load_four(g, r.rows, from);
    hki_load_four(x, a.x, to);
    for (int t = 0; t < R::SLOTS; t++)
        hki_load_four(s[t], a.s[t], to);
    for (int i = 0; i < 4; i++) {
        cell c;
        c.x = x[i];
        c.g = g[i] * k[HKI_C_SCALE];
        for (int t = 0; t < R::SLOTS; t++)
            c.s[t] = s[t][i];
        R::step(c, k, r.rate);
        x[i] = c.x;
        for (int t = 0; t < R::SLOTS; t++)
            s[t][i] = c.s[t];
    }
    hki_store_four(a.x, x, to);
    for (int t = 0; t < R::SLOTS; t++)
        hki_store_four(a.s[t], s[t], to);
}

template <class R>
HKI_KERNEL void update_rows(const __grid_constant__ hki_update_args a,
                            const __grid_constant__ rows_list list) {
    int which = 0;
    while (which + 1 < list.n && list.first[which + 1] <= blockIdx.x)
        which++;
    const hki_rows_args &r = list.at[which];
    const int64_t i = ((int64_t)(blockIdx.x - list.first[which]) * HKI_THREADS +
                       threadIdx.x) *
                      r.each;
    const float *const k = a.c[r.decay];
    int64_t column;
    if (i >= hki_row_elements(r))
        return;
    int64_t row = hki_row_of(i, r.dim, &column);
    if (r.indices != NULL)
        row = r.indices[row];
    if (r.indices == NULL && r.seen[row] != 0)
        return;
    if (r.indices != NULL && r.seen != NULL && column == 0)
        r.seen[row] = 1;
    const hki_four from = {i, 0, r.each, r.each == 4};
    hki_four to = from;
    to.at = r.offset + row * r.dim + column;
    update_four<R>(a, k, r, from, to);
}

typedef struct rule {
    void (*dense)(const hki_update_args &a, const hki_vector_pieces &p);
    void (*rows)(const hki_update_args &a, const rows_list &list);
} rule;

template <class R>
static void launch_dense(const hki_update_args &a, const hki_vector_pieces &p) {
    HKI_LAUNCH(update_dense<R>, p.blocks, HKI_THREADS, a, p);
}

template <class R>
static void launch_rows(const hki_update_args &a, const rows_list &list) {
    HKI_LAUNCH(update_rows<R>, list.blocks, HKI_THREADS, a, list);
}

#define RULES(X)                                                               \
    X(GD, gd)                                                                  \
    X(MOMENTUM, momentum)                                                      \
    X(NESTEROV, nesterov)                                                      \
    X(LOOKAHEAD, lookahead)                                                    \
    X(ADAGRAD, adagrad)                                                        \
    X(ADAGRAD_DA, adagrad_da)                                                  \
    X(ADADELTA, adadelta)                                                      \
    X(ADAM, adam)                                                              \
    X(AMSGRAD, amsgrad)                                                        \
    X(RMSPROP, rmsprop)                                                        \
    X(RMSPROP_CENTERED, rmsprop_centered)                                      \
    X(FTRL, ftrl)                                                              \
    X(FTRL_POW, ftrl_pow)                                                      \
    X(PROXIMAL_GD, proximal_gd)                                                \
    X(PROXIMAL_ADAGRAD, proximal_adagrad)                                      \
    X(LAMB, lamb)                                                              \
    X(LION, lion)

static hk_status find_rule(hki_rule_kernel kernel, rule *out) {
    switch (kernel) {
#define CASE(KIND, name)                                                       \
    case HKI_K_##KIND:                                                         \
        out->dense = launch_dense<name>;                                       \
        out->rows = launch_rows<name>;                                         \
        return HK_OK;
        RULES(CASE)
#undef CASE
    default:
        return hki_fail(
            HK_E_UNSUPPORTED,
            "cuda: bf16 moments are only supported for values in host memory");
    }
}

// ---- tables -----------------------------------------------------------------

static void launch_table(const hki_update_args &a, const rule &what,
                         const hki_rows_args &r) {
    rows_list list = {};
    add_rows(&list, a, r);
    what.rows(a, list);
}

// Rows without a gradient follow those that have one.
static hk_status update_table(const hki_place *p, const hki_update_job *j,
                              const hki_update_args &a, const rule &what,
                              const hki_table_rows *t, float rate) {
    const size_t seen = t->all ? (size_t)t->n_rows : 0;
    const size_t rows = hki_batch_bytes(t);
    hki_rows_args r = {};
    void *room;
    if (!t->active || t->dim == 0)
        return HK_OK;
    HKI_TRY(hki_cuda_room(p, rows + seen, &room));
    r.decay = !j->skip[t->entry];
    r.rate = rate;
    if (t->all) {
        r.seen = (unsigned char *)room + rows;
        HKI_TRY(hki_card_zero(p->device->card, r.seen, seen));
    }
    HKI_TRY(hki_for_rows(p, t, room, r, [&](const hki_rows_args &now) {
        launch_table(a, what, now);
    }));
    if (!t->all || t->n_rows == 0)
        return HK_OK;
    r.offset = t->offset;
    r.dim = t->dim;
    r.n = t->n_rows;
    launch_table(a, what, r);
    return hki_card_check(p->device->card, "a launch");
}

// Those whose rows are on the card together; rate(i): of table i.
template <class Rate>
static hk_status update_tables(const hki_place *p, const hki_update_job *j,
                               const hki_update_args &a, const rule &what,
                               Rate rate) {
    rows_list list = {};
    for (size_t i = 0; i < j->n_tables; i++) {
        const hki_table_rows *const t = &j->tables[i];
        if (t->away == NULL || t->all) {
            HKI_TRY(update_table(p, j, a, what, t, rate(i)));
            continue;
        }
        if (!t->active || t->dim == 0 || t->away->most == 0)
            continue;
        if (list.n == MAX_TABLES) {
            what.rows(a, list);
            list = {};
        }
        hki_rows_args r = {};
        r.decay = !j->skip[t->entry];
        r.rate = rate(i);
        add_rows(&list, a, hki_rows_here(t, r));
    }
    if (list.n > 0)
        what.rows(a, list);
    return hki_card_check(p->device->card, "a launch");
}

hk_status hki_cuda_update(const hki_place *p, const hki_update_job *j) {
    const hki_update_args a = hki_update_args_of(j);
    rule what;
    HKI_TRY(find_rule(j->rule, &what));
    HKI_TRY(hki_cuda_enter(p));
    HKI_TRY(hki_for_pieces(
        p->device->card, j->n_runs,
        [&](size_t i, hki_vector_piece *q) {
            const hki_update_run *const r = &j->runs[i];
            q->begin = r->begin > j->begin ? r->begin : j->begin;
            q->end = r->end < j->end ? r->end : j->end;
            q->decay = r->decay;
            q->factor = a.c[r->decay][HKI_C_RATE];
            return true;
        },
        [&](const hki_vector_pieces &list) { what.dense(a, list); }));
    return update_tables(p, j, a, what, [&](size_t i) {
        return a.c[!j->skip[j->tables[i].entry]][HKI_C_RATE];
    });
}

hk_status hki_cuda_move(const hki_place *p, const hki_update_job *j) {
    const hki_update_args a = hki_update_args_of(j);
    rule what;
    HKI_TRY(find_rule(j->rule, &what));
    HKI_TRY(hki_cuda_enter(p));
    HKI_TRY(hki_for_pieces(
        p->device->card, j->n_chunks,
        [&](size_t i, hki_vector_piece *q) {
            const hki_chunk *const c = &j->chunks[i];
            q->begin = c->begin;
            q->end = c->end;
            q->decay = !j->skip[c->entry];
            q->factor = j->rates[c->entry];
            return hki_takes_chunk(j, c);
        },
        [&](const hki_vector_pieces &list) { what.dense(a, list); }));
    return update_tables(p, j, a, what,
                         [&](size_t i) { return j->table_rates[i]; });
}
