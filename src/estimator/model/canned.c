// canned.c - linear, deep and wide & deep models with their heads.
#include "hooke/canned.h"
#include <math.h>
#include "estimator/estimator.h"

HKI_NO_TAIL(hk_canned_options, gradproc);

// What the model_fn reads; lives as long as the estimator.
struct hk_canned {
    hk_canned_options opt; // pointers are to the fields below
    hk_optimizer_options deep, linear;
    hk_gradproc_options gradproc; // where opt has one
    hk_schedule *schedules[2];
    int64_t *hidden;
    double *class_weights;
    char *label, *weight, *tag;
};

// ---- options --------------------------------------------------------------

void hk_canned_options_init(hk_canned_options *opt, size_t struct_size,
                            hk_canned_kind kind) {
    const hk_canned_options d = {.struct_size = sizeof d,
                                 .kind = kind,
                                 .activation = HK_ACT_RELU,
                                 .n_classes = 2,
                                 .target_scale = 1};
    hki_options_init(opt, struct_size, &d, sizeof d);
}

void hk_canned_model_destroy(hk_canned *c) {
    if (c == NULL)
        return;
    hk_feature_set_release(c->opt.features);
    hk_schedule_release(c->schedules[0]);
    hk_schedule_release(c->schedules[1]);
    hki_free(c->hidden);
    hki_free(c->class_weights);
    hki_free(c->label);
    hki_free(c->weight);
    hki_free(c->tag);
    hki_free(c);
}

static hk_status check_target(const hk_canned_options *o) {
    if ((unsigned)o->target > HK_TARGET_LOG1P || !isfinite(o->target_mean) ||
        !isfinite(o->target_scale) || !(o->target_scale > 0))
        return hki_fail(HK_E_INVALID_ARG,
                        "canned: target %d, mean %g or scale %g is out of "
                        "range; the scale has to be above 0",
                        (int)o->target, o->target_mean, o->target_scale);
    if (o->n_class_weights > 0 && (o->class_weights == NULL ||
                                   o->n_class_weights != (size_t)o->n_classes))
        return hki_fail(HK_E_INVALID_ARG,
                        "canned: %zu class weights for %lld classes",
                        o->n_class_weights, (long long)o->n_classes);
    for (size_t i = 0; i < o->n_class_weights; i++)
        if (!isfinite(o->class_weights[i]) || o->class_weights[i] < 0)
            return hki_fail(HK_E_INVALID_ARG,
                            "canned: class weight %zu is %g; it has to be "
                            "finite and at least 0",
                            i, o->class_weights[i]);
    return HK_OK;
}

static hk_status check(const hk_canned_options *o) {
    HKI_TRY(check_target(o));
    if (o->kind < HK_CANNED_LINEAR || o->kind > HK_CANNED_DNN_LINEAR)
        return hki_fail(HK_E_INVALID_ARG, "canned: unknown kind %d",
                        (int)o->kind);
    if (o->features == NULL)
        return hki_fail(HK_E_INVALID_ARG, "canned: features is NULL");
    if (o->n_classes < 0 || o->n_classes == 1)
        return hki_fail(HK_E_INVALID_ARG,
                        "canned: n_classes is %lld; it has to be 0 (regressor) "
                        "or at least 2",
                        (long long)o->n_classes);
    if (!(o->dropout >= 0 && o->dropout < 1))
        return hki_fail(HK_E_INVALID_ARG,
                        "canned: dropout is %g; it has to be in [0, 1)",
                        o->dropout);
    if (o->kind != HK_CANNED_LINEAR && (o->n_hidden == 0 || o->hidden == NULL))
        return hki_fail(HK_E_INVALID_ARG,
                        "canned: a deep model needs hidden units (hidden)");
    for (size_t i = 0; o->kind != HK_CANNED_LINEAR && i < o->n_hidden; i++)
        if (o->hidden[i] < 1)
            return hki_fail(
                HK_E_INVALID_ARG,
                "canned: hidden[%zu] is %lld; it has to be at least 1", i,
                (long long)o->hidden[i]);
    hk_feature_set_info set;
    size_t wide = 0, deep = 0;
    HKI_TRY(hk_feature_set_get_info(o->features, &set));
    for (size_t i = 0; i < set.output_count; i++) {
        wide += set.outputs[i].use == HK_USE_LINEAR;
        deep += set.outputs[i].use == HK_USE_DEEP;
    }
    if ((o->kind != HK_CANNED_DNN && wide == 0) ||
        (o->kind != HK_CANNED_LINEAR && deep == 0))
        return hki_fail(
            HK_E_INVALID_ARG,
            "canned: the model has %zu columns for the linear and %zu for the "
            "deep part; mark columns with hk_feature_use and %s",
            wide, deep, wide == 0 ? "HK_USE_LINEAR" : "HK_USE_DEEP");
    return HK_OK;
}

// TF's defaults: Adagrad for networks, Ftrl for linear models.
static void default_optimizers(hk_canned *c) {
    hk_feature_set_info set;
    size_t columns = 0;
    if (hk_feature_set_get_info(c->opt.features, &set) == HK_OK)
        for (size_t i = 0; i < set.output_count; i++)
            columns += set.outputs[i].use == HK_USE_LINEAR;
    hk_optimizer_options_init(&c->deep, sizeof c->deep, HK_OPT_ADAGRAD);
    c->deep.learning_rate = 0.05;
    hk_optimizer_options_init(&c->linear, sizeof c->linear, HK_OPT_FTRL);
    const double rate = columns > 0 ? 1 / sqrt((double)columns) : 0.2;
    c->linear.learning_rate = rate < 0.2 ? rate : 0.2;
}

static hk_status copy(hk_canned *c, const hk_canned_options *o) {
    c->opt = *o;
    c->opt.features = hk_feature_set_retain(o->features);
    HKI_TRY(hki_alloc_array(o->n_hidden, sizeof *c->hidden, &c->hidden));
    if (o->n_hidden > 0)
        memcpy(c->hidden, o->hidden, o->n_hidden * sizeof *c->hidden);
    c->opt.hidden = c->hidden;
    if (o->label != NULL)
        HKI_TRY(hki_strdup(o->label, &c->label));
    c->opt.label = c->label;
    if (o->weight != NULL)
        HKI_TRY(hki_strdup(o->weight, &c->weight));
    c->opt.weight = c->weight;
    const size_t n = o->n_class_weights;
    HKI_TRY(hki_alloc_array(n, sizeof *c->class_weights, &c->class_weights));
    if (n > 0)
        memcpy(c->class_weights, o->class_weights,
               n * sizeof *c->class_weights);
    c->opt.class_weights = c->class_weights;
    if (o->gradproc != NULL) {
        HKI_TRY(HKI_OPTIONS_GET(hk_gradproc_options, &c->gradproc, o->gradproc,
                                "canned: gradient processing"));
        c->opt.gradproc = &c->gradproc;
    }
    default_optimizers(c);
    const hk_optimizer_options *const given[2] = {o->optimizer,
                                                  o->linear_optimizer};
    hk_optimizer_options *const place[2] = {
        o->kind == HK_CANNED_LINEAR ? &c->linear : &c->deep, &c->linear};
    for (int i = 0; i < 2; i++) {
        if (given[i] == NULL)
            continue;
        HKI_TRY(hki_options_copy(place[i], sizeof *place[i], given[i],
                                 "canned: optimizer"));
        if (place[i]->schedule != NULL)
            c->schedules[i] = hk_schedule_retain(place[i]->schedule);
    }
    return HK_OK;
}

// Equal models have equal tags: everything that shapes the graph.
static hk_status make_tag(hk_canned *c) {
    HKI_SCOPED(hki_buf_deinit) hki_buf b = {0};
    const hk_canned_options *const o = &c->opt;
    hk_feature_set_info set;
    HKI_TRY(hk_feature_set_get_info(o->features, &set));
    HKI_TRY(hki_buf_printf(
        &b, "canned:%d:%d:%lld:%u:%a:%s:%016llx", (int)o->kind,
        (int)o->activation, (long long)o->n_classes, o->batch_norm, o->dropout,
        o->label != NULL ? o->label : "", (unsigned long long)set.fingerprint));
    for (size_t i = 0; i < o->n_hidden; i++)
        HKI_TRY(hki_buf_printf(&b, ":%lld", (long long)o->hidden[i]));
    HKI_TRY(hki_buf_printf(&b, ":%d,%d,%a,%a,%s", o->histograms != 0,
                           (int)o->target, o->target_mean, o->target_scale,
                           o->weight != NULL ? o->weight : ""));
    for (size_t i = 0; i < o->n_class_weights; i++)
        HKI_TRY(hki_buf_printf(&b, ",%a", o->class_weights[i]));
    // The spec holds them, too.
    uint64_t h = hki_hash(HKI_HASH_INIT, &c->deep, sizeof c->deep);
    h = hki_hash(h, &c->linear, sizeof c->linear);
    h = hki_hash(h, &c->gradproc, sizeof c->gradproc);
    HKI_TRY(hki_buf_printf(&b, ":%016llx", (unsigned long long)h));
    return hki_strdup(b.data, &c->tag);
}

// ---- the network ----------------------------------------------------------

static hk_node *deep_logits(hk_spec *m, const hk_canned *c, int64_t units) {
    hk_graph *const g = hki_spec_graph(m);
    hk_scope_enter(g, "dnn", 0);
    hk_scope_enter(g, "input_from_feature_columns", 0);
    hk_node *x = hk_input_layer(m, c->opt.features);
    hk_scope_pop(g);
    hk_dense_options o;
    hk_dense_options_init(&o, sizeof o);
    for (size_t i = 0; i < c->opt.n_hidden; i++) {
        char name[40], tag[64];
        snprintf(name, sizeof name, "hiddenlayer_%zu", i);
        o.name = name;
        x = hk_dense(g, x, c->hidden[i], c->opt.activation, &o);
        if (c->opt.histograms) {
            snprintf(tag, sizeof tag, "dnn/%s/activation", name);
            hk_spec_summary(m, HK_SUMMARY_HISTOGRAM, tag, x);
        }
        if (c->opt.batch_norm)
            x = hk_batch_norm(g, x, NULL);
        if (c->opt.dropout > 0 && hk_graph_mode(g) == HK_TRAIN)
            x = hk_dropout(
                g, x, hk_param_scalar(g, "dropout", (float)c->opt.dropout));
    }
    o.name = "logits";
    x = hk_dense(g, x, units, HK_ACT_NONE, &o);
    hk_scope_pop(g);
    return x;
}

static hk_node *linear_logits(hk_spec *m, const hk_canned *c, int64_t units) {
    hk_graph *const g = hki_spec_graph(m);
    hk_scope_enter(g, "linear", 0);
    hk_node *const x = hk_linear_model(m, c->opt.features, units);
    hk_scope_pop(g);
    return x;
}

// ---- heads ----------------------------------------------------------------

typedef struct head {
    hk_spec *m;
    hk_graph *g;
    hk_node *logits; // [batch, units]
    hk_node *label;  //  [batch, 1] as float, or class ids
    hk_node *target; // what the logits are to be: the label, or as it is learnt
    hk_node *weight; // of each example; NULL: 1
    hk_node *scores; // probability of class 1, or the value
    hk_node *classes;
} head;

static hk_node *column(hk_graph *g, hk_node *x) {
    return hk_reshape(g, x, hk_shape_make(2, (int64_t[]){HK_BATCH, 1}));
}

static hk_node *vector(hk_graph *g, hk_node *x) {
    return hk_reshape(g, x, hk_shape_make(1, (int64_t[]){HK_BATCH}));
}

static void predict_binary(head *h) {
    hk_graph *const g = h->g;
    hk_node *const p = hk_sigmoid(g, h->logits);
    hk_node *const both[2] = {hk_sub(g, hk_constant_float(g, 1), p), p};
    h->scores = p;
    h->classes = hk_cast(
        g, hk_compare(g, h->logits, HK_GREATER, hk_constant_float(g, 0)),
        HK_I64);
    hk_spec_prediction(h->m, "logistic", p);
    hk_spec_prediction(h->m, "probabilities", hk_concat(g, both, 2, 1));
    hk_spec_prediction(h->m, "class_ids", h->classes);
}

// A logarithm that leaves e^x finite in float32.
#define MOST_LOG 88.0

// From what is learnt to the unit of the label, and the other way.
static hk_node *in_unit(hk_graph *g, const hk_canned_options *o, hk_node *z) {
    if (o->target == HK_TARGET_RAW)
        return z;
    hk_node *const scaled = hk_mul(g, z, hk_constant_float(g, o->target_scale));
    hk_node *const y = hk_add(g, scaled, hk_constant_float(g, o->target_mean));
    if (o->target == HK_TARGET_STANDARD)
        return y;
    hk_node *const e = hk_exp(g, hk_clip(g, y, -MOST_LOG, MOST_LOG));
    return o->target == HK_TARGET_LOG ? e
                                      : hk_sub(g, e, hk_constant_float(g, 1));
}

static hk_node *as_learnt(hk_graph *g, const hk_canned_options *o, hk_node *y) {
    if (o->n_classes > 0 || o->target == HK_TARGET_RAW)
        return y;
    if (o->target == HK_TARGET_LOG1P)
        y = hk_add(g, y, hk_constant_float(g, 1));
    if (o->target != HK_TARGET_STANDARD)
        y = hk_log(g, y);
    y = hk_sub(g, y, hk_constant_float(g, o->target_mean));
    return hk_mul(g, y, hk_constant_float(g, 1 / o->target_scale));
}

static void predict(head *h, const hk_canned_options *o) {
    const int64_t n_classes = o->n_classes;
    if (n_classes == 0) {
        h->scores = in_unit(h->g, o, h->logits);
        hk_spec_prediction(h->m, "predictions", h->scores);
        return;
    }
    hk_spec_prediction(h->m, "logits", h->logits);
    if (n_classes == 2) {
        predict_binary(h);
        return;
    }
    h->classes = column(h->g, hk_argmax(h->g, h->logits, 1));
    hk_spec_prediction(h->m, "probabilities", hk_softmax(h->g, h->logits));
    hk_spec_prediction(h->m, "class_ids", h->classes);
}

// The example's own weight times that of its class, [batch, 1]; NULL: 1.
static hk_node *weight_of(const head *h, const hk_canned_options *o) {
    hk_graph *const g = h->g;
    hk_node *own = NULL, *by_class = NULL;
    if (o->weight != NULL)
        own = column(g, hk_cast(g, hk_label(h->m, o->weight), HK_F32));
    for (size_t i = 0; i < o->n_class_weights; i++) {
        hk_node *const is = hk_cast(
            g,
            hk_compare(g, h->label, HK_EQUAL, hk_constant_float(g, (double)i)),
            HK_F32);
        hk_node *const w =
            hk_mul(g, is, hk_constant_float(g, o->class_weights[i]));
        by_class = by_class != NULL ? hk_add(g, by_class, w) : w;
    }
    if (own != NULL && by_class != NULL)
        return hk_mul(g, own, by_class);
    return own != NULL ? own : by_class;
}

static void set_loss(head *h, int64_t n_classes) {
    hk_graph *const g = h->g;
    hk_node *loss;
    hk_loss_options o;
    hk_loss_options_init(&o, sizeof o);
    if (h->weight != NULL)
        o.reduction = HK_REDUCTION_MEAN; // one of weight 2 counts as two
    if (n_classes == 0)
        loss = hk_mean_squared_error(g, h->target, h->logits, h->weight, &o);
    else if (n_classes == 2)
        loss = hk_sigmoid_cross_entropy(g, h->label, h->logits, h->weight, &o);
    else
        loss = hk_sparse_softmax_cross_entropy(
            g, vector(g, hk_cast(g, h->label, HK_I64)), h->logits,
            h->weight != NULL ? vector(g, h->weight) : NULL, &o);
    hk_spec_loss(h->m, loss);
    hk_spec_metric(h->m, "average_loss", HK_METRIC_MEAN, NULL, loss, NULL,
                   NULL);
}

static void binary_metrics(const head *h) {
    hk_spec *const m = h->m;
    hk_metric_options pr;
    hk_metric_options_init(&pr, sizeof pr);
    pr.curve = HK_PR;
    pr.summation = HK_CAREFUL_INTERPOLATION;
    hk_spec_metric(m, "auc", HK_METRIC_AUC, h->label, h->scores, NULL, NULL);
    hk_spec_metric(m, "auc_precision_recall", HK_METRIC_AUC, h->label,
                   h->scores, NULL, &pr);
    hk_spec_metric(m, "precision", HK_METRIC_PRECISION, h->label, h->classes,
                   NULL, NULL);
    hk_spec_metric(m, "recall", HK_METRIC_RECALL, h->label, h->classes, NULL,
                   NULL);
}

static void regression_metrics(const head *h) {
    hk_spec *const m = h->m;
    hk_spec_metric(m, "rmse", HK_METRIC_RMSE, h->label, h->scores, NULL, NULL);
    hk_spec_metric(m, "mae", HK_METRIC_MAE, h->label, h->scores, NULL, NULL);
    hk_spec_metric(m, "r2", HK_METRIC_R2, h->label, h->scores, NULL, NULL);
}

static void metrics(const head *h, int64_t n_classes) {
    hk_spec *const m = h->m;
    if (n_classes == 0)
        regression_metrics(h);
    if (n_classes > 0)
        hk_spec_metric(m, "accuracy", HK_METRIC_ACCURACY,
                       hk_cast(h->g, h->label, HK_I64), h->classes, NULL, NULL);
    if (n_classes == 2)
        binary_metrics(h);
    if (n_classes == 0 || n_classes == 2) {
        hk_spec_metric(m, "label/mean", HK_METRIC_MEAN, NULL, h->label, NULL,
                       NULL);
        hk_spec_metric(m, "prediction/mean", HK_METRIC_MEAN, NULL, h->scores,
                       NULL, NULL);
    }
}

static hk_status train_with(hk_spec *m, const hk_canned *c) {
    if (c->opt.gradproc != NULL)
        hk_spec_gradproc(m, c->opt.gradproc);
    if (c->opt.kind == HK_CANNED_LINEAR)
        return hk_spec_optimizer_options(m, &c->linear);
    hk_optimizer_options o = c->deep;
    if (c->opt.kind == HK_CANNED_DNN_LINEAR) {
        o.other = &c->linear;
        o.other_prefix = "linear/";
    }
    return hk_spec_optimizer_options(m, &o);
}

static hk_status model_fn(hk_graph *g, hk_mode mode, hk_spec *m) {
    const hk_canned *const c = hk_spec_user(m);
    const int64_t n = c->opt.n_classes, units = n > 2 ? n : 1;
    head h = {.m = m, .g = g};
    if (c->opt.kind != HK_CANNED_LINEAR)
        h.logits = deep_logits(m, c, units);
    if (c->opt.kind != HK_CANNED_DNN) {
        hk_node *const wide = linear_logits(m, c, units);
        h.logits = h.logits != NULL ? hk_add(g, h.logits, wide) : wide;
    }
    predict(&h, &c->opt);
    if (mode == HK_PREDICT)
        return hk_graph_status(g);
    h.label = column(g, hk_cast(g, hk_label(m, c->opt.label), HK_F32));
    h.target = as_learnt(g, &c->opt, h.label);
    h.weight = weight_of(&h, &c->opt);
    set_loss(&h, n);
    if (mode == HK_EVAL)
        metrics(&h, n);
    if (mode == HK_TRAIN)
        HKI_TRY(train_with(m, c));
    return hk_graph_status(g);
}

// ---- create ---------------------------------------------------------------

HKI_SCOPED_HANDLE(hk_canned, hk_canned_model_destroy)

hk_status hk_canned_model_create(const hk_canned_options *opt,
                                 hk_canned **out) {
    if (opt == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "canned: options or out is NULL");
    hk_canned_options o;
    hk_canned_options_init(&o, sizeof o, HK_CANNED_DNN);
    HKI_TRY(hki_options_copy(&o, sizeof o, opt, "canned options"));
    HKI_TRY(check(&o));
    HKI_SCOPED(hk_canned_model_destroy_at) hk_canned *c = NULL;
    HKI_TRY(hki_zalloc_array(1, sizeof *c, &c));
    HKI_TRY(copy(c, &o));
    HKI_TRY(make_tag(c));
    return HKI_HAND_ON(out, c);
}

void hk_canned_fill(hk_canned *c, hk_estimator_options *opt) {
    opt->model_fn = model_fn;
    opt->user = c;
    opt->tag = c->tag;
}

static void free_model(void *user) {
    hk_canned_model_destroy(user);
}

hk_status hk_canned_create(hk_context *ctx, const hk_canned_options *opt,
                           const hk_estimator_options *base,
                           hk_estimator **out) {
    hk_estimator_options e;
    hk_estimator_options_init(&e, sizeof e);
    if (base != NULL)
        HKI_TRY(
            hki_options_copy(&e, sizeof e, base, "canned: estimator options"));
    hk_canned *c;
    HKI_TRY(hk_canned_model_create(opt, &c));
    hk_canned_fill(c, &e);
    e.user_free = free_model;
    const hk_status s = hk_estimator_create(ctx, &e, out);
    if (s != HK_OK)
        hk_canned_model_destroy(c);
    return s;
}
