// table_file.c - table.json and features.json of a model_dir.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "experiment/csv_table.h"
#include "experiment/run_record.h"

// ---- types -----------------------------------------------------------------

static const char *const date_types[HK_DATE_ORDERS] = {"date", "date_mdy",
                                                       "date_dmy"};

bool column_type_parse(const char *text, column_type *out) {
    static const struct {
        const char *name;
        hk_dtype dtype;
        bool raw;
    } names[] = {{"int", HK_I64, false},
                 {"float", HK_F32, false},
                 {"text", HK_STRING, false},
                 {"bytes", HK_U8, true}};
    for (int i = 0; i < HK_DATE_ORDERS; i++)
        if (strcmp(date_types[i], text) == 0) {
            *out = (column_type){.dtype = HK_STRING, .date = i + 1};
            return true;
        }
    const size_t n = strcspn(text, "[");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strlen(names[i].name) != n || strncmp(names[i].name, text, n) != 0)
            continue;
        *out = (column_type){.dtype = names[i].dtype, .raw = names[i].raw};
        if (!text[n])
            return true;
        out->list = strcmp(text + n, "[]") == 0 && !out->raw;
        if (out->list)
            return true;
        char *end;
        out->width = strtoll(text + n + 1, &end, 10);
        return out->width > 0 && strcmp(end, "]") == 0;
    }
    return false;
}

static const char *type_word(const table_column *c) {
    if (c->date)
        return date_types[c->date - 1];
    return c->type == HK_STRING                     ? "text"
           : c->type == HK_F32 || c->type == HK_F64 ? "float"
                                                    : "int";
}

// ---- writing ---------------------------------------------------------------

static char *kept_path(const char *folder, const char *name) {
    return cli_printf("%s/%s", folder, name);
}

static void put_texts(FILE *f, const char *key, char *const *texts, size_t n) {
    fprintf(f, ",\"%s\":[", key);
    for (size_t i = 0; i < n; i++) {
        fputs(i ? "," : "", f);
        cli_json_string(f, texts[i]);
    }
    fputc(']', f);
}

static void put_text(FILE *f, const char *key, const char *text) {
    fprintf(f, ",\"%s\":", key);
    cli_json_string(f, text ? text : "");
}

static void put_columns(FILE *f, const table *t) {
    fputs("{\"columns\":{", f);
    for (size_t i = 0; i < t->n; i++) {
        fputs(i ? "," : "", f);
        cli_json_string(f, t->column[i].name);
        fprintf(f, ":\"%s\"", type_word(&t->column[i]));
    }
    fprintf(f, "},\"fields\":%zu,\"places\":[", t->n_fields);
    for (size_t i = 0; i < t->n; i++)
        fprintf(f, "%s%d", i ? "," : "", t->column[i].place);
    fputc(']', f);
}

static void put_ranges(FILE *f, const char *key, const split_range *r,
                       size_t n) {
    fprintf(f, ",\"%s\":[", key);
    for (size_t i = 0; i < n; i++)
        fprintf(f, "%s%lld,%lld,%lld", i ? "," : "", (long long)r[i].low,
                (long long)r[i].high, (long long)r[i].n);
    fputc(']', f);
}

static void put_sets(FILE *f, const table *t) {
    fprintf(f, ",\"rows\":%lld,\"seed\":%lld", (long long)t->rows,
            (long long)t->rows_of.seed);
    put_ranges(f, "eval", t->rows_of.eval, t->rows_of.n);
    put_ranges(f, "test", t->rows_of.test, t->rows_of.n);
}

static void put_target(FILE *f, const table *t) {
    fprintf(f, ",\"target\":%d,\"target_mean\":%.17g,\"target_scale\":%.17g",
            (int)t->target, t->target_mean, t->target_scale);
    fputs(",\"class_weights\":[", f);
    for (size_t i = 0; i < t->n_class_weights; i++)
        fprintf(f, "%s%.17g", i ? "," : "", t->class_weight[i]);
    fputc(']', f);
}

static void write_table(FILE *f, const table *t) {
    put_columns(f, t);
    put_text(f, "label", t->label);
    put_text(f, "weight", t->weight);
    put_texts(f, "words", t->words, t->n_words);
    fprintf(f, ",\"classes\":%lld", (long long)t->classes);
    put_sets(f, t);
    put_target(f, t);
    if (t->decimal)
        put_text(f, "decimal", (const char[]){t->decimal, '\0'});
    put_text(f, "summary", t->summary);
    fputs("}\n", f);
}

static int save_features(const table *t, const char *folder) {
    if (!t->features)
        return 0;
    size_t size;
    CLI_TRY(cli_status(hk_feature_set_save(t->features, NULL, 0, &size)));
    CLI_FREED char *text = cli_alloc(size);
    CLI_FREED char *path = kept_path(folder, "features.json");
    CLI_TRY(cli_status(hk_feature_set_save(t->features, text, size, &size)));
    return write_whole(path, text, size);
}

// table.json comes last: where it is, all is there.
int table_save(const table *t, const char *folder) {
    CLI_TRY(make_folders(folder));
    CLI_TRY(save_features(t, folder));
    CLI_FREED char *path = kept_path(folder, "table.json");
    CLI_FREED char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return cli_fail("%s: %s", path, strerror(errno));
    write_table(f, t);
    fclose(f);
    return write_whole(path, text, size);
}

// ---- reading ---------------------------------------------------------------

static char *text_of(const tree *root, const char *key) {
    const char *text = tree_text(tree_get(root, key), "");
    return *text ? cli_strdup(text) : NULL;
}

static void load_columns(const tree *root, table *t) {
    const tree *columns = tree_get(root, "columns");
    const tree *places = tree_get(root, "places");
    const tree *place = places ? places->child : NULL;
    t->n = tree_size(columns);
    t->n_fields = (size_t)tree_int(tree_get(root, "fields"), (int64_t)t->n);
    t->column = cli_alloc((t->n + 1) * sizeof *t->column);
    int32_t i = 0;
    for (const tree *c = columns ? columns->child : NULL; c; c = c->next, i++) {
        column_type type = {.dtype = HK_F32};
        column_type_parse(tree_text(c, ""), &type);
        t->column[i] = (table_column){.name = cli_strdup(c->key),
                                      .type = type.dtype,
                                      .date = type.date,
                                      .place = (int32_t)tree_int(place, i)};
        place = place ? place->next : NULL;
    }
}

static split_range *load_ranges(const tree *root, const char *key, size_t *n) {
    const tree *list = tree_get(root, key);
    *n = tree_size(list) / 3;
    split_range *out = cli_alloc((*n + 1) * sizeof *out);
    const tree *c = list ? list->child : NULL;
    for (size_t i = 0; i < *n; i++) {
        int64_t v[3];
        for (int k = 0; k < 3; k++, c = c ? c->next : NULL)
            v[k] = tree_int(c, 0);
        out[i] = (split_range){v[0], v[1], v[2]};
    }
    return out;
}

// Without ranges: of a file whose rows were not looked at.
static void load_sets(const tree *root, table *t, const split_plan *blocks) {
    size_t n_test;
    split s = {.seed = tree_int(tree_get(root, "seed"), blocks->seed)};
    s.eval = load_ranges(root, "eval", &s.n);
    s.test = load_ranges(root, "test", &n_test);
    if (s.n && n_test == s.n) {
        t->rows_of = s;
    } else {
        split_free(&s);
        split_blocks(&t->rows_of, blocks);
    }
    t->rows = tree_int(tree_get(root, "rows"), 0);
}

static void load_target(const tree *root, table *t) {
    t->target = (hk_target)tree_int(tree_get(root, "target"), 0);
    t->target_mean = tree_float(tree_get(root, "target_mean"), 0);
    t->target_scale = tree_float(tree_get(root, "target_scale"), 1);
    const tree *list = tree_get(root, "class_weights");
    t->n_class_weights = tree_size(list);
    if (!t->n_class_weights)
        return;
    t->class_weight = cli_alloc(t->n_class_weights * sizeof *t->class_weight);
    size_t i = 0;
    for (const tree *c = list->child; c; c = c->next)
        t->class_weight[i++] = tree_float(c, 1);
}

static void load_words(const tree *root, table *t) {
    const tree *words = tree_get(root, "words");
    t->n_words = tree_size(words);
    t->words = cli_alloc((t->n_words + 1) * sizeof *t->words);
    size_t i = 0;
    for (const tree *c = words ? words->child : NULL; c; c = c->next)
        t->words[i++] = cli_strdup(tree_text(c, ""));
    t->classes = tree_int(tree_get(root, "classes"), 2);
}

static int load_features(table *t, const char *folder) {
    CLI_FREED char *path = kept_path(folder, "features.json");
    CLI_FREED char *text = NULL;
    size_t size;
    CLI_TRY(cli_read_file(path, &text, &size));
    return cli_status(hk_feature_set_restore(text, size, &t->features));
}

int table_load(table *t, const char *folder, const split_plan *blocks) {
    char *path = kept_path(folder, "table.json");
    const bool there = access(path, F_OK) == 0;
    tree *root = there ? tree_read(path) : NULL;
    free(path);
    if (!there)
        return cli_fail("%s: no trained model; train first, or give the "
                        "--model-dir of one",
                        folder);
    if (!root)
        return CLI_FAILED;
    load_columns(root, t);
    load_words(root, t);
    load_sets(root, t, blocks);
    load_target(root, t);
    t->label = cli_strdup(tree_text(tree_get(root, "label"), ""));
    t->weight = text_of(root, "weight");
    t->decimal = tree_text(tree_get(root, "decimal"), "")[0];
    t->summary = text_of(root, "summary");
    tree_free(root);
    path = kept_path(folder, "features.json");
    const bool features = access(path, F_OK) == 0;
    free(path);
    return features ? load_features(t, folder) : 0;
}
