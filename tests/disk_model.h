// disk_model.h - a disk that forgets: what was not flushed when the power went
// is gone, as far as a file system may let it go.
//
// It wraps the table of file calls. Data of a file that was not fsynced turn
// to zeros or vanish; renames and removals since the last fsync of their
// folder are undone: all of them, the later half, or one. Nothing is really
// flushed, so that the loops are quick.
#ifndef DISK_MODEL_H
#define DISK_MODEL_H
#include "file_util.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>

typedef enum disk_loss {
    DISK_KEEPS_ALL = 0,  // everything reached the disk by itself
    DISK_ZEROS_DATA = 1, // names did, unflushed data did not
    DISK_LOSES_DATA = 2, // the same; such files are empty
    DISK_LOSES_ALL = 3,  // names since the last fsync of the folder, too
    DISK_LOSES_HALF = 4, // of these the later half
    DISK_LOSES_ONE = 5,  // only the first: names need not be in order
    DISK_LOSS_COUNT = 6
} disk_loss;

#define DISK_MAX 4096

// One change of a folder that has not been flushed.
typedef struct disk_change {
    char from[512], to[512]; // to empty: removed
    char backup[512];        // what lay at `to` (or was removed); empty: none
} disk_change;

static folder disk_shadow; // backups, on the same file system
static struct {
    int backups;
    disk_change changes[DISK_MAX];
    size_t n_changes;
    struct {
        dev_t dev;
        ino_t ino;
    } dirty[DISK_MAX]; // files with unflushed data
    size_t n_dirty;
} disk;

static inline void disk_backup(const char *path, char backup[512]) {
    backup[0] = '\0';
    if (access(path, F_OK) != 0)
        return;
    snprintf(backup, 512, "%s/%d", disk_shadow.path, disk.backups++);
    assert_int_equal(link(path, backup), 0);
}

static inline size_t disk_find(const struct stat *st) {
    size_t i = 0;
    while (i < disk.n_dirty &&
           (disk.dirty[i].ino != st->st_ino || disk.dirty[i].dev != st->st_dev))
        i++;
    return i;
}

static inline void disk_set_dirty(int fd, bool dirty) {
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    const size_t i = disk_find(&st);
    if (dirty && i == disk.n_dirty) {
        assert_true(disk.n_dirty < DISK_MAX);
        disk.dirty[i].dev = st.st_dev;
        disk.dirty[i].ino = st.st_ino;
        disk.n_dirty++;
    } else if (!dirty && i < disk.n_dirty) {
        disk.dirty[i] = disk.dirty[--disk.n_dirty];
    }
}

static inline int disk_open(const char *path, int flags, unsigned mode) {
    return hki_io_system.open(path, flags, mode);
}

static inline ssize_t disk_write(int fd, const void *bytes, size_t size) {
    disk_set_dirty(fd, true);
    return hki_io_system.write(fd, bytes, size);
}

static inline ssize_t disk_pwrite(int fd, const void *bytes, size_t size,
                                  int64_t offset) {
    disk_set_dirty(fd, true);
    return hki_io_system.pwrite(fd, bytes, size, offset);
}

static inline int disk_truncate(int fd, int64_t size) {
    disk_set_dirty(fd, true);
    return hki_io_system.truncate(fd, size);
}

static inline int disk_fsync(int fd) {
    disk_set_dirty(fd, false);
    return 0;
}

static inline int disk_rename(const char *from, const char *to) {
    assert_true(disk.n_changes < DISK_MAX);
    disk_change *const c = &disk.changes[disk.n_changes];
    snprintf(c->from, sizeof c->from, "%s", from);
    snprintf(c->to, sizeof c->to, "%s", to);
    disk_backup(to, c->backup);
    const int r = hki_io_system.rename(from, to);
    disk.n_changes += r == 0;
    return r;
}

static inline int disk_unlink(const char *path) {
    assert_true(disk.n_changes < DISK_MAX);
    disk_change *const c = &disk.changes[disk.n_changes];
    snprintf(c->from, sizeof c->from, "%s", path);
    c->to[0] = '\0';
    disk_backup(path, c->backup);
    const int r = hki_io_system.unlink(path);
    disk.n_changes += r == 0;
    return r;
}

static inline int disk_mkdir(const char *path, unsigned mode) {
    return hki_io_system.mkdir(path, mode);
}

static inline int disk_fsync_dir(const char *path) {
    (void)path; // the tests have one folder at a time
    disk.n_changes = 0;
    return 0;
}

static const hki_io_table disk_table = {
    .open = disk_open,
    .write = disk_write,
    .pwrite = disk_pwrite,
    .truncate = disk_truncate,
    .fsync = disk_fsync,
    .rename = disk_rename,
    .unlink = disk_unlink,
    .mkdir = disk_mkdir,
    .fsync_dir = disk_fsync_dir,
};

static inline void disk_init(void) {
    memset(&disk, 0, sizeof disk);
    folder_make(&disk_shadow);
    hki_io_replace(&disk_table);
}

static inline void disk_deinit(void) {
    hki_io_replace(NULL);
    folder_remove(&disk_shadow);
}

// Everything so far is on the disk.
static inline void disk_flush(void) {
    disk.n_changes = disk.n_dirty = 0;
}

static inline void disk_undo(const disk_change *c) {
    if (c->to[0] != '\0')
        assert_int_equal(rename(c->to, c->from), 0);
    if (c->backup[0] != '\0')
        assert_int_equal(rename(c->backup, c->to[0] != '\0' ? c->to : c->from),
                         0);
}

// The first change that no later one builds upon.
static inline size_t disk_first_alone(void) {
    for (size_t i = 0; i < disk.n_changes; i++) {
        const disk_change *const c = &disk.changes[i];
        bool alone = true;
        for (size_t k = i + 1; k < disk.n_changes && alone; k++) {
            const disk_change *const later = &disk.changes[k];
            alone = strcmp(later->from, c->from) != 0 &&
                    strcmp(later->from, c->to) != 0 &&
                    strcmp(later->to, c->from) != 0 &&
                    (c->to[0] == '\0' || strcmp(later->to, c->to) != 0);
        }
        if (alone)
            return i;
    }
    return disk.n_changes;
}

// Data that were not flushed, of one file.
static inline void disk_spoil(const char *path, disk_loss loss) {
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) ||
        disk_find(&st) == disk.n_dirty)
        return;
    assert_int_equal(truncate(path, 0), 0);
    if (loss == DISK_ZEROS_DATA)
        assert_int_equal(truncate(path, st.st_size), 0);
}

// The power goes: the folder as a restarted machine may find it.
static inline void disk_crash(const char *path, disk_loss loss) {
    size_t keep = disk.n_changes;
    if (loss == DISK_LOSES_ALL)
        keep = 0;
    else if (loss == DISK_LOSES_HALF)
        keep = disk.n_changes / 2;
    else if (loss == DISK_LOSES_ONE && disk_first_alone() < disk.n_changes)
        disk_undo(&disk.changes[disk_first_alone()]);
    while (disk.n_changes > keep)
        disk_undo(&disk.changes[--disk.n_changes]);
    DIR *const dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        char inner[1024];
        snprintf(inner, sizeof inner, "%s/%s", path, e->d_name);
        if (loss != DISK_KEEPS_ALL)
            disk_spoil(inner, loss);
    }
    closedir(dir);
    disk_flush();
}

#endif // DISK_MODEL_H
