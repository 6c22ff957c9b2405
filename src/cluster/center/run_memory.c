// run_memory.c - the run's memory on shard 0. A call that comes twice (its
// answer was lost) is answered with the same words and changes nothing; every
// change is in the file before it is answered, or has not happened.
//
// The file has two slots of the same size, and its space is reserved: a state
// is written over the older one, which needs no space on the disk. A process
// that dies in the middle leaves the other slot.
#include "cluster/center/run_memory.h"
#include <errno.h>
#include <fcntl.h>
#include "base/io.h"
#include "cluster/center/data_plan.h"
#include "codec/codec.h"

#define MAX_WORKERS HKI_MAX_SEATS
#define HEADER 40     // magic, generation, bytes, seconds, flags, members
#define OLD_HEADER 24 // of versions 1 to 3: without generation and bytes
#define MEMBER 80     // bytes of one in the file
#define MAX_FILE (256u << 20)
#define LEAST_SLOT (64u << 10)
#define SLOT_ALIGN 4096u

enum { // flags in the file
    EVALUATOR = 2,
    FAILURES = 4 // follow the plan
};

#define SAVE_SECONDS 5  // of the run's time, that a killed process may lose
#define RETRY_SECONDS 1 // between attempts while the file cannot be written

static const uint8_t magic[8] = {'H', 'K', 'R', 'U', 'N', 0, 0, 4};

typedef struct member {
    uint32_t id, nonce, sequence;
    bool done;
    uint64_t asked;        // hash of call `sequence`; 0: not known
    hki_msg_result result; // of it
} member;

typedef struct failure {
    uint32_t id;
    char text[HKI_FAILURE_TEXT];
} failure;

typedef struct failure_list {
    failure *at; // sorted by id
    uint32_t n;
    size_t capacity;
} failure_list;

// What the file holds.
typedef struct run_state {
    hki_data_plan *plan;
    bool evaluator;
    double seconds; // of the run
    member *member; // sorted by id
    uint32_t count;
    size_t capacity;
    failure_list failed;
} run_state;

struct hki_run_memory {
    hki_mutex mutex; // guards everything below
    hk_context *context;
    hki_durability durability;
    run_state state;
    bool dirty;         // the file is behind
    bool failing;       // it could not be written
    int64_t failing_ns; // since when
    double tried;       // seconds of the run when it was last tried
    int64_t passed_ns;  // of the last call; 0: none in this process
    char *path;         // NULL: in memory only
    int fd;             // -1: none, or of an older format
    uint64_t slot_bytes, generation;
    uint32_t slot; // that holds the state
    hki_buf bytes; // of the state
};

// ---- a member as bytes -----------------------------------------------------

static void put_member(uint8_t out[MEMBER], const member *m) {
    const hki_msg_result *const r = &m->result;
    const uint32_t first[6] = {m->id,     m->nonce, m->sequence,
                               r->status, m->done,  r->set};
    const uint64_t last[7] = {
        r->range,         (uint64_t)r->epoch, (uint64_t)r->begin,
        (uint64_t)r->end, (uint64_t)r->used,  r->seed,
        m->asked};
    for (size_t i = 0; i < HKI_COUNT(first); i++)
        hki_put_u32(out + 4 * i, first[i]);
    for (size_t i = 0; i < HKI_COUNT(last); i++)
        hki_put_u64(out + sizeof first + 8 * i, last[i]);
}

// size: what a member took in that version of the file.
static member get_member(const uint8_t *p, size_t size) {
    uint8_t b[MEMBER] = {0};
    memcpy(b, p, size);
    return (member){.id = hki_get_u32(b),
                    .nonce = hki_get_u32(b + 4),
                    .sequence = hki_get_u32(b + 8),
                    .done = hki_get_u32(b + 16) != 0,
                    .asked = hki_get_u64(b + 72),
                    .result = {.status = hki_get_u32(b + 12),
                               .set = hki_get_u32(b + 20),
                               .range = hki_get_u64(b + 24),
                               .epoch = (int64_t)hki_get_u64(b + 32),
                               .begin = (int64_t)hki_get_u64(b + 40),
                               .end = (int64_t)hki_get_u64(b + 48),
                               .used = (int64_t)hki_get_u64(b + 56),
                               .seed = hki_get_u64(b + 64)}};
}

// ---- a state as bytes ------------------------------------------------------

static hk_status add_u64(hki_buf *b, uint64_t v) {
    uint8_t bytes[8];
    hki_put_u64(bytes, v);
    return hki_buf_add(b, bytes, sizeof bytes);
}

static uint8_t *bytes_of(const hki_buf *b) {
    return (uint8_t *)b->data;
}

// The plan, and in front of it its length.
static hk_status add_plan(const run_state *t, hki_buf *b) {
    const size_t at = b->size;
    HKI_TRY(add_u64(b, 0));
    HKI_TRY(hki_data_plan_save(t->plan, b));
    hki_put_u64(bytes_of(b) + at, b->size - at - 8);
    return HK_OK;
}

// u32 failures, for each: u32 id, u32 bytes of its text, and that; nothing
// where there are none.
static hk_status add_failures(const run_state *t, hki_buf *b) {
    uint8_t head[8];
    hki_put_u32(head, t->failed.n);
    if (t->failed.n > 0)
        HKI_TRY(hki_buf_add(b, head, 4));
    for (uint32_t i = 0; i < t->failed.n; i++) {
        const failure *const f = &t->failed.at[i];
        const size_t n = strlen(f->text);
        hki_put_u32(head, f->id);
        hki_put_u32(head + 4, (uint32_t)n);
        HKI_TRY(hki_buf_add(b, head, sizeof head));
        HKI_TRY(hki_buf_add(b, f->text, n));
    }
    return HK_OK;
}

static hk_status put_state(const run_state *t, uint64_t generation,
                           hki_buf *b) {
    uint64_t seconds;
    memcpy(&seconds, &t->seconds, sizeof seconds);
    b->size = 0;
    HKI_TRY(hki_buf_add(b, magic, sizeof magic));
    HKI_TRY(add_u64(b, generation));
    HKI_TRY(add_u64(b, 0));
    HKI_TRY(add_u64(b, seconds));
    HKI_TRY(add_u64(b, (uint64_t)t->count << 32 |
                           (t->evaluator ? EVALUATOR : 0u) |
                           (t->failed.n > 0 ? FAILURES : 0u)));
    for (uint32_t i = 0; i < t->count; i++) {
        uint8_t bytes[MEMBER];
        put_member(bytes, &t->member[i]);
        HKI_TRY(hki_buf_add(b, bytes, sizeof bytes));
    }
    HKI_TRY(add_plan(t, b));
    HKI_TRY(add_failures(t, b));
    hki_put_u64(bytes_of(b) + 16, b->size + 8);
    return add_u64(b, hki_hash(HKI_HASH_INIT, b->data, b->size));
}

static hk_status damaged(const char *path, size_t at, const char *what) {
    return hki_fail(HK_E_DATA, "%s: byte %zu: %s", path, at, what);
}

static void state_deinit(run_state *t) {
    hki_data_plan_destroy(t->plan);
    hki_free(t->member);
    hki_free(t->failed.at);
    *t = (run_state){0};
}

static hk_status get_members(run_state *t, const uint8_t *p, size_t bytes,
                             uint32_t n, const char *from) {
    HKI_TRY(hki_alloc_array(HKI_MAX(n, 1u), sizeof *t->member, &t->member));
    t->capacity = HKI_MAX(n, 1u);
    for (uint32_t i = 0; i < n; i++, p += bytes) {
        const member m = get_member(p, bytes);
        HKI_TRY(hki_result_check(&m.result, from));
        if (m.id >= MAX_WORKERS || (i > 0 && m.id <= t->member[i - 1].id))
            return damaged(from, HEADER + (size_t)i * bytes,
                           "the workers are not in order");
        t->member[t->count++] = m;
    }
    return HK_OK;
}

// The bytes are what the state holds behind the plan, which begin at `at`.
static hk_status get_failures(run_state *t, const uint8_t *bytes, size_t size,
                              size_t at, const char *from) {
    const uint8_t *p = bytes, *const end = bytes + size;
    const uint32_t n = size >= 4 ? hki_get_u32(p) : 0;
    if (n == 0 || n > size / 9)
        return damaged(from, at, "failed workers are missing");
    HKI_TRY(hki_alloc_array(n, sizeof *t->failed.at, &t->failed.at));
    t->failed.capacity = n;
    p += 4;
    for (uint32_t i = 0; i < n; i++) {
        failure *const f = &t->failed.at[i];
        const size_t left = (size_t)(end - p);
        const uint32_t length = left >= 8 ? hki_get_u32(p + 4) : 0;
        if (length == 0 || length >= sizeof f->text || length > left - 8)
            return damaged(from, at + (size_t)(p - bytes),
                           "a failed worker is cut off");
        f->id = hki_get_u32(p);
        memcpy(f->text, p + 8, length);
        f->text[length] = '\0';
        hki_utf8_clean(f->text);
        if (f->id >= MAX_WORKERS || (i > 0 && f->id <= f[-1].id))
            return damaged(from, at + (size_t)(p - bytes),
                           "failed workers are not in order");
        p += 8 + length;
        t->failed.n++;
    }
    return p == end ? HK_OK
                    : damaged(from, at + (size_t)(p - bytes),
                              "more than the failed workers");
}

// Bytes of the state at the front of so many; 0: there is none. Of a version
// up to 3 it is all of them.
static size_t state_size(const uint8_t *bytes, size_t size) {
    if (size < OLD_HEADER + 16 || memcmp(bytes, magic, sizeof magic - 1) != 0 ||
        bytes[7] < 1 || bytes[7] > magic[7])
        return 0;
    const uint64_t n = bytes[7] < magic[7] ? size : hki_get_u64(bytes + 16);
    return n >= OLD_HEADER + 16 && n <= size &&
                   (bytes[7] < magic[7] || n >= HEADER + 16) &&
                   hki_get_u64(bytes + n - 8) ==
                       hki_hash(HKI_HASH_INIT, bytes, (size_t)n - 8)
               ? (size_t)n
               : 0;
}

// From bytes that have a state in front. *t is zeroed.
static hk_status get_state(run_state *t, const uint8_t *bytes, size_t size,
                           const char *from) {
    static const size_t member_bytes[] = {0, 56, 56, 72, MEMBER};
    const uint8_t version = bytes[7];
    const size_t one = member_bytes[version];
    const size_t header = version < magic[7] ? OLD_HEADER : HEADER;
    const uint8_t *const body = bytes + header - 16; // seconds and on
    const uint32_t n = hki_get_u32(body + 12);
    HKI_TRY(hki_data_plan_create(&t->plan));
    if (n > MAX_WORKERS)
        return hki_fail(HK_E_DATA,
                        "%s: byte %zu: the number of workers is %u; the limit "
                        "is %u",
                        from, header - 4, n, (unsigned)MAX_WORKERS);
    if ((size - header - 16) / one < n)
        return hki_fail(HK_E_DATA,
                        "%s: byte %zu: the number of workers is %u, but there "
                        "are only %zu bytes for them",
                        from, header - 4, n, size - header - 16);
    const size_t at = header + (size_t)n * one;
    const uint64_t plan = hki_get_u64(bytes + at), rest = size - at - 16;
    const bool has_failures =
        version == magic[7] && (hki_get_u32(body + 8) & FAILURES) != 0;
    if (has_failures ? plan > rest : plan != rest)
        return damaged(from, at, "the length is wrong");
    if (has_failures)
        HKI_TRY(get_failures(t, bytes + at + 8 + plan, (size_t)(rest - plan),
                             at + 8 + (size_t)plan, from));
    const uint64_t seconds = hki_get_u64(body);
    memcpy(&t->seconds, &seconds, sizeof seconds);
    // Version 1 kept the calendar's time of the run's begin; 0: not begun.
    if (version == 1 && t->seconds > 0)
        t->seconds = HKI_MAX(hki_wall_seconds() - t->seconds, 0.0);
    if (!(t->seconds >= 0 && t->seconds < 1e18))
        return damaged(from, header - 16, "the seconds are not a time");
    t->evaluator = (hki_get_u32(body + 8) & EVALUATOR) != 0;
    HKI_TRY(get_members(t, bytes + header, one, n, from));
    return version < 3 ? HK_OK
                       : hki_data_plan_restore(t->plan, bytes + at + 8,
                                               (size_t)plan, from);
}

// The state takes the place of the one that was there; after a failure that
// one stays.
static hk_status take_state(hki_run_memory *k, const uint8_t *bytes,
                            size_t size, const char *from) {
    HKI_SCOPED(state_deinit) run_state t = {0};
    HKI_TRY(get_state(&t, bytes, size, from));
    const run_state was = k->state;
    k->state = t;
    t = was;
    return HK_OK;
}

// ---- the file --------------------------------------------------------------

const uint8_t *hki_run_file_newest(const uint8_t *bytes, size_t size,
                                   size_t *state_bytes) {
    const uint8_t *newest = NULL;
    *state_bytes = state_size(bytes, size);
    if (*state_bytes > 0)
        newest = bytes;
    if (newest != NULL && bytes[7] < magic[7])
        return newest;
    const uint8_t *const other = bytes + size / 2;
    const size_t n = state_size(other, size - size / 2);
    if (n == 0 || other[7] != magic[7] ||
        (newest != NULL && hki_get_u64(bytes + 8) > hki_get_u64(other + 8)))
        return newest;
    *state_bytes = n;
    return other;
}

static void close_file(hki_run_memory *k) {
    if (k->fd >= 0)
        hki_io()->close(k->fd);
    k->fd = -1;
}

static hk_status open_file(hki_run_memory *k) {
    k->fd = hki_io()->open(k->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
    return k->fd >= 0 ? HK_OK : hki_io_fail(errno, k->path, "open");
}

static hk_status write_zeros(hki_file *f, uint64_t size) {
    static const uint8_t zeros[4096];
    for (uint64_t left = size - hki_file_size(f); left > 0;) {
        const size_t n = (size_t)HKI_MIN(left, (uint64_t)sizeof zeros);
        HKI_TRY(hki_file_write(f, zeros, n));
        left -= n;
    }
    return HK_OK;
}

// A new file with the state in its first slot, and room for one of twice the
// size.
static hk_status make_file(hki_run_memory *k) {
    const uint64_t need = 2 * (uint64_t)k->bytes.size;
    const uint64_t slot =
        HKI_MAX((need + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN,
                (uint64_t)LEAST_SLOT);
    const bool durable = k->durability != HKI_DURABLE_PROCESS;
    hki_file *f;
    HKI_TRY(hki_file_create_private(k->path, &f));
    hk_status s = hki_file_write(f, k->bytes.data, k->bytes.size);
    if (s == HK_OK)
        s = write_zeros(f, 2 * slot);
    close_file(k);
    HKI_TRY(hki_file_end(f, s, durable));
    k->slot_bytes = slot;
    k->slot = 0;
    if (durable)
        HKI_TRY(hki_sync_folder(k->path));
    return open_file(k);
}

static hk_status write_slot(hki_run_memory *k) {
    const uint32_t slot = 1 - k->slot;
    HKI_ASSERT(k->slot < 2 && k->bytes.size <= k->slot_bytes);
    HKI_TRY(hki_file_write_over(k->fd, k->path, slot * k->slot_bytes,
                                k->bytes.data, k->bytes.size));
    if (k->durability == HKI_DURABLE_ALWAYS && hki_io()->fsync(k->fd) != 0)
        return hki_io_fail(errno, k->path, "flush to disk");
    k->slot = slot;
    return HK_OK;
}

static hk_status write_state(hki_run_memory *k) {
    HKI_TRY(put_state(&k->state, k->generation + 1, &k->bytes));
    HKI_TRY(k->fd < 0 || k->bytes.size > k->slot_bytes ? make_file(k)
                                                       : write_slot(k));
    k->generation++;
    return HK_OK;
}

// Under the mutex. Its failures are logged once: when they begin, and when the
// file can be written again.
static hk_status save(hki_run_memory *k) {
    if (k->path == NULL)
        return HK_OK;
    k->tried = k->state.seconds;
    const hk_status s = write_state(k);
    k->dirty = s != HK_OK;
    if (k->dirty && !k->failing) {
        k->failing_ns = hki_now_ns();
        hki_log(k->context, HK_LOG_WARNING,
                "%s: exchanges continue, but workers get no new data until "
                "this file can be written: %s",
                k->path, hk_last_error());
    } else if (!k->dirty && k->failing) {
        hki_log(k->context, HK_LOG_WARNING,
                "%s: can be written again after %.1f s; workers get new data",
                k->path, 1e-9 * (double)(hki_now_ns() - k->failing_ns));
    }
    k->failing = k->dirty;
    return s;
}

// What nobody can read is put aside: the values of the center do not depend on
// it.
static hk_status put_aside(hki_run_memory *k) {
    HKI_SCOPED(hki_buf_deinit) hki_buf aside = {0};
    HKI_TRY(hki_buf_printf(&aside, "%s.damaged", k->path));
    if (hki_io()->rename(k->path, aside.data) != 0)
        return hki_io_fail(errno, k->path, "rename");
    hki_log(k->context, HK_LOG_WARNING,
            "%s: damaged, and renamed to %s: the run's time, the list of "
            "finished workers and the used data are lost; the values are not; "
            "the data starts again with the first epoch",
            k->path, aside.data);
    return HK_OK;
}

static hk_status use_file(hki_run_memory *k, uint32_t slot, uint64_t generation,
                          uint64_t slot_bytes) {
    k->slot = slot;
    k->generation = generation;
    k->slot_bytes = slot_bytes;
    return open_file(k);
}

static hk_status load_bytes(hki_run_memory *k, const uint8_t *bytes,
                            size_t size) {
    size_t n;
    const uint8_t *const newest = hki_run_file_newest(bytes, size, &n);
    if (newest == NULL)
        return damaged(k->path, 0, "the state of the run is incomplete");
    HKI_TRY(take_state(k, newest, n, k->path));
    k->tried = k->state.seconds;
    if (newest[7] == magic[7] && n <= size / 2)
        return use_file(k, newest != bytes, hki_get_u64(newest + 8), size / 2);
    return HK_OK; // the first save makes a new file
}

static hk_status load(hki_run_memory *k) {
    HKI_FREED uint8_t *bytes = NULL;
    size_t size;
    if (k->path == NULL || !hki_path_exists(k->path))
        return HK_OK;
    HKI_TRY(hki_file_read_private(k->path, MAX_FILE, &bytes, &size));
    const hk_status s = load_bytes(k, bytes, size);
    return s == HK_E_DATA ? put_aside(k) : s;
}

hk_status hki_run_memory_sync(hki_run_memory *k) {
    HKI_LOCKED(&k->mutex);
    if (k->path == NULL)
        return HK_OK;
    HKI_TRY(save(k));
    if (hki_io()->fsync(k->fd) != 0)
        return hki_io_fail(errno, k->path, "flush to disk");
    return hki_sync_folder(k->path);
}

// ---- create and destroy ----------------------------------------------------

HKI_SCOPED_HANDLE(hki_run_memory, hki_run_memory_destroy)

hk_status hki_run_memory_create(hk_context *ctx, const char *path,
                                hki_durability durability,
                                hki_run_memory **out) {
    HKI_SCOPED(hki_run_memory_destroy_at) hki_run_memory *k = NULL;
    HKI_TRY(hki_zalloc_array(1, sizeof *k, &k));
    hki_mutex_init(&k->mutex);
    k->context = ctx;
    k->durability = durability;
    k->fd = -1;
    HKI_TRY(hki_data_plan_create(&k->state.plan));
    if (path != NULL)
        HKI_TRY(hki_strdup(path, &k->path));
    HKI_TRY(load(k));
    return HKI_HAND_ON(out, k);
}

void hki_run_memory_destroy(hki_run_memory *k) {
    if (k == NULL)
        return;
    state_deinit(&k->state);
    hki_buf_deinit(&k->bytes);
    close_file(k);
    hki_free(k->path);
    hki_mutex_deinit(&k->mutex);
    hki_free(k);
}

// ---- the run ---------------------------------------------------------------

void hki_run_memory_pass(hki_run_memory *k, int64_t now_ns) {
    HKI_LOCKED(&k->mutex);
    const bool first = k->passed_ns == 0;
    if (!first)
        k->state.seconds += 1e-9 * (double)(now_ns - k->passed_ns);
    k->passed_ns = now_ns;
    if (first || k->state.seconds - k->tried >=
                     (k->dirty ? RETRY_SECONDS : SAVE_SECONDS))
        (void)save(k);
}

hki_run_facts hki_run_memory_facts(hki_run_memory *k) {
    HKI_LOCKED(&k->mutex);
    const hki_run_facts facts = {.seconds = k->state.seconds,
                                 .used_up =
                                     hki_data_plan_used_up(k->state.plan),
                                 .evaluator = k->state.evaluator};
    return facts;
}

void hki_run_memory_set_evaluator(hki_run_memory *k, bool about) {
    HKI_LOCKED(&k->mutex);
    if (k->state.evaluator == about)
        return;
    k->state.evaluator = about;
    (void)save(k);
}

// Where the worker's failure is, or would be.
static uint32_t failure_position(const hki_run_memory *k, uint32_t id) {
    size_t i;
    HKI_FIRST(i, k->state.failed.n, k->state.failed.at[i].id >= id);
    return (uint32_t)i;
}

static bool has_failed(const hki_run_memory *k, uint32_t at, uint32_t id) {
    return at < k->state.failed.n && k->state.failed.at[at].id == id;
}

static hk_status put_failure(run_state *t, uint32_t at, bool is_new,
                             const failure *f) {
    if (is_new) {
        HKI_TRY(hki_list_reserve(&t->failed.at, t->failed.n + 1u,
                                 &t->failed.capacity, sizeof *t->failed.at));
        memmove(&t->failed.at[at + 1], &t->failed.at[at],
                (t->failed.n - at) * sizeof *t->failed.at);
        t->failed.n++;
    }
    t->failed.at[at] = *f;
    return HK_OK;
}

// The shard is asked under the mutex, so that of two changes of one worker the
// last one counts.
void hki_run_memory_note_failure(hki_run_memory *k, uint32_t worker,
                                 hki_failure_fn failed, void *user) {
    failure f = {.id = worker};
    HKI_LOCKED(&k->mutex);
    run_state *const t = &k->state;
    const uint32_t at = failure_position(k, worker);
    const bool before = has_failed(k, at, worker);
    const bool now = failed(user, worker, f.text, sizeof f.text);
    if (now ? before && strcmp(f.text, t->failed.at[at].text) == 0 : !before)
        return;
    if (!now) {
        t->failed.n--;
        memmove(&t->failed.at[at], &t->failed.at[at + 1],
                (t->failed.n - at) * sizeof *t->failed.at);
    } else if (put_failure(t, at, !before, &f) != HK_OK) {
        return; // no memory; the shard has logged the failure
    }
    (void)save(k);
}

bool hki_run_memory_failure(hki_run_memory *k, uint32_t worker, char *out,
                            size_t size) {
    HKI_LOCKED(&k->mutex);
    const uint32_t at = failure_position(k, worker);
    if (!has_failed(k, at, worker))
        return false;
    snprintf(out, size, "%s", k->state.failed.at[at].text);
    return true;
}

// Where the worker is, or would be.
static uint32_t position(const hki_run_memory *k, uint32_t id) {
    size_t i;
    HKI_FIRST(i, k->state.count, k->state.member[i].id >= id);
    return (uint32_t)i;
}

static member *find(hki_run_memory *k, uint32_t id) {
    const uint32_t at = position(k, id);
    return at < k->state.count && k->state.member[at].id == id
               ? &k->state.member[at]
               : NULL;
}

bool hki_run_memory_is_done(hki_run_memory *k, uint32_t worker) {
    HKI_LOCKED(&k->mutex);
    const member *const m = find(k, worker);
    return m != NULL && m->done;
}

#define PROCESS UINT64_MAX                  // bits of an owner: this process,
#define WORKER (UINT64_C(0xffffffff) << 32) // or any of the worker's

// A worker's process: what was lent to an earlier one is not its.
static uint64_t owner_of(const member *m) {
    return (uint64_t)m->id << 32 | m->nonce;
}

// What the worker's process held goes back; the next call of it begins anew.
static bool expire(hki_run_memory *k, member *m) {
    const bool any = hki_data_plan_expire(k->state.plan, owner_of(m));
    m->nonce = 0;
    return any;
}

void hki_run_memory_expire(hki_run_memory *k, hki_is_live_fn is_live,
                           void *user) {
    bool any = false;
    HKI_LOCKED(&k->mutex);
    for (uint32_t i = 0; i < k->state.count; i++) {
        member *const m = &k->state.member[i];
        if (m->nonce != 0 && !is_live(user, m->id))
            any |= expire(k, m);
    }
    if (any)
        (void)save(k);
}

void hki_run_memory_count(hki_run_memory *k, uint32_t worker,
                          const uint64_t *ranges, size_t n) {
    const uint64_t owner = (uint64_t)worker << 32;
    bool any = false;
    HKI_LOCKED(&k->mutex);
    for (size_t i = 0; i < n; i++)
        any |= hki_data_plan_return(k->state.plan, owner, WORKER, ranges[i],
                                    HK_RANGE_ALL) == HK_OK;
    if (any)
        (void)save(k);
}

// ---- snapshots -------------------------------------------------------------

hk_status hki_run_memory_put(hki_run_memory *k, hki_buf *out) {
    HKI_LOCKED(&k->mutex);
    return put_state(&k->state, 0, out);
}

hk_status hki_run_memory_restore(hki_run_memory *k, const hki_buf *from) {
    const uint8_t *const bytes = bytes_of(from);
    HKI_LOCKED(&k->mutex);
    const run_state *const t = &k->state;
    const double seconds = t->seconds;
    const bool evaluator = t->evaluator;
    if (state_size(bytes, from->size) != from->size)
        return damaged("snapshot", 0, "the state of the run is incomplete");
    HKI_SCOPED(state_deinit) run_state back = {0};
    HKI_TRY(get_state(&back, bytes, from->size, "snapshot"));
    // Who has failed since, and who has come back, is not undone.
    const failure_list older = back.failed;
    back.failed = k->state.failed;
    k->state.failed = older;
    const run_state was = k->state;
    k->state = back;
    back = was;
    k->state.seconds = HKI_MAX(t->seconds, seconds);
    k->state.evaluator |= evaluator;
    for (uint32_t i = 0; i < t->count; i++)
        (void)expire(k, &t->member[i]);
    hki_data_plan_skip_ids(t->plan);
    (void)save(k);
    return HK_OK;
}

// ---- answers ---------------------------------------------------------------

// The caller's entry; a new process of a worker starts afresh.
static hk_status enter(hki_run_memory *k, const hki_msg_call *call,
                       member **out) {
    const uint32_t at = position(k, call->worker);
    if (at == k->state.count || k->state.member[at].id != call->worker) {
        HKI_TRY(hki_list_reserve(&k->state.member, k->state.count + 1u,
                                 &k->state.capacity, sizeof *k->state.member));
        memmove(&k->state.member[at + 1], &k->state.member[at],
                (k->state.count - at) * sizeof *k->state.member);
        k->state.member[at] = (member){.id = call->worker};
        k->state.count++;
    }
    member *const m = &k->state.member[at];
    if (m->nonce != call->nonce) {
        (void)expire(k, m);
        *m = (member){.id = call->worker, .nonce = call->nonce};
    }
    *out = m;
    return HK_OK;
}

static hk_status declare(hki_run_memory *k, const hki_msg_call *call,
                         hki_msg_result *r) {
    const hk_lent_set want = {.name = call->name,
                              .fingerprint = call->fingerprint,
                              .seed = call->seed,
                              .units = call->units,
                              .epochs = call->epochs,
                              .workers = call->workers};
    return hki_data_plan_declare(k->state.plan, &want, &r->set, &r->seed);
}

static hk_status take(hki_run_memory *k, const hki_msg_call *call,
                      uint32_t live, const member *m, hki_msg_result *r) {
    hk_range range = {0};
    const hki_taker who = {
        .owner = owner_of(m), .live = live, .holds = call->units};
    const hk_status s =
        hki_data_plan_take(k->state.plan, call->set, &who, &range);
    // Both are answers, not faults.
    if (s != HK_OK && s != HK_E_END && s != HK_E_UNAVAILABLE)
        return s;
    *r = (hki_msg_result){.status = (uint32_t)s,
                          .range = range.id,
                          .epoch = range.epoch,
                          .begin = range.begin,
                          .end = range.end,
                          .used = range.used};
    return HK_OK;
}

static hk_status give_back(hki_run_memory *k, const hki_msg_call *call,
                           const member *m, hki_msg_result *r) {
    if (call->range == 0) {
        (void)hki_data_plan_expire(k->state.plan, owner_of(m));
        return HK_OK;
    }
    const hk_status s = hki_data_plan_return(k->state.plan, owner_of(m),
                                             PROCESS, call->range, call->used);
    r->status = (uint32_t)s;
    // Silent for too long, and somebody else has it: an answer, too.
    return s == HK_E_NOT_FOUND ? HK_OK : s;
}

static hk_status carry_out(hki_run_memory *k, const hki_msg_call *call,
                           uint32_t live, member *m, hki_msg_result *r) {
    *r = (hki_msg_result){.status = HK_OK};
    switch (call->op) {
    case HKI_CALL_TAKE:
        return take(k, call, live, m, r);
    case HKI_CALL_GIVE_BACK:
        return give_back(k, call, m, r);
    case HKI_CALL_DECLARE:
        return declare(k, call, r);
    default:
        m->done = true;
        return HK_OK;
    }
}

static hk_status check_call(const hki_msg_call *c) {
    if (c->op >= HKI_CALL_TAKE && c->op <= HKI_CALL_DECLARE &&
        c->worker < MAX_WORKERS && c->nonce != 0 && c->used >= 0 &&
        (c->op != HKI_CALL_TAKE || c->units >= 0))
        return HK_OK;
    return hki_fail(HK_E_DATA,
                    "invalid call %u of worker %u, process %u, used %lld",
                    c->op, c->worker, c->nonce, (long long)c->used);
}

// Tells one question from another.
static uint64_t hash_call(const hki_msg_call *call) {
    hki_msg_call c = *call;
    uint8_t body[HKI_MAX_MESSAGE];
    c.nonce = c.sequence = 0;
    c.incarnation = 0; // the worker may have joined again since
    const size_t n = hki_body_put(&hki_body_call, &c, body);
    const uint64_t h = hki_hash(HKI_HASH_INIT, body, n);
    return h != 0 ? h : 1;
}

// The question that was answered last, again.
static hk_status repeat(const hki_msg_call *call, const member *m,
                        hki_msg_result *out) {
    if (m->asked != 0 && m->asked != hash_call(call))
        return hki_fail(HK_E_DATA,
                        "call %u of worker %u was repeated with other contents",
                        call->sequence, call->worker);
    *out = m->result;
    return HK_OK;
}

// Anybody may give something back; only the worker's process has something. An
// earlier one, or a stranger, does not take its place.
static bool has_nothing(hki_run_memory *k, const hki_msg_call *call) {
    const member *const m = find(k, call->worker);
    return call->op == HKI_CALL_GIVE_BACK &&
           (m == NULL || m->nonce != call->nonce);
}

// The mutex is held.
static hk_status serve(hki_run_memory *k, const hki_msg_call *call,
                       uint32_t live, hki_msg_result *out) {
    member *m;
    if (has_nothing(k, call)) {
        const hk_status s = call->range == 0 ? HK_OK : HK_E_NOT_FOUND;
        *out = (hki_msg_result){.status = (uint32_t)s};
        return HK_OK;
    }
    HKI_TRY(enter(k, call, &m));
    if (call->sequence != 0 && call->sequence == m->sequence)
        return repeat(call, m, out);
    if (call->sequence < m->sequence)
        return hki_fail(HK_E_STATE,
                        "call %u of worker %u came after its call %u",
                        call->sequence, call->worker, m->sequence);
    HKI_TRY(carry_out(k, call, live, m, out));
    m->sequence = call->sequence;
    m->asked = hash_call(call);
    m->result = *out;
    k->dirty = true;
    return HK_OK;
}

// The mutex is held. What cannot be saved has not happened: `before` takes its
// place again, and the caller asks again.
static hk_status serve_and_save(hki_run_memory *k, const hki_msg_call *call,
                                uint32_t live, const hki_buf *before,
                                hki_msg_result *out) {
    const hk_status s = serve(k, call, live, out);
    const bool is_lost = s == HK_OK && k->dirty && save(k) != HK_OK;
    if (!is_lost && s != HK_E_NO_MEMORY)
        return s;
    const hki_fault fault = hki_fault_of(HK_E_UNAVAILABLE);
    (void)take_state(k, bytes_of(before), before->size, "run");
    return hki_fault_raise(&fault);
}

hk_status hki_run_memory_call(hki_run_memory *k, const hki_msg_call *call,
                              uint32_t live, hki_msg_result *out) {
    HKI_SCOPED(hki_buf_deinit) hki_buf before = {0};
    HKI_TRY(check_call(call));
    HKI_LOCKED(&k->mutex);
    if (put_state(&k->state, 0, &before) != HK_OK)
        return hki_fail(HK_E_UNAVAILABLE,
                        "out of memory in call %u of worker %u", call->sequence,
                        call->worker);
    return serve_and_save(k, call, live, &before, out);
}
