// record.c - length-prefixed, checksummed records, as TFRecord and event
// files hold them.
#include "codec/codec.h"

bool hki_record_length(const uint8_t header[HKI_RECORD_HEADER],
                       uint64_t *length) {
    const uint32_t crc = hki_crc32c(0, header, 8);
    if (hki_crc32c_mask(crc) != hki_get_u32(header + 8))
        return false;
    *length = hki_get_u64(header);
    return true;
}

void hki_record_seal(const void *data, size_t size,
                     uint8_t header[HKI_RECORD_HEADER],
                     uint8_t footer[HKI_RECORD_FOOTER]) {
    hki_put_u64(header, size);
    hki_put_u32(header + 8, hki_crc32c_mask(hki_crc32c(0, header, 8)));
    hki_put_u32(footer, hki_crc32c_mask(hki_crc32c(0, data, size)));
}

hk_status hki_record_append(hki_buf *b, const void *data, size_t size) {
    uint8_t header[HKI_RECORD_HEADER], footer[HKI_RECORD_FOOTER];
    size_t total;
    if (hki_add_overflow(size, sizeof header + sizeof footer, &total))
        return hki_fail(HK_E_OVERFLOW,
                        "TFRecord: a record of %zu bytes is too large", size);
    // With the room made first, a failure leaves no half record behind.
    HKI_TRY(hki_buf_reserve(b, total));
    hki_record_seal(data, size, header, footer);
    HKI_TRY(hki_buf_add(b, header, sizeof header));
    HKI_TRY(hki_buf_add(b, data, size));
    return hki_buf_add(b, footer, sizeof footer);
}

hki_record_state hki_record_parse(const uint8_t *bytes, size_t size,
                                  const uint8_t **data, size_t *data_size) {
    if (size == 0)
        return HKI_RECORD_END;
    if (size < HKI_RECORD_HEADER)
        return HKI_RECORD_TRUNCATED;
    uint64_t length;
    if (!hki_record_length(bytes, &length))
        return HKI_RECORD_BAD_LENGTH;
    const size_t left = size - HKI_RECORD_HEADER;
    if (left < HKI_RECORD_FOOTER || length > left - HKI_RECORD_FOOTER)
        return HKI_RECORD_TRUNCATED;
    const uint8_t *const p = bytes + HKI_RECORD_HEADER;
    if (hki_crc32c_mask(hki_crc32c(0, p, (size_t)length)) !=
        hki_get_u32(p + length))
        return HKI_RECORD_BAD_DATA;
    *data = p;
    *data_size = (size_t)length;
    return HKI_RECORD_WHOLE;
}
