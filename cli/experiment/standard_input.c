// standard_input.c - data that comes through a pipe.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
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

static bool copy_all(int fd) {
    char bytes[1 << 16];
    ssize_t n;
    while ((n = read(STDIN_FILENO, bytes, sizeof bytes)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        for (ssize_t done = 0, k; n > 0 && done < n; done += k)
            if ((k = write(fd, bytes + done, (size_t)(n - done))) <= 0)
                n = -1;
        if (n < 0)
            return false;
    }
    return true;
}

const char *data_given(const cli_args *a, int *failed) {
    const char *path = cli_string(a, "data", NULL);
    *failed = 0;
    if (!path || strcmp(path, "-") != 0)
        return path;
    const int fd = nameless();
    if (fd < 0) {
        *failed = CLI_FAILED;
        return NULL;
    }
    if (!copy_all(fd)) {
        *failed = cli_fail("standard input: %s", strerror(errno));
        return NULL;
    }
    return cli_printf("/proc/self/fd/%d", fd);
}
