// restore.c - a checkpoint's tensors into the places of a map.
//
// Three passes: which tensor goes to which place, whether all of it fits, and
// only then the reading, in the order of the file.
#include "ckpt/core/items.h"
#include <pthread.h>
#include <regex.h>
#include <stdatomic.h>

#define BYTES_A_THREAD (UINT64_C(8) << 20)
#define MAX_THREADS 4u

HKI_OPTIONS(hk_restore_options, reserved)

void hk_restore_report_deinit(hk_restore_report *r) {
    if (r == NULL)
        return;
    hki_free(r->text);
    *r = (hk_restore_report){0};
}

// One place of the map and the tensor that it takes.
typedef struct match {
    const hk_named *place;
    const hki_ckpt_tensor *tensor;
} match;

typedef struct restore {
    const hk_ckpt *c;
    const hk_restore_options *opt;
    hki_arena arena; // renamed names
    match *matches;
    size_t count;
    bool *used; // by tensor of c
    hki_buf text;
    size_t missing, mismatched;
} restore;

// ---- which names -----------------------------------------------------------

// The whole name has to match.
static hk_status compile(const char *vars, regex_t *out) {
    hki_buf b = {0};
    char why[128];
    HKI_TRY(hki_buf_printf(&b, "^(%s)$", vars));
    const int e = regcomp(out, b.data, REG_EXTENDED | REG_NOSUB);
    hki_buf_deinit(&b);
    if (e == 0)
        return HK_OK;
    regerror(e, out, why, sizeof why);
    return hki_fail(e == REG_ESPACE ? HK_E_NO_MEMORY : HK_E_INVALID_ARG,
                    "restore: pattern \"%s\": %s", vars, why);
}

static hk_status check_names(const hk_name_map *map,
                             const hk_restore_options *o) {
    if (o->vars != NULL && o->n_names > 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "restore: a pattern and a list of names exclude each "
                        "other; give one of them");
    if (o->names == NULL && o->n_names > 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "restore: %zu names, but the list is NULL", o->n_names);
    for (size_t i = 0; i < o->n_names; i++)
        if (o->names[i] == NULL || hk_name_map_find(map, o->names[i]) == NULL)
            return hki_fail(HK_E_NOT_FOUND,
                            "restore: there is no %s in the model",
                            o->names[i] != NULL ? o->names[i] : "(NULL)");
    return HK_OK;
}

static bool selected(const restore *r, const regex_t *vars, const char *name) {
    if (r->opt->vars != NULL)
        return regexec(vars, name, 0, NULL, 0) == 0;
    for (size_t i = 0; i < r->opt->n_names; i++)
        if (strcmp(r->opt->names[i], name) == 0)
            return true;
    return r->opt->n_names == 0;
}

// ---- what fits -------------------------------------------------------------

static hk_status take(restore *r, const hk_named *place,
                      const hki_ckpt_tensor *t) {
    char a[HKI_SHAPE_TEXT], b[HKI_SHAPE_TEXT];
    const hk_ckpt_entry *const e = &t->entry;
    r->used[t - r->c->tensors] = true;
    if (!hk_shape_equal(place->shape, e->shape)) {
        hki_shape_text(e->shape, a);
        hki_shape_text(place->shape, b);
        if (!r->opt->allow_shape)
            return hki_fail(HK_E_SHAPE, "%s: %s is %s, but %s is %s",
                            r->c->path, e->name, a, place->name, b);
        r->mismatched++;
        return hki_buf_printf(
            &r->text, "mismatched: %s is %s, but %s of the checkpoint is %s\n",
            place->name, b, e->name, a);
    }
    HKI_TRY(hki_ckpt_check_type(r->c, t, place->dtype));
    r->matches[r->count++] = (match){place, t};
    const bool renamed = strcmp(place->name, e->name) != 0;
    if (renamed)
        HKI_TRY(hki_buf_printf(&r->text, "restored: %s from %s\n", place->name,
                               e->name));
    if (e->dtype != place->dtype)
        HKI_TRY(hki_buf_printf(&r->text, "converted: %s from %s to %s\n",
                               place->name, e->type_name,
                               hk_dtype_name(place->dtype)));
    return HK_OK;
}

static hk_status miss(restore *r, const hk_named *place, const char *wanted) {
    r->missing++;
    if (strcmp(place->name, wanted) == 0)
        return hki_buf_printf(&r->text, "missing: %s\n", wanted);
    return hki_buf_printf(&r->text, "missing: %s for %s\n", wanted,
                          place->name);
}

static hk_status match_all(restore *r, const hk_name_map *map,
                           const regex_t *vars) {
    const hk_restore_options *const o = r->opt;
    const char *first_missing = NULL;
    for (size_t i = 0; i < hk_name_map_count(map); i++) {
        const hk_named *const place = hk_name_map_item(map, i);
        const char *wanted = NULL;
        if (!selected(r, vars, place->name))
            continue;
        HKI_TRY(hki_rename_apply(o->rename, o->n_rename, place->name, &r->arena,
                                 &wanted));
        const hki_ckpt_tensor *const t = hki_ckpt_lookup(r->c, wanted);
        if (t != NULL) {
            HKI_TRY(take(r, place, t));
        } else {
            HKI_TRY(miss(r, place, wanted));
            if (first_missing == NULL)
                first_missing = wanted;
        }
    }
    if (first_missing != NULL && !o->allow_missing)
        return hki_fail(
            HK_E_NOT_FOUND,
            "%s: %zu of the names are not in this checkpoint; the first is %s",
            r->c->path, r->missing, first_missing);
    return HK_OK;
}

// ---- reading ---------------------------------------------------------------

static int by_place(const void *a, const void *b) {
    const hki_ckpt_tensor *const x = ((const match *)a)->tensor;
    const hki_ckpt_tensor *const y = ((const match *)b)->tensor;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

// The matches, handed out to threads one by one.
typedef struct reading {
    const restore *r;
    atomic_size_t next;
    hki_mutex mutex; // guards the first failure
    hk_status status;
    char text[1024];
} reading;

static void keep_failure(reading *x, hk_status status) {
    hki_mutex_lock(&x->mutex);
    if (x->status == HK_OK) {
        x->status = status;
        snprintf(x->text, sizeof x->text, "%s", hk_last_error());
    }
    hki_mutex_unlock(&x->mutex);
    atomic_store(&x->next, x->r->count); // nobody needs to begin another
}

static void read_some(void *user) {
    reading *const x = user;
    for (;;) {
        const size_t i = atomic_fetch_add(&x->next, 1);
        if (i >= x->r->count)
            return;
        const match *const m = &x->r->matches[i];
        const hk_status s = hki_ckpt_read_data(x->r->c, m->tensor,
                                               m->place->dtype, m->place->data);
        if (s != HK_OK)
            keep_failure(x, s);
    }
}

// One thread for every few megabytes: checksums and copies from the page
// cache are bound by the CPU.
static size_t helpers_for(const restore *r) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < r->count; i++)
        bytes += r->matches[i].tensor->entry.bytes;
    const uint64_t wanted = bytes / BYTES_A_THREAD;
    const uint64_t most = HKI_MIN(hki_cpu_count(), MAX_THREADS) - 1;
    return (size_t)HKI_MIN(wanted, most);
}

static hk_status read_all(restore *r) {
    reading x = {.r = r, .mutex = HKI_MUTEX_INIT};
    hki_thread *helpers[MAX_THREADS] = {NULL};
    if (r->count > 0)
        qsort(r->matches, r->count, sizeof *r->matches, by_place);
    const size_t n = helpers_for(r);
    for (size_t i = 0; i < n; i++) // those that cannot start are not needed
        if (hki_thread_start(read_some, &x, -1, "hooke-restore", &helpers[i]) !=
            HK_OK)
            break;
    read_some(&x);
    for (size_t i = 0; i < n; i++)
        hki_thread_stop(helpers[i]);
    hki_mutex_deinit(&x.mutex);
    return x.status == HK_OK ? HK_OK : hki_fail(x.status, "%s", x.text);
}

// The rest of the report, made before anything is read: what comes after the
// reading cannot fail.
static hk_status list_left(restore *r, size_t *left) {
    *left = 0;
    for (size_t i = 0; i < r->c->count; i++) {
        char shape[HKI_SHAPE_TEXT];
        const hk_ckpt_entry *const e = &r->c->tensors[i].entry;
        if (r->used[i])
            continue;
        ++*left;
        HKI_TRY(hki_buf_printf(&r->text, "left: %s %s %s\n", e->name,
                               e->type_name, hki_shape_text(e->shape, shape)));
    }
    return hki_buf_add(&r->text, "", 0);
}

static hk_status run(restore *r, const hk_name_map *map,
                     hk_restore_report *report) {
    const hk_restore_options *const o = r->opt;
    regex_t vars;
    size_t left = 0;
    HKI_TRY(check_names(map, o));
    HKI_TRY(hki_rename_check(o->rename, o->n_rename));
    HKI_TRY(hki_alloc_array(hk_name_map_count(map), sizeof *r->matches,
                            &r->matches));
    HKI_TRY(hki_zalloc_array(r->c->count, sizeof *r->used, &r->used));
    if (o->vars != NULL)
        HKI_TRY(compile(o->vars, &vars));
    const hk_status s = match_all(r, map, &vars);
    if (o->vars != NULL)
        regfree(&vars);
    HKI_TRY(s);
    HKI_TRY(list_left(r, &left));
    HKI_TRY(read_all(r));
    if (report != NULL) {
        *report = (hk_restore_report){.taken = r->count,
                                      .left = left,
                                      .missing = r->missing,
                                      .mismatched = r->mismatched,
                                      .text = r->text.data};
        r->text = (hki_buf){0};
    }
    return HK_OK;
}

hk_status hk_ckpt_restore(hk_ckpt *c, hk_name_map *map,
                          const hk_restore_options *opt,
                          hk_restore_report *report) {
    hk_restore_options o;
    if (report != NULL)
        *report = (hk_restore_report){0};
    if (c == NULL || map == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "restore: checkpoint or map is missing");
    HKI_TRY(HKI_OPTIONS_GET(hk_restore_options, &o, opt, "restore"));
    restore r = {.c = c, .opt = &o};
    const hk_status s = run(&r, map, report);
    hki_buf_deinit(&r.text);
    hki_free(r.used);
    hki_free(r.matches);
    hki_arena_deinit(&r.arena);
    return s;
}
