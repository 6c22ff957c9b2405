// cmd_help.c - help, and the sources of man pages, completions and reference
// pages, all made from the tables.
#include <string.h>
#include "core/cli.h"
#include "experiment/schema.h"

static int run(const cli_args *a) {
    const char *format = cli_string(a, "format", "text");
    const char *name = cli_operand(a, 0);
    const cli_command *c = name ? cli_find(name) : NULL;
    if (name && !c && strcmp(name, "experiment") != 0)
        return cli_unknown_command(name);
    if (strcmp(format, "bash") == 0)
        cli_complete_bash(stdout);
    else if (strcmp(format, "zsh") == 0)
        cli_complete_zsh(stdout);
    else if (strcmp(format, "fish") == 0)
        cli_complete_fish(stdout);
    else if (strcmp(format, "names") == 0)
        for (size_t i = 0; cli_commands[i]; i++)
            printf("%s\n", cli_commands[i]->name);
    else if (strcmp(format, "markdown") == 0)
        name && !c ? schema_page(stdout) : cli_commands_page(stdout);
    else if (strcmp(format, "man") == 0)
        name && !c ? schema_man(stdout) : cli_man(stdout, c);
    else
        name && !c ? schema_text(stdout) : cli_help(stdout, c);
    return CLI_DONE;
}

static const cli_option options[] = {
    CLI_CHOICES("format", 0, "text|man|markdown|bash|zsh|fish|names",
                "man: scdoc source; bash, zsh, fish: completions; names: "
                "command names only"),
    {0}};

const cli_command cmd_help = {
    .name = "help",
    .operands = "[COMMAND]",
    .max_operands = 1,
    .summary = "help for a command, or for experiment files",
    .about = "Without an argument lists the commands. 'hooke help experiment' "
             "explains every key of an experiment file.",
    .examples = "hooke help train\nhooke help experiment\n"
                "hooke help --format bash > hooke.bash",
    .options = options,
    .run = run};
