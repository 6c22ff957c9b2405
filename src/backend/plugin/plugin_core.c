// plugin_core.c - the library's allocator and last error, as a plug-in has
// them: under the names that its code calls.
//
// This file is part of plug-ins only. Whatever else they call comes out of the
// static library; the linker refuses a second allocator or last error.
#include "backend/plugin.h"

static const hki_plugin_core *core; // written once, before anything is called

void hki_plugin_attach(const hki_plugin_core *c) {
    core = c;
}

hk_status(hki_fail)(hk_status s, const char *fmt, ...) {
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    if (vsnprintf(text, sizeof text, fmt, ap) < 0)
        text[0] = '\0';
    va_end(ap);
    return core->fail(s, "%s", text);
}

const char *hk_last_error(void) {
    return core->last_error();
}

hk_status hki_alloc_array(size_t count, size_t size, void *out) {
    return core->alloc_array(count, size, out);
}

hk_status hki_zalloc_array(size_t count, size_t size, void *out) {
    return core->zalloc_array(count, size, out);
}

void hki_free(void *ptr) {
    core->free(ptr);
}
