// column_roles.h - what is done with each column of a table, and the summary
// that a run begins with.
#ifndef CLI_COLUMN_ROLES_H
#define CLI_COLUMN_ROLES_H
#include "experiment/column_scan.h"

typedef enum column_use {
    USE_FEATURE,
    USE_LABEL,
    USE_WEIGHT,
    USE_NOT
} column_use;

typedef struct column_role {
    column_use use;
    hk_dtype type;   // what it is read as
    int date;        // hk_date_order + 1; 0: no date
    const char *why; // USE_NOT
    char *treatment; // USE_FEATURE: in words
    char *warning;   // NULL: none
} column_role;

typedef struct role_wishes {
    const char *label, *weight;
    const tree *exclude; // a name or a list
    const tree *types;   // name: type, of some or all; NULL: none
    const tree *used;    // model.columns; NULL: every column
    bool all;            // nothing is left out by itself
} role_wishes;

// A role for each column of the facts. 0 or an exit code after a message.
int roles_decide(const char *file, const table_facts *f, const role_wishes *w,
                 column_role *out);
// The lines of the summary, for people; free it. label: what was made of it.
char *roles_summary(const char *file, const dialect *d, const table_facts *f,
                    const column_role *roles, const char *label);

#endif // CLI_COLUMN_ROLES_H
