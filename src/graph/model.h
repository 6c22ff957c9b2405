// model.h - the inside of a graph, private to this folder.
#ifndef HKI_MODEL_H
#define HKI_MODEL_H
#include "graph/graph.h"

typedef struct hki_variable {
    const char *name; // with scopes
    hk_shape shape;
    hk_kind kind;
    uint32_t flags; // hk_var_flags
    hk_init init;   // values copied into the arena
    hk_node *node;  // NULL in a plan's graph where nothing reads it
} hki_variable;

typedef struct hki_named {
    const char *name;
    hk_node *node;
} hki_named;

typedef struct hki_scalar_slot {
    const char *name;
    float dflt;
    hk_node *node;
} hki_scalar_slot;

// Gradient of variable `var`: a dense node, or the rows output of a sparse
// call.
typedef struct hki_var_grad {
    int32_t var;
    hk_node *node;
} hki_var_grad;

typedef struct hki_scope {
    const char *prefix; // "a/b/"
    bool reuse;
} hki_scope;

typedef struct hki_scope_use {
    const char *name; // full scope name without the trailing slash
    uint32_t count;
} hki_scope_use;

struct hk_graph {
    hk_context *ctx;
    hk_mode mode;
    hk_dtype float_type; // HK_F32; HK_F64 in some plans
    hki_arena arena;
    hk_params *params;
    HKI_LIST(const char *) reads; // parameters the model asked for
    hk_status status;
    char error[1024];

    hki_call *first, *last;
    uint32_t n_calls;
    uint64_t n_streams;

    HKI_LIST(hki_variable) vars;
    HKI_LIST(hki_named) inputs;
    HKI_LIST(hki_named) outputs;
    HKI_LIST(hki_scalar_slot) scalars;
    HKI_LIST(hk_tensor *) constants;
    HKI_LIST(hk_node *) terms;   // regularisation
    HKI_LIST(hk_node *) updates; // state
    HKI_LIST(hki_var_grad) grads;
    HKI_LIST(int32_t) train_vars; // with some_vars
    bool some_vars;               // hk_set_gradients named them
    hk_node *loss, *dloss, *total;

    HKI_LIST(hki_scope) scopes;
    HKI_LIST(hki_scope_use) scope_uses;

    void *attached; // hki_graph_attach
    void (*attached_destroy)(void *);
};

// Keeps the thread's current message as the graph's error; returns NULL.
hk_node *hki_graph_keep_error(hk_graph *g, hk_status s);

hk_status hki_graph_new(hk_context *ctx, hk_mode mode, hk_graph **out);
// An empty graph with the sources' tables (variables, inputs, scalars,
// constants) of src, for a plan's next pass.
hk_status hki_graph_like(const hk_graph *src, hk_graph **out);

// Appends a call with inferred outputs; the lower half of hki_emit.
hk_status hki_append(hk_graph *g, hki_opcode code, const hki_attr *attr,
                     hk_node *const *in, int n_in, const char *name,
                     hki_call **out);

// What a kernel of the call has to do.
hki_kernel_desc hki_call_desc(const hki_call *c);

hk_node *hki_constant_node(hk_graph *g, hk_tensor *value); // retains value

hk_status hki_autodiff(hk_graph *g, hk_node *const *ys, hk_node *const *dys,
                       size_t n_y, hk_node *const *xs, size_t n_x,
                       hk_node **dx);

// Does p give every parameter that g's model asked for the value it had?
bool hki_params_match(const hk_graph *g, const hk_params *p);

const hki_param *hki_params_find(const hk_params *p, const char *name);

#endif // HKI_MODEL_H
