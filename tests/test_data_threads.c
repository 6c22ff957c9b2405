// test_data_threads.c - pipelines with threads: order, overlap, ends, stops,
// parallel rows of a batch, elements that functions leave out.
#include "data/core/pipeline.h"
#include "hk_data.h"
#include <dirent.h>
#include <pthread.h>

// ---- a gate that functions wait at -----------------------------------------

typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int inside, most; // calls under way, and the most of them at once
    int calls;
    bool open;
    int need; // opens when so many are inside
} gate;

#define PATIENCE_S 60 // for what comes soon, on a machine that is busy

static void gate_init(gate *g, int need) {
    *g = (gate){.need = need, .open = need == 0};
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
}

// Waits until the gate opens.
static hk_status gate_pass(gate *g) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    hk_status s = HK_OK;
    pthread_mutex_lock(&g->lock);
    g->calls++;
    g->inside++;
    g->most = HKI_MAX(g->most, g->inside);
    g->open = g->open || g->inside >= g->need;
    pthread_cond_broadcast(&g->changed);
    while (!g->open && s == HK_OK)
        if (pthread_cond_timedwait(&g->changed, &g->lock, &until) != 0)
            s = hki_fail(HK_E_TIMEOUT, "gate: nobody else came");
    g->inside--;
    pthread_mutex_unlock(&g->lock);
    return s;
}

// Waits until `calls` calls have begun.
static void gate_await(gate *g, int calls) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    pthread_mutex_lock(&g->lock);
    while (g->calls < calls)
        if (pthread_cond_timedwait(&g->changed, &g->lock, &until) != 0)
            fail_msg("gate: %d calls, expected %d", g->calls, calls);
    pthread_mutex_unlock(&g->lock);
}

static hk_status through_gate(void *user, const hk_map_call *c) {
    (void)c;
    return gate_pass(user);
}

static hk_iter *iterate(hk_dataset *d, uint32_t threads, hk_context *ctx) {
    hk_iter_options o;
    hk_iter_options_init(&o, sizeof o);
    o.threads = threads;
    o.context = ctx;
    hk_iter *it = NULL;
    assert_ok(hk_iter_create(d, &o, &it));
    hk_dataset_release(d);
    return it;
}

static hk_dataset *mapped(hk_dataset *d, hk_map_fn f, void *user,
                          int32_t parallel, uint32_t unordered) {
    hk_map_options o;
    hk_map_options_init(&o, sizeof o);
    o.parallel = parallel;
    o.unordered = unordered;
    return hk_data_map(d, f, user, &o);
}

// ---- map -------------------------------------------------------------------

// Three calls are under way at once, or the gate never opens.
static void test_map_overlaps(void **state) {
    (void)state;
    gate g;
    gate_init(&g, 3);
    hk_check_run("map", hk_data_prefetch(hk_range(1), 1), -1, "0");
    hk_iter *it = iterate(mapped(hk_range(9), through_gate, &g, 3, 0), 3, NULL);
    const hk_element *e;
    for (int64_t i = 0; i < 9; i++) {
        assert_ok(hk_iter_next(it, &e));
        assert_int_equal(*(int64_t *)hk_tensor_data(e->values[0].tensor), i);
    }
    assert_int_equal(g.most, 3);
    hk_iter_destroy(it);
}

// Element 0 waits until all others have passed.
static hk_status zero_is_slow(void *user, const hk_map_call *c) {
    gate *const g = user;
    if (*(int64_t *)hk_tensor_data(c->in->values[0].tensor) == 0)
        return gate_pass(g);
    pthread_mutex_lock(&g->lock);
    g->open = ++g->calls >= 8;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    return HK_OK;
}

// Without order a slow call does not hold up the others; nothing is lost.
static void test_map_unordered(void **state) {
    (void)state;
    gate g;
    gate_init(&g, 100);
    hk_iter *it = iterate(mapped(hk_range(8), zero_is_slow, &g, 3, 1), 3, NULL);
    const hk_element *e;
    unsigned seen = 0;
    for (int i = 0; i < 8; i++) {
        assert_ok(hk_iter_next(it, &e));
        const int64_t v = *(int64_t *)hk_tensor_data(e->values[0].tensor);
        assert_true(v != 0 || i >= 5); // two others may wait beside it
        seen |= 1U << v;
    }
    assert_int_equal(seen, 0xff);
    assert_status(hk_iter_next(it, &e), HK_E_END);
    hk_iter_destroy(it);
}

// ---- prefetch --------------------------------------------------------------

// The producer runs ahead by as many as asked for, and no further.
static void test_prefetch_runs_ahead(void **state) {
    (void)state;
    gate g;
    gate_init(&g, 0);
    const int64_t begin = hki_now_ns();
    hk_dataset *d = mapped(hk_range(20), through_gate, &g, 1, 0);
    hk_iter *it = iterate(hk_data_prefetch(d, 3), 1, NULL);
    const hk_element *e;
    assert_int_equal(g.calls, 0); // nothing before it is asked for
    for (int i = 1; i <= 3; i++) {
        assert_ok(hk_iter_next(it, &e));
        gate_await(&g, i + 3);
    }
    // Saving stops it where it is.
    size_t size;
    assert_ok(hk_iter_save(it, NULL, 0, &size));
    assert_int_equal(g.calls, 6);
    for (int i = 3; i < 20; i++)
        assert_ok(hk_iter_next(it, &e));
    assert_status(hk_iter_next(it, &e), HK_E_END);
    hk_iter_info stats;
    assert_ok(hk_iter_get_info(it, &stats));
    assert_int_equal(stats.delivered, 20);
    assert_true(stats.wait_seconds > 0);
    assert_true(stats.wait_seconds <= 1e-9 * (double)(hki_now_ns() - begin));
    hk_iter_destroy(it);
}

// ---- stopping --------------------------------------------------------------

static hk_status count_forever(void *user, void *state, hk_builder *b) {
    hk_tensor *t;
    (void)user;
    (void)state;
    const hk_status s = hk_builder_tensor(b, "value", NULL, &t);
    if (s == HK_OK)
        *(int64_t *)hk_tensor_data(t) = 2; // never odd
    return s;
}

static hk_dataset *forever(void) {
    const hk_generator g = {.next = count_forever};
    const hk_value spec = {.name = "value", .dtype = HK_I64};
    return hk_data_generator(&g, &spec, 1);
}

static void stop_soon(void *user) {
    hk_request_stop(user, 7);
}

// Pipelines that would never give an element, or never end.
static hk_dataset *endless(int kind) {
    switch (kind) {
    case 0:
        return hk_data_filter(forever(), hk_keep_odd, NULL);
    case 1:
        return hk_data_prefetch(hk_data_filter(forever(), hk_keep_odd, NULL),
                                2);
    case 2:
        return hk_data_skip(forever(), INT64_MAX - 1);
    case 3:
        return hk_data_shuffle(forever(), INT64_C(1) << 50, 1, 1);
    case 4:
        return hk_data_batch(
            mapped(hk_data_filter(forever(), hk_keep_odd, NULL), hk_times_ten,
                   NULL, 3, 0),
            3, 0);
    default:
        return hk_data_repeat(
            hk_data_filter(hk_data_repeat(hk_data_range(0, 2, 2), -1),
                           hk_keep_odd, NULL),
            -1);
    }
}

static void test_request_stop(void **state) {
    (void)state;
    for (int kind = 0; kind < 6; kind++) {
        hk_context *ctx = NULL;
        assert_ok(hk_context_create(NULL, &ctx));
        hk_iter *it = iterate(endless(kind), 3, ctx);
        hki_thread *t = NULL;
        assert_ok(hki_thread_start(stop_soon, ctx, -1, "stop", &t));
        const hk_element *e;
        assert_status(hk_iter_next(it, &e), HK_E_CANCELLED);
        assert_non_null(strstr(hk_last_error(), "7"));
        hki_thread_stop(t);
        assert_status(hk_iter_next(it, &e), HK_E_CANCELLED);
        hk_iter_destroy(it);
        hk_context_destroy(ctx);
    }
}

static int count_threads(void) {
    DIR *const d = opendir("/proc/self/task");
    int n = 0;
    if (d == NULL)
        return 0;
    for (const struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

// The threads themselves end at a stop, not only the calls.
static void test_stop_ends_threads(void **state) {
    (void)state;
    const int before = count_threads();
    if (before == 0)
        skip(); // no such folder on this system
    hk_context *ctx = NULL;
    assert_ok(hk_context_create(NULL, &ctx));
    hk_dataset *d =
        mapped(hk_data_repeat(hk_range(9), -1), hk_times_ten, NULL, 2, 0);
    hk_iter *it = iterate(hk_data_prefetch(d, 2), 3, ctx);
    const hk_element *e;
    assert_ok(hk_iter_next(it, &e));
    assert_int_equal(count_threads(), before + 3);
    hk_request_stop(ctx, 1);
    const int64_t deadline = hki_deadline(PATIENCE_S * 1000);
    while (count_threads() > before && hki_now_ns() < deadline)
        sched_yield();
    assert_int_equal(count_threads(), before);
    hk_iter_destroy(it);
    hk_context_destroy(ctx);
}

// A loop that ends at a point of its own goes on after a stop.
static void test_ignore_stop(void **state) {
    (void)state;
    hk_context *ctx = NULL;
    assert_ok(hk_context_create(NULL, &ctx));
    hk_dataset *d = mapped(hk_range(50), hk_times_ten, NULL, 2, 0);
    d = hk_data_prefetch(d, 2);
    hk_iter_options o;
    hk_iter_options_init(&o, sizeof o);
    o.threads = 2;
    o.context = ctx;
    o.ignore_stop = 1;
    hk_iter *it = NULL;
    const hk_element *e;
    assert_ok(hk_iter_create(d, &o, &it));
    hk_dataset_release(d);
    hk_request_stop(ctx, 1);
    for (int i = 0; i < 50; i++)
        assert_ok(hk_iter_next(it, &e));
    assert_status(hk_iter_next(it, &e), HK_E_END);
    hk_iter_destroy(it);
    hk_context_destroy(ctx);
}

// A stop that is taken back: the iterator goes on where it was.
static void test_stop_taken_back(void **state) {
    (void)state;
    hk_context *ctx = NULL;
    assert_ok(hk_context_create(NULL, &ctx));
    hk_dataset *d = mapped(hk_range(400), hk_times_ten, NULL, 2, 0);
    hk_iter *it = iterate(hk_data_prefetch(d, 2), 3, ctx);
    const hk_element *e;
    assert_ok(hk_iter_next(it, &e));
    hk_request_stop(ctx, 1);
    assert_status(hk_iter_next(it, &e), HK_E_CANCELLED);
    hk_request_stop(ctx, 0);
    for (int64_t i = 1; i < 400; i++) {
        assert_ok(hk_iter_next(it, &e));
        assert_int_equal(*(int64_t *)hk_tensor_data(e->values[0].tensor),
                         10 * i);
    }
    assert_status(hk_iter_next(it, &e), HK_E_END);
    hk_iter_destroy(it);
    hk_context_destroy(ctx);
}

// ---- a stop in the middle of an element ------------------------------------

// Asks for a stop in the n-th call.
typedef struct stopper {
    hk_context *ctx;
    atomic_int calls;
    int n;
} stopper;

static hk_status stop_at_call(void *user, const hk_map_call *c) {
    stopper *const s = user;
    (void)c;
    if (atomic_fetch_add(&s->calls, 1) + 1 == s->n)
        hk_request_stop(s->ctx, 2);
    return HK_OK;
}

static hk_dataset *flat_of(hk_dataset *d, int32_t parallel) {
    static const hk_value spec = {.name = "value", .dtype = HK_I64};
    hk_interleave_options o;
    hk_interleave_options_init(&o, sizeof o);
    o.cycle_length = 3;
    o.parallel = parallel;
    o.spec = &spec;
    o.n_spec = 1;
    return hk_data_interleave(d, hk_flat, NULL, &o);
}

#define BUSY 9 // kinds of pipelines, each of which holds parts of elements

static hk_dataset *busy(int kind, stopper *s) {
    const bool alone = kind == 1 || kind == 6;
    hk_dataset *d = mapped(hk_data_repeat(hk_data_range(1, 12, 1), 3),
                           stop_at_call, s, alone ? 1 : 2, 0);
    switch (kind) {
    case 0:
        return hk_data_prefetch(hk_data_batch(d, 4, 0), 2);
    case 1:
        return hk_data_batch(hk_data_shuffle(d, 7, 1, 1), 5, 0);
    case 2:
        return hk_data_batch(hk_data_prefetch(d, 2), 3, 0);
    case 3: {
        const hk_select other = {.from = "value", .to = "other"};
        hk_dataset *const both[] = {
            hk_data_prefetch(hk_data_select(hk_range(30), &other, 1), 2), d};
        return hk_data_zip(both, 2);
    }
    case 4:
        return hk_data_window(d, 4, 3, 1, 0);
    case 5:
        return hk_data_batch(flat_of(d, 3), 4, 0);
    case 6:
        return hk_data_batch(hk_data_skip(d, 5), 2, 0);
    case 7:
        return hk_data_prefetch(hk_data_unbatch(hk_data_batch(d, 3, 0)), 3);
    default:
        return hk_data_batch(hk_data_filter(d, hk_keep_odd, NULL), 3, 0);
    }
}

static hk_status append_all(hk_text *t, hk_iter *it) {
    const hk_element *e;
    hk_status s;
    while ((s = hk_iter_next(it, &e)) == HK_OK) {
        hk_text_element(t, e);
        hk_text_add(t, " ");
    }
    return s;
}

// What comes until somebody asks for a stop in call n, and, from the position
// saved then, what comes later. False: the machine was so slow that an element
// was given up.
static bool interrupted(int kind, int n, uint32_t threads, char *text) {
    stopper s = {.n = n};
    hk_text t = {text, HK_RUN_TEXT};
    uint8_t bytes[8192];
    size_t size = 0;
    assert_ok(hk_context_create(NULL, &s.ctx));
    hk_iter *it = iterate(busy(kind, &s), threads, s.ctx);
    if (append_all(&t, it) != HK_E_END)
        assert_int_equal(hk_stop_requested(s.ctx), 2);
    const hk_status saved = hk_iter_save(it, bytes, sizeof bytes, &size);
    hk_iter_destroy(it);
    if (saved == HK_E_STATE) {
        hk_context_destroy(s.ctx);
        return false;
    }
    assert_ok(saved);
    hk_request_stop(s.ctx, 0);
    s.n = 0; // calls that were ahead are made again
    it = iterate(busy(kind, &s), threads, s.ctx);
    assert_ok(hk_iter_restore(it, bytes, size));
    assert_status(append_all(&t, it), HK_E_END);
    hk_iter_destroy(it);
    hk_context_destroy(s.ctx);
    return true;
}

// A stop leaves no trace in a position, wherever it is asked for.
static void test_stop_and_position(void **state) {
    (void)state;
    char *const text = calloc(1, HK_RUN_TEXT);
    char *const whole = calloc(1, HK_RUN_TEXT);
    assert_non_null(text);
    assert_non_null(whole);
    for (int kind = 0; kind < BUSY; kind++) {
        assert_true(interrupted(kind, 0, 1, whole));
        for (int n = 1; n <= 33; n++) {
            int tries = 1;
            while (!interrupted(kind, n, 1 + (uint32_t)n % 3, text))
                assert_true(tries++ < 20);
            if (strcmp(text, whole) != 0)
                fail_msg("pipeline %d, stop in call %d:\n%s\nexpected\n%s",
                         kind, n, text, whole);
        }
    }
    free(text);
    free(whole);
}

static hk_status stop_and_nap(void *user, const hk_map_call *c) {
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    return stop_at_call(user, c);
}

// An element that does not come is given up; then there is no position.
static void test_stop_tears(void **state) {
    (void)state;
    stopper s = {.n = 1};
    const hk_element *e;
    size_t size;
    assert_ok(hk_context_create(NULL, &s.ctx));
    hk_dataset *d = mapped(forever(), stop_and_nap, &s, 1, 0);
    hk_iter *it = iterate(hk_data_batch(d, 10000, 0), 1, s.ctx);
    assert_status(hk_iter_next(it, &e), HK_E_CANCELLED);
    assert_true(atomic_load(&s.calls) < 10000);
    assert_status(hk_iter_save(it, NULL, 0, &size), HK_E_STATE);
    hk_request_stop(s.ctx, 0);
    assert_status(hk_iter_next(it, &e), HK_E_STATE);
    hk_iter_destroy(it);
    hk_context_destroy(s.ctx);
}

// Destroying in the middle of everything ends every thread.
static void test_destroy_any_time(void **state) {
    (void)state;
    const hk_value spec = {.name = "value", .dtype = HK_I64};
    for (int i = 0; i < 40; i++) {
        hk_interleave_options o;
        hk_interleave_options_init(&o, sizeof o);
        o.cycle_length = 3;
        o.parallel = 3;
        o.spec = &spec;
        o.n_spec = 1;
        hk_dataset *d = hk_data_shuffle(hk_data_range(1, 50, 1), 20, 1, 1);
        d = hk_data_interleave(d, hk_flat, NULL, &o);
        d = mapped(hk_data_prefetch(d, 2), hk_times_ten, NULL, 3,
                   (uint32_t)i % 2);
        d = hk_data_prefetch(hk_data_batch(d, 4, 0), 2);
        hk_iter *it = iterate(d, 3, NULL);
        const hk_element *e;
        for (int k = 0; k < i; k++)
            assert_ok(hk_iter_next(it, &e));
        hk_iter_destroy(it);
    }
    hk_iter_destroy(NULL);
}

// ---- functions of the library ----------------------------------------------

// An fn as the module's own ones: y = x * 2 + random bit, leaves out multiples
// of `skip`, fails at `fail`.
typedef struct fn_config {
    int64_t skip, fail;
    gate *gate;
} fn_config;

static hk_status fn_apply(const void *config, void *scratch, hki_fn_call *c) {
    const fn_config *const f = config;
    (void)scratch;
    const int64_t v = *(int64_t *)hk_tensor_data(c->in->values[0].tensor);
    if (f->gate != NULL)
        HKI_TRY(gate_pass(f->gate));
    if (v == f->fail)
        return hki_fail(HK_E_DATA, "element %lld is broken", (long long)v);
    if (f->skip > 0 && v % f->skip == 0)
        return hki_on_error(
            c->run, HK_ON_ERROR_SKIP,
            hki_fail(HK_E_DATA, "element %lld is damaged", (long long)v),
            &c->skip);
    hki_rng rng;
    hki_rng_init(&rng, 5, c->stamp);
    const hk_shape scalar = hk_shape_make(0, NULL);
    void *to;
    HKI_TRY(hki_rows_tensor(c->out, 0, c->row, &scalar, &to));
    *(int64_t *)to = 2 * v + (hki_rng_u32(&rng) & 1);
    return HK_OK;
}

static const hki_fn_ops fn = {.name = "test", .apply = fn_apply};

static hk_dataset *with_fn(hk_dataset *d, fn_config *f, int32_t parallel) {
    const hk_value spec = {.name = "value", .dtype = HK_I64};
    return hki_dataset_make(&(hki_dataset_desc){
        .fn = &fn,
        .config = f,
        .inputs = &d,
        .n_inputs = 1,
        .spec = &spec,
        .n_spec = 1,
        .key = 1,
        .parallel = parallel,
        .flags = f->skip > 0 ? HKI_DATA_MAY_SKIP : 0,
    });
}

// The rows of a batch are filled by several threads, with equal numbers.
static void test_parallel_rows(void **state) {
    (void)state;
    gate g;
    gate_init(&g, 3);
    fn_config f = {.fail = -1, .gate = &g};
    hk_dataset *d = hk_data_batch(with_fn(hk_range(12), &f, 3), 6, 0);
    char *got = hk_run_text(hk_dataset_retain(d), 3, -1);
    assert_true(g.most >= 3);
    f.gate = NULL;
    char *expected = hk_run_text(d, 1, -1);
    assert_string_equal(got, expected);
    free(got);
    free(expected);
    // Also without a batch, one behind the other.
    gate_init(&g, 3);
    f.gate = &g;
    d = hk_data_prefetch(with_fn(hk_range(12), &f, HK_DATA_AUTO), 2);
    got = hk_run_text(hk_dataset_retain(d), 3, -1);
    f.gate = NULL;
    expected = hk_run_text(d, 1, -1);
    assert_string_equal(got, expected);
    free(got);
    free(expected);
}

// Random functions see every pass anew, below and above everything that may
// repeat: caches, shuffles.
static void test_stamps(void **state) {
    (void)state;
    fn_config f = {.fail = -1};
    hk_dataset *sets[] = {
        hk_data_repeat(with_fn(hk_range(64), &f, 1), 2),
        hk_data_repeat(with_fn(hk_data_cache(hk_range(64), NULL), &f, 1), 2),
        with_fn(hk_data_repeat(hk_range(64), 2), &f, 1),
    };
    for (size_t i = 0; i < HKI_COUNT(sets); i++) {
        hk_iter *it = iterate(hk_data_batch(sets[i], 64, 1), 1, NULL);
        const hk_element *e;
        int64_t first[64];
        assert_ok(hk_iter_next(it, &e));
        memcpy(first, hk_tensor_data(e->values[0].tensor), sizeof first);
        assert_ok(hk_iter_next(it, &e));
        int differ = 0;
        for (int k = 0; k < 64; k++)
            differ +=
                first[k] != ((int64_t *)hk_tensor_data(e->values[0].tensor))[k];
        assert_in_range(differ, 10, 54); // half of them, six sigma
        hk_iter_destroy(it);
    }
}

static void count_warnings(void *user, hk_log_level level, const char *text) {
    int *const lines = user;
    (void)text;
    lines[level == HK_LOG_WARNING]++;
}

// The batch is filled up with those that follow; skips are counted and logged.
static void test_left_out(void **state) {
    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads += 2)
        for (int boxed = 0; boxed < 2; boxed++) {
            int lines[2] = {0};
            hk_context_options co;
            hk_context_options_init(&co, sizeof co);
            co.log = count_warnings;
            co.log_user = lines;
            hk_context *ctx = NULL;
            assert_ok(hk_context_create(&co, &ctx));
            fn_config f = {.skip = 3, .fail = -1};
            hk_dataset *d = hk_range(60);
            if (boxed)
                d = mapped(d, hk_times_ten, NULL, 1, 0);
            d = with_fn(d, &f, (int32_t)threads);
            assert_int_equal(hk_dataset_count(d), -1);
            hk_iter *it = iterate(hk_data_batch(d, 7, 0), threads, ctx);
            const hk_element *e;
            int64_t expected = 0, rows = 0;
            while (hk_iter_next(it, &e) == HK_OK) {
                const int64_t n = hk_tensor_count(e->values[0].tensor);
                assert_int_equal(n, rows == 35 ? 5 : 7);
                for (int64_t k = 0; k < n; k++) {
                    if (expected % 3 == 0)
                        expected++;
                    const int64_t v =
                        ((int64_t *)hk_tensor_data(e->values[0].tensor))[k];
                    assert_int_equal(v / 2, boxed ? 10 * expected : expected);
                    expected++;
                }
                rows += n;
            }
            assert_int_equal(rows, 40);
            hk_iter_info stats;
            assert_ok(hk_iter_get_info(it, &stats));
            assert_int_equal(stats.skipped, 20);
            hk_iter_destroy(it);
            hk_context_destroy(ctx);
            assert_int_equal(lines[1], 11); // ten of them, and the sum
        }
    // Elements that are counted are those that are there.
    fn_config f = {.skip = 2, .fail = -1};
    struct {
        const char *name;
        hk_dataset *d;
        int64_t n;
    } cases[] = {
        {"take", hk_data_take(with_fn(hk_range(20), &f, 1), 3), 3},
        {"skip", hk_data_skip(with_fn(hk_range(20), &f, 1), 3), 7},
        {"shard", hk_data_shard(with_fn(hk_range(20), &f, 1), 2, 0), 5},
        {"window", hk_data_window(with_fn(hk_range(20), &f, 1), 4, 4, 1, 1), 2},
        {"enumerate", hk_data_enumerate(with_fn(hk_range(20), &f, 1), "i", 0),
         10},
        {"concatenate",
         hk_data_concatenate(with_fn(hk_range(20), &f, 1), hk_range(2)), 12},
        {"cache",
         hk_data_repeat(hk_data_cache(with_fn(hk_range(20), &f, 1), NULL), 2),
         20},
        {"nothing above", with_fn(hk_range(20), &f, 1), 10},
        {"map", mapped(with_fn(hk_range(20), &f, 1), hk_times_ten, NULL, 2, 0),
         10},
        {"unbatch",
         hk_data_unbatch(hk_data_batch(with_fn(hk_range(20), &f, 1), 3, 0)),
         10},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        assert_ok(hk_dataset_status(cases[i].d));
        hk_iter *it = iterate(cases[i].d, 2, NULL);
        const hk_element *e;
        int64_t n = 0;
        hk_status s;
        while ((s = hk_iter_next(it, &e)) == HK_OK)
            n++;
        if (s != HK_E_END || n != cases[i].n)
            fail_msg("%s: %lld elements, expected %lld", cases[i].name,
                     (long long)n, (long long)cases[i].n);
        hk_iter_destroy(it);
    }
}

// Of data that is damaged from the first to the last record something is said,
// instead of going round for ever.
static void test_nothing_left(void **state) {
    (void)state;
    fn_config f = {.skip = 1, .fail = -1};
    for (int kind = 0; kind < 4; kind++) {
        hk_dataset *d = with_fn(hk_range(10), &f, kind == 3 ? 2 : 1);
        if (kind == 1)
            d = hk_data_shuffle(d, 4, 1, 1);
        d = hk_data_repeat(d, -1);
        if (kind > 0)
            d = hk_data_batch(d, 4, 1);
        hk_iter *it = iterate(d, 2, NULL);
        const hk_element *e;
        assert_status(hk_iter_next(it, &e), HK_E_DATA);
        hk_iter_destroy(it);
    }
}

// The fault of the first row is told, whichever thread met one first.
static void test_parallel_fault(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++) {
        fn_config f = {.fail = 5};
        hk_dataset *d = hk_data_batch(with_fn(hk_range(12), &f, 3), 12, 0);
        hk_iter *it = iterate(d, 3, NULL);
        const hk_element *e;
        assert_status(hk_iter_next(it, &e), HK_E_DATA);
        assert_string_equal(hk_last_error(), "element 5 is broken");
        hk_iter_destroy(it);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map_overlaps),
        cmocka_unit_test(test_map_unordered),
        cmocka_unit_test(test_prefetch_runs_ahead),
        cmocka_unit_test(test_request_stop),
        cmocka_unit_test(test_stop_ends_threads),
        cmocka_unit_test(test_ignore_stop),
        cmocka_unit_test(test_stop_taken_back),
        cmocka_unit_test(test_stop_and_position),
        cmocka_unit_test(test_stop_tears),
        cmocka_unit_test(test_destroy_any_time),
        cmocka_unit_test(test_parallel_rows),
        cmocka_unit_test(test_stamps),
        cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_nothing_left),
        cmocka_unit_test(test_parallel_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
