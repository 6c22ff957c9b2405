// test_cuda_elastic.c - workers on a card and workers in host memory at one
// center, against the same workers all in host memory.
#include "backend/vector.h"
#include "elastic_bed.h"

#define WORKERS 3
#define STEPS 60

static hki_place card[WORKERS]; // each with a queue of its own

// A crowd at a center of its own; x of a worker on the card is `there`.
typedef struct crowd {
    hk_center *c;
    worker w[WORKERS];
    hki_vector there[WORKERS], g[WORKERS];
    bool away[WORKERS];
} crowd;

typedef struct setting {
    hk_turn_order turn;
    int64_t wait_ms; // 0: long
    hk_exchange_order order;
    bool view;
    hk_optimizer_kind kind;
    uint32_t period;
} setting;

static void open_crowd(crowd *d, hk_layout *l, const setting *s, bool away) {
    hk_elastic_options o;
    elastic_options(&o, WORKERS, s->period);
    o.moving_rate = 0.3;
    o.order = s->order;
    o.keep_view = s->view;
    o.telemetry = 1;
    o.wait_ms = s->wait_ms > 0 ? s->wait_ms : o.wait_ms;
    hk_center_options c;
    hk_center_options_init(&c, sizeof c);
    c.turn = s->turn;
    c.workers = WORKERS;
    assert_ok(hk_center_create_local(&c, l, &d->c));
    for (int i = 0; i < WORKERS; i++) {
        worker *const w = &d->w[i];
        worker_open(w, l, d->c, &o, s->kind, 0.05);
        d->away[i] = away && i > 0;
        d->there[i] = HKI_HOST_VECTOR(w->x, (int64_t)w->n);
        d->g[i] = HKI_HOST_VECTOR(w->g, (int64_t)w->n_train);
        for (size_t k = 0; k < w->n; k++)
            w->x[k] = (float)i + 0.01f * (float)k;
        assert_ok(hk_elastic_init(w->e, w->x, i));
        if (!d->away[i])
            continue;
        assert_ok(hki_vector_follow(&d->there[i], &card[i]));
        assert_ok(hki_vector_follow(&d->g[i], &card[i]));
    }
}

static void close_crowd(crowd *d) {
    for (int i = 0; i < WORKERS; i++) {
        assert_ok(hki_vector_follow(&d->there[i], NULL));
        assert_ok(hki_vector_follow(&d->g[i], NULL));
        assert_ok(hki_elastic_go_home(d->w[i].e));
        assert_ok(hki_optimizer_follow(d->w[i].optimizer, NULL));
        worker_close(&d->w[i]);
    }
    hk_center_destroy(d->c);
}

static void step(crowd *d, int i, const float *g) {
    worker *const w = &d->w[i];
    float *to;
    assert_ok(hki_vector_host(&d->g[i], HKI_TO_WRITE, &to));
    memcpy(to, g, w->n_train * sizeof *g);
    const hki_grads grads = {
        .view = {.dense = w->g, .n_dense = (int64_t)w->n_train, .scale = 1},
        .dense = &d->g[i]};
    assert_ok(hki_elastic_update(w->e, &d->there[i], &grads, NULL));
    assert_ok(hki_elastic_exchange_due(w->e, &d->there[i], NULL));
}

static void assert_near(const char *what, const float *a, const float *b,
                        size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!hk_test_close((double)b[i], (double)a[i], 1e-6, 1e-6))
            fail_msg("%s: element %zu is %.9g, expected %.9g", what, i,
                     (double)b[i], (double)a[i]);
}

static void compare(crowd *a, crowd *b) {
    const size_t n = a->w[0].n;
    float x[2][256], *host;
    assert_true(n <= HKI_COUNT(x[0]));
    read_center(a->c, x[0], NULL);
    read_center(b->c, x[1], NULL);
    assert_near("center", x[0], x[1], n);
    for (int i = 0; i < WORKERS; i++) {
        hk_elastic_stats s, t;
        assert_ok(hki_vector_host(&b->there[i], HKI_TO_READ, &host));
        assert_near("x", a->w[i].x, host, n);
        assert_ok(hk_elastic_get_stats(a->w[i].e, &s));
        assert_ok(hk_elastic_get_stats(b->w[i].e, &t));
        assert_int_equal(s.exchanges, t.exchanges);
        assert_int_equal(s.global_step, t.global_step);
        assert_close(t.distance, s.distance, 1e-6, 1e-5);
        assert_close(t.cosine, s.cosine, 1e-4, 1e-4);
    }
}

static void run(const setting *s, uint64_t seed) {
    static crowd here, mixed;
    hki_rng r;
    hki_rng_init(&r, seed, 1);
    hk_layout *const l = suite_center_layout((int64_t[]){41, 7, 100}, 3);
    memset(&here, 0, sizeof here);
    memset(&mixed, 0, sizeof mixed);
    open_crowd(&here, l, s, false);
    open_crowd(&mixed, l, s, true);
    for (int t = 0; t < STEPS; t++) {
        const int i = (int)hki_rng_below(&r, WORKERS);
        float g[256];
        fill_random(&r, l, g, here.w[0].n_train);
        step(&here, i, g);
        step(&mixed, i, g);
        if (t % 7 == 6) // in between nobody waits for the card
            compare(&here, &mixed);
    }
    compare(&here, &mixed);
    close_crowd(&here);
    close_crowd(&mixed);
    hk_layout_release(l);
}

static void test_mixed(void **state) {
    static const hk_optimizer_kind kinds[] = {HK_OPT_GRADIENT_DESCENT,
                                              HK_OPT_MOMENTUM};
    (void)state;
    for (uint64_t seed = 0; seed < 16; seed++) {
        const setting s = {.order = seed & 1 ? HK_ORDER_PAPER : HK_ORDER_TF,
                           .view = (seed & 2) != 0,
                           .kind = kinds[seed >> 2 & 1],
                           .period = 1 + (uint32_t)(seed % 3)};
        run(&s, seed);
    }
}

// An exchange that does not come about gives nothing: d of the one before is
// not taken off a second time.
static void test_turn_that_does_not_come(void **state) {
    static crowd mixed;
    const setting s = {.turn = HK_TURN_ROUND_ROBIN,
                       .wait_ms = 50,
                       .order = HK_ORDER_PAPER,
                       .kind = HK_OPT_GRADIENT_DESCENT,
                       .period = 1};
    float g[256];
    float before[256], center[2][256], *x;
    (void)state;
    hk_layout *const l = suite_center_layout((int64_t[]){41, 7, 100}, 3);
    memset(&mixed, 0, sizeof mixed);
    open_crowd(&mixed, l, &s, true);
    const size_t bytes = mixed.w[1].n * sizeof *x;
    for (size_t i = 0; i < HKI_COUNT(g); i++)
        g[i] = (float)i;
    for (int i = 0; i < 2 * WORKERS; i++) // the second time they differ from it
        step(&mixed, i % WORKERS, g);
    read_center(mixed.c, center[0], NULL);
    assert_ok(hki_vector_host(&mixed.there[1], HKI_TO_READ, &x));
    memcpy(before, x, bytes);
    const hki_grads grads = {.view = {.dense = mixed.w[1].g,
                                      .n_dense = (int64_t)mixed.w[1].n_train,
                                      .scale = 1},
                             .dense = &mixed.g[1]};
    assert_status( // worker 0 comes first
        hki_elastic_update(mixed.w[1].e, &mixed.there[1], &grads, NULL),
        HK_E_TIMEOUT);
    assert_ok(hki_vector_host(&mixed.there[1], HKI_TO_READ, &x));
    assert_memory_equal(x, before, bytes);
    read_center(mixed.c, center[1], NULL);
    assert_memory_equal(center[0], center[1], bytes);
    close_crowd(&mixed);
    hk_layout_release(l);
}

static hk_status (*norms_of_card)(const hki_place *p, const hki_vector_pass *a);
static int n_norms;

static hk_status counted_norms(const hki_place *p, const hki_vector_pass *a) {
    n_norms++;
    return norms_of_card(p, a);
}

// What a worker is about to give is measured in one pass, which is waited for
// once, in however many parts the center has its values.
static void test_one_look(void **state) {
    static crowd mixed;
    const setting s = {
        .order = HK_ORDER_TF, .kind = HK_OPT_GRADIENT_DESCENT, .period = 2};
    hk_layout *const l = suite_center_layout((int64_t[]){41, 300000, 100}, 3);
    const hki_vector_ops *const usual = card[1].ops;
    hki_vector_ops counting = *usual;
    double norm, expected;
    float *x;
    (void)state;
    norms_of_card = usual->norms;
    counting.norms = counted_norms;
    card[1].ops = &counting;
    memset(&mixed, 0, sizeof mixed);
    open_crowd(&mixed, l, &s, true);
    assert_true(mixed.c->partition.count > 2);
    n_norms = 0;
    assert_ok(hki_elastic_given_norm(mixed.w[1].e, &mixed.there[1], &norm));
    assert_int_equal(n_norms, 1);
    assert_ok(hki_vector_host(&mixed.there[1], HKI_TO_READ, &x));
    memcpy(mixed.w[0].x, x, mixed.w[0].n * sizeof *x); // at home
    assert_ok(hki_elastic_given_norm(mixed.w[0].e, &mixed.there[0], &expected));
    assert_close(norm, expected, 0, 1e-9);
    close_crowd(&mixed);
    card[1].ops = usual;
    hk_layout_release(l);
}

// A center that the card has no room for is met through host memory.
static void test_no_room(void **state) {
    const setting s = {
        .order = HK_ORDER_TF, .kind = HK_OPT_GRADIENT_DESCENT, .period = 2};
    (void)state;
    const hki_backend *const usual = card[0].backend;
    hki_backend without = *usual;
    without.shared_create = NULL;
    for (int i = 0; i < WORKERS; i++)
        card[i].backend = &without;
    run(&s, 99);
    for (int i = 0; i < WORKERS; i++)
        card[i].backend = usual;
}

static hki_device *device;

static bool open_card(const char *name) {
    const hki_backend *be;
    uint32_t n;
    if (hki_backend_find(name, &be) != HK_OK || be->device_count(&n) != HK_OK)
        return false;
    const hki_device_options o = {.threads = 1, .isa = HK_ISA_BASE};
    assert_ok(be->device_open(&o, &device));
    for (int i = 0; i < WORKERS; i++) {
        card[i] =
            (hki_place){.ops = be->vectors, .backend = be, .device = device};
        assert_ok(be->queue_create(device, &card[i].queue));
    }
    return true;
}

static int close_card(void **state) {
    (void)state;
    for (int i = 0; i < WORKERS; i++)
        card[i].backend->queue_destroy(card[i].queue);
    card[0].backend->device_close(device);
    return 0;
}

int main(void) {
    static const char *const names[] = {"cuda-played", "cuda"};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_turn_that_does_not_come),
        cmocka_unit_test(test_one_look), cmocka_unit_test(test_no_room)};
    int failed = 0, found = 0;
    for (size_t i = 0; i < HKI_COUNT(names); i++) {
        if (!open_card(names[i]))
            continue;
        found++;
        failed +=
            cmocka_run_group_tests_name(names[i], tests, NULL, close_card);
    }
    return found > 0 ? failed : -1;
}
