// Inputs: bytes of files and pipes, from any place of them.
#include <pthread.h>
#include <sys/stat.h>
#include "fetch/fetch.h"
#include "file_util.h"
#include "hk_test.h"

#define SIZE 1000

static void fill(uint8_t *bytes) {
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 256);
}

// Everything from here on, in reads of `step`, is what `bytes` has from `at`.
static void read_rest(hki_input *in, const uint8_t *bytes, size_t at,
                      size_t step) {
    uint8_t out[SIZE];
    size_t got;
    do {
        assert_ok(hki_input_read(in, out, step, &got));
        assert_true(got <= SIZE - at);
        assert_memory_equal(out, bytes + at, got);
        at += got;
    } while (got > 0);
    assert_int_equal(at, SIZE);
}

static void test_file(void **state) {
    (void)state;
    folder d;
    char path[512];
    uint8_t bytes[SIZE], head[HKI_INPUT_PEEK];
    hki_input *in;
    uint64_t size;
    size_t got;
    fill(bytes);
    folder_make(&d);
    write_file(folder_path(&d, "file", path), bytes, SIZE);
    assert_ok(hki_input_open(path, &in));
    assert_string_equal(hki_input_path(in), path);
    assert_true(hki_input_size(in, &size));
    assert_int_equal(size, SIZE);
    assert_ok(hki_input_peek(in, head, 10, &got));
    assert_int_equal(got, 10);
    assert_ok(hki_input_peek(in, head, sizeof head, &got));
    assert_memory_equal(head, bytes, sizeof head);
    read_rest(in, bytes, 0, 77);
    for (size_t at = 0; at <= SIZE; at += 250) {
        assert_ok(hki_input_seek(in, at));
        assert_ok(hki_input_peek(in, head, sizeof head, &got));
        assert_int_equal(got, HKI_MIN(sizeof head, SIZE - at));
        assert_memory_equal(head, bytes + at, got);
        read_rest(in, bytes, at, 333);
    }
    assert_status(hki_input_seek(in, SIZE + 1), HK_E_DATA);
    hki_input_close(in);
    hki_input_close(NULL);
    assert_status(hki_input_open("/no/such/file", &in), HK_E_NOT_FOUND);
    folder_remove(&d);
}

static void *write_pipe(void *path) {
    uint8_t bytes[SIZE];
    fill(bytes);
    FILE *const f = fopen(path, "wb");
    assert_non_null(f);
    for (size_t i = 0; i < SIZE; i += 50) { // in pieces, as pipes give them
        assert_int_equal(fwrite(bytes + i, 1, 50, f), 50);
        fflush(f);
    }
    fclose(f);
    return NULL;
}

// A pipe gives its bytes once: those that were peeked at are not lost.
static void test_pipe(void **state) {
    (void)state;
    folder d;
    char path[512];
    uint8_t bytes[SIZE], head[HKI_INPUT_PEEK];
    hki_input *in;
    uint64_t size;
    size_t got;
    pthread_t writer;
    fill(bytes);
    folder_make(&d);
    assert_int_equal(mkfifo(folder_path(&d, "pipe", path), 0600), 0);
    assert_int_equal(pthread_create(&writer, NULL, write_pipe, path), 0);
    assert_ok(hki_input_open(path, &in));
    assert_false(hki_input_size(in, &size));
    assert_ok(hki_input_peek(in, head, sizeof head, &got));
    assert_int_equal(got, sizeof head);
    assert_memory_equal(head, bytes, sizeof head);
    read_rest(in, bytes, 0, 100);
    assert_status(hki_input_seek(in, 0), HK_E_IO);
    hki_input_close(in);
    pthread_join(writer, NULL);
    folder_remove(&d);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_pipe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
