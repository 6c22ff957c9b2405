// tf_ema_3_shadow_variables.c - shadow variables from a checkpoint, after the
// training program has gone.
//
// In TensorFlow 1:
//     saver = tf.train.Saver(ema.variables_to_restore())
//     saver.restore(sess, tf.train.latest_checkpoint('my_model_dir'))
// A checkpoint of Hooke's holds the weights under their plain names and the
// averages under hooke/ema/; any reader of safetensors finds both.
#include <math.h>
#include <stdlib.h>
#include <unistd.h>
#include "tf_common.h"

static hk_status model_fn(hk_graph *g, hk_mode mode, hk_spec *m) {
    hk_node *net = hk_flatten(g, hk_feature(m, "image"));
    hk_node *logits = hk_dense(g, net, 10, HK_ACT_NONE, NULL);
    hk_spec_prediction(m, "class", hk_argmax(g, logits, -1));
    if (mode == HK_PREDICT)
        return HK_OK;
    hk_spec_loss(m, hk_sparse_softmax_cross_entropy(g, hk_label(m, "label"),
                                                    logits, NULL, NULL));
    hk_ema_options ema;
    hk_ema_options_init(&ema, sizeof ema);
    ema.decay = 0.99;
    hk_spec_ema(m, &ema, HK_EMA_WORKER, 0);
    return hk_spec_optimizer(m, HK_OPT_ADAM, 1e-3);
}

// Trains 50 steps and leaves a checkpoint; gives the average of the bias.
static void train(const char *model_dir, float bias[10]) {
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
    t.steps = 50;
    CHECK(hk_estimator_train(e, &in, &t, NULL));
    hk_tensor *v;
    CHECK(hk_estimator_variable(e, "dense/bias", HK_WEIGHTS_EMA, 0, &v));
    memcpy(bias, hk_tensor_data(v), 10 * sizeof *bias);
    hk_tensor_release(v);
    hk_estimator_destroy(e); // waits for the checkpoint
    hk_context_destroy(ctx);
}

int main(void) {
    const char *tmp = getenv("TMPDIR");
    char dir[256], command[300];
    snprintf(dir, sizeof dir, "%s/hooke-shadow-XXXXXX", tmp ? tmp : "/tmp");
    EXPECT(mkdtemp(dir) != NULL);
    float bias[10], shadow[10], plain[10];
    train(dir, bias);

    hk_ckpt *c;
    CHECK(hk_ckpt_open(dir, HK_CKPT_AUTO, &c)); // the newest one
    size_t shadows = 0;
    for (size_t i = 0; i < hk_ckpt_count(c); i++) {
        const hk_ckpt_entry *entry = hk_ckpt_item(c, i);
        const size_t prefix = strlen(HK_SECTION_EMA);
        if (strncmp(entry->name, HK_SECTION_EMA, prefix) != 0)
            continue;
        printf("%s\n", entry->name);
        shadows += hk_ckpt_find(c, entry->name + prefix) != NULL;
    }
    const hk_shape ten = hk_shape_make(1, (int64_t[]){10});
    CHECK(hk_ckpt_read(c, HK_SECTION_EMA "dense/bias", HK_F32, &ten, shadow));
    CHECK(hk_ckpt_read(c, "dense/bias", HK_F32, &ten, plain));
    hk_ckpt_close(c);
    EXPECT(shadows == 2); // dense/kernel, dense/bias
    EXPECT(memcmp(shadow, bias, sizeof bias) == 0);
    EXPECT(memcmp(shadow, plain, sizeof plain) != 0);
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    return system(command) == 0 ? 0 : 1;
}
