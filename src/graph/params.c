// params.c - structural parameters: a small sorted list of named values.
#include <math.h>
#include "graph/model.h"

struct hk_params {
    HKI_LIST(hki_param) items; // sorted by name
};

hk_status hk_params_create(hk_params **out) {
    if (out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "params: out is NULL");
    return hki_zalloc_array(1, sizeof **out, out);
}

void hk_params_destroy(hk_params *p) {
    if (p == NULL)
        return;
    for (size_t i = 0; i < p->items.n; i++) {
        hki_free(p->items.data[i].name);
        hki_free(p->items.data[i].s);
    }
    hki_free(p->items.data);
    hki_free(p);
}

const hki_param *hki_params_find(const hk_params *p, const char *name) {
    for (size_t i = 0; p != NULL && i < p->items.n; i++)
        if (strcmp(p->items.data[i].name, name) == 0)
            return &p->items.data[i];
    return NULL;
}

// The item of that name with its old value gone, or a new one in its place.
static hk_status slot(hk_params *p, const char *name, hki_param **out) {
    if (p == NULL || name == NULL || name[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG, "params: an empty name or object");
    size_t at = 0;
    while (at < p->items.n && strcmp(p->items.data[at].name, name) < 0)
        at++;
    if (at < p->items.n && strcmp(p->items.data[at].name, name) == 0) {
        *out = &p->items.data[at];
        return HK_OK;
    }
    HKI_TRY(HKI_LIST_ROOM(p->items));
    char *copy;
    HKI_TRY(hki_strdup(name, &copy));
    hki_param *items = p->items.data;
    memmove(&items[at + 1], &items[at], (p->items.n - at) * sizeof *items);
    p->items.n++;
    items[at] = (hki_param){.name = copy, .type = HKI_PARAM_INT};
    *out = &items[at];
    return HK_OK;
}

hk_status hk_params_set_int(hk_params *p, const char *name, int64_t v) {
    hki_param *item;
    HKI_TRY(slot(p, name, &item));
    hki_free(item->s);
    item->s = NULL;
    item->type = HKI_PARAM_INT;
    item->i = v;
    item->f = (double)v;
    return HK_OK;
}

hk_status hk_params_set_float(hk_params *p, const char *name, double v) {
    if (!isfinite(v))
        return hki_fail(HK_E_INVALID_ARG, "params: %s is not finite",
                        name ? name : "(null)");
    hki_param *item;
    HKI_TRY(slot(p, name, &item));
    hki_free(item->s);
    item->s = NULL;
    item->type = HKI_PARAM_FLOAT;
    item->f = v;
    return HK_OK;
}

hk_status hk_params_set_string(hk_params *p, const char *name, const char *v) {
    if (v == NULL)
        return hki_fail(HK_E_INVALID_ARG, "params: %s has a NULL value",
                        name ? name : "(null)");
    char *copy;
    HKI_TRY(hki_strdup(v, &copy));
    hki_param *item;
    const hk_status s = slot(p, name, &item);
    if (s != HK_OK) {
        hki_free(copy);
        return s;
    }
    hki_free(item->s);
    item->s = copy;
    item->type = HKI_PARAM_STRING;
    return HK_OK;
}

hk_status hki_params_copy(const hk_params *src, hk_params **out) {
    HKI_SCOPED(hk_params_destroy_at) hk_params *p = NULL;
    HKI_TRY(hk_params_create(&p));
    for (size_t i = 0; src != NULL && i < src->items.n; i++) {
        const hki_param *it = &src->items.data[i];
        if (it->type == HKI_PARAM_INT)
            HKI_TRY(hk_params_set_int(p, it->name, it->i));
        else if (it->type == HKI_PARAM_FLOAT)
            HKI_TRY(hk_params_set_float(p, it->name, it->f));
        else
            HKI_TRY(hk_params_set_string(p, it->name, it->s));
    }
    return HKI_HAND_ON(out, p);
}

size_t hki_params_count(const hk_params *p) {
    return p != NULL ? p->items.n : 0;
}

const hki_param *hki_params_item(const hk_params *p, size_t i) {
    return i < hki_params_count(p) ? &p->items.data[i] : NULL;
}

static bool same(const hki_param *a, const hki_param *b) {
    if (a == NULL || b == NULL || a->type != b->type)
        return a == b;
    switch (a->type) {
    case HKI_PARAM_INT:
        return a->i == b->i;
    case HKI_PARAM_FLOAT:
        return a->f == b->f;
    case HKI_PARAM_STRING:
        break;
    }
    return strcmp(a->s, b->s) == 0;
}

bool hki_params_match(const hk_graph *g, const hk_params *p) {
    for (size_t i = 0; i < g->reads.n; i++)
        if (!same(hki_params_find(g->params, g->reads.data[i]),
                  hki_params_find(p, g->reads.data[i])))
            return false;
    return true;
}
