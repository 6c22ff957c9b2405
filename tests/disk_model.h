// disk_model.h - a disk that forgets: what was not flushed when the power went
// is gone, as far as a file system may let it go.
//
// It wraps the table of file calls. Data of a file that was not fsynced turn
// to zeros or vanish; pages that were flushed once and written over are old
// again, all or every other one. Renames and removals since the last fsync of
// their folder are undone: all of them, the later half, or one. Nothing is
// really flushed, so that the loops are quick.
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
    int n_open; // files, by the table
    disk_change changes[DISK_MAX];
    size_t n_changes;
    struct {
        dev_t dev;
        ino_t ino;
        bool dirty;     // has unflushed data, or may get some: is mapped
        uint8_t *map;   // of the newest mapping; NULL: there is none
        size_t mapped;  // bytes of it
        uint8_t *image; // what was flushed; NULL: nothing
        size_t bytes;   // of it
    } files[DISK_MAX];
    size_t n_files;
} disk;

static inline void disk_backup(const char *path, char backup[512]) {
    backup[0] = '\0';
    if (access(path, F_OK) != 0)
        return;
    snprintf(backup, 512, "%s/%d", disk_shadow.path, disk.backups++);
    assert_int_equal(link(path, backup), 0);
}

// The file's entry; made when there is none yet.
static inline size_t disk_find(int fd) {
    struct stat st;
    size_t i = 0;
    assert_int_equal(fstat(fd, &st), 0);
    while (i < disk.n_files &&
           (disk.files[i].ino != st.st_ino || disk.files[i].dev != st.st_dev))
        i++;
    assert_true(i < DISK_MAX);
    if (i == disk.n_files) {
        disk.files[i].dev = st.st_dev;
        disk.files[i].ino = st.st_ino;
        disk.n_files++;
    }
    return i;
}

static inline void disk_set_dirty(int fd) {
    disk.files[disk_find(fd)].dirty = true;
}

static inline uint8_t *disk_read(int fd, size_t *bytes) {
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    uint8_t *const p = malloc((size_t)st.st_size + 1);
    assert_non_null(p);
    assert_int_equal(pread(fd, p, (size_t)st.st_size, 0), st.st_size);
    *bytes = (size_t)st.st_size;
    return p;
}

static inline int disk_open(const char *path, int flags, unsigned mode) {
    const int fd = hki_io_system.open(path, flags, mode);
    disk.n_open += fd >= 0;
    return fd;
}

static inline int disk_close(int fd) {
    disk.n_open--;
    return hki_io_system.close(fd);
}

static inline int disk_lock(int fd, bool is_shared) {
    return hki_io_system.lock(fd, is_shared);
}

static inline ssize_t disk_write(int fd, const void *bytes, size_t size) {
    disk_set_dirty(fd);
    return hki_io_system.write(fd, bytes, size);
}

static inline ssize_t disk_pwrite(int fd, const void *bytes, size_t size,
                                  int64_t offset) {
    disk_set_dirty(fd);
    return hki_io_system.pwrite(fd, bytes, size, offset);
}

static inline int disk_truncate(int fd, int64_t size) {
    disk_set_dirty(fd);
    return hki_io_system.truncate(fd, size);
}

static inline int disk_allocate(int fd, int64_t size) {
    disk_set_dirty(fd);
    return hki_io_system.allocate(fd, size);
}

static inline void *disk_map(int fd, size_t size, bool is_private) {
    void *const p = hki_io_system.map(fd, size, is_private);
    if (fd >= 0 && !is_private) {
        const size_t i = disk_find(fd);
        disk.files[i].map = p;
        disk.files[i].mapped = size;
        disk.files[i].dirty = true;
    }
    return p;
}

// What was written there is in the file's memory still, unless it was flushed.
static inline int disk_unmap(void *at, size_t size) {
    for (size_t i = 0; i < disk.n_files; i++)
        if (disk.files[i].map == at) {
            disk.files[i].map = NULL;
            disk.files[i].mapped = 0;
        }
    return hki_io_system.unmap(at, size);
}

// Files that are mapped at this moment.
static inline size_t disk_mappings(void) {
    size_t n = 0;
    for (size_t i = 0; i < disk.n_files; i++)
        n += disk.files[i].map != NULL;
    return n;
}

static inline int disk_memory(const char *name) {
    return hki_io_system.memory(name);
}

// The flushed part of a mapped file: what was never flushed of it is zeros.
static inline int disk_msync(void *at, size_t size) {
    uint8_t *const p = at;
    for (size_t i = 0; i < disk.n_files; i++) {
        const size_t n = disk.files[i].mapped, have = disk.files[i].bytes;
        if (n == 0 || p < disk.files[i].map || p >= disk.files[i].map + n)
            continue;
        if (have < n) {
            disk.files[i].image = realloc(disk.files[i].image, n);
            assert_non_null(disk.files[i].image);
            memset(disk.files[i].image + have, 0, n - have);
            disk.files[i].bytes = n;
        }
        const size_t from = (size_t)(p - disk.files[i].map);
        const size_t to = HKI_MIN((from + size + 4095) / 4096 * 4096, n);
        memcpy(disk.files[i].image + from, p, to - from);
    }
    return 0;
}

static inline int disk_fsync(int fd) {
    const size_t i = disk_find(fd);
    free(disk.files[i].image);
    disk.files[i].image = disk_read(fd, &disk.files[i].bytes);
    disk.files[i].dirty = disk.files[i].mapped > 0;
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
    .close = disk_close,
    .lock = disk_lock,
    .write = disk_write,
    .pwrite = disk_pwrite,
    .truncate = disk_truncate,
    .allocate = disk_allocate,
    .fsync = disk_fsync,
    .map = disk_map,
    .unmap = disk_unmap,
    .msync = disk_msync,
    .memory = disk_memory,
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

// Everything so far is on the disk.
static inline void disk_flush(void) {
    for (size_t i = 0; i < disk.n_files; i++)
        free(disk.files[i].image);
    disk.n_changes = disk.n_files = 0;
    memset(disk.files, 0, sizeof disk.files);
}

static inline void disk_deinit(void) {
    disk_flush();
    hki_io_replace(NULL);
    folder_remove(&disk_shadow);
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
    if (lstat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return;
    const int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    const size_t i = disk_find(fd);
    const uint8_t *const image = disk.files[i].image;
    const size_t size = disk.files[i].bytes;
    if (disk.files[i].dirty) {
        size_t n;
        uint8_t *const now = disk_read(fd, &n);
        const bool some_stay = loss == DISK_ZEROS_DATA;
        assert_int_equal(ftruncate(fd, 0), 0);
        if (image == NULL && some_stay)
            assert_int_equal(ftruncate(fd, st.st_size), 0);
        if (image != NULL)
            assert_int_equal(pwrite(fd, image, size, 0), size);
        for (size_t at = 0;
             image != NULL && some_stay && at + 4096 <= HKI_MIN(n, size);
             at += 2 * 4096)
            assert_int_equal(pwrite(fd, now + at, 4096, (off_t)at), 4096);
        free(now);
    }
    close(fd);
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
