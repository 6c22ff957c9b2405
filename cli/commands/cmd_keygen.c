// cmd_keygen.c - a new cluster key.
#include "core/cli.h"

static int run(const cli_args *a) {
    const char *path = cli_operand(a, 0);
    if (path && cli_has(a, "output"))
        return cli_usage_error(cli_command_of(a), "two files to write");
    if (!path)
        path = cli_string(a, "output", "cluster.key");
    hk_key key;
    hk_status s = hk_key_generate(cli_string(a, "name", NULL), &key);
    if (s == HK_OK)
        s = hk_key_save(&key, path);
    const int code = cli_status(s);
    if (!code) {
        printf("%s\n", path);
        cli_note("keep it secret: every center and worker of the cluster needs "
                 "a copy (--key %s)",
                 path);
    }
    return code;
}

static const cli_option options[] = {
    CLI_OPTION("output", 'o', CLI_FILE, "FILE",
               "the file, instead of the operand"),
    CLI_OPTION(
        "name", 0, CLI_STRING, "NAME",
        "name of the key in messages (letters and digits); default cluster"),
    {0}};

const cli_command cmd_keygen = {
    .name = "keygen",
    .operands = "[FILE]",
    .max_operands = 1,
    .summary = "make a cluster key",
    .about = "Writes a new random key to FILE (default cluster.key), readable "
             "by its owner only. Centers and workers with the same key "
             "authenticate each other and encrypt their connections (TLS 1.3). "
             "Processes without the key cannot connect.",
    .examples =
        "hooke keygen\nhooke center --listen '*:2222' --key cluster.key",
    .options = options,
    .run = run};
