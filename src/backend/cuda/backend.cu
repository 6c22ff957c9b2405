// backend.cu - the CUDA backend: its table, its objects, and which maker an
// operator call goes to.
#include "backend/cuda/queue.h"

static hki_cuda_maker maker_of(hki_opcode op) {
    switch (op) {
#define HKI_CUDA_CASE(op)                                                      \
    case HKI_OP_##op:                                                          \
        return hki_cuda_make_##op;
        HKI_CUDA_MAKERS(HKI_CUDA_CASE)
#undef HKI_CUDA_CASE
    default:
        return NULL;
    }
}

// ---- device -----------------------------------------------------------------

static void device_close(hki_device *d) {
    hki_free(d);
}

static hk_status check_precision(const hki_card *card, hk_precision precision) {
    hki_card_info info;
    hki_card_get_info(card, &info);
    if (precision != HK_PRECISION_BF16 || info.major >= 8)
        return HK_OK;
    return hki_fail(HK_E_UNSUPPORTED,
                    "cuda: precision bf16 needs compute capability 8.0, but %s "
                    "has %d.%d; use fp32 or tf32",
                    info.name, info.major, info.minor);
}

static hk_status device_open(const hki_device_options *opt, hki_device **out) {
    hki_card *card;
    HKI_TRY(hki_card_open((int)opt->card, &card));
    HKI_TRY(check_precision(card, opt->precision));
    hki_device *d;
    HKI_TRY(hki_zalloc_array(1, sizeof *d, &d));
    d->card = card;
    d->precision = opt->precision;
    *out = d;
    return HK_OK;
}

static hk_status device_count(uint32_t *out) {
    int n;
    HKI_TRY(hki_card_count(&n));
    *out = (uint32_t)n;
    return HK_OK;
}

static hk_status device_text(uint32_t number, char *text, size_t size) {
    hki_card *card;
    hki_card_info info;
    HKI_TRY(hki_card_open((int)number, &card));
    hki_card_get_info(card, &info);
    snprintf(text, size, "%s, %.1f GiB, compute capability %d.%d", info.name,
             (double)info.bytes / 0x1p30, info.major, info.minor);
    return HK_OK;
}

// ---- buffers ----------------------------------------------------------------

static void buffer_destroy(hki_buffer *b) {
    if (b == NULL)
        return;
    hki_card_free(b->card, b->at);
    hki_free(b);
}

static hk_status buffer_create(hki_device *d, size_t bytes, hki_buffer **out) {
    hki_buffer *b;
    HKI_TRY(hki_zalloc_array(1, sizeof *b, &b));
    b->card = d->card;
    const hk_status s = hki_card_alloc(d->card, bytes, &b->at);
    if (s != HK_OK) {
        buffer_destroy(b);
        return s;
    }
    *out = b;
    return HK_OK;
}

static void *buffer_address(const hki_buffer *b) {
    return b->at;
}

// ---- kernels ----------------------------------------------------------------

static void kernel_destroy(hki_kernel *k) {
    if (k == NULL)
        return;
    hki_product_destroy(k->product);
    hki_conv_destroy(k->conv);
    hki_free(k);
}

static hk_status check_types(const hki_kernel_desc *d) {
    for (int i = 0; i < d->n_in + d->n_out; i++) {
        const hki_tensor_desc *const t =
            i < d->n_in ? &d->in[i] : &d->out[i - d->n_in];
        if (t->dtype == HK_F64)
            return hki_fail(HK_E_UNSUPPORTED,
                            "cuda: double precision is only supported on CPUs");
        if (t->format != HKI_PLAIN)
            return hki_fail(HK_E_INTERNAL,
                            "cuda: images in blocks are not supported");
    }
    return HK_OK;
}

static bool is_bf16_product(const hki_kernel_desc *d) {
    return d->attr.dtype == HK_BF16 && d->op != HKI_OP_cast;
}

static hk_status make(hki_kernel *k) {
    static const char *const names[] = {
#define HKI_NAME(op) #op,
        HKI_OPS(HKI_NAME)
#undef HKI_NAME
    };
    HKI_TRY(check_types(&k->desc));
    const hki_cuda_maker maker = maker_of(k->desc.op);
    if (maker != NULL)
        HKI_TRY(is_bf16_product(&k->desc) ? hki_cuda_make_bf16(k, maker)
                                          : maker(k));
    if (k->run == NULL)
        return hki_fail(HK_E_UNSUPPORTED,
                        "cuda: there is no kernel for this use of the operator "
                        "%s; use --device cpu",
                        names[k->desc.op]);
    return HK_OK;
}

static hk_status kernel_create(hki_device *d, const hki_kernel_desc *desc,
                               hki_kernel **out) {
    hki_kernel *k;
    HKI_TRY(hki_zalloc_array(1, sizeof *k, &k));
    k->device = d;
    k->desc = *desc;
    k->note = "";
    const hk_status s = make(k);
    if (s != HK_OK) {
        kernel_destroy(k);
        return s;
    }
    *out = k;
    return HK_OK;
}

static size_t kernel_scratch(const hki_kernel *k) {
    return k->scratch_bytes;
}

static const char *kernel_note(const hki_kernel *k) {
    return k->note;
}

// Kernels keep nothing from run to run.
static void state_destroy(hki_kernel_state *s) {
    (void)s;
}

static hk_status state_create(const hki_kernel *k, hki_kernel_state **out) {
    (void)k;
    *out = NULL;
    return HK_OK;
}

static bool runs_beside(const hki_device *d, hki_opcode op) {
    (void)d;
    (void)op;
    return false;
}

static hki_format image_format(const hki_device *d, const hki_conv_info *c,
                               size_t n) {
    (void)d;
    (void)c;
    (void)n;
    return HKI_PLAIN;
}

// ---- the table --------------------------------------------------------------

static hki_backend table(void) {
    hki_backend b = {};
    b.name = HKI_CARD_NAME;
    b.version = hki_card_version;
    b.align = 256; // of cuBLASLt's scratch
    b.steps_under_way = HKI_GRAPH_LANES;
    b.device_count = device_count;
    b.device_text = device_text;
    b.device_open = device_open;
    b.device_close = device_close;
    b.buffer_create = buffer_create;
    b.buffer_destroy = buffer_destroy;
    b.buffer_address = buffer_address;
    b.vectors = &hki_vector_ops_cuda;
    b.shared_create = hki_cuda_shared_create;
    b.shared_destroy = hki_cuda_shared_destroy;
    b.shared_wait = hki_cuda_shared_wait;
    b.queue_create = hki_cuda_queue_create;
    b.queue_destroy = hki_cuda_queue_destroy;
    b.queue_begin = hki_cuda_queue_begin;
    b.queue_end = hki_cuda_queue_end;
    b.queue_pin = hki_cuda_queue_pin;
    b.write = hki_cuda_write_bytes;
    b.read = hki_cuda_read_bytes;
    b.read_many = hki_cuda_read_many;
    b.write_many = hki_cuda_write_many;
    b.host_alloc = hki_cuda_host_alloc;
    b.host_free = hki_cuda_host_free;
    b.kernel_create = kernel_create;
    b.kernel_destroy = kernel_destroy;
    b.kernel_scratch = kernel_scratch;
    b.kernel_note = kernel_note;
    b.state_create = state_create;
    b.state_destroy = state_destroy;
    b.kernel_run = hki_cuda_kernel_run;
    b.kernel_run_many = hki_cuda_kernel_run_many;
    b.plan_capture = hki_cuda_plan_capture;
    b.plan_launch = hki_cuda_plan_launch;
    b.plan_early = hki_cuda_plan_early;
    b.plan_release = hki_cuda_plan_release;
    b.runs_beside = runs_beside;
    b.image_format = image_format;
    return b;
}

extern "C" const hki_backend hki_backend_cuda = table();
