// What servers and files of ~/.aws say: the first byte chooses the reader.
#include "fetch/remote/http.h"

static hk_status add(void *user, const char *key) {
    size_t *const n = user;
    *n += strlen(key);
    return HK_OK;
}

static void read_page(const char *text, size_t size) {
    char next[64];
    size_t n = 0;
    if (hki_s3_page(text, size, add, &n, next, sizeof next) == HK_OK &&
        (strlen(next) >= sizeof next || n > size))
        __builtin_trap();
}

static void read_ini(const char *text, size_t size) {
    char out[32];
    if (hki_ini_find(text, size, "default", "region", out, sizeof out) &&
        strlen(out) >= sizeof out)
        __builtin_trap();
}

static void read_range(const char *text) {
    uint64_t first, last, size;
    if (hki_content_range(text, &first, &last, &size) &&
        (first > last || last >= size))
        __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char line[128];
    if (size == 0)
        return 0;
    const char *const text = (const char *)data + 1;
    if (data[0] % 3 == 0)
        read_page(text, size - 1);
    if (data[0] % 3 == 1)
        read_ini(text, size - 1);
    snprintf(line, sizeof line, "%.*s", (int)HKI_MIN(size - 1, 100), text);
    if (data[0] % 3 == 2)
        read_range(line);
    return 0;
}
