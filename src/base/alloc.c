// alloc.c - the one allocator of the library.
//
// A block handed out is 64-byte aligned and preceded by a 64-byte header:
//
//     raw ... | header (64 bytes) | user bytes ... | slack
//             ^ aligned           ^ aligned
//
// The header knows the sizes, so the process-wide function (realloc's shape,
// see hk_set_allocator) always gets the old size back. Under AddressSanitizer
// header and slack are poisoned, so that an overrun by one byte is seen.
#include "base/base.h"
#include <stdatomic.h>
#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define HKI_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HKI_ASAN 1
#endif
#endif
#if defined(HKI_ASAN)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

#define ALIGN 64
#define HUGE_BYTES ((size_t)4 << 20)

typedef struct header {
    void *raw;
    size_t raw_bytes;
    size_t user_bytes;
    unsigned char pad[ALIGN - sizeof(void *) - 2 * sizeof(size_t)];
} header;
_Static_assert(sizeof(header) == ALIGN, "the header keeps the alignment");

static void *libc_alloc(void *user, void *ptr, size_t old_bytes,
                        size_t new_bytes) {
    (void)user;
    (void)old_bytes;
    if (new_bytes == 0) {
        free(ptr);
        return NULL;
    }
    return realloc(ptr, new_bytes);
}

// Process-wide by contract: set by hk_set_allocator before any other call.
static struct {
    hk_alloc_fn fn;
    void *user;
} allocator = {libc_alloc, NULL};

// Counters and the armed fault, for tests (see base.h).
static atomic_uint_fast64_t n_allocs;
static atomic_int_fast64_t n_live;
static atomic_uint_fast64_t fail_in; // 0: not armed
static atomic_bool fault_hit;

void hk_set_allocator(hk_alloc_fn fn, void *user) {
    allocator.fn = fn != NULL ? fn : libc_alloc;
    allocator.user = user;
}

// Counts one allocation; true when it is the one that has to fail.
static bool fault_due(void) {
    atomic_fetch_add_explicit(&n_allocs, 1, memory_order_relaxed);
    uint_fast64_t left = atomic_load_explicit(&fail_in, memory_order_relaxed);
    while (left != 0)
        if (atomic_compare_exchange_weak(&fail_in, &left, left - 1)) {
            if (left != 1)
                return false;
            atomic_store(&fault_hit, true);
            return true;
        }
    return false;
}

static header *header_of(void *ptr) {
    header *h = (header *)ptr - 1;
    ASAN_UNPOISON_MEMORY_REGION(h, sizeof *h);
    return h;
}

static void seal(header *h) {
    unsigned char *const end = (unsigned char *)(h + 1) + h->user_bytes;
    const size_t slack = (size_t)((unsigned char *)h->raw + h->raw_bytes - end);
    ASAN_POISON_MEMORY_REGION(end, slack);
    ASAN_POISON_MEMORY_REGION(h, sizeof *h);
    (void)slack;
}

// Large blocks are flat vectors and activations that a step walks through, or
// tables that it jumps about in: huge pages spare them most TLB misses. Advice
// only, and nothing where the system does not know it.
static void advise_huge(unsigned char *raw, size_t bytes) {
#if defined(MADV_HUGEPAGE)
    if (bytes < HUGE_BYTES || allocator.fn != libc_alloc)
        return;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = ((uintptr_t)raw + page - 1) / page * page;
    const uintptr_t end = ((uintptr_t)raw + bytes) / page * page;
    (void)madvise((void *)begin, end - begin, MADV_HUGEPAGE);
#else
    (void)raw;
    (void)bytes;
#endif
}

static hk_status alloc_bytes(size_t bytes, void **out) {
    size_t raw_bytes;
    if (hki_add_overflow(bytes, sizeof(header) + ALIGN - 1, &raw_bytes) ||
        raw_bytes > PTRDIFF_MAX)
        return hki_fail(HK_E_NO_MEMORY, "cannot allocate %zu bytes", bytes);
    unsigned char *raw = NULL;
    if (!fault_due())
        raw = allocator.fn(allocator.user, NULL, 0, raw_bytes);
    if (raw == NULL)
        return hki_fail(HK_E_NO_MEMORY, "cannot allocate %zu bytes", bytes);
    advise_huge(raw, raw_bytes);
    const size_t skip = (size_t)(-(uintptr_t)raw % ALIGN);
    header *const h = (header *)(void *)(raw + skip);
    h->raw = raw;
    h->raw_bytes = raw_bytes;
    h->user_bytes = bytes;
    seal(h);
    atomic_fetch_add_explicit(&n_live, 1, memory_order_relaxed);
    *out = h + 1;
    return HK_OK;
}

// Typed pointers are read and written as bytes: out is a T **, for any T.
static hk_status store_array(size_t count, size_t size, bool zero, void *out) {
    size_t bytes;
    if (hki_mul_overflow(count, size, &bytes))
        return hki_fail(HK_E_NO_MEMORY,
                        "cannot allocate %zu elements of %zu bytes", count,
                        size);
    void *ptr = NULL;
    HKI_TRY(alloc_bytes(bytes, &ptr));
    if (zero)
        memset(ptr, 0, bytes);
    memcpy(out, &ptr, sizeof ptr);
    return HK_OK;
}

hk_status hki_alloc_array(size_t count, size_t size, void *out) {
    return store_array(count, size, false, out);
}

hk_status hki_zalloc_array(size_t count, size_t size, void *out) {
    return store_array(count, size, true, out);
}

hk_status hki_realloc_array(size_t count, size_t size, void *ptr) {
    void *old, *grown = NULL;
    memcpy(&old, ptr, sizeof old);
    HKI_TRY(store_array(count, size, false, &grown));
    if (old != NULL) {
        header *const h = header_of(old);
        memcpy(grown, old, HKI_MIN(h->user_bytes, count * size));
        hki_free(old);
    }
    memcpy(ptr, &grown, sizeof grown);
    return HK_OK;
}

hk_status hki_list_reserve(void *data, size_t n, size_t *capacity,
                           size_t elem_bytes) {
    if (n <= *capacity)
        return HK_OK;
    const size_t want = HKI_MAX(n, *capacity * 2 + 8);
    HKI_TRY(hki_realloc_array(want, elem_bytes, data));
    *capacity = want;
    return HK_OK;
}

void hki_free(void *ptr) {
    if (ptr == NULL)
        return;
    const header h = *header_of(ptr);
    ASAN_UNPOISON_MEMORY_REGION(h.raw, h.raw_bytes);
    atomic_fetch_sub_explicit(&n_live, 1, memory_order_relaxed);
    allocator.fn(allocator.user, h.raw, h.raw_bytes, 0);
}

hk_status hki_strdup(const char *s, char **out) {
    const size_t bytes = strlen(s) + 1;
    char *copy = NULL;
    HKI_TRY(hki_alloc_array(bytes, 1, &copy));
    memcpy(copy, s, bytes);
    *out = copy;
    return HK_OK;
}

uint64_t hki_alloc_count(void) {
    return atomic_load(&n_allocs);
}

int64_t hki_alloc_live(void) {
    return atomic_load(&n_live);
}

void hki_alloc_fail_at(uint64_t nth) {
    atomic_store(&fault_hit, false);
    atomic_store(&fail_in, nth);
}

bool hki_alloc_fault_hit(void) {
    return atomic_load(&fault_hit);
}
