// backend/cuda/cuda.h - inside of the CUDA backend: its objects, the table of
// makers, and what kernels are written with.
//
// One .cu file per family of operators. A maker looks at a call's description
// and chooses how it runs (k->run); run launches kernels on the stream of the
// calling thread and returns. Nothing in a run waits, allocates or copies to
// the host, so that it can be recorded. Sums have one order, whatever the
// card: results are the same from run to run.
#ifndef HKI_CUDA_H
#define HKI_CUDA_H
#include <cuda_launch.h> // beside this file, or of a played card
#include "backend/cuda/card.h"
extern "C" {
#include "backend/vector.h"
}

// ---- objects ----------------------------------------------------------------

// On the card, for kernels: what changes from run to run.
typedef struct hki_control {
    uint64_t seed, step;
    uint64_t early; // values that were shown to the host
} hki_control;

// In host memory that the card reaches: the first call of a run that met
// values it cannot take. call 0: none.
typedef struct hki_blame {
    unsigned taken;    // by a thread that is about to tell
    int64_t call;      // its number in the run, from 1
    int64_t value, at; // the value, and where it stands
} hki_blame;

// Likewise: the last value that was shown, and the how many-th it is.
typedef struct hki_shown {
    uint64_t value, number;
} hki_shown;

struct hki_device {
    hki_card *card;
    hk_precision precision;
};

// One run of a kernel: addresses on the card.
typedef struct hki_cuda_call {
    const hki_kernel *k;
    hki_card *card;
    const void *in[HKI_MAX_ARGS]; // NULL: absent
    void *out[HKI_MAX_ARGS];
    void *scratch;
    const hki_control *control;
    hki_blame *blame;
    int64_t number; // of this call, for blame
} hki_cuda_call;

// How tiles.cu does a product; size 0: it is for the library.
typedef struct hki_cuda_tiles {
    int64_t size, rows, columns; // of tiles, and how many
    int64_t parts, chunk;        // of k
    int warps;                   // of a block, among which a part is divided
    bool tensor;                 // on tensor cores
} hki_cuda_tiles;

typedef hk_status (*hki_cuda_run)(const hki_cuda_call *c);

struct hki_kernel {
    hki_device *device;
    hki_kernel_desc desc;
    hki_cuda_run run;
    size_t scratch_bytes;
    hki_cuda_run run_floats; // bf16.cu: with factors at floats_at of scratch
    size_t floats_at;
    const char *note;
    bool random;               // reads control
    hki_product_plan *product; // NULL: none; destroyed with the kernel
    hki_conv_plan *conv;       // the same
    hki_cuda_tiles tiles;
    // Says what is wrong with a value; NULL: nothing can be.
    hk_status (*explain)(const hki_kernel *k, int64_t value, int64_t at);
};

// Sets k->run and what it needs. Leaves run NULL for what it does not do, and
// the plan says so.
typedef hk_status (*hki_cuda_maker)(hki_kernel *k);

// One list per file.
#define HKI_CUDA_ELEMENTS(X)                                                   \
    X(unary)                                                                   \
    X(unary_grad)                                                              \
    X(binary)                                                                  \
    X(where)                                                                   \
    X(cast)                                                                    \
    X(dropout)                                                                 \
    X(random)
#define HKI_CUDA_MOVES(X)                                                      \
    X(reshape)                                                                 \
    X(identity)                                                                \
    X(stop_gradient)                                                           \
    X(reorder)                                                                 \
    X(transpose)                                                               \
    X(slice)                                                                   \
    X(broadcast_to)                                                            \
    X(pad)                                                                     \
    X(concat)
#define HKI_CUDA_PRODUCTS(X)                                                   \
    X(matmul)                                                                  \
    X(dense)                                                                   \
    X(act_bias_grad)
#define HKI_CUDA_REDUCE(X)                                                     \
    X(reduce)                                                                  \
    X(reduce_max_grad)                                                         \
    X(sum_to)                                                                  \
    X(l2_loss)                                                                 \
    X(argmax)                                                                  \
    X(top_k)
#define HKI_CUDA_SOFTMAX(X)                                                    \
    X(softmax)                                                                 \
    X(softmax_grad)                                                            \
    X(log_softmax)                                                             \
    X(log_softmax_grad)                                                        \
    X(sparse_softmax_xent)                                                     \
    X(softmax_xent)
#define HKI_CUDA_ROWS(X)                                                       \
    X(gather)                                                                  \
    X(one_hot)                                                                 \
    X(scatter_add)                                                             \
    X(embedding_bag)                                                           \
    X(embedding_bag_grad)                                                      \
    X(sparse_merge)                                                            \
    X(assign_moving)
#define HKI_CUDA_CONV(X)                                                       \
    X(conv2d)                                                                  \
    X(conv2d_grad_input)                                                       \
    X(conv2d_grad_filter)
#define HKI_CUDA_POOL(X)                                                       \
    X(max_pool)                                                                \
    X(max_pool_grad)                                                           \
    X(avg_pool)                                                                \
    X(avg_pool_grad)                                                           \
    X(global_avg_pool)                                                         \
    X(global_avg_pool_grad)
#define HKI_CUDA_NORM(X)                                                       \
    X(batch_norm)                                                              \
    X(batch_norm_grad)                                                         \
    X(affine)                                                                  \
    X(layer_norm)                                                              \
    X(layer_norm_grad)
#define HKI_CUDA_MAKERS(X)                                                     \
    HKI_CUDA_ELEMENTS(X)                                                       \
    HKI_CUDA_MOVES(X)                                                          \
    HKI_CUDA_PRODUCTS(X)                                                       \
    HKI_CUDA_REDUCE(X)                                                         \
    HKI_CUDA_SOFTMAX(X)                                                        \
    HKI_CUDA_ROWS(X)                                                           \
    HKI_CUDA_CONV(X)                                                           \
    HKI_CUDA_POOL(X)                                                           \
    HKI_CUDA_NORM(X)
#define HKI_CUDA_DECLARE(op) hk_status hki_cuda_make_##op(hki_kernel *k);
HKI_CUDA_MAKERS(HKI_CUDA_DECLARE)
#undef HKI_CUDA_DECLARE

// ---- tiles.cu ---------------------------------------------------------------

// By the shapes alone. The strides are those of matrices end to end.
hki_cuda_tiles hki_tiles_of(const hki_product *p);
size_t hki_tiles_scratch(const hki_cuda_tiles *t, const hki_product *d);
void hki_tiles_run(const hki_cuda_tiles *t, const hki_product *d,
                   const float *a, const float *b, const float *bias, int act,
                   float *c, void *scratch);

// ---- lanes.cu ---------------------------------------------------------------

// Where a call of a recorded run goes, and what it comes after.
typedef struct hki_cuda_turn {
    int lane;
    uint32_t after[HKI_GRAPH_LANES]; // so many calls of each lane are over
} hki_cuda_turn;

// A turn for each of n calls, from the bytes they read and write.
hk_status hki_cuda_take_turns(const hki_kernel_call *calls, size_t n,
                              hki_cuda_turn *out);

// ---- bf16.cu ----------------------------------------------------------------

// A product whose factors are bfloat16, by the maker of its operator.
hk_status hki_cuda_make_bf16(hki_kernel *k, hki_cuda_maker maker);
// y = x, rounded
void hki_cuda_round(const float *x, uint16_t *y, int64_t n);

// ---- vectors.cu -------------------------------------------------------------

extern const hki_vector_ops hki_vector_ops_cuda;

// ---- uploads.cu -------------------------------------------------------------

typedef struct hki_uploads hki_uploads; // of a queue

hk_status hki_uploads_create(hki_card *c, hki_uploads **out);
void hki_uploads_destroy(hki_uploads *u); // when all of them are over
// The calling thread's stream has the values from here on.
hk_status hki_uploads_send(hki_uploads *u, const hki_write *w, size_t n,
                           void *(*at)(hki_loc));

// ---- exchange.cu ------------------------------------------------------------

hk_status hki_cuda_shared_create(hki_device *d, void *host, size_t bytes,
                                 hki_shared **out);
void hki_cuda_shared_destroy(hki_shared *s);
hk_status hki_cuda_shared_wait(hki_shared *s);
hk_status hki_cuda_exchange(const hki_place *p, const hki_exchange_job *j);
hk_status hki_cuda_exchange_sums(const hki_place *p, double sums[3]);

// Sums of an exchange: three for each block, in host memory. Blocks are four
// for each processor of a large card: what they have under way fills the time
// that memory takes to answer.
#define HKI_EXCHANGE_BLOCKS 528
typedef double hki_exchange_sums[HKI_EXCHANGE_BLOCKS][3];
hk_status hki_cuda_exchange_place(const hki_place *p, hki_exchange_sums **out);

// ---- for the table of vectors -----------------------------------------------

// Where bytes wait to go up or come down.
typedef struct hki_stage {
    void *host;
    size_t bytes;
    hki_mark *mark; // behind the last copy
} hki_stage;

#define HKI_STAGE_BYTES ((size_t)4 << 20) // longer copies go in pieces

// The calling thread works at a place from now on: what others have asked for
// there is over.
hk_status hki_cuda_enter(const hki_place *p);
// The next stage of a place, with room for n bytes and nothing under way. Its
// mark is set behind the copy.
hk_status hki_cuda_stage(const hki_place *p, size_t n, hki_stage **out);
// Memory of the card for what is launched before the next call.
hk_status hki_cuda_room(const hki_place *p, size_t bytes, void **out);
// Host memory that the card writes n pairs of sums to; good to read after a
// wait, until the next call.
hk_status hki_cuda_sums(const hki_place *p, size_t n, double (**out)[2]);

// ---- for makers -------------------------------------------------------------

static inline int64_t hki_elements(const hki_tensor_desc *t) {
    int64_t n = 1;
    for (int i = 0; i < t->shape.rank; i++)
        n *= t->shape.dim[i];
    return n;
}

static inline bool hki_is_f32(const hki_tensor_desc *t) {
    return t->dtype == HK_F32;
}

// Row-major strides of `from` seen as `to`, of the same rank or a higher one: 0
// along what is repeated.
static inline void hki_strides(const hk_shape *from, const hk_shape *to,
                               int64_t stride[HK_MAX_RANK]) {
    const int lead = to->rank - from->rank;
    int64_t n = 1;
    for (int i = to->rank - 1; i >= 0; i--) {
        const int64_t dim = i < lead ? 1 : from->dim[i - lead];
        stride[i] = dim == 1 ? 0 : n;
        n *= dim;
    }
}

// Whether all of these can be read by fours; NULL is nobody.
static inline bool hki_by_fours(const void *a, const void *b = NULL,
                                const void *c = NULL, const void *d = NULL) {
    const uintptr_t at =
        (uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d;
    return at % (4 * sizeof(float)) == 0;
}

// Blocks of `threads` for n elements, one each; never none.
static inline unsigned hki_blocks(int64_t n, int threads) {
    const int64_t blocks = (n + threads - 1) / threads;
    return (unsigned)(blocks < 1 ? 1 : blocks);
}

// Takes run<T> where elements are only moved: T has their size.
#define HKI_BY_SIZE(k, run)                                                    \
    hki_by_size(k, run<uint8_t>, run<uint16_t>, run<uint32_t>, run<uint64_t>)

static inline hk_status hki_by_size(hki_kernel *k, hki_cuda_run one,
                                    hki_cuda_run two, hki_cuda_run four,
                                    hki_cuda_run eight) {
    const size_t size = hk_dtype_size(k->desc.out[0].dtype);
    k->run = size == 1 ? one : size == 2 ? two : size == 4 ? four : eight;
    return HK_OK;
}

// ---- for kernels ------------------------------------------------------------

#define HKI_THREADS 256 // of a block, where nothing speaks for another number

// The number of this thread among all of its launch.
HKI_ON_CARD int64_t hki_self(void) {
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

// V floats that lie side by side, V 1 or 4; four are one access.
template <int V> HKI_ON_CARD void hki_load(const float *from, float *to) {
    if (V < 4) {
        to[0] = from[0];
        return;
    }
    const float4 four = *(const float4 *)from;
    to[0] = four.x;
    to[V > 1 ? 1 : 0] = four.y;
    to[V > 2 ? 2 : 0] = four.z;
    to[V > 3 ? 3 : 0] = four.w;
}

template <int V> HKI_ON_CARD void hki_store(float *to, const float *v) {
    if (V < 4)
        to[0] = v[0];
    else
        *(float4 *)to = make_float4(v[0], v[V > 1 ? 1 : 0], v[V > 2 ? 2 : 0],
                                    v[V > 3 ? 3 : 0]);
}

// i / d and what is left; most divisions need 32 bits, which are quick.
HKI_ON_CARD int64_t hki_divide(int64_t i, int64_t d, int64_t *rest) {
    const int64_t q = ((uint64_t)(i | d) >> 32) == 0
                          ? (int64_t)((uint32_t)i / (uint32_t)d)
                          : i / d;
    *rest = i - q * d;
    return q;
}

// Axes of a tensor that are walked in their order, outermost first.
typedef struct hki_axes {
    int rank;
    int64_t dim[HK_MAX_RANK], stride[HK_MAX_RANK];
} hki_axes;

// Adds one inside of the others; what can be walked as one becomes one.
static inline void hki_axes_add(hki_axes *a, int64_t dim, int64_t stride) {
    const int last = a->rank - 1;
    if (dim == 1)
        return;
    if (last >= 0 && a->stride[last] == dim * stride) {
        a->dim[last] *= dim;
        a->stride[last] = stride;
        return;
    }
    a->dim[a->rank] = dim;
    a->stride[a->rank++] = stride;
}

// Where element i is.
HKI_ON_CARD int64_t hki_axes_at(const hki_axes *a, int64_t i) {
    int64_t at = 0;
    for (int d = a->rank - 1; d > 0; d--) {
        int64_t x;
        i = hki_divide(i, a->dim[d], &x);
        at += x * a->stride[d];
    }
    return a->rank > 0 ? at + i * a->stride[0] : 0;
}

// Of any stored type. Index tensors hold int32 or int64.
HKI_ON_CARD int64_t hki_index_at(const void *p, hk_dtype t, int64_t i) {
    return t == HK_I32 ? (int64_t)((const int32_t *)p)[i]
                       : ((const int64_t *)p)[i];
}

HKI_ON_CARD float hki_bf16_value(uint16_t x) {
    union {
        uint32_t bits;
        float value;
    } u;
    u.bits = (uint32_t)x << 16;
    return u.value;
}

// To the nearest, ties to even; a NaN stays one.
HKI_ON_CARD uint16_t hki_bf16_of(float x) {
    union {
        float value;
        uint32_t bits;
    } u;
    u.value = x;
    if (x != x)
        return (uint16_t)(u.bits >> 16 | 0x40);
    return (uint16_t)((u.bits + 0x7fff + (u.bits >> 16 & 1)) >> 16);
}

// The functions of attr.act, and their slope where y is the result.
HKI_ON_CARD float hki_act_of(int act, float x) {
    return act == HKI_U_RELU      ? (x > 0    ? x
                                     : x != x ? x
                                              : 0)
           : act == HKI_U_SIGMOID ? 1.0f / (1.0f + expf(-x))
           : act == HKI_U_TANH    ? tanhf(x)
                                  : x;
}

HKI_ON_CARD float hki_act_slope(int act, float y) {
    return act == HKI_U_RELU      ? (y > 0 ? 1.0f : 0.0f)
           : act == HKI_U_SIGMOID ? y * (1 - y)
           : act == HKI_U_TANH    ? 1 - y * y
                                  : 1.0f;
}

// A data error: the first one of a run is told. Which of several threads is
// first does not matter: any of them is a reason to end. A kernel goes on
// without the value.
HKI_ON_CARD void hki_blame_value(hki_blame *b, int64_t call, int64_t value,
                                 int64_t at) {
    if (atomicCAS(&b->taken, 0u, 1u) != 0)
        return;
    b->value = value;
    b->at = at;
    __threadfence_system(); // whoever sees the call sees the value
    b->call = call;
}

#endif // HKI_CUDA_H
