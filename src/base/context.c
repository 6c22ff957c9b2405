// context.c - the root object.
#include <stdatomic.h>
#include "base/base.h"
#include "base/team.h"

struct hk_context {
    hk_context_options opt; // as validated; threads and isa are resolved
    hki_mutex log_lock;     // one call of opt.log at a time
    hki_mutex slot_lock;    // guards slot and slot_destroy
    void *slot;
    void (*slot_destroy)(void *);
    atomic_uint_fast64_t counts[HKI_CONTEXT_COUNTERS];
    atomic_int stop;     // reason, 0: none
    hki_wake *stop_wake; // signalled while there is a reason
};

// hk_request_stop may run in a signal handler.
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "stop flag is lock-free");

static const hk_context_options defaults = {
    .struct_size = sizeof(hk_context_options),
    .log_level = HK_LOG_INFO,
    .isa = HK_ISA_AUTO,
};

HKI_OPTIONS_FROM(hk_context_options, reserved, defaults)

// Checks *opt and replaces "choose for me" by the choice.
static hk_status resolve(hk_context_options *opt) {
    if (opt->reserved != 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "context: options.reserved is %u, not 0",
                        opt->reserved);
    HKI_TRY(hki_isa_resolve("context", opt->isa, &opt->isa));
    return hki_team_threads("context", opt->threads, &opt->threads);
}

hk_status hk_context_create(const hk_context_options *opt, hk_context **out) {
    hk_context_options o = defaults;
    if (out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "context: out is NULL");
    HKI_TRY(hki_options_copy(&o, sizeof o, opt, "context"));
    HKI_TRY(resolve(&o));
    hk_context *ctx;
    HKI_TRY(hki_zalloc_array(1, sizeof *ctx, &ctx));
    ctx->opt = o;
    hki_mutex_init(&ctx->log_lock);
    hki_mutex_init(&ctx->slot_lock);
    atomic_init(&ctx->stop, 0);
    HKI_TRY_OR(hki_wake_create("context", &ctx->stop_wake),
               hk_context_destroy(ctx));
    *out = ctx;
    return HK_OK;
}

void hk_context_destroy(hk_context *ctx) {
    if (ctx == NULL)
        return;
    if (ctx->slot != NULL)
        ctx->slot_destroy(ctx->slot);
    hki_wake_destroy(ctx->stop_wake);
    hki_mutex_deinit(&ctx->slot_lock);
    hki_mutex_deinit(&ctx->log_lock);
    hki_free(ctx);
}

void hk_context_get_info(const hk_context *ctx, hk_context_info *out) {
    *out = (hk_context_info){.threads = ctx->opt.threads, .isa = ctx->opt.isa};
    out->graph_builds = atomic_load(&ctx->counts[HKI_GRAPH_BUILDS]);
    out->plan_compilations = atomic_load(&ctx->counts[HKI_PLAN_COMPILATIONS]);
    out->plan_hits = atomic_load(&ctx->counts[HKI_PLAN_HITS]);
}

void hki_context_count(hk_context *ctx, hki_context_counter what) {
    atomic_fetch_add(&ctx->counts[what], 1);
}

uint32_t hki_context_threads(const hk_context *ctx) {
    return ctx->opt.threads;
}

hk_isa hki_context_isa(const hk_context *ctx) {
    return ctx->opt.isa;
}

// A request may come between the two calls.
static void reset_stop_wake(hk_context *ctx) {
    hki_wake_reset(ctx->stop_wake);
    if (atomic_load(&ctx->stop) != 0)
        hki_wake_signal(ctx->stop_wake);
}

void hk_request_stop(hk_context *ctx, int reason) {
    atomic_store(&ctx->stop, reason);
    if (reason != 0)
        hki_wake_signal(ctx->stop_wake);
    else
        reset_stop_wake(ctx);
}

int hk_stop_requested(const hk_context *ctx) {
    return atomic_load(&ctx->stop);
}

bool hki_nap_until(hk_context *ctx, const hki_wake *wake, int64_t deadline_ns) {
    const hki_wake *const stop = ctx != NULL ? ctx->stop_wake : NULL;
    hki_waitable w[] = {hki_wake_waitable(wake), hki_wake_waitable(stop)};
    do {
        if (ctx != NULL && hk_stop_requested(ctx) != 0)
            return true;
        if (hki_wait_any(w, HKI_COUNT(w), deadline_ns) != HK_OK)
            return false;
        // A process that was forked shares the wake object, not the reason.
        if (ctx != NULL && hki_is_ready(&w[1]) && hk_stop_requested(ctx) == 0)
            reset_stop_wake(ctx);
    } while (!hki_is_ready(&w[0]));
    return true;
}

void hki_log(hk_context *ctx, hk_log_level level, const char *fmt, ...) {
    if (ctx == NULL || ctx->opt.log == NULL || level < ctx->opt.log_level)
        return;
    char text[2048]; // longer lines are cut
    va_list ap;
    va_start(ap, fmt);
    const int length = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (length < 0)
        return;
    HKI_LOCKED(&ctx->log_lock);
    ctx->opt.log(ctx->opt.log_user, level, text);
}

hk_status hki_context_slot(hk_context *ctx, hk_status (*create)(void **out),
                           void (*destroy)(void *), void **out) {
    HKI_LOCKED(&ctx->slot_lock);
    if (ctx->slot == NULL) {
        HKI_TRY_OR(create(&ctx->slot), ctx->slot = NULL);
        ctx->slot_destroy = destroy;
    }
    *out = ctx->slot;
    return HK_OK;
}
