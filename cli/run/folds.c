// folds.c - mean and error over folds; see folds.h.
#include "run/folds.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "experiment/run_record.h"
#include "run/show.h"

void folds_init(fold_scores *f, int64_t folds) {
    *f = (fold_scores){.folds = folds};
    f->values = cli_alloc((size_t)folds * FOLD_METRICS * sizeof *f->values);
}

static size_t place(fold_scores *f, const char *name) {
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->names[i], name) == 0)
            return i;
    if (f->n < FOLD_METRICS)
        f->names[f->n++] = cli_strdup(name);
    return f->n - 1;
}

void folds_add(fold_scores *f, const char *model_dir, const hk_eval_result *r) {
    double *row = f->values + f->done * FOLD_METRICS;
    for (size_t i = 0; i < r->item_count; i++) {
        const hk_eval_item *it = &r->items[i];
        if (strcmp(it->weights, r->items[0].weights) == 0 &&
            result_is_shown(it->name))
            row[place(f, it->name)] = it->value;
    }
    f->done++;
    const char *slash = strrchr(model_dir, '/');
    free(f->folder);
    f->folder = cli_printf("%.*s", (int)(slash - model_dir), model_dir);
}

static double mean_of(const fold_scores *f, size_t k) {
    double sum = 0;
    for (int64_t i = 0; i < f->done; i++)
        sum += f->values[i * FOLD_METRICS + (int64_t)k];
    return f->done ? sum / (double)f->done : 0;
}

// Of the mean: the folds' deviation over the root of their number.
static double error_of(const fold_scores *f, size_t k) {
    const double mean = mean_of(f, k), n = (double)f->done;
    double squares = 0;
    for (int64_t i = 0; i < f->done; i++) {
        const double gap = f->values[i * FOLD_METRICS + (int64_t)k] - mean;
        squares += gap * gap;
    }
    return n > 1 ? sqrt(squares / (n - 1) / n) : 0;
}

static int width_of(const char *name) {
    const int n = (int)strlen(name);
    return n > 10 ? n : 10;
}

// "-" is a metric that the data does not define.
static void print_score(const char *name, double v) {
    if (isnan(v))
        printf("  %*s", width_of(name), "-");
    else
        printf("  %*.4f", width_of(name), v);
}

void folds_table(const fold_scores *f) {
    printf("%-16s", "");
    for (size_t k = 0; k < f->n; k++)
        printf("  %*s", width_of(f->names[k]), f->names[k]);
    for (int64_t i = 0; i < f->done; i++) {
        printf("\nfold %-11lld", (long long)i + 1);
        for (size_t k = 0; k < f->n; k++)
            print_score(f->names[k], f->values[i * FOLD_METRICS + (int64_t)k]);
    }
    printf("\n%-16s", "mean");
    for (size_t k = 0; k < f->n; k++)
        print_score(f->names[k], mean_of(f, k));
    printf("\n%-16s", "standard error");
    for (size_t k = 0; k < f->n; k++)
        print_score(f->names[k], error_of(f, k));
    printf("\n");
}

typedef double (*summary)(const fold_scores *f, size_t k);

static void put_summary(FILE *out, const fold_scores *f, const char *key,
                        summary fn) {
    fprintf(out, ",\"%s\":{", key);
    for (size_t k = 0; k < f->n; k++) {
        fputs(k ? "," : "", out);
        cli_json_string(out, f->names[k]);
        fputc(':', out);
        cli_json_number(out, fn(f, k));
    }
    fputc('}', out);
}

static void put_summaries(FILE *out, const fold_scores *f) {
    fprintf(out, "{\"folds\":%lld", (long long)f->done);
    put_summary(out, f, "mean", mean_of);
    put_summary(out, f, "standard_error", error_of);
}

void folds_json(FILE *out, const fold_scores *f) {
    put_summaries(out, f);
    fputs("}\n", out);
}

static void put_scores(FILE *out, const fold_scores *f) {
    fputs(",\"scores\":{", out);
    for (size_t k = 0; k < f->n; k++) {
        fputs(k ? "," : "", out);
        cli_json_string(out, f->names[k]);
        for (int64_t i = 0; i < f->done; i++) {
            fputs(i ? "," : ":[", out);
            cli_json_number(out, f->values[i * FOLD_METRICS + (int64_t)k]);
        }
        fputc(']', out);
    }
    fputc('}', out);
}

int folds_save(const fold_scores *f) {
    if (!f->folder)
        return 0;
    CLI_FREED char *path = cli_printf("%s/folds.json", f->folder);
    CLI_FREED char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return cli_fail("%s: %s", path, strerror(errno));
    put_summaries(out, f);
    put_scores(out, f);
    fputs("}\n", out);
    fclose(out);
    return write_whole(path, text, size);
}

void folds_free(fold_scores *f) {
    for (size_t i = 0; i < f->n; i++)
        free(f->names[i]);
    free(f->values);
    free(f->folder);
    *f = (fold_scores){0};
}
