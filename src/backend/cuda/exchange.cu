// exchange.cu - exchanges of workers on cards with a center in host memory.
//
//     d = alpha (x - c);  c += d;  x -= d
//
// While workers of one card meet, the values are there: they go up with the
// first exchange after the host has looked at them, and come down when it looks
// again. Nobody waits on the host for an exchange: those of several streams
// come one behind the other by marks.
#include "backend/cuda/vectors/pieces.h"

#define MAX_CARDS 16
#define AT_ONCE 2 // fours of a thread that are on their way

struct hki_shared {
    float *host;
    size_t bytes;
    bool pinned;
    hki_card *card; // that has them, too; NULL: none has
    float *there;
    bool host_old;              // they are newer there
    bool card_old;              // the host may have changed them
    hki_card *cards[MAX_CARDS]; // each with a mark
    hki_mark *marks[MAX_CARDS];
    hki_mark *last; // behind the newest exchange; NULL: there was none
    hki_mutex lock; // of those who wait
};

// Down to the host, behind all exchanges.
static hk_status bring_down(hki_shared *s) {
    if (!s->host_old)
        return HK_OK;
    HKI_TRY(hki_card_use(s->card));
    HKI_TRY(hki_mark_follow(s->last));
    HKI_TRY(hki_card_down(s->card, s->host, s->there, s->bytes));
    HKI_TRY(hki_card_wait(s->card));
    s->host_old = false;
    return HK_OK;
}

hk_status hki_cuda_shared_wait(hki_shared *s) {
    hki_mutex_lock(&s->lock);
    const hk_status st = bring_down(s);
    s->card_old = true;
    hki_mutex_unlock(&s->lock);
    return st;
}

static void leave_card(hki_shared *s) {
    if (s->card != NULL)
        hki_card_free(s->card, s->there);
    if (s->pinned)
        hki_card_unpin(s->card, s->host);
    s->card = NULL;
    s->there = NULL;
    s->pinned = false;
}

void hki_cuda_shared_destroy(hki_shared *s) {
    if (s == NULL)
        return;
    (void)bring_down(s);
    leave_card(s);
    for (int i = 0; i < MAX_CARDS; i++)
        hki_mark_destroy(s->marks[i]);
    hki_mutex_deinit(&s->lock);
    hki_free(s);
}

// The values live beside the workers of this card from now on. Copies of
// memory that cannot be pinned are only slower.
static hk_status move_to(hki_shared *s, hki_card *card) {
    void *there;
    if (s->card == card)
        return HK_OK;
    HKI_TRY(bring_down(s));
    HKI_TRY(hki_card_alloc(card, s->bytes, &there));
    leave_card(s);
    s->card = card;
    s->there = (float *)there;
    s->card_old = true;
    s->pinned = hki_card_pin(card, s->host, s->bytes) == HK_OK;
    return HK_OK;
}

hk_status hki_cuda_shared_create(hki_device *d, void *host, size_t bytes,
                                 hki_shared **out) {
    hki_shared *s;
    HKI_TRY(hki_zalloc_array(1, sizeof *s, &s));
    s->host = (float *)host;
    s->bytes = bytes;
    hki_mutex_init(&s->lock);
    const hk_status st = move_to(s, d->card);
    if (st != HK_OK) {
        hki_cuda_shared_destroy(s);
        return st;
    }
    *out = s;
    return HK_OK;
}

// The mark of a card, made when it comes for the first time.
static hk_status mark_of(hki_shared *s, hki_card *card, hki_mark **out) {
    int i = 0;
    while (i < MAX_CARDS && s->cards[i] != NULL && s->cards[i] != card)
        i++;
    if (i == MAX_CARDS)
        return hki_fail(HK_E_BACKEND,
                        "cuda: a center can have at most %d devices",
                        MAX_CARDS);
    if (s->marks[i] == NULL)
        HKI_TRY(hki_mark_create(card, &s->marks[i]));
    s->cards[i] = card;
    *out = s->marks[i];
    return HK_OK;
}

// On the calling thread's stream, behind the exchanges so far.
static hk_status bring_up(hki_shared *s, hki_card *card) {
    HKI_TRY(move_to(s, card));
    if (s->last != NULL)
        HKI_TRY(hki_mark_follow(s->last));
    if (!s->card_old)
        return HK_OK;
    HKI_TRY(hki_card_up(card, s->there, s->host, s->bytes));
    // The host may change them as soon as it waits, which is behind this.
    s->card_old = false;
    return HK_OK;
}

typedef struct meeting {
    float *x, *c, *diff, *view;
    const float *before;
    double (*sums)[3]; // per block; NULL: nobody looks
    float alpha;
    int wide; // all of them begin where fours do
} meeting;

// What is seen of one element.
HKI_ON_CARD void add_seen(float x, const float *before, float away,
                          double *sum) {
    sum[0] += (double)away * (double)away;
    if (before != NULL) {
        const double step = (double)__fadd_rn(x, -*before);
        sum[1] -= step * (double)away;
        sum[2] += step * step;
    }
}

// Without fma: the bits of the formula.
HKI_ON_CARD void meet(const meeting *m, const hki_four &f, const float x[4],
                      const float c[4], double *sum) {
    float away[4], d[4], to_x[4], to_c[4], before[4];
    HKI_FOR (i, 4) {
        away[i] = __fadd_rn(x[i], -c[i]);
        d[i] = __fmul_rn(m->alpha, away[i]);
        to_x[i] = __fadd_rn(x[i], -d[i]);
        to_c[i] = __fadd_rn(c[i], d[i]);
    }
    if (m->view != NULL)
        hki_store_four(m->view, c, f);
    hki_store_four(m->diff != NULL ? m->diff : m->x, m->diff != NULL ? d : to_x,
                   f);
    hki_store_four(m->c, to_c, f);
    if (m->sums == NULL)
        return;
    if (m->before != NULL)
        hki_load_four(before, m->before, f);
    HKI_FOR (i, 4)
        add_seen(x[i], m->before != NULL ? &before[i] : NULL, away[i], sum);
}

HKI_KERNEL void exchange_span(const meeting m, int64_t begin, int64_t end) {
    double sum[3] = {0, 0, 0};
    const int64_t all = (int64_t)gridDim.x * HKI_TILE;
    for (int64_t at = begin / 4 * 4 + 4 * hki_self(); at < end;
         at += AT_ONCE * all) {
        hki_four f[AT_ONCE];
        float x[AT_ONCE][4], c[AT_ONCE][4];
        HKI_FOR (k, AT_ONCE) {
            f[k] = hki_four_at(at + k * all, begin, end, m.wide);
            hki_load_four(x[k], m.x, f[k]);
            hki_load_four(c[k], m.c, f[k]);
        }
        HKI_FOR (k, AT_ONCE)
            meet(&m, f[k], x[k], c[k], sum);
    }
    for (int k = 0; m.sums != NULL && k < 3; k++) {
        const double whole = hki_block_sum(sum[k]);
        if (threadIdx.x == 0)
            m.sums[blockIdx.x][k] += whole;
    }
}

HKI_KERNEL void clear_sums(double (*sums)[3]) {
    sums[blockIdx.x][threadIdx.x] = 0;
}

HKI_KERNEL void copy_span(float *c, const float *x, int64_t begin,
                          int64_t end) {
    const int64_t all = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = begin + hki_self(); i < end; i += all)
        c[i] = x[i];
}

static void launch_spans(const hki_exchange_job *j, const meeting *m) {
    for (size_t i = 0; i < j->n_spans; i++) {
        const hki_exchange_span *const s = &j->spans[i];
        const unsigned tiles = hki_piece_blocks(s->begin, s->end, HKI_TILE);
        const unsigned blocks =
            tiles < HKI_EXCHANGE_BLOCKS ? tiles : HKI_EXCHANGE_BLOCKS;
        if (s->begin >= s->end)
            continue;
        if (s->copied)
            HKI_LAUNCH(copy_span, blocks, HKI_THREADS, m->c,
                       (const float *)m->x, s->begin, s->end);
        else
            HKI_LAUNCH_MEETING(exchange_span, blocks, HKI_THREADS, *m, s->begin,
                               s->end);
    }
}

static hk_status meeting_of(const hki_place *p, const hki_exchange_job *j,
                            meeting *m) {
    m->x = j->x;
    m->c = j->shared->there;
    m->diff = j->diff;
    m->view = j->view;
    m->before = j->before;
    m->alpha = j->alpha;
    m->wide =
        hki_by_fours(m->x, m->c, m->diff, m->view) && hki_by_fours(m->before);
    if (!j->observed)
        return HK_OK;
    hki_exchange_sums *sums;
    HKI_TRY(hki_cuda_exchange_place(p, &sums));
    m->sums = *sums;
    HKI_LAUNCH(clear_sums, HKI_EXCHANGE_BLOCKS, 3, m->sums);
    return HK_OK;
}

hk_status hki_cuda_exchange(const hki_place *p, const hki_exchange_job *j) {
    hki_card *const card = p->device->card;
    meeting m = {};
    hki_mark *mark;
    HKI_TRY(hki_cuda_enter(p));
    HKI_TRY(mark_of(j->shared, card, &mark));
    HKI_TRY(bring_up(j->shared, card));
    HKI_TRY(meeting_of(p, j, &m));
    launch_spans(j, &m);
    j->shared->host_old = true;
    HKI_TRY(hki_card_check(card, "an exchange"));
    HKI_TRY(hki_mark_set(mark));
    j->shared->last = mark;
    return HK_OK;
}

hk_status hki_cuda_exchange_sums(const hki_place *p, double sums[3]) {
    hki_exchange_sums *all;
    HKI_TRY(hki_cuda_enter(p));
    HKI_TRY(hki_cuda_exchange_place(p, &all));
    HKI_TRY(hki_card_wait(p->device->card));
    for (int k = 0; k < 3; k++) {
        sums[k] = 0;
        for (int i = 0; i < HKI_EXCHANGE_BLOCKS; i++)
            sums[k] += (*all)[i][k];
    }
    return HK_OK;
}
