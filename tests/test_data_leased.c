// test_data_leased.c - one worker's part of a set: shares and lent ranges,
// positions, and the books of what was used.
#include "data/data.h"
#include "cluster/center/data_plan.h"
#include "hk_test.h"
#include "hooke/data.h"
#include "hooke/divide.h"

enum { N = 100 };

static hk_dataset *numbers(int64_t n) {
    hk_tensor *t;
    const hk_shape shape = hk_shape_make(1, (int64_t[]){n});
    assert_ok(hk_tensor_create(HK_I64, shape, &t));
    for (int64_t i = 0; i < n; i++)
        ((int64_t *)hk_tensor_data(t))[i] = i;
    const hk_value v = {.name = "value",
                        .role = HK_FEATURE,
                        .form = HK_DENSE_FORM,
                        .dtype = HK_I64,
                        .shape = shape,
                        .tensor = t};
    hk_dataset *const d = hk_data_slices(&v, 1);
    hk_tensor_release(t);
    return d;
}

static int64_t number_of(const hk_element *e) {
    return *(const int64_t *)hk_tensor_data(e->values[0].tensor);
}

static hk_status no_sevens(void *user, const hk_element *e, int *keep) {
    (void)user;
    *keep = number_of(e) % 7 != 0;
    return HK_OK;
}

// Whose examples are more, or fewer, than its units.
static hk_dataset *filtered(int64_t n) {
    return hk_data_filter(numbers(n), no_sevens, NULL);
}

// Takes the dataset; up to `most` numbers.
static int read_all(hk_dataset *d, int64_t *out, int most) {
    hk_iter *it;
    const hk_element *e;
    int n = 0;
    assert_ok(hk_iter_create(d, NULL, &it));
    while (n < most && hk_iter_next(it, &e) == HK_OK)
        out[n++] = number_of(e);
    hk_iter_destroy(it);
    hk_dataset_release(d);
    return n;
}

// ---- shares ------------------------------------------------------------------

// In every epoch the shares together are the set, and nobody has the same one
// again.
static void check_shares(hk_dataset *(*make)(int64_t n), uint32_t parts) {
    int seen[3][N] = {{0}};
    for (uint32_t part = 0; part < parts; part++) {
        hk_lender l = {.part = part, .parts = parts};
        int64_t got[3 * N + 1], again[3 * N + 1];
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            hk_dataset *const d = hk_data_leased(make(N), &l, 5, 16);
            // One pass after the other, of which the last is looked at.
            const int n =
                read_all(hk_data_repeat(d, epoch + 1), got, 3 * N + 1);
            const int before =
                epoch == 0
                    ? 0
                    : read_all(hk_data_repeat(
                                   hk_data_leased(make(N), &l, 5, 16), epoch),
                               again, 3 * N + 1);
            assert_memory_equal(got, again, (size_t)before * sizeof *got);
            for (int i = before; i < n; i++)
                seen[epoch][got[i]]++;
        }
    }
    for (int epoch = 0; epoch < 3; epoch++)
        for (int i = 0; i < N; i++) {
            const int want = make == filtered && i % 7 == 0 ? 0 : 1;
            if (seen[epoch][i] != want)
                fail_msg("%u workers: %d came %d times in epoch %d", parts, i,
                         seen[epoch][i], epoch);
        }
}

static void test_shares(void **state) {
    (void)state;
    for (uint32_t parts = 1; parts <= 7; parts += 3) {
        check_shares(numbers, parts);
        check_shares(filtered, parts);
    }
    // More workers than examples: some have none.
    hk_lender l = {.part = 4, .parts = 5};
    int64_t got[4];
    assert_int_equal(read_all(hk_data_leased(numbers(3), &l, 1, 0), got, 4), 0);
    // Epochs differ, seeds differ, and without a seed it is as it is.
    l = (hk_lender){.part = 1, .parts = 4};
    assert_int_equal(
        read_all(hk_data_leased(numbers(8), &l, HK_SEED_NONE, 0), got, 4), 2);
    assert_int_equal(got[0], 2);
    assert_int_equal(got[1], 3);
}

// A position in the middle of an epoch goes on with the same examples.
static void check_position(hk_dataset *(*make)(int64_t n)) {
    hk_lender l = {.part = 1, .parts = 2};
    for (int stop = 0; stop < 120; stop += 17) {
        hk_iter *a, *b;
        const hk_element *e;
        hk_dataset *const d = hk_data_batch(
            hk_data_repeat(hk_data_leased(make(N), &l, 9, 8), HK_DATA_FOREVER),
            1, 1);
        assert_ok(hk_iter_create(d, NULL, &a));
        assert_ok(hk_iter_create(d, NULL, &b));
        for (int i = 0; i < stop; i++)
            assert_ok(hk_iter_next(a, &e));
        size_t size;
        assert_ok(hk_iter_save(a, NULL, 0, &size));
        void *const bytes = malloc(size);
        assert_ok(hk_iter_save(a, bytes, size, &size));
        assert_ok(hk_iter_restore(b, bytes, size));
        for (int i = 0; i < 130; i++) {
            const hk_element *f;
            assert_ok(hk_iter_next(a, &e));
            const int64_t want = number_of(e);
            assert_ok(hk_iter_next(b, &f));
            assert_int_equal(number_of(f), want);
        }
        free(bytes);
        hk_iter_destroy(a);
        hk_iter_destroy(b);
        hk_dataset_release(d);
    }
}

static void test_position(void **state) {
    (void)state;
    check_position(numbers);
    check_position(filtered);
}

// ---- a plan that lends ---------------------------------------------------------

// The reader takes while the trainer gives back.
static pthread_mutex_t counter = PTHREAD_MUTEX_INITIALIZER;

static atomic_int n_taken; // ranges

typedef struct bank {
    hki_data_plan *p; // under the lock
    uint64_t owner;
} bank;

static hk_status declare(void *user, uint64_t fingerprint, int64_t units,
                         uint64_t *seed) {
    const bank *const b = user;
    uint32_t set;
    const hk_lent_set want = {.name = "set",
                              .fingerprint = fingerprint,
                              .units = units,
                              .epochs = 2,
                              .seed = *seed};
    pthread_mutex_lock(&counter);
    const hk_status s = hki_data_plan_declare(b->p, &want, &set, seed);
    pthread_mutex_unlock(&counter);
    return s;
}

static hk_status take(void *user, hki_lease *out, int64_t *used) {
    const bank *const b = user;
    hk_range r;
    pthread_mutex_lock(&counter);
    const hk_status s =
        hki_data_plan_take(b->p, 0, &(hki_taker){.owner = b->owner}, &r);
    pthread_mutex_unlock(&counter);
    atomic_fetch_add(&n_taken, s == HK_OK);
    if (s != HK_OK)
        return s == HK_E_UNAVAILABLE ? HK_E_END : s;
    *out = (hki_lease){r.id, r.epoch, r.begin, r.end};
    *used = r.used;
    return HK_OK;
}

static void open_lender(hk_lender *l, bank *b) {
    *l = (hk_lender){.declare = declare, .take = take, .user = b};
    assert_ok(hki_lender_init(l));
}

static void finish_used(hk_lender *l, const bank *b) {
    uint64_t id;
    while (hki_lender_finished(l, &id)) {
        pthread_mutex_lock(&counter);
        const hk_status s =
            hki_data_plan_return(b->p, b->owner, UINT64_MAX, id, HK_RANGE_ALL);
        pthread_mutex_unlock(&counter);
        assert_ok(s);
    }
}

// As a trainer does.
static hk_status next(hk_iter *it, hk_lender *l, int64_t batch,
                      const hk_element **e) {
    hki_lender_wait(l, batch);
    const hk_status s = hk_iter_next(it, e);
    hki_lender_wait(l, 0);
    return s;
}

// Reads ahead, uses some of it in batches and leaves; what it has not used is
// for whoever comes next. Over both epochs everything is used exactly once.
static void check_lent(hk_dataset *(*make)(int64_t n)) {
    hki_data_plan *p;
    int seen[N] = {0};
    assert_ok(hki_data_plan_create(&p));
    for (uint64_t visit = 0; !hki_data_plan_used_up(p); visit++) {
        assert_true(visit < 100);
        bank b = {.p = p, .owner = visit};
        hk_lender l;
        hk_iter *it;
        const hk_element *e;
        open_lender(&l, &b);
        hk_dataset *const d = hk_data_prefetch(
            hk_data_batch(hk_data_leased(make(N), &l, 3, 8), 4, 0), 3);
        assert_ok(hk_iter_create(d, NULL, &it));
        for (uint64_t i = 0; i < 1 + visit % 5; i++) {
            if (next(it, &l, 4, &e) != HK_OK) {
                hki_lender_use(&l, INT64_MAX);
                break;
            }
            const hk_tensor *const t = e->values[0].tensor;
            const int64_t n = hk_tensor_count(t);
            for (int64_t k = 0; k < n; k++)
                seen[(
                    (const int64_t *)hk_tensor_data(e->values[0].tensor))[k]]++;
            hki_lender_use(&l, n);
            finish_used(&l, &b);
        }
        hk_iter_destroy(it);
        hk_dataset_release(d);
        uint64_t id;
        int64_t used;
        while (hki_lender_release(&l, &id, &used))
            assert_ok(hki_data_plan_return(p, visit, UINT64_MAX, id, used));
        hki_lender_deinit(&l);
        assert_false(hki_data_plan_expire(p, visit));
    }
    hki_data_plan_destroy(p);
    for (int i = 0; i < N; i++) {
        const int want = make == filtered && i % 7 == 0 ? 0 : 2;
        if (seen[i] != want)
            fail_msg("%d was used %d times", i, seen[i]);
    }
}

static void test_lent(void **state) {
    (void)state;
    check_lent(numbers);
    check_lent(filtered);
}

// The reader holds one range in use and one ahead, however much it could read
// ahead; a batch that is longer than both is given nevertheless.
static void test_ahead(void **state) {
    (void)state;
    static const int64_t batches[] = {2, 40};
    for (size_t k = 0; k < HKI_COUNT(batches); k++) {
        bank b = {.owner = 1};
        hk_lender l;
        hk_iter *it;
        const hk_element *e;
        atomic_store(&n_taken, 0);
        assert_ok(hki_data_plan_create(&b.p));
        open_lender(&l, &b);
        hk_dataset *const d = hk_data_prefetch(
            hk_data_batch(hk_data_leased(numbers(N), &l, 3, 0), batches[k], 0),
            N);
        assert_ok(hk_iter_create(d, NULL, &it));
        int64_t used = 0;
        for (int i = 0; i < 3; i++) {
            assert_ok(next(it, &l, batches[k], &e));
            const int before = atomic_load(&n_taken);
            nanosleep(&(struct timespec){0, 50000000}, NULL);
            // Ranges are of N / 16 at most.
            const int64_t whole = (used + batches[k]) / (N / 16);
            if (k == 0 && atomic_load(&n_taken) > whole + 2)
                fail_msg("%d ranges were taken", atomic_load(&n_taken));
            assert_in_range(atomic_load(&n_taken), before, before + 1);
            used += batches[k];
            hki_lender_use(&l, batches[k]);
            finish_used(&l, &b);
        }
        hk_iter_destroy(it);
        hk_dataset_release(d);
        hki_lender_deinit(&l);
        hki_data_plan_destroy(b.p);
    }
}

// ---- what cannot be ------------------------------------------------------------

static void test_misfits(void **state) {
    (void)state;
    hk_lender l = {.part = 0, .parts = 2};
    hk_dataset *d =
        hk_data_leased(hk_data_shuffle(numbers(9), 4, 1, 1), &l, 1, 0);
    assert_status(hk_dataset_status(d), HK_E_UNSUPPORTED);
    hk_dataset_release(d);
    d = hk_data_leased(numbers(9), NULL, 1, 0);
    assert_status(hk_dataset_status(d), HK_E_INVALID_ARG);
    hk_dataset_release(d);
    d = numbers(9);
    assert_int_equal(hk_dataset_unit_count(d), 9);
    assert_true(hk_lender_divides(&l, d));
    assert_false(hk_lender_divides(NULL, d));
    l.parts = 10; // more than there is
    assert_false(hk_lender_divides(&l, d));
    d = hk_data_batch(d, 3, 0);
    assert_int_equal(hk_dataset_unit_count(d), -1);
    assert_int_equal(hki_dataset_batch(d), 3);
    d = hk_data_prefetch(d, 1);
    assert_int_equal(hki_dataset_batch(d), 3);
    hk_dataset_release(d);
    d = numbers(2);
    assert_int_equal(hki_dataset_batch(d), -1);
    hk_dataset_release(d);
    hki_lender_deinit(&l);
}

static hk_status life(void *user) {
    hki_data_plan *p = NULL;
    hk_lender l = {.part = 0};
    hk_iter *it = NULL;
    const hk_element *e;
    hk_status s = hki_data_plan_create(&p);
    bank b = {.p = p, .owner = 1};
    l = (hk_lender){.declare = declare, .take = take, .user = &b};
    if (s == HK_OK)
        s = hki_lender_init(&l);
    hk_dataset *d = NULL;
    if (s == HK_OK) {
        d = hk_data_leased(hk_dataset_retain(user), &l, 3, 8);
        s = hk_dataset_status(d);
    }
    if (s == HK_OK)
        s = hk_iter_create(d, NULL, &it);
    for (int i = 0; i < 20 && s == HK_OK; i++)
        if ((s = next(it, &l, 1, &e)) == HK_OK)
            hki_lender_use(&l, 1);
    hk_iter_destroy(it);
    hk_dataset_release(d);
    hki_lender_deinit(&l);
    hki_data_plan_destroy(p);
    return s;
}

static void test_allocation_failures(void **state) {
    (void)state;
    hk_dataset *const d = filtered(30);
    hk_test_alloc_failures("leased", life, d);
    hk_dataset_release(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_position),
        cmocka_unit_test(test_lent),
        cmocka_unit_test(test_ahead),
        cmocka_unit_test(test_misfits),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
