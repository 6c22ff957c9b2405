// abort_util.h - code that ends its process, run in a child.
#ifndef ABORT_UTIL_H
#define ABORT_UTIL_H
#include "hk_test.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

// fn(user) ends the process by an assertion whose message has this part.
static inline void assert_aborts(void (*fn)(void *), void *user,
                                 const char *part) {
    char text[1024];
    size_t n = 0;
    int ends[2], code = 0;
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct rlimit none = {0, 0}; // of a core file
        (void)setrlimit(RLIMIT_CORE, &none);
        if (dup2(ends[1], STDERR_FILENO) >= 0)
            fn(user);
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t got; n < sizeof text - 1 &&
                      (got = read(ends[0], text + n, sizeof text - 1 - n)) > 0;)
        n += (size_t)got;
    text[n] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(pid, &code, 0), pid);
    if (!WIFSIGNALED(code) || WTERMSIG(code) != SIGABRT ||
        strstr(text, part) == NULL)
        fail_msg("ended with code %d and the message: %s", code, text);
}

#endif // ABORT_UTIL_H
