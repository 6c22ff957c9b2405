// example.c - parsing examples: as a function over the elements of a dataset,
// on bytes alone, and telling what is in one.
#include "data/example/example.h"
#include "data/core/pipeline.h"

// ---- the function over elements --------------------------------------------

typedef struct config {
    hki_example_spec spec;
    hk_on_error on_error;
    size_t input;   // index of the string
    bool keep;      // the other values come first
    const char *op; // for messages
} config;

static void config_destroy(void *p) {
    config *const c = p;
    hki_example_spec_deinit(&c->spec);
    hki_free(c);
}

static hk_status scratch_open(const void *p, void **out) {
    const config *const c = p;
    hki_finder *f;
    HKI_TRY(hki_zalloc_array(1, sizeof *f, &f));
    HKI_TRY_OR(hki_finder_init(f, &c->spec), hki_free(f));
    *out = f;
    return HK_OK;
}

static void scratch_close(void *scratch) {
    hki_finder_deinit(scratch);
    hki_free(scratch);
}

static hk_status parse(const config *c, hki_finder *f, hki_fn_call *call) {
    const hki_string *const record =
        hki_tensor_strings(call->in->values[c->input].tensor);
    size_t kept = 0;
    for (size_t k = 0; c->keep && k < call->in->count; k++)
        if (k != c->input)
            HKI_TRY(hki_rows_copy(call->out, kept++, call->row,
                                  &call->in->values[k]));
    HKI_TRY(hki_example_find(
        &c->spec, f, (const uint8_t *)hki_string_bytes(record), record->size));
    return hki_example_read(&c->spec, f, call->out, kept, call->row);
}

// Says which record it was.
static hk_status located(const config *c, const hki_fn_call *call,
                         hk_status s) {
    const uint64_t position =
        call->stamp & ((UINT64_C(1) << HKI_STAMP_PASS) - 1);
    char text[512];
    snprintf(text, sizeof text, "%s", hk_last_error());
    if (call->place != NULL && call->place->path != NULL)
        return hki_fail(s, "%s: record %llu at byte %llu: %s",
                        call->place->path,
                        (unsigned long long)call->place->record,
                        (unsigned long long)call->place->offset, text);
    return hki_fail(s, "%s: element %llu: %s", c->op,
                    (unsigned long long)position, text);
}

static hk_status apply(const void *p, void *scratch, hki_fn_call *call) {
    const config *const c = p;
    const hk_status s = parse(c, scratch, call);
    if (s == HK_OK || s == HK_E_NO_MEMORY)
        return s;
    return hki_on_error(call->run, c->on_error, located(c, call, s),
                        &call->skip);
}

static const hki_fn_ops fn = {
    .name = "parse_example",
    .destroy = config_destroy,
    .scratch_open = scratch_open,
    .scratch_close = scratch_close,
    .apply = apply,
};

// ---- the datasets ----------------------------------------------------------

HKI_OPTIONS(hk_parse_options, n_lists)

// The string scalar that holds the examples.
static hk_status find_input(const config *c, const hk_element *spec,
                            const char *name, size_t *out) {
    int64_t found = -1;
    for (size_t k = 0; k < spec->count; k++) {
        const hk_value *const v = &spec->values[k];
        if (name != NULL ? strcmp(v->name, name) != 0 : v->dtype != HK_STRING)
            continue;
        if (found >= 0)
            return hki_fail(HK_E_INVALID_ARG,
                            "%s: the values \"%s\" and \"%s\" are both "
                            "strings; set the name of the input",
                            c->op, spec->values[found].name, v->name);
        found = (int64_t)k;
    }
    if (found < 0)
        return hki_fail(HK_E_NOT_FOUND, "%s: there is no string \"%s\"", c->op,
                        name != NULL ? name : "");
    const hk_value *const v = &spec->values[found];
    if (v->dtype != HK_STRING || v->form != HK_DENSE_FORM || v->shape.rank != 0)
        return hki_fail(
            HK_E_DTYPE,
            "%s: \"%s\" is not one string per element; parse before the batch",
            c->op, v->name);
    *out = (size_t)found;
    return HK_OK;
}

static hk_status get_options(hk_parse_options *o, const hk_parse_options *opt,
                             const char *op) {
    hk_parse_options_init(o, sizeof *o);
    HKI_TRY(hki_options_copy(o, sizeof *o, opt, op));
    if (o->on_error != HK_ON_ERROR_FAIL && o->on_error != HK_ON_ERROR_SKIP)
        return hki_fail(HK_E_INVALID_ARG, "%s: on_error %d is unknown", op,
                        (int)o->on_error);
    if (!o->sequence && o->n_lists > 0)
        return hki_fail(
            HK_E_INVALID_ARG,
            "%s: feature lists are only possible in a SequenceExample", op);
    return HK_OK;
}

static hk_status configure(hki_dataset_desc *desc, const hk_dataset *d,
                           const hk_example_feature *features,
                           size_t n_features, const hk_parse_options *opt) {
    hk_parse_options o;
    config *c;
    hk_value *all;
    HKI_TRY(hk_dataset_status(d));
    HKI_TRY(get_options(&o, opt, "parse_example"));
    HKI_TRY(hki_desc_config(desc, sizeof *c, &c));
    c->op = o.sequence ? "parse_sequence_example" : "parse_example";
    c->on_error = o.on_error;
    c->keep = o.keep != 0;
    HKI_TRY(hki_example_spec_init(&c->spec, features, n_features, o.lists,
                                  o.n_lists, o.sequence != 0));
    HKI_TRY(find_input(c, &d->spec, o.input, &c->input));
    const size_t kept = c->keep ? d->spec.count - 1 : 0;
    HKI_TRY(hki_desc_spec(desc, kept + c->spec.n_features, &all));
    for (size_t k = 0, at = 0; c->keep && k < d->spec.count; k++)
        if (k != c->input)
            all[at++] = d->spec.values[k];
    memcpy(all + kept, c->spec.values, c->spec.n_features * sizeof *all);
    desc->key = hki_hash(c->spec.key, &c->keep, sizeof c->keep);
    desc->flags = c->on_error == HK_ON_ERROR_SKIP ? HKI_DATA_MAY_SKIP : 0;
    return HK_OK;
}

hk_dataset *hk_data_parse_example(hk_dataset *d,
                                  const hk_example_feature *features,
                                  size_t n_features,
                                  const hk_parse_options *opt) {
    hki_dataset_desc desc = {.fn = &fn, .inputs = &d, .n_inputs = 1};
    return hki_dataset_finish(&desc,
                              configure(&desc, d, features, n_features, opt));
}

// ---- on bytes --------------------------------------------------------------

struct hk_example_parser {
    hki_example_spec spec;
    hki_finder finder;
    hki_pool *pool;
    hki_box *box;
};

static hk_status parser_init(hk_example_parser *p,
                             const hk_example_feature *features,
                             size_t n_features, const hk_parse_options *opt) {
    hk_parse_options o;
    HKI_TRY(get_options(&o, opt, "example parser"));
    HKI_TRY(hki_example_spec_init(&p->spec, features, n_features, o.lists,
                                  o.n_lists, o.sequence != 0));
    const hk_element spec = {p->spec.n_features, p->spec.values};
    HKI_TRY(hki_finder_init(&p->finder, &p->spec));
    HKI_TRY(hki_spec_check("example parser", spec.values, spec.count));
    HKI_TRY(hki_pool_create(&spec, &p->pool));
    return hki_pool_take(p->pool, &p->box);
}

hk_status hk_example_parser_create(const hk_example_feature *features,
                                   size_t n_features,
                                   const hk_parse_options *opt,
                                   hk_example_parser **out) {
    hk_example_parser *p;
    if (out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "example parser: NULL argument");
    HKI_TRY(hki_zalloc_array(1, sizeof *p, &p));
    HKI_TRY_OR(parser_init(p, features, n_features, opt),
               hk_example_parser_destroy(p));
    *out = p;
    return HK_OK;
}

void hk_example_parser_destroy(hk_example_parser *p) {
    if (p == NULL)
        return;
    hki_box_release(p->box);
    hki_pool_close(p->pool);
    hki_finder_deinit(&p->finder);
    hki_example_spec_deinit(&p->spec);
    hki_free(p);
}

hk_status hk_example_parse(hk_example_parser *p, const void *bytes, size_t size,
                           const hk_element **out) {
    if (p == NULL || out == NULL || (bytes == NULL && size > 0))
        return hki_fail(HK_E_INVALID_ARG, "example parse: NULL argument");
    HKI_TRY(hki_example_find(&p->spec, &p->finder,
                             size > 0 ? bytes : (const void *)"", size));
    HKI_TRY(hki_box_prepare(p->box));
    HKI_TRY(hki_example_read(&p->spec, &p->finder, hki_box_rows(p->box), 0, 0));
    *out = &p->box->element;
    return HK_OK;
}

// ---- what is in it ---------------------------------------------------------

// What an entry holds: of a feature list the type of its last feature, and how
// many features; of a feature its type, and how many values.
static bool measure(const hki_entry *e, bool of_lists, hk_dtype *stored,
                    int64_t *n) {
    hki_list l = {0};
    hki_pb m = {e->value, e->value + e->value_size};
    hki_pb_field f;
    bool good = true, bad = false;
    *n = 0;
    if (!of_lists)
        good = hki_feature_list(e->value, e->value_size, &l) &&
               (l.stored == 0 || hki_list_count(&l, n));
    while (of_lists && good && hki_pb_next(&m, &f, &bad))
        if (f.number == 1 && f.type == HKI_PB_BYTES) {
            good = hki_feature_list(f.bytes, f.size, &l);
            ++*n;
        }
    *stored = l.stored;
    return good && !bad;
}

// The entries of a map, one call each. *good: it is well-formed.
static hk_status describe_map(const uint8_t *p, size_t size, bool of_lists,
                              hk_example_visit visit, void *user, bool *good) {
    hki_pb m = {p, p + size};
    hki_pb_field f;
    bool bad = false;
    *good = true;
    while (*good && hki_pb_next(&m, &f, &bad)) {
        hki_entry e;
        hk_dtype stored;
        int64_t n;
        if (f.number != 1 || f.type != HKI_PB_BYTES)
            continue;
        *good = hki_entry_parse(f.bytes, f.size, &e) &&
                measure(&e, of_lists, &stored, &n);
        if (*good)
            HKI_TRY(visit(user, (const char *)e.key, e.key_size, of_lists,
                          stored, n));
    }
    *good = *good && !bad;
    return HK_OK;
}

hk_status hk_example_describe(const void *bytes, size_t size, int sequence,
                              hk_example_visit visit, void *user) {
    if ((bytes == NULL && size > 0) || visit == NULL)
        return hki_fail(HK_E_INVALID_ARG, "example describe: NULL argument");
    const uint8_t *const p = size > 0 ? bytes : (const void *)"";
    hki_pb m = {p, p + size};
    hki_pb_field f;
    bool bad = false, good = true;
    while (good && hki_pb_next(&m, &f, &bad))
        if (f.type == HKI_PB_BYTES &&
            (f.number == 1 || (f.number == 2 && sequence)))
            HKI_TRY(describe_map(f.bytes, f.size, f.number == 2, visit, user,
                                 &good));
    if (!good || bad)
        return hki_fail(
            HK_E_DATA, "not a serialized %s: malformed before byte %zu of %zu",
            sequence ? "SequenceExample" : "Example", (size_t)(m.p - p), size);
    return HK_OK;
}
