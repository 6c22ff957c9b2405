// save_checkpoints.c - the hook that saves checkpoints.
#include "estimator/estimator.h"
#include "estimator/run/loop.h"
#include "estimator/run/timer.h"
#include "estimator/saved/snapshot.h"

// ---- checkpoint saver -------------------------------------------------------

typedef struct saver_options {
    int64_t steps;
    double secs;
    hk_saving_listener *listeners;
    size_t n;
} saver_options;

typedef struct saver {
    hki_timer timer;
    const hk_saving_listener **listeners;
    size_t n;
    bool stop_counts; // listeners may end training: not at the ends of it
} saver;

static void saver_destroy(void *state) {
    saver *const s = state;
    hki_free(s->listeners);
    hki_free(s);
}

// The hook's own listeners; the first saver of a run hears for the caller's,
// too.
static hk_status gather(saver *s, const saver_options *o, hki_loop *l) {
    const size_t more = l->has_saver ? 0 : l->opt.n_listeners;
    HKI_TRY(hki_zalloc_array(o->n + more, sizeof *s->listeners, &s->listeners));
    for (size_t i = 0; i < o->n; i++)
        s->listeners[s->n++] = &o->listeners[i];
    for (size_t i = 0; i < more; i++)
        s->listeners[s->n++] = &l->opt.listeners[i];
    l->has_saver = true;
    return HK_OK;
}

HKI_SCOPED_HANDLE(saver, saver_destroy)

static hk_status saver_create(void *user, hk_run *run, void **state) {
    const saver_options *const o = user;
    if (run->mode != HK_TRAIN || run->e->saver == NULL)
        return hki_fail(
            HK_E_STATE,
            "checkpoints can only be saved in training with a model_dir");
    HKI_SCOPED(saver_destroy_at) saver *s = NULL;
    HKI_TRY(hki_zalloc_array(1, sizeof *s, &s));
    HKI_TRY(hki_timer_init(&s->timer, o->steps, o->secs));
    HKI_TRY(gather(s, o, run->loop));
    return HKI_HAND_ON(state, s);
}

// All workers stand still.
static hk_status save_now(void *state, hk_run *run) {
    saver *const s = state;
    hk_estimator *const e = run->e;
    const int64_t step = hki_global_step(e);
    int stop = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->listeners[i]->before_save != NULL)
            HKI_TRY(
                s->listeners[i]->before_save(s->listeners[i]->user, run, step));
    if (e->saved_step != step) // never twice; the first and the last must be
        HKI_TRY(s->stop_counts ? hki_snapshot_try(e) : hki_snapshot_save(e));
    if (e->saved_step != step)
        return HK_OK; // no room for it
    for (size_t i = 0; i < s->n; i++)
        if (s->listeners[i]->after_save != NULL)
            HKI_TRY(s->listeners[i]->after_save(s->listeners[i]->user, run,
                                                step, &stop));
    if (stop && s->stop_counts)
        hki_loop_stop(run->loop, HK_STOP_HOOK);
    return HK_OK;
}

static hk_status saver_begin(void *state, hk_run *run) {
    const saver *const s = state;
    for (size_t i = 0; i < s->n; i++)
        if (s->listeners[i]->begin != NULL)
            HKI_TRY(s->listeners[i]->begin(s->listeners[i]->user, run));
    return HK_OK;
}

static hk_status saver_session(void *state, hk_run *run) {
    saver *const s = state;
    HKI_TRY(save_now(s, run));
    hki_timer_update(&s->timer, run->global_step, hki_timer_now());
    s->stop_counts = true;
    return HK_OK;
}

static hk_status saver_after(void *state, hk_run *run) {
    saver *const s = state;
    if (!hki_timer_fires(&s->timer, run->global_step))
        return HK_OK;
    return hki_loop_at_pause(run, save_now, s);
}

static hk_status saver_end(void *state, hk_run *run) {
    saver *const s = state;
    const int64_t step = hki_global_step(run->e);
    s->stop_counts = false;
    if (run->e->saved_step != step)
        HKI_TRY(save_now(s, run));
    for (size_t i = 0; i < s->n; i++)
        if (s->listeners[i]->end != NULL)
            HKI_TRY(s->listeners[i]->end(s->listeners[i]->user, run, step));
    return HK_OK;
}

static void saver_free(void *user) {
    saver_options *const o = user;
    hki_free(o->listeners);
    hki_free(o);
}

static hk_status saver_options_new(int64_t steps, double secs,
                                   const hk_saving_listener *listeners,
                                   size_t n, saver_options **out) {
    hki_timer probe;
    HKI_TRY(hki_timer_init(&probe, steps, secs));
    if (n > 0 && listeners == NULL)
        return hki_fail(HK_E_INVALID_ARG, "saver: listeners are NULL");
    saver_options *o;
    HKI_TRY(hki_zalloc_array(1, sizeof *o, &o));
    o->steps = steps;
    o->secs = secs;
    o->n = n;
    const hk_status s =
        hki_zalloc_array(n, sizeof *o->listeners, &o->listeners);
    if (s != HK_OK) {
        hki_free(o);
        return s;
    }
    if (n > 0)
        memcpy(o->listeners, listeners, n * sizeof *listeners);
    *out = o;
    return HK_OK;
}

hk_status hk_hook_checkpoint_saver(int64_t save_steps, double save_secs,
                                   const hk_saving_listener *listeners,
                                   size_t n, hk_hook **out) {
    saver_options *o;
    HKI_TRY(saver_options_new(save_steps, save_secs, listeners, n, &o));
    HKI_TRY(hki_hook_make((hk_hook_calls){.name = "checkpoint saver",
                                          .user = o,
                                          .user_free = saver_free,
                                          .create = saver_create,
                                          .destroy = saver_destroy,
                                          .begin = saver_begin,
                                          .after_create_session = saver_session,
                                          .after_run = saver_after,
                                          .end = saver_end},
                          0, out));
    (*out)->is_saver = true;
    return HK_OK;
}

// ---- asked for by hand ------------------------------------------------------

static hk_status save_on_request(void *user, hk_run *run) {
    (void)user;
    if (run->e->saved_step == hki_global_step(run->e))
        return HK_OK;
    return hki_snapshot_try(run->e);
}

hk_status hk_run_request_save(hk_run *run) {
    if (run->loop == NULL || run->e->saver == NULL)
        return hki_fail(
            HK_E_STATE,
            "checkpoints can only be saved in training with a model_dir");
    return hki_loop_at_pause(run, save_on_request, NULL);
}
