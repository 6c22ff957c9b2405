// test_cuda.c - the CUDA backend against the reference backend: the same random
// models as on CPUs. On a card where there is one, and always on one that the
// host plays, with the same kernels.
#include "suite_backend.h"

static void played(void **state) {
    (void)state;
    const bk_config config = {
        .backend = "cuda-played",
        .isa = HK_ISA_BASE,
        .threads = 1,
        .may_decline = true,
    };
    suite_backend(bk_op_cases, bk_n_op_cases, &config);
    suite_backend(bk_net_cases, bk_n_net_cases, &config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(played),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
