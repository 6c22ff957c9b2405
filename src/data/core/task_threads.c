// task_threads.c - helper threads that take tasks from one queue.
//
// One lock guards queue and task states. Threads start with the first task,
// so that pipelines without parallel work have none. A helper that cannot be
// started is done without: waiters do the tasks themselves.
#include "data/core/pipeline.h"

struct hki_gang {
    hki_mutex lock;
    hki_cond work; // the queue has a task, or the end has come
    hki_cond done; // a task is done
    hki_task head; // circular queue around it
    hki_data_run *run;
    uint32_t n_helpers, n_started;
    uint32_t n_alive; // started and not ended by a stop
    bool ending;
    hki_thread **threads;
};

hk_status hki_gang_create(uint32_t helpers, hki_data_run *run, hki_gang **out) {
    hki_gang *g;
    HKI_TRY(hki_zalloc_array(1, sizeof *g, &g));
    g->run = run;
    g->n_helpers = helpers;
    g->head.prev = g->head.next = &g->head;
    HKI_TRY_OR(hki_zalloc_array(helpers, sizeof *g->threads, &g->threads),
               hki_free(g));
    hki_mutex_init(&g->lock);
    hki_cond_init(&g->work);
    hki_cond_init(&g->done);
    *out = g;
    return HK_OK;
}

void hki_gang_destroy(hki_gang *g) {
    if (g == NULL)
        return;
    hki_mutex_lock(&g->lock);
    g->ending = true;
    hki_cond_broadcast(&g->work);
    hki_mutex_unlock(&g->lock);
    for (uint32_t i = 0; i < g->n_started; i++)
        hki_thread_stop(g->threads[i]);
    hki_cond_deinit(&g->done);
    hki_cond_deinit(&g->work);
    hki_mutex_deinit(&g->lock);
    hki_free(g->threads);
    hki_free(g);
}

// Runs a queued task; the lock is held before and after.
static void run_task(hki_gang *g, hki_task *t) {
    t->prev->next = t->next;
    t->next->prev = t->prev;
    t->state = HKI_TASK_RUNNING;
    hki_mutex_unlock(&g->lock);
    t->fn(t->arg);
    hki_mutex_lock(&g->lock);
    t->state = HKI_TASK_DONE;
    hki_cond_broadcast(&g->done);
}

static void helper_main(void *arg) {
    hki_gang *const g = arg;
    HKI_LOCKED(&g->lock);
    for (;;) {
        if (g->head.next != &g->head)
            run_task(g, g->head.next);
        else if (g->ending || hki_run_wait(g->run, &g->work, &g->lock))
            break;
    }
    g->n_alive--;
    hki_cond_broadcast(&g->done); // waiters do the rest themselves
}

void hki_gang_submit(hki_gang *g, hki_task *t) {
    HKI_LOCKED(&g->lock);
    while (g->n_started < g->n_helpers) {
        hki_thread **const slot = &g->threads[g->n_started];
        if (hki_thread_start(helper_main, g, -1, "hooke-data", slot) != HK_OK) {
            g->n_helpers = g->n_started; // make do with those that run
            break;
        }
        g->n_started++;
        g->n_alive++;
    }
    t->state = HKI_TASK_QUEUED;
    t->next = &g->head;
    t->prev = g->head.prev;
    t->prev->next = t;
    g->head.prev = t;
    hki_cond_signal(&g->work);
}

void hki_gang_wait(hki_gang *g, hki_task *t) {
    HKI_LOCKED(&g->lock);
    if (t->state == HKI_TASK_QUEUED)
        run_task(g, t);
    while (t->state == HKI_TASK_RUNNING)
        hki_cond_wait_forever(&g->done, &g->lock);
    t->state = HKI_TASK_IDLE;
}

static hki_task *first_queued(hki_task *const *tasks, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (tasks[i]->state == HKI_TASK_QUEUED)
            return tasks[i];
    return NULL;
}

void hki_gang_first(hki_gang *g, hki_task *const *tasks, size_t n) {
    hki_task *const first = tasks[0];
    HKI_LOCKED(&g->lock);
    while (first->state == HKI_TASK_QUEUED ||
           first->state == HKI_TASK_RUNNING) {
        hki_task *const queued = first_queued(tasks, n);
        if (queued != NULL)
            run_task(g, queued);
        else
            hki_cond_wait_forever(&g->done, &g->lock);
    }
    first->state = HKI_TASK_IDLE;
}

bool hki_gang_poll(hki_gang *g, hki_task *t) {
    HKI_LOCKED(&g->lock);
    if (t->state == HKI_TASK_DONE)
        t->state = HKI_TASK_IDLE;
    return t->state == HKI_TASK_IDLE;
}

void hki_gang_any(hki_gang *g, hki_task *const *tasks, size_t n) {
    HKI_LOCKED(&g->lock);
    for (;;) {
        bool done = false, under_way = false;
        for (size_t i = 0; i < n; i++) {
            done = done || tasks[i]->state == HKI_TASK_DONE;
            under_way = under_way || tasks[i]->state != HKI_TASK_IDLE;
        }
        if (done || !under_way)
            break;
        hki_task *const queued = first_queued(tasks, n);
        // A task taken here could be the slow one that holds up the others.
        if (queued != NULL && g->n_alive == 0)
            run_task(g, queued);
        else
            hki_cond_wait_forever(&g->done, &g->lock);
    }
}
