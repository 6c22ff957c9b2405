// shard.c - make a shard, open one from its file, close it.
#include "center/shard.h"
#include <errno.h>
#include <unistd.h>
#include "base/io.h"
#include "center/center_sections.h"

hk_status hki_durability_parse(const char *text, const char *what,
                               hki_durability *out, int64_t *period_ms) {
    static const char snapshot[] = "snapshot:";
    *period_ms = 0;
    *out = HKI_DURABLE_PROCESS;
    if (text == NULL || strcmp(text, "process") == 0)
        return HK_OK;
    if (strcmp(text, "always") == 0) {
        *out = HKI_DURABLE_ALWAYS;
        return HK_OK;
    }
    if (strncmp(text, snapshot, sizeof snapshot - 1) == 0) {
        char *end;
        errno = 0;
        const double seconds = strtod(text + sizeof snapshot - 1, &end);
        if (errno == 0 && *end == '\0' && end != text + sizeof snapshot - 1 &&
            seconds >= 0.01 && seconds <= 1e7) {
            *out = HKI_DURABLE_SNAPSHOT;
            *period_ms = (int64_t)(seconds * 1000);
            return HK_OK;
        }
    }
    return hki_fail(HK_E_INVALID_ARG,
                    "%s: durability is %.64s; it has to be process, "
                    "snapshot:SECONDS or always",
                    what, text);
}

void hki_shard_probe(const hki_shard *s, hki_point p) {
    if (s->probe != NULL)
        s->probe(s->probe_user, p);
}

float *hki_shard_at(const hki_shard *s, uint32_t v, int64_t at) {
    HKI_ASSERT(v < s->file.head->n_vectors);
    HKI_ASSERT(at >= s->first && at <= s->first + s->n);
    return s->file.vector[v] + (at - s->first);
}

// ---- what lives in this process only ----------------------------------------

// A shard without chunks has one lock as well: the in-process center counts
// exchanges under the first lock.
static uint32_t count_locks(const hki_shard *s) {
    return HKI_MAX(s->n_chunks, 1u);
}

void hki_shard_close(hki_shard *s) {
    if (s == NULL)
        return;
    hki_rules_deinit(s);
    hki_turn_deinit(&s->turn);
    for (uint32_t i = 0; s->chunk_lock != NULL && i < count_locks(s); i++)
        hki_mutex_deinit(&s->chunk_lock[i].mutex);
    for (uint32_t i = 0; s->seat != NULL && i < s->opt.max_workers; i++)
        hki_mutex_deinit(&s->seat[i].lock);
    hki_cond_deinit(&s->changed);
    hki_mutex_deinit(&s->lock);
    hki_cond_deinit(&s->undo_free);
    hki_mutex_deinit(&s->undo_lock);
    hki_center_file_close(&s->file);
    hki_partition_deinit(&s->partition);
    hk_layout_release(s->layout);
    hki_free(s->gate.allowed);
    hki_free(s->dense);
    hki_free(s->chunk_lock);
    hki_free(s->seat);
    hki_free(s->name);
    hki_free(s);
}

// Those of the shard itself exist from its start.
static hk_status make_locks(hki_shard *s) {
    HKI_TRY(
        hki_alloc_array(count_locks(s), sizeof *s->chunk_lock, &s->chunk_lock));
    for (uint32_t i = 0; i < count_locks(s); i++)
        hki_mutex_init(&s->chunk_lock[i].mutex);
    HKI_TRY(hki_zalloc_array(s->opt.max_workers, sizeof *s->seat, &s->seat));
    for (uint32_t i = 0; i < s->opt.max_workers; i++)
        hki_mutex_init(&s->seat[i].lock);
    HKI_TRY(hki_zalloc_array(s->opt.max_workers, sizeof *s->gate.allowed,
                             &s->gate.allowed));
    for (uint32_t i = s->file.head->n_undo; i-- > 0;)
        s->free_slot[s->n_free++] = i;
    return HK_OK;
}

// Options, without what belongs to a file.
static hk_status start(const hki_shard_options *opt, hki_shard **out) {
    HKI_SCOPED(hki_shard_close_at) hki_shard *s = NULL;
    HKI_TRY(hki_zalloc_array(1, sizeof *s, &s));
    hki_mutex_init(&s->lock);
    hki_cond_init(&s->changed);
    hki_mutex_init(&s->undo_lock);
    hki_cond_init(&s->undo_free);
    s->undo_wait_ns = HKI_UNDO_WAIT_MS * INT64_C(1000000);
    s->file.fd = -1;
    s->context = opt->context;
    s->opt = opt->center;
    s->opt.outer = NULL;
    s->opt.name = NULL;
    s->method = hki_method_get(opt->center.method);
    s->durability = opt->durability;
    s->shard = opt->shard;
    s->max_norm = opt->max_norm;
    s->lease_ns = opt->lease_ms * 1000000;
    s->probe = opt->probe;
    s->probe_user = opt->probe_user;
    s->in_process = opt->in_process;
    hki_turn_init(&s->turn);
    HKI_TRY(hki_strdup(opt->name, &s->name));
    HKI_TRY(hki_exchange_kernels_pick(opt->center.isa, opt->name, &s->k));
    if (opt->center.turn != HK_TURN_FREE && !opt->in_process)
        return hki_fail(
            HK_E_UNSUPPORTED,
            "%s: a center server has no turn order (order has to be free); "
            "round_robin and recorded orders are for workers in one process",
            opt->name);
    return HKI_HAND_ON(out, s);
}

// The partition of the vector, and this shard's part of it.
static hk_status divide(hki_shard *s, const hk_share *share,
                        uint32_t n_shards) {
    hki_partition *const d = &s->partition;
    HKI_TRY(hki_partition_init(
        d, s->layout, share, (int64_t)s->opt.chunk_kib * 256,
        s->in_process ? HKI_TABLES_WITH_OTHERS : HKI_TABLES_IN_ROWS, n_shards,
        s->name));
    s->chunk = d->chunk + d->first[s->shard];
    s->n_chunks = d->first[s->shard + 1] - d->first[s->shard];
    s->first = d->begin[s->shard];
    s->n = d->begin[s->shard + 1] - s->first;
    HKI_TRY(hki_alloc_array(s->n_chunks, sizeof *s->dense, &s->dense));
    for (uint32_t i = 0; i < s->n_chunks; i++)
        if (s->chunk[i].table < 0)
            s->dense[s->n_dense++] = i;
    return HK_OK;
}

// Sums over the workers' records.
void hki_shard_count(hki_shard *s) {
    const hki_center_head *const h = s->file.head;
    uint64_t steps = (uint64_t)h->step_base, exchanges = 0;
    uint32_t live = 0;
    const int64_t now = hki_now_ns();
    for (uint32_t i = 0; i < s->opt.max_workers; i++) {
        hki_worker_record *const w = &s->file.worker[i];
        steps += (uint64_t)w->steps;
        exchanges += HKI_CURSOR_EXCHANGE(w->cursor);
        // Whoever was there before is expected back within its lease.
        w->live = w->live != 0;
        live += w->live;
        s->seat[i].seen_ns = w->live ? now : 0;
    }
    const bool rounds = s->method->rounds;
    atomic_store(&s->global_step, (int64_t)steps);
    atomic_store(&s->exchanges, exchanges);
    atomic_store(&s->version,
                 rounds ? hki_round_number(s) : exchanges - h->stale);
    atomic_store(&s->live, live);
}

// ---- create -----------------------------------------------------------------

// Leaves word in the file of which version wrote it last.
static hk_status sign(hki_shard *s) {
    char text[48];
    HKI_FREED uint8_t *before = NULL;
    size_t size = 0;
    snprintf(text, sizeof text, "hooke %s", hk_version());
    const hk_status status =
        hki_section_get(&s->file, "writer", &before, &size);
    if (status != HK_OK && status != HK_E_NOT_FOUND)
        return status;
    return status == HK_OK && strcmp((const char *)before, text) == 0
               ? HK_OK
               : hki_section_set(&s->file, "writer", 0, text, strlen(text),
                                 true);
}

static hk_status create_file(hki_shard *s, const hki_shard_options *opt,
                             uint32_t n_slots) {
    HKI_SCOPED(hki_buf_deinit) hki_buf layout = {0};
    HKI_TRY(hki_layout_put(s->layout, s->partition.share, &layout));
    const hki_center_head head = {
        .fingerprint = hki_layout_fingerprint(s->layout),
        .plan = s->partition.hash,
        .method = (uint32_t)s->method->id,
        .max_workers = s->opt.max_workers,
        .chunk_floats = s->opt.chunk_kib * 256,
        .n_vectors = 1 + hki_rules_vectors(s->method, n_slots),
        .n_undo = s->in_process ? 0 : HKI_UNDO_SLOTS,
        .shard = s->shard,
        .n_shards = opt->n_shards,
        .n_chunks = s->n_chunks,
        .first_float = (uint64_t)s->first,
        .n_floats = (uint64_t)s->n,
        .max_floats = (uint64_t)s->partition.max_floats,
        .layout_bytes = layout.size,
        .side_bytes =
            s->shard == 0 ? (uint64_t)hki_layout_side_bytes(s->layout) : 0,
    };
    HKI_TRY(hki_center_file_create(&s->file, opt->path, opt->shared, &head,
                                   layout.data));
    s->values = s->file.vector[0];
    return sign(s);
}

// A peer may ask for anything: what it cannot get is refused before any work
// is put in.
static hk_status check_size(const hki_shard *s, const hki_shard_options *opt,
                            const hk_layout *layout) {
    const uint64_t pages = (uint64_t)HKI_MAX(sysconf(_SC_PHYS_PAGES), 1);
    const uint64_t most = opt->max_bytes > 0
                              ? opt->max_bytes
                              : pages * (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t bytes =
        (uint64_t)hki_layout_size(layout) / opt->n_shards * sizeof(float);
    if (bytes > most || (uint64_t)hki_layout_side_bytes(layout) > most)
        return hki_fail(HK_E_RANGE,
                        "%s: the shard needs %llu bytes, more than the limit "
                        "of %llu (max_bytes)",
                        s->name, (unsigned long long)bytes,
                        (unsigned long long)most);
    return HK_OK;
}

static hk_status create(hki_shard *s, const hki_shard_options *opt,
                        hk_layout *layout, const hk_share *share) {
    uint32_t n_slots = 0;
    s->layout = hk_layout_retain(layout);
    if (!s->in_process) {
        HKI_TRY(check_size(s, opt, layout));
        HKI_TRY(hki_rules_slots(&opt->center, s->name, &n_slots));
    }
    HKI_TRY(hki_turn_load(&s->turn, &opt->center, s->name,
                          hki_layout_fingerprint(layout)));
    HKI_TRY(divide(s, share, opt->n_shards));
    HKI_TRY(create_file(s, opt, n_slots));
    HKI_TRY(make_locks(s));
    HKI_TRY(hki_rules_init(s, &opt->center));
    hki_shard_count(s);
    return HK_OK;
}

// A shard that could not be made leaves no file: it would keep the next
// attempt from making one.
static void remove_file(const hki_shard *s) {
    if (s->file.path != NULL)
        (void)hki_io()->unlink(s->file.path);
}

hk_status hki_shard_create(const hki_shard_options *opt, hk_layout *layout,
                           const hk_share *share, hki_shard **out) {
    HKI_SCOPED(hki_shard_close_at) hki_shard *s = NULL;
    HKI_TRY(start(opt, &s));
    HKI_TRY_OR(create(s, opt, layout, share), remove_file(s));
    return HKI_HAND_ON(out, s);
}

// ---- open -------------------------------------------------------------------

static hk_status check_options(hki_shard *s, const hki_shard_options *opt) {
    const hki_center_head *const h = s->file.head;
    const struct {
        const char *what;
        uint64_t file, asked;
    } same[] = {
        {"method", h->method, (uint64_t)s->method->id},
        {"max_workers", h->max_workers, s->opt.max_workers},
        {"floats of a chunk", h->chunk_floats, s->opt.chunk_kib * 256},
        {"shard", h->shard, opt->shard},
        {"number of shards", h->n_shards, opt->n_shards},
    };
    for (size_t i = 0; i < HKI_COUNT(same); i++)
        if (same[i].file != same[i].asked)
            return hki_fail(
                HK_E_INVALID_ARG,
                "%s: %s: %s is %llu in the file, but %llu in the options",
                s->name, opt->path, same[i].what,
                (unsigned long long)same[i].file,
                (unsigned long long)same[i].asked);
    return HK_OK;
}

// The partition has to be the one of the file, whatever its layout says.
static bool fits_partition(const hki_shard *s) {
    const hki_center_head *const h = s->file.head;
    return h->plan == s->partition.hash && h->n_chunks == s->n_chunks &&
           h->first_float == (uint64_t)s->first &&
           h->n_floats == (uint64_t)s->n &&
           h->max_floats == (uint64_t)s->partition.max_floats &&
           h->side_bytes ==
               (s->shard == 0 ? (uint64_t)hki_layout_side_bytes(s->layout) : 0);
}

static hk_status check_partition(hki_shard *s, const hki_shard_options *opt) {
    uint32_t n_slots;
    HKI_TRY(hki_rules_slots(&opt->center, s->name, &n_slots));
    if (!fits_partition(s) ||
        s->file.head->n_vectors != 1 + hki_rules_vectors(s->method, n_slots))
        return hki_fail(HK_E_DATA,
                        "%s: %s: the file does not fit its layout, or the "
                        "center has another outer optimizer",
                        s->name, opt->path);
    return HK_OK;
}

// A file that a machine took down with it may be old in parts.
static void warn_torn(hki_shard *s) {
    char boot[HKI_BOOT_ID];
    hki_center_head *const h = s->file.head;
    hki_boot_id(boot);
    s->lost = !h->clean && memcmp(h->boot, boot, sizeof boot) != 0 &&
              h->cut == 0 && s->durability != HKI_DURABLE_ALWAYS;
    if (s->lost)
        hki_log(s->context, HK_LOG_WARNING,
                "%s: %s was open when the machine went down: its last "
                "exchanges may be partly lost",
                s->name, s->file.path);
    memcpy(h->boot, boot, sizeof boot);
    h->clean = 0;
    h->cut = 0;
}

// The disk hears of it before anything is changed: a file that a machine took
// down with it must not look like one that was closed in good order.
static hk_status mark_open(hki_shard *s) {
    warn_torn(s);
    return hki_center_sync(&s->file, s->file.head, sizeof *s->file.head);
}

// The layout of the file, and the partition that follows from it.
static hk_status read_layout(hki_shard *s, const hki_shard_options *opt) {
    const hki_center_head *const h = s->file.head;
    HKI_FREED hk_share *share = NULL;
    s->values = s->file.vector[0];
    HKI_TRY(hki_layout_get(s->file.map + h->layout_at, h->layout_bytes,
                           opt->path, &s->layout, &share));
    if (hki_layout_fingerprint(s->layout) != h->fingerprint)
        return hki_fail(HK_E_DATA, "%s: %s: the layout is damaged", s->name,
                        opt->path);
    return divide(s, share, opt->n_shards);
}

static hk_status open_shard(hki_shard *s, const hki_shard_options *opt) {
    HKI_TRY(hki_center_file_open(&s->file, opt->path));
    HKI_TRY(check_options(s, opt));
    HKI_TRY(read_layout(s, opt));
    HKI_TRY(check_partition(s, opt));
    hki_sections_upgrade(&s->file);
    if (sign(s) != HK_OK) // a full disk: the file is good without
        hki_log(s->context, HK_LOG_WARNING, "%s: %s", s->name, hk_last_error());
    HKI_TRY(make_locks(s));
    HKI_TRY(hki_undo_recover(s));
    HKI_TRY(mark_open(s));
    HKI_TRY(hki_rules_init(s, &opt->center));
    hki_rules_load(s);
    HKI_TRY(hki_round_recover(s));
    hki_shard_count(s);
    return HK_OK;
}

// True when the file cannot be trusted and a snapshot can take its place.
static bool wants_snapshot(const char *path, const char *snapshot) {
    hki_center_file f;
    if (!hki_path_exists(snapshot))
        return false;
    const hk_status s = hki_center_file_open(&f, path);
    if (s != HK_OK)
        return s == HK_E_NOT_FOUND || s == HK_E_DATA;
    char boot[HKI_BOOT_ID];
    hki_boot_id(boot);
    const bool torn =
        !f.head->clean && memcmp(f.head->boot, boot, sizeof boot) != 0;
    f.head = NULL; // leaves it as it is
    hki_center_file_close(&f);
    return torn;
}

// Puts the snapshot in the place of a file that is lost or torn.
static hk_status fall_back(const hki_shard_options *opt, bool *fell) {
    *fell = false;
    for (int next = 0; next < 2; next++) {
        HKI_SCOPED(hki_buf_deinit) hki_buf snapshot = {0};
        HKI_TRY(hki_snapshot_path(opt->path, next != 0, &snapshot));
        if (!wants_snapshot(opt->path, snapshot.data))
            continue;
        HKI_TRY(hki_file_copy(snapshot.data, opt->path, true, true));
        HKI_TRY(hki_sync_folder(opt->path));
        hki_log(opt->context, HK_LOG_WARNING, "%s: starts from the snapshot %s",
                opt->name, snapshot.data);
        *fell = true;
        break;
    }
    return HK_OK;
}

hk_status hki_shard_open(const hki_shard_options *opt, hki_shard **out) {
    hki_shard *s;
    bool fell = false;
    if (opt->durability == HKI_DURABLE_SNAPSHOT)
        HKI_TRY(fall_back(opt, &fell));
    HKI_TRY(start(opt, &s));
    const hk_status status = open_shard(s, opt);
    s->lost |= fell;
    if (status != HK_OK) {
        s->file.head = NULL; // a file that does not fit stays as it is
        hki_shard_close(s);
        return status;
    }
    *out = s;
    return HK_OK;
}

// ---- a look at one ----------------------------------------------------------

static hk_status options_of(const hki_center_head *h, const char *path,
                            hki_shard_options *out) {
    hk_center_options center;
    hk_center_options_init(&center, sizeof center);
    if (h->n_shards == 0 || h->n_shards > 4096 || h->shard >= h->n_shards)
        return hki_fail(HK_E_DATA, "%s: shard %u of %u", path, h->shard,
                        h->n_shards);
    center.method = (hk_method)h->method;
    center.max_workers = h->max_workers;
    center.chunk_kib = h->chunk_floats / 256;
    *out = (hki_shard_options){.name = "center",
                               .path = path,
                               .shard = h->shard,
                               .n_shards = h->n_shards};
    return hki_center_options_check(&center, &out->center);
}

static hk_status view_shard(hki_shard *s, const hki_shard_options *opt) {
    HKI_TRY(read_layout(s, opt));
    if (!fits_partition(s))
        return hki_fail(HK_E_DATA, "%s: the file does not fit its layout",
                        opt->path);
    HKI_TRY(make_locks(s));
    HKI_TRY(hki_undo_recover(s));
    hki_shard_count(s);
    return HK_OK;
}

hk_status hki_shard_view(const char *path, hki_shard **out) {
    hki_center_file f;
    hki_shard_options opt;
    hki_shard *s = NULL;
    HKI_TRY(hki_center_file_view(&f, path));
    hk_status status = options_of(f.head, path, &opt);
    if (status == HK_OK)
        status = start(&opt, &s);
    if (status != HK_OK) {
        hki_center_file_close(&f);
        return status;
    }
    s->file = f;
    status = view_shard(s, &opt);
    if (status != HK_OK) {
        hki_shard_close(s);
        return status;
    }
    *out = s;
    return HK_OK;
}

// ---- counters ---------------------------------------------------------------

void hki_shard_info(hki_shard *s, hk_center_info *out) {
    *out = (hk_center_info){
        .version = atomic_load(&s->version),
        .exchanges = atomic_load(&s->exchanges),
        .global_step = atomic_load(&s->global_step),
        .stale = hki_load64(&s->file.head->stale),
        .joins = hki_load64(&s->file.head->joins),
        .live = atomic_load(&s->live),
        .initialised = hki_load64(&s->file.head->initialised) != 0,
        .method = s->method->id,
        .turn = s->turn.order,
    };
}
