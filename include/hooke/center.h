// hooke/center.h - what workers agree on: a center and its method.
//
//     hk_center_options o;
//     hk_center_options_init(&o, sizeof o);
//     o.method = HK_METHOD_DILOCO;
//     hk_center_create_local(&o, layout, &center);
//     ...                                       // workers: hooke/elastic.h
//     hk_center_snapshot(center, HK_CENTER_VALUES, 1000, values, NULL, NULL);
//
// What an exchange does is the center's method: elastic averaging, DOWNPOUR,
// model averaging, DiLoCo... docs/elastic.md gives the formula of each. Centers
// in other processes: hooke/cluster.h.
//
// Threads: a center may be used by any number of threads. Every call that may
// wait has a deadline and says in its error who waited for whom.
#ifndef HOOKE_CENTER_H
#define HOOKE_CENTER_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/context.h"
#include "hooke/optim.h"
#include "hooke/status.h"
#include "hooke/tensor.h"

HK_BEGIN_C

typedef enum hk_method {
    HK_METHOD_ELASTIC = 1,           // asynchronous elastic averaging
    HK_METHOD_ELASTIC_SYNC = 2,      // all workers against one center
    HK_METHOD_DOWNPOUR = 3,          // push the sum of steps, take c
    HK_METHOD_DOWNPOUR_AVERAGED = 4, // and keep the mean of all c
    HK_METHOD_DOWNPOUR_MOVING = 5,   // and keep a moving average of c
    HK_METHOD_MODEL_AVERAGE = 6,     // c := mean of x, x := c; TF's
    HK_METHOD_LOCAL_SGD = 7,         // the same, by its other name
    HK_METHOD_AGN = 8,               // accumulated gradient, outer step
    HK_METHOD_DROP_STALE = 9,        // gradients to c unless too old
    HK_METHOD_SLOWMO = 10,           // outer momentum over the fast rate
    HK_METHOD_BMUF = 11,             // block momentum
    HK_METHOD_DILOCO = 12,           // synchronous, any outer optimizer
    HK_METHOD_DILOCO_ASYNC = 13,     // asynchronous, any outer optimizer
    HK_METHOD_DILOCO_DELAYED = 14    // asynchronous, delayed Nesterov
} hk_method;

// "elastic", "downpour_moving"...; NULL for an unknown value.
HK_API const char *hk_method_name(hk_method m);
// Its communication_period unless one is set; 0 for an unknown value.
HK_API uint32_t hk_method_period(hk_method m);
// Its outer optimizer unless one is set; *opt: filled. AGN and DROP_STALE have
// none of their own: HK_E_UNSUPPORTED, as for methods without an outer step.
HK_API hk_status hk_method_outer(hk_method m, uint32_t workers,
                                 hk_optimizer_options *opt);
// HK_E_NOT_FOUND names the nearest known method.
HK_API hk_status hk_method_find(const char *name, hk_method *out);

// ---- a center -------------------------------------------------------------

// What a center does with an entry.
typedef enum hk_share {
    HK_SHARE_BY_KIND = 0,  // trainable and HK_STATE_AVERAGE: EXCHANGE,
                           // HK_STATE_COPY: COPY, HK_STATE_LOCAL: LOCAL
    HK_SHARE_EXCHANGE = 1, // float entries: moves as the weights do
    HK_SHARE_COPY = 2,     // every exchange writes the worker's value to the
                           // center, the last one stays; read at init only
    HK_SHARE_LOCAL = 3     // has no center
} hk_share;

// Decides for one entry (what TF's custom getter did).
typedef hk_share (*hk_share_fn)(void *user, const hk_entry *entry);

typedef enum hk_turn_order {
    HK_TURN_FREE = 0,        // whoever comes
    HK_TURN_ROUND_ROBIN = 1, // worker 0, 1, ... p - 1, 0, ...: same bits in
                             // every run
    HK_TURN_RECORDED = 2     // as an earlier run went
} hk_turn_order;

typedef struct hk_center_options {
    size_t struct_size;  // set by hk_center_options_init, never by hand
    hk_context *context; // receives the log; NULL: silent; borrowed
    const char *name;    // in messages; NULL: "center"; copied
    // Outer optimizer of AGN, DROP_STALE (both need one), SLOWMO, BMUF and
    // DILOCO*; NULL: the method's. Copied. DILOCO_DELAYED reads
    // learning_rate and momentum only.
    const hk_optimizer_options *outer;
    hk_share_fn share; // NULL: by kind
    void *share_user;
    const void *order; // HK_TURN_RECORDED: bytes of hk_center_order_save
    size_t order_size;
    double average_rate;  // DOWNPOUR_MOVING; default 0.001
    double activation;    // DILOCO_DELAYED: momentum between its updates, in
                          // [0, 1 / delay]; default 0
    int64_t staleness;    // DROP_STALE: oldest gradient taken, in versions
    hk_method method;     // default HK_METHOD_ELASTIC
    hk_turn_order turn;   // default HK_TURN_FREE
    uint32_t workers;     // expected ones; 0: unknown. ROUND_ROBIN needs it
    uint32_t max_workers; // ids are below it; 1..65536, default 1024
    uint32_t chunk_kib;   // floats under one lock, in KiB; default 128
    uint32_t record;      // 1: remembers the order, 4 bytes an exchange
    uint32_t quorum;      // synchronous methods: at the deadline this many
                          // contributions close a round; 0: never
    uint32_t delay;       // DILOCO_DELAYED: exchanges per momentum update;
                          // 0: workers, or 1
    uint32_t check;       // 1: every elastic exchange is checked to conserve
                          // x + c within 2 ulp; HK_E_INTERNAL otherwise
    hk_isa isa;           // default AUTO
} hk_center_options;

typedef struct hk_center hk_center; // opaque

HK_API void hk_center_options_init(hk_center_options *opt, size_t struct_size);

// A center in this process. opt: copied; NULL takes every default. layout:
// retained.
HK_API hk_status hk_center_create_local(const hk_center_options *opt,
                                        hk_layout *layout, hk_center **out);
// Every worker has left or is not going to use it again. NULL is allowed.
HK_API void hk_center_destroy(hk_center *c);

typedef struct hk_center_info {
    uint64_t version;        // changes of the center: exchanges, or rounds
    uint64_t exchanges;      // by all workers
    int64_t global_step;     // local steps of all workers, as reported by
                             // their exchanges and when they leave
    uint64_t skipped_chunks; // without locking: busy ones
    uint64_t stale;          // gradients dropped
    uint64_t joins;          // since creation
    uint32_t live;           // workers now
    uint32_t initialised;    // 1: has values
    hk_method method;
    hk_turn_order turn;
    const hk_layout *layout; // lives as long as the center
    const hk_share *shares;  // per entry of the layout; never BY_KIND
} hk_center_info;

HK_API hk_status hk_center_get_info(hk_center *c, hk_center_info *out);

// What a worker tells about itself to a center in another process, with
// its next heartbeat. NaN: not known.
typedef struct hk_worker_news {
    int64_t local_step;
    double examples;   // so far
    double per_second; // examples
    double loss;
    double distance; // |x - c| at the last exchange
} hk_worker_news;

typedef enum hk_center_part {
    HK_CENTER_VALUES = 1,
    HK_CENTER_AVERAGE = 2 // DOWNPOUR_AVERAGED, DOWNPOUR_MOVING
} hk_center_part;

// A consistent copy while training runs: the center between two exchanges.
// values: the layout's n floats; side, info: NULL allowed. wait_ms bounds the
// wait for running exchanges. HK_E_STATE before there are values.
HK_API hk_status hk_center_snapshot(hk_center *c, hk_center_part part,
                                    int64_t wait_ms, float *values, void *side,
                                    hk_center_info *info);
// Gives the center values, e.g. from a checkpoint. side may be NULL. Workers
// see them at their next exchange. An outer optimizer's state stays.
HK_API hk_status hk_center_assign(hk_center *c, const float *values,
                                  const void *side, int64_t global_step,
                                  int64_t wait_ms);
// State beside the values: outer optimizer, averages, delayed momentum and
// what they count, under "center/...". For savers, while no exchange runs.
HK_API hk_status hk_center_variables(hk_center *c, hk_name_map *map);
// The recorded order. With buf NULL or capacity too small only *size is set;
// the second case returns HK_E_OVERFLOW. HK_E_STATE when it was not recorded.
HK_API hk_status hk_center_order_save(hk_center *c, void *buf, size_t capacity,
                                      size_t *size);

HK_END_C
#endif // HOOKE_CENTER_H
