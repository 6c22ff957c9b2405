// wire.c - heads, bodies and layouts to bytes and back.
#include "cluster/wire/wire.h"
#include "hooke/elastic.h"
#include "tensor/tensor.h"

// ---- numbers ----------------------------------------------------------------

static void put_le(uint8_t *p, uint64_t v, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get_le(const uint8_t *p, size_t bytes) {
    uint64_t v = 0;
    for (size_t i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

// ---- preface ----------------------------------------------------------------

static const char magic[8] = {'H', 'K', 'W', 'I', 'R', 'E', '\r', '\n'};

void hki_preface_put(uint8_t out[HKI_PREFACE], uint32_t flags) {
    memcpy(out, magic, sizeof magic);
    put_le(out + 8, HKI_WIRE_VERSION, 2);
    put_le(out + 10, HKI_WIRE_VERSION, 2);
    put_le(out + 12, flags, 4);
}

hk_status hki_preface_get(const uint8_t in[HKI_PREFACE], const char *peer,
                          uint32_t *flags) {
    if (memcmp(in, magic, sizeof magic) != 0) {
        const char *looks = "";
        if (in[1] == 3 && (in[0] == 0x15 || in[0] == 0x16))
            looks =
                "; it looks like TLS: give both sides the same key, or neither";
        else if (memcmp(in, "GET ", 4) == 0 || memcmp(in, "POST", 4) == 0)
            looks = "; it looks like HTTP";
        return hki_fail(HK_E_DATA, "%s: does not use Hooke's protocol%s", peer,
                        looks);
    }
    const uint64_t low = get_le(in + 8, 2), high = get_le(in + 10, 2);
    if (low > HKI_WIRE_VERSION || high < HKI_WIRE_VERSION)
        return hki_fail(HK_E_UNSUPPORTED,
                        "%s: uses versions %u to %u of the protocol, this "
                        "process version %d; install the same Hooke on both",
                        peer, (unsigned)low, (unsigned)high, HKI_WIRE_VERSION);
    *flags = (uint32_t)get_le(in + 12, 4);
    return HK_OK;
}

// ---- heads ------------------------------------------------------------------

static uint32_t head_check(const uint8_t *head) {
    const uint64_t h = hki_hash(HKI_HASH_INIT, head, HKI_HEAD - 4);
    return (uint32_t)(h ^ h >> 32);
}

void hki_head_put(uint8_t out[HKI_HEAD], const hki_frame *f,
                  uint32_t sequence) {
    out[0] = f->type;
    out[1] = f->flags;
    put_le(out + 2, f->aux, 2);
    put_le(out + 4, f->size, 4);
    put_le(out + 8, f->exchange, 8);
    put_le(out + 16, f->unit, 4);
    put_le(out + 20, f->applied, 4);
    put_le(out + 24, sequence, 4);
    put_le(out + 28, head_check(out), 4);
}

hk_status hki_head_get(const uint8_t in[HKI_HEAD], uint32_t sequence,
                       const char *peer, hki_frame *out) {
    const hki_frame f = {.type = in[0],
                         .flags = in[1],
                         .aux = (uint16_t)get_le(in + 2, 2),
                         .size = (uint32_t)get_le(in + 4, 4),
                         .exchange = get_le(in + 8, 8),
                         .unit = (uint32_t)get_le(in + 16, 4),
                         .applied = (uint32_t)get_le(in + 20, 4)};
    if (get_le(in + 28, 4) != head_check(in))
        return hki_fail(HK_E_DATA, "%s: the header of frame %u is damaged",
                        peer, sequence);
    const uint32_t number = (uint32_t)get_le(in + 24, 4);
    if (number != sequence)
        return hki_fail(number < sequence ? HK_E_EXISTS : HK_E_DATA,
                        "%s: received frame %u, expected %u", peer, number,
                        sequence);
    *out = f;
    return HK_OK;
}

// ---- bodies -----------------------------------------------------------------

#define NO_MEMBER UINT16_MAX

typedef struct field {
    uint16_t offset; // in the struct
    uint16_t size;   // 4 and 8: a number (integer or double); others: a text
} field;

struct hki_body {
    const char *name;
    size_t struct_size;
    const field *fields;
    size_t n;
};

#define F(type, member)                                                        \
    {                                                                          \
        offsetof(hki_msg_##type, member),                                      \
            sizeof(((hki_msg_##type *)NULL)->member)                           \
    }
// Four bytes without a meaning.
#define RESERVED                                                               \
    { NO_MEMBER, 4 }
#define BODY(type, ...)                                                        \
    static const field fields_##type[] = {__VA_ARGS__};                        \
    const hki_body hki_body_##type = {#type, sizeof(hki_msg_##type),           \
                                      fields_##type, HKI_COUNT(fields_##type)}

BODY(open, F(open, shard), F(open, n_shards), F(open, fingerprint),
     F(open, shares), F(open, window_kib), F(open, flags), F(open, role),
     F(open, name));
BODY(welcome, F(welcome, run_id), F(welcome, plan), F(welcome, map_bytes),
     F(welcome, values_offset), F(welcome, ring_bytes), F(welcome, method),
     F(welcome, turn), F(welcome, chunk_floats), F(welcome, window),
     F(welcome, max_workers), F(welcome, lease_ms), F(welcome, initialised),
     F(welcome, durable));
BODY(join, F(join, task), F(join, incarnation), F(join, round),
     F(join, wait_ms), RESERVED);
BODY(resume, F(resume, run_id), F(resume, id), F(resume, incarnation));
BODY(joined, F(joined, id), F(joined, incarnation), F(joined, exchange),
     F(joined, applied), RESERVED, F(joined, steps), F(joined, round),
     F(joined, first_loss));
BODY(leave, F(leave, steps), F(leave, wait_ms), F(leave, reserved),
     F(leave, why));
BODY(ping, F(ping, local_step), F(ping, examples), F(ping, per_second),
     F(ping, loss), F(ping, distance));
BODY(state, F(state, version), F(state, exchanges), F(state, global_step),
     F(state, skipped), F(state, stale), F(state, joins), F(state, run_id),
     F(state, live), F(state, initialised), F(state, finished),
     F(state, reserved));
BODY(begin, F(begin, steps), F(begin, round), F(begin, rate),
     F(begin, fast_rate), F(begin, grad_scale), F(begin, flags),
     F(begin, encoding), F(begin, first_up), F(begin, first_down),
     F(begin, last), F(begin, wait_ms), F(begin, first_loss));
BODY(began, F(began, alpha), F(began, staleness), F(began, version),
     F(began, global_step), F(began, round), F(began, live), F(began, dropped));
BODY(assign, F(assign, global_step), F(assign, wait_ms), F(assign, flags),
     F(assign, id), F(assign, incarnation));
BODY(wait, F(wait, number), F(wait, wait_ms), F(wait, flags));
BODY(gate, F(gate, ticket), F(gate, action), F(gate, wait_ms), F(gate, use),
     F(gate, reserved));
BODY(held, F(held, state), F(held, admitted), F(held, run_id), F(held, kept),
     F(held, next));
BODY(rows, F(rows, table), F(rows, count));
BODY(note, F(note, if_absent), F(note, size), F(note, key));
BODY(call, F(call, op), F(call, worker), F(call, nonce), F(call, sequence),
     F(call, set), F(call, workers), F(call, incarnation), F(call, range),
     F(call, used), F(call, fingerprint), F(call, seed), F(call, units),
     F(call, epochs), F(call, name));
BODY(result, F(result, status), F(result, set), F(result, range),
     F(result, epoch), F(result, begin), F(result, end), F(result, used),
     F(result, seed));
BODY(text, F(text, text));

static bool is_number(const field *f) {
    return f->size == sizeof(uint32_t) || f->size == sizeof(uint64_t);
}

// A number of this machine's byte order.
static uint64_t load(const void *from, size_t size) {
    uint64_t wide;
    uint32_t narrow;
    if (size == sizeof wide)
        return *(const uint64_t *)memcpy(&wide, from, sizeof wide);
    return *(const uint32_t *)memcpy(&narrow, from, sizeof narrow);
}

size_t hki_body_put(const hki_body *b, const void *msg, uint8_t *out) {
    size_t at = 0;
    for (size_t i = 0; i < b->n; i++) {
        const field *const f = &b->fields[i];
        const uint8_t *const from = (const uint8_t *)msg + f->offset;
        if (f->offset == NO_MEMBER) {
            put_le(out + at, 0, f->size);
            at += f->size;
        } else if (is_number(f)) {
            put_le(out + at, load(from, f->size), f->size);
            at += f->size;
        } else {
            const size_t n = strnlen((const char *)from, f->size - 1u);
            put_le(out + at, n, 2);
            memcpy(out + at + 2, from, n);
            at += 2 + n;
        }
    }
    HKI_ASSERT(at <= HKI_MAX_MESSAGE);
    return at;
}

static hk_status too_short(const hki_body *b, size_t size, const char *peer) {
    return hki_fail(HK_E_DATA, "%s: the body of %s ends after %zu bytes", peer,
                    b->name, size);
}

static hk_status get_text(const hki_body *b, const field *f,
                          const uint8_t *bytes, size_t size, const char *peer,
                          uint8_t *to, size_t *at) {
    if (size - *at < 2)
        return too_short(b, size, peer);
    const size_t n = (size_t)get_le(bytes + *at, 2);
    if (n > size - *at - 2)
        return too_short(b, size, peer);
    if (n >= f->size || memchr(bytes + *at + 2, 0, n) != NULL)
        return hki_fail(HK_E_DATA,
                        "%s: the body of %s has an invalid string of %zu bytes",
                        peer, b->name, n);
    memcpy(to, bytes + *at + 2, n);
    memset(to + n, 0, f->size - n);
    *at += 2 + n;
    return HK_OK;
}

hk_status hki_body_get(const hki_body *b, const uint8_t *bytes, size_t size,
                       const char *peer, void *msg, size_t *used) {
    size_t at = 0;
    memset(msg, 0, b->struct_size);
    for (size_t i = 0; i < b->n; i++) {
        const field *const f = &b->fields[i];
        uint8_t *const to = (uint8_t *)msg + f->offset;
        if (!is_number(f)) {
            HKI_TRY(get_text(b, f, bytes, size, peer, to, &at));
            continue;
        }
        if (size - at < f->size)
            return too_short(b, size, peer);
        const uint64_t v = get_le(bytes + at, f->size);
        const uint32_t narrow = (uint32_t)v;
        if (f->offset != NO_MEMBER)
            memcpy(to, f->size == sizeof v ? (const void *)&v : &narrow,
                   f->size);
        at += f->size;
    }
    if (used == NULL && at != size)
        return hki_fail(HK_E_DATA,
                        "%s: the body of %s has %zu bytes, expected %zu", peer,
                        b->name, size, at);
    if (used != NULL)
        *used = at;
    return HK_OK;
}

hk_status hki_result_check(const hki_msg_result *r, const char *from) {
    if (r->status <= HK_E_INTERNAL && r->begin >= 0 && r->end >= r->begin &&
        r->epoch >= 0 && r->used >= 0)
        return HK_OK;
    return hki_fail(
        HK_E_DATA,
        "%s: invalid result: status %u, examples %lld to %lld of epoch %lld",
        from, r->status, (long long)r->begin, (long long)r->end,
        (long long)r->epoch);
}

// ---- layouts ----------------------------------------------------------------

uint64_t hki_shares_hash(const hk_share *share, size_t n) {
    uint64_t h = HKI_HASH_INIT;
    for (size_t i = 0; i < n; i++)
        h = hki_hash(h, &(uint8_t){(uint8_t)share[i]}, 1);
    return h;
}

// ---- lists of members -------------------------------------------------------

#define MEMBER_BYTES 16 // u32 id, u32 running, u64 exchange

hk_status hki_members_put(const hki_member_at *members, uint32_t n,
                          uint8_t **out, size_t *size) {
    uint8_t *b;
    HKI_TRY(hki_alloc_array(n, MEMBER_BYTES, &b));
    for (uint32_t i = 0; i < n; i++) {
        put_le(b + i * MEMBER_BYTES, members[i].id, 4);
        put_le(b + i * MEMBER_BYTES + 4, members[i].running, 4);
        put_le(b + i * MEMBER_BYTES + 8, members[i].exchange, 8);
    }
    *out = b;
    *size = (size_t)n * MEMBER_BYTES;
    return HK_OK;
}

hk_status hki_members_get(const uint8_t *bytes, size_t size, const char *peer,
                          hki_member_at **out, uint32_t *n) {
    hki_member_at *m;
    if (size % MEMBER_BYTES != 0 || size / MEMBER_BYTES > HKI_MAX_SEATS + 1)
        return hki_fail(HK_E_DATA, "%s: invalid list of members of %zu bytes",
                        peer, size);
    *n = (uint32_t)(size / MEMBER_BYTES);
    HKI_TRY(hki_alloc_array(*n, sizeof *m, &m));
    for (uint32_t i = 0; i < *n; i++) {
        const uint8_t *const b = bytes + i * MEMBER_BYTES;
        m[i] = (hki_member_at){.id = (uint32_t)get_le(b, 4),
                               .running = (uint32_t)get_le(b + 4, 4),
                               .exchange = get_le(b + 8, 8)};
    }
    *out = m;
    return HK_OK;
}
