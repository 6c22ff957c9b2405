// fuzz_optim.c - saved states of optimizers, schedules, averages and
// gradient sums.
//
// The first byte picks the reader. The hash at the end is recomputed, so that
// what lies before it is read and not merely refused. Whatever a reader
// accepts must survive one step and be saved again.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/base.h"
#include "hooke/average.h"
#include "hooke/gradproc.h"
#include "hooke/optim.h"
#include "tensor/tensor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Every third input starts as a valid state that the bytes are laid over.
typedef hk_status (*save_fn)(const void *, void *, size_t, size_t *);

static unsigned char *blob(const void *object, save_fn save,
                           const uint8_t *data, size_t size, size_t *out) {
    size_t valid = 0;
    const bool over = object != NULL && size > 0 && data[0] % 3 == 0;
    if (over && save(object, NULL, 0, &valid) != HK_OK)
        return NULL;
    const size_t body = over ? valid - 8 : size;
    unsigned char *const b = malloc(body + 8);
    if (b == NULL)
        return NULL;
    if (over)
        save(object, b, valid, &valid);
    else if (size > 0)
        memcpy(b, data, size);
    // Pairs of (position, value) change a valid state here and there.
    for (size_t i = 1; over && i + 2 < size; i += 3)
        b[(size_t)(data[i] << 8 | data[i + 1]) % body] = data[i + 2];
    const uint64_t h = hki_hash(HKI_HASH_INIT, b, body);
    for (int i = 0; i < 8; i++)
        b[body + (size_t)i] = (unsigned char)(h >> (8 * i));
    *out = body + 8;
    return b;
}

static hk_status save_optimizer(const void *o, void *b, size_t c, size_t *n) {
    return hk_optimizer_save(o, b, c, n);
}

static hk_status save_schedule(const void *o, void *b, size_t c, size_t *n) {
    return hk_schedule_save(o, b, c, n);
}

static hk_status save_ema(const void *o, void *b, size_t c, size_t *n) {
    return hk_ema_save(o, b, c, n);
}

static hk_status save_gradproc(const void *o, void *b, size_t c, size_t *n) {
    return hk_gradproc_save(o, b, c, n);
}

static hk_schedule *some_schedule(void) {
    const double boundaries[] = {10, 20}, values[] = {1, 0.5, 0.25};
    hk_schedule_options o;
    hk_schedule *s = NULL;
    hk_schedule_options_init(&o, sizeof o, HK_SCHEDULE_PIECEWISE);
    o.boundaries = boundaries;
    o.values = values;
    o.n_boundaries = 2;
    hk_schedule_create(&o, &s);
    return s;
}

static hk_layout *some_layout(void) {
    hk_layout_item items[] = {
        {.name = "w", .dtype = HK_F32, .kind = HK_TRAINABLE},
        {.name = "t", .dtype = HK_F32, .kind = HK_TRAINABLE, .sparse = 1},
        {.name = "n", .dtype = HK_I64, .kind = HK_STATE_COPY},
    };
    items[0].shape = hk_shape_make(1, (int64_t[]){5});
    items[1].shape = hk_shape_make(2, (int64_t[]){4, 2});
    items[2].shape = hk_shape_make(0, NULL);
    hk_layout *l = NULL;
    hk_layout_create(items, 3, &l);
    return l;
}

static const int64_t indices[] = {1, 3, 1};

// Gradients of the layout above.
static hk_grad_view some_grads(const hk_layout *l, float g[16], float rows[6],
                               hk_sparse_grad *sparse) {
    *sparse =
        (hk_sparse_grad){hk_layout_find(l, "t"), 3, 2, indices, rows, 0, 0};
    return (hk_grad_view){g, hki_layout_dense(l), sparse, 1, 1, NULL};
}

static void run_schedule(const uint8_t *data, size_t size) {
    hk_schedule *const s = some_schedule();
    hk_schedule *t = NULL;
    size_t n;
    unsigned char *const b = blob(s, save_schedule, data, size, &n);
    if (b != NULL && hk_schedule_load(b, n, &t) == HK_OK)
        for (int step = 0; step < 30; step += 7)
            (void)hk_schedule_value(t, step);
    hk_schedule_release(t);
    hk_schedule_release(s);
    free(b);
}

static void run_optimizer(hk_layout *l, int kind, const uint8_t *data,
                          size_t size) {
    hk_optimizer_options o;
    hk_optimizer *opt = NULL;
    hk_optimizer_options_init(&o, sizeof o, (hk_optimizer_kind)kind);
    o.schedule = some_schedule();
    o.threads = 1;
    size_t n;
    unsigned char *b = NULL;
    if (hk_optimizer_create(&o, l, &opt) == HK_OK)
        b = blob(opt, save_optimizer, data, size, &n);
    if (b != NULL && hk_optimizer_restore(opt, b, n) == HK_OK) {
        float x[32] = {1}, g[16] = {0.5f}, rows[6] = {0.25f};
        hk_sparse_grad sparse;
        const hk_grad_view v = some_grads(l, g, rows, &sparse);
        (void)hk_optimizer_apply(opt, x, &v, 3, NULL);
    }
    free(b);
    hk_optimizer_destroy(opt);
    hk_schedule_release(o.schedule);
}

static void run_ema(hk_layout *l, const uint8_t *data, size_t size) {
    const float x[32] = {1};
    const hk_shape pair = hk_shape_make(1, (int64_t[]){2});
    hk_ema *e = NULL;
    size_t n, id;
    unsigned char *b = NULL;
    if (hk_ema_create(NULL, l, x, &e) == HK_OK &&
        hk_ema_track(e, "tracked", pair, &id) == HK_OK)
        b = blob(e, save_ema, data, size, &n);
    if (b != NULL && hk_ema_restore(e, b, n) == HK_OK)
        (void)hk_ema_update(e, x);
    free(b);
    hk_ema_destroy(e);
}

static void run_gradproc(hk_layout *l, const uint8_t *data, size_t size) {
    float g[16] = {0.5f}, rows[6] = {0.25f};
    hk_sparse_grad sparse;
    const hk_grad_view v = some_grads(l, g, rows, &sparse);
    hk_gradproc_options o;
    hk_gradproc *p = NULL;
    hk_grad_view out;
    size_t n;
    int ready;
    unsigned char *b = NULL;
    hk_gradproc_options_init(&o, sizeof o);
    o.accumulate_steps = 3;
    o.clip_global_norm = 1;
    if (hk_gradproc_create(&o, l, &p) == HK_OK &&
        hk_gradproc_run(p, &v, &out, &ready) == HK_OK)
        b = blob(p, save_gradproc, data, size, &n);
    if (b != NULL && hk_gradproc_restore(p, b, n) == HK_OK)
        for (int i = 0; i < 3; i++)
            (void)hk_gradproc_run(p, &v, &out, &ready);
    free(b);
    hk_gradproc_destroy(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    hk_layout *const l = some_layout();
    const int which = data[0] % 19;
    if (which == 0)
        run_schedule(data + 1, size - 1);
    else if (which == 1)
        run_ema(l, data + 1, size - 1);
    else if (which == 2)
        run_gradproc(l, data + 1, size - 1);
    else
        run_optimizer(l, which - 2, data + 1, size - 1);
    hk_layout_release(l);
    return 0;
}
