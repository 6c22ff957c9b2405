// frame_table.c - the one table of frames.
#include "cluster/wire/frame_table.h"
#include "cluster/cluster.h"

enum {
    // Who: workers, observers, centers, admins.
    W = HKI_BY_WORKER,
    O = HKI_BY_OBSERVER,
    C = HKI_BY_CENTER,
    A = HKI_BY_ADMIN,
    ALL = HKI_BY_CLIENTS,
    // When.
    START = HKI_AT_START,
    LAYOUT = HKI_AT_LAYOUT,
    OPEN = HKI_AT_OPEN,
    MEMBER = HKI_AT_MEMBER,
    ASKING = OPEN | MEMBER,
    EXCHANGE = HKI_AT_EXCHANGE,
    VALUES = HKI_AT_VALUES,
    EVER = START | LAYOUT | ASKING | EXCHANGE | VALUES,
    IDLE = HKI_AT_IDLE,
    // How long.
    FULL = HKI_MAX_BODY,
    SEATS = HKI_MAX_SEATS * 16,
    NOTE = HKI_BOARD_VALUE,
    RANGES = HKI_BEGIN_RANGES * 8
};
#define SHARED HKI_FLAG_SHARED

// A member's units and side blocks may still come when its exchange has been
// refused: they are thrown away.
const hki_frame_row hki_frame_rows[HKI_TYPES] = {
    // name; who may send it, when; when the center may; state it leads to;
    // flags; logged; least and most bytes
    [HKI_ERROR] = {"ERROR", 0, 0, EVER, IDLE, 0, false, 0, 511},
    [HKI_OPEN] = {"OPEN", ALL, START, 0, 0, 0, false, 38, 101},
    [HKI_NEED_LAYOUT] = {"NEED_LAYOUT", 0, 0, START, LAYOUT, 0, false, 0, 0},
    [HKI_LAYOUT] = {"LAYOUT", W | O | A, LAYOUT, START, 0, 0, false, 4, FULL},
    [HKI_WELCOME] = {"WELCOME", 0, 0, START | LAYOUT, OPEN, 0, false, 72, 72},
    [HKI_JOIN] = {"JOIN", W, OPEN, 0, 0, 0, false, 24, 24},
    [HKI_RESUME] = {"RESUME", W, OPEN, 0, 0, 0, false, 16, 16},
    [HKI_JOINED] = {"JOINED", 0, 0, OPEN, MEMBER, 0, false, 48, 48},
    [HKI_LEAVE] = {"LEAVE", W, MEMBER, 0, 0, 0, false, 18, 273},
    [HKI_PING] = {"PING", ALL, ASKING, 0, 0, 0, false, 0, 40},
    [HKI_STATE] = {"STATE", 0, 0, ASKING | VALUES, IDLE, 0, false, 72, 72},
    [HKI_INIT] = {"INIT", W, MEMBER, 0, 0, 0, false, 16, 16},
    [HKI_GRANT] = {"GRANT", 0, 0, ASKING, VALUES, 0, false, 0, 0},
    [HKI_PULL] = {"PULL", W, MEMBER, 0, 0, 0, false, 16, 16},
    [HKI_DATA] = {"DATA", W | A, VALUES, ASKING, 0, 0, false, 4, FULL},
    [HKI_SIDE] = {"SIDE", W | A, MEMBER | EXCHANGE | VALUES, ASKING, 0, 0,
                  false, 1, FULL},
    [HKI_COMMIT] = {"COMMIT", W | A, VALUES, 0, 0, 0, false, 0, 0},
    [HKI_ASSIGN] = {"ASSIGN", W | A, ASKING, 0, 0, 0, true, 24, 24},
    [HKI_BARRIER] = {"BARRIER", W, MEMBER, 0, 0, 0, false, 16, 16},
    [HKI_BEGIN] = {"BEGIN", W, MEMBER, 0, 0, 0, false, 72, 72 + RANGES},
    [HKI_BEGAN] = {"BEGAN", 0, 0, MEMBER, EXCHANGE, 0, false, 48, 48},
    [HKI_BEFORE] = {"BEFORE", 0, 0, EXCHANGE, 0, SHARED, false, 0, FULL},
    [HKI_UP] = {"UP", W, MEMBER | EXCHANGE, 0, 0, SHARED, false, 0, FULL},
    [HKI_AFTER] = {"AFTER", 0, 0, EXCHANGE, 0, 0, false, 0, FULL},
    [HKI_END] = {"END", 0, 0, ASKING | EXCHANGE, IDLE, 0, false, 72, 72},
    [HKI_ROWS] = {"ROWS", W, MEMBER | EXCHANGE, 0, 0, 0, false, 8, FULL},
    [HKI_ROWS_UP] = {"ROWS_UP", W, MEMBER | EXCHANGE, 0, 0, 0, false, 8, FULL},
    [HKI_SNAPSHOT] = {"SNAPSHOT", ALL, ASKING, 0, 0, 0, false, 16, 16},
    [HKI_GATE] = {"GATE", C, ASKING, 0, 0, 0, false, 24, 24 + SEATS},
    [HKI_MEMBERS] = {"MEMBERS", 0, 0, ASKING, 0, 0, false, 0, SEATS},
    [HKI_FINISH] = {"FINISH", W | C | A, ASKING, 0, 0, 0, true, 2, 257},
    [HKI_POST] = {"POST", ALL, ASKING, 0, 0, 0, false, 10, 73 + NOTE},
    [HKI_READ] = {"READ", ALL, ASKING, 0, 0, 0, false, 2, 257},
    [HKI_NOTE] = {"NOTE", 0, 0, ASKING, 0, 0, false, 0, NOTE},
    [HKI_BYE] = {"BYE", ALL, ASKING, 0, 0, 0, false, 0, 0},
    [HKI_CALL] = {"CALL", W, ASKING, 0, 0, 0, false, 78, 141},
    [HKI_RESULT] = {"RESULT", 0, 0, ASKING, 0, 0, false, 56, 56},
    [HKI_COPY] = {"COPY", ALL, ASKING, 0, 0, 0, false, 16, 16},
    [HKI_HELD] = {"HELD", 0, 0, ASKING, 0, 0, false, 32, 32},
    [HKI_APPLIED] = {"APPLIED", 0, 0, EXCHANGE, 0, 0, false, 0, 0},
};

const char *hki_type_name(unsigned type) {
    return type < HKI_TYPES && hki_frame_rows[type].name != NULL
               ? hki_frame_rows[type].name
               : "?";
}

hki_dialogue hki_dialogue_begin(hki_party peer) {
    return (hki_dialogue){.peer = (uint8_t)peer, .at = START, .idle = OPEN};
}

// The name of the one bit of a mask.
static const char *bit_name(unsigned mask, const char *const *names, size_t n,
                            const char *others) {
    const size_t bit = mask != 0 ? (size_t)__builtin_ctz(mask) : n;
    return bit < n && mask == 1u << bit ? names[bit] : others;
}

const char *hki_party_name(unsigned party) {
    static const char *const names[] = {"a worker", "an observer", "a center",
                                        "an admin"};
    return bit_name(party, names, HKI_COUNT(names), "anybody");
}

static const char *place(unsigned at) {
    static const char *const names[] = {
        "before the opening", "instead of a layout", "before JOIN",
        "outside of an exchange", "in the middle of an exchange"};
    return bit_name(at, names, HKI_COUNT(names), "in the middle of values");
}

// Says which of a row's conditions does not hold.
static hk_status refuse(const hki_dialogue *d, const hki_frame *f,
                        const char *name) {
    if (f->type >= HKI_TYPES || hki_frame_rows[f->type].name == NULL)
        return hki_fail(HK_E_DATA, "%s: unknown frame type %u", name, f->type);
    const hki_frame_row *const r = &hki_frame_rows[f->type];
    const bool server = d->peer == HKI_BY_SERVER;
    if (server ? r->server_at == 0 : r->clients == 0)
        return hki_fail(HK_E_DATA,
                        "%s: received the message %s, which is not a %s", name,
                        r->name, server ? "answer" : "request");
    if (!server && !(r->clients & d->peer))
        return hki_fail(HK_E_DENIED, "%s: the message %s is not allowed for %s",
                        name, r->name, hki_party_name(d->peer));
    if (!((server ? r->server_at : r->client_at) & d->at))
        return hki_fail(HK_E_DATA, "%s: %s %s", name, r->name, place(d->at));
    if (f->flags & ~r->flags)
        return hki_fail(HK_E_DATA, "%s: the message %s has invalid flags %u",
                        name, r->name, f->flags);
    return hki_fail(HK_E_DATA, "%s: the message %s has %u bytes, not %u to %u",
                    name, r->name, f->size, r->least, r->most);
}

hk_status hki_dialogue_check(const hki_dialogue *d, const hki_frame *f,
                             const char *name) {
    if (f->type < HKI_TYPES) {
        const hki_frame_row *const r = &hki_frame_rows[f->type];
        const unsigned when = d->peer == HKI_BY_SERVER ? r->server_at
                              : r->clients & d->peer   ? r->client_at
                                                       : 0u;
        if (when & d->at && !(f->flags & ~r->flags) && f->size >= r->least &&
            f->size <= r->most)
            return HK_OK;
    }
    return refuse(d, f, name);
}

void hki_dialogue_move(hki_dialogue *d, const hki_frame *f) {
    const uint8_t then = f->type < HKI_TYPES ? hki_frame_rows[f->type].then : 0;
    if (then == 0)
        return;
    if (then == OPEN || then == MEMBER)
        d->idle = then;
    if (then == VALUES && f->aux == 0) // not granted
        return;
    // What fails before the opening leaves it where it is.
    if (then != IDLE)
        d->at = then;
    else if (d->at != START && d->at != LAYOUT)
        d->at = d->idle;
}
