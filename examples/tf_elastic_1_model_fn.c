// tf_elastic_1_model_fn.c - the elastic optimizer inside a model_fn.
//
// In TensorFlow 1:
//     optimizer = tf.train.AdamOptimizer(params['learning_rate'])
//     opt = tf.contrib.opt.ElasticAverageOptimizer(optimizer, num_worker=2,
//               ea_custom_getter=getter, communication_period=10)
//     train_op = opt.minimize(loss, global_step=...)
//     hooks = [opt.make_session_run_hook(is_chief, task_index)]
// and one process per worker with parameter servers. Here the model_fn names
// both optimizers, `workers` says how many, and the center is what is scored.
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
    elastic.communication_period = 10;
    elastic.preset = HK_PRESET_PAPER; // moving_rate 0.9 / workers
    hk_spec_elastic(m, &elastic);
    return hk_spec_optimizer(m, HK_OPT_ADAM, 1e-3); // params may change it
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

    digits set = {0, 4000};
    const hk_source train = hk_source_function(digits_input, &set);
    hk_train_options t;
    hk_train_options_init(&t, sizeof t);
    t.steps = 300;
    hk_train_result result;
    CHECK(hk_estimator_train(e, &train, &t, &result));

    const double center = score(e, "accuracy", HK_WEIGHTS_CENTER);
    const double worker = score(e, "accuracy", HK_WEIGHTS_LOCAL);
    printf("%lld steps, %llu exchanges: center %.3f, worker 0 %.3f\n",
           (long long)result.global_step, (unsigned long long)result.exchanges,
           center, worker);
    EXPECT(result.global_step == 2 * 300); // steps, not exchanges
    EXPECT(result.exchanges == 2 * 30);
    EXPECT(center > 0.8);
    hk_estimator_destroy(e);
    hk_params_destroy(params);
    hk_context_destroy(ctx);
    return 0;
}
