// copy_options.c - option structs with everything they point at, in an arena.
#include "estimator/estimator.h"

hk_status hki_copy_text(hki_arena *a, const char **s) {
    return *s != NULL ? hki_arena_strdup(a, *s, s) : HK_OK;
}

hk_status hki_copy_optimizer(hki_arena *a, const hk_optimizer_options *src,
                             hk_optimizer_options *dst) {
    hk_optimizer_options o;
    hk_optimizer_options_init(&o, sizeof o, src->kind);
    HKI_TRY(hki_options_copy(&o, sizeof o, src, "optimizer options"));
    HKI_TRY(hki_copy_text(a, &o.name));
    HKI_TRY(hki_copy_text(a, &o.learning_rate_name));
    const char **list;
    HKI_TRY(hki_arena_alloc(a, o.n_skip, sizeof *list, &list));
    for (size_t i = 0; i < o.n_skip; i++)
        HKI_TRY(hki_arena_strdup(a, o.skip_list[i], &list[i]));
    o.skip_list = list;
    if (o.other != NULL) {
        hk_optimizer_options *other;
        HKI_TRY(hki_copy_text(a, &o.other_prefix));
        HKI_TRY(hki_arena_alloc(a, 1, sizeof *other, &other));
        HKI_TRY(hki_copy_optimizer(a, o.other, other));
        o.other = other;
    }
    if (o.schedule != NULL)
        hk_schedule_retain(o.schedule);
    *dst = o;
    return HK_OK;
}

hk_status hki_copy_elastic(hki_arena *a, const hk_elastic_options *src,
                           hk_elastic_options *dst) {
    hk_elastic_options o;
    HKI_TRY(HKI_OPTIONS_GET(hk_elastic_options, &o, src, "elastic options"));
    HKI_TRY(hki_copy_text(a, &o.name));
    *dst = o;
    return HK_OK;
}

hk_status hki_copy_ema(hki_arena *a, const hk_ema_options *src,
                       hk_ema_options *dst) {
    hk_ema_options o;
    HKI_TRY(HKI_OPTIONS_GET(hk_ema_options, &o, src, "average options"));
    HKI_TRY(hki_copy_text(a, &o.name));
    HKI_TRY(hki_copy_text(a, &o.scope));
    *dst = o;
    return HK_OK;
}

hk_status hki_copy_element(hki_arena *a, const hk_element *src,
                           hk_element *dst) {
    hk_value *values;
    HKI_TRY(hki_arena_alloc(a, src->count, sizeof *values, &values));
    for (size_t i = 0; i < src->count; i++) {
        values[i] = src->values[i];
        values[i].tensor = values[i].index = NULL;
        HKI_TRY(hki_arena_strdup(a, src->values[i].name, &values[i].name));
    }
    *dst = (hk_element){.count = src->count, .values = values};
    return HK_OK;
}
