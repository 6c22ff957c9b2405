// layers.h - what several operator files share: argument checks for shape
// rules, fused activations, sliding windows and scratch in double.
#ifndef HKI_OPS_LAYERS_H
#define HKI_OPS_LAYERS_H
#include <math.h>
#include "graph/graph.h"
#include "graph/portable.h"

// ---- checks ---------------------------------------------------------------

// The inputs whose bits are set and that are present hold one float type,
// float32 or float64.
hk_status hki_check_floats(const hki_infer *c, uint32_t inputs);
// Of a product: the factors and the inputs whose bits are set besides. They
// hold one float type; or the factors bfloat16 and the rest float32, where
// attr.dtype says so. *result: the type of the result.
hk_status hki_check_product(const hki_infer *c, uint32_t others,
                            hk_dtype *result);
// Input i holds int32 or int64. what: its name in the message.
hk_status hki_check_index(const hki_infer *c, int i, const char *what);
hk_status hki_check_rank(const hki_infer *c, int i, const char *what, int rank);
hk_status hki_check_min_rank(const hki_infer *c, int i, const char *what,
                             int rank);
hk_status hki_check_shape(const hki_infer *c, int i, const char *what,
                          hk_shape want);
// Shape [n].
hk_status hki_check_vector(const hki_infer *c, int i, const char *what,
                           int64_t n);
// attr.dims holds the shape that a gradient gets back, of this rank.
hk_status hki_check_dims(const hki_infer *c, int rank, hk_shape *out);

hk_shape hki_vector_shape(int64_t n); // [n]
// Output o has shape [n] and the type of input 0.
void hki_infer_vector(const hki_infer *c, int o, int64_t n);
// Last dimension; s has rank 1 or more.
static inline int64_t hki_last_dim(hk_shape s) {
    return s.dim[s.rank - 1];
}
// Product of all dimensions but the last.
hk_status hki_row_count(const char *who, hk_shape s, int64_t *out);

// ---- fused activations ----------------------------------------------------

// NONE, RELU, SIGMOID or TANH: what dense and conv2d can have behind them.
hk_status hki_check_act(const hki_infer *c);
// NONE or RELU.
hk_status hki_check_relu(const hki_infer *c);
double hki_act_value(int32_t act, double z);
// Derivative by z, from y = act(z).
double hki_act_slope(int32_t act, double y);
// Splits act into the part that an operator fuses and the function to put
// behind it. HK_E_INVALID_ARG for an unknown one.
hk_status hki_act_split(hk_act act, const char *who, int32_t *fused,
                        hki_unary_fn *behind);

// ---- sliding windows ------------------------------------------------------

// Output size along axis i (0 height, 1 width) of attr's window over `in`
// elements; makes attr.pad explicit (SAME and VALID as TensorFlow does).
hk_status hki_window(const char *who, hki_attr *a, int i, int64_t in,
                     int64_t *out);

// NCHW images to NHWC and back. x may be NULL, as after any failed builder.
hk_node *hki_image_in(hk_graph *g, hk_node *x, hk_data_format format,
                      const char *who);
hk_node *hki_image_out(hk_graph *g, hk_node *y, hk_data_format format);

// ---- scratch --------------------------------------------------------------

// Elements of a concrete shape.
int64_t hki_desc_count(const hki_tensor_desc *d);
// Bytes of n doubles; SIZE_MAX, which no allocator grants, on overflow.
size_t hki_double_bytes(int64_t n);
size_t hki_bytes_sum(size_t a, size_t b);

// Copies v into doubles at `to`; returns what lies behind them.
static inline double *hki_widen(const hki_view *v, double *to) {
    for (int64_t i = 0; i < v->count; i++)
        to[i] = hki_ld(v, i);
    return to + v->count;
}

static inline void hki_narrow(const hki_view *v, const double *from) {
    for (int64_t i = 0; i < v->count; i++)
        hki_st(v, i, from[i]);
}

#endif // HKI_OPS_LAYERS_H
