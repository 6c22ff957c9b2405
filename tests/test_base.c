// test_base.c - status, options, memory, arena, buffer, context, clock, random
// numbers, threads, ISA level.
#define _GNU_SOURCE // thread names
#include "abort_util.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

// ---- status ---------------------------------------------------------------

static void test_status_names(void **state) {
    (void)state;
    static const struct {
        hk_status s;
        int value;
        const char *name;
    } cases[] = {
        {HK_OK, 0, "HK_OK"},
        {HK_E_INVALID_ARG, 1, "HK_E_INVALID_ARG"},
        {HK_E_NO_MEMORY, 2, "HK_E_NO_MEMORY"},
        {HK_E_SHAPE, 3, "HK_E_SHAPE"},
        {HK_E_DTYPE, 4, "HK_E_DTYPE"},
        {HK_E_NOT_FOUND, 5, "HK_E_NOT_FOUND"},
        {HK_E_EXISTS, 6, "HK_E_EXISTS"},
        {HK_E_OVERFLOW, 7, "HK_E_OVERFLOW"},
        {HK_E_RANGE, 8, "HK_E_RANGE"},
        {HK_E_STATE, 9, "HK_E_STATE"},
        {HK_E_UNSUPPORTED, 10, "HK_E_UNSUPPORTED"},
        {HK_E_IO, 11, "HK_E_IO"},
        {HK_E_DATA, 12, "HK_E_DATA"},
        {HK_E_END, 13, "HK_E_END"},
        {HK_E_TIMEOUT, 14, "HK_E_TIMEOUT"},
        {HK_E_CANCELLED, 15, "HK_E_CANCELLED"},
        {HK_E_NOT_FINITE, 16, "HK_E_NOT_FINITE"},
        {HK_E_BACKEND, 17, "HK_E_BACKEND"},
        {HK_E_UNAVAILABLE, 18, "HK_E_UNAVAILABLE"},
        {HK_E_DENIED, 19, "HK_E_DENIED"},
        {HK_E_INTERNAL, 20, "HK_E_INTERNAL"},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        assert_int_equal((int)cases[i].s, cases[i].value); // pinned
        assert_string_equal(hk_status_string(cases[i].s), cases[i].name);
    }
    assert_string_equal(hk_status_string((hk_status)4711), "HK_E_UNKNOWN");
    assert_string_equal(hk_version(), "0.3.0");
}

// ---- assertions -----------------------------------------------------------

static void assert_sum(void *user) {
    const int *const two = user;
    HKI_ASSERT(*two + *two == 5);
}

static void test_assert(void **state) {
    (void)state;
    int two = 2;
    HKI_ASSERT(two + two == 4);
    assert_aborts(assert_sum, &two, "hooke: test_base.c:");
    assert_aborts(assert_sum, &two,
                  ": assert_sum: assertion failed: *two + *two == 5; ");
}

static void test_mutex_is_held(void **state) {
    (void)state;
    hki_mutex m;
    hki_mutex_init(&m);
    assert_false(hki_mutex_is_held(&m));
    hki_mutex_lock(&m);
    assert_true(hki_mutex_is_held(&m));
    hki_mutex_unlock(&m);
    assert_true(hki_mutex_trylock(&m)); // the question has not taken it
    hki_mutex_unlock(&m);
    hki_mutex_deinit(&m);
}

static void test_identity(void **state) {
    (void)state;
    char boot[HKI_BOOT_ID], again[HKI_BOOT_ID];
    assert_int_equal(hki_process_id(), getpid());
    memset(boot, 'x', sizeof boot);
    memset(again, 'y', sizeof again);
    hki_boot_id(boot);
    hki_boot_id(again);
    assert_memory_equal(boot, again, sizeof boot); // also behind its end
    assert_true(boot[0] == '\0' || strlen(boot) == 36);
}

// ---- messages -------------------------------------------------------------

static void *other_thread_error(void *arg) {
    bool *const ok = arg;
    const bool empty = hk_last_error()[0] == '\0';
    hki_fail(HK_E_DATA, "from the other thread");
    *ok = empty && strcmp(hk_last_error(), "from the other thread") == 0;
    return NULL;
}

static void test_last_error(void **state) {
    (void)state;
    assert_int_equal(hki_fail(HK_E_SHAPE, "op: %d and %s", 3, "x"), HK_E_SHAPE);
    assert_string_equal(hk_last_error(), "op: 3 and x");
    // The message of another thread is its own.
    bool ok = false;
    pthread_t id;
    assert_int_equal(pthread_create(&id, NULL, other_thread_error, &ok), 0);
    pthread_join(id, NULL);
    assert_true(ok);
    assert_string_equal(hk_last_error(), "op: 3 and x");
    // The old message may be part of the new one.
    hki_fail(HK_E_SHAPE, "outer: %s", hk_last_error());
    assert_string_equal(hk_last_error(), "outer: op: 3 and x");
    // A long one is cut, not overrun.
    char text[5000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    hki_fail(HK_E_SHAPE, "%s", text);
    assert_int_equal(strlen(hk_last_error()), 1023);
}

// ---- options --------------------------------------------------------------

typedef struct small_options {
    size_t struct_size;
    int64_t a, b;
} small_options;

typedef struct large_options { // as a newer caller would have it
    small_options known;
    int64_t c;
} large_options;

static void test_options(void **state) {
    (void)state;
    const small_options defaults = {sizeof defaults, 10, 20};
    small_options dst = defaults;
    assert_ok(hki_options_copy(&dst, sizeof dst, NULL, "t"));
    assert_int_equal(dst.a, 10);

    // An older caller knows only a.
    small_options old = {offsetof(small_options, b), 1, 99};
    assert_ok(hki_options_copy(&dst, sizeof dst, &old, "t"));
    assert_int_equal(dst.struct_size, sizeof dst);
    assert_int_equal(dst.a, 1);
    assert_int_equal(dst.b, 20);

    // A newer caller is fine as long as it asks for nothing unknown.
    large_options new = {{sizeof new, 3, 4}, 0};
    dst = defaults;
    assert_ok(hki_options_copy(&dst, sizeof dst, &new, "t"));
    assert_int_equal(dst.b, 4);
    new.c = INT64_C(1) << 56;
    dst = defaults;
    assert_status(hki_options_copy(&dst, sizeof dst, &new, "t"),
                  HK_E_INVALID_ARG);
    assert_memory_equal(&dst, &defaults, sizeof dst);

    // Not initialised at all.
    static const size_t bad[] = {0, 1, sizeof(size_t) - 1, 65537, SIZE_MAX};
    for (size_t i = 0; i < HKI_COUNT(bad); i++) {
        new.known.struct_size = bad[i];
        assert_status(hki_options_copy(&dst, sizeof dst, &new, "t"),
                      HK_E_INVALID_ARG);
    }
}

static void test_options_init(void **state) {
    (void)state;
    const small_options defaults = {sizeof defaults, 10, 20};
    large_options o;
    memset(&o, 0xff, sizeof o);
    hki_options_init(&o, sizeof o, &defaults, sizeof defaults);
    assert_int_equal(o.known.struct_size, sizeof o);
    assert_int_equal(o.known.b, 20);
    assert_int_equal(o.c, 0);
    memset(&o, 0xff, sizeof o);
    hki_options_init(&o, offsetof(small_options, b), &defaults,
                     sizeof defaults);
    assert_int_equal(o.known.struct_size, offsetof(small_options, b));
    assert_int_equal(o.known.a, 10);
    assert_int_equal(o.known.b, -1); // behind the caller's struct: untouched
    hki_options_init(NULL, sizeof o, &defaults, sizeof defaults);
}

// ---- memory ---------------------------------------------------------------

static void test_alloc_array(void **state) {
    (void)state;
    const int64_t live = hki_alloc_live();
    const uint64_t count = hki_alloc_count();
    static const size_t sizes[] = {0, 1, 15, 16, 63, 64, 65, 4096, 100001};
    unsigned char *p[HKI_COUNT(sizes)];
    for (size_t i = 0; i < HKI_COUNT(sizes); i++) {
        assert_ok(hki_zalloc_array(sizes[i], 1, &p[i]));
        assert_int_equal((uintptr_t)p[i] % 64, 0);
        for (size_t k = 0; k < sizes[i]; k++)
            assert_int_equal(p[i][k], 0);
        memset(p[i], 0xa5, sizes[i]);
    }
    assert_ptr_not_equal(p[0], p[1]);
    assert_int_equal(hki_alloc_live() - live, HKI_COUNT(sizes));
    assert_int_equal(hki_alloc_count() - count, HKI_COUNT(sizes));
    for (size_t i = 0; i < HKI_COUNT(sizes); i++)
        hki_free(p[i]);
    hki_free(NULL);
    assert_int_equal(hki_alloc_live(), live);
}

static void test_realloc_array(void **state) {
    (void)state;
    int32_t *p = NULL;
    assert_ok(hki_realloc_array(3, sizeof *p, &p));
    for (int i = 0; i < 3; i++)
        p[i] = i;
    assert_ok(hki_realloc_array(1000, sizeof *p, &p));
    assert_int_equal((uintptr_t)p % 64, 0);
    assert_int_equal(p[2], 2);
    p[999] = 7;
    // A failure leaves the block alone.
    int32_t *const before = p;
    assert_status(hki_realloc_array(SIZE_MAX / 2, sizeof *p, &p),
                  HK_E_NO_MEMORY);
    hki_alloc_fail_at(1);
    assert_status(hki_realloc_array(2000, sizeof *p, &p), HK_E_NO_MEMORY);
    assert_true(hki_alloc_fault_hit());
    assert_ptr_equal(p, before);
    assert_int_equal(p[999], 7);
    assert_ok(hki_realloc_array(2, sizeof *p, &p));
    assert_int_equal(p[1], 1);
    hki_free(p);
}

static void test_alloc_overflow(void **state) {
    (void)state;
    static const struct {
        size_t count, size;
    } cases[] = {
        {SIZE_MAX, 1},         {SIZE_MAX, 2},
        {SIZE_MAX / 2 + 1, 2}, {SIZE_MAX - 64, 1},
        {PTRDIFF_MAX, 1},      {SIZE_MAX, SIZE_MAX},
        {SIZE_MAX / 8 + 1, 8}, {(size_t)1 << 40, (size_t)1 << 40},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        char *p = (char *)state;
        assert_status(hki_alloc_array(cases[i].count, cases[i].size, &p),
                      HK_E_NO_MEMORY);
        assert_ptr_equal(p, state); // written on success only
    }
    size_t out;
    assert_true(hki_mul_overflow(SIZE_MAX, 2, &out));
    assert_false(hki_mul_overflow(SIZE_MAX, 1, &out));
    assert_true(hki_add_overflow(SIZE_MAX, 1, &out));
    assert_false(hki_add_overflow(SIZE_MAX - 1, 1, &out));
}

static void test_fault(void **state) {
    (void)state;
    for (uint64_t n = 1; n <= 3; n++) {
        hki_alloc_fail_at(n);
        for (uint64_t k = 1; k <= 5; k++) {
            char *p = NULL;
            const hk_status s = hki_alloc_array(1, 1, &p);
            assert_int_equal(s, k == n ? HK_E_NO_MEMORY : HK_OK);
            assert_int_equal(hki_alloc_fault_hit(), k >= n);
            hki_free(p);
        }
    }
    hki_alloc_fail_at(0);
    assert_false(hki_alloc_fault_hit());
}

typedef struct counting_allocator {
    size_t bytes, calls;
    bool consistent;
} counting_allocator;

static void *counting_alloc(void *user, void *ptr, size_t old_bytes,
                            size_t new_bytes) {
    counting_allocator *const c = user;
    c->calls++;
    if ((ptr == NULL) != (old_bytes == 0) || old_bytes > c->bytes)
        c->consistent = false;
    c->bytes = c->bytes - old_bytes + new_bytes;
    if (new_bytes == 0) {
        free(ptr);
        return NULL;
    }
    return realloc(ptr, new_bytes);
}

// The function gets every block back with the size it was asked for.
static void test_set_allocator(void **state) {
    (void)state;
    counting_allocator c = {.consistent = true};
    hk_set_allocator(counting_alloc, &c);
    char *p = NULL;
    assert_ok(hki_alloc_array(10, 10, &p));
    assert_ok(hki_realloc_array(5000, 1, &p));
    assert_true(c.bytes >= 5000);
    hki_free(p);
    hk_set_allocator(NULL, NULL);
    assert_true(c.consistent);
    assert_int_equal(c.bytes, 0);
    assert_int_equal(c.calls, 4);
}

static void test_strdup(void **state) {
    (void)state;
    char *s;
    assert_ok(hki_strdup("elastic", &s));
    assert_string_equal(s, "elastic");
    hki_free(s);
    assert_ok(hki_strdup("", &s));
    assert_string_equal(s, "");
    hki_free(s);
}

// ---- arena, buffer --------------------------------------------------------

static void test_arena(void **state) {
    (void)state;
    const int64_t live = hki_alloc_live();
    hki_arena a = {0};
    unsigned char *last = NULL;
    for (size_t size = 0; size < 3000; size += 7) {
        unsigned char *p;
        assert_ok(hki_arena_alloc(&a, size, 1, &p));
        assert_int_equal((uintptr_t)p % (size < 64 ? 16 : 64), 0);
        assert_ptr_not_equal(p, last);
        for (size_t k = 0; k < size; k++)
            assert_int_equal(p[k], 0);
        memset(p, 0xff, size);
        last = p;
    }
    unsigned char *big;
    assert_ok(hki_arena_alloc(&a, 1 << 20, 1, &big));
    memset(big, 1, 1 << 20);
    assert_true(a.total_bytes > (1 << 20));
    assert_status(hki_arena_alloc(&a, SIZE_MAX, 2, &big), HK_E_NO_MEMORY);
    assert_status(hki_arena_alloc(&a, SIZE_MAX, 1, &big), HK_E_NO_MEMORY);
    assert_status(hki_arena_alloc(&a, SIZE_MAX - 64, 1, &big), HK_E_NO_MEMORY);
    const char *s, *t;
    assert_ok(hki_arena_strdup(&a, "kernel", &s));
    assert_ok(hki_arena_printf(&a, &t, "%s_%d", s, 12));
    assert_string_equal(t, "kernel_12");
    hki_arena_deinit(&a);
    hki_arena_deinit(&a); // empty again
    hki_arena_deinit(NULL);
    assert_int_equal(hki_alloc_live(), live);
}

static hk_status arena_body(void *user) {
    (void)user;
    hki_arena a = {0};
    const char *text;
    char *p;
    hk_status s = hki_arena_alloc(&a, 100, 100, &p);
    if (s == HK_OK)
        s = hki_arena_strdup(&a, "name", &text);
    if (s == HK_OK)
        s = hki_arena_printf(&a, &text, "%09999d", 1);
    hki_arena_deinit(&a);
    return s;
}

static void test_buf(void **state) {
    (void)state;
    hki_buf b = {0};
    assert_ok(hki_buf_add(&b, NULL, 0));
    assert_string_equal(b.data, "");
    for (int i = 0; i < 1000; i++)
        assert_ok(hki_buf_printf(&b, "%d,", i % 10));
    assert_int_equal(b.size, 2000);
    assert_ok(hki_buf_add(&b, "a\0b", 3));
    assert_int_equal(b.size, 2003);
    assert_memory_equal(b.data + 1998, "9,a\0b", 6);
    // A failed call changes nothing.
    hki_alloc_fail_at(1);
    assert_status(hki_buf_printf(&b, "%9999d", 1), HK_E_NO_MEMORY);
    hki_alloc_fail_at(0);
    assert_int_equal(b.size, 2003);
    assert_memory_equal(b.data + 1998, "9,a\0b", 6);
    assert_status(hki_buf_add(&b, "", SIZE_MAX - 100), HK_E_NO_MEMORY);
    hki_buf_deinit(&b);
    assert_null(b.data);
    hki_buf_deinit(NULL);
}

static hk_status buf_body(void *user) {
    (void)user;
    hki_buf b = {0};
    hk_status s = hki_buf_add(&b, "abc", 3);
    for (int i = 0; i < 10 && s == HK_OK; i++)
        s = hki_buf_printf(&b, "%0*d", 50 << i, i);
    hki_buf_deinit(&b);
    return s;
}

// ---- context --------------------------------------------------------------

typedef struct log_lines {
    int n, inside;
    bool overlapped;
    hk_log_level level;
    char text[4096];
} log_lines;

// Without a lock of its own: the context promises one call at a time.
static void on_log(void *user, hk_log_level level, const char *text) {
    log_lines *const l = user;
    if (l->inside++ != 0)
        l->overlapped = true;
    l->n++;
    l->level = level;
    snprintf(l->text, sizeof l->text, "%s", text);
    l->inside--;
}

static hk_context *context_with_log(log_lines *l, hk_log_level level) {
    hk_context_options opt;
    hk_context_options_init(&opt, sizeof opt);
    opt.log = on_log;
    opt.log_user = l;
    opt.log_level = level;
    hk_context *ctx;
    assert_ok(hk_context_create(&opt, &ctx));
    return ctx;
}

static void test_context(void **state) {
    (void)state;
    hk_context *ctx;
    assert_ok(hk_context_create(NULL, &ctx));
    assert_int_equal(hki_context_threads(ctx), hki_cpu_count());
    assert_int_equal(hki_context_isa(ctx), hki_isa_best());
    assert_int_equal(hk_stop_requested(ctx), 0);
    hki_log(ctx, HK_LOG_ERROR, "nobody hears this");
    hk_context_destroy(ctx);
    hk_context_destroy(NULL);
    hki_log(NULL, HK_LOG_ERROR, "nor this");

    hk_context_options opt;
    hk_context_options_init(&opt, sizeof opt);
    assert_int_equal(opt.log_level, HK_LOG_INFO);
    opt.threads = 3;
    opt.isa = HK_ISA_BASE;
    assert_ok(hk_context_create(&opt, &ctx));
    assert_int_equal(hki_context_threads(ctx), 3);
    assert_int_equal(hki_context_isa(ctx), HK_ISA_BASE);
    hk_context_destroy(ctx);
}

static void test_context_bad_options(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t threads, reserved;
        int isa;
        hk_status expected;
    } cases[] = {
        {"reserved", 0, 1, HK_ISA_AUTO, HK_E_INVALID_ARG},
        {"threads", UINT32_MAX, 0, HK_ISA_AUTO, HK_E_INVALID_ARG},
        {"isa", 0, 0, 4, HK_E_INVALID_ARG},
        {"isa -1", 0, 0, -1, HK_E_INVALID_ARG},
    };
    hk_context *ctx = NULL;
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_context_options opt;
        hk_context_options_init(&opt, sizeof opt);
        opt.threads = cases[i].threads;
        opt.reserved = cases[i].reserved;
        opt.isa = (hk_isa)cases[i].isa;
        const hk_status s = hk_context_create(&opt, &ctx);
        if (s != cases[i].expected || ctx != NULL)
            fail_msg("%s: %s", cases[i].name, hk_status_string(s));
    }
    assert_status(hk_context_create(NULL, NULL), HK_E_INVALID_ARG);
    if (hki_isa_best() < HK_ISA_V4) {
        hk_context_options opt;
        hk_context_options_init(&opt, sizeof opt);
        opt.isa = HK_ISA_V4;
        assert_status(hk_context_create(&opt, &ctx), HK_E_UNSUPPORTED);
    }
}

static hk_status context_body(void *user) {
    (void)user;
    hk_context *ctx;
    HKI_TRY(hk_context_create(NULL, &ctx));
    hk_context_destroy(ctx);
    return HK_OK;
}

static void test_log_levels(void **state) {
    (void)state;
    log_lines l = {0};
    hk_context *const ctx = context_with_log(&l, HK_LOG_WARNING);
    hki_log(ctx, HK_LOG_DEBUG, "no");
    hki_log(ctx, HK_LOG_INFO, "no");
    assert_int_equal(l.n, 0);
    hki_log(ctx, HK_LOG_WARNING, "step %d", 5);
    assert_int_equal(l.n, 1);
    assert_int_equal(l.level, HK_LOG_WARNING);
    assert_string_equal(l.text, "step 5");
    hki_log(ctx, HK_LOG_ERROR, "%05000d", 1);
    assert_int_equal(strlen(l.text), 2047); // cut
    hk_context_destroy(ctx);
}

#define N_THREADS 8
#define N_LINES 200

static void log_many(void *user) {
    for (int i = 0; i < N_LINES; i++)
        hki_log(user, HK_LOG_INFO, "line %d", i);
}

static void test_log_threads(void **state) {
    (void)state;
    log_lines l = {0};
    hk_context *const ctx = context_with_log(&l, HK_LOG_INFO);
    hki_thread *t[N_THREADS];
    for (int i = 0; i < N_THREADS; i++)
        assert_ok(hki_thread_start(log_many, ctx, -1, "log", &t[i]));
    for (int i = 0; i < N_THREADS; i++)
        hki_thread_stop(t[i]);
    assert_int_equal(l.n, N_THREADS * N_LINES);
    assert_false(l.overlapped);
    hk_context_destroy(ctx);
}

static hk_context *signal_ctx; // a signal handler has no other way in

static void on_signal(int sig) {
    hk_request_stop(signal_ctx, sig);
}

static void test_stop(void **state) {
    (void)state;
    assert_ok(hk_context_create(NULL, &signal_ctx));
    struct sigaction act = {.sa_handler = on_signal}, before;
    assert_int_equal(sigaction(SIGUSR1, &act, &before), 0);
    assert_int_equal(raise(SIGUSR1), 0);
    assert_int_equal(hk_stop_requested(signal_ctx), SIGUSR1);
    sigaction(SIGUSR1, &before, NULL);
    hk_context_destroy(signal_ctx);
}

// ---- waits that others end ---------------------------------------------------

#define LONG_MS 60000

typedef struct napper {
    hk_context *ctx;
    hki_wake *wake;
    atomic_int ended;
    hki_thread *thread;
} napper;

static void nap_long(void *user) {
    napper *const n = user;
    if (hki_nap_until(n->ctx, n->wake, hki_deadline(LONG_MS)))
        atomic_store(&n->ended, 1);
}

// Several threads, most of which wait before `end` is called. Every one of them
// has to end, and long before its deadline.
static void end_naps(hk_context *ctx, hki_wake *wake,
                     void (*end)(hk_context *ctx, hki_wake *wake)) {
    napper n[N_THREADS];
    const int64_t begin = hki_now_ns();
    for (int i = 0; i < N_THREADS; i++) {
        n[i] = (napper){.ctx = ctx, .wake = wake};
        assert_ok(hki_thread_start(nap_long, &n[i], -1, "nap", &n[i].thread));
    }
    (void)hki_nap(NULL, 10);
    end(ctx, wake);
    for (int i = 0; i < N_THREADS; i++) {
        hki_thread_stop(n[i].thread);
        assert_int_equal(atomic_load(&n[i].ended), 1);
    }
    assert_true(hki_now_ns() - begin < LONG_MS * INT64_C(1000000) / 2);
}

static void raise_signal(hk_context *ctx, hki_wake *wake) {
    (void)wake;
    signal_ctx = ctx;
    assert_int_equal(raise(SIGUSR1), 0);
}

static void signal_wake(hk_context *ctx, hki_wake *wake) {
    (void)ctx;
    hki_wake_signal(wake);
}

static void test_stop_ends_naps(void **state) {
    (void)state;
    hk_context *ctx;
    assert_ok(hk_context_create(NULL, &ctx));
    assert_false(hki_nap(ctx, 1));
    struct sigaction act = {.sa_handler = on_signal}, before;
    assert_int_equal(sigaction(SIGUSR1, &act, &before), 0);
    end_naps(ctx, NULL, raise_signal);
    sigaction(SIGUSR1, &before, NULL);
    assert_true(hki_nap(ctx, LONG_MS)); // the stop stays
    hk_request_stop(ctx, 0);
    assert_false(hki_nap(ctx, 1)); // until it is taken back
    hk_context_destroy(ctx);
}

// What a process asks of its copy of a context is not asked of this one, which
// shares its wake object.
static void test_stop_after_fork(void **state) {
    (void)state;
    hk_context *ctx;
    assert_ok(hk_context_create(NULL, &ctx));
    const pid_t child = fork();
    if (child == 0) {
        hk_request_stop(ctx, 1);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(hki_nap(ctx, 1));
    assert_int_equal(hk_stop_requested(ctx), 0);
    hk_request_stop(ctx, 2);
    assert_true(hki_nap(ctx, LONG_MS));
    hk_context_destroy(ctx);
}

static void test_wake(void **state) {
    (void)state;
    hki_wake *a, *b;
    assert_ok(hki_wake_create("test", &a));
    assert_ok(hki_wake_create("test", &b));
    hki_waitable w[] = {hki_wake_waitable(a), hki_wake_waitable(NULL),
                        hki_wake_waitable(b)};
    assert_status(hki_wait_any(w, 3, hki_now_ns() + 1000000), HK_E_TIMEOUT);
    assert_status(hki_wait_any(NULL, 0, hki_now_ns() + 1000000), HK_E_TIMEOUT);
    end_naps(NULL, a, signal_wake);
    hki_wake_signal(a); // a second time is like the first one
    for (int i = 0; i < 2; i++) {
        assert_ok(hki_wait_any(w, 3, INT64_MAX));
        assert_true(hki_is_ready(&w[0]));
        assert_false(hki_is_ready(&w[1]));
        assert_false(hki_is_ready(&w[2]));
    }
    hki_wake_reset(a);
    hki_wake_reset(a);
    assert_status(hki_wait_any(w, 3, hki_now_ns()), HK_E_TIMEOUT);
    hki_wake_signal(b);
    assert_ok(hki_wait_any(w, 3, INT64_MAX));
    assert_true(hki_is_ready(&w[2]));
    hki_wake_destroy(a);
    hki_wake_destroy(b);
    hki_wake_signal(NULL);
    hki_wake_reset(NULL);
    hki_wake_destroy(NULL);
}

static atomic_int n_created, n_destroyed;

static hk_status create_slot(void **out) {
    char *p;
    HKI_TRY(hki_alloc_array(1, 1, &p));
    atomic_fetch_add(&n_created, 1);
    *out = p;
    return HK_OK;
}

static void destroy_slot(void *p) {
    atomic_fetch_add(&n_destroyed, 1);
    hki_free(p);
}

typedef struct slot_user {
    hk_context *ctx;
    void *seen[N_THREADS];
    atomic_int next;
    atomic_int failures;
} slot_user;

static void use_slot(void *user) {
    slot_user *const u = user;
    void **const seen = &u->seen[atomic_fetch_add(&u->next, 1)];
    if (hki_context_slot(u->ctx, create_slot, destroy_slot, seen) != HK_OK)
        atomic_fetch_add(&u->failures, 1);
}

static void test_slot(void **state) {
    (void)state;
    slot_user u = {0};
    assert_ok(hk_context_create(NULL, &u.ctx));
    // A failed creation leaves the slot empty for the next caller.
    void *p = NULL;
    hki_alloc_fail_at(1);
    assert_status(hki_context_slot(u.ctx, create_slot, destroy_slot, &p),
                  HK_E_NO_MEMORY);
    hki_alloc_fail_at(0);
    assert_null(p);
    hki_thread *t[N_THREADS];
    for (int i = 0; i < N_THREADS; i++)
        assert_ok(hki_thread_start(use_slot, &u, -1, "slot", &t[i]));
    for (int i = 0; i < N_THREADS; i++)
        hki_thread_stop(t[i]);
    assert_int_equal(u.failures, 0);
    for (int i = 0; i < N_THREADS; i++)
        assert_ptr_equal(u.seen[i], u.seen[0]);
    hk_context_destroy(u.ctx);
    assert_int_equal(n_created, 1);
    assert_int_equal(n_destroyed, 1);
}

// ---- clock ----------------------------------------------------------------

static void test_clock(void **state) {
    (void)state;
    const int64_t a = hki_now_ns(), b = hki_now_ns();
    assert_true(a > 0 && b >= a);
    assert_true(hki_wall_seconds() > 1.6e9); // later than 2020
}

// ---- random numbers -------------------------------------------------------

// Known answers of Philox4x32-10: the reference implementation's test vectors
// for zeros, ones and the digits of pi.
static void test_philox_vectors(void **state) {
    (void)state;
    static const struct {
        uint32_t key[2], counter[4], out[4];
    } cases[] = {
        {{0, 0},
         {0, 0, 0, 0},
         {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0xa4093822, 0x299f31d0},
         {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        uint32_t out[4];
        hki_philox_block(cases[i].key, cases[i].counter, out);
        assert_memory_equal(out, cases[i].out, sizeof out);
    }
}

static void test_rng_stream(void **state) {
    (void)state;
    // tf.data's shuffle(seed=42): seed pair (87654321, 42).
    static const uint32_t expected[] = {0xb1f9e408, 0xf656b54c, 0x3765ccfd,
                                        0x0ee0bd75};
    hki_rng r;
    hki_rng_init(&r, 87654321, 42);
    for (size_t i = 0; i < HKI_COUNT(expected); i++)
        assert_int_equal(hki_rng_u32(&r), expected[i]);

    // The second block has counter 1, and a copy continues like the original.
    const uint32_t key[2] = {7, 1}, counter[4] = {1, 0, 5, 2};
    uint32_t block[4];
    hki_philox_block(key, counter, block);
    hki_rng_init(&r, (UINT64_C(1) << 32) | 7, (UINT64_C(2) << 32) | 5);
    for (int i = 0; i < 5; i++)
        hki_rng_u32(&r);
    hki_rng copy = r;
    const uint64_t v = hki_rng_u64(&r);
    assert_true(v == ((uint64_t)block[2] << 32 | block[1]));
    assert_true(hki_rng_u64(&copy) == v);

    // Word 0 of the counter carries into word 1, never into the stream.
    hki_rng_init(&r, 1, 9);
    r.state.counter[0] = UINT32_MAX;
    hki_rng_u32(&r);
    assert_int_equal(r.state.counter[0], 0);
    assert_int_equal(r.state.counter[1], 1);
    r.state.counter[0] = r.state.counter[1] = UINT32_MAX;
    r.used = 4;
    hki_rng_u32(&r);
    assert_int_equal(r.state.counter[1], 0);
    assert_int_equal(r.state.counter[2], 9);
}

// Fixed seeds: the bounds are five standard errors, met once and for all.
static void test_rng_distributions(void **state) {
    (void)state;
    const int n = 200000;
    const double root = sqrt(n);
    hki_rng r;
    hki_rng_init(&r, 2024, 0);
    double sum = 0, squares = 0, low = 1, high = 0;
    for (int i = 0; i < n; i++) {
        const double u = hki_rng_uniform(&r);
        assert_true(u >= 0.0 && u < 1.0);
        sum += u;
        squares += (u - 0.5) * (u - 0.5);
        low = fmin(low, u);
        high = fmax(high, u);
    }
    assert_close(sum / n, 0.5, 5 * sqrt(1.0 / 12) / root, 0);
    assert_close(squares / n, 1.0 / 12, 5 * sqrt(1.0 / 180) / root, 0);
    assert_true(low < 1e-4 && high > 1 - 1e-4);

    double moment[5] = {0};
    for (int i = 0; i < n; i++) {
        const double x = hki_rng_normal(&r);
        double power = 1;
        for (int k = 0; k < 5; k++, power *= x)
            moment[k] += power / n;
    }
    // Variances of x, x^2, x^3, x^4 under the normal law: 1, 2, 15, 96.
    assert_close(moment[1], 0, 5 * 1 / root, 0);
    assert_close(moment[2], 1, 5 * sqrt(2) / root, 0);
    assert_close(moment[3], 0, 5 * sqrt(15) / root, 0);
    assert_close(moment[4], 3, 5 * sqrt(96) / root, 0);
}

static void test_rng_below(void **state) {
    (void)state;
    hki_rng r;
    hki_rng_init(&r, 5, 5);
    int seen[7] = {0};
    const int n = 70000;
    for (int i = 0; i < n; i++) {
        const uint64_t k = hki_rng_below(&r, 7);
        assert_true(k < 7);
        seen[k]++;
    }
    double chi2 = 0;
    for (int k = 0; k < 7; k++)
        chi2 += (seen[k] - n / 7.0) * (seen[k] - n / 7.0) / (n / 7.0);
    assert_true(chi2 < 30); // six degrees of freedom: p < 1e-4
    assert_int_equal(hki_rng_below(&r, 1), 0);
    const uint64_t big = (UINT64_C(1) << 63) + 1;
    for (int i = 0; i < 100; i++)
        assert_true(hki_rng_below(&r, big) < big);
}

static void test_hash(void **state) {
    (void)state;
    // Published FNV-1a values.
    assert_true(hki_hash(HKI_HASH_INIT, "", 0) == HKI_HASH_INIT);
    assert_true(hki_hash(HKI_HASH_INIT, "a", 1) ==
                UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(hki_hash(HKI_HASH_INIT, "foobar", 6) ==
                UINT64_C(0x85944171f73967e8));
    assert_true(hki_hash(hki_hash(HKI_HASH_INIT, "foo", 3), "bar", 3) ==
                UINT64_C(0x85944171f73967e8));
}

// ---- threads --------------------------------------------------------------

typedef struct thread_report {
    char name[16];
    bool signals_blocked;
} thread_report;

static void report_thread(void *user) {
    thread_report *const r = user;
    pthread_getname_np(pthread_self(), r->name, sizeof r->name);
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    r->signals_blocked = sigismember(&mask, SIGTERM) == 1;
}

static void test_threads(void **state) {
    (void)state;
    thread_report r = {0};
    hki_thread *t;
    assert_ok(hki_thread_start(report_thread, &r, -1, "a-very-long-name", &t));
    hki_thread_stop(t);
    assert_string_equal(r.name, "a-very-long-nam");
    assert_true(r.signals_blocked);
    hki_thread_stop(NULL);
    assert_true(hki_cpu_count() >= 1);
}

static void nothing(void *user) {
    (void)user;
}

static void test_pinning(void **state) {
    (void)state;
    const uint32_t before = hki_cpu_count();
    hki_thread *t;
    for (int cpu = 0; cpu < 5; cpu++) { // beyond the last: modulo
        const hk_status s = hki_thread_start(nothing, NULL, cpu, "pin", &t);
        if (s == HK_E_UNSUPPORTED)
            skip();
        assert_ok(s);
        hki_thread_stop(t);
    }
    assert_status(hki_thread_pin(-1), HK_E_INVALID_ARG);
    // A pinned thread does not narrow what the process may use.
    assert_ok(hki_thread_pin(0));
    assert_int_equal(hki_cpu_count(), before);
    assert_ok(hki_thread_pin((int)before - 1));
}

static hk_status thread_body(void *user) {
    hki_thread *t;
    HKI_TRY(hki_thread_start(nothing, user, -1, NULL, &t));
    hki_thread_stop(t);
    return HK_OK;
}

static void alloc_many(void *user) {
    atomic_int *const failures = user;
    for (int i = 0; i < 2000; i++) {
        char *p = NULL;
        if (hki_alloc_array((size_t)i, 1, &p) != HK_OK ||
            hki_realloc_array((size_t)i * 2, 1, &p) != HK_OK)
            atomic_fetch_add(failures, 1);
        hki_free(p);
    }
}

// An armed fault fires once, whoever runs into it.
static void test_alloc_threads(void **state) {
    (void)state;
    const int64_t live = hki_alloc_live();
    atomic_int failures = 0;
    hki_thread *t[N_THREADS];
    for (int i = 0; i < N_THREADS; i++)
        assert_ok(hki_thread_start(alloc_many, &failures, -1, "alloc", &t[i]));
    hki_alloc_fail_at(100);
    for (int i = 0; i < N_THREADS; i++)
        hki_thread_stop(t[i]);
    const bool hit = hki_alloc_fault_hit();
    hki_alloc_fail_at(0);
    assert_int_equal(failures, hit ? 1 : 0);
    assert_int_equal(hki_alloc_live(), live);
}

// ---- ISA level ------------------------------------------------------------

static void test_isa(void **state) {
    (void)state;
    assert_true(hki_isa_best() >= HK_ISA_BASE && hki_isa_best() <= HK_ISA_V4);
    assert_string_equal(hki_isa_name(HK_ISA_AUTO), "auto");
    assert_string_equal(hki_isa_name(HK_ISA_BASE), "base");
    assert_string_equal(hki_isa_name(HK_ISA_V3), "v3");
    assert_string_equal(hki_isa_name(HK_ISA_V4), "v4");
    assert_string_equal(hki_isa_name((hk_isa)9), "unknown");
}

static void test_failing_allocations(void **state) {
    (void)state;
    hk_test_alloc_failures("arena", arena_body, NULL);
    hk_test_alloc_failures("buf", buf_body, NULL);
    hk_test_alloc_failures("context", context_body, NULL);
    hk_test_alloc_failures("thread", thread_body, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_names),
        cmocka_unit_test(test_assert),
        cmocka_unit_test(test_mutex_is_held),
        cmocka_unit_test(test_identity),
        cmocka_unit_test(test_last_error),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_options_init),
        cmocka_unit_test(test_alloc_array),
        cmocka_unit_test(test_realloc_array),
        cmocka_unit_test(test_alloc_overflow),
        cmocka_unit_test(test_fault),
        cmocka_unit_test(test_set_allocator),
        cmocka_unit_test(test_strdup),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_buf),
        cmocka_unit_test(test_context),
        cmocka_unit_test(test_context_bad_options),
        cmocka_unit_test(test_log_levels),
        cmocka_unit_test(test_log_threads),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_stop_ends_naps),
        cmocka_unit_test(test_stop_after_fork),
        cmocka_unit_test(test_wake),
        cmocka_unit_test(test_slot),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_philox_vectors),
        cmocka_unit_test(test_rng_stream),
        cmocka_unit_test(test_rng_distributions),
        cmocka_unit_test(test_rng_below),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_pinning),
        cmocka_unit_test(test_alloc_threads),
        cmocka_unit_test(test_isa),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
