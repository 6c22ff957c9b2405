// run_scores.c - see run_scores.h.
#include "run/run_scores.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "experiment/csv_table.h"

enum {
    MOST_ROWS = 5000, // that are predicted
    MIXED_ROWS = 1000 // for each column's importance
};

static const hk_value *either(const hk_element *e, const char *a,
                              const char *b) {
    const hk_value *v = hk_element_find(e, a);
    return v ? v : hk_element_find(e, b);
}

// ---- what the model says ----------------------------------------------------

static void take(scores *s, const hk_element *e) {
    const hk_value *k = either(e, "class_ids", "class");
    const hk_value *p = either(e, "probabilities", "probability");
    const hk_value *v = either(e, "predictions", "value");
    const int64_t width = p ? hk_tensor_count(p->tensor) : 0;
    if (k)
        s->n_classes = width > 2 ? (size_t)width : 2;
    s->said[s->n] = k   ? cli_element(k->tensor, 0)
                    : v ? cli_element(v->tensor, 0)
                        : (double)NAN;
    s->share[s->n] =
        p && width <= 2 ? cli_element(p->tensor, width - 1) : (double)NAN;
    s->n++;
}

static hk_status predict(job *j, const hk_source *in, size_t most, scores *s) {
    hk_predictor *p;
    const hk_element *e;
    s->n = 0;
    s->said = cli_alloc(most * sizeof *s->said);
    s->share = cli_alloc(most * sizeof *s->share);
    hk_status status = hk_estimator_predict(j->e, in, NULL, &p);
    if (status != HK_OK)
        return status;
    while (s->n < most && (status = hk_predictor_next(p, &e)) == HK_OK)
        take(s, e);
    hk_predictor_destroy(p);
    return status == HK_E_END ? HK_OK : status;
}

static const hk_value *label_of(const experiment *x, const hk_element *e) {
    const hk_value *v = hk_element_find(e, x->label_name);
    for (size_t i = 0; i < e->count && !v; i++)
        if (e->values[i].role == HK_LABEL)
            v = &e->values[i];
    return v && v->dtype != HK_STRING ? v : NULL;
}

// Labels come from a pass of their own, in the same order.
static hk_status read_labels(const data_user *u, scores *s) {
    CLI_SCOPED(hk_dataset_release_at) hk_dataset *d = data_examples(u);
    CLI_SCOPED(hk_iter_destroy_at) hk_iter *it = NULL;
    const hk_element *e;
    size_t n = 0;
    s->label = cli_alloc((s->n + 1) * sizeof *s->label);
    hk_status status = hk_iter_create(d, NULL, &it);
    while (status == HK_OK && n < s->n &&
           (status = hk_iter_next(it, &e)) == HK_OK) {
        const hk_value *v = label_of(u->x, e);
        if (!v)
            break;
        s->label[n++] = cli_element(v->tensor, 0);
    }
    s->n = n;
    return status == HK_E_END ? HK_OK : status;
}

// ---- what columns are worth -------------------------------------------------

// Share of right classes, or minus the root of the mean square.
static double quality(const scores *s, const double *label) {
    double sum = 0;
    for (size_t i = 0; i < s->n; i++) {
        const double d = s->said[i] - label[i];
        sum += s->n_classes ? d == 0 : d * d;
    }
    return s->n_classes ? sum / (double)s->n : -sqrt(sum / (double)s->n);
}

// The rows of a tensor in another order, the same for every column.
static hk_tensor *mixed(const hk_tensor *t) {
    const int64_t n = hk_tensor_count(t);
    hk_tensor *out;
    int64_t *order = cli_alloc((size_t)n * sizeof *order + 1);
    uint64_t state = 88172645463325252;
    if (hk_tensor_copy(t, hk_tensor_dtype(t), &out) != HK_OK)
        return NULL;
    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        state = state * 6364136223846793005 + 1442695040888963407;
        const int64_t k = (int64_t)(state >> 33) % (i + 1);
        const int64_t swap = order[i];
        order[i] = order[k];
        order[k] = swap;
    }
    const size_t size = hk_dtype_size(hk_tensor_dtype(t));
    for (int64_t i = 0; i < n; i++) {
        const void *bytes;
        size_t length;
        if (size)
            memcpy((char *)hk_tensor_data(out) + (size_t)i * size,
                   (char *)hk_tensor_data(t) + (size_t)order[i] * size, size);
        else if (hk_tensor_get_string(t, order[i], &bytes, &length) == HK_OK)
            (void)hk_tensor_set_string(out, i, bytes, length);
    }
    free(order);
    return out;
}

static double quality_of(job *j, const data_user *u, const hk_value *values,
                         size_t n, const double *label) {
    hk_dataset *d = table_features(
        u, hk_data_batch(hk_data_slices(values, n), MIXED_ROWS, 0));
    scores s = {0};
    double q = (double)NAN;
    if (hk_dataset_status(d) == HK_OK) {
        const hk_source in = hk_source_dataset(d);
        if (predict(j, &in, MIXED_ROWS, &s) == HK_OK && s.n)
            q = quality(&s, label);
    }
    hk_dataset_release(d);
    scores_free(&s);
    return q;
}

static int by_loss(const void *a, const void *b) {
    const double x = ((const importance *)a)->loss,
                 y = ((const importance *)b)->loss;
    return (x < y) - (x > y);
}

static void weigh(job *j, const data_user *u, const hk_element *rows,
                  scores *s) {
    hk_value *values = cli_alloc((rows->count + 1) * sizeof *values);
    memcpy(values, rows->values, rows->count * sizeof *values);
    s->columns = cli_alloc((rows->count + 1) * sizeof *s->columns);
    s->metric = s->n_classes ? "the accuracy" : "the error";
    const double all = quality_of(j, u, values, rows->count, s->label);
    for (size_t i = 0; i < rows->count; i++) {
        if (values[i].role != HK_FEATURE || values[i].shape.rank != 1)
            continue;
        hk_tensor *own = values[i].tensor;
        values[i].tensor = mixed(own);
        const double q = values[i].tensor
                             ? quality_of(j, u, values, rows->count, s->label)
                             : (double)NAN;
        hk_tensor_release(values[i].tensor);
        values[i].tensor = own;
        if (!isnan(all - q))
            s->columns[s->n_columns++] =
                (importance){cli_strdup(values[i].name), all - q};
    }
    qsort(s->columns, s->n_columns, sizeof *s->columns, by_loss);
    free(values);
}

static void weigh_columns(job *j, const data_user *u, scores *s) {
    hk_dataset *d = hk_data_batch(hk_data_take(data_examples(u), MIXED_ROWS),
                                  MIXED_ROWS, 0);
    hk_iter *it = NULL;
    const hk_element *rows;
    if (hk_dataset_status(d) == HK_OK &&
        hk_iter_create(d, NULL, &it) == HK_OK &&
        hk_iter_next(it, &rows) == HK_OK)
        weigh(j, u, rows, s);
    hk_iter_destroy(it);
    hk_dataset_release(d);
}

// ---- a run ------------------------------------------------------------------

static bool is_usable(const char *run) {
    CLI_FREED char *path = cli_printf("%s/experiment.json", run);
    return access(path, R_OK) == 0 &&
           hk_latest_checkpoint(run, NULL, 0, NULL) == HK_OK;
}

bool run_scores(const cli_args *a, const char *run, scores *out) {
    *out = (scores){0};
    job *j;
    if (!is_usable(run) || job_open(a, run, false, &j))
        return false;
    data_user u = {.x = j->x, .set = "eval"};
    const hk_source in = data_source(&u);
    hk_status s = predict(j, &in, MOST_ROWS, out);
    if (s == HK_OK)
        s = read_labels(&u, out);
    const table *t = table_of(j->x);
    if (t && t->n_words >= 2 && out->n_classes == t->n_words)
        out->names = t->words;
    if (out->n_classes != 2) {
        free(out->share);
        out->share = NULL;
    }
    if (s == HK_OK && out->n > 1 && t && t->features)
        weigh_columns(j, &u, out);
    cli_status(s);
    job_close(j);
    return s == HK_OK && out->n > 0;
}
