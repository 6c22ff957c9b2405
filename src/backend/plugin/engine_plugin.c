// engine_plugin.c - what libhooke_engine.so exports.
#include "backend/plugin.h"

const hki_plugin hki_plugin_entry = {
    .build = HKI_PLUGIN_BUILD,
    .backend = &hki_backend_onednn,
    .attach = hki_plugin_attach,
};
