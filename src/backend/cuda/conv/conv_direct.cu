// conv_direct.cu - convolutions with few channels, and the gradient of their
// images where windows have no stride:
//     y [place, o] = act(sum of x [place + tap, c] w [tap, c, o] + b [o])
//     dx [place, c] = sum of dz [place + tap, o] w' [tap, o, c]
// over taps and channels, where w' has its taps in the opposite order; act is
// none or relu.
//
// A block has a patch of y and OB of its channels. It brings CC channels of the
// x under the patch and of the filters to shared memory, and there every tap is
// a product: rows are places, the sum is over channels. Images of so few
// channels that all taps fit into 32 go the same way with a sum over (tap,
// channel).
#include "backend/cuda/conv/conv.h"
#include "backend/cuda/conv/patches.h"

#define MOST_WARPS 4
#define MOST_CHANNELS 64 // above, a library is good
#define THIN_DEPTH 32    // (tap, channel) of an image of few channels
#define MOST_THIN 1088   // floats of a piece of it
#define THIN_TILES 4
#define ENOUGH 264 // blocks: two for each processor of a large card

typedef struct direct_conv {
    hki_images g; // x: what is read, y: what is written
    hki_patches p;
    hki_source x;
    const float *w, *bias;
    float *y;
    bool relu;
    bool fours; // filters
    bool pairs; // y
} direct_conv;

// ---- places -----------------------------------------------------------------
//
// A warp has TILES times 16 places; a thread reads places group and group + 8
// of each.

HKI_ON_CARD int place_of(int tiles, int tile, int half) {
    const int warp = (int)threadIdx.x / 32, group = (int)threadIdx.x % 32 / 4;
    return (warp * tiles + tile) * 16 + group + 8 * half;
}

// Where the windows of a thread's places begin in the piece, in floats. Places
// behind the last stay at the first.
template <int TILES>
HKI_ON_CARD void find_windows(const direct_conv *c, int stride, int (*at)[2]) {
    const hki_patches *const p = &c->p;
    HKI_FOR (i, TILES)
        HKI_FOR (h, 2) {
            const int place = place_of(TILES, i, h);
            const hki_spot3 s = hki_spot3_of(
                p->rows, p->columns, place < hki_patch_places(p) ? place : 0);
            const int row = s.image * (int)p->height.by + s.row * c->g.sh;
            at[i][h] = (row * (int)p->width.by + s.column * c->g.sw) * stride;
        }
}

// Two channels of y at one place.
HKI_ON_CARD void store_pair(const direct_conv *c, float *to, float a, float b) {
    const float2 v = {c->relu && a <= 0 ? 0 : a, c->relu && b <= 0 ? 0 : b};
    if (c->pairs) {
        *(float2 *)to = v;
    } else {
        to[0] = v.x;
        to[1] = v.y;
    }
}

// Of a thread's places in a patch that begins at `first`.
template <int TILES, int OB>
HKI_ON_CARD void store_places(const direct_conv *c, hki_spot3 first, int o0,
                              const float (*sum)[OB / 8][4]) {
    const hki_source y = {NULL, c->g.n, c->g.oh, c->g.ow, c->g.oc, false};
    const int o = o0 + 2 * ((int)threadIdx.x % 4);
    float bias[OB / 8][2];
    HKI_FOR (j, OB / 8)
        HKI_FOR (e, 2)
            bias[j][e] = c->bias != NULL ? c->bias[o + 8 * j + e] : 0;
    HKI_FOR (i, TILES)
        HKI_FOR (h, 2) {
            const int place = place_of(TILES, i, h);
            const hki_spot3 s =
                hki_moved(first, hki_spot3_of(c->p.rows, c->p.columns, place));
            const int64_t at =
                place < hki_patch_places(&c->p) ? hki_source_at(&y, s, o) : -1;
            HKI_FOR (j, OB / 8)
                if (at >= 0)
                    store_pair(c, c->y + at + 8 * j,
                               sum[i][j][2 * h] + bias[j][0],
                               sum[i][j][2 * h + 1] + bias[j][1]);
        }
}

// The same where products have 16 channels as rows, two of a thread side by
// side, and 8 places as columns, likewise.
template <int TILES, int OB>
HKI_ON_CARD void store_columns(const direct_conv *c, hki_spot3 first, int o0,
                               const float (*sum)[OB / 8][4]) {
    const hki_source y = {NULL, c->g.n, c->g.oh, c->g.ow, c->g.oc, false};
    const int group = (int)threadIdx.x % 32 / 4, lane = (int)threadIdx.x % 4;
    const int o = o0 + 2 * group;
    float bias[OB / 16][2];
    HKI_FOR (j, OB / 16)
        HKI_FOR (e, 2)
            bias[j][e] = c->bias != NULL ? c->bias[o + 16 * j + e] : 0;
    HKI_FOR (i, 2 * TILES)
        HKI_FOR (e, 2) {
            const int place =
                place_of(TILES, i / 2, i % 2) - group + 2 * lane + e;
            const hki_spot3 s =
                hki_moved(first, hki_spot3_of(c->p.rows, c->p.columns, place));
            const int64_t at =
                place < hki_patch_places(&c->p) ? hki_source_at(&y, s, o) : -1;
            HKI_FOR (j, OB / 16) {
                const float *const of = sum[i / 2][i % 2 * (OB / 16) + j];
                if (at >= 0)
                    store_pair(c, c->y + at + 16 * j, of[e] + bias[j][0],
                               of[2 + e] + bias[j][1]);
            }
        }
}

// ---- filters ----------------------------------------------------------------

// How a block's filters [taps, CC, OB] lie in shared memory: as they do in
// memory, so that of w' the sum's index is the inner one. No two lanes of a
// fragment meet in a bank.
template <bool INPUT, int CC, int OB> struct filter_layout {
    static constexpr int INNER = INPUT ? CC : OB, OUTER = INPUT ? OB : CC;
    static constexpr int STRIDE = INPUT ? CC + (CC % 16 == 0 ? 8 : 0) : OB + 4;
    static constexpr int K = INPUT ? 1 : STRIDE, N = INPUT ? STRIDE : 1;
    static constexpr int TAP = OUTER * STRIDE; // floats of a tap
};

// f(tap, row, four) for fours of filters that are a thread's: it has two rows,
// one after the other.
template <typename L, typename F>
HKI_ON_CARD void each_filter_four(const direct_conv *c, F f) {
    constexpr int EACH = L::INNER / 4;
    const int n = c->g.kh * c->g.kw * (L::OUTER / 2) * EACH;
    for (int e = (int)threadIdx.x; e < n; e += (int)blockDim.x) {
        const int line = e / EACH * 2;
        f(line / L::OUTER, line % L::OUTER, e % EACH * 4);
    }
}

// Of channels c0.. of x and o0.. of y.
template <bool INPUT, int CC, int OB>
HKI_ON_CARD void copy_filters(const direct_conv *c, int c0, int o0, float *to) {
    using L = filter_layout<INPUT, CC, OB>;
    const int taps = c->g.kh * c->g.kw;
    const int inner = INPUT ? c->g.c : c->g.oc,
              outer = INPUT ? c->g.oc : c->g.c;
    const float *const from =
        c->w + (INPUT ? (int64_t)o0 * inner + c0 : (int64_t)c0 * inner + o0);
    each_filter_four<L>(c, [&](int tap, int row, int four) {
        const int line = (INPUT ? taps - 1 - tap : tap) * outer + row;
        HKI_FOR (i, 2)
            hki_copy_four(from + (int64_t)(line + i) * inner + four, true,
                          c->fours,
                          to + tap * L::TAP + (row + i) * L::STRIDE + four);
    });
}

// For tensor cores: (a0, b0, a1, b1), (a2, b2, a3, b3) of two rows of w', a and
// b; those of w stay as they are.
template <bool INPUT> HKI_ON_CARD void round_rows(float *a, float *b) {
    hki_round_four(a);
    hki_round_four(b);
    if (!INPUT)
        return;
    const float4 u = *(const float4 *)a, v = *(const float4 *)b;
    *(float4 *)a = float4{u.x, v.x, u.y, v.y};
    *(float4 *)b = float4{u.z, v.z, u.w, v.w};
}

// What a thread has copied of them.
template <bool INPUT, int CC, int OB>
HKI_ON_CARD void round_filters(const direct_conv *c, float *w) {
    using L = filter_layout<INPUT, CC, OB>;
    each_filter_four<L>(c, [&](int tap, int row, int four) {
        float *const at = w + tap * L::TAP + row * L::STRIDE + four;
        round_rows<INPUT>(at, at + L::STRIDE);
    });
}

// ---- a tap ------------------------------------------------------------------
//
// On tensor cores rows of a product are 16 channels of y, columns are 8 places,
// and the sum is over channels 0, 2, 4, 6, 1, 3, 5, 7: a thread reads two
// neighbours as one, which lie in its registers as the product wants them.

// Channels 2 group, 2 group + 1 of y for two neighbours of the sum. Of w' they
// lie as round_rows has put them.
template <int K, int N>
HKI_ON_CARD void filter_rows(const float *w, int group, int lane, float a[4]) {
    const float *const at = w + 2 * lane * K + 2 * group;
    if (K == 1) {
        hki_load<4>(w + (2 * group + lane % 2) * N + lane / 2 * 4, a);
        return;
    }
    const float2 u = *(const float2 *)at, v = *(const float2 *)(at + K);
    a[0] = u.x, a[1] = u.y;
    a[2] = v.x, a[3] = v.y;
}

template <int TILES, int OB, int K, int N>
HKI_ON_CARD void add_eight(const float *x, const int (*at)[2], const float *w,
                           float (*sum)[OB / 8][4]) {
    const int group = (int)threadIdx.x % 32 / 4, lane = (int)threadIdx.x % 4;
    float a[OB / 16][4], b[2 * TILES][2];
    HKI_FOR (j, OB / 16)
        filter_rows<K, N>(w + 16 * j * N, group, lane, a[j]);
    HKI_FOR (i, 2 * TILES) {
        const float2 v = *(const float2 *)(x + at[i / 2][i % 2] + 2 * lane);
        b[i][0] = v.x, b[i][1] = v.y;
    }
    HKI_FOR (i, 2 * TILES)
        HKI_FOR (j, OB / 16)
            hki_mma_tf32(sum[i / 2][i % 2 * (OB / 16) + j], a[j], b[i]);
}

// One channel, in whole floats.
template <int TILES, int OB, int N>
HKI_ON_CARD void add_one(const float *x, const int (*at)[2], const float *w,
                         float (*sum)[OB / 8][4]) {
    const int lane = (int)threadIdx.x % 4;
    float b[OB / 8][2];
    HKI_FOR (j, OB / 8)
        HKI_FOR (h, 2)
            b[j][h] = w[(8 * j + 2 * lane + h) * N];
    HKI_FOR (i, TILES)
        HKI_FOR (h, 2) {
            const float v = x[at[i][h]];
            HKI_FOR (j, OB / 8) {
                sum[i][j][2 * h] += v * b[j][0];
                sum[i][j][2 * h + 1] += v * b[j][1];
            }
        }
}

template <int TILES, int CC, int OB, int K, int N, bool TENSOR>
HKI_ON_CARD void add_tap(const float *x, const int (*at)[2], const float *w,
                         float (*sum)[OB / 8][4]) {
    if (TENSOR)
        HKI_FOR (s, CC / 8)
            add_eight<TILES, OB, K, N>(x + 8 * s, at, w + 8 * s * K, sum);
    else
        HKI_FOR (s, CC)
            add_one<TILES, OB, N>(x + s, at, w + s * K, sum);
}

// ---- kernels ----------------------------------------------------------------

// The sizes of a block: TAPS and MOST_X are the most that fit.
template <int CC_, int OB_, int TAPS_, int MOST_X_, int TILES_> struct sizes {
    static constexpr int CC = CC_, OB = OB_, TAPS = TAPS_, MOST_X = MOST_X_,
                         TILES = TILES_;
    static constexpr int X_STRIDE = CC + (CC % 16 == 0 ? 8 : 0);
    static constexpr int PLACES = 16 * TILES * MOST_WARPS;
};

typedef sizes<16, 16, 9, 340, 4> narrow_sizes; // 16 channels out
typedef sizes<16, 32, 9, 208, 2> wide_sizes;   // 32, 64
typedef sizes<8, 32, 25, 400, 4> large_sizes;  // windows up to 5 x 5
typedef sizes<8, 32, 25, 240, 2> little_sizes; // the same of few images

template <bool INPUT, typename S, bool TENSOR>
HKI_KERNEL void __launch_bounds__(32 * MOST_WARPS, TENSOR ? 4 : 3)
    convolve(direct_conv c) {
    using L = filter_layout<INPUT, S::CC, S::OB>;
    __shared__ float4 memory[(S::MOST_X * S::X_STRIDE + S::TAPS * L::TAP) / 4];
    float *const x = (float *)memory, *const w = x + S::MOST_X * S::X_STRIDE;
    const hki_spot3 first = hki_patch_at(&c.p, (int)blockIdx.x);
    const int o0 = (int)blockIdx.y * S::OB;
    const hki_patch_piece piece = hki_x_piece(&c.p);
    int at[S::TILES][2];
    float sum[S::TILES][S::OB / 8][4] = {};
    find_windows<S::TILES>(&c, S::X_STRIDE, at);
    for (int c0 = 0; c0 < c.g.c; c0 += S::CC) {
        __syncthreads();
        hki_copy_piece<S::CC, S::X_STRIDE>(&c.x, hki_under(&c.g, first), c0,
                                           &piece, x);
        copy_filters<INPUT, S::CC, S::OB>(&c, c0, o0, w);
        hki_copy_wait();
        hki_arrived<S::CC, S::X_STRIDE, TENSOR>(&piece, x);
        if (TENSOR)
            round_filters<INPUT, S::CC, S::OB>(&c, w);
        __syncthreads();
        for (int row = 0; row < c.g.kh; row++)
            for (int column = 0; column < c.g.kw; column++)
                add_tap<S::TILES, S::CC, S::OB, L::K, L::N, TENSOR>(
                    x + (row * (int)c.p.width.by + column) * S::X_STRIDE, at,
                    w + (row * c.g.kw + column) * L::TAP, sum);
    }
    if (TENSOR)
        store_columns<S::TILES, S::OB>(&c, first, o0, sum);
    else
        store_places<S::TILES, S::OB>(&c, first, o0, sum);
}

// Eight of (tap, channel); from: where they are in a window, -1: nowhere.
template <int OB>
HKI_ON_CARD void add_thin_eight(const float *x, const int (*at)[2],
                                const int *from, const float *w,
                                float (*sum)[OB / 8][4]) {
    const int group = (int)threadIdx.x % 32 / 4, lane = (int)threadIdx.x % 4;
    float b[OB / 8][2];
    HKI_FOR (j, OB / 8)
        HKI_FOR (h, 2)
            b[j][h] = w[(lane + 4 * h) * (OB + 8) + 8 * j + group];
    HKI_FOR (i, THIN_TILES) {
        float a[4];
        HKI_FOR (e, 4) {
            const int k = from[lane + e / 2 * 4];
            a[e] = k < 0 ? 0 : x[at[i][e % 2] + k];
        }
        HKI_FOR (j, OB / 8)
            hki_mma_tf32(sum[i][j], a, b[j]);
    }
}

// All of (tap, channel), their filters and where they are in a window.
template <int OB, bool TENSOR>
HKI_ON_CARD void load_thin_filters(const direct_conv *c, int o0, float *w,
                                   int *from) {
    const int depth = c->g.kh * c->g.kw * c->g.c;
    for (int i = (int)threadIdx.x; i < THIN_DEPTH * OB; i += (int)blockDim.x) {
        const int k = i / OB, o = i % OB;
        const float v = k < depth ? c->w[(int64_t)k * c->g.oc + o0 + o] : 0;
        w[k * (OB + 8) + o] = TENSOR ? hki_tf32(v) : v;
    }
    for (int k = (int)threadIdx.x; k < THIN_DEPTH; k += (int)blockDim.x) {
        const int tap = k / c->g.c, row = tap / c->g.kw;
        from[k] = k < depth ? (row * (int)c->p.width.by + tap - row * c->g.kw) *
                                      c->g.c +
                                  k % c->g.c
                            : -1;
    }
}

template <int OB, bool TENSOR>
HKI_KERNEL void __launch_bounds__(32 * MOST_WARPS)
    convolve_thin(direct_conv c) {
    __shared__ float x[MOST_THIN], w[THIN_DEPTH * (OB + 8)];
    __shared__ int from[THIN_DEPTH];
    const hki_spot3 first = hki_patch_at(&c.p, (int)blockIdx.x);
    const int o0 = (int)blockIdx.y * OB, depth = c.g.kh * c.g.kw * c.g.c;
    const hki_patch_piece piece = hki_x_piece(&c.p);
    int at[THIN_TILES][2];
    float sum[THIN_TILES][OB / 8][4] = {};
    find_windows<THIN_TILES>(&c, c.g.c, at);
    hki_load_thin<TENSOR>(&c.x, hki_under(&c.g, first), &piece, x);
    load_thin_filters<OB, TENSOR>(&c, o0, w, from);
    __syncthreads();
    if (TENSOR)
        HKI_FOR (s, THIN_DEPTH / 8)
            add_thin_eight<OB>(x, at, from + 8 * s, w + 8 * s * (OB + 8), sum);
    else
        for (int k = 0; k < depth; k++)
            add_one<THIN_TILES, OB, 1>(x + from[k], at, w + k * (OB + 8), sum);
    store_places<THIN_TILES, OB>(&c, first, o0, sum);
}

// ---- launches ---------------------------------------------------------------

// Which kernel, by shape.
typedef enum direct_way {
    DIRECT_NONE = 0,
    DIRECT_THIN = 1,
    DIRECT_NARROW = 2,
    DIRECT_WIDE = 3,
    DIRECT_LARGE = 4,
    DIRECT_LITTLE = 5
} direct_way;

template <typename S> static hki_patches patches_sized(const hki_images *g) {
    return hki_patches_of(g, S::PLACES, S::MOST_X, 1);
}

static hki_patches patches_of(const hki_images *g, direct_way way) {
    return way == DIRECT_THIN
               ? hki_patches_of(g, narrow_sizes::PLACES, MOST_THIN / g->c, 1)
           : way == DIRECT_NARROW ? patches_sized<narrow_sizes>(g)
           : way == DIRECT_WIDE   ? patches_sized<wide_sizes>(g)
           : way == DIRECT_LARGE  ? patches_sized<large_sizes>(g)
                                  : patches_sized<little_sizes>(g);
}

static direct_way large_or_little(const hki_images *g) {
    const hki_patches p = patches_sized<large_sizes>(g);
    return (int64_t)p.n * (g->oc / large_sizes::OB) < ENOUGH ? DIRECT_LITTLE
                                                             : DIRECT_LARGE;
}

// g as it is for the image that is read.
static direct_way way_of(const hki_images *g, bool input) {
    const int taps = g->kh * g->kw;
    const bool wide = g->oc % 32 == 0;
    if (g->groups != 1 || g->dh != 1 || g->dw != 1 || g->oc % 16 != 0 ||
        taps == 1)
        return DIRECT_NONE;
    if (!input && taps * g->c <= THIN_DEPTH)
        return DIRECT_THIN;
    if (g->c % 16 != 0 || g->c > MOST_CHANNELS || g->oc > MOST_CHANNELS)
        return DIRECT_NONE;
    if (taps <= narrow_sizes::TAPS)
        return wide ? DIRECT_WIDE : DIRECT_NARROW;
    return taps <= large_sizes::TAPS && wide ? large_or_little(g) : DIRECT_NONE;
}

// For the images of dz: as if they were read by a convolution that gives dx.
static hki_images turned(const hki_images *g) {
    hki_images t = *g;
    t.h = g->oh, t.w = g->ow, t.c = g->oc;
    t.oh = g->h, t.ow = g->w, t.oc = g->c;
    t.top = g->kh - 1 - g->top;
    t.left = g->kw - 1 - g->left;
    return t;
}

// Warps for all places of a patch.
static int threads_of(const hki_patches *p, int tiles) {
    const int each = 16 * tiles;
    return (hki_patch_places(p) + each - 1) / each * 32;
}

template <bool INPUT, typename S>
static void launch_sized(const direct_conv *c, bool tensor) {
    const dim3 grid((unsigned)c->p.n, (unsigned)(c->g.oc / S::OB));
    const int threads = threads_of(&c->p, S::TILES);
    if (tensor)
        HKI_LAUNCH_MEETING((convolve<INPUT, S, true>), grid, threads, *c);
    else
        HKI_LAUNCH_MEETING((convolve<INPUT, S, false>), grid, threads, *c);
}

template <int OB> static void launch_thin(const direct_conv *c, bool tensor) {
    const dim3 grid((unsigned)c->p.n, (unsigned)(c->g.oc / OB));
    const int threads = threads_of(&c->p, THIN_TILES);
    if (tensor)
        HKI_LAUNCH_MEETING((convolve_thin<OB, true>), grid, threads, *c);
    else
        HKI_LAUNCH_MEETING((convolve_thin<OB, false>), grid, threads, *c);
}

template <bool INPUT>
static void launch(const direct_conv *c, direct_way way, bool tensor) {
    if (way == DIRECT_THIN && c->g.oc % 32 == 0)
        launch_thin<32>(c, tensor);
    else if (way == DIRECT_THIN)
        launch_thin<16>(c, tensor);
    else if (way == DIRECT_NARROW)
        launch_sized<INPUT, narrow_sizes>(c, tensor);
    else if (way == DIRECT_WIDE)
        launch_sized<INPUT, wide_sizes>(c, tensor);
    else if (way == DIRECT_LARGE)
        launch_sized<INPUT, large_sizes>(c, tensor);
    else
        launch_sized<INPUT, little_sizes>(c, tensor);
}

// ---- a call -----------------------------------------------------------------

static hki_images forward_images(const hki_kernel *k) {
    return hki_images_of(&k->desc.attr, &k->desc.in[HKI_CONV_X].shape,
                         &k->desc.out[0].shape);
}

static hki_images input_images(const hki_kernel *k) {
    const hki_images g = hki_images_of(&k->desc.attr, &k->desc.out[0].shape,
                                       &k->desc.in[HKI_CONV_DX_DZ].shape);
    return turned(&g);
}

static direct_conv direct_conv_of(const hki_images *g, direct_way way,
                                  const void *x, const void *w, void *y) {
    direct_conv c = {};
    c.g = *g;
    c.p = patches_of(g, way);
    c.x = hki_source_of((const float *)x, g->n, g->h, g->w, g->c);
    c.w = (const float *)w;
    c.y = (float *)y;
    c.fours = hki_in_fours(w, 4);
    c.pairs = (uintptr_t)y % sizeof(float2) == 0;
    return c;
}

static hk_status run_forward(const hki_cuda_call *call) {
    const hki_images g = forward_images(call->k);
    const direct_way way = way_of(&g, false);
    direct_conv c = direct_conv_of(&g, way, call->in[HKI_CONV_X],
                                   call->in[HKI_CONV_W], call->out[0]);
    c.bias = (const float *)call->in[HKI_CONV_B];
    c.relu = call->k->desc.attr.act == HKI_U_RELU;
    launch<false>(&c, way, hki_conv_tensor_cores(call->k));
    return HK_OK;
}

static hk_status run_input(const hki_cuda_call *call) {
    const hki_images g = input_images(call->k);
    const direct_way way = way_of(&g, true);
    const direct_conv c = direct_conv_of(&g, way, call->in[HKI_CONV_DX_DZ],
                                         call->in[HKI_CONV_DX_W], call->out[0]);
    launch<true>(&c, way, hki_conv_tensor_cores(call->k));
    return HK_OK;
}

static bool steps(const hki_images *g) {
    return g->sh > 1 || g->sw > 1;
}

// Quicker than a library: where that has tensor cores, it is good at 32
// channels and more.
static bool is_best(const hki_images *g, direct_way way, bool input,
                    bool tensor) {
    const bool few = hki_conv_has_few_pairs(g) && hki_conv_is_little(g);
    return !tensor || way == DIRECT_THIN ||
           (way == DIRECT_NARROW && !steps(g)) ||
           (input && (way == DIRECT_LARGE || way == DIRECT_LITTLE || few));
}

// Quicker than the kernels for any shape, which skip what steps leave out.
static bool is_good(const hki_images *g, direct_way way, bool tensor) {
    return !tensor || way == DIRECT_THIN || !steps(g);
}

static void make(hki_kernel *k, const hki_images *g, bool input, bool best,
                 hki_cuda_run run) {
    const direct_way way = way_of(g, input);
    const bool tensor = hki_conv_tensor_cores(k);
    if (best ? !is_best(g, way, input, tensor) : !is_good(g, way, tensor))
        return;
    if (way == DIRECT_NONE || g->n == 0 || g->oh == 0 || g->ow == 0 ||
        g->h == 0 || g->w == 0 || patches_of(g, way).n == 0)
        return;
    k->run = run;
    k->note = "direct";
}

void hki_conv_make_direct(hki_kernel *k, bool best) {
    const hki_images g = forward_images(k);
    const int act = k->desc.attr.act;
    if (act == HKI_U_NONE || act == HKI_U_RELU)
        make(k, &g, false, best, run_forward);
}

void hki_conv_make_direct_input(hki_kernel *k, bool best) {
    const hki_images g = input_images(k);
    if (g.sh == 1 && g.sw == 1)
        make(k, &g, true, best, run_input);
}
