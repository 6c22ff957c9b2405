// apart_vectors.c - the table of vectors for memory apart: the host's, with a
// look at every address.
#include "backend/apart/apart.h"

// Runs `call` on the place `at` of the host between enter and leave. `here`
// lists the addresses of the device.
#define INSIDE(call, ...)                                                      \
    do {                                                                       \
        const void *const here_[] = {__VA_ARGS__};                             \
        HKI_TRY(hki_apart_enter(here_, HKI_COUNT(here_), NULL, 0));            \
        const hki_place *const at = hki_apart_home(p);                         \
        const hk_status s_ = call;                                             \
        hki_apart_leave();                                                     \
        return s_;                                                             \
    } while (0)

typedef hk_status (*job_fn)(const hki_place *p, const hki_update_job *j);

// Rows are on the side that they are said to be on.
static hk_status check_rows(const hki_table_rows *t) {
    const hki_rows_away *const a = t->away;
    const void *const there[] = {t->indices, t->rows};
    if (a == NULL) {
        HKI_TRY(hki_apart_enter(NULL, 0, there, HKI_COUNT(there)));
    } else {
        const void *const here[] = {a->indices, a->rows, a->count};
        HKI_TRY(hki_apart_enter(here, HKI_COUNT(here), NULL, 0));
    }
    hki_apart_leave();
    return HK_OK;
}

// Rows that are here as the host's passes take them. *mark is to be freed.
static hk_status show_rows(hki_table_rows *t, uint64_t **mark) {
    const hki_rows_away *const a = t->away;
    if (a == NULL)
        return HK_OK;
    if (*a->count < 0 || *a->count > a->most)
        return hki_fail(HK_E_INTERNAL,
                        "isolated device: %lld rows of at most %lld",
                        (long long)*a->count, (long long)a->most);
    HKI_TRY(hki_zalloc_array((size_t)t->n_rows, sizeof **mark, mark));
    for (int64_t i = 0; i < *a->count; i++) {
        if (a->indices[i] < 0 || a->indices[i] >= t->n_rows ||
            (*mark)[a->indices[i]] != 0)
            return hki_fail(
                HK_E_INTERNAL,
                "isolated device: row %lld is out of range or listed twice",
                (long long)a->indices[i]);
        (*mark)[a->indices[i]] = UINT64_C(1) << 32 | (uint64_t)i;
    }
    t->indices = a->indices;
    t->rows = a->rows;
    t->count = *a->count;
    t->mark = *mark;
    t->epoch = 1;
    return HK_OK;
}

#define MAX_TABLES 8 // that tests have

static hk_status run_inside(const hki_place *p, hki_update_job j, job_fn fn) {
    hki_table_rows tables[MAX_TABLES];
    uint64_t *marks[MAX_TABLES] = {0};
    hk_status s = HK_OK;
    for (size_t i = 0; s == HK_OK && i < j.n_tables; i++) {
        tables[i] = j.tables[i];
        s = show_rows(&tables[i], &marks[i]);
    }
    j.tables = tables;
    if (s == HK_OK)
        s = fn(p, &j);
    for (size_t i = 0; i < j.n_tables; i++)
        hki_free(marks[i]);
    return s;
}

static hk_status run_job(const hki_place *p, const hki_update_job *j,
                         job_fn fn) {
    const void *const here[] = {j->x, j->g, j->s[0], j->s[1], j->s[2], j->ema};
    if (j->n_tables > MAX_TABLES)
        return hki_fail(HK_E_UNSUPPORTED,
                        "isolated device: %zu tables are too many",
                        j->n_tables);
    for (size_t i = 0; i < j->n_tables; i++)
        HKI_TRY(check_rows(&j->tables[i]));
    HKI_TRY(hki_apart_enter(here, HKI_COUNT(here), NULL, 0));
    const hk_status s = run_inside(hki_apart_home(p), *j, fn);
    hki_apart_leave();
    return s;
}

static hk_status update(const hki_place *p, const hki_update_job *j) {
    return run_job(p, j, hki_vector_ops_host.update);
}

static hk_status measure(const hki_place *p, const hki_update_job *j) {
    return run_job(p, j, hki_vector_ops_host.measure);
}

static hk_status move(const hki_place *p, const hki_update_job *j) {
    return run_job(p, j, hki_vector_ops_host.move);
}

static hk_status norms(const hki_place *p, const hki_vector_pass *a) {
    INSIDE(hki_vector_ops_host.norms(at, a), a->dst, a->src);
}

static hk_status clip(const hki_place *p, const hki_vector_pass *a) {
    INSIDE(hki_vector_ops_host.clip(at, a), a->dst, a->src);
}

static hk_status add(const hki_place *p, const hki_vector_pass *a) {
    INSIDE(hki_vector_ops_host.add(at, a), a->dst, a->src);
}

static hk_status average(const hki_place *p, const hki_vector_pass *a) {
    INSIDE(hki_vector_ops_host.average(at, a), a->dst, a->src);
}

static hk_status pull(const hki_place *p, float *g, const float *x,
                      const float *view, float a, int64_t n) {
    INSIDE(hki_vector_ops_host.pull(at, g, x, view, a, n), g, x, view);
}

static hk_status accumulate(const hki_place *p, float *y, const float *g,
                            float a, int64_t n) {
    INSIDE(hki_vector_ops_host.accumulate(at, y, g, a, n), y, g);
}

static hk_status accumulate_rows(const hki_place *p, float *y,
                                 const hki_table_rows *t, float a) {
    const void *const here[] = {y};
    hki_table_rows rows = *t;
    uint64_t *mark = NULL;
    HKI_TRY(check_rows(t));
    HKI_TRY(hki_apart_enter(here, HKI_COUNT(here), NULL, 0));
    hk_status s = show_rows(&rows, &mark);
    if (s == HK_OK)
        s = hki_vector_ops_host.accumulate_rows(hki_apart_home(p), y, &rows, a);
    hki_apart_leave();
    hki_free(mark);
    return s;
}

static hk_status subtract(const hki_place *p, float *x, const float *d,
                          int64_t n) {
    INSIDE(hki_vector_ops_host.subtract(at, x, d, n), x, d);
}

static hk_status copy(const hki_place *p, float *dst, const float *src,
                      int64_t n) {
    INSIDE(hki_vector_ops_host.copy(at, dst, src, n), dst, src);
}

const hki_vector_ops hki_vector_ops_apart = {
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
