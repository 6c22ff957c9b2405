// fpu.c - subnormal numbers.
//
// Moments of weights that no longer get a gradient decay into the subnormal
// range, where x86 needs a hundred cycles for an operation. Loops over flat
// vectors therefore run with subnormals taken as zero, a change below 1e-38.
#include "base/base.h"
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#define FTZ_DAZ 0x8040u // flush to zero, denormals are zero

uint32_t hki_subnormals_off(void) {
#if defined(__SSE2__)
    const uint32_t before = _mm_getcsr();
    if ((before & FTZ_DAZ) != FTZ_DAZ)
        _mm_setcsr(before | FTZ_DAZ);
    return before;
#else
    return 0;
#endif
}

void hki_subnormals_restore(uint32_t before) {
#if defined(__SSE2__)
    if ((before & FTZ_DAZ) != FTZ_DAZ)
        _mm_setcsr((_mm_getcsr() & ~FTZ_DAZ) | (before & FTZ_DAZ));
#else
    (void)before;
#endif
}
