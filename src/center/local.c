// local.c - the in-process center: create, members, counters.
#include "center/local.h"

// ---- create -----------------------------------------------------------------

static void local_destroy(hk_center *base) {
    hki_local *const c = (hki_local *)base;
    hki_local_leave_device(c);
    for (size_t i = 0; c->stripe != NULL && i < c->n_stripes; i++)
        hki_mutex_deinit(&c->stripe[i].lock);
    hki_cond_deinit(&c->changed);
    hki_mutex_deinit(&c->lock);
    hki_turn_deinit(&c->turn);
    hk_optimizer_destroy(c->outer);
    hki_free(c->values);
    for (size_t i = 0; i < HKI_COUNT(c->kept); i++)
        hki_free(c->kept[i]);
    hki_free(c->gradient);
    hki_free(c->side);
    hki_free(c->updates);
    hki_free(c->stripe);
    hki_free(c->slot);
    hki_center_base_deinit(base);
    hki_free(c);
}

static hk_status create_stripes(hki_local *c) {
    // An outer optimizer steps over all values at once: one stripe.
    const bool whole = hki_local_steps(c);
    const size_t chunks = c->base.partition.count;
    c->n_stripes = whole ? 1 : HKI_MAX(chunks, (size_t)1);
    HKI_TRY(hki_zalloc_array(c->n_stripes, sizeof *c->stripe, &c->stripe));
    for (size_t i = 0; i < c->n_stripes; i++) {
        hki_stripe *const s = &c->stripe[i];
        s->first = i;
        s->last = whole ? chunks : HKI_MIN(i + 1, chunks);
        hki_mutex_init(&s->lock);
    }
    return HK_OK;
}

static hk_status create_vectors(hki_local *c) {
    const hki_method *const m = c->base.method;
    const size_t n = (size_t)hki_layout_size(c->base.layout);
    const size_t n_train = (size_t)hki_layout_train(c->base.layout);
    HKI_TRY(hki_zalloc_array(n, sizeof(float), &c->values));
    HKI_TRY(hki_zalloc_array((size_t)hki_layout_side_bytes(c->base.layout), 1,
                             &c->side));
    HKI_TRY(hki_zalloc_array(c->base.partition.count, sizeof *c->updates,
                             &c->updates));
    for (uint32_t i = 0; i < hki_method_kept(m); i++)
        HKI_TRY(hki_zalloc_array(n, sizeof(float), &c->kept[i]));
    return m->outer == HKI_OUTER_EXCHANGE && !m->gradients
               ? hki_zalloc_array(n_train, sizeof(float), &c->gradient)
               : HK_OK;
}

// Entries that are not exchanged stay out of the outer optimizer's steps.
static hk_status restrict_outer(hki_local *c) {
    const size_t n = hki_layout_entry_count(c->base.layout);
    HKI_FREED unsigned char *mask = NULL;
    HKI_TRY(hki_alloc_array(n, 1, &mask));
    for (size_t i = 0; i < n; i++)
        mask[i] = c->base.partition.share[i] == HK_SHARE_EXCHANGE;
    return hk_optimizer_select(c->outer, mask);
}

static hk_status create_outer(hki_local *c, const hk_center_options *opt) {
    const hki_method *const m = c->base.method;
    if (m->outer == HKI_OUTER_NONE)
        return HK_OK;
    hk_optimizer_options outer;
    HKI_TRY(hki_outer_options(opt, c->base.name, &outer));
    if (m->outer == HKI_OUTER_DELAYED)
        return hki_delayed_init(opt, &outer, c->base.name, &c->delayed);
    HKI_TRY(hk_optimizer_create(&outer, c->base.layout, &c->outer));
    c->outer_rate = hk_optimizer_rate(c->outer, 0);
    return restrict_outer(c);
}

static hk_status build(hki_local *c, const hk_center_options *opt) {
    HKI_TRY(hki_exchange_kernels_pick(opt->isa, c->base.name, &c->k));
    HKI_TRY(hki_turn_load(&c->turn, opt, c->base.name,
                          hki_layout_fingerprint(c->base.layout)));
    HKI_TRY(create_stripes(c));
    HKI_TRY(create_vectors(c));
    HKI_TRY(hki_zalloc_array(opt->max_workers, sizeof *c->slot, &c->slot));
    return create_outer(c, opt);
}

// ---- members ----------------------------------------------------------------

hk_status hki_local_check(hki_local *c, hki_member m, const char *what) {
    if (m.incarnation == 0 || m.id >= c->max_workers)
        return hki_fail(HK_E_STATE, "%s: %s: the worker has not joined",
                        c->base.name, what);
    const uint32_t now = atomic_load(&c->slot[m.id].incarnation);
    if (now != m.incarnation)
        return hki_fail(HK_E_STATE,
                        "%s: %s: worker %u of incarnation %u is refused, "
                        "because incarnation %u has joined with the same index",
                        c->base.name, what, m.id, m.incarnation, now);
    if (!atomic_load(&c->slot[m.id].live))
        return hki_fail(HK_E_STATE, "%s: %s: worker %u has left", c->base.name,
                        what, m.id);
    return HK_OK;
}

static hk_status choose_id(hki_local *c, int32_t task, uint32_t *out) {
    if (task >= 0 && (uint32_t)task < c->max_workers) {
        *out = (uint32_t)task;
        return HK_OK;
    }
    if (task >= 0 || task < -1)
        return hki_fail(HK_E_RANGE, "%s: join: worker %d is not in 0..%u",
                        c->base.name, task, c->max_workers - 1);
    if (c->turn.order == HK_TURN_RECORDED)
        return hki_fail(
            HK_E_INVALID_ARG,
            "%s: join: a recorded order needs a worker index; set num_worker",
            c->base.name);
    for (uint32_t id = 0; id < c->max_workers; id++)
        if (!atomic_load(&c->slot[id].live)) {
            *out = id;
            return HK_OK;
        }
    return hki_fail(
        HK_E_RANGE,
        "%s: join: all %u indices of workers are in use (max_workers)",
        c->base.name, c->max_workers);
}

// Changes the count of live workers at a place of its own in the order.
static hk_status count_member(hki_local *c, const char *what, hki_event event,
                              hki_member m, int64_t steps, int by,
                              int64_t deadline_ns) {
    const hki_local_walk_state w = {
        .what = what, .worker = m.id, .deadline_ns = deadline_ns};
    hk_status s = hki_turn_enter(&c->turn, event, m.id, deadline_ns);
    const bool in_turn = s == HK_OK;
    bool locked = false;
    if (in_turn) {
        s = hki_local_lock_stripe(c, &w, 0);
        locked = s == HK_OK;
    }
    // A leaving worker goes, whatever it waited for in vain.
    if (locked || by < 0) {
        atomic_fetch_add(&c->global_step, steps);
        if (by > 0)
            atomic_fetch_add(&c->live, 1);
        else
            atomic_fetch_sub(&c->live, 1);
    }
    if (in_turn || event == HKI_EVENT_LEAVE)
        hki_turn_leave(&c->turn, event, m.id, locked);
    if (locked)
        hki_mutex_unlock(&c->stripe[0].lock);
    return s;
}

static hk_status local_join(hk_center *base, int32_t task, int64_t deadline_ns,
                            hki_member *out) {
    hki_local *const c = (hki_local *)base;
    hki_member m = {0};
    hki_mutex_lock(&c->lock);
    hk_status s = choose_id(c, task, &m.id);
    bool fresh = false;
    if (s == HK_OK) {
        hki_slot *const slot = &c->slot[m.id];
        m.incarnation = atomic_fetch_add(&slot->incarnation, 1) + 1;
        fresh = !atomic_exchange(&slot->live, true);
        slot->round = 0;
        atomic_store(&slot->rests, false);
        atomic_store(&slot->seen, atomic_load(&c->version));
    }
    hki_mutex_unlock(&c->lock);
    if (s == HK_OK && fresh)
        s = count_member(c, "join", HKI_EVENT_JOIN, m, 0, 1, deadline_ns);
    if (s != HK_OK) {
        if (fresh)
            atomic_store(&c->slot[m.id].live, false);
        return s;
    }
    atomic_fetch_add(&c->joins, 1);
    hki_log(c->context, HK_LOG_DEBUG,
            "%s: worker %u joined (incarnation %u), %u live", base->name, m.id,
            m.incarnation, atomic_load(&c->live));
    *out = m;
    return HK_OK;
}

static hk_status local_leave(hk_center *base, hki_member m, int64_t steps_done,
                             int64_t deadline_ns) {
    hki_local *const c = (hki_local *)base;
    HKI_TRY(hki_local_check(c, m, "leave"));
    const hk_status s = count_member(c, "leave", HKI_EVENT_LEAVE, m, steps_done,
                                     -1, deadline_ns);
    hki_mutex_lock(&c->lock);
    atomic_store(&c->slot[m.id].live, false);
    hki_cond_broadcast(&c->changed); // a round may be complete now
    hki_mutex_unlock(&c->lock);
    hki_log(c->context, HK_LOG_DEBUG, "%s: worker %u left, %u live", base->name,
            m.id, atomic_load(&c->live));
    return s;
}

static hk_status local_init_if_empty(hk_center *base, hki_member m,
                                     const float *x, const void *side,
                                     int64_t deadline_ns) {
    hki_local *const c = (hki_local *)base;
    HKI_TRY(hki_local_check(c, m, "init"));
    hki_mutex_lock(&c->lock);
    const bool mine = hki_turn_initialises(&c->turn, m.id);
    hk_status s = HK_OK;
    while (!atomic_load(&c->initialised) && (c->initialising || !mine))
        if (!hki_cond_wait(&c->changed, &c->lock, deadline_ns) &&
            !atomic_load(&c->initialised)) {
            s = hki_fail(HK_E_TIMEOUT,
                         "%s: init of worker %u: another worker did not send "
                         "the first values in time",
                         base->name, m.id);
            break;
        }
    if (s == HK_OK && !atomic_load(&c->initialised)) {
        c->initialising = true;
        hki_mutex_unlock(&c->lock);
        s = hki_local_fill(c, "init", m.id, x, side, deadline_ns);
        hki_mutex_lock(&c->lock);
        c->initialising = false;
        if (s == HK_OK) {
            hki_turn_initialised(&c->turn, m.id);
            atomic_store(&c->initialised, true);
        }
        hki_cond_broadcast(&c->changed);
    }
    hki_mutex_unlock(&c->lock);
    return s;
}

static hk_status local_barrier(hk_center *base, hki_member m, uint32_t parties,
                               int64_t deadline_ns) {
    hki_local *const c = (hki_local *)base;
    HKI_TRY(hki_local_check(c, m, "start barrier"));
    HKI_LOCKED(&c->lock);
    if (!c->barrier_passed && ++c->barrier_arrived >= parties) {
        c->barrier_passed = true;
        hki_cond_broadcast(&c->changed);
    }
    while (!c->barrier_passed)
        if (!hki_cond_wait(&c->changed, &c->lock, deadline_ns) &&
            !c->barrier_passed) {
            // A worker that tries again is not counted twice.
            const uint32_t arrived = c->barrier_arrived--;
            return hki_fail(HK_E_TIMEOUT,
                            "%s: start barrier: worker %u: only %u of %u "
                            "workers joined in time",
                            base->name, m.id, arrived, parties);
        }
    return HK_OK;
}

// ---- counters, names --------------------------------------------------------

void hki_local_info(hk_center *base, hk_center_info *out) {
    hki_local *const c = (hki_local *)base;
    *out = (hk_center_info){
        .version = atomic_load(&c->version),
        .exchanges = atomic_load(&c->exchanges),
        .global_step = atomic_load(&c->global_step),
        .skipped_chunks = atomic_load(&c->skipped),
        .stale = atomic_load(&c->stale),
        .joins = atomic_load(&c->joins),
        .live = atomic_load(&c->live),
        .initialised = atomic_load(&c->initialised),
        .method = base->method->id,
        .turn = c->turn.order,
    };
}

hk_status hki_local_assign(hk_center *base, const float *values,
                           const void *side, int64_t global_step,
                           int64_t deadline_ns) {
    hki_local *const c = (hki_local *)base;
    HKI_TRY(hki_local_fill(c, "assign", UINT32_MAX, values, side, deadline_ns));
    atomic_store(&c->global_step, global_step);
    HKI_LOCKED(&c->lock);
    atomic_store(&c->initialised, true);
    hki_cond_broadcast(&c->changed);
    return HK_OK;
}

static hk_status add_vector(const hki_local *c, const char *prefix,
                            float *vector, hk_name_map *map) {
    const hk_layout *const l = c->base.layout;
    for (size_t i = 0; vector != NULL && i < hki_layout_entry_count(l); i++) {
        const hk_entry *const e = hk_layout_entry(l, i);
        if (e->dtype == HK_F32 &&
            c->base.partition.share[i] == HK_SHARE_EXCHANGE)
            HKI_TRY(hki_names_add(map, HK_F32, e->shape, vector + e->offset,
                                  "center/%s/%s", e->name, prefix));
    }
    return HK_OK;
}

// The outer optimizer's variables, with "center/" in front.
static hk_status add_outer(hki_local *c, hk_name_map *map) {
    if (c->outer == NULL)
        return HK_OK;
    HKI_SCOPED(hk_name_map_destroy_at) hk_name_map *own = NULL;
    HKI_TRY(hk_name_map_create(&own));
    HKI_TRY(hk_optimizer_variables(c->outer, own));
    return hki_names_add_map(map, "center/", own);
}

static hk_status local_variables(hk_center *base, hk_name_map *map) {
    hki_local *const c = (hki_local *)base;
    const hki_method *const m = base->method;
    bool saved = false;
    for (uint32_t i = 0; i < hki_method_kept(m); i++) {
        if (m->kept[i][0] == '\0')
            continue;
        HKI_TRY(add_vector(c, m->kept[i], c->kept[i], map));
        saved = true;
    }
    // The mean of all centers and the delayed momentum count their updates.
    if (saved)
        HKI_TRY(hki_names_add(
            map, HK_I64,
            hk_shape_make(1, (int64_t[]){(int64_t)c->base.partition.count}),
            c->updates, "center/updates"));
    return add_outer(c, map);
}

static hk_status local_order_save(hk_center *base, void *buf, size_t capacity,
                                  size_t *size) {
    return hki_turn_save(&((hki_local *)base)->turn, buf, capacity, size);
}

static void local_rest(hk_center *base, hki_member m, bool rests) {
    hki_local *const c = (hki_local *)base;
    hki_turn_rest(&c->turn, m.id, rests);
    HKI_LOCKED(&c->lock);
    atomic_store(&c->slot[m.id].rests, rests);
    hki_cond_broadcast(&c->changed); // a round may be complete now
}

static const hki_center_ops local_ops = {
    .destroy = local_destroy,
    .join = local_join,
    .init_if_empty = local_init_if_empty,
    .exchange = hki_local_exchange,
    .exchange_at = hki_local_exchange_at,
    .push_round = hki_local_push_round,
    .pull = hki_local_pull,
    .barrier = local_barrier,
    .leave = local_leave,
    .snapshot = hki_local_snapshot,
    .assign = hki_local_assign,
    .info = hki_local_info,
    .variables = local_variables,
    .order_save = local_order_save,
    .rest = local_rest,
};

hk_status hk_center_create_local(const hk_center_options *opt,
                                 hk_layout *layout, hk_center **out) {
    hk_center_options o;
    HKI_TRY(hki_center_options_check(opt, &o));
    if (layout == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "center: layout or out is NULL");
    hki_local *c;
    HKI_TRY(hki_zalloc_array(1, sizeof *c, &c));
    hki_mutex_init(&c->lock);
    hki_cond_init(&c->changed);
    hki_turn_init(&c->turn);
    c->context = o.context;
    c->check = o.check != 0;
    c->max_workers = o.max_workers;
    c->quorum = o.quorum;
    c->staleness = o.staleness;
    c->average_rate = o.average_rate;
    hk_status s = hki_center_base_init(&c->base, &local_ops, &o, layout,
                                       HKI_TABLES_WITH_OTHERS, 1);
    if (s == HK_OK)
        s = build(c, &o);
    if (s != HK_OK) {
        local_destroy(&c->base);
        return s;
    }
    *out = &c->base;
    return HK_OK;
}
