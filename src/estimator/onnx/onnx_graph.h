// onnx_graph.h - a graph as nodes of an ONNX model.
#ifndef HKI_ESTIMATOR_ONNX_GRAPH_H
#define HKI_ESTIMATOR_ONNX_GRAPH_H
#include "graph/graph.h"
#include "onnx/onnx.h"

typedef struct hki_onnx_walk {
    hki_onnx *o;
    const hk_graph *g;
    const hk_layout *layout; // of x
    const float *x;          // the weights
    // The run-time scalar as it is now; its default where this is NULL.
    bool (*scalar)(void *user, const char *name, double *value);
    void *user;
    const char **values; // of call c's output i at c->id * HKI_MAX_OUT + i
} hki_onnx_walk;

// Nodes for all that the named outputs need, which become w->values. Inputs
// that nobody gave become inputs of the model. HK_E_UNSUPPORTED names a call
// that ONNX has no operator for.
hk_status hki_onnx_translate(hki_onnx_walk *w, const char *const *outputs,
                             size_t n);
void hki_onnx_walk_deinit(hki_onnx_walk *w);
const char *hki_onnx_value(const hki_onnx_walk *w, const hk_node *x);

// The nodes of one call, whose inputs are there; out has HKI_MAX_OUT places.
hk_status hki_onnx_operator(hki_onnx *o, const hki_call *c,
                            const char *const *in, const char **out);

#endif // HKI_ESTIMATOR_ONNX_GRAPH_H
