// trainer.c - the ordered step of one worker.
#include <math.h>
#include "train/train.h"

typedef struct insertion {
    hk_point point;
    hk_step_fn fn;
    void *user;
} insertion;

struct hk_trainer {
    hk_trainer_options opt;   // session: the one that runs now
    hk_session *own;          // the first one, whose values are trained
    hk_session *ran;          // the one that made the gradients
    hk_sparse_grad *sparse;   // as many as the plan has tables
    hki_rows_away *away;      // the same where their memory is apart
    HKI_LIST(insertion) list; // in order of insertion
    hk_step_info info;
    hki_vector *x; // the first session's
    hki_grads grads;
    hki_vector given;    // over gradients that a callback put in their place
    unsigned char *mask; // entries with a gradient
    bool masked;         // some trainable entry has none
    unsigned char *none; // no entry: the optimizer moves nothing
    hki_vector kept;     // x while a batch is run ahead of it; none: it is not
    bool ready;          // the gradients are those of a step
    bool averaged;       // in the same pass over x as the inner step
};

HKI_OPTIONS(hk_trainer_options, update_user, .check_loss = 1)

static hk_status check_options(const hk_trainer_options *o) {
    if (o->session == NULL || o->optimizer == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "trainer: session or optimizer is missing");
    if (hki_session_gradient(o->session)->n == 0 ||
        hk_session_params(o->session) == NULL)
        return hki_fail(HK_E_STATE, "trainer: the session has no gradients; "
                                    "it needs a training plan");
    if (o->update != NULL && hki_optimizer_looks_ahead(o->optimizer))
        return hki_fail(
            HK_E_UNSUPPORTED,
            "trainer: %s with lookahead has to make the steps itself, and "
            "cannot be combined with a train step of your own",
            hki_optimizer_name(o->optimizer));
    hk_elastic_info e;
    if (o->elastic == NULL)
        return HK_OK;
    HKI_TRY(hk_elastic_get_info(o->elastic, &e));
    if (e.inner != o->optimizer)
        return hki_fail(HK_E_INVALID_ARG, "trainer: %s wraps another optimizer",
                        e.name);
    return HK_OK;
}

// Entries without a gradient neither move nor change their slots.
static hk_status mark_entries(hk_trainer *t) {
    const hk_plan *p = hk_session_plan(t->opt.session);
    const hk_layout *l = hk_plan_layout(p);
    const size_t n = hki_layout_entry_count(l);
    t->masked = false;
    HKI_TRY(hki_zalloc_array(n, 1, &t->mask));
    HKI_TRY(hki_zalloc_array(n, 1, &t->none));
    for (size_t i = 0; i < n; i++) {
        const hk_entry *e = hk_layout_entry(l, i);
        t->mask[i] = hki_plan_has_grad(p, e);
        t->masked |= !t->mask[i] && e->kind == HK_TRAINABLE;
    }
    return HK_OK;
}

static hk_status make_room(hk_trainer *t) {
    hk_session *const s = t->opt.session;
    const size_t n = hki_session_sparse_count(s);
    HKI_TRY(hki_zalloc_array(n, sizeof *t->sparse, &t->sparse));
    HKI_TRY(hki_zalloc_array(n, sizeof *t->away, &t->away));
    if (!hki_optimizer_looks_ahead(t->opt.optimizer))
        return HK_OK;
    const hk_layout *const l = hk_plan_layout(hk_session_plan(s));
    return hki_vector_init(&t->kept, hki_layout_train(l), 0);
}

HKI_SCOPED_HANDLE(hk_trainer, hk_trainer_destroy)

hk_status hk_trainer_create(const hk_trainer_options *opt, hk_trainer **out) {
    if (opt == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "trainer: options or out is NULL");
    hk_trainer_options o;
    HKI_TRY(HKI_OPTIONS_GET(hk_trainer_options, &o, opt, "trainer options"));
    HKI_TRY(check_options(&o));
    HKI_SCOPED(hk_trainer_destroy_at) hk_trainer *t = NULL;
    HKI_TRY(hki_zalloc_array(1, sizeof *t, &t));
    t->opt = o;
    t->own = o.session;
    t->info.session = o.session;
    t->x = hki_session_x(o.session);
    t->info.x = t->x->host;
    t->info.grads = &t->grads.view;
    HKI_TRY(make_room(t));
    HKI_TRY(mark_entries(t));
    return HKI_HAND_ON(out, t);
}

// What follows the values lives longer than the session may. A device that was
// lost keeps what it had.
static void send_home(const hk_trainer_options *o) {
    (void)hki_optimizer_follow(o->optimizer, NULL);
    if (o->gradproc != NULL)
        (void)hki_gradproc_follow(o->gradproc, NULL);
    if (o->ema != NULL)
        (void)hki_ema_follow(o->ema, NULL);
    if (o->elastic != NULL)
        (void)hki_elastic_go_home(o->elastic);
}

void hk_trainer_destroy(hk_trainer *t) {
    if (t == NULL)
        return;
    send_home(&t->opt);
    hki_free(t->sparse);
    hki_free(t->away);
    hki_free(t->list.data);
    hki_free(t->mask);
    hki_free(t->none);
    hki_vector_deinit(&t->kept);
    hki_vector_deinit(&t->given);
    hki_free(t);
}

hk_status hk_trainer_insert(hk_trainer *t, hk_point point, hk_step_fn fn,
                            void *user) {
    if (t == NULL || fn == NULL || point < HK_POINT_BEGIN ||
        point > HK_POINT_END)
        return hki_fail(HK_E_INVALID_ARG,
                        "trainer: the callback is NULL, or point %d is unknown",
                        (int)point);
    HKI_TRY(HKI_LIST_ROOM(t->list));
    t->list.data[t->list.n++] = (insertion){point, fn, user};
    return HK_OK;
}

// Rows of sparse gradients come down from where they are.
static hk_status open_rows(hk_trainer *t) {
    if (t->grads.away == NULL)
        return HK_OK;
    t->grads.away = NULL;
    return hki_session_sparse_grads(t->ran, t->sparse);
}

hk_status hki_trainer_open(hk_trainer *t) {
    float *host;
    HKI_TRY(open_rows(t));
    HKI_TRY(hki_vector_host(t->x, HKI_TO_CHANGE, &host));
    return t->grads.dense != NULL
               ? hki_vector_host(t->grads.dense, HKI_TO_CHANGE, &host)
               : HK_OK;
}

// Gradients that the caller has put in the place of the step's own.
static hk_status take_given(hk_trainer *t) {
    hki_grads *const g = &t->grads;
    if (g->dense == NULL || g->view.dense == g->dense->host)
        return HK_OK;
    hki_vector_deinit(&t->given);
    t->given = HKI_HOST_VECTOR(g->view.dense, g->view.n_dense);
    g->dense = &t->given;
    return hki_vector_follow(&t->given, t->x->at);
}

static hk_status call_inserted(hk_trainer *t, hk_point point) {
    for (size_t i = 0; i < t->list.n; i++) {
        const insertion *const in = &t->list.data[i];
        if (in->point != point)
            continue;
        HKI_TRY(hki_trainer_open(t));
        HKI_TRY(in->fn(in->user, &t->info));
        HKI_TRY(take_given(t));
    }
    return HK_OK;
}

// ---- gradients --------------------------------------------------------------

static hk_status copy_train(hki_vector *to, hki_vector *from, int64_t n) {
    static const hki_place host = {.ops = &hki_vector_ops_host};
    const hki_place *const at = to->at != NULL ? to->at : &host;
    float *dst, *src;
    HKI_TRY(hki_vector_at(to, HKI_TO_CHANGE, &dst));
    HKI_TRY(hki_vector_at(from, HKI_TO_READ, &src));
    return at->ops->copy(at, dst, src, n);
}

// One batch at the point ahead. x is put back, not computed back: to the bit,
// and whatever became of the batch. State beyond the trainable part stays.
static hk_status run_ahead(hk_trainer *t) {
    HKI_TRY(hki_vector_follow(&t->kept, t->x->at));
    HKI_TRY(copy_train(&t->kept, t->x, t->kept.n));
    HKI_TRY(hki_optimizer_look_ahead(t->opt.optimizer, t->x));
    const hk_status s = hk_session_run(t->opt.session);
    const hk_status back = copy_train(t->x, &t->kept, t->kept.n);
    return s != HK_OK ? s : back;
}

// Sparse gradients stay where they were made until somebody looks at them.
static hk_status list_sparse(hk_trainer *t) {
    t->ran = t->opt.session;
    if (t->x->at == NULL)
        return hki_session_sparse_grads(t->ran, t->sparse);
    hki_session_sparse_away(t->ran, t->sparse, t->away);
    t->grads.away = t->away;
    return HK_OK;
}

static hk_status compute_gradients(hk_trainer *t) {
    hk_session *s = t->opt.session;
    HKI_TRY(t->kept.n > 0 ? run_ahead(t) : hk_session_run(s));
    t->info.loss = hk_session_loss(s);
    if (t->opt.check_loss && !isfinite(t->info.loss))
        return hki_fail(
            HK_E_NOT_FINITE,
            "step %lld: the loss is %g; a lower learning rate may help",
            (long long)t->info.local_step, (double)t->info.loss);
    const size_t n = hki_session_sparse_count(s);
    HKI_TRY(list_sparse(t));
    t->grads.dense = hki_session_gradient(s);
    t->grads.view = (hk_grad_view){.dense = t->grads.dense->host,
                                   .n_dense = hki_session_grad_count(s),
                                   .sparse = t->sparse,
                                   .n_sparse = n,
                                   .scale = 1.0,
                                   .mask = t->masked ? t->mask : NULL};
    return HK_OK;
}

// ---- the stages of a step ---------------------------------------------------

hk_status hki_trainer_forward_backward(hk_trainer *t) {
    hk_elastic *const e = t->opt.elastic;
    t->info.applied = t->info.exchanged = t->info.stop = 0;
    t->ready = t->averaged = false;
    t->grads = (hki_grads){.view = {.scale = 1.0}};
    if (e != NULL)
        t->info.global_step = hki_elastic_global_step(e);
    HKI_TRY(call_inserted(t, HK_POINT_BEGIN));
    HKI_TRY(compute_gradients(t));
    if (e != NULL)
        HKI_TRY(hki_elastic_add_pull(e, t->x, t->grads.dense,
                                     t->grads.view.n_dense,
                                     t->grads.view.scale));
    return call_inserted(t, HK_POINT_GRADIENTS);
}

hk_status hki_trainer_process(hk_trainer *t, bool *ready) {
    int is_step = 1;
    if (t->opt.gradproc != NULL) {
        HKI_TRY(open_rows(t));
        const hki_grads in = t->grads;
        HKI_TRY(hki_gradproc_run(t->opt.gradproc, &in, &t->grads, &is_step));
    }
    *ready = t->ready = is_step != 0;
    return *ready ? call_inserted(t, HK_POINT_PROCESSED) : HK_OK;
}

// The caller's own step, in the optimizer's place.
static hk_status update_by_hand(hk_trainer *t) {
    t->info.applied = 1;
    HKI_TRY(hki_trainer_open(t));
    return t->opt.update(t->opt.update_user, &t->info);
}

// Does a callback come between the inner step and the average?
static bool comes_between(const hk_trainer *t) {
    for (size_t i = 0; i < t->list.n; i++)
        if (t->list.data[i].point == HK_POINT_UPDATED ||
            t->list.data[i].point == HK_POINT_EXCHANGED)
            return true;
    return false;
}

// The gradients as the worker of a center takes them.
static hk_status elastic_gradients(hk_trainer *t, hki_grads *out) {
    if (hki_elastic_tells_rows(t->opt.elastic) && t->grads.away != NULL)
        HKI_TRY(hki_session_sparse_indices(t->ran, t->sparse));
    *out = t->grads;
    if (t->opt.update != NULL)
        out->view.mask = t->none;
    return HK_OK;
}

hk_status hki_trainer_update(hk_trainer *t) {
    if (t->opt.elastic != NULL) {
        hki_grads grads;
        HKI_TRY(elastic_gradients(t, &grads));
        HKI_TRY(hki_elastic_update(t->opt.elastic, t->x, &grads,
                                   &t->info.global_step));
    } else if (t->opt.update == NULL) {
        t->averaged = t->opt.ema != NULL && !comes_between(t);
        HKI_TRY(hki_optimizer_apply(t->opt.optimizer, t->x, &t->grads,
                                    t->info.global_step,
                                    t->averaged ? t->opt.ema : NULL));
    }
    if (t->opt.update != NULL)
        HKI_TRY(update_by_hand(t));
    t->info.applied = 1;
    return call_inserted(t, HK_POINT_UPDATED);
}

hk_status hki_trainer_exchange(hk_trainer *t) {
    int exchanged = 0;
    if (t->opt.elastic != NULL)
        HKI_TRY(hki_elastic_exchange_due(t->opt.elastic, t->x, &exchanged));
    t->info.exchanged = exchanged != 0;
    return call_inserted(t, HK_POINT_EXCHANGED);
}

hk_status hki_trainer_end(hk_trainer *t) {
    if (t->ready && t->opt.ema != NULL && !t->averaged)
        HKI_TRY(hki_ema_update_rest(t->opt.ema, t->x, 0));
    t->info.local_step += t->ready;
    if (t->opt.elastic != NULL)
        t->info.global_step = hki_elastic_global_step(t->opt.elastic);
    else
        t->info.global_step += t->ready;
    return call_inserted(t, HK_POINT_END);
}

hk_status hk_trainer_step(hk_trainer *t, int *stop) {
    bool ready;
    HKI_TRY(hki_trainer_forward_backward(t));
    HKI_TRY(hki_trainer_process(t, &ready));
    if (ready) {
        HKI_TRY(hki_trainer_update(t));
        HKI_TRY(hki_trainer_exchange(t));
    }
    HKI_TRY(hki_trainer_end(t));
    if (stop != NULL)
        *stop = t->info.stop != 0;
    return HK_OK;
}

// ---- sessions and counters --------------------------------------------------

hk_status hk_trainer_set_session(hk_trainer *t, hk_session *s) {
    if (t == NULL)
        return hki_fail(HK_E_INVALID_ARG, "trainer: NULL handle");
    hk_session *const next = s != NULL ? s : t->own;
    hk_session *const now = t->opt.session;
    if (next == now)
        return HK_OK;
    if (hki_layout_fingerprint(hk_plan_layout(hk_session_plan(next))) !=
            hki_layout_fingerprint(hk_plan_layout(hk_session_plan(t->own))) ||
        hki_session_grad_count(next) != hki_session_grad_count(t->own) ||
        hki_session_sparse_count(next) != hki_session_sparse_count(t->own))
        return hki_fail(HK_E_INVALID_ARG,
                        "trainer: the session belongs to another model");
    if (next != t->own)
        HKI_TRY(hki_session_share(next, t->own));
    hk_session_set_step(next, hki_session_step(now));
    t->opt.session = t->info.session = next;
    return HK_OK;
}

const hk_step_info *hki_trainer_info(const hk_trainer *t) {
    return &t->info;
}

hk_status hk_trainer_get_info(const hk_trainer *t, hk_step_info *out) {
    if (t == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "trainer: info: NULL argument");
    *out = t->info;
    return HK_OK;
}

void hk_trainer_set_steps(hk_trainer *t, int64_t local, int64_t global) {
    t->info.local_step = local;
    t->info.global_step = global;
}
