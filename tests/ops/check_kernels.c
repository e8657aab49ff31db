/* Every kernel over odd shapes against plain loops: for sanitizers, valgrind and other processors.
 *
 * Arrays are as large as the kernels may touch and no larger. Compiled with REAL_BITS and SUFFIX like the kernels
 * themselves, which are included. Prints the number of cases and a hash of the bits of all results, and exits 1 at
 * the first wrong number.
 */
#define _GNU_SOURCE /* posix_memalign */
#include "scan.c"

#include "dropout.c"

#include <stdio.h>
#include <stdlib.h>

#define TOLERANCE (REAL_BITS == 32 ? 4e-6 : 1e-11)
#define COUNT(array) ((int64_t)(sizeof(array) / sizeof((array)[0])))

static uint64_t seed = 20240523;
static uint64_t hash;
static int64_t cases;

static double draw(void) /* uniform in 0 : 1 */
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) / 9007199254740992.0;
}

static void *allocate(int64_t bytes) /* as aligned as torch's memory, and not a byte longer than asked for */
{
    void *memory = NULL;
    if (posix_memalign(&memory, 64, bytes ? (size_t)bytes : 1))
        exit(2);
    memset(memory, 0x7f, (size_t)bytes); /* what is read unwritten is absurd */
    return memory;
}

static double *numbers(int64_t count) { return allocate(count * (int64_t)sizeof(double)); }

static real *reals_of(int64_t count) { return allocate(count * (int64_t)sizeof(real)); }

static real *drawn(int64_t count, double lowest, double highest)
{
    real *all = reals_of(count);
    for (int64_t i = 0; i < count; i++)
        all[i] = (real)(lowest + (highest - lowest) * draw());
    return all;
}

static double *drawn_numbers(int64_t count)
{
    double *all = numbers(count);
    for (int64_t i = 0; i < count; i++)
        all[i] = 2.0 * draw() - 1.0;
    return all;
}

static void compare(const char *what, int64_t at, double got, double want)
{
    uint64_t bits;
    memcpy(&bits, &got, sizeof bits);
    hash = (hash ^ bits) * 1099511628211u;
    if (fabs(got - want) <= TOLERANCE * (1.0 + fabs(want)))
        return;
    printf("%s of case %lld, number %lld: %.17g instead of %.17g\n", what, (long long)cases, (long long)at, got, want);
    exit(1);
}

/* L, g and f of one row by the definition. */
typedef struct {
    double *gates, *forgets, *outputs; /* (items, heads[, width]) */
    double *logs;                      /* (items, heads)  L; not hashed: logarithms are the C library's */
    double *sums, *reads;              /* (sequences, heads[, width])  L and w / u of the final states */
} plain;

static void plain_forward(const forward_job *job, int64_t sequences, const states *initial, plain *to)
{
    const int64_t heads = job->rows.heads, width = job->rows.width, length = job->rows.length;
    for (int64_t row = 0; row < sequences * heads; row++) {
        const int64_t start = row / heads * length, head = row % heads;
        double sum = initial->u[row] == 0.0 ? -INFINITY : initial->m[row] + log(initial->u[row]);
        double *read = to->reads + row * width;
        for (int64_t j = 0; j < width; j++)
            read[j] = initial->u[row] == 0.0 ? 0.0 : initial->w[row * width + j] / initial->u[row];
        for (int64_t k = start; k < start + length; k++) {
            const int64_t place = k * heads + head;
            const double kept = sum + (job->log_decay ? (double)job->log_decay[place] : 0.0);
            const double score = job->mask && !job->mask[k] ? -INFINITY : (double)job->scores[place];
            const double peak = kept > score ? kept : score;
            sum = peak == -INFINITY ? peak : peak + log(exp(kept - peak) + exp(score - peak));
            to->logs[place] = sum;
            if (!(job->logs[place] == sum || fabs(job->logs[place] - sum) <= TOLERANCE * (1.0 + fabs(sum)))) {
                printf("log of case %lld: %.17g instead of %.17g\n", (long long)cases, job->logs[place], sum);
                exit(1);
            }
            to->gates[place] = sum == -INFINITY ? 0.0 : exp(score - sum);
            to->forgets[place] = sum == -INFINITY ? 0.0 : exp(kept - sum);
            for (int64_t j = 0; j < width; j++) {
                read[j] = to->forgets[place] * read[j] + to->gates[place] * (double)job->values[place * width + j];
                to->outputs[place * width + j] = read[j];
            }
        }
        to->sums[row] = sum;
    }
}

static void compare_backward(const backward_job *job, const plain *truth, int64_t sequences)
{
    const int64_t heads = job->rows.heads, width = job->rows.width, length = job->rows.length;
    double *g = numbers(width);
    for (int64_t row = 0; row < sequences * heads; row++) {
        const int64_t start = row / heads * length, head = row % heads;
        const double u = job->u[row], final_u = job->final_u[row];
        double kept = 1.0, h = -job->grad_u[row] * final_u;
        for (int64_t j = 0; j < width; j++)
            g[j] = job->grad_w[row * width + j] * final_u;
        for (int64_t k = start + length - 1; k >= start; k--) {
            const int64_t place = k * heads + head;
            double along_value = 0.0, along_previous = 0.0;
            h = h * kept - job->grad_logs[place];
            for (int64_t j = 0; j < width; j++) {
                const double grad = (double)job->grad_outputs[place * width + j];
                const double before = k > start ? truth->outputs[(place - heads) * width + j]
                                      : u == 0.0         ? 0.0
                                                         : job->w[row * width + j] / u;
                g[j] = grad + kept * g[j];
                h += grad * truth->outputs[place * width + j];
                along_value += g[j] * (double)job->values[place * width + j];
                along_previous += g[j] * before;
                compare("grad_values", place * width + j, (double)job->grad_values[place * width + j],
                        truth->gates[place] * g[j]);
            }
            compare("grad_scores", place, (double)job->grad_scores[place], truth->gates[place] * (along_value - h));
            kept = truth->forgets[place];
            if (job->grad_log_decay)
                compare("grad_log_decay", place, (double)job->grad_log_decay[place], kept * (along_previous - h));
        }
        double along = 0.0;
        h *= kept;
        for (int64_t j = 0; j < width; j++) {
            along += u == 0.0 ? 0.0 : kept * g[j] * job->w[row * width + j] / u;
            compare("grad_w", row * width + j, job->grads.w[row * width + j], u == 0.0 ? 0.0 : kept * g[j] / u);
        }
        compare("grad_u", row, job->grads.u[row], u == 0.0 ? 0.0 : -h / u);
        compare("grad_m", row, job->grads.m[row], u == 0.0 ? 0.0 : along - h);
    }
    free(g);
}

static states drawn_states(int64_t rows, int64_t width, int is_empty)
{
    states all = {numbers(rows), numbers(rows), drawn_numbers(rows * width)};
    for (int64_t row = 0; row < rows; row++) {
        const int is_row_empty = is_empty || row % 3 == 2;
        all.m[row] = is_row_empty ? LOWEST : 4.0 * draw() - 2.0;
        all.u[row] = is_row_empty ? 0.0 : 0.5 + draw();
        for (int64_t j = 0; is_row_empty && j < width; j++)
            all.w[row * width + j] = 0.0;
    }
    return all;
}

static states new_states(int64_t rows, int64_t width)
{
    return (states){numbers(rows), numbers(rows), numbers(rows * width)};
}

static void free_states(states all)
{
    free(all.m);
    free(all.u);
    free(all.w);
}

enum { MASKED = 1, DECAYING = 2, EMPTY = 4, STREAMED = 8, ALL_OPTIONS = 16 };

/* One job forward and backward. */
static void check_scan(int64_t length, int64_t sequences, int64_t heads, int64_t width, int64_t groups, int options)
{
    const int64_t items = sequences * length, places = items * heads, rows = sequences * heads;
    const int64_t scratch_size = heads * (padded(width) + 8) + 32, some_heads = (heads + groups - 1) / groups;
    rows_job layout = {.all = {0, sequences * ((heads + some_heads - 1) / some_heads)}, .length = length,
                       .heads = heads, .width = width, .some_heads = some_heads,
                       .scratch = numbers(scratch_size), .scratch_size = scratch_size,
                       .is_streamed = (options & STREAMED) != 0};
    real *scores = drawn(places, -6.0, 6.0), *values = drawn(places * width, -2.0, 2.0);
    real *log_decay = options & DECAYING ? drawn(places, -2.0, 0.0) : NULL;
    uint8_t *mask = options & MASKED ? allocate(items) : NULL;
    for (int64_t k = 0; k < items && mask; k++)
        mask[k] = draw() < 0.7;
    for (int64_t i = 0; i < places; i++) {
        if (log_decay && draw() < 0.05)
            log_decay[i] = (real)-INFINITY; /* a reset */
        if (draw() < 0.03)
            scores[i] = (real)-INFINITY; /* as masked */
    }
    const states initial = drawn_states(rows, width, options & EMPTY), final = new_states(rows, width);
    forward_job forward = {.rows = layout, .scores = scores, .values = values, .mask = mask, .log_decay = log_decay,
                           .initial = initial, .final = final, .outputs = reals_of(places * width),
                           .gates = numbers(places), .forgets = numbers(places), .logs = numbers(places)};
    NAME(scan_forward)(&forward);
    plain truth = {numbers(places), numbers(places), numbers(places * width), numbers(places), numbers(rows),
                   numbers(rows * width)};
    plain_forward(&forward, sequences, &initial, &truth);
    for (int64_t i = 0; i < places * width; i++)
        compare("outputs", i, (double)forward.outputs[i], truth.outputs[i]);
    for (int64_t row = 0; row < rows; row++) {
        const int is_empty = truth.sums[row] == -INFINITY;
        compare("u", row, final.u[row] == 0.0, is_empty);
        if (!is_empty)
            compare("m + log u", row, final.m[row] + log(final.u[row]), truth.sums[row]);
        for (int64_t j = 0; j < width; j++)
            compare("w / u", row * width + j, is_empty ? final.w[row * width + j] : final.w[row * width + j] / final.u[row],
                    is_empty ? 0.0 : truth.reads[row * width + j]);
    }

    backward_job backward = {.rows = layout, .grad_outputs = drawn(places * width, -1.0, 1.0),
                             .grad_u = drawn_numbers(rows), .grad_w = drawn_numbers(rows * width),
                             .grad_logs = drawn_numbers(places), .final_u = final.u,
                             .u = initial.u, .w = initial.w, .values = values, .outputs = forward.outputs,
                             .gates = forward.gates, .forgets = forward.forgets, .grad_scores = reals_of(places),
                             .grad_values = reals_of(places * width),
                             .grad_log_decay = log_decay ? reals_of(places) : NULL,
                             .grads = new_states(rows, width)};
    NAME(scan_backward)(&backward);
    compare_backward(&backward, &truth, sequences);
    if (options & EMPTY) { /* no gradients of the final states: as with zeros */
        memset((void *)backward.grad_u, 0, (size_t)rows * sizeof(double));
        memset((void *)backward.grad_w, 0, (size_t)(rows * width) * sizeof(double));
        memset((void *)backward.grad_logs, 0, (size_t)places * sizeof(double));
        backward_job bare = backward;
        bare.rows.all.next = bare.rows.entered = backward.rows.all.next = backward.rows.entered = 0;
        bare.grad_u = bare.grad_w = bare.grad_logs = NULL;
        bare.grad_values = reals_of(places * width);
        NAME(scan_backward)(&backward);
        NAME(scan_backward)(&bare);
        for (int64_t i = 0; i < places * width; i++)
            compare("grad_values without gradients of states", i, (double)bare.grad_values[i], (double)backward.grad_values[i]);
        compare_backward(&backward, &truth, sequences);
        free(bare.grad_values);
    }

    void *const used[] = {layout.scratch, forward.logs, truth.logs, (void *)backward.grad_logs, scores, values, log_decay, mask, forward.outputs, forward.gates,
                          forward.forgets, truth.gates, truth.forgets, truth.outputs, truth.sums, truth.reads,
                          (void *)backward.grad_outputs, (void *)backward.grad_u, (void *)backward.grad_w,
                          backward.grad_scores, backward.grad_values, backward.grad_log_decay};
    for (int64_t i = 0; i < COUNT(used); i++)
        free(used[i]);
    free_states(initial);
    free_states(final);
    free_states(backward.grads);
    cases++;
}

static int is_kept(choice by, uint32_t place)
{
    uint32_t mixed = (place ^ (uint32_t)by.first_key) * 0x7FEB352Du;
    mixed = ((mixed ^ mixed >> 15) ^ (uint32_t)by.second_key) * 0x846CA68Bu;
    mixed = (mixed ^ mixed >> 16) * 0x9E3779B1u;
    return (mixed ^ mixed >> 15) >= (uint32_t)by.threshold;
}

static void check_drop(choice by, int64_t items, int64_t pieces)
{
    drop_job job = {.all = {0, pieces}, .by = by, .items = items, .source = drawn(items, -1.0, 1.0),
                    .target = reals_of(items)};
    NAME(drop)(&job);
    for (int64_t i = 0; i < items; i++)
        compare("dropped", i, (double)job.target[i],
                is_kept(by, (uint32_t)i) ? (double)job.source[i] * (double)*by.scale : 0.0);
    free((void *)job.source);
    free(job.target);
    cases++;
}

#if REAL_BITS == 32
static void check_gelu(choice by, int64_t items, int64_t pieces)
{
    const double pi = 3.141592653589793;
    drop_job job = {.all = {0, pieces}, .by = by, .items = items, .source = drawn(items, -7.0, 7.0),
                    .target = reals_of(items), .given = drawn(items, -1.0, 1.0)};
    for (int is_backward = 0; is_backward < 2; is_backward++) {
        job.all.next = 0;
        (is_backward ? NAME(return_gelu) : NAME(drop_gelu))(&job);
        for (int64_t i = 0; i < items; i++) {
            const double x = (double)job.source[i], probability = erfc(-x / sqrt(2.0)) / 2.0;
            const double slope = probability + x * exp(-x * x / 2.0) / sqrt(2.0 * pi);
            const double value = is_backward ? slope * (double)job.given[i] : x * probability;
            compare("GELU", i, (double)job.target[i], is_kept(by, (uint32_t)i) ? value * (double)*by.scale : 0.0);
        }
    }
    free((void *)job.source);
    free((void *)job.given);
    free(job.target);
    cases++;
}
#endif

static void check_weights(choice by, int64_t pairs, int64_t queries, int64_t keys, int64_t start, int is_causal, int64_t pieces)
{
    const int64_t rows = pairs * queries, count = rows * keys;
    real *scores = drawn(count, -5.0, 5.0), *gradients = drawn(count, -1.0, 1.0), *means = drawn(rows, -1.0, 1.0);
    real *dropped = reals_of(count), *again = reals_of(count), *found = reals_of(count), *log_sums = reals_of(rows);
    memcpy(dropped, scores, (size_t)count * sizeof(real));
    memcpy(again, scores, (size_t)count * sizeof(real));
    memcpy(found, gradients, (size_t)count * sizeof(real));
    weights_job job = {.all = {0, pieces}, .by = by, .rows = rows, .queries = queries, .keys = keys, .start = start,
                       .is_causal = is_causal, .scores = dropped, .log_sums = log_sums};
    NAME(drop_weights)(&job);
    job.all.next = 0;
    job.scores = again;
    job.gradients = found;
    job.means = means;
    NAME(return_weights)(&job);
    for (int64_t row = 0; row < rows; row++) {
        const int64_t last = start + row % queries + 1, seen = is_causal && last < keys ? last : keys;
        double sum = 0.0;
        for (int64_t j = 0; j < seen; j++)
            sum += exp((double)scores[row * keys + j]);
        compare("log_sums", row, (double)log_sums[row], log(sum));
        for (int64_t j = 0; j < keys; j++) {
            const int64_t at = row * keys + j;
            const double weight = j < seen ? exp((double)scores[at]) / sum : 0.0;
            const double factor = is_kept(by, (uint32_t)at) ? (double)*by.scale : 0.0;
            compare("weights", at, (double)dropped[at], weight * factor);
            compare("weights again", at, (double)again[at], weight * factor);
            compare("gradients", at, (double)found[at], weight * ((double)gradients[at] * factor - (double)means[row]));
        }
    }
    void *const used[] = {scores, gradients, means, dropped, again, found, log_sums};
    for (int64_t i = 0; i < COUNT(used); i++)
        free(used[i]);
    cases++;
}

int main(void)
{
    const int64_t widths[] = {1, 3, 4, 7, 8, 17, 33, 64, 67};
    const int64_t lengths[] = {0, 1, 5, 64, 70, 131};
    const int64_t pieces[] = {1, 2, 3, 7};
    for (int64_t i = 0; i < COUNT(widths); i++)
        for (int64_t n = 0; n < COUNT(lengths); n++)
            for (int options = 0; options < ALL_OPTIONS; options++) {
                const int64_t heads = 1 + (i + options) % 4, sequences = 1 + (options * 7 + n) % 5;
                if (options & STREAMED && widths[i] * (int64_t)sizeof(real) % 64)
                    continue; /* only whole lines are */
                check_scan(lengths[n], sequences, heads, widths[i], pieces[(i + n + options) % 4], options);
            }
    const real *scale = drawn(1, 1.0, 2.0);
    const choice by = {.threshold = 1 << 30, .first_key = 123456789, .second_key = 987654321, .scale = scale};
    for (int64_t items = 0; items < 70; items += 1 + items / 4)
        check_drop(by, items, 1 + items % 3);
#if REAL_BITS == 32
    const choice all = {.threshold = 0, .scale = scale};
    for (int64_t items = 0; items < 70; items += 1 + items / 4) {
        check_gelu(by, items, 1 + items % 3);
        check_gelu(all, items, 1 + items % 3);
    }
#endif
    for (int64_t keys = 1; keys < 40; keys += 1 + keys / 4)
        for (int is_causal = 0; is_causal < 2; is_causal++)
            check_weights(by, 2, 1 + keys % 5, keys, keys / 2, is_causal, 1 + keys % 3);
    free((void *)scale);
    printf("%lld cases, bits %016llx\n", (long long)cases, (unsigned long long)hash);
    return 0;
}
