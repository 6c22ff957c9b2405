// model.c - the model_fn behind `layers`: one function per kind of layer.
#include <stdlib.h>
#include <string.h>
#include "experiment/csv_table.h"

typedef struct build {
    hk_graph *g;
    hk_mode mode;
    double l2;
    int dropouts; // so far, for their names
} build;

// ---- values of a layer ------------------------------------------------------

static hk_act activation(const tree *t) {
    static const struct {
        const char *name;
        hk_act act;
    } acts[] = {{"relu", HK_ACT_RELU}, {"sigmoid", HK_ACT_SIGMOID},
                {"tanh", HK_ACT_TANH}, {"elu", HK_ACT_ELU},
                {"gelu", HK_ACT_GELU}, {"softplus", HK_ACT_SOFTPLUS}};
    const char *name = tree_text(t, "none");
    for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++)
        if (strcmp(acts[i].name, name) == 0)
            return acts[i].act;
    return HK_ACT_NONE;
}

// One number for both, or two.
static void pair(const tree *t, int dflt, int out[2]) {
    out[0] = out[1] = (int)tree_int(t, dflt);
    if (t && t->kind == TREE_LIST && t->child) {
        out[0] = (int)tree_int(t->child, dflt);
        out[1] = (int)tree_int(t->child->next, out[0]);
    }
}

static hk_padding padding(const tree *t, const char *dflt) {
    return strcmp(tree_text(t, dflt), "same") == 0 ? HK_SAME : HK_VALID;
}

// ---- layers ----------------------------------------------------------------

static hk_node *dense(build *b, hk_node *x, const tree *t) {
    hk_dense_options o;
    hk_dense_options_init(&o, sizeof o);
    o.use_bias = tree_bool(tree_get(t, "bias"), true);
    o.kernel_regularizer.l2 = b->l2;
    const hk_shape shape = hk_node_shape(x);
    if (shape.rank > 2) // pictures enter as vectors
        x = hk_flatten(b->g, x);
    return hk_dense(b->g, x, tree_int(tree_get(t, "units"), 0),
                    activation(tree_get(t, "activation")), &o);
}

static hk_node *conv(build *b, hk_node *x, const tree *t) {
    hk_conv2d_options o;
    hk_conv2d_options_init(&o, sizeof o);
    int kernel[2], stride[2];
    pair(tree_get(t, "kernel"), 3, kernel);
    pair(tree_get(t, "stride"), 1, stride);
    o.stride[0] = stride[0];
    o.stride[1] = stride[1];
    o.padding = padding(tree_get(t, "padding"), "same");
    o.use_bias = tree_bool(tree_get(t, "bias"), true);
    o.kernel_regularizer.l2 = b->l2;
    return hk_conv2d(b->g, x, tree_int(tree_get(t, "filters"), 0), kernel[0],
                     kernel[1], activation(tree_get(t, "activation")), &o);
}

static hk_node *pool(build *b, hk_node *x, const tree *t) {
    int size[2], stride[2];
    pair(tree_get(t, "size"), 2, size);
    stride[0] = size[0];
    stride[1] = size[1];
    if (tree_get(t, "stride"))
        pair(tree_get(t, "stride"), 1, stride);
    const hk_padding p = padding(tree_get(t, "padding"), "valid");
    return strcmp(t->key, "max_pool") == 0
               ? hk_max_pool(b->g, x, size[0], size[1], stride[0], stride[1], p,
                             HK_NHWC)
               : hk_avg_pool(b->g, x, size[0], size[1], stride[0], stride[1], p,
                             HK_NHWC);
}

static hk_node *global_pool(build *b, hk_node *x, const tree *t) {
    (void)t;
    return hk_global_avg_pool(b->g, x, HK_NHWC);
}

static hk_node *flatten(build *b, hk_node *x, const tree *t) {
    (void)t;
    return hk_flatten(b->g, x);
}

static hk_node *reshape(build *b, hk_node *x, const tree *t) {
    const tree *dims = tree_get(t, "shape");
    hk_shape shape = {.rank = 1, .dim = {HK_BATCH}};
    if (dims && dims->kind == TREE_SCALAR)
        shape.dim[shape.rank++] = tree_int(dims, 0);
    for (const tree *c = dims ? dims->child : NULL;
         c && shape.rank < HK_MAX_RANK; c = c->next)
        shape.dim[shape.rank++] = tree_int(c, 0);
    return hk_reshape(b->g, x, shape);
}

static hk_node *act(build *b, hk_node *x, const tree *t) {
    switch (activation(tree_get(t, "function"))) {
    case HK_ACT_SIGMOID:
        return hk_sigmoid(b->g, x);
    case HK_ACT_TANH:
        return hk_tanh(b->g, x);
    case HK_ACT_ELU:
        return hk_elu(b->g, x, 1);
    case HK_ACT_GELU:
        return hk_gelu(b->g, x);
    case HK_ACT_SOFTPLUS:
        return hk_softplus(b->g, x);
    default:
        return hk_relu(b->g, x);
    }
}

// The rate is a run-time scalar, so that a sweep does not build anew.
static hk_node *dropout(build *b, hk_node *x, const tree *t) {
    char name[32];
    snprintf(name, sizeof name, b->dropouts ? "dropout_%d" : "dropout",
             b->dropouts);
    b->dropouts++;
    const float rate = (float)tree_float(tree_get(t, "rate"), 0.5);
    if (b->mode != HK_TRAIN)
        return x;
    return hk_dropout(b->g, x, hk_param_scalar(b->g, name, rate));
}

static hk_node *batch_norm(build *b, hk_node *x, const tree *t) {
    hk_batch_norm_options o;
    hk_batch_norm_options_init(&o, sizeof o);
    o.momentum = tree_float(tree_get(t, "momentum"), o.momentum);
    o.epsilon = tree_float(tree_get(t, "epsilon"), o.epsilon);
    return hk_batch_norm(b->g, x, &o);
}

static hk_node *layer_norm(build *b, hk_node *x, const tree *t) {
    hk_layer_norm_options o;
    hk_layer_norm_options_init(&o, sizeof o);
    o.epsilon = tree_float(tree_get(t, "epsilon"), o.epsilon);
    return hk_layer_norm(b->g, x, &o);
}

static hk_node *embedding(build *b, hk_node *x, const tree *t) {
    hk_embedding_options o;
    hk_embedding_options_init(&o, sizeof o);
    const int64_t rows = tree_int(tree_get(t, "rows"), 0);
    const int64_t dim = tree_int(tree_get(t, "dimension"), 16);
    const char *combiner = tree_text(tree_get(t, "combiner"), "none");
    if (strcmp(combiner, "none") == 0)
        return hk_embedding(b->g, x, rows, dim, &o);
    o.mode = strcmp(combiner, "sum") == 0 ? HK_BAG_SUM : HK_BAG_MEAN;
    return hk_embedding_bag(b->g, x, NULL, rows, dim, &o);
}

static hk_node *conv_norm(build *b, hk_node *x, int64_t filters, int size,
                          int stride) {
    hk_conv2d_options o;
    hk_conv2d_options_init(&o, sizeof o);
    o.stride[0] = o.stride[1] = stride;
    o.padding = HK_SAME;
    o.use_bias = 0;
    o.kernel_init = hk_init_make(HK_INIT_HE_NORMAL, 0, 0);
    o.kernel_regularizer.l2 = b->l2;
    hk_batch_norm_options n;
    hk_batch_norm_options_init(&n, sizeof n);
    n.momentum = 0.9;
    n.epsilon = 1e-5;
    return hk_batch_norm(
        b->g, hk_conv2d(b->g, x, filters, size, size, HK_ACT_NONE, &o), &n);
}

// He et al. 2015: relu(x + norm(conv(relu(norm(conv(x)))))); the shortcut is
// a 1 x 1 convolution where the shape changes.
static hk_node *residual(build *b, hk_node *x, const tree *t) {
    const int64_t filters = tree_int(tree_get(t, "filters"), 0);
    const int64_t blocks = tree_int(tree_get(t, "blocks"), 1);
    int stride = (int)tree_int(tree_get(t, "stride"), 1);
    for (int64_t i = 0; i < blocks && x; i++, stride = 1) {
        const hk_shape in = hk_node_shape(x);
        const int64_t channels = in.rank == 4 ? in.dim[3] : 0;
        hk_node *y = hk_relu(b->g, conv_norm(b, x, filters, 3, stride));
        y = conv_norm(b, y, filters, 3, 1);
        if (stride != 1 || channels != filters)
            x = conv_norm(b, x, filters, 1, stride);
        x = hk_relu(b->g, hk_add(b->g, x, y));
    }
    return x;
}

static const struct {
    const char *name;
    hk_node *(*fn)(build *b, hk_node *x, const tree *t);
} layers[] = {{"dense", dense},
              {"conv2d", conv},
              {"max_pool", pool},
              {"avg_pool", pool},
              {"global_avg_pool", global_pool},
              {"flatten", flatten},
              {"reshape", reshape},
              {"activation", act},
              {"dropout", dropout},
              {"batch_norm", batch_norm},
              {"layer_norm", layer_norm},
              {"embedding", embedding},
              {"residual", residual}};

static hk_node *add_layer(build *b, hk_node *x, const tree *t) {
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++)
        if (strcmp(layers[i].name, t->key) == 0)
            return layers[i].fn(b, x, t);
    return NULL;
}

// ---- loss and metrics ------------------------------------------------------

typedef enum task {
    CLASSES, // class numbers
    BINARY,  // 0 or 1 and one logit
    NUMBERS  // regression
} task;

// Labels and predictions of one shape: [n, 1] against [n].
static hk_node *like(hk_graph *g, hk_node *label, hk_node *z) {
    const hk_shape a = hk_node_shape(label), b = hk_node_shape(z);
    label = hk_cast(g, label, HK_F32);
    if (a.rank < b.rank)
        label = hk_reshape(g, label, b);
    return label;
}

static void losses(hk_spec *m, hk_graph *g, task kind, const char *name,
                   hk_node *y, hk_node *z) {
    hk_node *loss;
    if (kind == CLASSES)
        loss = hk_sparse_softmax_cross_entropy(g, y, z, NULL, NULL);
    else if (kind == BINARY)
        loss = hk_sigmoid_cross_entropy(g, like(g, y, z), z, NULL, NULL);
    else if (strcmp(name, "absolute_difference") == 0)
        loss = hk_absolute_difference(g, like(g, y, z), z, NULL, NULL);
    else if (strcmp(name, "huber") == 0)
        loss = hk_huber_loss(g, like(g, y, z), z, NULL, NULL);
    else
        loss = hk_mean_squared_error(g, like(g, y, z), z, NULL, NULL);
    hk_spec_loss(m, loss);
}

static const struct {
    const char *name;
    hk_metric_kind kind;
    bool scores; // takes probabilities, not classes
} metrics[] = {
    {"accuracy", HK_METRIC_ACCURACY, false},
    {"precision", HK_METRIC_PRECISION, false},
    {"recall", HK_METRIC_RECALL, false},
    {"auc", HK_METRIC_AUC, true},
    {"top5", HK_METRIC_TOP_K, true},
    {"mse", HK_METRIC_MSE, true},
    {"rmse", HK_METRIC_RMSE, true},
    {"mae", HK_METRIC_MAE, true},
    {"mean_per_class_accuracy", HK_METRIC_MEAN_PER_CLASS_ACCURACY, false}};

typedef struct outputs {
    task kind;
    hk_node *label, *scores, *classes;
    int64_t n_classes;
} outputs;

static void add_metric(hk_spec *m, hk_graph *g, const outputs *o,
                       const char *name) {
    for (size_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++) {
        if (strcmp(metrics[i].name, name) != 0)
            continue;
        hk_metric_options opt;
        hk_metric_options_init(&opt, sizeof opt);
        opt.num_classes = o->n_classes;
        opt.k = 5;
        hk_node *p = metrics[i].scores ? o->scores : o->classes;
        hk_node *y = o->label;
        if (o->kind == NUMBERS || metrics[i].kind == HK_METRIC_AUC)
            y = like(g, y, p);
        hk_spec_metric(m, name, metrics[i].kind, y, p, NULL, &opt);
        return;
    }
    // An unknown name: a metric without a prediction says so.
    hk_spec_metric(m, name, (hk_metric_kind)0, o->label, o->scores, NULL, NULL);
}

static void all_metrics(hk_spec *m, hk_graph *g, const outputs *o,
                        const tree *list) {
    if (!list && o->kind == NUMBERS) {
        add_metric(m, g, o, "mae");
        add_metric(m, g, o, "rmse");
    } else if (!list) {
        add_metric(m, g, o, "accuracy");
        if (o->kind == BINARY)
            add_metric(m, g, o, "auc");
    }
    for (const tree *c = tree_first(list); c; c = tree_next(list, c))
        add_metric(m, g, o, c->text);
}

// ---- the model_fn ----------------------------------------------------------

static task task_of(const char *loss) {
    return strcmp(loss, "softmax_cross_entropy") == 0   ? CLASSES
           : strcmp(loss, "sigmoid_cross_entropy") == 0 ? BINARY
                                                        : NUMBERS;
}

static void predictions(hk_spec *m, hk_graph *g, hk_node *z, outputs *o) {
    if (o->kind == CLASSES) {
        const hk_shape s = hk_node_shape(z);
        o->n_classes = s.rank > 0 ? s.dim[s.rank - 1] : 0;
        o->scores = hk_softmax(g, z);
        o->classes = hk_argmax(g, z, -1);
        hk_spec_prediction(m, "class", o->classes);
        hk_spec_prediction(m, "probabilities", o->scores);
    } else if (o->kind == BINARY) {
        o->n_classes = 2;
        o->scores = hk_sigmoid(g, z);
        o->classes = hk_cast(
            g, hk_compare(g, z, HK_GREATER, hk_constant_float(g, 0)), HK_I64);
        hk_spec_prediction(m, "class", o->classes);
        hk_spec_prediction(m, "probability", o->scores);
    } else {
        o->scores = o->classes = z;
        hk_spec_prediction(m, "predictions", z);
    }
}

// What comes out of layer n, as a histogram for TensorBoard.
static void draw_layer(hk_spec *m, int n, const char *kind, hk_node *x) {
    char tag[64];
    snprintf(tag, sizeof tag, "layers/%d_%s", n, kind);
    hk_spec_summary(m, HK_SUMMARY_HISTOGRAM, tag, x);
}

static hk_status build_model(hk_graph *g, hk_mode mode, hk_spec *m,
                             const model_user *u, const tree *t) {
    build b = {.g = g, .mode = mode, .l2 = tree_float(tree_get(t, "l2"), 0)};
    const table *rows = table_of(u->x);
    hk_node *x = rows && rows->features
                     ? hk_input_layer(m, rows->features)
                     : hk_feature(m, tree_text(tree_get(t, "input"), NULL));
    const bool drawn =
        mode == HK_TRAIN &&
        tree_bool(tree_path(u->x->root, "run.histograms"), false);
    int n = 0;
    for (const tree *item = tree_get(t, "layers")->child; item && x;
         item = item->next) {
        x = add_layer(&b, x, item->child);
        if (drawn)
            draw_layer(m, ++n, item->child->key, x);
    }
    const char *loss = tree_text(tree_get(t, "loss"), "softmax_cross_entropy");
    outputs o = {.kind = task_of(loss)};
    if (x)
        predictions(m, g, x, &o);
    if (mode == HK_PREDICT || !x)
        return hk_graph_status(g);
    o.label = hk_label(m, tree_text(tree_get(t, "label"), u->x->label_name));
    losses(m, g, o.kind, loss, o.label, x);
    if (mode == HK_EVAL)
        all_metrics(m, g, &o, tree_get(t, "metrics"));
    if (u->s->has_gradproc)
        hk_spec_gradproc(m, &u->s->gradproc);
    if (mode == HK_TRAIN)
        hk_spec_optimizer_options(m, &u->s->optimizer);
    return hk_graph_status(g);
}

hk_status model_fn(hk_graph *g, hk_mode mode, hk_spec *m) {
    const model_user *u = hk_spec_user(m);
    return build_model(g, mode, m, u, tree_get(u->x->root, "model"));
}
