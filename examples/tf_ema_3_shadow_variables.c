// tf_ema_3_shadow_variables.c - shadow variables from a checkpoint, after the
// training program has gone.
//
// In TensorFlow 1:
//     saver = tf.train.Saver(ema.variables_to_restore())
//     saver.restore(sess, tf.train.latest_checkpoint('my_model_dir'))
//     for var in variables_to_restore: print(sess.run(var))
// A checkpoint of Hooke's holds the weights under their plain names and the
// averages under hooke/ema/; any reader of safetensors finds both. A renaming
// loads the averages into ordinary variables.
#include <math.h>
#include <stdlib.h>
#include <unistd.h>
#include "hooke/digits.h"
#include "tf_common.h"

static hk_status model_fn(hk_graph *g, hk_mode mode, hk_spec *m) {
    hk_node *net = hk_flatten(g, hk_feature(m, "image"));
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
    hk_ema_options ema;
    hk_ema_options_init(&ema, sizeof ema);
    ema.decay = 0.99;
    hk_spec_ema(m, &ema, HK_EMA_WORKER, 0);
    return hk_spec_optimizer(m, HK_OPT_ADAM, 1e-3);
}

// Trains 100 steps and leaves a checkpoint; gives the average of the bias and
// its accuracy.
static double train(const char *model_dir, float bias[10]) {
    hk_context *ctx;
    hk_estimator *e;
    CHECK(hk_context_create(NULL, &ctx));
    hk_estimator_options o;
    hk_estimator_options_init(&o, sizeof o);
    o.model_fn = model_fn;
    o.model_dir = model_dir;
    CHECK(hk_estimator_create(ctx, &o, &e));
    digits set = {0, 2000};
    const hk_source in = hk_source_function(digits_input, &set);
    hk_train_options t;
    hk_train_options_init(&t, sizeof t);
    t.steps = 100;
    CHECK(hk_estimator_train(e, &in, &t, NULL));
    hk_tensor *v;
    CHECK(hk_estimator_variable(e, "dense/bias", HK_WEIGHTS_EMA, 0, &v));
    memcpy(bias, hk_tensor_data(v), 10 * sizeof *bias);
    hk_tensor_release(v);
    digits test = {0, 500};
    const hk_source held = hk_source_function(digits_input, &test);
    hk_evaluate_options o2;
    hk_evaluate_options_init(&o2, sizeof o2);
    o2.weights = HK_WEIGHTS_EMA;
    hk_eval_result *r;
    double accuracy;
    CHECK(hk_estimator_evaluate(e, &held, &o2, &r));
    CHECK(hk_eval_result_get(r, "accuracy", NULL, &accuracy));
    hk_eval_result_destroy(r);
    hk_estimator_destroy(e); // waits for the checkpoint
    hk_context_destroy(ctx);
    return accuracy;
}

// What variables_to_restore was for: a name map of ordinary variables, filled
// from the tensors of other names.
static void load_averages(hk_ckpt *c, float kernel[7840], float bias[10]) {
    const hk_named items[] = {{.name = "dense/kernel",
                               .dtype = HK_F32,
                               .shape = hk_shape_make(2, (int64_t[]){784, 10}),
                               .data = kernel},
                              {.name = "dense/bias",
                               .dtype = HK_F32,
                               .shape = hk_shape_make(1, (int64_t[]){10}),
                               .data = bias}};
    const hk_rename rename = {.to = "*", .from = HK_SECTION_EMA "*"};
    hk_name_map *variables;
    hk_restore_options o;
    hk_restore_options_init(&o, sizeof o);
    o.rename = &rename;
    o.n_rename = 1;
    CHECK(hk_name_map_create(&variables));
    for (int i = 0; i < 2; i++)
        CHECK(hk_name_map_add(variables, &items[i]));
    CHECK(hk_ckpt_restore(c, variables, &o, NULL));
    hk_name_map_destroy(variables);
}

// Share of 500 digits that softmax(image kernel + bias) gets right.
static double right(const float kernel[7840], const float bias[10]) {
    hk_digits_options o;
    hk_digits_options_init(&o, sizeof o);
    o.split = HK_DIGITS_TEST;
    int good = 0;
    for (uint64_t n = 0; n < 500; n++) {
        uint8_t image[HK_DIGITS_PIXELS];
        int32_t label, best = 0;
        float logits[10];
        CHECK(hk_digits_draw(&o, n, 1, HK_U8, image, &label));
        for (int k = 0; k < 10; k++) {
            logits[k] = bias[k];
            for (int i = 0; i < HK_DIGITS_PIXELS; i++)
                logits[k] += (float)image[i] / 255 * kernel[i * 10 + k];
            best = logits[k] > logits[best] ? k : best;
        }
        good += best == label;
    }
    return good / 500.0;
}

int main(void) {
    const char *tmp = getenv("TMPDIR");
    char dir[256], command[300];
    snprintf(dir, sizeof dir, "%s/hooke-shadow-XXXXXX", tmp ? tmp : "/tmp");
    EXPECT(mkdtemp(dir) != NULL);
    static float kernel[7840];
    float bias[10], shadow[10], plain[10];
    const double accuracy = train(dir, bias);

    hk_ckpt *c;
    CHECK(hk_ckpt_open(dir, HK_CKPT_AUTO, &c)); // the newest one
    size_t shadows = 0;
    hk_ckpt_info info;
    CHECK(hk_ckpt_get_info(c, &info));
    for (size_t i = 0; i < info.entry_count; i++) {
        const hk_ckpt_entry *entry = hk_ckpt_item(c, i);
        const size_t prefix = strlen(HK_SECTION_EMA);
        if (strncmp(entry->name, HK_SECTION_EMA, prefix) != 0)
            continue;
        hk_tensor *values;
        CHECK(hk_ckpt_read_tensor(c, entry->name, &values));
        const float *v = hk_tensor_data(values);
        printf("%s: %g %g %g ... (%lld values)\n", entry->name, (double)v[0],
               (double)v[1], (double)v[2], (long long)hk_tensor_count(values));
        hk_tensor_release(values);
        shadows += hk_ckpt_find(c, entry->name + prefix) != NULL;
    }
    const hk_shape ten = hk_shape_make(1, (int64_t[]){10});
    CHECK(hk_ckpt_read(c, HK_SECTION_EMA "dense/bias", HK_F32, &ten, shadow));
    CHECK(hk_ckpt_read(c, "dense/bias", HK_F32, &ten, plain));
    float loaded[10];
    load_averages(c, kernel, loaded);
    hk_ckpt_close(c);
    const double by_hand = right(kernel, loaded);
    printf("loaded: %.3f right, %.3f in the training program\n", by_hand,
           accuracy);
    EXPECT(memcmp(loaded, bias, sizeof bias) == 0);
    EXPECT(fabs(by_hand - accuracy) < 0.005); // one tie may fall otherwise
    EXPECT(shadows == 2);                     // dense/kernel, dense/bias
    EXPECT(memcmp(shadow, bias, sizeof bias) == 0);
    EXPECT(memcmp(shadow, plain, sizeof plain) != 0);
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    return system(command) == 0 ? 0 : 1;
}
