// hooke/graph.h - models as graphs: build, differentiate, compile, run.
//
//     hk_node *x = hk_input(g, "x", HK_F32, hk_shape_make(2, (int64_t[]){
//                                                     HK_BATCH, 784}));
//     hk_node *h = hk_relu(g, hk_matmul(g, x, w, 0, 0));
//     hk_set_loss(g, hk_reduce_mean(g, hk_square(g, h), NULL, 0, 0));
//
// Building is sticky: after the first error every builder returns NULL and
// hk_graph_status() keeps the status and the message, so that a model reads
// like its formula and is checked once. Nodes belong to their graph.
//
// A graph is symbolic in the batch size (HK_BATCH). A plan is a graph
// compiled for one batch size, thread count and backend: immutable, shared by
// all threads. A session is one set of values that runs a plan.
//
// Threads: a graph serves one thread; plans are free for all; a session
// serves one thread at a time, different sessions of one plan run at once.
#ifndef HOOKE_GRAPH_H
#define HOOKE_GRAPH_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/context.h"
#include "hooke/status.h"
#include "hooke/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct hk_graph hk_graph;     // opaque
typedef struct hk_node hk_node;       // opaque; one symbolic tensor
typedef struct hk_plan hk_plan;       // opaque, reference-counted
typedef struct hk_session hk_session; // opaque

typedef enum hk_mode {
    HK_TRAIN = 1,
    HK_EVAL = 2,
    HK_PREDICT = 3
} hk_mode;

// ---- structural parameters ------------------------------------------------

typedef struct hk_params hk_params; // opaque; name -> int, float or string

HK_API hk_status hk_params_create(hk_params **out);
HK_API void hk_params_destroy(hk_params *p); // NULL is allowed
HK_API hk_status hk_params_set_int(hk_params *p, const char *name, int64_t v);
HK_API hk_status hk_params_set_float(hk_params *p, const char *name, double v);
HK_API hk_status hk_params_set_string(hk_params *p, const char *name,
                                      const char *v);
// A copy; of NULL an empty one.
HK_API hk_status hk_params_copy(const hk_params *src, hk_params **out);

typedef enum hk_param_type {
    HK_PARAM_INT = 1,
    HK_PARAM_FLOAT = 2,
    HK_PARAM_STRING = 3
} hk_param_type;

typedef struct hk_param {
    const char *name; // lives until the parameter is set again
    hk_param_type type;
    uint32_t reserved;
    int64_t i;     // HK_PARAM_INT
    double f;      // HK_PARAM_FLOAT; of an INT the same number
    const char *s; // HK_PARAM_STRING
} hk_param;

HK_API size_t hk_params_count(const hk_params *p); // 0 for NULL
// The i-th, sorted by name. HK_E_NOT_FOUND past the end.
HK_API hk_status hk_params_item(const hk_params *p, size_t i, hk_param *out);

// ---- graphs ---------------------------------------------------------------

// Builds the model for a mode into g. Errors of builder calls need no check:
// the caller looks at hk_graph_status() afterwards.
typedef hk_status (*hk_build_fn)(void *user, hk_graph *g, hk_mode mode);

// An empty graph. params: copied; NULL for none.
HK_API hk_status hk_graph_create(hk_context *ctx, hk_mode mode,
                                 const hk_params *params, hk_graph **out);
HK_API void hk_graph_destroy(hk_graph *g); // NULL is allowed
HK_API hk_mode hk_graph_mode(const hk_graph *g);
// First error of any builder call; also sets hk_last_error() to its text.
HK_API hk_status hk_graph_status(const hk_graph *g);

// Structural parameters, with a default where the name was not set. A
// parameter of another type is an error of the graph.
HK_API int64_t hk_param_int(hk_graph *g, const char *name, int64_t dflt);
HK_API double hk_param_float(hk_graph *g, const char *name, double dflt);
HK_API const char *hk_param_string(hk_graph *g, const char *name,
                                   const char *dflt);
// A run-time scalar: a float32 scalar node that hk_session_set_scalar()
// changes without a new plan. The same name gives the same node.
HK_API hk_node *hk_param_scalar(hk_graph *g, const char *name, float dflt);

// What the model is for.
HK_API void hk_set_loss(hk_graph *g, hk_node *loss); // one element
HK_API void hk_output(hk_graph *g, const char *name, hk_node *x);
// Adds a regularisation term; the compiled loss is loss + sum of the terms.
HK_API void hk_add_loss(hk_graph *g, hk_node *term);
// Runs a state update with every training step.
HK_API void hk_add_update(hk_graph *g, hk_node *update);
// loss + terms as one node, e.g. for display; NULL without a loss.
HK_API hk_node *hk_total_loss(hk_graph *g);
// Restricts training to these variables (default: all trainable ones) and
// gives the gradient of the loss itself (default: 1). dloss may be NULL.
HK_API void hk_set_gradients(hk_graph *g, hk_node *const *vars, size_t n,
                             hk_node *dloss);
// d(sum of ys)/d(xs) as new nodes; dx[i] is NULL where x does not matter.
// dys: NULL, or one node (or NULL) per y.
HK_API void hk_gradients(hk_graph *g, hk_node *const *ys, hk_node *const *dys,
                         size_t n_y, hk_node *const *xs, size_t n_x,
                         hk_node **dx);

HK_API hk_shape hk_node_shape(const hk_node *x); // rank -1 for NULL
HK_API hk_dtype hk_node_dtype(const hk_node *x);
HK_API const char *hk_node_name(const hk_node *x);

// ---- sources --------------------------------------------------------------

HK_API hk_node *hk_input(hk_graph *g, const char *name, hk_dtype t,
                         hk_shape shape);
HK_API hk_node *hk_constant(hk_graph *g, const hk_tensor *value);
HK_API hk_node *hk_constant_float(hk_graph *g, double value);
HK_API hk_node *hk_constant_int(hk_graph *g, int64_t value); // int64

typedef enum hk_init_kind {
    HK_INIT_ZEROS = 0,
    HK_INIT_ONES = 1,
    HK_INIT_CONSTANT = 2,         // a
    HK_INIT_NORMAL = 3,           // mean a, standard deviation b
    HK_INIT_TRUNCATED_NORMAL = 4, // as normal, redrawn beyond 2 deviations
    HK_INIT_UNIFORM = 5,          // a .. b
    HK_INIT_GLOROT_UNIFORM = 6,
    HK_INIT_GLOROT_NORMAL = 7,
    HK_INIT_HE_UNIFORM = 8,
    HK_INIT_HE_NORMAL = 9,
    HK_INIT_ORTHOGONAL = 10, // gain a
    HK_INIT_ARRAY = 11       // values, row-major
} hk_init_kind;

typedef struct hk_init {
    hk_init_kind kind;
    uint32_t reserved;
    double a, b;
    const float *values; // HK_INIT_ARRAY: copied, as many as the variable has
} hk_init;

HK_API hk_init hk_init_zeros(void);
HK_API hk_init hk_init_ones(void);
HK_API hk_init hk_init_constant(double value);
HK_API hk_init hk_init_normal(double mean, double stddev);
HK_API hk_init hk_init_truncated_normal(double mean, double stddev);
HK_API hk_init hk_init_uniform(double low, double high);
HK_API hk_init hk_init_glorot_uniform(void);
HK_API hk_init hk_init_glorot_normal(void);
HK_API hk_init hk_init_he_uniform(void);
HK_API hk_init hk_init_he_normal(void);
HK_API hk_init hk_init_orthogonal(double gain);
HK_API hk_init hk_init_array(const float *values);

typedef enum hk_var_flags {
    HK_VAR_SPARSE = 1 // gradients of this variable are sparse rows
} hk_var_flags;

// A variable `name` inside the current scopes, kept in the flat vector. A
// name that exists is an error unless the scope is a reusing one; then shape
// and kind must agree and the same node is returned.
HK_API hk_node *hk_variable(hk_graph *g, const char *name, hk_shape shape,
                            hk_kind kind, hk_init init, uint32_t flags);

// Name scopes: variables made inside get "scope/" in front of their names.
// push makes the name unique in its parent ("dense", "dense_1", ...);
// enter takes the name as it is and, with reuse != 0, shares its variables.
HK_API void hk_scope_push(hk_graph *g, const char *name);
HK_API void hk_scope_enter(hk_graph *g, const char *name, int reuse);
HK_API void hk_scope_pop(hk_graph *g);

// ---- operators ------------------------------------------------------------
//
// Binary operators broadcast as in NumPy. Axes count from 0, negative ones
// from the end. Shapes are given as int64_t arrays with a rank.

HK_API hk_node *hk_relu(hk_graph *g, hk_node *x);
HK_API hk_node *hk_leaky_relu(hk_graph *g, hk_node *x, double alpha);
HK_API hk_node *hk_elu(hk_graph *g, hk_node *x, double alpha);
HK_API hk_node *hk_gelu(hk_graph *g, hk_node *x);
HK_API hk_node *hk_sigmoid(hk_graph *g, hk_node *x);
HK_API hk_node *hk_tanh(hk_graph *g, hk_node *x);
HK_API hk_node *hk_softplus(hk_graph *g, hk_node *x);
HK_API hk_node *hk_exp(hk_graph *g, hk_node *x);
HK_API hk_node *hk_log(hk_graph *g, hk_node *x);
HK_API hk_node *hk_sqrt(hk_graph *g, hk_node *x);
HK_API hk_node *hk_rsqrt(hk_graph *g, hk_node *x);
HK_API hk_node *hk_reciprocal(hk_graph *g, hk_node *x);
HK_API hk_node *hk_abs(hk_graph *g, hk_node *x);
HK_API hk_node *hk_square(hk_graph *g, hk_node *x);
HK_API hk_node *hk_neg(hk_graph *g, hk_node *x);
HK_API hk_node *hk_sign(hk_graph *g, hk_node *x);
HK_API hk_node *hk_clip(hk_graph *g, hk_node *x, double low, double high);
HK_API hk_node *hk_logical_not(hk_graph *g, hk_node *x);

HK_API hk_node *hk_add(hk_graph *g, hk_node *a, hk_node *b);
HK_API hk_node *hk_sub(hk_graph *g, hk_node *a, hk_node *b);
HK_API hk_node *hk_mul(hk_graph *g, hk_node *a, hk_node *b);
HK_API hk_node *hk_div(hk_graph *g, hk_node *a, hk_node *b);
// a / b, and 0 where b <= 0.
HK_API hk_node *hk_div_safe(hk_graph *g, hk_node *a, hk_node *b);
HK_API hk_node *hk_pow(hk_graph *g, hk_node *a, hk_node *b);
HK_API hk_node *hk_maximum(hk_graph *g, hk_node *a, hk_node *b);
HK_API hk_node *hk_minimum(hk_graph *g, hk_node *a, hk_node *b);
HK_API hk_node *hk_squared_difference(hk_graph *g, hk_node *a, hk_node *b);
// Per element max(z,0) - z*l + ln(1 + e^-|z|), logits z, labels l.
HK_API hk_node *hk_sigmoid_xent(hk_graph *g, hk_node *logits, hk_node *labels);
HK_API hk_node *hk_less(hk_graph *g, hk_node *a, hk_node *b);
HK_API hk_node *hk_less_equal(hk_graph *g, hk_node *a, hk_node *b);
HK_API hk_node *hk_greater(hk_graph *g, hk_node *a, hk_node *b);
HK_API hk_node *hk_greater_equal(hk_graph *g, hk_node *a, hk_node *b);
HK_API hk_node *hk_equal(hk_graph *g, hk_node *a, hk_node *b);
HK_API hk_node *hk_not_equal(hk_graph *g, hk_node *a, hk_node *b);
HK_API hk_node *hk_logical_and(hk_graph *g, hk_node *a, hk_node *b);
HK_API hk_node *hk_logical_or(hk_graph *g, hk_node *a, hk_node *b);
// cond ? a : b, all broadcast.
HK_API hk_node *hk_where(hk_graph *g, hk_node *cond, hk_node *a, hk_node *b);
HK_API hk_node *hk_cast(hk_graph *g, hk_node *x, hk_dtype t);
HK_API hk_node *hk_identity(hk_graph *g, hk_node *x);
HK_API hk_node *hk_stop_gradient(hk_graph *g, hk_node *x);

// Reductions over the axes (NULL: all). keep_dims leaves size-1 dimensions.
HK_API hk_node *hk_reduce_sum(hk_graph *g, hk_node *x, const int *axes,
                              int n_axes, int keep_dims);
HK_API hk_node *hk_reduce_mean(hk_graph *g, hk_node *x, const int *axes,
                               int n_axes, int keep_dims);
HK_API hk_node *hk_reduce_max(hk_graph *g, hk_node *x, const int *axes,
                              int n_axes, int keep_dims);
HK_API hk_node *hk_argmax(hk_graph *g, hk_node *x, int axis); // int64
// k largest along the last axis, descending; ties: lower index first.
HK_API void hk_top_k(hk_graph *g, hk_node *x, int64_t k, hk_node **values,
                     hk_node **indices);             // int64
HK_API hk_node *hk_l2_loss(hk_graph *g, hk_node *x); // sum(x^2) / 2

// One dimension of dims may be -1 only in the sense of HK_BATCH; a dimension
// of 0 keeps its place only for empty tensors. hk_flatten keeps axis 0.
HK_API hk_node *hk_reshape(hk_graph *g, hk_node *x, hk_shape shape);
HK_API hk_node *hk_flatten(hk_graph *g, hk_node *x);
HK_API hk_node *hk_transpose(hk_graph *g, hk_node *x, const int *perm);
HK_API hk_node *hk_concat(hk_graph *g, hk_node *const *xs, int n, int axis);
HK_API void hk_split(hk_graph *g, hk_node *x, int n, int axis, hk_node **out);
// size -1: up to the end.
HK_API hk_node *hk_slice(hk_graph *g, hk_node *x, const int64_t *begin,
                         const int64_t *size);
HK_API hk_node *hk_pad(hk_graph *g, hk_node *x, const int64_t *before,
                       const int64_t *after);
HK_API hk_node *hk_gather(hk_graph *g, hk_node *x, hk_node *indices, int axis);
HK_API hk_node *hk_one_hot(hk_graph *g, hk_node *indices, int64_t depth,
                           hk_dtype t); // out-of-range: all zeros
HK_API hk_node *hk_broadcast_to(hk_graph *g, hk_node *x, hk_shape shape);

// Random values, new in every step, repeatable from the session's seed.
HK_API hk_node *hk_random_normal(hk_graph *g, hk_shape shape, double mean,
                                 double stddev);
HK_API hk_node *hk_random_uniform(hk_graph *g, hk_shape shape, double low,
                                  double high);
// Keeps each element with probability 1 - rate and scales by 1/(1 - rate).
// rate is a float32 scalar node; identity outside training.
HK_API hk_node *hk_dropout(hk_graph *g, hk_node *x, hk_node *rate);

// a [..., m, k] times b [..., k, n]; trans swaps the last two axes. Leading
// dimensions must agree.
HK_API hk_node *hk_matmul(hk_graph *g, hk_node *a, hk_node *b, int trans_a,
                          int trans_b);

typedef enum hk_act {
    HK_ACT_NONE = 0,
    HK_ACT_RELU = 1,
    HK_ACT_SIGMOID = 5,
    HK_ACT_TANH = 6,
    HK_ACT_ELU = 3,
    HK_ACT_GELU = 4,
    HK_ACT_SOFTPLUS = 7
} hk_act;

// act(x w + b): x [n, in], w [in, out], b [out] or NULL.
HK_API hk_node *hk_linear(hk_graph *g, hk_node *x, hk_node *w, hk_node *b,
                          hk_act act);

typedef enum hk_padding {
    HK_SAME = 0,
    HK_VALID = 1,
    HK_EXPLICIT = 2 // pad[] is used
} hk_padding;

typedef enum hk_data_format {
    HK_NHWC = 0,
    HK_NCHW = 1 // works; NHWC is what the kernels like
} hk_data_format;

typedef struct hk_conv_options {
    size_t struct_size;    // set by hk_conv_options_init
    int32_t stride[2];     // default 1, 1
    int32_t dilation[2];   // default 1, 1
    hk_padding padding;    // default HK_SAME
    int32_t pad[4];        // top, bottom, left, right
    int32_t groups;        // default 1
    hk_data_format format; // default HK_NHWC
    uint32_t reserved;
} hk_conv_options;

HK_API void hk_conv_options_init(hk_conv_options *opt, size_t struct_size);

// act(conv(x, w) + b): w [kh, kw, in / groups, out]; b [out] or NULL; opt NULL
// for defaults.
HK_API hk_node *hk_conv2d_op(hk_graph *g, hk_node *x, hk_node *w, hk_node *b,
                             hk_act act, const hk_conv_options *opt);

// Pooling windows [kh, kw]; average pooling does not count the padding.
HK_API hk_node *hk_max_pool(hk_graph *g, hk_node *x, int kh, int kw, int sh,
                            int sw, hk_padding padding, hk_data_format format);
HK_API hk_node *hk_avg_pool(hk_graph *g, hk_node *x, int kh, int kw, int sh,
                            int sw, hk_padding padding, hk_data_format format);
// [N,H,W,C] -> [N,C]
HK_API hk_node *hk_global_avg_pool(hk_graph *g, hk_node *x,
                                   hk_data_format format);

// Normalises over all axes but the last with the batch's own statistics;
// mean and variance (biased) come out as well (pass NULL if not wanted).
HK_API hk_node *hk_batch_norm_op(hk_graph *g, hk_node *x, hk_node *gamma,
                                 hk_node *beta, double eps, hk_node **mean,
                                 hk_node **variance);
// x * scale + shift along the last axis.
HK_API hk_node *hk_affine(hk_graph *g, hk_node *x, hk_node *scale,
                          hk_node *shift);
// Normalises each row of the last axis.
HK_API hk_node *hk_layer_norm_op(hk_graph *g, hk_node *x, hk_node *gamma,
                                 hk_node *beta, double eps);
// var += (1 - momentum) * (value - var), when run as an update.
HK_API hk_node *hk_assign_moving(hk_graph *g, hk_node *var, hk_node *value,
                                 double momentum);

HK_API hk_node *hk_softmax(hk_graph *g, hk_node *x);     // last axis
HK_API hk_node *hk_log_softmax(hk_graph *g, hk_node *x); // last axis
// Per row: -log_softmax(logits)[label]; labels int32 or int64 [n].
HK_API hk_node *hk_sparse_softmax_xent(hk_graph *g, hk_node *logits,
                                       hk_node *labels);
// Per row: -sum labels * log_softmax(logits). Labels get no gradient.
HK_API hk_node *hk_softmax_xent(hk_graph *g, hk_node *logits, hk_node *labels);

typedef enum hk_bag_mode {
    HK_BAG_SUM = 0,
    HK_BAG_MEAN = 1
} hk_bag_mode;

// Rows of table [rows, dim] by indices of any shape -> [..., dim].
HK_API hk_node *hk_embedding_lookup_op(hk_graph *g, hk_node *table,
                                       hk_node *indices);
// indices [n, k]: sum or mean of k rows each, -1 is padding; weights [n, k]
// or NULL (mean divides by the sum of weights).
HK_API hk_node *hk_embedding_bag_op(hk_graph *g, hk_node *table,
                                    hk_node *indices, hk_node *weights,
                                    hk_bag_mode mode);

// ---- plans ----------------------------------------------------------------

typedef struct hk_plan_options {
    size_t struct_size;  // set by hk_plan_options_init
    int64_t batch;       // batch size, >= 0
    uint32_t threads;    // library threads of a session; 0: context's budget
    uint32_t no_fusion;  // 1: keep every operator apart (for comparison)
    const char *backend; // NULL: the best there is
    hk_dtype float_type; // HK_F32; HK_F64 on the reference backend only
    uint32_t reserved;
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

typedef struct hk_build_stats {
    uint64_t graph_builds; // calls of a builder
    uint64_t plan_compilations;
    uint64_t plan_hits; // hk_plan_get calls answered from the cache
} hk_build_stats;

HK_API hk_build_stats hk_context_build_stats(hk_context *ctx);

HK_API hk_plan *hk_plan_retain(hk_plan *p);
HK_API void hk_plan_release(hk_plan *p);            // NULL is allowed
HK_API hk_layout *hk_plan_layout(const hk_plan *p); // borrowed
HK_API double hk_plan_gflop(const hk_plan *p);      // of one run
HK_API size_t hk_plan_scratch_bytes(const hk_plan *p);
// The plan for people: nodes, shapes, layouts, bytes, GFLOP. write is called
// with pieces of text.
HK_API hk_status hk_plan_dump(const hk_plan *p,
                              void (*write)(void *user, const char *text),
                              void *user);
// Initial values of all variables: a function of (seed, names) only. x has
// hk_layout_size floats, side hk_layout_side_bytes bytes (may be NULL if 0).
HK_API hk_status hk_plan_init_values(const hk_plan *p, uint64_t seed, float *x,
                                     void *side);

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

// The flat vectors. params has hk_layout_size floats; grads has
// hk_session_grad_size floats (hk_layout_dense, or hk_layout_train where a
// table's gradient is dense). Both stay in place for the session's life.
HK_API float *hk_session_params(hk_session *s);
HK_API void *hk_session_side(hk_session *s); // non-float values
HK_API float *hk_session_grads(hk_session *s);
HK_API int64_t hk_session_grad_size(const hk_session *s);
// Runs on another vector (a center, an average) from now on: borrowed,
// hk_layout_size floats, NULL goes back to the session's own.
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
// Value of an output after a run: borrowed, overwritten by the next run.
HK_API hk_status hk_session_output(hk_session *s, const char *name,
                                   hk_tensor **out);

// The sparse gradients of the last run (hk_sparse_grad: hooke/tensor.h); the
// indices are unique, in order of first use.
HK_API size_t hk_session_sparse_grads(const hk_session *s); // how many tables
HK_API hk_status hk_session_sparse_grad(hk_session *s, size_t i,
                                        hk_sparse_grad *out);
// 1 when the entry gets a gradient (dense or sparse) in this plan.
HK_API int hk_plan_has_grad(const hk_plan *p, const hk_entry *e);

// Random state: runs done so far. Saving and setting it repeats dropout.
HK_API uint64_t hk_session_step(const hk_session *s);
HK_API void hk_session_set_step(hk_session *s, uint64_t step);

// Milliseconds per node, summed since creation (needs profile).
HK_API hk_status hk_session_profile(const hk_session *s,
                                    void (*write)(void *user, const char *text),
                                    void *user);

#ifdef __cplusplus
}
#endif
#endif // HOOKE_GRAPH_H
