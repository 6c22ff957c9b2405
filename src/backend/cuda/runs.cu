// runs.cu - runs of kernels: one by one, or recorded once and launched as one
// piece; and what is said of values that a kernel does not take.
#include <cstdio>
#include "backend/cuda/queue.h"

// ---- values that a kernel does not take -------------------------------------

static bool blamed(const hki_queue *q) {
    return ((const volatile hki_blame *)q->blame)->call != 0;
}

static hk_status explain(hki_queue *q, const hki_kernel_call *calls,
                         size_t *failed) {
    const hki_blame b = *q->blame;
    *q->blame = hki_blame{};
    *failed = (size_t)b.call - 1;
    const hki_kernel *const k = calls[*failed].kernel;
    return k->explain(k, b.value, b.at);
}

// A run that was launched is not waited for: what went wrong in it is told by
// whoever reads, before he sees a value, or by the next launch. Its calls may
// be gone by then.
hk_status hki_cuda_check_launched(hki_queue *q) {
    size_t failed;
    if (!blamed(q))
        return HK_OK;
    if (q->launched != NULL)
        return explain(q, q->launched->calls, &failed);
    const long long value = (long long)q->blame->value;
    *q->blame = hki_blame{};
    return hki_fail(
        HK_E_RANGE,
        "cuda: an earlier step had the index %lld, which is out of range",
        value);
}

// What is blamed from here on is not the launched run's.
static hk_status settle_launched(hki_queue *q) {
    if (q->launched == NULL)
        return HK_OK;
    HKI_TRY(hki_card_wait(q->device->card));
    HKI_TRY(hki_cuda_check_launched(q));
    q->launched = NULL;
    return HK_OK;
}

// ---- runs -------------------------------------------------------------------

HKI_KERNEL void set_control(hki_control *c, uint64_t seed, uint64_t step) {
    c->seed = seed;
    c->step = step;
}

// Random kernels look there.
static void tell_control(hki_queue *q) {
    if (q->has_control && q->has.seed == q->now.seed &&
        q->has.step == q->now.step)
        return;
    HKI_LAUNCH(set_control, 1, 1, q->control, q->now.seed, q->now.step);
    q->has = q->now;
    q->has_control = true;
}

// number: of the call in its run.
static hk_status run_call(const hki_kernel_call *call, hki_queue *q,
                          size_t number) {
    const hki_kernel *const k = call->kernel;
    const hki_loc *const args = call->args;
    hki_cuda_call c = {};
    c.k = k;
    c.card = q->device->card;
    for (int i = 0; i < k->desc.n_in; i++)
        c.in[i] = hki_cuda_at(args[i]);
    for (int i = 0; i < k->desc.n_out; i++)
        c.out[i] = hki_cuda_at(args[k->desc.n_in + i]);
    c.scratch = hki_cuda_at(call->scratch);
    c.control = q->control;
    c.blame = q->blame;
    c.number = (int64_t)number + 1;
    HKI_TRY(k->run(&c));
    return hki_card_check(c.card, "a launch");
}

// Calls that can meet values they do not take, one by one, are waited for.
static hk_status see_blame(hki_queue *q, const hki_kernel_call *calls,
                           size_t *failed) {
    HKI_TRY(hki_card_wait(q->device->card));
    return blamed(q) ? explain(q, calls, failed) : HK_OK;
}

hk_status hki_cuda_kernel_run_many(hki_queue *q, const hki_kernel_call *calls,
                                   size_t n, size_t *failed) {
    bool can_fail = false;
    if (!q->begun)
        return hki_fail(HK_E_STATE, "kernel: its queue was not begun");
    *failed = 0;
    HKI_TRY(settle_launched(q));
    for (*failed = 0; *failed < n; ++*failed) {
        const hki_kernel_call *const c = &calls[*failed];
        if (c->kernel->random)
            tell_control(q);
        can_fail |= c->kernel->explain != NULL;
        HKI_TRY(run_call(c, q, *failed));
    }
    return can_fail ? see_blame(q, calls, failed) : HK_OK;
}

hk_status hki_cuda_kernel_run(const hki_kernel *k, hki_kernel_state *s,
                              hki_queue *q, const hki_loc *args,
                              hki_loc scratch) {
    const hki_kernel_call call = {k, s, args, scratch};
    size_t failed;
    return hki_cuda_kernel_run_many(q, &call, 1, &failed);
}

void hki_cuda_plan_release(hki_captured *c) {
    if (c == NULL)
        return;
    if (c->queue->launched == c) {
        (void)hki_card_wait(c->queue->device->card);
        c->queue->launched = NULL;
    }
    hki_graph_destroy(c->graph);
    hki_free(c->calls);
    hki_free(c);
}

HKI_KERNEL void show_early(const void *from, size_t bytes, hki_control *c,
                           hki_shown *to) {
    to->value = bytes == 8 ? *(const uint64_t *)from : *(const uint32_t *)from;
    __threadfence_system();
    *(volatile uint64_t *)&to->number = ++c->early;
}

// A recording under way.
typedef struct recorder {
    hki_queue *queue;
    const hki_kernel_call *calls;
    size_t n;
    const hki_early *early;
    hki_cuda_turn *turns;
    hki_mark **marks;                // begin, then one behind each call
    hki_mark **of[HKI_GRAPH_LANES];  // of a lane's calls, as many as
    uint32_t count[HKI_GRAPH_LANES]; // there were
    uint32_t seen[HKI_GRAPH_LANES]
                 [HKI_GRAPH_LANES]; // of another lane's, by a lane
} recorder;

static void drop_recorder(recorder *r) {
    for (size_t i = 0; r->marks != NULL && i < r->n + 1; i++)
        hki_mark_destroy(r->marks[i]);
    for (int i = 0; i < HKI_GRAPH_LANES; i++)
        hki_free(r->of[i]);
    hki_free(r->marks);
    hki_free(r->turns);
}

static hk_status make_recorder(recorder *r) {
    HKI_TRY(hki_zalloc_array(r->n, sizeof *r->turns, &r->turns));
    HKI_TRY(hki_cuda_take_turns(r->calls, r->n, r->turns));
    HKI_TRY(hki_zalloc_array(r->n + 1, sizeof *r->marks, &r->marks));
    for (size_t i = 0; i < r->n + 1; i++)
        HKI_TRY(hki_mark_create(r->queue->device->card, &r->marks[i]));
    for (int i = 0; i < HKI_GRAPH_LANES; i++)
        HKI_TRY(hki_zalloc_array(r->n, sizeof *r->of[i], &r->of[i]));
    return HK_OK;
}

// The lane goes on behind the first `count` calls of another one.
static hk_status follow(recorder *r, int lane, int other, uint32_t count) {
    if (lane == other || count <= r->seen[lane][other])
        return HK_OK;
    r->seen[lane][other] = count;
    return hki_mark_follow(r->of[other][count - 1]);
}

static hk_status record_call(recorder *r, size_t i) {
    const hki_cuda_turn *const t = &r->turns[i];
    hki_queue *const q = r->queue;
    hki_graph_lane(q->device->card, t->lane);
    if (r->count[t->lane] == 0 && t->lane > 0)
        HKI_TRY(hki_mark_follow(r->marks[0]));
    for (int l = 0; l < HKI_GRAPH_LANES; l++)
        HKI_TRY(follow(r, t->lane, l, t->after[l]));
    HKI_TRY(run_call(&r->calls[i], q, i));
    if (r->early != NULL && r->early->call == i)
        HKI_LAUNCH(show_early, 1, 1, (const void *)hki_cuda_at(r->early->at),
                   r->early->bytes, q->control, q->shown);
    r->of[t->lane][r->count[t->lane]++] = r->marks[i + 1];
    return hki_mark_set(r->marks[i + 1]);
}

// Lanes come together at the end.
static hk_status record(recorder *r) {
    HKI_TRY(hki_mark_set(r->marks[0]));
    for (size_t i = 0; i < r->n; i++)
        HKI_TRY(record_call(r, i));
    hki_graph_lane(r->queue->device->card, 0);
    for (int l = 1; l < HKI_GRAPH_LANES; l++)
        HKI_TRY(follow(r, 0, l, r->count[l]));
    return HK_OK;
}

static hk_status record_graph(recorder *r, hki_graph **out) {
    hki_card *const card = r->queue->device->card;
    char text[512];
    HKI_TRY(make_recorder(r));
    HKI_TRY(hki_graph_begin(card));
    const hk_status s = record(r);
    snprintf(text, sizeof text, "%s", hk_last_error());
    hki_graph_lane(card, 0);
    const hk_status end = hki_graph_end(card, out);
    return s != HK_OK ? hki_fail(s, "%s", text) : end;
}

static hk_status capture(hki_queue *q, const hki_kernel_call *calls, size_t n,
                         const hki_early *early, hki_captured *c) {
    recorder r = {};
    r.queue = q;
    r.calls = calls;
    r.n = n;
    r.early = early;
    HKI_TRY(hki_zalloc_array(n, sizeof *c->calls, &c->calls));
    for (size_t i = 0; i < n; i++) {
        c->calls[i] = calls[i];
        c->random |= calls[i].kernel->random;
    }
    const hk_status s = record_graph(&r, &c->graph);
    drop_recorder(&r);
    return s;
}

hk_status hki_cuda_plan_capture(hki_queue *q, const hki_kernel_call *calls,
                                size_t n, const hki_early *early,
                                hki_captured **out) {
    hki_captured *c;
    HKI_TRY(hki_zalloc_array(1, sizeof *c, &c));
    c->queue = q;
    c->early = early != NULL;
    const hk_status s = capture(q, calls, n, early, c);
    if (s != HK_OK) {
        hki_cuda_plan_release(c);
        return s;
    }
    *out = c;
    return HK_OK;
}

hk_status hki_cuda_plan_launch(hki_queue *q, hki_captured *c, size_t *failed) {
    *failed = 0;
    if (blamed(q) && q->launched == c)
        return explain(q, c->calls, failed);
    HKI_TRY(hki_cuda_check_launched(q));
    if (c->random)
        tell_control(q);
    q->launched = c;
    HKI_TRY(hki_graph_launch(q->device->card, c->graph));
    q->n_early += c->early;
    return HK_OK;
}

hk_status hki_cuda_plan_early(hki_queue *q, hki_captured *c, void *to,
                              size_t *failed) {
    *failed = 0;
    if (!c->early || q->launched != c)
        return hki_fail(HK_E_STATE, "cuda: there is no value to wait for");
    HKI_TRY(hki_card_wait_for(q->device->card, &q->shown->number, q->n_early));
    if (blamed(q))
        return explain(q, c->calls, failed);
    memcpy(to, &q->shown->value, sizeof q->shown->value);
    return HK_OK;
}
