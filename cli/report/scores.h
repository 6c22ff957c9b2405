// scores.h - what a model says of its evaluation data, for the report page.
#ifndef CLI_SCORES_H
#define CLI_SCORES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct importance {
    char *column;
    double loss; // what the score loses when the column's values are mixed up
} importance;

typedef struct scores {
    size_t n;            // examples
    double *label;       // class, or the number to be predicted
    double *said;        // the same as the model says it
    double *share;       // two classes: probability of class 1; NULL: none
    size_t n_classes;    // 0: a number
    char **names;        // of the classes; NULL: they are numbers
    importance *columns; // the most important first
    size_t n_columns;
    const char *metric; // of the importances
} scores;

// number: of the run, for ids on the page.
void report_scores(FILE *f, const scores *s, const char *run, size_t number);
void scores_free(scores *s);

#endif // CLI_SCORES_H
