// tensor_file.h - the file in which a network's gradients go to
// bench/peer_step.py. Included by one file per program.
#ifndef BENCH_TENSOR_FILE_H
#define BENCH_TENSOR_FILE_H
#include "models.h"

static void put(FILE *f, const char *prefix, const char *name,
                const char *dtype, int rank, const int64_t *dims,
                const void *data) {
    int64_t n = 1;
    fprintf(f, "%s%s %s %d", prefix, name, dtype, rank);
    for (int i = 0; i < rank; i++) {
        fprintf(f, " %lld", (long long)dims[i]);
        n *= dims[i];
    }
    fputc('\n', f);
    fwrite(data, 4, (size_t)n, f);
}

static void put_inputs(FILE *f, net *n) {
    hk_tensor *t;
    const int64_t b = n->c.batch;
    if (n->c.model == recommender) {
        int32_t *ids = malloc(sizeof *ids * (size_t)(TABLES * b * BAG));
        if (ids == NULL)
            exit(1);
        for (int i = 0; i < TABLES; i++) {
            char name[16];
            snprintf(name, sizeof name, "ids%d", i);
            OK(hk_session_input(n->session, name, &t));
            memcpy(ids + i * b * BAG, hk_tensor_data(t),
                   sizeof *ids * (size_t)(b * BAG));
        }
        put(f, "in/", "ids", "int32", 3, (int64_t[]){TABLES, b, BAG}, ids);
        free(ids);
        OK(hk_session_input(n->session, "dense", &t));
        put(f, "in/", "dense", "float32", 2, (int64_t[]){b, DENSE},
            hk_tensor_data(t));
        OK(hk_session_input(n->session, "labels", &t));
        put(f, "in/", "labels", "float32", 1, &b, hk_tensor_data(t));
        return;
    }
    OK(hk_session_input(n->session, "x", &t));
    put(f, "in/", "x", "float32", hk_tensor_shape(t).rank,
        hk_tensor_shape(t).dim, hk_tensor_data(t));
    OK(hk_session_input(n->session, "labels", &t));
    put(f, "in/", "labels", "int32", 1, &b, hk_tensor_data(t));
}

// Writes the results of the ReLUs of a ResNet: peer_step.py computes the exact
// gradient on the linear piece that these ReLUs chose. Among 11 million inputs
// of ReLUs some always lie within rounding of 0, and one of the other sign
// moves the gradients of a float32 program by 1 %.
static void put_relus(FILE *f, net *n) {
    hk_tensor *t;
    for (int i = 0; i < RESNET_RELUS; i++) {
        char name[16];
        snprintf(name, sizeof name, "relu%d", i);
        OK(hk_session_output(n->session, name, &t));
        put(f, "out/", name, "float32", hk_tensor_shape(t).rank,
            hk_tensor_shape(t).dim, hk_tensor_data(t));
    }
}

static int dump(hk_context *ctx, const char *name, const char *path,
                const net_place *place) {
    bench_case c;
    FILE *f = find_case(name, &c) ? fopen(path, "wb") : NULL;
    if (f == NULL) {
        fprintf(stderr, "bench: no case %s, or %s cannot be written\n", name,
                path);
        return 1;
    }
    net n;
    show_relus = true;
    net_open(ctx, &c, place, &n);
    hk_layout *l = hk_plan_layout(n.plan);
    put_inputs(f, &n);
    for (size_t i = 0; hk_layout_entry(l, i) != NULL; i++) {
        const hk_entry *e = hk_layout_entry(l, i);
        put(f, "var/", e->name, "float32", e->shape.rank, e->shape.dim,
            hk_session_params(n.session) + e->offset);
    }
    OK(hk_session_run(n.session));
    const float loss = hk_session_loss(n.session);
    put(f, "", "loss", "float32", 0, NULL, &loss);
    if (c.model == resnet20)
        put_relus(f, &n);
    for (size_t i = 0; hk_layout_entry(l, i) != NULL; i++) {
        const hk_entry *e = hk_layout_entry(l, i);
        if (e->kind == HK_TRAINABLE && !e->sparse)
            put(f, "grad/", e->name, "float32", e->shape.rank, e->shape.dim,
                hk_session_grads(n.session) + e->offset);
    }
    hk_session_info info;
    hk_session_get_info(n.session, &info);
    for (size_t i = 0; i < info.sparse_count; i++) {
        hk_sparse_grad g;
        OK(hk_session_sparse_grad(n.session, i, &g));
        int32_t *rows = malloc(sizeof *rows * (size_t)(g.count + 1));
        if (rows == NULL)
            exit(1);
        for (int64_t k = 0; k < g.count; k++)
            rows[k] = (int32_t)g.indices[k];
        put(f, "rows/", g.entry->name, "int32", 1, &g.count, rows);
        put(f, "grad/", g.entry->name, "float32", 2,
            (int64_t[]){g.count, g.dim}, g.rows);
        free(rows);
    }
    net_close(&n);
    return fclose(f) == 0 ? 0 : 1;
}

#endif // BENCH_TENSOR_FILE_H
