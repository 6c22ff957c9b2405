// schema.c - the check of a tree against the table of keys.
#include "experiment/schema.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core/cli.h"

enum { MOST_PATH = 256 };

// ---- paths -----------------------------------------------------------------

// The path of t in the table's notation.
static void path_of(const tree *t, char *out) {
    if (!t->parent) {
        out[0] = '\0';
        return;
    }
    path_of(t->parent, out);
    if (!t->key) // an item of a list has its parent's path
        return;
    const char *word = t->key;
    if (strcmp(out, "data") == 0 &&
        (strcmp(word, "train") == 0 || strcmp(word, "eval") == 0 ||
         strcmp(word, "test") == 0 || strcmp(word, "predict") == 0))
        word = "<set>";
    const size_t n = strlen(out);
    if (n + strlen(word) + 2 < MOST_PATH)
        snprintf(out + n, MOST_PATH - n, "%s%s", n ? "." : "", word);
}

static const schema_key *find(const char *path) {
    for (size_t i = 0; schema_keys[i].path; i++)
        if (strcmp(schema_keys[i].path, path) == 0)
            return &schema_keys[i];
    return NULL;
}

const char *const schema_sets[] = {"train", "eval", "test", "predict", NULL};

const schema_key *schema_find(const char *path) {
    for (size_t i = 0; schema_sets[i]; i++) {
        const size_t n = strlen(schema_sets[i]);
        if (strncmp(path, "data.", 5) != 0 ||
            strncmp(path + 5, schema_sets[i], n) != 0 || path[5 + n] != '.')
            continue;
        CLI_FREED char *general = cli_printf("data.<set>%s", path + 5 + n);
        return find(general);
    }
    return find(path);
}

// The last word of a key's path if the key is right below `parent`.
static const char *child_name(const schema_key *k, const char *parent) {
    const size_t n = strlen(parent);
    const char *rest = k->path;
    if (n) {
        if (strncmp(rest, parent, n) != 0 || rest[n] != '.')
            return NULL;
        rest += n + 1;
    }
    return strchr(rest, '.') ? NULL : rest;
}

// The known key beside t whose name is nearly t's; NULL: none.
static const char *nearest_key(const tree *t) {
    char path[MOST_PATH];
    const char *names[64];
    size_t n = 0;
    path_of(t->parent, path);
    for (size_t i = 0; schema_keys[i].path && n < 60; i++) {
        const char *name = child_name(&schema_keys[i], path);
        if (name && strcmp(name, "<set>") != 0)
            names[n++] = name;
    }
    if (strcmp(path, "data") == 0) {
        names[n++] = "train";
        names[n++] = "eval";
        names[n++] = "test";
        names[n++] = "predict";
    }
    return cli_nearest(t->key, names, n);
}

static bool unknown(const tree *t) {
    char path[MOST_PATH];
    path_of(t->parent, path);
    const char *near = nearest_key(t);
    const char *below = *path ? path : "the file";
    if (near)
        cli_fail("%sunknown key '%s' in %s; did you mean '%s'?", tree_where(t),
                 t->key, below, near);
    else
        cli_fail("%sunknown key '%s' in %s", tree_where(t), t->key, below);
    return false;
}

// ---- types -----------------------------------------------------------------

static bool wrong(const tree *t, const char *expected) {
    const char *name = t->key                        ? t->key
                       : t->parent && t->parent->key ? t->parent->key
                                                     : "item";
    if (t->kind == TREE_SCALAR)
        cli_fail("%s'%s' has to be %s, not '%s'", tree_where(t), name, expected,
                 t->text);
    else
        cli_fail("%s'%s' has to be %s", tree_where(t), name, expected);
    return false;
}

const char *schema_choices(const schema_key *k) {
    static char methods[1024];
    const char *name;
    size_t at = 0;
    if (*k->values)
        return k->values;
    for (int m = 1; (name = hk_method_name((hk_method)m)); m++)
        at += (size_t)snprintf(methods + at, sizeof methods - at, "%s%s",
                               at ? "|" : "", name);
    return methods;
}

static bool check_choice(const tree *t, const schema_key *k) {
    const char *const choices = schema_choices(k), *names[32];
    size_t n = 0;
    if (t->kind == TREE_SCALAR && cli_is_choice(choices, t->text))
        return true;
    char *copy = cli_strdup(choices), *rest = copy;
    for (char *word; n < 32 && (word = strsep(&rest, "|"));)
        names[n++] = word;
    const char *near =
        t->kind == TREE_SCALAR ? cli_nearest(t->text, names, n) : NULL;
    if (near) {
        cli_fail("%s'%s' cannot be '%s'; did you mean '%s'?", tree_where(t),
                 t->key ? t->key : t->parent->key, t->text, near);
    } else {
        char *const expected = cli_printf("one of %s", choices);
        wrong(t, expected);
        free(expected);
    }
    free(copy);
    return false;
}

static bool check_choices(const tree *t, const schema_key *k) {
    bool good = t->kind != TREE_MAP || wrong(t, "one name or a list");
    if (t->kind == TREE_SCALAR)
        return check_choice(t, k);
    for (const tree *c = t->child; good && c; c = c->next)
        good = check_choice(c, k);
    return good;
}

static bool check_scalar(const tree *t, const schema_key *k) {
    int64_t i;
    double f;
    if (t->kind != TREE_SCALAR)
        return wrong(t, "one value");
    switch (k->type) {
    case SCHEMA_INT:
    case SCHEMA_INTS:
        if (strcmp(k->values, "1..") == 0)
            return (cli_parse_int(t->text, &i) && i >= 1) ||
                   wrong(t, "a whole number of at least 1");
        return cli_parse_int(t->text, &i) || wrong(t, "a whole number");
    case SCHEMA_FLOAT:
    case SCHEMA_FLOATS:
        return cli_parse_float(t->text, &f) || wrong(t, "a number");
    case SCHEMA_BOOL:
        return tree_is_bool(t) || wrong(t, "true or false");
    default:
        return true;
    }
}

static bool check_list(const tree *t, const schema_key *k) {
    if (t->kind == TREE_SCALAR)
        return check_scalar(t, k);
    if (t->kind != TREE_LIST)
        return wrong(t, "one value or a list");
    for (const tree *c = t->child; c; c = c->next)
        if (!check_scalar(c, k))
            return false;
    return true;
}

// ---- short forms -----------------------------------------------------------

// `- flatten` becomes `- flatten: {}`.
static void widen_item(tree *item) {
    if (item->kind != TREE_SCALAR)
        return;
    tree *value = cli_alloc(sizeof *value);
    value->kind = TREE_MAP;
    value->key = item->text;
    value->line = item->line;
    value->file = item->file;
    value->parent = item;
    item->kind = TREE_MAP;
    item->text = NULL;
    item->child = value;
}

// `dense: 128` becomes `dense: {units: 128}`; `flatten:` an empty map.
static bool widen_value(tree *t, const schema_key *k) {
    if (t->kind == TREE_MAP)
        return true;
    if (tree_is_null(t)) {
        free(t->text);
        t->text = NULL;
        t->kind = TREE_MAP;
        return true;
    }
    if (!*k->values)
        return wrong(t, "empty or a map of keys");
    tree *value = cli_alloc(sizeof *value);
    *value = (tree){.kind = t->kind,
                    .quoted = t->quoted,
                    .line = t->line,
                    .key = cli_strdup(k->values),
                    .text = t->text,
                    .file = t->file,
                    .parent = t,
                    .child = t->child};
    for (tree *c = value->child; c; c = c->next)
        c->parent = value;
    t->kind = TREE_MAP;
    t->text = NULL;
    t->child = value;
    return true;
}

// ---- the check -------------------------------------------------------------

static bool check_children(tree *t);

static bool check_items(tree *t) {
    if (t->kind != TREE_LIST)
        return wrong(t, "a list");
    for (tree *item = t->child; item; item = item->next) {
        widen_item(item);
        if (item->kind != TREE_MAP || tree_size(item) != 1) {
            cli_fail("%san item of '%s' has to be one name with its values",
                     tree_where(item), t->key);
            return false;
        }
        if (!check_children(item))
            return false;
    }
    return true;
}

static bool check_free(const tree *t) {
    static const schema_key text = {.type = SCHEMA_TEXT};
    if (t->kind != TREE_MAP)
        return wrong(t, "a map");
    for (const tree *c = t->child; c; c = c->next)
        if (!check_scalar(c, &text))
            return false;
    return true;
}

static bool check_node(tree *t) {
    char path[MOST_PATH];
    path_of(t, path);
    const schema_key *k = find(path);
    if (!k)
        return unknown(t);
    switch (k->type) {
    case SCHEMA_MAP:
        if (tree_is_null(t)) // `ema:` with nothing below it
            return widen_value(t, k);
        return t->kind == TREE_MAP ? check_children(t) : wrong(t, "a map");
    case SCHEMA_ITEMS:
        return check_items(t);
    case SCHEMA_ITEM:
        return widen_value(t, k) && check_children(t);
    case SCHEMA_FREE:
        return check_free(t);
    case SCHEMA_CHOICE:
        return check_choice(t, k);
    case SCHEMA_CHOICES:
        return check_choices(t, k);
    case SCHEMA_INTS:
    case SCHEMA_FLOATS:
    case SCHEMA_TEXTS:
    case SCHEMA_FILES:
        return check_list(t, k);
    default:
        return check_scalar(t, k);
    }
}

static bool check_children(tree *t) {
    for (tree *c = t->child; c; c = c->next)
        if (!check_node(c))
            return false;
    return true;
}

// A file that has none of the keys, such as another program's.
static bool is_strange(const tree *root) {
    if (root->kind != TREE_MAP)
        return true;
    for (const tree *c = root->child; c; c = c->next)
        if (find(c->key) || nearest_key(c))
            return false;
    return root->child != NULL;
}

bool schema_check(tree *root) {
    if (!is_strange(root))
        return check_children(root);
    cli_fail(
        "%sno key of an experiment (model, data, ...) was found; a file of "
        "data has to be named inside an experiment (hooke help experiment)",
        tree_where(root));
    return false;
}

const char *schema_path_of(const char *name, bool fits(const char *path)) {
    for (const schema_key *k = schema_keys; k->path; k++) {
        const char *dot = strrchr(k->path, '.');
        if (dot && strcmp(dot + 1, name) == 0 && fits(k->path))
            return k->path;
    }
    return NULL;
}
