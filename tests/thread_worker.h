// thread_worker.h - a worker of elastic averaging as a thread of a test:
// session, optimizer, elastic handle and trainer of its own over one plan.
#ifndef HK_TEST_THREAD_WORKER_H
#define HK_TEST_THREAD_WORKER_H
#include "hk_test.h"
#include <pthread.h>
#include <stdatomic.h>
#include "hooke/train.h"

typedef struct thread_setting {
    hk_plan *plan;
    hk_center *center;
    const hk_optimizer_options *optimizer;
    const hk_elastic_options *elastic;
    const hk_gradproc_options *gradproc; // NULL: none
    // Fills the inputs of worker `id`'s batch, counted from 0.
    hk_status (*feed)(void *user, uint32_t id, hk_session *s, int64_t batch);
    hk_step_fn after_step; // at HK_POINT_END; NULL: none
    void *user;
    int64_t steps;
    uint64_t seed; // values; random operators mix in the id
} thread_setting;

typedef struct thread_worker {
    const thread_setting *set;
    uint32_t id;
    atomic_bool leave; // ends after its current step
    pthread_t thread;
    // Results, after thread_worker_join.
    hk_status status;
    char text[512];
    int64_t local_step;
    uint64_t exchanges;
} thread_worker;

static inline hk_step_info trainer_info(const hk_trainer *t) {
    hk_step_info info;
    assert_ok(hk_trainer_get_info(t, &info));
    return info;
}

static inline hk_status thread_worker_steps(thread_worker *w, hk_session *s,
                                            hk_trainer *t) {
    hk_status st = HK_OK;
    for (int64_t batch = 0; st == HK_OK && !atomic_load(&w->leave) &&
                            w->local_step < w->set->steps;
         batch++) {
        st = w->set->feed(w->set->user, w->id, s, batch);
        if (st == HK_OK)
            st = hk_trainer_step(t, NULL);
        w->local_step = trainer_info(t).local_step;
    }
    if (st != HK_OK)
        snprintf(w->text, sizeof w->text, "%s", hk_last_error());
    return st;
}

// All start from the same values. One that fails leaves as well, so that
// nobody waits for it.
static inline void *thread_worker_main(void *arg) {
    thread_worker *const w = arg;
    const thread_setting *const set = w->set;
    hk_layout *const layout = hk_plan_layout(set->plan);
    hk_trainer_options o;
    hk_trainer_options_init(&o, sizeof o);
    hk_session_options so;
    hk_session_options_init(&so, sizeof so);
    so.seed = set->seed + UINT64_C(0x9E3779B97F4A7C15) * (w->id + 1);
    assert_ok(hk_session_create(set->plan, &so, &o.session));
    float *const x = hk_session_params(o.session);
    assert_ok(hk_plan_init_values(set->plan, set->seed, x));
    assert_ok(hk_optimizer_create(set->optimizer, layout, &o.optimizer));
    if (set->gradproc != NULL)
        assert_ok(hk_gradproc_create(set->gradproc, layout, &o.gradproc));
    assert_ok(
        hk_elastic_create(set->elastic, o.optimizer, set->center, &o.elastic));
    hk_trainer *t;
    assert_ok(hk_trainer_create(&o, &t));
    if (set->after_step != NULL)
        assert_ok(
            hk_trainer_insert(t, HK_POINT_END, set->after_step, set->user));
    assert_ok(hk_elastic_init(o.elastic, x, (int32_t)w->id));
    w->status = thread_worker_steps(w, o.session, t);
    const hk_status left = hk_elastic_leave(o.elastic, x);
    if (w->status == HK_OK)
        w->status = left;
    hk_elastic_stats stats;
    assert_ok(hk_elastic_get_stats(o.elastic, &stats));
    w->exchanges = stats.exchanges;
    hk_trainer_destroy(t);
    hk_elastic_destroy(o.elastic);
    hk_gradproc_destroy(o.gradproc);
    hk_optimizer_destroy(o.optimizer);
    hk_session_destroy(o.session);
    return NULL;
}

static inline void thread_worker_start(thread_worker *w,
                                       const thread_setting *set, uint32_t id) {
    *w = (thread_worker){.set = set, .id = id};
    assert_int_equal(pthread_create(&w->thread, NULL, thread_worker_main, w),
                     0);
}

// Starts n of them and waits for all.
static inline void thread_workers_run(thread_worker *w,
                                      const thread_setting *set, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        thread_worker_start(&w[i], set, i);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(pthread_join(w[i].thread, NULL), 0);
}

#endif // HK_TEST_THREAD_WORKER_H
