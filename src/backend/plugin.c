// plugin.c - finds and loads a plug-in, and refuses one of another build.
#define _GNU_SOURCE // dladdr
#include "backend/plugin.h"
#include <dlfcn.h>
#include <limits.h>
#include <unistd.h>

static const hki_plugin_core core = {
    .fail = hki_fail,
    .last_error = hk_last_error,
    .alloc_array = hki_alloc_array,
    .zalloc_array = hki_zalloc_array,
    .free = hki_free,
};

// Writes the folder that holds this code; "" where nobody knows. The name of
// a program may be what somebody typed, which /proc knows better.
static void own_folder(char out[static PATH_MAX]) {
    Dl_info at;
    const bool named = dladdr(&core, &at) != 0 && strchr(at.dli_fname, '/');
    if ((!named || realpath(at.dli_fname, out) == NULL) &&
        realpath("/proc/self/exe", out) == NULL)
        out[0] = '\0';
    char *const slash = strrchr(out, '/');
    if (slash != NULL)
        *slash = '\0';
}

// Is there a file of that name in folder/below? Writes its path.
static bool is_in(const char *folder, const char *below, const char *file,
                  char out[static PATH_MAX]) {
    const int n = snprintf(out, PATH_MAX, "%s%s/%s", folder, below, file);
    return n > 0 && n < PATH_MAX && access(out, F_OK) == 0;
}

// HKI_LIBRARY_FOLDER: where libraries lie, seen from a folder of programs.
static void *open_plugin(const char *file, const char *folder) {
    char path[PATH_MAX];
    const bool as_is = strchr(file, '/') != NULL || folder[0] == '\0';
    const bool found =
        !as_is && (is_in(folder, "", file, path) ||
                   is_in(folder, "/" HKI_LIBRARY_FOLDER, file, path));
    return dlopen(found ? path : file, RTLD_NOW | RTLD_LOCAL);
}

static hk_status check_build(const char *name, const char *file,
                             const hki_plugin *plugin) {
    static const hki_plugin_build ours = HKI_PLUGIN_BUILD;
    const hki_plugin_build *const its = &plugin->build;
    if (memcmp(its, &ours, sizeof ours) == 0)
        return HK_OK;
    return hki_fail(HK_E_BACKEND,
                    "backend %s: %s belongs to another build (Hooke %u.%u.%u) "
                    "than this library (%s); install both from one build",
                    name, file, its->version[0], its->version[1],
                    its->version[2], hk_version());
}

hk_status hki_plugin_load(const char *name, const char *file,
                          const hki_backend **out) {
    char folder[PATH_MAX];
    own_folder(folder);
    void *const lib = open_plugin(file, folder);
    if (lib == NULL)
        return hki_fail(HK_E_BACKEND,
                        "backend %s: cannot be loaded (looked in %s): %s", name,
                        folder, dlerror());
    const hki_plugin *const plugin = dlsym(lib, "hki_plugin_entry");
    HKI_TRY_OR(plugin == NULL
                   ? hki_fail(HK_E_BACKEND,
                              "backend %s: %s is not a plug-in of Hooke", name,
                              file)
                   : check_build(name, file, plugin),
               dlclose(lib));
    plugin->attach(&core);
    *out = plugin->backend;
    return HK_OK;
}
