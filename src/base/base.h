// base.h - what every module stands on: status text, memory, arena, log,
// counter-based random numbers, ISA level, and the runtime.
#ifndef HKI_BASE_H
#define HKI_BASE_H
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "hooke/context.h"
#include "hooke/status.h"
#include "base/assert.h"
#include "base/banned.h"
#include "base/isa.h"
#include "base/runtime.h"

// ---- status ---------------------------------------------------------------

// Stores the message for hk_last_error() and returns s.
hk_status hki_fail(hk_status s, const char *fmt, ...)
    __attribute__((format(__printf__, 2, 3)));

// Compilers cannot see that what comes back is a failure, and would warn of
// results that are not set then.
static inline hk_status hki_failed(hk_status s) {
    if (s == HK_OK)
        __builtin_unreachable();
    return s;
}
#define hki_fail(...) hki_failed((hki_fail)(__VA_ARGS__))

#define HKI_TRY(expr)                                                          \
    do {                                                                       \
        const hk_status hki_try_ = (expr);                                     \
        if (hki_try_ != HK_OK)                                                 \
            return hki_try_;                                                   \
    } while (0)

// The same after `undo`, which gives back what was made so far.
#define HKI_TRY_OR(expr, undo)                                                 \
    do {                                                                       \
        const hk_status hki_try_ = (expr);                                     \
        if (hki_try_ != HK_OK) {                                               \
            undo;                                                              \
            return hki_try_;                                                   \
        }                                                                      \
    } while (0)

// Fills the caller's option struct of struct_size bytes with the library's
// defaults; what the library does not know becomes zero.
void hki_options_init(void *opt, size_t struct_size, const void *defaults,
                      size_t defaults_size);

// Behind `last` an option struct has no padding, so that it can grow there.
#define HKI_NO_TAIL(type, last)                                                \
    _Static_assert(sizeof(type) ==                                             \
                       offsetof(type, last) + sizeof(((type *)0)->last),       \
                   #type " has tail padding")

// Defines type_init(type *, size_t struct_size) with the defaults that are
// given as designated initialisers; the rest is zero. `last` is the last field.
#define HKI_OPTIONS(type, last, ...)                                           \
    HKI_NO_TAIL(type, last);                                                   \
    void type##_init(type *opt, size_t struct_size) {                          \
        const type d = {.struct_size = sizeof d, __VA_ARGS__};                 \
        hki_options_init(opt, struct_size, &d, sizeof d);                      \
    }

// The same with defaults that have a name.
#define HKI_OPTIONS_FROM(type, last, defaults)                                 \
    HKI_NO_TAIL(type, last);                                                   \
    void type##_init(type *opt, size_t struct_size) {                          \
        hki_options_init(opt, struct_size, &(defaults), sizeof(defaults));     \
    }

// Validates the struct_size protocol of option structs and copies the
// caller's struct over the defaults in *dst (dst_size bytes, already filled).
// A shorter struct keeps defaults for the rest; a longer one is refused if
// its unknown bytes are not zero.
hk_status hki_options_copy(void *dst, size_t dst_size, const void *src,
                           const char *what);
// Options of a public struct: its defaults, then what src gives.
#define HKI_OPTIONS_GET(type, dst, src, what)                                  \
    (type##_init((dst), sizeof *(dst)),                                        \
     hki_options_copy((dst), sizeof *(dst), (src), (what)))

// A fault that travels between threads.
typedef struct hki_fault {
    hk_status status; // HK_OK: none
    char text[1024];
} hki_fault;

// Remembers s with this thread's message.
void hki_fault_set(hki_fault *f, hk_status s);
hki_fault hki_fault_of(hk_status s); // the same, of its own
// Raises it in the calling thread; HK_OK when there is none.
hk_status hki_fault_raise(const hki_fault *f);
// The same, and it is told: none is left.
hk_status hki_fault_take(hki_fault *f);

// ---- memory ---------------------------------------------------------------
//
// Every block is 64-byte aligned and knows its size. out is the address of a
// typed pointer. A count or size of zero gives a valid, unique pointer.

hk_status hki_alloc_array(size_t count, size_t size, void *out);
hk_status hki_zalloc_array(size_t count, size_t size, void *out);
// Grows or shrinks *ptr (address of a typed pointer) to count elements.
hk_status hki_realloc_array(size_t count, size_t size, void *ptr);

// Growing arrays: data, n, capacity; freed with hki_free(list.data).
#define HKI_LIST(T)                                                            \
    struct {                                                                   \
        T *data;                                                               \
        size_t n, capacity;                                                    \
    }
// Room for n elements at *data, a pointer to an array of them.
hk_status hki_list_reserve(void *data, size_t n, size_t *capacity,
                           size_t elem_bytes);
// Room for one more.
#define HKI_LIST_ROOM(l)                                                       \
    hki_list_reserve(&(l).data, (l).n + 1, &(l).capacity, sizeof *(l).data)
void hki_free(void *ptr); // NULL is allowed

// A variable that ends with its scope, by whichever return that is left:
//     HKI_SCOPED(hki_buf_deinit) hki_buf text = {0};
//     HKI_FREED char *path = NULL;
// It has a value from the start; the last one made ends first. What is handed
// on is set to NULL before the return.
#define HKI_SCOPED(end) __attribute__((cleanup(end), unused))
// For handles: hk_ckpt_close_at(hk_ckpt **) of hk_ckpt_close(hk_ckpt *).
#define HKI_SCOPED_HANDLE(type, end)                                           \
    static inline void end##_at(type **at) {                                   \
        if (*at != NULL)                                                       \
            end(*at);                                                          \
    }
static inline void hki_free_at(void *at) {
    void *ptr;
    memcpy(&ptr, at, sizeof ptr);
    hki_free(ptr);
}
#define HKI_FREED HKI_SCOPED(hki_free_at)
// Hands a scoped handle on: return HKI_HAND_ON(out, handle);
#define HKI_HAND_ON(out, handle) (*(out) = (handle), (handle) = NULL, HK_OK)
hk_status hki_strdup(const char *s, char **out);

static inline bool hki_mul_overflow(size_t a, size_t b, size_t *out) {
    return __builtin_mul_overflow(a, b, out); // true: overflow
}
static inline bool hki_add_overflow(size_t a, size_t b, size_t *out) {
    return __builtin_add_overflow(a, b, out);
}

// Counters and faults for tests.
uint64_t hki_alloc_count(void);       // allocations since process start
int64_t hki_alloc_live(void);         // blocks not yet freed
void hki_alloc_fail_at(uint64_t nth); // the nth from now fails; 0: never
bool hki_alloc_fault_hit(void);       // the armed fault has fired

// ---- arena ----------------------------------------------------------------

// Memory that is freed at once. A zeroed struct is an empty arena. What it
// hands out is zeroed, aligned to 16 bytes, from 64 bytes up to 64.
typedef struct hki_arena {
    struct hki_arena_block *head;
    size_t total_bytes;
} hki_arena;

hk_status hki_arena_alloc(hki_arena *a, size_t count, size_t size, void *out);
hk_status hki_arena_strdup(hki_arena *a, const char *s, const char **out);
// Formatted string in the arena.
hk_status hki_arena_printf(hki_arena *a, const char **out, const char *fmt, ...)
    __attribute__((format(__printf__, 3, 4)));
void hki_arena_deinit(hki_arena *a);

// ---- growing byte string --------------------------------------------------

typedef struct hki_buf { // zeroed: empty
    char *data;          // always NUL-terminated once non-NULL
    size_t size, capacity;
} hki_buf;

// Makes room: appending `more` bytes then cannot fail.
hk_status hki_buf_reserve(hki_buf *b, size_t more);
hk_status hki_buf_add(hki_buf *b, const void *bytes, size_t size);
hk_status hki_buf_printf(hki_buf *b, const char *fmt, ...)
    __attribute__((format(__printf__, 2, 3)));
hk_status hki_buf_vprintf(hki_buf *b, const char *fmt, va_list ap);
void hki_buf_deinit(hki_buf *b);

// ---- context --------------------------------------------------------------

void hki_log(hk_context *ctx, hk_log_level level, const char *fmt, ...)
    __attribute__((format(__printf__, 3, 4)));

uint32_t hki_context_threads(const hk_context *ctx); // the budget
hk_isa hki_context_isa(const hk_context *ctx);       // never AUTO

// What hk_context_get_info counts.
typedef enum hki_context_counter {
    HKI_GRAPH_BUILDS,
    HKI_PLAN_COMPILATIONS,
    HKI_PLAN_HITS,
    HKI_CONTEXT_COUNTERS
} hki_context_counter;

void hki_context_count(hk_context *ctx, hki_context_counter what);

// One owned object hung on the context by a higher module (the plan cache).
// Created on first use under the context's lock; destroyed with the context.
hk_status hki_context_slot(hk_context *ctx, hk_status (*create)(void **out),
                           void (*destroy)(void *), void **out);

// ---- random numbers -------------------------------------------------------
//
// Philox4x32-10 (Salmon et al. 2011): a pure function of (key, counter), so
// a stream can be split, saved and entered at any point.

typedef struct hki_philox {
    uint32_t key[2];
    uint32_t counter[4];
} hki_philox;

void hki_philox_block(const uint32_t key[2], const uint32_t counter[4],
                      uint32_t out[4]);

// A sequential stream over the same function. Plain data: copy it to save it.
typedef struct hki_rng {
    hki_philox state;
    uint32_t block[4];
    uint32_t used; // words of block already handed out; 4: none left
    uint32_t reserved;
} hki_rng;

void hki_rng_init(hki_rng *r, uint64_t seed, uint64_t stream);
uint32_t hki_rng_u32(hki_rng *r);
uint64_t hki_rng_u64(hki_rng *r);
uint64_t hki_rng_below(hki_rng *r, uint64_t n); // uniform in [0, n), n > 0
double hki_rng_uniform(hki_rng *r);             // [0, 1), 53 bits
double hki_rng_normal(hki_rng *r);              // mean 0, variance 1

// 64-bit hash of bytes (FNV-1a), chained by passing the last value; start
// with HKI_HASH_INIT.
#define HKI_HASH_INIT UINT64_C(0xcbf29ce484222325)
uint64_t hki_hash(uint64_t h, const void *bytes, size_t size);

// ---- numbers as text --------------------------------------------------------

// The digits at *p, which moves behind them; false: there are none before end,
// or their number is too large.
bool hki_scan_u64(const char **p, const char *end, uint64_t *out);
// A decimal number in [low, high], nothing else around it.
bool hki_parse_u32(const char *text, uint32_t low, uint32_t high,
                   uint32_t *out);

// ---- lock files -----------------------------------------------------------

typedef struct hki_lockfile hki_lockfile; // opaque

// Takes the file for this holder, making it if need be; its folder exists.
// HK_E_EXISTS, with the holder's process id, when it is taken, also by this
// process. The system gives it back when the process ends.
hk_status hki_lockfile_take(const char *path, hki_lockfile **out);
void hki_lockfile_release(hki_lockfile *l); // removes it; NULL is allowed

// ---- small things ---------------------------------------------------------

// Tell ThreadSanitizer of an order that it cannot see, such as the fork and
// join inside libgomp: what happened before RELEASE(p) in one thread happens
// before what follows ACQUIRE(p) in another. Nothing in other builds.
#if defined(__SANITIZE_THREAD__)
#define HKI_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HKI_TSAN 1
#endif
#endif
#if defined(HKI_TSAN)
void __tsan_acquire(void *p);
void __tsan_release(void *p);
#define HKI_TSAN_ACQUIRE(p) __tsan_acquire((void *)(uintptr_t)(p))
#define HKI_TSAN_RELEASE(p) __tsan_release((void *)(uintptr_t)(p))
#else
#define HKI_TSAN_ACQUIRE(p) ((void)(p))
#define HKI_TSAN_RELEASE(p) ((void)(p))
#endif

// ---- subnormal numbers ----------------------------------------------------

// Takes subnormals as zero in the calling thread from here on; gives what
// hki_subnormals_restore needs. Nothing where the CPU has no such switch.
uint32_t hki_subnormals_off(void);
void hki_subnormals_restore(uint32_t before);

// Little-endian fields, byte by byte: compilers make one load or store of it
// where the machine is little-endian, and the others stay right.
static inline uint32_t hki_get_u16(const void *p) {
    const uint8_t *const b = (const uint8_t *)p;
    return (uint32_t)(b[0] | b[1] << 8);
}
static inline uint32_t hki_get_u32(const void *p) {
    return hki_get_u16(p) | hki_get_u16((const uint8_t *)p + 2) << 16;
}
static inline uint64_t hki_get_u64(const void *p) {
    return hki_get_u32(p) | (uint64_t)hki_get_u32((const uint8_t *)p + 4) << 32;
}
static inline void hki_put_u16(void *p, uint32_t v) {
    uint8_t *const b = (uint8_t *)p;
    b[0] = (uint8_t)v;
    b[1] = (uint8_t)(v >> 8);
}
static inline void hki_put_u32(void *p, uint32_t v) {
    hki_put_u16(p, v);
    hki_put_u16((uint8_t *)p + 2, v >> 16);
}
static inline void hki_put_u64(void *p, uint64_t v) {
    hki_put_u32(p, (uint32_t)v);
    hki_put_u32((uint8_t *)p + 4, (uint32_t)(v >> 32));
}

#define HKI_MIN(a, b) ((a) < (b) ? (a) : (b))
#define HKI_MAX(a, b) ((a) > (b) ? (a) : (b))
#define HKI_COUNT(a) (sizeof(a) / sizeof((a)[0]))

// Bisection: i becomes the first of 0 .. n - 1 for which `holds`, an expression
// of i that is false before and true from there on; n when there is none.
#define HKI_FIRST(i, n, holds)                                                 \
    do {                                                                       \
        size_t hki_low_ = 0, hki_high_ = (n);                                  \
        while (hki_low_ < hki_high_) {                                         \
            (i) = hki_low_ + (hki_high_ - hki_low_) / 2;                       \
            if (holds)                                                         \
                hki_high_ = (i);                                               \
            else                                                               \
                hki_low_ = (i) + 1;                                            \
        }                                                                      \
        (i) = hki_low_;                                                        \
    } while (0)

#endif // HKI_BASE_H
