// work.c - what a plan has to do in one run, and how many threads that is for.
//
// As with kernels, shapes and ISA level decide and never a clock: one model has
// the same threads, and so the same bits, in every run. A run takes about
//
//     T(1) = W,    T(t) = W / t + n (b + c t)
//
// W: seconds on one thread of the n kernels that are split; b + c t: what the
// threads add to such a kernel, which waits for the last of them and finds its
// values in the caches of others. b and c are those of an MLP and a recommender
// with 2 to 16 threads on 16 cores. Long kernels hide them: a step that is long
// even on every core takes every core.
#include "graph/work.h"
#include "base/team.h"

// One thread of a server core, roughly: what matters is their proportion to
// SPLIT_SECONDS.
#define BYTES_PER_SECOND 12e9
#define SPLIT_SECONDS 12e-6 // c
#define BEGIN_SECONDS 10e-6 // b
#define LEAST_SECONDS 4e-6  // of a kernel that is worth splitting

// Of more threads that gain less than this, there are fewer.
#define WORTH 1.02

// A team of every core waits for the member whose core has other work: input,
// scoring. Only where a step takes longer than this on all of them, and those
// little against it, nothing is left to them.
#define LONG_SECONDS 5e-3
#define LONG_KERNEL 1e-3 // on one thread, the mean of them

static double flop_per_second(hk_isa isa) {
    return isa >= HK_ISA_V4 ? 150e9 : isa >= HK_ISA_V3 ? 80e9 : 20e9;
}

static double elements(const hk_node *x) {
    double n = 1;
    for (int i = 0; i < x->shape.rank; i++)
        n *= (double)x->shape.dim[i];
    return n;
}

double hki_call_flop(const hki_call *c) {
    return c->op->flop != NULL ? c->op->flop(c) : elements(&c->out[0]);
}

// Inputs count as far as they are read: of a table, some rows.
static double call_bytes(const hki_call *c) {
    double written = 0, read = 0;
    for (int i = 0; i < c->n_out; i++)
        written += elements(&c->out[i]);
    const double most = HKI_MAX(written, hki_call_flop(c));
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i] != NULL)
            read += HKI_MIN(most, elements(c->in[i]));
    return (written + read) * sizeof(float);
}

void hki_work_add(hki_work_sum *w, const hki_call *c, hk_isa isa, bool beside) {
    const double flop = hki_call_flop(c);
    const double seconds =
        flop / flop_per_second(isa) + call_bytes(c) / BYTES_PER_SECOND;
    w->flop += flop;
    if (seconds < LEAST_SECONDS && !beside)
        return;
    w->seconds += seconds;
    w->splits += !beside;
}

uint32_t hki_thread_limit(const hk_context *ctx) {
    return hki_team_share(hki_context_threads(ctx), 1);
}

static double run_seconds(const hki_work_sum *w, uint32_t threads) {
    if (threads == 1)
        return w->seconds;
    return w->seconds / threads +
           (double)w->splits * (BEGIN_SECONDS + SPLIT_SECONDS * threads);
}

// 1, 2, 4, 6, 8, 16, 32, ...: numbers that divide batches and channels well.
// Three are no faster than two in a small layer, and better than nothing where
// no fourth one is left.
static uint32_t more_threads(uint32_t t, uint32_t most) {
    if (t == 2 && most == 3)
        return 3;
    return t < 3 ? 2 * t : t == 4 ? 6 : t == 6 ? 8 : 2 * t;
}

uint32_t hki_work_threads(const hki_work_sum *w, uint32_t limit) {
    if (w->seconds >= limit * LONG_SECONDS &&
        w->seconds >= (double)w->splits * LONG_KERNEL)
        return limit;
    const uint32_t most = limit > 2 ? limit - 1 : limit;
    uint32_t best = 1;
    for (uint32_t t = 2; t <= most; t = more_threads(t, most))
        if (run_seconds(w, t) * WORTH < run_seconds(w, best))
            best = t;
    return best;
}
