// hooke/backend.h - what this build computes with.
//
//     for (size_t i = 0; i < hk_backend_count(); i++)
//         if (hk_backend_get_info(i, &info) == HK_OK)
//             printf("%s %s\n", info.name, info.version);
//
// A backend may be a shared object of its own, which is loaded when it is first
// asked for: libhooke.so alone, which exchanges, sends and saves, needs neither
// OpenMP nor oneDNN. The engine (libhooke_engine.so) lies beside libhooke.so;
// programs linked with libhooke.a have it inside.
//
// Graphics cards are computed with by a plug-in as well, libhooke_cuda.so. It
// is loaded when a device of its kind is asked for, and only then.
//
// Threads: the list never changes; all calls are safe.
#ifndef HOOKE_BACKEND_H
#define HOOKE_BACKEND_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/context.h"
#include "hooke/status.h"

HK_BEGIN_C

typedef struct hk_backend_info {
    const char *name;    // as hk_plan_options.backend takes it
    const char *version; // of the library behind it: "oneDNN 2.6.3"; or ""
    const char *device;  // what it runs on: "cpu", "cuda"
    uint32_t device_count;
    hk_isa isa;       // best level that its kernels use on this machine
    const char *file; // the shared object it was loaded from; "": inside
} hk_backend_info;

HK_API size_t hk_backend_count(void);
// The i-th, the best one first: the one that plans take by default.
// HK_E_NOT_FOUND past the end, HK_E_BACKEND where it cannot be loaded.
HK_API hk_status hk_backend_get_info(size_t i, hk_backend_info *out);
// By name, loaded if need be; also one that is not in the list, as "cuda".
// device_count is 0 where it has none: hk_device_find says why.
HK_API hk_status hk_backend_find(const char *name, hk_backend_info *out);

// ---- devices ----------------------------------------------------------------

// What the factors of products are (dense layers, convolutions and their
// gradients). Sums and everything else, values and gradients included, are
// float32 in each of them.
typedef enum hk_precision {
    HK_PRECISION_DEFAULT = 0, // TF32
    HK_PRECISION_TF32 =
        1, // on graphics cards 10 bits of fraction; on CPUs FP32
    HK_PRECISION_FP32 = 2,
    HK_PRECISION_BF16 = 3 // 7 bits of fraction; CPUs with AVX512-BF16, cards of
                          // compute capability 8.0
} hk_precision;

// Devices first .. first + count - 1 of a backend.
typedef struct hk_device {
    const char *backend; // for hk_plan_options.backend; NULL: CPUs
    uint32_t first, count;
} hk_device;

// What a name stands for: "cpu"; "cuda" for every graphics card, "cuda:1" for
// one of them; "auto" for cuda where it can be used, for cpu where it cannot
// or HOOKE_BACKEND of the environment names a backend. NULL: "cpu".
// HK_E_INVALID_ARG for other names, HK_E_NOT_FOUND where there are fewer cards,
// HK_E_BACKEND with the reason where there are none: no plug-in, no library of
// CUDA, no driver or one that is too old, no card.
HK_API hk_status hk_device_find(const char *name, hk_device *out);
// The i-th of d.count in words: "NVIDIA H200, 139.8 GiB, compute capability
// 9.0". Cut off where size is too small.
HK_API hk_status hk_device_text(const hk_device *d, uint32_t i, char *text,
                                size_t size);

HK_END_C
#endif // HOOKE_BACKEND_H
