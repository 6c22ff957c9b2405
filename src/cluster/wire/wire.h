// cluster/wire/wire.h - the protocol between workers and center servers,
// version 5.
//
// Both sides open with a preface of 16 bytes, then speak in frames: a head of
// 32 bytes and a body whose length the head gives. All numbers are
// little-endian. docs/formats/wire.md has the whole of it.
//
//   preface  "HKWIRE\r\n"  u16 lowest version  u16 highest  u32 flags
//   head     u8 type  u8 flags  u16 aux  u32 body bytes  u64 exchange
//            u32 unit  u32 applied  u32 sequence  u32 check
//
// sequence counts the frames of one direction from 0, check is a hash of the
// 28 bytes before it: what does not fit ends the connection.
#ifndef HKI_WIRE_H
#define HKI_WIRE_H
#include "base/base.h"
#include "center/shard.h"
#include "hooke/tensor.h"

#define HKI_WIRE_VERSION 5
#define HKI_PREFACE 16
#define HKI_HEAD 32
#define HKI_MAX_BODY (64u << 20) // no frame is longer
#define HKI_MAX_UNITS HKI_MAX_CHUNKS

typedef enum hki_type {
    HKI_ERROR = 1, // aux: hk_status; unit: hki_why; body: text
    HKI_OPEN = 2,
    HKI_NEED_LAYOUT = 3, // answer to OPEN: send LAYOUT
    HKI_LAYOUT = 4,
    HKI_WELCOME = 5,
    HKI_JOIN = 6,
    HKI_RESUME = 7,
    HKI_JOINED = 8,
    HKI_LEAVE = 9,
    HKI_PING = 10,
    HKI_STATE = 11, // answer to PING, LEAVE and other requests
    HKI_INIT = 12,
    HKI_GRANT = 13, // answer to INIT: aux 1: bring the values
    HKI_PULL = 14,
    HKI_DATA = 15, // a piece of a vector; unit: chunk
    HKI_SIDE = 16, // the side block
    HKI_COMMIT = 17,
    HKI_ASSIGN = 18,
    HKI_BARRIER = 19,
    HKI_BEGIN = 20,
    HKI_BEGAN = 21,
    HKI_BEFORE = 22, // center's values of a unit, as they were
    HKI_UP = 23,     // what the worker has for a unit
    HKI_AFTER = 24,  // center's values after it was applied
    HKI_END = 25,
    HKI_ROWS = 26,    // asks for rows of a table
    HKI_ROWS_UP = 27, // differences of rows
    HKI_SNAPSHOT = 28,
    HKI_GATE = 29,
    HKI_MEMBERS = 30, // answer to GATE: who is at which exchange
    HKI_FINISH = 31,
    HKI_POST = 32,
    HKI_READ = 33,
    HKI_NOTE = 34,
    HKI_BYE = 35,
    HKI_CALL = 36, // to the run's memory; the same again changes nothing
    HKI_RESULT = 37,
    HKI_COPY = 38,    // to shard 0: a consistent copy of all shards
    HKI_HELD = 39,    // answer to GATE: which snapshots there are
    HKI_APPLIED = 40, // the head says how many units were applied
    HKI_TYPES = 41
} hki_type;

typedef enum hki_frame_flag {
    HKI_FLAG_SHARED = 1, // the body lies in shared memory
} hki_frame_flag;

typedef struct hki_frame {
    uint8_t type, flags;
    uint16_t aux;
    uint32_t size; // of the body
    uint64_t exchange;
    uint32_t unit, applied;
} hki_frame;

const char *hki_type_name(unsigned type); // "BEGIN"; "?" when unknown

#define HKI_PREFACE_PROOF 1u // flag: the peer has to show the user's cookie

void hki_preface_put(uint8_t out[HKI_PREFACE], uint32_t flags);
// HK_E_DATA: not this protocol (the text says what it looks like);
// HK_E_UNSUPPORTED: no common version.
hk_status hki_preface_get(const uint8_t in[HKI_PREFACE], const char *peer,
                          uint32_t *flags);

void hki_head_put(uint8_t out[HKI_HEAD], const hki_frame *f, uint32_t sequence);
// HK_E_DATA for a head that is damaged; HK_E_EXISTS for one that was there
// before (sequence below). Whether it is in place is another question
// (cluster/wire/frame_table.h).
hk_status hki_head_get(const uint8_t in[HKI_HEAD], uint32_t sequence,
                       const char *peer, hki_frame *out);

// ---- bodies -----------------------------------------------------------------
//
// A body is the list of its fields in the order of the struct. Texts are a
// u16 length and bytes, without NUL.

typedef struct hki_msg_open {
    uint32_t shard, n_shards;
    uint64_t fingerprint; // of the layout
    uint64_t shares;      // hash of what is done with each entry
    uint32_t window_kib;  // wished for; 0: the server's
    uint32_t flags;       // hki_open_flag
    uint32_t role;        // hki_role: what it wants to be
    char name[64];
} hki_msg_open;

typedef enum hki_role {
    HKI_ROLE_WORKER = 0,
    HKI_ROLE_OBSERVER = 1, // reads, and leaves notes
    HKI_ROLE_CENTER = 2,   // a server that cuts all shards
    HKI_ROLE_ADMIN = 3     // sets values without being a worker
} hki_role;

typedef enum hki_open_flag {
    HKI_OPEN_MEMORY = 1, // takes shared memory where the transport has it
    HKI_OPEN_LAYOUT = 2  // brings no model and wants to be told the center's
} hki_open_flag;

typedef struct hki_msg_welcome {
    uint64_t run_id; // 0: empty
    uint64_t plan;   // hash of how the vector is cut
    uint64_t map_bytes, values_offset, ring_bytes; // shared memory; 0: none
    uint32_t method, turn, chunk_floats, window, max_workers, lease_ms;
    uint32_t initialised, durable;
} hki_msg_welcome;

typedef hki_join hki_msg_join;

typedef hki_resume hki_msg_resume;

typedef hki_joined hki_msg_joined;

typedef struct hki_msg_leave {
    int64_t steps;
    uint32_t wait_ms, reserved;
    char why[HKI_FAILURE_TEXT]; // it has failed; "": it has not
} hki_msg_leave;

typedef struct hki_msg_ping { // hk_worker_news
    int64_t local_step;
    double examples, per_second, loss, distance;
} hki_msg_ping;

typedef struct hki_msg_state { // hk_center_info and more
    uint64_t version, exchanges;
    int64_t global_step;
    uint64_t skipped, stale, joins, run_id;
    uint32_t live, initialised, finished, reserved;
} hki_msg_state;

typedef hki_begin hki_msg_begin;
// To shard 0 the ids of ranges of data follow, u64 each: this worker has used
// them, and they count when the exchange does.

#define HKI_BEGIN_RANGES 32 // in one BEGIN, at most

typedef hki_began hki_msg_began;

typedef struct hki_msg_assign {
    int64_t global_step;
    uint32_t wait_ms, flags;
    uint32_t id, incarnation; // the worker on whose behalf; 0, 0: the member
                              // of this connection, or an admin
} hki_msg_assign;

typedef struct hki_msg_wait { // INIT, PULL, BARRIER, SNAPSHOT, COPY
    int64_t number; // BARRIER: parties; PULL: round that has to be open first;
                    // SNAPSHOT: the copy that COPY named
    uint32_t wait_ms;
    uint32_t flags; // hki_wait_flag
} hki_msg_wait;

typedef enum hki_wait_flag {
    HKI_WAIT_SIDE = 1,      // the side block as well
    HKI_WAIT_EXCHANGED = 2, // exchanged chunks only
    HKI_WAIT_AVERAGE = 4,   // the average instead of the values
    HKI_WAIT_ALL = 8        // every float, not only the chunks
} hki_wait_flag;

typedef struct hki_msg_gate {
    uint64_t ticket; // of who closed it
    uint32_t action; // hki_gate_action
    uint32_t wait_ms;
    uint32_t use; // hki_cut_use
    uint32_t reserved;
} hki_msg_gate;

typedef enum hki_cut_use {
    HKI_CUT_READ = 1, // each shard keeps its copy for SNAPSHOT
    HKI_CUT_WRITE = 2 // and writes it as its snapshot file
} hki_cut_use;

typedef enum hki_gate_action {
    HKI_GATE_CLOSE = 1,  // answered with MEMBERS
    HKI_GATE_SETTLE = 2, // body ends with MEMBERS: wait until they are there
    HKI_GATE_COPY = 3,   // keep a copy for SNAPSHOT
    HKI_GATE_WRITE = 4,  // write the snapshot file from that copy
    HKI_GATE_OPEN = 5,
    HKI_GATE_KEEP = 6,    // all shards have this snapshot
    HKI_GATE_LIST = 7,    // answered with HELD
    HKI_GATE_RESTORE = 8, // back to this snapshot; ticket: the run's new id
    HKI_GATE_ADMIT = 9    // let workers in
} hki_gate_action;

// What a shard says when the centers agree on where to go on.
typedef struct hki_msg_held {
    uint32_t state;    // hki_shard_state
    uint32_t admitted; // 1: workers are let in
    uint64_t run_id;   // 0: no values
    uint64_t kept;     // snapshot that all shards have; 0: none
    uint64_t next;     // newer one that perhaps not all have; 0: none
} hki_msg_held;

typedef enum hki_shard_state {
    HKI_STATE_NEW = 0,   // there was no file
    HKI_STATE_WHOLE = 1, // everything that was acknowledged is there
    HKI_STATE_LOST = 2   // the machine went down, and some of it is not
} hki_shard_state;

typedef struct hki_msg_rows {
    uint32_t table; // index of the entry
    uint32_t count; // rows; their ids follow, u32 each, rising
} hki_msg_rows;

typedef struct hki_msg_note {
    uint32_t if_absent, size; // the bytes follow
    char key[64];
} hki_msg_note;

typedef enum hki_call_op {
    HKI_CALL_TAKE = 1, // a range of data
    HKI_CALL_GIVE_BACK = 2,
    HKI_CALL_DONE = 3,   // this worker's data is used up
    HKI_CALL_DECLARE = 4 // a set of data
} hki_call_op;

typedef struct hki_msg_call {
    uint32_t op;       // hki_call_op
    uint32_t worker;   // below HKI_MAX_SEATS
    uint32_t nonce;    // of the worker's process; not 0
    uint32_t sequence; // rises with every call; the same again: the same answer
    uint32_t set;      // TAKE
    uint32_t workers;  // DECLARE and below: hk_lent_set
    uint32_t incarnation; // of the worker
    uint64_t range;       // GIVE_BACK; 0: all that the process holds, unused
    int64_t used;         // GIVE_BACK: examples, or HK_RANGE_ALL
    uint64_t fingerprint, seed;
    int64_t units; // TAKE: held and not used yet
    int64_t epochs;
    char name[64];
} hki_msg_call;

typedef struct hki_msg_result {
    uint32_t status; // HK_OK, HK_E_END: used up, HK_E_UNAVAILABLE: all is
                     // lent, HK_E_NOT_FOUND: it is somebody else's now
    uint32_t set;    // DECLARE: its number
    uint64_t range;  // TAKE: id
    int64_t epoch, begin, end, used;
    uint64_t seed; // DECLARE
} hki_msg_result;

typedef struct hki_msg_text {
    char text[256];
} hki_msg_text;

// Describes one of the structs above; see HKI_PUT.
typedef struct hki_body hki_body;
extern const hki_body hki_body_open, hki_body_welcome, hki_body_join,
    hki_body_resume, hki_body_joined, hki_body_leave, hki_body_ping,
    hki_body_state, hki_body_begin, hki_body_began, hki_body_assign,
    hki_body_wait, hki_body_gate, hki_body_held, hki_body_rows, hki_body_note,
    hki_body_call, hki_body_result, hki_body_text;

#define HKI_MAX_MESSAGE 512 // bytes of any of these bodies

// Bytes written; capacity HKI_MAX_MESSAGE suffices.
size_t hki_body_put(const hki_body *b, const void *msg, uint8_t *out);
// Reads the fields from the front of a body; *used: how much they took. With
// used NULL nothing may follow. HK_E_DATA with the peer's name otherwise.
hk_status hki_body_get(const hki_body *b, const uint8_t *bytes, size_t size,
                       const char *peer, void *msg, size_t *used);

// HK_E_DATA unless a result makes sense; from: a peer or a file.
hk_status hki_result_check(const hki_msg_result *r, const char *from);

// ---- layouts ----------------------------------------------------------------

// Hash over the shares of a layout's entries.
uint64_t hki_shares_hash(const hk_share *share, size_t n);

// Lists to bytes and back, in fresh memory.
hk_status hki_members_put(const hki_member_at *members, uint32_t n,
                          uint8_t **out, size_t *size);
hk_status hki_members_get(const uint8_t *bytes, size_t size, const char *peer,
                          hki_member_at **out, uint32_t *n);

#endif // HKI_WIRE_H
