// shard_restore.c - snapshot files of a shard, and the way back to one of them.
//
// Of several shards each has up to two: FILE.snapshot, which all of them have,
// and FILE.snapshot.next, which is newer and which some may lack. Only once all
// have the newer one does it take the place of the other: whatever machine is
// lost at whatever moment, there is one that all have.
#include "base/io.h"
#include "center/center_sections.h"
#include "center/shard.h"

hk_status hki_snapshot_path(const char *path, bool is_next, hki_buf *out) {
    return hki_buf_printf(out, "%s.snapshot%s", path, is_next ? ".next" : "");
}

// 0: there is none, or it is damaged.
static uint64_t number_of(const char *snapshot) {
    hki_center_file f;
    if (!hki_path_exists(snapshot) ||
        hki_center_file_view(&f, snapshot) != HK_OK)
        return 0;
    const uint64_t number = f.head->cut;
    hki_center_file_close(&f);
    return number;
}

hk_status hki_shard_list(const char *path, uint64_t *kept, uint64_t *next) {
    uint64_t *const out[] = {kept, next};
    for (int i = 0; i < 2; i++) {
        HKI_SCOPED(hki_buf_deinit) hki_buf name = {0};
        HKI_TRY(hki_snapshot_path(path, i != 0, &name));
        *out[i] = number_of(name.data);
    }
    return HK_OK;
}

hk_status hki_shard_keep(const char *path, uint64_t number) {
    HKI_SCOPED(hki_buf_deinit) hki_buf kept = {0};
    HKI_SCOPED(hki_buf_deinit) hki_buf next = {0};
    HKI_TRY(hki_snapshot_path(path, false, &kept));
    HKI_TRY(hki_snapshot_path(path, true, &next));
    if (number_of(kept.data) == number)
        return HK_OK;
    if (number_of(next.data) != number)
        return hki_fail(HK_E_NOT_FOUND, "%s: there is no snapshot %llu", path,
                        (unsigned long long)number);
    if (hki_io()->rename(next.data, kept.data) != 0)
        return hki_fail(HK_E_IO, "%s: cannot rename", next.data);
    return hki_sync_folder(kept.data);
}

// ---- back -------------------------------------------------------------------

static hk_status find_snapshot(const char *path, uint64_t number,
                               hki_center_file *out) {
    for (int next = 0; next < 2; next++) {
        HKI_SCOPED(hki_buf_deinit) hki_buf name = {0};
        HKI_TRY(hki_snapshot_path(path, next != 0, &name));
        if (number_of(name.data) == number)
            return hki_center_file_view(out, name.data);
    }
    return hki_fail(HK_E_NOT_FOUND, "%s: there is no snapshot %llu", path,
                    (unsigned long long)number);
}

// Until this is done, the file is one that a machine took down with it.
static hk_status mark_torn(hki_shard *s) {
    hki_center_head *const h = s->file.head;
    h->clean = 0;
    memset(h->boot, 0, sizeof h->boot);
    return hki_center_sync(&s->file, h, sizeof *h);
}

static void copy_head(hki_center_head *to, const hki_center_head *from,
                      uint64_t run_id) {
    to->run_id = run_id;
    to->initialised = from->initialised;
    to->step_base = from->step_base;
    to->stale = from->stale;
    to->fast_rate = from->fast_rate;
    to->barrier = from->barrier;
}

// Nobody gets a number that somebody else had.
static void copy_workers(hki_shard *s, const hki_center_file *from) {
    for (uint32_t i = 0; i <= s->opt.max_workers; i++) {
        const hki_worker_record was = s->file.worker[i];
        hki_worker_record w = from->worker[i];
        w.incarnation = HKI_MAX(w.incarnation, was.incarnation);
        w.first_loss = HKI_MAX(w.first_loss, was.first_loss);
        w.live = 0; // at no moment anything else
        s->file.worker[i] = w;
    }
}

static void copy_state(hki_shard *s, const hki_center_file *from,
                       uint64_t run_id) {
    const hki_center_head *const h = s->file.head;
    copy_head(s->file.head, from->head, run_id);
    copy_workers(s, from);
    memcpy(s->file.chunk, from->chunk, h->n_chunks * sizeof *from->chunk);
    memcpy(s->file.side, from->side, (size_t)h->side_bytes);
    memcpy(s->file.map + h->vector_at, from->map + h->vector_at,
           (size_t)(h->n_vectors * h->vector_stride));
    for (uint32_t i = 0; i < HKI_UNDO_SLOTS; i++)
        ((hki_undo_head *)(void *)hki_center_undo(&s->file, i))->tag = 0;
}

// Everything that only this process knows.
static void forget_members(hki_shard *s) {
    HKI_LOCKED(&s->lock);
    for (uint32_t i = 0; i < s->opt.max_workers; i++) {
        hki_shard_seat *const seat = &s->seat[i];
        seat->session = seat->speaker = seat->running = 0;
        seat->seen_version = 0;
        seat->left = seat->contributing = seat->in_barrier = false;
    }
    s->gate.ticket = 0;
    s->granted = 0;
    hki_shard_count(s);
    hki_cond_broadcast(&s->changed);
}

static hk_status put_state(hki_shard *s, const hki_shard_options *opt,
                           const hki_center_file *from, uint64_t run_id) {
    hki_center_head *const h = s->file.head;
    HKI_TRY(mark_torn(s));
    copy_state(s, from, run_id);
    hki_rules_deinit(s);
    HKI_TRY(hki_rules_init(s, &opt->center));
    hki_rules_load(s);
    HKI_TRY(hki_round_recover(s));
    forget_members(s);
    HKI_TRY(hki_center_sync(&s->file, s->file.map, s->file.bytes));
    hki_boot_id(h->boot);
    HKI_TRY(hki_center_sync(&s->file, h, sizeof *h));
    s->lost = false;
    return HK_OK;
}

hk_status hki_shard_restore(hki_shard *s, const hki_shard_options *opt,
                            uint64_t number, uint64_t run_id, hki_buf *run) {
    hki_center_file from;
    HKI_FREED uint8_t *bytes = NULL;
    size_t size = 0;
    HKI_TRY(find_snapshot(s->file.path, number, &from));
    hk_status status = HK_OK;
    if (memcmp(from.head, s->file.head, offsetof(hki_center_head, clean)) != 0)
        status = hki_fail(HK_E_DATA, "%s: snapshot %llu is of another center",
                          s->name, (unsigned long long)number);
    if (status == HK_OK) {
        status = hki_section_get(&from, HKI_SECTION_RUN, &bytes, &size);
        if (status == HK_OK)
            status = hki_buf_add(run, bytes, size);
        else if (status == HK_E_NOT_FOUND)
            status = HK_OK; // of version 0.2, or of another shard
    }
    if (status == HK_OK)
        status = put_state(s, opt, &from, run_id);
    hki_center_file_close(&from);
    return status;
}
