// fuzz_run.c - what the roles read from others: calls to the run's memory,
// limits, results of evaluations, the run's file and the data's plan in it. The
// first byte chooses.
#include "base/base.h"
#include "base/io.h"
#include "cluster/center/data_plan.h"
#include "cluster/center/run_memory.h"
#include "cluster/roles/roles.h"
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CALL 80 // bytes: the fields, and a name of two characters

static bool nobody(void *user, uint32_t worker) {
    (void)user;
    (void)worker;
    return false;
}

// Calls, 80 bytes each, on a run memory without a file.
static void calls(const uint8_t *data, size_t size) {
    hki_run_memory *k;
    if (hki_run_memory_create(NULL, NULL, 0, &k) != HK_OK)
        return;
    for (; size >= CALL; data += CALL, size -= CALL) {
        hki_msg_call call;
        hki_msg_result result;
        if (hki_body_get(&hki_body_call, data, CALL, "fuzz", &call, NULL) ==
                HK_OK &&
            hki_run_memory_call(k, &call, 1, &result) == HK_OK &&
            hki_result_check(&result, "fuzz") != HK_OK)
            __builtin_trap();
    }
    hki_run_memory_count(k, 1, (const uint64_t[]){1, 2, 3}, 3);
    hki_run_memory_expire(k, nobody, NULL);
    hki_run_memory_destroy(k);
}

// The bytes as the run's file, as they are and with a checksum that fits.
static void file(const uint8_t *data, size_t size) {
    static char path[64], aside[80];
    hki_run_memory *k;
    hki_buf b = {0};
    if (path[0] == '\0')
        snprintf(path, sizeof path, "fuzz-run-%d.tmp", (int)getpid());
    const uint64_t h = hki_hash(HKI_HASH_INIT, data, size);
    if (hki_buf_add(&b, data, size) == HK_OK &&
        hki_buf_add(&b, &h, sizeof h) == HK_OK)
        for (size_t n = size; n <= b.size; n += sizeof h) {
            if (hki_file_replace(path, b.data, n, false) == HK_OK &&
                hki_run_memory_create(NULL, path, 0, &k) == HK_OK)
                hki_run_memory_destroy(k);
        }
    (void)hki_file_remove(path);
    snprintf(aside, sizeof aside, "%s.damaged", path);
    (void)hki_file_remove(aside);
    hki_buf_deinit(&b);
}

// The bytes as the plan of the data: refused, or a plan that works.
static void plan(const uint8_t *data, size_t size) {
    hki_data_plan *p;
    hk_range r;
    if (hki_data_plan_create(&p) != HK_OK)
        return;
    if (hki_data_plan_restore(p, data, size, "fuzz") == HK_OK) {
        for (uint64_t i = 0; i < 50; i++)
            if (hki_data_plan_take(p, 0, &(hki_taker){.owner = i % 3}, &r) ==
                    HK_OK &&
                i % 4 == 0)
                (void)hki_data_plan_return(p, i % 3, UINT64_MAX, r.id, r.used);
        (void)hki_data_plan_expire(p, 1);
    }
    hki_data_plan_destroy(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hki_limits l;
    hki_evaluated e;
    hki_buf text = {0};
    if (size < 1 || size > 65536)
        return 0;
    switch (data[0] % 5) {
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
    case 3:
        file(data + 1, size - 1);
        break;
    default:
        plan(data + 1, size - 1);
    }
    hki_buf_deinit(&text);
    return 0;
}
