// sums.c - evaluations of parts of the data, added up.
#include "estimator/estimator.h"
#include "estimator/eval/sums.h"

#define MAGIC UINT64_C(0x3130534d55534b48) // "HKSUMS01"
#define MOST_SETS 4096

static hk_status create_metric(const hki_evaluation *v, size_t k,
                               hk_metric **out) {
    const hki_spec_metric *const m = &v->pass.spec->metrics.data[k];
    hk_metric_options o = m->opt;
    o.has_fixed_size |= v->o.has_fixed_size;
    return hk_metric_create(m->kind, &o, out);
}

hk_status hki_scores_create(hki_evaluation *v) {
    const size_t sets = v->pass.weights.sets.n;
    const hk_spec *const spec = v->pass.spec;
    HKI_TRY(hki_zalloc_array(sets, sizeof *v->scores, &v->scores));
    for (size_t i = 0; i < sets; i++) {
        hki_score *const s = &v->scores[i];
        HKI_TRY(
            hki_zalloc_array(spec->metrics.n, sizeof *s->metrics, &s->metrics));
        for (size_t k = 0; k < spec->metrics.n; k++)
            HKI_TRY(create_metric(v, k, &s->metrics[k]));
    }
    return HK_OK;
}

// ---- saving ----------------------------------------------------------------

static void write_metric(const hk_metric *m, hki_writer *w) {
    const size_t n = hk_metric_state_bytes(m);
    hki_write_u64(w, n);
    if (w->data != NULL) // of the size that it asks for it does not fail
        (void)hk_metric_save(m, w->data + w->size, n);
    w->size += n;
}

static void write_sums(const void *object, hki_writer *w) {
    const hki_evaluation *const v = object;
    const hki_pass *const p = &v->pass;
    hki_write_u64(w, MAGIC);
    hki_write_u64(w, (uint64_t)p->weights.step);
    hki_write_u64(w, (uint64_t)v->batches);
    hki_write_u64(w, (uint64_t)p->run.examples);
    hki_write_u32(w, (uint32_t)p->weights.sets.n);
    hki_write_u32(w, (uint32_t)p->spec->metrics.n);
    for (size_t i = 0; i < p->weights.sets.n; i++) {
        const hki_weight_set *const set = &p->weights.sets.data[i];
        char name[sizeof set->name] = "";
        memcpy(name, set->name, strlen(set->name));
        hki_write_bytes(w, name, sizeof name);
        hki_write_f64(w, v->scores[i].loss_sum);
        for (size_t k = 0; k < p->spec->metrics.n; k++)
            write_metric(v->scores[i].metrics[k], w);
    }
}

hk_status hki_sums_save(const hki_evaluation *v, uint8_t **bytes,
                        size_t *size) {
    HKI_TRY(hki_save(v, write_sums, "evaluation", NULL, 0, size));
    HKI_TRY(hki_alloc_array(*size, 1, bytes));
    return hki_save(v, write_sums, "evaluation", *bytes, *size, size);
}

// ---- adding ----------------------------------------------------------------

typedef struct head {
    int64_t step, batches, examples;
    uint32_t sets, metrics;
} head;

static hk_status read_head(hki_reader *r, size_t number, head *h) {
    const bool known = hki_read_u64(r) == MAGIC;
    *h = (head){.step = (int64_t)hki_read_u64(r),
                .batches = (int64_t)hki_read_u64(r),
                .examples = (int64_t)hki_read_u64(r),
                .sets = hki_read_u32(r),
                .metrics = hki_read_u32(r)};
    if (!r->ok || !known || h->step < 0 || h->batches < 0 || h->examples < 0 ||
        h->batches > INT64_MAX / 2 || h->examples > INT64_MAX / 2 ||
        (h->sets > 0) != (h->batches > 0) || h->sets > MOST_SETS)
        return hki_fail(HK_E_DATA,
                        "part %zu: is not a result of a partial evaluation",
                        number);
    return HK_OK;
}

static hk_status another(const hki_evaluation *v, size_t number,
                         const head *h) {
    return hki_fail(HK_E_STATE,
                    "part %zu: belongs to another model or other weights: it "
                    "has %u sets at step %lld with %u metrics, the first part "
                    "%zu at step %lld with %zu",
                    number, h->sets, (long long)h->step, h->metrics,
                    v->pass.weights.sets.n, (long long)v->pass.weights.step,
                    v->pass.spec->metrics.n);
}

static hk_status add_metric(hki_reader *r, size_t number, const char *name,
                            hk_metric *to, hk_metric *part) {
    const uint64_t n = hki_read_u64(r);
    const void *const state = hki_read_skip(r, n);
    if (state == NULL)
        return hki_fail(HK_E_DATA, "part %zu: is truncated in metric %s",
                        number, name);
    const hk_status s = hk_metric_restore(part, state, (size_t)n);
    if (s != HK_OK)
        return hki_fail(s, "part %zu: metric %s: %s", number, name,
                        hk_last_error());
    return hk_metric_merge(to, part);
}

// The name of the next set, which is that of a part before or becomes it.
static hk_status read_name(hki_reader *r, size_t number, bool first,
                           hki_weight_set *set) {
    const void *const name = hki_read_skip(r, sizeof set->name);
    if (name == NULL || memchr(name, 0, sizeof set->name) == NULL)
        return hki_fail(HK_E_DATA, "part %zu: a set of weights has no name",
                        number);
    if (first)
        memcpy(set->name, name, sizeof set->name);
    if (strcmp(set->name, name) != 0)
        return hki_fail(HK_E_STATE, "part %zu: has %s weights, not %s", number,
                        (const char *)name, set->name);
    return HK_OK;
}

static hk_status add_set(hki_evaluation *v, hki_reader *r, size_t number,
                         size_t set) {
    hki_score *const to = &v->scores[set];
    to->loss_sum += hki_read_f64(r);
    for (size_t k = 0; k < v->pass.spec->metrics.n; k++) {
        hk_metric *part;
        HKI_TRY(create_metric(v, k, &part));
        const hk_status s =
            add_metric(r, number, v->pass.spec->metrics.data[k].name,
                       to->metrics[k], part);
        hk_metric_destroy(part);
        HKI_TRY(s);
    }
    return HK_OK;
}

static hk_status take_weights(hki_evaluation *v, const head *h) {
    hki_weights *const w = &v->pass.weights;
    w->step = h->step;
    for (uint32_t i = 0; i < h->sets; i++) {
        HKI_TRY(HKI_LIST_ROOM(w->sets));
        w->sets.data[w->sets.n++] = (hki_weight_set){0};
    }
    return hki_scores_create(v);
}

hk_status hki_sums_add(hki_evaluation *v, const void *bytes, size_t size,
                       size_t number) {
    hki_reader r;
    head h;
    const bool first = v->scores == NULL;
    HKI_TRY(hki_reader_init(&r, bytes, size, "evaluation"));
    HKI_TRY(read_head(&r, number, &h));
    if (h.batches == 0) // a part that had nothing
        return HK_OK;
    if (first && h.metrics == v->pass.spec->metrics.n)
        HKI_TRY(take_weights(v, &h));
    if (h.metrics != v->pass.spec->metrics.n ||
        h.sets != v->pass.weights.sets.n || h.step != v->pass.weights.step)
        return another(v, number, &h);
    for (size_t i = 0; i < h.sets; i++) {
        HKI_TRY(read_name(&r, number, first, &v->pass.weights.sets.data[i]));
        HKI_TRY(add_set(v, &r, number, i));
    }
    if (!r.ok || r.size != 0)
        return hki_fail(HK_E_DATA,
                        "part %zu: is not a result of a partial evaluation",
                        number);
    v->batches += h.batches;
    v->pass.run.examples += h.examples;
    return HK_OK;
}
