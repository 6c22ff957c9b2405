// cuda_plugin.c - what libhooke_cuda.so exports.
#include "backend/plugin.h"

const hki_plugin hki_plugin_entry = {
    .build = HKI_PLUGIN_BUILD,
    .backend = &hki_backend_cuda,
    .attach = hki_plugin_attach,
};
