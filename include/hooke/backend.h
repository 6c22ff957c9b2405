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
// Threads: the list never changes.
#ifndef HOOKE_BACKEND_H
#define HOOKE_BACKEND_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/context.h"
#include "hooke/status.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct hk_backend_info {
    const char *name;    // as hk_plan_options.backend takes it
    const char *version; // of the library behind it: "oneDNN 2.6.3"; or ""
    const char *device;  // what it runs on: "cpu"
    uint32_t device_count;
    hk_isa isa;       // best level that its kernels use on this machine
    const char *file; // the shared object it was loaded from; "": inside
} hk_backend_info;

HK_API size_t hk_backend_count(void);
// The i-th, the best one first: the one that plans take by default.
// HK_E_NOT_FOUND past the end, HK_E_BACKEND where it cannot be loaded.
HK_API hk_status hk_backend_get_info(size_t i, hk_backend_info *out);

#ifdef __cplusplus
}
#endif
#endif // HOOKE_BACKEND_H
