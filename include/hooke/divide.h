// hooke/divide.h - data that is divided among workers, each part read by one.
//
// Arrays, files with an index and lists of packed files can go to any of their
// units; such data is divided without a look at the rest. hk_data_shard
// (hooke/data.h) divides everything else: it reads all and keeps a part.
//
//     d = hk_data_tfrecord(files, n_files, NULL);
//     d = hk_data_leased(d, call->lender, seed, 0); // an input_fn's call
//
// Threads: as in hooke/data.h.
#ifndef HOOKE_DIVIDE_H
#define HOOKE_DIVIDE_H
#include <stdint.h>
#include "hooke/data.h"
#include "hooke/status.h"

HK_BEGIN_C

// One worker's part: of every epoch what no other worker has, and nothing else
// is read. Its order follows from the seed (HK_SEED_NONE: as it is) and is
// another one in every epoch, so no shuffle is needed behind it; what comes
// behind keeps order and number up to the batch.
//   lender   hk_input_call has it. It gives each worker its share of an epoch,
//            once a pass; a center elsewhere lends ranges to whoever asks for
//            more, over all epochs, until all is used
//   shuffle  where a unit is more than an example: so many are mixed at least
// HK_E_UNSUPPORTED where d cannot be divided.
typedef struct hk_lender hk_lender; // opaque
HK_API hk_dataset *hk_data_leased(hk_dataset *d, hk_lender *lender,
                                  int64_t seed, int64_t shuffle);
// Part `index` of n of data that can be divided, as it lies: consecutive
// elements in their order, and nothing else is read. batch: whole batches of so
// many, the last one of the set apart; 0: any number. For evaluation and
// prediction by several processes. HK_E_UNSUPPORTED as hk_data_leased.
HK_API hk_dataset *hk_data_part(hk_dataset *d, int64_t n, int64_t index,
                                int64_t batch);
// 1: d can be divided so that every worker of this lender gets something.
// NULL: no.
HK_API int hk_lender_divides(const hk_lender *l, const hk_dataset *d);
// Units that d can be divided into: examples of arrays, groups of rows or
// records of files with an index, whole packed files; -1: it cannot be.
HK_API int64_t hk_dataset_unit_count(const hk_dataset *d);

HK_END_C
#endif // HOOKE_DIVIDE_H
