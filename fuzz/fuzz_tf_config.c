// fuzz_tf_config.c - TF_CONFIG from arbitrary bytes; what is accepted has to
// be printed in a form that is accepted again and says the same.
#include "base/base.h"
#include "hooke/roles.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// user: the text.
static const char *json_of(const hk_cluster_config *c) {
    hk_cluster_info info;
    hk_cluster_config_get_info(c, &info);
    return info.json;
}

static const char *get(void *user, const char *name) {
    return strcmp(name, "TF_CONFIG") == 0 ? (const char *)user : NULL;
}

static hk_cluster_config *create(const char *text) {
    hk_cluster_options o;
    hk_cluster_options_init(&o, sizeof o);
    o.getenv = get;
    o.user = (void *)(uintptr_t)text;
    hk_cluster_config *c = NULL;
    return hk_cluster_config_create(&o, &c) == HK_OK ? c : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text;
    if (hki_alloc_array(size + 1, 1, &text) != HK_OK)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    hk_cluster_config *const c = create(text);
    if (c != NULL) {
        hk_cluster_config *const again = create(json_of(c));
        if (again == NULL || strcmp(json_of(again), json_of(c)) != 0)
            __builtin_trap();
        hk_cluster_config_destroy(again);
    }
    hk_cluster_config_destroy(c);
    hki_free(text);
    return 0;
}
