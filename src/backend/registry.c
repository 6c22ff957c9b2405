// registry.c - the backends of this build, by name.
#include "backend/backend.h"

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

int hki_format_block(hki_format f) {
    return f == HKI_BLOCKED_8 ? 8 : f == HKI_BLOCKED_16 ? 16 : 0;
}
