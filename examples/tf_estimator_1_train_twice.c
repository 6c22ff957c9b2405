// tf_estimator_1_train_twice.c - one estimator with Adam, trained on two
// inputs, then evaluated.
//
// In TensorFlow 1:
//     estimator = tf.estimator.Estimator(model_fn, params={...})
//     estimator.train(train_input_fn1, steps=100)
//     estimator.train(train_input_fn2, steps=100)
//     print(estimator.evaluate(eval_input_fn))
// which built three graphs and passed the weights through checkpoints. Here
// each mode's graph is built once, values stay in memory, and Adam's slots go
// on where they were: the counters prove it.
#include "tf_common.h"

static hk_status model_fn(hk_graph *g, hk_mode mode, hk_spec *m) {
    hk_node *net = hk_flatten(g, hk_feature(m, "image"));
    net = hk_dense(g, net, 64, HK_ACT_RELU, NULL);
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
    return hk_spec_optimizer(m, HK_OPT_ADAM, 1e-3);
}

int main(void) {
    hk_context *ctx;
    hk_estimator *e;
    CHECK(hk_context_create(NULL, &ctx));
    hk_params *params;
    CHECK(hk_params_create(&params));
    CHECK(hk_params_set_float(params, "learning_rate", 2e-3));
    hk_estimator_options o;
    hk_estimator_options_init(&o, sizeof o);
    o.model_fn = model_fn;
    o.params = params;
    CHECK(hk_estimator_create(ctx, &o, &e));

    digits sets[2] = {{0, 3000}, {3000, 3000}};
    double accuracy[2];
    for (int i = 0; i < 2; i++) {
        hk_source in = hk_source_function(digits_input, &sets[i]);
        in.name = i ? "second" : "first"; // each keeps its own place
        hk_train_options t;
        hk_train_options_init(&t, sizeof t);
        t.steps = 100;
        hk_train_result r;
        CHECK(hk_estimator_train(e, &in, &t, &r));
        accuracy[i] = score(e, "accuracy", HK_WEIGHTS_DEFAULT);
        printf("after %lld steps: accuracy %.3f\n", (long long)r.global_step,
               accuracy[i]);
        EXPECT(r.global_step == 100 * (i + 1)); // steps add up
    }
    hk_estimator_info n;
    CHECK(hk_estimator_get_info(e, &n));
    printf("%llu graphs built, %llu checkpoints loaded\n",
           (unsigned long long)n.graph_builds,
           (unsigned long long)n.checkpoint_loads);
    EXPECT(n.graph_builds == 2); // one to train, one to evaluate
    EXPECT(n.checkpoint_loads == 0);
    EXPECT(accuracy[1] > 0.75 && accuracy[1] > accuracy[0]);
    hk_estimator_destroy(e);
    hk_params_destroy(params);
    hk_context_destroy(ctx);
    return 0;
}
