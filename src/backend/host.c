// host.c - buffers in host memory and the views that portable kernels take.
#include "backend/host.h"

int hki_format_block(hki_format f) {
    return f == HKI_BLOCKED_8 ? 8 : f == HKI_BLOCKED_16 ? 16 : 0;
}

struct hki_buffer {
    void *host;
    size_t bytes;
    bool owned;
};

static hk_status new_buffer(void *host, size_t bytes, bool owned,
                            hki_buffer **out) {
    hki_buffer *b;
    HKI_TRY(hki_alloc_array(1, sizeof *b, &b));
    *b = (hki_buffer){.host = host, .bytes = bytes, .owned = owned};
    *out = b;
    return HK_OK;
}

hk_status hki_host_buffer_create(hki_device *d, size_t bytes,
                                 hki_buffer **out) {
    (void)d;
    void *host;
    HKI_TRY(hki_zalloc_array(bytes, 1, &host));
    const hk_status s = new_buffer(host, bytes, true, out);
    if (s != HK_OK)
        hki_free(host);
    return s;
}

hk_status hki_host_buffer_wrap(hki_device *d, void *host, size_t bytes,
                               hki_buffer **out) {
    (void)d;
    return new_buffer(host, bytes, false, out);
}

void hki_host_buffer_rewrap(hki_buffer *b, void *host, size_t bytes) {
    b->host = host;
    b->bytes = bytes;
}

void hki_host_buffer_destroy(hki_buffer *b) {
    if (b != NULL && b->owned)
        hki_free(b->host);
    hki_free(b);
}

void *hki_host_buffer_host(const hki_buffer *b) {
    return b->host;
}

void *hki_host_at(hki_loc at) {
    return at.buffer == NULL ? NULL : (char *)at.buffer->host + at.offset;
}

static hk_status check_place(const char *what, hki_loc at, size_t n) {
    if (at.buffer == NULL || at.offset > at.buffer->bytes ||
        n > at.buffer->bytes - at.offset)
        return hki_fail(HK_E_INTERNAL,
                        "%s: bytes %zu to %zu + %zu are outside of the buffer, "
                        "which has %zu",
                        what, at.offset, at.offset, n,
                        at.buffer == NULL ? 0 : at.buffer->bytes);
    return HK_OK;
}

hk_status hki_host_write(hki_queue *q, hki_loc to, const void *from, size_t n) {
    (void)q;
    HKI_TRY(check_place("buffer write", to, n));
    if (n > 0)
        memcpy(hki_host_at(to), from, n);
    return HK_OK;
}

hk_status hki_host_read(hki_queue *q, void *to, hki_loc from, size_t n) {
    (void)q;
    HKI_TRY(check_place("buffer read", from, n));
    if (n > 0)
        memcpy(to, hki_host_at(from), n);
    return HK_OK;
}

// The sizes were checked when the kernel was made: the product fits.
static hki_view view_of(const hki_tensor_desc *t, hki_loc at) {
    hki_view v = {.data = hki_host_at(at),
                  .dtype = t->dtype,
                  .format = t->format,
                  .shape = t->shape,
                  .count = t->dtype == 0 ? 0 : 1};
    for (int i = 0; i < t->shape.rank; i++)
        v.count *= t->shape.dim[i];
    return v;
}

void hki_host_views(const hki_kernel_desc *desc, const hki_loc *args,
                    hki_host_args *out) {
    const hki_view absent = {0};
    for (int i = 0; i < HKI_MAX_ARGS; i++) {
        out->in[i] = i < desc->n_in ? view_of(&desc->in[i], args[i]) : absent;
        out->out[i] = i < desc->n_out
                          ? view_of(&desc->out[i], args[desc->n_in + i])
                          : absent;
    }
}

static hk_status check_desc(const hki_kernel_desc *desc,
                            const hki_tensor_desc *t) {
    size_t bytes;
    if (t->format != HKI_PLAIN && desc->op != HKI_OP_reorder)
        return hki_fail(HK_E_UNSUPPORTED,
                        "portable kernel: blocked image format");
    return t->dtype == 0
               ? HK_OK
               : hki_shape_bytes(t->shape, hk_dtype_size(t->dtype), &bytes);
}

hk_status hki_host_check(const hki_kernel_desc *desc) {
    if (desc->n_in < 0 || desc->n_out < 0 ||
        desc->n_in + desc->n_out > HKI_MAX_ARGS)
        return hki_fail(HK_E_INTERNAL,
                        "kernel: %d inputs and %d outputs are more than the "
                        "limit of %d together",
                        desc->n_in, desc->n_out, HKI_MAX_ARGS);
    if (desc->portable == NULL)
        return hki_fail(HK_E_UNSUPPORTED, "operator %d has no portable kernel",
                        (int)desc->op);
    for (int i = 0; i < desc->n_in; i++)
        HKI_TRY(check_desc(desc, &desc->in[i]));
    for (int i = 0; i < desc->n_out; i++)
        HKI_TRY(check_desc(desc, &desc->out[i]));
    return HK_OK;
}

// A kernel that declares scratch gets some even where it needs no byte of it
// (empty tensors), so that it may do arithmetic on the pointer.
size_t hki_host_scratch(const hki_kernel_desc *desc) {
    if (desc->portable_scratch == NULL)
        return 0;
    const size_t n = desc->portable_scratch(desc);
    if (n > SIZE_MAX - 64) // saturated: more than there is
        return SIZE_MAX / 64 * 64;
    return HKI_MAX((n + 63) / 64 * 64, (size_t)64);
}
