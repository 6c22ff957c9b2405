// go_back.c - a worker that went astray: what it would give, and its way back.
#include "elastic/worker.h"
#include <math.h>

bool hki_elastic_gives_before(const hk_elastic *e) {
    return e->paper && e->local_step % e->opt.communication_period == 0;
}

bool hki_elastic_gives_after(const hk_elastic *e) {
    return !e->paper && e->due;
}

static double sum_squares(const float *x, int64_t n) {
    const hki_optim_kernels *k;
    if (hki_optim_kernels_pick(HK_ISA_AUTO, "norm", &k) != HK_OK)
        return (double)NAN;
    return k->sum_squares(x, n);
}

// State (batch norm's statistics) may be of any size, a gradient as well; what
// is not finite makes the sum so.
double hki_elastic_given_norm(const hk_elastic *e, const float *x) {
    const hki_parts *const parts = &e->center->parts;
    double weights = 0, others = 0;
    for (size_t i = 0; i < parts->count; i++) {
        const hki_share_part *const p = &parts->part[i];
        const double s = sum_squares(x + p->begin, p->end - p->begin);
        *(p->state ? &others : &weights) += s;
    }
    if (e->grad != NULL)
        others += sum_squares(e->grad, hki_layout_train(e->layout));
    return isfinite(others) ? sqrt(weights) : (double)NAN;
}

static void take_view(hk_elastic *e, float *x) {
    const hki_parts *const parts = &e->center->parts;
    for (size_t i = 0; i < parts->count; i++) {
        const hki_share_part *const p = &parts->part[i];
        memcpy(x + p->begin, e->view + p->begin,
               (size_t)(p->end - p->begin) * sizeof *x);
    }
    e->all_touched = true;
}

hk_status hki_elastic_go_back(hk_elastic *e, float *x) {
    hk_center_info info;
    HKI_TRY(hki_elastic_ready(e, "go back"));
    HKI_TRY(hki_overlap_drop(e));
    e->accumulated = 0;
    if (e->grad != NULL)
        memset(e->grad, 0,
               (size_t)hki_layout_train(e->layout) * sizeof *e->grad);
    HKI_TRY(hk_center_get_info(e->center, &info));
    if (e->view != NULL && info.turn != HK_TURN_FREE) {
        take_view(e, x);
        return HK_OK;
    }
    HKI_TRY(e->center->ops->pull(e->center, e->m, x, e->view, e->opt.side,
                                 hki_deadline(e->opt.wait_ms),
                                 &e->center_step));
    hki_touched_clear(e);
    return HK_OK;
}
