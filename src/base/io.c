// io.c - files: reading, and files that appear whole or not at all. Calls that
// change something go through a table (io_table.c).
#define _GNU_SOURCE // O_NOFOLLOW, sync_file_range, strerror_r
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- errors and paths ------------------------------------------------------

hk_status hki_io_fail(int error, const char *path, const char *verb) {
    char text[128];
    hk_status s = HK_E_IO;
    if (error == ENOENT || error == ENOTDIR)
        s = HK_E_NOT_FOUND;
    else if (error == EACCES || error == EPERM || error == EROFS)
        s = HK_E_DENIED;
    else if (error == EEXIST)
        s = HK_E_EXISTS;
    else if (error == ENOMEM)
        s = HK_E_NO_MEMORY;
    return hki_fail(s, "%s: cannot %s: %s", path, verb,
                    strerror_r(error, text, sizeof text));
}

bool hki_path_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

bool hki_path_is_dir(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

const char *hki_path_name(const char *path) {
    const char *const slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

hk_status hki_path_folder(const char *path, char **out) {
    size_t n = (size_t)(hki_path_name(path) - path);
    if (n == 0)
        return hki_strdup(".", out);
    while (n > 1 && path[n - 1] == '/')
        n--;
    char *folder;
    HKI_TRY(hki_alloc_array(n + 1, 1, &folder));
    memcpy(folder, path, n);
    folder[n] = '\0';
    *out = folder;
    return HK_OK;
}

// ---- reading ---------------------------------------------------------------

hk_status hki_file_length(int fd, const char *path, uint64_t *bytes) {
    struct stat st;
    if (fstat(fd, &st) != 0)
        return hki_io_fail(errno, path, "examine");
    if (!S_ISREG(st.st_mode))
        return hki_fail(HK_E_DATA, "%s: not a regular file", path);
    *bytes = (uint64_t)st.st_size;
    return HK_OK;
}

static hk_status open_read(const char *path, int flags, int *fd,
                           uint64_t *size) {
    // Without O_NONBLOCK a pipe would wait for its writer.
    const int f = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);
    struct stat st;
    if (f < 0 && errno == ELOOP && flags != 0)
        return hki_fail(HK_E_DENIED,
                        "%s: is a symbolic link; a regular file is needed",
                        path);
    if (f < 0)
        return hki_io_fail(errno, path, "open");
    if (fstat(f, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(f);
        return hki_fail(HK_E_IO, "%s: not a regular file", path);
    }
    *fd = f;
    *size = (uint64_t)st.st_size;
    return HK_OK;
}

hk_status hki_file_open_read(const char *path, int *fd, uint64_t *size) {
    return open_read(path, 0, fd, size);
}

hk_status hki_file_open_private(const char *path, int *fd, uint64_t *size) {
    return open_read(path, O_NOFOLLOW, fd, size);
}

void hki_file_close_read(int fd) {
    if (fd >= 0)
        close(fd);
}

hk_status hki_file_read_at(int fd, const char *path, uint64_t offset,
                           void *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        const ssize_t n = pread(fd, (char *)bytes + done, size - done,
                                (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return hki_io_fail(errno, path, "read");
        if (n == 0)
            return hki_fail(HK_E_DATA,
                            "%s: truncated: %zu bytes were expected from byte "
                            "%llu on, but there are %zu",
                            path, size, (unsigned long long)offset, done);
        done += (size_t)n;
    }
    return HK_OK;
}

hk_status hki_excerpt_open(hki_excerpt *w, const char *path) {
    w->path = path;
    return hki_file_open_read(path, &w->fd, &w->size);
}

void hki_excerpt_close(hki_excerpt *w) {
    hki_file_close_read(w->fd);
    w->fd = -1;
    w->size = w->n = 0;
}

hk_status hki_excerpt_get(hki_excerpt *w, uint64_t offset, size_t n,
                          const uint8_t **out) {
    const size_t want = HKI_MAX(n, HKI_MAX(w->room, HKI_EXCERPT));
    const bool inside = offset >= w->offset && offset - w->offset <= w->n;
    const size_t gone = inside ? (size_t)(offset - w->offset) : w->n;
    const size_t have = w->n - gone;
    if (have < n) {
        if (have > 0)
            memmove(w->bytes, w->bytes + gone, have);
        w->offset = offset;
        w->n = have;
        HKI_TRY(hki_list_reserve(&w->bytes, want, &w->room, 1));
        const uint64_t left = w->size - offset - have;
        const size_t more = (size_t)HKI_MIN(left, (uint64_t)(want - have));
        HKI_TRY(hki_file_read_at(w->fd, w->path, offset + have, w->bytes + have,
                                 more));
        w->n += more;
    }
    *out = w->bytes + (offset - w->offset);
    return HK_OK;
}

// All n bytes of fd, which is closed.
static hk_status read_whole(int fd, const char *path, uint64_t n, size_t limit,
                            uint8_t **bytes, size_t *size) {
    uint8_t *b = NULL;
    hk_status s = HK_OK;
    if (n > limit)
        s = hki_fail(HK_E_DATA,
                     "%s: has %llu bytes, more than the limit of %zu", path,
                     (unsigned long long)n, limit);
    if (s == HK_OK)
        s = hki_alloc_array((size_t)n + 1, 1, &b);
    if (s == HK_OK)
        s = hki_file_read_at(fd, path, 0, b, (size_t)n);
    close(fd);
    HKI_TRY_OR(s, hki_free(b));
    b[n] = '\0';
    *bytes = b;
    *size = (size_t)n;
    return HK_OK;
}

hk_status hki_file_read_all(const char *path, size_t limit, uint8_t **bytes,
                            size_t *size) {
    int fd = -1;
    uint64_t n = 0;
    HKI_TRY(hki_file_open_read(path, &fd, &n));
    return read_whole(fd, path, n, limit, bytes, size);
}

hk_status hki_file_read_private(const char *path, size_t limit, uint8_t **bytes,
                                size_t *size) {
    int fd = -1;
    uint64_t n = 0;
    HKI_TRY(hki_file_open_private(path, &fd, &n));
    return read_whole(fd, path, n, limit, bytes, size);
}

// ---- writing ---------------------------------------------------------------

// So many bytes at a time are handed to the disk while more are written: the
// fsync at the end then has little left to wait for.
#define WRITEBACK_BYTES (UINT64_C(8) << 20)

struct hki_file {
    char *path, *temp;
    int fd;
    bool is_private;        // for its owner's eyes
    uint64_t size, started; // bytes appended; of these on their way to disk
};

static hk_status temp_path(const char *path, char **out) {
    const size_t folder = (size_t)(hki_path_name(path) - path);
    hki_buf b = {0};
    const hk_status s = hki_buf_printf(&b, "%.*s.%s%s", (int)folder, path,
                                       path + folder, HKI_TEMP_SUFFIX);
    if (s != HK_OK)
        return s;
    *out = b.data;
    return HK_OK;
}

// Takes the lock of an open temporary file. *stale: it was removed or renamed
// between open and lock, so that another one has to be made.
static hk_status lock_temp(int fd, const char *temp, bool *stale) {
    struct stat mine, there;
    *stale = false;
    if (hki_io()->lock(fd, false) != 0) {
        if (errno == EWOULDBLOCK)
            return hki_fail(HK_E_EXISTS,
                            "%s: another process is writing this file", temp);
        return HK_OK; // a file system without locks
    }
    *stale = fstat(fd, &mine) != 0 || stat(temp, &there) != 0 ||
             mine.st_ino != there.st_ino || mine.st_dev != there.st_dev;
    return HK_OK;
}

hk_status hki_file_make_private(int fd, const char *path) {
    struct stat st;
    if (fstat(fd, &st) != 0)
        return hki_io_fail(errno, path, "examine");
    if (st.st_uid != geteuid())
        return hki_fail(HK_E_DENIED,
                        "%s: belongs to user %u and would show that user the "
                        "data of user %u; remove it",
                        path, (unsigned)st.st_uid, (unsigned)geteuid());
    if (fchmod(fd, 0600) != 0)
        return hki_io_fail(errno, path, "protect from other users");
    return HK_OK;
}

static hk_status open_temp(hki_file *f) {
    for (int tries = 0; tries < 100; tries++) {
        bool stale;
        f->fd =
            hki_io()->open(f->temp, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
                           f->is_private ? 0600 : 0666);
        if (f->fd < 0)
            return hki_io_fail(errno, f->path, "create");
        hk_status s = lock_temp(f->fd, f->temp, &stale);
        if (s == HK_OK && !stale && f->is_private)
            s = hki_file_make_private(f->fd, f->temp);
        if (s == HK_OK && !stale) {
            // Bytes of a writer that crashed may be there.
            if (hki_io()->truncate(f->fd, 0) == 0)
                return HK_OK;
            return hki_io_fail(errno, f->temp, "empty");
        }
        hki_io()->close(f->fd);
        f->fd = -1;
        HKI_TRY(s);
    }
    return hki_fail(HK_E_IO,
                    "%s: other processes remove this file again and again",
                    f->temp);
}

static void free_file(hki_file *f) {
    if (f->fd >= 0)
        hki_io()->close(f->fd);
    hki_free(f->path);
    hki_free(f->temp);
    hki_free(f);
}

// The rename at the end would put the file in the place of a device.
static hk_status check_place(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0 || S_ISREG(st.st_mode))
        return HK_OK;
    return hki_fail(HK_E_IO, "%s: is %s, not a regular file", path,
                    S_ISDIR(st.st_mode) ? "a folder" : "a device or a pipe");
}

static hk_status create(const char *path, bool is_private, hki_file **out) {
    hki_file *f;
    HKI_TRY(check_place(path));
    HKI_TRY(hki_zalloc_array(1, sizeof *f, &f));
    f->fd = -1;
    f->is_private = is_private;
    hk_status s = hki_strdup(path, &f->path);
    if (s == HK_OK)
        s = temp_path(path, &f->temp);
    if (s == HK_OK)
        s = open_temp(f);
    if (s != HK_OK) {
        // A file that could be opened is ours and goes again.
        if (f->fd >= 0)
            hki_file_discard(f);
        else
            free_file(f);
        return s;
    }
    *out = f;
    return HK_OK;
}

hk_status hki_file_create(const char *path, hki_file **out) {
    return create(path, false, out);
}

hk_status hki_file_create_private(const char *path, hki_file **out) {
    return create(path, true, out);
}

// Starts the writing of what has gathered; a hint, so its result is ignored.
static void start_writeback(hki_file *f) {
#if defined(__linux__)
    if (f->size - f->started < WRITEBACK_BYTES)
        return;
    sync_file_range(f->fd, (off_t)f->started, (off_t)(f->size - f->started),
                    SYNC_FILE_RANGE_WRITE);
    f->started = f->size;
#else
    (void)f;
#endif
}

hk_status hki_file_write(hki_file *f, const void *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        const size_t piece = HKI_MIN(size - done, (size_t)WRITEBACK_BYTES);
        const ssize_t n =
            hki_io()->write(f->fd, (const char *)bytes + done, piece);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return hki_io_fail(n < 0 ? errno : ENOSPC, f->path, "write");
        done += (size_t)n;
        f->size += (uint64_t)n;
        start_writeback(f);
    }
    return HK_OK;
}

// A file that is long enough and without holes is left alone: some file
// systems want space even for what is there.
hk_status hki_file_reserve(int fd, const char *path, uint64_t bytes) {
    struct stat st;
    if (fstat(fd, &st) != 0)
        return hki_io_fail(errno, path, "examine");
    if ((uint64_t)st.st_size >= bytes && (uint64_t)st.st_blocks * 512 >= bytes)
        return HK_OK;
    if ((uint64_t)st.st_size < bytes &&
        hki_io()->truncate(fd, (int64_t)bytes) != 0)
        return hki_io_fail(errno, path, "reserve space");
    if (hki_io()->allocate(fd, (int64_t)bytes) != 0 && errno != EOPNOTSUPP &&
        errno != EINVAL)
        return hki_io_fail(errno, path, "reserve space");
    return HK_OK;
}

hk_status hki_file_write_over(int fd, const char *path, uint64_t offset,
                              const void *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        const ssize_t n =
            hki_io()->pwrite(fd, (const char *)bytes + done, size - done,
                             (int64_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return hki_io_fail(n < 0 ? errno : ENOSPC, path, "write");
        done += (size_t)n;
    }
    return HK_OK;
}

hk_status hki_file_write_at(hki_file *f, uint64_t offset, const void *bytes,
                            size_t size) {
    return hki_file_write_over(f->fd, f->path, offset, bytes, size);
}

uint64_t hki_file_size(const hki_file *f) {
    return f->size;
}

hk_status hki_file_commit(hki_file *f, bool durable) {
    hk_status s = HK_OK;
    if (durable && hki_io()->fsync(f->fd) != 0)
        s = hki_io_fail(errno, f->path, "flush to disk");
    // The lock is held until the file has left the temporary name.
    if (s == HK_OK && hki_io()->rename(f->temp, f->path) != 0)
        s = hki_io_fail(errno, f->path, "rename into place");
    HKI_TRY_OR(s, hki_file_discard(f));
    free_file(f);
    return HK_OK;
}

void hki_file_discard(hki_file *f) {
    if (f == NULL)
        return;
    hki_io()->unlink(f->temp); // what stays is cleared away later
    free_file(f);
}

hk_status hki_file_end(hki_file *f, hk_status s, bool durable) {
    if (s == HK_OK)
        return hki_file_commit(f, durable);
    hki_file_discard(f);
    return s;
}

static hk_status copy_bytes(int fd, const char *from, uint64_t size,
                            hki_file *to) {
    const size_t block_bytes = 1 << 20;
    HKI_FREED uint8_t *block = NULL;
    HKI_TRY(hki_alloc_array(block_bytes, 1, &block));
    for (uint64_t at = 0; at < size; at += block_bytes) {
        const size_t n = (size_t)HKI_MIN(size - at, (uint64_t)block_bytes);
        HKI_TRY(hki_file_read_at(fd, from, at, block, n));
        HKI_TRY(hki_file_write(to, block, n));
    }
    return HK_OK;
}

hk_status hki_file_copy(const char *from, const char *to, bool is_private,
                        bool durable) {
    int fd = -1;
    uint64_t size = 0;
    hki_file *f;
    HKI_TRY((is_private ? hki_file_open_private : hki_file_open_read)(from, &fd,
                                                                      &size));
    hk_status s = create(to, is_private, &f);
    if (s == HK_OK)
        s = hki_file_end(f, copy_bytes(fd, from, size, f), durable);
    hki_file_close_read(fd);
    return s;
}

hk_status hki_folder_make(const char *path) {
    HKI_FREED char *copy = NULL;
    HKI_TRY(hki_strdup(path, &copy));
    for (char *p = copy; *p != '\0';) {
        char *const slash = strchr(p + 1, '/');
        if (slash != NULL)
            *slash = '\0';
        if (!hki_path_is_dir(copy) && hki_io()->mkdir(copy, 0777) != 0 &&
            errno != EEXIST)
            return hki_io_fail(errno, copy, "create the folder");
        if (slash == NULL)
            break;
        *slash = '/';
        p = slash;
    }
    if (!hki_path_is_dir(path))
        return hki_fail(HK_E_IO, "%s: not a folder", path);
    return HK_OK;
}

hk_status hki_sync_folder(const char *path) {
    HKI_FREED char *folder = NULL;
    HKI_TRY(hki_path_folder(path, &folder));
    return hki_io()->fsync_dir(folder) == 0
               ? HK_OK
               : hki_io_fail(errno, folder, "flush to disk");
}

static hk_status replace(const char *path, bool is_private, const void *bytes,
                         size_t size, bool durable) {
    hki_file *f;
    HKI_TRY(create(path, is_private, &f));
    HKI_TRY(hki_file_end(f, hki_file_write(f, bytes, size), durable));
    return durable ? hki_sync_folder(path) : HK_OK;
}

hk_status hki_file_replace(const char *path, const void *bytes, size_t size,
                           bool durable) {
    return replace(path, false, bytes, size, durable);
}

hk_status hki_file_replace_private(const char *path, const void *bytes,
                                   size_t size, bool durable) {
    return replace(path, true, bytes, size, durable);
}

hk_status hki_file_remove(const char *path) {
    if (hki_io()->unlink(path) != 0 && errno != ENOENT)
        return hki_io_fail(errno, path, "remove");
    return HK_OK;
}

// ---- what crashes leave ----------------------------------------------------

// The name that a temporary file would have got; false when it is none.
static bool final_name(const char *temp, char out[256]) {
    const size_t n = strlen(temp), m = strlen(HKI_TEMP_SUFFIX);
    if (temp[0] != '.' || n <= m + 1 || n > 255 ||
        strcmp(temp + n - m, HKI_TEMP_SUFFIX) != 0)
        return false;
    memcpy(out, temp + 1, n - m - 1);
    out[n - m - 1] = '\0';
    return true;
}

typedef struct clearing {
    bool (*mine)(void *user, const char *name);
    void *user;
    size_t removed;
} clearing;

// Removes one file under way unless its writer lives.
static hk_status clear_one(void *user, const char *path) {
    clearing *const c = user;
    char name[256];
    if (!final_name(hki_path_name(path), name) || !c->mine(c->user, name))
        return HK_OK;
    const int fd =
        hki_io()->open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd < 0)
        return HK_OK; // gone meanwhile, or somebody else's
    hk_status s = HK_OK;
    if (hki_io()->lock(fd, false) == 0 || errno != EWOULDBLOCK) {
        s = hki_file_remove(path);
        c->removed += s == HK_OK;
    }
    hki_io()->close(fd);
    return s;
}

hk_status hki_clear_temporary_of(const char *folder,
                                 bool (*mine)(void *user, const char *name),
                                 void *user, size_t *removed) {
    clearing c = {.mine = mine, .user = user};
    HKI_TRY(hki_folder_each(folder, clear_one, &c));
    if (removed != NULL)
        *removed = c.removed;
    return HK_OK;
}

static bool any_name(void *user, const char *name) {
    (void)user;
    (void)name;
    return true;
}

hk_status hki_clear_temporary(const char *folder, size_t *removed) {
    return hki_clear_temporary_of(folder, any_name, NULL, removed);
}
