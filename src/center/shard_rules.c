// shard_rules.c - what a method's center does with one chunk.
//
// Vector 0 holds the values. Others, by method: the average; momentum and its
// buffer; the sum of the open round; then the slots of an outer optimizer,
// which steps on each chunk by itself: rules that look at whole tensors (LARS,
// LAMB) are not for servers.
#include <math.h>
#include "center/shard.h"

#define MAX_SLOTS 3

static bool has_optimizer(const hki_method *m) {
    return m->outer == HKI_OUTER_EXCHANGE || m->outer == HKI_OUTER_ROUND;
}

uint32_t hki_rules_vectors(const hki_method *m, uint32_t n_slots) {
    return hki_method_kept(m) + (has_optimizer(m) ? n_slots : 0);
}

bool hki_rules_scratch(const hki_method *m) {
    return !m->reads_once && !m->rounds;
}

size_t hki_shard_room(const hki_shard *s) {
    return (size_t)s->partition.max_floats + 16;
}

// ---- outer optimizers -------------------------------------------------------

// A shard steps one chunk at a time.
static hk_status outer_options(const hk_center_options *opt, const char *name,
                               hk_optimizer_options *out) {
    const hki_method *const m = hki_method_get(opt->method);
    HKI_TRY(hki_outer_options(opt, name, out));
    out->threads = 1;
    if (has_optimizer(m) &&
        (out->kind == HK_OPT_LARS || out->kind == HK_OPT_LAMB))
        return hki_fail(
            HK_E_UNSUPPORTED,
            "%s: the outer optimizers lars and lamb need whole tensors, but a "
            "center server updates chunks; choose another type",
            name);
    return HK_OK;
}

hk_status hki_rules_slots(const hk_center_options *opt, const char *name,
                          uint32_t *n_slots) {
    *n_slots = 0;
    if (!has_optimizer(hki_method_get(opt->method)))
        return HK_OK;
    hk_optimizer_options o;
    HKI_TRY(outer_options(opt, name, &o));
    const hk_layout_item item = {.name = "w",
                                 .shape = hk_shape_make(0, NULL),
                                 .dtype = HK_F32,
                                 .kind = HK_TRAINABLE};
    hk_layout *l;
    hk_optimizer *probe;
    HKI_TRY(hk_layout_create(&item, 1, &l));
    const hk_status s = hk_optimizer_create(&o, l, &probe);
    hk_layout_release(l);
    HKI_TRY(s);
    *n_slots = (uint32_t)hki_optimizer_slot_count(probe);
    hk_optimizer_destroy(probe);
    if (*n_slots > MAX_SLOTS)
        return hki_fail(HK_E_UNSUPPORTED,
                        "%s: the outer optimizer has %u slots, more than a "
                        "center server supports",
                        name, *n_slots);
    return HK_OK;
}

// The pieces of entries that lie in a chunk, as a layout of their own: they
// come out at the same distances.
static hk_status chunk_layout(const hki_shard *s, const hki_chunk_range *c,
                              hk_layout **out) {
    HKI_SCOPED(hki_arena_deinit) hki_arena arena = {0};
    hk_layout_item *items;
    const size_t entries = hki_layout_entry_count(s->layout);
    size_t n = 0;
    HKI_TRY(hki_arena_alloc(&arena, entries, sizeof *items, &items));
    for (size_t i = 0; i < entries; i++) {
        const hk_entry *const e = hk_layout_entry(s->layout, i);
        const int64_t lo = HKI_MAX(e->offset, c->begin);
        const int64_t hi = HKI_MIN(e->offset + e->count, c->end);
        if (e->dtype == HK_F32 && lo < hi)
            items[n++] = (hk_layout_item){
                .name = e->name,
                .shape = hk_shape_make(1, (int64_t[]){hi - lo}),
                .dtype = HK_F32,
                .kind = HK_TRAINABLE};
    }
    return hk_layout_create(items, n, out);
}

// Remembers where the optimizer keeps its state. Slots of all entries lie in
// one vector, so the first entry's address is the vector's.
static hk_status find_state(hki_shard *s, uint32_t chunk, const hk_layout *l) {
    hk_optimizer *const o = s->outer[chunk];
    const char *const first = hk_layout_entry(l, 0)->name;
    for (uint32_t i = 0; i < s->n_slots; i++)
        HKI_TRY(hk_optimizer_slot(o, first, hki_optimizer_slot_name(o, i),
                                  &s->slot[chunk * MAX_SLOTS + i]));
    HKI_SCOPED(hk_name_map_destroy_at) hk_name_map *map = NULL;
    HKI_TRY(hk_name_map_create(&map));
    HKI_TRY(hk_optimizer_variables(o, map));
    const hk_named *const p = hk_name_map_find(map, "beta1_power");
    const hk_named *const q = hk_name_map_find(map, "beta2_power");
    if (p != NULL && q != NULL) {
        s->power[2 * chunk] = p->data;
        s->power[2 * chunk + 1] = q->data;
    }
    return HK_OK;
}

static hk_status make_outer(hki_shard *s, const hk_optimizer_options *o) {
    HKI_TRY(hki_zalloc_array(s->n_chunks, sizeof *s->outer, &s->outer));
    HKI_TRY(hki_zalloc_array((size_t)s->n_chunks * MAX_SLOTS, sizeof *s->slot,
                             &s->slot));
    HKI_TRY(
        hki_zalloc_array((size_t)s->n_chunks * 2, sizeof *s->power, &s->power));
    for (uint32_t i = 0; i < s->n_chunks; i++) {
        if (s->chunk[i].state || s->chunk[i].share == HK_SHARE_COPY)
            continue;
        HKI_SCOPED(hk_layout_release_at) hk_layout *l = NULL;
        HKI_TRY(chunk_layout(s, &s->chunk[i], &l));
        HKI_TRY(hk_optimizer_create(o, l, &s->outer[i]));
        HKI_TRY(find_state(s, i, l));
        s->outer_rate = hk_optimizer_rate(s->outer[i], 0);
    }
    return HK_OK;
}

// One optimizer for the whole vector. Its steps leave out entries that are not
// exchanged.
static hk_status make_vector_outer(hki_shard *s,
                                   const hk_optimizer_options *o) {
    const size_t n = hki_layout_entry_count(s->layout);
    HKI_FREED unsigned char *mask = NULL;
    HKI_TRY(hk_optimizer_create(o, s->layout, &s->vector_outer));
    s->outer_rate = hk_optimizer_rate(s->vector_outer, 0);
    HKI_TRY(hki_alloc_array(n, 1, &mask));
    for (size_t i = 0; i < n; i++)
        mask[i] = s->partition.share[i] == HK_SHARE_EXCHANGE;
    return hk_optimizer_select(s->vector_outer, mask);
}

static float *slot_vector(const hki_shard *s, uint32_t i, uint32_t chunk) {
    return hki_shard_at(s, 1 + hki_method_kept(s->method) + i,
                        s->chunk[chunk].begin);
}

// The optimizer's state to the file's vectors.
static void store_slots(hki_shard *s, uint32_t chunk) {
    const hki_chunk_range *const c = &s->chunk[chunk];
    for (uint32_t i = 0; i < s->n_slots; i++)
        memcpy(slot_vector(s, i, chunk), s->slot[chunk * MAX_SLOTS + i],
               (size_t)(c->end - c->begin) * sizeof(float));
    for (int i = 0; i < 2; i++)
        if (s->power[2 * chunk + (uint32_t)i] != NULL)
            s->file.chunk[chunk].power[i] = *s->power[2 * chunk + (uint32_t)i];
}

void hki_rules_load(hki_shard *s) {
    for (uint32_t chunk = 0; s->outer != NULL && chunk < s->n_chunks; chunk++) {
        const hki_chunk_range *const c = &s->chunk[chunk];
        if (s->outer[chunk] == NULL || s->file.chunk[chunk].updates == 0)
            continue; // as it was created
        for (uint32_t i = 0; i < s->n_slots; i++)
            memcpy(s->slot[chunk * MAX_SLOTS + i], slot_vector(s, i, chunk),
                   (size_t)(c->end - c->begin) * sizeof(float));
        for (uint32_t i = 0; i < 2; i++)
            if (s->power[2 * chunk + i] != NULL)
                *s->power[2 * chunk + i] = s->file.chunk[chunk].power[i];
    }
}

hk_status hki_rules_init(hki_shard *s, const hk_center_options *opt) {
    if (s->in_process)
        HKI_TRY(hki_zalloc_array(s->n_chunks, sizeof *s->updates, &s->updates));
    if (s->method->outer == HKI_OUTER_NONE)
        return HK_OK;
    hk_optimizer_options o;
    HKI_TRY(s->in_process ? hki_outer_options(opt, s->name, &o)
                          : outer_options(opt, s->name, &o));
    if (s->method->outer == HKI_OUTER_DELAYED)
        return hki_delayed_init(opt, &o, s->name, &s->delayed);
    if (s->in_process)
        return make_vector_outer(s, &o);
    HKI_TRY(hki_rules_slots(opt, s->name, &s->n_slots));
    return make_outer(s, &o);
}

void hki_rules_deinit(hki_shard *s) {
    for (uint32_t i = 0; s->outer != NULL && i < s->n_chunks; i++)
        hk_optimizer_destroy(s->outer[i]);
    hk_optimizer_destroy(s->vector_outer);
    hki_free(s->updates);
    hki_free(s->outer);
    hki_free(s->slot);
    hki_free(s->power);
    s->outer = NULL;
    s->slot = NULL;
    s->power = NULL;
}

// ---- applying ---------------------------------------------------------------

uint32_t hki_rules_touched(const hki_shard *s, uint32_t chunk) {
    const uint32_t all = (1u << s->file.head->n_vectors) - 1;
    if (s->chunk[chunk].share == HK_SHARE_COPY)
        return 1;
    return s->method->rounds ? 2 : all;
}

bool hki_rules_acceptable(const hki_shard *s, const float *up, int64_t n,
                          double squares) {
    if (squares <= s->max_norm * s->max_norm)
        return true;
    if (s->max_norm > 0)
        return false;
    for (int64_t i = 0; i < n; i++) // sums overflow before values do
        if (!isfinite(up[i]))
            return false;
    return true;
}

// What the functions of a method call back for.
typedef struct rule_call {
    hki_shard *s;
    uint32_t chunk;
    const hki_shard_run *run; // NULL: the end of a round
    uint64_t round;
} rule_call;

static void reach_half(void *user) {
    HKI_ORDER();
    hki_shard_probe(((const rule_call *)user)->s, HKI_POINT_HALF);
    HKI_ORDER();
}

static int64_t room_of(const hki_chunk_range *c) {
    return (c->end - c->begin + 15) / 16 * 16;
}

static hk_status step_of_exchange(void *user, float *gradient) {
    const rule_call *const call = user;
    hki_shard *const s = call->s;
    const hki_chunk_range *const c = &s->chunk[call->chunk];
    const int64_t n = c->end - c->begin, room = room_of(c);
    memset(gradient + n, 0, (size_t)(room - n) * sizeof *gradient);
    const double scale = s->method->gradients ? call->run->msg.grad_scale : 1;
    const hk_grad_view g = {.dense = gradient, .n_dense = room, .scale = scale};
    HKI_TRY(hk_optimizer_apply(s->outer[call->chunk],
                               hki_shard_at(s, 0, c->begin), &g,
                               (int64_t)call->run->began.version - 1, NULL));
    store_slots(s, call->chunk);
    return HK_OK;
}

static hk_status step_of_round(void *user, float *gradient) {
    const rule_call *const call = user;
    hki_shard *const s = call->s;
    const hki_chunk_range *const c = &s->chunk[call->chunk];
    const hki_outer_sum sum = {.values = hki_shard_at(s, 0, c->begin),
                               .sum = gradient,
                               .n = c->end - c->begin,
                               .room = room_of(c),
                               .count =
                                   s->file.chunk[call->chunk].contributions,
                               .fast_rate = s->file.head->fast_rate,
                               .outer_rate = s->outer_rate,
                               .round = call->round};
    HKI_TRY(hki_outer_round(s->method, s->outer[call->chunk], &sum, s->name));
    store_slots(s, call->chunk);
    return HK_OK;
}

hki_center_half hki_rules_half(hki_shard *s, uint32_t chunk, uint32_t live) {
    const hki_chunk_range *const c = &s->chunk[chunk];
    hki_center_half h = {.method = s->method,
                         .k = s->k,
                         .n = c->end - c->begin,
                         .state = c->state,
                         .live = live,
                         .c = hki_shard_at(s, 0, c->begin),
                         .updates = s->in_process
                                        ? &s->updates[chunk]
                                        : &s->file.chunk[chunk].updates,
                         .average_rate = s->opt.average_rate,
                         .delayed = &s->delayed};
    for (uint32_t i = 0; i < hki_method_kept(s->method); i++)
        h.kept[i] = hki_shard_at(s, 1 + i, c->begin);
    return h;
}

// The center's half of an exchange, or of the end of a round, for a chunk.
static hki_center_half half_of(rule_call *call) {
    hki_shard *const s = call->s;
    const hki_shard_run *const r = call->run;
    hki_center_half h = hki_rules_half(
        s, call->chunk, r != NULL ? HKI_MAX(r->began.live, 1u) : 1);
    if (r != NULL && r->scratch != NULL)
        h.scratch = r->scratch + hki_shard_room(s);
    if (s->vector_outer == NULL)
        h.outer = r != NULL ? step_of_exchange : step_of_round;
    h.halfway = s->probe != NULL ? reach_half : NULL;
    h.user = call;
    return h;
}

hk_status hki_rules_apply(hki_shard *s, const hki_shard_run *r, uint32_t chunk,
                          const float *up, double *squares) {
    const hki_method *const m = s->method;
    const hki_chunk_range *const c = &s->chunk[chunk];
    rule_call call = {.s = s, .chunk = chunk, .run = r};
    const hki_center_half h = half_of(&call);
    double sum = 0;
    HKI_ASSERT(hki_mutex_is_held(&s->chunk_lock[chunk].mutex));
    HKI_ASSERT(r->scratch != NULL || !hki_rules_scratch(m));
    // What reads d twice reads memory that nobody else has.
    if (r->scratch != NULL) {
        memcpy(r->scratch, up, (size_t)h.n * sizeof *up);
        up = r->scratch;
    }
    if (c->share == HK_SHARE_COPY) {
        memcpy(h.c, up, (size_t)h.n * sizeof *up);
        if (squares != NULL)
            *squares = s->k->squares(h.c, h.n);
        return HK_OK;
    }
    if (squares != NULL && !m->reads_once) {
        *squares = s->k->squares(up, h.n);
        if (!hki_rules_acceptable(s, up, h.n, *squares))
            return HK_OK; // the caller refuses it
    }
    HKI_TRY(m->center_half(&h, (float *)(uintptr_t)up, &sum));
    if (squares != NULL && m->reads_once)
        *squares = sum;
    if (m->rounds)
        s->file.chunk[chunk].contributions++;
    return HK_OK;
}

// ---- the end of a round -----------------------------------------------------

void hki_rules_drop(hki_shard *s, uint32_t chunk) {
    const hki_chunk_range *const c = &s->chunk[chunk];
    memset(hki_shard_at(s, 1, c->begin), 0,
           (size_t)(c->end - c->begin) * sizeof(float));
    s->file.chunk[chunk].contributions = 0;
}

hk_status hki_rules_close(hki_shard *s, uint32_t chunk, uint64_t round) {
    hki_chunk_record *const rec = &s->file.chunk[chunk];
    if (s->chunk[chunk].share == HK_SHARE_COPY || rec->contributions == 0)
        return HK_OK;
    rule_call call = {.s = s, .chunk = chunk, .round = round};
    const hki_center_half h = half_of(&call);
    HKI_TRY(s->method->close_round(&h, rec->contributions));
    rec->contributions = 0;
    hki_center_changed(&h);
    return HK_OK;
}

hk_status hki_rules_close_vector(hki_shard *s, uint64_t round) {
    const int64_t n = hki_layout_train(s->layout);
    hki_outer_sum sum = {.values = s->values,
                         .sum = s->file.vector[1],
                         .n = n,
                         .room = n,
                         .fast_rate = s->file.head->fast_rate,
                         .outer_rate = s->outer_rate,
                         .round = round};
    if (s->vector_outer == NULL)
        return HK_OK;
    // A contribution covers all chunks except those of share COPY, which are
    // not counted.
    for (uint32_t i = 0; i < s->n_chunks; i++)
        sum.count = HKI_MAX(sum.count, s->file.chunk[i].contributions);
    const hk_status status =
        hki_outer_round(s->method, s->vector_outer, &sum, s->name);
    if (status != HK_OK)
        memset(sum.sum, 0, (size_t)n * sizeof(float));
    return status;
}
