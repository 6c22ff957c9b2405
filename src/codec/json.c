// json.c - strict JSON on top of jansson, and quoting for writers.
#include "codec/codec.h"

// Deeper nesting than any file of ours has; jansson recurses once a level.
#define MAX_DEPTH 64

// Fails where the text nests deeper than MAX_DEPTH. Brackets inside strings
// do not count; malformed text is left to the parser.
static hk_status check_depth(const char *text, size_t size, const char *what) {
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < size; i++) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++; // whatever follows is no closing quote
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > MAX_DEPTH)
                return hki_fail(HK_E_DATA,
                                "%s: JSON nests deeper than %d levels at "
                                "byte %zu",
                                what, MAX_DEPTH, i);
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        }
    }
    return HK_OK;
}

hk_status hki_json_parse(const void *text, size_t size, const char *what,
                         json_t **out) {
    HKI_TRY(check_depth(text, size, what));
    json_error_t error;
    json_t *const root = json_loadb(
        text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (root == NULL) {
        if (json_error_code(&error) == json_error_out_of_memory)
            return hki_fail(HK_E_NO_MEMORY,
                            "%s: out of memory for the JSON text", what);
        return hki_fail(HK_E_DATA, "%s: line %d, column %d: %s", what,
                        error.line, error.column, error.text);
    }
    *out = root;
    return HK_OK;
}

// Bytes of the UTF-8 sequence at s, 0 when it is none: overlong forms,
// surrogates and what lies beyond U+10FFFF are refused.
static size_t utf8_length(const unsigned char *s, size_t size) {
    static const struct {
        unsigned char mask, lead;
        uint32_t low;
    } forms[] = {{0x80, 0x00, 0},
                 {0xe0, 0xc0, 0x80},
                 {0xf0, 0xe0, 0x800},
                 {0xf8, 0xf0, 0x10000}};
    for (size_t n = 0; n < HKI_COUNT(forms); n++) {
        if ((s[0] & forms[n].mask) != forms[n].lead)
            continue;
        if (n >= size)
            return 0;
        uint32_t code = s[0] & (unsigned char)~forms[n].mask;
        for (size_t i = 1; i <= n; i++) {
            if ((s[i] & 0xc0) != 0x80)
                return 0;
            code = code << 6 | (s[i] & 0x3f);
        }
        const bool surrogate = code >= 0xd800 && code <= 0xdfff;
        return code < forms[n].low || code > 0x10ffff || surrogate ? 0 : n + 1;
    }
    return 0;
}

bool hki_utf8_valid(const char *s, size_t size) {
    const unsigned char *const p = (const unsigned char *)s;
    for (size_t i = 0; i < size;) {
        const size_t n = utf8_length(p + i, size - i);
        if (n == 0)
            return false;
        i += n;
    }
    return true;
}

// C1 controls, marks and overrides of direction, separators of lines: a
// character of n bytes that does more than show itself.
static bool acts_on_text(const unsigned char *p, size_t n) {
    return (n == 2 && p[0] == 0xc2 && p[1] < 0xa0) ||
           (n == 2 && p[0] == 0xd8 && p[1] == 0x9c) ||
           (n == 3 && p[0] == 0xe2 && p[1] == 0x80 &&
            (p[2] == 0x8e || p[2] == 0x8f || (p[2] >= 0xa8 && p[2] <= 0xae))) ||
           (n == 3 && p[0] == 0xe2 && p[1] == 0x81 && p[2] >= 0xa6 &&
            p[2] <= 0xa9);
}

void hki_utf8_clean(char *s) {
    unsigned char *const p = (unsigned char *)s;
    const size_t size = strlen(s);
    for (size_t i = 0; i < size;) {
        const size_t n = HKI_MAX(utf8_length(p + i, size - i), (size_t)1);
        if (p[i] < 0x20 || p[i] == 0x7f || (n == 1 && p[i] >= 0x80) ||
            acts_on_text(p + i, n))
            memset(p + i, '?', n);
        i += n;
    }
}

hk_status hki_json_quote(hki_buf *b, const char *s, size_t size) {
    if (!hki_utf8_valid(s, size))
        return hki_fail(HK_E_INVALID_ARG, "JSON: \"%.*s\" is not UTF-8",
                        (int)HKI_MIN(size, (size_t)200), s);
    const size_t before = b->size;
    hk_status status = hki_buf_add(b, "\"", 1);
    for (size_t i = 0; i < size && status == HK_OK;) {
        size_t plain = i; // up to here nothing needs an escape
        while (plain < size && s[plain] != '"' && s[plain] != '\\' &&
               (unsigned char)s[plain] >= 0x20)
            plain++;
        status = hki_buf_add(b, s + i, plain - i);
        i = plain;
        if (i == size || status != HK_OK)
            continue;
        if (s[i] == '"' || s[i] == '\\')
            status = hki_buf_printf(b, "\\%c", s[i]);
        else
            status = hki_buf_printf(b, "\\u%04x", (unsigned)s[i]);
        i++;
    }
    if (status == HK_OK)
        status = hki_buf_add(b, "\"", 1);
    if (status != HK_OK) { // as it was before
        b->size = before;
        if (b->data != NULL)
            b->data[before] = '\0';
    }
    return status;
}
