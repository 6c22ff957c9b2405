// center/center_sections.h - tagged sections of a center file, so that
// later versions can keep more in it.
//
// The first page has two tables of sections behind the head; the valid one of
// the higher generation counts. The fixed parts (layout, records, vectors...)
// are sections that a reader needs; others lie behind them and are replaced as
// a whole: the new bytes go where nothing lies, the other table is written,
// and its checksum makes it count. A process that dies in between has changed
// nothing.
//
// A section that this version does not know is left alone if it is optional;
// one that is needed is refused by name.
#ifndef HKI_CENTER_SECTIONS_H
#define HKI_CENTER_SECTIONS_H
#include "center/center_file.h"

#define HKI_SECTION_RUN "run" // of a snapshot: the run's memory
#define HKI_MAX_SECTIONS 31
#define HKI_MAX_SECTION (64u << 20) // bytes of one behind the fixed parts
#define HKI_SECTIONS_AT 1024        // two tables of
#define HKI_SECTIONS_STRIDE 1536    // bytes each

typedef enum hki_section_flag {
    HKI_SECTION_NEEDED = 1, // whoever does not know it cannot read the file
    HKI_SECTION_FIXED = 2   // changes in place; has no checksum
} hki_section_flag;

typedef struct hki_section {
    char tag[8]; // filled up with zeros
    uint32_t flags;
    uint32_t crc; // CRC-32C of its bytes; FIXED: 0
    uint64_t at, bytes;
    uint64_t reserved[2];
} hki_section;

typedef struct hki_section_table {
    uint64_t generation;
    uint32_t count;
    uint32_t crc; // CRC-32C of generation, count and sections
    hki_section section[HKI_MAX_SECTIONS];
} hki_section_table;

_Static_assert(sizeof(hki_section_table) <= HKI_SECTIONS_STRIDE &&
                   HKI_SECTIONS_AT + 2 * HKI_SECTIONS_STRIDE <= 4096,
               "two tables behind the head");

// Writes the fixed parts into the first table of a file that has none.
void hki_sections_init(hki_center_file *f);
// A file of version 1 becomes one of version 2, in place.
void hki_sections_upgrade(hki_center_file *f);
// HK_E_DATA for tables or sections that are damaged, HK_E_UNSUPPORTED for a
// section that is needed and not known here. Files of version 1 have none.
hk_status hki_sections_check(const hki_center_file *f, const char *path);

// Replaces or adds a section, one call at a time. sync: to the disk. Nothing to
// do for a shard in memory.
hk_status hki_section_set(hki_center_file *f, const char *tag, uint32_t flags,
                          const void *bytes, size_t size, bool sync);
// A section's bytes in fresh memory, with a zero behind them; hki_free frees
// them. HK_E_NOT_FOUND.
hk_status hki_section_get(const hki_center_file *f, const char *tag,
                          uint8_t **bytes, size_t *size);
// Replaces or adds one in the tables of a copy's first page; its bytes lie, or
// will, at `at`.
hk_status hki_section_place(uint8_t *page, const char *tag, uint64_t at,
                            const void *bytes, size_t size);
// What lies behind the fixed parts, likewise; *size 0: nothing.
hk_status hki_sections_copy(const hki_center_file *f, uint8_t **bytes,
                            size_t *size);

#endif // HKI_CENTER_SECTIONS_H
