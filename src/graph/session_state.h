// graph/session_state.h - what a session holds, for session.c, session_run.c
// and session_sparse.c.
#ifndef HKI_SESSION_STATE_H
#define HKI_SESSION_STATE_H
#include "graph/plan.h"

// In host memory kernels read `view`, which is own or a fed tensor's memory.
// Elsewhere they read own, and what is fed, or in `stage`, goes there.
typedef struct hki_input_slot {
    hki_buffer *own;   // the session's memory
    hki_buffer *view;  // in host memory
    void *stage;       // elsewhere
    hk_tensor *tensor; // over own, or stage
    hk_tensor *fed;    // retained while it is read
} hki_input_slot;

// Elsewhere: a sparse gradient in host memory.
typedef struct hki_sparse_stage {
    int64_t count;
    int64_t *indices;
    float *rows;
} hki_sparse_stage;

// calls[i], args[i * HKI_MAX_ARGS ...] and step_ns[i] belong to step i of the
// plan; inputs, outputs and scalar_values are numbered as the plan numbers
// them.
struct hk_session {
    hk_plan *plan;
    hk_session_options opt;
    hki_queue *queue;
    hki_place place; // of a device whose memory is apart
    bool apart;
    hki_vector params, grads;
    hki_vector bound; // over somebody's memory
    hki_vector *x;    // what runs use: params, bound, another session's
    hki_buffer *view; // in host memory: of x
    hki_buffer *scratch, *scalars;
    hki_input_slot *inputs;
    hki_write *writes; // inputs and scalars, of one run
    hk_tensor **outputs;
    void **output_stages;
    hki_sparse_stage *sparse;
    hki_read *sparse_reads; // two for each
    hki_buf look;           // what was last looked at
    float *scalar_values;
    void *scalar_stage;     // as kernels read them
    bool scalars_old;       // on the device
    hki_kernel_call *calls; // one per step of the plan
    hki_loc *args;          // HKI_MAX_ARGS per step
    size_t n_states;        // calls whose state exists
    hki_captured *captured; // all of them; NULL: not yet, or places changed
    bool has_early;         // which shows the loss before it is over
    int64_t *step_ns;
    int64_t *trace; // begin and end per step; NULL until it is asked for
    bool tracing;
    uint64_t step;
    float loss;
};

// Where a value of the plan is.
hki_loc hki_session_loc(const hk_session *s, hki_value_place at);
// Shows n bytes of a value as they are: in place, or copied to `stage` where
// the memory is apart.
hk_status hki_session_look(const hk_session *s, hki_value_place at, size_t n,
                           void *stage, const void **out);

#endif // HKI_SESSION_STATE_H
