// endpoint.c - addresses as text.
#include "transport/transport.h"

static const struct {
    const char *name;
    hki_scheme scheme;
} schemes[] = {
    {"inproc", HKI_INPROC}, {"unix", HKI_UNIX}, {"shm", HKI_SHM},
    {"tcp", HKI_TCP},       {"tls", HKI_TLS},   {"fd", HKI_FD},
};

const char *hki_scheme_name(hki_scheme s) {
    for (size_t i = 0; i < HKI_COUNT(schemes); i++)
        if (schemes[i].scheme == s)
            return schemes[i].name;
    return "unknown";
}

static hk_status copy_part(char *dst, size_t capacity, const char *src,
                           size_t size, const char *text, const char *what) {
    if (size >= capacity)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: the address %.64s has a component of %zu bytes, "
                        "which is too long",
                        what, text, size);
    memcpy(dst, src, size);
    dst[size] = '\0';
    return HK_OK;
}

// "host:port", "[v6]:port", "*:port".
static hk_status parse_host(const char *rest, const char *text,
                            const char *what, hki_endpoint *e) {
    uint32_t port;
    const char *colon = strrchr(rest, ':');
    const char *host = rest;
    size_t size = colon != NULL ? (size_t)(colon - rest) : 0;
    if (rest[0] == '[') {
        const char *const close = strchr(rest, ']');
        colon = close != NULL && close[1] == ':' ? close + 1 : NULL;
        host = rest + 1;
        size = close != NULL ? (size_t)(close - host) : 0;
    } else if (colon != NULL && memchr(rest, ':', size) != NULL) {
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: the address %.200s needs brackets around the IPv6 "
                        "host: [HOST]:PORT",
                        what, text);
    }
    if (colon == NULL || !hki_parse_u32(colon + 1, 0, 65535, &port))
        return hki_fail(
            HK_E_INVALID_ARG,
            "%s: the address %.200s has no port in 0..65535; write host:port",
            what, text);
    if (size == 1 && host[0] == '*')
        size = 0;
    HKI_TRY(copy_part(e->host, sizeof e->host, host, size, text, what));
    return copy_part(e->port, sizeof e->port, colon + 1, strlen(colon + 1),
                     text, what);
}

hk_status hki_endpoint_parse(const char *text, bool has_key, const char *what,
                             hki_endpoint *out) {
    if (text == NULL || text[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG, "%s: an address is empty", what);
    hki_endpoint e = {.scheme = has_key ? HKI_TLS : HKI_TCP};
    const char *rest = text;
    for (size_t i = 0; i < HKI_COUNT(schemes); i++) {
        const size_t n = strlen(schemes[i].name);
        if (strncmp(text, schemes[i].name, n) == 0 && text[n] == ':') {
            e.scheme = schemes[i].scheme;
            rest = text + n + 1;
        }
    }
    if (e.scheme == HKI_TCP || e.scheme == HKI_TLS) {
        HKI_TRY(parse_host(rest, text, what, &e));
    } else {
        if (rest[0] == '\0')
            return hki_fail(HK_E_INVALID_ARG,
                            "%s: the address %s has nothing after its scheme",
                            what, text);
        HKI_TRY(
            copy_part(e.host, sizeof e.host, rest, strlen(rest), text, what));
        uint32_t fd;
        if (e.scheme == HKI_FD && !hki_parse_u32(e.host, 0, 1u << 20, &fd))
            return hki_fail(
                HK_E_INVALID_ARG,
                "%s: the address %s has no number of a file descriptor", what,
                text);
    }
    if (e.scheme == HKI_TLS && !has_key)
        return hki_fail(HK_E_DENIED,
                        "%s: the address %s needs a cluster key (key)", what,
                        text);
    *out = e;
    return HK_OK;
}
