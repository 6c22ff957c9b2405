// elastic/elastic.h - a worker (hk_elastic), as loops of other modules use it.
#ifndef HKI_ELASTIC_H
#define HKI_ELASTIC_H
#include "center/center.h"
#include "hooke/elastic.h"

int32_t hki_elastic_worker(const hk_elastic *e); // id; -1: not joined
int64_t hki_elastic_local_step(const hk_elastic *e);
// Its exchanges so far, a period of steps each.
int64_t hki_elastic_periods(const hk_elastic *e);
// The center's at the last contact plus own steps since.
int64_t hki_elastic_global_step(const hk_elastic *e);
int64_t hki_elastic_since(const hk_elastic *e); // not yet told to the center

// hk_elastic_apply in two halves, for loops that do something between them:
// the inner step with local_step += 1 (and, in the paper's order, the
// difference from x as it was before), then the exchange if one is due.
hk_status hki_elastic_update(hk_elastic *e, hki_vector *x,
                             const hki_grads *grads, int64_t *global_step);
// *exchanged (NULL allowed): 1 after an exchange.
hk_status hki_elastic_exchange_due(hk_elastic *e, hki_vector *x,
                                   int *exchanged);
// hk_elastic_add_pull on vectors; g has n floats.
hk_status hki_elastic_add_pull(hk_elastic *e, hki_vector *x, hki_vector *g,
                               int64_t n, double scale);
// Does it look at which rows of tables a step moves? Then hki_elastic_update
// takes gradients whose indices are in host memory.
bool hki_elastic_tells_rows(const hk_elastic *e);
// What belongs to the worker goes home.
hk_status hki_elastic_go_home(hk_elastic *e);
// Does the step that comes give values to the center before it moves them (the
// paper's order)? Does the one that was made, in its second half?
bool hki_elastic_gives_before(const hk_elastic *e);
bool hki_elastic_gives_after(const hk_elastic *e);
// The loss that the run began with: the largest first loss of any worker, this
// one's (`loss`) included. A worker that starts from a good center has small
// losses from its first step on.
double hki_elastic_first_loss(hk_elastic *e, double loss);
// The norm of what it would give; not finite when a part of it is not.
hk_status hki_elastic_given_norm(hk_elastic *e, hki_vector *x, double *out);
// x := center, but for entries without one; gradients and differences under
// way are forgotten. In a fixed order of turns it is the center that the last
// exchange saw, as in every run, if the view is kept.
hk_status hki_elastic_go_back(hk_elastic *e, hki_vector *x);
// Between the calls that make its steps a worker rests: see hki_center_ops.
void hki_elastic_rest(const hk_elastic *e, bool rests);
#define HKI_MOST_PERIOD 64u
// The period for exchanges that take so many times as long as a step.
uint32_t hki_rates_period(double exchange_per_step);
// hk_elastic_leave with a deadline of its own. x may be empty without overlap.
hk_status hki_elastic_leave(hk_elastic *e, hki_vector *x, int64_t wait_ms);

#endif // HKI_ELASTIC_H
