// cluster/remote/remote.h - a center in other processes, behind the center
// table.
//
// remote.c        the table: joining, leaving, counters
// remote_connect.c   a handle, made and destroyed
// remote_requests.c  requests of nobody in particular
// remote_calls.c     calls to the run's memory, ranges of data
// remote_member.c    workers that joined, their heartbeats
// remote_link.c      one connection: made, lost, made again
// remote_exchange.c  an exchange or a round, as the worker calls it
// remote_flow.c      its streams, over all shards at once
// remote_units.c  what goes up for a unit, what is done with what comes down
// remote_rows.c   touched rows of tables
// remote_bulk.c   whole vectors: first values, pull, assign, snapshot
//
// A worker that joined is a member: one connection to every shard, of which
// one thread at a time makes use (the member's lock). What was sent and not
// acknowledged stays in the link's slots; after a lost connection the same
// bytes are sent again.
#ifndef HKI_REMOTE_H
#define HKI_REMOTE_H
#include <stdatomic.h>
#include "cluster/cluster.h"
#include "cluster/wire/all_shards.h"
#include "cluster/wire/frame.h"
#include "cluster/wire/encoding.h"
#include "center/center.h"

// One unit on its way up.
typedef struct hki_slot_up {
    float *own;     // where BEFORE is received
    float *d;       // what goes up: own, or in the ring that both sides see
    uint8_t *coded; // shorter form; NULL when there is none
    uint8_t *ids;   // head and ids of a batch of rows; NULL until needed
    size_t ids_size;
    uint32_t floats;
    bool empty;  // nothing goes up
    bool plain;  // d goes as it is
    bool shared; // d lies in the ring
} hki_slot_up;

typedef enum hki_flow_state {
    HKI_FLOW_NONE,  // nothing under way
    HKI_FLOW_BEGIN, // BEGIN has to go out
    HKI_FLOW_WAIT,  // BEGAN has to come
    HKI_FLOW_UNITS,
    HKI_FLOW_LATE, // all is in; the round's end was waited for in vain
    HKI_FLOW_END   // END has come
} hki_flow_state;

typedef struct hki_link {
    hki_framer f;
    bool up;                    // connected and resumed
    hki_role role;              // asked for; members are workers
    uint64_t told_in, told_out; // bytes that were counted
    uint32_t shard;
    hki_msg_welcome welcome;
    hki_msg_joined joined; // where the center stood at the last connection
    hki_region map, ring;  // shared memory; bytes NULL: none
    int64_t retry_ns;      // not before
    uint32_t failures;

    // The exchange under way or, when it broke, what is left of it. Units go
    // through three gates, in order and without gaps:
    //
    //     acked <= sent <= computed <= begin.last, computed - acked <= window
    //
    // [0, acked)         applied by the center, for good
    // [acked, computed)  in the slots, unit u in slot u % window: what goes up
    //                    and, until it is acked, what would go up again, the
    //                    same bytes, over another connection
    // [sent, computed)   not yet over this one
    // [computed, last)   BEFORE brings the next; without BEFORE it is computed
    //                    when there is room. Rows are asked for up to `asked`;
    //                    chunks come by themselves.
    //
    // AFTER frames follow what was applied: next_after <= acked. A connection
    // that is lost puts sent and next_after back to acked, asked to computed;
    // acked and computed are never taken back, but by a refusal.
    hki_flow_state state;
    uint64_t exchange;
    hki_msg_begin begin;
    int64_t deadline_ns; // of its waits: BEGIN tells how long that is
    hki_msg_began began;
    uint64_t began_for; // the exchange that this was about
    uint32_t acked, sent, computed, asked;
    uint32_t next_after;
    bool side_sent;
    bool known;     // the center has heard of this exchange
    bool receiving; // the body of `in`, of which `have` bytes are there
    hki_frame in;
    size_t have;
    uint8_t begin_body[HKI_MAX_MESSAGE]; // goes out
    uint8_t message[HKI_MAX_MESSAGE];    // BEGAN or END, comes in
    hki_slot_up *slot;                   // window
    uint32_t window;
    float *raw; // received in a shorter form, or AFTER
} hki_link;

typedef struct hki_batch {
    uint32_t table, count;
    size_t first; // in the list of ids
} hki_batch;

typedef struct hki_member_link {
    struct hki_member_link *next;
    struct hki_remote *remote;
    hki_member m;                 // as the caller knows it
    _Atomic uint32_t incarnation; // as the center knows it: higher after a new
                                  // join
    uint32_t refs;                // users; guarded by the remote's lock
    uint64_t turn;     // of the heartbeat thread; guarded by the same
    bool removed;      // its last user frees it; the same
    hki_mutex lock;    // one user at a time
    hki_link *link;    // per shard
    uint64_t run_id;   // that it joined; 0: one without values
    uint64_t exchange; // the last number used
    uint64_t round;    // the next to contribute to, at every shard
    int64_t steps;     // of this worker, told to the center
    bool fenced;       // somebody else is this worker now
    bool rejoin;       // the center has forgotten us
    bool left;
    _Atomic bool away;
    _Atomic int64_t away_since;
    float *residual; // of shortened differences; NULL: none
    float *gathered; // residuals of a batch of rows; NULL until needed
    hk_worker_news news;
    bool has_news;
    char failure[256];          // told with LEAVE; "": it has not failed
    _Atomic int64_t local_step; // for heartbeats; 0: not told
    uint64_t row_turns;         // exchanges since all rows went
    // Ranges of data that were used, in this order; the first n_counting go
    // with the exchange under way. Guarded by the remote's lock.
    uint64_t *used;
    size_t n_used, used_room;
    uint32_t n_counting;
    hki_msg_call unanswered; // its last call; op 0: answered. The same lock
    // Rows of the exchange under way, by shard.
    hki_batch **batch;
    uint32_t *n_batches;
    uint32_t **ids;
    hki_wait_set *waits; // connections to the shards, the remote's wake
} hki_member_link;

// A set of data that a worker of this process takes ranges of.
typedef struct hki_range_source {
    uint32_t worker, set, workers; // expected
    int64_t units;
    int64_t epoch; // of the last range
    // While the center does not answer: the worker's own share.
    int64_t since_ns; // since when; 0: it does
    int64_t ask_ns;   // when to ask again
    int64_t own_epoch, own_next;
    int64_t own_units; // given of it; 0: none
} hki_range_source;

typedef struct hki_held {
    uint32_t worker;
    uint64_t range;
    int64_t units;
} hki_held;

typedef struct hki_remote {
    hk_center base;
    hk_context *context;
    hki_net *net;
    char *name; // of this process
    char **address;
    uint32_t n_shards;
    hki_role role; // of requests of nobody in particular
    hk_share *share;
    hki_buf layout;        // bytes for a center that knows none
    uint32_t *dense;       // chunks outside of tables
    uint32_t *dense_first; // n_shards + 1: of each shard, in dense
    const hki_exchange_kernels *k;
    const hki_encoding_kernels *encode;
    hki_encoding encoding;
    bool center_half;
    uint32_t row_period, window_kib;
    int64_t retry_ms, lost_ms, lease_ms;
    hki_wake *wake;

    hki_mutex lock; // guards the list of members and what is below
    hki_cond changed;
    hki_member_link *members;
    hki_link *control; // per shard, for requests of nobody in particular
    hki_mutex control_lock;
    hki_thread *heartbeat;
    bool stopping;
    hki_mutex call_lock;      // one call to the run's memory at a time
    uint32_t nonce, sequence; // of calls
    hki_msg_state state;      // of shard 0, the last one seen
    hki_range_source *lent;   // guarded by the lock
    size_t n_lent, lent_room;
    hki_held *held; // ranges that are not used yet; the same
    size_t n_held, held_room;
    uint64_t own_ranges; // ids given out; the same
    _Atomic uint64_t run_id;
    _Atomic bool finished;
    _Atomic uint64_t bytes_in, bytes_out, reconnects, missed, resent, row_turns;
    _Atomic uint64_t uncounted; // units of own shares
} hki_remote;

// As hk_center_connect, with something between it and the network; NULL:
// nothing.
hk_status hki_center_connect(const hk_connect_options *opt, const hki_tap *tap,
                             hk_layout *layout, hk_center **out);

extern const hki_center_ops hki_remote_ops;
void hki_remote_destroy(hk_center *c); // accepts a half-built one
// NULL unless c is one.
hki_remote *hki_remote_of(const hk_center *c);
// The same with a message; what: names the call.
hk_status hki_remote_get(const hk_center *c, const char *what,
                         hki_remote **out);

// ---- remote_member.c --------------------------------------------------------

// HK_E_STATE unless m has joined here. *out is in use until hki_member_unref.
hk_status hki_member_ref(hki_remote *r, hki_member m, const char *what,
                         hki_member_link **out);
void hki_member_unref(hki_member_link *w);
// The same, and locks it.
hk_status hki_member_find(hki_remote *r, hki_member m, const char *what,
                          hki_member_link **out);
void hki_member_done(hki_member_link *w); // unlocks what find gave
hk_status hki_member_create(hki_remote *r, hki_member_link **out);
void hki_member_add(hki_member_link *w); // to the list
// Takes it off the list; its last user frees it. Unlocked.
void hki_member_remove(hki_member_link *w);
void hki_member_free(hki_member_link *w);
void hki_heartbeat_main(void *remote);
void hki_heartbeat_wake(hki_remote *r);

// ---- remote_link.c ----------------------------------------------------------

#define HKI_ATTEMPT_MS 3000 // of one attempt at a connection

// Adds what went over a connection since the last call.
void hki_link_count(hki_remote *r, hki_link *l);
// Connects one link and says OPEN, bringing the layout if asked for.
hk_status hki_link_connect(hki_remote *r, hki_link *l, int64_t deadline_ns);
void hki_link_drop(hki_remote *r, hki_link *l); // closes the connection
// Between two attempts to connect or to join: sleeps longer each time and says
// once that somebody waits. *pause_ms: 20 at first. HK_E_CANCELLED after a
// stop or hk_center_cancel.
hk_status hki_remote_pause(const hki_remote *r, int64_t *pause_ms,
                           int64_t deadline_ns);
hk_status hki_member_join(hki_member_link *w, int32_t task,
                          int64_t deadline_ns);
// Brings every link of a member back, trying again until the deadline.
hk_status hki_member_mend(hki_member_link *w, int64_t deadline_ns);
// One attempt for every link that is down and due. *next: when to try again.
hk_status hki_member_mend_once(hki_member_link *w, int64_t deadline_ns,
                               int64_t *next);
// After a failure on a link: true when its connection is gone and it may be
// tried again; false: the failure is the center's answer.
bool hki_link_broke(hki_member_link *w, hki_link *l, hk_status s);
void hki_remote_saw(hki_remote *r, const hki_link *l, const hki_msg_state *s);
// A request that is answered with STATE; tried again over new connections
// until the deadline.
hk_status hki_member_ask(hki_member_link *w, uint32_t shard, hki_type type,
                         const hki_body *b, const void *msg,
                         int64_t deadline_ns, const char *what);

// ---- remote_exchange.c ------------------------------------------------------

hk_status hki_remote_exchange(hk_center *c, hki_member m, hki_exchange *ex);
hk_status hki_remote_push_round(hk_center *c, hki_member m, hki_exchange *ex);

// ---- remote_flow.c ----------------------------------------------------------

// Runs every link's flow to its end. HK_E_UNAVAILABLE with *broken: a
// connection is gone, mend and call again. In a round, flows of other links may
// be under way then; a caller that does not call again calls hki_flow_abandon.
hk_status hki_flow_drive(hki_member_link *w, hki_exchange *ex,
                         int64_t deadline_ns, bool *broken);
// Closes the connections of flows that are under way.
void hki_flow_abandon(hki_member_link *w);
bool hki_flow_pending(const hki_link *l); // something of an exchange is left
bool hki_member_pending(const hki_member_link *w); // the same, of any link
// Hands in what is left of a broken exchange; links are up.
hk_status hki_member_settle(hki_member_link *w, int64_t deadline_ns);

// ---- remote_units.c ---------------------------------------------------------

// Chunk of a unit of a link's exchange; NULL: a batch of rows.
const hki_chunk_range *hki_link_unit(const hki_remote *r, const hki_link *l,
                                     uint32_t unit);
// Fills the slot of `unit` from c, the center's values (NULL: not needed), and
// moves x as far as it moves now.
void hki_unit_up(hki_member_link *w, hki_link *l, hki_exchange *ex,
                 uint32_t unit, const float *c);
// Takes the center's values after the unit was applied.
void hki_unit_after(hki_member_link *w, hki_link *l, hki_exchange *ex,
                    uint32_t unit, const float *c);
// The unit was refused: x gets back what it gave.
void hki_unit_back(hki_member_link *w, hki_link *l, hki_exchange *ex,
                   uint32_t unit);
hk_status hki_link_slots(hki_remote *r, hki_link *l);
void hki_link_free_slots(hki_link *l);
size_t hki_remote_room(const hki_remote *r); // floats of a slot
// Units of a full exchange with a shard, or of its chunks outside of tables.
uint32_t hki_link_fixed(const hki_remote *r, uint32_t shard, bool rows);
// A batch of rows: makes the message that asks for it.
hk_status hki_unit_ask(hki_member_link *w, hki_link *l, uint32_t unit,
                       const uint8_t **body, size_t *size);

// ---- remote_rows.c ----------------------------------------------------------

// Decides whether this exchange takes touched rows only, and which.
hk_status hki_rows_plan(hki_member_link *w, const hki_exchange *ex, bool *rows);
void hki_rows_clear(hki_member_link *w);
// d = 0 for rows that did not take part.
void hki_rows_zero(const hki_member_link *w, const hki_exchange *ex);

// ---- remote_bulk.c ----------------------------------------------------------

hk_status hki_remote_init(hk_center *c, hki_member m, const float *x,
                          const void *side, int64_t deadline_ns);
hk_status hki_member_init(hki_member_link *w, const float *x, const void *side,
                          int64_t deadline_ns);
hk_status hki_remote_pull(hk_center *c, hki_member m, float *x, float *view,
                          void *side, int64_t deadline_ns,
                          int64_t *global_step);
hk_status hki_member_pull(hki_member_link *w, float *x, float *view, void *side,
                          bool exchanged_only, int64_t deadline_ns,
                          int64_t *global_step);
hk_status hki_remote_snapshot(hk_center *c, hk_center_part part,
                              int64_t deadline_ns, float *values, void *side,
                              hk_center_info *info);
hk_status hki_remote_assign(hk_center *c, const float *values, const void *side,
                            int64_t global_step, int64_t deadline_ns);

// ---- remote_requests.c ------------------------------------------------------

// Control connections to all shards, locked by the caller.
hk_status hki_control_open(hki_remote *r, int64_t deadline_ns);
void hki_control_drop(hki_remote *r);
void hki_remote_info(hk_center *c, hk_center_info *out);
void hki_state_info(const hki_remote *r, const hki_msg_state *s,
                    hk_center_info *out);
// One question to the run's memory.
hk_status hki_control_call(hki_remote *r, const hki_msg_call *call,
                           int64_t deadline_ns, hki_msg_result *out);

// ---- remote_calls.c ---------------------------------------------------------

// Calls the run's memory on shard 0 until it answers; the same call again when
// a center comes back, so that it is carried out once. what: "to ..." for the
// message.
hk_status hki_center_call(hk_center *c, const hki_msg_call *call,
                          const char *what, int64_t deadline_ns,
                          hki_msg_result *out);
// Ranges of data that were used: some of them go with the exchange that begins,
// as bytes behind its BEGIN, and are forgotten when shard 0 has acknowledged
// it.
void hki_ranges_begin(hki_member_link *w);
size_t hki_ranges_put(const hki_member_link *w, uint8_t *out);
void hki_ranges_counted(hki_member_link *w);

#endif // HKI_REMOTE_H
