// optimizer_state.c - what an optimizer is called and what it remembers:
// hyper-parameters, slots, variables, saved bytes.
//
// Saved state, little-endian:
//     "HKOPTIM1" | u32 kind | u32 flags | u64 layout fingerprint
//     u32 n | n f64 hyper-parameters in the rule's order
//     f32 beta1_power | f32 beta2_power
//     u64 n_slots | u64 n_train | n_slots * n_train f32, in creation order
//     u32 has_schedule [| schedule]
//     with a second rule: the same again from the kind on | u64 hash
#include "optim/optimizer.h"

static const char magic[8] = {'H', 'K', 'O', 'P', 'T', 'I', 'M', '1'};

const char *hki_optimizer_name(const hk_optimizer *o) {
    return o->opt.name;
}

const hk_layout *hki_optimizer_layout(const hk_optimizer *o) {
    return o->layout;
}

// ---- hyper-parameters -----------------------------------------------------

static hk_status find_hyper(const hk_optimizer *o, const char *name,
                            const hki_hyper **out) {
    if (o == NULL || name == NULL)
        return hki_fail(HK_E_INVALID_ARG, "optimizer: handle or name is NULL");
    const hki_hyper *h = hki_rule_hyper(o->rule, name);
    if (h == NULL && o->opt.learning_rate_name != NULL &&
        strcmp(name, o->opt.learning_rate_name) == 0)
        h = o->rule->hyper[0];
    if (h == NULL)
        return hki_fail(HK_E_NOT_FOUND, "%s has no hyperparameter %s",
                        o->opt.name, name);
    *out = h;
    return HK_OK;
}

// Name of the second rule's hyper-parameter; NULL when it is the first's.
static const char *others_name(const hk_optimizer *o, const char *name) {
    static const char prefix[] = "other/";
    const size_t n = sizeof prefix - 1;
    return o != NULL && o->other != NULL && name != NULL &&
                   strncmp(name, prefix, n) == 0
               ? name + n
               : NULL;
}

hk_status hk_optimizer_set(hk_optimizer *o, const char *name, double value) {
    for (const char *rest; (rest = others_name(o, name)) != NULL; name = rest)
        o = o->other;
    const hki_hyper *h = NULL;
    HKI_TRY(find_hyper(o, name, &h));
    if (h->create_only)
        return hki_fail(HK_E_STATE, "%s: %s can only be set at creation",
                        o->opt.name, name);
    if (h == o->rule->hyper[0] && o->schedule != NULL)
        return hki_fail(HK_E_STATE,
                        "%s: the learning rate follows a schedule; remove the "
                        "schedule first",
                        o->opt.name);
    if (o->in_step)
        return hki_fail(HK_E_STATE, "%s: %s cannot be changed inside of a step",
                        o->opt.name, name);
    HKI_TRY(hki_hyper_check(o->rule, h, value));
    hki_hyper_put(&o->opt, h, value);
    hki_optimizer_build_runs(o); // they depend on epsilon
    return HK_OK;
}

hk_status hk_optimizer_get(const hk_optimizer *o, const char *name,
                           double *value) {
    if (others_name(o, name) != NULL)
        return hk_optimizer_get(o->other, others_name(o, name), value);
    const hki_hyper *h = NULL;
    HKI_TRY(find_hyper(o, name, &h));
    if (value == NULL)
        return hki_fail(HK_E_INVALID_ARG, "optimizer: value is NULL");
    *value = hki_hyper_get(&o->opt, h);
    return HK_OK;
}

hk_status hk_optimizer_set_schedule(hk_optimizer *o, hk_schedule *schedule) {
    if (o == NULL || o->in_step)
        return hki_fail(
            HK_E_STATE,
            "optimizer: set_schedule: the handle is NULL, or a step has begun");
    if (schedule == NULL)
        HKI_TRY(
            hki_hyper_check(o->rule, o->rule->hyper[0], o->opt.learning_rate));
    hk_schedule_retain(schedule);
    hk_schedule_release(o->schedule);
    o->schedule = schedule;
    return HK_OK;
}

void hki_optimizer_set_halvings(hk_optimizer *o, int times) {
    o->halvings = times;
    if (o->other != NULL)
        o->other->halvings = times;
}

int hki_optimizer_halvings(const hk_optimizer *o) {
    return o->halvings;
}

// ---- slots ----------------------------------------------------------------

size_t hki_optimizer_slot_count(const hk_optimizer *o) {
    return o->n_slots;
}

const char *hki_optimizer_slot_name(const hk_optimizer *o, size_t i) {
    return i < o->n_slots ? o->slot[o->sorted[i]].name : NULL;
}

hk_status hk_optimizer_get_info(const hk_optimizer *o, hk_optimizer_info *out) {
    if (o == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "optimizer: info: NULL argument");
    *out = (hk_optimizer_info){.name = o->opt.name,
                               .kind = o->rule->kind,
                               .slot_count = (uint32_t)o->n_slots};
    for (size_t i = 0; i < o->n_slots; i++)
        out->slots[i] = hki_optimizer_slot_name(o, i);
    return HK_OK;
}

// Whether an entry belongs to this rule.
static bool owns(const hk_optimizer *o, const hk_entry *e) {
    for (size_t i = 0; i < o->n_entries; i++)
        if (hk_layout_entry(o->layout, i) == e)
            return o->owned[i];
    return false;
}

hk_status hk_optimizer_slot(hk_optimizer *o, const char *var, const char *slot,
                            float **out) {
    if (o == NULL || var == NULL || slot == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "optimizer: slot: an argument is NULL");
    const hk_entry *const e = hk_layout_find(o->layout, var);
    if (e == NULL || e->kind != HK_TRAINABLE)
        return hki_fail(HK_E_NOT_FOUND, "%s: there is no trainable variable %s",
                        o->opt.name, var);
    if (o->other != NULL && !owns(o, e))
        return hk_optimizer_slot(o->other, var, slot, out);
    for (size_t i = 0; i < o->n_slots; i++)
        if (strcmp(o->slot[i].name, slot) == 0) {
            HKI_TRY(hki_vector_host(&o->values[i], HKI_TO_CHANGE, out));
            *out += e->offset;
            return HK_OK;
        }
    return hki_fail(HK_E_NOT_FOUND, "%s has no slot %s", o->opt.name, slot);
}

// ---- variables ------------------------------------------------------------

static hk_status add_slot(hk_optimizer *o, const hk_entry *e, size_t i,
                          hk_name_map *map) {
    float *const at = o->values[i].host + e->offset;
    return i == 0 ? hki_names_add(map, HK_F32, e->shape, at, "%s/%s", e->name,
                                  o->opt.name)
                  : hki_names_add(map, HK_F32, e->shape, at, "%s/%s_%zu",
                                  e->name, o->opt.name, i);
}

// suffix: makes the second rule's powers unique, as TF's names would be.
static hk_status add_variables(hk_optimizer *o, const char *suffix,
                               hk_name_map *map) {
    for (int i = 0; (o->rule->flags & HKI_RULE_POWERS) && i < 2; i++)
        HKI_TRY(hki_names_add(map, HK_F32, HKI_SCALAR, &o->power[i],
                              "beta%d_power%s", i + 1, suffix));
    for (size_t i = 0; i < o->n_entries; i++)
        for (size_t s = 0; o->owned[i] && s < o->n_slots; s++)
            HKI_TRY(add_slot(o, hk_layout_entry(o->layout, i), s, map));
    return HK_OK;
}

hk_status hk_optimizer_variables(hk_optimizer *o, hk_name_map *map) {
    if (o == NULL || map == NULL)
        return hki_fail(HK_E_INVALID_ARG, "optimizer: handle or map is NULL");
    HKI_TRY(hki_optimizer_open(o, HKI_TO_CHANGE));
    HKI_TRY(add_variables(o, "", map));
    return o->other != NULL ? add_variables(o->other, "_1", map) : HK_OK;
}

// ---- bytes ----------------------------------------------------------------

static uint32_t flag_bits(const hk_optimizer *o) {
    const hk_optimizer_options *const h = &o->opt;
    return h->use_nesterov | h->centered << 1 | h->paper_epsilon << 2 |
           (uint32_t)h->sparse_update << 3 | h->lookahead << 5 |
           h->bf16_moments << 6;
}

static uint32_t n_hypers(const hki_rule *r) {
    uint32_t n = 0;
    while (n < HKI_COUNT(r->hyper) && r->hyper[n] != NULL)
        n++;
    return n;
}

static void write_rule(const hk_optimizer *o, hki_writer *w) {
    const hki_rule *const r = o->rule;
    const int64_t n_train = hki_layout_train(o->layout);
    hki_write_u32(w, (uint32_t)r->kind);
    hki_write_u32(w, flag_bits(o));
    hki_write_u64(w, hki_layout_fingerprint(o->layout));
    hki_write_u32(w, n_hypers(r));
    for (uint32_t i = 0; i < n_hypers(r); i++)
        hki_write_f64(w, hki_hyper_get(&o->opt, r->hyper[i]));
    hki_write_f32s(w, o->power, 2);
    hki_write_u64(w, o->n_slots);
    hki_write_u64(w, (uint64_t)n_train);
    for (size_t i = 0; i < o->n_slots; i++)
        hki_write_f32s(w, o->values[i].host, n_train);
    hki_write_u32(w, o->schedule != NULL);
    if (o->schedule != NULL)
        hki_schedule_write(o->schedule, w);
}

static void write_state(const void *object, hki_writer *w) {
    const hk_optimizer *const o = object;
    hki_write_bytes(w, magic, sizeof magic);
    write_rule(o, w);
    if (o->other != NULL)
        write_rule(o->other, w);
}

hk_status hk_optimizer_save(const hk_optimizer *o, void *buf, size_t capacity,
                            size_t *size) {
    if (o != NULL)
        HKI_TRY(hki_optimizer_open((hk_optimizer *)(uintptr_t)o, HKI_TO_READ));
    return hki_save(o, write_state, "optimizer: save", buf, capacity, size);
}

// What a saved state holds, before any of it is taken over.
typedef struct saved {
    hk_optimizer_options opt;
    float power[2];
    hki_reader slots; // n_slots * n_train floats
    hk_schedule *schedule;
} saved;

static hk_status read_header(const hk_optimizer *o, hki_reader *r) {
    const uint32_t kind = hki_read_u32(r), flags = hki_read_u32(r);
    const uint64_t fingerprint = hki_read_u64(r);
    const hki_rule *const other = hki_rule_find((hk_optimizer_kind)kind);
    if (kind != (uint32_t)o->rule->kind || flags != flag_bits(o))
        return hki_fail(HK_E_DATA,
                        "%s: the saved state belongs to %s with flags %u, not "
                        "to %s with flags %u",
                        o->opt.name, other != NULL ? other->name : "?", flags,
                        o->rule->name, flag_bits(o));
    if (fingerprint != hki_layout_fingerprint(o->layout))
        return hki_fail(HK_E_DATA,
                        "%s: the saved state belongs to another layout",
                        o->opt.name);
    return HK_OK;
}

static hk_status read_body(const hk_optimizer *o, hki_reader *r, saved *s) {
    const hki_rule *const rule = o->rule;
    bool same = hki_read_u32(r) == n_hypers(rule);
    s->opt = o->opt;
    for (uint32_t i = 0; same && i < n_hypers(rule); i++)
        hki_hyper_put(&s->opt, rule->hyper[i], hki_read_f64(r));
    hki_read_f32s(r, s->power, 2);
    same = same && hki_read_u64(r) == o->n_slots;
    const int64_t n_train = hki_layout_train(o->layout);
    same = same && hki_read_u64(r) == (uint64_t)n_train;
    s->slots = *r;
    // The sizes are the optimizer's own: no overflow.
    hki_read_skip(r, (uint64_t)o->n_slots * (uint64_t)n_train * sizeof(float));
    const uint32_t has_schedule = hki_read_u32(r);
    if (!same || !r->ok || has_schedule > 1)
        return hki_fail(HK_E_DATA, "%s: the saved state is malformed",
                        o->opt.name);
    if (has_schedule)
        HKI_TRY(hki_schedule_read(r, &s->schedule));
    s->opt.schedule = s->schedule;
    return hki_rule_check(rule, &s->opt);
}

// Everything of the bytes, both rules, before any of it is taken over.
static hk_status read_state(const hk_optimizer *o, hki_reader *r, saved s[2]) {
    const unsigned char *const m = hki_read_skip(r, sizeof magic);
    if (m == NULL || memcmp(m, magic, sizeof magic) != 0)
        return hki_fail(HK_E_DATA,
                        "%s: the bytes are not the state of an optimizer",
                        o->opt.name);
    for (int i = 0; o != NULL && i < 2; i++, o = o->other) {
        HKI_TRY(read_header(o, r));
        HKI_TRY(read_body(o, r, &s[i]));
    }
    if (r->size != 0)
        return hki_fail(HK_E_DATA,
                        "%zu bytes follow the saved state of an "
                        "optimizer",
                        r->size);
    return HK_OK;
}

static void take_over(hk_optimizer *o, saved *s) {
    for (size_t i = 0; i < o->n_slots; i++)
        hki_read_f32s(&s->slots, o->values[i].host,
                      hki_layout_train(o->layout));
    memcpy(o->power, s->power, sizeof o->power);
    o->opt = s->opt;
    o->opt.schedule = NULL;
    hk_schedule_release(o->schedule);
    o->schedule = s->schedule;
    hki_optimizer_build_runs(o);
}

hk_status hk_optimizer_restore(hk_optimizer *o, const void *bytes,
                               size_t size) {
    if (o == NULL || o->in_step)
        return hki_fail(
            HK_E_STATE,
            "optimizer: restore: the handle is NULL, or a step has begun");
    hki_reader r;
    saved s[2] = {{.schedule = NULL}, {.schedule = NULL}};
    HKI_TRY(hki_reader_init(&r, bytes, size, o->opt.name));
    hk_status status = read_state(o, &r, s);
    if (status == HK_OK)
        status = hki_optimizer_open(o, HKI_TO_WRITE);
    if (status != HK_OK) {
        hk_schedule_release(s[0].schedule);
        hk_schedule_release(s[1].schedule);
        return status;
    }
    take_over(o, &s[0]);
    if (o->other != NULL)
        take_over(o->other, &s[1]);
    return HK_OK;
}
