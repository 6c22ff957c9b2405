// monitor/monitor.h - counters, gauges and histograms of a running process, for
// Prometheus (GET /metrics) and as JSON (GET /status). Names and the form of
// /status are in docs/formats/metrics.md.
//
// Threads: every call may be made from any thread.
#ifndef HKI_MONITOR_H
#define HKI_MONITOR_H
#include "base/base.h"
#include "hooke/context.h"

typedef struct hki_monitor hki_monitor;
typedef struct hki_metric hki_metric; // lives as long as its monitor

typedef enum hki_metric_kind {
    HKI_COUNTER = 1,  // only grows; its name ends in _total
    HKI_GAUGE = 2,    // any number
    HKI_HISTOGRAM = 3 // counts of observations up to bounds
} hki_metric_kind;

typedef struct hki_metric_label {
    const char *name, *value;
} hki_metric_label;

typedef struct hki_monitor_options {
    hk_context *context; // receives the log; NULL: silent; borrowed
    const char *listen;  // "host:port", port 0: a free one; NULL: no endpoint.
                         // The host is a number or "localhost"
    // Called before the series are read, e.g. to set gauges; any thread, one
    // call at a time. NULL: none.
    void (*collect)(void *user, hki_monitor *m);
    void *user;
    uint32_t max_series; // HK_E_OVERFLOW beyond; 0: HKI_MAX_SERIES
} hki_monitor_options;

#define HKI_MAX_SERIES 65536

// HK_E_UNSUPPORTED when listen is given and the build has no endpoint.
hk_status hki_monitor_create(const hki_monitor_options *opt, hki_monitor **out);
void hki_monitor_destroy(hki_monitor *m); // NULL is allowed
// "127.0.0.1:9469" with the port in use; NULL: no endpoint.
const char *hki_monitor_address(const hki_monitor *m);

// Finds or makes a series. help and labels: copied. HK_E_EXISTS when the name
// is of another kind. Bounds of histograms: 1 ms to 1000 s, three a decade.
hk_status hki_monitor_series(hki_monitor *m, hki_metric_kind kind,
                             const char *name, const char *help,
                             const hki_metric_label *labels, size_t n_labels,
                             hki_metric **out);
// A series that is NULL takes every value.
void hki_metric_set(hki_metric *s, double v);     // counter, gauge
void hki_metric_observe(hki_metric *s, double v); // histogram
// A fact in words for /status ("role", "worker"); value NULL removes it.
hk_status hki_monitor_fact(hki_monitor *m, const char *name, const char *value);

// ---- within the module ------------------------------------------------------

#define HKI_MAX_LABELS 8
#define HKI_MAX_BOUNDS 64

typedef struct hki_family hki_family;

struct hki_metric {
    hki_family *family;
    struct hki_metric *next; // of the family, by labels
    char *labels;            // name="value",... escaped; "" for none
    char *json_labels;       // "name": "value", ... escaped; "" for none
    char *worker;            // value of the label "worker"; NULL: none
    double value;            // counter, gauge; histogram: sum
    uint64_t count;          // histogram
    uint64_t *bucket;        // n_bounds + 1, not cumulative
};

struct hki_family {
    struct hki_family *next; // by name
    hki_monitor *monitor;
    char *name, *help;
    hki_metric_kind kind;
    uint32_t n_bounds;
    double bounds[HKI_MAX_BOUNDS];
    hki_metric *first;
};

typedef struct hki_fact {
    struct hki_fact *next; // by name
    char *name, *value;
} hki_fact;

struct hki_monitor {
    hki_monitor_options opt; // strings are the caller's and not kept
    hki_mutex mutex;         // guards everything below
    hki_family *families;
    hki_fact *facts;
    uint32_t n_series;
    int64_t start_ns;
    hki_mutex collecting; // one collect at a time; taken before mutex
    struct hki_monitor_http *http;
};

// Both collect first and append to an empty buffer.
hk_status hki_metrics_text(hki_monitor *m, hki_buf *b);
hk_status hki_metrics_json(hki_monitor *m, hki_buf *b);

// Serves m at "host:port". HK_E_UNSUPPORTED in a build without.
hk_status hki_monitor_http_start(hki_monitor *m, const char *listen,
                                 struct hki_monitor_http **out);
void hki_monitor_http_stop(struct hki_monitor_http *e); // NULL is allowed
const char *hki_monitor_http_address(const struct hki_monitor_http *e);

#endif // HKI_MONITOR_H
