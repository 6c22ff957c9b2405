// codec/codec.h - bytes in, bytes out: checksums, protobuf wire, record
// framing, JSON, NumPy and zip headers, compression, pictures.
//
// Every reader takes (const uint8_t *, size_t), checks each length before
// use or allocation and bounds its depth. `what` names the input in messages
// (a path); offsets in messages count bytes from its start.
#ifndef HKI_CODEC_H
#define HKI_CODEC_H
#if !defined(HKI_BANNED_H) // which poisons a name that jansson.h uses
#include <jansson.h>
#endif
#include "base/base.h"
#include "fetch/fetch.h"

typedef struct json_t json_t; // whoever includes base.h first does without

// ---- CRC32C (Castagnoli), by hardware instruction where there is one ------

// Extends crc (0 to start) over n more bytes.
uint32_t hki_crc32c(uint32_t crc, const void *bytes, size_t n);
// The same from tables only; hki_crc32c takes it where the CPU has no
// instruction.
uint32_t hki_crc32c_plain(uint32_t crc, const void *bytes, size_t n);
uint32_t hki_crc32c_mask(uint32_t crc); // rotate right 15, + 0xa282ead8
uint32_t hki_crc32c_unmask(uint32_t masked);

// ---- protobuf wire subset -------------------------------------------------

typedef enum hki_pb_type {
    HKI_PB_VARINT = 0,
    HKI_PB_FIXED64 = 1,
    HKI_PB_BYTES = 2,
    HKI_PB_FIXED32 = 5
} hki_pb_type;

// A cursor over one message. A zeroed field after the end; groups are
// refused.
typedef struct hki_pb {
    const uint8_t *p, *end;
} hki_pb;

typedef struct hki_pb_field {
    uint32_t number;
    hki_pb_type type;
    uint64_t value; // varint, fixed32, fixed64
    const uint8_t *bytes;
    size_t size; // HKI_PB_BYTES
} hki_pb_field;

// False at the end or at malformed bytes; *bad tells which.
bool hki_pb_next(hki_pb *m, hki_pb_field *f, bool *bad);
// False: truncated, or longer than ten bytes.
bool hki_varint_get(const uint8_t **p, const uint8_t *end, uint64_t *v);
size_t hki_varint_put(uint8_t out[10], uint64_t v); // bytes written

// Writers append to a buffer.
hk_status hki_pb_varint(hki_buf *b, uint32_t number, uint64_t v);
hk_status hki_pb_fixed32(hki_buf *b, uint32_t number, uint32_t v);
hk_status hki_pb_fixed64(hki_buf *b, uint32_t number, uint64_t v);
hk_status hki_pb_float(hki_buf *b, uint32_t number, float v);
hk_status hki_pb_double(hki_buf *b, uint32_t number, double v);
hk_status hki_pb_bytes(hki_buf *b, uint32_t number, const void *p, size_t n);
hk_status hki_pb_string(hki_buf *b, uint32_t number, const char *s);
// A nested message: everything appended between open and close. mark is
// opaque.
hk_status hki_pb_open(hki_buf *b, uint32_t number, size_t *mark);
hk_status hki_pb_close(hki_buf *b, size_t mark);

// ---- record framing (TFRecord, event files) -------------------------------
//
//     uint64 length | uint32 masked crc of it | data | uint32 masked crc

#define HKI_RECORD_HEADER 12
#define HKI_RECORD_FOOTER 4

typedef enum hki_record_state {
    HKI_RECORD_WHOLE = 0,
    HKI_RECORD_END = 1,       // no byte is left
    HKI_RECORD_TRUNCATED = 2, // the bytes end before the record does
    HKI_RECORD_BAD_LENGTH = 3,
    HKI_RECORD_BAD_DATA = 4
} hki_record_state;

// The length in a header; false when its checksum is wrong. The length is
// still to be held against what the file has left.
bool hki_record_length(const uint8_t header[HKI_RECORD_HEADER],
                       uint64_t *length);
// What stands before and behind these bytes.
void hki_record_seal(const void *data, size_t size,
                     uint8_t header[HKI_RECORD_HEADER],
                     uint8_t footer[HKI_RECORD_FOOTER]);
// The record at the start of bytes; data and size are set when it is whole.
hki_record_state hki_record_parse(const uint8_t *bytes, size_t size,
                                  const uint8_t **data, size_t *data_size);
hk_status hki_record_append(hki_buf *b, const void *data, size_t size);

// ---- JSON -----------------------------------------------------------------

// Strict: UTF-8, no duplicate keys, bounded depth; the message has line and
// column. *out is released with json_decref.
hk_status hki_json_parse(const void *text, size_t size, const char *what,
                         json_t **out);
// A quoted, escaped JSON string; HK_E_INVALID_ARG when s is not UTF-8.
hk_status hki_json_quote(hki_buf *b, const char *s, size_t size);
bool hki_utf8_valid(const char *s, size_t size);
// Makes foreign words fit for logs and files: control characters, characters
// that turn the direction of writing, and bytes that are no UTF-8 become '?'.
void hki_utf8_clean(char *s);

// ---- NumPy ----------------------------------------------------------------

// The types of .npy that Hooke knows. No tensor here: codec is below tensor.
typedef enum hki_npy_type {
    HKI_NPY_F32 = 1,
    HKI_NPY_F64,
    HKI_NPY_F16,
    HKI_NPY_I8,
    HKI_NPY_I16,
    HKI_NPY_I32,
    HKI_NPY_I64,
    HKI_NPY_U8,
    HKI_NPY_U16,
    HKI_NPY_U32,
    HKI_NPY_U64,
    HKI_NPY_BOOL,
    HKI_NPY_BYTES,   // S<n>
    HKI_NPY_UNICODE, // U<n>, 4 bytes a character
    HKI_NPY_C64,
    HKI_NPY_C128
} hki_npy_type;

typedef struct hki_npy {
    hki_npy_type type;
    uint32_t item_size; // bytes
    bool big_endian, fortran_order;
    int32_t rank; // at most 32
    int64_t dim[32];
    int64_t count;      // elements, checked for overflow
    size_t data_offset; // of the first byte
    size_t data_size;
} hki_npy;

// Reads the header; size: bytes at hand (the header at least), total: of the
// whole file, UINT64_MAX when unknown. HK_E_DATA for damage, pickled objects
// and structures.
hk_status hki_npy_parse(const uint8_t *bytes, size_t size, uint64_t total,
                        const char *what, hki_npy *out);
// Appends a version 1.0 (or 2.0) header, padded to 64.
// One element of HKI_NPY_BYTES or _UNICODE without the NULs that fill it up,
// the latter as UTF-8; replaces what is in text.
hk_status hki_npy_string(const hki_npy *a, const uint8_t *item, hki_buf *text);
hk_status hki_npy_header(hki_buf *b, hki_npy_type type, int32_t rank,
                         const int64_t *dim);

// ---- zip (for .npz) -------------------------------------------------------

typedef struct hki_zip_entry {
    const char *name; // NUL-terminated; lives as long as the list
    size_t name_size;
    uint32_t method; // 0 stored, 8 deflate
    uint32_t crc32;
    uint64_t size, packed_size;
    uint64_t data_offset;
} hki_zip_entry;

// read delivers exactly size bytes, which lie inside the archive, or fails.
typedef struct hki_zip_source {
    hk_status (*read)(void *user, uint64_t offset, void *out, size_t size);
    void *user;
    uint64_t size;    // of the archive
    const char *what; // in messages
} hki_zip_source;
// Reads the central directory (zip64 too); *entries is freed with hki_free.
// Sizes are checked against the file and each other, members must not
// overlap, names must not be absolute or hold "..", NUL or a backslash.
hk_status hki_zip_list_from(const hki_zip_source *z, hki_zip_entry **entries,
                            size_t *count);
// Unpacks into exactly e->size bytes and checks the CRC.
hk_status hki_zip_read_from(const hki_zip_source *z, const hki_zip_entry *e,
                            void *out);
// The first bytes of a member, unchecked: *got of at most `capacity`, fewer
// only when the member is shorter.
hk_status hki_zip_head_from(const hki_zip_source *z, const hki_zip_entry *e,
                            void *out, size_t capacity, size_t *got);
// Writing, stored: local header, data by the caller, then the directory.
typedef struct hki_zip_writer {
    hki_buf directory;
    uint64_t offset; // bytes written so far
    uint64_t count;
} hki_zip_writer;
// Appends what precedes the data of a member whose size and crc32 are known.
// pad_to: the data begins at a multiple of it (1: none).
hk_status hki_zip_begin(hki_zip_writer *z, hki_buf *out, const char *name,
                        uint64_t size, uint32_t crc32, uint32_t pad_to);
hk_status hki_zip_end(hki_zip_writer *z, hki_buf *out);
void hki_zip_deinit(hki_zip_writer *z);
uint32_t hki_crc32(uint32_t crc, const void *bytes, size_t n); // zip's

// ---- compression ----------------------------------------------------------

typedef enum hki_packing {
    HKI_UNPACKED = 0,
    HKI_GZIP = 1, // several members allowed
    HKI_ZLIB = 2
} hki_packing;

// A stream over a file: its bytes as they were before packing. file: stands at
// its first byte; taken, also on failure.
typedef struct hki_stream hki_stream;
hk_status hki_stream_open(hki_input *file, hki_packing packing,
                          size_t buffer_bytes, hki_stream **out);
// At least 1 byte unless at the end (*got 0).
hk_status hki_stream_read(hki_stream *s, void *out, size_t capacity,
                          size_t *got);
// Size of the file; false where nobody knows it, and of a packed one.
bool hki_stream_size(const hki_stream *s, uint64_t *size);
// All that follows, at most `limit` bytes (HK_E_DATA beyond: a bomb). *out is
// freed with hki_free.
hk_status hki_stream_read_all(hki_stream *s, size_t limit, uint8_t **out,
                              size_t *size);
// To this unpacked byte: at once in a plain file; reads through in a packed
// one, from its beginning to go back.
hk_status hki_stream_seek(hki_stream *s, uint64_t position);
// Nothing from this unpacked byte on will be wanted; a hint.
void hki_stream_until(hki_stream *s, uint64_t end);
void hki_stream_close(hki_stream *s); // NULL is allowed

// Packs as bytes come; what is ready is appended to out. level: 1 to 9.
typedef struct hki_packer hki_packer; // opaque
hk_status hki_packer_create(hki_packing packing, int level, hki_packer **out);
void hki_packer_destroy(hki_packer *p); // NULL is allowed
hk_status hki_packer_add(hki_packer *p, const void *bytes, size_t size,
                         hki_buf *out);
hk_status hki_packer_finish(hki_packer *p, hki_buf *out);

// ---- pictures -------------------------------------------------------------

typedef struct hki_picture {
    int32_t height, width, channels; // 8 bits a channel, rows from the top
    uint8_t *pixels;                 // height * width * channels; hki_free
} hki_picture;

hk_status hki_png_encode(const uint8_t *pixels, int height, int width,
                         int channels, hki_buf *out);

// Pictures are read in two steps, into memory of the caller's. A decoder keeps
// what one picture leaves for the next; one thread at a time.
typedef struct hki_picture_decoder hki_picture_decoder;
hk_status hki_picture_decoder_create(hki_picture_decoder **out);
void hki_picture_decoder_destroy(hki_picture_decoder *d); // NULL is allowed
// PNG or JPEG by its first bytes. channels: 1, 3, 4, or 0 as stored. max_pixels
// bounds height * width. Fills height, width and channels; pixels becomes NULL.
// HK_E_UNSUPPORTED in a build without.
hk_status hki_picture_probe(const uint8_t *bytes, size_t size, int channels,
                            uint64_t max_pixels, const char *what,
                            hki_picture *out);
// Decodes the picture that was probed into p->pixels.
hk_status hki_picture_read(hki_picture_decoder *d, const uint8_t *bytes,
                           size_t size, const char *what, const hki_picture *p);

#endif // HKI_CODEC_H
