// backend.c - the fast CPU backend: its objects, and which kernel an operator
// call gets.
//
// Each call is offered to the maker of its operator; what a maker declines
// (double precision, unusual shapes) runs on the operator's portable kernel.
#include <pthread.h>
#include "backend/host.h"
#include "backend/onednn/cpu.h"

struct hki_queue {
    hki_device *device;
    hki_dnnl_stream *stream;
    uint64_t seed, step;
    hki_team_saved saved;
    bool begun;
};

struct hki_kernel_state {
    hki_dnnl_state *dnnl[HKI_CPU_OPS]; // NULL where the kernel has no op
};

static const hki_cpu_maker makers[HKI_OP_COUNT] = {
    [HKI_OP_unary] = hki_make_unary,
    [HKI_OP_unary_grad] = hki_make_unary_grad,
    [HKI_OP_binary] = hki_make_binary,
    [HKI_OP_cast] = hki_make_cast,
    [HKI_OP_dropout] = hki_make_dropout,
    [HKI_OP_transpose] = hki_make_transpose,
    [HKI_OP_concat] = hki_make_concat,
    [HKI_OP_slice] = hki_make_slice,
    [HKI_OP_pad] = hki_make_pad,
    [HKI_OP_broadcast_to] = hki_make_broadcast_to,
    [HKI_OP_sum_to] = hki_make_sum_to,
    [HKI_OP_reduce] = hki_make_reduce,
    [HKI_OP_l2_loss] = hki_make_l2_loss,
    [HKI_OP_matmul] = hki_make_matmul,
    [HKI_OP_dense] = hki_make_dense,
    [HKI_OP_act_bias_grad] = hki_make_act_bias_grad,
    [HKI_OP_conv2d] = hki_make_conv2d,
    [HKI_OP_conv2d_grad_input] = hki_make_conv2d_grad_input,
    [HKI_OP_conv2d_grad_filter] = hki_make_conv2d_grad_filter,
    [HKI_OP_max_pool] = hki_make_max_pool,
    [HKI_OP_max_pool_grad] = hki_make_max_pool_grad,
    [HKI_OP_avg_pool] = hki_make_avg_pool,
    [HKI_OP_avg_pool_grad] = hki_make_avg_pool_grad,
    [HKI_OP_global_avg_pool] = hki_make_global_avg_pool,
    [HKI_OP_global_avg_pool_grad] = hki_make_global_avg_pool_grad,
    [HKI_OP_batch_norm] = hki_make_batch_norm,
    [HKI_OP_batch_norm_grad] = hki_make_batch_norm_grad,
    [HKI_OP_affine] = hki_make_affine,
    [HKI_OP_layer_norm] = hki_make_layer_norm,
    [HKI_OP_layer_norm_grad] = hki_make_layer_norm_grad,
    [HKI_OP_softmax] = hki_make_softmax,
    [HKI_OP_softmax_grad] = hki_make_softmax,
    [HKI_OP_log_softmax] = hki_make_softmax,
    [HKI_OP_log_softmax_grad] = hki_make_softmax,
    [HKI_OP_sparse_softmax_xent] = hki_make_sparse_softmax_xent,
    [HKI_OP_softmax_xent] = hki_make_softmax_xent,
    [HKI_OP_embedding_bag] = hki_make_embedding_bag,
    [HKI_OP_embedding_bag_grad] = hki_make_embedding_bag_grad,
    [HKI_OP_assign_moving] = hki_make_assign_moving,
    [HKI_OP_reorder] = hki_make_reorder,
};

// ---- device ----------------------------------------------------------------

static void device_close(hki_device *d) {
    if (d == NULL)
        return;
    hki_dnnl_close(d->dnnl);
    hki_free(d);
}

// Without the instructions, products of bfloat16 would be slower than those of
// floats.
static hk_status check_precision(const hki_device_options *opt, hk_isa isa) {
    if (opt->precision != HK_PRECISION_BF16)
        return HK_OK;
    if (isa == HK_ISA_V4 && hki_isa_has_bf16())
        return HK_OK;
    return hki_fail(
        HK_E_UNSUPPORTED,
        "precision bf16 needs AVX512-BF16, which %s; use fp32 or tf32",
        hki_isa_has_bf16() ? "the selected instruction set (isa) excludes"
                           : "this CPU does not have");
}

static hk_status device_open(const hki_device_options *opt, hki_device **out) {
    if (opt->threads < 1 || opt->threads > 4096)
        return hki_fail(HK_E_INVALID_ARG, "device: %u threads",
                        (unsigned)opt->threads);
    hk_isa isa;
    HKI_TRY(hki_isa_resolve("device", opt->isa, &isa));
    HKI_TRY(check_precision(opt, isa));
    hki_device *d;
    HKI_TRY(hki_zalloc_array(1, sizeof *d, &d));
    d->threads = (int)opt->threads;
    d->isa = isa;
    d->bf16 = opt->precision == HK_PRECISION_BF16;
    d->ewise = HKI_ISA_PICK(isa, hki_ewise_table);
    d->reduce = HKI_ISA_PICK(isa, hki_reduce_table);
    d->norm = HKI_ISA_PICK(isa, hki_norm_table);
    d->softmax = HKI_ISA_PICK(isa, hki_softmax_table);
    d->pool = HKI_ISA_PICK(isa, hki_pool_table);
    d->move = HKI_ISA_PICK(isa, hki_move_table);
    d->embed = HKI_ISA_PICK(isa, hki_embed_table);
    HKI_TRY_OR(hki_dnnl_open(&d->dnnl), device_close(d));
    *out = d;
    return HK_OK;
}

// ---- queue -----------------------------------------------------------------

static void queue_destroy(hki_queue *q) {
    if (q == NULL)
        return;
    hki_dnnl_stream_destroy(q->stream);
    hki_free(q);
}

static hk_status queue_create(hki_device *d, hki_queue **out) {
    hki_queue *q;
    HKI_TRY(hki_zalloc_array(1, sizeof *q, &q));
    q->device = d;
    HKI_TRY_OR(hki_dnnl_stream_create(d->dnnl, &q->stream), queue_destroy(q));
    *out = q;
    return HK_OK;
}

static hk_status queue_begin(hki_queue *q, uint64_t seed, uint64_t step) {
    if (q->begun)
        return hki_fail(HK_E_STATE, "queue: was begun twice");
    HKI_TRY(hki_team_enter("queue", q->device->threads, &q->saved));
    q->seed = seed;
    q->step = step;
    q->begun = true;
    return HK_OK;
}

static hk_status queue_end(hki_queue *q) {
    if (!q->begun)
        return hki_fail(HK_E_STATE, "queue: was ended before it was begun");
    hki_team_leave(&q->saved);
    q->begun = false;
    return HK_OK;
}

static hk_status queue_pin(hki_queue *q, uint32_t first_cpu) {
    return hki_team_pin(q->device->threads, first_cpu);
}

// ---- kernels ---------------------------------------------------------------

static void kernel_destroy(hki_kernel *k) {
    if (k == NULL)
        return;
    for (int i = 0; i < HKI_CPU_OPS; i++)
        hki_dnnl_op_destroy(k->op[i]);
    hki_free(k->plan);
    hki_free(k);
}

static hk_status make(hki_kernel *k) {
    const hki_cpu_maker maker = makers[k->desc.op];
    if (maker != NULL)
        HKI_TRY(maker(k));
    if (k->run != NULL)
        return HK_OK;
    if (k->desc.portable == NULL)
        return hki_fail(HK_E_UNSUPPORTED, "kernel: operator %d has no kernel",
                        (int)k->desc.op);
    k->run = hki_cpu_run_portable;
    k->scratch_bytes = hki_cpu_portable_scratch(&k->desc);
    k->note = "portable";
    return HK_OK;
}

// Sizes in bytes fit, blocked images have four dimensions and whole blocks.
static hk_status check_tensor(const hki_tensor_desc *t) {
    size_t bytes;
    if (t->dtype == 0)
        return HK_OK;
    HKI_TRY(hki_shape_bytes(t->shape, hk_dtype_size(t->dtype), &bytes));
    const int block = hki_format_block(t->format);
    if (block > 0 && (t->shape.rank != 4 || t->shape.dim[3] % block != 0)) {
        char text[HKI_SHAPE_TEXT];
        return hki_fail(HK_E_SHAPE, "kernel: %s cannot be in blocks of %d",
                        hki_shape_text(t->shape, text), block);
    }
    return HK_OK;
}

static hk_status check_desc(const hki_kernel_desc *desc) {
    if ((unsigned)desc->op >= HKI_OP_COUNT || desc->n_in < 0 ||
        desc->n_out < 0 || desc->n_in + desc->n_out > HKI_MAX_ARGS)
        return hki_fail(HK_E_INTERNAL,
                        "kernel: operator %d with %d inputs and %d outputs",
                        (int)desc->op, desc->n_in, desc->n_out);
    for (int i = 0; i < desc->n_in; i++)
        HKI_TRY(check_tensor(&desc->in[i]));
    for (int i = 0; i < desc->n_out; i++)
        HKI_TRY(check_tensor(&desc->out[i]));
    return HK_OK;
}

// Primitives belong to a thread count: it is set here as it is while running.
static hk_status kernel_create(hki_device *d, const hki_kernel_desc *desc,
                               hki_kernel **out) {
    HKI_TRY(check_desc(desc));
    hki_team_saved saved;
    HKI_TRY(hki_team_enter("kernel", d->threads, &saved));
    hki_kernel *k = NULL;
    hk_status s = hki_zalloc_array(1, sizeof *k, &k);
    if (s == HK_OK) {
        k->device = d;
        k->desc = *desc;
        k->note = "";
        s = make(k);
    }
    hki_team_leave(&saved);
    HKI_TRY_OR(s, kernel_destroy(k));
    *out = k;
    return HK_OK;
}

static size_t kernel_scratch(const hki_kernel *k) {
    return k->scratch_bytes;
}

static const char *kernel_note(const hki_kernel *k) {
    return k->note;
}

static void state_destroy(hki_kernel_state *s) {
    if (s == NULL)
        return;
    for (int i = 0; i < HKI_CPU_OPS; i++)
        hki_dnnl_state_destroy(s->dnnl[i]);
    hki_free(s);
}

static hk_status state_create(const hki_kernel *k, hki_kernel_state **out) {
    hki_kernel_state *s;
    HKI_TRY(hki_zalloc_array(1, sizeof *s, &s));
    for (int i = 0; i < HKI_CPU_OPS; i++) {
        if (k->op[i] == NULL)
            continue;
        HKI_TRY_OR(hki_dnnl_state_create(k->op[i], &s->dnnl[i]),
                   state_destroy(s));
    }
    *out = s;
    return HK_OK;
}

static hk_status kernel_run(const hki_kernel *k, hki_kernel_state *s,
                            hki_queue *q, const hki_loc *args,
                            hki_loc scratch) {
    if (!q->begun)
        return hki_fail(HK_E_STATE, "kernel: its queue was not begun");
    hki_cpu_call c = {
        .k = k,
        .stream = q->stream,
        .run = {.seed = q->seed,
                .step = q->step,
                .scratch = hki_host_at(scratch)},
    };
    for (int i = 0; s != NULL && i < HKI_CPU_OPS; i++)
        c.state[i] = s->dnnl[i];
    for (int i = 0; i < k->desc.n_in; i++)
        c.in[i] = hki_host_at(args[i]);
    for (int i = 0; i < k->desc.n_out; i++)
        c.out[i] = hki_host_at(args[k->desc.n_in + i]);
    return k->run(&c);
}

// Kernels side by side, one thread each: parts that a kernel would split over
// threads are then run one after the other by its own thread, which gives the
// same bits.
typedef struct many {
    hki_queue *q;
    const hki_kernel_call *calls;
    hki_mutex lock; // guards the rest
    size_t failed;
    hk_status status;
    char text[512];
} many;

static void run_some(const void *args, int64_t begin, int64_t end, int part) {
    many *m = (many *)(uintptr_t)args;
    (void)part;
    for (int64_t i = begin; i < end; i++) {
        const hki_kernel_call *c = &m->calls[i];
        const hk_status s =
            kernel_run(c->kernel, c->state, m->q, c->args, c->scratch);
        if (s == HK_OK)
            continue;
        hki_mutex_lock(&m->lock);
        if (m->status == HK_OK || (size_t)i < m->failed) {
            m->status = s;
            m->failed = (size_t)i;
            snprintf(m->text, sizeof m->text, "%s", hk_last_error());
        }
        hki_mutex_unlock(&m->lock);
    }
}

static hk_status kernel_run_many(hki_queue *q, const hki_kernel_call *calls,
                                 size_t n, size_t *failed) {
    many m = {.q = q, .calls = calls, .lock = HKI_MUTEX_INIT};
    // A call counts as enough work for a thread of its own.
    const hki_work w = {.items = (int64_t)n, .cost = INT32_MAX};
    hki_team_for(q->device->threads, &w, run_some, &m);
    *failed = m.failed;
    return m.status == HK_OK ? HK_OK : hki_fail(m.status, "%s", m.text);
}

// Tables of a recommender: many small look-ups whose results are joined, and
// gradients that are cut apart again and gathered serially.
static bool runs_beside(const hki_device *d, hki_opcode op) {
    (void)d;
    return op == HKI_OP_embedding_bag || op == HKI_OP_embedding_bag_grad ||
           op == HKI_OP_slice;
}

// ---- formats ---------------------------------------------------------------

// Winograd wants 3 x 3, stride 1 and 32 channels or more on both sides, and
// exists for blocked images only. AVX2 has none, but the same layers run a
// little faster there on blocks of 8 than on plain images. Products of bfloat16
// have no Winograd, and as good kernels for plain images.
static bool wants_blocks(const hki_conv_info *c) {
    return c->ksize[0] == 3 && c->ksize[1] == 3 && c->stride[0] == 1 &&
           c->stride[1] == 1 && c->dilation[0] == 1 && c->dilation[1] == 1 &&
           c->groups == 1 && c->channels_in >= 32 && c->channels_out >= 32;
}

static hki_format image_format(const hki_device *d, const hki_conv_info *c,
                               size_t n) {
    if (d->isa < HK_ISA_V3 || d->bf16)
        return HKI_PLAIN;
    for (size_t i = 0; i < n; i++)
        if (wants_blocks(&c[i]))
            return d->isa == HK_ISA_V4 ? HKI_BLOCKED_16 : HKI_BLOCKED_8;
    return HKI_PLAIN;
}

const hki_backend hki_backend_onednn = {
    .name = "onednn",
    .align = 64,
    .version = hki_dnnl_version,
    .device_open = device_open,
    .device_close = device_close,
    .buffer_create = hki_host_buffer_create,
    .buffer_wrap = hki_host_buffer_wrap,
    .buffer_rewrap = hki_host_buffer_rewrap,
    .buffer_destroy = hki_host_buffer_destroy,
    .buffer_host = hki_host_buffer_host,
    .queue_create = queue_create,
    .queue_destroy = queue_destroy,
    .queue_begin = queue_begin,
    .queue_end = queue_end,
    .queue_pin = queue_pin,
    .write = hki_host_write,
    .read = hki_host_read,
    .kernel_create = kernel_create,
    .kernel_destroy = kernel_destroy,
    .kernel_scratch = kernel_scratch,
    .kernel_note = kernel_note,
    .state_create = state_create,
    .state_destroy = state_destroy,
    .kernel_run = kernel_run,
    .kernel_run_many = kernel_run_many,
    .runs_beside = runs_beside,
    .image_format = image_format,
};
