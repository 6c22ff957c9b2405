// test_event.c - what the event writer puts on disk: known bytes, histogram
// buckets, threads, one writer per folder, failures of the disk.
#include "codec_util.h"
#include "file_util.h"
#include <errno.h>
#include <float.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include "base/io.h"
#include "event/histogram.h"
#include "hooke/event.h"

static void open_at(const char *dir, double wall_time, hk_event_writer **w) {
    hk_event_options o;
    hk_event_options_init(&o, sizeof o);
    o.wall_time = wall_time;
    assert_ok(hk_event_open(dir, &o, w));
}

// The whole file of a writer, which is closed.
static uint8_t *close_and_read(hk_event_writer *w, size_t *size) {
    char path[512];
    snprintf(path, sizeof path, "%s", hk_event_path(w));
    assert_ok(hk_event_close(w));
    return read_file(path, size);
}

static size_t files_in(const char *dir) {
    DIR *const d = opendir(dir);
    assert_non_null(d);
    size_t n = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n;
}

// ---- bytes -----------------------------------------------------------------

#define VERSION_AT_1                                                           \
    "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a32" \
    "86bf577a"
#define LOSS_AT_2                                                              \
    "1a00000000000000129bd82d090000000000000040100a2a0d0a0b0a046c6f73731500"   \
    "00003f081add56"

static void test_known_bytes(void **state) {
    (void)state;
    folder d;
    folder_make(&d);
    hk_event_writer *w;
    size_t size;
    open_at(d.path, 1.0, &w);
    uint8_t *bytes = close_and_read(w, &size);
    assert_bytes("version", bytes, size, VERSION_AT_1);
    free(bytes);
    open_at(d.path, 2.0, &w);
    assert_ok(hk_event_scalar(w, "loss", 10, 0.5));
    bytes = close_and_read(w, &size);
    assert_true(size > 40);
    assert_bytes("scalar", bytes + 40, size - 40, LOSS_AT_2);
    free(bytes);
    folder_remove(&d);
}

// Each message, byte for byte, behind time 1.0 (and step 3).
static void test_messages(void **state) {
    (void)state;
    const hk_hparam params[] = {
        {.name = "opt", .type = HK_HPARAM_STRING, .string = "sgd"},
        {.name = "lr", .type = HK_HPARAM_NUMBER, .number = 0.5},
        {.name = "bn", .type = HK_HPARAM_BOOL, .number = 1}};
    const char *const metrics[] = {"acc"};
    const char *const tags[] = {"a", "b"};
    const double values[] = {0, -1};
    folder d;
    folder_make(&d);
    for (int i = 0; i < 7; i++) {
        hk_event_writer *w;
        open_at(d.path, 1.0, &w);
        const char *what = NULL, *hex = NULL;
        switch (i) {
        case 0:
            what = "two scalars";
            assert_ok(hk_event_scalars(w, 3, 2, tags, values));
            hex = "1003 2a14 0a08 0a0161 1500000000 0a08 0a0162 15000080bf";
            break;
        case 1:
            what = "text";
            assert_ok(hk_event_text(w, "t", 3, "hi"));
            hex = "1003 2a1b 0a19 0a0174 4208 0807 1200 42026869"
                  "4a0a 0a06 0a0474657874 2002";
            break;
        case 2:
            what = "session";
            assert_ok(hk_event_session(w, 3, 3, "m-3"));
            hex = "1003 3a07 0803 12036d2d33";
            break;
        case 3:
            what = "session start without a path";
            assert_ok(hk_event_session(w, 0, 1, NULL));
            hex = "3a02 0801";
            break;
        case 4:
            what = "hparams experiment";
            assert_ok(hk_event_hparams_experiment(w, NULL, params, 3, "eval",
                                                  metrics, 1));
            // As tensorboard 2.15 writes the same experiment.
            hex = "2a620a600a145f68706172616d735f2f6578706572696d656e74420608"
                  "01120212004a400a3e0a0768706172616d731233123119000000000000"
                  "f03f22070a036f7074200122060a026c72200322060a02626e20022a0d"
                  "0a0b0a046576616c1203616363";
            break;
        case 5:
            what = "hparams start";
            assert_ok(hk_event_hparams_start(w, "t1", params, 3));
            hex = "2a6f0a6d0a1c5f68706172616d735f2f73657373696f6e5f7374617274"
                  "5f696e666f42060801120212004a450a430a0768706172616d7312381a"
                  "360a0c0a036f707412051a037367640a0f0a026c721209110000000000"
                  "00e03f0a080a02626e120220012202743129000000000000f03f";
            break;
        default:
            what = "hparams end";
            assert_ok(hk_event_hparams_end(w, 0));
            hex = "2a42 0a40"
                  "0a1a5f68706172616d735f2f73657373696f6e5f656e645f696e666f"
                  "4206 0801 12021200 4a1a 0a18 0a0768706172616d73"
                  "120d 220b 0802 11000000000000f03f";
            break;
        }
        size_t size;
        uint8_t *const bytes = close_and_read(w, &size);
        // Behind the version's record, this header, and field 1.
        const size_t skip = 40 + 12 + 9;
        assert_true(size > skip + 4);
        assert_bytes(what, bytes + skip, size - skip - 4, hex);
        free(bytes);
    }
    folder_remove(&d);
}

static void test_file_name(void **state) {
    (void)state;
    folder d;
    folder_make(&d);
    char deep[512];
    folder_path(&d, "a/b//c/", deep);
    hk_event_options o;
    hk_event_options_init(&o, sizeof o);
    o.wall_time = 77;
    o.suffix = ".v2";
    hk_event_writer *w;
    assert_ok(hk_event_open(deep, &o, &w));
    const char *const name = strrchr(hk_event_path(w), '/') + 1;
    assert_memory_equal(name, "events.out.tfevents.0000000077.", 31);
    assert_string_equal(name + strlen(name) - 5, ".0.v2");
    assert_ok(hk_event_close(w));
    // A second writer of the same second has its own file.
    assert_ok(hk_event_open(deep, &o, &w));
    assert_non_null(strstr(hk_event_path(w), ".1.v2"));
    assert_ok(hk_event_close(w));
    assert_int_equal(files_in(deep), 2); // and no lock
    folder_remove(&d);
}

// ---- histograms ------------------------------------------------------------

// The limits as their definition has them, without a count known before.
static size_t limits_by_definition(double *out) {
    size_t side = 0;
    for (double v = 1e-12; v < 1e20; v *= 1.1)
        side++;
    const size_t zero = side + 1;
    double v = 1e-12;
    for (size_t i = 1; i <= side; i++, v *= 1.1) {
        out[zero + i] = v;
        out[zero - i] = -v;
    }
    out[zero] = 0;
    out[0] = -DBL_MAX;
    out[2 * zero] = DBL_MAX;
    return 2 * zero + 1;
}

static void test_histogram_limits(void **state) {
    (void)state;
    static double expected[4000];
    static hki_histogram_table t;
    hki_histogram_table_init(&t);
    assert_int_equal(limits_by_definition(expected), HKI_HISTOGRAM_LIMITS);
    for (size_t i = 0; i < HKI_HISTOGRAM_LIMITS; i++)
        assert_true(t.limit[i] == expected[i]);
}

// Every bucket of a plain search, for values of all sizes and at each limit.
static void test_histogram_buckets(void **state) {
    (void)state;
    static hki_histogram_table t;
    static hki_histogram h;
    hki_histogram_table_init(&t);
    hki_rng rng;
    hki_rng_init(&rng, 5, 0);
    for (size_t k = 0; k < 200000; k++) {
        uint32_t bits = hki_rng_u32(&rng);
        float v;
        memcpy(&v, &bits, sizeof v);
        if (k < 2 * HKI_HISTOGRAM_LIMITS) { // around each limit
            const double limit = t.limit[k / 2];
            v = fabs(limit) > (double)FLT_MAX ? 0 : (float)limit;
            if (k % 2)
                v = nextafterf(v, -FLT_MAX);
        }
        if (!isfinite(v))
            continue;
        hki_histogram_init(&h);
        hki_histogram_add(&h, &t, &v, 1);
        size_t expected = 0;
        while (t.limit[expected] <= (double)v)
            expected += expected + 64 < HKI_HISTOGRAM_LIMITS &&
                                t.limit[expected + 64] <= (double)v
                            ? 64
                            : 1;
        if (h.bucket[expected] != 1)
            fail_msg("%.9g is not in bucket %zu", (double)v, expected);
        assert_true(h.min == (double)v && h.max == (double)v && h.num == 1);
    }
}

static void test_histogram_counts(void **state) {
    (void)state;
    folder d;
    folder_make(&d);
    const float values[] = {0,   -0.0f,    1,         1,    -2,
                            NAN, INFINITY, -INFINITY, 1e30f};
    hk_event_writer *w;
    size_t skipped = 0;
    open_at(d.path, 1, &w);
    assert_ok(
        hk_event_histogram(w, "h", 1, values, HKI_COUNT(values), &skipped));
    assert_int_equal(skipped, 3);
    assert_ok(hk_event_histogram(w, "none", 2, NULL, 0, NULL));
    assert_ok(hk_event_close(w));
    hk_event_reader *r;
    hk_event e;
    assert_ok(hk_event_reader_open(d.path, &r));
    assert_ok(hk_event_next(r, &e)); // version
    assert_ok(hk_event_next(r, &e));
    assert_int_equal(e.kind, HK_EVENT_HISTOGRAM);
    assert_true(e.min == -2 && e.max == (double)1e30f && e.num == 6);
    assert_close(e.sum, (double)1e30f, 0, 1e-12);
    double total = 0;
    for (size_t i = 0; i < e.buckets; i++) {
        total += e.counts[i];
        assert_true(i == 0 || e.limits[i - 1] < e.limits[i]);
        // No two empty buckets in a row.
        assert_true(i == 0 || e.counts[i - 1] != 0 || e.counts[i] != 0);
        if (e.counts[i] == 2)
            assert_true(
                (i > 0 && e.limits[i - 1] == 0 && e.limits[i] == 1e-12) ||
                (e.limits[i - 1] <= 1 && e.limits[i] > 1));
    }
    assert_true(total == 6 && e.limits[e.buckets - 1] == DBL_MAX);
    assert_ok(hk_event_next(r, &e));
    assert_true(e.num == 0 && e.buckets == 1 && e.counts[0] == 0);
    hk_event_reader_close(r);
    folder_remove(&d);
}

// ---- images ----------------------------------------------------------------

static void test_image(void **state) {
    (void)state;
    folder d;
    folder_make(&d);
    uint8_t pixels[2 * 3 * 3];
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i * 13);
    hk_event_writer *w;
    open_at(d.path, 1, &w);
    const hk_status s = hk_event_image(w, "i", 1, pixels, 2, 3, 3);
    assert_ok(hk_event_flush(w));
    if (s == HK_E_UNSUPPORTED) {
        assert_ok(hk_event_close(w));
        folder_remove(&d);
        skip(); // built without PNG
    }
    assert_ok(s);
    const struct {
        int height, width, channels;
    } bad[] = {{0, 3, 3}, {2, -1, 3}, {2, 3, 2}, {2, 3, 5}, {70000, 3, 3}};
    for (size_t i = 0; i < HKI_COUNT(bad); i++)
        assert_status(hk_event_image(w, "i", 1, pixels, bad[i].height,
                                     bad[i].width, bad[i].channels),
                      HK_E_INVALID_ARG);
    assert_status(hk_event_image(w, "i", 1, NULL, 2, 3, 3), HK_E_INVALID_ARG);
    assert_ok(hk_event_close(w));
    hk_event_reader *r;
    hk_event e;
    assert_ok(hk_event_reader_open(d.path, &r));
    assert_ok(hk_event_next(r, &e));
    assert_ok(hk_event_next(r, &e));
    assert_int_equal(e.kind, HK_EVENT_IMAGE);
    assert_string_equal(e.text, "2x3x3");
    hki_picture p;
    assert_ok(picture_decode(e.bytes, e.size, 0, 100, "image", &p));
    assert_true(p.height == 2 && p.width == 3 && p.channels == 3);
    assert_memory_equal(p.pixels, pixels, sizeof pixels);
    hki_free(p.pixels);
    assert_int_equal(hk_event_next(r, &e), HK_E_END);
    hk_event_reader_close(r);
    folder_remove(&d);
}

// ---- arguments -------------------------------------------------------------

static void test_bad_arguments(void **state) {
    (void)state;
    folder d;
    folder_make(&d);
    hk_event_options o;
    hk_event_writer *w = NULL;
    const struct {
        const char *name, *suffix;
        double flush_seconds;
        size_t queue_bytes;
        double wall_time;
    } bad[] = {{"flush", NULL, -1, 1, 0},   {"flush", NULL, NAN, 1, 0},
               {"queue", NULL, 1, 0, 0},    {"wall", NULL, 1, 1, NAN},
               {"suffix", "/x", 1, 1, 0},   {"wall", NULL, 1, 1, INFINITY},
               {"flush", NULL, 1e300, 1, 0}};
    for (size_t i = 0; i < HKI_COUNT(bad); i++) {
        hk_event_options_init(&o, sizeof o);
        o.suffix = bad[i].suffix;
        o.flush_seconds = bad[i].flush_seconds;
        o.queue_bytes = bad[i].queue_bytes;
        o.wall_time = bad[i].wall_time;
        assert_status(hk_event_open(d.path, &o, &w), HK_E_INVALID_ARG);
        assert_non_null(strstr(hk_last_error(), bad[i].name));
    }
    assert_status(hk_event_open("", NULL, &w), HK_E_INVALID_ARG);
    assert_status(hk_event_open(NULL, NULL, &w), HK_E_INVALID_ARG);
    assert_null(w);
    assert_int_equal(files_in(d.path), 0);

    const hk_hparam odd = {.name = "x", .type = (hk_hparam_type)9};
    const hk_hparam no_string = {.name = "x", .type = HK_HPARAM_STRING};
    const hk_hparam no_name = {.name = "", .type = HK_HPARAM_NUMBER};
    assert_ok(hk_event_open(d.path, NULL, &w));
    assert_status(hk_event_scalar(w, NULL, 1, 1), HK_E_INVALID_ARG);
    assert_status(hk_event_scalar(w, "", 1, 1), HK_E_INVALID_ARG);
    assert_status(hk_event_scalar(w, "a\xff", 1, 1), HK_E_INVALID_ARG);
    assert_status(hk_event_scalar(NULL, "a", 1, 1), HK_E_INVALID_ARG);
    assert_status(hk_event_scalars(w, 1, 1, NULL, NULL), HK_E_INVALID_ARG);
    assert_status(hk_event_text(w, "a", 1, NULL), HK_E_INVALID_ARG);
    assert_status(hk_event_text(w, "a", 1, "\xc0"), HK_E_INVALID_ARG);
    assert_status(hk_event_session(w, 1, 4, NULL), HK_E_INVALID_ARG);
    assert_status(hk_event_session(w, 1, 3, "\xff"), HK_E_INVALID_ARG);
    assert_status(hk_event_histogram(w, "a", 1, NULL, 1, NULL),
                  HK_E_INVALID_ARG);
    assert_status(hk_event_hparams_start(w, "t", &odd, 1), HK_E_INVALID_ARG);
    assert_status(hk_event_hparams_start(w, "t", &no_string, 1),
                  HK_E_INVALID_ARG);
    assert_status(hk_event_hparams_start(w, "t", &no_name, 1),
                  HK_E_INVALID_ARG);
    assert_status(hk_event_hparams_start(w, NULL, NULL, 0), HK_E_INVALID_ARG);
    assert_status(hk_event_hparams_experiment(w, NULL, NULL, 1, NULL, NULL, 0),
                  HK_E_INVALID_ARG);
    assert_status(hk_event_flush(NULL), HK_E_INVALID_ARG);
    size_t size;
    free(close_and_read(w, &size));
    assert_int_equal(size, 40); // nothing but the version was written
    assert_ok(hk_event_close(NULL));
    folder_remove(&d);
}

// ---- one writer per folder -------------------------------------------------

static void test_second_writer(void **state) {
    (void)state;
    folder d;
    folder_make(&d);
    hk_event_writer *w, *second = NULL;
    assert_ok(hk_event_open(d.path, NULL, &w));
    assert_status(hk_event_open(d.path, NULL, &second), HK_E_EXISTS);
    assert_non_null(strstr(hk_last_error(), "this process"));
    assert_null(second);
    // From another process, too; and what a killed one held is free again.
    int pipe_fd[2];
    assert_int_equal(pipe(pipe_fd), 0);
    const pid_t refused = fork();
    if (refused == 0)
        _exit(hk_event_open(d.path, NULL, &second) == HK_E_EXISTS ? 0 : 1);
    int status;
    assert_int_equal(waitpid(refused, &status, 0), refused);
    assert_int_equal(status, 0);
    assert_ok(hk_event_close(w));
    const pid_t killed = fork();
    if (killed == 0) {
        const char done = hk_event_open(d.path, NULL, &w) == HK_OK ? 1 : 0;
        (void)!write(pipe_fd[1], &done, 1);
        pause();
        _exit(1);
    }
    char done = 0;
    assert_int_equal(read(pipe_fd[0], &done, 1), 1);
    assert_int_equal(done, 1);
    assert_status(hk_event_open(d.path, NULL, &second), HK_E_EXISTS);
    char pid[32];
    snprintf(pid, sizeof pid, "process %ld", (long)killed);
    assert_non_null(strstr(hk_last_error(), pid));
    kill(killed, SIGKILL);
    assert_int_equal(waitpid(killed, &status, 0), killed);
    assert_ok(hk_event_open(d.path, NULL, &w));
    assert_ok(hk_event_close(w));
    close(pipe_fd[0]);
    close(pipe_fd[1]);
    folder_remove(&d);
}

// ---- threads and flushing --------------------------------------------------

enum { THREADS = 4, EVENTS = 2000 };

typedef struct load {
    hk_event_writer *w;
    int id;
    hk_status failed;
} load;

static void *write_many(void *user) {
    load *const l = user;
    char tag[16];
    snprintf(tag, sizeof tag, "t%d", l->id);
    for (int i = 0; i < EVENTS && l->failed == HK_OK; i++) {
        l->failed = hk_event_scalar(l->w, tag, i, i * 0.5);
        if (i % 500 == 499 && l->failed == HK_OK)
            l->failed = hk_event_flush(l->w);
    }
    return NULL;
}

// Several threads through a queue that is far too small: nothing is lost and
// every thread's events keep their order.
static void test_threads(void **state) {
    (void)state;
    folder d;
    folder_make(&d);
    hk_event_options o;
    hk_event_options_init(&o, sizeof o);
    o.queue_bytes = 1000;
    hk_event_writer *w;
    assert_ok(hk_event_open(d.path, &o, &w));
    pthread_t id[THREADS];
    load loads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        loads[i] = (load){w, i, HK_OK};
        assert_int_equal(pthread_create(&id[i], NULL, write_many, &loads[i]),
                         0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(id[i], NULL);
        assert_int_equal(loads[i].failed, HK_OK);
    }
    assert_ok(hk_event_close(w));
    int next[THREADS] = {0};
    hk_event_reader *r;
    hk_event e;
    assert_ok(hk_event_reader_open(d.path, &r));
    assert_ok(hk_event_next(r, &e));
    while (hk_event_next(r, &e) == HK_OK) {
        const int t = e.tag[1] - '0';
        assert_true(t >= 0 && t < THREADS && e.step == next[t]);
        assert_true(e.scalar == (double)e.step * 0.5 && e.wall_time > 1e9);
        next[t]++;
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(next[i], EVENTS);
    hk_event_reader_close(r);
    folder_remove(&d);
}

static uint64_t file_size(const char *path) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (uint64_t)st.st_size;
}

// With a short time events come out by themselves; with a long one they stay
// until they are asked for.
static void test_flush_by_time(void **state) {
    (void)state;
    folder d;
    folder_make(&d);
    hk_event_options o;
    hk_event_options_init(&o, sizeof o);
    o.wall_time = 2;
    o.flush_seconds = 0.01;
    hk_event_writer *w;
    assert_ok(hk_event_open(d.path, &o, &w));
    assert_ok(hk_event_scalar(w, "loss", 10, 0.5));
    const int64_t deadline = hki_now_ns() + INT64_C(30000000000);
    while (file_size(hk_event_path(w)) < 40 + 42 && hki_now_ns() < deadline)
        usleep(1000);
    assert_int_equal(file_size(hk_event_path(w)), 40 + 42);
    assert_ok(hk_event_close(w));
    o.flush_seconds = 3600;
    assert_ok(hk_event_open(d.path, &o, &w));
    assert_ok(hk_event_scalar(w, "loss", 10, 0.5));
    assert_int_equal(file_size(hk_event_path(w)), 0);
    assert_ok(hk_event_flush(w));
    assert_int_equal(file_size(hk_event_path(w)), 40 + 42);
    assert_ok(hk_event_flush(w)); // nothing to do
    assert_ok(hk_event_scalar(w, "loss", 10, 0.5));
    size_t size;
    free(close_and_read(w, &size));
    assert_int_equal(size, 40 + 2 * 42);
    folder_remove(&d);
}

// An event larger than the queue passes alone.
static void test_large_event(void **state) {
    (void)state;
    folder d;
    folder_make(&d);
    hk_event_options o;
    hk_event_options_init(&o, sizeof o);
    o.queue_bytes = 64;
    char *const text = malloc(100001);
    memset(text, 'x', 100000);
    text[100000] = '\0';
    hk_event_writer *w;
    assert_ok(hk_event_open(d.path, &o, &w));
    for (int i = 0; i < 3; i++)
        assert_ok(hk_event_text(w, "plan", i, text));
    assert_ok(hk_event_close(w));
    hk_event_reader *r;
    hk_event e;
    assert_ok(hk_event_reader_open(d.path, &r));
    assert_ok(hk_event_next(r, &e));
    for (int i = 0; i < 3; i++) {
        assert_ok(hk_event_next(r, &e));
        assert_int_equal(e.kind, HK_EVENT_TEXT);
        assert_string_equal(e.text, text);
    }
    hk_event_reader_close(r);
    free(text);
    folder_remove(&d);
}

// ---- faults ----------------------------------------------------------------

// The disk fills up: the failure stays with the writer, and what was written
// before can be read.
static void test_disk_full(void **state) {
    (void)state;
    folder d;
    folder_make(&d);
    hk_event_writer *w;
    assert_ok(hk_event_open(d.path, NULL, &w));
    assert_ok(hk_event_scalar(w, "a", 1, 1));
    assert_ok(hk_event_flush(w));
    assert_ok(hk_event_scalar(w, "a", 2, 2));
    hki_io_fail_at(1, HKI_IO_ONE_FAILS, ENOSPC);
    assert_status(hk_event_flush(w), HK_E_IO);
    hki_io_fail_at(0, HKI_IO_ONE_FAILS, 0);
    assert_non_null(strstr(hk_last_error(), "events.out.tfevents"));
    assert_status(hk_event_scalar(w, "a", 3, 3), HK_E_IO);
    assert_status(hk_event_flush(w), HK_E_IO);
    assert_status(hk_event_close(w), HK_E_IO);
    hk_event_reader *r;
    hk_event e;
    assert_ok(hk_event_reader_open(d.path, &r));
    assert_ok(hk_event_next(r, &e));
    assert_ok(hk_event_next(r, &e));
    assert_true(e.scalar == 1);
    assert_int_equal(hk_event_next(r, &e), HK_E_END);
    assert_int_equal(hk_event_reader_truncated(r), 1); // half of the third
    hk_event_reader_close(r);
    folder_remove(&d);
}

static void count_line(void *user, hk_log_level level, const char *text) {
    *(int *)user += level == HK_LOG_WARNING &&
                    strstr(text, "No space left on device") != NULL;
}

// With somebody to tell it to, the writer does without the events that the
// disk does not take, says so once, and goes on when there is room.
static void test_disk_full_for_a_while(void **state) {
    (void)state;
    folder d;
    folder_make(&d);
    int told = 0;
    hk_context_options co;
    hk_context_options_init(&co, sizeof co);
    co.log = count_line;
    co.log_user = &told;
    hk_context *ctx;
    assert_ok(hk_context_create(&co, &ctx));
    hk_event_options o;
    hk_event_options_init(&o, sizeof o);
    o.context = ctx;
    hk_event_writer *w;
    assert_ok(hk_event_open(d.path, &o, &w));
    for (int i = 1; i <= 5; i++) {
        if (i == 2 || i == 3) // half of the record is on the disk
            hki_io_fail_at(1, HKI_IO_ONE_FAILS, ENOSPC);
        assert_ok(hk_event_scalar(w, "a", i, i));
        assert_ok(hk_event_flush(w));
        hki_io_fail_at(0, HKI_IO_ONE_FAILS, 0);
    }
    assert_ok(hk_event_close(w));
    assert_int_equal(told, 1);
    hk_event_reader *r;
    hk_event e;
    assert_ok(hk_event_reader_open(d.path, &r));
    assert_ok(hk_event_next(r, &e));
    for (int i = 1; i <= 5; i += i == 1 ? 3 : 1) {
        assert_ok(hk_event_next(r, &e));
        assert_true(e.scalar == i);
    }
    assert_int_equal(hk_event_next(r, &e), HK_E_END);
    assert_int_equal(hk_event_reader_truncated(r), 0);
    hk_event_reader_close(r);
    hk_context_destroy(ctx);
    folder_remove(&d);
}

static void test_cannot_create(void **state) {
    (void)state;
    folder d;
    folder_make(&d);
    hk_event_writer *w = NULL;
    char path[512];
    // A file where the folder should be.
    folder_path(&d, "file", path);
    write_file(path, "x", 1);
    assert_int_not_equal(hk_event_open(path, NULL, &w), HK_OK);
    folder_path(&d, "file/below", path);
    assert_int_not_equal(hk_event_open(path, NULL, &w), HK_OK);
    assert_non_null(strstr(hk_last_error(), path));
    // Each call that changes the folder fails once; nothing stays behind.
    folder_path(&d, "new", path);
    for (uint64_t n = 1;; n++) {
        hki_io_fail_at(n, HKI_IO_ONE_FAILS, EACCES);
        const hk_status s = hk_event_open(path, NULL, &w);
        const bool hit = hki_io_fault_hit();
        hki_io_fail_at(0, HKI_IO_ONE_FAILS, 0);
        if (!hit) {
            assert_int_equal(s, HK_OK);
            break;
        }
        if (s == HK_OK) // the thread's write met the fault
            hk_event_close(w);
        else
            assert_int_equal(hki_path_is_dir(path) ? files_in(path) : 0, 0);
        folder_remove_tree(path);
    }
    assert_ok(hk_event_close(w));
    folder_remove(&d);
}

static hk_status write_body(void *user) {
    const folder *const d = user;
    static const float values[] = {1, 2, 3};
    static const uint8_t pixels[4] = {1, 2, 3, 4};
    const hk_hparam p = {.name = "x", .type = HK_HPARAM_NUMBER, .number = 1};
    hk_event_writer *w;
    HKI_TRY(hk_event_open(d->path, NULL, &w));
    hk_status s = hk_event_scalar(w, "a", 1, 1);
    if (s == HK_OK)
        s = hk_event_histogram(w, "h", 1, values, 3, NULL);
    if (s == HK_OK)
        s = hk_event_text(w, "t", 1, "text");
    if (s == HK_OK)
        s = hk_event_session(w, 1, 3, "path");
    if (s == HK_OK)
        s = hk_event_hparams_experiment(w, "e", &p, 1, "g", NULL, 0);
    if (s == HK_OK)
        s = hk_event_hparams_start(w, "t", &p, 1);
    if (s == HK_OK)
        s = hk_event_hparams_end(w, 1);
    if (s == HK_OK) {
        s = hk_event_image(w, "i", 1, pixels, 2, 2, 1);
        s = s == HK_E_UNSUPPORTED ? HK_OK : s;
    }
    const hk_status closed = hk_event_close(w);
    return s != HK_OK ? s : closed;
}

static void test_failing_allocations(void **state) {
    (void)state;
    folder d;
    folder_make(&d);
    hk_test_alloc_failures("event writer", write_body, &d);
    // Whatever failed, no file is damaged.
    hk_event_reader *r;
    hk_event e;
    assert_ok(hk_event_reader_open(d.path, &r));
    hk_status s;
    while ((s = hk_event_next(r, &e)) == HK_OK)
        continue;
    assert_int_equal(s, HK_E_END);
    assert_int_equal(hk_event_reader_truncated(r), 0);
    hk_event_reader_close(r);
    folder_remove(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_bytes),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_file_name),
        cmocka_unit_test(test_histogram_limits),
        cmocka_unit_test(test_histogram_buckets),
        cmocka_unit_test(test_histogram_counts),
        cmocka_unit_test(test_image),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_second_writer),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_flush_by_time),
        cmocka_unit_test(test_large_event),
        cmocka_unit_test(test_disk_full),
        cmocka_unit_test(test_disk_full_for_a_while),
        cmocka_unit_test(test_cannot_create),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
