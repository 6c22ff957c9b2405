// roles_note.c - what the roles write on the center's board, as JSON, and the
// words in which a run's end is told.
#include <jansson.h>
#include "cluster/roles/roles.h"
#include <math.h>
#include "codec/codec.h"

// ---- limits ----------------------------------------------------------------

HKI_OPTIONS(hk_run_limits, reserved)

static hk_status check_limits(const hki_limits *l) {
    if (l->steps < 0 || !(l->seconds >= 0) || isnan(l->target))
        return hki_fail(
            HK_E_INVALID_ARG,
            "limits: %lld steps, %g seconds or the target %g is out of range",
            (long long)l->steps, l->seconds, l->target);
    return HK_OK;
}

static hk_status set_metric(hki_limits *l, const char *name) {
    const size_t n = strlen(name);
    if (n == 0 || n >= sizeof l->metric)
        return hki_fail(
            HK_E_INVALID_ARG,
            "limits: the name of a metric has to have 1 to %d bytes",
            HKI_METRIC_NAME - 1);
    memcpy(l->metric, name, n + 1);
    l->has_metric = true;
    return HK_OK;
}

hk_status hki_limits_copy(hki_limits *out, const hk_run_limits *src) {
    hk_run_limits o;
    HKI_TRY(HKI_OPTIONS_GET(hk_run_limits, &o, src, "limits"));
    hki_limits l = {.steps = o.steps,
                    .seconds = o.seconds,
                    .target = o.target,
                    .lower = o.lower != 0};
    HKI_TRY(check_limits(&l));
    if (o.metric != NULL)
        HKI_TRY(set_metric(&l, o.metric));
    *out = l;
    return HK_OK;
}

bool hki_limits_any(const hki_limits *l) {
    return l->steps > 0 || l->seconds > 0 || l->has_metric;
}

hk_status hki_limits_print(hki_buf *b, const hki_limits *l) {
    HKI_TRY(hki_buf_printf(b, "{\"steps\": %lld, \"seconds\": %.17g",
                           (long long)l->steps, l->seconds));
    if (l->has_metric) {
        HKI_TRY(hki_buf_printf(b,
                               ", \"target\": %.17g, \"lower\": %s, "
                               "\"metric\": ",
                               l->target, l->lower ? "true" : "false"));
        HKI_TRY(hki_json_quote(b, l->metric, strlen(l->metric)));
    }
    return hki_buf_printf(b, "}");
}

static hk_status read_limits(json_t *root, hki_limits *out) {
    hki_limits l = {0};
    const json_t *const metric = json_object_get(root, "metric");
    if (!json_is_object(root))
        return hki_fail(HK_E_DATA, "limits: not a JSON object");
    l.steps = (int64_t)json_integer_value(json_object_get(root, "steps"));
    l.seconds = json_number_value(json_object_get(root, "seconds"));
    l.target = json_number_value(json_object_get(root, "target"));
    l.lower = json_is_true(json_object_get(root, "lower"));
    HKI_TRY(check_limits(&l));
    if (json_is_string(metric))
        HKI_TRY(set_metric(&l, json_string_value(metric)));
    *out = l;
    return HK_OK;
}

hk_status hki_limits_parse(const void *text, size_t size, hki_limits *out) {
    HKI_SCOPED(json_decrefp) json_t *root = NULL;
    HKI_TRY(hki_json_parse(text, size, "limits", &root));
    return read_limits(root, out);
}

// ---- results of evaluations ------------------------------------------------

hk_status hki_evaluated_print(hki_buf *b, const hki_evaluated *e) {
    HKI_TRY(hki_buf_printf(b,
                           "{\"global_step\": %lld, \"final\": %s, "
                           "\"measures\": {",
                           (long long)e->global_step,
                           e->is_final ? "true" : "false"));
    for (size_t i = 0; i < e->n; i++) {
        const hk_measure *const m = &e->measure[i];
        HKI_TRY(hki_buf_printf(b, i == 0 ? "" : ", "));
        HKI_TRY(hki_json_quote(b, m->name, strnlen(m->name, sizeof m->name)));
        if (isfinite(m->value))
            HKI_TRY(hki_buf_printf(b, ": %.17g", m->value));
        else
            HKI_TRY(hki_buf_printf(b, ": null"));
    }
    return hki_buf_printf(b, "}}");
}

static hk_status read_evaluated(json_t *root, hki_evaluated *out) {
    json_t *const measures = json_object_get(root, "measures");
    if (!json_is_object(root) || !json_is_object(measures))
        return hki_fail(HK_E_DATA,
                        "evaluated: not a JSON object with measures");
    hki_evaluated e = {
        .global_step =
            (int64_t)json_integer_value(json_object_get(root, "global_step")),
        .is_final = json_is_true(json_object_get(root, "final"))};
    const char *key;
    json_t *v;
    json_object_foreach(measures, key, v) {
        const size_t n = strlen(key);
        if (e.n == HK_MAX_MEASURES || n == 0 || n >= HKI_METRIC_NAME)
            return hki_fail(HK_E_DATA,
                            "evaluated: more than %d measures, or the name "
                            "\"%.60s\"",
                            HK_MAX_MEASURES, key);
        hk_measure *const m = &e.measure[e.n++];
        memcpy(m->name, key, n + 1);
        m->value = json_is_number(v) ? json_number_value(v) : NAN;
    }
    *out = e;
    return HK_OK;
}

hk_status hki_evaluated_parse(const void *text, size_t size,
                              hki_evaluated *out) {
    HKI_SCOPED(json_decrefp) json_t *root = NULL;
    HKI_TRY(hki_json_parse(text, size, "evaluated", &root));
    return read_evaluated(root, out);
}

const hk_measure *hki_evaluated_find(const hki_evaluated *e, const char *name) {
    for (size_t i = 0; i < e->n; i++)
        if (strcmp(e->measure[i].name, name) == 0)
            return &e->measure[i];
    return NULL;
}

// ---- reasons ---------------------------------------------------------------

static const char *const end_names[] = {"none", "steps",   "epochs",
                                        "time", "metric",  "asked",
                                        "left", "stopped", "failed"};

const char *hk_run_end_name(hk_run_end e) {
    return (unsigned)e < HKI_COUNT(end_names) ? end_names[e] : NULL;
}

void hki_steps_reason(int64_t steps, int64_t limit, char *out, size_t size) {
    snprintf(out, size, "%s: %lld of %lld", end_names[HK_END_STEPS],
             (long long)steps, (long long)limit);
}

hk_run_end hki_reason_end(const char *reason) {
    for (size_t i = HK_END_STEPS; i < HKI_COUNT(end_names); i++) {
        const size_t n = strlen(end_names[i]);
        if (strncmp(reason, end_names[i], n) == 0 &&
            (reason[n] == ':' || reason[n] == '\0'))
            return (hk_run_end)i;
    }
    return HK_END_ASKED;
}

hk_status hki_reason_check(const char *reason, const char *who) {
    static const char lost[] = HKI_REASON_LOST ":";
    return strncmp(reason, lost, sizeof lost - 1) == 0
               ? hki_fail(HK_E_DATA, "%s: %s", who, reason)
               : HK_OK;
}

void hki_result_init(hk_role_result *r) {
    *r = (hk_role_result){.metric = NAN};
}

void hki_result_set(hk_role_result *r, hk_run_end end, const char *reason) {
    r->end = end;
    snprintf(r->reason, sizeof r->reason, "%s", reason);
}

// ---- options that roles share ----------------------------------------------

hk_status hki_role_connect(const hk_cluster_config *config,
                           const hk_connect_options *connect,
                           hk_connect_options *out, const char ***storage) {
    HKI_TRY(HKI_OPTIONS_GET(hk_connect_options, out, connect, "connect"));
    *storage = NULL;
    if (config == NULL)
        return HK_OK;
    hk_cluster_info info;
    hk_cluster_config_get_info(config, &info);
    if (info.n_centers == 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: there is no center (ps) in the cluster that %s "
                        "describes",
                        info.task_type, hk_launcher_name(info.launcher));
    HKI_TRY(hki_alloc_array(info.n_centers, sizeof **storage, storage));
    for (uint32_t i = 0; i < info.n_centers; i++)
        (*storage)[i] = hk_cluster_config_address(config, "ps", i);
    out->addresses = *storage;
    out->n_addresses = info.n_centers;
    return HK_OK;
}
