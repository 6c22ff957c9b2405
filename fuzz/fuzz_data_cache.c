// fuzz_data_cache.c - the file of a cache from arbitrary bytes, as they are and
// as one element under a header and checksums that fit.
#include <unistd.h>
#include "codec/codec.h"
#include "data/transforms/cache_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *path(void) {
    static char name[64];
    if (name[0] == '\0')
        snprintf(name, sizeof name, "%s/hooke-fuzz-cache-%ld", P_tmpdir,
                 (long)getpid());
    return name;
}

// Not asked for an element: the file is there.
static hk_status no_element(void *user, void *state, hk_builder *b) {
    (void)user;
    (void)state;
    (void)b;
    return HK_E_END;
}

static hk_dataset *elements(void) {
    const hk_value v[] = {
        {.name = "x", .dtype = HK_F32, .shape = {.rank = 2, .dim = {-1, 3}}},
        {.name = "s",
         .dtype = HK_I64,
         .form = HK_SPARSE_FORM,
         .shape = {.rank = 1, .dim = {-1}}},
        {.name = "r",
         .dtype = HK_STRING,
         .form = HK_RAGGED_FORM,
         .shape = {.rank = 2, .dim = {-1, -1}}}};
    const hk_generator g = {.next = no_element};
    return hk_data_generator(&g, v, HKI_COUNT(v));
}

static void read_all(hk_dataset *d, const void *bytes, size_t size) {
    FILE *const f = fopen(path(), "wb");
    hk_iter *it = NULL;
    const hk_element *e;
    if (f == NULL)
        return;
    fwrite(bytes, 1, size, f);
    fclose(f);
    if (hk_iter_create(d, NULL, &it) == HK_OK)
        while (hk_iter_next(it, &e) == HK_OK)
            ;
    hk_iter_destroy(it);
    unlink(path());
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hk_dataset *const source = elements();
    hk_dataset *d = NULL;
    hki_buf file = {0};
    uint8_t head[HKI_CACHE_FIRST] = "HKCACHE1";
    if (hk_dataset_status(source) == HK_OK) {
        const uint64_t fingerprint = source->fingerprint;
        d = hk_data_cache(hk_dataset_retain(source), path());
        hki_put_u64(head + 8, fingerprint);
        hki_put_u64(head + 16, 1);
        hki_put_u64(head + 24,
                    sizeof head + HKI_RECORD_HEADER + size + HKI_RECORD_FOOTER);
        if (hki_buf_add(&file, head, sizeof head) == HK_OK &&
            hki_record_append(&file, data, size) == HK_OK) {
            read_all(d, data, size);
            read_all(d, file.data, file.size);
        }
    }
    hki_buf_deinit(&file);
    hk_dataset_release(d);
    hk_dataset_release(source);
    return 0;
}
