// optim/ema.h - the handle of a moving average, shared by the files that make
// it: ema.c (create, update, read) and ema_state.c (name maps, bytes).
#ifndef HKI_EMA_H
#define HKI_EMA_H
#include "optim/optim.h"

// A tensor that is no variable.
typedef struct hki_tracked {
    const char *name;        // as given
    const char *shadow_name; // and its two companions
    const char *biased_name, *step_name;
    hk_shape shape;
    int64_t count;
    float *shadow, *biased; // one block: shadow first
    float local_step;
} hki_tracked;

struct hk_ema {
    hk_layout *layout;
    hki_place home;      // in host memory
    const hki_place *at; // where the shadow is
    hk_average_method method;
    bool zero_debias;
    bool sequential; // hk_optimizer_apply averages x after its step
    hki_arena arena; // names
    const char *name, *scope;
    double decay, last; // last: the d of the last update
    int64_t num_updates, updates;
    size_t n_entries;
    const char **names;    // per entry: shadow name
    unsigned char *policy; // per entry; SKIP where it is no float32
    float *factors;        // per entry, of one update
    hki_vector shadow;
    hki_chunk *chunks; // of the flat vector
    size_t n_chunks;
    hki_tracked *tracked;
    size_t n_tracked;
};

// NULL when nothing of this name is tracked.
hki_tracked *hki_ema_find_tracked(const hk_ema *e, const char *name);

#endif // HKI_EMA_H
