// update_team.c - splitting a pass over a team of threads.
#include "optim/optim.h"

hki_work hki_optim_work(int64_t n) {
    return (hki_work){.items = n, .cost = 1, .align = HKI_ALIGN_FLOATS};
}

hk_status hki_optim_kernels_pick(hk_isa isa, const char *what,
                                 const hki_optim_kernels **out) {
    HKI_TRY(hki_isa_resolve(what, isa, &isa));
    *out = HKI_ISA_PICK(isa, hki_optim_kernels_table);
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
} chunk_run;

// A part takes the chunks that begin inside its share of the floats.
static void run_chunks(const void *args, int64_t begin, int64_t end, int part) {
    const chunk_run *const r = args;
    (void)part;
    int64_t at = 0;
    for (size_t i = 0; i < r->n && at < end; i++) {
        if (at >= begin)
            r->fn(r->arg, &r->chunks[i], i);
        at += r->chunks[i].end - r->chunks[i].begin;
    }
}

void hki_chunks_run(const hki_chunk *chunks, size_t n, uint32_t threads,
                    hki_chunk_fn fn, void *arg) {
    const chunk_run r = {chunks, n, fn, arg};
    int64_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += chunks[i].end - chunks[i].begin;
    const hki_work w = hki_optim_work(total);
    hki_team_run((int)threads, &w, run_chunks, &r);
}
