// run_config.h - a run config, checked, with copies of what it points at.
#ifndef HKI_ESTIMATOR_RUN_CONFIG_H
#define HKI_ESTIMATOR_RUN_CONFIG_H
#include "base/base.h"
#include "hooke/run_config.h"

typedef struct hki_config {
    hk_run_config c; // with copies of what it points at
    hk_elastic_options elastic;
    hk_center_options center;
    hk_optimizer_options outer;
    hk_ema_options ema;
    hk_device device;           // of the run
    hk_connect_options connect; // with addresses; key and context are not set
    bool is_elastic;
} hki_config;

// Copies and checks.
hk_status hki_config_init(hki_config *out, hki_arena *a,
                          const hk_run_config *src);

#endif // HKI_ESTIMATOR_RUN_CONFIG_H
