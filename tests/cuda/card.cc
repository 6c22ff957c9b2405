// card.cc - a card played on the host: memory is the host's, launches run at
// once in the order they are asked for, products are three loops.
// HOOKE_PLAYED_CARDS is how many there are, 1 by default, and
// HOOKE_PLAYED_BYTES the most that one piece of their memory may have.
#include <csetjmp>
#include <memory>
#include <ucontext.h>
#include <vector>
#include "cuda/cuda_launch.h"
#include "backend/cuda/card.h"

thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

typedef std::function<void()> action;

// Something that a lane does, behind the first `count` of another one.
struct turn {
    action what;
    int other;
    size_t count;
};

struct hki_graph {
    std::vector<turn> lanes[HKI_GRAPH_LANES];
    unsigned launches;
};

static thread_local hki_graph *recording;
static thread_local int lane;

static void act(const action &a) {
    if (recording != nullptr)
        recording->lanes[lane].push_back(turn{a, lane, 0});
    else
        a();
}

// ---- launches -----------------------------------------------------------------

// The fibers of a block, which serve one block after the other. The first
// change to one is setcontext's, the others are jumps, which ask nothing of the
// kernel.
struct fiber {
    ucontext_t at;
    jmp_buf here;
    bool begun, over;
    char stack[64 << 10];
};

static thread_local jmp_buf conductor;
static thread_local fiber *running;
static thread_local const action *part;

void __syncthreads() {
    if (_setjmp(running->here) == 0)
        _longjmp(conductor, 1);
}

static void fiber_main() {
    for (;;) {
        (*part)();
        running->over = true;
        __syncthreads();
    }
}

static std::unique_ptr<fiber> make_fiber() {
    std::unique_ptr<fiber> f = std::make_unique<fiber>();
    getcontext(&f->at);
    f->at.uc_stack.ss_sp = f->stack;
    f->at.uc_stack.ss_size = sizeof f->stack;
    f->at.uc_link = nullptr;
    f->begun = false;
    makecontext(&f->at, fiber_main, 0);
    return f;
}

// Up to its next meeting, or its end.
static void go_on(fiber *f) {
    running = f;
    if (_setjmp(conductor) != 0)
        return;
    if (f->begun)
        _longjmp(f->here, 1);
    f->begun = true;
    setcontext(&f->at);
}

// On a card nobody knows who comes first: with HK_PLAYED_BACKWARDS in the
// environment blocks and threads come in the opposite order.
static thread_local bool backwards;

static unsigned turn_of(unsigned i, unsigned n) {
    return backwards ? n - 1 - i : i;
}

// Every fiber runs up to the next meeting before the first one goes on.
static void run_block_meeting(unsigned n, const action &thread) {
    static thread_local std::vector<std::unique_ptr<fiber>> fibers;
    while (fibers.size() < n)
        fibers.push_back(make_fiber());
    part = &thread;
    for (unsigned i = 0; i < n; i++)
        fibers[i]->over = false;
    for (bool left = true; left;) {
        left = false;
        for (unsigned i = 0; i < n; i++) {
            fiber *const f = fibers[turn_of(i, n)].get();
            if (f->over)
                continue;
            threadIdx = dim3(turn_of(i, n));
            go_on(f);
            left |= !f->over;
        }
    }
}

static void run_block(unsigned n, const action &thread) {
    for (unsigned i = 0; i < n; i++) {
        threadIdx = dim3(turn_of(i, n));
        thread();
    }
}

void hki_played_launch(dim3 blocks, dim3 threads, bool meeting,
                       const action &thread) {
    act([=] {
        gridDim = blocks;
        blockDim = threads;
        backwards = getenv("HK_PLAYED_BACKWARDS") != nullptr;
        for (unsigned z = 0; z < blocks.z; z++)
            for (unsigned y = 0; y < blocks.y; y++)
                for (unsigned x = 0; x < blocks.x; x++) {
                    blockIdx = dim3(turn_of(x, blocks.x), turn_of(y, blocks.y),
                                    turn_of(z, blocks.z));
                    (meeting ? run_block_meeting : run_block)(threads.x,
                                                              thread);
                }
    });
}

// ---- the card -----------------------------------------------------------------

struct hki_card {
    int number;
};

#define MOST_CARDS 16
static hki_card cards[MOST_CARDS];

static uint64_t setting(const char *name, uint64_t usual) {
    const char *const text = getenv(name);
    return text != nullptr ? strtoull(text, nullptr, 10) : usual;
}

hk_status hki_card_count(int *out) {
    *out =
        (int)std::min<uint64_t>(setting("HOOKE_PLAYED_CARDS", 1), MOST_CARDS);
    return *out > 0 ? HK_OK
                    : hki_fail(HK_E_BACKEND,
                               "cuda: the driver shows no device; --device cpu "
                               "needs none");
}

const char *hki_card_version(void) {
    return "played on the host";
}

hk_status hki_card_open(int number, hki_card **out) {
    int n;
    HKI_TRY(hki_card_count(&n));
    if (number < 0 || number >= n)
        return hki_fail(HK_E_NOT_FOUND, "cuda: no device %d of %d", number, n);
    cards[number].number = number;
    *out = &cards[number];
    return HK_OK;
}

hk_status hki_card_use(const hki_card *c) {
    (void)c;
    return HK_OK;
}

void hki_card_get_info(const hki_card *c, hki_card_info *out) {
    (void)c;
    *out = hki_card_info{"host", 0, 0, 9, 0, 1};
}

hk_status hki_card_alloc(hki_card *c, size_t bytes, void **out) {
    if (bytes > setting("HOOKE_PLAYED_BYTES", UINT64_MAX))
        return hki_fail(HK_E_NO_MEMORY,
                        "cuda: device %d (played) has no room for %zu bytes: a "
                        "smaller batch or fewer workers on it would do, or "
                        "--device cpu",
                        c->number, bytes);
    *out = aligned_alloc(256, (bytes + 255) / 256 * 256 + 256);
    if (*out == nullptr)
        return hki_fail(HK_E_NO_MEMORY, "cuda: no %zu bytes", bytes);
    memset(*out, 0, bytes);
    return HK_OK;
}

void hki_card_free(hki_card *c, void *p) {
    (void)c;
    free(p);
}

hk_status hki_card_alloc_host(hki_card *c, size_t bytes, void **out) {
    return hki_card_alloc(c, bytes, out);
}

void hki_card_free_host(hki_card *c, void *p) {
    hki_card_free(c, p);
}

hk_status hki_card_pin(hki_card *c, void *host, size_t bytes) {
    (void)c;
    (void)host;
    return bytes <= setting("HOOKE_PLAYED_BYTES", UINT64_MAX)
               ? HK_OK
               : hki_fail(HK_E_NO_MEMORY, "cuda: %zu bytes are not pinned",
                          bytes);
}

void hki_card_unpin(hki_card *c, void *host) {
    (void)c;
    (void)host;
}

static hk_status copy(void *to, const void *from, size_t n) {
    act([=] { memmove(to, from, n); });
    return HK_OK;
}

hk_status hki_card_up(hki_card *c, void *to, const void *from, size_t n) {
    (void)c;
    return copy(to, from, n);
}

hk_status hki_card_down(hki_card *c, void *to, const void *from, size_t n) {
    (void)c;
    return copy(to, from, n);
}

hk_status hki_card_move(hki_card *c, void *to, const void *from, size_t n) {
    (void)c;
    return copy(to, from, n);
}

hk_status hki_card_zero(hki_card *c, void *at, size_t n) {
    (void)c;
    act([=] { memset(at, 0, n); });
    return HK_OK;
}

hk_status hki_card_wait(hki_card *c) {
    (void)c;
    return HK_OK;
}

hk_status hki_card_wait_all(hki_card *c) {
    (void)c;
    return HK_OK;
}

hk_status hki_card_wait_for(hki_card *c, const uint64_t *at, uint64_t value) {
    (void)c;
    return *at >= value
               ? HK_OK
               : hki_fail(HK_E_BACKEND, "cuda: a run ended without a value");
}

hk_status hki_card_check(hki_card *c, const char *what) {
    (void)c;
    (void)what;
    return HK_OK;
}

struct hki_mark {
    int lane;
    size_t count; // of the lane's turns
};

hk_status hki_mark_create(hki_card *c, hki_mark **out) {
    (void)c;
    return hki_zalloc_array(1, sizeof **out, out);
}

void hki_mark_destroy(hki_mark *m) {
    hki_free(m);
}

hk_status hki_mark_set(hki_mark *m) {
    m->lane = lane;
    m->count = recording != nullptr ? recording->lanes[lane].size() : 0;
    return HK_OK;
}

// Outside of a recording all is over already.
hk_status hki_mark_follow(hki_mark *m) {
    if (recording != nullptr)
        recording->lanes[lane].push_back(turn{[] {}, m->lane, m->count});
    return HK_OK;
}

hk_status hki_mark_wait(hki_mark *m) {
    (void)m;
    return HK_OK;
}

struct hki_side {
    int unused;
};

hk_status hki_side_create(hki_card *c, hki_side **out) {
    (void)c;
    return hki_zalloc_array(1, sizeof **out, out);
}

void hki_side_destroy(hki_side *s) {
    hki_free(s);
}

hk_status hki_side_up(hki_side *s, void *to, const void *from, size_t n) {
    (void)s;
    memcpy(to, from, n);
    return HK_OK;
}

hk_status hki_side_mark(hki_side *s, hki_mark *m) {
    (void)s;
    return hki_mark_set(m);
}

// ---- graphs -------------------------------------------------------------------

// Nobody knows which lane is ahead: from launch to launch it is the first or
// the last one that can go on which does, as far as it can.
hk_status hki_graph_begin(hki_card *c) {
    (void)c;
    recording = new hki_graph{};
    return HK_OK;
}

void hki_graph_lane(hki_card *c, int to) {
    (void)c;
    lane = to;
}

hk_status hki_graph_end(hki_card *c, hki_graph **out) {
    (void)c;
    *out = recording;
    recording = nullptr;
    return HK_OK;
}

// One turn of a lane; false: it is over, or waits.
static bool go_on_in(const hki_graph *g, int l, size_t *done) {
    if (done[l] == g->lanes[l].size())
        return false;
    const turn &t = g->lanes[l][done[l]];
    if (t.other != l && done[t.other] < t.count)
        return false;
    t.what();
    done[l]++;
    return true;
}

hk_status hki_graph_launch(hki_card *c, hki_graph *g) {
    size_t done[HKI_GRAPH_LANES] = {}, left = 0;
    const bool last_first = g->launches++ % 2 == 1;
    (void)c;
    for (const std::vector<turn> &l : g->lanes)
        left += l.size();
    while (left > 0) {
        int l = 0;
        while (l < HKI_GRAPH_LANES &&
               !go_on_in(g, last_first ? HKI_GRAPH_LANES - 1 - l : l, done))
            l++;
        if (l == HKI_GRAPH_LANES)
            return hki_fail(HK_E_BACKEND, "cuda: lanes wait for each other");
        left--;
    }
    return HK_OK;
}

void hki_graph_destroy(hki_graph *g) {
    delete g;
}

// ---- products -----------------------------------------------------------------

struct hki_product_plan {
    hki_product p;
};

hk_status hki_product_create(hki_card *c, const hki_product *p,
                             hki_product_plan **out) {
    (void)c;
    HKI_TRY(hki_zalloc_array(1, sizeof **out, out));
    (*out)->p = *p;
    return HK_OK;
}

void hki_product_destroy(hki_product_plan *p) {
    hki_free(p);
}

size_t hki_product_scratch(const hki_product_plan *p) {
    (void)p;
    return 64;
}

// Factor i; of bfloat16 the upper half of a float.
static double factor(const hki_product *p, const void *x, int64_t i) {
    if (p->precision != HK_PRECISION_BF16)
        return (double)((const float *)x)[i];
    const uint32_t bits = (uint32_t)((const uint16_t *)x)[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

// The n-th: stride_a and stride_b further.
static void multiply(const hki_product *p, int64_t n, const void *a,
                     const void *b, const float *bias, float *c) {
    const int64_t at_a = n * p->stride_a, at_b = n * p->stride_b;
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double sum = p->bias ? (double)bias[j] : 0;
            for (int64_t k = 0; k < p->k; k++)
                sum +=
                    factor(p, a,
                           at_a + (p->trans_a ? k * p->m + i : i * p->k + k)) *
                    factor(p, b,
                           at_b + (p->trans_b ? j * p->k + k : k * p->n + j));
            c[i * p->n + j] = p->relu && sum < 0 ? 0 : (float)sum;
        }
}

hk_status hki_product_run(const hki_product_plan *plan, const void *a,
                          const void *b, const float *bias, float *c,
                          void *scratch) {
    const hki_product p = plan->p;
    if ((uintptr_t)scratch % 256 != 0) // as on a card
        return hki_fail(HK_E_BACKEND, "cuda: scratch of a product at %p",
                        scratch);
    act([=] {
        for (int64_t i = 0; i < p.batch; i++)
            multiply(&p, i, a, b, bias, c + i * p.stride_c);
    });
    return HK_OK;
}

// ---- convolutions -------------------------------------------------------------

struct hki_conv_plan {
    hki_conv d;
};

// Takes odd numbers of images only, so that our own kernels run as well.
hk_status hki_conv_create(hki_card *c, const hki_conv *d, hki_conv_plan **out) {
    (void)c;
    *out = nullptr;
    if (d->n % 2 == 0)
        return HK_OK;
    HKI_TRY(hki_zalloc_array(1, sizeof **out, out));
    (*out)->d = *d;
    return HK_OK;
}

void hki_conv_destroy(hki_conv_plan *p) {
    hki_free(p);
}

size_t hki_conv_scratch(const hki_conv_plan *p) {
    (void)p;
    return 100;
}

// Calls with the places of x, w and y of every product of channels.
template <typename F>
static void for_each_product(const hki_conv *d, int64_t window, F f) {
    const int oc = (int)(window % d->oc), ow = (int)(window / d->oc % d->ow);
    const int64_t line = window / d->oc / d->ow;
    const int oh = (int)(line % d->oh);
    const int64_t image = line / d->oh;
    const int channels = d->c / d->groups, group = oc / (d->oc / d->groups);
    for (int i = 0; i < d->kh * d->kw; i++) {
        const int h = oh * d->sh - d->top + i / d->kw * d->dh;
        const int w = ow * d->sw - d->left + i % d->kw * d->dw;
        if (h < 0 || h >= d->h || w < 0 || w >= d->w)
            continue;
        const int64_t x = ((image * d->h + h) * d->w + w) * d->c;
        for (int j = 0; j < channels; j++)
            f(x + group * channels + j,
              ((int64_t)oc * d->kh * d->kw + i) * channels + j, window);
    }
}

static void convolve(const hki_conv *d, const float *a, const float *b,
                     float *to) {
    const int64_t windows = (int64_t)d->n * d->oh * d->ow * d->oc;
    const int64_t n_x = (int64_t)d->n * d->h * d->w * d->c;
    const int64_t n_w = (int64_t)d->oc * d->kh * d->kw * (d->c / d->groups);
    std::vector<double> sum((size_t)(d->way == HKI_CONV_FORWARD ? windows
                                     : d->way == HKI_CONV_INPUT ? n_x
                                                                : n_w));
    for (int64_t i = 0; i < windows; i++)
        for_each_product(d, i, [&](int64_t x, int64_t w, int64_t y) {
            if (d->way == HKI_CONV_FORWARD)
                sum[(size_t)y] += (double)a[x] * (double)b[w];
            else if (d->way == HKI_CONV_INPUT)
                sum[(size_t)x] += (double)a[y] * (double)b[w];
            else
                sum[(size_t)w] += (double)a[x] * (double)b[y];
        });
    for (size_t i = 0; i < sum.size(); i++)
        to[i] = (float)sum[i];
}

hk_status hki_conv_run(const hki_conv_plan *p, const float *a, const float *b,
                       float *to, void *scratch) {
    const hki_conv d = p->d;
    (void)scratch;
    act([=] { convolve(&d, a, b, to); });
    return HK_OK;
}
