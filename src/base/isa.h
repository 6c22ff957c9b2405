// base/isa.h - instruction-set levels, and kernels compiled once per level.
//
// A file named *_isa.c is compiled with HKI_ISA set to base, v3 and v4 (base
// alone where the machine is not x86-64) and the matching -march. It ends in
// one const table whose name carries the level:
//
//     const hki_row_kernels HKI_ISA_NAME(hki_row_kernels_table) = {...};
//
// The module's header declares the tables and its code picks one, once:
//
//     HKI_ISA_DECLARE(hki_row_kernels, hki_row_kernels_table);
//     k = HKI_ISA_PICK(hki_context_isa(ctx), hki_row_kernels_table);
//
// Everything else in a *_isa.c file is static, so that the linker never mixes
// the levels. No ifunc: tables work under every sanitizer.
#ifndef HKI_ISA_H
#define HKI_ISA_H
#include <stdbool.h>
#include "hooke/context.h"

hk_isa hki_isa_best(void); // what this machine offers
const char *hki_isa_name(hk_isa isa);
bool hki_isa_has_bf16(void); // AVX512-BF16: v4 and products of bfloat16
// The level asked for in options: AUTO becomes the best. HK_E_INVALID_ARG or
// HK_E_UNSUPPORTED, with `what`, where this machine has no such level.
hk_status hki_isa_resolve(const char *what, hk_isa asked, hk_isa *out);

#define HKI_ISA_PASTE_(a, b) a##_##b
#define HKI_ISA_PASTE(a, b) HKI_ISA_PASTE_(a, b)

#if defined(__x86_64__)
#define HKI_ISA_DECLARE(type, sym)                                             \
    extern const type sym##_base, sym##_v3, sym##_v4
#define HKI_ISA_PICK(isa, sym)                                                 \
    ((isa) == HK_ISA_V4   ? &sym##_v4                                          \
     : (isa) == HK_ISA_V3 ? &sym##_v3                                          \
                          : &sym##_base)
#else
#define HKI_ISA_DECLARE(type, sym) extern const type sym##_base
#define HKI_ISA_PICK(isa, sym) ((void)(isa), &sym##_base)
#endif

#if defined(HKI_ISA)
#define HKI_ISA_LEVEL_base 1
#define HKI_ISA_LEVEL_v3 2
#define HKI_ISA_LEVEL_v4 3
// 1, 2, 3 like hk_isa; usable in #if.
#define HKI_ISA_LEVEL HKI_ISA_PASTE(HKI_ISA_LEVEL, HKI_ISA)
// sym_base, sym_v3 or sym_v4.
#define HKI_ISA_NAME(sym) HKI_ISA_PASTE(sym, HKI_ISA)

// a * b + c in floats: one rounding where the level has the instruction, two
// elsewhere. Contraction is off, so this is the only fma there is.
#if HKI_ISA_LEVEL >= 2
#define HKI_FMA(a, b, c) __builtin_fmaf((a), (b), (c))
#else
#define HKI_FMA(a, b, c) ((a) * (b) + (c))
#endif
#endif // HKI_ISA

#endif // HKI_ISA_H
