// onnx_operators.c - operators of a forward pass as ONNX operators.
//
// Images are [N,H,W,C] here and [N,C,H,W] there: convolutions and pools stand
// between two transpositions, which a run-time cancels where they meet.
#include <math.h>
#include "estimator/onnx/onnx_graph.h"

typedef struct op {
    hki_onnx *o;
    const hki_call *c;
    const hki_attr *a;
    const char *const *in;
    const char **out;
} op;

typedef const char *(*op_fn)(const op *p);

// ---- tools ------------------------------------------------------------------

static const char *number(const op *p, double v) {
    return hki_onnx_scalar(p->o, p->c->in[0]->dtype, v);
}

static const char *permuted(hki_onnx *o, const char *x, const int64_t *perm,
                            int rank) {
    const hki_onnx_call c = {
        .op = "Transpose",
        HKI_ONNX_IN(x),
        HKI_ONNX_ATTR(HKI_ONNX_LIST("perm", perm, (size_t)rank))};
    return hki_onnx_node(o, &c);
}

static const char *to_channels_first(hki_onnx *o, const char *x) {
    return permuted(o, x, (const int64_t[]){0, 3, 1, 2}, 4);
}

static const char *to_channels_last(hki_onnx *o, const char *x) {
    return permuted(o, x, (const int64_t[]){0, 2, 3, 1}, 4);
}

static const char *refuse(const op *p, const char *why) {
    return hki_onnx_fail(p->o,
                         hki_fail(HK_E_UNSUPPORTED,
                                  "the operator %s cannot be written as "
                                  "ONNX%s%s",
                                  p->c->op->name, why[0] ? ": " : "", why));
}

// ---- one element at a time --------------------------------------------------

// 0.5 x (1 + erf(x / sqrt 2))
static const char *gelu(const op *p, const char *x) {
    const char *const e =
        HKI_ONNX(p->o, "Erf", HKI_ONNX(p->o, "Mul", x, number(p, sqrt(0.5))));
    const char *const half = HKI_ONNX(p->o, "Mul", x, number(p, 0.5));
    return HKI_ONNX(p->o, "Mul", half, HKI_ONNX(p->o, "Add", e, number(p, 1)));
}

static const char *with_alpha(const op *p, const char *name, const char *x) {
    const hki_onnx_call c = {.op = name,
                             HKI_ONNX_IN(x),
                             HKI_ONNX_ATTR(HKI_ONNX_F("alpha", p->a->alpha))};
    return hki_onnx_node(p->o, &c);
}

static const char *apply(const op *p, int32_t fn, const char *x) {
    static const char *const names[HKI_U_COUNT] = {
        [HKI_U_RELU] = "Relu", [HKI_U_SIGMOID] = "Sigmoid",
        [HKI_U_TANH] = "Tanh", [HKI_U_SOFTPLUS] = "Softplus",
        [HKI_U_EXP] = "Exp",   [HKI_U_LOG] = "Log",
        [HKI_U_SQRT] = "Sqrt", [HKI_U_ABS] = "Abs",
        [HKI_U_NEG] = "Neg",   [HKI_U_SIGN] = "Sign",
        [HKI_U_NOT] = "Not",   [HKI_U_RECIPROCAL] = "Reciprocal"};
    switch (fn) {
    case HKI_U_NONE:
        return x;
    case HKI_U_LEAKY_RELU:
        return with_alpha(p, "LeakyRelu", x);
    case HKI_U_ELU:
        return with_alpha(p, "Elu", x);
    case HKI_U_GELU:
        return gelu(p, x);
    case HKI_U_SQUARE:
        return HKI_ONNX(p->o, "Mul", x, x);
    case HKI_U_CLIP:
        return HKI_ONNX(p->o, "Clip", x, number(p, p->a->alpha),
                        number(p, p->a->beta));
    case HKI_U_RSQRT:
        return HKI_ONNX(p->o, "Reciprocal", HKI_ONNX(p->o, "Sqrt", x));
    default:
        return names[fn] != NULL ? HKI_ONNX(p->o, names[fn], x) : refuse(p, "");
    }
}

static const char *unary(const op *p) {
    return apply(p, p->a->mode, p->in[0]);
}

// a / b, and 0 where b <= 0.
static const char *div_safe(const op *p) {
    const char *const zero = number(p, 0);
    const char *const good = HKI_ONNX(p->o, "Greater", p->in[1], zero);
    const char *const by =
        HKI_ONNX(p->o, "Where", good, p->in[1], number(p, 1));
    return HKI_ONNX(p->o, "Where", good, HKI_ONNX(p->o, "Div", p->in[0], by),
                    zero);
}

static const char *binary(const op *p) {
    static const char *const names[HKI_B_COUNT] = {
        [HKI_B_ADD] = "Add",
        [HKI_B_SUB] = "Sub",
        [HKI_B_MUL] = "Mul",
        [HKI_B_DIV] = "Div",
        [HKI_B_POW] = "Pow",
        [HKI_B_MAX] = "Max",
        [HKI_B_MIN] = "Min",
        [HKI_B_LESS] = "Less",
        [HKI_B_LESS_EQUAL] = "LessOrEqual",
        [HKI_B_GREATER] = "Greater",
        [HKI_B_GREATER_EQUAL] = "GreaterOrEqual",
        [HKI_B_EQUAL] = "Equal",
        [HKI_B_AND] = "And",
        [HKI_B_OR] = "Or"};
    const char *d;
    switch (p->a->mode) {
    case HKI_B_DIV_SAFE:
        return div_safe(p);
    case HKI_B_SQUARED_DIFF:
        d = HKI_ONNX(p->o, "Sub", p->in[0], p->in[1]);
        return HKI_ONNX(p->o, "Mul", d, d);
    case HKI_B_NOT_EQUAL:
        return HKI_ONNX(p->o, "Not",
                        HKI_ONNX(p->o, "Equal", p->in[0], p->in[1]));
    default:
        return names[p->a->mode] != NULL
                   ? HKI_ONNX(p->o, names[p->a->mode], p->in[0], p->in[1])
                   : refuse(p, "it belongs to a loss");
    }
}

static const char *where(const op *p) {
    return HKI_ONNX(p->o, "Where", p->in[HKI_WHERE_COND], p->in[HKI_WHERE_A],
                    p->in[HKI_WHERE_B]);
}

static const char *cast(const op *p) {
    return hki_onnx_cast(p->o, p->in[0], p->a->dtype);
}

static const char *same(const op *p) {
    return p->in[0];
}

// ---- shape and movement -----------------------------------------------------

static bool has_batch(const int64_t *dims, int rank) {
    for (int i = 0; i < rank; i++)
        if (dims[i] < 0)
            return true;
    return false;
}

// The one dimension that depends on the batch is worked out by the run-time.
static const char *reshape(const op *p) {
    int64_t dims[HK_MAX_RANK];
    for (int i = 0; i < p->a->rank; i++) {
        dims[i] = p->a->dims[i] < 0 ? -1 : p->a->dims[i];
        if (dims[i] == 0)
            return refuse(p, "a dimension is 0");
    }
    return HKI_ONNX(p->o, "Reshape", p->in[0],
                    hki_onnx_ints(p->o, dims, (size_t)p->a->rank));
}

static const char *transpose(const op *p) {
    return permuted(p->o, p->in[0], p->a->dims, p->a->rank);
}

static const char *slice(const op *p) {
    const hk_shape *const x = &p->c->in[0]->shape;
    int64_t begin[HK_MAX_RANK], end[HK_MAX_RANK], axes[HK_MAX_RANK];
    size_t n = 0;
    for (int i = 0; i < p->a->rank; i++) {
        if (p->a->dims[i] == 0 && p->a->dims2[i] == x->dim[i])
            continue; // all of it
        if (p->a->dims[i] < 0 || p->a->dims2[i] < 0 || x->dim[i] < 0)
            return refuse(p, "it slices the batch dimension");
        begin[n] = p->a->dims[i];
        end[n] = p->a->dims[i] + p->a->dims2[i];
        axes[n++] = i;
    }
    return n == 0 ? p->in[0]
                  : HKI_ONNX(p->o, "Slice", p->in[0],
                             hki_onnx_ints(p->o, begin, n),
                             hki_onnx_ints(p->o, end, n),
                             hki_onnx_ints(p->o, axes, n));
}

static const char *pad(const op *p) {
    const int rank = p->a->rank;
    int64_t pads[2 * HK_MAX_RANK];
    if (p->a->mode != 0 || has_batch(p->a->dims, rank) ||
        has_batch(p->a->dims2, rank))
        return refuse(p, "it pads the batch dimension");
    memcpy(pads, p->a->dims, (size_t)rank * sizeof *pads);
    memcpy(pads + rank, p->a->dims2, (size_t)rank * sizeof *pads);
    return HKI_ONNX(p->o, "Pad", p->in[0],
                    hki_onnx_ints(p->o, pads, 2 * (size_t)rank));
}

static const char *concat(const op *p) {
    const hki_onnx_call c = {.op = "Concat",
                             .in = p->in,
                             .n_in = (size_t)p->c->n_in,
                             HKI_ONNX_ATTR(HKI_ONNX_I("axis", p->a->axis))};
    return hki_onnx_node(p->o, &c);
}

static const char *gather(const op *p) {
    const hki_onnx_call c = {
        .op = "Gather",
        HKI_ONNX_IN(p->in[HKI_GATHER_TABLE], p->in[HKI_GATHER_INDICES]),
        HKI_ONNX_ATTR(HKI_ONNX_I("axis", p->a->axis))};
    return hki_onnx_node(p->o, &c);
}

static const char *behind(hki_onnx *o, const char *x) {
    return HKI_ONNX(o, "Unsqueeze", x,
                    hki_onnx_ints(o, (const int64_t[]){-1}, 1));
}

static const char *one_hot(const op *p) {
    const char *const wide =
        hki_onnx_cast(p->o, behind(p->o, p->in[0]), HK_I64);
    return hki_onnx_cast(
        p->o, HKI_ONNX(p->o, "Equal", wide, hki_onnx_range(p->o, p->a->n)),
        p->a->dtype);
}

// The shape as an int64 vector, with the batch's size where it belongs.
static const char *live_shape(const op *p) {
    const char *parts[HK_MAX_RANK];
    for (int i = 0; i < p->a->rank; i++) {
        const int64_t d = p->a->dims[i];
        const char *const size =
            hki_onnx_ints(p->o, &(const int64_t){d < 0 ? -d : d}, 1);
        parts[i] =
            d < 0 ? HKI_ONNX(p->o, "Mul", hki_onnx_batch(p->o), size) : size;
    }
    const hki_onnx_call c = {.op = "Concat",
                             .in = parts,
                             .n_in = (size_t)p->a->rank,
                             HKI_ONNX_ATTR(HKI_ONNX_I("axis", 0))};
    return hki_onnx_node(p->o, &c);
}

static const char *broadcast_to(const op *p) {
    if (p->a->mode != HKI_R_SUM)
        return refuse(p, "it belongs to a gradient");
    return p->a->rank == 0 ? p->in[0]
                           : HKI_ONNX(p->o, "Expand", p->in[0], live_shape(p));
}

// ---- reductions -------------------------------------------------------------

static const char *reduce(const op *p) {
    const bool keep = p->a->keep_dims != 0;
    int64_t axes[HK_MAX_RANK];
    size_t n = 0;
    for (int i = 0; i < p->c->in[0]->shape.rank; i++)
        if ((p->a->axes >> i & 1u) != 0)
            axes[n++] = i;
    if (n == 0)
        return p->in[0];
    return hki_onnx_reduce(p->o,
                           p->a->mode == HKI_R_SUM    ? "ReduceSum"
                           : p->a->mode == HKI_R_MEAN ? "ReduceMean"
                                                      : "ReduceMax",
                           p->in[0], axes, n, keep);
}

static const char *argmax(const op *p) {
    const hki_onnx_call c = {.op = "ArgMax",
                             HKI_ONNX_IN(p->in[0]),
                             HKI_ONNX_ATTR(HKI_ONNX_I("axis", p->a->axis),
                                           HKI_ONNX_I("keepdims", 0),
                                           HKI_ONNX_I("select_last_index", 0))};
    return hki_onnx_node(p->o, &c);
}

static const char *top_k(const op *p) {
    const hki_onnx_call c = {
        .op = "TopK",
        HKI_ONNX_IN(p->in[0], hki_onnx_ints(p->o, &p->a->n, 1)),
        HKI_ONNX_ATTR(HKI_ONNX_I("axis", -1)),
        .n_out = 2,
        .out = p->out};
    return hki_onnx_node(p->o, &c);
}

static const char *l2_loss(const op *p) {
    const char *const squares = HKI_ONNX(p->o, "Mul", p->in[0], p->in[0]);
    const hki_onnx_call c = {.op = "ReduceSum",
                             HKI_ONNX_IN(squares),
                             HKI_ONNX_ATTR(HKI_ONNX_I("keepdims", 0))};
    return HKI_ONNX(p->o, "Mul", hki_onnx_node(p->o, &c), number(p, 0.5));
}

// ---- linear algebra ---------------------------------------------------------

static const char *turned(const op *p, int i, bool turn) {
    const int rank = p->c->in[i]->shape.rank;
    int64_t perm[HK_MAX_RANK];
    if (!turn)
        return p->in[i];
    for (int k = 0; k < rank; k++)
        perm[k] = k;
    perm[rank - 2] = rank - 1;
    perm[rank - 1] = rank - 2;
    return permuted(p->o, p->in[i], perm, rank);
}

static const char *matmul(const op *p) {
    return HKI_ONNX(p->o, "MatMul", turned(p, 0, p->a->trans_a != 0),
                    turned(p, 1, p->a->trans_b != 0));
}

static const char *dense(const op *p) {
    const char *y =
        HKI_ONNX(p->o, "MatMul", p->in[HKI_DENSE_X], p->in[HKI_DENSE_W]);
    if (p->in[HKI_DENSE_B] != NULL)
        y = HKI_ONNX(p->o, "Add", y, p->in[HKI_DENSE_B]);
    return apply(p, p->a->act, y);
}

// ---- images -----------------------------------------------------------------

// Top, left, bottom, right.
#define PADS(a)                                                                \
    ((const int64_t[]){(a)->pad[0], (a)->pad[2], (a)->pad[1], (a)->pad[3]})
#define PAIR(x) ((const int64_t[]){(x)[0], (x)[1]})

static const char *conv2d(const op *p) {
    const char *const w =
        permuted(p->o, p->in[HKI_CONV_W], (const int64_t[]){3, 2, 0, 1}, 4);
    const char *const b = p->in[HKI_CONV_B];
    const hki_onnx_call c = {
        .op = "Conv",
        HKI_ONNX_IN(to_channels_first(p->o, p->in[HKI_CONV_X]), w,
                    b != NULL ? b : ""),
        HKI_ONNX_ATTR(HKI_ONNX_LIST("strides", PAIR(p->a->stride), 2),
                      HKI_ONNX_LIST("dilations", PAIR(p->a->dilation), 2),
                      HKI_ONNX_LIST("pads", PADS(p->a), 4),
                      HKI_ONNX_I("group", p->a->groups))};
    return apply(p, p->a->act, to_channels_last(p->o, hki_onnx_node(p->o, &c)));
}

static const char *pool(const op *p, const char *name) {
    const bool average = strcmp(name, "AveragePool") == 0;
    const hki_onnx_call c = {
        .op = name,
        HKI_ONNX_IN(to_channels_first(p->o, p->in[0])),
        HKI_ONNX_ATTR(HKI_ONNX_LIST("kernel_shape", PAIR(p->a->ksize), 2),
                      HKI_ONNX_LIST("strides", PAIR(p->a->stride), 2),
                      HKI_ONNX_LIST("pads", PADS(p->a), 4),
                      average
                          ? (hki_onnx_attr)HKI_ONNX_I("count_include_pad", 0)
                          : (hki_onnx_attr)HKI_ONNX_I("ceil_mode", 0))};
    return to_channels_last(p->o, hki_onnx_node(p->o, &c));
}

static const char *max_pool(const op *p) {
    return pool(p, "MaxPool");
}

static const char *avg_pool(const op *p) {
    return pool(p, "AveragePool");
}

static const char *global_avg_pool(const op *p) {
    return hki_onnx_reduce(p->o, "ReduceMean", p->in[0],
                           (const int64_t[]){1, 2}, 2, false);
}

// ---- normalisation and classification ---------------------------------------

static const char *affine(const op *p) {
    const char *y =
        HKI_ONNX(p->o, "Mul", p->in[HKI_AFFINE_X], p->in[HKI_AFFINE_SCALE]);
    y = HKI_ONNX(p->o, "Add", y, p->in[HKI_AFFINE_SHIFT]);
    if (p->in[HKI_AFFINE_RESIDUAL] != NULL)
        y = HKI_ONNX(p->o, "Add", y, p->in[HKI_AFFINE_RESIDUAL]);
    return apply(p, p->a->act, y);
}

static const char *layer_norm(const op *p) {
    const hki_onnx_call c = {.op = "LayerNormalization",
                             HKI_ONNX_IN(p->in[HKI_LAYER_X],
                                         p->in[HKI_LAYER_GAMMA],
                                         p->in[HKI_LAYER_BETA]),
                             HKI_ONNX_ATTR(HKI_ONNX_I("axis", -1),
                                           HKI_ONNX_F("epsilon", p->a->eps))};
    return hki_onnx_node(p->o, &c);
}

static const char *last_axis(const op *p, const char *name) {
    const hki_onnx_call c = {.op = name,
                             HKI_ONNX_IN(p->in[0]),
                             HKI_ONNX_ATTR(HKI_ONNX_I("axis", -1))};
    return hki_onnx_node(p->o, &c);
}

static const char *softmax(const op *p) {
    return last_axis(p, "Softmax");
}

static const char *log_softmax(const op *p) {
    return last_axis(p, "LogSoftmax");
}

// ---- embeddings -------------------------------------------------------------

// Rows by index, those of padding (-1) times 0; then their sum or mean.
static const char *embedding_bag(const op *p) {
    hki_onnx *const o = p->o;
    const char *const ids = hki_onnx_cast(o, p->in[HKI_BAG_INDEX], HK_I64);
    const char *const zero = hki_onnx_scalar(o, HK_I64, 0);
    const char *const good = HKI_ONNX(o, "GreaterOrEqual", ids, zero);
    const char *const rows = HKI_ONNX(o, "Gather", p->in[HKI_BAG_TABLE],
                                      HKI_ONNX(o, "Where", good, ids, zero));
    const char *share = hki_onnx_cast(o, good, HK_F32); // [n, k]
    if (p->in[HKI_BAG_WEIGHTS] != NULL)
        share = HKI_ONNX(o, "Mul", share, p->in[HKI_BAG_WEIGHTS]);
    const char *const sum = hki_onnx_reduce(
        o, "ReduceSum", HKI_ONNX(o, "Mul", rows, behind(o, share)),
        (const int64_t[]){1}, 1, false);
    if (p->a->mode == HK_BAG_SUM)
        return sum;
    const char *const total =
        hki_onnx_reduce(o, "ReduceSum", share, (const int64_t[]){1}, 1, true);
    const char *const none =
        HKI_ONNX(o, "Equal", total, hki_onnx_scalar(o, HK_F32, 0));
    const char *const by =
        HKI_ONNX(o, "Where", none, hki_onnx_scalar(o, HK_F32, 1), total);
    return HKI_ONNX(o, "Where", none, hki_onnx_scalar(o, HK_F32, 0),
                    HKI_ONNX(o, "Div", sum, by));
}

// ---- the table --------------------------------------------------------------

static const op_fn table[HKI_OP_COUNT] = {
    [HKI_OP_unary] = unary,
    [HKI_OP_binary] = binary,
    [HKI_OP_where] = where,
    [HKI_OP_cast] = cast,
    [HKI_OP_reshape] = reshape,
    [HKI_OP_transpose] = transpose,
    [HKI_OP_slice] = slice,
    [HKI_OP_pad] = pad,
    [HKI_OP_concat] = concat,
    [HKI_OP_gather] = gather,
    [HKI_OP_one_hot] = one_hot,
    [HKI_OP_broadcast_to] = broadcast_to,
    [HKI_OP_reduce] = reduce,
    [HKI_OP_argmax] = argmax,
    [HKI_OP_top_k] = top_k,
    [HKI_OP_l2_loss] = l2_loss,
    [HKI_OP_matmul] = matmul,
    [HKI_OP_dense] = dense,
    [HKI_OP_conv2d] = conv2d,
    [HKI_OP_max_pool] = max_pool,
    [HKI_OP_avg_pool] = avg_pool,
    [HKI_OP_global_avg_pool] = global_avg_pool,
    [HKI_OP_affine] = affine,
    [HKI_OP_layer_norm] = layer_norm,
    [HKI_OP_softmax] = softmax,
    [HKI_OP_log_softmax] = log_softmax,
    [HKI_OP_embedding_bag] = embedding_bag,
    [HKI_OP_identity] = same,
    [HKI_OP_stop_gradient] = same,
};

hk_status hki_onnx_operator(hki_onnx *o, const hki_call *c,
                            const char *const *in, const char **out) {
    const op p = {.o = o, .c = c, .a = &c->attr, .in = in, .out = out};
    const op_fn fn = table[c->op->code];
    out[0] = fn != NULL ? fn(&p) : refuse(&p, "");
    return o->status;
}
