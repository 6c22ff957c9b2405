// test_elastic_tables.c - TensorFlow's numbers: every file of
// tests/data/elastic is a run, row by row (tf-semantics S1, S2, S4-S9, S11).
//
// Words of a file, one line each; # begins a comment:
//     method NAME | workers N | period N | moving_rate V | rho V
//     staleness N
//     optimizer sgd|adam RATE | outer sgd|adam RATE
//     var NAME COUNT VALUE          a variable, every element VALUE at first
//     gradient WORKER VALUE         constant gradient of a worker
//     quadratic TARGET              loss (x - TARGET)^2 / 2 for all
//     tolerance V                   0: exact; otherwise V + V |expected|
//     columns NAME...               x.W.VAR c.W.VAR C.VAR local_step.W
//                                   exchanges version stale
//     row init|WORKERS VALUE...     WORKERS: digits; they step at once
//     saved NAME VALUE...           what a plain model restores from the
//                                   swapping saver's checkpoint of this moment
#include "hk_test.h"
#include <dirent.h>
#include <pthread.h>
#include "estimator/saved/written_files.h"
#include "hooke/ckpt.h"
#include "hooke/elastic.h"

#define MAX_WORKERS 4
#define MAX_VARS 4
#define MAX_COLUMNS 12

typedef struct run {
    const char *file;
    int line;
    // Settings.
    hk_method method;
    uint32_t workers, period;
    double moving_rate, rho;
    int64_t staleness;
    hk_optimizer_options optimizer, outer;
    bool has_outer, quadratic;
    double target, tolerance;
    double gradient[MAX_WORKERS];
    char names[MAX_VARS][32];
    int64_t counts[MAX_VARS];
    float start[MAX_VARS];
    size_t n_vars;
    char columns[MAX_COLUMNS][32];
    size_t n_columns;
    // State.
    hk_layout *layout;
    hk_center *center;
    struct worker {
        struct run *run;
        uint32_t id;
        hk_optimizer *optimizer;
        hk_elastic *e;
        float *x, *g;
        hk_status status;
        char text[256];
    } w[MAX_WORKERS];
    float *c;
    size_t n_rows, n_saved;
} run;

static void start_worker(run *r, uint32_t id) {
    struct worker *const w = &r->w[id];
    const size_t n = (size_t)hki_layout_size(r->layout);
    w->run = r;
    w->id = id;
    assert_ok(hk_optimizer_create(&r->optimizer, r->layout, &w->optimizer));
    assert_ok(hki_zalloc_array(n, sizeof(float), &w->x));
    assert_ok(hki_zalloc_array(n, sizeof(float), &w->g));
    for (size_t i = 0; i < r->n_vars; i++) {
        const hk_entry *const e = hk_layout_entry(r->layout, i);
        for (int64_t j = 0; j < e->count; j++) // others start elsewhere
            w->x[e->offset + j] = id == 0 ? r->start[i] : 77;
    }
    hk_elastic_options o;
    hk_elastic_options_init(&o, sizeof o);
    o.num_worker = r->workers;
    o.communication_period = r->period;
    o.moving_rate = r->moving_rate;
    o.rho = r->rho;
    o.keep_view = 1;
    o.wait_ms = 10000;
    assert_ok(hk_elastic_create(&o, w->optimizer, r->center, &w->e));
    assert_ok(hk_elastic_init(w->e, w->x, (int32_t)id));
}

static void start(run *r) {
    hk_layout_item items[MAX_VARS] = {0};
    for (size_t i = 0; i < r->n_vars; i++)
        items[i] = (hk_layout_item){.name = r->names[i],
                                    .shape = hk_shape_make(1, &r->counts[i]),
                                    .dtype = HK_F32,
                                    .kind = HK_TRAINABLE};
    assert_ok(hk_layout_create(items, r->n_vars, &r->layout));
    hk_center_options o;
    hk_center_options_init(&o, sizeof o);
    o.method = r->method;
    o.workers = r->workers;
    o.staleness = r->staleness;
    o.outer = r->has_outer ? &r->outer : NULL;
    o.check = 1;
    assert_ok(hk_center_create_local(&o, r->layout, &r->center));
    assert_ok(hki_zalloc_array((size_t)hki_layout_size(r->layout),
                               sizeof(float), &r->c));
    for (uint32_t id = 0; id < r->workers; id++)
        start_worker(r, id);
}

static void finish(run *r) {
    for (uint32_t id = 0; id < r->workers; id++) {
        hk_elastic_destroy(r->w[id].e);
        hk_optimizer_destroy(r->w[id].optimizer);
        hki_free(r->w[id].x);
        hki_free(r->w[id].g);
    }
    hki_free(r->c);
    hk_center_destroy(r->center);
    hk_layout_release(r->layout);
}

static void gradient(const struct worker *w) {
    const run *const r = w->run;
    for (size_t i = 0; i < r->n_vars; i++) {
        const hk_entry *const e = hk_layout_entry(r->layout, i);
        for (int64_t j = e->offset; j < e->offset + e->count; j++)
            w->g[j] = r->quadratic ? w->x[j] - (float)r->target
                                   : (float)r->gradient[w->id];
    }
}

static void *step(void *arg) {
    struct worker *const w = arg;
    const hk_grad_view g = {
        .dense = w->g, .n_dense = hki_layout_train(w->run->layout), .scale = 1};
    gradient(w);
    w->status = hk_elastic_add_pull(w->e, w->x, w->g, g.n_dense, g.scale);
    if (w->status == HK_OK)
        w->status = hk_elastic_apply(w->e, w->x, &g, NULL);
    snprintf(w->text, sizeof w->text, "%s", hk_last_error());
    return NULL;
}

static void step_all(run *r, const char *who) {
    pthread_t id[MAX_WORKERS];
    const size_t n = strlen(who);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(
            pthread_create(&id[i], NULL, step, &r->w[who[i] - '0']), 0);
    for (size_t i = 0; i < n; i++) {
        pthread_join(id[i], NULL);
        const struct worker *const w = &r->w[who[i] - '0'];
        if (w->status != HK_OK)
            fail_msg("%s:%d: %s", r->file, r->line, w->text);
    }
}

static hk_elastic_info info_of(const struct worker *w) {
    hk_elastic_info info;
    assert_ok(hk_elastic_get_info(w->e, &info));
    return info;
}

// One variable of a vector; all its elements are equal.
static double variable(run *r, const float *vector, const char *name) {
    const hk_entry *const e = hk_layout_find(r->layout, name);
    if (e == NULL)
        fail_msg("%s:%d: no variable %s", r->file, r->line, name);
    for (int64_t j = 1; j < e->count; j++)
        assert_close(vector[e->offset + j], vector[e->offset], 0, 0);
    return (double)vector[e->offset];
}

static double value_of(run *r, const char *column, const hk_center_info *info) {
    const uint32_t id = column[1] == '.' ? (uint32_t)(column[2] - '0') : 0;
    if (strncmp(column, "x.", 2) == 0)
        return variable(r, r->w[id].x, column + 4);
    if (strncmp(column, "c.", 2) == 0)
        return variable(r, info_of(&r->w[id]).view, column + 4);
    if (strncmp(column, "C.", 2) == 0)
        return variable(r, r->c, column + 2);
    if (strncmp(column, "local_step.", 11) == 0)
        return (double)info_of(&r->w[column[11] - '0']).local_step;
    if (strcmp(column, "exchanges") == 0)
        return (double)info->exchanges;
    if (strcmp(column, "version") == 0)
        return (double)info->version;
    if (strcmp(column, "stale") == 0)
        return (double)info->stale;
    fail_msg("%s:%d: no column %s", r->file, r->line, column);
    return 0;
}

static void check_row(run *r, char *values) {
    hk_center_info info;
    assert_ok(hk_center_snapshot(r->center, HK_CENTER_VALUES, 1000, r->c, NULL,
                                 &info));
    char *at = values;
    for (size_t i = 0; i < r->n_columns; i++) {
        char *end;
        const double expected = strtod(at, &end);
        if (end == at)
            fail_msg("%s:%d: column %s is missing", r->file, r->line,
                     r->columns[i]);
        at = end;
        const double got = value_of(r, r->columns[i], &info);
        if (!hk_test_close(got, expected, r->tolerance, r->tolerance))
            fail_msg("%s:%d: %s is %.10g, expected %.10g", r->file, r->line,
                     r->columns[i], got, expected);
    }
    r->n_rows++;
}

// Centers under the plain names, as a TensorFlow checkpoint.
static void save(run *r, const char *path) {
    hk_name_map *map;
    int64_t step = 0;
    assert_ok(hk_name_map_create(&map));
    assert_ok(hk_elastic_swapping_map(r->w[0].e, NULL, r->c, NULL, &step, map));
    assert_ok(hk_center_snapshot(r->center, HK_CENTER_VALUES, 1000, r->c, NULL,
                                 NULL));
    hk_write_options o;
    hk_write_options_init(&o, sizeof o);
    o.format = HK_CKPT_TF;
    assert_ok(hk_ckpt_write(path, map, &o));
    hk_name_map_destroy(map);
}

static void check_saved(run *r, const char *text) {
    const char *const tmp = getenv("TMPDIR");
    char folder[256], path[300], name[32];
    snprintf(folder, sizeof folder, "%s/hooke-tables-XXXXXX",
             tmp != NULL ? tmp : "/tmp");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/swapped", folder);
    save(r, path);
    hk_ckpt *c;
    assert_ok(hk_ckpt_open(path, HK_CKPT_AUTO, &c));
    double expected;
    int used;
    for (; sscanf(text, "%31s %lf%n", name, &expected, &used) == 2;
         text += used) {
        const hk_entry *const e = hk_layout_find(r->layout, name);
        assert_non_null(e);
        float got[16] = {0};
        assert_true(e->count <= 16);
        assert_ok(hk_ckpt_read(c, name, HK_F32, &e->shape, got));
        for (int64_t i = 0; i < e->count; i++)
            if (!hk_test_close((double)got[i], expected, 0, 0))
                fail_msg("%s:%d: %s[%lld] is %.10g, expected %.10g", r->file,
                         r->line, name, (long long)i, (double)got[i], expected);
        r->n_saved++;
    }
    hk_ckpt_close(c);
    assert_ok(hki_remove_tree(folder));
}

static void read_optimizer(const run *r, const char *kind, double rate,
                           hk_optimizer_options *o) {
    const bool adam = strcmp(kind, "adam") == 0;
    if (!adam && strcmp(kind, "sgd") != 0)
        fail_msg("%s:%d: no optimizer %s", r->file, r->line, kind);
    hk_optimizer_options_init(o, sizeof *o,
                              adam ? HK_OPT_ADAM : HK_OPT_GRADIENT_DESCENT);
    o->learning_rate = rate;
    o->beta1 = o->beta2 = 0;
    o->threads = 1;
}

static void read_columns(run *r, const char *text) {
    int used;
    while (sscanf(text, "%31s%n", r->columns[r->n_columns], &used) == 1) {
        text += used;
        assert_true(++r->n_columns < MAX_COLUMNS);
    }
}

static void read_row(run *r, char *text) {
    char who[8];
    int used;
    assert_int_equal(sscanf(text, "%7s%n", who, &used), 1);
    if (strcmp(who, "init") == 0)
        start(r);
    else
        step_all(r, who);
    check_row(r, text + used);
}

static void read_line(run *r, char *text) {
    char word[32], name[32];
    int used;
    double v = 0;
    if (sscanf(text, "%31s%n", word, &used) != 1 || word[0] == '#')
        return;
    char *const rest = text + used;
    const bool number = sscanf(rest, "%lf", &v) == 1;
    if (strcmp(word, "method") == 0 && sscanf(rest, "%31s", name) == 1) {
        assert_ok(hk_method_find(name, &r->method));
    } else if (strcmp(word, "workers") == 0 && number) {
        r->workers = (uint32_t)v;
        assert_true(r->workers <= MAX_WORKERS);
    } else if (strcmp(word, "period") == 0 && number) {
        r->period = (uint32_t)v;
    } else if (strcmp(word, "moving_rate") == 0 && number) {
        r->moving_rate = v;
    } else if (strcmp(word, "rho") == 0 && number) {
        r->rho = v;
    } else if (strcmp(word, "staleness") == 0 && number) {
        r->staleness = (int64_t)v;
    } else if (strcmp(word, "optimizer") == 0 &&
               sscanf(rest, "%31s %lf", name, &v) == 2) {
        read_optimizer(r, name, v, &r->optimizer);
    } else if (strcmp(word, "outer") == 0 &&
               sscanf(rest, "%31s %lf", name, &v) == 2) {
        read_optimizer(r, name, v, &r->outer);
        r->has_outer = true;
    } else if (strcmp(word, "var") == 0 && r->n_vars < MAX_VARS &&
               sscanf(rest, "%31s %lf %f", r->names[r->n_vars], &v,
                      &r->start[r->n_vars]) == 3) {
        r->counts[r->n_vars++] = (int64_t)v;
    } else if (strcmp(word, "gradient") == 0 && number) {
        double g;
        assert_int_equal(sscanf(rest, "%lf %lf", &v, &g), 2);
        r->gradient[(size_t)v % MAX_WORKERS] = g;
    } else if (strcmp(word, "quadratic") == 0 && number) {
        r->quadratic = true;
        r->target = v;
    } else if (strcmp(word, "tolerance") == 0 && number) {
        r->tolerance = v;
    } else if (strcmp(word, "columns") == 0) {
        read_columns(r, rest);
    } else if (strcmp(word, "row") == 0) {
        read_row(r, rest);
    } else if (strcmp(word, "saved") == 0) {
        check_saved(r, rest);
    } else {
        fail_msg("%s:%d: %s", r->file, r->line, text);
    }
}

static size_t run_file(const char *path, const char *name) {
    FILE *const f = fopen(path, "r");
    assert_non_null(f);
    static run r;
    r = (run){
        .file = name, .moving_rate = HK_ELASTIC_AUTO, .rho = HK_ELASTIC_AUTO};
    char line[512];
    while (fgets(line, sizeof line, f) != NULL) {
        r.line++;
        read_line(&r, line);
    }
    fclose(f);
    assert_true(r.n_rows > 0);
    finish(&r);
    return r.n_saved;
}

static void test_tables(void **state) {
    (void)state;
    const char *const folder = HK_TEST_DATA "/elastic";
    DIR *const dir = opendir(folder);
    assert_non_null(dir);
    size_t n = 0, saved = 0;
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        if (strstr(entry->d_name, ".txt") == NULL)
            continue;
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        const int64_t live = hki_alloc_live();
        saved += run_file(path, entry->d_name);
        assert_int_equal(hki_alloc_live(), live);
        n++;
    }
    closedir(dir);
    assert_true(n >= 15);
    assert_int_equal(saved, 2 + 4); // S1, S2
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tables)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
