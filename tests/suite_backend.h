// suite_backend.h - random models that a fast backend and the reference
// backend both run, and the comparison of everything that comes out.
//
// A case is a function that draws sizes from the case's random numbers and
// builds a graph. It is called once for each plan, with the same numbers.
#ifndef HK_SUITE_BACKEND_H
#define HK_SUITE_BACKEND_H
#include "hk_test.h"
#include "graph/graph.h"

// What an input is filled with.
typedef enum bk_fill {
    BK_NORMAL = 0,
    BK_POSITIVE = 1, // 0.2 .. 2
    BK_COARSE = 2,   // whole numbers -2 .. 2: many ties and zeros
    BK_INDEX = 3,    // 0 .. bound - 1
    BK_PADDED = 4,   // as INDEX, every fourth one -1
    BK_BOOL = 5
} bk_fill;

typedef struct bk_input_info {
    bk_fill fill;
    int64_t bound;
} bk_input_info;

#define BK_MAX_INPUTS 64

typedef struct bk_case {
    hk_graph *g;
    hki_rng rng;   // for sizes and options
    int64_t batch; // the plan's batch size
    bk_input_info inputs[BK_MAX_INPUTS];
    int n_inputs, n_outputs;
} bk_case;

// Result tolerances, relative to the largest magnitude of each tensor.
//
// Element-wise work and sums of a few hundred float32 products (the reference
// sums in double): some units of 2^-24 times the root of the length.
#define BK_TOL 1e-5
// Winograd transforms add and subtract tiles before they multiply, which
// costs about a decimal digit; whole networks stack such layers.
#define BK_TOL_CONV 3e-5
#define BK_TOL_NET 1e-4
// Factors with 10 bits of fraction turn relus whose inputs are near 0, one in
// some hundred, and what they let through is as large as anything: the root of
// the mean square is compared, and whole numbers are not. What is wrong is
// wrong in fp32, too.
#define BK_TOL_TF32 3e-2
// bf16 is compared with the reference in bf16: products of the same rounded
// factors, to the tolerances above. In whole networks, a sum whose last bits
// differ is now and then rounded to a neighbour, 2^-8 away: the mean counts.
#define BK_TOL_BF16 5e-3

typedef struct bk_entry {
    const char *name;
    void (*build)(bk_case *c);
    hk_mode mode; // TRAIN where the case sets a loss
    int rounds;   // different random sizes
    double tolerance;
    // Magnitude of the terms where a sum may cancel to almost nothing: what
    // is left then is their rounding, not the result's. 0: no such sums.
    double scale;
    // Rounds that may differ: a relu whose input is within rounding of 0
    // passes its gradient on one backend and not on the other. That is once
    // in some fifty rounds of the largest network; a fault shows in more.
    int spare;
} bk_entry;

extern const bk_entry bk_op_cases[], bk_net_cases[];
extern const size_t bk_n_op_cases, bk_n_net_cases;

typedef struct bk_config {
    const char *backend;
    hk_isa isa;
    uint32_t threads;
    uint32_t no_fusion;
    hk_precision precision;
    // Once more with HK_PLAYED_BACKWARDS in the environment: the same bits.
    bool backwards;
} bk_config;

// Runs the cases under the configuration and against plain reference runs.
void suite_backend(const bk_entry *cases, size_t n, const bk_config *config);

// ---- for builders -----------------------------------------------------------

int64_t bk_below(bk_case *c, int64_t n); // 0 .. n - 1
// A size up to about `most`, with 1, odd and round numbers; 0 now and then.
int64_t bk_size(bk_case *c, int64_t most);
int64_t bk_size1(bk_case *c, int64_t most); // the same, 1 or more

hk_node *bk_input(bk_case *c, bk_fill fill, hk_shape shape);
hk_node *bk_index_input(bk_case *c, bk_fill fill, int64_t bound, hk_dtype t,
                        hk_shape shape);
void bk_output(bk_case *c, hk_node *x); // NULL is skipped
// Puts out y and the gradients of <y, random> by the xs.
void bk_check(bk_case *c, hk_node *y, hk_node *const *xs, size_t n);

static inline hk_shape bk_shape1(int64_t a) {
    return hk_shape_make(1, &a);
}

static inline hk_shape bk_shape2(int64_t a, int64_t b) {
    return hk_shape_make(2, (const int64_t[]){a, b});
}

static inline hk_shape bk_shape3(int64_t a, int64_t b, int64_t d) {
    return hk_shape_make(3, (const int64_t[]){a, b, d});
}

static inline hk_shape bk_shape4(int64_t n, int64_t h, int64_t w, int64_t d) {
    return hk_shape_make(4, (const int64_t[]){n, h, w, d});
}

#endif // HK_SUITE_BACKEND_H
