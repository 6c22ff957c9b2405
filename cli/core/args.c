// args.c - the command line against a command's table of options.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "core/cli.h"
#include "core/file_kind.h"

typedef struct given {
    const cli_option *option;
    const char *value; // NULL for a flag
} given;

struct cli_args {
    const cli_command *command;
    given *given;
    size_t n_given;
    const char **operand;
    int n_operands;
};

// ---- looking options up ----------------------------------------------------

static const cli_option *find_in(const cli_option *list, const char *name,
                                 size_t size, char letter) {
    for (; list && list->name; list++)
        if (name ? strlen(list->name) == size &&
                       memcmp(list->name, name, size) == 0
                 : list->letter == letter)
            return list;
    return NULL;
}

static const cli_option *find(const cli_command *c, const char *name,
                              size_t size, char letter) {
    const cli_option *o = find_in(c->options, name, size, letter);
    return o ? o : find_in(cli_common, name, size, letter);
}

static int unknown(const cli_command *c, const char *text) {
    const char *names[64];
    size_t n = 0;
    for (const cli_option *o = c->options; o && o->name && n < 48; o++)
        names[n++] = o->name;
    for (const cli_option *o = cli_common; o->name && n < 64; o++)
        names[n++] = o->name;
    const char *bare = text + strspn(text, "-");
    char *word = cli_strdup(bare);
    word[strcspn(word, "=")] = '\0';
    const char *near = cli_nearest(word, names, n);
    free(word);
    return near ? cli_usage_error(c, "unknown option %s (did you mean --%s?)",
                                  text, near)
                : cli_usage_error(c, "unknown option %s", text);
}

// ---- checking values -------------------------------------------------------

static int check(const cli_command *c, const cli_option *o, const char *v) {
    int64_t i;
    double f;
    const int64_t least = o->kind == CLI_COUNT;
    if ((o->kind == CLI_INT || o->kind == CLI_COUNT) &&
        (!cli_parse_int(v, &i) || i < least))
        return cli_usage_error(c, "--%s needs a whole number%s, not '%s'",
                               o->name, least ? " of at least 1" : "", v);
    if (o->kind == CLI_FLOAT && (!cli_parse_float(v, &f) || f < 0))
        return cli_usage_error(c, "--%s needs a number of at least 0, not '%s'",
                               o->name, v);
    if (o->kind == CLI_CHOICE && !cli_is_choice(o->values, v))
        return cli_usage_error(c, "--%s needs one of %s, not '%s'", o->name,
                               o->values, v);
    if (o->kind != CLI_FLAG && v[0] == '\0' && o->kind != CLI_STRING)
        return cli_usage_error(c, "--%s needs a value", o->name);
    return 0;
}

static int add(cli_args *a, const cli_option *o, const char *value) {
    if (o->kind != CLI_FLAG) {
        CLI_TRY(check(a->command, o, value));
    }
    for (size_t i = 0; i < a->n_given; i++)
        if (a->given[i].option == o && !o->many)
            return cli_usage_error(a->command, "--%s is given twice", o->name);
    a->given[a->n_given++] = (given){o, value};
    return 0;
}

// ---- one word at a time ----------------------------------------------------

// argv[*i] is "--name" or "--name=value"; may take the next word.
static int long_option(cli_args *a, int argc, char **argv, int *i) {
    const char *word = argv[*i], *name = word + 2;
    const size_t size = strcspn(name, "=");
    const cli_option *o = find(a->command, name, size, 0);
    if (!o)
        return unknown(a->command, word);
    const char *value = name[size] == '=' ? name + size + 1 : NULL;
    if (o->kind == CLI_FLAG)
        return value
                   ? cli_usage_error(a->command, "--%s takes no value", o->name)
                   : add(a, o, NULL);
    if (!value && *i + 1 >= argc)
        return cli_usage_error(a->command, "--%s needs a value", o->name);
    return add(a, o, value ? value : argv[++*i]);
}

// argv[*i] is "-abc": flags, the last of which may take a value.
static int short_options(cli_args *a, int argc, char **argv, int *i) {
    for (const char *p = argv[*i] + 1; *p; p++) {
        const cli_option *o = find(a->command, NULL, 0, *p);
        if (!o)
            return unknown(a->command, argv[*i]);
        if (o->kind == CLI_FLAG) {
            CLI_TRY(add(a, o, NULL));
            continue;
        }
        if (p[1])
            return add(a, o, p + 1);
        if (*i + 1 >= argc)
            return cli_usage_error(a->command, "-%c needs a value", *p);
        return add(a, o, argv[++*i]);
    }
    return 0;
}

void cli_args_free(cli_args *a) {
    if (!a)
        return;
    free(a->given);
    free(a->operand);
    free(a);
}

static int too_many_operands(const cli_command *c, const char *operand) {
    return cli_usage_error(c, "unexpected argument '%s'%s", operand,
                           is_table_name(operand)
                               ? "; give several files of one table as one "
                                 "argument, a pattern in quotes: '*.csv'"
                               : "");
}

// Every word, against the table.
static int read_words(cli_args *a, int argc, char **argv) {
    const cli_command *c = a->command;
    // A word "-abc" may give several options.
    size_t most = 1;
    for (int i = 0; i < argc; i++)
        most += strlen(argv[i]) + 1;
    a->given = cli_alloc(most * sizeof *a->given);
    a->operand = cli_alloc(((size_t)argc + 1) * sizeof *a->operand);
    bool only_operands = false;
    for (int i = 0; i < argc; i++) {
        const char *w = argv[i];
        int failed = 0;
        if (only_operands || w[0] != '-' || w[1] == '\0')
            a->operand[a->n_operands++] = w;
        else if (strcmp(w, "--") == 0)
            only_operands = true;
        else if (w[1] == '-')
            failed = long_option(a, argc, argv, &i);
        else
            failed = short_options(a, argc, argv, &i);
        if (failed)
            return failed;
    }
    if (cli_has(a, "help"))
        return 0;
    if (a->n_operands < c->min_operands)
        return cli_usage_error(c, "%s wants %s", c->name, c->operands);
    if (c->max_operands >= 0 && a->n_operands > c->max_operands)
        return too_many_operands(c, a->operand[c->max_operands]);
    return 0;
}

int cli_parse(const cli_command *c, int argc, char **argv, cli_args **out) {
    cli_args *a = cli_alloc(sizeof *a);
    a->command = c;
    const int failed = read_words(a, argc, argv);
    if (failed)
        cli_args_free(a);
    else
        *out = a;
    return failed;
}

// ---- reading them ----------------------------------------------------------

const cli_command *cli_command_of(const cli_args *a) {
    return a->command;
}

int cli_operands(const cli_args *a) {
    return a->n_operands;
}

const char *cli_operand(const cli_args *a, int i) {
    return i >= 0 && i < a->n_operands ? a->operand[i] : NULL;
}

size_t cli_count(const cli_args *a, const char *name) {
    size_t n = 0;
    for (size_t i = 0; i < a->n_given; i++)
        n += strcmp(a->given[i].option->name, name) == 0;
    return n;
}

bool cli_has(const cli_args *a, const char *name) {
    return cli_count(a, name) > 0;
}

const char *cli_value(const cli_args *a, const char *name, size_t index) {
    for (size_t i = 0; i < a->n_given; i++)
        if (strcmp(a->given[i].option->name, name) == 0 && index-- == 0)
            return a->given[i].value;
    return NULL;
}

const cli_option *cli_given(const cli_args *a, size_t i, const char **value) {
    if (i >= a->n_given)
        return NULL;
    *value = a->given[i].value;
    return a->given[i].option;
}

const cli_option *cli_find_option(const cli_command *c, const char *name) {
    return find(c, name, strlen(name), 0);
}

const char *cli_string(const cli_args *a, const char *name, const char *dflt) {
    const size_t n = cli_count(a, name);
    return n ? cli_value(a, name, n - 1) : dflt;
}

int64_t cli_int(const cli_args *a, const char *name, int64_t dflt) {
    const char *s = cli_string(a, name, NULL);
    int64_t v = dflt;
    if (s)
        cli_parse_int(s, &v);
    return v;
}

uint32_t cli_u32(const cli_args *a, const char *name, uint32_t dflt) {
    const int64_t v = cli_int(a, name, dflt);
    return v < UINT32_MAX ? (uint32_t)v : UINT32_MAX;
}

int64_t cli_ms(const cli_args *a, const char *name, double dflt) {
    const double longest = 1e9; // seconds; no run takes 30 years
    const double v = cli_float(a, name, dflt);
    return (int64_t)((v < longest ? v : longest) * 1000);
}

double cli_float(const cli_args *a, const char *name, double dflt) {
    const char *s = cli_string(a, name, NULL);
    double v = dflt;
    if (s)
        cli_parse_float(s, &v);
    return v;
}
