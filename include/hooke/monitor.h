// hooke/monitor.h - counters, gauges and histograms of a running process, for
// Prometheus (GET /metrics) and as JSON (GET /status).
//
//     hk_monitor_options o;
//     hk_monitor_options_init(&o, sizeof o);
//     o.listen = "127.0.0.1:9469";            // NULL: no endpoint
//     hk_monitor_create(&o, &m);
//     hk_monitor_series(m, HK_COUNTER, "hooke_steps_total", "Local steps.",
//                       NULL, 0, &steps);
//     hk_series_add(steps, 1);
//
// Names and the form of /status are in docs/formats/metrics.md.
//
// Threads: every call may be made from any thread.
#ifndef HOOKE_MONITOR_H
#define HOOKE_MONITOR_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/context.h"
#include "hooke/status.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct hk_monitor hk_monitor; // opaque
typedef struct hk_series hk_series;   // opaque; lives as long as its monitor

typedef enum hk_series_kind {
    HK_COUNTER = 1,  // only grows; its name ends in _total
    HK_GAUGE = 2,    // any number
    HK_HISTOGRAM = 3 // counts of observations up to bounds
} hk_series_kind;

typedef struct hk_monitor_label {
    const char *name, *value;
} hk_monitor_label;

typedef struct hk_monitor_options {
    size_t struct_size;  // set by hk_monitor_options_init, never by hand
    hk_context *context; // receives the log; NULL: silent; borrowed
    const char *listen;  // "host:port", port 0: a free one; NULL: no endpoint.
                         // The host is a number or "localhost"
    // Called before the series are read, e.g. to set gauges; any thread, one
    // call at a time. NULL: none.
    void (*collect)(void *user, hk_monitor *m);
    void *user;
    uint32_t max_series; // HK_E_OVERFLOW beyond; default 65536
    uint32_t reserved;   // zero
} hk_monitor_options;

HK_API void hk_monitor_options_init(hk_monitor_options *opt,
                                    size_t struct_size);
// HK_E_UNSUPPORTED when listen is given and the build has no endpoint.
HK_API hk_status hk_monitor_create(const hk_monitor_options *opt,
                                   hk_monitor **out);
HK_API void hk_monitor_destroy(hk_monitor *m); // NULL is allowed
// "127.0.0.1:9469" with the port in use; NULL: no endpoint.
HK_API const char *hk_monitor_address(const hk_monitor *m);

// Finds or makes a series. help and labels: copied. HK_E_EXISTS when the name
// is of another kind. Histograms get the bounds of the name's first series:
// 1 ms to 1000 s, three a decade.
HK_API hk_status hk_monitor_series(hk_monitor *m, hk_series_kind kind,
                                   const char *name, const char *help,
                                   const hk_monitor_label *labels,
                                   size_t n_labels, hk_series **out);
// Sets the bounds (ascending, finite) of a histogram's name before its first
// series.
HK_API hk_status hk_monitor_bounds(hk_monitor *m, const char *name,
                                   const double *bounds, size_t n);

HK_API void hk_series_add(hk_series *s, double v);     // counter, gauge
HK_API void hk_series_set(hk_series *s, double v);     // counter, gauge
HK_API void hk_series_observe(hk_series *s, double v); // histogram
HK_API double hk_series_value(const hk_series *s); // histogram: their number

// A fact in words for /status ("role", "worker"); value NULL removes it.
HK_API hk_status hk_monitor_fact(hk_monitor *m, const char *name,
                                 const char *value);

// What the endpoint answers. With buf NULL or capacity too small only *size
// is set (without the closing NUL); the second case returns HK_E_OVERFLOW.
HK_API hk_status hk_monitor_metrics(hk_monitor *m, char *buf, size_t capacity,
                                    size_t *size);
HK_API hk_status hk_monitor_status(hk_monitor *m, char *buf, size_t capacity,
                                   size_t *size);

#ifdef __cplusplus
}
#endif
#endif // HOOKE_MONITOR_H
