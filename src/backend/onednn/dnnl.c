// dnnl.c - oneDNN behind Hooke's own calls (C API of version 2).
//
// Layouts: images are described to the library in the layout that their bytes
// already have; weights live as [kh, kw, in, out] in the flat vector and are
// reordered into the layout the primitive likes, in scratch, at every run.
// Where the library has no good primitive for the images' layout they are
// reordered privately as well. What is chosen depends on shapes, ISA level and
// thread count only.
#include "backend/onednn/dnnl.h"
#include <dnnl.h>

#define MAX_STEPS 5
#define MAX_MEMS 16
#define MAX_STEP_ARGS 8

struct hki_dnnl {
    dnnl_engine_t engine;
    dnnl_primitive_attr_t attr; // user scratchpad, nothing else
};

struct hki_dnnl_stream {
    dnnl_stream_t stream;
};

typedef struct step {
    dnnl_primitive_t prim;
    int n_args;
    int arg[MAX_STEP_ARGS], mem[MAX_STEP_ARGS]; // DNNL_ARG_*, index of memory
} step;

typedef struct memory {
    dnnl_memory_desc_t md;
    int ptr;       // which of the caller's pointers; -1: in scratch
    size_t offset; // in scratch
} memory;

struct hki_dnnl_op {
    dnnl_engine_t engine; // the device's
    int n_steps, n_mems;
    step steps[MAX_STEPS];
    memory mems[MAX_MEMS];
    size_t scratch_bytes;
    char impl[64];
};

struct hki_dnnl_state {
    int n_mems;
    dnnl_memory_t mem[MAX_MEMS];
    void *handle[MAX_MEMS]; // what mem points at now
    dnnl_exec_arg_t args[MAX_STEPS][MAX_STEP_ARGS];
};

static hk_status check(dnnl_status_t s, const char *what) {
    switch (s) {
    case dnnl_success:
        return HK_OK;
    case dnnl_out_of_memory:
        return hki_fail(HK_E_NO_MEMORY, "oneDNN: %s: out of memory", what);
    case dnnl_unimplemented:
        return hki_fail(HK_E_UNSUPPORTED, "oneDNN: %s is not implemented",
                        what);
    default:
        return hki_fail(HK_E_BACKEND, "oneDNN: %s failed with status %d", what,
                        (int)s);
    }
}

// ---- engine and stream -----------------------------------------------------

void hki_dnnl_close(hki_dnnl *d) {
    if (d == NULL)
        return;
    if (d->attr != NULL)
        dnnl_primitive_attr_destroy(d->attr);
    if (d->engine != NULL)
        dnnl_engine_destroy(d->engine);
    hki_free(d);
}

static hk_status make_attr(dnnl_primitive_attr_t *out) {
    HKI_TRY(check(dnnl_primitive_attr_create(out), "attributes"));
    return check(dnnl_primitive_attr_set_scratchpad_mode(
                     *out, dnnl_scratchpad_mode_user),
                 "scratchpad mode");
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const char *hki_dnnl_version(void) {
    return "oneDNN " TEXT(DNNL_VERSION_MAJOR) "." TEXT(
        DNNL_VERSION_MINOR) "." TEXT(DNNL_VERSION_PATCH);
}

hk_status hki_dnnl_open(hki_dnnl **out) {
    hki_dnnl *d;
    HKI_TRY(hki_zalloc_array(1, sizeof *d, &d));
    hk_status s = check(dnnl_engine_create(&d->engine, dnnl_cpu, 0), "engine");
    if (s == HK_OK)
        s = make_attr(&d->attr);
    HKI_TRY_OR(s, hki_dnnl_close(d));
    *out = d;
    return HK_OK;
}

void hki_dnnl_stream_destroy(hki_dnnl_stream *s) {
    if (s == NULL)
        return;
    if (s->stream != NULL)
        dnnl_stream_destroy(s->stream);
    hki_free(s);
}

hk_status hki_dnnl_stream_create(const hki_dnnl *d, hki_dnnl_stream **out) {
    hki_dnnl_stream *s;
    HKI_TRY(hki_zalloc_array(1, sizeof *s, &s));
    HKI_TRY_OR(check(dnnl_stream_create(&s->stream, d->engine,
                                        dnnl_stream_default_flags),
                     "stream"),
               hki_dnnl_stream_destroy(s));
    *out = s;
    return HK_OK;
}

// ---- ops and their states --------------------------------------------------

void hki_dnnl_op_destroy(hki_dnnl_op *op) {
    if (op == NULL)
        return;
    for (int i = 0; i < op->n_steps; i++)
        if (op->steps[i].prim != NULL)
            dnnl_primitive_destroy(op->steps[i].prim);
    hki_free(op);
}

size_t hki_dnnl_op_scratch(const hki_dnnl_op *op) {
    return op->scratch_bytes;
}

const char *hki_dnnl_op_impl(const hki_dnnl_op *op) {
    return op->impl;
}

void hki_dnnl_state_destroy(hki_dnnl_state *s) {
    if (s == NULL)
        return;
    for (int i = 0; i < s->n_mems; i++)
        if (s->mem[i] != NULL)
            dnnl_memory_destroy(s->mem[i]);
    hki_free(s);
}

hk_status hki_dnnl_state_create(const hki_dnnl_op *op, hki_dnnl_state **out) {
    hki_dnnl_state *s;
    HKI_TRY(hki_zalloc_array(1, sizeof *s, &s));
    hk_status st = HK_OK;
    for (int i = 0; i < op->n_mems && st == HK_OK; i++) {
        st = check(dnnl_memory_create(&s->mem[i], &op->mems[i].md, op->engine,
                                      DNNL_MEMORY_NONE),
                   "memory object");
        s->n_mems = i + 1;
    }
    HKI_TRY_OR(st, hki_dnnl_state_destroy(s));
    for (int i = 0; i < op->n_steps; i++)
        for (int j = 0; j < op->steps[i].n_args; j++)
            s->args[i][j] = (dnnl_exec_arg_t){op->steps[i].arg[j],
                                              s->mem[op->steps[i].mem[j]]};
    *out = s;
    return HK_OK;
}

// Pointers rarely change from run to run, so most runs set none.
static hk_status bind(const hki_dnnl_op *op, hki_dnnl_state *s,
                      void *const ptr[HKI_DNNL_PTRS], void *scratch) {
    for (int i = 0; i < op->n_mems; i++) {
        const memory *m = &op->mems[i];
        void *p = m->ptr >= 0 ? ptr[m->ptr] : (char *)scratch + m->offset;
        if (p == s->handle[i])
            continue;
        s->handle[i] = NULL;
        HKI_TRY(
            check(dnnl_memory_set_data_handle(s->mem[i], p), "data handle"));
        s->handle[i] = p;
    }
    return HK_OK;
}

hk_status hki_dnnl_run(const hki_dnnl_op *op, hki_dnnl_state *s,
                       const hki_dnnl_stream *stream,
                       void *const ptr[HKI_DNNL_PTRS], void *scratch) {
    HKI_TRY(bind(op, s, ptr, scratch));
    for (int i = 0; i < op->n_steps; i++)
        HKI_TRY(check(dnnl_primitive_execute(op->steps[i].prim, stream->stream,
                                             op->steps[i].n_args, s->args[i]),
                      "execution"));
    return HK_OK;
}

// Adds a memory: the caller's pointer `ptr`, or scratch for -1.
static int add_memory(hki_dnnl_op *op, const dnnl_memory_desc_t *md, int ptr) {
    memory *m = &op->mems[op->n_mems];
    m->md = *md;
    m->ptr = ptr;
    if (ptr < 0) {
        m->offset = op->scratch_bytes;
        op->scratch_bytes += (dnnl_memory_desc_get_size(md) + 63) / 64 * 64;
    }
    return op->n_mems++;
}

static void add_arg(step *s, int arg, int mem) {
    s->arg[s->n_args] = arg;
    s->mem[s->n_args++] = mem;
}

// Appends the primitive of pd as the next step, with its scratchpad.
static hk_status add_step(hki_dnnl_op *op, const_dnnl_primitive_desc_t pd,
                          step **out) {
    step *s = &op->steps[op->n_steps];
    HKI_TRY(check(dnnl_primitive_create(&s->prim, pd), "primitive"));
    op->n_steps++;
    const dnnl_memory_desc_t *md =
        dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    if (md != NULL && dnnl_memory_desc_get_size(md) > 0)
        add_arg(s, DNNL_ARG_SCRATCHPAD, add_memory(op, md, -1));
    *out = s;
    return HK_OK;
}

static hk_status add_reorder(const hki_dnnl *d, hki_dnnl_op *op, int from,
                             int to) {
    dnnl_primitive_desc_t pd;
    HKI_TRY(check(dnnl_reorder_primitive_desc_create(
                      &pd, &op->mems[from].md, d->engine, &op->mems[to].md,
                      d->engine, d->attr),
                  "reorder"));
    step *s;
    const hk_status st = add_step(op, pd, &s);
    dnnl_primitive_desc_destroy(pd);
    HKI_TRY(st);
    add_arg(s, DNNL_ARG_FROM, from);
    add_arg(s, DNNL_ARG_TO, to);
    return HK_OK;
}

static const char *impl_name(const_dnnl_primitive_desc_t pd) {
    const char *name = NULL;
    if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0,
                                  (void *)&name) != dnnl_success ||
        name == NULL)
        return "";
    return name;
}

static void keep_impl(hki_dnnl_op *op, const_dnnl_primitive_desc_t pd) {
    const char *name = impl_name(pd);
    const size_t n = HKI_MIN(strlen(name), sizeof op->impl - 1);
    memcpy(op->impl, name, n);
    op->impl[n] = '\0';
}

// The library's plain loops are a thousand times slower than its compiled
// kernels, so they count as "none".
static bool is_reference(const_dnnl_primitive_desc_t pd) {
    return strncmp(impl_name(pd), "ref", 3) == 0;
}

// ---- products --------------------------------------------------------------

hk_status hki_dnnl_sgemm(bool trans_a, bool trans_b, int64_t m, int64_t n,
                         int64_t k, const float *a, int64_t lda, const float *b,
                         int64_t ldb, float *c, int64_t ldc) {
    return check(dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k,
                            1.0f, a, lda, b, ldb, 0.0f, c, ldc),
                 "sgemm");
}

static hk_status matrix_md(int64_t rows, int64_t cols, bool trans,
                           dnnl_data_type_t t, dnnl_memory_desc_t *out) {
    const dnnl_dims_t dims = {rows, cols};
    const dnnl_dims_t strides = {trans ? 1 : cols, trans ? rows : 1};
    return check(dnnl_memory_desc_init_by_strides(out, 2, dims, t, strides),
                 "matrix descriptor");
}

static hk_status matmul_build(const hki_dnnl *d, const hki_dnnl_matmul *m,
                              hki_dnnl_op *op) {
    dnnl_memory_desc_t a, b, c;
    const dnnl_data_type_t t = m->bf16 ? dnnl_bf16 : dnnl_f32;
    HKI_TRY(matrix_md(m->m, m->k, m->trans_a, t, &a));
    HKI_TRY(matrix_md(m->k, m->n, m->trans_b, t, &b));
    HKI_TRY(matrix_md(m->m, m->n, false, dnnl_f32, &c));
    dnnl_matmul_desc_t md;
    HKI_TRY(check(dnnl_matmul_desc_init(&md, &a, &b, NULL, &c),
                  "matmul descriptor"));
    dnnl_primitive_desc_t pd;
    HKI_TRY(
        check(dnnl_primitive_desc_create(&pd, &md, d->attr, d->engine, NULL),
              "matmul"));
    step *s = NULL;
    const hk_status st =
        is_reference(pd) ? HK_E_UNSUPPORTED : add_step(op, pd, &s);
    if (st == HK_OK) {
        keep_impl(op, pd);
        add_arg(s, DNNL_ARG_SRC, add_memory(op, &a, 0));
        add_arg(s, DNNL_ARG_WEIGHTS, add_memory(op, &b, 1));
        add_arg(s, DNNL_ARG_DST, add_memory(op, &c, 2));
    }
    dnnl_primitive_desc_destroy(pd);
    return st;
}

static hk_status op_create(const hki_dnnl *d, hki_dnnl_op **out) {
    HKI_TRY(hki_zalloc_array(1, sizeof **out, out));
    (*out)->engine = d->engine;
    return HK_OK;
}

hk_status hki_dnnl_matmul_create(const hki_dnnl *d, const hki_dnnl_matmul *m,
                                 hki_dnnl_op **out) {
    hki_dnnl_op *op;
    HKI_TRY(op_create(d, &op));
    HKI_TRY_OR(matmul_build(d, m, op), hki_dnnl_op_destroy(op));
    *out = op;
    return HK_OK;
}

// ---- convolutions ----------------------------------------------------------

// Which of x, w, bias, y is written, for each kind.
static const int conv_result[3] = {3, 0, 1};

// How the two images are shown to the library. `any` leaves it to the library
// and costs a private reorder.
typedef struct choice {
    dnnl_format_tag_t x, y;
    bool winograd;
} choice;

static bool is_any(dnnl_format_tag_t t) {
    return t == dnnl_format_tag_any;
}

static dnnl_format_tag_t tag_of(hki_format f) {
    return f == HKI_PLAIN       ? dnnl_nhwc
           : f == HKI_BLOCKED_8 ? dnnl_nChw8c
                                : dnnl_nChw16c;
}

// With as many channels as a block has, the blocked image is a plain one.
static bool is_plain(hki_format f, int64_t channels) {
    return f == HKI_PLAIN || channels == hki_format_block(f);
}

static bool is_block16(hki_format f, int64_t channels) {
    return f == HKI_BLOCKED_16 || (f == HKI_PLAIN && channels == 16);
}

// Candidates, best first (measured: bench/NOTES.md). Returns how many.
static int choices(const hki_dnnl_conv *c, choice out[8]) {
    int n = 0;
    const bool b16 =
        is_block16(c->x_format, c->ic) && is_block16(c->y_format, c->oc);
    if (c->winograd && b16)
        out[n++] = (choice){dnnl_nChw16c, dnnl_nChw16c, true};
    if (is_plain(c->x_format, c->ic) && is_plain(c->y_format, c->oc))
        out[n++] = (choice){dnnl_nhwc, dnnl_nhwc, false};
    if (b16)
        out[n++] = (choice){dnnl_nChw16c, dnnl_nChw16c, false};
    if (c->ic == 1 && c->y_format != HKI_PLAIN)
        out[n++] = (choice){dnnl_nchw, tag_of(c->y_format), false};
    out[n++] = (choice){tag_of(c->x_format), tag_of(c->y_format), false};
    if (c->y_format != HKI_PLAIN)
        out[n++] = (choice){dnnl_format_tag_any, tag_of(c->y_format), false};
    out[n++] = (choice){dnnl_format_tag_any, dnnl_format_tag_any, false};
    return n;
}

typedef struct conv_mds {
    dnnl_memory_desc_t x, y;         // as the library sees them
    dnnl_memory_desc_t x_own, y_own; // as the caller has them
    dnnl_memory_desc_t w_any, w_own, bias;
} conv_mds;

static hk_status image_md(const dnnl_dims_t dims, dnnl_data_type_t t,
                          dnnl_format_tag_t tag, dnnl_memory_desc_t *out) {
    return check(dnnl_memory_desc_init_by_tag(out, 4, dims, t, tag),
                 "image descriptor");
}

// Of x, w, bias and y (as hki_conv_kind counts): what is written is float32.
static dnnl_data_type_t type_of(const hki_dnnl_conv *c, int i) {
    return c->bf16 && i != conv_result[c->kind] ? dnnl_bf16 : dnnl_f32;
}

// Weights are [kh, kw, in / groups, out] in memory; the library counts
// (groups,) out, in, kh, kw.
static hk_status weight_mds(const hki_dnnl_conv *c, dnnl_data_type_t any,
                            conv_mds *m) {
    const int64_t ig = c->ic / c->groups, og = c->oc / c->groups;
    const int64_t row = ig * c->oc;
    const dnnl_dims_t one_dims = {og, ig, c->kh, c->kw};
    const dnnl_dims_t one_strides = {1, c->oc, c->kw * row, row};
    const dnnl_dims_t group_dims = {c->groups, og, ig, c->kh, c->kw};
    const dnnl_dims_t group_strides = {og, 1, c->oc, c->kw * row, row};
    const bool one = c->groups == 1;
    const int rank = one ? 4 : 5;
    const dnnl_dim_t *dims = one ? one_dims : group_dims;
    HKI_TRY(check(
        dnnl_memory_desc_init_by_strides(&m->w_own, rank, dims, type_of(c, 1),
                                         one ? one_strides : group_strides),
        "weight descriptor"));
    return check(dnnl_memory_desc_init_by_tag(&m->w_any, rank, dims, any,
                                              dnnl_format_tag_any),
                 "weight descriptor");
}

// widen: bfloat16 becomes float32 in private reorders.
static hk_status make_mds(const hki_dnnl_conv *c, const choice *ch, bool widen,
                          conv_mds *m) {
    const dnnl_dims_t xd = {c->n, c->ic, c->ih, c->iw};
    const dnnl_dims_t yd = {c->n, c->oc, c->oh, c->ow};
    const dnnl_data_type_t x = type_of(c, 0), w = type_of(c, 1),
                           y = type_of(c, 3);
    HKI_TRY(image_md(xd, widen ? dnnl_f32 : x, ch->x, &m->x));
    HKI_TRY(image_md(yd, widen ? dnnl_f32 : y, ch->y, &m->y));
    HKI_TRY(image_md(xd, x, is_any(ch->x) ? tag_of(c->x_format) : ch->x,
                     &m->x_own));
    HKI_TRY(image_md(yd, y, is_any(ch->y) ? tag_of(c->y_format) : ch->y,
                     &m->y_own));
    const dnnl_dims_t bias = {c->oc};
    HKI_TRY(
        check(dnnl_memory_desc_init_by_tag(&m->bias, 1, bias, dnnl_f32, dnnl_a),
              "bias descriptor"));
    return weight_mds(c, widen ? dnnl_f32 : w, m);
}

static dnnl_status_t conv_desc(const hki_dnnl_conv *c, bool winograd,
                               const conv_mds *m,
                               dnnl_convolution_desc_t *out) {
    const dnnl_alg_kind_t alg =
        winograd ? dnnl_convolution_winograd : dnnl_convolution_direct;
    const dnnl_dims_t stride = {c->stride[0], c->stride[1]};
    const dnnl_dims_t dilate = {c->dilation[0] - 1, c->dilation[1] - 1};
    const dnnl_dims_t before = {c->pad[0], c->pad[2]};
    const dnnl_dims_t after = {c->pad[1], c->pad[3]};
    const dnnl_memory_desc_t *bias = c->bias ? &m->bias : NULL;
    switch (c->kind) {
    case HKI_CONV_FORWARD:
        return dnnl_dilated_convolution_forward_desc_init(
            out, dnnl_forward_training, alg, &m->x, &m->w_any, bias, &m->y,
            stride, dilate, before, after);
    case HKI_CONV_INPUT:
        return dnnl_dilated_convolution_backward_data_desc_init(
            out, alg, &m->x, &m->w_any, &m->y, stride, dilate, before, after);
    case HKI_CONV_FILTER:
        return dnnl_dilated_convolution_backward_weights_desc_init(
            out, alg, &m->x, &m->w_any, bias, &m->y, stride, dilate, before,
            after);
    }
    return dnnl_invalid_arguments;
}

// Attributes with the activation fused behind the result.
static hk_status relu_attr(dnnl_primitive_attr_t *out) {
    dnnl_post_ops_t ops;
    HKI_TRY(make_attr(out));
    HKI_TRY(check(dnnl_post_ops_create(&ops), "post-ops"));
    dnnl_status_t s =
        dnnl_post_ops_append_eltwise(ops, 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f);
    if (s == dnnl_success)
        s = dnnl_primitive_attr_set_post_ops(*out, ops);
    dnnl_post_ops_destroy(ops);
    return check(s, "post-ops");
}

// The first implementation that is not the library's plain loops.
static hk_status find_conv(const hki_dnnl *d, const dnnl_convolution_desc_t *cd,
                           const_dnnl_primitive_attr_t attr,
                           dnnl_primitive_desc_t *out) {
    dnnl_primitive_desc_iterator_t it;
    HKI_TRY(check(
        dnnl_primitive_desc_iterator_create(&it, cd, attr, d->engine, NULL),
        "convolution"));
    dnnl_primitive_desc_t pd = NULL;
    do {
        pd = dnnl_primitive_desc_iterator_fetch(it);
        if (pd != NULL && !is_reference(pd))
            break;
        if (pd != NULL)
            dnnl_primitive_desc_destroy(pd);
        pd = NULL;
    } while (dnnl_primitive_desc_iterator_next(it) == dnnl_success);
    dnnl_primitive_desc_iterator_destroy(it);
    if (pd == NULL)
        return hki_fail(HK_E_UNSUPPORTED,
                        "oneDNN: no fast convolution for these layouts");
    *out = pd;
    return HK_OK;
}

// Memory of one tensor inside the op: the caller's, and beside it a private
// one where the primitive wants another layout. in: reordered before use.
static hk_status place(const hki_dnnl *d, hki_dnnl_op *op,
                       const dnnl_memory_desc_t *own,
                       const dnnl_memory_desc_t *wanted, int ptr, bool in,
                       int *user, int *used) {
    *user = *used = add_memory(op, own, ptr);
    if (dnnl_memory_desc_equal(own, wanted))
        return HK_OK;
    *used = add_memory(op, wanted, -1);
    return in ? add_reorder(d, op, *user, *used) : HK_OK;
}

// Argument numbers of x, w, bias, y for each kind.
static const int conv_args[3][4] = {
    {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST},
    {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DIFF_DST},
    {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_BIAS,
     DNNL_ARG_DIFF_DST},
};

static const dnnl_memory_desc_t *wanted_md(const_dnnl_primitive_desc_t pd,
                                           int arg) {
    return dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, arg);
}

static hk_status conv_steps(const hki_dnnl *d, const hki_dnnl_conv *c,
                            const conv_mds *m, const_dnnl_primitive_desc_t pd,
                            hki_dnnl_op *op) {
    const dnnl_memory_desc_t *own[4] = {&m->x_own, &m->w_own, &m->bias,
                                        &m->y_own};
    int user[4] = {0}, used[4] = {0};
    const int result = conv_result[c->kind];
    for (int i = 0; i < 4; i++)
        if (i != 2 || c->bias)
            HKI_TRY(place(d, op, own[i], wanted_md(pd, conv_args[c->kind][i]),
                          i, i != result, &user[i], &used[i]));
    step *s;
    HKI_TRY(add_step(op, pd, &s));
    for (int i = 0; i < 4; i++)
        if (i != 2 || c->bias)
            add_arg(s, conv_args[c->kind][i], used[i]);
    if (user[result] != used[result])
        HKI_TRY(add_reorder(d, op, used[result], user[result]));
    keep_impl(op, pd);
    return HK_OK;
}

static hk_status conv_try(const hki_dnnl *d, const hki_dnnl_conv *c,
                          const choice *ch, bool widen, hki_dnnl_op **out) {
    conv_mds m;
    dnnl_convolution_desc_t cd;
    HKI_TRY(make_mds(c, ch, widen, &m));
    HKI_TRY(
        check(conv_desc(c, ch->winograd, &m, &cd), "convolution descriptor"));
    dnnl_primitive_attr_t relu = NULL;
    dnnl_primitive_desc_t pd = NULL;
    hki_dnnl_op *op = NULL;
    hk_status s = c->relu ? relu_attr(&relu) : HK_OK;
    if (s == HK_OK)
        s = find_conv(d, &cd, c->relu ? relu : d->attr, &pd);
    if (s == HK_OK)
        s = op_create(d, &op);
    if (s == HK_OK)
        s = conv_steps(d, c, &m, pd, op);
    if (pd != NULL)
        dnnl_primitive_desc_destroy(pd);
    if (relu != NULL)
        dnnl_primitive_attr_destroy(relu);
    if (s == HK_OK)
        *out = op;
    else
        hki_dnnl_op_destroy(op);
    return s;
}

hk_status hki_dnnl_conv_create(const hki_dnnl *d, const hki_dnnl_conv *c,
                               hki_dnnl_op **out) {
    choice list[8];
    hk_status s = HK_E_UNSUPPORTED;
    const int n = choices(c, list);
    for (int i = 0; i < (c->bf16 ? 2 : 1) * n && s != HK_OK; i++) {
        s = conv_try(d, c, &list[i % n], i >= n, out);
        if (s == HK_E_NO_MEMORY)
            return s;
    }
    return s;
}
