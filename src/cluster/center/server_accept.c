// server_accept.c - connections of a center server: accepted, a thread for
// each, joined when they are over. Whoever does not say who it is makes room
// first.
#include "cluster/center/server.h"

#define MAX_GREETING 64 // connections that have not said who they are
#define ROOM_MS 500     // for those who were hung up on to be gone

void hki_server_reap(hk_center_server *s, bool all) {
    hki_session **at = &s->sessions;
    while (*at != NULL) {
        hki_session *const one = *at;
        if (!all && !atomic_load(&one->over)) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        HKI_ASSERT(s->n_sessions > 0);
        s->n_sessions--;
        hki_mutex_unlock(&s->lock);
        hki_thread_stop(one->thread);
        hki_session_free(one);
        hki_mutex_lock(&s->lock);
        at = &s->sessions; // the list may have changed
    }
}

// Makes room by hanging up on whoever has been silent longest without having
// said who it is. `lock` is held.
static void drop_oldest(hk_center_server *s) {
    hki_session *oldest = NULL;
    for (hki_session *i = s->sessions; i != NULL; i = i->next)
        if (!i->is_open && !atomic_load(&i->over) &&
            (oldest == NULL || i->since_ns < oldest->since_ns))
            oldest = i;
    if (oldest == NULL)
        return;
    (void)hki_fail(HK_E_TIMEOUT,
                   "%d connections have not finished their handshake",
                   MAX_GREETING);
    hki_server_refuse(s, HK_REFUSED_FLOOD, oldest->from);
    oldest->since_ns = INT64_MAX; // not twice
    hki_conn_hang_up(oldest->f.conn);
}

static bool somebody_goes(const hk_center_server *s) {
    for (const hki_session *i = s->sessions; i != NULL; i = i->next)
        if (i->since_ns == INT64_MAX && !atomic_load(&i->over))
            return true;
    return false;
}

// Joins whoever is over. Connections that were hung up on count until their
// threads have noticed, so a newcomer waits for that. `lock` is held.
static void make_room(hk_center_server *s) {
    const int64_t deadline = hki_deadline(ROOM_MS);
    hki_server_reap(s, false);
    while (s->n_sessions >= s->max_connections && somebody_goes(s) &&
           !atomic_load(&s->stopping) && hki_now_ns() < deadline) {
        (void)hki_cond_wait(&s->changed, &s->lock, deadline);
        hki_server_reap(s, false);
    }
}

static void add_session(hk_center_server *s, hki_conn *conn) {
    hki_session *one = NULL;
    HKI_LOCKED(&s->lock);
    make_room(s);
    bool ok = s->n_sessions < s->max_connections;
    if (!ok) {
        (void)hki_fail(
            HK_E_OVERFLOW,
            "%u connections are open, which is the limit (max_connections)",
            s->n_sessions);
        hki_server_refuse(s, HK_REFUSED_FLOOD, conn->peer);
    } else if (s->n_greeting >= MAX_GREETING) {
        drop_oldest(s);
    }
    ok = ok && hki_zalloc_array(1, sizeof *one, &one) == HK_OK;
    if (ok) {
        one->server = s;
        one->since_ns = hki_now_ns();
        snprintf(one->from, sizeof one->from, "%s", conn->peer);
        hki_framer_init(&one->f, conn, s->wake);
        one->next = s->sessions;
        s->sessions = one;
        s->n_sessions++;
        s->n_greeting++;
        atomic_fetch_add(&s->accepted, 1);
        ok = hki_thread_start(hki_session_main, one, -1, "hooke-center",
                              &one->thread) == HK_OK;
        if (!ok) {
            s->sessions = one->next;
            s->n_sessions--;
            s->n_greeting--;
            hki_server_refuse(s, HK_REFUSED_OTHER, conn->peer);
            hki_session_free(one);
        }
    } else {
        hki_conn_close(conn);
    }
}

void hki_server_accept_main(void *user) {
    hk_center_server *const s = user;
    for (size_t i = 0; i < s->n_listeners; i++)
        (void)hki_wait_set_add_listener(s->waits, s->listener[i]);
    (void)hki_wait_set_add_wake(s->waits, s->wake);
    int64_t tick = 0;
    while (!atomic_load(&s->stopping)) {
        const bool came =
            hki_wait_set_wait(s->waits, hki_deadline(HKI_TICK_MS)) == HK_OK;
        for (size_t i = 0; came && i < s->n_listeners; i++) {
            hki_conn *conn = NULL;
            // Out of descriptors: whoever waits is taken later.
            if (hki_wait_set_ready(s->waits, i) &&
                hki_accept(s->listener[i], &conn) != HK_OK)
                (void)hki_nap_until(NULL, s->wake, hki_deadline(20));
            if (conn != NULL)
                add_session(s, conn);
        }
        const int64_t now = hki_now_ns();
        if (now - tick < (int64_t)HKI_TICK_MS * 1000000)
            continue;
        tick = now;
        hki_shard *const shard = atomic_load(&s->shard);
        if (shard != NULL)
            hki_shard_expire(shard);
        hki_mutex_lock(&s->lock);
        hki_server_reap(s, false);
        hki_cond_broadcast(&s->changed);
        hki_mutex_unlock(&s->lock);
        hki_server_drop_unread(s, HKI_UNREAD_MS);
        hki_server_expire_ranges(s);
    }
}
