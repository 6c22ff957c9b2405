// help.c - help texts, man pages and completions, all from the one table.
#include <stdlib.h>
#include <string.h>
#include "core/cli.h"

// Calls fn for every option of c, then for the common ones.
static void each_option(const cli_command *c,
                        void (*fn)(FILE *f, const cli_option *o), FILE *f) {
    for (const cli_option *o = c ? c->options : NULL; o && o->name; o++)
        fn(f, o);
    for (const cli_option *o = cli_common; o->name; o++)
        fn(f, o);
}

static const char *value_name(const cli_option *o) {
    return o->kind == CLI_CHOICE ? o->values : o->arg ? o->arg : "VALUE";
}

// ---- help -------------------------------------------------------------------

void cli_usage(FILE *f, const cli_command *c) {
    fprintf(f, "usage: hooke %s%s%s [OPTION...]\n", c->name,
            *c->operands ? " " : "", c->operands);
}

// Writes text with lines of at most `width` columns after `indent` blanks;
// the first line begins at column `at`. Lines that begin with a blank stay.
static void wrap(FILE *f, const char *text, int at, int indent, int width) {
    int column = at;
    const char *p = text;
    while (*p) {
        if (*p == '\n') {
            fprintf(f, "\n%*s", p[1] && p[1] != '\n' ? indent : 0, "");
            column = indent;
            p++;
            continue;
        }
        const size_t n = strcspn(p, " \n");
        if (column > indent && column + (int)n + 1 > width) {
            fprintf(f, "\n%*s", indent, "");
            column = indent;
        } else if (column > indent && p > text && p[-1] == ' ') {
            fputc(' ', f);
            column++;
        }
        fwrite(p, 1, n, f);
        column += (int)n;
        p += n;
        p += *p == ' ';
    }
    fputc('\n', f);
}

void cli_wrap(FILE *f, const char *text, int indent) {
    wrap(f, text, indent, indent, 79);
}

static void help_option(FILE *f, const cli_option *o) {
    char left[160];
    snprintf(left, sizeof left, "  %c%c%c --%s%s%s", o->letter ? '-' : ' ',
             o->letter ? o->letter : ' ', o->letter ? ',' : ' ', o->name,
             o->kind == CLI_FLAG ? "" : " ",
             o->kind == CLI_FLAG ? "" : value_name(o));
    const int n = (int)strlen(left);
    if (n > 30)
        fprintf(f, "%s\n%*s", left, 32, "");
    else
        fprintf(f, "%-32s", left);
    wrap(f, o->help, 32, 32, 79);
}

static void help_program(FILE *f) {
    fputs("usage: hooke COMMAND [ARGUMENT...]\n"
          "\n"
          "Trains models with elastic averaging: each worker trains its own "
          "copy of the\n"
          "model, and every few steps an exchange pulls copy and center "
          "together.\n"
          "\n"
          "Commands:\n",
          f);
    for (size_t i = 0; cli_commands[i]; i++)
        fprintf(f, "  %-12s%s\n", cli_commands[i]->name,
                cli_commands[i]->summary);
    fputs("\nA first run:\n  hooke train digits --workers 4\n\n"
          "More: hooke help COMMAND, man hooke\n",
          f);
}

// Every line of a text behind the same blanks.
static void indented(FILE *f, const char *text, const char *blanks) {
    fputs(blanks, f);
    for (; *text; text++) {
        fputc(*text, f);
        if (*text == '\n')
            fputs(blanks, f);
    }
    fputc('\n', f);
}

void cli_help(FILE *f, const cli_command *c) {
    if (!c) {
        help_program(f);
        return;
    }
    cli_usage(f, c);
    fputc('\n', f);
    wrap(f, c->about, 0, 0, 79);
    fputs("\nOptions:\n", f);
    each_option(c, help_option, f);
    if (*c->examples) {
        fputs("\nExamples:\n", f);
        indented(f, c->examples, "  ");
    }
}

// ---- man pages, in scdoc's language ----------------------------------------

// Letters that scdoc would take for markup get a backslash.
static void escape(FILE *f, const char *s) {
    for (; *s; s++) {
        if (*s == '_' || *s == '*' || *s == '\\' || *s == '#' || *s == '<' ||
            *s == '[')
            fputc('\\', f);
        fputc(*s, f);
    }
}

static void man_option(FILE *f, const cli_option *o) {
    fputc('*', f);
    if (o->letter)
        fprintf(f, "-%c*, *", o->letter);
    fprintf(f, "--%s*", o->name);
    if (o->kind != CLI_FLAG) {
        fputc(' ', f);
        escape(f, value_name(o));
    }
    fputs("\n\t", f);
    escape(f, o->help);
    fputs(".\n\n", f);
}

static void man_end(FILE *f, const cli_command *self) {
    fputs("# EXIT STATUS\n"
          "\n"
          "*0*\n"
          "\tDone.\n"
          "\n"
          "*1*\n"
          "\tFailed; the message states the reason.\n"
          "\n"
          "*2*\n"
          "\tThe command line is wrong.\n"
          "\n"
          "*128* and above\n"
          "\tInterrupted; the same command continues the run: 130 after Ctrl-C "
          "and 143 after SIGTERM, both with a checkpoint; 137 if the "
          "connection to a peer was lost for good.\n"
          "\n"
          "# SEE ALSO\n"
          "\n",
          f);
    if (self)
        fputs("*hooke*(1), ", f);
    fputs("*hooke.conf*(5)\n", f);
}

static void man_program(FILE *f) {
    fputs("hooke(1)\n"
          "\n"
          "# NAME\n"
          "\n"
          "hooke - train models with elastic averaging\n"
          "\n"
          "# SYNOPSIS\n"
          "\n"
          "*hooke* _COMMAND_ [_ARGUMENT_...]\n"
          "\n"
          "# DESCRIPTION\n"
          "\n"
          "Every worker trains its own copy of a model with an ordinary "
          "optimizer. Every few steps, an exchange pulls the worker and a "
          "shared center together. The center is the result: it is evaluated, "
          "exported and served.\n"
          "\n"
          "# COMMANDS\n"
          "\n",
          f);
    for (size_t i = 0; cli_commands[i]; i++) {
        fprintf(f, "*hooke-%s*(1)\n\t", cli_commands[i]->name);
        escape(f, cli_commands[i]->summary);
        fputs(".\n\n", f);
    }
    fputs("# ENVIRONMENT\n"
          "\n"
          "*NO\\_COLOR*\n"
          "\tAny value: no colours. *CLICOLOR\\_FORCE*: colours even if the "
          "output is not a terminal.\n"
          "\n"
          "*TF\\_CONFIG*, *SLURM\\_\\**, *OMPI\\_\\**, *PMI\\_\\**, *RANK* and "
          "related variables\n"
          "\tDescribe the cluster; see *hooke-doctor*(1).\n"
          "\n"
          "*HOOKE\\_KEY*\n"
          "\tFile of the cluster key; the same as _--key_.\n"
          "\n"
          "*HOOKE\\_LOG*\n"
          "\tLevel of the log; the same as _--log-level_.\n"
          "\n"
          "*CC*\n"
          "\tCompiler for models in C; default: cc.\n"
          "\n"
          "*GOMP\\_SPINCOUNT*, *OMP\\_WAIT\\_POLICY*\n"
          "\tHow long waiting threads occupy their cores. If neither is set, "
          "commands that compute set GOMP\\_SPINCOUNT to 1000, a short time, "
          "so that other processes get the cores.\n"
          "\n",
          f);
    man_end(f, NULL);
}

void cli_man(FILE *f, const cli_command *c) {
    if (!c) {
        man_program(f);
        return;
    }
    fprintf(f, "hooke-%s(1)\n\n# NAME\n\nhooke-%s - ", c->name, c->name);
    escape(f, c->summary);
    fprintf(f, "\n\n# SYNOPSIS\n\n*hooke %s* ", c->name);
    escape(f, c->operands);
    fputs(" [_OPTION_...]\n\n# DESCRIPTION\n\n", f);
    escape(f, c->about);
    fputs("\n\n# OPTIONS\n\n", f);
    each_option(c, man_option, f);
    if (*c->examples) {
        fputs("# EXAMPLES\n\n```\n", f);
        fputs(c->examples, f);
        fputs("\n```\n\n", f);
    }
    man_end(f, c);
}

// ---- the reference page ----------------------------------------------------

static void page_option(FILE *f, const cli_option *o) {
    fputs("- `", f);
    if (o->letter)
        fprintf(f, "-%c`, `", o->letter);
    fprintf(f, "--%s", o->name);
    if (o->kind != CLI_FLAG)
        fprintf(f, " %s", value_name(o));
    fprintf(f, "`: %s\n", o->help);
}

void cli_commands_page(FILE *f) {
    fputs("# Commands\n\n`hooke help --format markdown` writes this page from "
          "the "
          "table that also produces help, man pages\nand completions.\n\n"
          "Options of every command:\n\n",
          f);
    each_option(NULL, page_option, f);
    for (size_t i = 0; cli_commands[i]; i++) {
        const cli_command *c = cli_commands[i];
        fprintf(f, "\n## hooke %s%s%s\n\n%s\n", c->name,
                *c->operands ? " " : "", c->operands, c->about);
        if (c->options && c->options->name)
            fputc('\n', f);
        for (const cli_option *o = c->options; o && o->name; o++)
            page_option(f, o);
        if (!*c->examples)
            continue;
        fputc('\n', f);
        indented(f, c->examples, "    ");
    }
}

// ---- completions -----------------------------------------------------------

static void bash_word(FILE *f, const cli_option *o) {
    fprintf(f, " --%s", o->name);
}

static void bash_values(FILE *f, const cli_option *o) {
    if (o->kind != CLI_CHOICE && o->kind != CLI_DIR)
        return;
    fprintf(f, "    --%s) COMPREPLY=($(compgen ", o->name);
    if (o->kind == CLI_DIR) {
        fputs("-d", f);
    } else {
        fputs("-W '", f);
        for (const char *p = o->values; *p; p++)
            fputc(*p == '|' ? ' ' : *p, f);
        fputc('\'', f);
    }
    fputs(" -- \"$cur\")); return ;;\n", f);
}

void cli_complete_bash(FILE *f) {
    fputs("# bash completion for hooke; made by the program itself.\n"
          "_hooke() {\n    local cur=${COMP_WORDS[COMP_CWORD]}\n"
          "    local prev=${COMP_WORDS[COMP_CWORD-1]} words=\n"
          "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        words='",
          f);
    for (size_t i = 0; cli_commands[i]; i++)
        fprintf(f, "%s%s", i ? " " : "", cli_commands[i]->name);
    fputs("'\n        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
          "        return\n    fi\n    case ${COMP_WORDS[1]},$prev in\n",
          f);
    for (size_t i = 0; cli_commands[i]; i++)
        for (const cli_option *o = cli_commands[i]->options; o && o->name; o++)
            if (o->kind == CLI_CHOICE || o->kind == CLI_DIR) {
                fprintf(f, "    %s,", cli_commands[i]->name);
                // The pattern's blanks belong to the option's own line.
                char *line = NULL;
                size_t size = 0;
                FILE *m = open_memstream(&line, &size);
                if (!m)
                    continue;
                bash_values(m, o);
                fclose(m);
                fputs(line + 4, f);
                free(line);
            }
    fputs("    esac\n    case ${COMP_WORDS[1]} in\n", f);
    for (size_t i = 0; cli_commands[i]; i++) {
        fprintf(f, "    %s) words='", cli_commands[i]->name);
        each_option(cli_commands[i], bash_word, f);
        fputs("' ;;\n", f);
    }
    fputs("    esac\n    case $cur in\n"
          "    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")) ;;\n"
          "    *) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n    esac\n}\n"
          "complete -o filenames -F _hooke hooke\n",
          f);
}

// Text inside single quotes and zsh's brackets.
static void quoted(FILE *f, const char *s, const char *special) {
    for (; *s; s++) {
        if (*s == '\'') {
            fputs("'\\''", f);
            continue;
        }
        if (strchr(special, *s))
            fputc('\\', f);
        fputc(*s, f);
    }
}

static void zsh_option(FILE *f, const cli_option *o) {
    fprintf(f, "        '%s--%s%s[", o->many ? "*" : "", o->name,
            o->kind == CLI_FLAG ? "" : "=");
    quoted(f, o->help, "[]:");
    fputc(']', f);
    if (o->kind == CLI_CHOICE) {
        fputs(":value:(", f);
        for (const char *p = o->values; *p; p++)
            fputc(*p == '|' ? ' ' : *p, f);
        fputc(')', f);
    } else if (o->kind == CLI_DIR) {
        fputs(":folder:_files -/", f);
    } else if (o->kind != CLI_FLAG) {
        fprintf(f, ":%s:%s", o->arg ? o->arg : "value",
                o->kind == CLI_FILE ? "_files" : "");
    }
    fputs("' \\\n", f);
}

void cli_complete_zsh(FILE *f) {
    fputs("#compdef hooke\n# Made by the program itself.\n_hooke() {\n"
          "    local -a commands\n    commands=(\n",
          f);
    for (size_t i = 0; cli_commands[i]; i++) {
        fprintf(f, "        '%s:", cli_commands[i]->name);
        quoted(f, cli_commands[i]->summary, ":");
        fputs("'\n", f);
    }
    fputs("    )\n    if (( CURRENT == 2 )); then\n"
          "        _describe command commands\n        return\n    fi\n"
          "    local command=$words[2]\n    shift words\n"
          "    (( CURRENT-- ))\n    case $command in\n",
          f);
    for (size_t i = 0; cli_commands[i]; i++) {
        fprintf(f, "    %s) _arguments \\\n", cli_commands[i]->name);
        each_option(cli_commands[i], zsh_option, f);
        fputs("        '*:file:_files' ;;\n", f);
    }
    fputs("    esac\n}\n_hooke \"$@\"\n", f);
}

static void fish_option(FILE *f, const cli_command *c, const cli_option *o) {
    fprintf(f, "complete -c hooke -n '__fish_seen_subcommand_from %s' -l %s",
            c->name, o->name);
    if (o->letter)
        fprintf(f, " -s %c", o->letter);
    if (o->kind == CLI_CHOICE) {
        fputs(" -x -a '", f);
        for (const char *p = o->values; *p; p++)
            fputc(*p == '|' ? ' ' : *p, f);
        fputc('\'', f);
    } else if (o->kind == CLI_DIR) {
        fputs(" -x -a '(__fish_complete_directories)'", f);
    } else if (o->kind != CLI_FLAG) {
        fputs(o->kind == CLI_FILE ? " -r" : " -x", f);
    }
    fputs(" -d '", f);
    quoted(f, o->help, "\\");
    fputs("'\n", f);
}

void cli_complete_fish(FILE *f) {
    fputs("# fish completion for hooke; made by the program itself.\n", f);
    for (size_t i = 0; cli_commands[i]; i++) {
        const cli_command *c = cli_commands[i];
        fprintf(f, "complete -c hooke -f -n __fish_use_subcommand -a %s -d '",
                c->name);
        quoted(f, c->summary, "\\");
        fputs("'\n", f);
        for (const cli_option *o = c->options; o && o->name; o++)
            fish_option(f, c, o);
        for (const cli_option *o = cli_common; o->name; o++)
            fish_option(f, c, o);
    }
}
