// signals.c - Ctrl-C and SIGTERM: a checkpoint, then the end.
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>
#include "core/cli.h"

static hk_context *volatile watched;
static atomic_int received; // any thread may be the one that is interrupted

static void say(const char *text) {
    const int kept = errno;
    (void)!write(STDERR_FILENO, text, strlen(text));
    errno = kept;
}

static void on_signal(int number) {
    const int before = atomic_exchange(&received, number);
    if (before && number == SIGINT)
        _exit(CLI_INTERRUPTED);
    if (!before && number == SIGINT && isatty(STDERR_FILENO))
        say("\n"
            "stopping; a second Ctrl-C ends at once\n");
    if (watched)
        hk_request_stop(watched, number);
}

void signals_watch(hk_context *ctx) {
    watched = ctx;
    if (!ctx)
        return;
    struct sigaction sa = {.sa_handler = on_signal};
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGUSR1, &sa, NULL); // Slurm's warning before the end
}

static const char *volatile mapped;

// A store to a mapped file for which the disk has no room, or which it cannot
// write. Nothing can go on from here; what was acknowledged is in the file.
static void on_bus_error(int number) {
    (void)number;
    say("hooke: ");
    say(mapped);
    say(": the disk is full or broken (SIGBUS); free some space and start the "
        "center again: it continues from this file\n");
    _exit(CLI_BUS_ERROR);
}

void signals_mapped(const char *path) {
    struct sigaction sa = {.sa_handler = on_bus_error};
    mapped = path;
    sigaction(SIGBUS, &sa, NULL);
}

int signals_code(void) {
    const int number = atomic_load(&received);
    return number == SIGINT ? CLI_INTERRUPTED : number ? CLI_TERMINATED : 0;
}

const char *signals_name(void) {
    switch (atomic_load(&received)) {
    case SIGINT:
        return "SIGINT";
    case SIGTERM:
        return "SIGTERM";
    case SIGUSR1:
        return "SIGUSR1";
    default:
        return NULL;
    }
}
