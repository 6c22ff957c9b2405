// registry.c - the backends of this build, by name.
#define _GNU_SOURCE // dladdr
#include "backend/backend.h"
#include <dlfcn.h>
#include "backend/plugin.h"
#include "hooke/backend.h"

// One that is inside of this library, or else the shared object that has it.
typedef struct row {
    const char *name;
    const hki_backend *(*inside)(void);
    const char *plugin;
} row;

static const hki_backend *reference(void) {
    return &hki_backend_reference;
}

static const hki_backend *apart(void) {
    return &hki_backend_apart;
}

static const hki_backend *outside(void) {
    return NULL;
}

// The best one for CPUs first; those behind `apart` and itself are found by
// name only. The last one is the CUDA backend on a card that the host plays,
// for tests.
static const row rows[] = {
#ifdef HKI_HAVE_ONEDNN
    {"onednn", hki_engine_inside, "libhooke_engine.so"},
#endif
    {"reference", reference, NULL},
    {"apart", apart, NULL},
    {"cuda", outside, "libhooke_cuda.so"},
    {"cuda-played", outside, "libhooke_cuda_played.so"},
};
#define N_LISTED (HKI_COUNT(rows) - 3)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards the next
static const hki_backend *loaded[HKI_COUNT(rows)];

// Loads it when it is asked for the first time; one that failed is tried again.
static hk_status get(size_t i, const hki_backend **out) {
    const hki_backend *be = rows[i].inside();
    hk_status s = HK_OK;
    if (be == NULL) {
        pthread_mutex_lock(&lock);
        if (loaded[i] == NULL)
            s = hki_plugin_load(rows[i].name, rows[i].plugin, &loaded[i]);
        be = loaded[i];
        pthread_mutex_unlock(&lock);
    }
    if (s == HK_OK)
        *out = be;
    return s;
}

hk_status hki_backend_find(const char *name, const hki_backend **out) {
    if (name == NULL)
        name = getenv("HOOKE_BACKEND");
    if (name == NULL || name[0] == '\0')
        return get(0, out);
    for (size_t i = 0; i < HKI_COUNT(rows); i++)
        if (strcmp(rows[i].name, name) == 0)
            return get(i, out);
    return hki_fail(HK_E_NOT_FOUND, "plan: no backend named %s", name);
}

size_t hk_backend_count(void) {
    return N_LISTED;
}

// The shared object that a backend came in.
static const char *file_of(const hki_backend *be) {
    Dl_info at;
    return dladdr(be, &at) != 0 ? at.dli_fname : "";
}

hk_status hk_backend_get_info(size_t i, hk_backend_info *out) {
    if (i >= N_LISTED || out == NULL)
        return hki_fail(HK_E_NOT_FOUND, "no backend number %zu of %zu", i,
                        N_LISTED);
    const hki_backend *be;
    HKI_TRY(get(i, &be));
    *out = (hk_backend_info){
        .name = be->name,
        .version = be->version != NULL ? be->version() : "",
        .device = "cpu",
        .device_count = 1,
        .isa = be == &hki_backend_reference ? HK_ISA_BASE : hki_isa_best(),
        .file = rows[i].inside() != NULL ? "" : file_of(be)};
    return HK_OK;
}
