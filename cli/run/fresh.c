// fresh.c - a run that begins anew: what an earlier one left in its folder
// goes.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "run/show.h"

// Files that a run writes; others stay.
static bool is_ours(const char *name) {
    static const char *const starts[] = {"model.ckpt-", "events.out.tfevents.",
                                         "center.bin"};
    static const char *const whole[] = {
        "checkpoint", "experiment.json", "run.json",
        "table.json", "features.json",   "sweep.json",
        "folds.json", "data.json",       "run.done"};
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++)
        if (strncmp(name, starts[i], strlen(starts[i])) == 0)
            return true;
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++)
        if (strcmp(name, whole[i]) == 0)
            return true;
    return false;
}

// Somebody trains there: the lock of the library's saver is held.
static bool is_busy(const char *folder) {
    char *path = cli_printf("%s/.hooke.lock", folder);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    const bool busy =
        fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fd >= 0)
        close(fd);
    free(path);
    return busy;
}

static bool is_folder(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

// Files of the folder, and of its folders eval and eval_NAME.
static int clear(const char *folder, bool inner, size_t *removed) {
    DIR *d = opendir(folder);
    int failed = 0;
    if (!d)
        return errno == ENOENT ? 0
                               : cli_fail("%s: %s", folder, strerror(errno));
    for (struct dirent *e; !failed && (e = readdir(d)) != NULL;) {
        char *path = cli_printf("%s/%s", folder, e->d_name);
        if (!inner && strncmp(e->d_name, "eval", 4) == 0 && is_folder(path))
            failed = clear(path, true, removed);
        else if (is_ours(e->d_name) && !is_folder(path)) {
            if (unlink(path) != 0)
                failed = cli_fail("%s: %s", path, strerror(errno));
            ++*removed;
        }
        free(path);
    }
    closedir(d);
    return failed;
}

int run_afresh(const cli_args *a) {
    experiment *x;
    settings s;
    size_t removed = 0;
    int failed = experiment_open(a, cli_operand(a, 0), &x);
    if (!failed && x->run_dir)
        failed = cli_fail("--fresh: %s is the folder of the run to remove; "
                          "name its experiment instead",
                          x->run_dir);
    if (!failed)
        failed = settings_read(x, a, &s);
    if (!failed && is_busy(s.model_dir))
        failed = cli_fail("%s: another process is training in this folder",
                          s.model_dir);
    if (!failed)
        failed = clear(s.model_dir, false, &removed);
    if (!failed && removed)
        cli_note("%s: removed %zu files of an earlier run", s.model_dir,
                 removed);
    return failed;
}
