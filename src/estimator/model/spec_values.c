// spec_values.c - what a model_fn says of values: features in, loss,
// predictions, metrics out.
#include "estimator/estimator.h"

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
        hki_graph_fail(
            m->g, HK_E_NOT_FOUND, "the data has no %s %s; it has the %ss %s",
            role_name(role), name ? name : "at all", role_name(role), known);
    else if (n > 1 && name == NULL)
        hki_graph_fail(m->g, HK_E_INVALID_ARG,
                       "the data has several %ss (%s); choose one by its name",
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
    if (hki_spec_keep(m, s) == HK_OK)
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

void hk_spec_prediction(hk_spec *m, const char *name, hk_node *x) {
    if (!check_node(m, "prediction", name, x))
        return;
    if (hki_has_name(&m->predictions, name)) {
        hki_graph_fail(m->g, HK_E_EXISTS, "prediction %s was given twice",
                       name);
        return;
    }
    const hk_shape shape = hk_node_shape(x);
    char text[HKI_SHAPE_TEXT];
    if (shape.rank < 1 || shape.dim[0] != HK_BATCH) {
        hki_graph_fail(m->g, HK_E_SHAPE,
                       "prediction %s has shape %s, but its first dimension "
                       "has to be the batch",
                       name, hki_shape_text(shape, text));
        return;
    }
    if (hki_spec_keep(m, add_name(m, &m->predictions, name)) != HK_OK)
        return;
    if (m->mode != HK_TRAIN)
        add_output(m, HKI_OUT_PREDICTION, name, "", x);
}

static hk_status copy_metric_options(hk_spec *m, const hk_metric_options *opt,
                                     hk_metric_options *out) {
    HKI_TRY(HKI_OPTIONS_GET(hk_metric_options, out, opt, "metric options"));
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
                       "metric %s: this name is reserved for the loss and the "
                       "global step; choose another one",
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
    if (hki_spec_keep(m, add_metric(m, name, kind, opt, labels != NULL,
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
    if (hki_spec_keep(m, add_name(m, &m->fetches, name)) == HK_OK)
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
    if (hki_spec_keep(m, add_summary(m, kind, tag)) == HK_OK)
        add_output(m, HKI_OUT_SUMMARY, tag, "", x);
}
