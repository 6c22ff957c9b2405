// model_spec.h - what a model_fn said about one mode; it lives with its graph.
#ifndef HKI_ESTIMATOR_MODEL_SPEC_H
#define HKI_ESTIMATOR_MODEL_SPEC_H
#include "estimator/model/list.h"
#include "graph/graph.h"
#include "hooke/hooks.h"

typedef HKI_LIST(hk_hook *) hki_hook_list;

// Type and shape with HK_BATCH in front.
typedef struct hki_spec_input {
    hk_value value;
    hk_node *node;
} hki_spec_input;

typedef struct hki_spec_metric {
    const char *name;
    hk_metric_kind kind;
    hk_metric_options opt; // thresholds in the arena
    bool has_labels, has_weights;
} hki_spec_metric;

typedef struct hki_spec_summary {
    const char *tag;
    hk_summary_kind kind;
} hki_spec_summary;

typedef struct hki_spec_insert {
    hk_point point;
    hk_step_fn fn;
    void *user;
} hki_spec_insert;

typedef struct hki_spec_export {
    const char *signature;
    const char **predictions;
    size_t n;
} hki_spec_export;

// Outputs of the graph carry a prefix by purpose, so that a fetch and a
// prediction may have one name.
#define HKI_OUT_PREDICTION "prediction/"
#define HKI_OUT_FETCH "fetch/"
#define HKI_OUT_SUMMARY "summary/"
#define HKI_OUT_METRIC "metric/" // name/labels, name/predictions...

// What model_fn said about one mode. Lives with its graph.
struct hk_spec {
    hk_graph *g;
    hk_mode mode;
    hki_arena arena;
    // While model_fn runs.
    const hk_element *data;
    void *user;
    HKI_LIST(hki_spec_input) inputs; // what it read
    hki_names predictions, fetches;
    HKI_LIST(hki_spec_metric) metrics;
    HKI_LIST(hki_spec_summary) summaries;
    HKI_LIST(hki_spec_insert) inserts;
    HKI_LIST(hki_spec_export) exports;
    hki_hook_list hooks, chief_hooks;
    bool has_loss, has_optimizer, has_gradproc, has_elastic, has_ema;
    hk_optimizer_options optimizer;
    hk_step_fn train_step; // instead of an optimizer
    void *train_user;
    hk_gradproc_options gradproc;
    hk_elastic_options elastic;
    hk_ema_options ema;
    hk_ema_source ema_source;
    bool ema_with_step;
};

static inline hk_graph *hki_spec_graph(const hk_spec *m) {
    return m != NULL ? m->g : NULL;
}

// The cached spec for the mode and the data's description, built when it is
// not there.
hk_status hki_spec_get(hk_estimator *e, hk_mode mode, const hk_element *data,
                       hk_spec **out);
// Keeps a status that came without an error of the graph; the spec's then.
hk_status hki_spec_keep(hk_spec *m, hk_status s);
bool hki_has_name(const hki_names *l, const char *name);
// Copies option structs with everything they point at.
hk_status hki_copy_text(hki_arena *a, const char **s); // in place; NULL stays
hk_status hki_copy_optimizer(hki_arena *a, const hk_optimizer_options *src,
                             hk_optimizer_options *dst);
hk_status hki_copy_elastic(hki_arena *a, const hk_elastic_options *src,
                           hk_elastic_options *dst);
hk_status hki_copy_ema(hki_arena *a, const hk_ema_options *src,
                       hk_ema_options *dst);
hk_status hki_copy_element(hki_arena *a, const hk_element *src,
                           hk_element *dst);

#endif // HKI_ESTIMATOR_MODEL_SPEC_H
