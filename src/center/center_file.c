// center_file.c - make, map, check and close a center file.
#define _GNU_SOURCE // O_NOFOLLOW
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include "base/io.h"
#include "center/center_sections.h"

static const char magic[8] = {'H', 'K', 'C', 'E', 'N', 'T', 'E', 'R'};
#define ENDIAN 0x01020304u
#define PAGE 4096u

uint64_t hki_center_check(const hki_center_head *h) {
    return hki_hash(HKI_HASH_INIT, h, offsetof(hki_center_head, check));
}

// ---- geometry ---------------------------------------------------------------

// *at := *at + bytes, rounded up to `align`; false: overflow.
static bool place(uint64_t *at, uint64_t count, uint64_t size, uint64_t align) {
    uint64_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) ||
        __builtin_add_overflow(*at, bytes, at) ||
        *at > (uint64_t)INT64_MAX - align)
        return false;
    *at = (*at + align - 1) / align * align;
    return true;
}

hk_status hki_center_geometry(hki_center_head *h, const char *what) {
    uint64_t at = PAGE, stride = HKI_UNDO_DATA, vector = 0, chunk_bytes;
    bool fits = sizeof *h <= PAGE;
    h->layout_at = at;
    fits = fits && place(&at, h->layout_bytes, 1, PAGE);
    h->worker_at = at;
    fits = fits && place(&at, (uint64_t)h->max_workers + 1,
                         sizeof(hki_worker_record), 64);
    h->chunk_at = at;
    fits = fits && place(&at, h->n_chunks, sizeof(hki_chunk_record), 64);
    h->side_at = at;
    fits = fits && place(&at, h->side_bytes, 1, PAGE);
    h->undo_at = at;
    fits =
        fits &&
        !__builtin_mul_overflow(h->max_floats, sizeof(float), &chunk_bytes) &&
        place(&stride, h->n_vectors, chunk_bytes, PAGE);
    h->undo_stride = stride;
    fits = fits && place(&at, h->n_undo, stride, PAGE);
    h->vector_at = at;
    fits = fits && place(&vector, h->n_floats, sizeof(float), PAGE);
    h->vector_stride = vector;
    fits = fits && place(&at, h->n_vectors, vector, PAGE);
    h->file_bytes = at;
    if (!fits || at > SIZE_MAX)
        return hki_fail(HK_E_OVERFLOW,
                        "%s: %llu floats are too many for a center file", what,
                        (unsigned long long)h->n_floats);
    h->check = hki_center_check(h);
    return HK_OK;
}

static void set_pointers(hki_center_file *f) {
    hki_center_head *const h = (hki_center_head *)(void *)f->map;
    f->head = h;
    f->worker = (hki_worker_record *)(void *)(f->map + h->worker_at);
    f->chunk = (hki_chunk_record *)(void *)(f->map + h->chunk_at);
    f->side = f->map + h->side_at;
    for (uint32_t i = 0; i < h->n_vectors; i++)
        f->vector[i] =
            (float *)(void *)(f->map + h->vector_at + i * h->vector_stride);
}

uint8_t *hki_center_undo(const hki_center_file *f, uint32_t slot) {
    HKI_ASSERT(slot < f->head->n_undo);
    return f->map + f->head->undo_at + slot * f->head->undo_stride;
}

// ---- create -----------------------------------------------------------------

static hk_status map_fd(hki_center_file *f, const char *name) {
    void *const p = hki_io()->map(f->fd, f->bytes, f->view);
    if (p == MAP_FAILED)
        return hki_io_fail(errno, name, "map");
    f->map = p;
    return HK_OK;
}

static hk_status create_memory(hki_center_file *f, bool shared) {
    if (!shared)
        return hki_zalloc_array(f->bytes, 1, &f->map);
    f->fd = hki_io()->memory("hooke-center");
    if (f->fd < 0)
        return hki_io_fail(errno, "center", "create shared memory");
    HKI_TRY(hki_file_reserve(f->fd, "center", f->bytes));
    return map_fd(f, "center");
}

// A file appears under its name once its head is complete.
static hk_status create_path(hki_center_file *f, const char *path,
                             const char *temp) {
    if (hki_path_exists(path))
        return hki_fail(HK_E_EXISTS, "%s: the center file exists already",
                        path);
    f->fd = hki_io()->open(
        temp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (f->fd < 0)
        return hki_io_fail(errno, temp, "create");
    if (hki_io()->lock(f->fd, false) != 0)
        return hki_fail(HK_E_EXISTS,
                        "%s: another process is creating this file", temp);
    HKI_TRY(hki_file_make_private(f->fd, temp));
    HKI_TRY(hki_file_reserve(f->fd, temp, f->bytes));
    return map_fd(f, temp);
}

// Writes the file to the disk, then its name. Nothing stays behind after an
// error.
static hk_status publish(const hki_center_file *f, const char *path,
                         const char *temp) {
    if (hki_io()->fsync(f->fd) != 0 || hki_io()->rename(temp, path) != 0) {
        const hk_status s = hki_io_fail(errno, path, "create");
        (void)hki_io()->unlink(temp);
        return s;
    }
    HKI_TRY_OR(hki_sync_folder(path), (void)hki_io()->unlink(path));
    return HK_OK;
}

static void write_head(hki_center_file *f, const hki_center_head *head,
                       const void *layout) {
    memcpy(f->map, head, sizeof *head);
    hki_boot_id(((hki_center_head *)(void *)f->map)->boot);
    memcpy(f->map + head->layout_at, layout, head->layout_bytes);
    hki_sections_init(f);
    set_pointers(f);
}

hk_status hki_center_file_create(hki_center_file *f, const char *path,
                                 bool shared, const hki_center_head *head,
                                 const void *layout) {
    *f = (hki_center_file){.fd = -1};
    hki_center_head h = *head;
    memcpy(h.magic, magic, sizeof magic);
    h.endian = ENDIAN;
    h.version = HKI_CENTER_VERSION;
    HKI_TRY(hki_center_geometry(&h, path != NULL ? path : "center"));
    f->bytes = (size_t)h.file_bytes;
    if (path == NULL) {
        const hk_status s = create_memory(f, shared);
        if (s == HK_OK)
            write_head(f, &h, layout);
        else
            hki_center_file_close(f);
        return s;
    }
    hki_buf temp = {0};
    hk_status s = hki_buf_printf(&temp, "%s.new", path);
    if (s == HK_OK)
        s = hki_strdup(path, &f->path);
    if (s == HK_OK)
        s = create_path(f, path, temp.data);
    if (s == HK_OK) {
        write_head(f, &h, layout);
        s = publish(f, path, temp.data);
    }
    hki_buf_deinit(&temp);
    if (s != HK_OK)
        hki_center_file_close(f);
    return s;
}

// ---- open -------------------------------------------------------------------

bool hki_center_head_is(const void *head, size_t size) {
    return size >= sizeof magic && memcmp(head, magic, sizeof magic) == 0;
}

static hk_status check_head(const hki_center_file *f, const char *path) {
    const hki_center_head *const h = (const void *)f->map;
    if (!hki_center_head_is(h, f->bytes))
        return hki_fail(HK_E_DATA, "%s: not a center file", path);
    if (h->endian != ENDIAN)
        return hki_fail(HK_E_UNSUPPORTED,
                        "%s: was written on a machine with another byte order",
                        path);
    if (h->version == 0 || h->version > HKI_CENTER_VERSION)
        return hki_fail(
            HK_E_UNSUPPORTED,
            "%s: has format version %u; hooke %s reads versions up to %d", path,
            h->version, hk_version(), HKI_CENTER_VERSION);
    // A process that died in the middle of an upgrade left the hash as it was.
    hki_center_head old = *h;
    old.version = 1;
    if (h->check != hki_center_check(h) && h->check != hki_center_check(&old))
        return hki_fail(HK_E_DATA, "%s: the header is damaged", path);
    hki_center_head again = *h;
    if (h->n_vectors == 0 || h->n_vectors > HKI_MAX_VECTORS ||
        h->n_undo != HKI_UNDO_SLOTS ||
        hki_center_geometry(&again, path) != HK_OK ||
        memcmp(&again, h, offsetof(hki_center_head, check)) != 0 ||
        h->file_bytes > f->bytes ||
        (h->version == 1 && h->file_bytes != f->bytes))
        return hki_fail(HK_E_DATA,
                        "%s: the file has %zu bytes, but its header states "
                        "%llu; it is truncated or damaged",
                        path, f->bytes, (unsigned long long)h->file_bytes);
    return hki_sections_check(f, path);
}

static hk_status map_path(hki_center_file *f, const char *path) {
    uint64_t bytes;
    HKI_TRY(hki_file_length(f->fd, path, &bytes));
    if (bytes < PAGE)
        return hki_fail(HK_E_DATA,
                        "%s: %llu bytes are too few for a center file", path,
                        (unsigned long long)bytes);
    f->bytes = (size_t)bytes;
    if (!f->view)
        HKI_TRY(hki_file_reserve(f->fd, path, bytes));
    HKI_TRY(map_fd(f, path));
    HKI_TRY(check_head(f, path));
    set_pointers(f);
    return HK_OK;
}

static hk_status open_path(hki_center_file *f, const char *path) {
    f->fd = hki_io()->open(path, (f->view ? O_RDONLY : O_RDWR) | O_CLOEXEC, 0);
    if (f->fd < 0)
        return hki_io_fail(errno, path, "open");
    if (hki_io()->lock(f->fd, f->view) != 0)
        return f->view
                   ? hki_fail(HK_E_EXISTS,
                              "%s: a running center uses this file; try again "
                              "when it has ended, or use hooke evaluator",
                              path)
                   : hki_fail(HK_E_EXISTS,
                              "%s: another center server uses this file", path);
    return map_path(f, path);
}

static hk_status open_file(hki_center_file *f, const char *path, bool view) {
    *f = (hki_center_file){.fd = -1, .view = view};
    hk_status s = hki_strdup(path, &f->path);
    if (s == HK_OK)
        s = open_path(f, path);
    if (s != HK_OK) {
        f->head = NULL; // not ours to mark
        hki_center_file_close(f);
    }
    return s;
}

hk_status hki_center_file_open(hki_center_file *f, const char *path) {
    return open_file(f, path, false);
}

hk_status hki_center_file_view(hki_center_file *f, const char *path) {
    return open_file(f, path, true);
}

void hki_center_file_close(hki_center_file *f) {
    if (f->map != NULL && f->path == NULL && f->fd < 0) {
        hki_free(f->map);
    } else if (f->map != NULL) {
        if (f->path != NULL && f->head != NULL && !f->view) {
            // Values first, the promise after them.
            if (hki_io()->msync(f->map, f->bytes) == 0)
                f->head->clean = 1;
            (void)hki_io()->msync(f->map, PAGE);
        }
        hki_io()->unmap(f->map, f->bytes);
    }
    if (f->fd >= 0 && (f->bytes > 0 || f->path != NULL)) // not zeroed
        hki_io()->close(f->fd);
    hki_free(f->path);
    *f = (hki_center_file){.fd = -1};
}

hk_status hki_center_sync(const hki_center_file *f, const void *at,
                          size_t bytes) {
    const uintptr_t first = (uintptr_t)at / PAGE * PAGE;
    const uintptr_t last = (uintptr_t)at + bytes;
    HKI_ASSERT(first >= (uintptr_t)f->map &&
               last <= (uintptr_t)f->map + f->bytes);
    if (hki_io()->msync((void *)first, last - first) != 0)
        return hki_io_fail(errno, f->path, "write to the disk");
    return HK_OK;
}
