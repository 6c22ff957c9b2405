// tar_decode.c - the strings of a tar sample as numbers, pixels and arrays.
//
// A function over the source's elements. Its config is the source's, which
// lives as long as this dataset's input.
#include "data/core/number.h"
#include "data/files/array.h"
#include "data/files/tar.h"

static hk_status scratch_open(const void *p, void **out) {
    hki_picture_decoder *d = NULL;
    (void)p;
    HKI_TRY(hki_picture_decoder_create(&d));
    *out = d;
    return HK_OK;
}

static void scratch_close(void *scratch) {
    hki_picture_decoder_destroy(scratch);
}

static hk_status decode_word(const hki_tar_wanted *f, const uint8_t *p,
                             size_t n, void *out) {
    char number[24], text[HKI_SAFE_TEXT];
    for (size_t i = 0; i < f->n_words; i++) {
        if (strlen(f->words[i]) != n || memcmp(f->words[i], p, n) != 0)
            continue;
        const int size = snprintf(number, sizeof number, "%zu", i);
        (void)hki_parse_number(f->dtype, (uint8_t *)number, (size_t)size, out);
        return HK_OK;
    }
    return hki_fail(
        HK_E_DATA,
        "\"%s\": \"%s\" is not one of the %zu strings in label_values", f->name,
        hki_safe_text(p, n, text), f->n_words);
}

static hk_status decode_number(const hki_tar_wanted *f, const uint8_t *p,
                               size_t n, void *out) {
    while (n > 0 && (p[n - 1] == '\n' || p[n - 1] == '\r'))
        n--;
    char text[HKI_SAFE_TEXT];
    if (f->words != NULL)
        return decode_word(f, p, n, out);
    if (hki_parse_number(f->dtype, p, n, out))
        return HK_OK;
    return hki_fail(
        HK_E_DATA,
        "\"%s\": \"%s\" is not a number of type %s; "
        "label_values (hk_tar_field.words) lists the strings that become "
        "0, 1, ...",
        f->name, hki_safe_text(p, n, text), hk_dtype_name(f->dtype));
}

static hk_status decode_picture(const hki_tar_set *c, const hki_tar_wanted *f,
                                hki_picture_decoder *decoder, const uint8_t *p,
                                size_t n, hki_data_rows *rows, size_t k,
                                int64_t row) {
    const int channels = f->shape.dim[2] > 0 ? (int)f->shape.dim[2] : 0;
    hki_picture picture;
    void *pixels;
    HKI_TRY(hki_picture_probe(p, n, channels, c->files.opt.max_pixels, f->name,
                              &picture));
    const hk_shape shape = hk_shape_make(
        3, (int64_t[]){picture.height, picture.width, picture.channels});
    HKI_TRY(hki_rows_tensor(rows, k, row, &shape, &pixels));
    picture.pixels = pixels;
    return hki_picture_read(decoder, p, n, f->name, &picture);
}

static hk_status decode_array(const hki_tar_wanted *f, const uint8_t *p,
                              size_t n, hki_data_rows *rows, size_t k,
                              int64_t row) {
    HKI_SCOPED(hk_tensor_release_at) hk_tensor *t = NULL;
    HKI_TRY(hki_npy_tensor(p, n, f->name, &t));
    const hk_value v = {.name = f->name,
                        .form = HK_DENSE_FORM,
                        .dtype = hk_tensor_dtype(t),
                        .shape = hk_tensor_shape(t),
                        .tensor = t};
    return hki_rows_copy(rows, k, row, &v);
}

static hk_status decode_field(const hki_tar_set *c, size_t i,
                              hki_picture_decoder *decoder, hki_fn_call *call) {
    const hki_tar_wanted *const f = &c->fields[i];
    const size_t k = (c->key != NULL) + i;
    const hk_value *const in = &call->in->values[1 + k];
    const void *bytes;
    size_t size;
    HKI_TRY(hk_tensor_get_string(in->tensor, 0, &bytes, &size));
    switch (f->kind) {
    case HK_TAR_NUMBER:
        return decode_number(f, bytes, size,
                             hki_rows_at(call->out, k, call->row));
    case HK_TAR_PICTURE:
        return decode_picture(c, f, decoder, bytes, size, call->out, k,
                              call->row);
    case HK_TAR_NPY:
        return decode_array(f, bytes, size, call->out, k, call->row);
    case HK_TAR_BYTES:
        break;
    }
    return hki_rows_copy(call->out, k, call->row, in);
}

static hk_status decode(const void *p, void *scratch, hki_fn_call *call) {
    const hki_tar_set *const c = p;
    hk_status s = HK_OK;
    if (c->key != NULL)
        s = hki_rows_copy(call->out, 0, call->row, &call->in->values[1]);
    for (size_t i = 0; s == HK_OK && i < c->n_fields; i++)
        s = decode_field(c, i, scratch, call);
    if (s == HK_OK || s == HK_E_NO_MEMORY)
        return s;
    char text[400];
    const void *where;
    size_t size;
    snprintf(text, sizeof text, "%s", hk_last_error());
    HKI_TRY(hk_tensor_get_string(call->in->values[0].tensor, 0, &where, &size));
    s = hki_fail(s, "%.*s: %s", (int)HKI_MIN(size, (size_t)600),
                 (const char *)where, text);
    return hki_on_error(call->run, c->files.opt.on_error, s, &call->skip);
}

static const hki_fn_ops decoder_ops = {
    .name = "tar_decode",
    .scratch_open = scratch_open,
    .scratch_close = scratch_close,
    .apply = decode,
};

static hk_status configure(hki_dataset_desc *desc, const hki_tar_set *c) {
    const size_t key = c->key != NULL;
    hk_value *spec;
    HKI_TRY(hki_desc_spec(desc, key + c->n_fields, &spec));
    if (key > 0)
        spec[0] = hki_tar_string(c->key, HK_FEATURE);
    for (size_t i = 0; i < c->n_fields; i++)
        spec[key + i] = (hk_value){.name = c->fields[i].name,
                                   .role = c->fields[i].role,
                                   .form = HK_DENSE_FORM,
                                   .dtype = c->fields[i].dtype,
                                   .shape = c->fields[i].shape};
    return HK_OK;
}

hk_dataset *hki_tar_decoded(hk_dataset *d, const hki_tar_set *c) {
    const bool skips = c->files.opt.on_error == HK_ON_ERROR_SKIP;
    hki_dataset_desc desc = {.fn = &decoder_ops,
                             .config = (void *)(uintptr_t)c,
                             .inputs = &d,
                             .n_inputs = 1,
                             .parallel = HK_DATA_AUTO,
                             .flags = skips ? HKI_DATA_MAY_SKIP : 0};
    return hki_dataset_finish(&desc, configure(&desc, c));
}
