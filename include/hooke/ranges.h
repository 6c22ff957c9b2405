// hooke/ranges.h - ranges of data that a center lends to workers.
//
// The center divides the data: it lends ranges of it to workers, counts what
// was used when the exchange behind it is acknowledged, and lends again what
// comes back from workers that leave or die. Kept beside the center file.
// Estimators do this by themselves (hk_data_leased of hooke/divide.h); these
// calls are for loops of one's own.
//
//     hk_center_declare_set(c, worker, &what, 60000, &set, &seed);
//     while (hk_center_take_range(c, worker, set, 60000, &r) == HK_OK)
//         hk_center_use_range(c, worker, r.id); // once it was trained on
//
// For centers of hk_center_connect; HK_E_UNSUPPORTED for others.
#ifndef HOOKE_RANGES_H
#define HOOKE_RANGES_H
#include <stdint.h>
#include "hooke/center.h"
#include "hooke/status.h"

HK_BEGIN_C

#define HK_SET_NAME 64         // with the terminating NUL
#define HK_RANGE_ALL INT64_MAX // every example of a range
// Set in the id of a range that no center leased: see hk_center_take_range.
#define HK_RANGE_OWN (UINT64_C(1) << 63)

// A set of data, as everybody who trains on it says what it is.
typedef struct hk_lent_set {
    const char *name;
    uint64_t fingerprint; // of what it holds: all have to mean the same
    uint64_t seed;        // of the order; that of the first to come holds
    int64_t units;        // what is divided: examples, groups of rows, files
    int64_t epochs;       // -1: no end; the most that anybody wants hold
    uint32_t workers;     // expected: the more, the shorter the ranges
    uint32_t reserved;    // zero
} hk_lent_set;

// Units at positions [begin, end) of the epoch's order, lent to one worker.
typedef struct hk_range {
    uint64_t id;
    int64_t epoch, begin, end;
    int64_t used; // so many examples, from its beginning, were used before
} hk_range;

// Names a set. *set: its number at this center; *seed: the one that holds.
// HK_E_INVALID_ARG: other workers mean other data by this name. worker: the id
// that it has joined as, here and below.
HK_API hk_status hk_center_declare_set(hk_center *c, int32_t worker,
                                       const hk_lent_set *what, int64_t wait_ms,
                                       uint32_t *set, uint64_t *seed);
// The next range. When the center has not answered for retry_ms
// (hk_connect_options), it is one of the worker's fixed share of the epoch, so
// that it can train on: part `worker` of as many as there are workers. Its id
// has HK_RANGE_OWN; it is not counted, and the center leases the same examples
// again. HK_E_TIMEOUT before that; HK_E_END: everything is used;
// HK_E_UNAVAILABLE: all is lent, some of it may come back; HK_E_NOT_FOUND: the
// center has forgotten the set, declare it again.
HK_API hk_status hk_center_take_range(hk_center *c, int32_t worker,
                                      uint32_t set, int64_t wait_ms,
                                      hk_range *out);
// The whole of a range has been used: it counts when the next exchange of this
// worker is acknowledged. No call of its own.
HK_API hk_status hk_center_use_range(hk_center *c, int32_t worker, uint64_t id);
// The first `used` examples of a range were used, and exchanged; the others are
// for somebody else. HK_RANGE_ALL: it counts at once. One that is somebody
// else's already, because this worker was silent for too long, is no failure.
// id 0: all that this worker holds; of hk_center_use_range what still waits for
// an exchange counts, the rest is unused.
HK_API hk_status hk_center_return_range(hk_center *c, int32_t worker,
                                        uint64_t id, int64_t used,
                                        int64_t wait_ms);

HK_END_C
#endif // HOOKE_RANGES_H
