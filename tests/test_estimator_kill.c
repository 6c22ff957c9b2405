// test_estimator_kill.c - a training that is killed between two checkpoints
// and started again ends with the same bits as one that was left alone.
//
// Every training has a process of its own; this one only compares.
#include "estimator_bed.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

typedef struct job {
    uint32_t workers;
    const char *dir; // model_dir; NULL: none
    int64_t kill_at; // local step of worker 0; 0: not at all
    int64_t max_steps;
    int out; // pipe: all values at the end
} job;

static hk_status kill_self(void *user, hk_run *run) {
    const job *const j = user;
    if (run_info(run).local_step == j->kill_at)
        raise(SIGKILL);
    return HK_OK;
}

static void write_values(const job *j, hk_estimator *e) {
    float x[BED_VALUES];
    for (uint32_t i = 0; i < j->workers; i++) {
        const size_t n = bed_values(e, HK_WEIGHTS_LOCAL, i, x, BED_VALUES);
        assert_int_equal(write(j->out, x, n * sizeof *x),
                         (ssize_t)(n * sizeof *x));
    }
    const size_t n = bed_values(e, HK_WEIGHTS_EMA, 0, x, BED_VALUES);
    assert_int_equal(write(j->out, x, n * sizeof *x), (ssize_t)(n * sizeof *x));
}

static void run_job(const job *j) {
    hk_context *ctx;
    assert_ok(hk_context_create(NULL, &ctx));
    hk_elastic_options eo;
    hk_elastic_options_init(&eo, sizeof eo);
    eo.communication_period = 5;
    hk_ema_options ema;
    hk_ema_options_init(&ema, sizeof ema);
    bed b;
    bed_init(&b, ctx);
    b.config.workers = j->workers;
    if (j->workers > 1) {
        b.config.turn = HK_TURN_ROUND_ROBIN;
        b.config.elastic = &eo;
    }
    b.config.ema = &ema;
    b.config.save_checkpoints_steps = 20;
    b.o.model_dir = j->dir;
    bed_open(&b);
    hk_dataset *d = bed_training(1);
    hk_source in = hk_source_dataset(d);
    hk_hook_calls calls;
    hk_hook_calls_init(&calls, sizeof calls);
    calls.user = (void *)(uintptr_t)j;
    calls.after_run = kill_self;
    hk_hook *h;
    assert_ok(hk_hook_create(&calls, &h));
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    o.max_steps = j->max_steps;
    o.hooks = &h;
    o.n_hooks = 1;
    assert_ok(hk_estimator_train(b.e, &in, &o, NULL));
    if (j->out >= 0)
        write_values(j, b.e);
    hk_hook_release(h);
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// Runs the job in a child; gives how it ended and what it wrote.
static int in_child(job j, float *values, size_t capacity, size_t *n) {
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    fflush(NULL);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(fd[0]);
        j.out = fd[1];
        run_job(&j); // a failed check ends the child with a status
        _exit(0);
    }
    close(fd[1]);
    size_t used = 0;
    for (ssize_t got; (got = read(fd[0], (char *)values + used,
                                  capacity * sizeof *values - used)) > 0;)
        used += (size_t)got;
    close(fd[0]);
    *n = used / sizeof *values;
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void check(uint32_t workers) {
    static float whole[8 * BED_VALUES], again[8 * BED_VALUES];
    size_t n, m;
    char *dir = bed_folder();
    job j = {.workers = workers, .max_steps = 100 * (int64_t)workers};
    int status = in_child(j, whole, HKI_COUNT(whole), &n);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(n > 100);
    // Killed twice, then left to its end.
    j.dir = dir;
    const int64_t kills[] = {33, 71};
    for (size_t i = 0; i < HKI_COUNT(kills); i++) {
        j.kill_at = kills[i];
        status = in_child(j, again, HKI_COUNT(again), &m);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        assert_int_equal(m, 0);
    }
    j.kill_at = 0;
    status = in_child(j, again, HKI_COUNT(again), &m);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(m, n);
    assert_memory_equal(whole, again, n * sizeof *whole);
    bed_remove(dir);
}

static void test_single(void **state) {
    (void)state;
    check(1);
}

static void test_round_robin(void **state) {
    (void)state;
    check(3);
}

// A second process on the folder of a training that runs.
static void test_two_processes(void **state) {
    (void)state;
    char *dir = bed_folder();
    int ready[2], done[2];
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(done), 0);
    fflush(NULL);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(ready[0]);
        close(done[1]);
        hk_context *ctx;
        bed b;
        char c = 1;
        assert_ok(hk_context_create(NULL, &ctx));
        bed_init(&b, ctx);
        b.o.model_dir = dir;
        bed_open(&b);
        bed_train(&b, bed_training(1), 3, NULL);
        if (write(ready[1], &c, 1) != 1 || read(done[0], &c, 1) != 1)
            _exit(3);
        _exit(0);
    }
    close(ready[1]);
    close(done[0]);
    char c;
    assert_int_equal(read(ready[0], &c, 1), 1);
    int status;
    job j = {.workers = 1, .max_steps = 10, .dir = dir};
    // The other one, in a child as well.
    fflush(NULL);
    const pid_t second = fork();
    assert_true(second >= 0);
    if (second == 0) {
        hk_context *ctx;
        bed b;
        assert_ok(hk_context_create(NULL, &ctx));
        bed_init(&b, ctx);
        b.o.model_dir = dir;
        bed_open(&b);
        hk_dataset *d = bed_training(1);
        hk_source in = hk_source_dataset(d);
        const hk_status s = hk_estimator_train(b.e, &in, NULL, NULL);
        char pid_text[32];
        snprintf(pid_text, sizeof pid_text, "%d", (int)pid);
        const bool ok = s == HK_E_EXISTS &&
                        strstr(hk_last_error(), pid_text) != NULL &&
                        strstr(hk_last_error(), "another folder") != NULL;
        // Looking is allowed: evaluation takes no lock.
        hk_dataset *test = bed_pass(2, 20, 10);
        hk_source look = hk_source_dataset(test);
        hk_evaluate_options o;
        hk_evaluate_options_init(&o, sizeof o);
        o.no_summary = 1;
        hk_eval_result *r;
        const bool seen =
            hk_estimator_evaluate(b.e, &look, &o, &r) == HK_OK && r->step == 3;
        _exit(ok && seen ? 0 : 4);
    }
    assert_int_equal(waitpid(second, &status, 0), second);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(write(done[1], &c, 1), 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    (void)j;
    close(ready[0]);
    close(done[1]);
    bed_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_single),
        cmocka_unit_test(test_round_robin),
        cmocka_unit_test(test_two_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
