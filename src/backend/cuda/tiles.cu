// tiles.cu - products of a few hundred rows on tensor cores, in one launch.
//
// cuBLASLt takes 7 to 10 us for a layer of batch 64, where the bytes and
// multiplications take one or two. Here c is cut into small tiles, and k into
// as many parts as give every processor a block; the block that comes last adds
// the parts of its tile, in their order whoever came last, and puts bias and
// function behind the sum. Sizes are small: 32 bits count everything.
#include "backend/cuda/fragments.h"

#define WIDTH HKI_WIDTH
#define LANES HKI_LANES
#define STRIDE HKI_STRIDE
#define MAX_PARTS 8     // of k
#define BLOCKS 264      // two for each processor of the card it was tuned on
#define SMALL_FLOP 15e7 // below: own, above: the library's

// Element e of a tile's operand: `rows` x WIDTH of a matrix whose other axis is
// k. Stored by rows or, transposed, by k.
template <bool BY_K>
HKI_ON_CARD float fetch(const float *from, int rows, int row0, int n_rows,
                        int k0, int k1, int k, int e) {
    const int r = BY_K ? e % rows : e / WIDTH;
    const int l = BY_K ? e / rows : e % WIDTH;
    const int row = row0 + r, at = k0 + l;
    if (row >= n_rows || at >= k1)
        return 0;
    return hki_tf32(BY_K ? from[at * n_rows + row] : from[row * k + at]);
}

template <int ROWS, bool BY_K>
HKI_ON_CARD void put(float (*to)[STRIDE], int e, float x) {
    const int r = BY_K ? e % ROWS : e / WIDTH;
    const int l = BY_K ? e / ROWS : e % WIDTH;
    to[r][l] = x;
}

typedef struct tiled {
    const float *a, *b, *bias;
    float *c;
    int m, n, k;
    int chunk;         // of k, for one part
    float *parts;      // of tiles, where there are several
    unsigned *counter; // per tile: parts that are there; 0 between runs
    int act;
} tiled;

// c, with what stands behind the sum.
template <int BM, int BN>
HKI_ON_CARD void store(const tiled *p, hki_spot s, float (*sum)[BN / 16][4]) {
    HKI_FOR (i, BM / 32)
        HKI_FOR (j, BN / 16)
            HKI_FOR (e, 4) {
                const int row = (int)blockIdx.y * BM + s.row + 16 * i +
                                s.group + (e / 2) * 8;
                const int column = (int)blockIdx.x * BN + s.column + 8 * j +
                                   2 * s.lane + e % 2;
                if (row >= p->m || column >= p->n)
                    continue;
                const float x = p->bias != NULL ? sum[i][j][e] + p->bias[column]
                                                : sum[i][j][e];
                p->c[row * p->n + column] = hki_act_of(p->act, x);
            }
}

// Leaves this part beside the others. True for the block that came last.
template <int BM, int BN>
HKI_ON_CARD bool leave_part(const tiled *p, float (*sum)[BN / 16][4]) {
    __shared__ bool last;
    const int tile = (int)(blockIdx.y * gridDim.x + blockIdx.x);
    const int size = BM * BN;
    float *const to = p->parts + (tile * gridDim.z + blockIdx.z) * size;
    HKI_FOR (i, BM / 32)
        HKI_FOR (j, BN / 16)
            HKI_FOR (e, 4)
                to[((i * (BN / 16) + j) * 4 + e) * LANES + threadIdx.x] =
                    sum[i][j][e];
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        last = atomicAdd(&p->counter[tile], 1u) == gridDim.z - 1;
    __syncthreads();
    return last;
}

// The sum of all parts, in their order.
template <int BM, int BN>
HKI_ON_CARD void add_parts(const tiled *p, float (*sum)[BN / 16][4]) {
    const int tile = (int)(blockIdx.y * gridDim.x + blockIdx.x);
    const int size = BM * BN;
    const float *const from = p->parts + tile * gridDim.z * size;
    __threadfence();
    HKI_FOR (i, BM / 32)
        HKI_FOR (j, BN / 16)
            HKI_FOR (e, 4) {
                const int at =
                    ((i * (BN / 16) + j) * 4 + e) * LANES + threadIdx.x;
                float x = 0;
                for (unsigned z = 0; z < gridDim.z; z++)
                    x += from[z * size + at];
                sum[i][j][e] = x;
            }
    if (threadIdx.x == 0)
        p->counter[tile] = 0;
}

// c = act(op(a) op(b) + bias); a block has a tile of BM x BN and a part of k.
template <int BM, int BN, bool TA, bool TB>
HKI_KERNEL void __launch_bounds__(LANES) tile_product(tiled p) {
    __shared__ float a[BM][STRIDE], b[BN][STRIDE];
    const int tid = (int)threadIdx.x;
    const hki_spot s = hki_my_spot(BM, BN);
    const int row0 = (int)blockIdx.y * BM;
    const int column0 = (int)blockIdx.x * BN;
    const int begin = (int)blockIdx.z * p.chunk;
    const int end = begin + p.chunk < p.k ? begin + p.chunk : p.k;
    float sum[BM / 32][BN / 16][4] = {};
    float next_a[BM * WIDTH / LANES] = {}, next_b[BN * WIDTH / LANES] = {};
    for (int k0 = begin - WIDTH; k0 < end; k0 += WIDTH) {
        // The next columns are under way while these are multiplied.
        const int ahead = k0 + WIDTH;
        if (ahead < end) {
            HKI_FOR (i, BM * WIDTH / LANES)
                next_a[i] = fetch<TA>(p.a, BM, row0, p.m, ahead, end, p.k,
                                      tid + i * LANES);
            HKI_FOR (i, BN * WIDTH / LANES)
                next_b[i] = fetch<!TB>(p.b, BN, column0, p.n, ahead, end, p.k,
                                       tid + i * LANES);
        }
        if (k0 >= begin)
            hki_multiply<BM, BN>(a, b, s, sum);
        __syncthreads();
        HKI_FOR (i, BM * WIDTH / LANES)
            put<BM, TA>(a, tid + i * LANES, next_a[i]);
        HKI_FOR (i, BN * WIDTH / LANES)
            put<BN, !TB>(b, tid + i * LANES, next_b[i]);
        __syncthreads();
    }
    if (gridDim.z > 1) {
        if (!leave_part<BM, BN>(&p, sum))
            return;
        add_parts<BM, BN>(&p, sum);
    }
    store<BM, BN>(&p, s, sum);
}

// ---- which tiles ------------------------------------------------------------

static int64_t parts_of(int64_t n, int64_t size) {
    return (n + size - 1) / size;
}

hki_cuda_tiles hki_tiles_of(int64_t m, int64_t n, int64_t k) {
    hki_cuda_tiles t = {};
    const double flop = 2.0 * (double)m * (double)n * (double)k;
    if (flop > SMALL_FLOP || m * n * k == 0)
        return t;
    const bool large = parts_of(m, 64) * parts_of(n, 64) >= BLOCKS / 3;
    t.size = large ? 64 : 32;
    t.rows = parts_of(m, t.size);
    t.columns = parts_of(n, t.size);
    const int64_t steps = parts_of(k, WIDTH);
    int64_t parts = BLOCKS / (t.rows * t.columns);
    parts = parts < 1 ? 1 : parts > MAX_PARTS ? MAX_PARTS : parts;
    parts = parts > steps / 2 ? steps / 2 : parts; // two steps at least
    parts = parts < 1 ? 1 : parts;
    t.chunk = parts_of(steps, parts) * WIDTH;
    t.parts = parts_of(k, t.chunk);
    return t;
}

size_t hki_tiles_scratch(const hki_cuda_tiles *t) {
    return t->parts == 1
               ? 0
               : (size_t)(t->rows * t->columns * t->parts * t->size * t->size) *
                     sizeof(float);
}

size_t hki_tiles_state(const hki_cuda_tiles *t) {
    return (size_t)(t->rows * t->columns) * sizeof(unsigned);
}

template <int SIZE>
static void launch(const hki_cuda_tiles *t, const tiled *p, bool ta, bool tb) {
    const dim3 grid((unsigned)t->columns, (unsigned)t->rows,
                    (unsigned)t->parts);
    if (ta && tb)
        HKI_LAUNCH_MEETING((tile_product<SIZE, SIZE, true, true>), grid, LANES,
                           *p);
    else if (ta)
        HKI_LAUNCH_MEETING((tile_product<SIZE, SIZE, true, false>), grid, LANES,
                           *p);
    else if (tb)
        HKI_LAUNCH_MEETING((tile_product<SIZE, SIZE, false, true>), grid, LANES,
                           *p);
    else
        HKI_LAUNCH_MEETING((tile_product<SIZE, SIZE, false, false>), grid,
                           LANES, *p);
}

void hki_tiles_run(const hki_cuda_tiles *t, const hki_product *d,
                   const float *a, const float *b, const float *bias, int act,
                   float *c, void *scratch, void *state) {
    const tiled p = {a,
                     b,
                     bias,
                     c,
                     (int)d->m,
                     (int)d->n,
                     (int)d->k,
                     (int)t->chunk,
                     (float *)scratch,
                     (unsigned *)state,
                     act};
    if (t->size == 64)
        launch<64>(t, &p, d->trans_a, d->trans_b);
    else
        launch<32>(t, &p, d->trans_a, d->trans_b);
}
