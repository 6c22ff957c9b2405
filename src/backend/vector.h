// backend/vector.h - vectors that know where they live, and what is done to
// them beside kernels: updates, norms, averages, pulls.
//
// A vector has n floats for the host. At home, in host memory, that is all
// there is. Placed on a device it has as many there, and remembers which of the
// two is newer: whoever works on it asks for the one he needs, for reading or
// writing, and gets it up to date. On CPUs nothing is ever copied.
//
// What is done is one const table, hki_vector_ops, with an entry for the host
// (host_vectors.c) and one for each backend whose memory is apart. Addresses
// in its jobs are those of the place; what is said to be the host's is always
// in host memory: coefficients, lists of pieces, sums. Rows of sparse gradients
// are where they were made.
#ifndef HKI_VECTOR_H
#define HKI_VECTOR_H
#include "backend/backend.h"
#include "backend/vector_kernels.h"
#include "base/team.h"

// ---- pieces -----------------------------------------------------------------

#define HKI_CHUNK_FLOATS 65536 // unit of norms and per-tensor rules

// A piece of a vector that belongs to one entry.
typedef struct hki_chunk {
    int64_t begin, end; // floats
    size_t entry;
} hki_chunk;

// Cuts the float entries [first, last) of a layout into chunks. Freed with
// hki_free.
hk_status hki_chunks_create(const hk_layout *l, size_t first, size_t last,
                            hki_chunk **out, size_t *count);

// Neighbouring trainable entries updated with the same coefficients.
typedef struct hki_update_run {
    int64_t begin, end; // floats
    bool decay;         // weight decay applies
} hki_update_run;

// Rows of a sparse gradient that a device has, and the host has not seen: each
// index once, inside of its table.
typedef struct hki_rows_away {
    const int64_t *indices;
    const float *rows;
    const int64_t *count;
    int64_t most; // of them
} hki_rows_away;

// The rows of one table that have a gradient, each once. The host's, or those
// of `away`, which are at the place: then there is no mark either.
typedef struct hki_table_rows {
    int64_t offset;      // of the table, in floats
    int64_t n_rows, dim; // of the table
    const int64_t *indices;
    const float *rows;
    int64_t count;
    const hki_rows_away *away; // NULL: the host's
    // For all rows: where a row's gradient is, (epoch << 32 | position).
    const uint64_t *mark;
    uint32_t epoch;
    size_t entry;
    bool all;    // rows without a gradient move as with one of 0
    bool active; // the table takes part
} hki_table_rows;

// ---- jobs -------------------------------------------------------------------

// One step of a rule: the runs in [begin, end), and tables. Addresses are of
// element 0 of the vectors, at the place.
typedef struct hki_update_job {
    hki_rule_kernel rule;
    float *x;
    const float *g;
    float *s[HKI_MAX_SLOTS];
    float *ema; // NULL: none
    int64_t begin, end;
    const hki_update_run *runs;
    size_t n_runs;
    const hki_table_rows *tables;
    size_t n_tables;
    const float (*c)[HKI_N_COEFS]; // without and with weight decay; the host's
    const unsigned char *skip;     // per entry: without; the host's
    // Rules with norms per tensor only: the chunks of active entries and the
    // tables, each with two squared norms and a rate of its own.
    const hki_chunk *chunks;
    size_t n_chunks;
    const unsigned char *active; // per entry
    double (*sums)[2];           // per chunk
    double (*table_sums)[2];     // per table
    const float *rates;          // per entry
    const float *table_rates;    // per table
} hki_update_job;

// One pass over the chunks of a vector that lie in [begin, end).
typedef struct hki_vector_pass {
    float *dst;
    const float *src;
    int64_t begin, end;
    const hki_chunk *chunks;
    size_t n_chunks;
    const unsigned char *only; // per entry: takes part; NULL: all do
    float scale, low, high;
    const float *factors; // per entry; NULL: none
    double *sums;         // per chunk
} hki_vector_pass;

// A piece of a vector with one fate in an exchange.
typedef struct hki_exchange_span {
    int64_t begin, end; // floats
    bool copied;        // center := x
} hki_exchange_span;

// d = alpha (x - c); c += d; x -= d, or diff := d and x stays. Addresses are of
// element 0.
typedef struct hki_exchange_job {
    hki_shared *shared; // the center's values
    float *x;
    float *diff, *view;  // NULL: none; view := c as it was
    const float *before; // x before its last step; NULL: none
    const hki_exchange_span *spans;
    size_t n_spans;
    float alpha;
    bool observed; // exchange_sums will be asked for
} hki_exchange_job;

// ---- the table --------------------------------------------------------------

typedef struct hki_place hki_place;

// Work is in order and may be under way when a call returns; sums are there.
typedef struct hki_vector_ops {
    hk_status (*update)(const hki_place *p, const hki_update_job *j);
    // LARS: squared norms of values and gradients. LAMB: the moments move, and
    // norms are those of values and steps.
    hk_status (*measure)(const hki_place *p, const hki_update_job *j);
    // The update with the rates that come of it.
    hk_status (*move)(const hki_place *p, const hki_update_job *j);
    // sums[i] = |src|^2 of chunk i; 0 outside of [begin, end)
    hk_status (*norms)(const hki_place *p, const hki_vector_pass *a);
    // dst = scale factor src, cut to [low, high]
    hk_status (*clip)(const hki_place *p, const hki_vector_pass *a);
    // dst += scale src
    hk_status (*add)(const hki_place *p, const hki_vector_pass *a);
    // dst -= factor (dst - src); a factor of 1 copies, a negative one leaves
    hk_status (*average)(const hki_place *p, const hki_vector_pass *a);
    // g += a (x - view)
    hk_status (*pull)(const hki_place *p, float *g, const float *x,
                      const float *view, float a, int64_t n);
    // y += a g, without fma
    hk_status (*accumulate)(const hki_place *p, float *y, const float *g,
                            float a, int64_t n);
    // The same for rows of a table at y.
    hk_status (*accumulate_rows)(const hki_place *p, float *y,
                                 const hki_table_rows *t, float a);
    // x -= d
    hk_status (*subtract)(const hki_place *p, float *x, const float *d,
                          int64_t n);
    hk_status (*copy)(const hki_place *p, float *dst, const float *src,
                      int64_t n);
    // With a center in shared memory; NULL where shared_create is.
    hk_status (*exchange)(const hki_place *p, const hki_exchange_job *j);
    // Of the last one that was observed: |x - c|^2, step (c - x), |step|^2.
    hk_status (*exchange_sums)(const hki_place *p, double sums[3]);
} hki_vector_ops;

extern const hki_vector_ops hki_vector_ops_host;

// Who works on vectors, and where.
struct hki_place {
    const hki_vector_ops *ops;
    // In host memory: a team and its kernels.
    const hki_update_kernels *k;
    const hki_exchange_kernels *ek;
    uint32_t threads;
    // Elsewhere.
    const hki_backend *backend; // NULL: host memory
    hki_device *device;
    hki_queue *queue;
};

// Host memory in which floats are kept as bf16, for vectors that a rule of its
// own (HKI_K_ADAM_BF16) works on.
extern const hki_place hki_place_packed;

// A place in host memory. `what` opens messages about isa and threads (0: the
// CPUs of this process).
hk_status hki_place_home(hki_place *p, hk_isa isa, uint32_t threads,
                         const char *what);

// ---- vectors ----------------------------------------------------------------

typedef enum hki_access {
    HKI_TO_READ = 1,
    HKI_TO_WRITE = 2, // what is not written is lost
    HKI_TO_CHANGE = 3
} hki_access;

typedef struct hki_vector {
    float *host;
    int64_t n;
    bool borrowed;       // host is somebody else's memory
    const hki_place *at; // NULL: at home
    hki_buffer *buffer;  // elsewhere; in sessions also at home
    float *away;         // its address
    bool host_old, away_old;
} hki_vector;

// A vector over somebody's memory.
#define HKI_HOST_VECTOR(x_, n_)                                                \
    ((hki_vector){                                                             \
        .host = (float *)(uintptr_t)(x_), .n = (n_), .borrowed = true})

// n floats, all `value`, at home.
hk_status hki_vector_init(hki_vector *v, int64_t n, float value);
void hki_vector_deinit(hki_vector *v); // accepts a zeroed one
// Moves it to a place; NULL: home, which fails for a lost device only.
hk_status hki_vector_follow(hki_vector *v, const hki_place *at);
// The floats in host memory, up to date until the next call of the other kind.
hk_status hki_vector_host(hki_vector *v, hki_access a, float **out);
// The floats where it lives, for jobs of that place.
hk_status hki_vector_at(hki_vector *v, hki_access a, float **out);

#endif // HKI_VECTOR_H
