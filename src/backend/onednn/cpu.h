// onednn/cpu.h - what the files of the fast CPU backend share: its objects
// and the makers of its kernels.
#ifndef HKI_CPU_H
#define HKI_CPU_H
#include "backend/onednn/dnnl.h"
#include "backend/onednn/onednn_kernels.h"
#include "base/team.h"

struct hki_device {
    int threads;
    hk_isa isa;
    bool bf16; // factors of products are
    hki_dnnl *dnnl;
    const hki_ewise_kernels *ewise;
    const hki_reduce_kernels *reduce;
    const hki_norm_kernels *norm;
    const hki_softmax_kernels *softmax;
    const hki_pool_kernels *pool;
    const hki_move_kernels *move;
    const hki_embed_kernels *embed;
};

// Library ops of one kernel: the usual one, and a spare.
#define HKI_CPU_OPS 2

// One run of a kernel.
typedef struct hki_cpu_call {
    const hki_kernel *k;
    hki_dnnl_state *state[HKI_CPU_OPS]; // of k->op; NULL where there is none
    const hki_dnnl_stream *stream;
    void *in[HKI_MAX_ARGS];  // NULL: absent
    void *out[HKI_MAX_ARGS]; // NULL: nobody asks
    hki_kernel_run run;
} hki_cpu_call;

typedef hk_status (*hki_cpu_run)(const hki_cpu_call *c);

struct hki_kernel {
    hki_device *device;
    hki_kernel_desc desc;
    hki_cpu_run run;
    size_t scratch_bytes;
    const char *note; // constant, or owned by op
    void *plan;       // what the maker worked out; one hki_alloc block
    hki_dnnl_op *op[HKI_CPU_OPS];
};

// A maker fills k->run (and plan, op, scratch_bytes, note) for k->desc. One
// that has no kernel for these types or shapes returns HK_OK and leaves run
// NULL: the portable kernel takes over.
typedef hk_status (*hki_cpu_maker)(hki_kernel *k);

hk_status hki_make_matmul(hki_kernel *k);
hk_status hki_make_dense(hki_kernel *k);
hk_status hki_make_act_bias_grad(hki_kernel *k);
hk_status hki_make_conv2d(hki_kernel *k);
hk_status hki_make_conv2d_grad_input(hki_kernel *k);
hk_status hki_make_conv2d_grad_filter(hki_kernel *k);
hk_status hki_make_max_pool(hki_kernel *k);
hk_status hki_make_max_pool_grad(hki_kernel *k);
hk_status hki_make_avg_pool(hki_kernel *k);
hk_status hki_make_avg_pool_grad(hki_kernel *k);
hk_status hki_make_global_avg_pool(hki_kernel *k);
hk_status hki_make_global_avg_pool_grad(hki_kernel *k);
hk_status hki_make_batch_norm(hki_kernel *k);
hk_status hki_make_batch_norm_grad(hki_kernel *k);
hk_status hki_make_affine(hki_kernel *k);
hk_status hki_make_layer_norm(hki_kernel *k);
hk_status hki_make_layer_norm_grad(hki_kernel *k);
hk_status hki_make_softmax(hki_kernel *k); // all four of the family
hk_status hki_make_sparse_softmax_xent(hki_kernel *k);
hk_status hki_make_softmax_xent(hki_kernel *k);
hk_status hki_make_unary(hki_kernel *k);
hk_status hki_make_unary_grad(hki_kernel *k);
hk_status hki_make_binary(hki_kernel *k);
hk_status hki_make_dropout(hki_kernel *k);
hk_status hki_make_assign_moving(hki_kernel *k);
hk_status hki_make_cast(hki_kernel *k);
hk_status hki_make_reduce(hki_kernel *k);
hk_status hki_make_sum_to(hki_kernel *k);
hk_status hki_make_l2_loss(hki_kernel *k);
hk_status hki_make_broadcast_to(hki_kernel *k);
hk_status hki_make_concat(hki_kernel *k);
hk_status hki_make_slice(hki_kernel *k);
hk_status hki_make_pad(hki_kernel *k);
hk_status hki_make_transpose(hki_kernel *k);
hk_status hki_make_reorder(hki_kernel *k);
hk_status hki_make_embedding_bag(hki_kernel *k);
hk_status hki_make_embedding_bag_grad(hki_kernel *k);

// Runs the portable kernel, around reorders where images are blocked. Also
// how fast kernels report bad data: same checks, same words.
hk_status hki_cpu_run_portable(const hki_cpu_call *c);
size_t hki_cpu_portable_scratch(const hki_kernel_desc *d);

// ---- small things for makers -----------------------------------------------

bool hki_cpu_f32(const hki_tensor_desc *t); // float32
// Both factors of a product are float32, or both bfloat16.
bool hki_cpu_factors(const hki_tensor_desc *a, const hki_tensor_desc *b);
int64_t hki_cpu_elements(const hki_tensor_desc *t);
static inline bool hki_cpu_present(const hki_kernel_desc *d, int input) {
    return input < d->n_in && d->in[input].dtype != 0;
}
// Rows of channels as the format has them; any rank >= 1 when plain.
hki_tiles hki_cpu_tiles(const hki_tensor_desc *t);
// Zeroed plan of size bytes in k->plan.
hk_status hki_cpu_plan(hki_kernel *k, size_t size);
// hki_team_for on the kernel's device.
void hki_cpu_split(const hki_kernel *k, int64_t items, int64_t cost,
                   int64_t align, hki_team_fn fn, const void *args);
int hki_cpu_split_parts(const hki_kernel *k, int64_t items, int64_t cost,
                        int64_t align);

#define HKI_CPU_ALIGN(bytes) (((size_t)(bytes) + 63) / 64 * 64)

#endif // HKI_CPU_H
