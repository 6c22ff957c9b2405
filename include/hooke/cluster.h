// hooke/cluster.h - centers and workers in different processes.
//
// A center server holds the center, or one shard of it; workers reach it
// (hooke/center_server.h) through a center handle that hooke/elastic.h uses
// like one in this process:
//
//     hk_center_connect(&co, layout, &center);
//     hk_elastic_create(&eo, optimizer, center, &e); // as ever
//
// or, for a training loop of its own over n plain floats:
//
//     hk_worker_open(&wo, x, n, &w);   // x := center
//     hk_worker_exchange(w, x, steps); // now and then
//     hk_worker_close(w);
//
// Addresses: "host:port" (TLS when there is a key, else TCP), "tcp:host:port",
// "tls:host:port", "unix:/path", "shm:/path" (unix socket and shared memory),
// "inproc:name" (this process only). A host may be "[v6]", "*" to listen.
//
// Every difference is applied once, whoever dies or comes back in between;
// docs/cluster.md says how, and what each durability policy survives.
//
// Threads: all handles may be used by several threads, except hk_worker.
#ifndef HOOKE_CLUSTER_H
#define HOOKE_CLUSTER_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/context.h"
#include "hooke/elastic.h"
#include "hooke/status.h"
#include "hooke/tensor.h"

HK_BEGIN_C

// ---- the cluster key --------------------------------------------------------

#define HK_KEY_BYTES 32
#define HK_KEY_NAME 32 // with the terminating NUL

typedef struct hk_key {
    char name[HK_KEY_NAME]; // letters, digits, '-', '_', '.'
    unsigned char secret[HK_KEY_BYTES];
} hk_key;

// A new random key. name: NULL: "cluster".
HK_API hk_status hk_key_generate(const char *name, hk_key *out);
// One line of text: "hooke-key-1 NAME 64-HEX-DIGITS". save creates the file
// for its owner only and never overwrites one; load refuses a file that
// others may read (HK_E_DENIED).
HK_API hk_status hk_key_save(const hk_key *key, const char *path);
HK_API hk_status hk_key_load(const char *path, hk_key *out);

// ---- a center elsewhere -----------------------------------------------------

typedef enum hk_diff_coding {
    HK_COMPRESS_NONE = 0,
    HK_COMPRESS_BF16 = 1, // differences in 2 bytes an element
    HK_COMPRESS_INT8 = 2  // 1 byte and one scale for 256 elements
} hk_diff_coding;

typedef struct hk_connect_options {
    size_t struct_size;  // set by hk_connect_options_init, never by hand
    hk_context *context; // receives the log; NULL: silent; borrowed
    const char *name;    // of this process in the center's log; NULL: host and
                         // process id; copied
    const char *const *addresses; // of the shards, in order; copied
    size_t n_addresses;
    const hk_key *key; // copied
    hk_share_fn share; // NULL: by kind
    void *share_user;
    int64_t connect_ms; // hk_center_connect waits so long for the centers to
                        // come up; default 60000
    int64_t retry_ms;   // a broken exchange waits so long for the center
                        // before the worker trains on; default 2000
    int64_t lost_ms;    // away for longer: exchanges fail with
                        // HK_E_UNAVAILABLE; default 600000; 0: never
    hk_diff_coding compression;
    uint32_t center_bf16; // 1: the center's values travel in 2 bytes; elastic
                          // method only
    uint32_t row_period;  // tables with sparse gradients: every so many
                          // exchanges all rows, else touched ones; default 16,
                          // 1: always all
    uint32_t window_kib;  // in flight; 0: the server's
    uint32_t insecure;    // 1: a center on this host may be another user's
    uint32_t observer;    // 1: reads and leaves notes; does not join, sets no
                          // values and ends no run
} hk_connect_options;

HK_API void hk_connect_options_init(hk_connect_options *opt,
                                    size_t struct_size);
// Connects to every shard. While a center is away later on, exchanges of
// asynchronous methods return at once, the worker trains on, and connections
// come back by themselves. use_locking has no meaning here: nobody waits for
// more than one chunk's addition. layout: retained. An observer may leave it
// NULL and gets the center's (hk_center_info.layout); HK_E_STATE while the
// center has no model.
HK_API hk_status hk_center_connect(const hk_connect_options *opt,
                                   hk_layout *layout, hk_center **out);

// The following are for centers of hk_center_connect; HK_E_UNSUPPORTED for
// others.

// Ends every wait for the center, for good: what waits now returns
// HK_E_CANCELLED, and what would wait later does at once. From any thread; for
// handles whose center does not answer, before hk_center_destroy.
HK_API hk_status hk_center_cancel(hk_center *c);

// Ends the run for everybody. The first reason stays.
HK_API hk_status hk_center_finish(hk_center *c, const char *reason,
                                  int64_t wait_ms);

typedef struct hk_link_info {
    uint64_t bytes_in, bytes_out;
    uint64_t reconnects;
    uint64_t missed;        // exchanges that found the center away
    uint64_t resent;        // chunks
    uint64_t row_exchanges; // with touched rows only
    uint64_t uncounted;     // units that no center leased (HK_RANGE_OWN)
    double away_seconds;    // since the last contact; 0: reachable
    uint32_t reachable;     // 1: every shard is, as far as is known
    uint32_t finished;      // 1: the run has been ended, by what the last
                            // contact or heartbeat said
} hk_link_info;

HK_API hk_status hk_center_get_link_info(hk_center *c, hk_link_info *out);

// ---- a worker without a graph -----------------------------------------------

typedef struct hk_worker_options {
    size_t struct_size;                // set by hk_worker_options_init
    const hk_connect_options *connect; // addresses, key...; copied
    double moving_rate;  // alpha in [0, 1]; default HK_ELASTIC_AUTO: 0.9 over
                         // num_worker
    int64_t wait_ms;     // deadline of every wait; default 60000
    uint32_t num_worker; // p >= 1; has no default
    int32_t task;        // id; -1 (default): the lowest free one
} hk_worker_options;

typedef struct hk_worker hk_worker; // opaque

HK_API void hk_worker_options_init(hk_worker_options *opt, size_t struct_size);
// Connects and joins; gives the center x if it is empty, then x := center.
HK_API hk_status hk_worker_open(const hk_worker_options *opt, float *x,
                                size_t n, hk_worker **out);
// One exchange of x, whatever method the center has that does not ask for
// gradients. steps: of training since the last call.
HK_API hk_status hk_worker_exchange(hk_worker *w, float *x, int64_t steps);
// What it is made of: id, steps, center and more by hk_elastic_get_info. Lives
// as long as w.
HK_API hk_elastic *hk_worker_elastic(const hk_worker *w);
// Leaves the center; NULL is allowed.
HK_API void hk_worker_close(hk_worker *w);

HK_END_C
#endif // HOOKE_CLUSTER_H
