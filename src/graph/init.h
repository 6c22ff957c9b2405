// init.h - initial values of variables.
#ifndef HKI_INIT_H
#define HKI_INIT_H
#include "hooke/graph.h"

// Checks the parameters against a variable's shape, which must be concrete.
// Returns HK_E_INVALID_ARG, HK_E_SHAPE or HK_E_OVERFLOW.
hk_status hki_init_check(const hk_init *init, hk_shape shape, const char *name);

// Checks as above and writes all elements of the shape to out, row-major.
// The values are a pure function of (init, shape, seed, name): every name has
// a random stream of its own, so that adding a variable to a model does not
// change the others.
hk_status hki_init_fill(const hk_init *init, hk_shape shape, uint64_t seed,
                        const char *name, float *out);

#endif // HKI_INIT_H
