// hooke/center_server.h - a center in a process of its own.
//
//     hk_center_server_start(&so, &server);
//     hk_center_server_wait(server, -1, NULL); // until the run ends
//     hk_center_server_stop(server);
//
// Workers reach it as hooke/cluster.h says, which also has the forms of
// addresses and the key.
//
// Threads: a server may be used by several.
#ifndef HOOKE_CENTER_SERVER_H
#define HOOKE_CENTER_SERVER_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/cluster.h"
#include "hooke/context.h"
#include "hooke/elastic.h"
#include "hooke/status.h"
#include "hooke/tensor.h"

HK_BEGIN_C

typedef struct hk_center_server_options {
    size_t struct_size;  // set by hk_center_server_options_init, never by hand
    hk_context *context; // receives the log; NULL: silent; borrowed
    const char *name;    // in messages; NULL: "center"; copied
    // Where to listen, one or several; copied. A port of 0 takes a free one.
    const char *const *addresses;
    size_t n_addresses;
    const hk_key *key;               // NULL: none; copied
    const hk_center_options *center; // method, chunks, outer...; NULL: all
                                     // defaults; copied. Turns are free
    hk_layout *layout;      // NULL: what the first worker brings; retained
    const char *path;       // center file; NULL: in memory only; copied
    const char *durability; // "process" (default), "snapshot:SECONDS",
                            // "always"; copied
    // Addresses of all shards in order, at which shard 0 reaches them: it has
    // them copied at one point for hk_center_snapshot and snapshot:SECONDS.
    // NULL: this one alone; copied.
    const char *const *shards;
    size_t n_shards;    // 0: 1
    uint32_t shard;     // this one
    uint32_t insecure;  // 1: may listen beyond this host without a key, and
                        // takes other users of this host
    int64_t lease_ms;   // a silent worker is gone after it; default 15000
    int64_t hello_ms;   // a new connection says who it is; default 5000
    int64_t stall_ms;   // a started message goes on; default 30000
    int64_t wait_ms;    // longest wait on a client's behalf; default 600000
    double max_norm;    // L2 norm of a chunk's difference, beyond it is
                        // refused; default 1e12; 0: non-finite only
    uint64_t max_bytes; // largest shard that a worker may ask for; 0: what
                        // the machine has
    uint32_t max_connections; // default 4096
    uint32_t window_kib;      // in flight per connection; 0: 1024, or what
                              // the client asks for
    int64_t reset_worker; // forgets the incarnation of this id in the center
                          // file, so that a new worker may take it; -1
                          // (default): none
} hk_center_server_options;

typedef struct hk_center_server hk_center_server; // opaque

HK_API void hk_center_server_options_init(hk_center_server_options *opt,
                                          size_t struct_size);
// Opens or creates the center file and starts to listen. HK_E_DENIED for an
// address beyond this host without a key.
HK_API hk_status hk_center_server_start(const hk_center_server_options *opt,
                                        hk_center_server **out);
// The center file of a model_dir: DIRECTORY/center.bin, center-I.bin for shard
// I of several. Makes the folder. HK_E_UNSUPPORTED on a network file system,
// where a mapped file is not what the next process finds.
HK_API hk_status hk_center_file_of(const char *directory, uint32_t shard,
                                   uint32_t n_shards, char *path,
                                   size_t capacity);
// The i-th address with the port in use; NULL past the end.
HK_API const char *hk_center_server_address(const hk_center_server *s,
                                            size_t i);
// Waits until the run has been ended (hk_center_finish) and every worker has
// left or lost its lease; wait_ms -1: without end. *finished: 1 then, 0 when
// the time is over. Returns HK_E_CANCELLED after hk_request_stop.
HK_API hk_status hk_center_server_wait(hk_center_server *s, int64_t wait_ms,
                                       int *finished);
// Closes every connection and the center file; NULL is allowed.
HK_API void hk_center_server_stop(hk_center_server *s);

// ---- what it has seen --------------------------------------------------------

// Why somebody or something was turned away.
typedef enum hk_refusal {
    HK_REFUSED_PREFACE = 0,     // not Hooke's protocol
    HK_REFUSED_VERSION = 1,     // of the protocol
    HK_REFUSED_KEY = 2,         // wrong, unknown or none; or no TLS
    HK_REFUSED_FINGERPRINT = 3, // another model
    HK_REFUSED_FRAME = 4,       // malformed, oversize or out of place
    HK_REFUSED_REPLAY = 5,      // a frame that was there before
    HK_REFUSED_FENCED = 6,      // a newer incarnation has taken over
    HK_REFUSED_NOT_FINITE = 7,  // difference with NaN or infinity
    HK_REFUSED_NORM = 8,        // difference beyond max_norm
    HK_REFUSED_FLOOD = 9,       // too many connections
    HK_REFUSED_SLOW = 10,       // hello_ms or stall_ms passed
    HK_REFUSED_OTHER = 11,
    HK_REFUSALS = 12
} hk_refusal;

typedef struct hk_server_info {
    hk_center_info center;
    uint64_t run_id;      // 0: the center is empty
    int64_t n_values;     // floats of this shard
    int64_t memory_bytes; // of the vectors
    uint64_t bytes_in, bytes_out;
    uint64_t chunks;   // applied
    uint64_t repeated; // chunks that came again and were not applied
    uint64_t accepted; // connections
    uint64_t refused[HK_REFUSALS];
    uint64_t snapshots;      // written
    double snapshot_seconds; // the last one took
    double snapshot_age;     // seconds since; -1: none
    double uptime;           // seconds
    uint64_t recovered;      // chunks that recovery undid
    uint32_t connections;    // now
    uint32_t workers;        // ids that were ever taken
    uint32_t shard, n_shards;
    uint32_t finished; // 1: the run has been ended
    uint32_t reserved;
} hk_server_info;

HK_API hk_status hk_center_server_get_info(hk_center_server *s,
                                           hk_server_info *out);

typedef struct hk_worker_info {
    uint32_t id;
    uint32_t incarnation;
    uint32_t live;
    uint32_t connections; // now
    uint64_t exchanges;
    uint64_t bytes_in, bytes_out; // since the server's start
    uint64_t repeated;            // chunks
    uint64_t refused;             // differences
    int64_t steps;                // reported by exchanges
    double exchange_seconds;      // in exchanges since the server's start
    double staleness;             // of the last exchange
    double last_seen;             // seconds ago; -1: not since the start
    hk_worker_news report;
    char peer[128]; // name and address
} hk_worker_info;

// Every id below hk_server_info.workers; HK_E_NOT_FOUND for one that was
// never taken.
HK_API hk_status hk_center_server_worker(hk_center_server *s, uint32_t id,
                                         hk_worker_info *out);

HK_END_C
#endif // HOOKE_CENTER_SERVER_H
