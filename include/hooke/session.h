// hooke/session.h - graphs compiled and run.
//
//     hk_plan_create(g, NULL, &plan);
//     hk_session_create(plan, NULL, &session);
//     hk_session_feed(session, "x", batch);
//     hk_session_run(session);
//
// A plan is a graph compiled for one batch size, thread count and backend:
// immutable, shared by all threads. A session is one set of values that runs
// a plan.
//
// Threads: plans are free for all; a session serves one thread at a time,
// different sessions of one plan run at once.
#ifndef HOOKE_SESSION_H
#define HOOKE_SESSION_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/backend.h"
#include "hooke/context.h"
#include "hooke/graph.h"
#include "hooke/status.h"
#include "hooke/tensor.h"

HK_BEGIN_C

typedef struct hk_plan hk_plan;       // opaque, reference-counted
typedef struct hk_session hk_session; // opaque

// ---- plans ----------------------------------------------------------------

typedef struct hk_plan_options {
    size_t struct_size;    // set by hk_plan_options_init
    int64_t batch;         // batch size, >= 0
    uint32_t threads;      // library threads of a session; 0: as many as the
                           // work of a run is for, up to thread_limit
    uint32_t no_fusion;    // 1: keep every operator apart (for comparison)
    const char *backend;   // NULL: the best there is
    hk_dtype float_type;   // HK_F32; HK_F64 on the reference backend only
    uint32_t thread_limit; // 0: the context's budget, less one of three or more
    uint32_t device;       // which one, of a backend with several
    hk_precision precision; // of its products
} hk_plan_options;

HK_API void hk_plan_options_init(hk_plan_options *opt, size_t struct_size);

// Compiles g. The plan keeps nothing of the graph, which may go or be
// compiled again for another batch size.
HK_API hk_status hk_plan_create(hk_graph *g, const hk_plan_options *opt,
                                hk_plan **out);

// The plan of a model from the context's cache, built when it is not there.
// The key is (build, tag, mode, params, plan options). tag: distinguishes
// models of one function; NULL counts as "". user: handed to build, not
// part of the key.
typedef struct hk_model {
    size_t struct_size; // set by hk_model_init
    hk_build_fn build;
    void *user;
    const char *tag;
    const hk_params *params; // copied where kept
} hk_model;

HK_API void hk_model_init(hk_model *m, size_t struct_size);
HK_API hk_status hk_plan_get(hk_context *ctx, const hk_model *model,
                             hk_mode mode, const hk_plan_options *opt,
                             hk_plan **out); // release it when done

HK_API hk_plan *hk_plan_retain(hk_plan *p);
HK_API void hk_plan_release(hk_plan *p);            // NULL is allowed
HK_API hk_layout *hk_plan_layout(const hk_plan *p); // borrowed

typedef struct hk_plan_info {
    const char *backend; // its name
    int64_t batch;
    double gflop;         // of one run
    size_t scratch_bytes; // of one session
    size_t step_count;    // kernels of one run
    uint32_t threads;     // library threads of a session
    hk_isa isa;
    hk_mode mode;
    uint32_t on_card; // 1: it computes on a graphics card
} hk_plan_info;

HK_API void hk_plan_get_info(const hk_plan *p, hk_plan_info *out);
// The plan for people: nodes, shapes, layouts, bytes, GFLOP. write is called
// with pieces of text.
HK_API hk_status hk_plan_dump(const hk_plan *p,
                              void (*write)(void *user, const char *text),
                              void *user);
// Initial values of all variables: a function of (seed, names) only. x has
// the layout's n floats.
HK_API hk_status hk_plan_init_values(const hk_plan *p, uint64_t seed, float *x);

// ---- sessions -------------------------------------------------------------

typedef struct hk_session_options {
    size_t struct_size;    // set by hk_session_options_init
    uint64_t seed;         // initial values and random operators
    uint32_t check_finite; // 1: name the first node with a NaN or infinity
    uint32_t pin;          // 1: pin the calling thread and library threads
    uint32_t first_cpu;    // with pin
    uint32_t profile;      // 1: keep time per node
} hk_session_options;

HK_API void hk_session_options_init(hk_session_options *opt,
                                    size_t struct_size);

// Values start as hk_plan_init_values(seed) says.
HK_API hk_status hk_session_create(hk_plan *p, const hk_session_options *opt,
                                   hk_session **out);
HK_API void hk_session_destroy(hk_session *s);        // NULL is allowed
HK_API hk_plan *hk_session_plan(const hk_session *s); // borrowed

// The flat vectors, in host memory, to read and to write. params has the
// layout's n floats; grads has grad_count (hk_session_get_info). Both stay in
// place for the session's life; where a backend has memory of its own they are
// up to date until the next run or step, and each call brings them there. NULL
// when its device was lost.
HK_API float *hk_session_params(hk_session *s);
HK_API float *hk_session_grads(hk_session *s);
// Runs on another vector (a center, an average) from now on: borrowed,
// the layout's n floats, NULL goes back to the session's own.
HK_API hk_status hk_session_bind_params(hk_session *s, float *x);

// Input by name: a float, int... tensor of the plan's shape. feed borrows t's
// memory until another feed; input gives the session's own memory to fill.
HK_API hk_status hk_session_feed(hk_session *s, const char *name,
                                 const hk_tensor *t);
HK_API hk_status hk_session_input(hk_session *s, const char *name,
                                  hk_tensor **out); // borrowed
HK_API hk_status hk_session_set_scalar(hk_session *s, const char *name,
                                       float value);
HK_API hk_status hk_session_get_scalar(const hk_session *s, const char *name,
                                       float *value);

// One pass: outputs and, in training, loss, gradients and state updates.
HK_API hk_status hk_session_run(hk_session *s);
HK_API float hk_session_loss(const hk_session *s); // of the last run
// Value of an output after a run: borrowed, overwritten by the next run (or, on
// a backend with memory of its own, by the next call).
HK_API hk_status hk_session_output(hk_session *s, const char *name,
                                   hk_tensor **out);

// The i-th sparse gradient of the last run (hk_sparse_grad: hooke/tensor.h);
// the indices are unique, in order of first use.
HK_API hk_status hk_session_sparse_grad(hk_session *s, size_t i,
                                        hk_sparse_grad *out);

typedef struct hk_session_info {
    int64_t grad_count; // floats of the gradient vector: n_dense of the layout,
                        // or n_train where a table's gradient is dense
    size_t sparse_count; // tables with sparse gradients
    uint64_t step;       // runs done so far: the state of random operators
} hk_session_info;

HK_API void hk_session_get_info(const hk_session *s, hk_session_info *out);
// Saving step and setting it repeats dropout.
HK_API void hk_session_set_step(hk_session *s, uint64_t step);

// Milliseconds per node, summed since creation (needs profile).
HK_API hk_status hk_session_profile(const hk_session *s,
                                    void (*write)(void *user, const char *text),
                                    void *user);

HK_END_C
#endif // HOOKE_SESSION_H
