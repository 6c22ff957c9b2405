// write.c - one checkpoint from a map.
#include "ckpt/items.h"

#define SHARD_BYTES UINT64_C(5000000000)

_Static_assert(offsetof(hk_write_options, reserved) + sizeof(uint32_t) ==
                   sizeof(hk_write_options),
               "no padding at the end");

void hk_write_options_init(hk_write_options *opt, size_t struct_size) {
    const hk_write_options d = {
        .tf_shards = 1, .shard_bytes = SHARD_BYTES, .tf_partitions = 1};
    hki_options_init(opt, struct_size, &d, sizeof d);
}

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

hk_status hk_ckpt_write(const char *path, const hk_name_map *map,
                        const hk_write_options *opt) {
    hk_write_options o;
    const hki_ckpt_ops *ops = NULL;
    if (path == NULL || path[0] == '\0' || map == NULL)
        return hki_fail(HK_E_INVALID_ARG, "checkpoint: path or map is missing");
    hk_write_options_init(&o, sizeof o);
    HKI_TRY(hki_options_copy(&o, sizeof o, opt, "checkpoint"));
    HKI_TRY(choose_format(path, o.format, &ops));
    HKI_TRY(hki_meta_check(o.meta, o.n_meta));
    if (o.tf_shards == 0)
        return hki_fail(HK_E_INVALID_ARG, "checkpoint: tf_shards is 0");

    hki_arena arena = {0};
    hki_ckpt_item *items = NULL;
    hki_ckpt_plan plan = {.meta = o.meta,
                          .n_meta = o.n_meta,
                          .shard_bytes = o.shard_bytes,
                          .tf_shards = o.tf_shards,
                          .tf_partitions = o.tf_partitions,
                          .durable = true};
    hk_status s =
        hki_items_make(map, o.rename, o.n_rename, &arena, &items, &plan.count);
    plan.items = items;
    if (s == HK_OK)
        s = ops->write(path, &plan);
    hki_free(items);
    hki_arena_deinit(&arena);
    return s;
}
