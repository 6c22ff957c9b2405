// queues.cu - queues of a card, and the bytes that go up and come down.
//
// Bytes go up through a ring of memory that the card reads at full speed, so
// that the host goes on while they travel. A run is not waited for: the host
// waits where it reads.
#include "backend/cuda/queue.h"

// ---- queues -----------------------------------------------------------------

void hki_cuda_queue_destroy(hki_queue *q) {
    if (q == NULL)
        return;
    hki_card *const card = q->device->card;
    (void)hki_card_wait_all(card);
    for (int i = 0; i < HKI_N_STAGES; i++) {
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
    for (int i = 0; i < HKI_N_STAGES; i++)
        HKI_TRY(hki_mark_create(card, &q->stages[i].mark));
    return hki_uploads_create(card, &q->uploads);
}

hk_status hki_cuda_queue_create(hki_device *d, hki_queue **out) {
    hki_queue *q;
    HKI_TRY(hki_zalloc_array(1, sizeof *q, &q));
    q->device = d;
    const hk_status s = make_queue(q);
    if (s != HK_OK) {
        hki_cuda_queue_destroy(q);
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

hk_status hki_cuda_queue_begin(hki_queue *q, uint64_t seed, uint64_t step) {
    if (q->begun)
        return hki_fail(HK_E_STATE, "queue: was begun twice");
    HKI_TRY(take_over(q));
    q->now.seed = seed;
    q->now.step = step;
    q->begun = true;
    return HK_OK;
}

hk_status hki_cuda_queue_end(hki_queue *q) {
    if (!q->begun)
        return hki_fail(HK_E_STATE, "queue: was ended before it was begun");
    q->begun = false;
    return HK_OK;
}

hk_status hki_cuda_queue_pin(hki_queue *q, uint32_t first_cpu) {
    (void)q; // no threads but the caller's
    return hki_thread_pin((int)first_cpu);
}

// ---- bytes up and down ------------------------------------------------------

// The next stage of the ring, with room for n bytes and nothing under way.
static hk_status take_stage(hki_queue *q, size_t n, hki_stage **out) {
    hki_stage *const s = &q->stages[q->next++ % HKI_N_STAGES];
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

hk_status hki_cuda_write_bytes(hki_queue *q, hki_loc to, const void *from,
                               size_t n) {
    HKI_TRY(take_over(q));
    for (size_t done = 0; done < n;) {
        const size_t piece =
            n - done < HKI_STAGE_BYTES ? n - done : HKI_STAGE_BYTES;
        hki_stage *s;
        HKI_TRY(take_stage(q, piece, &s));
        memcpy(s->host, (const char *)from + done, piece);
        HKI_TRY(hki_card_up(q->device->card, (char *)hki_cuda_at(to) + done,
                            s->host, piece));
        HKI_TRY(hki_mark_set(s->mark));
        done += piece;
    }
    return HK_OK;
}

hk_status hki_cuda_write_many(hki_queue *q, const hki_write *w, size_t n) {
    HKI_TRY(take_over(q));
    return hki_uploads_send(q->uploads, w, n, hki_cuda_at);
}

hk_status hki_cuda_host_alloc(hki_device *d, size_t bytes, void **out) {
    HKI_TRY(hki_card_alloc_host(d->card, bytes, out));
    memset(*out, 0, bytes);
    return HK_OK;
}

void hki_cuda_host_free(hki_device *d, void *p) {
    hki_card_free_host(d->card, p);
}

hk_status hki_cuda_read_bytes(hki_queue *q, void *to, hki_loc from, size_t n) {
    HKI_TRY(take_over(q));
    for (size_t done = 0; done < n;) {
        const size_t piece =
            n - done < HKI_STAGE_BYTES ? n - done : HKI_STAGE_BYTES;
        hki_stage *s;
        HKI_TRY(take_stage(q, piece, &s));
        HKI_TRY(hki_card_down(q->device->card, s->host,
                              (const char *)hki_cuda_at(from) + done, piece));
        HKI_TRY(hki_card_wait(q->device->card));
        HKI_TRY(hki_cuda_check_launched(q));
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
                                  hki_cuda_at(r[i].from), r[i].bytes));
    HKI_TRY(hki_card_wait(q->device->card));
    HKI_TRY(hki_cuda_check_launched(q));
    begin = 0;
    for (size_t i = 0; i < n; begin += r[i++].bytes)
        memcpy(r[i].to, (const char *)s->host + begin, r[i].bytes);
    return HK_OK;
}

hk_status hki_cuda_read_many(hki_queue *q, const hki_read *r, size_t n) {
    HKI_TRY(take_over(q));
    for (size_t i = 0, count, bytes; i < n; i += count) {
        count = reads_of_stage(r + i, n - i, &bytes);
        HKI_TRY(bytes > HKI_STAGE_BYTES
                    ? hki_cuda_read_bytes(q, r[i].to, r[i].from, r[i].bytes)
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
