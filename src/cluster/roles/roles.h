// cluster/roles/roles.h - what the roles have in common: notes on the center's
// board (cluster.h lists them), reasons, series that every role has.
#ifndef HKI_ROLES_H
#define HKI_ROLES_H
#include "cluster/cluster.h"
#include "hooke/roles.h"
#include "monitor/monitor.h"

// An evaluator whose note has not changed for so long is gone.
#define HKI_EVALUATOR_FRESH_MS 15000
#define HKI_EVALUATOR_BEAT_MS 3000

// ---- limits ----------------------------------------------------------------

#define HKI_METRIC_NAME 48 // as in hk_measure

// Limits that own their text.
typedef struct hki_limits {
    int64_t steps;
    double seconds, target;
    bool lower, has_metric;
    char metric[HKI_METRIC_NAME];
} hki_limits;

// src NULL: none. HK_E_INVALID_ARG for negative ones.
hk_status hki_limits_copy(hki_limits *out, const hk_run_limits *src);
bool hki_limits_any(const hki_limits *l);
hk_status hki_limits_print(hki_buf *b, const hki_limits *l);
hk_status hki_limits_parse(const void *text, size_t size, hki_limits *out);

// ---- results of evaluations ------------------------------------------------

typedef struct hki_evaluated {
    int64_t global_step;
    bool is_final;
    size_t n;
    hk_measure measure[HK_MAX_MEASURES];
} hki_evaluated;

hk_status hki_evaluated_print(hki_buf *b, const hki_evaluated *e);
hk_status hki_evaluated_parse(const void *text, size_t size,
                              hki_evaluated *out);
// NULL: no such measure.
const hk_measure *hki_evaluated_find(const hki_evaluated *e, const char *name);

// ---- reasons ---------------------------------------------------------------

// A reason begins with the name of its end: "steps: 1000 of 1000".
hk_run_end hki_reason_end(const char *reason);

// The reason of a run that ends by its limit of steps.
void hki_steps_reason(int64_t steps, int64_t limit, char *out, size_t size);
// HK_E_DATA for the reason of a run that has failed.
hk_status hki_reason_check(const char *reason, const char *who);
void hki_result_init(hk_role_result *r);
void hki_result_set(hk_role_result *r, hk_run_end end, const char *reason);

// ---- metrics ---------------------------------------------------------------

// A monitor with the facts of a role; *out NULL when listen is NULL.
hk_status hki_role_monitor(hk_context *ctx, const char *listen,
                           const char *role, int32_t index,
                           void (*collect)(void *user, hki_monitor *m),
                           void *user, hki_monitor **out);
// A series without labels or with one; NULL (which takes values) when there
// is no room.
hki_metric *hki_role_series(hki_monitor *m, hki_metric_kind kind,
                            const char *name, const char *help,
                            const char *label, const char *value);
// A center server's statistics.
void hki_feed_server(hki_monitor *m, hk_center_server *s);
// A connection's.
void hki_feed_link(hki_monitor *m, hk_center *c);
void hki_feed_evaluated(hki_monitor *m, const hki_evaluated *e);

// ---- options that roles share ----------------------------------------------

// connect's copy with the config's center addresses. storage: array of the
// addresses, freed with hki_free.
hk_status hki_role_connect(const hk_cluster_config *config,
                           const hk_connect_options *connect,
                           hk_connect_options *out, const char ***storage);

#endif // HKI_ROLES_H
