// vectors.cu - the table of vectors on a card.
#include "backend/cuda/cuda.h"

// dst = src
static hk_status copy(const hki_place *p, float *dst, const float *src,
                      int64_t n) {
    return hki_card_move(hki_cuda_card(p), dst, src, (size_t)n * sizeof(float));
}

static hki_vector_ops table(void) {
    hki_vector_ops t = {};
    t.copy = copy;
    return t;
}

const hki_vector_ops hki_vector_ops_cuda = table();
