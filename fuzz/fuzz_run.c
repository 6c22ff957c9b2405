// fuzz_run.c - what the roles read from others: calls to the run's memory,
// limits, results of evaluations, and the run's file. The first byte chooses.
#include "base/base.h"
#include "base/io.h"
#include "cluster/center/run_memory.h"
#include "cluster/roles/roles.h"
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// A source that takes every byte as its state.
static hk_status take(void *user, uint64_t owner, hk_range *out) {
    (void)user;
    *out = (hk_range){owner, 0, 0, 1};
    return HK_OK;
}
static hk_status give_back(void *user, uint64_t owner, uint64_t id,
                           int64_t used_end) {
    (void)user;
    (void)owner;
    (void)id;
    return used_end == 0 ? hki_fail(HK_E_NOT_FOUND, "none") : HK_OK;
}
static hk_status expire(void *user, uint64_t owner) {
    (void)user;
    (void)owner;
    return HK_OK;
}
static hk_status save(void *user, void *buf, size_t capacity, size_t *size) {
    (void)user;
    (void)buf;
    (void)capacity;
    *size = 0;
    return HK_OK;
}
static hk_status restore(void *user, const void *bytes, size_t size) {
    (void)user;
    uint8_t sum = 0;
    for (size_t i = 0; i < size; i++)
        sum = (uint8_t)(sum + ((const uint8_t *)bytes)[i]);
    return sum == 7 ? hki_fail(HK_E_DATA, "seven") : HK_OK;
}
static const hk_range_source source = {NULL,   take, give_back,
                                       expire, save, restore};

// Calls, 32 bytes each, on a run memory without a file.
static void calls(const uint8_t *data, size_t size) {
    hki_run_memory *k;
    if (hki_run_memory_create(&source, NULL, &k) != HK_OK)
        return;
    for (; size >= 32; data += 32, size -= 32) {
        hki_msg_call call;
        hki_msg_result result;
        if (hki_body_get(&hki_body_call, data, 32, "fuzz", &call, NULL) ==
                HK_OK &&
            hki_run_memory_call(k, &call, &result) == HK_OK &&
            hki_result_check(&result, "fuzz") != HK_OK)
            __builtin_trap();
    }
    (void)hki_run_memory_lost(k, 1);
    hki_run_memory_destroy(k);
}

// The bytes as the run's file, as they are and with a checksum that fits.
static void file(const uint8_t *data, size_t size) {
    static char path[64];
    hki_run_memory *k;
    hki_buf b = {0};
    if (path[0] == '\0')
        snprintf(path, sizeof path, "fuzz-run-%d.tmp", (int)getpid());
    const uint64_t h = hki_hash(HKI_HASH_INIT, data, size);
    if (hki_buf_add(&b, data, size) == HK_OK &&
        hki_buf_add(&b, &h, sizeof h) == HK_OK)
        for (size_t n = size; n <= b.size; n += sizeof h) {
            if (hki_file_replace(path, b.data, n, false) == HK_OK &&
                hki_run_memory_create(&source, path, &k) == HK_OK)
                hki_run_memory_destroy(k);
        }
    (void)hki_file_remove(path);
    hki_buf_deinit(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hki_limits l;
    hki_evaluated e;
    hki_buf text = {0};
    if (size < 1 || size > 65536)
        return 0;
    switch (data[0] % 4) {
    case 0:
        calls(data + 1, size - 1);
        break;
    case 1:
        if (hki_limits_parse(data + 1, size - 1, &l) == HK_OK &&
            (hki_limits_print(&text, &l) != HK_OK ||
             hki_limits_parse(text.data, text.size, &l) != HK_OK))
            __builtin_trap();
        break;
    case 2:
        if (hki_evaluated_parse(data + 1, size - 1, &e) == HK_OK &&
            (hki_evaluated_print(&text, &e) != HK_OK ||
             hki_evaluated_parse(text.data, text.size, &e) != HK_OK))
            __builtin_trap();
        break;
    default:
        file(data + 1, size - 1);
    }
    hki_buf_deinit(&text);
    return 0;
}
