// center/center_file.h - the center file: the state of one shard in
// memory that outlives its process.
//
//   0          head: what this file is (never changes), then a few counters;
//              tables of the sections (center_sections.h)
//   layout_at  the layout with shares, as on the wire
//   worker_at  64 bytes for every worker, one more for the center itself
//   chunk_at   64 bytes for every chunk
//   side_at    side block
//   undo_at    undo slots: 128 bytes, row ids, a chunk of every vector
//   vector_at  vectors of n_floats; the first one holds the values
//   file_bytes sections of other versions and purposes
//
// Numbers are the machine's own (little-endian is demanded). Everything but
// the head may change at any time while a server runs; docs/formats/
// center-file.md says in which order, and what recovery does.
//
// A shard without a path has the same layout in memory. The shard of an
// in-process center has no undo slots.
#ifndef HKI_CENTER_FILE_H
#define HKI_CENTER_FILE_H
#include <stdatomic.h>
#include "center/center.h"

#define HKI_BATCH_ROWS 8192 // rows of a table in one unit, at most

#define HKI_CENTER_VERSION 2
#define HKI_MAX_VECTORS 5
#define HKI_UNDO_SLOTS 8

typedef struct hki_center_head {
    char magic[8]; // "HKCENTER"
    uint32_t endian, version;
    uint64_t fingerprint, plan; // of layout and cuts
    uint32_t method, max_workers, chunk_floats, n_vectors;
    uint32_t n_undo, shard, n_shards, n_chunks;
    uint64_t first_float, n_floats, max_floats; // max_floats: of a chunk
    uint64_t layout_at, layout_bytes, worker_at, chunk_at, side_at, side_bytes;
    uint64_t undo_at, undo_stride, vector_at, vector_stride;
    uint64_t file_bytes; // of all these parts
    uint64_t check;      // hash of everything above

    // From here on it changes, each word by itself.
    uint64_t clean; // 1: closed in good order
    uint64_t run_id;
    uint64_t initialised;
    int64_t step_base; // global step less the workers' steps
    uint64_t stale, joins;
    double fast_rate;       // of the open round
    uint64_t barrier;       // 1: the start barrier has been passed
    uint64_t cut;           // snapshot this file is; 0: a live file
    char boot[HKI_BOOT_ID]; // of the system's boot that last wrote
} hki_center_head;

typedef struct hki_worker_record {
    uint64_t cursor;  // exchange << 24 | units applied: the commit point
    int64_t steps;    // in total
    uint64_t round;   // last complete contribution, plus 1
    uint64_t entered; // round in which its last exchange began
    uint32_t incarnation;
    uint32_t live;
    uint64_t awaited;  // rounds before this one do not wait for it
    double first_loss; // of its first step, the largest of all its incarnations
    uint64_t reserved;
} hki_worker_record;

typedef struct hki_chunk_record {
    uint64_t updates;
    uint32_t contributions; // to the open round
    float power[2];         // scalars of an outer optimizer
    uint32_t reserved;
    uint64_t more[5];
} hki_chunk_record;

typedef struct hki_undo_head {
    uint64_t tag; // the cursor that commits it; 0: closed
    uint32_t worker;
    uint32_t chunk;   // first chunk
    uint32_t vectors; // mask of what was copied
    uint32_t rows;    // > 0: rows of a table instead of a chunk
    uint32_t table;
    uint32_t crc;            // of the copies; 0: not computed
    hki_chunk_record before; // of a chunk
    // HKI_UNDO_IDS bytes in all, then row ids, then the copies.
} hki_undo_head;

_Static_assert(sizeof(hki_worker_record) == 64, "one line of cache");
_Static_assert(sizeof(hki_chunk_record) == 64, "one line of cache");

#define HKI_UNDO_IDS 128
#define HKI_UNDO_DATA (HKI_UNDO_IDS + 4 * HKI_BATCH_ROWS)
_Static_assert(sizeof(hki_undo_head) <= HKI_UNDO_IDS, "row ids come after it");

typedef struct hki_center_file {
    char *path; // NULL: in memory
    int fd;     // -1: none; without a path the map is from hki_alloc
    bool view;  // a private copy: the file stays as it is
    uint8_t *map;
    size_t bytes;
    hki_center_head *head;
    hki_worker_record *worker;
    hki_chunk_record *chunk;
    uint8_t *side;
    float *vector[HKI_MAX_VECTORS];
} hki_center_file;

// Where everything lies, from the numbers in the upper part of *head.
// HK_E_OVERFLOW when it does not fit.
hk_status hki_center_geometry(hki_center_head *head, const char *what);

// Makes a new one of the given head. layout: layout_bytes bytes. path NULL:
// memory, shared: as a descriptor that can be handed over. HK_E_EXISTS when
// the path is there.
hk_status hki_center_file_create(hki_center_file *f, const char *path,
                                 bool shared, const hki_center_head *head,
                                 const void *layout);
// Maps a file and checks its head and size. HK_E_NOT_FOUND; HK_E_EXISTS when
// another process has it; HK_E_DATA.
hk_status hki_center_file_open(hki_center_file *f, const char *path);
// The same without a server: what is changed is changed in this process only.
// HK_E_EXISTS while a server has the file.
hk_status hki_center_file_view(hki_center_file *f, const char *path);
// Whether a head, `size` bytes of it, is one of a center file.
bool hki_center_head_is(const void *head, size_t size);
// Marks it clean and unmaps. Accepts a zeroed or half-built one.
void hki_center_file_close(hki_center_file *f);

// hk_center_file_of on a file system of that type.
hk_status hki_center_file_place(const char *directory, uint32_t shard,
                                uint32_t n_shards, const char *type, char *path,
                                size_t capacity);

// Keeps the compiler from moving stores across: a process that is killed
// stops between two instructions.
#define HKI_ORDER() atomic_signal_fence(memory_order_seq_cst)

static inline uint64_t hki_load64(const uint64_t *p) {
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
static inline void hki_store64(uint64_t *p, uint64_t v) {
    HKI_ORDER();
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
    HKI_ORDER();
}

uint64_t hki_center_check(const hki_center_head *h); // what `check` has to be
uint8_t *hki_center_undo(const hki_center_file *f, uint32_t slot);
// Forces a range to the disk.
hk_status hki_center_sync(const hki_center_file *f, const void *at,
                          size_t bytes);

#endif // HKI_CENTER_FILE_H
