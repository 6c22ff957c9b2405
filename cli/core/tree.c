// tree.c - YAML events to a tree; see tree.h.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>
#include "core/cli.h"
#include "core/tree.h"

enum { MOST_LEVELS = 32, MOST_NODES = 100000 };

typedef struct reader {
    yaml_parser_t yaml;
    const char *file, *text;
    size_t size;
    int nodes;
} reader;

// ---- building --------------------------------------------------------------

static tree *node(tree_kind kind, const char *file, int line) {
    tree *t = cli_alloc(sizeof *t);
    t->kind = kind;
    t->file = file;
    t->line = line;
    return t;
}

void tree_free(tree *t) {
    while (t) {
        tree *next = t->next;
        tree_free(t->child);
        free(t->key);
        free(t->text);
        free(t);
        t = next;
    }
}

static void append(tree *parent, tree *child) {
    tree **end = &parent->child;
    while (*end)
        end = &(*end)->next;
    child->parent = parent;
    *end = child;
}

// Does this line have a tab before its text?
static bool has_tab(const reader *r, size_t line) {
    const char *p = r->text, *const end = r->text + r->size;
    for (; line && p < end; p++)
        line -= *p == '\n';
    while (p < end && *p == ' ')
        p++;
    return p < end && *p == '\t';
}

static bool next_event(reader *r, yaml_event_t *e) {
    if (yaml_parser_parse(&r->yaml, e))
        return true;
    const size_t at = r->yaml.problem_mark.line;
    if (has_tab(r, at)) {
        cli_fail("%s:%zu: a tab character; indent lines with spaces", r->file,
                 at + 1);
        return false;
    }
    cli_fail("%s:%zu: %s", r->file, r->yaml.problem_mark.line + 1,
             r->yaml.problem ? r->yaml.problem : "invalid YAML");
    return false;
}

static tree *refuse(const reader *r, const yaml_event_t *e, const char *what) {
    cli_fail("%s:%zu: %s", r->file, e->start_mark.line + 1, what);
    return NULL;
}

static tree *read_node(reader *r, yaml_event_t *e, int level);

// The value behind a key that was just read.
static bool read_pair(reader *r, tree *map, yaml_event_t *key, int level) {
    if (key->type != YAML_SCALAR_EVENT)
        return refuse(r, key, "a key must be plain text") != NULL;
    char *name = cli_strdup((const char *)key->data.scalar.value);
    const int line = (int)key->start_mark.line + 1;
    tree *value = NULL;
    yaml_event_t e;
    const tree *before = tree_get(map, name);
    if (before) { // not its name: the file may be another program's secret
        cli_fail("%s:%d: this key was set in line %d already", r->file, line,
                 before->line);
    } else if (next_event(r, &e)) {
        value = read_node(r, &e, level + 1);
        yaml_event_delete(&e);
    }
    if (!value) {
        free(name);
        return false;
    }
    value->key = name;
    value->line = line;
    append(map, value);
    return true;
}

static tree *read_children(reader *r, tree *t, int level) {
    const yaml_event_type_t end =
        t->kind == TREE_MAP ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT;
    for (;;) {
        yaml_event_t e;
        if (!next_event(r, &e))
            break;
        if (e.type == end) {
            yaml_event_delete(&e);
            return t;
        }
        bool good = false;
        if (t->kind == TREE_MAP) {
            good = read_pair(r, t, &e, level);
        } else {
            tree *child = read_node(r, &e, level + 1);
            if (child)
                append(t, child);
            good = child != NULL;
        }
        yaml_event_delete(&e);
        if (!good)
            break;
    }
    tree_free(t);
    return NULL;
}

static tree *read_node(reader *r, yaml_event_t *e, int level) {
    const int line = (int)e->start_mark.line + 1;
    if (level > MOST_LEVELS)
        return refuse(r, e, "the values are nested too deeply");
    if (++r->nodes > MOST_NODES)
        return refuse(r, e, "the file has too many values");
    tree *t;
    switch (e->type) {
    case YAML_SCALAR_EVENT:
        if (e->data.scalar.tag || e->data.scalar.anchor)
            return refuse(r, e, "YAML tags and anchors are not supported");
        if (strlen((const char *)e->data.scalar.value) != e->data.scalar.length)
            return refuse(r, e, "a value has a NUL byte");
        t = node(TREE_SCALAR, r->file, line);
        t->text = cli_strdup((const char *)e->data.scalar.value);
        t->quoted = e->data.scalar.style == YAML_SINGLE_QUOTED_SCALAR_STYLE ||
                    e->data.scalar.style == YAML_DOUBLE_QUOTED_SCALAR_STYLE;
        return t;
    case YAML_MAPPING_START_EVENT:
        if (e->data.mapping_start.tag || e->data.mapping_start.anchor)
            return refuse(r, e, "YAML tags and anchors are not supported");
        return read_children(r, node(TREE_MAP, r->file, line), level);
    case YAML_SEQUENCE_START_EVENT:
        if (e->data.sequence_start.tag || e->data.sequence_start.anchor)
            return refuse(r, e, "YAML tags and anchors are not supported");
        return read_children(r, node(TREE_LIST, r->file, line), level);
    case YAML_ALIAS_EVENT:
        return refuse(r, e, "YAML aliases are not supported");
    default:
        return refuse(r, e, "a value is missing");
    }
}

// Everything between the start of the stream and its end.
static tree *read_stream(reader *r) {
    tree *root = NULL;
    for (;;) {
        yaml_event_t e;
        if (!next_event(r, &e))
            break;
        const yaml_event_type_t type = e.type;
        bool good = true;
        if (type == YAML_STREAM_END_EVENT) {
            yaml_event_delete(&e);
            if (!root)
                root = node(TREE_MAP, r->file, 1); // an empty file
            return root;
        }
        if (type != YAML_STREAM_START_EVENT &&
            type != YAML_DOCUMENT_START_EVENT &&
            type != YAML_DOCUMENT_END_EVENT) {
            if (root)
                good = refuse(r, &e,
                              "a second YAML document; a file has one") != NULL;
            else
                good = (root = read_node(r, &e, 0)) != NULL;
        }
        yaml_event_delete(&e);
        if (!good)
            break;
    }
    tree_free(root);
    return NULL;
}

tree *tree_parse(const char *text, size_t size, const char *file) {
    reader r = {.file = file, .text = text, .size = size};
    if (!yaml_parser_initialize(&r.yaml)) {
        cli_fail("%s: out of memory", file);
        return NULL;
    }
    yaml_parser_set_input_string(&r.yaml, (const unsigned char *)text, size);
    tree *t = read_stream(&r);
    yaml_parser_delete(&r.yaml);
    return t;
}

tree *tree_read(const char *path) {
    CLI_FREED char *text = NULL;
    size_t size;
    if (cli_read_file(path, &text, &size))
        return NULL;
    return tree_parse(text, size, path);
}

// ---- finding ---------------------------------------------------------------

tree *tree_get(const tree *map, const char *key) {
    if (!map || map->kind != TREE_MAP)
        return NULL;
    for (tree *c = map->child; c; c = c->next)
        if (strcmp(c->key, key) == 0)
            return c;
    return NULL;
}

size_t tree_size(const tree *t) {
    size_t n = 0;
    for (const tree *c = t ? t->child : NULL; c; c = c->next)
        n++;
    return n;
}

const tree *tree_first(const tree *t) {
    return !t || t->kind == TREE_SCALAR ? t : t->child;
}

const tree *tree_next(const tree *t, const tree *c) {
    return c == t ? NULL : c->next;
}

size_t tree_count(const tree *t) {
    return t && t->kind == TREE_SCALAR ? 1 : tree_size(t);
}

// The child that one step of a path names.
static tree *step(const tree *t, const char *word) {
    if (!t || t->kind != TREE_LIST)
        return tree_get(t, word);
    int64_t i;
    if (!cli_parse_int(word, &i) || i < 0)
        return NULL;
    tree *c = t->child;
    while (c && i-- > 0)
        c = c->next;
    return c;
}

tree *tree_path(const tree *t, const char *path) {
    char *words = cli_strdup(path), *rest = words;
    tree *at = (tree *)(uintptr_t)t;
    for (char *word; at && (word = strsep(&rest, "."));)
        at = step(at, word);
    free(words);
    return at;
}

// ---- changing --------------------------------------------------------------

static void replace(tree *old, tree *new) {
    tree **link = &old->parent->child;
    while (*link != old)
        link = &(*link)->next;
    new->key = old->key ? cli_strdup(old->key) : NULL;
    new->parent = old->parent;
    new->next = old->next;
    *link = new;
    old->next = NULL;
    tree_free(old);
}

static bool put(tree *root, const char *path, tree *v, const char *option) {
    v->line = 0;
    char *words = cli_strdup(path), *rest = words;
    tree *at = root;
    bool good = true;
    for (char *word; good && (word = strsep(&rest, "."));) {
        tree *next = step(at, word);
        if (!*word) {
            cli_fail("%s %s: an empty key", option, path);
            good = false;
        } else if (next && !rest) {
            replace(next, v);
        } else if (next) {
            at = next;
        } else if (at->kind != TREE_MAP) {
            cli_fail("%s %s: cannot set '%s': the key before it has a value, "
                     "not keys",
                     option, path, word);
            good = false;
        } else {
            next = rest ? node(TREE_MAP, option, 0) : v;
            next->key = cli_strdup(word);
            append(at, next);
            at = next;
        }
    }
    if (!good)
        tree_free(v);
    free(words);
    return good;
}

bool tree_set_text(tree *root, const char *path, const char *text) {
    tree *v = node(TREE_SCALAR, "--set", 0);
    v->text = cli_strdup(text);
    v->quoted = true;
    return put(root, path, v, "--set");
}

bool tree_set(tree *root, const char *path, const char *value,
              const char *option) {
    if (value[0] == '\0') // an empty document is an empty text here
        return tree_set_text(root, path, value);
    tree *v = tree_parse(value, strlen(value), option);
    return v && put(root, path, v, option);
}

tree *tree_copy(const tree *t) {
    tree *c = node(t->kind, t->file, t->line);
    c->quoted = t->quoted;
    c->key = t->key ? cli_strdup(t->key) : NULL;
    c->text = t->text ? cli_strdup(t->text) : NULL;
    for (const tree *child = t->child; child; child = child->next)
        append(c, tree_copy(child));
    return c;
}

// ---- values ----------------------------------------------------------------

const char *tree_text(const tree *t, const char *dflt) {
    return t && t->kind == TREE_SCALAR ? t->text : dflt;
}

int64_t tree_int(const tree *t, int64_t dflt) {
    int64_t v;
    return t && t->kind == TREE_SCALAR && cli_parse_int(t->text, &v) ? v : dflt;
}

double tree_float(const tree *t, double dflt) {
    double v;
    return t && t->kind == TREE_SCALAR && cli_parse_float(t->text, &v) ? v
                                                                       : dflt;
}

static int bool_of(const tree *t) {
    static const char *const words[] = {"false", "true", "no",
                                        "yes",   "off",  "on"};
    if (!t || t->kind != TREE_SCALAR || t->quoted)
        return -1;
    for (int i = 0; i < 6; i++)
        if (strcasecmp(t->text, words[i]) == 0)
            return i % 2;
    return -1;
}

bool tree_is_bool(const tree *t) {
    return bool_of(t) >= 0;
}

bool tree_bool(const tree *t, bool dflt) {
    const int b = bool_of(t);
    return b < 0 ? dflt : b != 0;
}

bool tree_is_null(const tree *t) {
    return t && t->kind == TREE_SCALAR && !t->quoted &&
           (!*t->text || strcmp(t->text, "null") == 0 ||
            strcmp(t->text, "~") == 0);
}

// ---- JSON ------------------------------------------------------------------

static void write_json(FILE *f, const tree *t) {
    double v;
    if (t->kind != TREE_SCALAR) {
        fputc(t->kind == TREE_MAP ? '{' : '[', f);
        for (const tree *c = t->child; c; c = c->next) {
            if (t->kind == TREE_MAP) {
                cli_json_string(f, c->key);
                fputc(':', f);
            }
            write_json(f, c);
            if (c->next)
                fputc(',', f);
        }
        fputc(t->kind == TREE_MAP ? '}' : ']', f);
    } else if (tree_is_null(t)) {
        fputs("null", f);
    } else if (tree_is_bool(t)) {
        fputs(tree_bool(t, false) ? "true" : "false", f);
    } else if (!t->quoted && cli_parse_float(t->text, &v)) {
        cli_json_number(f, v);
    } else {
        cli_json_string(f, t->text);
    }
}

char *tree_json(const tree *t) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return cli_strdup("{}");
    write_json(f, t);
    fclose(f);
    return text;
}

const char *tree_where(const tree *t) {
    static _Thread_local char text[512];
    if (t->line)
        snprintf(text, sizeof text, "%s:%d: ", t->file, t->line);
    else
        snprintf(text, sizeof text, "%s: ", t->file);
    return text;
}
