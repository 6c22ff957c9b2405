// vector.c - vectors: their memory, and which of two copies is up to date.
//
// Slots and shadows are read row by row at random places when gradients are
// sparse; on 2 MiB pages an eight-table update was measured 1.3 x faster than
// on 4 KiB ones. The system is asked before the first touch, where it offers
// that.
#include "backend/vector.h"
#if defined(__linux__)
#include <sys/mman.h>
#endif

#define HUGE_BYTES ((size_t)4 << 20) // below: not worth a call
#define PAGE_BYTES ((uintptr_t)4096)

// Advice only: nothing depends on its being taken.
static void ask_for_huge_pages(void *p, size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const uintptr_t begin = ((uintptr_t)p + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
    const uintptr_t end = ((uintptr_t)p + bytes) & ~(PAGE_BYTES - 1);
    if (bytes >= HUGE_BYTES)
        (void)madvise((void *)begin, end - begin, MADV_HUGEPAGE);
#else
    (void)p;
    (void)bytes;
#endif
}

static size_t bytes_of(const hki_vector *v) {
    return (size_t)v->n * sizeof(float);
}

hk_status hki_vector_init(hki_vector *v, int64_t n, float value) {
    *v = (hki_vector){0};
    HKI_TRY(hki_alloc_array((size_t)n, sizeof *v->host, &v->host));
    v->n = n;
    ask_for_huge_pages(v->host, bytes_of(v));
    for (int64_t i = 0; i < n; i++)
        v->host[i] = value;
    return HK_OK;
}

void hki_vector_deinit(hki_vector *v) {
    if (v->at != NULL)
        v->at->backend->buffer_destroy(v->buffer);
    if (!v->borrowed)
        hki_free(v->host);
    *v = (hki_vector){0};
}

// ---- two copies -------------------------------------------------------------

// The host is not to look at what is newer elsewhere; a backend for tests sees
// to it.
static void close_host(hki_vector *v) {
    if (!v->host_old && v->at->backend->host_close != NULL)
        v->at->backend->host_close(v->host, bytes_of(v));
    v->host_old = true;
}

static hk_status open_host(hki_vector *v) {
    if (v->host_old && v->at->backend->host_open != NULL)
        HKI_TRY(v->at->backend->host_open(v->host, bytes_of(v)));
    v->host_old = false;
    return HK_OK;
}

hk_status hki_vector_host(hki_vector *v, hki_access a, float **out) {
    *out = v->host;
    if (v->at == NULL)
        return HK_OK;
    const hki_loc from = {v->buffer, 0};
    if (v->host_old) {
        HKI_TRY(open_host(v));
        if (a & HKI_TO_READ)
            HKI_TRY(
                v->at->backend->read(v->at->queue, v->host, from, bytes_of(v)));
    }
    if (a & HKI_TO_WRITE)
        v->away_old = true;
    return HK_OK;
}

hk_status hki_vector_at(hki_vector *v, hki_access a, float **out) {
    *out = v->n > 0 ? v->host : NULL;
    if (v->at == NULL)
        return HK_OK;
    const hki_loc to = {v->buffer, 0};
    if (v->away_old && (a & HKI_TO_READ))
        HKI_TRY(v->at->backend->write(v->at->queue, to, v->host, bytes_of(v)));
    v->away_old = false;
    if (a & HKI_TO_WRITE)
        close_host(v);
    *out = v->away;
    return HK_OK;
}

static hk_status go_home(hki_vector *v) {
    float *host;
    HKI_TRY(hki_vector_host(v, HKI_TO_CHANGE, &host));
    v->at->backend->buffer_destroy(v->buffer);
    v->buffer = NULL;
    v->away = NULL;
    v->at = NULL;
    v->away_old = false;
    return HK_OK;
}

hk_status hki_vector_follow(hki_vector *v, const hki_place *at) {
    if (v->at == at)
        return HK_OK;
    if (v->at != NULL)
        HKI_TRY(go_home(v));
    if (at == NULL || v->n == 0)
        return HK_OK;
    HKI_TRY(at->backend->buffer_create(at->device, bytes_of(v), &v->buffer));
    v->at = at;
    v->away = at->backend->buffer_address(v->buffer);
    v->host_old = false;
    v->away_old = true;
    return HK_OK;
}
