// reorder.c - reorder(x): an image tensor [N,H,W,C] in another memory format.
//
// The formats are those of the views; plans insert these calls.
#include "graph/ops/common.h"

static hk_status infer_reorder(hki_infer *c) {
    return hki_infer_out(c, 0, c->in[0].dtype, c->in[0].shape);
}

// Position of element [n,h,w,c]; pixel is h * W + w.
static int64_t place(const hki_view *v, int64_t n, int64_t pixel, int64_t c) {
    const int64_t pixels = v->shape.dim[1] * v->shape.dim[2];
    const int64_t channels = v->shape.dim[3];
    const int64_t block = hki_format_block(v->format);
    if (block == 0)
        return (n * pixels + pixel) * channels + c;
    const int64_t row = n * (channels / block) + c / block;
    return (row * pixels + pixel) * block + c % block;
}

HKI_PORTABLE(run_reorder) {
    const size_t size = hk_dtype_size(in->dtype);
    if (out->count == 0)
        return HK_OK;
    if (in->format == out->format) {
        memcpy(out->data, in->data, (size_t)out->count * size);
        return HK_OK;
    }
    const int64_t pixels = in->shape.dim[1] * in->shape.dim[2];
    for (int64_t n = 0; n < in->shape.dim[0]; n++)
        for (int64_t p = 0; p < pixels; p++)
            for (int64_t c = 0; c < in->shape.dim[3]; c++)
                hki_copy_elem(out, place(out, n, p, c), in, place(in, n, p, c));
    return HK_OK;
}

const hki_op hki_op_reorder = {
    HKI_OPERATOR_RULES(reorder, 1, 1, 1),
};
