// server_snapshot.c - snapshots from time to time: of this shard alone, or by
// shard 0 of all shards at one point.
#include "cluster/center/server.h"
#include <poll.h>
#include "cluster/wire/all_shards.h"

static hk_status write_alone(hk_center_server *s, int64_t deadline_ns) {
    hki_shard *const shard = atomic_load(&s->shard);
    const hki_patience p = {.deadline_ns = deadline_ns};
    hki_shard_copy *cut;
    const uint64_t number = hki_new_id();
    HKI_TRY(hki_shard_cut(shard, number, &p, &cut));
    const hk_status status = hki_cut_write(shard, cut, number);
    hki_cut_free(shard, cut);
    return status;
}

static hk_status write_everywhere(hk_center_server *s, int64_t deadline_ns) {
    HKI_FREED hki_framer *f = NULL;
    HKI_FREED hki_framer **links = NULL;
    HKI_TRY(hki_zalloc_array(s->n_shards, sizeof *f, &f));
    HKI_TRY(hki_zalloc_array(s->n_shards, sizeof *links, &links));
    hk_status status = HK_OK;
    size_t opened = 0;
    for (; status == HK_OK && opened < s->n_shards; opened++) {
        hki_msg_open open = {.shard = (uint32_t)opened,
                             .n_shards = (uint32_t)s->n_shards,
                             .role = HKI_ROLE_CENTER};
        hki_msg_welcome w;
        snprintf(open.name, sizeof open.name, "%.60s", s->name);
        status = hki_link_open(s->net, s->shards[opened], &open, s->wake_fd,
                               deadline_ns, &f[opened], &w);
        links[opened] = &f[opened];
    }
    if (status == HK_OK)
        status = hki_cut_all(links, s->n_shards, HKI_CUT_WRITE, deadline_ns);
    for (size_t i = 0; i < opened; i++)
        hki_framer_deinit(&f[i]);
    return status;
}

void hki_server_write_main(void *user) {
    hk_center_server *const s = user;
    struct pollfd p = {.fd = s->wake_fd, .events = POLLIN};
    int64_t next = hki_deadline(s->period_ms);
    while (!atomic_load(&s->stopping)) {
        const int64_t left = (next - hki_now_ns()) / 1000000;
        if (left > 0) {
            (void)poll(&p, 1, (int)HKI_MIN(left + 1, INT64_C(60000)));
            continue;
        }
        next = hki_deadline(s->period_ms);
        hki_shard *const shard = atomic_load(&s->shard);
        if (shard == NULL || !hki_load64(&shard->file.head->initialised))
            continue;
        const int64_t deadline =
            hki_deadline(HKI_MAX(s->period_ms, 2 * s->lease_ms));
        const hk_status status = s->shards != NULL
                                     ? write_everywhere(s, deadline)
                                     : write_alone(s, deadline);
        if (status != HK_OK && status != HK_E_CANCELLED)
            hki_log(s->context, HK_LOG_WARNING, "%s: no snapshot: %s", s->name,
                    hk_last_error());
    }
}
