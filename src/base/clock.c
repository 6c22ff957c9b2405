// clock.c - deadlines, and sleeping until a stop is asked for.
#include "base/base.h"

int64_t hki_deadline(int64_t wait_ms) {
    const int64_t now = hki_now_ns();
    const int64_t most = (INT64_MAX - now) / 1000000;
    return now + HKI_MIN(HKI_MAX(wait_ms, 0), most) * 1000000;
}

bool hki_nap(hk_context *ctx, int64_t ms) {
    const int64_t slice_ms = 20; // how late a stop may be noticed
    const int64_t deadline = hki_now_ns() + ms * 1000000;
    for (;;) {
        if (ctx != NULL && hk_stop_requested(ctx) != 0)
            return true;
        const int64_t left = deadline - hki_now_ns();
        if (left <= 0)
            return false;
        hki_sleep_ns(HKI_MIN(left, slice_ms * 1000000));
    }
}
