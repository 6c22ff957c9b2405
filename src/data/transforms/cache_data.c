// cache_data.c - the elements of the first whole pass, kept in memory or in a
// file.
//
// Only a pass that reaches its end counts; what a pass that was left early has
// gathered is thrown away, as in TensorFlow. A position is saved as a number,
// not as the content: what was gathered is gathered again when it is restored,
// from the state that the input had when the pass began.
#include "data/transforms/cache_file.h"
#include "base/io.h"

typedef struct state {
    bool complete;   // later passes read
    bool writing;    // this pass gathers
    bool ended;      // this pass is at its end
    hki_saver begin; // state of the input at the beginning of this pass, or of
                     // the one that was gathered
    // Memory.
    hki_item *items;
    int64_t used;
    size_t room;
    // File.
    hki_loader *loader;
    hki_cache_writer *writer;
    hki_cache_reader *reader;
} state;

// NULL: in memory.
static const char *path_of(const hki_node *n) {
    return n->d->config;
}

// ---- memory ----------------------------------------------------------------

static void forget(hki_node *n) {
    state *const s = n->state;
    for (int64_t i = 0; i < s->used; i++)
        hki_item_free(n, &s->items[i]);
    s->used = 0;
}

static hk_status remember(hki_node *n, hki_item *item) {
    state *const s = n->state;
    HKI_TRY(hki_item_keep(n->inputs[0], item));
    HKI_TRY(hki_list_reserve(&s->items, (size_t)s->used + 1, &s->room,
                             sizeof *s->items));
    if (!n->rows)
        hki_box_retain(item->box);
    s->items[s->used++] = *item;
    return HK_OK;
}

static hk_status gather_in_memory(hki_node *n, hki_item *out) {
    state *const s = n->state;
    const hk_status e = hki_node_next(n->inputs[0], out);
    if (e == HK_E_END) {
        s->complete = true;
        s->writing = false;
    }
    HKI_TRY(e);
    const hk_status kept = remember(n, out);
    if (kept != HK_OK)
        hki_item_free(n, out);
    return kept;
}

static hk_status memory_next(hki_node *n, hki_item *out) {
    state *const s = n->state;
    if (s->writing)
        return gather_in_memory(n, out);
    if (n->count >= s->used)
        return HK_E_END;
    *out = s->items[n->count];
    if (!n->rows)
        hki_box_retain(out->box);
    return HK_OK;
}

// ---- file ------------------------------------------------------------------

static hk_status end_of_file(hki_node *n) {
    state *const s = n->state;
    hki_cache_writer *const w = s->writer;
    s->writer = NULL;
    s->writing = false;
    s->ended = true;
    HKI_TRY(hki_cache_writer_commit(w));
    s->complete = true;
    return HK_E_END;
}

static hk_status gather_in_file(hki_node *n, hki_box *box) {
    state *const s = n->state;
    bool skip = true;
    if (s->writer == NULL)
        HKI_TRY(hki_cache_writer_open(path_of(n), n->inputs[0]->d->fingerprint,
                                      &s->writer));
    while (skip) {
        hki_item item;
        HKI_TRY(hki_run_check(n->run));
        hk_status e = hki_node_next(n->inputs[0], &item);
        if (e == HK_E_END)
            return end_of_file(n);
        HKI_TRY(e);
        e = hki_loader_row(s->loader, &item, hki_box_rows(box), 0, &skip);
        hki_item_free(n->inputs[0], &item);
        HKI_TRY(e);
    }
    return hki_cache_writer_add(s->writer, box);
}

static hk_status open_reader(hki_node *n) {
    state *const s = n->state;
    if (s->reader != NULL)
        return HK_OK;
    return hki_cache_reader_open(path_of(n), n->inputs[0]->d->fingerprint,
                                 &s->reader);
}

static hk_status file_next(hki_node *n, hki_item *out) {
    state *const s = n->state;
    hki_box *box;
    if (s->ended)
        return HK_E_END;
    hk_status e =
        s->writing ? hki_node_box(n, &box) : hki_node_bare_box(n, &box);
    HKI_TRY(e);
    if (s->writing) {
        e = gather_in_file(n, box);
    } else {
        e = open_reader(n);
        if (e == HK_OK)
            e = hki_cache_reader_next(s->reader, box);
    }
    HKI_TRY_OR(e, hki_box_release(box));
    out->box = box;
    return HK_OK;
}

// ---- passes ----------------------------------------------------------------

static hk_status open_node(hki_node *n) {
    state *const s = n->state;
    if (path_of(n) == NULL)
        return HK_OK;
    s->complete = hki_path_exists(path_of(n));
    return hki_loader_open(n->inputs[0]->d, n->run, &s->loader);
}

static void close_node(hki_node *n) {
    state *const s = n->state;
    forget(n);
    hki_loader_close(s->loader);
    hki_cache_writer_discard(s->writer);
    hki_cache_reader_close(s->reader);
    hki_saver_deinit(&s->begin);
    hki_free(s->items);
}

// The input begins a pass whose elements are gathered.
static hk_status begin(hki_node *n) {
    state *const s = n->state;
    s->begin.buf.size = 0;
    s->begin.status = HK_OK;
    s->writing = true;
    hki_node_save(n->inputs[0], &s->begin);
    return s->begin.status;
}

static hk_status start(hki_node *n) {
    state *const s = n->state;
    s->ended = false;
    if (s->reader != NULL)
        HKI_TRY(hki_cache_reader_seek(s->reader, HKI_CACHE_FIRST));
    if (s->complete)
        return HK_OK;
    forget(n);
    hki_cache_writer_discard(s->writer);
    s->writer = NULL;
    HKI_TRY(hki_node_start(n->inputs[0]));
    return begin(n);
}

// The stamp is of this pass: random functions above see every pass anew.
static hk_status next(hki_node *n, hki_item *out) {
    HKI_TRY(hki_run_check(n->run));
    HKI_TRY(path_of(n) == NULL ? memory_next(n, out) : file_next(n, out));
    out->stamp = (n->pass << HKI_STAMP_PASS) + (uint64_t)n->count;
    return HK_OK;
}

// ---- position --------------------------------------------------------------

static void save(hki_node *n, hki_saver *w) {
    state *const s = n->state;
    hki_save_u64(w, s->complete);
    hki_save_u64(w, s->writing);
    hki_save_u64(w, s->ended);
    hki_save_bytes(w, s->begin.buf.data, s->begin.buf.size);
    hki_save_u64(w, s->reader != NULL ? hki_cache_reader_tell(s->reader)
                                      : HKI_CACHE_FIRST);
}

// Gathers `count` elements once more; -1: all of them.
static hk_status gather_again(hki_node *n, int64_t count) {
    for (int64_t i = 0; i != count; i++) {
        hki_item item;
        const hk_status e = next(n, &item);
        if (e == HK_E_END)
            return count < 0 ? HK_OK
                             : hki_fail(HK_E_DATA,
                                        "iterator restore: the input of the "
                                        "cache has fewer elements than before");
        HKI_TRY(e);
        hki_item_free(n, &item);
    }
    return HK_OK;
}

static hk_status restore_input(hki_node *n, const void *bytes, size_t size) {
    state *const s = n->state;
    hki_restorer sub = {
        .begin = bytes, .p = bytes, .end = (const uint8_t *)bytes + size};
    HKI_TRY(hki_node_restore(n->inputs[0], &sub));
    if (sub.p != sub.end)
        return hki_restore_bad(&sub, "unexpected bytes at the end");
    HKI_TRY(begin(n));
    s->complete = false;
    return HK_OK;
}

static hk_status restore(hki_node *n, hki_restorer *r) {
    state *const s = n->state;
    const int64_t count = n->count;
    const bool complete = hki_restore_i64(r, "complete", 0, 1) == 1;
    const bool writing = hki_restore_i64(r, "writing", 0, 1) == 1;
    s->ended = hki_restore_i64(r, "ended", 0, 1) == 1;
    size_t size = 0;
    const void *const bytes = hki_restore_bytes(r, &size);
    const uint64_t position = hki_restore_u64(r);
    HKI_TRY(r->status);
    if (n->pass == 0)
        return HK_OK;
    if (path_of(n) != NULL && complete) {
        s->complete = true;
        s->writing = false;
        HKI_TRY(open_reader(n));
        return hki_cache_reader_seek(s->reader, position);
    }
    if (!writing && !complete) { // the end could not be written
        s->writing = false;
        s->ended = true;
        return HK_OK;
    }
    // Another run may have completed the file since.
    if (path_of(n) != NULL && s->complete) {
        s->writing = false;
        return gather_again(n, count);
    }
    s->ended = false;
    HKI_TRY(restore_input(n, bytes, size));
    return gather_again(n, complete ? -1 : count);
}

static const hki_node_ops ops = {
    .name = "cache",
    .state_size = sizeof(state),
    .open = open_node,
    .close = close_node,
    .start = start,
    .next = next,
    .save = save,
    .restore = restore,
    .saves_inputs = true,
};

hk_dataset *hk_data_cache(hk_dataset *d, const char *path) {
    char *copy = NULL;
    const bool file = path != NULL && path[0] != '\0';
    const hk_status s = file ? hki_strdup(path, &copy) : HK_OK;
    if (!file)
        d = hki_data_made(d); // what is kept is what the functions make
    if (s != HK_OK)
        return hki_dataset_fail(&d, 1, s);
    return hki_dataset_make(&(hki_dataset_desc){
        .ops = &ops,
        .config = copy,
        .inputs = &d,
        .n_inputs = 1,
        .count = hk_dataset_count(d),
        .key = file, // where the file is does not matter
        .flags = file ? 0 : HKI_DATA_PASSES,
    });
}
