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

#define LARGE_TILES 64  // 32 x 32: where c has as many of them
#define WHOLE_FLOP 1e7  // below: in whole floats whatever the precision
#define SMALL_FLOP 15e7 // below: own, above: the library's, on tensor cores
#define SMALL_FP32 3e8  // the same in whole floats
#define FEW 4           // of k, that a lane has in a step

typedef struct tiled {
    const float *a, *b, *bias;
    float *c;
    int m, n, k;
    int rows, columns; // of tiles
    int act;
} tiled;

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

// N floats, at once where V says that their address allows it; else none is
// read from behind the last.
template <int N, bool V>
HKI_ON_CARD void read_few(const float *from, int at, int last, float *x) {
    if (V && N == 4) {
        const float4 v = *(const float4 *)(from + at);
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
    } else if (V && N == 2) {
        const float2 v = *(const float2 *)(from + at);
        x[0] = v.x, x[1] = v.y;
    } else {
        HKI_FOR (i, N)
            x[i] = from[at + i < last ? at + i : last];
    }
}

// x[i][l] of a matrix [rows, k]: rows of group g from row0 on, at + l of k; 0
// from k on. Behind the last row it is that row again: its sums are not stored.
template <int ROWS, int GROUPS, bool V>
HKI_ON_CARD void fetch_rows(const float *from, int g, int row0, int rows,
                            int at, int k, float (*x)[FEW]) {
    HKI_FOR (i, ROWS) {
        const int row = row0 + row_of<ROWS, GROUPS, false>(g, i);
        const float *const line = from + (row < rows ? row : rows - 1) * k;
        HKI_FOR (l, FEW)
            x[i][l] = !V && at + l < k ? line[at + l] : 0;
        if (V && at < k)
            read_few<FEW, V>(line, at, k - 1, x[i]);
    }
}

// The same of a matrix [k, rows].
template <int ROWS, int GROUPS, bool V>
HKI_ON_CARD void fetch_columns(const float *from, int g, int row0, int rows,
                               int at, int k, float (*x)[FEW]) {
    constexpr int n = ROWS < 4 ? ROWS : 4;
    HKI_FOR (l, FEW)
        HKI_FOR (i, ROWS / n) {
            const int row = row0 + row_of<ROWS, GROUPS, true>(g, i * n);
            const int last = V ? rows - n : rows - 1;
            float v[n] = {};
            if (at + l < k)
                read_few<n, V>(from + (at + l) * rows, row < last ? row : last,
                               last, v);
            HKI_FOR (j, n)
                x[i * n + j][l] = v[j];
        }
}

template <int ROWS, int GROUPS, bool BY_K, bool V>
HKI_ON_CARD void fetch(const float *from, int g, int row0, int rows, int at,
                       int k, float (*x)[FEW]) {
    if (BY_K)
        fetch_columns<ROWS, GROUPS, V>(from, g, row0, rows, at, k, x);
    else
        fetch_rows<ROWS, GROUPS, V>(from, g, row0, rows, at, k, x);
}

// sum += a b over a step, on tensor cores: sum[2 i + e / 2][2 j + e % 2] is
// element e of fragment i, j.
template <int SIZE>
HKI_ON_CARD void multiply_tensor(float (*a)[FEW], float (*b)[FEW],
                                 float (*sum)[SIZE / 4]) {
    HKI_FOR (i, SIZE / 8)
        HKI_FOR (l, FEW) {
            a[i][l] = hki_tf32(a[i][l]);
            b[i][l] = hki_tf32(b[i][l]);
        }
    HKI_FOR (l, FEW / 2)
        HKI_FOR (i, SIZE / 16)
            HKI_FOR (j, SIZE / 8) {
                float c[4];
                const float fa[4] = {a[2 * i][2 * l], a[2 * i + 1][2 * l],
                                     a[2 * i][2 * l + 1],
                                     a[2 * i + 1][2 * l + 1]};
                const float fb[2] = {b[j][2 * l], b[j][2 * l + 1]};
                HKI_FOR (e, 4)
                    c[e] = sum[2 * i + e / 2][2 * j + e % 2];
                hki_mma_tf32(c, fa, fb);
                HKI_FOR (e, 4)
                    sum[2 * i + e / 2][2 * j + e % 2] = c[e];
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

// The sum of this warp, over every so many-th step of k. All warps of a block
// make as many steps: those behind the end are zeros.
template <int SIZE, bool TENSOR, bool TA, bool TB, bool V>
HKI_ON_CARD void sum_steps(const tiled *p, int row0, int column0,
                           float (*sum)[SIZE / 4]) {
    typedef shares<SIZE, TENSOR> S;
    const int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    const int by = (int)blockDim.x / 32 * S::step;
    const int first = (int)threadIdx.x / 32 * S::step + (TENSOR ? FEW * t : 0);
    float a[S::ahead][S::rows][FEW], b[S::ahead][S::columns][FEW];
    const auto get = [&](int s, int at) {
        fetch<S::rows, 8, TA, V>(p->a, g, row0, p->m, at, p->k, a[s]);
        fetch<S::columns, S::groups, !TB, V>(p->b, TENSOR ? g : t, column0,
                                             p->n, at, p->k, b[s]);
    };
    HKI_FOR (s, S::ahead)
        get(s, first + s * by);
    for (int l = 0; l < p->k; l += by * S::ahead)
        HKI_FOR (s, S::ahead) {
            if (TENSOR)
                multiply_tensor<SIZE>(a[s], b[s], sum);
            else
                multiply_whole<SIZE>(a[s], b[s], sum);
            get(s, first + l + (S::ahead + s) * by);
        }
}

// Where this warp's sums are in the tile.
template <int SIZE, bool TENSOR, bool TA, bool TB>
HKI_ON_CARD void leave_part(const float (*sum)[SIZE / 4],
                            float (*part)[SIZE + 4]) {
    typedef shares<SIZE, TENSOR> S;
    const int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    HKI_FOR (i, SIZE / 8)
        HKI_FOR (j, SIZE / 4) {
            const int row = row_of<S::rows, 8, TA>(g, i);
            const int column = row_of<S::columns, S::groups, !TB>(
                TENSOR ? 2 * t + j % 2 : t, TENSOR ? j / 2 : j);
            part[row][column] = sum[i][j];
        }
}

// c = act(sum of all parts + bias)
template <int SIZE>
HKI_ON_CARD void store(const tiled *p, const float (*part)[SIZE][SIZE + 4],
                       int row0, int column0) {
    for (int e = (int)threadIdx.x; e < SIZE * SIZE; e += (int)blockDim.x) {
        const int row = row0 + e / SIZE, column = column0 + e % SIZE;
        float x = 0;
        for (int w = 0; w < (int)blockDim.x / 32; w++)
            x += part[w][e / SIZE][e % SIZE];
        if (row >= p->m || column >= p->n)
            continue;
        if (p->bias != NULL)
            x += p->bias[column];
        p->c[(int64_t)row * p->n + column] = hki_act_of(p->act, x);
    }
}

// c = act(op(a) op(b) + bias), of a batch that lies end to end
template <int SIZE, bool TENSOR, bool TA, bool TB, bool V>
HKI_KERNEL void __launch_bounds__(32 * shares<SIZE, TENSOR>::warps)
    tile_product(tiled p) {
    __shared__ float part[shares<SIZE, TENSOR>::warps][SIZE][SIZE + 4];
    const int tile = (int)blockIdx.x % (p.rows * p.columns);
    const int64_t number = (int)blockIdx.x / (p.rows * p.columns);
    const int row0 = tile / p.columns * SIZE;
    const int column0 = tile % p.columns * SIZE;
    float sum[SIZE / 8][SIZE / 4] = {};
    p.a += number * p.m * p.k;
    p.b += number * p.k * p.n;
    p.c += number * p.m * p.n;
    sum_steps<SIZE, TENSOR, TA, TB, V>(&p, row0, column0, sum);
    leave_part<SIZE, TENSOR, TA, TB>(sum, part[threadIdx.x / 32]);
    __syncthreads();
    store<SIZE>(&p, part, row0, column0);
}

// ---- which tiles ------------------------------------------------------------

static int64_t parts_of(int64_t n, int64_t size) {
    return (n + size - 1) / size;
}

template <int SIZE, bool TENSOR> static int warps_of(int64_t k) {
    typedef shares<SIZE, TENSOR> S;
    const int64_t n = parts_of(k, S::step * S::ahead);
    return (int)(n < 1 ? 1 : n < S::warps ? n : S::warps);
}

hki_cuda_tiles hki_tiles_of(const hki_product *p) {
    hki_cuda_tiles t = {};
    const bool whole = p->precision == HK_PRECISION_FP32;
    const double flop =
        2.0 * (double)p->m * (double)p->n * (double)p->k * (double)p->batch;
    if (flop > (whole ? SMALL_FP32 : SMALL_FLOP) || p->m > INT32_MAX ||
        p->n > INT32_MAX || p->k > INT32_MAX)
        return t;
    const double large = (double)parts_of(p->m, 32) *
                         (double)parts_of(p->n, 32) * (double)p->batch;
    t.tensor = !whole && flop > WHOLE_FLOP;
    t.size = large < LARGE_TILES ? 16 : 32;
    t.rows = parts_of(p->m, t.size);
    t.columns = parts_of(p->n, t.size);
    t.warps = t.size == 16 ? t.tensor ? warps_of<16, true>(p->k)
                                      : warps_of<16, false>(p->k)
              : t.tensor ? warps_of<32, true>(p->k)
                           : warps_of<32, false>(p->k);
    return t;
}

typedef void (*tile_kernel)(tiled p);

template <int SIZE, bool TENSOR, bool V>
static tile_kernel kernel_for(bool ta, bool tb) {
    return ta   ? tb ? tile_product<SIZE, TENSOR, true, true, V>
                     : tile_product<SIZE, TENSOR, true, false, V>
             : tb ? tile_product<SIZE, TENSOR, false, true, V>
                : tile_product<SIZE, TENSOR, false, false, V>;
}

template <int SIZE, bool TENSOR>
static tile_kernel kernel_of(const hki_product *d, bool by_four) {
    return by_four ? kernel_for<SIZE, TENSOR, true>(d->trans_a, d->trans_b)
                   : kernel_for<SIZE, TENSOR, false>(d->trans_a, d->trans_b);
}

// Sums are the same whether rows are read by fours or not.
static bool can_read_fours(const hki_product *d, const float *a,
                           const float *b) {
    return (d->trans_a ? d->m : d->k) % 4 == 0 &&
           (d->trans_b ? d->k : d->n) % 4 == 0 &&
           ((uintptr_t)a | (uintptr_t)b) % sizeof(float4) == 0;
}

void hki_tiles_run(const hki_cuda_tiles *t, const hki_product *d,
                   const float *a, const float *b, const float *bias, int act,
                   float *c) {
    const tiled p = {a,
                     b,
                     bias,
                     c,
                     (int)d->m,
                     (int)d->n,
                     (int)d->k,
                     (int)t->rows,
                     (int)t->columns,
                     act};
    const bool four = can_read_fours(d, a, b);
    const tile_kernel kernel = t->size == 16
                                   ? t->tensor ? kernel_of<16, true>(d, four)
                                               : kernel_of<16, false>(d, four)
                               : t->tensor ? kernel_of<32, true>(d, four)
                                           : kernel_of<32, false>(d, four);
    HKI_LAUNCH_MEETING(kernel, (unsigned)(t->rows * t->columns * d->batch),
                       (unsigned)(32 * t->warps), p);
}
