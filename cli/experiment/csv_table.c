// csv_table.c - learning, keeping and using what belongs to a table.
#include "experiment/csv_table.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "experiment/run_record.h"

// One table a process; hung here because an experiment is opened once.
static table *opened;

const table *table_of(const experiment *x) {
    (void)x;
    return opened;
}

// ---- types -----------------------------------------------------------------

typedef struct column_type {
    hk_dtype dtype;
    bool raw;      // one bytes value that holds the elements
    bool list;     // any number of values
    int64_t width; // 0: a scalar or a list
} column_type;

// int, float, text, with [n] for arrays and [] for lists of any length;
// bytes[n]: n raw bytes.
static bool parse_type(const char *text, column_type *out) {
    static const struct {
        const char *name;
        hk_dtype dtype;
        bool raw;
    } names[] = {{"int", HK_I64, false},
                 {"float", HK_F32, false},
                 {"text", HK_STRING, false},
                 {"bytes", HK_U8, true}};
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

static const char *type_word(hk_dtype t) {
    return t == HK_STRING               ? "text"
           : t == HK_F32 || t == HK_F64 ? "float"
                                        : "int";
}

// ---- the file --------------------------------------------------------------

static char *kept_path(const char *folder, const char *name) {
    return cli_printf("%s/%s", folder, name);
}

static void write_table(FILE *f, const table *t) {
    fputs("{\"columns\":{", f);
    for (size_t i = 0; i < t->n; i++) {
        fputs(i ? "," : "", f);
        cli_json_string(f, t->names[i]);
        fprintf(f, ":\"%s\"", type_word(t->types[i]));
    }
    fputs("},\"label\":", f);
    cli_json_string(f, t->label ? t->label : "");
    fputs(",\"words\":[", f);
    for (size_t i = 0; i < t->n_words; i++) {
        fputs(i ? "," : "", f);
        cli_json_string(f, t->words[i]);
    }
    fprintf(f, "],\"classes\":%lld}\n", (long long)t->classes);
}

static int save_features(const table *t, const char *folder) {
    if (!t->features)
        return 0;
    size_t size;
    hk_status status = hk_feature_set_save(t->features, NULL, 0, &size);
    if (status != HK_OK)
        return cli_status(status);
    char *text = cli_alloc(size), *path = kept_path(folder, "features.json");
    status = hk_feature_set_save(t->features, text, size, &size);
    int failed = cli_status(status);
    if (!failed)
        failed = write_whole(path, text, size);
    free(text);
    free(path);
    return failed;
}

// table.json comes last: where it is, all is there.
static int save(const table *t, const char *folder) {
    make_folders(folder);
    int failed = save_features(t, folder);
    if (failed)
        return failed;
    char *path = kept_path(folder, "table.json"), *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return cli_fail("%s: %s", path, strerror(errno));
    write_table(f, t);
    fclose(f);
    failed = write_whole(path, text, size);
    free(path);
    free(text);
    return failed;
}

static int load(table *t, const settings *s, bool canned) {
    char *path = kept_path(s->model_dir, "table.json");
    const bool there = access(path, F_OK) == 0;
    tree *root = there ? tree_read(path) : NULL;
    free(path);
    if (!there)
        return cli_fail("%s: no trained model; train first, or give the "
                        "--model-dir of one",
                        s->model_dir);
    if (!root)
        return CLI_FAILED;
    const tree *columns = tree_get(root, "columns");
    const tree *words = tree_get(root, "words");
    t->n = tree_size(columns);
    t->names = cli_alloc(t->n * sizeof *t->names + 1);
    t->types = cli_alloc(t->n * sizeof *t->types + 1);
    size_t i = 0;
    for (const tree *c = columns ? columns->child : NULL; c; c = c->next, i++) {
        column_type type = {.dtype = HK_F32};
        parse_type(tree_text(c, ""), &type);
        t->names[i] = cli_strdup(c->key);
        t->types[i] = type.dtype;
    }
    t->label = cli_strdup(tree_text(tree_get(root, "label"), ""));
    t->n_words = tree_size(words);
    t->words = cli_alloc(t->n_words * sizeof *t->words + 1);
    i = 0;
    for (const tree *c = words ? words->child : NULL; c; c = c->next)
        t->words[i++] = cli_strdup(tree_text(c, ""));
    t->classes = tree_int(tree_get(root, "classes"), 2);
    tree_free(root);
    if (!canned)
        return 0;
    char *text;
    size_t size;
    path = kept_path(s->model_dir, "features.json");
    int failed = cli_read_file(path, &text, &size);
    free(path);
    if (failed)
        return failed;
    failed = cli_status(hk_feature_set_restore(text, size, &t->features));
    free(text);
    return failed;
}

// ---- CSV -------------------------------------------------------------------

// A file whose columns are not given has to name them.
static bool has_header(const data_user *u) {
    return tree_bool(data_get(u, "header"), !data_get(u, "columns"));
}

static void csv_options(const data_user *u, hk_csv_options *o,
                        hk_file_options *file, const char ***missing) {
    hk_csv_options_init(o, sizeof *o);
    hk_file_options_init(file, sizeof *file);
    if (strcmp(tree_text(data_get(u, "on_error"), "fail"), "skip") == 0)
        file->on_error = HK_ON_ERROR_SKIP;
    o->file = file;
    o->header = has_header(u);
    o->trim = 1;
    o->skip_lines = tree_int(data_get(u, "skip_lines"), 0);
    const char *delimiter = tree_text(data_get(u, "delimiter"), ",");
    o->delimiter = strcmp(delimiter, "tab") == 0 ? '\t' : delimiter[0];
    const tree *t = data_get(u, "missing");
    size_t n = t ? t->kind == TREE_LIST ? tree_size(t) : 1 : 0;
    *missing = cli_alloc((n ? n : 1) * sizeof **missing);
    if (t && t->kind == TREE_SCALAR)
        (*missing)[0] = t->text;
    n = t && t->kind == TREE_SCALAR;
    for (const tree *c = t && t->kind == TREE_LIST ? t->child : NULL; c;
         c = c->next)
        (*missing)[n++] = c->text;
    o->missing = *missing;
    o->n_missing = n;
}

hk_dataset *table_csv(const data_user *u, const char *const *files, size_t n) {
    const table *t = opened;
    const bool predict = strcmp(u->set, "predict") == 0;
    hk_csv_options o;
    hk_file_options file;
    const char **missing;
    csv_options(u, &o, &file, &missing);
    hk_csv_column *columns = cli_alloc((t->n + 1) * sizeof *columns);
    int32_t *select = cli_alloc((t->n + 1) * sizeof *select);
    size_t used = 0;
    for (size_t i = 0; i < t->n; i++) {
        const bool label = t->label && strcmp(t->names[i], t->label) == 0;
        if (label && predict)
            continue;
        columns[used] = (hk_csv_column){.name = t->names[i],
                                        .dtype = t->types[i],
                                        .role = label ? HK_LABEL : HK_FEATURE};
        select[used] = (int32_t)i;
        if (!label && t->types[i] == HK_F32)
            columns[used].default_value = "nan"; // a missing number
        if (label && t->n_words) {
            columns[used].dtype = HK_I32;
            columns[used].strip = tree_text(data_get(u, "label_strip"), NULL);
            columns[used].vocabulary = (const char *const *)t->words;
            columns[used].n_vocabulary = t->n_words;
            columns[used].required = 1;
        }
        used++;
    }
    if (!o.header)
        o.select = select; // a file to predict for may lack the label
    o.columns = columns;
    o.n_columns = used;
    hk_dataset *d = hk_data_csv(files, n, &o);
    free(columns);
    free(select);
    free(missing);
    return d;
}

// Names and types: as the file says, or as its first rows look.
static int learn_columns(table *t, const data_user *u, const tree *columns,
                         const char *const *files, size_t n) {
    const bool csv = strcmp(tree_text(data_get(u, "source"), ""), "csv") == 0;
    if (columns) {
        t->n = tree_size(columns);
        t->names = cli_alloc(t->n * sizeof *t->names + 1);
        t->types = cli_alloc(t->n * sizeof *t->types + 1);
        t->longest = cli_alloc(t->n * sizeof *t->longest + 1);
        size_t i = 0;
        for (const tree *c = columns->child; c; c = c->next, i++) {
            column_type type;
            if (!parse_type(c->text, &type))
                return cli_fail("%s'%s' has the type '%s'; int, float, text, "
                                "each with [n] or [], and bytes[n] are known",
                                tree_where(c), c->key, c->text);
            if (csv && c->text[strcspn(c->text, "[")])
                return cli_fail("%s'%s': a column of a csv file has one value; "
                                "'%s' is for tfrecord",
                                tree_where(c), c->key, c->text);
            t->names[i] = cli_strdup(c->key);
            t->types[i] = type.dtype;
            t->longest[i] = type.list;
        }
        return 0;
    }
    if (!has_header(u))
        return cli_fail("%s: a csv file needs a header or 'columns'",
                        u->x->path);
    hk_csv_options o;
    hk_file_options file;
    const char **missing;
    csv_options(u, &o, &file, &missing);
    hk_dataset *d = hk_data_csv(files, n, &o);
    free(missing);
    const int failed = cli_status(hk_dataset_status(d));
    if (!failed) {
        const hk_element *spec = hk_dataset_spec(d);
        t->n = spec->count;
        t->names = cli_alloc(t->n * sizeof *t->names + 1);
        t->types = cli_alloc(t->n * sizeof *t->types + 1);
        for (size_t i = 0; i < t->n; i++) {
            t->names[i] = cli_strdup(spec->values[i].name);
            // Whole numbers may be measured, too: they are numbers.
            t->types[i] =
                spec->values[i].dtype == HK_STRING ? HK_STRING : HK_F32;
        }
    }
    hk_dataset_release(d);
    return failed;
}

// ---- labels --------------------------------------------------------

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void add_word(table *t, const void *bytes, size_t size,
                     const char *strip) {
    const char *p = bytes;
    while (size && strip && strchr(strip, p[size - 1]))
        size--;
    for (size_t i = 0; i < t->n_words; i++)
        if (strlen(t->words[i]) == size && memcmp(t->words[i], p, size) == 0)
            return;
    char **grown = cli_alloc((t->n_words + 1) * sizeof *grown);
    if (t->n_words)
        memcpy(grown, t->words, t->n_words * sizeof *grown);
    free(t->words);
    t->words = grown;
    t->words[t->n_words] = cli_alloc(size + 1);
    memcpy(t->words[t->n_words++], p, size);
}

// Looks at every label, and at how long lists are. Texts: all words, sorted.
// Whole numbers from 0 on: classes; other numbers are to be measured.
enum {
    MOST_WORDS = 10000,
    MOST_CLASSES = 32 // whole numbers beyond are measured, too
};

static hk_status look_at(table *t, const hk_value *v, const char *strip) {
    if (v->dtype == HK_STRING) {
        const void *bytes;
        size_t size;
        const hk_status s = hk_tensor_get_string(v->tensor, 0, &bytes, &size);
        if (s == HK_OK)
            add_word(t, bytes, size, strip);
        return s;
    }
    const double x = v->dtype == HK_F32
                         ? (double)*(const float *)hk_tensor_data(v->tensor)
                         : (double)*(const int64_t *)hk_tensor_data(v->tensor);
    if (!(x >= 0 && x < MOST_CLASSES && x == floor(x)))
        t->classes = 0;
    else if (t->classes && x + 1 > (double)t->classes)
        t->classes = (int64_t)x + 1;
    return HK_OK;
}

static void look_at_lists(table *t, const hk_element *e) {
    for (size_t i = 0; i < t->n && t->longest; i++) {
        const hk_value *v =
            t->longest[i] ? hk_element_find(e, t->names[i]) : NULL;
        if (v && hk_tensor_count(v->tensor) > t->longest[i])
            t->longest[i] = hk_tensor_count(v->tensor);
    }
}

static bool has_lists(const table *t) {
    for (size_t i = 0; i < t->n && t->longest; i++)
        if (t->longest[i])
            return true;
    return false;
}

// labels: whether their words and classes are to be found, too.
static hk_status look_at_all(table *t, const data_user *u, bool labels) {
    hk_dataset *d = data_examples(u);
    hk_iter *it = NULL;
    const hk_element *e;
    const char *strip = tree_text(data_get(u, "label_strip"), NULL);
    hk_status s = hk_dataset_status(d);
    if (s == HK_OK)
        s = hk_iter_create(d, NULL, &it);
    while (s == HK_OK && t->n_words <= MOST_WORDS &&
           (s = hk_iter_next(it, &e)) == HK_OK) {
        look_at_lists(t, e);
        if (labels)
            s = look_at(t, hk_element_find(e, t->label), strip);
    }
    hk_iter_destroy(it);
    hk_dataset_release(d);
    return s == HK_E_END ? HK_OK : s;
}

// What was made of the labels, in case it is not what was meant.
static void tell_labels(const table *t) {
    const long long n =
        (long long)(t->n_words ? (int64_t)t->n_words : t->classes);
    if (n)
        cli_note("the label '%s' has %lld classes", t->label, n);
    else
        cli_note("the label '%s' is a number to be predicted (model.classes "
                 "makes it classes)",
                 t->label);
}

static int learn_labels(table *t, const data_user *u) {
    const tree *given = data_get(u, "label_values");
    for (const tree *c = given ? given->child : NULL; c; c = c->next)
        add_word(t, c->text, strlen(c->text), NULL);
    t->classes = 2;
    if (given && !has_lists(t))
        return 0;
    const hk_status s = look_at_all(t, u, !given);
    if (s != HK_OK || given)
        return cli_status(s);
    if (t->n_words > MOST_WORDS)
        return cli_fail("%s: the label '%s' has more than %d different texts; "
                        "is it the right column?",
                        u->x->path, t->label, MOST_WORDS);
    if (t->n_words)
        qsort(t->words, t->n_words, sizeof *t->words, by_text);
    if (!tree_path(u->x->root, "model.classes") &&
        tree_path(u->x->root, "model.canned"))
        tell_labels(t);
    return 0;
}

static int find_label(table *t, const data_user *u) {
    const char *name = tree_text(tree_path(u->x->root, "model.label"), NULL);
    const tree *given = data_get(u, "label");
    name = tree_text(given, name ? name : "label");
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->names[i], name) == 0) {
            t->label = cli_strdup(name);
            return 0;
        }
    const char *near = cli_nearest(name, (const char *const *)t->names, t->n);
    return near ? cli_fail("%s: no column '%s' to learn; did you mean '%s'?",
                           u->x->path, name, near)
                : cli_fail("%s: no column '%s' to learn; say data.train.label",
                           u->x->path, name);
}

// ---- TFRecord --------------------------------------------------------------

hk_dataset *table_tfrecord(const data_user *u, hk_dataset *records) {
    const tree *columns = data_get(u, "columns");
    const char *label = tree_text(data_get(u, "label"), "label");
    const bool predict = strcmp(u->set, "predict") == 0;
    const size_t n = tree_size(columns);
    hk_example_feature *f = cli_alloc((n + 1) * sizeof *f);
    size_t used = 0;
    for (const tree *c = columns ? columns->child : NULL; c; c = c->next) {
        column_type type = {.dtype = HK_F32};
        parse_type(c->text, &type);
        const bool is_label = strcmp(c->key, label) == 0;
        if (is_label && predict)
            continue;
        f[used] = (hk_example_feature){
            .name = c->key,
            .kind = type.raw    ? HK_RAW_LEN
                    : type.list ? HK_VAR_LEN
                                : HK_FIXED_LEN,
            .dtype = type.dtype,
            .role = is_label ? HK_LABEL : HK_FEATURE,
            .shape = {.rank = type.width ? 1 : 0, .dim = {type.width}}};
        used++;
    }
    hk_parse_options o;
    hk_parse_options_init(&o, sizeof o);
    if (strcmp(tree_text(data_get(u, "on_error"), "fail"), "skip") == 0)
        o.on_error = HK_ON_ERROR_SKIP;
    hk_dataset *d = hk_data_parse_example(records, f, used, &o);
    free(f);
    return d;
}

// ---- opening ---------------------------------------------------------------

static int learn_all(table *t, const data_user *u, const char *source) {
    size_t n = 0;
    char **files = NULL;
    const tree *columns = data_get(u, "columns");
    if (strcmp(source, "tfrecord") == 0 && !columns)
        return cli_fail("%s: a tfrecord source needs 'columns'", u->x->path);
    const tree *list = data_get(u, "files");
    n = list ? list->kind == TREE_LIST ? tree_size(list) : 1 : 0;
    if (!n)
        return cli_fail("%s: data.train needs 'files'", u->x->path);
    files = cli_alloc(n * sizeof *files);
    files[0] = experiment_path(
        u->x, list->kind == TREE_SCALAR ? list->text : list->child->text);
    size_t i = 1;
    for (const tree *c = list->kind == TREE_LIST ? list->child->next : NULL; c;
         c = c->next)
        files[i++] = experiment_path(u->x, c->text);
    int failed = learn_columns(t, u, columns, (const char *const *)files, n);
    for (i = 0; i < n; i++)
        free(files[i]);
    free(files);
    if (!failed)
        failed = find_label(t, u);
    if (!failed)
        failed = learn_labels(t, u);
    return failed;
}

// What a run without a step has learnt may be wrong: it is learnt anew.
static bool is_kept(const settings *s, bool learn) {
    char *path = kept_path(s->model_dir, "table.json");
    const bool there = access(path, F_OK) == 0;
    free(path);
    int64_t step = 0;
    if (!there || !learn)
        return there;
    (void)hk_latest_checkpoint(s->model_dir, NULL, 0, &step);
    return step != 0;
}

int table_open(experiment *x, const settings *s, bool learn) {
    const data_user u = {.x = x, .set = "train"};
    const char *source = tree_text(data_get(&u, "source"), "digits");
    const bool rows =
        strcmp(source, "csv") == 0 || strcmp(source, "tfrecord") == 0;
    const bool canned = tree_path(x->root, "model.canned") != NULL;
    if (canned && !rows)
        return cli_fail("%s: a canned model needs a csv or tfrecord source",
                        x->path);
    if (!rows)
        return 0;
    table *t = opened = cli_alloc(sizeof *t);
    const bool kept = is_kept(s, learn);
    int failed = kept || !learn ? load(t, s, canned) : learn_all(t, &u, source);
    if (!failed && !kept && learn && canned)
        failed = columns_learn(t, &u);
    // Workers of a cluster learn the same from the same data; one writes.
    if (!failed && !kept && learn && !s->config.not_chief)
        failed = save(t, s->model_dir);
    if (!failed && t->label) {
        free(x->label_name);
        x->label_name = cli_strdup(t->label);
    }
    return failed;
}

int table_keep(const char *folder) {
    return opened ? save(opened, folder) : 0;
}

hk_dataset *table_features(const data_user *u, hk_dataset *d) {
    (void)u;
    if (!opened || !opened->features)
        return d;
    hk_features_options o;
    hk_features_options_init(&o, sizeof o);
    o.batched = 1;
    return hk_data_features(d, opened->features, &o);
}
