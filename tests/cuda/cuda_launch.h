// cuda_launch.h - backend/cuda/cuda_launch.h on the host: a launch is a loop
// over blocks and threads. Threads of a block that meet are fibers of one
// thread of the host, which change places where they wait for each other.
#ifndef HK_TEST_CUDA_LAUNCH_H
#define HK_TEST_CUDA_LAUNCH_H
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#define __shared__ static thread_local
#define __restrict__
#define __launch_bounds__(...)
#define __grid_constant__
#define HKI_CARD_NAME "cuda-played"
#define HKI_ON_CARD static inline
#define HKI_ON_BOTH static inline
#define HKI_MEMBER inline
#define HKI_KERNEL static

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)
        : x(x_), y(y_), z(z_) {}
};
struct float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
static inline float4 make_float4(float x, float y, float z, float w) {
    return float4{x, y, z, w};
}

extern thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

// Runs it, or keeps it while a graph is recorded. meeting: threads wait for
// each other.
void hki_played_launch(dim3 blocks, dim3 threads, bool meeting,
                       const std::function<void()> &thread);
void __syncthreads();

#define HKI_LAUNCH_AS(meeting, kernel, blocks, threads, ...)                   \
    do {                                                                       \
        auto bound_ = [](auto f, auto... a) {                                  \
            return std::function<void()>([=] { f(a...); });                    \
        };                                                                     \
        hki_played_launch((blocks), (threads), meeting,                        \
                          bound_(kernel, __VA_ARGS__));                        \
    } while (0)
#define HKI_LAUNCH(...) HKI_LAUNCH_AS(false, __VA_ARGS__)
#define HKI_LAUNCH_MEETING(...) HKI_LAUNCH_AS(true, __VA_ARGS__)

static inline float __fmul_rn(float a, float b) {
    return a * b;
}
static inline float __fadd_rn(float a, float b) {
    return a + b;
}
static inline float rsqrtf(float x) {
    return 1.0f / sqrtf(x);
}
static inline uint32_t __umulhi(uint32_t a, uint32_t b) {
    return (uint32_t)((uint64_t)a * b >> 32);
}
template <typename T> static inline T __ldg(const T *p) {
    return *p;
}
// Threads take turns: nothing comes between.
static inline void __threadfence_system() {}
template <typename T> static inline T atomicCAS(T *at, T expected, T value) {
    const T was = *at;
    *at = was == expected ? value : was;
    return was;
}
template <typename T> static inline T atomicExch(T *at, T value) {
    const T was = *at;
    *at = value;
    return was;
}
template <typename T> static inline T atomicAdd(T *at, T value) {
    return atomicExch(at, *at + value);
}
template <typename T> static inline T atomicMax(T *at, T value) {
    return atomicExch(at, std::max(*at, value));
}
template <typename T> static inline T atomicMin(T *at, T value) {
    return atomicExch(at, std::min(*at, value));
}
static inline int __ffs(int x) {
    return __builtin_ffs(x);
}
static inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}

#define HKI_FOR(i, n) for (int i = 0; i < (n); i++)
static inline void __threadfence() {}
static inline unsigned atomicAdd(unsigned *p, unsigned x) {
    const unsigned old = *p;
    *p += x;
    return old;
}

// Whole floats: what differs on a card is rounding.
static inline float hki_tf32(float x) {
    return x;
}

// c[16, 8] += a[16, 8] b[8, 8] over a warp, from everybody's pieces.
static inline void hki_mma_tf32(float c[4], const float a[4],
                                const float b[2]) {
    static thread_local float as[1024][4], bs[1024][2];
    const unsigned first = threadIdx.x / 32 * 32, lane = threadIdx.x % 32;
    memcpy(as[threadIdx.x], a, sizeof as[0]);
    memcpy(bs[threadIdx.x], b, sizeof bs[0]);
    __syncthreads();
    for (unsigned e = 0; e < 4; e++) {
        const unsigned row = lane / 4 + e / 2 * 8,
                       column = lane % 4 * 2 + e % 2;
        for (unsigned l = 0; l < 8; l++)
            c[e] += as[first + row % 8 * 4 + l % 4][row / 8 + l / 4 * 2] *
                    bs[first + column * 4 + l % 4][l / 4];
    }
    __syncthreads();
}

// Copies come when they are waited for; until then nobody can use what is
// there.
struct hki_played_copy {
    float4 *to;
    const float4 *from;
};
static thread_local std::vector<hki_played_copy> hki_played_copies[1024];

static inline void hki_copy_async(void *to, const void *from, bool there) {
    float4 *const t = (float4 *)to;
    *t = float4{NAN, NAN, NAN, NAN};
    hki_played_copies[threadIdx.x].push_back(
        {t, there ? (const float4 *)from : nullptr});
}

static inline void hki_copy_wait(void) {
    for (const hki_played_copy &c : hki_played_copies[threadIdx.x])
        *c.to = c.from != nullptr ? *c.from : float4{0, 0, 0, 0};
    hki_played_copies[threadIdx.x].clear();
}

// The same trees as on a card; here all threads of a block take part. They meet
// as seldom as they can, since that is what takes time.
template <typename T, typename F>
static inline T hki_played_tree(const T *lane, F f) {
    T v[32];
    std::copy(lane, lane + 32, v);
    for (unsigned d = 16; d > 0; d /= 2)
        for (unsigned i = 0; i < d; i++)
            v[i] = f(v[i], v[i + d]);
    return v[0];
}

template <typename T, typename F> static inline T hki_played_warp(T v, F f) {
    static thread_local T lane[1024];
    lane[threadIdx.x] = v;
    __syncthreads();
    v = hki_played_tree(lane + threadIdx.x / 32 * 32, f);
    __syncthreads();
    return v;
}

template <typename T, typename F> static inline T hki_played_block(T v, F f) {
    static thread_local T lane[1024], all;
    lane[threadIdx.x] = v;
    __syncthreads();
    for (unsigned i = 0; threadIdx.x == 0 && i < blockDim.x; i += 32) {
        const T part = hki_played_tree(lane + i, f);
        all = i == 0 ? part : f(all, part);
    }
    __syncthreads();
    return all;
}

template <typename T> static inline T hki_played_sum(T a, T b) {
    return a + b;
}

template <typename T> static inline T hki_played_max(T a, T b) {
    return b > a || b != b ? b : a;
}

template <typename T> static inline T hki_warp_sum(T v) {
    return hki_played_warp(v, hki_played_sum<T>);
}

template <typename T> static inline T hki_warp_max(T v) {
    return hki_played_warp(v, hki_played_max<T>);
}

// Here one thread finds out for all: f looks at what all of them see.
template <typename F> static inline unsigned hki_warp_bits(F f) {
    unsigned bits = 0;
    for (int l = 0; l < 32; l++)
        bits |= f(l) ? 1u << l : 0u;
    return bits;
}

template <typename T> static inline T hki_block_sum(T v) {
    return hki_played_block(v, hki_played_sum<T>);
}

template <typename T> static inline T hki_block_max(T v) {
    return hki_played_block(v, hki_played_max<T>);
}

#endif // HK_TEST_CUDA_LAUNCH_H
