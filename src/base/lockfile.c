// lockfile.c - a file that one holder at a time has, here or in another
// process of this machine.
//
// The lock is the system's (flock) and ends with its holder, however that
// ends; the file's content, the holder's process id, is only for messages. A
// released file is removed. Whoever opened it before that would then lock a
// name that is gone, so that the lock counts only once the name still leads
// to the locked file.
#define _GNU_SOURCE // O_NOFOLLOW
#include "base/base.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/io.h"

#define TRIES 100

struct hki_lockfile {
    int fd;
    char path[]; // NUL-terminated
};

static hk_status held_by_another(const char *path, int fd) {
    char text[32] = {0};
    const ssize_t n = pread(fd, text, sizeof text - 1, 0);
    const long pid = n > 0 ? strtol(text, NULL, 10) : 0;
    if (pid <= 0)
        return hki_fail(HK_E_EXISTS, "%s: locked by another process", path);
    return hki_fail(HK_E_EXISTS, "%s: locked by %s %ld", path,
                    pid == hki_process_id() ? "this process," : "process", pid);
}

static bool same_file(const char *path, int fd) {
    struct stat named, open_one;
    return stat(path, &named) == 0 && fstat(fd, &open_one) == 0 &&
           named.st_dev == open_one.st_dev && named.st_ino == open_one.st_ino;
}

// A file system that has no locks lets everybody in.
static bool without_locks(int error) {
    return error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP;
}

// One attempt; *fd stays -1 when the name vanished meanwhile.
static hk_status attempt(const char *path, int *fd) {
    const int f =
        hki_io()->open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (f < 0)
        return hki_fail(HK_E_IO, "%s: cannot open the lock file: %s", path,
                        strerror(errno));
    hk_status s = HK_OK;
    if (hki_io()->lock(f, false) != 0 && !without_locks(errno)) {
        const int e = errno;
        s = e == EWOULDBLOCK
                ? held_by_another(path, f)
                : hki_fail(HK_E_IO, "%s: cannot lock: %s", path, strerror(e));
    } else if (same_file(path, f)) {
        *fd = f;
        return HK_OK;
    }
    hki_io()->close(f);
    return s;
}

static void write_pid(int fd) {
    char text[32];
    const int n = snprintf(text, sizeof text, "%ld\n", hki_process_id());
    // A full disk costs the number in a message, not the lock.
    if (hki_io()->truncate(fd, 0) == 0 &&
        hki_io()->pwrite(fd, text, (size_t)n, 0) != n)
        (void)hki_io()->truncate(fd, 0);
}

hk_status hki_lockfile_take(const char *path, hki_lockfile **out) {
    const size_t n = strlen(path) + 1;
    hki_lockfile *l;
    HKI_TRY(hki_zalloc_array(1, sizeof *l + n, &l));
    memcpy(l->path, path, n);
    l->fd = -1;
    hk_status s = HK_OK;
    for (int i = 0; i < TRIES && l->fd < 0 && s == HK_OK; i++)
        s = attempt(path, &l->fd);
    if (s == HK_OK && l->fd < 0)
        s = hki_fail(HK_E_IO,
                     "%s: other processes remove the lock file again and again",
                     path);
    HKI_TRY_OR(s, hki_free(l));
    write_pid(l->fd);
    *out = l;
    return HK_OK;
}

void hki_lockfile_release(hki_lockfile *l) {
    if (l == NULL)
        return;
    (void)hki_io()->unlink(l->path);
    hki_io()->close(l->fd);
    hki_free(l);
}
