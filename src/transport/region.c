// region.c - memory that two processes see.
#define _GNU_SOURCE // memfd_create
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "transport/transport.h"

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

hk_status hki_region_map(hki_region *r, int fd, size_t size, bool writable,
                         const char *what) {
    *r = (hki_region){.fd = -1};
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) ||
        (uint64_t)st.st_size < size) {
        close(fd);
        return hki_fail(
            HK_E_DATA, "%s: the received shared memory does not have %zu bytes",
            what, size);
    }
    return map(r, fd, size, writable, what);
}
