// suite_exchange.c - two workers at one center: the run that tests of methods
// compare over places and transports.
#include "suite_exchange.h"
#include <pthread.h>
#include "cluster_bed.h"

#define MAX_SHARDS 3
#define STEPS 12

static char folder[64];
static unsigned counter;

hk_layout *suite_exchange_layout(void) {
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

void suite_exchange_run(const place *p, const hk_center_options *center,
                        outcome *out) {
    hk_layout *const l = suite_exchange_layout();
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

void suite_exchange_free(outcome *o) {
    hki_free(o->x[0]);
    hki_free(o->x[1]);
    hki_free(o->center);
    hki_free(o->average);
}

// ---- options and fixtures --------------------------------------------------

void suite_exchange_options(hk_method m, hk_center_options *o,
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

int suite_exchange_setup(void **state) {
    (void)state;
    bed_folder_make(folder);
    return 0;
}

int suite_exchange_teardown(void **state) {
    (void)state;
    bed_folder_remove(folder);
    return 0;
}
