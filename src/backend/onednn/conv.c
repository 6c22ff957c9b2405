// conv.c - convolutions and their gradients, by oneDNN.
//
// Weights are plain [kh, kw, in, out] in the model's flat vector and are
// reordered inside the op at every run (0.3 % of a step). Winograd where it
// was measured to win: blocked images, 3 x 3, stride 1, at least 32 channels.
#include "backend/onednn/cpu.h"

static bool fits_winograd(const hki_dnnl_conv *c) {
    return c->kh == 3 && c->kw == 3 && c->stride[0] == 1 && c->stride[1] == 1 &&
           c->dilation[0] == 1 && c->dilation[1] == 1 && c->groups == 1 &&
           c->ic >= 32 && c->oc >= 32;
}

static hki_dnnl_conv describe(const hki_attr *a, hki_conv_kind kind,
                              const hki_tensor_desc *x,
                              const hki_tensor_desc *w,
                              const hki_tensor_desc *y) {
    hki_dnnl_conv c = {
        .kind = kind,
        .n = x->shape.dim[0],
        .ih = x->shape.dim[1],
        .iw = x->shape.dim[2],
        .ic = x->shape.dim[3],
        .oh = y->shape.dim[1],
        .ow = y->shape.dim[2],
        .oc = y->shape.dim[3],
        .kh = w->shape.dim[0],
        .kw = w->shape.dim[1],
        .stride = {a->stride[0], a->stride[1]},
        .dilation = {a->dilation[0], a->dilation[1]},
        .pad = {a->pad[0], a->pad[1], a->pad[2], a->pad[3]},
        .groups = a->groups > 0 ? a->groups : 1,
        .x_format = x->format,
        .y_format = y->format,
    };
    c.bf16 = a->dtype == HK_BF16;
    c.winograd = !c.bf16 && fits_winograd(&c);
    return c;
}

static bool usable(const hki_kernel_desc *d, const hki_tensor_desc *x,
                   const hki_tensor_desc *w, const hki_tensor_desc *y) {
    return hki_cpu_factors(&d->in[0], &d->in[1]) && hki_cpu_f32(&d->out[0]) &&
           hki_cpu_elements(x) > 0 && hki_cpu_elements(w) > 0 &&
           hki_cpu_elements(y) > 0;
}

// The library throws (and so ends the process) over some absurd sizes that
// are valid; those are left to the portable kernel.
static bool sane(const hki_dnnl_conv *c) {
    const int64_t most = 4096;
    bool ok = c->kh <= most && c->kw <= most;
    for (int i = 0; i < 2; i++)
        ok = ok && c->stride[i] <= most && c->dilation[i] <= most;
    for (int i = 0; i < 4; i++)
        ok = ok && c->pad[i] <= most;
    return ok;
}

// Makes op number i; leaves it NULL where the library has nothing.
static hk_status create_op(hki_kernel *k, const hki_dnnl_conv *c, int i) {
    if (!sane(c))
        return HK_OK;
    const hk_status s = hki_dnnl_conv_create(k->device->dnnl, c, &k->op[i]);
    if (s == HK_E_NO_MEMORY)
        return s;
    if (s != HK_OK)
        return HK_OK;
    k->scratch_bytes = HKI_MAX(k->scratch_bytes, hki_dnnl_op_scratch(k->op[i]));
    k->note = hki_dnnl_op_impl(k->op[i]);
    return HK_OK;
}

static hk_status run_op(const hki_cpu_call *c, int i, void *x, void *w,
                        void *bias, void *y) {
    void *const ptr[HKI_DNNL_PTRS] = {x, w, bias, y};
    return hki_dnnl_run(c->k->op[i], c->state[i], c->stream, ptr,
                        c->run.scratch);
}

// ---- forward ---------------------------------------------------------------
//
// Op 0 fuses relu behind the sum, but turns NaN into 0. So that a NaN stays
// visible, op 1 and a relu of our own are used whenever something that is not
// finite goes in. Other activations always follow op 1, and so does the relu
// of bfloat16 factors, which would all have to be looked at.

static bool all_finite(const hki_cpu_call *c, int input) {
    const hki_kernel *k = c->k;
    const int64_t n = hki_cpu_elements(&k->desc.in[input]);
    double *partial = c->run.scratch;
    const hki_fullred_args args = {.x = c->in[input], .partial = partial};
    const int parts = hki_cpu_split_parts(k, n, 1, 64);
    hki_cpu_split(k, n, 1, 64, k->device->reduce->full_zeros, &args);
    for (int i = 0; i < parts; i++)
        if (partial[i] != 0.0)
            return false;
    return true;
}

static hk_status run_fused(const hki_cpu_call *c) {
    return run_op(c, 0, c->in[HKI_CONV_X], c->in[HKI_CONV_W], c->in[HKI_CONV_B],
                  c->out[0]);
}

static hk_status run_apart(const hki_cpu_call *c) {
    const hki_kernel *k = c->k;
    const hki_unary_args args = {.x = c->out[0], .out = c->out[0]};
    HKI_TRY(run_op(c, 1, c->in[HKI_CONV_X], c->in[HKI_CONV_W],
                   c->in[HKI_CONV_B], c->out[0]));
    hki_cpu_split(k, hki_cpu_elements(&k->desc.out[0]), 4, 64,
                  k->device->ewise->unary[k->desc.attr.act], &args);
    return HK_OK;
}

static hk_status run_relu(const hki_cpu_call *c) {
    const bool finite = all_finite(c, 0) && all_finite(c, 1) &&
                        (c->in[HKI_CONV_B] == NULL || all_finite(c, 2));
    return finite ? run_fused(c) : run_apart(c);
}

hk_status hki_make_conv2d(hki_kernel *k) {
    const hki_kernel_desc *d = &k->desc;
    const int act = d->attr.act;
    if (!usable(d, &d->in[HKI_CONV_X], &d->in[HKI_CONV_W], &d->out[0]))
        return HK_OK;
    hki_dnnl_conv c = describe(&d->attr, HKI_CONV_FORWARD, &d->in[HKI_CONV_X],
                               &d->in[HKI_CONV_W], &d->out[0]);
    c.bias = hki_cpu_present(d, HKI_CONV_B);
    k->scratch_bytes =
        HKI_CPU_ALIGN((size_t)k->device->threads * sizeof(double));
    if (act != HKI_U_NONE)
        HKI_TRY(create_op(k, &c, 1));
    c.relu = act == HKI_U_RELU && !c.bf16;
    if (act == HKI_U_NONE || c.relu)
        HKI_TRY(create_op(k, &c, 0));
    if (act == HKI_U_NONE)
        k->run = k->op[0] != NULL ? run_fused : NULL;
    else if (k->op[1] != NULL)
        k->run = k->op[0] != NULL ? run_relu : run_apart;
    return HK_OK;
}

// ---- gradients -------------------------------------------------------------

static hk_status run_grad_input(const hki_cpu_call *c) {
    return run_op(c, 0, c->out[0], c->in[HKI_CONV_DX_W], NULL,
                  c->in[HKI_CONV_DX_DZ]);
}

hk_status hki_make_conv2d_grad_input(hki_kernel *k) {
    const hki_kernel_desc *d = &k->desc;
    if (!usable(d, &d->out[0], &d->in[HKI_CONV_DX_W], &d->in[HKI_CONV_DX_DZ]))
        return HK_OK;
    const hki_dnnl_conv c =
        describe(&d->attr, HKI_CONV_INPUT, &d->out[0], &d->in[HKI_CONV_DX_W],
                 &d->in[HKI_CONV_DX_DZ]);
    HKI_TRY(create_op(k, &c, 0));
    if (k->op[0] != NULL)
        k->run = run_grad_input;
    return HK_OK;
}

// The bias gradient nobody asked for goes to scratch.
static hk_status run_grad_filter(const hki_cpu_call *c) {
    void *db = c->out[HKI_CONV_DW_DB];
    if (db == NULL && c->k->desc.n_out > 1)
        db = (char *)c->run.scratch + hki_dnnl_op_scratch(c->k->op[0]);
    return run_op(c, 0, c->in[HKI_CONV_DW_X], c->out[HKI_CONV_DW_DW], db,
                  c->in[HKI_CONV_DW_DZ]);
}

hk_status hki_make_conv2d_grad_filter(hki_kernel *k) {
    const hki_kernel_desc *d = &k->desc;
    if (!usable(d, &d->in[HKI_CONV_DW_X], &d->out[HKI_CONV_DW_DW],
                &d->in[HKI_CONV_DW_DZ]))
        return HK_OK;
    hki_dnnl_conv c = describe(&d->attr, HKI_CONV_FILTER, &d->in[HKI_CONV_DW_X],
                               &d->out[HKI_CONV_DW_DW], &d->in[HKI_CONV_DW_DZ]);
    c.bias = d->n_out > 1;
    HKI_TRY(create_op(k, &c, 0));
    if (k->op[0] == NULL)
        return HK_OK;
    if (c.bias)
        k->scratch_bytes += HKI_CPU_ALIGN((size_t)c.oc * sizeof(float));
    k->run = run_grad_filter;
    return HK_OK;
}
