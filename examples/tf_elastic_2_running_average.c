// tf_elastic_2_running_average.c - the elastic optimizer and, beside it, an
// exponential moving average.
//
// In TensorFlow 1:
//     ema = tf.train.ExponentialMovingAverage(decay=0.999)
//     with tf.control_dependencies([train_op]):
//         train_op = ema.apply(tf.trainable_variables())
// An average belongs to the spec here. It follows the center, or a worker;
// its place in the step is fixed: after the exchange. Nothing is swapped:
// center, average and workers are scored side by side in one pass.
#include "tf_common.h"

static hk_status model_fn(hk_graph *g, hk_mode mode, hk_spec *m) {
    hk_node *net = hk_flatten(g, hk_feature(m, "image"));
    net = hk_dense(g, net, 128, HK_ACT_RELU, NULL);
    hk_node *logits =
        hk_dense(g, net, hk_param_int(g, "num_classes", 10), HK_ACT_NONE, NULL);
    hk_node *classes = hk_argmax(g, logits, -1);
    hk_spec_prediction(m, "class", classes);
    if (mode == HK_PREDICT)
        return HK_OK;

    hk_node *labels = hk_label(m, "label");
    hk_spec_loss(
        m, hk_sparse_softmax_cross_entropy(g, labels, logits, NULL, NULL));
    hk_spec_metric(m, "accuracy", HK_METRIC_ACCURACY, labels, classes, NULL,
                   NULL);

    hk_elastic_options elastic;
    hk_elastic_options_init(&elastic, sizeof elastic);
    elastic.communication_period = 5;
    elastic.preset = HK_PRESET_PAPER;
    hk_spec_elastic(m, &elastic);
    hk_ema_options ema;
    hk_ema_options_init(&ema, sizeof ema);
    ema.decay = 0.9; // of the center, once per exchange of worker 0
    hk_spec_ema(m, &ema, HK_EMA_CENTER, 0);
    return hk_spec_optimizer(m, HK_OPT_ADAM, 1e-3);
}

int main(void) {
    hk_context *ctx;
    hk_estimator *e;
    CHECK(hk_context_create(NULL, &ctx));
    hk_params *params = make_params(2e-3);
    hk_run_config config;
    hk_run_config_init(&config, sizeof config);
    config.workers = 2;
    hk_estimator_options o;
    hk_estimator_options_init(&o, sizeof o);
    o.model_fn = model_fn;
    o.params = params;
    o.config = &config;
    CHECK(hk_estimator_create(ctx, &o, &e));

    digits set = {0, 4000}, test = {0, 1000};
    const hk_source train = hk_source_function(digits_input, &set);
    const hk_source held = hk_source_function(digits_input, &test);
    hk_train_options t;
    hk_train_options_init(&t, sizeof t);
    t.steps = 300;
    CHECK(hk_estimator_train(e, &train, &t, NULL));

    hk_evaluate_options v;
    hk_evaluate_options_init(&v, sizeof v);
    v.weights = HK_WEIGHTS_ALL;
    hk_eval_result *r;
    CHECK(hk_estimator_evaluate(e, &held, &v, &r));
    size_t sets = 0;
    for (size_t i = 0; i < hk_eval_result_count(r); i++) {
        const hk_eval_item *item = hk_eval_result_item(r, i);
        if (strcmp(item->name, "accuracy") != 0)
            continue;
        printf("%-8s %.3f\n", item->weights, item->value);
        EXPECT(item->value > 0.75);
        sets++;
    }
    EXPECT(sets == 4); // center, average, two workers
    hk_eval_result_destroy(r);
    hk_estimator_destroy(e);
    hk_params_destroy(params);
    hk_context_destroy(ctx);
    return 0;
}
