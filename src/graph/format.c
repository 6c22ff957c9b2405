// format.c - the memory format of images, chosen per region.
//
// A region is a set of 4-D values tied together by operators whose table says
// that they are images, which want to be in one format. The backend names the
// format that pays for a region's convolutions; a reorder goes in wherever a
// value leaves its region.
#include "graph/plan.h"

// bad and format are read at a region's root (find) only; joining two regions
// keeps them there.
typedef struct regions {
    const hk_graph *g;
    const hki_backend *be;
    const hki_device *dev;
    uint32_t *parent;   // union-find over (call, output)
    bool *bad;          // by root: some value cannot be blocked
    hki_format *format; // by root
} regions;

static uint32_t find(regions *r, const hk_node *x) {
    uint32_t i = (uint32_t)hki_node_index(x);
    while (r->parent[i] != i) {
        r->parent[i] = r->parent[r->parent[i]];
        i = r->parent[i];
    }
    return i;
}

static void join(regions *r, const hk_node *a, const hk_node *b) {
    const uint32_t x = find(r, a), y = find(r, b);
    r->parent[y] = x;
    r->bad[x] = r->bad[x] || r->bad[y];
}

// Which arguments of a call are images: bits of inputs, bits of outputs.
typedef struct images {
    uint32_t in, out;
} images;

// As the operator's table says, for images of four dimensions. Element-wise
// operators take them only where nothing is broadcast.
static images images_of(const hki_call *c) {
    const images none = {0}, all = {c->op->images_in, c->op->images_out};
    const hk_node *const first = all.in != 0    ? c->in[__builtin_ctz(all.in)]
                                 : all.out != 0 ? &c->out[0]
                                                : NULL;
    if (first == NULL || first->shape.rank != 4)
        return none;
    for (int i = 0; c->op->flags & HKI_OP_IS_ELEMENTWISE && i < c->n_in; i++)
        if (!hk_shape_equal(c->in[i]->shape, c->out[0].shape))
            return none;
    return all;
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
    const images im = images_of(c);
    const hk_node *first = NULL;
    bool odd = false;
    for (int i = 0; i < c->n_in + c->n_out; i++) {
        const bool is_in = i < c->n_in;
        const hk_node *x = is_in ? c->in[i] : &c->out[i - c->n_in];
        const uint32_t bit = is_in ? im.in >> i : im.out >> (i - c->n_in);
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
    if (odd && !(c->op->flags & HKI_OP_MIXES_FORMATS) && first != NULL)
        r->bad[find(r, first)] = true;
}

static hki_conv_info conv_info(const hki_call *c) {
    const hk_shape *w = &c->in[HKI_CONV_W]->shape;
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
        const uint32_t root = find(r, &c->out[0]);
        if (r->format[root] != HKI_PLAIN || r->bad[root])
            continue;
        size_t n = 0;
        for (const hki_call *d = c; d != NULL; d = d->next)
            if (d->op->code == HKI_OP_conv2d && blockable(&d->out[0]) &&
                find(r, &d->out[0]) == root)
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
    return blockable(x) ? rs->format[find(rs, x)] : HKI_PLAIN;
}

static hk_status copy_formatted(hki_rebuild *r, const hki_call *c) {
    regions *const rs = r->opt->user;
    const images im = images_of(c);
    hk_node *in[HKI_MAX_IN];
    for (int i = 0; i < c->n_in; i++) {
        const hk_node *old = c->in[i];
        const bool image = old != NULL && (im.in >> i & 1);
        HKI_TRY(in_format(r, hki_mapped(r, old),
                          image ? region_format(rs, old) : HKI_PLAIN, &in[i]));
    }
    hki_call *now;
    HKI_TRY(
        hki_append(r->dst, c->op->code, &c->attr, in, c->n_in, c->name, &now));
    for (int o = 0; o < c->n_out; o++)
        if (im.out >> o & 1)
            now->out[o].format = region_format(rs, &c->out[o]);
    hki_map_call(r, c, now);
    return HK_OK;
}

static hk_status plain_root(hki_rebuild *r, const hk_node *old, hk_node **out) {
    return in_format(r, hki_mapped(r, old), HKI_PLAIN, out);
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
    const hki_rebuild_options o = {
        .batch = -1, .copy = copy_formatted, .root = plain_root, .user = &rs};
    hk_status s = find_regions(&rs);
    if (s == HK_OK)
        s = hki_rebuild_graph(src, &o, out);
    hki_free(rs.parent);
    hki_free(rs.bad);
    hki_free(rs.format);
    return s;
}
