// ewise.c - element-wise operators. Images in one blocked format are flat
// arrays here: blocks are whole, so nothing is padded.
#include "backend/onednn/cpu.h"

#define LINE 64 // elements: parts begin at whole cache lines, also of bytes

static bool same_format(const hki_kernel_desc *d) {
    for (int i = 0; i < d->n_in; i++)
        if (d->in[i].dtype != 0 && d->in[i].format != d->out[0].format)
            return false;
    return true;
}

// ---- one input -------------------------------------------------------------

static hk_status run_unary(const hki_cpu_call *c) {
    const hki_kernel *k = c->k;
    const hki_attr *a = &k->desc.attr;
    const hki_unary_args args = {.x = c->in[0],
                                 .out = c->out[0],
                                 .alpha = (float)a->alpha,
                                 .beta = (float)a->beta};
    // A transcendental function costs about ten simple ones.
    hki_cpu_split(k, hki_cpu_elements(&k->desc.out[0]), 4, LINE,
                  k->device->ewise->unary[a->mode], &args);
    return HK_OK;
}

hk_status hki_make_unary(hki_kernel *k) {
    const hki_kernel_desc *d = &k->desc;
    const int mode = d->attr.mode;
    if (hki_cpu_f32(&d->in[0]) && same_format(d) && mode >= 0 &&
        mode < HKI_U_COUNT && k->device->ewise->unary[mode] != NULL)
        k->run = run_unary;
    return HK_OK;
}

static hk_status run_unary_grad(const hki_cpu_call *c) {
    const hki_kernel *k = c->k;
    const hki_attr *a = &k->desc.attr;
    const hki_unary_args args = {.dy = c->in[HKI_UNARY_GRAD_DY],
                                 .x = c->in[HKI_UNARY_GRAD_X],
                                 .y = c->in[HKI_UNARY_GRAD_Y],
                                 .out = c->out[0],
                                 .alpha = (float)a->alpha,
                                 .beta = (float)a->beta};
    hki_cpu_split(k, hki_cpu_elements(&k->desc.out[0]), 4, LINE,
                  k->device->ewise->unary_grad[a->mode], &args);
    return HK_OK;
}

hk_status hki_make_unary_grad(hki_kernel *k) {
    const hki_kernel_desc *d = &k->desc;
    const int mode = d->attr.mode;
    if (d->n_in == 3 && hki_cpu_f32(&d->in[HKI_UNARY_GRAD_DY]) &&
        hki_cpu_f32(&d->in[HKI_UNARY_GRAD_X]) &&
        hki_cpu_f32(&d->in[HKI_UNARY_GRAD_Y]) && same_format(d) && mode >= 0 &&
        mode < HKI_U_COUNT && k->device->ewise->unary_grad[mode] != NULL)
        k->run = run_unary_grad;
    return HK_OK;
}

// ---- two inputs ------------------------------------------------------------

// Steps of a tensor through the result's dimensions; 0 where it is repeated.
static void steps_of(const hk_shape *from, const hk_shape *to,
                     int64_t step[HK_MAX_RANK]) {
    const int lead = to->rank - from->rank;
    int64_t n = 1;
    for (int i = to->rank - 1; i >= 0; i--) {
        const int64_t d = i < lead ? 1 : from->dim[i - lead];
        step[i] = d == 1 ? 0 : n;
        n *= d;
    }
}

// Merges dimensions that both inputs walk through without a jump, so that
// equal shapes become one row and a bias over the last axis becomes two
// dimensions.
static void merge(const hk_shape *shape_a, const hk_shape *shape_b,
                  const hk_shape *y, hki_binary_args *p) {
    int64_t a[HK_MAX_RANK], b[HK_MAX_RANK];
    steps_of(shape_a, y, a);
    steps_of(shape_b, y, b);
    int n = 0;
    for (int i = 0; i < y->rank; i++) {
        if (y->dim[i] == 1)
            continue;
        if (n > 0 && p->stride_a[n - 1] == a[i] * y->dim[i] &&
            p->stride_b[n - 1] == b[i] * y->dim[i]) {
            p->dim[n - 1] *= y->dim[i];
        } else {
            n++;
            p->dim[n - 1] = y->dim[i];
        }
        p->stride_a[n - 1] = a[i];
        p->stride_b[n - 1] = b[i];
    }
    // The last dimension is the row; a scalar is a row of one.
    p->row = n > 0 ? p->dim[n - 1] : 1;
    p->step_a = n > 0 ? (int)p->stride_a[n - 1] : 1;
    p->step_b = n > 0 ? (int)p->stride_b[n - 1] : 1;
    p->rank = n > 0 ? n - 1 : 0;
}

static hk_status run_binary(const hki_cpu_call *c) {
    const hki_kernel *k = c->k;
    hki_binary_args args = *(const hki_binary_args *)k->plan;
    args.a = c->in[0];
    args.b = c->in[1];
    args.y = c->out[0];
    hki_cpu_split(k, hki_cpu_elements(&k->desc.out[0]), 1, LINE,
                  k->device->ewise->binary[k->desc.attr.mode], &args);
    return HK_OK;
}

hk_status hki_make_binary(hki_kernel *k) {
    const hki_kernel_desc *d = &k->desc;
    const int mode = d->attr.mode;
    if (!hki_cpu_f32(&d->in[0]) || !hki_cpu_f32(&d->in[1]) || mode < 0 ||
        mode >= HKI_B_COUNT || k->device->ewise->binary[mode] == NULL)
        return HK_OK;
    const bool plain = d->in[0].format == HKI_PLAIN &&
                       d->in[1].format == HKI_PLAIN &&
                       d->out[0].format == HKI_PLAIN;
    const bool equal = hk_shape_equal(d->in[0].shape, d->in[1].shape);
    if (!plain && !(equal && same_format(d)))
        return HK_OK;
    HKI_TRY(hki_cpu_plan(k, sizeof(hki_binary_args)));
    merge(&d->in[0].shape, &d->in[1].shape, &d->out[0].shape, k->plan);
    k->run = run_binary;
    return HK_OK;
}

// broadcast_to: the product of the input and one number, which is the share
// of an element where the operator undoes a mean.
typedef struct broadcast_plan {
    hki_binary_args args;
    float share;
} broadcast_plan;

static hk_status run_broadcast(const hki_cpu_call *c) {
    const hki_kernel *k = c->k;
    const broadcast_plan *p = k->plan;
    hki_binary_args args = p->args;
    args.a = c->in[0];
    args.b = &p->share;
    args.y = c->out[0];
    hki_cpu_split(k, hki_cpu_elements(&k->desc.out[0]), 1, LINE,
                  k->device->ewise->binary[HKI_B_MUL], &args);
    return HK_OK;
}

hk_status hki_make_broadcast_to(hki_kernel *k) {
    const hki_tensor_desc *x = &k->desc.in[0], *y = &k->desc.out[0];
    const int64_t from = hki_cpu_elements(x), to = hki_cpu_elements(y);
    const hk_shape scalar = {0};
    if (!hki_cpu_f32(x) || x->format != HKI_PLAIN || from == 0 || to == 0)
        return HK_OK;
    HKI_TRY(hki_cpu_plan(k, sizeof(broadcast_plan)));
    broadcast_plan *p = k->plan;
    const bool mean = k->desc.attr.mode == HKI_R_MEAN;
    p->share = mean ? (float)((double)from / (double)to) : 1.0f;
    merge(&x->shape, &scalar, &y->shape, &p->args);
    k->run = run_broadcast;
    return HK_OK;
}

// ---- dropout, moving averages, casts ---------------------------------------

static hk_status run_dropout(const hki_cpu_call *c) {
    const hki_kernel *k = c->k;
    const double rate = k->desc.in[HKI_DROPOUT_RATE].dtype == HK_F64
                            ? *(const double *)c->in[HKI_DROPOUT_RATE]
                            : (double)*(const float *)c->in[HKI_DROPOUT_RATE];
    if (!(rate >= 0.0 && rate < 1.0))
        return hki_cpu_run_portable(c); // says what is wrong
    const uint64_t stream = k->desc.attr.stream;
    const hki_dropout_args args = {
        .x = c->in[HKI_DROPOUT_X],
        .y = c->out[0],
        .key = {(uint32_t)c->run.seed, (uint32_t)(c->run.seed >> 32)},
        .stream = (uint32_t)stream,
        .step = (uint32_t)c->run.step,
        .threshold = rate * 0x1p32,
        .scale = (float)(1.0 / (1.0 - rate)),
    };
    hki_cpu_split(k, hki_cpu_elements(&k->desc.out[0]), 8, LINE,
                  k->device->ewise->dropout, &args);
    return HK_OK;
}

hk_status hki_make_dropout(hki_kernel *k) {
    const hki_kernel_desc *d = &k->desc;
    const hk_dtype rate = d->in[HKI_DROPOUT_RATE].dtype;
    if (!hki_cpu_f32(&d->in[HKI_DROPOUT_X]) ||
        d->in[HKI_DROPOUT_X].format != HKI_PLAIN ||
        (rate != HK_F32 && rate != HK_F64))
        return HK_OK;
    k->scratch_bytes = hki_cpu_portable_scratch(d);
    k->run = run_dropout;
    return HK_OK;
}

static hk_status run_moving(const hki_cpu_call *c) {
    const hki_kernel *k = c->k;
    if (c->out[0] != c->in[HKI_MOVING_VAR])
        return hki_cpu_run_portable(c);
    const hki_moving_args args = {
        .var = c->out[0],
        .value = c->in[HKI_MOVING_VALUE],
        .take = (float)(1.0 - k->desc.attr.alpha),
    };
    hki_cpu_split(k, hki_cpu_elements(&k->desc.out[0]), 1, LINE,
                  k->device->ewise->moving, &args);
    return HK_OK;
}

hk_status hki_make_assign_moving(hki_kernel *k) {
    const hki_kernel_desc *d = &k->desc;
    if (!hki_cpu_f32(&d->in[HKI_MOVING_VAR]) ||
        !hki_cpu_f32(&d->in[HKI_MOVING_VALUE]))
        return HK_OK;
    k->scratch_bytes = hki_cpu_portable_scratch(d);
    k->run = run_moving;
    return HK_OK;
}

// The casts that data and metrics use, bytes, bools and integers to float; and
// that of factors, float to bfloat16.
typedef struct cast_args {
    const void *x;
    float *y;
    hk_dtype from;
} cast_args;

static void cast_part(const void *args, int64_t begin, int64_t end, int part) {
    const cast_args *p = args;
    (void)part;
    switch (p->from) {
    case HK_U8:
    case HK_BOOL:
        for (int64_t i = begin; i < end; i++)
            p->y[i] = (float)((const uint8_t *)p->x)[i];
        break;
    case HK_I32:
        for (int64_t i = begin; i < end; i++)
            p->y[i] = (float)((const int32_t *)p->x)[i];
        break;
    default:
        for (int64_t i = begin; i < end; i++)
            p->y[i] = (float)((const int64_t *)p->x)[i];
        break;
    }
}

static hk_status run_cast(const hki_cpu_call *c) {
    const hki_kernel *k = c->k;
    const cast_args args = {
        .x = c->in[0], .y = c->out[0], .from = k->desc.in[0].dtype};
    hki_cpu_split(k, hki_cpu_elements(&k->desc.out[0]), 1, LINE, cast_part,
                  &args);
    return HK_OK;
}

static hk_status run_round(const hki_cpu_call *c) {
    const hki_kernel *k = c->k;
    const hki_round_args args = {.x = c->in[0], .y = c->out[0]};
    hki_cpu_split(k, hki_cpu_elements(&k->desc.out[0]), 1, LINE,
                  k->device->ewise->round, &args);
    return HK_OK;
}

hk_status hki_make_cast(hki_kernel *k) {
    const hki_kernel_desc *d = &k->desc;
    const hk_dtype from = d->in[0].dtype;
    if (from == HK_F32 && d->out[0].dtype == HK_BF16 && same_format(d))
        k->run = run_round;
    if (d->out[0].dtype == HK_F32 && same_format(d) &&
        (from == HK_U8 || from == HK_BOOL || from == HK_I32 || from == HK_I64))
        k->run = run_cast;
    return HK_OK;
}
