/* Dropout, and the weights of softmax attention with dropout, in one pass over memory.
 *
 * Whether an item is kept is a hash of its place and of two keys: the backward pass hashes again instead of
 * reading a mask, and neither depends on how the work is divided among threads.
 */
#include "kernels.h"

typedef struct {
    int64_t threshold, first_key, second_key; /* items whose hash is below the threshold are dropped */
    const real *scale;                        /* (1)  of what is kept */
} choice;

/* scale or 0: three rounds of 32-bit multiplications and shifts, a key mixed in before the first and second. */
INLINE real factor(choice by, uint32_t place)
{
    uint32_t mixed = (place ^ (uint32_t)by.first_key) * 0x7FEB352Du;
    mixed ^= mixed >> 15;
    mixed = (mixed ^ (uint32_t)by.second_key) * 0x846CA68Bu;
    mixed ^= mixed >> 16;
    mixed *= 0x9E3779B1u;
    mixed ^= mixed >> 15;
    return mixed >= (uint32_t)by.threshold ? *by.scale : 0;
}

typedef struct {
    work all;
    choice by;
    int64_t items;
    const real *source; /* (items) */
    real *target;       /* (items) */
} drop_job;

/* target = source * scale where kept, else 0, whatever stands there. */
EXPORT void NAME(drop)(drop_job *job)
{
    const real scale = *job->by.scale;
    const choice by = {job->by.threshold, job->by.first_key, job->by.second_key, &scale};
    const real *restrict source = job->source;
    real *restrict target = job->target;
    for (int64_t piece; take_piece(&job->all, &piece);) {
        const int64_t stop = job->items * (piece + 1) / job->all.pieces;
        for (int64_t i = job->items * piece / job->all.pieces; i < stop; i++)
            target[i] = factor(by, (uint32_t)i) != 0 ? source[i] * scale : 0 * scale;
    }
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

/* Vectors of reals, the last of a row filled up. */
enum { WIDE = 32 / sizeof(real) };
typedef real wide __attribute__((vector_size(32), aligned(sizeof(real)), may_alias));

INLINE wide get(const real *row, int64_t at, int64_t stop, real rest)
{
    wide v = (wide){0} + rest;
    if (stop - at >= WIDE)
        return *(const wide *)(row + at);
    memcpy(&v, row + at, (size_t)(stop - at) * sizeof(real));
    return v;
}

#if REAL_BITS == 64
typedef int64_t wide_bits __attribute__((vector_size(32), aligned(8), may_alias));

INLINE wide exp_wide(wide x)
{
    doubles longer = {0.0};
    memcpy(&longer, &x, sizeof x);
    longer = exp_doubles(longer);
    memcpy(&x, &longer, sizeof x);
    return x;
}
#else
typedef int32_t wide_bits __attribute__((vector_size(32), aligned(4), may_alias));

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
#endif

/* row = exp(row - peak); returns their sum. */
INLINE real exponentiate(real *row, int64_t seen, real peak)
{
    wide sums = {0};
    real sum = 0;
    for (int64_t j = 0; j < seen; j += WIDE) {
        const wide weights = exp_wide(get(row, j, seen, -INFINITY) - peak);
        sums += weights;
        memcpy(row + j, &weights, (size_t)(seen - j < WIDE ? seen - j : WIDE) * sizeof(real));
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
        const wide scores = get(row, j, seen, -INFINITY);
        const wide_bits is_new = (scores > peaks) | (scores != scores);
        peaks = (wide)(((wide_bits)scores & is_new) | ((wide_bits)peaks & ~is_new));
    }
    real peak = peaks[0];
    for (int i = 1; i < WIDE; i++)
        peak = peaks[i] > peak || peaks[i] != peaks[i] ? peaks[i] : peak;
    return peak;
}

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
    const choice by = {job->by.threshold, job->by.first_key, job->by.second_key, &scale};
    for (int64_t j = 0; j < seen; j++)
        scores[j] *= factor(by, place + (uint32_t)j);
    memset(scores + seen, 0, (size_t)(job->keys - seen) * sizeof(real));
    job->log_sums[row] = peak + (real)log((double)sum);
}

/* scores = the dropped weights again; gradients = those of the scores, from those of the dropped weights. */
INLINE void return_row(const weights_job *job, int64_t row, int64_t seen)
{
    real *restrict scores = job->scores + row * job->keys, *restrict gradients = job->gradients + row * job->keys;
    const uint32_t place = (uint32_t)(row * job->keys);
    const real mean = job->means[row], scale = *job->by.scale;
    const choice by = {job->by.threshold, job->by.first_key, job->by.second_key, &scale};
    exponentiate(scores, seen, job->log_sums[row]);
    for (int64_t j = 0; j < seen; j++) {
        const real weight = scores[j], kept = factor(by, place + (uint32_t)j);
        scores[j] = weight * kept;
        gradients[j] = weight * (gradients[j] * kept - mean);
    }
    memset(scores + seen, 0, (size_t)(job->keys - seen) * sizeof(real));
    memset(gradients + seen, 0, (size_t)(job->keys - seen) * sizeof(real));
}

EXPORT void NAME(drop_weights)(weights_job *job) { FOR_EACH_ROW(job, drop_row) }

EXPORT void NAME(return_weights)(weights_job *job) { FOR_EACH_ROW(job, return_row) }
