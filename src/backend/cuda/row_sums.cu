// row_sums.cu - sums of rows that have the same index (row_sums.h).
//
// Of a few thousand entries every one is compared with every other: two
// launches. More of them meet in a table of hashes, where a number is found out
// that is the same whoever comes first: which entry of an index is its first
// one, and how many it has. Short lists of entries are put in order; long ones
// are found again by looking at all entries. No sum depends on who was quicker.
#include "backend/cuda/row_sums.h"

#define FEW_ENTRIES 3072         // that are compared with each other
#define SHORT_LIST 16            // entries that one thread puts in order
#define LINES (HKI_THREADS / 32) // warps that share the entries of an index
#define NOBODY 0xffffffffu

// What is found out about an index. Who comes first changes `last` alone.
typedef struct slot {
    unsigned long long index; // plus 1; 0: free
    uint32_t first;           // n - its first entry
    uint32_t last;            // the entry that came last, plus 1
    uint32_t uses;            // its entries
} slot;

// What is needed beside entries and sums. Entries with the same key have the
// same index.
typedef struct tables {
    int64_t n;          // entries
    uint32_t *key;      // per entry, NOBODY: absent
    float *share;       // per entry; NULL: 1
    slot *slots;        // by hash; keys are positions here
    uint64_t mask;      // slots - 1
    uint32_t *counters; // long lists, sums
    uint32_t *next;     // per entry of a list: another one
    uint32_t *totals;   // per block: first entries
    uint32_t *begin;    // per sum: its first entry; its slot where it is long
    uint32_t *length;   // per sum: its entries; 0: a long list
    uint32_t *lists;    // long lists: their sums
} tables;

HKI_ON_CARD const float *row_of(const hki_row_sums *s, int64_t p) {
    const int64_t n = s->part[0].n;
    int64_t rest;
    if (p >= n)
        return s->part[1].rows + (p - n) * s->dim;
    return s->part[0].rows + hki_divide(p, s->part[0].per_row, &rest) * s->dim;
}

// ---- long lists -------------------------------------------------------------

#define COLUMNS 4 // of a thread at a time, 32 apart
#define AT_ONCE 4 // rows under way

// acc += the rows of those entries chunk + bit that are set
HKI_ON_CARD void add_rows(const hki_row_sums *s, const tables *t, int64_t chunk,
                          uint32_t bits, int64_t column, float acc[COLUMNS]) {
    while (bits != 0) {
        float x[AT_ONCE][COLUMNS];
        for (int i = 0; i < AT_ONCE; i++) {
            const bool some = bits != 0;
            const int64_t p = some ? chunk + __ffs((int)bits) - 1 : chunk;
            const float *const row = row_of(s, p);
            const float w = t->share != NULL ? t->share[p] : 1.0f;
            for (int k = 0; k < COLUMNS; k++)
                x[i][k] = some && column + 32 * k < s->dim
                              ? w * row[column + 32 * k]
                              : 0;
            bits &= bits - 1;
        }
        for (int i = 0; i < AT_ONCE; i++)
            for (int k = 0; k < COLUMNS; k++)
                acc[k] += x[i][k];
    }
}

// to = the sum of all entries with a key, by a whole block: every warp looks at
// some of them, in their order, and has a line of the sum.
HKI_ON_CARD void sum_long(const hki_row_sums *s, const tables *t, uint32_t key,
                          int64_t from, float *to) {
    __shared__ float part[LINES][32 * COLUMNS];
    const int lane = threadIdx.x % 32, line = threadIdx.x / 32;
    for (int64_t begin = 0; begin < s->dim; begin += 32 * COLUMNS) {
        float acc[COLUMNS] = {};
        for (int64_t p = from / 32 * 32 + 32 * line; p < t->n; p += 32 * LINES)
            add_rows(s, t, p, hki_warp_bits([&](int l) {
                         return p + l < t->n && t->key[p + l] == key;
                     }),
                     begin + lane, acc);
        for (int k = 0; k < COLUMNS; k++)
            part[line][32 * k + lane] = acc[k];
        __syncthreads();
        const int64_t j = begin + threadIdx.x;
        if (threadIdx.x < 32 * COLUMNS && j < s->dim) {
            float sum = 0;
            for (int l = 0; l < LINES; l++)
                sum += part[l][threadIdx.x];
            to[j] = sum;
        }
        __syncthreads();
    }
}

// ---- few entries ------------------------------------------------------------

// key[p] = the first entry with the index of p; a warp per entry
HKI_KERNEL void find_first(hki_row_sums s, tables t, hki_blame *blame,
                           int64_t call) {
    const int64_t p = hki_self() / 32;
    if (p >= t.n)
        return;
    const int64_t index = hki_row_index(&s, p);
    uint32_t key = index < 0 ? NOBODY : (uint32_t)p;
    for (int64_t q = 0; index >= 0 && q < p; q += 32) {
        const uint32_t same = hki_warp_bits([&](int l) {
            return q + l < p && hki_row_index(&s, q + l) == index;
        });
        if (same != 0) {
            key = (uint32_t)q + (uint32_t)__ffs((int)same) - 1;
            break;
        }
    }
    if (threadIdx.x % 32 != 0)
        return;
    t.key[p] = key;
    hki_row_check(&s, p, blame, call);
    if (t.share != NULL)
        t.share[p] = hki_row_share(&s, p);
}

// How many entries before p are the first ones of their index.
HKI_ON_CARD int64_t firsts_before(const tables *t, int64_t p) {
    int64_t n = 0;
    for (int64_t q = 0; q < p; q += 32)
        n += __popc(hki_warp_bits([&](int l) {
            return q + l < p && t->key[q + l] == (uint32_t)(q + l);
        }));
    return n;
}

// A block per entry; the first ones of an index have work.
HKI_KERNEL void sum_few(hki_row_sums s, tables t) {
    __shared__ int64_t at;
    const int64_t p = blockIdx.x;
    const bool first = t.key[p] == (uint32_t)p, end = p == t.n - 1;
    if (!first && !end)
        return;
    const int64_t index = hki_row_index(&s, p);
    if (threadIdx.x < 32)
        at = s.by_index ? index : firsts_before(&t, p);
    __syncthreads();
    if (threadIdx.x == 0 && !s.by_index) {
        if (first)
            s.indices[at] = index;
        if (end && s.count != NULL)
            *s.count = at + first;
    }
    if (first && s.sums != NULL)
        sum_long(&s, &t, (uint32_t)p, p, s.sums + at * s.dim);
}

// ---- many entries -----------------------------------------------------------

// The slot of an index, which is taken if nobody has.
HKI_ON_CARD uint32_t find_slot(const tables *t, int64_t index) {
    const unsigned long long mine = (unsigned long long)index + 1;
    const uint64_t h = (uint64_t)index * 0x9E3779B97F4A7C15ULL;
    for (uint64_t i = h >> 32;; i++) {
        unsigned long long *const at = &t->slots[i & t->mask].index;
        unsigned long long has = *(volatile unsigned long long *)at;
        if (has == 0)
            has = atomicCAS(at, 0ULL, mine);
        if (has == 0 || has == mine)
            return (uint32_t)(i & t->mask);
    }
}

// Every entry goes to its slot.
HKI_KERNEL void enter(hki_row_sums s, tables t, hki_blame *blame,
                      int64_t call) {
    const int64_t p = hki_self();
    if (p >= t.n)
        return;
    const int64_t index = hki_row_index(&s, p);
    hki_row_check(&s, p, blame, call);
    if (t.share != NULL)
        t.share[p] = hki_row_share(&s, p);
    const uint32_t key = index < 0 ? NOBODY : find_slot(&t, index);
    t.key[p] = key;
    if (index < 0)
        return;
    atomicMax(&t.slots[key].first, (uint32_t)(t.n - p));
    t.next[p] = atomicExch(&t.slots[key].last, (uint32_t)p + 1) - 1;
    atomicAdd(&t.slots[key].uses, 1u);
}

HKI_ON_CARD bool is_first(const tables *t, int64_t p) {
    return p < t->n && t->key[p] != NOBODY &&
           t->slots[t->key[p]].first == (uint32_t)(t->n - p);
}

// totals[block] = first entries of its threads
HKI_KERNEL void count_firsts(tables t) {
    const int n = hki_block_sum((int)is_first(&t, hki_self()));
    if (threadIdx.x == 0)
        t.totals[blockIdx.x] = (uint32_t)n;
}

// Makes `next` of the entries of a short list go upwards.
HKI_ON_CARD void put_in_order(const tables *t, const slot *of) {
    uint32_t p[SHORT_LIST], q = of->last - 1;
    for (uint32_t n = 0; n < of->uses; n++) {
        uint32_t i = n;
        for (; i > 0 && p[i - 1] > q; i--)
            p[i] = p[i - 1];
        p[i] = q;
        q = t->next[q];
    }
    for (uint32_t n = 1; n < of->uses; n++)
        t->next[p[n - 1]] = p[n];
}

// The sum number `to` begins with entry p.
HKI_ON_CARD void begin_sum(const hki_row_sums *s, const tables *t, int64_t p,
                           int64_t to) {
    const uint32_t key = t->key[p];
    const slot of = t->slots[key];
    const bool is_long = of.uses > SHORT_LIST;
    if (!s->by_index)
        s->indices[to] = (int64_t)of.index - 1;
    t->begin[to] = is_long ? key : (uint32_t)p;
    t->length[to] = is_long ? 0 : of.uses;
    if (is_long)
        t->lists[atomicAdd(&t->counters[0], 1u)] = (uint32_t)to;
    else if (of.uses > 1)
        put_in_order(t, &of);
}

// Numbers first entries in their order.
HKI_KERNEL void begin_sums(hki_row_sums s, tables t) {
    __shared__ uint32_t part[LINES];
    const int lane = threadIdx.x % 32, line = threadIdx.x / 32;
    const int64_t p = hki_self();
    int before = 0;
    for (unsigned b = threadIdx.x; b < blockIdx.x; b += HKI_THREADS)
        before += (int)t.totals[b];
    int64_t to = hki_block_sum(before);
    const uint32_t firsts =
        hki_warp_bits([&](int l) { return is_first(&t, p - lane + l); });
    if (lane == 0)
        part[line] = (uint32_t)__popc(firsts);
    __syncthreads();
    for (int l = 0; l < line; l++)
        to += part[l];
    to += __popc(firsts & ((1u << lane) - 1));
    const bool first = (firsts >> lane & 1) != 0;
    if (first)
        begin_sum(&s, &t, p, to);
    if (p == t.n - 1) {
        t.counters[1] = (uint32_t)to + first;
        if (s.count != NULL && !s.by_index)
            *s.count = to + first;
    }
}

// Where a sum goes that has this entry.
HKI_ON_CARD float *place_of(const hki_row_sums *s, const tables *t, int64_t to,
                            uint32_t key) {
    const int64_t row = s->by_index ? (int64_t)t->slots[key].index - 1 : to;
    return s->sums + row * s->dim;
}

// Sums of short lists, a thread per element: blocks 0 .. short_blocks - 1. The
// others have a long list at a time.
HKI_KERNEL void sum_many(hki_row_sums s, tables t, unsigned short_blocks) {
    if (blockIdx.x >= short_blocks) {
        const unsigned others = gridDim.x - short_blocks;
        for (unsigned i = blockIdx.x - short_blocks; i < t.counters[0];
             i += others) {
            const uint32_t to = t.lists[i], key = t.begin[to];
            sum_long(&s, &t, key, 0, place_of(&s, &t, to, key));
        }
        return;
    }
    int64_t j;
    const int64_t to = hki_divide(hki_self(), s.dim, &j);
    if (to >= t.counters[1] || t.length[to] == 0)
        return;
    uint32_t p = t.begin[to];
    float *const y = place_of(&s, &t, to, t.key[p]);
    float sum = 0;
    for (uint32_t left = t.length[to]; left > 0; left--) {
        sum += (t.share != NULL ? t.share[p] : 1.0f) * row_of(&s, p)[j];
        if (left > 1)
            p = t.next[p];
    }
    y[j] = sum;
}

// ---- runs -------------------------------------------------------------------

// A power of two, half of them free at least.
static uint64_t slots_for(int64_t n) {
    uint64_t slots = 2;
    while (slots < 2 * (uint64_t)n)
        slots *= 2;
    return slots;
}

// The next n elements of some bytes.
template <typename T> static T *part_of(uintptr_t *at, uint64_t n) {
    T *const p = (T *)*at;
    *at += (n * sizeof(T) + 15) / 16 * 16;
    return p;
}

// Divides memory from `at` on among tables, and returns its end; zeroed: up to
// where it has to be cleared.
static uintptr_t lay_out(tables *t, int64_t n, uintptr_t at,
                         uintptr_t *zeroed) {
    const uint64_t m = (uint64_t)n, slots = n > FEW_ENTRIES ? slots_for(n) : 0;
    t->n = n;
    t->mask = slots - 1;
    t->slots = part_of<slot>(&at, slots);
    t->counters = part_of<uint32_t>(&at, 2);
    *zeroed = at;
    t->key = part_of<uint32_t>(&at, m);
    t->share = part_of<float>(&at, m);
    if (slots == 0)
        return at;
    t->next = part_of<uint32_t>(&at, m);
    t->totals = part_of<uint32_t>(&at, m / HKI_THREADS + 1);
    t->begin = part_of<uint32_t>(&at, m);
    t->length = part_of<uint32_t>(&at, m);
    t->lists = part_of<uint32_t>(&at, m / SHORT_LIST + 1);
    return at;
}

size_t hki_row_sums_scratch(int64_t n) {
    tables t = {};
    uintptr_t zeroed;
    return (size_t)lay_out(&t, n, 0, &zeroed);
}

#define LONG_BLOCKS 264 // that work on long lists

static hk_status run_many(const hki_cuda_call *c, const hki_row_sums *s,
                          const tables *t, size_t zeroed) {
    const unsigned blocks = hki_blocks(t->n, HKI_THREADS);
    const unsigned sums = hki_blocks(t->n * s->dim, HKI_THREADS);
    HKI_TRY(hki_card_zero(c->card, c->scratch, zeroed));
    HKI_LAUNCH(enter, blocks, HKI_THREADS, *s, *t, c->blame, c->number);
    HKI_LAUNCH_MEETING(count_firsts, blocks, HKI_THREADS, *t);
    HKI_LAUNCH_MEETING(begin_sums, blocks, HKI_THREADS, *s, *t);
    if (s->sums != NULL && s->dim > 0)
        HKI_LAUNCH_MEETING(sum_many, sums + LONG_BLOCKS, HKI_THREADS, *s, *t,
                           sums);
    return HK_OK;
}

hk_status hki_row_sums_run(const hki_cuda_call *c, const hki_row_sums *s) {
    tables t = {};
    uintptr_t zeroed;
    const int64_t n = s->part[0].n + s->part[1].n;
    lay_out(&t, n, (uintptr_t)c->scratch, &zeroed);
    if (s->weights == NULL && !s->mean)
        t.share = NULL;
    if (n == 0)
        return s->count == NULL
                   ? HK_OK
                   : hki_card_zero(c->card, s->count, sizeof *s->count);
    if (n > FEW_ENTRIES)
        return run_many(c, s, &t, (size_t)(zeroed - (uintptr_t)c->scratch));
    HKI_LAUNCH(find_first, hki_blocks(n * 32, HKI_THREADS), HKI_THREADS, *s, t,
               c->blame, c->number);
    HKI_LAUNCH_MEETING(sum_few, (unsigned)n, HKI_THREADS, *s, t);
    return HK_OK;
}
