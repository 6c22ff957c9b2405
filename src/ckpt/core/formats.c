// formats.c - the table of formats and who a file belongs to.
#include "ckpt/core/formats.h"

#define HEAD_BYTES 64

static const hki_ckpt_ops *const formats[] = {
    &hki_npz,
    &hki_safetensors,
    &hki_bundle,
};

const hki_ckpt_ops *hki_ckpt_format_at(size_t i) {
    return i < HKI_COUNT(formats) ? formats[i] : NULL;
}

const hki_ckpt_ops *hki_ckpt_format_ops(hk_ckpt_format format) {
    for (size_t i = 0; i < HKI_COUNT(formats); i++)
        if (formats[i]->format == format)
            return formats[i];
    return NULL;
}

const hki_ckpt_ops *hki_ckpt_format_named(const char *path) {
    const hki_ckpt_ops *rest = NULL;
    for (size_t i = 0; i < HKI_COUNT(formats); i++) {
        const char *const suffix = formats[i]->suffix;
        if (suffix[0] == '\0')
            rest = formats[i];
        else if (hki_ends_with(path, suffix))
            return formats[i];
    }
    return rest;
}

// The first bytes of a regular file; *size 0 when path is none.
static hk_status read_head(const char *path, uint8_t head[HEAD_BYTES],
                           size_t *size) {
    int fd;
    uint64_t total;
    const hk_status opened = hki_file_open_read(path, &fd, &total);
    *size = 0;
    if (opened == HK_E_NOT_FOUND)
        return HK_OK; // a prefix
    HKI_TRY(opened);
    const size_t n = (size_t)HKI_MIN(total, (uint64_t)HEAD_BYTES);
    const hk_status s = hki_file_read_at(fd, path, 0, head, n);
    hki_file_close_read(fd);
    *size = n;
    return s;
}

hk_status hki_ckpt_detect(const char *path, const hki_ckpt_ops **out) {
    uint8_t head[HEAD_BYTES];
    size_t size;
    HKI_TRY(read_head(path, head, &size));
    for (size_t i = 0; i < HKI_COUNT(formats); i++)
        if (formats[i]->probe(path, size > 0 ? head : NULL, size)) {
            *out = formats[i];
            return HK_OK;
        }
    if (!hki_path_exists(path))
        return hki_fail(HK_E_NOT_FOUND, "%s: no such checkpoint", path);
    return hki_fail(HK_E_DATA,
                    "%s: is not a checkpoint of a known format (safetensors, "
                    "TensorFlow, NumPy archive, center file)",
                    path);
}

hk_status hki_ckpt_push(hk_ckpt *c, const hki_ckpt_tensor *tensor) {
    HKI_TRY(hki_list_reserve(&c->tensors, c->count + 1, &c->capacity,
                             sizeof *c->tensors));
    c->tensors[c->count++] = *tensor;
    return HK_OK;
}

hk_status hki_ckpt_add_meta(hk_ckpt *c, const char *key, const char *value) {
    hk_meta m;
    if (hk_ckpt_meta(c, key) != NULL)
        return HK_OK;
    HKI_TRY(hki_arena_strdup(&c->arena, key, &m.key));
    HKI_TRY(hki_arena_strdup(&c->arena, value, &m.value));
    // Doubles whenever the count is a power of two.
    if ((c->n_meta & (c->n_meta - 1)) == 0 || c->n_meta == 0)
        HKI_TRY(hki_realloc_array(HKI_MAX(2 * c->n_meta, (size_t)1),
                                  sizeof *c->meta, &c->meta));
    c->meta[c->n_meta++] = m;
    return HK_OK;
}

bool hki_ends_with(const char *text, const char *suffix) {
    const size_t n = strlen(text), m = strlen(suffix);
    return n >= m && strcmp(text + n - m, suffix) == 0;
}
