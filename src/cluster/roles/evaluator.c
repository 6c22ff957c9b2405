// evaluator.c - evaluates the newest weights of a source again and again.
#include "cluster/cluster.h"
#include "hooke/ckpt.h"

bool hki_evaluator_is_due(const hki_evaluator *v) {
    return v->began_ns == 0 || hki_now_ns() - v->began_ns >= v->throttle_ns;
}

// The newest checkpoint, if it is another one than the last that was evaluated.
static hk_status find_checkpoint(hki_evaluator *v, hki_found_weights *out) {
    char path[sizeof v->path];
    int64_t step;
    const hk_status s =
        hk_latest_checkpoint(v->directory, path, sizeof path, &step);
    if (s == HK_E_NOT_FOUND)
        return HK_OK;
    HKI_TRY(s);
    if (strcmp(path, v->path) == 0 && !out->what.is_final)
        return HK_OK;
    memcpy(v->path, path, sizeof path);
    out->what.path = v->path;
    out->what.global_step = HKI_MAX(step, INT64_C(0));
    out->is_new = true;
    return HK_OK;
}

hk_status hki_evaluator_visit(hki_evaluator *v, bool is_final,
                              bool *has_evaluated) {
    hki_found_weights found = {.what.is_final = is_final};
    *has_evaluated = false;
    if (!is_final && !hki_evaluator_is_due(v))
        return HK_OK;
    HKI_TRY(v->find_live != NULL ? v->find_live(v, &found)
                                 : find_checkpoint(v, &found));
    if (!found.is_new)
        return HK_OK;
    v->began_ns = hki_now_ns();
    HKI_TRY(v->evaluate(v, &found.what));
    v->step = found.what.global_step;
    v->version = found.version;
    v->has_evaluated = *has_evaluated = true;
    return HK_OK;
}

hk_status hki_evaluator_watch(hki_evaluator *v, const hki_watch_options *opt,
                              bool *stopped) {
    *stopped = hki_nap(opt->context, opt->start_ms);
    for (bool is_over = false; !*stopped && !is_over;) {
        HKI_TRY(opt->visit(v, &is_over));
        if (!is_over)
            *stopped = hki_nap(opt->context, opt->poll_ms);
    }
    return HK_OK;
}
