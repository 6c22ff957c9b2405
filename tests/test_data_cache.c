// test_data_cache.c - caches in files: complete or not there, one writer at a
// time, crashes, damage.
#include "hk_data.h"
#include "base/io.h"
#include <errno.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64], path[96], lock_path[128];

static int set_up(void **state) {
    const char *const tmp = getenv("TMPDIR");
    (void)state;
    snprintf(folder, sizeof folder, "%.40s/hooke-cache-XXXXXX",
             tmp != NULL && strlen(tmp) <= 40 ? tmp : P_tmpdir);
    if (mkdtemp(folder) == NULL)
        return 1;
    snprintf(path, sizeof path, "%s/elements", folder);
    snprintf(lock_path, sizeof lock_path, "%s.lockfile", path);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    (void)unlink(path);
    assert_ok(hki_clear_temporary(folder, NULL));
    return rmdir(folder); // fails when something was left behind
}

// Elements of every kind: numbers, strings, unequal shapes; counts calls.
typedef struct source {
    int at, calls;
} source;

static hk_status create(void *user, void **state) {
    source *const s = user;
    s->at = 0;
    *state = s;
    return HK_OK;
}

static hk_status next(void *user, void *state, hk_builder *b) {
    source *const s = user;
    (void)state;
    if (s->at == 6)
        return HK_E_END;
    const int64_t n = s->at++ % 4;
    const hk_shape shape = hk_shape_make(1, &n);
    hk_tensor *x, *w;
    hk_status e = hk_builder_tensor(b, "x", &shape, &x);
    if (e == HK_OK)
        e = hk_builder_tensor(b, "w", NULL, &w);
    for (int64_t i = 0; e == HK_OK && i < n; i++)
        ((float *)hk_tensor_data(x))[i] = (float)(10 * s->at + i);
    if (e == HK_OK)
        e = hk_tensor_set_string(w, 0, "a string longer than its own cell",
                                 (size_t)(5 * s->at));
    s->calls++;
    return e;
}

static hk_dataset *cached(source *s) {
    const hk_generator g = {.user = s, .create = create, .next = next};
    const hk_value spec[] = {
        {.name = "x", .dtype = HK_F32, .shape = {.rank = 1, .dim = {-1}}},
        {.name = "w", .dtype = HK_STRING}};
    return hk_data_cache(hk_data_generator(&g, spec, 2), path);
}

static const char *const once =
    "-;'a str' 20;'a string l' 30,31;'a string longer' "
    "40,41,42;'a string longer than' -;'a string longer than its ' "
    "60;'a string longer than its own c'";

// The text of the source without a cache, for the constant above.
static void test_complete_and_reused(void **state) {
    (void)state;
    source s = {0};
    char twice[1024];
    snprintf(twice, sizeof twice, "%s %s", once, once);
    char *got = hk_run_text(hk_data_repeat(cached(&s), 2), 1, -1);
    // The first element has an empty vector and five characters.
    assert_int_equal(strncmp(got, "-;'a str'", 9), 0);
    assert_string_equal(got, twice);
    free(got);
    assert_int_equal(s.calls, 6); // the second pass came from the file
    assert_true(hki_path_exists(path));
    assert_false(hki_path_exists(lock_path));
    // Another iterator, another process: no call at all.
    hk_check_run("again", cached(&s), -1, once);
    hk_check_run("again, prefetched", hk_data_prefetch(cached(&s), 3), -1,
                 once);
    assert_int_equal(s.calls, 6);
}

// A pass that is left early leaves nothing behind.
static void test_left_early(void **state) {
    (void)state;
    source s = {0};
    hk_dataset *d = cached(&s);
    hk_iter *it = NULL;
    const hk_element *e;
    assert_ok(hk_iter_create(d, NULL, &it));
    for (int i = 0; i < 6; i++)
        assert_ok(hk_iter_next(it, &e));
    assert_false(hki_path_exists(path)); // the end was not seen yet
    assert_true(hki_path_exists(lock_path));
    hk_iter_destroy(it);
    assert_false(hki_path_exists(path));
    assert_false(hki_path_exists(lock_path));
    // take() above never reaches the end: every pass starts anew.
    char *got = hk_run_text(hk_data_repeat(hk_data_take(d, 2), 2), 1, -1);
    assert_string_equal(got, "-;'a str' 20;'a string l' -;'a str' 20;'a "
                             "string l'");
    free(got);
    assert_false(hki_path_exists(path));
}

static void test_one_writer(void **state) {
    (void)state;
    source s = {0}, other = {0};
    hk_dataset *d = cached(&s), *q = cached(&other);
    hk_iter *a = NULL, *b = NULL;
    const hk_element *e;
    assert_ok(hk_iter_create(d, NULL, &a));
    assert_ok(hk_iter_create(q, NULL, &b));
    assert_ok(hk_iter_next(a, &e));
    assert_status(hk_iter_next(b, &e), HK_E_EXISTS);
    while (hk_iter_next(a, &e) == HK_OK)
        ;
    hk_iter_destroy(b);
    hk_iter_destroy(a);
    hk_check_run("after the other", q, -1, once);
    assert_int_equal(other.calls, 0);
    hk_dataset_release(d);
}

// A process that dies in the middle: nothing is taken for complete, and the
// next one takes over.
static void test_crash(void **state) {
    (void)state;
    source s = {0};
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        hk_dataset *d = cached(&s);
        hk_iter *it = NULL;
        const hk_element *e;
        int good = hk_iter_create(d, NULL, &it) == HK_OK;
        for (int i = 0; i < 4; i++)
            good = good && hk_iter_next(it, &e) == HK_OK;
        _exit(good ? 7 : 8); // no clean end
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        assert_int_equal(errno, EINTR);
    assert_int_equal(WEXITSTATUS(status), 7);
    assert_true(hki_path_exists(lock_path)); // left behind, held by nobody
    assert_false(hki_path_exists(path));
    hk_check_run("after the crash", cached(&s), -1, once);
    assert_int_equal(s.calls, 6);
    assert_true(hki_path_exists(path));
}

static void write_file(const uint8_t *bytes, size_t size) {
    assert_ok(hki_file_replace(path, bytes, size, false));
}

// Every byte wrong, every length: an error with the path, or the elements as
// they were; never anything else.
static void test_damage(void **state) {
    (void)state;
    source s = {0};
    hk_check_run("fresh", cached(&s), -1, once);
    uint8_t *good = NULL;
    size_t size = 0;
    assert_ok(hki_file_read_all(path, 1 << 20, &good, &size));
    uint8_t *const bad = malloc(size);
    for (size_t i = 0; i < size; i++) {
        memcpy(bad, good, size);
        bad[i] ^= 0x21;
        write_file(bad, size);
        hk_dataset *d = cached(&s);
        hk_iter *it = NULL;
        const hk_element *e;
        hk_status status = hk_iter_create(d, NULL, &it);
        while (status == HK_OK)
            status = hk_iter_next(it, &e);
        // The count in the header is not needed for reading.
        const bool header = i >= 16 && i < 24;
        if (header ? status != HK_E_END
                   : status != HK_E_DATA && status != HK_E_INVALID_ARG)
            fail_msg("byte %zu: %s (%s)", i, hk_status_string(status),
                     hk_last_error());
        if (!header)
            assert_non_null(strstr(hk_last_error(), path));
        hk_iter_destroy(it);
        hk_dataset_release(d);
    }
    for (size_t n = 0; n < size; n += 5) {
        write_file(good, n);
        char *got = hk_run_text(cached(&s), 1, 1);
        assert_string_equal(got, "HK_E_DATA");
        free(got);
    }
    // The cache of another pipeline.
    write_file(good, size);
    char *got = hk_run_text(hk_data_cache(hk_range(3), path), 1, 1);
    assert_string_equal(got, "HK_E_INVALID_ARG");
    free(got);
    // Something else.
    write_file((const uint8_t *)"words", 5);
    free(hk_run_text(hk_data_cache(hk_range(3), path), 1, 1));
    assert_non_null(strstr(hk_last_error(), "is not a cache file: it has only "
                                            "5 bytes; remove it to create a "
                                            "new one"));
    free(bad);
    hki_free(good);
    assert_int_equal(s.calls, 6);
}

// Disks that fail: an error, and no half file. Where only the text of the lock
// file or its removal fails, the cache is complete.
static void test_faults(void **state) {
    (void)state;
    int harmless = 0;
    for (uint64_t n = 1;; n++) {
        source s = {0};
        hk_dataset *d = cached(&s);
        hk_iter *it = NULL;
        const hk_element *e;
        assert_ok(hk_iter_create(d, NULL, &it));
        hki_io_fail_at(n, HKI_IO_ONE_FAILS, ENOSPC);
        hk_status status = HK_OK;
        while (status == HK_OK)
            status = hk_iter_next(it, &e);
        const bool hit = hki_io_fault_hit();
        hki_io_fail_at(0, HKI_IO_ONE_FAILS, 0);
        hk_iter_destroy(it);
        hk_dataset_release(d);
        if (!hit) {
            assert_int_equal(status, HK_E_END);
            break;
        }
        if (status == HK_E_END) {
            source unused = {0};
            hk_check_run("complete", cached(&unused), -1, once);
            assert_int_equal(unused.calls, 0);
            assert_ok(hki_file_remove(path));
            harmless++;
            continue;
        }
        assert_int_equal(status, HK_E_IO);
        assert_false(hki_path_exists(path));
        assert_ok(hki_clear_temporary(folder, NULL));
    }
    assert_int_equal(harmless, 3); // emptied, written, removed
    source s = {0};
    hk_check_run("in the end", cached(&s), -1, once);
    assert_int_equal(s.calls, 0);
    assert_ok(hki_file_remove(path));
    // A folder that is not there.
    char nowhere[128];
    snprintf(nowhere, sizeof nowhere, "%s/none/elements", folder);
    char *got = hk_run_text(hk_data_cache(hk_range(3), nowhere), 1, 1);
    assert_int_equal(strncmp(got, "HK_E_", 5), 0);
    free(got);
}

static hk_status fill_and_read(void *user) {
    hk_dataset *d = hk_data_repeat(
        hk_data_cache(hk_data_batch(hk_range(5), 2, 0), path), 2);
    hk_iter *it = NULL;
    const hk_element *e;
    (void)user;
    hk_status s = hk_iter_create(d, NULL, &it);
    while (s == HK_OK)
        s = hk_iter_next(it, &e);
    hk_iter_destroy(it);
    hk_dataset_release(d);
    (void)unlink(path);
    return s == HK_E_END ? HK_OK : s;
}

static void test_allocation_failures(void **state) {
    (void)state;
    hk_test_alloc_failures("file cache", fill_and_read, NULL);
}

#define IN_FOLDER(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_complete_and_reused),
        IN_FOLDER(test_left_early),
        IN_FOLDER(test_one_writer),
        IN_FOLDER(test_crash),
        IN_FOLDER(test_damage),
        IN_FOLDER(test_faults),
        IN_FOLDER(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
