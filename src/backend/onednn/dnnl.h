// onednn/dnnl.h - Hooke's view of oneDNN. dnnl.c is the only file that
// includes the library's header, so that its next major version touches one
// file.
//
// An op is a short fixed sequence of primitives (reorder the weights, compute,
// reorder the result) over the caller's pointers and one scratch block. It is
// immutable and shared by threads; what one session needs to run it is an op
// state. Primitives are made for the OpenMP thread count in force at creation
// and must run under the same count.
#ifndef HKI_DNNL_H
#define HKI_DNNL_H
#include "backend/backend.h"

typedef struct hki_dnnl hki_dnnl;               // the engine
typedef struct hki_dnnl_stream hki_dnnl_stream; // one per queue
typedef struct hki_dnnl_op hki_dnnl_op;
typedef struct hki_dnnl_state hki_dnnl_state;

const char *hki_dnnl_version(void); // "oneDNN 2.6.0"
hk_status hki_dnnl_open(hki_dnnl **out);
void hki_dnnl_close(hki_dnnl *d); // NULL is allowed
hk_status hki_dnnl_stream_create(const hki_dnnl *d, hki_dnnl_stream **out);
void hki_dnnl_stream_destroy(hki_dnnl_stream *s); // NULL is allowed

#define HKI_DNNL_PTRS 4 // caller's pointers of one op

void hki_dnnl_op_destroy(hki_dnnl_op *op); // NULL is allowed
size_t hki_dnnl_op_scratch(const hki_dnnl_op *op);
// Name of the implementation that computes, such as "jit:avx512_core".
const char *hki_dnnl_op_impl(const hki_dnnl_op *op);
hk_status hki_dnnl_state_create(const hki_dnnl_op *op, hki_dnnl_state **out);
void hki_dnnl_state_destroy(hki_dnnl_state *s); // NULL is allowed
// ptr: see the op's creator. scratch: 64-byte aligned.
hk_status hki_dnnl_run(const hki_dnnl_op *op, hki_dnnl_state *s,
                       const hki_dnnl_stream *stream,
                       void *const ptr[HKI_DNNL_PTRS], void *scratch);

// c [m, n] = op(a) op(b), all row-major with row lengths lda, ldb, ldc. The
// call needs no op; it uses the calling thread's OpenMP thread count.
hk_status hki_dnnl_sgemm(bool trans_a, bool trans_b, int64_t m, int64_t n,
                         int64_t k, const float *a, int64_t lda, const float *b,
                         int64_t ldb, float *c, int64_t ldc);

// The same product as an op over the pointers {a, b, c}.
typedef struct hki_dnnl_matmul {
    int64_t m, n, k;
    bool trans_a, trans_b;
    bool bf16; // a and b are bfloat16, c is float32
} hki_dnnl_matmul;

hk_status hki_dnnl_matmul_create(const hki_dnnl *d, const hki_dnnl_matmul *m,
                                 hki_dnnl_op **out);

typedef enum hki_conv_kind {
    HKI_CONV_FORWARD = 0, // pointers {x, w, bias or NULL, y}
    HKI_CONV_INPUT = 1,   // {dx (out), w, NULL, dy}
    HKI_CONV_FILTER = 2   // {x, dw (out), db (out) or NULL, dy}
} hki_conv_kind;

typedef struct hki_dnnl_conv {
    hki_conv_kind kind;
    int64_t n, ih, iw, ic, oh, ow, oc, kh, kw;
    int32_t stride[2], dilation[2], pad[4], groups; // pad: t, b, l, r
    hki_format x_format, y_format;                  // of the caller's images
    bool bias, relu;
    bool bf16;     // what is read is bfloat16 (but for the bias)
    bool winograd; // tried first; direct where the library has none
} hki_dnnl_conv;

hk_status hki_dnnl_conv_create(const hki_dnnl *d, const hki_dnnl_conv *c,
                               hki_dnnl_op **out);

#endif // HKI_DNNL_H
