// test_ckpt_io.c - files that appear whole or not at all, and the injector of
// faults that the other tests rely on.
#include "ckpt_util.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>

static void test_paths(void **state) {
    (void)state;
    static const struct {
        const char *path, *folder, *name;
    } cases[] = {
        {"a", ".", "a"},         {"a/b", "a", "b"},  {"/a", "/", "a"},
        {"/a/b/c", "/a/b", "c"}, {"a//b", "a", "b"}, {"a/", "a", ""},
        {"../x", "..", "x"},     {"//a", "/", "a"},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        char *folder_of;
        assert_ok(hki_path_folder(cases[i].path, &folder_of));
        assert_string_equal(folder_of, cases[i].folder);
        assert_string_equal(hki_path_name(cases[i].path), cases[i].name);
        hki_free(folder_of);
    }
    assert_true(hki_path_is_dir("/"));
    assert_false(hki_path_exists("/no such thing"));
}

static void test_read(void **state) {
    (void)state;
    folder d;
    char path[512], text[16] = {0};
    uint8_t *bytes;
    size_t size;
    int fd;
    uint64_t total;
    folder_make(&d);
    write_file(folder_path(&d, "f", path), "hello", 5);
    assert_ok(hki_file_read_all(path, 5, &bytes, &size));
    assert_int_equal(size, 5);
    assert_string_equal((char *)bytes, "hello");
    hki_free(bytes);
    assert_status(hki_file_read_all(path, 4, &bytes, &size), HK_E_DATA);
    assert_ok(hki_file_open_read(path, &fd, &total));
    assert_int_equal(total, 5);
    assert_ok(hki_file_read_at(fd, path, 1, text, 3));
    assert_string_equal(text, "ell");
    assert_status(hki_file_read_at(fd, path, 3, text, 3), HK_E_DATA);
    assert_message("3 bytes were expected from byte 3 on, but there are 2");
    assert_int_equal(truncate(path, 0), 0);
    assert_status(hki_file_read_at(fd, path, 0, text, 1), HK_E_DATA);
    hki_file_close_read(fd);
    hki_file_close_read(-1);
    assert_status(hki_file_open_read(d.path, &fd, &total), HK_E_IO);
    assert_status(hki_file_open_read(folder_path(&d, "g", path), &fd, &total),
                  HK_E_NOT_FOUND);
    assert_message(path);
    folder_remove(&d);
}

static void test_replace(void **state) {
    (void)state;
    folder d;
    char path[512], temp[512];
    size_t size;
    folder_make(&d);
    folder_path(&d, "f", path);
    folder_path(&d, ".f.hooke-tmp", temp);
    write_file(path, "old", 3);
    // What a crash left is taken over, whatever is in it.
    write_file(temp, "a longer text of a writer that died", 35);
    assert_ok(hki_file_replace(path, "new!", 4, true));
    uint8_t *const bytes = read_file(path, &size);
    assert_int_equal(size, 4);
    assert_memory_equal(bytes, "new!", 4);
    free(bytes);
    assert_int_equal(count_files(d.path), 1);
    // What a living writer has is not.
    const int fd = open(temp, O_RDWR | O_CREAT, 0600);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_status(hki_file_replace(path, "x", 1, true), HK_E_EXISTS);
    assert_ok(hki_clear_temporary(d.path, NULL));
    assert_int_equal(count_files(d.path), 2);
    close(fd);
    size_t removed = 0;
    assert_ok(hki_clear_temporary(d.path, &removed));
    assert_int_equal(removed, 1);
    assert_int_equal(count_files(d.path), 1);
    // A link is not followed out of the folder.
    assert_int_equal(symlink("/nowhere/else", temp), 0);
    assert_status(hki_file_replace(path, "x", 1, true), HK_E_IO);
    assert_ok(hki_file_remove(path));
    assert_ok(hki_file_remove(path)); // is not there any more
    folder_remove(&d);
}

static hk_status remove_two(void *user, const char *path) {
    int *const n = user;
    return ++*n > 2 ? HK_E_END : hki_file_remove(path);
}

static void test_folder_list(void **state) {
    (void)state;
    static const char *const names[] = {"b", ".c", "a.txt", "folder"};
    static const char *const sorted[] = {".c", "a.txt", "b", "folder"};
    folder d;
    char path[512];
    hki_paths all = {0};
    folder_make(&d);
    assert_ok(hki_folder_list(d.path, &all));
    assert_int_equal(all.count, 0);
    for (int i = 0; i < 3; i++) {
        folder_path(&d, names[i], path);
        write_file(path, "", 0);
    }
    folder_path(&d, names[3], path);
    assert_ok(hki_folder_make(path));
    assert_ok(hki_folder_list(d.path, &all));
    assert_int_equal(all.count, 4);
    for (size_t i = 0; i < 4; i++) {
        folder_path(&d, sorted[i], path);
        assert_string_equal(all.items[i], path);
    }
    assert_true(hki_paths_have(&all, path));
    assert_false(hki_paths_have(&all, "folder"));
    hki_paths_deinit(&all);
    folder_path(&d, "folder", path);
    assert_int_equal(rmdir(path), 0);
    // The first failure ends it; what was visited may be gone by then.
    int n = 0;
    assert_int_equal(hki_folder_each(d.path, remove_two, &n), HK_E_END);
    assert_int_equal(count_files(d.path), 1);
    assert_status(hki_folder_list("/nowhere/at/all", &all), HK_E_NOT_FOUND);
    assert_string_equal(hk_last_error(), "/nowhere/at/all: cannot list: No "
                                         "such file or directory");
    folder_remove(&d);
}

// Which calls a replace makes, and what each one's failure leaves.
static void test_faults(void **state) {
    (void)state;
    static const char *const calls[] = {"open",  "truncate", "write",
                                        "fsync", "rename",   "fsync_dir"};
    folder d;
    char path[512];
    folder_make(&d);
    folder_path(&d, "f", path);
    for (int fault = HKI_IO_ONE_FAILS; fault <= HKI_IO_POWER_CUT; fault++) {
        write_file(path, "old!", 4);
        for (size_t n = 1; n <= HKI_COUNT(calls); n++) {
            size_t size;
            hki_io_fail_at(n, (hki_io_fault)fault, ENOSPC);
            const hk_status s = hki_file_replace(path, "new!", 4, true);
            assert_true(hki_io_fault_hit());
            hki_io_fail_at(0, HKI_IO_ONE_FAILS, 0);
            if (s != HK_E_IO || strstr(hk_last_error(), "No space") == NULL)
                fail_msg("%s: %s", calls[n - 1], hk_status_string(s));
            uint8_t *const bytes = read_file(path, &size);
            assert_int_equal(size, 4);
            assert_memory_equal(bytes, n <= 5 ? "old!" : "new!", 4);
            free(bytes);
            if (fault == HKI_IO_ONE_FAILS)
                assert_int_equal(count_files(d.path), 1);
            assert_ok(hki_clear_temporary(d.path, NULL));
            assert_int_equal(count_files(d.path), 1);
        }
    }
    hki_io_fail_at(UINT64_MAX, HKI_IO_ONE_FAILS, EIO); // counts only
    assert_ok(hki_file_replace(path, "new!", 4, true));
    assert_int_equal(hki_io_count(), HKI_COUNT(calls));
    assert_false(hki_io_fault_hit());
    hki_io_fail_at(0, HKI_IO_ONE_FAILS, 0);
    // Half of a failing write is on the disk.
    hki_file *f;
    char temp[512];
    size_t size;
    assert_ok(hki_file_create(path, &f));
    hki_io_fail_at(1, HKI_IO_POWER_CUT, EIO);
    assert_status(hki_file_write(f, "12345678", 8), HK_E_IO);
    hki_file_discard(f); // cannot remove it any more
    hki_io_fail_at(0, HKI_IO_ONE_FAILS, 0);
    uint8_t *const bytes =
        read_file(folder_path(&d, ".f.hooke-tmp", temp), &size);
    assert_int_equal(size, 4);
    assert_memory_equal(bytes, "1234", 4);
    free(bytes);
    folder_remove(&d);
}

static void test_errors(void **state) {
    (void)state;
    static const struct {
        int error;
        hk_status status;
    } cases[] = {{ENOENT, HK_E_NOT_FOUND},
                 {ENOTDIR, HK_E_NOT_FOUND},
                 {EACCES, HK_E_DENIED},
                 {EPERM, HK_E_DENIED},
                 {EROFS, HK_E_DENIED},
                 {ENOSPC, HK_E_IO},
                 {EIO, HK_E_IO}};
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        assert_int_equal(hki_io_fail(cases[i].error, "x", "write"),
                         cases[i].status);
        assert_message("x: cannot write: ");
    }
}

static hk_status replace_body(void *user) {
    return hki_file_replace(user, "abc", 3, true);
}

static void test_alloc_failures(void **state) {
    (void)state;
    folder d;
    char path[512];
    folder_make(&d);
    folder_path(&d, "f", path);
    hk_test_alloc_failures("replace", replace_body, path);
    assert_int_equal(count_files(d.path), 1);
    folder_remove(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths),          cmocka_unit_test(test_read),
        cmocka_unit_test(test_replace),        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_folder_list),    cmocka_unit_test(test_errors),
        cmocka_unit_test(test_alloc_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
