// test_center_local.c - the in-process center from inside: contributions that
// fail halfway, and the end of a round.
#include "center/local.h"
#include "suite_center.h"
#include <pthread.h>

#define CHUNKS 5
#define FLOATS (CHUNKS * 256)

typedef struct worker {
    hk_center *center;
    hki_member m;
    float x[FLOATS], view[FLOATS];
    hk_status status;
} worker;

static hk_status push(worker *w, int64_t wait_ms) {
    hki_exchange ex = {.x = w->x,
                       .view = w->view,
                       .rate = 1,
                       .grad_scale = 1,
                       .steps_done = 1,
                       .deadline_ns = hki_deadline(wait_ms),
                       .use_locking = true};
    return w->center->ops->push_round(w->center, w->m, &ex);
}

static void *push_later(void *user) {
    worker *const w = user;
    w->status = push(w, 20000);
    return NULL;
}

// A contribution that times out at the third chunk goes on there when the
// worker tries again: no chunk has it twice.
static void test_contribution_again(void **state) {
    (void)state;
    hk_center_options o;
    hk_center *c;
    worker w[2] = {0};
    hk_layout *const l = suite_center_layout((int64_t[]){FLOATS}, 1);
    hk_center_options_init(&o, sizeof o);
    o.method = HK_METHOD_MODEL_AVERAGE;
    o.chunk_kib = 1;
    assert_ok(hk_center_create_local(&o, l, &c));
    for (uint32_t i = 0; i < 2; i++) {
        w[i].center = c;
        assert_ok(c->ops->join(c, (int32_t)i, hki_deadline(20000), &w[i].m));
        assert_ok(c->ops->init_if_empty(c, w[i].m, w[i].x, NULL,
                                        hki_deadline(20000)));
    }
    for (int round = 1; round <= 2; round++) {
        for (int i = 0; i < FLOATS; i++) {
            w[0].x[i] = (float)(2 * round);
            w[1].x[i] = (float)(4 * round);
        }
        hki_shard *const s = ((hki_local *)c)->shard;
        hki_shard_lock_chunk(s, 2);
        assert_status(push(&w[0], 20), HK_E_TIMEOUT);
        hki_shard_unlock_chunk(s, 2);
        pthread_t other;
        assert_int_equal(pthread_create(&other, NULL, push_later, &w[1]), 0);
        assert_ok(push(&w[0], 20000));
        pthread_join(other, NULL);
        assert_ok(w[1].status);
        for (int i = 0; i < FLOATS; i++)
            assert_true(w[0].x[i] == (float)(3 * round) &&
                        w[1].x[i] == (float)(3 * round));
    }
    for (uint32_t i = 0; i < 2; i++)
        assert_ok(c->ops->leave(c, w[i].m, 0, hki_deadline(20000)));
    hk_center_destroy(c);
    hk_layout_release(l);
}

// Stops at the end of a round between its last chunk and the new version. A
// worker that waits for the round goes on after the version has changed: it
// counts staleness from there.
static void test_end_of_round(void **state) {
    (void)state;
    hk_center_options o;
    hk_center *c;
    worker w = {0};
    hki_member other;
    hk_layout *const l = suite_center_layout((int64_t[]){FLOATS}, 1);
    hk_center_options_init(&o, sizeof o);
    o.method = HK_METHOD_ELASTIC_SYNC;
    o.chunk_kib = 1;
    assert_ok(hk_center_create_local(&o, l, &c));
    hki_shard *const s = ((hki_local *)c)->shard;
    w.center = c;
    assert_ok(c->ops->join(c, 0, hki_deadline(20000), &w.m));
    assert_ok(c->ops->join(c, 1, hki_deadline(20000), &other));
    assert_ok(c->ops->init_if_empty(c, w.m, w.x, NULL, hki_deadline(20000)));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, push_later, &w), 0);
    for (bool waits = false; !waits; (void)hki_nap(NULL, 1)) {
        HKI_LOCKED(&s->lock);
        waits = s->seat[0].waits_for == 1;
    }
    hki_mutex_lock(&s->lock);
    s->round_closing = true;
    hki_store64(&s->file.worker[s->opt.max_workers].cursor,
                HKI_CURSOR(1, s->n_chunks));
    hki_cond_broadcast(&s->changed);
    hki_mutex_unlock(&s->lock);
    (void)hki_nap(NULL, 50); // a worker that does not wait is through by then
    hki_mutex_lock(&s->lock);
    atomic_fetch_add(&s->version, 1);
    s->round_closing = false;
    hki_cond_broadcast(&s->changed);
    hki_mutex_unlock(&s->lock);
    pthread_join(thread, NULL);
    assert_ok(w.status);
    assert_int_equal(s->seat[0].seen_version, 1);
    assert_ok(c->ops->leave(c, w.m, 0, hki_deadline(20000)));
    assert_ok(c->ops->leave(c, other, 0, hki_deadline(20000)));
    hk_center_destroy(c);
    hk_layout_release(l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contribution_again),
        cmocka_unit_test(test_end_of_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
