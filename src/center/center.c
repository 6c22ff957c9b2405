// center.c - the public calls of a center, over its table.
#include "center/center.h"

static const hk_center_options defaults = {
    .struct_size = sizeof defaults,
    .average_rate = 0.001,
    .method = HK_METHOD_ELASTIC,
    .max_workers = 1024,
    .chunk_kib = 128,
};

HKI_OPTIONS_FROM(hk_center_options, isa, defaults)

hk_status hki_center_options_check(const hk_center_options *src,
                                   hk_center_options *out) {
    *out = defaults;
    HKI_TRY(hki_options_copy(out, sizeof *out, src, "center"));
    if (hki_method_get(out->method) == NULL)
        return hki_fail(HK_E_INVALID_ARG, "center: unknown method %d",
                        (int)out->method);
    if (out->turn != HK_TURN_FREE && out->turn != HK_TURN_ROUND_ROBIN &&
        out->turn != HK_TURN_RECORDED)
        return hki_fail(HK_E_INVALID_ARG, "center: unknown turn order %d",
                        (int)out->turn);
    if (out->max_workers == 0 || out->max_workers > HKI_MAX_SEATS)
        return hki_fail(HK_E_INVALID_ARG,
                        "center: max_workers is %u; it has to be in 1..%u",
                        out->max_workers, HKI_MAX_SEATS);
    if (out->workers > out->max_workers || out->quorum > out->max_workers)
        return hki_fail(HK_E_INVALID_ARG,
                        "center: workers is %u and quorum %u; both can be at "
                        "most max_workers, %u",
                        out->workers, out->quorum, out->max_workers);
    if (out->turn == HK_TURN_ROUND_ROBIN && out->workers == 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "center: turn order round_robin needs the number of "
                        "workers (workers)");
    if (out->chunk_kib == 0 || out->chunk_kib > 1u << 20)
        return hki_fail(HK_E_INVALID_ARG,
                        "center: chunk_kib is %u; it has to be in 1..%u",
                        out->chunk_kib, 1u << 20);
    if (!(out->average_rate > 0 && out->average_rate <= 1))
        return hki_fail(HK_E_INVALID_ARG,
                        "center: average_rate is %g; it has to be in (0, 1]",
                        out->average_rate);
    return HK_OK;
}

hk_status hki_center_base_init(hk_center *c, const hki_center_ops *ops,
                               const hk_center_options *opt, hk_layout *layout,
                               hki_partition_tables tables, uint32_t n_shards) {
    HKI_FREED hk_share *share = NULL;
    c->ops = ops;
    c->method = hki_method_get(opt->method);
    c->layout = hk_layout_retain(layout);
    HKI_TRY(hki_strdup(opt->name != NULL ? opt->name : "center", &c->name));
    HKI_TRY(hki_shares_decide(layout, opt->share, opt->share_user, c->name,
                              &share));
    return hki_partition_init(&c->partition, layout, share,
                              (int64_t)opt->chunk_kib * 256, tables, n_shards,
                              c->name);
}

void hki_center_base_deinit(hk_center *c) {
    hki_partition_deinit(&c->partition);
    hk_layout_release(c->layout);
    hki_free(c->name);
}

void hk_center_destroy(hk_center *c) {
    if (c != NULL)
        c->ops->destroy(c);
}

// What is the same for every center.
static void add_common(const hk_center *c, hk_center_info *out) {
    out->layout = c->layout;
    out->shares = c->partition.share;
}

hk_status hk_center_get_info(hk_center *c, hk_center_info *out) {
    if (c == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "center: info: NULL argument");
    c->ops->info(c, out);
    add_common(c, out);
    return HK_OK;
}

hk_status hk_center_snapshot(hk_center *c, hk_center_part part, int64_t wait_ms,
                             float *values, void *side, hk_center_info *info) {
    if (c == NULL || values == NULL)
        return hki_fail(HK_E_INVALID_ARG, "center: snapshot: NULL argument");
    if (part != HK_CENTER_VALUES && part != HK_CENTER_AVERAGE)
        return hki_fail(HK_E_INVALID_ARG, "%s: snapshot: unknown part %d",
                        c->name, (int)part);
    HKI_TRY(
        c->ops->snapshot(c, part, hki_deadline(wait_ms), values, side, info));
    if (info != NULL)
        add_common(c, info);
    return HK_OK;
}

hk_status hk_center_assign(hk_center *c, const float *values, const void *side,
                           int64_t global_step, int64_t wait_ms) {
    if (c == NULL || values == NULL)
        return hki_fail(HK_E_INVALID_ARG, "center: assign: NULL argument");
    if (global_step < 0)
        return hki_fail(
            HK_E_INVALID_ARG,
            "%s: assign: global_step is %lld; it has to be at least 0", c->name,
            (long long)global_step);
    return c->ops->assign(c, values, side, global_step, hki_deadline(wait_ms));
}

hk_status hk_center_variables(hk_center *c, hk_name_map *map) {
    if (c == NULL || map == NULL)
        return hki_fail(HK_E_INVALID_ARG, "center: variables: NULL argument");
    return c->ops->variables(c, map);
}

hk_status hk_center_order_save(hk_center *c, void *buf, size_t capacity,
                               size_t *size) {
    if (c == NULL || size == NULL)
        return hki_fail(HK_E_INVALID_ARG, "center: order: NULL argument");
    return c->ops->order_save(c, buf, capacity, size);
}
