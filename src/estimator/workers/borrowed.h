// estimator/workers/borrowed.h - data that a center lends to a worker: taken by
// the reader as it goes, counted with the worker's exchanges, given back at its
// end.
#ifndef HKI_ESTIMATOR_BORROWED_H
#define HKI_ESTIMATOR_BORROWED_H
#include "data/data.h"
#include "elastic/elastic.h"
#include "hooke/run_config.h"

typedef struct hki_borrowed {
    hk_center *center; // borrowed; NULL: shares
    hk_context *context;
    hk_lender *lender;
    int32_t worker; // as it has joined
    char name[64];  // of the set
    int64_t epochs; // -1: no end
    uint32_t workers;
    uint64_t fingerprint, seed;
    int64_t units;
    uint32_t set;      // its number
    _Atomic bool over; // all of the data is used, or the run at its end
    int64_t pause_ms;  // of the last rest
} hki_borrowed;

// Fills the lender: of the run's center where that can lend, of shares
// otherwise. name: of the source; epochs 0: no end; id: the worker's.
hk_status hki_borrowed_init(hki_borrowed *t, const hk_run_config *c,
                            const char *name, int64_t epochs, uint32_t id,
                            hk_lender *lender);
void hki_borrowed_deinit(hki_borrowed *t);
// The worker has joined.
void hki_borrowed_tie(hki_borrowed *t, int32_t worker);
static inline bool hki_borrowed_is_open(const hki_borrowed *t) {
    return t->center != NULL && t->lender->is_used;
}
static inline bool hki_borrowed_is_over(const hki_borrowed *t) {
    return t->over;
}
// The trainer has used n more examples. Nothing is done for shares.
hk_status hki_borrowed_use(hki_borrowed *t, int64_t n);
// Everything that was read has been used: the reader was at its end.
void hki_borrowed_drain(hki_borrowed *t);
// Gives everything back; nobody reads any more. What was used counts: the
// center has seen it. A center that is away or at its end is no failure.
hk_status hki_borrowed_return(hki_borrowed *t);
// Nothing was left: a pause, longer every time. HK_E_CANCELLED.
hk_status hki_borrowed_rest(hki_borrowed *t);

#endif // HKI_ESTIMATOR_BORROWED_H
