// format.c - the memory format of images, chosen per region.
//
// A region is a set of 4-D values tied together by operators that want their
// images in one format. The backend names the format that pays for a region's
// convolutions; a reorder goes in wherever a value leaves its region.
#include "graph/plan.h"

typedef struct regions {
    const hk_graph *g;
    const hki_backend *be;
    const hki_device *dev;
    uint32_t *parent;   // union-find over (call, output)
    bool *bad;          // by root: some value cannot be blocked
    hki_format *format; // by root
} regions;

static uint32_t node_index(const hk_node *x) {
    return x->call->id * HKI_MAX_OUT + (uint32_t)x->index;
}

static uint32_t find(regions *r, uint32_t i) {
    while (r->parent[i] != i) {
        r->parent[i] = r->parent[r->parent[i]];
        i = r->parent[i];
    }
    return i;
}

static void join(regions *r, const hk_node *a, const hk_node *b) {
    const uint32_t x = find(r, node_index(a)), y = find(r, node_index(b));
    r->parent[y] = x;
    r->bad[x] = r->bad[x] || r->bad[y];
}

// Which arguments of a call are images: bits of inputs, bits of outputs.
static void image_args(const hki_call *c, uint32_t *in, uint32_t *out) {
    *in = *out = 0;
    switch (c->op->code) {
    case HKI_OP_conv2d:
    case HKI_OP_conv2d_grad_input:
    case HKI_OP_avg_pool:
    case HKI_OP_avg_pool_grad:
        *in = 1, *out = 1;
        break;
    case HKI_OP_conv2d_grad_filter:
        *in = 3;
        break;
    case HKI_OP_max_pool:
        *in = 1, *out = 3;
        break;
    case HKI_OP_max_pool_grad:
        *in = 7, *out = 1;
        break;
    case HKI_OP_global_avg_pool:
        *in = 1;
        break;
    case HKI_OP_global_avg_pool_grad:
        *out = 1;
        break;
    case HKI_OP_batch_norm:
    case HKI_OP_affine:
        *in = 1 | 8, *out = 1;
        break;
    case HKI_OP_batch_norm_grad:
        *in = 1 | 2 | 32 | 64, *out = 1 | 8;
        break;
    case HKI_OP_unary:
        *in = 1, *out = 1;
        break;
    case HKI_OP_unary_grad:
        *in = 7, *out = 1;
        break;
    case HKI_OP_act_bias_grad:
        *in = 3, *out = 1;
        break;
    case HKI_OP_binary:
        if (hk_shape_equal(c->in[0]->shape, c->in[1]->shape))
            *in = 3, *out = 1;
        break;
    default:
        break;
    }
    if (c->n_out > 0 && *in & 1 && c->in[0]->shape.rank != 4)
        *in = *out = 0;
    if (*in == 0 && *out == 1 && c->out[0].shape.rank != 4)
        *out = 0;
}

static bool is_conv(const hki_call *c) {
    return c->op->code == HKI_OP_conv2d ||
           c->op->code == HKI_OP_conv2d_grad_input ||
           c->op->code == HKI_OP_conv2d_grad_filter;
}

static bool blockable(const hk_node *x) {
    return x->shape.rank == 4 && x->shape.dim[3] > 0 &&
           x->shape.dim[3] % 16 == 0 &&
           (x->dtype == HK_F32 || x->dtype == HK_U8);
}

// Ties the images of one call together. A convolution may read or write an
// image that cannot be blocked (three colours); any other operator with one
// keeps its whole region plain.
static void tie(regions *r, const hki_call *c) {
    uint32_t in, out;
    image_args(c, &in, &out);
    if ((in | out) == 0 || !r->be->takes_format(r->dev, c->op->code))
        return;
    const hk_node *first = NULL;
    bool odd = false;
    for (int i = 0; i < c->n_in + c->n_out; i++) {
        const bool is_in = i < c->n_in;
        const hk_node *x = is_in ? c->in[i] : &c->out[i - c->n_in];
        const uint32_t bit = is_in ? in >> i : out >> (i - c->n_in);
        if (!(bit & 1) || x == NULL)
            continue;
        if (!blockable(x)) {
            odd = true;
            continue;
        }
        if (first != NULL)
            join(r, first, x);
        else
            first = x;
    }
    if (odd && !is_conv(c) && first != NULL)
        r->bad[find(r, node_index(first))] = true;
}

static hki_conv_info conv_info(const hki_call *c) {
    const hk_shape *w = c->op->code == HKI_OP_conv2d_grad_filter
                            ? &c->out[0].shape
                            : &c->in[1]->shape;
    hki_conv_info k = {.channels_in = w->dim[2] * c->attr.groups,
                       .channels_out = w->dim[3],
                       .groups = c->attr.groups};
    for (int i = 0; i < 2; i++) {
        k.ksize[i] = (int32_t)w->dim[i];
        k.stride[i] = c->attr.stride[i];
        k.dilation[i] = c->attr.dilation[i];
    }
    return k;
}

// Asks the backend once per region, with the region's forward convolutions.
static hk_status choose(regions *r) {
    hki_conv_info *convs;
    HKI_TRY(hki_alloc_array(r->g->n_calls, sizeof *convs, &convs));
    for (const hki_call *c = r->g->first; c != NULL; c = c->next) {
        if (c->op->code != HKI_OP_conv2d || !blockable(&c->out[0]))
            continue;
        const uint32_t root = find(r, node_index(&c->out[0]));
        if (r->format[root] != HKI_PLAIN || r->bad[root])
            continue;
        size_t n = 0;
        for (const hki_call *d = c; d != NULL; d = d->next)
            if (d->op->code == HKI_OP_conv2d && blockable(&d->out[0]) &&
                find(r, node_index(&d->out[0])) == root)
                convs[n++] = conv_info(d);
        r->format[root] = r->be->image_format(r->dev, convs, n);
    }
    hki_free(convs);
    return HK_OK;
}

// ---- rebuilding with reorders ---------------------------------------------

static hk_status in_format(hki_rebuild *r, hk_node *x, hki_format f,
                           hk_node **out) {
    *out = x;
    if (x == NULL || x->format == f)
        return HK_OK;
    const hki_attr a = {.mode = (int32_t)f}; // keeps targets apart
    hki_call *c;
    HKI_TRY(hki_rebuild_call(r, HKI_OP_reorder, &a, &x, 1, NULL, &c));
    c->out[0].format = f;
    *out = &c->out[0];
    return HK_OK;
}

static hki_format region_format(regions *rs, const hk_node *x) {
    return blockable(x) ? rs->format[find(rs, node_index(x))] : HKI_PLAIN;
}

static hk_status copy_formatted(hki_rebuild *r, regions *rs,
                                const hki_call *c) {
    uint32_t in_bits, out_bits;
    image_args(c, &in_bits, &out_bits);
    if (!rs->be->takes_format(rs->dev, c->op->code))
        in_bits = out_bits = 0;
    hk_node *in[HKI_MAX_IN];
    for (int i = 0; i < c->n_in; i++) {
        const hk_node *old = c->in[i];
        const hki_format f = old != NULL && (in_bits >> i & 1)
                                 ? region_format(rs, old)
                                 : HKI_PLAIN;
        HKI_TRY(in_format(r, hki_mapped(r, old), f, &in[i]));
    }
    hki_call *now;
    HKI_TRY(
        hki_append(r->dst, c->op->code, &c->attr, in, c->n_in, c->name, &now));
    for (int o = 0; o < c->n_out; o++) {
        if (out_bits >> o & 1)
            now->out[o].format = region_format(rs, &c->out[o]);
        hki_map(r, &c->out[o], &now->out[o]);
    }
    if (c->op->code == HKI_OP_variable)
        r->dst->vars.data[c->attr.index].node = &now->out[0];
    else if (c->op->code == HKI_OP_input)
        r->dst->inputs.data[c->attr.index].node = &now->out[0];
    else if (c->op->code == HKI_OP_scalar)
        r->dst->scalars.data[c->attr.index].node = &now->out[0];
    return HK_OK;
}

static hk_status plain_root(hki_rebuild *r, const hk_node *old, hk_node **out) {
    return in_format(r, hki_mapped(r, old), HKI_PLAIN, out);
}

static hk_status plain_roots(hki_rebuild *r) {
    const hk_graph *s = r->src;
    hk_graph *d = r->dst;
    if (s->loss != NULL)
        HKI_TRY(plain_root(r, s->loss, &d->loss));
    for (size_t i = 0; i < s->outputs.n; i++) {
        hki_named o;
        HKI_TRY(HKI_VEC_ROOM(d->outputs));
        HKI_TRY(hki_arena_strdup(&d->arena, s->outputs.data[i].name, &o.name));
        HKI_TRY(plain_root(r, s->outputs.data[i].node, &o.node));
        d->outputs.data[d->outputs.n++] = o;
    }
    for (size_t i = 0; i < s->updates.n; i++) {
        HKI_TRY(HKI_VEC_ROOM(d->updates));
        d->updates.data[d->updates.n++] = hki_mapped(r, s->updates.data[i]);
    }
    for (size_t i = 0; i < s->grads.n; i++) {
        hki_var_grad vg = {.var = s->grads.data[i].var};
        HKI_TRY(HKI_VEC_ROOM(d->grads));
        HKI_TRY(plain_root(r, s->grads.data[i].node, &vg.node));
        d->grads.data[d->grads.n++] = vg;
    }
    return HK_OK;
}

static hk_status build(hki_rebuild *r, regions *rs) {
    r->table_size = 64;
    while (r->table_size < (size_t)r->src->n_calls * 4)
        r->table_size *= 2;
    HKI_TRY(hki_zalloc_array((size_t)r->src->n_calls * HKI_MAX_OUT,
                             sizeof *r->map, &r->map));
    HKI_TRY(hki_zalloc_array(r->table_size, sizeof *r->table, &r->table));
    for (const hki_call *c = r->src->first; c != NULL; c = c->next)
        HKI_TRY(copy_formatted(r, rs, c));
    return plain_roots(r);
}

static hk_status find_regions(regions *rs) {
    const size_t n = (size_t)rs->g->n_calls * HKI_MAX_OUT;
    HKI_TRY(hki_alloc_array(n, sizeof *rs->parent, &rs->parent));
    HKI_TRY(hki_zalloc_array(n, sizeof *rs->bad, &rs->bad));
    HKI_TRY(hki_zalloc_array(n, sizeof *rs->format, &rs->format));
    for (size_t i = 0; i < n; i++)
        rs->parent[i] = (uint32_t)i;
    for (const hki_call *c = rs->g->first; c != NULL; c = c->next)
        tie(rs, c);
    return choose(rs);
}

hk_status hki_pass_format(const hk_graph *src, const hki_backend *be,
                          const hki_device *dev, hk_graph **out) {
    regions rs = {.g = src, .be = be, .dev = dev};
    hki_rebuild r = {.src = src, .batch = -1};
    hk_status s = find_regions(&rs);
    if (s == HK_OK)
        s = hki_graph_like(src, &r.dst);
    if (s == HK_OK)
        s = build(&r, &rs);
    hki_free(rs.parent);
    hki_free(rs.bad);
    hki_free(rs.format);
    hki_free(r.map);
    hki_free(r.table);
    if (s != HK_OK) {
        hk_graph_destroy(r.dst);
        return s;
    }
    *out = r.dst;
    return HK_OK;
}
