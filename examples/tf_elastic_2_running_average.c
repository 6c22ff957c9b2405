// tf_elastic_2_running_average.c - the elastic optimizer and, beside it, an
// exponential moving average.
//
// In TensorFlow 1:
//     ema = tf.train.ExponentialMovingAverage(decay=0.999)
//     with tf.control_dependencies([train_op]):
//         train_op = ema.apply(tf.trainable_variables())
// An average belongs to the spec here. It follows the center or, as in this
// program, the variables of worker 0; its place in the step is fixed: after
// the exchange. A hook makes the same average by its formula and compares.
// Nothing is swapped: center, average and workers are scored side by side.
#include <math.h>
#include "tf_common.h"

#define DECAY 0.999
#define STEPS 300

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
    ema.decay = DECAY; // per step
    hk_spec_ema(m, &ema, HK_EMA_WORKER, 0);
    return hk_spec_optimizer(m, HK_OPT_ADAM, 1e-3);
}

// Worker 0's average, step by step: s -= (1 - d) (s - x).
typedef struct watcher {
    float *oracle;
    int64_t n, updates;
    double worst; // distance from it
} watcher;

static hk_status after_create_session(void *self, hk_run *run) {
    watcher *w = self;
    hk_run_info i;
    CHECK(hk_run_get_info(run, &i));
    hk_session *s = i.session;
    hk_layout_info model;
    CHECK(hk_layout_get_info(hk_plan_layout(hk_session_plan(s)), &model));
    w->n = model.n;
    w->oracle = malloc((size_t)w->n * sizeof *w->oracle);
    memcpy(w->oracle, hk_session_params(s), (size_t)w->n * sizeof *w->oracle);
    return HK_OK;
}

static hk_status after_run(void *self, hk_run *run) {
    watcher *w = self;
    hk_run_info r;
    hk_ema_info ema;
    const hk_step_info *step;
    CHECK(hk_run_get_info(run, &r));
    CHECK(hk_ema_get_info(r.ema, &ema));
    CHECK(hk_run_step(run, &step));
    const float *x = step->x; // after step and exchange
    for (int64_t i = 0; i < w->n; i++) {
        w->oracle[i] -= (float)(1 - DECAY) * (w->oracle[i] - x[i]);
        w->worst = fmax(w->worst, fabs((double)(ema.values[i] - w->oracle[i])));
    }
    w->updates = ema.updates;
    return HK_OK;
}

int main(void) {
    hk_context *ctx;
    hk_estimator *e;
    CHECK(hk_context_create(NULL, &ctx));
    hk_params *params = make_params(2e-3);
    hk_run_config config;
    hk_run_config_init(&config, sizeof config);
    config.workers = 2;
    config.turn = HK_TURN_ROUND_ROBIN; // the same numbers in every run
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
    t.steps = STEPS;
    watcher w = {0};
    hk_hook *hook;
    hk_hook_calls calls;
    hk_hook_calls_init(&calls, sizeof calls);
    calls.user = &w;
    calls.after_create_session = after_create_session;
    calls.after_run = after_run;
    CHECK(hk_hook_create(&calls, &hook));
    t.hooks = &hook;
    t.n_hooks = 1;
    CHECK(hk_estimator_train(e, &train, &t, NULL));
    printf("%lld updates, at most %.2g from the formula\n",
           (long long)w.updates, w.worst);
    EXPECT(w.updates == STEPS); // one per step, exchange or not
    EXPECT(w.worst < 1e-6);

    hk_evaluate_options v;
    hk_evaluate_options_init(&v, sizeof v);
    v.weights = HK_WEIGHTS_ALL;
    hk_eval_result *r;
    CHECK(hk_estimator_evaluate(e, &held, &v, &r));
    size_t sets = 0;
    for (size_t i = 0; i < r->item_count; i++) {
        const hk_eval_item *item = &r->items[i];
        if (strcmp(item->name, "accuracy") != 0)
            continue;
        printf("%-8s %.3f\n", item->weights, item->value);
        // 0.999 looks back over a thousand steps: it is still on its way.
        EXPECT(item->value > (strcmp(item->weights, "ema") == 0 ? 0.3 : 0.8));
        sets++;
    }
    EXPECT(sets == 4); // center, average, two workers
    hk_eval_result_destroy(r);
    hk_hook_release(hook);
    free(w.oracle);
    hk_estimator_destroy(e);
    hk_params_destroy(params);
    hk_context_destroy(ctx);
    return 0;
}
