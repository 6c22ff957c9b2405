// tree.h - a YAML or JSON file as a tree that remembers its lines.
#ifndef CLI_TREE_H
#define CLI_TREE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/cli.h"

typedef enum tree_kind { TREE_SCALAR = 1, TREE_MAP, TREE_LIST } tree_kind;

typedef struct tree {
    tree_kind kind;
    bool quoted;      // a scalar in quotes is text, whatever it looks like
    int line;         // in its file; 0: from the command line
    char *key;        // in a map; NULL in a list and for the root
    char *text;       // TREE_SCALAR
    const char *file; // borrowed; "--set" for values of the command line
    struct tree *parent, *child, *next;
} tree;

// Reads a file; JSON is YAML. NULL after a message. Aliases, tags, several
// documents, duplicate keys and more than 32 levels are refused.
tree *tree_read(const char *path);
tree *tree_parse(const char *text, size_t size, const char *file);
void tree_free(tree *t); // NULL is allowed
CLI_SCOPED_HANDLE(tree, tree_free)

tree *tree_get(const tree *map, const char *key); // NULL: not there
// "a.b.c" from the root of t; list items by number.
tree *tree_path(const tree *t, const char *path);
// Sets a.b.c to a value in YAML's notation; makes maps on the way. option:
// of the command line, for messages. false after a message.
bool tree_set(tree *root, const char *path, const char *value,
              const char *option);
// The same with a plain text, whatever it looks like.
bool tree_set_text(tree *root, const char *path, const char *text);
tree *tree_copy(const tree *t);  // on its own, without siblings
size_t tree_size(const tree *t); // children
// Where one value may stand for a list of one:
//     for (const tree *c = tree_first(t); c; c = tree_next(t, c))
const tree *tree_first(const tree *t); // NULL: none
const tree *tree_next(const tree *t, const tree *c);
size_t tree_count(const tree *t);

// Values; dflt when t is NULL. The types have been checked by the schema.
const char *tree_text(const tree *t, const char *dflt);
int64_t tree_int(const tree *t, int64_t dflt);
double tree_float(const tree *t, double dflt);
bool tree_bool(const tree *t, bool dflt);
bool tree_is_bool(const tree *t); // true, false, yes, no, on, off
bool tree_is_null(const tree *t);

// The tree as JSON on one line, into memory of the caller (free).
char *tree_json(const tree *t);
// "file:line: " for messages; into a static buffer of the calling thread.
const char *tree_where(const tree *t);

#endif // CLI_TREE_H
