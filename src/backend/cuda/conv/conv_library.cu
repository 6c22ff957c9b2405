// conv_library.cu - convolutions by a library.
//
// It wants filters ordered by output channel, which is a transposition, and as
// much padding on one side of an image as on the other: where there is more,
// the image gets the rest as a border of zeros. Bias, function and db are put
// around it.
#include "backend/cuda/conv/conv.h"

// ---- around the library -----------------------------------------------------

#define TURN 32
#define TURN_LINES (HKI_THREADS / TURN)

// to [columns, rows] = from [rows, columns] transposed, by squares
HKI_KERNEL void turn(const float *from, float *to, int rows, int columns) {
    __shared__ float square[TURN][TURN + 1];
    const int lane = (int)threadIdx.x % TURN, line = (int)threadIdx.x / TURN;
    const int row = (int)blockIdx.x * TURN, column = (int)blockIdx.y * TURN;
    for (int i = line; i < TURN; i += TURN_LINES)
        if (row + i < rows && column + lane < columns)
            square[i][lane] =
                from[(int64_t)(row + i) * columns + column + lane];
    __syncthreads();
    for (int i = line; i < TURN; i += TURN_LINES)
        if (column + i < columns && row + lane < rows)
            to[(int64_t)(column + i) * rows + row + lane] = square[lane][i];
}

static void launch_turn(const float *from, float *to, int rows, int columns) {
    HKI_LAUNCH_MEETING(turn,
                       dim3(hki_blocks(rows, TURN), hki_blocks(columns, TURN)),
                       HKI_THREADS, from, to, rows, columns);
}

// Rows and columns that an image gets, beside what the library pads.
typedef struct border {
    int top, bottom, left, right;
} border;

static bool has_border(const border *b) {
    return b->top + b->bottom + b->left + b->right > 0;
}

// to [n, height, width, c] = x [n, h, w, c] inside of zeros
HKI_KERNEL void widen(const float *x, float *to, int h, int w, int c,
                      border b) {
    const int width = w + b.left + b.right;
    const hki_pixel p = hki_pixel_of(h + b.top + b.bottom, width, c);
    if (!p.mine)
        return;
    const int row = p.row - b.top, column = p.column - b.left;
    const bool inside = row >= 0 && row < h && column >= 0 && column < w;
    to[p.at] =
        inside ? x[(((int64_t)p.image * h + row) * w + column) * c + p.channel]
               : 0;
}

// The inside again.
HKI_KERNEL void narrow(const float *from, float *x, int h, int w, int c,
                       border b) {
    const int height = h + b.top + b.bottom, width = w + b.left + b.right;
    const hki_pixel p = hki_pixel_of(h, w, c);
    if (!p.mine)
        return;
    const int64_t line = (int64_t)p.image * height + p.row + b.top;
    x[p.at] = from[(line * width + p.column + b.left) * c + p.channel];
}

// y = act(y + bias)
HKI_KERNEL void finish(float *y, const float *bias, int h, int w, int c,
                       int act) {
    const hki_pixel p = hki_pixel_of(h, w, c);
    if (p.mine)
        y[p.at] =
            hki_act_of(act, y[p.at] + (bias != NULL ? bias[p.channel] : 0));
}

// ---- a call -----------------------------------------------------------------

// What the library is asked, and what lies where in the scratch memory: the
// filters as it wants them, the image with its border, its own, db's.
typedef struct library_call {
    hki_images g;
    border b;
    hki_conv d;
    size_t image_at, own_at, db_at, bytes;
} library_call;

// The smaller one of two opposite paddings is the library's.
static int split_pad(const int32_t pad[2], int *before, int *after) {
    const int both = pad[0] < pad[1] ? pad[0] : pad[1];
    *before = pad[0] - both;
    *after = pad[1] - both;
    return both;
}

static void describe(library_call *l, const hki_attr *a, hki_conv_way how,
                     hk_precision precision) {
    hki_conv *const d = &l->d;
    d->way = how;
    d->top = split_pad(&a->pad[0], &l->b.top, &l->b.bottom);
    d->left = split_pad(&a->pad[2], &l->b.left, &l->b.right);
    d->n = l->g.n, d->c = l->g.c;
    d->h = l->g.h + l->b.top + l->b.bottom;
    d->w = l->g.w + l->b.left + l->b.right;
    d->oh = l->g.oh, d->ow = l->g.ow, d->oc = l->g.oc;
    d->kh = l->g.kh, d->kw = l->g.kw, d->sh = l->g.sh, d->sw = l->g.sw;
    d->dh = l->g.dh, d->dw = l->g.dw, d->groups = l->g.groups;
    d->precision = precision;
}

static int taps_of(const library_call *l) {
    return l->g.kh * l->g.kw * (l->g.c / l->g.groups);
}

static size_t room(int64_t floats) {
    return ((size_t)floats * sizeof(float) + 255) / 256 * 256;
}

static void lay_out(library_call *l, const hki_kernel *k) {
    const int64_t image = (int64_t)l->d.n * l->d.h * l->d.w * l->d.c;
    const bool db = l->d.way == HKI_CONV_FILTER && k->desc.attr.mode != 0;
    const size_t own = k->conv != NULL ? hki_conv_scratch(k->conv) : 0;
    l->image_at = room((int64_t)taps_of(l) * l->g.oc);
    l->own_at = l->image_at + (has_border(&l->b) ? room(image) : 0);
    l->db_at = l->own_at + (own + 255) / 256 * 256;
    l->bytes = l->db_at + (db ? hki_conv_db_scratch(k) : 0);
}

static library_call library_call_of(const hki_kernel *k, hki_conv_way how,
                                    const hk_shape *x, const hk_shape *y) {
    library_call l = {};
    l.g = hki_images_of(&k->desc.attr, x, y);
    describe(&l, &k->desc.attr, how, k->device->precision);
    lay_out(&l, k);
    return l;
}

static float *at(const hki_cuda_call *c, size_t offset) {
    return (float *)((char *)c->scratch + offset);
}

static dim3 pixel_blocks(int n, int h, int w, int c) {
    return hki_row_blocks((int64_t)n * h, (int64_t)w * c);
}

// x, or x with its border.
static const float *bordered(const hki_cuda_call *c, const library_call *l,
                             const float *x) {
    const hki_conv *const d = &l->d;
    if (!has_border(&l->b))
        return x;
    HKI_LAUNCH(widen, pixel_blocks(d->n, d->h, d->w, d->c),
               hki_row_threads((int64_t)d->w * d->c), x, at(c, l->image_at),
               l->g.h, l->g.w, l->g.c, l->b);
    return at(c, l->image_at);
}

static hk_status run_forward(const hki_cuda_call *c) {
    const hki_kernel_desc *const k = &c->k->desc;
    const library_call l = library_call_of(
        c->k, HKI_CONV_FORWARD, &k->in[HKI_CONV_X].shape, &k->out[0].shape);
    const float *const bias = (const float *)c->in[HKI_CONV_B];
    float *const y = (float *)c->out[0], *const w = at(c, 0);
    launch_turn((const float *)c->in[HKI_CONV_W], w, taps_of(&l), l.g.oc);
    HKI_TRY(hki_conv_run(c->k->conv,
                         bordered(c, &l, (const float *)c->in[HKI_CONV_X]), w,
                         y, at(c, l.own_at)));
    if (bias != NULL || k->attr.act != HKI_U_NONE)
        HKI_LAUNCH(finish, pixel_blocks(l.g.n, l.g.oh, l.g.ow, l.g.oc),
                   hki_row_threads((int64_t)l.g.ow * l.g.oc), y, bias, l.g.oh,
                   l.g.ow, l.g.oc, (int)k->attr.act);
    return HK_OK;
}

static hk_status run_input(const hki_cuda_call *c) {
    const hki_kernel_desc *const k = &c->k->desc;
    const library_call l = library_call_of(
        c->k, HKI_CONV_INPUT, &k->out[0].shape, &k->in[HKI_CONV_DX_DZ].shape);
    float *const dx = (float *)c->out[0], *const w = at(c, 0);
    float *const to = has_border(&l.b) ? at(c, l.image_at) : dx;
    launch_turn((const float *)c->in[HKI_CONV_DX_W], w, taps_of(&l), l.g.oc);
    HKI_TRY(hki_conv_run(c->k->conv, (const float *)c->in[HKI_CONV_DX_DZ], w,
                         to, at(c, l.own_at)));
    if (to != dx)
        HKI_LAUNCH(narrow, pixel_blocks(l.g.n, l.g.h, l.g.w, l.g.c),
                   hki_row_threads((int64_t)l.g.w * l.g.c), (const float *)to,
                   dx, l.g.h, l.g.w, l.g.c, l.b);
    return HK_OK;
}

static hk_status run_filter(const hki_cuda_call *c) {
    const hki_kernel_desc *const k = &c->k->desc;
    const library_call l =
        library_call_of(c->k, HKI_CONV_FILTER, &k->in[HKI_CONV_DW_X].shape,
                        &k->in[HKI_CONV_DW_DZ].shape);
    const float *const dz = (const float *)c->in[HKI_CONV_DW_DZ];
    float *const dw = at(c, 0);
    HKI_TRY(hki_conv_run(c->k->conv,
                         bordered(c, &l, (const float *)c->in[HKI_CONV_DW_X]),
                         dz, dw, at(c, l.own_at)));
    launch_turn(dw, (float *)c->out[HKI_CONV_DW_DW], l.g.oc, taps_of(&l));
    if (k->attr.mode != 0 && c->out[HKI_CONV_DW_DB] != NULL)
        hki_conv_db(c->k, dz, (float *)c->out[HKI_CONV_DW_DB], at(c, l.db_at));
    return HK_OK;
}

// Few channels leave tensor cores idle, unless they are many groups.
static bool worth_it(const hki_images *g) {
    return g->groups > 1 || g->c >= 4;
}

hk_status hki_conv_make_library(hki_kernel *k, hki_conv_way how,
                                const hk_shape *x, const hk_shape *y) {
    static const hki_cuda_run runs[] = {run_forward, run_input, run_filter};
    library_call l = library_call_of(k, how, x, y);
    if (!worth_it(&l.g) || !hki_images_fit(x) || !hki_images_fit(y) ||
        taps_of(&l) > 1 << 20)
        return HK_OK;
    HKI_TRY(hki_conv_create(k->device->card, &l.d, &k->conv));
    if (k->conv == NULL)
        return HK_OK;
    lay_out(&l, k);
    k->run = runs[how];
    k->scratch_bytes = l.bytes;
    k->note = "cudnn";
    return HK_OK;
}
