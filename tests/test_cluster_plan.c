// test_cluster_plan.c - the data's plan: every example once an epoch, whoever
// comes and goes.
#include "hk_test.h"
#include "cluster/center/data_plan.h"

#define EACH UINT64_MAX // all bits of an owner count

// ---- a random life ---------------------------------------------------------

enum {
    OWNERS = 5,
    HELD = 4,    // ranges an owner holds at most
    PER_UNIT = 3 // examples
};

typedef struct owner {
    hk_range range[HELD];
    int n;
} owner;

typedef struct world {
    hki_data_plan *p;
    hki_rng rng;
    int64_t units, epochs;
    int *used; // [epochs][units][PER_UNIT]
    owner owners[OWNERS];
} world;

// For somebody who is the only one and has used what he had.
static hk_status take_one(hki_data_plan *p, uint64_t who, hk_range *out) {
    return hki_data_plan_take(p, 0, &(hki_taker){.owner = who}, out);
}

static uint32_t dice(world *w, uint32_t n) {
    return hki_rng_u32(&w->rng) % n;
}

static int64_t examples_of(const hk_range *r) {
    return (r->end - r->begin) * PER_UNIT;
}

// Examples [r->used, end) of the range, as a reader would give them.
static void use(world *w, const hk_range *r, int64_t end) {
    assert_in_range(r->epoch, 0, w->epochs - 1);
    int *const at = w->used + (r->epoch * w->units + r->begin) * PER_UNIT;
    for (int64_t i = r->used; i < end; i++)
        at[i]++;
}

static void save_and_restore(world *w) {
    hki_buf b = {0}, again = {0};
    assert_ok(hki_data_plan_save(w->p, &b));
    hki_data_plan_destroy(w->p);
    assert_ok(hki_data_plan_create(&w->p));
    assert_ok(hki_data_plan_restore(w->p, (uint8_t *)b.data, b.size, "test"));
    assert_ok(hki_data_plan_save(w->p, &again));
    assert_int_equal(b.size, again.size);
    assert_memory_equal(b.data, again.data, b.size);
    hki_buf_deinit(&b);
    hki_buf_deinit(&again);
}

static void die(world *w, uint64_t id) {
    owner *const o = &w->owners[id];
    assert_int_equal(hki_data_plan_expire(w->p, id), o->n > 0);
    for (int i = 0; i < o->n; i++)
        assert_status(
            hki_data_plan_return(w->p, id, EACH, o->range[i].id, HK_RANGE_ALL),
            HK_E_NOT_FOUND);
    o->n = 0;
}

// Gives one back, used in part or whole.
static void give_back(world *w, uint64_t id) {
    owner *const o = &w->owners[id];
    const int i = (int)dice(w, (uint32_t)o->n);
    const hk_range r = o->range[i];
    const int64_t all = examples_of(&r);
    const bool whole = dice(w, 3) != 0;
    const int64_t end =
        whole ? all : r.used + dice(w, (uint32_t)(all - r.used + 1));
    assert_status(hki_data_plan_return(w->p, id + 1, EACH, r.id, end),
                  HK_E_NOT_FOUND); // not that owner's
    if (r.used > 0)
        assert_status(hki_data_plan_return(w->p, id, EACH, r.id, r.used - 1),
                      HK_E_INVALID_ARG);
    assert_ok(
        hki_data_plan_return(w->p, id, EACH, r.id, whole ? HK_RANGE_ALL : end));
    use(w, &r, end);
    o->range[i] = o->range[--o->n];
}

// One event; false: everything is done.
static bool step(world *w, int64_t chunk) {
    const uint64_t id = dice(w, OWNERS);
    owner *const o = &w->owners[id];
    const uint32_t what = dice(w, 10);
    if (what == 0) {
        die(w, id);
    } else if (what == 1) {
        save_and_restore(w);
    } else if (what < 6 && o->n > 0) {
        give_back(w, id);
    } else if (o->n < HELD) {
        hk_range r;
        const hk_status s = take_one(w->p, id, &r);
        assert_int_equal(hki_data_plan_used_up(w->p), s == HK_E_END);
        if (s == HK_E_END)
            return false;
        if (s == HK_E_UNAVAILABLE)
            return true;
        assert_ok(s);
        assert_in_range(r.end - r.begin, 1, chunk);
        o->range[o->n++] = r;
    }
    return true;
}

static void test_each_once(void **state) {
    (void)state;
    static const struct {
        int64_t units, epochs, chunk;
        uint32_t workers;
    } cases[] = {{1, 1, 1, 0},    {7, 2, 1, 1},  {100, 3, 6, 1},
                 {640, 2, 10, 4}, {50, 2, 3, 0}, {101, 4, 1, 6}};
    for (uint64_t seed = 0; seed < 60; seed++) {
        const size_t c = seed % HKI_COUNT(cases);
        world w = {.units = cases[c].units, .epochs = cases[c].epochs};
        const hk_lent_set set = {.name = "set",
                                 .units = w.units,
                                 .epochs = w.epochs,
                                 .workers = cases[c].workers};
        hki_rng_init(&w.rng, seed, 77);
        const size_t n = (size_t)(w.units * w.epochs * PER_UNIT);
        w.used = calloc(n, sizeof *w.used);
        uint32_t number;
        uint64_t order;
        assert_ok(hki_data_plan_create(&w.p));
        assert_ok(hki_data_plan_declare(w.p, &set, &number, &order));
        int steps = 0;
        while (step(&w, cases[c].chunk))
            assert_true(++steps < 1000000);
        for (size_t i = 0; i < n; i++)
            if (w.used[i] != 1)
                fail_msg("seed %llu: example %zu was used %d times",
                         (unsigned long long)seed, i, w.used[i]);
        free(w.used);
        hki_data_plan_destroy(w.p);
    }
}

// ---- the rules one by one --------------------------------------------------

static void take_is(hki_data_plan *p, uint64_t who, int64_t epoch,
                    int64_t begin, int64_t end, hk_range *out) {
    hk_range r;
    assert_ok(take_one(p, who, &r));
    if (r.epoch != epoch || r.begin != begin || r.end != end)
        fail_msg("lent [%lld, %lld) of epoch %lld", (long long)r.begin,
                 (long long)r.end, (long long)r.epoch);
    if (out != NULL)
        *out = r;
}

static void test_rules(void **state) {
    (void)state;
    hki_data_plan *p;
    hk_range a, b, r;
    uint32_t set;
    uint64_t seed;
    assert_ok(hki_data_plan_create(&p));
    assert_false(hki_data_plan_used_up(p));
    assert_status(take_one(p, 1, &r), HK_E_NOT_FOUND);
    hk_lent_set s = {.name = "s", .units = 64, .epochs = 2, .seed = 9};
    assert_ok(hki_data_plan_declare(p, &s, &set, &seed)); // ranges of 4
    take_is(p, 1, 0, 0, 4, &a);
    take_is(p, 2, 0, 4, 8, &b);
    // One that has been begun comes back as it is, before anything else.
    assert_ok(hki_data_plan_return(p, 2, EACH, b.id, 3));
    take_is(p, 3, 0, 4, 8, &b);
    assert_int_equal(b.used, 3);
    // Whole ones are joined and cut anew.
    take_is(p, 4, 0, 8, 12, NULL);
    take_is(p, 4, 0, 12, 16, NULL);
    assert_true(hki_data_plan_expire(p, 4));
    assert_false(hki_data_plan_expire(p, 4));
    take_is(p, 1, 0, 8, 12, NULL);
    take_is(p, 1, 0, 12, 16, NULL);
    // Counted by any process of a worker, if asked so.
    assert_status(hki_data_plan_return(p, 1 | 256, EACH, a.id, HK_RANGE_ALL),
                  HK_E_NOT_FOUND);
    assert_ok(hki_data_plan_return(p, 1 | 256, 255, a.id, HK_RANGE_ALL));
    assert_status(hki_data_plan_return(p, 1, EACH, a.id, HK_RANGE_ALL),
                  HK_E_NOT_FOUND);
    // The next epoch begins while ranges of this one are out.
    for (int64_t i = 16; i <= 48; i += 4)
        take_is(p, 5, 0, i, i + 4, NULL);
    take_is(p, 5, 0, 52, 55, NULL); // a quarter of the rest
    take_is(p, 5, 0, 55, 57, NULL);
    for (int64_t i = 57; i < 64; i++)
        take_is(p, 5, 0, i, i + 1, NULL);
    take_is(p, 5, 1, 0, 4, NULL);
    hki_data_plan_destroy(p);
    hki_data_plan_destroy(NULL);
}

// Two ranges are never more than 1 / (2 live) of what is left, and what is held
// already comes off it.
static void test_sizes(void **state) {
    (void)state;
    hki_data_plan *p;
    hk_range r;
    uint32_t set;
    uint64_t seed;
    const hk_lent_set s = {.name = "s", .units = 6000, .epochs = 2};
    for (uint32_t live = 0; live <= 5; live++) {
        const int64_t n = live > 0 ? live : 1;
        int64_t left = s.units;
        assert_ok(hki_data_plan_create(&p));
        assert_ok(hki_data_plan_declare(p, &s, &set, &seed));
        int64_t before = 0;
        while (left > 0) {
            const hki_taker t = {.owner = 1, .live = live, .holds = before};
            assert_ok(hki_data_plan_take(p, set, &t, &r));
            const int64_t got = r.end - r.begin;
            assert_int_equal(r.epoch, 0);
            assert_true(got == 1 || (before + got) * 2 * n <= left);
            assert_true(got >= HKI_MIN(left / (8 * n), 375));
            left -= got;
            before = got;
        }
        const hki_taker full = {.owner = 1, .live = live, .holds = 3000 / n};
        assert_ok(hki_data_plan_take(p, set, &full, &r));
        assert_int_equal(r.epoch, 1);
        assert_int_equal(r.end, 1);
        hki_data_plan_destroy(p);
    }
}

static void test_sets(void **state) {
    (void)state;
    hki_data_plan *p;
    uint32_t set;
    uint64_t seed;
    hk_range r;
    assert_ok(hki_data_plan_create(&p));
    hk_lent_set s = {
        .name = "train", .fingerprint = 7, .units = 1, .epochs = 1, .seed = 3};
    assert_ok(hki_data_plan_declare(p, &s, &set, &seed));
    assert_int_equal(set, 0);
    // The first one's seed holds, and the most epochs.
    s.seed = 4;
    s.epochs = 2;
    assert_ok(hki_data_plan_declare(p, &s, &set, &seed));
    assert_int_equal(seed, 3);
    s.epochs = 1;
    assert_ok(hki_data_plan_declare(p, &s, &set, &seed));
    assert_ok(take_one(p, 1, &r));
    assert_ok(take_one(p, 1, &r));
    assert_int_equal(r.epoch, 1);
    assert_status(take_one(p, 1, &r), HK_E_UNAVAILABLE);
    // Another set of this name, and the sentence names both.
    s.fingerprint = 8;
    assert_status(hki_data_plan_declare(p, &s, &set, &seed), HK_E_INVALID_ARG);
    assert_non_null(strstr(hk_last_error(), "0000000000000008"));
    assert_non_null(strstr(hk_last_error(), "0000000000000007"));
    s.name = "other";
    assert_ok(hki_data_plan_declare(p, &s, &set, &seed));
    assert_int_equal(set, 1);
    // What makes no sense.
    const hk_lent_set bad[] = {
        {.name = NULL, .units = 1, .epochs = 1},
        {.name = "", .units = 1, .epochs = 1},
        {.name = "a\nb", .units = 1, .epochs = 1},
        {.name = "none", .units = 0, .epochs = 1},
        {.name = "none", .units = -5, .epochs = 1},
        {.name = "none", .units = 5, .epochs = 0},
        {.name = "none", .units = 5, .epochs = -2},
        {.name = "none", .units = HKI_PLAN_UNITS + 1, .epochs = 1},
        {.name = "none", .units = 5, .epochs = HKI_PLAN_EPOCHS + 1},
        {.name = "none", .units = 5, .epochs = 1, .workers = UINT32_MAX},
    };
    for (size_t i = 0; i < HKI_COUNT(bad); i++)
        assert_status(hki_data_plan_declare(p, &bad[i], &set, &seed),
                      HK_E_INVALID_ARG);
    for (int i = 2; i <= HKI_PLAN_SETS; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        s.name = name;
        assert_status(hki_data_plan_declare(p, &s, &set, &seed),
                      i < HKI_PLAN_SETS ? HK_OK : HK_E_RANGE);
    }
    hki_data_plan_destroy(p);
}

// Nobody hoards without end.
static void test_hoarder(void **state) {
    (void)state;
    hki_data_plan *p;
    uint32_t set;
    uint64_t seed;
    hk_range r;
    const hk_lent_set s = {.name = "s", .units = HKI_PLAN_UNITS, .epochs = -1};
    assert_ok(hki_data_plan_create(&p));
    assert_ok(hki_data_plan_declare(p, &s, &set, &seed));
    for (int i = 0; i < HKI_PLAN_HELD; i++)
        assert_ok(take_one(p, 1, &r));
    assert_status(take_one(p, 1, &r), HK_E_RANGE);
    assert_ok(take_one(p, 2, &r));
    hki_data_plan_destroy(p);
}

// ---- bytes -----------------------------------------------------------------

static hki_data_plan *some_plan(void) {
    hki_data_plan *p;
    uint32_t set;
    uint64_t seed;
    hk_range r;
    const hk_lent_set s = {.name = "some", .units = 500, .epochs = 3};
    assert_ok(hki_data_plan_create(&p));
    assert_ok(hki_data_plan_declare(p, &s, &set, &seed));
    for (uint64_t i = 0; i < 20; i++)
        assert_ok(take_one(p, i % 4, &r));
    (void)hki_data_plan_expire(p, 2);
    return p;
}

// Whatever is wrong with the bytes is refused, or is a plan that works.
static void test_bad_bytes(void **state) {
    (void)state;
    hki_data_plan *const p = some_plan();
    hki_data_plan *other;
    hki_buf b = {0};
    assert_ok(hki_data_plan_create(&other));
    assert_ok(hki_data_plan_save(p, &b));
    uint8_t *const bytes = (uint8_t *)b.data;
    for (size_t n = 0; n < b.size; n++)
        assert_status(hki_data_plan_restore(other, bytes, n, "test"),
                      HK_E_DATA);
    for (size_t i = 0; i < b.size; i++)
        for (int bit = 0; bit < 8; bit++) {
            bytes[i] ^= (uint8_t)(1 << bit);
            const hk_status s =
                hki_data_plan_restore(other, bytes, b.size, "test");
            if (s != HK_E_DATA)
                assert_ok(s);
            hk_range r;
            if (s == HK_OK && take_one(other, 9, &r) == HK_OK) {
                assert_true(r.begin >= 0 && r.begin < r.end);
                (void)hki_data_plan_expire(other, 0);
                (void)hki_data_plan_expire(other, 9);
            }
            bytes[i] ^= (uint8_t)(1 << bit);
        }
    assert_ok(hki_data_plan_restore(other, bytes, b.size, "test"));
    hki_buf_deinit(&b);
    hki_data_plan_destroy(other);
    hki_data_plan_destroy(p);
}

static hk_status life(void *user) {
    (void)user;
    hki_data_plan *p;
    hk_range r;
    hki_buf b = {0};
    uint32_t set;
    uint64_t seed;
    const hk_lent_set l = {.name = "life", .units = 64, .epochs = 2};
    HKI_TRY(hki_data_plan_create(&p));
    hk_status s = hki_data_plan_declare(p, &l, &set, &seed);
    for (uint64_t i = 0; i < 20 && s == HK_OK; i++)
        s = take_one(p, i % 3, &r);
    (void)hki_data_plan_expire(p, 1);
    if (s == HK_OK)
        s = hki_data_plan_save(p, &b);
    if (s == HK_OK)
        s = hki_data_plan_restore(p, (const uint8_t *)b.data, b.size, "life");
    hki_buf_deinit(&b);
    hki_data_plan_destroy(p);
    return s;
}

static void test_allocation_failures(void **state) {
    (void)state;
    hk_test_alloc_failures("plan of the data", life, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_once),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_sets),
        cmocka_unit_test(test_hoarder),
        cmocka_unit_test(test_bad_bytes),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
