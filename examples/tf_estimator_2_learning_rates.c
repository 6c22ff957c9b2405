// tf_estimator_2_learning_rates.c - a grid of learning rates.
//
// In TensorFlow 1:
//     for lr in [0.001, 0.01, 0.1]:
//         estimator = tf.estimator.Estimator(model_fn=model_fn,
//                                            params={'learning_rate': lr})
//         estimator.train(input_fn=train_input_fn, steps=100)
//         print(lr, estimator.evaluate(input_fn=eval_input_fn))
// The same loop builds one graph for each mode here, because a learning rate
// is a run-time scalar; a sweep does the loop by itself, several at once.
#include <math.h>
#include "tf_common.h"

static hk_status model_fn(hk_graph *g, hk_mode mode, hk_spec *m) {
    hk_node *net = hk_flatten(g, hk_feature(m, "image"));
    net = hk_dense(g, net, 32, HK_ACT_RELU, NULL);
    hk_node *logits = hk_dense(g, net, 10, HK_ACT_NONE, NULL);
    hk_spec_prediction(m, "class", hk_argmax(g, logits, -1));
    if (mode == HK_PREDICT)
        return HK_OK;
    hk_spec_loss(m, hk_sparse_softmax_cross_entropy(g, hk_label(m, "label"),
                                                    logits, NULL, NULL));
    return hk_spec_optimizer(m, HK_OPT_ADAM, 1e-3);
}

int main(void) {
    static const double rates[] = {0.001, 0.01, 0.1};
    hk_context *ctx;
    hk_context_info info;
    CHECK(hk_context_create(NULL, &ctx));
    digits set = {0, 3000}, test = {0, 1000};
    const hk_source train = hk_source_function(digits_input, &set);
    const hk_source held = hk_source_function(digits_input, &test);

    // As in TensorFlow: an estimator for each.
    double by_hand[3];
    for (int i = 0; i < 3; i++) {
        hk_params *params;
        hk_estimator *e;
        CHECK(hk_params_create(&params));
        CHECK(hk_params_set_float(params, "learning_rate", rates[i]));
        hk_estimator_options o;
        hk_estimator_options_init(&o, sizeof o);
        o.model_fn = model_fn;
        o.params = params;
        CHECK(hk_estimator_create(ctx, &o, &e));
        hk_train_options t;
        hk_train_options_init(&t, sizeof t);
        t.steps = 100;
        CHECK(hk_estimator_train(e, &train, &t, NULL));
        by_hand[i] = score(e, "loss", HK_WEIGHTS_DEFAULT);
        hk_estimator_destroy(e);
        hk_params_destroy(params);
    }
    hk_context_get_info(ctx, &info);
    EXPECT(info.graph_builds == 2);

    // As a sweep.
    hk_estimator_options o;
    hk_estimator_options_init(&o, sizeof o);
    o.model_fn = model_fn;
    const hk_sweep_axis axis = {
        .name = "learning_rate", .values = rates, .n = 3};
    hk_sweep_options s;
    hk_sweep_options_init(&s, sizeof s);
    s.estimator = &o;
    s.train = &train;
    s.eval = &held;
    s.axes = &axis;
    s.n_axes = 1;
    s.steps = 100;
    hk_sweep_result *r;
    CHECK(hk_sweep_run(ctx, &s, &r));
    EXPECT(r->trial_count == 3);
    for (size_t i = 0; i < 3; i++) {
        const hk_trial *t = &r->trials[i];
        printf("learning_rate %-6g loss %.4f (by hand %.4f)\n",
               t->params[0].number, t->metric, by_hand[i]);
        EXPECT(t->status == HK_OK);
        EXPECT(t->params[0].number == rates[i]);
        EXPECT(fabs(t->metric - by_hand[i]) < 1e-6); // the same training
    }
    EXPECT(by_hand[1] < by_hand[0] && by_hand[1] < by_hand[2]);
    hk_context_get_info(ctx, &info);
    EXPECT(info.graph_builds == 2);
    EXPECT(r->best->number == 1); // 0.001 is slow, 0.1 too fast for Adam
    hk_sweep_result_destroy(r);
    hk_context_destroy(ctx);
    return 0;
}
