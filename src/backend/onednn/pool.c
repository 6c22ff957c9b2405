// pool.c - pooling operators on plain and blocked images.
#include "backend/onednn/cpu.h"

// Geometry of the images x [N,H,W,C] and y of a pooling call.
static hki_pool_args geometry(const hki_attr *a, const hki_tensor_desc *x,
                              const hki_tensor_desc *y) {
    const hki_tiles t = hki_cpu_tiles(x);
    const int64_t n = x->shape.dim[0];
    const bool plain = x->format == HKI_PLAIN;
    return (hki_pool_args){
        .tiles = plain ? n : t.tiles,
        .width = t.width,
        .ih = x->shape.dim[1],
        .iw = x->shape.dim[2],
        .oh = y->shape.rank == 4 ? y->shape.dim[1] : 1,
        .ow = y->shape.rank == 4 ? y->shape.dim[2] : 1,
        .kh = a->ksize[0],
        .kw = a->ksize[1],
        .sh = a->stride[0],
        .sw = a->stride[1],
        .top = a->pad[0],
        .left = a->pad[2],
    };
}

static hk_status plan_pool(hki_kernel *k, const hki_tensor_desc *x,
                           const hki_tensor_desc *y, hki_cpu_run run) {
    HKI_TRY(hki_cpu_plan(k, sizeof(hki_pool_args)));
    *(hki_pool_args *)k->plan = geometry(&k->desc.attr, x, y);
    k->run = run;
    return HK_OK;
}

// Float images of one format, none of them empty.
static bool usable(const hki_tensor_desc *x, const hki_tensor_desc *y) {
    return hki_cpu_f32(x) && hki_cpu_f32(y) && x->format == y->format &&
           hki_cpu_elements(x) > 0 && hki_cpu_elements(y) > 0;
}

// Elements that one row of results touches.
static int64_t row_cost(const hki_pool_args *p) {
    return p->ow * p->width * p->kh * p->kw;
}

// ---- maximum ---------------------------------------------------------------

static hk_status run_max_pool(const hki_cpu_call *c) {
    hki_pool_args p = *(const hki_pool_args *)c->k->plan;
    p.x = c->in[0];
    p.out = c->out[HKI_POOL_Y];
    p.index = c->out[HKI_POOL_INDEX];
    hki_cpu_split(c->k, p.tiles * p.oh, row_cost(&p), 1,
                  c->k->device->pool->max, &p);
    return HK_OK;
}

hk_status hki_make_max_pool(hki_kernel *k) {
    const hki_kernel_desc *d = &k->desc;
    if (!usable(&d->in[0], &d->out[HKI_POOL_Y]) ||
        (d->n_out > 1 &&
         d->out[HKI_POOL_INDEX].format != d->out[HKI_POOL_Y].format))
        return HK_OK;
    return plan_pool(k, &d->in[0], &d->out[HKI_POOL_Y], run_max_pool);
}

static hk_status run_max_pool_grad(const hki_cpu_call *c) {
    hki_pool_args p = *(const hki_pool_args *)c->k->plan;
    p.dy = c->in[HKI_POOL_GRAD_DY];
    p.index_in = c->in[HKI_POOL_GRAD_INDEX];
    p.y = c->k->desc.attr.act == HKI_U_RELU ? c->in[HKI_POOL_GRAD_Y] : NULL;
    p.out = c->out[0];
    hki_cpu_split(c->k, p.exact ? p.tiles * p.oh : p.tiles,
                  p.exact ? row_cost(&p) : row_cost(&p) * p.oh, 1,
                  c->k->device->pool->max_grad, &p);
    return HK_OK;
}

hk_status hki_make_max_pool_grad(hki_kernel *k) {
    const hki_kernel_desc *d = &k->desc;
    if (!usable(&d->out[0], &d->in[HKI_POOL_GRAD_DY]) ||
        d->in[HKI_POOL_GRAD_INDEX].format != d->in[HKI_POOL_GRAD_DY].format ||
        (hki_cpu_present(d, HKI_POOL_GRAD_Y) &&
         d->in[HKI_POOL_GRAD_Y].format != d->in[HKI_POOL_GRAD_DY].format))
        return HK_OK;
    HKI_TRY(
        plan_pool(k, &d->out[0], &d->in[HKI_POOL_GRAD_DY], run_max_pool_grad));
    hki_pool_args *p = k->plan;
    p->exact = p->kh == p->sh && p->kw == p->sw && p->top == 0 &&
               p->left == 0 && p->oh * p->sh == p->ih && p->ow * p->sw == p->iw;
    return HK_OK;
}

// ---- average ---------------------------------------------------------------

static hk_status run_avg_pool(const hki_cpu_call *c) {
    hki_pool_args p = *(const hki_pool_args *)c->k->plan;
    p.x = c->in[0];
    p.out = c->out[0];
    hki_cpu_split(c->k, p.tiles * p.oh, row_cost(&p), 1,
                  c->k->device->pool->avg, &p);
    return HK_OK;
}

hk_status hki_make_avg_pool(hki_kernel *k) {
    const hki_kernel_desc *d = &k->desc;
    if (!usable(&d->in[0], &d->out[0]))
        return HK_OK;
    return plan_pool(k, &d->in[0], &d->out[0], run_avg_pool);
}

static hk_status run_avg_pool_grad(const hki_cpu_call *c) {
    hki_pool_args p = *(const hki_pool_args *)c->k->plan;
    p.dy = c->in[0];
    p.out = c->out[0];
    hki_cpu_split(c->k, p.tiles, row_cost(&p) * p.oh, 1,
                  c->k->device->pool->avg_grad, &p);
    return HK_OK;
}

hk_status hki_make_avg_pool_grad(hki_kernel *k) {
    const hki_kernel_desc *d = &k->desc;
    if (!usable(&d->out[0], &d->in[0]))
        return HK_OK;
    return plan_pool(k, &d->out[0], &d->in[0], run_avg_pool_grad);
}

// ---- global average --------------------------------------------------------

static hk_status run_global(const hki_cpu_call *c) {
    hki_pool_args p = *(const hki_pool_args *)c->k->plan;
    p.x = c->in[0];
    p.out = c->out[0];
    hki_cpu_split(c->k, p.tiles, p.ih * p.iw * p.width, 1,
                  c->k->device->pool->global, &p);
    return HK_OK;
}

hk_status hki_make_global_avg_pool(hki_kernel *k) {
    const hki_kernel_desc *d = &k->desc;
    if (!hki_cpu_f32(&d->in[0]) || hki_cpu_elements(&d->in[0]) == 0)
        return HK_OK;
    return plan_pool(k, &d->in[0], &d->out[0], run_global);
}

static hk_status run_global_grad(const hki_cpu_call *c) {
    hki_pool_args p = *(const hki_pool_args *)c->k->plan;
    p.dy = c->in[0];
    p.out = c->out[0];
    hki_cpu_split(c->k, p.tiles, p.ih * p.iw * p.width, 1,
                  c->k->device->pool->global_grad, &p);
    return HK_OK;
}

hk_status hki_make_global_avg_pool_grad(hki_kernel *k) {
    const hki_kernel_desc *d = &k->desc;
    if (!hki_cpu_f32(&d->in[0]) || hki_cpu_elements(&d->out[0]) == 0)
        return HK_OK;
    return plan_pool(k, &d->out[0], &d->in[0], run_global_grad);
}
