// reference.c - the backend in plain C: every operator by its portable
// kernel, on one thread. The oracle for the others.
#include "backend/host.h"

struct hki_device {
    hki_device_options options;
};

struct hki_queue {
    uint64_t seed, step; // of the batch of runs under way
};

struct hki_kernel {
    hki_kernel_desc desc;
    size_t scratch_bytes;
};

// Kernels keep nothing between runs; the state is there to be had.
struct hki_kernel_state {
    const hki_kernel *kernel;
};

static hk_status device_open(const hki_device_options *opt, hki_device **out) {
    hki_device *d;
    HKI_TRY(hki_alloc_array(1, sizeof *d, &d));
    *d = (hki_device){.options = *opt};
    *out = d;
    return HK_OK;
}

static void device_close(hki_device *d) {
    hki_free(d);
}

static hk_status queue_create(hki_device *d, hki_queue **out) {
    (void)d;
    hki_queue *q;
    HKI_TRY(hki_zalloc_array(1, sizeof *q, &q));
    *out = q;
    return HK_OK;
}

static void queue_destroy(hki_queue *q) {
    hki_free(q);
}

static hk_status queue_begin(hki_queue *q, uint64_t seed, uint64_t step) {
    q->seed = seed;
    q->step = step;
    return HK_OK;
}

static hk_status queue_end(hki_queue *q) {
    (void)q;
    return HK_OK; // runs are done when they return
}

static hk_status queue_pin(hki_queue *q, uint32_t first_cpu) {
    (void)q;
    return hki_thread_pin((int)first_cpu);
}

static hk_status kernel_create(hki_device *d, const hki_kernel_desc *desc,
                               hki_kernel **out) {
    (void)d;
    hki_kernel *k;
    HKI_TRY(hki_host_check(desc));
    HKI_TRY(hki_alloc_array(1, sizeof *k, &k));
    *k = (hki_kernel){.desc = *desc, .scratch_bytes = hki_host_scratch(desc)};
    *out = k;
    return HK_OK;
}

static void kernel_destroy(hki_kernel *k) {
    hki_free(k);
}

static size_t kernel_scratch(const hki_kernel *k) {
    return k->scratch_bytes;
}

static const char *kernel_note(const hki_kernel *k) {
    (void)k;
    return "";
}

static hk_status state_create(const hki_kernel *k, hki_kernel_state **out) {
    hki_kernel_state *s;
    HKI_TRY(hki_alloc_array(1, sizeof *s, &s));
    s->kernel = k;
    *out = s;
    return HK_OK;
}

static void state_destroy(hki_kernel_state *s) {
    hki_free(s);
}

static hk_status kernel_run(const hki_kernel *k, hki_kernel_state *s,
                            hki_queue *q, const hki_loc *args,
                            hki_loc scratch) {
    (void)s;
    hki_host_args views;
    const hki_kernel_run run = {
        .seed = q->seed, .step = q->step, .scratch = hki_host_at(scratch)};
    hki_host_views(&k->desc, args, &views);
    return k->desc.portable(&k->desc.attr, &run, views.in, views.out);
}

static hki_format image_format(const hki_device *d, const hki_conv_info *c,
                               size_t n) {
    (void)d;
    (void)c;
    (void)n;
    return HKI_PLAIN;
}

const hki_backend hki_backend_reference = {
    .name = "reference",
    .align = 64,
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
    .image_format = image_format,
};
