// center/center.h - methods, the partition of the vector, and the function
// table of a center.
//
// A worker (hk_elastic) works against a center through hki_center_ops only;
// the in-process center and remote ones implement the same table and pass
// the same suite (tests/suite_center.c). A method is one row of the table in
// methods.c, which both kinds of center call.
#ifndef HKI_CENTER_H
#define HKI_CENTER_H
#include "backend/vector.h"
#include "base/base.h"
#include "hooke/center.h"
#include "optim/optim.h"
#include "tensor/tensor.h"

HKI_SCOPED_HANDLE(hk_center, hk_center_destroy)

// ---- methods ----------------------------------------------------------------

typedef struct hki_method hki_method;

// The worker's side of an exchange of one chunk. Addresses are of the chunk's
// first float.
typedef struct hki_worker_half {
    const hki_exchange_kernels *k;
    int64_t n;     // floats of the chunk
    bool state;    // float state, not trainable
    uint32_t live; // number of live workers
    float alpha;   // moving rate of this exchange
    float *x;      // the worker's values
    float *view;   // the center as the worker last saw it; NULL: not kept
    float *diff;   // elastic only; non-NULL: receives d, and x stays. May be
                   // x.
    const float *grad; // accumulated gradient
    // For a center in another process: the center's values, and memory for d,
    // which may be the same memory. encode replaces d by the values that its
    // encoded form decodes to; NULL: d is sent without encoding.
    const float *c;
    float *d;
    void (*encode)(void *user, float *d, int64_t n);
    void *user;
} hki_worker_half;

#define HKI_MAX_KEPT 2 // vectors of a method beside the center's values

// The center's side of the same chunk. The caller holds the chunk's lock.
typedef struct hki_center_half {
    const hki_method *method;
    const hki_exchange_kernels *k;
    int64_t n;
    bool state;
    uint32_t live;
    float *c;                  // the center's values
    float *kept[HKI_MAX_KEPT]; // see hki_method
    uint64_t *updates;         // of this chunk
    double average_rate;
    const hki_delayed *delayed;
    float *scratch; // n floats of working memory. Without `outer`, an exchange
                    // leaves the gradient of the outer step in it.
    // A step of the outer optimizer on this chunk; NULL: the caller makes the
    // step later, on the whole vector.
    hk_status (*outer)(void *user, float *gradient);
    // Called when half of the chunk has been changed; NULL: no call.
    void (*halfway)(void *user);
    void *user;
    uint64_t *faults; // counts elements that did not conserve x + c; NULL: no
                      // check
} hki_center_half;

typedef enum hki_outer_use {
    HKI_OUTER_NONE,
    HKI_OUTER_EXCHANGE, // an optimizer's step with each exchange
    HKI_OUTER_ROUND,    // with each round
    HKI_OUTER_DELAYED   // the delayed Nesterov step: no optimizer, its rates
} hki_outer_use;

typedef enum hki_average {
    HKI_AVERAGE_NONE,
    HKI_AVERAGE_MEAN,  // of all values that the center has had
    HKI_AVERAGE_MOVING // exponential, of the center's values
} hki_average;

// A method: one row of the table in methods.c, which contains all arithmetic of
// all methods. An exchange consists of the worker's half, which computes the
// difference d, and the center's half, which applies d. With a center in this
// process, exchange_in_place does both in one pass.
struct hki_method {
    hk_method id;
    const char *name;

    // Computes d, and moves x by it.
    void (*worker_half)(const hki_worker_half *w);
    // Reverts worker_half when the center has not applied d; x may have moved
    // since. NULL: there is nothing to revert.
    void (*worker_undo)(const hki_worker_half *w);
    // Applies d. *squares: the sum of the squares of d, set with reads_once
    // only. d may be changed unless reads_once or rounds is set.
    hk_status (*center_half)(const hki_center_half *h, float *d,
                             double *squares);
    // Both halves, with the same bits; w->c and w->d are not used.
    void (*exchange_in_place)(const hki_center_half *h,
                              const hki_worker_half *w);
    // Ends a round to which `count` workers have contributed. NULL without
    // rounds.
    hk_status (*close_round)(const hki_center_half *h, uint32_t count);

    bool rounds;      // synchronous: exchanges are contributions to rounds
    bool elastic;     // moving_rate applies; x moves by d alone
    bool asks;        // worker_half reads the center's values; otherwise the
                      // worker takes the values that the center answers with
    bool values;      // d is x itself
    bool gradients;   // d is the sum of the gradients
    bool reads_once;  // center_half reads each float of d once, so that d may
                      // lie in memory that the worker can still change
    bool keeps_view;  // the worker keeps its last view
    bool no_local;    // workers make no steps of their own
    bool drops_stale; // gradients that are too old are not applied
    bool fast_rate;   // outer rate and gradient in units of the inner rate
    hki_average average; // what kept[0] is
    hki_outer_use outer;
    // Names of the vectors kept beside the values; "": not in checkpoints.
    const char *kept[HKI_MAX_KEPT];

    uint32_t period; // default
    // Default outer optimizer: momentum (Nesterov or not). A momentum of -1
    // stands for 1 - 1 / workers; a rate of 0: the user has to name one.
    double outer_rate, outer_momentum;
    uint32_t outer_nesterov;
};

// What a worker may send along with its differences. Inner learning rates that
// SlowMo divides by; a round whose rate is below the least (a schedule may
// begin or end at 0) changes nothing. Factors of gradients: 1, or less when
// they are averages or the divergence guard has halved the rate.
#define HKI_FAST_RATE_LEAST 1e-12
#define HKI_FAST_RATE_MOST 1e6
#define HKI_GRAD_SCALE_MOST 1e6

// The sum of the contributions to a round, for the outer optimizer.
typedef struct hki_outer_sum {
    float *values, *sum;
    int64_t n, room;   // number of floats; the same, rounded up to 16
    uint32_t count;    // contributions
    double fast_rate;  // the largest of the workers
    double outer_rate; // as the user has set it
    uint64_t round;
} hki_outer_sum;

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
uint32_t hki_method_kept(const hki_method *m);  // vectors beside the values
// Counts a change of a chunk's values and updates the average of the method.
void hki_center_changed(const hki_center_half *h);
// The step of an outer optimizer at the end of a round; the sum is 0
// afterwards. HK_E_RANGE: the method cannot take fast_rate, and nothing has
// changed. what: names the center.
hk_status hki_outer_round(const hki_method *m, hk_optimizer *o,
                          const hki_outer_sum *sum, const char *what);

// ---- the partition of the vector ----------------------------------------------

// A range of the flat vector whose floats are treated alike. Entries that are
// treated alike share chunks, so that small ones do not cost a lock each.
typedef struct hki_chunk_range {
    int64_t begin, end; // floats
    hk_share share;     // EXCHANGE or COPY
    bool state;         // float state, not trainable
    int32_t table;      // index of hki_partition.table; -1: none
} hki_chunk_range;

// An embedding table whose rows can be exchanged without the others.
typedef struct hki_table {
    size_t entry; // of the layout
    int64_t offset, rows, dim;
} hki_table;

// The chunks of a vector, and the shards that they belong to. It follows from
// the layout, the shares, the size of a chunk and the number of shards alone: a
// center server and its workers each compute it and compare hashes. A chunk
// lies in one shard. Shards are ranges of the vector with about the same number
// of floats in chunks; every float belongs to one.
typedef struct hki_partition {
    hk_share *share; // per entry of the layout; never BY_KIND
    hki_chunk_range *chunk;
    uint32_t count;
    hki_table *table;
    uint32_t n_tables;
    uint32_t n_shards;
    uint32_t *first; // n_shards + 1: chunks of shard s are first[s]..first[s+1]
    int64_t *begin;  // n_shards + 1: floats
    int64_t max_floats; // of a chunk
    uint64_t hash;
} hki_partition;

#define HKI_MAX_SEATS 65536             // workers of a center
#define HKI_MAX_CHUNKS ((1u << 24) - 1) // and units of an exchange

typedef enum hki_partition_tables {
    HKI_TABLES_WITH_OTHERS, // entries with sparse gradients are like any other
    HKI_TABLES_IN_ROWS      // chunks of their own that hold whole rows
} hki_partition_tables;

// Decides what is done with each entry: HK_E_DTYPE when fn asks to exchange an
// integer entry. fn NULL: by kind. Freed with hki_free.
hk_status hki_shares_decide(const hk_layout *l, hk_share_fn fn, void *user,
                            const char *what, hk_share **out);
// share: of every entry; copied.
hk_status hki_partition_init(hki_partition *d, const hk_layout *l,
                             const hk_share *share, int64_t chunk_floats,
                             hki_partition_tables tables, uint32_t n_shards,
                             const char *what);
void hki_partition_deinit(hki_partition *d);

// Is d of a chunk the worker's x, not a difference?
bool hki_chunk_is_value(const hki_method *m, const hki_chunk_range *c);

// Copies the integer entries with HK_SHARE_COPY between two blocks of side
// values, or all of them.
void hki_side_copy(const hk_layout *l, const hk_share *share, void *dst,
                   const void *src, bool all);

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
    float *view;         // required by keeps_view; else NULL, or receives
                         // the center as it was before
    float *diff;         // elastic only; non-NULL: takes d, x stays. May be x.
    const float *before; // exchange_at with observe: x before its last step
    const float *grad;   // GRADIENT rules: n_train floats
    const void *side;    // NULL: not exchanged
    double rate;         // alpha; with per_live alpha times workers
    double grad_scale;   // multiplies grad
    double fast_rate;    // inner learning rate
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
    hki_partition partition;
    char *name;
    int64_t join_ms; // a center that may be away: how long one that comes waits
                     // for it; 0: as long as for anything
};

// Fills the common head from options that were checked; deinit accepts a
// half-built one.
hk_status hki_center_base_init(hk_center *c, const hki_center_ops *ops,
                               const hk_center_options *opt, hk_layout *layout,
                               hki_partition_tables tables, uint32_t n_shards);
void hki_center_base_deinit(hk_center *c);
// Copies *src over the defaults and checks what every center checks.
hk_status hki_center_options_check(const hk_center_options *src,
                                   hk_center_options *out);

#endif // HKI_CENTER_H
