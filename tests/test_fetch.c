// Inputs: bytes of files and pipes, from any place of them; and what is read
// of servers' answers and of ~/.aws. tests/remote has the servers.
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include "fetch/fetch.h"
#include "fetch/remote/http.h"
#include "file_util.h"
#include "hk_test.h"
#include "hooke/files.h"

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
    assert_ok(hki_input_open(path, NULL, &in));
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
    assert_status(hki_input_open("/no/such/file", NULL, &in), HK_E_NOT_FOUND);
    folder_remove(&d);
}

static hk_status open_and_peek(void *path) {
    hki_input *in;
    uint8_t head[10];
    size_t got;
    HKI_TRY(hki_input_open(path, NULL, &in));
    const hk_status s = hki_input_peek(in, head, sizeof head, &got);
    hki_input_close(in);
    return s;
}

static void test_head(void **state) {
    (void)state;
    folder d;
    char path[512];
    uint8_t bytes[SIZE], head[2 * SIZE];
    size_t got;
    fill(bytes);
    folder_make(&d);
    write_file(folder_path(&d, "file", path), bytes, SIZE);
    assert_ok(hk_file_head(path, head, 10, &got));
    assert_int_equal(got, 10);
    assert_ok(hk_file_head(path, head, sizeof head, &got));
    assert_int_equal(got, SIZE);
    assert_memory_equal(head, bytes, SIZE);
    assert_status(hk_file_head(NULL, head, 10, &got), HK_E_INVALID_ARG);
    assert_status(hk_file_head("/no/such/file", head, 10, &got),
                  HK_E_NOT_FOUND);
    hk_test_alloc_failures("input", open_and_peek, path);
    folder_remove(&d);
}

typedef struct seen {
    const char *path;
    uint64_t first, n; // bytes in a row, from the first one on
    bool ended;
    uint8_t bytes[SIZE];
} seen;

static void see(void *user, const char *path, const hk_file_state *state,
                uint64_t offset, const void *bytes, size_t size) {
    seen *const s = user;
    assert_string_equal(path, s->path);
    assert_int_equal(state->size, SIZE);
    if (s->n == 0)
        s->first = offset;
    assert_int_equal(offset, s->first + s->n);
    assert_true(offset + size <= SIZE);
    memcpy(s->bytes + offset, bytes, size);
    s->n += size;
    s->ended = size == 0;
}

static hk_status observe_nothing(void *path) {
    seen s = {.path = path};
    return hk_file_observe(path, 0, see, &s);
}

// Bytes that were peeked at are reported once, as they are read.
static void test_observed(void **state) {
    (void)state;
    folder d;
    char path[512];
    uint8_t bytes[SIZE], head[HKI_INPUT_PEEK];
    hki_input *in;
    size_t got;
    fill(bytes);
    folder_make(&d);
    write_file(folder_path(&d, "file", path), bytes, SIZE);
    for (size_t at = 0; at <= SIZE; at += 250) {
        seen s = {.path = path}, again = {.path = path};
        assert_ok(hki_input_open(path, NULL, &in));
        assert_ok(hki_input_observe(in, see, &s));
        if (at > 0)
            assert_ok(hki_input_seek(in, at));
        assert_ok(hki_input_peek(in, head, sizeof head, &got));
        read_rest(in, bytes, at, 77);
        hki_input_close(in);
        assert_ok(hk_file_observe(path, at, see, &again));
        assert_true(s.ended && again.ended);
        assert_int_equal(s.first, at);
        assert_int_equal(again.first, at);
        assert_int_equal(s.n, SIZE - at);
        assert_int_equal(again.n, SIZE - at);
        assert_memory_equal(s.bytes + at, bytes + at, SIZE - at);
        assert_memory_equal(again.bytes + at, bytes + at, SIZE - at);
    }
    assert_status(hk_file_observe(path, SIZE + 1, see, NULL), HK_E_DATA);
    assert_status(hk_file_observe(NULL, 0, see, NULL), HK_E_INVALID_ARG);
    assert_status(hk_file_observe(path, 0, NULL, NULL), HK_E_INVALID_ARG);
    hk_test_alloc_failures("observe", observe_nothing, path);
    folder_remove(&d);
}

static void test_state(void **state) {
    (void)state;
    folder d;
    char path[512], pipe[512];
    uint8_t bytes[SIZE];
    hk_file_state s;
    fill(bytes);
    folder_make(&d);
    write_file(folder_path(&d, "file", path), bytes, SIZE);
    const struct timespec times[2] = {{5, 0}, {7, 11}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_ok(hk_file_get_state(path, &s));
    assert_int_equal(s.size, SIZE);
    assert_int_equal(s.modified_ns, 7000000011);
    assert_string_equal(s.tag, "");
    // Nobody waits for a pipe's writer.
    assert_int_equal(mkfifo(folder_path(&d, "pipe", pipe), 0600), 0);
    assert_ok(hk_file_get_state(pipe, &s));
    assert_int_equal(s.size, -1);
    assert_int_equal(s.modified_ns, 0);
    assert_status(hk_file_get_state("/no/such/file", &s), HK_E_NOT_FOUND);
    assert_status(hk_file_get_state("ftp://h/f", &s), HK_E_UNSUPPORTED);
    assert_status(hk_file_get_state(NULL, &s), HK_E_INVALID_ARG);
    assert_status(hk_file_get_state(path, NULL), HK_E_INVALID_ARG);
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
    assert_ok(hki_input_open(path, NULL, &in));
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

// ---- what servers and files say --------------------------------------------

static void test_urls(void **state) {
    (void)state;
    static const char *const urls[] = {"https://a/b", "s3://a", "gs://x"};
    static const char *const paths[] = {"a/b",  "/a",    "C:\\x", "://",
                                        "a:/b", "A://b", ""};
    for (size_t i = 0; i < HKI_COUNT(urls); i++)
        assert_true(hki_is_url(urls[i]));
    for (size_t i = 0; i < HKI_COUNT(paths); i++)
        assert_false(hki_is_url(paths[i]));
    hki_buf b = {0};
    assert_ok(hki_percent_encode(&b, "a b/\xc3\xbc+&%~", "/"));
    assert_string_equal(b.data, "a%20b/%C3%BC%2B%26%25~");
    hki_buf_deinit(&b);
}

static void assert_target(const char *path, const char *url) {
    hki_target *t;
    assert_ok(hki_target_make(path, &t));
    assert_string_equal(t->url, url);
    assert_string_equal(t->path, path);
    hki_target_destroy(t);
}

static hk_status make_target(void *path) {
    hki_target *t;
    HKI_TRY(hki_target_make(path, &t));
    hki_target_destroy(t);
    return HK_OK;
}

static void set_keys(void) {
    static const char *const unset[] = {
        "AWS_PROFILE",      "AWS_REGION",          "AWS_DEFAULT_REGION",
        "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "HOOKE_ALLOW_HTTP"};
    for (size_t i = 0; i < HKI_COUNT(unset); i++)
        unsetenv(unset[i]);
    setenv("HOME", "/no/such/folder", 1);
    setenv("AWS_ACCESS_KEY_ID", "id", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    setenv("AWS_SESSION_TOKEN", "token", 1);
}

// Where requests go, and who signs them.
static void test_targets(void **state) {
    (void)state;
    char path[] = "s3://bucket/c";
    hki_target *t;
    set_keys();
    assert_target("https://host/a?b=c", "https://host/a?b=c");
    assert_target("s3://bucket/a b/c",
                  "https://bucket.s3.us-east-1.amazonaws.com/a%20b/c");
    setenv("AWS_REGION", "eu-west-3", 1);
    assert_target("s3://my.bucket/c",
                  "https://s3.eu-west-3.amazonaws.com/my.bucket/c");
    setenv("AWS_ENDPOINT_URL", "https://store:9000/", 1);
    assert_target(path, "https://store:9000/bucket/c");
    setenv("AWS_ENDPOINT_URL_S3", "http://other", 1);
    assert_target(path, "http://other/bucket/c");
    assert_ok(hki_target_make(path, &t));
    assert_true(t->plain);
    assert_string_equal(t->sigv4, "aws:amz:eu-west-3:s3");
    assert_string_equal(t->key_id, "id");
    assert_string_equal(t->secret, "secret");
    assert_string_equal(t->token_header, "x-amz-security-token: token");
    hki_target_destroy(t);
    hk_test_alloc_failures("target", make_target, path);
    hki_target_destroy(NULL);
}

static void test_bad_targets(void **state) {
    (void)state;
    hki_target *t;
    set_keys();
    assert_status(hki_target_make("http://host/a", &t), HK_E_DENIED);
    assert_status(hki_target_make("s3://b/c", &t), HK_E_INVALID_ARG);
    assert_status(hki_target_make("s3://bucket", &t), HK_E_INVALID_ARG);
    assert_status(hki_target_make("ftp://host/a", &t), HK_E_UNSUPPORTED);
    setenv("AWS_REGION", "evil.host/", 1);
    assert_status(hki_target_make("s3://bucket/c", &t), HK_E_INVALID_ARG);
    setenv("AWS_ENDPOINT_URL", "ftp://other", 1);
    assert_status(hki_target_make("s3://bucket/c", &t), HK_E_INVALID_ARG);
}

static void test_content_range(void **state) {
    (void)state;
    uint64_t first, last, size;
    assert_true(hki_content_range("bytes 5-9/100", &first, &last, &size));
    assert_int_equal(first, 5);
    assert_int_equal(last, 9);
    assert_int_equal(size, 100);
    static const char *const bad[] = {"",
                                      "bytes",
                                      "bytes */100",
                                      "bytes 5-9/*",
                                      "bytes 9-5/100",
                                      "bytes 5-100/100",
                                      "bytes -5-9/100",
                                      "bytes 5-9/100 ",
                                      "bytes 5-9/100x",
                                      "items 5-9/100",
                                      "bytes 0-1/9223372036854775808",
                                      "bytes 0-1/99999999999999999999999"};
    for (size_t i = 0; i < HKI_COUNT(bad); i++)
        assert_false(hki_content_range(bad[i], &first, &last, &size));
}

static void test_ini(void **state) {
    (void)state;
    static const char text[] = "key = before\n"
                               "[one]\n# key = comment\nkey=1\r\n"
                               "  key = indented\n"
                               "[profile two]\n key = nested\nkey =  2 3 \n"
                               "empty =\nno equals\n[three\nkey = odd\n"
                               "[ one ]\nother = 4 = 5";
    static const struct {
        const char *section, *key, *value; // NULL: not there
    } cases[] = {{"one", "key", "1"},      {"two", "key", "odd"},
                 {"two", "empty", ""},     {"one", "other", "4 = 5"},
                 {"one", "missing", NULL}, {"three", "key", NULL},
                 {"profile", "key", NULL}, {"", "key", NULL}};
    char out[16];
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        const bool there = hki_ini_find(text, sizeof text - 1, cases[i].section,
                                        cases[i].key, out, sizeof out);
        assert_int_equal(there, cases[i].value != NULL);
        if (there)
            assert_string_equal(out, cases[i].value);
    }
    assert_false(hki_ini_find(text, sizeof text - 1, "one", "other", out, 5));
    assert_false(hki_ini_find(NULL, 0, "one", "key", out, sizeof out));
}

typedef struct keys {
    char text[256];
    size_t n;
} keys;

static hk_status add_key(void *user, const char *key) {
    keys *const k = user;
    const size_t at = strlen(k->text);
    snprintf(k->text + at, sizeof k->text - at, "%s|", key);
    k->n++;
    return HK_OK;
}

static hk_status page(const char *xml, keys *k, char *next, size_t capacity) {
    *k = (keys){.n = 0};
    return hki_s3_page(xml, strlen(xml), add_key, k, next, capacity);
}

static void test_pages(void **state) {
    (void)state;
    keys k;
    char next[32];
    assert_ok(page("<R><IsTruncated>false</IsTruncated><Contents><Key>a+b%2Fc"
                   "</Key><Size>1</Size></Contents><Contents><Key>d</Key>"
                   "</Contents></R>",
                   &k, next, sizeof next));
    assert_string_equal(k.text, "a b/c|d|");
    assert_string_equal(next, "");
    assert_ok(page("<IsTruncated>true</IsTruncated><NextContinuationToken>1/+="
                   "</NextContinuationToken>",
                   &k, next, sizeof next));
    assert_int_equal(k.n, 0);
    assert_string_equal(next, "1/+=");
    static const char *const bad[] = {
        "",
        "<html>welcome</html>",
        "<IsTruncated>true</IsTruncated>",
        "<IsTruncated>true</IsTruncated><NextContinuationToken>"
        "</NextContinuationToken>",
        "<IsTruncated>true</IsTruncated><NextContinuationToken>"
        "longer than there is room for here</NextContinuationToken>",
        "<IsTruncated>false</IsTruncated><Key>%0</Key>",
        "<IsTruncated>false</IsTruncated><Key>%00</Key>",
        "<IsTruncated>false</IsTruncated><Key>%zz</Key>"};
    for (size_t i = 0; i < HKI_COUNT(bad); i++)
        assert_status(page(bad[i], &k, next, sizeof next), HK_E_IO);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_head),
        cmocka_unit_test(test_observed),
        cmocka_unit_test(test_state),
        cmocka_unit_test(test_pipe),
        cmocka_unit_test(test_urls),
        cmocka_unit_test(test_targets),
        cmocka_unit_test(test_bad_targets),
        cmocka_unit_test(test_content_range),
        cmocka_unit_test(test_ini),
        cmocka_unit_test(test_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
