// tf_ema_1_hook.c - a moving average kept by a hook of one's own.
//
// In TensorFlow 1:
//     class EMAHook(tf.train.SessionRunHook):
//         def begin(self): self.ema_op = self.ema.apply(self.variables)
//         def after_run(self, ctx, values): ctx.session.run(self.ema_op)
//     EMAHook(decay=0.99, variables=[model.variables[0], model.variables[1]])
// A hook is a table of functions with its state; the session's flat vector is
// at hand in after_run, so no second run is needed. Two of four variables are
// averaged, the others have no shadow.
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
    return hk_spec_optimizer(m, HK_OPT_GRADIENT_DESCENT, 0.1);
}

typedef struct ema_hook {
    double decay;
    const char *const *variables;
    size_t n_variables;
    hk_ema *ema;   // of the run in progress
    float *oracle; // the same by its formula, step by step
    int64_t n, updates;
    size_t averaged, left_out; // variables, at the end
    double worst;              // distance from the formula
} ema_hook;

static int is_listed(const ema_hook *h, const char *name) {
    for (size_t i = 0; i < h->n_variables; i++)
        if (strcmp(h->variables[i], name) == 0)
            return 1;
    return 0;
}

static hk_session *session_of(const hk_run *run) {
    hk_run_info i;
    CHECK(hk_run_get_info(run, &i));
    return i.session;
}

static hk_status after_create_session(void *self, hk_run *run) {
    ema_hook *h = self;
    hk_session *s = session_of(run);
    hk_layout *layout = hk_plan_layout(hk_session_plan(s));
    hk_layout_info model;
    CHECK(hk_layout_get_info(layout, &model));
    h->n = model.n;
    h->oracle = malloc((size_t)h->n * sizeof *h->oracle);
    memcpy(h->oracle, hk_session_params(s), (size_t)h->n * sizeof *h->oracle);
    hk_ema_options o;
    hk_ema_options_init(&o, sizeof o);
    o.decay = h->decay;
    CHECK(hk_ema_create(&o, layout, hk_session_params(s), &h->ema));
    for (size_t i = 0; i < model.entry_count; i++) {
        const char *name = hk_layout_entry(layout, i)->name;
        if (!is_listed(h, name))
            CHECK(hk_ema_set_policy(h->ema, name, HK_POLICY_SKIP));
    }
    return HK_OK;
}

static hk_status after_run(void *self, hk_run *run) {
    ema_hook *h = self;
    const float *x = hk_session_params(session_of(run));
    for (int64_t i = 0; i < h->n; i++)
        h->oracle[i] -= (float)(1 - h->decay) * (h->oracle[i] - x[i]);
    h->updates++;
    return hk_ema_update(h->ema, x);
}

static hk_status end(void *self, hk_run *run) {
    ema_hook *h = self;
    hk_session *s = session_of(run);
    const hk_layout *layout = hk_plan_layout(hk_session_plan(s));
    const hk_entry *var;
    for (size_t i = 0; (var = hk_layout_entry(layout, i)) != NULL; i++) {
        const float *shadow;
        CHECK(hk_ema_average(h->ema, var->name, NULL, &shadow));
        printf("%-14s %s\n", var->name, shadow ? "averaged" : "left out");
        EXPECT((shadow != NULL) == is_listed(h, var->name));
        h->averaged += shadow != NULL;
        h->left_out += shadow == NULL;
        const float *wanted = h->oracle + var->offset;
        for (int64_t k = 0; shadow != NULL && k < var->count; k++)
            h->worst = fmax(h->worst, fabs((double)(shadow[k] - wanted[k])));
    }
    hk_ema_destroy(h->ema);
    return HK_OK;
}

int main(void) {
    hk_context *ctx;
    hk_estimator *e;
    hk_hook *hook;
    CHECK(hk_context_create(NULL, &ctx));
    static const char *const variables[] = {"dense/kernel", "dense/bias"};
    ema_hook mine = {.decay = 0.99, .variables = variables, .n_variables = 2};
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

    printf("%lld updates, at most %.2g from the formula\n",
           (long long)mine.updates, mine.worst);
    EXPECT(mine.updates == 100);
    EXPECT(mine.averaged == 2 && mine.left_out == 2);
    EXPECT(mine.worst < 1e-5);
    free(mine.oracle);
    hk_hook_release(hook);
    hk_estimator_destroy(e);
    hk_context_destroy(ctx);
    return 0;
}
