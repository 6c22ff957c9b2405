// tf_ema_1_hook.c - a moving average kept by a hook of one's own.
//
// In TensorFlow 1:
//     class EMAHook(tf.train.SessionRunHook):
//         def begin(self): self.ema_op = self.ema.apply(self.variables)
//         def after_run(self, ctx, values): ctx.session.run(self.ema_op)
// A hook is a table of functions with its state; the session's flat vector is
// at hand in after_run, so no second run is needed.
#include <math.h>
#include "tf_common.h"

static hk_status model_fn(hk_graph *g, hk_mode mode, hk_spec *m) {
    hk_node *net = hk_flatten(g, hk_feature(m, "image"));
    hk_node *logits = hk_dense(g, net, 10, HK_ACT_NONE, NULL);
    hk_spec_prediction(m, "class", hk_argmax(g, logits, -1));
    if (mode == HK_PREDICT)
        return HK_OK;
    hk_spec_loss(m, hk_sparse_softmax_cross_entropy(g, hk_label(m, "label"),
                                                    logits, NULL, NULL));
    return hk_spec_optimizer(m, HK_OPT_GRADIENT_DESCENT, 0.1);
}

typedef struct ema_hook {
    double decay;
    hk_ema *ema;   // of the run in progress
    float *shadow; // copy of the last run's average
    float *oracle; // the same by its formula, step by step
    int64_t n, updates;
} ema_hook;

static hk_status after_create_session(void *self, hk_run *run) {
    ema_hook *h = self;
    hk_session *s = hk_run_session(run);
    hk_layout *layout = hk_plan_layout(hk_session_plan(s));
    h->n = hk_layout_size(layout);
    h->oracle = malloc((size_t)h->n * sizeof *h->oracle);
    memcpy(h->oracle, hk_session_params(s), (size_t)h->n * sizeof *h->oracle);
    hk_ema_options o;
    hk_ema_options_init(&o, sizeof o);
    o.decay = h->decay;
    return hk_ema_create(&o, layout, hk_session_params(s), hk_session_side(s),
                         &h->ema);
}

static hk_status after_run(void *self, hk_run *run) {
    ema_hook *h = self;
    const float *x = hk_session_params(hk_run_session(run));
    for (int64_t i = 0; i < h->n; i++)
        h->oracle[i] -= (float)(1 - h->decay) * (h->oracle[i] - x[i]);
    h->updates++;
    return hk_ema_update(h->ema, x, NULL);
}

static hk_status end(void *self, hk_run *run) {
    ema_hook *h = self;
    (void)run;
    h->shadow = malloc((size_t)h->n * sizeof *h->shadow);
    memcpy(h->shadow, hk_ema_vector(h->ema), (size_t)h->n * sizeof *h->shadow);
    hk_ema_destroy(h->ema);
    return HK_OK;
}

int main(void) {
    hk_context *ctx;
    hk_estimator *e;
    hk_hook *hook;
    CHECK(hk_context_create(NULL, &ctx));
    ema_hook mine = {.decay = 0.99};
    hk_hook_calls calls;
    hk_hook_calls_init(&calls, sizeof calls);
    calls.name = "EMAHook";
    calls.user = &mine;
    calls.after_create_session = after_create_session;
    calls.after_run = after_run;
    calls.end = end;
    CHECK(hk_hook_create(&calls, &hook));

    hk_estimator_options o;
    hk_estimator_options_init(&o, sizeof o);
    o.model_fn = model_fn;
    CHECK(hk_estimator_create(ctx, &o, &e));
    digits set = {0, 2000};
    const hk_source train = hk_source_function(digits_input, &set);
    hk_train_options t;
    hk_train_options_init(&t, sizeof t);
    t.steps = 100;
    t.hooks = &hook;
    t.n_hooks = 1;
    CHECK(hk_estimator_train(e, &train, &t, NULL));

    double worst = 0;
    for (int64_t i = 0; i < mine.n; i++)
        worst = fmax(worst, fabs((double)(mine.shadow[i] - mine.oracle[i])));
    printf("%lld updates of %lld values, at most %.2g from the formula\n",
           (long long)mine.updates, (long long)mine.n, worst);
    EXPECT(mine.updates == 100);
    EXPECT(worst < 1e-5);
    free(mine.shadow);
    free(mine.oracle);
    hk_hook_release(hook);
    hk_estimator_destroy(e);
    hk_context_destroy(ctx);
    return 0;
}
