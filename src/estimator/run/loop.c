// loop.c - the steps of one train call, by one worker or many.
//
// Worker 0 runs on the caller's thread and calls the hooks; the others have
// threads of their own. A pause is a point at which everybody stands still
// between two steps: what saves or evaluates is done there.
//
// Coupled workers (round-robin, synchronous methods) wait for each other's
// exchanges, so they cannot be stopped just anywhere. The conductor, the
// lowest worker that runs, is k exchanges far; nobody can have got past
// exchange k + 1, which needs the conductor. So stops and pauses are set there,
// and fall on the same step of every worker.
#include "estimator/estimator.h"
#include "cluster/cluster.h"
#include "estimator/run/loop.h"
#include "estimator/saved/snapshot.h"
#include <errno.h>

#define NEVER INT64_MAX

// ---- stopping ---------------------------------------------------------------

void hki_loop_stop(hki_loop *l, hk_stop_reason reason) {
    int none = HK_STOP_NONE;
    atomic_compare_exchange_strong(&l->reason, &none, (int)reason);
    atomic_store(&l->stop, true);
}

static void keep_failure(hki_loop *l, const hki_worker *w, hk_status s) {
    hki_mutex_lock(&l->lock);
    if (l->fault.status == HK_OK) {
        if (l->crew->n > 1)
            (void)hki_fail(s, "worker %u: %s", w->id, hk_last_error());
        hki_fault_set(&l->fault, s);
    }
    hki_cond_broadcast(&l->changed);
    hki_mutex_unlock(&l->lock);
    hki_loop_stop(l, HK_STOP_HOOK);
}

// Where a worker is, as pauses count it: exchanges of this call, a period of
// steps each. Steps would not do: workers whose data ended in a call before
// have made fewer than others.
static int64_t place(const hki_loop *l, const hki_worker *w) {
    return l->coupled
               ? hki_elastic_periods(w->elastic) - l->runs[w->index].first_place
               : 0;
}

// The first pause that nobody can have passed, seen from the conductor.
static int64_t next_pause(const hki_loop *l, const hki_worker *w) {
    double tau = 1;
    if (!l->coupled)
        return 0;
    if (hk_elastic_get(w->elastic, "communication_period", &tau) != HK_OK)
        tau = 1;
    return place(l, w) + (int64_t)tau;
}

static bool conducts(const hki_loop *l, const hki_worker *w) {
    return atomic_load(&l->conductor) == w->index;
}

// Has somebody asked for the end, and has this worker got to it?
static bool must_stop(hki_loop *l, const hki_worker *w) {
    if (!atomic_load(&l->stop))
        return false;
    if (!l->coupled)
        return true;
    int64_t at = atomic_load(&l->stop_at);
    if (at == NEVER && conducts(l, w)) {
        at = next_pause(l, w);
        atomic_store(&l->stop_at, at);
    }
    return place(l, w) >= at;
}

static bool global_step_reached(const hki_loop *l, const hki_worker *w) {
    return l->opt.max_steps > 0 && w->elastic != NULL && !l->crew->own_center &&
           hki_elastic_global_step(w->elastic) >= l->opt.max_steps;
}

// Conditions that are looked at before a step, besides the data's end.
static bool may_step(hki_loop *l, const hki_worker *w) {
    if (hk_stop_requested(l->e->ctx))
        hki_loop_stop(l, HK_STOP_REQUESTED);
    if (l->opt.max_seconds > 0 &&
        (double)(hki_now_ns() - l->started_ns) * 1e-9 >= l->opt.max_seconds)
        hki_loop_stop(l, HK_STOP_TIME);
    if (must_stop(l, w))
        return false;
    const bool quota =
        l->quota >= 0 && w->steps - l->runs[w->index].first_step >= l->quota;
    if (quota || global_step_reached(l, w)) {
        int none = HK_STOP_NONE;
        atomic_compare_exchange_strong(&l->reason, &none, HK_STOP_STEPS);
        return false;
    }
    return true;
}

// ---- pauses -------------------------------------------------------------------

// Those who are slow to wake up do not count at the next pause.
static void release(hki_loop *l) {
    HKI_LOCKED(&l->lock);
    atomic_store(&l->pause_at, NEVER);
    l->e->at_pause = false;
    l->pause_number++;
    l->waiting = 0;
    hki_cond_broadcast(&l->changed);
}

static hk_status do_tasks(hki_loop *l) {
    hk_status s = HK_OK;
    l->e->at_pause = true;
    for (size_t i = 0; i < l->tasks.n && s == HK_OK; i++)
        s = l->tasks.data[i].fn(l->tasks.data[i].user, &l->runs[0]);
    l->tasks.n = 0;
    return s;
}

hk_status hki_loop_at_pause(hk_run *run, hki_pause_fn fn, void *user) {
    hki_loop *const l = run->loop;
    if (l->crew->n == 1 || l->e->at_pause)
        return fn(user, run);
    for (size_t i = 0; i < l->tasks.n; i++)
        if (l->tasks.data[i].fn == fn && l->tasks.data[i].user == user)
            return HK_OK;
    HKI_TRY(HKI_LIST_ROOM(l->tasks));
    l->tasks.data[l->tasks.n++] = (hki_pause_task){fn, user};
    // A recorded order knows no pauses: the others might have to wait for one
    // of this worker's exchanges. They are done at the end instead.
    if (l->e->config.center.turn != HK_TURN_RECORDED &&
        atomic_load(&l->pause_at) == NEVER)
        atomic_store(&l->pause_at, next_pause(l, run->w));
    return HK_OK;
}

// waiting + 1 == running: everybody who is not at his end stands at the pause,
// worker 0 included. A worker that ends counts itself out of `running` and
// wakes worker 0, so a pause is never waited for by someone who is gone.
//
// Worker 0 waits for the others and does what is to be done.
static hk_status hold_pause(hki_loop *l) {
    hki_mutex_lock(&l->lock);
    while (l->waiting + 1 < l->running)
        hki_cond_wait_forever(&l->changed, &l->lock);
    hki_mutex_unlock(&l->lock);
    const hk_status s = do_tasks(l);
    release(l);
    return s;
}

// The number of the pause tells a wake-up from the opening of this one: by the
// time a slow worker looks, the next may have been set already. pause_at is
// read again under the lock: worker 0 may have signed off meanwhile.
static void wait_at_pause(hki_loop *l, const hki_worker *w) {
    HKI_LOCKED(&l->lock);
    if (place(l, w) >= atomic_load(&l->pause_at)) {
        const uint64_t number = l->pause_number;
        l->waiting++;
        hki_cond_broadcast(&l->changed);
        while (l->pause_number == number)
            hki_cond_wait_forever(&l->changed, &l->lock);
    }
}

static hk_status pass_pause(hki_loop *l, const hki_worker *w) {
    if (place(l, w) < atomic_load(&l->pause_at))
        return HK_OK;
    if (w->index == 0)
        return hold_pause(l);
    wait_at_pause(l, w);
    return HK_OK;
}

// ---- one step ---------------------------------------------------------------

static void report(hki_loop *l, hki_worker *w, const hk_step_info *info,
                   int64_t now_ns) {
    hk_worker_report *const r = &w->report;
    hk_elastic_stats stats;
    const bool fresh = info->exchanged && w->elastic != NULL &&
                       hk_elastic_get_stats(w->elastic, &stats) == HK_OK;
    HKI_LOCKED(&l->crew->lock);
    r->local_step = w->steps;
    r->loss = info->loss;
    r->exchanges += info->exchanged;
    r->seconds = (double)(now_ns - l->started_ns) * 1e-9;
    if (fresh)
        r->stats = stats;
}

// With a center elsewhere everybody hears of the others' steps at exchanges;
// the most that anybody here has heard of counts.
static int64_t raise_global(hk_estimator *e, int64_t step) {
    long long now = atomic_load(&e->global_step);
    while (now < step &&
           !atomic_compare_exchange_weak(&e->global_step, &now, step))
        ;
    return HKI_MAX(now, step);
}

static void advance(hki_loop *l, hki_worker *w, hk_run *run) {
    hk_estimator *const e = l->e;
    w->steps++;
    atomic_fetch_add(&l->steps, 1);
    const int64_t global =
        w->elastic != NULL && !l->crew->own_center
            ? raise_global(e, hki_elastic_global_step(w->elastic))
            : atomic_fetch_add(&e->global_step, 1) + 1;
    run->info = w->info;
    run->loss = w->info->loss;
    run->local_step = w->steps;
    run->global_step = global;
    run->iteration++;
}

static hki_intake *intake_of(const hki_loop *l, const hki_worker *w) {
    return &l->e->intakes.at[w->index];
}

// The next batch into the session that fits it.
static hk_status feed(hki_loop *l, hki_worker *w, hk_run *run, int64_t *batch) {
    const hk_element *el;
    HKI_TRY(hki_intake_next(intake_of(l, w), &el));
    HKI_TRY(hki_element_batch(l->crew->spec, el, batch));
    HKI_TRY(hki_worker_session(w, *batch, &run->session));
    return hki_element_feed(l->crew->spec, el, run->session);
}

// Runs the trainer; an inserted callback may ask for the end. A worker that has
// gone back to the center has not made a step yet.
static hk_status train_batch(hki_loop *l, hki_worker *w, int64_t batch) {
    int stop = 0;
    const hk_status s = hk_trainer_step(w->trainer, &stop);
    if (s == HK_E_NOT_FINITE && !w->info->applied && hki_guard_is_left(w))
        return hki_guard_go_back(w);
    (void)hki_guard_explain(w, s);
    w->is_nan = s == HK_E_NOT_FINITE && l->nan_policy == HK_NAN_STOP;
    if (s == HK_OK && stop)
        hki_loop_stop(l, HK_STOP_HOOK);
    if (s == HK_OK) {
        atomic_fetch_add(&l->examples, batch);
        return hki_borrowed_use(&intake_of(l, w)->lent, batch);
    }
    return s;
}

// A step is an update: it takes as many batches as their sum does.
static hk_status train_step(hki_loop *l, hki_worker *w, hk_run *run,
                            int64_t batch) {
    HKI_TRY(train_batch(l, w, batch));
    while (!w->info->applied) {
        HKI_TRY(feed(l, w, run, &batch));
        HKI_TRY(train_batch(l, w, batch));
    }
    return HK_OK;
}

// One hook at a time, whoever's step it is.
static hk_status call_hooks(hki_loop *l, hk_run *run,
                            hk_status (*fn)(hk_run *, const hki_hooks *)) {
    HKI_LOCKED(&l->hook_lock);
    return fn(run, &l->hooks);
}

static hk_status one_step(hki_loop *l, hki_worker *w, hk_run *run) {
    int64_t batch;
    if (w->scalars_seen != atomic_load(&l->e->scalars_version))
        HKI_TRY(hki_scalars_apply_worker(w));
    HKI_TRY(feed(l, w, run, &batch));
    const bool hooks = hki_hooks_want(&l->hooks, run);
    if (hooks)
        HKI_TRY(call_hooks(l, run, hki_runctx_before));
    HKI_TRY(train_step(l, w, run, batch));
    advance(l, w, run);
    report(l, w, w->info, hki_now_ns());
    return hooks ? call_hooks(l, run, hki_runctx_after) : HK_OK;
}

// ---- lent data --------------------------------------------------------------

// Brings the steps that the center has not seen. In a round it is enough to
// have contributed: the others may be long in coming to theirs.
static hk_status last_exchange(hki_loop *l, hki_worker *w, bool rounds) {
    if (hki_elastic_since(w->elastic) == 0)
        return HK_OK;
    const hk_status s = hk_elastic_exchange(w->elastic, hki_worker_values(w));
    if (s != HK_OK)
        return rounds && s == HK_E_TIMEOUT ? HK_OK : s;
    hki_mutex_lock(&l->crew->lock);
    w->report.exchanges++;
    hki_mutex_unlock(&l->crew->lock);
    return hki_crew_average(l->crew, w);
}

// What was lent is used as far as it will be, and the center has seen it: the
// rest is for others. Nothing of a worker whose last steps it has not seen
// counts.
static hk_status return_ranges(hki_loop *l, hki_worker *w) {
    hki_intake *const t = intake_of(l, w);
    if (hki_elastic_since(w->elastic) > 0)
        return HK_OK;
    hki_intake_rewind(t);
    return hki_borrowed_return(&t->lent);
}

// Nothing is left to lend for the moment. What this worker has used counts
// now; a while later it asks again for ranges that others may have given back.
// HK_E_END: all of the data is used.
static hk_status wait_for_data(hki_loop *l, hki_worker *w) {
    hki_intake *const t = intake_of(l, w);
    if (hki_borrowed_is_over(&t->lent))
        return HK_E_END;
    HKI_TRY(last_exchange(l, w, false));
    HKI_TRY(hk_elastic_flush(w->elastic, hki_worker_values(w)));
    hki_borrowed_drain(&t->lent);
    HKI_TRY(return_ranges(l, w));
    return hki_borrowed_rest(&t->lent);
}

// ---- one worker -------------------------------------------------------------

// tickets + steps done + steps under way = steps of the call: who takes the
// last one makes the last step, whatever the others are doing. One that was not
// used, because the data ended or the step failed, is given back.
static bool take_ticket(hki_loop *l) {
    if (!l->use_tickets || atomic_fetch_sub(&l->tickets, 1) > 0)
        return true;
    atomic_fetch_add(&l->tickets, 1);
    int none = HK_STOP_NONE;
    atomic_compare_exchange_strong(&l->reason, &none, HK_STOP_STEPS);
    return false;
}

static hk_status steps(hki_loop *l, hki_worker *w, hk_run *run) {
    for (;;) {
        HKI_TRY(pass_pause(l, w));
        if (!may_step(l, w) || !take_ticket(l))
            return HK_OK;
        hk_status s = one_step(l, w, run);
        if (s == HK_OK)
            continue;
        if (l->use_tickets)
            atomic_fetch_add(&l->tickets, 1);
        if (s == HK_E_END && hki_borrowed_is_open(&intake_of(l, w)->lent))
            s = wait_for_data(l, w);
        if (s == HK_OK)
            continue;
        if (s == HK_E_CANCELLED && hk_stop_requested(l->e->ctx)) {
            hki_loop_stop(l, HK_STOP_REQUESTED);
            return HK_OK;
        }
        return s;
    }
}

// Waits until everybody is ready, then lets everybody go. Worker 0 does the
// hooks' part in between.
static hk_status start_together(hki_loop *l, hki_worker *w, hk_run *run) {
    hk_status s = HK_OK;
    hki_mutex_lock(&l->lock);
    l->ready++;
    hki_cond_broadcast(&l->changed);
    while (w->index == 0 && l->ready < l->running && l->fault.status == HK_OK)
        hki_cond_wait_forever(&l->changed, &l->lock);
    while (w->index != 0 && !l->is_open && l->fault.status == HK_OK)
        hki_cond_wait_forever(&l->changed, &l->lock);
    const bool failed = l->fault.status != HK_OK;
    hki_mutex_unlock(&l->lock);
    if (failed)
        return HK_OK; // the others' fault; the loop stops at once
    hki_mutex_lock(&l->hook_lock);
    if (w->index == 0)
        l->e->at_pause = true;
    s = hki_hooks_call(&l->hooks, HKI_HOOK_SESSION, run);
    hki_mutex_unlock(&l->hook_lock);
    if (w->index == 0) {
        hki_mutex_lock(&l->lock);
        l->e->at_pause = false;
        l->is_open = true;
        l->started_ns = hki_now_ns();
        hki_cond_broadcast(&l->changed);
        hki_mutex_unlock(&l->lock);
    }
    return s;
}

static hk_status join(hki_loop *l, hki_worker *w) {
    HKI_TRY(hki_worker_join(w));
    if (w->elastic != NULL) {
        hki_elastic_rest(w->elastic, false); // everybody, before the first step
        hki_borrowed_tie(&intake_of(l, w)->lent,
                         hki_elastic_worker(w->elastic));
    }
    hki_mutex_lock(&l->lock); // one reader of the checkpoint at a time
    const hk_status s = hki_snapshot_restore_worker(w);
    hki_mutex_unlock(&l->lock);
    hk_run *const run = &l->runs[w->index];
    run->first_step = run->local_step = w->steps;
    if (w->elastic != NULL)
        run->first_place = hki_elastic_periods(w->elastic);
    return s;
}

// why: the center hears that this worker has failed; NULL: it has not.
static hk_status leave(const hki_loop *l, hki_worker *w, const char *why) {
    w->joined = false;
    if (why != NULL)
        hki_center_fail(l->crew->center, hki_elastic_worker(w->elastic), why);
    return hk_elastic_leave(w->elastic, hki_worker_values(w));
}

// A worker whose data has ended brings its last steps, one at a center
// elsewhere does so whenever it ends well. Nobody waits for a worker that goes:
// at a center in this process it rests, whatever it ends of, until all are at
// their end. To leave would take a turn of its own, and who has that to give
// may stand at a pause. Elsewhere one that ended well stays until the last
// checkpoint has seen the center, which might be gone once everybody has left;
// but not in rounds, where those of its own process, whose end it waits for,
// would wait for it.
static hk_status part(hki_loop *l, hki_worker *w, hk_status s,
                      const char *why) {
    if (!w->joined)
        return HK_OK;
    const bool is_remote = !l->crew->own_center, ended = s == HK_E_END;
    const bool rounds = l->crew->center->method->flags & HKI_METHOD_ROUND;
    const bool well = s == HK_OK || ended;
    hk_status last = HK_OK;
    // Its last exchange may be the first behind a pause.
    if (l->coupled && ended)
        last = pass_pause(l, w);
    if (last == HK_OK && (is_remote ? well && !rounds : ended))
        last = last_exchange(l, w, rounds);
    if (well && last == HK_OK && hki_borrowed_is_open(&intake_of(l, w)->lent)) {
        last = hk_elastic_flush(w->elastic, hki_worker_values(w));
        if (last == HK_OK)
            last = return_ranges(l, w);
    }
    const bool stays = l->crew->center->ops->rest != NULL ||
                       (well && last == HK_OK && (!rounds || l->crew->n == 1));
    if (stays) {
        hki_elastic_rest(w->elastic, true);
        return last;
    }
    const hki_fault fault = hki_fault_of(last);
    const hk_status left = leave(l, w,
                                 !well           ? why
                                 : last != HK_OK ? fault.text
                                                 : NULL);
    return last != HK_OK ? hki_fault_raise(&fault) : left;
}

// Those who stayed.
static hk_status leave_all(hki_loop *l, const hki_fault *fault) {
    const bool failed =
        fault->status != HK_OK && fault->status != HK_E_CANCELLED;
    hk_status s = HK_OK;
    for (uint32_t i = 0; i < l->crew->n && !l->crew->own_center; i++) {
        hki_worker *const w = &l->crew->workers[i];
        const hk_status left =
            w->joined ? leave(l, w, failed ? fault->text : NULL) : HK_OK;
        s = s == HK_OK ? left : s;
    }
    return s;
}

// The lowest worker that still runs conducts; worker 0 gone, nobody opens a
// pause any more.
static void sign_off(hki_loop *l, const hki_worker *w) {
    HKI_LOCKED(&l->lock);
    l->runs[w->index].is_running = false;
    l->running--;
    uint32_t next = 0;
    while (next < l->crew->n && !l->runs[next].is_running)
        next++;
    atomic_store(&l->conductor, next);
    if (w->index == 0) {
        atomic_store(&l->pause_at, NEVER);
        l->pause_number++;
        l->waiting = 0;
    }
    hki_cond_broadcast(&l->changed);
}

static void run_worker(hki_loop *l, uint32_t index) {
    hki_worker *const w = &l->crew->workers[index];
    hk_run *const run = &l->runs[index];
    hk_status s = HK_OK;
    w->is_nan = false;
    if (l->e->config.c.pin)
        s = hki_thread_pin((int)w->bench.first_cpu);
    if (s == HK_OK)
        s = join(l, w);
    if (s == HK_OK)
        s = start_together(l, w, run);
    if (s == HK_OK)
        s = steps(l, w, run);
    const hki_fault fault = hki_fault_of(s);
    if (w->is_nan) {
        hki_log(l->e->ctx, HK_LOG_WARNING, "worker %u: training ends: %s",
                w->id, hk_last_error());
        hki_loop_stop(l, HK_STOP_NAN);
    } else if (s != HK_OK && s != HK_E_END) {
        keep_failure(l, w, s);
    }
    const hk_status left = part(l, w, s, fault.text);
    if (left != HK_OK && (s == HK_OK || s == HK_E_END || w->is_nan))
        keep_failure(l, w, left);
    sign_off(l, w);
    HKI_LOCKED(&l->crew->lock);
    w->report.running = 0;
    w->report.status = s == HK_E_END || w->is_nan ? HK_OK : s;
}

// ---- all of them ------------------------------------------------------------

static void thread_main(void *user) {
    const hk_run *const run = user;
    run_worker(run->loop, run->w->index);
}

// A thread that cannot be started counts as a worker that failed.
static void start_threads(hki_loop *l) {
    for (uint32_t i = 1; i < l->crew->n; i++) {
        char name[16];
        snprintf(name, sizeof name, "hk-worker%u", i % 10000);
        const hk_status s = hki_thread_start(thread_main, &l->runs[i], -1, name,
                                             &l->runs[i].thread);
        if (s == HK_OK)
            continue;
        keep_failure(l, &l->crew->workers[i], s);
        sign_off(l, &l->crew->workers[i]);
    }
}

static void prepare(hki_loop *l) {
    hki_crew *const c = l->crew;
    for (uint32_t i = 0; i < c->n; i++) {
        hki_worker *const w = &c->workers[i];
        hk_run *const r = &l->runs[i];
        r->is_running = true;
        r->w = w;
        r->loop = l;
        r->worker = w->id;
        r->workers = l->e->config.c.all_workers;
        r->is_chief = i == 0;
        r->session = w->session;
        r->global_step = atomic_load(&l->e->global_step);
        w->report = (hk_worker_report){.local_step = w->steps,
                                       .exchanges = w->report.exchanges,
                                       .railed = (uint32_t)w->guard.times,
                                       .running = 1};
    }
    l->running = c->n;
    atomic_store(&l->stop_at, NEVER);
    atomic_store(&l->pause_at, NEVER);
    l->started_ns = hki_now_ns();
}

// Without another reason everybody's data has ended. A stop behind the last
// batch, where nobody has looked yet, finds a run that is over, not
// interrupted.
static void look_at_end(hki_loop *l) {
    const hk_element *next;
    const int reason = atomic_load(&l->reason);
    if (reason == HK_STOP_NONE ||
        (reason == HK_STOP_REQUESTED && l->opt.epochs > 0 &&
         hki_intakes_look(&l->e->intakes, &next) == HK_E_END))
        atomic_store(&l->reason, HK_STOP_DATA);
}

// What was waiting for a pause, then the hooks' end.
static hk_status finish(hki_loop *l) {
    hk_run *const run = &l->runs[0];
    hk_center_info info;
    if (l->crew->is_elastic && !l->crew->own_center &&
        hk_center_get_info(l->crew->center, &info) == HK_OK)
        raise_global(l->e, info.global_step);
    run->global_step = atomic_load(&l->e->global_step);
    look_at_end(l);
    HKI_TRY(do_tasks(l));
    return hki_hooks_call(&l->hooks, HKI_HOOK_END, run);
}

hk_status hki_loop_run(hki_loop *l) {
    prepare(l);
    HKI_TRY(hki_hooks_open(&l->hooks, &l->runs[0]));
    HKI_TRY(hki_hooks_call(&l->hooks, HKI_HOOK_BEGIN, &l->runs[0]));
    start_threads(l);
    run_worker(l, 0);
    for (uint32_t i = 1; i < l->crew->n; i++)
        hki_thread_stop(l->runs[i].thread);
    l->ended_ns = hki_now_ns();
    const hk_status s =
        l->fault.status != HK_OK ? hki_fault_raise(&l->fault) : finish(l);
    const hki_fault fault = hki_fault_of(s);
    const hk_status left = leave_all(l, &fault);
    return s != HK_OK ? hki_fault_raise(&fault) : left;
}
