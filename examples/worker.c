// worker.c - a training loop of its own that learns together with others.
//
//   worker                 starts a center in this process and trains alone
//   worker ADDRESS [KEY]   trains with a center elsewhere, with whoever else
//                          does: hooke center --listen ADDRESS --key KEY
//
// The model is one plain vector: y = w . x, fitted to examples that only this
// process sees. Every ten steps it and the center pull each other together.
#include <stdio.h>
#include <stdlib.h>
#include "hooke/cluster.h"

#define N 16 // parameters

static void check(hk_status s) {
    if (s == HK_OK)
        return;
    fprintf(stderr, "worker: %s\n", hk_last_error());
    exit(1);
}

static float noise(void) {
    static unsigned long long state = 88172645463325252ull;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (float)(state % 2001) / 1000 - 1;
}

// One step of gradient descent on one example; gives its squared error.
static float train_step(float *w) {
    float x[N], y = 0, seen = 0;
    for (int i = 0; i < N; i++) {
        x[i] = noise();
        y += w[i] * x[i];
        seen += (float)(i % 5) * x[i]; // the truth: w[i] = i mod 5
    }
    for (int i = 0; i < N; i++)
        w[i] -= 0.05f * (y - seen) * x[i];
    return (y - seen) * (y - seen);
}

int main(int argc, char **argv) {
    hk_center_server *server = NULL;
    const char *address = argc > 1 ? argv[1] : "127.0.0.1:0";
    if (argc < 2) {
        hk_center_server_options so;
        hk_center_server_options_init(&so, sizeof so);
        so.addresses = &address;
        so.n_addresses = 1;
        check(hk_center_server_start(&so, &server));
        address = hk_center_server_address(server, 0);
    }
    hk_key key;
    if (argc > 2)
        check(hk_key_load(argv[2], &key));
    hk_connect_options co;
    hk_connect_options_init(&co, sizeof co);
    co.addresses = &address;
    co.n_addresses = 1;
    co.key = argc > 2 ? &key : NULL;
    hk_worker_options wo;
    hk_worker_options_init(&wo, sizeof wo);
    wo.connect = &co;
    wo.num_worker = 4;

    float w[N] = {0};
    hk_worker *worker;
    check(hk_worker_open(&wo, w, N, &worker)); // w is the center's now
    float error = 0;
    for (int step = 1; step <= 2000; step++) {
        error += train_step(w);
        if (step % 10 == 0)
            check(hk_worker_exchange(worker, w, 10));
        if (step % 500 == 0) {
            printf("worker %d, step %d: error %.6f\n", hk_worker_id(worker),
                   step, (double)error / 500);
            error = 0;
        }
    }
    hk_worker_close(worker);
    hk_center_server_stop(server);
    return w[4] > 3.9f && w[4] < 4.1f ? 0 : 1;
}
