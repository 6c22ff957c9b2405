// hk_test.h - what every test needs: cmocka, status checks, comparison of
// floats, and the loop that lets every allocation fail once.
//
// Include it first: the internal headers poison some names of <stdio.h>.
#ifndef HK_TEST_H
#define HK_TEST_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/base.h"
#include "tensor/tensor.h"

// The call succeeds; otherwise its message is printed.
#define assert_ok(expr)                                                        \
    do {                                                                       \
        const hk_status hk_test_s_ = (expr);                                   \
        if (hk_test_s_ != HK_OK)                                               \
            fail_msg("%s: %s: %s", #expr, hk_status_string(hk_test_s_),        \
                     hk_last_error());                                         \
    } while (0)

// The call fails with this status and leaves a message.
#define assert_status(expr, expected)                                          \
    do {                                                                       \
        const hk_status hk_test_s_ = (expr);                                   \
        if (hk_test_s_ != (expected))                                          \
            fail_msg("%s: got %s, expected %s (%s)", #expr,                    \
                     hk_status_string(hk_test_s_), hk_status_string(expected), \
                     hk_last_error());                                         \
        if (hk_test_s_ != HK_OK && hk_last_error()[0] == '\0')                 \
            fail_msg("%s: failed without a message", #expr);                   \
    } while (0)

// |a - b| <= abs_tol + rel_tol * |b|; NaN equals NaN, infinities by sign.
static inline bool hk_test_close(double a, double b, double abs_tol,
                                 double rel_tol) {
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    if (isinf(a) || isinf(b))
        return a == b;
    return fabs(a - b) <= abs_tol + rel_tol * fabs(b);
}

#define assert_close(a, b, abs_tol, rel_tol)                                   \
    do {                                                                       \
        const double hk_test_a_ = (a), hk_test_b_ = (b);                       \
        if (!hk_test_close(hk_test_a_, hk_test_b_, abs_tol, rel_tol))          \
            fail_msg("%s = %.9g, %s = %.9g", #a, hk_test_a_, #b, hk_test_b_);  \
    } while (0)

// Compares n floats with the expected ones; what: printed on failure.
static inline void hk_test_floats(const char *what, const float *got,
                                  const float *expected, size_t n,
                                  double abs_tol, double rel_tol) {
    for (size_t i = 0; i < n; i++)
        if (!hk_test_close((double)got[i], (double)expected[i], abs_tol,
                           rel_tol))
            fail_msg("%s: element %zu of %zu is %.9g, expected %.9g", what, i,
                     n, (double)got[i], (double)expected[i]);
}

// Calls body(user) with its first, second, ... allocation failing, until it
// gets through. body creates, and on success destroys, what it tests. Every
// failure has to be HK_E_NO_MEMORY and leave no block behind. A body that
// survives a fault (a cache that is allowed to do without) also passes.
static inline void hk_test_alloc_failures(const char *what,
                                          hk_status (*body)(void *),
                                          void *user) {
    for (uint64_t n = 1;; n++) {
        const int64_t live = hki_alloc_live();
        hki_alloc_fail_at(n);
        const hk_status s = body(user);
        const bool hit = hki_alloc_fault_hit();
        hki_alloc_fail_at(0);
        if (s != HK_OK && (!hit || s != HK_E_NO_MEMORY))
            fail_msg("%s: allocation %llu failing gave %s (%s)", what,
                     (unsigned long long)n, hk_status_string(s),
                     hk_last_error());
        if (hki_alloc_live() != live)
            fail_msg("%s: allocation %llu failing left %lld blocks", what,
                     (unsigned long long)n,
                     (long long)(hki_alloc_live() - live));
        if (!hit)
            return;
    }
}

// Calls of a model_fn so far.
static inline uint64_t graph_builds(const hk_context *ctx) {
    hk_context_info info;
    hk_context_get_info(ctx, &info);
    return info.graph_builds;
}

#endif // HK_TEST_H
