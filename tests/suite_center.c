// suite_center.c - join, init, exchange, rounds, barrier, leave and snapshot
// against any implementation of the center table.
#include "suite_center.h"
#include <pthread.h>

hk_layout *suite_center_layout(const int64_t *counts, size_t n) {
    hk_layout_item items[16];
    char names[16][8];
    for (size_t i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "v%zu", i);
        items[i] = (hk_layout_item){.name = names[i],
                                    .shape = hk_shape_make(1, &counts[i]),
                                    .dtype = HK_F32,
                                    .kind = HK_TRAINABLE};
    }
    hk_layout *l;
    assert_ok(hk_layout_create(items, n, &l));
    return l;
}

typedef struct bed {
    hk_layout *layout;
    hk_center *c;
    size_t n;    // floats
    float *x[3]; // workers' values
    hki_member m[3];
} bed;

#define WAIT_MS 10000

static int64_t soon(void) {
    return hki_deadline(WAIT_MS);
}

static void bed_open(bed *b, suite_center_create create,
                     const hk_center_options *opt) {
    b->layout = suite_center_layout((int64_t[]){5000, 3, 700}, 3);
    b->n = (size_t)hki_layout_size(b->layout);
    assert_ok(create(opt, b->layout, &b->c));
    assert_int_equal(hki_layout_fingerprint(b->c->layout),
                     hki_layout_fingerprint(b->layout));
    for (size_t w = 0; w < HKI_COUNT(b->x); w++) {
        assert_ok(hki_zalloc_array(b->n, sizeof(float), &b->x[w]));
        for (size_t i = 0; i < 3; i++) {
            const hk_entry *const e = hk_layout_entry(b->layout, i);
            for (int64_t j = 0; j < e->count; j++)
                b->x[w][e->offset + j] =
                    (float)((j * 7 + (int64_t)w * 13) % 101) / 64;
        }
        b->m[w] = (hki_member){0};
    }
}

static void bed_close(bed *b) {
    for (size_t w = 0; w < HKI_COUNT(b->x); w++) {
        if (b->m[w].incarnation != 0)
            (void)b->c->ops->leave(b->c, b->m[w], 0, soon());
        hki_free(b->x[w]);
    }
    hk_center_destroy(b->c);
    hk_layout_release(b->layout);
}

static void join(bed *b, size_t w) {
    assert_ok(b->c->ops->join(b->c, (int32_t)w, soon(), &b->m[w]));
    assert_int_equal(b->m[w].id, w);
}

static hki_exchange exchange_of(const bed *b, size_t w, double alpha) {
    return (hki_exchange){.x = b->x[w],
                          .rate = alpha,
                          .grad_scale = 1,
                          .deadline_ns = soon(),
                          .use_locking = true,
                          .steps_done = 10};
}

static void options(hk_center_options *o) {
    hk_center_options_init(o, sizeof *o);
    o->chunk_kib = 1; // many chunks in a small vector
}

// ---- cases ------------------------------------------------------------------

static void case_join(suite_center_create create) {
    hk_center_options o;
    options(&o);
    o.max_workers = 2;
    bed b;
    bed_open(&b, create, &o);
    const hki_center_ops *const ops = b.c->ops;
    hki_member first, second, again;
    assert_ok(ops->join(b.c, -1, soon(), &first));
    assert_int_equal(first.id, 0);
    assert_ok(ops->join(b.c, -1, soon(), &second));
    assert_int_equal(second.id, 1);
    assert_status(ops->join(b.c, -1, soon(), &again), HK_E_RANGE);
    assert_status(ops->join(b.c, 2, soon(), &again), HK_E_RANGE);
    hk_center_info info;
    ops->info(b.c, &info);
    assert_int_equal(info.live, 2);
    assert_int_equal(info.initialised, 0);
    // A second join of one id fences the first off.
    assert_ok(ops->join(b.c, 0, soon(), &again));
    assert_int_equal(again.incarnation, first.incarnation + 1);
    assert_status(ops->leave(b.c, first, 0, soon()), HK_E_STATE);
    ops->info(b.c, &info);
    assert_int_equal(info.live, 2);
    assert_int_equal(info.joins, 3);
    assert_ok(ops->leave(b.c, again, 7, soon()));
    assert_status(ops->leave(b.c, again, 7, soon()), HK_E_STATE);
    assert_ok(ops->leave(b.c, second, 5, soon()));
    ops->info(b.c, &info);
    assert_int_equal(info.live, 0);
    assert_int_equal(info.global_step, 12);
    bed_close(&b);
}

static void case_init(suite_center_create create) {
    hk_center_options o;
    options(&o);
    bed b;
    bed_open(&b, create, &o);
    const hki_center_ops *const ops = b.c->ops;
    float *const copy = b.x[2];
    assert_status(
        hk_center_snapshot(b.c, HK_CENTER_VALUES, 0, copy, NULL, NULL),
        HK_E_STATE);
    join(&b, 0);
    join(&b, 1);
    int64_t step;
    assert_status(ops->pull(b.c, b.m[0], copy, NULL, NULL, soon(), &step),
                  HK_E_STATE);
    assert_ok(ops->init_if_empty(b.c, b.m[0], b.x[0], NULL, soon()));
    assert_ok(ops->init_if_empty(b.c, b.m[1], b.x[1], NULL, soon()));
    assert_ok(ops->pull(b.c, b.m[1], b.x[1], NULL, NULL, soon(), &step));
    assert_memory_equal(b.x[1], b.x[0], b.n * sizeof(float));
    hk_center_info info;
    assert_ok(
        hk_center_snapshot(b.c, HK_CENTER_VALUES, WAIT_MS, copy, NULL, &info));
    assert_memory_equal(copy, b.x[0], b.n * sizeof(float));
    assert_int_equal(info.initialised, 1);
    assert_status(
        hk_center_snapshot(b.c, HK_CENTER_AVERAGE, 0, copy, NULL, NULL),
        HK_E_STATE);
    for (size_t i = 0; i < b.n; i++)
        b.x[0][i] = b.x[0][i] != 0 ? 4 : 0;
    assert_ok(hk_center_assign(b.c, b.x[0], NULL, 99, WAIT_MS));
    assert_ok(ops->pull(b.c, b.m[1], b.x[1], NULL, NULL, soon(), &step));
    assert_int_equal(step, 99);
    assert_memory_equal(b.x[1], b.x[0], b.n * sizeof(float));
    bed_close(&b);
}

// Serial elastic exchanges against a scalar oracle, bit for bit.
static void case_exchange(suite_center_create create) {
    hk_center_options o;
    options(&o);
    bed b;
    bed_open(&b, create, &o);
    const hki_center_ops *const ops = b.c->ops;
    float *x[2], *c, *view;
    assert_ok(hki_alloc_array(b.n, sizeof(float), &c));
    assert_ok(hki_zalloc_array(b.n, sizeof(float), &view)); // gaps stay zero
    memcpy(c, b.x[0], b.n * sizeof(float));
    for (size_t w = 0; w < 2; w++) {
        join(&b, w);
        assert_ok(hki_alloc_array(b.n, sizeof(float), &x[w]));
        memcpy(x[w], b.x[w], b.n * sizeof(float));
        assert_ok(ops->init_if_empty(b.c, b.m[w], b.x[w], NULL, soon()));
    }
    for (int t = 0; t < 20; t++) {
        const size_t w = t % 3 == 0;
        const float alpha = 0.3f;
        hki_exchange ex = exchange_of(&b, w, (double)alpha);
        ex.view = view;
        ex.use_locking = t % 2 == 0;
        float *const diff = b.x[2];
        ex.diff = t % 5 == 4 ? diff : NULL;
        assert_ok(ops->exchange(b.c, b.m[w], &ex));
        assert_true(ex.begun);
        assert_int_equal(ex.skipped, 0);
        assert_int_equal(ex.global_step, 10 * (t + 1));
        assert_memory_equal(view, c, b.n * sizeof(float));
        for (size_t i = 0; i < b.n; i++) {
            const float d = alpha * (x[w][i] - c[i]);
            x[w][i] -= d;
            c[i] += d;
            if (ex.diff != NULL)
                b.x[w][i] -= diff[i];
        }
        assert_memory_equal(b.x[w], x[w], b.n * sizeof(float));
        assert_ok(hk_center_snapshot(b.c, HK_CENTER_VALUES, WAIT_MS, b.x[2],
                                     NULL, NULL));
        assert_memory_equal(b.x[2], c, b.n * sizeof(float));
    }
    hk_center_info info;
    ops->info(b.c, &info);
    assert_int_equal(info.exchanges, 20);
    assert_int_equal(info.version, 20);
    hki_free(c);
    hki_free(view);
    hki_free(x[0]);
    hki_free(x[1]);
    bed_close(&b);
}

static void case_staleness(suite_center_create create) {
    hk_center_options o;
    options(&o);
    bed b;
    bed_open(&b, create, &o);
    const hki_center_ops *const ops = b.c->ops;
    join(&b, 0);
    join(&b, 1);
    assert_ok(ops->init_if_empty(b.c, b.m[0], b.x[0], NULL, soon()));
    static const struct {
        size_t worker;
        uint64_t staleness;
    } turns[] = {{0, 0}, {0, 0}, {1, 2}, {0, 1}, {1, 1}, {1, 0}};
    for (size_t i = 0; i < HKI_COUNT(turns); i++) {
        hki_exchange ex = exchange_of(&b, turns[i].worker, 0.1);
        assert_ok(ops->exchange(b.c, b.m[turns[i].worker], &ex));
        assert_int_equal(ex.staleness, turns[i].staleness);
    }
    // alpha follows the live workers when asked.
    hki_exchange ex = exchange_of(&b, 0, 0.5);
    ex.per_live = true;
    assert_ok(ops->exchange(b.c, b.m[0], &ex));
    assert_close(ex.alpha, 0.25, 0, 0);
    assert_ok(ops->leave(b.c, b.m[1], 0, soon()));
    assert_ok(ops->exchange(b.c, b.m[0], &ex));
    assert_close(ex.alpha, 0.5, 0, 0);
    b.m[1].incarnation = 0;
    // Strangers are refused.
    assert_status(
        ops->exchange(b.c, (hki_member){.id = 2, .incarnation = 1}, &ex),
        HK_E_STATE);
    assert_status(ops->exchange(b.c, (hki_member){.id = 0}, &ex), HK_E_STATE);
    assert_status(
        ops->exchange(b.c, (hki_member){.id = 1u << 30, .incarnation = 1}, &ex),
        HK_E_STATE);
    bed_close(&b);
}

// ---- rounds and barriers ----------------------------------------------------

typedef struct party {
    bed *b;
    size_t w;
    hk_status status;
} party;

static void *push(void *arg) {
    party *const p = arg;
    hki_exchange ex = exchange_of(p->b, p->w, 0.25);
    p->status = p->b->c->ops->push_round(p->b->c, p->b->m[p->w], &ex);
    return NULL;
}

static void *come(void *arg) {
    party *const p = arg;
    p->status = p->b->c->ops->barrier(p->b->c, p->b->m[p->w], 3, soon());
    return NULL;
}

static void all(bed *b, size_t n, void *(*fn)(void *)) {
    pthread_t id[3];
    party p[3];
    for (size_t w = 0; w < n; w++) {
        p[w] = (party){b, w, HK_OK};
        assert_int_equal(pthread_create(&id[w], NULL, fn, &p[w]), 0);
    }
    for (size_t w = 0; w < n; w++)
        pthread_join(id[w], NULL);
    for (size_t w = 0; w < n; w++)
        assert_int_equal(p[w].status, HK_OK);
}

static void case_rounds(suite_center_create create) {
    hk_center_options o;
    options(&o);
    o.method = HK_METHOD_MODEL_AVERAGE;
    bed b;
    bed_open(&b, create, &o);
    const hki_center_ops *const ops = b.c->ops;
    for (size_t w = 0; w < 3; w++)
        join(&b, w);
    assert_ok(ops->init_if_empty(b.c, b.m[0], b.x[0], NULL, soon()));
    float *mean;
    assert_ok(hki_alloc_array(b.n, sizeof(float), &mean));
    for (size_t i = 0; i < b.n; i++) // exact in any order
        mean[i] = (b.x[0][i] + b.x[1][i] + b.x[2][i]) / 3.0f;
    all(&b, 3, push);
    for (size_t w = 0; w < 3; w++)
        assert_memory_equal(b.x[w], mean, b.n * sizeof(float));
    hk_center_info info;
    ops->info(b.c, &info);
    assert_int_equal(info.version, 1);
    assert_int_equal(info.exchanges, 3);
    // One is missing: a deadline with its name, then it leaves and the round
    // ends. The contribution counts once.
    hki_exchange ex = exchange_of(&b, 0, 0);
    ex.deadline_ns = hki_deadline(20);
    assert_status(ops->push_round(b.c, b.m[0], &ex), HK_E_TIMEOUT);
    assert_non_null(strstr(hk_last_error(), "round 1"));
    assert_ok(ops->leave(b.c, b.m[1], 0, soon()));
    assert_ok(ops->leave(b.c, b.m[2], 0, soon()));
    b.m[1].incarnation = b.m[2].incarnation = 0;
    ex.deadline_ns = soon();
    assert_ok(ops->push_round(b.c, b.m[0], &ex));
    assert_memory_equal(b.x[0], mean, b.n * sizeof(float));
    ops->info(b.c, &info);
    assert_int_equal(info.version, 2);
    assert_int_equal(info.exchanges, 4);
    hki_free(mean);
    bed_close(&b);
}

static void case_quorum(suite_center_create create) {
    hk_center_options o;
    options(&o);
    o.method = HK_METHOD_MODEL_AVERAGE;
    o.quorum = 1;
    bed b;
    bed_open(&b, create, &o);
    const hki_center_ops *const ops = b.c->ops;
    join(&b, 0);
    join(&b, 1);
    assert_ok(ops->init_if_empty(b.c, b.m[0], b.x[0], NULL, soon()));
    hki_exchange ex = exchange_of(&b, 1, 0);
    ex.deadline_ns = hki_deadline(20);
    float *before;
    assert_ok(hki_alloc_array(b.n, sizeof(float), &before));
    memcpy(before, b.x[1], b.n * sizeof(float));
    const hk_status s = ops->push_round(b.c, b.m[1], &ex);
    // The round was closed at the deadline; taking the result may come late.
    assert_true(s == HK_OK || s == HK_E_TIMEOUT);
    assert_ok(
        hk_center_snapshot(b.c, HK_CENTER_VALUES, WAIT_MS, b.x[2], NULL, NULL));
    assert_memory_equal(b.x[2], before, b.n * sizeof(float));
    hki_free(before);
    bed_close(&b);
}

static void case_barrier(suite_center_create create) {
    hk_center_options o;
    options(&o);
    bed b;
    bed_open(&b, create, &o);
    const hki_center_ops *const ops = b.c->ops;
    for (size_t w = 0; w < 3; w++)
        join(&b, w);
    for (int attempt = 0; attempt < 4; attempt++) { // counted once in all
        assert_status(ops->barrier(b.c, b.m[0], 3, hki_deadline(10)),
                      HK_E_TIMEOUT);
        assert_non_null(strstr(hk_last_error(), "1 of 3"));
    }
    all(&b, 3, come);
    // Passed for good: who comes back does not wait.
    assert_ok(ops->barrier(b.c, b.m[1], 3, hki_deadline(0)));
    bed_close(&b);
}

void suite_center_run(suite_center_create create) {
    case_join(create);
    case_init(create);
    case_exchange(create);
    case_staleness(create);
    case_rounds(create);
    case_quorum(create);
    case_barrier(create);
}
