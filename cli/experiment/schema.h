// schema.h - the keys of an experiment file: types, defaults, meaning.
//
// One table checks files, explains errors and makes docs/experiment.md and
// hooke.conf(5).
#ifndef CLI_SCHEMA_H
#define CLI_SCHEMA_H
#include <stdbool.h>
#include <stdio.h>
#include "core/tree.h"

typedef enum schema_type {
    SCHEMA_MAP = 1, // keys listed below it
    SCHEMA_ITEMS,   // a list of maps with one key each (layers, columns)
    SCHEMA_ITEM,    // such a map's value; a scalar stands for its main key
    SCHEMA_FREE,    // a map with any keys and scalar values
    SCHEMA_INT,
    SCHEMA_FLOAT,
    SCHEMA_BOOL,
    SCHEMA_TEXT,
    SCHEMA_FILE, // relative to the experiment's folder
    SCHEMA_CHOICE,
    SCHEMA_CHOICES, // one or a list
    SCHEMA_INTS,    // one or a list
    SCHEMA_FLOATS,
    SCHEMA_TEXTS,
    SCHEMA_FILES
} schema_type;

typedef struct schema_key {
    const char *path; // "model.layers.dense.units"; "<set>" is train, eval,
                      // test or predict
    schema_type type;
    const char *dflt; // as text for people; "" for none
    // SCHEMA_CHOICE: "a|b" ("": the methods; see schema_choices); SCHEMA_ITEM:
    // its main key; SCHEMA_INT and SCHEMA_INTS: "1.." if they are 1 or more.
    const char *values;
    const char *help;
} schema_key;

extern const schema_key schema_keys[]; // ends with an empty path

// The key of a path that names a set, as "data.train.batch" does; NULL: none.
const schema_key *schema_find(const char *path);
extern const char *const schema_sets[]; // that <set> stands for; ends with NULL

// "a|b|c" of a key of choices.
const char *schema_choices(const schema_key *k);

// Checks the tree and brings short forms into their long form. false after
// a message with file, line and, for an unknown key, the nearest known one.
bool schema_check(tree *root);

// The first key whose last word is the name and which fits; NULL: none.
const char *schema_path_of(const char *name, bool fits(const char *path));

void schema_page(FILE *f); // docs/experiment.md
void schema_text(FILE *f); // hooke help experiment
void schema_man(FILE *f);  // hooke.conf(5), scdoc

#endif // CLI_SCHEMA_H
