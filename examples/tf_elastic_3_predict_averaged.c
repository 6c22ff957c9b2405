// tf_elastic_3_predict_averaged.c - prediction with the averaged variables.
//
// In TensorFlow 1 this took a saver that swapped names (swapping_saver,
// variables_to_restore); replacing variables in a Python list did nothing.
// Here `weights` says which values predict, and the same checkpoint serves
// all of them.
#include "tf_common.h"

static hk_status model_fn(hk_graph *g, hk_mode mode, hk_spec *m) {
    hk_node *net = hk_flatten(g, hk_feature(m, "image"));
    net = hk_dense(g, net, 128, HK_ACT_RELU, NULL);
    hk_node *logits = hk_dense(g, net, 10, HK_ACT_NONE, NULL);
    hk_spec_prediction(m, "class", hk_argmax(g, logits, -1));
    hk_spec_prediction(m, "probabilities", hk_softmax(g, logits));
    if (mode == HK_PREDICT)
        return HK_OK; // no labels here, and no loss
    hk_spec_loss(m, hk_sparse_softmax_cross_entropy(g, hk_label(m, "label"),
                                                    logits, NULL, NULL));
    hk_ema_options ema;
    hk_ema_options_init(&ema, sizeof ema);
    ema.decay = 0.95;
    hk_spec_ema(m, &ema, HK_EMA_WORKER, 1);
    return hk_spec_optimizer(m, HK_OPT_ADAM, 2e-3);
}

// Share of 500 digits that these weights get right.
static double right(hk_estimator *e, hk_weights weights) {
    digits test = {0, 500};
    const hk_source in = hk_source_function(digits_input, &test);
    hk_predict_options o;
    hk_predict_options_init(&o, sizeof o);
    o.weights = weights;
    hk_predictor *p;
    CHECK(hk_estimator_predict(e, &in, &o, &p));
    hk_digits_options d;
    hk_digits_options_init(&d, sizeof d);
    d.split = HK_DIGITS_TEST;
    const hk_element *one;
    uint64_t n = 0, good = 0;
    while (hk_predictor_next(p, &one) == HK_OK) {
        uint8_t image[HK_DIGITS_PIXELS];
        int32_t label;
        CHECK(hk_digits_draw(&d, n++, image, &label));
        const hk_value *v = hk_element_find(one, "class");
        good += *(const int64_t *)hk_tensor_data(v->tensor) == label;
    }
    hk_predictor_destroy(p);
    EXPECT(n == 500);
    return (double)good / (double)n;
}

int main(void) {
    hk_context *ctx;
    hk_estimator *e;
    CHECK(hk_context_create(NULL, &ctx));
    hk_run_config config;
    hk_run_config_init(&config, sizeof config);
    config.workers = 2;
    hk_estimator_options o;
    hk_estimator_options_init(&o, sizeof o);
    o.model_fn = model_fn;
    o.config = &config;
    CHECK(hk_estimator_create(ctx, &o, &e));
    digits set = {0, 4000};
    const hk_source train = hk_source_function(digits_input, &set);
    hk_train_options t;
    hk_train_options_init(&t, sizeof t);
    t.steps = 300;
    CHECK(hk_estimator_train(e, &train, &t, NULL));
    const double center = right(e, HK_WEIGHTS_CENTER);
    const double average = right(e, HK_WEIGHTS_EMA);
    const double worker = right(e, HK_WEIGHTS_LOCAL);
    printf("right: center %.3f, average %.3f, worker 0 %.3f\n", center, average,
           worker);
    EXPECT(center > 0.8 && average > 0.8 && worker > 0.75);
    hk_estimator_destroy(e);
    hk_context_destroy(ctx);
    return 0;
}
