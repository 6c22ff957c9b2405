// local_device.c - workers whose values live on a device, at the in-process
// center: an exchange is one piece of work that the device does, with a copy of
// the center's values beside it. It is asked for with all locks held and goes
// on when they are let go; whoever comes from the host waits, and gets what is
// newer there.
#include "center/local.h"

hk_status hki_local_settle(hki_local *c) {
    return c->shared != NULL ? c->device->shared_wait(c->shared) : HK_OK;
}

void hki_local_leave_device(hki_local *c) {
    if (c->shared != NULL)
        c->device->shared_destroy(c->shared);
    c->shared = NULL;
    hki_free(c->spans);
    c->spans = NULL;
}

// The vector in as few pieces as its fates allow.
static hk_status make_spans(hki_local *c) {
    const hki_partition *const partition = &c->base.partition;
    HKI_TRY(hki_zalloc_array(partition->count, sizeof *c->spans, &c->spans));
    c->n_spans = 0;
    for (size_t i = 0; i < partition->count; i++) {
        const hki_chunk_range *const p = &partition->chunk[i];
        const bool copied = p->share == HK_SHARE_COPY;
        hki_exchange_span *const last =
            c->n_spans > 0 ? &c->spans[c->n_spans - 1] : NULL;
        if (last != NULL && last->end == p->begin && last->copied == copied)
            last->end = p->end;
        else
            c->spans[c->n_spans++] =
                (hki_exchange_span){p->begin, p->end, copied};
    }
    return HK_OK;
}

// The first one that comes: from then on the device has the values, or no room
// for them.
static hk_status meet_device(hki_local *c, const hki_place *at) {
    if (c->device != NULL)
        return HK_OK;
    HKI_TRY(make_spans(c));
    const size_t bytes =
        (size_t)hki_layout_size(c->base.layout) * sizeof(float);
    c->device = at->backend;
    if (at->backend->shared_create(at->device, c->shard->values, bytes,
                                   &c->shared) != HK_OK)
        c->shared = NULL;
    return HK_OK;
}

// Elastic averaging without anything that only the host can do.
static bool suits(const hki_local *c, const hki_exchange *ex,
                  const hki_place *at) {
    const hki_method *const m = c->base.method;
    return at->backend != NULL && at->backend->shared_create != NULL &&
           m->elastic && !m->rounds && !c->check && ex->use_locking;
}

typedef struct device_arg {
    hki_member m;
    hki_exchange *ex;
    const hki_place *at;
} device_arg;

static hk_status ask_device(hki_local *c, const device_arg *a) {
    const hki_exchange *const ex = a->ex;
    const hki_exchange_job job = {.shared = c->shared,
                                  .x = ex->x,
                                  .diff = ex->diff,
                                  .view = ex->view,
                                  .before = ex->before,
                                  .spans = c->spans,
                                  .n_spans = c->n_spans,
                                  .alpha = (float)ex->alpha,
                                  .observed = ex->observe != NULL};
    for (size_t i = 0; i < c->base.partition.count; i++)
        c->shard->updates[i]++;
    return a->at->ops->exchange(a->at, &job);
}

// With all locks held.
static hk_status exchange_held(hki_local *c, device_arg *a, bool *taken) {
    HKI_TRY(meet_device(c, a->at));
    *taken = c->shared != NULL && c->device == a->at->backend;
    if (!*taken)
        return HK_OK;
    hki_local_begin(c, a->m, a->ex);
    hki_local_take_side(c, a->ex->side);
    return ask_device(c, a);
}

static hk_status lock_all(hki_local *c, const hki_local_walk_state *w) {
    for (uint32_t i = 0; i < hki_local_stripe_count(c); i++) {
        const hk_status s = hki_local_lock(c, w, i);
        if (s == HK_OK)
            continue;
        while (i-- > 0)
            hki_local_unlock(c, i);
        return s;
    }
    return HK_OK;
}

static void unlock_all(hki_local *c) {
    for (uint32_t i = 0; i < hki_local_stripe_count(c); i++)
        hki_local_unlock(c, i);
}

hk_status hki_local_exchange_at(hk_center *base, hki_member m, hki_exchange *ex,
                                const hki_place *at, bool *taken) {
    hki_local *const c = (hki_local *)base;
    device_arg a = {m, ex, at};
    const hki_local_walk_state w = {.what = "exchange",
                                    .worker = m.id,
                                    .event = HKI_EVENT_EXCHANGE,
                                    .enqueues = true,
                                    .deadline_ns = ex->deadline_ns};
    *taken = false;
    if (!suits(c, ex, at))
        return HK_OK;
    HKI_TRY(hki_local_check(c, m, "exchange"));
    HKI_TRY(hki_turn_enter(&c->shard->turn, w.event, m.id, w.deadline_ns));
    hk_status s = lock_all(c, &w);
    const bool held = s == HK_OK;
    if (held)
        s = exchange_held(c, &a, taken);
    hki_turn_leave(&c->shard->turn, w.event, m.id, held && *taken);
    if (held)
        unlock_all(c);
    return s;
}
