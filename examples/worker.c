// worker.c - a training loop of its own that learns together with others:
// y = w . x over plain floats, no graph.
//
//   worker                 starts a center in this process and trains alone
//   worker ADDRESS [KEY]   with a center elsewhere and whoever else comes:
//                          hooke center --listen ADDRESS --key KEY
#include <stdio.h>
#include <stdlib.h>
#include "hooke/cluster.h"
#include "hooke/center_server.h"

#define N 16 // parameters

static void check(hk_status s) {
    if (s == HK_OK)
        return;
    fprintf(stderr, "worker: %s\n", hk_last_error());
    exit(1);
}

// One step on one random example, which is generated with w[i] = i mod 5.
static void train_step(float *w) {
    float x[N], error = 0;
    for (int i = 0; i < N; i++) {
        x[i] = (float)rand() / (float)RAND_MAX * 2 - 1;
        error += (w[i] - (float)(i % 5)) * x[i];
    }
    for (int i = 0; i < N; i++)
        w[i] -= 0.05f * error * x[i];
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
    for (int step = 1; step <= 2000; step++) {
        train_step(w);
        if (step % 10 == 0)
            check(hk_worker_exchange(worker, w, 10));
    }
    hk_elastic_info info;
    check(hk_elastic_get_info(hk_worker_elastic(worker), &info));
    printf("worker %d: learned weight w[4] = %.4f (the examples were generated "
           "with 4)\n",
           info.worker, (double)w[4]);
    hk_worker_close(worker);
    hk_center_server_stop(server);
    return w[4] > 3.9f && w[4] < 4.1f ? 0 : 1;
}
