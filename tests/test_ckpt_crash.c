// test_ckpt_crash.c - the power goes at every call that changes a file, and
// every such call fails once: the newest complete checkpoint is always there,
// it is what it should be, and nothing else stays.
#include "ckpt_util.h"
#include "info_util.h"
#include "disk_model.h"

#define EVERY_LOSS 0x3fu
#define SOME_LOSSES                                                            \
    (1u << DISK_ZEROS_DATA | 1u << DISK_LOSES_ALL | 1u << DISK_LOSES_ONE)

// What is tried: saves into a folder that holds steps 1 and 2 (keep_max 2),
// of models 1 and 2; the last one is model 3.
static const struct scene {
    const char *name;
    hk_ckpt_format format;
    uint64_t shard_bytes;
    int64_t step;    // of the save under test
    size_t files;    // of a checkpoint
    bool metric;     // a metric beforehand keeps step 1
    bool first;      // the folder is empty before
    unsigned losses; // bits by disk_loss
} scenes[] = {
    {"one file", HK_CKPT_SAFETENSORS, 0, 3, 1, false, false, EVERY_LOSS},
    {"the first save", HK_CKPT_SAFETENSORS, 0, 3, 1, false, true, SOME_LOSSES},
    {"same step again", HK_CKPT_SAFETENSORS, 0, 2, 1, false, false,
     SOME_LOSSES},
    {"kept for its metric", HK_CKPT_SAFETENSORS, 0, 3, 1, true, false,
     SOME_LOSSES},
    {"shards", HK_CKPT_SAFETENSORS, 40, 3, 4, false, false, EVERY_LOSS},
    {"shards, first", HK_CKPT_SAFETENSORS, 40, 3, 4, false, true, SOME_LOSSES},
    {"shards, same step", HK_CKPT_SAFETENSORS, 40, 2, 4, false, false,
     EVERY_LOSS},
    {"TF's form", HK_CKPT_TF, 0, 3, 2, false, false, EVERY_LOSS},
    {"TF's form, first", HK_CKPT_TF, 0, 3, 2, false, true, SOME_LOSSES},
};

static hk_saver_options options_of(const struct scene *k, const folder *d) {
    hk_saver_options o;
    hk_saver_options_init(&o, sizeof o);
    o.model_dir = d->path;
    o.format = k->format;
    o.shard_bytes = k->shard_bytes;
    o.keep_max = 2;
    o.keep_best = 1;
    o.background = 0;
    return o;
}

static void prepare(const struct scene *k, const folder *d) {
    hk_saver_options o = options_of(k, d);
    hk_saver *s;
    model m;
    if (k->first)
        return;
    model_init(&m, 1);
    assert_ok(hk_saver_create(&o, &s));
    assert_ok(hk_saver_save(s, m.map, 1, NULL, 0));
    if (k->metric)
        assert_ok(hk_saver_metric(s, 1, 0.5));
    model_fill(&m, 2);
    assert_ok(hk_saver_save(s, m.map, 2, NULL, 0));
    hk_saver_destroy(s);
    model_deinit(&m);
}

// The whole operation, from opening the folder on.
static hk_status save_third(const struct scene *k, const folder *d) {
    hk_saver_options o = options_of(k, d);
    hk_saver *s;
    model m;
    model_init(&m, 3);
    hk_status status = hk_saver_create(&o, &s);
    if (status == HK_OK) {
        status = hk_saver_save(s, m.map, k->step, NULL, 0);
        hk_saver_destroy(s);
    }
    model_deinit(&m);
    return status;
}

// Every file is a checkpoint's of the list, the state or the lock.
static void check_files(const struct scene *k, const folder *d, hk_saver *s,
                        const char *when) {
    const size_t count = saver_info(s).item_count;
    const size_t expected = count * k->files + 1 + (count > 0);
    const size_t there = count_files(d->path);
    if (there == expected && file_there(d, ".hooke.lock"))
        return;
    DIR *const dir = opendir(d->path);
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        print_message("  %s\n", e->d_name);
    closedir(dir);
    fail_msg("%s: %s: %zu checkpoints, %zu files instead of %zu", k->name, when,
             count, there, expected);
}

// A new process: what it restores, what it finds, and that it can go on.
static void check_after(const struct scene *k, const folder *d, bool saved,
                        const char *when) {
    hk_saver_options o = options_of(k, d);
    hk_saver *s;
    hk_ckpt *c;
    model m;
    int64_t step = -1;
    model_init(&m, 9);
    assert_ok(hk_saver_create(&o, &s));
    check_files(k, d, s, when);
    const hk_status status = hk_saver_restore(s, m.map, NULL, NULL);
    const bool old = !saved && (k->first ? status == HK_E_NOT_FOUND
                                         : status == HK_OK && model_is(&m, 2));
    if (!old && (status != HK_OK || !model_is(&m, 3)))
        fail_msg("%s: %s: %s; weights begin with %g: %s", k->name, when,
                 hk_status_string(status), (double)m.w[0], hk_last_error());
    if (status == HK_OK) {
        assert_ok(hk_saver_open_latest(s, &c, &step));
        assert_int_equal(step, old ? 2 : k->step);
        hk_ckpt_close(c);
    }
    for (size_t i = 0; i < saver_info(s).item_count;
         i++) { // all that is listed
        assert_ok(hk_ckpt_open(saver_info(s).items[i].path, k->format, &c));
        hk_ckpt_close(c);
    }
    model_fill(&m, 4);
    assert_ok(hk_saver_save(s, m.map, 4, NULL, 0));
    check_files(k, d, s, when);
    model_fill(&m, 9);
    assert_ok(hk_saver_restore(s, m.map, NULL, NULL));
    assert_model(&m, 4);
    hk_saver_destroy(s);
    model_deinit(&m);
}

static void test_power_cut(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(scenes); i++) {
        const struct scene *const k = &scenes[i];
        uint64_t calls = 0;
        for (int loss = 0; loss < DISK_LOSS_COUNT; loss++)
            for (uint64_t n = 1; (k->losses & 1u << loss) != 0; n++) {
                folder d;
                char when[64];
                snprintf(when, sizeof when, "cut at call %d, loss %d", (int)n,
                         loss);
                folder_make(&d);
                disk_init();
                prepare(k, &d);
                disk_flush();
                hki_io_fail_at(n, HKI_IO_POWER_CUT, EIO);
                const hk_status status = save_third(k, &d);
                const bool hit = hki_io_fault_hit();
                hki_io_fail_at(0, HKI_IO_POWER_CUT, 0);
                if (status != HK_OK && !hit)
                    fail_msg("%s: %s: %s", k->name, when, hk_last_error());
                // What was reported as saved survives the loss.
                disk_crash(d.path, (disk_loss)loss);
                check_after(k, &d, status == HK_OK, when);
                disk_deinit();
                folder_remove(&d);
                calls = n;
                if (!hit)
                    break;
            }
        print_message("%s: %d calls\n", k->name, (int)calls - 1);
        assert_true(calls > 10);
    }
}

// Call n of a save fails; the process goes on, with another save or without.
// False when there is no such call.
static bool fail_once(const struct scene *k, uint64_t n, bool again) {
    folder d;
    char when[64];
    model m;
    hk_saver *s;
    snprintf(when, sizeof when, "call %d fails, again %d", (int)n, again);
    disk_flush();
    folder_make(&d);
    prepare(k, &d);
    hk_saver_options o = options_of(k, &d);
    assert_ok(hk_saver_create(&o, &s));
    model_init(&m, 3);
    hki_io_fail_at(n, HKI_IO_ONE_FAILS, ENOSPC);
    const hk_status status = hk_saver_save(s, m.map, k->step, NULL, 0);
    const bool hit = hki_io_fault_hit();
    hki_io_fail_at(0, HKI_IO_ONE_FAILS, 0);
    model_fill(&m, 9);
    const hk_status after = hk_saver_restore(s, m.map, NULL, NULL);
    const bool old =
        status != HK_OK && (k->first ? after == HK_E_NOT_FOUND
                                     : after == HK_OK && model_is(&m, 2));
    if (!old && (after != HK_OK || !model_is(&m, 3)))
        fail_msg("%s: %s: %s after %s", k->name, when, hk_status_string(after),
                 hk_status_string(status));
    if (again) {
        model_fill(&m, 5);
        assert_ok(hk_saver_save(s, m.map, 5, NULL, 0));
        model_fill(&m, 9);
        assert_ok(hk_saver_restore(s, m.map, NULL, NULL));
        assert_model(&m, 5);
        // A removal that failed is made good by the next saver at the latest.
        hk_saver_destroy(s);
        assert_ok(hk_saver_create(&o, &s));
        check_files(k, &d, s, when);
    }
    hk_saver_destroy(s);
    if (!again)
        check_after(k, &d, status == HK_OK, when);
    model_deinit(&m);
    folder_remove(&d);
    return hit;
}

static void test_one_failure(void **state) {
    (void)state;
    disk_init();
    for (size_t i = 0; i < HKI_COUNT(scenes); i++)
        for (uint64_t n = 1; fail_once(&scenes[i], n, false); n++)
            fail_once(&scenes[i], n, true);
    disk_deinit();
}

// ---- single checkpoints ----------------------------------------------------

// One path, written over as model 2 after model 1.
static const struct rewrite {
    const char *name, *path;
    uint64_t before, after; // shard_bytes
    size_t files;           // in the end
} rewrites[] = {
    {"file over file", "m.safetensors", 0, 0, 1},
    {"shards over shards", "m.safetensors", 40, 40, 4},
    {"shards over file", "m.safetensors", 0, 40, 4},
    {"file over shards", "m.safetensors", 40, 0, 1},
    {"fewer shards", "m.safetensors", 30, 60, 3},
    {"npz over npz", "m.npz", 0, 0, 1},
};

static hk_status write_model(const char *path, int seed, uint64_t shard_bytes) {
    model m;
    hk_write_options o;
    hk_write_options_init(&o, sizeof o);
    o.shard_bytes = shard_bytes;
    model_init(&m, seed);
    const hk_status s = hk_ckpt_write(path, m.map, &o);
    model_deinit(&m);
    return s;
}

static int read_seed(const char *path) {
    model m;
    hk_ckpt *c;
    model_init(&m, 9);
    assert_ok(hk_ckpt_open(path, HK_CKPT_AUTO, &c));
    assert_ok(hk_ckpt_restore(c, m.map, NULL, NULL));
    hk_ckpt_close(c);
    int seed = 1;
    while (seed < 5 && !model_is(&m, seed))
        seed++;
    model_deinit(&m);
    return seed;
}

static void test_rewrite(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(rewrites); i++)
        for (int loss = 0; loss < DISK_LOSS_COUNT; loss++)
            for (uint64_t n = 1;; n++) {
                const struct rewrite *const k = &rewrites[i];
                folder d;
                char path[512];
                folder_make(&d);
                folder_path(&d, k->path, path);
                disk_init();
                assert_ok(write_model(path, 1, k->before));
                disk_flush();
                hki_io_fail_at(n, HKI_IO_POWER_CUT, EIO);
                const hk_status s = write_model(path, 2, k->after);
                const bool hit = hki_io_fault_hit();
                hki_io_fail_at(0, HKI_IO_POWER_CUT, 0);
                disk_crash(d.path, (disk_loss)loss);
                const int seed = read_seed(path);
                if (seed != 2 && (seed != 1 || s == HK_OK))
                    fail_msg("%s: cut at call %d, loss %d: model %d after %s",
                             k->name, (int)n, loss, seed, hk_status_string(s));
                assert_ok(write_model(path, 3, k->after));
                assert_int_equal(read_seed(path), 3);
                if (count_files(d.path) != k->files)
                    fail_msg("%s: cut at call %d, loss %d: %zu files", k->name,
                             (int)n, loss, count_files(d.path));
                disk_deinit();
                folder_remove(&d);
                if (!hit)
                    break;
            }
}

int main(void) {
    // Thousands of small files: in memory where the system has such a place.
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_power_cut),
        cmocka_unit_test(test_one_failure),
        cmocka_unit_test(test_rewrite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
