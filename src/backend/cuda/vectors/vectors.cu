// vectors.cu - the table of vectors on a card.
#include "backend/cuda/vectors/vectors.h"

static hki_vector_ops table(void) {
    hki_vector_ops t = {};
    t.update = hki_cuda_update;
    t.measure = hki_cuda_measure;
    t.move = hki_cuda_move;
    t.norms = hki_cuda_norms;
    t.clip = hki_cuda_clip;
    t.add = hki_cuda_add;
    t.average = hki_cuda_average;
    t.pull = hki_cuda_pull;
    t.accumulate = hki_cuda_accumulate;
    t.accumulate_rows = hki_cuda_accumulate_rows;
    t.subtract = hki_cuda_subtract;
    t.copy = hki_cuda_copy;
    t.exchange = hki_cuda_exchange;
    t.exchange_sums = hki_cuda_exchange_sums;
    return t;
}

const hki_vector_ops hki_vector_ops_cuda = table();
