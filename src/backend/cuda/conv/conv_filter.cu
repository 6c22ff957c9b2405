// conv_filter.cu - the filters' gradient of convolutions with few channels:
//     dw [tap, c, o] = sum over places of x [place + tap, c] dz [place, o]
//
// A block has some patches of dz, 16 channels c and OB channels o. It brings
// the x under a patch and the patch to shared memory, and there every tap is a
// product of the same two pieces, one moved against the other: rows are
// channels, the sum is over 8 places of a row at a time. A warp has all sums of
// some rows of the filter. Blocks leave their sums in scratch memory, and a
// second launch adds them in their order.
//
// Images of so few channels that all taps fit into 32 rows go the same way with
// (tap, channel) as rows.
#include "backend/cuda/conv/conv.h"
#include "backend/cuda/conv/patches.h"

#define MOST_X 224 // places of a piece
#define MOST_Y 128
#define CHANNELS 16             // of x in a block
#define X_STRIDE (CHANNELS + 8) // floats of a place: no two lanes in a bank
#define MOST_CHANNELS 64        // above, a library is good
#define STEP 8                  // places of a product
#define MOST_PARTS (6 << 20)    // floats of scratch, about
#define THIN_ROWS 32            // (tap, channel) of an image of few channels
#define MOST_THIN 896           // floats of a piece of it
#define THIN_WARPS 4

typedef struct filter_sums {
    hki_images g;
    hki_patches p;
    hki_source x, dz;
    int each, strips; // patches of a block
    int pairs;        // of channel blocks: neighbours read the same patches
    float *parts;     // [strips, taps, c, oc]
} filter_sums;

// ---- a step of the sum ------------------------------------------------------
//
// Rows of a product are channels 0, 2, 4 .. 14, 1, 3 .. 15: a thread reads two
// neighbours as one, which lie in its registers as the product wants them. In
// whole floats, columns of two products side by side are ordered likewise.

// Where a step's places are in the two pieces. All warps take as many steps;
// one that is not there adds nothing.
typedef struct step_at {
    int x, dz; // floats
    bool there;
} step_at;

HKI_ON_CARD step_at step_of(const filter_sums *c, int i, int x_stride,
                            int dz_stride) {
    const hki_patches *const p = &c->p;
    const int at = i * STEP;
    const hki_spot3 s = hki_spot3_of(p->rows, p->columns, at);
    const int row = s.image * (int)p->height.by + s.row * c->g.sh;
    if (at >= hki_patch_places(p))
        return step_at{0, 0, false};
    return step_at{(row * (int)p->width.by + s.column * c->g.sw) * x_stride,
                   at * dz_stride, true};
}

// Columns of dz at two places: fragments of the second operand.
template <int OB>
HKI_ON_CARD void columns_of(const float *dz, bool there, int group, int lane,
                            float (*b)[2]) {
    HKI_FOR (j, OB / 8)
        HKI_FOR (h, 2) {
            const float v = dz[(lane + 4 * h) * (OB + 8) + 8 * j + group];
            b[j][h] = there ? v : 0;
        }
}

// sum[j] += two rows of x times all columns at one place, in whole floats.
template <int OB>
HKI_ON_CARD void add_outer(float x0, float x1, const float *dz, int lane,
                           float (*sum)[4]) {
    HKI_FOR (j, OB / 16) {
        const float4 v = *(const float4 *)(dz + 16 * j + 4 * lane);
        sum[2 * j][0] += x0 * v.x;
        sum[2 * j + 1][0] += x0 * v.y;
        sum[2 * j][1] += x0 * v.z;
        sum[2 * j + 1][1] += x0 * v.w;
        sum[2 * j][2] += x1 * v.x;
        sum[2 * j + 1][2] += x1 * v.y;
        sum[2 * j][3] += x1 * v.z;
        sum[2 * j + 1][3] += x1 * v.w;
    }
}

// x, dz: at the first of the places; x already at a tap's row.
template <int ROWS, int KW, int OB, bool TENSOR>
HKI_ON_CARD void add_step(const float *x, const float *dz, bool there, int line,
                          int next, int group, int lane, float (*sum)[4]) {
    constexpr int N = OB / 8, DZ_STRIDE = OB + 8;
    if (!TENSOR) {
        for (int i = 0; there && i < STEP; i++)
            HKI_FOR (r, ROWS)
                HKI_FOR (q, KW) {
                    const float2 v =
                        *(const float2 *)(x + i * next + r * line +
                                          q * X_STRIDE + 2 * group);
                    add_outer<OB>(v.x, v.y, dz + i * DZ_STRIDE, lane,
                                  sum + (r * KW + q) * N);
                }
        return;
    }
    float b[N][2];
    columns_of<OB>(dz, there, group, lane, b);
    HKI_FOR (r, ROWS) {
        float a[KW][4];
        HKI_FOR (q, KW) { // all of a row are on their way at once
            const float *const at =
                x + lane * next + r * line + q * X_STRIDE + 2 * group;
            const float2 here = *(const float2 *)at,
                         far = *(const float2 *)(at + 4 * next);
            a[q][0] = here.x, a[q][1] = here.y;
            a[q][2] = far.x, a[q][3] = far.y;
        }
        HKI_FOR (q, KW)
            HKI_FOR (j, N)
                hki_mma_tf32(sum[(r * KW + q) * N + j], a[q], b[j]);
    }
}

// The same where rows are (tap, channel): at[i] is where row group + 8 i is.
template <int OB, bool TENSOR>
HKI_ON_CARD void add_thin_step(const float *x, const float *dz, bool there,
                               const int at[4], int next, int group, int lane,
                               float (*sum)[4]) {
    constexpr int N = OB / 8, DZ_STRIDE = OB + 8;
    if (!TENSOR) {
        for (int i = 0; there && i < STEP; i++)
            HKI_FOR (m, 2)
                add_outer<OB>(x[i * next + at[2 * m]],
                              x[i * next + at[2 * m + 1]], dz + i * DZ_STRIDE,
                              lane, sum + m * N);
        return;
    }
    float b[N][2];
    columns_of<OB>(dz, there, group, lane, b);
    HKI_FOR (m, 2) {
        const float *const here = x + lane * next;
        const float a[4] = {here[at[2 * m]], here[at[2 * m + 1]],
                            here[at[2 * m] + 4 * next],
                            here[at[2 * m + 1] + 4 * next]};
        HKI_FOR (j, N)
            hki_mma_tf32(sum[m * N + j], a, b[j]);
    }
}

// ---- the end of a block -----------------------------------------------------

// The sums of warps that had other places of the same, added to the first's.
template <int N, int JOBS, int SPLITS>
HKI_ON_CARD void join(float *memory, int job, int split, float (*sum)[4]) {
    const int lane = (int)threadIdx.x % 32;
    __syncthreads();
    HKI_FOR (i, 4 * N)
        if (split > 0)
            memory[(((split - 1) * JOBS + job) * 4 * N + i) * 32 + lane] =
                sum[i / 4][i % 4];
    __syncthreads();
    for (int s = 0; split == 0 && s < SPLITS - 1; s++)
        HKI_FOR (i, 4 * N)
            sum[i / 4][i % 4] +=
                memory[((s * JOBS + job) * 4 * N + i) * 32 + lane];
}

// Sums of row 0 or 8 + group of a product; to: at the first of OB columns.
template <int OB, bool TENSOR>
HKI_ON_CARD void store_row(float *to, int lane, bool second,
                           const float (*sum)[4]) {
    const int at = second ? 2 : 0;
    if (TENSOR)
        HKI_FOR (j, OB / 8)
            *(float2 *)(to + 8 * j + 2 * lane) =
                float2{sum[j][at], sum[j][at + 1]};
    else
        HKI_FOR (j, OB / 16)
            *(float4 *)(to + 16 * j + 4 * lane) =
                float4{sum[2 * j][at], sum[2 * j + 1][at], sum[2 * j][at + 1],
                       sum[2 * j + 1][at + 1]};
}

// ---- kernels ----------------------------------------------------------------

// A warp has ROWS rows of the filter, and every SPLITS-th step.
template <int KH, int KW, int OB, int ROWS, int SPLITS, bool TENSOR>
HKI_KERNEL void __launch_bounds__(32 * KH / ROWS * SPLITS, OB == 16 ? 4
                                                           : TENSOR ? 3
                                                                    : 2)
    sum_filter(filter_sums c) {
    constexpr int JOBS = KH / ROWS, N = ROWS * KW * OB / 8;
    constexpr int DZ_STRIDE = OB + 8;
    __shared__ float4 memory[(MOST_X * X_STRIDE + MOST_Y * DZ_STRIDE) / 4];
    static_assert((SPLITS - 1) * JOBS * N * 32 <= sizeof memory / 16,
                  "the sums of all warps but the first fit");
    float *const x = (float *)memory, *const dz = x + MOST_X * X_STRIDE;
    const int warp = (int)threadIdx.x / 32;
    const int group = (int)threadIdx.x % 32 / 4, lane = (int)threadIdx.x % 4;
    const int job = warp / SPLITS, split = warp % SPLITS;
    const int strip = (int)blockIdx.x / c.pairs;
    const int pair = (int)blockIdx.x % c.pairs, blocks_o = c.g.oc / OB;
    const int c0 = pair / blocks_o * CHANNELS, o0 = pair % blocks_o * OB;
    const int line = (int)c.p.width.by * X_STRIDE, next = c.g.sw * X_STRIDE;
    const int end = (strip + 1) * c.each;
    float sum[N][4] = {};
    for (int i = strip * c.each; i < end && i < c.p.n; i++) {
        const hki_spot3 at = hki_patch_at(&c.p, i);
        const hki_patch_piece px = hki_x_piece(&c.p), py = hki_y_piece(&c.p);
        __syncthreads();
        hki_copy_piece<CHANNELS, X_STRIDE>(&c.x, hki_under(&c.g, at), c0, &px,
                                           x);
        hki_copy_piece<OB, DZ_STRIDE>(&c.dz, at, o0, &py, dz);
        hki_copy_wait();
        hki_arrived<CHANNELS, X_STRIDE, TENSOR>(&px, x);
        hki_arrived<OB, DZ_STRIDE, TENSOR>(&py, dz);
        __syncthreads();
        const int steps = hki_patch_places(&c.p) / STEP;
        for (int s = 0; s < steps; s += SPLITS) {
            const step_at p = step_of(&c, s + split, X_STRIDE, DZ_STRIDE);
            add_step<ROWS, KW, OB, TENSOR>(x + p.x + job * ROWS * line,
                                           dz + p.dz, SPLITS == 1 || p.there,
                                           line, next, group, lane, sum);
        }
    }
    if (SPLITS > 1)
        join<N, JOBS, SPLITS>((float *)memory, job, split, sum);
    if (split > 0)
        return;
    HKI_FOR (tap, ROWS * KW)
        HKI_FOR (h, 2) {
            const int64_t row =
                (int64_t)(strip * KH * KW + job * ROWS * KW + tap) * c.g.c +
                c0 + 2 * group + h;
            store_row<OB, TENSOR>(c.parts + row * c.g.oc + o0, lane, h == 1,
                                  sum + tap * OB / 8);
        }
}

// Row i of (tap, channel) in a piece; those behind the last stay at the first.
HKI_ON_CARD int thin_row(const filter_sums *c, int i) {
    const int tap = i / c->g.c, row = tap / c->g.kw;
    return i >= c->g.kh * c->g.kw * c->g.c
               ? 0
               : (row * (int)c->p.width.by + tap - row * c->g.kw) * c->g.c +
                     i % c->g.c;
}

template <int OB, bool TENSOR>
HKI_KERNEL void __launch_bounds__(32 * THIN_WARPS) sum_thin(filter_sums c) {
    constexpr int N = 2 * OB / 8, DZ_STRIDE = OB + 8;
    __shared__ float4 memory[(MOST_THIN + MOST_Y * DZ_STRIDE) / 4];
    static_assert((THIN_WARPS - 1) * N * 32 <= sizeof memory / 16,
                  "the sums of all warps but the first fit");
    float *const x = (float *)memory, *const dz = x + MOST_THIN;
    const int split = (int)threadIdx.x / 32;
    const int group = (int)threadIdx.x % 32 / 4, lane = (int)threadIdx.x % 4;
    const int strip = (int)blockIdx.x / c.pairs;
    const int o0 = (int)blockIdx.x % c.pairs * OB;
    const int rows = c.g.kh * c.g.kw * c.g.c;
    const int at[4] = {thin_row(&c, group), thin_row(&c, group + 8),
                       thin_row(&c, group + 16), thin_row(&c, group + 24)};
    const int end = (strip + 1) * c.each;
    float sum[N][4] = {};
    for (int i = strip * c.each; i < end && i < c.p.n; i++) {
        const hki_spot3 first = hki_patch_at(&c.p, i);
        const hki_patch_piece px = hki_x_piece(&c.p), py = hki_y_piece(&c.p);
        __syncthreads();
        hki_copy_piece<OB, DZ_STRIDE>(&c.dz, first, o0, &py, dz);
        hki_load_thin<TENSOR>(&c.x, hki_under(&c.g, first), &px, x);
        hki_copy_wait();
        hki_arrived<OB, DZ_STRIDE, TENSOR>(&py, dz);
        __syncthreads();
        const int steps = hki_patch_places(&c.p) / STEP;
        for (int s = 0; s < steps; s += THIN_WARPS) {
            const step_at p = step_of(&c, s + split, c.g.c, DZ_STRIDE);
            add_thin_step<OB, TENSOR>(x + p.x, dz + p.dz, p.there, at,
                                      c.g.sw * c.g.c, group, lane, sum);
        }
    }
    join<N, 1, THIN_WARPS>((float *)memory, 0, split, sum);
    HKI_FOR (i, 4) {
        const int row = group + 8 * i;
        if (split == 0 && row < rows)
            store_row<OB, TENSOR>(
                c.parts + ((int64_t)strip * rows + row) * c.g.oc + o0, lane,
                i % 2 == 1, sum + i / 2 * OB / 8);
    }
}

// ---- launches ---------------------------------------------------------------

// Which kernel, by shape.
typedef enum filter_way {
    FILTER_NONE = 0,
    FILTER_THIN = 1, // all taps of an image of few channels
    FILTER_3X3 = 2,
    FILTER_5X5 = 3
} filter_way;

static filter_way way_of(const hki_images *g) {
    if (g->groups != 1 || g->dh != 1 || g->dw != 1 || g->oc % 16 != 0)
        return FILTER_NONE;
    if (g->kh * g->kw * g->c <= THIN_ROWS && g->kh * g->kw > 1)
        return FILTER_THIN;
    if (g->c % CHANNELS != 0 || g->c > MOST_CHANNELS || g->oc > MOST_CHANNELS)
        return FILTER_NONE;
    return g->kh == 3 && g->kw == 3                      ? FILTER_3X3
           : g->kh == 5 && g->kw == 5 && g->oc % 32 == 0 ? FILTER_5X5
                                                         : FILTER_NONE;
}

static int64_t sums_of(const hki_images *g) {
    return (int64_t)g->kh * g->kw * g->c * g->oc;
}

// Quicker than a library: where that has tensor cores, it is good at many sums.
static bool is_best(const hki_images *g, filter_way way, bool tensor) {
    return !tensor || way != FILTER_3X3 || hki_conv_has_few_pairs(g) ||
           hki_conv_is_little(g);
}

// Channels o of a block.
static int width_of(const hki_images *g) {
    return g->oc % 32 == 0 ? 32 : 16;
}

// Pairs of channel blocks: each is summed by blocks of its own.
static int pairs_of(const hki_images *g, filter_way way) {
    return (way == FILTER_THIN ? 1 : g->c / CHANNELS) * (g->oc / width_of(g));
}

// As many blocks as keep a card busy, and come to an end together: those of
// wide sums are large.
static int blocks_of(const hki_images *g, filter_way way) {
    const bool large = way != FILTER_THIN && width_of(g) == 32;
    return (large ? 3 : 4) * HKI_PROCESSORS;
}

// Fewer blocks where their sums are many.
static void cut_strips(filter_sums *c, filter_way way) {
    const int64_t room = MOST_PARTS / sums_of(&c->g);
    c->pairs = pairs_of(&c->g, way);
    int64_t strips = (blocks_of(&c->g, way) + c->pairs - 1) / c->pairs;
    strips = strips < room ? strips : room;
    strips = strips < c->p.n ? strips : c->p.n;
    strips = strips < 1 ? 1 : strips;
    c->each = (int)((c->p.n + strips - 1) / strips);
    c->strips = (c->p.n + c->each - 1) / c->each;
}

static filter_sums filter_sums_of(const hki_images *g, filter_way way) {
    filter_sums c = {};
    c.g = *g;
    c.p = hki_patches_of(g, MOST_Y,
                         way == FILTER_THIN ? MOST_THIN / g->c : MOST_X, STEP);
    if (c.p.n > 0)
        cut_strips(&c, way);
    return c;
}

template <int KH, int KW, int OB, int ROWS, int SPLITS>
static void launch_sum(const filter_sums *c, dim3 grid, bool tensor) {
    constexpr int threads = 32 * KH / ROWS * SPLITS;
    if (tensor)
        HKI_LAUNCH_MEETING((sum_filter<KH, KW, OB, ROWS, SPLITS, true>), grid,
                           threads, *c);
    else
        HKI_LAUNCH_MEETING((sum_filter<KH, KW, OB, ROWS, SPLITS, false>), grid,
                           threads, *c);
}

template <int OB>
static void launch_thin(const filter_sums *c, dim3 grid, bool tensor) {
    if (tensor)
        HKI_LAUNCH_MEETING((sum_thin<OB, true>), grid, 32 * THIN_WARPS, *c);
    else
        HKI_LAUNCH_MEETING((sum_thin<OB, false>), grid, 32 * THIN_WARPS, *c);
}

static void launch(const filter_sums *c, filter_way way, bool tensor) {
    const dim3 grid((unsigned)(c->strips * c->pairs));
    const bool wide = width_of(&c->g) == 32;
    if (way == FILTER_THIN && wide)
        launch_thin<32>(c, grid, tensor);
    else if (way == FILTER_THIN)
        launch_thin<16>(c, grid, tensor);
    else if (way == FILTER_5X5)
        launch_sum<5, 5, 32, 1, 1>(c, grid, tensor);
    else if (wide)
        launch_sum<3, 3, 32, 1, 2>(c, grid, tensor);
    else
        launch_sum<3, 3, 16, 3, 4>(c, grid, tensor);
}

// ---- a call -----------------------------------------------------------------

static hki_images images_of(const hki_kernel *k) {
    return hki_images_of(&k->desc.attr, &k->desc.in[HKI_CONV_DW_X].shape,
                         &k->desc.in[HKI_CONV_DW_DZ].shape);
}

static size_t parts_bytes(const filter_sums *c) {
    return (size_t)(c->strips * sums_of(&c->g)) * sizeof(float);
}

static hk_status run_filter(const hki_cuda_call *call) {
    const hki_images g = images_of(call->k);
    const filter_way way = way_of(&g);
    filter_sums c = filter_sums_of(&g, way);
    const float *const dz = (const float *)call->in[HKI_CONV_DW_DZ];
    c.x = hki_source_of((const float *)call->in[HKI_CONV_DW_X], g.n, g.h, g.w,
                        g.c);
    c.dz = hki_source_of(dz, g.n, g.oh, g.ow, g.oc);
    c.parts = (float *)call->scratch;
    launch(&c, way, hki_conv_tensor_cores(call->k));
    hki_conv_add_strips(c.parts, c.strips, sums_of(&g), sums_of(&g),
                        (float *)call->out[HKI_CONV_DW_DW], NULL);
    if (call->k->desc.attr.mode != 0 && call->out[HKI_CONV_DW_DB] != NULL)
        hki_conv_db(call->k, dz, (float *)call->out[HKI_CONV_DW_DB],
                    (char *)call->scratch + parts_bytes(&c));
    return HK_OK;
}

void hki_conv_make_direct_filter(hki_kernel *k, bool best) {
    const hki_images g = images_of(k);
    const filter_way way = way_of(&g);
    if (best && !is_best(&g, way, hki_conv_tensor_cores(k)))
        return;
    if (way == FILTER_NONE || g.n == 0 || g.oh == 0 || g.ow == 0)
        return;
    const filter_sums c = filter_sums_of(&g, way);
    if (c.p.n == 0)
        return;
    k->run = run_filter;
    k->scratch_bytes = parts_bytes(&c) + hki_conv_db_scratch(k);
    k->note = "direct";
}
