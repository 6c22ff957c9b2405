// metrics_text.c - the registry in Prometheus' text format 0.0.4 and as JSON.
#include "monitor/monitor.h"
#include <math.h>
#include "codec/codec.h"

// Shortest digits that read back as the same double.
static void shortest(double v, char out[32]) {
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, 32, "%.*g", digits, v);
        if (strtod(out, NULL) == v)
            return;
    }
}

static void prometheus_number(double v, char out[32]) {
    if (isnan(v))
        snprintf(out, 32, "NaN");
    else if (isinf(v))
        snprintf(out, 32, v > 0 ? "+Inf" : "-Inf");
    else
        shortest(v, out);
}

// JSON has no NaN and no infinity.
static void json_number(double v, char out[32]) {
    if (isfinite(v))
        shortest(v, out);
    else
        snprintf(out, 32, "null");
}

// Lets the owner bring the series up to date, then takes the mutex.
static void begin(hki_monitor *m) {
    hki_mutex_lock(&m->collecting);
    if (m->opt.collect != NULL)
        m->opt.collect(m->opt.user, m);
    hki_mutex_lock(&m->mutex);
}

static void end(hki_monitor *m) {
    hki_mutex_unlock(&m->mutex);
    hki_mutex_unlock(&m->collecting);
}

// ---- Prometheus ------------------------------------------------------------

static hk_status add_help(hki_buf *b, const char *help) {
    for (; *help != '\0'; help++)
        if (*help == '\\')
            HKI_TRY(hki_buf_add(b, "\\\\", 2));
        else if (*help == '\n')
            HKI_TRY(hki_buf_add(b, "\\n", 2));
        else
            HKI_TRY(hki_buf_add(b, help, 1));
    return HK_OK;
}

// name{labels,more} value
static hk_status sample(hki_buf *b, const char *name, const char *suffix,
                        const char *labels, const char *more, double v) {
    char number[32];
    prometheus_number(v, number);
    const bool any = labels[0] != '\0' || more[0] != '\0';
    const bool both = labels[0] != '\0' && more[0] != '\0';
    return hki_buf_printf(b, "%s%s%s%s%s%s%s %s\n", name, suffix,
                          any ? "{" : "", labels, both ? "," : "", more,
                          any ? "}" : "", number);
}

static hk_status histogram(hki_buf *b, const hki_family *f,
                           const hki_metric *s) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i <= f->n_bounds; i++) {
        char bound[32], le[48];
        prometheus_number(i < f->n_bounds ? f->bounds[i] : HUGE_VAL, bound);
        snprintf(le, sizeof le, "le=\"%s\"", bound);
        sum += s->bucket[i];
        HKI_TRY(sample(b, f->name, "_bucket", s->labels, le, (double)sum));
    }
    HKI_TRY(sample(b, f->name, "_sum", s->labels, "", s->value));
    return sample(b, f->name, "_count", s->labels, "", (double)s->count);
}

static hk_status family_text(hki_buf *b, const hki_family *f) {
    static const char *const kinds[] = {"", "counter", "gauge", "histogram"};
    if (f->first == NULL)
        return HK_OK;
    if (f->help[0] != '\0') {
        HKI_TRY(hki_buf_printf(b, "# HELP %s ", f->name));
        HKI_TRY(add_help(b, f->help));
        HKI_TRY(hki_buf_add(b, "\n", 1));
    }
    HKI_TRY(hki_buf_printf(b, "# TYPE %s %s\n", f->name, kinds[f->kind]));
    for (const hki_metric *s = f->first; s != NULL; s = s->next)
        HKI_TRY(f->kind == HKI_HISTOGRAM
                    ? histogram(b, f, s)
                    : sample(b, f->name, "", s->labels, "", s->value));
    return HK_OK;
}

hk_status hki_metrics_text(hki_monitor *m, hki_buf *b) {
    hk_status s = hki_buf_add(b, "", 0);
    begin(m);
    for (const hki_family *f = m->families; f != NULL && s == HK_OK;
         f = f->next)
        s = family_text(b, f);
    end(m);
    return s;
}

// ---- JSON ------------------------------------------------------------------

// The number of a series, or the object of a histogram.
static hk_status json_value(hki_buf *b, const hki_metric *s) {
    const hki_family *const f = s->family;
    char number[32];
    json_number(s->value, number);
    if (f->kind != HKI_HISTOGRAM)
        return hki_buf_printf(b, "%s", number);
    HKI_TRY(hki_buf_printf(b, "{\"count\": %llu, \"sum\": %s, \"buckets\": {",
                           (unsigned long long)s->count, number));
    uint64_t sum = 0;
    for (uint32_t i = 0; i <= f->n_bounds; i++) {
        prometheus_number(i < f->n_bounds ? f->bounds[i] : HUGE_VAL, number);
        sum += s->bucket[i];
        HKI_TRY(hki_buf_printf(b, "%s\"%s\": %llu", i == 0 ? "" : ", ", number,
                               (unsigned long long)sum));
    }
    return hki_buf_printf(b, "}}");
}

// "hooke_worker_steps_total" of a worker is "steps_total" in its object.
static const char *worker_key(const char *name) {
    static const char prefix[] = "hooke_worker_";
    return strncmp(name, prefix, sizeof prefix - 1) == 0
               ? name + sizeof prefix - 1
               : name;
}

// Orders numbers as numbers: "2" before "10".
static int compare_workers(const char *a, const char *b) {
    const size_t la = strlen(a), lb = strlen(b);
    if (la != lb)
        return la < lb ? -1 : 1;
    return strcmp(a, b);
}

// By worker, then by name.
static int by_worker(const void *a, const void *b) {
    const hki_metric *const x = *(const hki_metric *const *)a;
    const hki_metric *const y = *(const hki_metric *const *)b;
    const int order = compare_workers(x->worker, y->worker);
    if (order != 0)
        return order;
    const int name = strcmp(x->family->name, y->family->name);
    return name != 0 ? name : strcmp(x->labels, y->labels);
}

static hk_status json_member(hki_buf *b, const hki_metric *s) {
    const char *const name = s->family->name;
    HKI_TRY(hki_buf_printf(b, ", \"%s\": ", worker_key(name)));
    // An info series has its content in the labels.
    const size_t n = strlen(name);
    if (n > 5 && strcmp(name + n - 5, "_info") == 0)
        return hki_buf_printf(b, "{%s}", s->json_labels);
    return json_value(b, s);
}

// One object a worker: every series with its label.
static hk_status json_workers(hki_monitor *m, hki_buf *b) {
    HKI_FREED const hki_metric **list = NULL;
    size_t n = 0;
    HKI_TRY(hki_alloc_array(m->n_series, sizeof *list, &list));
    for (const hki_family *f = m->families; f != NULL; f = f->next)
        for (const hki_metric *s = f->first; s != NULL; s = s->next)
            if (s->worker != NULL)
                list[n++] = s;
    qsort(list, n, sizeof *list, by_worker);
    for (size_t i = 0; i < n; i++) {
        const char *const worker = list[i]->worker;
        if (i == 0 || strcmp(list[i - 1]->worker, worker) != 0) {
            HKI_TRY(hki_buf_printf(b, "%s{\"worker\": ", i == 0 ? "" : "}, "));
            HKI_TRY(hki_json_quote(b, worker, strlen(worker)));
        }
        HKI_TRY(json_member(b, list[i]));
    }
    return n > 0 ? hki_buf_printf(b, "}") : HK_OK;
}

static hk_status json_family(hki_buf *b, const hki_family *f, bool *first) {
    const hki_metric *s = f->first;
    while (s != NULL && s->worker != NULL)
        s = s->next;
    if (s == NULL)
        return HK_OK;
    HKI_TRY(hki_buf_printf(b, "%s\"%s\": ", *first ? "" : ", ", f->name));
    *first = false;
    if (s->labels[0] == '\0')
        return json_value(b, s);
    HKI_TRY(hki_buf_printf(b, "["));
    for (bool inner = true; s != NULL; s = s->next) {
        if (s->worker != NULL)
            continue;
        HKI_TRY(hki_buf_printf(b, "%s{%s%s\"value\": ", inner ? "" : ", ",
                               s->json_labels,
                               s->labels[0] == '\0' ? "" : ", "));
        HKI_TRY(json_value(b, s));
        HKI_TRY(hki_buf_printf(b, "}"));
        inner = false;
    }
    return hki_buf_printf(b, "]");
}

static hk_status json_body(hki_monitor *m, hki_buf *b) {
    char number[32];
    json_number(1e-9 * (double)(hki_now_ns() - m->start_ns), number);
    HKI_TRY(hki_buf_printf(b, "{\"version\": \"%s\", \"uptime_seconds\": %s",
                           hk_version(), number));
    for (const hki_fact *f = m->facts; f != NULL; f = f->next) {
        HKI_TRY(hki_buf_printf(b, ", \"%s\": ", f->name));
        HKI_TRY(hki_json_quote(b, f->value, strlen(f->value)));
    }
    HKI_TRY(hki_buf_printf(b, ", \"metrics\": {"));
    bool first = true;
    for (const hki_family *f = m->families; f != NULL; f = f->next)
        HKI_TRY(json_family(b, f, &first));
    HKI_TRY(hki_buf_printf(b, "}, \"workers\": ["));
    HKI_TRY(json_workers(m, b));
    return hki_buf_printf(b, "]}\n");
}

hk_status hki_metrics_json(hki_monitor *m, hki_buf *b) {
    begin(m);
    const hk_status s = json_body(m, b);
    end(m);
    return s;
}
