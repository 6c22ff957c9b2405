// map.c - a user's function over every element, several calls at once.
//
// Elements under way sit in a ring of slots, in the order of the input. A slot
// keeps its input item until its output has been given, so that a position is
// saved as the inputs of the calls that have not been delivered: they are
// called again after a restore.
//
// The same node without a user's function applies the library's functions of
// the chain below it (hki_data_made).
#include "data/core/pipeline.h"

typedef struct config {
    hk_map_fn f; // NULL: the chain below is the function
    void *user;
    void (*destroy)(void *user);
    int32_t parallel;
    bool unordered;
    uint64_t seed;
} config;

// From submit to the gang's word that the task is done a slot is the task's,
// else the consumer's; nothing in it needs a lock.
typedef struct slot {
    hki_task task;
    hki_node *n;
    hki_loader *loader;
    hki_item in;
    uint64_t position, pass;
    hki_box *out;
    hki_fault fault;
    bool skip;
} slot;

// ring[first .. first + used) are under way, the oldest first; `pulled` counts
// those and all that were given before.
typedef struct state {
    slot **ring;
    hki_task **tasks; // those of the ring, for waiting
    size_t room, first, used;
    uint64_t pulled; // items taken from the input in this pass
    bool ended;      // the input is at its end
    hki_fault fault; // of the input, told when what came before it is given
} state;

// ---- one call --------------------------------------------------------------

static hk_status call_user(slot *s, const hk_element *in) {
    const config *const c = s->n->d->config;
    hki_box *box;
    HKI_TRY(hki_node_bare_box(s->n, &box));
    hk_builder b = {.op = "map", .box = box};
    const hk_map_call call = {.in = in,
                              .out = &b,
                              .position = s->position,
                              .seed = c->seed,
                              .pass = s->pass};
    hk_status e = c->f(c->user, &call);
    if (e == HK_E_END)
        e = hki_fail(HK_E_STATE,
                     "map: the function returned HK_E_END, which it may not");
    if (e == HK_OK)
        e = hki_builder_finish(&b, in);
    if (e != HK_OK)
        hki_box_release(box);
    else
        s->out = box;
    return e;
}

// Makes s->out of s->in. Also a task of the gang.
static void work(void *arg) {
    slot *const s = arg;
    const config *const c = s->n->d->config;
    hk_status e = hki_run_check(s->n->run);
    s->skip = false;
    s->out = NULL;
    if (e == HK_OK && c->f == NULL) {
        e = hki_node_load(s->n, s->loader, &s->in, &s->out, &s->skip);
    } else if (e == HK_OK) {
        const hk_element *in;
        e = hki_loader_view(s->loader, &s->in, &in, &s->skip);
        if (e == HK_OK && !s->skip)
            e = call_user(s, in);
    }
    if (e != HK_OK)
        hki_fault_set(&s->fault, e);
    else
        s->fault.status = HK_OK;
}

// ---- slots -----------------------------------------------------------------

static void slot_destroy(slot *s) {
    if (s == NULL)
        return;
    hki_loader_close(s->loader);
    hki_free(s);
}

static hk_status slot_create(hki_node *n, slot **out) {
    slot *s;
    HKI_TRY(hki_zalloc_array(1, sizeof *s, &s));
    HKI_TRY_OR(hki_loader_open(n->inputs[0]->d, n->run, &s->loader),
               slot_destroy(s));
    s->n = n;
    s->task = (hki_task){.fn = work, .arg = s};
    *out = s;
    return HK_OK;
}

// Makes the ring `room` slots long; it is empty.
static hk_status make_room(hki_node *n, size_t room) {
    state *const s = n->state;
    if (room <= s->room)
        return HK_OK;
    HKI_TRY(hki_realloc_array(room, sizeof *s->ring, &s->ring));
    HKI_TRY(hki_realloc_array(room, sizeof *s->tasks, &s->tasks));
    while (s->room < room) {
        HKI_TRY(slot_create(n, &s->ring[s->room]));
        s->room++;
    }
    return HK_OK;
}

// Where in the ring the slot i behind the first is; there is one at least.
static size_t place_of(const state *s, size_t i) {
    return (s->first + i) % HKI_MAX(s->room, 1);
}

static slot *slot_at(state *s, size_t i) {
    return s->ring[place_of(s, i)];
}

// Frees what a slot holds; its task is idle.
static void clear_slot(hki_node *n, slot *s) {
    hki_item_free(n->inputs[0], &s->in);
    hki_box_release(s->out);
    s->out = NULL;
}

static void drain(hki_node *n) {
    state *const s = n->state;
    for (size_t i = 0; i < s->used; i++) {
        hki_gang_wait(n->run->gang, &slot_at(s, i)->task);
        clear_slot(n, slot_at(s, i));
    }
    s->first = s->used = 0;
}

static hk_status open_node(hki_node *n) {
    const config *const c = n->d->config;
    const uint32_t threads = hki_run_threads(n->run);
    HKI_TRY(hki_node_pool(n)); // before threads ask for it
    size_t room = c->parallel == HK_DATA_AUTO ? threads : (size_t)c->parallel;
    if (c->f == NULL)
        room = hki_fn_parallel(n->inputs[0]->d, n->run);
    return make_room(n, room);
}

static void close_node(hki_node *n) {
    state *const s = n->state;
    drain(n);
    for (size_t i = 0; i < s->room; i++)
        slot_destroy(s->ring[i]);
    hki_free(s->ring);
    hki_free(s->tasks);
}

// ---- passes ----------------------------------------------------------------

static hk_status start(hki_node *n) {
    state *const s = n->state;
    drain(n);
    s->pulled = 0;
    s->ended = false;
    s->fault.status = HK_OK;
    return hki_node_start(n->inputs[0]);
}

// Puts the next input item into the slot behind the last one.
static hk_status pull(hki_node *n, bool keep) {
    state *const s = n->state;
    hki_node *const input = n->inputs[0];
    slot *const to = slot_at(s, s->used);
    HKI_TRY(hki_run_check(n->run));
    hk_status e = hki_node_next(input, &to->in);
    if (e == HK_E_END)
        s->ended = true;
    HKI_TRY(e);
    if (keep && (e = hki_item_keep(input, &to->in)) != HK_OK) {
        hki_item_free(input, &to->in);
        return e;
    }
    to->position = s->pulled++;
    to->pass = n->pass - 1;
    s->used++;
    return HK_OK;
}

static void top_up(hki_node *n) {
    state *const s = n->state;
    while (!s->ended && s->fault.status == HK_OK && s->used < s->room) {
        const hk_status e = pull(n, true);
        if (e == HK_OK)
            hki_gang_submit(n->run->gang, &slot_at(s, s->used - 1)->task);
        else if (e != HK_E_END)
            hki_fault_set(&s->fault, e);
    }
}

// Nothing is under way: the fault that ended it, or the end.
static hk_status nothing_left(state *s) {
    const hk_status e = hki_fault_take(&s->fault);
    return e != HK_OK ? e : HK_E_END;
}

// Brings a finished slot to the front: the first, or without order any.
static void await_one(hki_node *n) {
    const config *const c = n->d->config;
    state *const s = n->state;
    hki_gang *const gang = n->run->gang;
    for (size_t i = 0; i < s->used; i++)
        s->tasks[i] = &slot_at(s, i)->task;
    if (!c->unordered) {
        hki_gang_first(gang, s->tasks, s->used);
        return;
    }
    hki_gang_any(gang, s->tasks, s->used);
    size_t ready = 0;
    while (!hki_gang_poll(gang, &slot_at(s, ready)->task))
        ready++;
    slot *const found = slot_at(s, ready);
    // Those before it move up by one, so that their order stays.
    for (size_t i = ready; i > 0; i--)
        s->ring[place_of(s, i)] = slot_at(s, i - 1);
    s->ring[s->first] = found;
}

// Takes the first slot out of the ring.
static hk_status deliver(hki_node *n, hki_item *out, bool *skip) {
    state *const s = n->state;
    slot *const done = slot_at(s, 0);
    s->first = place_of(s, 1);
    s->used--;
    out->box = done->out;
    done->out = NULL;
    *skip = done->skip;
    clear_slot(n, done);
    return hki_fault_raise(&done->fault);
}

static hk_status next(hki_node *n, hki_item *out) {
    state *const s = n->state;
    bool skip = true;
    hki_skips skips = {0};
    while (skip) {
        if (s->room == 1 && s->used == 0) {
            HKI_TRY(pull(n, false));
            work(slot_at(s, 0));
        } else {
            if (s->room > 1)
                top_up(n);
            if (s->used == 0)
                return nothing_left(s);
            await_one(n);
        }
        const uint64_t stamp = slot_at(s, 0)->in.stamp;
        HKI_TRY(deliver(n, out, &skip));
        if (skip)
            HKI_TRY(hki_skips_watch(&skips, stamp));
    }
    return HK_OK;
}

// ---- position --------------------------------------------------------------

static void save(hki_node *n, hki_saver *w) {
    state *const s = n->state;
    hki_save_u64(w, s->pulled);
    hki_save_fault(w, &s->fault);
    hki_save_u64(w, s->used);
    for (size_t i = 0; i < s->used; i++) {
        hki_save_u64(w, slot_at(s, i)->position);
        hki_save_item(w, n->inputs[0], &slot_at(s, i)->in);
    }
}

static hk_status restore(hki_node *n, hki_restorer *r) {
    state *const s = n->state;
    s->pulled = hki_restore_u64(r);
    hki_restore_fault(r, &s->fault);
    // A call under way takes 24 bytes at least.
    const int64_t used = hki_restore_i64(r, "the number of running calls", 0,
                                         (r->end - r->p) / 24 + 1);
    HKI_TRY(r->status);
    HKI_TRY(make_room(n, (size_t)used));
    for (int64_t i = 0; i < used; i++) {
        slot *const to = slot_at(s, s->used);
        to->position = hki_restore_u64(r);
        to->pass = n->pass - 1;
        HKI_TRY(hki_restore_item(r, n->inputs[0], &to->in));
        s->used++;
        hki_gang_submit(n->run->gang, &to->task);
    }
    return HK_OK;
}

static void config_free(void *p) {
    config *const c = p;
    if (c->destroy != NULL)
        c->destroy(c->user);
    hki_free(c);
}

#define OPS(text)                                                              \
    {                                                                          \
        .name = (text), .destroy = config_free, .state_size = sizeof(state),   \
        .open = open_node, .close = close_node, .start = start, .next = next,  \
        .save = save, .restore = restore                                       \
    }
static const hki_node_ops map_ops = OPS("map"), made_ops = OPS("made");

// ---- making ----------------------------------------------------------------

HKI_OPTIONS(hk_map_options, destroy, .parallel = 1)

static hk_status check_options(hk_map_fn f, const hk_map_options *o) {
    if (f == NULL)
        return hki_fail(HK_E_INVALID_ARG, "map: f is NULL");
    HKI_TRY(hki_parallel_check("map", o->parallel));
    if (o->unordered > 1)
        return hki_fail(HK_E_INVALID_ARG,
                        "map: unordered is %u; it has to be 0 or 1",
                        o->unordered);
    if ((o->spec == NULL) != (o->n_spec == 0))
        return hki_fail(HK_E_INVALID_ARG,
                        "map: %zu outputs do not fit a spec that is %sNULL",
                        o->n_spec, o->spec == NULL ? "" : "not ");
    return HK_OK;
}

hk_dataset *hk_data_map(hk_dataset *d, hk_map_fn f, void *user,
                        const hk_map_options *opt) {
    hk_map_options o;
    hk_map_options_init(&o, sizeof o);
    hk_status s = hki_options_copy(&o, sizeof o, opt, "map");
    if (s == HK_OK)
        s = check_options(f, &o);
    config *c = NULL; // owns `user` from the beginning
    if (s == HK_OK)
        s = hki_zalloc_array(1, sizeof *c, &c);
    if (s != HK_OK) {
        hk_dataset *const bad = hki_dataset_fail(&d, 1, s);
        if (o.destroy != NULL)
            o.destroy(user);
        return bad;
    }
    *c = (config){.f = f,
                  .user = user,
                  .destroy = o.destroy,
                  .parallel = o.parallel,
                  .unordered = o.unordered != 0,
                  .seed = (uint64_t)o.seed};
    return hki_dataset_make(&(hki_dataset_desc){
        .ops = &map_ops,
        .config = c,
        .inputs = &d,
        .n_inputs = 1,
        .spec = o.spec,
        .n_spec = o.n_spec,
        .count =
            hki_dataset_good(d) && hki_may_skip(d) ? -1 : hk_dataset_count(d),
        .key = hki_key("map", 1, &o.seed),
        .flags = HKI_DATA_EACH,
    });
}

hk_dataset *hki_data_made(hk_dataset *d) {
    if (!hki_dataset_good(d) || !hki_has_fn(d))
        return d;
    return hki_dataset_make(&(hki_dataset_desc){
        .ops = &made_ops,
        .config = &(config){0},
        .config_size = sizeof(config),
        .inputs = &d,
        .n_inputs = 1,
        .count = d->count,
        .flags = HKI_DATA_EACH,
    });
}

hk_dataset *hki_data_solid(hk_dataset *d) {
    return hki_dataset_good(d) && hki_may_skip(d) ? hki_data_made(d) : d;
}

uint64_t hk_data_random(const hk_map_call *call, uint64_t i) {
    // One block for two numbers; pass and position name it.
    const uint64_t block = i / 2;
    const uint32_t key[2] = {(uint32_t)(call->seed ^ call->pass << 32),
                             (uint32_t)(call->seed >> 32 ^ call->pass)};
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32),
                                 (uint32_t)call->position,
                                 (uint32_t)(call->position >> 32)};
    uint32_t out[4];
    hki_philox_block(key, counter, out);
    const size_t at = 2 * (size_t)(i % 2);
    return (uint64_t)out[at + 1] << 32 | out[at];
}
