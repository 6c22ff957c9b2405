// cluster/center/server.h - a center server: listeners, one thread per
// connection.
//
// server.c            start, stop, the end of a run
// server_accept.c     connections
// server_snapshot.c   consistent copies for peers, snapshots from time to time
// server_agree.c      several centers agree on where the run goes on
// server_info.c       counters and refusals
// peer.c              one connection: greeting, requests (frame_table.c says
//                     who may ask for what)
// peer_open.c         who the peer is, and what it is told
// peer_exchange.c     the streams of an exchange
// peer_bulk.c         whole vectors: first values, pull, snapshots
#ifndef HKI_SERVER_H
#define HKI_SERVER_H
#include "cluster/center/board.h"
#include "cluster/center/run_memory.h"
#include "cluster/wire/encoding.h"
#include "cluster/wire/frame.h"
#include "center/shard.h"

typedef struct hki_session {
    hk_center_server *server;
    struct hki_session *next; // in the server's list
    hki_thread *thread;
    hki_framer f;
    hki_claim claim; // session 0: not a worker
    bool is_open;    // has said who it is, or was refused
    bool observes;   // an observer that has opened
    _Atomic bool over;
    int64_t since_ns;
    char from[112];             // its address
    uint64_t told_in, told_out; // bytes that were counted for the worker
    int64_t progress_ns;        // when progress was last noted
    uint64_t refused_exchange;  // what still comes of it is thrown away
    uint32_t window;            // chunks in flight
    uint64_t ticket;            // of a gate closed by this connection; 0: none
    hki_shard_copy *cut;        // of this connection's gate
    bool has_copied;            // it is filled
    uint64_t copy;              // the last one that it asked for with COPY
    char peer[192];             // name and address

    // Buffers, made with the first exchange.
    float *up;        // one chunk
    uint8_t *encoded; // the same as it came
    float *down;      // rows, or a chunk in bfloat16
    float *scratch;
    hki_region ring; // shared memory for what comes up; bytes NULL: none
} hki_session;

// A copy that nobody has begun to read.
#define HKI_UNREAD_MS 30000 // then it is dropped
typedef struct hki_unread_copy {
    uint64_t number; // 0: none
    hki_shard_copy *copy;
    int64_t since_ns;
} hki_unread_copy;

// Settings of roles and tests, read by hki_server_start.
typedef struct hki_server_hooks {
    // Called when the state has been read, before the first connection is
    // accepted; NULL: no call.
    hk_status (*ready)(void *ready_user, hk_center_server *server);
    void *ready_user;
    hki_probe_fn probe;
    void *user;
    const hki_tap *tap;
    const char *mount; // type of the center file's file system; NULL: its own
} hki_server_hooks;

struct hk_center_server {
    hk_context *context;
    char *name;
    hki_arena arena; // texts of the options
    hki_shard_options shard_opt;
    hk_center_options center; // its outer is the one below
    hk_optimizer_options outer;
    hk_schedule *schedule;
    const char *path;
    const char **shards; // addresses of all; NULL: this one alone
    size_t n_shards;
    bool has_address_file; // has been written
    int64_t hello_ns, stall_ns, wait_ms, lease_ms, period_ms;
    uint32_t max_connections, window_kib;
    hki_net *net;
    hki_listener **listener;
    size_t n_listeners;
    hki_wait_set *waits; // of the accepting thread: listeners, wake
    hki_wake *wake;
    hki_thread *acceptor, *writer; // writer: snapshots
    int64_t start_ns;

    hki_mutex lock; // sessions, making of the shard, finish
    hki_cond changed;
    hki_session *sessions;
    uint32_t n_sessions, n_greeting;
    _Atomic(hki_shard *) shard; // NULL until there is a layout
    bool is_new;                // there was no center file
    _Atomic bool admitted;      // workers are let in
    uint64_t complete;          // the writer's: snapshot that all shards have
    bool finished;
    char reason[256];
    _Atomic bool stopping;

    // Copies of all shards are made one after the other; the center's own
    // snapshots have precedence. What was made for a peer waits here until it
    // is read. Guarded by `lock`.
    bool copying, snapshot_due;
    hki_unread_copy unread[HKI_PEER_COPIES];

    hki_board board;
    hki_run_memory *memory; // shard 0; NULL elsewhere
    _Atomic uint64_t accepted, refused[HK_REFUSALS];
    _Atomic uint64_t bytes_in, bytes_out;
};

// As hk_center_server_start, with hooks.
hk_status hki_server_start(const hk_center_server_options *opt,
                           const hki_server_hooks *hooks,
                           hk_center_server **out);

// Thread of a server that accepts connections. At every tick it ends leases and
// wakes those who wait for a change of the server.
#define HKI_TICK_MS 200
void hki_server_accept_main(void *server);
// Joins threads of connections that are over, or all. `lock` is held and given
// up for the join.
void hki_server_reap(hk_center_server *s, bool all);
// Thread that writes snapshots.
void hki_server_write_main(void *server);

// ---- server_snapshot.c, for peers -------------------------------------------

// Room for a copy, by dropping one that nobody reads if need be.
hk_status hki_server_room(hk_center_server *s, hki_copy_use use,
                          const hki_patience *p, hki_shard_copy **out);
// A copy of this shard alone. who: the peer that asks.
hk_status hki_server_copy(hk_center_server *s, const char *who,
                          const hki_patience *p, hki_shard_copy **out);
// By shard 0: a consistent copy of all shards, which each of them keeps by this
// number.
hk_status hki_server_copy_all(hk_center_server *s, const char *who,
                              const hki_patience *p, uint64_t *number);
void hki_server_keep(hk_center_server *s, uint64_t number, hki_shard_copy *c);
// The caller's from now on; NULL: there is none of this number.
hki_shard_copy *hki_server_take_copy(hk_center_server *s, uint64_t number);
// Drops copies that nobody has begun to read for so long.
void hki_server_drop_unread(hk_center_server *s, int64_t age_ms);

// Connections to all shards, by which shard 0 leads them. who: the peer on
// whose behalf; NULL: its own.
typedef struct hki_shard_links {
    hki_framer *f, **at;
    size_t n; // opened
} hki_shard_links;
hk_status hki_shard_links_open(hk_center_server *s, const char *who,
                               int64_t deadline_ns, hki_shard_links *out);
void hki_shard_links_close(hki_shard_links *l);
// Whether the shards have to agree before workers are let in: those of a
// cluster whose snapshots are taken at one point.
bool hki_server_agrees(const hk_center_server *s);
// One attempt of shard 0 at that. *done: workers are let in everywhere.
hk_status hki_server_agree(hk_center_server *s, int64_t deadline_ns,
                           bool *done);

// Makes the shard of a layout that a worker brought, unless there is one.
hk_status hki_server_make_shard(hk_center_server *s, hk_layout *layout,
                                const hk_share *share);

// "preface", "version"...; NULL for an unknown value.
const char *hki_refusal_name(hk_refusal r);
// Counts and logs; uses this thread's last error for the text.
void hki_server_refuse(hk_center_server *s, hk_refusal why, const char *peer);
void hki_server_state(hk_center_server *s, hki_msg_state *out);
// Connections of observers, which have proven who they are.
uint32_t hki_server_observers(hk_center_server *s);

// Ranges of data that were lent to workers that are gone go back.
void hki_server_expire_ranges(hk_center_server *s);

void hki_session_main(void *session);
// The opening of a peer, answered: HK_E_INVALID_ARG for another model.
hk_status hki_session_open(hki_session *s, int64_t deadline_ns);
hki_shard *hki_session_shard(const hki_session *s); // NULL: no model yet
void hki_session_free(hki_session *s);

// Deadlines of a session.
int64_t hki_session_stall(const hki_session *s);
hki_patience hki_session_patience(hki_session *s, uint32_t wait_ms);
// Sends ERROR with this thread's last message and the claim's reason. Returns
// HK_OK unless the connection fails.
hk_status hki_session_error(hki_session *s, hk_status status);
// The same about an exchange of which so many units were applied.
hk_status hki_session_refuse(hki_session *s, hk_status status,
                             uint64_t exchange, uint32_t applied);
hk_status hki_session_send_state(hki_session *s, hki_type type);
// ERROR, or STATE for HK_OK.
hk_status hki_session_answer(hki_session *s, hk_status status);
// The body of the request at hand.
hk_status hki_session_read(hki_session *s, const hki_body *b, void *msg,
                           const char *what);
// To be called as a long request goes on: it keeps the worker's lease, as the
// worker cannot send heartbeats meanwhile.
void hki_session_progress(hki_session *s);
hk_status hki_session_exchange(hki_session *s, const hki_frame *begin);

hk_status hki_session_init(hki_session *s, const hki_frame *head);
hk_status hki_session_pull(hki_session *s, const hki_frame *head);
hk_status hki_session_assign(hki_session *s, const hki_frame *head);
hk_status hki_session_snapshot(hki_session *s, const hki_frame *head);
hk_status hki_session_copy(hki_session *s, const hki_frame *head);
hk_status hki_session_gate(hki_session *s, const hki_frame *head);
// Actions of GATE by which the centers agree; also without a shard.
hk_status hki_session_agree(hki_session *s, const hki_msg_gate *m,
                            uint64_t number);
void hki_session_end_cut(hki_session *s);
// Takes the side block of a worker over (HK_SHARE_COPY entries, or all).
void hki_shard_take_side(hki_shard *s, const uint8_t *bytes, bool all);

#endif // HKI_SERVER_H
