// processes.c - a cluster of one machine: a center over shared memory and N
// workers as children, watched until the run is over.
#include "run/processes.h"
#include <errno.h>
#include <math.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "experiment/resume.h"
#include "experiment/run_record.h"
#include "run/show.h"

enum {
    MOST = 256,
    RESTARTS = 3 // of one worker that fell over
};

typedef struct child {
    pid_t pid; // 0: ended
    char **argv;
    int restarts;
} child;

// all[0] is the center.
typedef struct family {
    child all[MOST + 1];
    int n;
    int asked; // signal that asks for the end; 0: none
    int code;  // of the first that failed
    sigset_t usual;
} family;

// ---- what children are told -------------------------------------------------

// A list of arguments that grows.
typedef struct words {
    char **list;
    size_t n, room;
} words;

static void add(words *w, const char *word) {
    if (w->n + 1 >= w->room) {
        w->room = w->room ? w->room * 2 : 32;
        char **grown = cli_alloc(w->room * sizeof *grown);
        if (w->n)
            memcpy(grown, w->list, w->n * sizeof *grown);
        free(w->list);
        w->list = grown;
    }
    w->list[w->n++] = cli_strdup(word);
}

static void add_option(words *w, const char *name, const char *value) {
    char *option = cli_printf("--%s", name);
    add(w, option);
    free(option);
    if (value)
        add(w, value);
}

static void add_number(words *w, const char *name, double value) {
    char *text = cli_printf("%.15g", value);
    add_option(w, name, text);
    free(text);
}

// Options that speak of the whole: children are told their part of them, or
// nothing. Whatever else the table of options has is handed on to those who
// know it; tests/cli/handed_on.py finds one that nobody knows.
static bool is_ours(const char *name) {
    static const char *const ours[] = {
        "workers", "steps",       "epochs", "seconds",  "threads",
        "linger",  "progress",    "quiet",  "json",     "processes",
        "cluster", "launcher",    "port",   "hostfile", "center-count",
        "metrics", "center-file", "fresh",  "folds"};
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        if (strcmp(ours[i], name) == 0)
            return true;
    return false;
}

static void hand_on(words *w, const cli_args *a, const cli_command *c) {
    const char *value;
    const cli_option *o;
    for (size_t i = 0; (o = cli_given(a, i, &value)) != NULL; i++)
        if (!is_ours(o->name) && cli_find_option(c, o->name))
            add_option(w, o->name, value);
}

static int threads_of_one(const cli_args *a, int n) {
    const int64_t all = cli_int(a, "threads", sysconf(_SC_NPROCESSORS_ONLN));
    return all / n > 1 ? (int)(all / n) : 1;
}

// A child's words up to its experiment. Bounds are told in full, so that none
// is looked up again: steps are those of all workers together.
static void begin_words(words *w, const cli_args *a, const settings *s,
                        const char *role) {
    const int n = (int)s->config.workers;
    add(w, "hooke");
    add(w, role);
    hand_on(w, a, cli_find(role));
    add_number(w, "workers", n);
    add_number(w, "steps", (double)s->steps * n);
    add_number(w, "epochs", (double)s->epochs);
    add_number(w, "seconds", s->seconds);
}

static char **end_words(words *w, const cli_args *a) {
    add(w, "--");
    add(w, cli_operand(a, 0) ? cli_operand(a, 0) : "digits");
    return w->list;
}

static char **center_words(const cli_args *a, const settings *s,
                           const char *address) {
    words w = {0};
    begin_words(&w, a, s, "center");
    add_option(&w, "listen", address);
    add_number(&w, "linger", cli_float(a, "linger", 20));
    if (cli_has(a, "metrics"))
        add_option(&w, "metrics", cli_string(a, "metrics", ""));
    // Runs in one process and in several go on with each other's checkpoints.
    add_option(&w, "center-file", cli_string(a, "center-file", "none"));
    add_option(&w, "quiet", NULL);
    return end_words(&w, a);
}

static char **worker_words(const cli_args *a, const settings *s, int i,
                           const char *address) {
    words w = {0};
    begin_words(&w, a, s, "worker");
    add_option(&w, "center", address);
    add_number(&w, "index", i);
    add_number(&w, "threads", threads_of_one(a, (int)s->config.workers));
    if (i == 0)
        add_option(&w, "evaluate", NULL);
    if (i > 0 || cli_has(a, "quiet"))
        add_option(&w, "quiet", NULL); // one line of progress is enough
    else if (cli_has(a, "progress"))
        add_option(&w, "progress", cli_string(a, "progress", ""));
    return end_words(&w, a);
}

// ---- children ---------------------------------------------------------------

// In the child: results are the parent's to print, its death is the end, and
// Ctrl-C reaches the parent alone, which passes it on in order.
static void become(const family *f, const child *c) {
    const int nowhere = open("/dev/null", O_WRONLY);
    if (nowhere >= 0)
        dup2(nowhere, STDOUT_FILENO);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigprocmask(SIG_SETMASK, &f->usual, NULL);
    execv("/proc/self/exe", c->argv);
    _exit(127);
}

static bool start(family *f, child *c) {
    c->pid = fork();
    if (c->pid == 0)
        become(f, c);
    if (c->pid < 0) {
        cli_fail("fork: %s", strerror(errno));
        c->pid = 0;
        return false;
    }
    return true;
}

static void tell_workers(const family *f, int number) {
    for (int i = 1; i < f->n; i++)
        if (f->all[i].pid > 0)
            kill(f->all[i].pid, number);
}

static int living(const family *f) {
    int n = 0;
    for (int i = 1; i < f->n; i++)
        n += f->all[i].pid > 0;
    return n;
}

static void fail(family *f, int code) {
    if (!f->code)
        f->code = code;
    tell_workers(f, SIGTERM);
}

// A worker that was killed or lost its center comes back; one that failed
// for good ends the run.
static void on_end(family *f, int i, int status) {
    child *c = &f->all[i];
    c->pid = 0;
    const int code =
        WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (code == 0 || f->asked || f->code)
        return;
    if (i == 0) {
        cli_fail("the center ended with exit code %d", code);
        fail(f, CLI_FAILED);
    } else if (code >= 128 && c->restarts < RESTARTS) {
        c->restarts++;
        cli_note("worker %d ended with exit code %d; it is started again",
                 i - 1, code);
        if (!start(f, c))
            fail(f, CLI_FAILED);
    } else {
        fail(f, code);
    }
}

static void reap(family *f) {
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (int i = 0; i < f->n; i++)
            if (f->all[i].pid == pid)
                on_end(f, i, status);
}

// A second Ctrl-C ends everything at once.
static void on_ask(family *f, int number) {
    if (f->asked && number == SIGINT) {
        tell_workers(f, SIGKILL);
        if (f->all[0].pid > 0)
            kill(f->all[0].pid, SIGKILL);
    }
    if (!f->asked && number == SIGINT && isatty(STDERR_FILENO))
        cli_note("\n"
                 "stopping; a second Ctrl-C ends at once");
    f->asked = number;
    tell_workers(f, SIGTERM);
}

static void wait_for_news(family *f, const sigset_t *signals) {
    const int number = sigwaitinfo(signals, NULL);
    if (number == SIGCHLD)
        reap(f);
    else if (number > 0)
        on_ask(f, number);
}

// Until every worker has ended; then the center, which they need to the last.
// It ends by itself, with the final checkpoint, unless something is amiss.
static void watch(family *f, const sigset_t *signals) {
    while (living(f) > 0)
        wait_for_news(f, signals);
    while (f->all[0].pid > 0) {
        if (f->asked || f->code)
            kill(f->all[0].pid, SIGTERM);
        wait_for_news(f, signals);
    }
}

static void run_family(family *f) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_BLOCK, &signals, &f->usual);
    for (int i = 0; i < f->n && !f->code; i++)
        if (!start(f, &f->all[i]))
            fail(f, CLI_FAILED);
    watch(f, &signals);
    sigprocmask(SIG_SETMASK, &f->usual, NULL);
}

// ---- the whole --------------------------------------------------------------

// A private folder for the center's socket.
static char *make_folder(void) {
    const char *tmp = getenv("XDG_RUNTIME_DIR");
    if (!tmp || !*tmp || access(tmp, W_OK) != 0)
        tmp = getenv("TMPDIR");
    char *dir = cli_printf("%s/hooke-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (mkdtemp(dir))
        return dir;
    cli_fail("%s: %s", dir, strerror(errno));
    free(dir);
    return NULL;
}

int run_processes(const cli_args *a) {
    experiment *x;
    settings s;
    record before, after;
    int code = experiment_open(a, cli_operand(a, 0), &x);
    if (!code)
        code = settings_read(x, a, &s);
    if (!code)
        code = resume_check(a, x, &s);
    if (code)
        return code;
    const int n = (int)s.config.workers;
    if (n > MOST)
        return cli_fail("%d processes are too many; the limit is %d", n, MOST);
    settings_tell(&s);
    char *dir = make_folder();
    if (!dir)
        return CLI_FAILED;
    char *address = cli_printf("shm:%s/center", dir);
    record_read(s.model_dir, &before);
    family f = {.n = n + 1};
    f.all[0].argv = center_words(a, &s, address);
    for (int i = 0; i < n; i++)
        f.all[i + 1].argv = worker_words(a, &s, i, address);
    run_family(&f);
    unlink(strchr(address, ':') + 1);
    rmdir(dir);
    if (f.asked)
        return f.asked == SIGINT ? CLI_INTERRUPTED : CLI_TERMINATED;
    if (f.code)
        return f.code;
    record_read(s.model_dir, &after);
    const hk_train_result t = {.global_step = after.global_step,
                               .steps = after.global_step - before.global_step,
                               .examples = after.examples - before.examples,
                               .exchanges = after.exchanges - before.exchanges,
                               .seconds = after.seconds - before.seconds,
                               .loss = (float)NAN,
                               .reason = HK_STOP_STEPS};
    return result_of_run(a, &t);
}
