// test_cluster_faults.c - one thing fails inside a running center: any change
// of any of its files, with ENOSPC and EIO, and any of its allocations.
//
// A center in a process of its own and a worker of this one train on leased
// data to a limit of steps. Whatever fails, the worker ends well, no step is
// lost or counted twice, and a center that had to end says why and is through
// when it is started again on the same files.
#include "hk_test.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/io.h"
#include "hooke/elastic.h"
#include "hooke/ranges.h"
#include "hooke/roles.h"

enum {
    N = 3072, // floats of the model
    STEPS = 60,
    UNITS = 1000,
    DEADLINE_S = 60
};

typedef struct fault {
    uint64_t nth;
    int error; // of files; 0: the nth allocation fails
} fault;

// What the center's process says at its end; one write.
typedef struct report {
    hk_status first, status; // of the start with the fault; of the last one
    bool hit, is_over;       // the fault came; there is a run.done
    int64_t global_step;
    char text[300]; // of `first`
} report;

// ---- the center's process ---------------------------------------------------

static void arm(const fault *f) {
    if (f->error != 0)
        hki_io_fail_at(f->nth, HKI_IO_ONE_FAILS, f->error);
    else
        hki_alloc_fail_at(f->nth);
}

static bool disarm(const fault *f) {
    const bool hit = f->error != 0 ? hki_io_fault_hit() : hki_alloc_fault_hit();
    hki_io_fail_at(0, HKI_IO_ONE_FAILS, 0);
    hki_alloc_fail_at(0);
    return hit;
}

static hk_status run_center(const char *folder, hk_role_result *r) {
    char address[96], file[96], directory[96];
    const char *const addresses[] = {address};
    hk_center_server_options so;
    hk_role_center_options o;
    hk_run_limits limits;
    hk_role_center *c;
    snprintf(address, sizeof address, "unix:%s/s", folder);
    snprintf(file, sizeof file, "%s/center.bin", folder);
    snprintf(directory, sizeof directory, "%s/model", folder);
    hk_center_server_options_init(&so, sizeof so);
    so.addresses = addresses;
    so.n_addresses = 1;
    so.path = file;
    so.durability = "snapshot:0.02";
    hk_run_limits_init(&limits, sizeof limits);
    limits.steps = STEPS;
    hk_role_center_options_init(&o, sizeof o);
    o.server = &so;
    o.limits = &limits;
    o.directory = directory;
    o.linger_ms = 5000;
    HKI_TRY(hk_role_center_start(&o, &c));
    const hk_status s = hk_role_center_wait(c, -1, r);
    hk_role_center_stop(c);
    return s;
}

static void center_main(const char *folder, const fault *f, int to) {
    report r = {.first = HK_OK};
    char done[96];
    hk_role_result result = {0};
    alarm(DEADLINE_S);
    arm(f);
    r.status = r.first = run_center(folder, &result);
    if (r.first != HK_OK)
        snprintf(r.text, sizeof r.text, "%.299s", hk_last_error());
    r.hit = disarm(f);
    if (r.first != HK_OK) // as whoever looks after it does
        r.status = run_center(folder, &result);
    if (r.first != HK_OK && r.status != HK_OK)
        snprintf(r.text, sizeof r.text, "again: %.280s", hk_last_error());
    snprintf(done, sizeof done, "%s/model/run.done", folder);
    r.is_over = access(done, F_OK) == 0;
    r.global_step = result.global_step;
    _exit(write(to, &r, sizeof r) == (ssize_t)sizeof r ? 0 : 1);
}

// ---- the worker ---------------------------------------------------------------

typedef struct hand {
    float x[N], grad[N];
    int64_t steps;
    hk_run_end end;
} hand;

static hk_status take(hk_center *c, uint32_t *set, hk_range *r) {
    const hk_lent_set what = {
        .name = "rows", .fingerprint = 7, .units = UNITS, .epochs = -1};
    uint64_t seed;
    hk_status s = hk_center_take_range(c, 0, *set, 20000, r);
    if (s == HK_E_NOT_FOUND) { // a center that started anew has forgotten it
        HKI_TRY(hk_center_declare_set(c, 0, &what, 20000, set, &seed));
        s = hk_center_take_range(c, 0, *set, 20000, r);
    }
    return s == HK_E_UNAVAILABLE ? HK_OK : s; // all of it is out: asks again
}

static hk_status train(hand *h, hk_role_worker *w, hk_elastic *e) {
    const hk_grad_view view = {.dense = h->grad, .n_dense = N, .scale = 1};
    hk_center *const c = hk_role_worker_center(w);
    uint32_t set = UINT32_MAX;
    while (h->end == HK_END_NONE) {
        hk_range r = {0};
        HKI_TRY(take(c, &set, &r));
        for (int i = 0; i < 5 && h->end == HK_END_NONE; i++) {
            hk_progress p = {0};
            HKI_TRY(hk_elastic_apply(e, h->x, &view, NULL));
            h->steps++;
            hk_progress_of(e, &p);
            HKI_TRY(hk_role_worker_step(w, &p, &h->end));
        }
        if (r.end > r.begin)
            HKI_TRY(hk_center_use_range(c, 0, r.id));
    }
    return HK_OK;
}

static hk_status open_elastic(hk_role_worker *w, hk_layout *layout, float *x,
                              hk_optimizer **opt, hk_elastic **e) {
    hk_optimizer_options oo;
    hk_elastic_options eo;
    hk_optimizer_options_init(&oo, sizeof oo, HK_OPT_GRADIENT_DESCENT);
    HKI_TRY(hk_optimizer_create(&oo, layout, opt));
    hk_elastic_options_init(&eo, sizeof eo);
    eo.num_worker = 1;
    eo.communication_period = 2;
    eo.wait_ms = 20000;
    HKI_TRY(hk_elastic_create(&eo, *opt, hk_role_worker_center(w), e));
    return hk_elastic_init(*e, x, 0);
}

static hk_status work(hand *h, const char *folder, hk_layout *layout) {
    char address[96];
    const char *const addresses[] = {address};
    hk_connect_options co;
    hk_role_worker_options wo;
    hk_role_worker *w = NULL;
    hk_optimizer *opt = NULL;
    hk_elastic *e = NULL;
    hk_role_result result;
    snprintf(address, sizeof address, "unix:%s/s", folder);
    hk_connect_options_init(&co, sizeof co);
    co.addresses = addresses;
    co.n_addresses = 1;
    co.connect_ms = 20000;
    co.lost_ms = 20000;
    hk_role_worker_options_init(&wo, sizeof wo);
    wo.connect = &co;
    hk_status s = hk_role_worker_open(&wo, layout, &w);
    if (s == HK_OK)
        s = open_elastic(w, layout, h->x, &opt, &e);
    if (s == HK_OK)
        s = train(h, w, e);
    if (s == HK_OK)
        s = hk_role_worker_leave(w, h->end, e, h->x, &result);
    const hki_fault kept = hki_fault_of(s);
    hk_elastic_destroy(e);
    hk_optimizer_destroy(opt);
    hk_role_worker_close(w);
    return hki_fault_raise(&kept);
}

// ---- one fault after the other ------------------------------------------------

static void make_folder(char folder[64]) {
    const char *const tmp = getenv("TMPDIR");
    snprintf(folder, 64, "%.32s/hk-faults-XXXXXX",
             tmp == NULL || strlen(tmp) > 32 ? "/tmp" : tmp);
    assert_non_null(mkdtemp(folder));
}

static report end_center(pid_t pid, int from) {
    report r = {.status = HK_E_INTERNAL};
    int code = 0;
    if (read(from, &r, sizeof r) != (ssize_t)sizeof r)
        snprintf(r.text, sizeof r.text, "the center said nothing");
    close(from);
    assert_int_equal(waitpid(pid, &code, 0), pid);
    if (code != 0)
        snprintf(r.text, sizeof r.text, "the center's process ended with %d",
                 code);
    return r;
}

// False: the center was through before the nth call.
static bool survives(const fault *f, const char *what, hk_layout *layout) {
    char folder[64], command[96];
    int ends[2];
    hand h = {.steps = 0};
    make_folder(folder);
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(ends[0]);
        center_main(folder, f, ends[1]);
    }
    close(ends[1]);
    const hk_status s = work(&h, folder, layout);
    if (s != HK_OK)
        print_error("%s %d: the worker: %s\n", what, (int)f->nth,
                    hk_last_error());
    const report r = end_center(pid, ends[0]);
    if (s != HK_OK || r.status != HK_OK || !r.is_over ||
        r.global_step != h.steps || h.steps < STEPS)
        fail_msg("%s %d: worker %s, %d steps; center %s, %d steps, over: %d; "
                 "with the fault: %s: %s",
                 what, (int)f->nth, hk_status_string(s), (int)h.steps,
                 hk_status_string(r.status), (int)r.global_step, r.is_over,
                 hk_status_string(r.first), r.text);
    // Whoever reads it knows which file, or that memory was short.
    if (r.first != HK_OK &&
        strstr(r.text, f->error != 0 ? folder : "allocate") == NULL)
        fail_msg("%s %d: says %s", what, (int)f->nth, r.text);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
    return r.hit;
}

// Every call at first, later every few: the calls of a long run are alike.
static void sweep(int error, const char *what, uint64_t all) {
    const int64_t n = N;
    const hk_layout_item item = {.name = "w",
                                 .shape = hk_shape_make(1, &n),
                                 .dtype = HK_F32,
                                 .kind = HK_TRAINABLE};
    hk_layout *layout;
    assert_ok(hk_layout_create(&item, 1, &layout));
    for (fault f = {1, error}; survives(&f, what, layout);)
        f.nth += 1 + (f.nth > all ? f.nth / 16 : 0);
    hk_layout_release(layout);
}

static void test_full_disk(void **state) {
    (void)state;
    sweep(ENOSPC, "no space at call", 40);
}

static void test_broken_disk(void **state) {
    (void)state;
    sweep(EIO, "an error at call", 40);
}

static void test_no_memory(void **state) {
    (void)state;
    sweep(0, "no memory at allocation", 16);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_broken_disk),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
