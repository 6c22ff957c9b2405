// backend.cu - the CUDA backend: its table, its objects, and which maker an
// operator call goes to.
//
// Bytes go up through a ring of memory that the card reads at full speed, so
// that the host goes on while they travel. A run is not waited for: the host
// waits where it reads.
#include <cstdio>
#include "backend/cuda/cuda.h"

struct hki_buffer {
    hki_card *card;
    void *at;
};

#define N_STAGES 4

struct hki_queue {
    hki_device *device;
    hki_stage stages[N_STAGES];
    unsigned next;
    void *room; // on the card, for vectors
    size_t room_bytes;
    double (*sums)[2]; // of the host
    size_t n_sums;
    hki_exchange_sums *exchanged; // of the host; NULL: none
    hki_uploads *uploads;
    hki_control *control; // on the card
    hki_control has;      // what it holds
    bool has_control;     // it holds something
    hki_control now;      // of the run under way
    hki_blame *blame;
    const hki_captured *launched; // the last one; NULL: none, or it is gone
    hki_shown *shown;
    uint64_t n_early; // values that launches will have shown
    bool begun;
    pthread_t user; // the thread that used it last
    bool used;
};

static hki_cuda_maker maker_of(hki_opcode op) {
    switch (op) {
#define HKI_CUDA_CASE(op)                                                      \
    case HKI_OP_##op:                                                          \
        return hki_cuda_make_##op;
        HKI_CUDA_MAKERS(HKI_CUDA_CASE)
#undef HKI_CUDA_CASE
    default:
        return NULL;
    }
}

// ---- device -----------------------------------------------------------------

static void device_close(hki_device *d) {
    hki_free(d);
}

static hk_status check_precision(const hki_card *card, hk_precision precision) {
    hki_card_info info;
    hki_card_get_info(card, &info);
    if (precision != HK_PRECISION_BF16 || info.major >= 8)
        return HK_OK;
    return hki_fail(HK_E_UNSUPPORTED,
                    "cuda: precision bf16 needs compute capability 8.0, %s has "
                    "%d.%d; fp32 needs none",
                    info.name, info.major, info.minor);
}

static hk_status device_open(const hki_device_options *opt, hki_device **out) {
    hki_card *card;
    HKI_TRY(hki_card_open((int)opt->card, &card));
    HKI_TRY(check_precision(card, opt->precision));
    hki_device *d;
    HKI_TRY(hki_zalloc_array(1, sizeof *d, &d));
    d->card = card;
    d->precision = opt->precision;
    *out = d;
    return HK_OK;
}

static hk_status device_count(uint32_t *out) {
    int n;
    HKI_TRY(hki_card_count(&n));
    *out = (uint32_t)n;
    return HK_OK;
}

static hk_status device_text(uint32_t number, char *text, size_t size) {
    hki_card *card;
    hki_card_info info;
    HKI_TRY(hki_card_open((int)number, &card));
    hki_card_get_info(card, &info);
    snprintf(text, size, "%s, %.1f GiB, compute capability %d.%d", info.name,
             (double)info.bytes / 0x1p30, info.major, info.minor);
    return HK_OK;
}

// ---- buffers ----------------------------------------------------------------

static void buffer_destroy(hki_buffer *b) {
    if (b == NULL)
        return;
    hki_card_free(b->card, b->at);
    hki_free(b);
}

static hk_status buffer_create(hki_device *d, size_t bytes, hki_buffer **out) {
    hki_buffer *b;
    HKI_TRY(hki_zalloc_array(1, sizeof *b, &b));
    b->card = d->card;
    const hk_status s = hki_card_alloc(d->card, bytes, &b->at);
    if (s != HK_OK) {
        buffer_destroy(b);
        return s;
    }
    *out = b;
    return HK_OK;
}

static void *buffer_address(const hki_buffer *b) {
    return b->at;
}

static void *at(hki_loc l) {
    return l.buffer == NULL ? NULL : (char *)l.buffer->at + l.offset;
}

// ---- queues -----------------------------------------------------------------

static void queue_destroy(hki_queue *q) {
    if (q == NULL)
        return;
    hki_card *const card = q->device->card;
    (void)hki_card_wait_all(card);
    for (int i = 0; i < N_STAGES; i++) {
        hki_card_free_host(card, q->stages[i].host);
        hki_mark_destroy(q->stages[i].mark);
    }
    hki_card_free(card, q->room);
    hki_card_free_host(card, q->sums);
    hki_card_free_host(card, q->exchanged);
    hki_uploads_destroy(q->uploads);
    hki_card_free(card, q->control);
    hki_card_free_host(card, q->blame);
    hki_card_free_host(card, q->shown);
    hki_free(q);
}

static hk_status make_queue(hki_queue *q) {
    hki_card *const card = q->device->card;
    void *p;
    HKI_TRY(hki_card_alloc(card, sizeof *q->control, &p));
    q->control = (hki_control *)p;
    HKI_TRY(hki_card_alloc_host(card, sizeof *q->blame, &p));
    q->blame = (hki_blame *)p;
    *q->blame = hki_blame{};
    HKI_TRY(hki_card_alloc_host(card, sizeof *q->shown, &p));
    q->shown = (hki_shown *)p;
    q->shown->number = 0;
    for (int i = 0; i < N_STAGES; i++)
        HKI_TRY(hki_mark_create(card, &q->stages[i].mark));
    return hki_uploads_create(card, &q->uploads);
}

static hk_status queue_create(hki_device *d, hki_queue **out) {
    hki_queue *q;
    HKI_TRY(hki_zalloc_array(1, sizeof *q, &q));
    q->device = d;
    const hk_status s = make_queue(q);
    if (s != HK_OK) {
        queue_destroy(q);
        return s;
    }
    *out = q;
    return HK_OK;
}

// Streams belong to threads: one that takes a queue over waits for what the
// other one has asked for.
static hk_status take_over(hki_queue *q) {
    const pthread_t self = pthread_self();
    HKI_TRY(hki_card_use(q->device->card));
    if (q->used && pthread_equal(q->user, self))
        return HK_OK;
    if (q->used)
        HKI_TRY(hki_card_wait_all(q->device->card));
    q->used = true;
    q->user = self;
    return HK_OK;
}

static hk_status queue_begin(hki_queue *q, uint64_t seed, uint64_t step) {
    if (q->begun)
        return hki_fail(HK_E_STATE, "queue: begun twice");
    HKI_TRY(take_over(q));
    q->now.seed = seed;
    q->now.step = step;
    q->begun = true;
    return HK_OK;
}

static hk_status queue_end(hki_queue *q) {
    if (!q->begun)
        return hki_fail(HK_E_STATE, "queue: ended without being begun");
    q->begun = false;
    return HK_OK;
}

static hk_status queue_pin(hki_queue *q, uint32_t first_cpu) {
    (void)q; // no threads but the caller's
    return hki_thread_pin((int)first_cpu);
}

// ---- values that a kernel does not take -------------------------------------

// A run as one piece.
struct hki_captured {
    hki_queue *queue;
    hki_graph *graph;
    hki_kernel_call *calls; // to explain what went wrong
    bool random, early;
};

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
static hk_status check_launched(hki_queue *q) {
    size_t failed;
    if (!blamed(q))
        return HK_OK;
    if (q->launched != NULL)
        return explain(q, q->launched->calls, &failed);
    const long long value = (long long)q->blame->value;
    *q->blame = hki_blame{};
    return hki_fail(HK_E_RANGE, "cuda: an earlier run met %lld, out of range",
                    value);
}

// What is blamed from here on is not the launched run's.
static hk_status settle_launched(hki_queue *q) {
    if (q->launched == NULL)
        return HK_OK;
    HKI_TRY(hki_card_wait(q->device->card));
    HKI_TRY(check_launched(q));
    q->launched = NULL;
    return HK_OK;
}

// ---- bytes up and down ------------------------------------------------------

// The next stage of the ring, with room for n bytes and nothing under way.
static hk_status take_stage(hki_queue *q, size_t n, hki_stage **out) {
    hki_stage *const s = &q->stages[q->next++ % N_STAGES];
    HKI_TRY(hki_mark_wait(s->mark));
    if (s->bytes < n) {
        const size_t bytes = (n + 4095) / 4096 * 4096;
        hki_card_free_host(q->device->card, s->host);
        s->host = NULL;
        s->bytes = 0;
        HKI_TRY(hki_card_alloc_host(q->device->card, bytes, &s->host));
        s->bytes = bytes;
    }
    *out = s;
    return HK_OK;
}

static hk_status write_bytes(hki_queue *q, hki_loc to, const void *from,
                             size_t n) {
    HKI_TRY(take_over(q));
    for (size_t done = 0; done < n;) {
        const size_t piece =
            n - done < HKI_STAGE_BYTES ? n - done : HKI_STAGE_BYTES;
        hki_stage *s;
        HKI_TRY(take_stage(q, piece, &s));
        memcpy(s->host, (const char *)from + done, piece);
        HKI_TRY(hki_card_up(q->device->card, (char *)at(to) + done, s->host,
                            piece));
        HKI_TRY(hki_mark_set(s->mark));
        done += piece;
    }
    return HK_OK;
}

static hk_status write_many(hki_queue *q, const hki_write *w, size_t n) {
    HKI_TRY(take_over(q));
    return hki_uploads_send(q->uploads, w, n, at);
}

static hk_status host_alloc(hki_device *d, size_t bytes, void **out) {
    HKI_TRY(hki_card_alloc_host(d->card, bytes, out));
    memset(*out, 0, bytes);
    return HK_OK;
}

static void host_free(hki_device *d, void *p) {
    hki_card_free_host(d->card, p);
}

static hk_status read_bytes(hki_queue *q, void *to, hki_loc from, size_t n) {
    HKI_TRY(take_over(q));
    for (size_t done = 0; done < n;) {
        const size_t piece =
            n - done < HKI_STAGE_BYTES ? n - done : HKI_STAGE_BYTES;
        hki_stage *s;
        HKI_TRY(take_stage(q, piece, &s));
        HKI_TRY(hki_card_down(q->device->card, s->host,
                              (const char *)at(from) + done, piece));
        HKI_TRY(hki_card_wait(q->device->card));
        HKI_TRY(check_launched(q));
        memcpy((char *)to + done, s->host, piece);
        done += piece;
    }
    return HK_OK;
}

// How many of n reads go into one stage; at least one.
static size_t reads_of_stage(const hki_read *r, size_t n, size_t *bytes) {
    size_t i = 0;
    for (*bytes = 0; i < n; i++) {
        if (i > 0 && *bytes + r[i].bytes > HKI_STAGE_BYTES)
            break;
        *bytes += r[i].bytes;
    }
    return i;
}

static hk_status read_together(hki_queue *q, const hki_read *r, size_t n,
                               size_t bytes) {
    hki_stage *s;
    size_t begin = 0;
    HKI_TRY(take_stage(q, bytes, &s));
    for (size_t i = 0; i < n; begin += r[i++].bytes)
        if (r[i].bytes > 0)
            HKI_TRY(hki_card_down(q->device->card, (char *)s->host + begin,
                                  at(r[i].from), r[i].bytes));
    HKI_TRY(hki_card_wait(q->device->card));
    HKI_TRY(check_launched(q));
    begin = 0;
    for (size_t i = 0; i < n; begin += r[i++].bytes)
        memcpy(r[i].to, (const char *)s->host + begin, r[i].bytes);
    return HK_OK;
}

static hk_status read_many(hki_queue *q, const hki_read *r, size_t n) {
    HKI_TRY(take_over(q));
    for (size_t i = 0, count, bytes; i < n; i += count) {
        count = reads_of_stage(r + i, n - i, &bytes);
        HKI_TRY(bytes > HKI_STAGE_BYTES
                    ? read_bytes(q, r[i].to, r[i].from, r[i].bytes)
                    : read_together(q, r + i, count, bytes));
    }
    return HK_OK;
}

// ---- vectors ----------------------------------------------------------------

hk_status hki_cuda_enter(const hki_place *p) {
    return take_over(p->queue);
}

hk_status hki_cuda_stage(const hki_place *p, size_t n, hki_stage **out) {
    return take_stage(p->queue, n, out);
}

// Memory is given back when all is over that uses it.
hk_status hki_cuda_room(const hki_place *p, size_t bytes, void **out) {
    hki_queue *const q = p->queue;
    if (q->room_bytes < bytes) {
        HKI_TRY(hki_card_wait(q->device->card));
        hki_card_free(q->device->card, q->room);
        q->room = NULL;
        q->room_bytes = 0;
        HKI_TRY(hki_card_alloc(q->device->card, bytes, &q->room));
        q->room_bytes = bytes;
    }
    *out = q->room;
    return HK_OK;
}

hk_status hki_cuda_sums(const hki_place *p, size_t n, double (**out)[2]) {
    hki_queue *const q = p->queue;
    if (q->n_sums < n) {
        void *sums;
        hki_card_free_host(q->device->card, q->sums);
        q->sums = NULL;
        q->n_sums = 0;
        HKI_TRY(
            hki_card_alloc_host(q->device->card, n * sizeof *q->sums, &sums));
        q->sums = (double(*)[2])sums;
        q->n_sums = n;
    }
    *out = q->sums;
    return HK_OK;
}

hk_status hki_cuda_exchange_place(const hki_place *p, hki_exchange_sums **out) {
    hki_queue *const q = p->queue;
    void *sums;
    if (q->exchanged == NULL) {
        HKI_TRY(
            hki_card_alloc_host(q->device->card, sizeof *q->exchanged, &sums));
        memset(sums, 0, sizeof *q->exchanged);
        q->exchanged = (hki_exchange_sums *)sums;
    }
    *out = q->exchanged;
    return HK_OK;
}

// ---- kernels ----------------------------------------------------------------

static void kernel_destroy(hki_kernel *k) {
    if (k == NULL)
        return;
    hki_product_destroy(k->product);
    hki_conv_destroy(k->conv);
    hki_free(k);
}

static hk_status check_types(const hki_kernel_desc *d) {
    for (int i = 0; i < d->n_in + d->n_out; i++) {
        const hki_tensor_desc *const t =
            i < d->n_in ? &d->in[i] : &d->out[i - d->n_in];
        if (t->dtype == HK_F64)
            return hki_fail(HK_E_UNSUPPORTED,
                            "cuda: double precision runs on CPUs only");
        if (t->format != HKI_PLAIN)
            return hki_fail(HK_E_INTERNAL, "cuda: an image in blocks");
    }
    return HK_OK;
}

static bool is_bf16_product(const hki_kernel_desc *d) {
    return d->attr.dtype == HK_BF16 && d->op != HKI_OP_cast;
}

static hk_status make(hki_kernel *k) {
    static const char *const names[] = {
#define HKI_NAME(op) #op,
        HKI_OPS(HKI_NAME)
#undef HKI_NAME
    };
    HKI_TRY(check_types(&k->desc));
    const hki_cuda_maker maker = maker_of(k->desc.op);
    if (maker != NULL)
        HKI_TRY(is_bf16_product(&k->desc) ? hki_cuda_make_bf16(k, maker)
                                          : maker(k));
    if (k->run == NULL)
        return hki_fail(HK_E_UNSUPPORTED,
                        "cuda: no kernel for this use of the operator %s; "
                        "--device cpu has one",
                        names[k->desc.op]);
    return HK_OK;
}

static hk_status kernel_create(hki_device *d, const hki_kernel_desc *desc,
                               hki_kernel **out) {
    hki_kernel *k;
    HKI_TRY(hki_zalloc_array(1, sizeof *k, &k));
    k->device = d;
    k->desc = *desc;
    k->note = "";
    const hk_status s = make(k);
    if (s != HK_OK) {
        kernel_destroy(k);
        return s;
    }
    *out = k;
    return HK_OK;
}

static size_t kernel_scratch(const hki_kernel *k) {
    return k->scratch_bytes;
}

static const char *kernel_note(const hki_kernel *k) {
    return k->note;
}

// Kernels keep nothing from run to run.
static void state_destroy(hki_kernel_state *s) {
    (void)s;
}

static hk_status state_create(const hki_kernel *k, hki_kernel_state **out) {
    (void)k;
    *out = NULL;
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
        c.in[i] = at(args[i]);
    for (int i = 0; i < k->desc.n_out; i++)
        c.out[i] = at(args[k->desc.n_in + i]);
    c.scratch = at(call->scratch);
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

static hk_status kernel_run_many(hki_queue *q, const hki_kernel_call *calls,
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

static hk_status kernel_run(const hki_kernel *k, hki_kernel_state *s,
                            hki_queue *q, const hki_loc *args,
                            hki_loc scratch) {
    const hki_kernel_call call = {k, s, args, scratch};
    size_t failed;
    return kernel_run_many(q, &call, 1, &failed);
}

static void plan_release(hki_captured *c) {
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
        HKI_LAUNCH(show_early, 1, 1, (const void *)at(r->early->at),
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

static hk_status plan_capture(hki_queue *q, const hki_kernel_call *calls,
                              size_t n, const hki_early *early,
                              hki_captured **out) {
    hki_captured *c;
    HKI_TRY(hki_zalloc_array(1, sizeof *c, &c));
    c->queue = q;
    c->early = early != NULL;
    const hk_status s = capture(q, calls, n, early, c);
    if (s != HK_OK) {
        plan_release(c);
        return s;
    }
    *out = c;
    return HK_OK;
}

static hk_status plan_launch(hki_queue *q, hki_captured *c, size_t *failed) {
    *failed = 0;
    if (blamed(q) && q->launched == c)
        return explain(q, c->calls, failed);
    HKI_TRY(check_launched(q));
    if (c->random)
        tell_control(q);
    q->launched = c;
    HKI_TRY(hki_graph_launch(q->device->card, c->graph));
    q->n_early += c->early;
    return HK_OK;
}

static hk_status plan_early(hki_queue *q, hki_captured *c, void *to,
                            size_t *failed) {
    *failed = 0;
    if (!c->early || q->launched != c)
        return hki_fail(HK_E_STATE, "cuda: no value to wait for");
    HKI_TRY(hki_card_wait_for(q->device->card, &q->shown->number, q->n_early));
    if (blamed(q))
        return explain(q, c->calls, failed);
    memcpy(to, &q->shown->value, sizeof q->shown->value);
    return HK_OK;
}

static bool runs_beside(const hki_device *d, hki_opcode op) {
    (void)d;
    (void)op;
    return false;
}

static hki_format image_format(const hki_device *d, const hki_conv_info *c,
                               size_t n) {
    (void)d;
    (void)c;
    (void)n;
    return HKI_PLAIN;
}

// ---- the table --------------------------------------------------------------

static hki_backend table(void) {
    hki_backend b = {};
    b.name = HKI_CARD_NAME;
    b.version = hki_card_version;
    b.align = 256; // of cuBLASLt's scratch
    b.steps_under_way = HKI_GRAPH_LANES;
    b.device_count = device_count;
    b.device_text = device_text;
    b.device_open = device_open;
    b.device_close = device_close;
    b.buffer_create = buffer_create;
    b.buffer_destroy = buffer_destroy;
    b.buffer_address = buffer_address;
    b.vectors = &hki_vector_ops_cuda;
    b.shared_create = hki_cuda_shared_create;
    b.shared_destroy = hki_cuda_shared_destroy;
    b.shared_wait = hki_cuda_shared_wait;
    b.queue_create = queue_create;
    b.queue_destroy = queue_destroy;
    b.queue_begin = queue_begin;
    b.queue_end = queue_end;
    b.queue_pin = queue_pin;
    b.write = write_bytes;
    b.read = read_bytes;
    b.read_many = read_many;
    b.write_many = write_many;
    b.host_alloc = host_alloc;
    b.host_free = host_free;
    b.kernel_create = kernel_create;
    b.kernel_destroy = kernel_destroy;
    b.kernel_scratch = kernel_scratch;
    b.kernel_note = kernel_note;
    b.state_create = state_create;
    b.state_destroy = state_destroy;
    b.kernel_run = kernel_run;
    b.kernel_run_many = kernel_run_many;
    b.plan_capture = plan_capture;
    b.plan_launch = plan_launch;
    b.plan_early = plan_early;
    b.plan_release = plan_release;
    b.runs_beside = runs_beside;
    b.image_format = image_format;
    return b;
}

extern "C" const hki_backend hki_backend_cuda = table();
