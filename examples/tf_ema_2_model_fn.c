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
// optimizer, exchange, averages. A callback at each point shows the order.
#include "tf_common.h"

static int order[8], n_order;

static hk_status note(hk_step_info *info, void *user) {
    (void)info;
    if (n_order < 3)
        order[n_order++] = *(const int *)user;
    return HK_OK;
}

static hk_status model_fn(hk_graph *g, hk_mode mode, hk_spec *m) {
    static const int points[] = {HK_POINT_GRADIENTS, HK_POINT_UPDATED,
                                 HK_POINT_END};
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
    if (mode == HK_TRAIN)
        for (int i = 0; i < 3; i++)
            hk_spec_insert(m, (hk_point)points[i], note,
                           (void *)(uintptr_t)&points[i]);
    hk_ema_options ema;
    hk_ema_options_init(&ema, sizeof ema);
    ema.decay = 0.95;
    hk_spec_ema(m, &ema, HK_EMA_WORKER, 1);
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
    CHECK(hk_estimator_train(e, &train, &t, NULL));

    EXPECT(n_order == 3);
    EXPECT(order[0] == HK_POINT_GRADIENTS && order[1] == HK_POINT_UPDATED &&
           order[2] == HK_POINT_END);
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
    printf("%d of 64 means have moved; accuracy of the average %.3f\n", moved,
           average);
    EXPECT(moved == 64);
    EXPECT(average > 0.75);
    hk_estimator_destroy(e);
    hk_context_destroy(ctx);
    return 0;
}
