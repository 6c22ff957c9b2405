// backend/plugin.h - a backend in a shared object of its own.
//
// What only exchanges, sends and saves loads neither OpenMP nor oneDNN: the
// shared library holds no engine but loads libhooke_engine.so when a plan first
// asks for it. A plug-in exports one name, hki_plugin_entry, and is not linked
// with the library: it works beside a shared one as inside a program that has
// Hooke in it. It brings copies of the small functions that it calls (shapes,
// teams), but a process has one allocator and each of its threads one last
// error: these it gets by attach.
#ifndef HKI_PLUGIN_H
#define HKI_PLUGIN_H
#include "backend/backend.h"

// What a plug-in takes from the library. plugin_core.c gives it the names
// that code of the library calls.
typedef struct hki_plugin_core {
    hk_status (*fail)(hk_status s, const char *fmt, ...)
        __attribute__((format(__printf__, 2, 3)));
    const char *(*last_error)(void);
    hk_status (*alloc_array)(size_t count, size_t size, void *out);
    hk_status (*zalloc_array)(size_t count, size_t size, void *out);
    void (*free)(void *ptr);
} hki_plugin_core;

// The shape of everything that crosses the border: a plug-in and a library
// that differ in it are not of one build.
typedef struct hki_plugin_build {
    uint32_t version[3];
    uint32_t operators; // HKI_OP_COUNT
    size_t backend_bytes, desc_bytes, core_bytes;
} hki_plugin_build;

#define HKI_PLUGIN_BUILD                                                       \
    {                                                                          \
        {HK_VERSION_MAJOR, HK_VERSION_MINOR, HK_VERSION_PATCH}, HKI_OP_COUNT,  \
            sizeof(hki_backend), sizeof(hki_kernel_desc),                      \
            sizeof(hki_plugin_core)                                            \
    }

typedef struct hki_plugin {
    hki_plugin_build build; // first: looked at before anything else
    const hki_backend *backend;
    void (*attach)(const hki_plugin_core *core);
} hki_plugin;

// What a plug-in exports.
extern __attribute__((visibility("default"))) const hki_plugin hki_plugin_entry;
// Of plugin_core.c, for every plug-in.
void hki_plugin_attach(const hki_plugin_core *core);

// The backend `name` out of a plug-in: a file beside this library (or the
// program that it is in), in the library folder beside a program's, or where
// the dynamic linker looks; a name with a slash is taken as it is. It stays
// loaded. HK_E_BACKEND with a sentence where it cannot be had.
hk_status hki_plugin_load(const char *name, const char *file,
                          const hki_backend **out);

#endif // HKI_PLUGIN_H
