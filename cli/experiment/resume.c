// resume.c - an experiment against what its run was trained with; see resume.h.
#include "experiment/resume.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "experiment/run_record.h"
#include "experiment/schema.h"

enum {
    MOST_TEXTS = 64,   // differences that are kept of each kind
    MOST_NAMED = 4,    // in the message of a refusal
    MOST_LETTERS = 60, // of a value
    MOST_PATH = 256
};

typedef struct texts {
    char *at[MOST_TEXTS];
    size_t n; // may be more than are kept
} texts;

typedef struct comparison {
    const experiment *x;
    const tree *prints; // data.json; NULL: none
    bool of_model;      // only what the graph of the model depends on
    texts refused, told;
} comparison;

static void free_texts(texts *t) {
    for (size_t i = 0; i < t->n && i < MOST_TEXTS; i++)
        free(t->at[i]);
}

static void free_comparison(comparison *c) {
    free_texts(&c->refused);
    free_texts(&c->told);
}

static bool is_of_model(const char *key) {
    return strcmp(key, "data.train.label") == 0 ||
           (strncmp(key, "model", 5) == 0 &&
            strncmp(key, "model.params", 12) != 0);
}

// The text is taken.
static void add(comparison *c, const char *key, char *text) {
    const resume_rule rule =
        c->of_model && !is_of_model(key) ? RESUME_FREE : resume_rule_of(key);
    texts *t = rule == RESUME_REFUSED ? &c->refused
               : rule == RESUME_TOLD  ? &c->told
                                      : NULL;
    if (t && t->n < MOST_TEXTS)
        t->at[t->n] = text;
    else
        free(text);
    if (t)
        t->n++;
}

// ---- values -----------------------------------------------------------------

static char *words_of(const tree *t) {
    if (!t)
        return cli_strdup("not given");
    char *text = t->kind == TREE_SCALAR
                     ? cli_strdup(*t->text ? t->text : "empty")
                     : tree_json(t);
    if (strlen(text) <= MOST_LETTERS)
        return text;
    free(text);
    return cli_printf("%zu items", tree_count(t));
}

static bool same_text(const char *a, const char *b) {
    double x, y;
    if (cli_parse_float(a, &x) && cli_parse_float(b, &y))
        return x == y;
    return strcmp(a, b) == 0;
}

// One value stands for a list of one, and no value for the default.
static bool same_values(const tree *a, const tree *b, const char *dflt) {
    if (!a || !b)
        return tree_count(a ? a : b) == 1 && *dflt &&
               same_text(tree_text(tree_first(a ? a : b), ""), dflt);
    const tree *p = tree_first(a), *q = tree_first(b);
    while (p && q && same_text(tree_text(p, ""), tree_text(q, ""))) {
        p = tree_next(a, p);
        q = tree_next(b, q);
    }
    return !p && !q;
}

// ---- trees ------------------------------------------------------------------

// A place in both trees: its key in the rules' notation, and as --set has it.
typedef struct place {
    char key[MOST_PATH], shown[MOST_PATH];
} place;

static void compare(comparison *c, const tree *a, const tree *b,
                    const place *at);

static void compare_leaf(comparison *c, const tree *a, const tree *b,
                         const place *at) {
    const schema_key *k = schema_find(at->key);
    if (same_values(a, b, k ? k->dflt : "") ||
        (k && k->type == SCHEMA_FILES &&
         fingerprints_cover(c->prints, c->x, at->key)))
        return;
    CLI_FREED char *before = words_of(a);
    CLI_FREED char *now = words_of(b);
    add(c, at->key, cli_printf("%s was %s, now %s", at->shown, before, now));
}

static void compare_child(comparison *c, const tree *a, const tree *b,
                          const place *at, const char *name) {
    place below = *at;
    const size_t n = strlen(at->key), m = strlen(at->shown);
    snprintf(below.key + n, MOST_PATH - n, "%s%s", n ? "." : "", name);
    snprintf(below.shown + m, MOST_PATH - m, "%s%s", m ? "." : "", name);
    compare(c, a, b, &below);
}

static void compare_maps(comparison *c, const tree *a, const tree *b,
                         const place *at) {
    for (const tree *p = a ? a->child : NULL; p; p = p->next)
        compare_child(c, p, tree_get(b, p->key), at, p->key);
    for (const tree *q = b ? b->child : NULL; q; q = q->next)
        if (!tree_get(a, q->key))
            compare_child(c, NULL, q, at, q->key);
}

// An item of layers or columns is one name with its values.
static void compare_items(comparison *c, const tree *a, const tree *b,
                          const place *at) {
    if (tree_size(a) != tree_size(b)) {
        add(c, at->key,
            cli_printf("%s had %zu items, now %zu", at->shown, tree_size(a),
                       tree_size(b)));
        return;
    }
    size_t i = 0;
    for (const tree *p = a->child, *q = b->child; p && q;
         p = p->next, q = q->next, i++) {
        place below = *at;
        const size_t m = strlen(at->shown);
        snprintf(below.shown + m, MOST_PATH - m, ".%zu", i);
        if (p->kind == TREE_MAP && q->kind == TREE_MAP && p->child &&
            q->child && strcmp(p->child->key, q->child->key) != 0)
            add(c, at->key,
                cli_printf("%s was %s, now %s", below.shown, p->child->key,
                           q->child->key));
        else
            compare(c, p, q, &below);
    }
}

static bool is_items(const tree *t) {
    return t && t->kind == TREE_LIST && t->child && t->child->kind == TREE_MAP;
}

static bool is_map(const tree *t) {
    return t && t->kind == TREE_MAP;
}

static void compare(comparison *c, const tree *a, const tree *b,
                    const place *at) {
    if (resume_rule_of(at->key) == RESUME_FREE)
        return;
    if (is_map(a) ? is_map(b) || !b : is_map(b) && !a)
        compare_maps(c, a, b, at);
    else if (is_items(a) && is_items(b))
        compare_items(c, a, b, at);
    else
        compare_leaf(c, a, b, at);
}

static void compare_files(comparison *c) {
    const char *key;
    for (size_t i = 0; (key = fingerprints_key(i)) != NULL; i++) {
        CLI_FREED char *how = fingerprints_compare(c->prints, c->x, key);
        if (how)
            add(c, key,
                cli_printf("the content of %s has changed (%s)", key, how));
    }
}

// ---- the check --------------------------------------------------------------

// Steps that were made, or a center that is kept.
static bool has_run(const char *model_dir) {
    CLI_FREED char *asked = cli_printf("%s/experiment.json", model_dir);
    CLI_FREED char *center = cli_printf("%s/center.bin", model_dir);
    int64_t step = 0;
    (void)hk_latest_checkpoint(model_dir, NULL, 0, &step);
    struct stat st;
    return stat(asked, &st) == 0 && S_ISREG(st.st_mode) &&
           (step > 0 || access(center, F_OK) == 0);
}

static int refuse(const cli_args *a, const comparison *c, const char *model_dir,
                  const tree *before) {
    const char *file = tree_text(tree_path(before, "run.file"), c->x->file);
    const char *ways =
        cli_find_option(cli_command_of(a), "fresh")
            ? "start over with --fresh, or choose another folder with -d"
            : "choose another folder with -d";
    CLI_FREED char *whose =
        strcmp(file, c->x->file) == 0
            ? cli_strdup("has a run with other settings")
            : cli_printf("belongs to %s, not to %s", file, c->x->file);
    CLI_FREED char *list = cli_strdup("");
    size_t i = 0;
    for (; i < c->refused.n && i < MOST_NAMED; i++) {
        char *longer =
            cli_printf("%s%s%s", list, i ? "; " : "", c->refused.at[i]);
        free(list);
        list = longer;
    }
    CLI_FREED char *more = c->refused.n > i
                               ? cli_printf("; and %zu more", c->refused.n - i)
                               : cli_strdup("");
    return cli_fail("%s: %s: %s%s; %s", model_dir, whose, list, more, ways);
}

static char *join_lines(char *before, char *line) {
    char *text = before ? cli_printf("%s\n%s", before, line) : cli_strdup(line);
    free(before);
    free(line);
    return text;
}

// Workers and the center of one run would all say the same.
static char *notes_of(const cli_args *a, const comparison *c,
                      const char *model_dir) {
    const char *command = cli_command_of(a)->name;
    char *text = NULL;
    if (strcmp(command, "train") != 0 && strcmp(command, "center") != 0)
        return NULL;
    for (size_t i = 0; i < c->told.n && i < MOST_TEXTS; i++)
        text = join_lines(
            text, cli_printf("the run continues with a changed setting: %s",
                             c->told.at[i]));
    if (!c->prints && tree_path(c->x->root, "data.train.files"))
        text = join_lines(
            text, cli_printf("warning: %s has no data.json, because an earlier "
                             "version of Hooke trained it; changes of the data "
                             "since then cannot be detected",
                             model_dir));
    return text;
}

int resume_check_owner(const experiment *x, const settings *s) {
    if (!s->own_dir)
        return 0;
    CLI_FREED char *path = cli_printf("%s/experiment.json", s->model_dir);
    CLI_SCOPED(tree_free_at)
    tree *before = access(path, R_OK) == 0 ? tree_read(path) : NULL;
    const char *file = tree_text(tree_path(before, "run.file"), x->file);
    if (strcmp(file, x->file) == 0)
        return 0;
    CLI_SCOPED(tree_free_at) tree *prints = fingerprints_read(s->model_dir);
    CLI_SCOPED(free_comparison) comparison c = {.x = x, .prints = prints};
    compare(&c, before, x->root, &(place){.key = ""});
    compare_files(&c);
    const bool known = prints || !tree_path(x->root, "data.train.files");
    return known && c.refused.n + c.told.n == 0
               ? 0
               : cli_fail(
                     "%s: belongs to %s, not to %s; set another name in %s, "
                     "choose its own --model-dir, or remove the folder",
                     s->model_dir, file, x->file, x->file);
}

// Rows to evaluate on are drawn by their numbers: of a file that has changed,
// they are others, and some were trained on.
static void warn_of_data(const cli_args *a, const comparison *c) {
    const char *command = cli_command_of(a)->name;
    const bool scores =
        strcmp(command, "report") == 0 ||
        (strcmp(command, "evaluate") == 0 && !cli_has(a, "data"));
    if (!scores || tree_path(c->x->root, "data.eval.files"))
        return;
    CLI_FREED char *how =
        fingerprints_compare(c->prints, c->x, "data.train.files");
    if (how)
        cli_note("warning: the content of data.train.files has changed since "
                 "the run began (%s); the rows that are scored may be rows "
                 "that it was trained on",
                 how);
}

int resume_check_model(const cli_args *a, const experiment *x,
                       const settings *s) {
    if (!has_run(s->model_dir))
        return 0;
    CLI_FREED char *path = cli_printf("%s/experiment.json", s->model_dir);
    CLI_SCOPED(tree_free_at) tree *before = tree_read(path);
    CLI_SCOPED(tree_free_at) tree *prints = fingerprints_read(s->model_dir);
    if (!before)
        return 0;
    CLI_SCOPED(free_comparison)
    comparison c = {.x = x, .prints = prints, .of_model = true};
    compare(&c, before, x->root, &(place){.key = ""});
    if (c.refused.n)
        return refuse(a, &c, s->model_dir, before);
    warn_of_data(a, &c);
    return 0;
}

int resume_check(const cli_args *a, const experiment *x, settings *s) {
    if (!has_run(s->model_dir))
        return 0;
    CLI_FREED char *path = cli_printf("%s/experiment.json", s->model_dir);
    CLI_SCOPED(tree_free_at) tree *before = tree_read(path);
    CLI_SCOPED(tree_free_at) tree *prints = fingerprints_read(s->model_dir);
    if (!before) // damaged, which has been said; the model is what counts
        return 0;
    CLI_SCOPED(free_comparison) comparison c = {.x = x, .prints = prints};
    compare(&c, before, x->root, &(place){.key = ""});
    compare_files(&c);
    if (c.refused.n)
        return refuse(a, &c, s->model_dir, before);
    s->resume_note = notes_of(a, &c, s->model_dir);
    return 0;
}
