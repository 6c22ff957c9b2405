// go_back.c - a worker that went astray: what it would give, and its way back.
#include "elastic/worker.h"
#include <math.h>

bool hki_elastic_gives_before(const hk_elastic *e) {
    return e->paper && e->local_step % e->opt.communication_period == 0;
}

bool hki_elastic_gives_after(const hk_elastic *e) {
    return !e->paper && e->due;
}

double hki_elastic_first_loss(hk_elastic *e, double loss) {
    e->first_loss = HKI_MAX(loss, HKI_MAX(e->first_loss, e->m.first_loss));
    return e->first_loss;
}

// |v|^2 of the chunks: of state apart from that of the rest. All of them in one
// pass: elsewhere each is waited for.
static hk_status part_squares(hk_elastic *e, hki_vector *v, double sum[2]) {
    const hki_partition *const partition = &e->center->partition;
    size_t n = 0;
    float *x;
    HKI_TRY(hki_vector_at(v, HKI_TO_READ, &x));
    for (; n < partition->count && partition->chunk[n].begin < v->n; n++)
        e->given[n] = (hki_chunk){partition->chunk[n].begin,
                                  HKI_MIN(partition->chunk[n].end, v->n), 0};
    const hki_vector_pass a = {.src = x,
                               .end = v->n,
                               .chunks = e->given,
                               .n_chunks = n,
                               .sums = e->given_sums};
    HKI_TRY(e->at->ops->norms(e->at, &a));
    for (size_t i = 0; i < n; i++)
        sum[partition->chunk[i].state] += e->given_sums[i];
    return HK_OK;
}

// State (batch norm's statistics) may be of any size, a gradient as well; what
// is not finite makes the sum so.
hk_status hki_elastic_given_norm(hk_elastic *e, hki_vector *x, double *out) {
    double values[2] = {0}, grad[2] = {0};
    HKI_TRY(hki_elastic_follow(e, x->at));
    HKI_TRY(part_squares(e, x, values));
    if (e->grad.host != NULL)
        HKI_TRY(part_squares(e, &e->grad, grad));
    *out =
        isfinite(values[1] + grad[0] + grad[1]) ? sqrt(values[0]) : (double)NAN;
    return HK_OK;
}

static hk_status take_view(hk_elastic *e, float *x) {
    const hki_partition *const partition = &e->center->partition;
    float *view;
    HKI_TRY(hki_vector_host(&e->view, HKI_TO_READ, &view));
    for (size_t i = 0; i < partition->count; i++) {
        const hki_chunk_range *const p = &partition->chunk[i];
        memcpy(x + p->begin, view + p->begin,
               (size_t)(p->end - p->begin) * sizeof *x);
    }
    e->all_touched = true;
    return HK_OK;
}

hk_status hki_elastic_go_back(hk_elastic *e, hki_vector *x) {
    hk_center_info info;
    float *values, *view;
    HKI_TRY(hki_elastic_ready(e, "go back"));
    HKI_TRY(hki_overlap_drop(e));
    HKI_TRY(hki_elastic_clear_grad(e));
    HKI_TRY(hk_center_get_info(e->center, &info));
    HKI_TRY(hki_vector_host(x, HKI_TO_CHANGE, &values));
    if (e->view.host != NULL && info.turn != HK_TURN_FREE)
        return take_view(e, values);
    HKI_TRY(hki_vector_host(&e->view, HKI_TO_CHANGE, &view));
    HKI_TRY(e->center->ops->pull(e->center, e->m, values, view, e->opt.side,
                                 hki_deadline(e->opt.wait_ms),
                                 &e->center_step));
    hki_touched_clear(e);
    return HK_OK;
}
