// hk_ops.h - one operator (or a few) as a small model: cases, and the machine
// that builds, feeds, runs and differentiates them.
//
// A case names its inputs by text: "B,3" is [batch, 3], "" a scalar,
// "i64:B,2" an int64 tensor (i32, u8, bool). Float inputs get values from a
// fixed stream. The model is loss = sum(w * y) with a further input w of y's
// shape, so that its gradients are those of y weighted by w.
#ifndef HK_OPS_H
#define HK_OPS_H
#include "hk_test.h"
#include "graph/graph.h"
#include "hooke/graph.h"
#include "hooke/ops.h"
#include "hooke/session.h"

#define OPS_MAX 16

// An operator, or a few, as a builder.
#define OP(name, expr)                                                         \
    static hk_node *name(hk_graph *g, hk_node *const *x) {                     \
        return expr;                                                           \
    }

#define V(...) ((const double[]){__VA_ARGS__})
#define NONE V(0) // values of an empty tensor
#define DIMS(...) ((const int64_t[]){__VA_ARGS__})
#define AXES(...) ((const int[]){__VA_ARGS__})
#define SHAPE(...)                                                             \
    hk_shape_make((int)(sizeof DIMS(__VA_ARGS__) / sizeof(int64_t)),           \
                  DIMS(__VA_ARGS__))

enum {
    OPS_NOT_EMPTY = 1, // a batch of 0 is an error
    OPS_LARGE = 2,     // too many elements for differences
    OPS_TABLE = 4,     // input 0 is a table: may have sparse gradients
    OPS_DOUBLE = 8     // float64 on the way, which cards refuse
};

typedef hk_node *(*ops_build)(hk_graph *g, hk_node *const *x);

typedef struct ops_case {
    const char *name;
    ops_build build;
    const char *x[OPS_MAX];
    double low, high;  // of float inputs; both 0: -2 .. 2
    int64_t below;     // integers are 0 .. below - 1
    uint32_t constant; // bit i: no gradient reaches input i
    uint32_t flags;    // OPS_...
} ops_case;

typedef struct ops_options {
    const char *backend;
    hk_isa isa;
    hk_dtype type; // HK_F32, HK_F64
    int64_t batch;
    bool no_fusion;
    bool variables; // float inputs are trainable variables instead
    bool sparse;    // the table, too, and its gradient is sparse
} ops_options;

typedef struct ops_run {
    ops_options o;
    int n_x;
    hk_context *ctx;
    hk_graph *graph;
    hk_plan *plan;
    hk_session *session;
    hk_node *x[OPS_MAX], *dx[OPS_MAX], *y;
} ops_run;

// ---- inputs -----------------------------------------------------------------

static inline hk_dtype ops_dtype(const char *text) {
    static const struct {
        const char *prefix;
        hk_dtype t;
    } types[] = {
        {"i64:", HK_I64}, {"i32:", HK_I32}, {"u8:", HK_U8}, {"bool:", HK_BOOL}};
    for (size_t i = 0; i < HKI_COUNT(types); i++)
        if (strncmp(text, types[i].prefix, strlen(types[i].prefix)) == 0)
            return types[i].t;
    return HK_F32;
}

// batch < 0 leaves batch dimensions symbolic.
static inline hk_shape ops_shape(const char *text, int64_t batch) {
    hk_shape s = {0};
    const char *at = strchr(text, ':');
    for (at = at != NULL ? at + 1 : text; *at != '\0'; at += *at == ',') {
        char *end;
        const int64_t k = *at == 'B' ? 1 : strtoll(at, &end, 10);
        at = *at == 'B' ? at : end;
        const bool multiple = *at == 'B';
        at += multiple;
        s.dim[s.rank++] = !multiple ? k : batch < 0 ? -k : k * batch;
    }
    return s;
}

static inline bool ops_symbolic(const ops_case *c) {
    for (int i = 0; i < OPS_MAX && c->x[i] != NULL; i++)
        if (strchr(c->x[i], 'B') != NULL)
            return true;
    return false;
}

// Values that float32 holds exactly, apart from the kinks at 0 and +-1.
static inline double ops_value(const ops_case *c, hki_rng *r) {
    const double low = c->low == c->high ? -2.0 : c->low;
    const double high = c->low == c->high ? 2.0 : c->high;
    double v = low + (high - low) * hki_rng_uniform(r);
    if (fabs(v) < 0.02 || fabs(fabs(v) - 1.0) < 0.02)
        v += 0.05;
    return (double)(float)v;
}

static inline hki_rng ops_stream(const ops_case *c, int input) {
    hki_rng r;
    hki_rng_init(&r, hki_hash(HKI_HASH_INIT, c->name, strlen(c->name)),
                 (uint64_t)input);
    return r;
}

static inline void ops_fill(const ops_case *c, int input, hk_dtype t,
                            void *data, int64_t count) {
    hki_rng r = ops_stream(c, input);
    for (int64_t i = 0; i < count; i++) {
        if (t == HK_F64)
            ((double *)data)[i] = ops_value(c, &r);
        else if (t == HK_F32)
            ((float *)data)[i] = (float)ops_value(c, &r);
        else if (t == HK_I32)
            ((int32_t *)data)[i] =
                (int32_t)hki_rng_below(&r, (uint64_t)c->below);
        else
            ((int64_t *)data)[i] =
                (int64_t)hki_rng_below(&r, (uint64_t)c->below);
    }
}

// ---- model ------------------------------------------------------------------

static inline hk_node *ops_variable(hk_graph *g, const ops_case *c, int i,
                                    hk_shape shape, uint32_t flags) {
    char name[16];
    int64_t count;
    float *values;
    assert_ok(hk_shape_count(shape, &count));
    assert_ok(hki_zalloc_array((size_t)count, sizeof *values, &values));
    ops_fill(c, i, HK_F32, values, count);
    snprintf(name, sizeof name, "x%d", i);
    hk_node *const x =
        hk_variable(g, name, shape, HK_TRAINABLE,
                    (hk_init){.kind = HK_INIT_ARRAY, .values = values}, flags);
    hki_free(values);
    return x;
}

// The dense form of a gradient: tables get theirs as (indices, rows, count).
static inline hk_node *ops_dense(hk_graph *g, hk_node *x, hk_node *dx) {
    if (dx == NULL || (dx->call->op->flags & HKI_OP_IS_SPARSE) == 0)
        return dx;
    return hki_densify(g, dx, x->shape.dim[0]);
}

static inline void ops_model(ops_run *r, const ops_case *c) {
    hk_graph *const g = r->graph;
    char name[16];
    for (r->n_x = 0; r->n_x < OPS_MAX && c->x[r->n_x] != NULL; r->n_x++) {
        const int i = r->n_x;
        const hk_dtype t = ops_dtype(c->x[i]);
        const bool variable = r->o.variables && t == HK_F32;
        const hk_shape s = ops_shape(c->x[i], r->o.variables ? r->o.batch : -1);
        snprintf(name, sizeof name, "x%d", i);
        const uint32_t flags = i == 0 && r->o.sparse ? HK_VAR_SPARSE : 0;
        r->x[i] = variable ? ops_variable(g, c, i, s, flags)
                           : hk_input(g, name, t, s);
    }
    r->y = c->build(g, r->x);
    assert_ok(hk_graph_status(g));
    hk_node *const w = hk_input(g, "w", HK_F32, hk_node_shape(r->y));
    hk_node *const loss = hk_reduce_sum(g, hk_mul(g, r->y, w), NULL, 0, 0);
    hk_output(g, "y", r->y);
    hk_output(g, "loss", loss);
    // A training plan wants a variable that the loss depends on.
    hk_node *const v = hk_variable(g, "v", hk_shape_make(0, NULL), HK_TRAINABLE,
                                   hk_init_make(HK_INIT_ONES, 0, 0), 0);
    hk_set_loss(g, hk_add(g, r->o.variables ? loss : v, v));
    if (!r->o.variables) {
        hk_node *xs[OPS_MAX], *dx[OPS_MAX];
        int at[OPS_MAX];
        size_t n = 0;
        for (int i = 0; i < r->n_x; i++)
            if (hk_node_dtype(r->x[i]) == HK_F32) {
                at[n] = i;
                xs[n++] = r->x[i];
            }
        hk_gradients(g, &r->y, (hk_node *const[]){w}, 1, xs, n, dx);
        for (size_t i = 0; i < n; i++) {
            r->dx[at[i]] = ops_dense(g, xs[i], dx[i]);
            if (dx[i] == NULL)
                continue;
            snprintf(name, sizeof name, "dx%d", at[i]);
            hk_output(g, name, r->dx[at[i]]);
        }
    }
    assert_ok(hk_graph_status(g));
}

// Fills every input of the session from the case's streams.
static inline void ops_feed(ops_run *r, const ops_case *c) {
    char name[16];
    hk_tensor *t;
    for (int i = 0; i <= r->n_x; i++) {
        snprintf(name, sizeof name, i < r->n_x ? "x%d" : "w", i);
        if (i < r->n_x && r->o.variables && ops_dtype(c->x[i]) == HK_F32)
            continue;
        assert_ok(hk_session_input(r->session, name, &t));
        ops_fill(c, i, hk_tensor_dtype(t), hk_tensor_data(t),
                 hk_tensor_count(t));
    }
}

static inline hk_status ops_open(ops_run *r, const ops_case *c,
                                 const ops_options *o) {
    *r = (ops_run){.o = *o};
    hk_context_options co;
    hk_context_options_init(&co, sizeof co);
    co.threads = 2;
    co.isa = o->isa;
    assert_ok(hk_context_create(&co, &r->ctx));
    assert_ok(hk_graph_create(r->ctx, HK_TRAIN, NULL, &r->graph));
    ops_model(r, c);
    hk_plan_options po;
    hk_plan_options_init(&po, sizeof po);
    po.batch = o->batch;
    po.backend = o->backend;
    po.float_type = o->type;
    po.no_fusion = o->no_fusion;
    po.precision = HK_PRECISION_FP32;
    HKI_TRY(hk_plan_create(r->graph, &po, &r->plan));
    HKI_TRY(hk_session_create(r->plan, NULL, &r->session));
    ops_feed(r, c);
    return HK_OK;
}

// Where models run in float32: every backend, at every level of kernels.
typedef struct ops_target {
    const char *backend;
    hk_isa isa;
} ops_target;

__attribute__((unused)) static const ops_target ops_targets[] = {
    {"reference", HK_ISA_AUTO},   {"apart", HK_ISA_AUTO},
    {"cuda-played", HK_ISA_AUTO},
#ifdef HKI_HAVE_ONEDNN
    {"onednn", HK_ISA_BASE},      {"onednn", HK_ISA_V3},
    {"onednn", HK_ISA_V4},
#endif
};

static inline bool ops_target_here(size_t i) {
    return i < HKI_COUNT(ops_targets) && ops_targets[i].isa <= hki_isa_best();
}

static inline bool ops_target_takes(const ops_target *t, const ops_case *c) {
    return (c->flags & OPS_DOUBLE) == 0 || strcmp(t->backend, "cuda-played");
}

static inline void ops_close(ops_run *r) {
    hk_session_destroy(r->session);
    hk_plan_release(r->plan);
    hk_graph_destroy(r->graph);
    hk_context_destroy(r->ctx);
}

// Runs with the random state of the first step.
static inline hk_status ops_step(ops_run *r) {
    hk_session_set_step(r->session, 0);
    return hk_session_run(r->session);
}

static inline double ops_elem(const hk_tensor *t, int64_t i) {
    const void *const p = hk_tensor_data(t);
    switch (hk_tensor_dtype(t)) {
    case HK_F32:
        return (double)((const float *)p)[i];
    case HK_F64:
        return ((const double *)p)[i];
    case HK_I32:
        return ((const int32_t *)p)[i];
    case HK_I64:
        return (double)((const int64_t *)p)[i];
    case HK_U8:
    case HK_BOOL:
        return ((const uint8_t *)p)[i];
    default:
        return NAN;
    }
}

static inline double ops_loss(ops_run *r) {
    hk_tensor *t;
    assert_ok(ops_step(r));
    assert_ok(hk_session_output(r->session, "loss", &t));
    return ops_elem(t, 0);
}

// ---- nets by hand -----------------------------------------------------------

// A model of a case's own making: inputs, then what the test adds.
typedef struct ops_net {
    hk_context *ctx;
    hk_graph *graph;
    hk_plan *plan;
    hk_session *session;
    hk_node *x[OPS_MAX];
    int n_x;
} ops_net;

static inline void ops_net_inputs(ops_net *m, hk_mode mode,
                                  const char *const *x) {
    char name[16];
    *m = (ops_net){0};
    assert_ok(hk_context_create(NULL, &m->ctx));
    assert_ok(hk_graph_create(m->ctx, mode, NULL, &m->graph));
    for (; m->n_x < OPS_MAX && x[m->n_x] != NULL; m->n_x++) {
        snprintf(name, sizeof name, "x%d", m->n_x);
        m->x[m->n_x] = hk_input(m->graph, name, ops_dtype(x[m->n_x]),
                                ops_shape(x[m->n_x], -1));
    }
    assert_ok(hk_graph_status(m->graph));
}

static inline hk_status ops_net_compile(ops_net *m, const char *backend,
                                        int64_t batch) {
    hk_plan_options o;
    hk_plan_options_init(&o, sizeof o);
    o.batch = batch;
    o.backend = backend;
    o.threads = 1;
    HKI_TRY(hk_plan_create(m->graph, &o, &m->plan));
    return hk_session_create(m->plan, NULL, &m->session);
}

static inline void ops_put(const hk_tensor *t, int64_t i, double v) {
    void *const p = hk_tensor_data(t);
    switch (hk_tensor_dtype(t)) {
    case HK_F32:
        ((float *)p)[i] = (float)v;
        break;
    case HK_I32:
        ((int32_t *)p)[i] = (int32_t)v;
        break;
    case HK_I64:
        ((int64_t *)p)[i] = (int64_t)v;
        break;
    default:
        ((uint8_t *)p)[i] = (uint8_t)v;
        break;
    }
}

static inline void ops_net_feed(ops_net *m, const double *const *values) {
    char name[16];
    for (int k = 0; k < m->n_x; k++) {
        hk_tensor *t;
        snprintf(name, sizeof name, "x%d", k);
        assert_ok(hk_session_input(m->session, name, &t));
        for (int64_t i = 0; i < hk_tensor_count(t); i++)
            ops_put(t, i, values[k][i]);
    }
}

static inline void ops_net_deinit(ops_net *m) {
    hk_session_destroy(m->session);
    hk_plan_release(m->plan);
    hk_graph_destroy(m->graph);
    hk_context_destroy(m->ctx);
}

// Backends of this build.
__attribute__((unused)) static const char *const ops_backends[] = {
    "reference",
#ifdef HKI_HAVE_ONEDNN
    "onednn",
#endif
    "cuda-played",
};

#endif // HK_OPS_H
