// softmax.c - softmax, its logarithm, and the cross-entropy losses.
#include "backend/onednn/cpu.h"

static hk_status run_softmax(const hki_cpu_call *c) {
    const hki_kernel *k = c->k;
    const hki_softmax_kernels *fn = k->device->softmax;
    const hki_tiles t = hki_cpu_tiles(&k->desc.in[0]);
    const hki_opcode op = k->desc.op;
    const bool grad =
        op == HKI_OP_softmax_grad || op == HKI_OP_log_softmax_grad;
    const hki_softmax_args p = {.n = t.width,
                                .x = grad ? NULL : c->in[0],
                                .dy = grad ? c->in[HKI_SOFTMAX_GRAD_DY] : NULL,
                                .y = grad ? c->in[HKI_SOFTMAX_GRAD_Y] : NULL,
                                .out = c->out[0]};
    const hki_team_fn run = op == HKI_OP_softmax        ? fn->softmax
                            : op == HKI_OP_softmax_grad ? fn->softmax_grad
                            : op == HKI_OP_log_softmax  ? fn->log_softmax
                                                        : fn->log_softmax_grad;
    hki_cpu_split(k, t.rows, 4 * t.width, 1, run, &p);
    return HK_OK;
}

hk_status hki_make_softmax(hki_kernel *k) {
    const hki_tensor_desc *x = &k->desc.in[0];
    if (hki_cpu_f32(x) && x->format == HKI_PLAIN && hki_cpu_elements(x) > 0)
        k->run = run_softmax;
    return HK_OK;
}

static hk_status run_sparse_xent(const hki_cpu_call *c) {
    const hki_kernel *k = c->k;
    const hki_tiles t = hki_cpu_tiles(&k->desc.in[HKI_XENT_LOGITS]);
    const int parts = hki_cpu_split_parts(k, t.rows, 4 * t.width, 1);
    int64_t *bad = c->run.scratch;
    for (int i = 0; i < parts; i++)
        bad[i] = -1;
    const hki_softmax_args p = {.n = t.width,
                                .x = c->in[HKI_XENT_LOGITS],
                                .labels = c->in[HKI_XENT_LABELS],
                                .labels64 =
                                    k->desc.in[HKI_XENT_LABELS].dtype == HK_I64,
                                .loss = c->out[HKI_XENT_LOSS],
                                .out = c->out[HKI_XENT_BACKPROP],
                                .bad = bad};
    hki_cpu_split(k, t.rows, 4 * t.width, 1, k->device->softmax->sparse_xent,
                  &p);
    for (int i = 0; i < parts; i++)
        if (bad[i] >= 0)
            return hki_cpu_run_portable(c); // says what is wrong
    return HK_OK;
}

hk_status hki_make_sparse_softmax_xent(hki_kernel *k) {
    const hki_kernel_desc *d = &k->desc;
    if (!hki_cpu_f32(&d->in[HKI_XENT_LOGITS]) ||
        hki_cpu_elements(&d->in[HKI_XENT_LOGITS]) == 0)
        return HK_OK;
    const size_t own =
        HKI_CPU_ALIGN((size_t)k->device->threads * sizeof(int64_t));
    k->scratch_bytes = HKI_MAX(own, hki_cpu_portable_scratch(d));
    k->run = run_sparse_xent;
    return HK_OK;
}

static hk_status run_xent(const hki_cpu_call *c) {
    const hki_kernel *k = c->k;
    const hki_tiles t = hki_cpu_tiles(&k->desc.in[HKI_XENT_LOGITS]);
    const hki_softmax_args p = {.n = t.width,
                                .x = c->in[HKI_XENT_LOGITS],
                                .labels = c->in[HKI_XENT_LABELS],
                                .loss = c->out[HKI_XENT_LOSS],
                                .out = c->out[HKI_XENT_BACKPROP]};
    hki_cpu_split(k, t.rows, 4 * t.width, 1, k->device->softmax->xent, &p);
    return HK_OK;
}

hk_status hki_make_softmax_xent(hki_kernel *k) {
    const hki_kernel_desc *d = &k->desc;
    if (hki_cpu_f32(&d->in[HKI_XENT_LOGITS]) &&
        hki_cpu_f32(&d->in[HKI_XENT_LABELS]) &&
        hki_cpu_elements(&d->in[HKI_XENT_LOGITS]) > 0)
        k->run = run_xent;
    return HK_OK;
}
