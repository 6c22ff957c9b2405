// fuzz_experiment.c - experiment files from arbitrary bytes: parsed, checked
// against the schema, overridden; what is accepted has to be accepted again
// after its way through JSON, and say the same.
#include <stdlib.h>
#include <string.h>
#include "../cli/core/cli.h"
#include "../cli/experiment/schema.h"
#include "../cli/core/tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// What the program has around these files.
int signals_code(void) {
    return 0;
}

void progress_interrupt(void) {}

void cli_wrap(FILE *f, const char *text, int indent) {
    (void)f;
    (void)text;
    (void)indent;
}

static char *check(const char *text, size_t size) {
    tree *const t = tree_parse(text, size, "fuzz.yaml");
    char *json = NULL;
    if (t != NULL && schema_check(t))
        json = tree_json(t);
    tree_free(t);
    return json;
}

// The first line is what --set gives: path=value.
static void override(const char *text, size_t size) {
    char *const line = malloc(size + 1);
    if (line == NULL)
        return;
    memcpy(line, text, size);
    line[size] = '\0';
    line[strcspn(line, "\n")] = '\0';
    char *const value = strchr(line, '=');
    tree *const t = tree_parse("run: {steps: 3}", 15, "fuzz.yaml");
    if (t != NULL && value != NULL) {
        *value = '\0';
        if (tree_set(t, line, value + 1, "--set"))
            (void)schema_check(t);
    }
    tree_free(t);
    free(line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *const text = size > 0 ? (const char *)data : "";
    char *const json = check(text, size);
    if (json != NULL) {
        char *const again = check(json, strlen(json));
        if (again == NULL || strcmp(json, again) != 0)
            __builtin_trap();
        free(again);
    }
    free(json);
    override(text, size);
    return 0;
}
