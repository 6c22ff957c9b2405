// onednn/onednn_kernels.h - the vectorised loops of the fast CPU backend.
//
// Each *_isa.c file is compiled once per instruction-set level and ends in one
// const table of the functions below. A function works on a part [begin, end)
// of its items with arguments in a struct, so that one helper (base/team.h) can
// hand parts to threads. `part` numbers the part and picks the place for
// partial sums; parts depend on sizes and thread count only.
#ifndef HKI_CPU_KERNELS_H
#define HKI_CPU_KERNELS_H
#include "backend/backend.h"
#include "base/isa.h"
#include "base/team.h"

// A matrix or image as tiles of rows of channels: [tiles, rows, width]. Plain
// tensors are one tile as wide as the channels; blocked images have
// images x blocks tiles of one block's width. Items are the rows of all tiles.
typedef struct hki_tiles {
    int64_t tiles, rows, width;
    int64_t blocks; // tiles t, t + blocks, ... hold the same channels
} hki_tiles;

// ---- ewise_isa.c -----------------------------------------------------------

typedef struct hki_unary_args { // items: elements
    const float *x;             // input
    const float *y;             // gradients: the function's value
    const float *dy;            // gradients only
    float *out;
    float alpha, beta;
} hki_unary_args;

// Broadcast of two tensors: `rank` outer dimensions, an inner row of `row`
// elements along which a and b move by 0 or 1. Items: elements of the result.
typedef struct hki_binary_args {
    const float *a, *b;
    void *y; // float, or uint8_t for comparisons
    int rank;
    int step_a, step_b;
    int64_t row;
    int64_t dim[HK_MAX_RANK], stride_a[HK_MAX_RANK], stride_b[HK_MAX_RANK];
} hki_binary_args;

typedef struct hki_bias_args { // y = act(y + bias); items: rows
    float *y;
    const float *bias; // NULL: none
    int64_t cols;
    int act;
} hki_bias_args;

typedef struct hki_dropout_args { // items: elements
    const float *x;
    float *y;
    uint32_t key[2], stream, step;
    double threshold; // keep where word >= threshold
    float scale;
} hki_dropout_args;

typedef struct hki_moving_args { // var += take (value - var)
    float *var;
    const float *value;
    float take;
} hki_moving_args;

typedef struct hki_round_args { // y = x as bfloat16; items: elements
    const float *x;
    uint16_t *y;
} hki_round_args;

typedef struct hki_ewise_kernels {
    hki_team_fn unary[HKI_U_COUNT]; // NULL where there is none
    hki_team_fn unary_grad[HKI_U_COUNT];
    hki_team_fn binary[HKI_B_COUNT];
    hki_team_fn bias_act;
    hki_team_fn dropout;
    hki_team_fn moving;
    hki_team_fn round;
} hki_ewise_kernels;

// ---- reduce_isa.c ----------------------------------------------------------

// Sums per channel in double, over runs of floats short enough to be exact to
// a few units. sum: [parts, channels], zeroed by the caller.
typedef struct hki_colsum_args {
    hki_tiles t;
    const float *x; // dy of act_bias_grad
    const float *y; // act_bias_grad: the layer's result; NULL elsewhere
    float *dz;      // act_bias_grad: x * act'(y), may be NULL
    double *sum;    // may be NULL
    int64_t channels;
    int act;
} hki_colsum_args;

// Rows [rows, n] to one number each. Items: rows.
typedef struct hki_rowred_args {
    const float *x;
    float *y;
    int64_t n;
    float scale;
} hki_rowred_args;

// One number for a range of elements; partial[part]. Items: elements.
typedef struct hki_fullred_args {
    const float *x;
    double *partial;
} hki_fullred_args;

// Maximum of each column of [rows, cols] for columns [begin, end).
typedef struct hki_colmax_args {
    const float *x;
    float *y;
    int64_t rows, cols;
} hki_colmax_args;

typedef struct hki_reduce_kernels {
    hki_team_fn col_sum;
    hki_team_fn act_col_sum; // act_bias_grad
    hki_team_fn row_sum, row_max;
    hki_team_fn full_sum, full_max, full_squares;
    hki_team_fn full_zeros; // sum of x * 0: NaN unless every x is finite
    hki_team_fn col_max;
} hki_reduce_kernels;

// ---- norm_isa.c ------------------------------------------------------------

// Batch norm over the rows of all tiles. Vectors have `channels` entries.
typedef struct hki_norm_args {
    hki_tiles t;
    int64_t channels;
    const float *x, *y, *dy, *dy2, *residual; // y: mask of a fused relu
    float *out;                               // y forward, dx backward
    float *dres;                              // dz; NULL: not asked for
    const float *pivot;                       // near the mean, or the mean
    double *sum;            // [parts, 2, channels], zeroed by the caller
    const float *a, *b, *c; // per channel; see each function
    bool relu;
} hki_norm_args;

// Items: rows of [rows, n].
typedef struct hki_layer_args {
    int64_t n;
    const float *x, *dy, *gamma, *beta, *mean_in, *rstd_in;
    float *y, *mean, *rstd; // mean, rstd: may be NULL
    double *sum;            // backward: [parts, 2, n], zeroed by the caller
    double eps;
} hki_layer_args;

typedef struct hki_norm_kernels {
    // With d = x - pivot and dz = dy where y > 0 (or everywhere):
    hki_team_fn stats;    // sum += d, d^2
    hki_team_fn apply;    // out = act(d a + b [+ residual]); pivot may be NULL
    hki_team_fn grad_sum; // sum += dz, dz d; dres = dz
    hki_team_fn grad;     // out = (dz - c) a + d b
    hki_team_fn layer, layer_grad;
} hki_norm_kernels;

// ---- softmax_isa.c ---------------------------------------------------------

// Items: rows of [rows, n].
typedef struct hki_softmax_args {
    int64_t n;
    const float *x, *dy, *y;
    float *out, *loss;  // each may be NULL where it is optional
    const void *labels; // int32 or int64; or float rows
    bool labels64;
    int64_t *bad; // per part: a row with a bad label, else -1
} hki_softmax_args;

typedef struct hki_softmax_kernels {
    hki_team_fn softmax, softmax_grad;
    hki_team_fn log_softmax, log_softmax_grad;
    hki_team_fn sparse_xent, xent;
} hki_softmax_kernels;

// ---- pool_isa.c ------------------------------------------------------------

typedef struct hki_pool_args {
    int64_t tiles, width; // as in hki_tiles
    int64_t ih, iw, oh, ow;
    int kh, kw, sh, sw, top, left;
    const float *x, *dy, *y; // y: mask of a fused relu, or NULL
    const uint8_t *index_in;
    float *out;
    uint8_t *index; // may be NULL
    bool exact;     // gradients: windows neither overlap nor leave gaps
} hki_pool_args;

typedef struct hki_pool_kernels {
    hki_team_fn max;      // items: rows of the result, over all tiles
    hki_team_fn max_grad; // exact: rows of the result; else tiles
    hki_team_fn avg;      // rows of the result
    hki_team_fn avg_grad; // tiles
    hki_team_fn global, global_grad; // tiles
} hki_pool_kernels;

// ---- move_isa.c ------------------------------------------------------------

// Matrices [batch, rows, cols] -> [batch, cols, rows] of 4-byte elements, with
// row strides. Items: rows of all matrices.
typedef struct hki_turn_args {
    const uint32_t *x;
    uint32_t *y;
    int64_t rows, cols;
    int64_t x_batch, x_row, y_batch, y_row; // strides in elements
} hki_turn_args;

// Plain [images, rows, channels] to or from [images, blocks, rows, block].
// Items: images x blocks.
typedef struct hki_block_args {
    const float *x;
    float *y;
    int64_t rows, channels, block;
} hki_block_args;

typedef struct hki_move_kernels {
    hki_team_fn turn;
    hki_team_fn to_blocked, to_plain;
} hki_move_kernels;

// ---- embed_isa.c -----------------------------------------------------------

// Items: bags. Indices were checked.
typedef struct hki_bag_args {
    const float *table;
    const void *index; // [bags, k], int32 or int64; -1: padding
    bool index64;
    const float *weight; // [bags, k] or NULL
    int64_t bags, k, dim;
    bool mean;
    float *y;        // [bags, dim]
    const float *dy; // gradient
    // Gradient: place of each entry among the rows, -1: padding; bit 30 marks
    // the first entry of its row.
    const int32_t *at;
    float *rows; // gradient
} hki_bag_args;

typedef struct hki_embed_kernels {
    hki_team_fn bag;
    hki_team_fn bag_grad; // items: columns of the rows
} hki_embed_kernels;

HKI_ISA_DECLARE(hki_ewise_kernels, hki_ewise_table);
HKI_ISA_DECLARE(hki_reduce_kernels, hki_reduce_table);
HKI_ISA_DECLARE(hki_norm_kernels, hki_norm_table);
HKI_ISA_DECLARE(hki_softmax_kernels, hki_softmax_table);
HKI_ISA_DECLARE(hki_pool_kernels, hki_pool_table);
HKI_ISA_DECLARE(hki_move_kernels, hki_move_table);
HKI_ISA_DECLARE(hki_embed_kernels, hki_embed_table);

#endif // HKI_CPU_KERNELS_H
