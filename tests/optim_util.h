// optim_util.h - what the tests of the optim module share.
#ifndef HOOKE_TESTS_OPTIM_UTIL_H
#define HOOKE_TESTS_OPTIM_UTIL_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "hooke/average.h"
#include "hooke/gradproc.h"
#include "hooke/optim.h"
#include "tensor/tensor.h"

#define UNUSED __attribute__((unused))
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

#define assert_ok(expr)                                                        \
    do {                                                                       \
        const hk_status ok_ = (expr);                                          \
        if (ok_ != HK_OK)                                                      \
            fail_msg("%s: %s: %s", #expr, hk_status_string(ok_),               \
                     hk_last_error());                                         \
    } while (0)

// The call fails with this status and says why.
#define assert_fails(status, expr)                                             \
    do {                                                                       \
        const hk_status got_ = (expr);                                         \
        if (got_ != (status))                                                  \
            fail_msg("%s: %s, not %s", #expr, hk_status_string(got_),          \
                     hk_status_string(status));                                \
        assert_true(hk_last_error()[0] != '\0');                               \
    } while (0)

static UNUSED const struct {
    hk_optimizer_kind kind;
    const char *name;
} kinds[] = {
    {HK_OPT_GRADIENT_DESCENT, "GradientDescent"},
    {HK_OPT_MOMENTUM, "Momentum"},
    {HK_OPT_ADAGRAD, "Adagrad"},
    {HK_OPT_ADAGRAD_DA, "AdagradDA"},
    {HK_OPT_ADADELTA, "Adadelta"},
    {HK_OPT_ADAM, "Adam"},
    {HK_OPT_ADAMW, "AdamW"},
    {HK_OPT_AMSGRAD, "AMSGrad"},
    {HK_OPT_LAZY_ADAM, "LazyAdam"},
    {HK_OPT_RMSPROP, "RMSProp"},
    {HK_OPT_FTRL, "Ftrl"},
    {HK_OPT_PROXIMAL_GRADIENT_DESCENT, "ProximalGradientDescent"},
    {HK_OPT_PROXIMAL_ADAGRAD, "ProximalAdagrad"},
    {HK_OPT_LARS, "LARS"},
    {HK_OPT_LAMB, "LAMB"},
    {HK_OPT_LION, "Lion"},
};

static UNUSED hk_layout_item item(const char *name, int64_t rows, int64_t dim,
                                  hk_kind kind, uint32_t sparse) {
    return (hk_layout_item){
        .name = name,
        .shape = dim > 0 ? hk_shape_make(2, (int64_t[]){rows, dim})
                         : hk_shape_make(1, (int64_t[]){rows}),
        .dtype = HK_F32,
        .kind = kind,
        .sparse = sparse,
    };
}

static UNUSED hk_layout *make_layout(const hk_layout_item *items, size_t n) {
    hk_layout *l;
    assert_ok(hk_layout_create(items, n, &l));
    return l;
}

static UNUSED void *zeroed(size_t n, size_t size) {
    void *const p = calloc(n + 1, size);
    assert_non_null(p);
    return p;
}

// Numbers in [-1, 1), a function of the seed.
static UNUSED float noise(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (float)(int32_t)(*state >> 32) * 0x1p-31f;
}

// Fills the trainable entries of a vector, leaves the gaps zero.
static UNUSED void fill(const hk_layout *l, float *x, int64_t end,
                        uint64_t seed, float scale) {
    const hk_entry *e;
    for (size_t i = 0; (e = hk_layout_entry(l, i)) != NULL; i++)
        for (int64_t j = 0;
             e->dtype == HK_F32 && e->offset < end && j < e->count; j++)
            x[e->offset + j] = scale * noise(&seed);
}

static UNUSED hk_optimizer *make_optimizer(hk_optimizer_kind kind, hk_layout *l,
                                           uint32_t threads) {
    hk_optimizer_options o;
    hk_optimizer *opt;
    hk_optimizer_options_init(&o, sizeof o, kind);
    o.threads = threads;
    assert_ok(hk_optimizer_create(&o, l, &opt));
    return opt;
}

static UNUSED hk_ema_info ema_info(const hk_ema *e) {
    hk_ema_info info;
    assert_ok(hk_ema_get_info(e, &info));
    return info;
}

#endif // HOOKE_TESTS_OPTIM_UTIL_H
