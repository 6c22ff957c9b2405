// wish.c - what the user asked for: options and HOOKE_* variables,
// which may complete each other and may not contradict each other.
#include "launch/launch.h"

#define MAX_CENTERS 1024

static hk_status differ(const char *name, const char *env, const char *flag) {
    return hki_fail(HK_E_INVALID_ARG,
                    "%s=\"%.100s\" contradicts the option \"%.100s\"", name,
                    env, flag);
}

static hk_status merge_text(const char **opt, const hk_cluster_options *o,
                            const char *name) {
    const char *const env = hki_env(o, name);
    if (*opt != NULL && (*opt)[0] == '\0')
        *opt = NULL;
    if (env == NULL)
        return HK_OK;
    if (*opt != NULL && strcmp(*opt, env) != 0)
        return differ(name, env, *opt);
    *opt = env;
    return HK_OK;
}

static hk_status merge_number(uint32_t *opt, const hk_cluster_options *o,
                              const char *name, uint32_t high) {
    const char *const env = hki_env(o, name);
    uint32_t v;
    if (*opt > high)
        return hki_fail(HK_E_INVALID_ARG,
                        "the option %u for %s is above the limit of %u", *opt,
                        name, high);
    if (env == NULL)
        return HK_OK;
    if (!hki_parse_u32(env, 1, high, &v))
        return hki_fail(HK_E_INVALID_ARG,
                        "%s=\"%.80s\" is not a number from 1 to %u", name, env,
                        high);
    char flag[16];
    snprintf(flag, sizeof flag, "%u", *opt);
    if (*opt != 0 && *opt != v)
        return differ(name, env, flag);
    *opt = v;
    return HK_OK;
}

static hk_status merge(hki_wish *w) {
    hk_cluster_options *const o = &w->o;
    const struct {
        const char **text;
        const char *name;
    } texts[] = {
        {&o->launcher, "HOOKE_LAUNCHER"}, {&o->role, "HOOKE_ROLE"},
        {&o->index, "HOOKE_INDEX"},       {&o->center, "HOOKE_CENTER"},
        {&o->listen, "HOOKE_LISTEN"},     {&o->center_dns, "HOOKE_CENTER_DNS"},
        {&o->hostfile, "HOOKE_HOSTFILE"},
    };
    for (size_t i = 0; i < HKI_COUNT(texts); i++)
        HKI_TRY(merge_text(texts[i].text, o, texts[i].name));
    HKI_TRY(
        merge_number(&o->center_count, o, "HOOKE_CENTER_COUNT", MAX_CENTERS));
    HKI_TRY(merge_number(&o->workers, o, "HOOKE_WORKERS", HKI_MAX_TASKS));
    HKI_TRY(merge_number(&o->port, o, "HOOKE_PS_PORT", 65535));
    w->given = o->role != NULL || o->center != NULL || o->center_dns != NULL;
    return HK_OK;
}

static hk_status parse_role(hki_wish *w) {
    static const char *const roles[][2] = {
        {"center", "ps"},   {"ps", "ps"},        {"worker", "worker"},
        {"chief", "chief"}, {"master", "chief"}, {"evaluator", "evaluator"}};
    if (w->o.role == NULL)
        return HK_OK;
    for (size_t i = 0; i < HKI_COUNT(roles); i++)
        if (strcmp(w->o.role, roles[i][0]) == 0)
            w->role = roles[i][1];
    if (w->role == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "unknown role \"%.64s\"; it has to be center, worker, "
                        "chief or evaluator",
                        w->o.role);
    return HK_OK;
}

// The number at the end of a pod's name: "ps-3", "ps-3.svc".
static bool host_ordinal(const char *host, uint32_t *out) {
    const size_t length = strcspn(host, ".");
    size_t begin = length;
    while (begin > 0 && host[begin - 1] >= '0' && host[begin - 1] <= '9')
        begin--;
    char digits[16];
    if (begin == length || length - begin >= sizeof digits)
        return false;
    memcpy(digits, host + begin, length - begin);
    digits[length - begin] = '\0';
    return hki_parse_u32(digits, 0, HKI_MAX_TASKS - 1, out);
}

static hk_status parse_index(hki_wish *w) {
    const char *const text = w->o.index;
    uint32_t n;
    w->index = -1;
    if (text == NULL)
        return HK_OK;
    if (strcmp(text, "hostname") == 0) {
        const char *const host = hki_env(&w->o, "HOSTNAME");
        if (host == NULL || !host_ordinal(host, &n))
            return hki_fail(HK_E_INVALID_ARG,
                            "the index is \"hostname\", but HOSTNAME=\"%.80s\" "
                            "does not end in a number",
                            host == NULL ? "" : host);
    } else if (!hki_parse_u32(text, 0, HKI_MAX_TASKS - 1, &n)) {
        return hki_fail(HK_E_INVALID_ARG, "the index \"%.40s\" is not a number",
                        text);
    }
    w->index = (int32_t)n;
    return HK_OK;
}

// "ps-{i}.svc:2222" with i in its place.
static hk_status dns_address(hki_arena *a, const char *pattern, uint32_t i,
                             const char **out) {
    const char *const at = strstr(pattern, "{i}");
    if (at == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "center-dns \"%.100s\" needs \"{i}\" where the index "
                        "of the center belongs",
                        pattern);
    return hki_arena_printf(a, out, "%.*s%u%s", (int)(at - pattern), pattern, i,
                            at + 3);
}

static hk_status parse_centers(hki_arena *a, hki_wish *w) {
    const char *const list = w->o.center;
    if (list != NULL && w->o.center_dns != NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "the centers are given twice, as a list (center) and "
                        "as a pattern (center-dns); use one");
    if (w->o.center_dns != NULL && w->o.center_count == 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "center-dns also needs the number of centers "
                        "(--center-count or HOOKE_CENTER_COUNT)");
    uint32_t n = w->o.center_count;
    if (list != NULL) {
        n = 1;
        for (const char *p = list; *p != '\0'; p++)
            n += *p == ',';
        if (n > MAX_CENTERS)
            return hki_fail(HK_E_INVALID_ARG,
                            "%u centers are too many; the limit is %d", n,
                            MAX_CENTERS);
        if (w->o.center_count != 0 && w->o.center_count != n)
            return hki_fail(
                HK_E_INVALID_ARG,
                "the number of centers is %u, but %u addresses are listed",
                w->o.center_count, n);
    } else if (w->o.center_dns == NULL) {
        return HK_OK;
    }
    HKI_TRY(hki_arena_alloc(a, n, sizeof *w->center, &w->center));
    const char *p = list;
    for (uint32_t i = 0; i < n; i++) {
        if (list == NULL) {
            HKI_TRY(dns_address(a, w->o.center_dns, i, &w->center[i]));
        } else {
            const int length = (int)strcspn(p, ",");
            HKI_TRY(hki_arena_printf(a, &w->center[i], "%.*s", length, p));
            p += length + 1;
        }
        HKI_TRY(hki_address_check(w->center[i], "center"));
    }
    w->n_center = n;
    return HK_OK;
}

hk_status hki_wish_read(hki_arena *a, const hk_cluster_options *opt,
                        hki_wish *w) {
    *w = (hki_wish){0};
    HKI_TRY(
        hki_options_copy(&w->o, sizeof w->o, opt, "hk_cluster_config_create"));
    HKI_TRY(merge(w));
    HKI_TRY(parse_role(w));
    HKI_TRY(parse_index(w));
    return parse_centers(a, w);
}
