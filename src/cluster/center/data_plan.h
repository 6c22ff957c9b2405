// cluster/center/data_plan.h - which units of an epoch are whose.
//
// The plan knows sets of data by their names, not files. A set has units
// (examples, groups of rows, files: the readers know) that are lent in ranges
// [begin, end) of positions in an order that everybody derives from seed and
// epoch. Every unit of an epoch is in exactly one place: not lent yet (from
// `next` on), in a range that came back, in one that is out, or used.
//
// As bytes, little-endian:
//
//   u64 next range id | u64 sets, then for each of them
//       u64 length of the name, and its bytes
//       u64 fingerprint | u64 seed | i64 units | i64 epochs | i64 chunk
//       i64 epoch | i64 next
//       u64 ranges that came back: i64 epoch, begin, end, used each
//       u64 ranges that are out: u64 id, owner, i64 epoch, begin, end, used
//       each
#ifndef HKI_DATA_PLAN_H
#define HKI_DATA_PLAN_H
#include "base/base.h"
#include "hooke/cluster.h"
#include "hooke/ranges.h"

#define HKI_PLAN_SETS 64                   // of one run
#define HKI_PLAN_HELD 4096                 // ranges that one worker may hold
#define HKI_PLAN_UNITS (INT64_C(1) << 48)  // of one set
#define HKI_PLAN_EPOCHS (INT64_C(1) << 48) // of one set
#define HKI_PLAN_WORKERS 65536             // that are expected

typedef struct hki_data_plan hki_data_plan; // one thread at a time

// Who asks for a range.
typedef struct hki_taker {
    uint64_t owner;
    uint32_t live; // workers
    int64_t holds; // units that it has and has not used, as it says
} hki_taker;

hk_status hki_data_plan_create(hki_data_plan **out);
void hki_data_plan_destroy(hki_data_plan *p); // NULL is allowed

// By compare and set: the first to name a set says what it is, the others have
// to mean the same (fingerprint, units) and are told the seed. The most epochs
// that anybody wants hold. HK_E_INVALID_ARG: another set of this name.
hk_status hki_data_plan_declare(hki_data_plan *p, const hk_lent_set *want,
                                uint32_t *set, uint64_t *seed);
// Lends a range: at most 1 / (2 live) of what is left of the epoch, less what
// it holds; one that came back goes first. An epoch begins once every
// range of the last one was lent. HK_E_END: all is used; HK_E_UNAVAILABLE: all
// is out, and some of it may come back; HK_E_NOT_FOUND: no such set.
hk_status hki_data_plan_take(hki_data_plan *p, uint32_t set,
                             const hki_taker *who, hk_range *out);
// The first `used` examples of a range (HK_RANGE_ALL: all) are used, the others
// go back. HK_E_NOT_FOUND: it is not out to him; mask: bits of the owner that
// count.
hk_status hki_data_plan_return(hki_data_plan *p, uint64_t owner, uint64_t mask,
                               uint64_t id, int64_t used);
// The owner is gone: everything it held goes back. True: there was something.
bool hki_data_plan_expire(hki_data_plan *p, uint64_t owner);
// Ids of ranges are not given out again that somebody may have got in a time
// that this plan knows nothing of.
void hki_data_plan_skip_ids(hki_data_plan *p);
// There are sets, and of none of them anything is left.
bool hki_data_plan_used_up(const hki_data_plan *p);

hk_status hki_data_plan_save(const hki_data_plan *p, hki_buf *out);
// Over what *p held. from: for messages. HK_E_DATA.
hk_status hki_data_plan_restore(hki_data_plan *p, const uint8_t *bytes,
                                size_t size, const char *from);

#endif // HKI_DATA_PLAN_H
