// test_cluster_methods.c - every method through a center server gives the
// bits of the same method with a center in this process.
#include "elastic_bed.h"
#include <pthread.h>
#include "cluster_bed.h"

#define MAX_SHARDS 3
#define STEPS 12

static char folder[64];
static unsigned counter;

typedef struct place {  // where the center is
    const char *scheme; // NULL: in this process
    uint32_t n_shards;
    bool file;
    uint32_t telemetry;
    bool watched; // worker 0 takes a snapshot after every exchange
} place;

typedef struct outcome {
    float *x[2], *center, *average;
    int64_t side;
    hk_center_info info;
    double distance;
    size_t n;
} outcome;

static hk_layout *make_layout(void) {
    const struct {
        const char *name;
        int64_t n;
        hk_dtype dtype;
        hk_kind kind;
    } entries[] = {
        {"dense/kernel", 1500, HK_F32, HK_TRAINABLE},
        {"dense/bias", 7, HK_F32, HK_TRAINABLE},
        {"norm/mean", 33, HK_F32, HK_STATE_AVERAGE},
        {"seen", 20, HK_F32, HK_STATE_COPY},
        {"own", 20, HK_F32, HK_STATE_LOCAL},
        {"count", 1, HK_I64, HK_STATE_COPY},
    };
    hk_layout_item items[HKI_COUNT(entries)];
    for (size_t i = 0; i < HKI_COUNT(entries); i++)
        items[i] = (hk_layout_item){.name = entries[i].name,
                                    .shape = hk_shape_make(1, &entries[i].n),
                                    .dtype = entries[i].dtype,
                                    .kind = entries[i].kind};
    hk_layout *l;
    assert_ok(hk_layout_create(items, HKI_COUNT(entries), &l));
    return l;
}

// ---- a center here or there -------------------------------------------------

typedef struct venue {
    hk_center *center;
    hk_center_server *server[MAX_SHARDS];
} venue;

static void open_venue(const place *p, const hk_center_options *o, hk_layout *l,
                       venue *v) {
    const char *addresses[MAX_SHARDS];
    char text[MAX_SHARDS][128];
    memset(v, 0, sizeof *v);
    if (p->scheme == NULL) {
        assert_ok(hk_center_create_local(o, l, &v->center));
        return;
    }
    for (uint32_t i = 0; i < p->n_shards; i++) {
        counter++;
        if (strcmp(p->scheme, "inproc") == 0)
            snprintf(text[i], sizeof text[i], "inproc:m%u", counter);
        else
            snprintf(text[i], sizeof text[i], "%s:%s/m%u", p->scheme, folder,
                     counter);
        addresses[i] = text[i];
    }
    for (uint32_t i = 0; i < p->n_shards; i++) {
        char path[128];
        hk_center_server_options so;
        bed_server_options(&so, &addresses[i]);
        snprintf(path, sizeof path, "%s/c%u-%u", folder, counter, i);
        so.path = p->file ? path : NULL;
        so.center = o;
        so.shards = addresses;
        so.shard = i;
        so.n_shards = p->n_shards;
        so.hello_ms = 20000;
        assert_ok(hk_center_server_start(&so, &v->server[i]));
    }
    hk_connect_options c;
    bed_connect_options(&c, addresses, p->n_shards);
    assert_ok(hk_center_connect(&c, l, &v->center));
}

static void close_venue(venue *v) {
    hk_center_destroy(v->center);
    for (size_t i = 0; i < MAX_SHARDS; i++)
        hk_center_server_stop(v->server[i]);
}

// ---- a run ------------------------------------------------------------------

typedef struct runner {
    worker w;
    int64_t side;
    size_t id;
    hk_center *watch; // NULL: takes no snapshots
    float *copy;      // of the last one
    hk_status status;
    char text[256];
} runner;

// Gradients for what is trained, drift for the rest; the gaps stay zero.
static hk_status one_step(runner *r, int t) {
    worker *const w = &r->w;
    for (size_t i = 0; i < hki_layout_entry_count(w->layout); i++) {
        const hk_entry *const e = hk_layout_entry(w->layout, i);
        if (e->dtype != HK_F32)
            continue;
        for (int64_t j = e->offset; j < e->offset + e->count; j++)
            if (e->kind == HK_TRAINABLE)
                w->g[j] =
                    (float)((j * 7 + t * 31 + (int64_t)r->id * 57) % 97 - 48) /
                    64;
            else // of what is copied the last one stays: both write the same
                w->x[j] +=
                    e->kind == HK_STATE_COPY ? 0.5f : (float)(1 + r->id) / 8;
    }
    r->side = t;
    return worker_step(w);
}

// A snapshot while the other one waits for this worker in the next round.
static hk_status watch_round(runner *r, int t) {
    hk_elastic_stats stats;
    hk_center_info info = {0};
    HKI_TRY(hk_elastic_get_stats(r->w.e, &stats));
    const uint64_t begun = 2 * stats.exchanges + (t < STEPS - 2);
    const int64_t deadline = hki_deadline(20000);
    while (info.exchanges < begun) {
        HKI_TRY(hk_center_get_info(r->watch, &info));
        if (hki_now_ns() > deadline)
            return hki_fail(HK_E_TIMEOUT, "%llu exchanges of %llu",
                            (unsigned long long)info.exchanges,
                            (unsigned long long)begun);
        (void)hki_nap(NULL, 1);
    }
    return hk_center_snapshot(r->watch, HK_CENTER_VALUES, 5000, r->copy, NULL,
                              NULL);
}

// Workers of a synchronous method wait for each other.
static void *run_alone(void *arg) {
    runner *const r = arg;
    for (int t = 0; t < STEPS && r->status == HK_OK; t++) {
        r->status = one_step(r, t);
        if (r->status == HK_OK && r->watch != NULL)
            r->status = watch_round(r, t);
    }
    snprintf(r->text, sizeof r->text, "%s", hk_last_error());
    return NULL;
}

static void run_all(runner *r, bool rounds) {
    if (!rounds) { // an order of turns that mixes them
        for (int t = 0; t < 2 * STEPS; t++)
            assert_ok(one_step(&r[t % 3 == 0], t));
        return;
    }
    pthread_t id[2];
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&id[i], NULL, run_alone, &r[i]), 0);
    for (size_t i = 0; i < 2; i++)
        pthread_join(id[i], NULL);
    for (size_t i = 0; i < 2; i++)
        if (r[i].status != HK_OK)
            fail_msg("worker %zu: %s", i, r[i].text);
}

static void run(const place *p, const hk_center_options *center, outcome *out) {
    hk_layout *const l = make_layout();
    venue v;
    open_venue(p, center, l, &v);
    const hki_method *const m = hki_method_get(center->method);
    const bool rounds = (m->flags & HKI_METHOD_ROUND) != 0;
    runner r[2];
    memset(r, 0, sizeof r);
    out->n = (size_t)hki_layout_size(l);
    for (size_t i = 0; i < 2; i++) {
        hk_elastic_options o;
        elastic_options(&o, 2, m->flags & HKI_METHOD_NO_LOCAL ? 1 : 2);
        o.telemetry = p->telemetry;
        o.wait_ms = 20000;
        o.side = &r[i].side;
        r[i].id = i;
        worker_open(&r[i].w, l, v.center, &o, HK_OPT_GRADIENT_DESCENT, 0.125);
        for (int64_t j = 0; j < 1500; j++)
            r[i].w.x[j] = (float)(j % 13) / 16;
        assert_ok(hk_elastic_init(r[i].w.e, r[i].w.x, (int32_t)i));
    }
    if (p->watched) {
        r[0].watch = v.center;
        assert_ok(hki_zalloc_array(out->n, sizeof(float), &r[0].copy));
    }
    run_all(r, rounds);
    hki_free(r[0].copy);
    hk_elastic_stats stats;
    assert_ok(hk_elastic_get_stats(r[0].w.e, &stats));
    out->distance = stats.distance;
    for (size_t i = 0; i < 2; i++)
        assert_ok(hk_elastic_leave(r[i].w.e, r[i].w.x));
    assert_ok(hki_zalloc_array(out->n, sizeof(float), &out->center));
    assert_ok(hk_center_snapshot(v.center, HK_CENTER_VALUES, 10000, out->center,
                                 &out->side, &out->info));
    out->average = NULL;
    if (m->flags & (HKI_METHOD_MEAN | HKI_METHOD_MOVING_MEAN)) {
        assert_ok(hki_zalloc_array(out->n, sizeof(float), &out->average));
        assert_ok(hk_center_snapshot(v.center, HK_CENTER_AVERAGE, 10000,
                                     out->average, NULL, NULL));
    }
    for (size_t i = 0; i < 2; i++) {
        out->x[i] = r[i].w.x;
        r[i].w.x = NULL;
        worker_close(&r[i].w);
    }
    close_venue(&v);
    hk_layout_release(l);
}

static void free_outcome(outcome *o) {
    hki_free(o->x[0]);
    hki_free(o->x[1]);
    hki_free(o->center);
    hki_free(o->average);
}

static void same(const char *what, const char *part, const float *a,
                 const float *b, size_t n) {
    for (size_t i = 0; a != NULL && i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0)
            fail_msg("%s: %s: element %zu is %.9g, in one process %.9g", what,
                     part, i, (double)b[i], (double)a[i]);
}

static void compare(const char *what, const outcome *here,
                    const outcome *there) {
    same(what, "x of worker 0", here->x[0], there->x[0], here->n);
    same(what, "x of worker 1", here->x[1], there->x[1], here->n);
    same(what, "center", here->center, there->center, here->n);
    same(what, "average", here->average, there->average, here->n);
    if (here->side != there->side ||
        here->info.version != there->info.version ||
        here->info.exchanges != there->info.exchanges ||
        here->info.stale != there->info.stale ||
        here->info.global_step != there->info.global_step)
        fail_msg("%s: side %lld, version %llu, exchanges %llu, stale %llu, "
                 "step %lld; in one process %lld, %llu, %llu, %llu, %lld",
                 what, (long long)there->side,
                 (unsigned long long)there->info.version,
                 (unsigned long long)there->info.exchanges,
                 (unsigned long long)there->info.stale,
                 (long long)there->info.global_step, (long long)here->side,
                 (unsigned long long)here->info.version,
                 (unsigned long long)here->info.exchanges,
                 (unsigned long long)here->info.stale,
                 (long long)here->info.global_step);
    if (!hk_test_close(there->distance, here->distance, 0, 1e-6))
        fail_msg("%s: distance %g, in one process %g", what, there->distance,
                 here->distance);
}

// ---- all methods, all places ------------------------------------------------

static void method_options(hk_method m, hk_center_options *o,
                           hk_optimizer_options *outer) {
    hk_center_options_init(o, sizeof *o);
    o->method = m;
    o->chunk_kib = 1;
    o->workers = 2;
    o->delay = 3;
    o->activation = 0.1;
    o->staleness = 1;
    hk_optimizer_options_init(outer, sizeof *outer,
                              m == HK_METHOD_AGN ? HK_OPT_ADAM
                                                 : HK_OPT_MOMENTUM);
    outer->learning_rate = 0.25;
    outer->momentum = 0.5;
    const uint32_t flags = hki_method_get(m)->flags;
    if (flags & HKI_METHOD_NEEDS_OUTER)
        o->outer = outer;
}

static const place places[] = {
    {"inproc", 1, false, 0, false}, {"unix", 2, true, 0, false},
    {"shm", 1, true, 0, false},     {"unix", 3, false, 1, false},
    {"shm", 1, false, 0, true},     {"unix", 3, true, 0, true},
};

static void try_place(const place *p) {
    for (int m = HK_METHOD_ELASTIC; m <= HK_METHOD_DILOCO_DELAYED; m++) {
        hk_center_options o;
        hk_optimizer_options outer;
        outcome here, there;
        char what[96];
        place local = {.telemetry = p->telemetry};
        method_options((hk_method)m, &o, &outer);
        snprintf(what, sizeof what, "%s over %s, %u shards",
                 hk_method_name((hk_method)m), p->scheme, p->n_shards);
        run(&local, &o, &here);
        run(p, &o, &there);
        compare(what, &here, &there);
        free_outcome(&here);
        free_outcome(&there);
    }
}

static void test_inproc(void **state) {
    (void)state;
    try_place(&places[0]);
}

static void test_two_shards(void **state) {
    (void)state;
    try_place(&places[1]);
}

static void test_shared_memory(void **state) {
    (void)state;
    try_place(&places[2]);
}

static void test_telemetry(void **state) {
    (void)state;
    try_place(&places[3]);
}

// Worker 0 evaluates the center while the others wait for it in a round.
static void test_snapshots_in_rounds(void **state) {
    (void)state;
    try_place(&places[4]);
    try_place(&places[5]);
}

// What a server does not offer is said when it is asked for.
static void test_refused(void **state) {
    (void)state;
    hk_center_options o;
    hk_optimizer_options outer;
    hk_center_server *s = NULL;
    const char *at = "inproc:refused";
    hk_center_server_options so;
    bed_server_options(&so, &at);
    so.center = &o;
    hk_layout *const l = make_layout();
    so.layout = l;
    method_options(HK_METHOD_DILOCO, &o, &outer);
    hk_optimizer_options_init(&outer, sizeof outer, HK_OPT_LAMB);
    o.outer = &outer;
    assert_status(hk_center_server_start(&so, &s), HK_E_UNSUPPORTED);
    method_options(HK_METHOD_AGN, &o, &outer);
    o.outer = NULL;
    assert_status(hk_center_server_start(&so, &s), HK_E_INVALID_ARG);
    method_options(HK_METHOD_ELASTIC, &o, &outer);
    o.turn = HK_TURN_ROUND_ROBIN;
    assert_status(hk_center_server_start(&so, &s), HK_E_UNSUPPORTED);
    hk_layout_release(l);
}

static int setup(void **state) {
    (void)state;
    bed_folder_make(folder);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    bed_folder_remove(folder);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inproc),
        cmocka_unit_test(test_two_shards),
        cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_telemetry),
        cmocka_unit_test(test_snapshots_in_rounds),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
