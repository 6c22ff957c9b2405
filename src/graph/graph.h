// graph/graph.h - nodes, operators and what their files share.
//
// A call is one application of an operator; its outputs are the nodes users
// see. The same structures hold the symbolic graph (negative dimensions are
// multiples of the batch size) and the concrete one inside a plan.
#ifndef HKI_GRAPH_H
#define HKI_GRAPH_H
#include "backend/vector.h"
#include "base/base.h"
#include "hooke/graph.h"
#include "hooke/ops.h"
#include "hooke/session.h"
#include "tensor/tensor.h"

HKI_SCOPED_HANDLE(hk_graph, hk_graph_destroy)
HKI_SCOPED_HANDLE(hk_params, hk_params_destroy)
HKI_SCOPED_HANDLE(hk_plan, hk_plan_release)
HKI_SCOPED_HANDLE(hk_session, hk_session_destroy)

#define HKI_MAX_OUT 4
#define HKI_MAX_IN (HKI_MAX_ARGS - HKI_MAX_OUT)

typedef struct hki_call hki_call;
typedef struct hki_op hki_op;

struct hk_node {
    hki_call *call;
    int32_t index; // which output of the call
    hk_dtype dtype;
    hk_shape shape;
    hki_format format; // set by a plan's layout pass
};

struct hki_call {
    const hki_op *op;
    const char *name; // "dense/matmul_3"; unique in the graph
    hki_attr attr;
    int32_t n_in, n_out;
    hk_node *in[HKI_MAX_IN]; // NULL: absent optional input
    hk_node out[HKI_MAX_OUT];
    hki_call *next; // in creation order, which is a topological order
    uint32_t id;    // position in that order
    uint32_t mark;  // scratch for passes
};

// What a shape rule sees and fills. Dimensions may be negative: multiples of
// the batch size; plain multiplication and division keep that meaning as long
// as at most one factor is negative (hki_dim_mul checks).
typedef struct hki_infer {
    const char *name; // of the call, for messages
    hki_attr *attr;   // the rule may normalise it
    int n_in;
    const hki_tensor_desc *in; // dtype 0: absent
    int n_out;                 // preset to the operator's, may be lowered
    hki_tensor_desc *out;      // format is left alone
} hki_infer;

// What a gradient rule sees and fills: dx[i] for every input with need[i].
// NULL stays "no gradient". dy[o] is NULL where nothing depends on output o.
typedef struct hki_grad {
    hk_graph *g;
    hki_call *call;
    hk_node *const *dy; // per output
    const bool *need;   // per input
    hk_node **dx;       // per input
} hki_grad;

typedef enum hki_op_flags {
    HKI_OP_IS_ELEMENTWISE = 1, // out[0][i] depends on element i of each float
                               // input of the same shape; may be written over
                               // in[0]; the memory format does not matter
    HKI_OP_IS_RANDOM = 2,      // differs from run to run
    HKI_OP_IS_STATEFUL = 4,    // writes over in[0], a variable; a root
    HKI_OP_IS_SOURCE = 8,      // no kernel
    HKI_OP_IS_ALIAS = 16,      // out[0] is in[0] under another shape
    HKI_OP_IS_SPARSE = 32,     // outputs are (indices, rows, count)
    HKI_OP_MIXES_FORMATS = 64, // one of its images may be plain (three colours)
                               // while the others are blocked
    HKI_OP_IS_PRODUCT = 128, // inputs 0 and 1 are factors; attr.dtype HK_BF16:
                             // of that type (factors.c), the rest float32
    HKI_OP_IS_EXPORTED = 256 // may stand in an exported model: its shape rule
                             // refuses whatever a file may say
} hki_op_flags;

#define HKI_BIT(position) (1u << (position))

// One operator: its file defines one of these.
struct hki_op {
    const char *name;
    hki_opcode code;
    int16_t min_in, max_in, n_out; // inputs beyond min_in are optional
    uint32_t flags;
    hk_status (*infer)(hki_infer *c);
    void (*grad)(hki_grad *c); // NULL: nothing flows through
    hki_portable_fn run;       // NULL for sources and aliases
    hki_scratch_fn scratch;    // NULL: none
    // Floating-point operations, NULL: one per output element.
    double (*flop)(const hki_call *c);

    // Images [N,H,W,C] among the arguments (HKI_BIT of their positions): they
    // may be in a blocked format, all of one call in the same (format.c).
    uint32_t images_in, images_out;

    // What a call takes into itself (fuse.c); 0 where it takes nothing.
    uint32_t takes_act;   // HKI_BIT of each hki_unary_fn that attr.act may be
    int16_t residual;     // input for a tensor that is added to the result
    int16_t second_dy;    // input for the other term where dy is a sum of two
    hki_opcode with_bias; // the operator that it is with a vector added, which
                          // comes behind the inputs of this one

    // Names of the functions by attr.mode, for labels: "relu"; NULL: the
    // operator's own name.
    const char *const *modes;
    int n_modes;
    const char *mode_suffix; // "_grad"; NULL: none
};

// The functions whose derivative follows from the result.
#define HKI_ACTS                                                               \
    (HKI_BIT(HKI_U_RELU) | HKI_BIT(HKI_U_SIGMOID) | HKI_BIT(HKI_U_TANH))

// The first members of an entry: takes `least` to `most` inputs, gives `outs`.
#define HKI_OPERATOR(op_name, least, most, outs)                               \
    .name = #op_name, .code = HKI_OP_##op_name, .min_in = (least),             \
    .max_in = (most), .n_out = (outs)
// The same, with the rules that have its name: infer_dense, run_dense.
#define HKI_OPERATOR_RULES(op_name, least, most, outs)                         \
    HKI_OPERATOR(op_name, least, most, outs), .infer = infer_##op_name,        \
                                              .run = run_##op_name

#define HKI_DECLARE_OP(op_name) extern const hki_op hki_op_##op_name;
HKI_OPS(HKI_DECLARE_OP)
#undef HKI_DECLARE_OP

const hki_op *hki_op_by_code(hki_opcode code);

// ---- structural parameters ------------------------------------------------

typedef enum hki_param_type {
    HKI_PARAM_INT = 1,
    HKI_PARAM_FLOAT = 2,
    HKI_PARAM_STRING = 3
} hki_param_type;

typedef struct hki_param {
    char *name;
    hki_param_type type;
    int64_t i; // HKI_PARAM_INT
    double f;  // HKI_PARAM_FLOAT; of an INT the same number
    char *s;   // HKI_PARAM_STRING
} hki_param;

// A copy; of NULL an empty one.
hk_status hki_params_copy(const hk_params *src, hk_params **out);
size_t hki_params_count(const hk_params *p); // 0 for NULL
// The i-th, sorted by name; NULL past the end.
const hki_param *hki_params_item(const hk_params *p, size_t i);

// ---- building -------------------------------------------------------------

// Appends a call. Returns output 0, or NULL after an error (sticky). in may
// hold NULL for absent optional inputs; a NULL required input is how sticky
// errors travel, and is an error of its own when the graph has none yet. attr
// NULL: all zero.
hk_node *hki_emit(hk_graph *g, hki_opcode code, const hki_attr *attr,
                  hk_node *const *in, int n_in);
// The rows of a sparse gradient added into a dense tensor of n rows.
hk_node *hki_densify(hk_graph *g, hk_node *rows, int64_t n);
// Another output of the same call; NULL for NULL.
hk_node *hki_output_of(hk_node *x, int index);
// Records an error of the graph unless it has one; always returns NULL.
hk_node *hki_graph_fail(hk_graph *g, hk_status s, const char *fmt, ...)
    __attribute__((format(__printf__, 3, 4)));
bool hki_graph_ok(const hk_graph *g);
uint64_t hki_graph_new_stream(hk_graph *g); // for random operators
// Current scope prefix ("a/b/" or "").
const char *hki_graph_scope(const hk_graph *g);

// An object that lives and dies with the graph; one per graph.
void hki_graph_attach(hk_graph *g, void *object, void (*destroy)(void *));
void *hki_graph_attached(const hk_graph *g); // NULL: none
bool hki_graph_owns(const hk_graph *g, const hk_node *x);
// Did the model ask for the structural parameter, has it the run-time scalar?
bool hki_graph_reads(const hk_graph *g, const char *param);
bool hki_graph_has_scalar(const hk_graph *g, const char *name);
// loss + terms as one node; NULL without a loss.
hk_node *hki_total_loss(hk_graph *g);
// Name of the i-th run-time scalar; NULL past the end.
const char *hki_graph_scalar(const hk_graph *g, size_t i);

// Operators that layers and losses are built from.
// a / b, and 0 where b <= 0.
hk_node *hki_div_safe(hk_graph *g, hk_node *a, hk_node *b);
// x * scale + shift along the last axis.
hk_node *hki_affine(hk_graph *g, hk_node *x, hk_node *scale, hk_node *shift);
// Per element max(z,0) - z*l + ln(1 + e^-|z|), logits z, labels l.
hk_node *hki_sigmoid_xent(hk_graph *g, hk_node *logits, hk_node *labels);
// Per row: -log_softmax(logits)[label]; labels int32 or int64 [n].
hk_node *hki_sparse_softmax_xent(hk_graph *g, hk_node *logits, hk_node *labels);
// Per row: -sum labels * log_softmax(logits). Labels get no gradient.
hk_node *hki_softmax_xent(hk_graph *g, hk_node *logits, hk_node *labels);

// Short cuts used by operator files.
hk_node *hki_unary(hk_graph *g, hki_unary_fn fn, hk_node *x, double alpha,
                   double beta);
hk_node *hki_binary(hk_graph *g, hki_binary_fn fn, hk_node *a, hk_node *b);
hk_node *hki_sum_to(hk_graph *g, hk_node *x, hk_shape shape);
// A float scalar or full tensor of x's float type.
hk_node *hki_scalar_like(hk_graph *g, const hk_node *x, double value);
hk_node *hki_fill_like(hk_graph *g, const hk_node *x, double value);

// What a reader of a whole graph walks over: the calls in creation order
// (c->next), what they number as constants and scalars, and the outputs.
const hki_call *hki_graph_calls(const hk_graph *g);
const hk_tensor *hki_graph_constant(const hk_graph *g, int32_t index);
float hki_graph_scalar_default(const hk_graph *g, int32_t index);
const hk_node *hki_graph_output(const hk_graph *g, const char *name); // NULL

// ---- shape rules ----------------------------------------------------------

// Input i is float32 or float64.
hk_status hki_check_real(const hki_infer *c, int i);
// Always HK_OK: the last thing that many rules do.
hk_status hki_infer_out(const hki_infer *c, int o, hk_dtype t, hk_shape shape);

// ---- dimensions -----------------------------------------------------------

// Product of dimensions, at most one of which may be a batch multiple.
hk_status hki_dim_mul(const char *who, int64_t a, int64_t b, int64_t *out);
hk_status hki_dim_count(const char *who, hk_shape s, int64_t *out);
// Broadcast shape of a and b (NumPy's rule).
hk_status hki_broadcast(const char *who, hk_shape a, hk_shape b, hk_shape *out);
// Makes *axis non-negative.
hk_status hki_axis(const char *who, int32_t *axis, int rank);
// -k -> k * batch in every dimension.
hk_status hki_shape_concrete(hk_shape s, int64_t batch, hk_shape *out);

// ---- plans ----------------------------------------------------------------

// hk_plan_get in two halves. A graph of the cache lives as long as the
// context and is not to be built on. fits (NULL: always) looks at a graph
// that has the model's key; user is the model's. *built, *compiled: by this
// call.
typedef bool (*hki_graph_fits_fn)(void *user, const hk_graph *g);
hk_status hki_graph_get(hk_context *ctx, const hk_model *model, hk_mode mode,
                        hki_graph_fits_fn fits, hk_graph **out, bool *built);
hk_status hki_graph_plan(hk_context *ctx, hk_graph *g,
                         const hk_plan_options *opt, hk_plan **out,
                         bool *compiled);

// Does the entry get a gradient (dense or sparse) in this plan?
bool hki_plan_has_grad(const hk_plan *p, const hk_entry *e);

// The moving statistics that a training plan updates (hk_assign_moving with a
// momentum below 1), for their recalibration.
size_t hki_plan_n_moving(const hk_plan *p);
hk_status hki_plan_moving(const hk_plan *p, size_t i, const hk_entry **entry,
                          double *momentum);

// ---- sessions -------------------------------------------------------------

// What hk_session_get_info gives, one by one.
int64_t hki_session_grad_count(const hk_session *s);
size_t hki_session_sparse_count(const hk_session *s);
// All of them, hki_session_sparse_count; a device is waited for twice in all.
hk_status hki_session_sparse_grads(hk_session *s, hk_sparse_grad *out);
// The same where memory is apart, without waiting: their names, without rows,
// and where the rows are until the next run.
void hki_session_sparse_away(const hk_session *s, hk_sparse_grad *out,
                             hki_rows_away *away);
// Completes them by which rows they are of; a device is waited for once.
hk_status hki_session_sparse_indices(hk_session *s, hk_sparse_grad *out);
uint64_t hki_session_step(const hk_session *s);

// The session's own values and gradients, where they live.
hki_vector *hki_session_x(hk_session *s);
hki_vector *hki_session_gradient(hk_session *s);
// s runs on the values of another session of the same backend from now on, and
// is destroyed before it.
hk_status hki_session_share(hk_session *s, hk_session *from);

// Times of single nodes, of the last run with tracing on. Nodes that run side
// by side share one item, named after the first.
typedef struct hki_trace_item {
    const char *name;         // of the call
    const char *note;         // of the kernel
    int64_t begin_ns, end_ns; // monotonic clock; both 0: not run on its own
} hki_trace_item;

hk_status hki_session_trace(hk_session *s, bool on);
size_t hki_session_trace_count(const hk_session *s);
hki_trace_item hki_session_trace_item(const hk_session *s, size_t i);

#endif // HKI_GRAPH_H
