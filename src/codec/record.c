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
        return hki_fail(HK_E_OVERFLOW, "record of %zu bytes", size);
    // With the room made first, a failure leaves no half record behind.
    HKI_TRY(hki_buf_reserve(b, total));
    hki_record_seal(data, size, header, footer);
    HKI_TRY(hki_buf_add(b, header, sizeof header));
    HKI_TRY(hki_buf_add(b, data, size));
    return hki_buf_add(b, footer, sizeof footer);
}

hki_record_state hki_record_parse(const uint8_t *bytes, size_t size,
                                  bool check_crc, const uint8_t **data,
                                  size_t *data_size) {
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
    if (check_crc && hki_crc32c_mask(hki_crc32c(0, p, (size_t)length)) !=
                         hki_get_u32(p + length))
        return HKI_RECORD_BAD_DATA;
    *data = p;
    *data_size = (size_t)length;
    return HKI_RECORD_WHOLE;
}

hk_status hki_record_next(const uint8_t *bytes, size_t size, size_t *pos,
                          bool check_crc, const char *what,
                          const uint8_t **data, size_t *data_size) {
    const size_t at = *pos, left = size - at;
    const uint8_t *p;
    size_t n;
    switch (hki_record_parse(bytes + at, left, check_crc, &p, &n)) {
    case HKI_RECORD_WHOLE:
        *pos = at + HKI_RECORD_HEADER + n + HKI_RECORD_FOOTER;
        *data = p;
        *data_size = n;
        return HK_OK;
    case HKI_RECORD_END:
        return HK_E_END;
    case HKI_RECORD_TRUNCATED:
        return hki_fail(HK_E_DATA,
                        "%s: record at byte %zu is truncated: the file ends "
                        "%zu bytes later",
                        what, at, left);
    case HKI_RECORD_BAD_LENGTH:
        return hki_fail(HK_E_DATA,
                        "%s: record at byte %zu is corrupted: the checksum of "
                        "its length is wrong",
                        what, at);
    case HKI_RECORD_BAD_DATA:
        break;
    }
    return hki_fail(HK_E_DATA,
                    "%s: record at byte %zu is corrupted: the checksum of its "
                    "%llu bytes is wrong",
                    what, at, (unsigned long long)hki_get_u64(bytes + at));
}
