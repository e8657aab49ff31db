/* What all kernels share: numbers, vectors, exponentials, work for threads.
 *
 * C11 with the vector extensions that gcc (>= 10) and clang have in common. Every kernel file is compiled once
 * per type of number and instruction set, with REAL_BITS 32 or 64 and with SUFFIX, such as _f32_v3, in which all
 * exported names end. Sums of the scan are double, whatever the numbers are.
 *
 * Same bits: all sums are written in the order in which they are made, the same for vectors of 32 and of 64 bytes,
 * and products and sums are fused only where it is written (`fuse`; -ffp-contract=off). So a result depends
 * neither on the number of threads nor on the compiler, nor, with one exception, on the instruction set: x86-64-v2
 * cannot fuse, rounds products by themselves and differs in the last digit. (Logarithms of sums are the C library's.)
 */
#ifndef AAREN_KERNELS_H
#define AAREN_KERNELS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* Functions that pass vectors wider than the processor's are all inlined: no other compiler has to agree. */
#pragma GCC diagnostic ignored "-Wpsabi"

#define JOIN_NAMES(name, suffix) name##suffix
#define WITH_SUFFIX(name, suffix) JOIN_NAMES(name, suffix)
#define NAME(name) WITH_SUFFIX(name, SUFFIX)
#define INLINE static inline __attribute__((always_inline))
#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

#if REAL_BITS == 32
typedef float real;
#else
typedef double real;
#endif

/* LANES doubles, or as many reals, are worked on at once; a LINE of a cache is some such vectors of reals. */
#if defined(__AVX512F__)
#define LANES 8
#else
#define LANES 4
#endif
enum { LINE = 64 / sizeof(real), VECTORS = LINE / LANES };
typedef double doubles __attribute__((vector_size(LANES * 8), aligned(8), may_alias));
typedef int64_t longs __attribute__((vector_size(LANES * 8), aligned(8), may_alias));
typedef double four_doubles __attribute__((vector_size(32), aligned(8), may_alias));
typedef real reals __attribute__((vector_size(LANES * sizeof(real)), aligned(sizeof(real)), may_alias));
typedef real aligned_reals __attribute__((vector_size(LANES * sizeof(real)), may_alias));

/* The first `count` of LANES reals; the others are 0. Whole vectors where the compiler knows the count. */
INLINE doubles load(const real *at, int64_t count)
{
    doubles v = {0.0};
    if (count >= LANES)
        return __builtin_convertvector(*(const reals *)at, doubles);
    for (int i = 0; i < LANES - 1; i++)
        if (i < count)
            v[i] = (double)at[i];
    return v;
}

INLINE void store(doubles v, real *at, int64_t count)
{
    if (count >= LANES)
        *(reals *)at = __builtin_convertvector(v, reals);
    else
        for (int i = 0; i < LANES - 1; i++)
            if (i < count)
                at[i] = (real)v[i];
}

/* Write past the caches; the place must be a multiple of the vector's size. Without a builtin that gcc and clang
 * share (clang's name compiles under gcc, and fails when the library is loaded), gcc gets the x86 intrinsics. */
#if defined(__clang__)
INLINE void stream(doubles v, real *at)
{
    __builtin_nontemporal_store(__builtin_convertvector(v, aligned_reals), (aligned_reals *)at);
}
#elif defined(__AVX__)
INLINE void stream(doubles v, real *at)
{
#if defined(__AVX512F__) && REAL_BITS == 32
    _mm256_stream_ps(at, _mm512_cvtpd_ps((__m512d)v));
#elif defined(__AVX512F__)
    _mm512_stream_pd(at, (__m512d)v);
#elif REAL_BITS == 32
    _mm_stream_ps(at, _mm256_cvtpd_ps((__m256d)v));
#else
    _mm256_stream_pd(at, (__m256d)v);
#endif
}
#else
INLINE void stream(doubles v, real *at) { store(v, at, LANES); }
#endif

/* The same number everywhere. */
INLINE doubles all(double x) { return x - (doubles){0.0}; }

/* a * b + c with one rounding where the processor can; compilers are told not to fuse on their own. */
INLINE doubles fuse(doubles a, doubles b, doubles c)
{
#if defined(__AVX512F__)
    return (doubles)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(__FMA__)
    return (doubles)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#elif defined(__aarch64__)
    float64x2_t *at = (float64x2_t *)&a, *by = (float64x2_t *)&b, *to = (float64x2_t *)&c;
    to[0] = vfmaq_f64(to[0], at[0], by[0]);
    to[1] = vfmaq_f64(to[1], at[1], by[1]);
    return c;
#else
    return a * b + c;
#endif
}

/* Let other threads see what was streamed. */
INLINE void finish_streaming(void)
{
#ifdef __x86_64__
    __builtin_ia32_sfence();
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* Ask for a line some reals away, which need not exist. */
#define FETCH(at, distance, is_written) \
    __builtin_prefetch((const void *)((uintptr_t)(at) + (uintptr_t)((distance) * (int64_t)sizeof(real))), is_written, 3)

/* The sum of a line of partial sums: item j of a row is part of sum j % LINE. Four by four, however long vectors are. */
INLINE double total(const doubles *sums)
{
    const four_doubles *parts = (const four_doubles *)sums;
    four_doubles sum = parts[0];
    for (int i = 1; i < LINE / 4; i++)
        sum += parts[i];
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

/* Threads take pieces of a job until none are left. */
typedef struct {
    int64_t next, pieces;
} work;

INLINE int take_piece(work *job, int64_t *piece)
{
    *piece = __atomic_fetch_add(&job->next, 1, __ATOMIC_RELAXED);
    return *piece < job->pieces;
}

/* exp(x) for x <= 0, relative error below 5e-16; 0 below -707, NaN stays NaN.
 *
 * exp(x) = 2^n exp(r), |r| <= ln(2) / 2: exp(r) from its series, 2^n by writing n where a number keeps its
 * exponent. Adding 1.5 * 2^52 rounds to a whole number and leaves it in the low bits. */
INLINE doubles exp_doubles(doubles x)
{
    const double rounder = 6755399441055744.0;
    const doubles shifted = x * 1.4426950408889634 + rounder, n = shifted - rounder;
    const doubles r = (x - n * 0.6931471803691238) - n * 1.9082149292705877e-10, r2 = r * r, r4 = r2 * r2;
    const doubles low = (1.0 + r) + r2 * (1.0 / 2 + r * (1.0 / 6)) +
                        r4 * ((1.0 / 24 + r * (1.0 / 120)) + r2 * (1.0 / 720 + r * (1.0 / 5040)));
    const doubles high = (1.0 / 40320 + r * (1.0 / 362880)) + r2 * (1.0 / 3628800 + r * (1.0 / 39916800)) +
                         r4 * (1.0 / 479001600 + r * (1.0 / 6227020800.0));
    const longs scale = ((longs)shifted << 52) + ((int64_t)1023 << 52);
    const longs is_tiny = x < -707.0; /* all bits where true */
    return (doubles)((longs)((low + (r4 * r4) * high) * (doubles)scale) & ~is_tiny);
}

INLINE double exp_double(double x) { return exp_doubles((doubles){0.0} + x)[0]; }

#endif
