// Sweeps: which trials there are, that each equals a training by hand, that
// plans are shared, that the number of threads changes nothing.
#define _GNU_SOURCE // memmem
#include "file_util.h"
#include <glob.h>
#include "hooke/hooks.h"
#include "hooke/sweep.h"
#include "estimator/sweep/sweep.h"

enum { ROWS = 96, WIDE = 3 };

static float xs[ROWS][WIDE], ys[ROWS];

// y = x . (1, -2, 0.5) + 0.25
static void fill(void) {
    hki_rng rng;
    hki_rng_init(&rng, 5, 0);
    for (int i = 0; i < ROWS; i++) {
        ys[i] = 0.25f;
        for (int k = 0; k < WIDE; k++) {
            static const float w[WIDE] = {1, -2, 0.5f};
            xs[i][k] = (float)hki_rng_normal(&rng);
            ys[i] += w[k] * xs[i][k];
        }
    }
}

static hk_status input(void *user, const hk_input_call *call,
                       hk_dataset **out) {
    (void)user;
    hk_tensor *x, *y;
    const hk_shape a = hk_shape_make(2, (int64_t[]){ROWS, WIDE});
    const hk_shape b = hk_shape_make(1, (int64_t[]){ROWS});
    HKI_TRY(hk_tensor_wrap(HK_F32, a, xs, &x));
    HKI_TRY(hk_tensor_wrap(HK_F32, b, ys, &y));
    const hk_value values[2] = {{.name = "x",
                                 .role = HK_FEATURE,
                                 .form = HK_DENSE_FORM,
                                 .dtype = HK_F32,
                                 .shape = a,
                                 .tensor = x},
                                {.name = "y",
                                 .role = HK_LABEL,
                                 .form = HK_DENSE_FORM,
                                 .dtype = HK_F32,
                                 .shape = b,
                                 .tensor = y}};
    hk_dataset *d = hk_data_slices(values, 2);
    hk_tensor_release(x);
    hk_tensor_release(y);
    if (call->mode == HK_TRAIN)
        d = hk_data_repeat(d, HK_DATA_FOREVER);
    *out = hk_data_batch(d, 16, 1);
    return hk_dataset_status(*out);
}

static hk_status model_fn(hk_graph *g, hk_mode mode, hk_spec *m) {
    hk_node *h = hk_feature(m, "x");
    const int64_t units = hk_param_int(g, "units", 0);
    if (units > 0)
        h = hk_dense(g, h, units, HK_ACT_TANH, NULL);
    h = hk_dense(g, h, 1, HK_ACT_NONE, NULL);
    h = hk_reshape(g, h, hk_shape_make(1, (int64_t[]){HK_BATCH}));
    hk_spec_prediction(m, "y", h);
    if (mode == HK_PREDICT)
        return HK_OK;
    hk_spec_loss(m, hk_mean_squared_error(g, hk_label(m, "y"), h, NULL, NULL));
    return hk_spec_optimizer(m, HK_OPT_GRADIENT_DESCENT, 0.1);
}

typedef struct bed {
    hk_context *ctx;
    hk_estimator_options e;
    hk_run_config config;
    hk_source in;
    hk_sweep_options o;
} bed;

static void bed_init(bed *b) {
    fill();
    assert_ok(hk_context_create(NULL, &b->ctx));
    hk_estimator_options_init(&b->e, sizeof b->e);
    b->e.model_fn = model_fn;
    hk_run_config_init(&b->config, sizeof b->config);
    b->config.threads = 1;
    b->e.config = &b->config;
    b->in = hk_source_function(input, NULL);
    hk_sweep_options_init(&b->o, sizeof b->o);
    b->o.estimator = &b->e;
    b->o.train = &b->in;
    b->o.eval = &b->in;
    b->o.steps = 20;
}

static void bed_deinit(bed *b) {
    hk_context_destroy(b->ctx);
}

// The loss after `steps` steps with this rate, without a sweep.
static double by_hand(bed *b, double rate, int64_t steps) {
    hk_params *p;
    hk_estimator *e;
    assert_ok(hk_params_create(&p));
    assert_ok(hk_params_set_float(p, "learning_rate", rate));
    hk_estimator_options o = b->e;
    o.params = p;
    assert_ok(hk_estimator_create(b->ctx, &o, &e));
    hk_train_options t;
    hk_train_options_init(&t, sizeof t);
    t.steps = steps;
    assert_ok(hk_estimator_train(e, &b->in, &t, NULL));
    hk_eval_result *r;
    double loss;
    assert_ok(hk_estimator_evaluate(e, &b->in, NULL, &r));
    assert_ok(hk_eval_result_get(r, "loss", NULL, &loss));
    hk_eval_result_destroy(r);
    hk_estimator_destroy(e);
    hk_params_destroy(p);
    return loss;
}

// ---- which trials ---------------------------------------------------------

static void test_grid_order(void **state) {
    (void)state;
    static const double a[] = {1, 2}, c[] = {10, 20, 30};
    static const char *const texts[] = {"u", "v"};
    const hk_sweep_axis axes[] = {{.name = "a", .values = a, .n = 2},
                                  {.name = "b", .texts = texts, .n = 2},
                                  {.name = "c", .values = c, .n = 3}};
    bed b;
    bed_init(&b);
    b.o.axes = axes;
    b.o.n_axes = 3;
    hki_sweep_store r = {0};
    assert_ok(hki_sweep_draw(&b.o, &r));
    assert_int_equal(r.count, 12);
    for (size_t i = 0; i < 12; i++) {
        const hk_hparam *p = r.trials[i].params;
        assert_true(p[0].number == a[i / 6]);
        assert_string_equal(p[1].string, texts[i / 3 % 2]);
        assert_true(p[2].number == c[i % 3]);
    }
    hki_arena_deinit(&r.arena);
    bed_deinit(&b);
}

static void test_draws(void **state) {
    (void)state;
    const hk_sweep_axis axes[] = {
        {.name = "rate", .low = 1e-4, .high = 1, .log = 1},
        {.name = "units", .low = 2, .high = 5, .integer = 1}};
    bed b;
    bed_init(&b);
    b.o.kind = HK_SWEEP_RANDOM;
    b.o.axes = axes;
    b.o.n_axes = 2;
    b.o.trials = 400;
    hki_sweep_store r = {0}, again = {0};
    assert_ok(hki_sweep_draw(&b.o, &r));
    assert_ok(hki_sweep_draw(&b.o, &again));
    int small = 0, seen[8] = {0};
    for (size_t i = 0; i < r.count; i++) {
        const hk_hparam *p = r.trials[i].params;
        assert_true(p[0].number == again.trials[i].params[0].number);
        assert_true(p[0].number >= 1e-4 && p[0].number <= 1);
        small += p[0].number < 1e-2;
        assert_true(p[1].number == floor(p[1].number));
        seen[(int)p[1].number]++;
    }
    // Even on a logarithmic scale: half of them below the middle, within four
    // deviations of a fair coin.
    assert_true(small > 160 && small < 240);
    for (int u = 2; u <= 5; u++)
        assert_true(seen[u] > 50);
    assert_int_equal(seen[2] + seen[3] + seen[4] + seen[5], 400);
    hki_arena_deinit(&r.arena);
    hki_arena_deinit(&again.arena);
    bed_deinit(&b);
}

static void test_bad_options(void **state) {
    (void)state;
    static const double a[] = {1}, nan_value[] = {NAN};
    static const char *const text[] = {"x"};
    static const struct {
        const char *what;
        hk_sweep_axis axis;
        hk_sweep_kind kind;
        int64_t steps, epochs;
        uint32_t eta;
    } cases[] = {
        {"no name", {.values = a, .n = 1}, HK_SWEEP_GRID, 1, 0, 3},
        {"grid of a range",
         {.name = "a", .low = 0, .high = 1},
         HK_SWEEP_GRID,
         1,
         0,
         3},
        {"values and texts",
         {.name = "a", .values = a, .texts = text, .n = 1},
         HK_SWEEP_GRID,
         1,
         0,
         3},
        {"NaN",
         {.name = "a", .values = nan_value, .n = 1},
         HK_SWEEP_GRID,
         1,
         0,
         3},
        {"range backwards",
         {.name = "a", .low = 2, .high = 1},
         HK_SWEEP_RANDOM,
         1,
         0,
         3},
        {"log from 0",
         {.name = "a", .low = 0, .high = 1, .log = 1},
         HK_SWEEP_RANDOM,
         1,
         0,
         3},
        {"no end", {.name = "a", .values = a, .n = 1}, HK_SWEEP_GRID, 0, 0, 3},
        {"two ends",
         {.name = "a", .values = a, .n = 1},
         HK_SWEEP_GRID,
         1,
         1,
         3},
        {"eta 1",
         {.name = "a", .values = a, .n = 1},
         HK_SWEEP_HALVING,
         9,
         0,
         1},
        {"unknown kind",
         {.name = "a", .values = a, .n = 1},
         (hk_sweep_kind)9,
         1,
         0,
         3}};
    bed b;
    bed_init(&b);
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_sweep_options o = b.o;
        o.axes = &cases[i].axis;
        o.n_axes = 1;
        o.kind = cases[i].kind;
        o.steps = cases[i].steps;
        o.epochs = cases[i].epochs;
        o.eta = cases[i].eta;
        hk_sweep_result *r;
        if (hk_sweep_run(b.ctx, &o, &r) != HK_E_INVALID_ARG)
            fail_msg("%s: not refused", cases[i].what);
    }
    bed_deinit(&b);
}

// ---- what they do ---------------------------------------------------------

static void test_equals_training_by_hand(void **state) {
    (void)state;
    static const double rates[] = {0.001, 0.05, 0.2, 0.3, 0.0};
    const hk_sweep_axis axis = {
        .name = "learning_rate", .values = rates, .n = 5};
    for (uint32_t parallel = 1; parallel <= 3; parallel += 2) {
        bed b;
        bed_init(&b);
        b.o.axes = &axis;
        b.o.n_axes = 1;
        b.o.parallel = parallel;
        hk_sweep_result *r;
        assert_ok(hk_sweep_run(b.ctx, &b.o, &r));
        assert_int_equal(graph_builds(b.ctx), 2);
        size_t best = 0;
        double losses[5];
        for (size_t i = 0; i < 5; i++) {
            losses[i] = by_hand(&b, rates[i], 20);
            const hk_trial *t = &r->trials[i];
            assert_int_equal(t->status, HK_OK);
            assert_true(t->metric == losses[i]); // to the bit
            assert_int_equal(t->steps, 20);
            best = losses[i] < losses[best] ? i : best;
        }
        assert_int_equal(r->best->number, best);
        assert_int_equal(graph_builds(b.ctx), 2);
        hk_sweep_result_destroy(r);
        bed_deinit(&b);
    }
}

static void test_structural(void **state) {
    (void)state;
    static const double units[] = {2, 7, 2};
    const hk_sweep_axis axis = {
        .name = "units", .values = units, .n = 3, .integer = 1};
    bed b;
    bed_init(&b);
    b.o.axes = &axis;
    b.o.n_axes = 1;
    hk_sweep_result *r;
    assert_ok(hk_sweep_run(b.ctx, &b.o, &r));
    // Two different values, two modes.
    assert_int_equal(graph_builds(b.ctx), 4);
    assert_true(r->trials[0].metric == r->trials[2].metric);
    assert_true(r->trials[0].metric != r->trials[1].metric);
    hk_sweep_result_destroy(r);
    bed_deinit(&b);
}

// A rate that blows up fails its own trial only.
// The same by prepare, which gives each trial its own fixed parameters.
static hk_status prepare(void *user, const hk_trial *t, hk_trial_setup *s) {
    hk_params *const *const p = user;
    assert_string_equal(t->params[0].name, "model.width");
    s->estimator.params = p[(int)t->params[0].number];
    return HK_OK;
}

static void test_prepare(void **state) {
    (void)state;
    static const double units[] = {0, 1}, sizes[] = {2, 5};
    hk_sweep_axis axis = {
        .name = "units", .values = sizes, .n = 2, .integer = 1};
    hk_params *p[2];
    bed b;
    bed_init(&b);
    b.o.axes = &axis;
    b.o.n_axes = 1;
    hk_sweep_result *a, *r;
    assert_ok(hk_sweep_run(b.ctx, &b.o, &a));
    for (int i = 0; i < 2; i++) {
        assert_ok(hk_params_create(&p[i]));
        assert_ok(hk_params_set_int(p[i], "units", (int64_t)sizes[i]));
    }
    axis = (hk_sweep_axis){.name = "width",
                           .shown = "model.width",
                           .values = units,
                           .n = 2,
                           .outside = 1};
    b.o.prepare = prepare;
    b.o.user = p;
    b.o.on_trial = NULL;
    assert_ok(hk_sweep_run(b.ctx, &b.o, &r));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(r->trials[i].status, HK_OK);
        assert_true(r->trials[i].metric == a->trials[i].metric);
        hk_params_destroy(p[i]);
    }
    assert_true(a->trials[0].metric != a->trials[1].metric);
    hk_sweep_result_destroy(a);
    hk_sweep_result_destroy(r);
    bed_deinit(&b);
}

static void test_failed_trial(void **state) {
    (void)state;
    static const double rates[] = {1e30, 0.1};
    const hk_sweep_axis axis = {
        .name = "learning_rate", .values = rates, .n = 2};
    bed b;
    bed_init(&b);
    b.o.axes = &axis;
    b.o.n_axes = 1;
    hk_sweep_result *r;
    assert_ok(hk_sweep_run(b.ctx, &b.o, &r));
    assert_int_equal(r->trials[0].status, HK_E_NOT_FINITE);
    assert_true(r->trials[0].error[0] != '\0');
    assert_true(isnan(r->trials[0].metric));
    assert_int_equal(r->best->number, 1);
    hk_sweep_result_destroy(r);
    bed_deinit(&b);
}

// Nine trials of 2 steps, the best three go on to 6, one to 18.
static void test_halving(void **state) {
    (void)state;
    static const double rates[] = {0.001, 0.002, 0.003, 0.01, 0.02,
                                   0.03,  0.1,   0.15,  0.2};
    const hk_sweep_axis axis = {
        .name = "learning_rate", .values = rates, .n = 9};
    bed b;
    bed_init(&b);
    b.o.kind = HK_SWEEP_HALVING;
    b.o.axes = &axis;
    b.o.n_axes = 1;
    b.o.trials = 9;
    b.o.steps = 18;
    b.o.min_steps = 2;
    hk_sweep_result *r;
    assert_ok(hk_sweep_run(b.ctx, &b.o, &r));
    int rounds[4] = {0};
    for (size_t i = 0; i < 9; i++) {
        const hk_trial *t = &r->trials[i];
        static const int64_t steps[] = {0, 2, 6, 18};
        rounds[t->rounds]++;
        assert_int_equal(t->steps, steps[t->rounds]);
        assert_true(t->metric == by_hand(&b, t->params[0].number, t->steps));
    }
    assert_int_equal(rounds[1], 6);
    assert_int_equal(rounds[2], 2);
    assert_int_equal(rounds[3], 1);
    assert_int_equal(r->best->rounds, 3);
    hk_sweep_result_destroy(r);
    bed_deinit(&b);
}

// One that is left alone goes on to the end.
static void test_halving_to_the_end(void **state) {
    (void)state;
    static const double rates[] = {0.001, 0.01, 0.1};
    const hk_sweep_axis axis = {
        .name = "learning_rate", .values = rates, .n = 3};
    for (uint32_t trials = 1; trials <= 3; trials += 2) {
        bed b;
        bed_init(&b);
        b.o.kind = HK_SWEEP_HALVING;
        b.o.axes = &axis;
        b.o.n_axes = 1;
        b.o.trials = trials;
        b.o.steps = 40;
        b.o.min_steps = 2;
        hk_sweep_result *r;
        assert_ok(hk_sweep_run(b.ctx, &b.o, &r));
        assert_int_equal(r->best->steps, 40);
        assert_int_equal(r->best->rounds, trials == 1 ? 1 : 2);
        assert_true(r->best->metric ==
                    by_hand(&b, r->best->params[0].number, 40));
        hk_sweep_result_destroy(r);
        bed_deinit(&b);
    }
}

// ---- what they leave ------------------------------------------------------

static int count_files(const char *dir, const char *part) {
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        n += strstr(e->d_name, part) != NULL;
    if (d)
        closedir(d);
    return n;
}

typedef struct watched {
    hk_hook *list[2]; // evaluations, and patience
    const hk_run_config *config;
} watched;

static void watch(bed *b, watched *w) {
    hk_early_options o;
    hk_early_options_init(&o, sizeof o);
    o.run_every_steps = 1;
    o.metric = "loss";
    o.max_steps = 1000;
    assert_ok(hk_hook_evaluator(&b->in, NULL, 2, &w->list[0]));
    assert_ok(hk_hook_early_stopping(HK_STOP_IF_NO_DECREASE, &o, &w->list[1]));
    b->config.keep_best = 1;
    b->config.best_metric = "loss";
    b->e.config = &b->config;
    w->config = &b->config;
}

static hk_status watch_trial(void *user, const hk_trial *t, hk_trial_setup *s) {
    const watched *const w = user;
    (void)t;
    assert_ptr_equal(s->estimator.config, w->config);
    s->hooks = w->list;
    s->n_hooks = 2;
    return HK_OK;
}

// A rate that makes it worse from the third step on.
#define TOO_HIGH 1.5

static double best_by_hand(bed *b, const watched *w, const char *dir) {
    hk_params *p;
    hk_estimator *e;
    assert_ok(hk_params_create(&p));
    assert_ok(hk_params_set_float(p, "learning_rate", TOO_HIGH));
    hk_estimator_options o = b->e;
    o.params = p;
    o.model_dir = dir;
    assert_ok(hk_estimator_create(b->ctx, &o, &e));
    hk_train_options t;
    hk_train_options_init(&t, sizeof t);
    t.steps = 12;
    t.hooks = w->list;
    t.n_hooks = 2;
    assert_ok(hk_estimator_train(e, &b->in, &t, NULL));
    hk_eval_result *r;
    double loss;
    assert_ok(hk_estimator_evaluate(e, &b->in, NULL, &r));
    assert_ok(hk_eval_result_get(r, "loss", NULL, &loss));
    hk_eval_result_destroy(r);
    hk_estimator_destroy(e);
    hk_params_destroy(p);
    return loss;
}

// Hooks of a trial do what they do in a training: it ends with its best model,
// and only the best trial leaves a checkpoint.
static void test_hooks_of_trials(void **state) {
    (void)state;
    static const double rates[] = {TOO_HIGH, 0.05, 0.01};
    const hk_sweep_axis axis = {
        .name = "learning_rate", .values = rates, .n = 3};
    for (int halving = 0; halving < 2; halving++) {
        char dir[] = P_tmpdir "/hooke-sweep-XXXXXX", command[64], own[64];
        assert_non_null(mkdtemp(dir));
        snprintf(own, sizeof own, "%s/own", dir);
        bed b;
        watched w;
        bed_init(&b);
        watch(&b, &w);
        b.e.model_dir = dir;
        b.o.axes = &axis;
        b.o.n_axes = 1;
        b.o.kind = halving ? HK_SWEEP_HALVING : HK_SWEEP_GRID;
        b.o.trials = 3;
        b.o.steps = 12;
        b.o.prepare = watch_trial;
        b.o.user = &w;
        hk_sweep_result *r;
        assert_ok(hk_sweep_run(b.ctx, &b.o, &r));
        const hk_trial *const best = r->best;
        assert_true(best->number != 0);
        assert_int_equal(best->steps, 12);
        assert_true(count_files(best->folder, ".safetensors") > 0);
        for (size_t i = 0; i < r->trial_count; i++)
            if (&r->trials[i] != best)
                assert_int_equal(
                    count_files(r->trials[i].folder, ".safetensors"), 0);
        if (!halving) {
            assert_true(r->trials[0].metric == best_by_hand(&b, &w, own));
            b.config.keep_best = 0;
            assert_true(r->trials[0].metric < by_hand(&b, TOO_HIGH, 12));
        }
        hk_sweep_result_destroy(r);
        hk_hook_release(w.list[0]);
        hk_hook_release(w.list[1]);
        bed_deinit(&b);
        snprintf(command, sizeof command, "rm -r %s", dir);
        assert_int_equal(system(command), 0);
    }
}

// TensorBoard's page of a sweep shows the loss of the evaluations: the file of
// the sweep names metric {group "eval", tag "loss"}.
static void assert_evaluations_metric(const char *dir) {
    static const char metric[] = "\x0a\x04"
                                 "eval"
                                 "\x12\x04"
                                 "loss";
    char pattern[256];
    snprintf(pattern, sizeof pattern, "%s/*.hparams", dir);
    glob_t found;
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    size_t size;
    uint8_t *const bytes = read_file(found.gl_pathv[0], &size);
    assert_non_null(memmem(bytes, size, metric, sizeof metric - 1));
    free(bytes);
    globfree(&found);
}

static void test_folders(void **state) {
    (void)state;
    char dir[] = P_tmpdir "/hooke-sweep-XXXXXX", command[64];
    assert_non_null(mkdtemp(dir));
    static const double rates[] = {0.001, 0.1};
    const hk_sweep_axis axis = {
        .name = "learning_rate", .values = rates, .n = 2};
    bed b;
    bed_init(&b);
    b.e.model_dir = dir;
    b.o.axes = &axis;
    b.o.n_axes = 1;
    hk_sweep_result *r;
    assert_ok(hk_sweep_run(b.ctx, &b.o, &r));
    const hk_trial *best = r->best;
    assert_int_equal(best->number, 1);
    assert_int_equal(count_files(dir, ".hparams"), 1);
    assert_evaluations_metric(dir);
    assert_int_equal(count_files(best->folder, ".safetensors"), 1);
    assert_int_equal(count_files(best->folder, ".hparams"), 2);
    assert_int_equal(count_files(r->trials[0].folder, ".safetensors"), 0);
    int64_t step;
    assert_ok(hk_latest_checkpoint(best->folder, NULL, 0, &step));
    assert_int_equal(step, 20);
    hk_sweep_result_destroy(r);
    bed_deinit(&b);
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    assert_int_equal(system(command), 0);
}

static void stop_after_one(void *user, const hk_trial *t, size_t done,
                           size_t all) {
    (void)t, (void)done, (void)all;
    hk_request_stop(user, 15);
}

static void test_stop(void **state) {
    (void)state;
    static const double rates[] = {0.1, 0.2, 0.3};
    const hk_sweep_axis axis = {
        .name = "learning_rate", .values = rates, .n = 3};
    bed b;
    bed_init(&b);
    b.o.axes = &axis;
    b.o.n_axes = 1;
    b.o.parallel = 1;
    b.o.on_trial = stop_after_one;
    b.o.user = b.ctx;
    hk_sweep_result *r = NULL;
    assert_status(hk_sweep_run(b.ctx, &b.o, &r), HK_E_CANCELLED);
    assert_non_null(r);
    assert_int_equal(r->trials[0].rounds, 1);
    assert_int_equal(r->trials[1].rounds, 0);
    hk_sweep_result_destroy(r);
    bed_deinit(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grid_order),
        cmocka_unit_test(test_draws),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_equals_training_by_hand),
        cmocka_unit_test(test_structural),
        cmocka_unit_test(test_prepare),
        cmocka_unit_test(test_failed_trial),
        cmocka_unit_test(test_halving),
        cmocka_unit_test(test_halving_to_the_end),
        cmocka_unit_test(test_hooks_of_trials),
        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
