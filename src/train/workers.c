// workers.c - many workers in one process: threads over one plan.
//
// A worker's thread owns its session, optimizer and elastic handle from start
// to end. Others see its report, which is updated under the lock after every
// step, and its values once it has ended.
#include <pthread.h>
#include <stdatomic.h>
#include "train/train.h"

typedef struct worker {
    hk_workers *all;
    uint32_t id;
    hki_thread *thread;
    atomic_bool leave;
    hk_session *session;
    hk_optimizer *optimizer;
    hk_gradproc *gradproc;
    hk_elastic *elastic;
    hk_trainer *trainer;
    int64_t started_ns;
    hk_worker_report report; // under the lock
    char error[512];         // under the lock; with report.status
} worker;

struct hk_workers {
    hk_workers_options opt;
    hk_optimizer_options optimizer;
    hk_elastic_options elastic;
    hk_gradproc_options gradproc;
    pthread_mutex_t lock; // guards list, n and the reports
    worker **list;
    uint32_t n, capacity;
};

void hk_workers_options_init(hk_workers_options *opt, size_t struct_size) {
    const hk_workers_options d = {.workers = 1};
    hki_options_init(opt, struct_size, &d, sizeof d);
}

// ---- one worker -----------------------------------------------------------

static void worker_free(worker *w) {
    if (w == NULL)
        return;
    hk_trainer_destroy(w->trainer);
    hk_elastic_destroy(w->elastic);
    hk_gradproc_destroy(w->gradproc);
    hk_optimizer_destroy(w->optimizer);
    hk_session_destroy(w->session);
    hki_free(w);
}

// All sessions start from the same values; only random operators differ.
static hk_status make_session(worker *w) {
    const hk_workers_options *o = &w->all->opt;
    hk_session_options so;
    hk_session_options_init(&so, sizeof so);
    so.seed = o->seed + UINT64_C(0x9E3779B97F4A7C15) * (w->id + 1);
    HKI_TRY(hk_session_create(o->plan, &so, &w->session));
    return hk_plan_init_values(o->plan, o->seed, hk_session_params(w->session),
                               hk_session_side(w->session));
}

static hk_status build(worker *w) {
    hk_workers *all = w->all;
    hk_layout *layout = hk_plan_layout(all->opt.plan);
    HKI_TRY(make_session(w));
    HKI_TRY(hk_optimizer_create(&all->optimizer, layout, &w->optimizer));
    if (all->opt.gradproc != NULL)
        HKI_TRY(hk_gradproc_create(&all->gradproc, layout, &w->gradproc));
    HKI_TRY(hk_elastic_create(&all->elastic, w->optimizer, all->opt.center,
                              &w->elastic));
    if (hk_session_side(w->session) != NULL)
        HKI_TRY(hk_elastic_set_side(w->elastic, hk_session_side(w->session)));
    hk_trainer_options to;
    hk_trainer_options_init(&to, sizeof to);
    to.session = w->session;
    to.optimizer = w->optimizer;
    to.gradproc = w->gradproc;
    to.elastic = w->elastic;
    HKI_TRY(hk_trainer_create(&to, &w->trainer));
    return HK_OK;
}

static hk_status on_end_of_step(hk_step_info *info, void *user) {
    worker *w = user;
    const hk_workers_options *o = &w->all->opt;
    if (o->after_step != NULL && info->applied)
        HKI_TRY(o->after_step(o->user, w->id, info));
    pthread_mutex_lock(&w->all->lock);
    w->report.local_step = info->local_step;
    w->report.loss = info->loss;
    w->report.exchanges += info->exchanged;
    w->report.seconds = (double)(hki_now_ns() - w->started_ns) * 1e-9;
    pthread_mutex_unlock(&w->all->lock);
    return HK_OK;
}

static bool should_go_on(const worker *w, int64_t step) {
    const hk_workers_options *o = &w->all->opt;
    return !atomic_load(&w->leave) && !hk_stop_requested(o->context) &&
           (o->max_steps == 0 || step < o->max_steps);
}

static hk_status run_steps(worker *w) {
    const hk_workers_options *o = &w->all->opt;
    HKI_TRY(hk_elastic_init(w->elastic, hk_session_params(w->session),
                            (int32_t)w->id));
    int stop = 0;
    for (int64_t batch = 0;
         !stop && should_go_on(w, hk_trainer_local_step(w->trainer)); batch++) {
        const hk_status s = o->feed(o->user, w->id, w->session, batch);
        if (s == HK_E_END)
            break;
        HKI_TRY(s);
        HKI_TRY(hk_trainer_step(w->trainer, &stop));
    }
    return HK_OK;
}

// A worker that failed leaves as well, so that nobody waits for it; its own
// fault is the one that counts.
static hk_status train(worker *w) {
    char text[512];
    const hk_status s = run_steps(w);
    snprintf(text, sizeof text, "%s", hk_last_error());
    const hk_status left =
        hk_elastic_leave(w->elastic, hk_session_params(w->session));
    return s == HK_OK ? left : hki_fail(s, "%s", text);
}

static void worker_main(void *user) {
    worker *w = user;
    const hk_workers_options *o = &w->all->opt;
    w->started_ns = hki_now_ns();
    hk_status s = HK_OK;
    if (o->pin)
        s = hki_thread_pin((int)(w->id * hki_plan_threads(o->plan)));
    if (s == HK_OK)
        s = train(w);
    hk_elastic_stats stats;
    const bool known = hk_elastic_get_stats(w->elastic, &stats) == HK_OK;
    pthread_mutex_lock(&w->all->lock);
    if (known)
        w->report.stats = stats;
    w->report.status = s;
    w->report.running = 0;
    if (s != HK_OK)
        snprintf(w->error, sizeof w->error, "%s", hk_last_error());
    pthread_mutex_unlock(&w->all->lock);
}

static hk_status start_worker(worker *w) {
    char name[16];
    snprintf(name, sizeof name, "hk-worker%u", w->id % 10000);
    HKI_TRY(build(w));
    HKI_TRY(hk_trainer_insert(w->trainer, HK_POINT_END, on_end_of_step, w));
    w->report.running = 1;
    return hki_thread_start(worker_main, w, -1, name, &w->thread);
}

// ---- all of them ----------------------------------------------------------

// The new worker is in the list before its thread starts, under its id.
static hk_status add(hk_workers *all, uint32_t *id) {
    worker *w;
    HKI_TRY(hki_zalloc_array(1, sizeof *w, &w));
    atomic_init(&w->leave, false);
    w->all = all;
    pthread_mutex_lock(&all->lock);
    hk_status s = HK_OK;
    if (all->n == all->capacity) {
        s = hki_realloc_array(all->capacity + 16, sizeof(worker *), &all->list);
        if (s == HK_OK)
            all->capacity += 16;
    }
    w->id = all->n;
    if (s == HK_OK)
        s = start_worker(w);
    if (s == HK_OK)
        all->list[all->n++] = w;
    pthread_mutex_unlock(&all->lock);
    if (s != HK_OK) {
        worker_free(w);
        return s;
    }
    if (id != NULL)
        *id = w->id;
    return HK_OK;
}

static hk_status check_options(const hk_workers_options *o) {
    if (o->context == NULL || o->plan == NULL || o->center == NULL ||
        o->optimizer == NULL || o->feed == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "workers: context, plan, center, optimizer and feed "
                        "are needed");
    if (o->workers < 1 || o->workers > 4096)
        return hki_fail(HK_E_INVALID_ARG, "workers: %u of them", o->workers);
    if (o->max_steps < 0)
        return hki_fail(HK_E_INVALID_ARG, "workers: max_steps is %lld",
                        (long long)o->max_steps);
    return HK_OK;
}

static hk_status copy_options(hk_workers *all) {
    const hk_workers_options *o = &all->opt;
    hk_optimizer_options_init(&all->optimizer, sizeof all->optimizer,
                              o->optimizer->kind);
    HKI_TRY(hki_options_copy(&all->optimizer, sizeof all->optimizer,
                             o->optimizer, "optimizer options"));
    if (all->optimizer.threads == 0)
        all->optimizer.threads = hki_plan_threads(o->plan);
    hk_elastic_options_init(&all->elastic, sizeof all->elastic);
    HKI_TRY(hki_options_copy(&all->elastic, sizeof all->elastic, o->elastic,
                             "elastic options"));
    if (all->elastic.num_worker == 0)
        all->elastic.num_worker = o->workers;
    if (all->elastic.context == NULL)
        all->elastic.context = o->context;
    hk_gradproc_options_init(&all->gradproc, sizeof all->gradproc);
    return hki_options_copy(&all->gradproc, sizeof all->gradproc, o->gradproc,
                            "gradient processing options");
}

hk_status hk_workers_start(const hk_workers_options *opt, hk_workers **out) {
    if (opt == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "workers: options or out is NULL");
    hk_workers *all;
    HKI_TRY(hki_zalloc_array(1, sizeof *all, &all));
    pthread_mutex_init(&all->lock, NULL);
    hk_workers_options_init(&all->opt, sizeof all->opt);
    hk_status s =
        hki_options_copy(&all->opt, sizeof all->opt, opt, "workers options");
    if (s == HK_OK)
        s = check_options(&all->opt);
    if (s == HK_OK) {
        hk_plan_retain(all->opt.plan);
        s = copy_options(all);
        for (uint32_t i = 0; i < all->opt.workers && s == HK_OK; i++)
            s = add(all, NULL);
    } else {
        all->opt.plan = NULL;
    }
    if (s != HK_OK) {
        char text[512];
        snprintf(text, sizeof text, "%s", hk_last_error());
        hk_workers_destroy(all);
        return hki_fail(s, "%s", text);
    }
    *out = all;
    return HK_OK;
}

hk_status hk_workers_add(hk_workers *w, uint32_t *id) {
    return add(w, id);
}

static worker *find(hk_workers *w, uint32_t id) {
    pthread_mutex_lock(&w->lock);
    worker *one = id < w->n ? w->list[id] : NULL;
    pthread_mutex_unlock(&w->lock);
    return one;
}

static hk_status no_worker(uint32_t id) {
    return hki_fail(HK_E_NOT_FOUND, "workers: there is no worker %u", id);
}

hk_status hk_workers_remove(hk_workers *w, uint32_t id) {
    worker *one = find(w, id);
    if (one == NULL)
        return no_worker(id);
    atomic_store(&one->leave, true);
    return HK_OK;
}

uint32_t hk_workers_count(const hk_workers *w) {
    hk_workers *all = (hk_workers *)(uintptr_t)w;
    pthread_mutex_lock(&all->lock);
    const uint32_t n = all->n;
    pthread_mutex_unlock(&all->lock);
    return n;
}

hk_status hk_workers_wait(hk_workers *w) {
    hk_status first = HK_OK;
    for (uint32_t i = 0; i < hk_workers_count(w); i++) {
        worker *one = find(w, i);
        hki_thread_stop(one->thread);
        one->thread = NULL;
        if (first == HK_OK && one->report.status != HK_OK)
            first = hki_fail(one->report.status, "worker %u: %s", one->id,
                             one->error);
    }
    return first;
}

hk_status hk_workers_report(hk_workers *w, uint32_t id, hk_worker_report *out) {
    worker *one = find(w, id);
    if (one == NULL)
        return no_worker(id);
    pthread_mutex_lock(&w->lock);
    *out = one->report;
    pthread_mutex_unlock(&w->lock);
    return HK_OK;
}

hk_status hk_workers_values(hk_workers *w, uint32_t id, float *x) {
    worker *one = find(w, id);
    if (one == NULL)
        return no_worker(id);
    if (one->thread != NULL)
        return hki_fail(HK_E_STATE,
                        "workers: wait for worker %u before reading its "
                        "values",
                        id);
    memcpy(x, hk_session_params(one->session),
           (size_t)hk_layout_size(hk_plan_layout(w->opt.plan)) * sizeof *x);
    return HK_OK;
}

void hk_workers_destroy(hk_workers *w) {
    if (w == NULL)
        return;
    for (uint32_t i = 0; i < w->n; i++)
        atomic_store(&w->list[i]->leave, true);
    for (uint32_t i = 0; i < w->n; i++)
        hki_thread_stop(w->list[i]->thread);
    for (uint32_t i = 0; i < w->n; i++)
        worker_free(w->list[i]);
    hki_free(w->list);
    hk_plan_release(w->opt.plan);
    pthread_mutex_destroy(&w->lock);
    hki_free(w);
}
