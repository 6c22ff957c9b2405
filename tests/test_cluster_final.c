// test_cluster_final.c - what a run leaves behind: the final checkpoint of one
// center and of several, what of a worker goes into it, center files read as
// checkpoints, a center that is started after the end, an evaluator that has
// seen nothing.
#include "cluster_bed.h"
#include "info_util.h"
#include "base/io.h"
#include "cluster/roles/final_ckpt.h"
#include "hooke/estimator.h"
#include "hooke/roles.h"

enum {
    SHARDS = 2,
    N = 3000 // floats of the kernel
};

static hk_role_center_info about(hk_role_center *c) {
    hk_role_center_info info;
    hk_role_center_get_info(c, &info);
    return info;
}

static char folder[64];

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

// ---- a cluster of centers ---------------------------------------------------

typedef struct centers {
    uint32_t n;
    char dir[128], address[SHARDS][128], file[SHARDS][192];
    const char *addresses[SHARDS];
    bool in_memory;
    int64_t steps; // limit
    hk_layout *layout;
    hk_role_center *role[SHARDS];
    float values[N + 64];
} centers;

static hk_share share_of(void *user, const hk_entry *e) {
    (void)user;
    return strcmp(e->name, "own") == 0 ? HK_SHARE_LOCAL : HK_SHARE_BY_KIND;
}

static void centers_init(centers *c, uint32_t n) {
    static int count;
    const hk_layout_item items[] = {
        {.name = "kernel",
         .shape = hk_shape_make(1, (int64_t[]){N}),
         .dtype = HK_F32,
         .kind = HK_TRAINABLE},
        {.name = "own",
         .shape = hk_shape_make(1, (int64_t[]){4}),
         .dtype = HK_F32,
         .kind = HK_TRAINABLE},
        {.name = "count",
         .shape = hk_shape_make(1, (int64_t[]){3}),
         .dtype = HK_I32,
         .kind = HK_STATE_COPY},
    };
    *c = (centers){.n = n};
    assert_ok(hk_layout_create(items, HKI_COUNT(items), &c->layout));
    snprintf(c->dir, sizeof c->dir, "%s/m%d", folder, count);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(c->address[i], sizeof c->address[i], "unix:%s/s%d-%u", folder,
                 count, i);
        c->addresses[i] = c->address[i];
        assert_ok(hki_center_file_place(c->dir, i, n, "ext4", c->file[i], 192));
    }
    count++;
    for (size_t i = 0; i < HKI_COUNT(c->values); i++)
        c->values[i] = (float)i / 8;
}

static void centers_start(centers *c) {
    for (uint32_t i = 0; i < c->n; i++) {
        hk_center_server_options so;
        hk_center_options center;
        hk_run_limits limits;
        hk_role_center_options o;
        hk_saver_options saver;
        hk_center_options_init(&center, sizeof center);
        center.chunk_kib = 1;
        center.share = share_of;
        bed_server_options(&so, &c->addresses[i]);
        so.center = &center;
        so.layout = c->layout;
        so.path = c->in_memory ? NULL : c->file[i];
        so.shards = c->addresses;
        so.n_shards = c->n;
        so.shard = i;
        so.lease_ms = 1000;
        so.hello_ms = 60000;
        hk_run_limits_init(&limits, sizeof limits);
        limits.steps = c->steps;
        hk_saver_options_init(&saver, sizeof saver);
        saver.no_fsync = 1;
        hk_role_center_options_init(&o, sizeof o);
        o.server = &so;
        o.limits = &limits;
        o.directory = c->dir;
        o.saver = &saver;
        o.linger_ms = 20000;
        assert_ok(hk_role_center_start(&o, &c->role[i]));
    }
}

static void connect_to(centers *c, hk_connect_options *o) {
    bed_connect_options(o, c->addresses, c->n);
    o->share = share_of;
}

// Values and a step, as training would have left them.
static void centers_assign(centers *c, int64_t step) {
    hk_connect_options o;
    hk_center *center;
    const int32_t side[16] = {1, 2, 3};
    connect_to(c, &o);
    assert_ok(hk_center_connect(&o, c->layout, &center));
    assert_ok(hk_center_assign(center, c->values, side, step, 10000));
    hk_center_destroy(center);
}

static void centers_finish(centers *c, const char *reason) {
    hk_connect_options o;
    hk_center *center;
    connect_to(c, &o);
    assert_ok(hk_center_connect(&o, c->layout, &center));
    assert_ok(hk_center_finish(center, reason, 10000));
    hk_center_destroy(center);
}

static void centers_wait(centers *c) {
    for (uint32_t i = 0; i < c->n; i++) {
        hk_role_result r;
        assert_ok(hk_role_center_wait(c->role[i], 30000, &r));
    }
}

static void centers_stop(centers *c) {
    for (uint32_t i = 0; i < c->n; i++) {
        hk_role_center_stop(c->role[i]);
        c->role[i] = NULL;
    }
}

static void centers_deinit(centers *c) {
    centers_stop(c);
    hk_layout_release(c->layout);
}

static hk_ckpt *open_newest(const centers *c, int64_t expected) {
    hk_ckpt *k;
    char path[4096];
    int64_t step;
    assert_ok(hk_latest_checkpoint(c->dir, path, sizeof path, &step));
    assert_int_equal(step, expected);
    assert_ok(hk_weights_open(path, &k));
    return k;
}

static void check_kernel(const centers *c, hk_ckpt *k) {
    static float values[N];
    const hk_shape shape = hk_shape_make(1, (int64_t[]){N});
    const hk_entry *const e = hk_layout_find(c->layout, "kernel");
    assert_ok(hk_ckpt_read(k, "kernel", HK_F32, &shape, values));
    assert_memory_equal(values, c->values + e->offset, sizeof values);
}

static int64_t number_in(hk_ckpt *k, const char *name) {
    int64_t v = -1;
    const hk_shape scalar = hk_shape_make(0, NULL);
    assert_ok(hk_ckpt_read(k, name, HK_I64, &scalar, &v));
    return v;
}

// ---- the final checkpoint ---------------------------------------------------

static void end_well(uint32_t n, bool in_memory) {
    centers c;
    centers_init(&c, n);
    c.in_memory = in_memory;
    centers_start(&c);
    centers_assign(&c, 77);
    centers_finish(&c, "steps: 77 of 70");
    centers_wait(&c);
    hk_ckpt *k = open_newest(&c, 77);
    assert_string_equal(ckpt_info(k).path, about(c.role[0]).checkpoint);
    assert_string_equal(hk_ckpt_meta(k, "hooke.method"), "elastic");
    assert_int_equal(number_in(k, "hooke/run/global_step"), 77);
    check_kernel(&c, k);
    hk_ckpt_close(k);
    for (uint32_t i = 1; i < n; i++)
        assert_null(about(c.role[i]).checkpoint);
    centers_deinit(&c);
}

static void test_one_center(void **state) {
    (void)state;
    end_well(1, false);
    end_well(1, true);
}

static void test_two_centers(void **state) {
    (void)state;
    end_well(2, false);
    end_well(2, true);
}

// At the end a center waits for an observer, but not for a connection that has
// not said what it is.
static void test_connections_at_the_end(void **state) {
    (void)state;
    const hki_net_options no = {.name = "stranger"};
    for (int opens = 0; opens < 2; opens++) {
        centers c;
        hki_net *net;
        hki_conn *silent = NULL;
        hki_framer f;
        hk_role_result r;
        centers_init(&c, 2);
        centers_start(&c);
        centers_assign(&c, 7);
        assert_ok(hki_net_create(&no, &net));
        const int64_t soon = hki_deadline(10000);
        const hki_msg_open open = {.shard = 1,
                                   .n_shards = 2,
                                   .role = HKI_ROLE_OBSERVER,
                                   .name = "watcher"};
        hki_msg_welcome w;
        if (opens)
            assert_ok(
                hki_link_open(net, c.address[1], &open, NULL, soon, &f, &w));
        else
            assert_ok(hki_connect(net, c.address[1], NULL, soon, &silent));
        centers_finish(&c, "steps: 7 of 7");
        if (opens) {
            assert_ok(hk_role_center_wait(c.role[0], 30000, &r));
            assert_status(hk_role_center_wait(c.role[1], 300, &r),
                          HK_E_TIMEOUT);
            hki_framer_deinit(&f);
        }
        centers_wait(&c);
        if (!opens)
            hki_conn_close(silent);
        hki_net_destroy(net);
        centers_deinit(&c);
    }
}

// A shard whose center 0 does not come is told apart from one that is done.
static void test_nobody_fetches(void **state) {
    (void)state;
    centers c;
    centers_init(&c, 2);
    const char *const address = c.address[1];
    hk_center_server_options so;
    hk_role_center_options o;
    hk_role_center *role;
    hk_role_result r;
    bed_server_options(&so, &address);
    so.layout = c.layout;
    so.shards = c.addresses;
    so.n_shards = 2;
    so.shard = 1;
    hk_role_center_options_init(&o, sizeof o);
    o.server = &so;
    o.linger_ms = 100;
    assert_ok(hk_role_center_start(&o, &role));
    hki_server_finish(about(role).server, "steps: 1 of 1");
    assert_status(hk_role_center_wait(role, 30000, &r), HK_E_UNAVAILABLE);
    assert_non_null(strstr(hk_last_error(),
                           "center 1: center 0 did not fetch this "
                           "shard"));
    hk_role_center_stop(role);
    centers_deinit(&c);
}

// The folder is worker 0's for a moment longer.
static void test_folder_is_busy(void **state) {
    (void)state;
    centers c;
    hk_saver_options so;
    hk_saver *saver;
    hk_role_result r;
    centers_init(&c, 1);
    centers_start(&c);
    centers_assign(&c, 5);
    hk_saver_options_init(&so, sizeof so);
    so.model_dir = c.dir;
    assert_ok(hk_saver_create(&so, &saver));
    centers_finish(&c, "steps: 5 of 5");
    assert_status(hk_role_center_wait(c.role[0], 300, &r), HK_E_TIMEOUT);
    hk_saver_destroy(saver);
    centers_wait(&c);
    hk_ckpt_close(open_newest(&c, 5));
    centers_deinit(&c);
}

// ---- what a worker saved ----------------------------------------------------

// A checkpoint as worker 0 writes it: the model, its average, its own values.
static void worker_saves(centers *c, int64_t step) {
    static float model[N], own[4] = {9, 8, 7, 6}, ema[N];
    static const struct {
        const char *name;
        float *data;
        int64_t n;
    } rows[] = {{"kernel", model, N},
                {"own", own, 4},
                {"hooke/ema/kernel", ema, N},
                {"hooke/worker/0/x/kernel", ema, N}};
    hk_name_map *map;
    hk_saver *saver;
    hk_saver_options so;
    hk_saver_options_init(&so, sizeof so);
    so.model_dir = c->dir;
    so.no_fsync = 1;
    assert_ok(hk_name_map_create(&map));
    for (size_t i = 0; i < HKI_COUNT(rows); i++)
        assert_ok(hk_name_map_add(
            map, &(hk_named){.name = rows[i].name,
                             .dtype = HK_F32,
                             .shape = hk_shape_make(1, &rows[i].n),
                             .data = rows[i].data}));
    assert_ok(hk_saver_create(&so, &saver));
    assert_ok(hk_saver_save(saver, map, step, NULL, 0));
    assert_ok(hk_saver_wait(saver));
    hk_saver_destroy(saver);
    hk_name_map_destroy(map);
}

// Worker 0 comes, and says good-bye.
static void worker_comes(centers *c) {
    hk_connect_options o;
    hk_center *center;
    hk_optimizer_options oo;
    hk_optimizer *opt;
    hk_elastic_options eo;
    hk_elastic *e;
    static float x[N + 64];
    connect_to(c, &o);
    assert_ok(hk_center_connect(&o, c->layout, &center));
    hk_optimizer_options_init(&oo, sizeof oo, HK_OPT_GRADIENT_DESCENT);
    assert_ok(hk_optimizer_create(&oo, c->layout, &opt));
    hk_elastic_options_init(&eo, sizeof eo);
    eo.num_worker = 1;
    assert_ok(hk_elastic_create(&eo, opt, center, &e));
    assert_ok(hk_elastic_init(e, x, 0));
    assert_ok(hk_elastic_leave(e, x));
    hk_elastic_destroy(e);
    hk_optimizer_destroy(opt);
    hk_center_destroy(center);
}

static void take_over(bool leaves) {
    centers c;
    centers_init(&c, 1);
    centers_start(&c);
    centers_assign(&c, 60);
    worker_saves(&c, 40);
    if (leaves)
        worker_comes(&c);
    centers_finish(&c, "steps: 60 of 60");
    centers_wait(&c);
    hk_ckpt *k = open_newest(&c, 60);
    check_kernel(&c, k);
    // What has no center comes from whoever had it last.
    float own[4];
    const hk_shape four = hk_shape_make(1, (int64_t[]){4});
    assert_ok(hk_ckpt_read(k, "own", HK_F32, &four, own));
    assert_true(own[0] == 9 && own[3] == 6);
    // An average of a worker that was not there at the end is of another
    // time.
    assert_true((hk_ckpt_find(k, "hooke/ema/kernel") != NULL) == leaves);
    assert_true((hk_ckpt_find(k, "hooke/worker/0/x/kernel") != NULL) == leaves);
    hk_ckpt_close(k);
    centers_deinit(&c);
}

static void test_worker_left(void **state) {
    (void)state;
    take_over(true);
}

static void test_worker_gone(void **state) {
    (void)state;
    take_over(false);
}

// ---- started again ----------------------------------------------------------

static void test_started_again(void **state) {
    (void)state;
    centers c;
    hk_role_result r;
    for (uint32_t n = 1; n <= 2; n++) {
        centers_init(&c, n);
        centers_start(&c);
        centers_assign(&c, 30);
        centers_finish(&c, "metric: accuracy is 1");
        centers_wait(&c);
        centers_stop(&c);
        centers_start(&c); // over at once, with the reason of then
        centers_wait(&c);
        assert_ok(hk_role_center_wait(c.role[0], 0, &r));
        assert_int_equal(r.end, HK_END_METRIC);
        assert_non_null(about(c.role[0]).checkpoint);
        centers_stop(&c);
        c.steps = 50; // more is asked for: it goes on
        centers_start(&c);
        assert_status(hk_role_center_wait(c.role[0], 400, &r), HK_E_TIMEOUT);
        centers_finish(&c, "steps: 50 of 50");
        centers_wait(&c);
        centers_deinit(&c);
    }
}

// ---- center files -----------------------------------------------------------

static void test_files(void **state) {
    (void)state;
    centers c;
    hk_ckpt *k;
    char moved[192];
    centers_init(&c, 2);
    centers_start(&c);
    assert_true(hki_center_file_is(c.file[0]));
    assert_false(hki_center_file_is(c.dir));
    assert_status(hk_weights_open(c.file[1], &k), HK_E_EXISTS);
    assert_non_null(strstr(hk_last_error(), "a running center uses this file"));
    centers_stop(&c);
    assert_status(hk_weights_open(c.file[1], &k), HK_E_STATE);
    assert_non_null(strstr(hk_last_error(), "has no values"));
    centers_start(&c);
    centers_assign(&c, 12);
    centers_stop(&c);
    for (uint32_t i = 0; i < 2; i++) {
        assert_ok(hk_weights_open(c.file[i], &k));
        assert_int_equal(ckpt_info(k).format, HK_CKPT_CENTER);
        assert_string_equal(hk_ckpt_meta(k, "hooke.step"), "12");
        assert_int_equal(number_in(k, "hooke/run/global_step"), 12);
        check_kernel(&c, k);
        hk_ckpt_close(k);
    }
    snprintf(moved, sizeof moved, "%s/away", folder);
    assert_int_equal(rename(c.file[0], moved), 0);
    assert_status(hk_weights_open(c.file[1], &k), HK_E_NOT_FOUND);
    assert_non_null(strstr(hk_last_error(), "shard 0 is not in"));
    centers_deinit(&c);
}

static void test_places(void **state) {
    (void)state;
    static const char mounts[] =
        "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
        "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
        "40 27 0:52 / /home rw shared:1 - nfs4 server:/home rw,vers=4.2\n"
        "41 27 0:53 / /ssh rw - fuse.sshfs me@there:/ rw";
    char type[HKI_MOUNT_TYPE], path[64];
    hki_mount_find(mounts, 0, 52, type);
    assert_string_equal(type, "nfs4");
    hki_mount_find(mounts, 0, 53, type);
    assert_string_equal(type, "fuse.sshfs");
    hki_mount_find(mounts, 254, 0, type);
    assert_string_equal(type, "ext4");
    hki_mount_find(mounts, 9, 9, type);
    assert_string_equal(type, "");
    hki_mount_type("/proc", type);
    assert_string_equal(type, "proc");
    assert_true(hki_mount_is_copy_on_write("btrfs"));
    assert_false(hki_mount_is_copy_on_write("ext4"));
    // Makes the folder, and says where the files of two shards go.
    char dir[96], expected[128];
    snprintf(dir, sizeof dir, "%s/new/model", folder);
    assert_ok(hk_center_file_of(dir, 1, 2, path, sizeof path));
    snprintf(expected, sizeof expected, "%s/center-1.bin", dir);
    assert_string_equal(path, expected);
    assert_true(hki_path_is_dir(dir));
    assert_status(hk_center_file_of(NULL, 0, 1, path, sizeof path),
                  HK_E_INVALID_ARG);
    assert_status(hki_center_file_place("d", 0, 1, "nfs4", path, sizeof path),
                  HK_E_UNSUPPORTED);
    assert_non_null(strstr(hk_last_error(), "to keep the center in memory"));
    assert_status(
        hki_center_file_place("d", 0, 1, "fuse.sshfs", path, sizeof path),
        HK_E_UNSUPPORTED);
    assert_ok(hki_center_file_place("d", 0, 1, "", path, sizeof path));
    assert_string_equal(path, "d/center.bin");
    assert_ok(hki_center_file_place("d", 3, 4, "xfs", path, sizeof path));
    assert_string_equal(path, "d/center-3.bin");
    assert_status(hki_center_file_place("d", 3, 4, "xfs", path, 8),
                  HK_E_INVALID_ARG);
}

// ---- an evaluator -----------------------------------------------------------

static hk_status judge_one(void *user, const hk_evaluation *what,
                           hk_measure *out, size_t capacity, size_t *n) {
    int *const finals = user;
    (void)out;
    (void)capacity;
    *finals += what->is_final != 0;
    *n = 0;
    return HK_OK;
}

static hk_status evaluate(centers *c, bool from_center, int *finals) {
    hk_connect_options co;
    hk_role_evaluator_options o;
    hk_role_result r;
    connect_to(c, &co);
    hk_role_evaluator_options_init(&o, sizeof o);
    if (from_center)
        o.layout = c->layout;
    else
        co.n_addresses = 0;
    o.connect = &co;
    o.directory = c->dir;
    o.evaluate = judge_one;
    o.user = finals;
    o.poll_ms = 10;
    o.throttle_ms = 0;
    o.lost_ms = 20000;
    return hk_role_evaluator_run(&o, &r);
}

static void test_evaluator(void **state) {
    (void)state;
    centers c;
    char path[192];
    int finals = 0;
    centers_init(&c, 1);
    centers_start(&c);
    centers_assign(&c, 0); // values that nobody has trained
    hki_server_finish(about(c.role[0]).server, "steps: told");
    assert_status(evaluate(&c, true, &finals), HK_E_STATE);
    assert_non_null(strstr(hk_last_error(), "without a trained model"));
    centers_stop(&c);
    snprintf(path, sizeof path, "%s/run.done", c.dir);
    assert_ok(hki_file_replace(path, "{}\n", 3, false));
    assert_status(evaluate(&c, false, &finals), HK_E_STATE);
    assert_int_equal(finals, 0);
    worker_saves(&c, 10);
    assert_ok(evaluate(&c, false, &finals));
    assert_int_equal(finals, 1);
    centers_deinit(&c);
}

// An observer that means harm: it fills every board and says what only workers
// and center 0 may say. The run goes on, and its checkpoint is written.
static void test_hostile_observer(void **state) {
    (void)state;
    centers c;
    centers_init(&c, 2);
    centers_start(&c);
    centers_assign(&c, 77);
    hk_connect_options o;
    hk_center *observer;
    connect_to(&c, &o);
    o.observer = 1;
    assert_ok(hk_center_connect(&o, c.layout, &observer));
    const int64_t soon = hki_deadline(30000);
    hk_status s = HK_OK;
    for (int i = 0; s == HK_OK && i < 1000; i++) {
        char key[16];
        snprintf(key, sizeof key, "n%d", i);
        s = hki_center_post_all(observer, key, "x", 1, soon);
    }
    assert_status(s, HK_E_OVERFLOW);
    const char limits[] = "{\"steps\": 1}";
    assert_status(hki_center_post(observer, "limits", limits, sizeof limits - 1,
                                  false, soon),
                  HK_E_DENIED);
    assert_status(hki_center_post_all(observer, "fetched", "1", 1, soon),
                  HK_E_DENIED);
    assert_status(hk_center_finish(observer, "enough", 10000), HK_E_DENIED);
    assert_ok(hk_center_snapshot(observer, HK_CENTER_VALUES, 10000, c.values,
                                 NULL, NULL));
    hki_nap(NULL, 1500); // centers look at their notes every second
    for (uint32_t i = 0; i < c.n; i++) {
        hk_server_info info;
        assert_ok(hk_center_server_get_info(about(c.role[i]).server, &info));
        assert_int_equal(info.finished, 0);
    }
    hk_center_destroy(observer);
    centers_finish(&c, "steps: 77 of 70");
    centers_wait(&c);
    hk_ckpt *const k = open_newest(&c, 77);
    check_kernel(&c, k);
    hk_ckpt_close(k);
    centers_deinit(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_center),
        cmocka_unit_test(test_two_centers),
        cmocka_unit_test(test_connections_at_the_end),
        cmocka_unit_test(test_nobody_fetches),
        cmocka_unit_test(test_folder_is_busy),
        cmocka_unit_test(test_worker_left),
        cmocka_unit_test(test_worker_gone),
        cmocka_unit_test(test_started_again),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_evaluator),
        cmocka_unit_test(test_hostile_observer),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
