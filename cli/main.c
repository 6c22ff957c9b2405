// main.c - the hooke program: finds the command and runs it.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cli.h"

extern const cli_command cmd_train, cmd_evaluate, cmd_predict, cmd_sweep,
    cmd_center, cmd_worker, cmd_evaluator, cmd_export, cmd_inspect, cmd_convert,
    cmd_report, cmd_keygen, cmd_doctor, cmd_version, cmd_help;

// In the order of the help text.
const cli_command *const cli_commands[] = {
    &cmd_train,   &cmd_evaluate, &cmd_predict,   &cmd_sweep,
    &cmd_center,  &cmd_worker,   &cmd_evaluator, &cmd_export,
    &cmd_inspect, &cmd_convert,  &cmd_report,    &cmd_keygen,
    &cmd_doctor,  &cmd_version,  &cmd_help,      NULL};

const cli_option cli_common[] = {
    CLI_SWITCH("quiet", 'q', "only results and errors"),
    CLI_CHOICES("color", 0, "auto|always|never", "colours on the terminal"),
    CLI_CHOICES("log-format", 0, "text|json",
                "log lines for people or one JSON object a line"),
    CLI_CHOICES("log-level", 0, "debug|info|warning|error",
                "least important line that is shown; default warning"),
    CLI_SWITCH("help", 'h', "this text"),
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

// A results pipe that was closed, or a full disk behind stdout, is a failure
// like any other.
static int finish(int code) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    if (code) // said already
        return code;
    return cli_fail("stdout: %s",
                    errno ? strerror(errno) : "could not be written");
}

static void settings(const cli_args *a) {
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
    const int failed = cli_parse(c, argc - 2, argv + 2, &a);
    if (failed)
        return failed;
    settings(a);
    if (cli_has(a, "help")) {
        cli_help(stdout, c);
        return finish(CLI_DONE);
    }
    return finish(c->run(a));
}
