// backend/cuda/cuda_launch.h - how kernels are launched, and how threads of a
// block work together.
#ifndef HKI_CUDA_LAUNCH_H
#define HKI_CUDA_LAUNCH_H
#include <cuda_runtime.h>
#include <stdint.h>

#define HKI_CARD_NAME "cuda" // of the backend
#define HKI_ON_CARD static inline __device__
#define HKI_ON_BOTH static inline __host__ __device__
#define HKI_MEMBER inline __device__ // of a struct
#define HKI_KERNEL static __global__

cudaStream_t hki_stream(void); // where launches of the calling thread go

// kernel: in parentheses where it has a comma. The second one is for kernels
// whose threads meet (__syncthreads, hki_block_sum).
#define HKI_LAUNCH(kernel, blocks, threads, ...)                               \
    kernel<<<(blocks), (threads), 0, hki_stream()>>>(__VA_ARGS__)
#define HKI_LAUNCH_MEETING HKI_LAUNCH

// for (int i = 0; i < n; i++), written out.
#define HKI_FOR(i, n) _Pragma("unroll") for (int i = 0; i < (n); i++)

// x with the 10 bits of fraction that tensor cores take.
static inline __device__ float hki_tf32(float x) {
    uint32_t y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return __uint_as_float(y);
}

// c[16, 8] += a[16, 8] b[8, 8] over a warp. With g = lane / 4, t = lane % 4, a
// thread has a(g, t), a(g + 8, t), a(g, t + 4), a(g + 8, t + 4); b(t, g),
// b(t + 4, g); c(g, 2t), c(g, 2t + 1), c(g + 8, 2t), c(g + 8, 2t + 1).
static inline __device__ void hki_mma_tf32(float c[4], const float a[4],
                                           const float b[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])),
          "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
          "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}

// 16 bytes of shared memory from memory, or zeros where they are not there
// (from may be any address then). They have come after hki_copy_wait, for the
// thread that asked for them.
static inline __device__ void hki_copy_async(void *to, const void *from,
                                             bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     (unsigned)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}

static inline __device__ void hki_copy_wait(void) {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

// The sum of v over a warp, in every lane; all lanes take part. The order is
// that of a butterfly.
template <typename T> static inline __device__ T hki_warp_sum(T v) {
    for (int d = 16; d > 0; d /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, d);
    return v;
}

template <typename T> static inline __device__ T hki_warp_max(T v) {
    for (int d = 16; d > 0; d /= 2) {
        const T o = __shfl_xor_sync(0xffffffffu, v, d);
        v = o > v || o != o ? o : v;
    }
    return v;
}

// Bit l: f(l), which lane l finds out; all lanes take part.
template <typename F> static inline __device__ unsigned hki_warp_bits(F f) {
    return __ballot_sync(0xffffffffu, f((int)(threadIdx.x % 32)));
}

// The sum of v over all threads of a block, in every thread; blocks have a
// multiple of 32 threads, and all take part.
template <typename T> static inline __device__ T hki_block_sum(T v) {
    __shared__ T part[32];
    const int warps = blockDim.x / 32;
    v = hki_warp_sum(v);
    __syncthreads(); // part may still be read from the last sum
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = v;
    __syncthreads();
    T sum = 0;
    for (int i = 0; i < warps; i++)
        sum += part[i];
    return sum;
}

template <typename T> static inline __device__ T hki_block_max(T v) {
    __shared__ T part[32];
    const int warps = blockDim.x / 32;
    v = hki_warp_max(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = v;
    __syncthreads();
    T most = part[0];
    for (int i = 1; i < warps; i++)
        most = part[i] > most || part[i] != part[i] ? part[i] : most;
    return most;
}

#endif // HKI_CUDA_LAUNCH_H
