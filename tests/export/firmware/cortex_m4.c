/* Reads rows from rows.bin, writes the answers to answers.bin and the deepest stack to stdout; by semihosting, so
 * without a C library's input and output. */
#include <stdint.h>
#include <string.h>

#include "aaren_model.h"

extern uint32_t data_start[], data_end[], data_from[], bss_start[], bss_end[], stack_top[];

static union { double align; unsigned char bytes[AAREN_STATE_BYTES]; } state;

static int32_t call(int32_t number, const void *arguments) {
  register int32_t r0 __asm__("r0") = number;
  register const void *r1 __asm__("r1") = arguments;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

static int32_t open_file(const char *name, uint32_t mode) {
  const uint32_t arguments[3] = {(uint32_t)(uintptr_t)name, mode, (uint32_t)strlen(name)};
  return call(1, arguments);
}

static void say(uint32_t number) {
  char text[12];
  int at = 11;
  text[at] = 0;
  text[--at] = '\n';
  do { text[--at] = (char)('0' + number % 10); number /= 10; } while (number);
  call(4, text + at);
}

__attribute__((noinline)) static int run(void) {
  const int32_t from = open_file("rows.bin", 1), to = open_file("answers.bin", 5);
  aaren_input input;
  aaren_output output;
  int code;
  if (from < 0 || to < 0) return 1;
  aaren_init(state.bytes);
  for (;;) {
    const uint32_t reading[3] = {(uint32_t)from, (uint32_t)(uintptr_t)&input, sizeof input};
    const uint32_t writing[3] = {(uint32_t)to, (uint32_t)(uintptr_t)&output, sizeof output};
    if (call(6, reading)) break; /* bytes that were not read */
    code = aaren_step(state.bytes, &input, &output);
    if (code) return 10 + code;
    if (call(5, writing)) return 2;
  }
  return 0;
}

void reset(void) {
  uint32_t *to, *bottom = bss_end, *now;
  const uint32_t *from = data_from;
  int code;
  *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20; /* the floating point unit */
  __asm__ volatile("dsb\nisb\nmov %0, sp" : "=r"(now));
  for (to = data_start; to < data_end;) *to++ = *from++;
  for (to = bss_start; to < bss_end;) *to++ = 0;
  for (to = bottom; to < now - 16; to++) *(volatile uint32_t *)to = 0xA5A5A5A5u; /* to see how deep the stack goes */
  code = run();
  while (*(volatile uint32_t *)bottom == 0xA5A5A5A5u) bottom++;
  say((uint32_t)(stack_top - bottom) * 4u);
  call(0x18, (const void *)(uintptr_t)(code ? 0x20023u : 0x20026u)); /* an error, or the end */
  for (;;) {}
}

__attribute__((section(".vectors"), used)) static const uintptr_t vectors[] = {
    (uintptr_t)stack_top, (uintptr_t)reset, (uintptr_t)reset, (uintptr_t)reset};
