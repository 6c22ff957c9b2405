// row_sums.cu - sums of rows that have the same index (row_sums.h).
//
// Entries meet in a table of hashes, where a number is found out that is the
// same whoever comes first: which entry of an index is its first one, and how
// many it has. Of up to two thousand the table is in the memory of one block,
// which does all of this in one launch; of more it is the card's, and each step
// is a launch. Then the rows are added. Short lists of entries are put in
// order; long ones are found again by looking at all entries. No sum depends on
// who was quicker.
#include "backend/cuda/row_sums.h"

#define FEW_ENTRIES 2048         // that one block brings together
#define FEW_THREADS 1024         // of it, at most
#define SHORT_LIST 16            // entries that one thread puts in order
#define LINES (HKI_THREADS / 32) // warps that share the entries of an index
#define NOBODY 0xffffffffu

// What is found out about an index. Who comes first changes `last` alone.
typedef struct slot {
    unsigned long long index; // plus 1; 0: free
    uint32_t first;           // n - its first entry
    uint32_t last;            // the entry that came last, plus 1
    uint32_t uses;            // its entries; of a long list some of them
} slot;

// What is needed beside entries and sums. Entries with the same key have the
// same index.
typedef struct tables {
    int64_t n;          // entries
    uint32_t *key;      // per entry, NOBODY: absent
    float *share;       // per entry; NULL: 1
    slot *slots;        // of many, by hash: keys are positions here
    uint64_t mask;      // slots - 1
    uint32_t *counters; // long lists, sums
    uint32_t *next;     // per entry of a list: another one
    uint32_t *totals;   // per block: first entries
    uint32_t *begin;    // per sum: its first entry
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

// Rows have up to 32 columns, or 128 at a time: C of a thread, 32 apart.
#define AT_ONCE (C == 1 ? 8 : 4) // rows under way
#define CHUNKS 4                 // of 32 entries that a warp looks at together

// acc += the rows of those entries chunk + bit that are set
template <int C>
HKI_ON_CARD void add_rows(const hki_row_sums *s, const tables *t, int64_t chunk,
                          uint32_t bits, int64_t column, float acc[C]) {
    while (bits != 0) {
        float x[AT_ONCE][C];
        HKI_FOR (i, AT_ONCE) {
            const bool some = bits != 0;
            const int64_t p = some ? chunk + __ffs((int)bits) - 1 : chunk;
            const float *const row = row_of(s, p);
            const float w = some && t->share != NULL ? t->share[p] : 1.0f;
            HKI_FOR (k, C)
                x[i][k] = some && column + 32 * k < s->dim
                              ? w * row[column + 32 * k]
                              : 0;
            bits &= bits - 1;
        }
        HKI_FOR (i, AT_ONCE)
            HKI_FOR (k, C)
                acc[k] += x[i][k];
    }
}

// acc += the rows of all entries with a key that this warp looks at
template <int C>
HKI_ON_CARD void add_line(const hki_row_sums *s, const tables *t, uint32_t key,
                          int64_t from, int64_t column, float acc[C]) {
    const int64_t each = 32 * CHUNKS;
    int64_t p = from / 32 * 32 + each * (threadIdx.x / 32);
    for (; p < t->n; p += each * LINES) {
        uint32_t bits[CHUNKS];
        HKI_FOR (c, CHUNKS)
            bits[c] = hki_warp_bits([&](int l) {
                const int64_t q = p + 32 * c + l;
                return q < t->n && t->key[q] == key;
            });
        HKI_FOR (c, CHUNKS)
            add_rows<C>(s, t, p + 32 * c, bits[c], column, acc);
    }
}

// to = the sum of all entries with a key, by a whole block: every warp looks at
// some of them, in their order, and has a line of the sum.
template <int C>
HKI_ON_CARD void sum_long(const hki_row_sums *s, const tables *t, uint32_t key,
                          int64_t from, float *to) {
    __shared__ float part[LINES][32 * C];
    const int lane = threadIdx.x % 32, line = threadIdx.x / 32;
    for (int64_t begin = 0; begin < s->dim; begin += 32 * C) {
        float acc[C] = {};
        add_line<C>(s, t, key, from, begin + lane, acc);
        HKI_FOR (k, C)
            part[line][32 * k + lane] = acc[k];
        __syncthreads();
        const int64_t j = begin + threadIdx.x;
        if (threadIdx.x < 32 * C && j < s->dim) {
            float sum = 0;
            for (int l = 0; l < LINES; l++)
                sum += part[l][threadIdx.x];
            to[j] = sum;
        }
        __syncthreads();
    }
}

// ---- lists ------------------------------------------------------------------

// The entries of an index: `next` leads from the last one, plus 1, to others.
typedef struct list {
    int64_t index;
    uint32_t last, uses;
} list;

// Makes `next` of the entries of a short list go upwards.
HKI_ON_CARD void put_in_order(const tables *t, const list &of) {
    uint32_t p[SHORT_LIST], q = of.last - 1;
    for (uint32_t n = 0; n < of.uses; n++) {
        uint32_t i = n;
        for (; i > 0 && p[i - 1] > q; i--)
            p[i] = p[i - 1];
        p[i] = q;
        q = t->next[q];
    }
    for (uint32_t n = 1; n < of.uses; n++)
        t->next[p[n - 1]] = p[n];
}

// The sum number `to` begins with entry p.
HKI_ON_CARD void begin_sum(const hki_row_sums *s, const tables *t, int64_t p,
                           int64_t to, const list &of) {
    const bool is_long = of.uses > SHORT_LIST;
    if (!s->by_index)
        s->indices[to] = of.index;
    t->begin[to] = (uint32_t)p;
    t->length[to] = is_long ? 0 : of.uses;
    if (is_long)
        t->lists[atomicAdd(&t->counters[0], 1u)] = (uint32_t)to;
    else if (of.uses > 1)
        put_in_order(t, of);
}

// There are as many sums.
HKI_ON_CARD void end_sums(const hki_row_sums *s, const tables *t, int64_t n) {
    t->counters[1] = (uint32_t)n;
    if (s->count != NULL && !s->by_index)
        *s->count = n;
}

// What others may be changing.
HKI_ON_CARD uint32_t peek(const uint32_t *at) {
    return *(const volatile uint32_t *)at;
}

// Entry p goes to a list that was `so_far` long; one that is long already has
// no use for it. *next is of the entry.
HKI_ON_CARD void join_list(uint32_t *last, uint32_t *uses, uint32_t so_far,
                           uint32_t p, uint32_t *next) {
    if (so_far > SHORT_LIST)
        return;
    *next = atomicExch(last, p + 1) - 1;
    atomicAdd(uses, 1u);
}

HKI_ON_CARD uint64_t hash_of(int64_t index) {
    return (uint64_t)index * 0x9E3779B97F4A7C15ULL >> 32;
}

// ---- few entries ------------------------------------------------------------

#define FEW_SLOTS (2 * FEW_ENTRIES)
#define EACH (FEW_ENTRIES / FEW_THREADS) // entries of a thread

// Memory of a block, by entries. Lists take the place of indices when these
// have met.
typedef struct few {
    uint32_t slots[FEW_SLOTS]; // an entry of an index, its first one in the end
    union {
        int64_t index[FEW_ENTRIES];
        uint32_t lists[2][FEW_ENTRIES]; // last, uses, of first entries
    } by;
    uint32_t firsts[FEW_ENTRIES / 32]; // of every 32 entries
} few;

// The entries of a thread, blockDim.x apart.
typedef struct entries {
    uint32_t p[EACH];
    int64_t index[EACH];
    uint32_t first[EACH]; // of its index; NOBODY: absent
} entries;

HKI_ON_CARD void read_entries(const hki_row_sums *s, const tables *t, few *f,
                              entries &e) {
    for (uint32_t i = threadIdx.x; i < FEW_SLOTS; i += blockDim.x)
        f->slots[i] = NOBODY;
    HKI_FOR (k, EACH) {
        e.p[k] = threadIdx.x + (uint32_t)k * blockDim.x;
        e.index[k] = e.p[k] < t->n ? hki_row_index(s, e.p[k]) : -1;
        f->by.index[e.p[k]] = e.index[k];
    }
}

// The slot of entry p. What a slot holds is always an entry of its index.
HKI_ON_CARD uint32_t meet(few *f, uint32_t p, int64_t index) {
    for (uint32_t i = (uint32_t)hash_of(index);; i++) {
        uint32_t *const at = &f->slots[i % FEW_SLOTS];
        uint32_t has = peek(at);
        if (has == NOBODY)
            has = atomicCAS(at, NOBODY, p);
        if (has != NOBODY && f->by.index[has] != index)
            continue;
        if (has != NOBODY && has > p)
            atomicMin(at, p);
        return i % FEW_SLOTS;
    }
}

// Entries find their first ones.
HKI_ON_CARD void meet_all(const tables *t, few *f, entries &e) {
    HKI_FOR (k, EACH)
        e.first[k] = e.index[k] >= 0 ? meet(f, e.p[k], e.index[k]) : NOBODY;
    __syncthreads();
    HKI_FOR (k, EACH) {
        if (e.first[k] != NOBODY)
            e.first[k] = f->slots[e.first[k]];
        if (e.p[k] < t->n)
            t->key[e.p[k]] = e.first[k];
        f->by.lists[0][e.p[k]] = f->by.lists[1][e.p[k]] = 0;
    }
    __syncthreads();
}

// Entries go to the lists of their first ones, which are counted.
HKI_ON_CARD void make_lists(const tables *t, few *f, const entries &e) {
    HKI_FOR (k, EACH) {
        if (e.first[k] == NOBODY)
            continue;
        uint32_t *const uses = &f->by.lists[1][e.first[k]];
        join_list(&f->by.lists[0][e.first[k]], uses, peek(uses), e.p[k],
                  &t->next[e.p[k]]);
    }
    __syncthreads();
    HKI_FOR (k, EACH) {
        const uint32_t *const uses = f->by.lists[1] + e.p[k] / 32 * 32;
        const uint32_t bits = hki_warp_bits([&](int l) { return uses[l] > 0; });
        if (e.p[k] % 32 == 0)
            f->firsts[e.p[k] / 32] = bits;
    }
    __syncthreads();
}

// How many entries before p are the first ones of their index.
HKI_ON_CARD int64_t firsts_before(const few *f, uint32_t p) {
    int n = __popc(f->firsts[p / 32] & ((1u << p % 32) - 1));
    for (uint32_t i = 0; i < p / 32; i++)
        n += __popc(f->firsts[i]);
    return n;
}

// Everything but the sums, by one block.
HKI_KERNEL void bring_together(hki_row_sums s, tables t, hki_blame *blame,
                               int64_t call) {
    __shared__ few f;
    entries e;
    read_entries(&s, &t, &f, e);
    if (threadIdx.x == 0)
        t.counters[0] = 0;
    __syncthreads();
    meet_all(&t, &f, e);
    make_lists(&t, &f, e);
    HKI_FOR (k, EACH) {
        const uint32_t p = e.p[k];
        if (p >= t.n)
            continue;
        hki_row_check(&s, p, blame, call);
        if (t.share != NULL)
            t.share[p] = hki_row_share(&s, p);
        const bool first = e.first[k] == p;
        const int64_t to = firsts_before(&f, p);
        if (first)
            begin_sum(&s, &t, p, to,
                      list{e.index[k], f.by.lists[0][p], f.by.lists[1][p]});
        if (p + 1 == t.n)
            end_sums(&s, &t, to + first);
    }
}

// ---- many entries -----------------------------------------------------------

// The slot of an index, which is taken if nobody has.
HKI_ON_CARD uint32_t find_slot(const tables *t, int64_t index) {
    const unsigned long long mine = (unsigned long long)index + 1;
    for (uint64_t i = hash_of(index);; i++) {
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
    slot *const to = &t.slots[key];
    const uint32_t first = peek(&to->first), uses = peek(&to->uses);
    if (first < (uint32_t)(t.n - p))
        atomicMax(&to->first, (uint32_t)(t.n - p));
    join_list(&to->last, &to->uses, uses, (uint32_t)p, &t.next[p]);
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
    if (first) {
        const slot of = t.slots[t.key[p]];
        begin_sum(&s, &t, p, to, list{(int64_t)of.index - 1, of.last, of.uses});
    }
    if (p == t.n - 1)
        end_sums(&s, &t, to + first);
}

// ---- sums -------------------------------------------------------------------

// Where a sum goes that has this entry.
HKI_ON_CARD float *place_of(const hki_row_sums *s, int64_t to, uint32_t p) {
    return s->sums + (s->by_index ? hki_row_index(s, p) : to) * s->dim;
}

// sum += w row, four columns or one
HKI_ON_CARD void add_columns(const float *row, float w, int each,
                             float sum[4]) {
    if (each == 1) {
        sum[0] += w * row[0];
        return;
    }
    const float4 x = *(const float4 *)row;
    sum[0] += w * x.x, sum[1] += w * x.y, sum[2] += w * x.z, sum[3] += w * x.w;
}

// The sum of a short list, from element i of all sums on.
HKI_ON_CARD void sum_short(const hki_row_sums *s, const tables *t, int64_t i,
                           int each) {
    float sum[4] = {0};
    int64_t j;
    const int64_t to = hki_divide(i, s->dim, &j);
    if (to >= t->n)
        return;
    const uint32_t sums = t->counters[1], begin = t->begin[to];
    uint32_t left = t->length[to], p = begin;
    if (to >= sums || left == 0)
        return;
    for (;;) {
        const float w = t->share != NULL ? t->share[p] : 1.0f;
        add_columns(row_of(s, p) + j, w, each, sum);
        if (--left == 0)
            break;
        p = t->next[p];
    }
    float *const y = place_of(s, to, begin) + j;
    if (each == 4)
        hki_store<4>(y, sum);
    else
        y[0] = sum[0];
}

// Sums of short lists, a thread for `each` elements: blocks 0 .. short_blocks -
// 1. The others have a long list at a time.
template <int C>
HKI_KERNEL void __launch_bounds__(HKI_THREADS, C == 1 ? 5 : 4)
    sum_lists(hki_row_sums s, tables t, unsigned short_blocks, int each) {
    if (blockIdx.x >= short_blocks) {
        const unsigned others = gridDim.x - short_blocks;
        for (unsigned i = blockIdx.x - short_blocks; i < t.counters[0];
             i += others) {
            const uint32_t to = t.lists[i], p = t.begin[to];
            sum_long<C>(&s, &t, t.key[p], p, place_of(&s, to, p));
        }
        return;
    }
    sum_short(&s, &t, hki_self() * each, each);
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

#define LONG_BLOCKS 264 // that work on long lists, at most

// As many threads as entries, where one block has them.
static void bring_few(const hki_cuda_call *c, const hki_row_sums *s,
                      const tables *t) {
    const unsigned threads = hki_blocks(t->n, 32) * 32;
    HKI_LAUNCH_MEETING(bring_together, 1,
                       threads < FEW_THREADS ? threads : FEW_THREADS, *s, *t,
                       c->blame, c->number);
}

static hk_status bring_many(const hki_cuda_call *c, const hki_row_sums *s,
                            const tables *t, size_t zeroed) {
    const unsigned blocks = hki_blocks(t->n, HKI_THREADS);
    HKI_TRY(hki_card_zero(c->card, c->scratch, zeroed));
    HKI_LAUNCH(enter, blocks, HKI_THREADS, *s, *t, c->blame, c->number);
    HKI_LAUNCH_MEETING(count_firsts, blocks, HKI_THREADS, *t);
    HKI_LAUNCH_MEETING(begin_sums, blocks, HKI_THREADS, *s, *t);
    return HK_OK;
}

// Columns that a thread may take at a time.
static int columns_of(const hki_row_sums *s) {
    const bool fours = hki_by_fours(s->part[0].rows, s->part[1].rows, s->sums);
    return s->dim % 4 == 0 && fours ? 4 : 1;
}

static void add_up(const hki_row_sums *s, const tables *t) {
    const int each = columns_of(s);
    const unsigned sums = hki_blocks(t->n * s->dim / each, HKI_THREADS);
    const int64_t lists = t->n / (SHORT_LIST + 1);
    const unsigned blocks =
        sums + (unsigned)(lists < LONG_BLOCKS ? lists : LONG_BLOCKS);
    if (s->dim <= 32)
        HKI_LAUNCH_MEETING(sum_lists<1>, blocks, HKI_THREADS, *s, *t, sums,
                           each);
    else
        HKI_LAUNCH_MEETING(sum_lists<4>, blocks, HKI_THREADS, *s, *t, sums,
                           each);
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
    if (n <= FEW_ENTRIES)
        bring_few(c, s, &t);
    else
        HKI_TRY(bring_many(c, s, &t, (size_t)(zeroed - (uintptr_t)c->scratch)));
    if (s->sums != NULL && s->dim > 0)
        add_up(s, &t);
    return HK_OK;
}
