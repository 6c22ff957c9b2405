// test_estimator_elastic.c - many workers behind one setting: the same bits
// as a hand-made run, going on where it stopped, and every set of weights.
#include "estimator_bed.h"
#include "hooke/cluster.h"
#include "hooke/center_server.h"
#include "thread_worker.h"

enum { WORKERS = 3, PERIOD = 4 };

static hk_context *context(void) {
    hk_context *ctx;
    assert_ok(hk_context_create(NULL, &ctx));
    return ctx;
}

static void elastic_options(hk_elastic_options *o) {
    hk_elastic_options_init(o, sizeof *o);
    o->communication_period = PERIOD;
    o->moving_rate = 0.2;
}

static void elastic_bed(bed *b, hk_context *ctx, const hk_elastic_options *o) {
    bed_init(b, ctx);
    b->config.workers = WORKERS;
    b->config.turn = HK_TURN_ROUND_ROBIN;
    b->config.elastic = o;
}

static void same_everywhere(hk_estimator *a, hk_estimator *b) {
    bed_same_values(a, b, HK_WEIGHTS_CENTER, 0);
    for (uint32_t i = 0; i < WORKERS; i++)
        bed_same_values(a, b, HK_WEIGHTS_LOCAL, i);
}

// ---- the same as by hand ----------------------------------------------------

typedef struct hand {
    hk_iter *it[WORKERS];
} hand;

static hk_status hand_model(void *user, hk_graph *g, hk_mode mode) {
    (void)mode;
    (void)user;
    hk_node *x = hk_input(
        g, "x", HK_F32, hk_shape_make(2, (int64_t[]){HK_BATCH, BED_FEATURES}));
    hk_node *y =
        hk_input(g, "y", HK_I32, hk_shape_make(1, (int64_t[]){HK_BATCH}));
    hk_node *h = hk_dense(g, x, 8, HK_ACT_RELU, NULL);
    h = hk_batch_norm(g, h, NULL);
    h = hk_dropout(g, h, hk_param_scalar(g, "dropout", 0.1f));
    hk_node *z = hk_dense(g, h, BED_CLASSES, HK_ACT_NONE, NULL);
    hk_set_loss(g, hk_sparse_softmax_cross_entropy(g, y, z, NULL, NULL));
    return hk_graph_status(g);
}

static hk_status hand_feed(void *user, uint32_t worker, hk_session *s,
                           int64_t step) {
    (void)step;
    const hand *h = user;
    const hk_element *el;
    HKI_TRY(hk_iter_next(h->it[worker], &el));
    HKI_TRY(hk_session_feed(s, "x", hk_element_find(el, "x")->tensor));
    return hk_session_feed(s, "y", hk_element_find(el, "y")->tensor);
}

// Threads over shards of the same data, round-robin.
static void train_by_hand(hk_context *ctx, hk_dataset *d, int64_t steps,
                          float *center, hk_layout **layout) {
    hk_model m;
    hk_model_init(&m, sizeof m);
    m.build = hand_model;
    hk_plan_options po;
    hk_plan_options_init(&po, sizeof po);
    po.batch = BED_BATCH;
    po.threads = 1;
    hk_plan *p;
    assert_ok(hk_plan_get(ctx, &m, HK_TRAIN, &po, &p));
    hk_center_options co;
    hk_center_options_init(&co, sizeof co);
    co.turn = HK_TURN_ROUND_ROBIN;
    co.workers = WORKERS;
    hk_center *c;
    assert_ok(hk_center_create_local(&co, hk_plan_layout(p), &c));
    hand h;
    for (uint32_t i = 0; i < WORKERS; i++) {
        hk_dataset *part = hk_data_shard(hk_dataset_retain(d), WORKERS, i);
        assert_ok(hk_iter_create(part, NULL, &h.it[i]));
        hk_dataset_release(part);
    }
    hk_optimizer_options oo;
    hk_optimizer_options_init(&oo, sizeof oo, HK_OPT_ADAM);
    oo.learning_rate = 0.01;
    hk_elastic_options eo;
    elastic_options(&eo);
    eo.num_worker = WORKERS;
    const thread_setting set = {.plan = p,
                                .center = c,
                                .optimizer = &oo,
                                .elastic = &eo,
                                .feed = hand_feed,
                                .user = &h,
                                .steps = steps,
                                .seed = 1};
    thread_worker w[WORKERS];
    thread_workers_run(w, &set, WORKERS);
    for (uint32_t i = 0; i < WORKERS; i++)
        assert_int_equal(w[i].status, HK_OK);
    assert_ok(
        hk_center_snapshot(c, HK_CENTER_VALUES, 1000, center, NULL, NULL));
    *layout = hk_layout_retain(hk_plan_layout(p));
    hk_center_destroy(c);
    for (uint32_t i = 0; i < WORKERS; i++)
        hk_iter_destroy(h.it[i]);
    hk_plan_release(p);
}

static void test_same_as_threads(void **state) {
    (void)state;
    hk_context *ctx = context();
    hk_dataset *d = bed_training(1);
    hk_elastic_options eo;
    elastic_options(&eo);
    bed b;
    elastic_bed(&b, ctx, &eo);
    bed_open(&b);
    hk_train_result r;
    bed_train(&b, d, 42, &r);
    assert_int_equal(r.steps, 42 * WORKERS);
    assert_int_equal(r.exchanges, 42 / PERIOD * WORKERS);
    float center[BED_VALUES * 2];
    hk_layout *l;
    train_by_hand(ctx, d, 42, center, &l);
    for (size_t i = 0; i < hki_layout_entry_count(l); i++) {
        const hk_entry *n = hk_layout_entry(l, i);
        hk_tensor *t;
        assert_ok(
            hk_estimator_variable(b.e, n->name, HK_WEIGHTS_CENTER, 0, &t));
        assert_memory_equal(hk_tensor_data(t), center + n->offset,
                            (size_t)n->count * sizeof(float));
        hk_tensor_release(t);
    }
    hk_worker_report w;
    for (uint32_t i = 0; i < WORKERS; i++) {
        assert_ok(hk_estimator_worker(b.e, i, &w));
        assert_int_equal(w.local_step, 42);
        assert_int_equal(w.exchanges, 42 / PERIOD);
        assert_int_equal(w.running, 0);
        assert_true(w.stats.distance > 0);
    }
    assert_status(hk_estimator_worker(b.e, WORKERS, &w), HK_E_NOT_FOUND);
    hk_layout_release(l);
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// ---- options of the model ---------------------------------------------------

// The same options by model_fn and by the run config.
typedef struct said {
    const char *tag; // user data is not part of a graph's key
    bool elastic, ema;
    hk_ema_source source;
    int with_step;
} said;

static void average_options(hk_ema_options *o) {
    hk_ema_options_init(o, sizeof *o);
    o->decay = 0.8;
}

static hk_status saying_model(hk_graph *g, hk_mode mode, hk_spec *m) {
    const said *const k = hk_spec_user(m);
    hk_elastic_options eo;
    hk_ema_options ema;
    elastic_options(&eo);
    average_options(&ema);
    if (k->elastic)
        hk_spec_elastic(m, &eo);
    if (k->ema)
        hk_spec_ema(m, &ema, k->source, k->with_step);
    return bed_model(g, mode, m);
}

// One estimator whose model says it, one whose run config does.
static void saying_beds(hk_context *ctx, said *k, uint32_t workers,
                        bed both[2]) {
    static hk_elastic_options eo; // read by bed_open
    static hk_ema_options ema;
    elastic_options(&eo);
    average_options(&ema);
    for (int i = 0; i < 2; i++) {
        bed_init(&both[i], ctx);
        both[i].config.workers = workers;
        both[i].config.turn = HK_TURN_ROUND_ROBIN;
    }
    both[0].o.model_fn = saying_model;
    both[0].o.user = k;
    both[0].o.tag = k->tag;
    if (k->elastic)
        both[1].config.elastic = &eo;
    if (k->ema)
        both[1].config.ema = &ema;
    both[1].config.ema_source = k->source;
    both[1].config.ema_with_step = (uint32_t)k->with_step;
    for (int i = 0; i < 2; i++)
        bed_open(&both[i]);
}

static void test_said_by_the_model(void **state) {
    (void)state;
    said cases[] = {
        {.tag = "a", .elastic = true},
        {.tag = "b", .ema = true, .source = HK_EMA_WORKER},
        {.tag = "c", .ema = true, .source = HK_EMA_WORKER, .with_step = 1},
        {.tag = "d", .elastic = true, .ema = true, .source = HK_EMA_CENTER},
        {.tag = "e", .elastic = true, .ema = true, .source = HK_EMA_WORKER}};
    hk_context *ctx = context();
    hk_dataset *d = bed_training(1);
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        bed both[2];
        hk_train_result r[2];
        saying_beds(ctx, &cases[i], cases[i].elastic ? WORKERS : 1, both);
        for (int k = 0; k < 2; k++)
            bed_train(&both[k], d, 3 * PERIOD + 1, &r[k]);
        assert_int_equal(r[0].exchanges, cases[i].elastic ? 3 * WORKERS : 0);
        assert_int_equal(r[0].exchanges, r[1].exchanges);
        if (cases[i].elastic)
            bed_same_values(both[0].e, both[1].e, HK_WEIGHTS_CENTER, 0);
        if (cases[i].ema)
            bed_same_values(both[0].e, both[1].e, HK_WEIGHTS_EMA, 0);
        bed_same_values(both[0].e, both[1].e, HK_WEIGHTS_LOCAL, 0);
        for (int k = 0; k < 2; k++)
            hk_estimator_destroy(both[k].e);
    }
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// The run config's own options win.
static void test_config_wins(void **state) {
    (void)state;
    hk_context *ctx = context();
    hk_dataset *d = bed_training(1);
    said k = {.elastic = true, .ema = true, .source = HK_EMA_WORKER};
    hk_elastic_options eo;
    elastic_options(&eo);
    eo.communication_period = 2 * PERIOD;
    hk_ema_options keep;
    average_options(&keep);
    keep.decay = 1; // it never moves
    bed b;
    elastic_bed(&b, ctx, &eo);
    b.o.model_fn = saying_model;
    b.o.user = &k;
    b.config.ema = &keep;
    b.config.ema_source = HK_EMA_WORKER;
    bed_open(&b);
    hk_train_result r;
    float before[BED_VALUES], after[BED_VALUES], x[BED_VALUES];
    bed_train(&b, d, 1, &r);
    const size_t n = bed_values(b.e, HK_WEIGHTS_EMA, 0, before, BED_VALUES);
    bed_train(&b, d, 4 * PERIOD - 1, &r);
    assert_int_equal(r.exchanges, 2 * WORKERS);
    bed_values(b.e, HK_WEIGHTS_EMA, 0, after, BED_VALUES);
    bed_values(b.e, HK_WEIGHTS_LOCAL, 0, x, BED_VALUES);
    assert_memory_equal(before, after, n * sizeof *before);
    assert_true(memcmp(before, x, n * sizeof *before) != 0);
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// ---- going on ---------------------------------------------------------------

// Everything else that has a memory: a schedule of the global step, gradients
// gathered over three steps, momentum.
static hk_status scheduled(hk_graph *g, hk_mode mode, hk_spec *m,
                           uint32_t lookahead) {
    hk_node *h = hk_dense(g, hk_feature(m, "x"), 8, HK_ACT_TANH, NULL);
    h = hk_dropout_rate(g, h, 0.2);
    hk_node *z = hk_dense(g, h, BED_CLASSES, HK_ACT_NONE, NULL);
    hk_spec_prediction(m, "class", hk_argmax(g, z, 1));
    if (mode == HK_PREDICT)
        return HK_OK;
    hk_spec_loss(
        m, hk_sparse_softmax_cross_entropy(g, hk_label(m, "y"), z, NULL, NULL));
    hk_schedule_options so;
    hk_schedule_options_init(&so, sizeof so, HK_SCHEDULE_EXPONENTIAL);
    so.learning_rate = 0.2;
    so.decay_steps = 20;
    so.decay_rate = 0.7;
    hk_optimizer_options o;
    hk_optimizer_options_init(&o, sizeof o, HK_OPT_MOMENTUM);
    o.momentum = 0.9;
    o.lookahead = lookahead;
    HKI_TRY(hk_schedule_create(&so, &o.schedule));
    const hk_status s = hk_spec_optimizer_options(m, &o);
    hk_schedule_release(o.schedule);
    hk_gradproc_options go;
    hk_gradproc_options_init(&go, sizeof go);
    go.accumulate_steps = 3;
    go.clip_global_norm = 0.5;
    hk_spec_gradproc(m, &go);
    return s;
}

static hk_status scheduled_model(hk_graph *g, hk_mode mode, hk_spec *m) {
    return scheduled(g, mode, m, 0);
}

static hk_status lookahead_model(hk_graph *g, hk_mode mode, hk_spec *m) {
    return scheduled(g, mode, m, 1);
}

// Methods, presets and averages for which 50 + 50 are 100.
typedef struct resume_case {
    const char *name;
    hk_method method;
    hk_elastic_preset preset;
    hk_ema_source source; // DEFAULT: no average
    hk_model_fn model;    // NULL: the bed's
} resume_case;

static void resume_bed(bed *b, hk_context *ctx, const resume_case *k,
                       hk_elastic_options *eo, hk_ema_options *ema) {
    elastic_options(eo);
    eo->preset = k->preset;
    hk_ema_options_init(ema, sizeof *ema);
    ema->decay = 0.9;
    elastic_bed(b, ctx, eo);
    b->config.method = k->method;
    if (k->model != NULL)
        b->o.model_fn = k->model;
    if (k->source != HK_EMA_DEFAULT) {
        b->config.ema = ema;
        b->config.ema_source = k->source;
        b->config.ema_with_step = 1;
    }
}

static void check_resume(hk_context *ctx, const resume_case *k) {
    hk_elastic_options eo;
    hk_ema_options ema;
    char *dir = bed_folder();
    bed whole, parts, fresh;
    hk_dataset *d = bed_training(1);
    resume_bed(&whole, ctx, k, &eo, &ema);
    bed_open(&whole);
    bed_train(&whole, d, 30, NULL);
    // In memory; 13 is no multiple of the period.
    resume_bed(&parts, ctx, k, &eo, &ema);
    bed_open(&parts);
    bed_train(&parts, d, 13, NULL);
    bed_train(&parts, d, 17, NULL);
    same_everywhere(whole.e, parts.e);
    if (k->source != HK_EMA_DEFAULT)
        bed_same_values(whole.e, parts.e, HK_WEIGHTS_EMA, 0);
    hk_estimator_destroy(parts.e);
    // Through checkpoints.
    for (int i = 0; i < 2; i++) {
        hk_dataset *again = bed_training(1);
        resume_bed(&fresh, ctx, k, &eo, &ema);
        fresh.o.model_dir = dir;
        bed_open(&fresh);
        bed_train(&fresh, again, i == 0 ? 13 : 17, NULL);
        if (i == 1) {
            same_everywhere(whole.e, fresh.e);
            if (k->source != HK_EMA_DEFAULT)
                bed_same_values(whole.e, fresh.e, HK_WEIGHTS_EMA, 0);
        }
        hk_estimator_destroy(fresh.e);
        hk_dataset_release(again);
    }
    hk_estimator_destroy(whole.e);
    hk_dataset_release(d);
    bed_remove(dir);
}

static void test_resume(void **state) {
    (void)state;
    static const resume_case cases[] = {
        {"elastic", HK_METHOD_ELASTIC, HK_PRESET_TF, HK_EMA_DEFAULT, NULL},
        {"elastic, average of the center", HK_METHOD_ELASTIC, HK_PRESET_TF,
         HK_EMA_CENTER, NULL},
        {"paper, average of the worker", HK_METHOD_ELASTIC, HK_PRESET_PAPER,
         HK_EMA_WORKER, NULL},
        {"synchronous", HK_METHOD_ELASTIC_SYNC, HK_PRESET_TF, HK_EMA_DEFAULT,
         NULL},
        {"downpour with the mean", HK_METHOD_DOWNPOUR_AVERAGED, HK_PRESET_TF,
         HK_EMA_DEFAULT, NULL},
        {"model averaging", HK_METHOD_MODEL_AVERAGE, HK_PRESET_TF,
         HK_EMA_CENTER, NULL},
        {"slowmo", HK_METHOD_SLOWMO, HK_PRESET_TF, HK_EMA_DEFAULT, NULL},
        {"diloco", HK_METHOD_DILOCO, HK_PRESET_TF, HK_EMA_DEFAULT, NULL},
        {"diloco, delayed", HK_METHOD_DILOCO_DELAYED, HK_PRESET_TF,
         HK_EMA_DEFAULT, NULL},
        {"schedule and accumulation", HK_METHOD_ELASTIC, HK_PRESET_TF,
         HK_EMA_WORKER, scheduled_model},
        {"momentum that looks ahead", HK_METHOD_ELASTIC, HK_PRESET_PAPER,
         HK_EMA_CENTER, lookahead_model},
    };
    hk_context *ctx = context();
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        print_message("%s\n", cases[i].name);
        check_resume(ctx, &cases[i]);
    }
    hk_context_destroy(ctx);
}

// Checkpoints in the middle of a run change nothing, and one taken there leads
// to the same end.
static void test_cuts(void **state) {
    (void)state;
    hk_context *ctx = context();
    hk_elastic_options eo;
    elastic_options(&eo);
    char *dir = bed_folder();
    hk_dataset *d = bed_training(1);
    bed a, b, c;
    elastic_bed(&a, ctx, &eo);
    bed_open(&a);
    bed_train(&a, d, 40, NULL);
    elastic_bed(&b, ctx, &eo);
    b.o.model_dir = dir;
    b.config.save_checkpoints_steps = 20;
    b.config.keep_checkpoint_max = 0;
    bed_open(&b);
    bed_train(&b, d, 40, NULL);
    same_everywhere(a.e, b.e);
    // 120 steps in all: the start, at least two cuts, the end.
    assert_true(estimator_info(b.e).checkpoint_saves >= 4);
    hk_estimator_destroy(b.e);
    // Lose the newest ones: training goes on from a cut.
    int64_t newest = 120;
    char path[600];
    while (newest > 48) {
        assert_ok(hk_latest_checkpoint(dir, path, sizeof path, &newest));
        if (newest > 48)
            assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(newest % (PERIOD * WORKERS), 0);
    hk_dataset *again = bed_training(1);
    elastic_bed(&c, ctx, &eo);
    c.o.model_dir = dir;
    bed_open(&c);
    hk_source in = hk_source_dataset(again);
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    o.max_steps = 120;
    hk_train_result r;
    assert_ok(hk_estimator_train(c.e, &in, &o, &r));
    assert_int_equal(r.steps, 120 - newest);
    same_everywhere(a.e, c.e);
    hk_estimator_destroy(a.e);
    hk_estimator_destroy(c.e);
    hk_dataset_release(d);
    hk_dataset_release(again);
    bed_remove(dir);
    hk_context_destroy(ctx);
}

// ---- weights ----------------------------------------------------------------

// All sets side by side give what each gives alone, in one pass.
static void test_weights(void **state) {
    (void)state;
    hk_context *ctx = context();
    hk_elastic_options eo;
    elastic_options(&eo);
    hk_ema_options ema;
    hk_ema_options_init(&ema, sizeof ema);
    ema.decay = 0.9;
    char *dir = bed_folder();
    hk_dataset *d = bed_training(1), *test = bed_pass(2, 60, 25);
    bed b;
    elastic_bed(&b, ctx, &eo);
    b.config.ema = &ema;
    b.o.model_dir = dir;
    bed_open(&b);
    bed_train(&b, d, 20, NULL);
    hk_source in = hk_source_dataset(test);
    hk_evaluate_options o;
    hk_evaluate_options_init(&o, sizeof o);
    o.weights = HK_WEIGHTS_ALL;
    // In memory, then from the checkpoint, as another process would.
    for (int pass = 0; pass < 2; pass++) {
        bed other;
        elastic_bed(&other, ctx, &eo);
        other.o.model_dir = dir;
        bed_open(&other);
        hk_estimator *e = pass == 0 ? b.e : other.e;
        hk_eval_result *r;
        o.no_summary = 1;
        assert_ok(hk_estimator_evaluate(e, &in, &o, &r));
        assert_int_equal(r->item_count, 3 * (2 + WORKERS));
        double v;
        assert_ok(hk_eval_result_get(r, "loss", "center", &v));
        assert_close(v, bed_metric(b.e, test, "loss", HK_WEIGHTS_CENTER), 0, 0);
        assert_close(v, bed_metric(b.e, test, "loss", HK_WEIGHTS_DEFAULT), 0,
                     0);
        double previous = v;
        assert_ok(hk_eval_result_get(r, "loss", "ema", &v));
        assert_close(v, bed_metric(b.e, test, "loss", HK_WEIGHTS_EMA), 0, 0);
        assert_true(v != previous);
        assert_ok(hk_eval_result_get(r, "loss", "local/0", &v));
        assert_close(v, bed_metric(b.e, test, "loss", HK_WEIGHTS_LOCAL), 0, 0);
        assert_ok(hk_eval_result_get(r, "loss", "local/2", &v));
        hk_eval_result_destroy(r);
        if (pass == 1)
            assert_int_equal(estimator_info(e).checkpoint_loads, 1);
        hk_estimator_destroy(other.e);
    }
    // Predictions of several sets carry their names.
    hk_predict_options po;
    hk_predict_options_init(&po, sizeof po);
    const char *keys[] = {"class"};
    po.keys = keys;
    po.n_keys = 1;
    po.weights = (hk_weights)(HK_WEIGHTS_CENTER | HK_WEIGHTS_EMA);
    hk_predictor *p;
    const hk_element *el;
    assert_ok(hk_estimator_predict(b.e, &in, &po, &p));
    assert_ok(hk_predictor_next(p, &el));
    assert_int_equal(el->count, 2);
    assert_non_null(hk_element_find(el, "center/class"));
    assert_non_null(hk_element_find(el, "ema/class"));
    hk_predictor_destroy(p);
    hk_estimator_destroy(b.e);
    // What is not there is an error that says what to do.
    bed_init(&b, ctx);
    bed_open(&b);
    bed_train(&b, d, 3, NULL);
    hk_eval_result *r;
    o.weights = HK_WEIGHTS_CENTER;
    assert_status(hk_estimator_evaluate(b.e, &in, &o, &r), HK_E_STATE);
    assert_non_null(strstr(hk_last_error(), "local"));
    o.weights = HK_WEIGHTS_EMA;
    assert_status(hk_estimator_evaluate(b.e, &in, &o, &r), HK_E_STATE);
    assert_non_null(strstr(hk_last_error(), "ema"));
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    hk_dataset_release(test);
    bed_remove(dir);
    hk_context_destroy(ctx);
}

// ---- free running -----------------------------------------------------------

static hk_status count_call(void *user, hk_run *run) {
    int *const n = user;
    n[run_info(run).worker]++;
    return HK_OK;
}

// Exactly max_steps steps are done, whoever does them; hooks for all workers
// see every one.
static void test_free_order(void **state) {
    (void)state;
    hk_context *ctx = context();
    hk_elastic_options eo;
    elastic_options(&eo);
    hk_dataset *d = bed_training(1), *test = bed_pass(2, 90, 30);
    bed b;
    elastic_bed(&b, ctx, &eo);
    b.config.turn = HK_TURN_FREE;
    bed_open(&b);
    int seen[WORKERS] = {0}, chief[WORKERS] = {0};
    hk_hook *hooks[2];
    hk_hook_calls calls;
    hk_hook_calls_init(&calls, sizeof calls);
    calls.user = seen;
    calls.after_run = count_call;
    calls.all_workers = 1;
    assert_ok(hk_hook_create(&calls, &hooks[0]));
    calls.user = chief;
    calls.all_workers = 0;
    assert_ok(hk_hook_create(&calls, &hooks[1]));
    hk_source in = hk_source_dataset(d);
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    o.max_steps = 400;
    o.hooks = hooks;
    o.n_hooks = 2;
    hk_train_result r;
    assert_ok(hk_estimator_train(b.e, &in, &o, &r));
    assert_int_equal(r.global_step, 400);
    assert_int_equal(r.steps, 400);
    assert_int_equal(seen[0] + seen[1] + seen[2], 400);
    assert_int_equal(chief[0], seen[0]);
    assert_int_equal(chief[1] + chief[2], 0);
    const double early = bed_metric(b.e, test, "loss", HK_WEIGHTS_CENTER);
    o.max_steps = 6000; // whatever share of them each worker gets
    assert_ok(hk_estimator_train(b.e, &in, &o, &r));
    assert_int_equal(r.steps, 5600);
    assert_true(bed_metric(b.e, test, "loss", HK_WEIGHTS_CENTER) < early / 2);
    // Data that ends: every batch is used once, by one of them.
    hk_dataset *pass = bed_pass(3, 105, 10);
    in = hk_source_dataset(pass);
    assert_ok(hk_estimator_train(b.e, &in, NULL, &r));
    assert_int_equal(r.steps, 11);
    assert_int_equal(r.examples, 105);
    assert_int_equal(r.reason, HK_STOP_DATA);
    hk_dataset_release(pass);
    hk_hook_release(hooks[0]);
    hk_hook_release(hooks[1]);
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    hk_dataset_release(test);
    hk_context_destroy(ctx);
}

// A free run that was recorded is replayed to the same bits.
static void test_replay(void **state) {
    (void)state;
    hk_context *ctx = context();
    hk_elastic_options eo;
    elastic_options(&eo);
    hk_dataset *d = bed_training(1);
    hk_center_options co;
    hk_center_options_init(&co, sizeof co);
    co.record = 1;
    bed a, b;
    elastic_bed(&a, ctx, &eo);
    a.config.turn = HK_TURN_FREE;
    a.config.center_options = &co;
    bed_open(&a);
    bed_train(&a, d, 50, NULL);
    static char order[65536];
    size_t size;
    assert_ok(hk_center_order_save(estimator_info(a.e).center, order,
                                   sizeof order, &size));
    co.record = 0;
    co.order = order;
    co.order_size = size;
    elastic_bed(&b, ctx, &eo);
    b.config.turn = HK_TURN_RECORDED;
    b.config.center_options = &co;
    bed_open(&b);
    bed_train(&b, d, 50, NULL);
    same_everywhere(a.e, b.e);
    hk_estimator_destroy(a.e);
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// A center that was given, as a cluster's is, makes no difference for the
// same turn order; what is left over at the end is brought to it.
static void test_given_center(void **state) {
    (void)state;
    hk_context *ctx = context();
    hk_elastic_options eo;
    elastic_options(&eo);
    hk_dataset *d = bed_training(1);
    bed own, given;
    elastic_bed(&own, ctx, &eo);
    bed_open(&own);
    bed_train(&own, d, 5 * PERIOD, NULL);
    hk_source in = hk_source_dataset(d);
    hk_layout *l;
    elastic_bed(&given, ctx, &eo);
    bed_open(&given);
    assert_ok(hk_estimator_layout(given.e, &in, &l));
    hk_center_options co;
    hk_center_options_init(&co, sizeof co);
    co.turn = HK_TURN_ROUND_ROBIN;
    co.workers = WORKERS;
    hk_center *c;
    assert_ok(hk_center_create_local(&co, l, &c));
    hk_layout_release(l);
    assert_ok(hk_estimator_set_center(given.e, c));
    hk_train_result r;
    bed_train(&given, d, 5 * PERIOD, &r);
    assert_int_equal(r.global_step, 5 * PERIOD * WORKERS);
    same_everywhere(own.e, given.e);
    assert_ptr_equal(estimator_info(given.e).center, c);
    hk_center_info info;
    assert_ok(hk_center_get_info(c, &info));
    assert_int_equal(info.live, 0);
    assert_int_equal(info.exchanges, 5 * WORKERS);
    // One step more: an exchange more of each.
    hk_estimator_destroy(own.e);
    hk_estimator_destroy(given.e);
    hk_center_destroy(c);
    elastic_bed(&given, ctx, &eo);
    given.config.turn = HK_TURN_FREE;
    bed_open(&given);
    assert_ok(hk_estimator_layout(given.e, &in, &l));
    assert_ok(hk_center_create_local(NULL, l, &c));
    hk_layout_release(l);
    assert_ok(hk_estimator_set_center(given.e, c));
    bed_train(&given, d, PERIOD + 1, NULL);
    assert_ok(hk_center_get_info(c, &info));
    assert_int_equal(info.exchanges, 2 * WORKERS);
    assert_int_equal(info.global_step, (PERIOD + 1) * WORKERS);
    // They come back with the center's values.
    bed_train(&given, d, 3, NULL);
    // Data that ends at different steps keeps nobody waiting.
    hk_dataset *pass = bed_pass(3, 110, 10);
    in = hk_source_dataset(pass);
    assert_ok(hk_estimator_train(given.e, &in, NULL, &r));
    assert_int_equal(r.steps, 11);
    hk_dataset_release(pass);
    hk_estimator_destroy(given.e);
    hk_center_destroy(c);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// Coupled workers whose data ends at different steps do not wait for each
// other, and a stop that a hook asks for finds them all at one exchange.
static hk_status stop_at_17(void *user, hk_run *run) {
    (void)user;
    if (run_info(run).local_step == 17)
        hk_run_request_stop(run);
    return HK_OK;
}

static void test_coupled_ends(void **state) {
    (void)state;
    hk_context *ctx = context();
    hk_elastic_options eo;
    elastic_options(&eo);
    bed b;
    elastic_bed(&b, ctx, &eo);
    bed_open(&b);
    hk_dataset *d = bed_pass(1, 260, 10); // 26 batches: 9, 9, 8
    hk_source in = hk_source_dataset(d);
    hk_train_result r;
    for (int i = 0; i < 3; i++) {
        assert_ok(hk_estimator_train(b.e, &in, NULL, &r));
        assert_int_equal(r.steps, 26);
    }
    hk_dataset *endless = bed_training(1);
    in = hk_source_dataset(endless);
    hk_hook *h;
    hk_hook_calls calls;
    hk_hook_calls_init(&calls, sizeof calls);
    calls.after_run = stop_at_17;
    assert_ok(hk_hook_create(&calls, &h));
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    o.hooks = &h;
    o.n_hooks = 1;
    bed k;
    elastic_bed(&k, ctx, &eo);
    bed_open(&k);
    assert_ok(hk_estimator_train(k.e, &in, &o, &r));
    assert_int_equal(r.reason, HK_STOP_HOOK);
    assert_int_equal(r.steps, 20 * WORKERS); // the exchange after step 17
    bed_train(&k, endless, 10, NULL);
    bed whole;
    elastic_bed(&whole, ctx, &eo);
    bed_open(&whole);
    bed_train(&whole, endless, 30, NULL);
    same_everywhere(whole.e, k.e);
    hk_estimator_destroy(whole.e);
    hk_estimator_destroy(k.e);
    hk_hook_release(h);
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    hk_dataset_release(endless);
    hk_context_destroy(ctx);
}

// A worker that fails ends the call with its own error, not with a timeout of
// the others.
static hk_status fail_late(void *user, hk_step_info *info) {
    (void)user;
    return info->local_step == 9 ? hki_fail(HK_E_DATA, "made to fail") : HK_OK;
}

static hk_status failing_model(hk_graph *g, hk_mode mode, hk_spec *m) {
    HKI_TRY(bed_model(g, mode, m));
    hk_spec_insert(m, HK_POINT_GRADIENTS, fail_late, NULL);
    return HK_OK;
}

static void test_failure(void **state) {
    (void)state;
    hk_context *ctx = context();
    hk_elastic_options eo;
    elastic_options(&eo);
    hk_dataset *d = bed_training(1);
    hk_source in = hk_source_dataset(d);
    for (int turn = HK_TURN_FREE; turn <= HK_TURN_ROUND_ROBIN; turn++) {
        bed b;
        elastic_bed(&b, ctx, &eo);
        b.config.turn = (hk_turn_order)turn;
        b.o.model_fn = failing_model;
        bed_open(&b);
        const int64_t t0 = hki_now_ns();
        assert_status(hk_estimator_train(b.e, &in, NULL, NULL), HK_E_DATA);
        assert_non_null(strstr(hk_last_error(), "made to fail"));
        assert_non_null(strstr(hk_last_error(), "worker"));
        assert_true(hki_now_ns() - t0 < INT64_C(20000000000));
        hk_estimator_destroy(b.e);
    }
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// ---- a center elsewhere -----------------------------------------------------

// Workers of this process at a center of another, in two calls: as many
// exchanges as one call has, nobody waits for a worker that is not there.
static void check_elsewhere(hk_context *ctx, hk_method method) {
    hk_center_options co;
    hk_center_options_init(&co, sizeof co);
    co.method = method;
    co.workers = WORKERS;
    char text[64];
    snprintf(text, sizeof text, "inproc:estimator-%d", (int)method);
    const char *const address = text;
    hk_center_server_options so;
    hk_center_server_options_init(&so, sizeof so);
    so.addresses = &address;
    so.n_addresses = 1;
    so.center = &co;
    hk_center_server *server;
    assert_ok(hk_center_server_start(&so, &server));
    hk_elastic_options eo;
    elastic_options(&eo);
    bed b;
    elastic_bed(&b, ctx, &eo);
    b.config.turn = HK_TURN_FREE;
    b.config.method = method;
    bed_open(&b);
    hk_dataset *d = bed_training(1);
    const hk_source in = hk_source_dataset(d);
    hk_layout *l;
    assert_ok(hk_estimator_layout(b.e, &in, &l));
    hk_connect_options o;
    hk_connect_options_init(&o, sizeof o);
    o.addresses = &address;
    o.n_addresses = 1;
    hk_center *c;
    assert_ok(hk_center_connect(&o, l, &c));
    assert_ok(hk_estimator_set_center(b.e, c));
    const int64_t begin = hki_now_ns();
    hk_train_result r;
    for (int call = 0; call < 3; call++) {
        bed_train(&b, d, 4 * PERIOD, &r);
        assert_int_equal(r.steps, 4 * PERIOD * WORKERS);
        assert_int_equal(r.exchanges, 4 * WORKERS);
    }
    assert_true(hki_now_ns() - begin < INT64_C(20000000000));
    hk_server_info info;
    assert_ok(hk_center_server_get_info(server, &info));
    assert_int_equal(info.center.exchanges, 12 * WORKERS);
    hk_estimator_destroy(b.e);
    hk_center_destroy(c);
    hk_layout_release(l);
    hk_dataset_release(d);
    hk_center_server_stop(server);
}

static void test_elsewhere(void **state) {
    (void)state;
    hk_context *ctx = context();
    check_elsewhere(ctx, HK_METHOD_ELASTIC);
    check_elsewhere(ctx, HK_METHOD_ELASTIC_SYNC);
    check_elsewhere(ctx, HK_METHOD_DILOCO);
    hk_context_destroy(ctx);
}

// ---- short runs -------------------------------------------------------------

// Data that ends before the first exchange is due: everybody makes a last one.
static void check_short(hk_method method, hk_turn_order turn) {
    hk_context *ctx = context();
    hk_elastic_options eo;
    elastic_options(&eo);
    bed b;
    elastic_bed(&b, ctx, &eo);
    b.config.method = method;
    b.config.turn = turn;
    bed_open(&b);
    hk_dataset *d = bed_pass(1, 80, 10); // 3, 3, 2 batches
    hk_source in = hk_source_dataset(d);
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    o.max_steps = 1;
    hk_train_result r;
    float first[BED_VALUES], last[BED_VALUES];
    assert_ok(hk_estimator_train(b.e, &in, &o, &r));
    assert_int_equal(r.exchanges, 0); // the steps were over, not the data
    const size_t n = bed_values(b.e, HK_WEIGHTS_CENTER, 0, first, BED_VALUES);
    assert_ok(hk_estimator_train(b.e, &in, NULL, &r));
    assert_int_equal(r.reason, HK_STOP_DATA);
    assert_int_equal(r.exchanges, WORKERS);
    bed_values(b.e, HK_WEIGHTS_CENTER, 0, last, BED_VALUES);
    assert_memory_not_equal(first, last, n * sizeof *first);
    hk_center_info info;
    assert_ok(hk_center_get_info(estimator_info(b.e).center, &info));
    assert_int_equal(info.global_step, estimator_info(b.e).global_step);
    hk_dataset_release(d);
    hk_estimator_destroy(b.e);
    hk_context_destroy(ctx);
}

// Two have made their steps when the data of the third ends: in turns too it
// brings its last steps and goes, for the others rest. They are there again in
// the next call, and two such runs agree in every bit.
static size_t one_ends_early(hk_context *ctx, float *values) {
    hk_elastic_options eo;
    elastic_options(&eo);
    bed b;
    elastic_bed(&b, ctx, &eo);
    b.config.turn = HK_TURN_ROUND_ROBIN;
    bed_open(&b);
    hk_dataset *d = bed_pass(1, 80, 10); // 3, 3, 2 batches
    hk_train_result r;
    const int64_t begin = hki_now_ns();
    for (int call = 0; call < 2; call++) {
        bed_train(&b, d, 3, &r);
        assert_int_equal(r.steps, 8);
    }
    assert_true(hki_now_ns() - begin < INT64_C(20000000000));
    const size_t n = bed_values(b.e, HK_WEIGHTS_CENTER, 0, values, BED_VALUES);
    hk_dataset_release(d);
    hk_estimator_destroy(b.e);
    return n;
}

static void test_one_ends_early(void **state) {
    (void)state;
    hk_context *ctx = context();
    float a[BED_VALUES], b[BED_VALUES];
    const size_t n = one_ends_early(ctx, a);
    assert_int_equal(one_ends_early(ctx, b), n);
    assert_memory_equal(a, b, n * sizeof *a);
    hk_context_destroy(ctx);
}

static void test_short_runs(void **state) {
    (void)state;
    check_short(HK_METHOD_ELASTIC, HK_TURN_FREE);
    check_short(HK_METHOD_ELASTIC, HK_TURN_ROUND_ROBIN);
    check_short(HK_METHOD_MODEL_AVERAGE, HK_TURN_FREE);
    check_short(HK_METHOD_ELASTIC_SYNC, HK_TURN_ROUND_ROBIN);
    check_short(HK_METHOD_DOWNPOUR, HK_TURN_FREE);
}

// ---- shares that differ -----------------------------------------------------

// Worker 0 has the most, and others end at, before and behind an exchange.
static hk_status very_uneven(void *user, const hk_input_call *call,
                             hk_dataset **out) {
    static const int64_t batches[] = {29, 7, 12};
    (void)user;
    *out =
        hk_data_batch(bed_rows(call->worker, batches[call->worker] * BED_BATCH),
                      BED_BATCH, 0);
    return HK_OK;
}

// The second call begins with workers that have made other numbers of steps.
static size_t train_uneven(hk_method method, hk_turn_order turn, bool paper,
                           int64_t save, float *values) {
    hk_context *ctx = context();
    hk_elastic_options eo;
    elastic_options(&eo);
    eo.order = paper ? HK_ORDER_PAPER : HK_ORDER_TF;
    eo.moving_rate = HK_ELASTIC_AUTO;
    eo.follow_live = 1;
    char *dir = bed_folder();
    bed b;
    elastic_bed(&b, ctx, &eo);
    b.config.method = method;
    b.config.turn = turn;
    b.config.save_checkpoints_steps = save;
    b.o.model_dir = dir;
    bed_open(&b);
    hk_source in = hk_source_function(very_uneven, NULL);
    in.shard = HK_SHARD_NONE;
    const int64_t begin = hki_now_ns();
    for (int call = 0; call < 2; call++) {
        hk_train_result r;
        assert_ok(hk_estimator_train(b.e, &in, NULL, &r));
        assert_int_equal(r.reason, HK_STOP_DATA);
        assert_int_equal(r.steps, 29 + 7 + 12);
    }
    assert_true(hki_now_ns() - begin < INT64_C(40000000000));
    const size_t n = bed_values(b.e, HK_WEIGHTS_CENTER, 0, values, BED_VALUES);
    hk_estimator_destroy(b.e);
    bed_remove(dir);
    hk_context_destroy(ctx);
    return n;
}

// Workers that wait for each other wait for none whose data has ended, neither
// for its turn nor at a cut; and checkpoints change nothing.
static void check_uneven(hk_method method, hk_turn_order turn, bool paper) {
    float without[BED_VALUES], with[BED_VALUES];
    const size_t n = train_uneven(method, turn, paper, 1000, without);
    for (int64_t save = 1; save < 12; save += 5) {
        assert_int_equal(train_uneven(method, turn, paper, save, with), n);
        if (turn == HK_TURN_ROUND_ROBIN)
            assert_memory_equal(with, without, n * sizeof *with);
    }
}

static void test_uneven(void **state) {
    (void)state;
    check_uneven(HK_METHOD_ELASTIC, HK_TURN_ROUND_ROBIN, false);
    check_uneven(HK_METHOD_ELASTIC, HK_TURN_ROUND_ROBIN, true);
    check_uneven(HK_METHOD_ELASTIC_SYNC, HK_TURN_FREE, false);
    check_uneven(HK_METHOD_ELASTIC_SYNC, HK_TURN_ROUND_ROBIN, false);
    check_uneven(HK_METHOD_DILOCO, HK_TURN_FREE, false);
}

// ---- interrupted ------------------------------------------------------------

// Asks for a stop when row n of those that come is made.
typedef struct stopper {
    hk_context *ctx;
    atomic_int rows;
    int n;
} stopper;

static hk_status stop_at_row(void *user, const hk_map_call *call) {
    stopper *const s = user;
    (void)call;
    if (atomic_fetch_add(&s->rows, 1) + 1 == s->n)
        hk_request_stop(s->ctx, 15);
    return HK_OK;
}

// Worker i of three has i batches more than the first: some end earlier.
static hk_status uneven_rows(void *user, const hk_input_call *call,
                             hk_dataset **out) {
    const int64_t rows = 90 + 10 * (int64_t)call->worker;
    hk_dataset *d =
        hk_data_map(bed_rows(call->worker, rows), stop_at_row, user, NULL);
    d = hk_data_batch(hk_data_shuffle(d, 20, 5, 1), BED_BATCH, 0);
    *out = hk_data_prefetch(d, 2);
    return HK_OK;
}

// One start of a run of two passes.
static hk_stop_reason run_once(bed *b, stopper *s, uint32_t workers,
                               char *dir) {
    hk_elastic_options eo;
    elastic_options(&eo);
    elastic_bed(b, s->ctx, &eo);
    b->config.workers = workers;
    if (workers == 1)
        b->config.elastic = NULL;
    b->o.model_dir = dir;
    bed_open(b);
    hk_source in = hk_source_function(uneven_rows, s);
    in.shard = HK_SHARD_NONE;
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    o.epochs = 2;
    hk_train_result r;
    assert_ok(hk_estimator_train(b->e, &in, &o, &r));
    return r.reason;
}

static void check_interrupted(bed *whole, uint32_t workers, int n) {
    stopper s = {.ctx = context(), .n = n};
    char *dir = bed_folder();
    bed b;
    hk_stop_reason reason = run_once(&b, &s, workers, dir);
    if (reason == HK_STOP_REQUESTED) {
        hk_estimator_destroy(b.e);
        hk_request_stop(s.ctx, 0);
        s.n = 0;
        reason = run_once(&b, &s, workers, dir);
    }
    assert_int_equal(reason, HK_STOP_DATA);
    assert_int_equal(estimator_info(b.e).global_step,
                     estimator_info(whole->e).global_step);
    for (uint32_t i = 0; i < workers; i++)
        bed_same_values(whole->e, b.e, HK_WEIGHTS_LOCAL, i);
    if (workers > 1)
        bed_same_values(whole->e, b.e, HK_WEIGHTS_CENTER, 0);
    hk_estimator_destroy(b.e);
    bed_remove(dir);
    hk_context_destroy(s.ctx);
}

// Wherever a run is interrupted, it ends with the bits of the one that was
// not.
static void test_interrupted(void **state) {
    (void)state;
    for (uint32_t workers = 1; workers <= WORKERS; workers += 2) {
        stopper s = {.ctx = context()};
        char *dir = bed_folder();
        bed whole;
        assert_int_equal(run_once(&whole, &s, workers, dir), HK_STOP_DATA);
        const int rows = atomic_load(&s.rows);
        for (int n = 1; n <= rows + 1; n += 3 + 4 * (int)workers)
            check_interrupted(&whole, workers, n);
        check_interrupted(&whole, workers, rows);
        hk_estimator_destroy(whole.e);
        bed_remove(dir);
        hk_context_destroy(s.ctx);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_threads),
        cmocka_unit_test(test_said_by_the_model),
        cmocka_unit_test(test_config_wins),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_short_runs),
        cmocka_unit_test(test_one_ends_early),
        cmocka_unit_test(test_uneven),
        cmocka_unit_test(test_elsewhere),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_free_order),
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_given_center),
        cmocka_unit_test(test_coupled_ends),
        cmocka_unit_test(test_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
