// test_cluster_power.c - the power goes at any change of a center's files: what
// a center finds when it is started again.
#include "cluster_bed.h"
#include "disk_model.h"

#define FLOATS 700 // three chunks of 256
#define CHUNKS 3
#define EXCHANGES 4

static const hki_patience no_wait = {.deadline_ns = 0};
static float ones[256];

static void options(hki_shard_options *o, const char *path,
                    hki_durability durability) {
    hk_center_options center;
    hk_center_options_init(&center, sizeof center);
    center.chunk_kib = 1;
    center.max_workers = 2;
    *o = (hki_shard_options){.name = "test",
                             .path = path,
                             .n_shards = 1,
                             .max_norm = 1e6,
                             .durability = durability,
                             .lease_ms = 1000};
    assert_ok(hki_center_options_check(&center, &o->center));
}

static hk_status create(const hki_shard_options *o, hki_shard **out) {
    static const uint8_t share[] = {HK_SHARE_EXCHANGE};
    const hk_layout_item item = {.name = "kernel",
                                 .shape = hk_shape_make(1, (int64_t[]){FLOATS}),
                                 .dtype = HK_F32,
                                 .kind = HK_TRAINABLE};
    HKI_SCOPED(hk_layout_release_at) hk_layout *l = NULL;
    assert_ok(hk_layout_create(&item, 1, &l));
    return hki_shard_create(o, l, share, out);
}

// What was acknowledged.
typedef struct progress {
    bool created, begun;
    uint64_t exchange; // of worker 0
    uint32_t units;    // of it
    uint64_t snapshot; // exchanges in the last one that was written
} progress;

// One exchange, in which every unit adds 1 to its chunk.
static hk_status exchange_once(hki_shard *s, hki_claim *c, progress *p) {
    const hki_msg_begin m = {
        .rate = 0.5, .flags = HKI_BEGIN_BEFORE, .last = CHUNKS};
    hki_shard_run r = {.scratch = NULL};
    HKI_TRY(hki_shard_begin(s, c, p->exchange + 1, &m, &no_wait, &r));
    p->exchange++;
    p->units = 0;
    for (; p->units < CHUNKS; p->units++)
        HKI_TRY(hki_shard_apply(s, &r, p->units, ones, false));
    return hki_shard_end(s, &r, &no_wait);
}

static hk_status snapshot(hki_shard *s, progress *p) {
    hki_shard_copy *copy;
    HKI_TRY(hki_cut_create(s, HKI_COPY_OWN, &copy));
    hk_status status = hki_shard_cut(s, NULL, &no_wait, copy);
    if (status == HK_OK)
        status = hki_cut_write(s, copy, p->exchange, false);
    hki_cut_free(s, copy);
    if (status == HK_OK)
        p->snapshot = p->exchange;
    return status;
}

static hk_status work(hki_shard *s, progress *p) {
    const hki_msg_join m = {.task = 0};
    hki_msg_joined joined;
    hki_claim c;
    hki_shard_assigned(s, 0, 42);
    HKI_TRY(hki_shard_join(s, &m, "test", &c, &joined));
    for (int i = 0; i < EXCHANGES; i++) {
        HKI_TRY(exchange_once(s, &c, p));
        if (s->durability == HKI_DURABLE_SNAPSHOT && i % 2 == 0)
            HKI_TRY(snapshot(s, p));
    }
    return HK_OK;
}

// A center that makes its file and ends in good order, then one that works.
static hk_status run_twice(const hki_shard_options *o, progress *p) {
    hki_shard *s;
    HKI_TRY(create(o, &s));
    p->created = true;
    hki_shard_close(s);
    HKI_TRY(hki_shard_open(o, &s));
    const hk_status status = work(s, p);
    s->file.head = NULL; // nobody closes it in good order
    hki_shard_close(s);
    return status;
}

// Until the power goes at the nth change of a file; false: it held.
static bool run_until(const hki_shard_options *o, uint64_t nth, progress *p) {
    hki_io_fail_at(nth, HKI_IO_POWER_CUT, EIO);
    (void)run_twice(o, p);
    const bool went = hki_io_fault_hit();
    hki_io_fail_at(0, HKI_IO_ONE_FAILS, 0);
    return went;
}

// The file was in use by another boot of the machine.
static void reboot(const char *path) {
    const int fd = open(path, O_RDWR);
    const char boot[40] = "another";
    if (fd < 0)
        return;
    assert_int_equal(
        pwrite(fd, boot, sizeof boot, offsetof(hki_center_head, boot)),
        sizeof boot);
    close(fd);
}

// The values are those of the cursor, whole, and none of what was acknowledged
// is missing: at least `exchange` exchanges and `units` of the last.
static void check(const hki_shard *s, uint64_t exchange, uint32_t units,
                  const char *when) {
    const uint64_t cursor = hki_load64(&s->file.worker[0].cursor);
    const uint64_t at = HKI_CURSOR_EXCHANGE(cursor);
    const uint32_t applied = HKI_CURSOR_UNITS(cursor);
    if (cursor < HKI_CURSOR(exchange, units))
        fail_msg("%s: %llu.%u was acknowledged, %llu.%u is there", when,
                 (unsigned long long)exchange, units, (unsigned long long)at,
                 applied);
    for (uint32_t i = 0; i < FLOATS; i++) {
        const uint32_t chunk = i / 256;
        const float want = (float)(at - (at > 0 && chunk >= applied));
        if (s->values[i] != want)
            fail_msg("%s: value %u is %g, not %g", when, i,
                     (double)s->values[i], (double)want);
    }
}

static bool lose_power(hki_durability durability, disk_loss loss,
                       uint64_t nth) {
    char path[512], when[64];
    folder f;
    hki_shard_options o;
    hki_shard *s;
    progress p = {.exchange = 0};
    snprintf(when, sizeof when, "policy %d, loss %d, call %d", (int)durability,
             (int)loss, (int)nth);
    folder_make(&f);
    options(&o, folder_path(&f, "center.bin", path), durability);
    disk_init();
    const bool went = run_until(&o, nth, &p);
    disk_crash(f.path, loss);
    disk_deinit();
    reboot(path);
    const hk_status status = hki_shard_open(&o, &s);
    const bool is_new = status == HK_E_NOT_FOUND && !p.created;
    if (status != HK_OK && !is_new)
        fail_msg("%s: %s", when, hk_last_error());
    if (status == HK_OK && durability == HKI_DURABLE_ALWAYS)
        check(s, p.exchange, p.units, when);
    else if (status == HK_OK && p.snapshot > 0)
        check(s, p.snapshot, CHUNKS, when);
    if (status == HK_OK)
        hki_shard_close(s);
    folder_remove(&f);
    return went;
}

static void lose_power_everywhere(hki_durability durability) {
    for (int loss = 0; loss < DISK_LOSS_COUNT; loss++)
        for (uint64_t nth = 1; lose_power(durability, (disk_loss)loss, nth);)
            nth++;
}

static void test_always(void **state) {
    (void)state;
    lose_power_everywhere(HKI_DURABLE_ALWAYS);
}

// Nothing is flushed while it runs; a center starts all the same.
static void test_process(void **state) {
    (void)state;
    lose_power_everywhere(HKI_DURABLE_PROCESS);
}

static void test_snapshots(void **state) {
    (void)state;
    lose_power_everywhere(HKI_DURABLE_SNAPSHOT);
}

// ---- what was flushed ----------------------------------------------------------

// A center that does all of its work before the power goes: the exchanges that
// are there afterwards.
static uint64_t exchanges_left(hki_durability durability, disk_loss loss,
                               bool *lost) {
    char path[512];
    folder f;
    hki_shard_options o;
    hki_shard *s;
    progress p = {.exchange = 0};
    folder_make(&f);
    options(&o, folder_path(&f, "center.bin", path), durability);
    disk_init();
    assert_ok(run_twice(&o, &p));
    assert_int_equal(p.exchange, EXCHANGES);
    assert_int_equal(disk_mappings(), 0);
    assert_int_equal(disk.n_open, 0);
    disk_crash(f.path, loss);
    disk_deinit();
    reboot(path);
    assert_ok(hki_shard_open(&o, &s));
    check(s, 0, 0, "all done");
    const uint64_t cursor = hki_load64(&s->file.worker[0].cursor);
    *lost = s->lost;
    hki_shard_close(s);
    folder_remove(&f);
    return HKI_CURSOR_EXCHANGE(cursor);
}

// Pages of the center file that were not flushed are lost with the power, and
// the center knows that some may be.
static void test_lost_pages(void **state) {
    (void)state;
    bool lost;
    assert_int_equal(exchanges_left(HKI_DURABLE_PROCESS, DISK_KEEPS_ALL, &lost),
                     EXCHANGES);
    assert_true(lost);
    assert_int_equal(
        exchanges_left(HKI_DURABLE_PROCESS, DISK_LOSES_DATA, &lost), 0);
    assert_true(lost);
    assert_int_equal(exchanges_left(HKI_DURABLE_ALWAYS, DISK_LOSES_DATA, &lost),
                     EXCHANGES);
    assert_false(lost);
}

// ---- a snapshot and the run file --------------------------------------------

static _Atomic int run_flushes; // of FILE.run itself

static int count_fsync(int fd) {
    char link[64], path[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    if (n > 4 && strcmp(path + n - 4, ".run") == 0)
        atomic_fetch_add(&run_flushes, 1);
    return hki_io_system.fsync(fd);
}

#define MOST_SHARDS 2

// Begins a run; then waits until the run file is flushed.
static void run_servers(const char *durability, uint32_t n) {
    folder f;
    char path[512], address[MOST_SHARDS][128], name[16];
    const char *const at[MOST_SHARDS] = {address[0], address[1]};
    float x[FLOATS] = {0};
    hk_center_server_options o;
    hk_center_options co;
    hk_connect_options connect;
    hk_center_server *server[MOST_SHARDS];
    hk_center *c;
    hki_member m;
    folder_make(&f);
    hk_center_options_init(&co, sizeof co);
    co.chunk_kib = 1;
    for (uint32_t i = 0; i < n; i++)
        snprintf(address[i], sizeof address[i], "unix:%.100s/s%u", f.path, i);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%u.bin", i);
        bed_server_options(&o, &at[i]);
        o.center = &co;
        o.path = folder_path(&f, name, path);
        o.durability = durability;
        o.shard = i;
        o.n_shards = n;
        o.shards = at;
        assert_ok(hk_center_server_start(&o, &server[i]));
    }
    hk_layout *const l = suite_center_layout((int64_t[]){FLOATS}, 1);
    bed_connect_options(&connect, at, n);
    assert_ok(hk_center_connect(&connect, l, &c));
    assert_ok(c->ops->join(c, 0, hki_deadline(10000), &m));
    assert_ok(c->ops->init_if_empty(c, m, x, NULL, hki_deadline(10000)));
    const hki_msg_call done = {.op = HKI_CALL_DONE};
    hki_msg_result r;
    assert_ok(hki_center_call(c, &done, "hear", hki_deadline(10000), &r));
    const int64_t deadline = hki_deadline(durability == NULL ? 0 : 20000);
    while (atomic_load(&run_flushes) == 0 && hki_now_ns() < deadline)
        hki_nap(NULL, 1);
    hk_center_destroy(c);
    for (uint32_t i = 0; i < n; i++)
        hk_center_server_stop(server[i]);
    hk_layout_release(l);
    folder_remove(&f);
}

// With snapshots the run file is flushed behind each; otherwise never.
static void test_run_file(void **state) {
    (void)state;
    static hki_io_table table;
    table = hki_io_system;
    table.fsync = count_fsync;
    hki_io_replace(&table);
    run_servers(NULL, 1);
    assert_int_equal(atomic_load(&run_flushes), 0);
    for (uint32_t n = 1; n <= MOST_SHARDS; n++) {
        atomic_store(&run_flushes, 0);
        run_servers("snapshot:0.02", n);
        assert_true(atomic_load(&run_flushes) > 0);
    }
    hki_io_replace(NULL);
}

static int setup(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(ones); i++)
        ones[i] = 1;
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_file),   cmocka_unit_test(test_always),
        cmocka_unit_test(test_snapshots),  cmocka_unit_test(test_process),
        cmocka_unit_test(test_lost_pages),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
