// suite_backend.c - builds a case, runs it on two backends, compares outputs,
// loss, gradients and state.
#include "suite_backend.h"

// ---- results ----------------------------------------------------------------

typedef struct tensor_copy {
    char name[96];
    bool exact; // integers: every bit counts
    int64_t count;
    double *values;
} tensor_copy;

typedef struct results {
    tensor_copy *item;
    size_t n;
} results;

static tensor_copy *add_item(results *r, const char *name, int64_t count,
                             bool exact) {
    r->item = realloc(r->item, (r->n + 1) * sizeof *r->item);
    assert_non_null(r->item);
    tensor_copy *t = &r->item[r->n++];
    *t = (tensor_copy){.exact = exact, .count = count};
    snprintf(t->name, sizeof t->name, "%s", name);
    t->values = calloc((size_t)count + 1, sizeof *t->values);
    assert_non_null(t->values);
    return t;
}

static void free_results(results *r) {
    for (size_t i = 0; i < r->n; i++)
        free(r->item[i].values);
    free(r->item);
}

static void add_floats(results *r, const char *name, const float *x,
                       int64_t count) {
    tensor_copy *t = add_item(r, name, count, false);
    for (int64_t i = 0; i < count; i++)
        t->values[i] = (double)x[i];
}

static void add_tensor(results *r, const char *name, const hk_tensor *from) {
    const hk_dtype type = hk_tensor_dtype(from);
    hk_tensor *wide;
    assert_ok(hk_tensor_copy(from, HK_F64, &wide));
    tensor_copy *t =
        add_item(r, name, hk_tensor_count(wide), !hki_dtype_is_float(type));
    memcpy(t->values, hk_tensor_data(wide),
           (size_t)t->count * sizeof *t->values);
    hk_tensor_release(wide);
}

static void add_sparse(results *r, hk_session *s) {
    for (size_t i = 0; i < hki_session_sparse_count(s); i++) {
        hk_sparse_grad g;
        char name[96];
        assert_ok(hk_session_sparse_grad(s, i, &g));
        snprintf(name, sizeof name, "%s rows", g.entry->name);
        tensor_copy *t = add_item(r, name, g.count, true);
        for (int64_t k = 0; k < g.count; k++)
            t->values[k] = (double)g.indices[k];
        snprintf(name, sizeof name, "%s sparse gradient", g.entry->name);
        add_floats(r, name, g.rows, g.count * g.dim);
    }
}

static void add_entries(results *r, hk_session *s) {
    const hk_plan *p = hk_session_plan(s);
    const hk_layout *l = hk_plan_layout(p);
    for (size_t i = 0; i < hki_layout_entry_count(l); i++) {
        const hk_entry *e = hk_layout_entry(l, i);
        char name[96];
        if (e->kind != HK_TRAINABLE) {
            snprintf(name, sizeof name, "state %s", e->name);
            add_floats(r, name, hk_session_params(s) + e->offset, e->count);
        } else if (!e->sparse && hki_plan_has_grad(p, e)) {
            snprintf(name, sizeof name, "gradient of %s", e->name);
            add_floats(r, name, hk_session_grads(s) + e->offset, e->count);
        }
    }
}

// ---- running ----------------------------------------------------------------

static void fill(hk_tensor *t, const bk_input_info *info, uint64_t seed,
                 uint64_t stream) {
    hki_rng r;
    hki_rng_init(&r, seed, stream);
    void *data = hk_tensor_data(t);
    for (int64_t i = 0; i < hk_tensor_count(t); i++) {
        const double normal = hki_rng_normal(&r);
        const double uniform = hki_rng_uniform(&r);
        int64_t whole = (int64_t)(uniform * (double)info->bound);
        switch (info->fill) {
        case BK_NORMAL:
            ((float *)data)[i] = (float)normal;
            break;
        case BK_POSITIVE:
            ((float *)data)[i] = (float)(0.2 + 1.8 * uniform);
            break;
        case BK_COARSE:
            ((float *)data)[i] = (float)(floor(uniform * 5.0) - 2.0);
            break;
        case BK_BOOL:
            ((uint8_t *)data)[i] = uniform < 0.5;
            break;
        case BK_PADDED:
            whole = i % 4 == 3 ? -1 : whole;
            // fall through
        case BK_INDEX:
            if (hk_tensor_dtype(t) == HK_I32)
                ((int32_t *)data)[i] = (int32_t)whole;
            else
                ((int64_t *)data)[i] = whole;
            break;
        }
    }
}

static void collect(const bk_case *c, hk_session *s, results *r) {
    char name[32];
    for (int i = 0; i < c->n_outputs; i++) {
        hk_tensor *t;
        snprintf(name, sizeof name, "out%d", i);
        assert_ok(hk_session_output(s, name, &t));
        add_tensor(r, name, t);
    }
    if (hki_session_grad_count(s) > 0 || hki_session_sparse_count(s) > 0) {
        const float loss = hk_session_loss(s);
        add_floats(r, "loss", &loss, 1);
    }
    add_entries(r, s);
    add_sparse(r, s);
}

// Builds, compiles and runs one case; two runs, so that state moves.
static void run_case(const bk_entry *e, uint64_t seed, const bk_config *config,
                     results *r) {
    hk_context_options co;
    hk_context_options_init(&co, sizeof co);
    co.threads = 2;
    co.isa = config->isa;
    hk_context *ctx;
    assert_ok(hk_context_create(&co, &ctx));
    bk_case c = {0};
    hki_rng_init(&c.rng, seed, 0);
    assert_ok(hk_graph_create(ctx, e->mode, NULL, &c.g));
    c.batch = bk_size(&c, 12);
    e->build(&c);
    assert_ok(hk_graph_status(c.g));

    hk_plan_options po;
    hk_plan_options_init(&po, sizeof po);
    po.batch = c.batch;
    po.threads = config->threads;
    po.no_fusion = config->no_fusion;
    po.backend = config->backend;
    po.precision = config->precision;
    hk_plan *plan;
    assert_ok(hk_plan_create(c.g, &po, &plan));
    hk_session *s;
    assert_ok(hk_session_create(plan, NULL, &s));
    for (int i = 0; i < c.n_inputs; i++) {
        char name[32];
        hk_tensor *t;
        snprintf(name, sizeof name, "in%d", i);
        const hk_status status = hk_session_input(s, name, &t);
        if (status == HK_E_STATE)
            continue; // nothing reads it
        assert_ok(status);
        fill(t, &c.inputs[i], seed, 1 + (uint64_t)i);
    }
    assert_ok(hk_session_run(s));
    assert_ok(hk_session_run(s));
    collect(&c, s, r);
    hk_session_destroy(s);
    hk_plan_release(plan);
    hk_graph_destroy(c.g);
    hk_context_destroy(ctx);
}

// ---- comparing --------------------------------------------------------------

static double largest(const tensor_copy *t) {
    double m = 0.0;
    for (int64_t i = 0; i < t->count; i++)
        if (isfinite(t->values[i]))
            m = HKI_MAX(m, fabs(t->values[i]));
    return m;
}

// Writes the first difference to text, if there is one.
static bool differs(const results *got, const results *expected,
                    const bk_entry *e, char text[256]) {
    for (size_t k = 0; k < got->n; k++) {
        const tensor_copy *a = &got->item[k], *b = &expected->item[k];
        const double size = HKI_MAX(largest(b), e->scale);
        // Below 1e-30 the fast kernels may flush to zero.
        const double room = b->exact ? 0.0 : e->tolerance * size + 1e-30;
        for (int64_t i = 0; i < a->count; i++) {
            if (hk_test_close(a->values[i], b->values[i], room, 0.0))
                continue;
            snprintf(text, 256,
                     "%s: element %lld of %lld is %.9g, expected %.9g "
                     "(largest %.3g)",
                     a->name, (long long)i, (long long)a->count, a->values[i],
                     b->values[i], largest(b));
            return true;
        }
    }
    return false;
}

static bool differs_in_mean(const results *got, const results *expected,
                            const bk_entry *e, double tolerance,
                            char text[256]) {
    for (size_t k = 0; k < got->n; k++) {
        const tensor_copy *a = &got->item[k], *b = &expected->item[k];
        const double size = HKI_MAX(largest(b), e->scale);
        double sum = 0;
        for (int64_t i = 0; i < a->count; i++)
            if (isfinite(b->values[i]))
                sum += pow(a->values[i] - b->values[i], 2);
        const double off = a->count > 0 ? sqrt(sum / (double)a->count) : 0;
        if (b->exact || off <= tolerance * size + 1e-30)
            continue;
        snprintf(text, 256, "%s: off by %.3g in the mean, largest %.3g",
                 a->name, off, largest(b));
        return true;
    }
    return false;
}

static void check_names(const char *where, const results *got,
                        const results *expected) {
    if (got->n != expected->n)
        fail_msg("%s: %zu results, expected %zu", where, got->n, expected->n);
    for (size_t k = 0; k < got->n; k++) {
        const tensor_copy *a = &got->item[k], *b = &expected->item[k];
        if (strcmp(a->name, b->name) != 0 || a->count != b->count)
            fail_msg("%s: %s with %lld elements, expected %s with %lld", where,
                     a->name, (long long)a->count, b->name,
                     (long long)b->count);
    }
}

// HK_TEST_SEED=n in the environment draws other sizes and values.
static uint64_t first_seed(void) {
    const char *text = getenv("HK_TEST_SEED");
    return text != NULL ? strtoull(text, NULL, 10) * UINT64_C(1000000) : 0;
}

// Results do not depend on which thread of a card comes first.
static void run_backwards(const bk_entry *e, uint64_t seed,
                          const bk_config *config, const char *where,
                          const results *expected) {
    const bk_entry exact = {.name = e->name};
    char text[256];
    results got = {0};
    setenv("HK_PLAYED_BACKWARDS", "1", 1);
    run_case(e, seed, config, &got);
    unsetenv("HK_PLAYED_BACKWARDS");
    check_names(where, &got, expected);
    if (differs(&got, expected, &exact, text))
        fail_msg("%s: with threads in the opposite order: %s", where, text);
    free_results(&got);
}

static bool differs_as(hk_precision precision, const results *got,
                       const results *expected, const bk_entry *e,
                       char text[256]) {
    if (precision == HK_PRECISION_TF32)
        return differs_in_mean(got, expected, e, BK_TOL_TF32, text);
    if (precision == HK_PRECISION_BF16 && e->tolerance >= BK_TOL_NET)
        return differs_in_mean(got, expected, e, BK_TOL_BF16, text);
    return differs(got, expected, e, text);
}

static void run_rounds(const bk_entry *e, uint64_t seed,
                       const bk_config *config) {
    const bool bf16 = config->precision == HK_PRECISION_BF16;
    const bk_config plain = {
        .backend = "reference",
        .isa = HK_ISA_BASE,
        .threads = 1,
        .no_fusion = 1,
        .precision = bf16 ? HK_PRECISION_BF16 : HK_PRECISION_DEFAULT,
    };
    int spare = e->spare;
    for (int round = 0; round < e->rounds; round++, seed++) {
        char where[128], text[256];
        results expected = {0}, got = {0};
        snprintf(where, sizeof where, "%s, seed %llu, %s", e->name,
                 (unsigned long long)seed, config->backend);
        if (getenv("HK_TEST_VERBOSE") != NULL)
            print_message("%s\n", where);
        run_case(e, seed, &plain, &expected);
        run_case(e, seed, config, &got);
        check_names(where, &got, &expected);
        if (differs_as(config->precision, &got, &expected, e, text)) {
            if (spare-- == 0)
                fail_msg("%s: %s", where, text);
            print_message("%s: %s: passed over\n", where, text);
        }
        if (config->backwards)
            run_backwards(e, seed, config, where, &got);
        free_results(&expected);
        free_results(&got);
    }
}

// HK_TEST_CASE=name in the environment runs that one only.
void suite_backend(const bk_entry *cases, size_t n, const bk_config *config) {
    const char *const only = getenv("HK_TEST_CASE");
    for (size_t i = 0; i < n; i++)
        if (only == NULL || strcmp(only, cases[i].name) == 0)
            run_rounds(&cases[i], first_seed() + 1000 * (i + 1), config);
}

// ---- for builders -----------------------------------------------------------

int64_t bk_below(bk_case *c, int64_t n) {
    return (int64_t)hki_rng_below(&c->rng, (uint64_t)n);
}

int64_t bk_size1(bk_case *c, int64_t most) {
    switch (bk_below(c, 4)) {
    case 0:
        return 1;
    case 1:
        return most;
    default:
        return 1 + bk_below(c, most);
    }
}

int64_t bk_size(bk_case *c, int64_t most) {
    return bk_below(c, 12) == 0 ? 0 : bk_size1(c, most);
}

static hk_node *add_input(bk_case *c, bk_input_info info, hk_dtype t,
                          hk_shape shape) {
    char name[32];
    assert_true(c->n_inputs < BK_MAX_INPUTS);
    snprintf(name, sizeof name, "in%d", c->n_inputs);
    c->inputs[c->n_inputs++] = info;
    return hk_input(c->g, name, t, shape);
}

hk_node *bk_input(bk_case *c, bk_fill f, hk_shape shape) {
    const bk_input_info info = {.fill = f};
    return add_input(c, info, f == BK_BOOL ? HK_BOOL : HK_F32, shape);
}

hk_node *bk_index_input(bk_case *c, bk_fill f, int64_t bound, hk_dtype t,
                        hk_shape shape) {
    const bk_input_info info = {.fill = f, .bound = bound};
    return add_input(c, info, t, shape);
}

void bk_output(bk_case *c, hk_node *x) {
    char name[32];
    if (x == NULL)
        return;
    snprintf(name, sizeof name, "out%d", c->n_outputs++);
    hk_output(c->g, name, x);
}

void bk_check(bk_case *c, hk_node *y, hk_node *const *xs, size_t n) {
    hk_node *dx[8] = {NULL};
    bk_output(c, y);
    assert_ok(hk_graph_status(c->g));
    assert_true(n <= HKI_COUNT(dx));
    hk_node *dy = bk_input(c, BK_NORMAL, hk_node_shape(y));
    hk_gradients(c->g, &y, &dy, 1, xs, n, dx);
    for (size_t i = 0; i < n; i++)
        bk_output(c, dx[i]);
}
