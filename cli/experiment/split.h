// split.h - which rows are trained on, which are kept for evaluation, which for
// a last test.
//
// Each row has a number drawn from the seed and its place in the data. A part
// is a range of these numbers, a range for every class, so that a row's set
// depends on nothing else: not on workers, batches or the order of reading.
#ifndef CLI_SPLIT_H
#define CLI_SPLIT_H
#include <stddef.h>
#include <stdint.h>

typedef enum split_set { SPLIT_TRAIN, SPLIT_EVAL, SPLIT_TEST } split_set;

typedef struct split_range {
    int64_t low, high; // both belong to it; low > high: around the end
    int64_t n;         // rows that were in it; 0: nobody is
} split_range;

typedef struct split {
    int64_t seed;
    size_t n; // classes; 0: the shares below, by blocks of rows
    split_range *eval, *test;
    double eval_share, test_share;
    int64_t folds, fold;
} split;

typedef struct split_plan {
    int64_t seed;
    double eval_share, test_share; // of all rows; 0: none
    int64_t folds, fold;           // folds > 0: the fold is the test
} split_plan;

// Cuts rows into sets, class by class (classes: of each row, below n_classes;
// skipped where not). A class keeps a row for training as long as it has one.
void split_make(split *s, const split_plan *p, const uint32_t *classes,
                int64_t rows, size_t n_classes);
// Without looking at the rows: of every block of rows the same number, drawn.
void split_blocks(split *s, const split_plan *p);
split_set split_of(const split *s, int64_t row, size_t class);
// Rows in a set; -1: not known.
int64_t split_count(const split *s, split_set set);
void split_free(split *s);

#endif // CLI_SPLIT_H
