// roles_feed.c - the series of each role: names and help as they are listed in
// docs/formats/metrics.md.
#include "cluster/center/server.h"
#include "cluster/roles/roles.h"
#include <math.h>

HKI_SCOPED_HANDLE(hki_monitor, hki_monitor_destroy)

hk_status hki_role_monitor(hk_context *ctx, const char *listen,
                           const char *role, int32_t index,
                           void (*collect)(void *user, hki_monitor *m),
                           void *user, hki_monitor **out) {
    const hki_monitor_options o = {
        .context = ctx, .listen = listen, .collect = collect, .user = user};
    char number[16];
    *out = NULL;
    if (listen == NULL)
        return HK_OK;
    HKI_SCOPED(hki_monitor_destroy_at) hki_monitor *m = NULL;
    HKI_TRY(hki_monitor_create(&o, &m));
    snprintf(number, sizeof number, "%d", index);
    HKI_TRY(hki_monitor_fact(m, "role", role));
    HKI_TRY(hki_monitor_fact(m, "index", number));
    return HKI_HAND_ON(out, m);
}

hki_metric *hki_role_series(hki_monitor *m, hki_metric_kind kind,
                            const char *name, const char *help,
                            const char *label, const char *value) {
    const hki_metric_label l = {label, value};
    hki_metric *s = NULL;
    if (m == NULL ||
        hki_monitor_series(m, kind, name, help, &l, label != NULL, &s) != HK_OK)
        return NULL;
    return s;
}

static void gauge(hki_monitor *m, const char *name, const char *help,
                  double v) {
    hki_metric_set(hki_role_series(m, HKI_GAUGE, name, help, NULL, NULL), v);
}

static void counter(hki_monitor *m, const char *name, const char *help,
                    double v) {
    hki_metric_set(hki_role_series(m, HKI_COUNTER, name, help, NULL, NULL), v);
}

// ---- a center --------------------------------------------------------------

static void feed_center(hki_monitor *m, const hk_server_info *i) {
    counter(m, "hooke_global_steps_total", "Local steps of all workers.",
            (double)i->center.global_step);
    counter(m, "hooke_exchanges_total", "Exchanges of all workers.",
            (double)i->center.exchanges);
    counter(m, "hooke_joins_total",
            "Joins of workers, repeated joins included.",
            (double)i->center.joins);
    counter(m, "hooke_bytes_received_total", "Bytes received from workers.",
            (double)i->bytes_in);
    counter(m, "hooke_bytes_sent_total", "Bytes sent to workers.",
            (double)i->bytes_out);
    counter(m, "hooke_chunks_total", "Chunks of differences applied.",
            (double)i->chunks);
    counter(m, "hooke_chunks_repeated_total",
            "Chunks that arrived again and were not applied again.",
            (double)i->repeated);
    counter(m, "hooke_chunks_recovered_total",
            "Half-applied chunks that a restart reverted.",
            (double)i->recovered);
    counter(m, "hooke_connections_total", "Connections accepted.",
            (double)i->accepted);
    counter(m, "hooke_snapshots_total", "Snapshots written.",
            (double)i->snapshots);
    gauge(m, "hooke_connections", "Open connections.", i->connections);
    gauge(m, "hooke_workers", "Live workers.", i->center.live);
    gauge(m, "hooke_center_values", "Number of floats of this shard.",
          (double)i->n_values);
    gauge(m, "hooke_center_bytes", "Bytes of memory of this shard's vectors.",
          (double)i->memory_bytes);
    gauge(m, "hooke_center_initialised", "1: the center has values.",
          i->center.initialised);
    gauge(m, "hooke_run_finished", "1: the run has been ended.", i->finished);
    gauge(m, "hooke_snapshot_age_seconds",
          "Seconds since the last snapshot; -1: none.", i->snapshot_age);
    gauge(m, "hooke_snapshot_seconds",
          "Duration of the last snapshot in seconds.", i->snapshot_seconds);
    gauge(m, "hooke_uptime_seconds", "Seconds since the center's start.",
          i->uptime);
    for (int r = 0; r < HK_REFUSALS; r++)
        hki_metric_set(hki_role_series(m, HKI_COUNTER, "hooke_refused_total",
                                       "Refused connections and differences.",
                                       "why", hki_refusal_name((hk_refusal)r)),
                       (double)i->refused[r]);
}

// A peer's name of itself is anybody's text.
static void tame(const char *in, char *out, size_t size) {
    size_t n = 0;
    for (; *in != '\0' && n + 1 < size; in++)
        out[n++] = *in >= ' ' && *in < 0x7f ? *in : '?';
    out[n] = '\0';
}

// Who it is goes to /status only: a name that changes would add series.
static void feed_peer(hki_monitor *m, const char *id, const char *peer) {
    char fact[48], text[sizeof((hk_worker_info *)0)->peer];
    snprintf(fact, sizeof fact, "worker_%s_peer", id);
    tame(peer, text, sizeof text);
    (void)hki_monitor_fact(m, fact, text);
}

static void feed_worker(hki_monitor *m, const hk_worker_info *w) {
    char id[16];
    snprintf(id, sizeof id, "%u", w->id);
    feed_peer(m, id, w->peer);
    const struct {
        hki_metric_kind kind;
        const char *name, *help;
        double value;
    } rows[] = {
        {HKI_COUNTER, "hooke_worker_steps_total",
         "Steps reported with exchanges.", (double)w->steps},
        {HKI_COUNTER, "hooke_worker_exchanges_total", "Exchanges.",
         (double)w->exchanges},
        {HKI_COUNTER, "hooke_worker_bytes_received_total",
         "Bytes received from this worker.", (double)w->bytes_in},
        {HKI_COUNTER, "hooke_worker_bytes_sent_total",
         "Bytes sent to this worker.", (double)w->bytes_out},
        {HKI_COUNTER, "hooke_worker_exchange_seconds_total",
         "Seconds in exchanges.", w->exchange_seconds},
        {HKI_COUNTER, "hooke_worker_repeated_total",
         "Chunks that this worker sent again.", (double)w->repeated},
        {HKI_COUNTER, "hooke_worker_refused_total",
         "Refused differences of this worker.", (double)w->refused},
        {HKI_COUNTER, "hooke_worker_examples_total",
         "Examples that this worker has used.", w->report.examples},
        {HKI_GAUGE, "hooke_worker_examples_per_second",
         "Examples per second of this worker.", w->report.per_second},
        {HKI_GAUGE, "hooke_worker_local_step", "Local steps of this worker.",
         (double)w->report.local_step},
        {HKI_GAUGE, "hooke_worker_loss", "Last loss of this worker.",
         w->report.loss},
        {HKI_GAUGE, "hooke_worker_distance",
         "Distance |x - c| at the last exchange.", w->report.distance},
        {HKI_GAUGE, "hooke_worker_staleness",
         "Staleness: changes of the center between the last two exchanges.",
         w->staleness},
        {HKI_GAUGE, "hooke_worker_last_seen_seconds",
         "Seconds since the last sign of life; -1: none.", w->last_seen},
        {HKI_GAUGE, "hooke_worker_live", "1: the worker is live.", w->live},
        {HKI_GAUGE, "hooke_worker_incarnation",
         "Incarnation: how many times the worker has joined.", w->incarnation},
    };
    for (size_t i = 0; i < HKI_COUNT(rows); i++)
        hki_metric_set(hki_role_series(m, rows[i].kind, rows[i].name,
                                       rows[i].help, "worker", id),
                       rows[i].value);
}

void hki_feed_server(hki_monitor *m, hk_center_server *s) {
    hk_server_info info;
    if (m == NULL || hk_center_server_get_info(s, &info) != HK_OK)
        return;
    feed_center(m, &info);
    for (uint32_t id = 0; id < info.workers; id++) {
        hk_worker_info w;
        if (hk_center_server_worker(s, id, &w) == HK_OK)
            feed_worker(m, &w);
    }
}

// ---- the others ------------------------------------------------------------

void hki_feed_link(hki_monitor *m, hk_center *c) {
    hk_link_info i;
    if (m == NULL || hk_center_get_link_info(c, &i) != HK_OK)
        return;
    counter(m, "hooke_bytes_received_total", "Bytes received from the centers.",
            (double)i.bytes_in);
    counter(m, "hooke_bytes_sent_total", "Bytes sent to the centers.",
            (double)i.bytes_out);
    counter(m, "hooke_reconnects_total", "Connections that were restored.",
            (double)i.reconnects);
    counter(m, "hooke_exchanges_missed_total",
            "Exchanges without a connection to the center.", (double)i.missed);
    counter(m, "hooke_chunks_resent_total", "Chunks sent again.",
            (double)i.resent);
    gauge(m, "hooke_center_away_seconds",
          "Seconds since the last contact with a disconnected center; 0: all "
          "are connected.",
          i.away_seconds);
}

void hki_feed_evaluated(hki_monitor *m, const hki_evaluated *e) {
    if (m == NULL)
        return;
    gauge(m, "hooke_evaluated_step", "Global step of the last evaluation.",
          (double)e->global_step);
    for (size_t i = 0; i < e->n; i++) {
        char name[HKI_METRIC_NAME];
        tame(e->measure[i].name, name, sizeof name);
        hki_metric_set(hki_role_series(m, HKI_GAUGE, "hooke_evaluated",
                                       "Last value of a metric.", "measure",
                                       name),
                       e->measure[i].value);
    }
}
