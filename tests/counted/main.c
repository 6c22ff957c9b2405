// main.c - counted: every example of every epoch is trained on, and none more
// often than somebody's death explains.
//
//     counted [--schedules N] [--seed S] [--keep]
//
// A center and up to eight workers, processes of their own, train for three
// epochs on examples that are numbers. Meanwhile a schedule, drawn from the
// seed, kills workers and the center (kill -9), lets workers leave and others
// join; in every other one the center stays away until workers train on with
// shares of their own. Every worker notes in shared memory what it has trained
// on, epoch by epoch. At the end
//
//     every example of an epoch was trained on at least once;
//     what was trained on again is not more than what those workers held that
//     were killed, as the center's file had it at that moment, and what
//     workers took of shares of their own.
//
// The first schedule of a run kills no worker: each example counts exactly one.
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/base.h"
#include "base/io.h"
#include "cluster/center/run_memory.h"
#include "codec/codec.h"
#include "data/data.h"
#include "estimator/saved/written_files.h"
#include "hooke/hooke.h"

enum {
    WORKERS = 8,
    EXAMPLES = 1200,
    EPOCHS = 3,
    BATCH = 4,
    PERIOD = 3,
    STEP_US = 4000,  // of a worker, beside its work
    LEASE_MS = 3000, // a worker that is silent for longer is gone
    CONNECT_MS = 5000,
    RETRY_MS = 200, // before a worker trains on by itself
    EVENTS = 7,
    NOT_IN = 7,      // exit code
    AWAY_S = 30,     // a center, at most
    PATIENCE_S = 120 // of a schedule
};

typedef struct notes {
    atomic_uint seen[EPOCHS][EXAMPLES];
    atomic_uint steps;     // of all workers
    atomic_uint uncounted; // examples that no center leased
    atomic_bool over;      // the center has ended the run
} notes;

static notes *book;
static char folder[256], address[300], center_path[300];

// ---- a worker ----------------------------------------------------------------

static hk_context *context;

static void on_term(int signal) {
    (void)signal;
    hk_request_stop(context, 1);
}

static void must(hk_status s, const char *what) {
    if (s == HK_OK)
        return;
    fprintf(stderr, "counted: %d: %s: %s\n", (int)getpid(), what,
            hk_last_error());
    _exit(9);
}

static hk_dataset *numbers(void) {
    hk_tensor *x;
    const hk_shape shape = hk_shape_make(2, (int64_t[]){EXAMPLES, 1});
    must(hk_tensor_create(HK_F32, shape, &x), "tensor");
    for (int i = 0; i < EXAMPLES; i++)
        ((float *)hk_tensor_data(x))[i] = (float)i;
    const hk_value value = {.name = "x",
                            .role = HK_FEATURE,
                            .form = HK_DENSE_FORM,
                            .dtype = HK_F32,
                            .shape = shape,
                            .tensor = x};
    hk_dataset *const d = hk_data_slices(&value, 1);
    hk_tensor_release(x);
    return d;
}

// The number, and which epoch it is of: what a lent example is stamped with.
static hk_status add_epoch(const void *config, void *scratch, hki_fn_call *c) {
    (void)config;
    (void)scratch;
    *(float *)hki_rows_at(c->out, 0, c->row) =
        *(const float *)hk_tensor_data(c->in->values[0].tensor);
    *(float *)hki_rows_at(c->out, 1, c->row) =
        (float)(c->stamp >> HKI_STAMP_PASS) - 1;
    return HK_OK;
}

static const hki_fn_ops epoch_ops = {.name = "epoch", .apply = add_epoch};

static hk_status input(void *user, const hk_input_call *call,
                       hk_dataset **out) {
    (void)user;
    const hk_shape one = hk_shape_make(1, (int64_t[]){1});
    const hk_value spec[] = {{.name = "x",
                              .role = HK_FEATURE,
                              .form = HK_DENSE_FORM,
                              .dtype = HK_F32,
                              .shape = one},
                             {.name = "epoch",
                              .role = HK_FEATURE,
                              .form = HK_DENSE_FORM,
                              .dtype = HK_F32,
                              .shape = one}};
    hk_dataset *d = numbers();
    if (call->lender != NULL)
        d = hk_data_leased(d, call->lender, 5, 0);
    d = hki_dataset_make(&(hki_dataset_desc){.fn = &epoch_ops,
                                             .inputs = &d,
                                             .n_inputs = 1,
                                             .spec = spec,
                                             .n_spec = 2,
                                             .key = 1});
    d = hk_data_batch(d, BATCH, 0);
    *out = hk_data_prefetch(d, 2);
    return hk_dataset_status(*out);
}

static hk_status model(hk_graph *g, hk_mode mode, hk_spec *m) {
    (void)mode;
    hk_node *const x = hk_feature(m, "x");
    hk_node *const y = hk_dense(g, x, 1, HK_ACT_NONE, NULL);
    hk_spec_fetch(m, "numbers", x);
    hk_spec_fetch(m, "epochs", hk_feature(m, "epoch"));
    hk_spec_loss(m, hk_reduce_mean(g, hk_square(g, y), NULL, 0, 0));
    return hk_spec_optimizer(m, HK_OPT_GRADIENT_DESCENT, 1e-9);
}

static hk_status before(void *self, hk_run *run) {
    (void)self;
    const hk_status s = hk_run_fetch(run, "numbers");
    return s == HK_OK ? hk_run_fetch(run, "epochs") : s;
}

static hk_center *my_center;

static void note_uncounted(void) {
    static uint64_t told;
    hk_link_info info;
    must(hk_center_get_link_info(my_center, &info), "link info");
    atomic_fetch_add(&book->uncounted, (unsigned)(info.uncounted - told));
    told = info.uncounted;
}

// Noted before the exchange that makes it count.
static hk_status after(void *self, hk_run *run) {
    (void)self;
    hk_tensor *x, *epoch;
    hk_status s = hk_run_value(run, "numbers", &x);
    if (s == HK_OK)
        s = hk_run_value(run, "epochs", &epoch);
    if (s != HK_OK)
        return s;
    note_uncounted();
    const float *const a = hk_tensor_data(x), *const b = hk_tensor_data(epoch);
    for (int64_t i = 0; i < hk_tensor_count(x); i++)
        if (a[i] >= 0 && a[i] < EXAMPLES && b[i] >= 0 && b[i] < EPOCHS)
            atomic_fetch_add(&book->seen[(int)b[i]][(int)a[i]], 1);
    atomic_fetch_add(&book->steps, 1);
    usleep(STEP_US);
    return HK_OK;
}

static hk_role_worker *join(hk_estimator *e, const hk_source *data) {
    hk_layout *layout;
    hk_role_worker *w;
    const char *const at[] = {address};
    hk_connect_options co;
    hk_connect_options_init(&co, sizeof co);
    co.context = context;
    co.addresses = at;
    co.n_addresses = 1;
    co.connect_ms = CONNECT_MS;
    co.retry_ms = RETRY_MS;
    hk_role_worker_options o;
    hk_role_worker_options_init(&o, sizeof o);
    o.connect = &co;
    must(hk_estimator_layout(e, data, &layout), "layout");
    const hk_status s = hk_role_worker_open(&o, layout, &w);
    if (s != HK_OK && atomic_load(&book->over))
        _exit(0); // it has come too late
    must(s, "open");
    hk_layout_release(layout);
    my_center = hk_role_worker_center(w);
    return w;
}

static hk_estimator *make_estimator(hk_center *center, uint32_t id) {
    hk_run_config c;
    hk_estimator_options o;
    hk_elastic_options eo;
    hk_estimator *e;
    hk_elastic_options_init(&eo, sizeof eo);
    eo.communication_period = PERIOD;
    eo.wait_ms = 2 * CONNECT_MS; // the run may be over before it is in
    hk_run_config_init(&c, sizeof c);
    c.threads = 1;
    c.backend = "reference";
    c.log_step_count_steps = c.save_summary_steps = 0;
    c.elastic = &eo;
    c.center = center;
    c.first_worker = center != NULL ? id : 0;
    c.all_workers = center != NULL ? WORKERS : 0;
    c.not_chief = center != NULL && id > 0;
    hk_estimator_options_init(&o, sizeof o);
    o.model_fn = model;
    o.config = &c;
    must(hk_estimator_create(context, &o, &e), "estimator");
    return e;
}

static void be_worker(uint32_t id) {
    hk_train_result r;
    hk_role_result end;
    hk_hook *hook;
    hk_hook_calls calls;
    hk_hook_calls_init(&calls, sizeof calls);
    calls.name = "notes";
    calls.before_run = before;
    calls.after_run = after;
    hk_train_options to;
    hk_train_options_init(&to, sizeof to);
    must(hk_context_create(NULL, &context), "context");
    signal(SIGTERM, on_term);
    must(hk_hook_create(&calls, &hook), "hook");
    const hk_source data = hk_source_function(input, NULL);
    hk_estimator *const shape = make_estimator(NULL, 0);
    hk_role_worker *const w = join(shape, &data);
    hk_estimator *const e = make_estimator(hk_role_worker_center(w), id);
    to.epochs = EPOCHS;
    to.hooks = &hook;
    to.n_hooks = 1;
    r.steps = 0;
    const hk_status s = hk_estimator_train(e, &data, &to, &r);
    if ((s == HK_E_UNAVAILABLE || s == HK_E_TIMEOUT) && r.steps == 0)
        _exit(NOT_IN); // the center was killed as it came
    must(s, "train");
    must(hk_role_worker_leave(
             w, r.reason == HK_STOP_REQUESTED ? HK_END_STOPPED : HK_END_EPOCHS,
             NULL, NULL, &end),
         "leave");
    _exit(0);
}

// ---- the center --------------------------------------------------------------

static void be_center(void) {
    const char *const at[] = {address};
    hk_center_server_options so;
    hk_role_center_options o;
    hk_role_center *c;
    hk_role_result r;
    must(hk_context_create(NULL, &context), "context");
    hk_center_server_options_init(&so, sizeof so);
    so.context = context;
    so.addresses = at;
    so.n_addresses = 1;
    so.path = center_path;
    so.lease_ms = LEASE_MS;
    hk_role_center_options_init(&o, sizeof o);
    o.server = &so;
    must(hk_role_center_start(&o, &c), "center");
    must(hk_role_center_wait(c, -1, &r), "wait");
    hk_role_center_stop(c);
    _exit(r.end == HK_END_EPOCHS ? 0 : 8);
}

// ---- the schedule ------------------------------------------------------------

typedef struct driver {
    hki_rng rng;
    pid_t center, worker[WORKERS]; // 0: none
    bool kills;                    // of workers
    bool away;                     // the center, for longer
    int64_t allowed;               // examples that may be repeated
    int deaths, leaves, joins, restarts;
    int64_t deadline_ns;
    bool keep;
} driver;

static int draw(driver *d, int n) {
    return (int)(hki_rng_u32(&d->rng) % (uint32_t)n);
}

static void start_center(driver *d) {
    d->center = fork();
    if (d->center == 0)
        be_center();
}

static void start_worker(driver *d, int id) {
    d->worker[id] = fork();
    if (d->worker[id] == 0)
        be_worker((uint32_t)id);
}

static int n_alive(const driver *d) {
    int n = 0;
    for (int i = 0; i < WORKERS; i++)
        n += d->worker[i] > 0;
    return n;
}

// Any worker that is there (or not); -1: none.
static int any(driver *d, bool there) {
    const int first = draw(d, WORKERS);
    for (int i = 0; i < WORKERS; i++) {
        const int id = (first + i) % WORKERS;
        if ((d->worker[id] > 0) == there)
            return id;
    }
    return -1;
}

// Units that a worker holds, by the center's file (run_memory.h, data_plan.h).
static int64_t held_by(int id) {
    char path[320];
    uint8_t *bytes;
    size_t size;
    int64_t held = 0;
    snprintf(path, sizeof path, "%s.run", center_path);
    if (hki_file_read_all(path, 1 << 20, &bytes, &size) != HK_OK)
        return 0;
    const uint8_t *p = hki_run_file_newest(bytes, size, &size);
    if (p != NULL)
        p += 40 + (size_t)hki_get_u32(p + 36) * 80 + 8;
    if (p != NULL && hki_get_u64(p + 8) == 1) {
        p += 16;
        p += 8 + hki_get_u64(p) + 7 * 8; // the set, and what came back of it
        p += 8 + hki_get_u64(p) * 32;
        const uint64_t out = hki_get_u64(p);
        p += 8;
        for (uint64_t i = 0; i < out; i++, p += 48)
            if (hki_get_u64(p + 8) >> 32 == (uint64_t)id)
                held += (int64_t)(hki_get_u64(p + 32) - hki_get_u64(p + 24));
    }
    hki_free(bytes);
    return held;
}

static void wait_for(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
}

static void kill_worker(driver *d, int id) {
    kill(d->worker[id], SIGKILL);
    wait_for(d->worker[id]);
    d->worker[id] = 0;
    d->allowed += held_by(id);
    d->deaths++;
}

static void kill_center(driver *d) {
    kill(d->center, SIGKILL);
    wait_for(d->center);
    usleep((useconds_t)draw(d, 50000));
    start_center(d);
    d->restarts++;
}

// Stays away for as long as it takes workers to train on without it.
static bool be_away(driver *d) {
    const unsigned before = atomic_load(&book->uncounted);
    const int64_t deadline = hki_deadline(AWAY_S * 1000);
    kill(d->center, SIGKILL);
    wait_for(d->center);
    while (atomic_load(&book->uncounted) == before && hki_now_ns() < deadline)
        usleep(2000);
    start_center(d);
    d->restarts++;
    if (atomic_load(&book->uncounted) > before)
        return true;
    fprintf(stderr, "counted: nobody trained on in %d s\n", AWAY_S);
    return false;
}

static void event(driver *d) {
    const int what = draw(d, 4);
    const int there = any(d, true), free_seat = any(d, false);
    if (what == 0 && d->kills && n_alive(d) > 1) {
        kill_worker(d, there);
    } else if (what == 1 && n_alive(d) > 1) {
        kill(d->worker[there], SIGTERM);
        d->leaves++;
    } else if (what == 2) {
        kill_center(d);
    } else if (free_seat >= 0) {
        start_worker(d, free_seat);
        d->joins++;
    }
}

// Takes in who has ended; false: a process ended badly.
static bool reap(driver *d, bool *over) {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        const bool well = code == 0 || (code == NOT_IN && pid != d->center);
        if (!well) {
            fprintf(stderr, "counted: %s ended with %d\n",
                    pid == d->center ? "the center" : "a worker",
                    WIFEXITED(status) ? WEXITSTATUS(status) : -status);
            return false;
        }
        if (pid == d->center) {
            d->center = 0;
            *over = true;
            atomic_store(&book->over, true);
        }
        for (int i = 0; i < WORKERS; i++)
            if (d->worker[i] == pid)
                d->worker[i] = 0;
    }
    return true;
}

static bool is_late(const driver *d) {
    if (hki_now_ns() < d->deadline_ns)
        return false;
    fprintf(stderr, "counted: not over after %d s, %u steps\n", PATIENCE_S,
            atomic_load(&book->steps));
    return true;
}

// Events are spread over the steps of the run.
static bool drive(driver *d) {
    const unsigned all = EPOCHS * EXAMPLES / BATCH;
    bool over = false;
    start_center(d);
    for (int i = 0; i < WORKERS - 2; i++)
        start_worker(d, i);
    for (int next = 1; !over; usleep(2000)) {
        if (!reap(d, &over) || is_late(d))
            return false;
        const unsigned at = all * (unsigned)next / (EVENTS + 1);
        if (!over && next <= EVENTS && atomic_load(&book->steps) >= at) {
            if (next++ > 1 || !d->away) // by then some may be about to leave
                event(d);
            else if (!be_away(d))
                return false;
        }
        if (!over && n_alive(d) == 0)
            start_worker(d, draw(d, WORKERS));
    }
    while (n_alive(d) > 0 && reap(d, &over) && !is_late(d))
        usleep(2000);
    return n_alive(d) == 0;
}

static void stop_all(driver *d) {
    for (int i = 0; i < WORKERS; i++)
        if (d->worker[i] > 0) {
            kill(d->worker[i], SIGKILL);
            wait_for(d->worker[i]);
        }
    if (d->center > 0) {
        kill(d->center, SIGKILL);
        wait_for(d->center);
    }
}

static bool check(const driver *d, uint64_t seed) {
    const int64_t allowed = d->allowed + atomic_load(&book->uncounted);
    int64_t again = 0;
    int missing = 0;
    for (int e = 0; e < EPOCHS; e++)
        for (int i = 0; i < EXAMPLES; i++) {
            const unsigned n = atomic_load(&book->seen[e][i]);
            missing += n == 0;
            again += n > 1 ? n - 1 : 0;
        }
    fprintf(stdout,
            "schedule %llu: %d killed, %d left, %d joined, center killed %d "
            "times; %lld of at most %lld examples twice, %d never, %u not "
            "leased\n",
            (unsigned long long)seed, d->deaths, d->leaves, d->joins,
            d->restarts, (long long)again, (long long)allowed, missing,
            atomic_load(&book->uncounted));
    fflush(stdout);
    return missing == 0 && again <= allowed;
}

static bool schedule(uint64_t seed, uint64_t number, bool keep) {
    driver d = {.kills = number > 0, .away = number % 2 == 1, .keep = keep};
    hki_rng_init(&d.rng, seed, 18);
    d.deadline_ns = hki_now_ns() + PATIENCE_S * INT64_C(1000000000);
    const char *const tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.200s/hooke-counted-XXXXXX",
             tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(folder) == NULL)
        return false;
    snprintf(address, sizeof address, "unix:%s/center.sock", folder);
    snprintf(center_path, sizeof center_path, "%s/center", folder);
    memset(book, 0, sizeof *book);
    bool good = drive(&d);
    stop_all(&d);
    good = check(&d, seed) && good;
    if (!keep)
        (void)hki_remove_tree(folder);
    else
        fprintf(stdout, "%s\n", folder);
    return good;
}

int main(int argc, char **argv) {
    uint64_t seed = 1, n = 3;
    bool keep = false, good = true;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--keep") == 0)
            keep = true;
        else if (i + 1 < argc && strcmp(argv[i], "--schedules") == 0)
            n = strtoull(argv[++i], NULL, 10);
        else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[++i], NULL, 10);
    }
    book = mmap(NULL, sizeof *book, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (book == MAP_FAILED)
        return 1;
    for (uint64_t i = 0; i < n; i++)
        good = schedule(seed + i, i, keep) && good;
    return good ? 0 : 1;
}
