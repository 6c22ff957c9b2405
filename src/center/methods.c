// methods.c - the table of methods, and everything that a method computes.
//
// To add a method: its row here, its value in hk_method (hooke/center.h), its
// line in docs/elastic.md.
#include "center/center.h"
#include <math.h>

static void copy_floats(float *to, const float *from, int64_t n) {
    if (to != NULL && to != from)
        memcpy(to, from, (size_t)n * sizeof *to);
}

static void encode(const hki_worker_half *w) {
    if (w->encode != NULL)
        w->encode(w->user, w->d, w->n);
}

// ---- elastic averaging: x and c move towards each other ----------------------

static void elastic_worker(const hki_worker_half *w) {
    const float *c = w->c;
    if (w->view != NULL) { // d may take the place of c
        copy_floats(w->view, c, w->n);
        c = w->view;
    }
    if (w->encode == NULL && w->diff == NULL) {
        w->k->worker_elastic(w->x, c, w->d, w->alpha, w->n);
        return;
    }
    w->k->worker_difference(w->x, c, w->d, w->alpha, w->n);
    encode(w);
    if (w->diff != NULL)
        copy_floats(w->diff, w->d, w->n);
    else
        w->k->subtract(w->x, w->d, w->n);
}

static void elastic_undo(const hki_worker_half *w) {
    if (w->diff != NULL)
        memset(w->diff, 0, (size_t)w->n * sizeof *w->diff);
    else
        w->k->add(w->x, w->d, w->n);
}

static hk_status add_center(const hki_center_half *h, float *d,
                            double *squares) {
    if (h->halfway == NULL) {
        *squares = h->k->center_add(h->c, d, h->n);
    } else {
        const int64_t half = h->n / 2;
        *squares = h->k->center_add(h->c, d, half);
        h->halfway(h->user);
        *squares += h->k->center_add(h->c + half, d + half, h->n - half);
    }
    hki_center_changed(h);
    return HK_OK;
}

static void elastic_in_place(const hki_center_half *h,
                             const hki_worker_half *w) {
    copy_floats(w->view, h->c, w->n);
    if (w->diff != NULL)
        w->k->elastic_difference(w->x, h->c, w->diff, w->alpha, w->n);
    else if (h->faults != NULL)
        *h->faults +=
            (uint64_t)w->k->elastic_checked(w->x, h->c, w->alpha, w->n);
    else
        w->k->elastic(w->x, h->c, w->alpha, w->n);
}

// ---- rounds: contributions are summed until the round is closed ---------------

static hk_status sum_center(const hki_center_half *h, float *d,
                            double *squares) {
    (void)squares;
    h->k->add(h->kept[0], d, h->n);
    return HK_OK;
}

static void elastic_sync_in_place(const hki_center_half *h,
                                  const hki_worker_half *w) {
    copy_floats(w->view, h->c, w->n);
    w->k->round_elastic(w->x, h->c, h->kept[0], w->alpha, w->n);
}

static hk_status close_sum(const hki_center_half *h, uint32_t count) {
    (void)count;
    h->k->take_sum(h->c, h->kept[0], h->n);
    return HK_OK;
}

static void value_worker(const hki_worker_half *w) {
    copy_floats(w->d, w->x, w->n);
}

static void mean_in_place(const hki_center_half *h, const hki_worker_half *w) {
    h->k->add(h->kept[0], w->x, w->n);
}

static hk_status close_mean(const hki_center_half *h, uint32_t count) {
    h->k->take_mean(h->c, h->kept[0], (float)count, h->n);
    return HK_OK;
}

// The gradient of an outer step: the mean of c - x. Statistics are averaged.
static hk_status outer_round_center(const hki_center_half *h, float *d,
                                    double *squares) {
    if (h->state)
        return sum_center(h, d, squares);
    h->k->add_difference(h->kept[0], h->c, d, h->n);
    return HK_OK;
}

static void outer_round_in_place(const hki_center_half *h,
                                 const hki_worker_half *w) {
    double squares;
    (void)outer_round_center(h, w->x, &squares);
}

static hk_status close_outer(const hki_center_half *h, uint32_t count) {
    if (h->state)
        return close_mean(h, count);
    return h->outer != NULL ? h->outer(h->user, h->kept[0]) : HK_OK;
}

// ---- DOWNPOUR: what x has moved since the last view is added to c -------------

// Statistics are averaged over the workers, never summed.
static void downpour_worker(const hki_worker_half *w) {
    if (w->state)
        w->k->worker_meet(w->x, w->view, w->c, w->d, 1.0f / (float)w->live,
                          w->n);
    else
        w->k->worker_delta(w->x, w->view, w->c, w->d, w->n);
    encode(w);
    w->k->worker_follow(w->x, w->view, w->d, w->n);
}

static void downpour_undo(const hki_worker_half *w) {
    w->k->subtract(w->view, w->d, w->n);
}

static void state_in_place(const hki_center_half *h, const hki_worker_half *w) {
    w->k->meet(w->x, h->c, 1.0f / (float)w->live, w->n);
    copy_floats(w->view, h->c, w->n);
}

static void downpour_in_place(const hki_center_half *h,
                              const hki_worker_half *w) {
    if (w->state)
        state_in_place(h, w);
    else
        w->k->delta(w->x, w->view, h->c, w->n);
}

// ---- steps at the center: the worker pushes, then takes the new values --------

// The difference counts as handed in from now on, so that a lost answer does
// not make it go up twice.
static void push_worker(const hki_worker_half *w) {
    if (w->state) {
        value_worker(w);
        return;
    }
    w->k->worker_push(w->x, w->view, w->d, w->n);
    encode(w);
}

static void push_undo(const hki_worker_half *w) {
    if (!w->state)
        w->k->add(w->view, w->d, w->n);
}

static void gradient_worker(const hki_worker_half *w) {
    if (w->state) {
        value_worker(w);
        return;
    }
    copy_floats(w->d, w->grad, w->n);
    encode(w);
}

static hk_status outer_center(const hki_center_half *h, float *d,
                              double *squares) {
    (void)squares;
    if (h->state)
        h->k->meet(d, h->c, 1.0f / (float)h->live, h->n);
    else
        HKI_TRY(h->outer(h->user, d));
    (*h->updates)++;
    return HK_OK;
}

static void outer_in_place(const hki_center_half *h, const hki_worker_half *w) {
    if (w->state) {
        state_in_place(h, w);
        return;
    }
    memset(h->scratch, 0, (size_t)w->n * sizeof *h->scratch);
    w->k->add_difference(h->scratch, w->view, w->x, w->n);
}

static void gradient_in_place(const hki_center_half *h,
                              const hki_worker_half *w) {
    if (w->state)
        state_in_place(h, w);
}

// What came is view - x, so it takes the place of view, and x is zero.
static hk_status delayed_center(const hki_center_half *h, float *d,
                                double *squares) {
    if (h->state)
        return outer_center(h, d, squares);
    const hki_delayed k = hki_delayed_after(h->delayed, *h->updates);
    memset(h->scratch, 0, (size_t)h->n * sizeof *h->scratch);
    h->k->delayed(h->scratch, d, h->c, h->kept[0], h->kept[1], &k, h->n);
    (*h->updates)++;
    return HK_OK;
}

static void delayed_in_place(const hki_center_half *h,
                             const hki_worker_half *w) {
    if (w->state) {
        state_in_place(h, w);
        return;
    }
    const hki_delayed k = hki_delayed_after(h->delayed, *h->updates);
    w->k->delayed(w->x, w->view, h->c, h->kept[0], h->kept[1], &k, w->n);
}

// ---- the table ----------------------------------------------------------------

// What methods that differ in their defaults or averages have in common.
#define DOWNPOUR                                                               \
    .worker_half = downpour_worker, .worker_undo = downpour_undo,              \
    .center_half = add_center, .exchange_in_place = downpour_in_place,         \
    .asks = true, .reads_once = true, .keeps_view = true, .period = 10
#define ROUND_MEAN                                                             \
    .worker_half = value_worker, .center_half = sum_center,                    \
    .exchange_in_place = mean_in_place, .close_round = close_mean,             \
    .rounds = true, .values = true, .kept = {""}
#define ROUND_OUTER                                                            \
    .worker_half = value_worker, .center_half = outer_round_center,            \
    .exchange_in_place = outer_round_in_place, .close_round = close_outer,     \
    .rounds = true, .values = true, .outer = HKI_OUTER_ROUND, .kept = {""}
#define GRADIENT                                                               \
    .worker_half = gradient_worker, .center_half = outer_center,               \
    .exchange_in_place = gradient_in_place, .gradients = true,                 \
    .outer = HKI_OUTER_EXCHANGE
#define PUSH                                                                   \
    .worker_half = push_worker, .worker_undo = push_undo, .keeps_view = true,  \
    .period = 500, .outer_rate = 0.7, .outer_momentum = 0.9,                   \
    .outer_nesterov = 1

static const hki_method methods[] = {
    {HK_METHOD_ELASTIC, "elastic", .worker_half = elastic_worker,
     .worker_undo = elastic_undo, .center_half = add_center,
     .exchange_in_place = elastic_in_place, .elastic = true, .asks = true,
     .reads_once = true, .period = 10},
    {HK_METHOD_ELASTIC_SYNC, "elastic_sync", .worker_half = elastic_worker,
     .worker_undo = elastic_undo, .center_half = sum_center,
     .exchange_in_place = elastic_sync_in_place, .close_round = close_sum,
     .rounds = true, .elastic = true, .asks = true, .kept = {""}, .period = 10},
    {HK_METHOD_DOWNPOUR, "downpour", DOWNPOUR},
    {HK_METHOD_DOWNPOUR_AVERAGED, "downpour_averaged", DOWNPOUR,
     .average = HKI_AVERAGE_MEAN, .kept = {"average"}},
    {HK_METHOD_DOWNPOUR_MOVING, "downpour_moving", DOWNPOUR,
     .average = HKI_AVERAGE_MOVING, .kept = {"average"}},
    {HK_METHOD_MODEL_AVERAGE, "model_average", ROUND_MEAN, .period = 100},
    {HK_METHOD_LOCAL_SGD, "local_sgd", ROUND_MEAN, .period = 10},
    {HK_METHOD_AGN, "agn", GRADIENT, .period = 10},
    {HK_METHOD_DROP_STALE, "drop_stale", GRADIENT, .no_local = true,
     .drops_stale = true, .period = 1},
    {HK_METHOD_SLOWMO, "slowmo", ROUND_OUTER, .fast_rate = true, .period = 12,
     .outer_rate = 1, .outer_momentum = 0.7},
    {HK_METHOD_BMUF, "bmuf", ROUND_OUTER, .period = 10, .outer_rate = 1,
     .outer_momentum = -1},
    {HK_METHOD_DILOCO, "diloco", ROUND_OUTER, .period = 500, .outer_rate = 0.7,
     .outer_momentum = 0.9, .outer_nesterov = 1},
    {HK_METHOD_DILOCO_ASYNC, "diloco_async", PUSH, .center_half = outer_center,
     .exchange_in_place = outer_in_place, .outer = HKI_OUTER_EXCHANGE},
    {HK_METHOD_DILOCO_DELAYED, "diloco_delayed", PUSH,
     .center_half = delayed_center, .exchange_in_place = delayed_in_place,
     .outer = HKI_OUTER_DELAYED, .kept = {"momentum", "momentum_buffer"}},
};

// ---- questions ----------------------------------------------------------------

const hki_method *hki_method_get(hk_method id) {
    for (size_t i = 0; i < HKI_COUNT(methods); i++)
        if (methods[i].id == id)
            return &methods[i];
    return NULL;
}

uint32_t hki_method_kept(const hki_method *m) {
    uint32_t n = 0;
    while (n < HKI_MAX_KEPT && m->kept[n] != NULL)
        n++;
    return n;
}

bool hki_chunk_is_value(const hki_method *m, const hki_chunk_range *c) {
    return c->share == HK_SHARE_COPY || m->values || (c->state && !m->asks);
}

void hki_center_changed(const hki_center_half *h) {
    const hki_method *const m = h->method;
    (*h->updates)++;
    if (m->average == HKI_AVERAGE_NONE)
        return;
    const double rate = m->average == HKI_AVERAGE_MEAN
                            ? 1.0 / (double)*h->updates
                            : h->average_rate;
    h->k->follow(h->kept[0], h->c, (float)rate, h->n);
}

const char *hk_method_name(hk_method m) {
    const hki_method *const found = hki_method_get(m);
    return found != NULL ? found->name : NULL;
}

uint32_t hk_method_period(hk_method m) {
    const hki_method *const found = hki_method_get(m);
    return found != NULL ? found->period : 0;
}

hk_status hk_method_outer(hk_method m, uint32_t workers,
                          hk_optimizer_options *opt) {
    const hki_method *const found = hki_method_get(m);
    if (found == NULL || opt == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "outer optimizer: unknown method %d, or out is NULL",
                        (int)m);
    if (found->outer_rate == 0)
        return hki_fail(HK_E_UNSUPPORTED,
                        "method %s has no outer optimizer of its own",
                        found->name);
    hk_optimizer_options_init(opt, sizeof *opt, HK_OPT_MOMENTUM);
    opt->learning_rate = found->outer_rate;
    opt->momentum = found->outer_momentum < 0 ? 1 - 1.0 / HKI_MAX(workers, 1u)
                                              : found->outer_momentum;
    opt->use_nesterov = found->outer_nesterov;
    opt->threads = 1;
    return HK_OK;
}

#define MAX_NAME 64

// Insertions, deletions and changes between two names, the first one cut.
static size_t edit_distance(const char *a, const char *b) {
    const size_t n = strnlen(a, MAX_NAME), m = strnlen(b, MAX_NAME);
    size_t row[MAX_NAME + 1];
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            const size_t change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            const size_t insert = HKI_MIN(row[j], row[j - 1]) + 1;
            row[j] = HKI_MIN(change, insert);
        }
    }
    return row[m];
}

hk_status hk_method_find(const char *name, hk_method *out) {
    if (name == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "method: name or out is NULL");
    size_t nearest = 0, best = SIZE_MAX;
    for (size_t i = 0; i < HKI_COUNT(methods); i++) {
        if (strcmp(methods[i].name, name) == 0) {
            *out = methods[i].id;
            return HK_OK;
        }
        const size_t d = edit_distance(name, methods[i].name);
        if (d < best) {
            best = d;
            nearest = i;
        }
    }
    return hki_fail(HK_E_NOT_FOUND, "unknown method %.64s; did you mean %s?",
                    name, methods[nearest].name);
}

// What an outer optimizer cannot be: one that wants gradients of a point ahead.
static hk_status check_outer(const hk_optimizer_options *o, const char *name) {
    if (o->lookahead)
        return hki_fail(HK_E_UNSUPPORTED,
                        "%s: an outer optimizer cannot use lookahead", name);
    return HK_OK;
}

hk_status hki_outer_options(const hk_center_options *opt, const char *name,
                            hk_optimizer_options *out) {
    const hki_method *const m = hki_method_get(opt->method);
    hk_optimizer_options_init(out, sizeof *out, HK_OPT_MOMENTUM);
    if (opt->outer != NULL)
        HKI_TRY(hki_options_copy(out, sizeof *out, opt->outer,
                                 "center: outer optimizer"));
    else if (m->outer_rate == 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: method %s needs the options of an outer "
                        "optimizer (in TF: those of the inner one)",
                        name, m->name);
    else
        HKI_TRY(hk_method_outer(m->id, opt->workers, out));
    return check_outer(out, name);
}

static hk_status check_fast_rate(const hki_method *m, const hki_outer_sum *s,
                                 const char *what) {
    if (!m->fast_rate || (s->fast_rate >= HKI_FAST_RATE_LEAST &&
                          s->fast_rate <= HKI_FAST_RATE_MOST))
        return HK_OK;
    return hki_fail(
        HK_E_RANGE,
        "%s: round %llu: %s divides by the inner learning rate, but it is %g",
        what, (unsigned long long)s->round, m->name, s->fast_rate);
}

hk_status hki_outer_round(const hki_method *m, hk_optimizer *o,
                          const hki_outer_sum *s, const char *what) {
    HKI_TRY(check_fast_rate(m, s, what));
    double scale = 1.0 / s->count;
    if (m->fast_rate) {
        // SlowMo: u = beta u + (c - mean) / gamma; c -= alpha gamma u
        scale /= s->fast_rate;
        HKI_TRY(
            hk_optimizer_set(o, "learning_rate", s->outer_rate * s->fast_rate));
    }
    const hk_grad_view g = {
        .dense = s->sum, .n_dense = s->room, .scale = scale};
    HKI_TRY(hk_optimizer_apply(o, s->values, &g, (int64_t)s->round, NULL));
    memset(s->sum, 0, (size_t)s->n * sizeof *s->sum);
    return HK_OK;
}

// ---- the delayed step (arXiv 2401.09135, algorithm 3) ------------------------

hk_status hki_delayed_init(const hk_center_options *opt,
                           const hk_optimizer_options *outer, const char *name,
                           hki_delayed *out) {
    const uint32_t delay =
        opt->delay > 0 ? opt->delay : HKI_MAX(opt->workers, 1u);
    if (!(opt->activation >= 0 && opt->activation * delay <= 1))
        return hki_fail(
            HK_E_INVALID_ARG,
            "%s: activation is %g; with a delay of %u it has to be in [0, %g]",
            name, opt->activation, delay, 1.0 / delay);
    if (!(outer->momentum >= 0 && outer->momentum < 1) ||
        !isfinite(outer->learning_rate))
        return hki_fail(
            HK_E_INVALID_ARG,
            "%s: outer learning rate %g or momentum %g is out of range", name,
            outer->learning_rate, outer->momentum);
    *out = (hki_delayed){.inv_n = (float)(1.0 / delay),
                         .beta = (float)outer->momentum,
                         .rate = (float)outer->learning_rate,
                         .delay = delay,
                         .activation = opt->activation};
    return HK_OK;
}

// The momentum's weight between its updates is the activation; at an update
// what was held back comes on top.
hki_delayed hki_delayed_after(const hki_delayed *d, uint64_t updates) {
    hki_delayed k = *d;
    k.update = (updates + 1) % d->delay == 0;
    const double held = k.update ? 1 - d->activation * d->delay : 0;
    k.weight = (float)((held + d->activation) * (double)k.beta);
    return k;
}
