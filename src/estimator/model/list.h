// list.h - a list of names.
#ifndef HKI_ESTIMATOR_LIST_H
#define HKI_ESTIMATOR_LIST_H
#include "base/base.h"

typedef HKI_LIST(const char *) hki_names;

#endif // HKI_ESTIMATOR_LIST_H
