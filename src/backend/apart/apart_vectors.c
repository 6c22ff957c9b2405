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

static hk_status run_job(const hki_place *p, const hki_update_job *j,
                         job_fn fn) {
    const void *const here[] = {j->x, j->g, j->s[0], j->s[1], j->s[2], j->ema};
    for (size_t i = 0; i < j->n_tables; i++) {
        const void *const there[] = {j->tables[i].indices, j->tables[i].rows};
        HKI_TRY(hki_apart_enter(NULL, 0, there, HKI_COUNT(there)));
        hki_apart_leave();
    }
    HKI_TRY(hki_apart_enter(here, HKI_COUNT(here), NULL, 0));
    const hk_status s = fn(hki_apart_home(p), j);
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
    INSIDE(hki_vector_ops_host.accumulate_rows(at, y, t, a), y);
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
