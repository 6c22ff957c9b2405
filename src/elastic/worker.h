// elastic/worker.h - a worker's handle, shared by the files that make it:
// worker.c (create, rates, joining), worker_step.c (steps and exchanges),
// overlap.c (exchanges beside the steps), touched.c (rows of tables),
// worker_names.c (names, savers, hook), telemetry.c.
#ifndef HKI_WORKER_H
#define HKI_WORKER_H
#include "elastic/elastic.h"

typedef struct hki_overlap hki_overlap; // opaque; overlap.c

// Sums of the last exchange: |x - c|^2, step . (c - x), |step|^2.
typedef struct hki_sums {
    double s[3];
} hki_sums;

typedef struct hki_counters {
    uint64_t exchanges, dropped, skipped;
    double moving_rate, staleness, staleness_sum, staleness_max;
    double delay_sum; // steps between d and its use
    uint64_t delays;
    int64_t exchange_ns, start_ns;
} hki_counters;

struct hk_elastic {
    hk_elastic_options opt; // name is a copy; rates as given
    char *name;
    hk_optimizer *inner; // borrowed; NULL: the caller makes the steps
    hk_center *center;   // borrowed
    const hki_method *method;
    hk_layout *layout;   // retained
    hki_place home;      // in host memory
    const hki_place *at; // where the vectors are: with x
    bool paper;          // order
    hk_log_level log_level;
    int32_t hook_task;
    double outside_rate; // learning rate of the caller's steps; 0: not told

    // the layout's n floats each, none (host NULL) when not needed.
    hki_vector view;
    hki_vector diff;   // paper's order without overlap
    hki_vector before; // x before a step that is followed by an exchange
    hki_vector grad;   // accumulated gradient, the layout's n_train floats
    hki_tables tables; // of grad

    // global_step = center_step + since: an exchange that has begun moves its
    // steps from the second to the first, whatever becomes of it later.
    hki_member m; // incarnation 0: not joined
    int64_t local_step;
    bool due;            // the second half of a step has an exchange to do
    int64_t since;       // local steps not yet reported to the center
    int64_t accumulated; // gradients in grad
    int64_t center_step; // global_step at the last contact
    double first_loss;   // hki_elastic_first_loss

    hki_touched *touched; // NULL: the center has no use for it
    size_t n_touched;
    bool all_touched;

    hki_chunk *given; // the parts, and what go_back.c measures of them
    double *given_sums;

    hki_overlap *overlap;
    hki_counters n;
    hki_sums total;
    bool sums_away;  // the last exchange has them at its place
    hki_sums *entry; // telemetry 2, per entry
};

// What is in force at a step.
double hki_elastic_alpha(const hk_elastic *e); // with num_worker workers
// Alpha, or what the live workers divide (*per_live).
double hki_elastic_rate(const hk_elastic *e, bool *per_live);
double hki_elastic_rho(const hk_elastic *e, int64_t step);
// Of the inner optimizer, or what the caller says of its own.
double hki_elastic_fast_rate(const hk_elastic *e, int64_t step);
int64_t hki_elastic_step(const hk_elastic *e, const int64_t *global_step);

// HK_E_STATE unless e has joined; `what` opens the message.
hk_status hki_elastic_ready(const hk_elastic *e, const char *what);

// Moves what belongs to e to where x lives; NULL: home.
hk_status hki_elastic_follow(hk_elastic *e, const hki_place *at);
// Sets what was accumulated to 0.
hk_status hki_elastic_clear_grad(hk_elastic *e);
// Fills *ex for an exchange of x, in host memory as all vectors of *ex.
hk_status hki_elastic_prepare(hk_elastic *e, float *x, hki_exchange *ex);
// Counts a finished exchange.
void hki_elastic_count(hk_elastic *e, const hki_exchange *ex);
// x -= d where it is exchanged.
hk_status hki_elastic_subtract(hk_elastic *e, hki_vector *x, hki_vector *d);

// telemetry.c: start of an exchange, and its hki_observe_fn; user: the handle.
void hki_elastic_observe_begin(hk_elastic *e);
void hki_elastic_observe(void *user, int64_t begin, int64_t end, const float *x,
                         const float *c);

// ---- touched.c --------------------------------------------------------------

hk_status hki_touched_create(hk_elastic *e);
void hki_touched_destroy(hk_elastic *e);
// The inner step went well: its rows have moved.
void hki_touched_mark(hk_elastic *e, const hk_grad_view *g);
void hki_touched_clear(hk_elastic *e);

// ---- overlap.c --------------------------------------------------------------

hk_status hki_overlap_create(hk_elastic *e);
void hki_overlap_destroy(hki_overlap *o); // NULL is allowed
// Starts an exchange of a copy of x whose d is due at local step apply_at.
hk_status hki_overlap_start(hk_elastic *e, hki_vector *x, int64_t apply_at);
// Applies what is due at local step `now`; waits for it.
hk_status hki_overlap_collect(hk_elastic *e, hki_vector *x, int64_t now);
hk_status hki_overlap_follow(hk_elastic *e, const hki_place *at);
// Waits for and forgets what is under way.
hk_status hki_overlap_drop(hk_elastic *e);

#endif // HKI_WORKER_H
