// arena.c - memory that is freed at once: a chain of blocks, the newest first;
// only the newest has room to hand out.
#include "base/base.h"

#define MIN_BLOCK 4096
#define MAX_BLOCK 262144
#define SMALL_ALIGN 16 // requests below 64 bytes
#define LARGE_ALIGN 64

typedef struct hki_arena_block {
    struct hki_arena_block *next;
    size_t used, capacity;
    // Fills the header up, so that the memory behind it is aligned.
    unsigned char pad[LARGE_ALIGN - sizeof(struct hki_arena_block *) -
                      2 * sizeof(size_t)];
} hki_arena_block;
_Static_assert(sizeof(hki_arena_block) == LARGE_ALIGN, "blocks stay aligned");

// Blocks grow with the arena, so that their number stays small.
static hk_status add_block(hki_arena *a, size_t need) {
    size_t capacity = HKI_MAX(a->total_bytes, MIN_BLOCK);
    capacity = HKI_MAX(HKI_MIN(capacity, MAX_BLOCK), need);
    size_t bytes;
    if (hki_add_overflow(capacity, sizeof(hki_arena_block), &bytes))
        return hki_fail(HK_E_NO_MEMORY, "cannot allocate %zu bytes", need);
    hki_arena_block *b;
    HKI_TRY(hki_zalloc_array(bytes, 1, &b));
    b->capacity = capacity;
    b->next = a->head;
    a->head = b;
    a->total_bytes += bytes;
    return HK_OK;
}

hk_status hki_arena_alloc(hki_arena *a, size_t count, size_t size, void *out) {
    size_t bytes, room;
    if (hki_mul_overflow(count, size, &bytes) ||
        hki_add_overflow(bytes, LARGE_ALIGN, &room))
        return hki_fail(HK_E_NO_MEMORY,
                        "cannot allocate %zu elements of %zu bytes", count,
                        size);
    const size_t align = bytes < LARGE_ALIGN ? SMALL_ALIGN : LARGE_ALIGN;
    if (bytes == 0)
        bytes = 1; // a unique pointer
    size_t at = 0;
    if (a->head != NULL)
        at = (a->head->used + align - 1) / align * align;
    if (a->head == NULL || at > a->head->capacity ||
        bytes > a->head->capacity - at) {
        HKI_TRY(add_block(a, bytes));
        at = 0;
    }
    a->head->used = at + bytes;
    void *const ptr = (unsigned char *)(a->head + 1) + at;
    memcpy(out, &ptr, sizeof ptr);
    return HK_OK;
}

hk_status hki_arena_strdup(hki_arena *a, const char *s, const char **out) {
    const size_t bytes = strlen(s) + 1;
    char *copy = NULL;
    HKI_TRY(hki_arena_alloc(a, bytes, 1, &copy));
    memcpy(copy, s, bytes);
    *out = copy;
    return HK_OK;
}

hk_status hki_arena_printf(hki_arena *a, const char **out, const char *fmt,
                           ...) {
    hki_buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    hk_status s = hki_buf_vprintf(&text, fmt, ap);
    va_end(ap);
    if (s == HK_OK)
        s = hki_arena_strdup(a, text.data, out);
    hki_buf_deinit(&text);
    return s;
}

void hki_arena_deinit(hki_arena *a) {
    if (a == NULL)
        return;
    for (hki_arena_block *b = a->head, *next; b != NULL; b = next) {
        next = b->next;
        hki_free(b);
    }
    *a = (hki_arena){0};
}
