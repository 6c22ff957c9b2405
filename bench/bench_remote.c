// bench_remote csv|tfrecord FILE STEP_MS - how long a trainer waits for data.
//
// Batches of 64 from FILE, a path or a URL, behind a prefetch; a step takes
// STEP_MS and, as on a device, leaves the processor to others. One pass; prints
// a line of JSON: bytes that were read, seconds, and the share of them spent in
// hk_iter_next. The first batch, before which nothing can be computed, is not
// part of it.
#include "base/base.h"
#include "fetch/fetch.h"
#include "hooke/data.h"
#include "hooke/files.h"

static void check(hk_status s) {
    if (s == HK_OK)
        return;
    fprintf(stderr, "bench_remote: %s\n", hk_last_error());
    exit(1);
}

static void compute(int64_t ns) {
    const struct timespec t = {.tv_sec = ns / 1000000000,
                               .tv_nsec = ns % 1000000000};
    nanosleep(&t, NULL);
}

static double waited(const hk_iter *it) {
    hk_iter_info info;
    check(hk_iter_get_info(it, &info));
    return info.wait_seconds;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    const char *const file = argv[2];
    const int64_t step_ns = (int64_t)(1e6 * strtod(argv[3], NULL));
    hk_dataset *d = strcmp(argv[1], "csv") == 0
                        ? hk_data_csv(&file, 1, NULL)
                        : hk_data_tfrecord(&file, 1, NULL);
    d = hk_data_prefetch(hk_data_batch(d, 64, 1), HK_DATA_AUTO);
    hk_iter *it;
    const hk_element *e;
    check(hk_dataset_status(d));
    check(hk_iter_create(d, NULL, &it));
    check(hk_iter_next(it, &e));
    const int64_t begin = hki_now_ns();
    const double before = waited(it);
    hk_status s;
    while ((s = hk_iter_next(it, &e)) == HK_OK)
        compute(step_ns);
    if (s != HK_E_END)
        check(s);
    const double seconds = 1e-9 * (double)(hki_now_ns() - begin);
    fprintf(stdout, "{\"bytes\": %llu, \"seconds\": %.3f, \"wait\": %.4f}\n",
            (unsigned long long)hki_input_bytes(), seconds,
            (waited(it) - before) / seconds);
    hk_iter_destroy(it);
    hk_dataset_release(d);
    return 0;
}
