/* The scan, forward and backward. Per head, with scores s, values v, decays c (logarithms) and
 * L_k = log(exp(L_{k-1} + c_k) + exp(s_k)):
 *
 *   forward    o_k = f_k o_{k-1} + g_k v_k          g_k = exp(s_k - L_k), f_k = exp(L_{k-1} + c_k - L_k)
 *   backward   G_k = do_k + f_{k+1} G_{k+1}         H_k = do_k . o_k + f_{k+1} H_{k+1}
 *              dv_k = g_k G_k                       ds_k = g_k (G_k . v_k - H_k)
 *              dc_k = f_k (G_k . o_{k-1} - H_k)
 *
 * (With a gradient of L_k, from H_k it is taken away.) All sequences have the same length and lie end to end on one axis of items. Time is the outer loop and heads the inner one, so that
 * memory is read from front to back. Arrays are contiguous. NaN and infinity poison their own row, one
 * (sequence, head), and nothing else.
 */
#include "kernels.h"

enum { TOGETHER = 64, AHEAD_BYTES = 4096 }; /* items weighed at once; how far ahead memory is fetched */
static const double LOWEST = -1.7976931348623157e308;

typedef struct {
    work all;        /* a piece is one sequence, or some heads of it where there are few sequences */
    int64_t entered; /* how many threads have come so far */
    int64_t length, heads, width, some_heads;
    double *scratch; /* (threads, scratch_size)  rows of whole cache lines, and two numbers per row */
    int64_t scratch_size;
    int64_t is_streamed; /* the result is written past the caches: it is too large to be found there again */
} rows_job;

typedef struct {
    double *m, *u, *w; /* (sequences, heads[, width]) */
} states;

INLINE int64_t padded(int64_t width) { return (width + 7) / 8 * 8; }

INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* How many reals lie between a row and the one to fetch meanwhile, while some of all heads are worked on. */
INLINE int64_t fetch_distance(const rows_job *job, int64_t some_heads)
{
    return (1 + AHEAD_BYTES / (some_heads * job->width * (int64_t)sizeof(real) + 1)) * job->heads * job->width;
}

/* Call a function for the sequence, the first head and the end of the heads of every piece that this thread gets. */
#define FOR_EACH_PIECE(job, rows, work_on)                                                                       \
    double *scratch = (rows)->scratch + __atomic_fetch_add(&(rows)->entered, 1, __ATOMIC_RELAXED) * (rows)->scratch_size; \
    const int64_t groups = ((rows)->heads + (rows)->some_heads - 1) / (rows)->some_heads;                        \
    for (int64_t piece; take_piece(&(rows)->all, &piece);) {                                                     \
        const int64_t first = piece % groups * (rows)->some_heads;                                               \
        work_on(job, piece / groups, first, smaller(first + (rows)->some_heads, (rows)->heads), scratch);        \
    }                                                                                                            \
    if ((rows)->is_streamed)                                                                                     \
        finish_streaming();

typedef struct {
    rows_job rows;
    const real *scores, *values; /* (items, heads[, width]) */
    const uint8_t *mask;         /* (items)  or NULL */
    const real *log_decay;       /* (items, heads)  or NULL */
    states initial, final;       /* u is 0 in an empty state; they may be the same memory */
    real *outputs;               /* (items, heads, width) */
    double *gates, *forgets;     /* (items, heads)  g and f, which the backward pass reads */
    double *logs;                /* (items, heads)  L, or NULL */
} forward_job;

INLINE int is_hidden(const forward_job *job, int64_t item, int64_t place)
{
    return (job->mask && !job->mask[item]) || job->scores[place] == -INFINITY;
}

/* gates = exp(s_k - m_k), forgets = exp(m_{k-1} + c_k - m_k), m_k the largest score so far. Many exponentials at
 * once are vector code, which is why this is done for some items before their values are read. */
INLINE void weigh(const forward_job *job, int64_t start, int64_t stop, int64_t first, int64_t end, double *peaks)
{
    const int64_t heads = job->rows.heads;
    for (int64_t k = start; k < stop; k++)
        for (int64_t head = first; head < end; head++) {
            const int64_t place = k * heads + head;
            const double score = (double)job->scores[place];
            double peak = peaks[head], shrink = 1.0, weight;
            if (job->log_decay) {
                const double decay = (double)job->log_decay[place];
                shrink = decay == -INFINITY ? 0.0 : 1.0;
                peak = decay == -INFINITY || peak + decay < LOWEST ? LOWEST : peak + decay;
            }
            if (is_hidden(job, k, place)) {
                weight = -INFINITY;
            } else if (score <= peak) {
                weight = score - peak;
            } else { /* a new peak, or NaN; both are rare */
                shrink *= exp_double(peak - score);
                weight = score - score; /* not 0: +inf, like NaN, poisons */
                peak = score;
            }
            peaks[head] = peak;
            if (job->logs)
                job->logs[place] = peak;
            job->gates[place] = weight;
            job->forgets[place] = shrink;
        }
    const int is_dense = end - first == heads;
    for (int64_t k = start; k < (is_dense ? start + 1 : stop); k++) {
        double *weights = job->gates + k * heads + first;
        const int64_t count = is_dense ? (stop - start) * heads : end - first;
        int64_t i = 0;
        for (; i + LANES <= count; i += LANES)
            *(doubles *)(weights + i) = exp_doubles(*(doubles *)(weights + i));
        for (; i < count; i++)
            weights[i] = exp_double(weights[i]);
    }
}

enum { KEEP, STORE, STREAM }; /* what becomes of a result: nothing, it is written, written past the caches */

INLINE void put(doubles v, real *at, int64_t count, int mode)
{
    if (mode == STREAM)
        stream(v, at);
    else if (mode == STORE)
        store(v, at, count);
}

INLINE void mix_lanes(double *means, const real *values, real *outputs, int64_t count, double forget, double gate, int mode)
{
    const doubles mean = fuse(load(values, count), all(gate), *(doubles *)means * forget);
    *(doubles *)means = mean;
    put(mean, outputs, count, mode);
}

/* means = forget * means + gate * values; outputs = means. */
INLINE void mix(double *restrict means, const real *restrict values, real *restrict outputs, int64_t width,
                int64_t ahead, double forget, double gate, int mode)
{
    int64_t j = 0;
    for (; j + LINE <= width; j += LINE) {
        FETCH(values + j, ahead, 0);
        if (mode == STORE)
            FETCH(outputs + j, ahead, 1);
        for (int i = 0; i < LINE; i += LANES)
            mix_lanes(means + j + i, values + j + i, outputs + j + i, LANES, forget, gate, mode);
    }
    for (; j < width; j += LANES)
        mix_lanes(means + j, values + j, outputs + j, width - j, forget, gate, mode == STREAM ? STORE : mode);
}

/* One sequence: from its initial state, over its items, to its final state. In between, w / u stands for w. */
INLINE void scan_sequence(const forward_job *job, int64_t sequence, int64_t first, int64_t end, double *scratch)
{
    const rows_job *rows = &job->rows;
    const int64_t heads = rows->heads, width = rows->width, step = padded(width), end_item = (sequence + 1) * rows->length;
    const int64_t ahead = fetch_distance(rows, end - first);
    const states initial = job->initial, final = job->final;
    double *peaks = scratch + heads * step, *totals = peaks + heads;
    for (int64_t head = first; head < end; head++) {
        const int64_t row = sequence * heads + head;
        const double u = initial.u[row];
        peaks[head] = u == 0.0 ? LOWEST : initial.m[row];
        totals[head] = u;
        for (int64_t j = 0; j < step; j++)
            scratch[head * step + j] = u == 0.0 || j >= width ? 0.0 : initial.w[row * width + j] / u;
    }
    for (int64_t start = sequence * rows->length; start < end_item; start += TOGETHER) {
        const int64_t stop = smaller(start + TOGETHER, end_item);
        weigh(job, start, stop, first, end, peaks);
        for (int64_t k = start; k < stop; k++)
            for (int64_t head = first; head < end; head++) {
                const int64_t place = k * heads + head;
                double *means = scratch + head * step;
                const real *values = job->values + place * width;
                real *outputs = job->outputs + place * width;
                const double weight = job->gates[place], shrink = job->forgets[place];
                const double before = shrink == 0.0 ? 0.0 : totals[head] * shrink, sum = before + weight;
                const double inverse = sum == 0.0 ? 0.0 : 1.0 / sum, gate = weight * inverse;
                double forget = before * inverse;
                totals[head] = sum;
                if (job->logs)
                    job->logs[place] = sum == 0.0 ? -INFINITY : job->logs[place] + log(sum);
                if (job->log_decay && job->log_decay[place] == -INFINITY)
                    memset(means, 0, (size_t)step * sizeof(double)); /* whatever came before, a NaN too */
                if (is_hidden(job, k, place)) {
                    forget = sum == 0.0 ? 0.0 : 1.0;
                    for (int64_t j = 0; j < width; j += LANES)
                        store(*(doubles *)(means + j), outputs + j, width - j);
                } else if (rows->is_streamed) {
                    mix(means, values, outputs, width, ahead, forget, gate, STREAM);
                } else {
                    mix(means, values, outputs, width, ahead, forget, gate, STORE);
                }
                job->gates[place] = gate;
                job->forgets[place] = forget;
            }
    }
    for (int64_t head = first; head < end; head++) {
        const int64_t row = sequence * heads + head;
        final.m[row] = peaks[head];
        final.u[row] = totals[head];
        for (int64_t j = 0; j < width; j++)
            final.w[row * width + j] = scratch[head * step + j] * totals[head];
    }
}

EXPORT void NAME(scan_forward)(forward_job *job) { FOR_EACH_PIECE(job, &job->rows, scan_sequence) }

typedef struct {
    rows_job rows;
    const real *grad_outputs;             /* (items, heads, width) */
    const double *grad_u, *grad_w;        /* (sequences, heads[, width])  of the final states; NULL: 0 */
    const double *grad_logs;              /* (items, heads); NULL: 0 */
    const double *final_u, *u, *w;        /* of the final and the initial states */
    const real *values, *outputs;         /* (items, heads, width) */
    const double *gates, *forgets;        /* (items, heads) */
    real *grad_scores, *grad_values;      /* (items, heads[, width]) */
    real *grad_log_decay;                 /* (items, heads)  or NULL */
    states grads;                         /* of the initial states */
} backward_job;

/* G and H beyond the last item: a final state is read as w / u, and has the score m + log u. */
INLINE void begin_row(const backward_job *job, int64_t row, double *g, double *h)
{
    const int64_t width = job->rows.width;
    *h = -(job->grad_u ? job->grad_u[row] * job->final_u[row] : 0.0);
    for (int64_t j = 0; j < padded(width); j++)
        g[j] = job->grad_w && j < width ? job->grad_w[row * width + j] * job->final_u[row] : 0.0;
}

/* What is kept of G and H before the first item is the gradient of a token in front, of score m + log u and value
 * w / u; where nothing is kept, not even a NaN passes. */
INLINE void finish_row(const backward_job *job, int64_t row, const double *g, double h, double kept)
{
    const int64_t width = job->rows.width;
    const double u = job->u[row], scale = u == 0.0 ? 0.0 : kept / u, *w = job->w + row * width;
    double *grad_w = job->grads.w + row * width;
    doubles along[VECTORS] = {{0.0}};
    for (int64_t j = 0; j < width; j++) {
        grad_w[j] = scale == 0.0 ? 0.0 : g[j] * scale;
        along[j % LINE / LANES][j % LANES] += scale == 0.0 ? 0.0 : grad_w[j] * w[j];
    }
    job->grads.u[row] = scale == 0.0 ? 0.0 : -h * scale;
    job->grads.m[row] = total(along) + job->grads.u[row] * u;
}

typedef struct {
    doubles with_output[VECTORS], with_value[VECTORS];
} dots;

INLINE void carry_lanes(double *carries, const real *grads, const real *outputs, const real *values, real *grad_values,
                        int64_t count, double kept, double gate, int mode, dots *sums, int i)
{
    const doubles grad = load(grads, count), sum = fuse(*(doubles *)carries, all(kept), grad);
    *(doubles *)carries = sum;
    sums->with_output[i] = fuse(load(outputs, count), grad, sums->with_output[i]);
    if (mode != KEEP) {
        sums->with_value[i] = fuse(load(values, count), sum, sums->with_value[i]);
        put(sum * gate, grad_values, count, mode);
    }
}

/* carries = grads + kept * carries; grad_values = gate * carries; finds grads . outputs and carries . values. */
INLINE void carry(double *restrict carries, const real *restrict grads, const real *restrict outputs,
                  const real *restrict values, real *restrict grad_values, int64_t width, int64_t ahead, double kept,
                  double gate, int mode, double *along_output, double *along_value)
{
    dots sums = {0};
    int64_t j = 0;
    for (; j + LINE <= width; j += LINE) {
        FETCH(grads + j, ahead, 0);
        FETCH(outputs + j, ahead, 0);
        if (mode != KEEP)
            FETCH(values + j, ahead, 0);
        if (mode == STORE)
            FETCH(grad_values + j, ahead, 1);
        for (int i = 0; i < VECTORS; i++) {
            const int64_t at = j + i * LANES;
            carry_lanes(carries + at, grads + at, outputs + at, values + at, grad_values + at, LANES, kept, gate, mode, &sums, i);
        }
    }
    for (int i = 0; i < VECTORS && j < width; i++, j += LANES)
        carry_lanes(carries + j, grads + j, outputs + j, values + j, grad_values + j, width - j, kept, gate,
                    mode == STREAM ? STORE : mode, &sums, i);
    *along_output = total(sums.with_output);
    *along_value = total(sums.with_value);
}

/* G_k . o_{k-1}; before the first item of a sequence, o is what the initial state reads. */
INLINE double along_previous(const backward_job *job, const double *g, int64_t place, int64_t row, int is_first)
{
    const int64_t width = job->rows.width;
    const real *outputs = job->outputs + (place - job->rows.heads) * width;
    const double u = job->u[row];
    doubles sums[VECTORS] = {{0.0}};
    for (int64_t j = 0; !is_first && j < width; j += LANES) {
        doubles *sum = sums + j % LINE / LANES;
        *sum = fuse(load(outputs + j, width - j), *(const doubles *)(g + j), *sum);
    }
    for (int64_t j = 0; is_first && u != 0.0 && j < width; j++)
        sums[j % LINE / LANES][j % LANES] += g[j] * (job->w[row * width + j] / u);
    return total(sums);
}

/* One sequence, backwards over its items. */
INLINE void return_sequence(const backward_job *job, int64_t sequence, int64_t first, int64_t end, double *scratch)
{
    const rows_job *rows = &job->rows;
    const int64_t heads = rows->heads, width = rows->width, step = padded(width);
    const int64_t start = sequence * rows->length, stop = start + rows->length;
    const int64_t behind = -fetch_distance(rows, end - first);
    double *sums = scratch + heads * step;
    for (int64_t head = first; head < end; head++)
        begin_row(job, sequence * heads + head, scratch + head * step, sums + head);
    for (int64_t k = stop - 1; k >= start; k--)
        for (int64_t head = end - 1; head >= first; head--) { /* backwards too: memory is fetched ahead */
            const int64_t place = k * heads + head;
            const real *grads = job->grad_outputs + place * width, *outputs = job->outputs + place * width;
            const real *values = job->values + place * width;
            const double kept = k == stop - 1 ? 1.0 : job->forgets[place + heads], gate = job->gates[place];
            double *g = scratch + head * step, along_output, along_value;
            real *grad_values = job->grad_values + place * width;
            if (kept == 0.0) { /* nothing after this item depends on it, and no NaN comes back from there */
                memset(g, 0, (size_t)step * sizeof(double));
                sums[head] = 0.0;
            }
            if (gate == 0.0)
                carry(g, grads, outputs, values, grad_values, width, behind, kept, gate, KEEP, &along_output, &along_value);
            else if (rows->is_streamed)
                carry(g, grads, outputs, values, grad_values, width, behind, kept, gate, STREAM, &along_output, &along_value);
            else
                carry(g, grads, outputs, values, grad_values, width, behind, kept, gate, STORE, &along_output, &along_value);
            double h = along_output + kept * sums[head];
            if (job->grad_logs)
                h -= job->grad_logs[place];
            sums[head] = h;
            job->grad_scores[place] = gate == 0.0 ? 0 : (real)(gate * (along_value - h));
            if (gate == 0.0) /* a masked item, whatever stands in it */
                memset(grad_values, 0, (size_t)width * sizeof(real));
            if (job->grad_log_decay) {
                const double forget = job->forgets[place];
                const double along = along_previous(job, g, place, sequence * heads + head, k == start);
                job->grad_log_decay[place] = forget == 0.0 ? 0 : (real)(forget * (along - h));
            }
        }
    for (int64_t head = first; head < end; head++)
        finish_row(job, sequence * heads + head, scratch + head * step, sums[head],
                   start < stop ? job->forgets[start * heads + head] : 1.0);
}

EXPORT void NAME(scan_backward)(backward_job *job) { FOR_EACH_PIECE(job, &job->rows, return_sequence) }
