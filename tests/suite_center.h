// suite_center.h - cases that every center passes, in-process or remote.
#ifndef SUITE_CENTER_H
#define SUITE_CENTER_H
#include "hk_test.h"
#include "elastic/elastic.h"

// Makes the center under test. opt: what the case asks for.
typedef hk_status (*suite_center_create)(const hk_center_options *opt,
                                         hk_layout *layout, hk_center **out);

// Runs all cases; fails the calling test at the first fault.
void suite_center_run(suite_center_create create);

// Helpers for tests of centers and workers.
// A layout of n float vectors of these sizes: v0, v1...
hk_layout *suite_center_layout(const int64_t *counts, size_t n);

static inline hk_elastic_info info_of(const hk_elastic *e) {
    hk_elastic_info info;
    assert_ok(hk_elastic_get_info(e, &info));
    return info;
}

#endif // SUITE_CENTER_H
