// test_data_lease.c - leases: every example once per epoch, whoever comes and
// goes.
#include "data/data.h"
#include "hk_data.h"

// ---- a random life ---------------------------------------------------------

enum {
    OWNERS = 5,
    HELD = 4 // leases an owner holds at most
};

typedef struct owner {
    hki_lease lease[HELD];
    int n;
} owner;

typedef struct world {
    hki_leases *l;
    hki_rng rng;
    int64_t count, epochs;
    int *used; // [epochs * count]
    owner owners[OWNERS];
} world;

static uint32_t dice(world *w, uint32_t n) {
    return hki_rng_u32(&w->rng) % n;
}

static void use(world *w, const hki_lease *r, int64_t end) {
    assert_in_range(r->epoch, 0, w->epochs - 1);
    for (int64_t i = r->begin; i < end; i++)
        w->used[r->epoch * w->count + i]++;
}

static void forget(owner *o, int i) {
    o->lease[i] = o->lease[--o->n];
}

static void save_and_restore(world *w, int64_t chunk) {
    size_t size = 0;
    assert_ok(hki_leases_save(w->l, NULL, 0, &size));
    void *const bytes = malloc(size);
    assert_status(hki_leases_save(w->l, bytes, size - 1, &size), HK_E_OVERFLOW);
    assert_ok(hki_leases_save(w->l, bytes, size, &size));
    hki_leases *other = NULL;
    assert_ok(hki_leases_create(w->count, chunk, w->epochs, &other));
    assert_ok(hki_leases_restore(other, bytes, size));
    hki_leases_destroy(w->l);
    w->l = other;
    free(bytes);
}

// One event; false: everything is done.
static bool step(world *w, int64_t chunk) {
    const uint64_t id = dice(w, OWNERS);
    owner *const o = &w->owners[id];
    const uint32_t what = dice(w, 10);
    if (what == 0) { // dies without having used anything
        assert_ok(hki_leases_expire(w->l, id));
        for (int i = 0; i < o->n; i++)
            assert_status(
                hki_leases_return(w->l, id, o->lease[i].id, o->lease[i].end),
                HK_E_NOT_FOUND);
        o->n = 0;
    } else if (what == 1) {
        save_and_restore(w, chunk);
    } else if (what < 6 && o->n > 0) { // returns one, used in part or whole
        const int i = (int)dice(w, (uint32_t)o->n);
        const hki_lease r = o->lease[i];
        const int64_t end =
            dice(w, 3) == 0 ? r.begin + dice(w, (uint32_t)(r.end - r.begin + 1))
                            : r.end;
        assert_status(hki_leases_return(w->l, id + 1, r.id, end),
                      HK_E_NOT_FOUND); // not that owner's
        assert_status(hki_leases_return(w->l, id, r.id, r.end + 1),
                      HK_E_INVALID_ARG);
        assert_ok(hki_leases_return(w->l, id, r.id, end));
        use(w, &r, end);
        forget(o, i);
    } else if (o->n < HELD) {
        hki_lease r;
        const hk_status s = hki_leases_take(w->l, id, &r);
        if (s == HK_E_END)
            return false;
        if (s == HK_E_UNAVAILABLE)
            return true;
        assert_ok(s);
        assert_in_range(r.end - r.begin, 1, chunk);
        o->lease[o->n++] = r;
    }
    return true;
}

static void test_each_once(void **state) {
    (void)state;
    static const struct {
        int64_t count, chunk, epochs;
    } cases[] = {{1, 1, 1},   {7, 3, 2},     {100, 7, 3},
                 {64, 64, 2}, {50, 1000, 2}, {101, 10, 4}};
    for (uint64_t seed = 0; seed < 60; seed++) {
        const size_t c = seed % HKI_COUNT(cases);
        world w = {.count = cases[c].count, .epochs = cases[c].epochs};
        hki_rng_init(&w.rng, seed, 77);
        const size_t n = (size_t)(w.count * w.epochs);
        w.used = calloc(n, sizeof *w.used);
        assert_ok(hki_leases_create(w.count, cases[c].chunk, w.epochs, &w.l));
        int steps = 0;
        while (step(&w, cases[c].chunk))
            assert_true(++steps < 1000000);
        for (size_t i = 0; i < n; i++)
            if (w.used[i] != 1)
                fail_msg("seed %llu: example %zu of epoch %zu was used %d "
                         "times",
                         (unsigned long long)seed, i % (size_t)w.count,
                         i / (size_t)w.count, w.used[i]);
        free(w.used);
        hki_leases_destroy(w.l);
    }
}

// ---- the rules one by one --------------------------------------------------

static void take_is(hki_leases *l, uint64_t who, int64_t epoch, int64_t begin,
                    int64_t end, hki_lease *out) {
    hki_lease r;
    assert_ok(hki_leases_take(l, who, &r));
    assert_int_equal(r.epoch, epoch);
    assert_int_equal(r.begin, begin);
    assert_int_equal(r.end, end);
    if (out != NULL)
        *out = r;
}

static void test_rules(void **state) {
    (void)state;
    hki_leases *l = NULL;
    hki_lease a, b, c, r;
    assert_ok(hki_leases_create(10, 4, 2, &l));
    take_is(l, 1, 0, 0, 4, &a);
    take_is(l, 2, 0, 4, 8, &b);
    take_is(l, 1, 0, 8, 10, &c);
    assert_true(a.id != b.id && b.id != c.id);
    // The next epoch begins although ranges of the last are out.
    take_is(l, 3, 1, 0, 4, NULL);
    // What comes back is given first, the oldest epoch before all.
    assert_ok(hki_leases_return(l, 2, b.id, 6));
    take_is(l, 4, 0, 6, 8, NULL);
    // Neighbours that come back are one range again, cut to the chunk.
    assert_ok(hki_leases_expire(l, 1));
    take_is(l, 5, 0, 0, 4, NULL);
    take_is(l, 5, 0, 8, 10, NULL);
    take_is(l, 5, 1, 4, 8, NULL);
    take_is(l, 5, 1, 8, 10, NULL);
    assert_status(hki_leases_take(l, 6, &r), HK_E_UNAVAILABLE);
    assert_ok(hki_leases_expire(l, 5));
    take_is(l, 6, 0, 0, 4, &a);
    assert_ok(hki_leases_return(l, 6, a.id, 4));
    assert_status(hki_leases_return(l, 6, a.id, 4), HK_E_NOT_FOUND);
    hki_leases_destroy(l);
    // No examples; no epochs; no end of them.
    assert_ok(hki_leases_create(0, 4, -1, &l));
    assert_status(hki_leases_take(l, 1, &r), HK_E_END);
    hki_leases_destroy(l);
    assert_ok(hki_leases_create(9, 4, 0, &l));
    assert_status(hki_leases_take(l, 1, &r), HK_E_END);
    hki_leases_destroy(l);
    assert_ok(hki_leases_create(1, INT64_MAX, -1, &l));
    for (int64_t i = 0; i < 100; i++)
        take_is(l, 1, i, 0, 1, NULL);
    hki_leases_destroy(l);
    assert_status(hki_leases_create(-1, 1, 1, &l), HK_E_INVALID_ARG);
    assert_status(hki_leases_create(1, 0, 1, &l), HK_E_INVALID_ARG);
    assert_status(hki_leases_create(1, 1, -2, &l), HK_E_INVALID_ARG);
    hki_leases_destroy(NULL);
}

static void test_bad_bytes(void **state) {
    (void)state;
    hki_leases *l = NULL, *other = NULL;
    hki_lease r;
    assert_ok(hki_leases_create(50, 4, 3, &l));
    assert_ok(hki_leases_create(50, 4, 3, &other));
    for (uint64_t i = 0; i < 20; i++)
        assert_ok(hki_leases_take(l, i % 4, &r));
    assert_ok(hki_leases_expire(l, 2));
    uint8_t bytes[4096], bad[4096];
    size_t size = 0;
    assert_ok(hki_leases_save(l, bytes, sizeof bytes, &size));
    for (size_t i = 0; i < size; i++) {
        memcpy(bad, bytes, size);
        bad[i] ^= 4;
        assert_status(hki_leases_restore(other, bad, size), HK_E_DATA);
    }
    for (size_t n = 0; n < size; n++)
        assert_status(hki_leases_restore(other, bytes, n), HK_E_DATA);
    // Fields that make no sense under a checksum that fits.
    static const int64_t values[] = {-1, 0, 1, 49, 50, 51, INT64_MAX};
    for (size_t at = 8; at + 16 <= size; at += 8)
        for (size_t v = 0; v < HKI_COUNT(values); v++) {
            memcpy(bad, bytes, size);
            memcpy(bad + at, &values[v], 8); // little-endian machine
            const uint64_t h = hki_hash(HKI_HASH_INIT, bad, size - 8);
            memcpy(bad + size - 8, &h, 8);
            hki_leases *fresh = NULL;
            assert_ok(hki_leases_create(50, 4, 3, &fresh));
            const hk_status s = hki_leases_restore(fresh, bad, size);
            assert_true(s == HK_OK || s == HK_E_DATA || s == HK_E_INVALID_ARG);
            for (int i = 0; s == HK_OK && i < 100; i++)
                if (hki_leases_take(fresh, 9, &r) == HK_OK) {
                    assert_in_range(r.epoch, 0, 2);
                    assert_true(r.begin >= 0 && r.begin < r.end && r.end <= 50);
                }
            hki_leases_destroy(fresh);
        }
    assert_ok(hki_leases_restore(other, bytes, size));
    hki_leases_destroy(other);
    assert_ok(hki_leases_create(51, 4, 3, &other));
    assert_status(hki_leases_restore(other, bytes, size), HK_E_INVALID_ARG);
    hki_leases_destroy(other);
    hki_leases_destroy(l);
}

// ---- data ------------------------------------------------------------------

// The leases of an epoch together are a permutation of the examples, another
// one in every epoch and for every seed.
static void test_permutation(void **state) {
    (void)state;
    for (int64_t count = 1; count < 200; count += 13) {
        int64_t order[3][200];
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            int64_t seen[200] = {0}, n = 0;
            for (int64_t begin = 0; begin < count; begin += 7) {
                const hki_lease r = {.epoch = epoch == 1,
                                     .begin = begin,
                                     .end = HKI_MIN(begin + 7, count)};
                hk_dataset *d =
                    hki_data_lease(hk_range(count), &r, epoch == 2 ? 6 : 5);
                assert_int_equal(hk_dataset_count(d), r.end - r.begin);
                hk_iter *it = NULL;
                const hk_element *e;
                assert_ok(hk_iter_create(d, NULL, &it));
                while (hk_iter_next(it, &e) == HK_OK) {
                    const int64_t v =
                        *(int64_t *)hk_tensor_data(e->values[0].tensor);
                    order[epoch][n++] = v;
                    seen[v]++;
                }
                hk_iter_destroy(it);
                hk_dataset_release(d);
            }
            assert_int_equal(n, count);
            for (int64_t i = 0; i < count; i++)
                assert_int_equal(seen[i], 1);
        }
        if (count > 20) {
            const size_t bytes = (size_t)count * sizeof order[0][0];
            assert_true(memcmp(order[0], order[1], bytes) != 0);
            assert_true(memcmp(order[0], order[2], bytes) != 0);
        }
    }
    // In order without a seed; through transforms that keep rows apart.
    const hki_lease r = {.begin = 1, .end = 4};
    hk_check_run("in order", hki_data_lease(hk_range(9), &r, HK_SEED_NONE), -1,
                 "1 2 3");
    hk_dataset *d = hk_data_skip(hk_data_shard(hk_range(20), 2, 1), 2);
    d = hk_data_normalize(hk_data_take(d, 5), "value", 0.5, NULL, NULL, 1);
    hk_check_run("of a part",
                 hk_data_batch(hki_data_lease(d, &r, HK_SEED_NONE), 3, 0), -1,
                 "3.5,4.5,5.5");
}

// Odd numbers of "#", which counts the examples of the whole set.
static hk_status odd_row(void *user, const hk_element *e, int *keep) {
    const hk_value *const row = hk_element_find(e, "#");
    (void)user;
    *keep = *(const int64_t *)hk_tensor_data(row->tensor) % 2 == 1;
    return HK_OK;
}

static hk_dataset *odd_rows(hk_dataset *d) {
    const hk_select value = {.from = "value"};
    d = hk_data_filter(hk_data_enumerate(d, "#", 0), odd_row, NULL);
    return hk_data_normalize(hk_data_select(d, &value, 1), "value", 0.5, NULL,
                             NULL, 1);
}

// What can be divided, and into what.
static void test_units(void **state) {
    (void)state;
    const struct {
        hk_dataset *d;
        int64_t units;
    } cases[] = {
        {hk_range(20), 20},
        {hk_data_take(hk_data_skip(hk_range(20), 5), 10), 10},
        {odd_rows(hk_range(20)), 20},
        {hk_data_take(odd_rows(hk_range(20)), 5), -1},
        {hk_data_shuffle(hk_range(20), 4, 1, 1), -1},
        {hk_data_repeat(hk_range(20), 2), -1},
        {hk_data_batch(hk_range(20), 4, 0), -1},
        {hk_data_map(hk_range(20), NULL, NULL, NULL), -1}, // a fault
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        assert_int_equal(hki_data_units(cases[i].d), cases[i].units);
        hk_dataset_release(cases[i].d);
    }
    const hki_lease r = {.begin = 3, .end = 8};
    hk_check_run("a filter on numbers of the whole",
                 hki_data_lease(odd_rows(hk_range(20)), &r, HK_SEED_NONE), -1,
                 "1.5 2.5 3.5");
    hk_check_run(
        "an empty lease",
        hki_data_lease(hk_range(20), &(hki_lease){.begin = 20, .end = 20}, 1),
        -1, "");
}

static hk_status life(void *user) {
    hki_leases *l = NULL;
    hki_lease r;
    uint8_t bytes[1024];
    size_t size = 0;
    (void)user;
    hk_status s = hki_leases_create(20, 3, 2, &l);
    for (uint64_t i = 0; i < 8 && s == HK_OK; i++)
        s = hki_leases_take(l, i % 3, &r);
    if (s == HK_OK)
        s = hki_leases_expire(l, 1);
    if (s == HK_OK)
        s = hki_leases_save(l, bytes, sizeof bytes, &size);
    if (s == HK_OK)
        s = hki_leases_restore(l, bytes, size);
    hki_leases_destroy(l);
    return s;
}

static void test_allocation_failures(void **state) {
    (void)state;
    hk_test_alloc_failures("leases", life, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_once),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_bad_bytes),
        cmocka_unit_test(test_permutation),
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
