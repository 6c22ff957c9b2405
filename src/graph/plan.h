// plan.h - the inside of plans, private to this folder and its tests.
//
// Compiling is a row of passes, each of which builds a new graph from the
// last one (hki_rebuild): make concrete and simplify, fuse the forward part,
// differentiate, simplify, round factors where products are to be in bf16, fuse
// again, choose image formats, place values in memory, create kernels.
#ifndef HKI_PLAN_H
#define HKI_PLAN_H
#include <stdatomic.h>
#include "graph/model.h"

// ---- rebuilding -----------------------------------------------------------

typedef struct hki_rebuild hki_rebuild;
typedef hk_status (*hki_emit_fn)(hki_rebuild *r, const hki_call *c,
                                 const hki_call *base);

// What a pass wants done with one call; zeroed: copy it.
typedef struct hki_action {
    bool skip;            // absorbed by another call
    hki_emit_fn emit;     // emits something else and maps the outputs
    const hki_call *base; // handed to emit
} hki_action;

typedef struct hki_rebuild_options {
    const hki_action *actions; // by call id, or NULL
    int64_t batch;             // -1: leave shapes alone
    hk_dtype float_type;       // 0: leave types alone
    bool drop_stops;           // stop_gradient has done its work
    // Copies a call in a pass's own way (NULL: simplified), and gives the new
    // node of a root (NULL: the one it was mapped to).
    hk_status (*copy)(hki_rebuild *r, const hki_call *c);
    hk_status (*root)(hki_rebuild *r, const hk_node *old, hk_node **out);
    void *user; // for both
} hki_rebuild_options;

// Invariant: when a call is copied, its inputs have been: map holds them.
struct hki_rebuild {
    const hki_rebuild_options *opt;
    const hk_graph *src;
    hk_graph *dst;
    hk_node **map;       // old (call, output) -> new node
    bool convert_floats; // to dst->float_type
    hki_call **table;    // common sub-expressions, by hash
    size_t table_size;   // a power of two
};

// Copies what the roots (loss, outputs, updates, gradients) need, simplified.
hk_status hki_rebuild_graph(const hk_graph *src, const hki_rebuild_options *o,
                            hk_graph **out);
// New node for an old one (NULL for NULL).
hk_node *hki_mapped(const hki_rebuild *r, const hk_node *old);
void hki_map(hki_rebuild *r, const hk_node *old, hk_node *now);
// All outputs of an old call are now those of another one.
void hki_map_call(hki_rebuild *r, const hki_call *old, hki_call *now);
// Appends to dst under the given name, sharing an equal call if there is one.
hk_status hki_rebuild_call(hki_rebuild *r, hki_opcode code,
                           const hki_attr *attr, hk_node *const *in, int n_in,
                           const char *name, hki_call **out);

// ---- passes ---------------------------------------------------------------

// Where a node stands in arrays of n_calls * HKI_MAX_OUT.
size_t hki_node_index(const hk_node *x);
// Uses of each node, roots counted: [n_calls * HKI_MAX_OUT], to be freed.
hk_status hki_count_uses(const hk_graph *g, uint32_t **out);
hk_status hki_pass_fuse_forward(const hk_graph *src, hk_graph **out,
                                bool *changed);
hk_status hki_pass_factors(const hk_graph *src, hk_graph **out);
hk_status hki_pass_fuse_backward(const hk_graph *src, hk_graph **out);
hk_status hki_pass_format(const hk_graph *src, const hki_backend *be,
                          const hki_device *dev, hk_graph **out);

// ---- memory ---------------------------------------------------------------

typedef enum hki_segment {
    HKI_SEG_NONE = 0, // absent
    HKI_SEG_SCRATCH = 1,
    HKI_SEG_PARAMS = 2,
    HKI_SEG_GRADS = 3,
    HKI_SEG_CONSTANTS = 4,
    HKI_SEG_SCALARS = 5,
    HKI_SEG_INPUT = 6 // + index: one buffer per input
} hki_segment;

#define HKI_SCALAR_BYTES 64 // each run-time scalar has a cache line

typedef struct hki_value_place {
    int32_t segment; // hki_segment, or HKI_SEG_INPUT + index
    uint32_t reserved;
    size_t offset; // bytes
} hki_value_place;

// Steps of one time are independent of each other and share no memory.
typedef struct hki_step {
    const hki_call *call;
    hki_kernel *kernel;
    uint32_t time;
    int32_t n_args;
    hki_value_place args[HKI_MAX_ARGS];
    hki_value_place scratch;
} hki_step;

typedef struct hki_plan_input {
    const char *name;
    hk_dtype dtype;
    hk_shape shape;
    size_t bytes;
} hki_plan_input;

typedef struct hki_plan_output {
    const char *name;
    hk_dtype dtype;
    hk_shape shape;
    hki_value_place place;
} hki_plan_output;

typedef struct hki_plan_sparse {
    const hk_entry *entry;
    hki_value_place indices, rows, count;
    int64_t capacity; // rows at most
} hki_plan_sparse;

struct hk_plan {
    atomic_uint refs;
    const hki_backend *backend;
    hki_device *device;
    hk_graph *graph; // concrete; owns names
    hk_layout *layout;
    hk_mode mode;
    int64_t batch;
    uint32_t threads;
    uint32_t card; // of the backend's devices
    hk_isa isa;
    hk_precision precision;
    size_t float_bytes; // 4 or 8
    int64_t n_grad;     // floats of the gradient vector
    double flop;

    hki_step *steps;
    size_t n_steps;
    hki_plan_input *inputs;
    size_t n_inputs;
    hki_plan_output *outputs;
    size_t n_outputs;
    hki_plan_sparse *sparse;
    size_t n_sparse;
    bool *has_grad; // by layout entry
    bool has_loss;
    hki_value_place loss;
    size_t scratch_bytes, const_bytes;
    size_t *const_offsets; // of each constant, in bytes
    hki_buffer *constants;
};

// Places every value of p->graph and fills steps' args, inputs, outputs,
// sparse, loss and sizes. Kernels exist already (their scratch is placed).
hk_status hki_plan_memory(hk_plan *p);

// A float64 session's values (double[hki_layout_size]); float32 ones' too.
void *hki_session_values(hk_session *s);
// Hooke's own view of one argument after a run, for checks and tests.
const void *hki_session_arg(hk_session *s, size_t step, int arg);

#endif // HKI_PLAN_H
