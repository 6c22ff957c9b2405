// open.c - an open checkpoint: what is in it, and its tensors.
#include "ckpt/ckpt.h"
#include "ckpt/model_dir/folder.h"
#include "ckpt/core/formats.h"

// ---- open and close --------------------------------------------------------

static int by_name(const void *a, const void *b) {
    const hki_ckpt_tensor *const x = a, *const y = b;
    return strcmp(x->entry.name, y->entry.name);
}

static hk_status sort_tensors(hk_ckpt *c) {
    if (c->count > 0)
        qsort(c->tensors, c->count, sizeof *c->tensors, by_name);
    for (size_t i = 1; i < c->count; i++)
        if (by_name(&c->tensors[i - 1], &c->tensors[i]) == 0)
            return hki_fail(HK_E_DATA, "%s: tensor %s occurs twice", c->path,
                            c->tensors[i].entry.name);
    return HK_OK;
}

hk_status hki_ckpt_open_as(const char *path, const hki_ckpt_ops *ops,
                           hk_ckpt **out) {
    HKI_SCOPED(hk_ckpt_close_at) hk_ckpt *c = NULL;
    HKI_TRY(hki_zalloc_array(1, sizeof *c, &c));
    c->ops = ops;
    HKI_TRY(hki_strdup(path, &c->path));
    HKI_TRY(ops->open(c));
    HKI_TRY(sort_tensors(c));
    return HKI_HAND_ON(out, c);
}

hk_status hk_ckpt_open(const char *path, hk_ckpt_format format, hk_ckpt **out) {
    if (path == NULL || path[0] == '\0' || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "checkpoint: path or out is missing");
    const hki_ckpt_ops *ops = NULL;
    if (format != HK_CKPT_AUTO) {
        ops = hki_ckpt_format_ops(format);
        if (ops == NULL)
            return hki_fail(HK_E_INVALID_ARG, "checkpoint: unknown format %d",
                            (int)format);
    } else if (hki_path_is_dir(path)) {
        return hk_ckpt_open_latest(NULL, path, out, NULL);
    } else {
        HKI_TRY(hki_ckpt_detect(path, &ops));
    }
    return hki_ckpt_open_as(path, ops, out);
}

void hk_ckpt_close(hk_ckpt *c) {
    if (c == NULL)
        return;
    c->ops->close(c);
    hki_free(c->tensors);
    hki_free(c->meta);
    hki_free(c->path);
    hki_arena_deinit(&c->arena);
    hki_free(c);
}

// ---- questions -------------------------------------------------------------

hk_status hk_ckpt_get_info(const hk_ckpt *c, hk_ckpt_info *out) {
    if (c == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "checkpoint info: NULL argument");
    *out = (hk_ckpt_info){.path = c->path,
                          .format = c->ops->format,
                          .entry_count = c->count,
                          .meta = c->meta,
                          .meta_count = c->n_meta};
    return HK_OK;
}

const char *hki_ckpt_path(const hk_ckpt *c) {
    return c->path;
}

const hk_ckpt_entry *hk_ckpt_item(const hk_ckpt *c, size_t i) {
    return c == NULL || i >= c->count ? NULL : &c->tensors[i].entry;
}

const hki_ckpt_tensor *hki_ckpt_lookup(const hk_ckpt *c, const char *name) {
    size_t i;
    HKI_FIRST(i, c->count, strcmp(c->tensors[i].entry.name, name) >= 0);
    return i < c->count && strcmp(c->tensors[i].entry.name, name) == 0
               ? &c->tensors[i]
               : NULL;
}

const hk_ckpt_entry *hk_ckpt_find(const hk_ckpt *c, const char *name) {
    if (c == NULL || name == NULL)
        return NULL;
    const hki_ckpt_tensor *const t = hki_ckpt_lookup(c, name);
    return t == NULL ? NULL : &t->entry;
}

const char *hk_ckpt_meta(const hk_ckpt *c, const char *key) {
    for (size_t i = 0; c != NULL && key != NULL && i < c->n_meta; i++)
        if (strcmp(c->meta[i].key, key) == 0)
            return c->meta[i].value;
    return NULL;
}

// ---- reading ---------------------------------------------------------------

// True and false are one and zero; anything else is damage.
static hk_status check_bools(const hk_ckpt *c, const hki_ckpt_tensor *t,
                             const uint8_t *data) {
    for (uint64_t i = 0; i < t->entry.bytes; i++)
        if (data[i] > 1)
            return hki_fail(
                HK_E_DATA, "%s: %s: element %llu is %u, not a boolean", c->path,
                t->entry.name, (unsigned long long)i, (unsigned)data[i]);
    return HK_OK;
}

// By way of a copy as the file has it.
static hk_status read_converted(const hk_ckpt *c, const hki_ckpt_tensor *t,
                                hk_dtype to, int64_t count, void *data) {
    HKI_FREED void *raw = NULL;
    HKI_TRY(hki_alloc_array((size_t)t->entry.bytes, 1, &raw));
    HKI_TRY(c->ops->read(c, t, raw));
    return hki_convert(t->elem, raw, to, data, count, t->entry.name);
}

hk_status hki_ckpt_check_type(const hk_ckpt *c, const hki_ckpt_tensor *t,
                              hk_dtype to) {
    if (hki_convertible(t->elem, to))
        return HK_OK;
    if ((int)to == 0)
        return hki_fail(HK_E_DTYPE,
                        "%s: %s has the type %s, which Hooke does not support",
                        c->path, t->entry.name, t->entry.type_name);
    return hki_fail(HK_E_DTYPE, "%s: %s is %s%s and cannot be read as %s",
                    c->path, t->entry.name, t->entry.type_name,
                    t->entry.shape.rank < 0 ? " of too many dimensions" : "",
                    hk_dtype_name(to));
}

hk_status hki_ckpt_read_data(const hk_ckpt *c, const hki_ckpt_tensor *t,
                             hk_dtype to, void *data) {
    int64_t count;
    HKI_TRY(hki_ckpt_check_type(c, t, to));
    HKI_TRY(hk_shape_count(t->entry.shape, &count));
    if (count == 0)
        return HK_OK;
    if (t->entry.dtype != to)
        return read_converted(c, t, to, count, data);
    HKI_TRY(c->ops->read(c, t, data));
    return to == HK_BOOL ? check_bools(c, t, data) : HK_OK;
}

static hk_status lookup(const hk_ckpt *c, const char *name,
                        const hki_ckpt_tensor **out) {
    if (c == NULL || name == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "checkpoint: handle or name is missing");
    *out = hki_ckpt_lookup(c, name);
    return *out != NULL ? HK_OK
                        : hki_fail(HK_E_NOT_FOUND, "%s: there is no tensor %s",
                                   c->path, name);
}

hk_status hk_ckpt_read(hk_ckpt *c, const char *name, hk_dtype t,
                       const hk_shape *shape, void *data) {
    const hki_ckpt_tensor *tensor = NULL;
    HKI_TRY(lookup(c, name, &tensor));
    if (data == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: %s: the destination is NULL",
                        c->path, name);
    if (shape != NULL && !hk_shape_equal(*shape, tensor->entry.shape)) {
        char a[HKI_SHAPE_TEXT], b[HKI_SHAPE_TEXT];
        return hki_fail(HK_E_SHAPE, "%s: %s is %s, not %s", c->path, name,
                        hki_shape_text(tensor->entry.shape, a),
                        hki_shape_text(*shape, b));
    }
    return hki_ckpt_read_data(c, tensor, t, data);
}

hk_status hk_ckpt_read_tensor(hk_ckpt *c, const char *name, hk_tensor **out) {
    const hki_ckpt_tensor *t = NULL;
    hk_tensor *tensor;
    HKI_TRY(lookup(c, name, &t));
    if (out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: %s: out is NULL", c->path, name);
    const bool strings = t->elem == HKI_ELEM_STRING && t->entry.shape.rank >= 0;
    const hk_dtype to = hki_elem_widest(t->elem);
    if (!strings)
        HKI_TRY(hki_ckpt_check_type(c, t, to));
    HKI_TRY(hk_tensor_create(to, t->entry.shape, &tensor));
    const hk_status s =
        strings ? c->ops->read_strings(c, t, tensor)
                : hki_ckpt_read_data(c, t, to, hk_tensor_data(tensor));
    if (s == HK_OK)
        *out = tensor;
    else
        hk_tensor_release(tensor);
    return s;
}
