// remote_member.c - workers that joined: the list of them, who uses which, and
// the thread that sends their heartbeats.
#include "cluster/remote/remote.h"

HKI_SCOPED_HANDLE(hki_member_link, hki_member_free)

hk_status hki_member_create(hki_remote *r, hki_member_link **out) {
    HKI_SCOPED(hki_member_free_at) hki_member_link *w = NULL;
    HKI_TRY(hki_zalloc_array(1, sizeof *w, &w));
    hki_mutex_init(&w->lock);
    w->remote = r;
    HKI_TRY(hki_zalloc_array(r->n_shards, sizeof *w->link, &w->link));
    for (uint32_t i = 0; i < r->n_shards; i++)
        w->link[i].shard = i;
    HKI_TRY(hki_zalloc_array(r->n_shards, sizeof *w->batch, &w->batch));
    HKI_TRY(hki_zalloc_array(r->n_shards, sizeof *w->ids, &w->ids));
    HKI_TRY(hki_zalloc_array(r->n_shards, sizeof *w->n_batches, &w->n_batches));
    HKI_TRY(hki_wait_set_create(r->n_shards + 1, &w->waits));
    if (r->encoding != HKI_ENC_PLAIN)
        HKI_TRY(hki_zalloc_array((size_t)hki_layout_size(r->base.layout),
                                 sizeof(float), &w->residual));
    return HKI_HAND_ON(out, w);
}

void hki_member_free(hki_member_link *w) {
    if (w == NULL)
        return;
    for (uint32_t i = 0; w->link != NULL && i < w->remote->n_shards; i++) {
        hki_link_drop(w->remote, &w->link[i]);
        hki_link_free_slots(&w->link[i]);
    }
    if (w->batch != NULL && w->ids != NULL && w->n_batches != NULL)
        hki_rows_clear(w);
    hki_wait_set_destroy(w->waits);
    hki_free(w->batch);
    hki_free(w->ids);
    hki_free(w->n_batches);
    hki_free(w->link);
    hki_free(w->residual);
    hki_free(w->gathered);
    hki_free(w->used);
    hki_mutex_deinit(&w->lock);
    hki_free(w);
}

void hki_member_add(hki_member_link *w) {
    hki_remote *const r = w->remote;
    HKI_LOCKED(&r->lock);
    w->next = r->members;
    r->members = w;
}

// Is the member free to go? The remote's lock is held.
static bool is_unused(const hki_member_link *w) {
    return w->removed && w->refs == 0;
}

void hki_member_remove(hki_member_link *w) {
    hki_remote *const r = w->remote;
    hki_mutex_lock(&r->lock);
    for (hki_member_link **at = &r->members; *at != NULL; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            break;
        }
    w->removed = true;
    const bool unused = is_unused(w);
    hki_mutex_unlock(&r->lock);
    if (unused)
        hki_member_free(w);
}

// One use less; true: of a removed member, the last one. The remote's lock is
// held.
static bool end_use(hki_member_link *w) {
    HKI_ASSERT(w->refs > 0);
    w->refs--;
    return is_unused(w);
}

void hki_member_unref(hki_member_link *w) {
    hki_remote *const r = w->remote;
    hki_mutex_lock(&r->lock);
    const bool last = end_use(w);
    // The heartbeat thread sleeps on unless there is something for it to do:
    // waking it after every exchange costs as much as a small exchange does.
    if (atomic_load(&w->away))
        hki_cond_broadcast(&r->changed);
    hki_mutex_unlock(&r->lock);
    if (last)
        hki_member_free(w);
}

hk_status hki_member_ref(hki_remote *r, hki_member m, const char *what,
                         hki_member_link **out) {
    hki_member_link *w = NULL;
    hki_mutex_lock(&r->lock);
    for (hki_member_link *i = r->members; i != NULL && w == NULL; i = i->next)
        if (i->m.id == m.id && i->m.incarnation == m.incarnation)
            w = i;
    if (w != NULL)
        w->refs++;
    hki_mutex_unlock(&r->lock);
    if (w == NULL)
        return hki_fail(HK_E_STATE, "%s: %s: the worker has not joined",
                        r->base.name, what);
    *out = w;
    return HK_OK;
}

hk_status hki_member_find(hki_remote *r, hki_member m, const char *what,
                          hki_member_link **out) {
    HKI_TRY(hki_member_ref(r, m, what, out));
    hki_mutex_lock(&(*out)->lock);
    return HK_OK;
}

void hki_member_done(hki_member_link *w) {
    for (uint32_t i = 0; i < w->remote->n_shards; i++)
        hki_link_count(w->remote, &w->link[i]);
    hki_mutex_unlock(&w->lock);
    hki_member_unref(w);
}

// ---- heartbeats -------------------------------------------------------------

// A heartbeat over every link of a member that nobody uses just now.
static hk_status ping(hki_member_link *w, hki_link *l, int64_t deadline_ns) {
    const int64_t step = atomic_load(&w->local_step);
    const bool has_news = w->has_news || step > 0;
    const hki_msg_ping m = {.local_step = HKI_MAX(w->news.local_step, step),
                            .examples = w->news.examples,
                            .per_second = w->news.per_second,
                            .loss = w->news.loss,
                            .distance = w->news.distance};
    HKI_TRY(hki_msg_send(&l->f, HKI_PING, has_news ? &hki_body_ping : NULL, &m,
                         deadline_ns, "heartbeat"));
    hki_msg_state state;
    HKI_TRY(hki_msg_recv(&l->f, HKI_STATE, &hki_body_state, &state, deadline_ns,
                         "heartbeat"));
    hki_remote_saw(w->remote, l, &state);
    return HK_OK;
}

// Heartbeats, or an attempt to come back. *again: when to look next.
static void keep(hki_member_link *w, int64_t *again) {
    hki_remote *const r = w->remote;
    if (w->fenced || w->left)
        return;
    const int64_t deadline = hki_deadline(HKI_ATTEMPT_MS);
    bool away = atomic_load(&w->away);
    for (uint32_t i = 0; !away && i < r->n_shards; i++) {
        const hk_status s = ping(w, &w->link[i], deadline);
        if (s != HK_OK)
            away = hki_link_broke(w, &w->link[i], s);
    }
    if (!away)
        return;
    int64_t next;
    hk_status s = hki_member_mend_once(w, deadline, &next);
    if (s == HK_OK && !w->rejoin && !r->base.method->rounds)
        s = hki_member_settle(w, deadline);
    if (s == HK_OK) {
        atomic_store(&w->away, false);
        hki_log(r->context, HK_LOG_INFO,
                "%s: worker %u: connected again after %.1f s", r->base.name,
                w->m.id,
                (double)(hki_now_ns() - atomic_load(&w->away_since)) * 1e-9);
    } else if (w->fenced) {
        atomic_store(&w->away, false); // the worker's next call fails with the
                                       // reason
    } else {
        *again = HKI_MIN(*again, HKI_MIN(next, hki_deadline(200)));
    }
}

void hki_heartbeat_wake(hki_remote *r) {
    HKI_LOCKED(&r->lock);
    hki_cond_broadcast(&r->changed);
}

// Every member once; the list may change meanwhile. The remote's lock is held
// and given up for each of them.
static void keep_all(hki_remote *r, bool all, uint64_t turn, int64_t *again) {
    while (!r->stopping) {
        hki_member_link *w = r->members;
        while (w != NULL && w->turn == turn)
            w = w->next;
        if (w == NULL)
            return;
        w->turn = turn;
        w->refs++;
        hki_mutex_unlock(&r->lock);
        const bool away = atomic_load(&w->away);
        if ((all || away) && hki_mutex_trylock(&w->lock)) {
            keep(w, again);
            hki_mutex_unlock(&w->lock);
        }
        hki_mutex_lock(&r->lock);
        if (end_use(w)) {
            hki_mutex_unlock(&r->lock);
            hki_member_free(w);
            hki_mutex_lock(&r->lock);
        }
    }
}

void hki_heartbeat_main(void *user) {
    hki_remote *const r = user;
    int64_t beat = hki_deadline(r->lease_ms / 3), again = INT64_MAX;
    uint64_t turn = 0;
    HKI_LOCKED(&r->lock);
    while (!r->stopping) {
        // Members are added while the thread sleeps. A member that is away is
        // due as soon as no call uses it.
        const int64_t now = hki_now_ns();
        bool due = now >= beat || now >= again;
        for (hki_member_link *w = r->members; w != NULL && !due; w = w->next)
            due = atomic_load(&w->away) && again == INT64_MAX && w->refs == 0;
        if (!due) {
            (void)hki_cond_wait(&r->changed, &r->lock, HKI_MIN(beat, again));
            continue;
        }
        const bool all = now >= beat;
        if (all)
            beat = hki_deadline(r->lease_ms / 3);
        again = INT64_MAX;
        keep_all(r, all, ++turn, &again);
    }
}
