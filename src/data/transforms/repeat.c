// repeat.c - the input again and again.
//
// A finite repeat starts its input once more after the last epoch, as
// TensorFlow does; that shows where a reshuffling input is used again above.
#include "data/core/pipeline.h"

typedef struct state {
    int64_t done; // epochs at their end
    bool ended;
    bool pending; // the next epoch is to be started (without an end only)
} state;

static int64_t times(const hki_node *n) {
    return *(const int64_t *)n->d->config;
}

static hk_status start(hki_node *n) {
    state *const s = n->state;
    *s = (state){.ended = times(n) == 0};
    return s->ended ? HK_OK : hki_node_start(n->inputs[0]);
}

// The end of an epoch: what comes next.
static hk_status turn(hki_node *n, bool empty) {
    state *const s = n->state;
    s->done++;
    if (times(n) < 0) {
        s->ended = empty; // forever over nothing ends
        s->pending = !empty;
        return HK_OK;
    }
    s->ended = s->done >= times(n);
    return hki_node_start(n->inputs[0]);
}

static hk_status pull(hki_node *n, hki_item *items, int64_t want,
                      int64_t *got) {
    state *const s = n->state;
    hki_node *const input = n->inputs[0];
    while (!s->ended) {
        HKI_TRY(hki_run_check(n->run));
        if (s->pending)
            HKI_TRY(hki_node_start(input));
        s->pending = false;
        const hk_status e = hki_node_pull(input, items, want, got);
        if (e != HK_E_END)
            return e;
        HKI_TRY(turn(n, input->count == 0));
    }
    return HK_E_END;
}

static void save(hki_node *n, hki_saver *w) {
    const state *const s = n->state;
    hki_save_i64(w, s->done);
    hki_save_u64(w, s->ended);
    hki_save_u64(w, s->pending);
}

static hk_status restore(hki_node *n, hki_restorer *r) {
    state *const s = n->state;
    s->done = hki_restore_i64(r, "the number of repetitions", 0, INT64_MAX - 1);
    s->ended = hki_restore_i64(r, "ended", 0, 1) == 1;
    s->pending = hki_restore_i64(r, "pending", 0, 1) == 1;
    if (times(n) >= 0) // may be another number: hki_data_epochs
        s->ended = s->done >= times(n);
    return r->status;
}

static const hki_node_ops ops = {
    .name = "repeat",
    .state_size = sizeof(state),
    .start = start,
    .pull = pull,
    .save = save,
    .restore = restore,
};

static int64_t count_of(const hk_dataset *d, int64_t count) {
    const int64_t n = hk_dataset_count(d);
    int64_t product;
    if (count == 0 || n == 0)
        return 0;
    if (count < 0)
        return n > 0 ? -2 : n;
    if (n < 0)
        return n;
    return __builtin_mul_overflow(n, count, &product) ? -2 : product;
}

static hk_dataset *make(hk_dataset *d, int64_t count, uint32_t flags) {
    hk_status s = HK_OK;
    if (count < -1)
        s = hki_fail(HK_E_INVALID_ARG, "repeat: invalid count %lld",
                     (long long)count);
    const hki_dataset_desc desc = {
        .ops = &ops,
        .config = &count,
        .config_size = sizeof count,
        .inputs = &d,
        .n_inputs = 1,
        .count = count_of(d, count),
        .key = hki_key("repeat", 1, &count),
        .flags = HKI_DATA_PASSES | flags,
    };
    return hki_dataset_finish(&desc, s);
}

hk_dataset *hk_data_repeat(hk_dataset *d, int64_t count) {
    return make(d, count, 0);
}

hk_dataset *hki_data_epochs(hk_dataset *d, int64_t count) {
    return make(d, count, HKI_DATA_EPOCHS);
}
