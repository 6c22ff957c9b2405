// fuzz_graph.c - a small machine that builds graphs from bytes.
//
// Every byte picks a builder; operands come from the nodes made so far. A
// graph that was accepted is compiled for the reference backend and run: no
// sequence of calls may crash, leak, or be accepted and then read outside its
// memory.
#include <stddef.h>
#include <stdint.h>
#include "graph/graph.h"
#include "hooke/context.h"
#include "hooke/graph.h"
#include "hooke/session.h"
#include "hooke/nn.h"

#define MAX_NODES 48
#define MAX_CALLS 64

typedef struct machine {
    const uint8_t *at, *end;
    hk_graph *g;
    hk_node *nodes[MAX_NODES];
    int n;
} machine;

static int next(machine *m) {
    return m->at < m->end ? *m->at++ : 0;
}

static hk_node *pick(machine *m) {
    return m->n > 0 ? m->nodes[next(m) % m->n] : NULL;
}

static int64_t small(machine *m) {
    return next(m) % 6 - 1; // -1 is the batch size, 0 an empty dimension
}

static hk_shape some_shape(machine *m) {
    int64_t d[5];
    const int rank = next(m) % 5;
    for (int i = 0; i < rank; i++)
        d[i] = small(m);
    return hk_shape_make(rank, d);
}

static hk_node *element_wise(machine *m, hk_node *a, hk_node *b) {
    hk_graph *g = m->g;
    switch (next(m) % 12) {
    case 0:
        return hk_add(g, a, b);
    case 1:
        return hk_mul(g, a, b);
    case 2:
        return hk_div(g, a, b);
    case 3:
        return hk_relu(g, a);
    case 4:
        return hk_exp(g, a);
    case 5:
        return hk_maximum(g, a, b);
    case 6:
        return hk_where(g, hk_compare(g, a, HK_LESS, b), a, b);
    case 7:
        return hk_cast(g, a, (hk_dtype)(next(m) % 9));
    case 8:
        return hk_dropout(g, a, hk_param_scalar(g, "rate", 0.5f));
    case 9:
        return hki_sigmoid_xent(g, a, b);
    case 10:
        return hk_pow(g, a, b);
    default:
        return hk_clip(g, a, -1, 1);
    }
}

static hk_node *moving(machine *m, hk_node *a, hk_node *b) {
    hk_graph *g = m->g;
    const int axis = next(m) % 5 - 1, other = next(m) % 4;
    int64_t begin[8], size[8];
    int perm[8];
    for (int i = 0; i < 8; i++) {
        begin[i] = next(m) % 3;
        size[i] = next(m) % 4 - 1;
        perm[i] = next(m) % 4;
    }
    hk_node *two[] = {a, b};
    switch (next(m) % 11) {
    case 0:
        return hk_reshape(g, a, some_shape(m));
    case 1:
        return hk_transpose(g, a, perm);
    case 2:
        return hk_concat(g, two, 2, axis);
    case 3:
        return hk_slice(g, a, begin, size);
    case 4:
        return hk_pad(g, a, begin, begin);
    case 5:
        return hk_gather(g, a, b, axis);
    case 6:
        return hk_one_hot(g, a, other, HK_F32);
    case 7:
        return hk_reduce_sum(g, a, (int[]){axis, other}, next(m) % 3, 0);
    case 8:
        return hk_reduce_max(g, a, (int[]){axis}, 1, 1);
    case 9:
        return hk_argmax(g, a, axis);
    default:
        return hk_broadcast_to(g, a, some_shape(m));
    }
}

static hk_node *heavy(machine *m, hk_node *a, hk_node *b) {
    hk_graph *g = m->g;
    hk_conv2d_options c;
    hk_conv2d_options_init(&c, sizeof c);
    c.stride[0] = next(m) % 3;
    c.dilation[1] = next(m) % 3;
    c.groups = next(m) % 3;
    c.padding = (hk_padding)(next(m) % 4);
    for (int i = 0; i < 4; i++)
        c.pad[i] = next(m) % 4 - 1;
    const hk_padding pad = (hk_padding)(next(m) % 3);
    const int k = next(m) % 4;
    switch (next(m) % 10) {
    case 0:
        return hk_matmul(g, a, b, k & 1, k & 2);
    case 1:
        return hk_dense(g, a, small(m), HK_ACT_RELU, NULL);
    case 2:
        return hk_conv2d(g, a, small(m), k, 2, HK_ACT_NONE, &c);
    case 3:
        return hk_max_pool(g, a, k, 2, 1, k, pad, HK_NHWC);
    case 4:
        return hk_avg_pool(g, a, 2, k, k, 1, pad, HK_NCHW);
    case 5:
        return hk_batch_norm(g, a, NULL);
    case 6:
        return hk_layer_norm(g, a, NULL);
    case 7:
        return hk_softmax(g, a);
    case 8:
        return hki_sparse_softmax_xent(g, a, b);
    default:
        return hk_embedding_bag(g, a, NULL, small(m), 2, NULL);
    }
}

static hk_node *source(machine *m) {
    static const char *const names[] = {"a", "b", "c", "d"};
    static const hk_dtype types[] = {HK_F32, HK_I32, HK_I64, HK_BOOL};
    const int i = next(m) % 4;
    switch (next(m) % 3) {
    case 0:
        return hk_input(m->g, names[i], types[next(m) % 4], some_shape(m));
    case 1:
        return hk_variable(m->g, names[i], some_shape(m), HK_TRAINABLE,
                           hk_init_make(HK_INIT_GLOROT_UNIFORM, 0, 0),
                           (uint32_t)next(m) % 2);
    default:
        return hk_constant_float(m->g, next(m) - 100);
    }
}

static void build(machine *m) {
    for (int i = 0; i < MAX_CALLS && m->at < m->end && m->n < MAX_NODES; i++) {
        const int what = next(m) % 4;
        hk_node *a = what ? pick(m) : NULL, *b = what ? pick(m) : NULL;
        hk_node *x = what == 0   ? source(m)
                     : what == 1 ? element_wise(m, a, b)
                     : what == 2 ? moving(m, a, b)
                                 : heavy(m, a, b);
        if (x == NULL)
            return;
        m->nodes[m->n++] = x;
    }
}

static void run(machine *m, int64_t batch) {
    hk_plan_options o;
    hk_plan_options_init(&o, sizeof o);
    o.batch = batch;
    o.threads = 1;
    o.backend = "reference";
    hk_plan *p;
    hk_session *s;
    if (hk_plan_create(m->g, &o, &p) != HK_OK)
        return;
    // Shapes multiply: leave the giants alone.
    hk_plan_info info;
    hk_plan_get_info(p, &info);
    if (info.scratch_bytes < ((size_t)1 << 24) && info.gflop < 0.05 &&
        hk_session_create(p, NULL, &s) == HK_OK) {
        (void)hk_session_run(s);
        hk_session_destroy(s);
    }
    hk_plan_release(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hk_context *ctx;
    if (size < 2 || hk_context_create(NULL, &ctx) != HK_OK)
        return 0;
    machine m = {.at = data + 2, .end = data + size};
    const hk_mode mode = data[0] % 2 ? HK_TRAIN : HK_EVAL;
    if (hk_graph_create(ctx, mode, NULL, &m.g) == HK_OK) {
        build(&m);
        if (m.n > 0 && hk_graph_status(m.g) == HK_OK) {
            hk_node *last = m.nodes[m.n - 1];
            hk_output(m.g, "y", last);
            if (hk_node_dtype(last) == HK_F32)
                hk_set_loss(m.g, hk_reduce_sum(m.g, last, NULL, 0, 0));
            run(&m, data[1] % 4);
        }
        hk_graph_destroy(m.g);
    }
    hk_context_destroy(ctx);
    return 0;
}
