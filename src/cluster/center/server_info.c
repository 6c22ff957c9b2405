// server_info.c - what a center server tells of itself: refusals, counters, its
// workers.
#include "cluster/center/server.h"

static const char *const refusal_names[HK_REFUSALS] = {
    "preface", "version",    "key",  "fingerprint", "frame", "replay",
    "fenced",  "not_finite", "norm", "flood",       "slow",  "other"};

const char *hki_refusal_name(hk_refusal r) {
    return (int)r >= 0 && r < HK_REFUSALS ? refusal_names[r] : NULL;
}

// Every refusal is counted; the log gets the first ones, then fewer and fewer.
void hki_server_refuse(hk_center_server *s, hk_refusal why, const char *peer) {
    const uint64_t n = atomic_fetch_add(&s->refused[why], 1) + 1;
    if (n <= 16 || (n & (n - 1)) == 0)
        hki_log(s->context, HK_LOG_WARNING,
                "%s: refused (%s, %llu so far): %s: %s", s->name,
                refusal_names[why], (unsigned long long)n, peer,
                hk_last_error());
}

void hki_server_state(hk_center_server *s, hki_msg_state *out) {
    hki_shard *const shard = atomic_load(&s->shard);
    *out = (hki_msg_state){0};
    if (shard != NULL) {
        hk_center_info info;
        hki_shard_info(shard, &info);
        *out = (hki_msg_state){
            .version = info.version,
            .exchanges = info.exchanges,
            .global_step = info.global_step,
            .skipped = info.skipped_chunks,
            .stale = info.stale,
            .joins = info.joins,
            .run_id = hki_load64(&shard->file.head->run_id),
            .live = info.live,
            .initialised = info.initialised,
        };
    }
    HKI_LOCKED(&s->lock);
    out->finished = s->finished;
}

static void shard_info(hki_shard *shard, hk_server_info *out) {
    const hki_center_head *const h = shard->file.head;
    hki_shard_info(shard, &out->center);
    out->run_id = hki_load64(&h->run_id);
    out->n_values = shard->n;
    out->memory_bytes = (int64_t)(h->vector_stride * h->n_vectors);
    out->chunks = atomic_load(&shard->chunks);
    out->repeated = atomic_load(&shard->repeated);
    out->recovered = atomic_load(&shard->recovered);
    out->snapshots = atomic_load(&shard->snapshots);
    out->snapshot_seconds =
        (double)atomic_load(&shard->snapshot_took_ns) * 1e-9;
    const int64_t at = atomic_load(&shard->snapshot_ns);
    out->snapshot_age = at != 0 ? (double)(hki_now_ns() - at) * 1e-9 : -1;
    HKI_LOCKED(&shard->lock);
    for (uint32_t i = 0; i < shard->opt.max_workers; i++)
        if (shard->file.worker[i].incarnation != 0)
            out->workers = i + 1;
}

hk_status hk_center_server_get_info(hk_center_server *s, hk_server_info *out) {
    if (s == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "center server: info: NULL argument");
    *out = (hk_server_info){.snapshot_age = -1,
                            .shard = s->shard_opt.shard,
                            .n_shards = s->shard_opt.n_shards,
                            .accepted = atomic_load(&s->accepted),
                            .bytes_in = atomic_load(&s->bytes_in),
                            .bytes_out = atomic_load(&s->bytes_out)};
    out->center.method = s->center.method;
    for (int i = 0; i < HK_REFUSALS; i++)
        out->refused[i] = atomic_load(&s->refused[i]);
    out->uptime = (double)(hki_now_ns() - s->start_ns) * 1e-9;
    hki_shard *const shard = atomic_load(&s->shard);
    if (shard != NULL)
        shard_info(shard, out);
    HKI_LOCKED(&s->lock);
    out->connections = s->n_sessions;
    out->finished = s->finished;
    return HK_OK;
}

uint32_t hki_server_observers(hk_center_server *s) {
    uint32_t n = 0;
    HKI_LOCKED(&s->lock);
    for (const hki_session *i = s->sessions; i != NULL; i = i->next)
        n += i->observes && !atomic_load(&i->over);
    return n;
}

bool hki_server_failure(hk_center_server *s, uint32_t worker, char *out,
                        size_t size) {
    hki_shard *const shard = atomic_load(&s->shard);
    if (s->memory != NULL)
        return hki_run_memory_failure(s->memory, worker, out, size);
    return shard != NULL && worker < shard->opt.max_workers &&
           hki_shard_failure(shard, worker, out, size);
}

hk_status hk_center_server_worker(hk_center_server *s, uint32_t id,
                                  hk_worker_info *out) {
    if (s == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "center server: worker: NULL argument");
    hki_shard *const shard = atomic_load(&s->shard);
    if (shard == NULL || id >= shard->opt.max_workers ||
        shard->file.worker[id].incarnation == 0)
        return hki_fail(HK_E_NOT_FOUND, "%s: there is no worker %u", s->name,
                        id);
    HKI_LOCKED(&shard->lock);
    const hki_shard_seat *const seat = &shard->seat[id];
    const hki_worker_record *const w = &shard->file.worker[id];
    *out = (hk_worker_info){
        .id = id,
        .incarnation = w->incarnation,
        .live = w->live,
        .connections = seat->connections,
        .exchanges = HKI_CURSOR_EXCHANGE(hki_load64(&w->cursor)),
        .bytes_in = seat->bytes_in,
        .bytes_out = seat->bytes_out,
        .refused = seat->refused,
        .steps = __atomic_load_n(&w->steps, __ATOMIC_ACQUIRE),
        .exchange_seconds = seat->exchange_seconds,
        .staleness = seat->staleness,
        .last_seen = seat->seen_ns != 0
                         ? (double)(hki_now_ns() - seat->seen_ns) * 1e-9
                         : -1,
        .report = seat->report,
    };
    memcpy(out->peer, seat->peer, sizeof out->peer);
    return HK_OK;
}
