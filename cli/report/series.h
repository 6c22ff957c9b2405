// series.h - the curves of runs, gathered from their event files.
#ifndef CLI_SERIES_H
#define CLI_SERIES_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct point {
    double step, wall, value; // wall: seconds since 1970
} point;

// Whose values they are.
typedef enum who {
    WHO_PLAIN = 0, // nobody's in particular: learning rate, speed
    WHO_CENTER,
    WHO_EMA,
    WHO_MODEL, // of a run without a center
    WHO_WORKER
} who;

typedef struct series {
    char *run;    // the run's name, with the folder of a trial
    char *folder; // "" for the run's own, "eval", "trial_3/eval", ...
    char *tag;
    // What tag and folder mean: "eval/accuracy", "worker/distance", "loss".
    char *group;
    who whose;
    int number;    // of the worker
    bool is_main;  // the set of weights that counts: center, or the only one
    point *points; // in the order of their steps
    size_t count, room;
    double kept; // of evaluations: step of the model that the run went back to
                 // at its end; NAN: it kept the last one
} series;

typedef struct series_set {
    series *list;
    size_t count, room;
    char **runs; // paths as given
    size_t n_runs;
    char **labels; // distinct values of series.run
    size_t n_labels;
    size_t truncated; // files that end in the middle of a record
} series_set;

// Reads every event file in and below path, at most four folders deep. 0, or
// an exit code after a message; a folder without event files is a failure.
int series_read(series_set *s, const char *path);
bool series_any(const char *path); // are there event files?
// Fills group, whose and labels once everything is read.
void series_sort_out(series_set *s);
void series_free(series_set *s);
// The point of the model that the run ended with: the last one, or that of the
// step it went back to. NULL when there is none.
const point *series_result(const series *s);
// The last value; NAN when there is none.
double series_last(const series *s);
// "center", "average (EMA)", "worker 3"; free it.
char *series_who(const series *s);

#endif // CLI_SERIES_H
