// overlap.c - exchanges that run beside the next steps.
//
// Two buffers take turns. A copy of x goes into one, the thread turns it into
// d and moves the center, and the worker subtracts d from x at the step that
// was fixed when it started: the outcome does not depend on how fast the
// thread was.
#include "elastic/worker.h"

#define IDLE_MS 3600000 // of the thread, which then looks for a job again

typedef struct job {
    const hki_exchange_kernels *k;
    hki_vector d;
    hki_exchange ex;
    hki_sums sums;
    int64_t taken_at, apply_at; // local steps
    uint64_t number;
    bool in_use; // from start until it was applied
    bool done;   // by the thread; guarded by `lock`
    hk_status status;
    char text[512];
} job;

// Job k uses jobs[k % 2]. Jobs are applied in the order they were started:
//     applied <= taken <= queued = started <= applied + 2
// A job is the thread's from `queued` until `done`, the worker's before and
// after; only `done` and the counters are looked at by both.
struct hki_overlap {
    hk_elastic *e;
    hki_thread *thread;
    hki_mutex lock; // guards done, queued and stop
    hki_cond changed;
    job jobs[2];
    uint64_t started, applied; // jobs, counted by the worker
    uint64_t queued, taken;    // by worker and thread
    bool stop;
};

// In the thread: the handle's own sums belong to the worker.
static void observe_job(void *user, int64_t begin, int64_t end, const float *x,
                        const float *c) {
    job *const j = user;
    j->k->observe(x, NULL, c, end - begin, j->sums.s);
}

static void run_job(hk_elastic *e, job *j) {
    j->status = e->center->ops->exchange(e->center, e->m, &j->ex);
    if (j->status != HK_OK)
        snprintf(j->text, sizeof j->text, "%s", hk_last_error());
}

static void thread_main(void *user) {
    hki_overlap *const o = user;
    hki_mutex_lock(&o->lock);
    for (;;) {
        // Ends with a job, or with the handle.
        while (o->taken == o->queued && !o->stop)
            (void)hki_cond_wait(&o->changed, &o->lock, hki_deadline(IDLE_MS));
        if (o->taken == o->queued)
            break;
        HKI_ASSERT(o->taken < o->queued && o->queued <= o->taken + 2);
        job *const j = &o->jobs[o->taken++ % 2];
        hki_mutex_unlock(&o->lock);
        run_job(o->e, j);
        hki_mutex_lock(&o->lock);
        j->done = true;
        hki_cond_broadcast(&o->changed);
    }
    hki_mutex_unlock(&o->lock);
}

hk_status hki_overlap_create(hk_elastic *e) {
    hki_overlap *o;
    HKI_TRY(hki_zalloc_array(1, sizeof *o, &o));
    hki_mutex_init(&o->lock);
    hki_cond_init(&o->changed);
    e->overlap = o;
    o->e = e;
    for (size_t i = 0; i < HKI_COUNT(o->jobs); i++)
        HKI_TRY(hki_vector_init(&o->jobs[i].d, hki_layout_size(e->layout), 0));
    return hki_thread_start(thread_main, o, -1, "hooke-overlap", &o->thread);
}

void hki_overlap_destroy(hki_overlap *o) {
    if (o == NULL)
        return;
    if (o->thread != NULL) {
        hki_mutex_lock(&o->lock);
        o->stop = true;
        hki_cond_broadcast(&o->changed);
        hki_mutex_unlock(&o->lock);
        hki_thread_stop(o->thread);
    }
    hki_cond_deinit(&o->changed);
    hki_mutex_deinit(&o->lock);
    for (size_t i = 0; i < HKI_COUNT(o->jobs); i++)
        hki_vector_deinit(&o->jobs[i].d);
    hki_free(o);
}

// What the thread works on stays in host memory until it is done.
hk_status hki_overlap_follow(hk_elastic *e, const hki_place *at) {
    hki_overlap *const o = e->overlap;
    for (size_t i = 0; o != NULL && i < HKI_COUNT(o->jobs); i++)
        HKI_TRY(hki_vector_follow(&o->jobs[i].d, at));
    return HK_OK;
}

static hk_status wait_done(hk_elastic *e, job *j) {
    hki_overlap *const o = e->overlap;
    const int64_t start = hki_now_ns();
    // The exchange has a deadline of its own and ends with it.
    const int64_t deadline = hki_deadline(e->opt.wait_ms) + 1000000000;
    hk_status s = HK_OK;
    hki_mutex_lock(&o->lock);
    while (!j->done)
        if (!hki_cond_wait(&o->changed, &o->lock, deadline) && !j->done) {
            s = hki_fail(HK_E_TIMEOUT,
                         "%s: worker %u: the overlapped exchange %llu did not "
                         "end in time",
                         e->name, e->m.id, (unsigned long long)j->number);
            break;
        }
    hki_mutex_unlock(&o->lock);
    e->n.exchange_ns += hki_now_ns() - start;
    return s;
}

// Takes the results of the oldest job over; x NULL: forgets its d.
static hk_status finish_job(hk_elastic *e, hki_vector *x) {
    hki_overlap *const o = e->overlap;
    HKI_ASSERT(o->applied < o->started && o->started <= o->applied + 2);
    job *const j = &o->jobs[o->applied % 2];
    HKI_TRY(wait_done(e, j));
    o->applied++;
    j->in_use = false;
    hki_elastic_count(e, &j->ex);
    e->total = j->sums;
    // center_step + since is the global step as far as this worker knows. The
    // center's answer does not yet hold the steps that a later job reports.
    if (j->ex.begun) {
        const job *const other = &o->jobs[o->applied % 2];
        e->center_step = j->ex.global_step;
        if (other->in_use)
            e->center_step += other->ex.steps_done;
    } else { // to be reported by the next one
        e->center_step -= j->ex.steps_done;
        e->since += j->ex.steps_done;
    }
    if (x != NULL) {
        HKI_TRY(hki_elastic_subtract(e, x, &j->d));
        e->n.delay_sum += (double)(e->local_step - j->taken_at);
        e->n.delays++;
    }
    if (j->status != HK_OK)
        return hki_fail(j->status, "%s", j->text);
    return HK_OK;
}

hk_status hki_overlap_start(hk_elastic *e, hki_vector *x, int64_t apply_at) {
    hki_overlap *const o = e->overlap;
    job *const j = &o->jobs[o->started % 2];
    if (j->in_use) // the period has been shortened
        HKI_TRY(finish_job(e, x));
    const int64_t start = hki_now_ns();
    float *values, *d;
    HKI_TRY(hki_vector_host(x, HKI_TO_READ, &values));
    HKI_TRY(hki_vector_host(&j->d, HKI_TO_WRITE, &d));
    memcpy(d, values, (size_t)x->n * sizeof *d);
    HKI_TRY(hki_elastic_prepare(e, d, &j->ex));
    j->ex.diff = d;
    j->k = e->home.ek;
    j->sums = (hki_sums){{0}};
    if (j->ex.observe != NULL) {
        j->ex.observe = observe_job;
        j->ex.user = j;
    }
    j->taken_at = e->local_step;
    j->apply_at = apply_at;
    j->number = o->started++;
    j->in_use = true;
    e->center_step += e->since; // reported by this one
    e->since = 0;
    hki_mutex_lock(&o->lock);
    j->done = false;
    o->queued++;
    hki_cond_broadcast(&o->changed);
    hki_mutex_unlock(&o->lock);
    e->n.exchange_ns += hki_now_ns() - start;
    return HK_OK;
}

hk_status hki_overlap_collect(hk_elastic *e, hki_vector *x, int64_t now) {
    hki_overlap *const o = e->overlap;
    hk_status first = HK_OK;
    while (o->applied < o->started && o->jobs[o->applied % 2].apply_at <= now) {
        const uint64_t before = o->applied;
        const hk_status s = finish_job(e, x);
        if (first == HK_OK)
            first = s;
        if (o->applied == before) // still running after its deadline
            return s;
    }
    return first;
}

hk_status hki_overlap_drop(hk_elastic *e) {
    hki_overlap *const o = e->overlap;
    while (o != NULL && o->applied < o->started) {
        const uint64_t before = o->applied;
        const hk_status s = finish_job(e, NULL);
        if (o->applied == before)
            return s;
    }
    return HK_OK;
}
