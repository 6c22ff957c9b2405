// retention.c - which checkpoints stay: plans on copies of the state, so that
// a save that fails changes nothing.
#include "ckpt/model_dir/retention.h"

#define MAX_RECORDS 10000

// ---- metrics ---------------------------------------------------------------

// Whether a stands before b; the earlier one wins a tie.
static bool better(const hki_retention *r, const hki_record *a,
                   const hki_record *b) {
    if (a->metric != b->metric)
        return r->best_is_max ? a->metric > b->metric : a->metric < b->metric;
    return a < b;
}

static bool among_best(const hki_retention *r, const hki_state *s,
                       const hki_record *record) {
    size_t before = 0;
    for (size_t i = 0; i < s->count; i++)
        before += s->records[i].has_metric && &s->records[i] != record &&
                  better(r, &s->records[i], record);
    return record->has_metric && before < r->keep_best;
}

bool hki_retention_wants(const hki_retention *r, const hki_state *s,
                         double metric) {
    size_t before = 0;
    for (size_t i = 0; i < s->count; i++) {
        const hki_record *const k = &s->records[i];
        before += k->has_metric &&
                  (r->best_is_max ? k->metric >= metric : k->metric <= metric);
    }
    return before < r->keep_best;
}

hki_record *hki_retention_best(const hki_retention *r, const hki_state *s) {
    hki_record *best = NULL;
    for (size_t i = 0; i < s->count; i++)
        if (s->records[i].has_metric &&
            (best == NULL || better(r, &s->records[i], best)))
            best = &s->records[i];
    return best;
}

static bool is_newest(const hki_state *s, const hki_record *record) {
    return s->newest != NULL && strcmp(s->newest, record->path) == 0;
}

// ---- plans -----------------------------------------------------------------

// Takes record number i off the state. Its files go, too, but only in the
// state's own folder.
static hk_status doom(hki_state *s, size_t i, hki_paths *doomed) {
    if (strchr(s->records[i].path, '/') == NULL)
        HKI_TRY(hki_paths_add(doomed, s->records[i].path));
    hki_state_drop(s, i);
    return HK_OK;
}

// The oldest on the list is one too many.
static hk_status retire_oldest(const hki_retention *r, hki_state *s,
                               hki_paths *doomed) {
    size_t listed = 0, oldest = s->count;
    for (size_t i = s->count; i-- > 0;)
        if (s->records[i].kind == HKI_RECORD_LISTED) {
            listed++;
            oldest = i;
        }
    if (r->keep_max == 0 || listed <= r->keep_max)
        return HK_OK;
    hki_record *const record = &s->records[oldest];
    if (record->time > s->last_preserved + r->every_seconds) {
        record->kind = HKI_RECORD_PRESERVED;
        s->last_preserved += r->every_seconds;
        return HK_OK;
    }
    if (among_best(r, s, record)) {
        record->kind = HKI_RECORD_BEST;
        return HK_OK;
    }
    return doom(s, oldest, doomed);
}

// A state does not grow for ever: the oldest of those that stay anyway are
// forgotten; their files stay.
static void forget_some(const hki_retention *r, hki_state *s) {
    for (size_t i = 0; i < s->count && s->count > MAX_RECORDS;) {
        const hki_record_kind kind = s->records[i].kind;
        if (kind == HKI_RECORD_PRESERVED ||
            (kind == HKI_RECORD_LISTED && r->keep_max == 0))
            hki_state_drop(s, i);
        else
            i++;
    }
}

hk_status hki_retention_save(const hki_retention *r, const hki_state *s,
                             const char *path, double now, hki_state *next,
                             hki_paths *doomed) {
    HKI_TRY(hki_state_copy(s, next));
    const hki_record *const same = hki_state_find(next, path);
    if (same != NULL) // saved again: it moves to the end, without its metric
        hki_state_drop(next, (size_t)(same - next->records));
    HKI_TRY(hki_state_add(next, HKI_RECORD_LISTED, path, now));
    HKI_TRY(hki_state_set_newest(next, path));
    HKI_TRY(retire_oldest(r, next, doomed));
    forget_some(r, next);
    return HK_OK;
}

hk_status hki_retention_metric(const hki_retention *r, const hki_state *s,
                               size_t i, double value, hki_state *next,
                               hki_paths *doomed) {
    HKI_TRY(hki_state_copy(s, next));
    next->records[i].metric = value;
    next->records[i].has_metric = true;
    for (size_t k = next->count; k-- > 0;)
        if (next->records[k].kind == HKI_RECORD_BEST &&
            !is_newest(next, &next->records[k]) &&
            !among_best(r, next, &next->records[k]))
            HKI_TRY(doom(next, k, doomed));
    return HK_OK;
}
