// shard_rules.c - what a method's center does with one chunk.
//
// Vector 0 holds the values. Others, by method: the average; momentum and its
// buffer; the sum of the open round; then the slots of an outer optimizer,
// which steps on each chunk by itself: rules that look at whole tensors (LARS,
// LAMB) are not for servers.
#include <math.h>
#include "cluster/shard/shard.h"

#define MAX_SLOTS 3

static bool has_outer(const hki_method *m) {
    return m->center == HKI_CENTER_OUTER || m->center == HKI_CENTER_ROUND_OUTER;
}

static uint32_t n_plain(const hki_method *m) {
    if (m->center == HKI_CENTER_DELAYED)
        return 2;
    if (m->flags & (HKI_METHOD_MEAN | HKI_METHOD_MOVING_MEAN))
        return 1;
    return (m->flags & HKI_METHOD_ROUND) != 0;
}

uint32_t hki_rules_vectors(const hki_method *m, uint32_t n_slots) {
    return n_plain(m) + (has_outer(m) ? n_slots : 0);
}

bool hki_rules_scratch(const hki_method *m) {
    return m->center == HKI_CENTER_OUTER || m->center == HKI_CENTER_DELAYED;
}

size_t hki_shard_room(const hki_shard *s) {
    return (size_t)s->plan.max_floats + 16;
}

// ---- outer optimizers -------------------------------------------------------

// A shard steps one chunk at a time.
static hk_status outer_options(const hk_center_options *opt, const char *name,
                               hk_optimizer_options *out) {
    const hki_method *const m = hki_method_get(opt->method);
    HKI_TRY(hki_outer_options(opt, name, out));
    out->threads = 1;
    if (has_outer(m) && (out->kind == HK_OPT_LARS || out->kind == HK_OPT_LAMB))
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
    if (!has_outer(hki_method_get(opt->method)))
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

static float *slot_vector(const hki_shard *s, uint32_t i, uint32_t chunk) {
    return hki_shard_at(s, 1 + n_plain(s->method) + i, s->chunk[chunk].begin);
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
    const bool delayed = s->method->center == HKI_CENTER_DELAYED;
    if (!delayed && !has_outer(s->method))
        return HK_OK;
    hk_optimizer_options o;
    HKI_TRY(outer_options(opt, s->name, &o));
    if (delayed)
        return hki_delayed_init(opt, &o, s->name, &s->delayed);
    HKI_TRY(hki_rules_slots(opt, s->name, &s->n_slots));
    return make_outer(s, &o);
}

void hki_rules_deinit(hki_shard *s) {
    for (uint32_t i = 0; s->outer != NULL && i < s->n_chunks; i++)
        hk_optimizer_destroy(s->outer[i]);
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
    return s->method->flags & HKI_METHOD_ROUND ? 2 : all;
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

static void follow_average(hki_shard *s, uint32_t chunk) {
    hki_chunk_record *const rec = &s->file.chunk[chunk];
    const hki_chunk_range *const c = &s->chunk[chunk];
    rec->updates++;
    const uint32_t flags = s->method->flags;
    if (!(flags & (HKI_METHOD_MEAN | HKI_METHOD_MOVING_MEAN)))
        return;
    const double a = flags & HKI_METHOD_MEAN ? 1.0 / (double)rec->updates
                                             : s->opt.average_rate;
    s->k->follow(hki_shard_at(s, 1, c->begin), hki_shard_at(s, 0, c->begin),
                 (float)a, c->end - c->begin);
}

// c += up, in two halves when somebody watches. Returns the squares of up.
static double add_up(hki_shard *s, float *c, const float *up, int64_t n) {
    if (s->probe == NULL)
        return s->ck->add(c, up, n);
    const int64_t half = n / 2;
    const double first = s->ck->add(c, up, half);
    HKI_ORDER();
    hki_shard_probe(s, HKI_POINT_HALF);
    HKI_ORDER();
    return first + s->ck->add(c + half, up + half, n - half);
}

static hk_status apply_outer(hki_shard *s, const hki_shard_run *r,
                             uint32_t chunk, float *up) {
    hk_optimizer *const o = s->outer[chunk];
    const hki_chunk_range *const c = &s->chunk[chunk];
    const int64_t n = c->end - c->begin, room = (n + 15) / 16 * 16;
    memset(up + n, 0, (size_t)(room - n) * sizeof *up);
    const double scale =
        s->method->worker == HKI_WORKER_GRADIENT ? r->msg.grad_scale : 1;
    const hk_grad_view g = {.dense = up, .n_dense = room, .scale = scale};
    HKI_TRY(hk_optimizer_apply(o, hki_shard_at(s, 0, c->begin), &g,
                               (int64_t)r->began.version - 1, NULL));
    store_slots(s, chunk);
    return HK_OK;
}

// Liu et al. 2024, arXiv 2401.09135, algorithm 3: see elastic/methods.c. What
// came is view - x, so view takes its place and x is zero.
static void apply_delayed(hki_shard *s, uint32_t chunk, float *view,
                          float *zero) {
    const hki_chunk_range *const c = &s->chunk[chunk];
    const int64_t n = c->end - c->begin;
    const hki_delayed k =
        hki_delayed_after(&s->delayed, s->file.chunk[chunk].updates);
    memset(zero, 0, (size_t)n * sizeof *zero);
    s->k->delayed(zero, view, hki_shard_at(s, 0, c->begin),
                  hki_shard_at(s, 1, c->begin), hki_shard_at(s, 2, c->begin),
                  &k, n);
}

static void apply_round(hki_shard *s, uint32_t chunk, const float *up) {
    const hki_chunk_range *const c = &s->chunk[chunk];
    const int64_t n = c->end - c->begin;
    float *const sum = hki_shard_at(s, 1, c->begin);
    if (s->method->center == HKI_CENTER_ROUND_OUTER && !c->state)
        s->k->add_difference(sum, hki_shard_at(s, 0, c->begin), up, n);
    else
        s->k->add(sum, up, n);
    s->file.chunk[chunk].contributions++;
}

hk_status hki_rules_apply(hki_shard *s, const hki_shard_run *r, uint32_t chunk,
                          const float *up, double *squares) {
    const hki_chunk_range *const c = &s->chunk[chunk];
    const int64_t n = c->end - c->begin;
    float *const values = hki_shard_at(s, 0, c->begin);
    HKI_ASSERT(hki_mutex_is_held(&s->chunk_lock[chunk]));
    if (c->share == HK_SHARE_EXCHANGE && s->method->center == HKI_CENTER_ADD) {
        const double sum = add_up(s, values, up, n);
        if (squares != NULL)
            *squares = sum;
        follow_average(s, chunk);
        return HK_OK;
    }
    // What follows reads its input twice: from memory that nobody else has.
    float *own = NULL;
    if (r->scratch != NULL) {
        own = r->scratch;
        memcpy(own, up, (size_t)n * sizeof *own);
        up = own;
    }
    if (c->share == HK_SHARE_COPY) {
        memcpy(values, up, (size_t)n * sizeof *values);
        if (squares != NULL)
            *squares = s->ck->squares(values, n);
        return HK_OK;
    }
    if (squares != NULL)
        *squares = s->ck->squares(up, n);
    if (squares != NULL && !hki_rules_acceptable(s, up, n, *squares))
        return HK_OK; // the caller refuses it
    if (s->method->flags & HKI_METHOD_ROUND) {
        apply_round(s, chunk, up);
        return HK_OK;
    }
    if (own == NULL)
        return hki_fail(HK_E_INTERNAL, "%s: chunk %u has no scratch memory",
                        s->name, chunk);
    if (c->state) // statistics are averaged over the workers, never summed
        s->k->meet(own, values, 1.0f / (float)HKI_MAX(r->began.live, 1u), n);
    else if (s->method->center == HKI_CENTER_DELAYED)
        apply_delayed(s, chunk, own, own + hki_shard_room(s));
    else
        HKI_TRY(apply_outer(s, r, chunk, own));
    s->file.chunk[chunk].updates++;
    return HK_OK;
}

// ---- the end of a round -----------------------------------------------------

static hk_status close_outer(hki_shard *s, uint32_t chunk, uint64_t round) {
    const hki_chunk_range *const c = &s->chunk[chunk];
    const int64_t n = c->end - c->begin, room = (n + 15) / 16 * 16;
    float *const sum = hki_shard_at(s, 1, c->begin);
    double scale = 1.0 / s->file.chunk[chunk].contributions;
    if (s->method->flags & HKI_METHOD_FAST_RATE) {
        // SlowMo: u = beta u + (c - mean) / gamma; c -= alpha gamma u
        const double gamma = s->file.head->fast_rate;
        HKI_TRY(hki_fast_rate_check(s->method, gamma, s->name, round));
        scale /= gamma;
        HKI_TRY(hk_optimizer_set(s->outer[chunk], "learning_rate",
                                 s->outer_rate * gamma));
    }
    const hk_grad_view g = {.dense = sum, .n_dense = room, .scale = scale};
    HKI_TRY(hk_optimizer_apply(s->outer[chunk], hki_shard_at(s, 0, c->begin),
                               &g, (int64_t)round, NULL));
    memset(sum, 0, (size_t)n * sizeof *sum);
    store_slots(s, chunk);
    return HK_OK;
}

void hki_rules_drop(hki_shard *s, uint32_t chunk) {
    const hki_chunk_range *const c = &s->chunk[chunk];
    memset(hki_shard_at(s, 1, c->begin), 0,
           (size_t)(c->end - c->begin) * sizeof(float));
    s->file.chunk[chunk].contributions = 0;
}

hk_status hki_rules_close(hki_shard *s, uint32_t chunk, uint64_t round) {
    const hki_chunk_range *const c = &s->chunk[chunk];
    hki_chunk_record *const rec = &s->file.chunk[chunk];
    if (c->share == HK_SHARE_COPY || rec->contributions == 0)
        return HK_OK;
    const int64_t n = c->end - c->begin;
    float *const values = hki_shard_at(s, 0, c->begin);
    float *const sum = hki_shard_at(s, 1, c->begin);
    if (s->method->center == HKI_CENTER_ROUND_SUM)
        s->k->take_sum(values, sum, n);
    else if (s->method->center == HKI_CENTER_ROUND_MEAN || c->state)
        s->k->take_mean(values, sum, (float)rec->contributions, n);
    else
        HKI_TRY(close_outer(s, chunk, round));
    rec->contributions = 0;
    rec->updates++;
    return HK_OK;
}
