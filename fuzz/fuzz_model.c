// fuzz_model.c - model files from arbitrary bytes: what is accepted is a graph
// that compiles or says why not.
#include "codec/codec.h"
#include "estimator/saved/model_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void compile(hk_context *ctx, const json_t *model) {
    const hk_value x = {.name = "x",
                        .role = HK_FEATURE,
                        .form = HK_DENSE_FORM,
                        .dtype = HK_F32,
                        .shape = {.rank = 2, .dim = {-1, 6}}};
    const hk_element element = {.count = 1, .values = &x};
    hk_graph *g;
    hk_plan *plan = NULL;
    if (hk_graph_create(ctx, HK_PREDICT, NULL, &g) != HK_OK)
        return;
    hk_spec m = {.g = g, .mode = HK_PREDICT, .data = &element};
    if (hki_model_build(g, &m, model) == HK_OK) {
        hk_plan_options o;
        hk_plan_options_init(&o, sizeof o);
        o.batch = 2;
        (void)hk_plan_create(g, &o, &plan);
    }
    hk_plan_release(plan);
    hki_free(m.inputs.data);
    hki_free(m.predictions.data);
    hki_arena_deinit(&m.arena);
    hk_graph_destroy(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hk_context *ctx;
    json_t *model;
    if (hki_model_parse(data, size, "fuzz", &model) != HK_OK)
        return 0;
    if (hk_context_create(NULL, &ctx) == HK_OK) {
        compile(ctx, model);
        hk_context_destroy(ctx);
    }
    json_decref(model);
    return 0;
}
