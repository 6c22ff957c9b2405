// test_cluster_methods.c - every method through a center server gives the
// bits of the same method with a center in this process.
#include "suite_exchange.h"
#include "cluster_bed.h"

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
    if (!hk_test_close(there->stats[0].distance, here->stats[0].distance, 0,
                       1e-6))
        fail_msg("%s: distance %g, in one process %g", what,
                 there->stats[0].distance, here->stats[0].distance);
}

// ---- all methods, all places ------------------------------------------------

static const place places[] = {
    {.scheme = "inproc", .n_shards = 1},
    {.scheme = "unix", .n_shards = 2, .file = true},
    {.scheme = "shm", .n_shards = 1, .file = true},
    {.scheme = "unix", .n_shards = 3, .telemetry = 1},
    {.scheme = "shm", .n_shards = 1, .watched = true},
    {.scheme = "unix", .n_shards = 3, .file = true, .watched = true},
    {.scheme = "inproc", .n_shards = 1, .window_kib = 1}, // two chunks
    {.scheme = "shm", .n_shards = 1, .window_kib = 1},
};

static void try_place(const place *p) {
    for (int m = HK_METHOD_ELASTIC; hk_method_name((hk_method)m) != NULL; m++) {
        hk_center_options o;
        hk_optimizer_options outer;
        outcome here, there;
        char what[96];
        const place local = {.telemetry = p->telemetry};
        const exchange_plan plan = {.center = &o};
        suite_exchange_options((hk_method)m, &o, &outer);
        snprintf(what, sizeof what, "%s over %s, %u shards",
                 hk_method_name((hk_method)m), p->scheme, p->n_shards);
        suite_exchange_run(&local, &plan, &here);
        suite_exchange_run(p, &plan, &there);
        compare(what, &here, &there);
        suite_exchange_free(&here);
        suite_exchange_free(&there);
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

// A model with more chunks than a window: the worker needs to hear of chunks
// that were applied, also where the center sends no values.
static void test_small_windows(void **state) {
    (void)state;
    try_place(&places[6]);
    try_place(&places[7]);
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
    hk_layout *const l = suite_exchange_layout(false);
    so.layout = l;
    suite_exchange_options(HK_METHOD_DILOCO, &o, &outer);
    hk_optimizer_options_init(&outer, sizeof outer, HK_OPT_LAMB);
    o.outer = &outer;
    assert_status(hk_center_server_start(&so, &s), HK_E_UNSUPPORTED);
    suite_exchange_options(HK_METHOD_AGN, &o, &outer);
    o.outer = NULL;
    assert_status(hk_center_server_start(&so, &s), HK_E_INVALID_ARG);
    suite_exchange_options(HK_METHOD_ELASTIC, &o, &outer);
    o.turn = HK_TURN_ROUND_ROBIN;
    assert_status(hk_center_server_start(&so, &s), HK_E_UNSUPPORTED);
    hk_layout_release(l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inproc),
        cmocka_unit_test(test_two_shards),
        cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_telemetry),
        cmocka_unit_test(test_snapshots_in_rounds),
        cmocka_unit_test(test_small_windows),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, suite_exchange_setup,
                                  suite_exchange_teardown);
}
