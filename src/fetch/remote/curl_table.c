// curl_table.c - finds and loads libcurl.
//
// A wheel brings its own: libhooke_curl.so, which has nothing in it, lies
// beside the library and pulls in the copy that belongs to it.
#define _GNU_SOURCE // dladdr
#include "fetch/remote/curl_table.h"
#include <dlfcn.h>
#include <limits.h>

#define OLDEST 0x075500 // 7.85: protocols of redirections by name

static struct {
    pthread_once_t once;
    hk_status status;
    char why[256];
    hki_curl calls;
} loaded = {.once = PTHREAD_ONCE_INIT};

static void *open_beside(void) {
    Dl_info at;
    char path[PATH_MAX];
    const char *const slash = dladdr(&loaded, &at) != 0 && at.dli_fname != NULL
                                  ? strrchr(at.dli_fname, '/')
                                  : NULL;
    if (slash == NULL)
        return NULL;
    const int n = snprintf(path, sizeof path, "%.*s/libhooke_curl.so",
                           (int)(slash - at.dli_fname), at.dli_fname);
    return n > 0 && n < PATH_MAX ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

static void *open_library(void) {
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    void *lib = open_beside();
    for (size_t i = 0; lib == NULL && i < HKI_COUNT(names); i++)
        lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return lib;
}

static bool find_calls(void *lib, hki_curl *c) {
#define FIND(name)                                                             \
    *(void **)&c->name = dlsym(lib, "curl_" #name);                            \
    if (c->name == NULL)                                                       \
        return false;
    HKI_CURL_CALLS(FIND)
#undef FIND
    return true;
}

// It stays loaded: threads of its own may be at work.
static void load(void) {
    hki_curl *const c = &loaded.calls;
    void *const lib = open_library();
    loaded.status = HK_E_UNSUPPORTED;
    if (lib == NULL) {
        snprintf(loaded.why, sizeof loaded.why,
                 "libcurl is not installed; install it (Debian: libcurl4)");
        return;
    }
    const curl_version_info_data *const v =
        find_calls(lib, c) ? c->version_info(CURLVERSION_NOW) : NULL;
    if (v == NULL || v->version_num < OLDEST) {
        snprintf(loaded.why, sizeof loaded.why,
                 "libcurl %s is too old; version 7.85 or later is needed",
                 v == NULL ? "that is installed" : v->version);
        return;
    }
    if (c->global_init(CURL_GLOBAL_ALL) == CURLE_OK)
        loaded.status = HK_OK;
    else
        snprintf(loaded.why, sizeof loaded.why, "libcurl cannot be started");
}

hk_status hki_curl_get(const hki_curl **out) {
    pthread_once(&loaded.once, load);
    if (loaded.status != HK_OK)
        return hki_fail(loaded.status, "%s", loaded.why);
    *out = &loaded.calls;
    return HK_OK;
}
