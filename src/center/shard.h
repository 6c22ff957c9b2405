// center/shard.h - the state of one center shard and everything that
// changes it; knows nothing of connections. The in-process center (local.h)
// keeps its state in a shard in memory.
//
// center_file.c    the file that a shard lives in; center_sections.c: its tags
// shard.c          create, open with recovery, close, counters
// shard_member.c   join, resume, leave, leases, first values, barrier
// shard_apply.c    one unit of an exchange, exactly once
// shard_rules.c    what a method does with a unit
// shard_undo.c     changes that are complete or have not happened
// shard_round.c    rounds of synchronous methods
// shard_snapshot.c gate, consistent copies, snapshots
// shard_restore.c  back to a snapshot
//
// Locks, outermost first: a seat's (its worker's exchanges, one at a time),
// chunks in rising order, `lock` (members, rounds, gate), undo slots'.
#ifndef HKI_SHARD_H
#define HKI_SHARD_H
#include <stdatomic.h>
#include "center/center.h"
#include "center/center_file.h"
#include "center/turn.h"

// ---- what a worker says, and hears ---------------------------------------------

#define HKI_FAILURE_TEXT 256 // bytes of why a worker has failed, with the NUL
#define HKI_GATE_MS 2000 // that a gate is closed while workers are waited for

// Why a worker was refused, where it goes by that.
typedef enum hki_why {
    HKI_WHY_OTHER = 0,
    HKI_WHY_FENCED = 1,   // a newer incarnation is this worker
    HKI_WHY_REPLACED = 2, // the worker speaks over another connection
    HKI_WHY_LEFT = 3,     // the worker has left
    HKI_WHY_UNKNOWN = 4,  // the center is of another run, or has no such worker
    HKI_WHY_AGAIN = 5     // no memory or disk at the moment: as if disconnected
} hki_why;

typedef struct hki_join {
    int32_t task;
    uint32_t incarnation; // 0: the next; others: what shard 0 gave
    uint64_t round; // the worker's first, as far as the shards before this one
                    // know; shard_round.c
    uint32_t wait_ms; // that the worker waits for
} hki_join;

typedef struct hki_resume {
    uint64_t run_id;
    uint32_t id, incarnation;
} hki_resume;

typedef struct hki_joined {
    uint32_t id, incarnation;
    uint64_t exchange; // the worker's last one at this shard
    uint32_t applied;  // units of it
    int64_t steps;     // of this worker so far
    uint64_t round;    // that is open at this shard; methods with rounds
    double first_loss; // largest of the first losses of all workers; 0: unknown
} hki_joined;

typedef struct hki_begin {
    int64_t steps;  // of this worker so far
    uint64_t round; // that it contributes to, at every shard; ROUND
    double rate, fast_rate, grad_scale;
    uint32_t flags;      // hki_begin_flag
    uint32_t encoding;   // of UP bodies: hki_encoding
    uint32_t first_up;   // units before it were acknowledged
    uint32_t first_down; // units before it need no BEFORE
    uint32_t last;       // units of this exchange
    uint32_t wait_ms;    // that the worker waits for
    double first_loss;   // loss of the worker's first step; 0: unknown
} hki_begin;

typedef enum hki_begin_flag {
    HKI_BEGIN_BEFORE = 1,   // BEFORE frames are wanted
    HKI_BEGIN_PER_LIVE = 2, // rate is to be divided by the live workers
    HKI_BEGIN_ROWS = 4,     // tables travel as rows
    HKI_BEGIN_HALF = 8,     // BEFORE bodies in bfloat16
    HKI_BEGIN_ROUND = 16,   // contributes to a round
    HKI_BEGIN_SETTLE = 32   // only hands in what is left of an exchange
} hki_begin_flag;

// Flags that follow from the method. half: BEFORE bodies in bfloat16 are wanted
// where the method allows them.
uint32_t hki_begin_flags(const hki_method *m, bool half);

typedef struct hki_began {
    double alpha;
    uint64_t staleness, version;
    int64_t global_step;
    uint64_t round; // that it contributes to here: the one it named, or a later
    uint32_t live, dropped;
} hki_began;

typedef struct hki_member_at {
    uint32_t id;
    uint32_t running;  // 1: not finished
    uint64_t exchange; // its last one
} hki_member_at;

// Every entry with its name, shape, type, kind and share, appended to out.
hk_status hki_layout_put(const hk_layout *l, const hk_share *share,
                         hki_buf *out);
// share: of every entry of the layout made; freed with hki_free.
hk_status hki_layout_get(const uint8_t *bytes, size_t size, const char *peer,
                         hk_layout **out, hk_share **share);
typedef enum hki_durability {
    HKI_DURABLE_PROCESS = 0,  // survives the death of the process
    HKI_DURABLE_SNAPSHOT = 1, // and, from time to time, of the machine
    HKI_DURABLE_ALWAYS = 2    // everything acknowledged is on the disk
} hki_durability;

// "process", "snapshot:SECONDS", "always"; NULL: process.
hk_status hki_durability_parse(const char *text, const char *what,
                               hki_durability *out, int64_t *period_ms);

// Points at which a test may stop the world (or end it).
typedef enum hki_point {
    HKI_POINT_BEGIN = 1, // steps counted, cursor not yet
    HKI_POINT_SLOT,      // undo slot closed, about to be filled
    HKI_POINT_COPIED,    // old values in the slot, not yet tagged
    HKI_POINT_TAGGED,    // slot open
    HKI_POINT_HALF,      // half of the values changed
    HKI_POINT_CHANGED,   // all changed, not committed
    HKI_POINT_COMMITTED, // cursor stored
    HKI_POINT_RESTORED,  // recovery: values back, slot still open
    HKI_POINTS
} hki_point;
typedef void (*hki_probe_fn)(void *user, hki_point point);

typedef struct hki_shard_options {
    hk_context *context;
    const char *name;
    hk_center_options center; // checked; strings and outer are borrowed
    const char *path;         // NULL: memory
    hki_durability durability;
    uint32_t shard, n_shards;
    double max_norm; // 0: non-finite only
    int64_t lease_ms;
    uint64_t max_bytes; // 0: no limit of its own
    bool shared;        // memory that can be handed over
    bool in_process;    // of an in-process center (local.h)
    hki_probe_fn probe; // NULL: none
    void *probe_user;
} hki_shard_options;

// What a connection says of itself with every call, and what it hears.
typedef struct hki_claim {
    uint32_t id, incarnation;
    uint64_t session; // from hki_shard_join or _resume
    hki_why why;      // the last call was refused
} hki_claim;

// A worker in this process's memory.
typedef struct hki_shard_seat {
    hki_mutex lock;   // guards cursor and session against each other
    uint64_t session; // the connection that speaks for it
    uint64_t seen_version;
    // The rest is guarded by the shard's `lock`.
    bool left;  // said good-bye; a lease that is over is not that
    bool rests; // rounds do not wait for it
    char failed[HKI_FAILURE_TEXT]; // why it has left; "": it has not failed
    bool put_out;       // of a round: may come back as a new incarnation only
    int64_t stepped_ns; // when it last joined, exchanged or told a new step
    uint64_t speaker;   // the same session, for those who hold that lock; 0:
                        // it has hung up
    bool in_barrier;
    uint64_t running;  // exchange between BEGIN and END; 0: none
    bool contributing; // it is part of a round
    // In process: chunks that received the worker's contribution to round
    // `entered` before it failed (timeout).
    uint32_t contributed;
    // What it waits for in a method with rounds: the round, plus 1 (0: none),
    // since when, and how long others may make no step meanwhile.
    uint64_t waits_for;
    int64_t waits_since_ns, idle_limit_ns;
    uint32_t connections;
    int64_t seen_ns;
    uint64_t bytes_in, bytes_out, refused;
    double exchange_seconds, staleness;
    hk_worker_news report;
    char peer[128];
} hki_shard_seat;

typedef struct hki_gate {
    uint64_t ticket; // of who closed it; 0: open
    int64_t since_ns, until_ns;
    int64_t rest_ns;   // not to be closed again before
    uint64_t *allowed; // per seat: exchange that may begin although closed
    uint64_t rounds;   // may be closed so far although it is closed
} hki_gate;

typedef struct hki_chunk_lock {
    _Alignas(64) hki_mutex mutex; // a cache line of its own
} hki_chunk_lock;

typedef struct hki_shard {
    hk_context *context;
    char *name;
    const hki_method *method;
    hk_center_options opt; // numbers only
    hk_layout *layout;
    hki_partition partition;
    hki_durability durability;
    uint32_t shard;
    double max_norm;
    int64_t lease_ns;
    hki_probe_fn probe;
    void *probe_user;
    const hki_exchange_kernels *k;

    hki_center_file file;
    float *values; // of float `first` of the flat vector
    int64_t first, n;
    const hki_chunk_range *chunk; // n_chunks of this shard
    uint32_t n_chunks;
    uint32_t *dense; // chunks outside of tables
    uint32_t n_dense;

    hki_chunk_lock *chunk_lock; // each guards a chunk's values, slots and
                                // record; with `vector_outer` the first lock
                                // guards all chunks
    hki_shard_seat *seat;       // opt.max_workers
    hki_turn turn;

    // In-process center only.
    bool in_process;
    hk_optimizer *vector_outer; // one outer optimizer for the whole vector;
                                // NULL: none
    uint64_t *updates;          // per chunk; one array, because checkpoints
                                // store it as a tensor

    hk_optimizer **outer; // per chunk; NULL: none
    float **slot;         // 3 per chunk: the optimizers' slots
    float **power;        // per chunk: beta powers; NULL entries: none
    uint32_t n_slots;
    double outer_rate;
    hki_delayed delayed;

    hki_mutex undo_lock; // guards the list of free slots
    hki_cond undo_free;
    int64_t undo_wait_ns; // for a free one: HKI_UNDO_WAIT_MS
    uint32_t free_slot[HKI_UNDO_SLOTS], n_free;

    hki_mutex lock; // members, first values, barrier, rounds, gate
    hki_cond changed;
    uint64_t sessions;      // given out
    uint32_t granted;       // seat that sends the first values, plus 1; 0: none
    uint64_t grant_session; // the connection of that seat which sends them
    bool receiving;         // somebody's whole vector is on its way
    uint64_t newest_run;    // last id given by hki_shard_new_run; 0: none
    bool round_closing;
    hki_gate gate;
    uint32_t n_copies[2]; // that exist, by hki_copy_use
    bool lost; // the machine went down with the file: it is old in parts, or a
               // snapshot

    _Atomic uint64_t version, exchanges, chunks, repeated, recovered;
    _Atomic int64_t global_step;
    _Atomic uint32_t live;
    _Atomic uint64_t snapshots;
    _Atomic int64_t snapshot_ns, snapshot_took_ns;
} hki_shard;

// ---- shard.c ----------------------------------------------------------------

// A new shard. share: hk_share per entry; copied. layout: retained.
hk_status hki_shard_create(const hki_shard_options *opt, hk_layout *layout,
                           const hk_share *share, hki_shard **out);
// From the file at opt->path: undoes what was not committed. HK_E_NOT_FOUND
// when there is none; HK_E_INVALID_ARG when it does not fit the options.
hk_status hki_shard_open(const hki_shard_options *opt, hki_shard **out);
// What hki_shard_open would find, for a look at its values: a copy of this
// process that serves nobody. The file stays as it is.
hk_status hki_shard_view(const char *path, hki_shard **out);
void hki_shard_close(hki_shard *s); // NULL is allowed
HKI_SCOPED_HANDLE(hki_shard, hki_shard_close)

void hki_shard_info(hki_shard *s, hk_center_info *out);
// Values of the flat vector's float `at`, in vector v.
float *hki_shard_at(const hki_shard *s, uint32_t v, int64_t at);
void hki_shard_probe(const hki_shard *s, hki_point p);

// ---- shard_member.c ---------------------------------------------------------

// A wait on somebody's behalf: alive says whether that somebody is still
// there (called now and then; NULL: always).
typedef struct hki_patience {
    int64_t deadline_ns;
    bool (*alive)(void *user);
    void *user;
} hki_patience;

// Waits for a change; false: time is over or nobody waits any more. `lock` is
// held.
bool hki_shard_wait(hki_shard *s, const hki_patience *p);

// incarnation 0: the next one. peer: copied.
hk_status hki_shard_join(hki_shard *s, const hki_join *msg, const char *peer,
                         hki_claim *claim, hki_joined *out);
// The same worker over another connection. HK_E_STATE: fenced off, or
// unknown.
hk_status hki_shard_resume(hki_shard *s, const hki_resume *msg,
                           const char *peer, hki_claim *claim, hki_joined *out);
// why: the worker has failed, which is kept until one of its id joins; "": it
// has not.
hk_status hki_shard_leave(hki_shard *s, hki_claim *c, int64_t steps,
                          const char *why);
// The error of the worker of this id, which has failed and left; false: it has
// not.
bool hki_shard_failure(hki_shard *s, uint32_t id, char *out, size_t size);
// The connection is gone; the membership lives until its lease is over.
void hki_shard_hang_up(hki_shard *s, const hki_claim *c);
// HK_E_DATA unless a worker may be at so many steps now.
hk_status hki_shard_check_steps(const hki_shard *s, const hki_claim *c,
                                int64_t steps);
// HK_E_STATE unless the claim holds.
hk_status hki_shard_check(hki_shard *s, hki_claim *c, const char *what);
// The same; `lock` is held.
hk_status hki_shard_check_locked(hki_shard *s, hki_claim *c, const char *what);
// The same over a connection that has not joined. stays: nor has it left. A
// center that has lost its memory takes the caller's word.
hk_status hki_shard_check_caller(hki_shard *s, const hki_claim *c, bool stays,
                                 hki_why *why);
// A sign of life.
void hki_shard_seen(hki_shard *s, const hki_claim *c,
                    const hk_worker_news *report, uint64_t bytes_in,
                    uint64_t bytes_out);
// The lease of a worker that waits for an answer. `lock` is held.
void hki_shard_renew(hki_shard *s, const hki_claim *c);
// Forgets who the worker of this id was, so that anybody may be it: for a
// number that nobody can follow any more. What it has done stays.
hk_status hki_shard_reset(hki_shard *s, int64_t id);
// Ends the membership of a worker that makes no steps while others wait for it:
// it has to join again. `lock` is held.
void hki_shard_put_out(hki_shard *s, uint32_t id);
// True for the connection of a worker that was put out.
bool hki_shard_is_out(hki_shard *s, const hki_claim *c);
// Ends memberships whose lease is over.
void hki_shard_expire(hki_shard *s);

// What one message may move a number that is kept for good: nobody gets to its
// end, and so nobody can use a worker's numbers up.
#define HKI_LEAP_INCARNATION (1u << 20)
#define HKI_LEAP_EXCHANGES (UINT64_C(1) << 24)
#define HKI_LEAP_ROUNDS (UINT64_C(1) << 24)
#define HKI_LEAP_STEPS (INT64_C(1) << 32)
#define HKI_MAX_STEPS (INT64_C(1) << 48)

// Compare-and-set of the first values. *granted: the caller brings them, then
// calls hki_shard_commit, or hki_shard_refuse when it cannot. The grant belongs
// to one connection: a newer connection of the worker needs a new grant.
hk_status hki_shard_init(hki_shard *s, hki_claim *c, const hki_patience *p,
                         bool *granted);
// Before they are put in place: the caller may have been thought to be gone
// meanwhile. HK_E_STATE: somebody else brings them, or has.
hk_status hki_shard_hold(hki_shard *s, hki_claim *c);
// The id of a new run, for a worker that gets the grant of the first values.
// All shards of a center belong to the run whose id shard 0 gave. The ids that
// one shard gives are ordered (hki_run_is_older), so that a worker that has
// lost its grant without noticing cannot replace the values of a newer run.
uint64_t hki_shard_new_run(hki_shard *s);
bool hki_run_is_older(uint64_t run, uint64_t than);
// run_id: of the whole center; 0 makes one. HK_E_STATE as above.
hk_status hki_shard_commit(hki_shard *s, hki_claim *c, uint64_t run_id);
void hki_shard_refuse(hki_shard *s, const hki_claim *c);
// Room for a whole vector that comes in: one at a time, so that connections
// cannot fill the memory. HK_E_TIMEOUT.
hk_status hki_shard_receive(hki_shard *s, const hki_patience *p);
void hki_shard_received(hki_shard *s);
hk_status hki_shard_barrier(hki_shard *s, hki_claim *c, uint32_t parties,
                            const hki_patience *p);
// New values from a checkpoint have been written.
void hki_shard_assigned(hki_shard *s, int64_t global_step, uint64_t run_id);

// ---- shard_apply.c ----------------------------------------------------------

// One exchange as the server's connection runs it.
typedef struct hki_shard_run {
    hki_claim claim;
    uint64_t exchange;
    hki_begin msg;
    hki_began began;
    uint32_t applied; // units
    int64_t start_ns;
    float *scratch;     // 2 * hki_shard_room floats of the caller's; NULL with
                        // rules that do without (hki_rules_scratch)
    uint32_t one_scale; // floats of a difference that came under one scale; 0:
                        // each by itself
} hki_shard_run;

// Floats of a buffer for any chunk, with room for a line more.
size_t hki_shard_room(const hki_shard *s);

// HK_E_TIMEOUT while the gate is closed or a round is being closed.
hk_status hki_shard_begin(hki_shard *s, hki_claim *c, uint64_t exchange,
                          const hki_begin *msg, const hki_patience *p,
                          hki_shard_run *out);
// Chunk of a unit; NULL: it is a batch of rows.
const hki_chunk_range *hki_shard_unit(const hki_shard *s,
                                      const hki_shard_run *r, uint32_t unit,
                                      uint32_t *index);
// Applies the next unit: n floats for its chunk, or NULL for nothing. volatile
// memory (shared): read once. HK_E_NOT_FINITE, HK_E_RANGE: refused, nothing
// has changed. The same after HK_E_TIMEOUT (hki_undo_open): the unit may come
// again.
hk_status hki_shard_apply(hki_shard *s, hki_shard_run *r, uint32_t unit,
                          const float *up, bool shared);

typedef struct hki_row_batch {
    uint32_t table; // of the partition
    uint32_t count;
    const uint32_t *ids; // rising, of this shard
    const float *up;     // count * dim
} hki_row_batch;

// Checks the ids of a batch against table and shard.
hk_status hki_shard_check_rows(const hki_shard *s, const hki_row_batch *rows,
                               const char *peer);
hk_status hki_shard_apply_rows(hki_shard *s, hki_shard_run *r, uint32_t unit,
                               const hki_row_batch *rows);
// Copies rows out.
void hki_shard_read_rows(hki_shard *s, const hki_row_batch *rows, float *out);
// All units are in: waits for the end of the round, if there is one.
hk_status hki_shard_end(hki_shard *s, hki_shard_run *r, const hki_patience *p);

// In process: counts an exchange and steps_done local steps of worker id. *msg:
// rates, first loss and flags.
void hki_shard_count_exchange(hki_shard *s, uint32_t id, const hki_begin *msg,
                              int64_t steps_done, hki_began *out);
// Worker id has received the center's current values: staleness counts from
// here.
void hki_shard_set_seen(hki_shard *s, uint32_t id);

void hki_shard_lock_chunk(hki_shard *s, uint32_t chunk);
void hki_shard_unlock_chunk(hki_shard *s, uint32_t chunk);

// ---- shard_undo.c -----------------------------------------------------------

// A change holds its slot for as long as it takes to copy and to flush a chunk:
// whoever gets none in this time has a center whose disk hangs.
#define HKI_UNDO_WAIT_MS 10000

// Undo slot for a change of a chunk by `worker` (opt.max_workers: the center
// itself), committed by cursor value `tag`. The chunk is locked. HK_E_TIMEOUT:
// all slots are in use, and nothing has changed.
hk_status hki_undo_open(hki_shard *s, uint32_t worker, uint64_t tag,
                        uint32_t chunk, uint32_t vectors, uint32_t *slot);
hk_status hki_undo_open_rows(hki_shard *s, uint32_t worker, uint64_t tag,
                             const hki_row_batch *rows, uint32_t *slot);
// Stores the cursor and gives the slot back.
hk_status hki_undo_commit(hki_shard *s, uint32_t slot);
// Takes the change back.
void hki_undo_restore(hki_shard *s, uint32_t slot);
// At the start: takes back what was not committed.
hk_status hki_undo_recover(hki_shard *s);

#define HKI_CURSOR(exchange, units) ((uint64_t)(exchange) << 24 | (units))
#define HKI_CURSOR_EXCHANGE(c) ((c) >> 24)
#define HKI_CURSOR_UNITS(c) ((uint32_t)((c)&HKI_MAX_CHUNKS))

// ---- shard_rules.c ----------------------------------------------------------

// Number of vectors that the method keeps beside the values.
uint32_t hki_rules_vectors(const hki_method *m, uint32_t n_slots);
hk_status hki_rules_init(hki_shard *s, const hk_center_options *opt);
void hki_rules_deinit(hki_shard *s);
// The outer optimizers' slots, from the file.
void hki_rules_load(hki_shard *s);
// Slots of the outer optimizer that opt asks for; 0: none.
hk_status hki_rules_slots(const hk_center_options *opt, const char *name,
                          uint32_t *n_slots);
bool hki_rules_scratch(const hki_method *m);
// False: non-finite or beyond the bound.
bool hki_rules_acceptable(const hki_shard *s, const float *up, int64_t n,
                          double squares);
// The center's half of an exchange for a chunk, with `live` workers.
hki_center_half hki_rules_half(hki_shard *s, uint32_t chunk, uint32_t live);
// Vectors that applying a unit to a chunk changes, as a mask.
uint32_t hki_rules_touched(const hki_shard *s, uint32_t chunk);
// Applies; the chunk is locked and its undo slot open. *squares: of up, as it
// was read; NULL: the caller has looked at it.
hk_status hki_rules_apply(hki_shard *s, const hki_shard_run *r, uint32_t chunk,
                          const float *up, double *squares);
// Ends a round for one chunk. A failure is the rule's: it refuses what was
// brought.
hk_status hki_rules_close(hki_shard *s, uint32_t chunk, uint64_t round);
// Ends it without what was brought.
void hki_rules_drop(hki_shard *s, uint32_t chunk);
// With `vector_outer`: its step at the end of a round, before hki_rules_close
// of the chunks. Fails as hki_rules_close does, and the sum is 0 then.
hk_status hki_rules_close_vector(hki_shard *s, uint64_t round);

// ---- shard_round.c ----------------------------------------------------------

uint64_t hki_round_number(const hki_shard *s); // rounds closed so far
// The same, with the one that is being closed. `lock` is held.
uint64_t hki_round_reached(const hki_shard *s);
// Before a contribution to round `round`: waits until it is open, or has been
// closed. `lock` is held.
hk_status hki_round_enter(hki_shard *s, const hki_claim *c, uint64_t round,
                          const hki_patience *p);
// The same before values are read, without `lock`; at once in methods without
// rounds.
hk_status hki_shard_reach(hki_shard *s, const hki_claim *c, uint64_t round,
                          const hki_patience *p);
// HK_E_DATA for a round that is too far ahead.
hk_status hki_round_check(const hki_shard *s, uint32_t id, uint64_t round);
hk_status hki_round_finish(hki_shard *s, hki_shard_run *r,
                           const hki_patience *p);
// In process: begins a contribution of worker r->claim to the open round.
// hki_round_finish ends it, or hki_round_abort after a failure. *again: the
// worker has contributed to this round already. r->applied: chunks that
// received its contribution in an earlier attempt.
hk_status hki_round_begin(hki_shard *s, hki_shard_run *r, const hki_patience *p,
                          bool *again);
void hki_round_abort(hki_shard *s, const hki_shard_run *r);
// Goes on with a round that was being closed when the process died.
hk_status hki_round_recover(hki_shard *s);

// ---- shard_snapshot.c -------------------------------------------------------

// The center is a member, too, where there are rounds: its exchange is the
// number of those closed.
#define HKI_MEMBER_CENTER UINT32_MAX

// Waits until the worker may begin. `lock` is held.
hk_status hki_gate_pass(hki_shard *s, const hki_claim *c, uint64_t exchange,
                        const hki_patience *p);
// Does the gate keep round `round` from being closed? `lock` is held.
bool hki_gate_holds(hki_shard *s, uint64_t round);
// Closes the gate for at most HKI_GATE_MS and lists who is where: *n members in
// fresh memory, freed with hki_free. who: a peer, for the log; NULL: this
// center. HK_E_TIMEOUT while somebody else has it.
hk_status hki_gate_close(hki_shard *s, uint64_t ticket, const char *who,
                         const hki_patience *p, hki_member_at **out,
                         uint32_t *n);
// Lets the listed members come as far as the list says, waits for them. Who
// has brought its share of a round waits for others, and is not waited for.
hk_status hki_gate_settle(hki_shard *s, uint64_t ticket,
                          const hki_member_at *members, uint32_t n,
                          const hki_patience *p);

// Is there time left, and somebody who waits?
bool hki_shard_waits(hki_shard *s, const hki_patience *p);
// Closes the gate at a moment at which nobody is in the middle of an exchange,
// trying again until the deadline. It stays closed until hki_gate_open, which
// the caller owes to everybody.
hk_status hki_gate_hold(hki_shard *s, uint64_t ticket, const char *who,
                        const hki_patience *p);

// A copy of the state between two exchanges.
#define HKI_PEER_COPIES 3
typedef enum hki_copy_use {
    HKI_COPY_PEERS, // somebody reads it
    HKI_COPY_OWN    // this center writes it to a file
} hki_copy_use;

typedef struct hki_shard_copy {
    hki_copy_use use;
    uint8_t *bytes;    // of the file, without the undo slots
    size_t vectors;    // where they begin
    uint8_t *sections; // behind them; NULL: none
    size_t sections_bytes;
    hki_buf run; // section "run": the run's memory, from the server
    hk_center_info info;
} hki_shard_copy;

// Room for a copy. HK_E_TIMEOUT: there are as many as may be.
hk_status hki_cut_create(hki_shard *s, hki_copy_use use, hki_shard_copy **out);
// Fills it. The gate is closed and settled; it may be opened right afterwards.
hk_status hki_gate_copy(hki_shard *s, uint64_t ticket, hki_shard_copy *c);
void hki_gate_open(hki_shard *s, uint64_t ticket);
void hki_cut_free(hki_shard *s, hki_shard_copy *c); // NULL is allowed
const float *hki_cut_vector(const hki_shard *s, const hki_shard_copy *c,
                            uint32_t v);
const uint8_t *hki_cut_side(const hki_shard *s, const hki_shard_copy *c);
// Writes it as the snapshot file, number `number`. is_next: beside the one that
// is there, until hki_shard_keep.
hk_status hki_cut_write(hki_shard *s, hki_shard_copy *c, uint64_t number,
                        bool is_next);
// Holds the gate, fills the copy and opens, for this shard alone.
hk_status hki_shard_cut(hki_shard *s, const char *who, const hki_patience *p,
                        hki_shard_copy *c);

// ---- shard_restore.c --------------------------------------------------------

// FILE.snapshot, or FILE.snapshot.next.
hk_status hki_snapshot_path(const char *path, bool is_next, hki_buf *out);
// Numbers of the two snapshot files; 0: there is none, or it is damaged.
hk_status hki_shard_list(const char *path, uint64_t *kept, uint64_t *next);
// The newer snapshot takes the place of the one before; nothing to do if it has
// already. HK_E_NOT_FOUND: there is no such snapshot.
hk_status hki_shard_keep(const char *path, uint64_t number);
// The state of snapshot `number` takes the place of the shard's, in a run of
// another id; nobody is a member then. No connection uses the shard meanwhile.
// run: the section "run" of it, empty if there is none.
hk_status hki_shard_restore(hki_shard *s, const hki_shard_options *opt,
                            uint64_t number, uint64_t run_id, hki_buf *run);
void hki_shard_count(hki_shard *s); // shard.c: sums over the workers' records

#endif // HKI_SHARD_H
