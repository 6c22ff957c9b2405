// cmd_init.c - writes the experiment of a table.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "core/file_kind.h"
#include "experiment/csv_table.h"
#include "experiment/run_record.h"
#include "experiment/table_recipe.h"

// ---- the table ---------------------------------------------------------------

// An experiment that says nothing but the file and the label.
static experiment *bare(const char *file, const char *label) {
    static const char text[] = "model: {canned: dnn}\n"
                               "data: {train: {source: csv}}\n";
    experiment *x = cli_alloc(sizeof *x);
    x->root = tree_parse(text, sizeof text - 1, "init");
    x->path = cli_strdup(file);
    x->dir = cli_strdup(".");
    // Rows without a label are for the summary to tell of.
    if (!x->root || !tree_set_text(x->root, "data.train.files", file) ||
        !tree_set_text(x->root, "data.train.on_missing_label", "drop") ||
        (label && !tree_set_text(x->root, "data.train.label", label)))
        return NULL;
    return x;
}

static int ask_label(const data_user *u, const char *file) {
    dialect d;
    if (dialect_find(u, &file, 1, NULL, 0, &d) != HK_OK)
        return cli_fail(
            "which column should the model predict? Name it with --label NAME");
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    for (size_t i = 0; f && i < d.n && i < 40; i++)
        fprintf(f, "%s%s", i ? ", " : "", d.names[i]);
    if (f)
        fclose(f);
    const int failed =
        cli_fail("which column should the model predict? Name it with --label "
                 "NAME; the columns of %s are %s%s",
                 file, text ? text : "", d.n > 40 ? ", ..." : "");
    free(text);
    dialect_free(&d);
    return failed;
}

// ---- the file ----------------------------------------------------------------

static void put_comment(FILE *f, const char *text) {
    fputs("# ", f);
    for (; *text; text++) {
        fputc(*text, f);
        if (*text == '\n' && text[1])
            fputs("# ", f);
    }
    fputc('\n', f);
}

static void put_model(FILE *f, const table *t, const table_recipe *r) {
    fprintf(f, "\nmodel:\n"
               "  canned: dnn            # or linear, wide_deep\n");
    if (!t->n_words && !t->classes)
        fprintf(f, "  # target: log          # for labels over several orders "
                   "of magnitude\n");
    else
        fprintf(f, "  # class_weights: balanced\n");
    fprintf(
        f,
        "  # hidden: [%lld, %lld]\n"
        "  # dropout: %g\n"
        "  # normalize: quantile   # of numeric columns; default standard\n",
        (long long)r->hidden[0], (long long)r->hidden[1], r->dropout);
}

static void put_data(FILE *f, const table *t, const char *file) {
    fprintf(f, "\ndata:\n"
               "  train:\n"
               "    source: csv\n"
               "    files: ");
    cli_json_string(f, file);
    fputs("\n    label: ", f);
    cli_json_string(f, t->label);
    fprintf(f,
            "\n"
            "    # exclude: [NAME]     # columns to leave out\n"
            "    # columns: {NAME: text}   # a type: int, float, text, date\n"
            "    %son_missing_label: drop\n"
            "  # holdout: 0.1          # share of the rows for evaluation\n"
            "  # test: {share: 0.1}    # further rows for a final test\n",
            table_find(t, t->label)->missing ? "" : "# ");
}

static void put_run(FILE *f, const table_recipe *r) {
    fprintf(f,
            "\n"
            "# Defaults for this number of rows:\n"
            "# optimizer: {type: adamw, learning_rate: %g, weight_decay: %g}\n"
            "# run: {epochs: %lld}      # at most; early stopping may end it\n",
            r->learning_rate, r->weight_decay, (long long)r->epochs);
}

static char *yaml_of(const table *t, const char *file) {
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    const table_recipe r = recipe_of(t->rows);
    put_comment(f, t->summary);
    put_model(f, t, &r);
    put_data(f, t, file);
    put_run(f, &r);
    fclose(f);
    return text;
}

// sales.csv becomes sales.yaml, in this folder.
static char *output_of(const char *file) {
    CLI_FREED char *name = table_base_name(file);
    char *dot = strchr(name, '.');
    if (dot && dot != name)
        *dot = '\0';
    return cli_printf("%s.yaml", name);
}

// Paths of an experiment are seen from its folder.
static char *path_from(const char *output, const char *file) {
    CLI_FREED char *real = strchr(output, '/') ? realpath(file, NULL) : NULL;
    return cli_strdup(real ? real : file);
}

static int write_yaml(const cli_args *a, const table *t, const char *file) {
    char *output = cli_has(a, "output")
                       ? cli_strdup(cli_string(a, "output", ""))
                       : output_of(file);
    int failed = 0;
    if (access(output, F_OK) == 0 && !cli_has(a, "force"))
        failed = cli_fail("%s: exists already; overwrite it with --force, or "
                          "choose another name with -o",
                          output);
    char *path = path_from(output, file);
    char *text = failed ? NULL : yaml_of(t, path);
    if (text)
        failed = write_whole(output, text, strlen(text));
    if (text && !failed) {
        cli_note("%s\n\nwritten      %s\nnext         hooke train %s",
                 t->summary, output, output);
    }
    free(text);
    free(path);
    free(output);
    return failed;
}

static int run(const cli_args *a) {
    const char *file = cli_operand(a, 0);
    const char *label = cli_string(a, "label", NULL);
    experiment *x = bare(file, label);
    if (!x)
        return CLI_FAILED;
    const data_user u = {.x = x, .set = "train"};
    if (!label)
        return ask_label(&u, file);
    table *t = cli_alloc(sizeof *t);
    const int failed = table_learn_csv(t, &u, &file, 1);
    return failed ? failed : write_yaml(a, t, file);
}

static const cli_option options[] = {
    CLI_OPTION("label", 'l', CLI_STRING, "NAME",
               "the column that the model predicts"),
    CLI_OPTION("output", 'o', CLI_FILE, "FILE",
               "the experiment file; default: the table's name with .yaml"),
    CLI_SWITCH("force", 0, "overwrites an existing file"),
    {0}};

const cli_command cmd_init = {
    .name = "init",
    .operands = "TABLE",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "write the experiment of a CSV file",
    .about =
        "Reads all rows of TABLE, prints a summary of its columns and their "
        "use, and writes an experiment file with comments for hooke train.",
    .examples = "hooke init flats.csv --label price\n"
                "hooke train flats.yaml",
    .options = options,
    .run = run};
