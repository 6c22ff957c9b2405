// dataset.c - datasets: immutable, counted nodes that know their inputs.
//
// A dataset with an error keeps status and message; whatever is built on it
// inherits them, so that a chain is checked once.
#include "data/core/pipeline.h"

// ---- life ------------------------------------------------------------------

hk_dataset *hk_dataset_retain(hk_dataset *d) {
    if (d != NULL)
        atomic_fetch_add_explicit(&d->refs, 1, memory_order_relaxed);
    return d;
}

static void free_config(const hki_node_ops *ops, const hki_fn_ops *fn,
                        void *config) {
    void (*destroy)(void *) = hki_free;
    if (fn != NULL)
        destroy = fn->destroy;
    else if (ops != NULL && ops->destroy != NULL)
        destroy = ops->destroy;
    if (config != NULL && destroy != NULL)
        destroy(config);
}

// Long chains (a concatenation of thousands) are taken apart link by link, not
// by recursion: the first input is followed in the loop.
void hk_dataset_release(hk_dataset *d) {
    while (d != NULL &&
           atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel) == 1) {
        free_config(d->ops, d->fn, d->config);
        hk_dataset *const first = d->n_inputs > 0 ? d->inputs[0] : NULL;
        for (size_t i = 1; i < d->n_inputs; i++)
            hk_dataset_release(d->inputs[i]);
        hki_free(d->inputs);
        hki_free(d->message);
        hki_arena_deinit(&d->arena);
        hki_free(d);
        d = first;
    }
}

hk_status hk_dataset_status(const hk_dataset *d) {
    if (d == NULL)
        return hki_fail(HK_E_NO_MEMORY, "dataset: out of memory");
    if (d->status == HK_OK)
        return HK_OK;
    return hki_fail(d->status, "%s",
                    d->message != NULL ? d->message : "dataset: out of memory");
}

const hk_element *hk_dataset_spec(const hk_dataset *d) {
    static const hk_element nothing = {0};
    return hki_dataset_good(d) ? &d->spec : &nothing;
}

int64_t hk_dataset_count(const hk_dataset *d) {
    return hki_dataset_good(d) ? d->count : -1;
}

// ---- making ----------------------------------------------------------------

static void release_all(hk_dataset *const *inputs, size_t n) {
    for (size_t i = 0; i < n; i++)
        hk_dataset_release(inputs[i]);
}

hk_status hki_desc_config(hki_dataset_desc *desc, size_t size, void *out) {
    HKI_TRY(hki_zalloc_array(1, size, &desc->config));
    memcpy(out, &desc->config, sizeof desc->config);
    return HK_OK;
}

hk_status hki_desc_spec(hki_dataset_desc *desc, size_t n, hk_value **out) {
    HKI_TRY(hki_zalloc_array(n, sizeof **out, &desc->own_spec));
    desc->spec = *out = desc->own_spec;
    desc->n_spec = n;
    return HK_OK;
}

hk_dataset *hki_dataset_fail(hk_dataset *const *inputs, size_t n_inputs,
                             hk_status s) {
    char *message = NULL;
    for (size_t i = 0; i < n_inputs; i++)
        if (!hki_dataset_good(inputs[i])) {
            s = hk_dataset_status(inputs[i]);
            break;
        }
    hk_dataset *d = NULL;
    // The message first: it is gone when an allocation below fails.
    if (hki_strdup(hk_last_error(), &message) == HK_OK &&
        hki_zalloc_array(1, sizeof *d, &d) == HK_OK) {
        atomic_init(&d->refs, 1);
        d->status = s;
        d->message = message;
        message = NULL;
    }
    hki_free(message);
    release_all(inputs, n_inputs);
    return d;
}

static hk_status check_desc(const hki_dataset_desc *desc) {
    for (size_t i = 0; i < desc->n_inputs; i++)
        HKI_TRY(hk_dataset_status(desc->inputs[i]));
    if (desc->spec != NULL)
        return hki_spec_check(desc->ops->name, desc->spec, desc->n_spec);
    return HK_OK;
}

static hk_status fill_dataset(hk_dataset *d, const hki_dataset_desc *desc) {
    const bool own = desc->spec != NULL;
    const hk_element *const from = own ? NULL : &desc->inputs[0]->spec;
    HKI_TRY(hki_spec_copy(&d->arena, own ? desc->spec : from->values,
                          own ? desc->n_spec : from->count, &d->spec));
    HKI_TRY(hki_alloc_array(desc->n_inputs, sizeof *d->inputs, &d->inputs));
    uint64_t h =
        hki_hash(HKI_HASH_INIT, desc->ops->name, strlen(desc->ops->name) + 1);
    if (desc->fn != NULL)
        h = hki_hash(h, desc->fn->name, strlen(desc->fn->name) + 1);
    const uint64_t key = (desc->flags & HKI_DATA_EPOCHS) ? 0 : desc->key;
    uint64_t p = hki_spec_hash(hki_hash(h, &key, sizeof key), &d->spec);
    h = hki_spec_hash(hki_hash(h, &desc->key, sizeof desc->key), &d->spec);
    for (size_t i = 0; i < desc->n_inputs; i++) {
        h = hki_hash(h, &desc->inputs[i]->fingerprint, sizeof h);
        p = hki_hash(p, &desc->inputs[i]->position, sizeof p);
    }
    d->fingerprint = h;
    d->position = p;
    return HK_OK;
}

static hk_status fn_pull(hki_node *n, hki_item *items, int64_t want,
                         int64_t *got) {
    return hki_node_pull(n->inputs[0], items, want, got);
}

static const hki_node_ops fn_node_ops = {
    .name = "fn",
    .pull = fn_pull,
};

// Completes what a function leaves out.
static hki_dataset_desc of_function(const hki_dataset_desc *desc) {
    hki_dataset_desc d = *desc;
    const int64_t n = hk_dataset_count(desc->inputs[0]);
    d.ops = &fn_node_ops;
    d.count = (desc->flags & HKI_DATA_MAY_SKIP) && n > 0 ? -1 : n;
    d.flags |= HKI_DATA_FN;
    return d;
}

static hk_dataset *make(const hki_dataset_desc *desc) {
    hk_dataset *d = NULL;
    void *config = desc->config_size == 0 ? desc->config : NULL;
    hk_status s = check_desc(desc);
    if (s == HK_OK && desc->config_size > 0)
        s = hki_alloc_array(1, desc->config_size, &config);
    if (s == HK_OK && desc->config_size > 0)
        memcpy(config, desc->config, desc->config_size);
    if (s == HK_OK)
        s = hki_zalloc_array(1, sizeof *d, &d);
    if (s == HK_OK) {
        atomic_init(&d->refs, 1);
        s = fill_dataset(d, desc);
    }
    if (s != HK_OK) {
        hk_dataset_release(d); // owns nothing of desc yet
        free_config(desc->ops, desc->fn, config);
        return hki_dataset_fail(desc->inputs, desc->n_inputs, s);
    }
    d->ops = desc->ops;
    d->config = config;
    d->fn = desc->fn;
    d->count = desc->count;
    d->flags = desc->flags;
    d->parallel = desc->parallel;
    d->n_inputs = desc->n_inputs;
    if (desc->n_inputs > 0)
        memcpy(d->inputs, desc->inputs, desc->n_inputs * sizeof *d->inputs);
    return d;
}

hk_dataset *hki_dataset_make(const hki_dataset_desc *desc) {
    const hki_dataset_desc whole = desc->fn != NULL ? of_function(desc) : *desc;
    hk_dataset *const d = make(&whole);
    hki_free(desc->own_spec);
    return d;
}

hk_dataset *hki_dataset_finish(const hki_dataset_desc *desc, hk_status s) {
    if (s == HK_OK)
        return hki_dataset_make(desc);
    hk_dataset *const d = hki_dataset_fail(desc->inputs, desc->n_inputs, s);
    if (desc->config_size == 0)
        free_config(desc->ops, desc->fn, desc->config);
    hki_free(desc->own_spec);
    return d;
}

uint64_t hki_key(const char *op, size_t n, const int64_t *numbers) {
    const uint64_t h = hki_hash(HKI_HASH_INIT, op, strlen(op) + 1);
    return hki_hash(h, numbers, n * sizeof *numbers);
}

#define MAX_PARALLEL 4096

hk_status hki_parallel_check(const char *op, int32_t parallel) {
    if (parallel == HK_DATA_AUTO || (parallel >= 1 && parallel <= MAX_PARALLEL))
        return HK_OK;
    return hki_fail(HK_E_INVALID_ARG,
                    "%s: parallel is %d; it has to be in 1..%d", op, parallel,
                    MAX_PARALLEL);
}

// ---- questions about a chain -----------------------------------------------

const hk_dataset *hki_dataset_base(const hk_dataset *d) {
    while (d->flags & (HKI_DATA_PASSES | HKI_DATA_FN))
        d = d->inputs[0];
    return d;
}

bool hki_is_table(const hk_dataset *d) {
    while (d->flags & (HKI_DATA_PASSES | HKI_DATA_FN)) {
        if ((d->flags & HKI_DATA_PASSES) && d->ops->table_row == NULL)
            return false;
        d = d->inputs[0];
    }
    return (d->flags & HKI_DATA_TABLE) != 0;
}

int64_t hki_table_row(const hk_dataset *d, int64_t i) {
    for (; d->flags & (HKI_DATA_PASSES | HKI_DATA_FN); d = d->inputs[0])
        if (d->flags & HKI_DATA_PASSES)
            i = d->ops->table_row(d, i);
    return i;
}

bool hki_has_fn(const hk_dataset *d) {
    for (; d->flags & (HKI_DATA_PASSES | HKI_DATA_FN); d = d->inputs[0])
        if (d->flags & HKI_DATA_FN)
            return true;
    return false;
}

bool hki_may_skip(const hk_dataset *d) {
    for (; d->flags & (HKI_DATA_PASSES | HKI_DATA_FN); d = d->inputs[0])
        if (d->flags & HKI_DATA_MAY_SKIP)
            return true;
    return false;
}

bool hki_only_shows(const hk_dataset *d) {
    for (; d->flags & (HKI_DATA_PASSES | HKI_DATA_FN); d = d->inputs[0])
        if ((d->flags & HKI_DATA_FN) && d->fn->show == NULL)
            return false;
    return true;
}

uint32_t hki_fn_parallel(const hk_dataset *d, hki_data_run *run) {
    uint32_t n = 1;
    for (; d->flags & (HKI_DATA_PASSES | HKI_DATA_FN); d = d->inputs[0])
        if (d->flags & HKI_DATA_FN) {
            const uint32_t want = d->parallel == HK_DATA_AUTO
                                      ? hki_run_threads(run)
                                      : (uint32_t)HKI_MAX(d->parallel, 1);
            n = HKI_MAX(n, want);
        }
    return HKI_MIN(n, hki_run_threads(run));
}
