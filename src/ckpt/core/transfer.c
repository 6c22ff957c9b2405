// transfer.c - tensors of one checkpoint into another, their elements as they
// are: half floats stay half, and complex numbers, which Hooke has no use for,
// travel wherever the other format holds them.
#include "ckpt/core/items.h"

HKI_OPTIONS(hk_copy_options, more)

typedef struct transfer {
    const hk_ckpt *c;
    const hki_ckpt_ops *to;
    hki_arena arena; // names
    hki_ckpt_item *items;
    size_t count;
    void **data; // of the first n_data items, before they are sorted
    size_t n_data;
    size_t left;
    hki_buf text;
} transfer;

static hk_status leave(transfer *x, const hk_ckpt_entry *e) {
    char shape[HKI_SHAPE_TEXT] = "of too many dimensions";
    x->left++;
    if (e->shape.rank >= 0)
        hki_shape_text(e->shape, shape);
    return hki_buf_printf(&x->text, "left: %s %s %s\n", e->name, e->type_name,
                          shape);
}

static hk_status read_as_it_is(const hk_ckpt *c, const hki_ckpt_tensor *t,
                               void *data) {
    if ((int)t->entry.dtype != 0) // a type of ours is checked on the way
        return hki_ckpt_read_data(c, t, t->entry.dtype, data);
    return t->entry.bytes == 0 ? HK_OK : c->ops->read(c, t, data);
}

static hk_status take(transfer *x, const hki_ckpt_tensor *t, const char *name) {
    const hk_ckpt_entry *const e = &t->entry;
    const hki_elem as =
        e->shape.rank < 0 ? HKI_ELEM_OTHER : x->to->written(t->elem);
    void *data;
    if (as == HKI_ELEM_OTHER)
        return leave(x, e);
    if (as != t->elem)
        HKI_TRY(hki_buf_printf(&x->text, "converted: %s from %s to %s\n",
                               e->name, e->type_name,
                               hk_dtype_name(hki_elem_dtype(as))));
    hki_ckpt_item *const item = &x->items[x->count];
    *item = (hki_ckpt_item){
        .elem = t->elem, .shape = e->shape, .bytes = (size_t)e->bytes};
    HKI_TRY(hki_arena_strdup(&x->arena, name, &item->name));
    HKI_TRY(hki_alloc_array(item->bytes, 1, &data));
    item->data = x->data[x->n_data++] = data;
    x->count++;
    return read_as_it_is(x->c, t, data);
}

static hk_status take_all(transfer *x, const hk_copy_options *o) {
    for (size_t i = 0; i < x->c->count; i++) {
        const hki_ckpt_tensor *const t = &x->c->tensors[i];
        const char *const name =
            o->name != NULL ? o->name(o->user, &t->entry) : t->entry.name;
        if (name != NULL)
            HKI_TRY(take(x, t, name));
    }
    return HK_OK;
}

static hk_status add_more(transfer *x, const hk_name_map *more) {
    HKI_FREED hki_ckpt_item *items = NULL;
    size_t n;
    HKI_TRY(hki_items_make(more, NULL, 0, &x->arena, &items, &n));
    if (n > 0)
        memcpy(x->items + x->count, items, n * sizeof *items);
    x->count += n;
    return HK_OK;
}

static hk_status run(transfer *x, const char *path, const hk_copy_options *o,
                     const hk_write_options *w) {
    const size_t n_more = o->more != NULL ? hk_name_map_count(o->more) : 0;
    HKI_TRY(hki_zalloc_array(x->c->count, sizeof *x->data, &x->data));
    HKI_TRY(
        hki_zalloc_array(x->c->count + n_more, sizeof *x->items, &x->items));
    HKI_TRY(take_all(x, o));
    if (n_more > 0)
        HKI_TRY(add_more(x, o->more));
    if (x->count == 0)
        return hki_fail(HK_E_NOT_FOUND, "%s: nothing to copy to %s", x->c->path,
                        path);
    HKI_TRY(hki_items_sort(x->items, x->count));
    return hki_items_write(path, x->items, x->count, w);
}

static void deinit(transfer *x) {
    for (size_t i = 0; i < x->n_data; i++)
        hki_free(x->data[i]);
    hki_free(x->data);
    hki_free(x->items);
    hki_buf_deinit(&x->text);
    hki_arena_deinit(&x->arena);
}

static hk_status copy(hk_ckpt *c, const char *path, const hk_copy_options *o,
                      hk_restore_report *report) {
    hk_write_options w;
    HKI_SCOPED(deinit) transfer x = {.c = c};
    HKI_TRY(hki_write_options_get(path, o->write, &w, &x.to));
    HKI_TRY(run(&x, path, o, &w));
    if (report == NULL)
        return HK_OK;
    HKI_TRY(hki_buf_add(&x.text, "", 0)); // the text is never NULL
    *report = (hk_restore_report){
        .taken = x.n_data, .left = x.left, .text = x.text.data};
    x.text = (hki_buf){0};
    return HK_OK;
}

hk_status hk_ckpt_copy(hk_ckpt *c, const char *path, const hk_copy_options *opt,
                       hk_restore_report *report) {
    hk_copy_options o;
    if (report != NULL)
        *report = (hk_restore_report){0};
    if (c == NULL || path == NULL || path[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG,
                        "copy: checkpoint or path is missing");
    HKI_TRY(HKI_OPTIONS_GET(hk_copy_options, &o, opt, "copy"));
    return copy(c, path, &o, report);
}
