// io_table.c - the calls that open and change files, and an injector that makes
// the n-th of them fail, for tests.
#define _GNU_SOURCE // memfd_create, MAP_ANONYMOUS, madvise
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- the system's calls ----------------------------------------------------

static int system_open(const char *path, int flags, unsigned mode) {
    return open(path, flags, mode);
}

static int system_lock(int fd, bool is_shared) {
    return flock(fd, (is_shared ? LOCK_SH : LOCK_EX) | LOCK_NB);
}

static ssize_t system_pwrite(int fd, const void *bytes, size_t size,
                             int64_t offset) {
    return pwrite(fd, bytes, size, (off_t)offset);
}

static int system_truncate(int fd, int64_t size) {
    return ftruncate(fd, (off_t)size);
}

static int system_allocate(int fd, int64_t size) {
    const int e = posix_fallocate(fd, 0, (off_t)size);
    errno = e;
    return e == 0 ? 0 : -1;
}

static void *system_map(int fd, size_t size, bool is_private) {
    if (fd >= 0)
        return mmap(NULL, size, PROT_READ | PROT_WRITE,
                    is_private ? MAP_PRIVATE : MAP_SHARED, fd, 0);
    void *const at = mmap(NULL, size, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at != MAP_FAILED)
        (void)madvise(at, size, MADV_HUGEPAGE);
    return at;
}

static int system_msync(void *at, size_t size) {
    return msync(at, size, MS_SYNC);
}

static int system_memory(const char *name) {
    return memfd_create(name, MFD_CLOEXEC);
}

static int system_mkdir(const char *path, unsigned mode) {
    return mkdir(path, (mode_t)mode);
}

static int system_fsync_dir(const char *path) {
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    const int r = fsync(fd), e = errno;
    close(fd);
    errno = e;
    // Some file systems do not offer it; they order renames themselves.
    return r != 0 && e == EINVAL ? 0 : r;
}

const hki_io_table hki_io_system = {
    .open = system_open,
    .close = close,
    .lock = system_lock,
    .write = write,
    .pwrite = system_pwrite,
    .truncate = system_truncate,
    .allocate = system_allocate,
    .fsync = fsync,
    .map = system_map,
    .unmap = munmap,
    .msync = system_msync,
    .memory = system_memory,
    .rename = rename,
    .unlink = unlink,
    .mkdir = system_mkdir,
    .fsync_dir = system_fsync_dir,
};

// ---- faults ----------------------------------------------------------------

static _Atomic(const hki_io_table *) base_table = &hki_io_system;
static struct {
    atomic_bool armed;
    atomic_uint_fast64_t calls, nth;
    atomic_int fault, error;
} injector;

// Counts one call; true: it has to fail, and errno is set.
static bool faulty(void) {
    const uint64_t n = atomic_fetch_add(&injector.calls, 1) + 1;
    const uint64_t nth = atomic_load(&injector.nth);
    const bool cut = atomic_load(&injector.fault) == HKI_IO_POWER_CUT;
    if (nth == 0 || (cut ? n < nth : n != nth))
        return false;
    errno = atomic_load(&injector.error);
    return true;
}

static const hki_io_table *base(void) {
    return atomic_load(&base_table);
}

// After the cut not even half of a write gets through.
static bool writes_half(void) {
    return atomic_load(&injector.calls) == atomic_load(&injector.nth);
}

static ssize_t faulty_write(int fd, const void *bytes, size_t size) {
    if (!faulty())
        return base()->write(fd, bytes, size);
    const int e = errno;
    if (writes_half() && base()->write(fd, bytes, size / 2) < 0)
        return -1;
    errno = e;
    return -1;
}

static ssize_t faulty_pwrite(int fd, const void *bytes, size_t size,
                             int64_t offset) {
    if (!faulty())
        return base()->pwrite(fd, bytes, size, offset);
    const int e = errno;
    if (writes_half() && base()->pwrite(fd, bytes, size / 2, offset) < 0)
        return -1;
    errno = e;
    return -1;
}

// A call that fails or is made, with nothing in between.
#define FAULTY(name, params, ...)                                              \
    static int faulty_##name params {                                          \
        return faulty() ? -1 : base()->name(__VA_ARGS__);                      \
    }

FAULTY(open, (const char *path, int flags, unsigned mode), path, flags, mode)
FAULTY(truncate, (int fd, int64_t size), fd, size)
FAULTY(allocate, (int fd, int64_t size), fd, size)
FAULTY(msync, (void *at, size_t size), at, size)
FAULTY(fsync, (int fd), fd)
FAULTY(rename, (const char *from, const char *to), from, to)
FAULTY(unlink, (const char *path), path)
FAULTY(mkdir, (const char *path, unsigned mode), path, mode)
FAULTY(fsync_dir, (const char *path), path)

static void *faulty_map(int fd, size_t size, bool is_private) {
    return fd >= 0 && faulty() ? MAP_FAILED : base()->map(fd, size, is_private);
}

// The others change no file and are not counted.

static int passed_close(int fd) {
    return base()->close(fd);
}

static int passed_lock(int fd, bool is_shared) {
    return base()->lock(fd, is_shared);
}

static int passed_unmap(void *at, size_t size) {
    return base()->unmap(at, size);
}

static int passed_memory(const char *name) {
    return base()->memory(name);
}

static const hki_io_table faulty_table = {
    .open = faulty_open,
    .close = passed_close,
    .lock = passed_lock,
    .write = faulty_write,
    .pwrite = faulty_pwrite,
    .truncate = faulty_truncate,
    .allocate = faulty_allocate,
    .fsync = faulty_fsync,
    .map = faulty_map,
    .unmap = passed_unmap,
    .msync = faulty_msync,
    .memory = passed_memory,
    .rename = faulty_rename,
    .unlink = faulty_unlink,
    .mkdir = faulty_mkdir,
    .fsync_dir = faulty_fsync_dir,
};

const hki_io_table *hki_io(void) {
    return atomic_load(&injector.armed) ? &faulty_table : base();
}

void hki_io_replace(const hki_io_table *table) {
    atomic_store(&base_table, table != NULL ? table : &hki_io_system);
}

void hki_io_fail_at(uint64_t nth, hki_io_fault fault, int error) {
    atomic_store(&injector.armed, false);
    atomic_store(&injector.calls, 0);
    atomic_store(&injector.nth, nth);
    atomic_store(&injector.fault, (int)fault);
    atomic_store(&injector.error, error);
    atomic_store(&injector.armed, nth != 0);
}

bool hki_io_fault_hit(void) {
    const uint64_t nth = atomic_load(&injector.nth);
    return nth != 0 && atomic_load(&injector.calls) >= nth;
}

uint64_t hki_io_count(void) {
    return atomic_load(&injector.calls);
}
