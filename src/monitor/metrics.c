// metrics.c - the registry: families of series, sorted by name and labels so
// that what is written does not depend on the order of their making.
#include "monitor/monitor.h"
#include <math.h>
#include "codec/codec.h"

// 1, 2, 5 a decade: seconds of an exchange over shared memory or a slow link.
static const double default_bounds[] = {
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1,
    2,     5,     10,    20,   50,   100,  200, 500, 1000};

hk_status hki_monitor_create(const hki_monitor_options *opt,
                             hki_monitor **out) {
    hki_monitor *m;
    HKI_TRY(hki_zalloc_array(1, sizeof *m, &m));
    hki_mutex_init(&m->mutex);
    hki_mutex_init(&m->collecting);
    m->start_ns = hki_now_ns();
    m->opt = *opt;
    m->opt.listen = NULL;
    hk_status s = HK_OK;
    if (opt->listen != NULL)
        s = hki_monitor_http_start(m, opt->listen, &m->http);
    HKI_TRY_OR(s, hki_monitor_destroy(m));
    *out = m;
    return HK_OK;
}

static void free_series(hki_metric *s) {
    hki_free(s->labels);
    hki_free(s->json_labels);
    hki_free(s->worker);
    hki_free(s->bucket);
    hki_free(s);
}

static void free_family(hki_family *f) {
    while (f->first != NULL) {
        hki_metric *const s = f->first;
        f->first = s->next;
        free_series(s);
    }
    hki_free(f->name);
    hki_free(f->help);
    hki_free(f);
}

static void free_fact(hki_fact *f) {
    hki_free(f->name);
    hki_free(f->value);
    hki_free(f);
}

void hki_monitor_destroy(hki_monitor *m) {
    if (m == NULL)
        return;
    hki_monitor_http_stop(m->http); // nobody asks any more
    while (m->families != NULL) {
        hki_family *const f = m->families;
        m->families = f->next;
        free_family(f);
    }
    while (m->facts != NULL) {
        hki_fact *const f = m->facts;
        m->facts = f->next;
        free_fact(f);
    }
    hki_mutex_deinit(&m->collecting);
    hki_mutex_deinit(&m->mutex);
    hki_free(m);
}

const char *hki_monitor_address(const hki_monitor *m) {
    return m->http == NULL ? NULL : hki_monitor_http_address(m->http);
}

// ---- names and labels ------------------------------------------------------

static bool valid_name(const char *s, bool colon) {
    if (s == NULL || *s == '\0' || (*s >= '0' && *s <= '9'))
        return false;
    for (; *s != '\0'; s++) {
        const bool letter = (*s >= 'a' && *s <= 'z') ||
                            (*s >= 'A' && *s <= 'Z') ||
                            (*s >= '0' && *s <= '9') || *s == '_';
        if (!letter && !(colon && *s == ':'))
            return false;
    }
    return true;
}

static hk_status check_name(hki_metric_kind kind, const char *name) {
    static const char total[] = "_total";
    if (!valid_name(name, true))
        return hki_fail(HK_E_INVALID_ARG,
                        "the metric name \"%.80s\" is malformed",
                        name == NULL ? "" : name);
    if (kind < HKI_COUNTER || kind > HKI_HISTOGRAM)
        return hki_fail(HK_E_INVALID_ARG, "metric %s: unknown kind %d", name,
                        (int)kind);
    const size_t n = strlen(name), tail = sizeof total - 1;
    const bool is_total = n > tail && strcmp(name + n - tail, total) == 0;
    if (is_total != (kind == HKI_COUNTER))
        return hki_fail(HK_E_INVALID_ARG,
                        "metric %s: names of counters, and no others, have to "
                        "end in _total",
                        name);
    return HK_OK;
}

static hk_status check_labels(const char *name, const hki_metric_label *labels,
                              size_t n) {
    if (n > HKI_MAX_LABELS)
        return hki_fail(HK_E_INVALID_ARG,
                        "metric %s: %zu labels are too many; the limit is %d",
                        name, n, HKI_MAX_LABELS);
    for (size_t i = 0; i < n; i++) {
        const char *const l = labels[i].name;
        if (!valid_name(l, false) || strncmp(l, "__", 2) == 0 ||
            strcmp(l, "le") == 0 || labels[i].value == NULL)
            return hki_fail(HK_E_INVALID_ARG,
                            "metric %s: label \"%.80s\" is malformed", name,
                            l == NULL ? "" : l);
        for (size_t k = 0; k < i; k++)
            if (strcmp(l, labels[k].name) == 0)
                return hki_fail(HK_E_INVALID_ARG,
                                "metric %s: label %s is given twice", name, l);
    }
    return HK_OK;
}

// Prometheus' escapes in a label value.
static hk_status add_escaped(hki_buf *b, const char *v) {
    for (; *v != '\0'; v++) {
        const char *const two = *v == '\\'   ? "\\\\"
                                : *v == '"'  ? "\\\""
                                : *v == '\n' ? "\\n"
                                             : NULL;
        HKI_TRY(two != NULL ? hki_buf_add(b, two, 2) : hki_buf_add(b, v, 1));
    }
    return HK_OK;
}

// Both spellings of the labels.
static hk_status spell(const hki_metric_label *labels, size_t n, hki_buf *text,
                       hki_buf *json) {
    HKI_TRY(hki_buf_add(text, "", 0));
    HKI_TRY(hki_buf_add(json, "", 0));
    for (size_t i = 0; i < n; i++) {
        HKI_TRY(
            hki_buf_printf(text, "%s%s=\"", i == 0 ? "" : ",", labels[i].name));
        HKI_TRY(add_escaped(text, labels[i].value));
        HKI_TRY(hki_buf_add(text, "\"", 1));
        HKI_TRY(hki_buf_printf(json, "%s\"%s\": ", i == 0 ? "" : ", ",
                               labels[i].name));
        HKI_TRY(hki_json_quote(json, labels[i].value, strlen(labels[i].value)));
    }
    return HK_OK;
}

// ---- series ----------------------------------------------------------------

// The family of this name, made if it is not there; under the mutex.
static hk_status get_family(hki_monitor *m, hki_metric_kind kind,
                            const char *name, const char *help,
                            hki_family **out) {
    hki_family **at = &m->families;
    while (*at != NULL && strcmp((*at)->name, name) < 0)
        at = &(*at)->next;
    if (*at != NULL && strcmp((*at)->name, name) == 0) {
        if ((*at)->kind != kind)
            return hki_fail(HK_E_EXISTS,
                            "metric %s was registered with another kind", name);
        *out = *at;
        return HK_OK;
    }
    hki_family *f;
    HKI_TRY(hki_zalloc_array(1, sizeof *f, &f));
    f->monitor = m;
    f->kind = kind;
    f->n_bounds = HKI_COUNT(default_bounds);
    memcpy(f->bounds, default_bounds, sizeof default_bounds);
    HKI_TRY_OR(hki_strdup(name, &f->name), free_family(f));
    HKI_TRY_OR(hki_strdup(help == NULL ? "" : help, &f->help), free_family(f));
    f->next = *at;
    *at = f;
    *out = f;
    return HK_OK;
}

static hk_status new_series(hki_family *f, const hki_metric_label *labels,
                            size_t n, const char *text, const char *json,
                            hki_metric **out) {
    hki_metric *s;
    HKI_TRY(hki_zalloc_array(1, sizeof *s, &s));
    s->family = f;
    hk_status st = hki_strdup(text, &s->labels);
    if (st == HK_OK)
        st = hki_strdup(json, &s->json_labels);
    for (size_t i = 0; i < n && st == HK_OK; i++)
        if (strcmp(labels[i].name, "worker") == 0)
            st = hki_strdup(labels[i].value, &s->worker);
    if (st == HK_OK && f->kind == HKI_HISTOGRAM)
        st = hki_zalloc_array((size_t)f->n_bounds + 1, sizeof *s->bucket,
                              &s->bucket);
    HKI_TRY_OR(st, free_series(s));
    *out = s;
    return HK_OK;
}

// Under the mutex.
static hk_status find_series(hki_monitor *m, hki_family *f,
                             const hki_metric_label *labels, size_t n,
                             const char *text, const char *json,
                             hki_metric **out) {
    hki_metric **at = &f->first;
    while (*at != NULL && strcmp((*at)->labels, text) < 0)
        at = &(*at)->next;
    if (*at != NULL && strcmp((*at)->labels, text) == 0) {
        *out = *at;
        return HK_OK;
    }
    const uint32_t most =
        m->opt.max_series != 0 ? m->opt.max_series : HKI_MAX_SERIES;
    if (m->n_series >= most)
        return hki_fail(HK_E_OVERFLOW, "metric %s: %u series are the limit",
                        f->name, most);
    hki_metric *s;
    HKI_TRY(new_series(f, labels, n, text, json, &s));
    s->next = *at;
    *at = s;
    m->n_series++;
    *out = s;
    return HK_OK;
}

hk_status hki_monitor_series(hki_monitor *m, hki_metric_kind kind,
                             const char *name, const char *help,
                             const hki_metric_label *labels, size_t n_labels,
                             hki_metric **out) {
    HKI_TRY(check_name(kind, name));
    HKI_TRY(check_labels(name, labels, n_labels));
    HKI_SCOPED(hki_buf_deinit) hki_buf text = {0}, json = {0};
    hki_family *f;
    HKI_TRY(spell(labels, n_labels, &text, &json));
    HKI_LOCKED(&m->mutex);
    HKI_TRY(get_family(m, kind, name, help, &f));
    return find_series(m, f, labels, n_labels, text.data, json.data, out);
}

// ---- values ----------------------------------------------------------------

void hki_metric_set(hki_metric *s, double v) {
    if (s == NULL || s->family->kind == HKI_HISTOGRAM)
        return;
    HKI_LOCKED(&s->family->monitor->mutex);
    s->value = v;
}

void hki_metric_observe(hki_metric *s, double v) {
    if (s == NULL || s->family->kind != HKI_HISTOGRAM || isnan(v))
        return;
    const hki_family *const f = s->family;
    uint32_t i = 0;
    while (i < f->n_bounds && v > f->bounds[i])
        i++;
    HKI_LOCKED(&f->monitor->mutex);
    s->bucket[i]++;
    s->count++;
    s->value += v;
}

// ---- facts -----------------------------------------------------------------

static hk_status put_fact(hki_monitor *m, const char *name, const char *value) {
    hki_fact **at = &m->facts;
    while (*at != NULL && strcmp((*at)->name, name) < 0)
        at = &(*at)->next;
    const bool there = *at != NULL && strcmp((*at)->name, name) == 0;
    if (value == NULL) {
        if (there) {
            hki_fact *const gone = *at;
            *at = gone->next;
            free_fact(gone);
        }
        return HK_OK;
    }
    char *copy;
    HKI_TRY(hki_strdup(value, &copy));
    if (there) {
        hki_free((*at)->value);
        (*at)->value = copy;
        return HK_OK;
    }
    hki_fact *f = NULL;
    hk_status s = hki_zalloc_array(1, sizeof *f, &f);
    if (s == HK_OK)
        s = hki_strdup(name, &f->name);
    if (s != HK_OK) {
        hki_free(copy);
        hki_free(f);
        return s;
    }
    f->value = copy;
    f->next = *at;
    *at = f;
    return HK_OK;
}

hk_status hki_monitor_fact(hki_monitor *m, const char *name,
                           const char *value) {
    if (!valid_name(name, false))
        return hki_fail(HK_E_INVALID_ARG, "fact \"%.80s\" is malformed",
                        name == NULL ? "" : name);
    if (value != NULL && !hki_utf8_valid(value, strlen(value)))
        return hki_fail(HK_E_INVALID_ARG,
                        "fact %s: \"%.80s\" is not UTF-8, as /status needs",
                        name, value);
    HKI_LOCKED(&m->mutex);
    return put_fact(m, name, value);
}
