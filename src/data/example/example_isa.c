// example_isa.c - inner loops of the example parser, once per instruction-set
// level.
#include "codec/codec.h"
#include "data/example/example.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

// Flags are constants in here once everything is in one piece.
#define INLINE static inline __attribute__((always_inline))

// What is different between entries and their forms, gathered over many of
// them: comparing each for itself costs more.
#if defined(__x86_64__) && HKI_ISA_LEVEL >= 2
typedef __m256i faults;

INLINE faults no_faults(void) {
    return _mm256_setzero_si256();
}

INLINE faults add_faults(faults all, const hki_form *f, const uint8_t *p,
                         uint8_t r) {
    const __m256i t = _mm256_load_si256((const __m256i *)(const void *)f->t);
    const __m256i d = _mm256_load_si256((const __m256i *)(const void *)f->d);
    const __m256i m = _mm256_load_si256((const __m256i *)(const void *)f->m);
    const __m256i is = _mm256_loadu_si256((const __m256i *)(const void *)p);
    const __m256i r_here = _mm256_sign_epi8(_mm256_set1_epi8((char)r), d);
    const __m256i differ = _mm256_xor_si256(is, _mm256_add_epi8(t, r_here));
    return _mm256_or_si256(all, _mm256_and_si256(differ, m));
}

INLINE bool any_fault(faults all) {
    return !_mm256_testz_si256(all, all);
}
#else
typedef uint64_t faults;

INLINE faults no_faults(void) {
    return 0;
}

INLINE faults add_faults(faults all, const hki_form *f, const uint8_t *p,
                         uint8_t r) {
    // Below 128 no byte of a word carries into the next.
    all |= r >> 7;
    for (size_t i = 0; i < HKI_FORM_BYTES; i += 8)
        all |= (hki_load8(p + i) ^
                (hki_load8(f->t + i) + (r & 127) * hki_load8(f->d + i))) &
               hki_load8(f->m + i);
    return all;
}

INLINE bool any_fault(faults all) {
    return all != 0;
}
#endif

// A varint of exactly r bytes, 1 to 8, all of which may be read; without
// branches, because lengths follow no pattern. *wrong gets a bit from the
// eighth on when it is none.
INLINE uint64_t short_varint(const uint8_t *p, uint64_t r, uint64_t *wrong) {
    const uint64_t high = UINT64_C(0x8080808080808080);
    uint64_t v = hki_load8(p);
#if defined(__x86_64__) && HKI_ISA_LEVEL >= 2
    v = _bzhi_u64(v, (unsigned)(8 * r));
    // All bytes but the last one go on.
    *wrong |= (v & high) ^ _bzhi_u64(high, (unsigned)(8 * r - 8));
    return _pext_u64(v, ~high);
#else
    const unsigned spare = (unsigned)(64 - 8 * r);
    v = v << spare >> spare;
    *wrong |= (v & high) ^ (high << spare >> spare >> 8 & high);
    v &= ~high;
    v = (v & UINT64_C(0x007f007f007f007f)) |
        (v & UINT64_C(0x7f007f007f007f00)) >> 1;
    v = (v & UINT64_C(0x00003fff00003fff)) |
        (v & UINT64_C(0x3fff00003fff0000)) >> 2;
    return (v & UINT64_C(0x000000000fffffff)) |
           (v & UINT64_C(0x0fffffff00000000)) >> 4;
#endif
}

// Stores an integer of any length and type; false: it has to be read the
// general way, which also tells what is wrong with it.
static __attribute__((noinline)) bool store_int(unsigned act, char *out,
                                                const uint8_t *p, size_t r) {
    uint64_t v;
    if (act < HKI_FORM_I64 || r > 10) // so far nobody has looked at r
        return false;
    const uint8_t *const end = p + r;
    if (!hki_varint_get(&p, end, &v) || p != end)
        return false;
    const int64_t wide = (int64_t)v;
    const int32_t narrow = (int32_t)v;
    const float as_float = (float)wide;
    if (act == HKI_FORM_I64)
        memcpy(out, &wide, 8);
    else if (act == HKI_FORM_I32)
        memcpy(out, &narrow, 4);
    else
        memcpy(out, &as_float, 4);
    return act != HKI_FORM_I32 || narrow == wide;
}

// Two words of the checksum, unless it is far ahead of the entries already:
// it waits for itself most of the time, and so it costs next to nothing here.
#if defined(__x86_64__) && HKI_ISA_LEVEL >= 2
#define HAVE_CRC 1
INLINE const uint8_t *crc_step(const uint8_t *at, const uint8_t *p,
                               uint64_t *crc) {
    if (at >= p + HKI_FORM_REACH / 2)
        return at;
    *crc = _mm_crc32_u64(*crc, hki_load8(at));
    *crc = _mm_crc32_u64(*crc, hki_load8(at + 8));
    return at + 16;
}
#else
#define HAVE_CRC 0
INLINE const uint8_t *crc_step(const uint8_t *at, const uint8_t *p,
                               uint64_t *crc) {
    (void)p;
    (void)crc;
    return at;
}
#endif

typedef struct progress {
    uint64_t crc, done;
    const uint8_t *crc_at;
    uint64_t wrong; // below 128 when all lengths are, and all numbers good
    faults all;
    size_t n_order;
    bool stopped; // at an entry that is for others
} progress;

// The form that the entry at p has or, by the entries before, should have.
INLINE const hki_form *form_of(const hki_example_walk *w, progress *g,
                               const uint8_t *p, bool expect) {
    if (expect)
        return w->order[g->n_order++];
    const hki_form *const f = hki_form_at(w, p);
    w->order[g->n_order++ % HKI_FORM_ORDER] = f;
    return f;
}

// The place of the next entry comes from the length of this one alone, so the
// processor works on several of them at once. What is stored in vain, because
// an entry turns out to be none, is written over by whoever reads it the
// general way.
INLINE const uint8_t *walk_some(const hki_example_walk *w, progress *g,
                                const uint8_t *p, const uint8_t *stop,
                                bool check, bool one_word, bool expect) {
    while (p < stop) {
        const hki_form *const f = form_of(w, g, p, expect);
        const uint64_t length = p[1];
        const uint64_t r = length - f->bias;
        const uint8_t *const value = p + f->bias + 2;
        if (f->act == HKI_FORM_I64 && r - 1 < 8) {
            ((uint64_t *)f->data)[w->row] = short_varint(value, r, &g->wrong);
        } else if (f->act == HKI_FORM_FLOAT) { // r is 4: part of the form
            ((uint32_t *)f->data)[w->row] = (uint32_t)hki_load8(value);
        } else if (f->act < HKI_FORM_PASS) {
            // More entries than expected: the end of the order stays.
            g->n_order -= expect && f->act == HKI_FORM_NONE;
            g->stopped = true;
            break;
        } else if (f->act != HKI_FORM_PASS) {
            const int64_t size = f->act == HKI_FORM_I64 ? 8 : 4;
            char *const out = (char *)f->data + size * w->row;
            g->wrong |= store_int(f->act, out, value, r) ? 0 : 128;
        }
        g->all = add_faults(g->all, f, p, (uint8_t)r);
        g->wrong |= length;
        if (check)
            g->crc_at = crc_step(g->crc_at, p, &g->crc);
        if (one_word)
            g->done |= f->done_mask;
        else
            w->done[f->done_word] |= f->done_mask;
        p += 2 + length;
    }
    return p;
}

INLINE const uint8_t *walk_all(hki_example_walk *walk, const uint8_t *p,
                               const uint8_t *stop, const uint8_t *end,
                               bool check, bool one_word, bool expect) {
    const hki_example_walk w = *walk;
    // The checksum reads up to REACH bytes behind an entry's first.
    const uint8_t *const safe =
        end - p >= HKI_FORM_REACH ? end - HKI_FORM_REACH : p;
    progress g = {.crc = ~w.crc,
                  .crc_at = w.crc_at,
                  .all = no_faults(),
                  .n_order = w.n_order};
    p = walk_some(&w, &g, p, HKI_MIN(safe, stop), check, one_word, expect);
    if (!g.stopped) // the checksum would run ahead of the end
        p = walk_some(&w, &g, p, stop, false, one_word, expect);
    w.done[0] |= g.done;
    walk->crc = (uint32_t)~g.crc;
    walk->crc_at = g.crc_at;
    walk->n_order = g.n_order;
    return !any_fault(g.all) && g.wrong < 128 && p <= end ? p : NULL;
}

static const uint8_t *example_walk(hki_example_walk *w, const uint8_t *p,
                                   const uint8_t *stop, const uint8_t *end) {
    if (w->n_words > 1)
        return walk_all(w, p, stop, end, false, false, false);
    if (w->crc_at == NULL || !HAVE_CRC)
        return w->expect ? walk_all(w, p, stop, end, false, true, true)
                         : walk_all(w, p, stop, end, false, true, false);
    return w->expect ? walk_all(w, p, stop, end, true, true, true)
                     : walk_all(w, p, stop, end, true, true, false);
}

// ---- pixels ----------------------------------------------------------------

static void byte_floats(const uint8_t *restrict p, int64_t n,
                        float *restrict out) {
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) out[i] = (float)p[i];
}

const hki_example_kernels HKI_ISA_NAME(hki_example_kernels_table) = {
    example_walk,
    byte_floats,
};
