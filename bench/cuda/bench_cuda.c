// bench_cuda.c - Hooke's side of the benchmark on graphics cards.
//
//     bench_cuda BACKEND serve               reads `loop case precision iters`
//                                            on stdin, answers milliseconds
//     bench_cuda BACKEND dump CASE PRECISION FILE   inputs, weights, loss and
//                                            gradients, for peer_step.py
//     bench_cuda BACKEND kernels CASE PRECISION N   time of each kernel
//
// BACKEND is cuda, or cuda-played to try this without a card; PRECISION tf32 or
// fp32. Loops: `step` trains as a program does, its batch goes up in every
// step; in `still` the batch stays on the card; `launch` only launches what was
// recorded, forward and backward pass, without the optimizer.
//
// No event is recorded: it is the clock of the host over many launches, with
// one wait at the end.
#include "graph/session_state.h"
#include "hooke/train.h"
#include "tensor_file.h"

static double now_ms(void) {
    return seconds_of(CLOCK_MONOTONIC) * 1e3;
}

static bool read_precision(const char *name, hk_precision *out) {
    static const char *const names[] = {[HK_PRECISION_TF32] = "tf32",
                                        [HK_PRECISION_FP32] = "fp32",
                                        [HK_PRECISION_BF16] = "bf16"};
    for (int i = HK_PRECISION_TF32; i <= HK_PRECISION_BF16; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (hk_precision)i;
            return true;
        }
    return false;
}

// ---- one network on a card ----------------------------------------------------

typedef struct card_net {
    net n;
    hk_trainer *trainer;
} card_net;

static void open_net(hk_context *ctx, const bench_case *c,
                     const net_place *place, card_net *out) {
    net_open(ctx, c, place, &out->n);
    hk_trainer_options o;
    hk_trainer_options_init(&o, sizeof o);
    o.session = out->n.session;
    o.optimizer = out->n.opt;
    OK(hk_trainer_create(&o, &out->trainer));
}

static void close_net(card_net *c) {
    if (c->trainer == NULL)
        return;
    hk_trainer_destroy(c->trainer);
    net_close(&c->n);
    *c = (card_net){0};
}

// Waits for all that was asked for.
static void wait_for(hk_session *s) {
    const void *at;
    double stage;
    OK(hki_session_look(s, s->plan->loss, s->plan->float_bytes, &stage, &at));
}

static void launch(hk_session *s, hki_captured *c) {
    const hki_backend *const be = s->plan->backend;
    size_t failed;
    OK(be->queue_begin(s->queue, 1, s->step));
    OK(be->plan_launch(s->queue, c, &failed));
    OK(be->queue_end(s->queue));
}

static void loop_step(card_net *c, int iters) {
    for (int i = 0; i < iters; i++)
        OK(hk_trainer_step(c->trainer, NULL));
}

// A slot without memory of its own has nothing that goes up; kernels know where
// the batch is since the first run.
static void loop_still(card_net *c, int iters) {
    hk_session *const s = c->n.session;
    hki_buffer *own[TABLES + 2] = {0};
    for (size_t i = 0; i < s->plan->n_inputs; i++) {
        own[i] = s->inputs[i].own;
        s->inputs[i].own = NULL;
    }
    loop_step(c, iters);
    for (size_t i = 0; i < s->plan->n_inputs; i++)
        s->inputs[i].own = own[i];
}

static void loop_launch(card_net *c, int iters) {
    for (int i = 0; i < iters; i++)
        launch(c->n.session, c->n.session->captured);
}

// ---- answers ------------------------------------------------------------------

static const struct {
    const char *name;
    void (*run)(card_net *c, int iters);
} loops[] = {
    {"step", loop_step}, {"still", loop_still}, {"launch", loop_launch}};

// One line; false: it makes no sense.
static bool answer(hk_context *ctx, const char *backend, const char *line,
                   card_net *c) {
    char what[16], name[32], precision[16];
    int iters;
    bench_case wanted;
    net_place place = {.threads = 1, .backend = backend};
    if (sscanf(line, "%15s %31s %15s %d", what, name, precision, &iters) != 4 ||
        iters < 1 || !find_case(name, &wanted) ||
        !read_precision(precision, &place.precision))
        return false;
    if (c->trainer == NULL || strcmp(c->n.c.name, name) != 0 ||
        c->n.place.precision != place.precision) {
        close_net(c);
        open_net(ctx, &wanted, &place, c);
        loop_step(c, 1);
    }
    for (size_t i = 0; i < sizeof loops / sizeof *loops; i++)
        if (strcmp(loops[i].name, what) == 0) {
            wait_for(c->n.session);
            const double t0 = now_ms();
            loops[i].run(c, iters);
            wait_for(c->n.session);
            fprintf(stdout, "%.6f\n", (now_ms() - t0) / iters);
            return true;
        }
    return false;
}

static int serve(hk_context *ctx, const char *backend) {
    char line[256];
    card_net c = {0};
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (!answer(ctx, backend, line, &c))
            fprintf(stdout, "error: expected a loop, a case, a precision and "
                            "iterations\n");
        fflush(stdout);
    }
    close_net(&c);
    return 0;
}

// ---- single kernels -----------------------------------------------------------

enum {
    REPEATS = 32 // of a kernel in one recorded piece
};

// Microseconds of one kernel among its like.
static double kernel_us(hk_session *s, size_t step, int launches) {
    const hki_backend *const be = s->plan->backend;
    hki_kernel_call calls[REPEATS];
    hki_captured *piece;
    for (int i = 0; i < REPEATS; i++)
        calls[i] = s->calls[step];
    OK(be->queue_begin(s->queue, 1, s->step));
    OK(be->plan_capture(s->queue, calls, REPEATS, NULL, &piece));
    OK(be->queue_end(s->queue));
    launch(s, piece);
    wait_for(s);
    const double t0 = now_ms();
    for (int i = 0; i < launches; i++)
        launch(s, piece);
    wait_for(s);
    const double ms = now_ms() - t0;
    be->plan_release(piece);
    return ms * 1e3 / launches / REPEATS;
}

static int kernels(hk_context *ctx, const bench_case *k, const net_place *place,
                   int launches) {
    card_net c = {0};
    open_net(ctx, k, place, &c);
    loop_step(&c, 1);
    hk_session *const s = c.n.session;
    const hk_plan *const p = s->plan;
    double sum = 0;
    for (size_t i = 0; i < p->n_steps; i++) {
        const double us = kernel_us(s, i, launches);
        char shape[HKI_SHAPE_TEXT];
        sum += us;
        fprintf(stdout, "%9.2f us  %-36s %-20s %s\n", us,
                p->steps[i].call->name,
                hki_shape_text(p->steps[i].call->out[0].shape, shape),
                p->backend->kernel_note(p->steps[i].kernel));
    }
    fprintf(stdout, "%9.2f us  %zu kernels of %s\n", sum, p->n_steps, k->name);
    close_net(&c);
    return 0;
}

static int usage(void) {
    fprintf(stderr, "usage: bench_cuda BACKEND serve | dump CASE PRECISION "
                    "FILE | kernels CASE PRECISION N\n");
    return 2;
}

int main(int argc, char **argv) {
    hk_context *ctx;
    net_place place = {.threads = 1};
    bench_case c;
    if (argc == 3 && strcmp(argv[2], "serve") == 0) {
        OK(hk_context_create(NULL, &ctx));
        const int rc = serve(ctx, argv[1]);
        hk_context_destroy(ctx);
        return rc;
    }
    if (argc != 6 || !find_case(argv[3], &c) ||
        !read_precision(argv[4], &place.precision))
        return usage();
    place.backend = argv[1];
    OK(hk_context_create(NULL, &ctx));
    int rc = 2;
    if (strcmp(argv[2], "dump") == 0)
        rc = dump(ctx, argv[3], argv[5], &place);
    else if (strcmp(argv[2], "kernels") == 0 && atol(argv[5]) > 0)
        rc = kernels(ctx, &c, &place, (int)atol(argv[5]));
    hk_context_destroy(ctx);
    return rc;
}
