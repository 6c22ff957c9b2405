// cluster/wire/frame_table.h - the one table of frames: who may send which, in
// which state of a connection, how long it may be, and what it leads to.
//
// Both ends of a connection keep the same state (hki_dialogue). What comes in
// is checked against its row before anything else looks at it; then it moves
// the state, and so does what goes out. A new frame is a new row.
#ifndef HKI_FRAME_TABLE_H
#define HKI_FRAME_TABLE_H
#include "cluster/wire/wire.h"

// Who is at the other end, as a mask. A client says in OPEN what it is
// (hki_role), and is taken at its word as far as its authentication goes.
typedef enum hki_party {
    HKI_BY_WORKER = 1 << HKI_ROLE_WORKER,
    HKI_BY_OBSERVER = 1 << HKI_ROLE_OBSERVER,
    HKI_BY_CENTER = 1 << HKI_ROLE_CENTER,
    HKI_BY_ADMIN = 1 << HKI_ROLE_ADMIN,
    HKI_BY_CLIENTS = 15,
    HKI_BY_SERVER = 16 // the center that was dialled
} hki_party;

typedef enum hki_at {
    HKI_AT_START = 1,     // OPEN, and what answers it
    HKI_AT_LAYOUT = 2,    // the center has asked for the layout
    HKI_AT_OPEN = 4,      // between requests of somebody who has not joined
    HKI_AT_MEMBER = 8,    // between requests of a member
    HKI_AT_EXCHANGE = 16, // from BEGAN to END
    HKI_AT_VALUES = 32,   // from GRANT to the answer to COMMIT
    HKI_AT_IDLE = 64      // leads to: OPEN or MEMBER, whichever it was
} hki_at;

typedef struct hki_frame_row {
    const char *name;
    uint8_t clients;      // who may send it (hki_party); 0: the center only
    uint8_t client_at;    // when (hki_at)
    uint8_t server_at;    // when the center may send it; 0: never
    uint8_t then;         // state it leads to (hki_at); 0: the same
    uint8_t flags;        // that it may carry (hki_frame_flag)
    bool logged;          // the center's log says who sent it
    uint32_t least, most; // bytes of the body
} hki_frame_row;

extern const hki_frame_row hki_frame_rows[HKI_TYPES];

// One connection, as either end sees it.
typedef struct hki_dialogue {
    uint8_t peer; // who speaks here (hki_party)
    uint8_t at;   // hki_at
    uint8_t idle; // HKI_AT_OPEN or HKI_AT_MEMBER
} hki_dialogue;

const char *hki_party_name(unsigned party); // "an observer"

// Of a connection that begins; peer: HKI_BY_SERVER or HKI_BY_CLIENTS.
hki_dialogue hki_dialogue_begin(hki_party peer);
// May the peer send this now? HK_E_DENIED: others may; HK_E_DATA. name: of
// the peer, in messages.
hk_status hki_dialogue_check(const hki_dialogue *d, const hki_frame *f,
                             const char *name);
// The frame goes out or has come in.
void hki_dialogue_move(hki_dialogue *d, const hki_frame *f);

#endif // HKI_FRAME_TABLE_H
