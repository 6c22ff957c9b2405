// safetensors_write.c - one safetensors file.
//
// The checksums stand in the header, before the data that they sum up: the
// header is written twice, at the end with the digits filled in.
#include "ckpt/safetensors/safetensors.h"

// Summed and handed to the system while it is in the cache.
#define PIECE ((size_t)256 << 10)
#define ALIGN 64 // of the buffer in the file
#define CRC_DIGITS 8

typedef struct header {
    hki_buf text;  // length, JSON, blanks
    size_t crc_at; // of the first digit in text
} header;

// Larger elements first, so that all are aligned, then by name.
static int by_size(const void *a, const void *b) {
    const hki_ckpt_item *const x = *(const hki_ckpt_item *const *)a;
    const hki_ckpt_item *const y = *(const hki_ckpt_item *const *)b;
    const size_t m = hki_elem_size(x->elem), n = hki_elem_size(y->elem);
    if (m != n)
        return m > n ? -1 : 1;
    return strcmp(x->name, y->name);
}

static hk_status add_text(hki_buf *b, const char *s) {
    return hki_buf_add(b, s, strlen(s));
}

static hk_status add_pair(hki_buf *b, const char *key, const char *value) {
    HKI_TRY(hki_json_quote(b, key, strlen(key)));
    HKI_TRY(add_text(b, ":"));
    return hki_json_quote(b, value, strlen(value));
}

static bool is_own_key(const char *key) {
    return strcmp(key, HKI_ST_CRC_KEY) == 0;
}

// "format": "pt" makes the loaders of PyTorch's world accept the file.
static hk_status add_metadata(header *h, size_t count,
                              const hki_ckpt_plan *plan) {
    hki_buf *const b = &h->text;
    bool has_format = false;
    for (size_t i = 0; i < plan->n_meta; i++)
        has_format = has_format || strcmp(plan->meta[i].key, "format") == 0;
    HKI_TRY(add_text(b, "{\"__metadata__\":{"));
    if (!has_format)
        HKI_TRY(add_text(b, "\"format\":\"pt\","));
    for (size_t i = 0; i < plan->n_meta; i++) {
        if (is_own_key(plan->meta[i].key))
            continue;
        HKI_TRY(add_pair(b, plan->meta[i].key, plan->meta[i].value));
        HKI_TRY(add_text(b, ","));
    }
    HKI_TRY(add_text(b, "\"" HKI_ST_CRC_KEY "\":\""));
    h->crc_at = b->size;
    for (size_t i = 0; i < count; i++)
        HKI_TRY(add_text(b, "00000000"));
    return add_text(b, "\"}");
}

static hk_status add_tensor(hki_buf *b, const hki_ckpt_item *item,
                            uint64_t *at) {
    if (strcmp(item->name, "__metadata__") == 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "safetensors: a tensor cannot be called __metadata__");
    HKI_TRY(add_text(b, ","));
    HKI_TRY(hki_json_quote(b, item->name, strlen(item->name)));
    HKI_TRY(hki_buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[",
                           hki_st_type_name(item->elem)));
    for (int32_t i = 0; i < item->shape.rank; i++)
        HKI_TRY(hki_buf_printf(b, "%s%lld", i > 0 ? "," : "",
                               (long long)item->shape.dim[i]));
    HKI_TRY(hki_buf_printf(b, "],\"data_offsets\":[%llu,%llu]}",
                           (unsigned long long)*at,
                           (unsigned long long)(*at + item->bytes)));
    *at += item->bytes;
    return HK_OK;
}

static hk_status build_header(header *h, const hki_ckpt_item *const *items,
                              size_t count, const hki_ckpt_plan *plan) {
    uint64_t at = 0;
    HKI_TRY(hki_buf_add(&h->text, "\0\0\0\0\0\0\0", 8));
    HKI_TRY(add_metadata(h, count, plan));
    for (size_t i = 0; i < count; i++)
        HKI_TRY(add_tensor(&h->text, items[i], &at));
    HKI_TRY(add_text(&h->text, "}"));
    while (h->text.size % ALIGN != 0)
        HKI_TRY(add_text(&h->text, " "));
    const size_t n = h->text.size - 8;
    if (n > HKI_ST_MAX_HEADER)
        return hki_fail(HK_E_OVERFLOW,
                        "safetensors: the header of %zu tensors has %zu bytes, "
                        "more than the limit of %d",
                        count, n, HKI_ST_MAX_HEADER);
    hki_put_u64(h->text.data, n);
    return HK_OK;
}

// Writes one tensor's bytes and their checksum into the header.
static hk_status write_tensor(hki_file *f, const hki_ckpt_item *item,
                              char *digits) {
    uint32_t crc = 0;
    for (size_t at = 0; at < item->bytes; at += PIECE) {
        const uint8_t *const p = (const uint8_t *)item->data + at;
        const size_t n = HKI_MIN(item->bytes - at, PIECE);
        crc = hki_crc32c(crc, p, n);
        HKI_TRY(hki_file_write(f, p, n));
    }
    for (int i = CRC_DIGITS; i-- > 0; crc >>= 4)
        digits[i] = "0123456789abcdef"[crc & 15];
    return HK_OK;
}

static hk_status write_parts(hki_file *f, header *h,
                             const hki_ckpt_item *const *items, size_t count) {
    HKI_TRY(hki_file_write(f, h->text.data, h->text.size));
    for (size_t i = 0; i < count; i++)
        HKI_TRY(write_tensor(f, items[i],
                             h->text.data + h->crc_at + i * CRC_DIGITS));
    return hki_file_write_at(f, 0, h->text.data, h->text.size);
}

hk_status hki_st_write_file(const char *path, const hki_ckpt_item *items,
                            size_t count, const hki_ckpt_plan *plan) {
    HKI_FREED const hki_ckpt_item **order = NULL;
    header h = {0};
    hki_file *f = NULL;
    HKI_TRY(hki_alloc_array(count, sizeof *order, &order));
    for (size_t i = 0; i < count; i++)
        order[i] = &items[i];
    if (count > 0)
        qsort(order, count, sizeof *order, by_size);
    hk_status s = build_header(&h, order, count, plan);
    if (s == HK_OK)
        s = hki_file_create(path, &f);
    if (s == HK_OK)
        s = hki_file_end(f, write_parts(f, &h, order, count), plan->durable);
    hki_buf_deinit(&h.text);
    return s;
}
