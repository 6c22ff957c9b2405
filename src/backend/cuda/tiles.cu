// tiles.cu - small products in one launch, from memory straight to registers.
//
// cuBLASLt takes 7 to 20 us for a layer of batch 64, where bytes and
// multiplications take one or two: what is long is to wait for memory at every
// step of k. Here a block has a small tile of c, and each of its warps all of
// the tile for some steps of k. A warp reads its operands into the registers
// that multiply them, several steps ahead, so that nearly all of what a block
// needs is under way at once. At the end the warps' sums meet in shared memory
// and are added in their order.
#include "backend/cuda/cuda.h"

#define LARGE_TILES 64          // 32 x 32: where c has as many of them
#define WHOLE_FLOP 1e7          // below: in whole floats whatever the precision
#define SMALL_FLOP 15e7         // below: own, above: the library's
#define FLAT_ELEMENTS (1 << 17) // of c: with a k of FLAT_K the library's, too
#define FLAT_K 128
#define MAX_GRID 65535 // blocks along its second and third axis
#define FEW 4          // of k, that a lane has in a step

// Where one block would go round for long, and processors have no block, k is
// cut into parts, which a second launch adds.
#define LONG_ROUNDS 4
#define FULL_TILES 132 // processors of the card it was tuned on
#define MAX_PARTS 16

typedef struct tiled {
    const float *a, *b, *bias;
    float *c;
    int m, n, k, batch;
    int chunk; // of k, for one part
    int act;
} tiled;

// How operands lie in memory.
enum {
    A_BY_K = 1,  // a is [k, m]
    B_BY_K = 2,  // b is [k, n]
    A_FOURS = 4, // can be read by fours
    B_FOURS = 8
};

// How 32 lanes share a tile of SIZE x SIZE. Lane 4 g + t has rows of group g of
// a. For tensor cores it also has columns of group g of b, and four of its own
// in k; else columns of group t, and the same four of k as the others.
template <int SIZE, bool TENSOR> struct shares {
    static constexpr int warps = SIZE == 32 ? 8 : 12; // at most
    static constexpr int step = TENSOR ? 4 * FEW : FEW;
    // As many as registers allow: all of k up to 960, or up to 384.
    static constexpr int ahead =
        TENSOR ? (SIZE == 32 ? 3 : 5) : (SIZE == 32 ? 2 : 4);
    static constexpr int rows = SIZE / 8;
    static constexpr int groups = TENSOR ? 8 : 4; // of columns
    static constexpr int columns = SIZE / groups;
};

// The row of a tile that is number i of group g. Rows that lie side by side in
// memory are read by fours, or twos.
template <int ROWS, int GROUPS, bool BY_K>
HKI_ON_CARD int row_of(int g, int i) {
    constexpr int together = ROWS < 4 ? ROWS : 4;
    return BY_K ? (i / together * GROUPS + g) * together + i % together
                : i * GROUPS + g;
}

// Element i. An operand has less than 2^30: 32 bits count its bytes, which
// saves half of the work on addresses, and that is most of the work there is.
HKI_ON_CARD const float *element(const float *from, uint32_t i) {
    return (const float *)((const char *)from + i * (uint32_t)sizeof(float));
}

// N floats from number i, at once where V says that their address allows it;
// else none is read from behind the last.
template <int N, bool V>
HKI_ON_CARD void read_few(const float *from, uint32_t i, uint32_t last,
                          float *x) {
    if (V && N == 4) {
        hki_load<N>(element(from, i), x);
    } else if (V && N == 2) {
        const float2 v = *(const float2 *)element(from, i);
        x[0] = v.x, x[1] = v.y;
    } else {
        HKI_FOR (j, N)
            x[j] = *element(from, i + j < last ? i + j : last);
    }
}

// x[i][l] of a matrix [rows, k]: rows of group g from row0 on, at + l of k; 0
// from end on. Behind the last row it is that row again: its sums are not
// stored.
template <int ROWS, int GROUPS, bool V>
HKI_ON_CARD void fetch_rows(const float *from, int g, int row0, int rows,
                            int at, int end, int k, float (*x)[FEW]) {
    HKI_FOR (i, ROWS) {
        const int row = row0 + row_of<ROWS, GROUPS, false>(g, i);
        const uint32_t line = (uint32_t)(row < rows ? row : rows - 1) * k;
        HKI_FOR (l, FEW)
            x[i][l] = !V && at + l < end ? *element(from, line + at + l) : 0;
        if (V && at < end)
            read_few<FEW, V>(from, line + at, 0, x[i]);
    }
}

// The same of a matrix [k, rows].
template <int ROWS, int GROUPS, bool V>
HKI_ON_CARD void fetch_columns(const float *from, int g, int row0, int rows,
                               int at, int end, float (*x)[FEW]) {
    constexpr int n = ROWS < 4 ? ROWS : 4;
    HKI_FOR (l, FEW)
        HKI_FOR (i, ROWS / n) {
            const int row = row0 + row_of<ROWS, GROUPS, true>(g, i * n);
            const int last = V ? rows - n : rows - 1;
            const uint32_t line = (uint32_t)(at + l) * rows;
            float v[n] = {};
            if (at + l < end)
                read_few<n, V>(from, line + (row < last ? row : last),
                               line + last, v);
            HKI_FOR (j, n)
                x[i * n + j][l] = v[j];
        }
}

template <int ROWS, int GROUPS, bool BY_K, bool V>
HKI_ON_CARD void fetch(const float *from, int g, int row0, int rows, int at,
                       int end, int k, float (*x)[FEW]) {
    if (BY_K)
        fetch_columns<ROWS, GROUPS, V>(from, g, row0, rows, at, end, x);
    else
        fetch_rows<ROWS, GROUPS, V>(from, g, row0, rows, at, end, k, x);
}

// sum += a b over a step, on tensor cores: sum[2 i + e / 2][2 j + e % 2] is
// element e of fragment i, j.
template <int SIZE>
HKI_ON_CARD void multiply_tensor(const float (*a)[FEW], const float (*b)[FEW],
                                 float (*sum)[SIZE / 4]) {
    HKI_FOR (l, FEW / 2) {
        float fa[SIZE / 16][4], fb[SIZE / 8][2];
        HKI_FOR (i, SIZE / 8)
            HKI_FOR (e, 2) {
                fa[i / 2][i % 2 + 2 * e] = hki_tf32(a[i][2 * l + e]);
                fb[i][e] = hki_tf32(b[i][2 * l + e]);
            }
        HKI_FOR (i, SIZE / 16)
            HKI_FOR (j, SIZE / 8) {
                float c[4];
                HKI_FOR (e, 4)
                    c[e] = sum[2 * i + e / 2][2 * j + e % 2];
                hki_mma_tf32(c, fa[i], fb[j]);
                HKI_FOR (e, 4)
                    sum[2 * i + e / 2][2 * j + e % 2] = c[e];
            }
    }
}

// The same in whole floats.
template <int SIZE>
HKI_ON_CARD void multiply_whole(const float (*a)[FEW], const float (*b)[FEW],
                                float (*sum)[SIZE / 4]) {
    HKI_FOR (l, FEW)
        HKI_FOR (i, SIZE / 8)
            HKI_FOR (j, SIZE / 4)
                sum[i][j] += a[i][l] * b[j][l];
}

// The sum of this warp, over every so many-th step from begin to end in k. All
// warps of a block make as many steps: those behind the end are zeros.
template <int SIZE, bool TENSOR, int LIES>
HKI_ON_CARD void sum_steps(const tiled *p, int row0, int column0, int begin,
                           int end, float (*sum)[SIZE / 4]) {
    typedef shares<SIZE, TENSOR> S;
    const int g = (int)(threadIdx.x % 32 / 4), t = (int)(threadIdx.x % 4);
    const int by = (int)(blockDim.x / 32) * S::step;
    const int first =
        begin + (int)(threadIdx.x / 32) * S::step + (TENSOR ? FEW * t : 0);
    float a[S::ahead][S::rows][FEW], b[S::ahead][S::columns][FEW];
    const auto get = [&](int s, int at) {
        fetch<S::rows, 8, (LIES & A_BY_K) != 0, (LIES & A_FOURS) != 0>(
            p->a, g, row0, p->m, at, end, p->k, a[s]);
        fetch<S::columns, S::groups, (LIES & B_BY_K) != 0,
              (LIES & B_FOURS) != 0>(p->b, TENSOR ? g : t, column0, p->n, at,
                                     end, p->k, b[s]);
    };
    HKI_FOR (s, S::ahead)
        get(s, first + s * by);
    for (int l = by * S::ahead; l - by * S::ahead < end - begin;
         l += by * S::ahead)
        HKI_FOR (s, S::ahead) {
            if (TENSOR)
                multiply_tensor<SIZE>(a[s], b[s], sum);
            else
                multiply_whole<SIZE>(a[s], b[s], sum);
            if (l < end - begin)
                get(s, first + l + s * by);
        }
}

// Where this warp's sums are in the tile.
template <int SIZE, bool TENSOR, int LIES>
HKI_ON_CARD void leave_part(const float (*sum)[SIZE / 4],
                            float (*part)[SIZE + 4]) {
    typedef shares<SIZE, TENSOR> S;
    const int g = (int)(threadIdx.x % 32 / 4), t = (int)(threadIdx.x % 4);
    HKI_FOR (i, SIZE / 8)
        HKI_FOR (j, SIZE / 4) {
            const int row = row_of<S::rows, 8, (LIES & A_BY_K) != 0>(g, i);
            const int column =
                row_of<S::columns, S::groups, (LIES & B_BY_K) != 0>(
                    TENSOR ? 2 * t + j % 2 : t, TENSOR ? j / 2 : j);
            part[row][column] = sum[i][j];
        }
}

// c = act(sum of all parts + bias)
template <int SIZE>
HKI_ON_CARD void store(const tiled *p, const float (*part)[SIZE][SIZE + 4],
                       int row0, int column0) {
    for (unsigned e = threadIdx.x; e < SIZE * SIZE; e += blockDim.x) {
        const int row = row0 + (int)(e / SIZE);
        const int column = column0 + (int)(e % SIZE);
        float x = 0;
        for (unsigned w = 0; w < blockDim.x / 32; w++)
            x += part[w][e / SIZE][e % SIZE];
        if (row >= p->m || column >= p->n)
            continue;
        if (p->bias != NULL)
            x += p->bias[column];
        p->c[(int64_t)row * p->n + column] = hki_act_of(p->act, x);
    }
}

// c = act(op(a) op(b) + bias) of a batch that lies end to end, or a part of the
// sum: blocks have rows and columns of tiles, and one of the batch or the
// parts.
template <int SIZE, bool TENSOR, int LIES>
HKI_KERNEL void __launch_bounds__(32 * shares<SIZE, TENSOR>::warps)
    tile_product(tiled p) {
    __shared__ float part[shares<SIZE, TENSOR>::warps][SIZE][SIZE + 4];
    const int row0 = (int)blockIdx.x * SIZE, column0 = (int)blockIdx.y * SIZE;
    const int64_t number = p.batch > 1 ? blockIdx.z : 0;
    const int begin = p.batch > 1 ? 0 : (int)blockIdx.z * p.chunk;
    const int end = p.k - begin < p.chunk ? p.k : begin + p.chunk;
    float sum[SIZE / 8][SIZE / 4] = {};
    p.a += number * p.m * p.k;
    p.b += number * p.k * p.n;
    p.c += (int64_t)blockIdx.z * p.m * p.n;
    sum_steps<SIZE, TENSOR, LIES>(&p, row0, column0, begin, end, sum);
    leave_part<SIZE, TENSOR, LIES>(sum, part[threadIdx.x / 32]);
    __syncthreads();
    store<SIZE>(&p, part, row0, column0);
}

// c = act(sum of parts + bias)
HKI_KERNEL void add_parts(tiled p, const float *parts, int n_parts) {
    const int64_t i = hki_self(), n = (int64_t)p.m * p.n;
    float x = 0;
    if (i >= n)
        return;
    HKI_FOR (s, MAX_PARTS)
        x += s < n_parts ? parts[s * n + i] : 0;
    if (p.bias != NULL)
        x += p.bias[i % p.n];
    p.c[i] = hki_act_of(p.act, x);
}

// ---- which tiles ------------------------------------------------------------

static int64_t parts_of(int64_t n, int64_t size) {
    return (n + size - 1) / size;
}

static int64_t between(int64_t x, int64_t least, int64_t most) {
    return x < least ? least : x > most ? most : x;
}

// Into how many parts k is cut, and warps for one of them.
template <int SIZE, bool TENSOR>
static void divide(hki_cuda_tiles *t, const hki_product *p) {
    typedef shares<SIZE, TENSOR> S;
    const int64_t one = S::step * S::ahead;
    const int64_t rounds = parts_of(p->k, one * S::warps);
    t->size = SIZE;
    t->tensor = TENSOR;
    t->rows = parts_of(p->m, SIZE);
    t->columns = parts_of(p->n, SIZE);
    t->parts = between(FULL_TILES / between(t->rows * t->columns, 1, INT32_MAX),
                       1, between(rounds, 1, MAX_PARTS));
    if (rounds < LONG_ROUNDS || p->batch > 1)
        t->parts = 1;
    t->chunk =
        between(parts_of(parts_of(p->k, S::step), t->parts), 1, p->k) * S::step;
    t->parts = between(parts_of(p->k, t->chunk), 1, t->parts);
    t->warps = (int)between(parts_of(t->chunk, one), 1, S::warps);
}

hki_cuda_tiles hki_tiles_of(const hki_product *p) {
    hki_cuda_tiles t = {};
    const bool whole = p->precision == HK_PRECISION_FP32;
    const double flop =
        2.0 * (double)p->m * (double)p->n * (double)p->k * (double)p->batch;
    const bool small = (double)parts_of(p->m, 32) * (double)parts_of(p->n, 32) *
                               (double)p->batch <
                           LARGE_TILES ||
                       p->n == 1 || p->k == 1;
    const bool flat = (double)p->m * (double)p->n >= FLAT_ELEMENTS &&
                      p->k <= FLAT_K && flop >= WHOLE_FLOP;
    if (flop > SMALL_FLOP || flat || p->m > INT32_MAX || p->n > MAX_GRID * 16 ||
        p->k > INT32_MAX || p->batch > MAX_GRID)
        return t;
    if (whole || flop < WHOLE_FLOP)
        small ? divide<16, false>(&t, p) : divide<32, false>(&t, p);
    else
        small ? divide<16, true>(&t, p) : divide<32, true>(&t, p);
    return t;
}

size_t hki_tiles_scratch(const hki_cuda_tiles *t, const hki_product *d) {
    return t->parts <= 1 ? 0 : (size_t)(t->parts * d->m * d->n) * sizeof(float);
}

// ---- launches ---------------------------------------------------------------

typedef void (*tile_kernel)(tiled p);

template <int SIZE, bool TENSOR> static tile_kernel kernel_of(int lies) {
#define KERNEL(i) tile_product<SIZE, TENSOR, i>
    static const tile_kernel all[] = {
        KERNEL(0),  KERNEL(1),  KERNEL(2),  KERNEL(3), KERNEL(4),  KERNEL(5),
        KERNEL(6),  KERNEL(7),  KERNEL(8),  KERNEL(9), KERNEL(10), KERNEL(11),
        KERNEL(12), KERNEL(13), KERNEL(14), KERNEL(15)};
#undef KERNEL
    return all[lies];
}

// Sums are the same whether rows are read by fours or not.
static int how_it_lies(const hki_product *d, const float *a, const float *b) {
    const bool a_fours = (d->trans_a ? d->m : d->k) % 4 == 0 && hki_by_fours(a);
    const bool b_fours = (d->trans_b ? d->k : d->n) % 4 == 0 && hki_by_fours(b);
    return (d->trans_a ? A_BY_K : 0) | (d->trans_b ? 0 : B_BY_K) |
           (a_fours ? A_FOURS : 0) | (b_fours ? B_FOURS : 0);
}

static tile_kernel kernel_for(const hki_cuda_tiles *t, int lies) {
    if (t->size == 16)
        return t->tensor ? kernel_of<16, true>(lies)
                         : kernel_of<16, false>(lies);
    return t->tensor ? kernel_of<32, true>(lies) : kernel_of<32, false>(lies);
}

void hki_tiles_run(const hki_cuda_tiles *t, const hki_product *d,
                   const float *a, const float *b, const float *bias, int act,
                   float *c, void *scratch) {
    const tiled p = {a,
                     b,
                     bias,
                     c,
                     (int)d->m,
                     (int)d->n,
                     (int)d->k,
                     (int)d->batch,
                     (int)t->chunk,
                     act};
    tiled part = p;
    if (t->parts > 1) {
        part.c = (float *)scratch;
        part.bias = NULL;
        part.act = HKI_U_NONE;
    }
    HKI_LAUNCH_MEETING(kernel_for(t, how_it_lies(d, a, b)),
                       dim3((unsigned)t->rows, (unsigned)t->columns,
                            (unsigned)(d->batch * t->parts)),
                       (unsigned)(32 * t->warps), part);
    if (t->parts > 1)
        HKI_LAUNCH(add_parts, hki_blocks(d->m * d->n, HKI_THREADS), HKI_THREADS,
                   p, (const float *)scratch, (int)t->parts);
}
