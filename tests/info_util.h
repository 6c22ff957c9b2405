// info_util.h - what handles tell, as values.
#ifndef INFO_UTIL_H
#define INFO_UTIL_H
#include "hk_test.h"
#include "hooke/ckpt.h"
#include "hooke/hooks.h"

static inline hk_run_info run_info(const hk_run *run) {
    hk_run_info i;
    assert_ok(hk_run_get_info(run, &i));
    return i;
}

static inline hk_estimator_info estimator_info(const hk_estimator *e) {
    hk_estimator_info i;
    assert_ok(hk_estimator_get_info(e, &i));
    return i;
}

static inline hk_ckpt_info ckpt_info(const hk_ckpt *c) {
    hk_ckpt_info i;
    assert_ok(hk_ckpt_get_info(c, &i));
    return i;
}

static inline hk_saver_info saver_info(hk_saver *s) {
    hk_saver_info i;
    assert_ok(hk_saver_get_info(s, &i));
    return i;
}

#endif // INFO_UTIL_H
