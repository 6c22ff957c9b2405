// list.h - arrays that grow, and the text of a failure kept across clean-up.
#ifndef HKI_ESTIMATOR_LIST_H
#define HKI_ESTIMATOR_LIST_H
#include <stdio.h>
#include "base/base.h"

#define HKI_ERROR_TEXT 1024

// Keeps the message of a failure across clean-up calls.
static inline void hki_keep_error(char text[HKI_ERROR_TEXT]) {
    snprintf(text, HKI_ERROR_TEXT, "%s", hk_last_error());
}

#define HKI_LIST(T)                                                            \
    struct {                                                                   \
        T *data;                                                               \
        size_t n, capacity;                                                    \
    }
// Makes room for one more element.
hk_status hki_list_reserve(void *data, size_t n, size_t *capacity,
                           size_t elem_bytes);
#define HKI_LIST_ROOM(l)                                                       \
    hki_list_reserve(&(l).data, (l).n + 1, &(l).capacity, sizeof *(l).data)

typedef HKI_LIST(const char *) hki_names;

#endif // HKI_ESTIMATOR_LIST_H
