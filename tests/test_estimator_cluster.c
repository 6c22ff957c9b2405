// test_estimator_cluster.c - an estimator that connects to a center by itself
// (hk_run_config.center_addresses): limits, the end of the run, key and
// options of the connection.
#include "estimator_bed.h"
#include <pthread.h>
#include "hooke/roles.h"

enum { PERIOD = 5, WORKERS = 2 };

static hk_context *context(void) {
    hk_context *ctx;
    hk_context_options o;
    hk_context_options_init(&o, sizeof o);
    o.log_level = HK_LOG_ERROR;
    assert_ok(hk_context_create(&o, &ctx));
    return ctx;
}

// A center that ends the run by itself, as `hooke center` does.
static hk_role_center *start_center(const char *address, const hk_key *key) {
    hk_center_server_options so;
    hk_center_server_options_init(&so, sizeof so);
    so.addresses = &address;
    so.n_addresses = 1;
    so.key = key;
    hk_role_center_options o;
    hk_role_center_options_init(&o, sizeof o);
    o.server = &so;
    hk_role_center *c;
    assert_ok(hk_role_center_start(&o, &c));
    return c;
}

static hk_role_center_info center_info(hk_role_center *c) {
    hk_role_center_info i;
    hk_role_center_get_info(c, &i);
    return i;
}

// Waits for the end of the run, and stops the center.
static hk_role_result end_of(hk_role_center *c) {
    hk_role_result r;
    assert_ok(hk_role_center_wait(c, 20000, &r));
    hk_role_center_stop(c);
    return r;
}

static void open_worker(bed *b, hk_context *ctx, const char *address,
                        uint32_t index) {
    bed_init(b, ctx);
    b->config.center_addresses = address;
    b->config.first_worker = index;
    b->config.all_workers = WORKERS;
    bed_open(b);
}

// ---- limits -----------------------------------------------------------------

typedef struct job {
    hk_context *ctx;
    const char *address;
    uint32_t index;
    hk_train_options o;
    hk_train_result r;
} job;

static void *work(void *user) {
    job *const j = user;
    bed b;
    open_worker(&b, j->ctx, j->address, j->index);
    hk_dataset *d = bed_training(j->index);
    const hk_source in = hk_source_dataset(d);
    assert_ok(hk_estimator_train(b.e, &in, &j->o, &j->r));
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    return NULL;
}

// Every worker makes its estimator and trains; nobody else tells them or the
// center when the run is over.
static void test_max_steps(void **state) {
    (void)state;
    hk_context *ctx = context();
    const char *const address = "inproc:max-steps";
    hk_role_center *c = start_center(address, NULL);
    job jobs[WORKERS];
    pthread_t threads[WORKERS];
    for (uint32_t i = 0; i < WORKERS; i++) {
        jobs[i] = (job){.ctx = ctx, .address = address, .index = i};
        hk_train_options_init(&jobs[i].o, sizeof jobs[i].o);
        jobs[i].o.max_steps = 400;
        assert_int_equal(pthread_create(&threads[i], NULL, work, &jobs[i]), 0);
    }
    int64_t steps = 0;
    for (uint32_t i = 0; i < WORKERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(jobs[i].r.reason, HK_STOP_STEPS);
        assert_true(jobs[i].r.exchanges > 0);
        steps += jobs[i].r.steps;
    }
    const hk_role_result r = end_of(c);
    assert_int_equal(r.end, HK_END_STEPS);
    assert_int_equal(r.global_step, steps);
    assert_true(steps >= 400);
    hk_context_destroy(ctx);
}

// The center's own limit comes first, and a worker that would go on for longer
// stops with the run.
static void test_center_limit(void **state) {
    (void)state;
    hk_context *ctx = context();
    const char *const address = "inproc:center-limit";
    hk_center_server_options so;
    hk_center_server_options_init(&so, sizeof so);
    so.addresses = &address;
    so.n_addresses = 1;
    hk_run_limits limits;
    hk_run_limits_init(&limits, sizeof limits);
    limits.steps = 60;
    hk_role_center_options o;
    hk_role_center_options_init(&o, sizeof o);
    o.server = &so;
    o.limits = &limits;
    hk_role_center *c;
    assert_ok(hk_role_center_start(&o, &c));
    job j = {.ctx = ctx, .address = address};
    hk_train_options_init(&j.o, sizeof j.o);
    j.o.max_steps = 1000000;
    (void)work(&j);
    assert_int_equal(j.r.reason, HK_STOP_STEPS);
    assert_true(j.r.steps >= 60 && j.r.steps < 1000);
    assert_int_equal(end_of(c).end, HK_END_STEPS);
    hk_context_destroy(ctx);
}

// A call by steps leaves the run open; the next call's limit of time ends it
// for everybody.
static void test_calls(void **state) {
    (void)state;
    hk_context *ctx = context();
    const char *const address = "inproc:calls";
    hk_role_center *c = start_center(address, NULL);
    bed b;
    open_worker(&b, ctx, address, 0);
    hk_dataset *d = bed_training(1);
    const hk_source in = hk_source_dataset(d);
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    hk_train_result r;
    o.steps = 4 * PERIOD;
    for (int i = 1; i <= 2; i++) {
        assert_ok(hk_estimator_train(b.e, &in, &o, &r));
        assert_int_equal(r.reason, HK_STOP_STEPS);
        assert_int_equal(r.steps, 4 * PERIOD);
        assert_int_equal(r.global_step, i * 4 * PERIOD);
    }
    hk_role_result end;
    assert_int_equal(hk_role_center_wait(c, 0, &end), HK_E_TIMEOUT);
    o.steps = 0;
    o.max_seconds = 0.3;
    assert_ok(hk_estimator_train(b.e, &in, &o, &r));
    assert_int_equal(r.reason, HK_STOP_TIME);
    hk_estimator_destroy(b.e);
    assert_int_equal(end_of(c).end, HK_END_TIME);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// ---- other ends -------------------------------------------------------------

// The worker whose data is used up tells the center so.
static void test_data_end(void **state) {
    (void)state;
    hk_context *ctx = context();
    const char *const address = "inproc:data-end";
    hk_role_center *c = start_center(address, NULL);
    bed b;
    bed_init(&b, ctx);
    b.config.center_addresses = address;
    bed_open(&b);
    hk_dataset *d = bed_pass(1, 120, 10);
    const hk_source in = hk_source_dataset(d);
    hk_train_result r;
    assert_ok(hk_estimator_train(b.e, &in, NULL, &r));
    assert_int_equal(r.reason, HK_STOP_DATA);
    assert_int_equal(r.steps, 12);
    hk_estimator_destroy(b.e);
    assert_int_equal(end_of(c).end, HK_END_EPOCHS);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

static hk_status finish_run(void *user, hk_run *run) {
    (void)user;
    return run_info(run).local_step == 3
               ? hk_center_finish(
                     estimator_info(run_info(run).estimator).center,
                     "asked: enough", 5000)
               : HK_OK;
}

// What ends the run elsewhere ends training here.
static void test_finished(void **state) {
    (void)state;
    hk_context *ctx = context();
    const char *const address = "inproc:finished";
    hk_role_center *c = start_center(address, NULL);
    bed b;
    open_worker(&b, ctx, address, 0);
    hk_dataset *d = bed_training(1);
    const hk_source in = hk_source_dataset(d);
    hk_hook *h;
    assert_ok(
        hk_hook_create(&(hk_hook_calls){.struct_size = sizeof(hk_hook_calls),
                                        .after_run = finish_run},
                       &h));
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    o.hooks = &h;
    o.n_hooks = 1;
    hk_train_result r;
    assert_ok(hk_estimator_train(b.e, &in, &o, &r));
    assert_int_equal(r.reason, HK_STOP_CENTER);
    assert_string_equal(hk_stop_reason_name(r.reason), "center");
    assert_true(r.steps >= 4);
    hk_estimator_destroy(b.e);
    assert_string_equal(end_of(c).reason, "asked: enough");
    hk_hook_release(h);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// Workers of one process share the connection; the one that is left reports
// when the first one is at its end.
static void test_threads(void **state) {
    (void)state;
    hk_context *ctx = context();
    const char *const address = "inproc:threads";
    hk_role_center *c = start_center(address, NULL);
    bed b;
    bed_init(&b, ctx);
    b.config.center_addresses = address;
    b.config.workers = WORKERS;
    bed_open(&b);
    hk_dataset *d = bed_training(1);
    const hk_source in = hk_source_dataset(d);
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    o.max_steps = 200;
    hk_train_result r;
    assert_ok(hk_estimator_train(b.e, &in, &o, &r));
    assert_int_equal(r.reason, HK_STOP_STEPS);
    assert_true(r.steps >= 200);
    hk_estimator_destroy(b.e);
    assert_int_equal(end_of(c).end, HK_END_STEPS);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// ---- the connection ---------------------------------------------------------

static void test_key(void **state) {
    (void)state;
    hk_context *ctx = context();
    char *dir = bed_folder(), path[600], other[600];
    hk_key key, wrong;
    snprintf(path, sizeof path, "%s/key", dir);
    snprintf(other, sizeof other, "%s/other", dir);
    assert_ok(hk_key_generate("a", &key));
    assert_ok(hk_key_generate("a", &wrong));
    assert_ok(hk_key_save(&key, path));
    assert_ok(hk_key_save(&wrong, other));
    hk_role_center *c = start_center("127.0.0.1:0", &key);
    const char *const address =
        hk_center_server_address(center_info(c).server, 0);
    hk_dataset *d = bed_training(1);
    const hk_source in = hk_source_dataset(d);
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    o.max_steps = 50;
    hk_connect_options connect;
    hk_connect_options_init(&connect, sizeof connect);
    connect.connect_ms = 500;
    bed b;
    bed_init(&b, ctx);
    b.config.center_addresses = address;
    b.config.connect = &connect;
    b.config.center_key = other;
    bed_open(&b);
    assert_int_equal(hk_estimator_train(b.e, &in, &o, NULL), HK_E_DENIED);
    hk_estimator_destroy(b.e);
    b.config.center_key = "/nowhere/key";
    bed_open(&b);
    assert_int_not_equal(hk_estimator_train(b.e, &in, &o, NULL), HK_OK);
    assert_non_null(strstr(hk_last_error(), "/nowhere/key"));
    hk_estimator_destroy(b.e);
    b.config.center_key = path;
    bed_open(&b);
    assert_ok(hk_estimator_train(b.e, &in, &o, NULL));
    hk_estimator_destroy(b.e);
    assert_int_equal(end_of(c).end, HK_END_STEPS);
    hk_dataset_release(d);
    bed_remove(dir);
    hk_context_destroy(ctx);
}

// Two shards by one list, and differences in a byte each.
static void test_shards(void **state) {
    (void)state;
    hk_context *ctx = context();
    static const char *const addresses[] = {"inproc:shard-a", "inproc:shard-b"};
    hk_center_server *servers[2];
    for (uint32_t i = 0; i < 2; i++) {
        hk_center_server_options so;
        hk_center_server_options_init(&so, sizeof so);
        so.addresses = &addresses[i];
        so.n_addresses = 1;
        so.shard = i;
        so.n_shards = 2;
        assert_ok(hk_center_server_start(&so, &servers[i]));
    }
    uint64_t bytes[2];
    for (int coded = 0; coded < 2; coded++) {
        hk_connect_options connect;
        hk_connect_options_init(&connect, sizeof connect);
        connect.compression = coded ? HK_COMPRESS_INT8 : HK_COMPRESS_NONE;
        bed b;
        bed_init(&b, ctx);
        b.config.center_addresses = "inproc:shard-a,inproc:shard-b";
        b.config.connect = &connect;
        bed_open(&b);
        hk_dataset *d = bed_training(1);
        bed_train(&b, d, 50 * PERIOD, NULL);
        hk_link_info link;
        assert_ok(hk_center_get_link_info(estimator_info(b.e).center, &link));
        bytes[coded] = link.bytes_out;
        hk_estimator_destroy(b.e);
        hk_dataset_release(d);
    }
    assert_true(bytes[1] < bytes[0]);
    for (uint32_t i = 0; i < 2; i++) {
        hk_server_info info;
        assert_ok(hk_center_server_get_info(servers[i], &info));
        assert_true(info.center.exchanges > 0);
        hk_center_server_stop(servers[i]);
    }
    hk_context_destroy(ctx);
}

// Nobody listens there: the deadline of the connect options holds.
static void test_away(void **state) {
    (void)state;
    hk_context *ctx = context();
    hk_connect_options connect;
    hk_connect_options_init(&connect, sizeof connect);
    connect.connect_ms = 50;
    bed b;
    bed_init(&b, ctx);
    b.config.center_addresses = "inproc:nobody";
    b.config.connect = &connect;
    bed_open(&b);
    hk_dataset *d = bed_training(1);
    const hk_source in = hk_source_dataset(d);
    const int64_t begin = hki_now_ns();
    assert_int_equal(hk_estimator_train(b.e, &in, NULL, NULL),
                     HK_E_UNAVAILABLE);
    assert_true(hki_now_ns() - begin < INT64_C(20000000000));
    assert_non_null(strstr(hk_last_error(), "inproc:nobody"));
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// ---- errors -----------------------------------------------------------------

static void refused(const bed *b, const char *part) {
    hk_estimator *e = NULL;
    assert_int_equal(hk_estimator_create(b->ctx, &b->o, &e), HK_E_INVALID_ARG);
    if (strstr(hk_last_error(), part) == NULL)
        fail_msg("%s: not in \"%s\"", part, hk_last_error());
}

static void test_config(void **state) {
    (void)state;
    hk_context *ctx = context();
    hk_connect_options connect;
    hk_connect_options_init(&connect, sizeof connect);
    bed b;
    bed_init(&b, ctx);
    b.config.center_addresses = "inproc:a,,inproc:b";
    refused(&b, "address 2 of 3 in center_addresses \"inproc:a,,inproc:b\"");
    b.config.center_addresses = "";
    refused(&b, "address 1 of 1 in center_addresses \"\" is empty");
    b.config.center_addresses = NULL;
    b.config.center_key = "cluster.key";
    refused(&b, "center_key is cluster.key, but there are no "
                "center_addresses");
    b.config.center_key = NULL;
    b.config.connect = &connect;
    refused(&b, "connect options, but no center_addresses");
    b.config.center_addresses = "inproc:a";
    const char *const address = "inproc:c";
    connect.addresses = &address;
    connect.n_addresses = 1;
    refused(&b, "connect has 1 addresses");
    connect.n_addresses = 0;
    connect.observer = 1;
    refused(&b, "observer 1");
    connect.observer = 0;
    b.config.connect = NULL;
    b.config.center_addresses = NULL;
    b.config.all_workers = 4;
    refused(&b, "set center or center_addresses");
    hk_layout *l;
    hk_center *c;
    b.config.all_workers = 0;
    bed_open(&b);
    hk_dataset *d = bed_training(1);
    const hk_source in = hk_source_dataset(d);
    assert_ok(hk_estimator_layout(b.e, &in, &l));
    assert_ok(hk_center_create_local(NULL, l, &c));
    hk_estimator_destroy(b.e);
    b.config.center = c;
    b.config.center_addresses = "inproc:a";
    refused(&b, "center and center_addresses (inproc:a) exclude each other");
    // A center that is set comes before the addresses.
    b.config.center = NULL;
    bed_open(&b);
    assert_ok(hk_estimator_set_center(b.e, c));
    bed_train(&b, d, PERIOD, NULL);
    assert_ptr_equal(estimator_info(b.e).center, c);
    hk_estimator_destroy(b.e);
    hk_center_destroy(c);
    hk_layout_release(l);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// Values from elsewhere make workers without the center.
static void test_assigned(void **state) {
    (void)state;
    hk_context *ctx = context();
    bed b;
    bed_init(&b, ctx);
    b.config.center_addresses = "inproc:assigned";
    bed_open(&b);
    hk_dataset *d = bed_training(1);
    const hk_source in = hk_source_dataset(d);
    hk_layout *l;
    hk_layout_info info;
    assert_ok(hk_estimator_layout(b.e, &in, &l));
    assert_ok(hk_layout_get_info(l, &info));
    float *values;
    assert_ok(hki_zalloc_array((size_t)info.n, sizeof *values, &values));
    assert_ok(hk_estimator_assign(b.e, &in, values, NULL, 3));
    assert_int_equal(hk_estimator_train(b.e, &in, NULL, NULL), HK_E_STATE);
    assert_non_null(strstr(hk_last_error(), "inproc:assigned"));
    hki_free(values);
    hk_layout_release(l);
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_max_steps), cmocka_unit_test(test_center_limit),
        cmocka_unit_test(test_calls),     cmocka_unit_test(test_data_end),
        cmocka_unit_test(test_finished),  cmocka_unit_test(test_threads),
        cmocka_unit_test(test_key),       cmocka_unit_test(test_shards),
        cmocka_unit_test(test_away),      cmocka_unit_test(test_config),
        cmocka_unit_test(test_assigned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
