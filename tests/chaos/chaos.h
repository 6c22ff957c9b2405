// chaos/chaos.h - what the driver and its children share: a file in memory
// that survives every kill.
//
// Worker w has a block of the model that nobody else changes: each of its
// steps adds 1 to every element there. So what the center holds of a block is
// a count of steps, and says by itself whether an exchange was lost or applied
// twice: between what was acknowledged (`acked`) and what was ever sent
// (`sent`). A last part, `theta`, is learned by all of them.
#ifndef CHAOS_H
#define CHAOS_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MAX_WORKERS = 64,
    MAX_CENTERS = 8,
    BLOCK = 2048, // floats of a worker
    THETA = 64,   // floats that all learn
    CHUNK_KIB = 4,
    PERIOD = 10, // steps between exchanges
    STEP_US = 4000,
    LEASE_MS = 4000,
    RETRY_MS = 1000,
    // The longest silence of a process that is neither stopped nor cut off:
    // one exchange that waits for a lease, a retry, and a loaded machine.
    STALL_MS = 30000,
    CONNECT_MS = 60000
};

typedef struct worker_slot {
    _Atomic int64_t alive_ns; // last sign of life
    _Atomic uint64_t lives, steps, exchanges, missed, reconnects;
    _Atomic uint32_t broken; // 1: `fault` tells
    char fault[300];
    float acked[BLOCK]; // the center has at least this
    float sent[BLOCK];  // and at most that
} worker_slot;

typedef struct center_slot {
    _Atomic int64_t alive_ns;
    _Atomic uint64_t lives, repeated, recovered, chunks;
} center_slot;

typedef struct shared {
    uint32_t workers, centers;
    uint32_t elastic; // 1: elastic averaging; the blocks say nothing then
    uint32_t tls;
    double seconds;
    uint64_t seed;
    char folder[200];
    uint16_t center_port[MAX_CENTERS];
    uint16_t link_port[MAX_WORKERS][MAX_CENTERS]; // as worker w sees them
    worker_slot worker[MAX_WORKERS];
    center_slot center[MAX_CENTERS];
} shared;

// Maps the file; NULL: not there.
shared *shared_open(const char *path, bool create);
int64_t chaos_now(void);

// Children: exit codes. path: of the shared file.
int center_main(const char *path, uint32_t index);
int worker_main(const char *path, uint32_t index);

// The model of the test, and what theta should become.
struct hk_layout;
struct hk_layout *chaos_layout(uint32_t workers);
size_t chaos_theta(uint32_t workers); // where it begins
float chaos_target(uint64_t seed, size_t i);
double chaos_loss(uint64_t seed, const float *theta); // |theta - target|^2

// The key of a run with TLS.
struct hk_key;
void chaos_key(uint64_t seed, struct hk_key *out);

#endif // CHAOS_H
