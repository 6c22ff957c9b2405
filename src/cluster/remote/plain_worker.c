// plain_worker.c - a worker with a training loop of its own: n plain floats, no
// graph, no optimizer. It is an hk_elastic that is told of steps, with a center
// elsewhere and a layout of one vector.
#include "cluster/remote/remote.h"
#include "elastic/elastic.h"

#define LEAVE_MS 5000 // nobody waits longer for a center that is away

struct hk_worker {
    hk_center *center;
    hk_elastic *elastic;
};

static const hk_worker_options defaults = {
    .struct_size = sizeof defaults,
    .moving_rate = HK_ELASTIC_AUTO,
    .wait_ms = 60000,
    .task = -1,
};

HKI_OPTIONS_FROM(hk_worker_options, task, defaults)

// The model is one vector named "x".
static hk_status connect_vector(const hk_worker_options *o, size_t n,
                                hk_center **out) {
    const hk_layout_item item = {.name = "x",
                                 .shape =
                                     hk_shape_make(1, (int64_t[]){(int64_t)n}),
                                 .dtype = HK_F32,
                                 .kind = HK_TRAINABLE};
    HKI_SCOPED(hk_layout_release_at) hk_layout *l = NULL;
    HKI_TRY(hk_layout_create(&item, 1, &l));
    return hk_center_connect(o->connect, l, out);
}

// Every call of hk_worker_exchange exchanges: a period of one step.
static hk_status tie(hk_worker *w, const hk_worker_options *o, float *x,
                     size_t n) {
    hk_elastic_options e;
    hk_elastic_options_init(&e, sizeof e);
    e.name = "worker";
    e.preset = HK_PRESET_PAPER;
    e.moving_rate = o->moving_rate;
    e.wait_ms = o->wait_ms;
    e.num_worker = o->num_worker;
    e.communication_period = 1;
    HKI_TRY(connect_vector(o, n, &w->center));
    const hki_method *const m = w->center->method;
    if (m->gradients || m->fast_rate)
        return hki_fail(HK_E_UNSUPPORTED,
                        "worker: method %s needs gradients or a learning rate; "
                        "use hk_elastic, which sends them",
                        m->name);
    HKI_TRY(hk_elastic_create(&e, NULL, w->center, &w->elastic));
    return hk_elastic_init(w->elastic, x, o->task);
}

HKI_SCOPED_HANDLE(hk_worker, hk_worker_close)

hk_status hk_worker_open(const hk_worker_options *opt, float *x, size_t n,
                         hk_worker **out) {
    hk_worker_options o = defaults;
    if (opt == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "worker: options or out is NULL");
    HKI_TRY(hki_options_copy(&o, sizeof o, opt, "worker"));
    if (o.connect == NULL || x == NULL || n == 0 || n > INT64_MAX / 8 ||
        o.num_worker == 0)
        return hki_fail(
            HK_E_INVALID_ARG,
            "worker: connection is NULL, n is %zu or num_worker is %u", n,
            o.num_worker);
    HKI_SCOPED(hk_worker_close_at) hk_worker *w = NULL;
    HKI_TRY(hki_zalloc_array(1, sizeof *w, &w));
    HKI_TRY(tie(w, &o, x, n));
    return HKI_HAND_ON(out, w);
}

hk_status hk_worker_exchange(hk_worker *w, float *x, int64_t steps) {
    if (w == NULL)
        return hki_fail(HK_E_INVALID_ARG, "worker: exchange: NULL handle");
    return steps == 0 ? hk_elastic_exchange(w->elastic, x)
                      : hk_elastic_stepped(w->elastic, x, steps);
}

hk_elastic *hk_worker_elastic(const hk_worker *w) {
    return w != NULL ? w->elastic : NULL;
}

void hk_worker_close(hk_worker *w) {
    if (w == NULL)
        return;
    hki_vector none = {0};
    if (w->elastic != NULL)
        (void)hki_elastic_leave(w->elastic, &none, LEAVE_MS);
    hk_elastic_destroy(w->elastic);
    hk_center_destroy(w->center);
    hki_free(w);
}
