// hooke/gradproc.h - gradient processing: accumulate, scale, clip.
//
//     hk_gradproc_options o;
//     hk_gradproc_options_init(&o, sizeof o);
//     o.clip_global_norm = 1;
//     hk_gradproc_create(&o, layout, &p);
//     hk_gradproc_run(p, &gradients, &processed, &ready);
//
// Between gradients and update, in this order: sum over accumulate_steps
// calls, scale, clip by value, clip each tensor by its norm, clip all by the
// global norm. A table's sparse gradient counts as one tensor.
//
// Threads: a handle serves one thread at a time, different handles are
// independent. Results do not depend on the handle's thread budget.
#ifndef HOOKE_GRADPROC_H
#define HOOKE_GRADPROC_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/context.h"
#include "hooke/optim.h"
#include "hooke/status.h"
#include "hooke/tensor.h"

HK_BEGIN_C

typedef struct hk_gradproc_options {
    size_t struct_size;        // set by hk_gradproc_options_init
    double scale;              // default 1
    double clip_value;         // > 0: into [-clip_value, clip_value]
    double clip_norm;          // > 0: g min(1, clip_norm / |g|) per tensor
    double clip_global_norm;   // > 0: the same over all gradients
    uint32_t accumulate_steps; // calls that make one step; default 1
    uint32_t accumulate_mean;  // 1 (default): mean over them; 0: sum
    uint32_t threads;          // 0: the CPUs this process may use
    hk_isa isa;                // default AUTO
} hk_gradproc_options;

typedef struct hk_gradproc hk_gradproc; // opaque

HK_API void hk_gradproc_options_init(hk_gradproc_options *opt,
                                     size_t struct_size);
HK_API hk_status hk_gradproc_create(const hk_gradproc_options *opt,
                                    hk_layout *layout, hk_gradproc **out);
HK_API void hk_gradproc_destroy(hk_gradproc *p); // NULL is allowed
// Processes *in. *ready is 0 while accumulating; otherwise *out is what to
// hand to hk_optimizer_apply, valid until the next call and while *in's
// memory is. HK_E_NOT_FINITE when a norm is not finite; an accumulated sum is
// dropped then.
HK_API hk_status hk_gradproc_run(hk_gradproc *p, const hk_grad_view *in,
                                 hk_grad_view *out, int *ready);
// The global norm seen by the last clip_global_norm, before clipping.
HK_API double hk_gradproc_norm(const hk_gradproc *p);
HK_API hk_status hk_gradproc_save(const hk_gradproc *p, void *buf,
                                  size_t capacity, size_t *size);
HK_API hk_status hk_gradproc_restore(hk_gradproc *p, const void *bytes,
                                     size_t size);

// Plain calls over n floats, in place, one thread.
HK_API hk_status hk_clip_by_value(float *g, int64_t n, double low, double high);
// norm: the norm before clipping; NULL allowed.
HK_API hk_status hk_clip_by_norm(float *g, int64_t n, double clip_norm,
                                 double *norm);
// Rows of repeated indices count as they are given.
HK_API hk_status hk_global_norm(const hk_grad_view *grads, double *norm);

HK_END_C
#endif // HOOKE_GRADPROC_H
