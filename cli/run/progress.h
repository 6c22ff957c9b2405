// progress.h - the live line of a run.
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H
#include "core/cli.h"
#include "hooke/hooks.h"

typedef struct progress progress;

// When the run will be over, as far as that is known; 0: no such bound.
typedef struct progress_plan {
    int64_t steps; // global ones
    int64_t epochs;
    double seconds;
    const char *metric; // of evaluations during the run; NULL: there are none
} progress_plan;

// mode: auto, bar, plain, none.
progress *progress_create(const char *mode, const progress_plan *plan);
hk_status progress_hook(progress *p, hk_hook **out);
// Ends the line, so that what follows starts on its own.
void progress_close(progress *p);

#define PROGRESS_OPTION                                                        \
    CLI_CHOICES("progress", 0, "auto|bar|plain|none",                          \
                "one line that is updated, plain lines every few seconds, or " \
                "no progress")

#endif // CLI_PROGRESS_H
