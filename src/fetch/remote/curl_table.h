// fetch/remote/curl_table.h - libcurl, loaded when a URL is met for the first
// time: who reads local files needs none.
#ifndef HKI_CURL_TABLE_H
#define HKI_CURL_TABLE_H
#include <curl/curl.h>
#include "base/base.h"

#define HKI_CURL_CALLS(X)                                                      \
    X(global_init)                                                             \
    X(version_info)                                                            \
    X(easy_init)                                                               \
    X(easy_setopt)                                                             \
    X(easy_reset)                                                              \
    X(easy_cleanup)                                                            \
    X(easy_strerror)                                                           \
    X(slist_append)                                                            \
    X(slist_free_all)                                                          \
    X(multi_init)                                                              \
    X(multi_cleanup)                                                           \
    X(multi_add_handle)                                                        \
    X(multi_remove_handle)                                                     \
    X(multi_perform)                                                           \
    X(multi_poll)                                                              \
    X(multi_wakeup)                                                            \
    X(multi_info_read)

// Each works like libcurl's curl_<name>.
typedef struct hki_curl {
#define FIELD(name) __typeof__(&(curl_##name)) name;
    HKI_CURL_CALLS(FIELD)
#undef FIELD
} hki_curl;

// HK_E_UNSUPPORTED where there is no libcurl, or one that is too old.
hk_status hki_curl_get(const hki_curl **out);

#endif // HKI_CURL_TABLE_H
