// run_memory.c - the run's memory on shard 0. A call that comes twice (its
// answer was lost) is answered with the same words and changes nothing; every
// change is in the file before it is answered.
#include "cluster/center/run_memory.h"
#include <pthread.h>
#include "base/io.h"
#include "cluster/center/data_plan.h"
#include "codec/codec.h"

#define MAX_WORKERS HKI_MAX_SEATS
#define HEADER 24     // magic, seconds, flags, members
#define MEMBER 72     // bytes of one in the file
#define OLD_MEMBER 56 // of versions 1 and 2
#define MAX_FILE (256u << 20)

enum { // flags in the file
    EVALUATOR = 2
};

#define SAVE_SECONDS 5 // of the run's time, that a killed process may lose

static const char magic[8] = {'H', 'K', 'R', 'U', 'N', 0, 0, 3};

typedef struct member {
    uint32_t id, nonce, sequence;
    bool done;
    hki_msg_result result; // of call `sequence`
} member;

struct hki_run_memory {
    pthread_mutex_t mutex; // guards everything below
    hki_data_plan *plan;
    bool evaluator;
    bool dirty;            // the file is behind
    double seconds, tried; // of the run; when the file last got them
    int64_t passed_ns;     // of the last call; 0: none in this process
    member *member;        // sorted by id
    uint32_t count;
    size_t capacity;
    char *path; // NULL: in memory only
    hki_buf file;
};

// ---- a member as bytes -----------------------------------------------------

static void put_member(uint8_t out[MEMBER], const member *m) {
    const hki_msg_result *const r = &m->result;
    const uint32_t first[6] = {m->id,     m->nonce, m->sequence,
                               r->status, m->done,  r->set};
    const uint64_t last[6] = {r->range,           (uint64_t)r->epoch,
                              (uint64_t)r->begin, (uint64_t)r->end,
                              (uint64_t)r->used,  r->seed};
    for (size_t i = 0; i < HKI_COUNT(first); i++)
        hki_put_u32(out + 4 * i, first[i]);
    for (size_t i = 0; i < HKI_COUNT(last); i++)
        hki_put_u64(out + sizeof first + 8 * i, last[i]);
}

static member get_member(const uint8_t *p, size_t size) {
    member m = {.id = hki_get_u32(p),
                .nonce = hki_get_u32(p + 4),
                .sequence = hki_get_u32(p + 8),
                .done = hki_get_u32(p + 16) != 0,
                .result = {.status = hki_get_u32(p + 12),
                           .set = hki_get_u32(p + 20),
                           .range = hki_get_u64(p + 24),
                           .epoch = (int64_t)hki_get_u64(p + 32),
                           .begin = (int64_t)hki_get_u64(p + 40),
                           .end = (int64_t)hki_get_u64(p + 48)}};
    if (size == MEMBER) {
        m.result.used = (int64_t)hki_get_u64(p + 56);
        m.result.seed = hki_get_u64(p + 64);
    }
    return m;
}

// ---- the file --------------------------------------------------------------

static hk_status add_u32(hki_buf *b, uint32_t v) {
    uint8_t bytes[4];
    hki_put_u32(bytes, v);
    return hki_buf_add(b, bytes, sizeof bytes);
}

static hk_status add_u64(hki_buf *b, uint64_t v) {
    uint8_t bytes[8];
    hki_put_u64(bytes, v);
    return hki_buf_add(b, bytes, sizeof bytes);
}

// The plan, and in front of it its length.
static hk_status add_plan(hki_run_memory *k, hki_buf *b) {
    const size_t at = b->size;
    HKI_TRY(add_u64(b, 0));
    HKI_TRY(hki_data_plan_save(k->plan, b));
    hki_put_u64(b->data + at, b->size - at - 8);
    return HK_OK;
}

// Under the mutex. A killed process loses nothing that the kernel has, so no
// fsync.
static hk_status save(hki_run_memory *k) {
    if (k->path == NULL)
        return HK_OK;
    hki_buf *const b = &k->file;
    uint64_t seconds;
    k->dirty = true;
    k->tried = k->seconds;
    memcpy(&seconds, &k->seconds, sizeof seconds);
    b->size = 0;
    HKI_TRY(hki_buf_add(b, magic, sizeof magic));
    HKI_TRY(add_u64(b, seconds));
    HKI_TRY(add_u32(b, k->evaluator ? EVALUATOR : 0u));
    HKI_TRY(add_u32(b, k->count));
    for (uint32_t i = 0; i < k->count; i++) {
        uint8_t bytes[MEMBER];
        put_member(bytes, &k->member[i]);
        HKI_TRY(hki_buf_add(b, bytes, sizeof bytes));
    }
    HKI_TRY(add_plan(k, b));
    HKI_TRY(add_u64(b, hki_hash(HKI_HASH_INIT, b->data, b->size)));
    HKI_TRY(hki_file_replace_private(k->path, b->data, b->size, false));
    k->dirty = false;
    return HK_OK;
}

static hk_status damaged(const char *path, size_t at, const char *what) {
    return hki_fail(HK_E_DATA, "%s: byte %zu: %s", path, at, what);
}

static hk_status restore_members(hki_run_memory *k, const uint8_t *p,
                                 size_t bytes, uint32_t n) {
    HKI_TRY(hki_alloc_array(HKI_MAX(n, 1u), sizeof *k->member, &k->member));
    k->capacity = HKI_MAX(n, 1u);
    for (uint32_t i = 0; i < n; i++, p += bytes) {
        const member m = get_member(p, bytes);
        HKI_TRY(hki_result_check(&m.result, k->path));
        if (m.id >= MAX_WORKERS || (i > 0 && m.id <= k->member[i - 1].id))
            return damaged(k->path, HEADER + (size_t)i * bytes,
                           "workers are not in order");
        k->member[k->count++] = m;
    }
    return HK_OK;
}

static hk_status restore(hki_run_memory *k, const uint8_t *bytes, size_t size) {
    if (size < HEADER + 16 || memcmp(bytes, magic, sizeof magic - 1) != 0 ||
        bytes[7] < 1 || bytes[7] > magic[7])
        return damaged(k->path, 0, "not the memory of a run");
    const bool is_old = bytes[7] < magic[7];
    const size_t one = is_old ? OLD_MEMBER : MEMBER;
    const uint32_t n = hki_get_u32(bytes + 20);
    if (n > MAX_WORKERS || (size - HEADER - 16) / one < n)
        return damaged(k->path, 20, "more workers than it holds");
    const size_t at = HEADER + (size_t)n * one;
    const uint64_t plan = hki_get_u64(bytes + at);
    if (plan != size - at - 16)
        return damaged(k->path, at, "its length is wrong");
    if (hki_get_u64(bytes + size - 8) !=
        hki_hash(HKI_HASH_INIT, bytes, size - 8))
        return damaged(k->path, size - 8, "its checksum is wrong");
    const uint64_t seconds = hki_get_u64(bytes + 8);
    memcpy(&k->seconds, &seconds, sizeof seconds);
    // Version 1 kept the calendar's time of the run's begin; 0: not begun.
    if (bytes[7] == 1 && k->seconds > 0)
        k->seconds = HKI_MAX(hki_wall_seconds() - k->seconds, 0.0);
    if (!(k->seconds >= 0 && k->seconds < 1e18))
        return damaged(k->path, 8, "its seconds are no time");
    k->tried = k->seconds;
    k->evaluator = (hki_get_u32(bytes + 16) & EVALUATOR) != 0;
    HKI_TRY(restore_members(k, bytes + HEADER, one, n));
    return is_old ? HK_OK
                  : hki_data_plan_restore(k->plan, bytes + at + 8, (size_t)plan,
                                          k->path);
}

static hk_status load(hki_run_memory *k) {
    HKI_FREED uint8_t *bytes = NULL;
    size_t size;
    if (k->path == NULL || !hki_path_exists(k->path))
        return HK_OK;
    HKI_TRY(hki_file_read_private(k->path, MAX_FILE, &bytes, &size));
    return restore(k, bytes, size);
}

// ---- create and destroy ----------------------------------------------------

HKI_SCOPED_HANDLE(hki_run_memory, hki_run_memory_destroy)

hk_status hki_run_memory_create(const char *path, hki_run_memory **out) {
    HKI_SCOPED(hki_run_memory_destroy_at) hki_run_memory *k = NULL;
    HKI_TRY(hki_zalloc_array(1, sizeof *k, &k));
    pthread_mutex_init(&k->mutex, NULL);
    HKI_TRY(hki_data_plan_create(&k->plan));
    if (path != NULL)
        HKI_TRY(hki_strdup(path, &k->path));
    HKI_TRY(load(k));
    return HKI_HAND_ON(out, k);
}

void hki_run_memory_destroy(hki_run_memory *k) {
    if (k == NULL)
        return;
    hki_data_plan_destroy(k->plan);
    hki_buf_deinit(&k->file);
    hki_free(k->member);
    hki_free(k->path);
    pthread_mutex_destroy(&k->mutex);
    hki_free(k);
}

// ---- the run ---------------------------------------------------------------

hk_status hki_run_memory_pass(hki_run_memory *k, int64_t now_ns) {
    HKI_LOCKED(&k->mutex);
    const bool first = k->passed_ns == 0;
    if (!first)
        k->seconds += 1e-9 * (double)(now_ns - k->passed_ns);
    k->passed_ns = now_ns;
    if (first || k->seconds - k->tried >= SAVE_SECONDS)
        HKI_TRY(save(k));
    return HK_OK;
}

hki_run_facts hki_run_memory_facts(hki_run_memory *k) {
    HKI_LOCKED(&k->mutex);
    const hki_run_facts facts = {.seconds = k->seconds,
                                 .used_up = hki_data_plan_used_up(k->plan),
                                 .evaluator = k->evaluator};
    return facts;
}

hk_status hki_run_memory_set_evaluator(hki_run_memory *k, bool about) {
    HKI_LOCKED(&k->mutex);
    if (k->evaluator != about) {
        k->evaluator = about;
        HKI_TRY(save(k));
    }
    return HK_OK;
}

// Where the worker is, or would be.
static uint32_t position(const hki_run_memory *k, uint32_t id) {
    size_t i;
    HKI_FIRST(i, k->count, k->member[i].id >= id);
    return (uint32_t)i;
}

static member *find(hki_run_memory *k, uint32_t id) {
    const uint32_t at = position(k, id);
    return at < k->count && k->member[at].id == id ? &k->member[at] : NULL;
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
    const bool any = hki_data_plan_expire(k->plan, owner_of(m));
    m->nonce = 0;
    return any;
}

hk_status hki_run_memory_expire(hki_run_memory *k, hki_is_live_fn is_live,
                                void *user) {
    bool any = false;
    HKI_LOCKED(&k->mutex);
    for (uint32_t i = 0; i < k->count; i++) {
        member *const m = &k->member[i];
        if (m->nonce != 0 && !is_live(user, m->id))
            any |= expire(k, m);
    }
    if (any)
        HKI_TRY(save(k));
    return HK_OK;
}

hk_status hki_run_memory_count(hki_run_memory *k, uint32_t worker,
                               const uint64_t *ranges, size_t n) {
    const uint64_t owner = (uint64_t)worker << 32;
    bool any = false;
    HKI_LOCKED(&k->mutex);
    for (size_t i = 0; i < n; i++)
        any |= hki_data_plan_return(k->plan, owner, WORKER, ranges[i],
                                    HK_RANGE_ALL) == HK_OK;
    if (any)
        HKI_TRY(save(k));
    return HK_OK;
}

// ---- answers ---------------------------------------------------------------

// The caller's entry; a new process of a worker starts afresh.
static hk_status enter(hki_run_memory *k, const hki_msg_call *call,
                       member **out) {
    const uint32_t at = position(k, call->worker);
    if (at == k->count || k->member[at].id != call->worker) {
        HKI_TRY(hki_list_reserve(&k->member, k->count + 1u, &k->capacity,
                                 sizeof *k->member));
        memmove(&k->member[at + 1], &k->member[at],
                (k->count - at) * sizeof *k->member);
        k->member[at] = (member){.id = call->worker};
        k->count++;
    }
    member *const m = &k->member[at];
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
    return hki_data_plan_declare(k->plan, &want, &r->set, &r->seed);
}

static hk_status take(hki_run_memory *k, const hki_msg_call *call,
                      const member *m, hki_msg_result *r) {
    hk_range range = {0};
    const hk_status s =
        hki_data_plan_take(k->plan, call->set, owner_of(m), &range);
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
        (void)hki_data_plan_expire(k->plan, owner_of(m));
        return HK_OK;
    }
    const hk_status s = hki_data_plan_return(k->plan, owner_of(m), PROCESS,
                                             call->range, call->used);
    r->status = (uint32_t)s;
    // Silent for too long, and somebody else has it: an answer, too.
    return s == HK_E_NOT_FOUND ? HK_OK : s;
}

static hk_status carry_out(hki_run_memory *k, const hki_msg_call *call,
                           member *m, hki_msg_result *r) {
    *r = (hki_msg_result){.status = HK_OK};
    switch (call->op) {
    case HKI_CALL_TAKE:
        return take(k, call, m, r);
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
        c->worker < MAX_WORKERS && c->nonce != 0 && c->used >= 0)
        return HK_OK;
    return hki_fail(HK_E_DATA, "call %u of worker %u, process %u, used %lld",
                    c->op, c->worker, c->nonce, (long long)c->used);
}

// The mutex is held.
static hk_status serve(hki_run_memory *k, const hki_msg_call *call,
                       hki_msg_result *out) {
    member *m;
    HKI_TRY(enter(k, call, &m));
    if (call->sequence != 0 && call->sequence == m->sequence) {
        *out = m->result;
        return k->dirty ? save(k) : HK_OK;
    }
    if (call->sequence < m->sequence)
        return hki_fail(HK_E_STATE, "call %u of worker %u after call %u",
                        call->sequence, call->worker, m->sequence);
    HKI_TRY(carry_out(k, call, m, out));
    m->sequence = call->sequence;
    m->result = *out;
    return save(k);
}

hk_status hki_run_memory_call(hki_run_memory *k, const hki_msg_call *call,
                              hki_msg_result *out) {
    HKI_TRY(check_call(call));
    HKI_LOCKED(&k->mutex);
    return serve(k, call, out);
}
