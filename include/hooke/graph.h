// hooke/graph.h - models as graphs: inputs, variables, losses, gradients.
//
//     hk_node *x = hk_input(g, "x", HK_F32, hk_shape_make(2, (int64_t[]){
//                                                     HK_BATCH, 784}));
//     hk_node *h = hk_relu(g, hk_matmul(g, x, w, 0, 0));
//     hk_set_loss(g, hk_reduce_mean(g, hk_square(g, h), NULL, 0, 0));
//
// Building is sticky: after the first error every builder returns NULL and
// hk_graph_status() keeps the status and the message, so that a model reads
// like its formula and is checked once. Nodes belong to their graph. A graph
// is symbolic in the batch size (HK_BATCH).
//
// Operators are in hooke/ops.h, layers in hooke/nn.h; hooke/session.h compiles
// a graph and runs it.
//
// Threads: a graph serves one thread.
#ifndef HOOKE_GRAPH_H
#define HOOKE_GRAPH_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/context.h"
#include "hooke/status.h"
#include "hooke/tensor.h"

HK_BEGIN_C

typedef struct hk_graph hk_graph; // opaque
typedef struct hk_node hk_node;   // opaque; one symbolic tensor

typedef enum hk_mode { HK_TRAIN = 1, HK_EVAL = 2, HK_PREDICT = 3 } hk_mode;

// ---- graphs ---------------------------------------------------------------

// Builds the model for a mode into g. Errors of builder calls need no check:
// the caller looks at hk_graph_status() afterwards.
typedef hk_status (*hk_build_fn)(void *user, hk_graph *g, hk_mode mode);

typedef struct hk_params hk_params; // opaque; below

// An empty graph. params: copied; NULL for none.
HK_API hk_status hk_graph_create(hk_context *ctx, hk_mode mode,
                                 const hk_params *params, hk_graph **out);
HK_API void hk_graph_destroy(hk_graph *g); // NULL is allowed
HK_API hk_mode hk_graph_mode(const hk_graph *g);
// First error of any builder call; also sets hk_last_error() to its text.
HK_API hk_status hk_graph_status(const hk_graph *g);

// What the model is for.
HK_API void hk_set_loss(hk_graph *g, hk_node *loss); // one element
HK_API void hk_output(hk_graph *g, const char *name, hk_node *x);
// Adds a regularisation term; the compiled loss is loss + sum of the terms.
HK_API void hk_add_loss(hk_graph *g, hk_node *term);
// Runs a state update with every training step.
HK_API void hk_add_update(hk_graph *g, hk_node *update);

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

// a and b as the kind has them, 0 where it has none. HK_INIT_ARRAY is written
// (hk_init){.kind = HK_INIT_ARRAY, .values = v}.
HK_API hk_init hk_init_make(hk_init_kind kind, double a, double b);

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

// ---- structural parameters ------------------------------------------------

// hk_params: name -> int, float or string.

HK_API hk_status hk_params_create(hk_params **out);
HK_API void hk_params_destroy(hk_params *p); // NULL is allowed
HK_API hk_status hk_params_set_int(hk_params *p, const char *name, int64_t v);
HK_API hk_status hk_params_set_float(hk_params *p, const char *name, double v);
HK_API hk_status hk_params_set_string(hk_params *p, const char *name,
                                      const char *v);

// Structural parameters, with a default where the name was not set. A
// parameter of another type is an error of the graph.
HK_API int64_t hk_param_int(hk_graph *g, const char *name, int64_t dflt);
HK_API double hk_param_float(hk_graph *g, const char *name, double dflt);
HK_API const char *hk_param_string(hk_graph *g, const char *name,
                                   const char *dflt);
// A run-time scalar: a float32 scalar node that hk_session_set_scalar()
// changes without a new plan. The same name gives the same node.
HK_API hk_node *hk_param_scalar(hk_graph *g, const char *name, float dflt);

// ---- gradients ------------------------------------------------------------

// Restricts training to these variables (default: all trainable ones) and
// gives the gradient of the loss itself (default: 1). dloss may be NULL.
HK_API void hk_set_gradients(hk_graph *g, hk_node *const *vars, size_t n,
                             hk_node *dloss);
// d(sum of ys)/d(xs) as new nodes; dx[i] is NULL where x does not matter.
// dys: NULL, or one node (or NULL) per y.
HK_API void hk_gradients(hk_graph *g, hk_node *const *ys, hk_node *const *dys,
                         size_t n_y, hk_node *const *xs, size_t n_x,
                         hk_node **dx);

HK_END_C
#endif // HOOKE_GRAPH_H
