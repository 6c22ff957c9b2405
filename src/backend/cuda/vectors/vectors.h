// backend/cuda/vectors/vectors.h - what the files of the table of vectors
// share: the arguments of an update, and the entries of the table.
#ifndef HKI_CUDA_VECTORS_H
#define HKI_CUDA_VECTORS_H
#include "backend/cuda/vectors/pieces.h"
#include "backend/cuda/vectors/table_rows.h"

// What the kernels need of a job.
typedef struct hki_update_args {
    float *x;
    const float *g;
    float *s[HKI_MAX_SLOTS];
    float *ema;
    int wide;
    float c[2][HKI_N_COEFS];
} hki_update_args;

static inline hki_update_args hki_update_args_of(const hki_update_job *j) {
    hki_update_args a = {};
    a.x = j->x;
    a.g = j->g;
    memcpy(a.s, j->s, sizeof a.s);
    a.ema = j->ema;
    a.wide =
        hki_by_fours(a.x, a.g, a.ema) && hki_by_fours(a.s[0], a.s[1], a.s[2]);
    memcpy(a.c, j->c, sizeof a.c);
    return a;
}

static inline bool hki_takes_chunk(const hki_update_job *j,
                                   const hki_chunk *c) {
    return j->active[c->entry] && c->begin >= j->begin && c->end <= j->end;
}

static inline bool hki_covers(const hki_vector_pass *a, const hki_chunk *c) {
    return c->begin >= a->begin && c->begin < a->end &&
           (a->only == NULL || a->only[c->entry]);
}

// ---- the table --------------------------------------------------------------

// updates.cu
hk_status hki_cuda_update(const hki_place *p, const hki_update_job *j);
hk_status hki_cuda_move(const hki_place *p, const hki_update_job *j);
// measures.cu
hk_status hki_cuda_measure(const hki_place *p, const hki_update_job *j);
hk_status hki_cuda_norms(const hki_place *p, const hki_vector_pass *a);
// passes.cu
hk_status hki_cuda_clip(const hki_place *p, const hki_vector_pass *a);
hk_status hki_cuda_add(const hki_place *p, const hki_vector_pass *a);
hk_status hki_cuda_average(const hki_place *p, const hki_vector_pass *a);
hk_status hki_cuda_pull(const hki_place *p, float *g, const float *x,
                        const float *view, float a, int64_t n);
hk_status hki_cuda_accumulate(const hki_place *p, float *y, const float *g,
                              float a, int64_t n);
hk_status hki_cuda_accumulate_rows(const hki_place *p, float *y,
                                   const hki_table_rows *t, float a);
hk_status hki_cuda_subtract(const hki_place *p, float *x, const float *d,
                            int64_t n);
hk_status hki_cuda_copy(const hki_place *p, float *dst, const float *src,
                        int64_t n);

#endif // HKI_CUDA_VECTORS_H
