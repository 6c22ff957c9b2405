// backend/cuda/cuda_launch.h - how kernels are launched, and how threads of a
// block work together.
#ifndef HKI_CUDA_LAUNCH_H
#define HKI_CUDA_LAUNCH_H
#include <cuda_runtime.h>

#define HKI_ON_CARD static inline __device__
#define HKI_ON_BOTH static inline __host__ __device__
#define HKI_KERNEL static __global__

// kernel: in parentheses where it has a comma. The second one is for kernels
// whose threads meet (__syncthreads, hki_block_sum).
#define HKI_LAUNCH(kernel, blocks, threads, ...)                               \
    kernel<<<(blocks), (threads), 0, cudaStreamPerThread>>>(__VA_ARGS__)
#define HKI_LAUNCH_MEETING HKI_LAUNCH

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
