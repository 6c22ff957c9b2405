// registry.c - the backends of this build, and devices, by name.
#define _GNU_SOURCE // dladdr
#include "backend/backend.h"
#include <dlfcn.h>
#include <errno.h>
#include "backend/plugin.h"
#include "hooke/backend.h"

// One that is inside of this library, or else the shared object that has it.
// driver: the library of the machine without which it is of no use; looked for
// before anything is loaded.
typedef struct row {
    const char *name;
    const hki_backend *(*inside)(void);
    const char *plugin;
    const char *driver;
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
    {"onednn", hki_engine_inside, "libhooke_engine.so", NULL},
#endif
    {"reference", reference, NULL, NULL},
    {"apart", apart, NULL, NULL},
    {"cuda", outside, "libhooke_cuda.so", "libcuda.so.1"},
    {"cuda-played", outside, "libhooke_cuda_played.so", NULL},
};
#define N_LISTED (HKI_COUNT(rows) - 3)

static hki_mutex lock = HKI_MUTEX_INIT; // guards the next
static const hki_backend *loaded[HKI_COUNT(rows)];

// Loads it when it is asked for the first time; one that failed is tried again.
static hk_status get(size_t i, const hki_backend **out) {
    const hki_backend *be = rows[i].inside();
    hk_status s = HK_OK;
    if (be == NULL) {
        hki_mutex_lock(&lock);
        if (loaded[i] == NULL)
            s = hki_plugin_load(rows[i].name, rows[i].plugin, &loaded[i]);
        be = loaded[i];
        hki_mutex_unlock(&lock);
    }
    if (s == HK_OK)
        *out = be;
    return s;
}

static hk_status number_of(const char *name, size_t *out) {
    for (*out = 0; *out < HKI_COUNT(rows); ++*out)
        if (strcmp(rows[*out].name, name) == 0)
            return HK_OK;
    return hki_fail(HK_E_NOT_FOUND, "plan: there is no backend named %s", name);
}

hk_status hki_backend_find(const char *name, const hki_backend **out) {
    size_t i = 0;
    if (name == NULL)
        name = getenv("HOOKE_BACKEND");
    if (name != NULL && name[0] != '\0')
        HKI_TRY(number_of(name, &i));
    return get(i, out);
}

size_t hk_backend_count(void) {
    return N_LISTED;
}

// The shared object that a backend came in.
static const char *file_of(const hki_backend *be) {
    Dl_info at;
    return dladdr(be, &at) != 0 ? at.dli_fname : "";
}

static hk_status get_info(size_t i, hk_backend_info *out) {
    const hki_backend *be;
    HKI_TRY(get(i, &be));
    const bool is_cpu = be->device_count == NULL;
    uint32_t n = 1;
    if (!is_cpu && be->device_count(&n) != HK_OK)
        n = 0;
    *out = (hk_backend_info){
        .name = be->name,
        .version = be->version != NULL ? be->version() : "",
        .device = is_cpu ? "cpu" : be->name,
        .device_count = n,
        .isa = is_cpu && be != &hki_backend_reference ? hki_isa_best()
                                                      : HK_ISA_BASE,
        .file = rows[i].inside() != NULL ? "" : file_of(be)};
    return HK_OK;
}

hk_status hk_backend_get_info(size_t i, hk_backend_info *out) {
    if (i >= N_LISTED || out == NULL)
        return hki_fail(HK_E_NOT_FOUND, "there is no backend number %zu of %zu",
                        i, N_LISTED);
    return get_info(i, out);
}

hk_status hk_backend_find(const char *name, hk_backend_info *out) {
    size_t i;
    if (name == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "backend: name or out is NULL");
    HKI_TRY(number_of(name, &i));
    return get_info(i, out);
}

// ---- devices ----------------------------------------------------------------

static hk_status check_driver(const row *r) {
    if (r->driver == NULL)
        return HK_OK;
    void *const lib = dlopen(r->driver, RTLD_LAZY | RTLD_LOCAL);
    if (lib == NULL)
        return hki_fail(HK_E_BACKEND,
                        "device %s: this machine has no GPU driver (%s was not "
                        "found); use --device cpu",
                        r->name, r->driver);
    dlclose(lib);
    return HK_OK;
}

static hk_status load_for_device(size_t i, const hki_backend **out) {
    const hk_status s = get(i, out);
    if (s == HK_OK)
        return HK_OK;
    char text[512];
    snprintf(text, sizeof text, "%s", hk_last_error());
    return hki_fail(s,
                    "%s; the plug-in has to be built with nvcc (HOOKE_CUDA=on) "
                    "and needs the CUDA libraries; use --device cpu",
                    text);
}

// All devices of the i-th backend.
static hk_status all_of(size_t i, hk_device *out) {
    const hki_backend *be;
    uint32_t n;
    HKI_TRY(check_driver(&rows[i]));
    HKI_TRY(load_for_device(i, &be));
    HKI_TRY(be->device_count(&n));
    *out = (hk_device){.backend = rows[i].name, .count = n};
    return HK_OK;
}

// "3" of "cuda:3".
static bool read_number(const char *text, uint32_t *out) {
    char *end;
    errno = 0;
    const unsigned long n = strtoul(text, &end, 10);
    *out = (uint32_t)n;
    return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0 &&
           n < UINT32_MAX;
}

static hk_status one_of(const char *name, uint32_t number, hk_device *d) {
    if (number >= d->count)
        return hki_fail(HK_E_NOT_FOUND,
                        "device %s: this machine has %u, numbered from 0", name,
                        d->count);
    d->first = number;
    d->count = 1;
    return HK_OK;
}

static hk_status find_device(const char *name, hk_device *out) {
    const size_t length = strcspn(name, ":");
    for (size_t i = N_LISTED + 1; i < HKI_COUNT(rows); i++) {
        uint32_t number = 0;
        if (strlen(rows[i].name) != length ||
            memcmp(rows[i].name, name, length) != 0 ||
            (name[length] == ':' && !read_number(name + length + 1, &number)))
            continue;
        HKI_TRY(all_of(i, out));
        return name[length] == ':' ? one_of(name, number, out) : HK_OK;
    }
    return hki_fail(HK_E_INVALID_ARG,
                    "device %s: it has to be auto, cpu, cuda or cuda:N", name);
}

hk_status hk_device_find(const char *name, hk_device *out) {
    const char *const backend = getenv("HOOKE_BACKEND");
    hk_device d = {0};
    if (out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "device: out is NULL");
    if (name != NULL && strcmp(name, "auto") == 0) {
        if ((backend != NULL && backend[0] != '\0') ||
            find_device("cuda", &d) != HK_OK)
            d = (hk_device){0};
    } else if (name != NULL && strcmp(name, "cpu") != 0)
        HKI_TRY(find_device(name, &d));
    *out = d;
    return HK_OK;
}

hk_status hk_device_text(const hk_device *d, uint32_t i, char *text,
                         size_t size) {
    if (d == NULL || text == NULL || size == 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "device: the buffer for its description is too small");
    if (d->backend == NULL) {
        snprintf(text, size, "cpu");
        return HK_OK;
    }
    const hki_backend *be;
    HKI_TRY(hki_backend_find(d->backend, &be));
    return be->device_text(d->first + i, text, size);
}
