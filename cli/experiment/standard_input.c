// standard_input.c - data that comes through a pipe.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "experiment/experiment.h"

// A file without a name, whose bytes last until the program ends.
static int nameless(void) {
    const char *tmp = getenv("TMPDIR");
    char *path =
        cli_printf("%s/hooke-input-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    const int fd = mkstemp(path);
    if (fd < 0)
        cli_fail("%s: %s", path, strerror(errno));
    else
        unlink(path);
    free(path);
    return fd;
}

// Ctrl-C ends the wait for more.
static bool copy_all(int from, int to) {
    char bytes[1 << 16];
    ssize_t n;
    while ((n = read(from, bytes, sizeof bytes)) != 0) {
        if (n < 0 && errno == EINTR && !signals_code())
            continue;
        for (ssize_t done = 0, k; n > 0 && done < n; done += k)
            if ((k = write(to, bytes + done, (size_t)(n - done))) <= 0)
                n = -1;
        if (n < 0)
            return false;
    }
    return true;
}

// Bytes come once: a pipe, a terminal.
static bool comes_once(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 &&
           (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode) ||
            S_ISCHR(st.st_mode));
}

static const char *readable_again(const char *path, int *failed) {
    const bool standard = strcmp(path, "-") == 0;
    *failed = 0;
    if (!standard && !comes_once(path))
        return path;
    const int from = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    const int to = from < 0 ? -1 : nameless();
    const bool good = to >= 0 && copy_all(from, to);
    if (!good && signals_code())
        *failed = signals_code();
    else if (from < 0 || (to >= 0 && !good))
        *failed = cli_fail("%s: %s", standard ? "standard input" : path,
                           strerror(errno));
    else if (!good)
        *failed = CLI_FAILED;
    return *failed ? NULL : cli_printf("/proc/self/fd/%d", to);
}

const char *data_given(const cli_args *a, int *failed) {
    const char *path = cli_string(a, "data", NULL);
    *failed = 0;
    return path ? readable_again(path, failed) : NULL;
}
