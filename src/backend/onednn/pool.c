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

// One call of a kernel: its arguments but for the pointers, and its items.
typedef struct pool_plan {
    hki_pool_args args;
    hki_team_fn fn;
    int64_t items, cost;
} pool_plan;

static hk_status run_pool(const hki_cpu_call *c) {
    const pool_plan *const plan = c->k->plan;
    hki_pool_args p = plan->args;
    p.x = p.dy = c->in[0];
    p.out = c->out[0];
    if (c->k->desc.op == HKI_OP_max_pool)
        p.index = c->out[HKI_POOL_INDEX];
    if (c->k->desc.op == HKI_OP_max_pool_grad) {
        p.index_in = c->in[HKI_POOL_GRAD_INDEX];
        p.y = c->k->desc.attr.act == HKI_U_RELU ? c->in[HKI_POOL_GRAD_Y] : NULL;
    }
    hki_cpu_split(c->k, plan->items, plan->cost, 1, plan->fn, &p);
    return HK_OK;
}

// Items are the rows of the result (by_row), or tiles.
static hk_status plan_pool(hki_kernel *k, const hki_tensor_desc *x,
                           const hki_tensor_desc *y, hki_team_fn fn,
                           bool by_row) {
    HKI_TRY(hki_cpu_plan(k, sizeof(pool_plan)));
    pool_plan *const plan = k->plan;
    hki_pool_args *const p = &plan->args;
    *p = geometry(&k->desc.attr, x, y);
    const int64_t row = p->ow * p->width * p->kh * p->kw; // elements touched
    plan->fn = fn;
    plan->items = by_row ? p->tiles * p->oh : p->tiles;
    plan->cost = by_row ? row : row * p->oh;
    k->run = run_pool;
    return HK_OK;
}

// Float images of one format, none of them empty.
static bool usable(const hki_tensor_desc *x, const hki_tensor_desc *y) {
    return hki_cpu_f32(x) && hki_cpu_f32(y) && x->format == y->format &&
           hki_cpu_elements(x) > 0 && hki_cpu_elements(y) > 0;
}

// ---- maximum ---------------------------------------------------------------

hk_status hki_make_max_pool(hki_kernel *k) {
    const hki_kernel_desc *d = &k->desc;
    if (!usable(&d->in[0], &d->out[HKI_POOL_Y]) ||
        (d->n_out > 1 &&
         d->out[HKI_POOL_INDEX].format != d->out[HKI_POOL_Y].format))
        return HK_OK;
    return plan_pool(k, &d->in[0], &d->out[HKI_POOL_Y], k->device->pool->max,
                     true);
}

// Windows that cover the image without overlap.
static bool is_exact(const hki_pool_args *p) {
    return p->kh == p->sh && p->kw == p->sw && p->top == 0 && p->left == 0 &&
           p->oh * p->sh == p->ih && p->ow * p->sw == p->iw;
}

hk_status hki_make_max_pool_grad(hki_kernel *k) {
    const hki_kernel_desc *d = &k->desc;
    const hki_tensor_desc *dy = &d->in[HKI_POOL_GRAD_DY];
    if (!usable(&d->out[0], dy) ||
        d->in[HKI_POOL_GRAD_INDEX].format != dy->format ||
        (hki_cpu_present(d, HKI_POOL_GRAD_Y) &&
         d->in[HKI_POOL_GRAD_Y].format != dy->format))
        return HK_OK;
    const hki_pool_args p = geometry(&d->attr, &d->out[0], dy);
    HKI_TRY(
        plan_pool(k, &d->out[0], dy, k->device->pool->max_grad, is_exact(&p)));
    ((pool_plan *)k->plan)->args.exact = is_exact(&p);
    return HK_OK;
}

// ---- average ---------------------------------------------------------------

hk_status hki_make_avg_pool(hki_kernel *k) {
    const hki_tensor_desc *x = &k->desc.in[0], *y = &k->desc.out[0];
    return usable(x, y) ? plan_pool(k, x, y, k->device->pool->avg, true)
                        : HK_OK;
}

hk_status hki_make_avg_pool_grad(hki_kernel *k) {
    const hki_tensor_desc *dy = &k->desc.in[0], *x = &k->desc.out[0];
    return usable(x, dy) ? plan_pool(k, x, dy, k->device->pool->avg_grad, false)
                         : HK_OK;
}

// ---- global average --------------------------------------------------------

// x is the image, y one number a channel.
static hk_status make_global(hki_kernel *k, const hki_tensor_desc *x,
                             const hki_tensor_desc *y, hki_team_fn fn) {
    if (!hki_cpu_f32(x) || !hki_cpu_f32(y) || hki_cpu_elements(x) == 0)
        return HK_OK;
    HKI_TRY(plan_pool(k, x, y, fn, false));
    pool_plan *const plan = k->plan;
    plan->cost = plan->args.ih * plan->args.iw * plan->args.width;
    return HK_OK;
}

hk_status hki_make_global_avg_pool(hki_kernel *k) {
    return make_global(k, &k->desc.in[0], &k->desc.out[0],
                       k->device->pool->global);
}

hk_status hki_make_global_avg_pool_grad(hki_kernel *k) {
    return make_global(k, &k->desc.out[0], &k->desc.in[0],
                       k->device->pool->global_grad);
}
