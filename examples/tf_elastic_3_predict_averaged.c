// tf_elastic_3_predict_averaged.c - prediction with the averaged variables.
//
// In TensorFlow 1 this took a saver that swapped names (swapping_saver,
// variables_to_restore); replacing variables in a Python list did nothing.
// Here `weights` says which values predict, and the same checkpoint serves
// all of them. The program does the first prediction by hand with the
// variables of each set: the predictor has used these and no others.
#include <math.h>
#include "hooke/digits.h"
#include "tf_common.h"

#define UNITS 128

static hk_status model_fn(hk_graph *g, hk_mode mode, hk_spec *m) {
    hk_node *net = hk_flatten(g, hk_feature(m, "image"));
    net = hk_dense(g, net, UNITS, HK_ACT_RELU, NULL);
    hk_node *logits = hk_dense(g, net, 10, HK_ACT_NONE, NULL);
    hk_spec_prediction(m, "class", hk_argmax(g, logits, -1));
    hk_spec_prediction(m, "probabilities", hk_softmax(g, logits));
    if (mode == HK_PREDICT)
        return HK_OK; // no labels here, and no loss
    hk_spec_loss(m, hk_sparse_softmax_cross_entropy(g, hk_label(m, "label"),
                                                    logits, NULL, NULL));
    hk_elastic_options elastic;
    hk_elastic_options_init(&elastic, sizeof elastic);
    elastic.communication_period = 7; // 300 is no multiple: x is not c
    elastic.preset = HK_PRESET_PAPER;
    hk_spec_elastic(m, &elastic);
    hk_ema_options ema;
    hk_ema_options_init(&ema, sizeof ema);
    ema.decay = 0.95;
    hk_spec_ema(m, &ema, HK_EMA_WORKER, 1);
    return hk_spec_optimizer(m, HK_OPT_ADAM, 2e-3);
}

// out = act(in kernel + bias) with the variables of one set of weights.
static void layer(hk_estimator *e, hk_weights weights, const char *name,
                  const float *in, int n_in, float *out, int n_out, int relu) {
    char kernel_name[32], bias_name[32];
    snprintf(kernel_name, sizeof kernel_name, "%s/kernel", name);
    snprintf(bias_name, sizeof bias_name, "%s/bias", name);
    hk_tensor *kernel, *bias;
    CHECK(hk_estimator_variable(e, kernel_name, weights, 0, &kernel));
    CHECK(hk_estimator_variable(e, bias_name, weights, 0, &bias));
    for (int k = 0; k < n_out; k++) {
        double sum = (double)((const float *)hk_tensor_data(bias))[k];
        for (int i = 0; i < n_in; i++)
            sum += (double)in[i] *
                   ((const float *)hk_tensor_data(kernel))[i * n_out + k];
        out[k] = (float)(relu ? fmax(sum, 0) : sum);
    }
    hk_tensor_release(kernel);
    hk_tensor_release(bias);
}

// Probabilities of one digit, by hand.
static void forward(hk_estimator *e, hk_weights weights, const uint8_t *image,
                    double out[10]) {
    float pixels[HK_DIGITS_PIXELS], hidden[UNITS], logits[10];
    for (int i = 0; i < HK_DIGITS_PIXELS; i++)
        pixels[i] = (float)image[i] / 255;
    layer(e, weights, "dense", pixels, HK_DIGITS_PIXELS, hidden, UNITS, 1);
    layer(e, weights, "dense_1", hidden, UNITS, logits, 10, 0);
    double sum = 0;
    for (int k = 0; k < 10; k++)
        sum += out[k] = exp((double)logits[k]);
    for (int k = 0; k < 10; k++)
        out[k] /= sum;
}

// The largest difference of two lists of probabilities.
static double apart(const float *a, const double *b) {
    double most = 0;
    for (int k = 0; k < 10; k++)
        most = fmax(most, fabs((double)a[k] - b[k]));
    return most;
}

// The prediction for the first digit is what these weights make of it, and
// not what the others would.
static void check_used(hk_estimator *e, hk_weights used, const uint8_t *image,
                       const float *predicted) {
    static const hk_weights sets[] = {HK_WEIGHTS_CENTER, HK_WEIGHTS_EMA,
                                      HK_WEIGHTS_LOCAL};
    for (int i = 0; i < 3; i++) {
        double by_hand[10];
        forward(e, sets[i], image, by_hand);
        if (sets[i] == used)
            EXPECT(apart(predicted, by_hand) < 1e-5);
        else
            EXPECT(apart(predicted, by_hand) > 1e-4);
    }
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
        CHECK(hk_digits_draw(&d, n++, 1, HK_U8, image, &label));
        if (n == 1)
            check_used(
                e, weights, image,
                hk_tensor_data(hk_element_find(one, "probabilities")->tensor));
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
    config.turn = HK_TURN_ROUND_ROBIN; // the same numbers in every run
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
    EXPECT(center > 0.8 && average > 0.8 && worker > 0.8);
    hk_estimator_destroy(e);
    hk_context_destroy(ctx);
    return 0;
}
