// test_cluster_shards.c - how a vector is cut over several centers; copies of
// all of them at one point while workers go on; snapshot files; restarts.
#include "cluster_bed.h"
#include <fcntl.h>
#include "base/io.h"
#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>

#define SHARDS 3
#define WORKERS 3
#define PATIENCE_MS 60000 // for what comes soon, on a machine that is busy

static char folder[64];

// ---- plans ------------------------------------------------------------------

typedef struct case_of {
    const char *what;
    int64_t count[4], dim[4]; // dim > 0: a table of count rows
    int64_t chunk_floats;
    uint32_t shards;
} case_of;

static hk_layout *layout_of(const case_of *c, size_t n) {
    hk_layout_item items[4];
    static const char *const names[] = {"a", "b", "c", "d"};
    for (size_t i = 0; i < n; i++)
        items[i] = (hk_layout_item){
            .name = names[i],
            .shape = hk_shape_make(c->dim[i] > 0 ? 2 : 1,
                                   (int64_t[]){c->count[i], c->dim[i]}),
            .dtype = HK_F32,
            .kind = HK_TRAINABLE,
            .sparse = c->dim[i] > 0};
    hk_layout *l;
    assert_ok(hk_layout_create(items, n, &l));
    return l;
}

static void check_partition(const case_of *c, const hki_partition *d,
                            int64_t n) {
    int64_t most = 0, least = INT64_MAX, last = 0;
    for (uint32_t i = 0; i < d->count; i++) {
        const hki_chunk_range *const k = &d->chunk[i];
        if (k->begin < last || k->end <= k->begin ||
            k->end - k->begin > d->max_floats || k->begin % 16 != 0)
            fail_msg("%s: chunk %u is [%lld, %lld)", c->what, i,
                     (long long)k->begin, (long long)k->end);
        last = k->end;
        if (k->table >= 0) {
            const hki_table *const t = &d->table[k->table];
            if ((k->begin - t->offset) % t->dim != 0 ||
                (k->end - t->offset) % t->dim != 0)
                fail_msg("%s: chunk %u cuts a row", c->what, i);
        }
    }
    assert_int_equal(d->first[0], 0);
    assert_int_equal(d->first[d->n_shards], d->count);
    assert_int_equal(d->begin[0], 0);
    assert_int_equal(d->begin[d->n_shards], n);
    for (uint32_t s = 0; s < d->n_shards; s++) {
        int64_t sum = 0;
        for (uint32_t i = d->first[s]; i < d->first[s + 1]; i++) {
            sum += d->chunk[i].end - d->chunk[i].begin;
            if (d->chunk[i].begin < d->begin[s] ||
                d->chunk[i].end > d->begin[s + 1])
                fail_msg("%s: chunk %u lies outside of shard %u", c->what, i,
                         s);
        }
        most = HKI_MAX(most, sum);
        least = HKI_MIN(least, sum);
    }
    if (most - least > 2 * d->max_floats)
        fail_msg("%s: shards of %lld to %lld floats", c->what, (long long)least,
                 (long long)most);
}

static void test_partition(void **state) {
    (void)state;
    static const case_of cases[] = {
        {"one small", {10}, {0}, 1024, 1},
        {"less than shards", {10, 3}, {0}, 1024, 4},
        {"one large", {1000000}, {0}, 65536, 4},
        {"uneven", {5, 70000, 3, 12345}, {0}, 1024, 3},
        {"tables", {100, 3000, 50, 999}, {0, 10, 0, 7}, 1024, 3},
        {"wide rows", {64, 40, 8, 20}, {0, 1024, 0, 3000}, 1024, 2},
        {"many shards", {100000}, {0}, 256, 64},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        size_t n = 0;
        while (n < 4 && cases[i].count[n] > 0)
            n++;
        hk_layout *const l = layout_of(&cases[i], n);
        const hk_share share[4] = {HK_SHARE_EXCHANGE, HK_SHARE_EXCHANGE,
                                   HK_SHARE_EXCHANGE, HK_SHARE_EXCHANGE};
        hki_partition d, again;
        assert_ok(hki_partition_init(&d, l, share, cases[i].chunk_floats,
                                     HKI_TABLES_IN_ROWS, cases[i].shards,
                                     "test"));
        check_partition(&cases[i], &d, hki_layout_size(l));
        assert_ok(hki_partition_init(&again, l, share, cases[i].chunk_floats,
                                     HKI_TABLES_IN_ROWS, cases[i].shards,
                                     "test"));
        assert_true(d.hash == again.hash);
        hki_partition_deinit(&again);
        assert_ok(hki_partition_init(
            &again, l, share, cases[i].chunk_floats * 2, HKI_TABLES_IN_ROWS,
            cases[i].shards + 1, "test"));
        assert_true(d.hash != again.hash);
        hki_partition_deinit(&again);
        hki_partition_deinit(&d);
        hk_layout_release(l);
    }
}

// ---- a small cluster --------------------------------------------------------

typedef struct cluster {
    hk_layout *layout;
    size_t n;
    hk_center_server *server[SHARDS];
    char address[SHARDS][128];
    const char *addresses[SHARDS];
    const char *durability;
    hk_method method;
    hk_context *context; // of the servers; NULL: none
    int64_t lease_ms;    // 0: PATIENCE_MS
    hk_center *center;
} cluster;

static void start_server(cluster *c, uint32_t i) {
    char path[128];
    hk_center_server_options o;
    hk_center_options center;
    hk_center_options_init(&center, sizeof center);
    center.method = c->method;
    center.chunk_kib = 4;
    bed_server_options(&o, &c->addresses[i]);
    snprintf(path, sizeof path, "%s/center%u", folder, i);
    o.path = path;
    o.center = &center;
    o.durability = c->durability;
    o.shards = c->addresses;
    o.n_shards = SHARDS;
    o.shard = i;
    o.context = c->context;
    o.lease_ms = c->lease_ms != 0 ? c->lease_ms : PATIENCE_MS;
    o.hello_ms = PATIENCE_MS;
    assert_ok(hk_center_server_start(&o, &c->server[i]));
}

// With what *c says.
static void start_cluster(cluster *c) {
    bed_folder_make(folder);
    c->layout = suite_center_layout((int64_t[]){9000, 100, 7000}, 3);
    c->n = (size_t)hki_layout_size(c->layout);
    for (uint32_t i = 0; i < SHARDS; i++) {
        snprintf(c->address[i], sizeof c->address[i], "unix:%s/s%u", folder, i);
        c->addresses[i] = c->address[i];
    }
    for (uint32_t i = 0; i < SHARDS; i++)
        start_server(c, i);
    hk_connect_options o;
    bed_connect_options(&o, c->addresses, SHARDS);
    o.retry_ms = PATIENCE_MS;
    assert_ok(hk_center_connect(&o, c->layout, &c->center));
}

static void open_cluster_of(cluster *c, hk_method method,
                            const char *durability) {
    *c = (cluster){.durability = durability, .method = method};
    start_cluster(c);
}

static void open_cluster(cluster *c, const char *durability) {
    open_cluster_of(c, HK_METHOD_DOWNPOUR, durability);
}

static void close_cluster(cluster *c) {
    hk_center_destroy(c->center);
    for (uint32_t i = 0; i < SHARDS; i++)
        hk_center_server_stop(c->server[i]);
    hk_layout_release(c->layout);
    bed_folder_remove(folder);
}

// Workers that add a whole number to every value, again and again.
typedef struct adder {
    cluster *c;
    uint32_t id;
    int64_t wait_ms; // 0: PATIENCE_MS
    _Atomic bool *stop;
    _Atomic long done;
    _Atomic bool over;
    hk_status status;
    char text[256];
} adder;

static hk_status add_on(adder *a) {
    const hki_center_ops *const ops = a->c->center->ops;
    hki_member m;
    int64_t step;
    float *x, *view;
    HKI_TRY(
        ops->join(a->c->center, (int32_t)a->id, hki_deadline(PATIENCE_MS), &m));
    HKI_TRY(hki_zalloc_array(a->c->n, sizeof *x, &x));
    HKI_TRY(hki_zalloc_array(a->c->n, sizeof *view, &view));
    HKI_TRY(ops->init_if_empty(a->c->center, m, x, NULL,
                               hki_deadline(PATIENCE_MS)));
    HKI_TRY(ops->pull(a->c->center, m, x, view, NULL, hki_deadline(PATIENCE_MS),
                      &step));
    hk_status s = HK_OK;
    const int64_t wait_ms = a->wait_ms != 0 ? a->wait_ms : PATIENCE_MS;
    while (s == HK_OK && !atomic_load(a->stop)) {
        for (size_t e = 0; e < hki_layout_entry_count(a->c->layout); e++) {
            const hk_entry *const at = hk_layout_entry(a->c->layout, e);
            for (int64_t i = 0; i < at->count; i++)
                x[at->offset + i] += (float)(1 + a->id);
        }
        hki_exchange ex = {.x = x,
                           .view = view,
                           .rate = 1,
                           .grad_scale = 1,
                           .steps_done = 1,
                           .deadline_ns = hki_deadline(wait_ms),
                           .use_locking = true};
        s = a->c->method == HK_METHOD_DOWNPOUR
                ? ops->exchange(a->c->center, m, &ex)
                : ops->push_round(a->c->center, m, &ex);
        atomic_fetch_add(&a->done, s == HK_OK && ex.begun);
    }
    if (s == HK_OK)
        s = ops->leave(a->c->center, m, 0, hki_deadline(PATIENCE_MS));
    hki_free(x);
    hki_free(view);
    return s;
}

static void *adder_main(void *arg) {
    adder *const a = arg;
    a->status = add_on(a);
    snprintf(a->text, sizeof a->text, "%s", hk_last_error());
    atomic_store(&a->over, true);
    return NULL;
}

// All values of a consistent copy are the same number.
static float check_uniform(const cluster *c, const float *values,
                           const char *what) {
    const float first = values[0];
    for (size_t e = 0; e < hki_layout_entry_count(c->layout); e++) {
        const hk_entry *const at = hk_layout_entry(c->layout, e);
        for (int64_t i = 0; i < at->count; i++)
            if (values[at->offset + i] != first)
                fail_msg("%s: value %lld is %g, value 0 is %g", what,
                         (long long)(at->offset + i),
                         (double)values[at->offset + i], (double)first);
    }
    return first;
}

typedef struct crowd {
    adder a[WORKERS];
    pthread_t id[WORKERS];
    _Atomic bool stop;
} crowd;

static void crowd_start(crowd *w, cluster *c) {
    memset(w, 0, sizeof *w);
    for (uint32_t i = 0; i < WORKERS; i++) {
        w->a[i].c = c;
        w->a[i].id = i;
        w->a[i].stop = &w->stop;
        assert_int_equal(pthread_create(&w->id[i], NULL, adder_main, &w->a[i]),
                         0);
    }
}

static void crowd_stop(crowd *w) {
    atomic_store(&w->stop, true);
    for (uint32_t i = 0; i < WORKERS; i++)
        pthread_join(w->id[i], NULL);
    for (uint32_t i = 0; i < WORKERS; i++)
        if (w->a[i].status != HK_OK)
            fail_msg("worker %u: %s", i, w->a[i].text);
}

// Every worker makes so many exchanges more.
static void crowd_wait(crowd *w, long more) {
    const int64_t deadline = hki_deadline(PATIENCE_MS);
    for (uint32_t i = 0; i < WORKERS; i++) {
        adder *const a = &w->a[i];
        const long begin = atomic_load(&a->done);
        while (atomic_load(&a->done) < begin + more) {
            const struct timespec t = {0, 200000};
            if (atomic_load(&a->over) || hki_now_ns() > deadline) {
                crowd_stop(w); // tells why, if a worker failed
                fail_msg("worker %u made %ld of %ld exchanges", i,
                         atomic_load(&a->done) - begin, more);
            }
            nanosleep(&t, NULL);
        }
    }
}

// ---- cuts -------------------------------------------------------------------

static void test_cuts(void **state) {
    (void)state;
    cluster c;
    crowd w;
    float *values;
    open_cluster(&c, NULL);
    assert_ok(hki_zalloc_array(c.n, sizeof *values, &values));
    crowd_start(&w, &c);
    crowd_wait(&w, 2);
    float last = 0;
    for (int i = 0; i < 25; i++) {
        hk_center_info info;
        assert_ok(hk_center_snapshot(c.center, HK_CENTER_VALUES, PATIENCE_MS,
                                     values, NULL, &info));
        const float now = check_uniform(&c, values, "snapshot");
        assert_true(now >= last);
        assert_true(info.exchanges > 0);
        last = now;
        crowd_wait(&w, 1); // they go on
    }
    crowd_stop(&w);
    assert_true(last > 0);
    // New values for all shards.
    for (size_t i = 0; i < c.n; i++)
        values[i] = 7;
    assert_ok(hk_center_assign(c.center, values, NULL, 1000, PATIENCE_MS));
    memset(values, 0, c.n * sizeof *values);
    hk_center_info info;
    assert_ok(hk_center_snapshot(c.center, HK_CENTER_VALUES, PATIENCE_MS,
                                 values, NULL, &info));
    assert_true(check_uniform(&c, values, "assigned") == 7);
    assert_int_equal(info.global_step, 1000);
    values[5] = NAN;
    assert_status(hk_center_assign(c.center, values, NULL, 0, PATIENCE_MS),
                  HK_E_NOT_FINITE);
    hki_free(values);
    close_cluster(&c);
}

// A round that waits for somebody else is left by hk_center_cancel; what would
// wait later returns at once.
static void test_cancel(void **state) {
    (void)state;
    cluster c;
    open_cluster_of(&c, HK_METHOD_DILOCO, NULL);
    _Atomic bool stop = false;
    adder a = {.c = &c, .id = 0, .stop = &stop};
    pthread_t id;
    assert_int_equal(pthread_create(&id, NULL, adder_main, &a), 0);
    const int64_t deadline = hki_deadline(PATIENCE_MS);
    while (atomic_load(&a.done) < 2 && hki_now_ns() < deadline)
        sched_yield();
    assert_true(atomic_load(&a.done) >= 2);
    hk_connect_options o;
    hk_center *other;
    hki_member m;
    bed_connect_options(&o, c.addresses, SHARDS);
    assert_ok(hk_center_connect(&o, c.layout, &other));
    assert_ok(other->ops->join(other, 1, hki_deadline(PATIENCE_MS), &m));
    const int64_t begin = hki_now_ns();
    assert_ok(hk_center_cancel(c.center));
    pthread_join(id, NULL);
    assert_true(hki_now_ns() - begin < (int64_t)PATIENCE_MS * 500000);
    assert_status(a.status, HK_E_CANCELLED);
    int64_t step;
    float *x;
    assert_ok(hki_zalloc_array(c.n, sizeof *x, &x));
    assert_ok(other->ops->pull(other, m, x, NULL, NULL,
                               hki_deadline(PATIENCE_MS), &step));
    hki_free(x);
    hk_center_destroy(other);
    close_cluster(&c);
}

static char log_text[16384];
static hki_mutex log_lock = HKI_MUTEX_INIT;

static void keep_log(void *user, hk_log_level level, const char *text) {
    (void)user;
    if (level < HK_LOG_WARNING)
        return;
    HKI_LOCKED(&log_lock);
    const size_t n = strlen(log_text);
    snprintf(log_text + n, sizeof log_text - n, "%s\n", text);
}

// A worker that hangs while its heartbeats go on: the others go on without it
// before their time is over, the log names it, and when it comes back it takes
// part again.
static void test_hung_member(void **state) {
    (void)state;
    enum { WAIT_MS = 12000 };
    cluster c = {.method = HK_METHOD_MODEL_AVERAGE,
                 .lease_ms = WAIT_MS / 3 * 4};
    hk_context_options co;
    hk_context_options_init(&co, sizeof co);
    co.log = keep_log;
    assert_ok(hk_context_create(&co, &c.context));
    start_cluster(&c);
    hk_connect_options o;
    hk_center *hung;
    hki_member m;
    int64_t step;
    float *x, *view;
    assert_ok(hki_zalloc_array(c.n, sizeof *x, &x));
    assert_ok(hki_zalloc_array(c.n, sizeof *view, &view));
    bed_connect_options(&o, c.addresses, SHARDS);
    assert_ok(hk_center_connect(&o, c.layout, &hung));
    assert_ok(hung->ops->join(hung, 2, hki_deadline(PATIENCE_MS), &m));
    _Atomic bool stop = false;
    adder a[2];
    pthread_t id[2];
    for (uint32_t i = 0; i < 2; i++) {
        a[i] = (adder){.c = &c, .id = i, .wait_ms = WAIT_MS, .stop = &stop};
        assert_int_equal(pthread_create(&id[i], NULL, adder_main, &a[i]), 0);
    }
    const int64_t deadline = hki_deadline(PATIENCE_MS);
    for (uint32_t i = 0; i < 2; i++)
        while (atomic_load(&a[i].done) < 3 && !atomic_load(&a[i].over) &&
               hki_now_ns() < deadline)
            (void)hki_nap(NULL, 10);
    for (uint32_t i = 0; i < 2; i++)
        if (atomic_load(&a[i].over) || atomic_load(&a[i].done) < 3)
            fail_msg("worker %u: %ld rounds, %s\n%s", i,
                     atomic_load(&a[i].done), a[i].text, log_text);
    hki_mutex_lock(&log_lock);
    assert_non_null(strstr(log_text, "worker 2"));
    assert_non_null(strstr(log_text, "removed from the round"));
    hki_mutex_unlock(&log_lock);
    hki_exchange ex = {.x = x,
                       .view = view,
                       .rate = 1,
                       .grad_scale = 1,
                       .steps_done = 1,
                       .deadline_ns = hki_deadline(PATIENCE_MS),
                       .use_locking = true};
    assert_ok(hung->ops->push_round(hung, m, &ex));
    assert_ok(hung->ops->pull(hung, m, x, NULL, NULL, hki_deadline(PATIENCE_MS),
                              &step));
    for (uint32_t i = 0; i < SHARDS; i++) {
        hk_worker_info w;
        assert_ok(hk_center_server_worker(c.server[i], 2, &w));
        assert_int_equal(w.incarnation, 2);
        assert_int_equal(w.steps, 1);
    }
    assert_ok(hung->ops->leave(hung, m, 0, hki_deadline(PATIENCE_MS)));
    atomic_store(&stop, true);
    for (uint32_t i = 0; i < 2; i++) {
        pthread_join(id[i], NULL);
        if (a[i].status != HK_OK)
            fail_msg("worker %u: %s", i, a[i].text);
    }
    hki_free(x);
    hki_free(view);
    hk_center_destroy(hung);
    close_cluster(&c);
    hk_context_destroy(c.context);
}

// A worker whose connection to one shard breaks in a round connects again
// although it still waits for the others at another shard. Otherwise two such
// workers would wait for each other until a lease is over.
typedef struct broken_round {
    hk_center *center;
    hki_member m;
    float *x;
    bool broken;
    hk_status status;
} broken_round;

static void break_second_link(void *user, int64_t begin, int64_t end,
                              const float *x, const float *c) {
    (void)begin;
    (void)end;
    (void)x;
    (void)c;
    broken_round *const b = user;
    if (!b->broken)
        hki_conn_hang_up(hki_remote_of(b->center)->members->link[1].f.conn);
    b->broken = true;
}

static void *push_broken_round(void *user) {
    broken_round *const b = user;
    hki_exchange ex = {.x = b->x,
                       .rate = 1,
                       .grad_scale = 1,
                       .steps_done = 1,
                       .deadline_ns = hki_deadline(PATIENCE_MS),
                       .observe = break_second_link,
                       .user = b,
                       .use_locking = true};
    b->status = b->center->ops->push_round(b->center, b->m, &ex);
    return NULL;
}

static void test_broken_round(void **state) {
    (void)state;
    cluster c = {.method = HK_METHOD_MODEL_AVERAGE, .lease_ms = PATIENCE_MS};
    start_cluster(&c);
    hk_connect_options o;
    hki_member m;
    float *x;
    broken_round b = {0};
    assert_ok(hki_zalloc_array(c.n, sizeof *x, &x));
    assert_ok(hki_zalloc_array(c.n, sizeof *b.x, &b.x));
    bed_connect_options(&o, c.addresses, SHARDS);
    assert_ok(hk_center_connect(&o, c.layout, &b.center));
    const int64_t deadline = hki_deadline(PATIENCE_MS);
    const hki_center_ops *const ops = b.center->ops;
    assert_ok(ops->join(c.center, 0, deadline, &m));
    assert_ok(ops->init_if_empty(c.center, m, x, NULL, deadline));
    assert_ok(ops->join(b.center, 1, deadline, &b.m));
    assert_ok(ops->init_if_empty(b.center, b.m, b.x, NULL, deadline));
    pthread_t id;
    assert_int_equal(pthread_create(&id, NULL, push_broken_round, &b), 0);
    hki_remote *const r = hki_remote_of(b.center);
    const int64_t soon = hki_deadline(PATIENCE_MS / 2);
    while (atomic_load(&r->reconnects) == 0 && hki_now_ns() < soon)
        sched_yield();
    const bool again = atomic_load(&r->reconnects) > 0;
    hki_exchange ex = {.x = x,
                       .rate = 1,
                       .grad_scale = 1,
                       .steps_done = 1,
                       .deadline_ns = hki_deadline(PATIENCE_MS),
                       .use_locking = true};
    assert_ok(ops->push_round(c.center, m, &ex));
    pthread_join(id, NULL);
    assert_true(again);
    assert_ok(b.status);
    for (size_t i = 0; i < c.n; i++)
        assert_true(x[i] == 0 && b.x[i] == 0);
    hki_free(x);
    hki_free(b.x);
    hk_center_destroy(b.center);
    close_cluster(&c);
}

// A round is in a copy as a whole or not at all, at every shard, and it is of
// the same workers at all of them, whoever joins between the rounds of two.
static void test_cuts_in_rounds(void **state) {
    (void)state;
    cluster c;
    crowd w;
    float *values, last = 0;
    open_cluster_of(&c, HK_METHOD_MODEL_AVERAGE, NULL);
    assert_ok(hki_zalloc_array(c.n, sizeof *values, &values));
    crowd_start(&w, &c);
    crowd_wait(&w, 2);
    for (int i = 0; i < 100; i++) {
        assert_ok(hk_center_snapshot(c.center, HK_CENTER_VALUES, PATIENCE_MS,
                                     values, NULL, NULL));
        const float now = check_uniform(&c, values, "snapshot");
        assert_true(now >= last);
        last = now;
    }
    crowd_stop(&w);
    assert_true(last > 0);
    hki_free(values);
    close_cluster(&c);
}

// Somebody who is in the middle of something and does not move: the cut gives
// up, says who it was, and exchanges go on.
static void test_cut_gives_up(void **state) {
    (void)state;
    cluster c;
    float *values;
    open_cluster(&c, NULL);
    assert_ok(hki_zalloc_array(c.n, sizeof *values, &values));
    const hki_center_ops *const ops = c.center->ops;
    hki_member m[2];
    for (int32_t i = 0; i < 2; i++)
        assert_ok(ops->join(c.center, i, hki_deadline(PATIENCE_MS), &m[i]));
    assert_ok(ops->init_if_empty(c.center, m[0], values, NULL,
                                 hki_deadline(PATIENCE_MS)));
    hki_shard *const shard = atomic_load(&c.server[1]->shard);
    hki_mutex_lock(&shard->lock); // as if it had just begun
    shard->seat[1].running = 1;
    hki_mutex_unlock(&shard->lock);
    assert_status(
        hk_center_snapshot(c.center, HK_CENTER_VALUES, 100, values, NULL, NULL),
        HK_E_TIMEOUT);
    assert_non_null(strstr(hk_last_error(), "worker 1"));
    float *view;
    assert_ok(hki_zalloc_array(c.n, sizeof *view, &view));
    hki_exchange ex = {.x = values,
                       .view = view,
                       .rate = 1,
                       .grad_scale = 1,
                       .steps_done = 1,
                       .deadline_ns = hki_deadline(PATIENCE_MS),
                       .use_locking = true};
    assert_ok(ops->exchange(c.center, m[0], &ex));
    assert_true(ex.begun);
    assert_ok(ops->leave(c.center, m[1], 0, hki_deadline(PATIENCE_MS)));
    assert_ok(hk_center_snapshot(c.center, HK_CENTER_VALUES, PATIENCE_MS,
                                 values, NULL, NULL));
    hki_free(view);
    hki_free(values);
    close_cluster(&c);
}

// ---- files ------------------------------------------------------------------

// As if the machine had gone down: another boot, and not closed.
static void pretend_crash(uint32_t shard) {
    char path[128];
    hki_center_file f;
    snprintf(path, sizeof path, "%s/center%u", folder, shard);
    assert_ok(hki_center_file_open(&f, path));
    for (uint64_t i = 0; i < f.head->n_floats; i++)
        f.vector[0][i] = -1; // what it holds is not to be trusted
    snprintf(f.head->boot, sizeof f.head->boot, "another boot");
    f.head->clean = 0;
    f.head = NULL; // leaves the mark as it is
    hki_center_file_close(&f);
}

static void test_snapshot_files(void **state) {
    (void)state;
    cluster c;
    crowd w;
    float *values;
    open_cluster(&c, "snapshot:0.05");
    assert_ok(hki_zalloc_array(c.n, sizeof *values, &values));
    crowd_start(&w, &c);
    hk_server_info info = {.snapshots = 0};
    const int64_t deadline = hki_deadline(PATIENCE_MS);
    while (info.snapshots < 3 && hki_now_ns() < deadline) {
        crowd_wait(&w, 1);
        assert_ok(hk_center_server_get_info(c.server[2], &info));
    }
    assert_true(info.snapshots >= 3);
    assert_true(info.snapshot_age >= 0);
    crowd_stop(&w);
    for (uint32_t i = 0; i < SHARDS; i++)
        hk_center_server_stop(c.server[i]);
    for (uint32_t i = 0; i < SHARDS; i++)
        pretend_crash(i);
    for (uint32_t i = 0; i < SHARDS; i++)
        start_server(&c, i);
    assert_ok(hk_center_snapshot(c.center, HK_CENTER_VALUES, PATIENCE_MS,
                                 values, NULL, NULL));
    assert_true(check_uniform(&c, values, "after a crash") > 0);
    hki_free(values);
    close_cluster(&c);
}

static void lose_machine(cluster *c, uint32_t shard) {
    hk_center_server_stop(c->server[shard]);
    pretend_crash(shard);
    start_server(c, shard);
}

static void wait_snapshots(cluster *c, crowd *w, uint64_t n) {
    hk_server_info info = {.snapshots = 0};
    const int64_t deadline = hki_deadline(PATIENCE_MS);
    while (info.snapshots < n && hki_now_ns() < deadline) {
        crowd_wait(w, 1);
        assert_ok(hk_center_server_get_info(c->server[2], &info));
    }
    assert_true(info.snapshots >= n);
}

// The machine of one shard is lost in the middle of a run: all go back to the
// same snapshot, and the workers go on from there. Shard 0 is no exception.
static void test_one_machine_lost(void **state) {
    (void)state;
    cluster c;
    crowd w;
    float *values;
    open_cluster(&c, "snapshot:0.05");
    assert_ok(hki_zalloc_array(c.n, sizeof *values, &values));
    crowd_start(&w, &c);
    for (uint32_t shard = 0; shard < 2; shard++) {
        hk_server_info before, after;
        wait_snapshots(&c, &w, 3 * (shard + 1));
        assert_ok(hk_center_server_get_info(c.server[2], &before));
        lose_machine(&c, shard);
        crowd_wait(&w, 2);
        for (int i = 0; i < 5; i++) {
            assert_ok(hk_center_snapshot(c.center, HK_CENTER_VALUES,
                                         PATIENCE_MS, values, NULL, NULL));
            assert_true(check_uniform(&c, values, "after a loss") > 0);
        }
        // Also that of a shard that nothing happened to.
        assert_ok(hk_center_server_get_info(c.server[2], &after));
        assert_true(before.run_id != after.run_id);
    }
    crowd_stop(&w);
    hki_free(values);
    close_cluster(&c);
}

// A snapshot that only some have does not count, however new it is.
static void make_newer_snapshot(uint32_t shard) {
    char kept[128], next[136];
    hki_center_head h;
    snprintf(kept, sizeof kept, "%s/center%u.snapshot", folder, shard);
    snprintf(next, sizeof next, "%s.next", kept);
    assert_ok(hki_file_copy(kept, next, true, false));
    const int fd = open(next, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &h, sizeof h, 0), sizeof h);
    h.cut++;
    assert_int_equal(pwrite(fd, &h, sizeof h, 0), sizeof h);
    for (uint64_t i = 0; i < h.n_floats; i++) {
        const float v = -2;
        assert_int_equal(
            pwrite(fd, &v, sizeof v, (off_t)(h.vector_at + i * sizeof v)),
            sizeof v);
    }
    close(fd);
}

static void test_newest_of_all(void **state) {
    (void)state;
    cluster c;
    crowd w;
    float *values;
    open_cluster(&c, "snapshot:0.05");
    assert_ok(hki_zalloc_array(c.n, sizeof *values, &values));
    crowd_start(&w, &c);
    wait_snapshots(&c, &w, 3);
    crowd_stop(&w);
    for (uint32_t i = 0; i < SHARDS; i++)
        hk_center_server_stop(c.server[i]);
    make_newer_snapshot(0);
    make_newer_snapshot(2);
    pretend_crash(0);
    for (uint32_t i = 0; i < SHARDS; i++)
        start_server(&c, i);
    assert_ok(hk_center_snapshot(c.center, HK_CENTER_VALUES, PATIENCE_MS,
                                 values, NULL, NULL));
    assert_true(check_uniform(&c, values, "newest of all") > 0);
    hki_free(values);
    close_cluster(&c);
}

// There is none: the run ends, and says why.
static void test_no_snapshot_of_all(void **state) {
    (void)state;
    cluster c;
    crowd w;
    char path[128], reason[256];
    open_cluster(&c, "snapshot:1000");
    crowd_start(&w, &c);
    crowd_wait(&w, 2);
    crowd_stop(&w);
    hk_center_server_stop(c.server[1]);
    snprintf(path, sizeof path, "%s/center1", folder);
    assert_ok(hki_file_remove(path));
    start_server(&c, 1);
    for (uint32_t i = 0; i < SHARDS; i++) {
        int finished = 0;
        assert_ok(hk_center_server_wait(c.server[i], PATIENCE_MS, &finished));
        assert_true(finished);
        hki_server_reason(c.server[i], reason, sizeof reason);
        assert_non_null(strstr(reason, "no snapshot of all centers"));
    }
    close_cluster(&c);
}

// Closed and opened: nothing is lost, whatever is asked for has to fit.
static void test_restart(void **state) {
    (void)state;
    cluster c;
    crowd w;
    float *values, *again;
    open_cluster(&c, "process");
    assert_ok(hki_zalloc_array(c.n, sizeof *values, &values));
    assert_ok(hki_zalloc_array(c.n, sizeof *again, &again));
    crowd_start(&w, &c);
    crowd_wait(&w, 3);
    crowd_stop(&w);
    hk_center_info before, after;
    assert_ok(hk_center_snapshot(c.center, HK_CENTER_VALUES, PATIENCE_MS,
                                 values, NULL, &before));
    for (uint32_t i = 0; i < SHARDS; i++)
        hk_center_server_stop(c.server[i]);
    for (uint32_t i = 0; i < SHARDS; i++)
        start_server(&c, i);
    assert_ok(hk_center_snapshot(c.center, HK_CENTER_VALUES, PATIENCE_MS, again,
                                 NULL, &after));
    assert_memory_equal(values, again, c.n * sizeof *values);
    assert_int_equal(before.exchanges, after.exchanges);
    assert_int_equal(before.global_step, after.global_step);
    assert_int_equal(before.version, after.version);
    // Taken, or of another kind.
    char path[128];
    const char *at = "inproc:other";
    hk_center_server *s = NULL;
    hk_center_server_options o;
    bed_server_options(&o, &at);
    snprintf(path, sizeof path, "%s/center0", folder);
    o.path = path;
    o.n_shards = SHARDS;
    assert_status(hk_center_server_start(&o, &s), HK_E_EXISTS);
    hk_center_server_stop(c.server[0]);
    c.server[0] = NULL;
    assert_status(hk_center_server_start(&o, &s), HK_E_INVALID_ARG);
    assert_non_null(strstr(hk_last_error(), "method"));
    hki_free(values);
    hki_free(again);
    close_cluster(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partition),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_hung_member),
        cmocka_unit_test(test_broken_round),
        cmocka_unit_test(test_cuts_in_rounds),
        cmocka_unit_test(test_cut_gives_up),
        cmocka_unit_test(test_snapshot_files),
        cmocka_unit_test(test_one_machine_lost),
        cmocka_unit_test(test_newest_of_all),
        cmocka_unit_test(test_no_snapshot_of_all),
        cmocka_unit_test(test_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
