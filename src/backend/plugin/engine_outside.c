// engine_outside.c - the shared library's half of registry.c: no engine in it.
#include "backend/backend.h"

const hki_backend *hki_engine_inside(void) {
    return NULL;
}
