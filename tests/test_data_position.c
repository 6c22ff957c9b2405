// test_data_position.c - positions: stop at every element, save, go on in
// another iterator with another number of threads, and compare to the bit with
// the run that was never stopped. Damaged and foreign bytes are refused.
#include "hk_data.h"
#include "data/data.h"
#include "hooke/digits.h"
#include <unistd.h>

#define MOST 60 // elements of a run

// ---- pipelines: every source and transform ---------------------------------

static hk_dataset *p_range(void) {
    return hk_range(7);
}

static hk_dataset *p_words(void) {
    hk_tensor *t =
        hk_test_words("a bb ccc a-word-that-does-not-fit-its-cell e");
    const hk_value v = {.name = "value", .tensor = t};
    hk_dataset *d = hk_data_slices(&v, 1);
    hk_tensor_release(t);
    return hk_data_repeat(hk_data_shuffle(d, 3, 1, 1), 2);
}

static hk_dataset *p_tensors(void) {
    hk_tensor *t = hk_test_tensor(HK_F64, 1, (int64_t[]){2}, (double[]){1, 2});
    const hk_value v = {.name = "x", .tensor = t};
    hk_dataset *d = hk_data_tensors(&v, 1);
    hk_tensor_release(t);
    return hk_data_repeat(d, 4);
}

static hk_dataset *p_digits(void) {
    hk_dataset *d = hk_data_digits(NULL, 5, 6);
    const hk_select s = {.from = "label"};
    return hk_data_batch(hk_data_select(d, &s, 1), 2, 0);
}

static const int64_t lengths[] = {3, 1, 0, 2, 2, 5};
static hk_lengths lengths_a = {.n = lengths, .count = 6};

static hk_dataset *p_generator(void) {
    return hk_data_repeat(hk_vectors(&lengths_a), 2);
}

// A generator that can save: counts down from 9.
static hk_status count_create(void *user, void **state) {
    (void)user;
    int64_t *const n = malloc(sizeof *n);
    *n = 9;
    *state = n;
    return HK_OK;
}
static hk_status count_next(void *user, void *state, hk_builder *b) {
    (void)user;
    int64_t *const n = state;
    hk_tensor *t;
    if (*n == 0)
        return HK_E_END;
    const hk_status s = hk_builder_tensor(b, "value", NULL, &t);
    if (s == HK_OK)
        *(int64_t *)hk_tensor_data(t) = (*n)--;
    return s;
}
static void count_destroy(void *user, void *state) {
    (void)user;
    free(state);
}
static hk_status count_save(void *user, void *state, void *buf, size_t capacity,
                            size_t *size) {
    (void)user;
    *size = sizeof(int64_t);
    if (buf != NULL && capacity >= *size)
        memcpy(buf, state, *size);
    return HK_OK;
}
static hk_status count_restore(void *user, void *state, const void *bytes,
                               size_t size) {
    (void)user;
    if (size != sizeof(int64_t))
        return hki_fail(HK_E_DATA, "countdown: %zu bytes", size);
    memcpy(state, bytes, size);
    return HK_OK;
}
static const hk_generator countdown = {.create = count_create,
                                       .next = count_next,
                                       .destroy = count_destroy,
                                       .save = count_save,
                                       .restore = count_restore};
static const hk_value int_value = {.name = "value", .dtype = HK_I64};

static hk_dataset *p_countdown(void) {
    return hk_data_repeat(hk_data_generator(&countdown, &int_value, 1), 2);
}

static hk_dataset *p_shuffle(void) {
    return hk_data_repeat(hk_data_shuffle(hk_range(10), 4, 42, 1), 3);
}

static hk_dataset *p_shuffle_stream(void) {
    hk_dataset *d = hk_data_shuffle(hk_vectors(&lengths_a), 3, 5, 1);
    return hk_data_repeat(hk_data_shuffle(d, 2, 6, 0), 3);
}

static hk_dataset *p_shuffle_unseeded(void) {
    hk_dataset *d = hk_data_shuffle(hk_range(9), 9, HK_SEED_NONE, 1);
    return hk_data_repeat(d, 2);
}

static hk_status draw(void *user, const hk_map_call *c) {
    hk_tensor *t;
    (void)user;
    const int64_t v = *(int64_t *)hk_tensor_data(c->in->values[0].tensor);
    const hk_status s = hk_builder_tensor(c->out, "value", NULL, &t);
    if (s == HK_OK)
        *(int64_t *)hk_tensor_data(t) =
            v * 1000 + (int64_t)(hk_data_random(c, 0) % 1000);
    return s;
}

static hk_dataset *mapped(hk_dataset *d, int32_t parallel) {
    hk_map_options o;
    hk_map_options_init(&o, sizeof o);
    o.parallel = parallel;
    o.seed = 9;
    return hk_data_map(d, draw, NULL, &o);
}

static hk_dataset *p_map(void) {
    return hk_data_repeat(mapped(hk_range(6), 1), 2);
}

static hk_dataset *p_map_parallel(void) {
    hk_dataset *d = hk_data_shuffle(hk_range(6), 3, 1, 1);
    return hk_data_repeat(mapped(d, 4), 2);
}

static hk_dataset *p_filter(void) {
    return hk_data_filter(hk_data_repeat(hk_range(7), 2), hk_keep_odd, NULL);
}

static hk_dataset *p_slicing(void) {
    hk_dataset *d = hk_data_repeat(hk_data_skip(hk_range(20), 3), 2);
    return hk_data_take(hk_data_shard(d, 3, 1), 9);
}

static hk_dataset *p_batch(void) {
    hk_dataset *d = hk_data_shuffle(hk_range(10), 5, 3, 1);
    d = hk_data_normalize(hk_data_repeat(d, 3), "value", 0.5, NULL, NULL, 1);
    return hk_data_batch(d, 4, 0);
}

static hk_dataset *p_batch_prefetch(void) {
    return hk_data_prefetch(p_batch(), 3);
}

static hk_dataset *p_prefetch_everywhere(void) {
    hk_dataset *d = hk_data_prefetch(hk_range(10), 2);
    d = hk_data_prefetch(hk_data_shuffle(d, 4, 1, 1), 3);
    d = hk_data_prefetch(hk_data_repeat(mapped(d, 2), 2), 1);
    d = hk_data_prefetch(hk_data_batch(d, 3, 0), HK_DATA_AUTO);
    return d;
}

static hk_dataset *p_padded(void) {
    hk_dataset *d = hk_data_repeat(hk_vectors(&lengths_a), 2);
    return hk_data_prefetch(hk_data_padded_batch(d, 4, NULL, NULL, 0), 2);
}

static hk_dataset *p_ragged(void) {
    hk_dataset *d = hk_data_repeat(hk_vectors(&lengths_a), 2);
    return hk_data_prefetch(hk_data_ragged_batch(d, 5, 0), 2);
}

static hk_dataset *p_unbatch(void) {
    hk_dataset *d = hk_data_ragged_batch(hk_vectors(&lengths_a), 4, 0);
    return hk_data_repeat(hk_data_unbatch(d), 2);
}

static hk_dataset *p_unbatch_table(void) {
    return hk_data_unbatch(hk_data_batch(hk_data_repeat(hk_range(5), 2), 3, 0));
}

static hk_dataset *p_window(void) {
    hk_dataset *d = hk_data_window(hk_data_repeat(hk_range(7), 2), 3, 2, 2, 0);
    return hk_data_prefetch(d, 1);
}

static hk_dataset *p_window_gaps(void) {
    return hk_data_window(mapped(hk_range(20), 2), 2, 5, 1, 1);
}

static hk_dataset *renamed(hk_dataset *d, const char *to) {
    const hk_select s = {.from = "value", .to = to};
    return hk_data_select(d, &s, 1);
}

static hk_dataset *p_zip(void) {
    hk_dataset *const both[] = {renamed(hk_data_range(3, 12, 1), "a"),
                                renamed(hk_range(12), "b")};
    return hk_data_shuffle(hk_data_zip(both, 2), 4, 8, 0);
}

static hk_dataset *p_zip_streams(void) {
    hk_dataset *const both[] = {renamed(p_shuffle(), "a"),
                                renamed(p_map_parallel(), "b")};
    return hk_data_zip(both, 2);
}

static hk_dataset *p_concatenate(void) {
    hk_dataset *d = hk_data_concatenate(hk_range(3), hk_data_range(5, 9, 1));
    return hk_data_repeat(hk_data_shuffle(d, 3, 1, 1), 2);
}

static hk_dataset *p_concatenate_streams(void) {
    hk_dataset *d = hk_data_concatenate(p_map(), p_shuffle());
    return hk_data_batch(d, 5, 0);
}

static hk_dataset *p_enumerate(void) {
    return hk_data_enumerate(p_shuffle(), "i", 100);
}

static hk_dataset *p_enumerate_table(void) {
    hk_dataset *d = hk_data_enumerate(hk_data_range(4, 12, 1), "i", 1);
    return hk_data_repeat(hk_data_shuffle(d, 3, 2, 1), 2);
}

static hk_dataset *interleaved(hk_dataset *d, int64_t cycle, int64_t block,
                               int32_t parallel, hk_flat_fn f) {
    hk_interleave_options o;
    hk_interleave_options_init(&o, sizeof o);
    o.cycle_length = cycle;
    o.block_length = block;
    o.parallel = parallel;
    o.spec = &int_value;
    o.n_spec = 1;
    return hk_data_interleave(d, f, NULL, &o);
}

static hk_dataset *p_interleave(void) {
    return hk_data_repeat(
        interleaved(hk_data_shuffle(hk_range(6), 6, 1, 1), 2, 2, 1, hk_flat),
        2);
}

// A dataset with a shuffle, a map and a prefetch of its own.
static hk_status flat_shuffled(void *user, const hk_element *e,
                               hk_dataset **out) {
    const hk_status s = hk_flat(user, e, out);
    if (s == HK_OK)
        *out = hk_data_prefetch(mapped(hk_data_shuffle(*out, 3, 1, 1), 2), 2);
    return s;
}

static hk_dataset *p_interleave_parallel(void) {
    hk_dataset *d = hk_data_repeat(hk_data_range(2, 7, 1), 2);
    return interleaved(d, 3, 2, HK_DATA_AUTO, flat_shuffled);
}

static hk_dataset *p_cache(void) {
    hk_dataset *d =
        hk_data_cache(mapped(hk_data_shuffle(hk_range(7), 7, 1, 1), 2), NULL);
    return hk_data_repeat(hk_data_shuffle(d, 3, 2, 1), 3);
}

static hk_dataset *p_cache_rows(void) {
    hk_dataset *d = hk_data_cache(hk_data_shuffle(hk_range(7), 7, 1, 1), NULL);
    return hk_data_repeat(d, 3);
}

// A pass that is left early counts for nothing: the cache is filled anew, from
// another order of its input.
static hk_dataset *p_cache_left_early(void) {
    hk_dataset *d = hk_data_cache(hk_data_shuffle(hk_range(7), 7, 1, 1), NULL);
    d = hk_data_repeat(hk_data_take(d, 4), 2);
    return hk_data_prefetch(d, 2);
}

static char cache_folder[64], cache_path[96];

static hk_dataset *p_cache_file(void) {
    hk_dataset *d = mapped(hk_data_shuffle(hk_range(7), 7, 1, 1), 2);
    return hk_data_repeat(hk_data_cache(d, cache_path), 3);
}

static hk_dataset *p_lease(void) {
    const hki_lease l = {.id = 1, .epoch = 2, .begin = 3, .end = 17};
    hk_dataset *d = hki_data_lease(hk_data_skip(hk_range(40), 10), &l, 77);
    return hk_data_batch(hk_data_shuffle(d, 4, 1, 0), 3, 0);
}

// What a training program is made of.
static hk_dataset *p_training(void) {
    hk_dataset *d = hk_data_digits(NULL, 0, 23);
    d = hk_data_shard(d, 2, 1);
    d = hk_data_repeat(hk_data_shuffle(d, 5, 11, 1), -1);
    const hk_select s = {.from = "label"};
    d = hk_data_select(d, &s, 1);
    return hk_data_prefetch(hk_data_batch(d, 4, 1), 4);
}

static const struct {
    const char *name;
    hk_dataset *(*make)(void);
} pipelines[] = {
    {"range", p_range},
    {"words", p_words},
    {"tensors", p_tensors},
    {"digits", p_digits},
    {"generator", p_generator},
    {"generator with save", p_countdown},
    {"shuffle", p_shuffle},
    {"shuffle of shuffled streams", p_shuffle_stream},
    {"map", p_map},
    {"map in parallel", p_map_parallel},
    {"filter", p_filter},
    {"skip, shard, take", p_slicing},
    {"batch", p_batch},
    {"batch, prefetch", p_batch_prefetch},
    {"prefetch everywhere", p_prefetch_everywhere},
    {"padded batch", p_padded},
    {"ragged batch", p_ragged},
    {"unbatch", p_unbatch},
    {"unbatch of table rows", p_unbatch_table},
    {"window", p_window},
    {"window with gaps", p_window_gaps},
    {"zip", p_zip},
    {"zip of streams", p_zip_streams},
    {"concatenate", p_concatenate},
    {"concatenate streams", p_concatenate_streams},
    {"enumerate", p_enumerate},
    {"enumerate a table", p_enumerate_table},
    {"interleave", p_interleave},
    {"interleave in parallel", p_interleave_parallel},
    {"cache", p_cache},
    {"cache of rows", p_cache_rows},
    {"cache left early", p_cache_left_early},
    {"cache in a file", p_cache_file},
    {"lease", p_lease},
    {"training", p_training},
};

// ---- every index -----------------------------------------------------------

static hk_iter *iterate(hk_dataset *d, uint32_t threads) {
    hk_iter_options o;
    hk_iter_options_init(&o, sizeof o);
    o.threads = threads;
    hk_iter *it = NULL;
    assert_ok(hk_iter_create(d, &o, &it));
    return it;
}

static size_t save(hk_iter *it, void **bytes) {
    size_t size = 0, again = 0;
    assert_ok(hk_iter_save(it, NULL, 0, &size));
    *bytes = malloc(size);
    assert_non_null(*bytes);
    assert_status(hk_iter_save(it, *bytes, size - 1, &again), HK_E_OVERFLOW);
    assert_ok(hk_iter_save(it, *bytes, size, &again));
    assert_int_equal(size, again);
    return size;
}

static char *text_of(hk_iter *it, int64_t most) {
    char *const text = calloc(1, HK_RUN_TEXT);
    hk_text t = {text, HK_RUN_TEXT};
    hk_text_next(&t, it, most);
    return text;
}

static void remove_cache(void) {
    (void)unlink(cache_path);
}

// `before` elements with one iterator, the rest with another.
static char *stopped_run(hk_dataset *d, int64_t before, uint32_t threads,
                         bool *end, bool fresh_cache) {
    hk_iter *it = iterate(d, threads);
    char *head = text_of(it, before);
    *end = (int64_t)hk_delivered(it) < before;
    void *bytes = NULL;
    const size_t size = save(it, &bytes);
    const uint64_t delivered = hk_delivered(it);
    // Saving does not disturb: another element, thrown away.
    const hk_element *e;
    (void)hk_iter_next(it, &e);
    hk_iter_destroy(it);
    if (fresh_cache)
        remove_cache();
    it = iterate(d, 4 - threads);
    assert_ok(hk_iter_restore(it, bytes, size));
    assert_int_equal(hk_delivered(it), delivered);
    // The position of a restored iterator is the one that was restored: it
    // goes on equally from what it saves.
    void *again = NULL;
    const size_t again_size = save(it, &again);
    hk_iter *third = iterate(d, threads);
    hk_iter_destroy(it);
    assert_ok(hk_iter_restore(third, again, again_size));
    char *tail = text_of(third, MOST - (int64_t)delivered);
    hk_iter_destroy(third);
    char *whole = calloc(1, 2 * HK_RUN_TEXT);
    snprintf(whole, 2 * HK_RUN_TEXT, "%s%s%s", head,
             head[0] != '\0' && tail[0] != '\0' ? " " : "", tail);
    free(head);
    free(tail);
    free(bytes);
    free(again);
    return whole;
}

static void test_every_index(void **state) {
    (void)state;
    for (size_t p = 0; p < HKI_COUNT(pipelines); p++) {
        const bool file = pipelines[p].make == p_cache_file;
        remove_cache();
        hk_dataset *d = pipelines[p].make();
        assert_ok(hk_dataset_status(d));
        char *expected = hk_run_text(hk_dataset_retain(d), 1, MOST);
        bool end = false;
        for (int64_t i = 0; !end && i < MOST; i++) {
            const uint32_t threads = i % 2 == 0 ? 1 : 3;
            if (file)
                remove_cache();
            // A file that is complete is needed again; one that is not, isn't.
            char *got = stopped_run(d, i, threads, &end, file && i < 7);
            if (strcmp(got, expected) != 0)
                fail_msg("%s, stopped after %lld, %u threads:\n  got      %s\n"
                         "  expected %s",
                         pipelines[p].name, (long long)i, threads, got,
                         expected);
            free(got);
        }
        free(expected);
        hk_dataset_release(d);
    }
    remove_cache();
}

// Orders do not depend on threads.
static void test_threads(void **state) {
    (void)state;
    for (size_t p = 0; p < HKI_COUNT(pipelines); p++) {
        hk_dataset *d = pipelines[p].make();
        char *expected = hk_run_text(hk_dataset_retain(d), 1, MOST);
        for (uint32_t threads = 2; threads <= 5; threads++) {
            char *got = hk_run_text(hk_dataset_retain(d), threads, MOST);
            if (strcmp(got, expected) != 0)
                fail_msg("%s with %u threads:\n  got      %s\n  expected %s",
                         pipelines[p].name, threads, got, expected);
            free(got);
        }
        free(expected);
        hk_dataset_release(d);
    }
    remove_cache();
}

// Without a seed the order is chosen once; a restored run follows it.
static void test_unseeded(void **state) {
    (void)state;
    hk_dataset *d = p_shuffle_unseeded();
    hk_iter *it = iterate(d, 1);
    char *head = text_of(it, 5);
    void *bytes = NULL;
    const size_t size = save(it, &bytes);
    char *tail = text_of(it, -1);
    hk_iter *other = iterate(d, 1);
    assert_ok(hk_iter_restore(other, bytes, size));
    char *again = text_of(other, -1);
    assert_string_equal(tail, again);
    hk_iter_destroy(it);
    hk_iter_destroy(other);
    hk_dataset_release(d);
    free(head);
    free(tail);
    free(again);
    free(bytes);
}

// A batch of table rows is saved as their numbers, not as its tensors.
static void test_small_state(void **state) {
    (void)state;
    hk_dataset *d = hk_data_digits(NULL, 0, 1000);
    d = hk_data_repeat(hk_data_shuffle(d, 100, 1, 1), -1);
    d = hk_data_normalize(d, "image", 1, NULL, NULL, 1);
    d = hk_data_prefetch(hk_data_batch(d, 64, 1), 4);
    hk_iter *it = iterate(d, 1);
    const hk_element *e;
    for (int i = 0; i < 5; i++)
        assert_ok(hk_iter_next(it, &e));
    size_t size = 0;
    assert_ok(hk_iter_save(it, NULL, 0, &size));
    // 100 + 4 * 64 rows of 16 bytes and little more; a batch has 200704.
    assert_in_range(size, 1600, 8000);
    hk_iter_destroy(it);
    hk_dataset_release(d);
}

// ---- bytes that do not fit -------------------------------------------------

static void test_bad_bytes(void **state) {
    (void)state;
    hk_dataset *d = p_prefetch_everywhere();
    hk_iter *it = iterate(d, 2);
    char *head = text_of(it, 2);
    free(head);
    void *saved = NULL;
    const size_t size = save(it, &saved);
    uint8_t *const bytes = malloc(size);
    hk_iter *other = iterate(d, 2);
    char *expected = hk_run_text(hk_dataset_retain(d), 1, -1);
    for (size_t i = 0; i < size; i++) { // every byte flipped
        memcpy(bytes, saved, size);
        bytes[i] ^= 0x5a;
        assert_status(hk_iter_restore(other, bytes, size), HK_E_DATA);
    }
    for (size_t n = 0; n < size; n += 7) // cut off anywhere
        assert_status(hk_iter_restore(other, saved, n), HK_E_DATA);
    // An iterator that refused bytes is as new.
    char *got = text_of(other, -1);
    assert_string_equal(got, expected);
    free(got);
    free(expected);
    hk_iter_destroy(other);
    // Of another pipeline.
    hk_dataset *q = p_batch();
    other = iterate(q, 1);
    assert_status(hk_iter_restore(other, saved, size), HK_E_INVALID_ARG);
    hk_iter_destroy(other);
    hk_dataset_release(q);
    // Another length of prefetching, another number of calls: the same
    // pipeline.
    assert_status(hk_iter_restore(it, NULL, 3), HK_E_INVALID_ARG);
    hk_iter_destroy(it);
    hk_dataset_release(d);
    free(saved);
    free(bytes);
}

// Elements `from` to the end of `total` passes over 0 to 9, one line each.
static void check_rest(hk_dataset *d, const void *saved, size_t size,
                       int64_t from, int64_t total, int64_t step) {
    const hk_element *e;
    hk_iter *it = iterate(d, 1);
    assert_ok(hk_iter_restore(it, saved, size));
    for (int64_t i = from; i < 10 * total; i += step) {
        assert_ok(hk_iter_next(it, &e));
        assert_int_equal(*(const int64_t *)hk_tensor_data(e->values[0].tensor),
                         i % 10);
    }
    assert_status(hk_iter_next(it, &e), HK_E_END);
    hk_iter_destroy(it);
    hk_dataset_release(d);
}

static hk_dataset *epochs_of(int64_t count, bool shard) {
    hk_dataset *d = hki_data_epochs(hk_range(10), count);
    return shard ? hk_data_shard(d, 2, 1) : d;
}

// A position fits another number of epochs of the estimator, and that of
// hk_data_repeat does not: nodes behind it may have seen the end.
static void test_epochs(void **state) {
    (void)state;
    const hk_element *e;
    for (int shard = 0; shard < 2; shard++) {
        hk_dataset *d = epochs_of(2, shard);
        hk_iter *it = iterate(d, 1);
        for (int i = 0; i < 6; i++)
            assert_ok(hk_iter_next(it, &e));
        void *saved = NULL;
        const size_t size = save(it, &saved);
        const int64_t from = shard ? 13 : 6, step = shard ? 2 : 1;
        for (int64_t total = shard ? 2 : 1; total < 5; total++)
            check_rest(epochs_of(total, shard), saved, size, from, total, step);
        if (shard) // already more than that
            check_rest(epochs_of(1, true), saved, size, 10, 1, 1);
        free(saved);
        hk_iter_destroy(it);
        hk_dataset_release(d);
    }
    hk_dataset *d = hk_data_repeat(hk_range(10), 2);
    hk_dataset *more = hk_data_repeat(hk_range(10), 3);
    hk_iter *it = iterate(d, 1), *other = iterate(more, 1);
    void *saved = NULL;
    const size_t size = save(it, &saved);
    assert_status(hk_iter_restore(other, saved, size), HK_E_INVALID_ARG);
    free(saved);
    hk_iter_destroy(it);
    hk_iter_destroy(other);
    hk_dataset_release(d);
    hk_dataset_release(more);
}

// A checksum that fits over bytes that do not: every field damaged in turn.
// Nothing but an error or a position may come of it.
static void test_sealed_damage(void **state) {
    (void)state;
    for (size_t p = 0; p < HKI_COUNT(pipelines); p++) {
        if (pipelines[p].make == p_cache_file)
            continue;
        hk_dataset *d = pipelines[p].make();
        hk_iter *it = iterate(d, 1);
        char *head = text_of(it, 3);
        free(head);
        void *saved = NULL;
        const size_t size = save(it, &saved);
        hk_iter_destroy(it);
        uint8_t *const bytes = malloc(size);
        static const uint64_t values[] = {0, 1, UINT64_C(1) << 40, UINT64_MAX,
                                          INT64_MAX};
        for (size_t at = 32; at + 16 <= size && at < 2000; at += 8)
            for (size_t v = 0; v < HKI_COUNT(values); v++) {
                memcpy(bytes, saved, size);
                memcpy(bytes + at, &values[v], 8); // little-endian machine
                const uint64_t h = hki_hash(HKI_HASH_INIT, bytes, size - 8);
                memcpy(bytes + size - 8, &h, 8);
                it = iterate(d, 1);
                const hk_status s = hk_iter_restore(it, bytes, size);
                if (s != HK_OK && s != HK_E_DATA && s != HK_E_INVALID_ARG &&
                    s != HK_E_SHAPE && s != HK_E_NO_MEMORY)
                    fail_msg("%s: byte %zu: %s (%s)", pipelines[p].name, at,
                             hk_status_string(s), hk_last_error());
                const hk_element *e;
                for (int i = 0; i < 3; i++)
                    (void)hk_iter_next(it, &e);
                hk_iter_destroy(it);
            }
        free(bytes);
        free(saved);
        hk_dataset_release(d);
    }
}

static hk_status save_and_restore(void *user) {
    hk_dataset *d = p_training();
    hk_iter *it = NULL, *other = NULL;
    const hk_element *e;
    uint8_t bytes[8192];
    size_t size = 0;
    (void)user;
    hk_status s = hk_iter_create(d, NULL, &it);
    if (s == HK_OK)
        s = hk_iter_create(d, NULL, &other);
    if (s == HK_OK)
        s = hk_iter_next(it, &e);
    if (s == HK_OK)
        s = hk_iter_save(it, bytes, sizeof bytes, &size);
    if (s == HK_OK)
        s = hk_iter_restore(other, bytes, size);
    if (s == HK_OK)
        s = hk_iter_next(other, &e);
    hk_iter_destroy(it);
    hk_iter_destroy(other);
    hk_dataset_release(d);
    return s;
}

static void test_allocation_failures(void **state) {
    (void)state;
    hk_test_alloc_failures("save and restore", save_and_restore, NULL);
}

int main(void) {
    const char *const tmp = getenv("TMPDIR");
    snprintf(cache_folder, sizeof cache_folder, "%s/hooke-position-XXXXXX",
             tmp != NULL && strlen(tmp) < 40 ? tmp : P_tmpdir);
    if (mkdtemp(cache_folder) == NULL)
        return 1;
    snprintf(cache_path, sizeof cache_path, "%s/cache", cache_folder);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_every_index),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_unseeded),
        cmocka_unit_test(test_small_state),
        cmocka_unit_test(test_bad_bytes),
        cmocka_unit_test(test_sealed_damage),
        cmocka_unit_test(test_allocation_failures),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    // Fails when something was left behind.
    return rmdir(cache_folder) != 0 || failed != 0;
}
