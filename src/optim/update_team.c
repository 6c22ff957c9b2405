// update_team.c - splitting a pass over threads.
//
// Threads come from libgomp, the runtime that oneDNN uses as well: one pool
// in the process. Parts are handed out by number, so that the runtime may
// give fewer threads than asked for.
#include "optim/optim.h"

void GOMP_parallel(void (*fn)(void *), void *data, unsigned threads,
                   unsigned flags);
int omp_get_thread_num(void);
int omp_get_num_threads(void);

#define MAX_THREADS 4096
// A thread's share below this is not worth waking it.
#define MIN_SHARE_FLOATS 16384
#define ALIGN HKI_ALIGN_FLOATS

typedef struct region {
    hki_update_fn fn;
    void *arg;
    unsigned parts;
} region;

static void run_parts(void *data) {
    region *const r = data;
    HKI_TSAN_ACQUIRE(r);
    const uint32_t fpu = hki_subnormals_off();
    const unsigned step = (unsigned)omp_get_num_threads();
    for (unsigned i = (unsigned)omp_get_thread_num(); i < r->parts; i += step)
        r->fn(r->arg, i, r->parts);
    hki_subnormals_restore(fpu);
    HKI_TSAN_RELEASE(r);
}

void hki_optim_parallel(unsigned parts, hki_update_fn fn, void *arg) {
    if (parts <= 1) {
        const uint32_t fpu = hki_subnormals_off();
        fn(arg, 0, 1);
        hki_subnormals_restore(fpu);
        return;
    }
    region r = {fn, arg, parts};
    // The threads that this may start are the backend's, too.
    sigset_t signals;
    hki_signals_hold(&signals);
    HKI_TSAN_RELEASE(&r);
    GOMP_parallel(run_parts, &r, parts, 0);
    HKI_TSAN_ACQUIRE(&r);
    hki_signals_release(&signals);
}

unsigned hki_optim_parts(unsigned threads, int64_t n) {
    const int64_t worth = n / MIN_SHARE_FLOATS;
    return worth <= 1 ? 1 : (unsigned)HKI_MIN((int64_t)threads, worth);
}

hk_status hki_optim_threads(uint32_t asked, const char *what, uint32_t *out) {
    if (asked > MAX_THREADS)
        return hki_fail(HK_E_INVALID_ARG, "%s: %u threads, at most %d", what,
                        asked, MAX_THREADS);
    *out = asked != 0 ? asked : HKI_MIN(hki_cpu_count(), MAX_THREADS);
    return HK_OK;
}

void hki_optim_share(int64_t n, unsigned part, unsigned parts, int64_t *lo,
                     int64_t *hi) {
    const int64_t blocks = n / ALIGN;
    // Quotient and remainder apart: blocks * part might overflow.
    const int64_t q = blocks / parts, rest = blocks % parts;
    const int64_t first = q * part + HKI_MIN((int64_t)part, rest);
    *lo = first * ALIGN;
    *hi = part + 1 == parts ? n : (first + q + (part < rest)) * ALIGN;
}

hk_status hki_optim_kernels_pick(hk_isa isa, const char *what,
                                 const hki_optim_kernels **out) {
    const hk_isa best = hki_isa_best();
    if ((int)isa < HK_ISA_AUTO || (int)isa > HK_ISA_V4)
        return hki_fail(HK_E_INVALID_ARG, "%s: unknown isa level %d", what,
                        (int)isa);
    if (isa > best)
        return hki_fail(HK_E_UNSUPPORTED,
                        "%s: isa level %s, this machine offers %s", what,
                        hki_isa_name(isa), hki_isa_name(best));
    *out =
        HKI_ISA_PICK(isa == HK_ISA_AUTO ? best : isa, hki_optim_kernels_table);
    return HK_OK;
}

// ---- chunks -----------------------------------------------------------------

// The pieces of one entry, appended when out is not NULL; returns how many.
static size_t cut(const hk_entry *e, size_t index, hki_chunk *out) {
    size_t n = 0;
    const int64_t end = e->offset + e->count;
    for (int64_t at = e->offset; at < end; at += HKI_CHUNK_FLOATS, n++)
        if (out != NULL)
            out[n] =
                (hki_chunk){at, HKI_MIN(at + HKI_CHUNK_FLOATS, end), index};
    return n;
}

hk_status hki_chunks_create(const hk_layout *l, size_t first, size_t last,
                            hki_chunk **out, size_t *count) {
    size_t n = 0;
    for (size_t i = first; i < last; i++)
        n += cut(hk_layout_entry(l, i), i, NULL);
    HKI_TRY(hki_alloc_array(n, sizeof **out, out));
    *count = n;
    n = 0;
    for (size_t i = first; i < last; i++)
        n += cut(hk_layout_entry(l, i), i, *out + n);
    return HK_OK;
}

typedef struct chunk_run {
    const hki_chunk *chunks;
    size_t n;
    hki_chunk_fn fn;
    void *arg;
    int64_t total; // floats
} chunk_run;

// A part takes the chunks that begin inside its share of the floats.
static void run_chunks(void *data, unsigned part, unsigned parts) {
    const chunk_run *const r = data;
    int64_t lo, hi, at = 0;
    hki_optim_share(r->total, part, parts, &lo, &hi);
    for (size_t i = 0; i < r->n && at < hi; i++) {
        if (at >= lo)
            r->fn(r->arg, &r->chunks[i], i);
        at += r->chunks[i].end - r->chunks[i].begin;
    }
}

void hki_chunks_run(const hki_chunk *chunks, size_t n, uint32_t threads,
                    hki_chunk_fn fn, void *arg) {
    chunk_run r = {chunks, n, fn, arg, 0};
    for (size_t i = 0; i < n; i++)
        r.total += chunks[i].end - chunks[i].begin;
    hki_optim_parallel(hki_optim_parts(threads, r.total), run_chunks, &r);
}
