// report.h - the parts of the report page.
#ifndef CLI_REPORT_H
#define CLI_REPORT_H
#include "report/series.h"

// What a run is called: a trial of a sweep with what was varied, "trial_3
// learning_rate=0.1". Free it.
char *report_name(const series_set *s, const char *run);

// Each writes its section, or nothing when there is nothing to say.
void report_summary(FILE *f, const series_set *s);  // what the runs did
void report_folds(FILE *f, const series_set *s);    // tables of folds.json
void report_results(FILE *f, const series_set *s);  // of the model kept
void report_charts(FILE *f, const series_set *s);   // curves
void report_sweeps(FILE *f, const series_set *s);   // tables of sweep.json
void report_settings(FILE *f, const series_set *s); // experiment.json

#endif // CLI_REPORT_H
