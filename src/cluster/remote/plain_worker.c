// plain_worker.c - a worker with a training loop of its own: n plain floats, no
// graph, no optimizer.
#include "cluster/remote/remote.h"

struct hk_worker {
    hk_center *center;
    hki_member m;
    size_t n;
    double rate;
    int64_t wait_ms;
    int64_t unreported;  // steps that no exchange has told yet
    int64_t global_step; // as the center said last
};

_Static_assert(sizeof(hk_worker_options) ==
                   offsetof(hk_worker_options, task) + sizeof(int32_t),
               "option structs have no tail padding");

static const hk_worker_options defaults = {
    .struct_size = sizeof defaults,
    .moving_rate = HK_ELASTIC_AUTO,
    .wait_ms = 60000,
    .task = -1,
};

void hk_worker_options_init(hk_worker_options *opt, size_t struct_size) {
    hki_options_init(opt, struct_size, &defaults, sizeof defaults);
}

static hk_status check(const hk_worker_options *o, const float *x, size_t n) {
    if (o->connect == NULL || x == NULL || n == 0 || n > INT64_MAX / 8)
        return hki_fail(HK_E_INVALID_ARG,
                        "worker: no connection, or no values (%zu)", n);
    if (o->num_worker == 0 || o->wait_ms < 0)
        return hki_fail(HK_E_INVALID_ARG, "worker: num_worker %u, wait_ms %lld",
                        o->num_worker, (long long)o->wait_ms);
    if (o->moving_rate != HK_ELASTIC_AUTO &&
        !(o->moving_rate >= 0 && o->moving_rate <= 1))
        return hki_fail(HK_E_INVALID_ARG,
                        "worker: moving_rate is %g; it lies in [0, 1]",
                        o->moving_rate);
    return HK_OK;
}

// The model is one vector named "x".
static hk_status connect_vector(const hk_worker_options *o, size_t n,
                                hk_center **out) {
    const hk_layout_item item = {.name = "x",
                                 .shape =
                                     hk_shape_make(1, (int64_t[]){(int64_t)n}),
                                 .dtype = HK_F32,
                                 .kind = HK_TRAINABLE};
    hk_layout *l;
    HKI_TRY(hk_layout_create(&item, 1, &l));
    const hk_status s = hk_center_connect(o->connect, l, out);
    hk_layout_release(l);
    return s;
}

static hk_status join(hk_worker *w, const hk_worker_options *o, float *x) {
    const hki_center_ops *const ops = w->center->ops;
    const int64_t deadline = hki_deadline(o->wait_ms);
    if (w->center->method->id != HK_METHOD_ELASTIC)
        return hki_fail(HK_E_UNSUPPORTED,
                        "worker: the center's method is %s; plain workers are "
                        "for elastic averaging",
                        w->center->method->name);
    HKI_TRY(ops->join(w->center, o->task, deadline, &w->m));
    HKI_TRY(ops->init_if_empty(w->center, w->m, x, NULL, deadline));
    return ops->pull(w->center, w->m, x, NULL, NULL, deadline, &w->global_step);
}

hk_status hk_worker_open(const hk_worker_options *opt, float *x, size_t n,
                         hk_worker **out) {
    hk_worker_options o = defaults;
    if (opt == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "worker: options or out is NULL");
    HKI_TRY(hki_options_copy(&o, sizeof o, opt, "worker"));
    HKI_TRY(check(&o, x, n));
    hk_worker *w;
    HKI_TRY(hki_zalloc_array(1, sizeof *w, &w));
    w->n = n;
    w->wait_ms = o.wait_ms;
    w->rate = o.moving_rate != HK_ELASTIC_AUTO ? o.moving_rate
                                               : HK_ELASTIC_BETA / o.num_worker;
    hk_status s = connect_vector(&o, n, &w->center);
    if (s == HK_OK)
        s = join(w, &o, x);
    if (s != HK_OK) {
        hk_worker_close(w);
        return s;
    }
    *out = w;
    return HK_OK;
}

hk_status hk_worker_exchange(hk_worker *w, float *x, int64_t steps) {
    if (w == NULL || x == NULL || steps < 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "worker: exchange: handle or x is NULL, or steps %lld",
                        (long long)steps);
    w->unreported += steps;
    hki_exchange ex = {.x = x,
                       .rate = w->rate,
                       .grad_scale = 1,
                       .steps_done = w->unreported,
                       .deadline_ns = hki_deadline(w->wait_ms),
                       .use_locking = true};
    const hk_status s = w->center->ops->exchange(w->center, w->m, &ex);
    if (ex.begun) {
        w->unreported = 0;
        w->global_step = ex.global_step;
    }
    return s;
}

hk_center *hk_worker_center(const hk_worker *w) {
    return w != NULL ? w->center : NULL;
}

int32_t hk_worker_id(const hk_worker *w) {
    return w != NULL && w->m.incarnation != 0 ? (int32_t)w->m.id : -1;
}

int64_t hk_worker_global_step(const hk_worker *w) {
    return w != NULL ? w->global_step + w->unreported : 0;
}

void hk_worker_close(hk_worker *w) {
    if (w == NULL)
        return;
    if (w->m.incarnation != 0)
        (void)w->center->ops->leave(w->center, w->m, w->unreported,
                                    hki_deadline(HKI_MIN(w->wait_ms, 5000)));
    hk_center_destroy(w->center);
    hki_free(w);
}
