// test_evaluator.c - the evaluator under all repeated evaluations: its two
// sources of weights, when it evaluates, and how its watch ends.
#include "hk_test.h"
#include "cluster/cluster.h"
#include "file_util.h"
#include "hooke/ckpt.h"

// What an evaluator was given.
typedef struct seen {
    int calls, finals;
    int64_t step;
    char path[4096];
    hk_status answer;
    // Live weights.
    bool exist;
    uint64_t version;
    int searches;
    int visits; // of a watch
} seen;

static hk_status note(hki_evaluator *v, const hk_evaluation *what) {
    seen *const s = v->user;
    s->calls++;
    s->finals += what->is_final != 0;
    s->step = what->global_step;
    snprintf(s->path, sizeof s->path, "%s",
             what->path != NULL ? what->path : "");
    return s->answer == HK_OK ? HK_OK
                              : hki_fail(s->answer, "evaluation failed");
}

static hk_status find_live(hki_evaluator *v, hki_found_weights *out) {
    seen *const s = v->user;
    s->searches++;
    out->version = s->version;
    out->what.global_step = (int64_t)s->version * 10;
    out->is_new = s->exist && (out->what.is_final || !v->has_evaluated ||
                               v->version != s->version);
    return HK_OK;
}

static bool visit(hki_evaluator *v, bool is_final) {
    bool has_evaluated;
    assert_ok(hki_evaluator_visit(v, is_final, &has_evaluated));
    return has_evaluated;
}

static void test_live(void **state) {
    (void)state;
    seen s = {0};
    hki_evaluator v = {.find_live = find_live, .evaluate = note, .user = &s};
    assert_false(visit(&v, false));
    assert_false(visit(&v, true));
    s.exist = true;
    assert_true(visit(&v, false));
    assert_int_equal(v.step, 0);
    assert_false(visit(&v, false)); // the same weights
    s.version = 4;
    assert_true(visit(&v, false));
    assert_int_equal(s.step, 40);
    assert_int_equal(v.step, 40);
    assert_int_equal(v.version, 4);
    // An evaluation that is not due does not look for weights.
    v.throttle_ns = INT64_C(3600) * 1000000000;
    s.version = 5;
    s.searches = 0;
    assert_false(hki_evaluator_is_due(&v));
    assert_false(visit(&v, false));
    assert_int_equal(s.searches, 0);
    assert_true(visit(&v, true)); // the end does not wait
    assert_int_equal(s.finals, 1);
    assert_true(visit(&v, true));
    // Weights whose evaluation has failed are not evaluated.
    v.throttle_ns = 0;
    s.version = 6;
    s.answer = HK_E_DATA;
    bool has_evaluated;
    assert_status(hki_evaluator_visit(&v, false, &has_evaluated), HK_E_DATA);
    assert_false(has_evaluated);
    assert_int_equal(v.version, 5);
    s.answer = HK_OK;
    assert_true(visit(&v, false));
    assert_int_equal(v.version, 6);
}

static void save(hk_saver *saver, int64_t step) {
    float value = (float)step;
    hk_name_map *map;
    assert_ok(hk_name_map_create(&map));
    const hk_named x = {.name = "x",
                        .dtype = HK_F32,
                        .shape = hk_shape_make(0, NULL),
                        .data = &value};
    assert_ok(hk_name_map_add(map, &x));
    assert_ok(hk_saver_save(saver, map, step, NULL, 0));
    assert_ok(hk_saver_wait(saver));
    hk_name_map_destroy(map);
}

static void test_files(void **state) {
    (void)state;
    folder d;
    folder_make(&d);
    const char *const dir = d.path;
    hk_saver_options o;
    hk_saver_options_init(&o, sizeof o);
    o.model_dir = dir;
    o.no_fsync = 1;
    hk_saver *saver;
    assert_ok(hk_saver_create(&o, &saver));
    seen s = {0};
    hki_evaluator v = {.directory = dir, .evaluate = note, .user = &s};
    assert_false(visit(&v, false)); // there is none yet
    assert_false(visit(&v, true));
    save(saver, 3);
    assert_true(visit(&v, false));
    assert_int_equal(s.step, 3);
    assert_non_null(strstr(s.path, dir));
    assert_non_null(strstr(s.path, "-3"));
    assert_false(visit(&v, false)); // the same file
    assert_true(visit(&v, true));   // the end in any case
    // A checkpoint that comes while an evaluation is not due is evaluated when
    // one is due, although no further checkpoint comes.
    v.throttle_ns = INT64_C(3600) * 1000000000;
    save(saver, 8);
    assert_false(visit(&v, false));
    assert_false(visit(&v, false));
    v.throttle_ns = 0;
    assert_true(visit(&v, false));
    assert_int_equal(s.step, 8);
    hk_saver_destroy(saver);
    folder_remove(&d);
}

// ---- the watch --------------------------------------------------------------

static hk_status end_at_third(hki_evaluator *v, bool *is_over) {
    seen *const s = v->user;
    *is_over = ++s->visits == 3;
    return HK_OK;
}

static hk_status end_with_error(hki_evaluator *v, bool *is_over) {
    (void)v;
    (void)is_over;
    return hki_fail(HK_E_UNAVAILABLE, "the source is gone");
}

static void test_watch(void **state) {
    (void)state;
    hk_context *ctx;
    assert_ok(hk_context_create(NULL, &ctx));
    seen s = {0};
    hki_evaluator v = {.user = &s};
    hki_watch_options o = {.context = ctx, .poll_ms = 1, .visit = end_at_third};
    bool stopped = true;
    assert_ok(hki_evaluator_watch(&v, &o, &stopped));
    assert_false(stopped);
    assert_int_equal(s.visits, 3);
    o.visit = end_with_error;
    assert_status(hki_evaluator_watch(&v, &o, &stopped), HK_E_UNAVAILABLE);
    // A requested stop ends every wait, and nothing is visited any more.
    hk_request_stop(ctx, 1);
    s.visits = 0;
    o.visit = end_at_third;
    o.start_ms = o.poll_ms = 3600000;
    assert_ok(hki_evaluator_watch(&v, &o, &stopped));
    assert_true(stopped);
    assert_int_equal(s.visits, 0);
    hk_context_destroy(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_live),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_watch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
