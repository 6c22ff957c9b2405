// backend/cuda/fragments.h - a tile of a product in a block of four warps:
// where its operands lie in shared memory, which elements a thread has, and the
// sum over one step of k.
#ifndef HKI_CUDA_FRAGMENTS_H
#define HKI_CUDA_FRAGMENTS_H
#include "backend/cuda/cuda.h"

#define HKI_WIDTH 32  // of k, that are in shared memory at a time
#define HKI_LANES 128 // threads of a block: 2 x 2 warps

// One of the four warps: where in the tile its part is.
typedef struct hki_spot {
    int row, column; // of the warp
    int group, lane; // g = lane / 4, t = lane % 4 of the fragments
} hki_spot;

HKI_ON_CARD hki_spot hki_my_spot(int bm, int bn) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    return hki_spot{(warp / 2) * (bm / 2), (warp % 2) * (bn / 2), lane / 4,
                    lane % 4};
}

// Rows of an operand in shared memory: a stride of 36 keeps the 32 reads of a
// fragment in different banks.
#define HKI_STRIDE (HKI_WIDTH + 4)

// The sum over HKI_WIDTH of one warp: fragments of 16 x 8 of c.
template <int BM, int BN>
HKI_ON_CARD void hki_multiply(const float (*a)[HKI_STRIDE],
                              const float (*b)[HKI_STRIDE], hki_spot s,
                              float (*sum)[BN / 16][4]) {
    HKI_FOR (step, HKI_WIDTH / 8) {
        const int l = 8 * step;
        float fa[BM / 32][4], fb[BN / 16][2];
        HKI_FOR (i, BM / 32) {
            const int r = s.row + 16 * i + s.group;
            fa[i][0] = a[r][l + s.lane];
            fa[i][1] = a[r + 8][l + s.lane];
            fa[i][2] = a[r][l + s.lane + 4];
            fa[i][3] = a[r + 8][l + s.lane + 4];
        }
        HKI_FOR (j, BN / 16) {
            const int r = s.column + 8 * j + s.group;
            fb[j][0] = b[r][l + s.lane];
            fb[j][1] = b[r][l + s.lane + 4];
        }
        HKI_FOR (i, BM / 32)
            HKI_FOR (j, BN / 16)
                hki_mma_tf32(sum[i][j], fa[i], fb[j]);
    }
}

// The same without tensor cores, in whole floats.
template <int BM, int BN>
HKI_ON_CARD void hki_multiply_fp32(const float (*a)[HKI_STRIDE],
                                   const float (*b)[HKI_STRIDE], hki_spot s,
                                   float (*sum)[BN / 16][4]) {
    for (int l = 0; l < HKI_WIDTH; l++)
        HKI_FOR (i, BM / 32)
            HKI_FOR (j, BN / 16)
                HKI_FOR (e, 4)
                    sum[i][j][e] +=
                        a[s.row + 16 * i + s.group + (e / 2) * 8][l] *
                        b[s.column + 8 * j + 2 * s.lane + e % 2][l];
}

#endif // HKI_CUDA_FRAGMENTS_H
