// input.c - input_fn: data sets of workers, batches into sessions, and where
// each worker is in its data.
#include "estimator/estimator.h"
#include "cluster/cluster.h"

HKI_NO_TAIL(hk_source, restart);

hk_source hk_source_dataset(hk_dataset *d) {
    return (hk_source){.struct_size = sizeof(hk_source), .dataset = d};
}

hk_source hk_source_function(hk_input_fn fn, void *user) {
    return (hk_source){
        .struct_size = sizeof(hk_source), .fn = fn, .user = user};
}

hk_status hki_source_check(const hk_source *in, hk_source *out) {
    if (in == NULL)
        return hki_fail(HK_E_INVALID_ARG, "the input is NULL");
    *out = hk_source_dataset(NULL);
    HKI_TRY(hki_options_copy(out, sizeof *out, in, "input"));
    if ((out->dataset == NULL) == (out->fn == NULL))
        return hki_fail(HK_E_INVALID_ARG,
                        "the input needs either a data set or an input_fn");
    if (out->shard != HK_SHARD_BATCHES && out->shard != HK_SHARD_NONE)
        return hki_fail(HK_E_INVALID_ARG, "input: unknown shard policy %d",
                        (int)out->shard);
    if (out->name == NULL)
        out->name = "input";
    if (out->name[0] == '\0' || strlen(out->name) > 200)
        return hki_fail(HK_E_INVALID_ARG,
                        "input: the name is empty or longer than 200 bytes");
    return HK_OK;
}

// ---- data sets --------------------------------------------------------------

static hk_status call_input_fn(const hk_estimator *e, const hk_source *in,
                               hk_mode mode, uint32_t worker, uint32_t workers,
                               hk_lender *lender, hk_dataset **out) {
    const hk_input_call call = {.context = e->ctx,
                                .mode = mode,
                                .worker = worker,
                                .workers = workers,
                                .seed = e->config.c.seed,
                                .lender = lender};
    *out = NULL;
    const hk_status s = in->fn(in->user, &call, out);
    if (s != HK_OK) {
        const hki_fault fault = hki_fault_of(s);
        hk_dataset_release(*out);
        return hki_fail(s, "input_fn %s: %s", in->name, fault.text);
    }
    if (*out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "input_fn %s gave no data set",
                        in->name);
    return HK_OK;
}

hk_status hki_source_open(hk_estimator *e, const hk_source *in, hk_mode mode,
                          uint32_t worker, uint32_t workers, int64_t epochs,
                          hk_lender *lender, hk_dataset **out) {
    hk_dataset *d;
    if (in->fn != NULL)
        HKI_TRY(call_input_fn(e, in, mode, worker, workers, lender, &d));
    else
        d = hk_dataset_retain(in->dataset);
    const bool leased = lender != NULL && lender->is_used;
    // Epochs come before shards: the batches of all passes are dealt out
    // evenly, whatever remains at the end of each. A center that lends the data
    // knows of them.
    if (epochs > 0 && !(leased && lender->take != NULL))
        d = hki_data_epochs(d, epochs);
    if (mode == HK_TRAIN && workers > 1 && in->shard == HK_SHARD_BATCHES &&
        !leased)
        d = hk_data_shard(d, workers, worker);
    const hk_status s = hk_dataset_status(d);
    if (s != HK_OK) {
        const hki_fault fault = hki_fault_of(s);
        hk_dataset_release(d);
        return hki_fail(s, "input %s: %s", in->name, fault.text);
    }
    *out = d;
    return HK_OK;
}

// Training looks at stops between two steps, and coupled workers go on to their
// next exchange: no element is cut short.
hk_status hki_source_iter(hk_estimator *e, hk_dataset *d, hk_mode mode,
                          hk_iter **out) {
    hk_iter_options o;
    hk_iter_options_init(&o, sizeof o);
    o.context = e->ctx;
    o.threads = HKI_MAX(1u, hki_context_threads(e->ctx) / e->config.c.workers);
    o.ignore_stop = mode == HK_TRAIN;
    return hk_iter_create(d, &o, out);
}

// ---- batches ----------------------------------------------------------------

static hk_status find_input(const hk_element *el, const char *name,
                            hk_tensor **out) {
    const hk_value *v = hk_element_find(el, name);
    if (v == NULL || v->tensor == NULL)
        return hki_fail(HK_E_NOT_FOUND, "the data has no %s", name);
    *out = v->tensor;
    return HK_OK;
}

hk_status hki_element_batch(const hk_spec *m, const hk_element *el,
                            int64_t *batch) {
    int64_t n = -1;
    for (size_t i = 0; i < m->inputs.n; i++) {
        const char *name = m->inputs.data[i].value.name;
        hk_tensor *t;
        HKI_TRY(find_input(el, name, &t));
        const hk_shape shape = hk_tensor_shape(t);
        if (shape.rank < 1)
            return hki_fail(HK_E_SHAPE, "%s has no batch dimension", name);
        if (n >= 0 && shape.dim[0] != n)
            return hki_fail(HK_E_SHAPE,
                            "a batch has %lld rows of %s, but %lld of %s",
                            (long long)n, m->inputs.data[0].value.name,
                            (long long)shape.dim[0], name);
        n = shape.dim[0];
    }
    *batch = n;
    return HK_OK;
}

hk_status hki_element_feed(const hk_spec *m, const hk_element *el,
                           hk_session *s) {
    for (size_t i = 0; i < m->inputs.n; i++) {
        const char *name = m->inputs.data[i].value.name;
        hk_tensor *t;
        HKI_TRY(find_input(el, name, &t));
        HKI_TRY(hk_session_feed(s, name, t));
    }
    return HK_OK;
}

// ---- positions --------------------------------------------------------------

static hki_position *find_position(hk_estimator *e, const char *name,
                                   uint32_t worker) {
    for (size_t i = 0; i < e->positions.n; i++) {
        hki_position *p = &e->positions.data[i];
        if (p->worker == worker && strcmp(p->name, name) == 0)
            return p;
    }
    return NULL;
}

hk_status hki_position_get(hk_estimator *e, const char *name, uint32_t worker,
                           hki_position **out) {
    *out = find_position(e, name, worker);
    if (*out != NULL)
        return HK_OK;
    HKI_TRY(HKI_LIST_ROOM(e->positions));
    hki_position p = {.worker = worker};
    HKI_TRY(hki_strdup(name, &p.name));
    e->positions.data[e->positions.n] = p;
    *out = &e->positions.data[e->positions.n++];
    return HK_OK;
}

void hki_positions_deinit(hk_estimator *e) {
    for (size_t i = 0; i < e->positions.n; i++) {
        hki_free(e->positions.data[i].name);
        hki_buf_deinit(&e->positions.data[i].bytes);
    }
    hki_free(e->positions.data);
    e->positions.data = NULL;
    e->positions.n = e->positions.capacity = 0;
}

// Position of an iterator, over what *out held.
static hk_status iter_position(hk_iter *it, hki_buf *out) {
    size_t size;
    HKI_TRY(hk_iter_save(it, NULL, 0, &size));
    out->size = 0;
    HKI_TRY(hki_buf_reserve(out, size));
    HKI_TRY(hk_iter_save(it, out->data, out->capacity - 1, &size));
    out->size = size;
    return HK_OK;
}

// ---- intakes ----------------------------------------------------------------

static hki_identity identify(const hk_source *in) {
    return (hki_identity){.fn = in->fn, .user = in->user, .data = in->dataset};
}

static bool same_identity(const hki_identity *a, const hki_identity *b) {
    return a->fn == b->fn && a->user == b->user && a->data == b->data;
}

// Lent by a center, not a share.
static bool is_lent(const hki_intake *t) {
    return t->lender.is_used && t->lender.take != NULL;
}

void hki_intake_rewind(hki_intake *t) {
    hk_iter_destroy(t->iter);
    t->iter = NULL;
    t->pending = NULL;
    t->ended = false;
}

static void close_intake(hki_intake *t) {
    hki_intake_rewind(t);
    hk_dataset_release(t->dataset);
    t->dataset = NULL;
    hki_borrowed_deinit(&t->lent);
    hki_lender_deinit(&t->lender);
}

static bool have_ended(const hki_intakes *s) {
    bool all = true;
    for (uint32_t i = 0; i < s->n; i++)
        all = all && s->at[i].ended;
    return all;
}

// Where the worker goes on: behind the last batch that was used. One that has
// no more waits for the others; when all have ended they begin anew.
static hk_status intake_position(const hki_intakes *s, hki_intake *t,
                                 hki_buf *out) {
    out->size = 0;
    if (t->iter == NULL || have_ended(s) || is_lent(t))
        return HK_OK;
    if (t->pending != NULL)
        return hki_buf_add(out, t->before.data, t->before.size);
    return iter_position(t->iter, out);
}

// A stop that cut an element short, as of data that did not come, leaves no
// position: that of the last checkpoint stays.
static hk_status park(hk_estimator *e, hki_intake *t, hki_position *p) {
    const hk_status s = intake_position(&e->intakes, t, &p->bytes);
    if (s != HK_E_CANCELLED && s != HK_E_STATE)
        return s;
    if (!hk_stop_requested(e->ctx))
        return s;
    hki_log(e->ctx, HK_LOG_WARNING,
            "worker %u: stopped while it waited for data; the next start "
            "continues at the data of the last checkpoint",
            t->id);
    return HK_OK;
}

hk_status hki_intakes_park(hk_estimator *e) {
    for (uint32_t i = 0; e->intakes.name != NULL && i < e->intakes.n; i++) {
        hki_position *p;
        HKI_TRY(hki_position_get(e, e->intakes.name, e->intakes.at[i].id, &p));
        HKI_TRY(park(e, &e->intakes.at[i], p));
        p->identity = e->intakes.identity;
        p->from_file = false;
    }
    return HK_OK;
}

void hki_intakes_close(hki_intakes *s) {
    for (uint32_t i = 0; i < s->n; i++) {
        close_intake(&s->at[i]);
        hki_buf_deinit(&s->at[i].before);
    }
    hki_free(s->at);
    hki_free(s->name);
    *s = (hki_intakes){0};
}

// A position counts when it came with the checkpoint or was left by the same
// source; otherwise the data begins at its start.
static hk_status seek(hk_estimator *e, const hk_source *in, hki_intake *t) {
    hki_position *p;
    HKI_TRY(hki_position_get(e, in->name, t->id, &p));
    const hki_identity id = identify(in);
    const bool mine = p->from_file || same_identity(&p->identity, &id);
    p->from_file = false;
    p->identity = id;
    if (in->restart || !mine || p->bytes.size == 0)
        return HK_OK;
    const hk_status s = hk_iter_restore(t->iter, p->bytes.data, p->bytes.size);
    if (s != HK_E_INVALID_ARG)
        return s;
    // Another pipeline under the same name: people change their input.
    hki_log(
        e->ctx, HK_LOG_WARNING,
        "worker %u: the training data (source \"%s\") starts again from the "
        "beginning, because its settings have changed since the checkpoint",
        t->id, in->name);
    hk_iter_destroy(t->iter);
    t->iter = NULL;
    return hki_source_iter(e, t->dataset, HK_TRAIN, &t->iter);
}

// Among several workers, or beside a center that others may come to.
static bool has_others(const hk_run_config *c) {
    return c->all_workers > 1 ||
           (c->center != NULL && hki_center_lends(c->center));
}

static hk_status open_intake(hk_estimator *e, const hk_source *in,
                             int64_t epochs, hki_intake *t) {
    const hk_run_config *const c = &e->config.c;
    t->e = e;
    HKI_TRY(
        hki_borrowed_init(&t->lent, c, in->name, epochs, t->id, &t->lender));
    t->lent.context = e->ctx;
    // A share is for those who know their number.
    const bool lends = has_others(c) && (t->lender.take != NULL ||
                                         c->first_worker != UINT32_MAX);
    HKI_TRY(hki_source_open(e, in, HK_TRAIN, t->id, c->all_workers, epochs,
                            lends ? &t->lender : NULL, &t->dataset));
    if (is_lent(t))
        return HK_OK;
    HKI_TRY(hki_source_iter(e, t->dataset, HK_TRAIN, &t->iter));
    return seek(e, in, t);
}

// The data of the same source goes on.
static bool still_open(const hki_intakes *s, const hk_source *in,
                       int64_t epochs) {
    const hki_identity id = identify(in);
    return s->name != NULL && strcmp(s->name, in->name) == 0 &&
           same_identity(&s->identity, &id) && s->epochs == epochs &&
           !in->restart;
}

hk_status hki_intake_next(hki_intake *t, const hk_element **out) {
    if (t->iter == NULL)
        HKI_TRY(hki_source_iter(t->e, t->dataset, HK_TRAIN, &t->iter));
    if (t->pending != NULL) {
        *out = t->pending;
        t->pending = NULL;
        return HK_OK;
    }
    hki_lender_wait(&t->lender, HKI_MAX(hki_dataset_batch(t->dataset), 1));
    const hk_status s = t->ended ? HK_E_END : hk_iter_next(t->iter, out);
    hki_lender_wait(&t->lender, 0);
    if (s == HK_E_END)
        t->ended = true;
    return s;
}

hk_status hki_intake_peek(hki_intake *t, const hk_element **out) {
    if (t->pending == NULL) {
        HKI_TRY(iter_position(t->iter, &t->before));
        HKI_TRY(hki_intake_next(t, &t->pending));
    }
    *out = t->pending;
    return HK_OK;
}

hk_status hki_intakes_look(hki_intakes *s, const hk_element **out) {
    hk_status found = HK_E_END;
    for (uint32_t i = 0; i < s->n; i++) {
        const hk_element *first;
        if (is_lent(&s->at[i])) {
            found = HK_OK;
            continue;
        }
        const hk_status one = hki_intake_peek(&s->at[i], &first);
        if (one == HK_E_END)
            continue;
        HKI_TRY(one);
        if (found == HK_E_END)
            *out = first;
        found = HK_OK;
    }
    return found;
}

// When all have come to their end before the call, it begins another pass.
static hk_status begin_passes(hk_estimator *e, const hk_source *in,
                              int64_t epochs) {
    const hk_element *first;
    const hk_status s = hki_intakes_look(&e->intakes, &first);
    if (s != HK_E_END)
        return s;
    for (uint32_t i = 0; i < e->intakes.n; i++) {
        hki_intake *t = &e->intakes.at[i];
        hki_position *p;
        HKI_TRY(hki_position_get(e, in->name, t->id, &p));
        p->bytes.size = 0;
        close_intake(t);
        HKI_TRY(open_intake(e, in, epochs, t));
    }
    return HK_OK;
}

hk_status hki_intakes_open(hk_estimator *e, const hk_source *in,
                           int64_t epochs) {
    hki_intakes *s = &e->intakes;
    if (still_open(s, in, epochs))
        return begin_passes(e, in, epochs);
    HKI_TRY(hki_intakes_park(e));
    hki_intakes_close(s);
    const uint32_t n = e->config.c.workers;
    const uint32_t first = e->config.c.first_worker;
    HKI_TRY(hki_zalloc_array(n, sizeof *s->at, &s->at));
    s->n = n;
    for (uint32_t i = 0; i < n; i++)
        s->at[i].id = first == UINT32_MAX ? 0 : first + i;
    for (uint32_t i = 0; i < n; i++)
        HKI_TRY(open_intake(e, in, epochs, &s->at[i]));
    s->identity = identify(in);
    s->epochs = epochs;
    HKI_TRY(hki_strdup(in->name, &s->name));
    return begin_passes(e, in, epochs);
}
