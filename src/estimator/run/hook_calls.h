// hook_calls.h - the hooks of a run, and calling them in order.
#ifndef HKI_ESTIMATOR_HOOK_CALLS_H
#define HKI_ESTIMATOR_HOOK_CALLS_H
#include <stdatomic.h>
#include "estimator/model/list.h"
#include "hooke/hooks.h"

struct hk_hook {
    atomic_uint refs;
    hk_hook_calls calls;
    char *name;
    size_t state_bytes; // of a copy of the user data; 0: calls.create
    bool is_saver;
    bool judges; // by results of evaluations
};

// A built-in hook: its user data is allocated memory, freed with the hook (by
// hki_free unless the calls say otherwise) and when this fails. state_bytes
// above 0: the state of a run is a copy of so many bytes of it.
hk_status hki_hook_make(hk_hook_calls calls, size_t state_bytes, hk_hook **out);

typedef struct hki_hook_slot {
    hk_hook *hook;
    void *state;
    bool created;
} hki_hook_slot;

// Hooks of one run, in order.
typedef struct hki_hooks {
    hki_hook_slot *data;
    size_t n, capacity;
} hki_hooks;

typedef enum hki_hook_event {
    HKI_HOOK_BEGIN,
    HKI_HOOK_SESSION,
    HKI_HOOK_BEFORE,
    HKI_HOOK_AFTER,
    HKI_HOOK_END
} hki_hook_event;

hk_status hki_hooks_add(hki_hooks *h, hk_hook *hook); // retains
hk_status hki_hooks_open(hki_hooks *h, hk_run *run);  // create
// Calls an entry of every hook, or of those for all workers.
hk_status hki_hooks_call(const hki_hooks *h, hki_hook_event event, hk_run *run);
bool hki_hooks_want(const hki_hooks *h, const hk_run *run);
void hki_hooks_deinit(hki_hooks *h); // destroys states, releases

#endif // HKI_ESTIMATOR_HOOK_CALLS_H
