// test_ckpt_saver.c - the checkpoints of a folder: retention, state file,
// falling back, locks, saving beside training.
#include "ckpt_util.h"
#include "info_util.h"
#include "ckpt/ckpt.h"
#include "ckpt/model_dir/saver.h"
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static hk_saver_options saver_options(const folder *d) {
    hk_saver_options o;
    hk_saver_options_init(&o, sizeof o);
    o.model_dir = d->path;
    o.no_fsync = 1;
    o.background = 0;
    return o;
}

static hk_saver *make_saver(const hk_saver_options *o) {
    hk_saver *s;
    assert_ok(hk_saver_create(o, &s));
    return s;
}

// The name of a step's checkpoint.
static const char *name_of(int64_t step, char out[64]) {
    snprintf(out, 64, "model.ckpt-%lld.safetensors", (long long)step);
    return out;
}

static bool has_step(const folder *d, int64_t step) {
    char name[64];
    return file_there(d, name_of(step, name));
}

static char *state_text(const folder *d) {
    char path[512];
    size_t size;
    return (char *)read_file(folder_path(d, "checkpoint", path), &size);
}

// ---- retention -------------------------------------------------------------

static double clock_now;

static double test_clock(void *user) {
    (void)user;
    return clock_now;
}

// TF's Saver, step by step: _RecordLastCheckpoint, then
// _MaybeDeleteOldCheckpoints.
typedef struct tf_saver {
    struct {
        int64_t step;
        double time;
    } last[64];
    int n;
    double next_keep, n_hours;
    int max_to_keep;
    bool on_disk[1000];
} tf_saver;

static void tf_save(tf_saver *s, int64_t step, double now) {
    s->on_disk[step] = true;
    if (s->max_to_keep == 0)
        return;
    for (int i = 0; i < s->n; i++)
        if (s->last[i].step == step) {
            memmove(&s->last[i], &s->last[i + 1],
                    (size_t)(s->n - i - 1) * sizeof s->last[0]);
            s->n--;
            break;
        }
    s->last[s->n].step = step;
    s->last[s->n].time = now;
    s->n++;
    if (s->n <= s->max_to_keep)
        return;
    const int64_t oldest = s->last[0].step;
    const double time = s->last[0].time;
    memmove(&s->last[0], &s->last[1], (size_t)(s->n - 1) * sizeof s->last[0]);
    s->n--;
    if (time > s->next_keep)
        s->next_keep += s->n_hours * 3600;
    else
        s->on_disk[oldest] = false;
}

static void test_retention_like_tf(void **state) {
    (void)state;
    static const struct {
        int max_to_keep;
        double n_hours;
        double gap_hours; // between saves, on average
    } rules[] = {{5, 10000, 1}, {1, 10000, 1}, {3, 2, 0.7}, {2, 1, 1.5},
                 {0, 1, 1},     {4, 0.5, 0.1}, {1, 0.25, 1}};
    for (size_t k = 0; k < HKI_COUNT(rules); k++) {
        folder d;
        model m;
        hki_rng rng;
        hki_rng_init(&rng, 5, k);
        folder_make(&d);
        model_init(&m, 1);
        clock_now = 1000000;
        tf_saver tf = {.max_to_keep = rules[k].max_to_keep,
                       .n_hours = rules[k].n_hours,
                       .next_keep = clock_now + rules[k].n_hours * 3600};
        hk_saver_options o = saver_options(&d);
        o.keep_max = (uint32_t)rules[k].max_to_keep;
        o.keep_every_n_hours = rules[k].n_hours;
        hk_saver *s = make_saver(&o);
        hki_saver_set_clock(s, test_clock, NULL);
        int64_t step = 0;
        for (int i = 0; i < 35; i++) {
            clock_now += hki_rng_uniform(&rng) * 2 * rules[k].gap_hours * 3600;
            if (i == 0 || hki_rng_below(&rng, 10) > 0) // else the same again
                step += 1 + (int64_t)hki_rng_below(&rng, 5);
            assert_ok(hk_saver_save(s, m.map, step, NULL, 0));
            tf_save(&tf, step, clock_now);
            for (int64_t j = 0; j <= step; j++)
                if (has_step(&d, j) != tf.on_disk[j])
                    fail_msg("rule %zu, save %d: checkpoint %lld is %s", k, i,
                             (long long)j, tf.on_disk[j] ? "gone" : "there");
            if (i % 12 == 11) { // a restart changes nothing
                hk_saver_destroy(s);
                s = make_saver(&o);
                hki_saver_set_clock(s, test_clock, NULL);
            }
        }
        // A count of everything that is there, oldest first.
        size_t expected = 0;
        for (int64_t j = 0; j <= step; j++)
            expected += tf.on_disk[j];
        assert_int_equal(saver_info(s).item_count, expected);
        const hk_saved *const items = saver_info(s).items;
        for (size_t i = 1; i < expected; i++)
            assert_true(items[i].step > items[i - 1].step);
        hk_saver_destroy(s);
        model_deinit(&m);
        folder_remove(&d);
    }
}

// The best of all metrics so far stay, whatever the list does.
static void test_keep_best(void **state) {
    (void)state;
    for (uint32_t is_max = 0; is_max < 2; is_max++) {
        folder d;
        model m;
        hki_rng rng;
        double metric[50];
        hki_rng_init(&rng, 9, is_max);
        folder_make(&d);
        model_init(&m, 1);
        hk_saver_options o = saver_options(&d);
        o.keep_max = 2;
        o.keep_best = 3;
        o.best_is_max = is_max;
        hk_saver *s = make_saver(&o);
        assert_null(saver_info(s).best);
        for (int64_t step = 0; step < 50; step++) {
            assert_ok(hk_saver_save(s, m.map, step, NULL, 0));
            metric[step] = (double)hki_rng_below(&rng, 50); // with ties
            assert_ok(hk_saver_metric(s, step, metric[step]));
            int64_t best = 0;
            for (int64_t j = 0; j <= step; j++) {
                int64_t before = 0; // better, or as good and earlier
                for (int64_t i = 0; i <= step; i++)
                    before += i != j && (metric[i] == metric[j] ? i < j
                                         : is_max ? metric[i] > metric[j]
                                                  : metric[i] < metric[j]);
                const bool stays = before < 3 || j > step - 2;
                if (before == 0)
                    best = j;
                if (has_step(&d, j) != stays)
                    fail_msg("step %lld: checkpoint %lld is %s",
                             (long long)step, (long long)j,
                             stays ? "gone" : "there");
            }
            char name[64];
            const hk_saved *const top = saver_info(s).best;
            assert_int_equal(top->step, best);
            assert_true(top->metric == metric[best]);
            assert_non_null(strstr(top->path, name_of(best, name)));
            if (step % 13 == 12) {
                hk_saver_destroy(s);
                s = make_saver(&o);
            }
        }
        assert_status(hk_saver_metric(s, 5000, 1), HK_E_NOT_FOUND);
        const int64_t before = saver_info(s).best->step;
        assert_ok(hk_saver_metric(s, 49, (double)NAN)); // never the best
        assert_ok(hk_saver_metric(
            s, 49, is_max ? (double)INFINITY : -(double)INFINITY));
        assert_int_equal(saver_info(s).best->step, before);
        hk_saver_destroy(s);
        model_deinit(&m);
        folder_remove(&d);
    }
}

static void test_clear(void **state) {
    (void)state;
    folder d;
    model m;
    folder_make(&d);
    model_init(&m, 1);
    hk_saver_options o = saver_options(&d);
    o.keep_best = 1;
    hk_saver *s = make_saver(&o);
    assert_ok(hki_saver_clear(s)); // nothing there
    for (int64_t step = 0; step < 9; step++) {
        assert_ok(hk_saver_save(s, m.map, step, NULL, 0));
        assert_ok(hk_saver_metric(s, step, (double)step)); // 0 is off the list
    }
    assert_ok(hki_saver_clear(s));
    for (int64_t step = 0; step < 9; step++)
        assert_false(has_step(&d, step));
    assert_int_equal(saver_info(s).item_count, 0);
    assert_ok(hk_saver_save(s, m.map, 9, NULL, 0)); // and goes on
    assert_ok(hk_saver_wait(s));
    assert_true(has_step(&d, 9));
    hk_saver_destroy(s);
    model_deinit(&m);
    folder_remove(&d);
}

// Back to an earlier checkpoint: it counts as the newest, also for others and
// after a restart, and a better metric of another does not delete it.
static void test_go_back(void **state) {
    (void)state;
    folder d;
    model m;
    folder_make(&d);
    model_init(&m, 1);
    hk_saver_options o = saver_options(&d);
    o.keep_max = 2;
    o.keep_best = 1;
    hk_saver *s = make_saver(&o);
    assert_int_equal(hki_saver_is_best(s, 5), 1);
    for (int64_t step = 0; step < 5; step++) {
        assert_ok(hk_saver_save(s, m.map, step, NULL, 0));
        assert_ok(hk_saver_metric(s, step, 1 + (double)step));
    }
    assert_int_equal(hki_saver_is_best(s, 0.5), 1);
    assert_int_equal(hki_saver_is_best(s, 1), 0); // the earlier one wins
    assert_int_equal(hki_saver_is_best(s, (double)NAN), 0);
    assert_status(hk_saver_go_back(s, 1), HK_E_NOT_FOUND);
    assert_status(hk_saver_go_back(NULL, 0), HK_E_INVALID_ARG);
    assert_ok(hk_saver_go_back(s, 0));
    assert_ok(hk_saver_metric(s, 4, 0.1));
    assert_true(has_step(&d, 0));
    for (int i = 0; i < 2; i++) {
        hk_ckpt *c;
        int64_t step;
        assert_ok(hk_saver_open_latest(s, &c, &step));
        assert_int_equal(step, 0);
        hk_ckpt_close(c);
        assert_ok(hk_ckpt_open_latest(NULL, d.path, &c, &step));
        assert_int_equal(step, 0);
        hk_ckpt_close(c);
        hk_saver_destroy(s);
        s = make_saver(&o);
    }
    // Saving goes on as before.
    assert_ok(hk_saver_save(s, m.map, 6, NULL, 0));
    assert_ok(hk_saver_metric(s, 6, 3));
    assert_false(has_step(&d, 0));
    hk_saver_destroy(s);
    hk_ckpt *c;
    assert_status(hk_ckpt_open_latest(NULL, NULL, &c, NULL), HK_E_INVALID_ARG);
    model_deinit(&m);
    folder_remove(&d);
}

// ---- the state file --------------------------------------------------------

static void test_state_file(void **state) {
    (void)state;
    folder d;
    model m;
    folder_make(&d);
    model_init(&m, 1);
    clock_now = 1700000000.5;
    hk_saver_options o = saver_options(&d);
    o.keep_max = 2;
    o.keep_best = 1;
    hk_saver *const s = make_saver(&o);
    hki_saver_set_clock(s, test_clock, NULL);
    assert_ok(hk_saver_save(s, m.map, 10, NULL, 0));
    assert_ok(hk_saver_metric(s, 10, 0.25));
    clock_now += 600;
    assert_ok(hk_saver_save(s, m.map, 20, NULL, 0));
    clock_now += 600;
    assert_ok(hk_saver_save(s, m.map, 30, NULL, 0));
    char *const text = state_text(&d);
    assert_string_equal(
        text, "model_checkpoint_path: \"model.ckpt-30.safetensors\"\n"
              "all_model_checkpoint_paths: \"model.ckpt-20.safetensors\"\n"
              "all_model_checkpoint_paths: \"model.ckpt-30.safetensors\"\n"
              "all_model_checkpoint_timestamps: 1700000600.5\n"
              "all_model_checkpoint_timestamps: 1700001200.5\n"
              "last_preserved_timestamp: 1700000000.5\n"
              "# hooke best 1700000000.5 \"model.ckpt-10.safetensors\"\n"
              "# hooke metric 0.25 \"model.ckpt-10.safetensors\"\n");
    free(text);
    // Three checkpoints, the state, the lock.
    assert_int_equal(count_files(d.path), 5);
    hk_saver_destroy(s);
    assert_int_equal(count_files(d.path), 4);
    model_deinit(&m);
    folder_remove(&d);
}

// What the parser makes of texts; formatting gives it back.
static void test_state_parse(void **state) {
    (void)state;
    static const struct {
        const char *text;
        const char *message; // NULL: fine
        size_t count;
        const char *newest;
    } cases[] = {
        {"model_checkpoint_path: \"a-1\"\n", NULL, 1, "a-1"},
        {"model_checkpoint_path: 'a-1'", NULL, 1, "a-1"},
        {"model_checkpoint_path:\"/abs/a-1\"\n"
         "all_model_checkpoint_paths: \"/abs/a-0\"\n"
         "all_model_checkpoint_paths: \"/abs/a-1\"\n",
         NULL, 2, "/abs/a-1"},
        {"all_model_checkpoint_timestamps: 5\nmodel_checkpoint_path: \"b\";",
         NULL, 1, "b"},
        {"# a comment: \"x\n\n  model_checkpoint_path : \"b\" , other: 3.5 "
         "flag: true text: \"q\"",
         NULL, 1, "b"},
        {"model_checkpoint_path: \"\\\"\\\\\\n\\101\\x41\\303\\251\"", NULL, 1,
         "\"\\\nAA\xc3\xa9"},
        {"model_checkpoint_path: \"a\"\n# hooke best 1 \"c-3\"\n"
         "# hooke metric 2 \"c-3\"\n# hooke metric 3 \"nobody\"\n"
         "# hooke future \"x\"\n",
         NULL, 2, "a"},
        {"", "model_checkpoint_path is missing", 0, NULL},
        {"model_checkpoint_path: \"\"", "is empty", 0, NULL},
        {"model_checkpoint_path: \"a", "has no end", 0, NULL},
        {"model_checkpoint_path: \"a\n\"", "has no end", 0, NULL},
        {"model_checkpoint_path: \"a\\", "has no end", 0, NULL},
        {"model_checkpoint_path: \"a\\q\"", "escape", 0, NULL},
        {"model_checkpoint_path: \"a\\0\"", "escape", 0, NULL},
        {"model_checkpoint_path: 5", "expected a string", 0, NULL},
        {"model_checkpoint_path \"a\"", "colon", 0, NULL},
        {"\n\n{}", "line 3", 0, NULL},
        {"model_checkpoint_path: \"a\"\n"
         "all_model_checkpoint_timestamps: soon",
         "line 2: expected a number", 0, NULL},
        {"model_checkpoint_path: \"a\"\nlast_preserved_timestamp: nan",
         "expected a number", 0, NULL},
        {"model_checkpoint_path: \"a\"\nmore { x: 1 }", "colon", 0, NULL},
        {"model_checkpoint_path: \"a\"\n# hooke best 1 \"../x\"",
         "path has a folder", 0, NULL},
        {"model_checkpoint_path: \"a\"\n# hooke best 1 \"\"", "a path is empty",
         0, NULL},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hki_state s = {0};
        const char *const t = cases[i].text;
        const hk_status status = hki_state_parse(t, strlen(t), "file", &s);
        if ((status == HK_OK) != (cases[i].message == NULL) ||
            (status != HK_OK &&
             strstr(hk_last_error(), cases[i].message) == NULL))
            fail_msg("%s: %s: %s", t, hk_status_string(status),
                     status != HK_OK ? hk_last_error() : "");
        if (status == HK_OK) {
            hki_buf b = {0}, c = {0};
            hki_state again = {0};
            assert_int_equal(s.count, cases[i].count);
            assert_string_equal(s.newest, cases[i].newest);
            assert_ok(hki_state_format(&s, &b));
            assert_ok(hki_state_parse(b.data, b.size, "again", &again));
            assert_ok(hki_state_format(&again, &c));
            assert_string_equal(b.data, c.data);
            hki_state_deinit(&again);
            hki_buf_deinit(&b);
            hki_buf_deinit(&c);
        }
        hki_state_deinit(&s);
    }
    static const struct {
        const char *path;
        int64_t step;
    } steps[] = {{"model.ckpt-7.safetensors", 7},
                 {"a/b-3/model.ckpt-12", 12},
                 {"model.ckpt", -1},
                 {"a-5/model", -1},
                 {"model.ckpt-5x", -1},
                 {"model.ckpt-", -1},
                 {"m-99999999999999999999", -1}};
    for (size_t i = 0; i < HKI_COUNT(steps); i++)
        assert_int_equal(hki_step_of(steps[i].path), steps[i].step);
}

static void test_journal_parse(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool fine;
    } cases[] = {
        {"", true},
        {"writing a b\ndeleting c\ndeleting d\n", true},
        {"writing a\nwriting b\n", false},
        {"writing a", false},
        {"writing \n", false},
        {"writing ..\n", false},
        {"deleting ../a\n", false},
        {"deleting /etc/passwd\n", false},
        {"moving a\n", false},
        {"\n", false},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hki_journal j = {0};
        const char *const t = cases[i].text;
        const hk_status s = hki_journal_parse(t, strlen(t), "journal", &j);
        if ((s == HK_OK) != cases[i].fine)
            fail_msg("%s: %s", t, hk_status_string(s));
        hki_journal_deinit(&j);
    }
}

// ---- the newest checkpoint -------------------------------------------------

// Saves steps 1, 2 and 3, of models 1, 2 and 3.
static void save_three(const folder *d) {
    hk_saver_options o = saver_options(d);
    hk_saver *const s = make_saver(&o);
    model m;
    model_init(&m, 1);
    for (int i = 1; i <= 3; i++) {
        model_fill(&m, i);
        assert_ok(hk_saver_save(s, m.map, i, NULL, 0));
    }
    hk_saver_destroy(s);
    model_deinit(&m);
}

// What restoring gives, and how many warnings.
static void check_restore(const folder *d, int seed, size_t warnings,
                          const char *part) {
    memory_log log;
    hk_context *const ctx = context_with_log(&log);
    hk_saver_options o = saver_options(d);
    o.context = ctx;
    hk_saver *const s = make_saver(&o);
    model m;
    model_init(&m, 9);
    assert_ok(hk_saver_restore(s, m.map, NULL, NULL));
    assert_model(&m, seed);
    if (log.warnings != warnings ||
        (part != NULL && strstr(log.text, part) == NULL))
        fail_msg("%zu warnings: %s", log.warnings, log.text);
    hk_ckpt *c;
    int64_t step = -5;
    assert_ok(hk_saver_open_latest(s, &c, &step));
    assert_int_equal(hk_ckpt_find(c, "dense/bias")->shape.dim[0], 3);
    hk_ckpt_close(c);
    hk_saver_destroy(s);
    model_deinit(&m);
    hk_context_destroy(ctx);
}

static void test_fall_back(void **state) {
    (void)state;
    folder d;
    char path[512];
    size_t size;
    folder_make(&d);
    save_three(&d);
    check_restore(&d, 3, 0, NULL);

    // Torn.
    folder_path(&d, "model.ckpt-3.safetensors", path);
    uint8_t *const whole = read_file(path, &size);
    assert_int_equal(truncate(path, (off_t)size - 1), 0);
    check_restore(&d, 2, 1, "model.ckpt-3.safetensors is damaged");
    // A bit that nothing but the checksum knows of.
    whole[size - 1] ^= 4;
    write_file(path, whole, size);
    check_restore(&d, 2, 1, "checksum");
    whole[size - 1] ^= 4;
    // Missing.
    assert_int_equal(unlink(path), 0);
    check_restore(&d, 2, 1, "model.ckpt-3.safetensors is missing");
    char latest[4096];
    int64_t step;
    assert_ok(hk_latest_checkpoint(d.path, latest, sizeof latest, &step));
    assert_int_equal(step, 2);
    assert_non_null(strstr(latest, "model.ckpt-2.safetensors"));
    assert_ok(hk_latest_checkpoint(d.path, NULL, 0, NULL));
    assert_status(hk_latest_checkpoint(d.path, latest, strlen(latest), NULL),
                  HK_E_RANGE);
    // Two of them.
    folder_path(&d, "model.ckpt-2.safetensors", path);
    write_file(path, whole, 20);
    check_restore(&d, 1, 2, "model.ckpt-2.safetensors is damaged");
    // All: an error, and not a fresh start.
    folder_path(&d, "model.ckpt-1.safetensors", path);
    write_file(path, whole, 20);
    hk_saver_options o = saver_options(&d);
    hk_saver *s = make_saver(&o);
    hk_ckpt *c;
    assert_status(hk_saver_open_latest(s, &c, NULL), HK_E_DATA);
    assert_message("none of its 3 checkpoints can be read");
    hk_saver_destroy(s);
    assert_status(hk_ckpt_open(d.path, HK_CKPT_AUTO, &c), HK_E_DATA);
    // None there at all.
    for (int i = 1; i < 3; i++) {
        char name[64];
        assert_int_equal(unlink(folder_path(&d, name_of(i, name), path)), 0);
    }
    assert_status(hk_ckpt_open(d.path, HK_CKPT_AUTO, &c), HK_E_NOT_FOUND);
    assert_status(hk_latest_checkpoint(d.path, NULL, 0, &step), HK_E_NOT_FOUND);
    free(whole);
    folder_remove(&d);
    assert_status(hk_latest_checkpoint(d.path, NULL, 0, &step), HK_E_NOT_FOUND);
}

// Without the state file, or with a useless one, the files speak.
static void test_lost_state(void **state) {
    (void)state;
    folder d;
    char path[512];
    folder_make(&d);
    save_three(&d);
    folder_path(&d, "checkpoint", path);
    write_file(path, "garbage", 7);
    check_restore(&d, 3, 1, "cannot be read");
    assert_int_equal(unlink(path), 0);
    check_restore(&d, 3, 0, NULL);
    hk_ckpt *c; // the folder's name stands for its newest checkpoint
    assert_ok(hk_ckpt_open(d.path, HK_CKPT_AUTO, &c));
    assert_string_equal(hk_ckpt_meta(c, "hooke.step"), "3");
    hk_ckpt_close(c);
    // A user's edit counts: training goes on from there.
    const char *const edit =
        "model_checkpoint_path: \"model.ckpt-1.safetensors\"\n"
        "all_model_checkpoint_paths: \"model.ckpt-1.safetensors\"\n";
    write_file(path, edit, strlen(edit));
    check_restore(&d, 1, 0, NULL);
    // Absolute paths of a folder that has been moved.
    const char *const moved =
        "model_checkpoint_path: \"/nowhere/run/model.ckpt-2.safetensors\"\n"
        "all_model_checkpoint_paths: \"/nowhere/run/model.ckpt-1"
        ".safetensors\"\n";
    write_file(path, moved, strlen(moved));
    check_restore(&d, 2, 0, NULL);
    folder_remove(&d);
}

// A mismatch is no damage: the older checkpoint would not fit either.
static void test_mismatch_is_no_damage(void **state) {
    (void)state;
    folder d;
    folder_make(&d);
    save_three(&d);
    hk_saver_options o = saver_options(&d);
    hk_saver *const s = make_saver(&o);
    model m;
    float f[7];
    model_init(&m, 9);
    model_add(&m, "extra", HK_F32, 1, (int64_t[]){7}, f);
    hk_restore_report r;
    assert_status(hk_saver_restore(s, m.map, NULL, &r), HK_E_NOT_FOUND);
    assert_message("model.ckpt-3");
    hk_restore_options ro;
    hk_restore_options_init(&ro, sizeof ro);
    ro.allow_missing = 1;
    assert_ok(hk_saver_restore(s, m.map, &ro, &r));
    assert_int_equal(r.missing, 1);
    hk_restore_report_deinit(&r);
    hk_saver_destroy(s);
    model_deinit(&m);
    folder_remove(&d);
}

// ---- in the background -----------------------------------------------------

// The copy is of the moment of the save; a second save waits for the first.
static void test_background(void **state) {
    (void)state;
    enum {
        COUNT = 3000000 // large enough for the helper
    };
    folder d;
    float *const x = malloc(COUNT * sizeof *x);
    model m = {0};
    assert_non_null(x);
    folder_make(&d);
    assert_ok(hk_name_map_create(&m.map));
    model_add(&m, "x", HK_F32, 1, (int64_t[]){COUNT - 5}, x);
    model_add(&m, "y", HK_F32, 1, (int64_t[]){5}, x + COUNT - 5);
    hk_saver_options o = saver_options(&d);
    o.background = 1;
    o.keep_max = 0;
    hk_saver *s = make_saver(&o);
    assert_ok(hk_saver_reserve(s, m.map));
    for (int k = 0; k < 6; k++) {
        for (int i = 0; i < COUNT; i++)
            x[i] = (float)(i % 1000 + k);
        assert_ok(hk_saver_save(s, m.map, k, NULL, 0));
    }
    for (int i = 0; i < COUNT; i++)
        x[i] = -1;
    assert_ok(hk_saver_wait(s));
    assert_int_equal(saver_info(s).item_count, 6);
    for (int k = 0; k < 6; k++) {
        hk_ckpt *c;
        const hk_saved *const saved = &saver_info(s).items[k];
        assert_int_equal(saved->step, k);
        assert_ok(hk_ckpt_open(saved->path, HK_CKPT_AUTO, &c));
        char text[8];
        snprintf(text, sizeof text, "%d", k);
        assert_string_equal(hk_ckpt_meta(c, "hooke.step"), text);
        assert_ok(hk_ckpt_restore(c, m.map, NULL, NULL));
        hk_ckpt_close(c);
        for (int i = 0; i < COUNT; i++)
            if (x[i] != (float)(i % 1000 + k))
                fail_msg("save %d: element %d is %g", k, i, (double)x[i]);
    }
    // Destroying waits for what is under way.
    assert_ok(hk_saver_save(s, m.map, 99, NULL, 0));
    hk_saver_destroy(s);
    assert_true(has_step(&d, 99));
    free(x);
    hk_name_map_destroy(m.map);
    folder_remove(&d);
}

// A failure beside training comes back once, and is in the log.
static void test_background_failure(void **state) {
    (void)state;
    folder d;
    model m;
    memory_log log;
    hk_context *const ctx = context_with_log(&log);
    folder_make(&d);
    model_init(&m, 1);
    hk_saver_options o = saver_options(&d);
    o.background = 1;
    o.context = ctx;
    hk_saver *const s = make_saver(&o);
    assert_ok(hk_saver_save(s, m.map, 1, NULL, 0));
    assert_ok(hk_saver_wait(s));
    hki_io_fail_at(1, HKI_IO_POWER_CUT, ENOSPC);
    assert_ok(hk_saver_save(s, m.map, 2, NULL, 0));
    assert_int_equal(saver_info(s).item_count, 1); // waits for the writing
    hki_io_fail_at(0, HKI_IO_POWER_CUT, 0);
    assert_status(hk_saver_save(s, m.map, 3, NULL, 0), HK_E_IO);
    assert_message("No space left on device");
    assert_non_null(strstr(log.text, "model.ckpt-2.safetensors was not saved"));
    assert_ok(hk_saver_wait(s));
    assert_ok(hk_saver_save(s, m.map, 4, NULL, 0));
    assert_ok(hk_saver_wait(s));
    assert_false(has_step(&d, 2));
    assert_false(has_step(&d, 3));
    assert_true(has_step(&d, 4));
    hk_saver_destroy(s);
    model_deinit(&m);
    hk_context_destroy(ctx);
    folder_remove(&d);
}

// ---- locks -----------------------------------------------------------------

// A child that holds the folder until it is killed or told to go.
static pid_t start_holder(const folder *d) {
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        hk_saver_options o = saver_options(d);
        hk_saver *s;
        o.background = 1;
        const char ok = hk_saver_create(&o, &s) == HK_OK;
        if (write(ready[1], &ok, 1) != 1)
            _exit(2);
        for (;;)
            pause();
    }
    char ok = 0;
    assert_int_equal(read(ready[0], &ok, 1), 1);
    assert_int_equal(ok, 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static void test_lock(void **state) {
    (void)state;
    folder d;
    char text[64];
    hk_saver *s, *other;
    folder_make(&d);
    hk_saver_options o = saver_options(&d);
    const pid_t pid = start_holder(&d);
    assert_status(hk_saver_create(&o, &s), HK_E_EXISTS);
    snprintf(text, sizeof text, "process %d", (int)pid);
    assert_message(text);
    assert_message(d.path);
    // Observers need no lock.
    hk_ckpt *c;
    assert_status(hk_ckpt_open(d.path, HK_CKPT_AUTO, &c), HK_E_NOT_FOUND);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    s = make_saver(&o);
    assert_status(hk_saver_create(&o, &other), HK_E_EXISTS);
    snprintf(text, sizeof text, "this process, %d", (int)getpid());
    assert_message(text);
    hk_saver_destroy(s);
    s = make_saver(&o);
    hk_saver_destroy(s);
    folder_remove(&d);
}

// Two writers of one path: the second is told, the first is not disturbed.
static void test_two_writers(void **state) {
    (void)state;
    folder d;
    char path[512];
    hki_file *f, *g;
    folder_make(&d);
    folder_path(&d, "x", path);
    assert_ok(hki_file_create(path, &f));
    assert_ok(hki_file_write(f, "abc", 3));
    assert_status(hki_file_create(path, &g), HK_E_EXISTS);
    size_t removed = 9;
    assert_ok(hki_clear_temporary(d.path, &removed)); // it is in use
    assert_int_equal(removed, 0);
    assert_ok(hki_file_write_at(f, 1, "x", 1));
    assert_int_equal(hki_file_size(f), 3);
    assert_ok(hki_file_commit(f, true));
    size_t size;
    uint8_t *const bytes = read_file(path, &size);
    assert_int_equal(size, 3);
    assert_memory_equal(bytes, "axc", 3);
    free(bytes);
    assert_int_equal(count_files(d.path), 1);
    folder_remove(&d);
}

// A pipe, a device, a folder: nothing is put in its place.
static void test_special_places(void **state) {
    (void)state;
    folder d;
    char path[512];
    struct stat st;
    hki_file *f;
    folder_make(&d);
    folder_path(&d, "pipe", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_status(hki_file_create(path, &f), HK_E_IO);
    assert_non_null(strstr(hk_last_error(), "pipe: is a device or a pipe"));
    assert_int_equal(stat(path, &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    assert_status(hki_file_create(d.path, &f), HK_E_IO);
    assert_non_null(strstr(hk_last_error(), "is a folder, not a regular file"));
    assert_int_equal(count_files(d.path), 1);
    folder_remove(&d);
}

// ---- what the system refuses -----------------------------------------------

static void test_bad_options(void **state) {
    (void)state;
    folder d;
    hk_saver *s;
    char path[512];
    folder_make(&d);
    hk_saver_options o = saver_options(&d);
    static const char *const names[] = {"", ".x", "a/b", "a\nb", NULL};
    for (size_t i = 0; i < HKI_COUNT(names); i++) {
        o.basename = names[i];
        assert_status(hk_saver_create(&o, &s), HK_E_INVALID_ARG);
    }
    o = saver_options(&d);
    o.model_dir = "";
    assert_status(hk_saver_create(&o, &s), HK_E_INVALID_ARG);
    o = saver_options(&d);
    o.format = HK_CKPT_NPZ;
    assert_status(hk_saver_create(&o, &s), HK_E_INVALID_ARG);
    o = saver_options(&d);
    o.keep_every_n_hours = 0;
    assert_status(hk_saver_create(&o, &s), HK_E_INVALID_ARG);
    o.keep_every_n_hours = (double)NAN;
    assert_status(hk_saver_create(&o, &s), HK_E_INVALID_ARG);
    o = saver_options(&d);
    o.background = 2;
    assert_status(hk_saver_create(&o, &s), HK_E_INVALID_ARG);
    assert_status(hk_saver_create(NULL, &s), HK_E_INVALID_ARG);
    write_file(folder_path(&d, "file", path), "x", 1);
    o = saver_options(&d);
    o.model_dir = path;
    assert_status(hk_saver_create(&o, &s), HK_E_IO);
    char inner[600]; // folders are made
    snprintf(inner, sizeof inner, "%s/a/b//c/", d.path);
    o.model_dir = inner;
    s = make_saver(&o);
    model m;
    model_init(&m, 1);
    assert_status(hk_saver_save(s, m.map, -1, NULL, 0), HK_E_INVALID_ARG);
    assert_status(hk_saver_save(s, NULL, 1, NULL, 0), HK_E_INVALID_ARG);
    assert_ok(hk_saver_save(s, m.map, 0, NULL, 0));
    hk_saver_destroy(s);
    hk_saver_destroy(NULL);
    model_deinit(&m);
    folder_remove(&d);
}

// No room: a limit of the process stands in for a full disk.
static void test_disk_full(void **state) {
    (void)state;
    folder d;
    float *const x = calloc(1 << 18, sizeof *x);
    model m = {0};
    struct rlimit before, limit;
    assert_non_null(x);
    folder_make(&d);
    save_three(&d);
    assert_ok(hk_name_map_create(&m.map));
    model_add(&m, "x", HK_F32, 1, (int64_t[]){1 << 18}, x);
    hk_saver_options o = saver_options(&d);
    hk_saver *const s = make_saver(&o);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 300000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const hk_status status = hk_saver_save(s, m.map, 4, NULL, 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, HK_E_IO);
    assert_message("model.ckpt-4.safetensors: cannot write: File too large");
    hk_saver_destroy(s);
    // Three checkpoints and the state; nothing of the fourth.
    assert_int_equal(count_files(d.path), 4);
    check_restore(&d, 3, 0, NULL);
    free(x);
    hk_name_map_destroy(m.map);
    folder_remove(&d);
}

// A folder that became read-only: an error by name, nothing lost.
static void test_read_only(void **state) {
    (void)state;
    folder d;
    model m;
    folder_make(&d);
    save_three(&d);
    model_init(&m, 4);
    hk_saver_options o = saver_options(&d);
    hk_saver *s = make_saver(&o);
    hki_io_fail_at(1, HKI_IO_POWER_CUT, EROFS);
    assert_status(hk_saver_save(s, m.map, 4, NULL, 0), HK_E_DENIED);
    assert_message("Read-only file system");
    assert_message(d.path);
    hki_io_fail_at(0, HKI_IO_POWER_CUT, 0);
    hk_saver_destroy(s);
    if (geteuid() != 0) { // root is not stopped by modes
        assert_int_equal(chmod(d.path, 0555), 0);
        assert_status(hk_saver_create(&o, &s), HK_E_IO);
        assert_int_equal(chmod(d.path, 0755), 0);
    }
    check_restore(&d, 3, 0, NULL);
    model_deinit(&m);
    folder_remove(&d);
}

// ---- allocation ------------------------------------------------------------

typedef struct saving {
    hk_saver_options opt;
    model m;
} saving;

static hk_status save_body(void *user) {
    saving *const x = user;
    const hk_meta meta[] = {{"a", "b"}};
    hk_saver *s;
    HKI_TRY(hk_saver_create(&x->opt, &s));
    hk_status status = hk_saver_save(s, x->m.map, 5, meta, 1);
    if (status == HK_OK)
        status = hk_saver_wait(s);
    if (status == HK_OK)
        status = hk_saver_metric(s, 5, 1);
    hk_saver_info info;
    if (status == HK_OK)
        status = hk_saver_get_info(s, &info);
    if (status == HK_OK)
        status = hk_saver_restore(s, x->m.map, NULL, NULL);
    hk_saver_destroy(s);
    return status;
}

static void test_alloc_failures(void **state) {
    (void)state;
    for (uint32_t background = 0; background < 2; background++) {
        folder d;
        saving x;
        folder_make(&d);
        save_three(&d);
        x.opt = saver_options(&d);
        x.opt.keep_max = 2;
        x.opt.keep_best = 1;
        x.opt.background = background;
        model_init(&x.m, 6);
        hk_test_alloc_failures("saver", save_body, &x);
        assert_model(&x.m, 6);
        model_deinit(&x.m);
        folder_remove(&d);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_retention_like_tf),
        cmocka_unit_test(test_keep_best),
        cmocka_unit_test(test_clear),
        cmocka_unit_test(test_go_back),
        cmocka_unit_test(test_state_file),
        cmocka_unit_test(test_state_parse),
        cmocka_unit_test(test_journal_parse),
        cmocka_unit_test(test_fall_back),
        cmocka_unit_test(test_lost_state),
        cmocka_unit_test(test_mismatch_is_no_damage),
        cmocka_unit_test(test_background),
        cmocka_unit_test(test_background_failure),
        cmocka_unit_test(test_lock),
        cmocka_unit_test(test_two_writers),
        cmocka_unit_test(test_special_places),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_disk_full),
        cmocka_unit_test(test_read_only),
        cmocka_unit_test(test_alloc_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
