// fuzz_cli.c - command lines from arbitrary bytes: one word a line, the first
// one the command. What the parser lets through has to be what the command's
// table promises; commands are not run. Roles of a cluster are worked out
// from what their options say, which opens no file and no connection.
#define main hooke_main // the program's own
#include "../cli/commands/main.c"
#undef main
#include "../cli/run/processes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_WORDS 64

static FILE *nowhere;

static void must(bool ok, const char *what) {
    if (ok)
        return;
    fprintf(stderr, "the parser let through: %s\n", what);
    __builtin_trap();
}

static size_t split(char *text, char **words) {
    size_t n = 0;
    for (char *w = strtok(text, "\n"); w != NULL && n < MAX_WORDS;
         w = strtok(NULL, "\n"))
        words[n++] = w;
    return n;
}

// values: "a|b|c".
static bool is_one_of(const char *values, const char *v) {
    const size_t n = strlen(v);
    for (const char *at = values; at != NULL; at = strchr(at, '|')) {
        at += *at == '|';
        if (strcspn(at, "|") == n && strncmp(at, v, n) == 0)
            return true;
    }
    return false;
}

static void check_option(const cli_args *a, const cli_option *o) {
    const size_t n = cli_count(a, o->name);
    must(n <= 1 || o->many, "an option twice");
    must(cli_has(a, o->name) == (n > 0), "an option that is not there");
    must(cli_value(a, o->name, n) == NULL, "one value too many");
    for (size_t i = 0; i < n; i++) {
        const char *const v = cli_value(a, o->name, i);
        must((v == NULL) == (o->kind == CLI_FLAG), "a flag with a value");
        if (o->kind == CLI_CHOICE)
            must(is_one_of(o->values, v), "a word that is no choice");
    }
    if (n == 0)
        return;
    if (o->kind == CLI_INT || o->kind == CLI_COUNT)
        must(cli_int(a, o->name, -1) >= (o->kind == CLI_COUNT), "a number");
    if (o->kind == CLI_FLOAT)
        must(cli_float(a, o->name, -1) >= 0, "a float");
}

static void check_args(const cli_command *c, const cli_args *a) {
    for (const cli_option *o = c->options; o != NULL && o->name != NULL; o++)
        check_option(a, o);
    for (const cli_option *o = cli_common; o->name != NULL; o++)
        check_option(a, o);
    const int n = cli_operands(a);
    must(cli_operand(a, n) == NULL && cli_operand(a, -1) == NULL, "an operand");
    must(cli_has(a, "help") || (n >= c->min_operands &&
                                (c->max_operands < 0 || n <= c->max_operands)),
         "too few or too many operands");
}

// The commands that are roles of a cluster.
static void check_role(const cli_command *c, const cli_args *a) {
    static const char *const roles[] = {"center", "worker", "evaluator"};
    hk_cluster_config *config;
    if (cli_has(a, "hostfile"))
        return; // a file that would be read
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (strcmp(c->name, roles[i]) != 0 ||
            cluster_config(a, roles[i], &config) != 0)
            continue;
        hk_cluster_info info;
        hk_cluster_config_get_info(config, &info);
        const int64_t workers = cli_int(a, "workers", 0);
        must(workers == 0 || info.n_workers == workers, "a number of workers");
        hk_cluster_config_destroy(config);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *words[MAX_WORDS];
    if (nowhere == NULL)
        nowhere = fopen("/dev/null", "w");
    char *const text = cli_alloc(size + 1);
    memcpy(text, data, size);
    const size_t n = split(text, words);
    const cli_command *const c = n > 0 ? cli_find(words[0]) : NULL;
    cli_args *a = NULL;
    if (n > 0 && c == NULL)
        (void)cli_unknown_command(words[0]);
    if (c != NULL && cli_parse(c, (int)n - 1, words + 1, &a) == 0) {
        check_args(c, a);
        set_output(a);
        check_role(c, a);
        if (cli_has(a, "help"))
            cli_help(nowhere, c);
    }
    cli_args_free(a);
    free(text);
    return 0;
}
