// test_elastic_threads.c - many workers at one center: lost updates, turn
// orders, replay, joins and leaves, consistent snapshots.
//
//     test_elastic_threads --soak SECONDS [SEED]
//
// runs random joins and leaves for that long, every exchange checked to
// conserve x + center within 2 ulp.
#include "elastic_bed.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define MANY 16

typedef struct party {
    hk_layout *layout;
    hk_center *c;
    hk_elastic_options opt;
    uint32_t id;
    int steps;
    int lives;   // how often it joins
    bool leaves; // after its steps
    bool ones;   // gradient -1, otherwise towards a target of its own
    uint64_t seed;
    atomic_bool *stop; // NULL: none
    hk_optimizer *optimizer;
    hk_elastic *e;
    float *x, *g;
    hk_elastic_stats stats;
    hk_status status;
    char text[512];
} party;

static void party_end(party *p) {
    hk_elastic_destroy(p->e);
    hk_optimizer_destroy(p->optimizer);
    p->e = NULL;
    p->optimizer = NULL;
}

static hk_status party_begin(party *p) {
    hk_optimizer_options o;
    hk_optimizer_options_init(&o, sizeof o, HK_OPT_GRADIENT_DESCENT);
    o.learning_rate = p->ones ? 1 : 0.1;
    o.threads = 1;
    HKI_TRY(hk_optimizer_create(&o, p->layout, &p->optimizer));
    return hk_elastic_create(&p->opt, p->optimizer, p->c, &p->e);
}

static hk_status party_step(party *p) {
    const int64_t n = hki_layout_train(p->layout);
    for (int64_t i = 0; i < n; i++)
        p->g[i] =
            p->ones ? -1 : p->x[i] - (float)((i * 31 + p->id * 17) % 97) / 13;
    const hk_grad_view g = {.dense = p->g, .n_dense = n, .scale = 1};
    return hk_elastic_apply(p->e, p->x, &g, NULL);
}

static hk_status party_life(party *p, hki_rng *r) {
    HKI_TRY(hk_elastic_init(p->e, p->x, (int32_t)p->id));
    for (int t = 0; t < p->steps; t++) {
        if (p->stop != NULL && atomic_load(p->stop))
            break;
        if (hki_rng_below(r, 4) == 0) // other orders in every run
            sched_yield();
        HKI_TRY(party_step(p));
    }
    HKI_TRY(hk_elastic_get_stats(p->e, &p->stats));
    return p->leaves ? hk_elastic_leave(p->e, p->x) : HK_OK;
}

static void *party_main(void *arg) {
    party *const p = arg;
    hki_rng r;
    hki_rng_init(&r, p->seed, p->id);
    for (int life = 0; life < p->lives && p->status == HK_OK; life++) {
        party_end(p);
        p->status = party_begin(p);
        if (p->status == HK_OK)
            p->status = party_life(p, &r);
        if (p->status != HK_OK)
            snprintf(p->text, sizeof p->text, "%s", hk_last_error());
        if (p->stop != NULL && atomic_load(p->stop))
            break;
    }
    return NULL;
}

typedef struct crowd {
    hk_layout *layout;
    hk_center *c;
    party p[MANY];
    pthread_t thread[MANY];
    size_t n;
} crowd;

static void crowd_open(crowd *k, const hk_center_options *co) {
    memset(k, 0, sizeof *k);
    k->layout = suite_center_layout((int64_t[]){3000, 10}, 2);
    k->n = (size_t)hki_layout_size(k->layout);
    assert_ok(hk_center_create_local(co, k->layout, &k->c));
    for (uint32_t i = 0; i < MANY; i++) {
        party *const p = &k->p[i];
        *p = (party){.layout = k->layout,
                     .c = k->c,
                     .id = i,
                     .steps = 40,
                     .lives = 1,
                     .leaves = true,
                     .ones = k->c->method->keeps_view,
                     .seed = 1};
        elastic_options(&p->opt, MANY, 2);
        p->opt.wait_ms = 60000;
        assert_ok(hki_zalloc_array(k->n, sizeof(float), &p->x));
        assert_ok(hki_zalloc_array(k->n, sizeof(float), &p->g));
    }
}

static void crowd_start(crowd *k) {
    for (uint32_t i = 0; i < MANY; i++)
        assert_int_equal(
            pthread_create(&k->thread[i], NULL, party_main, &k->p[i]), 0);
}

static void crowd_join(crowd *k) {
    for (uint32_t i = 0; i < MANY; i++)
        pthread_join(k->thread[i], NULL);
    for (uint32_t i = 0; i < MANY; i++)
        if (k->p[i].status != HK_OK)
            fail_msg("worker %u: %s", i, k->p[i].text);
}

static void crowd_close(crowd *k) {
    for (uint32_t i = 0; i < MANY; i++) {
        party_end(&k->p[i]);
        hki_free(k->p[i].x);
        hki_free(k->p[i].g);
    }
    hk_center_destroy(k->c);
    hk_layout_release(k->layout);
}

static void options(hk_center_options *o, hk_method m) {
    hk_center_options_init(o, sizeof *o);
    o->method = m;
    o->chunk_kib = 1;
    o->check = 1;
}

// ---- locking ----------------------------------------------------------------

// Every step of every worker adds 1 everywhere: nothing may get lost, and a
// snapshot in between sees whole exchanges only.
static void test_locking(void **state) {
    (void)state;
    hk_center_options co;
    options(&co, HK_METHOD_DOWNPOUR);
    crowd k;
    crowd_open(&k, &co);
    float *v;
    assert_ok(hki_alloc_array(k.n, sizeof *v, &v));
    assert_ok(hk_center_assign(k.c, k.p[0].x, NULL, 0, 1000));
    crowd_start(&k);
    hk_center_info info;
    do {
        sched_yield();
        read_center(k.c, v, &info);
        for (int i = 1; i < 3000; i++)
            if (v[i] != v[0])
                fail_msg("torn snapshot: %g at 0, %g at %d", (double)v[0],
                         (double)v[i], i);
        assert_close(v[0], 2.0 * (double)info.version, 0, 0);
    } while (info.exchanges < MANY * 20);
    crowd_join(&k);
    read_center(k.c, v, &info);
    assert_close(v[0], MANY * 40, 0, 0);
    assert_int_equal(info.global_step, MANY * 40);
    assert_int_equal(info.skipped_chunks, 0);
    assert_int_equal(info.live, 0);
    hki_free(v);
    crowd_close(&k);
}

// Without locking nobody waits; a skipped chunk is exchanged the next time.
static void test_no_locking(void **state) {
    (void)state;
    hk_center_options co;
    options(&co, HK_METHOD_DOWNPOUR);
    crowd k;
    crowd_open(&k, &co);
    for (uint32_t i = 0; i < MANY; i++) {
        k.p[i].opt.use_locking = 0;
        k.p[i].leaves = false;
    }
    crowd_start(&k);
    crowd_join(&k);
    uint64_t skipped = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        skipped += k.p[i].stats.skipped_chunks;
        assert_int_equal(k.p[i].stats.exchanges, 20);
        assert_ok(hk_elastic_exchange(k.p[i].e, k.p[i].x)); // the rest
    }
    float *v;
    assert_ok(hki_alloc_array(k.n, sizeof *v, &v));
    hk_center_info info;
    read_center(k.c, v, &info);
    for (int i = 0; i < 3000; i++)
        assert_close(v[i], MANY * 40, 0, 0);
    assert_int_equal(info.skipped_chunks, skipped);
    hki_free(v);
    crowd_close(&k);
}

// Paper's order without locking: the center and x move by the same d, also
// where a chunk was skipped. All x and the center keep their sum.
static void test_no_locking_conserves(void **state) {
    (void)state;
    hk_center_options co;
    options(&co, HK_METHOD_ELASTIC);
    for (int overlap = 0; overlap < 2; overlap++) {
        crowd k;
        crowd_open(&k, &co);
        for (uint32_t i = 0; i < MANY; i++) {
            party *const p = &k.p[i];
            p->opt.use_locking = 0;
            p->opt.order = HK_ORDER_PAPER;
            p->opt.moving_rate = 0.1;
            p->opt.synchronous = 1; // nobody starts from a moved center
            p->opt.communication_period = 1;
            p->opt.overlap_steps = (uint32_t)overlap;
            p->opt.telemetry = 1;
            p->ones = true;
            p->leaves = false;
        }
        crowd_start(&k);
        crowd_join(&k);
        float *v;
        assert_ok(hki_alloc_array(k.n, sizeof *v, &v));
        for (uint32_t i = 0; i < MANY; i++)
            assert_ok(hk_elastic_flush(k.p[i].e, k.p[i].x));
        read_center(k.c, v, NULL);
        for (int i = 0; i < 3000; i++) {
            double sum = (double)v[i];
            for (uint32_t j = 0; j < MANY; j++)
                sum += (double)k.p[j].x[i];
            assert_close(sum, MANY * 40, 1e-2, 0);
        }
        hki_free(v);
        crowd_close(&k);
    }
}

// ---- turn orders ------------------------------------------------------------

static void fingerprint(crowd *k, uint64_t *out) {
    float *v;
    assert_ok(hki_alloc_array(k->n, sizeof *v, &v));
    read_center(k->c, v, NULL);
    *out = hki_hash(HKI_HASH_INIT, v, k->n * sizeof *v);
    for (uint32_t i = 0; i < MANY; i++)
        *out = hki_hash(*out, k->p[i].x, k->n * sizeof *v);
    hki_free(v);
}

// Some workers live twice and all leave at steps of their own; the moving
// rate follows the live count.
static void run_crowd(crowd *k, const hk_center_options *co, uint64_t seed) {
    crowd_open(k, co);
    for (uint32_t i = 0; i < MANY; i++) {
        party *const p = &k->p[i];
        p->seed = seed;
        p->steps = 10 + (int)(i * 7 % 20);
        p->lives = i % 5 == 0 ? 2 : 1;
        p->opt.follow_live = 1;
        p->opt.order = i % 2 ? HK_ORDER_PAPER : HK_ORDER_TF;
        p->opt.overlap_steps = i % 3 == 0 ? 1 : 0;
        for (size_t j = 0; j < 3000; j++)
            p->x[j] = (float)(i + 1);
    }
    crowd_start(k);
    crowd_join(k);
}

static void test_round_robin(void **state) {
    (void)state;
    static const hk_method methods[] = {HK_METHOD_ELASTIC, HK_METHOD_DOWNPOUR,
                                        HK_METHOD_DILOCO_DELAYED};
    for (size_t m = 0; m < HKI_COUNT(methods); m++) {
        uint64_t first = 0;
        for (uint64_t run = 0; run < 3; run++) {
            hk_center_options co;
            options(&co, methods[m]);
            co.turn = HK_TURN_ROUND_ROBIN;
            co.workers = MANY;
            crowd k;
            crowd_open(&k, &co);
            for (uint32_t i = 0; i < MANY; i++) {
                party *const p = &k.p[i];
                p->seed = 1000 + run;
                p->steps = 10 + (int)(i * 7 % 20); // they leave in turn
                p->opt.follow_live = 1;
                p->x[0] = (float)(i + 1); // worker 0's becomes the center's
            }
            crowd_start(&k);
            crowd_join(&k);
            uint64_t print;
            fingerprint(&k, &print);
            if (run == 0)
                first = print;
            assert_true(print == first);
            crowd_close(&k);
        }
    }
}

// A free run, recorded, and its replay: the same bits everywhere.
static void test_recorded(void **state) {
    (void)state;
    for (uint64_t run = 0; run < 3; run++) {
        hk_center_options co;
        options(&co, HK_METHOD_ELASTIC);
        co.record = 1;
        crowd k;
        run_crowd(&k, &co, run);
        uint64_t first, again;
        fingerprint(&k, &first);
        size_t size;
        assert_ok(hk_center_order_save(k.c, NULL, 0, &size));
        unsigned char *order;
        assert_ok(hki_alloc_array(size, 1, &order));
        assert_status(hk_center_order_save(k.c, order, size - 1, &size),
                      HK_E_OVERFLOW);
        assert_ok(hk_center_order_save(k.c, order, size, &size));
        crowd_close(&k);

        options(&co, HK_METHOD_ELASTIC);
        co.turn = HK_TURN_RECORDED;
        co.order = order;
        co.order_size = size;
        run_crowd(&k, &co, run + 100);
        fingerprint(&k, &again);
        assert_true(first == again);
        crowd_close(&k);
        hki_free(order);
    }
}

static void test_orders_refused(void **state) {
    (void)state;
    hk_layout *const l = suite_center_layout((int64_t[]){5}, 1);
    hk_center_options co;
    options(&co, HK_METHOD_ELASTIC);
    co.record = 1;
    hk_center *c;
    assert_ok(hk_center_create_local(&co, l, &c));
    hk_elastic_options o;
    elastic_options(&o, 2, 1);
    worker w;
    worker_open(&w, l, c, &o, HK_OPT_GRADIENT_DESCENT, 1);
    assert_ok(hk_elastic_init(w.e, w.x, 0));
    assert_ok(worker_step(&w));
    unsigned char order[256];
    size_t size;
    assert_ok(hk_center_order_save(c, order, sizeof order, &size));
    worker_close(&w);
    hk_center_destroy(c);
    // An exchange without locking has no place in an order.
    assert_ok(hk_center_create_local(&co, l, &c));
    o.use_locking = 0;
    worker_open(&w, l, c, &o, HK_OPT_GRADIENT_DESCENT, 1);
    assert_ok(hk_elastic_init(w.e, w.x, 0));
    assert_status(worker_step(&w), HK_E_INVALID_ARG);
    worker_close(&w);
    hk_center_destroy(c);
    o.use_locking = 1;
    // Damaged bytes.
    co.record = 0;
    co.turn = HK_TURN_RECORDED;
    co.order = order;
    co.order_size = size;
    for (size_t i = 0; i < size; i++) {
        order[i] ^= 1;
        assert_status(hk_center_create_local(&co, l, &c), HK_E_DATA);
        order[i] ^= 1;
    }
    for (size_t n = 0; n < size; n++) {
        co.order_size = n;
        assert_status(hk_center_create_local(&co, l, &c), HK_E_DATA);
    }
    co.order_size = size;
    // One exchange was recorded: a second one has no turn, another worker
    // waits in vain.
    assert_ok(hk_center_create_local(&co, l, &c));
    o.wait_ms = 20;
    worker_open(&w, l, c, &o, HK_OPT_GRADIENT_DESCENT, 1);
    assert_status(hk_elastic_init(w.e, w.x, 1), HK_E_TIMEOUT);
    assert_non_null(strstr(hk_last_error(), "join of worker 1"));
    assert_status(hk_elastic_init(w.e, w.x, -1), HK_E_INVALID_ARG);
    assert_ok(hk_elastic_init(w.e, w.x, 0));
    assert_ok(worker_step(&w));
    assert_status(worker_step(&w), HK_E_END);
    worker_close(&w);
    hk_center_destroy(c);
    // Round-robin with a worker that never comes.
    options(&co, HK_METHOD_ELASTIC);
    co.turn = HK_TURN_ROUND_ROBIN;
    co.workers = 2;
    assert_ok(hk_center_create_local(&co, l, &c));
    worker_open(&w, l, c, &o, HK_OPT_GRADIENT_DESCENT, 1);
    assert_ok(hk_elastic_init(w.e, w.x, 0));
    assert_status(worker_step(&w), HK_E_TIMEOUT);
    assert_non_null(strstr(hk_last_error(), "worker 1, which has not come"));
    worker_close(&w);
    hk_center_destroy(c);
    hk_layout_release(l);
}

// ---- other methods and coming and going -------------------------------------

static void test_all_methods(void **state) {
    (void)state;
    hk_optimizer_options outer;
    hk_optimizer_options_init(&outer, sizeof outer, HK_OPT_MOMENTUM);
    outer.learning_rate = 0.01;
    outer.threads = 1;
    for (int m = HK_METHOD_ELASTIC; hk_method_name((hk_method)m) != NULL; m++)
        for (uint32_t locking = 0; locking < 2; locking++) {
            hk_center_options co;
            options(&co, (hk_method)m);
            co.outer = &outer;
            crowd k;
            crowd_open(&k, &co);
            for (uint32_t i = 0; i < MANY; i++) {
                party *const p = &k.p[i];
                p->opt.use_locking = locking;
                p->opt.communication_period = 3;
                p->opt.telemetry = 2;
                p->steps = 12;
                p->ones = false;
            }
            crowd_start(&k);
            crowd_join(&k);
            hk_center_info info;
            assert_ok(hk_center_get_info(k.c, &info));
            assert_int_equal(info.global_step, MANY * 12);
            assert_int_equal(info.live, 0);
            crowd_close(&k);
        }
}

static void churn(double seconds, uint64_t seed) {
    hk_center_options co;
    options(&co, HK_METHOD_ELASTIC);
    crowd k;
    crowd_open(&k, &co);
    atomic_bool stop = false;
    for (uint32_t i = 0; i < MANY; i++) {
        party *const p = &k.p[i];
        p->seed = seed;
        p->lives = INT32_MAX;
        p->stop = &stop;
        p->steps = 5 + (int)(i * 13 % 60);
        p->leaves = i % 4 != 0; // the others go without a word
        p->opt.use_locking = i % 2;
        p->opt.communication_period = 1 + i % 3;
        p->opt.follow_live = 1;
    }
    crowd_start(&k);
    const int64_t end = hki_now_ns() + (int64_t)(seconds * 1e9);
    float *v;
    assert_ok(hki_alloc_array(k.n, sizeof *v, &v));
    hk_center_info info = {0};
    while (hki_now_ns() < end) {
        const hk_status s =
            hk_center_snapshot(k.c, HK_CENTER_VALUES, 60000, v, NULL, &info);
        assert_true(s == HK_OK || s == HK_E_STATE);
        for (size_t i = 0; s == HK_OK && i < k.n; i++)
            assert_true(isfinite(v[i]));
        const struct timespec pause = {.tv_nsec = 1000000};
        nanosleep(&pause, NULL);
    }
    atomic_store(&stop, true);
    crowd_join(&k); // fails on the first exchange that did not conserve
    for (uint32_t i = 0; i < MANY; i++)
        party_end(&k.p[i]);
    assert_ok(hk_center_get_info(k.c, &info));
    assert_int_equal(info.live, 0);
    assert_true(info.joins > MANY && info.exchanges > 0);
    print_message("%llu exchanges, %llu joins, %llu chunks skipped\n",
                  (unsigned long long)info.exchanges,
                  (unsigned long long)info.joins,
                  (unsigned long long)info.skipped_chunks);
    hki_free(v);
    crowd_close(&k);
}

static double soak_seconds = 0.5;
static uint64_t soak_seed = 1;

static void test_churn(void **state) {
    (void)state;
    churn(soak_seconds, soak_seed);
}

int main(int argc, char **argv) {
    const struct CMUnitTest soak[] = {cmocka_unit_test(test_churn)};
    if (argc >= 3 && strcmp(argv[1], "--soak") == 0) {
        soak_seconds = strtod(argv[2], NULL);
        if (argc > 3)
            soak_seed = strtoull(argv[3], NULL, 10);
        return cmocka_run_group_tests(soak, NULL, NULL);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_locking),
        cmocka_unit_test(test_no_locking),
        cmocka_unit_test(test_no_locking_conserves),
        cmocka_unit_test(test_round_robin),
        cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_orders_refused),
        cmocka_unit_test(test_all_methods),
        cmocka_unit_test(test_churn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
