// test_cluster_roles.c - the run-level protocol: how a run ends, who tells
// whom, ranges of data, the evaluator's last word. All roles are threads of
// this process and talk over unix sockets.
#include "hk_test.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/io.h"
#include "cluster/center/run_memory.h"
#include "cluster/roles/roles.h"
#include "data/data.h"
#include "hooke/ckpt.h"
#include "hooke/data.h"
#include "hooke/ranges.h"
#include "hooke/roles.h"

// ---- notes -----------------------------------------------------------------

static hk_role_center_info about(hk_role_center *c) {
    hk_role_center_info info;
    hk_role_center_get_info(c, &info);
    return info;
}

static void test_limits(void **state) {
    (void)state;
    hk_run_limits l;
    hki_limits a, b;
    hk_run_limits_init(&l, sizeof l);
    assert_ok(hki_limits_copy(&a, &l));
    assert_false(hki_limits_any(&a));
    assert_ok(hki_limits_copy(&a, NULL));
    l.steps = 1000;
    l.seconds = 0.5;
    l.metric = "acc \"1\"";
    l.target = 0.1;
    l.lower = 1;
    assert_ok(hki_limits_copy(&a, &l));
    assert_true(hki_limits_any(&a));
    hki_buf text = {0};
    assert_ok(hki_limits_print(&text, &a));
    assert_ok(hki_limits_parse(text.data, text.size, &b));
    assert_int_equal(b.steps, 1000);
    assert_true(b.seconds == 0.5 && b.target == 0.1 && b.lower);
    assert_string_equal(b.metric, "acc \"1\"");
    hki_buf_deinit(&text);
    l.steps = -1;
    assert_status(hki_limits_copy(&a, &l), HK_E_INVALID_ARG);
    l.steps = 0;
    l.seconds = NAN;
    assert_status(hki_limits_copy(&a, &l), HK_E_INVALID_ARG);
    l.seconds = 0;
    l.metric = "";
    assert_status(hki_limits_copy(&a, &l), HK_E_INVALID_ARG);
    static const char *const bad[] = {
        "", "[]", "{\"steps\": -5}", "{\"seconds\": -1}", "{\"metric\": \"\"}"};
    for (size_t i = 0; i < HKI_COUNT(bad); i++)
        if (hki_limits_parse(bad[i], strlen(bad[i]), &b) == HK_OK)
            fail_msg("%s was taken", bad[i]);
}

static void test_evaluated(void **state) {
    (void)state;
    hki_evaluated a = {.global_step = 77, .is_final = true, .n = 2}, b;
    snprintf(a.measure[0].name, sizeof a.measure[0].name, "loss");
    a.measure[0].value = 0.25;
    snprintf(a.measure[1].name, sizeof a.measure[1].name, "auc");
    a.measure[1].value = NAN;
    hki_buf text = {0};
    assert_ok(hki_evaluated_print(&text, &a));
    assert_string_equal(text.data, "{\"global_step\": 77, \"final\": true, "
                                   "\"measures\": {\"loss\": 0.25, \"auc\": "
                                   "null}}");
    assert_ok(hki_evaluated_parse(text.data, text.size, &b));
    assert_int_equal(b.global_step, 77);
    assert_true(b.is_final);
    assert_true(hki_evaluated_find(&b, "loss")->value == 0.25);
    assert_true(isnan(hki_evaluated_find(&b, "auc")->value));
    assert_null(hki_evaluated_find(&b, "x"));
    hki_buf_deinit(&text);
    static const char *const bad[] = {
        "", "{}", "{\"measures\": 1}", "{\"measures\": {\"\": 1}}",
        ("{\"measures\": "
         "{\"a23456789012345678901234567890123456789012345678\": 1}}")};
    for (size_t i = 0; i < HKI_COUNT(bad); i++)
        if (hki_evaluated_parse(bad[i], strlen(bad[i]), &b) == HK_OK)
            fail_msg("%s was taken", bad[i]);
}

static void test_reasons(void **state) {
    (void)state;
    assert_int_equal(hki_reason_end("steps: 5 of 5"), HK_END_STEPS);
    assert_int_equal(hki_reason_end("left"), HK_END_LEFT);
    assert_int_equal(hki_reason_end("stepson"), HK_END_ASKED);
    assert_int_equal(hki_reason_end(""), HK_END_ASKED);
    assert_string_equal(hk_run_end_name(HK_END_METRIC), "metric");
    assert_null(hk_run_end_name((hk_run_end)99));
}

// ---- a small cluster -------------------------------------------------------

enum {
    N = 48, // floats of the model
    WORKERS = 3
};

static char folder[64];

typedef struct bed {
    hk_context *ctx; // of center and evaluator
    hk_layout *layout;
    char address[96], file[96];
    hk_role_center *center;
    hk_run_limits limits;
    const char *metrics;
    int64_t linger_ms, lease_ms;
    uint32_t expected; // workers; 0: unknown
} bed;

static int make_folder(void **state) {
    (void)state;
    const char *const tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.32s/hooke-roles-XXXXXX",
             tmp == NULL || strlen(tmp) > 32 ? "/tmp" : tmp);
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void bed_init(bed *b) {
    static int count;
    const int64_t n = N;
    const hk_layout_item item = {.name = "w",
                                 .shape = hk_shape_make(1, &n),
                                 .dtype = HK_F32,
                                 .kind = HK_TRAINABLE};
    *b = (bed){.linger_ms = 20000, .lease_ms = 1000};
    assert_ok(hk_context_create(NULL, &b->ctx));
    assert_ok(hk_layout_create(&item, 1, &b->layout));
    snprintf(b->address, sizeof b->address, "unix:%s/s%d", folder, count);
    snprintf(b->file, sizeof b->file, "%s/c%d", folder, count++);
    hk_run_limits_init(&b->limits, sizeof b->limits);
}

static void bed_start(bed *b) {
    const char *const address = b->address;
    hk_center_server_options so;
    hk_role_center_options o;
    hk_center_options co;
    hk_center_options_init(&co, sizeof co);
    co.workers = b->expected;
    hk_center_server_options_init(&so, sizeof so);
    so.center = b->expected > 0 ? &co : NULL;
    so.context = b->ctx;
    so.addresses = &address;
    so.n_addresses = 1;
    so.path = b->file;
    so.lease_ms = b->lease_ms;
    hk_role_center_options_init(&o, sizeof o);
    o.server = &so;
    o.limits = &b->limits;
    o.metrics = b->metrics;
    o.directory = folder;
    o.linger_ms = b->linger_ms;
    o.evaluator_ms = 20000;
    assert_ok(hk_role_center_start(&o, &b->center));
}

static void bed_deinit(bed *b) {
    hk_role_center_stop(b->center);
    hk_layout_release(b->layout);
    hk_context_destroy(b->ctx);
}

// One worker on a thread: x grows by 1 with every step.
typedef struct hand {
    bed *b;
    hk_context *ctx;
    int32_t id;
    double rate; // moving
    uint32_t period;
    int64_t max_steps; // its data; 0: without end
    int64_t fails_at;  // step; 0: it does not
    const hk_run_limits *limits;
    int (*pause)(struct hand *h); // between steps; NULL: none
    const void *user;             // its own
    pthread_t thread;
    hk_status status;
    hk_role_result result;
    hk_run_end end;
    _Atomic int64_t steps;
    char text[256];
} hand;

static hk_status hand_open(hand *h, hk_role_worker **w, hk_optimizer **opt,
                           hk_elastic **e, float *x) {
    const char *const address = h->b->address;
    hk_connect_options co;
    hk_role_worker_options wo;
    hk_connect_options_init(&co, sizeof co);
    co.context = h->ctx;
    co.addresses = &address;
    co.n_addresses = 1;
    co.connect_ms = 20000;
    hk_role_worker_options_init(&wo, sizeof wo);
    wo.connect = &co;
    wo.limits = h->limits;
    wo.report_ms = 50;
    wo.metrics = h->b->metrics;
    HKI_TRY(hk_role_worker_open(&wo, h->b->layout, w));
    const char *const at = hk_role_worker_metrics(*w);
    assert_int_equal(at != NULL, wo.metrics != NULL);
    assert_true(at == NULL || strncmp(at, "127.0.0.1:", 10) == 0);
    hk_optimizer_options oo;
    hk_optimizer_options_init(&oo, sizeof oo, HK_OPT_GRADIENT_DESCENT);
    oo.learning_rate = 1;
    HKI_TRY(hk_optimizer_create(&oo, h->b->layout, opt));
    hk_elastic_options eo;
    hk_elastic_options_init(&eo, sizeof eo);
    eo.num_worker = WORKERS;
    eo.moving_rate = h->rate;
    eo.rho = 0;
    eo.communication_period = h->period;
    eo.telemetry = 1;
    eo.wait_ms = 20000;
    HKI_TRY(hk_elastic_create(&eo, *opt, hk_role_worker_center(*w), e));
    return hk_elastic_init(*e, x, h->id);
}

static hk_status hand_train(hand *h, hk_role_worker *w, hk_elastic *e,
                            float *x) {
    float g[N];
    hk_progress p = {0};
    const hk_grad_view view = {.dense = g, .n_dense = N, .scale = 1};
    for (size_t i = 0; i < N; i++)
        g[i] = -1;
    if (h->b->limits.steps > 0) // the center's, whatever this worker's are
        assert_int_equal(hk_role_worker_steps(w), h->b->limits.steps);
    while (h->end == HK_END_NONE) {
        HKI_TRY(hk_elastic_apply(e, x, &view, NULL));
        atomic_fetch_add(&h->steps, 1);
        p.examples += 10;
        p.loss = 1.5;
        hk_progress_of(e, &p);
        HKI_TRY(hk_role_worker_step(w, &p, &h->end));
        if (h->fails_at > 0 && h->steps >= h->fails_at)
            return hki_fail(HK_E_DATA, "row 7 of worker %d's\ndata is bad",
                            h->id);
        if (h->end == HK_END_NONE && h->max_steps > 0 &&
            h->steps >= h->max_steps)
            h->end = HK_END_EPOCHS;
        if (h->pause != NULL && h->pause(h) != 0)
            break;
    }
    return HK_OK;
}

static void *hand_main(void *user) {
    hand *const h = user;
    float x[N] = {0};
    hk_role_worker *w = NULL;
    hk_optimizer *opt = NULL;
    hk_elastic *e = NULL;
    h->status = hand_open(h, &w, &opt, &e, x);
    if (h->status == HK_OK)
        h->status = hand_train(h, w, e, x);
    if (h->status == HK_OK)
        h->status = hk_role_worker_leave(w, h->end, e, x, &h->result);
    else if (h->fails_at > 0 && h->status == HK_E_DATA)
        h->status = hk_role_worker_leave(w, HK_END_FAILED, e, x, &h->result);
    if (h->status != HK_OK)
        snprintf(h->text, sizeof h->text, "%s", hk_last_error());
    hk_elastic_destroy(e);
    hk_optimizer_destroy(opt);
    hk_role_worker_close(w);
    return NULL;
}

static int breathe(hand *h) {
    (void)h;
    const struct timespec t = {0, 1000000};
    nanosleep(&t, NULL);
    return 0;
}

static _Atomic int n_differences; // of limits, that were told

static void hear(void *user, hk_log_level level, const char *text) {
    (void)user;
    (void)level;
    if (strstr(text, "worker: the center ends the run at step 300; this "
                     "worker's limit of ") == text &&
        strstr(text, " steps is ignored") != NULL)
        atomic_fetch_add(&n_differences, 1);
}

static void hand_start(hand *h, bed *b, int32_t id) {
    *h = (hand){.b = b,
                .id = id,
                .rate = 0.25,
                .period = 5,
                .pause = h->pause != NULL ? h->pause : breathe,
                .user = h->user,
                .limits = h->limits,
                .max_steps = h->max_steps,
                .fails_at = h->fails_at};
    hk_context_options o;
    hk_context_options_init(&o, sizeof o);
    o.log = hear;
    assert_ok(hk_context_create(&o, &h->ctx));
    assert_int_equal(pthread_create(&h->thread, NULL, hand_main, h), 0);
}

static void hand_join(hand *h) {
    pthread_join(h->thread, NULL);
    if (h->status != HK_OK)
        fail_msg("worker %d: %s: %s", h->id, hk_status_string(h->status),
                 h->text);
    hk_context_destroy(h->ctx);
}

// An evaluator on a thread.
typedef struct judge {
    bed *b;
    pthread_t thread;
    hk_status status;
    hk_role_result result;
    _Atomic int calls, finals;
    _Atomic bool hold; // judgements take until it is cleared
    int64_t final_step;
    float final_value;
    double metric; // what it reports; NaN: the step
    const char *directory;
    char path[256];
} judge;

static hk_status judge_one(void *user, const hk_evaluation *what,
                           hk_measure *out, size_t capacity, size_t *n) {
    judge *const j = user;
    assert_true(capacity >= 1);
    atomic_fetch_add(&j->calls, 1);
    while (atomic_load(&j->hold))
        breathe(NULL);
    if (what->is_final) {
        atomic_fetch_add(&j->finals, 1);
        j->final_step = what->global_step;
        if (what->values != NULL)
            j->final_value = what->values[0];
        if (what->path != NULL)
            snprintf(j->path, sizeof j->path, "%s", what->path);
    }
    snprintf(out[0].name, sizeof out[0].name, "reached");
    out[0].value = (double)what->global_step;
    *n = 1;
    return HK_OK;
}

static void *judge_main(void *user) {
    judge *const j = user;
    const char *const address = j->b->address;
    hk_connect_options co;
    hk_role_evaluator_options o;
    hk_connect_options_init(&co, sizeof co);
    co.context = j->b->ctx;
    hk_role_evaluator_options_init(&o, sizeof o);
    o.connect = &co;
    o.directory = j->directory;
    if (j->directory == NULL) {
        co.addresses = &address;
        co.n_addresses = 1;
        o.layout = j->b->layout;
    }
    o.evaluate = judge_one;
    o.user = j;
    o.throttle_ms = 20;
    o.poll_ms = 20;
    o.lost_ms = 20000;
    j->status = hk_role_evaluator_run(&o, &j->result);
    return NULL;
}

static void judge_start(judge *j, bed *b, const char *directory) {
    *j = (judge){.b = b, .directory = directory};
    assert_int_equal(pthread_create(&j->thread, NULL, judge_main, j), 0);
}

// ---- how a run ends --------------------------------------------------------

static void run_to_the_end(bed *b, bool with_judge, hk_run_end expected,
                           hand *h, judge *j) {
    bed_start(b);
    for (int32_t i = 0; i < WORKERS; i++)
        hand_start(&h[i], b, i);
    if (with_judge)
        judge_start(j, b, NULL);
    hk_role_result r;
    assert_ok(hk_role_center_wait(b->center, 60000, &r));
    for (int32_t i = 0; i < WORKERS; i++)
        hand_join(&h[i]);
    if (with_judge)
        pthread_join(j->thread, NULL);
    if (r.end != expected)
        fail_msg("ended by %s: %s", hk_run_end_name(r.end), r.reason);
    int64_t steps = 0;
    for (int32_t i = 0; i < WORKERS; i++)
        steps += h[i].steps;
    assert_int_equal(r.global_step, steps); // none lost, none twice
}

static void test_ends_by_steps(void **state) {
    (void)state;
    bed b;
    hand h[WORKERS] = {0};
    judge j;
    bed_init(&b);
    b.limits.steps = 300;
    run_to_the_end(&b, true, HK_END_STEPS, h, &j);
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(h[i].end, HK_END_STEPS);
    assert_ok(j.status);
    assert_int_equal(j.finals, 1);
    assert_int_equal(j.result.end, HK_END_STEPS);
    // The final state is the one after the last worker has left.
    hk_server_info info;
    assert_ok(hk_center_server_get_info(about(b.center).server, &info));
    assert_int_equal(j.final_step, info.center.global_step);
    char path[128];
    snprintf(path, sizeof path, "%s/run.done", folder);
    uint8_t *text;
    size_t size;
    assert_ok(hki_file_read_all(path, 4096, &text, &size));
    assert_non_null(strstr((char *)text, "\"end\": \"steps\""));
    hki_free(text);
    assert_ok(hki_file_remove(path));
    bed_deinit(&b);
}

// In front of the library's: somebody sets the calendar while the run runs.
static _Atomic int64_t calendar_jump;

int clock_gettime(clockid_t id, struct timespec *t) {
    const int result = (int)syscall(SYS_clock_gettime, id, t);
    if (result == 0 && id == CLOCK_REALTIME)
        t->tv_sec += atomic_load(&calendar_jump);
    return result;
}

// After a while: the center has looked at the time before.
static int set_calendar(hand *h) {
    static _Atomic int64_t since;
    const int64_t now = hki_now_ns();
    if (atomic_load(&h->steps) == 1)
        atomic_store(&since, now);
    if (now - atomic_load(&since) > 250000000)
        atomic_store(&calendar_jump, *(const int64_t *)h->user);
    return breathe(h);
}

// Time is what passes, whatever the calendar says.
static void test_ends_by_time(void **state) {
    (void)state;
    static const int64_t jumps[] = {3600, -3600};
    for (size_t i = 0; i < HKI_COUNT(jumps); i++) {
        bed b;
        hand h[WORKERS] = {{.pause = set_calendar, .user = &jumps[i]}};
        bed_init(&b);
        b.limits.seconds = 0.6;
        run_to_the_end(&b, false, HK_END_TIME, h, NULL);
        assert_null(strstr(h[0].result.reason, "36")); // seconds
        atomic_store(&calendar_jump, 0);
        bed_deinit(&b);
    }
}

static void test_ends_by_metric(void **state) {
    (void)state;
    bed b;
    hand h[WORKERS] = {0};
    judge j;
    bed_init(&b);
    b.limits.metric = "reached";
    b.limits.target = 200;
    run_to_the_end(&b, true, HK_END_METRIC, h, &j);
    assert_true(j.final_step >= 200);
    assert_int_equal(j.finals, 1);
    bed_deinit(&b);
}

// Every worker has its own data, one much less than the others.
static void test_ends_by_data(void **state) {
    (void)state;
    bed b;
    hand h[WORKERS] = {0};
    bed_init(&b);
    for (int i = 0; i < WORKERS; i++)
        h[i].max_steps = 20 + 60 * i;
    run_to_the_end(&b, false, HK_END_EPOCHS, h, NULL);
    for (int i = 0; i < WORKERS; i++) {
        assert_int_equal(h[i].steps, 20 + 60 * i);
        assert_int_equal(h[i].end, HK_END_EPOCHS);
    }
    bed_deinit(&b);
}

// The center knows no limits; the first worker that has some tells them.
static void test_limits_of_a_worker(void **state) {
    (void)state;
    bed b;
    hand h[WORKERS] = {0};
    hk_run_limits l;
    bed_init(&b);
    hk_run_limits_init(&l, sizeof l);
    l.steps = 150;
    h[1].limits = &l;
    run_to_the_end(&b, false, HK_END_STEPS, h, NULL);
    bed_deinit(&b);
}

// It knows some: those hold, and a worker that has others says so, once.
static void test_limits_of_the_center(void **state) {
    (void)state;
    static const int64_t others[] = {30, 5000};
    for (size_t i = 0; i < HKI_COUNT(others); i++) {
        bed b;
        hand h[WORKERS] = {0};
        hk_run_limits l;
        bed_init(&b);
        b.limits.steps = 300;
        hk_run_limits_init(&l, sizeof l);
        l.steps = others[i];
        h[1].limits = &l;
        atomic_store(&n_differences, 0);
        run_to_the_end(&b, false, HK_END_STEPS, h, NULL);
        assert_in_range(h[0].steps + h[1].steps + h[2].steps, 300, 1000);
        assert_int_equal(atomic_load(&n_differences), 1);
        bed_deinit(&b);
    }
}

// What a center that nobody comes back to says; NULL: all is well.
static void check_failed(bed *b, const char *first, const char *second) {
    hk_role_result r;
    char path[128];
    const hk_status s = hk_role_center_wait(b->center, 30000, &r);
    snprintf(path, sizeof path, "%s/run.done", folder);
    assert_int_equal(hki_path_exists(path), first == NULL);
    if (first == NULL) {
        assert_ok(s);
        assert_ok(hki_file_remove(path));
        return;
    }
    assert_status(s, HK_E_STATE);
    assert_int_equal(r.end, HK_END_FAILED);
    assert_non_null(strstr(hk_last_error(), first));
    if (second != NULL)
        assert_non_null(strstr(hk_last_error(), second));
    else
        assert_null(strstr(hk_last_error(), "worker 1"));
}

// A worker that fails is not through its data: the center waits for one in its
// place. Nobody comes: the run has failed, and it says whose fault that is.
static void test_failed_workers(void **state) {
    (void)state;
    static const char one[] = "worker 0: row 7 of worker 0's?data is bad";
    static const char two[] = "worker 1: row 7 of worker 1's?data is bad";
    for (int i = 0; i < 3; i++) {
        bed b;
        hand h[2] = {{.fails_at = 20},
                     {.fails_at = i == 0 ? 30 : 0, .max_steps = 40}};
        bed_init(&b);
        b.linger_ms = i < 2 ? 300 : 20000;
        bed_start(&b);
        for (int32_t k = 0; k < 2; k++)
            hand_start(&h[k], &b, k);
        for (int32_t k = 0; k < 2; k++)
            hand_join(&h[k]);
        if (i == 2) { // another one in its place
            h[0] = (hand){.max_steps = 20};
            hand_start(&h[0], &b, 0);
            hand_join(&h[0]);
        }
        check_failed(&b, i < 2 ? one : NULL, i == 0 ? two : NULL);
        bed_deinit(&b);
    }
}

// A center that is started again after its last worker has failed: it waits for
// another one, too, and ends as if nothing had happened to it.
static void test_failed_before_a_restart(void **state) {
    (void)state;
    for (int comes = 0; comes < 2; comes++) {
        bed b;
        hand h = {.fails_at = 20};
        bed_init(&b);
        bed_start(&b);
        hand_start(&h, &b, 0);
        hand_join(&h);
        if (comes) { // and leaves, which is no failure
            h = (hand){0};
            hand_start(&h, &b, 0);
            while (h.steps < 10)
                breathe(&h);
            hk_request_stop(h.ctx, 15);
            hand_join(&h);
        }
        hk_role_center_stop(b.center);
        b.linger_ms = 300;
        bed_start(&b);
        check_failed(&b, comes ? NULL : "worker 0: row 7 of worker 0's", NULL);
        bed_deinit(&b);
    }
}

static void test_nobody_comes(void **state) {
    (void)state;
    bed b;
    hk_role_center *c;
    hk_role_result r;
    bed_init(&b);
    const char *const address = b.address;
    hk_center_server_options so;
    hk_role_center_options o;
    hk_center_server_options_init(&so, sizeof so);
    so.addresses = &address;
    so.n_addresses = 1;
    hk_role_center_options_init(&o, sizeof o);
    o.server = &so;
    o.start_ms = 150;
    assert_ok(hk_role_center_start(&o, &c));
    assert_status(hk_role_center_wait(c, 20000, &r), HK_E_TIMEOUT);
    assert_non_null(strstr(hk_last_error(), "no worker joined within"));
    hk_role_center_stop(c);
    bed_deinit(&b);
}

static void test_everybody_leaves(void **state) {
    (void)state;
    bed b;
    hand h = {0};
    hk_role_result r;
    bed_init(&b);
    b.linger_ms = 200;
    bed_start(&b);
    hand_start(&h, &b, 0);
    while (h.steps < 20)
        breathe(&h);
    hk_request_stop(h.ctx, 15);
    hand_join(&h);
    assert_int_equal(h.end, HK_END_STOPPED);
    assert_ok(hk_role_center_wait(b.center, 20000, &r));
    assert_int_equal(r.end, HK_END_LEFT);
    assert_int_equal(r.global_step, h.steps);
    bed_deinit(&b);
}

// ---- a worker's last words -------------------------------------------------

// Stopped between two exchanges: what it has learned is handed in.
static void test_last_difference(void **state) {
    (void)state;
    bed b;
    hk_role_result r;
    float c[N];
    bed_init(&b);
    b.linger_ms = 100;
    bed_start(&b);
    static hand h;
    h = (hand){.b = &b, .id = 0, .rate = 0.5, .period = 1000, .pause = breathe};
    assert_ok(hk_context_create(NULL, &h.ctx));
    assert_int_equal(pthread_create(&h.thread, NULL, hand_main, &h), 0);
    while (h.steps < 10)
        breathe(&h);
    hk_request_stop(h.ctx, 15);
    hand_join(&h);
    assert_ok(hk_role_center_wait(b.center, 20000, &r));
    hk_role_center_stop(b.center); // then a look into the file
    b.center = NULL;
    const char *const address = b.address;
    hk_center_server_options so;
    hk_center_server *server;
    hk_connect_options co;
    hk_center *center;
    hk_center_server_options_init(&so, sizeof so);
    so.addresses = &address;
    so.n_addresses = 1;
    so.path = b.file;
    assert_ok(hk_center_server_start(&so, &server));
    hk_connect_options_init(&co, sizeof co);
    co.addresses = &address;
    co.n_addresses = 1;
    assert_ok(hk_center_connect(&co, b.layout, &center));
    assert_ok(
        hk_center_snapshot(center, HK_CENTER_VALUES, 10000, c, NULL, NULL));
    for (size_t i = 0; i < N; i++) // half of the way from 0 to its steps
        assert_true(c[i] == 0.5f * (float)h.steps);
    hk_center_destroy(center);
    hk_center_server_stop(server);
    bed_deinit(&b);
}

// A stranger that only holds a connection open keeps no center from ending: an
// evaluator has to say who it is.
static void test_stranger_at_the_end(void **state) {
    (void)state;
    bed b;
    bed_init(&b);
    const char *const address = b.address;
    hk_center_server_options so;
    hk_role_center_options o;
    hk_center_server_options_init(&so, sizeof so);
    so.context = b.ctx;
    so.addresses = &address;
    so.n_addresses = 1;
    so.shard = 1;
    so.n_shards = 2;
    so.hello_ms = 60000;
    hk_role_center_options_init(&o, sizeof o);
    o.server = &so;
    assert_ok(hk_role_center_start(&o, &b.center));
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%.90s", b.address + 5);
    const int stranger = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(stranger, (struct sockaddr *)&at, sizeof at), 0);
    hk_center_server *const server = about(b.center).server;
    const int64_t deadline = hki_deadline(20000);
    hk_server_info info = {0};
    while (info.connections == 0 && hki_now_ns() < deadline) {
        breathe(NULL);
        assert_ok(hk_center_server_get_info(server, &info));
    }
    assert_int_equal(info.connections, 1);
    hki_server_finish(server, "asked for");
    hk_role_result r;
    assert_ok(hk_role_center_wait(b.center, 20000, &r));
    close(stranger);
    bed_deinit(&b);
}

// ---- ranges of data --------------------------------------------------------

enum { EXAMPLES = 100, EPOCHS = 2 };

typedef struct reader {
    hand h;
    _Atomic int (*used)[EXAMPLES]; // per epoch
    int die_after;                 // ranges; 0: never
} reader;

// Waits for ranges that others may give back.
static hk_status take(hand *h, hk_center *c, uint32_t set, hk_range *r) {
    const int64_t deadline = hki_deadline(30000);
    hk_status s;
    while ((s = hk_center_take_range(c, h->id, set, 30000, r)) ==
               HK_E_UNAVAILABLE &&
           hki_now_ns() < deadline)
        breathe(h);
    return s;
}

static void *reader_main(void *user) {
    reader *const me = user;
    hand *const h = &me->h;
    float x[N] = {0};
    hk_role_worker *w = NULL;
    hk_optimizer *opt = NULL;
    hk_elastic *e = NULL;
    uint32_t set = 0;
    uint64_t seed;
    const hk_lent_set all = {.name = "numbers",
                             .units = EXAMPLES,
                             .epochs = EPOCHS,
                             .workers = WORKERS};
    h->status = hand_open(h, &w, &opt, &e, x);
    hk_center *const c = h->status == HK_OK ? hk_role_worker_center(w) : NULL;
    if (h->status == HK_OK)
        h->status = hk_center_declare_set(c, h->id, &all, 30000, &set, &seed);
    for (int taken = 0; h->status == HK_OK; taken++) {
        hk_range r;
        h->status = take(h, c, set, &r);
        if (h->status != HK_OK)
            break;
        if (me->die_after > 0 && taken == me->die_after) {
            // Gone without a word, with the range in its hands.
            h->end = HK_END_STOPPED;
            break;
        }
        for (int64_t i = r.begin; i < r.end; i++)
            atomic_fetch_add(&me->used[r.epoch][i], 1);
        breathe(h);
        // By turns: with the next exchange, or by itself.
        if (taken % 2 == 0) {
            h->status = hk_center_use_range(c, h->id, r.id);
            if (h->status == HK_OK)
                h->status = hk_elastic_exchange(e, x);
        } else {
            h->status =
                hk_center_return_range(c, h->id, r.id, HK_RANGE_ALL, 30000);
        }
    }
    if (h->status == HK_E_END) {
        h->status = HK_OK;
        h->end = HK_END_EPOCHS;
    }
    if (h->status != HK_OK)
        snprintf(h->text, sizeof h->text, "%s", hk_last_error());
    if (h->status == HK_OK && h->end == HK_END_EPOCHS)
        h->status = hk_role_worker_leave(w, h->end, e, x, &h->result);
    hk_elastic_destroy(e);
    hk_optimizer_destroy(opt);
    hk_role_worker_close(w);
    return NULL;
}

static void test_ranges(void **state) {
    (void)state;
    static _Atomic int used[EPOCHS][EXAMPLES];
    bed b;
    reader readers[WORKERS];
    hk_role_result r;
    bed_init(&b);
    bed_start(&b);
    for (int i = 0; i < WORKERS; i++) {
        readers[i] = (reader){.used = used, .die_after = i == 1 ? 2 : 0};
        readers[i].h = (hand){.b = &b, .id = i, .rate = 0.25, .period = 1000};
        assert_ok(hk_context_create(NULL, &readers[i].h.ctx));
        assert_int_equal(pthread_create(&readers[i].h.thread, NULL, reader_main,
                                        &readers[i]),
                         0);
    }
    assert_ok(hk_role_center_wait(b.center, 60000, &r));
    for (int i = 0; i < WORKERS; i++)
        hand_join(&readers[i].h);
    assert_int_equal(r.end, HK_END_EPOCHS);
    for (int e = 0; e < EPOCHS; e++)
        for (int i = 0; i < EXAMPLES; i++)
            if (used[e][i] != 1)
                fail_msg("example %d of epoch %d was used %d times", i, e,
                         (int)used[e][i]);
    bed_deinit(&b);
}

// ---- a center that comes back ----------------------------------------------

// When the log of a center says that the run had ended, tries to connect to it.
typedef struct early_worker {
    const char *address;
    hk_layout *layout;
    int tries, connected;
} early_worker;

static void connect_early(void *user, hk_log_level level, const char *text) {
    (void)level;
    early_worker *const e = user;
    hk_connect_options o;
    hk_center *c;
    if (strstr(text, "the run ended before this start") == NULL)
        return;
    hk_connect_options_init(&o, sizeof o);
    o.addresses = &e->address;
    o.n_addresses = 1;
    o.connect_ms = 200;
    e->tries++;
    if (hk_center_connect(&o, e->layout, &c) != HK_OK)
        return;
    e->connected++;
    hk_center_destroy(c);
}

// A center accepts no connection before it has found out that its run has
// ended.
static void test_start_after_the_end(void **state) {
    (void)state;
    bed b;
    hand h[WORKERS] = {0};
    hk_role_result r;
    bed_init(&b);
    b.limits.steps = 300;
    run_to_the_end(&b, false, HK_END_STEPS, h, NULL);
    hk_role_center_stop(b.center);
    early_worker e = {.address = b.address, .layout = b.layout};
    hk_context *const first = b.ctx;
    hk_context_options o;
    hk_context_options_init(&o, sizeof o);
    o.log = connect_early;
    o.log_user = &e;
    assert_ok(hk_context_create(&o, &b.ctx));
    bed_start(&b);
    assert_ok(hk_role_center_wait(b.center, 60000, &r));
    assert_int_equal(r.end, HK_END_STEPS);
    assert_int_equal(e.tries, 1);
    assert_int_equal(e.connected, 0);
    hk_context_destroy(first);
    bed_deinit(&b);
    char path[128];
    snprintf(path, sizeof path, "%s/run.done", folder);
    assert_ok(hki_file_remove(path));
}

static void test_center_comes_back(void **state) {
    (void)state;
    bed b;
    hand h[WORKERS] = {0};
    hk_role_result r;
    bed_init(&b);
    b.limits.steps = 900;
    b.lease_ms = 20000; // who is late on a busy machine is not gone
    bed_start(&b);
    for (int32_t i = 0; i < WORKERS; i++)
        hand_start(&h[i], &b, i);
    for (int round = 0; round < 3; round++) {
        const int64_t before = h[0].steps;
        while (h[0].steps < before + 40)
            breathe(&h[0]);
        hk_role_center_stop(b.center);
        bed_start(&b);
    }
    assert_ok(hk_role_center_wait(b.center, 60000, &r));
    for (int32_t i = 0; i < WORKERS; i++)
        hand_join(&h[i]);
    assert_int_equal(r.end, HK_END_STEPS);
    int64_t steps = 0;
    for (int32_t i = 0; i < WORKERS; i++)
        steps += h[i].steps;
    assert_int_equal(r.global_step, steps);
    bed_deinit(&b);
}

#define PATIENCE_MS 60000 // for what comes soon, on a machine that is busy

static _Atomic bool enough;

static int until_enough(hand *h) {
    return breathe(h) != 0 || atomic_load(&enough);
}

// Waits until the run's memory (src/cluster/center/run_memory.h) knows of the
// evaluator.
static void wait_noted(const bed *b) {
    char path[128];
    const int64_t deadline = hki_deadline(PATIENCE_MS);
    snprintf(path, sizeof path, "%s.run", b->file);
    for (unsigned flags = 0; (flags & 2) == 0; breathe(NULL)) {
        uint8_t *bytes;
        size_t size;
        if (hki_file_read_all(path, 1 << 20, &bytes, &size) == HK_OK) {
            const uint8_t *const newest =
                hki_run_file_newest(bytes, size, &size);
            flags = newest != NULL ? newest[32] : 0;
            hki_free(bytes);
        }
        if (hki_now_ns() > deadline)
            fail_msg("the center does not note that there is an evaluator");
    }
}

// The run is over at once when the center comes back, while its evaluator is
// in the middle of a judgement and has not noticed anything.
static void test_restart_keeps_evaluator(void **state) {
    (void)state;
    bed b;
    hand h = {.pause = until_enough};
    judge j;
    hk_role_result r;
    bed_init(&b);
    b.limits.steps = 1000000;
    bed_start(&b);
    atomic_store(&enough, false);
    hand_start(&h, &b, 0);
    judge_start(&j, &b, NULL);
    wait_noted(&b);
    atomic_store(&j.hold, true);
    for (const int before = j.calls; j.calls == before;)
        breathe(NULL);
    atomic_store(&enough, true);
    hand_join(&h);
    hk_role_center_stop(b.center);
    b.limits.steps = 1;
    bed_start(&b);
    assert_status(hk_role_center_wait(b.center, 1500, &r), HK_E_TIMEOUT);
    atomic_store(&j.hold, false);
    pthread_join(j.thread, NULL);
    assert_ok(j.status);
    assert_int_equal(j.finals, 1);
    assert_int_equal(j.final_step, h.steps);
    assert_ok(hk_role_center_wait(b.center, PATIENCE_MS, &r));
    assert_int_equal(r.end, HK_END_STEPS);
    // Once more: nobody is left to wait for.
    hk_role_center_stop(b.center);
    bed_start(&b);
    assert_ok(hk_role_center_wait(b.center, HKI_EVALUATOR_FRESH_MS / 2, &r));
    bed_deinit(&b);
}

// The run is over and a worker is still awaited; an evaluator that comes now
// sees the end, however soon the worker has come and gone.
static void test_evaluator_comes_late(void **state) {
    (void)state;
    bed b;
    hand first = {0}, late = {0};
    judge j;
    hk_role_result r;
    bed_init(&b);
    b.limits.steps = 20;
    b.expected = 2;
    bed_start(&b);
    hand_start(&first, &b, 0);
    hand_join(&first);
    assert_status(hk_role_center_wait(b.center, 1000, &r), HK_E_TIMEOUT);
    j = (judge){.b = &b, .hold = true};
    assert_int_equal(pthread_create(&j.thread, NULL, judge_main, &j), 0);
    while (j.calls == 0)
        breathe(NULL);
    hand_start(&late, &b, 1);
    hand_join(&late);
    assert_status(hk_role_center_wait(b.center, 1000, &r), HK_E_TIMEOUT);
    atomic_store(&j.hold, false);
    pthread_join(j.thread, NULL);
    assert_ok(j.status);
    assert_int_equal(j.finals, 1);
    assert_ok(hk_role_center_wait(b.center, PATIENCE_MS, &r));
    assert_int_equal(r.end, HK_END_STEPS);
    bed_deinit(&b);
}

// ---- the evaluator of files ------------------------------------------------

static void test_files(void **state) {
    (void)state;
    char dir[96], path[128];
    float values[N] = {1};
    bed b;
    judge j;
    bed_init(&b);
    snprintf(dir, sizeof dir, "%s/model", folder);
    hk_saver_options so;
    hk_saver *saver;
    hk_saver_options_init(&so, sizeof so);
    so.model_dir = dir;
    so.no_fsync = 1;
    assert_ok(hk_saver_create(&so, &saver));
    hk_name_map *map;
    assert_ok(hk_name_map_create(&map));
    assert_ok(hk_name_map_add_layout(map, b.layout, values, NULL));
    judge_start(&j, &b, dir);
    assert_ok(hk_saver_save(saver, map, 10, NULL, 0));
    assert_ok(hk_saver_wait(saver));
    while (j.calls == 0)
        breathe(NULL);
    assert_ok(hk_saver_save(saver, map, 20, NULL, 0));
    assert_ok(hk_saver_wait(saver));
    snprintf(path, sizeof path, "%s/run.done", dir);
    assert_ok(hki_file_replace(path, "{}\n", 3, false));
    pthread_join(j.thread, NULL);
    assert_ok(j.status);
    assert_int_equal(j.finals, 1);
    assert_int_equal(j.final_step, 20);
    assert_non_null(strstr(j.path, "20"));
    hk_name_map_destroy(map);
    hk_saver_destroy(saver);
    bed_deinit(&b);
}

// ---- options that do not fit -----------------------------------------------

static const char *no_ps(void *user, const char *name) {
    (void)user;
    return strcmp(name, "TF_CONFIG") == 0
               ? "{\"cluster\": {\"chief\": [\"a:1\"], \"worker\": [\"b:1\"]}, "
                 "\"task\": {\"type\": \"worker\", \"index\": 0}}"
               : NULL;
}

static const char *second_evaluator(void *user, const char *name) {
    (void)user;
    return strcmp(name, "TF_CONFIG") == 0
               ? "{\"cluster\": {\"chief\": [\"a:1\"], \"ps\": [\"b:1\"]}, "
                 "\"task\": {\"type\": \"evaluator\", \"index\": 1}}"
               : NULL;
}

static void test_misfits(void **state) {
    (void)state;
    bed b;
    bed_init(&b);
    hk_cluster_options o;
    hk_cluster_config *c;
    hk_cluster_options_init(&o, sizeof o);
    o.getenv = no_ps;
    assert_ok(hk_cluster_config_create(&o, &c));
    hk_role_worker_options wo;
    hk_role_worker *w = NULL;
    hk_role_worker_options_init(&wo, sizeof wo);
    wo.config = c;
    assert_status(hk_role_worker_open(&wo, b.layout, &w), HK_E_INVALID_ARG);
    assert_non_null(strstr(hk_last_error(), "no center"));
    hk_role_center_options co;
    hk_role_center *rc = NULL;
    hk_role_center_options_init(&co, sizeof co);
    co.config = c;
    assert_status(hk_role_center_start(&co, &rc), HK_E_INVALID_ARG);
    assert_non_null(strstr(hk_last_error(), "not a center"));
    hk_cluster_config_destroy(c);
    o.getenv = second_evaluator;
    assert_ok(hk_cluster_config_create(&o, &c));
    hk_role_evaluator_options vo;
    hk_role_result r;
    hk_role_evaluator_options_init(&vo, sizeof vo);
    assert_status(hk_role_evaluator_run(&vo, &r), HK_E_INVALID_ARG);
    vo.evaluate = judge_one;
    assert_status(hk_role_evaluator_run(&vo, &r), HK_E_INVALID_ARG);
    vo.layout = b.layout;
    assert_status(hk_role_evaluator_run(&vo, &r), HK_E_INVALID_ARG);
    vo.config = c;
    assert_status(hk_role_evaluator_run(&vo, &r), HK_E_INVALID_ARG);
    assert_non_null(strstr(hk_last_error(), "one evaluator"));
    hk_cluster_config_destroy(c);
    hk_role_worker_close(NULL);
    hk_role_center_stop(NULL);
    bed_deinit(&b);
}

// ---- the endpoint ----------------------------------------------------------

#if defined(HKI_HAVE_METRICS)
static void ask(const char *address, const char *path, char *answer,
                size_t capacity) {
    char request[128];
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)strtoul(
                                strrchr(address, ':') + 1, NULL, 10)),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    const int n =
        snprintf(request, sizeof request, "GET %s HTTP/1.0\r\n\r\n", path);
    assert_int_equal(send(fd, request, (size_t)n, MSG_NOSIGNAL), n);
    size_t have = 0;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, 20000), 1);
        const ssize_t got = recv(fd, answer + have, capacity - 1 - have, 0);
        assert_true(got >= 0);
        if (got == 0)
            break;
        have += (size_t)got;
    }
    answer[have] = '\0';
    close(fd);
}

static void test_metrics(void **state) {
    (void)state;
    static char answer[65536];
    bed b;
    hand h[2] = {0};
    hk_role_result r;
    bed_init(&b);
    b.metrics = "127.0.0.1:0";
    bed_start(&b);
    hand_start(&h[0], &b, 0);
    hand_start(&h[1], &b, 1);
    while (h[0].steps < 100 || h[1].steps < 100)
        breathe(NULL);
    static const char *const names[] = {
        "hooke_workers 2\n",
        "hooke_worker_live{worker=\"1\"} 1\n",
        "hooke_worker_steps_total{worker=\"0\"}",
        "hooke_worker_distance{worker=\"0\"}",
        "hooke_worker_examples_per_second{worker=\"1\"}",
        "hooke_worker_exchange_seconds_total{worker=\"0\"}",
        "hooke_worker_last_seen_seconds{worker=\"0\"}",
        "hooke_worker_loss{worker=\"1\"} 1.5\n",
        "hooke_refused_total{why=\"key\"} 0\n",
    };
    // Reports travel with heartbeats.
    const int64_t deadline = hki_now_ns() + INT64_C(20000000000);
    do {
        breathe(NULL);
        ask(about(b.center).metrics, "/metrics", answer, sizeof answer);
    } while (strstr(answer, "loss{worker=\"1\"} 1.5\n") == NULL &&
             hki_now_ns() < deadline);
    for (size_t i = 0; i < HKI_COUNT(names); i++)
        if (strstr(answer, names[i]) == NULL)
            fail_msg("no %s in %s", names[i], answer);
    ask(about(b.center).metrics, "/status", answer, sizeof answer);
    assert_non_null(strstr(answer, "\"role\": \"center\""));
    assert_non_null(strstr(answer, "\"state\": \"running\""));
    assert_non_null(strstr(answer, "\"workers\": [{\"worker\": \"0\""));
    hki_server_finish(about(b.center).server, "enough of it");
    for (int i = 0; i < 2; i++)
        hand_join(&h[i]);
    assert_ok(hk_role_center_wait(b.center, 20000, &r));
    assert_int_equal(r.end, HK_END_ASKED);
    assert_string_equal(r.reason, "enough of it");
    bed_deinit(&b);
}
#else
static void test_metrics(void **state) {
    (void)state;
}
#endif

// ---- memory ----------------------------------------------------------------

static hk_status notes(void *user) {
    (void)user;
    hki_limits l = {.steps = 5, .has_metric = true, .metric = "m"};
    hki_evaluated e = {.n = 1, .measure[0] = {"loss", 1}};
    hki_buf b = {0};
    hk_status s = hki_limits_print(&b, &l);
    if (s == HK_OK)
        s = hki_limits_parse(b.data, b.size, &l);
    b.size = 0;
    if (s == HK_OK)
        s = hki_evaluated_print(&b, &e);
    if (s == HK_OK)
        s = hki_evaluated_parse(b.data, b.size, &e);
    hki_buf_deinit(&b);
    return s;
}

// A center that starts and stops. A fault may hit one of its threads, which
// do without.
static hk_status center_alone(void *user) {
    const char *const address = user;
    hk_center_server_options so;
    hk_role_center_options o;
    hk_role_center *c;
    hk_center_server_options_init(&so, sizeof so);
    so.addresses = &address;
    so.n_addresses = 1;
    hk_role_center_options_init(&o, sizeof o);
    o.server = &so;
    o.directory = folder;
    HKI_TRY(hk_role_center_start(&o, &c));
    hk_role_center_stop(c);
    return HK_OK;
}

static void test_memory(void **state) {
    (void)state;
    char address[96];
    snprintf(address, sizeof address, "unix:%s/memory", folder);
    hk_test_alloc_failures("notes", notes, NULL);
    hk_test_alloc_failures("center", center_alone, address);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stranger_at_the_end),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_evaluated),
        cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_ends_by_steps),
        cmocka_unit_test(test_ends_by_time),
        cmocka_unit_test(test_ends_by_metric),
        cmocka_unit_test(test_ends_by_data),
        cmocka_unit_test(test_limits_of_a_worker),
        cmocka_unit_test(test_limits_of_the_center),
        cmocka_unit_test(test_failed_workers),
        cmocka_unit_test(test_failed_before_a_restart),
        cmocka_unit_test(test_nobody_comes),
        cmocka_unit_test(test_everybody_leaves),
        cmocka_unit_test(test_last_difference),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_start_after_the_end),
        cmocka_unit_test(test_center_comes_back),
        cmocka_unit_test(test_restart_keeps_evaluator),
        cmocka_unit_test(test_evaluator_comes_late),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_misfits),
        cmocka_unit_test(test_metrics),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
