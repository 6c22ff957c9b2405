// slicing.c - take, skip and shard: some of the elements, by their position.
//
// Under a lease the source itself gives no others than those that take and skip
// would (core/epoch_part.c).
#include "data/core/pipeline.h"

typedef struct config {
    int64_t n;
    int64_t index; // shard
} config;

static const config *config_of(const hk_dataset *d) {
    return d->config;
}

// Gives n elements of the input to nobody.
static hk_status pass_over(hki_node *input, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        hki_item item;
        HKI_TRY(hki_run_check(input->run));
        HKI_TRY(hki_node_next(input, &item));
        hki_item_free(input, &item);
    }
    return HK_OK;
}

// ---- take ------------------------------------------------------------------

static hk_status take_start(hki_node *n) {
    return config_of(n->d)->n == 0 ? HK_OK : hki_node_start(n->inputs[0]);
}

static hk_status take_next(hki_node *n, hki_item *out) {
    const int64_t limit = config_of(n->d)->n;
    if (limit >= 0 && n->count >= limit && !n->is_through)
        return HK_E_END;
    return hki_node_next(n->inputs[0], out);
}

static int64_t take_row(const hk_dataset *d, int64_t i) {
    (void)d;
    return i;
}

static void take_window(const hk_dataset *d, int64_t *begin, int64_t *end) {
    const int64_t n = config_of(d)->n;
    if (n >= 0)
        *end = HKI_MIN(*end, n);
    *begin = HKI_MIN(*begin, *end);
}

static const hki_node_ops take_ops = {
    .name = "take",
    .start = take_start,
    .next = take_next,
    .table_row = take_row,
    .window = take_window,
};

// ---- skip ------------------------------------------------------------------

static hk_status skip_next(hki_node *n, hki_item *out) {
    const int64_t skip = config_of(n->d)->n;
    if (skip < 0)
        return HK_E_END;
    if (n->inputs[0]->count < skip && !n->is_through)
        HKI_TRY(pass_over(n->inputs[0], skip - n->inputs[0]->count));
    return hki_node_next(n->inputs[0], out);
}

static int64_t skip_row(const hk_dataset *d, int64_t i) {
    return i + config_of(d)->n;
}

// What is behind the last number that there can be stays there.
static int64_t move_on(int64_t at, int64_t by) {
    return at > INT64_MAX - by ? INT64_MAX : at + by;
}

static void skip_window(const hk_dataset *d, int64_t *begin, int64_t *end) {
    const int64_t n = config_of(d)->n;
    *begin = n < 0 ? INT64_MAX : move_on(*begin, n);
    *end = n < 0 ? INT64_MAX : move_on(*end, n);
}

static const hki_node_ops skip_ops = {
    .name = "skip",
    .next = skip_next,
    .table_row = skip_row,
    .window = skip_window,
};

// ---- shard -----------------------------------------------------------------

static hk_status shard_next(hki_node *n, hki_item *out) {
    const config *const c = config_of(n->d);
    hki_node *const input = n->inputs[0];
    // The element whose number is index modulo n.
    const int64_t ahead = (c->index - input->count % c->n + c->n) % c->n;
    HKI_TRY(pass_over(input, ahead));
    return hki_node_next(input, out);
}

static int64_t shard_row(const hk_dataset *d, int64_t i) {
    return i * config_of(d)->n + config_of(d)->index;
}

static const hki_node_ops shard_ops = {
    .name = "shard",
    .next = shard_next,
    .table_row = shard_row,
};

// ---- making ----------------------------------------------------------------

// s: what is wrong with the call, or HK_OK.
static hk_dataset *make(hk_dataset *d, const hki_node_ops *ops, config c,
                        int64_t count, hk_status s) {
    d = hki_data_solid(d);
    const hki_dataset_desc desc = {
        .ops = ops,
        .config = &c,
        .config_size = sizeof c,
        .inputs = &d,
        .n_inputs = 1,
        .count = count,
        .key = hki_key(ops->name, 2, (int64_t[]){c.n, c.index}),
        .flags = HKI_DATA_PASSES,
    };
    return hki_dataset_finish(&desc, s);
}

static hk_status check(const char *op, int64_t n) {
    if (n < -1)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: invalid number of elements, %lld", op,
                        (long long)n);
    return HK_OK;
}

hk_dataset *hk_data_take(hk_dataset *d, int64_t n) {
    int64_t count = hk_dataset_count(d);
    if (n == 0 || (n > 0 && (count == -2 || count > n)))
        count = n;
    return make(d, &take_ops, (config){.n = n}, count, check("take", n));
}

hk_dataset *hk_data_skip(hk_dataset *d, int64_t n) {
    int64_t count = hk_dataset_count(d);
    if (n < 0)
        count = 0;
    else if (count >= 0)
        count = count > n ? count - n : 0;
    return make(d, &skip_ops, (config){.n = n}, count, check("skip", n));
}

hk_dataset *hk_data_shard(hk_dataset *d, int64_t n, int64_t index) {
    int64_t count = hk_dataset_count(d);
    hk_status s = HK_OK;
    if (n < 1 || index < 0 || index >= n)
        s = hki_fail(HK_E_INVALID_ARG, "shard: there is no part %lld of %lld",
                     (long long)index, (long long)n);
    else if (count >= 0)
        count = count / n + (count % n > index ? 1 : 0);
    return make(d, &shard_ops, (config){.n = n, .index = index}, count, s);
}
