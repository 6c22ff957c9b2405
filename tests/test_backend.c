// test_backend.c - the fast backend against the reference backend: the same
// random models, at every instruction-set level, with one thread and two.
#include "hooke/backend.h"
#include "suite_backend.h"

static void run(const bk_entry *cases, size_t n, hk_isa isa, uint32_t threads,
                uint32_t no_fusion) {
    const bk_config config = {
        .backend = "onednn",
        .isa = isa,
        .threads = threads,
        .no_fusion = no_fusion,
    };
    const hki_backend *be;
    if (isa > hki_isa_best() || hki_backend_find("onednn", &be) != HK_OK)
        skip();
    suite_backend(cases, n, &config);
}

#define TEST_LEVEL(level)                                                      \
    static void ops_##level##_1(void **state) {                                \
        (void)state;                                                           \
        run(bk_op_cases, bk_n_op_cases, HK_ISA_##level, 1, 0);                 \
    }                                                                          \
    static void ops_##level##_2(void **state) {                                \
        (void)state;                                                           \
        run(bk_op_cases, bk_n_op_cases, HK_ISA_##level, 2, 0);                 \
    }                                                                          \
    static void nets_##level(void **state) {                                   \
        (void)state;                                                           \
        run(bk_net_cases, bk_n_net_cases, HK_ISA_##level, 1, 0);               \
        run(bk_net_cases, bk_n_net_cases, HK_ISA_##level, 1, 1);               \
        run(bk_net_cases, bk_n_net_cases, HK_ISA_##level, 2, 0);               \
    }

TEST_LEVEL(BASE)
TEST_LEVEL(V3)
TEST_LEVEL(V4)

// Factors in bf16, as in the reference's products of rounded factors.
static void bf16(void **state) {
    (void)state;
    bk_config config = {
        .backend = "onednn",
        .isa = hki_isa_best(),
        .precision = HK_PRECISION_BF16,
    };
    const hki_backend *be;
    if (!hki_isa_has_bf16() || hki_backend_find("onednn", &be) != HK_OK)
        skip();
    for (config.threads = 1; config.threads <= 2; config.threads++) {
        suite_backend(bk_op_cases, bk_n_op_cases, &config);
        suite_backend(bk_net_cases, bk_n_net_cases, &config);
    }
}

// Fusion is a change of the graph: the reference backend has to agree with
// itself.
static void fusion_on_reference(void **state) {
    (void)state;
    const bk_config config = {
        .backend = "reference",
        .isa = HK_ISA_BASE,
        .threads = 1,
    };
    suite_backend(bk_op_cases, bk_n_op_cases, &config);
    suite_backend(bk_net_cases, bk_n_net_cases, &config);
}

// Memory that the host cannot reach: the same kernels, every byte staged.
static void memory_apart(void **state) {
    (void)state;
    const bk_config config = {
        .backend = "apart",
        .isa = hki_isa_best(),
        .threads = 2,
    };
    suite_backend(bk_op_cases, bk_n_op_cases, &config);
    suite_backend(bk_net_cases, bk_n_net_cases, &config);
}

// The list names what plans can be made for, the default one first.
static void list_of_backends(void **state) {
    (void)state;
    hk_backend_info info;
    const hki_backend *be;
    assert_true(hk_backend_count() >= 1);
    for (size_t i = 0; i < hk_backend_count(); i++) {
        assert_ok(hk_backend_get_info(i, &info));
        assert_ok(hki_backend_find(info.name, &be));
        assert_ptr_equal(be->name, info.name);
        assert_string_equal(info.file, "");
        assert_true(info.device_count >= 1 && info.isa >= HK_ISA_BASE);
        assert_true((strcmp(info.name, "onednn") == 0) ==
                    (strncmp(info.version, "oneDNN ", 7) == 0));
        if (i == 0) {
            assert_ok(hki_backend_find(NULL, &be));
            assert_string_equal(be->name, info.name);
        }
    }
    assert_status(hk_backend_get_info(hk_backend_count(), &info),
                  HK_E_NOT_FOUND);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_apart), cmocka_unit_test(list_of_backends),
        cmocka_unit_test(bf16),         cmocka_unit_test(fusion_on_reference),
        cmocka_unit_test(ops_BASE_1),   cmocka_unit_test(ops_BASE_2),
        cmocka_unit_test(nets_BASE),    cmocka_unit_test(ops_V3_1),
        cmocka_unit_test(ops_V3_2),     cmocka_unit_test(nets_V3),
        cmocka_unit_test(ops_V4_1),     cmocka_unit_test(ops_V4_2),
        cmocka_unit_test(nets_V4),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
