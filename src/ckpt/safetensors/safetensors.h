// safetensors.h - the parts of the native format.
//
//     u64 N | N bytes of JSON, blanks at the end | buffer
//
// The JSON maps each name to {"dtype", "shape", "data_offsets": [begin, end)},
// offsets into the buffer; "__metadata__" maps strings to strings. The tensors
// tile the buffer exactly. Several files are held together by an index,
// {"metadata": {...}, "weight_map": {name: file}}.
#ifndef HKI_CKPT_SAFETENSORS_H
#define HKI_CKPT_SAFETENSORS_H
#include <jansson.h> // before the headers that poison a name it uses
#include "ckpt/core/formats.h"
#include "codec/codec.h"

#define HKI_ST_SUFFIX ".safetensors"
#define HKI_ST_INDEX ".safetensors.index.json"
#define HKI_ST_MAX_HEADER 100000000
#define HKI_ST_MAX_INDEX (1u << 27)
// Checksums of the tensors, in the order of the buffer: eight hex digits each.
#define HKI_ST_CRC_KEY "hooke.crc32c"

// NULL when Hooke does not write the type.
const char *hki_st_type_name(hki_elem e);

// Parses a header of n bytes; the buffer of buffer_bytes begins at data_at of
// file number `place`. Appends tensors and metadata to c. what: in messages.
hk_status hki_st_parse(hk_ckpt *c, uint32_t place, const char *what,
                       const uint8_t *json, size_t n, uint64_t data_at,
                       uint64_t buffer_bytes);

// Writes one file of the items given; they are in the order of their names.
hk_status hki_st_write_file(const char *path, const hki_ckpt_item *items,
                            size_t count, const hki_ckpt_plan *plan);

// "run/x.safetensors" and "run/x.safetensors.index.json" -> "run/x".
hk_status hki_st_stem(const char *path, char **out);
// Whether name is a shard of the checkpoint `stem` (both without folder; NULL:
// of any): <stem>[~<generation>]-<number>-of-<count>.safetensors.
bool hki_st_is_shard(const char *name, const char *stem);
// Writes shards and index; see hki_ckpt_ops.write.
hk_status hki_st_write_shards(const char *path, const hki_ckpt_plan *plan);
// Removes the index first, then the shards of a checkpoint. except: the names
// (json object keys) of shards that stay; NULL: none.
hk_status hki_st_remove_shards(const char *path, const json_t *except);

// Removes files of the checkpoint's name that are no part of it.
hk_status hki_st_tidy(const char *path);

#endif // HKI_CKPT_SAFETENSORS_H
