// sorted_table.h - sorted tables of byte strings, as LevelDB and TensorFlow's
// bundle index store them.
//
//     file     data blocks, metaindex block, index block, footer
//     block    entries, restart offsets (uint32 each), their count (uint32);
//              behind it 1 byte type (0 raw, 1 Snappy) and a masked CRC-32C
//              over block and type
//     entry    varint shared, varint unshared, varint value size, the key's
//              unshared end, the value; `shared` bytes come from the key before
//     index    one entry a data block: a key not below the block's last, its
//              place (varint offset, varint size)
//     footer   places of metaindex and index, zeros up to byte 40, magic
#ifndef HKI_CKPT_TABLE_H
#define HKI_CKPT_TABLE_H
#include "codec/codec.h"

#define HKI_TABLE_FOOTER 48

// ---- reading ---------------------------------------------------------------

// Called for every entry in the order of the keys, which rise strictly. Key
// and value live for the call only. Another status than HK_OK ends the scan.
typedef hk_status (*hki_table_fn)(void *user, const uint8_t *key,
                                  size_t key_size, const uint8_t *value,
                                  size_t value_size);

// Reads a whole table. HK_E_DATA, with `what` and the block's offset, for any
// damage.
hk_status hki_table_scan(const uint8_t *bytes, size_t size, const char *what,
                         hki_table_fn fn, void *user);

// ---- writing ---------------------------------------------------------------

typedef struct hki_block_writer {
    hki_buf bytes;
    hki_buf restarts; // uint32 each
    hki_buf last_key;
    size_t count, interval; // entries since the last restart, at most
} hki_block_writer;

// A zeroed struct is ready.
typedef struct hki_table_writer {
    hki_buf file;
    hki_block_writer data, index;
    hki_buf separator; // last key of a block that is not in the index yet
    bool pending;
    uint64_t pending_offset, pending_size;
} hki_table_writer;

// Keys have to rise strictly.
hk_status hki_table_add(hki_table_writer *w, const void *key, size_t key_size,
                        const void *value, size_t value_size);
// The whole file is then in w->file.
hk_status hki_table_finish(hki_table_writer *w);
void hki_table_writer_deinit(hki_table_writer *w);

// ---- Snappy ----------------------------------------------------------------

// Unpacks a block; *out is freed with hki_free. HK_E_DATA when malformed.
hk_status hki_snappy_unpack(const uint8_t *bytes, size_t size, const char *what,
                            uint8_t **out, size_t *out_size);

#endif // HKI_CKPT_TABLE_H
