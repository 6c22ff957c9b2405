// tf_common.h - what the tf_* examples share: error checks, a small data set
// of drawn digits, and the end of the program.
#ifndef TF_COMMON_H
#define TF_COMMON_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "hooke/hooke.h"

// Stops the program when a call fails or an outcome is not as promised.
#define CHECK(call)                                                            \
    do {                                                                       \
        if ((call) != HK_OK) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__,                 \
                    hk_last_error());                                          \
            exit(1);                                                           \
        }                                                                      \
    } while (0)
#define EXPECT(condition)                                                      \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__,         \
                    #condition);                                               \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

// An input_fn: `count` digits as "image" [batch, 28, 28, 1] from 0 to 1 and
// "label" [batch]; training data repeats for ever.
typedef struct digits {
    uint64_t first;
    int64_t count;
} digits;

static inline hk_status digits_input(void *user, const hk_input_call *call,
                                     hk_dataset **out) {
    const digits *set = user;
    const int train = call->mode == HK_TRAIN;
    hk_digits_options o;
    hk_digits_options_init(&o, sizeof o);
    o.split = train ? HK_DIGITS_TRAIN : HK_DIGITS_TEST;
    hk_dataset *d = hk_data_digits(&o, set->first, set->count);
    if (train)
        d = hk_data_shuffle(d, set->count, (int64_t)call->seed, 1);
    d = hk_data_normalize(d, "image", 1.0 / 255, NULL, NULL, 1);
    if (train)
        d = hk_data_repeat(d, HK_DATA_FOREVER);
    *out = hk_data_batch(d, train ? 64 : 250, train);
    return hk_dataset_status(*out);
}

// params {"num_classes": 10, "learning_rate": rate}
static inline hk_params *make_params(double rate) {
    hk_params *p;
    CHECK(hk_params_create(&p));
    CHECK(hk_params_set_int(p, "num_classes", 10));
    CHECK(hk_params_set_float(p, "learning_rate", rate));
    return p;
}

// One metric of an evaluation over 1000 digits.
static inline double score(hk_estimator *e, const char *metric,
                           hk_weights weights) {
    digits set = {0, 1000};
    const hk_source in = hk_source_function(digits_input, &set);
    hk_evaluate_options o;
    hk_evaluate_options_init(&o, sizeof o);
    o.weights = weights;
    hk_eval_result *r;
    double value;
    CHECK(hk_estimator_evaluate(e, &in, &o, &r));
    CHECK(hk_eval_result_get(r, metric, NULL, &value));
    hk_eval_result_destroy(r);
    return value;
}

#endif // TF_COMMON_H
