// elastic/elastic.h - the center table and methods.
//
// A worker (hk_elastic) works against a center through hki_center_ops only;
// the in-process center and remote ones implement the same table and pass
// the same suite (tests/suite_center.c). A method is one entry of a const
// table: how d comes from x and c (worker rule) and what the center does with
// it (center rule).
#ifndef HKI_ELASTIC_H
#define HKI_ELASTIC_H
#include "backend/vector.h"
#include "base/base.h"
#include "hooke/elastic.h"
#include "optim/optim.h"
#include "tensor/tensor.h"

HKI_SCOPED_HANDLE(hk_center, hk_center_destroy)

// ---- methods ----------------------------------------------------------------

typedef enum hki_worker_rule {
    HKI_WORKER_ELASTIC,  // d = alpha (x - c); x -= d
    HKI_WORKER_DELTA,    // d = x - view; x, view := c afterwards
    HKI_WORKER_VALUE,    // d = x; x, view := c afterwards
    HKI_WORKER_GRADIENT, // d = accumulated gradient; x := c afterwards
} hki_worker_rule;

typedef enum hki_center_rule {
    HKI_CENTER_ADD,         // c += d
    HKI_CENTER_OUTER,       // c := outer optimizer (gradient -d, or d)
    HKI_CENTER_DELAYED,     // c := delayed Nesterov step
    HKI_CENTER_ROUND_SUM,   // c += sum of d, once all are there
    HKI_CENTER_ROUND_MEAN,  // c := mean of d
    HKI_CENTER_ROUND_OUTER, // c := outer optimizer (gradient: mean of c - x)
} hki_center_rule;

typedef enum hki_method_flags {
    HKI_METHOD_VIEW = 1,         // the worker keeps its last view
    HKI_METHOD_ROUND = 2,        // exchange by push_round
    HKI_METHOD_NO_LOCAL = 4,     // no inner step
    HKI_METHOD_NEEDS_OUTER = 8,  // the user has to name the outer optimizer
    HKI_METHOD_DROP_STALE = 16,  // old gradients are not applied
    HKI_METHOD_FAST_RATE = 32,   // outer rate and gradient in units of the
                                 // inner rate (SlowMo)
    HKI_METHOD_MEAN = 64,        // keeps the mean of all c
    HKI_METHOD_MOVING_MEAN = 128 // keeps a moving average of c
} hki_method_flags;

typedef struct hki_method {
    hk_method id;
    const char *name;
    hki_worker_rule worker;
    hki_center_rule center;
    uint32_t flags;
    uint32_t period; // default
    // Default outer optimizer: momentum (Nesterov or not). A momentum of -1
    // stands for 1 - 1 / workers.
    double outer_rate, outer_momentum;
    uint32_t outer_nesterov;
} hki_method;

// What a worker may send along with its differences. Inner learning rates that
// SlowMo divides by; a round whose rate is below the least (a schedule may
// begin or end at 0) changes nothing. Factors of gradients: 1, or less when
// they are averages or the divergence guard has halved the rate.
#define HKI_FAST_RATE_LEAST 1e-12
#define HKI_FAST_RATE_MOST 1e6
#define HKI_GRAD_SCALE_MOST 1e6
// HK_E_RANGE for a rate that the method's outer step cannot take. what: names
// the center; round: in the message.
hk_status hki_fast_rate_check(const hki_method *m, double rate,
                              const char *what, uint64_t round);

// The outer optimizer of a center: what the user gave, or the method's own.
hk_status hki_outer_options(const hk_center_options *opt, const char *name,
                            hk_optimizer_options *out);
// The delayed Nesterov step of a center, and its coefficients where a part has
// had so many updates.
hk_status hki_delayed_init(const hk_center_options *opt,
                           const hk_optimizer_options *outer, const char *name,
                           hki_delayed *out);
hki_delayed hki_delayed_after(const hki_delayed *d, uint64_t updates);
const hki_method *hki_method_get(hk_method id); // NULL: unknown

// ---- parts of the vector ----------------------------------------------------

// A piece of the flat vector with one fate; at most chunk_floats long. Entries
// of one fate share parts, so that small ones do not cost a lock each.
typedef struct hki_share_part {
    int64_t begin, end; // floats
    hk_share share;     // EXCHANGE or COPY
    bool state;         // float state, not trainable
} hki_share_part;

typedef struct hki_parts {
    hki_share_part *part;
    size_t count;
    hk_share *share; // per entry of the layout
} hki_parts;

// Cuts the vector. HK_E_DTYPE when share asks to exchange an integer entry.
hk_status hki_parts_init(hki_parts *p, const hk_layout *l, int64_t chunk_floats,
                         hk_share_fn share, void *user, const char *what);
void hki_parts_deinit(hki_parts *p);

// ---- the center table -------------------------------------------------------

// A worker as the center knows it. A later join of the same id fences the
// earlier incarnation off.
typedef struct hki_member {
    uint32_t id;
    uint32_t incarnation; // counts from 1; 0: not a member
    double first_loss;    // largest first loss of a worker of this run, as the
                          // center knew when it joined; 0: unknown
} hki_member;

// Sees the center's values for [begin, end) as an exchange is about to change
// them.
typedef void (*hki_observe_fn)(void *user, int64_t begin, int64_t end,
                               const float *x, const float *c);

// Rows of a table with sparse gradients that this worker has moved since its
// last exchange.
typedef struct hki_touched {
    size_t entry;         // of the layout
    const uint64_t *rows; // a bit per row
} hki_touched;

typedef struct hki_exchange {
    // The worker's vectors, the layout's n floats.
    float *x;
    float *view;         // required by HKI_METHOD_VIEW; else NULL, or receives
                         // the center as it was before
    float *diff;         // elastic only; non-NULL: takes d, x stays. May be x.
    const float *before; // exchange_at with observe: x before its last step
    const float *grad;   // GRADIENT rules: n_train floats
    const void *side;    // NULL: not exchanged
    double rate;         // alpha; with per_live alpha times workers
    double grad_scale;   // multiplies grad
    double fast_rate;    // inner learning rate (HKI_METHOD_FAST_RATE)
    int64_t steps_done;  // local steps since the last exchange
    double first_loss;   // of this worker; 0: unknown
    int64_t deadline_ns; // of every wait
    hki_observe_fn observe; // NULL: none
    void *user;
    const hki_touched *touched; // NULL: any row may have moved
    size_t n_touched;
    bool per_live;
    bool use_locking;
    // Results; the worker clears `begun`.
    bool begun;    // counted by the center: steps_done are reported
    bool dropped;  // DROP_STALE: not applied
    bool missed;   // without locking: all was busy, nothing has happened
    uint32_t live; // workers
    double alpha;  // in force
    uint64_t staleness;
    uint64_t skipped; // parts
    int64_t global_step;
} hki_exchange;

// Any thread may call any entry; a member's calls come one at a time.
typedef struct hki_center_ops {
    bool rows; // has use for hki_exchange.touched
    void (*destroy)(hk_center *c);
    // Makes the caller a member; task -1: the lowest free id. Waits for its
    // turn in a recorded order.
    hk_status (*join)(hk_center *c, int32_t task, int64_t deadline_ns,
                      hki_member *out);
    // Gives an empty center its first values (compare-and-set).
    hk_status (*init_if_empty)(hk_center *c, hki_member m, const float *x,
                               const void *side, int64_t deadline_ns);
    // One exchange of an asynchronous method. After a timeout each part has
    // been exchanged once or not at all.
    hk_status (*exchange)(hk_center *c, hki_member m, hki_exchange *ex);
    // The same with a worker's vectors elsewhere: x, diff, view and before are
    // addresses of that place, and the work may be under way when it returns.
    // *taken false: not with this center or method; nothing has happened, and
    // the exchange goes through host memory. NULL: never.
    hk_status (*exchange_at)(hk_center *c, hki_member m, hki_exchange *ex,
                             const hki_place *at, bool *taken);
    // One round of a synchronous method: contributes, waits for the others,
    // takes the result. A second call after a timeout does not contribute
    // twice.
    hk_status (*push_round)(hk_center *c, hki_member m, hki_exchange *ex);
    // x := center, but for entries without one. side, view: NULL allowed.
    hk_status (*pull)(hk_center *c, hki_member m, float *x, float *view,
                      void *side, int64_t deadline_ns, int64_t *global_step);
    // Start barrier: waits until `parties` members have come; passed once and
    // for all.
    hk_status (*barrier)(hk_center *c, hki_member m, uint32_t parties,
                         int64_t deadline_ns);
    // Adds steps_done to global_step and ends the membership, also when it
    // reports a timeout.
    hk_status (*leave)(hk_center *c, hki_member m, int64_t steps_done,
                       int64_t deadline_ns);
    hk_status (*snapshot)(hk_center *c, hk_center_part part,
                          int64_t deadline_ns, float *values, void *side,
                          hk_center_info *info);
    hk_status (*assign)(hk_center *c, const float *values, const void *side,
                        int64_t global_step, int64_t deadline_ns);
    void (*info)(hk_center *c, hk_center_info *out);
    hk_status (*variables)(hk_center *c, hk_name_map *map);
    hk_status (*order_save)(hk_center *c, void *buf, size_t capacity,
                            size_t *size);
    // What the center keeps for one worker and the worker's checkpoint wants;
    // NULL: nothing.
    hk_status (*worker_variables)(hk_center *c, hki_member m, hk_name_map *map);
    // The member has made so many local steps. For methods with rounds, whose
    // center puts out members that make none. NULL: it does not care.
    void (*stepped)(hk_center *c, hki_member m, int64_t local_step);
    // The member makes no exchanges until it says otherwise: others
    // wait neither for its turn nor for its part in a round. NULL: nobody can
    // say so.
    void (*rest)(hk_center *c, hki_member m, bool rests);
} hki_center_ops;

// What every center starts with; its destroy frees the whole.
struct hk_center {
    const hki_center_ops *ops;
    const hki_method *method;
    hk_layout *layout; // retained
    hki_parts parts;
    char *name;
    int64_t join_ms; // a center that may be away: how long one that comes waits
                     // for it; 0: as long as for anything
};

// Fills the common head from options that were checked; deinit accepts a
// half-built one.
hk_status hki_center_base_init(hk_center *c, const hki_center_ops *ops,
                               const hk_center_options *opt, hk_layout *layout);
void hki_center_base_deinit(hk_center *c);
// Copies *src over the defaults and checks what every center checks.
hk_status hki_center_options_check(const hk_center_options *src,
                                   hk_center_options *out);

// ---- a worker, as loops of other modules use it -----------------------------

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
