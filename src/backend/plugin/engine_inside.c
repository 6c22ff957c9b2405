// engine_inside.c - the static library's half of registry.c: the engine is in
// it.
#include "backend/backend.h"

const hki_backend *hki_engine_inside(void) {
    return &hki_backend_onednn;
}
