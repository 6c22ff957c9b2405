// hooke/context.h - the root object: log, thread budget, plan cache.
//
//     hk_context *ctx;
//     hk_context_create(NULL, &ctx);
//     ...
//     hk_context_destroy(ctx);
//
// Threads: a context may be used by any number of threads at once.
#ifndef HOOKE_CONTEXT_H
#define HOOKE_CONTEXT_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/status.h"

HK_BEGIN_C

typedef struct hk_context hk_context; // opaque

typedef enum hk_log_level {
    HK_LOG_DEBUG = 10,
    HK_LOG_INFO = 20,
    HK_LOG_WARNING = 30,
    HK_LOG_ERROR = 40
} hk_log_level;

// Receives one line without a newline. May be called from any thread, one
// call at a time for a context.
typedef void (*hk_log_fn)(void *user, hk_log_level level, const char *text);

// Instruction-set level of Hooke's own kernels. AUTO takes the best that the
// machine has; a level above the machine's is refused.
typedef enum hk_isa {
    HK_ISA_AUTO = 0,
    HK_ISA_BASE = 1, // x86-64 baseline, or the plain build elsewhere
    HK_ISA_V3 = 2,   // AVX2 + FMA
    HK_ISA_V4 = 3    // AVX-512
} hk_isa;

typedef struct hk_context_options {
    size_t struct_size;     // set by hk_context_options_init, never by hand
    hk_log_fn log;          // NULL: silent
    void *log_user;         // handed to log
    hk_log_level log_level; // lines below it are dropped; default INFO
    uint32_t threads;       // thread budget; 0: the cores this process may use
    hk_isa isa;             // default AUTO
    uint32_t reserved;      // zero
} hk_context_options;

// Fills *opt with defaults. Pass sizeof *opt, so that the struct may grow.
HK_API void hk_context_options_init(hk_context_options *opt,
                                    size_t struct_size);

// Creates a context. opt: copied; NULL takes every default.
HK_API hk_status hk_context_create(const hk_context_options *opt,
                                   hk_context **out);

// Frees the context. Plans still held elsewhere stay valid; NULL is allowed.
HK_API void hk_context_destroy(hk_context *ctx);

typedef struct hk_context_info {
    uint32_t threads;           // the budget
    hk_isa isa;                 // never AUTO
    uint64_t graph_builds;      // calls of a model_fn
    uint64_t plan_compilations; // by hk_plan_get and what is built on it
    uint64_t plan_hits;         // answered from the cache of plans
} hk_context_info;

HK_API void hk_context_get_info(const hk_context *ctx, hk_context_info *out);

// Asks every loop that runs under this context to end soon. Async-signal-safe:
// may be called from a signal handler. reason: any non-zero number.
HK_API void hk_request_stop(hk_context *ctx, int reason);
HK_API int hk_stop_requested(const hk_context *ctx); // the reason, 0 if none

// Replaces the allocator of the whole process. fn(user, ptr, old, new) works
// like realloc: new == 0 frees, ptr == NULL allocates, NULL means failure;
// results must be aligned to 16 bytes. Call before any other Hooke call.
typedef void *(*hk_alloc_fn)(void *user, void *ptr, size_t old_bytes,
                             size_t new_bytes);
HK_API void hk_set_allocator(hk_alloc_fn fn, void *user);

HK_END_C
#endif // HOOKE_CONTEXT_H
