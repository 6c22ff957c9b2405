// bench_ladder.c - time of each kernel on a graphics card, by itself.
//
//     bench_ladder BACKEND steps CASE PRECISION MS   the kernels of a training
//                                            step, in their order
//     bench_ladder BACKEND vectors N MS      updates, norm and exchange of N
//                                            floats
//     bench_ladder BACKEND rows N MS         lazy Adam of N rows in each of
//                                            eight tables
//     bench_ladder BACKEND floors PRECISION BYTES SIDE MS   copies up to BYTES
//                                            and a product of SIDE x SIDE
//
// BACKEND is cuda, or cuda-played to try this without a card. One line for
// each, MS milliseconds of work, its fields between tabs:
//
//     operator  name  note  microseconds  bytes  flop  inputs  outputs
//     attributes  why
//
// Bytes are those that come and go when each value does so once: of a table
// what is looked up. Flop are counted of products only. A kernel that fails has
// no time; why says what was wrong, and the next one follows.
//
// A kernel runs among its like, and its values may be in the caches of the
// card; so may those of the copies it is compared with, which are as long.
#include "backend/vector.h"
#include "graph/session_state.h"
#include "graph/work.h"
#include "models.h"
#include "precision.h"

enum {
    REPEATS = 32,      // of a kernel in one recorded piece
    ROUNDS = 3,        // whose median counts
    MAX_LAUNCHES = 500 // in a round
};

// Whose work is timed.
typedef struct desk {
    const hki_backend *be;
    hki_device *device;
    hki_queue *queue;
    hki_buffer *probe; // what is read to wait for everything before
    double ms;
    int repeats; // at most REPEATS
} desk;

// The host plays a card slowly.
static int repeats_of(const char *backend) {
    return strcmp(backend, "cuda") == 0 ? REPEATS : 1;
}

static hk_status wait_for(const desk *d) {
    char seen;
    return d->be->read(d->queue, &seen, (hki_loc){d->probe, 0}, 1);
}

static void open_desk(const char *backend, hk_precision precision, desk *d) {
    const hki_device_options o = {
        .threads = 1, .isa = HK_ISA_BASE, .precision = precision};
    uint32_t n;
    OK(hki_backend_find(backend, &d->be));
    OK(d->be->device_count(&n));
    OK(d->be->device_open(&o, &d->device));
    OK(d->be->queue_create(d->device, &d->queue));
    OK(d->be->buffer_create(d->device, 256, &d->probe));
    d->repeats = repeats_of(backend);
}

static void close_desk(desk *d) {
    d->be->buffer_destroy(d->probe);
    d->be->queue_destroy(d->queue);
    d->be->device_close(d->device);
}

// ---- time -------------------------------------------------------------------

typedef hk_status (*work_fn)(const desk *d, void *user);

static hk_status round_us(const desk *d, work_fn work, void *user, int times,
                          double *us) {
    const double t0 = seconds_of(CLOCK_MONOTONIC);
    for (int i = 0; i < times; i++)
        HKI_TRY(work(d, user));
    HKI_TRY(wait_for(d));
    *us = (seconds_of(CLOCK_MONOTONIC) - t0) * 1e6 / times;
    return HK_OK;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Microseconds of one call, after two to warm up.
static hk_status time_of(const desk *d, work_fn work, void *user, double *us) {
    double of[ROUNDS];
    HKI_TRY(round_us(d, work, user, 1, us));
    HKI_TRY(round_us(d, work, user, 1, us));
    const double times = d->ms * 1e3 / ROUNDS / HKI_MAX(*us, 1e-3);
    const int launches = (int)HKI_MAX(1, HKI_MIN(times, MAX_LAUNCHES));
    for (int i = 0; i < ROUNDS; i++)
        HKI_TRY(round_us(d, work, user, launches, &of[i]));
    qsort(of, ROUNDS, sizeof *of, by_size);
    *us = of[ROUNDS / 2];
    return HK_OK;
}

// A kernel's calls as one recorded piece.
static hk_status record(const desk *d, const hki_kernel_call *call,
                        hki_captured **out) {
    hki_kernel_call calls[REPEATS];
    for (int i = 0; i < d->repeats; i++)
        calls[i] = *call;
    HKI_TRY(d->be->queue_begin(d->queue, 1, 1));
    const hk_status s =
        d->be->plan_capture(d->queue, calls, (size_t)d->repeats, NULL, out);
    const hk_status end = d->be->queue_end(d->queue);
    return s != HK_OK ? s : end;
}

static hk_status launch(const desk *d, void *user) {
    size_t failed;
    HKI_TRY(d->be->queue_begin(d->queue, 1, 1));
    const hk_status s = d->be->plan_launch(d->queue, user, &failed);
    const hk_status end = d->be->queue_end(d->queue);
    return s != HK_OK ? s : end;
}

static hk_status time_kernel(const desk *d, const hki_kernel_call *call,
                             double *us) {
    hki_captured *piece;
    HKI_TRY(record(d, call, &piece));
    const hk_status s = time_of(d, launch, piece, us);
    *us /= d->repeats;
    d->be->plan_release(piece);
    return s;
}

// ---- lines ------------------------------------------------------------------

// s: of what was timed. Fields of the call follow: put_call, put_nothing.
static void put_time(const char *op, const char *name, const char *note,
                     hk_status s, double us, double bytes, double flop) {
    fprintf(stdout, "%s\t%s\t%s\t", op, name, note);
    if (s == HK_OK)
        fprintf(stdout, "%.4f", us);
    fprintf(stdout, "\t%.0f\t%.0f\t", bytes, flop);
}

static void put_why(hk_status s) {
    fprintf(stdout, "\t%s\n", s == HK_OK ? "" : hk_last_error());
    fflush(stdout);
}

static void put_node(const hk_node *x) {
    char shape[HKI_SHAPE_TEXT];
    if (x == NULL)
        fprintf(stdout, "- ");
    else
        fprintf(stdout, "%s%s ", hk_dtype_name(x->dtype),
                hki_shape_text(x->shape, shape));
}

static void put_call(const hki_call *c) {
    const hki_attr *const a = &c->attr;
    for (int i = 0; i < c->n_in; i++)
        put_node(c->in[i]);
    fprintf(stdout, "\t");
    for (int i = 0; i < c->n_out; i++)
        put_node(&c->out[i]);
    fprintf(stdout,
            "\tmode=%d act=%d trans_a=%d trans_b=%d ksize=%d,%d stride=%d,%d "
            "pad=%d,%d,%d,%d",
            a->mode, a->act, a->trans_a, a->trans_b, a->ksize[0], a->ksize[1],
            a->stride[0], a->stride[1], a->pad[0], a->pad[1], a->pad[2],
            a->pad[3]);
}

static void put_plain(const char *op, const char *name, hk_status s, double us,
                      double bytes, double flop) {
    put_time(op, name, "", s, us, bytes, flop);
    fprintf(stdout, "\t\t");
    put_why(s);
}

// ---- kernels of a step ------------------------------------------------------

static double elements(const hk_node *x) {
    double n = 1;
    for (int i = 0; i < x->shape.rank; i++)
        n *= (double)x->shape.dim[i];
    return n;
}

// Elements of an input that are read: of a table some rows, else all.
static double elements_read(const hki_call *c, int i) {
    const hki_opcode op = c->op->code;
    if (op == HKI_OP_embedding_bag && i == HKI_BAG_TABLE)
        return elements(c->in[HKI_BAG_INDEX]) *
               (double)c->in[HKI_BAG_TABLE]->shape.dim[1];
    const bool some = op == HKI_OP_gather || op == HKI_OP_slice;
    return elements(some && i == 0 ? &c->out[0] : c->in[i]);
}

static double call_bytes(const hki_call *c) {
    double sum = 0;
    for (int i = 0; i < c->n_out; i++)
        sum += elements(&c->out[i]) * (double)hk_dtype_size(c->out[i].dtype);
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i] != NULL)
            sum += elements_read(c, i) * (double)hk_dtype_size(c->in[i]->dtype);
    return sum;
}

// Kernels leave what the next one needs: their values are those of a step.
static void put_step(const desk *d, const hk_session *s, size_t i) {
    const hki_step *const step = &s->plan->steps[i];
    const hki_call *const c = step->call;
    const bool product = c->op->flags & HKI_OP_IS_PRODUCT;
    double us = 0;
    const hk_status status = time_kernel(d, &s->calls[i], &us);
    put_time(c->op->name, c->name, d->be->kernel_note(step->kernel), status, us,
             call_bytes(c), product ? hki_call_flop(c) : 0);
    put_call(c);
    put_why(status);
}

static void put_steps(const char *backend, const char *name,
                      hk_precision precision, double ms) {
    const net_place place = {
        .threads = 1, .backend = backend, .precision = precision};
    hk_context *ctx;
    bench_case c;
    net n;
    if (!find_case(name, &c)) {
        fprintf(stderr, "bench_ladder: no case %s\n", name);
        exit(2);
    }
    OK(hk_context_create(NULL, &ctx));
    net_open(ctx, &c, &place, &n);
    OK(hk_session_run(n.session));
    desk d = {.be = n.plan->backend,
              .device = n.plan->device,
              .queue = n.session->queue,
              .ms = ms,
              .repeats = repeats_of(backend)};
    OK(d.be->buffer_create(d.device, 256, &d.probe));
    for (size_t i = 0; i < n.plan->n_steps; i++)
        put_step(&d, n.session, i);
    d.be->buffer_destroy(d.probe);
    net_close(&n);
    hk_context_destroy(ctx);
}

// ---- floors -----------------------------------------------------------------

// A kernel of two inputs at most and one output, outside of any plan.
typedef struct lone {
    hki_kernel *kernel;
    hki_buffer *buffers[4]; // inputs, output, scratch
    hki_loc args[3];
} lone;

static size_t desc_bytes(const hki_tensor_desc *t) {
    size_t n = hk_dtype_size(t->dtype);
    for (int i = 0; i < t->shape.rank; i++)
        n *= (size_t)t->shape.dim[i];
    return n;
}

static void close_lone(const desk *d, lone *l) {
    for (int i = 0; i < 4; i++)
        if (l->buffers[i] != NULL)
            d->be->buffer_destroy(l->buffers[i]);
    if (l->kernel != NULL)
        d->be->kernel_destroy(l->kernel);
}

// Numbers of either sign: a card that multiplies zeros takes less power and is
// faster for it. As bfloat16 the halves of these are numbers as well.
static hk_status fill_buffer(const desk *d, hki_buffer *b, size_t bytes) {
    enum { PIECE = 1 << 16 };
    static float values[PIECE / sizeof(float)];
    for (size_t i = 0; i < HKI_COUNT(values); i++)
        values[i] = (float)rng_next() * 0x1p-31f - 1;
    for (size_t at = 0; at < bytes; at += PIECE)
        HKI_TRY(d->be->write(d->queue, (hki_loc){b, at}, values,
                             HKI_MIN(PIECE, bytes - at)));
    return HK_OK;
}

static hk_status open_lone(const desk *d, const hki_kernel_desc *k, lone *l) {
    HKI_TRY(d->be->kernel_create(d->device, k, &l->kernel));
    for (int i = 0; i < k->n_in + k->n_out; i++) {
        const hki_tensor_desc *const t = i < k->n_in ? &k->in[i] : &k->out[0];
        HKI_TRY(d->be->buffer_create(d->device, desc_bytes(t), &l->buffers[i]));
        l->args[i] = (hki_loc){l->buffers[i], 0};
        if (i < k->n_in)
            HKI_TRY(fill_buffer(d, l->buffers[i], desc_bytes(t)));
    }
    return d->be->buffer_create(
        d->device, d->be->kernel_scratch(l->kernel) + 256, &l->buffers[3]);
}

static hk_status time_lone(const desk *d, const hki_kernel_desc *k,
                           double *us) {
    lone l = {0};
    hk_status s = open_lone(d, k, &l);
    if (s == HK_OK)
        s = time_kernel(d,
                        &(hki_kernel_call){.kernel = l.kernel,
                                           .args = l.args,
                                           .scratch = {l.buffers[3], 0}},
                        us);
    close_lone(d, &l);
    return s;
}

// Bytes are counted as they come and as they go.
static void put_copy(const desk *d, int64_t bytes) {
    const hki_tensor_desc t = {
        .dtype = HK_F32, .shape = hk_shape_make(1, (int64_t[]){bytes / 2 / 4})};
    const hki_kernel_desc k = {
        .op = HKI_OP_identity, .n_in = 1, .n_out = 1, .in = {t}, .out = {t}};
    double us = 0;
    const hk_status s = time_lone(d, &k, &us);
    put_plain("copy", "copy", s, us, (double)bytes, 0);
}

static void put_product(const desk *d, hk_precision precision, int64_t side) {
    const bool bf16 = precision == HK_PRECISION_BF16;
    const hki_tensor_desc t = {.dtype = bf16 ? HK_BF16 : HK_F32,
                               .shape = shape2(side, side)};
    const hki_kernel_desc k = {.op = HKI_OP_matmul,
                               .n_in = 2,
                               .n_out = 1,
                               .attr = {.dtype = bf16 ? HK_BF16 : (hk_dtype)0},
                               .in = {t, t},
                               .out = {{.dtype = HK_F32, .shape = t.shape}}};
    const double n = (double)side;
    double us = 0;
    const hk_status s = time_lone(d, &k, &us);
    put_plain("product", "product", s, us, n * n * (bf16 ? 8 : 12),
              2 * n * n * n);
}

static void put_floors(const char *backend, hk_precision precision,
                       int64_t most, int64_t side, double ms) {
    desk d = {.ms = ms};
    open_desk(backend, precision, &d);
    put_product(&d, precision, side); // first: it wakes the card up
    for (int64_t bytes = 4096; bytes <= most; bytes *= 4)
        put_copy(&d, bytes);
    close_desk(&d);
}

// ---- vectors ----------------------------------------------------------------

enum {
    VECTORS = 4 // x, g, two slots
};

static const float coefficients[2][HKI_N_COEFS] = {{[HKI_C_SCALE] = 1,
                                                    [HKI_C_RATE] = 1e-3f,
                                                    [HKI_C_MOMENTUM] = 0.9f,
                                                    [HKI_C_Q1] = 0.1f,
                                                    [HKI_C_Q2] = 1e-3f,
                                                    [HKI_C_EPSILON] = 1e-8f,
                                                    [HKI_C_KEEP] = 1}};

static const unsigned char nobody[1]; // is left out: one entry

// Of zeros: they take as long as others.
typedef struct world {
    hki_place place;
    hki_buffer *of[VECTORS], *rows;
    float *at[VECTORS];
    int64_t n;
    hki_update_run run;
    hki_chunk *chunks;
    double *sums;
    size_t n_chunks;
    hki_rows_away away;
    hki_table_rows tables[TABLES];
    hki_update_job update;
    hki_exchange_span span;
    hki_exchange_job exchange;
    float *center;
} world;

static void open_world(const desk *d, int64_t n, world *w) {
    *w = (world){.n = n, .run = {0, n, false}, .span = {0, n, false}};
    w->place = (hki_place){.ops = d->be->vectors,
                           .backend = d->be,
                           .device = d->device,
                           .queue = d->queue};
    for (int i = 0; i < VECTORS; i++) {
        OK(d->be->buffer_create(d->device, (size_t)n * sizeof(float),
                                &w->of[i]));
        w->at[i] = d->be->buffer_address(w->of[i]);
    }
    w->update = (hki_update_job){.x = w->at[0],
                                 .g = w->at[1],
                                 .s = {w->at[2], w->at[3]},
                                 .c = coefficients,
                                 .skip = nobody};
}

static void close_world(const desk *d, world *w) {
    for (int i = 0; i < VECTORS; i++)
        d->be->buffer_destroy(w->of[i]);
    if (w->rows != NULL)
        d->be->buffer_destroy(w->rows);
    free(w->chunks);
    free(w->sums);
    free(w->center);
}

static void *zeros(size_t n, size_t size) {
    void *const p = calloc(n, size);
    if (p == NULL) {
        fprintf(stderr, "bench_ladder: no memory for %zu bytes\n", n * size);
        exit(1);
    }
    return p;
}

static hk_status do_update(const desk *d, void *user) {
    const world *const w = user;
    (void)d;
    return w->place.ops->update(&w->place, &w->update);
}

static hk_status do_exchange(const desk *d, void *user) {
    const world *const w = user;
    (void)d;
    return w->place.ops->exchange(&w->place, &w->exchange);
}

// Returns with the sums: the host waits for each.
static hk_status do_norm(const desk *d, void *user) {
    const world *const w = user;
    const hki_vector_pass pass = {.src = w->at[1],
                                  .end = INT64_MAX,
                                  .chunks = w->chunks,
                                  .n_chunks = w->n_chunks,
                                  .sums = w->sums};
    (void)d;
    return w->place.ops->norms(&w->place, &pass);
}

// bytes: of each element.
static void put_vectors_of(const desk *d, const char *op, world *w,
                           work_fn work, double bytes) {
    char name[32];
    double us = 0;
    snprintf(name, sizeof name, "%lld", (long long)w->n);
    const hk_status s = time_of(d, work, w, &us);
    put_plain(op, name, s, us, bytes * (double)w->n, 0);
}

static void make_chunks(world *w) {
    w->n_chunks = (size_t)((w->n + HKI_CHUNK_FLOATS - 1) / HKI_CHUNK_FLOATS);
    w->chunks = zeros(w->n_chunks, sizeof *w->chunks);
    w->sums = zeros(w->n_chunks, sizeof *w->sums);
    for (size_t i = 0; i < w->n_chunks; i++) {
        const int64_t begin = (int64_t)i * HKI_CHUNK_FLOATS;
        w->chunks[i] =
            (hki_chunk){begin, HKI_MIN(begin + HKI_CHUNK_FLOATS, w->n), 0};
    }
}

// Center and worker pull each other: x and c come and go.
static void put_exchange(const desk *d, world *w) {
    const size_t bytes = (size_t)w->n * sizeof(float);
    w->center = zeros((size_t)w->n, sizeof(float));
    w->exchange = (hki_exchange_job){
        .x = w->at[0], .spans = &w->span, .n_spans = 1, .alpha = 0.1f};
    if (d->be->shared_create(d->device, w->center, bytes,
                             &w->exchange.shared) != HK_OK) {
        put_plain("exchange", "", HK_E_BACKEND, 0, 0, 0);
        return;
    }
    put_vectors_of(d, "exchange", w, do_exchange, 16);
    (void)d->be->shared_wait(w->exchange.shared);
    d->be->shared_destroy(w->exchange.shared);
}

static void put_vectors(const char *backend, int64_t n, double ms) {
    desk d = {.ms = ms};
    world w;
    open_desk(backend, HK_PRECISION_DEFAULT, &d);
    open_world(&d, n, &w);
    w.update.end = n;
    w.update.runs = &w.run;
    w.update.n_runs = 1;
    make_chunks(&w);
    w.update.rule = HKI_K_ADAM;
    put_vectors_of(&d, "adam", &w, do_update, 28);
    w.update.rule = HKI_K_MOMENTUM;
    put_vectors_of(&d, "momentum", &w, do_update, 20);
    put_vectors_of(&d, "norm", &w, do_norm, 4);
    put_exchange(&d, &w);
    close_world(&d, &w);
    close_desk(&d);
}

// Gradients of `count` rows, as a kernel leaves them on the card.
static void make_rows(const desk *d, int64_t count, world *w) {
    const size_t begin = sizeof(int64_t) * (size_t)(count + 1);
    int64_t *const head = zeros((size_t)count + 1, sizeof *head);
    head[0] = count;
    for (int64_t i = 0; i < count; i++) // no divisor in common
        head[1 + i] = i * 7919 % ROWS;
    OK(d->be->buffer_create(
        d->device, begin + sizeof(float) * (size_t)(count * DIM), &w->rows));
    OK(d->be->write(d->queue, (hki_loc){w->rows, 0}, head, begin));
    free(head);
    const char *const at = d->be->buffer_address(w->rows);
    w->away = (hki_rows_away){.count = (const void *)at,
                              .indices = (const void *)(at + 8),
                              .rows = (const void *)(at + begin),
                              .most = count};
}

static void put_rows(const char *backend, int64_t count, double ms) {
    desk d = {.ms = ms};
    world w;
    char name[64];
    double us = 0;
    open_desk(backend, HK_PRECISION_DEFAULT, &d);
    open_world(&d, (int64_t)TABLES * ROWS * DIM, &w);
    make_rows(&d, count, &w);
    for (int64_t i = 0; i < TABLES; i++)
        w.tables[i] = (hki_table_rows){.offset = i * ROWS * DIM,
                                       .n_rows = ROWS,
                                       .dim = DIM,
                                       .away = &w.away,
                                       .active = true};
    w.update.rule = HKI_K_ADAM;
    w.update.tables = w.tables;
    w.update.n_tables = TABLES;
    const hk_status s = time_of(&d, do_update, &w, &us);
    snprintf(name, sizeof name, "%lld of %d rows, %d tables", (long long)count,
             ROWS, TABLES);
    put_plain("lazy_adam", name, s, us,
              (double)(TABLES * count) * (28.0 * DIM + 8), 0);
    close_world(&d, &w);
    close_desk(&d);
}

// ---- the program ------------------------------------------------------------

static int usage(void) {
    fprintf(stderr, "usage: bench_ladder BACKEND steps CASE PRECISION MS | "
                    "vectors N MS | rows N MS | floors PRECISION BYTES SIDE "
                    "MS\n");
    return 2;
}

int main(int argc, char **argv) {
    hk_precision precision;
    const char *const what = argc > 2 ? argv[2] : "";
    const double ms = argc > 2 ? strtod(argv[argc - 1], NULL) : 0;
    if (!(ms > 0))
        return usage();
    if (strcmp(what, "steps") == 0 && argc == 6 &&
        read_precision(argv[4], &precision))
        put_steps(argv[1], argv[3], precision, ms);
    else if (strcmp(what, "vectors") == 0 && argc == 5 && atoll(argv[3]) > 0)
        put_vectors(argv[1], atoll(argv[3]), ms);
    else if (strcmp(what, "rows") == 0 && argc == 5 && atoll(argv[3]) > 0 &&
             atoll(argv[3]) <= ROWS)
        put_rows(argv[1], atoll(argv[3]), ms);
    else if (strcmp(what, "floors") == 0 && argc == 7 &&
             read_precision(argv[3], &precision) && atoll(argv[5]) > 0)
        put_floors(argv[1], precision, atoll(argv[4]), atoll(argv[5]), ms);
    else
        return usage();
    return 0;
}
