// optimizer.c - create an optimizer, and choose what it moves.
#include "optim/optimizer.h"

HKI_NO_TAIL(hk_optimizer_options, reserved);
HKI_NO_TAIL(hk_schedule_options, warmup_shift);

// ---- create -----------------------------------------------------------------

void hk_optimizer_destroy(hk_optimizer *o) {
    if (o == NULL)
        return;
    for (size_t i = 0; i < HKI_MAX_SLOTS; i++)
        hki_vector_deinit(&o->values[i]);
    hki_free(o->skip);
    hki_free(o->active);
    hki_free(o->selected);
    hki_free(o->owned);
    hk_optimizer_destroy(o->other);
    hki_free(o->runs);
    hki_free(o->prepared);
    hki_free(o->chunks);
    hki_free(o->sums);
    hki_free(o->table_sums);
    hki_free(o->rates);
    hki_free(o->table_rates);
    hki_tables_deinit(&o->tables);
    hk_schedule_release(o->schedule);
    hk_layout_release(o->layout);
    hki_arena_deinit(&o->arena);
    hki_free(o);
}

// Keeps the rule's own hyper-parameters; the others read as zero.
static void keep_own_hypers(hk_optimizer_options *dst,
                            const hk_optimizer_options *src,
                            const hki_rule *r) {
    for (size_t i = 0; i < HKI_COUNT(r->hyper) && r->hyper[i] != NULL; i++)
        hki_hyper_put(dst, r->hyper[i], hki_hyper_get(src, r->hyper[i]));
    dst->kind = src->kind;
    dst->sparse_update = src->sparse_update;
    dst->use_nesterov = src->use_nesterov;
    dst->centered = src->centered;
    dst->paper_epsilon = src->paper_epsilon;
    dst->lookahead = src->lookahead;
    dst->bf16_moments = src->bf16_moments;
}

// A velocity is no sum of gradients: its checkpoint name is another one, so
// that neither is taken for the other.
static const char *default_name(const hk_optimizer *o) {
    return o->opt.lookahead ? "MomentumLookahead" : o->rule->name;
}

static hk_status copy_names(hk_optimizer *o, const hk_optimizer_options *src) {
    const char *const name = src->name != NULL ? src->name : default_name(o);
    if (name[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG, "%s: the name is empty",
                        o->rule->name);
    HKI_TRY(hki_arena_strdup(&o->arena, name, &o->opt.name));
    if (src->learning_rate_name != NULL)
        HKI_TRY(hki_arena_strdup(&o->arena, src->learning_rate_name,
                                 &o->opt.learning_rate_name));
    return HK_OK;
}

// Slots by name, for hki_optimizer_slot_name: a slot's place is the number of
// names before its own.
static void sort_slots(hk_optimizer *o) {
    for (size_t i = 0; i < o->n_slots; i++) {
        size_t at = 0;
        for (size_t j = 0; j < o->n_slots; j++)
            at += strcmp(o->slot[j].name, o->slot[i].name) < 0;
        o->sorted[at] = i;
    }
}

static float slot_start(const hk_optimizer *o, size_t i) {
    const hki_slot_def *const d = &o->slot[i];
    if (d->initial == 0)
        return d->start;
    double v;
    memcpy(&v, (const char *)&o->opt + d->initial, sizeof v);
    return (float)v;
}

static hk_status create_slots(hk_optimizer *o) {
    const int64_t n = hki_layout_train(o->layout);
    o->n_slots = hki_rule_slots(o->rule, &o->opt, o->slot);
    sort_slots(o);
    for (size_t i = 0; i < o->n_slots; i++)
        HKI_TRY(hki_vector_init(&o->values[i], n, slot_start(o, i)));
    for (size_t i = 0; o->opt.bf16_moments && i < o->n_slots; i++)
        HKI_TRY(hki_vector_follow(&o->values[i], &hki_place_packed));
    o->power[0] = (float)o->opt.beta1;
    o->power[1] = (float)o->opt.beta2;
    return HK_OK;
}

hk_status hki_optimizer_forget(hk_optimizer *o) {
    HKI_TRY(hki_optimizer_open(o, HKI_TO_WRITE));
    for (size_t i = 0; i < o->n_slots; i++)
        for (int64_t j = 0; j < o->values[i].n; j++)
            o->values[i].host[j] = slot_start(o, i);
    o->power[0] = (float)o->opt.beta1;
    o->power[1] = (float)o->opt.beta2;
    return o->other != NULL ? hki_optimizer_forget(o->other) : HK_OK;
}

hk_status hki_optimizer_open(hk_optimizer *o, hki_access a) {
    float *host;
    for (size_t i = 0; i < o->n_slots; i++)
        HKI_TRY(hki_vector_host(&o->values[i], a, &host));
    return o->other != NULL ? hki_optimizer_open(o->other, a) : HK_OK;
}

hk_status hki_optimizer_follow(hk_optimizer *o, const hki_place *at) {
    const hki_place *const to = at != NULL ? at : &o->home;
    if (o->at == to)
        return HK_OK;
    if (o->opt.bf16_moments)
        return hki_fail(HK_E_UNSUPPORTED,
                        "%s: bf16_moments need values in host memory, but "
                        "these are on a device",
                        o->opt.name);
    for (size_t i = 0; i < o->n_slots; i++)
        HKI_TRY(hki_vector_follow(&o->values[i], at));
    o->at = to;
    return o->other != NULL ? hki_optimizer_follow(o->other, at) : HK_OK;
}

static hk_status mark_entries(hk_optimizer *o,
                              const hk_optimizer_options *src) {
    const hk_entry *e;
    while ((e = hk_layout_entry(o->layout, o->n_entries)) != NULL &&
           e->kind == HK_TRAINABLE)
        o->n_entries++;
    if (src->n_skip > 0 && src->skip_list == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: skip_list is NULL",
                        o->rule->name);
    HKI_TRY(hki_zalloc_array(o->n_entries, 1, &o->skip));
    HKI_TRY(hki_alloc_array(o->n_entries, 1, &o->active));
    HKI_TRY(hki_alloc_array(o->n_entries, 1, &o->selected));
    HKI_TRY(hki_alloc_array(o->n_entries, 1, &o->owned));
    for (size_t i = 0; i < o->n_entries; i++) {
        o->active[i] = o->selected[i] = o->owned[i] = 1;
        for (size_t j = 0; j < src->n_skip; j++) {
            if (src->skip_list[j] == NULL)
                return hki_fail(HK_E_INVALID_ARG, "%s: skip_list[%zu] is NULL",
                                o->rule->name, j);
            if (strstr(hk_layout_entry(o->layout, i)->name,
                       src->skip_list[j]) != NULL)
                o->skip[i] = 1;
        }
    }
    return HK_OK;
}

void hki_optimizer_build_runs(hk_optimizer *o) {
    // With epsilon 0 a zero gradient may give 0 / 0: stay out of the gaps.
    const bool exact = hki_rule_hyper(o->rule, "epsilon") != NULL &&
                       (float)o->opt.epsilon == 0;
    const int64_t n_dense = hki_layout_dense(o->layout);
    const int64_t n_train = hki_layout_train(o->layout);
    o->n_runs = 0;
    for (size_t i = 0; i < o->n_entries; i++) {
        const hk_entry *const e = hk_layout_entry(o->layout, i);
        if (!o->active[i] || e->count == 0)
            continue;
        int64_t end = e->offset + e->count;
        if (!exact) {
            end = (end + HKI_ALIGN_FLOATS - 1) / HKI_ALIGN_FLOATS *
                  HKI_ALIGN_FLOATS;
            end = HKI_MIN(end, e->sparse ? n_train : n_dense);
        }
        hki_update_run *const last =
            o->n_runs > 0 ? &o->runs[o->n_runs - 1] : NULL;
        if (last != NULL && last->end == e->offset && e->offset != n_dense &&
            last->decay == !o->skip[i])
            last->end = end;
        else
            o->runs[o->n_runs++] =
                (hki_update_run){e->offset, end, !o->skip[i]};
    }
}

static hk_status create_chunks(hk_optimizer *o) {
    if (!(o->rule->flags & HKI_RULE_PER_ENTRY) && !o->opt.lookahead)
        return HK_OK;
    HKI_TRY(hki_chunks_create(o->layout, 0, o->n_entries, &o->chunks,
                              &o->n_chunks));
    HKI_TRY(hki_alloc_array(o->n_chunks, sizeof *o->sums, &o->sums));
    HKI_TRY(hki_alloc_array(o->tables.count, sizeof *o->table_sums,
                            &o->table_sums));
    HKI_TRY(hki_alloc_array(o->tables.count, sizeof *o->table_rates,
                            &o->table_rates));
    return hki_alloc_array(o->n_entries, sizeof *o->rates, &o->rates);
}

static hk_status build(hk_optimizer *o, const hk_optimizer_options *src,
                       hk_layout *layout) {
    keep_own_hypers(&o->opt, src, o->rule);
    o->schedule = hk_schedule_retain(src->schedule);
    o->layout = hk_layout_retain(layout);
    HKI_TRY(copy_names(o, src));
    HKI_TRY(mark_entries(o, src));
    HKI_TRY(create_slots(o));
    HKI_TRY(hki_alloc_array(o->n_entries, sizeof *o->runs, &o->runs));
    HKI_TRY(hki_tables_init(&o->tables, layout));
    for (size_t i = 0; i < o->tables.count; i++)
        HKI_TRY(hki_rowset_reserve(&o->tables.set[i], src->reserve_rows));
    HKI_TRY(
        hki_alloc_array(o->tables.count, sizeof *o->prepared, &o->prepared));
    HKI_TRY(create_chunks(o));
    hki_optimizer_build_runs(o);
    return HK_OK;
}

// The second rule: an optimizer of its own over the same layout; each entry
// belongs to one of the two.
static hk_status create_other(hk_optimizer *o, const hk_optimizer_options *src,
                              hk_layout *layout) {
    if (src->other == NULL)
        return HK_OK;
    if (src->other_prefix == NULL || src->other_prefix[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: a second optimizer needs other_prefix",
                        o->opt.name);
    hk_optimizer_options second = {.struct_size = sizeof second};
    HKI_TRY(hki_options_copy(&second, sizeof second, src->other,
                             "second optimizer"));
    second.other = NULL;
    HKI_TRY(hk_optimizer_create(&second, layout, &o->other));
    const size_t n = strlen(src->other_prefix);
    size_t found = 0;
    for (size_t i = 0; i < o->n_entries; i++) {
        const char *const name = hk_layout_entry(layout, i)->name;
        o->owned[i] = strncmp(name, src->other_prefix, n) != 0;
        o->other->owned[i] = !o->owned[i];
        found += !o->owned[i];
    }
    if (found == 0)
        return hki_fail(HK_E_NOT_FOUND,
                        "%s: no trainable variable begins with '%s'",
                        o->opt.name, src->other_prefix);
    return hk_optimizer_select(o, NULL);
}

HKI_SCOPED_HANDLE(hk_optimizer, hk_optimizer_destroy)

hk_status hk_optimizer_create(const hk_optimizer_options *opt,
                              hk_layout *layout, hk_optimizer **out) {
    hk_optimizer_options src = {.struct_size = sizeof src};
    if (opt == NULL || layout == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "optimizer: options, layout or out is NULL");
    HKI_TRY(hki_options_copy(&src, sizeof src, opt, "optimizer"));
    const hki_rule *const rule = hki_rule_find(src.kind);
    if (rule == NULL)
        return hki_fail(HK_E_INVALID_ARG, "optimizer: unknown kind %d",
                        (int)src.kind);
    HKI_TRY(hki_rule_check(rule, &src));
    if (src.reserve_rows < 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: reserve_rows is %lld; it has to be at least 0",
                        rule->name, (long long)src.reserve_rows);
    HKI_SCOPED(hk_optimizer_destroy_at) hk_optimizer *o = NULL;
    HKI_TRY(hki_zalloc_array(1, sizeof *o, &o));
    o->factor = 1;
    o->rule = rule;
    o->at = &o->home;
    HKI_TRY(hki_place_home(&o->home, src.isa, src.threads, rule->name));
    HKI_TRY(build(o, &src, layout));
    HKI_TRY(create_other(o, &src, layout));
    return HKI_HAND_ON(out, o);
}

hk_status hk_optimizer_select(hk_optimizer *o, const unsigned char *mask) {
    if (o == NULL)
        return hki_fail(HK_E_INVALID_ARG, "optimizer: handle is NULL");
    if (o->in_step)
        return hki_fail(HK_E_STATE,
                        "%s: select cannot be called inside of a step",
                        o->opt.name);
    for (size_t i = 0; i < o->n_entries; i++)
        o->active[i] = o->selected[i] =
            o->owned[i] && (mask == NULL || mask[i] != 0);
    o->narrowed = false;
    hki_optimizer_build_runs(o);
    return o->other != NULL ? hk_optimizer_select(o->other, mask) : HK_OK;
}
