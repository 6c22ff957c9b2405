// iter.c - iterators: the user's end of a pipeline.
//
// State as bytes:
//
//     "HKITER1\0" | u64 fingerprint of the pipeline | u64 delivered |
//     u64 skipped | state of the nodes, last first | u64 FNV-1a of all before
//
// The bytes are made once and kept until the next element is asked for, so
// that asking for the size and then for the bytes gives one position although
// prefetching goes on.
#include "codec/codec.h"
#include "data/core/pipeline.h"

#define MAGIC "HKITER1"
#define HEAD 32 // magic, fingerprint, delivered, skipped
#define TAIL 8
#define MAX_THREADS 4096

struct hk_iter {
    hk_dataset *d;
    hk_iter_options opt;
    hki_data_run *run;
    hki_node *root;
    hki_loader *loader;
    hki_item item; // delivered last
    bool has_item;
    bool reported; // the number of skipped records was logged
    uint64_t delivered;
    int64_t wait_ns;
    hki_saver saved; // bytes of the position, when saved.buf.size > 0
};

HKI_OPTIONS(hk_iter_options, ignore_stop)

// ---- create, destroy -------------------------------------------------------

static void drop_item(hk_iter *it) {
    if (it->has_item)
        hki_item_free(it->root, &it->item);
    it->has_item = false;
}

// Ends everything that runs.
static void stop_pipeline(hk_iter *it) {
    if (it->run != NULL)
        atomic_store(&it->run->closing, true);
    if (it->root != NULL)
        drop_item(it);
    hki_loader_close(it->loader);
    hki_node_close(it->root);
    hki_run_close(it->run);
    it->loader = NULL;
    it->root = NULL;
    it->run = NULL;
}

// Opens the chain, before its first element.
static hk_status open_pipeline(hk_iter *it) {
    hk_status s = hki_run_open(&it->opt, &it->run);
    if (s == HK_OK)
        s = hki_node_open(it->d, it->run, &it->root);
    if (s == HK_OK)
        s = hki_loader_open(it->d, it->run, &it->loader);
    if (s == HK_OK)
        s = hki_node_start(it->root);
    if (s != HK_OK)
        stop_pipeline(it);
    return s;
}

hk_status hk_iter_create(hk_dataset *d, const hk_iter_options *opt,
                         hk_iter **out) {
    hk_iter_options o;
    hk_iter_options_init(&o, sizeof o);
    if (out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "iterator: out is NULL");
    HKI_TRY(hk_dataset_status(d));
    HKI_TRY(hki_options_copy(&o, sizeof o, opt, "iterator"));
    if (o.ignore_stop > 1 || o.threads > MAX_THREADS)
        return hki_fail(HK_E_INVALID_ARG,
                        "iterator: threads is %u (limit %d) and ignore_stop %u "
                        "(0 or 1); one of them is out of range",
                        o.threads, MAX_THREADS, o.ignore_stop);
    hk_iter *it;
    HKI_TRY(hki_zalloc_array(1, sizeof *it, &it));
    it->opt = o;
    it->d = hk_dataset_retain(d);
    HKI_TRY_OR(open_pipeline(it), hk_iter_destroy(it));
    *out = it;
    return HK_OK;
}

static void report_skipped(hk_iter *it) {
    if (it->run == NULL || it->reported)
        return;
    const uint64_t n = atomic_load(&it->run->skipped);
    it->reported = n > 0;
    if (n > 0)
        hki_log(it->opt.context, HK_LOG_WARNING,
                "data: %llu damaged records were skipped",
                (unsigned long long)n);
}

void hk_iter_destroy(hk_iter *it) {
    if (it == NULL)
        return;
    report_skipped(it);
    stop_pipeline(it);
    hki_saver_deinit(&it->saved);
    hk_dataset_release(it->d);
    hki_free(it);
}

// ---- elements --------------------------------------------------------------

static hk_status next_element(hk_iter *it, const hk_element **out) {
    bool skip = true;
    hki_skips skips = {0};
    HKI_TRY(hki_run_between(it->run));
    drop_item(it);
    while (skip) {
        HKI_TRY(hki_run_check(it->run));
        HKI_TRY(hki_node_next(it->root, &it->item));
        it->has_item = true;
        HKI_TRY(hki_loader_view(it->loader, &it->item, out, &skip));
        if (skip) {
            const uint64_t stamp = it->item.stamp;
            drop_item(it);
            HKI_TRY(hki_skips_watch(&skips, stamp));
        }
    }
    return HK_OK;
}

hk_status hk_iter_next(hk_iter *it, const hk_element **out) {
    if (it == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "iterator next: NULL argument");
    if (it->root == NULL)
        return hki_fail(
            HK_E_STATE,
            "iterator next: the iterator could not be reopened after an error");
    const int64_t begin = hki_now_ns();
    it->saved.buf.size = 0;
    const hk_status s = next_element(it, out);
    it->wait_ns += hki_now_ns() - begin;
    if (s == HK_OK)
        it->delivered++;
    else if (s == HK_E_END) {
        report_skipped(it);
        return hki_fail(HK_E_END, "iterator: end of data");
    }
    return s;
}

hk_status hk_iter_get_info(const hk_iter *it, hk_iter_info *out) {
    if (it == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "iterator stats: NULL argument");
    *out = (hk_iter_info){
        .delivered = it->delivered,
        .skipped = it->run != NULL ? atomic_load(&it->run->skipped) : 0,
        .wait_seconds = 1e-9 * (double)it->wait_ns,
    };
    return HK_OK;
}

// ---- position --------------------------------------------------------------

static hk_status make_bytes(hk_iter *it) {
    hki_saver *const w = &it->saved;
    if (atomic_load(&it->run->torn))
        return hki_fail(HK_E_STATE, "iterator save: a stop interrupted an "
                                    "element; there is no position after it");
    w->status = hki_buf_add(&w->buf, MAGIC, sizeof MAGIC);
    hki_save_u64(w, it->d->position);
    hki_save_u64(w, it->delivered);
    hki_save_u64(w, atomic_load(&it->run->skipped));
    hki_node_save(it->root, w);
    HKI_TRY(w->status);
    hki_save_u64(w, hki_hash(HKI_HASH_INIT, w->buf.data, w->buf.size));
    return w->status;
}

hk_status hk_iter_save(hk_iter *it, void *buf, size_t capacity, size_t *size) {
    if (it == NULL || size == NULL)
        return hki_fail(HK_E_INVALID_ARG, "iterator save: NULL argument");
    if (it->root == NULL)
        return hki_fail(
            HK_E_STATE,
            "iterator save: the iterator could not be reopened after an error");
    hki_buf *const b = &it->saved.buf;
    if (b->size == 0) {
        HKI_TRY_OR(make_bytes(it), b->size = 0);
    }
    if (buf != NULL && capacity < b->size)
        return hki_fail(
            HK_E_OVERFLOW,
            "iterator save: the buffer has %zu bytes, but %zu are needed",
            capacity, b->size);
    if (buf != NULL)
        memcpy(buf, b->data, b->size);
    *size = b->size;
    return HK_OK;
}

static hk_status check_bytes(const hk_iter *it, const uint8_t *p, size_t size) {
    if (size < HEAD + TAIL || memcmp(p, MAGIC, sizeof MAGIC) != 0)
        return hki_fail(
            HK_E_DATA,
            "iterator restore: the %zu bytes are not a position of an iterator",
            size);
    if (hki_get_u64(p + size - TAIL) != hki_hash(HKI_HASH_INIT, p, size - TAIL))
        return hki_fail(
            HK_E_DATA,
            "iterator restore: wrong checksum; the bytes are damaged");
    // Version 0.2 saved the whole fingerprint.
    const uint64_t of = hki_get_u64(p + 8);
    if (of != it->d->position && of != it->d->fingerprint)
        return hki_fail(HK_E_INVALID_ARG,
                        "iterator restore: the position belongs to another "
                        "pipeline (fingerprint %016llx, this one has %016llx)",
                        (unsigned long long)of,
                        (unsigned long long)it->d->position);
    return HK_OK;
}

static hk_status restore_nodes(hk_iter *it, const uint8_t *p, size_t size) {
    hki_restorer r = {.begin = p, .p = p + HEAD, .end = p + size - TAIL};
    HKI_TRY(hki_node_restore(it->root, &r));
    if (r.p != r.end)
        return hki_restore_bad(&r, "unexpected bytes at the end");
    it->delivered = hki_get_u64(p + 16);
    atomic_store(&it->run->skipped, hki_get_u64(p + 24));
    return HK_OK;
}

hk_status hk_iter_restore(hk_iter *it, const void *bytes, size_t size) {
    if (it == NULL || bytes == NULL)
        return hki_fail(HK_E_INVALID_ARG, "iterator restore: NULL argument");
    HKI_TRY(check_bytes(it, bytes, size));
    stop_pipeline(it);
    it->saved.buf.size = 0;
    it->delivered = 0;
    it->reported = false;
    HKI_TRY(open_pipeline(it));
    const hk_status s = restore_nodes(it, bytes, size);
    if (s == HK_OK)
        return HK_OK;
    // Back to the beginning, as new; the first fault is the one to tell.
    hki_fault fault;
    hki_fault_set(&fault, s);
    stop_pipeline(it);
    if (open_pipeline(it) != HK_OK)
        hki_log(it->opt.context, HK_LOG_ERROR, "iterator: %s", hk_last_error());
    return hki_fault_raise(&fault);
}
