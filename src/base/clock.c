// clock.c - deadlines, and sleeping until a stop is asked for.
#include "base/base.h"

int64_t hki_deadline(int64_t wait_ms) {
    const int64_t now = hki_now_ns();
    const int64_t most = (INT64_MAX - now) / 1000000;
    return now + HKI_MIN(HKI_MAX(wait_ms, 0), most) * 1000000;
}

bool hki_nap(hk_context *ctx, int64_t ms) {
    return hki_nap_until(ctx, NULL, hki_deadline(ms));
}
