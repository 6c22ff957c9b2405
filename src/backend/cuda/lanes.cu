// lanes.cu - which calls of a recorded run go beside each other.
//
// A call comes after the calls that wrote what it reads, and after those that
// read or wrote the bytes it writes. What no such path connects runs at the
// same time: the gradients of a layer's weights beside those of its input, one
// table's rows beside another's.
#include "backend/cuda/cuda.h"

// Bytes that a call touches.
typedef struct span {
    const hki_buffer *buffer;
    size_t begin, end;
    bool written;
} span;

#define MAX_SPANS (2 * HKI_MAX_ARGS + 1)

typedef struct touched {
    span of[MAX_SPANS];
    int n;
} touched;

static void touch(touched *t, hki_loc at, size_t bytes, bool written) {
    if (at.buffer != NULL && bytes > 0)
        t->of[t->n++] = span{at.buffer, at.offset, at.offset + bytes, written};
}

static size_t bytes_of(const hki_tensor_desc *d) {
    return (size_t)hki_elements(d) * hk_dtype_size(d->dtype);
}

static void look_at(const hki_kernel_call *c, touched *t) {
    const hki_kernel_desc *const d = &c->kernel->desc;
    t->n = 0;
    for (int i = 0; i < d->n_in; i++)
        touch(t, c->args[i], bytes_of(&d->in[i]), false);
    for (int i = 0; i < d->n_out; i++)
        touch(t, c->args[d->n_in + i], bytes_of(&d->out[i]), true);
    touch(t, c->scratch, c->kernel->scratch_bytes, true);
}

// In one buffer, and somebody writes.
static bool meet(const touched *a, const touched *b) {
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < b->n; k++) {
            const span *const x = &a->of[i], *const y = &b->of[k];
            if (x->buffer == y->buffer && (x->written || y->written) &&
                x->begin < y->end && y->begin < x->end)
                return true;
        }
    return false;
}

// What is known of the lanes so far.
typedef struct lanes {
    uint32_t count[HKI_GRAPH_LANES]; // calls
    size_t last[HKI_GRAPH_LANES];    // the newest one, from 1; 0: none
} lanes;

// The lane whose newest call this one waits for, the newest of all; else the
// one that has had no call for the longest time.
static int choose_lane(const lanes *l, const hki_cuda_turn *t) {
    int oldest = 0, found = -1;
    for (int i = 0; i < HKI_GRAPH_LANES; i++) {
        if (l->count[i] > 0 && t->after[i] == l->count[i] &&
            (found < 0 || l->last[i] > l->last[found]))
            found = i;
        if (l->last[i] < l->last[oldest])
            oldest = i;
    }
    return found >= 0 ? found : oldest;
}

static void take_turn(const touched *all, size_t i, const uint32_t *place,
                      lanes *l, hki_cuda_turn *turns) {
    hki_cuda_turn *const t = &turns[i];
    *t = hki_cuda_turn{};
    for (size_t k = 0; k < i; k++) {
        const int lane = turns[k].lane;
        if (place[k] >= t->after[lane] && meet(&all[k], &all[i]))
            t->after[lane] = place[k] + 1;
    }
    t->lane = choose_lane(l, t);
}

hk_status hki_cuda_take_turns(const hki_kernel_call *calls, size_t n,
                              hki_cuda_turn *out) {
    touched *all;
    uint32_t *place = NULL; // of a call in its lane
    lanes l = {};
    HKI_TRY(hki_alloc_array(n, sizeof *all, &all));
    const hk_status s = hki_alloc_array(n, sizeof *place, &place);
    for (size_t i = 0; s == HK_OK && i < n; i++) {
        look_at(&calls[i], &all[i]);
        take_turn(all, i, place, &l, out);
        place[i] = l.count[out[i].lane]++;
        l.last[out[i].lane] = i + 1;
    }
    hki_free(place);
    hki_free(all);
    return s;
}
