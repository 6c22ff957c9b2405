// backend/host.h - buffers in host memory, for backends that compute there.
//
// These functions go straight into a backend's table; the device and the
// queue are not looked at.
#ifndef HKI_HOST_H
#define HKI_HOST_H
#include "backend/backend.h"

hk_status hki_host_buffer_create(hki_device *d, size_t bytes, hki_buffer **out);
hk_status hki_host_buffer_wrap(hki_device *d, void *host, size_t bytes,
                               hki_buffer **out);
void hki_host_buffer_rewrap(hki_buffer *b, void *host, size_t bytes);
void hki_host_buffer_destroy(hki_buffer *b); // NULL is allowed
void *hki_host_buffer_host(const hki_buffer *b);

hk_status hki_host_write(hki_queue *q, hki_loc to, const void *from, size_t n);
hk_status hki_host_read(hki_queue *q, void *to, hki_loc from, size_t n);

// Address of a place; NULL for an absent one.
void *hki_host_at(hki_loc at);

// The arguments of a portable kernel: inputs and outputs, each followed by
// absent views up to HKI_MAX_ARGS.
typedef struct hki_host_args {
    hki_view in[HKI_MAX_ARGS];
    hki_view out[HKI_MAX_ARGS];
} hki_host_args;

// Views of the places args (inputs, then outputs) as desc describes them.
// The shapes must have been checked with hki_host_check.
void hki_host_views(const hki_kernel_desc *desc, const hki_loc *args,
                    hki_host_args *out);
// HK_E_UNSUPPORTED where desc has no portable kernel, or wants it to work on
// a format other than plain; HK_E_SHAPE, HK_E_OVERFLOW for sizes.
hk_status hki_host_check(const hki_kernel_desc *desc);
// Scratch bytes of desc's portable kernel, a multiple of 64.
size_t hki_host_scratch(const hki_kernel_desc *desc);

#endif // HKI_HOST_H
