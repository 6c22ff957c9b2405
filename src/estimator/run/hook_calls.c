// hook_calls.c - hooks as reference-counted tables, and calling them in order.
#include "estimator/estimator.h"
#include "estimator/run/run_context.h"

HKI_OPTIONS(hk_hook_calls, reserved)

hk_status hk_hook_create(const hk_hook_calls *calls, hk_hook **out) {
    if (calls == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "hook: calls or out is NULL");
    hk_hook *h;
    HKI_TRY(hki_zalloc_array(1, sizeof *h, &h));
    hk_hook_calls_init(&h->calls, sizeof h->calls);
    hk_status s =
        hki_options_copy(&h->calls, sizeof h->calls, calls, "hook calls");
    if (s == HK_OK)
        s = hki_strdup(h->calls.name != NULL ? h->calls.name : "hook",
                       &h->name);
    if (s != HK_OK) {
        hki_free(h);
        return s;
    }
    h->calls.name = h->name;
    atomic_init(&h->refs, 1);
    *out = h;
    return HK_OK;
}

hk_status hki_hook_make(hk_hook_calls calls, size_t state_bytes,
                        hk_hook **out) {
    calls.struct_size = sizeof calls;
    if (calls.user_free == NULL)
        calls.user_free = hki_free;
    const hk_status s = hk_hook_create(&calls, out);
    if (s != HK_OK)
        calls.user_free(calls.user);
    else
        (*out)->state_bytes = state_bytes;
    return s;
}

hk_hook *hk_hook_retain(hk_hook *h) {
    if (h != NULL)
        atomic_fetch_add(&h->refs, 1);
    return h;
}

void hk_hook_release(hk_hook *h) {
    if (h == NULL || atomic_fetch_sub(&h->refs, 1) != 1)
        return;
    if (h->calls.user_free != NULL)
        h->calls.user_free(h->calls.user);
    hki_free(h->name);
    hki_free(h);
}

// ---- the hooks of a run -----------------------------------------------------

hk_status hki_hooks_add(hki_hooks *h, hk_hook *hook) {
    if (hook == NULL)
        return hki_fail(HK_E_INVALID_ARG, "hook %zu of the list is NULL", h->n);
    HKI_TRY(HKI_LIST_ROOM(*h));
    h->data[h->n++] = (hki_hook_slot){.hook = hk_hook_retain(hook),
                                      .state = hook->calls.user};
    return HK_OK;
}

// The hook's name in front of its message.
static hk_status name_failure(const hki_hook_slot *k, hk_status s) {
    return hki_fail(s, "hook %s: %s", k->hook->name, hk_last_error());
}

static hk_status create_state(hki_hook_slot *k, hk_run *run) {
    const hk_hook_calls *const c = &k->hook->calls;
    const size_t size = k->hook->state_bytes;
    if (size == 0)
        return c->create != NULL ? c->create(c->user, run, &k->state) : HK_OK;
    HKI_TRY(hki_alloc_array(1, size, &k->state));
    memcpy(k->state, c->user, size);
    return HK_OK;
}

hk_status hki_hooks_open(hki_hooks *h, hk_run *run) {
    for (size_t i = 0; i < h->n; i++) {
        const hk_status s = create_state(&h->data[i], run);
        if (s != HK_OK)
            return name_failure(&h->data[i], s);
        h->data[i].created = true;
    }
    return HK_OK;
}

static hk_status (*find_entry(const hk_hook_calls *c,
                              hki_hook_event event))(void *, hk_run *) {
    switch (event) {
    case HKI_HOOK_BEGIN:
        return c->begin;
    case HKI_HOOK_SESSION:
        return c->after_create_session;
    case HKI_HOOK_BEFORE:
        return c->before_run;
    case HKI_HOOK_AFTER:
        return c->after_run;
    case HKI_HOOK_END:
        break;
    }
    return c->end;
}

hk_status hki_hooks_call(const hki_hooks *h, hki_hook_event event,
                         hk_run *run) {
    for (size_t i = 0; i < h->n; i++) {
        const hki_hook_slot *k = &h->data[i];
        hk_status (*fn)(void *, hk_run *) = find_entry(&k->hook->calls, event);
        if (fn == NULL || (!run->is_chief && !k->hook->calls.all_workers))
            continue;
        const hk_status s = fn(k->state, run);
        if (s != HK_OK)
            return name_failure(k, s);
    }
    return HK_OK;
}

bool hki_hooks_want(const hki_hooks *h, const hk_run *run) {
    for (size_t i = 0; i < h->n; i++)
        if (run->is_chief || h->data[i].hook->calls.all_workers)
            return true;
    return false;
}

static void destroy_state(const hki_hook_slot *k) {
    const hk_hook_calls *const c = &k->hook->calls;
    if (k->hook->state_bytes > 0)
        hki_free(k->state);
    else if (c->create != NULL && c->destroy != NULL)
        c->destroy(k->state);
}

void hki_hooks_deinit(hki_hooks *h) {
    for (size_t i = 0; i < h->n; i++) {
        if (h->data[i].created)
            destroy_state(&h->data[i]);
        hk_hook_release(h->data[i].hook);
    }
    hki_free(h->data);
    *h = (hki_hooks){0};
}
