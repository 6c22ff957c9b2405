// model_write.c - model.json from a graph.
#include "codec/codec.h" // before base.h
#include "data/data.h"
#include "estimator/saved/written_files.h"
#include "estimator/saved/model_file.h"

#define INTS(member, count, least, most)                                       \
    {                                                                          \
#member, offsetof(hki_attr, member),                                   \
            sizeof(((hki_attr *)0)->member) / (count), (count), false,         \
            (least), (most)                                                    \
    }
#define REAL(member)                                                           \
    { #member, offsetof(hki_attr, member), sizeof(double), 1, true, 0, 0 }

#define FAR ((int64_t)1 << 40) // a dimension, or a place along one

const hki_model_attr hki_model_attrs[] = {
    INTS(mode, 1, 0, 63),
    INTS(act, 1, 0, HKI_U_COUNT - 1),
    INTS(trans_a, 1, 0, 1),
    INTS(trans_b, 1, 0, 1),
    INTS(axis, 1, -HK_MAX_RANK, HK_MAX_RANK),
    INTS(keep_dims, 1, 0, 1),
    INTS(axes, 1, 0, (1 << HK_MAX_RANK) - 1),
    INTS(padding, 1, 0, HK_EXPLICIT),
    INTS(ksize, 2, 0, INT32_MAX),
    INTS(stride, 2, 0, INT32_MAX),
    INTS(dilation, 2, 0, INT32_MAX),
    INTS(pad, 4, 0, INT32_MAX),
    INTS(groups, 1, 0, INT32_MAX),
    INTS(dtype, 1, 0, HK_STRING),
    INTS(rank, 1, 0, HK_MAX_RANK),
    INTS(n, 1, 0, FAR),
    INTS(dims, HK_MAX_RANK, -FAR, FAR),
    INTS(dims2, HK_MAX_RANK, -FAR, FAR),
    REAL(alpha),
    REAL(beta),
    REAL(eps)};
const size_t hki_model_n_attrs = HKI_COUNT(hki_model_attrs);

// ---- values -----------------------------------------------------------------

static hk_status put_shape(hki_buf *b, hk_shape s) {
    HKI_TRY(hki_buf_printf(b, "\"shape\":["));
    for (int i = 0; i < s.rank; i++)
        HKI_TRY(
            hki_buf_printf(b, "%s%lld", i > 0 ? "," : "", (long long)s.dim[i]));
    return hki_buf_printf(b, "]");
}

static hk_status put_value(hki_buf *b, const char *name, hk_dtype t,
                           hk_shape shape) {
    HKI_TRY(hki_buf_printf(b, "\"name\":"));
    HKI_TRY(hki_quote(b, name));
    HKI_TRY(hki_buf_printf(b, ",\"dtype\":\"%s\",", hk_dtype_name(t)));
    return put_shape(b, shape);
}

static hk_status put_bytes(hki_buf *b, const hk_tensor *t) {
    const uint8_t *const p = hk_tensor_data(t);
    const size_t n = hki_tensor_bytes(t);
    HKI_TRY(hki_buf_printf(b, ",\"values\":\""));
    for (size_t i = 0; i < n; i++)
        HKI_TRY(hki_buf_printf(b, "%02x", p[i]));
    return hki_buf_printf(b, "\"");
}

// ---- calls ------------------------------------------------------------------

static int64_t integer_at(const void *p, size_t size) {
    int32_t small;
    int64_t large;
    if (size == sizeof small) {
        memcpy(&small, p, sizeof small);
        return small;
    }
    memcpy(&large, p, sizeof large);
    return large;
}

static hk_status put_attr(hki_buf *b, const hki_model_attr *f,
                          const hki_attr *a, bool first) {
    const char *const at = (const char *)a + f->offset;
    double v;
    HKI_TRY(hki_buf_printf(b, "%s\"%s\":[", first ? "" : ",", f->name));
    for (int i = 0; i < f->n; i++) {
        if (i > 0)
            HKI_TRY(hki_buf_printf(b, ","));
        if (!f->is_real) {
            HKI_TRY(hki_buf_printf(
                b, "%lld",
                (long long)integer_at(at + (size_t)i * f->size, f->size)));
            continue;
        }
        memcpy(&v, at, sizeof v);
        HKI_TRY(hki_buf_printf(b, "\"%a\"", v));
    }
    return hki_buf_printf(b, "]");
}

static bool is_zero(const hki_model_attr *f, const hki_attr *a) {
    const char *const at = (const char *)a + f->offset;
    for (size_t i = 0; i < f->size * (size_t)f->n; i++)
        if (at[i] != 0)
            return false;
    return true;
}

static hk_status put_attrs(hki_buf *b, const hki_attr *a) {
    bool first = true;
    HKI_TRY(hki_buf_printf(b, ",\"attr\":{"));
    for (size_t i = 0; i < hki_model_n_attrs; i++)
        if (!is_zero(&hki_model_attrs[i], a)) {
            HKI_TRY(put_attr(b, &hki_model_attrs[i], a, first));
            first = false;
        }
    return hki_buf_printf(b, "}");
}

static hk_status put_inputs(hki_buf *b, const hki_call *c) {
    HKI_TRY(hki_buf_printf(b, ",\"in\":["));
    for (int i = 0; i < c->n_in; i++) {
        const hk_node *const x = c->in[i];
        HKI_TRY(hki_buf_printf(b, "%s", i > 0 ? "," : ""));
        HKI_TRY(x != NULL ? hki_buf_printf(b, "[%u,%d]", x->call->id, x->index)
                          : hki_buf_printf(b, "null"));
    }
    return hki_buf_printf(b, "]");
}

static hk_status put_call(hki_buf *b, const hk_graph *g, const hki_call *c) {
    const hk_node *const y = &c->out[0];
    HKI_TRY(hki_buf_printf(b, "%s\n{\"op\":\"%s\"", c->id > 0 ? "," : "",
                           c->op->name));
    if ((c->op->flags & HKI_OP_IS_SOURCE) != 0) {
        HKI_TRY(hki_buf_printf(b, ","));
        HKI_TRY(put_value(b, c->name, y->dtype, y->shape));
        if (c->op->code == HKI_OP_constant)
            HKI_TRY(put_bytes(b, hki_graph_constant(g, c->attr.index)));
        if (c->op->code == HKI_OP_scalar)
            HKI_TRY(hki_buf_printf(
                b, ",\"default\":\"%a\"",
                (double)hki_graph_scalar_default(g, c->attr.index)));
        return hki_buf_printf(b, "}");
    }
    if ((c->op->flags & HKI_OP_IS_EXPORTED) == 0)
        return hki_fail(HK_E_UNSUPPORTED,
                        "export: %s: the operator %s cannot be written",
                        c->name, c->op->name);
    HKI_TRY(put_inputs(b, c));
    HKI_TRY(put_attrs(b, &c->attr));
    return hki_buf_printf(b, "}");
}

static hk_status put_outputs(hki_buf *b, const hk_spec *m) {
    HKI_TRY(hki_buf_printf(b, "\n],\"outputs\":{"));
    for (size_t i = 0; i < m->predictions.n; i++) {
        char name[512];
        snprintf(name, sizeof name, HKI_OUT_PREDICTION "%s",
                 m->predictions.data[i]);
        const hk_node *const x = hki_graph_output(m->g, name);
        HKI_TRY(hki_buf_printf(b, "%s", i > 0 ? "," : ""));
        HKI_TRY(hki_quote(b, m->predictions.data[i]));
        HKI_TRY(hki_buf_printf(b, ":[%u,%d]", x->call->id, x->index));
    }
    return hki_buf_printf(b, "}}\n");
}

// ---- raw inputs -------------------------------------------------------------

// The raw value is read by a column, or is the model's own input.
static bool is_read(const hk_spec *m, const hk_raw_inputs *raw,
                    const hk_value *v) {
    if (v->role != HK_FEATURE || v->form != HK_DENSE_FORM)
        return false;
    if (raw->features != NULL)
        return hki_features_read(raw->features, v->name);
    for (size_t i = 0; i < m->inputs.n; i++)
        if (strcmp(m->inputs.data[i].value.name, v->name) == 0)
            return true;
    return false;
}

// The parts of a date stand side by side; its text is what is asked for.
static hk_status put_raw_values(hki_buf *b, const hk_spec *m,
                                const hk_raw_inputs *raw) {
    size_t n = 0;
    int64_t last = -1;
    int part;
    for (size_t i = 0; i < raw->values->count; i++) {
        const hk_value *const v = &raw->values->values[i];
        const int64_t date =
            hki_date_find(raw->dates, raw->n_dates, v->name, &part);
        if (!is_read(m, raw, v) || (date >= 0 && date == last))
            continue;
        last = date;
        HKI_TRY(hki_buf_printf(b, "%s{", n++ > 0 ? "," : ""));
        HKI_TRY(date >= 0 ? put_value(b, raw->dates[date].name, HK_STRING,
                                      hk_shape_make(0, NULL))
                          : put_value(b, v->name, v->dtype, v->shape));
        HKI_TRY(hki_buf_printf(b, "}"));
    }
    return HK_OK;
}

// The model's inputs without the batch.
static hk_status put_model_inputs(hki_buf *b, const hk_spec *m) {
    for (size_t i = 0; i < m->inputs.n; i++) {
        const hk_value *const v = &m->inputs.data[i].value;
        HKI_TRY(hki_buf_printf(b, "%s{", i > 0 ? "," : ""));
        HKI_TRY(put_value(b, v->name, v->dtype,
                          hk_shape_make(v->shape.rank - 1, v->shape.dim + 1)));
        HKI_TRY(hki_buf_printf(b, "}"));
    }
    return HK_OK;
}

static hk_status put_floats(hki_buf *b, const char *key, const float *v,
                            size_t n) {
    if (v == NULL)
        return HK_OK;
    HKI_TRY(hki_buf_printf(b, ",\"%s\":[", key));
    for (size_t i = 0; i < n; i++)
        HKI_TRY(hki_buf_printf(b, "%s\"%a\"", i > 0 ? "," : "", (double)v[i]));
    return hki_buf_printf(b, "]");
}

static hk_status put_scaling(hki_buf *b, const hk_scaling *k) {
    HKI_TRY(hki_buf_printf(b, ",\n\"scaling\":{\"feature\":"));
    HKI_TRY(hki_quote(b, k->feature));
    HKI_TRY(hki_buf_printf(b, ",\"scale\":\"%a\"", k->scale));
    HKI_TRY(put_floats(b, "mean", k->mean, k->channels));
    HKI_TRY(put_floats(b, "std", k->std, k->channels));
    return hki_buf_printf(b, "}");
}

static hk_status put_classes(hki_buf *b, const hk_raw_inputs *raw) {
    HKI_TRY(hki_buf_printf(b, ",\n\"classes\":["));
    for (size_t i = 0; i < raw->n_classes; i++) {
        HKI_TRY(hki_buf_printf(b, "%s", i > 0 ? "," : ""));
        HKI_TRY(hki_quote(b, raw->classes[i]));
    }
    return hki_buf_printf(b, "]");
}

// Those that a column reads a part of.
static hk_status put_dates(hki_buf *b, const hk_spec *m,
                           const hk_raw_inputs *raw) {
    int64_t last = -1;
    int part;
    HKI_TRY(hki_buf_printf(b, ",\n\"dates\":["));
    for (size_t i = 0; raw->values != NULL && i < raw->values->count; i++) {
        const hk_value *const v = &raw->values->values[i];
        const int64_t k =
            hki_date_find(raw->dates, raw->n_dates, v->name, &part);
        if (k < 0 || k == last || !is_read(m, raw, v))
            continue;
        HKI_TRY(hki_buf_printf(b, "%s{\"name\":", last >= 0 ? "," : ""));
        HKI_TRY(hki_quote(b, raw->dates[k].name));
        HKI_TRY(hki_buf_printf(b, ",\"order\":%d}", (int)raw->dates[k].order));
        last = k;
    }
    return hki_buf_printf(b, "]");
}

hk_status hki_model_write(const hk_spec *m, const hk_raw_inputs *raw,
                          hki_buf *out) {
    HKI_TRY(hki_buf_printf(out,
                           "{\"format\":\"%s\",\"version\":%d,\n\"inputs\":[",
                           HKI_MODEL_FORMAT, HKI_MODEL_VERSION));
    HKI_TRY(raw != NULL && raw->values != NULL ? put_raw_values(out, m, raw)
                                               : put_model_inputs(out, m));
    HKI_TRY(hki_buf_printf(out, "]"));
    if (raw != NULL && raw->scaling != NULL)
        HKI_TRY(put_scaling(out, raw->scaling));
    if (raw != NULL && raw->n_classes > 0)
        HKI_TRY(put_classes(out, raw));
    if (raw != NULL && raw->n_dates > 0)
        HKI_TRY(put_dates(out, m, raw));
    HKI_TRY(hki_buf_printf(out, ",\n\"calls\":["));
    for (const hki_call *c = hki_graph_calls(m->g); c != NULL; c = c->next)
        HKI_TRY(put_call(out, m->g, c));
    return put_outputs(out, m);
}
