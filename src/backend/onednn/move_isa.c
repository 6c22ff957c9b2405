// move_isa.c - transposition and the way between plain and blocked images.
#include "backend/onednn/row_runs.h"

// In squares of 16 x 16, which stay in the first cache on both sides.
enum { SQUARE = 16 };

static void turn(const void *args, int64_t begin, int64_t end, int part) {
    const hki_turn_args *p = args;
    (void)part;
    for (int64_t row = begin; row < end;) {
        const int64_t batch = row / p->rows, first = row % p->rows;
        int64_t n = p->rows - first < end - row ? p->rows - first : end - row;
        n = n < SQUARE ? n : SQUARE;
        const uint32_t *x = p->x + batch * p->x_batch + first * p->x_row;
        uint32_t *y = p->y + batch * p->y_batch + first;
        for (int64_t c = 0; c < p->cols; c += SQUARE) {
            const int64_t m = p->cols - c < SQUARE ? p->cols - c : SQUARE;
            for (int64_t j = 0; j < m; j++)
                for (int64_t i = 0; i < n; i++)
                    y[(c + j) * p->y_row + i] = x[i * p->x_row + c + j];
        }
        row += n;
    }
}

INLINE void copy_block(float *to, int64_t to_step, const float *from,
                       int64_t from_step, int64_t rows, int64_t block) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < block; j += VL)
            vf_store(to + r * to_step + j,
                     vf_load(from + r * from_step + j, block - j), block - j);
}

static void to_blocked(const void *args, int64_t begin, int64_t end, int part) {
    const hki_block_args *p = args;
    const int64_t blocks = p->channels / p->block;
    (void)part;
    for (int64_t t = begin; t < end; t++)
        copy_block(p->y + t * p->rows * p->block, p->block,
                   p->x + t / blocks * p->rows * p->channels +
                       t % blocks * p->block,
                   p->channels, p->rows, p->block);
}

static void to_plain(const void *args, int64_t begin, int64_t end, int part) {
    const hki_block_args *p = args;
    const int64_t blocks = p->channels / p->block;
    (void)part;
    for (int64_t t = begin; t < end; t++)
        copy_block(p->y + t / blocks * p->rows * p->channels +
                       t % blocks * p->block,
                   p->channels, p->x + t * p->rows * p->block, p->block,
                   p->rows, p->block);
}

const hki_move_kernels HKI_ISA_NAME(hki_move_table) = {
    .turn = turn,
    .to_blocked = to_blocked,
    .to_plain = to_plain,
};
