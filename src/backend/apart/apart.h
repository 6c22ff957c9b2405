// apart.h - what the passes over vectors (apart_vectors.c) take from the
// device.
#ifndef HKI_APART_H
#define HKI_APART_H
#include "backend/vector.h"

extern const hki_vector_ops hki_vector_ops_apart;

// The device works: `here` has to lie in its memory, `there` in the host's.
// NULL is neither.
hk_status hki_apart_enter(const void *const *here, size_t n_here,
                          const void *const *there, size_t n_there);
void hki_apart_leave(void);
// Who works, then.
const hki_place *hki_apart_home(const hki_place *p);

#endif // HKI_APART_H
