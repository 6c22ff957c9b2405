// cluster/wire/frame.h - frames over a connection.
//
// A framer is driven by one thread. The non-blocking half moves what the
// connection takes; the blocking half waits, always with a deadline.
#ifndef HKI_FRAME_H
#define HKI_FRAME_H
#include "cluster/wire/frame_table.h"
#include "hooke/cluster.h"
#include "transport/transport.h"

typedef struct hki_framer {
    hki_conn *conn;       // owned
    const hki_wake *wake; // ends every wait; NULL: none
    uint32_t in_number, out_number;
    hki_dialogue talk;
    // Incoming: head first, then the body as the caller takes it. What comes
    // after a head is read with it, so that short frames cost one call; not
    // while files may be handed over, which belong to a byte of the stream.
    uint8_t ahead[192];
    size_t ahead_first, ahead_last;
    bool reads_ahead;
    hki_frame in;
    bool has_in;
    bool answered; // the last failure was an ERROR frame: the peer is fine
    hki_why why;   // of that
    bool patient;  // head and body may wait for a moment inside
    size_t body_left;
    // Outgoing: short frames that wait for company, then a head and up to two
    // pieces of the caller's memory.
    uint8_t queue[HKI_HEAD + HKI_MAX_MESSAGE];
    size_t queued;
    uint8_t out_head[HKI_HEAD];
    struct iovec out[4];
    int out_first, out_count;
} hki_framer;

// A network with the cluster's key, or without one (key.c).
hk_status hki_key_net(const char *name, const hk_key *key, bool insecure,
                      const hki_tap *tap, hki_net **out);

// Milliseconds up to a deadline, as bodies carry them: 0 to a day.
uint32_t hki_left_ms(int64_t deadline_ns);
// The answer to a wait may come a little after its end.
int64_t hki_with_grace(int64_t deadline_ns);

void hki_framer_init(hki_framer *f, hki_conn *conn, const hki_wake *wake);
void hki_framer_deinit(hki_framer *f); // closes; zeroed is fine
// Both prefaces and, where a side asks for it, the proof of the same user.
hk_status hki_framer_greet(hki_framer *f, int64_t deadline_ns);

// ---- non-blocking -----------------------------------------------------------

// Starts a frame; nothing else is going out. The pieces stay as they are
// until hki_frame_push says that it is over.
void hki_frame_start(hki_framer *f, const hki_frame *frame, const void *body,
                     size_t size, const void *more, size_t more_size);
// A short frame that goes out together with the next one. One at a time.
void hki_frame_queue(hki_framer *f, const hki_frame *frame, const void *body,
                     size_t size);
static inline bool hki_frame_idle(const hki_framer *f) {
    return f->out_first == f->out_count;
}
// Part of a head has come.
static inline bool hki_frame_begun(const hki_framer *f) {
    return f->ahead_last > f->ahead_first;
}
// Nothing is on its way out.
bool hki_frame_quiet(const hki_framer *f);
// Sends on, also what was queued; moved: bytes went out (NULL allowed).
hk_status hki_frame_push(hki_framer *f, bool *moved);
// The head of the next frame; NULL: not yet. It stays until its body is taken.
hk_status hki_frame_head(hki_framer *f, const hki_frame **out);
// Up to size bytes of the body.
hk_status hki_frame_body(hki_framer *f, void *bytes, size_t size, size_t *done);
// More of a body of size bytes, *have of which are at `bytes` already; moved:
// some came.
hk_status hki_frame_more(hki_framer *f, void *bytes, size_t size, size_t *have,
                         bool *moved);

// ---- blocking ---------------------------------------------------------------

// what: names the wait.
hk_status hki_frame_send(hki_framer *f, const hki_frame *frame,
                         const void *body, size_t size, int64_t deadline_ns,
                         const char *what);
// A head. An ERROR frame becomes its status and text.
hk_status hki_frame_wait(hki_framer *f, int64_t deadline_ns, const char *what,
                         hki_frame *out);
// The text of an ERROR frame, whose head is there, as this thread's failure.
hk_status hki_frame_raise(hki_framer *f, const hki_frame *head,
                          int64_t deadline_ns);
// The whole body into `size` bytes, which is exactly its length.
hk_status hki_frame_take(hki_framer *f, void *bytes, size_t size,
                         int64_t deadline_ns, const char *what);
// A frame of this type with a body of at most capacity bytes.
hk_status hki_frame_expect(hki_framer *f, hki_type type, void *body,
                           size_t capacity, int64_t deadline_ns,
                           const char *what, hki_frame *out);
// A message as in wire.h, sent and received.
hk_status hki_msg_send(hki_framer *f, hki_type type, const hki_body *b,
                       const void *msg, int64_t deadline_ns, const char *what);
hk_status hki_msg_recv(hki_framer *f, hki_type type, const hki_body *b,
                       void *msg, int64_t deadline_ns, const char *what);
// Body of a frame whose head is there.
hk_status hki_msg_body(hki_framer *f, const hki_body *b, void *msg,
                       int64_t deadline_ns, const char *what);

#endif // HKI_FRAME_H
