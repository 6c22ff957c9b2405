// bench_cuda.c - Hooke's side of the benchmark on graphics cards.
//
//     bench_cuda BACKEND serve               reads `loop case precision iters`
//                                            on stdin, answers milliseconds
//     bench_cuda BACKEND dump CASE PRECISION FILE   inputs, weights, loss and
//                                            gradients, for peer_step.py
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
#include "precision.h"

static double now_ms(void) {
    return seconds_of(CLOCK_MONOTONIC) * 1e3;
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

static int usage(void) {
    fprintf(stderr,
            "usage: bench_cuda BACKEND serve | dump CASE PRECISION FILE\n");
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
    if (argc != 6 || strcmp(argv[2], "dump") != 0 || !find_case(argv[3], &c) ||
        !read_precision(argv[4], &place.precision))
        return usage();
    place.backend = argv[1];
    OK(hk_context_create(NULL, &ctx));
    const int rc = dump(ctx, argv[3], argv[5], &place);
    hk_context_destroy(ctx);
    return rc;
}
