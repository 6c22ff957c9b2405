// fuzz_safetensors.c - safetensors files from arbitrary bytes: as they are;
// as header and buffer with a length that fits; and as an index of shards.
#define _GNU_SOURCE
#include <limits.h>
#include <stdlib.h>
#include "ckpt_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64], index_path[128], shard_path[128];

static void clean_up(void) {
    unlink(index_path);
    unlink(shard_path);
    rmdir(folder);
}

static void write_bytes(const char *path, const void *bytes, size_t size) {
    FILE *const f = fopen(path, "wb");
    if (f == NULL || fwrite(bytes, 1, size, f) != size || fclose(f) != 0)
        __builtin_trap();
}

// A folder with one shard "s" that holds the tensors "a" and "b".
static void make_folder(void) {
    static const char json[] =
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
        "\"b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[2,3]}}";
    uint8_t bytes[8 + sizeof json - 1 + 3] = {sizeof json - 1};
    memcpy(bytes + 8, json, sizeof json - 1);
    snprintf(folder, sizeof folder, "%s/hooke-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (mkdtemp(folder) == NULL)
        __builtin_trap();
    snprintf(index_path, sizeof index_path, "%s/m.safetensors.index.json",
             folder);
    snprintf(shard_path, sizeof shard_path, "%s/s", folder);
    write_bytes(shard_path, bytes, sizeof bytes);
    atexit(clean_up);
}

// The first newline ends the header; what follows is the buffer.
static void read_framed(const uint8_t *data, size_t size) {
    const uint8_t *const end = size > 0 ? memchr(data, '\n', size) : NULL;
    const size_t n = end != NULL ? (size_t)(end - data) : size;
    const size_t rest = end != NULL ? size - n - 1 : 0;
    uint8_t *bytes;
    if (hki_alloc_array(8 + n + rest, 1, &bytes) != HK_OK)
        return;
    for (size_t i = 0; i < 8; i++)
        bytes[i] = (uint8_t)((uint64_t)n >> (8 * i));
    if (n > 0)
        memcpy(bytes + 8, data, n);
    if (rest > 0)
        memcpy(bytes + 8 + n, end + 1, rest);
    read_checkpoint(bytes, 8 + n + rest, HK_CKPT_SAFETENSORS);
    hki_free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hk_ckpt *c;
    if (folder[0] == '\0')
        make_folder();
    read_checkpoint(data, size, HK_CKPT_SAFETENSORS);
    read_framed(data, size);
    write_bytes(index_path, data, size);
    if (hk_ckpt_open(index_path, HK_CKPT_AUTO, &c) == HK_OK)
        hk_ckpt_close(c);
    return 0;
}
