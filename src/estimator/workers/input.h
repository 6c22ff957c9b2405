// input.h - the data of a run: sources, places in them, intakes of the workers.
#ifndef HKI_ESTIMATOR_INPUT_H
#define HKI_ESTIMATOR_INPUT_H
#include "estimator/model/model_spec.h"
#include "estimator/workers/borrowed.h"
#include "hooke/run_config.h"

hk_status hki_source_check(const hk_source *in, hk_source *out);
// The data set of a worker, with epochs and shards applied; checked.
// lender: of a worker among several; NULL: there are no others.
hk_status hki_source_open(hk_estimator *e, const hk_source *in, hk_mode mode,
                          uint32_t worker, uint32_t workers, int64_t epochs,
                          hk_lender *lender, hk_dataset **out);
// endure: goes on after a stop was requested.
hk_status hki_source_iter(hk_estimator *e, hk_dataset *d, hk_mode mode,
                          hk_iter **out);
// First dimension of what the spec reads: the batch size. HK_E_SHAPE when the
// inputs disagree.
hk_status hki_element_batch(const hk_spec *m, const hk_element *el,
                            int64_t *batch);
// Gives the session what the spec reads from the element.
hk_status hki_element_feed(const hk_spec *m, const hk_element *el,
                           hk_session *s);

// Which source it was: positions of one do not fit another.
typedef struct hki_identity {
    hk_input_fn fn;
    const void *user, *data;
} hki_identity;

// A place in the data of one worker, by the name of its source.
typedef struct hki_position {
    char *name;
    uint32_t worker;
    bool from_file;
    hki_buf bytes; // empty: at the start
    hki_identity identity;
} hki_position;

// The position of that name, made when it is not there.
hk_status hki_position_get(hk_estimator *e, const char *name, uint32_t worker,
                           hki_position **out);
void hki_positions_deinit(hk_estimator *e);

// The data of one worker of this process.
typedef struct hki_intake {
    hk_estimator *e;
    uint32_t id; // of the worker, over all processes
    hk_lender lender;
    hki_borrowed lent; // where a center lends the data
    hk_dataset *dataset;
    hk_iter *iter;             // NULL: of lent data, before its first batch
    const hk_element *pending; // looked at, not used yet
    hki_buf before;            // position before it
    bool ended;
} hki_intake;

typedef struct hki_intakes {
    hki_intake *at;
    uint32_t n;
    char *name; // of the source; NULL: none is open
    hki_identity identity;
    int64_t epochs;
} hki_intakes;

// Opens the training data, or goes on with it.
hk_status hki_intakes_open(hk_estimator *e, const hk_source *in,
                           int64_t epochs);
// Notes where the open intakes are.
hk_status hki_intakes_park(hk_estimator *e);
void hki_intakes_close(hki_intakes *s);
// The next batch; peek leaves it to the next call. HK_E_END.
hk_status hki_intake_next(hki_intake *t, const hk_element **out);
hk_status hki_intake_peek(hki_intake *t, const hk_element **out);
// What was read ahead is dropped, and lent data begins anew.
void hki_intake_rewind(hki_intake *t);
// Peeks at all of them. The first batch there is; HK_E_END when all have ended.
// Lent data is not looked at: *out stays where there is no other.
hk_status hki_intakes_look(hki_intakes *s, const hk_element **out);

HKI_SCOPED_HANDLE(hk_dataset, hk_dataset_release)

#endif // HKI_ESTIMATOR_INPUT_H
