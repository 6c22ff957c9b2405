// test_plugin.c - the engine as a plug-in of this program, which has one inside
// as well, and files that are no engine.
#include <limits.h>
#include <unistd.h>
#include "hk_test.h"
#include "backend/plugin.h"

#ifdef HKI_HAVE_ONEDNN

// The file of that name beside this program.
static const char *beside(const char *name, char out[static PATH_MAX]) {
    char self[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = '\0';
    *strrchr(self, '/') = '\0';
    assert_true(snprintf(out, PATH_MAX, "%s/%s", self, name) < PATH_MAX);
    return out;
}

static const hki_backend *engine(void) {
    char path[PATH_MAX];
    const hki_backend *be = NULL;
    assert_ok(
        hki_plugin_load("onednn", beside("../libhooke_engine.so", path), &be));
    return be;
}

// The plug-in's messages are the ones of this thread.
static void one_last_error(void **state) {
    (void)state;
    const hki_backend *const be = engine();
    const hki_device_options none = {.isa = HK_ISA_BASE};
    hki_device *d;
    assert_true(be != hki_engine_inside());
    assert_string_equal(be->name, "onednn");
    assert_string_equal(be->version(), hki_engine_inside()->version());
    assert_status(be->device_open(&none, &d), HK_E_INVALID_ARG);
    assert_string_equal(hk_last_error(), "device: 0 threads");
}

static hk_status open_and_close(void *arg) {
    const hki_backend *const be = arg;
    const hki_device_options one = {.threads = 1, .isa = HK_ISA_BASE};
    hki_device *d;
    hki_queue *q;
    HKI_TRY(be->device_open(&one, &d));
    const hk_status s = be->queue_create(d, &q);
    if (s == HK_OK)
        be->queue_destroy(q);
    be->device_close(d);
    return s;
}

// So is its memory: the counters see it, and it ends as any other.
static void one_allocator(void **state) {
    (void)state;
    const hki_backend *const be = engine();
    const uint64_t before = hki_alloc_count();
    assert_ok(open_and_close((void *)(uintptr_t)be));
    assert_true(hki_alloc_count() > before);
    hk_test_alloc_failures("plug-in", open_and_close, (void *)(uintptr_t)be);
}

static void refuses(const char *file, const char *sentence) {
    const hki_backend *be = NULL;
    assert_status(hki_plugin_load("onednn", file, &be), HK_E_BACKEND);
    assert_null(be);
    if (strstr(hk_last_error(), sentence) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", hk_last_error(), sentence);
}

static void what_is_no_engine(void **state) {
    (void)state;
    char path[PATH_MAX];
    refuses("libhooke_abacus.so",
            "libhooke_abacus.so: cannot open shared object file");
    refuses("/dev/null", "backend onednn: cannot be loaded");
    refuses("libm.so.6", "libm.so.6 is not a plug-in of Hooke");
    refuses(beside("libold_build.so", path),
            "belongs to another build (Hooke 0.0.9) than this library (");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_last_error),
        cmocka_unit_test(one_allocator),
        cmocka_unit_test(what_is_no_engine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void) {
    return 77; // this build has no engine
}

#endif
