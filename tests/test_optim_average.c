// test_optim_average.c - moving averages, their name maps, and gradient
// processing.
#include "base/base.h"
#include "optim/optim.h"
#include "optim_util.h"

// ---- S10: MovingAverageOptimizer and its swapping saver -------------------

enum { MAX_SAVED = 16 };

// A saver: reads or writes the places of a map.
typedef struct checkpoint {
    char name[MAX_SAVED][64];
    float value[MAX_SAVED][2];
    size_t n;
} checkpoint;

static void save(checkpoint *c, const hk_name_map *map) {
    c->n = hk_name_map_count(map);
    assert_true(c->n <= MAX_SAVED);
    for (size_t i = 0; i < c->n; i++) {
        const hk_named *const it = hk_name_map_item(map, i);
        snprintf(c->name[i], sizeof c->name[i], "%s", it->name);
        memcpy(c->value[i], it->data, sizeof c->value[i]);
    }
}

static void restore(const checkpoint *c, const hk_name_map *map) {
    for (size_t i = 0; i < hk_name_map_count(map); i++) {
        const hk_named *const it = hk_name_map_item(map, i);
        size_t j = 0;
        while (j < c->n && strcmp(c->name[j], it->name) != 0)
            j++;
        assert_true(j < c->n);
        memcpy(it->data, c->value[j], sizeof c->value[j]);
    }
}

static void assert_pair(const float *got, double a, double b) {
    if (fabs(got[0] - a) > 1e-6 + 1e-6 * fabs(a) ||
        fabs(got[1] - b) > 1e-6 + 1e-6 * fabs(b))
        fail_msg("(%.9g, %.9g), not (%.9g, %.9g)", (double)got[0],
                 (double)got[1], a, b);
}

static hk_name_map *new_map(void) {
    hk_name_map *m;
    assert_ok(hk_name_map_create(&m));
    return m;
}

static void test_s10(void **state) {
    (void)state;
    const hk_layout_item items[] = {item("var0", 2, 0, HK_TRAINABLE, 0),
                                    item("var1", 2, 0, HK_TRAINABLE, 0)};
    hk_layout *const l = make_layout(items, 2);
    float x[32] = {1, 2}, g[32] = {0.1f, 0.1f};
    x[16] = 3, x[17] = 4, g[16] = g[17] = 0.01f;
    hk_optimizer_options oo;
    hk_optimizer *opt;
    hk_optimizer_options_init(&oo, sizeof oo, HK_OPT_GRADIENT_DESCENT);
    oo.learning_rate = 2;
    assert_ok(hk_optimizer_create(&oo, l, &opt));
    hk_ema_options eo;
    hk_ema *ema;
    hk_ema_options_init(&eo, sizeof eo);
    eo.decay = 0.5;
    assert_ok(hk_ema_create(&eo, l, x, &ema));
    const hk_grad_view v = {g, 32, NULL, 0, 1, NULL};
    hk_name_map *const full = new_map(), *const subset = new_map();
    assert_fails(HK_E_STATE, hk_ema_map(ema, HK_EMA_SWAPPED, NULL, 0, x, full));
    assert_ok(hk_optimizer_apply(opt, x, &v, 0, ema));

    float *const ema0 = (float *)(uintptr_t)ema_info(ema).values;
    float *const ema1 = ema0 + 16;
    assert_pair(x, 0.8, 1.8);
    assert_pair(x + 16, 2.98, 3.98);
    assert_pair(ema0, 0.9, 1.9);
    assert_pair(ema1, 2.99, 3.99);

    // Save and restore with the swapping saver is the identity.
    checkpoint all, some;
    assert_ok(hk_ema_map(ema, HK_EMA_SWAPPED, NULL, 0, x, full));
    assert_int_equal(hk_name_map_count(full), 4);
    save(&all, full);
    restore(&all, full);
    assert_pair(x, 0.8, 1.8);
    assert_pair(ema0, 0.9, 1.9);

    // A plain restore puts the averages into the variables.
    hk_name_map *const plain = new_map();
    float y[32] = {0};
    assert_ok(hk_name_map_add_layout(plain, l, y, NULL));
    restore(&all, plain);
    assert_pair(y, 0.9, 1.9);
    assert_pair(y + 16, 2.99, 3.99);
    hk_name_map_destroy(plain);

    const char *const list[] = {"var0", "var0/ExponentialMovingAverage"};
    assert_ok(hk_ema_map(ema, HK_EMA_SWAPPED, list, 2, x, subset));
    save(&some, subset);
    for (int i = 0; i < 2; i++) {
        x[i] += 1, x[16 + i] += 2;
        ema0[i] += 3, ema1[i] += 4;
    }
    assert_pair(x, 1.8, 2.8);
    assert_pair(x + 16, 4.98, 5.98);
    assert_pair(ema0, 3.9, 4.9);
    assert_pair(ema1, 6.99, 7.99);
    restore(&some, subset);
    assert_pair(x, 0.8, 1.8);
    assert_pair(x + 16, 4.98, 5.98);
    assert_pair(ema0, 0.9, 1.9);
    assert_pair(ema1, 6.99, 7.99);
    restore(&all, full);
    assert_ok(hk_optimizer_apply(opt, x, &v, 1, ema));
    assert_pair(x, 0.6, 1.6);
    assert_pair(x + 16, 2.96, 3.96);
    assert_pair(ema0, 0.75, 1.75);
    assert_pair(ema1, 2.975, 3.975);

    // Half a pair, and a stranger.
    hk_name_map *const bad = new_map();
    assert_fails(HK_E_INVALID_ARG,
                 hk_ema_map(ema, HK_EMA_SWAPPED, list, 1, x, bad));
    assert_fails(HK_E_INVALID_ARG,
                 hk_ema_map(ema, HK_EMA_SWAPPED, list + 1, 1, x, bad));
    const char *const who[] = {"nobody"};
    assert_fails(HK_E_NOT_FOUND,
                 hk_ema_map(ema, HK_EMA_SWAPPED, who, 1, x, bad));
    hk_name_map_destroy(bad);
    hk_name_map_destroy(full);
    hk_name_map_destroy(subset);
    hk_ema_destroy(ema);
    hk_optimizer_destroy(opt);
    hk_layout_release(l);
}

// Loss v^2, v = 1.2, rate 2: one step gives -3.6; the unordered form averages
// the value before the step.
static void test_sequential(void **state) {
    (void)state;
    const hk_layout_item it = item("v", 1, 0, HK_TRAINABLE, 0);
    hk_layout *const l = make_layout(&it, 1);
    for (int sequential = 0; sequential < 2; sequential++) {
        float x[16] = {1.2f}, g[16] = {2.4f};
        hk_optimizer *const opt = make_optimizer(HK_OPT_GRADIENT_DESCENT, l, 1);
        assert_ok(hk_optimizer_set(opt, "learning_rate", 2));
        hk_ema_options eo;
        hk_ema *ema;
        hk_ema_options_init(&eo, sizeof eo);
        eo.decay = 0.5;
        eo.sequential_update = (uint32_t)sequential;
        assert_ok(hk_ema_create(&eo, l, x, &ema));
        const hk_grad_view v = {g, 16, NULL, 0, 1, NULL};
        assert_ok(hk_optimizer_apply(opt, x, &v, 0, ema));
        assert_true(fabsf(x[0] + 3.6f) < 1e-6f);
        const double want = sequential ? -1.2 : 1.2;
        assert_true(fabs(ema_info(ema).values[0] - want) < 1e-6);
        hk_ema_destroy(ema);
        hk_optimizer_destroy(opt);
    }
    hk_layout_release(l);
}

// ---- S13: names -----------------------------------------------------------

static void assert_keys(const hk_name_map *map, const char *want) {
    char text[512] = "";
    for (size_t i = 0; i < hk_name_map_count(map); i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s ",
                 hk_name_map_item(map, i)->name);
    assert_string_equal(text, want);
}

static void test_s13_names(void **state) {
    (void)state;
    const hk_layout_item items[] = {item("v0", 1, 0, HK_TRAINABLE, 0),
                                    item("v1", 1, 0, HK_TRAINABLE, 0),
                                    item("v2", 1, 0, HK_STATE_COPY, 0)};
    hk_layout *const l = make_layout(items, 3);
    float x[48] = {10};
    const hk_shape scalar = hk_shape_make(0, NULL);
    for (uint32_t debias = 0; debias < 2; debias++) {
        hk_ema_options o;
        hk_ema *e;
        size_t id;
        hk_ema_options_init(&o, sizeof o);
        o.decay = 0.25;
        o.name = "foo";
        o.zero_debias = debias;
        assert_ok(hk_ema_create(&o, l, x, &e));
        assert_ok(hk_ema_track(e, "add", scalar, &id));
        hk_name_map *const map = new_map(), *const some = new_map();
        assert_ok(hk_ema_map(e, HK_EMA_RESTORE, NULL, 0, x, map));
        assert_keys(map, debias ? "v0/foo v1/foo v2 add/foo add/foo/biased "
                                  "add/foo/local_step "
                                : "v0/foo v1/foo v2 add/foo ");
        // The averages are loaded into the ordinary variables.
        assert_ptr_equal(hk_name_map_find(map, "v0/foo")->data, x);
        const char *const list[] = {"v0", "add"};
        assert_ok(hk_ema_map(e, HK_EMA_RESTORE, list, 2, x, some));
        assert_keys(some, debias ? "v0/foo v1 v2 add/foo add/foo/biased "
                                   "add/foo/local_step "
                                 : "v0/foo v1 v2 add/foo ");
        const char *name;
        assert_ok(hk_ema_average(e, "v1", &name, NULL));
        assert_string_equal(name, "v1/foo");
        assert_ok(hk_ema_average(e, "add", &name, NULL));
        assert_string_equal(name, "add/foo");
        assert_fails(HK_E_NOT_FOUND, hk_ema_average(e, "v9", &name, NULL));
        assert_fails(HK_E_EXISTS, hk_ema_track(e, "add", scalar, &id));
        hk_name_map_destroy(map);
        hk_name_map_destroy(some);
        hk_ema_destroy(e);
    }
    hk_layout_release(l);

    const hk_layout_item scoped = item("scope1/v0", 1, 0, HK_TRAINABLE, 0);
    hk_layout *const k = make_layout(&scoped, 1);
    hk_ema_options o;
    hk_ema *e;
    hk_ema_options_init(&o, sizeof o);
    o.name = "foo";
    o.scope = "scope2";
    assert_ok(hk_ema_create(&o, k, x, &e));
    const char *name;
    assert_ok(hk_ema_average(e, "scope1/v0", &name, NULL));
    assert_string_equal(name, "scope2/scope1/v0/foo");
    hk_ema_destroy(e);
    hk_layout_release(k);

    static const struct {
        const char *leaf, *want;
        uint32_t call;
    } leaves[] = {
        {"biased", "scope1/scope2/scope1/scope2/Var/biased", 0},
        {"local_step", "scope1/scope2/scope1/scope2/Var/local_step", 0},
        {"biased", "scope1/scope2/scope1/scope2/Var/biased_1", 1},
        {"local_step", "scope1/scope2/scope1/scope2/Var/local_step_1", 1}};
    char text[64];
    for (size_t i = 0; i < COUNT(leaves); i++) {
        assert_ok(hk_moving_average_name("scope1/scope2", "scope1/scope2/Var",
                                         leaves[i].leaf, leaves[i].call, text,
                                         sizeof text));
        assert_string_equal(text, leaves[i].want);
    }
    assert_fails(HK_E_OVERFLOW,
                 hk_moving_average_name("a", "b", "biased", 0, text, 5));
}

// Two variables and their sum in one average: variables start at their values
// and stay, the tensor starts at 0.
static void test_s13_variables_and_tensor(void **state) {
    (void)state;
    const hk_layout_item items[] = {item("v0", 1, 0, HK_TRAINABLE, 0),
                                    item("v1", 1, 0, HK_TRAINABLE, 0)};
    hk_layout *const l = make_layout(items, 2);
    const hk_shape scalar = hk_shape_make(0, NULL);
    float x[32] = {0};
    x[hk_layout_find(l, "v0")->offset] = 10;
    x[hk_layout_find(l, "v1")->offset] = 30;
    static const struct {
        uint32_t debias;
        int64_t num_updates;
        double want[2];
    } cases[] = {{0, -1, {30, 37.5}},
                 {1, -1, {40, 40}},
                 {0, 1, {32.727272727, 38.677685950}},
                 {1, 1, {40, 40}}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        hk_ema_options o;
        hk_ema *e;
        size_t id;
        hk_ema_options_init(&o, sizeof o);
        o.decay = 0.25;
        o.zero_debias = cases[i].debias;
        assert_ok(hk_ema_create(&o, l, x, &e));
        assert_ok(hk_ema_set(e, "num_updates", (double)cases[i].num_updates));
        assert_ok(hk_ema_track(e, "add", scalar, &id));
        for (int update = 0; update < 2; update++) {
            const float sum = 40, *got;
            const float *v0, *v1;
            assert_ok(hk_ema_update(e, x));
            assert_ok(hk_ema_update_tracked(e, id, &sum, 1));
            assert_ok(hk_ema_average(e, "add", NULL, &got));
            assert_true(fabs((double)*got - cases[i].want[update]) < 1e-5);
            assert_ok(hk_ema_average(e, "v0", NULL, &v0));
            assert_ok(hk_ema_average(e, "v1", NULL, &v1));
            assert_true(*v0 == 10 && *v1 == 30);
        }
        hk_ema_destroy(e);
    }
    hk_layout_release(l);
}

// ---- policies, methods, bytes ---------------------------------------------

static hk_layout *mixed_layout(void) {
    hk_layout_item items[] = {
        item("w", 3, 0, HK_TRAINABLE, 0),
        item("bn/mean", 3, 0, HK_STATE_AVERAGE, 0),
        item("copied", 3, 0, HK_STATE_COPY, 0),
        item("local", 3, 0, HK_STATE_LOCAL, 0),
        item("count", 1, 0, HK_STATE_AVERAGE, 0),
        item("wide", 2, 0, HK_STATE_AVERAGE, 0),
    };
    items[4].dtype = HK_I64; // of no concern to averages
    items[5].dtype = HK_F64;
    return make_layout(items, COUNT(items));
}

typedef struct mixed {
    hk_layout *l;
    float *x;
} mixed;

static void set_mixed(mixed *m, float v) {
    fill(m->l, m->x, hki_layout_size(m->l), 0, 0);
    const hk_entry *e;
    for (size_t i = 0; (e = hk_layout_entry(m->l, i)) != NULL; i++)
        for (int64_t j = 0; e->dtype == HK_F32 && j < e->count; j++)
            m->x[e->offset + j] = v;
}

static mixed make_mixed(void) {
    mixed m = {.l = mixed_layout()};
    m.x = zeroed((size_t)hki_layout_size(m.l), sizeof(float));
    return m;
}

static void free_mixed(mixed *m) {
    hk_layout_release(m->l);
    free(m->x);
}

static float first(hk_ema *e, const char *var) {
    const float *p;
    assert_ok(hk_ema_average(e, var, NULL, &p));
    assert_non_null(p);
    return *p;
}

static void test_policies(void **state) {
    (void)state;
    mixed m = make_mixed();
    hk_ema_options o;
    hk_ema *e;
    hk_ema_options_init(&o, sizeof o);
    o.decay = 0.5;
    set_mixed(&m, 2);
    assert_ok(hk_ema_create(&o, m.l, m.x, &e));
    set_mixed(&m, 4);
    assert_fails(HK_E_DTYPE, hk_ema_set_policy(e, "count", HK_POLICY_AVERAGE));
    assert_fails(HK_E_NOT_FOUND,
                 hk_ema_set_policy(e, "nobody", HK_POLICY_COPY));
    assert_ok(hk_ema_update(e, m.x));
    assert_fails(HK_E_STATE, hk_ema_set_policy(e, "w", HK_POLICY_COPY));
    const float *p;
    assert_true(first(e, "w") == 3 && first(e, "bn/mean") == 3);
    assert_true(first(e, "copied") == 4);
    assert_ok(hk_ema_average(e, "local", NULL, &p));
    assert_null(p);
    assert_ok(hk_ema_average(e, "count", NULL, &p));
    assert_null(p);
    hk_name_map *const map = new_map();
    assert_ok(hk_ema_map(e, HK_EMA_SHADOWS, NULL, 0, NULL, map));
    assert_keys(map, "w/ExponentialMovingAverage "
                     "bn/mean/ExponentialMovingAverage ");
    hk_name_map_destroy(map);
    hk_ema_destroy(e);

    // Uniform: the mean of the updates, the start does not count.
    o.method = HK_AVERAGE_UNIFORM;
    set_mixed(&m, 100);
    assert_ok(hk_ema_create(&o, m.l, m.x, &e));
    for (int i = 1; i <= 5; i++) {
        set_mixed(&m, (float)i);
        assert_ok(hk_ema_update(e, m.x));
        assert_true(fabsf(first(e, "w") - (float)(i + 1) / 2) < 1e-6f);
    }
    assert_int_equal(ema_info(e).updates, 5);
    hk_ema_destroy(e);
    free_mixed(&m);
}

// Each under the other's name, floats only.
static void test_swapped(void **state) {
    (void)state;
    mixed m = make_mixed();
    hk_ema *e;
    set_mixed(&m, 2);
    assert_ok(hk_ema_create(NULL, m.l, m.x, &e));
    assert_ok(hk_ema_update(e, m.x));
    hk_name_map *const map = new_map();
    const float *shadow;
    assert_ok(hk_ema_average(e, "w", NULL, &shadow));
    assert_ok(hk_ema_map(e, HK_EMA_SWAPPED, NULL, 0, m.x, map));
    assert_ptr_equal(hk_name_map_find(map, "w")->data, shadow);
    assert_ptr_equal(hk_name_map_find(map, "w/ExponentialMovingAverage")->data,
                     m.x + hk_layout_find(m.l, "w")->offset);
    assert_null(hk_name_map_find(map, "count"));
    assert_fails(HK_E_INVALID_ARG,
                 hk_ema_map(e, (hk_ema_map_kind)9, NULL, 0, m.x, map));
    assert_fails(HK_E_INVALID_ARG,
                 hk_ema_map(e, HK_EMA_RESTORE, NULL, 0, NULL, map));
    assert_fails(HK_E_NOT_FOUND, hk_ema_set(e, "speed", 1));
    hk_name_map_destroy(map);
    hk_ema_destroy(e);
    free_mixed(&m);
}

// One update for ten steps is ten updates by an x that stands still, warm-up
// and all.
static void test_update_of_steps(void **state) {
    (void)state;
    mixed m = make_mixed();
    hk_ema_options o;
    hk_ema_options_init(&o, sizeof o);
    o.decay = 0.99;
    for (int64_t n = -1; n < 1000; n += 300) { // -1: no warm-up
        hk_ema *once, *often;
        set_mixed(&m, 1);
        assert_ok(hk_ema_create(&o, m.l, m.x, &once));
        assert_ok(hk_ema_create(&o, m.l, m.x, &often));
        set_mixed(&m, 5);
        assert_ok(hk_ema_set(once, "num_updates", (double)n));
        assert_ok(hk_ema_set(often, "num_updates", (double)n));
        assert_ok(hki_ema_update_steps(once, m.x, 10));
        for (int i = 0; i < 10; i++)
            assert_ok(hk_ema_update(often, m.x));
        assert_true(fabsf(first(once, "w") - first(often, "w")) < 1e-5f);
        assert_int_equal(ema_info(once).updates, 1);
        hk_ema_destroy(once);
        hk_ema_destroy(often);
    }
    free_mixed(&m);
}

static void test_decay(void **state) {
    (void)state;
    mixed m = make_mixed();
    hk_ema_options o;
    hk_ema *e = NULL;
    static const double bad[] = {-0.1, 1.1};
    for (size_t i = 0; i < COUNT(bad); i++) {
        hk_ema_options_init(&o, sizeof o);
        o.decay = bad[i];
        assert_fails(HK_E_INVALID_ARG, hk_ema_create(&o, m.l, m.x, &e));
    }
    o.decay = (double)NAN;
    assert_fails(HK_E_NOT_FINITE, hk_ema_create(&o, m.l, m.x, &e));
    hk_ema_options_init(&o, sizeof o);
    o.method = (hk_average_method)9;
    assert_fails(HK_E_INVALID_ARG, hk_ema_create(&o, m.l, m.x, &e));
    assert_fails(HK_E_INVALID_ARG, hk_ema_create(NULL, m.l, NULL, &e));
    assert_ok(hk_ema_create(NULL, m.l, m.x, &e));
    assert_true(ema_info(e).decay == 0.9999);
    assert_ok(hk_ema_set(e, "num_updates", 1));
    assert_true(fabs(ema_info(e).decay - 2.0 / 11) < 1e-15);
    assert_ok(hk_ema_set(e, "num_updates", 1000000));
    assert_true(ema_info(e).decay == 0.9999); // the ramp has passed it
    assert_fails(HK_E_INVALID_ARG, hk_ema_set(e, "num_updates", -2));
    assert_fails(HK_E_INVALID_ARG, hk_ema_set(e, "decay", 2));
    assert_ok(hk_ema_set(e, "decay", 0));
    set_mixed(&m, 5);
    assert_ok(hk_ema_update(e, m.x));
    assert_true(first(e, "w") == 5);
    const float v[2] = {1, 2};
    size_t id;
    const hk_shape pair = hk_shape_make(1, (int64_t[]){2});
    assert_ok(hk_ema_track(e, "t", pair, &id));
    assert_fails(HK_E_SHAPE, hk_ema_update_tracked(e, id, v, 1));
    assert_fails(HK_E_NOT_FOUND, hk_ema_update_tracked(e, 9, v, 2));
    hk_ema_destroy(e);
    assert_fails(HK_E_INVALID_ARG,
                 hk_assign_moving_average(NULL, v, 2, 0.5, NULL, NULL));
    float w[2] = {0};
    assert_fails(HK_E_INVALID_ARG,
                 hk_assign_moving_average(w, v, 2, 1.5, NULL, NULL));
    assert_fails(HK_E_INVALID_ARG,
                 hk_assign_moving_average(w, v, 2, 0.5, w, NULL));
    free_mixed(&m);
}

static hk_ema *tracked_ema(mixed *m) {
    hk_ema_options o;
    hk_ema *e;
    size_t id;
    const hk_shape pair = hk_shape_make(1, (int64_t[]){2});
    hk_ema_options_init(&o, sizeof o);
    o.decay = 0.75;
    o.zero_debias = 1;
    o.threads = 1;
    assert_ok(hk_ema_create(&o, m->l, m->x, &e));
    assert_ok(hk_ema_track(e, "t", pair, &id));
    return e;
}

static void update_all(hk_ema *e, mixed *m, int i) {
    const float v[2] = {(float)i, 1 / (float)(i + 1)};
    set_mixed(m, (float)i * 0.3f);
    assert_ok(hk_ema_update(e, m->x));
    assert_ok(hk_ema_update_tracked(e, 0, v, 2));
}

static unsigned char *ema_bytes(const hk_ema *e, size_t *size) {
    assert_ok(hk_ema_save(e, NULL, 0, size));
    unsigned char *const b = zeroed(*size, 1);
    assert_ok(hk_ema_save(e, b, *size, size));
    return b;
}

static void test_ema_bytes(void **state) {
    (void)state;
    mixed m = make_mixed();
    hk_ema *const a = tracked_ema(&m), *const b = tracked_ema(&m);
    for (int i = 1; i < 4; i++)
        update_all(a, &m, i);
    size_t size, other;
    unsigned char *const bytes = ema_bytes(a, &size);
    for (size_t i = 0; i < size; i++) {
        assert_fails(HK_E_DATA, hk_ema_restore(b, bytes, i));
        bytes[i] ^= 0x10;
        assert_fails(HK_E_DATA, hk_ema_restore(b, bytes, size));
        bytes[i] ^= 0x10;
    }
    assert_ok(hk_ema_restore(b, bytes, size));
    for (int i = 4; i < 6; i++) {
        update_all(a, &m, i);
        update_all(b, &m, i);
    }
    unsigned char *const p = ema_bytes(a, &size), *const q =
                                                      ema_bytes(b, &other);
    assert_int_equal(size, other);
    assert_memory_equal(p, q, size);
    // An average that tracks nothing refuses the bytes.
    hk_ema_options o;
    hk_ema *c;
    hk_ema_options_init(&o, sizeof o);
    o.zero_debias = 1;
    assert_ok(hk_ema_create(&o, m.l, m.x, &c));
    assert_fails(HK_E_DATA, hk_ema_restore(c, bytes, size));
    hk_ema_destroy(c);
    free(bytes);
    free(p);
    free(q);
    hk_ema_destroy(a);
    hk_ema_destroy(b);
    free_mixed(&m);
}

// ---- gradient processing --------------------------------------------------

enum { ROWS = 10, DIM = 3 };

typedef struct grads {
    hk_layout *l;
    float *g;
    int64_t n;
    int64_t index[3];
    float rows[3 * DIM];
    hk_sparse_grad sparse;
    hk_grad_view view;
} grads;

// Row 4 is named twice.
static void make_grads(grads *s) {
    const hk_layout_item items[] = {item("a", 5, 0, HK_TRAINABLE, 0),
                                    item("b", 70000, 2, HK_TRAINABLE, 0),
                                    item("t", ROWS, DIM, HK_TRAINABLE, 1)};
    memset(s, 0, sizeof *s);
    s->l = make_layout(items, 3);
    s->n = hki_layout_dense(s->l);
    s->g = zeroed((size_t)s->n, sizeof(float));
    fill(s->l, s->g, s->n, 5, 1);
    uint64_t seed = 9;
    for (int i = 0; i < 3 * DIM; i++)
        s->rows[i] = noise(&seed);
    s->index[0] = 4, s->index[1] = 7, s->index[2] = 4;
    s->sparse = (hk_sparse_grad){.entry = hk_layout_find(s->l, "t"),
                                 .count = 3,
                                 .dim = DIM,
                                 .indices = s->index,
                                 .rows = s->rows};
    s->view = (hk_grad_view){s->g, s->n, &s->sparse, 1, 1, NULL};
}

static void free_grads(grads *s) {
    hk_layout_release(s->l);
    free(s->g);
}

// Summed rows 4 and 7 of the table, as doubles.
static void summed(const grads *s, double out[2 * DIM]) {
    for (int j = 0; j < DIM; j++) {
        out[j] = (double)s->rows[j] + s->rows[2 * DIM + j];
        out[DIM + j] = s->rows[DIM + j];
    }
}

static double squares(const float *g, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)g[i] * g[i];
    return sum;
}

static hk_gradproc *make_proc(const hk_gradproc_options *o, hk_layout *l) {
    hk_gradproc *p;
    assert_ok(hk_gradproc_create(o, l, &p));
    return p;
}

static void test_global_norm(void **state) {
    (void)state;
    grads s;
    make_grads(&s);
    double table[2 * DIM], want = squares(s.g, s.n);
    summed(&s, table);
    for (int i = 0; i < 2 * DIM; i++)
        want += table[i] * table[i];
    want = sqrt(want) * 3;
    hk_gradproc_options o;
    hk_gradproc_options_init(&o, sizeof o);
    o.scale = -3;
    o.clip_global_norm = 1;
    double norms[3];
    for (uint32_t threads = 1; threads <= 3; threads++) {
        o.threads = threads;
        hk_gradproc *const p = make_proc(&o, s.l);
        hk_grad_view out;
        int ready;
        assert_ok(hk_gradproc_run(p, &s.view, &out, &ready));
        assert_int_equal(ready, 1);
        assert_ptr_equal(out.dense, s.g); // nothing is written
        norms[threads - 1] = hk_gradproc_norm(p);
        assert_true(fabs(norms[threads - 1] / want - 1) < 1e-6);
        assert_true(fabs(out.scale * want / -3 - 1) < 1e-6);
        assert_int_equal(out.sparse[0].count, 2);
        hk_gradproc_destroy(p);
    }
    assert_true(norms[0] == norms[1] && norms[0] == norms[2]);
    // A norm below the limit changes nothing.
    o.clip_global_norm = 1e9;
    hk_gradproc *const p = make_proc(&o, s.l);
    hk_grad_view out;
    int ready;
    assert_ok(hk_gradproc_run(p, &s.view, &out, &ready));
    assert_true(out.scale == -3);
    s.g[3] = NAN;
    assert_fails(HK_E_NOT_FINITE, hk_gradproc_run(p, &s.view, &out, &ready));
    hk_gradproc_destroy(p);
    free_grads(&s);
}

static void test_clip_value_and_norm(void **state) {
    (void)state;
    grads s;
    make_grads(&s);
    hk_gradproc_options o;
    hk_gradproc_options_init(&o, sizeof o);
    o.scale = 2;
    o.clip_value = 0.5;
    hk_grad_view out;
    int ready;
    hk_gradproc *p = make_proc(&o, s.l);
    assert_ok(hk_gradproc_run(p, &s.view, &out, &ready));
    assert_true(out.scale == 1);
    for (int64_t i = 0; i < s.n; i++)
        assert_true(out.dense[i] == fmaxf(-0.5f, fminf(0.5f, 2 * s.g[i])));
    double table[2 * DIM];
    summed(&s, table);
    for (int i = 0; i < 2 * DIM; i++) {
        const double want = fmax(-0.5, fmin(0.5, 2 * table[i]));
        assert_true(fabs(out.sparse[0].rows[i] - want) < 1e-6);
    }
    hk_gradproc_destroy(p);

    o.clip_value = 0;
    o.clip_norm = 1;
    p = make_proc(&o, s.l);
    assert_ok(hk_gradproc_run(p, &s.view, &out, &ready));
    for (size_t i = 0; i < 2; i++) {
        const hk_entry *const e = hk_layout_entry(s.l, i);
        const double norm = 2 * sqrt(squares(s.g + e->offset, e->count));
        const double f = 2 / fmax(norm, 1);
        for (int64_t j = 0; j < e->count; j++)
            assert_true(
                fabs(out.dense[e->offset + j] - f * s.g[e->offset + j]) < 1e-6);
    }
    assert_true(sqrt(squares(out.sparse[0].rows, 2 * DIM)) < 1 + 1e-6);
    hk_gradproc_destroy(p);

    float g[3] = {3, 4, 0};
    double norm;
    assert_ok(hk_clip_by_norm(g, 3, 2.5, &norm));
    assert_true(norm == 5 && g[0] == 1.5f && g[1] == 2);
    assert_ok(hk_clip_by_norm(g, 3, 2.5, NULL));
    assert_true(g[0] == 1.5f && g[1] == 2);
    assert_ok(hk_clip_by_value(g, 3, -1, 1.75));
    assert_true(g[0] == 1.5f && g[1] == 1.75f);
    assert_fails(HK_E_INVALID_ARG, hk_clip_by_value(g, 3, 1, -1));
    assert_fails(HK_E_INVALID_ARG, hk_clip_by_norm(g, 3, 0, NULL));
    assert_fails(HK_E_INVALID_ARG, hk_clip_by_norm(NULL, 3, 1, NULL));
    const hk_grad_view v = {g, 2, NULL, 0, 2, NULL};
    assert_ok(hk_global_norm(&v, &norm));
    assert_true(fabs(norm - 2 * sqrt(1.5 * 1.5 + 1.75 * 1.75)) < 1e-6);
    free_grads(&s);
}

// Three calls of different scale; the table is missing from the second.
static void accumulate(hk_gradproc *p, grads *s, int from, int to,
                       hk_grad_view *out) {
    for (int i = from; i < to; i++) {
        hk_grad_view v = s->view;
        int ready;
        v.scale = i + 1;
        v.n_sparse = i == 1 ? 0 : 1;
        assert_ok(hk_gradproc_run(p, &v, out, &ready));
        assert_int_equal(ready, i == 2);
    }
}

static void test_accumulation(void **state) {
    (void)state;
    grads s;
    make_grads(&s);
    hk_gradproc_options o;
    hk_gradproc_options_init(&o, sizeof o);
    o.accumulate_steps = 3;
    hk_gradproc *const p = make_proc(&o, s.l);
    hk_gradproc *const q = make_proc(&o, s.l);
    hk_grad_view out, other;
    double table[2 * DIM];
    summed(&s, table);
    for (int round = 0; round < 2; round++) {
        accumulate(p, &s, 0, 3, &out);
        assert_true(fabs(out.scale - 1.0 / 3) < 1e-15);
        for (int64_t i = 0; i < s.n; i++)
            assert_true(fabs(out.dense[i] - 6.0 * s.g[i]) < 2e-6);
        assert_int_equal(out.n_sparse, 1);
        for (int i = 0; i < 2 * DIM; i++)
            assert_true(fabs(out.sparse[0].rows[i] - 4 * table[i]) < 2e-6);
    }
    // Half a sum survives as bytes.
    accumulate(p, &s, 0, 2, &out);
    size_t size;
    assert_ok(hk_gradproc_save(p, NULL, 0, &size));
    unsigned char *const bytes = zeroed(size, 1);
    assert_ok(hk_gradproc_save(p, bytes, size, &size));
    for (size_t i = 0; i < size; i += 1 + size / 50) {
        assert_fails(HK_E_DATA, hk_gradproc_restore(q, bytes, i));
        bytes[i] ^= 4;
        assert_fails(HK_E_DATA, hk_gradproc_restore(q, bytes, size));
        bytes[i] ^= 4;
    }
    assert_ok(hk_gradproc_restore(q, bytes, size));
    accumulate(p, &s, 2, 3, &out);
    accumulate(q, &s, 2, 3, &other);
    assert_memory_equal(out.dense, other.dense, (size_t)s.n * sizeof *s.g);
    assert_memory_equal(out.sparse[0].rows, other.sparse[0].rows,
                        2 * DIM * sizeof *s.g);
    free(bytes);
    hk_gradproc_destroy(p);
    hk_gradproc_destroy(q);
    free_grads(&s);
}

// A sum is of every variable that had a gradient in one of its calls.
static void test_accumulated_mask(void **state) {
    (void)state;
    grads s;
    make_grads(&s);
    const size_t n = hki_layout_entry_count(s.l);
    assert_true(n > 2);
    hk_gradproc_options o;
    hk_gradproc_options_init(&o, sizeof o);
    o.accumulate_steps = 2;
    for (int restored = 0; restored < 2; restored++) {
        hk_gradproc *p = make_proc(&o, s.l);
        hk_grad_view v = s.view, out;
        unsigned char *const mask = zeroed(n, 1);
        int ready;
        v.mask = mask;
        v.n_sparse = 0;
        memset(s.g, 0, (size_t)s.n * sizeof *s.g);
        s.g[hk_layout_entry(s.l, 0)->offset] = 1;
        mask[0] = 1;
        assert_ok(hk_gradproc_run(p, &v, &out, &ready));
        if (restored) {
            size_t size;
            assert_ok(hk_gradproc_save(p, NULL, 0, &size));
            void *const bytes = zeroed(size, 1);
            assert_ok(hk_gradproc_save(p, bytes, size, &size));
            hk_gradproc_destroy(p);
            p = make_proc(&o, s.l);
            assert_ok(hk_gradproc_restore(p, bytes, size));
            free(bytes);
        }
        mask[0] = 0;
        mask[1] = 1;
        assert_ok(hk_gradproc_run(p, &v, &out, &ready));
        assert_int_equal(ready, 1);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(out.mask[i], i < 2);
        free(mask);
        hk_gradproc_destroy(p);
    }
    free_grads(&s);
}

static void test_bad_gradients(void **state) {
    (void)state;
    grads s;
    make_grads(&s);
    hk_gradproc_options o;
    hk_gradproc *p = NULL;
    hk_gradproc_options_init(&o, sizeof o);
    o.clip_norm = -1;
    assert_fails(HK_E_INVALID_ARG, hk_gradproc_create(&o, s.l, &p));
    o.clip_norm = (double)INFINITY;
    assert_fails(HK_E_NOT_FINITE, hk_gradproc_create(&o, s.l, &p));
    hk_gradproc_options_init(&o, sizeof o);
    o.accumulate_steps = 0;
    assert_fails(HK_E_INVALID_ARG, hk_gradproc_create(&o, s.l, &p));
    o.accumulate_steps = 2;
    p = make_proc(&o, s.l);
    hk_grad_view out, v = s.view;
    int ready;
    s.index[1] = ROWS;
    assert_fails(HK_E_RANGE, hk_gradproc_run(p, &v, &out, &ready));
    s.index[1] = 7;
    v.n_dense++;
    assert_fails(HK_E_SHAPE, hk_gradproc_run(p, &v, &out, &ready));
    v.n_dense--;
    const hk_sparse_grad two[2] = {s.sparse, s.sparse};
    v.sparse = two;
    v.n_sparse = 2;
    assert_fails(HK_E_EXISTS, hk_gradproc_run(p, &v, &out, &ready));
    assert_fails(HK_E_INVALID_ARG, hk_gradproc_run(p, NULL, &out, &ready));
    assert_ok(hk_gradproc_run(p, &s.view, &out, &ready));
    v = s.view;
    v.n_dense = 0;
    assert_fails(HK_E_SHAPE, hk_gradproc_run(p, &v, &out, &ready));
    hk_gradproc_destroy(p);
    free_grads(&s);
}

// ---- memory ---------------------------------------------------------------

static hk_status create_all(mixed *m, grads *s) {
    hk_ema_options eo;
    hk_gradproc_options go;
    hk_ema *e = NULL;
    hk_gradproc *p = NULL;
    hk_name_map *map = NULL;
    hk_grad_view out;
    size_t id;
    int ready;
    const hk_shape pair = hk_shape_make(1, (int64_t[]){2});
    hk_ema_options_init(&eo, sizeof eo);
    hk_gradproc_options_init(&go, sizeof go);
    eo.scope = "scope";
    go.accumulate_steps = 2;
    hk_status st = hk_ema_create(&eo, m->l, m->x, &e);
    if (st == HK_OK)
        st = hk_ema_track(e, "t", pair, &id);
    if (st == HK_OK)
        st = hk_name_map_create(&map);
    if (st == HK_OK)
        st = hk_ema_map(e, HK_EMA_RESTORE, NULL, 0, m->x, map);
    if (st == HK_OK)
        st = hk_gradproc_create(&go, s->l, &p);
    if (st == HK_OK)
        st = hk_gradproc_run(p, &s->view, &out, &ready);
    hk_name_map_destroy(map);
    hk_ema_destroy(e);
    hk_gradproc_destroy(p);
    return st;
}

static void test_allocation_failures(void **state) {
    (void)state;
    mixed m = make_mixed();
    grads s;
    make_grads(&s);
    const int64_t live = hki_alloc_live();
    hk_status st = HK_E_NO_MEMORY;
    for (uint64_t nth = 1; st != HK_OK; nth++) {
        hki_alloc_fail_at(nth);
        st = create_all(&m, &s);
        hki_alloc_fail_at(0);
        assert_int_equal(hki_alloc_live(), live);
        assert_true(st == HK_OK || st == HK_E_NO_MEMORY);
    }
    free_mixed(&m);
    free_grads(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_s10),
        cmocka_unit_test(test_sequential),
        cmocka_unit_test(test_s13_names),
        cmocka_unit_test(test_s13_variables_and_tensor),
        cmocka_unit_test(test_policies),
        cmocka_unit_test(test_swapped),
        cmocka_unit_test(test_update_of_steps),
        cmocka_unit_test(test_decay),
        cmocka_unit_test(test_ema_bytes),
        cmocka_unit_test(test_global_norm),
        cmocka_unit_test(test_clip_value_and_norm),
        cmocka_unit_test(test_accumulation),
        cmocka_unit_test(test_accumulated_mask),
        cmocka_unit_test(test_bad_gradients),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
