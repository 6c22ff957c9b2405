// bench_step.c - Hooke's side of the step benchmark.
//
// Reads lines `case threads iters` on stdin and answers milliseconds per
// training step (session run + optimizer), as bench/peer_step.py does. 0
// threads: as many as the work is for.
//
//     bench_step dump CASE FILE       inputs, weights, loss and gradients
//     bench_step profile CASE THREADS time per node
//     bench_step plan CASE THREADS    the compiled plan
#include <time.h>
#include "tensor_file.h"

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void net_step(net *n) {
    hk_sparse_grad sparse[TABLES];
    OK(hk_session_run(n->session));
    hk_session_info info;
    hk_session_get_info(n->session, &info);
    for (size_t i = 0; i < info.sparse_count; i++)
        OK(hk_session_sparse_grad(n->session, i, &sparse[i]));
    const hk_grad_view g = {.dense = hk_session_grads(n->session),
                            .n_dense = info.grad_count,
                            .sparse = sparse,
                            .n_sparse = info.sparse_count,
                            .scale = 1.0};
    OK(hk_optimizer_apply(n->opt, hk_session_params(n->session), &g, n->step++,
                          NULL));
}

// ---- driver ---------------------------------------------------------------

static void write_out(void *user, const char *text) {
    (void)user;
    fputs(text, stdout);
}

static int inspect(hk_context *ctx, const char *what, const char *name,
                   uint32_t threads) {
    bench_case c;
    if (!find_case(name, &c)) {
        fprintf(stderr, "bench_step: no case %s\n", name);
        return 1;
    }
    net n;
    const net_place place = {.threads = threads, .profile = 1};
    net_open(ctx, &c, &place, &n);
    if (strcmp(what, "plan") == 0) {
        OK(hk_plan_dump(n.plan, write_out, NULL));
    } else {
        const int iters = 20;
        for (int i = 0; i < iters; i++)
            net_step(&n);
        printf("sum over %d steps\n", iters);
        OK(hk_session_profile(n.session, write_out, NULL));
    }
    net_close(&n);
    return 0;
}

static int serve(hk_context *ctx) {
    char line[256], name[64];
    unsigned threads;
    int iters;
    net n = {0};
    bench_case c;
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (sscanf(line, "%63s %u %d", name, &threads, &iters) != 3 ||
            !find_case(name, &c) || iters < 1) {
            printf("error: expected a case, threads and iterations\n");
            fflush(stdout);
            continue;
        }
        const net_place place = {.threads = threads};
        if (n.plan == NULL || strcmp(n.c.name, name) != 0 ||
            n.place.threads != threads) {
            if (n.plan != NULL)
                net_close(&n);
            net_open(ctx, &c, &place, &n);
        }
        net_step(&n);
        const double t0 = now_ms();
        for (int i = 0; i < iters; i++)
            net_step(&n);
        printf("%.6f\n", (now_ms() - t0) / iters);
        fflush(stdout);
    }
    if (n.plan != NULL)
        net_close(&n);
    return 0;
}

int main(int argc, char **argv) {
    hk_context *ctx;
    OK(hk_context_create(NULL, &ctx));
    int rc;
    if (argc == 4 && strcmp(argv[1], "dump") == 0)
        rc = dump(ctx, argv[2], argv[3], &(net_place){.threads = 1});
    else if (argc == 4 &&
             (strcmp(argv[1], "profile") == 0 || strcmp(argv[1], "plan") == 0))
        rc = inspect(ctx, argv[1], argv[2],
                     (uint32_t)strtoul(argv[3], NULL, 10));
    else
        rc = serve(ctx);
    hk_context_destroy(ctx);
    return rc;
}
