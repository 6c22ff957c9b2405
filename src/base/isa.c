// isa.c - which instruction-set level this machine offers.
#include "base/base.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdatomic.h>

// Parts of x86-64-v3 that the compilers' feature names do not cover.
static bool has_v3_extras(void) {
    const unsigned int movbe = 1u << 22, f16c = 1u << 29, lzcnt = 1u << 5;
    unsigned int a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & movbe) == 0 || (c & f16c) == 0)
        return false;
    return __get_cpuid(0x80000001u, &a, &b, &c, &d) && (c & lzcnt) != 0;
}

// The builtins also ask whether the system saves the wide registers.
static hk_isa ask_cpu(void) {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2") ||
        !has_v3_extras())
        return HK_ISA_BASE;
    if (!__builtin_cpu_supports("avx512f") ||
        !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512cd") ||
        !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("avx512vl"))
        return HK_ISA_V3;
    return HK_ISA_V4;
}

// CPUID is executed once: it traps in virtual machines, which takes as long as
// an exchange of a small model.
hk_isa hki_isa_best(void) {
    static _Atomic int found; // hk_isa; HK_ISA_AUTO: not asked
    int best = atomic_load_explicit(&found, memory_order_relaxed);
    if (best == HK_ISA_AUTO) {
        best = (int)ask_cpu();
        atomic_store_explicit(&found, best, memory_order_relaxed);
    }
    return (hk_isa)best;
}

bool hki_isa_has_bf16(void) {
    return hki_isa_best() == HK_ISA_V4 && __builtin_cpu_supports("avx512bf16");
}
#else
hk_isa hki_isa_best(void) {
    return HK_ISA_BASE;
}

bool hki_isa_has_bf16(void) {
    return false;
}
#endif

const char *hki_isa_name(hk_isa isa) {
    static const char *const names[] = {"auto", "base", "v3", "v4"};
    return (size_t)isa < HKI_COUNT(names) ? names[isa] : "unknown";
}

hk_status hki_isa_resolve(const char *what, hk_isa asked, hk_isa *out) {
    const hk_isa best = hki_isa_best();
    if ((int)asked < HK_ISA_AUTO || (int)asked > HK_ISA_V4)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: unknown instruction set (isa) %d", what,
                        (int)asked);
    if (asked > best)
        return hki_fail(HK_E_UNSUPPORTED,
                        "%s: the instruction set (isa) %s was requested, but "
                        "this machine offers %s",
                        what, hki_isa_name(asked), hki_isa_name(best));
    *out = asked == HK_ISA_AUTO ? best : asked;
    return HK_OK;
}
