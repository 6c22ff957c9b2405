// generator.c - elements made by a user's functions.
#include "data/core/pipeline.h"

typedef struct state {
    void *user_state;
    bool begun; // create was called for this pass
    bool ended;
} state;

static void end_pass(hki_node *n) {
    const hk_generator *const g = n->d->config;
    state *const s = n->state;
    if (s->begun && g->destroy != NULL)
        g->destroy(g->user, s->user_state);
    *s = (state){0};
}

static hk_status start(hki_node *n) {
    end_pass(n);
    return HK_OK;
}

static hk_status begin(hki_node *n) {
    const hk_generator *const g = n->d->config;
    state *const s = n->state;
    if (!s->begun && g->create != NULL)
        HKI_TRY(g->create(g->user, &s->user_state));
    s->begun = true;
    return HK_OK;
}

static hk_status next(hki_node *n, hki_item *out) {
    const hk_generator *const g = n->d->config;
    state *const s = n->state;
    hki_box *box;
    if (s->ended)
        return HK_E_END;
    HKI_TRY(begin(n));
    HKI_TRY(hki_node_bare_box(n, &box));
    hk_builder b = {.op = "generator", .box = box};
    hk_status e = g->next(g->user, s->user_state, &b);
    if (e == HK_OK)
        e = hki_builder_finish(&b, NULL);
    if (e != HK_OK) {
        hki_box_release(box);
        s->ended = e == HK_E_END;
        return e;
    }
    out->box = box;
    return HK_OK;
}

// ---- position --------------------------------------------------------------

static void save(hki_node *n, hki_saver *w) {
    const hk_generator *const g = n->d->config;
    const state *const s = n->state;
    void *bytes = NULL;
    size_t size = 0;
    hki_save_u64(w, s->begun);
    hki_save_u64(w, s->ended);
    if (g->save == NULL || !s->begun || s->ended)
        return;
    hk_status e = g->save(g->user, s->user_state, NULL, 0, &size);
    if (e == HK_OK)
        e = hki_alloc_array(size, 1, &bytes);
    if (e == HK_OK)
        e = g->save(g->user, s->user_state, bytes, size, &size);
    if (e == HK_OK)
        hki_save_bytes(w, bytes, size);
    else if (w->status == HK_OK)
        w->status = e;
    hki_free(bytes);
}

// The elements before the position are made once more.
static hk_status make_again(hki_node *n) {
    const int64_t count = n->count;
    for (n->count = 0; n->count < count;) {
        hki_item item;
        HKI_TRY(hki_run_check(n->run));
        const hk_status e = hki_node_next(n, &item);
        if (e == HK_E_END)
            break;
        HKI_TRY(e);
        hki_box_release(item.box);
    }
    n->count = count;
    return HK_OK;
}

static hk_status restore(hki_node *n, hki_restorer *r) {
    const hk_generator *const g = n->d->config;
    state *const s = n->state;
    const bool begun = hki_restore_i64(r, "begun", 0, 1) == 1;
    const bool ended = hki_restore_i64(r, "ended", 0, 1) == 1;
    HKI_TRY(r->status);
    s->ended = ended;
    if (!begun || ended)
        return HK_OK;
    if (g->restore == NULL)
        return make_again(n);
    size_t size;
    const void *const bytes = hki_restore_bytes(r, &size);
    HKI_TRY(r->status);
    HKI_TRY(begin(n));
    return g->restore(g->user, s->user_state, bytes, size);
}

static const hki_node_ops ops = {
    .name = "generator",
    .state_size = sizeof(state),
    .close = end_pass,
    .start = start,
    .next = next,
    .save = save,
    .restore = restore,
};

hk_dataset *hk_data_generator(const hk_generator *gen, const hk_value *spec,
                              size_t n) {
    if (gen == NULL || gen->next == NULL || spec == NULL ||
        (gen->save == NULL) != (gen->restore == NULL))
        return hki_dataset_fail(
            NULL, 0,
            hki_fail(HK_E_INVALID_ARG, "generator: next and a spec are needed, "
                                       "and save needs restore"));
    return hki_dataset_make(&(hki_dataset_desc){
        .ops = &ops,
        .config = (void *)(uintptr_t)gen, // copied
        .config_size = sizeof *gen,
        .spec = spec,
        .n_spec = n,
        .count = -1,
    });
}
