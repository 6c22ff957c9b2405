// input_file.c - inputs: files of this machine, and those behind URLs.
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/io.h"
#include "fetch/fetch.h"
#include "fetch/remote/http.h"

#define MOST ((size_t)1 << 30) // bytes of one read

struct hki_input {
    char *path;
    int fd;           // -1: it is
    hki_ahead *ahead; // behind a URL
    // What was peeked at comes first: a pipe gives its bytes once.
    uint8_t head[HKI_INPUT_PEEK];
    size_t head_begin, head_end;
};

static atomic_uint_fast64_t bytes_read;

uint64_t hki_input_bytes(void) {
    return atomic_load_explicit(&bytes_read, memory_order_relaxed);
}

void hki_input_count(size_t n) {
    atomic_fetch_add_explicit(&bytes_read, n, memory_order_relaxed);
}

void hki_input_until(hki_input *in, uint64_t end) {
    if (in->ahead != NULL)
        hki_ahead_until(in->ahead, end);
}

static hk_status read_some(const hki_input *in, void *out, size_t capacity,
                           size_t *got) {
    if (in->ahead != NULL)
        return hki_ahead_read(in->ahead, out, capacity, got);
    for (;;) {
        const ssize_t n = read(in->fd, out, HKI_MIN(capacity, MOST));
        if (n >= 0) {
            *got = (size_t)n;
            hki_input_count((size_t)n);
            return HK_OK;
        }
        if (errno != EINTR)
            return hki_io_fail(errno, in->path, "read");
    }
}

hk_status hki_input_read(hki_input *in, void *out, size_t capacity,
                         size_t *got) {
    const size_t held = HKI_MIN(in->head_end - in->head_begin, capacity);
    if (held == 0)
        return read_some(in, out, capacity, got);
    memcpy(out, in->head + in->head_begin, held);
    in->head_begin += held;
    *got = held;
    return HK_OK;
}

hk_status hki_input_peek(hki_input *in, void *out, size_t size, size_t *got) {
    size_t n = 1;
    size = HKI_MIN(size, sizeof in->head);
    memmove(in->head, in->head + in->head_begin, in->head_end - in->head_begin);
    in->head_end -= in->head_begin;
    in->head_begin = 0;
    while (in->head_end < size && n > 0) {
        HKI_TRY(
            read_some(in, in->head + in->head_end, size - in->head_end, &n));
        in->head_end += n;
    }
    *got = HKI_MIN(in->head_end, size);
    memcpy(out, in->head, *got);
    return HK_OK;
}

bool hki_input_size(const hki_input *in, uint64_t *size) {
    struct stat st;
    if (in->ahead != NULL) {
        *size = hki_ahead_size(in->ahead);
        return true;
    }
    if (fstat(in->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return false;
    *size = (uint64_t)st.st_size;
    return true;
}

static hk_status seek_file(hki_input *in, uint64_t position) {
    uint64_t size;
    if (hki_input_size(in, &size) && position > size)
        return hki_fail(HK_E_DATA,
                        "%s: has %llu bytes, but reading was to continue at "
                        "byte %llu; the file is incomplete or was changed",
                        in->path, (unsigned long long)size,
                        (unsigned long long)position);
    if (position > INT64_MAX ||
        lseek(in->fd, (off_t)position, SEEK_SET) != (off_t)position)
        return hki_fail(HK_E_IO, "%s: cannot seek to byte %llu: %s", in->path,
                        (unsigned long long)position, strerror(errno));
    return HK_OK;
}

hk_status hki_input_seek(hki_input *in, uint64_t position) {
    HKI_TRY(in->ahead != NULL ? hki_ahead_seek(in->ahead, position)
                              : seek_file(in, position));
    in->head_begin = in->head_end = 0;
    return HK_OK;
}

const char *hki_input_path(const hki_input *in) {
    return in->path;
}

// ---- open and close --------------------------------------------------------

bool hki_is_url(const char *path) {
    const size_t n = strspn(path, "abcdefghijklmnopqrstuvwxyz0123456789");
    return n > 0 && strncmp(path + n, "://", 3) == 0;
}

static hk_status open_path(hki_input *in, const hki_watch *watch) {
    if (hki_is_url(in->path))
        return hki_ahead_open(in->path, watch, &in->ahead);
    in->fd = open(in->path, O_RDONLY | O_CLOEXEC);
    return in->fd < 0 ? hki_io_fail(errno, in->path, "open") : HK_OK;
}

hk_status hki_input_open(const char *path, const hki_watch *watch,
                         hki_input **out) {
    hki_input *in;
    HKI_TRY(hki_zalloc_array(1, sizeof *in, &in));
    in->fd = -1;
    HKI_TRY_OR(hki_strdup(path, &in->path), hki_input_close(in));
    HKI_TRY_OR(open_path(in, watch), hki_input_close(in));
    *out = in;
    return HK_OK;
}

void hki_input_close(hki_input *in) {
    if (in == NULL)
        return;
    hki_ahead_close(in->ahead);
    if (in->fd >= 0)
        (void)close(in->fd);
    hki_free(in->path);
    hki_free(in);
}
