// Two rules in one optimizer: each entry moves as an optimizer of its own
// rule, restricted to those entries, would move it.
#include "hk_test.h"
#include "hooke/optim.h"

enum { STEPS = 7 };

typedef struct bed {
    hk_layout *layout;
    float *x, *g;
    float rows[2 * 4];
    int64_t indices[2];
    hk_sparse_grad sparse;
} bed;

static void bed_init(bed *b) {
    const hk_layout_item items[] = {
        {"linear/bias", {.rank = 1, .dim = {3}}, HK_F32, HK_TRAINABLE, 0, 0},
        {"dnn/kernel", {.rank = 2, .dim = {5, 4}}, HK_F32, HK_TRAINABLE, 0, 0},
        {"linear/age", {.rank = 2, .dim = {9, 4}}, HK_F32, HK_TRAINABLE, 1, 0},
        {"dnn/mean", {.rank = 1, .dim = {4}}, HK_F32, HK_STATE_AVERAGE, 0, 0}};
    assert_ok(hk_layout_create(items, 4, &b->layout));
    const size_t n = (size_t)hki_layout_size(b->layout);
    b->x = calloc(n, sizeof *b->x);
    b->g = calloc(n, sizeof *b->g);
    for (size_t e = 0; e < 4; e++) {
        const hk_entry *const entry = hk_layout_entry(b->layout, e);
        for (int64_t i = 0; i < entry->count; i++)
            b->x[entry->offset + i] = 0.1f * (float)(i % 5) - 0.2f;
    }
}

static void bed_deinit(bed *b) {
    hk_layout_release(b->layout);
    free(b->x);
    free(b->g);
}

static hk_grad_view gradients(bed *b, int step) {
    for (size_t e = 0; e < 2; e++) {
        const hk_entry *const entry = hk_layout_entry(b->layout, e);
        for (int64_t i = 0; i < entry->count; i++)
            b->g[entry->offset + i] =
                0.01f * (float)((i * 7 + step * 3) % 11 - 5);
    }
    for (int i = 0; i < 8; i++)
        b->rows[i] = 0.02f * (float)((i + step) % 5 - 2);
    b->indices[0] = step % 9;
    b->indices[1] = (step * 4 + 1) % 9;
    b->sparse =
        (hk_sparse_grad){.entry = hk_layout_find(b->layout, "linear/age"),
                         .count = 2,
                         .dim = 4,
                         .indices = b->indices,
                         .rows = b->rows};
    return (hk_grad_view){.dense = b->g,
                          .n_dense = hki_layout_dense(b->layout),
                          .sparse = &b->sparse,
                          .n_sparse = 1,
                          .scale = 1};
}

static hk_optimizer_options pair_options(hk_optimizer_options *second) {
    hk_optimizer_options o;
    hk_optimizer_options_init(&o, sizeof o, HK_OPT_ADAM);
    hk_optimizer_options_init(second, sizeof *second, HK_OPT_FTRL);
    second->learning_rate = 0.2;
    o.other = second;
    o.other_prefix = "linear/";
    return o;
}

static void run(bed *b, hk_optimizer *o, int from, int to) {
    for (int step = from; step < to; step++) {
        const hk_grad_view g = gradients(b, step);
        assert_ok(hk_optimizer_apply(o, b->x, &g, step, NULL));
    }
}

static void test_equals_two_optimizers(void **state) {
    (void)state;
    bed a, b;
    bed_init(&a);
    bed_init(&b);
    hk_optimizer_options second;
    hk_optimizer_options o = pair_options(&second);
    hk_optimizer *pair, *adam, *ftrl;
    assert_ok(hk_optimizer_create(&o, a.layout, &pair));
    o.other = NULL;
    assert_ok(hk_optimizer_create(&o, b.layout, &adam));
    assert_ok(hk_optimizer_create(&second, b.layout, &ftrl));
    unsigned char linear[4] = {0}, dnn[4] = {0};
    for (size_t i = 0; i < 3; i++) {
        const char *name = hk_layout_entry(b.layout, i)->name;
        linear[i] = strncmp(name, "linear/", 7) == 0;
        dnn[i] = !linear[i];
    }
    assert_ok(hk_optimizer_select(adam, dnn));
    assert_ok(hk_optimizer_select(ftrl, linear));
    run(&a, pair, 0, STEPS);
    for (int step = 0; step < STEPS; step++) {
        const hk_grad_view g = gradients(&b, step);
        assert_ok(hk_optimizer_apply(adam, b.x, &g, step, NULL));
        assert_ok(hk_optimizer_apply(ftrl, b.x, &g, step, NULL));
    }
    assert_memory_equal(a.x, b.x,
                        (size_t)hki_layout_size(a.layout) * sizeof(float));
    float *m, *linear_slot;
    assert_ok(hk_optimizer_slot(pair, "dnn/kernel", "m", &m));
    assert_ok(hk_optimizer_slot(pair, "linear/age", "linear", &linear_slot));
    assert_status(hk_optimizer_slot(pair, "linear/age", "m", &m),
                  HK_E_NOT_FOUND);
    hk_optimizer_destroy(pair);
    hk_optimizer_destroy(adam);
    hk_optimizer_destroy(ftrl);
    bed_deinit(&a);
    bed_deinit(&b);
}

// Saved in the middle, both rules go on where they were; the name map has
// each variable's slots of its own rule only.
static void test_state(void **state) {
    (void)state;
    bed a, b;
    bed_init(&a);
    bed_init(&b);
    hk_optimizer_options second;
    const hk_optimizer_options o = pair_options(&second);
    hk_optimizer *whole, *first, *later;
    assert_ok(hk_optimizer_create(&o, a.layout, &whole));
    assert_ok(hk_optimizer_create(&o, b.layout, &first));
    assert_ok(hk_optimizer_create(&o, b.layout, &later));
    run(&a, whole, 0, STEPS);
    run(&b, first, 0, 3);
    size_t size;
    assert_ok(hk_optimizer_save(first, NULL, 0, &size));
    unsigned char *bytes = malloc(size);
    assert_ok(hk_optimizer_save(first, bytes, size, &size));
    assert_ok(hk_optimizer_restore(later, bytes, size));
    run(&b, later, 3, STEPS);
    assert_memory_equal(a.x, b.x,
                        (size_t)hki_layout_size(a.layout) * sizeof(float));
    bytes[size / 2] ^= 1;
    assert_status(hk_optimizer_restore(later, bytes, size), HK_E_DATA);
    hk_name_map *map;
    assert_ok(hk_name_map_create(&map));
    assert_ok(hk_optimizer_variables(whole, map));
    assert_non_null(hk_name_map_find(map, "dnn/kernel/Adam_1"));
    assert_non_null(hk_name_map_find(map, "linear/age/Ftrl_1"));
    assert_null(hk_name_map_find(map, "linear/age/Adam"));
    assert_null(hk_name_map_find(map, "dnn/kernel/Ftrl"));
    hk_name_map_destroy(map);
    free(bytes);
    hk_optimizer_destroy(whole);
    hk_optimizer_destroy(first);
    hk_optimizer_destroy(later);
    bed_deinit(&a);
    bed_deinit(&b);
}

static void test_scalars_and_errors(void **state) {
    (void)state;
    bed b;
    bed_init(&b);
    hk_optimizer_options second;
    hk_optimizer_options o = pair_options(&second);
    hk_optimizer *pair;
    assert_ok(hk_optimizer_create(&o, b.layout, &pair));
    double v;
    assert_ok(hk_optimizer_set(pair, "other/learning_rate", 0.5));
    assert_ok(hk_optimizer_get(pair, "other/learning_rate", &v));
    assert_true(v == 0.5);
    assert_ok(hk_optimizer_get(pair, "learning_rate", &v));
    assert_true(v == 0.001);
    assert_status(hk_optimizer_set(pair, "other/beta1", 0.5), HK_E_NOT_FOUND);
    hk_optimizer_destroy(pair);
    o.other_prefix = "wide/";
    assert_status(hk_optimizer_create(&o, b.layout, &pair), HK_E_NOT_FOUND);
    o.other_prefix = NULL;
    assert_status(hk_optimizer_create(&o, b.layout, &pair), HK_E_INVALID_ARG);
    bed_deinit(&b);
}

static hk_status create(void *user) {
    bed *b = user;
    hk_optimizer_options second;
    const hk_optimizer_options o = pair_options(&second);
    hk_optimizer *pair;
    HKI_TRY(hk_optimizer_create(&o, b->layout, &pair));
    hk_optimizer_destroy(pair);
    return HK_OK;
}

static void test_allocation_failures(void **state) {
    (void)state;
    bed b;
    bed_init(&b);
    hk_test_alloc_failures("optimizer pair", create, &b);
    bed_deinit(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_two_optimizers),
        cmocka_unit_test(test_state),
        cmocka_unit_test(test_scalars_and_errors),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
