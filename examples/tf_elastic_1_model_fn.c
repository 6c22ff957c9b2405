// tf_elastic_1_model_fn.c - the elastic optimizer: by hand with
// compute_gradients and apply_gradients, then inside a model_fn.
//
// In TensorFlow 1:
//     optimizer = tf.train.AdamOptimizer(params['learning_rate'])
//     gradients = optimizer.compute_gradients(loss, var_list=all_variables)
//     opt = tf.contrib.opt.ElasticAverageOptimizer(optimizer, num_worker=2,
//               ea_custom_getter=getter, use_locking=False)
//     train_op = opt.apply_gradients(gradients)
//     hooks = [opt.make_session_run_hook(is_chief, task_index)]
// and one process per worker with parameter servers. Here the model_fn names
// both optimizers, `workers` says how many, and the center is what is scored.
//
// The constructor's own defaults are TensorFlow's, and not good ones for Adam:
// rho = moving_rate / learning_rate adds 22.5 (x - c) to every gradient, which
// Adam then divides out, so that the pull drowns the loss. rho = 0 or the
// paper's preset leave the pulling to the exchanges.
#include <math.h>
#include "hooke/digits.h"
#include "tf_common.h"

#define RATE 2e-3
#define BATCH 64
#define WORKERS 2

static hk_node *network(hk_graph *g, hk_node *image, int64_t classes) {
    hk_node *net = hk_dense(g, image, 128, HK_ACT_RELU, NULL);
    return hk_dense(g, net, classes, HK_ACT_NONE, NULL);
}

// ---- by hand ----------------------------------------------------------------

static hk_status plain_model(void *user, hk_graph *g, hk_mode mode) {
    (void)mode;
    (void)user;
    hk_node *image =
        hk_input(g, "image", HK_F32,
                 hk_shape_make(2, (int64_t[]){BATCH, HK_DIGITS_PIXELS}));
    hk_node *label =
        hk_input(g, "label", HK_I32, hk_shape_make(1, (int64_t[]){BATCH}));
    hk_set_loss(g, hk_sparse_softmax_cross_entropy(
                       g, label, network(g, image, 10), NULL, NULL));
    return hk_graph_status(g);
}

static void feed(hk_session *s, uint64_t first) {
    hk_tensor *image, *label;
    CHECK(hk_session_input(s, "image", &image));
    CHECK(hk_session_input(s, "label", &label));
    for (uint64_t i = 0; i < BATCH; i++) {
        uint8_t pixels[HK_DIGITS_PIXELS];
        float *to = (float *)hk_tensor_data(image) + i * HK_DIGITS_PIXELS;
        CHECK(hk_digits_draw(NULL, (first + i) % 4000, 1, HK_U8, pixels,
                             (int32_t *)hk_tensor_data(label) + i));
        for (int k = 0; k < HK_DIGITS_PIXELS; k++)
            to[k] = (float)pixels[k] / 255;
    }
}

typedef struct worker {
    hk_session *session;
    hk_optimizer *adam;
    hk_elastic *elastic;
    hk_grad_list *gradients;
} worker;

static void open_worker(worker *w, hk_plan *plan, hk_center *center,
                        const hk_elastic_options *elastic, int32_t task) {
    hk_optimizer_options o;
    hk_optimizer_options_init(&o, sizeof o, HK_OPT_ADAM);
    o.learning_rate = RATE;
    CHECK(hk_session_create(plan, NULL, &w->session));
    CHECK(hk_optimizer_create(&o, hk_plan_layout(plan), &w->adam));
    CHECK(hk_elastic_create(elastic, w->adam, center, &w->elastic));
    CHECK(hk_grad_list_create(hk_plan_layout(plan), &w->gradients));
    CHECK(hk_elastic_init(w->elastic, hk_session_params(w->session), task));
}

// compute_gradients, with the elastic term of the loss, and apply_gradients.
static void step(worker *w) {
    float *x = hk_session_params(w->session);
    static const char *const all_variables[] = {
        "dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"};
    hk_compute_options o;
    hk_compute_options_init(&o, sizeof o);
    o.var_list = all_variables;
    o.n_vars = 4;
    hk_grad_view g;
    hk_session_info info;
    hk_session_get_info(w->session, &info);
    CHECK(hk_compute_gradients(w->session, &o, w->gradients));
    CHECK(hk_elastic_add_pull(w->elastic, x, hk_session_grads(w->session),
                              info.grad_count, 1));
    CHECK(hk_grad_list_view(w->gradients, &g));
    CHECK(hk_elastic_apply(w->elastic, x, &g, NULL));
}

static void close_worker(worker *w) {
    CHECK(hk_elastic_leave(w->elastic, hk_session_params(w->session)));
    hk_elastic_destroy(w->elastic);
    hk_optimizer_destroy(w->adam);
    hk_grad_list_destroy(w->gradients);
    hk_session_destroy(w->session);
}

static double get(const worker *w, const char *name) {
    double value;
    CHECK(hk_elastic_get(w->elastic, name, &value));
    return value;
}

// Loss of the center after 60 steps of each worker, in turn.
static double by_hand(hk_context *ctx, const hk_elastic_options *elastic) {
    hk_model model;
    hk_model_init(&model, sizeof model);
    model.build = plain_model;
    hk_plan *plan;
    hk_center *center;
    worker w[WORKERS];
    CHECK(hk_plan_get(ctx, &model, HK_TRAIN, NULL, &plan));
    CHECK(hk_center_create_local(NULL, hk_plan_layout(plan), &center));
    for (int i = 0; i < WORKERS; i++)
        open_worker(&w[i], plan, center, elastic, i);
    printf("communication_period %g, moving_rate %g, rho %g",
           get(&w[0], "communication_period"), get(&w[0], "moving_rate"),
           get(&w[0], "rho"));
    if (elastic->rho == HK_ELASTIC_AUTO) { // the constructor's defaults
        EXPECT(get(&w[0], "communication_period") == 10);
        EXPECT(get(&w[0], "moving_rate") == HK_ELASTIC_BETA / 10 / WORKERS);
        EXPECT(fabs(get(&w[0], "rho") - 0.045 / RATE) < 1e-9);
    }
    for (uint64_t n = 0; n < 60; n++)
        for (uint64_t i = 0; i < WORKERS; i++) {
            feed(w[i].session, (n * WORKERS + i) * BATCH);
            step(&w[i]);
        }
    hk_center_info info;
    CHECK(hk_center_snapshot(center, HK_CENTER_VALUES, 1000,
                             hk_session_params(w[0].session), NULL, &info));
    EXPECT(info.global_step == WORKERS * 60 && info.exchanges == WORKERS * 6);
    feed(w[0].session, 0);
    CHECK(hk_session_run(w[0].session));
    const double loss = (double)hk_session_loss(w[0].session);
    printf(": loss of the center %.3f\n", loss);
    for (int i = 0; i < WORKERS; i++)
        close_worker(&w[i]);
    hk_center_destroy(center);
    hk_plan_release(plan);
    return loss;
}

// ---- in a model_fn ----------------------------------------------------------

static hk_status model_fn(hk_graph *g, hk_mode mode, hk_spec *m) {
    hk_node *image = hk_flatten(g, hk_feature(m, "image"));
    hk_node *logits = network(g, image, hk_param_int(g, "num_classes", 10));
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
    elastic.preset = HK_PRESET_PAPER; // moving_rate 0.9 / workers, rho 0
    hk_spec_elastic(m, &elastic);
    return hk_spec_optimizer(m, HK_OPT_ADAM, 1e-3); // params may change it
}

int main(void) {
    hk_context *ctx;
    hk_estimator *e;
    CHECK(hk_context_create(NULL, &ctx));
    hk_elastic_options elastic;
    hk_elastic_options_init(&elastic, sizeof elastic);
    elastic.num_worker = WORKERS;
    elastic.use_locking = 0;
    const double drowned = by_hand(ctx, &elastic);
    elastic.rho = 0;
    const double free_to_learn = by_hand(ctx, &elastic);
    EXPECT(free_to_learn < drowned);

    hk_params *params = make_params(RATE);
    hk_run_config config;
    hk_run_config_init(&config, sizeof config);
    config.workers = WORKERS;
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
    const double worker_0 = score(e, "accuracy", HK_WEIGHTS_LOCAL);
    printf("%lld steps, %llu exchanges: center %.3f, worker 0 %.3f\n",
           (long long)result.global_step, (unsigned long long)result.exchanges,
           center, worker_0);
    EXPECT(result.global_step == WORKERS * 300); // steps, not exchanges
    EXPECT(result.exchanges == WORKERS * 30);
    EXPECT(center > 0.8);
    hk_estimator_destroy(e);
    hk_params_destroy(params);
    hk_context_destroy(ctx);
    return 0;
}
