// monitor/monitor.h - the registry behind hooke/monitor.h, as its writers and
// its endpoint see it.
#ifndef HKI_CLUSTER_METRICS_H
#define HKI_CLUSTER_METRICS_H
#include <pthread.h>
#include "base/base.h"
#include "hooke/monitor.h"

#define HKI_MAX_LABELS 8
#define HKI_MAX_BOUNDS 64

typedef struct hki_family hki_family;

struct hk_series {
    hki_family *family;
    struct hk_series *next; // of the family, by labels
    char *labels;           // name="value",... escaped; "" for none
    char *json_labels;      // "name": "value", ... escaped; "" for none
    char *worker;           // value of the label "worker"; NULL: none
    double value;           // counter, gauge; histogram: sum
    uint64_t count;         // histogram
    uint64_t *bucket;       // n_bounds + 1, not cumulative
};

struct hki_family {
    struct hki_family *next; // by name
    hk_monitor *monitor;
    char *name, *help;
    hk_series_kind kind;
    uint32_t n_bounds;
    double bounds[HKI_MAX_BOUNDS];
    hk_series *first;
};

typedef struct hki_fact {
    struct hki_fact *next; // by name
    char *name, *value;
} hki_fact;

struct hk_monitor {
    hk_monitor_options opt; // strings are the caller's and not kept
    pthread_mutex_t mutex;  // guards everything below
    hki_family *families;
    hki_fact *facts;
    uint32_t n_series;
    int64_t start_ns;
    pthread_mutex_t collecting; // one collect at a time; taken before mutex
    struct hki_monitor_http *http;
};

// Both collect first and append to an empty buffer.
hk_status hki_metrics_text(hk_monitor *m, hki_buf *b);
hk_status hki_metrics_json(hk_monitor *m, hki_buf *b);

// Serves m at "host:port". HK_E_UNSUPPORTED in a build without.
hk_status hki_monitor_http_start(hk_monitor *m, const char *listen,
                                 struct hki_monitor_http **out);
void hki_monitor_http_stop(struct hki_monitor_http *e); // NULL is allowed
const char *hki_monitor_http_address(const struct hki_monitor_http *e);

#endif // HKI_CLUSTER_METRICS_H
