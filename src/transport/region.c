// region.c - memory that two processes see, and how it gets from one to the
// other.
#define _GNU_SOURCE // memfd_create
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "transport/conn.h"

void hki_region_deinit(hki_region *r) {
    if (r->bytes != NULL)
        munmap(r->bytes, r->size);
    if (r->bytes != NULL && r->fd >= 0)
        close(r->fd);
    *r = (hki_region){.fd = -1};
}

// fd is taken over.
static hk_status map(hki_region *r, int fd, size_t size, bool writable,
                     const char *what) {
    void *const p =
        mmap(NULL, HKI_MAX(size, (size_t)1),
             PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        const int error = errno;
        close(fd);
        return hki_fail(error == ENOMEM ? HK_E_NO_MEMORY : HK_E_IO,
                        "%s: cannot map %zu bytes: %s", what, size,
                        strerror(error));
    }
    *r = (hki_region){.fd = fd, .bytes = p, .size = HKI_MAX(size, (size_t)1)};
    return HK_OK;
}

hk_status hki_region_create(hki_region *r, const char *name, size_t size) {
    *r = (hki_region){.fd = -1};
    const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return hki_fail(HK_E_IO, "%s: cannot create shared memory: %s", name,
                        strerror(errno));
    // Pages are reserved now: running out later would be a signal. Seals keep
    // the peer from cutting them off.
    const int64_t bytes = (int64_t)HKI_MAX(size, (size_t)1);
    if (ftruncate(fd, bytes) != 0 ||
        (errno = posix_fallocate(fd, 0, bytes)) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) !=
            0) {
        const int error = errno;
        close(fd);
        return hki_fail(error == ENOSPC ? HK_E_NO_MEMORY : HK_E_IO,
                        "%s: cannot reserve %zu bytes of shared memory: %s",
                        name, size, strerror(error));
    }
    return map(r, fd, size, true, name);
}

// Maps `size` bytes of a file from a peer, which is taken over.
static hk_status map_received(hki_region *r, int fd, size_t size, bool writable,
                              const char *what) {
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) ||
        (uint64_t)st.st_size < size) {
        close(fd);
        return hki_fail(
            HK_E_DATA, "%s: the received shared memory does not have %zu bytes",
            what, size);
    }
    HKI_TRY(map(r, fd, size, writable, what));
    close(fd); // the mapping keeps the file
    r->fd = -1;
    return HK_OK;
}

// ---- handing over -------------------------------------------------------------

static hk_status pass_file(hki_conn *c, int fd, int64_t deadline_ns) {
    for (bool done = false;;) {
        HKI_TRY(c->ops->pass(c, fd, &done));
        if (done)
            return HK_OK;
        HKI_TRY(
            hki_conn_wait_to(c, false, NULL, deadline_ns, "hand over memory"));
    }
}

hk_status hki_conn_offer(hki_conn *c, const hki_region *r,
                         int64_t deadline_ns) {
    return pass_file(c, r->fd, deadline_ns);
}

hk_status hki_conn_offer_file(hki_conn *c, int fd, const char *what,
                              int64_t deadline_ns) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const int readable = open(path, O_RDONLY | O_CLOEXEC);
    if (readable < 0)
        return hki_fail(
            HK_E_IO, "%s: cannot send the shared memory of the center", what);
    const hk_status s = pass_file(c, readable, deadline_ns);
    close(readable);
    return s;
}

hk_status hki_conn_take(hki_conn *c, size_t size, bool writable,
                        const hki_wake *wake, int64_t deadline_ns,
                        hki_region *out) {
    for (int fd = -1;;) {
        HKI_TRY(c->ops->take(c, &fd));
        if (fd >= 0)
            return map_received(out, fd, size, writable, c->peer);
        HKI_TRY(
            hki_conn_wait_to(c, true, wake, deadline_ns, "take over memory"));
    }
}
