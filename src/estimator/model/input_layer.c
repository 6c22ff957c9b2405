// input_layer.c - feature columns as parts of a graph.
//
// hk_data_features gives one float tensor "dense" and an id tensor for each
// categorical column; hk_feature_set_get_info says which is which.
#include "estimator/estimator.h"
#include "hooke/canned.h"

enum {
    MOST_PARTS = 512 // columns of one use
};

// The floats of "dense" for a network; NULL when there are none.
static hk_node *deep_part(hk_spec *m, const hk_feature_set_info *set) {
    hk_graph *const g = hki_spec_graph(m);
    if (set->deep_width == 0)
        return NULL;
    hk_node *const all = hk_feature(m, HK_FEATURES_DENSE);
    if (set->deep_width == set->dense_width)
        return all;
    return hk_slice(g, all, (const int64_t[]){0, 0},
                    (const int64_t[]){-1, set->deep_width});
}

// Sum or mean of a table's rows, [batch, dim]. name: of the variable.
static hk_node *bag(hk_spec *m, const hk_feature_output *o, const char *name,
                    int64_t dim, hk_init init) {
    hk_graph *const g = hki_spec_graph(m);
    const hk_shape shape = hk_shape_make(2, (int64_t[]){o->buckets, dim});
    hk_node *const table =
        hk_variable(g, name, shape, HK_TRAINABLE, init, HK_VAR_SPARSE);
    hk_node *const ids = hk_feature(m, o->tensor);
    hk_node *const weights =
        o->weights != NULL ? hk_feature(m, o->weights) : NULL;
    return hk_lookup_bag(g, table, ids, weights,
                         o->combiner == HK_COMBINE_MEAN ? HK_BAG_MEAN
                                                        : HK_BAG_SUM);
}

// Columns that share a table share the scope, and with it the variable.
static hk_node *embedding(hk_spec *m, const hk_feature_output *o, bool first) {
    hk_graph *const g = hki_spec_graph(m);
    hk_scope_enter(g, o->table != NULL ? o->table : o->name, !first);
    // As TensorFlow: a truncated normal with deviation 1 / sqrt(dimension).
    const double deviation = 1 / __builtin_sqrt((double)o->dimension);
    hk_node *const x =
        bag(m, o, "embedding_weights", o->dimension,
            hk_init_make(HK_INIT_TRUNCATED_NORMAL, 0, deviation));
    hk_scope_pop(g);
    return x;
}

static bool first_of_table(const hk_feature_output *list, size_t i) {
    for (size_t k = 0; k < i; k++)
        if (list[k].kind == HK_FEATURE_IDS && list[k].dimension > 0 &&
            list[k].table != NULL && list[i].table != NULL &&
            strcmp(list[k].table, list[i].table) == 0)
            return false;
    return true;
}

hk_node *hk_input_layer(hk_spec *m, const hk_feature_set *s) {
    hk_graph *const g = hki_spec_graph(m);
    hk_feature_set_info set;
    size_t parts = 0;
    hk_node *part[MOST_PARTS + 1];
    if (hk_feature_set_get_info(s, &set) != HK_OK)
        return NULL;
    const hk_feature_output *const list = set.outputs;
    hk_scope_enter(g, "input_layer", 0);
    part[parts] = deep_part(m, &set);
    parts += part[parts] != NULL;
    for (size_t i = 0; i < set.output_count && parts < MOST_PARTS; i++)
        if (list[i].use == HK_USE_DEEP && list[i].kind == HK_FEATURE_IDS)
            part[parts++] = embedding(m, &list[i], first_of_table(list, i));
    hk_scope_pop(g);
    // Without deep columns concat reports the empty list.
    return parts == 1 ? part[0] : hk_concat(g, part, (int)parts, 1);
}

// Weights of a stretch of "dense", one row per float.
static hk_node *dense_weights(hk_spec *m, const hk_feature_output *o,
                              int64_t units) {
    hk_graph *const g = hki_spec_graph(m);
    hk_node *const all = hk_feature(m, HK_FEATURES_DENSE);
    const hk_shape shape = hk_shape_make(2, (int64_t[]){o->width, units});
    hk_node *const w = hk_variable(g, "weights", shape, HK_TRAINABLE,
                                   hk_init_make(HK_INIT_ZEROS, 0, 0), 0);
    hk_node *const x = hk_slice(g, all, (const int64_t[]){0, o->offset},
                                (const int64_t[]){-1, o->width});
    return hk_matmul(g, x, w, 0, 0);
}

hk_node *hk_linear_model(hk_spec *m, const hk_feature_set *s, int64_t units) {
    hk_graph *const g = hki_spec_graph(m);
    hk_feature_set_info set;
    if (hk_feature_set_get_info(s, &set) != HK_OK)
        return NULL;
    const hk_feature_output *const list = set.outputs;
    hk_scope_enter(g, "linear_model", 0);
    hk_node *sum =
        hk_variable(g, "bias_weights", hk_shape_make(1, (int64_t[]){units}),
                    HK_TRAINABLE, hk_init_make(HK_INIT_ZEROS, 0, 0), 0);
    for (size_t i = 0; i < set.output_count; i++) {
        if (list[i].use != HK_USE_LINEAR)
            continue;
        hk_scope_enter(g, list[i].name, 0);
        hk_node *const x = list[i].kind == HK_FEATURE_IDS
                               ? bag(m, &list[i], "weights", units,
                                     hk_init_make(HK_INIT_ZEROS, 0, 0))
                               : dense_weights(m, &list[i], units);
        hk_scope_pop(g);
        sum = hk_add(g, x, sum);
    }
    hk_scope_pop(g);
    return sum;
}
