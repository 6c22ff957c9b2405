// schema_page.c - the table of keys as a reference: page, text and manual.
#include "experiment/schema.h"
#include <stdlib.h>
#include <string.h>
#include "core/cli.h"
#include "experiment/resume.h"

static const char *type_name(const schema_key *k) {
    static const char *const names[] = {
        [SCHEMA_MAP] = "map",           [SCHEMA_ITEMS] = "list of items",
        [SCHEMA_ITEM] = "item",         [SCHEMA_FREE] = "map of names",
        [SCHEMA_INT] = "integer",       [SCHEMA_FLOAT] = "number",
        [SCHEMA_BOOL] = "true/false",   [SCHEMA_TEXT] = "text",
        [SCHEMA_FILE] = "path",         [SCHEMA_CHOICE] = "choice",
        [SCHEMA_CHOICES] = "choice(s)", [SCHEMA_INTS] = "integer(s)",
        [SCHEMA_FLOATS] = "number(s)",  [SCHEMA_TEXTS] = "text(s)",
        [SCHEMA_FILES] = "path(s)"};
    return names[k->type];
}

static void choices(FILE *f, const char *values) {
    for (const char *p = values; *p; p++)
        if (*p == '|')
            fputs(", ", f);
        else
            fputc(*p, f);
}

// Of one set, or of the training data where there are several.
static const char *resume_name(const schema_key *k) {
    static const char *const names[] = {[RESUME_UNDECIDED] = "undecided",
                                        [RESUME_FREE] = "yes",
                                        [RESUME_TOLD] = "with a notice",
                                        [RESUME_REFUSED] = "no"};
    const char *set = strstr(k->path, "<set>");
    if (k->type == SCHEMA_MAP || k->type == SCHEMA_ITEMS ||
        k->type == SCHEMA_ITEM)
        return "";
    if (!set)
        return names[resume_rule_of(k->path)];
    resume_rule first = RESUME_UNDECIDED;
    for (size_t i = 0; schema_sets[i]; i++) {
        CLI_FREED char *path =
            cli_printf("data.%s%s", schema_sets[i], set + strlen("<set>"));
        const resume_rule rule = resume_rule_of(path);
        if (rule == RESUME_UNDECIDED)
            return names[rule];
        first = i ? first : rule;
    }
    return names[first];
}

// What a key means, in one line.
static void meaning(FILE *f, const schema_key *k) {
    fputs(k->help, f);
    if (k->type == SCHEMA_ITEM && *k->values)
        fprintf(f, "%sa single value is its %s", *k->help ? "; " : "",
                k->values);
    if (k->type == SCHEMA_CHOICE || k->type == SCHEMA_CHOICES) {
        fputs(*k->help ? ": " : "", f);
        choices(f, schema_choices(k));
    }
}

static const char intro[] =
    "An experiment is one YAML (or JSON) file with the sections "
    "model,\noptimizer, elastic, ema, data and run. Every key has a default "
    "except\nthe model's layers. `--set key=value` on the command line "
    "overrides a\nkey, for example `--set optimizer.learning_rate=0.01`. An "
    "unknown key is\nan error that names the nearest known key. Relative paths "
    "of data start\nin the experiment's folder.\n";

void schema_page(FILE *f) {
    fprintf(
        f,
        "# Experiment files\n\n%s\n`hooke help experiment --format markdown` "
        "writes this page from the table that checks experiment files.\n\nThe "
        "column *on resume* states whether a key may change when you continue "
        "a run in its model_dir. *Yes*: the change is used. *With a notice*: "
        "the run prints the change and continues. *No*: the run ends with an "
        "error; start over with `--fresh`, or use another folder with `-d`. "
        "For `data.<set>` the column describes train; keys of eval and test "
        "change with a notice, except `data.test.share`, and those of predict "
        "without one. Tables are compared by content, other files by size and "
        "modification time, and other files at URLs by size and by the ETag "
        "and Last-Modified of the server.\n",
        intro);
    for (size_t i = 0; schema_keys[i].path; i++) {
        const schema_key *k = &schema_keys[i];
        if (i == 0 || !strchr(k->path, '.')) {
            fprintf(f, "\n## %s\n\n", k->path);
            if (k->type == SCHEMA_MAP) {
                fprintf(f,
                        "%s\n\n| key | type | default | on resume | meaning |\n"
                        "| --- | --- | --- | --- | --- |\n",
                        k->help);
                continue;
            }
            fputs("| key | type | default | on resume | meaning |\n"
                  "| --- | --- | --- | --- | --- |\n",
                  f);
        }
        fprintf(f, "| `%s` | %s | %s | %s | ", k->path, type_name(k), k->dflt,
                resume_name(k));
        meaning(f, k);
        fputs(" |\n", f);
    }
}

// For the terminal: the key, then what there is to say about it.
void schema_text(FILE *f) {
    fputs(intro, f);
    for (size_t i = 0; schema_keys[i].path; i++) {
        const schema_key *k = &schema_keys[i];
        char *text = NULL;
        size_t size = 0;
        FILE *m = open_memstream(&text, &size);
        if (!m)
            return;
        meaning(m, k);
        if (*k->dflt)
            fprintf(m, "%sdefault %s", ftell(m) ? "; " : "", k->dflt);
        fclose(m);
        fprintf(f, "%s%s  (%s)\n", strchr(k->path, '.') ? "  " : "\n", k->path,
                type_name(k));
        if (*text) {
            fputs("        ", f);
            cli_wrap(f, text, 8);
        }
        free(text);
    }
}

static void escape(FILE *f, const char *s) {
    for (; *s; s++) {
        if (strchr("_*\\#<[`", *s))
            fputc('\\', f);
        fputc(*s, f);
    }
}

void schema_man(FILE *f) {
    fputs("hooke.conf(5)\n\n# NAME\n\nhooke.conf - experiment files of "
          "hooke\n\n# DESCRIPTION\n\n",
          f);
    escape(f, intro);
    fputs("\n# KEYS\n\n", f);
    for (size_t i = 0; schema_keys[i].path; i++) {
        const schema_key *k = &schema_keys[i];
        fputc('*', f);
        escape(f, k->path);
        fprintf(f, "* (%s)\n\t", type_name(k));
        char *text = NULL;
        size_t size = 0;
        FILE *m = open_memstream(&text, &size);
        if (!m)
            return;
        meaning(m, k);
        fclose(m);
        escape(f, *text ? text : k->path);
        free(text);
        if (*k->dflt) {
            fputs(". Default: ", f);
            escape(f, k->dflt);
        }
        fputs("\n\n", f);
    }
    fputs("# SEE ALSO\n\n*hooke-train*(1)\n", f);
}
