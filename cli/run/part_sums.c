// part_sums.c - see part_sums.h.
#include "run/part_sums.h"
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#define HEAD "hooke sums "

int sums_write(const char *path, const data_user *u, const hk_eval_result *r) {
    size_t size = 0;
    CLI_TRY(cli_status(hk_eval_result_save(r, NULL, 0, &size)));
    void *bytes = cli_alloc(size);
    int failed = cli_status(hk_eval_result_save(r, bytes, size, &size));
    FILE *f = failed ? NULL : fopen(path, "wb");
    if (f) {
        fprintf(f, HEAD "%lld/%lld\n", (long long)u->part + 1,
                (long long)(u->parts ? u->parts : 1));
        fwrite(bytes, 1, size, f);
    }
    free(bytes);
    if (!failed && (!f || ferror(f) || fclose(f) != 0))
        failed = cli_fail("%s: %s", path, strerror(errno));
    return failed;
}

// ---- merging ----------------------------------------------------------------

typedef struct sums_file {
    char *data;
    int64_t part, parts;
    const void *bytes; // in data
    size_t size;
} sums_file;

static int read_one(const char *path, sums_file *s) {
    size_t size = 0;
    CLI_TRY(cli_read_file(path, &s->data, &size));
    const char *const end =
        strncmp(s->data, HEAD, strlen(HEAD)) == 0
            ? cli_parse_part(s->data + strlen(HEAD), &s->part, &s->parts)
            : NULL;
    if (!end || *end != '\n')
        return cli_fail("%s: is not a file of hooke evaluate --sums", path);
    s->bytes = end + 1;
    s->size = size - (size_t)(end + 1 - s->data);
    return 0;
}

static int by_part(const void *a, const void *b) {
    const sums_file *x = a, *y = b;
    return x->part < y->part ? -1 : x->part > y->part;
}

// Every part once. The list is in their order.
static int check_all(const char *pattern, const sums_file *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (s[i].parts != s[0].parts)
            return cli_fail("%s: the files are parts of %lld and of %lld; "
                            "merge parts of one evaluation only",
                            pattern, (long long)s[0].parts,
                            (long long)s[i].parts);
        if (i && s[i].part == s[i - 1].part)
            return cli_fail("%s: part %lld of %lld occurs twice", pattern,
                            (long long)s[i].part, (long long)s[i].parts);
        if (s[i].part != (int64_t)i + 1)
            return cli_fail("%s: part %zu of %lld is missing", pattern, i + 1,
                            (long long)s[i].parts);
    }
    return (int64_t)n == s[0].parts
               ? 0
               : cli_fail("%s: part %zu of %lld is missing", pattern, n + 1,
                          (long long)s[0].parts);
}

static int merge(const sums_file *s, size_t n, hk_estimator *e,
                 const hk_source *input, const hk_evaluate_options *o,
                 hk_eval_result **out) {
    CLI_FREED const void **bytes = cli_alloc(n * sizeof *bytes);
    CLI_FREED size_t *sizes = cli_alloc(n * sizeof *sizes);
    for (size_t i = 0; i < n; i++) {
        bytes[i] = s[i].bytes;
        sizes[i] = s[i].size;
    }
    return cli_status(hk_estimator_merge(e, input, o, bytes, sizes, n, out));
}

int sums_merge(const char *pattern, hk_estimator *e, const hk_source *input,
               const hk_evaluate_options *o, hk_eval_result **out) {
    glob_t found = {0};
    (void)glob(pattern, GLOB_NOCHECK | GLOB_BRACE, NULL, &found);
    const size_t n = found.gl_pathc;
    sums_file *s = cli_alloc((n ? n : 1) * sizeof *s);
    int failed = 0;
    memset(s, 0, (n ? n : 1) * sizeof *s);
    for (size_t i = 0; i < n && !failed; i++)
        failed = read_one(found.gl_pathv[i], &s[i]);
    if (!failed && n)
        qsort(s, n, sizeof *s, by_part);
    if (!failed)
        failed = check_all(pattern, s, n);
    if (!failed)
        failed = merge(s, n, e, input, o, out);
    for (size_t i = 0; i < n; i++)
        free(s[i].data);
    free(s);
    globfree(&found);
    return failed;
}
