// tar.c - reading the members of a tar archive from a reader's window.
#include "data/files/tar.h"

// A header holds these fields at these places.
enum {
    NAME = 0,
    NAME_SIZE = 100,
    SIZE = 124,
    SIZE_SIZE = 12,
    CHECKSUM = 148,
    CHECKSUM_SIZE = 8,
    TYPE = 156,
    MAGIC = 257,
    PREFIX = 345,
    PREFIX_SIZE = 155
};

#define MAX_EXTENSION ((uint64_t)1 << 20) // bytes of a pax or long-name block

// ---- fields ----------------------------------------------------------------

// Octal digits between blanks, or GNU's binary form (first bit set).
static bool get_number(const uint8_t *p, size_t n, uint64_t *out) {
    uint64_t v = 0;
    size_t i = 0;
    if (p[0] & 0x80) {
        for (i = 0; i < n; i++) {
            if (v >> 56 != 0)
                return false;
            v = v << 8 | (i == 0 ? p[i] & 0x7f : p[i]);
        }
        *out = v;
        return true;
    }
    while (i < n && p[i] == ' ')
        i++;
    for (; i < n && p[i] >= '0' && p[i] <= '7'; i++) {
        if (v >> 61 != 0)
            return false;
        v = v << 3 | (uint64_t)(p[i] - '0');
    }
    for (; i < n; i++)
        if (p[i] != 0 && p[i] != ' ')
            return false;
    *out = v;
    return true;
}

// Sum of all bytes, the checksum's own taken as blanks; old archives summed
// signed bytes.
static bool checksum_fits(const uint8_t *block) {
    uint64_t stored, sum = 0;
    int64_t signed_sum = 0;
    if (!get_number(block + CHECKSUM, CHECKSUM_SIZE, &stored))
        return false;
    for (size_t i = 0; i < HKI_TAR_BLOCK; i++) {
        const bool own = i >= CHECKSUM && i < CHECKSUM + CHECKSUM_SIZE;
        const uint8_t c = own ? ' ' : block[i];
        sum += c;
        signed_sum += (int8_t)c;
    }
    return stored == sum || (int64_t)stored == signed_sum;
}

static bool is_zero(const uint8_t *block) {
    for (size_t i = 0; i < HKI_TAR_BLOCK; i++)
        if (block[i] != 0)
            return false;
    return true;
}

static size_t text_size(const uint8_t *p, size_t n) {
    const uint8_t *const end = memchr(p, 0, n);
    return end != NULL ? (size_t)(end - p) : n;
}

static bool append(hki_tar_member *m, const uint8_t *p, size_t n) {
    if (n > HKI_TAR_MAX_NAME - m->name_size)
        return false;
    memcpy(m->name + m->name_size, p, n);
    m->name_size += n;
    m->name[m->name_size] = '\0';
    return true;
}

// The name that a header itself carries.
static void header_name(hki_tar_member *m, const uint8_t *block) {
    const bool ustar = memcmp(block + MAGIC, "ustar\0", 6) == 0;
    const size_t prefix = ustar ? text_size(block + PREFIX, PREFIX_SIZE) : 0;
    m->name_size = 0;
    if (prefix > 0) {
        (void)append(m, block + PREFIX, prefix);
        (void)append(m, (const uint8_t *)"/", 1);
    }
    (void)append(m, block + NAME, text_size(block + NAME, NAME_SIZE));
}

// ---- extensions ------------------------------------------------------------

// What pax and long-name blocks said about the next member.
typedef struct extension {
    bool has_name, has_size;
    uint64_t size;
} extension;

static uint64_t padded(uint64_t size) {
    return (size + HKI_TAR_BLOCK - 1) / HKI_TAR_BLOCK * HKI_TAR_BLOCK;
}

static bool parse_decimal(const uint8_t *p, size_t n, uint64_t *out) {
    const char *at = (const char *)p, *const end = at + n;
    return hki_scan_u64(&at, end, out) && at == end;
}

// One record "<length> <key>=<value>\n"; *used: its length.
static bool pax_record(const uint8_t *p, size_t n, hki_tar_member *m,
                       extension *e, size_t *used) {
    uint64_t length;
    const uint8_t *const blank = memchr(p, ' ', HKI_MIN(n, (size_t)20));
    if (blank == NULL || !parse_decimal(p, (size_t)(blank - p), &length) ||
        length > n || length < (size_t)(blank - p) + 3 || p[length - 1] != '\n')
        return false;
    const uint8_t *const key = blank + 1, *const end = p + length - 1;
    const uint8_t *const equal = memchr(key, '=', (size_t)(end - key));
    if (equal == NULL)
        return false;
    const size_t key_size = (size_t)(equal - key);
    const size_t size = (size_t)(end - equal - 1);
    *used = (size_t)length;
    if (key_size == 4 && memcmp(key, "path", 4) == 0) {
        m->name_size = 0;
        e->has_name = true;
        return text_size(equal + 1, size) == size && append(m, equal + 1, size);
    }
    if (key_size == 4 && memcmp(key, "size", 4) == 0) {
        e->has_size = true;
        return parse_decimal(equal + 1, size, &e->size);
    }
    return true;
}

static bool pax_records(const uint8_t *p, size_t n, hki_tar_member *m,
                        extension *e) {
    while (n > 0 && p[0] != 0) {
        size_t used;
        if (!pax_record(p, n, m, e, &used))
            return false;
        p += used;
        n -= used;
    }
    return true;
}

// Reads the data of an x or L block.
static hk_status read_extension(hki_file_reader *r, uint8_t type, uint64_t size,
                                hki_tar_member *m, extension *e) {
    if (size > MAX_EXTENSION)
        return hki_file_reader_fail(
            r, HK_E_DATA, 0,
            "an extended header of %llu bytes is above the limit of %llu",
            (unsigned long long)size, (unsigned long long)MAX_EXTENSION);
    HKI_TRY(hki_file_reader_more(r, (size_t)padded(size)));
    if (hki_file_reader_left(r) < padded(size))
        return hki_file_reader_fail(r, HK_E_DATA, 0,
                                    "the archive is truncated: the file ends "
                                    "within an extended header");
    const uint8_t *const p = r->data + r->begin;
    bool good;
    if (type == 'x') {
        good = pax_records(p, (size_t)size, m, e);
    } else {
        m->name_size = 0;
        e->has_name = true;
        good = append(m, p, text_size(p, (size_t)size));
    }
    if (!good)
        return hki_file_reader_fail(r, HK_E_DATA, 0,
                                    "a damaged extended header");
    hki_file_reader_take(r, (size_t)padded(size));
    return HK_OK;
}

// ---- members ---------------------------------------------------------------

// Names that would lead out of the folder that an archive is unpacked in.
static const char *name_fault(const hki_tar_member *m) {
    const char *p = m->name;
    if (m->name_size == 0)
        return "it has no name";
    if (p[0] == '/')
        return "its name is an absolute path";
    while (p != NULL) {
        if (p[0] == '.' && p[1] == '.' && (p[2] == '/' || p[2] == '\0'))
            return "its name has \"..\"";
        p = strchr(p, '/');
        if (p != NULL)
            p++;
    }
    return NULL;
}

// The header at hand; HK_E_END at the end of the archive.
static hk_status read_block(hki_file_reader *r, const uint8_t **block) {
    HKI_TRY(hki_file_reader_more(r, HKI_TAR_BLOCK));
    const size_t left = hki_file_reader_left(r);
    if (left == 0)
        return HK_E_END;
    const uint8_t *const p = r->data + r->begin;
    if (left < HKI_TAR_BLOCK)
        return hki_file_reader_fail(
            r, HK_E_DATA, 0,
            "the archive is truncated: its header needs %d bytes, but the file "
            "has only %zu more",
            HKI_TAR_BLOCK, left);
    if (is_zero(p))
        return HK_E_END;
    if (!checksum_fits(p))
        return hki_file_reader_fail(r, HK_E_DATA, 0,
                                    "not a tar header: the checksum is wrong");
    *block = p;
    return HK_OK;
}

hk_status hki_tar_next(hki_file_reader *r, hki_tar_member *m, bool *known) {
    extension e = {0};
    *known = false;
    m->start = r->offset;
    for (;;) {
        const uint8_t *block = NULL;
        uint64_t size;
        HKI_TRY(read_block(r, &block));
        const uint8_t type = block[TYPE];
        if (!get_number(block + SIZE, SIZE_SIZE, &size) || size > INT64_MAX / 2)
            return hki_file_reader_fail(r, HK_E_DATA, 0,
                                        "the size is not a number");
        const bool regular = type == '0' || type == 0 || type == '7';
        if (regular && !e.has_name)
            header_name(m, block);
        hki_file_reader_take(r, HKI_TAR_BLOCK);
        if (type == 'x' || type == 'L') {
            HKI_TRY(read_extension(r, type, size, m, &e));
            continue;
        }
        if (e.has_size)
            size = e.size;
        if (size > INT64_MAX / 2)
            return hki_file_reader_fail(r, HK_E_DATA, 0,
                                        "the size of %llu bytes is too large",
                                        (unsigned long long)size);
        m->size = size;
        if (regular)
            break;
        // Folders, links, devices and what else there is: no samples.
        const bool has_data = type != '1' && type != '2' && type != '5';
        if (has_data)
            HKI_TRY(hki_file_reader_skip(r, padded(size)));
        e = (extension){0};
        m->start = r->offset;
    }
    *known = true;
    const char *const fault = name_fault(m);
    if (fault != NULL)
        return hki_file_reader_fail(r, HK_E_DATA, 0, "member \"%.200s\": %s",
                                    m->name, fault);
    return HK_OK;
}

hk_status hki_tar_data(hki_file_reader *r, const hki_tar_member *m,
                       const uint8_t **bytes) {
    const uint64_t limit = r->files->opt.max_record_bytes;
    if (m->size > limit)
        return hki_file_reader_fail(
            r, HK_E_DATA, 0,
            "member \"%.200s\": %llu bytes are above the "
            "limit of %llu",
            m->name, (unsigned long long)m->size, (unsigned long long)limit);
    // The filling of the last block may be missing at the end of the file.
    HKI_TRY(hki_file_reader_more(r, (size_t)padded(m->size)));
    if (hki_file_reader_left(r) < m->size)
        return hki_file_reader_fail(
            r, HK_E_DATA, 0,
            "member \"%.200s\" is truncated: it needs %llu bytes, but the file "
            "has only %zu more",
            m->name, (unsigned long long)m->size, hki_file_reader_left(r));
    *bytes = r->data + r->begin;
    hki_file_reader_take(
        r, (size_t)HKI_MIN(padded(m->size), (uint64_t)hki_file_reader_left(r)));
    return HK_OK;
}

hk_status hki_tar_pass(hki_file_reader *r, const hki_tar_member *m) {
    return hki_file_reader_skip(r, padded(m->size));
}
