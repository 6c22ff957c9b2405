// aws.c - keys, region and endpoint as Amazon's own programs find them:
// variables first, then the files in ~/.aws, of the profile that is asked for.
#include <ctype.h>
#include <strings.h>
#include "base/io.h"
#include "fetch/remote/http.h"

#define MOST_FILE ((size_t)1 << 20)

// ---- ini files -------------------------------------------------------------

typedef struct span {
    const char *begin, *end;
} span;

static span trimmed(const char *begin, const char *end) {
    while (begin < end && isspace((unsigned char)*begin))
        begin++;
    while (begin < end && isspace((unsigned char)end[-1]))
        end--;
    return (span){begin, end};
}

static bool is_text(span s, const char *text) {
    const size_t n = strlen(text);
    return (size_t)(s.end - s.begin) == n && memcmp(s.begin, text, n) == 0;
}

// "[name]" or "[profile name]"; false: the line begins no section.
static bool section_of(span line, span *name) {
    const char *const close =
        line.begin < line.end && *line.begin == '['
            ? memchr(line.begin, ']', (size_t)(line.end - line.begin))
            : NULL;
    if (close == NULL)
        return false;
    *name = trimmed(line.begin + 1, close);
    const size_t n = (size_t)(name->end - name->begin);
    if (n > 8 && memcmp(name->begin, "profile", 7) == 0 &&
        isspace((unsigned char)name->begin[7]))
        *name = trimmed(name->begin + 8, name->end);
    return true;
}

// Takes the value of "key = value"; false: another line, or too long.
static bool value_of(span line, const char *key, char *out, size_t capacity) {
    const char *const equals =
        memchr(line.begin, '=', (size_t)(line.end - line.begin));
    if (equals == NULL || !is_text(trimmed(line.begin, equals), key))
        return false;
    const span v = trimmed(equals + 1, line.end);
    const size_t n = (size_t)(v.end - v.begin);
    if (n >= capacity)
        return false;
    memcpy(out, v.begin, n);
    out[n] = '\0';
    return true;
}

bool hki_ini_find(const char *text, size_t size, const char *section,
                  const char *key, char *out, size_t capacity) {
    const char *const end = text + size;
    bool inside = false, found = false;
    for (const char *p = text, *next; p < end; p = next) {
        const char *const newline = memchr(p, '\n', (size_t)(end - p));
        const char *const stop = newline != NULL ? newline : end;
        const span line = trimmed(p, stop);
        // An indented line belongs to the key above it.
        const bool indented = isspace((unsigned char)*p);
        span name;
        next = newline != NULL ? newline + 1 : end;
        if (line.begin == line.end || indented || *line.begin == '#' ||
            *line.begin == ';')
            continue;
        if (section_of(line, &name))
            inside = is_text(name, section);
        else if (inside && value_of(line, key, out, capacity))
            found = true; // the last one counts
    }
    return found;
}

// ---- files and variables ---------------------------------------------------

static const char *variable(const char *name) {
    const char *const v = getenv(name);
    return v != NULL && v[0] != '\0' ? v : NULL;
}

// The text of a file of ~/.aws, or where `name` says it is; *out NULL: there
// is none.
static hk_status read_settings(const char *name, const char *file, char **out,
                               size_t *size) {
    const char *const given = variable(name), *const home = variable("HOME");
    hki_buf path = {0};
    uint8_t *bytes = NULL;
    *out = NULL;
    *size = 0;
    if (given == NULL && home == NULL)
        return HK_OK;
    hk_status s = given != NULL
                      ? hki_buf_printf(&path, "%s", given)
                      : hki_buf_printf(&path, "%s/.aws/%s", home, file);
    if (s == HK_OK && hki_path_exists(path.data))
        s = hki_file_read_all(path.data, MOST_FILE, &bytes, size);
    hki_buf_deinit(&path);
    *out = (char *)bytes;
    return s;
}

typedef struct settings {
    char *credentials, *config;
    size_t n_credentials, n_config;
    const char *profile;
} settings;

static bool setting(const settings *f, const char *key, char *out,
                    size_t capacity) {
    return hki_ini_find(f->credentials, f->n_credentials, f->profile, key, out,
                        capacity) ||
           hki_ini_find(f->config, f->n_config, f->profile, key, out, capacity);
}

// Values become parts of a request's lines. They are shown to nobody.
static hk_status check_value(const char *value, const char *what) {
    for (const char *p = value; *p != '\0'; p++)
        if (*p <= ' ' || *p > '~')
            return hki_fail(HK_E_INVALID_ARG,
                            "%s has a character that is not allowed there",
                            what);
    return HK_OK;
}

// By the first variable that is set, or else out of the files. "": nowhere.
static hk_status find(const settings *f, const char *first, const char *second,
                      const char *key, char *out, size_t capacity) {
    const char *v = variable(first);
    if (v == NULL && second != NULL)
        v = variable(second);
    if (v != NULL && strlen(v) >= capacity)
        return hki_fail(HK_E_INVALID_ARG, "%s: longer than %zu characters",
                        first, capacity - 1);
    out[0] = '\0';
    if (v != NULL)
        snprintf(out, capacity, "%s", v);
    else
        setting(f, key, out, capacity); // what is not there stays empty
    return check_value(out, v != NULL ? first : key);
}

// ---- all of it -------------------------------------------------------------

static hk_status find_keys(const settings *f, hki_aws *out) {
    static const char id[] = "AWS_ACCESS_KEY_ID",
                      secret[] = "AWS_SECRET_ACCESS_KEY";
    if ((variable(id) == NULL) != (variable(secret) == NULL))
        return hki_fail(HK_E_INVALID_ARG, "%s is set, but %s is not; set both",
                        variable(id) != NULL ? id : secret,
                        variable(id) != NULL ? secret : id);
    HKI_TRY(find(f, id, NULL, "aws_access_key_id", out->key_id,
                 sizeof out->key_id));
    HKI_TRY(find(f, secret, NULL, "aws_secret_access_key", out->secret,
                 sizeof out->secret));
    // Keys and token come from one place.
    static const settings nowhere = {.profile = ""};
    if (variable(id) != NULL)
        return find(&nowhere, "AWS_SESSION_TOKEN", NULL, "", out->token,
                    sizeof out->token);
    setting(f, "aws_session_token", out->token, sizeof out->token);
    return check_value(out->token, "aws_session_token");
}

static hk_status find_all(const settings *f, hki_aws *out) {
    HKI_TRY(find_keys(f, out));
    HKI_TRY(find(f, "AWS_REGION", "AWS_DEFAULT_REGION", "region", out->region,
                 sizeof out->region));
    if (out->region[0] == '\0')
        snprintf(out->region, sizeof out->region, "us-east-1");
    return find(f, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "endpoint_url",
                out->endpoint, sizeof out->endpoint);
}

hk_status hki_aws_find(hki_aws *out) {
    *out = (hki_aws){0};
    const char *const named = variable("AWS_PROFILE");
    settings f = {.profile = named != NULL ? named : "default"};
    hk_status s = read_settings("AWS_SHARED_CREDENTIALS_FILE", "credentials",
                                &f.credentials, &f.n_credentials);
    if (s == HK_OK)
        s = read_settings("AWS_CONFIG_FILE", "config", &f.config, &f.n_config);
    if (s == HK_OK)
        s = find_all(&f, out);
    hki_free(f.credentials);
    hki_free(f.config);
    return s;
}
