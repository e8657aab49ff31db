/* Step many streams on several threads. Each takes AAREN_LANES of them at a time until none are left, so that a
 * slow thread does not keep the others waiting. Called by Python alone: exported models have no threads. */
#define AAREN_MANY
#include "runtime.c"

typedef struct {
  int64_t next, pieces; /* of the work, as in ops/cpu/kernels.h */
  int64_t entered;      /* how many threads have come so far */
  const aaren_program *program;
  unsigned char *states;
  const unsigned char *inputs;
  unsigned char *outputs, *scratch;
  int32_t *codes;
  int64_t count, scratch_bytes; /* streams; room of a thread */
} many_job;

AAREN_API void aaren_run_many(many_job *job) {
  const aaren_program *program = job->program;
  unsigned char *scratch = job->scratch + __atomic_fetch_add(&job->entered, 1, __ATOMIC_RELAXED) * job->scratch_bytes;
  int64_t piece;
  while ((piece = __atomic_fetch_add(&job->next, 1, __ATOMIC_RELAXED)) < job->pieces) {
    const int64_t first = piece * AAREN_LANES, left = job->count - first;
    aaren_run(program, job->states + first * program->state_bytes, job->inputs + first * program->input_bytes,
              job->outputs + first * program->output_bytes, scratch, job->codes + first,
              left < AAREN_LANES ? left : AAREN_LANES);
  }
}
