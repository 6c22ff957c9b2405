// write_map.c - one checkpoint from a map.
#include "ckpt/core/items.h"

#define SHARD_BYTES UINT64_C(5000000000)

HKI_OPTIONS(hk_write_options, reserved, .tf_shards = 1,
            .shard_bytes = SHARD_BYTES, .tf_partitions = 1)

static hk_status choose_format(const char *path, hk_ckpt_format format,
                               const hki_ckpt_ops **out) {
    if (format == HK_CKPT_AUTO)
        format =
            hki_ends_with(path, ".npz") ? HK_CKPT_NPZ : HK_CKPT_SAFETENSORS;
    *out = hki_ckpt_format_ops(format);
    return *out != NULL
               ? HK_OK
               : hki_fail(HK_E_INVALID_ARG, "checkpoint: unknown format %d",
                          (int)format);
}

hk_status hki_write_options_get(const char *path, const hk_write_options *opt,
                                hk_write_options *out,
                                const hki_ckpt_ops **ops) {
    HKI_TRY(HKI_OPTIONS_GET(hk_write_options, out, opt, "checkpoint"));
    HKI_TRY(choose_format(path, out->format, ops));
    HKI_TRY(hki_meta_check(out->meta, out->n_meta));
    out->format = (*ops)->format;
    if (out->tf_shards == 0)
        return hki_fail(HK_E_INVALID_ARG, "checkpoint: tf_shards is 0");
    return HK_OK;
}

hk_status hki_items_write(const char *path, const hki_ckpt_item *items,
                          size_t count, const hk_write_options *o) {
    const hki_ckpt_plan plan = {.items = items,
                                .count = count,
                                .meta = o->meta,
                                .n_meta = o->n_meta,
                                .shard_bytes = o->shard_bytes,
                                .tf_shards = o->tf_shards,
                                .tf_partitions = o->tf_partitions,
                                .durable = true};
    return hki_ckpt_format_ops(o->format)->write(path, &plan);
}

hk_status hk_ckpt_write(const char *path, const hk_name_map *map,
                        const hk_write_options *opt) {
    hk_write_options o;
    const hki_ckpt_ops *ops = NULL;
    if (path == NULL || path[0] == '\0' || map == NULL)
        return hki_fail(HK_E_INVALID_ARG, "checkpoint: path or map is missing");
    HKI_TRY(hki_write_options_get(path, opt, &o, &ops));
    HKI_SCOPED(hki_arena_deinit) hki_arena arena = {0};
    HKI_FREED hki_ckpt_item *items = NULL;
    size_t count = 0;
    HKI_TRY(hki_items_make(map, o.rename, o.n_rename, &arena, &items, &count));
    return hki_items_write(path, items, count, &o);
}
