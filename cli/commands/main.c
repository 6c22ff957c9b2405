// main.c - the hooke program: finds the command and runs it.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "core/cli.h"

extern const cli_command cmd_train, cmd_evaluate, cmd_predict, cmd_sweep,
    cmd_center, cmd_worker, cmd_evaluator, cmd_export, cmd_inspect, cmd_convert,
    cmd_report, cmd_keygen, cmd_doctor, cmd_version, cmd_help, cmd_init;

// In the order of the help text.
const cli_command *const cli_commands[] = {
    &cmd_init,    &cmd_train,  &cmd_evaluate,  &cmd_predict, &cmd_sweep,
    &cmd_center,  &cmd_worker, &cmd_evaluator, &cmd_export,  &cmd_inspect,
    &cmd_convert, &cmd_report, &cmd_keygen,    &cmd_doctor,  &cmd_version,
    &cmd_help,    NULL};

const cli_option cli_common[] = {
    CLI_SWITCH("quiet", 'q', "prints results and errors only"),
    CLI_CHOICES("color", 0, "auto|always|never",
                "whether to use colours; default auto: only on a terminal"),
    CLI_OPTION("log", 0, CLI_FILE, "FILE",
               "also appends all messages and the progress to FILE, one JSON "
               "object per line"),
    CLI_CHOICES("log-format", 0, "text|json",
                "format of messages: plain text, or one JSON object per line"),
    CLI_CHOICES("log-level", 0, "debug|info|warning|error",
                "lowest level of messages to print; default warning"),
    CLI_SWITCH("help", 'h', "prints this help"),
    {0}};

const cli_command *cli_find(const char *name) {
    for (size_t i = 0; cli_commands[i]; i++)
        if (strcmp(cli_commands[i]->name, name) == 0)
            return cli_commands[i];
    return NULL;
}

int cli_unknown_command(const char *name) {
    const char *names[32];
    size_t n = 0;
    for (; cli_commands[n] && n < 32; n++)
        names[n] = cli_commands[n]->name;
    const char *near = cli_nearest(name, names, n);
    if (near)
        return cli_usage_error(NULL, "unknown command '%s'; did you mean '%s'?",
                               name, near);
    return cli_usage_error(NULL, "unknown command '%s'", name);
}

// A full disk behind stdout is a failure like any other. A reader that has seen
// enough is none to talk about.
static int finish(int code) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return cli_close_log(code);
    if (code) // said already
        return cli_close_log(code);
    if (errno == EPIPE)
        return cli_close_log(CLI_UNREAD);
    return cli_close_log(cli_fail(
        "stdout: %s", errno ? strerror(errno) : "could not be written"));
}

// Threads of libgomp that wait spin for milliseconds before they sleep. Where
// there are more threads at work than cores, those that read data or belong to
// others, they take the time of those they wait for, and a run becomes many
// times slower: a step of an MLP on two cores with two busy processes each
// took 21 ms with one thread, 272 ms with two; 38 ms with 10000 spins, and 12
// with 1000, which is what libgomp itself takes when it has more threads than
// cores. The number is read when libgomp is loaded, so the program starts
// itself anew.
static void spin_less(char **argv) {
    char self[PATH_MAX];
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY"))
        return;
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0 || setenv("GOMP_SPINCOUNT", "1000", 1) != 0)
        return;
    self[n] = '\0';
    execv(self, argv); // where that fails, it works as it is
}

static void set_output(const cli_args *a) {
    cli_set_color(cli_string(a, "color", "auto"));
    cli_set_quiet(cli_has(a, "quiet"));
    const char *level = getenv("HOOKE_LOG");
    cli_set_log(cli_string(a, "log-format", "text"),
                cli_string(a, "log-level", level));
}

int main(int argc, char **argv) {
    // Files opened later must not land on the standard descriptors. Results
    // that have nowhere to go are told at the end.
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); // the write fails, and its error is told
    if (argc < 2) {
        cli_help(stderr, NULL);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
        name = "version";
    const cli_command *c = cli_find(name);
    if (!c)
        return cli_unknown_command(name);
    cli_args *a;
    CLI_TRY(cli_parse(c, argc - 2, argv + 2, &a));
    set_output(a);
    if (cli_has(a, "help")) {
        cli_help(stdout, c);
        return finish(CLI_DONE);
    }
    if (c->computes)
        spin_less(argv);
    if (cli_has(a, "log") && !cli_open_log(cli_string(a, "log", "")))
        return CLI_FAILED;
    const int code = c->run(a);
    cli_args_free(a);
    return finish(code);
}
