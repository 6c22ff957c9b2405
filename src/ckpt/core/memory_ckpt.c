// memory_ckpt.c - a checkpoint whose values lie in memory, in whatever form
// somebody else has read them.
#include "ckpt/ckpt.h"
#include "ckpt/core/formats.h"
#include "ckpt/core/items.h"

typedef struct memory {
    void (*release)(void *owner);
    void *owner;
} memory;

static void memory_close(hk_ckpt *c) {
    memory *const m = c->impl;
    if (m == NULL)
        return;
    if (m->release != NULL)
        m->release(m->owner);
    hki_free(m);
}

static hk_status memory_read(const hk_ckpt *c, const hki_ckpt_tensor *t,
                             void *out) {
    (void)c;
    memcpy(out, t->extra, (size_t)t->entry.bytes);
    return HK_OK;
}

static hk_status add_item(hk_ckpt *c, const hki_ckpt_item *item) {
    const hk_dtype dtype = hki_elem_dtype(item->elem);
    hki_ckpt_tensor t = {.elem = item->elem, .extra = item->data};
    t.entry.dtype = dtype;
    t.entry.shape = item->shape;
    t.entry.bytes = item->bytes;
    HKI_TRY(hki_arena_strdup(&c->arena, item->name, &t.entry.name));
    HKI_TRY(
        hki_arena_strdup(&c->arena, hk_dtype_name(dtype), &t.entry.type_name));
    return hki_ckpt_push(c, &t);
}

static hk_status fill(hk_ckpt *c, const hki_ckpt_memory *from) {
    HKI_FREED hki_ckpt_item *items = NULL;
    size_t n = 0;
    HKI_SCOPED(hki_arena_deinit) hki_arena scratch = {0};
    HKI_TRY(hki_items_make(from->map, NULL, 0, &scratch, &items, &n));
    for (size_t i = 0; i < n; i++)
        HKI_TRY(add_item(c, &items[i]));
    for (size_t i = 0; i < from->n_meta; i++)
        HKI_TRY(hki_ckpt_add_meta(c, from->meta[i].key, from->meta[i].value));
    return HK_OK;
}

static const hki_ckpt_ops memory_ops = {.format = HK_CKPT_CENTER,
                                        .suffix = "",
                                        .close = memory_close,
                                        .read = memory_read};

hk_status hki_ckpt_from_memory(const hki_ckpt_memory *from, hk_ckpt **out) {
    HKI_SCOPED(hk_ckpt_close_at) hk_ckpt *c = NULL;
    memory *m;
    HKI_TRY(hki_zalloc_array(1, sizeof *c, &c));
    c->ops = &memory_ops;
    HKI_TRY(hki_strdup(from->path, &c->path));
    HKI_TRY(fill(c, from));
    HKI_TRY(hki_zalloc_array(1, sizeof *m, &m));
    *m = (memory){from->release, from->owner};
    c->impl = m; // from here on the owner is the checkpoint's
    return HKI_HAND_ON(out, c);
}
