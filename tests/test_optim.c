// test_optim.c - conformance: the tables in tests/data, line by line.
#include "optim_util.h"
#include <ctype.h>

#define MAX_WORDS 64
#define MAX_VARS 8
#define MAX_VALUES 64

// ---- reading lines ----------------------------------------------------------

typedef struct line {
    char text[512];
    char *word[MAX_WORDS];
    int n;
} line;

static bool next_line(FILE *f, line *l, int *number) {
    while (fgets(l->text, sizeof l->text, f) != NULL) {
        ++*number;
        l->n = 0;
        for (char *p = l->text; *p != '\0' && *p != '#';) {
            while (isspace((unsigned char)*p))
                *p++ = '\0';
            if (*p == '\0' || *p == '#')
                break;
            assert_true(l->n < MAX_WORDS);
            l->word[l->n++] = p;
            while (*p != '\0' && !isspace((unsigned char)*p))
                p++;
        }
        if (l->n > 0)
            return true;
    }
    return false;
}

static double number(const char *s) {
    char *end;
    const double v = strtod(s, &end);
    if (*end != '\0' || end == s)
        fail_msg("not a number: %s", s);
    return v;
}

// Words after the n-th `mark`, up to the next one; returns how many.
static int values_after(const line *l, const char *mark, int nth, double *out) {
    int at = 0;
    while (at < l->n && nth >= 0)
        nth -= strcmp(l->word[at++], mark) == 0;
    int n = 0;
    for (; at < l->n && strcmp(l->word[at], mark) != 0; at++) {
        assert_true(n < MAX_VALUES);
        out[n++] = number(l->word[at]);
    }
    return n;
}

static bool close_to(double a, double b) {
    return fabs(a - b) <= 1e-6 + 1e-6 * fabs(b);
}

// Slots are small numbers, schedules double ones: relative to the value. For
// slots 2e-5, as 1 - 0.999 in float32 is 1.3e-5 off, in TensorFlow as here.
static bool close_by_digits(double a, double b, double digits) {
    return fabs(a - b) <= digits * fabs(b) + 1e-15;
}

// Splits "key=value"; returns the value.
static char *split(char *word) {
    char *const eq = strchr(word, '=');
    if (eq == NULL)
        fail_msg("not key=value: %s", word);
    *eq = '\0';
    return eq + 1;
}

// ---- update rules ---------------------------------------------------------

typedef struct variable {
    char name[32];
    hk_layout_item item;
    double start[MAX_VALUES], grad[MAX_VALUES];
    int n_start, n_grad;
    bool linear;
    int64_t rows[MAX_VALUES]; // sparse gradient; n_rows -1: none
    float row_values[MAX_VALUES];
    int n_rows;
} variable;

typedef struct scene {
    char name[128];
    hk_optimizer_options options;
    variable var[MAX_VARS];
    int n_vars;
    hk_layout *layout; // made by the first step
    hk_optimizer *opt;
    float *x, *g, *ahead;
    int64_t step;
} scene;

static hk_optimizer_kind kind_by_name(const char *name) {
    for (size_t i = 0; i < COUNT(kinds); i++)
        if (strcmp(kinds[i].name, name) == 0)
            return kinds[i].kind;
    fail_msg("no optimizer %s", name);
    return 0;
}

static void set_option(hk_optimizer_options *o, const char *key, double v) {
    const struct {
        const char *name;
        double *number;
        uint32_t *flag;
    } fields[] = {
        {"learning_rate", &o->learning_rate, NULL},
        {"momentum", &o->momentum, NULL},
        {"epsilon", &o->epsilon, NULL},
        {"rho", &o->rho, NULL},
        {"l1", &o->l1, NULL},
        {"l2", &o->l2, NULL},
        {"l2_shrinkage", &o->l2_shrinkage, NULL},
        {"learning_rate_power", &o->learning_rate_power, NULL},
        {"weight_decay", &o->weight_decay, NULL},
        {"eeta", &o->eeta, NULL},
        {"use_nesterov", NULL, &o->use_nesterov},
        {"lookahead", NULL, &o->lookahead},
        {"centered", NULL, &o->centered},
    };
    if (strcmp(key, "sparse_update") == 0) {
        o->sparse_update = (hk_sparse_update)v;
        return;
    }
    for (size_t i = 0; i < COUNT(fields); i++)
        if (strcmp(fields[i].name, key) == 0) {
            if (fields[i].number != NULL)
                *fields[i].number = v;
            else
                *fields[i].flag = (uint32_t)v;
            return;
        }
    fail_msg("no option %s", key);
}

static variable *find_var(scene *s, const char *name) {
    for (int i = 0; i < s->n_vars; i++)
        if (strcmp(s->var[i].name, name) == 0)
            return &s->var[i];
    fail_msg("%s: no variable %s", s->name, name);
    return NULL;
}

static void add_var(scene *s, const line *l, bool sparse) {
    assert_true(s->n_vars < MAX_VARS && s->opt == NULL);
    variable *const v = &s->var[s->n_vars++];
    memset(v, 0, sizeof *v);
    snprintf(v->name, sizeof v->name, "%s", l->word[1]);
    char *end;
    const int64_t rows = strtoll(l->word[2], &end, 10);
    const int64_t dim = *end == 'x' ? strtoll(end + 1, NULL, 10) : 0;
    v->item = item(v->name, rows, dim, HK_TRAINABLE, sparse);
    v->n_start = values_after(l, "=", 0, v->start);
    v->n_rows = -1;
}

static void start(scene *s) {
    hk_layout_item items[MAX_VARS];
    for (int i = 0; i < s->n_vars; i++)
        items[i] = s->var[i].item;
    s->layout = make_layout(items, (size_t)s->n_vars);
    assert_ok(hk_optimizer_create(&s->options, s->layout, &s->opt));
    s->x = zeroed((size_t)hki_layout_size(s->layout), sizeof(float));
    s->g = zeroed((size_t)hki_layout_size(s->layout), sizeof(float));
    s->ahead = zeroed((size_t)hki_layout_size(s->layout), sizeof(float));
    for (int i = 0; i < s->n_vars; i++) {
        const variable *const v = &s->var[i];
        const hk_entry *const e = hk_layout_find(s->layout, v->name);
        assert_true(v->n_start == 1 || v->n_start == e->count);
        for (int64_t j = 0; j < e->count; j++)
            s->x[e->offset + j] = (float)v->start[v->n_start == 1 ? 0 : j];
    }
}

static void one_step(scene *s) {
    hk_sparse_grad sparse[MAX_VARS];
    size_t n_sparse = 0;
    assert_ok(hk_optimizer_look_ahead(s->opt, s->x, s->ahead));
    for (int i = 0; i < s->n_vars; i++) {
        const variable *const v = &s->var[i];
        const hk_entry *const e = hk_layout_find(s->layout, v->name);
        for (int64_t j = 0; v->n_grad > 0 && j < e->count; j++) {
            const double k = v->grad[v->n_grad == 1 ? 0 : j];
            s->g[e->offset + j] =
                (float)(v->linear ? k * s->ahead[e->offset + j] : k);
        }
        if (v->n_rows >= 0)
            sparse[n_sparse++] =
                (hk_sparse_grad){.entry = e,
                                 .count = v->n_rows,
                                 .dim = e->count / e->shape.dim[0],
                                 .indices = v->rows,
                                 .rows = v->row_values};
    }
    const hk_grad_view view = {
        s->g, hki_layout_dense(s->layout), sparse, n_sparse, 1, NULL};
    assert_ok(hk_optimizer_apply(s->opt, s->x, &view, s->step++, NULL));
}

static void set_rows(scene *s, const line *l) {
    variable *const v = find_var(s, l->word[1]);
    double values[MAX_VALUES];
    const int n = values_after(l, "=", 0, values);
    v->n_rows = 0;
    for (int i = 2; strcmp(l->word[i], "=") != 0; i++)
        v->rows[v->n_rows++] = strtoll(l->word[i], NULL, 10);
    const int64_t dim = v->item.shape.rank == 2 ? v->item.shape.dim[1] : 1;
    for (int64_t i = 0; i < v->n_rows * dim; i++)
        v->row_values[i] = (float)values[n == 1 ? 0 : i];
}

static void compare(const scene *s, const line *l, int lineno, const float *got,
                    int64_t count) {
    const bool is_value = strcmp(l->word[0], "want") == 0;
    double want[MAX_VALUES];
    const int n = values_after(l, "=", 0, want);
    assert_true(n == 1 || n == count);
    for (int64_t i = 0; i < count; i++) {
        const double w = want[n == 1 ? 0 : i];
        if (is_value ? !close_to(got[i], w) : !close_by_digits(got[i], w, 2e-5))
            fail_msg("line %d, %s: %s[%d] is %.9g, not %.9g", lineno, s->name,
                     l->word[1], (int)i, (double)got[i], w);
    }
}

static void compare_state(scene *s, const line *l, int lineno) {
    hk_name_map *map;
    assert_ok(hk_name_map_create(&map));
    assert_ok(hk_optimizer_variables(s->opt, map));
    const hk_named *const item_ = hk_name_map_find(map, l->word[1]);
    assert_non_null(item_);
    compare(s, l, lineno, item_->data, 1);
    hk_name_map_destroy(map);
}

static void finish_scene(scene *s) {
    hk_optimizer_destroy(s->opt);
    hk_layout_release(s->layout);
    free(s->x);
    free(s->g);
    free(s->ahead);
    memset(s, 0, sizeof *s);
}

static void rule_line(scene *s, const line *l, int lineno, hk_isa isa,
                      uint32_t threads) {
    const char *const verb = l->word[0];
    if (strcmp(verb, "case") == 0) {
        finish_scene(s);
        for (int i = 1; i < l->n; i++)
            snprintf(s->name + strlen(s->name),
                     sizeof s->name - strlen(s->name), "%s%s", i > 1 ? " " : "",
                     l->word[i]);
    } else if (strcmp(verb, "opt") == 0) {
        hk_optimizer_options_init(&s->options, sizeof s->options,
                                  kind_by_name(l->word[1]));
        s->options.isa = isa;
        s->options.threads = threads;
        for (int i = 2; i < l->n; i++) {
            char *const value = split(l->word[i]);
            set_option(&s->options, l->word[i], number(value));
        }
    } else if (strcmp(verb, "var") == 0 || strcmp(verb, "table") == 0) {
        add_var(s, l, verb[0] == 't');
    } else if (strcmp(verb, "grad") == 0 || strcmp(verb, "linear") == 0) {
        variable *const v = find_var(s, l->word[1]);
        v->linear = verb[0] == 'l';
        v->n_grad = values_after(l, "=", 0, v->grad);
    } else if (strcmp(verb, "rows") == 0) {
        set_rows(s, l);
    } else if (strcmp(verb, "step") == 0) {
        if (s->opt == NULL)
            start(s);
        for (int i = 0; i < (int)number(l->word[1]); i++)
            one_step(s);
    } else if (strcmp(verb, "want") == 0) {
        const hk_entry *const e = hk_layout_find(s->layout, l->word[1]);
        assert_non_null(e);
        compare(s, l, lineno, s->x + e->offset, e->count);
    } else if (strcmp(verb, "slot") == 0) {
        float *slot;
        assert_ok(hk_optimizer_slot(s->opt, l->word[1], l->word[2], &slot));
        compare(s, l, lineno, slot,
                hk_layout_find(s->layout, l->word[1])->count);
    } else if (strcmp(verb, "state") == 0) {
        compare_state(s, l, lineno);
    } else {
        fail_msg("line %d: %s?", lineno, verb);
    }
}

static FILE *open_data(const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", HK_TEST_DATA, name);
    FILE *const f = fopen(path, "r");
    if (f == NULL)
        fail_msg("cannot read %s", path);
    return f;
}

// Levels above the machine's are refused by create and skipped here.
static bool has_isa(hk_isa isa) {
    const hk_layout_item it = item("w", 4, 0, HK_TRAINABLE, 0);
    hk_layout *const l = make_layout(&it, 1);
    hk_optimizer_options o;
    hk_optimizer *opt = NULL;
    hk_optimizer_options_init(&o, sizeof o, HK_OPT_ADAM);
    o.isa = isa;
    const hk_status s = hk_optimizer_create(&o, l, &opt);
    assert_true(s == HK_OK || s == HK_E_UNSUPPORTED);
    hk_optimizer_destroy(opt);
    hk_layout_release(l);
    return s == HK_OK;
}

static void test_rules(void **state) {
    (void)state;
    static const hk_isa levels[] = {HK_ISA_BASE, HK_ISA_V3, HK_ISA_V4};
    for (size_t i = 0; i < COUNT(levels); i++) {
        if (!has_isa(levels[i]))
            continue;
        FILE *const f = open_data("optim_rules.txt");
        scene *const s = zeroed(1, sizeof *s);
        line l;
        int lineno = 0, cases = 0;
        while (next_line(f, &l, &lineno)) {
            cases += strcmp(l.word[0], "case") == 0;
            rule_line(s, &l, lineno, levels[i], 1 + (uint32_t)i % 2);
        }
        finish_scene(s);
        free(s);
        fclose(f);
        assert_true(cases >= 40);
    }
}

// ---- schedules ------------------------------------------------------------

static const struct {
    const char *name;
    hk_schedule_kind kind;
} schedule_kinds[] = {
    {"constant", HK_SCHEDULE_CONSTANT},
    {"exponential", HK_SCHEDULE_EXPONENTIAL},
    {"piecewise", HK_SCHEDULE_PIECEWISE},
    {"polynomial", HK_SCHEDULE_POLYNOMIAL},
    {"natural_exp", HK_SCHEDULE_NATURAL_EXP},
    {"inverse_time", HK_SCHEDULE_INVERSE_TIME},
    {"cosine", HK_SCHEDULE_COSINE},
    {"cosine_restarts", HK_SCHEDULE_COSINE_RESTARTS},
    {"linear_cosine", HK_SCHEDULE_LINEAR_COSINE},
    {"noisy_linear_cosine", HK_SCHEDULE_NOISY_LINEAR_COSINE},
};

static size_t list_of(char *text, double *out) {
    size_t n = 0;
    char *rest;
    for (char *p = strtok_r(text, ",", &rest); p != NULL;
         p = strtok_r(NULL, ",", &rest))
        out[n++] = number(p);
    return n;
}

static void set_schedule(hk_schedule_options *o, const char *key, double v) {
    const struct {
        const char *name;
        double *number;
        uint32_t *flag;
    } fields[] = {
        {"learning_rate", &o->learning_rate, NULL},
        {"decay_steps", &o->decay_steps, NULL},
        {"decay_rate", &o->decay_rate, NULL},
        {"end_learning_rate", &o->end_learning_rate, NULL},
        {"power", &o->power, NULL},
        {"alpha", &o->alpha, NULL},
        {"beta", &o->beta, NULL},
        {"num_periods", &o->num_periods, NULL},
        {"t_mul", &o->t_mul, NULL},
        {"m_mul", &o->m_mul, NULL},
        {"initial_variance", &o->initial_variance, NULL},
        {"warmup_steps", &o->warmup_steps, NULL},
        {"warmup_start", &o->warmup_start, NULL},
        {"staircase", NULL, &o->staircase},
        {"cycle", NULL, &o->cycle},
        {"warmup_shift", NULL, &o->warmup_shift},
    };
    for (size_t i = 0; i < COUNT(fields); i++)
        if (strcmp(fields[i].name, key) == 0) {
            if (fields[i].number != NULL)
                *fields[i].number = v;
            else
                *fields[i].flag = (uint32_t)v;
            return;
        }
    fail_msg("no schedule option %s", key);
}

// Bytes of a schedule, a schedule of the bytes, and the same bytes again.
static hk_schedule *through_bytes(hk_schedule *s) {
    size_t size, again;
    assert_ok(hk_schedule_save(s, NULL, 0, &size));
    unsigned char *const a = zeroed(size, 1), *const b = zeroed(size, 1);
    assert_ok(hk_schedule_save(s, a, size, &size));
    assert_fails(HK_E_OVERFLOW, hk_schedule_save(s, b, size - 1, &again));
    hk_schedule *copy = NULL;
    assert_ok(hk_schedule_load(a, size, &copy));
    assert_ok(hk_schedule_save(copy, b, size, &again));
    assert_int_equal(size, again);
    assert_memory_equal(a, b, size);
    for (size_t i = 0; i < size; i++) {
        hk_schedule *bad = NULL;
        assert_fails(HK_E_DATA, hk_schedule_load(a, i, &bad));
        b[i] ^= 0x40;
        assert_fails(HK_E_DATA, hk_schedule_load(b, size, &bad));
        b[i] ^= 0x40;
    }
    free(a);
    free(b);
    hk_schedule_release(s);
    return copy;
}

static hk_schedule *make_schedule(const line *l) {
    hk_schedule_options o;
    hk_schedule *s = NULL;
    double boundaries[8], values[8];
    for (size_t i = 0; i < COUNT(schedule_kinds); i++)
        if (strcmp(schedule_kinds[i].name, l->word[1]) == 0)
            hk_schedule_options_init(&o, sizeof o, schedule_kinds[i].kind);
    for (int i = 2; i < l->n; i++) {
        char *const value = split(l->word[i]);
        if (strcmp(l->word[i], "boundaries") == 0) {
            o.n_boundaries = list_of(value, boundaries);
            o.boundaries = boundaries;
        } else if (strcmp(l->word[i], "values") == 0) {
            list_of(value, values);
            o.values = values;
        } else {
            set_schedule(&o, l->word[i], number(value));
        }
    }
    assert_ok(hk_schedule_create(&o, &s));
    assert_ptr_equal(hk_schedule_retain(s), s);
    hk_schedule_release(s); // one of two: it is used below
    return through_bytes(s);
}

static void test_schedules(void **state) {
    (void)state;
    FILE *const f = open_data("schedules.txt");
    hk_schedule *s = NULL;
    line l;
    int lineno = 0;
    while (next_line(f, &l, &lineno)) {
        if (strcmp(l.word[0], "schedule") == 0) {
            hk_schedule_release(s);
            s = make_schedule(&l);
            continue;
        }
        assert_string_equal(l.word[0], "at");
        const double got = hk_schedule_value(s, number(l.word[1]));
        if (!close_by_digits(got, number(l.word[3]), 1e-9))
            fail_msg("line %d: %.10g, not %s", lineno, got, l.word[3]);
    }
    hk_schedule_release(s);
    fclose(f);
}

// ---- averages -------------------------------------------------------------

static void check_value(double got, double want, int lineno) {
    if (!close_to(got, want))
        fail_msg("line %d: %.9g, not %.9g", lineno, got, want);
}

static void assign_line(const line *l, int lineno) {
    double v[3][MAX_VALUES];
    int n = 0;
    for (int i = 0; i < 3; i++)
        n = values_after(l, ":", i, v[i]);
    float var[MAX_VALUES], value[MAX_VALUES], biased[MAX_VALUES] = {0};
    float step = 0;
    for (int i = 0; i < n; i++) {
        var[i] = (float)v[0][i];
        value[i] = (float)v[1][i];
    }
    const bool debias = number(l->word[2]) == 1;
    assert_ok(hk_assign_moving_average(var, value, n, number(l->word[1]),
                                       debias ? biased : NULL,
                                       debias ? &step : NULL));
    for (int i = 0; i < n; i++)
        check_value(var[i], v[2][i], lineno);
}

static void weighted_line(const line *l, int lineno) {
    double v[MAX_VALUES];
    float state[2] = {0};
    for (int i = 0; values_after(l, ":", i, v) == 3; i++) {
        const float value = (float)v[0];
        float average;
        assert_ok(hk_weighted_moving_average(state, &value, (float)v[1], 1,
                                             number(l->word[1]), &average));
        check_value(average, v[2], lineno);
    }
}

// One average of a layout with one variable v that starts at x.
static hk_ema *make_ema(double decay, uint32_t debias, double num_updates,
                        const float *x) {
    const hk_layout_item it = item("v", 1, 0, HK_TRAINABLE, 0);
    hk_layout *const layout = make_layout(&it, 1);
    hk_ema_options o;
    hk_ema *e;
    hk_ema_options_init(&o, sizeof o);
    o.decay = decay;
    o.zero_debias = debias;
    assert_ok(hk_ema_create(&o, layout, x, &e));
    assert_ok(hk_ema_set(e, "num_updates", num_updates));
    hk_layout_release(layout);
    return e;
}

static void tracked_line(const line *l, int lineno) {
    double value[MAX_VALUES], want[MAX_VALUES];
    const float x[16] = {0};
    hk_ema *const e = make_ema(number(l->word[1]), (uint32_t)number(l->word[2]),
                               number(l->word[3]), x);
    const hk_shape scalar = hk_shape_make(0, NULL);
    size_t id;
    assert_ok(hk_ema_track(e, "add", scalar, &id));
    values_after(l, ":", 0, value);
    const int n = values_after(l, ":", 1, want);
    for (int i = 0; i < n; i++) {
        const float v = (float)value[0];
        const float *got;
        assert_ok(hk_ema_update_tracked(e, id, &v, 1));
        assert_ok(hk_ema_average(e, "add", NULL, &got));
        check_value(got[0], want[i], lineno);
    }
    hk_ema_destroy(e);
}

static void variable_line(const line *l, int lineno) {
    double v[3][MAX_VALUES];
    float x[16] = {0};
    values_after(l, ":", 0, v[0]);
    const int n = values_after(l, ":", 1, v[1]);
    values_after(l, ":", 2, v[2]);
    x[0] = (float)v[0][0];
    hk_ema *const e = make_ema(number(l->word[1]), 0, number(l->word[2]), x);
    for (int i = 0; i < n; i++) {
        x[0] = (float)v[1][i];
        assert_ok(hk_ema_update(e, x));
    }
    check_value(ema_info(e).values[0], v[2][0], lineno);
    hk_ema_destroy(e);
}

static void test_averages(void **state) {
    (void)state;
    static const struct {
        const char *verb;
        void (*run)(const line *, int);
    } verbs[] = {{"assign", assign_line},
                 {"weighted", weighted_line},
                 {"tracked", tracked_line},
                 {"variable", variable_line}};
    FILE *const f = open_data("averages.txt");
    line l;
    int lineno = 0, ran = 0;
    while (next_line(f, &l, &lineno))
        for (size_t i = 0; i < COUNT(verbs); i++)
            if (strcmp(verbs[i].verb, l.word[0]) == 0) {
                verbs[i].run(&l, lineno);
                ran++;
            }
    fclose(f);
    assert_int_equal(ran, 13);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_averages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
