// items.c - renaming, and the list of tensors that a format writes.
#include "ckpt/core/items.h"
#include "codec/codec.h"

// ---- renaming --------------------------------------------------------------

static size_t stars(const char *s) {
    size_t n = 0;
    for (; *s != '\0'; s++)
        n += *s == '*';
    return n;
}

hk_status hki_rename_check(const hk_rename *list, size_t n) {
    if (list == NULL && n > 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "checkpoint: %zu renamings, but the list is NULL", n);
    for (size_t i = 0; i < n; i++) {
        const hk_rename *const r = &list[i];
        if (r->to == NULL || r->from == NULL || r->to[0] == '\0' ||
            r->from[0] == '\0')
            return hki_fail(HK_E_INVALID_ARG,
                            "checkpoint: renaming %zu has an empty name", i);
        if (stars(r->to) > 1 || stars(r->from) > stars(r->to))
            return hki_fail(
                HK_E_INVALID_ARG,
                "checkpoint: renaming %s from %s: each name has at most one *, "
                "and the second only if the first has one",
                r->to, r->from);
    }
    return HK_OK;
}

// Whether `name` fits the pattern; text and size: what its * stands for.
static bool fits(const char *pattern, const char *name, const char **text,
                 size_t *size) {
    const char *const star = strchr(pattern, '*');
    *text = "";
    *size = 0;
    if (star == NULL)
        return strcmp(pattern, name) == 0;
    const size_t before = (size_t)(star - pattern), after = strlen(star + 1);
    const size_t n = strlen(name);
    if (n < before + after || memcmp(name, pattern, before) != 0 ||
        memcmp(name + n - after, star + 1, after) != 0)
        return false;
    *text = name + before;
    *size = n - before - after;
    return true;
}

hk_status hki_rename_apply(const hk_rename *list, size_t n, const char *name,
                           hki_arena *arena, const char **out) {
    for (size_t i = 0; i < n; i++) {
        const char *text;
        size_t size;
        if (!fits(list[i].to, name, &text, &size))
            continue;
        const char *const from = list[i].from, *const star = strchr(from, '*');
        if (star == NULL)
            return hki_arena_strdup(arena, from, out);
        return hki_arena_printf(arena, out, "%.*s%.*s%s", (int)(star - from),
                                from, (int)size, text, star + 1);
    }
    *out = name;
    return HK_OK;
}

// ---- items -----------------------------------------------------------------

static int by_name(const void *a, const void *b) {
    const hki_ckpt_item *const x = a, *const y = b;
    return strcmp(x->name, y->name);
}

static hk_status make_item(const hk_named *from, const hk_rename *list,
                           size_t n_list, hki_arena *arena, hki_ckpt_item *to) {
    const size_t size = hk_dtype_size(from->dtype);
    HKI_TRY(hki_rename_apply(list, n_list, from->name, arena, &to->name));
    if (size == 0)
        return hki_fail(HK_E_DTYPE, "checkpoint: %s: %s cannot be saved",
                        from->name, hk_dtype_name(from->dtype));
    HKI_TRY(hki_shape_bytes(from->shape, size, &to->bytes));
    to->elem = hki_elem_of_dtype(from->dtype);
    to->shape = from->shape;
    to->data = from->data;
    return HK_OK;
}

static hk_status fill_items(const hk_name_map *map, const hk_rename *list,
                            size_t n_list, hki_arena *arena,
                            hki_ckpt_item *items, size_t n) {
    for (size_t i = 0; i < n; i++)
        HKI_TRY(make_item(hk_name_map_item(map, i), list, n_list, arena,
                          &items[i]));
    return hki_items_sort(items, n);
}

hk_status hki_items_sort(hki_ckpt_item *items, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!hki_utf8_valid(items[i].name, strlen(items[i].name)))
            return hki_fail(HK_E_INVALID_ARG,
                            "checkpoint: the name \"%s\" is not UTF-8",
                            items[i].name);
    if (n > 0)
        qsort(items, n, sizeof *items, by_name);
    for (size_t i = 1; i < n; i++)
        if (by_name(&items[i - 1], &items[i]) == 0)
            return hki_fail(HK_E_EXISTS,
                            "checkpoint: two tensors would be called %s",
                            items[i].name);
    return HK_OK;
}

hk_status hki_items_make(const hk_name_map *map, const hk_rename *list,
                         size_t n_list, hki_arena *arena, hki_ckpt_item **items,
                         size_t *count) {
    const size_t n = hk_name_map_count(map);
    hki_ckpt_item *made;
    HKI_TRY(hki_rename_check(list, n_list));
    HKI_TRY(hki_zalloc_array(n, sizeof *made, &made));
    const hk_status s = fill_items(map, list, n_list, arena, made, n);
    if (s != HK_OK) {
        hki_free(made);
        return s;
    }
    *items = made;
    *count = n;
    return HK_OK;
}

hk_status hki_meta_check(const hk_meta *meta, size_t n) {
    if (meta == NULL && n > 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "checkpoint: %zu metadata items, but the list is NULL",
                        n);
    for (size_t i = 0; i < n; i++) {
        const char *const key = meta[i].key, *const value = meta[i].value;
        if (key == NULL || value == NULL || !hki_utf8_valid(key, strlen(key)) ||
            !hki_utf8_valid(value, strlen(value)))
            return hki_fail(HK_E_INVALID_ARG,
                            "checkpoint: metadata %zu is not UTF-8", i);
        for (size_t j = 0; j < i; j++)
            if (strcmp(meta[j].key, key) == 0)
                return hki_fail(HK_E_EXISTS,
                                "checkpoint: metadata %s occurs twice", key);
    }
    return HK_OK;
}
