// test_optim_step.c - properties of a step: threads, sparse rows, pieces,
// masks, fused averages, bytes, bad input, memory.
#include "base/base.h"
#include "optim_util.h"

// ---- a model with gaps, a table and state -----------------------------------

enum { ROWS = 40, DIM = 6, STEPS = 4 };

typedef struct model {
    hk_layout *layout;
    int64_t n, n_dense, n_train;
    float *x, *g;
} model;

// big: enough floats for several threads.
static model make_model(bool big, uint64_t seed) {
    const hk_layout_item items[] = {
        item("dense/kernel", big ? 70001 : 37, big ? 3 : 0, HK_TRAINABLE, 0),
        item("dense/bias", 5, 0, HK_TRAINABLE, 0),
        item("out/kernel", big ? 9 : 3, big ? 7001 : 11, HK_TRAINABLE, 0),
        item("embedding", ROWS, DIM, HK_TRAINABLE, 1),
        item("bn/mean", 3, 0, HK_STATE_AVERAGE, 0),
    };
    model m = {.layout = make_layout(items, COUNT(items))};
    m.n = hki_layout_size(m.layout);
    m.n_dense = hki_layout_dense(m.layout);
    m.n_train = hki_layout_train(m.layout);
    m.x = zeroed((size_t)m.n, sizeof(float));
    m.g = zeroed((size_t)m.n_train, sizeof(float));
    fill(m.layout, m.x, m.n, seed, 1);
    return m;
}

static void free_model(model *m) {
    hk_layout_release(m->layout);
    free(m->x);
    free(m->g);
}

static const int64_t rows_at[] = {3, 17, 0, 39, 18, 4};
static float row_values[COUNT(rows_at) * DIM];

static hk_sparse_grad rows_of(const model *m, uint64_t seed) {
    for (size_t i = 0; i < COUNT(row_values); i++)
        row_values[i] = noise(&seed);
    return (hk_sparse_grad){.entry = hk_layout_find(m->layout, "embedding"),
                            .count = COUNT(rows_at),
                            .dim = DIM,
                            .indices = rows_at,
                            .rows = row_values};
}

// One step with gradients that depend on the step alone.
static void take_step(const model *m, hk_optimizer *o, int step, hk_ema *e) {
    fill(m->layout, m->g, m->n_dense, 100 + (uint64_t)step, 0.1f);
    const hk_sparse_grad rows = rows_of(m, 7 + (uint64_t)step);
    const hk_grad_view v = {m->g, m->n_dense, &rows, 1, 0.5, NULL};
    assert_ok(hk_optimizer_apply(o, m->x, &v, step, e));
}

static void assert_same(const float *a, const float *b, int64_t n,
                        const char *what) {
    if (memcmp(a, b, (size_t)n * sizeof *a) != 0)
        fail_msg("%s: bits differ", what);
}

static void assert_finite(const float *x, int64_t n, const char *what) {
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            fail_msg("%s: [%lld] is %g", what, (long long)i, (double)x[i]);
}

// The bytes of an optimizer; the caller frees.
static unsigned char *bytes_of(const hk_optimizer *o, size_t *size) {
    assert_ok(hk_optimizer_save(o, NULL, 0, size));
    unsigned char *const b = zeroed(*size, 1);
    assert_ok(hk_optimizer_save(o, b, *size, size));
    return b;
}

static void assert_same_state(const hk_optimizer *a, const hk_optimizer *b,
                              const char *what) {
    size_t n, m;
    unsigned char *const p = bytes_of(a, &n), *const q = bytes_of(b, &m);
    if (n != m || memcmp(p, q, n) != 0)
        fail_msg("%s: states differ", what);
    free(p);
    free(q);
}

// ---- threads --------------------------------------------------------------

static void test_threads(void **state) {
    (void)state;
    for (size_t k = 0; k < COUNT(kinds); k++) {
        model one = make_model(true, 1);
        hk_optimizer *const a = make_optimizer(kinds[k].kind, one.layout, 1);
        for (int s = 0; s < STEPS; s++)
            take_step(&one, a, s, NULL);
        assert_finite(one.x, one.n, kinds[k].name);
        for (uint32_t threads = 2; threads < 5; threads++) {
            model many = make_model(true, 1);
            hk_optimizer *const b =
                make_optimizer(kinds[k].kind, many.layout, threads);
            for (int s = 0; s < STEPS; s++)
                take_step(&many, b, s, NULL);
            assert_same(one.x, many.x, one.n, kinds[k].name);
            assert_same_state(a, b, kinds[k].name);
            hk_optimizer_destroy(b);
            free_model(&many);
        }
        hk_optimizer_destroy(a);
        free_model(&one);
    }
}

// ---- gaps -----------------------------------------------------------------

static void assert_gaps_zero(const model *m, const char *what) {
    unsigned char *const used = zeroed((size_t)m->n, 1);
    const hk_entry *e;
    for (size_t i = 0; (e = hk_layout_entry(m->layout, i)) != NULL; i++)
        memset(used + e->offset, 1, (size_t)e->count);
    const float zero = 0;
    for (int64_t i = 0; i < m->n; i++)
        if (!used[i] && memcmp(&m->x[i], &zero, sizeof zero) != 0)
            fail_msg("%s: gap at %lld is %g", what, (long long)i,
                     (double)m->x[i]);
    free(used);
}

static void test_gaps_stay_zero(void **state) {
    (void)state;
    for (size_t k = 0; k < COUNT(kinds); k++)
        for (int zero_epsilon = 0; zero_epsilon < 2; zero_epsilon++) {
            model m = make_model(false, 2);
            hk_optimizer *const o = make_optimizer(kinds[k].kind, m.layout, 1);
            if (zero_epsilon &&
                hk_optimizer_set(o, "epsilon", 0) == HK_E_NOT_FOUND) {
                hk_optimizer_destroy(o);
                free_model(&m);
                continue;
            }
            for (int s = 0; s < STEPS; s++)
                take_step(&m, o, s, NULL);
            assert_gaps_zero(&m, kinds[k].name);
            hk_optimizer_destroy(o);
            free_model(&m);
        }
}

// ---- sparse gradients -----------------------------------------------------

static hk_optimizer *with_sparse(hk_optimizer_kind kind, hk_layout *l,
                                 hk_sparse_update update) {
    hk_optimizer_options o;
    hk_optimizer *opt = NULL;
    hk_optimizer_options_init(&o, sizeof o, kind);
    o.sparse_update = update;
    o.threads = 2;
    const hk_status s = hk_optimizer_create(&o, l, &opt);
    assert_true(s == HK_OK || s == HK_E_UNSUPPORTED);
    return opt;
}

// ALL_ROWS is the dense update with zeros in the other rows.
static void test_all_rows_is_dense(void **state) {
    (void)state;
    for (size_t k = 0; k < COUNT(kinds); k++) {
        model a = make_model(false, 3), b = make_model(false, 3);
        hk_optimizer *const sparse =
            with_sparse(kinds[k].kind, a.layout, HK_SPARSE_ALL_ROWS);
        hk_optimizer *const dense = make_optimizer(kinds[k].kind, b.layout, 1);
        for (int s = 0; sparse != NULL && s < STEPS; s++) {
            take_step(&a, sparse, s, NULL);
            fill(b.layout, b.g, b.n_dense, 100 + (uint64_t)s, 0.1f);
            const hk_sparse_grad r = rows_of(&b, 7 + (uint64_t)s);
            memset(b.g + r.entry->offset, 0,
                   (size_t)r.entry->count * sizeof *b.g);
            for (int64_t i = 0; i < r.count; i++)
                memcpy(b.g + r.entry->offset + r.indices[i] * DIM,
                       r.rows + i * DIM, DIM * sizeof *b.g);
            const hk_grad_view v = {b.g, b.n_train, NULL, 0, 0.5, NULL};
            assert_ok(hk_optimizer_apply(dense, b.x, &v, s, NULL));
            assert_same(a.x, b.x, a.n, kinds[k].name);
        }
        hk_optimizer_destroy(sparse);
        hk_optimizer_destroy(dense);
        free_model(&a);
        free_model(&b);
    }
}

static bool touched(int64_t row) {
    for (size_t i = 0; i < COUNT(rows_at); i++)
        if (rows_at[i] == row)
            return true;
    return false;
}

static void test_touched_rows_only(void **state) {
    (void)state;
    for (size_t k = 0; k < COUNT(kinds); k++) {
        model m = make_model(false, 4);
        hk_optimizer *const o =
            with_sparse(kinds[k].kind, m.layout, HK_SPARSE_TOUCHED_ROWS);
        const hk_entry *const e = hk_layout_find(m.layout, "embedding");
        float before[ROWS * DIM];
        memcpy(before, m.x + e->offset, sizeof before);
        for (int s = 0; s < STEPS; s++)
            take_step(&m, o, s, NULL);
        for (int64_t r = 0; r < ROWS; r++) {
            const bool same =
                memcmp(before + r * DIM, m.x + e->offset + r * DIM,
                       DIM * sizeof *before) == 0;
            if (same == touched(r))
                fail_msg("%s: row %lld", kinds[k].name, (long long)r);
        }
        hk_optimizer_destroy(o);
        free_model(&m);
    }
}

// Repeated indices equal their sum, for every kind.
static void test_repeated_indices(void **state) {
    (void)state;
    const int64_t twice[] = {5, 9, 5, 5}, once[] = {5, 9};
    float many[4 * DIM], sum[2 * DIM];
    for (int j = 0; j < DIM; j++) {
        // Powers of two: the sum is exact in any order.
        many[j] = 0.5f, many[DIM + j] = -0.25f;
        many[2 * DIM + j] = 0.125f, many[3 * DIM + j] = -1;
        sum[j] = -0.375f, sum[DIM + j] = -0.25f;
    }
    for (size_t k = 0; k < COUNT(kinds); k++) {
        model a = make_model(false, 5), b = make_model(false, 5);
        const hk_entry *const e = hk_layout_find(a.layout, "embedding");
        hk_optimizer *const o = make_optimizer(kinds[k].kind, a.layout, 1);
        hk_optimizer *const p = make_optimizer(kinds[k].kind, b.layout, 1);
        for (int s = 0; s < STEPS; s++) {
            const hk_sparse_grad g = {e, 4, DIM, twice, many, 0, 0};
            const hk_sparse_grad h = {e, 2, DIM, once, sum, 0, 0};
            assert_ok(hk_optimizer_apply(
                o, a.x, &(hk_grad_view){NULL, 0, &g, 1, 1, NULL}, s, NULL));
            assert_ok(hk_optimizer_apply(
                p, b.x, &(hk_grad_view){NULL, 0, &h, 1, 1, NULL}, s, NULL));
        }
        assert_same(a.x, b.x, a.n, kinds[k].name);
        hk_optimizer_destroy(o);
        hk_optimizer_destroy(p);
        free_model(&a);
        free_model(&b);
    }
}

// ---- pieces, masks, averages ----------------------------------------------

static void test_pieces(void **state) {
    (void)state;
    for (size_t k = 0; k < COUNT(kinds); k++) {
        model a = make_model(false, 6), b = make_model(false, 6);
        hk_optimizer *const o = make_optimizer(kinds[k].kind, a.layout, 1);
        hk_optimizer *const p = make_optimizer(kinds[k].kind, b.layout, 2);
        for (int s = 0; s < STEPS; s++) {
            take_step(&a, o, s, NULL);
            fill(b.layout, b.g, b.n_dense, 100 + (uint64_t)s, 0.1f);
            const hk_sparse_grad r = rows_of(&b, 7 + (uint64_t)s);
            assert_ok(hk_optimizer_begin(p, s));
            assert_ok(hk_optimizer_apply_sparse(p, b.x, &r, 0.5));
            for (size_t i = 3; i-- > 0;) {
                const hk_entry *const e = hk_layout_entry(b.layout, i);
                assert_ok(hk_optimizer_apply_range(p, b.x, b.g, e->offset,
                                                   e->offset + e->count, 0.5));
            }
            assert_ok(hk_optimizer_end(p));
        }
        assert_same(a.x, b.x, a.n, kinds[k].name);
        hk_optimizer_destroy(o);
        hk_optimizer_destroy(p);
        free_model(&a);
        free_model(&b);
    }
}

static void test_mask(void **state) {
    (void)state;
    for (size_t k = 0; k < COUNT(kinds); k++) {
        model m = make_model(false, 8), all = make_model(false, 8);
        hk_optimizer *const o = make_optimizer(kinds[k].kind, m.layout, 1);
        hk_optimizer *const p = make_optimizer(kinds[k].kind, all.layout, 1);
        const unsigned char mask[] = {1, 0, 1, 0, 0};
        assert_ok(hk_optimizer_select(o, mask));
        take_step(&m, o, 0, NULL);
        take_step(&all, p, 0, NULL);
        model start = make_model(false, 8);
        for (size_t i = 0; i < 4; i++) {
            const hk_entry *const e = hk_layout_entry(m.layout, i);
            assert_same(m.x + e->offset,
                        (mask[i] ? all.x : start.x) + e->offset, e->count,
                        e->name);
        }
        hk_optimizer_destroy(o);
        hk_optimizer_destroy(p);
        free_model(&start);
        free_model(&m);
        free_model(&all);
    }
}

static hk_ema *make_average(const model *m, hk_average_method method,
                            uint32_t threads) {
    hk_ema_options o;
    hk_ema *e;
    hk_ema_options_init(&o, sizeof o);
    o.decay = 0.9;
    o.method = method;
    o.threads = threads;
    assert_ok(hk_ema_create(&o, m->layout, m->x, &e));
    return e;
}

static void test_fused_average(void **state) {
    (void)state;
    for (size_t k = 0; k < COUNT(kinds); k++)
        for (int method = HK_AVERAGE_EXPONENTIAL; method <= HK_AVERAGE_UNIFORM;
             method++) {
            model a = make_model(true, 9), b = make_model(true, 9);
            hk_optimizer *const o = make_optimizer(kinds[k].kind, a.layout, 2);
            hk_optimizer *const p = make_optimizer(kinds[k].kind, b.layout, 1);
            hk_ema *const e = make_average(&a, (hk_average_method)method, 2);
            hk_ema *const f = make_average(&b, (hk_average_method)method, 1);
            for (int s = 0; s < STEPS; s++) {
                take_step(&a, o, s, e);
                take_step(&b, p, s, NULL);
                assert_ok(hk_ema_update(f, b.x));
            }
            assert_same(a.x, b.x, a.n, kinds[k].name);
            assert_same(ema_info(e).values, ema_info(f).values, a.n,
                        kinds[k].name);
            assert_int_equal(ema_info(e).updates, STEPS);
            hk_ema_destroy(e);
            hk_ema_destroy(f);
            hk_optimizer_destroy(o);
            hk_optimizer_destroy(p);
            free_model(&a);
            free_model(&b);
        }
}

// ---- rules without a TF table, against double arithmetic ------------------

typedef struct oracle {
    double x, m, v, top, p1, p2;
} oracle;

static void oracle_step(hk_optimizer_kind kind, oracle *s, double g) {
    const double lr = 0.01, wd = 0.1, eps = 1e-3;
    if (kind == HK_OPT_LION) {
        const double c = 0.9 * s->m + 0.1 * g;
        s->x -= lr * ((c > 0) - (c < 0) + wd * s->x);
        s->m = 0.99 * s->m + 0.01 * g;
        return;
    }
    s->m = 0.9 * s->m + 0.1 * g;
    s->v = 0.999 * s->v + 0.001 * g * g;
    s->top = fmax(s->top, s->v);
    s->p1 *= 0.9;
    s->p2 *= 0.999;
    const double mhat = s->m / (1 - s->p1);
    if (kind == HK_OPT_ADAMW)
        s->x = s->x * (1 - lr * wd) -
               lr * mhat * sqrt(1 - s->p2) / (sqrt(s->v) + eps);
    if (kind == HK_OPT_AMSGRAD)
        s->x -= lr * mhat * sqrt(1 - s->p2) / (sqrt(s->top) + eps);
    if (kind == HK_OPT_ADAM) // epsilon as in the paper
        s->x -= lr * mhat / (sqrt(s->v / (1 - s->p2)) + eps);
    if (kind == HK_OPT_LAMB) { // one element: the trust ratio is |x| / |u|
        const double u = mhat / (sqrt(s->v / (1 - s->p2)) + eps) + wd * s->x;
        s->x -= lr * fabs(s->x) / fabs(u) * u;
    }
}

static void test_oracles(void **state) {
    (void)state;
    static const hk_optimizer_kind own[] = {
        HK_OPT_ADAMW, HK_OPT_AMSGRAD, HK_OPT_ADAM, HK_OPT_LAMB, HK_OPT_LION};
    const hk_layout_item it = item("w", 1, 0, HK_TRAINABLE, 0);
    hk_layout *const l = make_layout(&it, 1);
    for (size_t k = 0; k < COUNT(own); k++) {
        hk_optimizer_options o;
        hk_optimizer *opt;
        hk_optimizer_options_init(&o, sizeof o, own[k]);
        o.learning_rate = 0.01;
        o.epsilon = 1e-3;
        o.weight_decay = 0.1;
        o.paper_epsilon = own[k] == HK_OPT_ADAM;
        assert_ok(hk_optimizer_create(&o, l, &opt));
        float x[16] = {1.5f}, g[16] = {0};
        oracle s = {.x = 1.5, .p1 = 1, .p2 = 1};
        uint64_t seed = 12;
        for (int i = 0; i < 20; i++) {
            g[0] = noise(&seed);
            oracle_step(own[k], &s, g[0]);
            const hk_grad_view v = {g, 16, NULL, 0, 1, NULL};
            assert_ok(hk_optimizer_apply(opt, x, &v, i, NULL));
        }
        // Twenty float steps of 0.01 against doubles.
        if (fabs(x[0] - s.x) > 2e-6)
            fail_msg("kind %d: %.9g, not %.9g", (int)own[k], (double)x[0], s.x);
        hk_optimizer_destroy(opt);
    }
    hk_layout_release(l);
}

static void test_skip_list(void **state) {
    (void)state;
    const char *const skip[] = {"bias"};
    static const hk_optimizer_kind own[] = {HK_OPT_ADAMW, HK_OPT_LAMB,
                                            HK_OPT_LION, HK_OPT_LARS};
    for (size_t k = 0; k < COUNT(own); k++) {
        model a = make_model(false, 10), b = make_model(false, 10);
        hk_optimizer_options o;
        hk_optimizer *p, *q;
        hk_optimizer_options_init(&o, sizeof o, own[k]);
        o.weight_decay = 0.5;
        assert_ok(hk_optimizer_create(&o, a.layout, &p));
        o.skip_list = skip;
        o.n_skip = 1;
        assert_ok(hk_optimizer_create(&o, b.layout, &q));
        take_step(&a, p, 0, NULL);
        take_step(&b, q, 0, NULL);
        for (size_t i = 0; i < 4; i++) {
            const hk_entry *const e = hk_layout_entry(a.layout, i);
            const bool same = memcmp(a.x + e->offset, b.x + e->offset,
                                     (size_t)e->count * sizeof *a.x) == 0;
            assert_int_equal(same, strstr(e->name, "bias") == NULL);
        }
        hk_optimizer_destroy(p);
        hk_optimizer_destroy(q);
        free_model(&a);
        free_model(&b);
    }
}

// ---- rates ----------------------------------------------------------------

static void test_rates(void **state) {
    (void)state;
    hk_schedule_options so;
    hk_schedule *s;
    hk_schedule_options_init(&so, sizeof so, HK_SCHEDULE_EXPONENTIAL);
    so.learning_rate = 1;
    so.decay_steps = 1;
    so.decay_rate = 0.5;
    assert_ok(hk_schedule_create(&so, &s));
    const hk_layout_item it = item("w", 1, 0, HK_TRAINABLE, 0);
    hk_layout *const l = make_layout(&it, 1);
    hk_optimizer_options o;
    hk_optimizer *opt;
    hk_optimizer_options_init(&o, sizeof o, HK_OPT_GRADIENT_DESCENT);
    o.schedule = s;
    o.learning_rate_name = "lr";
    assert_ok(hk_optimizer_create(&o, l, &opt));
    hk_schedule_release(s); // the optimizer holds it
    float x[16] = {0}, g[16] = {-1};
    const hk_grad_view v = {g, 16, NULL, 0, 1, NULL};
    assert_ok(hk_optimizer_apply(opt, x, &v, 0, NULL));
    assert_ok(hk_optimizer_apply(opt, x, &v, 1, NULL));
    assert_true(x[0] == 1.5f);
    assert_true(hk_optimizer_rate(opt, 3) == 0.125);
    assert_fails(HK_E_STATE, hk_optimizer_set(opt, "lr", 2));
    assert_ok(hk_optimizer_set_schedule(opt, NULL));
    assert_ok(hk_optimizer_set(opt, "lr", 2));
    double rate;
    assert_ok(hk_optimizer_get(opt, "learning_rate", &rate));
    assert_true(rate == 2);
    assert_ok(hk_optimizer_apply(opt, x, &v, 2, NULL));
    assert_true(x[0] == 3.5f);
    assert_fails(HK_E_NOT_FOUND, hk_optimizer_set(opt, "momentum", 0.5));
    assert_fails(HK_E_INVALID_ARG, hk_optimizer_set(opt, "lr", -1));
    hk_optimizer_destroy(opt);
    hk_layout_release(l);
}

static void test_noisy_schedule(void **state) {
    (void)state;
    hk_schedule_options so;
    hk_schedule *a, *b, *c;
    hk_schedule_options_init(&so, sizeof so, HK_SCHEDULE_NOISY_LINEAR_COSINE);
    so.learning_rate = 1;
    so.decay_steps = 1000;
    so.seed = 5;
    assert_ok(hk_schedule_create(&so, &a));
    assert_ok(hk_schedule_create(&so, &b));
    so.seed = 6;
    assert_ok(hk_schedule_create(&so, &c));
    double sum = 0, squares = 0;
    int differ = 0;
    for (int i = 0; i < 900; i++) {
        const double v = hk_schedule_value(a, i);
        assert_true(v == hk_schedule_value(b, i));
        differ += v != hk_schedule_value(c, i);
        // The noise itself, normalised.
        const double wave = 0.5 * (1 + cos(3.14159265358979 * i / 1000));
        const double e =
            ((v - 0.001) / wave - (1000 - i) / 1000.0) * sqrt(pow(1 + i, 0.55));
        sum += e;
        squares += e * e;
    }
    assert_true(differ > 890);
    assert_true(fabs(sum / 900) < 0.15);
    assert_true(fabs(squares / 900 - 1) < 0.2);
    hk_schedule_release(a);
    hk_schedule_release(b);
    hk_schedule_release(c);
}

// ---- names ----------------------------------------------------------------

static void test_names(void **state) {
    (void)state;
    static const struct {
        hk_optimizer_kind kind;
        uint32_t centered;
        const char *name, *slots; // sorted
        const char *variables;    // of dense/bias, in creation order
    } cases[] = {
        {HK_OPT_GRADIENT_DESCENT, 0, "GradientDescent", "", ""},
        {HK_OPT_MOMENTUM, 0, "Momentum", "momentum ", "Momentum "},
        {HK_OPT_ADAGRAD, 0, "Adagrad", "accumulator ", "Adagrad "},
        {HK_OPT_ADAGRAD_DA, 0, "AdagradDA",
         "gradient_accumulator gradient_squared_accumulator ",
         "AdagradDA AdagradDA_1 "},
        {HK_OPT_ADADELTA, 0, "Adadelta", "accum accum_update ",
         "Adadelta Adadelta_1 "},
        {HK_OPT_ADAM, 0, "Adam", "m v ", "Adam Adam_1 "},
        {HK_OPT_LAZY_ADAM, 0, "Adam", "m v ", "Adam Adam_1 "},
        {HK_OPT_AMSGRAD, 0, "AMSGrad", "m v vhat ",
         "AMSGrad AMSGrad_1 AMSGrad_2 "},
        {HK_OPT_RMSPROP, 0, "RMSProp", "momentum rms ", "RMSProp RMSProp_1 "},
        {HK_OPT_RMSPROP, 1, "RMSProp", "mg momentum rms ",
         "RMSProp RMSProp_1 RMSProp_2 "},
        {HK_OPT_FTRL, 0, "Ftrl", "accum linear ", "Ftrl Ftrl_1 "},
        {HK_OPT_LARS, 0, "LARSOptimizer", "momentum ", "LARSOptimizer "},
    };
    model m = make_model(false, 11);
    for (size_t k = 0; k < COUNT(cases); k++) {
        hk_optimizer_options o;
        hk_optimizer *opt;
        hk_optimizer_options_init(&o, sizeof o, cases[k].kind);
        o.centered = cases[k].centered;
        assert_ok(hk_optimizer_create(&o, m.layout, &opt));
        hk_optimizer_info info;
        assert_ok(hk_optimizer_get_info(opt, &info));
        assert_string_equal(info.name, cases[k].name);
        assert_int_equal(info.kind, cases[k].kind);
        char text[256] = "";
        for (size_t i = 0; i < info.slot_count; i++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s ",
                     info.slots[i]);
        assert_string_equal(text, cases[k].slots);
        hk_name_map *map;
        assert_ok(hk_name_map_create(&map));
        assert_ok(hk_optimizer_variables(opt, map));
        text[0] = '\0';
        for (size_t i = 0; hk_name_map_item(map, i) != NULL; i++) {
            const char *const name = hk_name_map_item(map, i)->name;
            if (strncmp(name, "dense/bias/", 11) == 0)
                snprintf(text + strlen(text), sizeof text - strlen(text), "%s ",
                         name + 11);
        }
        assert_string_equal(text, cases[k].variables);
        const bool adam = strncmp(cases[k].slots, "m v", 3) == 0;
        assert_int_equal(hk_name_map_find(map, "beta1_power") != NULL, adam);
        hk_name_map_destroy(map);
        hk_optimizer_destroy(opt);
    }
    hk_optimizer *const rms = make_optimizer(HK_OPT_RMSPROP, m.layout, 1);
    float *slot;
    assert_ok(hk_optimizer_slot(rms, "embedding", "rms", &slot));
    assert_true(slot[0] == 1);
    assert_fails(HK_E_NOT_FOUND, hk_optimizer_slot(rms, "nope", "rms", &slot));
    assert_fails(HK_E_NOT_FOUND,
                 hk_optimizer_slot(rms, "bn/mean", "rms", &slot));
    assert_fails(HK_E_NOT_FOUND,
                 hk_optimizer_slot(rms, "embedding", "mg", &slot));
    hk_optimizer_destroy(rms);
    free_model(&m);
}

// ---- bytes ----------------------------------------------------------------

// Two steps, bytes, restore into a fresh optimizer, two steps: the same bits
// as four steps. Damaged bytes are refused and change nothing.
static void test_bytes(void **state) {
    (void)state;
    hk_schedule_options so;
    hk_schedule *s;
    hk_schedule_options_init(&so, sizeof so, HK_SCHEDULE_COSINE);
    assert_ok(hk_schedule_create(&so, &s));
    for (size_t k = 0; k < COUNT(kinds); k++) {
        model a = make_model(false, 13), b = make_model(false, 13);
        hk_optimizer_options oo;
        hk_optimizer *o, *p;
        hk_optimizer_options_init(&oo, sizeof oo, kinds[k].kind);
        oo.schedule = k % 2 ? s : NULL;
        assert_ok(hk_optimizer_create(&oo, a.layout, &o));
        oo.schedule = NULL;
        oo.learning_rate = 0.5; // replaced by the saved one
        assert_ok(hk_optimizer_create(&oo, b.layout, &p));
        take_step(&a, o, 0, NULL);
        take_step(&a, o, 1, NULL);
        memcpy(b.x, a.x, (size_t)a.n * sizeof *a.x);
        size_t size;
        unsigned char *const bytes = bytes_of(o, &size);
        for (size_t i = 0; i < size; i += 1 + size / 97) {
            assert_fails(HK_E_DATA, hk_optimizer_restore(p, bytes, i));
            bytes[i] ^= 1;
            assert_fails(HK_E_DATA, hk_optimizer_restore(p, bytes, size));
            bytes[i] ^= 1;
        }
        hk_optimizer *const fresh = make_optimizer(kinds[k].kind, b.layout, 1);
        assert_ok(hk_optimizer_set(fresh, "learning_rate", 0.5));
        assert_same_state(fresh, p, kinds[k].name);
        hk_optimizer_destroy(fresh);
        assert_ok(hk_optimizer_restore(p, bytes, size));
        assert_same_state(o, p, kinds[k].name);
        for (int i = 2; i < STEPS; i++) {
            take_step(&a, o, i, NULL);
            take_step(&b, p, i, NULL);
        }
        assert_same(a.x, b.x, a.n, kinds[k].name);
        assert_same_state(o, p, kinds[k].name);
        // Another kind refuses the bytes.
        hk_optimizer *const other =
            make_optimizer(kinds[(k + 1) % COUNT(kinds)].kind, b.layout, 1);
        assert_fails(HK_E_DATA, hk_optimizer_restore(other, bytes, size));
        hk_optimizer_destroy(other);
        free(bytes);
        hk_optimizer_destroy(o);
        hk_optimizer_destroy(p);
        free_model(&a);
        free_model(&b);
    }
    hk_schedule_release(s);
}

// ---- bad input ------------------------------------------------------------

static void test_bad_options(void **state) {
    (void)state;
    const double nan = (double)NAN, inf = (double)INFINITY;
    static const struct {
        hk_optimizer_kind kind;
        size_t field;
        double value;
    } cases[] = {
#define BAD(kind, field, value)                                                \
    {kind, offsetof(hk_optimizer_options, field), value}
        BAD(HK_OPT_GRADIENT_DESCENT, learning_rate, -1),
        BAD(HK_OPT_MOMENTUM, momentum, -0.1),
        BAD(HK_OPT_ADAM, beta1, 1),
        BAD(HK_OPT_ADAM, beta1, -0.1),
        BAD(HK_OPT_ADAM, beta2, 1.5),
        BAD(HK_OPT_ADAM, epsilon, -1e-8),
        BAD(HK_OPT_ADAMW, weight_decay, -1),
        BAD(HK_OPT_ADAGRAD, initial_accumulator, 0),
        BAD(HK_OPT_ADAGRAD_DA, initial_accumulator, -1),
        BAD(HK_OPT_PROXIMAL_ADAGRAD, initial_accumulator, 0),
        BAD(HK_OPT_PROXIMAL_ADAGRAD, learning_rate, 0),
        BAD(HK_OPT_PROXIMAL_GRADIENT_DESCENT, l1, -1),
        BAD(HK_OPT_FTRL, initial_accumulator, -0.1),
        BAD(HK_OPT_FTRL, learning_rate, 0),
        BAD(HK_OPT_FTRL, learning_rate_power, 0.5),
        BAD(HK_OPT_FTRL, l1, -1),
        BAD(HK_OPT_FTRL, l2, -1),
        BAD(HK_OPT_FTRL, l2_shrinkage, -1),
        BAD(HK_OPT_RMSPROP, rho, 1.1),
        BAD(HK_OPT_ADADELTA, rho, -0.1),
        BAD(HK_OPT_LARS, momentum, -1),
        BAD(HK_OPT_LARS, weight_decay, -1),
        BAD(HK_OPT_LAMB, weight_decay, -1),
        BAD(HK_OPT_LION, beta2, 1),
#undef BAD
    };
    const hk_layout_item it = item("w", 4, 0, HK_TRAINABLE, 0);
    hk_layout *const l = make_layout(&it, 1);
    hk_optimizer *opt = NULL;
    hk_optimizer_options o;
    for (size_t i = 0; i < COUNT(cases); i++) {
        hk_optimizer_options_init(&o, sizeof o, cases[i].kind);
        const double values[] = {cases[i].value, nan, inf};
        for (size_t j = 0; j < COUNT(values); j++) {
            memcpy((char *)&o + cases[i].field, &values[j], sizeof(double));
            assert_fails(j == 0 ? HK_E_INVALID_ARG : HK_E_NOT_FINITE,
                         hk_optimizer_create(&o, l, &opt));
        }
    }
    hk_optimizer_options_init(&o, sizeof o, (hk_optimizer_kind)99);
    assert_fails(HK_E_INVALID_ARG, hk_optimizer_create(&o, l, &opt));
    hk_optimizer_options_init(&o, sizeof o, HK_OPT_MOMENTUM);
    o.use_nesterov = 2;
    assert_fails(HK_E_INVALID_ARG, hk_optimizer_create(&o, l, &opt));
    hk_optimizer_options_init(&o, sizeof o, HK_OPT_MOMENTUM);
    o.name = "";
    assert_fails(HK_E_INVALID_ARG, hk_optimizer_create(&o, l, &opt));
    hk_optimizer_options_init(&o, sizeof o, HK_OPT_LARS);
    o.sparse_update = HK_SPARSE_ALL_ROWS;
    assert_fails(HK_E_UNSUPPORTED, hk_optimizer_create(&o, l, &opt));
    o.sparse_update = (hk_sparse_update)7;
    assert_fails(HK_E_INVALID_ARG, hk_optimizer_create(&o, l, &opt));
    assert_fails(HK_E_INVALID_ARG, hk_optimizer_create(NULL, l, &opt));
    assert_null(opt);
    hk_layout_release(l);
}

static void test_bad_steps(void **state) {
    (void)state;
    model m = make_model(false, 14), same = make_model(false, 14);
    hk_optimizer *const o = make_optimizer(HK_OPT_ADAM, m.layout, 1);
    const hk_entry *const table = hk_layout_find(m.layout, "embedding");
    const hk_entry *const bias = hk_layout_find(m.layout, "dense/bias");
    const int64_t high[] = {0, ROWS}, low[] = {-1, 0}, good[] = {0, 1};
    float rows[2 * DIM] = {0};
    fill(m.layout, m.g, m.n_dense, 3, 1);
    const struct {
        hk_sparse_grad g;
        hk_status status;
    } sparse[] = {
        {{table, 2, DIM, high, rows, 0, 0}, HK_E_RANGE},
        {{table, 2, DIM, low, rows, 0, 0}, HK_E_RANGE},
        {{table, 2, DIM + 1, good, rows, 0, 0}, HK_E_SHAPE},
        {{table, -1, DIM, good, rows, 0, 0}, HK_E_INVALID_ARG},
        {{table, 2, DIM, NULL, rows, 0, 0}, HK_E_INVALID_ARG},
        {{table, 2, DIM, good, NULL, 0, 0}, HK_E_INVALID_ARG},
        {{bias, 2, 1, good, rows, 0, 0}, HK_E_NOT_FOUND},
        {{NULL, 2, DIM, good, rows, 0, 0}, HK_E_INVALID_ARG},
    };
    for (size_t i = 0; i < COUNT(sparse); i++) {
        const hk_grad_view v = {m.g, m.n_dense, &sparse[i].g, 1, 1, NULL};
        assert_fails(sparse[i].status, hk_optimizer_apply(o, m.x, &v, 0, NULL));
    }
    const hk_sparse_grad two[] = {{table, 1, DIM, good, rows, 0, 0},
                                  {table, 1, DIM, good, rows, 0, 0}};
    const struct {
        hk_grad_view v;
        hk_status status;
    } views[] = {
        {{m.g, m.n_dense, two, 2, 1, NULL}, HK_E_EXISTS},
        {{m.g, m.n_dense + 1, NULL, 0, 1, NULL}, HK_E_SHAPE},
        {{NULL, m.n_dense, NULL, 0, 1, NULL}, HK_E_INVALID_ARG},
        {{m.g, m.n_dense, NULL, 1, 1, NULL}, HK_E_INVALID_ARG},
        {{m.g, m.n_train, two, 1, 1, NULL}, HK_E_INVALID_ARG},
        {{m.g, m.n_dense, NULL, 0, (double)NAN, NULL}, HK_E_NOT_FINITE},
        {{NULL, 0, NULL, 0, 1, NULL}, HK_E_INVALID_ARG},
    };
    for (size_t i = 0; i < COUNT(views); i++)
        assert_fails(views[i].status,
                     hk_optimizer_apply(o, m.x, &views[i].v, 0, NULL));
    const hk_grad_view v = {m.g, m.n_dense, NULL, 0, 1, NULL};
    assert_fails(HK_E_INVALID_ARG, hk_optimizer_apply(o, m.x, NULL, 0, NULL));
    assert_fails(HK_E_INVALID_ARG, hk_optimizer_apply(o, NULL, &v, 0, NULL));
    assert_fails(HK_E_INVALID_ARG, hk_optimizer_apply(o, m.x, &v, -1, NULL));
    assert_fails(HK_E_STATE, hk_optimizer_end(o));
    assert_fails(HK_E_STATE,
                 hk_optimizer_apply_range(o, m.x, m.g, 0, m.n_dense, 1));
    assert_ok(hk_optimizer_begin(o, 0));
    assert_fails(HK_E_STATE, hk_optimizer_begin(o, 0));
    assert_fails(HK_E_STATE, hk_optimizer_apply(o, m.x, &v, 0, NULL));
    assert_fails(HK_E_STATE, hk_optimizer_set(o, "beta1", 0.5));
    assert_fails(HK_E_INVALID_ARG,
                 hk_optimizer_apply_range(o, m.x, m.g, 0, 5, 1));
    assert_fails(HK_E_INVALID_ARG,
                 hk_optimizer_apply_range(o, m.x, m.g, 0, m.n_train + 1, 1));
    assert_same(m.x, same.x, m.n, "failed steps");
    hk_optimizer_destroy(o);
    free_model(&m);
    free_model(&same);
}

static void test_bad_schedules(void **state) {
    (void)state;
    const double nan = (double)NAN;
    hk_schedule *s = NULL;
    hk_schedule_options o;
    static const struct {
        size_t field;
        double value;
    } cases[] = {
        {offsetof(hk_schedule_options, learning_rate), -1},
        {offsetof(hk_schedule_options, decay_steps), 0},
        {offsetof(hk_schedule_options, decay_steps), -5},
        {offsetof(hk_schedule_options, warmup_steps), -1},
        {offsetof(hk_schedule_options, initial_variance), -1},
        {offsetof(hk_schedule_options, t_mul), 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        hk_schedule_options_init(&o, sizeof o, HK_SCHEDULE_EXPONENTIAL);
        memcpy((char *)&o + cases[i].field, &cases[i].value, sizeof nan);
        assert_fails(HK_E_INVALID_ARG, hk_schedule_create(&o, &s));
        memcpy((char *)&o + cases[i].field, &nan, sizeof nan);
        assert_fails(HK_E_NOT_FINITE, hk_schedule_create(&o, &s));
    }
    const double falling[] = {10, 5}, values[] = {1, 2, 3};
    hk_schedule_options_init(&o, sizeof o, HK_SCHEDULE_PIECEWISE);
    assert_fails(HK_E_INVALID_ARG, hk_schedule_create(&o, &s));
    o.boundaries = falling;
    o.values = values;
    o.n_boundaries = 2;
    assert_fails(HK_E_INVALID_ARG, hk_schedule_create(&o, &s));
    hk_schedule_options_init(&o, sizeof o, (hk_schedule_kind)0);
    assert_fails(HK_E_INVALID_ARG, hk_schedule_create(&o, &s));
    assert_fails(HK_E_INVALID_ARG, hk_schedule_create(NULL, &s));
    assert_null(s);
    assert_true(isnan(hk_schedule_value(NULL, 0)));
}

// ---- memory ---------------------------------------------------------------

static void test_steps_allocate_nothing(void **state) {
    (void)state;
    for (size_t k = 0; k < COUNT(kinds); k++) {
        model m = make_model(false, 15);
        hk_optimizer_options oo;
        hk_optimizer *o;
        hk_optimizer_options_init(&oo, sizeof oo, kinds[k].kind);
        oo.threads = 1;
        oo.reserve_rows = 8;
        assert_ok(hk_optimizer_create(&oo, m.layout, &o));
        const int64_t twice[] = {5, 9, 5};
        const hk_sparse_grad g = {hk_layout_find(m.layout, "embedding"),
                                  3,
                                  DIM,
                                  twice,
                                  row_values,
                                  0,
                                  0};
        const hk_grad_view v = {m.g, m.n_dense, &g, 1, 1, NULL};
        const uint64_t before = hki_alloc_count();
        for (int s = 0; s < 3; s++)
            assert_ok(hk_optimizer_apply(o, m.x, &v, s, NULL));
        assert_int_equal(hki_alloc_count(), before);
        hk_optimizer_destroy(o);
        free_model(&m);
    }
}

static void test_allocation_failures(void **state) {
    (void)state;
    model m = make_model(false, 16);
    hk_schedule_options so;
    const double boundaries[] = {1, 2}, values[] = {1, 2, 3};
    hk_schedule_options_init(&so, sizeof so, HK_SCHEDULE_PIECEWISE);
    so.boundaries = boundaries;
    so.values = values;
    so.n_boundaries = 2;
    const int64_t live = hki_alloc_live();
    for (size_t k = 0; k < COUNT(kinds); k++)
        for (uint64_t nth = 1;; nth++) {
            hk_optimizer_options o;
            hk_optimizer *opt = NULL;
            hk_schedule *s = NULL;
            hk_name_map *map = NULL;
            hk_optimizer_options_init(&o, sizeof o, kinds[k].kind);
            o.reserve_rows = 8;
            hki_alloc_fail_at(nth);
            hk_status st = hk_schedule_create(&so, &s);
            o.schedule = s;
            if (st == HK_OK)
                st = hk_optimizer_create(&o, m.layout, &opt);
            if (st == HK_OK)
                st = hk_name_map_create(&map);
            if (st == HK_OK)
                st = hk_optimizer_variables(opt, map);
            hki_alloc_fail_at(0);
            hk_name_map_destroy(map);
            hk_optimizer_destroy(opt);
            hk_schedule_release(s);
            assert_int_equal(hki_alloc_live(), live);
            if (st == HK_OK)
                break;
            assert_int_equal(st, HK_E_NO_MEMORY);
        }
    free_model(&m);
}

// ---- moments in bf16 ----------------------------------------------------------

#define BF16_N 5000

static hk_optimizer *bf16_optimizer(hk_layout *l, hk_optimizer_kind kind,
                                    uint32_t threads, uint32_t bf16) {
    hk_optimizer_options o;
    hk_optimizer_options_init(&o, sizeof o, kind);
    o.threads = threads;
    o.learning_rate = 0.01;
    o.bf16_moments = bf16;
    hk_optimizer *out;
    assert_ok(hk_optimizer_create(&o, l, &out));
    return out;
}

static hk_layout *bf16_layout(void) {
    const hk_layout_item items[] = {
        {.name = "w",
         .shape = hk_shape_make(1, (int64_t[]){BF16_N}),
         .dtype = HK_F32,
         .kind = HK_TRAINABLE},
        {.name = "t",
         .shape = hk_shape_make(2, (int64_t[]){50, 16}),
         .dtype = HK_F32,
         .kind = HK_TRAINABLE,
         .sparse = 1}};
    hk_layout *l;
    assert_ok(hk_layout_create(items, HKI_COUNT(items), &l));
    return l;
}

static void assert_same_bytes(hk_optimizer *a, hk_optimizer *b) {
    size_t n, m;
    assert_ok(hk_optimizer_save(a, NULL, 0, &n));
    unsigned char *const bytes = malloc(2 * n);
    assert_ok(hk_optimizer_save(a, bytes, n, &n));
    assert_ok(hk_optimizer_save(b, bytes + n, n, &m));
    assert_int_equal(n, m);
    assert_memory_equal(bytes, bytes + n, n);
    free(bytes);
}

// Changes of 0.001 of a moment, below half of bf16's last bit, add up: rounded
// to nearest v would stand still at a third of where it goes. Every value is
// one that bf16 has.
static void test_bf16_adds_up(void **state) {
    (void)state;
    hk_layout *const l = bf16_layout();
    const int64_t n = hki_layout_train(l);
    hk_optimizer *const half = bf16_optimizer(l, HK_OPT_ADAM, 1, 1);
    hk_optimizer *const full = bf16_optimizer(l, HK_OPT_ADAM, 1, 0);
    float *const x = calloc((size_t)n, sizeof *x);
    float *const y = calloc((size_t)n, sizeof *y);
    float *const g = calloc((size_t)n, sizeof *g);
    for (int64_t i = 0; i < BF16_N; i++)
        g[i] = 1;
    const hk_grad_view view = {.dense = g, .n_dense = n, .scale = 1};
    for (int step = 0; step < 2000; step++) {
        assert_ok(hk_optimizer_apply(half, x, &view, step, NULL));
        assert_ok(hk_optimizer_apply(full, y, &view, step, NULL));
    }
    float *v;
    assert_ok(hk_optimizer_slot(half, "w", "v", &v));
    const double end = 1 - pow(0.999, 2000);
    double mean = 0;
    for (int64_t i = 0; i < BF16_N; i++) {
        uint32_t bits;
        memcpy(&bits, &v[i], sizeof bits);
        assert_int_equal(bits & 0xFFFF, 0);
        assert_true(fabs((double)v[i] - end) < 0.1 * end);
        mean += (double)v[i] / BF16_N;
    }
    assert_true(fabs(mean - end) < 0.002 * end);
    assert_true(fabs((double)(x[7] - y[7])) < 0.01 * fabs((double)y[7]));
    free(x);
    free(y);
    free(g);
    hk_optimizer_destroy(half);
    hk_optimizer_destroy(full);
    hk_layout_release(l);
}

// One result for any number of threads, in pieces, with rows as a dense
// gradient has them, and after a restore in the middle.
static void test_bf16_repeats(void **state) {
    (void)state;
    static const hk_optimizer_kind three[] = {HK_OPT_ADAM, HK_OPT_ADAMW,
                                              HK_OPT_LAZY_ADAM};
    hk_layout *const l = bf16_layout();
    const int64_t n = hki_layout_train(l), dense = hki_layout_dense(l);
    for (size_t k = 0; k < HKI_COUNT(three); k++) {
        hk_optimizer *o[3];
        float *x[3];
        for (int i = 0; i < 3; i++) {
            o[i] = bf16_optimizer(l, three[k], i == 1 ? 2 : 1, 1);
            x[i] = calloc((size_t)n, sizeof **x);
        }
        float *const g = calloc((size_t)n, sizeof *g);
        int64_t rows[50];
        for (int64_t i = 0; i < n; i++)
            g[i] = i < BF16_N || i >= dense ? sinf((float)i) : 0;
        for (int i = 0; i < 50; i++)
            rows[i] = 49 - i;
        float *const reversed = calloc(50 * 16, sizeof *reversed);
        for (int i = 0; i < 50; i++)
            memcpy(reversed + 16 * i, g + dense + 16 * (49 - i),
                   16 * sizeof *g);
        const hk_sparse_grad sparse = {.entry = hk_layout_find(l, "t"),
                                       .count = 50,
                                       .dim = 16,
                                       .indices = rows,
                                       .rows = reversed};
        const hk_grad_view all = {.dense = g, .n_dense = n, .scale = 1};
        const hk_grad_view split = {.dense = g,
                                    .n_dense = dense,
                                    .sparse = &sparse,
                                    .n_sparse = 1,
                                    .scale = 1};
        for (int step = 0; step < 5; step++) {
            assert_ok(hk_optimizer_apply(o[0], x[0], &all, step, NULL));
            assert_ok(hk_optimizer_apply(o[1], x[1], &split, step, NULL));
            assert_ok(hk_optimizer_begin(o[2], step));
            assert_ok(hk_optimizer_apply_range(o[2], x[2], g, dense, n, 1));
            assert_ok(hk_optimizer_apply_range(o[2], x[2], g, 0, dense, 1));
            assert_ok(hk_optimizer_end(o[2]));
            size_t size;
            assert_ok(hk_optimizer_save(o[2], NULL, 0, &size));
            void *const bytes = malloc(size);
            assert_ok(hk_optimizer_save(o[2], bytes, size, &size));
            assert_ok(hk_optimizer_restore(o[2], bytes, size));
            free(bytes);
        }
        for (int i = 1; i < 3; i++) {
            assert_memory_equal(x[i], x[0], (size_t)n * sizeof *g);
            assert_same_bytes(o[i], o[0]);
        }
        for (int i = 0; i < 3; i++) {
            hk_optimizer_destroy(o[i]);
            free(x[i]);
        }
        free(g);
        free(reversed);
    }
    hk_layout_release(l);
}

static void test_bf16_refused(void **state) {
    (void)state;
    hk_layout *const l = bf16_layout();
    hk_optimizer_options o;
    hk_optimizer *out;
    for (int kind = HK_OPT_GRADIENT_DESCENT; kind <= HK_OPT_LION; kind++) {
        hk_optimizer_options_init(&o, sizeof o, (hk_optimizer_kind)kind);
        o.bf16_moments = 2;
        assert_int_equal(hk_optimizer_create(&o, l, &out), HK_E_INVALID_ARG);
        o.bf16_moments = 1;
        if (kind == HK_OPT_ADAM || kind == HK_OPT_ADAMW ||
            kind == HK_OPT_LAZY_ADAM)
            continue;
        assert_int_equal(hk_optimizer_create(&o, l, &out), HK_E_UNSUPPORTED);
    }
    hk_layout_release(l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_gaps_stay_zero),
        cmocka_unit_test(test_all_rows_is_dense),
        cmocka_unit_test(test_touched_rows_only),
        cmocka_unit_test(test_repeated_indices),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_mask),
        cmocka_unit_test(test_fused_average),
        cmocka_unit_test(test_oracles),
        cmocka_unit_test(test_skip_list),
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_noisy_schedule),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_bad_steps),
        cmocka_unit_test(test_bad_schedules),
        cmocka_unit_test(test_steps_allocate_nothing),
        cmocka_unit_test(test_allocation_failures),
        cmocka_unit_test(test_bf16_adds_up),
        cmocka_unit_test(test_bf16_repeats),
        cmocka_unit_test(test_bf16_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
