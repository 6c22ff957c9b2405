// test_cluster_away.c - centers that go away and come back, leases and
// heartbeats, the end of a run, notes, plain workers, keys.
#include "cluster_bed.h"
#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>
#include "hooke/ranges.h"

#define PATIENCE_MS 60000 // for what comes soon, on a machine that is busy

static char folder[64];
static _Atomic int expired;     // leases that ended
static _Atomic int unnamed;     // of them, without an address
static _Atomic int alone, back; // workers that train on without leased data

static void hear(void *user, hk_log_level level, const char *text) {
    (void)user;
    (void)level;
    if (strstr(text, "gave no sign of life") != NULL)
        atomic_fetch_add(&expired, 1);
    if (strstr(text, "worker 0 (not back since the center's start) gave") !=
        NULL)
        atomic_fetch_add(&unnamed, 1);
    if (strstr(text, "continues with its own share") != NULL)
        atomic_fetch_add(&alone, 1);
    if (strstr(text, "the center answers again") != NULL)
        atomic_fetch_add(&back, 1);
}

typedef struct scene {
    hk_layout *layout;
    size_t n;
    char address[128], path[128];
    const char *at;
    bool file;
    int64_t lease_ms;
    hk_context *context;
    hk_center_server *server;
    hk_center *center;
    hki_member m;
    float *x;
} scene;

static void start_server(scene *s) {
    hk_center_server_options o;
    hk_center_options center;
    hk_context_options co;
    hk_center_options_init(&center, sizeof center);
    hk_context_options_init(&co, sizeof co);
    co.log = hear;
    if (s->context == NULL)
        assert_ok(hk_context_create(&co, &s->context));
    atomic_store(&expired, 0);
    center.chunk_kib = 1;
    bed_server_options(&o, &s->at);
    o.context = s->context;
    o.center = &center;
    o.path = s->file ? s->path : NULL;
    o.lease_ms = s->lease_ms;
    o.hello_ms = PATIENCE_MS;
    assert_ok(hk_center_server_start(&o, &s->server));
}

static void connect_center(scene *s, int64_t retry_ms, int64_t lost_ms,
                           hk_center **out) {
    hk_connect_options o;
    bed_connect_options(&o, &s->at, 1);
    o.retry_ms = retry_ms;
    o.lost_ms = lost_ms;
    assert_ok(hk_center_connect(&o, s->layout, out));
}

static void open_scene(scene *s, const char *name, bool file, int64_t lease_ms,
                       int64_t lost_ms) {
    memset(s, 0, sizeof *s);
    s->layout = suite_center_layout((int64_t[]){1000}, 1);
    s->n = (size_t)hki_layout_size(s->layout);
    snprintf(s->address, sizeof s->address, "unix:%s/%s", folder, name);
    snprintf(s->path, sizeof s->path, "%s/%s.center", folder, name);
    s->at = s->address;
    s->file = file;
    s->lease_ms = lease_ms;
    start_server(s);
    connect_center(s, 0, lost_ms, &s->center);
    assert_ok(hki_zalloc_array(s->n, sizeof(float), &s->x));
    for (size_t i = 0; i < 1000; i++)
        s->x[i] = (float)(i % 10);
    assert_ok(
        s->center->ops->join(s->center, 0, hki_deadline(PATIENCE_MS), &s->m));
    assert_ok(s->center->ops->init_if_empty(s->center, s->m, s->x, NULL,
                                            hki_deadline(PATIENCE_MS)));
}

static void close_scene(scene *s) {
    hk_center_destroy(s->center);
    hk_center_server_stop(s->server);
    hk_context_destroy(s->context);
    hk_layout_release(s->layout);
    hki_free(s->x);
}

static hk_status exchange(scene *s, int64_t steps, hki_exchange *ex) {
    *ex = (hki_exchange){.x = s->x,
                         .rate = 0.5,
                         .grad_scale = 1,
                         .steps_done = steps,
                         .deadline_ns = hki_deadline(PATIENCE_MS),
                         .use_locking = true};
    return s->center->ops->exchange(s->center, s->m, ex);
}

static void short_pause(void) {
    const struct timespec t = {0, 2000000};
    nanosleep(&t, NULL);
}

// Tries until an exchange goes through; steps pile up meanwhile.
static int64_t exchange_soon(scene *s, int64_t steps) {
    const int64_t deadline = hki_deadline(PATIENCE_MS);
    hki_exchange ex;
    for (;;) {
        assert_ok(exchange(s, steps, &ex));
        if (ex.begun)
            return ex.global_step;
        assert_true(ex.missed);
        if (hki_now_ns() > deadline)
            fail_msg("the center does not come back");
        steps++;
        short_pause();
    }
}

// ---- away -------------------------------------------------------------------

static void test_trains_on(void **state) {
    (void)state;
    scene s;
    hki_exchange ex;
    open_scene(&s, "on", true, 3000, 0);
    assert_ok(exchange(&s, 3, &ex));
    assert_true(ex.begun && !ex.missed);
    assert_int_equal(ex.global_step, 3);
    hk_center_server_stop(s.server);
    s.server = NULL;
    float before[1000];
    for (size_t i = 0; i < 1000; i++)
        s.x[i] += 1;
    memcpy(before, s.x, sizeof before);
    for (int i = 0; i < 5; i++) {
        assert_ok(exchange(&s, 1, &ex));
        assert_true(ex.missed && !ex.begun);
        assert_true(hki_now_ns() < ex.deadline_ns);      // did not wait for it
        assert_memory_equal(before, s.x, sizeof before); // nothing happened
    }
    assert_int_equal(hki_center_reachable(s.center), 0);
    hk_link_info info;
    assert_ok(hk_center_get_link_info(s.center, &info));
    assert_true(info.missed >= 5 && info.away_seconds > 0);
    start_server(&s);
    assert_true(exchange_soon(&s, 5) >= 8);
    assert_int_equal(hki_center_reachable(s.center), 1);
    assert_ok(hk_center_get_link_info(s.center, &info));
    assert_true(info.reconnects >= 1);
    assert_ok(
        s.center->ops->leave(s.center, s.m, 0, hki_deadline(PATIENCE_MS)));
    close_scene(&s);
}

// ---- data while the center is away ------------------------------------------

static const hk_lent_set hundred = {
    .name = "hundred", .units = 100, .epochs = 2, .workers = 3};

static hk_range take_range(hk_center *c, uint32_t set) {
    hk_range r;
    assert_ok(hk_center_take_range(c, 1, set, PATIENCE_MS, &r));
    return r;
}

// Worker 1 of 3 trains on with units 34 to 66 of the epoch, which are its own
// by data.share: sharded, and then with those of the next. The log says once
// that this begins, and once that it ends; then there are leased ranges again.
static void test_own_share(void **state) {
    (void)state;
    scene s;
    hk_connect_options o;
    hk_center *c;
    hki_member m;
    hk_link_info info;
    uint32_t set;
    uint64_t seed, last = 0;
    int64_t uncounted = 0;
    open_scene(&s, "own", true, 3000, 0);
    bed_connect_options(&o, &s.at, 1);
    o.context = s.context;
    o.retry_ms = 0;
    assert_ok(hk_center_connect(&o, s.layout, &c));
    assert_ok(c->ops->join(c, 1, hki_deadline(PATIENCE_MS), &m));
    assert_ok(hk_center_declare_set(c, 1, &hundred, PATIENCE_MS, &set, &seed));
    hk_range r = {0};
    for (int64_t at = 0; at == 0 || r.end - r.begin > 1; at = r.end) {
        r = take_range(c, set);
        assert_true((r.id & HK_RANGE_OWN) == 0 && r.begin == at);
        assert_ok(hk_center_use_range(c, 1, r.id));
    }
    const int64_t leased = r.end; // ranges are short: the epoch is almost over
    atomic_store(&alone, 0);
    atomic_store(&back, 0);
    hk_center_server_stop(s.server);
    s.server = NULL;
    for (int64_t epoch = 0; epoch < 2; epoch++)
        for (int64_t at = 34; at < 67; at = r.end) {
            r = take_range(c, set);
            assert_true((r.id & HK_RANGE_OWN) != 0 && r.id != last);
            assert_int_equal(r.epoch, epoch);
            assert_int_equal(r.begin, at);
            assert_int_equal(r.end, HKI_MIN(at + 2, 67)); // a 16th of the share
            assert_ok(hk_center_use_range(c, 1, r.id));
            last = r.id;
            uncounted += r.end - r.begin;
        }
    assert_int_equal(atomic_load(&alone), 1);
    assert_int_equal(atomic_load(&back), 0);
    start_server(&s);
    const int64_t deadline = hki_deadline(PATIENCE_MS);
    while ((r = take_range(c, set)).id & HK_RANGE_OWN) {
        assert_true(hki_now_ns() < deadline);
        uncounted += r.end - r.begin;
        short_pause();
    }
    assert_int_equal(r.begin, leased);
    assert_int_equal(atomic_load(&alone), 1);
    assert_int_equal(atomic_load(&back), 1);
    assert_ok(hk_center_get_link_info(c, &info));
    assert_int_equal(info.uncounted, uncounted);
    hk_center_destroy(c);
    close_scene(&s);
}

// A question that waits until the center can answer again, in vain.
static void ask_in_vain(hk_center *c, const hki_msg_call *m) {
    hki_msg_result r;
    assert_status(hki_center_call(c, m, "lend", hki_deadline(50), &r),
                  HK_E_TIMEOUT);
}

static int64_t ask_for_units(hk_center *c, const hki_msg_call *m) {
    hki_msg_result r;
    assert_ok(hki_center_call(c, m, "lend", hki_deadline(PATIENCE_MS), &r));
    assert_int_equal(r.status, HK_OK);
    return r.end - r.begin;
}

static void wait_for_call(scene *s, const hki_buf *before) {
    const int64_t deadline = hki_deadline(PATIENCE_MS);
    HKI_SCOPED(hki_buf_deinit) hki_buf now = {0};
    do {
        assert_true(hki_now_ns() < deadline);
        short_pause();
        assert_ok(hki_run_memory_put(s->server->memory, &now));
    } while (now.size == before->size &&
             memcmp(now.data, before->data, now.size) == 0);
}

// Two workers of one process whose answers are lost ask again, each with its
// own number: no range is leased that nobody knows of.
static void test_lost_answers(void **state) {
    (void)state;
    scene s;
    hki_member m;
    hki_msg_result r;
    uint32_t set;
    uint64_t seed;
    open_scene(&s, "answers", false, 60000, 0);
    hki_shard *const shard = atomic_load(&s.server->shard);
    assert_ok(s.center->ops->join(s.center, 1, hki_deadline(PATIENCE_MS), &m));
    assert_ok(
        hk_center_declare_set(s.center, 1, &hundred, PATIENCE_MS, &set, &seed));
    const hki_msg_call call[] = {
        {.op = HKI_CALL_TAKE, .worker = 0, .set = set},
        {.op = HKI_CALL_TAKE, .worker = 1, .set = set}};
    HKI_SCOPED(hki_buf_deinit) hki_buf before = {0};
    assert_ok(hki_run_memory_put(s.server->memory, &before));
    hki_mutex_lock(&shard->lock);
    ask_in_vain(s.center, &call[0]);
    ask_in_vain(s.center, &call[1]);
    hki_mutex_unlock(&shard->lock);
    wait_for_call(&s, &before);
    int64_t units = 0;
    for (int i = 0; i < 2; i++)
        units += ask_for_units(s.center, &call[i]);
    assert_ok(hki_center_call(s.center, &call[0], "lend",
                              hki_deadline(PATIENCE_MS), &r));
    assert_int_equal(r.begin, units);
    close_scene(&s);
}

static void test_lost(void **state) {
    (void)state;
    scene s;
    hki_exchange ex;
    open_scene(&s, "lost", false, 3000, 50);
    hk_center_server_stop(s.server);
    s.server = NULL;
    const int64_t deadline = hki_deadline(PATIENCE_MS);
    hk_status status;
    while ((status = exchange(&s, 1, &ex)) == HK_OK && hki_now_ns() < deadline)
        short_pause();
    assert_status(status, HK_E_UNAVAILABLE);
    assert_non_null(strstr(hk_last_error(), "no connection to the center for"));
    // Calls that have to wait say how long they did.
    int64_t step;
    assert_status(s.center->ops->pull(s.center, s.m, s.x, NULL, NULL,
                                      hki_deadline(60), &step),
                  HK_E_UNAVAILABLE);
    close_scene(&s);
}

// A center that was started again has a worker in its file, but no address of
// it: the log names the worker without one.
static void test_expired_after_start(void **state) {
    (void)state;
    scene s;
    hki_exchange ex;
    open_scene(&s, "names", true, 60, 0);
    assert_ok(exchange(&s, 1, &ex));
    hk_center_server_stop(s.server);
    hk_center_destroy(s.center);
    s.center = NULL;
    atomic_store(&unnamed, 0);
    start_server(&s);
    const int64_t deadline = hki_deadline(PATIENCE_MS);
    while (atomic_load(&expired) == 0 && hki_now_ns() < deadline)
        short_pause();
    assert_int_equal(atomic_load(&expired), 1);
    assert_int_equal(atomic_load(&unnamed), 1);
    close_scene(&s);
}

// A center without a file comes back empty: the worker gives it what it has.
static void test_started_anew(void **state) {
    (void)state;
    scene s;
    hki_exchange ex;
    open_scene(&s, "anew", false, PATIENCE_MS, 0);
    assert_ok(exchange(&s, 1, &ex));
    hk_center_server_stop(s.server);
    for (size_t i = 0; i < 1000; i++)
        s.x[i] = (float)i;
    start_server(&s);
    exchange_soon(&s, 1);
    float values[1008];
    hk_center_info info;
    assert_ok(hk_center_snapshot(s.center, HK_CENTER_VALUES, 10000, values,
                                 NULL, &info));
    assert_memory_equal(values, s.x, 1000 * sizeof(float));
    assert_int_equal(info.live, 1);
    close_scene(&s);
}

// ---- between connecting and joining -----------------------------------------

static void *start_later(void *scene_) {
    const struct timespec t = {0, 400000000};
    nanosleep(&t, NULL);
    start_server(scene_);
    return NULL;
}

static hk_elastic *make_elastic(scene *s, int64_t connect_ms, int64_t wait_ms,
                                hk_center **center) {
    hk_connect_options o;
    hk_elastic_options eo;
    hk_elastic *e;
    bed_connect_options(&o, &s->at, 1);
    o.connect_ms = connect_ms;
    assert_ok(hk_center_connect(&o, s->layout, center));
    hk_elastic_options_init(&eo, sizeof eo);
    eo.num_worker = 1;
    eo.wait_ms = wait_ms;
    assert_ok(hk_elastic_create(&eo, NULL, *center, &e));
    return e;
}

// The center goes, for so long as a worker waits to connect: as if it had not
// been there yet.
static void test_away_before_joining(void **state) {
    (void)state;
    scene s;
    hk_center *c;
    pthread_t later;
    open_scene(&s, "joining", false, PATIENCE_MS, 0);
    hk_elastic *e = make_elastic(&s, PATIENCE_MS, 100, &c);
    hk_center_server_stop(s.server);
    assert_int_equal(pthread_create(&later, NULL, start_later, &s), 0);
    assert_ok(hk_elastic_init(e, s.x, -1));
    assert_int_equal(pthread_join(later, NULL), 0);
    hk_elastic_destroy(e);
    hk_center_destroy(c);
    // And no longer.
    e = make_elastic(&s, 300, 4 * PATIENCE_MS, &c);
    hk_center_server_stop(s.server);
    const int64_t begin = hki_now_ns();
    assert_status(hk_elastic_init(e, s.x, -1), HK_E_UNAVAILABLE);
    assert_true(hki_now_ns() - begin < PATIENCE_MS * INT64_C(1000000));
    hk_elastic_destroy(e);
    hk_center_destroy(c);
    start_server(&s);
    close_scene(&s);
}

static void *cancel_later(void *center) {
    short_pause();
    assert_ok(hk_center_cancel(center));
    return NULL;
}

// Nobody has to wait for connect_ms to be over.
static void test_cancelled_before_joining(void **state) {
    (void)state;
    scene s;
    hk_center *c;
    pthread_t later;
    open_scene(&s, "cancelled", false, PATIENCE_MS, 0);
    hk_elastic *const e = make_elastic(&s, 4 * PATIENCE_MS, 100, &c);
    hk_center_server_stop(s.server);
    const int64_t begin = hki_now_ns();
    assert_int_equal(pthread_create(&later, NULL, cancel_later, c), 0);
    assert_status(hk_elastic_init(e, s.x, -1), HK_E_CANCELLED);
    assert_true(hki_now_ns() - begin < PATIENCE_MS * INT64_C(1000000));
    assert_int_equal(pthread_join(later, NULL), 0);
    hk_elastic_destroy(e);
    hk_center_destroy(c);
    start_server(&s);
    close_scene(&s);
}

static scene *anew;
static const hki_center_ops *true_ops;
static int pulls;

// The center has its first values, and goes.
static hk_status pull_anew(hk_center *c, hki_member m, float *x, float *view,
                           void *side, int64_t deadline_ns,
                           int64_t *global_step) {
    if (pulls++ == 0) {
        hk_center_server_stop(anew->server);
        start_server(anew);
    }
    return true_ops->pull(c, m, x, view, side, deadline_ns, global_step);
}

static void test_anew_before_pulling(void **state) {
    (void)state;
    scene s;
    hk_center *c;
    float values[1008];
    open_scene(&s, "pulling", false, PATIENCE_MS, 0);
    hk_elastic *const e = make_elastic(&s, PATIENCE_MS, PATIENCE_MS, &c);
    hki_center_ops ops = *c->ops;
    true_ops = c->ops;
    ops.pull = pull_anew;
    anew = &s;
    c->ops = &ops;
    assert_ok(hk_elastic_init(e, s.x, 1));
    c->ops = true_ops;
    assert_int_equal(pulls, 2);
    assert_ok(
        hk_center_snapshot(c, HK_CENTER_VALUES, 10000, values, NULL, NULL));
    assert_memory_equal(values, s.x, 1000 * sizeof(float));
    hk_elastic_destroy(e);
    hk_center_destroy(c);
    close_scene(&s);
}

// ---- leases -----------------------------------------------------------------

static void wait_live(scene *s, uint32_t live) {
    const int64_t deadline = hki_deadline(PATIENCE_MS);
    hk_server_info info;
    do {
        assert_ok(hk_center_server_get_info(s->server, &info));
        short_pause();
    } while (info.center.live != live && hki_now_ns() < deadline);
    assert_int_equal(info.center.live, live);
}

// When the center heard of the worker last.
static int64_t last_sign(scene *s) {
    hki_shard *const shard = atomic_load(&s->server->shard);
    hki_mutex_lock(&shard->lock);
    const int64_t at = shard->seat[0].seen_ns;
    hki_mutex_unlock(&shard->lock);
    return at;
}

// The center hears of the worker so many times more.
static void wait_signs(scene *s, int n) {
    const int64_t deadline = hki_deadline(PATIENCE_MS);
    for (int64_t seen = last_sign(s); n > 0; short_pause()) {
        const int64_t now = last_sign(s);
        n -= now != seen;
        seen = now;
        if (hki_now_ns() > deadline)
            fail_msg("%d signs of life are missing", n);
    }
}

static void test_lease(void **state) {
    (void)state;
    scene s;
    open_scene(&s, "lease", false, 600, 0);
    // Idle for several leases: heartbeats, three in each, keep the seat.
    const hk_worker_news news = {.local_step = 77, .loss = 0.5};
    assert_ok(hki_center_report(s.center, 0, &news));
    assert_status(hki_center_report(s.center, 9, &news), HK_E_NOT_FOUND);
    wait_signs(&s, 8);
    wait_live(&s, 1);
    hk_worker_info info;
    assert_ok(hk_center_server_worker(s.server, 0, &info));
    assert_int_equal(info.report.local_step, 77);
    assert_close(info.report.loss, 0.5, 0, 0);
    assert_status(hk_center_server_worker(s.server, 5, &info), HK_E_NOT_FOUND);
    // Gone without a word: the lease ends.
    const int before = atomic_load(&expired);
    hk_center_destroy(s.center);
    wait_live(&s, 0);
    assert_int_equal(expired, before + 1);
    s.center = NULL;
    close_scene(&s);
}

// Slows down what goes up, until the center has heard of the worker so often.
typedef struct slow_link {
    scene *s;
    int64_t seen;
    int signs;
} slow_link;

#define SIGNS 8 // the center notes progress as often within a lease

static size_t slowly(void *user, bool send, size_t want) {
    slow_link *const l = user;
    const struct timespec t = {0, 1000000};
    if (!send || atomic_load(&l->s->server->shard) == NULL)
        return want;
    const int64_t seen = last_sign(l->s);
    l->signs += seen != l->seen;
    l->seen = seen;
    if (l->signs >= 2 * SIGNS)
        return want;
    nanosleep(&t, NULL);
    return HKI_MIN(want, (size_t)1024);
}

static void unheard(void *user, bool send, size_t done) {
    (void)user;
    (void)send;
    (void)done;
}

// A request that goes on keeps the lease: first values and an exchange over a
// slow link.
static void test_long_requests(void **state) {
    (void)state;
    scene s = {.lease_ms = 700};
    slow_link link = {.s = &s};
    const hki_tap tap = {slowly, unheard, &link};
    s.layout = suite_center_layout((int64_t[]){400000}, 1);
    s.n = (size_t)hki_layout_size(s.layout);
    snprintf(s.address, sizeof s.address, "unix:%s/long", folder);
    s.at = s.address;
    start_server(&s);
    hk_connect_options o;
    bed_connect_options(&o, &s.at, 1);
    assert_ok(hki_center_connect(&o, &tap, s.layout, &s.center));
    assert_ok(hki_zalloc_array(s.n, sizeof(float), &s.x));
    assert_ok(
        s.center->ops->join(s.center, 0, hki_deadline(PATIENCE_MS), &s.m));
    link.signs = 0;
    assert_ok(s.center->ops->init_if_empty(s.center, s.m, s.x, NULL,
                                           hki_deadline(PATIENCE_MS)));
    assert_true(link.signs >= SIGNS);
    link.signs = 0;
    hki_exchange ex;
    assert_ok(exchange(&s, 1, &ex));
    assert_true(ex.begun);
    assert_true(link.signs >= SIGNS);
    close_scene(&s);
}

// Cuts the worker's connection when so many bytes were sent over it: enough to
// come back, too few to hand in a unit of the exchange under way.
#define CUT_BYTES ((size_t)1200)

typedef struct cut_link {
    hk_center *center;
    _Atomic bool armed;
    _Atomic bool holds; // after a cut no connection is made: the center is away
    _Atomic size_t sent;
    _Atomic int cuts, most; // most: then connections are left alone
} cut_link;

static bool is_cutting(const cut_link *l) {
    return atomic_load(&l->armed) && atomic_load(&l->cuts) < l->most;
}

static size_t before_cut(void *user, bool send, size_t want) {
    return send && is_cutting(user) ? HKI_MIN(want, CUT_BYTES / 2) : want;
}

// Called by the thread that has the member locked, within a call to send.
static void after_cut(void *user, bool send, size_t done) {
    cut_link *const l = user;
    if (!send || !is_cutting(l))
        return;
    const bool held = atomic_load(&l->cuts) > 0 && atomic_load(&l->holds);
    if (atomic_fetch_add(&l->sent, done) + done < CUT_BYTES && !held)
        return;
    const hki_member_link *const w = hki_remote_of(l->center)->members;
    hki_conn_hang_up(w->link[0].f.conn);
    atomic_fetch_add(&l->cuts, !held);
    atomic_store(&l->sent, 0);
}

// An exchange of one chunk whose connection is cut; x has given its difference
// and the center has not got it.
static void open_cut(scene *s, cut_link *link, const hki_tap *tap,
                     const char *name) {
    hk_center_options center;
    hk_center_server_options so;
    hk_connect_options o;
    *s = (scene){.layout = suite_center_layout((int64_t[]){100000}, 1)};
    s->n = (size_t)hki_layout_size(s->layout);
    snprintf(s->address, sizeof s->address, "unix:%s/%s", folder, name);
    s->at = s->address;
    hk_center_options_init(&center, sizeof center);
    bed_server_options(&so, &s->at);
    so.center = &center; // chunks of 256 KiB
    assert_ok(hk_center_server_start(&so, &s->server));
    bed_connect_options(&o, &s->at, 1);
    o.retry_ms = 20;
    *link = (cut_link){.holds = true, .most = INT_MAX};
    assert_ok(hki_center_connect(&o, tap, s->layout, &s->center));
    link->center = s->center;
    assert_ok(hki_zalloc_array(s->n, sizeof(float), &s->x));
    assert_ok(
        s->center->ops->join(s->center, 0, hki_deadline(PATIENCE_MS), &s->m));
    assert_ok(s->center->ops->init_if_empty(s->center, s->m, s->x, NULL,
                                            hki_deadline(PATIENCE_MS)));
    for (size_t i = 0; i < s->n; i++)
        s->x[i] = 8;
    atomic_store(&link->armed, true);
    hki_exchange ex;
    assert_ok(exchange(s, 1, &ex));
    assert_true(ex.begun);
    assert_true(s->x[0] == 4);
    assert_int_equal(atomic_load(&link->cuts), 1);
    atomic_store(&link->holds, false);
}

static float center_value(scene *s) {
    float *values;
    assert_ok(hki_alloc_array(s->n, sizeof *values, &values));
    assert_ok(hk_center_snapshot(s->center, HK_CENTER_VALUES, PATIENCE_MS,
                                 values, NULL, NULL));
    const float value = values[0];
    hki_free(values);
    return value;
}

// Its connection breaks, and the heartbeat thread learns that another process
// has joined with the same index: the worker's next exchange says so.
static void test_replaced(void **state) {
    (void)state;
    scene s;
    hk_center *other;
    hki_member m;
    hki_exchange ex;
    open_scene(&s, "replaced", true, PATIENCE_MS, 0);
    assert_ok(exchange(&s, 1, &ex));
    connect_center(&s, 0, 0, &other);
    assert_ok(other->ops->join(other, 0, hki_deadline(PATIENCE_MS), &m));
    hki_member_link *const w = hki_remote_of(s.center)->members;
    hki_mutex_lock(&w->lock);
    hki_conn_hang_up(w->link[0].f.conn);
    hki_mutex_unlock(&w->lock);
    const int64_t deadline = hki_deadline(PATIENCE_MS / 2);
    hk_status got;
    while ((got = exchange(&s, 1, &ex)) == HK_OK && hki_now_ns() < deadline)
        short_pause();
    assert_status(got, HK_E_STATE);
    assert_non_null(strstr(hk_last_error(), "has joined with the same index"));
    assert_false(atomic_load(&w->away)); // the heartbeat thread sleeps
    hk_center_destroy(other);
    close_scene(&s);
}

// The connection is cut again while a worker that leaves hands in what is left
// of an exchange: it connects again and goes on.
static void test_leave_cut(void **state) {
    (void)state;
    scene s;
    cut_link link;
    const hki_tap tap = {before_cut, after_cut, &link};
    open_cut(&s, &link, &tap, "leave");
    atomic_store(&link.most, atomic_load(&link.cuts) + 3);
    assert_ok(
        s.center->ops->leave(s.center, s.m, 0, hki_deadline(PATIENCE_MS)));
    assert_int_equal(atomic_load(&link.cuts), atomic_load(&link.most));
    assert_true(s.x[0] == 4 && center_value(&s) == 4);
    close_scene(&s);
}

// It is cut every time: the caller gets to know that a difference is lost.
static void test_leave_cut_for_good(void **state) {
    (void)state;
    scene s;
    cut_link link;
    const hki_tap tap = {before_cut, after_cut, &link};
    open_cut(&s, &link, &tap, "leave-lost");
    const hk_status left =
        s.center->ops->leave(s.center, s.m, 0, hki_deadline(300));
    assert_true(left == HK_E_UNAVAILABLE || left == HK_E_TIMEOUT);
    assert_non_null(strstr(hk_last_error(), "exchange 1 was not completed"));
    atomic_store(&link.armed, false);
    assert_true(center_value(&s) == 0);
    close_scene(&s);
}

// A worker leaves while another thread, such as the one of the heartbeats, uses
// its connections: nobody waits, and whoever uses them last frees them.
static void test_leave_while_used(void **state) {
    (void)state;
    scene s;
    hki_member_link *used;
    open_scene(&s, "used", false, 60000, 0);
    hki_remote *const r = hki_remote_of(s.center);
    assert_ok(hki_member_ref(r, s.m, "test", &used));
    assert_ok(
        s.center->ops->leave(s.center, s.m, 0, hki_deadline(PATIENCE_MS)));
    hki_mutex_lock(&r->lock);
    assert_null(r->members);
    assert_true(used->removed && used->refs >= 1);
    hki_mutex_unlock(&r->lock);
    hki_member_unref(used);
    close_scene(&s);
}

typedef struct waiter {
    scene *s;
    hk_status status;
} waiter;

static void *wait_at_barrier(void *arg) {
    waiter *const w = arg;
    w->status = w->s->center->ops->barrier(w->s->center, w->s->m, 2,
                                           hki_deadline(PATIENCE_MS));
    return NULL;
}

// Who waits at the start barrier is there, however long the others take.
static void test_long_barrier(void **state) {
    (void)state;
    scene s;
    open_scene(&s, "barrier", false, 700, 0);
    waiter first = {.s = &s};
    pthread_t id;
    assert_int_equal(pthread_create(&id, NULL, wait_at_barrier, &first), 0);
    wait_signs(&s, 20);
    hk_center *other;
    hki_member m;
    connect_center(&s, 0, 0, &other);
    assert_ok(other->ops->join(other, 1, hki_deadline(PATIENCE_MS), &m));
    assert_ok(other->ops->barrier(other, m, 2, hki_deadline(PATIENCE_MS)));
    pthread_join(id, NULL);
    assert_ok(first.status);
    hk_center_destroy(other);
    close_scene(&s);
}

// ---- the end of a run -------------------------------------------------------

static void test_finish(void **state) {
    (void)state;
    scene s;
    open_scene(&s, "finish", false, 6000, 0);
    hk_center *other;
    hki_member m;
    int finished = 7;
    connect_center(&s, 0, 0, &other);
    assert_ok(other->ops->join(other, 1, hki_deadline(PATIENCE_MS), &m));
    assert_ok(hk_center_server_wait(s.server, 10, &finished));
    assert_int_equal(finished, 0);
    assert_int_equal(hki_center_finished(s.center), 0);
    assert_ok(hk_center_finish(other, "enough steps", 10000));
    assert_ok(hk_center_finish(other, "again", 10000));
    const int64_t deadline = hki_deadline(PATIENCE_MS);
    while (!hki_center_finished(s.center) && hki_now_ns() < deadline)
        short_pause(); // a heartbeat brings it
    assert_int_equal(hki_center_finished(s.center), 1);
    char reason[64];
    hki_center_reason(s.center, hki_deadline(PATIENCE_MS), reason,
                      sizeof reason);
    assert_string_equal(reason, "enough steps");
    assert_ok(hk_center_server_wait(s.server, 10, &finished));
    assert_int_equal(finished, 0); // workers are still here
    assert_ok(other->ops->leave(other, m, 0, hki_deadline(PATIENCE_MS)));
    assert_ok(
        s.center->ops->leave(s.center, s.m, 4, hki_deadline(PATIENCE_MS)));
    assert_ok(hk_center_server_wait(s.server, 10000, &finished));
    assert_int_equal(finished, 1);
    hk_center_destroy(other);
    close_scene(&s);
}

static void test_board(void **state) {
    (void)state;
    scene s;
    open_scene(&s, "board", false, 5000, 0);
    char text[64];
    size_t size = 0;
    const int64_t soon = hki_deadline(PATIENCE_MS);
    hk_center *const c = s.center;
    assert_status(hki_center_read(c, "a", text, sizeof text, &size, soon),
                  HK_E_NOT_FOUND);
    assert_ok(hki_center_post(c, "a", "one", 3, true, soon));
    assert_status(hki_center_post(c, "a", "two", 3, true, soon), HK_E_EXISTS);
    assert_ok(hki_center_post(c, "a", "three", 5, false, soon));
    assert_ok(hki_server_read(s.server, "a", text, sizeof text, &size));
    assert_int_equal(size, 5);
    assert_memory_equal(text, "three", 5);
    assert_status(hki_center_read(c, "a", text, 2, &size, soon), HK_E_OVERFLOW);
    assert_ok(hki_server_post(s.server, "b", "x", 1, false));
    assert_ok(hki_center_read(c, "b", text, sizeof text, &size, soon));
    assert_int_equal(size, 1);
    char name[HKI_BOARD_KEY + 1];
    assert_true(hki_server_note(s.server, 1, name));
    assert_false(hki_server_note(s.server, 2, name));
    assert_ok(hki_center_post(c, "a", NULL, 0, false, soon));
    assert_status(hki_center_read(c, "a", text, sizeof text, &size, soon),
                  HK_E_NOT_FOUND);
    assert_status(hki_server_post(s.server, "", "x", 1, false),
                  HK_E_INVALID_ARG);
    for (int i = 0; i < HKI_BOARD_NOTES - 1; i++) {
        snprintf(name, sizeof name, "n%d", i);
        assert_ok(hki_server_post(s.server, name, "x", 1, false));
    }
    assert_status(hki_server_post(s.server, "more", "x", 1, false),
                  HK_E_OVERFLOW);
    close_scene(&s);
}

// Calls that are for centers elsewhere.
static void test_local_center(void **state) {
    (void)state;
    hk_layout *const l = suite_center_layout((int64_t[]){3}, 1);
    hk_center *c;
    hk_link_info info;
    assert_ok(hk_center_create_local(NULL, l, &c));
    assert_status(hk_center_finish(c, "x", 0), HK_E_UNSUPPORTED);
    assert_status(hk_center_cancel(c), HK_E_UNSUPPORTED);
    assert_status(hk_center_get_link_info(c, &info), HK_E_UNSUPPORTED);
    assert_int_equal(hki_center_finished(c), 0);
    assert_int_equal(hki_center_reachable(c), 1);
    assert_false(hki_center_reachable(NULL));
    assert_status(hk_center_finish(NULL, "x", 0), HK_E_INVALID_ARG);
    hk_center_destroy(c);
    hk_layout_release(l);
}

// ---- plain workers ----------------------------------------------------------

static void test_worker(void **state) {
    (void)state;
    scene s;
    memset(&s, 0, sizeof s);
    s.lease_ms = 5000;
    snprintf(s.address, sizeof s.address, "unix:%s/plain", folder);
    s.at = s.address;
    start_server(&s);
    hk_connect_options c;
    bed_connect_options(&c, &s.at, 1);
    hk_worker_options o;
    hk_worker_options_init(&o, sizeof o);
    float a[1003], b[1003], center[1003];
    for (size_t i = 0; i < 1003; i++) {
        a[i] = (float)i;
        b[i] = -1;
    }
    hk_worker *w[2] = {NULL, NULL};
    assert_status(hk_worker_open(&o, a, 1003, &w[0]), HK_E_INVALID_ARG);
    o.connect = &c;
    assert_status(hk_worker_open(&o, a, 1003, &w[0]), HK_E_INVALID_ARG);
    o.num_worker = 2;
    assert_ok(hk_worker_open(&o, a, 1003, &w[0]));
    assert_int_equal(info_of(hk_worker_elastic(w[0])).worker, 0);
    o.moving_rate = 0.25;
    assert_ok(hk_worker_open(&o, b, 1003, &w[1]));
    assert_int_equal(info_of(hk_worker_elastic(w[1])).worker, 1);
    assert_memory_equal(a, b, sizeof a); // b is the center now
    memcpy(center, a, sizeof center);
    for (int t = 0; t < 6; t++) {
        float *const x = t % 2 ? b : a;
        const float alpha = t % 2 ? 0.25f : (float)(0.9 / 2);
        float expected[1003];
        for (size_t i = 0; i < 1003; i++) {
            x[i] += (float)(t + 1);
            const float d = alpha * (x[i] - center[i]);
            expected[i] = x[i] - d;
            center[i] += d;
        }
        assert_ok(hk_worker_exchange(w[t % 2], x, 10));
        assert_memory_equal(x, expected, sizeof expected);
        assert_int_equal(info_of(hk_worker_elastic(w[t % 2])).global_step,
                         10 * (t + 1));
    }
    float got[1008];
    assert_ok(hk_center_snapshot(info_of(hk_worker_elastic(w[0])).center,
                                 HK_CENTER_VALUES, 10000, got, NULL, NULL));
    assert_memory_equal(got, center, sizeof center);
    assert_status(hk_worker_exchange(w[0], a, -1), HK_E_INVALID_ARG);
    hk_worker_close(w[0]);
    hk_worker_close(w[1]);
    hk_worker_close(NULL);
    hk_server_info info;
    assert_ok(hk_center_server_get_info(s.server, &info));
    assert_int_equal(info.center.live, 0);
    assert_int_equal(info.workers, 2);
    hk_center_server_stop(s.server);
    hk_context_destroy(s.context);
}

// ---- keys -------------------------------------------------------------------

// Read by its owner and by a group that this process is in: as secrets are
// handed over. Whatever anybody else can read, or change, is no secret.
static void check_key_modes(const char *path, const hk_key *key) {
    const bool root = geteuid() == 0; // else files cannot be given away
    const gid_t own = getegid(), other = 4321;
    const struct {
        unsigned mode;
        uid_t user;
        gid_t group;
        hk_status expected;
    } cases[] = {
        {0400, geteuid(), own, HK_OK},
        {0440, geteuid(), own, HK_OK},
        {0640, geteuid(), own, HK_OK},
        {0660, geteuid(), own, HK_E_DENIED},
        {0644, geteuid(), own, HK_E_DENIED},
        {0404, geteuid(), own, HK_E_DENIED},
        {0440, 0, other, HK_OK},
        {0440, 1234, own, HK_OK},
        {0440, 1234, other, HK_E_DENIED},
        {0400, 1234, other, HK_OK},
        {0444, 0, other, HK_E_DENIED},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_key got;
        if (!root && (cases[i].user != geteuid() || cases[i].group != own))
            continue;
        assert_int_equal(chown(path, cases[i].user, cases[i].group), 0);
        assert_int_equal(chmod(path, cases[i].mode), 0);
        const hk_status s = hk_key_load(path, &got);
        if (s != cases[i].expected)
            fail_msg("mode %03o, user %u, group %u: %s", cases[i].mode,
                     (unsigned)cases[i].user, (unsigned)cases[i].group,
                     hk_status_string(s));
        if (s == HK_OK)
            assert_memory_equal(&got, key, sizeof got);
    }
}

static void test_keys(void **state) {
    (void)state;
    char path[128];
    hk_key a, b;
    snprintf(path, sizeof path, "%s/key", folder);
    assert_ok(hk_key_generate(NULL, &a));
    assert_string_equal(a.name, "cluster");
    assert_ok(hk_key_generate("site-1", &a));
    assert_status(hk_key_generate("a b", &b), HK_E_INVALID_ARG);
    assert_status(hk_key_generate("", &b), HK_E_INVALID_ARG);
    assert_status(hk_key_generate("a-name-that-is-much-too-long-for-a-key", &b),
                  HK_E_INVALID_ARG);
    assert_ok(hk_key_save(&a, path));
    assert_status(hk_key_save(&a, path), HK_E_EXISTS);
    assert_ok(hk_key_load(path, &b));
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(chmod(path, 0644), 0);
    assert_status(hk_key_load(path, &b), HK_E_DENIED);
    assert_status(hk_key_load("/no/such/file", &b), HK_E_NOT_FOUND);
    check_key_modes(path, &a);
    static const char *const bad[] = {
        "",
        "hooke-key-1",
        "hooke-key-2 a 00",
        "hooke-key-1 a 00",
        "hooke-key-1  "
        "0000000000000000000000000000000000000000000000000000000000000000",
        "hooke-key-1 a "
        "000000000000000000000000000000000000000000000000000000000000000g",
        "hooke-key-1 a "
        "00000000000000000000000000000000000000000000000000000000000000000",
    };
    for (size_t i = 0; i < HKI_COUNT(bad); i++) {
        const hk_status s = hki_key_parse(bad[i], strlen(bad[i]), "key", &b);
        if (s == HK_OK)
            fail_msg("%s was taken for a key", bad[i]);
    }
}

// ---- options and memory -----------------------------------------------------

static void test_options(void **state) {
    (void)state;
    hk_center_server *s = NULL;
    hk_center *c = NULL;
    const char *at = "inproc:options";
    hk_center_server_options o;
    hk_connect_options co;
    hk_layout *const l = suite_center_layout((int64_t[]){3}, 1);
    bed_server_options(&o, &at);
    o.n_addresses = 0;
    assert_status(hk_center_server_start(&o, &s), HK_E_INVALID_ARG);
    bed_server_options(&o, &at);
    o.shard = 1;
    assert_status(hk_center_server_start(&o, &s), HK_E_INVALID_ARG);
    bed_server_options(&o, &at);
    o.durability = "always"; // without a file
    assert_status(hk_center_server_start(&o, &s), HK_E_INVALID_ARG);
    o.durability = "sometimes";
    assert_status(hk_center_server_start(&o, &s), HK_E_INVALID_ARG);
    bed_server_options(&o, &at);
    o.lease_ms = 0;
    assert_status(hk_center_server_start(&o, &s), HK_E_INVALID_ARG);
    assert_status(hk_center_server_start(NULL, &s), HK_E_INVALID_ARG);
    const char *open_at = "tcp:*:0";
    bed_server_options(&o, &open_at);
    assert_status(hk_center_server_start(&o, &s), HK_E_DENIED);
    bed_connect_options(&co, &at, 1);
    co.connect_ms = 30;
    assert_status(hk_center_connect(&co, l, &c), HK_E_UNAVAILABLE);
    co.row_period = 0;
    assert_status(hk_center_connect(&co, l, &c), HK_E_INVALID_ARG);
    bed_connect_options(&co, &at, 0);
    assert_status(hk_center_connect(&co, l, &c), HK_E_INVALID_ARG);
    assert_null(hk_center_server_address(NULL, 0));
    assert_null(hki_refusal_name((hk_refusal)99));
    assert_string_equal(hki_refusal_name(HK_REFUSED_SLOW), "slow");
    hk_center_server_stop(NULL);
    hk_layout_release(l);
}

// Somebody answers the phone and says nothing.
static void test_mute(void **state) {
    (void)state;
    const hki_net_options no = {.name = "mute"};
    hki_net *net;
    hki_listener *listener;
    const char *at = "inproc:mute";
    assert_ok(hki_net_create(&no, &net));
    assert_ok(hki_listen(net, at, &listener));
    hk_layout *const l = suite_center_layout((int64_t[]){3}, 1);
    hk_connect_options co;
    hk_center *c = NULL;
    bed_connect_options(&co, &at, 1);
    co.connect_ms = 60;
    assert_status(hk_center_connect(&co, l, &c), HK_E_TIMEOUT);
    assert_non_null(strstr(hk_last_error(), "greeting"));
    hki_listener_close(listener);
    hki_net_destroy(net);
    hk_layout_release(l);
}

static hk_status start_and_stop(void *layout) {
    const char *at = "inproc:failing-server";
    hk_center_server_options o;
    hk_center_server *s;
    hk_center_options center;
    hk_optimizer_options outer;
    hk_center_options_init(&center, sizeof center);
    hk_optimizer_options_init(&outer, sizeof outer, HK_OPT_ADAM);
    center.method = HK_METHOD_DILOCO_ASYNC;
    center.max_workers = 3;
    center.outer = &outer;
    bed_server_options(&o, &at);
    o.center = &center;
    o.layout = layout;
    HKI_TRY(hk_center_server_start(&o, &s));
    hk_center_server_stop(s);
    return HK_OK;
}

static void test_memory(void **state) {
    (void)state;
    hk_layout *const l = suite_center_layout((int64_t[]){300}, 1);
    hk_test_alloc_failures("server", start_and_stop, l);
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
        cmocka_unit_test(test_trains_on),
        cmocka_unit_test(test_own_share),
        cmocka_unit_test(test_lost_answers),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_expired_after_start),
        cmocka_unit_test(test_started_anew),
        cmocka_unit_test(test_away_before_joining),
        cmocka_unit_test(test_cancelled_before_joining),
        cmocka_unit_test(test_anew_before_pulling),
        cmocka_unit_test(test_lease),
        cmocka_unit_test(test_long_requests),
        cmocka_unit_test(test_replaced),
        cmocka_unit_test(test_leave_cut),
        cmocka_unit_test(test_leave_cut_for_good),
        cmocka_unit_test(test_leave_while_used),
        cmocka_unit_test(test_long_barrier),
        cmocka_unit_test(test_finish),
        cmocka_unit_test(test_board),
        cmocka_unit_test(test_local_center),
        cmocka_unit_test(test_worker),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_mute),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
