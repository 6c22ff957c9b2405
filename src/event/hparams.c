// hparams.c - what TensorBoard's HParams plugin wants to find: the
// experiment's columns once, and for each trial its values and its end.
//
// Each is a summary value with a fixed tag, an empty float tensor, and the
// message itself as the plugin's content:
//
//     HParamsPluginData {2 Experiment | 3 SessionStartInfo | 4 SessionEndInfo}
#include "event/writer.h"

enum { DATA_EXPERIMENT = 2, DATA_SESSION_START = 3, DATA_SESSION_END = 4 };
enum { STATUS_SUCCESS = 1, STATUS_FAILURE = 2 };

// An open value: the places to be closed, the innermost last.
typedef struct plugin_value {
    size_t mark[5];
    int depth;
} plugin_value;

static hk_status open_one(hki_buf *b, plugin_value *v, uint32_t number) {
    return hki_pb_open(b, number, &v->mark[v->depth++]);
}

// Opens value, metadata, plugin data, content and the data's own message.
static hk_status begin_value(hki_buf *b, plugin_value *v, const char *tag,
                             uint32_t data) {
    *v = (plugin_value){0};
    HKI_TRY(open_one(b, v, 1));
    HKI_TRY(hki_pb_string(b, 1, tag));
    // dtype float, shape [0]: a dimension without a size.
    static const uint8_t tensor[] = {0x08, 1, 0x12, 2, 0x12, 0};
    HKI_TRY(hki_pb_bytes(b, 8, tensor, sizeof tensor));
    HKI_TRY(open_one(b, v, 9));
    HKI_TRY(open_one(b, v, 1));
    HKI_TRY(hki_pb_string(b, 1, "hparams"));
    HKI_TRY(open_one(b, v, 2));
    return open_one(b, v, data);
}

static hk_status end_value(hki_buf *b, plugin_value *v) {
    while (v->depth > 0)
        HKI_TRY(hki_pb_close(b, v->mark[--v->depth]));
    return HK_OK;
}

// ---- checks ----------------------------------------------------------------

static hk_status check_text(const char *call, const char *what, const char *s) {
    if (s == NULL || !hki_utf8_valid(s, strlen(s)))
        return hki_fail(HK_E_INVALID_ARG, "%s: %s is %s", call, what,
                        s == NULL ? "missing" : "not UTF-8");
    return HK_OK;
}

static hk_status check_params(const char *call, const hk_hparam *params,
                              size_t n) {
    if (params == NULL && n > 0)
        return hki_fail(HK_E_INVALID_ARG, "%s: there are no parameters", call);
    for (size_t i = 0; i < n; i++) {
        HKI_TRY(hki_event_check_tag(call, params[i].name));
        if (params[i].type < HK_HPARAM_NUMBER ||
            params[i].type > HK_HPARAM_BOOL)
            return hki_fail(HK_E_INVALID_ARG, "%s: %s: unknown type %d", call,
                            params[i].name, (int)params[i].type);
        if (params[i].type == HK_HPARAM_STRING)
            HKI_TRY(check_text(call, params[i].name, params[i].string));
    }
    return HK_OK;
}

// ---- the experiment --------------------------------------------------------

static hk_status column(hki_buf *b, const hk_hparam *p) {
    // Theirs: 1 string, 2 bool, 3 float64.
    static const uint8_t types[] = {
        [HK_HPARAM_NUMBER] = 3, [HK_HPARAM_STRING] = 1, [HK_HPARAM_BOOL] = 2};
    size_t mark;
    HKI_TRY(hki_pb_open(b, 4, &mark));
    HKI_TRY(hki_pb_string(b, 1, p->name));
    HKI_TRY(hki_pb_varint(b, 4, types[p->type]));
    return hki_pb_close(b, mark);
}

// The plugin looks for the tag in the run <trial>/<group>.
static hk_status metric(hki_buf *b, const char *group, const char *tag) {
    size_t info, name;
    HKI_TRY(hki_pb_open(b, 5, &info));
    HKI_TRY(hki_pb_open(b, 1, &name));
    if (group[0] != '\0')
        HKI_TRY(hki_pb_string(b, 1, group));
    HKI_TRY(hki_pb_string(b, 2, tag));
    HKI_TRY(hki_pb_close(b, name));
    return hki_pb_close(b, info);
}

static hk_status experiment(hki_buf *b, double time, const char *name,
                            const hk_hparam *params, size_t n,
                            const char *group, const char *const *metrics,
                            size_t n_metrics) {
    plugin_value v;
    HKI_TRY(begin_value(b, &v, "_hparams_/experiment", DATA_EXPERIMENT));
    HKI_TRY(hki_pb_double(b, 3, time));
    for (size_t i = 0; i < n; i++)
        HKI_TRY(column(b, &params[i]));
    for (size_t i = 0; i < n_metrics; i++)
        HKI_TRY(metric(b, group, metrics[i]));
    if (name[0] != '\0')
        HKI_TRY(hki_pb_string(b, 6, name));
    return end_value(b, &v);
}

hk_status hk_event_hparams_experiment(hk_event_writer *w, const char *name,
                                      const hk_hparam *params, size_t n,
                                      const char *group,
                                      const char *const *metrics,
                                      size_t n_metrics) {
    static const char call[] = "hparams experiment";
    if (w == NULL || (metrics == NULL && n_metrics > 0))
        return hki_fail(HK_E_INVALID_ARG, "%s: NULL given", call);
    if (name == NULL)
        name = "";
    if (group == NULL)
        group = "";
    HKI_TRY(check_text(call, "the name", name));
    HKI_TRY(check_text(call, "the group", group));
    HKI_TRY(check_params(call, params, n));
    for (size_t i = 0; i < n_metrics; i++)
        HKI_TRY(hki_event_check_tag(call, metrics[i]));
    hki_event_draft d;
    hk_status s = hki_event_begin(w, 0, HKI_EVENT_SUMMARY, &d);
    if (s == HK_OK)
        s = experiment(&d.bytes, hki_event_time(w), name, params, n, group,
                       metrics, n_metrics);
    return hki_event_send(w, &d, s);
}

// ---- a trial ---------------------------------------------------------------

// One entry of map<string, google.protobuf.Value>.
static hk_status parameter(hki_buf *b, const hk_hparam *p) {
    size_t entry, value;
    HKI_TRY(hki_pb_open(b, 1, &entry));
    HKI_TRY(hki_pb_string(b, 1, p->name));
    HKI_TRY(hki_pb_open(b, 2, &value));
    switch (p->type) {
    case HK_HPARAM_NUMBER:
        HKI_TRY(hki_pb_double(b, 2, p->number));
        break;
    case HK_HPARAM_STRING:
        HKI_TRY(hki_pb_string(b, 3, p->string));
        break;
    case HK_HPARAM_BOOL:
        HKI_TRY(hki_pb_varint(b, 4, p->number != 0));
        break;
    }
    HKI_TRY(hki_pb_close(b, value));
    return hki_pb_close(b, entry);
}

static hk_status session_start(hki_buf *b, double time, const char *trial,
                               const hk_hparam *params, size_t n) {
    plugin_value v;
    HKI_TRY(
        begin_value(b, &v, "_hparams_/session_start_info", DATA_SESSION_START));
    for (size_t i = 0; i < n; i++)
        HKI_TRY(parameter(b, &params[i]));
    HKI_TRY(hki_pb_string(b, 4, trial));
    HKI_TRY(hki_pb_double(b, 5, time));
    return end_value(b, &v);
}

hk_status hk_event_hparams_start(hk_event_writer *w, const char *trial,
                                 const hk_hparam *params, size_t n) {
    static const char call[] = "hparams start";
    if (w == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: no writer", call);
    HKI_TRY(check_text(call, "the trial's name", trial));
    HKI_TRY(check_params(call, params, n));
    hki_event_draft d;
    hk_status s = hki_event_begin(w, 0, HKI_EVENT_SUMMARY, &d);
    if (s == HK_OK)
        s = session_start(&d.bytes, hki_event_time(w), trial, params, n);
    return hki_event_send(w, &d, s);
}

static hk_status session_end(hki_buf *b, double time, uint64_t status) {
    plugin_value v;
    HKI_TRY(begin_value(b, &v, "_hparams_/session_end_info", DATA_SESSION_END));
    HKI_TRY(hki_pb_varint(b, 1, status));
    HKI_TRY(hki_pb_double(b, 2, time));
    return end_value(b, &v);
}

hk_status hk_event_hparams_end(hk_event_writer *w, int succeeded) {
    if (w == NULL)
        return hki_fail(HK_E_INVALID_ARG, "hparams end: no writer");
    hki_event_draft d;
    hk_status s = hki_event_begin(w, 0, HKI_EVENT_SUMMARY, &d);
    if (s == HK_OK)
        s = session_end(&d.bytes, hki_event_time(w),
                        succeeded ? STATUS_SUCCESS : STATUS_FAILURE);
    return hki_event_send(w, &d, s);
}
