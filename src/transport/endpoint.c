// endpoint.c - addresses as text.
#include <string.h>
#include "transport/conn.h"

// The transport that an address names, and what comes behind the name.
static const hki_transport *find_transport(const char *text, bool has_key,
                                           const char **rest) {
    const hki_transport *found = NULL;
    *rest = text;
    for (const hki_transport *const *t = hki_transports; *t != NULL; t++) {
        const size_t n = strlen((*t)->scheme);
        if (strncmp(text, (*t)->scheme, n) == 0 && text[n] == ':') {
            *rest = text + n + 1;
            return *t;
        }
        if (found == NULL && (*t)->has_port && (*t)->needs_key == has_key)
            found = *t;
    }
    return found;
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
    const char *rest;
    hki_endpoint e = {.transport = find_transport(text, has_key, &rest)};
    if (e.transport == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: the address %.200s does not begin with the name "
                        "of a transport",
                        what, text);
    if (e.transport->has_port) {
        HKI_TRY(parse_host(rest, text, what, &e));
    } else {
        if (rest[0] == '\0')
            return hki_fail(HK_E_INVALID_ARG,
                            "%s: the address %s has nothing after its scheme",
                            what, text);
        HKI_TRY(
            copy_part(e.host, sizeof e.host, rest, strlen(rest), text, what));
    }
    if (e.transport->check != NULL)
        HKI_TRY(e.transport->check(&e, text, what));
    if (e.transport->needs_key && !has_key)
        return hki_fail(HK_E_DENIED,
                        "%s: the address %s needs a cluster key (key)", what,
                        text);
    *out = e;
    return HK_OK;
}
