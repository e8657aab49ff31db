/* See runtime.h. Sums of products run in the order of the inputs for every output alike, so that a stream gets
 * the same bits whether it is stepped alone or beside others. */
#define AAREN_INSIDE
#include "runtime.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define NONE UINT32_MAX

#if defined(__AVX512F__)
#define VECTOR 16 /* numbers that are computed together */
#define TALL 8    /* rows of a linear layer that are computed together: as many as there are registers for */
#define EACH_ROW(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#else
#define VECTOR 8
#define TALL 6
#define EACH_ROW(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5)
#endif
#if defined(__GNUC__)
typedef float lanes8 __attribute__((vector_size(32)));
typedef int8_t bytes8 __attribute__((vector_size(8)));
typedef float lanes __attribute__((vector_size(4 * VECTOR)));
typedef int8_t bytes __attribute__((vector_size(VECTOR)));
#endif

typedef struct {
  const aaren_program *program;
  const unsigned char *block[4];
} place;

static unsigned char *find(const place *p, uint32_t at) {
  /* The blocks that are read only are never the first operand, which the compiler of programs sees to. */
  return (unsigned char *)(uintptr_t)(p->block[at & 3] + (at >> 2));
}

static double load(const unsigned char *from, int type, int64_t i) {
  switch (type) {
    case AAREN_F32: return (double)((const float *)(const void *)from)[i];
    case AAREN_F64: return ((const double *)(const void *)from)[i];
    case AAREN_I64: return (double)((const int64_t *)(const void *)from)[i];
    case AAREN_I8: return (double)((const int8_t *)from)[i];
    default: return (double)from[i];
  }
}

static size_t bytes_of(int type) { return type == AAREN_F32 ? 4 : type == AAREN_F64 || type == AAREN_I64 ? 8 : 1; }

static void store(unsigned char *to, int type, int64_t i, double value) {
  switch (type) {
    case AAREN_F32: ((float *)(void *)to)[i] = (float)value; break;
    case AAREN_F64: ((double *)(void *)to)[i] = value; break;
    case AAREN_I64:
      /* Beyond what int64 holds the conversion would be undefined; no index is near. */
      ((int64_t *)(void *)to)[i] = value >= -9.2e18 && value <= 9.2e18 ? (int64_t)value : INT64_MIN;
      break;
    default: to[i] = value != 0.0; break;
  }
}

/* Without branches, so that loops over it are vectorised; within 2 units in the last place. */
static inline float exp_f32(float x) {
  float high = x > 88.0f ? 88.0f : x;
  float y = high < -87.0f ? -87.0f : high;
  const float shifted = y * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: rounds to a whole number */
  const float whole = shifted - 12582912.0f;
  union { float number; uint32_t bits; } scale;
  float p;
  y = y - whole * 0.693359375f + whole * 2.12194440e-4f;
  p = 1.9875691500e-4f;
  p = p * y + 1.3981999507e-3f;
  p = p * y + 8.3334519073e-3f;
  p = p * y + 4.1665795894e-2f;
  p = p * y + 1.6666665459e-1f;
  p = p * y + 5.0000001201e-1f;
  p = p * y * y + y + 1.0f;
  scale.number = shifted;
  scale.bits = ((scale.bits & 0x3FFu) + 127u) << 23;
  /* The low bits of `shifted` hold the whole number in two's complement; ten of them are enough. */
  scale.bits &= 0x7F800000u;
  return p * scale.number;
}

/* GELU: x times the normal distribution's share below x. The share is 1/2 + x P(x^2) / Q(x^2), fitted between -B
 * and B with an error below 2e-7, and 0 or 1 beyond. This returns x P, and Q. */
static inline float gelu_ratio(float x, float *q) {
  const float B = 5.51543289f;
  const float high = x > B ? B : x, c = high < -B ? -B : high, t = c * c;
  float p = 2.265393291e-08f, r = 1.194714439e-06f;
  p = p * t + 6.351963338e-06f; r = r * t + 7.385796736e-05f;
  p = p * t + 1.695661323e-04f; r = r * t + 1.888642270e-03f;
  p = p * t + 4.681649841e-03f; r = r * t + 2.868946554e-02f;
  p = p * t + 3.393054970e-02f; r = r * t + 2.517171594e-01f;
  p = p * t + 3.989422567e-01f; r = r * t + 1.0f;
  *q = r;
  return p * c;
}

static inline float gelu_of(float x, float ratio) {
  const float high = ratio > 0.5f ? 0.5f : ratio, share = high < -0.5f ? -0.5f : high;
  return x * (0.5f + share);
}

/* Divisions take most of the time: two numbers, of the first and the second half, share one. */
static void gelu(float *x, int64_t n) {
  const int64_t half = n / 2;
  float *restrict a = x, *restrict b = x + half;
  int64_t i;
  for (i = 0; i < half; i++) {
    float q, s;
    const float p = gelu_ratio(a[i], &q), r = gelu_ratio(b[i], &s), inverse = 1.0f / (q * s);
    a[i] = gelu_of(a[i], p * s * inverse);
    b[i] = gelu_of(b[i], r * q * inverse);
  }
  if (n % 2) {
    float q;
    const float p = gelu_ratio(x[n - 1], &q);
    x[n - 1] = gelu_of(x[n - 1], p / q);
  }
}

static inline float sigmoid_f32(float x) { return 1.0f / (1.0f + exp_f32(-x)); }

/* Apply an activation in place; `code` is one of the unary elementwise operations. */
static void activate(float *x, int64_t n, int code) {
  int64_t i;
  switch (code) {
    case COPY: break;
    case GELU: gelu(x, n); break;
    case RELU: for (i = 0; i < n; i++) x[i] = x[i] < 0.0f ? 0.0f : x[i]; break;
    case SILU: case SIGMOID:
      for (i = 0; i < n; i++) x[i] = (code == SILU ? x[i] : 1.0f) * sigmoid_f32(x[i]);
      break;
    case TANH: for (i = 0; i < n; i++) x[i] = tanhf(x[i]); break;
    default: break;
  }
}

/* Weights in panels of 16 outputs: panel, input, output; the last panel is filled up with zeros. Every sum runs
 * in the order of the inputs, whichever of the loops below makes it. */
#if defined(__GNUC__)
#define LOAD_F32(into, from) memcpy(&(into), (from), sizeof(lanes8))
#define LOAD_I8(into, from) \
  do { bytes8 narrow; memcpy(&narrow, (from), sizeof narrow); (into) = __builtin_convertvector(narrow, lanes8); } while (0)

#define LOAD_TALL(into, from) memcpy(&(into), (from), sizeof(lanes))
#define LOAD_TALL_I8(into, from) \
  do { bytes narrow; memcpy(&narrow, (from), sizeof narrow); (into) = __builtin_convertvector(narrow, lanes); } while (0)

/* Four panels of one row at once: enough sums under way to hide the time of a multiplication. */
#define LINEAR_WIDE(NAME, TYPE, LOAD) \
static void NAME(const TYPE *weights, const float *x, float *sums, int64_t inputs) { \
  lanes8 a0 = {0}, a1 = {0}, a2 = {0}, a3 = {0}, a4 = {0}, a5 = {0}, a6 = {0}, a7 = {0}; \
  const TYPE *w0 = weights, *w1 = w0 + inputs * PANEL, *w2 = w1 + inputs * PANEL, *w3 = w2 + inputs * PANEL; \
  int64_t j; \
  for (j = 0; j < inputs; j++, w0 += PANEL, w1 += PANEL, w2 += PANEL, w3 += PANEL) { \
    const float item = x[j]; \
    lanes8 wide; \
    LOAD(wide, w0); a0 += wide * item; LOAD(wide, w0 + 8); a1 += wide * item; \
    LOAD(wide, w1); a2 += wide * item; LOAD(wide, w1 + 8); a3 += wide * item; \
    LOAD(wide, w2); a4 += wide * item; LOAD(wide, w2 + 8); a5 += wide * item; \
    LOAD(wide, w3); a6 += wide * item; LOAD(wide, w3 + 8); a7 += wide * item; \
  } \
  memcpy(sums, &a0, 32); memcpy(sums + 8, &a1, 32); memcpy(sums + 16, &a2, 32); memcpy(sums + 24, &a3, 32); \
  memcpy(sums + 32, &a4, 32); memcpy(sums + 40, &a5, 32); memcpy(sums + 48, &a6, 32); memcpy(sums + 56, &a7, 32); \
}
#define LINEAR_ONE(NAME, TYPE, LOAD) \
static void NAME(const TYPE *w, const float *x, float *sums, int64_t inputs) { \
  lanes8 a0 = {0}, a1 = {0}; \
  int64_t j; \
  for (j = 0; j < inputs; j++, w += PANEL) { \
    lanes8 low, high; \
    LOAD(low, w); LOAD(high, w + 8); \
    a0 += low * x[j]; a1 += high * x[j]; \
  } \
  memcpy(sums, &a0, 32); memcpy(sums + 8, &a1, 32); \
}
/* Two vectors of outputs of TALL rows at once: the weights are read once for all of them, and all sums stay in
 * registers. `second` is where the weights of the second vector lie, after those of the first. */
#define TALL_BEGIN(R) lanes a##R = {0}, b##R = {0}; const float *x##R = x[R];
#define TALL_ADD(R) a##R += low * x##R[j]; b##R += high * x##R[j];
#define TALL_SHIFT(R) a##R += low; b##R += high;
#define TALL_ADD_TO(R) \
  memcpy(&low, others[R] + at, sizeof low); memcpy(&high, others[R] + at + VECTOR, sizeof high); a##R += low; b##R += high;
#define TALL_STORE(R) memcpy(y[R] + at, &a##R, sizeof(lanes)); memcpy(y[R] + at + VECTOR, &b##R, sizeof(lanes));
#define LINEAR_TALL(NAME, TYPE, LOAD) \
static void NAME(const TYPE *w, int64_t second, const float *const *x, float *const *y, int64_t at, const float *bias, \
                 const float *const *others, int64_t inputs) { \
  lanes low, high; \
  int64_t j; \
  EACH_ROW(TALL_BEGIN) \
  for (j = 0; j < inputs; j++, w += PANEL) { \
    LOAD(low, w); LOAD(high, w + second); \
    EACH_ROW(TALL_ADD) \
  } \
  if (bias) { \
    memcpy(&low, bias, sizeof low); memcpy(&high, bias + VECTOR, sizeof high); \
    EACH_ROW(TALL_SHIFT) \
  } \
  if (others) { EACH_ROW(TALL_ADD_TO) } \
  EACH_ROW(TALL_STORE) \
}
#else
#define LINEAR_SUMS(NAME, TYPE, X, COUNT, WEIGHT, ITEM) \
static void NAME(const TYPE *w, X x, float *sums, int64_t inputs) { \
  int64_t part, j; int k; \
  for (part = 0; part < COUNT; part++) \
    for (k = 0; k < PANEL; k++) { \
      float sum = 0.0f; \
      for (j = 0; j < inputs; j++) sum += (float)w[(WEIGHT) * PANEL + k] * ITEM; \
      sums[part * PANEL + k] = sum; \
    } \
}
#define LINEAR_WIDE(NAME, TYPE, LOAD) LINEAR_SUMS(NAME, TYPE, const float *, 4, part * inputs + j, x[j])
#define LINEAR_ONE(NAME, TYPE, LOAD) LINEAR_SUMS(NAME, TYPE, const float *, 1, j, x[j])
#define LINEAR_TALL(NAME, TYPE, LOAD) \
static void NAME(const TYPE *w, int64_t second, const float *const *x, float *const *y, int64_t at, const float *bias, \
                 const float *const *others, int64_t inputs) { \
  int64_t row, j; int k; \
  for (row = 0; row < TALL; row++) \
    for (k = 0; k < 2 * VECTOR; k++) { \
      const TYPE *own = k < VECTOR ? w + k : w + second + k - VECTOR; \
      float sum = 0.0f; \
      for (j = 0; j < inputs; j++) sum += (float)own[j * PANEL] * x[row][j]; \
      if (bias) sum += bias[k]; \
      y[row][at + k] = others ? sum + others[row][at + k] : sum; \
    } \
}
#endif
LINEAR_WIDE(wide_f32, float, LOAD_F32)
LINEAR_ONE(one_f32, float, LOAD_F32)
LINEAR_WIDE(wide_i8, int8_t, LOAD_I8)
LINEAR_ONE(one_i8, int8_t, LOAD_I8)
LINEAR_TALL(tall_f32, float, LOAD_TALL)
LINEAR_TALL(tall_i8, int8_t, LOAD_TALL_I8)

typedef struct {
  const unsigned char *weights;
  const float *bias, *scale; /* NULL: there is none */
  int64_t inputs, outputs, panel_bytes;
} linear_layer;

/* Shift, scale and write the outputs of a panel that there are: in this order no compiler can fuse the two, here
 * and not there. A layer with scales has no `others`, which are added to the outputs. */
static void finish(const linear_layer *layer, const float *sums, const float *others, float *y, int64_t first) {
  const int64_t left = layer->outputs - first, n = left < PANEL ? left : PANEL;
  const float *scale = layer->scale, *bias = layer->bias;
  int64_t k;
  for (k = 0; k < n; k++) {
    const float sum = bias ? sums[k] + bias[first + k] : sums[k];
    y[first + k] = scale ? sum * scale[first + k] : others ? sum + others[first + k] : sum;
  }
}

static void linear_row(const linear_layer *layer, const float *x, const float *others, float *y) {
  const int64_t panels = (layer->outputs + PANEL - 1) / PANEL;
  float sums[4 * PANEL];
  int64_t panel, k;
  for (panel = 0; panel + 4 <= panels; panel += 4) {
    const unsigned char *w = layer->weights + panel * layer->panel_bytes;
    if (layer->scale) wide_i8((const int8_t *)w, x, sums, layer->inputs);
    else wide_f32((const float *)(const void *)w, x, sums, layer->inputs);
    for (k = 0; k < 4; k++) finish(layer, sums + k * PANEL, others, y, (panel + k) * PANEL);
  }
  for (; panel < panels; panel++) {
    const unsigned char *w = layer->weights + panel * layer->panel_bytes;
    if (layer->scale) one_i8((const int8_t *)w, x, sums, layer->inputs);
    else one_f32((const float *)(const void *)w, x, sums, layer->inputs);
    finish(layer, sums, others, y, panel * PANEL);
  }
}

/* A row of each of several streams, side by side; `x`, `others` (or NULL) and `y` have room for TALL more. */
static void linear_rows(const linear_layer *layer, const float **x, const float **others, float **y, int64_t count) {
  float sums[TALL][2 * VECTOR];
  float *spare[TALL];
  int64_t lane, at, k;
  for (k = 0; k < TALL; k++) { /* the last rows are computed as often as it takes to fill a tile */
    spare[k] = sums[k];
    x[count + k] = x[count - 1];
    y[count + k] = y[count - 1];
    if (others) others[count + k] = others[count - 1];
  }
  for (at = 0; at < layer->outputs; at += 2 * VECTOR) {
    const int64_t panel = at / PANEL, left = layer->outputs - at;
    const unsigned char *w = layer->weights + panel * layer->panel_bytes;
    const int64_t second = VECTOR < PANEL ? VECTOR : left > PANEL ? layer->inputs * PANEL : 0;
    const int is_whole = left >= 2 * VECTOR && !layer->scale;
    const float *bias = is_whole && layer->bias ? layer->bias + at : NULL;
    for (lane = 0; lane < count; lane += TALL) {
      float *const *to = is_whole ? y + lane : spare;
      const float *const *added = is_whole && others ? others + lane : NULL;
      if (layer->scale) tall_i8((const int8_t *)w, second, x + lane, to, 0, NULL, NULL, layer->inputs);
      else tall_f32((const float *)(const void *)w, second, x + lane, to, is_whole ? at : 0, bias, added, layer->inputs);
      for (k = 0; !is_whole && k < TALL && lane + k < count; k++) {
        const float *own = others ? others[lane + k] : NULL;
        finish(layer, sums[k], own, y[lane + k], at);
        if (VECTOR == PANEL) finish(layer, sums[k] + VECTOR, own, y[lane + k], at + VECTOR);
      }
    }
  }
}

/* y (rows, outputs) = (x (rows, inputs) W + b) scale + others. Operands: y, x, weights, bias, scales, others. */
static void linear(const aaren_op *op, const place *places, int64_t count) {
  const int64_t rows = op->size[0];
  const int is_narrow = op->type[2] == AAREN_I8, has_others = op->at[5] != NONE;
  linear_layer layer;
  int64_t row, lane;
  layer.inputs = op->size[1];
  layer.outputs = op->size[2];
  layer.weights = find(places, op->at[2]);
  layer.panel_bytes = layer.inputs * PANEL * (is_narrow ? 1 : (int64_t)sizeof(float));
  layer.bias = op->at[3] == NONE ? NULL : (const float *)(const void *)find(places, op->at[3]);
  layer.scale = is_narrow ? (const float *)(const void *)find(places, op->at[4]) : NULL;
  for (row = 0; row < rows; row++) {
    const float *x[AAREN_LANES + TALL], *others[AAREN_LANES + TALL];
    float *y[AAREN_LANES + TALL];
    for (lane = 0; lane < count; lane++) {
      x[lane] = (const float *)(const void *)find(places + lane, op->at[1]) + row * layer.inputs;
      y[lane] = (float *)(void *)find(places + lane, op->at[0]) + row * layer.outputs;
      others[lane] = has_others ? (const float *)(const void *)find(places + lane, op->at[5]) + row * layer.outputs : NULL;
    }
    if (AAREN_LANES == 1 || count == 1) linear_row(&layer, x[0], others[0], y[0]);
    else linear_rows(&layer, x, has_others ? others : NULL, y, count);
  }
  if (op->code != COPY)
    for (lane = 0; lane < count; lane++)
      activate((float *)(void *)find(places + lane, op->at[0]), rows * layer.outputs, op->code);
}

static inline float sum_of_8(const float *x) { return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7])); }

static void norm_f32(const float *restrict x, float *restrict y, int64_t width, const float *restrict weight,
                     const float *restrict bias, float epsilon) {
  const float share = 1.0f / (float)width;
  float parts[8] = {0}, mean, scale; /* item i of a row is part of sum i % 8 */
  int64_t i;
  int k;
  for (i = 0; i + 8 <= width; i += 8)
    for (k = 0; k < 8; k++) parts[k] += x[i + k];
  for (; i < width; i++) parts[0] += x[i];
  mean = sum_of_8(parts) * share;
  for (k = 0; k < 8; k++) parts[k] = 0.0f;
  for (i = 0; i + 8 <= width; i += 8)
    for (k = 0; k < 8; k++) { const float d = x[i + k] - mean; parts[k] += d * d; }
  for (; i < width; i++) { const float d = x[i] - mean; parts[0] += d * d; }
  scale = 1.0f / sqrtf(sum_of_8(parts) * share + epsilon);
  for (i = 0; i < width; i++) y[i] = (x[i] - mean) * scale * weight[i] + bias[i];
}

/* Operands: y, x (rows, width), weight, bias; number: epsilon. */
static void norm(const aaren_op *op, const place *p) {
  const int64_t rows = op->size[0], width = op->size[1];
  const unsigned char *from = find(p, op->at[1]);
  unsigned char *to = find(p, op->at[0]);
  const unsigned char *weight = op->at[2] == NONE ? NULL : find(p, op->at[2]);
  const unsigned char *bias = op->at[3] == NONE ? NULL : find(p, op->at[3]);
  int64_t row, i;
  if (op->type[0] == AAREN_F32 && op->type[1] == AAREN_F32 && weight && bias) {
    for (row = 0; row < rows; row++)
      norm_f32((const float *)(const void *)from + row * width, (float *)(void *)to + row * width, width,
               (const float *)(const void *)weight, (const float *)(const void *)bias, (float)op->number[0]);
    return;
  }
  for (row = 0; row < rows; row++) {
    double mean = 0.0, variance = 0.0, scale;
    for (i = 0; i < width; i++) mean += load(from, op->type[1], row * width + i);
    mean /= (double)width;
    for (i = 0; i < width; i++) { const double d = load(from, op->type[1], row * width + i) - mean; variance += d * d; }
    scale = 1.0 / sqrt(variance / (double)width + op->number[0]);
    for (i = 0; i < width; i++) {
      double y = (load(from, op->type[1], row * width + i) - mean) * scale;
      if (weight) y *= load(weight, op->type[2], i);
      if (bias) y += load(bias, op->type[3], i);
      store(to, op->type[0], row * width + i, y);
    }
  }
}

/* One item into a running softmax. Operands: new state (m, u, w end to end), output, old m; score, value, decay.
 * The old u and w follow the old m; size: heads, width of a head. The mask is operand 5 if code is 1. */
#define SCAN_STEP(NAME, REAL, EXPONENT, LOWEST) \
static void NAME(const aaren_op *op, const place *p) { \
  const int64_t heads = op->size[0], width = op->size[1]; \
  REAL *new_m = (REAL *)(void *)find(p, op->at[0]), *new_u = new_m + heads, *new_w = new_u + heads; \
  unsigned char *output = find(p, op->at[1]); \
  const REAL *m = (const REAL *)(const void *)find(p, op->at[2]), *u = m + heads, *w = u + heads; \
  const unsigned char *scores = find(p, op->at[3]), *values = find(p, op->at[4]); \
  const unsigned char *last = op->at[5] == NONE ? NULL : find(p, op->at[5]); \
  const int is_real = !(op->code & 1) || p->block[op->size[3] & 3][(uint32_t)op->size[3] >> 2] != 0; \
  int64_t h, i; \
  for (h = 0; h < heads; h++) { \
    REAL old = m[h], seen = u[h], kept, taken, top, inverse; \
    const REAL score = (REAL)load(scores, op->type[3], h); \
    const unsigned char *value = values; \
    int is_kept = 1, is_taken; \
    if (is_real && last) { \
      const REAL decay = (REAL)load(last, op->type[5], h * op->size[2]); \
      is_kept = decay != (REAL)-INFINITY; \
      old = is_kept ? old + decay : LOWEST; \
      if (old < LOWEST) old = LOWEST; \
      if (!is_kept) seen = 0; \
    } \
    is_taken = is_real && score != (REAL)-INFINITY; \
    if (is_taken) { \
      if (seen == 0) old = LOWEST; \
      top = old > score ? old : score; \
      if (score != score) top = score; \
      kept = old == top ? 1 : EXPONENT(old - top); \
      taken = score == top ? 1 : EXPONENT(score - top); \
      seen = seen * kept + taken; \
      old = top; \
    } else { \
      kept = 1; taken = 0; \
    } \
    if (!is_kept) kept = 0; \
    new_m[h] = old; \
    new_u[h] = seen; \
    inverse = seen == 0 ? 0 : 1 / seen; \
    if (op->type[4] == AAREN_F32 && op->type[1] == AAREN_F32) { \
      const float *restrict v = (const float *)(const void *)value + h * width; \
      const REAL *restrict from = w + h * width; \
      float *restrict y = (float *)(void *)output + h * width; \
      REAL *restrict to = new_w + h * width; \
      if (is_taken) for (i = 0; i < width; i++) to[i] = from[i] * kept + taken * (REAL)v[i]; \
      else for (i = 0; i < width; i++) to[i] = is_kept ? from[i] : 0; \
      for (i = 0; i < width; i++) y[i] = (float)(to[i] * inverse); \
    } else { \
      for (i = 0; i < width; i++) { \
        const REAL sum = is_taken ? w[h * width + i] * kept + taken * (REAL)load(value, op->type[4], h * width + i) \
                         : is_kept ? w[h * width + i] : 0; \
        new_w[h * width + i] = sum; \
        store(output, op->type[1], h * width + i, (double)(sum * inverse)); \
      } \
    } \
  } \
}
SCAN_STEP(scan_f64, double, exp, -DBL_MAX)
SCAN_STEP(scan_f32, float, expf, -FLT_MAX)

#define OF_TWO(TYPE, EXPRESSION) \
  if (a_step && b_step) { for (i = 0; i < n; i++) { const TYPE l = a[i], r = b[i]; y[i] = (EXPRESSION); } return 1; } \
  if (a_step) { const TYPE r = b[0]; for (i = 0; i < n; i++) { const TYPE l = a[i]; y[i] = (EXPRESSION); } return 1; } \
  { const TYPE l = a[0]; for (i = 0; i < n; i++) { const TYPE r = b[b_step ? i : 0]; y[i] = (EXPRESSION); } return 1; }
#define BINARY(EXPRESSION) OF_TWO(float, EXPRESSION)

/* The usual operations on float32, whose numbers lie side by side or are the same everywhere. */
static int elementwise_f32(int code, float *y, const float *a, int64_t a_step, const float *b, int64_t b_step, int64_t n) {
  int64_t i;
  switch (code) {
    case ADD: BINARY(l + r)
    case SUB: BINARY(l - r)
    case MUL: BINARY(l * r)
    case DIV: BINARY(l / r)
    case MAXIMUM: BINARY(l != l || l > r ? l : r)
    default: break;
  }
  if (!a_step) return 0;
  switch (code) {
    case COPY: memcpy(y, a, (size_t)n * sizeof *y); return 1;
    case GELU: case RELU: case SILU: case SIGMOID: case TANH:
      memcpy(y, a, (size_t)n * sizeof *y); activate(y, n, code); return 1;
    default: return 0;
  }
}

/* Sums of endless streams are float64. */
static int elementwise_f64(int code, double *y, const double *a, int64_t a_step, const double *b, int64_t b_step, int64_t n) {
  int64_t i;
  switch (code) {
    case ADD: OF_TWO(double, l + r)
    case MUL: OF_TWO(double, l * r)
    case DIV: OF_TWO(double, l / r)
    default: return 0;
  }
}

/* Thresholds: float32 against float32. */
static int compare_f32(int code, unsigned char *y, const float *a, int64_t a_step, const float *b, int64_t b_step, int64_t n) {
  int64_t i;
  switch (code) {
    case GT: OF_TWO(float, l > r)
    case LT: OF_TWO(float, l < r)
    default: return 0;
  }
}

/* Copies between types, side by side. */
static int convert(unsigned char *to, int to_type, const unsigned char *from, int from_type, int64_t n) {
  float *f32 = (float *)(void *)to;
  double *f64 = (double *)(void *)to;
  int64_t i;
  if (from_type == AAREN_BOOL && to_type == AAREN_F64) for (i = 0; i < n; i++) f64[i] = (double)from[i];
  else if (from_type == AAREN_BOOL && to_type == AAREN_F32) for (i = 0; i < n; i++) f32[i] = (float)from[i];
  else if (from_type == AAREN_F64 && to_type == AAREN_F32) for (i = 0; i < n; i++) f32[i] = (float)((const double *)(const void *)from)[i];
  else if (from_type == AAREN_F32 && to_type == AAREN_F64) for (i = 0; i < n; i++) f64[i] = (double)((const float *)(const void *)from)[i];
  else if (from_type == to_type) memcpy(to, from, (size_t)n * bytes_of(to_type));
  else return 0;
  return 1;
}

static double softplus(double x) { return x > 20.0 ? x : log1p(exp(x)); }

static double apply(int code, double a, double b, double c, const double *number) {
  switch (code) {
    case COPY: return a;
    case ADD: return a + b;
    case SUB: return a - b;
    case MUL: return a * b;
    case DIV: return a / b;
    case MAXIMUM: return a != a || b != b ? a + b : a > b ? a : b;
    case WHERE: return a != 0.0 ? b : c;
    case EQ: return a == b;
    case NE: return a != b;
    case LT: return a < b;
    case LE: return a <= b;
    case GT: return a > b;
    case GE: return a >= b;
    case AND: return a != 0.0 && b != 0.0;
    case OR: return a != 0.0 || b != 0.0;
    case NOT: return a == 0.0;
    case EXP: return exp(a);
    case LOG: return log(a);
    case SQRT: return sqrt(a);
    case SIN: return sin(a);
    case COS: return cos(a);
    case TANH: return tanh(a);
    case SIGMOID: return 1.0 / (1.0 + exp(-a));
    case SOFTPLUS: return softplus(a);
    case GELU: return 0.5 * a * (1.0 + erf(a * 0.70710678118654752440));
    case RELU: return a < 0.0 ? 0.0 : a;
    case SILU: return a / (1.0 + exp(-a));
    case ABS: return fabs(a);
    case FLOOR: return floor(a);
    case ISNAN: return a != a;
    case LERP: return c < 0.5 ? a + c * (b - a) : b - (b - a) * (1.0 - c);
    case CLAMP: return a != a ? a : a < number[0] ? number[0] : a > number[1] ? number[1] : a;
    case REMAINDER: return a - b * floor(a / b);
    case LOG_SIGMOID: return a < 0.0 ? a - log1p(exp(a)) : -log1p(exp(-a));
    default: return NAN;
  }
}

/* One row of an elementwise operation of two operands at most, if there is a loop of its own for its types. */
static int elementwise_row(const aaren_op *op, unsigned char *to, const unsigned char *a, const unsigned char *b) {
  const int32_t a_step = op->stride[1][3], b_step = op->stride[2][3];
  const int n = op->size[3], of_f32 = op->type[1] == AAREN_F32 && (!b || op->type[2] == AAREN_F32);
  if (op->code == COPY && a_step) return convert(to, op->type[0], a, op->type[1], n);
  if (op->type[0] == AAREN_F32 && of_f32)
    return elementwise_f32(op->code, (float *)(void *)to, (const float *)(const void *)a, a_step, (const float *)(const void *)b, b_step, n);
  if (!b) return 0;
  if (op->type[0] == AAREN_BOOL && of_f32)
    return compare_f32(op->code, to, (const float *)(const void *)a, a_step, (const float *)(const void *)b, b_step, n);
  if (op->type[0] == AAREN_F64 && op->type[1] == AAREN_F64 && op->type[2] == AAREN_F64)
    return elementwise_f64(op->code, (double *)(void *)to, (const double *)(const void *)a, a_step, (const double *)(const void *)b, b_step, n);
  return 0;
}

/* Operands: y, a, b, c, each with strides over the four sizes. */
static void elementwise(const aaren_op *op, const place *p) {
  const unsigned char *from[3] = {NULL, NULL, NULL};
  unsigned char *to = find(p, op->at[0]);
  int64_t i, j, k, l;
  const int is_plain = op->stride[0][3] == 1 && op->at[3] == NONE && !((op->stride[1][3] | op->stride[2][3]) & ~1);
  for (k = 0; k < 3; k++)
    if (op->at[k + 1] != NONE) from[k] = find(p, op->at[k + 1]);
  if (is_plain && op->size[0] * op->size[1] * op->size[2] == 1 && elementwise_row(op, to, from[0], from[1])) return;
  for (i = 0; i < op->size[0]; i++)
    for (j = 0; j < op->size[1]; j++)
      for (k = 0; k < op->size[2]; k++) {
        int64_t at[4];
        for (l = 0; l < 4; l++) at[l] = i * op->stride[l][0] + j * op->stride[l][1] + k * op->stride[l][2];
        if (is_plain && elementwise_row(op, to + at[0] * (int64_t)bytes_of(op->type[0]), from[0] + at[1] * (int64_t)bytes_of(op->type[1]),
                            from[1] ? from[1] + at[2] * (int64_t)bytes_of(op->type[2]) : NULL))
          continue;
        for (l = 0; l < op->size[3]; l++) {
          const double a = load(from[0], op->type[1], at[1] + l * op->stride[1][3]);
          const double b = from[1] ? load(from[1], op->type[2], at[2] + l * op->stride[2][3]) : 0.0;
          const double c = from[2] ? load(from[2], op->type[3], at[3] + l * op->stride[3][3]) : 0.0;
          store(to, op->type[0], at[0] + l * op->stride[0][3], apply(op->code, a, b, c, op->number));
        }
      }
}

/* Operands: y, table, index; size: how many indices, then three axes of the table; number: its rows. */
static int gather(const aaren_op *op, const place *p) {
  const unsigned char *table = find(p, op->at[1]), *index = find(p, op->at[2]);
  unsigned char *to = find(p, op->at[0]);
  int64_t i, j, k, l;
  for (i = 0; i < op->size[0]; i++) {
    double row = load(index, op->type[2], i * op->stride[2][0]);
    if (row < 0.0 && op->code) row += op->number[0];
    if (!(row >= 0.0 && row < op->number[0])) return AAREN_BAD_INDEX;
    for (j = 0; j < op->size[1]; j++)
      for (k = 0; k < op->size[2]; k++) {
        const int64_t own = i * op->stride[0][0] + j * op->stride[0][1] + k * op->stride[0][2];
        const int64_t theirs = (int64_t)row * op->stride[1][0] + j * op->stride[1][1] + k * op->stride[1][2];
        const int64_t size = (int64_t)bytes_of(op->type[0]);
        if (op->type[0] == op->type[1] && (op->size[3] == 1 || (op->stride[0][3] == 1 && op->stride[1][3] == 1)))
          memcpy(to + own * size, table + theirs * size, (size_t)(op->size[3] * size));
        else
          for (l = 0; l < op->size[3]; l++)
            store(to, op->type[0], own + l * op->stride[0][3], load(table, op->type[1], theirs + l * op->stride[1][3]));
      }
  }
  return AAREN_OK;
}

/* Operands: y, x; over the last of the four sizes. */
static void reduce(const aaren_op *op, const place *p) {
  const unsigned char *from = find(p, op->at[1]);
  unsigned char *to = find(p, op->at[0]);
  const int64_t n = op->size[3];
  int64_t i, j, k, l;
  for (i = 0; i < op->size[0]; i++)
    for (j = 0; j < op->size[1]; j++)
      for (k = 0; k < op->size[2]; k++) {
        const int64_t start = i * op->stride[1][0] + j * op->stride[1][1] + k * op->stride[1][2];
        double best = 0.0, found = 0.0;
        int64_t where = 0;
        for (l = 0; l < n; l++) {
          const double x = load(from, op->type[1], start + l * op->stride[1][3]);
          found += x;
          if (l == 0 || x > best || (x != x && best == best)) { best = x; where = l; }
        }
        switch (op->code) {
          case MEAN: found /= (double)n; break;
          case ARGMAX: found = (double)where; break;
          case ALL: found = found == (double)n; break;
          default: break;
        }
        store(to, op->type[0], i * op->stride[0][0] + j * op->stride[0][1] + k * op->stride[0][2], found);
      }
}

/* Operands: y, x; over the last of the four sizes; code 1: the logarithm. */
static void softmax(const aaren_op *op, const place *p) {
  const unsigned char *from = find(p, op->at[1]);
  unsigned char *to = find(p, op->at[0]);
  int64_t i, j, k, l;
  for (i = 0; i < op->size[0]; i++)
    for (j = 0; j < op->size[1]; j++)
      for (k = 0; k < op->size[2]; k++) {
        const int64_t x = i * op->stride[1][0] + j * op->stride[1][1] + k * op->stride[1][2];
        const int64_t y = i * op->stride[0][0] + j * op->stride[0][1] + k * op->stride[0][2];
        double top = -INFINITY, sum = 0.0;
        for (l = 0; l < op->size[3]; l++) {
          const double item = load(from, op->type[1], x + l * op->stride[1][3]);
          if (item > top || item != item) top = item;
        }
        for (l = 0; l < op->size[3]; l++) sum += exp(load(from, op->type[1], x + l * op->stride[1][3]) - top);
        for (l = 0; l < op->size[3]; l++) {
          const double item = load(from, op->type[1], x + l * op->stride[1][3]) - top;
          store(to, op->type[0], y + l * op->stride[0][3], op->code ? item - log(sum) : exp(item) / sum);
        }
      }
}

/* Eight sums at once, so that the loop is vectorised. */
static double dot(const float *a, const float *b, int64_t n) {
  double part[8] = {0};
  int64_t i;
  int q;
  for (i = 0; i + 8 <= n; i += 8)
    for (q = 0; q < 8; q++) part[q] += (double)a[i + q] * (double)b[i + q];
  for (; i < n; i++) part[0] += (double)a[i] * (double)b[i];
  return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}

#define COLUMNS 32 /* of a matrix of float64 that are computed together */

/* COLUMNS of a row times a matrix whose rows lie side by side, in float64. */
static void columns_f64(const double *x, int64_t x_step, const double *z, int64_t z_step, int64_t n, double *sums) {
  int64_t k;
  int q;
  for (q = 0; q < COLUMNS; q++) sums[q] = 0.0;
  for (k = 0; k < n; k++) {
    const double item = x[k * x_step];
    for (q = 0; q < COLUMNS; q++) sums[q] += item * z[k * z_step + q];
  }
}

/* y[b, i, j] = sum over k of x[b, i, k] z[b, k, j]; size: b, i, j, k. */
static void matmul(const aaren_op *op, const place *p) {
  const unsigned char *x = find(p, op->at[1]), *z = find(p, op->at[2]);
  unsigned char *to = find(p, op->at[0]);
  const int is_f32 = op->type[1] == AAREN_F32 && op->type[2] == AAREN_F32;
  const int is_f64 = op->type[1] == AAREN_F64 && op->type[2] == AAREN_F64;
  int64_t b, i, j, k;
  for (b = 0; b < op->size[0]; b++)
    for (i = 0; i < op->size[1]; i++)
      for (j = 0; j < op->size[2]; j++) {
        const int64_t first = b * op->stride[1][0] + i * op->stride[1][1], second = b * op->stride[2][0] + j * op->stride[2][2];
        double sum = 0.0;
        if (is_f64 && op->stride[2][2] == 1 && j + COLUMNS <= op->size[2]) {
          double sums[COLUMNS];
          int q;
          columns_f64((const double *)(const void *)x + first, op->stride[1][3], (const double *)(const void *)z + second,
                      op->stride[2][3], op->size[3], sums);
          for (q = 0; q < COLUMNS; q++)
            store(to, op->type[0], b * op->stride[0][0] + i * op->stride[0][1] + (j + q) * op->stride[0][2], sums[q]);
          j += COLUMNS - 1;
          continue;
        }
        if (is_f32 && op->stride[1][3] == 1 && op->stride[2][3] == 1)
          sum = dot((const float *)(const void *)x + first, (const float *)(const void *)z + second, op->size[3]);
        else if (is_f32)
          for (k = 0; k < op->size[3]; k++)
            sum += (double)((const float *)(const void *)x)[first + k * op->stride[1][3]]
                   * (double)((const float *)(const void *)z)[second + k * op->stride[2][3]];
        else
          for (k = 0; k < op->size[3]; k++)
            sum += load(x, op->type[1], first + k * op->stride[1][3]) * load(z, op->type[2], second + k * op->stride[2][3]);
        store(to, op->type[0], b * op->stride[0][0] + i * op->stride[0][1] + j * op->stride[0][2], sum);
      }
}

/* Operand: truths; one that is false refuses the item with the code. */
static int require(const aaren_op *op, const place *p) {
  const unsigned char *fine = find(p, op->at[0]);
  int32_t i;
  for (i = 0; i < op->size[0]; i++)
    if (!fine[i]) return op->code;
  return AAREN_OK;
}

static int check(const aaren_field *fields, uint32_t count, const unsigned char *block, int code) {
  uint32_t f, i;
  for (f = 0; f < count; f++) {
    const double low = fields[f].low, high = fields[f].high;
    const unsigned char *from = block + fields[f].offset;
    if (fields[f].type == AAREN_F32) {
      const float *x = (const float *)(const void *)from;
      int wrong = 0;
      for (i = 0; i < fields[f].count; i++) wrong |= !((double)x[i] >= low) | !((double)x[i] <= high); /* NaN: wrong */
      if (wrong) return code;
    } else {
      for (i = 0; i < fields[f].count; i++) {
        const double x = load(from, (int)fields[f].type, i);
        if (!(x >= low && x <= high)) return code; /* NaN: not */
      }
    }
  }
  return AAREN_OK;
}

int aaren_run(const aaren_program *program, void *states, const void *inputs, void *outputs, void *scratch,
              int32_t *codes, int64_t count) {
  place places[AAREN_LANES];
  int32_t found[AAREN_LANES] = {0};
  int first = AAREN_OK;
  int64_t start, lane, lanes;
  uint32_t n;
  for (start = 0; start < count; start += lanes) {
    lanes = count - start < AAREN_LANES ? count - start : AAREN_LANES;
    for (lane = 0; lane < lanes; lane++) {
      place *p = places + lane;
      p->program = program;
      p->block[AAREN_WEIGHTS] = program->weights;
      p->block[AAREN_STATE] = (const unsigned char *)states + (size_t)(start + lane) * program->state_bytes;
      p->block[AAREN_SCRATCH] = (const unsigned char *)scratch + (size_t)lane * program->scratch_bytes;
      p->block[AAREN_INPUT] = (const unsigned char *)inputs + (size_t)(start + lane) * program->input_bytes;
#if defined(__GNUC__) && AAREN_LANES > 1
      for (n = 0; n < program->state_bytes; n += 64) __builtin_prefetch(p->block[AAREN_STATE] + n);
#endif
      found[lane] = check(program->inputs, program->num_inputs, p->block[AAREN_INPUT], AAREN_BAD_INPUT);
    }
    for (n = 0; n < program->num_ops; n++) {
      const aaren_op *op = program->ops + n;
      if (op->kind == LINEAR) {
        linear(op, places, lanes);
        continue;
      }
      for (lane = 0; lane < lanes; lane++) {
        const place *p = places + lane;
        int code = AAREN_OK;
        switch (op->kind) {
          case ELEMENTWISE: elementwise(op, p); break;
          case NORM: norm(op, p); break;
          case SCAN: if (op->type[0] == AAREN_F64) scan_f64(op, p); else scan_f32(op, p); break;
          case GATHER: code = gather(op, p); break;
          case REDUCE: reduce(op, p); break;
          case SOFTMAX: softmax(op, p); break;
          case REQUIRE: code = require(op, p); break;
          default: matmul(op, p); break;
        }
        if (code && !found[lane]) found[lane] = code;
      }
    }
    for (lane = 0; lane < lanes; lane++) {
      const unsigned char *made = places[lane].block[AAREN_SCRATCH];
      if (!found[lane]) found[lane] = check(program->outputs, program->num_outputs, made + program->output_at, AAREN_BAD_OUTPUT);
      if (!found[lane]) {
        memcpy((unsigned char *)states + (size_t)(start + lane) * program->state_bytes, made, program->state_bytes);
        memcpy((unsigned char *)outputs + (size_t)(start + lane) * program->output_bytes, made + program->output_at,
               program->output_bytes);
      } else if (!first) {
        first = found[lane];
      }
      if (codes) codes[start + lane] = found[lane];
    }
  }
  return first;
}
