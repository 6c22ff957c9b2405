// list.h - a list of names, and the text of a failure kept across clean-up.
#ifndef HKI_ESTIMATOR_LIST_H
#define HKI_ESTIMATOR_LIST_H
#include <stdio.h>
#include "base/base.h"

#define HKI_ERROR_TEXT 1024

// Keeps the message of a failure across clean-up calls.
static inline void hki_keep_error(char text[HKI_ERROR_TEXT]) {
    snprintf(text, HKI_ERROR_TEXT, "%s", hk_last_error());
}

typedef HKI_LIST(const char *) hki_names;

#endif // HKI_ESTIMATOR_LIST_H
