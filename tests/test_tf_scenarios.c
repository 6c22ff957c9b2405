// test_tf_scenarios.c - TensorFlow's unit tests that need more than a table: a
// cluster of two centers (tf-semantics S3), and gradients from a graph (S14,
// S19).
#include "cluster_bed.h"
#include "hooke/nn.h"
#include "hooke/train.h"

// ---- S3: two centers, three workers -----------------------------------------

// A center is cut in whole chunks, so a variable is as long as one here:
// v = 1 2 1 2 ..., w = 2 1 2 1 ...
enum {
    S3_FLOATS = 256, // chunk_kib 1
    S3_WORKERS = 3
};

static char folder[64];

typedef struct s3 {
    char address[2][128];
    const char *addresses[2];
    hk_center_server *server[2];
    hk_layout *layout;
    hk_center *center;
} s3;

static void open_s3(s3 *c) {
    bed_folder_make(folder);
    const hk_shape shape = hk_shape_make(1, (int64_t[]){S3_FLOATS});
    const hk_layout_item items[] = {
        {.name = "v", .shape = shape, .dtype = HK_F32, .kind = HK_TRAINABLE},
        {.name = "w", .shape = shape, .dtype = HK_F32, .kind = HK_TRAINABLE}};
    assert_ok(hk_layout_create(items, 2, &c->layout));
    hk_center_options center;
    hk_center_options_init(&center, sizeof center);
    center.chunk_kib = 1;
    for (int i = 0; i < 2; i++) {
        snprintf(c->address[i], sizeof c->address[i], "unix:%s/ps%d", folder,
                 i);
        c->addresses[i] = c->address[i];
    }
    for (uint32_t i = 0; i < 2; i++) {
        hk_center_server_options o;
        bed_server_options(&o, &c->addresses[i]);
        o.center = &center;
        o.shards = c->addresses;
        o.n_shards = 2;
        o.shard = i;
        assert_ok(hk_center_server_start(&o, &c->server[i]));
    }
    hk_connect_options o;
    bed_connect_options(&o, c->addresses, 2);
    assert_ok(hk_center_connect(&o, c->layout, &c->center));
}

static void close_s3(s3 *c) {
    hk_center_destroy(c->center);
    for (int i = 0; i < 2; i++)
        hk_center_server_stop(c->server[i]);
    hk_layout_release(c->layout);
    bed_folder_remove(folder);
}

// Server i holds variable i and nothing else, `plus` above its first values.
static void check_place(const s3 *c, size_t i, float plus) {
    const hk_entry *const e = hk_layout_entry(c->layout, i);
    const hki_shard *const held = c->server[i]->shard;
    assert_non_null(held);
    assert_int_equal(held->first, e->offset);
    assert_int_equal(held->n, e->count);
    for (int64_t k = 0; k < e->count; k++)
        assert_true(held->values[k] ==
                    (float)((k + (int64_t)i) % 2 + 1) + plus);
}

// v and w are with the workers, the center of v with the first server, that of
// w with the second, before and after an exchange.
static void test_s3(void **state) {
    (void)state;
    s3 c;
    open_s3(&c);
    float x[S3_WORKERS][2 * S3_FLOATS], g[2 * S3_FLOATS];
    hk_optimizer *optimizer[S3_WORKERS];
    hk_elastic *worker[S3_WORKERS];
    hk_optimizer_options oo;
    hk_optimizer_options_init(&oo, sizeof oo, HK_OPT_GRADIENT_DESCENT);
    oo.learning_rate = 1;
    hk_elastic_options eo;
    hk_elastic_options_init(&eo, sizeof eo);
    eo.num_worker = S3_WORKERS;
    eo.communication_period = 1;
    eo.moving_rate = 0.5;
    eo.rho = 0;
    assert_int_equal(hki_layout_size(c.layout), 2 * S3_FLOATS);
    for (int i = 0; i < S3_WORKERS; i++) {
        for (int k = 0; k < 2 * S3_FLOATS; k++)
            x[i][k] = i == 0 ? (float)((k + (k >= S3_FLOATS)) % 2 + 1) : -7;
        assert_ok(hk_optimizer_create(&oo, c.layout, &optimizer[i]));
        assert_ok(hk_elastic_create(&eo, optimizer[i], c.center, &worker[i]));
        assert_ok(hk_elastic_init(worker[i], x[i], i));
        assert_memory_equal(x[i], x[0], sizeof x[0]);
    }
    check_place(&c, 0, 0);
    check_place(&c, 1, 0);
    for (int k = 0; k < 2 * S3_FLOATS; k++)
        g[k] = -1;
    const hk_grad_view view = {
        .dense = g, .n_dense = hki_layout_dense(c.layout), .scale = 1};
    assert_ok(hk_elastic_apply(worker[0], x[0], &view, NULL));
    check_place(&c, 0, 0.5f); // half of the worker's step
    check_place(&c, 1, 0.5f);
    for (int i = 0; i < S3_WORKERS; i++) {
        assert_ok(hk_elastic_leave(worker[i], x[i]));
        hk_elastic_destroy(worker[i]);
        hk_optimizer_destroy(optimizer[i]);
    }
    close_s3(&c);
}

// ---- S14, S19: the square of a product --------------------------------------

// (w . x + b)^2 with w = (1, 2), x = (4, 5), b = 3.
static hk_status dense_model(void *user, hk_graph *g, hk_mode mode) {
    (void)mode;
    (void)user;
    const hk_shape two = hk_shape_make(1, (int64_t[]){2});
    hk_node *w = hk_variable(
        g, "w", two, HK_TRAINABLE,
        (hk_init){.kind = HK_INIT_ARRAY, .values = (float[]){1, 2}}, 0);
    hk_node *b = hk_variable(g, "b", hk_shape_make(0, NULL), HK_TRAINABLE,
                             hk_init_make(HK_INIT_CONSTANT, 3, 0), 0);
    hk_node *x = hk_input(g, "x", HK_F32, two);
    hk_node *pred = hk_add(g, hk_reduce_sum(g, hk_mul(g, w, x), NULL, 0, 0), b);
    hk_set_loss(g, hk_square(g, pred));
    return hk_graph_status(g);
}

// The same without b, w being the only row of a table.
static hk_status embedding_model(void *user, hk_graph *g, hk_mode mode) {
    (void)mode;
    (void)user;
    hk_node *w =
        hk_variable(g, "w", hk_shape_make(2, (int64_t[]){1, 2}), HK_TRAINABLE,
                    (hk_init){.kind = HK_INIT_ARRAY, .values = (float[]){1, 2}},
                    HK_VAR_SPARSE);
    hk_node *i = hk_input(g, "i", HK_I64, hk_shape_make(1, (int64_t[]){1}));
    hk_node *x = hk_input(g, "x", HK_F32, hk_shape_make(1, (int64_t[]){2}));
    hk_node *row = hk_lookup(g, w, i);
    hk_set_loss(g,
                hk_square(g, hk_reduce_sum(g, hk_mul(g, row, x), NULL, 0, 0)));
    return hk_graph_status(g);
}

typedef struct square_case {
    const char *name;
    hk_build_fn model;
    hk_optimizer_kind kind;
    float loss, w[2], b;
} square_case;

static void check_square(hk_context *ctx, const square_case *k) {
    print_message("%s\n", k->name);
    hk_model m;
    hk_model_init(&m, sizeof m);
    m.build = k->model;
    hk_plan *plan;
    hk_session *s;
    hk_tensor *t;
    assert_ok(hk_plan_get(ctx, &m, HK_TRAIN, NULL, &plan));
    assert_ok(hk_session_create(plan, NULL, &s));
    assert_ok(hk_session_input(s, "x", &t));
    memcpy(hk_tensor_data(t), (float[]){4, 5}, 2 * sizeof(float));
    hk_layout *const layout = hk_plan_layout(plan);
    hk_optimizer_options o;
    hk_optimizer_options_init(&o, sizeof o, k->kind);
    o.learning_rate = 1;
    if (k->kind == HK_OPT_ADADELTA)
        o.rho = o.epsilon = 1;
    hk_optimizer *opt;
    hk_grad_list *list;
    int64_t step = 0;
    assert_ok(hk_optimizer_create(&o, layout, &opt));
    assert_ok(hk_grad_list_create(layout, &list));
    assert_ok(hk_minimize(opt, s, NULL, list, &step));
    assert_int_equal(step, 1);
    assert_true(hk_session_loss(s) == k->loss);
    const float *const x = hk_session_params(s);
    hk_test_floats("w", x + hk_layout_find(layout, "w")->offset, k->w, 2, 1e-4,
                   0);
    const hk_entry *const b = hk_layout_find(layout, "b");
    if (b != NULL)
        assert_true(x[b->offset] == k->b);
    hk_grad_list_destroy(list);
    hk_optimizer_destroy(opt);
    hk_session_destroy(s);
    hk_plan_release(plan);
}

static void test_s14_s19(void **state) {
    (void)state;
    static const square_case cases[] = {{"S14, pred 17",
                                         dense_model,
                                         HK_OPT_GRADIENT_DESCENT,
                                         289,
                                         {-135, -168},
                                         -31},
                                        {"S14, embedding, pred 14",
                                         embedding_model,
                                         HK_OPT_GRADIENT_DESCENT,
                                         196,
                                         {-111, -138},
                                         0},
                                        {"S19, embedding",
                                         embedding_model,
                                         HK_OPT_ADADELTA,
                                         196,
                                         {-111, -138},
                                         0}};
    hk_context *ctx;
    assert_ok(hk_context_create(NULL, &ctx));
    for (size_t i = 0; i < HKI_COUNT(cases); i++)
        check_square(ctx, &cases[i]);
    hk_context_destroy(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_s3),
                                       cmocka_unit_test(test_s14_s19)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
