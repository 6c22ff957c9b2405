// copy.c - a consistent copy of the tensors of a save.
//
// The copy is as large as the model and nobody reads it soon: it is written
// past the caches where the CPU can, which spares them, and the bus the
// reading of lines that are overwritten whole.
#include "ckpt/core/copy.h"
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define PIECE ((size_t)1 << 20)
#define ALIGN ((size_t)64)

void hki_copy_layout(const hki_ckpt_item *items, size_t count, size_t *offset,
                     size_t *total) {
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        offset[i] = at;
        at += (items[i].bytes + ALIGN - 1) & ~(ALIGN - 1);
    }
    *total = at;
}

// to is aligned to 64 bytes.
static void copy_bytes(unsigned char *to, const unsigned char *from, size_t n) {
    size_t i = 0;
#if defined(__SSE2__)
    for (; i + 64 <= n; i += 64) {
        const __m128i *const s = (const __m128i *)(const void *)(from + i);
        __m128i *const d = (__m128i *)(void *)(to + i);
        const __m128i a = _mm_loadu_si128(s), b = _mm_loadu_si128(s + 1);
        const __m128i x = _mm_loadu_si128(s + 2), y = _mm_loadu_si128(s + 3);
        _mm_stream_si128(d, a);
        _mm_stream_si128(d + 1, b);
        _mm_stream_si128(d + 2, x);
        _mm_stream_si128(d + 3, y);
    }
    _mm_sfence();
#endif
    if (i < n)
        memcpy(to + i, from + i, n - i);
}

// The last item that begins at or before byte `at` of the copy.
static size_t item_at(const hki_copy *c, size_t at) {
    size_t i;
    HKI_FIRST(i, c->count, c->offset[i] > at);
    return i - (i > 0);
}

// Bytes [begin, end) of the copy, over as many items as that takes.
static void copy_range(const hki_copy *c, size_t begin, size_t end) {
    for (size_t i = item_at(c, begin); i < c->count && c->offset[i] < end;
         i++) {
        const size_t first = HKI_MAX(begin, c->offset[i]);
        const size_t last = HKI_MIN(end, c->offset[i] + c->items[i].bytes);
        if (last <= first)
            continue;
        const unsigned char *const from = c->items[i].data;
        copy_bytes(c->to + first, from + (first - c->offset[i]), last - first);
    }
}

void hki_copy_run(hki_copy *c) {
    for (;;) {
        const size_t begin = atomic_fetch_add(&c->next, PIECE);
        if (begin >= c->total)
            return;
        copy_range(c, begin, HKI_MIN(begin + PIECE, c->total));
    }
}

void hki_copy_finish(hki_copy *c) {
    for (size_t i = 0; i < c->count; i++)
        c->items[i].data = c->to + c->offset[i];
}
