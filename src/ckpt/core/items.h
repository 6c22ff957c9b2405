// items.h - names on their way between a map and a checkpoint.
#ifndef HKI_CKPT_ITEMS_H
#define HKI_CKPT_ITEMS_H
#include "ckpt/core/formats.h"

// HK_E_INVALID_ARG unless every renaming has two names, at most one `*` each,
// and none in `from` without one in `to`.
hk_status hki_rename_check(const hk_rename *list, size_t n);
// The checkpoint's name of the map's `name`: that of the first renaming whose
// `to` fits, else the name itself. *out lives in the arena or is `name`.
hk_status hki_rename_apply(const hk_rename *list, size_t n, const char *name,
                           hki_arena *arena, const char **out);

// The tensors of a map as a format writes them: renamed, checked, sorted. The
// array is hki_alloc_array memory, names live in the map or in the arena.
hk_status hki_items_make(const hk_name_map *map, const hk_rename *list,
                         size_t n_list, hki_arena *arena, hki_ckpt_item **items,
                         size_t *count);
// Sorts by name. HK_E_INVALID_ARG for a name that is no UTF-8, HK_E_EXISTS for
// one that is there twice.
hk_status hki_items_sort(hki_ckpt_item *items, size_t n);
// Writes sorted items; o: by hki_write_options_get.
hk_status hki_items_write(const char *path, const hki_ckpt_item *items,
                          size_t count, const hk_write_options *o);
// The options with defaults and the format that they (or the path) say.
hk_status hki_write_options_get(const char *path, const hk_write_options *opt,
                                hk_write_options *out,
                                const hki_ckpt_ops **ops);
// HK_E_INVALID_ARG unless every key and value is UTF-8 text and no key is
// there twice.
hk_status hki_meta_check(const hk_meta *meta, size_t n);

#endif // HKI_CKPT_ITEMS_H
