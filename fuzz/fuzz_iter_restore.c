// fuzz_iter_restore.c - positions of iterators from arbitrary bytes, as they
// are and with a head and checksum that fit, so that the checks behind them are
// reached. The first byte chooses the pipeline.
#include "base/base.h"
#include "data/data.h"
#include "hooke/data.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEAD 32 // magic, fingerprint, delivered, skipped

// ---- pipelines: all finite, so that a wild position ends -------------------

static hk_status vector_next(void *user, void *state, hk_builder *b) {
    int *const at = state;
    (void)user;
    if (*at == 9)
        return HK_E_END;
    const int64_t n = (*at)++ % 4;
    const hk_shape s = hk_shape_make(1, &n);
    hk_tensor *x, *w;
    HKI_TRY(hk_builder_tensor(b, "value", &s, &x));
    HKI_TRY(hk_builder_tensor(b, "w", NULL, &w));
    for (int64_t i = 0; i < n; i++)
        ((int64_t *)hk_tensor_data(x))[i] = i;
    return hk_tensor_set_string(w, 0, "words of some length, short or long",
                                (size_t)(4 * n));
}

static hk_status vector_create(void *user, void **state) {
    int *at = NULL;
    (void)user;
    HKI_TRY(hki_zalloc_array(1, sizeof *at, &at));
    *state = at;
    return HK_OK;
}

static void vector_destroy(void *user, void *state) {
    (void)user;
    hki_free(state);
}

static hk_dataset *vectors(void) {
    const hk_generator g = {.create = vector_create,
                            .next = vector_next,
                            .destroy = vector_destroy};
    const hk_value spec[] = {
        {.name = "value", .dtype = HK_I64, .shape = {.rank = 1, .dim = {-1}}},
        {.name = "w", .dtype = HK_STRING}};
    return hk_data_generator(&g, spec, 2);
}

static hk_status leave_alone(void *user, const hk_map_call *c) {
    (void)user;
    (void)c;
    return HK_OK;
}

static hk_status flat(void *user, const hk_element *e, hk_dataset **out) {
    (void)user;
    const int64_t n = *(const int64_t *)hk_tensor_data(e->values[0].tensor);
    *out = hk_data_shuffle(hk_data_range(0, n % 5, 1), 2, 1, 1);
    return HK_OK;
}

static hk_dataset *mapped(hk_dataset *d) {
    hk_map_options o;
    hk_map_options_init(&o, sizeof o);
    o.parallel = 2;
    return hk_data_map(d, leave_alone, NULL, &o);
}

static hk_dataset *interleaved(hk_dataset *d) {
    const hk_value spec = {.name = "value", .dtype = HK_I64};
    hk_interleave_options o;
    hk_interleave_options_init(&o, sizeof o);
    o.cycle_length = 2;
    o.parallel = 2;
    o.spec = &spec;
    o.n_spec = 1;
    return hk_data_interleave(d, flat, NULL, &o);
}

static hk_dataset *twelve(void) {
    return hk_data_range(0, 12, 1);
}

static hk_dataset *pipeline(uint8_t which) {
    hk_dataset *d;
    switch (which % 8) {
    case 0:
        d = hk_data_repeat(hk_data_shuffle(twelve(), 5, 1, 1), 3);
        return hk_data_prefetch(hk_data_batch(d, 4, 0), 2);
    case 1:
        d = hk_data_shuffle(vectors(), 4, 1, 1);
        return hk_data_prefetch(hk_data_padded_batch(d, 3, NULL, NULL, 0), 2);
    case 2:
        d = hk_data_ragged_batch(vectors(), 3, 0);
        return hk_data_prefetch(hk_data_unbatch(d), 2);
    case 3:
        return hk_data_prefetch(mapped(hk_data_shuffle(vectors(), 3, 1, 1)), 2);
    case 4:
        return hk_data_prefetch(interleaved(twelve()), 1);
    case 5:
        d = hk_data_cache(hk_data_shuffle(vectors(), 4, 1, 1), NULL);
        return hk_data_repeat(hk_data_shuffle(d, 3, 2, 0), 2);
    case 6:
        d = hk_data_window(hk_data_shuffle(twelve(), 3, 1, 1), 3, 2, 1, 0);
        return hk_data_prefetch(hk_data_enumerate(d, "i", 0), 2);
    default:
        d = hk_data_take(hk_data_skip(hk_data_shard(twelve(), 2, 1), 1), 4);
        return hk_data_concatenate(hk_data_shuffle(d, 2, 1, 0),
                                   mapped(hk_data_range(0, 3, 1)));
    }
}

// ---- restoring -------------------------------------------------------------

static void restore(hk_dataset *d, const uint8_t *bytes, size_t size) {
    hk_iter_options o;
    hk_iter_options_init(&o, sizeof o);
    o.threads = 1;
    hk_iter *it = NULL;
    const hk_element *e;
    size_t again;
    if (hk_iter_create(d, &o, &it) != HK_OK)
        return;
    if (hk_iter_restore(it, bytes, size) == HK_OK) {
        for (int i = 0; i < 4 && hk_iter_next(it, &e) == HK_OK; i++)
            ;
        hk_iter_save(it, NULL, 0, &again);
    }
    hk_iter_destroy(it);
}

static void put(uint8_t *p, uint64_t v) {
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

// The head of a true position of d, the bytes, and a checksum that fits.
static void restore_sealed(hk_dataset *d, const uint8_t *data, size_t size) {
    uint8_t *sealed = NULL;
    size_t true_size = 0;
    hk_iter *it = NULL;
    if (hk_iter_create(d, NULL, &it) != HK_OK)
        return;
    if (hk_iter_save(it, NULL, 0, &true_size) == HK_OK &&
        hki_alloc_array(true_size + size + 8, 1, &sealed) == HK_OK &&
        hk_iter_save(it, sealed, true_size, &true_size) == HK_OK) {
        if (size > 0)
            memcpy(sealed + HEAD, data, size);
        put(sealed + HEAD + size, hki_hash(HKI_HASH_INIT, sealed, HEAD + size));
        restore(d, sealed, HEAD + size + 8);
    }
    hk_iter_destroy(it);
    hki_free(sealed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    hk_dataset *d = pipeline(data[0]);
    if (hk_dataset_status(d) == HK_OK) {
        restore(d, data + 1, size - 1);
        restore_sealed(d, data + 1, size - 1);
    }
    hk_dataset_release(d);
    return 0;
}
