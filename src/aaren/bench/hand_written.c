/* The stack of `aaren bench stream` as an engineer would write it by hand: every size a constant (-D), weights
 * (inputs, outputs), loops that compilers turn into vectors. It checks nothing and can run nothing else. */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define HEAD (WIDTH / HEADS)
#define TILE 32

typedef struct {
  float mix_w[WIDTH][WIDTH + HEADS], mix_b[WIDTH + HEADS]; /* values, then scores: the query is folded in */
  float out_w[WIDTH][WIDTH], out_b[WIDTH];
  float first_g[WIDTH], first_b[WIDTH];
  float up_w[WIDTH][INNER], up_b[INNER], down_w[INNER][WIDTH], down_b[WIDTH];
  float second_g[WIDTH], second_b[WIDTH];
} layer;

typedef struct {
  double m[HEADS], u[HEADS], w[HEADS][HEAD];
} scan;

static inline float exponential(float x) {
  const float y = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
  const int32_t power = (int32_t)(y * 1.44269504f + (y < 0.0f ? -0.5f : 0.5f));
  const float whole = (float)power;
  const float r = y - whole * 0.693359375f + whole * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  union { int32_t bits; float number; } scale;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  scale.bits = (power + 127) << 23;
  return p * scale.number;
}

static inline float gelu(float x) { /* erf: Abramowitz and Stegun 7.1.26 */
  const float z = x * 0.70710678f, a = fabsf(z), t = 1.0f / (1.0f + 0.3275911f * a);
  const float p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  return 0.5f * x * (1.0f + copysignf(1.0f - p * exponential(-a * a), z));
}

static inline void linear(const float *restrict w, const float *restrict b, const float *restrict x,
                          float *restrict y, int inputs, int outputs) {
  int start = 0;
  for (; start + TILE <= outputs; start += TILE) {
    float sums[TILE];
    memcpy(sums, b + start, sizeof sums);
    for (int j = 0; j < inputs; j++)
      for (int i = 0; i < TILE; i++) sums[i] += x[j] * w[j * outputs + start + i];
    memcpy(y + start, sums, sizeof sums);
  }
  if (start < outputs) {
    float sums[TILE];
    for (int i = 0; i < outputs - start; i++) sums[i] = b[start + i];
    for (int j = 0; j < inputs; j++)
      for (int i = 0; i < outputs - start; i++) sums[i] += x[j] * w[j * outputs + start + i];
    for (int i = 0; i < outputs - start; i++) y[start + i] = sums[i];
  }
}

static inline void add_and_norm(float *restrict x, const float *restrict more, const float *restrict g,
                                const float *restrict b) {
  float mean = 0.0f, variance = 0.0f;
  for (int i = 0; i < WIDTH; i++) { x[i] += more[i]; mean += x[i]; }
  mean /= WIDTH;
  for (int i = 0; i < WIDTH; i++) variance += (x[i] - mean) * (x[i] - mean);
  const float scale = 1.0f / sqrtf(variance / WIDTH + EPSILON);
  for (int i = 0; i < WIDTH; i++) x[i] = (x[i] - mean) * scale * g[i] + b[i];
}

void hand_init(scan *states) {
  memset(states, 0, LAYERS * sizeof *states);
  for (int l = 0; l < LAYERS; l++)
    for (int h = 0; h < HEADS; h++) states[l].m[h] = -DBL_MAX;
}

void hand_step(const layer *layers, scan *states, const float *item, float *answer) {
  float x[WIDTH], mixed[WIDTH + HEADS], seen[WIDTH], inner[INNER];
  memcpy(x, item, sizeof x);
  for (int l = 0; l < LAYERS; l++) {
    const layer *p = layers + l;
    scan *s = states + l;
    linear(&p->mix_w[0][0], p->mix_b, x, mixed, WIDTH, WIDTH + HEADS);
    for (int h = 0; h < HEADS; h++) {
      const double score = mixed[WIDTH + h], top = s->m[h] > score ? s->m[h] : score;
      const double kept = exp(s->m[h] - top), taken = exp(score - top);
      s->m[h] = top;
      s->u[h] = s->u[h] * kept + taken;
      const double inverse = 1.0 / s->u[h];
      for (int d = 0; d < HEAD; d++) {
        s->w[h][d] = s->w[h][d] * kept + taken * mixed[h * HEAD + d];
        seen[h * HEAD + d] = (float)(s->w[h][d] * inverse);
      }
    }
    linear(&p->out_w[0][0], p->out_b, seen, mixed, WIDTH, WIDTH);
    add_and_norm(x, mixed, p->first_g, p->first_b);
    linear(&p->up_w[0][0], p->up_b, x, inner, WIDTH, INNER);
    for (int i = 0; i < INNER; i++) inner[i] = gelu(inner[i]);
    linear(&p->down_w[0][0], p->down_b, inner, mixed, INNER, WIDTH);
    add_and_norm(x, mixed, p->second_g, p->second_b);
  }
  memcpy(answer, x, sizeof x);
}
