/* Run a step program: one item of a stream through a trained model, in constant time and memory.
 *
 * C99 and <math.h>; no allocation, no global state. A program is a table of operations over a block of weights,
 * a flat state and a scratch block. The state is written only after all of the step has gone well.
 */
#ifndef AAREN_RUNTIME_H
#define AAREN_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef AAREN_API
#define AAREN_API
#endif
#define AAREN_RUNTIME_VERSION 1
#define AAREN_MANY_LANES 24 /* inside Python: a multiple of the tiles of rows */
#if defined(AAREN_MANY)
#define AAREN_LANES AAREN_MANY_LANES
#elif !defined(AAREN_LANES)
#define AAREN_LANES 1 /* streams that go through an operation together, at most */
#endif

enum aaren_codes { /* what a step returns */
  AAREN_OK = 0,
  AAREN_BAD_INPUT = 1,  /* not finite, too large, or outside its range: the state is untouched */
  AAREN_BAD_INDEX = 2,  /* a kind, a class or a position that the model does not have: the state is untouched */
  AAREN_BAD_OUTPUT = 3, /* the answer would not be finite: the state is untouched */
  AAREN_BAD_STATE = 4,  /* damaged, or of another model or version */
  AAREN_BAD_TIME = 5,   /* not later than the item before: the state is untouched */
  AAREN_BAD_WEIGHTS = 6 /* a weights file that is damaged, not aligned to 8 bytes, or of another model */
};

enum aaren_blocks { AAREN_WEIGHTS, AAREN_STATE, AAREN_SCRATCH, AAREN_INPUT }; /* blocks that operands lie in */
enum aaren_types { AAREN_F32, AAREN_F64, AAREN_I64, AAREN_BOOL, AAREN_I8 };  /* types of numbers */

#ifdef AAREN_INSIDE /* what a program says, of which users need not know; Python reads it from here */
#define PANEL 16 /* outputs of a linear layer whose weights lie together */
enum kinds { LINEAR, ELEMENTWISE, NORM, SCAN, GATHER, REDUCE, SOFTMAX, MATMUL, REQUIRE };
enum codes {
  COPY, ADD, SUB, MUL, DIV, MAXIMUM, WHERE, EQ, NE, LT, LE, GT, GE, AND, OR, NOT, EXP, LOG, SQRT, SIN, COS, TANH,
  SIGMOID, SOFTPLUS, LOG_SIGMOID, GELU, RELU, SILU, ABS, FLOOR, ISNAN, LERP, CLAMP, REMAINDER
};
enum reductions { SUM, MEAN, ARGMAX, ALL };
#endif

typedef struct {
  uint8_t kind, code;
  uint8_t type[6];       /* of the operands; the first one is written */
  uint32_t at[6];        /* offset in bytes * 4 + block; UINT32_MAX: there is none */
  int32_t size[4];
  int32_t stride[4][4];  /* in numbers, of the first four operands */
  double number[2];
} aaren_op;

typedef struct {
  uint32_t offset, count, type;
  double low, high; /* what the numbers must lie between */
} aaren_field;

typedef struct {
  const aaren_op *ops;
  const aaren_field *inputs, *outputs;
  const unsigned char *weights;
  uint32_t num_ops, num_inputs, num_outputs;
  uint32_t state_bytes, input_bytes, output_bytes, scratch_bytes; /* per stream */
  uint32_t output_at; /* in the scratch block; the new state lies at its beginning */
} aaren_program;

/* Take in one item of each of `count` streams. All blocks are aligned to 8 bytes, those of several streams lie
 * end to end; `scratch` holds scratch_bytes for each of min(count, AAREN_LANES) streams. `codes` (or NULL) gets
 * the result of every stream; a stream that failed keeps its state, and its output means nothing. Returns the
 * first result that is not AAREN_OK. */
AAREN_API int aaren_run(const aaren_program *program, void *states, const void *inputs, void *outputs, void *scratch,
                        int32_t *codes, int64_t count);

#ifdef __cplusplus
}
#endif
#endif
