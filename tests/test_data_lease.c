// test_data_lease.c - leases: what one worker was lent of an epoch.
#include "data/data.h"
#include "hk_data.h"
#include "hk_files.h"

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
    hk_check_run("a part of what a filter leaves",
                 hk_data_part(odd_rows(hk_range(20)), 3, 1, 4), -1,
                 "4.5 5.5 6.5 7.5");
    hk_check_run("the last of a part",
                 hk_data_part(hk_data_skip(hk_range(20), 7), 2, 1, 4), -1,
                 "15 16 17 18 19");
    hk_check_run("one of too many", hk_data_part(hk_range(2), 5, 0, 0), -1,
                 "0");
    hk_check_run("the last of too many", hk_data_part(hk_range(2), 5, 4, 0), -1,
                 "");
    hk_check_run("a large batch",
                 hk_data_part(hk_data_skip(hk_range(9), 7), 2, 0, INT64_MAX),
                 -1, "7 8");
    hk_check_refused(hk_data_part(hk_range(2), 2, 2, 0), HK_E_INVALID_ARG,
                     "part 2 of 2");
    hk_check_refused(hk_data_part(hk_data_batch(hk_range(4), 2, 0), 2, 1, 0),
                     HK_E_UNSUPPORTED, "cannot be divided");
    hk_check_run(
        "an empty lease",
        hki_data_lease(hk_range(20), &(hki_lease){.begin = 20, .end = 20}, 1),
        -1, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_permutation),
        cmocka_unit_test(test_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
