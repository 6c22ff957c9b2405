// split.c - sets of rows; see split.h.
#include "experiment/split.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "core/cli.h"

// splitmix64 (Steele, Lea and Flood 2014); 63 bits, which JSON keeps.
static int64_t draw(int64_t seed, int64_t row) {
    uint64_t z = ((uint64_t)seed << 40) + (uint64_t)row;
    z = (z + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (int64_t)((z ^ (z >> 31)) >> 1);
}

static int by_value(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

// ---- ranges ------------------------------------------------------------------

// The numbers of `count` rows from the place `first` on, around the end.
static split_range range_of(const int64_t *drawn, int64_t n, int64_t first,
                            int64_t count) {
    if (count <= 0)
        return (split_range){0};
    return (split_range){.low = drawn[first % n],
                         .high = drawn[(first + count - 1) % n],
                         .n = count};
}

static bool is_in(const split_range *r, int64_t x) {
    if (!r->n)
        return false;
    return r->low <= r->high ? x >= r->low && x <= r->high
                             : x >= r->low || x <= r->high;
}

// How many of a class are taken, so that all classes together come out at the
// share of all: what one has too few of, the next ones give.
typedef struct quota {
    double share, wanted;
    int64_t taken;
} quota;

static int64_t take(quota *q, int64_t n, int64_t most) {
    q->wanted += q->share * (double)n;
    int64_t k = llround(q->wanted) - q->taken;
    k = k < 0 ? 0 : k > most ? most : k;
    q->taken += k;
    return k;
}

// One of the folds of a class; the small rest goes to another fold in each
// class.
static void fold_of(const split_plan *p, int64_t n, size_t class,
                    int64_t *first, int64_t *count) {
    const int64_t turn = (int64_t)(class % (size_t)p->folds);
    *first = (n * p->fold + turn) / p->folds;
    *count = (n * (p->fold + 1) + turn) / p->folds - *first;
}

// ---- by classes --------------------------------------------------------------

static void cut_class(split *s, const split_plan *p, size_t class,
                      const int64_t *drawn, int64_t n, quota *test,
                      quota *eval) {
    int64_t first = 0, count = 0;
    if (p->folds > 0)
        fold_of(p, n, class, &first, &count);
    else
        count = take(test, n, n - 1);
    s->test[class] = range_of(drawn, n, first, count);
    const int64_t left = n - count;
    s->eval[class] =
        range_of(drawn, n, first + count, take(eval, left, left - 1));
}

// The numbers of all rows, class by class, each in rising order; those of class
// c begin at start[c].
static int64_t *draw_all(const split_plan *p, const uint32_t *classes,
                         int64_t rows, size_t n, int64_t *start) {
    int64_t *drawn = cli_alloc(((size_t)rows + 1) * sizeof *drawn);
    int64_t *at = cli_alloc((n + 1) * sizeof *at);
    for (int64_t i = 0; i < rows; i++)
        if (classes[i] < n)
            start[classes[i] + 1]++;
    for (size_t c = 0; c < n; c++)
        at[c] = start[c + 1] += start[c];
    for (int64_t i = 0; i < rows; i++)
        if (classes[i] < n)
            drawn[--at[classes[i]]] = draw(p->seed, i);
    for (size_t c = 0; c < n; c++)
        qsort(drawn + start[c], (size_t)(start[c + 1] - start[c]),
              sizeof *drawn, by_value);
    free(at);
    return drawn;
}

// The smallest tables: one row of the largest class is better than none.
static void take_one(split *s, const int64_t *drawn, const int64_t *start) {
    size_t best = 0;
    for (size_t c = 1; c < s->n; c++)
        if (start[c + 1] - start[c] > start[best + 1] - start[best])
            best = c;
    const int64_t n = start[best + 1] - start[best];
    if (n > s->test[best].n)
        s->eval[best] = range_of(drawn + start[best], n, s->test[best].n, 1);
}

void split_make(split *s, const split_plan *p, const uint32_t *classes,
                int64_t rows, size_t n_classes) {
    *s = (split){.seed = p->seed, .n = n_classes};
    s->eval = cli_alloc((n_classes + 1) * sizeof *s->eval);
    s->test = cli_alloc((n_classes + 1) * sizeof *s->test);
    int64_t *start = cli_alloc((n_classes + 1) * sizeof *start);
    int64_t *drawn = draw_all(p, classes, rows, n_classes, start);
    // Shares are of all rows, so of the rest the evaluation's is larger.
    quota test = {.share = p->test_share};
    quota eval = {.share = p->eval_share / (1 - p->test_share)};
    for (size_t c = 0; c < n_classes; c++)
        if (start[c + 1] > start[c])
            cut_class(s, p, c, drawn + start[c], start[c + 1] - start[c], &test,
                      &eval);
    if (!eval.taken && p->eval_share > 0 && rows > 1 && n_classes)
        take_one(s, drawn, start);
    free(drawn);
    free(start);
}

// ---- by blocks ---------------------------------------------------------------

enum { BLOCK = 100 };

void split_blocks(split *s, const split_plan *p) {
    *s = (split){.seed = p->seed,
                 .eval_share = p->eval_share,
                 .test_share = p->test_share,
                 .folds = p->folds,
                 .fold = p->fold};
}

// Rows of block `block` that a share has, so that the first k blocks together
// have their part.
static int64_t in_block(double share, int64_t block) {
    return llround(share * (double)(BLOCK * (block + 1))) -
           llround(share * (double)(BLOCK * block));
}

static split_set block_set(const split *s, int64_t row) {
    const int64_t block = row / BLOCK, mine = draw(s->seed, row);
    int64_t rank = 0;
    for (int64_t i = block * BLOCK; i < (block + 1) * BLOCK; i++)
        rank += draw(s->seed, i) < mine;
    const int64_t eval = in_block(s->eval_share, block);
    int64_t first = 0, test = in_block(s->test_share, block);
    if (s->folds > 0) {
        first = BLOCK * s->fold / s->folds;
        test = BLOCK * (s->fold + 1) / s->folds - first;
    }
    rank = (rank - first + BLOCK) % BLOCK; // from the test set on
    return rank < test          ? SPLIT_TEST
           : rank < test + eval ? SPLIT_EVAL
                                : SPLIT_TRAIN;
}

// ---- use ---------------------------------------------------------------------

split_set split_of(const split *s, int64_t row, size_t class) {
    if (!s->n)
        return block_set(s, row);
    if (class >= s->n)
        return SPLIT_TRAIN;
    const int64_t x = draw(s->seed, row);
    return is_in(&s->test[class], x)   ? SPLIT_TEST
           : is_in(&s->eval[class], x) ? SPLIT_EVAL
                                       : SPLIT_TRAIN;
}

int64_t split_count(const split *s, split_set set) {
    int64_t n = 0;
    if (!s->n || set == SPLIT_TRAIN)
        return -1;
    for (size_t c = 0; c < s->n; c++)
        n += set == SPLIT_EVAL ? s->eval[c].n : s->test[c].n;
    return n;
}

void split_free(split *s) {
    free(s->eval);
    free(s->test);
    *s = (split){0};
}
