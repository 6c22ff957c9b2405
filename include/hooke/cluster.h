// hooke/cluster.h - centers and workers in different processes.
//
// A center server holds the center, or one shard of it; workers reach it
// through a center handle that hooke/elastic.h uses like one in this process:
//
//     hk_center_server_start(&so, &server);             // one process
//     hk_center_server_wait(server, -1, NULL);          // until the run ends
//
//     hk_center_connect(&co, layout, &center);          // every worker
//     hk_elastic_create(&eo, optimizer, center, &e);    // as ever
//
// or, for a training loop of its own over n plain floats:
//
//     hk_worker_open(&wo, x, n, &w);                    // x := center
//     hk_worker_exchange(w, x, steps);                  // now and then
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
#ifdef __cplusplus
extern "C" {
#endif

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

// ---- a center server --------------------------------------------------------

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
    // Addresses of all shards in order; with snapshot:SECONDS shard 0 cuts
    // all of them at one point. NULL: this one alone; copied.
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

// What a worker tells about itself; sent with its next heartbeat. NaN: not
// known.
typedef struct hk_worker_news {
    int64_t local_step;
    double examples;   // so far
    double per_second; // examples
    double loss;
    double distance; // |x - c| at the last exchange
} hk_worker_news;

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
    double away_seconds;    // since the last contact; 0: reachable
    uint32_t reachable;     // 1: every shard is, as far as is known
    uint32_t finished;      // 1: the run has been ended, by what the last
                            // contact or heartbeat said
} hk_link_info;

HK_API hk_status hk_center_get_link_info(hk_center *c, hk_link_info *out);

// ---- ranges of data ---------------------------------------------------------
//
// The center divides the data: it lends ranges of it to workers, counts what
// was used when the exchange behind it is acknowledged, and lends again what
// comes back from workers that leave or die. Kept beside the center file.

#define HK_SET_NAME 64         // with the terminating NUL
#define HK_RANGE_ALL INT64_MAX // every example of a range

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
// The next range. HK_E_END: everything is used; HK_E_UNAVAILABLE: all is lent,
// some of it may come back; HK_E_NOT_FOUND: the center has forgotten the set,
// declare it again.
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

#ifdef __cplusplus
}
#endif
#endif // HOOKE_CLUSTER_H
