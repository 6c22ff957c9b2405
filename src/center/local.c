// local.c - the in-process center: create, members, names of its variables.
#include "center/local.h"

// ---- create -----------------------------------------------------------------

static void local_destroy(hk_center *base) {
    hki_local *const c = (hki_local *)base;
    hki_local_leave_device(c);
    hki_free(c->gradient);
    hki_shard_close(c->shard);
    hki_center_base_deinit(base);
    hki_free(c);
}

static hk_status build(hki_local *c, const hk_center_options *opt) {
    const hki_method *const m = c->base.method;
    const hki_shard_options of_shard = {.context = opt->context,
                                        .name = c->base.name,
                                        .center = *opt,
                                        .n_shards = 1,
                                        .in_process = true};
    HKI_TRY(hki_shard_create(&of_shard, c->base.layout, c->base.partition.share,
                             &c->shard));
    const size_t n_train = (size_t)hki_layout_train(c->base.layout);
    return m->outer == HKI_OUTER_EXCHANGE && !m->gradients
               ? hki_zalloc_array(n_train, sizeof(float), &c->gradient)
               : HK_OK;
}

// ---- members ----------------------------------------------------------------

hki_claim hki_local_claim(hki_local *c, hki_member m) {
    hki_shard *const s = c->shard;
    hki_claim claim = {.id = m.id, .incarnation = m.incarnation};
    HKI_LOCKED(&s->lock);
    if (m.id < s->opt.max_workers)
        claim.session = s->seat[m.id].speaker;
    return claim;
}

hk_status hki_local_check(hki_local *c, hki_member m, const char *what) {
    hki_claim claim = {.id = m.id, .incarnation = m.incarnation};
    return hki_shard_check(c->shard, &claim, what);
}

// A worker that joins once more without having left takes no turn.
static bool takes_turn(hki_local *c, int32_t task) {
    hki_shard *const s = c->shard;
    HKI_LOCKED(&s->lock);
    return task == -1 || (task >= 0 && (uint32_t)task < s->opt.max_workers &&
                          !s->file.worker[task].live);
}

// Joining and leaving change the number of live workers: at a place of their
// own in the order.
typedef struct membership {
    hki_event event;
    hki_member m;
    int32_t task;
    int64_t steps;
    hki_joined joined;
} membership;

static hk_status change_membership(hki_local *c, membership *a) {
    hki_shard *const s = c->shard;
    hki_claim claim = {0};
    if (a->event == HKI_EVENT_JOIN) {
        const hki_join join = {.task = a->task};
        return hki_shard_join(s, &join, "this process", &claim, &a->joined);
    }
    claim = hki_local_claim(c, a->m);
    return hki_shard_leave(s, &claim, s->file.worker[a->m.id].steps + a->steps,
                           "");
}

static hk_status change_in_turn(hki_local *c, membership *a,
                                int64_t deadline_ns) {
    const bool leaves = a->event == HKI_EVENT_LEAVE;
    const hki_local_walk_state w = {.what = leaves ? "leave" : "join",
                                    .worker = leaves        ? a->m.id
                                              : a->task < 0 ? UINT32_MAX
                                                            : (uint32_t)a->task,
                                    .deadline_ns = deadline_ns};
    hki_turn *const turn = &c->shard->turn;
    hk_status s = hki_turn_enter(turn, a->event, w.worker, deadline_ns);
    const bool in_turn = s == HK_OK;
    bool locked = false;
    if (in_turn) {
        s = hki_local_lock(c, &w, 0);
        locked = s == HK_OK;
    }
    // A leaving worker goes, whatever it waited for in vain.
    const hk_status changed =
        locked || leaves ? change_membership(c, a) : HK_OK;
    if (s == HK_OK)
        s = changed;
    if (in_turn || leaves)
        hki_turn_leave(turn, a->event, leaves ? a->m.id : a->joined.id,
                       s == HK_OK);
    if (locked)
        hki_local_unlock(c, 0);
    return s;
}

static hk_status local_join(hk_center *base, int32_t task, int64_t deadline_ns,
                            hki_member *out) {
    hki_local *const c = (hki_local *)base;
    membership a = {.event = HKI_EVENT_JOIN, .task = task};
    if (task == -1 && c->shard->turn.order == HK_TURN_RECORDED)
        return hki_fail(
            HK_E_INVALID_ARG,
            "%s: join: a recorded order needs a worker index; set num_worker",
            base->name);
    HKI_TRY(takes_turn(c, task) ? change_in_turn(c, &a, deadline_ns)
                                : change_membership(c, &a));
    *out = (hki_member){.id = a.joined.id,
                        .incarnation = a.joined.incarnation,
                        .first_loss = a.joined.first_loss};
    return HK_OK;
}

static hk_status local_leave(hk_center *base, hki_member m, int64_t steps_done,
                             int64_t deadline_ns) {
    hki_local *const c = (hki_local *)base;
    membership a = {.event = HKI_EVENT_LEAVE, .m = m, .steps = steps_done};
    HKI_TRY(hki_local_check(c, m, "leave"));
    return change_in_turn(c, &a, deadline_ns);
}

static hk_status local_init_if_empty(hk_center *base, hki_member m,
                                     const float *x, const void *side,
                                     int64_t deadline_ns) {
    hki_local *const c = (hki_local *)base;
    const hki_patience p = {.deadline_ns = deadline_ns};
    hki_claim claim = hki_local_claim(c, m);
    bool granted;
    HKI_TRY(hki_shard_init(c->shard, &claim, &p, &granted));
    if (!granted)
        return HK_OK;
    HKI_TRY_OR(hki_local_fill(c, "init", m.id, x, side, deadline_ns),
               hki_shard_refuse(c->shard, &claim));
    return hki_shard_commit(c->shard, &claim, 0);
}

static hk_status local_barrier(hk_center *base, hki_member m, uint32_t parties,
                               int64_t deadline_ns) {
    hki_local *const c = (hki_local *)base;
    const hki_patience p = {.deadline_ns = deadline_ns};
    hki_claim claim = hki_local_claim(c, m);
    return hki_shard_barrier(c->shard, &claim, parties, &p);
}

// ---- counters, names --------------------------------------------------------

void hki_local_info(hk_center *base, hk_center_info *out) {
    hki_local *const c = (hki_local *)base;
    hki_shard_info(c->shard, out);
    out->skipped_chunks = atomic_load(&c->skipped);
}

hk_status hki_local_assign(hk_center *base, const float *values,
                           const void *side, int64_t global_step,
                           int64_t deadline_ns) {
    hki_local *const c = (hki_local *)base;
    HKI_TRY(hki_local_fill(c, "assign", UINT32_MAX, values, side, deadline_ns));
    hki_shard_assigned(c->shard, global_step, 0);
    return HK_OK;
}

static hk_status add_vector(const hki_local *c, const char *prefix,
                            float *vector, hk_name_map *map) {
    const hk_layout *const l = c->base.layout;
    for (size_t i = 0; i < hki_layout_entry_count(l); i++) {
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
    if (c->shard->vector_outer == NULL)
        return HK_OK;
    HKI_SCOPED(hk_name_map_destroy_at) hk_name_map *own = NULL;
    HKI_TRY(hk_name_map_create(&own));
    HKI_TRY(hk_optimizer_variables(c->shard->vector_outer, own));
    return hki_names_add_map(map, "center/", own);
}

static hk_status local_variables(hk_center *base, hk_name_map *map) {
    hki_local *const c = (hki_local *)base;
    const hki_method *const m = base->method;
    bool saved = false;
    for (uint32_t i = 0; i < hki_method_kept(m); i++) {
        if (m->kept[i][0] == '\0')
            continue;
        HKI_TRY(
            add_vector(c, m->kept[i], hki_shard_at(c->shard, 1 + i, 0), map));
        saved = true;
    }
    // The mean of all centers and the delayed momentum count their updates.
    if (saved)
        HKI_TRY(hki_names_add(
            map, HK_I64,
            hk_shape_make(1, (int64_t[]){(int64_t)c->base.partition.count}),
            c->shard->updates, "center/updates"));
    return add_outer(c, map);
}

static hk_status local_order_save(hk_center *base, void *buf, size_t capacity,
                                  size_t *size) {
    return hki_turn_save(&((hki_local *)base)->shard->turn, buf, capacity,
                         size);
}

static void local_rest(hk_center *base, hki_member m, bool rests) {
    hki_shard *const s = ((hki_local *)base)->shard;
    hki_turn_rest(&s->turn, m.id, rests);
    HKI_LOCKED(&s->lock);
    s->seat[m.id].rests = rests;
    hki_cond_broadcast(&s->changed); // a round may be complete now
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
    c->check = o.check != 0;
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
