// my_model.c - a model of one's own in C. hooke compiles and loads it:
//
//     hooke train my_model.c --workers 4 --steps 500
//
// The data is the built-in one (digits: "image" as floats from 0 to 1, "label")
// unless --set or an experiment file with `model: {library: my_model.c}` says
// otherwise; `model.params` of such a file is read with hk_param_int and
// friends.
#include <hooke/hooke.h>

hk_status model_fn(hk_graph *g, hk_mode mode, hk_spec *m) {
    const int64_t units = hk_param_int(g, "units", 64);
    hk_node *x = hk_flatten(g, hk_feature(m, "image"));
    hk_node *h = hk_dense(g, x, units, HK_ACT_RELU, NULL);
    hk_node *z = hk_dense(g, h, 10, HK_ACT_NONE, NULL);
    hk_spec_prediction(m, "class", hk_argmax(g, z, 1));
    if (mode == HK_PREDICT)
        return HK_OK;
    hk_node *y = hk_label(m, "label");
    hk_spec_loss(m, hk_sparse_softmax_cross_entropy(g, y, z, NULL, NULL));
    hk_spec_metric(m, "accuracy", HK_METRIC_ACCURACY, y, hk_argmax(g, z, 1),
                   NULL, NULL);
    return hk_spec_optimizer(m, HK_OPT_ADAM, 0.002);
}
