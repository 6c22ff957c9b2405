// shares.c - which piece of the vector is exchanged, copied or left alone;
// kernels that every center uses.
#include "elastic/elastic.h"

// ---- parts ------------------------------------------------------------------

static hk_share share_by_kind(hk_kind kind) {
    switch (kind) {
    case HK_TRAINABLE:
    case HK_STATE_AVERAGE:
        return HK_SHARE_EXCHANGE;
    case HK_STATE_COPY:
        return HK_SHARE_COPY;
    case HK_STATE_LOCAL:
        break;
    }
    return HK_SHARE_LOCAL;
}

static hk_status decide(const hk_entry *e, hk_share_fn fn, void *user,
                        const char *what, hk_share *out) {
    hk_share s = fn != NULL ? fn(user, e) : HK_SHARE_BY_KIND;
    if (s == HK_SHARE_BY_KIND) {
        s = share_by_kind(e->kind);
        if (s == HK_SHARE_EXCHANGE && e->dtype != HK_F32)
            s = HK_SHARE_COPY; // integers have no average
    }
    if (s != HK_SHARE_EXCHANGE && s != HK_SHARE_COPY && s != HK_SHARE_LOCAL)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: share returned the unknown value %d for %s", what,
                        (int)s, e->name);
    if (s == HK_SHARE_EXCHANGE && e->dtype != HK_F32)
        return hki_fail(HK_E_DTYPE, "%s: %s of type %s cannot be exchanged",
                        what, e->name, hk_dtype_name(e->dtype));
    *out = s;
    return HK_OK;
}

// Calls fn for every maximal run of float entries of one fate.
typedef void (*run_fn)(void *arg, const hki_share_part *run);

static void each_run(const hk_layout *l, const hk_share *share, run_fn fn,
                     void *arg) {
    hki_share_part run = {0};
    for (size_t i = 0;; i++) {
        const hk_entry *const e = hk_layout_entry(l, i);
        const bool flat = e != NULL && e->dtype == HK_F32;
        const bool state = flat && e->kind != HK_TRAINABLE;
        // A run ends where the fate changes; gaps belong to the run around.
        if (run.share != HK_SHARE_BY_KIND &&
            (!flat || share[i] != run.share || state != run.state)) {
            fn(arg, &run);
            run.share = HK_SHARE_BY_KIND;
        }
        if (!flat)
            break;
        if (share[i] == HK_SHARE_LOCAL || e->count == 0)
            continue;
        if (run.share == HK_SHARE_BY_KIND)
            run = (hki_share_part){
                .begin = e->offset, .share = share[i], .state = state};
        run.end = e->offset + e->count;
    }
}

typedef struct cutter {
    hki_parts *p;
    int64_t chunk_floats;
    bool count_only;
} cutter;

static void cut_run(void *arg, const hki_share_part *run) {
    cutter *const c = arg;
    for (int64_t at = run->begin; at < run->end; at += c->chunk_floats) {
        if (!c->count_only) {
            hki_share_part *const part = &c->p->part[c->p->count];
            *part = *run;
            part->begin = at;
            part->end = HKI_MIN(at + c->chunk_floats, run->end);
        }
        c->p->count++;
    }
}

hk_status hki_parts_init(hki_parts *p, const hk_layout *l, int64_t chunk_floats,
                         hk_share_fn share, void *user, const char *what) {
    const size_t n = hki_layout_entry_count(l);
    HKI_TRY(hki_alloc_array(n, sizeof *p->share, &p->share));
    for (size_t i = 0; i < n; i++)
        HKI_TRY(decide(hk_layout_entry(l, i), share, user, what, &p->share[i]));
    cutter c = {p, chunk_floats, true};
    p->count = 0;
    each_run(l, p->share, cut_run, &c);
    HKI_TRY(hki_alloc_array(p->count, sizeof *p->part, &p->part));
    const size_t count = p->count;
    c.count_only = false;
    p->count = 0;
    each_run(l, p->share, cut_run, &c);
    HKI_ASSERT(p->count == count);
    return HK_OK;
}

void hki_parts_deinit(hki_parts *p) {
    hki_free(p->part);
    hki_free(p->share);
    *p = (hki_parts){0};
}
