// history.c - results of evaluations, as event files and in memory.
#include "base/io.h"
#include "estimator/estimator.h"

static hki_series *find(hk_estimator *e, const char *eval, const char *tag) {
    for (size_t i = 0; i < e->history.n; i++)
        if (strcmp(e->history.data[i].eval, eval) == 0 &&
            strcmp(e->history.data[i].tag, tag) == 0)
            return &e->history.data[i];
    return NULL;
}

static hk_status get(hk_estimator *e, const char *eval, const char *tag,
                     hki_series **out) {
    *out = find(e, eval, tag);
    if (*out != NULL)
        return HK_OK;
    HKI_TRY(HKI_LIST_ROOM(e->history));
    hki_series s = {0};
    HKI_TRY(hki_strdup(eval, &s.eval));
    const hk_status st = hki_strdup(tag, &s.tag);
    if (st != HK_OK) {
        hki_free(s.eval);
        return st;
    }
    e->history.data[e->history.n] = s;
    *out = &e->history.data[e->history.n++];
    return HK_OK;
}

static hk_status append(hk_estimator *e, const char *eval, const char *tag,
                        int64_t step, double value) {
    hki_series *s;
    HKI_TRY(get(e, eval, tag, &s));
    HKI_TRY(HKI_LIST_ROOM(s->steps));
    HKI_TRY(HKI_LIST_ROOM(s->values));
    s->steps.data[s->steps.n++] = step;
    s->values.data[s->values.n++] = value;
    return HK_OK;
}

// ---- event files from before ------------------------------------------------

static hk_status read_events(hk_estimator *e, const char *eval,
                             hk_event_reader *r) {
    hk_event ev;
    for (;;) {
        const hk_status s = hk_event_next(r, &ev);
        if (s == HK_E_END)
            return HK_OK;
        HKI_TRY(s);
        if (ev.kind == HK_EVENT_SCALAR)
            HKI_TRY(append(e, eval, ev.tag, ev.step, ev.scalar));
    }
}

static hk_status load(hk_estimator *e, const char *eval) {
    for (size_t i = 0; i < e->history.n; i++)
        if (strcmp(e->history.data[i].eval, eval) == 0)
            e->history.data[i].steps.n = e->history.data[i].values.n = 0;
    const char *const dir = hki_eval_dir(e, eval[0] != '\0' ? eval : NULL);
    if (dir == NULL || !hki_path_is_dir(dir))
        return HK_OK;
    hk_event_reader *r;
    const hk_status opened = hk_event_reader_open(dir, &r);
    if (opened == HK_E_NOT_FOUND || opened == HK_E_END)
        return HK_OK;
    HKI_TRY(opened);
    const hk_status s = read_events(e, eval, r);
    hk_event_reader_close(r);
    return s;
}

static bool evaluated_here(const hk_estimator *e, const char *eval) {
    for (size_t i = 0; i < e->evaluated.n; i++)
        if (strcmp(e->evaluated.data[i], eval) == 0)
            return true;
    return false;
}

// From here on the folder is this process's: it is read once, then followed
// in memory.
hk_status hki_history_begin(hk_estimator *e, const char *eval) {
    if (evaluated_here(e, eval))
        return HK_OK;
    HKI_TRY(load(e, eval));
    HKI_TRY(HKI_LIST_ROOM(e->evaluated));
    char *copy;
    HKI_TRY(hki_strdup(eval, &copy));
    e->evaluated.data[e->evaluated.n++] = copy;
    return HK_OK;
}

hk_status hki_history_add(hk_estimator *e, const char *eval, const char *tag,
                          int64_t step, double value) {
    return append(e, eval, tag, step, value);
}

hk_status hk_estimator_history(hk_estimator *e, const char *eval_name,
                               const char *tag, const int64_t **steps,
                               const double **values, size_t *n) {
    if (e == NULL || tag == NULL || steps == NULL || values == NULL ||
        n == NULL)
        return hki_fail(HK_E_INVALID_ARG, "history: NULL argument");
    const char *const eval = eval_name != NULL ? eval_name : "";
    // Another process evaluates: its files have grown meanwhile.
    if (!evaluated_here(e, eval))
        HKI_TRY(load(e, eval));
    const hki_series *const s = find(e, eval, tag);
    *n = s != NULL ? s->steps.n : 0;
    *steps = s != NULL ? s->steps.data : NULL;
    *values = s != NULL ? s->values.data : NULL;
    return HK_OK;
}

void hki_history_deinit(hk_estimator *e) {
    for (size_t i = 0; i < e->history.n; i++) {
        hki_series *const s = &e->history.data[i];
        hki_free(s->eval);
        hki_free(s->tag);
        hki_free(s->steps.data);
        hki_free(s->values.data);
    }
    hki_free(e->history.data);
    for (size_t i = 0; i < e->evaluated.n; i++)
        hki_free((void *)(uintptr_t)e->evaluated.data[i]);
    hki_free(e->evaluated.data);
    for (size_t i = 0; i < e->eval_logs.n; i++) {
        (void)hk_event_close(e->eval_logs.data[i].writer);
        hki_free(e->eval_logs.data[i].name);
    }
    hki_free(e->eval_logs.data);
}

// ---- writing ----------------------------------------------------------------

hk_status hki_eval_writer(hk_estimator *e, const char *eval,
                          hk_event_writer **out) {
    *out = NULL;
    if (e->config.c.model_dir == NULL)
        return HK_OK;
    for (size_t i = 0; i < e->eval_logs.n; i++)
        if (strcmp(e->eval_logs.data[i].name, eval) == 0) {
            *out = e->eval_logs.data[i].writer;
            return HK_OK;
        }
    HKI_TRY(HKI_LIST_ROOM(e->eval_logs));
    hki_eval_log *const k = &e->eval_logs.data[e->eval_logs.n];
    *k = (hki_eval_log){0};
    HKI_TRY(hki_strdup(eval, &k->name));
    const char *const dir = hki_eval_dir(e, eval[0] != '\0' ? eval : NULL);
    const hk_status s = hki_events_open(e, dir, &k->writer);
    if (s != HK_OK)
        hki_free(k->name);
    if (s == HK_E_IO) { // the next evaluation tries again
        hki_log(e->ctx, HK_LOG_WARNING,
                "%s; the evaluation is missing in the event files",
                hk_last_error());
        return HK_OK;
    }
    HKI_TRY(s);
    e->eval_logs.n++;
    *out = k->writer;
    return HK_OK;
}
