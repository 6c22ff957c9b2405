// options.c - the struct_size protocol of option structs.
#include "base/base.h"

// No option struct comes near this; a larger size is an uninitialised one.
#define MAX_OPTIONS_BYTES 65536

void hki_options_init(void *opt, size_t struct_size, const void *defaults,
                      size_t defaults_size) {
    if (opt == NULL || struct_size < sizeof struct_size)
        return;
    memset(opt, 0, struct_size);
    memcpy(opt, defaults, HKI_MIN(struct_size, defaults_size));
    memcpy(opt, &struct_size, sizeof struct_size);
}

hk_status hki_options_copy(void *dst, size_t dst_size, const void *src,
                           const char *what) {
    if (src == NULL)
        return HK_OK;
    size_t size;
    memcpy(&size, src, sizeof size);
    if (size < sizeof size || size > MAX_OPTIONS_BYTES)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: struct_size is %zu; call the _init function of "
                        "the options first",
                        what, size);
    const unsigned char *bytes = src;
    for (size_t i = dst_size; i < size; i++)
        if (bytes[i] != 0)
            return hki_fail(
                HK_E_INVALID_ARG,
                "%s: the options have %zu bytes and set byte %zu, but this "
                "library knows only %zu; it is older than the program",
                what, size, i, dst_size);
    memcpy(dst, src, HKI_MIN(size, dst_size));
    memcpy(dst, &dst_size, sizeof dst_size);
    return HK_OK;
}
