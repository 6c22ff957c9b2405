// target.c - from a path as people write it to what is asked for.
//
//     https://host/file        as it is
//     http://host/file         only where HOOKE_ALLOW_HTTP is 1
//     s3://bucket/key          signed, to Amazon or to the endpoint that the
//                              usual variables and files name
//
// A path shows in messages and records of runs: one with a password or a
// signature in it is refused.
#define _GNU_SOURCE // strcasestr
#include <ctype.h>
#include <strings.h>
#include <unistd.h>
#include "fetch/remote/curl_table.h"
#include "fetch/remote/http.h"

#define DEFAULT_TIMEOUT_S 120
#define LONGEST_TIMEOUT_S 86400

void hki_target_destroy(hki_target *t) {
    if (t == NULL)
        return;
    if (t->secret != NULL)
        explicit_bzero(t->secret, strlen(t->secret));
    if (t->token_header != NULL)
        explicit_bzero(t->token_header, strlen(t->token_header));
    char *const all[] = {t->path,   t->url,     t->sigv4,       t->key_id,
                         t->secret, t->ca_file, t->token_header};
    for (size_t i = 0; i < HKI_COUNT(all); i++)
        hki_free(all[i]);
    hki_free(t);
}

hk_status hki_percent_encode(hki_buf *b, const char *text, const char *kept) {
    for (const char *p = text; *p != '\0'; p++) {
        const bool plain = isalnum((unsigned char)*p) ||
                           strchr("-._~", *p) != NULL ||
                           strchr(kept, *p) != NULL;
        HKI_TRY(hki_buf_printf(b, plain ? "%c" : "%%%02X", (unsigned char)*p));
    }
    return HK_OK;
}

// ---- paths that are refused ------------------------------------------------

static bool has_secret(const char *query) {
    static const char *const names[] = {"signature",  "sig=",   "token",
                                        "credential", "secret", "password",
                                        "key="};
    for (size_t i = 0; i < HKI_COUNT(names); i++)
        if (strcasestr(query, names[i]) != NULL)
            return true;
    return false;
}

// The text of a refusal leaves out what may be secret.
static hk_status check_url(const char *url, const char *what) {
    const char *const host = strstr(url, "://") + 3;
    const size_t n = strcspn(host, "/?#");
    const char *const query = strchr(host, '?');
    if (memchr(host, '@', n) != NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s has a password, which messages would show; remove "
                        "the part before the @",
                        what);
    if (query != NULL && has_secret(query))
        return hki_fail(HK_E_INVALID_ARG,
                        "%s %.*s: is a signed address, whose signature "
                        "messages would show; use s3:// with keys instead",
                        what, (int)(query - url), url);
    if (n == 0)
        return hki_fail(HK_E_INVALID_ARG, "%s %s: names no host", what, url);
    for (const char *p = url; *p != '\0'; p++)
        if (*p <= ' ' || *p > '~')
            return hki_fail(HK_E_INVALID_ARG,
                            "%s %s: has a blank or another character that has "
                            "to be written as %%%02X",
                            what, url, (unsigned char)*p);
    return HK_OK;
}

// ---- parts -----------------------------------------------------------------

static bool is_there(const char *path) {
    return path != NULL && path[0] != '\0' && access(path, R_OK) == 0;
}

// Certificates: where the variables say; else libcurl knows. One that was built
// for another system may have to be told.
static hk_status find_ca(hki_target *t) {
    static const char *const names[] = {"CURL_CA_BUNDLE", "SSL_CERT_FILE",
                                        "AWS_CA_BUNDLE"};
    static const char *const places[] = {"/etc/ssl/certs/ca-certificates.crt",
                                         "/etc/pki/tls/certs/ca-bundle.crt",
                                         "/etc/ssl/ca-bundle.pem",
                                         "/etc/ssl/cert.pem"};
    const hki_curl *curl;
    for (size_t i = 0; i < HKI_COUNT(names); i++) {
        const char *const v = getenv(names[i]);
        if (v != NULL && v[0] != '\0')
            return hki_strdup(v, &t->ca_file);
    }
    HKI_TRY(hki_curl_get(&curl));
    if (is_there(curl->version_info(CURLVERSION_NOW)->cainfo))
        return HK_OK;
    for (size_t i = 0; i < HKI_COUNT(places); i++)
        if (is_there(places[i]))
            return hki_strdup(places[i], &t->ca_file);
    return HK_OK;
}

static hk_status find_timeout(hki_target *t) {
    const char *const v = getenv("HOOKE_REMOTE_TIMEOUT");
    uint32_t seconds = DEFAULT_TIMEOUT_S;
    if (v != NULL && v[0] != '\0' &&
        !hki_parse_u32(v, 1, LONGEST_TIMEOUT_S, &seconds))
        return hki_fail(HK_E_INVALID_ARG,
                        "HOOKE_REMOTE_TIMEOUT is %s; it has to be a number of "
                        "seconds from 1 to %d",
                        v, LONGEST_TIMEOUT_S);
    t->timeout_ms = (int64_t)seconds * 1000;
    return HK_OK;
}

static hk_status web(hki_target *t) {
    const char *const allowed = getenv("HOOKE_ALLOW_HTTP");
    HKI_TRY(check_url(t->path, "an address"));
    t->plain = strncmp(t->path, "http://", 7) == 0;
    if (t->plain && (allowed == NULL || strcmp(allowed, "1") != 0))
        return hki_fail(
            HK_E_DENIED,
            "%s: http:// is refused, because others can read and change the "
            "data; use https://, or set HOOKE_ALLOW_HTTP=1",
            t->path);
    return hki_strdup(t->path, &t->url);
}

// ---- S3 --------------------------------------------------------------------

// Names without dots are part of the host's name; others would not fit its
// certificate.
static hk_status s3_base(hki_target *t, const hki_aws *aws, const char *bucket,
                         hki_buf *url) {
    if (aws->endpoint[0] != '\0') {
        const char *const e = aws->endpoint;
        size_t n = strlen(e);
        if (strncmp(e, "https://", 8) != 0 && strncmp(e, "http://", 7) != 0)
            return hki_fail(HK_E_INVALID_ARG,
                            "%s: the endpoint is not an https:// address",
                            t->path);
        HKI_TRY(check_url(e, "AWS_ENDPOINT_URL"));
        t->plain = e[4] == ':'; // who writes http:// there wants it
        while (n > 0 && e[n - 1] == '/')
            n--;
        return hki_buf_printf(url, "%.*s/%s", (int)n, e, bucket);
    }
    if (strspn(aws->region, "abcdefghijklmnopqrstuvwxyz0123456789-") !=
        strlen(aws->region))
        return hki_fail(HK_E_INVALID_ARG, "%s: %s is not a region", t->path,
                        aws->region);
    return strchr(bucket, '.') != NULL
               ? hki_buf_printf(url, "https://s3.%s.amazonaws.com/%s",
                                aws->region, bucket)
               : hki_buf_printf(url, "https://%s.s3.%s.amazonaws.com", bucket,
                                aws->region);
}

static hk_status sign(hki_target *t, const hki_aws *aws) {
    hki_buf sigv4 = {0}, token = {0};
    if (aws->key_id[0] == '\0' || aws->secret[0] == '\0')
        return HK_OK;
    HKI_TRY(hki_strdup(aws->key_id, &t->key_id));
    HKI_TRY(hki_strdup(aws->secret, &t->secret));
    HKI_TRY(hki_buf_printf(&sigv4, "aws:amz:%s:s3", aws->region));
    t->sigv4 = sigv4.data;
    if (aws->token[0] == '\0')
        return HK_OK;
    HKI_TRY(hki_buf_printf(&token, "x-amz-security-token: %s", aws->token));
    t->token_header = token.data;
    return HK_OK;
}

// query NULL: the object of that key.
static hk_status s3_url(hki_target *t, const hki_aws *aws, const char *query) {
    char bucket[64];
    const char *const name = t->path + 5;
    const size_t n = strcspn(name, "/");
    if (n < 3 || n >= sizeof bucket ||
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                     "0123456789.-_") < n)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: %.*s is not a valid name of a bucket", t->path,
                        (int)n, name);
    if (query == NULL && (name[n] == '\0' || name[n + 1] == '\0'))
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: names a bucket, not a file; write s3://bucket/key",
                        t->path);
    memcpy(bucket, name, n);
    bucket[n] = '\0';
    hki_buf url = {0};
    hk_status s = s3_base(t, aws, bucket, &url);
    if (s == HK_OK)
        s = query != NULL ? hki_buf_printf(&url, "/?%s", query)
                          : hki_percent_encode(&url, name + n, "/");
    t->url = url.data;
    return s;
}

static hk_status s3(hki_target *t, const char *query) {
    hki_aws aws;
    hk_status s = hki_aws_find(&aws);
    t->s3 = true;
    if (s == HK_OK)
        s = s3_url(t, &aws, query);
    if (s == HK_OK)
        s = sign(t, &aws);
    explicit_bzero(&aws, sizeof aws);
    return s;
}

// ---- all of it -------------------------------------------------------------

static hk_status fill(hki_target *t, const char *path, const char *query) {
    HKI_TRY(hki_strdup(path, &t->path));
    if (strncmp(path, "s3://", 5) == 0)
        HKI_TRY(s3(t, query));
    else if (strncmp(path, "https://", 8) == 0 ||
             strncmp(path, "http://", 7) == 0)
        HKI_TRY(web(t));
    else
        return hki_fail(
            HK_E_UNSUPPORTED,
            "%s: files can be read from https://, s3:// and this machine only",
            path);
    HKI_TRY(find_ca(t));
    return find_timeout(t);
}

static hk_status make(const char *path, const char *query, hki_target **out) {
    hki_target *t;
    HKI_TRY(hki_zalloc_array(1, sizeof *t, &t));
    HKI_TRY_OR(fill(t, path, query), hki_target_destroy(t));
    *out = t;
    return HK_OK;
}

hk_status hki_target_make(const char *path, hki_target **out) {
    return make(path, NULL, out);
}

hk_status hki_target_list(const char *path, const char *query,
                          hki_target **out) {
    return make(path, query, out);
}
