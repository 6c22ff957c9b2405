// model_spec.c - what a model_fn says: features in, loss, predictions,
// optimizer out.
//
// A spec is attached to its graph and lives in the context's cache, so that
// model_fn is called once for a mode, however many estimators ask.
#include "estimator/estimator.h"

hk_status hki_list_reserve(void *data, size_t n, size_t *capacity,
                           size_t elem_bytes) {
    if (n <= *capacity)
        return HK_OK;
    const size_t want = HKI_MAX(n, *capacity * 2 + 8);
    HKI_TRY(hki_realloc_array(want, elem_bytes, data));
    *capacity = want;
    return HK_OK;
}

// ---- copies of options ------------------------------------------------------

static hk_status copy_text(hki_arena *a, const char **s) {
    return *s != NULL ? hki_arena_strdup(a, *s, s) : HK_OK;
}

hk_status hki_copy_optimizer(hki_arena *a, const hk_optimizer_options *src,
                             hk_optimizer_options *dst) {
    hk_optimizer_options o;
    hk_optimizer_options_init(&o, sizeof o, src->kind);
    HKI_TRY(hki_options_copy(&o, sizeof o, src, "optimizer options"));
    HKI_TRY(copy_text(a, &o.name));
    HKI_TRY(copy_text(a, &o.learning_rate_name));
    const char **list;
    HKI_TRY(hki_arena_alloc(a, o.n_skip, sizeof *list, &list));
    for (size_t i = 0; i < o.n_skip; i++)
        HKI_TRY(hki_arena_strdup(a, o.skip_list[i], &list[i]));
    o.skip_list = list;
    if (o.other != NULL) {
        hk_optimizer_options *other;
        HKI_TRY(copy_text(a, &o.other_prefix));
        HKI_TRY(hki_arena_alloc(a, 1, sizeof *other, &other));
        HKI_TRY(hki_copy_optimizer(a, o.other, other));
        o.other = other;
    }
    if (o.schedule != NULL)
        hk_schedule_retain(o.schedule);
    *dst = o;
    return HK_OK;
}

hk_status hki_copy_elastic(hki_arena *a, const hk_elastic_options *src,
                           hk_elastic_options *dst) {
    hk_elastic_options o;
    hk_elastic_options_init(&o, sizeof o);
    HKI_TRY(hki_options_copy(&o, sizeof o, src, "elastic options"));
    HKI_TRY(copy_text(a, &o.name));
    *dst = o;
    return HK_OK;
}

hk_status hki_copy_ema(hki_arena *a, const hk_ema_options *src,
                       hk_ema_options *dst) {
    hk_ema_options o;
    hk_ema_options_init(&o, sizeof o);
    HKI_TRY(hki_options_copy(&o, sizeof o, src, "average options"));
    HKI_TRY(copy_text(a, &o.name));
    HKI_TRY(copy_text(a, &o.scope));
    *dst = o;
    return HK_OK;
}

hk_status hki_copy_element(hki_arena *a, const hk_element *src,
                           hk_element *dst) {
    hk_value *values;
    HKI_TRY(hki_arena_alloc(a, src->count, sizeof *values, &values));
    for (size_t i = 0; i < src->count; i++) {
        values[i] = src->values[i];
        values[i].tensor = values[i].index = NULL;
        HKI_TRY(hki_arena_strdup(a, src->values[i].name, &values[i].name));
    }
    *dst = (hk_element){.count = src->count, .values = values};
    return HK_OK;
}

// ---- inputs -----------------------------------------------------------------

static const char *role_name(hk_role role) {
    return role == HK_LABEL ? "label" : "feature";
}

// Names of a role, for messages.
static const char *list_names(const hk_element *d, hk_role role, char *buf,
                              size_t size) {
    size_t used = 0;
    buf[0] = '\0';
    for (size_t i = 0; d != NULL && i < d->count && used < size; i++) {
        if (d->values[i].role != role)
            continue;
        const int n = snprintf(buf + used, size - used, "%s%s",
                               used > 0 ? ", " : "", d->values[i].name);
        used += n > 0 ? (size_t)n : 0;
    }
    return used > 0 ? buf : "none";
}

static const hk_value *find_value(hk_spec *m, const char *name, hk_role role) {
    const hk_value *found = NULL;
    size_t n = 0;
    for (size_t i = 0; i < m->data->count; i++) {
        const hk_value *v = &m->data->values[i];
        if (v->role != role || (name != NULL && strcmp(v->name, name) != 0))
            continue;
        found = v;
        n++;
    }
    char known[256];
    list_names(m->data, role, known, sizeof known);
    if (n == 0)
        hki_graph_fail(m->g, HK_E_NOT_FOUND,
                       "the data has no %s %s; its %ss: %s", role_name(role),
                       name ? name : "at all", role_name(role), known);
    else if (n > 1 && name == NULL)
        hki_graph_fail(m->g, HK_E_INVALID_ARG,
                       "the data has several %ss (%s): name the one you mean",
                       role_name(role), known);
    return n == 1 ? found : NULL;
}

// Only dense numbers of known size can enter a graph.
static bool check_value(hk_spec *m, const hk_value *v) {
    const char *what = role_name(v->role);
    char text[HKI_SHAPE_TEXT];
    if (v->form != HK_DENSE_FORM)
        hki_graph_fail(m->g, HK_E_UNSUPPORTED,
                       "%s %s is sparse or ragged: make it dense in the data "
                       "(hk_data_padded_batch, or feature columns)",
                       what, v->name);
    else if (v->dtype == HK_STRING)
        hki_graph_fail(m->g, HK_E_DTYPE,
                       "%s %s holds strings: turn them into numbers in the "
                       "data (feature columns, hk_data_map)",
                       what, v->name);
    else if (v->shape.rank < 1)
        hki_graph_fail(m->g, HK_E_SHAPE,
                       "%s %s has no batch dimension: the data has to be "
                       "batched (hk_data_batch)",
                       what, v->name);
    for (int i = 1; hki_graph_ok(m->g) && i < v->shape.rank; i++)
        if (v->shape.dim[i] < 0)
            hki_graph_fail(m->g, HK_E_SHAPE,
                           "%s %s has the unknown dimension %d of %s: pad it "
                           "to a fixed size (hk_data_padded_batch)",
                           what, v->name, i, hki_shape_text(v->shape, text));
    return hki_graph_ok(m->g);
}

static hk_status add_input(hk_spec *m, const hk_value *v, hk_node *node) {
    HKI_TRY(HKI_LIST_ROOM(m->inputs));
    hki_spec_input in = {.value = *v, .node = node};
    in.value.tensor = in.value.index = NULL;
    in.value.shape.dim[0] = HK_BATCH;
    HKI_TRY(hki_arena_strdup(&m->arena, v->name, &in.value.name));
    m->inputs.data[m->inputs.n++] = in;
    return HK_OK;
}

static hk_node *input_node(hk_spec *m, const char *name, hk_role role) {
    if (m == NULL || !hki_graph_ok(m->g))
        return NULL;
    if (role == HK_LABEL && m->mode == HK_PREDICT)
        return hki_graph_fail(m->g, HK_E_STATE,
                              "label %s: there are no labels in predict mode; "
                              "return from model_fn before using them",
                              name ? name : "");
    const hk_value *v = find_value(m, name, role);
    if (v == NULL || !check_value(m, v))
        return NULL;
    for (size_t i = 0; i < m->inputs.n; i++)
        if (strcmp(m->inputs.data[i].value.name, v->name) == 0)
            return m->inputs.data[i].node;
    hk_shape shape = v->shape;
    shape.dim[0] = HK_BATCH;
    hk_node *node = hk_input(m->g, v->name, v->dtype, shape);
    if (node != NULL && add_input(m, v, node) != HK_OK)
        return hki_graph_fail(m->g, HK_E_NO_MEMORY, "spec: out of memory");
    return node;
}

hk_node *hk_feature(hk_spec *m, const char *name) {
    return input_node(m, name, HK_FEATURE);
}

hk_node *hk_label(hk_spec *m, const char *name) {
    return input_node(m, name, HK_LABEL);
}

void *hk_spec_user(const hk_spec *m) {
    return m != NULL ? m->user : NULL;
}

// ---- what the model is for --------------------------------------------------

// Keeps a status that came without an error of the graph.
static hk_status keep(hk_spec *m, hk_status s) {
    if (s != HK_OK && hki_graph_ok(m->g)) {
        char text[HKI_ERROR_TEXT];
        hki_keep_error(text);
        hki_graph_fail(m->g, s, "%s", text);
    }
    return hk_graph_status(m->g);
}

// A node of this graph under a name that is given.
static bool check_node(hk_spec *m, const char *what, const char *name,
                       const hk_node *x) {
    if (m == NULL || !hki_graph_ok(m->g))
        return false;
    if (name == NULL || name[0] == '\0')
        hki_graph_fail(m->g, HK_E_INVALID_ARG, "%s: the name is empty", what);
    else if (x == NULL)
        hki_graph_fail(m->g, HK_E_INVALID_ARG, "%s %s: the node is NULL", what,
                       name);
    else if (!hki_graph_owns(m->g, x))
        hki_graph_fail(m->g, HK_E_INVALID_ARG,
                       "%s %s: the node is of another graph; build everything "
                       "in the graph that model_fn was given",
                       what, name);
    return hki_graph_ok(m->g);
}

// Registers an output "<prefix><name><leaf>".
static void add_output(hk_spec *m, const char *prefix, const char *name,
                       const char *leaf, hk_node *x) {
    const char *full;
    const hk_status s =
        hki_arena_printf(&m->arena, &full, "%s%s%s", prefix, name, leaf);
    if (keep(m, s) == HK_OK)
        hk_output(m->g, full, x);
}

void hk_spec_loss(hk_spec *m, hk_node *loss) {
    if (!check_node(m, "loss", "loss", loss))
        return;
    if (m->mode == HK_PREDICT)
        return;
    if (m->has_loss) {
        hki_graph_fail(m->g, HK_E_EXISTS,
                       "the loss was given twice: add the two (hk_add), or "
                       "use hk_add_loss for penalties");
        return;
    }
    hk_set_loss(m->g, loss);
    m->has_loss = true;
}

static hk_status add_name(hk_spec *m, hki_names *l, const char *name) {
    HKI_TRY(HKI_LIST_ROOM(*l));
    HKI_TRY(hki_arena_strdup(&m->arena, name, &l->data[l->n]));
    l->n++;
    return HK_OK;
}

static bool has_name(const hki_names *l, const char *name) {
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->data[i], name) == 0)
            return true;
    return false;
}

void hk_spec_prediction(hk_spec *m, const char *name, hk_node *x) {
    if (!check_node(m, "prediction", name, x))
        return;
    if (has_name(&m->predictions, name)) {
        hki_graph_fail(m->g, HK_E_EXISTS, "prediction %s was given twice",
                       name);
        return;
    }
    const hk_shape shape = hk_node_shape(x);
    char text[HKI_SHAPE_TEXT];
    if (shape.rank < 1 || shape.dim[0] != HK_BATCH) {
        hki_graph_fail(m->g, HK_E_SHAPE,
                       "prediction %s has shape %s; its first dimension has "
                       "to be the batch",
                       name, hki_shape_text(shape, text));
        return;
    }
    if (keep(m, add_name(m, &m->predictions, name)) != HK_OK)
        return;
    if (m->mode != HK_TRAIN)
        add_output(m, HKI_OUT_PREDICTION, name, "", x);
}

static hk_status copy_metric_options(hk_spec *m, const hk_metric_options *opt,
                                     hk_metric_options *out) {
    hk_metric_options_init(out, sizeof *out);
    HKI_TRY(hki_options_copy(out, sizeof *out, opt, "metric options"));
    if (out->thresholds == NULL)
        return HK_OK;
    double *t;
    HKI_TRY(hki_arena_alloc(&m->arena, out->num_thresholds, sizeof *t, &t));
    memcpy(t, out->thresholds, out->num_thresholds * sizeof *t);
    out->thresholds = t;
    return HK_OK;
}

static hk_status add_metric(hk_spec *m, const char *name, hk_metric_kind kind,
                            const hk_metric_options *opt, bool labels,
                            bool weights) {
    HKI_TRY(HKI_LIST_ROOM(m->metrics));
    hki_spec_metric *k = &m->metrics.data[m->metrics.n];
    *k = (hki_spec_metric){
        .kind = kind, .has_labels = labels, .has_weights = weights};
    HKI_TRY(hki_arena_strdup(&m->arena, name, &k->name));
    HKI_TRY(copy_metric_options(m, opt, &k->opt));
    // A bad kind or option is the model's fault: say so while it is built.
    hk_metric *probe;
    HKI_TRY(hk_metric_create(kind, &k->opt, &probe));
    hk_metric_destroy(probe);
    m->metrics.n++;
    return HK_OK;
}

void hk_spec_metric(hk_spec *m, const char *name, hk_metric_kind kind,
                    hk_node *labels, hk_node *predictions, hk_node *weights,
                    const hk_metric_options *opt) {
    if (!check_node(m, "metric", name, predictions) ||
        (labels != NULL && !check_node(m, "metric", name, labels)) ||
        (weights != NULL && !check_node(m, "metric", name, weights)))
        return;
    if (strcmp(name, "loss") == 0 || strcmp(name, "global_step") == 0) {
        hki_graph_fail(m->g, HK_E_INVALID_ARG,
                       "metric %s: evaluations add this name by themselves; "
                       "choose another one",
                       name);
        return;
    }
    if (labels == NULL && kind != HK_METRIC_MEAN) {
        hki_graph_fail(m->g, HK_E_INVALID_ARG, "metric %s: labels are NULL",
                       name);
        return;
    }
    for (size_t i = 0; i < m->metrics.n; i++)
        if (strcmp(m->metrics.data[i].name, name) == 0) {
            hki_graph_fail(m->g, HK_E_EXISTS, "metric %s was given twice",
                           name);
            return;
        }
    if (keep(m, add_metric(m, name, kind, opt, labels != NULL,
                           weights != NULL)) != HK_OK ||
        m->mode != HK_EVAL)
        return;
    add_output(m, HKI_OUT_METRIC, name, "/predictions", predictions);
    if (labels != NULL)
        add_output(m, HKI_OUT_METRIC, name, "/labels", labels);
    if (weights != NULL)
        add_output(m, HKI_OUT_METRIC, name, "/weights", weights);
}

void hk_spec_fetch(hk_spec *m, const char *name, hk_node *x) {
    if (!check_node(m, "fetch", name, x))
        return;
    if (keep(m, add_name(m, &m->fetches, name)) == HK_OK)
        add_output(m, HKI_OUT_FETCH, name, "", x);
}

static hk_status add_summary(hk_spec *m, hk_summary_kind kind,
                             const char *tag) {
    HKI_TRY(HKI_LIST_ROOM(m->summaries));
    hki_spec_summary *k = &m->summaries.data[m->summaries.n];
    k->kind = kind;
    HKI_TRY(hki_arena_strdup(&m->arena, tag, &k->tag));
    m->summaries.n++;
    return HK_OK;
}

void hk_spec_summary(hk_spec *m, hk_summary_kind kind, const char *tag,
                     hk_node *x) {
    if (!check_node(m, "summary", tag, x) || m->mode != HK_TRAIN)
        return;
    if (kind != HK_SUMMARY_SCALAR && kind != HK_SUMMARY_HISTOGRAM) {
        hki_graph_fail(m->g, HK_E_INVALID_ARG, "summary %s: unknown kind %d",
                       tag, (int)kind);
        return;
    }
    if (hk_node_dtype(x) != HK_F32)
        x = hk_cast(m->g, x, HK_F32);
    if (keep(m, add_summary(m, kind, tag)) == HK_OK)
        add_output(m, HKI_OUT_SUMMARY, tag, "", x);
}

// ---- how to train -----------------------------------------------------------

hk_status hk_spec_optimizer(hk_spec *m, hk_optimizer_kind kind,
                            double learning_rate) {
    hk_optimizer_options o;
    hk_optimizer_options_init(&o, sizeof o, kind);
    o.learning_rate = learning_rate;
    return hk_spec_optimizer_options(m, &o);
}

static hk_status check_single_trainer(hk_spec *m) {
    if (m->has_optimizer || m->train_step != NULL)
        return hki_fail(HK_E_EXISTS,
                        "the spec has an optimizer or train step already");
    return HK_OK;
}

hk_status hk_spec_optimizer_options(hk_spec *m,
                                    const hk_optimizer_options *opt) {
    if (m == NULL)
        return hki_fail(HK_E_INVALID_ARG, "spec: NULL");
    if (!hki_graph_ok(m->g))
        return hk_graph_status(m->g);
    if (m->mode != HK_TRAIN)
        return HK_OK;
    if (opt == NULL)
        return keep(
            m, hki_fail(HK_E_INVALID_ARG, "spec: optimizer options are NULL"));
    if (keep(m, check_single_trainer(m)) == HK_OK &&
        keep(m, hki_copy_optimizer(&m->arena, opt, &m->optimizer)) == HK_OK)
        m->has_optimizer = true;
    return hk_graph_status(m->g);
}

hk_status hk_spec_train_step(hk_spec *m, hk_step_fn fn, void *user) {
    if (m == NULL)
        return hki_fail(HK_E_INVALID_ARG, "spec: NULL");
    if (!hki_graph_ok(m->g))
        return hk_graph_status(m->g);
    if (m->mode != HK_TRAIN)
        return HK_OK;
    if (fn == NULL)
        return keep(m,
                    hki_fail(HK_E_INVALID_ARG, "spec: the train step is NULL"));
    if (keep(m, check_single_trainer(m)) == HK_OK) {
        m->train_step = fn;
        m->train_user = user;
    }
    return hk_graph_status(m->g);
}

void hk_spec_gradproc(hk_spec *m, const hk_gradproc_options *opt) {
    if (m == NULL || !hki_graph_ok(m->g) || m->mode != HK_TRAIN)
        return;
    hk_gradproc_options_init(&m->gradproc, sizeof m->gradproc);
    if (keep(m, hki_options_copy(&m->gradproc, sizeof m->gradproc, opt,
                                 "gradient processing options")) == HK_OK)
        m->has_gradproc = true;
}

void hk_spec_insert(hk_spec *m, hk_point point, hk_step_fn fn, void *user) {
    if (m == NULL || !hki_graph_ok(m->g) || m->mode != HK_TRAIN)
        return;
    if (fn == NULL || point < HK_POINT_BEGIN || point > HK_POINT_END)
        hki_graph_fail(m->g, HK_E_INVALID_ARG,
                       "insert: no callback, or unknown point %d", (int)point);
    else if (keep(m, HKI_LIST_ROOM(m->inserts)) == HK_OK)
        m->inserts.data[m->inserts.n++] = (hki_spec_insert){point, fn, user};
}

void hk_spec_elastic(hk_spec *m, const hk_elastic_options *opt) {
    if (m == NULL || !hki_graph_ok(m->g) || m->mode != HK_TRAIN)
        return;
    if (opt == NULL)
        hki_graph_fail(m->g, HK_E_INVALID_ARG, "elastic options are NULL");
    else if (keep(m, hki_copy_elastic(&m->arena, opt, &m->elastic)) == HK_OK)
        m->has_elastic = true;
}

void hk_spec_ema(hk_spec *m, const hk_ema_options *opt, hk_ema_source source,
                 int with_step) {
    if (m == NULL || !hki_graph_ok(m->g) || m->mode != HK_TRAIN)
        return;
    hk_ema_options d;
    hk_ema_options_init(&d, sizeof d);
    if (source < HK_EMA_DEFAULT || source > HK_EMA_CENTER)
        hki_graph_fail(m->g, HK_E_INVALID_ARG, "average: unknown source %d",
                       (int)source);
    else if (keep(m, hki_copy_ema(&m->arena, opt != NULL ? opt : &d,
                                  &m->ema)) == HK_OK) {
        m->has_ema = true;
        m->ema_source = source;
        m->ema_with_step = with_step != 0;
    }
}

// The reference is the spec's from here on, whatever happens.
void hk_spec_hook(hk_spec *m, hk_hook *hook, int chief) {
    if (m == NULL || !hki_graph_ok(m->g)) {
        hk_hook_release(hook);
        return;
    }
    hki_hook_list *const l = chief ? &m->chief_hooks : &m->hooks;
    if (hook == NULL)
        hki_graph_fail(m->g, HK_E_INVALID_ARG, "hook: NULL (%s)",
                       hk_last_error());
    else if (keep(m, HKI_LIST_ROOM(*l)) == HK_OK)
        l->data[l->n++] = hook;
    else
        hk_hook_release(hook);
}

static hk_status add_export(hk_spec *m, const char *signature,
                            const char *const *predictions, size_t n) {
    HKI_TRY(HKI_LIST_ROOM(m->exports));
    hki_spec_export x = {.n = n};
    HKI_TRY(hki_arena_strdup(&m->arena, signature, &x.signature));
    HKI_TRY(
        hki_arena_alloc(&m->arena, n, sizeof *x.predictions, &x.predictions));
    for (size_t i = 0; i < n; i++)
        HKI_TRY(hki_arena_strdup(&m->arena,
                                 predictions[i] ? predictions[i] : "",
                                 &x.predictions[i]));
    m->exports.data[m->exports.n++] = x;
    return HK_OK;
}

void hk_spec_export(hk_spec *m, const char *signature,
                    const char *const *predictions, size_t n) {
    if (m == NULL || !hki_graph_ok(m->g) || m->mode != HK_PREDICT)
        return;
    if (signature == NULL || signature[0] == '\0' || n == 0 ||
        predictions == NULL)
        hki_graph_fail(m->g, HK_E_INVALID_ARG,
                       "export: a signature needs a name and predictions");
    else
        keep(m, add_export(m, signature, predictions, n));
}

// ---- checks once model_fn is through ----------------------------------------

static hk_status check_exports(const hk_spec *m) {
    bool has_default = false;
    for (size_t i = 0; i < m->exports.n; i++) {
        const hki_spec_export *x = &m->exports.data[i];
        has_default |= strcmp(x->signature, "serving_default") == 0;
        for (size_t k = 0; k < x->n; k++)
            if (!has_name(&m->predictions, x->predictions[k]))
                return hki_fail(HK_E_NOT_FOUND,
                                "export %s: there is no prediction %s",
                                x->signature, x->predictions[k]);
    }
    if (m->exports.n > 1 && !has_default)
        return hki_fail(HK_E_INVALID_ARG,
                        "several exports and none called serving_default: "
                        "name the one that a server takes by itself");
    return HK_OK;
}

static hk_status check_spec(const hk_spec *m) {
    if (m->mode != HK_PREDICT && !m->has_loss)
        return hki_fail(HK_E_INVALID_ARG,
                        "no loss: call hk_spec_loss in train and eval mode");
    if (m->mode == HK_TRAIN && !m->has_optimizer && m->train_step == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "nothing to train with: call hk_spec_optimizer (or "
                        "hk_spec_train_step) in train mode");
    if (m->mode == HK_PREDICT && m->predictions.n == 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "no predictions: call hk_spec_prediction in predict "
                        "mode");
    if (m->inputs.n == 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "the model reads nothing of the data: call "
                        "hk_feature");
    return check_exports(m);
}

// ---- build and cache --------------------------------------------------------

static void spec_destroy(void *object) {
    hk_spec *m = object;
    for (size_t i = 0; i < m->hooks.n; i++)
        hk_hook_release(m->hooks.data[i]);
    for (size_t i = 0; i < m->chief_hooks.n; i++)
        hk_hook_release(m->chief_hooks.data[i]);
    if (m->has_optimizer)
        hk_schedule_release(m->optimizer.schedule);
    hki_free(m->inputs.data);
    hki_free(m->predictions.data);
    hki_free(m->metrics.data);
    hki_free(m->fetches.data);
    hki_free(m->summaries.data);
    hki_free(m->inserts.data);
    hki_free(m->exports.data);
    hki_free(m->hooks.data);
    hki_free(m->chief_hooks.data);
    hki_arena_deinit(&m->arena);
    hki_free(m);
}

typedef struct build {
    const hk_estimator *e;
    const hk_element *data;
} build;

static const char *mode_name(hk_mode mode) {
    return mode == HK_TRAIN ? "train" : mode == HK_EVAL ? "eval" : "predict";
}

// Every failure of a model says where it comes from.
static hk_status name_failure(hk_mode mode, hk_status s) {
    char text[HKI_ERROR_TEXT];
    hki_keep_error(text);
    return hki_fail(s, "model_fn (%s mode): %s", mode_name(mode), text);
}

static hk_status build_spec(void *user, hk_graph *g, hk_mode mode) {
    const build *b = user;
    hk_spec *m;
    HKI_TRY(hki_zalloc_array(1, sizeof *m, &m));
    hki_graph_attach(g, m, spec_destroy);
    m->g = g;
    m->mode = mode;
    m->data = b->data;
    m->user = b->e->user;
    hk_status s = b->e->model_fn(g, mode, m);
    if (s == HK_OK || hk_graph_status(g) != HK_OK)
        s = hk_graph_status(g);
    if (s == HK_OK)
        s = check_spec(m);
    m->data = NULL;
    m->user = NULL;
    return s;
}

// May the data feed this graph? Everything that it reads has to be there with
// the same type and shape.
static bool spec_fits(void *user, const hk_graph *g) {
    const build *b = user;
    const hk_spec *m = hki_graph_attached(g);
    for (size_t i = 0; i < m->inputs.n; i++) {
        const hk_value *in = &m->inputs.data[i].value;
        const hk_value *v = hk_element_find(b->data, in->name);
        if (v == NULL || v->role != in->role || v->form != HK_DENSE_FORM ||
            v->dtype != in->dtype || v->shape.rank != in->shape.rank)
            return false;
        for (int k = 1; k < in->shape.rank; k++)
            if (v->shape.dim[k] != in->shape.dim[k])
                return false;
    }
    return true;
}

hk_status hki_spec_get(hk_estimator *e, hk_mode mode, const hk_element *data,
                       hk_spec **out) {
    build b = {.e = e, .data = data};
    hk_model model;
    hk_model_init(&model, sizeof model);
    model.build = build_spec;
    model.user = &b;
    model.tag = e->tag;
    model.params = e->params;
    hk_graph *g;
    bool built;
    const hk_status s =
        hki_graph_get(e->ctx, &model, mode, spec_fits, &g, &built);
    if (s != HK_OK)
        return name_failure(mode, s);
    e->counts.graph_builds += built;
    *out = hki_graph_attached(g);
    return HK_OK;
}
