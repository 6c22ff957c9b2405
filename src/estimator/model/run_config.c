// run_config.c - run config: defaults, copies and checks.
#include "estimator/estimator.h"
#include <math.h>

static const hk_run_config defaults = {
    .struct_size = sizeof(hk_run_config),
    .seed = 1,
    .save_checkpoints_secs = HK_SAVE_DEFAULT,
    .keep_checkpoint_every_n_hours = 10000,
    .save_summary_steps = 100,
    .log_step_count_steps = 100,
    .basename = "model.ckpt",
    .best_metric = "loss",
    .keep_checkpoint_max = 5,
    .ckpt_format = HK_CKPT_SAFETENSORS,
    .workers = 1,
    .telemetry = 1,
    .rail = 3,
};

HKI_OPTIONS_FROM(hk_run_config, connect, defaults)

// ---- checks -----------------------------------------------------------------

static hk_status check_saving(hk_run_config *c) {
    if (c->save_checkpoints_steps < 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "run config: save_checkpoints_steps is %lld; it has to "
                        "be at least 0",
                        (long long)c->save_checkpoints_steps);
    if (c->save_checkpoints_secs == HK_SAVE_DEFAULT)
        c->save_checkpoints_secs = c->save_checkpoints_steps > 0 ? 0 : 600;
    if (!(c->save_checkpoints_secs >= 0))
        return hki_fail(
            HK_E_INVALID_ARG,
            "run config: save_checkpoints_secs is %g; it has to be at least 0",
            c->save_checkpoints_secs);
    if (c->save_checkpoints_steps > 0 && c->save_checkpoints_secs > 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "run config: save_checkpoints_steps (%lld) and "
                        "save_checkpoints_secs (%g) exclude each other; set "
                        "one of them to 0",
                        (long long)c->save_checkpoints_steps,
                        c->save_checkpoints_secs);
    if (!(c->keep_checkpoint_every_n_hours > 0))
        return hki_fail(HK_E_INVALID_ARG,
                        "run config: keep_checkpoint_every_n_hours is %g; it "
                        "has to be above 0",
                        c->keep_checkpoint_every_n_hours);
    if (c->ckpt_format != HK_CKPT_SAFETENSORS && c->ckpt_format != HK_CKPT_TF)
        return hki_fail(HK_E_INVALID_ARG,
                        "run config: ckpt_format is %d; checkpoints can be "
                        "safetensors or TF",
                        (int)c->ckpt_format);
    return HK_OK;
}

static hk_status check_periods(const hk_run_config *c) {
    if (c->save_summary_steps < 0 || c->log_step_count_steps < 0)
        return hki_fail(
            HK_E_INVALID_ARG,
            "run config: save_summary_steps is %lld and log_step_count_steps "
            "%lld; they have to be at least 0 (0: none)",
            (long long)c->save_summary_steps,
            (long long)c->log_step_count_steps);
    if (c->model_dir != NULL && c->model_dir[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG, "run config: model_dir is an empty "
                                          "string; use NULL for no model_dir");
    if (c->basename == NULL || c->basename[0] == '\0' ||
        strchr(c->basename, '/') != NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "run config: basename \"%s\" is not a valid file name",
                        c->basename ? c->basename : "");
    if (c->best_metric == NULL || c->best_metric[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG, "run config: best_metric is empty");
    if (c->nan_policy != HK_NAN_FAIL && c->nan_policy != HK_NAN_STOP)
        return hki_fail(HK_E_INVALID_ARG, "run config: unknown nan_policy %d",
                        (int)c->nan_policy);
    return HK_OK;
}

static hk_status check_workers(hk_run_config *c) {
    if (c->workers < 1 || c->workers > 4096)
        return hki_fail(HK_E_INVALID_ARG,
                        "run config: workers is %u; it has to be in 1..4096",
                        c->workers);
    if (c->method != 0 && hk_method_name(c->method) == NULL)
        return hki_fail(HK_E_INVALID_ARG, "run config: unknown method %d",
                        (int)c->method);
    if (c->rates < HK_RATES_GIVEN || c->rates > HK_RATES_MEASURED)
        return hki_fail(HK_E_INVALID_ARG, "run config: unknown rates %d",
                        (int)c->rates);
    if (c->rates == HK_RATES_MEASURED && c->turn != HK_TURN_FREE)
        return hki_fail(HK_E_INVALID_ARG,
                        "run config: measured rates depend on time and cannot "
                        "be combined with a fixed turn order (round_robin or "
                        "recorded); use rates auto");
    if (c->center == NULL && c->center_addresses == NULL &&
        (c->first_worker != 0 || c->all_workers != 0))
        return hki_fail(HK_E_INVALID_ARG,
                        "run config: first_worker is %u and all_workers %u, "
                        "but they are only for a given center; set center or "
                        "center_addresses, too",
                        c->first_worker, c->all_workers);
    if (c->all_workers == 0)
        c->all_workers = c->workers;
    if (c->all_workers < c->workers)
        return hki_fail(HK_E_INVALID_ARG,
                        "run config: all_workers is %u, less than the %u "
                        "workers of this process",
                        c->all_workers, c->workers);
    if (c->first_worker == UINT32_MAX && c->workers > 1)
        return hki_fail(
            HK_E_INVALID_ARG,
            "run config: the center can assign an index (first_worker "
            "UINT32_MAX) to one worker only, not to %u",
            c->workers);
    return HK_OK;
}

// ---- a center in other processes --------------------------------------------

// The list as an array, in the arena.
static hk_status split_addresses(hki_config *k, hki_arena *a) {
    const char *const list = k->c.center_addresses;
    size_t n = 1;
    for (const char *p = list; *p != '\0'; p++)
        n += *p == ',';
    const char **items;
    HKI_TRY(hki_arena_alloc(a, n, sizeof *items, &items));
    const char *p = list;
    for (size_t i = 0; i < n; i++) {
        const int length = (int)strcspn(p, ",");
        if (length == 0)
            return hki_fail(HK_E_INVALID_ARG,
                            "run config: address %zu of %zu in "
                            "center_addresses \"%s\" is empty",
                            i + 1, n, list);
        HKI_TRY(hki_arena_printf(a, &items[i], "%.*s", length, p));
        p += length + 1;
    }
    k->connect.addresses = items;
    k->connect.n_addresses = n;
    return HK_OK;
}

static hk_status check_connect(const hk_run_config *c,
                               const hk_connect_options *o) {
    if (c->center_addresses == NULL && c->center_key != NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "run config: center_key is %s, but there are no "
                        "center_addresses to connect to",
                        c->center_key);
    if (c->center_addresses == NULL && c->connect != NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "run config: there are connect options, but no "
                        "center_addresses to connect to");
    if (c->center_addresses != NULL && c->center != NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "run config: center and center_addresses (%s) exclude "
                        "each other; set one of them",
                        c->center_addresses);
    if (o->n_addresses > 0 || o->key != NULL || o->observer)
        return hki_fail(HK_E_INVALID_ARG,
                        "run config: connect has %zu addresses, %s key and "
                        "observer %u; set center_addresses and center_key "
                        "instead, and leave observer 0",
                        o->n_addresses, o->key != NULL ? "a" : "no",
                        o->observer);
    return HK_OK;
}

static hk_status copy_connect(hki_config *k, hki_arena *a) {
    hk_run_config *const c = &k->c;
    HKI_TRY(HKI_OPTIONS_GET(hk_connect_options, &k->connect, c->connect,
                            "connect options"));
    HKI_TRY(check_connect(c, &k->connect));
    if (c->center_addresses == NULL)
        return HK_OK;
    HKI_TRY(hki_copy_text(a, &c->center_addresses));
    HKI_TRY(hki_copy_text(a, &c->center_key));
    HKI_TRY(hki_copy_text(a, &k->connect.name));
    c->connect = &k->connect;
    return split_addresses(k, a);
}

// ---- copies -----------------------------------------------------------------

static hk_status copy_center(hki_config *k, hki_arena *a) {
    const hk_center_options *const src = k->c.center_options;
    hk_center_options *const o = &k->center;
    HKI_TRY(HKI_OPTIONS_GET(hk_center_options, o, src, "center options"));
    HKI_TRY(hki_copy_text(a, &o->name));
    if (o->outer != NULL) {
        HKI_TRY(hki_copy_optimizer(a, o->outer, &k->outer));
        o->outer = &k->outer;
    }
    if (o->order != NULL) {
        void *bytes;
        HKI_TRY(hki_arena_alloc(a, o->order_size, 1, &bytes));
        memcpy(bytes, o->order, o->order_size);
        o->order = bytes;
    }
    if (k->c.method != 0)
        o->method = k->c.method;
    if (k->c.turn != HK_TURN_FREE)
        o->turn = k->c.turn;
    if (o->workers == 0)
        o->workers = k->c.all_workers;
    return HK_OK;
}

static hk_status find_device(hki_config *k) {
    hk_run_config *const c = &k->c;
    const bool is_auto = c->device != NULL && strcmp(c->device, "auto") == 0;
    if (c->backend != NULL && is_auto)
        return HK_OK;
    HKI_TRY(hk_device_find(c->device, &k->device));
    if (k->device.backend == NULL)
        return HK_OK;
    if (c->backend != NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "run config: backend %s and device %s exclude each "
                        "other; set one of them",
                        c->backend, c->device);
    c->backend = k->device.backend;
    return HK_OK;
}

hk_status hki_config_init(hki_config *k, hki_arena *a,
                          const hk_run_config *src) {
    hk_run_config *const c = &k->c;
    *c = defaults;
    HKI_TRY(hki_options_copy(c, sizeof *c, src, "run config"));
    HKI_TRY(check_saving(c));
    HKI_TRY(check_periods(c));
    HKI_TRY(check_workers(c));
    HKI_TRY(hki_copy_text(a, &c->model_dir));
    HKI_TRY(hki_copy_text(a, &c->basename));
    HKI_TRY(hki_copy_text(a, &c->best_metric));
    HKI_TRY(hki_copy_text(a, &c->backend));
    HKI_TRY(hki_copy_text(a, &c->device));
    HKI_TRY(find_device(k));
    HKI_TRY(copy_connect(k, a));
    k->is_elastic = c->workers > 1 || c->center != NULL ||
                    c->center_addresses != NULL || c->elastic != NULL ||
                    c->center_options != NULL || c->method != 0;
    HKI_TRY(copy_center(k, a));
    c->center_options = &k->center;
    if (c->elastic != NULL) {
        HKI_TRY(hki_copy_elastic(a, c->elastic, &k->elastic));
        c->elastic = &k->elastic;
    }
    if (c->ema != NULL) {
        HKI_TRY(hki_copy_ema(a, c->ema, &k->ema));
        c->ema = &k->ema;
    }
    return HK_OK;
}
