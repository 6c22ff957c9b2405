// bench_data.c - how fast arrays become batches, and whether a trainer waits
// for them.
//
//     bench_data [--rounds N] [--case NAME] [--images FILE --labels FILE]
//
// Cases, each against its floor in turns:
//     idx_batches   60000 pictures of 28 x 28 bytes with labels (the IDX files
//                   given, or made up), shuffled over all, normalised to
//                   floats, in batches of 64, one thread; the floor is memcpy
//                   of the same floats, batch by batch, from an array of them
//     idx_hot       the same; the floor is memcpy between two buffers of a
//                   batch, which never leave the second-level cache
//     idx_in_order  idx_hot without the shuffle
//     shuffle_10k   range(10^6) through a buffer of 10000, batches of 128; the
//                   floor draws the same random words and moves the same items
//                   about
//     map_stream    a user's function over each picture; the floor is the same
//                   function on plain memory and memcpy into the batch
//     trainer_wait  an MLP 784-128-10 with Adam at batch 64, fed by
//                   idx_batches and prefetch: the share of the time that
//                   hk_iter_next took. On a machine with one processor there
//                   is nothing to hide behind.
// Prints one JSON object a case: the best processor seconds of either side and
// the median of the rounds' ratios (floor / ours); trainer_wait gives the
// share, its median, as "ratio", which has to stay below the target, and the
// median of a single call as call_s. Other work on the machine takes the
// prefetching thread its processor: the share is for a machine that is idle.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "bench.h"
#include "base/base.h"
#include "hooke/digits.h"
#include "hooke/files.h"
#include "hooke/metrics.h"
#include "hooke/nn.h"
#include "hooke/train.h"

enum {
    PICTURES = 60000,
    PIXELS = HK_DIGITS_PIXELS,
    BATCH = 64,
    NUMBERS = 1000000,
    BUFFER = 10000,
    STEPS = 2000,
    MAX_ROUNDS = 101
};

static int rounds = 9;
static const char *images_path, *labels_path;
static volatile double sink; // keeps the floors from being optimised away

static double now(void) {
    return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

// ---- the data --------------------------------------------------------------

static hk_tensor *tensor(hk_dtype t, int rank, const int64_t *dims) {
    const hk_shape s = hk_shape_make(rank, dims);
    hk_tensor *out = NULL;
    OK(hk_tensor_create(t, s, &out));
    return out;
}

// "image" uint8 [28, 28], "label".
static hk_dataset *pictures(void) {
    static hk_dataset *made;
    if (made != NULL)
        return hk_dataset_retain(made);
    if (images_path != NULL) {
        const hk_array_file files[] = {
            {.name = "image", .path = images_path},
            {.name = "label", .path = labels_path, .role = HK_LABEL}};
        made = hk_data_arrays(files, 2, NULL);
    } else {
        hk_tensor *x = tensor(HK_U8, 3, (int64_t[]){PICTURES, 28, 28});
        hk_tensor *y = tensor(HK_U8, 1, (int64_t[]){PICTURES});
        uint8_t *const p = hk_tensor_data(x);
        for (size_t i = 0; i < (size_t)PICTURES * PIXELS; i++)
            p[i] = (uint8_t)(i * 2654435761U >> 13);
        for (size_t i = 0; i < PICTURES; i++)
            ((uint8_t *)hk_tensor_data(y))[i] = (uint8_t)(i % 10);
        const hk_value v[] = {{.name = "image", .tensor = x},
                              {.name = "label", .role = HK_LABEL, .tensor = y}};
        made = hk_data_slices(v, 2);
        hk_tensor_release(x);
        hk_tensor_release(y);
    }
    OK(hk_dataset_status(made));
    return hk_dataset_retain(made);
}

static hk_iter *iterate(hk_dataset *d, uint32_t threads) {
    hk_iter_options o;
    hk_iter *it = NULL;
    hk_iter_options_init(&o, sizeof o);
    o.threads = threads;
    OK(hk_dataset_status(d));
    OK(hk_iter_create(d, &o, &it));
    hk_dataset_release(d);
    return it;
}

// Takes n batches; gives their bytes.
static double take(hk_iter *it, int64_t n) {
    double bytes = 0;
    for (int64_t i = 0; i < n; i++) {
        const hk_element *e;
        OK(hk_iter_next(it, &e));
        for (size_t k = 0; k < e->count; k++)
            bytes += (double)hk_tensor_count(e->values[k].tensor) *
                     (double)hk_dtype_size(e->values[k].dtype);
    }
    return bytes;
}

// ---- pictures to batches ---------------------------------------------------

static hk_dataset *batches(bool shuffle) {
    const float mean = 0.1307F, std = 0.3081F;
    hk_dataset *d = pictures();
    if (shuffle)
        d = hk_data_shuffle(d, PICTURES, 42, 1);
    d = hk_data_normalize(hk_data_repeat(d, -1), "image", 1.0 / 255, &mean,
                          &std, 1);
    return hk_data_batch(d, BATCH, 1);
}

// An epoch a call, behind one that is not measured.
static double run_epoch(hk_iter **it, bool shuffle) {
    if (*it == NULL) {
        *it = iterate(batches(shuffle), 1);
        take(*it, PICTURES / BATCH);
    }
    return take(*it, PICTURES / BATCH);
}

static double ours_shuffled(void) {
    static hk_iter *it;
    return run_epoch(&it, true);
}

static double ours_in_order(void) {
    static hk_iter *it;
    return run_epoch(&it, false);
}

static double floor_memcpy(void) {
    static float *from, to[BATCH * PIXELS];
    const size_t batch = (size_t)BATCH * PIXELS;
    if (from == NULL) {
        OK(hki_alloc_array((size_t)PICTURES * PIXELS, sizeof *from, &from));
        memset(from, 1, (size_t)PICTURES * PIXELS * sizeof *from);
    }
    for (size_t i = 0; i < PICTURES / BATCH; i++) {
        memcpy(to, from + i * batch, sizeof to);
        sink = (double)to[i];
    }
    return (double)sizeof to * (PICTURES / BATCH);
}

static double floor_hot(void) {
    static float from[BATCH * PIXELS], to[BATCH * PIXELS];
    for (int i = 0; i < PICTURES / BATCH; i++) {
        memcpy(to, from, sizeof to);
        sink = (double)to[i];
        from[i] += 1;
    }
    return (double)sizeof to * (PICTURES / BATCH);
}

// ---- a shuffle of numbers --------------------------------------------------

static double ours_numbers(void) {
    hk_dataset *d = hk_data_shuffle(hk_data_range(0, NUMBERS, 1), BUFFER, 1, 0);
    hk_iter *it = iterate(hk_data_batch(d, 128, 1), 1);
    const double bytes = take(it, NUMBERS / 128);
    hk_iter_destroy(it);
    return bytes;
}

static double floor_numbers(void) {
    static int64_t ring[16384][2], to[128];
    hki_rng rng;
    size_t first = 0, last = 0;
    hki_rng_init(&rng, 87654321, 1);
    for (int64_t i = 0; i < NUMBERS; i++) {
        ring[last++ & 16383][0] = i;
        if (last - first < BUFFER)
            continue;
        const size_t at = (first + hki_rng_u32(&rng) % BUFFER) & 16383;
        to[i % 128] = ring[at][0];
        ring[at][0] = ring[first++ & 16383][0];
    }
    sink = (double)to[5];
    return NUMBERS * 8.0;
}

// ---- a user's function -----------------------------------------------------

static void work(const uint8_t *x, float *y) {
    for (int i = 0; i < PIXELS; i++)
        y[i] = (float)(255 - x[i]) * (1.0F / 255);
}

static hk_status invert(void *user, const hk_map_call *c) {
    hk_tensor *t;
    (void)user;
    const hk_status s = hk_builder_tensor(c->out, "image", NULL, &t);
    if (s == HK_OK)
        work(hk_tensor_data(c->in->values[0].tensor), hk_tensor_data(t));
    return s;
}

static double ours_map(void) {
    static hk_iter *it;
    if (it == NULL) {
        const hk_value spec[] = {
            {.name = "image",
             .dtype = HK_F32,
             .shape = {.rank = 2, .dim = {28, 28}}},
            {.name = "label", .dtype = HK_U8, .role = HK_LABEL}};
        hk_map_options o;
        hk_map_options_init(&o, sizeof o);
        o.spec = spec;
        o.n_spec = 2;
        hk_dataset *d = hk_data_map(pictures(), invert, NULL, &o);
        it = iterate(hk_data_batch(hk_data_repeat(d, -1), BATCH, 1), 1);
        take(it, PICTURES / BATCH);
    }
    return take(it, PICTURES / BATCH);
}

static double floor_map(void) {
    static uint8_t *from;
    static float row[PIXELS], to[BATCH][PIXELS];
    if (from == NULL)
        from = calloc(PICTURES, PIXELS);
    for (int i = 0; i < PICTURES; i++) {
        work(from + (size_t)i * PIXELS, row);
        memcpy(to[i % BATCH], row, sizeof row);
        sink = (double)to[i % BATCH][i % PIXELS];
    }
    return (double)PICTURES * (PIXELS * 4 + 1);
}

// ---- a trainer that waits --------------------------------------------------

static hk_status mlp(void *user, hk_graph *g, hk_mode mode) {
    (void)mode;
    (void)user;
    hk_node *x = hk_input(g, "x", HK_F32,
                          hk_shape_make(2, (int64_t[]){HK_BATCH, PIXELS}));
    hk_node *labels =
        hk_input(g, "labels", HK_I32, hk_shape_make(1, (int64_t[]){HK_BATCH}));
    x = hk_dense(g, x, 128, HK_ACT_RELU, NULL);
    x = hk_dense(g, x, 10, HK_ACT_NONE, NULL);
    hk_set_loss(g, hk_sparse_softmax_cross_entropy(g, labels, x, NULL, NULL));
    return hk_graph_status(g);
}

typedef struct trainer {
    hk_context *ctx;
    hk_plan *plan;
    hk_session *session;
    hk_optimizer *optimizer;
    hk_trainer *trainer;
    hk_tensor *x, *y;
    hk_iter *it;
} trainer;

static void trainer_open(trainer *t) {
    hk_context_options co;
    hk_context_options_init(&co, sizeof co);
    OK(hk_context_create(&co, &t->ctx));
    hk_model m;
    hk_model_init(&m, sizeof m);
    m.build = mlp;
    hk_plan_options po;
    hk_plan_options_init(&po, sizeof po);
    po.batch = BATCH;
    po.threads = 1;
    OK(hk_plan_get(t->ctx, &m, HK_TRAIN, &po, &t->plan));
    hk_session_options so;
    hk_session_options_init(&so, sizeof so);
    OK(hk_session_create(t->plan, &so, &t->session));
    hk_optimizer_options oo;
    hk_optimizer_options_init(&oo, sizeof oo, HK_OPT_ADAM);
    oo.threads = 1;
    OK(hk_optimizer_create(&oo, hk_plan_layout(t->plan), &t->optimizer));
    hk_trainer_options to;
    hk_trainer_options_init(&to, sizeof to);
    to.session = t->session;
    to.optimizer = t->optimizer;
    OK(hk_trainer_create(&to, &t->trainer));
    OK(hk_session_input(t->session, "x", &t->x));
    OK(hk_session_input(t->session, "labels", &t->y));
    t->it = iterate(hk_data_prefetch(batches(true), HK_DATA_AUTO), 1);
}

static void trainer_step(trainer *t) {
    const hk_element *e;
    OK(hk_iter_next(t->it, &e));
    const uint8_t *const label = hk_tensor_data(e->values[1].tensor);
    memcpy(hk_tensor_data(t->x), hk_tensor_data(e->values[0].tensor),
           sizeof(float) * BATCH * PIXELS);
    for (int i = 0; i < BATCH; i++)
        ((int32_t *)hk_tensor_data(t->y))[i] = label[i];
    OK(hk_trainer_step(t->trainer, NULL));
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

static double waited(const trainer *t) {
    hk_iter_info stats;
    OK(hk_iter_get_info(t->it, &stats));
    return stats.wait_seconds;
}

// The share of the time of STEPS steps that was spent waiting for batches;
// *call: the median of one wait.
static double wait_share(trainer *t, double *call) {
    static double calls[STEPS];
    const double before = waited(t);
    const int64_t begin = hki_now_ns();
    for (int i = 0; i < STEPS; i++) {
        const double so_far = waited(t);
        trainer_step(t);
        calls[i] = waited(t) - so_far;
    }
    const double seconds = 1e-9 * (double)(hki_now_ns() - begin);
    *call = median(calls, STEPS);
    return (waited(t) - before) / seconds;
}

static void trainer_close(trainer *t) {
    hk_iter_destroy(t->it);
    hk_trainer_destroy(t->trainer);
    hk_optimizer_destroy(t->optimizer);
    hk_session_destroy(t->session);
    hk_plan_release(t->plan);
    hk_context_destroy(t->ctx);
}

// ---- measuring -------------------------------------------------------------

static const struct bench {
    const char *name;
    double (*ours)(void), (*floor)(void); // give the bytes that came out
    double target;
} benches[] = {
    {"idx_batches", ours_shuffled, floor_memcpy, 0.5},
    {"idx_hot", ours_shuffled, floor_hot, 0},
    {"idx_in_order", ours_in_order, floor_hot, 0},
    {"shuffle_10k", ours_numbers, floor_numbers, 0},
    {"map_stream", ours_map, floor_map, 0},
};

static void measure(const struct bench *b) {
    double ratio[MAX_ROUNDS], best[2] = {1e9, 1e9}, bytes = b->ours();
    const double per_byte = bytes / b->floor(); // labels, short of a batch
    for (int i = 0; i < rounds; i++) {
        double t[2], begin = now();
        b->floor();
        t[1] = (now() - begin) * per_byte;
        begin = now();
        b->ours();
        t[0] = now() - begin;
        for (int k = 0; k < 2; k++)
            best[k] = t[k] < best[k] ? t[k] : best[k];
        ratio[i] = t[1] / t[0];
    }
    fprintf(stdout,
            "{\"case\": \"%s\", \"bytes\": %.0f, \"ours_s\": %.6f, "
            "\"floor_s\": %.6f, \"ours_mb_s\": %.1f, \"floor_mb_s\": %.1f, "
            "\"ratio\": %.3f, \"target\": %.2f}\n",
            b->name, bytes, best[0], best[1], bytes / best[0] * 1e-6,
            bytes / best[1] * 1e-6, median(ratio, rounds), b->target);
    fflush(stdout);
}

static void measure_wait(void) {
    trainer t = {0};
    double share[MAX_ROUNDS], call[MAX_ROUNDS];
    trainer_open(&t);
    wait_share(&t, call);
    const int64_t begin = hki_now_ns();
    for (int i = 0; i < rounds; i++)
        share[i] = wait_share(&t, &call[i]);
    const double step = 1e-9 * (double)(hki_now_ns() - begin) / rounds / STEPS;
    fprintf(stdout,
            "{\"case\": \"trainer_wait\", \"step_s\": %.9f, "
            "\"call_s\": %.9f, \"ratio\": %.4f, \"target\": 0.02, "
            "\"at_most\": true}\n",
            step, median(call, rounds), median(share, rounds));
    trainer_close(&t);
}

int main(int argc, char **argv) {
    const char *only = NULL;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--rounds") == 0)
            rounds = (int)strtol(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--case") == 0)
            only = argv[i + 1];
        else if (strcmp(argv[i], "--images") == 0)
            images_path = argv[i + 1];
        else if (strcmp(argv[i], "--labels") == 0)
            labels_path = argv[i + 1];
        else
            return 2;
    }
    rounds = rounds < 1 ? 1 : rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds;
    if ((images_path == NULL) != (labels_path == NULL))
        return 2;
    for (size_t i = 0; i < HKI_COUNT(benches); i++)
        if (only == NULL || strcmp(only, benches[i].name) == 0)
            measure(&benches[i]);
    if (only == NULL || strcmp(only, "trainer_wait") == 0)
        measure_wait();
    return 0;
}
