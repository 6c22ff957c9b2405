// state_file.c - reading and writing the text of the state file.
#include "ckpt/model_dir/state_file.h"
#include "hooke/tensor.h"
#include <ctype.h>
#include <math.h>

#define MAX_PATH_BYTES 4096
#define MAX_RECORDS 1000000 // far more than a saver remembers

// ---- records ---------------------------------------------------------------

hk_status hki_state_add(hki_state *s, hki_record_kind kind, const char *path,
                        double time) {
    HKI_TRY(hki_list_reserve(&s->records, s->count + 1, &s->capacity,
                             sizeof *s->records));
    hki_record *const r = &s->records[s->count];
    *r = (hki_record){.kind = kind, .time = time};
    HKI_TRY(hki_strdup(path, &r->path));
    s->count++;
    return HK_OK;
}

void hki_state_drop(hki_state *s, size_t i) {
    hki_free(s->records[i].path);
    s->count--;
    memmove(&s->records[i], &s->records[i + 1],
            (s->count - i) * sizeof *s->records);
}

hki_record *hki_state_find(const hki_state *s, const char *path) {
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->records[i].path, path) == 0)
            return &s->records[i];
    return NULL;
}

hk_status hki_state_set_newest(hki_state *s, const char *path) {
    char *copy = NULL;
    if (path != NULL)
        HKI_TRY(hki_strdup(path, &copy));
    hki_free(s->newest);
    s->newest = copy;
    return HK_OK;
}

void hki_state_deinit(hki_state *s) {
    if (s == NULL)
        return;
    for (size_t i = 0; i < s->count; i++) {
        hki_free(s->records[i].path);
    }
    hki_free(s->records);
    hki_free(s->newest);
    *s = (hki_state){0};
}

hk_status hki_state_copy(const hki_state *from, hki_state *to) {
    for (size_t i = 0; i < from->count; i++) {
        const hki_record *const r = &from->records[i];
        HKI_TRY(hki_state_add(to, r->kind, r->path, r->time));
        to->records[i].metric = r->metric;
        to->records[i].has_metric = r->has_metric;
    }
    to->last_preserved = from->last_preserved;
    return hki_state_set_newest(to, from->newest);
}

int64_t hki_step_of(const char *path) {
    const char *const slash = strrchr(path, '/');
    const char *const dash = strrchr(slash != NULL ? slash : path, '-');
    if (dash == NULL || !isdigit((unsigned char)dash[1]))
        return -1;
    int64_t v = 0;
    const char *p = dash + 1;
    for (; isdigit((unsigned char)*p); p++)
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, *p - '0', &v))
            return -1;
    return *p == '\0' || *p == '.' ? v : -1;
}

// ---- parsing ---------------------------------------------------------------

typedef struct cursor {
    const char *p, *end, *what;
    size_t line;
    size_t times; // timestamps seen so far
    hki_state *out;
    hk_name_map *index; // path -> number of its record, plus one
} cursor;

static hk_status bad(const cursor *c, const char *text) {
    return hki_fail(HK_E_DATA, "%s: line %zu: %s", c->what, c->line, text);
}

static bool more(const cursor *c) {
    return c->p < c->end;
}

// Up to the end of the line.
static void skip_line(cursor *c) {
    while (more(c) && *c->p != '\n')
        c->p++;
}

static void skip_blanks(cursor *c) {
    while (more(c) && (*c->p == ' ' || *c->p == '\t'))
        c->p++;
}

// One character of a string, escapes resolved.
static hk_status read_char(cursor *c, char *out) {
    static const char names[] = "abfnrtv\\'\"?";
    static const char values[] = "\a\b\f\n\r\t\v\\'\"?";
    *out = *c->p++;
    if (*out != '\\')
        return HK_OK;
    if (!more(c))
        return bad(c, "a string has no end");
    const char *const name = strchr(names, *c->p);
    if (*c->p != '\0' && name != NULL) {
        *out = values[name - names];
        c->p++;
        return HK_OK;
    }
    const bool hex = *c->p == 'x' || *c->p == 'X';
    const char *const digits = hex ? "0123456789abcdef" : "01234567";
    unsigned v = 0;
    int n = 0;
    c->p += hex;
    for (; more(c) && n < (hex ? 2 : 3); n++, c->p++) {
        const char *const d =
            memchr(digits, tolower((unsigned char)*c->p), strlen(digits));
        if (d == NULL)
            break;
        v = v * (hex ? 16u : 8u) + (unsigned)(d - digits);
    }
    if (n == 0 || v == 0 || v > 255)
        return bad(c, "unknown escape in a string");
    *out = (char)v;
    return HK_OK;
}

// A quoted string of a path's length.
static hk_status read_string(cursor *c, char out[MAX_PATH_BYTES]) {
    skip_blanks(c);
    if (!more(c) || (*c->p != '"' && *c->p != '\''))
        return bad(c, "expected a string");
    const char quote = *c->p++;
    size_t n = 0;
    while (more(c) && *c->p != quote) {
        if (n + 1 == MAX_PATH_BYTES || *c->p == '\n' || *c->p == '\0')
            return bad(c, "a string has no end, or is too long");
        HKI_TRY(read_char(c, &out[n]));
        n++;
    }
    if (!more(c))
        return bad(c, "a string has no end");
    c->p++;
    out[n] = '\0';
    return HK_OK;
}

static hk_status read_number(cursor *c, double *out) {
    char text[64];
    size_t n = 0;
    skip_blanks(c);
    while (more(c) && n + 1 < sizeof text &&
           (isalnum((unsigned char)*c->p) || strchr("+-.", *c->p) != NULL) &&
           *c->p != '\0')
        text[n++] = *c->p++;
    text[n] = '\0';
    char *end;
    const double v = strtod(text, &end);
    if (n == 0 || (*end != '\0' && strcmp(end, "f") != 0) || !isfinite(v))
        return bad(c, "expected a number");
    *out = v;
    return HK_OK;
}

static bool accept(cursor *c, const char *word) {
    const size_t n = strlen(word);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, word, n) != 0)
        return false;
    c->p += n;
    return true;
}

// The record of a path; hki_state_find, but quick for any number of them.
static hki_record *known_record(const cursor *c, const char *path) {
    const hk_named *const at = hk_name_map_find(c->index, path);
    return at != NULL ? &c->out->records[(uintptr_t)at->data - 1] : NULL;
}

// Unless the path is known already.
static hk_status add_record(cursor *c, hki_record_kind kind, const char *path,
                            double time) {
    if (path[0] == '\0')
        return bad(c, "a path is empty");
    if (known_record(c, path) != NULL)
        return HK_OK;
    if (c->out->count == MAX_RECORDS)
        return bad(c, "there are too many checkpoints");
    HKI_TRY(hki_state_add(c->out, kind, path, time));
    const hk_named at = {.name = path, .data = (void *)c->out->count};
    return hk_name_map_add(c->index, &at);
}

// The timestamps belong to the listed paths in their order.
static hk_status take_time(cursor *c, double time) {
    while (c->times < c->out->count &&
           c->out->records[c->times].kind != HKI_RECORD_LISTED)
        c->times++;
    if (c->times < c->out->count)
        c->out->records[c->times++].time = time;
    return HK_OK;
}

// `# hooke <word> <number> "path"`. Any other comment is somebody else's. A
// path that leads out of the folder is refused: what is no longer among the
// best gets deleted.
static hk_status read_comment(cursor *c) {
    static const struct {
        const char *word;
        hki_record_kind kind; // 0: a metric
    } words[] = {{"metric ", 0},
                 {"best ", HKI_RECORD_BEST},
                 {"preserved ", HKI_RECORD_PRESERVED}};
    char path[MAX_PATH_BYTES];
    size_t i = 0;
    double v = 0;
    if (!accept(c, "# hooke ")) {
        skip_line(c);
        return HK_OK;
    }
    while (i < HKI_COUNT(words) && !accept(c, words[i].word))
        i++;
    if (i == HKI_COUNT(words)) { // of a later release
        skip_line(c);
        return HK_OK;
    }
    HKI_TRY(read_number(c, &v));
    HKI_TRY(read_string(c, path));
    if ((int)words[i].kind == 0) {
        hki_record *const known = known_record(c, path);
        if (known != NULL) {
            known->metric = v;
            known->has_metric = true;
        }
        return HK_OK;
    }
    if (strchr(path, '/') != NULL)
        return bad(c, "a path has a folder");
    return add_record(c, words[i].kind, path, v);
}

// A value that nobody here asks for: string, number or word.
static hk_status skip_value(cursor *c) {
    char text[MAX_PATH_BYTES];
    double v;
    skip_blanks(c);
    if (more(c) && (*c->p == '"' || *c->p == '\''))
        return read_string(c, text);
    if (more(c) && isalpha((unsigned char)*c->p)) {
        while (more(c) && (isalnum((unsigned char)*c->p) || *c->p == '_'))
            c->p++;
        return HK_OK;
    }
    return read_number(c, &v);
}

static hk_status read_field(cursor *c) {
    char name[64], path[MAX_PATH_BYTES];
    double v = 0;
    size_t n = 0;
    while (more(c) && n + 1 < sizeof name &&
           (isalnum((unsigned char)*c->p) || *c->p == '_'))
        name[n++] = *c->p++;
    name[n] = '\0';
    skip_blanks(c);
    if (n == 0 || !accept(c, ":"))
        return bad(c, "expected a field and a colon");
    if (strcmp(name, "model_checkpoint_path") == 0) {
        HKI_TRY(read_string(c, path));
        if (path[0] == '\0')
            return bad(c, "model_checkpoint_path is empty");
        return hki_state_set_newest(c->out, path);
    }
    if (strcmp(name, "all_model_checkpoint_paths") == 0) {
        HKI_TRY(read_string(c, path));
        return add_record(c, HKI_RECORD_LISTED, path, 0);
    }
    if (strcmp(name, "all_model_checkpoint_timestamps") == 0) {
        HKI_TRY(read_number(c, &v));
        return take_time(c, v);
    }
    if (strcmp(name, "last_preserved_timestamp") == 0)
        return read_number(c, &c->out->last_preserved);
    return skip_value(c);
}

static hk_status read_lines(cursor *c) {
    while (more(c)) {
        if (*c->p == '\n') {
            c->line++;
            c->p++;
        } else if (isspace((unsigned char)*c->p) || *c->p == ';' ||
                   *c->p == ',') {
            c->p++;
        } else if (*c->p == '#') {
            HKI_TRY(read_comment(c));
        } else {
            HKI_TRY(read_field(c));
        }
    }
    if (c->out->newest == NULL)
        return hki_fail(HK_E_DATA, "%s: model_checkpoint_path is missing",
                        c->what);
    // TF's own rule: the newest one is always part of the history.
    return add_record(c, HKI_RECORD_LISTED, c->out->newest, 0);
}

hk_status hki_state_parse(const char *text, size_t size, const char *what,
                          hki_state *out) {
    cursor c = {
        .p = text, .end = text + size, .what = what, .line = 1, .out = out};
    HKI_TRY(hk_name_map_create(&c.index));
    const hk_status s = read_lines(&c);
    hk_name_map_destroy(c.index);
    return s;
}

// ---- formatting ------------------------------------------------------------

static hk_status add_quoted(hki_buf *b, const char *path) {
    HKI_TRY(hki_buf_add(b, "\"", 1));
    for (const char *p = path; *p != '\0'; p++) {
        if (*p == '"' || *p == '\\')
            HKI_TRY(hki_buf_printf(b, "\\%c", *p));
        else if ((unsigned char)*p < 0x20 || *p == 0x7f)
            HKI_TRY(hki_buf_printf(b, "\\%03o", (unsigned)*p));
        else
            HKI_TRY(hki_buf_add(b, p, 1));
    }
    return hki_buf_add(b, "\"\n", 2);
}

static hk_status add_path(hki_buf *b, const char *field, const char *path) {
    HKI_TRY(hki_buf_printf(b, "%s: ", field));
    return add_quoted(b, path);
}

static hk_status add_unlisted(hki_buf *b, const hki_record *r) {
    HKI_TRY(hki_buf_printf(b, "# hooke %s %.17g ",
                           r->kind == HKI_RECORD_BEST ? "best" : "preserved",
                           r->time));
    return add_quoted(b, r->path);
}

static hk_status add_metric(hki_buf *b, const hki_record *r) {
    if (!r->has_metric)
        return HK_OK;
    HKI_TRY(hki_buf_printf(b, "# hooke metric %.17g ", r->metric));
    return add_quoted(b, r->path);
}

hk_status hki_state_format(const hki_state *s, hki_buf *out) {
    if (s->newest != NULL)
        HKI_TRY(add_path(out, "model_checkpoint_path", s->newest));
    for (size_t i = 0; i < s->count; i++)
        if (s->records[i].kind == HKI_RECORD_LISTED)
            HKI_TRY(add_path(out, "all_model_checkpoint_paths",
                             s->records[i].path));
    for (size_t i = 0; i < s->count; i++)
        if (s->records[i].kind == HKI_RECORD_LISTED)
            HKI_TRY(hki_buf_printf(out,
                                   "all_model_checkpoint_timestamps: %.17g\n",
                                   s->records[i].time));
    if (s->last_preserved > 0)
        HKI_TRY(hki_buf_printf(out, "last_preserved_timestamp: %.17g\n",
                               s->last_preserved));
    for (size_t i = 0; i < s->count; i++)
        if (s->records[i].kind != HKI_RECORD_LISTED)
            HKI_TRY(add_unlisted(out, &s->records[i]));
    // In the order of the lines above, whatever that of the records is.
    for (int listed = 1; listed >= 0; listed--)
        for (size_t i = 0; i < s->count; i++)
            if ((s->records[i].kind == HKI_RECORD_LISTED) == listed)
                HKI_TRY(add_metric(out, &s->records[i]));
    return HK_OK;
}
