// zip_archive.c - zip archives as .npz files use them: members stored or
// deflated, zip64 included, no encryption, one disk.
//
//     { local header | name | extra | data } ... | directory | end record
//
// The end record is found from the back; the directory is what counts, local
// headers are only asked where their data begin. Members must not overlap:
// that is how small archives unpack to huge ones.
#include "codec/codec.h"
#include <libdeflate.h>
#include <zlib.h>

#define LOCAL_MAGIC UINT32_C(0x04034b50)
#define ENTRY_MAGIC UINT32_C(0x02014b50)
#define END_MAGIC UINT32_C(0x06054b50)
#define END64_MAGIC UINT32_C(0x06064b50)
#define LOCATOR_MAGIC UINT32_C(0x07064b50)

#define LOCAL_BYTES 30
#define ENTRY_BYTES 46
#define END_BYTES 22
#define END64_BYTES 56
#define LOCATOR_BYTES 20
#define MAX_COMMENT 65535
#define MAX_DIRECTORY (UINT64_C(1) << 30)
// Deflate cannot do better than 1032 to 1.
#define MAX_RATIO 1032

#define ZIP64_EXTRA 0x0001
#define ALIGN_EXTRA 0xd935 // data alignment, as Android's tools write it

uint32_t hki_crc32(uint32_t crc, const void *bytes, size_t n) {
    return n == 0 ? crc : libdeflate_crc32(crc, bytes, n);
}

// ---- reading the directory -------------------------------------------------

// Where the directory lies and how many entries it has.
typedef struct directory {
    uint64_t offset, size, count;
} directory;

static hk_status damaged(const hki_zip_source *z, uint64_t offset,
                         const char *text) {
    return hki_fail(HK_E_DATA, "%s: byte %llu: zip: %s", z->what,
                    (unsigned long long)offset, text);
}

static bool inside(const hki_zip_source *z, uint64_t offset, uint64_t size) {
    return offset <= z->size && size <= z->size - offset;
}

// Replaces the fields of the end record by those of its zip64 form.
static hk_status read_end64(const hki_zip_source *z, uint64_t end_at,
                            directory *d) {
    uint8_t b[END64_BYTES];
    if (end_at < LOCATOR_BYTES)
        return damaged(z, end_at, "the zip64 locator is missing");
    const uint64_t locator_at = end_at - LOCATOR_BYTES;
    HKI_TRY(z->read(z->user, locator_at, b, LOCATOR_BYTES));
    if (hki_get_u32(b) != LOCATOR_MAGIC)
        return damaged(z, locator_at, "the zip64 locator is missing");
    const uint64_t at = hki_get_u64(b + 8);
    if (!inside(z, at, END64_BYTES) || at + END64_BYTES > locator_at)
        return damaged(z, locator_at, "the zip64 end record exceeds the file");
    HKI_TRY(z->read(z->user, at, b, END64_BYTES));
    if (hki_get_u32(b) != END64_MAGIC)
        return damaged(z, at, "the zip64 end record is missing");
    d->count = hki_get_u64(b + 32);
    d->size = hki_get_u64(b + 40);
    d->offset = hki_get_u64(b + 48);
    return HK_OK;
}

// Finds the end record: the last one whose comment reaches the file's end.
static hk_status find_directory(const hki_zip_source *z, directory *d) {
    if (z->size < END_BYTES)
        return damaged(z, 0, "too short for an archive");
    const size_t tail =
        (size_t)HKI_MIN(z->size, (uint64_t)END_BYTES + MAX_COMMENT);
    const uint64_t base = z->size - tail;
    uint8_t *bytes;
    HKI_TRY(hki_alloc_array(tail, 1, &bytes));
    hk_status s = z->read(z->user, base, bytes, tail);
    size_t i = tail - END_BYTES + 1;
    while (s == HK_OK && i > 0) {
        const uint8_t *const p = bytes + --i;
        if (hki_get_u32(p) != END_MAGIC ||
            hki_get_u16(p + 20) != tail - END_BYTES - i)
            continue;
        *d = (directory){.count = hki_get_u16(p + 10),
                         .size = hki_get_u32(p + 12),
                         .offset = hki_get_u32(p + 16)};
        const bool other_disk =
            hki_get_u16(p + 4) != 0 && hki_get_u16(p + 4) != 0xffff;
        const bool is_64 = d->count == 0xffff || d->size == UINT32_MAX ||
                           d->offset == UINT32_MAX;
        hki_free(bytes);
        if (other_disk)
            return damaged(z, base + i,
                           "archives in several files are not supported");
        return is_64 ? read_end64(z, base + i, d) : HK_OK;
    }
    hki_free(bytes);
    return s != HK_OK ? s : damaged(z, z->size, "the end record is missing");
}

// Takes the 64-bit forms of fields that are all ones from the extra field.
static bool read_extra64(const uint8_t *extra, size_t size, uint64_t *fields[],
                         size_t n_fields) {
    while (size >= 4) {
        const size_t length = hki_get_u16(extra + 2);
        if (length > size - 4)
            return false;
        const uint8_t *p = extra + 4, *const end = p + length;
        extra = end;
        size -= 4 + length;
        if (hki_get_u16(p - 4) != ZIP64_EXTRA)
            continue;
        for (size_t i = 0; i < n_fields; i++) {
            if (*fields[i] != UINT32_MAX)
                continue;
            if (end - p < 8)
                return false;
            *fields[i] = hki_get_u64(p);
            p += 8;
        }
        return true;
    }
    return true;
}

// A name that no program should ever unpack to a file is refused.
static bool name_ok(const char *name, size_t size) {
    if (size == 0 || name[0] == '/' || memchr(name, '\0', size) != NULL ||
        memchr(name, '\\', size) != NULL)
        return false;
    for (size_t i = 0; i < size;) {
        const char *const slash = memchr(name + i, '/', size - i);
        const size_t n =
            slash == NULL ? size - i : (size_t)(slash - (name + i));
        if (n == 2 && name[i] == '.' && name[i + 1] == '.')
            return false;
        i += n + 1;
    }
    return true;
}

// One directory entry at p (left bytes); *used: its length. header_at: where
// the local header lies.
static hk_status read_entry(const hki_zip_source *z, uint64_t at,
                            const uint8_t *p, size_t left, hki_zip_entry *e,
                            uint64_t *header_at, size_t *used) {
    if (left < ENTRY_BYTES || hki_get_u32(p) != ENTRY_MAGIC)
        return damaged(z, at, "a directory entry is missing");
    const size_t name = hki_get_u16(p + 28), extra = hki_get_u16(p + 30);
    const size_t total = ENTRY_BYTES + name + extra + hki_get_u16(p + 32);
    if (total > left)
        return damaged(z, at, "a directory entry is truncated");
    *e = (hki_zip_entry){.name = (const char *)p + ENTRY_BYTES,
                         .name_size = name,
                         .method = hki_get_u16(p + 10),
                         .crc32 = hki_get_u32(p + 16),
                         .packed_size = hki_get_u32(p + 20),
                         .size = hki_get_u32(p + 24)};
    *header_at = hki_get_u32(p + 42);
    uint64_t *fields[] = {&e->size, &e->packed_size, header_at};
    if (!read_extra64(p + ENTRY_BYTES + name, extra, fields, 3))
        return damaged(z, at, "the zip64 field is damaged");
    if (!name_ok(e->name, name))
        return damaged(z, at,
                       "a member's name is empty, absolute or holds "
                       "\"..\"");
    if ((hki_get_u16(p + 8) & 1) != 0)
        return damaged(z, at, "encrypted members are not supported");
    if (e->method != 0 && e->method != 8)
        return damaged(z, at, "the compression method is not supported");
    if (e->method == 0 ? e->size != e->packed_size
                       : e->size / MAX_RATIO > e->packed_size)
        return damaged(z, at, "the sizes of a member contradict each other");
    *used = total;
    return HK_OK;
}

// Asks the local header where the member's data begin.
static hk_status locate_data(const hki_zip_source *z, uint64_t header_at,
                             hki_zip_entry *e) {
    uint8_t b[LOCAL_BYTES];
    if (!inside(z, header_at, LOCAL_BYTES))
        return damaged(z, header_at, "a member exceeds the file");
    HKI_TRY(z->read(z->user, header_at, b, LOCAL_BYTES));
    if (hki_get_u32(b) != LOCAL_MAGIC)
        return damaged(z, header_at, "a member's header is missing");
    e->data_offset =
        header_at + LOCAL_BYTES + hki_get_u16(b + 26) + hki_get_u16(b + 28);
    if (!inside(z, e->data_offset, e->packed_size))
        return damaged(z, header_at,
                       "a member ends after the end of the archive");
    return HK_OK;
}

typedef struct span {
    uint64_t begin, end;
} span;

static int by_begin(const void *a, const void *b) {
    const span *const x = a, *const y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

// No two members, nor a member and the directory, share bytes.
static hk_status check_overlap(const hki_zip_source *z, span *spans, size_t n,
                               const directory *d) {
    qsort(spans, n, sizeof *spans, by_begin);
    for (size_t i = 0; i < n; i++)
        if (spans[i].end > (i + 1 < n ? spans[i + 1].begin : d->offset))
            return damaged(z, spans[i].begin, "members overlap");
    return HK_OK;
}

// Entries and, behind them, their names in one block.
static hk_status read_directory(const hki_zip_source *z, const directory *d,
                                const uint8_t *bytes, hki_zip_entry *entries,
                                span *spans, char *names) {
    size_t pos = 0;
    for (size_t i = 0; i < d->count; i++) {
        uint64_t header_at = 0;
        size_t used = 0;
        HKI_TRY(read_entry(z, d->offset + pos, bytes + pos,
                           (size_t)d->size - pos, &entries[i], &header_at,
                           &used));
        HKI_TRY(locate_data(z, header_at, &entries[i]));
        spans[i] =
            (span){header_at, entries[i].data_offset + entries[i].packed_size};
        memcpy(names, entries[i].name, entries[i].name_size);
        entries[i].name = names;
        names += entries[i].name_size;
        *names++ = '\0';
        pos += used;
    }
    if (pos != d->size)
        return damaged(z, d->offset + pos,
                       "there are bytes after the last entry");
    return check_overlap(z, spans, (size_t)d->count, d);
}

hk_status hki_zip_list_from(const hki_zip_source *z, hki_zip_entry **entries,
                            size_t *count) {
    directory d = {0};
    HKI_TRY(find_directory(z, &d));
    if (!inside(z, d.offset, d.size) || d.size > MAX_DIRECTORY ||
        d.count > d.size / ENTRY_BYTES)
        return damaged(z, d.offset, "the directory exceeds the file");
    const size_t n = (size_t)d.count, size = (size_t)d.size;
    HKI_FREED uint8_t *bytes = NULL;
    HKI_FREED span *spans = NULL;
    HKI_FREED hki_zip_entry *list = NULL;
    HKI_TRY(hki_alloc_array(size, 1, &bytes));
    HKI_TRY(hki_alloc_array(n, sizeof *spans, &spans));
    // Every name is shorter than its entry, NUL included: size is room for
    // all of them.
    HKI_TRY(hki_alloc_array(n * sizeof *list + size, 1, &list));
    HKI_TRY(z->read(z->user, d.offset, bytes, size));
    HKI_TRY(read_directory(z, &d, bytes, list, spans, (char *)(list + n)));
    *entries = list;
    list = NULL;
    *count = n;
    return HK_OK;
}

// ---- reading a member ------------------------------------------------------

static hk_status inflate_member(const hki_zip_source *z, const hki_zip_entry *e,
                                const uint8_t *packed, void *out) {
    struct libdeflate_decompressor *const d = libdeflate_alloc_decompressor();
    if (d == NULL)
        return hki_fail(HK_E_NO_MEMORY,
                        "%s: out of memory for the decompression", z->what);
    size_t got = 0;
    const enum libdeflate_result r = libdeflate_deflate_decompress(
        d, packed, (size_t)e->packed_size, out, (size_t)e->size, &got);
    libdeflate_free_decompressor(d);
    if (r != LIBDEFLATE_SUCCESS || got != e->size)
        return hki_fail(HK_E_DATA,
                        "%s: %.*s: has %zu uncompressed bytes, expected %llu",
                        z->what, (int)e->name_size, e->name, got,
                        (unsigned long long)e->size);
    return HK_OK;
}

hk_status hki_zip_read_from(const hki_zip_source *z, const hki_zip_entry *e,
                            void *out) {
    if (e->method == 0) {
        HKI_TRY(z->read(z->user, e->data_offset, out, (size_t)e->size));
    } else {
        uint8_t *packed;
        HKI_TRY(hki_alloc_array((size_t)e->packed_size, 1, &packed));
        hk_status s =
            z->read(z->user, e->data_offset, packed, (size_t)e->packed_size);
        if (s == HK_OK)
            s = inflate_member(z, e, packed, out);
        hki_free(packed);
        HKI_TRY(s);
    }
    const uint32_t crc = hki_crc32(0, out, (size_t)e->size);
    if (crc != e->crc32)
        return hki_fail(HK_E_DATA, "%s: %.*s: checksum is %08x, expected %08x",
                        z->what, (int)e->name_size, e->name, crc, e->crc32);
    return HK_OK;
}

// The packed bytes are fed piece by piece until `capacity` came out.
static hk_status inflate_head(const hki_zip_source *z, const hki_zip_entry *e,
                              z_stream *stream) {
    uint8_t packed[4096];
    int r = Z_OK;
    for (uint64_t at = 0; at < e->packed_size && stream->avail_out > 0 &&
                          (r == Z_OK || r == Z_BUF_ERROR);) {
        const size_t n =
            (size_t)HKI_MIN(e->packed_size - at, (uint64_t)sizeof packed);
        HKI_TRY(z->read(z->user, e->data_offset + at, packed, n));
        stream->next_in = packed;
        stream->avail_in = (uInt)n;
        r = inflate(stream, Z_SYNC_FLUSH);
        at += n;
    }
    if (r != Z_OK && r != Z_BUF_ERROR && r != Z_STREAM_END)
        return hki_fail(r == Z_MEM_ERROR ? HK_E_NO_MEMORY : HK_E_DATA,
                        "%s: %.*s: cannot be uncompressed", z->what,
                        (int)e->name_size, e->name);
    return HK_OK;
}

hk_status hki_zip_head_from(const hki_zip_source *z, const hki_zip_entry *e,
                            void *out, size_t capacity, size_t *got) {
    const size_t wanted = (size_t)HKI_MIN(e->size, (uint64_t)capacity);
    if (e->method == 0) {
        HKI_TRY(z->read(z->user, e->data_offset, out, wanted));
        *got = wanted;
        return HK_OK;
    }
    z_stream stream = {.next_out = out,
                       .avail_out = (uInt)HKI_MIN(wanted, (size_t)INT32_MAX)};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK)
        return hki_fail(HK_E_NO_MEMORY,
                        "%s: out of memory for the decompression", z->what);
    const hk_status s = inflate_head(z, e, &stream);
    inflateEnd(&stream);
    HKI_TRY(s);
    *got = (size_t)stream.total_out;
    return HK_OK;
}

// ---- writing ---------------------------------------------------------------

// The fields that local header and directory entry have in common, from
// "version needed" to the length of the name.
static void put_common(uint8_t *p, bool is_64, uint32_t crc, uint64_t size,
                       size_t name_size) {
    const uint32_t short_size =
        size >= UINT32_MAX ? UINT32_MAX : (uint32_t)size;
    hki_put_u16(p, is_64 ? 45 : 20); // version needed
    hki_put_u16(p + 2, 0x0800);      // the name is UTF-8
    hki_put_u16(p + 4, 0);           // stored
    hki_put_u16(p + 6, 0);           // time and date: 1980-01-01, so that equal
    hki_put_u16(p + 8, 0x21);        // weights give equal files
    hki_put_u32(p + 10, crc);
    hki_put_u32(p + 14, short_size);
    hki_put_u32(p + 18, short_size);
    hki_put_u16(p + 22, (uint32_t)name_size);
}

// The zip64 field with the values given; returns its length.
static size_t put_extra64(uint8_t *p, const uint64_t *values, size_t n) {
    hki_put_u16(p, ZIP64_EXTRA);
    hki_put_u16(p + 2, (uint32_t)(8 * n));
    for (size_t i = 0; i < n; i++)
        hki_put_u64(p + 4 + 8 * i, values[i]);
    return 4 + 8 * n;
}

static hk_status add_entry(hki_zip_writer *z, const char *name,
                           size_t name_size, uint64_t size, uint32_t crc) {
    uint8_t p[ENTRY_BYTES] = {0}, extra[4 + 3 * 8];
    uint64_t values[3];
    size_t n = 0;
    if (size >= UINT32_MAX)
        values[n++] = size, values[n++] = size;
    if (z->offset >= UINT32_MAX)
        values[n++] = z->offset;
    const size_t extra_size = n > 0 ? put_extra64(extra, values, n) : 0;
    hki_put_u32(p, ENTRY_MAGIC);
    hki_put_u16(p + 4, 3 << 8 | 45); // made by: Unix, 4.5
    put_common(p + 6, n > 0, crc, size, name_size);
    hki_put_u16(p + 30, (uint32_t)extra_size);
    hki_put_u32(p + 38, UINT32_C(0100644) << 16); // a plain file
    hki_put_u32(p + 42,
                z->offset >= UINT32_MAX ? UINT32_MAX : (uint32_t)z->offset);
    HKI_TRY(hki_buf_add(&z->directory, p, sizeof p));
    HKI_TRY(hki_buf_add(&z->directory, name, name_size));
    return hki_buf_add(&z->directory, extra, extra_size);
}

// Bytes of the alignment field that moves data from `at` to a multiple of
// pad_to; 0 when they are there already.
static size_t padding(uint64_t at, uint32_t pad_to) {
    if (pad_to < 2 || at % pad_to == 0)
        return 0;
    size_t pad = pad_to - (size_t)(at % pad_to);
    while (pad < 6) // the field's head takes six bytes
        pad += pad_to;
    return pad;
}

hk_status hki_zip_begin(hki_zip_writer *z, hki_buf *out, const char *name,
                        uint64_t size, uint32_t crc32, uint32_t pad_to) {
    static const uint8_t zeros[64];
    const size_t name_size = strlen(name);
    if (name_size > UINT16_MAX || !name_ok(name, name_size) || pad_to > 4096 ||
        size > INT64_MAX)
        return hki_fail(HK_E_INVALID_ARG,
                        "zip: \"%.200s\" of %llu bytes cannot be a member",
                        name, (unsigned long long)size);
    uint8_t p[LOCAL_BYTES] = {0}, extra[4 + 2 * 8], align[6];
    const bool is_64 = size >= UINT32_MAX;
    const uint64_t values[2] = {size, size};
    const size_t extra_size = is_64 ? put_extra64(extra, values, 2) : 0;
    const size_t head = LOCAL_BYTES + name_size + extra_size;
    const size_t pad = padding(z->offset + head, pad_to);
    hki_put_u32(p, LOCAL_MAGIC);
    put_common(p + 4, is_64, crc32, size, name_size);
    hki_put_u16(p + 28, (uint32_t)(extra_size + pad));
    HKI_TRY(hki_buf_add(out, p, sizeof p));
    HKI_TRY(hki_buf_add(out, name, name_size));
    HKI_TRY(hki_buf_add(out, extra, extra_size));
    if (pad > 0) {
        hki_put_u16(align, ALIGN_EXTRA);
        hki_put_u16(align + 2, (uint32_t)(pad - 4));
        hki_put_u16(align + 4, pad_to);
        HKI_TRY(hki_buf_add(out, align, sizeof align));
        for (size_t left = pad - sizeof align; left > 0;) {
            const size_t n = HKI_MIN(left, sizeof zeros);
            HKI_TRY(hki_buf_add(out, zeros, n));
            left -= n;
        }
    }
    HKI_TRY(add_entry(z, name, name_size, size, crc32));
    z->offset += head + pad + size;
    z->count++;
    return HK_OK;
}

hk_status hki_zip_end(hki_zip_writer *z, hki_buf *out) {
    uint8_t p[END64_BYTES + LOCATOR_BYTES + END_BYTES] = {0};
    const uint64_t size = z->directory.size, at = z->offset;
    const bool is_64 =
        z->count >= 0xffff || size >= UINT32_MAX || at >= UINT32_MAX;
    uint8_t *end = p;
    if (is_64) {
        hki_put_u32(p, END64_MAGIC);
        hki_put_u64(p + 4, END64_BYTES - 12); // what follows this field
        hki_put_u16(p + 12, 3 << 8 | 45);
        hki_put_u16(p + 14, 45);
        hki_put_u64(p + 24, z->count);
        hki_put_u64(p + 32, z->count);
        hki_put_u64(p + 40, size);
        hki_put_u64(p + 48, at);
        uint8_t *const locator = p + END64_BYTES;
        hki_put_u32(locator, LOCATOR_MAGIC);
        hki_put_u64(locator + 8, at + size);
        hki_put_u32(locator + 16, 1); // one disk
        end = locator + LOCATOR_BYTES;
    }
    const uint32_t count = z->count >= 0xffff ? 0xffff : (uint32_t)z->count;
    hki_put_u32(end, END_MAGIC);
    hki_put_u16(end + 8, count);
    hki_put_u16(end + 10, count);
    hki_put_u32(end + 12, size >= UINT32_MAX ? UINT32_MAX : (uint32_t)size);
    hki_put_u32(end + 16, at >= UINT32_MAX ? UINT32_MAX : (uint32_t)at);
    HKI_TRY(hki_buf_add(out, z->directory.data, z->directory.size));
    return hki_buf_add(out, p, (size_t)(end - p) + END_BYTES);
}

void hki_zip_deinit(hki_zip_writer *z) {
    if (z == NULL)
        return;
    hki_buf_deinit(&z->directory);
    *z = (hki_zip_writer){0};
}
