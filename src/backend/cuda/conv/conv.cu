// conv.cu - convolution of images [N,H,W,C] with filters [kh, kw, C/groups, O],
// and its two gradients.
//
// Each of the three is a product of matrices that nobody writes down: rows of
// one operand are windows of an image, which are gathered while tiles of it go
// to shared memory. With places = all (image, row, column) and taps = all (row,
// column, channel) of a filter:
//     y [places, O] = windows of x [places, taps] . w [taps, O]
//     dx [places, C] = windows of dz [places, taps'] . w' [taps', C], where
//     taps'
//         go over the channels of dz
//     dw [taps, O] = windows of x ^T [taps, places] . dz [places, O]
// The last one has few rows and a long sum: it is cut into strips, which a
// second launch adds in their order. db is a row of ones more in the windows.
#include "backend/cuda/conv/conv.h"
#include "backend/cuda/fragments.h"

#define BLOCKS 264        // two for each processor of a large card
#define STRIP_STEPS 4     // of the sum, in a strip at least
#define LONGEST (1 << 30) // places, taps
#define MANY_CHANNELS 32
#define MOST_TAPS (9 * MANY_CHANNELS)

// ---- what the kernels are told ----------------------------------------------

// In a group, of g.groups: rows, columns and depth are those of the product.
typedef struct conv {
    hki_images g;
    int c, oc; // channels of a group
    int rows, columns, depth;
    int chunk, strips;                 // of depth
    hki_divisor channels, kw;          // of taps
    hki_divisor width, height;         // of places
    hki_divisor sh, sw;                // strides
    const float *image, *other, *bias; // x or dz; w, or dz for dw
    float *out, *db;
    float *parts; // where there are strips: [strips, rows, O]
    int act;
} conv;

typedef struct filter_tap {
    int row, column, channel;
} filter_tap;

HKI_ON_CARD filter_tap tap_of(const conv *c, int i) {
    filter_tap t;
    const int at = hki_quotient(c->channels, i);
    t.channel = i - at * (int)c->channels.by;
    t.row = hki_quotient(c->kw, at);
    t.column = at - t.row * (int)c->kw.by;
    return t;
}

typedef struct image_place {
    int image, row, column;
} image_place;

HKI_ON_CARD image_place place_of(const conv *c, int i) {
    image_place p;
    const int line = hki_quotient(c->width, i);
    p.column = i - line * (int)c->width.by;
    p.image = hki_quotient(c->height, line);
    p.row = line - p.image * (int)c->height.by;
    return p;
}

// Where a tap of the window at a place of y is in x; -1: in the padding.
HKI_ON_CARD int64_t in_x(const conv *c, int group, image_place p,
                         filter_tap t) {
    const hki_images *const g = &c->g;
    const int row = p.row * g->sh - g->top + t.row * g->dh;
    const int column = p.column * g->sw - g->left + t.column * g->dw;
    if (row < 0 || row >= g->h || column < 0 || column >= g->w)
        return -1;
    return (((int64_t)p.image * g->h + row) * g->w + column) * g->c +
           group * c->c + t.channel;
}

// Where the window that has a place of x under a tap is in y; -1: nowhere.
HKI_ON_CARD int64_t in_y(const conv *c, int group, image_place p,
                         filter_tap t) {
    const hki_images *const g = &c->g;
    const int down = p.row + g->top - t.row * g->dh;
    const int right = p.column + g->left - t.column * g->dw;
    if (down < 0 || right < 0)
        return -1;
    const int row = hki_quotient(c->sh, down),
              column = hki_quotient(c->sw, right);
    if (row * g->sh != down || column * g->sw != right || row >= g->oh ||
        column >= g->ow)
        return -1;
    return (((int64_t)p.image * g->oh + row) * g->ow + column) * g->oc +
           group * c->oc + t.channel;
}

// ---- operands ---------------------------------------------------------------
//
// A thread fetches V elements side by side, in memory and in the operand: along
// the sum, or along the rows (columns of the second operand).

// V floats; at -1 zeros.
template <int V>
HKI_ON_CARD void read(const float *from, int64_t at, float *to) {
    HKI_FOR (i, V)
        to[i] = 0;
    if (at < 0)
        return;
    hki_load<V>(from + at, to);
}

// Of the windows: element (row, l)
template <int WAY, int V>
HKI_ON_CARD void fetch_window(const conv *c, int group, int row, int l, int end,
                              float *to) {
    if (WAY == HKI_CONV_FILTER && row == c->c * c->g.kh * c->g.kw && l < end) {
        HKI_FOR (i, V)
            to[i] = 1; // for db
        return;
    }
    const bool there = row < c->rows && l < end;
    const int place = WAY == HKI_CONV_FILTER ? l : row,
              tap = WAY == HKI_CONV_FILTER ? row : l;
    int64_t at = -1;
    if (there)
        at = WAY == HKI_CONV_INPUT
                 ? in_y(c, group, place_of(c, place), tap_of(c, tap))
                 : in_x(c, group, place_of(c, place), tap_of(c, tap));
    read<V>(c->image, at, to);
}

// Of the other operand: element (l, column)
template <int WAY, int V>
HKI_ON_CARD void fetch_other(const conv *c, int group, int column, int l,
                             int end, float *to) {
    const int O = c->g.oc;
    int64_t at = -1;
    if (column < c->columns && l < end) {
        if (WAY == HKI_CONV_INPUT) {
            const int tap = hki_quotient(c->channels, l);
            at = ((int64_t)tap * c->c + column) * O + group * c->oc + l -
                 tap * c->oc;
        } else {
            at = (int64_t)l * O + group * c->oc + column;
        }
    }
    read<V>(c->other, at, to);
}

// The e-th V elements of an operand's ROWS x HKI_WIDTH: where they begin.
typedef struct piece {
    int row, l;
} piece;

template <int ROWS, int V, bool ALONG_SUM> HKI_ON_CARD piece piece_of(int e) {
    if (ALONG_SUM)
        return piece{e / (HKI_WIDTH / V), e % (HKI_WIDTH / V) * V};
    if (V == 1)
        return piece{e % ROWS, e / ROWS};
    // A warp has 16 rows of 8 l: few of its writes meet in a bank.
    return piece{4 * (e % 4) + 16 * (e / 32 % (ROWS / 16)),
                 e / 4 % 8 + 8 * (e / (2 * ROWS))};
}

template <int ROWS, int V, bool ALONG_SUM, bool TENSOR>
HKI_ON_CARD void put(float (*to)[HKI_STRIDE], int e, const float *from) {
    const piece p = piece_of<ROWS, V, ALONG_SUM>(e);
    HKI_FOR (i, V)
        to[p.row + (ALONG_SUM ? 0 : i)][p.l + (ALONG_SUM ? i : 0)] =
            TENSOR ? hki_tf32(from[i]) : from[i];
}

// ---- the product ------------------------------------------------------------

template <int WAY>
HKI_ON_CARD void store_one(const conv *c, int group, int strip, int row,
                           int column, float x) {
    const int O = c->g.oc, at = group * c->oc + column;
    if (row >= c->rows || column >= c->columns)
        return;
    if (WAY == HKI_CONV_FORWARD) {
        if (c->bias != NULL)
            x += c->bias[at];
        c->out[(int64_t)row * O + at] = hki_act_of(c->act, x);
    } else if (WAY == HKI_CONV_INPUT) {
        c->out[(int64_t)row * c->g.c + group * c->c + column] = x;
    } else if (c->strips > 1) {
        c->parts[((int64_t)strip * c->rows + row) * O + at] = x;
    } else if (row < c->c * c->g.kh * c->g.kw) {
        c->out[(int64_t)row * O + at] = x;
    } else if (c->db != NULL) {
        c->db[at] = x;
    }
}

// A block has a tile of BM x BN of a group, and a strip of the sum.
template <int WAY, int BM, int BN, int V, bool TENSOR>
HKI_KERNEL void __launch_bounds__(HKI_LANES) conv_tiles(conv c) {
    constexpr int VB = WAY == HKI_CONV_FILTER ? V : 1; // filters lie anywhere
    constexpr bool A_ALONG = WAY != HKI_CONV_FILTER,
                   B_ALONG = WAY == HKI_CONV_INPUT;
    constexpr int NA = BM * HKI_WIDTH / V / HKI_LANES;
    constexpr int NB = BN * HKI_WIDTH / VB / HKI_LANES;
    __shared__ float a[BM][HKI_STRIDE], b[BN][HKI_STRIDE];
    const int tid = (int)threadIdx.x;
    const hki_spot s = hki_my_spot(BM, BN);
    const int row0 = (int)blockIdx.x * BM, column0 = (int)blockIdx.y * BN;
    const int group = (int)blockIdx.z % c.g.groups;
    const int strip = (int)blockIdx.z / c.g.groups;
    const int begin = strip * c.chunk;
    const int end = c.depth - begin < c.chunk ? c.depth : begin + c.chunk;
    float sum[BM / 32][BN / 16][4] = {};
    float next_a[NA][V] = {}, next_b[NB][VB] = {};
    for (int l0 = begin - HKI_WIDTH; l0 < end; l0 += HKI_WIDTH) {
        // The next ones are under way while these are multiplied.
        const int ahead = l0 + HKI_WIDTH;
        if (ahead < end) {
            HKI_FOR (i, NA) {
                const piece p = piece_of<BM, V, A_ALONG>(tid + i * HKI_LANES);
                fetch_window<WAY, V>(&c, group, row0 + p.row, ahead + p.l, end,
                                     next_a[i]);
            }
            HKI_FOR (i, NB) {
                const piece p = piece_of<BN, VB, B_ALONG>(tid + i * HKI_LANES);
                fetch_other<WAY, VB>(&c, group, column0 + p.row, ahead + p.l,
                                     end, next_b[i]);
            }
        }
        if (l0 >= begin && TENSOR)
            hki_multiply<BM, BN>(a, b, s, sum);
        if (l0 >= begin && !TENSOR)
            hki_multiply_fp32<BM, BN>(a, b, s, sum);
        __syncthreads();
        HKI_FOR (i, NA)
            put<BM, V, A_ALONG, TENSOR>(a, tid + i * HKI_LANES, next_a[i]);
        HKI_FOR (i, NB)
            put<BN, VB, B_ALONG, TENSOR>(b, tid + i * HKI_LANES, next_b[i]);
        __syncthreads();
    }
    HKI_FOR (i, BM / 32)
        HKI_FOR (j, BN / 16)
            HKI_FOR (e, 4)
                store_one<WAY>(&c, group, strip,
                               row0 + s.row + 16 * i + s.group + (e / 2) * 8,
                               column0 + s.column + 8 * j + 2 * s.lane + e % 2,
                               sum[i][j][e]);
}

#define ADD_LINES 32 // threads for each element

// out and db, which is behind it, from the strips: a block has 32 elements
HKI_KERNEL void __launch_bounds__(32 * ADD_LINES)
    add_strips(const float *parts, int strips, int64_t n, int64_t n_out,
               float *out, float *db) {
    __shared__ float part[ADD_LINES][32];
    const int lane = threadIdx.x % 32, line = threadIdx.x / 32;
    const int64_t i = (int64_t)blockIdx.x * 32 + lane;
    float sum = 0;
    for (int s = line; s < strips; s += ADD_LINES)
        sum += i < n ? parts[s * n + i] : 0;
    part[line][lane] = sum;
    __syncthreads();
    for (int l = 1; line == 0 && l < ADD_LINES; l++)
        sum += part[l][lane];
    if (line == 0 && i < n_out)
        out[i] = sum;
    if (line == 0 && i >= n_out && i < n && db != NULL)
        db[i - n_out] = sum;
}

void hki_conv_add_strips(const float *parts, int strips, int64_t n,
                         int64_t n_out, float *out, float *db) {
    HKI_LAUNCH_MEETING(add_strips, hki_blocks(n, 32), 32 * ADD_LINES, parts,
                       strips, n, n_out, out, db);
}

// ---- launches ---------------------------------------------------------------

template <int WAY, int BM, int BN, int V>
static void launch_sized(const conv *c, bool tensor) {
    const dim3 grid(hki_blocks(c->rows, BM), hki_blocks(c->columns, BN),
                    (unsigned)(c->g.groups * c->strips));
    if (tensor)
        HKI_LAUNCH_MEETING((conv_tiles<WAY, BM, BN, V, true>), grid, HKI_LANES,
                           *c);
    else
        HKI_LAUNCH_MEETING((conv_tiles<WAY, BM, BN, V, false>), grid, HKI_LANES,
                           *c);
}

// Tiles are as wide as there are columns, and lower where elements are fetched
// one by one: those wait in registers.
template <int WAY, int V> static void launch_wide(const conv *c, bool tensor) {
    constexpr int BM = V == 1 ? 64 : 128;
    if (c->columns <= 16)
        launch_sized<WAY, BM, 16, V>(c, tensor);
    else if (c->columns <= 32)
        launch_sized<WAY, BM, 32, V>(c, tensor);
    else
        launch_sized<WAY, 64, 64, V>(c, tensor);
}

static int64_t tiles_of(const conv *c) {
    const int64_t rows = c->columns <= 32 ? 128 : 64, columns = 64;
    return ((c->rows + rows - 1) / rows) *
           ((c->columns + columns - 1) / columns) * c->g.groups;
}

// Four at a time: channels come in fours, and so do addresses.
static bool in_fours(const conv *c, hki_conv_way how) {
    const uintptr_t at =
        (uintptr_t)c->image |
        (how == HKI_CONV_FILTER ? (uintptr_t)c->other : (uintptr_t)0);
    const int channels = how == HKI_CONV_FORWARD ? c->c
                         : how == HKI_CONV_INPUT ? c->oc
                                                 : c->c | c->oc;
    return at % 16 == 0 && channels % 4 == 0;
}

template <int WAY> static void launch(const conv *c, bool tensor) {
    if (in_fours(c, (hki_conv_way)WAY))
        launch_wide<WAY, 4>(c, tensor);
    else
        launch_wide<WAY, 1>(c, tensor);
    if (c->strips > 1)
        hki_conv_add_strips(c->parts, c->strips, (int64_t)c->rows * c->g.oc,
                            (int64_t)c->c * c->g.kh * c->g.kw * c->g.oc, c->out,
                            c->db);
}

// ---- a call -----------------------------------------------------------------

// Images, places and taps of a call.
static conv conv_of(const hki_attr *a, const hk_shape *x, const hk_shape *y,
                    hki_conv_way how) {
    conv c = {};
    c.g = hki_images_of(a, x, y);
    c.c = c.g.c / c.g.groups;
    c.oc = c.g.oc / c.g.groups;
    c.channels = hki_divisor_of(how == HKI_CONV_INPUT ? c.oc : c.c);
    c.kw = hki_divisor_of(c.g.kw);
    c.width = hki_divisor_of(how == HKI_CONV_INPUT ? c.g.w : c.g.ow);
    c.height = hki_divisor_of(how == HKI_CONV_INPUT ? c.g.h : c.g.oh);
    c.sh = hki_divisor_of(c.g.sh);
    c.sw = hki_divisor_of(c.g.sw);
    const int places =
        c.g.n * (how == HKI_CONV_INPUT ? c.g.h * c.g.w : c.g.oh * c.g.ow);
    const int taps = c.g.kh * c.g.kw * (how == HKI_CONV_INPUT ? c.oc : c.c);
    c.rows = how == HKI_CONV_FILTER ? taps : places;
    c.columns = how == HKI_CONV_INPUT ? c.c : c.oc;
    c.depth = how == HKI_CONV_FILTER ? places : taps;
    c.strips = 1;
    c.chunk = c.depth;
    c.act = HKI_U_NONE;
    return c;
}

// As many strips as give every processor a block.
static void cut_strips(conv *c) {
    const int64_t steps = (c->depth + HKI_WIDTH - 1) / HKI_WIDTH;
    const int64_t tiles = tiles_of(c);
    int64_t strips = tiles > 0 ? BLOCKS / tiles : 1;
    strips = strips > steps / STRIP_STEPS ? steps / STRIP_STEPS : strips;
    if (strips <= 1)
        return;
    c->chunk = (int)((steps + strips - 1) / strips) * HKI_WIDTH;
    c->strips = (c->depth + c->chunk - 1) / c->chunk;
}

static bool fits(const hki_attr *a, const hk_shape *x, const hk_shape *y) {
    const double most = LONGEST;
    const double xs = (double)x->dim[0] * (double)x->dim[1] * (double)x->dim[2];
    const double ys = (double)y->dim[0] * (double)y->dim[1] * (double)y->dim[2];
    const double taps =
        (double)a->ksize[0] * a->ksize[1] * (double)(x->dim[3] + y->dim[3]);
    return xs < most && ys < most && taps < most && a->groups <= 256 * 128;
}

// Quicker than the two others: windows that step over so few places that every
// processor has one tile of y. It was tried with 32 channels of 3 x 3, and
// needs as much scratch memory for any number of images.
static bool is_best(const hki_kernel *k, hki_conv_way how, const hk_shape *x,
                    const hk_shape *y) {
    const conv c = conv_of(&k->desc.attr, x, y, HKI_CONV_FORWARD);
    const int64_t tiles =
        (int64_t)hki_blocks(c.rows, 64) * hki_blocks(c.columns, 64);
    return hki_conv_tensor_cores(k) && how != HKI_CONV_INPUT &&
           (c.g.sh > 1 || c.g.sw > 1) && c.g.groups == 1 &&
           c.c >= MANY_CHANNELS && c.depth <= MOST_TAPS &&
           tiles <= HKI_PROCESSORS;
}

// By run where that is best, or a kernel for few channels where that is, or the
// library, or such a kernel all the same, or else by run.
static hk_status make(hki_kernel *k, hki_conv_way how, const hk_shape *x,
                      const hk_shape *y, hki_cuda_run run) {
    static void (*const direct[])(hki_kernel *, bool) = {
        hki_conv_make_direct, hki_conv_make_direct_input,
        hki_conv_make_direct_filter};
    if (!hki_is_f32(&k->desc.in[0]) || !fits(&k->desc.attr, x, y))
        return HK_OK;
    const bool others = !is_best(k, how, x, y);
    if (others)
        direct[how](k, true);
    if (others && k->run == NULL)
        HKI_TRY(hki_conv_make_library(k, how, x, y));
    if (others && k->run == NULL)
        direct[how](k, false);
    if (k->run != NULL)
        return HK_OK;
    k->run = run;
    k->note = "own";
    return HK_OK;
}

// ---- conv2d -----------------------------------------------------------------

// y = act(conv(x, w) + b)
static hk_status run_conv2d(const hki_cuda_call *call) {
    const hki_kernel_desc *const d = &call->k->desc;
    conv c = conv_of(&d->attr, &d->in[HKI_CONV_X].shape, &d->out[0].shape,
                     HKI_CONV_FORWARD);
    if (hki_elements(&d->out[0]) == 0)
        return HK_OK;
    c.image = (const float *)call->in[HKI_CONV_X];
    c.other = (const float *)call->in[HKI_CONV_W];
    c.bias = (const float *)call->in[HKI_CONV_B];
    c.out = (float *)call->out[0];
    c.act = d->attr.act;
    launch<HKI_CONV_FORWARD>(&c, hki_conv_tensor_cores(call->k));
    return HK_OK;
}

hk_status hki_cuda_make_conv2d(hki_kernel *k) {
    return make(k, HKI_CONV_FORWARD, &k->desc.in[HKI_CONV_X].shape,
                &k->desc.out[0].shape, run_conv2d);
}

// ---- conv2d_grad_input ------------------------------------------------------

static hk_status run_grad_input(const hki_cuda_call *call) {
    const hki_kernel_desc *const d = &call->k->desc;
    conv c = conv_of(&d->attr, &d->out[0].shape, &d->in[HKI_CONV_DX_DZ].shape,
                     HKI_CONV_INPUT);
    if (hki_elements(&d->out[0]) == 0)
        return HK_OK;
    c.image = (const float *)call->in[HKI_CONV_DX_DZ];
    c.other = (const float *)call->in[HKI_CONV_DX_W];
    c.out = (float *)call->out[0];
    launch<HKI_CONV_INPUT>(&c, hki_conv_tensor_cores(call->k));
    return HK_OK;
}

hk_status hki_cuda_make_conv2d_grad_input(hki_kernel *k) {
    return make(k, HKI_CONV_INPUT, &k->desc.out[0].shape,
                &k->desc.in[HKI_CONV_DX_DZ].shape, run_grad_input);
}

// ---- conv2d_grad_filter -----------------------------------------------------

static conv grad_filter_of(const hki_kernel_desc *d) {
    conv c = conv_of(&d->attr, &d->in[HKI_CONV_DW_X].shape,
                     &d->in[HKI_CONV_DW_DZ].shape, HKI_CONV_FILTER);
    c.rows += d->attr.mode != 0;
    cut_strips(&c);
    return c;
}

static hk_status run_grad_filter(const hki_cuda_call *call) {
    conv c = grad_filter_of(&call->k->desc);
    c.image = (const float *)call->in[HKI_CONV_DW_X];
    c.other = (const float *)call->in[HKI_CONV_DW_DZ];
    c.out = (float *)call->out[HKI_CONV_DW_DW];
    if (call->k->desc.attr.mode != 0)
        c.db = (float *)call->out[HKI_CONV_DW_DB];
    c.parts = (float *)call->scratch;
    if (c.rows > 0 && c.columns > 0)
        launch<HKI_CONV_FILTER>(&c, hki_conv_tensor_cores(call->k));
    return HK_OK;
}

static size_t parts_bytes(const conv *c) {
    return c->strips > 1 ? (size_t)((int64_t)c->strips * c->rows * c->g.oc) *
                               sizeof(float)
                         : 0;
}

hk_status hki_cuda_make_conv2d_grad_filter(hki_kernel *k) {
    const hki_kernel_desc *const d = &k->desc;
    const conv c = grad_filter_of(d);
    k->scratch_bytes = parts_bytes(&c);
    return make(k, HKI_CONV_FILTER, &d->in[HKI_CONV_DW_X].shape,
                &d->in[HKI_CONV_DW_DZ].shape, run_grad_filter);
}

// ---- db alone ---------------------------------------------------------------
//
// The filter's gradient without taps: what is left is the row of ones.

static conv db_of(const hki_kernel_desc *d) {
    conv c = conv_of(&d->attr, &d->in[HKI_CONV_DW_X].shape,
                     &d->in[HKI_CONV_DW_DZ].shape, HKI_CONV_FILTER);
    c.c = 0;
    c.rows = 1;
    cut_strips(&c);
    return c;
}

size_t hki_conv_db_scratch(const hki_kernel *k) {
    const conv c = db_of(&k->desc);
    return parts_bytes(&c);
}

void hki_conv_db(const hki_kernel *k, const float *dz, float *db,
                 void *scratch) {
    conv c = db_of(&k->desc);
    c.image = c.other = dz;
    c.db = db;
    c.parts = (float *)scratch;
    launch<HKI_CONV_FILTER>(&c, hki_conv_tensor_cores(k));
}
