// suite_exchange.c - two workers at one center: the run that tests of methods
// compare over places and transports.
#include "suite_exchange.h"
#include <pthread.h>
#include "cluster_bed.h"

#define MAX_SHARDS 3
#define STEPS 12
#define DENSE 1500 // floats of the largest entry
#define ROWS 130   // of the table
#define DIM 5
#define TOUCHED 8 // rows of a gradient
#define VECTOR(n) hk_shape_make(1, (int64_t[]){n})

static char folder[64];
static unsigned counter;

hk_layout *suite_exchange_layout(bool rows) {
    const struct {
        const char *name;
        hk_shape shape;
        hk_dtype dtype;
        hk_kind kind;
    } entries[] = {
        {"dense/kernel", VECTOR(DENSE), HK_F32, HK_TRAINABLE},
        {"dense/bias", VECTOR(7), HK_F32, HK_TRAINABLE},
        {"norm/mean", VECTOR(33), HK_F32, HK_STATE_AVERAGE},
        {"seen", VECTOR(20), HK_F32, HK_STATE_COPY},
        {"own", VECTOR(20), HK_F32, HK_STATE_LOCAL},
        {"count", VECTOR(1), HK_I64, HK_STATE_COPY},
        {"table", hk_shape_make(2, (int64_t[]){ROWS, DIM}), HK_F32,
         HK_TRAINABLE},
    };
    hk_layout_item items[HKI_COUNT(entries)];
    for (size_t i = 0; i < HKI_COUNT(entries); i++)
        items[i] = (hk_layout_item){.name = entries[i].name,
                                    .shape = entries[i].shape,
                                    .dtype = entries[i].dtype,
                                    .kind = entries[i].kind,
                                    .sparse = entries[i].shape.rank == 2};
    hk_layout *l;
    assert_ok(hk_layout_create(items, HKI_COUNT(entries) - !rows, &l));
    return l;
}

// ---- a center here or there -------------------------------------------------

typedef struct venue {
    hk_center *center;
    hk_center_server *server[MAX_SHARDS];
    // Where a server listens: for workers, and for shard 0, which has to know
    // the addresses of the others before they have a port.
    char text[MAX_SHARDS][128], inner[MAX_SHARDS][32];
} venue;

static bool has_ports(const place *p) {
    return strcmp(p->scheme, "tcp") == 0 || strcmp(p->scheme, "tls") == 0;
}

static void choose_addresses(const place *p, venue *v) {
    for (uint32_t i = 0; i < p->n_shards; i++) {
        counter++;
        snprintf(v->inner[i], sizeof v->inner[i], "inproc:m%u", counter);
        if (has_ports(p))
            snprintf(v->text[i], sizeof v->text[i], "%s:127.0.0.1:0",
                     p->scheme);
        else if (strcmp(p->scheme, "inproc") == 0)
            snprintf(v->text[i], sizeof v->text[i], "inproc:m%u", counter);
        else
            snprintf(v->text[i], sizeof v->text[i], "%s:%s/m%u", p->scheme,
                     folder, counter);
    }
}

static void start_server(const place *p, const hk_center_options *o, venue *v,
                         uint32_t shard) {
    const char *const addresses[] = {v->text[shard], v->inner[shard]};
    const char *shards[MAX_SHARDS];
    char path[128];
    for (uint32_t i = 0; i < p->n_shards; i++)
        shards[i] = has_ports(p) ? v->inner[i] : v->text[i];
    hk_center_server_options so;
    bed_server_options(&so, addresses);
    so.n_addresses = has_ports(p) ? 2 : 1;
    snprintf(path, sizeof path, "%s/c%u-%u", folder, counter, shard);
    so.path = p->file ? path : NULL;
    so.center = o;
    so.key = p->key;
    so.shards = shards;
    so.shard = shard;
    so.n_shards = p->n_shards;
    so.hello_ms = 20000;
    assert_ok(hk_center_server_start(&so, &v->server[shard]));
}

static void open_venue(const place *p, const hk_center_options *o, hk_layout *l,
                       venue *v) {
    const char *addresses[MAX_SHARDS];
    memset(v, 0, sizeof *v);
    if (p->scheme == NULL) {
        assert_ok(hk_center_create_local(o, l, &v->center));
        return;
    }
    choose_addresses(p, v);
    for (uint32_t i = 0; i < p->n_shards; i++) {
        start_server(p, o, v, i);
        addresses[i] = hk_center_server_address(v->server[i], 0);
    }
    hk_connect_options c;
    bed_connect_options(&c, addresses, p->n_shards);
    c.key = p->key;
    c.compression = p->compression;
    c.center_bf16 = p->center_bf16;
    c.window_kib = p->window_kib;
    c.row_period = HKI_MAX(p->row_period, 1u);
    assert_ok(hk_center_connect(&c, l, &v->center));
}

static void close_venue(venue *v) {
    hk_center_destroy(v->center);
    for (size_t i = 0; i < MAX_SHARDS; i++)
        hk_center_server_stop(v->server[i]);
}

// ---- steps ------------------------------------------------------------------

typedef struct runner {
    worker w;
    hki_vector x, g; // over the worker's arrays, or on a device
    hki_place at;    // backend NULL: host memory
    int64_t side;
    size_t id;
    int steps;
    hk_center *watch; // NULL: takes no snapshots
    float *copy;      // of the last one
    hk_status status;
    char text[256];
} runner;

// Gradients for what is trained, drift for the rest; the gaps stay zero. No
// power of two, so that sums are rounded and depend on their order.
static void fill_entry(runner *r, const hk_entry *e, int t, float *x,
                       float *g) {
    const int64_t id = (int64_t)r->id;
    for (int64_t j = e->offset; j < e->offset + e->count; j++)
        if (e->kind == HK_TRAINABLE)
            g[j] = (float)((j * 7 + t * 31 + id * 57) % 97 - 48) / 67;
        else // of what is copied the last one stays: both write the same
            x[j] += e->kind == HK_STATE_COPY ? 0.5f : (float)(1 + id) / 7;
}

static hk_status fill_dense(runner *r, int t) {
    float *x, *g;
    HKI_TRY(hki_vector_host(&r->x, HKI_TO_CHANGE, &x));
    HKI_TRY(hki_vector_host(&r->g, HKI_TO_CHANGE, &g));
    for (size_t i = 0; i < hki_layout_entry_count(r->w.layout); i++) {
        const hk_entry *const e = hk_layout_entry(r->w.layout, i);
        if (e->dtype == HK_F32 && !e->sparse)
            fill_entry(r, e, t, x, g);
    }
    return HK_OK;
}

static hk_status apply(runner *r, const hk_grad_view *view) {
    if (r->at.backend == NULL)
        return worker_apply(&r->w, view);
    const hki_grads g = {.view = *view, .dense = &r->g};
    HKI_TRY(hki_elastic_update(r->w.e, &r->x, &g, NULL));
    return hki_elastic_exchange_due(r->w.e, &r->x, NULL);
}

static hk_status one_step(runner *r, int t) {
    int64_t indices[TOUCHED];
    float rows[TOUCHED * DIM];
    for (int i = 0; i < TOUCHED; i++)
        indices[i] = (t * 29 + i * 13 + (int)r->id * 7) % ROWS;
    for (int i = 0; i < TOUCHED * DIM; i++)
        rows[i] = (float)((i * 5 + t * 3) % 23 - 11) / 19;
    const hk_sparse_grad sparse = {.entry =
                                       hk_layout_find(r->w.layout, "table"),
                                   .count = TOUCHED,
                                   .dim = DIM,
                                   .indices = indices,
                                   .rows = rows,
                                   .unique = 1};
    const hk_grad_view view = {.dense = r->w.g,
                               .n_dense = hki_layout_dense(r->w.layout),
                               .sparse = &sparse,
                               .n_sparse = sparse.entry != NULL,
                               .scale = 1};
    HKI_TRY(fill_dense(r, t));
    HKI_TRY(hki_elastic_add_pull(r->w.e, &r->x, &r->g, view.n_dense, 1));
    r->side = t;
    return apply(r, &view);
}

// A snapshot while the other one waits for this worker in the next round.
static hk_status watch_round(runner *r, int t) {
    hk_elastic_stats stats;
    hk_center_info info = {0};
    HKI_TRY(hk_elastic_get_stats(r->w.e, &stats));
    const uint64_t begun = 2 * stats.exchanges + (t < r->steps - 2);
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

// ---- turns and rounds -------------------------------------------------------

// Workers of a synchronous method wait for each other.
static void *run_alone(void *arg) {
    runner *const r = arg;
    for (int t = 0; t < r->steps && r->status == HK_OK; t++) {
        r->status = one_step(r, t);
        if (r->status == HK_OK && r->watch != NULL)
            r->status = watch_round(r, t);
    }
    snprintf(r->text, sizeof r->text, "%s", hk_last_error());
    return NULL;
}

static void run_all(runner *r, bool rounds) {
    if (!rounds) { // an order of turns that mixes them
        for (int t = 0; t < 2 * r->steps; t++)
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

// ---- workers ----------------------------------------------------------------

// Vectors on a device of the worker's own.
static void open_device(runner *r, const char *name, hk_isa isa) {
    const hki_device_options o = {.threads = 1, .isa = isa};
    const hki_backend *be;
    hki_device *device;
    assert_ok(hki_backend_find(name, &be));
    assert_ok(be->device_open(&o, &device));
    r->at = (hki_place){.ops = be->vectors, .backend = be, .device = device};
    assert_ok(be->queue_create(device, &r->at.queue));
    assert_ok(hki_vector_follow(&r->x, &r->at));
    assert_ok(hki_vector_follow(&r->g, &r->at));
}

static void open_runner(runner *r, const place *p, const exchange_plan *plan,
                        hk_layout *l, hk_center *c) {
    const hki_method *const m = hki_method_get(plan->center->method);
    hk_elastic_options o;
    elastic_options(&o, 2, m->no_local ? 1 : 2);
    o.telemetry = p->telemetry;
    o.wait_ms = 20000;
    o.side = &r->side;
    o.order = plan->order;
    o.rho = plan->rho;
    o.isa = plan->center->isa;
    o.use_locking = !p->no_locking;
    r->steps = plan->steps > 0 ? (int)plan->steps : STEPS;
    worker_open(&r->w, l, c, &o, HK_OPT_GRADIENT_DESCENT, 0.11);
    for (int64_t j = 0; j < DENSE; j++)
        r->w.x[j] = (float)(j % 13) / 17;
    assert_ok(hk_elastic_init(r->w.e, r->w.x, (int32_t)r->id));
    r->x = HKI_HOST_VECTOR(r->w.x, (int64_t)r->w.n);
    r->g = HKI_HOST_VECTOR(r->w.g, (int64_t)r->w.n_train);
    if (p->device != NULL)
        open_device(r, p->device, o.isa);
}

static void leave(runner *r) {
    assert_ok(hki_elastic_leave(r->w.e, &r->x, 20000));
    if (r->at.backend == NULL)
        return;
    assert_ok(hki_vector_follow(&r->x, NULL));
    assert_ok(hki_vector_follow(&r->g, NULL));
    assert_ok(hki_elastic_go_home(r->w.e));
    assert_ok(hki_optimizer_follow(r->w.optimizer, NULL));
}

// *x: its values, which are the caller's now.
static void close_runner(runner *r, float **x) {
    *x = r->w.x;
    r->w.x = NULL;
    worker_close(&r->w);
    hki_free(r->copy);
    if (r->at.backend == NULL)
        return;
    r->at.backend->queue_destroy(r->at.queue);
    r->at.backend->device_close(r->at.device);
}

static void read_outcome(hk_center *c, const hki_method *m, outcome *out) {
    assert_ok(hki_zalloc_array(out->n, sizeof(float), &out->center));
    assert_ok(hk_center_snapshot(c, HK_CENTER_VALUES, 10000, out->center,
                                 &out->side, &out->info));
    if (m->average == HKI_AVERAGE_NONE)
        return;
    assert_ok(hki_zalloc_array(out->n, sizeof(float), &out->average));
    assert_ok(hk_center_snapshot(c, HK_CENTER_AVERAGE, 10000, out->average,
                                 NULL, NULL));
}

void suite_exchange_run(const place *p, const exchange_plan *plan,
                        outcome *out) {
    const hki_method *const m = hki_method_get(plan->center->method);
    hk_layout *const l = suite_exchange_layout(plan->rows);
    venue v;
    runner r[2];
    open_venue(p, plan->center, l, &v);
    memset(r, 0, sizeof r);
    *out = (outcome){.n = (size_t)hki_layout_size(l)};
    for (size_t i = 0; i < 2; i++) {
        r[i].id = i;
        open_runner(&r[i], p, plan, l, v.center);
    }
    if (p->watched) {
        r[0].watch = v.center;
        assert_ok(hki_zalloc_array(out->n, sizeof(float), &r[0].copy));
    }
    run_all(r, m->rounds);
    for (size_t i = 0; i < 2; i++)
        assert_ok(hk_elastic_get_stats(r[i].w.e, &out->stats[i]));
    for (size_t i = 0; i < 2; i++)
        leave(&r[i]);
    read_outcome(v.center, m, out);
    for (size_t i = 0; i < 2; i++)
        close_runner(&r[i], &out->x[i]);
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
    if (hki_method_get(m)->gradients)
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
