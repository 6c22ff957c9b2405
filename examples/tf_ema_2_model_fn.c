// tf_ema_2_model_fn.c - a moving average inside the model_fn, with the updates
// of batch norm before it.
//
// In TensorFlow 1:
//     update_ops = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
//     with tf.control_dependencies(update_ops):
//         train_op = optimizer.minimize(loss, global_step)
//     with tf.control_dependencies([train_op]):
//         train_op = ema.apply(tf.trainable_variables())
// A training step is an ordered list here: gradients with the state updates,
// optimizer, exchange, averages. Callbacks between them look at the values and
// at the shadows: the average runs after the optimizer and before the end.
#include <math.h>
#include "tf_common.h"

#define DECAY 0.99

// What callbacks compare with: values and shadows at the begin of the step.
typedef struct watch {
    hk_ema *ema; // the run's
    hk_layout *layout;
    int64_t n; // floats
    float *x, *shadow;
    int steps;
} watch;

static int same(const watch *w, const char *name, const float *a,
                const float *b) {
    const hk_entry *e = hk_layout_find(w->layout, name);
    return memcmp(a + e->offset, b + e->offset, (size_t)e->count * sizeof *a) ==
           0;
}

static const float *shadow_now(const watch *w) {
    hk_ema_info ema;
    CHECK(hk_ema_get_info(w->ema, &ema));
    return ema.values;
}

static hk_status at_begin(void *user, hk_step_info *info) {
    watch *w = user;
    const size_t bytes = (size_t)w->n * sizeof *w->x;
    memcpy(w->x, info->x, bytes);
    memcpy(w->shadow, shadow_now(w), bytes);
    return HK_OK;
}

// Gradients are there, and with them batch norm's update; nothing else.
static hk_status at_gradients(void *user, hk_step_info *info) {
    const watch *w = user;
    EXPECT(!same(w, "batch_normalization/moving_mean", w->x, info->x));
    EXPECT(same(w, "dense/kernel", w->x, info->x));
    return HK_OK;
}

// The optimizer has moved the weights; the shadows are as they were.
static hk_status at_updated(void *user, hk_step_info *info) {
    const watch *w = user;
    EXPECT(!same(w, "dense/kernel", w->x, info->x));
    EXPECT(same(w, "dense/kernel", w->shadow, shadow_now(w)));
    return HK_OK;
}

// The shadows have followed: s -= (1 - d) (s - x), weights and statistics.
static hk_status at_end(void *user, hk_step_info *info) {
    watch *w = user;
    const float *now = shadow_now(w);
    for (int64_t i = 0; i < w->n; i++) {
        const float moved = (float)(1 - DECAY) * (w->shadow[i] - info->x[i]);
        EXPECT(fabsf(now[i] - (w->shadow[i] - moved)) < 1e-6f);
    }
    w->steps++;
    return HK_OK;
}

static watch watched;

// A hook hands out the average, which the run owns.
static hk_status after_create_session(void *self, hk_run *run) {
    watch *w = self;
    hk_run_info i;
    CHECK(hk_run_get_info(run, &i));
    w->layout = hk_plan_layout(hk_session_plan(i.session));
    w->ema = i.ema;
    hk_layout_info model;
    CHECK(hk_layout_get_info(w->layout, &model));
    w->n = model.n;
    w->x = calloc((size_t)w->n, sizeof *w->x);
    w->shadow = calloc((size_t)w->n, sizeof *w->shadow);
    return HK_OK;
}

static hk_status model_fn(hk_graph *g, hk_mode mode, hk_spec *m) {
    hk_node *net = hk_flatten(g, hk_feature(m, "image"));
    net = hk_dense(g, net, 64, HK_ACT_NONE, NULL);
    net = hk_relu(g, hk_batch_norm(g, net, NULL));
    hk_node *logits = hk_dense(g, net, 10, HK_ACT_NONE, NULL);
    hk_node *classes = hk_argmax(g, logits, -1);
    hk_spec_prediction(m, "class", classes);
    if (mode == HK_PREDICT)
        return HK_OK;
    hk_node *labels = hk_label(m, "label");
    hk_spec_loss(
        m, hk_sparse_softmax_cross_entropy(g, labels, logits, NULL, NULL));
    hk_spec_metric(m, "accuracy", HK_METRIC_ACCURACY, labels, classes, NULL,
                   NULL);
    hk_spec_insert(m, HK_POINT_BEGIN, at_begin, &watched);
    hk_spec_insert(m, HK_POINT_GRADIENTS, at_gradients, &watched);
    hk_spec_insert(m, HK_POINT_UPDATED, at_updated, &watched);
    hk_spec_insert(m, HK_POINT_END, at_end, &watched);
    hk_ema_options ema;
    hk_ema_options_init(&ema, sizeof ema);
    ema.decay = DECAY;
    hk_spec_ema(m, &ema, HK_EMA_WORKER, 0);
    return hk_spec_optimizer(m, HK_OPT_ADAM, 2e-3);
}

int main(void) {
    hk_context *ctx;
    hk_estimator *e;
    CHECK(hk_context_create(NULL, &ctx));
    hk_estimator_options o;
    hk_estimator_options_init(&o, sizeof o);
    o.model_fn = model_fn;
    CHECK(hk_estimator_create(ctx, &o, &e));
    digits set = {0, 4000};
    const hk_source train = hk_source_function(digits_input, &set);
    hk_train_options t;
    hk_train_options_init(&t, sizeof t);
    t.steps = 200;
    hk_hook_calls calls;
    hk_hook_calls_init(&calls, sizeof calls);
    calls.user = &watched;
    calls.after_create_session = after_create_session;
    hk_hook *hook;
    CHECK(hk_hook_create(&calls, &hook));
    t.hooks = &hook;
    t.n_hooks = 1;
    CHECK(hk_estimator_train(e, &train, &t, NULL));
    EXPECT(watched.steps == 200);
    // Batch norm's statistics have moved from 0, and are averaged, too.
    hk_tensor *mean;
    CHECK(hk_estimator_variable(e, "batch_normalization/moving_mean",
                                HK_WEIGHTS_EMA, 0, &mean));
    const float *v = hk_tensor_data(mean);
    int moved = 0;
    for (int64_t i = 0; i < hk_tensor_count(mean); i++)
        moved += v[i] != 0;
    hk_tensor_release(mean);
    const double average = score(e, "accuracy", HK_WEIGHTS_EMA);
    printf("%d steps in order; %d of 64 means have moved; accuracy of the "
           "average %.3f\n",
           watched.steps, moved, average);
    EXPECT(moved == 64);
    EXPECT(average > 0.75);
    hk_hook_release(hook);
    free(watched.x);
    free(watched.shadow);
    hk_estimator_destroy(e);
    hk_context_destroy(ctx);
    return 0;
}
