// filter.c - the elements that a user's function keeps.
#include "data/core/pipeline.h"

typedef struct config {
    hk_filter_fn f;
    void *user;
} config;

static hk_status open_node(hki_node *n) {
    hki_loader *l;
    HKI_TRY(hki_loader_open(n->inputs[0]->d, n->run, &l));
    n->state = l;
    return HK_OK;
}

static void close_node(hki_node *n) {
    hki_loader_close(n->state);
}

static hk_status ask(hki_node *n, const hki_item *item, int *keep) {
    const config *const c = n->d->config;
    const hk_element *e;
    bool skip;
    HKI_TRY(hki_loader_view(n->state, item, &e, &skip));
    if (skip)
        return HK_OK;
    const hk_status s = c->f(c->user, e, keep);
    if (s == HK_E_END)
        return hki_fail(
            HK_E_STATE,
            "filter: the function returned HK_E_END, which it may not");
    return s;
}

static hk_status next(hki_node *n, hki_item *out) {
    hki_node *const input = n->inputs[0];
    int keep = 0;
    while (!keep) {
        HKI_TRY(hki_run_check(n->run));
        HKI_TRY(hki_node_next(input, out));
        const hk_status s = ask(n, out, &keep);
        if (s != HK_OK || !keep)
            hki_item_free(input, out);
        HKI_TRY(s);
    }
    return HK_OK;
}

static const hki_node_ops ops = {
    .name = "filter",
    .open = open_node,
    .close = close_node,
    .next = next,
};

hk_dataset *hk_data_filter(hk_dataset *d, hk_filter_fn f, void *user) {
    if (f == NULL)
        return hki_dataset_fail(
            &d, 1, hki_fail(HK_E_INVALID_ARG, "filter: f is NULL"));
    if (hki_dataset_good(d) && !hki_only_shows(d))
        d = hki_data_made(d); // they run once, not here and above
    return hki_dataset_make(&(hki_dataset_desc){
        .ops = &ops,
        .config = &(config){.f = f, .user = user},
        .config_size = sizeof(config),
        .inputs = &d,
        .n_inputs = 1,
        .count = hk_dataset_count(d) == 0 ? 0 : -1,
        .flags = HKI_DATA_PASSES | HKI_DATA_EACH,
    });
}
