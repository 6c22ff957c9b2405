// registry.c - the backends of this build, by name.
#include "backend/backend.h"
#include "hooke/backend.h"

// The best one first.
static const hki_backend *const backends[] = {
#ifdef HKI_HAVE_ONEDNN
    &hki_backend_onednn,
#endif
    &hki_backend_reference,
};

const hki_backend *hki_backend_find(const char *name) {
    if (name == NULL)
        return backends[0];
    for (size_t i = 0; i < HKI_COUNT(backends); i++)
        if (strcmp(backends[i]->name, name) == 0)
            return backends[i];
    return NULL;
}

size_t hk_backend_count(void) {
    return HKI_COUNT(backends);
}

hk_status hk_backend_get_info(size_t i, hk_backend_info *out) {
    if (i >= HKI_COUNT(backends) || out == NULL)
        return hki_fail(HK_E_NOT_FOUND, "no backend number %zu of %zu", i,
                        HKI_COUNT(backends));
    const hki_backend *const be = backends[i];
    *out = (hk_backend_info){
        .name = be->name,
        .version = be->version != NULL ? be->version() : "",
        .device = "cpu",
        .device_count = 1,
        .isa = be == &hki_backend_reference ? HK_ISA_BASE : hki_isa_best()};
    return HK_OK;
}

int hki_format_block(hki_format f) {
    return f == HKI_BLOCKED_8 ? 8 : f == HKI_BLOCKED_16 ? 16 : 0;
}
