/* What the library says about itself, and which of its instruction sets this processor can run.
 *
 * Compiled once, for the plainest processor of the platform. SOURCE_HASH and INSTRUCTION_SETS come from the
 * build: the latter names what the kernels were compiled for, each set containing those before it.
 */
#include <stdint.h>

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif
#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

#if defined(BY_ZIG)
#define COMPILER "zig cc, clang " TEXT(__clang_major__) "." TEXT(__clang_minor__) "." TEXT(__clang_patchlevel__)
#elif defined(__clang__)
#define COMPILER "clang " TEXT(__clang_major__) "." TEXT(__clang_minor__) "." TEXT(__clang_patchlevel__)
#else
#define COMPILER "gcc " TEXT(__GNUC__) "." TEXT(__GNUC_MINOR__) "." TEXT(__GNUC_PATCHLEVEL__)
#endif

EXPORT const char *kernel_source_hash(void) { return SOURCE_HASH; }
EXPORT const char *runtime_source_hash(void) { return RUNTIME_HASH; }
EXPORT const char *kernel_compiler(void) { return COMPILER; }
EXPORT const char *kernel_instruction_sets(void) { return INSTRUCTION_SETS; }

#if defined(__x86_64__)
#include <cpuid.h>

static int has(uint32_t bits, uint32_t wanted) { return (bits & wanted) == wanted; }

/* How many of v2, v3 and v4 the processor and its operating system support, as the x86-64 psABI defines them.
 * Read from the processor: gcc's builtin for it is missing from some compilers' libraries. */
EXPORT int64_t kernel_count_supported(void)
{
    uint32_t a, b, c, d, extended_b, extended_c, system = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return 0;
    const uint32_t v2 = bit_SSE3 | bit_SSSE3 | bit_SSE4_1 | bit_SSE4_2 | bit_POPCNT | bit_CMPXCHG16B;
    const uint32_t v3 = bit_AVX | bit_FMA | bit_F16C | bit_MOVBE | bit_OSXSAVE;
    const uint32_t v3_more = bit_AVX2 | bit_BMI | bit_BMI2;
    const uint32_t v4 = bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL;
    if (!has(c, v2))
        return 0;
    if (!has(c, v3) || !__get_cpuid_count(7, 0, &a, &extended_b, &extended_c, &d))
        return 1;
    __asm__("xgetbv" : "=a"(system), "=d"(d) : "c"(0)); /* registers that are kept for this process */
    if (!has(system, 0x06) || !has(extended_b, v3_more) || !__get_cpuid(0x80000001, &a, &b, &c, &d) || !has(c, bit_LZCNT))
        return 1;
    return has(system, 0xe6) && has(extended_b, v4) ? 3 : 2;
}
#else
EXPORT int64_t kernel_count_supported(void) { return 1; }
#endif
