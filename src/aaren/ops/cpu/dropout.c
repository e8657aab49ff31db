/* Dropout, alone or after a GELU, and the weights of softmax attention with dropout, in one pass over memory.
 *
 * Whether an item is kept is a hash of its place and of two keys: the backward pass hashes again instead of
 * reading a mask, and neither depends on how the work is divided among threads.
 */
#include "kernels.h"

/* Vectors of reals, the last of a row filled up; whole numbers of their size; a hash for each. */
enum { WIDE = 32 / sizeof(real) };
typedef real wide __attribute__((vector_size(32), aligned(sizeof(real)), may_alias));
typedef uint32_t hashes __attribute__((vector_size(WIDE * 4)));
typedef int32_t hash_bits __attribute__((vector_size(WIDE * 4)));
#if REAL_BITS == 64
typedef int64_t wide_bits __attribute__((vector_size(32), aligned(8), may_alias));
#define COUNTED {0, 1, 2, 3}
#else
typedef int32_t wide_bits __attribute__((vector_size(32), aligned(4), may_alias));
#define COUNTED {0, 1, 2, 3, 4, 5, 6, 7}
#endif

INLINE wide get_wide(const real *row, int64_t at, int64_t stop, real rest)
{
    wide v = (wide){0} + rest;
    if (stop - at >= WIDE)
        return *(const wide *)(row + at);
    memcpy(&v, row + at, (size_t)(stop - at) * sizeof(real));
    return v;
}

INLINE void put_wide(wide v, real *row, int64_t at, int64_t stop)
{
    if (stop - at >= WIDE)
        *(wide *)(row + at) = v;
    else
        memcpy(row + at, &v, (size_t)(stop - at) * sizeof(real));
}

typedef struct {
    int64_t threshold, first_key, second_key; /* items whose hash is below the threshold are dropped */
    const real *scale;                        /* (1)  of what is kept */
} choice;

/* v where kept, else 0, for items from a place on: three rounds of 32-bit multiplications and shifts, a key mixed
 * in before the first and second. */
INLINE wide keep(choice by, uint32_t place, wide v)
{
    if (by.threshold == 0)
        return v;
    hashes mixed = place + (hashes)COUNTED;
    mixed = (mixed ^ (uint32_t)by.first_key) * 0x7FEB352Du;
    mixed ^= mixed >> 15;
    mixed = (mixed ^ (uint32_t)by.second_key) * 0x846CA68Bu;
    mixed ^= mixed >> 16;
    mixed *= 0x9E3779B1u;
    mixed ^= mixed >> 15;
    const hash_bits is_kept = mixed >= (uint32_t)by.threshold; /* all bits where true */
    return (wide)((wide_bits)v & __builtin_convertvector(is_kept, wide_bits));
}

typedef struct {
    work all;
    choice by;
    int64_t items;
    const real *source; /* (items) */
    real *target;       /* (items) */
    const real *given;  /* backward of a GELU: (items)  the target's gradient */
} drop_job;

/* Write what is kept of `value`, an expression of the place `i`, the end `stop` and the `scale`, for every item. */
#define DROP_EACH(job, value)                                                                                 \
    const choice by = (job)->by;                                                                              \
    const real scale = *by.scale;                                                                             \
    real *const target = (job)->target;                                                                       \
    for (int64_t piece; take_piece(&(job)->all, &piece);) {                                                   \
        const int64_t stop = (job)->items * (piece + 1) / (job)->all.pieces;                                  \
        for (int64_t i = (job)->items * piece / (job)->all.pieces; i < stop; i += WIDE)                       \
            put_wide(keep(by, (uint32_t)i, value), target, i, stop);                                          \
    }

/* target = source * scale where kept, else 0, whatever stands there. */
EXPORT void NAME(drop)(drop_job *job) { DROP_EACH(job, get_wide(job->source, i, stop, 0) * scale) }

#if REAL_BITS == 64
INLINE wide exp_wide(wide x)
{
    doubles longer = {0.0};
    memcpy(&longer, &x, sizeof x);
    longer = exp_doubles(longer);
    memcpy(&x, &longer, sizeof x);
    return x;
}
#else
/* As exp_doubles, with a shorter series: relative error below 2e-7, 0 below -87. */
INLINE wide exp_wide(wide x)
{
    const float rounder = 12582912.0f;
    const wide shifted = x * 1.44269504f + rounder, n = shifted - rounder;
    const wide r = (x - n * 0.693359375f) - n * -0.00021219444f, r2 = r * r;
    const wide series =
        (1.0f + r) + r2 * ((1.0f / 2 + r * (1.0f / 6)) +
                           r2 * ((1.0f / 24 + r * (1.0f / 120)) + r2 * (1.0f / 720 + r * (1.0f / 5040))));
    const wide_bits scale = ((wide_bits)shifted << 23) + (127 << 23), is_tiny = x < -87.0f;
    return (wide)((wide_bits)(series * (wide)scale) & ~is_tiny);
}

/* a * b + c, as `fuse`. */
INLINE wide fuse_wide(wide a, wide b, wide c)
{
#if defined(__FMA__)
    return (wide)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
    float32x4_t *at = (float32x4_t *)&a, *by = (float32x4_t *)&b, *to = (float32x4_t *)&c;
    to[0] = vfmaq_f32(to[0], at[0], by[0]);
    to[1] = vfmaq_f32(to[1], at[1], by[1]);
    return c;
#else
    return a * b + c;
#endif
}

INLINE wide everywhere(real x) { return x - (wide){0}; }

/* GELU(x) = x P(x), P the normal probability of less than x, and its slope, P(x) + x P'(x). Both P and the slope are
 * 1/2 and an odd function: x n(x^2) / d(x^2), polynomials that were fitted with an absolute error below 1e-8 up to 5.5,
 * and below 1.4e-7 up to 6; further out they are 0 or 1. */
typedef struct {
    float reach, above[6], below[6];
} odd_fraction;

static const odd_fraction PROBABILITY = {
    5.5f,
    {0.398942235f, 0.0338526409f, 0.00467726041f, 1.68825654e-4f, 6.35212116e-6f, 2.27494282e-8f},
    {1.0f, 0.251521905f, 0.0286458687f, 0.00188444462f, 7.36475166e-5f, 1.19750604e-6f},
};
static const odd_fraction SLOPE = {
    6.0f,
    {0.79788453f, -0.0307432652f, 0.0142091618f, 2.41875985e-5f, 3.58505682e-5f, 1.90884307e-7f},
    {1.0f, 0.294805906f, 0.0410647658f, 0.00352876712f, 1.9352117e-4f, 8.88745503e-6f},
};

INLINE wide rise(odd_fraction of, wide x)
{
    const wide square = x * x;
    wide above = everywhere(of.above[5]), below = everywhere(of.below[5]);
    for (int i = 4; i >= 0; i--) {
        above = fuse_wide(above, square, everywhere(of.above[i]));
        below = fuse_wide(below, square, everywhere(of.below[i]));
    }
    const wide_bits is_far = square > of.reach * of.reach, is_positive = x > 0.0f;
    const wide near = 0.5f + x * above / below, far = (wide)((wide_bits)everywhere(1.0f) & is_positive);
    return (wide)(((wide_bits)near & ~is_far) | ((wide_bits)far & is_far));
}

INLINE wide gelu(wide x) { return x * rise(PROBABILITY, x); }

INLINE wide gelu_slope(wide x) { return rise(SLOPE, x); }

/* target = dropped GELU of source; and backward: target = gradient of source, from that of the dropped GELU. */
EXPORT void NAME(drop_gelu)(drop_job *job) { DROP_EACH(job, gelu(get_wide(job->source, i, stop, 0)) * scale) }

EXPORT void NAME(return_gelu)(drop_job *job)
{
    DROP_EACH(job, gelu_slope(get_wide(job->source, i, stop, 0)) * get_wide(job->given, i, stop, 0) * scale)
}
#endif

/* row = exp(row - peak); returns their sum. */
INLINE real exponentiate(real *row, int64_t seen, real peak)
{
    wide sums = {0};
    real sum = 0;
    for (int64_t j = 0; j < seen; j += WIDE) {
        const wide weights = exp_wide(get_wide(row, j, seen, -INFINITY) - peak);
        sums += weights;
        put_wide(weights, row, j, seen);
    }
    for (int i = 0; i < WIDE; i++)
        sum += sums[i];
    return sum;
}

/* The largest score of a row, or NaN. */
INLINE real find_peak(const real *row, int64_t seen)
{
    wide peaks = (wide){0} - INFINITY;
    for (int64_t j = 0; j < seen; j += WIDE) {
        const wide scores = get_wide(row, j, seen, -INFINITY);
        const wide_bits is_new = (scores > peaks) | (scores != scores);
        peaks = (wide)(((wide_bits)scores & is_new) | ((wide_bits)peaks & ~is_new));
    }
    real peak = peaks[0];
    for (int i = 1; i < WIDE; i++)
        peak = peaks[i] > peak || peaks[i] != peaks[i] ? peaks[i] : peak;
    return peak;
}

typedef struct {
    work all; /* pieces of rows: what one query scores of all keys */
    choice by;
    int64_t rows, queries, keys, start, is_causal; /* the first query stands at `start` among the keys */
    real *scores;                                  /* (rows, keys) */
    real *log_sums;                                /* (rows) */
    real *gradients;                               /* backward: (rows, keys) */
    const real *means;                             /* backward: (rows)  a row's gradients under its weights */
} weights_job;

/* Call a function for each row of this thread's pieces with the number of keys that its query sees. */
#define FOR_EACH_ROW(job, work_on)                                                                            \
    for (int64_t piece; take_piece(&(job)->all, &piece);)                                                     \
        for (int64_t row = (job)->rows * piece / (job)->all.pieces,                                           \
                     stop = (job)->rows * (piece + 1) / (job)->all.pieces; row < stop; row++) {               \
            const int64_t seen = (job)->start + row % (job)->queries + 1;                                     \
            work_on(job, row, (job)->is_causal && seen < (job)->keys ? seen : (job)->keys);                   \
        }

/* scores = softmax(scores), dropped; log_sums = log sum exp(scores). */
INLINE void drop_row(const weights_job *job, int64_t row, int64_t seen)
{
    real *restrict scores = job->scores + row * job->keys;
    const uint32_t place = (uint32_t)(row * job->keys);
    const real peak = find_peak(scores, seen), sum = exponentiate(scores, seen, peak), scale = *job->by.scale / sum;
    for (int64_t j = 0; j < seen; j += WIDE)
        put_wide(keep(job->by, place + (uint32_t)j, get_wide(scores, j, seen, 0) * scale), scores, j, seen);
    memset(scores + seen, 0, (size_t)(job->keys - seen) * sizeof(real));
    job->log_sums[row] = peak + (real)log((double)sum);
}

/* scores = the dropped weights again; gradients = those of the scores, from those of the dropped weights. */
INLINE void return_row(const weights_job *job, int64_t row, int64_t seen)
{
    real *restrict scores = job->scores + row * job->keys, *restrict gradients = job->gradients + row * job->keys;
    const uint32_t place = (uint32_t)(row * job->keys);
    const real mean = job->means[row];
    const wide scale = (wide){0} + *job->by.scale;
    exponentiate(scores, seen, job->log_sums[row]);
    for (int64_t j = 0; j < seen; j += WIDE) {
        const wide weights = get_wide(scores, j, seen, 0), kept = keep(job->by, place + (uint32_t)j, scale);
        put_wide(weights * kept, scores, j, seen);
        put_wide(weights * (get_wide(gradients, j, seen, 0) * kept - mean), gradients, j, seen);
    }
    memset(scores + seen, 0, (size_t)(job->keys - seen) * sizeof(real));
    memset(gradients + seen, 0, (size_t)(job->keys - seen) * sizeof(real));
}

EXPORT void NAME(drop_weights)(weights_job *job) { FOR_EACH_ROW(job, drop_row) }

EXPORT void NAME(return_weights)(weights_job *job) { FOR_EACH_ROW(job, return_row) }
