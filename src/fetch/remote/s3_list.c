// s3_list.c - the keys of a bucket that match a pattern, by ListObjectsV2.
//
// Of a page only three elements are looked for, in the form in which every
// server of S3 writes them; keys come percent-encoded, as was asked for.
#define _GNU_SOURCE // memmem
#include <fnmatch.h>
#include "fetch/remote/http.h"

#define MOST_PAGE ((size_t)8 << 20)
#define MOST_PAGES 10000 // of 1000 keys each
#define MOST_KEY 1024    // bytes, by S3's rules

// ---- pages -----------------------------------------------------------------

// The text of the next <name>...</name> from p on; NULL: there is none.
static const char *element(const char *p, const char *end, const char *name,
                           const char **text, size_t *size) {
    char open[40], close[40];
    const size_t n = (size_t)snprintf(open, sizeof open, "<%s>", name);
    const size_t m = (size_t)snprintf(close, sizeof close, "</%s>", name);
    const char *const begin = memmem(p, (size_t)(end - p), open, n);
    if (begin == NULL)
        return NULL;
    *text = begin + n;
    const char *const stop = memmem(*text, (size_t)(end - *text), close, m);
    if (stop == NULL)
        return NULL;
    *size = (size_t)(stop - *text);
    return stop + m;
}

static int hex(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

// False: no such text, or one with a NUL in it.
static bool percent_decode(const char *text, size_t size, char *out,
                           size_t capacity) {
    size_t n = 0;
    for (size_t i = 0; i < size; i++) {
        int c = (unsigned char)text[i];
        if (c == '%') {
            if (i + 2 >= size || hex(text[i + 1]) < 0 || hex(text[i + 2]) < 0)
                return false;
            c = hex(text[i + 1]) * 16 + hex(text[i + 2]);
            i += 2;
        } else if (c == '+') {
            c = ' ';
        }
        if (c == '\0' || n + 1 >= capacity)
            return false;
        out[n++] = (char)c;
    }
    out[n] = '\0';
    return true;
}

static hk_status no_page(void) {
    return hki_fail(
        HK_E_IO,
        "the server's answer is not a list of keys (XML of ListObjectsV2)");
}

hk_status hki_s3_page(const char *xml, size_t size,
                      hk_status (*add)(void *user, const char *key), void *user,
                      char *next, size_t capacity) {
    const char *const end = xml + size, *text;
    char key[MOST_KEY + 1];
    size_t n;
    if (element(xml, end, "IsTruncated", &text, &n) == NULL)
        return no_page();
    const bool more = n == 4 && memcmp(text, "true", 4) == 0;
    next[0] = '\0';
    if (more &&
        (element(xml, end, "NextContinuationToken", &text, &n) == NULL ||
         n == 0 || n >= capacity || memchr(text, '&', n) != NULL))
        return no_page();
    if (more) {
        memcpy(next, text, n);
        next[n] = '\0';
    }
    for (const char *p = xml;
         (p = element(p, end, "Key", &text, &n)) != NULL;) {
        if (!percent_decode(text, n, key, sizeof key))
            return no_page();
        HKI_TRY(add(user, key));
    }
    return HK_OK;
}

// ---- the list --------------------------------------------------------------

typedef struct listing {
    const char *pattern; // "s3://bucket/..."
    const char *keys;    // where the pattern of keys begins in it
    hk_status (*add)(void *user, const char *path);
    void *user;
    uint8_t *page;
    char next[2048];
} listing;

static hk_status add_key(void *user, const char *key) {
    const listing *const l = user;
    HKI_SCOPED(hki_buf_deinit) hki_buf path = {0};
    const size_t n = strlen(key);
    // A key that ends in / stands for a folder.
    if (n == 0 || key[n - 1] == '/' ||
        fnmatch(l->keys, key, FNM_PATHNAME | FNM_PERIOD) != 0)
        return HK_OK;
    HKI_TRY(hki_buf_printf(&path, "%.*s%s", (int)(l->keys - l->pattern),
                           l->pattern, key));
    return l->add(l->user, path.data);
}

// Names in the order in which they are signed.
static hk_status make_query(const listing *l, hki_buf *query) {
    char prefix[MOST_KEY + 1];
    const size_t n = strcspn(l->keys, "*?[");
    if (n >= sizeof prefix)
        return hki_fail(HK_E_INVALID_ARG, "%s: longer than a key can be",
                        l->pattern);
    memcpy(prefix, l->keys, n);
    prefix[n] = '\0';
    if (l->next[0] != '\0') {
        HKI_TRY(hki_buf_printf(query, "continuation-token="));
        HKI_TRY(hki_percent_encode(query, l->next, ""));
        HKI_TRY(hki_buf_printf(query, "&"));
    }
    HKI_TRY(hki_buf_printf(query, "encoding-type=url&list-type=2&prefix="));
    return hki_percent_encode(query, prefix, "");
}

static hk_status read_page(listing *l, hki_http *http,
                           const hki_target *target) {
    hki_version version = {0};
    hki_piece p = {.whole = true,
                   .size = MOST_PAGE,
                   .bytes = l->page,
                   .capacity = MOST_PAGE};
    HKI_TRY(hki_http_get(http, target, &version, &p));
    return hki_s3_page((const char *)p.bytes, p.got, add_key, l, l->next,
                       sizeof l->next);
}

static hk_status next_page(listing *l, hki_http *http) {
    HKI_SCOPED(hki_buf_deinit) hki_buf query = {0};
    hki_target *target = NULL;
    HKI_TRY(make_query(l, &query));
    HKI_TRY(hki_target_list(l->pattern, query.data, &target));
    const hk_status s = read_page(l, http, target);
    hki_target_destroy(target);
    return s;
}

static hk_status list(listing *l, hki_http *http) {
    int pages = 0;
    do {
        HKI_TRY(next_page(l, http));
        if (++pages > MOST_PAGES)
            return hki_fail(HK_E_OVERFLOW,
                            "%s: the list of keys has more than %d pages; use "
                            "a narrower pattern",
                            l->pattern, MOST_PAGES);
    } while (l->next[0] != '\0');
    return HK_OK;
}

hk_status hki_url_match(const char *pattern,
                        hk_status (*add)(void *user, const char *path),
                        void *user) {
    if (strncmp(pattern, "s3://", 5) != 0)
        return hki_fail(HK_E_UNSUPPORTED,
                        "%s: * and ? are only possible with s3://; elsewhere "
                        "use {a,b} or {00..15}",
                        pattern);
    const char *const slash = strchr(pattern + 5, '/');
    if (slash == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: the name of a bucket cannot have a pattern",
                        pattern);
    listing l = {
        .pattern = pattern, .keys = slash + 1, .add = add, .user = user};
    hki_http *http = NULL;
    HKI_TRY(hki_alloc_array(MOST_PAGE, 1, &l.page));
    hk_status s = hki_http_take(&http);
    if (s == HK_OK)
        s = list(&l, http);
    hki_http_give(http);
    hki_free(l.page);
    return s;
}
